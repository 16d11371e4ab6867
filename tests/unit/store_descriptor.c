/* far_session_fd(): when the descriptor is readable, and when it is not. */
#include "support/forked.h"
#include "support/hook.h"
#include "support/puppet.h"
#include "support/race_rig.h"
#include "support/wait_loop.h"
#include "store/wait.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/select.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static const char *const uris[] = {"mem:?size=64m", "mem:?size=64m&defer=1",
                                   "mem:?size=32m&nodes=3&defer=1"};
#define URIS (sizeof uris / sizeof *uris)

static uint64_t key = 7, got;

static struct far_op op_on(struct store_rig *r, enum far_op_kind kind)
{
    return (struct far_op){.kind = kind,
                           .table = r->table,
                           .key = &key,
                           .key_len = 8,
                           .value = &key,
                           .value_len = 8,
                           .buf = &got,
                           .cap = 8,
                           .user_data = 1};
}

static void submit(struct store_rig *r, enum far_op_kind kind)
{
    struct far_op op = op_on(r, kind);

    assert_int_equal(far_submit(r->session, &op), FAR_OK);
}

static void rig(struct store_rig *r, const char *uri, struct wait_loop *l)
{
    store_rig_open(r, uri, NULL, NULL, NULL);
    wait_loop_open(l, r->session);
}

static void end(struct store_rig *r, struct wait_loop *l)
{
    wait_loop_close(l);
    store_rig_close(r);
}

static void a_loop_that_only_sleeps_gets_everything(void **state)
{
    char shm[64];
    const char *all[URIS + 1];

    (void)state;
    memcpy(all, uris, sizeof uris);
    snprintf(shm, sizeof shm, "shm:descriptor-%d?size=16m", (int)getpid());
    all[URIS] = shm;
    for (unsigned u = 0; u < URIS + 1; u++) {
        struct store_rig r;
        struct wait_loop l;

        rig(&r, all[u], &l);
        assert_int_equal(wait_loop_rest(&l, 50), 0);
        uint64_t wakes = wait_loop_work(&l, r.table, 300, 16);
        /* A wake-up either brings a result or has gone on with operations of the ring for as long
         * as there was anything to go on with. */
        assert_in_range(wakes, 1, 600);
        assert_int_equal(wait_loop_rest(&l, 50), 0);
        end(&r, &l);
    }
    assert_int_equal(far_pool_remove(shm), FAR_OK);
}

static void it_is_readable_while_results_are_left(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        struct store_rig r;
        struct wait_loop l;
        struct far_result result;
        unsigned left = 5;

        rig(&r, uris[u], &l);
        assert_false(wait_loop_within(&l, 0));
        for (unsigned i = 0; i < left; i++)
            submit(&r, FAR_OP_PUT);
        while (left > 0) {
            for (unsigned i = 0; i < 3; i++)
                assert_true(wait_loop_within(&l, 0)); /* until it is reaped */
            left -= far_reap(r.session, &result, 1, 0);
        }
        assert_false(wait_loop_within(&l, 0));
        assert_int_equal(far_reap(r.session, &result, 1, 0), 0);
        assert_false(wait_loop_within(&l, 0));
        end(&r, &l);
    }
}

/* Those who had something in flight before they asked are not forgotten. */
static void it_can_be_asked_for_at_any_time(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        struct store_rig r;
        struct wait_loop l;
        struct far_result result;
        int again = -1;

        store_rig_open(&r, uris[u], NULL, NULL, NULL);
        submit(&r, FAR_OP_PUT);
        wait_loop_open(&l, r.session);
        while (wait_loop_step(&l, &result, 1) == 0) {
        }
        assert_int_equal(result.status, FAR_OK);
        assert_int_equal(far_session_fd(r.session, &again), FAR_OK);
        assert_int_equal(again, l.fd); /* the same one */
        end(&r, &l);
    }
}

