/* A process on mem: that is stopped as a whole, and goes on: its sessions have lost no lease. The
 * machine's clock is the test's. */
#include "support/probe.h"
#include "support/store_rig.h"

#include <time.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define SECOND 1000000000ull
#define URI    "mem:?size=8m&lease=5000"

static uint64_t machine_ns = 1000 * SECOND;
static void (*meanwhile)(void); /* what others do before the next reading returns */

/* Instead of libc's. Each reading takes a microsecond, so that what waits goes on. */
int clock_gettime(clockid_t clock, struct timespec *t)
{
    void (*others)(void) = meanwhile;
    (void)clock;
    machine_ns += 1000;
    t->tv_sec = (time_t)(machine_ns / SECOND);
    t->tv_nsec = (long)(machine_ns % SECOND);
    meanwhile = NULL;
    if (others)
        others();
    return 0;
}

static void put(struct store_rig *r, far_session *s, uint64_t key)
{
    assert_int_equal(far_put(s, r->table, &key, sizeof key, &key, sizeof key), FAR_OK);
}

/* Two sessions, each of which has done something. The first one waits for the other's epochs. */
static far_session *two_sessions(struct store_rig *r, struct probe *p)
{
    *r = store_rig_announcing(URI);
    probe_open(p, r->fab);
    far_session *other = store_rig_join(r);
    put(r, other, 1);
    for (uint64_t k = 0; k < 20; k++)
        put(r, r->session, 2);
    return other;
}

static void a_process_that_was_stopped_has_lost_no_lease(void **state)
{
    struct store_rig r;
    struct probe p;
    far_session *other = two_sessions(&r, &p);
    uint64_t mine = r.session->client.incarnation, its = other->client.incarnation;
    (void)state;
    for (unsigned stops = 0; stops < 5; stops++) {
        machine_ns += 60 * SECOND;
        for (uint64_t k = 0; k < 20; k++)
            put(&r, r.session, k);
        assert_true(probe_incarnation(&p, other->client.slot) == its);
        put(&r, other, 1);
    }
    assert_true(r.session->client.incarnation == mine && other->client.incarnation == its);
    far_session_close(other);
    probe_close(&p);
    store_rig_close(&r);
}

/* Time passes while at least one session works. */
static void a_silent_session_is_dead_nevertheless(void **state)
{
    struct store_rig r;
    struct probe p;
    far_session *other = two_sessions(&r, &p);
    uint64_t its = other->client.incarnation;
    unsigned slot = other->client.slot, halves = 0;
    (void)state;
    store_rig_kill(other);
    for (; probe_incarnation(&p, slot) == its; halves++) {
        assert_true(halves < 20); /* of a second; the watch takes 7.5 */
        machine_ns += SECOND / 2;
        put(&r, r.session, 2);
    }
    assert_true(halves >= 14);
    probe_close(&p);
    store_rig_close(&r);
}

static struct fab_ep *another;

static void stop_and_read(void)
{
    machine_ns += 60 * SECOND;
    (void)another->ops->coarse(another);
}

/* A thread is stopped between its look at the machine's clock and that at the word. Another one
 * goes on before it. */
static void the_clock_does_not_go_back(void **state)
{
    struct store_rig r = store_rig_announcing(URI);
    struct fab_ep *ep = r.session->client.ep;
    (void)state;
    another = ep;
    for (unsigned i = 0; i < 20; i++) {
        uint64_t before = ep->ops->coarse(ep);
        meanwhile = stop_and_read;
        uint64_t in = ep->ops->coarse(ep), after = ep->ops->coarse(ep);
        assert_true(before <= in && in <= after && after < before + SECOND / 20);
        machine_ns += i * SECOND / 500;
    }
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_was_stopped_has_lost_no_lease),
        cmocka_unit_test(a_silent_session_is_dead_nevertheless),
        cmocka_unit_test(the_clock_does_not_go_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
