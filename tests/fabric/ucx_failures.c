/*
 * ucx: when things go wrong: nodes that die, hang, come back with or without their memory; clients
 * that are shut out; clients that want to make the same pool.
 */
#include "support/memd_child.h"
#include "fabric/rig.h"

#include "base/clock.h"

#include <pthread.h>
#include <sched.h>

#define AT 65536

static char file[] = "/tmp/farside-ucx-XXXXXX";
static struct memd_child node[2];

static const char *const in_memory[] = {"--size", "8m", "--threads", "2", NULL};
static const char *const in_file[] = {"--size", "8m", "--file", file, NULL};

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
    for (unsigned i = 0; i < 2; i++) {
        if (node[i].pid)
            memd_end(&node[i], SIGKILL);
    }
    unlink(file);
    return 0;
}

static struct rig *open_rig(unsigned nodes, const char *options)
{
    struct fab *fab;
    int rc = fab_open(memd_uri(node, nodes, options), &fab);

    if (rc)
        print_error("%s: %s\n", far_errname(rc), far_error_detail());
    ASSERT(rc == FAR_OK);
    return rig_on(fab);
}

static void close_rig(struct rig *r)
{
    struct fab *fab = r->fab;

    rig_free(r);
    fab_close(fab);
}

static int try_set(struct rig *r, unsigned on, uint64_t value)
{
    *rig_scratch(r) = value;
    batch_write(&r->b, MARK_EARLY, gaddr_make(on, AT), 0, rig_scratch(r), 8);
    return batch_flush(&r->b);
}

/* Until it works again, for a while. */
static int set_again(struct rig *r, unsigned on, uint64_t value)
{
    int rc = FAR_TIMEOUT;

    for (unsigned i = 0; i < 1000 && rc != FAR_OK; i++) {
        rc = try_set(r, on, value);
        if (rc)
            clock_sleep(10000000);
    }
    return rc;
}

static void a_node_that_dies_is_named_and_found_again(void **state)
{
    struct rig *r;
    unsigned port;
    int rc;

    (void)state;
    memd_start(&node[0], 0, in_memory);
    memd_start(&node[1], 0, in_file);
    port = memd_port(&node[1]);
    r = open_rig(2, "?timeout=3000");
    rig_set(r, gaddr_make(1, AT), 0, 42);
    memd_end(&node[1], SIGKILL);
    for (unsigned i = 0; i < 20; i++) {
        rc = try_set(r, 1, 43);
        assert_true(rc == FAR_UNREACHABLE || rc == FAR_TIMEOUT || rc == FAR_UNKNOWN);
        assert_non_null(strstr(far_error_detail(), node[1].address));
        assert_int_equal(try_set(r, 0, i), FAR_OK); /* others go on */
    }
    /* A request to both fails, and does not hang. */
    batch_read(&r->b, gaddr_make(0, AT), 0, r->buf, 8);
    batch_read(&r->b, gaddr_make(1, AT), 0, r->buf + 1, 8);
    rc = batch_flush(&r->b);
    assert_true(rc == FAR_UNREACHABLE || rc == FAR_TIMEOUT);
    memd_start(&node[1], port, in_file);
    rc = FAR_TIMEOUT;
    for (unsigned i = 0; i < 1000 && rc != FAR_OK; i++) {
        batch_read(&r->b, gaddr_make(1, AT), 0, r->buf, 8);
        rc = batch_flush(&r->b);
        clock_sleep(rc ? 10000000 : 0);
    }
    assert_int_equal(rc, FAR_OK);
    assert_true(r->buf[0] == 42 || r->buf[0] == 43);
    assert_int_equal(try_set(r, 1, 44), FAR_OK);
    close_rig(r);
}

static struct rig *learner;

static int learn(const struct batch_policy *policy)
{
    (void)policy;
    learner->ep->view = learner->ep->view_refused;
    return FAR_OK;
}

static void note_failure(const struct batch_policy *policy)
{
    (void)policy;
}

