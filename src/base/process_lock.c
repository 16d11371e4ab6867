#include "base/process_lock.h"

#include "base/hash.h"
#include "base/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

/* Another description of the same file, whatever has become of its name. */
static int open_again(int fd)
{
    char path[32];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDWR | O_CLOEXEC | O_NOCTTY);
}

static struct flock one_byte(uint64_t byte)
{
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};
}

/* If another thread forks while the descriptor is open, the child keeps the lock until it ends or
 * calls exec(). Then the process seems to live on: others wait, and nothing is damaged. */
bool process_lock_take(struct process_lock *lock, int fd, uint64_t byte, size_t bytes)
{
    struct process_lock taken = {.bytes = bytes};
    struct flock what = one_byte(byte);
    int again = open_again(fd);

    *lock = (struct process_lock){0};
    if (again < 0)
        return false;
    taken.mapping = mmap(NULL, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, again, 0);
    bool mapped = taken.mapping != MAP_FAILED;
    bool good = mapped && process_number(&taken.process) == 0 &&
                madvise(taken.mapping, bytes, MADV_DONTFORK) == 0 &&
                fcntl(again, F_OFD_SETLK, &what) == 0;
    close(again);
    if (good)
        *lock = taken;
    else if (mapped)
        munmap(taken.mapping, bytes);
    return good;
}

void process_lock_release(struct process_lock *lock)
{
    if (lock->mapping && process_same(lock->process))
        munmap(lock->mapping, lock->bytes);
    lock->mapping = NULL;
}

bool process_lock_ask(int fd, uint64_t byte, bool *taken)
{
    struct flock what = one_byte(byte);

    if (fcntl(fd, F_OFD_GETLK, &what) != 0)
        return false;
    *taken = what.l_type != F_UNLCK;
    return true;
}

uint64_t process_lock_scope(int fd)
{
    struct {
        char boot[40];
        uint64_t dev, ino;
    } scope = {.boot = ""};
    struct stat st;
    int boot = open(BOOT_ID, O_RDONLY | O_CLOEXEC);

    if (boot < 0)
        return 0;
    ssize_t got = read(boot, scope.boot, sizeof scope.boot);
    close(boot);
    if (got < 36 || fstat(fd, &st) != 0)
        return 0;
    scope.dev = st.st_dev;
    scope.ino = st.st_ino;
    return hash_sum(&scope, sizeof scope, 0);
}
