/*
 * What shm: refuses: invalid URIs, files with other contents, pools of another shape or with
 * damage. The attempt changes none of them.
 */
#include "support/shm_scratch.h"
#include "fabric/superblock_layout.h"
#include "store/store.h"

#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/un.h>

static void refused(const char *uri, int status, const char *words)
{
    far_pool *pool = NULL;
    int rc = far_pool_open(uri, &pool);

    if (rc != status || !strstr(far_error_detail(), words))
        print_error("%s: %s: %s\n", uri, far_errname(rc), far_error_detail());
    assert_int_equal(rc, status);
    assert_non_null(strstr(far_error_detail(), words));
    assert_null(pool);
}

static void invalid_uris_are_refused(void **state)
{
    static const char *const bad[] = {
        "shm:",          "shm:?size=8m",    "shm:a/b?size=8m",        "shm:./a?size=8m",
        "shm:a b",       "shm:\xc3\xa4",    "shm:x?size=0",           "shm:x?size=1023k",
        "shm:x?size=2t", "shm:x?nodes=0",   "shm:x?size=8m&nodes=65", "shm:x?clients=0",
        "shm:x?defer=2", "shm:x?secret=no", "shm:x?wait=2",
    };
    char long_name[256] = "shm:";

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refused(bad[i], FAR_BAD_URI, "");
    memset(long_name + 4, 'x', 201);
    refused(long_name, FAR_BAD_URI, "200 letters");
}

static void what_does_not_exist_is_refused(void **state)
{
    char path[256];

    (void)state;
    for (unsigned by_path = 0; by_path < 2; by_path++) {
        const char *name = scratch_name(by_path);

        refused(scratch_uri(name, ""), FAR_NOT_A_POOL, "size=");
        refused(scratch_uri(name, "?nodes=2&clients=9"), FAR_NOT_A_POOL, "size=");
        assert_false(scratch_there(name));
    }
    snprintf(path, sizeof path, "shm:%s/nowhere/pool?size=8m", scratch.dir);
    refused(path, FAR_SYSTEM, "No such file or directory");
}

static void what_is_not_a_file_is_refused(void **state)
{
    const char *fifo = scratch_name(true);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    (void)state;
    refused(scratch_uri(scratch.dir, "?size=8m"), FAR_NOT_A_POOL, "is a directory");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    refused(scratch_uri(fifo, "?size=8m"), FAR_NOT_A_POOL, "is a pipe");
    snprintf(address.sun_path, sizeof address.sun_path, "%s", scratch_name(true));
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    refused(scratch_uri(address.sun_path, "?size=8m"), FAR_NOT_A_POOL, "is a socket");
    assert_int_equal(far_pool_remove(scratch_uri(address.sun_path, "")), FAR_NOT_A_POOL);
    close(fd);
}

/* ---- files that are something else ----------------------------------------------------------- */

#define FOREIGN_BYTES (2u << 20)

/* A file of zeros with a few bytes at some place. */
static const char *foreign(bool by_path, off_t bytes, const char *text, off_t at)
{
    const char *name = scratch_name(by_path);
    int fd = open(scratch_path(name), O_RDWR | O_CREAT | O_EXCL, 0640);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, bytes), 0);
    assert_int_equal(pwrite(fd, text, strlen(text), at), strlen(text));
    close(fd);
    return name;
}

static void refused_untouched(const char *name, const char *options, int status, const char *words)
{
    const char *path = scratch_path(name);
    struct stat before, after;
    char *was, *is;
    int fd = open(path, O_RDONLY);

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &before), 0);
    was = malloc((size_t)before.st_size + 1);
    is = malloc((size_t)before.st_size + 1);
    assert_true(was && is);
    assert_int_equal(pread(fd, was, (size_t)before.st_size, 0), before.st_size);
    refused(scratch_uri(name, options), status, words);
    assert_int_equal(fstat(fd, &after), 0);
    assert_int_equal(before.st_size, after.st_size);
    assert_int_equal(before.st_blocks, after.st_blocks);
    assert_int_equal(before.st_mode, after.st_mode);
    assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof before.st_mtim);
    assert_int_equal(pread(fd, is, (size_t)before.st_size, 0), before.st_size);
    assert_memory_equal(was, is, before.st_size);
    close(fd);
    free(was);
    free(is);
}