/* What became of its part is not known, so learning the view does not make it known. */
static void a_silent_node_beside_one_with_a_newer_view(void **state)
{
    static const struct batch_policy policy = {.learn = learn, .failed = note_failure};

    (void)state;
    memd_start(&node[0], 0, in_memory);
    memd_start(&node[1], 0, in_memory);
    struct rig *r = learner = open_rig(2, "?timeout=500");
    r->ep->view = 1;
    rig_set(r, gaddr_make(1, AT), 0, 42);
    assert_int_equal(rig_fence_view(r, 0, 2), FAR_OK);
    ASSERT(kill(node[1].pid, SIGSTOP) == 0);
    ASSERT(waitpid(node[1].pid, NULL, WUNTRACED) == node[1].pid); /* until it stands still */
    r->b.policy = &policy;
    for (unsigned n = 0; n < 2; n++)
        batch_faa(&r->b, MARK_PUBLISH, gaddr_make(n, AT), 0, 1, &r->buf[n]);
    assert_int_equal(batch_flush(&r->b), FAR_UNKNOWN);
    r->b.policy = NULL;
    ASSERT(kill(node[1].pid, SIGCONT) == 0);
    close_rig(r);
}

/* The other node executes its part of the request. */
static void a_request_names_the_node_that_nothing_was_sent_to(void **state)
{
    (void)state;
    memd_start(&node[0], 0, in_memory);
    memd_start(&node[1], 0, in_memory);
    struct rig *r = open_rig(2, "?timeout=3000");
    memd_end(&node[1], SIGKILL);
    int rc;
    do /* until it is known to be away */
        rc = try_set(r, 1, 43);
    while (rc != FAR_UNREACHABLE);
    r->buf[0] = 44;
    batch_write(&r->b, MARK_EARLY, gaddr_make(0, AT), 0, r->buf, 8);
    batch_write(&r->b, MARK_EARLY, gaddr_make(1, AT), 0, r->buf, 8);
    assert_int_equal(batch_flush(&r->b), FAR_UNKNOWN);
    assert_int_equal(r->b.req.away, 2);
    assert_int_equal(r->b.req.away_status, FAR_UNREACHABLE);
    assert_int_equal(rig_get(r, gaddr_make(0, AT), 0), 44);
    close_rig(r);
}

static void a_node_that_hangs_is_a_timeout(void **state)
{
    uint64_t seen;
    struct rig *r;

    (void)state;
    memd_start(&node[0], 0, in_memory);
    memd_start(&node[1], 0, in_memory);
    r = open_rig(2, "?timeout=3000"); /* time enough for the other to answer in */
    rig_set(r, gaddr_make(1, AT), 0, 1);
    for (uint64_t i = 1; i <= 2; i++) {
        struct rig *other;

        memd_hang(&node[1]);
        assert_int_equal(try_set(r, 1, 2 * i), FAR_TIMEOUT);
        assert_non_null(strstr(far_error_detail(), node[1].address));
        assert_int_equal(try_set(r, 0, i), FAR_OK);
        kill(node[1].pid, SIGCONT);
        assert_int_equal(set_again(r, 1, 2 * i + 1), FAR_OK);
        /* What had no answer was done before that, or never: nothing comes late. */
        other = rig_on(r->fab);
        for (unsigned look = 0; look < 50; look++) {
            seen = rig_get(other, gaddr_make(1, AT), 0);
            assert_int_equal(seen, 2 * i + 1);
        }
        rig_free(other);
    }
    close_rig(r);
}

static void a_node_without_its_memory_is_refused(void **state)
{
    struct rig *r;
    unsigned port;
    int rc = FAR_UNREACHABLE;

    (void)state;
    memd_start(&node[0], 0, in_memory);
    port = memd_port(&node[0]);
    r = open_rig(1, "?timeout=3000");
    rig_set(r, gaddr_make(0, AT), 0, 42);
    memd_end(&node[0], SIGKILL);
    memd_start(&node[0], port, in_memory);
    for (unsigned i = 0; i < 3000 && rc != FAR_NODE_LOST; i++) {
        rc = try_set(r, 0, 43);
        assert_int_not_equal(rc, FAR_OK);
        clock_sleep(1000000);
    }
    assert_int_equal(rc, FAR_NODE_LOST);
    assert_non_null(strstr(far_error_detail(), node[0].address));
    for (unsigned i = 0; i < 20; i++) { /* nor does it shut anybody out */
        assert_int_equal(rig_fence(r, 55), FAR_NODE_LOST);
        clock_sleep(1000000);
    }
    close_rig(r);
}

/* ---- fences ---------------------------------------------------------------------------------- */

