/* A client and a memory node whose clocks do not agree, or stop agreeing. The test has its own
 * clock_gettime(), which everything in this process uses; the node is another process. */
#include "support/memd_child.h"
#include "fabric/rig.h"

#include <sys/syscall.h>
#include <time.h>

#define SECOND 1000000000ll
#define HOUR   (3600 * SECOND)
#define AT     65536u

static struct memd_child node;
static _Atomic int64_t shift;

int clock_gettime(clockid_t clock, struct timespec *t)
{
    long rc = syscall(SYS_clock_gettime, clock, t);
    if (rc == 0 &&
        (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_BOOTTIME)) {
        int64_t now = t->tv_sec * SECOND + t->tv_nsec + shift;
        t->tv_sec = now / SECOND;
        t->tv_nsec = now % SECOND;
    }
    return (int)rc;
}

static struct rig *open_rig(void)
{
    struct fab *fab = NULL;
    shift = 2 * HOUR; /* there is room to set it back */
    assert_int_equal(fab_open(memd_uri(&node, 1, "?timeout=600000"), &fab), FAR_OK);
    fab->lease_ms = 5000;
    return rig_on(fab);
}

static void close_rig(struct rig *r)
{
    struct fab *fab = r->fab;
    rig_free(r);
    fab_close(fab);
}

static void assert_adds(struct rig *r)
{
    gaddr at = gaddr_make(0, AT);
    batch_read(&r->b, at, 0, &r->buf[0], 8);
    batch_faa(&r->b, MARK_PUBLISH, at, 0, 1, &r->buf[1]);
    batch_read(&r->b, at, 0, &r->buf[2], 8);
    assert_int_equal(batch_flush(&r->b), FAR_OK);
    assert_int_equal(r->buf[1], r->buf[0]);
    assert_int_equal(r->buf[2], r->buf[0] + 1); /* once */
}

static void a_clock_that_was_set_does_no_harm(void **state)
{
    static const int64_t by[] = {-SECOND, SECOND, -10 * SECOND, 10 * SECOND, -HOUR, HOUR};
    struct rig *r = open_rig();
    (void)state;
    assert_adds(r);
    for (unsigned i = 0; i < sizeof by / sizeof *by; i++) {
        shift += by[i];
        assert_adds(r);
        assert_adds(r);
    }
    close_rig(r);
}

/* More than half a lease in all, a little with each request. */
static void a_clock_that_drifts_does_no_harm(void **state)
{
    struct rig *r = open_rig();
    (void)state;
    for (unsigned i = 0; i < 100; i++) {
        shift -= SECOND / 10;
        assert_adds(r);
    }
    for (unsigned i = 0; i < 100; i++) {
        shift += SECOND / 10;
        assert_adds(r);
    }
    close_rig(r);
}

/* As many messages as there may be, sent before the client learns that its clock was set. */
static void many_requests_survive_a_clock_that_was_set(void **state)
{
    enum { REQUESTS = 16 };
    struct fab_verb verb[REQUESTS];
    struct fab_req req[REQUESTS];
    struct rig *r = open_rig();
    const uint32_t large = 128u << 10;
    (void)state;
    assert_adds(r);
    uint64_t before = r->buf[2];
    shift -= HOUR;
    for (unsigned i = 0; i < REQUESTS; i++) { /* a message each, as their results are large */
        verb[i] = (struct fab_verb){
            .kind = FAB_READ, .off = AT, .len = large, .buf = (char *)r->buf + i * (size_t)large};
        req[i] = (struct fab_req){.verbs = &verb[i], .count = 1};
        assert_int_equal(r->fab->ops->post(r->ep, &req[i]), FAR_OK);
    }
    for (unsigned i = 0; i < REQUESTS; i++) {
        while (!req[i].done)
            r->fab->ops->poll(r->ep, true);
        assert_int_equal(req[i].status, FAR_OK);
        assert_int_equal(r->buf[i * (size_t)large / 8], before);
    }
    close_rig(r);
}

int main(void)
{
    static const char *const more[] = {"--size", "8m", NULL};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clock_that_was_set_does_no_harm),
        cmocka_unit_test(a_clock_that_drifts_does_no_harm),
        cmocka_unit_test(many_requests_survive_a_clock_that_was_set),
    };
    memd_start(&node, 0, more);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return memd_end(&node, SIGTERM) == 0 ? failed : 1;
}
