/* A client of ucx: on a busy machine (CROWD-1). The test has its own clock, sched_yield() and
 * poll(): as long as the node is stopped, the client polls in vain, and the first of these calls
 * lets the node continue. */
#include "base/crowd.h"
#include "support/memd_child.h"
#include "fabric/rig.h"

#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>

#define AT 65536u

static struct memd_child node;
static uint64_t shift, turn; /* what each yield takes */
static unsigned yields, sleeps;

int clock_gettime(clockid_t clock, struct timespec *t)
{
    long rc = syscall(SYS_clock_gettime, clock, t);
    if (rc == 0 && (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE)) {
        uint64_t now = (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec + shift;
        t->tv_sec = (time_t)(now / 1000000000u);
        t->tv_nsec = (long)(now % 1000000000u);
    }
    return (int)rc;
}

int sched_yield(void)
{
    yields++;
    shift += turn;
    assert_int_equal(kill(node.pid, SIGCONT), 0);
    return 0;
}

int poll(struct pollfd *fds, nfds_t count, int ms)
{
    struct timespec most = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    sleeps++;
    assert_int_equal(kill(node.pid, SIGCONT), 0);
    return (int)syscall(SYS_ppoll, fds, count, ms < 0 ? NULL : &most, NULL, 8);
}

/* A READ that the node does not answer before the client yields or sleeps. */
static void read_slowly(struct rig *r)
{
    int state;
    assert_int_equal(kill(node.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(node.pid, &state, WUNTRACED), node.pid);
    yields = sleeps = 0;
    batch_read(&r->b, gaddr_make(0, AT), 0, &r->buf[0], 8);
    assert_int_equal(batch_flush(&r->b), FAR_OK);
}

static void a_client_does_not_yield_where_that_costs_a_turn(void **state)
{
    struct fab *fab = NULL;
    (void)state;
    assert_int_equal(fab_open(memd_uri(&node, 1, "?timeout=600000"), &fab), FAR_OK);
    fab->lease_ms = 5000;
    struct rig *r = rig_on(fab);

    turn = 0;
    read_slowly(r);
    shift += CROWD_LASTS_NS; /* whatever the machine did */
    turn = CROWD_NS;
    read_slowly(r);
    assert_int_equal(yields, 1);
    for (unsigned i = 0; i < 3; i++) {
        uint64_t before = shift;
        read_slowly(r);
        assert_int_equal(yields, 0);
        assert_true(sleeps > 0);
        assert_true(shift == before);
    }
    shift += CROWD_LASTS_NS;
    read_slowly(r);
    assert_int_equal(yields, 1);

    rig_free(r);
    fab_close(fab);
}

int main(void)
{
    static const char *const more[] = {"--size", "8m", NULL};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_does_not_yield_where_that_costs_a_turn),
    };
    memd_start(&node, 0, more);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return memd_end(&node, SIGTERM) == 0 ? failed : 1;
}
