/*
 * A fabric that knows whether a client's process lives: a client that stands still is waited for as
 * long as it does, and a dead one is found without waiting for its lease (LEASE-L4). The test
 * drives the clock, and says who lives.
 */
#include "support/probe.h"
#include "support/puppet.h"
#include "support/store_rig.h"

#include <stdio.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define LEASE_NS 60000000ull

static struct {
    enum fab_life other; /* of all clients that have a true witness */
    unsigned asked;
} kernel;

static uint64_t some_witness(struct fab_ep *ep, uint64_t client)
{
    (void)ep;
    return client * 3;
}

/* As shm: does it: without a true witness, only life can be seen. */
static enum fab_life some_life(struct fab_ep *ep, uint64_t client, uint64_t witness)
{
    (void)ep;
    kernel.asked++;
    return kernel.other == FAB_DEAD && witness != client * 3 ? FAB_LIFE_UNKNOWN : kernel.other;
}

static void open_rig_with(struct store_rig *r, unsigned clients, const char *more)
{
    struct knobs knobs = pool_knobs_default;
    struct far_table_options table = {.tuning = "hot=0"};
    char uri[64];

    snprintf(uri, sizeof uri, "mem:?size=64m&lease=60&clients=%u%s", clients, more);
    knobs.tick_ops = 1;
    memset(r, 0, sizeof *r);
    ASSERT(fab_open(uri, &r->fab) == FAR_OK);
    ASSERT((r->clock = malloc(sizeof *r->clock)));
    driven_clock_set(r->clock, r->fab);
    r->clock->ops.witness = some_witness;
    r->clock->ops.life = some_life;
    kernel = (typeof(kernel)){.other = FAB_ALIVE};
    store_rig_start(r, &knobs, NULL, &table);
}

static void open_rig(struct store_rig *r, unsigned clients)
{
    open_rig_with(r, clients, "");
}

static int put(struct store_rig *r, uint64_t value)
{
    return far_put(r->session, r->table, "key", 3, &value, sizeof value);
}

/* A session that stands still in an operation. */
struct stopped {
    unsigned slot;
    uint64_t incarnation;
};

static struct stopped stop_one(struct store_rig *r)
{
    far_session *s = store_rig_join(r);
    struct stopped stopped = {s->client.slot, s->client.incarnation};

    assert_int_equal(far_put(s, r->table, "other", 5, "value", 5), FAR_OK);
    store_rig_kill(s); /* it has announced an epoch, and goes no further */
    return stopped;
}

/* Works for some twentieths of a lease, or until the slot is no longer the session's. Returns how
 * many it took. */
static unsigned work(struct store_rig *r, struct probe *p, struct stopped s, unsigned most)
{
    unsigned i = 0;

    for (; i < most && probe_incarnation(p, s.slot) == s.incarnation; i++) {
        assert_int_equal(put(r, i), FAR_OK);
        store_rig_pass(r, LEASE_NS / 20);
    }
    return i;
}

static void a_client_whose_process_lives_is_waited_for(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    open_rig(&r, 4);
    probe_open(&p, r.fab);
    struct stopped s = stop_one(&r);
    assert_int_equal(work(&r, &p, s, 400), 400); /* twenty leases */
    assert_true(probe_incarnation(&p, s.slot) == s.incarnation);
    /* Sixteen times a lease, and not at each of the looks. */
    assert_in_range(kernel.asked, 100, 20 * 16 + 1);
    kernel.other = FAB_DEAD;
    assert_in_range(work(&r, &p, s, 400), 0, 4);
    assert_true(probe_incarnation(&p, s.slot) != s.incarnation);
    probe_close(&p);
    store_rig_close(&r);
}

static void a_dead_process_is_found_when_its_heartbeat_is_overdue(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    open_rig(&r, 4);
    probe_open(&p, r.fab);
    kernel.other = FAB_DEAD;
    struct stopped s = stop_one(&r);
    assert_in_range(work(&r, &p, s, 400), 5, 9); /* a quarter of a lease, and an operation or two */
    probe_close(&p);
    store_rig_close(&r);
}