static void a_fenced_client_is_shut_out(void **state)
{
    struct rig *a, *b, *c;
    unsigned port;

    (void)state;
    memd_start(&node[0], 0, in_file);
    port = memd_port(&node[0]);
    a = open_rig(1, "?timeout=3000");
    b = rig_on(a->fab);
    a->ep->ops->identify(a->ep, 11);
    assert_int_equal(try_set(a, 0, 1), FAR_OK);
    assert_int_equal(rig_fence(b, 11), FAR_OK);
    assert_int_equal(rig_fence(b, 11), FAR_OK); /* twice is fine */
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(try_set(a, 0, 2), FAR_FENCED);
    assert_int_equal(rig_get(b, gaddr_make(0, AT), 0), 1);
    assert_int_equal(rig_fence(b, 13), FAR_OK); /* no client's yet */
    a->ep->ops->identify(a->ep, 13);
    assert_int_equal(try_set(a, 0, 2), FAR_FENCED);
    a->ep->ops->identify(a->ep, 12);
    assert_int_equal(try_set(a, 0, 3), FAR_OK);
    a->ep->ops->identify(a->ep, 11);
    assert_int_equal(try_set(a, 0, 4), FAR_FENCED);

    /* By another connection, and after a restart of the node. */
    c = rig_on(a->fab);
    c->ep->ops->identify(c->ep, 11);
    assert_int_equal(try_set(c, 0, 5), FAR_FENCED);
    memd_end(&node[0], SIGKILL);
    memd_start(&node[0], port, in_file);
    for (int rc = FAR_OK; rc != FAR_FENCED;) {
        rc = try_set(c, 0, 6);
        assert_int_not_equal(rc, FAR_OK);
        clock_sleep(1000000);
    }
    assert_int_equal(set_again(b, 0, 7), FAR_OK);
    rig_free(c);
    rig_free(b);
    close_rig(a);
}

static _Atomic bool stop;

static void *writer(void *arg)
{
    struct rig *r = rig_on(arg);
    int rc = FAR_OK;

    r->ep->ops->identify(r->ep, 77);
    for (uint64_t i = 1; !stop && rc == FAR_OK; i++)
        rc = try_set(r, 0, i);
    ASSERT(rc == FAR_FENCED);
    rig_free(r);
    return NULL;
}

/* Once the fence has returned, nothing of the other takes effect: at any moment of its work. */
static void no_verb_of_a_fenced_client_takes_effect(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 10; round++) {
        pthread_t thread;
        struct rig *r;
        uint64_t seen;

        memd_start(&node[0], 0, in_memory);
        r = open_rig(1, "");
        stop = false;
        rig_set(r, gaddr_make(0, AT), 0, 0);
        ASSERT(pthread_create(&thread, NULL, writer, r->fab) == 0);
        while (rig_get(r, gaddr_make(0, AT), 0) < 5 + round)
            sched_yield();
        assert_int_equal(rig_fence(r, 77), FAR_OK);
        seen = rig_get(r, gaddr_make(0, AT), 0);
        for (unsigned look = 0; look < 20; look++)
            assert_int_equal(rig_get(r, gaddr_make(0, AT), 0), seen);
        pthread_join(thread, NULL);
        assert_int_equal(rig_get(r, gaddr_make(0, AT), 0), seen);
        close_rig(r);
        memd_end(&node[0], SIGTERM);
    }
}

/* A node that does not answer the fence does not hold up requests to others. */
static void a_fence_leaves_the_thread_to_others(void **state)
{
    struct rig *r;

    (void)state;
    memd_start(&node[0], 0, in_memory);
    memd_start(&node[1], 0, in_memory);
    r = open_rig(2, "?timeout=60000");
    rig_set(r, gaddr_make(0, AT), 0, 1);
    rig_set(r, gaddr_make(1, AT), 0, 1);
    memd_hang(&node[1]);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(r->ep->ops->fence(r->ep, 55), FAB_PENDING);
        assert_int_equal(try_set(r, 0, i), FAR_OK);
    }
    kill(node[1].pid, SIGCONT);
    assert_int_equal(rig_fence(r, 55), FAR_OK);
    close_rig(r);
}