static void poll_and_select_will_do(void **state)
{
    struct store_rig r;
    struct wait_loop l;
    struct far_result result;

    (void)state;
    rig(&r, uris[0], &l);
    struct pollfd pfd = {.fd = l.fd, .events = POLLIN};
    struct timeval now = {0};
    fd_set set;
    assert_int_equal(poll(&pfd, 1, 0), 0);
    submit(&r, FAR_OP_PUT);
    assert_int_equal(poll(&pfd, 1, 0), 1);
    FD_ZERO(&set);
    FD_SET(l.fd, &set);
    assert_int_equal(select(l.fd + 1, &set, NULL, NULL, &now), 1);
    assert_int_equal(far_reap(r.session, &result, 1, 0), 1);
    assert_int_equal(poll(&pfd, 1, 0), 0);
    end(&r, &l);
}

static void a_cancelled_operation_makes_it_readable(void **state)
{
    struct far_session_options options = {.depth = 1, .backlog = 4};
    struct store_rig r;
    struct wait_loop l;
    struct far_result results[4];

    (void)state;
    store_rig_open(&r, "mem:?size=16m&defer=1", NULL, &options, NULL);
    hook_on(r.session->client.ep);
    wait_loop_open(&l, r.session);
    submit(&r, FAR_OP_PUT);
    struct far_op op = op_on(&r, FAR_OP_PUT);
    op.user_data = 2;
    assert_int_equal(far_submit(r.session, &op), FAR_OK);
    store_wait_for_nothing(r.session->wait); /* as if the first one waited for a node */
    assert_false(wait_loop_within(&l, 0));
    assert_int_equal(far_cancel(r.session, 2, NULL), FAR_OK);
    assert_true(wait_loop_within(&l, 0));
    assert_int_equal(far_reap(r.session, results, 1, 0), 1);
    assert_int_equal(results[0].status, FAR_STOPPED);
    assert_int_equal(far_reap(r.session, results, 4, 4), 1);
    hook_off();
    end(&r, &l);
}

/* What waits starts, and is waited for, when another one is reaped. */
static void the_backlog_is_driven_too(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        struct far_session_options options = {.depth = 2, .backlog = 40};
        struct store_rig r;
        struct wait_loop l;
        struct far_result results[3];
        unsigned left = 42;

        store_rig_open(&r, uris[u], NULL, &options, NULL);
        wait_loop_open(&l, r.session);
        for (unsigned i = 0; i < left; i++)
            submit(&r, FAR_OP_PUT);
        while (left > 0)
            left -= wait_loop_step(&l, results, 3);
        assert_in_range(l.wakes, 1, 42 * 4);
        assert_false(wait_loop_within(&l, 0));
        end(&r, &l);
    }
}

/* ---- a fabric whose wake-ups the test gives -------------------------------------------------- */

static struct {
    int fd;
    bool blind;     /* requests are executed by a poll only if it is not */
    unsigned armed; /* how often */
    uint64_t until_ns;
} fabric;

static int given_fds(struct fab_ep *ep, int fds[FAB_WAIT_FDS], unsigned *count)
{
    (void)ep;
    fds[0] = fabric.fd;
    *count = 1;
    return FAR_OK;
}

static bool given_arm(struct fab_ep *ep, uint64_t *until)
{
    uint64_t none;

    if (!fabric.blind && !hook.real->arm(ep, &none))
        return false;
    fabric.armed++;
    *until = fabric.until_ns ? ep->ops->now(ep) + fabric.until_ns : UINT64_MAX;
    return true;
}

static void given_poll(struct fab_ep *ep, bool wait)
{
    if (!fabric.blind || wait)
        hook.real->poll(ep, wait);
}

static void rig_given_by(struct store_rig *r, struct wait_loop *l, int fd)
{
    store_rig_open(r, "mem:?size=16m&defer=1", NULL, NULL, NULL);
    memset(&fabric, 0, sizeof fabric);
    fabric.fd = fd;
    assert_true(fabric.fd >= 0);
    hook_on(r->session->client.ep);
    hook.ops.wait_fds = given_fds;
    hook.ops.arm = given_arm;
    hook.ops.poll = given_poll;
    wait_loop_open(l, r->session);
    fabric.blind = true;
}

