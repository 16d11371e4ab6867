/*
 * The memory of a memory node: anonymous, or in a file that outlives it.
 *
 * In a file, the memory comes first and struct memd_keep is at the end, its magic written last. A
 * file is used if it is empty or ends so; any other is refused and stays as it is. Its memory is
 * reserved, since a store into a hole that cannot be filled would kill the node with SIGBUS.
 *
 * The node has a life, a number that clients read (MEMBERS-1). It goes on with the same one only if
 * its file says that the last node ended in order, and in this very file: a copy may be old. A file
 * system that does not keep when files were made cannot say that.
 */
#include "memd/memd.h"

#include "base/hash.h"
#include "base/mapping.h"
#include "fabric/superblock_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int file_failed(const char *path, const char *what)
{
    return err_fail(errno == ENOSPC || errno == ENOMEM ? FAR_NO_MEMORY : FAR_SYSTEM,
                    "cannot %s %s: %s", what, path, strerror(errno));
}

static int map(struct memd_region *r)
{
    r->base = mapping_make(r->fd, r->map_bytes, MAPPING_HUGE_BYTES);
    if (!r->base)
        return err_fail(FAR_NO_MEMORY, "cannot map %llu bytes: %s",
                        (unsigned long long)r->map_bytes, strerror(errno));
    r->keep = (struct memd_keep *)(void *)(r->base + r->map_bytes - memd_keep_bytes());
    return FAR_OK;
}

static int start_keep(struct memd_region *r)
{
    int rc = wire_random(&r->keep->instance, sizeof r->keep->instance);

    if (rc != FAR_OK)
        return rc;
    r->keep->size = r->size;
    __atomic_store_n(&r->keep->magic, MEMD_KEEP_MAGIC, __ATOMIC_RELEASE);
    return FAR_OK;
}

static void set_size(struct memd_region *r, uint64_t size)
{
    r->size = size & ~63ull;
    r->map_bytes = ((size + 65535) & ~65535ull) + memd_keep_bytes();
}

/* Takes the size from the end of the file. */
static int look(struct memd_region *r, const char *path, uint64_t bytes)
{
    struct memd_keep head = {0};

    if (bytes > memd_keep_bytes() && pread(r->fd, &head, offsetof(struct memd_keep, fenced),
                                           (off_t)(bytes - memd_keep_bytes())) < 0)
        return file_failed(path, "read");
    if (head.magic != MEMD_KEEP_MAGIC)
        return err_fail(FAR_NOT_A_POOL, "%s does not hold a node's memory", path);
    if (head.size < DIRECT_NODE_BYTES_MIN || head.size > DIRECT_NODE_BYTES_MAX)
        return err_fail(FAR_CORRUPT, "%s claims to hold %llu bytes", path,
                        (unsigned long long)head.size);
    set_size(r, head.size);
    if (r->map_bytes != bytes)
        return err_fail(FAR_CORRUPT, "%s has %llu bytes, not %llu", path, (unsigned long long)bytes,
                        (unsigned long long)r->map_bytes);
    return FAR_OK;
}

/* Gives an empty file its length and its memory, and writes its end. */
static int make_file(struct memd_region *r, uint64_t size, const char *path)
{
    if (size == 0)
        return err_fail(FAR_NOT_A_POOL,
                        "%s does not hold a node's memory; give a size to create it", path);
    set_size(r, size);
    if (ftruncate(r->fd, (off_t)r->map_bytes) != 0)
        return file_failed(path, "set the length of");
    int rc =
        mapping_reserve(r->fd, r->map_bytes) ? map(r) : file_failed(path, "reserve the memory of");
    if (rc == FAR_OK)
        rc = start_keep(r);
    if (rc != FAR_OK && ftruncate(r->fd, 0) != 0)
        rc = file_failed(path, "empty");
    return rc;
}