/* Once a node is known to be away, nothing waits for it. */
static void a_fence_does_not_wait_for_a_node_that_is_away(void **state)
{
    struct rig *r;
    unsigned port;
    int rc;

    (void)state;
    memd_start(&node[0], 0, in_memory);
    memd_start(&node[1], 0, in_file);
    port = memd_port(&node[1]);
    r = open_rig(2, "?timeout=3000");
    rig_set(r, gaddr_make(1, AT), 0, 1);
    memd_end(&node[1], SIGKILL);
    /* The first one may find a connection that is not known to be broken: then the second
     * connects. */
    for (unsigned i = 0; i < 2; i++)
        assert_int_not_equal(rig_fence(r, 55), FAR_OK);
    assert_non_null(strstr(far_error_detail(), node[1].address));
    for (unsigned i = 0; i < 50; i++) {
        rc = r->ep->ops->fence(r->ep, 55);
        assert_true(rc == FAR_UNREACHABLE || rc == FAR_TIMEOUT);
        assert_int_equal(try_set(r, 0, i), FAR_OK);
    }
    memd_start(&node[1], port, in_file);
    rc = FAR_TIMEOUT;
    for (unsigned i = 0; i < 1000 && rc != FAR_OK; i++) {
        rc = rig_fence(r, 55);
        clock_sleep(rc ? 10000000 : 0);
    }
    assert_int_equal(rc, FAR_OK);
    close_rig(r);
}

/* ---- who makes the pool ---------------------------------------------------------------------- */

static void *opener(void *arg)
{
    struct fab *fab;

    ASSERT(fab_open(arg, &fab) == FAR_OK);
    return fab;
}

static void one_client_makes_the_pool(void **state)
{
    struct fab *first, *second;
    char uri[1024];
    pthread_t thread;
    void *result;

    (void)state;
    memd_start(&node[0], 0, in_memory);
    strcpy(uri, memd_uri(node, 1, ""));
    assert_int_equal(fab_open(uri, &first), FAR_OK);
    assert_true(first->fresh);
    ASSERT(pthread_create(&thread, NULL, opener, uri) == 0);
    clock_sleep(50000000); /* it waits; if it has not begun to, that is fine too */
    fab_close(first);      /* without having made it: the other's turn */
    pthread_join(thread, &result);
    first = result;
    assert_true(first->fresh);
    ASSERT(pthread_create(&thread, NULL, opener, uri) == 0);
    clock_sleep(50000000);
    first->ops->formatted(first);
    pthread_join(thread, &result);
    second = result;
    assert_false(second->fresh);
    fab_close(second);
    fab_close(first);
}

static void pools_are_not_overwritten(void **state)
{
    struct fab *fab;

    (void)state;
    memd_start(&node[1], 0, in_memory);
    assert_int_equal(fab_open(memd_uri(&node[1], 1, ""), &fab), FAR_OK);
    fab->ops->formatted(fab);
    fab_close(fab);
    memd_start(&node[0], 0, in_memory);
    assert_int_equal(fab_open(memd_uri(node, 2, ""), &fab), FAR_NOT_A_POOL);
    assert_non_null(strstr(far_error_detail(), node[1].address));
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void bad_uris_are_refused(void **state)
{
    static const char *const bad[] = {"ucx:",
                                      "ucx:localhost:1",
                                      "ucx://",
                                      "ucx://localhost",
                                      "ucx://:1",
                                      "ucx://localhost:",
                                      "ucx://localhost:x",
                                      "ucx://localhost:65536",
                                      "ucx://localhost:1,",
                                      "ucx://localhost:1,,localhost:2",
                                      "ucx://localhost:1?timeout=1",
                                      "ucx://localhost:1?size=1m",
                                      "ucx://localhost:1?mode=rma"};
    struct fab *fab;

    (void)state;
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        int rc = fab_open(bad[i], &fab);

        if (rc != FAR_BAD_URI)
            print_error("%s: %s\n", bad[i], far_errname(rc));
        assert_int_equal(rc, FAR_BAD_URI);
    }
    assert_int_equal(fab_open("ucx://no-such-host.invalid:1?timeout=3000", &fab), FAR_UNREACHABLE);
    assert_non_null(strstr(far_error_detail(), "no-such-host.invalid"));
}

#define ONE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(a_node_that_dies_is_named_and_found_again),
        ONE(a_silent_node_beside_one_with_a_newer_view),
        ONE(a_request_names_the_node_that_nothing_was_sent_to),
        ONE(a_node_that_hangs_is_a_timeout),
        ONE(a_node_without_its_memory_is_refused),
        ONE(a_fenced_client_is_shut_out),
        ONE(no_verb_of_a_fenced_client_takes_effect),
        ONE(a_fence_leaves_the_thread_to_others),
        ONE(a_fence_does_not_wait_for_a_node_that_is_away),
        ONE(one_client_makes_the_pool),
        ONE(pools_are_not_overwritten),
        ONE(bad_uris_are_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    /* The same with endpoints that share a worker and connections. */
    memd_descriptors(FEW_DESCRIPTORS);
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
