/*
 * shm: - memory that processes of one machine share: a POSIX shared memory object by name, a file
 * or a device by path.
 *
 * The nodes of the pool lie one behind the other in one mapping. A process that opens the pool
 * holds an exclusive flock() on the file from before it first looks at the file until formatted()
 * says that there is a whole pool. Hence:
 *
 *   SHM-M1  Of many processes that find no pool, one makes it. The others wait and find it made.
 *   SHM-M2  What a process sees under the lock does not change. A file without a pool is new, or
 *       was left by a creator that died, which released its lock. It is taken over if it holds
 *       nothing but zeros and beginnings of superblocks.
 *   SHM-M3  Anything else is refused and stays as it is: a file is written to only if it holds a
 *       pool or nothing.
 *
 *   SHM-M4  A client's process can be seen to live or to have ended. The process holds a lock on a
 *       byte of the file, whose number is the client's identity, from before the identity is in the
 *       pool until the endpoint has another one or is closed (process_lock.h). Where nobody has the
 *       lock, the client has ended, or it never could be seen from here: it is on another machine,
 *       or in a container with another node of the device. The client's witness tells which: it is
 *       made of its identity and of the scope of its locks.
 *
 * Memory is reserved when a pool is made. In a file with holes, running out of memory would show
 * only when a store into a hole kills the process with SIGBUS. For the same reason a file that is
 * shorter than its superblock says is refused and never mapped.
 */
#include "base/clock.h"
#include "base/hash.h"
#include "base/mapping.h"
#include "base/process_lock.h"
#include "fabric/backends.h"
#include "fabric/direct.h"
#include "fabric/superblock_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#define NAME_PREFIX    "/farside-" /* of the POSIX names, for pools only */
#define NAME_BYTES_MAX 200u

/* How long to wait for another process that is making or checking the pool. */
#define LOCK_WAIT_NS  (60ull * 1000000000)
#define LOCK_PAUSE_NS 500000ull

/* How often another process may remove the file between our opening and locking it. */
#define ENTER_TRIES 100

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

/* What a URI names and, once entered, the file behind it. */
struct place {
    char name[sizeof NAME_PREFIX + URI_TEXT_MAX];
    bool by_path;   /* else a POSIX name                   */
    bool made;      /* this open created the file          */
    int fd;         /* -1: not entered. It holds the lock until the pool is formatted */
    struct stat st; /* of the file when it was entered     */
};

struct shm_fab {
    struct direct_fab direct;
    struct fab_ops ops; /* a device's: with another clock */
    struct place place;
    char *map;
    uint64_t map_bytes;
    uint64_t map_align;  /* 0: the kernel chooses the address */
    uint64_t lock_bytes; /* to be mapped for a process lock  */
    uint64_t lock_scope; /* 0: unknown                       */
};

struct shm_ep {
    struct direct_ep direct;
    struct process_lock lock; /* of its identity */
};

/* ---- the file -------------------------------------------------------------------------------- */

static bool good_name(const char *name)
{
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

    return len > 0 && len <= NAME_BYTES_MAX && name[len] == '\0';
}

static int place_parse(const char *rest, struct place *p)
{
    memset(p, 0, sizeof *p);
    p->fd = -1;
    p->by_path = rest[0] == '/';
    if (!p->by_path && !good_name(rest))
        return err_fail(
            FAR_BAD_URI,
            "shm: takes a path from the root, or a name of up to %u letters, digits, '.', "
            "'_' and '-', not '%s'",
            NAME_BYTES_MAX, rest);
    snprintf(p->name, sizeof p->name, "%s%s", p->by_path ? "" : NAME_PREFIX, rest);
    return FAR_OK;
}

/* The name as in the URI. */
static const char *place_text(const struct place *p)
{
    return p->by_path ? p->name : p->name + strlen(NAME_PREFIX);
}

static int place_system(const struct place *p, const char *what)
{
    int status = errno == ENOSPC || errno == ENOMEM ? FAR_NO_MEMORY : FAR_SYSTEM;

    return err_fail(status, "cannot %s shm:%s: %s", what, place_text(p), strerror(errno));
}

static int place_open(const struct place *p, int flags)
{
    return p->by_path ? open(p->name, flags | O_CLOEXEC | O_NOCTTY, 0600)
                      : shm_open(p->name, flags, 0600);
}

