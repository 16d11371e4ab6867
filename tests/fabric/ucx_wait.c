/*
 * far_session_fd() on ucx:. A server that only sleeps on the descriptor and reaps gets all of its
 * results, even if nodes hang, die and come back, and is not woken in vain.
 */
#include "support/memd_child.h"
#include "fabric/ucx/ucx_internal.h"
#include "store/store.h"
#include "support/wait_loop.h"

#include <pthread.h>
#include <stdatomic.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define DESCRIPTORS 1024
#define WORK        200u

/* A lease that no machine is too slow for. */
#define PATIENT "?lease=60000&timeout=60000"

static char file[] = "/tmp/farside-wait-XXXXXX";
static struct memd_child node;
static far_pool *pool;

static int setup(void **state)
{
    int fd;

    (void)state;
    strcpy(file + sizeof file - 7, "XXXXXX");
    fd = mkstemp(file);
    if (fd >= 0)
        close(fd);
    return fd < 0;
}

static int teardown(void **state)
{
    (void)state;
    memd_descriptors(DESCRIPTORS);
    if (node.pid)
        memd_end(&node, SIGKILL);
    unlink(file);
    return 0;
}

static void start_node(unsigned port)
{
    const char *const more[] = {"--size", "32m", "--threads", "1", "--file", file, NULL};
    char listen[64];

    snprintf(listen, sizeof listen, "ucx://127.0.0.1:%u", port);
    memd_start_at(&node, listen, more);
}

static far_session *open_session(void)
{
    far_session *session = NULL;

    ASSERT(far_session_open(pool, NULL, &session) == FAR_OK);
    return session;
}

static far_table *begin(const char *options, far_session **session)
{
    far_table *table = NULL;
    int rc;

    start_node(0);
    rc = far_pool_open(memd_uri(&node, 1, options), &pool);
    if (rc != FAR_OK)
        print_error("%s: %s\n", far_errname(rc), far_error_detail());
    ASSERT(rc == FAR_OK);
    *session = open_session();
    ASSERT(far_table_create(*session, "t", "race", NULL, &table) == FAR_OK);
    return table;
}

static void end(far_session *session)
{
    far_session_close(session);
    far_pool_close(pool);
}

static struct ucx_hub *hub_of(far_session *session)
{
    return ucx_hub_of(session->client.ep);
}

static void submit_get(far_session *session, far_table *table, uint64_t *buf)
{
    static const uint64_t key = 1;
    struct far_op op = {
        .kind = FAR_OP_GET, .table = table, .key = &key, .key_len = 8, .buf = buf, .cap = 8};

    assert_int_equal(far_submit(session, &op), FAR_OK);
}

/* ---- all is well ----------------------------------------------------------------------------- */

static void works_and_rests(bool shared, const char *options)
{
    far_session *session;
    far_table *table;
    struct wait_loop l;

    memd_descriptors(shared ? FEW_DESCRIPTORS : DESCRIPTORS);
    table = begin(options, &session);
    assert_true(hub_of(session)->shared == shared);
    wait_loop_open(&l, session);
    assert_int_equal(wait_loop_rest(&l, 600), 0);
    for (unsigned depth = 1; depth <= 32; depth *= 32) {
        uint64_t wakes = wait_loop_work(&l, table, WORK, depth);

        print_message("%s hub, depth %u: %.2f wake-ups an operation\n",
                      shared ? "shared" : "private", depth, (double)wakes / (2.0 * WORK));
        /* A put of a new key is some round trips; each may wake it, and what UCX does, too. */
        assert_in_range(wakes, 1, 2 * WORK * 16);
    }
    /* The keeper parks the session now, and sends heartbeats for it. */
    assert_in_range(wait_loop_rest(&l, 1500), 0, 2);
    assert_in_range(wait_loop_work(&l, table, WORK, 8), 1, 2 * WORK * 16);
    wait_loop_close(&l);
    end(session);
}

static void a_loop_that_only_sleeps_gets_everything(void **state)
{
    (void)state;
    works_and_rests(false, PATIENT);
}

static void a_loop_on_a_shared_hub_gets_everything(void **state)
{
    (void)state;
    works_and_rests(true, PATIENT);
}

/* A synchronous call polls, and may take the event for which the descriptor would become
 * readable. */
