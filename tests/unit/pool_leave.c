/* Sessions that are closed leave nothing behind for a sweep, whatever the others are doing. */
#include "support/probe.h"
#include "support/puppet.h"
#include "support/store_rig.h"

#include "base/clock.h"

#include <pthread.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

/* As users open it, with sessions that are parked when they are idle. */
static void open_pool(const char *uri, far_pool **pool, far_session **s, far_table **t)
{
    assert_int_equal(far_pool_open(uri, pool), FAR_OK);
    assert_int_equal(far_session_open(*pool, NULL, s), FAR_OK);
    assert_int_equal(far_table_create(*s, "t", "race", NULL, t), FAR_OK);
}

static void expect_clean(far_pool *pool, far_session *s)
{
    struct far_pool_check check;
    struct far_pool_usage usage;
    struct probe p;
    probe_open(&p, pool->fab);
    assert_true(probe_get(&p, 0, PROBE_CONTROL(deaths)) == 0);
    probe_close(&p);
    assert_int_equal(far_pool_check(s, false, NULL, NULL, &check), FAR_OK);
    assert_int_equal(check.leaked_bytes, 0);
    assert_int_equal(check.dead_clients, 0);
    assert_int_equal(far_pool_usage(s, &usage), FAR_OK);
    assert_int_equal(usage.unknown, 0);
}

/* Values are replaced and deleted: the session has memory that waits for its epoch. */
static void retire_some(far_session *s, far_table *t)
{
    static uint8_t value[100000];
    for (uint32_t k = 0; k < 200; k++) {
        assert_int_equal(far_put(s, t, &k, sizeof k, value, k * 100), FAR_OK);
        assert_int_equal(far_put(s, t, &k, sizeof k, value, k), FAR_OK);
        if (k % 2)
            assert_int_equal(far_delete(s, t, &k, sizeof k), FAR_OK);
    }
    assert_true(puppet_in_limbo(&s->client) > 0);
}

/* Another session was used a moment ago, and nobody has parked it yet. */
static void a_session_leaves_right_after_anothers_last_use(void **state)
{
    far_pool *pool = NULL;
    far_session *s = NULL, *other = NULL;
    far_table *t = NULL;
    uint32_t key = 1;

    (void)state;
    open_pool("mem:?size=32m&lease=20000", &pool, &s, &t);
    for (unsigned turn = 0; turn < 3; turn++) {
        assert_int_equal(far_session_open(pool, NULL, &other), FAR_OK);
        retire_some(other, t);
        (void)far_exists(s, t, &key, sizeof key);
        far_session_close(other);
        expect_clean(pool, s);
    }
    far_session_close(s);
    far_pool_close(pool);
}

/* An operation of another session takes longer than it takes to park an idle one. */
struct holder {
    pthread_t thread;
    far_session *session;
    int rc;
};

static void *hold(void *arg)
{
    struct holder *h = arg;
    clock_sleep(1500000000ull);
    op_end(&h->session->op);
    client_leave(&h->session->client);
    return NULL;
}

static void a_session_leaves_while_anothers_operation_lasts(void **state)
{
    far_pool *pool = NULL;
    far_session *s = NULL, *other = NULL;
    far_table *t = NULL;
    struct holder h = {0};

    (void)state;
    open_pool("mem:?size=32m&lease=20000", &pool, &s, &t);
    assert_int_equal(far_session_open(pool, NULL, &other), FAR_OK);
    client_enter(&s->client);
    assert_int_equal(op_begin(&s->op, NULL), FAR_OK);
    retire_some(other, t);
    h.session = s;
    assert_int_equal(pthread_create(&h.thread, NULL, hold, &h), 0);
    far_session_close(other);
    pthread_join(h.thread, NULL);
    expect_clean(pool, s);
    far_session_close(s);
    far_pool_close(pool);
}

/* A session finds the memory that it knows to be lost before it leaves, also what it has counted
 * with the deaths. */
static void a_session_that_lost_memory_finds_it(void **state)
{
    static const unsigned classes[] = {0, 20, 35, 50};
    far_pool *pool = NULL;
    far_session *s = NULL, *other = NULL;
    far_table *t = NULL;

    (void)state;
    open_pool("mem:?size=32m&lease=20000", &pool, &s, &t);
    for (unsigned turn = 0; turn < 8; turn++) {
        gaddr at = 0;
        unsigned size_class = classes[turn / 2];
        assert_int_equal(far_session_open(pool, NULL, &other), FAR_OK);
        retire_some(other, t);
        client_enter(&other->client);
        assert_int_equal(pool_alloc(&other->op, 0, size_class, &at), FAR_OK);
        pool_abandon(&other->client, size_class);
        if (turn % 2)
            assert_int_equal(client_upkeep(&other->op), FAR_OK); /* counts it, if it is much */
        client_leave(&other->client);
        far_session_close(other);
        expect_clean(pool, s);
    }
    far_session_close(s);
    far_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_leaves_right_after_anothers_last_use),
        cmocka_unit_test(a_session_leaves_while_anothers_operation_lasts),
        cmocka_unit_test(a_session_that_lost_memory_finds_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