static void rig_given(struct store_rig *r, struct wait_loop *l)
{
    rig_given_by(r, l, eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
}

static void end_given(struct store_rig *r, struct wait_loop *l)
{
    fabric.blind = false;
    hook_off();
    end(r, l);
    close(fabric.fd);
}

/* In flight, and nothing comes: it is not readable. */
static void put_in_flight(struct store_rig *r, struct wait_loop *l)
{
    struct far_result result;

    submit(r, FAR_OP_PUT);
    assert_true(wait_loop_within(l, 0)); /* submitted: to be polled, and armed */
    assert_int_equal(far_reap(r->session, &result, 1, 0), 0);
    assert_int_equal(fabric.armed, 1);
    assert_false(wait_loop_within(l, 20));
}

static void finish(struct store_rig *r, struct wait_loop *l)
{
    struct far_result result;

    fabric.blind = false;
    while (wait_loop_step(l, &result, 1) == 0) {
    }
    assert_int_equal(result.status, FAR_OK);
    assert_int_equal(far_reap(r->session, &result, 1, 0), 0);
}

static void the_fabric_wakes_it(void **state)
{
    struct store_rig r;
    struct wait_loop l;
    uint64_t one = 1;

    (void)state;
    rig_given(&r, &l);
    put_in_flight(&r, &l);
    assert_int_equal(write(fabric.fd, &one, 8), 8);
    assert_true(wait_loop_within(&l, 0));
    finish(&r, &l);
    end_given(&r, &l);
}

/* The fabric says by when it wants to be looked at. */
static void time_wakes_it(void **state)
{
    struct store_rig r;
    struct wait_loop l;
    struct far_result result;

    (void)state;
    rig_given(&r, &l);
    put_in_flight(&r, &l);
    fabric.until_ns = 30000000;
    assert_int_equal(far_reap(r.session, &result, 1, 0), 0);
    assert_true(wait_loop_within(&l, WAIT_HANGS_MS));
    finish(&r, &l);
    end_given(&r, &l);
}

/* Another call polls as well, and takes what the descriptor would have been readable for. */
static void other_calls_do_not_lose_a_wake_up(void **state)
{
    struct store_rig r;
    struct wait_loop l;
    struct far_pool_info info;

    (void)state;
    rig_given(&r, &l);
    for (unsigned i = 0; i < 2; i++) {
        put_in_flight(&r, &l);
        fabric.blind = false;
        if (i == 0)
            assert_int_equal(far_exists(r.session, r.table, "other", 5), FAR_NOT_FOUND);
        else
            assert_int_equal(far_pool_info(r.session, &info), FAR_OK);
        assert_true(wait_loop_within(&l, 0));
        finish(&r, &l);
        fabric.blind = true;
        fabric.armed = 0;
    }
    end_given(&r, &l);
}

/* A call that waits for epochs goes on with the ring meanwhile, and finishes what was in flight. */
static void a_call_that_drives_the_ring_does_not_lose_a_result(void **state)
{
    struct store_rig r;
    struct wait_loop l;

    (void)state;
    rig_given(&r, &l);
    put_in_flight(&r, &l);
    fabric.blind = false;
    while (r.session->running_count > 0)
        puppet_drive_ring(&r.session->client);
    assert_true(wait_loop_within(&l, 0));
    finish(&r, &l);
    end_given(&r, &l);
}

/* One that waits for epochs while nothing is in flight has nothing to say, also before the first
 * far_submit(), when far_reap() has no ring to look at. */
static void a_call_that_waits_wakes_nobody(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        struct store_rig r;
        struct wait_loop l;
        far_table *other = NULL;

        rig(&r, uris[u], &l);
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(far_table_create(r.session, "other", "race", NULL, &other), FAR_OK);
            assert_int_equal(far_table_drop(r.session, other), FAR_OK);
            assert_false(wait_loop_within(&l, 0));
            assert_int_equal(wait_loop_rest(&l, 20), 0);
            submit(&r, FAR_OP_PUT);
            finish(&r, &l);
        }
        end(&r, &l);
    }
}