static int open_file(struct memd_region *r, uint64_t size, const char *path)
{
    struct stat st;

    r->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
    if (r->fd < 0)
        return file_failed(path, "open");
    if (flock(r->fd, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? err_fail(FAR_SYSTEM, "%s is in use by another node", path)
                                    : file_failed(path, "lock");
    if (fstat(r->fd, &st) != 0)
        return file_failed(path, "look at");
    if (!S_ISREG(st.st_mode))
        return err_fail(FAR_INVALID, "%s is not a file", path);
    if (st.st_size == 0)
        return make_file(r, size, path);
    int rc = look(r, path, (uint64_t)st.st_size);
    if (rc == FAR_OK && size != 0 && r->size != (size & ~63ull))
        rc = err_fail(FAR_INVALID, "%s holds a node of %llu bytes, not %llu", path,
                      (unsigned long long)r->size, (unsigned long long)size);
    return rc == FAR_OK ? map(r) : rc;
}

static void unmap(struct memd_region *r)
{
    if (r->base)
        munmap(r->base, r->map_bytes);
    if (r->fd >= 0)
        close(r->fd);
    *r = (struct memd_region){.fd = -1};
}

static uint64_t *word(struct memd_region *r, uint64_t off)
{
    return (uint64_t *)(void *)(r->base + off);
}

/* What tells a file from its copies, also from one with the same number: when it was made. 0: not
 * known. */
static uint64_t file_identity(const struct memd_region *r)
{
    struct statx x;
    if (r->fd < 0 || statx(r->fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &x) != 0 ||
        !(x.stx_mask & STATX_BTIME))
        return 0;
    uint64_t part[3] = {x.stx_ino, (uint64_t)x.stx_btime.tv_sec, x.stx_btime.tv_nsec};
    return hash_sum(part, sizeof part, 0) | 1;
}

/* Waits until the page that it is on is on the disk. */
static bool is_kept(const void *at)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    return msync((void *)((uintptr_t)at & ~(page - 1)), page, MS_SYNC) == 0;
}

/* Before anybody is let in, and on the disk by then: the machine may stop at any time. */
static int begin_life(struct memd_region *r, bool witness)
{
    bool formatted = r->keep->formatted != 0;
    bool was_witness = *word(r, NODE_KIND_OFF) == NODE_KIND_WITNESS;
    if (formatted && witness != was_witness)
        return err_fail(FAR_INVALID, witness ? "the file holds data: a witness needs one of its own"
                                             : "the file holds a witness: give --witness");
    bool in_order = r->keep->ended != 0 && r->keep->ended == file_identity(r);
    r->keep->ended = 0;
    *word(r, NODE_KIND_OFF) = witness ? NODE_KIND_WITNESS : 0;
    int rc = in_order ? FAR_OK : wire_random(word(r, NODE_LIFE_OFF), 8);
    if (rc == FAR_OK && r->fd >= 0 &&
        !(is_kept(word(r, NODE_LIFE_OFF)) && is_kept(&r->keep->ended)))
        return err_fail(FAR_SYSTEM, "cannot write to the file: %s", strerror(errno));
    return rc;
}

/* First all of the memory, then that it is all there. */
static void end_life(struct memd_region *r)
{
    if (r->fd < 0 || msync(r->base, r->map_bytes, MS_SYNC) != 0)
        return;
    r->keep->ended = file_identity(r);
    (void)msync(r->base, r->map_bytes, MS_SYNC); /* if this fails, another life begins */
}

int memd_region_open(struct memd_region *region, uint64_t size, const char *path, bool witness)
{
    struct memd_region r = {.fd = -1};
    int rc;

    if (path) {
        rc = open_file(&r, size, path);
    } else {
        set_size(&r, size);
        rc = memd_check_memory(r.map_bytes);
        if (rc == FAR_OK)
            rc = map(&r);
        if (rc == FAR_OK)
            rc = start_keep(&r);
    }
    if (rc == FAR_OK)
        rc = begin_life(&r, witness);
    if (rc == FAR_OK)
        *region = r;
    else
        unmap(&r);
    return rc;
}

void memd_region_close(struct memd_region *r)
{
    if (r->base)
        end_life(r);
    unmap(r);
}
