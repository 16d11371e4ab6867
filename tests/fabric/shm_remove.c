/* Removing pools: names and files are removed, processes that have them open go on, other files
 * stay. */
#include "support/shm_scratch.h"

static far_pool *open_pool(const char *uri)
{
    far_pool *pool;

    assert_int_equal(far_pool_open(uri, &pool), FAR_OK);
    return pool;
}

static void a_pool_is_gone_once_removed(void **state)
{
    (void)state;
    for (unsigned by_path = 0; by_path < 2; by_path++) {
        const char *name = scratch_name(by_path);

        far_pool_close(open_pool(scratch_uri(name, "?size=2m")));
        assert_true(scratch_there(name));
        /* Options are those of any URI of the pool: understood, and of no consequence. */
        assert_int_equal(far_pool_remove(scratch_uri(name, "?size=2m&colour=red")), FAR_BAD_URI);
        assert_true(scratch_there(name));
        assert_int_equal(far_pool_remove(scratch_uri(name, by_path ? "" : "?size=9m")), FAR_OK);
        assert_false(scratch_there(name));
        assert_int_equal(far_pool_remove(scratch_uri(name, "")), FAR_NOT_A_POOL);
    }
}

/* The old pool and a new one of its name have nothing to do with each other. */
static void processes_that_have_it_open_go_on(void **state)
{
    const char *uri = scratch_uri(scratch_name(false), "?size=8m");
    far_pool *pool[2] = {open_pool(uri), NULL};
    far_session *session[2];
    far_table *table[2];

    (void)state;
    assert_int_equal(far_session_open(pool[0], NULL, &session[0]), FAR_OK);
    assert_int_equal(far_table_create(session[0], "t", "race", NULL, &table[0]), FAR_OK);
    assert_int_equal(far_pool_remove(uri), FAR_OK);
    pool[1] = open_pool(uri);
    assert_int_equal(far_session_open(pool[1], NULL, &session[1]), FAR_OK);
    assert_int_equal(far_table_open(session[1], "t", NULL, &table[1]), FAR_NO_TABLE);
    assert_int_equal(far_table_create(session[1], "t", "race", NULL, &table[1]), FAR_OK);
    for (unsigned i = 0; i < 2000; i++)
        assert_int_equal(far_put(session[0], table[0], &i, sizeof i, "old", 3), FAR_OK);
    assert_int_equal(far_exists(session[0], table[0], "\0\0\0\0", 4), FAR_OK);
    assert_int_equal(far_exists(session[1], table[1], "\0\0\0\0", 4), FAR_NOT_FOUND);
    for (unsigned i = 0; i < 2; i++) {
        far_session_close(session[i]);
        far_pool_close(pool[i]);
    }
}

static void put_file(const char *name, const char *text)
{
    int fd = open(scratch_path(name), O_RDWR | O_CREAT | O_EXCL, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void what_is_no_pool_stays(void **state)
{
    const char *name;

    (void)state;
    for (unsigned by_path = 0; by_path < 2; by_path++) {
        name = scratch_name(by_path);
        put_file(name, "a text that is none of ours");
        assert_int_equal(far_pool_remove(scratch_uri(name, "")), FAR_NOT_A_POOL);
        assert_true(scratch_there(name));
    }
    name = scratch_name(true); /* an empty file may be anything */
    put_file(name, "");
    assert_int_equal(far_pool_remove(scratch_uri(name, "")), FAR_NOT_A_POOL);
    assert_true(scratch_there(name));
}

/* Under a name of ours, an empty one is what a creator that died has left. */
static void a_name_left_by_a_dead_creator_is_removed(void **state)
{
    const char *name = scratch_name(false);

    (void)state;
    put_file(name, "");
    assert_int_equal(far_pool_remove(scratch_uri(name, "")), FAR_OK);
    assert_false(scratch_there(name));
}

static void fabrics_without_anything_to_remove_say_so(void **state)
{
    (void)state;
    assert_int_equal(far_pool_remove(NULL), FAR_INVALID);
    assert_int_equal(far_pool_remove("mem:"), FAR_UNSUPPORTED);
    assert_int_equal(far_pool_remove("shm:/dev/zero"), FAR_NOT_A_POOL);
    assert_int_equal(far_pool_remove("nosuch:"), FAR_NO_FABRIC);
    assert_int_equal(far_pool_remove("shm:"), FAR_BAD_URI);
}

/* ---- while others open it -------------------------------------------------------------------- */

#define ROUNDS (400 / RIG_SLOW)

static void open_again_and_again(void *arg)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        far_session *session;
        far_pool *pool;

        ASSERT(far_pool_open(arg, &pool) == FAR_OK);
        ASSERT(far_session_open(pool, NULL, &session) == FAR_OK);
        far_session_close(session);
        far_pool_close(pool);
    }
}

/* Every process that opens gets a pool: the old one before its removal, or a new one. */
static void removing_while_others_open_is_safe(void **state)
{
    char *uri = (char *)(uintptr_t)scratch_uri(scratch_name(false), "?size=1m&clients=9");
    pid_t child[2] = {child_start(open_again_and_again, uri),
                      child_start(open_again_and_again, uri)};

    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        int rc = far_pool_remove(uri);

        assert_true(rc == FAR_OK || rc == FAR_NOT_A_POOL);
    }
    assert_int_equal(child_end(child[0]), 0);
    assert_int_equal(child_end(child[1]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_CASE(a_pool_is_gone_once_removed),
        SCRATCH_CASE(processes_that_have_it_open_go_on),
        SCRATCH_CASE(what_is_no_pool_stays),
        SCRATCH_CASE(a_name_left_by_a_dead_creator_is_removed),
        SCRATCH_CASE(fabrics_without_anything_to_remove_say_so),
        SCRATCH_CASE(removing_while_others_open_is_safe),
    };

    return scratch_run(tests);
}