/* Of an idle session the fabric's descriptors wake a server once, not for ever. */
static void an_idle_session_wakes_nobody_twice(void **state)
{
    struct store_rig r;
    struct wait_loop l;
    uint64_t one = 1;

    (void)state;
    rig_given(&r, &l);
    assert_int_equal(write(fabric.fd, &one, 8), 8);
    assert_false(wait_loop_within(&l, 20)); /* before its first operation */
    assert_int_equal(read(fabric.fd, &one, 8), 8);
    put_in_flight(&r, &l);
    fabric.blind = false;
    store_wait_ring(r.session->wait);
    finish(&r, &l);
    assert_int_equal(write(fabric.fd, &one, 8), 8); /* which nobody reads */
    assert_in_range(wait_loop_rest(&l, 50), 0, 1);
    assert_false(wait_loop_within(&l, 0));
    fabric.blind = true; /* in flight again, it counts again */
    fabric.armed = 0;
    assert_int_equal(read(fabric.fd, &one, 8), 8);
    put_in_flight(&r, &l);
    assert_int_equal(write(fabric.fd, &one, 8), 8);
    assert_true(wait_loop_within(&l, 0));
    finish(&r, &l);
    end_given(&r, &l);
}

/* Nor do descriptors that were hung up, as when a device is taken away: epoll reports those whether
 * or not it was asked to. */
static void a_dead_descriptor_wakes_nobody_twice(void **state)
{
    struct store_rig r;
    struct wait_loop l;
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    rig_given_by(&r, &l, ends[0]);
    put_in_flight(&r, &l);
    close(ends[1]);
    assert_true(wait_loop_within(&l, 0));
    finish(&r, &l);
    assert_in_range(wait_loop_rest(&l, 50), 0, 1);
    assert_false(wait_loop_within(&l, 0));
    end_given(&r, &l);
}

/* ---- operations that wait for time ----------------------------------------------------------- */

/* The key's subtable looks as if another operation of the session were splitting it: so the put
 * waits, by pausing. */
static void the_end_of_a_pause_wakes_it(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct far_result result;
    struct store_rig r;
    struct wait_loop l;
    struct race_spot spot;
    unsigned place = 0;

    (void)state;
    knobs.patience = 1u << 30;
    store_rig_open(&r, "mem:?size=4m&defer=1&lease=3600000", &knobs, NULL,
                   &(struct far_table_options){.tuning = "groups=2"});
    wait_loop_open(&l, r.session);
    for (uint64_t k = 0; k < 6; k++)
        assert_int_equal(far_put(r.session, r.table, &k, 8, &k, 8), FAR_OK);
    race_rig_find(&r, &key, 8, &spot);
    while (!race_is_slot(place) || spot.look.words[place] != 0)
        place++;
    store_rig_set(&r, spot.look.subtable, race_place_offset(&spot.key, place), RACE_SLOT_SEALED);
    race_rig_view(&r)->splitting[0] = spot.look.entry;
    submit(&r, FAR_OP_PUT);
    const struct op *op = &r.session->slot[r.session->running[0]].op;
    unsigned pauses = 0;
    while (pauses < 5) {
        assert_true(wait_loop_within(&l, 20000)); /* pauses are of milliseconds */
        assert_int_equal(wait_loop_step(&l, &result, 1), 0);
        pauses += op->batch.wake_at != 0;
    }
    assert_in_range(l.wakes, 5, 1000);
    race_rig_view(&r)->splitting[0] = 0;
    while (wait_loop_step(&l, &result, 1) == 0) {
    }
    assert_int_equal(result.status, FAR_OK);
    end(&r, &l);
}

/* ---- the end --------------------------------------------------------------------------------- */