/* Another machine's client, or one that could not take its lock. */
static void a_client_that_the_fabric_knows_nothing_of_is_watched(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    open_rig(&r, 4);
    probe_open(&p, r.fab);
    kernel.other = FAB_LIFE_UNKNOWN;
    struct stopped s = stop_one(&r);
    assert_in_range(work(&r, &p, s, 400), 30, 40);
    probe_close(&p);
    store_rig_close(&r);
}

static void the_fabric_is_not_asked_while_heartbeats_come(void **state)
{
    struct store_rig r;

    (void)state;
    open_rig(&r, 4);
    far_session *other = store_rig_join(&r);
    for (unsigned i = 0; i < 400; i++) {
        assert_int_equal(put(&r, i), FAR_OK);
        if (i % 3 == 0) /* not at every look, but it is not overdue */
            assert_int_equal(far_put(other, r.table, "other", 5, &i, sizeof i), FAR_OK);
        store_rig_pass(&r, LEASE_NS / 20);
    }
    assert_int_equal(kernel.asked, 0);
    far_session_close(other);
    store_rig_close(&r);
}

/* ---- searches -------------------------------------------------------------------------------- */

/* Checks the pool; returns how long that took. */
static uint64_t check(struct store_rig *r, bool repair, unsigned *dead)
{
    struct far_pool_check found;
    uint64_t began = r->clock->now;

    assert_int_equal(far_pool_check(r->session, repair, NULL, NULL, &found), FAR_OK);
    *dead = found.dead_clients;
    return r->clock->now - began;
}

static void a_check_waits_neither_for_dead_processes_nor_for_live_ones(void **state)
{
    struct store_rig r;
    struct probe p;
    unsigned dead = 0;

    (void)state;
    open_rig(&r, 4);
    probe_open(&p, r.fab);
    struct stopped s = stop_one(&r);
    assert_true(check(&r, false, &dead) < LEASE_NS / 4);
    assert_int_equal(dead, 0);
    kernel.other = FAB_DEAD;
    assert_true(check(&r, false, &dead) < LEASE_NS / 4);
    assert_int_equal(dead, 1);
    assert_true(probe_incarnation(&p, s.slot) == s.incarnation);
    assert_true(check(&r, true, &dead) < LEASE_NS / 4);
    assert_int_equal(dead, 1);
    assert_true(probe_incarnation(&p, s.slot) == 0);
    probe_close(&p);
    store_rig_close(&r);
}

static void a_repair_leaves_a_client_alone_whose_process_lives(void **state)
{
    struct store_rig r;
    struct probe p;
    unsigned dead = 0, found = 1;

    (void)state;
    open_rig(&r, 4);
    probe_open(&p, r.fab);
    struct stopped s = stop_one(&r);
    uint64_t began = r.clock->now;
    assert_int_equal(client_reap_dead(&r.session->op, &found), FAR_OK);
    dead += found;
    store_rig_pass(&r, 3 * LEASE_NS);
    assert_int_equal(client_reap_dead(&r.session->op, &found), FAR_OK);
    dead += found;
    assert_true(r.clock->now - began < 4 * LEASE_NS);
    assert_int_equal(dead, 0);
    assert_true(probe_incarnation(&p, s.slot) == s.incarnation);
    probe_close(&p);
    store_rig_close(&r);
}

static void a_slot_of_a_dead_process_is_taken_at_once(void **state)
{
    struct store_rig r;
    far_session *s = NULL;

    (void)state;
    open_rig(&r, 2);
    (void)stop_one(&r);
    r.pool->pool.evicts = true;
    uint64_t began = r.clock->now;
    assert_int_equal(far_session_open(r.pool, NULL, &s), FAR_NO_CLIENT_SLOT);
    kernel.other = FAB_DEAD;
    assert_int_equal(far_session_open(r.pool, NULL, &s), FAR_OK);
    assert_true(r.clock->now - began < LEASE_NS / 4);
    far_session_close(s);
    store_rig_close(&r);
}