static int place_unlink(const struct place *p)
{
    return p->by_path ? unlink(p->name) : shm_unlink(p->name);
}

/* A child that was forked meanwhile has the descriptor, too. */
static void place_unlock(const struct place *p)
{
    if (p->fd >= 0)
        flock(p->fd, LOCK_UN);
}

static void place_leave(struct place *p)
{
    if (p->fd < 0)
        return;
    place_unlock(p);
    close(p->fd);
    p->fd = -1;
}

/* Not a blocking flock(): a stopped process that holds the lock must not stop all others. */
static int place_lock(const struct place *p)
{
    uint64_t start = clock_ns();

    while (flock(p->fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return place_system(p, "lock");
        if (clock_ns() - start > LOCK_WAIT_NS)
            return err_fail(FAR_TIMEOUT, "another process has had shm:%s locked for %llu seconds",
                            place_text(p), LOCK_WAIT_NS / 1000000000);
        clock_sleep(LOCK_PAUSE_NS);
    }
    return FAR_OK;
}

/* Only files are opened, and devices that may be memory: opening anything else may have side
 * effects. The devices of major number 1 are the kernel's own: null, zero, random, all of the
 * machine's memory. */
#define KERNEL_MEMORY_MAJOR 1u

static int check_kind(const struct place *p, const struct stat *st)
{
    const char *what = S_ISDIR(st->st_mode)    ? "a directory"
                       : S_ISFIFO(st->st_mode) ? "a pipe"
                       : S_ISSOCK(st->st_mode) ? "a socket"
                       : S_ISBLK(st->st_mode)  ? "a block device"
                                               : NULL;

    if (S_ISCHR(st->st_mode) && major(st->st_rdev) == KERNEL_MEMORY_MAJOR)
        what = "a device without memory that could be shared";
    if (what)
        return err_fail(FAR_NOT_A_POOL,
                        "shm:%s is %s; a pool is in a file, or in a device that can be mapped",
                        place_text(p), what);
    return FAR_OK;
}

/* Opens and locks the file, creating it if allowed. O_CREAT is not used on an existing file:
 * kernels refuse it for files of other users in directories like that of POSIX names. */
static int place_enter(struct place *p, bool create)
{
    for (unsigned i = 0; i < ENTER_TRIES; i++) {
        int rc = p->by_path && stat(p->name, &p->st) == 0 ? check_kind(p, &p->st) : FAR_OK;

        if (rc != FAR_OK)
            return rc;
        p->made = false;
        p->fd = place_open(p, O_RDWR);
        if (p->fd < 0 && errno == ENOENT) {
            if (!create)
                return err_fail(FAR_NOT_A_POOL,
                                "shm:%s does not exist; give size= in the URI to create it",
                                place_text(p));
            p->fd = place_open(p, O_RDWR | O_CREAT | O_EXCL);
            if (p->fd < 0 && errno == EEXIST)
                continue;
            p->made = p->fd >= 0;
        }
        if (p->fd < 0)
            return place_system(p, "open");
        rc = place_lock(p);
        if (rc == FAR_OK && fstat(p->fd, &p->st) != 0)
            rc = place_system(p, "look at");
        if (rc == FAR_OK && p->st.st_nlink > 0)
            rc = check_kind(p, &p->st); /* it may be another file by now */
        if (rc == FAR_OK && p->st.st_nlink > 0)
            return FAR_OK;
        place_leave(p);
        if (rc != FAR_OK)
            return rc;
    }
    return err_fail(FAR_CONTENTION, "shm:%s vanished %u times while it was opened", place_text(p),
                    ENTER_TRIES);
}

/* Reads what a file begins with; zeros past its end. */
static int place_head(const struct place *p, struct node_head *head)
{
    memset(head, 0, sizeof *head);
    return pread(p->fd, head, sizeof *head, 0) < 0 ? place_system(p, "read") : FAR_OK;
}

/* ---- geometry -------------------------------------------------------------------------------- */

static void set_nodes(struct shm_fab *s, unsigned nodes, uint64_t size)
{
    s->direct.fab.nodes = nodes;
    for (unsigned i = 0; i < nodes; i++)
        s->direct.fab.size[i] = size;
}

/* Takes the geometry from the superblock or, if there is none yet, from the options. */
static int adopt(struct shm_fab *s, const struct direct_options *o, const struct node_head *head)
{
    const char *text = place_text(&s->place);

    s->direct.fab.fresh = head->magic == 0;
    if (head->magic == 0) {
        if (o->size == 0)
            return err_fail(FAR_NOT_A_POOL,
                            "shm:%s holds no pool; give size= in the URI to make one", text);
        set_nodes(s, o->nodes ? (unsigned)o->nodes : 1, o->size);
        return FAR_OK;
    }
    if (head->magic != POOL_MAGIC)
        return err_fail(FAR_NOT_A_POOL, "shm:%s holds something else than a pool", text);
    int rc = superblock_check(head, 0);
    if (rc != FAR_OK)
        return rc;
    if (head->nodes == 0 || head->nodes > FAB_NODES_MAX || head->size < DIRECT_NODE_BYTES_MIN ||
        head->size > DIRECT_NODE_BYTES_MAX || head->size % 64)
        return err_fail(FAR_CORRUPT, "the superblock of shm:%s says %u nodes of %llu bytes", text,
                        head->nodes, (unsigned long long)head->size);
    if ((o->size && o->size != head->size) || (o->nodes && o->nodes != head->nodes) ||
        (o->pool.clients && o->pool.clients != head->clients) ||
        (o->pool.lease_ms && o->pool.lease_ms != head->lease_ms) ||
        (o->pool.voters && o->pool.voters != node_head_voters(head)) ||
        (o->wait == FAB_WAIT && !(head->flags & NODE_HEAD_WAITS)))
        return err_fail(
            FAR_BAD_URI,
            "shm:%s was made with size=%llu&nodes=%u&clients=%u&lease=%u&wait=%u&voters=%u", text,
            (unsigned long long)head->size, head->nodes, head->clients, head->lease_ms,
            head->flags & NODE_HEAD_WAITS, node_head_voters(head));
    set_nodes(s, head->nodes, head->size);
    return FAR_OK;
}

static uint64_t nodes_bytes(const struct shm_fab *s)
{
    return s->direct.fab.nodes * s->direct.fab.size[0];
}

static int map(struct shm_fab *s)
{
    s->map = mapping_make(s->place.fd, s->map_bytes, s->map_align);
    if (!s->map && S_ISCHR(s->place.st.st_mode) && errno == ENODEV)
        return err_fail(FAR_NOT_A_POOL, "shm:%s is a device that cannot be mapped",
                        place_text(&s->place));
    if (!s->map)
        return place_system(&s->place, "map");
    for (unsigned i = 0; i < s->direct.fab.nodes; i++)
        s->direct.base[i] = s->map + i * s->direct.fab.size[0];
    return FAR_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

#define LOOK_BYTES 16384u

/* Zeroes the superblocks in a piece of the file: a creator that died may have written them. */
static void zero_heads(const struct shm_fab *s, uint64_t off, char *piece, size_t bytes)
{
    for (unsigned i = 0; i < s->direct.fab.nodes; i++) {
        uint64_t head = i * s->direct.fab.size[0];

        if (head >= off && head - off < bytes) {
            size_t left = bytes - (head - off), len = sizeof(struct node_head);

            memset(piece + (head - off), 0, left < len ? left : len);
        }
    }
}

/* FAR_NOT_A_POOL unless the file is all zeros, superblocks aside (SHM-M2). Holes are skipped. */
static int check_blank(const struct shm_fab *s)
{
    static const char zeros[LOOK_BYTES];
    char piece[LOOK_BYTES];
    const struct place *p = &s->place;
    off_t off = 0;

    while (off < p->st.st_size) {
        off_t data = lseek(p->fd, off, SEEK_DATA);

        if (data < 0 && errno == ENXIO)
            return FAR_OK;
        if (data > off)
            off = data & ~(off_t)63; /* so that no superblock is cut in two */
        ssize_t bytes = pread(p->fd, piece, sizeof piece, off);
        if (bytes < 0)
            return place_system(p, "read");
        if (bytes == 0)
            return FAR_OK;
        zero_heads(s, (uint64_t)off, piece, (size_t)bytes);
        if (memcmp(piece, zeros, (size_t)bytes) != 0)
            return err_fail(FAR_NOT_A_POOL, "shm:%s holds something else than a pool",
                            place_text(p));
        off += bytes;
    }
    return FAR_OK;
}

/* Is there enough space? Otherwise the kernel would fill the file system before it fails. */
static bool has_room(const struct shm_fab *s)
{
    struct statvfs fs;
    uint64_t had = (uint64_t)s->place.st.st_blocks * 512;

    if (fstatvfs(s->place.fd, &fs) != 0 || fs.f_blocks == 0) /* 0: without a limit */
        return true;
    return s->map_bytes <= had || (s->map_bytes - had) / fs.f_frsize <= fs.f_bavail;
}

/*
 * Fills memory with huge pages, as far as the kernel has them. Most machines are set to give shared
 * memory huge pages only if asked to join small pages into one, which is cheap while there is only
 * one small page. Nothing here has to succeed.
 */
static void join_pages(const struct shm_fab *s)
{
    for (uint64_t off = 0; off < s->map_bytes; off += MAPPING_HUGE_BYTES) {
        if (pwrite(s->place.fd, "", 1, (off_t)off) != 1)
            return;
    }
    madvise(s->map, s->map_bytes, MADV_COLLAPSE);
}

/* Gives a blank file its length and its memory. */
static int make_file(struct shm_fab *s, bool in_memory)
{
    const struct place *p = &s->place;

    if (!has_room(s))
        return err_fail(FAR_NO_MEMORY, "there are no %llu bytes left for shm:%s",
                        (unsigned long long)s->map_bytes, place_text(p));
    /* The length first: a creator that dies while memory is reserved leaves a whole file. */
    if (ftruncate(p->fd, (off_t)s->map_bytes) != 0)
        return place_system(p, "set the length of");
    int rc = map(s);
    if (rc == FAR_OK && in_memory)
        join_pages(s);
    if (rc == FAR_OK && !mapping_reserve(p->fd, s->map_bytes))
        rc = place_system(p, "reserve the memory of");
    if (rc != FAR_OK && ftruncate(p->fd, p->st.st_size) != 0)
        rc = place_system(p, "set the length of");
    return rc;
}

static int take_file(struct shm_fab *s, const struct direct_options *o)
{
    struct node_head head;
    struct statfs fs;
    int rc = place_head(&s->place, &head);

    if (rc == FAR_OK && fstatfs(s->place.fd, &fs) != 0)
        rc = place_system(&s->place, "look at");
    if (rc == FAR_OK)
        rc = adopt(s, o, &head);
    if (rc != FAR_OK)
        return rc;
    uint64_t unit = fs.f_type == HUGETLBFS_MAGIC ? (uint64_t)fs.f_bsize : 1; /* of its length */
    s->map_bytes = (nodes_bytes(s) + unit - 1) / unit * unit;
    s->map_align = unit > MAPPING_HUGE_BYTES ? unit : MAPPING_HUGE_BYTES;
    s->lock_bytes = unit > 1 ? unit : (uint64_t)sysconf(_SC_PAGESIZE);
    if (s->direct.fab.fresh) {
        rc = check_blank(s);
        return rc == FAR_OK ? make_file(s, fs.f_type == TMPFS_MAGIC) : rc;
    }
    if ((uint64_t)s->place.st.st_size != s->map_bytes)
        return err_fail(FAR_CORRUPT, "shm:%s has %llu bytes, the pool in it had %llu",
                        place_text(&s->place), (unsigned long long)s->place.st.st_size,
                        (unsigned long long)s->map_bytes);
    return map(s);
}

/* ---- devices --------------------------------------------------------------------------------- */

/* A DAX device can be mapped past its end; the error shows only when that memory is touched. Other
 * devices do not report their size. */
static int check_device_size(const struct shm_fab *s)
{
    const struct place *p = &s->place;
    unsigned long long bytes;
    char path[64];
    FILE *f;

    snprintf(path, sizeof path, "/sys/dev/char/%u:%u/size", major(p->st.st_rdev),
             minor(p->st.st_rdev));
    f = fopen(path, "re");
    if (!f)
        return FAR_OK;
    int got = fscanf(f, "%llu", &bytes);
    fclose(f);
    if (got == 1 && s->map_bytes > bytes)
        return err_fail(FAR_BAD_URI, "shm:%s has %llu bytes, not %llu", place_text(p), bytes,
                        (unsigned long long)s->map_bytes);
    return FAR_OK;
}

/* Is the memory of a device the same in every mapping? Some devices have new memory each time. This
 * one holds no pool, so it may be written to. */
static int check_shared(const struct shm_fab *s)
{
    uint64_t *mine = (uint64_t *)s->map, last = s->map_bytes / 8 - 1, was;
    uint64_t *other = mapping_make(s->place.fd, s->map_bytes, 0);

    if (!other)
        return place_system(&s->place, "map");
    was = __atomic_load_n(&mine[last], __ATOMIC_SEQ_CST);
    __atomic_store_n(&mine[last], ~was, __ATOMIC_SEQ_CST);
    bool same = __atomic_load_n(&other[last], __ATOMIC_SEQ_CST) == ~was;
    __atomic_store_n(&mine[last], was, __ATOMIC_SEQ_CST);
    munmap(other, s->map_bytes);
    return same ? FAR_OK
                : err_fail(FAR_NOT_A_POOL,
                           "shm:%s is a device with different memory in each mapping",
                           place_text(&s->place));
}

static uint64_t boot_now(struct fab_ep *ep)
{
    (void)ep;
    return clock_boot_ns();
}

/* Machines may share a device, and do not see each other's processes. So a client asks for its
 * lease again between the pieces of a post. While its machine is suspended, the lease must pass by
 * its own clock as it does by that of the others, who watch it. */
static void keep_to_leases(struct shm_fab *s)
{
    s->direct.fab.caps |= FAB_CAP_PIECES;
    s->ops = *s->direct.fab.ops;
    s->ops.now = s->ops.coarse = boot_now;
    s->direct.fab.ops = &s->ops;
}

/* A device can be read only through a mapping, so its size must be known beforehand. */
static int take_device(struct shm_fab *s, const struct direct_options *options)
{
    struct direct_options o = *options;
    struct node_head head;

    if (o.size == 0)
        return err_fail(FAR_BAD_URI, "shm:%s is a device, and needs size= in the URI",
                        place_text(&s->place));
    o.nodes = o.nodes ? o.nodes : 1;
    set_nodes(s, (unsigned)o.nodes, o.size);
    s->map_bytes = s->lock_bytes = nodes_bytes(s);
    int rc = check_device_size(s);
    if (rc == FAR_OK)
        rc = map(s);
    if (rc != FAR_OK)
        return rc;
    memcpy(&head, s->map, sizeof head);
    keep_to_leases(s);
    rc = adopt(s, &o, &head);
    if (rc == FAR_OK && s->direct.fab.fresh)
        rc = check_shared(s);
    if (rc == FAR_OK && s->direct.fab.fresh)
        memset(s->map, 0, s->map_bytes);
    return rc;
}

/* ---- whether processes live (SHM-M4) --------------------------------------------------------- */

/* Is the descriptor still the file's? A program may have closed it and opened another. */
static bool still_there(const struct place *p)
{
    struct stat st;

    return fstat(p->fd, &st) == 0 && st.st_dev == p->st.st_dev && st.st_ino == p->st.st_ino;
}

static void shm_identify(struct fab_ep *ep, uint64_t client)
{
    const struct shm_fab *s = (const struct shm_fab *)ep->fab;
    struct shm_ep *e = (struct shm_ep *)ep;
    struct process_lock before = e->lock;

    e->lock = (struct process_lock){0};
    if (still_there(&s->place))
        (void)process_lock_take(&e->lock, s->place.fd, client, s->lock_bytes);
    process_lock_release(&before);
}

static uint64_t make_witness(const struct shm_fab *s, uint64_t client)
{
    uint64_t parts[2] = {s->lock_scope, client};

    return s->lock_scope == 0 ? 0 : hash_sum(parts, sizeof parts, 0) | 1;
}

static uint64_t shm_witness(struct fab_ep *ep, uint64_t client)
{
    return ((const struct shm_ep *)ep)->lock.mapping
               ? make_witness((const struct shm_fab *)ep->fab, client)
               : 0;
}

static enum fab_life shm_life(struct fab_ep *ep, uint64_t client, uint64_t witness)
{
    const struct shm_fab *s = (const struct shm_fab *)ep->fab;
    bool taken = false;

    if (!still_there(&s->place) || !process_lock_ask(s->place.fd, client, &taken))
        return FAB_LIFE_UNKNOWN;
    if (taken)
        return FAB_ALIVE;
    return witness != 0 && witness == make_witness(s, client) ? FAB_DEAD : FAB_LIFE_UNKNOWN;
}

/* ---- the fabric ------------------------------------------------------------------------------ */

static int shm_ep_open(struct fab *fab, struct fab_ep **ep)
{
    struct shm_ep *e = calloc(1, sizeof *e);

    if (!e)
        return err_fail(FAR_NO_MEMORY, "no memory for an endpoint of shm:");
    e->direct.ep.fab = fab;
    e->direct.ep.ops = fab->ops;
    int rc = direct_sit((struct direct_fab *)fab, &e->direct);
    if (rc != FAR_OK) {
        free(e);
        return rc;
    }
    *ep = &e->direct.ep;
    return FAR_OK;
}

static void shm_ep_close(struct fab_ep *ep)
{
    process_lock_release(&((struct shm_ep *)ep)->lock);
    direct_leave((struct direct_ep *)ep);
    free(ep);
}

static void shm_formatted(struct fab *fab)
{
    place_unlock(&((struct shm_fab *)fab)->place);
}

static void shm_close(struct fab *fab)
{
    struct shm_fab *s = (struct shm_fab *)fab;

    if (s->map)
        munmap(s->map, s->map_bytes);
    if (s->place.made && s->direct.fab.fresh) /* no pool was made: leave no file behind */
        place_unlink(&s->place);
    place_leave(&s->place);
    direct_end(&s->direct);
    free(s);
}

static int shm_open_fabric(struct uri *uri, struct fab **fab);

static int shm_remove(struct uri *uri)
{
    struct direct_options o;
    struct node_head head;
    struct place p;
    int rc = place_parse(uri->rest, &p);

    if (rc == FAR_OK)
        rc = direct_options(uri, 0, 0, &o);
    if (rc == FAR_OK)
        rc = place_enter(&p, false);
    if (rc != FAR_OK)
        return rc;
    if (!S_ISREG(p.st.st_mode))
        rc = err_fail(FAR_UNSUPPORTED, "shm:%s is not a file", place_text(&p));
    else
        rc = place_head(&p, &head);
    /* A file without a pool under one of our names was left by a creator that died: it goes,
     * too. */
    if (rc == FAR_OK && head.magic != POOL_MAGIC && (p.by_path || head.magic != 0))
        rc = err_fail(FAR_NOT_A_POOL, "shm:%s holds no pool", place_text(&p));
    if (rc == FAR_OK && place_unlink(&p) != 0)
        rc = place_system(&p, "remove");
    place_leave(&p);
    return rc;
}

#define SHM_OPS                                                                                    \
    .scheme = "shm", .open = shm_open_fabric, .close = shm_close, .formatted = shm_formatted,      \
    .remove = shm_remove, .identify = shm_identify, .life = shm_life, .witness = shm_witness,      \
    .ep_open = shm_ep_open, .ep_close = shm_ep_close, .coarse = direct_coarse

const struct fab_ops shm_fabric = {SHM_OPS, DIRECT_OPS};
static const struct fab_ops shm_deferred = {SHM_OPS, DIRECT_OPS_DEFERRED};

static int shm_open_fabric(struct uri *uri, struct fab **fab)
{
    struct direct_options o;
    struct shm_fab *s = calloc(1, sizeof *s);

    if (!s)
        return err_fail(FAR_NO_MEMORY, "no memory for the fabric shm:");
    int rc = place_parse(uri->rest, &s->place);
    if (rc == FAR_OK)
        rc = direct_options(uri, 0, 0, &o);
    if (rc != FAR_OK)
        goto close;
    direct_init(&s->direct, &o, &shm_fabric, &shm_deferred);
    s->direct.fab.caps |= FAB_CAP_VIEW_PIECES;
    rc = place_enter(&s->place, o.size != 0);
    if (rc != FAR_OK)
        goto close;
    rc = S_ISREG(s->place.st.st_mode) ? take_file(s, &o) : take_device(s, &o);
    if (rc != FAR_OK)
        goto close;
    s->lock_scope = process_lock_scope(s->place.fd);
    *fab = &s->direct.fab;
    return FAR_OK;

close:
    shm_close(&s->direct.fab);
    return rc;
}