static void files_with_other_contents_are_refused(void **state)
{
    static const struct {
        const char *what;
        off_t bytes, at;
        const char *text;
    } cases[] = {
        {"one byte", 1, 0, "x"},
        {"a word and no more", 8, 0, "8 bytes."},
        {"a short text", 30, 0, "a text that is none of ours"},
        {"something at the very beginning", FOREIGN_BYTES, 0, "x"},
        {"a magic of its own", FOREIGN_BYTES, 0, "frside99"},
        {"zeros, then behind the superblock", FOREIGN_BYTES, sizeof(struct node_head), "x"},
        {"zeros for a while", FOREIGN_BYTES, 32768, "CD001"},
        {"zeros but for its last byte", FOREIGN_BYTES, FOREIGN_BYTES - 1, "x"},
        {"zeros but for the last byte of an odd length", FOREIGN_BYTES + 7, FOREIGN_BYTES + 6, "x"},
        {"zeros, and shorter than the pool", 4096, 4095, "x"},
        {"zeros, and longer than the pool", 4 * FOREIGN_BYTES, 3 * FOREIGN_BYTES, "x"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (unsigned by_path = 0; by_path < 2; by_path++) {
            const char *name = foreign(by_path, cases[i].bytes, cases[i].text, cases[i].at);

            refused_untouched(name, "?size=2m", FAR_NOT_A_POOL, "something else");
            refused_untouched(name, "?size=1m&nodes=2", FAR_NOT_A_POOL, "something else");
            refused_untouched(name, "", FAR_NOT_A_POOL, "");
        }
    }
}

/* Without size= also a file that could become a pool stays what it is. */
static void nothing_is_made_without_a_size(void **state)
{
    (void)state;
    for (unsigned by_path = 0; by_path < 2; by_path++) {
        refused_untouched(foreign(by_path, 0, "", 0), "", FAR_NOT_A_POOL, "size=");
        refused_untouched(foreign(by_path, FOREIGN_BYTES, "", 0), "", FAR_NOT_A_POOL, "size=");
    }
}

/* ---- pools that are not as they should be ---------------------------------------------------- */

static const char *good_pool(void)
{
    const char *name = scratch_name(true);
    far_pool *pool;

    assert_int_equal(far_pool_open(scratch_uri(name, "?size=2m&nodes=2&clients=9"), &pool), FAR_OK);
    far_pool_close(pool);
    return name;
}

static void pools_of_another_shape_are_refused(void **state)
{
    static const char *const other[] = {
        "?size=3m", "?size=1m", "?size=2m&nodes=1", "?nodes=3", "?clients=10", "?size=4m&nodes=1",
    };
    const char *name = good_pool();

    (void)state;
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        refused_untouched(name, other[i], FAR_BAD_URI, "size=2097152&nodes=2&clients=9");
}

static void pools_of_another_length_are_refused(void **state)
{
    static const off_t length[] = {
        sizeof(struct node_head), 128, 4096, 2 << 20, (4 << 20) - 1, (4 << 20) + 1, 8 << 20};

    (void)state;
    for (size_t i = 0; i < sizeof length / sizeof length[0]; i++) {
        const char *name = good_pool();

        assert_int_equal(truncate(name, length[i]), 0);
        refused_untouched(name, "", FAR_CORRUPT, "the pool in it had 4194304");
        refused_untouched(name, "?size=2m&nodes=2", FAR_CORRUPT, "the pool in it had 4194304");
    }
}

/* Changes the first node's superblock, with a right checksum if `sum`. */
static const char *changed_pool(void (*change)(struct node_head *head), bool sum)
{
    const char *name = good_pool();
    struct node_head head;
    int fd = open(name, O_RDWR);

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &head, sizeof head, 0), sizeof head);
    change(&head);
    if (sum)
        head.checksum = superblock_sum(&head);
    assert_int_equal(pwrite(fd, &head, sizeof head, 0), sizeof head);
    close(fd);
    return name;
}

static void another_layout(struct node_head *head)
{
    head->layout_version++;
}

static void no_nodes(struct node_head *head)
{
    head->nodes = 0;
}

static void many_nodes(struct node_head *head)
{
    head->nodes = 65;
}

static void no_size(struct node_head *head)
{
    head->size = 0;
}