static void synchronous_calls_in_between_take_no_event_away(void **state)
{
    far_session *session;
    far_table *table = begin(PATIENT, &session);
    struct far_result result;
    struct wait_loop l;
    uint64_t value = 1, got;

    (void)state;
    wait_loop_open(&l, session);
    assert_int_equal(far_put(session, table, &value, 8, &value, 8), FAR_OK);
    for (unsigned i = 0; i < 100; i++) {
        unsigned n;

        submit_get(session, table, &got);
        n = far_reap(session, &result, 1, 0);
        assert_int_equal(far_exists(session, table, "x", 1), FAR_NOT_FOUND);
        assert_true(n == 1 || wait_loop_within(&l, 0));
        while (n == 0)
            n = wait_loop_step(&l, &result, 1);
        assert_int_equal(result.status, FAR_OK);
    }
    wait_loop_close(&l);
    end(session);
}

/* An error that UCX reports while something is sent makes no descriptor readable, so arm()
 * checks. */
static void arming_fails_while_an_error_is_known(void **state)
{
    far_session *session;
    far_table *table = begin(PATIENT, &session);
    struct fab_ep *ep = session->client.ep;
    struct ucx_conn *c = &hub_of(session)->conn[0];
    uint64_t until = 0;
    bool armed = false;

    (void)state;
    assert_int_equal(far_exists(session, table, "x", 1), FAR_NOT_FOUND);
    client_enter(&session->client); /* keeps the keeper out */
    for (unsigned i = 0; i < 1000 && !armed; i++) {
        ep->ops->poll(ep, false);
        armed = ep->ops->arm(ep, &until);
    }
    assert_true(armed && until > clock_ns() && until != UINT64_MAX);
    c->broken = UCS_ERR_CONNECTION_RESET;
    assert_false(ep->ops->arm(ep, &until));
    c->broken = UCS_OK;
    client_leave(&session->client);
    end(session);
}

/* ---- shared hubs ----------------------------------------------------------------------------- */

/* HUB-6: another endpoint takes the reply. */
static void completing_a_request_of_another_raises_its_alarm(void **state)
{
    far_session *session, *other;
    far_table *table, *same = NULL;
    struct far_result result;
    struct wait_loop l;
    uint64_t value = 1, got;
    unsigned by_other = 0;

    (void)state;
    memd_descriptors(FEW_DESCRIPTORS);
    table = begin(PATIENT, &session);
    other = open_session();
    assert_int_equal(far_table_open(other, "t", NULL, &same), FAR_OK);
    assert_ptr_equal(hub_of(session), hub_of(other));
    assert_int_equal(far_put(session, table, &value, 8, &value, 8), FAR_OK);
    wait_loop_open(&l, session);
    for (unsigned i = 0; i < 100; i++) {
        struct ucx_ep *e = (struct ucx_ep *)session->client.ep;
        unsigned n;

        submit_get(session, table, &got);
        n = far_reap(session, &result, 1, 0);
        while (n == 0 && !e->sleeping)
            n = wait_loop_step(&l, &result, 1);
        for (unsigned tries = 0; n == 0 && !e->answered && tries < 1000; tries++) {
            assert_int_equal(far_exists(other, same, "x", 1), FAR_NOT_FOUND);
            /* No thread drives: the worker is armed for the sleepers, or one of them is woken. */
            assert_true(!hub_of(session)->stirred || e->rung || !e->sleeping);
        }
        if (n == 0) {
            assert_non_null(e->answered);
            assert_true(wait_loop_within(&l, 0));
            by_other++;
        }
        while (n == 0)
            n = wait_loop_step(&l, &result, 1);
        assert_int_equal(result.status, FAR_OK);
    }
    assert_true(by_other > 0);
    wait_loop_close(&l);
    far_session_close(other);
    end(session);
}

static atomic_bool stop;

static void *hammer(void *arg)
{
    far_session *session = open_session();
    far_table *table = NULL;
    uint64_t key = (uintptr_t)arg;

    ASSERT(far_table_open(session, "t", NULL, &table) == FAR_OK);
    for (unsigned i = 0; !atomic_load(&stop); i++) {
        ASSERT(far_put(session, table, &key, 8, &i, sizeof i) == FAR_OK);
        if (i % 16 == 0)
            clock_sleep(1000000);
    }
    far_session_close(session);
    return NULL;
}