/* ---- witnesses ------------------------------------------------------------------------------- */

static bool has_witness(struct probe *p, const far_session *s)
{
    return probe_get(p, 0, PROBE_SLOT(s->client.slot, witness)) == s->client.incarnation * 3;
}

static void a_witness_is_of_the_incarnation(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    open_rig(&r, 4);
    probe_open(&p, r.fab);
    far_session *s = store_rig_join(&r);
    assert_true(has_witness(&p, s));
    puppet_lapse(&s->client); /* it goes on in its slot */
    assert_int_equal(far_put(s, r.table, "a", 1, "b", 1), FAR_OK);
    assert_true(has_witness(&p, s));
    puppet_renounce(&s->client); /* it takes another slot */
    assert_int_equal(far_put(s, r.table, "a", 1, "b", 1), FAR_OK);
    assert_true(has_witness(&p, s));
    kernel.other = FAB_LIFE_UNKNOWN;
    far_session_close(s);
    probe_close(&p);
    store_rig_close(&r);
}

/* ---- what a user learns ---------------------------------------------------------------------- */

static void a_full_pool_names_the_session_that_stands_still(void **state)
{
    static char value[4096];
    struct store_rig r;
    char expected[64];
    int rc = FAR_OK;

    (void)state;
    open_rig(&r, 4);
    struct stopped s = stop_one(&r);
    uint64_t began = r.clock->now;
    for (uint64_t i = 0; rc == FAR_OK; i++) {
        assert_true(i < 100000);
        began = r.clock->now;
        rc = far_put(r.session, r.table, "key", 3, value, sizeof value);
    }
    assert_int_equal(rc, FAR_POOL_FULL);
    assert_in_range(r.clock->now - began, LEASE_NS, 4 * LEASE_NS);
    /* Now that it is known, nobody waits any more. */
    began = r.clock->now;
    assert_int_equal(far_put(r.session, r.table, "key", 3, value, sizeof value), FAR_POOL_FULL);
    assert_true(r.clock->now - began < LEASE_NS / 4);
    snprintf(expected, sizeof expected, "the session in slot %u (process ", s.slot);
    assert_memory_equal(far_error_detail(), expected, strlen(expected));
    kernel.other = FAB_DEAD;
    store_rig_pass(&r, LEASE_NS / 16); /* until then it is not asked again */
    assert_int_equal(far_put(r.session, r.table, "key", 3, value, sizeof value), FAR_OK);
    store_rig_close(&r);
}

/* ---- pools that wait (LEASE-L5) -------------------------------------------------------------- */

/* A pool that was made with wait=1, on a fabric that knows nothing of a session that stands
 * still. */
static struct stopped open_waiting(struct store_rig *r, struct probe *p)
{
    open_rig_with(r, 4, "&wait=1");
    probe_open(p, r->fab);
    kernel.other = FAB_LIFE_UNKNOWN;
    assert_true(r->pool->pool.waits);
    return stop_one(r);
}

static void a_client_that_is_only_silent_is_waited_for(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    struct stopped s = open_waiting(&r, &p);
    assert_int_equal(work(&r, &p, s, 400), 400); /* twenty leases */
    kernel.other = FAB_DEAD;                     /* its own machine says so */
    assert_in_range(work(&r, &p, s, 400), 0, 4);
    assert_true(probe_incarnation(&p, s.slot) != s.incarnation);
    probe_close(&p);
    store_rig_close(&r);
}

