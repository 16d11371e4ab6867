/* A memory node's life: it goes on only if nothing can have been forgotten (MEMBERS-1). */
#include "fabric/superblock_layout.h"
#include "memd/memd.h"

#include "support/leaks_allowed.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES (1ull << 20)

static char path[64], copy[64];

static uint64_t open_node(struct memd_region *r, const char *file)
{
    assert_int_equal(memd_region_open(r, BYTES, file, false), FAR_OK);
    return *(const uint64_t *)(const void *)(r->base + NODE_LIFE_OFF);
}

/* As if it was killed: the file keeps what is in memory. */
static void kill_node(struct memd_region *r)
{
    munmap(r->base, r->map_bytes);
    close(r->fd);
}

static void copy_file(void)
{
    char buf[4096];
    int from = open(path, O_RDONLY), to = open(copy, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ssize_t got = 0;
    assert_true(from >= 0 && to >= 0);
    while ((got = read(from, buf, sizeof buf)) > 0)
        assert_int_equal(write(to, buf, (size_t)got), got);
    assert_int_equal(got, 0);
    close(from);
    close(to);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/farside-life-%d", (int)getpid());
    snprintf(copy, sizeof copy, "/tmp/farside-copy-%d", (int)getpid());
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    unlink(copy);
    return 0;
}

static void a_life_goes_on_after_an_orderly_end(void **state)
{
    struct memd_region r;
    (void)state;
    uint64_t life = open_node(&r, path);
    assert_int_not_equal(life, 0);
    memd_region_close(&r);
    assert_int_equal(open_node(&r, path), life);
    memd_region_close(&r);
    assert_int_equal(open_node(&r, path), life);
    memd_region_close(&r);
}

static void a_node_that_was_killed_begins_another_life(void **state)
{
    struct memd_region r;
    (void)state;
    (void)open_node(&r, path);
    memd_region_close(&r); /* once it has ended in order */
    uint64_t life = open_node(&r, path);
    kill_node(&r);
    assert_int_not_equal(open_node(&r, path), life);
    memd_region_close(&r);
}

static void a_copy_of_the_memory_lives_another_life(void **state)
{
    struct memd_region r;
    (void)state;
    uint64_t life = open_node(&r, path);
    memd_region_close(&r);
    copy_file();
    assert_int_not_equal(open_node(&r, copy), life);
    memd_region_close(&r);
    assert_int_equal(open_node(&r, path), life); /* the node itself goes on */
    memd_region_close(&r);
}

/* The file system may give it the number of the file that was removed. */
static void a_copy_in_the_place_of_a_removed_file_lives_another_life(void **state)
{
    struct memd_region r;
    (void)state;
    uint64_t life = open_node(&r, path);
    memd_region_close(&r);
    copy_file();
    assert_int_equal(unlink(path), 0);
    char was[sizeof path];
    strcpy(was, path);
    strcpy(path, copy);
    strcpy(copy, was);
    copy_file(); /* back */
    assert_int_not_equal(open_node(&r, was), life);
    memd_region_close(&r);
}

static void memory_without_a_file_begins_another_life(void **state)
{
    struct memd_region r;
    (void)state;
    uint64_t life = open_node(&r, NULL);
    memd_region_close(&r);
    assert_int_not_equal(open_node(&r, NULL), life);
    memd_region_close(&r);
}

static void a_witness_and_a_node_with_data_do_not_take_each_others_file(void **state)
{
    struct memd_region r;
    (void)state;
    assert_int_equal(memd_region_open(&r, BYTES, path, true), FAR_OK);
    assert_int_equal(*(const uint64_t *)(const void *)(r.base + NODE_KIND_OFF), NODE_KIND_WITNESS);
    r.keep->formatted = 1;
    memd_region_close(&r);
    assert_int_equal(memd_region_open(&r, BYTES, path, false), FAR_INVALID);
    assert_non_null(strstr(far_error_detail(), "--witness"));
    assert_int_equal(memd_region_open(&r, BYTES, path, true), FAR_OK);
    memd_region_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_life_goes_on_after_an_orderly_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_node_that_was_killed_begins_another_life, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_copy_of_the_memory_lives_another_life, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_copy_in_the_place_of_a_removed_file_lives_another_life,
                                        set_up, tear_down),
        cmocka_unit_test(memory_without_a_file_begins_another_life),
        cmocka_unit_test_setup_teardown(a_witness_and_a_node_with_data_do_not_take_each_others_file,
                                        set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
