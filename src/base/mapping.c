#include "base/mapping.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Each signal that the program handles makes the kernel start over with a reservation. */
#define RESERVE_TRIES 100

static void *map_at(void *at, int flags, int fd, uint64_t bytes)
{
    flags |= fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    return mmap(at, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
}

/* Holds a larger piece of the address space, maps within it, and gives back the rest. */
static void *map_aligned(int fd, uint64_t bytes, uint64_t align)
{
    uint64_t held = bytes + align, page = (uint64_t)sysconf(_SC_PAGESIZE);
    char *hold = mmap(NULL, held, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (hold == MAP_FAILED)
        return MAP_FAILED;
    char *from = (char *)(((uintptr_t)hold + align - 1) & ~(align - 1));
    char *to = from + ((bytes + page - 1) & ~(page - 1));
    if (map_at(from, MAP_FIXED, fd, bytes) == MAP_FAILED) {
        int error = errno;

        munmap(hold, held);
        errno = error;
        return MAP_FAILED;
    }
    if (from > hold)
        munmap(hold, (size_t)(from - hold));
    if (hold + held > to)
        munmap(to, (size_t)(hold + held - to));
    return from;
}

void *mapping_make(int fd, uint64_t bytes, uint64_t align)
{
    ASSERT(bytes > 0 && (align & (align - 1)) == 0);
    void *at = align ? map_aligned(fd, bytes, align) : map_at(NULL, 0, fd, bytes);

    if (at == MAP_FAILED)
        return NULL;
    madvise(at, bytes, MADV_HUGEPAGE); /* a wish: not every kernel or file has huge pages */
    return at;
}

bool mapping_reserve(int fd, uint64_t bytes)
{
    for (unsigned i = 0; i < RESERVE_TRIES; i++) {
        if (fallocate(fd, 0, 0, (off_t)bytes) == 0 || errno == EOPNOTSUPP)
            return true;
        if (errno != EINTR)
            break;
    }
    return false;
}