static unsigned descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned count = 0;

    ASSERT(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void it_is_closed_with_the_session(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        struct store_rig r;
        far_session *session = NULL;
        int fd = -1;

        store_rig_open(&r, uris[u], NULL, NULL, NULL);
        unsigned before = descriptors();
        assert_int_equal(far_session_open(r.pool, NULL, &session), FAR_OK);
        assert_int_equal(descriptors(), before); /* none before it is asked for */
        assert_int_equal(far_session_fd(session, &fd), FAR_OK);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        struct far_op op = op_on(&r, FAR_OP_PUT);
        assert_int_equal(far_submit(session, &op), FAR_OK);
        far_session_close(session); /* with an operation in flight */
        assert_true(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
        assert_int_equal(descriptors(), before);
        store_rig_close(&r);
    }
}

static void without_descriptors_it_is_an_error(void **state)
{
    struct rlimit limit, few;
    struct store_rig r;
    struct far_result result;
    int fd = 77, low = open("/dev/null", O_RDONLY);

    (void)state;
    store_rig_open(&r, uris[1], NULL, NULL, NULL);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    for (unsigned spare = 0; spare < 3; spare++) {
        few = (struct rlimit){.rlim_cur = (rlim_t)low + 1 + spare, .rlim_max = limit.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        assert_int_equal(far_session_fd(r.session, &fd), FAR_SYSTEM);
        assert_non_null(strstr(far_error_detail(), "Too many open files"));
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    }
    assert_int_equal(fd, 77);
    submit(&r, FAR_OP_PUT); /* the ring works all the same */
    assert_int_equal(far_reap(r.session, &result, 1, 1), 1);
    assert_int_equal(far_session_fd(r.session, &fd), FAR_OK);
    store_rig_close(&r);
    close(low);
}

static void a_fabric_that_can_only_be_polled_has_none(void **state)
{
    struct store_rig r;
    int fd = 77;

    (void)state;
    store_rig_open(&r, uris[1], NULL, NULL, NULL);
    hook_on(r.session->client.ep);
    hook.ops.arm = NULL;
    assert_int_equal(far_session_fd(r.session, &fd), FAR_UNSUPPORTED);
    assert_int_equal(fd, 77);
    hook_off();
    store_rig_close(&r);
}

struct inherited {
    struct store_rig r;
    struct wait_loop l;
};

/* The child's copies are closed; what they stand for is its parent's. */
static void child_closes(void *arg)
{
    struct inherited *i = arg;
    unsigned before = descriptors();

    forked_use(i->r.pool, i->r.session, i->r.table);
    far_session_close(i->r.session);
    ASSERT(descriptors() == before - 3);
}

static void a_child_of_fork_leaves_it_alone(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        struct inherited i;
        struct far_result result;

        rig(&i.r, uris[u], &i.l);
        submit(&i.r, FAR_OP_PUT);
        forked(child_closes, &i);
        while (wait_loop_step(&i.l, &result, 1) == 0) {
        }
        assert_int_equal(result.status, FAR_OK);
        forked(child_closes, &i);
        assert_in_range(wait_loop_work(&i.l, i.r.table, 50, 8), 1, 100);
        end(&i.r, &i.l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_readable_while_results_are_left),
        cmocka_unit_test(a_loop_that_only_sleeps_gets_everything),
        cmocka_unit_test(it_can_be_asked_for_at_any_time),
        cmocka_unit_test(poll_and_select_will_do),
        cmocka_unit_test(a_cancelled_operation_makes_it_readable),
        cmocka_unit_test(the_backlog_is_driven_too),
        cmocka_unit_test(the_fabric_wakes_it),
        cmocka_unit_test(time_wakes_it),
        cmocka_unit_test(other_calls_do_not_lose_a_wake_up),
        cmocka_unit_test(a_call_that_drives_the_ring_does_not_lose_a_result),
        cmocka_unit_test(a_call_that_waits_wakes_nobody),
        cmocka_unit_test(an_idle_session_wakes_nobody_twice),
        cmocka_unit_test(a_dead_descriptor_wakes_nobody_twice),
        cmocka_unit_test(the_end_of_a_pause_wakes_it),
        cmocka_unit_test(it_is_closed_with_the_session),
        cmocka_unit_test(without_descriptors_it_is_an_error),
        cmocka_unit_test(a_fabric_that_can_only_be_polled_has_none),
        cmocka_unit_test(a_child_of_fork_leaves_it_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
