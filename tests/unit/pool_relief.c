/* RELIEF-1: when the sessions of a process watch for dead clients, and sweep to cut memory
 * again. */
#include "pool/sweep/relief.c"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define LEASE_NS 60000000ull

static void what_is_due_is_done_once(void **state)
{
    _Atomic uint64_t after = 0;
    (void)state;
    assert_true(is_due(&after, 1000, 50));
    assert_false(is_due(&after, 1000, 50));
    assert_false(is_due(&after, 1049, 50));
    assert_true(is_due(&after, 1050, 50));
    assert_false(is_due(&after, 1050, 50));
}

static void a_clock_that_was_set_back_delays_nothing(void **state)
{
    _Atomic uint64_t after = 0;
    (void)state;
    assert_true(is_due(&after, 1000, 50));
    assert_true(is_due(&after, 10, 50));
    assert_false(is_due(&after, 11, 50));
}

static bool stop(void *arg, const char *what, uint64_t done, uint64_t total)
{
    (void)arg, (void)what, (void)done, (void)total;
    return false;
}

/* A client that is idle holds memory, so others watch whether it is dead. */
static void a_watch_that_failed_does_not_count(void **state)
{
    struct store_rig r;
    struct relief relief = {0};
    gaddr at = 0;
    (void)state;
    store_rig_open_driven(&r, "mem:?size=4m&lease=60", NULL, NULL, NULL);
    far_session *idle = store_rig_join(&r);
    for (unsigned size_class = 1; size_class < 4; size_class++)
        assert_int_equal(pool_alloc(&idle->op, 0, size_class, &at), FAR_OK);
    assert_int_equal(client_park(&idle->op), FAR_OK);

    struct op *op = &r.session->op;
    uint64_t began = r.clock->now;
    puppet_set_progress(op->client, stop, NULL);
    assert_int_equal(relieve_by_others(op, &relief), FAR_STOPPED);
    assert_false(is_early(client_now(op->client), relief.reap_after, REAP_LEASES * LEASE_NS));
    assert_true(r.clock->now - began < LEASE_NS);

    puppet_set_progress(op->client, NULL, NULL);
    assert_int_equal(relieve_by_others(op, &relief), FAR_OK);
    assert_true(r.clock->now - began > LEASE_NS); /* it has watched */
    assert_true(is_early(client_now(op->client), relief.reap_after, REAP_LEASES * LEASE_NS));
    far_session_close(idle);
    store_rig_close(&r);
}

static uint64_t unused(struct store_rig *r)
{
    uint64_t bytes = 0;
    assert_int_equal(client_drive_epoch(&r->session->op), FAR_OK); /* announces what it has */
    assert_true(puppet_held_bytes(&r->session->client) > 0);
    assert_int_equal(unused_bytes(&r->session->op, &bytes), FAR_OK);
    return bytes;
}

/* It passes on what it has retired only when it is used again. */
static void what_a_parked_client_has_retired_counts_as_unused(void **state)
{
    struct store_rig r;
    gaddr at = 0;
    unsigned size_class = size_class_for(4096);
    (void)state;
    store_rig_open_driven(&r, "mem:?size=4m&lease=60", NULL, NULL, NULL);
    far_session *other = store_rig_join(&r);
    assert_int_equal(unused(&r), puppet_held_bytes(&r.session->client)); /* its own counts once */
    assert_int_equal(pool_alloc(&other->op, 0, size_class, &at), FAR_OK);
    pool_retire(&other->client, at, size_class);
    assert_int_equal(client_drive_epoch(&other->op), FAR_OK);
    uint64_t held = puppet_held_bytes(&other->client), own = puppet_held_bytes(&r.session->client);
    assert_true(puppet_retired_bytes(&other->client) > 0);
    assert_int_equal(unused(&r), own + held);
    assert_int_equal(client_park(&other->op), FAR_OK);
    assert_int_equal(unused(&r), own + held + puppet_retired_bytes(&other->client));
    uint64_t slot = slot_delta(other->client.slot);
    far_session_close(other);
    store_rig_set(&r, NODE0, slot + offsetof(struct client_slot, held_bytes), 4096);
    assert_int_equal(unused(&r), puppet_held_bytes(&r.session->client)); /* a free slot's do not */
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_due_is_done_once),
        cmocka_unit_test(a_clock_that_was_set_back_delays_nothing),
        cmocka_unit_test(a_watch_that_failed_does_not_count),
        cmocka_unit_test(what_a_parked_client_has_retired_counts_as_unused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