static void a_client_that_goes_on_has_lost_nothing(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    struct stopped dead = open_waiting(&r, &p);
    far_session *s = store_rig_join(&r);
    assert_int_equal(far_put(s, r.table, "other", 5, "value", 5), FAR_OK);
    assert_int_equal(op_begin(&s->op, NULL), FAR_OK); /* and it is stopped */
    unsigned slot = s->client.slot;
    uint64_t incarnation = s->client.incarnation, epoch = s->op.epoch;
    assert_int_equal(work(&r, &p, dead, 400), 400);
    assert_true(probe_incarnation(&p, slot) == incarnation);
    assert_true(r.session->client.epoch.seen <= epoch + 1);
    op_end(&s->op);
    assert_int_equal(far_put(s, r.table, "other", 5, "again", 5), FAR_OK);
    assert_int_equal(s->client.slot, slot);
    far_session_close(s);
    probe_close(&p);
    store_rig_close(&r);
}

static void keep_first(void *arg, const char *line)
{
    char *kept = arg;
    if (kept[0] == '\0')
        snprintf(kept, 256, "%s", line);
}

static void a_check_says_what_is_kept_for_a_silent_client(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    struct stopped s = open_waiting(&r, &p);
    for (unsigned repair = 0; repair < 2; repair++) {
        struct far_pool_check found = {0};
        char line[256] = "", expected[64];
        (void)far_pool_check(r.session, repair, keep_first, line, &found);
        assert_int_equal(found.dead_clients, 0);
        snprintf(expected, sizeof expected, "waiting: the session in slot %u (process ", s.slot);
        assert_memory_equal(line, expected, strlen(expected));
        assert_true(probe_incarnation(&p, s.slot) == s.incarnation);
    }
    probe_close(&p);
    store_rig_close(&r);
}

static void an_operator_may_say_that_it_is_dead(void **state)
{
    struct store_rig r;
    struct probe p;
    unsigned dead = 0;

    (void)state;
    struct stopped s = open_waiting(&r, &p);
    r.pool->pool.waits = false; /* as if it was opened with wait=0 */
    (void)check(&r, false, &dead);
    assert_int_equal(dead, 1);
    assert_true(probe_incarnation(&p, s.slot) == s.incarnation);
    (void)check(&r, true, &dead);
    assert_int_equal(dead, 1);
    assert_true(probe_incarnation(&p, s.slot) == 0);
    probe_close(&p);
    store_rig_close(&r);
}

/* One that gave up its registration says itself that it is dead. */
static void a_client_that_has_renounced_is_not_waited_for(void **state)
{
    struct store_rig r;
    struct probe p;
    unsigned dead = 0;

    (void)state;
    struct stopped s = open_waiting(&r, &p);
    probe_set(&p, 0, PROBE_SLOT(s.slot, heartbeat), client_slot_renounced(s.incarnation));
    (void)check(&r, false, &dead);
    assert_int_equal(dead, 1);
    (void)check(&r, true, &dead);
    assert_true(probe_incarnation(&p, s.slot) == 0);
    probe_close(&p);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_whose_process_lives_is_waited_for),
        cmocka_unit_test(a_dead_process_is_found_when_its_heartbeat_is_overdue),
        cmocka_unit_test(a_client_that_the_fabric_knows_nothing_of_is_watched),
        cmocka_unit_test(the_fabric_is_not_asked_while_heartbeats_come),
        cmocka_unit_test(a_check_waits_neither_for_dead_processes_nor_for_live_ones),
        cmocka_unit_test(a_repair_leaves_a_client_alone_whose_process_lives),
        cmocka_unit_test(a_slot_of_a_dead_process_is_taken_at_once),
        cmocka_unit_test(a_witness_is_of_the_incarnation),
        cmocka_unit_test(a_full_pool_names_the_session_that_stands_still),
        cmocka_unit_test(a_client_that_is_only_silent_is_waited_for),
        cmocka_unit_test(a_client_that_goes_on_has_lost_nothing),
        cmocka_unit_test(a_check_says_what_is_kept_for_a_silent_client),
        cmocka_unit_test(an_operator_may_say_that_it_is_dead),
        cmocka_unit_test(a_client_that_has_renounced_is_not_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
