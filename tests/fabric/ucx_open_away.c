/* ucx: a pool that is opened while one of its memory nodes is dead, used by threads, and the node
 * that comes back. */
#include "farside.h"
#include "support/memd_child.h"

#include <pthread.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define NODES   2u
#define KEYS    60u
#define THREADS 4u

static struct memd_child node[NODES];
static char file[NODES][64];
static char
    second[256]; /* the address of node 1: threads read it while the node is started again */

static void start(unsigned i, unsigned port, const char *path)
{
    const char *const kept[] = {"--size", "8m", "--file", path, NULL};
    const char *const empty[] = {"--size", "8m", NULL};
    memd_start(&node[i], port, path ? kept : empty);
}

static void start_all(void)
{
    for (unsigned i = 0; i < NODES; i++) {
        snprintf(file[i], sizeof file[i], "/tmp/farside-open-away-%d-%u", (int)getpid(), i);
        start(i, 0, file[i]);
    }
    snprintf(second, sizeof second, "%s", node[1].address);
}

static void end_all(void)
{
    for (unsigned i = 0; i < NODES; i++) {
        if (node[i].pid)
            (void)memd_end(&node[i], SIGTERM);
        unlink(file[i]);
    }
}

struct user {
    far_pool *pool;
    far_session *session;
    far_table *table;
};

static void open_pool(far_pool **pool)
{
    /* A lease that a busy machine does not miss. A node that is not there refuses connections at
     * once. */
    assert_int_equal(far_pool_open(memd_uri(node, NODES, "?lease=60000"), pool), FAR_OK);
}

static void join(struct user *u, far_pool *pool)
{
    u->pool = pool;
    assert_int_equal(far_session_open(pool, NULL, &u->session), FAR_OK);
}

/* A pool with a table of small parts, on both nodes. */
static void make_pool(void)
{
    struct user u;
    far_pool *pool = NULL;
    struct far_table_options options = {.tuning = "groups=2", .hash_seed = 1};
    open_pool(&pool);
    join(&u, pool);
    assert_int_equal(far_table_create(u.session, "t", "race", &options, &u.table), FAR_OK);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(far_put(u.session, u.table, &i, sizeof i, &i, sizeof i), FAR_OK);
    far_session_close(u.session);
    far_pool_close(pool);
}

static int get(const struct user *u, uint32_t key)
{
    uint32_t value = 0;
    int rc = far_get(u->session, u->table, &key, sizeof key, &value, sizeof value, NULL);
    assert_true(rc != FAR_OK || value == key);
    return rc;
}

static bool is_away(int rc)
{
    return rc == FAR_UNREACHABLE || rc == FAR_TIMEOUT;
}

static unsigned count_there(const struct user *u)
{
    unsigned there = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        int rc = get(u, i);
        assert_true(rc == FAR_OK || is_away(rc));
        assert_true(rc == FAR_OK || strstr(far_error_detail(), second));
        there += rc == FAR_OK;
    }
    return there;
}

/* Reads all keys until all are there. */
static void *await_all(void *arg)
{
    struct user u;
    join(&u, arg);
    assert_int_equal(far_table_open(u.session, "t", NULL, &u.table), FAR_OK);
    while (count_there(&u) < KEYS)
        usleep(20000);
    far_session_close(u.session);
    return NULL;
}

static void a_pool_is_opened_without_a_node_and_goes_on_with_it(void **state)
{
    (void)state;
    struct user u;
    far_pool *pool = NULL;
    struct far_pool_info info;
    struct far_node_info about = {.address = ""};
    pthread_t thread[THREADS];
    start_all();
    make_pool();
    unsigned port = memd_port(&node[1]);
    (void)memd_end(&node[1], SIGKILL);
    open_pool(&pool);
    join(&u, pool);
    assert_int_equal(far_table_open(u.session, "t", NULL, &u.table), FAR_OK);
    unsigned there = count_there(&u);
    assert_true(there > 0 && there < KEYS);
    assert_int_equal(far_pool_info(u.session, &info), FAR_OK);
    assert_int_equal(info.nodes_away, 2);
    assert_true(is_away(far_node_info(u.session, 1, &about)));
    assert_string_equal(about.address, second);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, await_all, pool), 0);
    start(1, port, file[1]);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(count_there(&u), KEYS);
    assert_int_equal(far_pool_info(u.session, &info), FAR_OK);
    assert_int_equal(info.nodes_away, 0);
    assert_int_equal(far_node_info(u.session, 1, &about), FAR_OK);
    far_session_close(u.session);
    far_pool_close(pool);
    end_all();
}

static void a_node_that_comes_back_empty_is_refused(void **state)
{
    (void)state;
    struct user u;
    far_pool *pool = NULL;
    uint32_t key = 0;
    int rc;
    start_all();
    make_pool();
    unsigned port = memd_port(&node[1]);
    (void)memd_end(&node[1], SIGKILL);
    open_pool(&pool);
    join(&u, pool);
    assert_int_equal(far_table_open(u.session, "t", NULL, &u.table), FAR_OK);
    while (!is_away(rc = get(&u, key)))
        assert_true(++key < KEYS);
    start(1, port, NULL);
    while (is_away(rc = get(&u, key)))
        usleep(20000);
    assert_int_equal(rc, FAR_NODE_LOST);
    far_session_close(u.session);
    far_pool_close(pool);
    end_all();
}

static void without_the_first_node_there_is_no_pool(void **state)
{
    (void)state;
    far_pool *pool = NULL;
    start_all();
    make_pool();
    (void)memd_end(&node[0], SIGKILL);
    int rc = far_pool_open(memd_uri(node, NODES, ""), &pool);
    assert_true(is_away(rc));
    assert_non_null(strstr(far_error_detail(), node[0].address));
    assert_non_null(strstr(far_error_detail(), "first node"));
    end_all();
}

/* A pool is not made without all of its nodes. */
static void a_new_pool_needs_all_nodes(void **state)
{
    (void)state;
    far_pool *pool = NULL;
    start_all();
    unsigned port = memd_port(&node[1]);
    (void)memd_end(&node[1], SIGKILL);
    assert_int_equal(far_pool_open(memd_uri(node, NODES, ""), &pool), FAR_UNREACHABLE);
    assert_non_null(strstr(far_error_detail(), node[1].address));
    start(1, port, file[1]);
    make_pool();
    end_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_is_opened_without_a_node_and_goes_on_with_it),
        cmocka_unit_test(a_node_that_comes_back_empty_is_refused),
        cmocka_unit_test(without_the_first_node_there_is_no_pool),
        cmocka_unit_test(a_new_pool_needs_all_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