static void loops_work_beside_threads_that_wait_in_other_ways(void **state)
{
    far_session *session;
    pthread_t thread[2];
    struct wait_loop l;
    far_table *table;

    (void)state;
    memd_descriptors(FEW_DESCRIPTORS);
    table = begin(PATIENT, &session);
    atomic_store(&stop, false);
    for (uintptr_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, hammer, (void *)(5000 + i)), 0);
    wait_loop_open(&l, session);
    (void)wait_loop_work(&l, table, WORK, 8); /* what wakes others wakes it, too */
    atomic_store(&stop, true);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    wait_loop_close(&l);
    end(session);
}

/* ---- nodes that go --------------------------------------------------------------------------- */

/* UCX wakes the loop all the time while it makes a connection, however long that takes. */
static bool connects(far_session *session)
{
    enum conn_state state = hub_of(session)->conn[0].state;

    return state != CONN_UP && state != CONN_DOWN;
}

/* Gets until the status is as wanted; each of them ends, and none by spinning. */
static void get_until(struct wait_loop *l, far_table *table, bool good)
{
    uint64_t got;
    int rc = FAR_OK;

    for (unsigned tries = 0; tries < 1000; tries++) {
        struct far_result result;
        unsigned calm = 0;

        submit_get(l->session, table, &got);
        while (wait_loop_step(l, &result, 1) == 0)
            calm += !connects(l->session);
        rc = result.status;
        assert_in_range(calm, 0, 300);
        if ((rc == FAR_OK) == good)
            return;
        clock_sleep(10000000);
    }
    print_error("%s: %s\n", far_errname(rc), far_error_detail());
    fail();
}

static void nodes_that_hang_and_die(bool shared)
{
    far_session *session;
    struct far_result result;
    struct wait_loop l;
    far_table *table;
    uint64_t value = 1, got, before;
    unsigned port;

    memd_descriptors(shared ? FEW_DESCRIPTORS : DESCRIPTORS);
    table = begin("?timeout=2000&lease=60000", &session);
    assert_int_equal(far_put(session, table, &value, 8, &value, 8), FAR_OK);
    wait_loop_open(&l, session);
    /* It hangs. */
    memd_hang(&node);
    before = l.wakes;
    submit_get(session, table, &got);
    while (wait_loop_step(&l, &result, 1) == 0) {
    }
    assert_true(result.status == FAR_TIMEOUT || result.status == FAR_UNKNOWN);
    print_message("a node that hangs: %llu wake-ups\n", (unsigned long long)(l.wakes - before));
    assert_in_range(l.wakes - before, 1, 100);
    kill(node.pid, SIGCONT);
    get_until(&l, table, true);
    /* It dies with an operation in flight, */
    port = memd_port(&node);
    memd_hang(&node);
    submit_get(session, table, &got);
    assert_int_equal(far_reap(session, &result, 1, 0), 0);
    memd_end(&node, SIGKILL);
    while (wait_loop_step(&l, &result, 1) == 0) {
    }
    assert_int_not_equal(result.status, FAR_OK);
    get_until(&l, table, false);
    /* and is there again. */
    start_node(port);
    get_until(&l, table, true);
    /* It dies while nothing is in flight. */
    memd_end(&node, SIGKILL);
    assert_in_range(wait_loop_rest(&l, 300), 0, 2);
    get_until(&l, table, false);
    start_node(port);
    get_until(&l, table, true);
    wait_loop_close(&l);
    end(session);
}

static void a_loop_notices_nodes_that_hang_and_die(void **state)
{
    (void)state;
    nodes_that_hang_and_die(false);
}

static void a_loop_on_a_shared_hub_notices_nodes_that_hang_and_die(void **state)
{
    (void)state;
    nodes_that_hang_and_die(true);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_loop_that_only_sleeps_gets_everything),
        TEST(a_loop_on_a_shared_hub_gets_everything),
        TEST(synchronous_calls_in_between_take_no_event_away),
        TEST(arming_fails_while_an_error_is_known),
        TEST(completing_a_request_of_another_raises_its_alarm),
        TEST(loops_work_beside_threads_that_wait_in_other_ways),
        TEST(a_loop_notices_nodes_that_hang_and_die),
        TEST(a_loop_on_a_shared_hub_notices_nodes_that_hang_and_die),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