static void huge_size(struct node_head *head)
{
    head->size = UINT64_MAX / 2 + 1; /* twice that is nothing */
}

static void odd_size(struct node_head *head)
{
    head->size += 8;
}

static void another_node(struct node_head *head)
{
    head->node = 1;
}

static void damaged_superblocks_are_refused(void **state)
{
    (void)state;
    refused_untouched(changed_pool(another_layout, true), "", FAR_LAYOUT, "has layout version");
    refused_untouched(changed_pool(another_layout, false), "", FAR_LAYOUT, "has layout version");
    refused_untouched(changed_pool(odd_size, false), "", FAR_CORRUPT, "checksum");
    refused_untouched(changed_pool(no_nodes, true), "", FAR_CORRUPT, "0 nodes");
    refused_untouched(changed_pool(many_nodes, true), "", FAR_CORRUPT, "65 nodes");
    refused_untouched(changed_pool(no_size, true), "", FAR_CORRUPT, "of 0 bytes");
    refused_untouched(changed_pool(huge_size, true), "", FAR_CORRUPT, "nodes of 9");
    refused_untouched(changed_pool(odd_size, true), "", FAR_CORRUPT, "nodes of 2097160");
    refused_untouched(changed_pool(another_node, true), "", FAR_NOT_A_POOL, "wrong order");
}

/* ---- more than there is ---------------------------------------------------------------------- */

/* It is said when the pool is made, not by a signal when its memory is used. */
static void more_memory_than_there_is_is_refused(void **state)
{
    const uint64_t asked = 64ull << 40;
    struct statvfs fs;

    (void)state;
    for (unsigned by_path = 0; by_path < 2; by_path++) {
        const char *name = scratch_name(by_path);

        assert_int_equal(statvfs(by_path ? scratch.dir : SCRATCH_SHM, &fs), 0);
        if (fs.f_blocks == 0 || (uint64_t)fs.f_blocks * fs.f_frsize >= asked) {
            print_message("%s is not limited: skipped\n", by_path ? scratch.dir : SCRATCH_SHM);
            continue;
        }
        refused(scratch_uri(name, "?size=1t&nodes=64"), FAR_NO_MEMORY, "bytes left");
        assert_false(scratch_there(name));
        refused_untouched(foreign(by_path, 4096, "", 0), "?size=1t&nodes=64", FAR_NO_MEMORY,
                          "bytes left");
    }
}

/* LEASE-L5: whether all wait for silent sessions is said when a pool is made. One who opens it may
 * say that they are dead, but not that all wait. */
static bool waits(const char *uri)
{
    far_pool *pool = NULL;

    assert_int_equal(far_pool_open(uri, &pool), FAR_OK);
    bool waits = pool->pool.waits;
    far_pool_close(pool);
    return waits;
}

static void all_wait_in_a_pool_that_was_made_so(void **state)
{
    (void)state;
    for (unsigned by_path = 0; by_path < 2; by_path++) {
        const char *name = scratch_name(by_path);

        assert_true(waits(scratch_uri(name, "?size=4m&wait=1")));
        assert_true(waits(scratch_uri(name, "")));
        assert_true(waits(scratch_uri(name, "?wait=1")));
        assert_false(waits(scratch_uri(name, "?wait=0")));
        assert_true(waits(scratch_uri(name, "")));
        name = scratch_name(by_path);
        assert_false(waits(scratch_uri(name, "?size=4m")));
        assert_false(waits(scratch_uri(name, "?wait=0")));
        refused(scratch_uri(name, "?wait=1"), FAR_BAD_URI, "&wait=0");
        assert_false(waits(scratch_uri(name, "")));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_CASE(invalid_uris_are_refused),
        SCRATCH_CASE(what_does_not_exist_is_refused),
        SCRATCH_CASE(what_is_not_a_file_is_refused),
        SCRATCH_CASE(files_with_other_contents_are_refused),
        SCRATCH_CASE(nothing_is_made_without_a_size),
        SCRATCH_CASE(pools_of_another_shape_are_refused),
        SCRATCH_CASE(pools_of_another_length_are_refused),
        SCRATCH_CASE(damaged_superblocks_are_refused),
        SCRATCH_CASE(more_memory_than_there_is_is_refused),
        SCRATCH_CASE(all_wait_in_a_pool_that_was_made_so),
    };

    return scratch_run(tests);
}
