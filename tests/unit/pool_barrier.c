/* Barriers, operations that rest, and clients that give up their registration. */
#include "support/journal_rig.h"
#include "support/hook.h"
#include "support/probe.h"
#include "support/race_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define HOUR "lease=3600000"

static struct {
    struct op *op;   /* another client's operation in flight */
    unsigned posts;  /* our posts so far */
    unsigned end_at; /* the post at which the other's operation ends */
    far_session *other;
    uint64_t trip_ns;
} waits;

static int post_and_count(struct fab_ep *ep, struct fab_req *req)
{
    if (++waits.posts == waits.end_at) {
        op_end(waits.op);
        waits.op = NULL;
    }
    if (waits.other && !waits.op) /* a client at work announces itself now and then */
        assert_int_equal(client_drive_epoch(&waits.other->op), FAR_OK);
    hook.clock += waits.trip_ns;
    return hook.real->post(ep, req);
}

static void start(struct store_rig *r, const char *uri)
{
    store_rig_open(r, uri, NULL, NULL, NULL);
    waits = (typeof(waits)){.posts = 0};
}

static void hook_session(far_session *s)
{
    hook_on(s->client.ep);
    hook.ops.post = post_and_count;
}

/* The barrier ends after the other client's operation, and soon after it, whenever that is. */
static void a_barrier_waits_for_operations_in_flight(void **state)
{
    (void)state;
    for (unsigned end_at = 1; end_at < 60; end_at += 7) {
        struct store_rig r;
        start(&r, "mem:?size=4m&" HOUR);
        far_session *other = store_rig_join(&r);
        for (unsigned i = 0; i < 10; i++) {
            assert_int_equal(client_drive_epoch(&r.session->op), FAR_OK);
            assert_int_equal(client_drive_epoch(&other->op), FAR_OK);
        }
        assert_int_equal(op_begin(&other->op, NULL), FAR_OK);
        waits.op = &other->op;
        waits.other = other;
        waits.end_at = end_at;
        hook_session(r.session);
        assert_int_equal(client_barrier(&r.session->op, 4), FAR_OK);
        assert_true(waits.op == NULL && waits.posts >= end_at && waits.posts < end_at + 40);
        hook_off();
        far_session_close(other);
        store_rig_close(&r);
    }
}

/* A barrier waits neither for operations that begin later nor for parked clients. */
static void a_barrier_does_not_wait_for_what_begins_later(void **state)
{
    struct store_rig r;
    (void)state;
    start(&r, "mem:?size=4m&" HOUR);
    far_session *parked = store_rig_join(&r);
    assert_int_equal(client_park(&parked->op), FAR_OK);
    hook_session(r.session);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(client_barrier(&r.session->op, 1), FAR_OK);
    assert_true(waits.posts < 60);
    hook_off();
    far_session_close(parked);
    store_rig_close(&r);
}

/* A dead client's operation never ends, so the barrier shuts that client out. If a live client
 * stands still, the barrier gives up after its bound. */
static void a_barrier_shuts_out_dead_clients(void **state)
{
    struct store_rig r;
    struct probe p;
    (void)state;
    start(&r, "mem:?size=4m&lease=1000");
    far_session *dead = store_rig_join(&r);
    probe_open(&p, r.fab);
    assert_int_equal(op_begin(&dead->op, NULL), FAR_OK);
    hook_session(r.session);
    hook_clock();
    waits.trip_ns = 10000000; /* a hundredth of a lease */
    assert_int_equal(client_barrier(&r.session->op, 100), FAR_OK);
    assert_true(probe_incarnation(&p, dead->client.slot) != dead->client.incarnation);
    hook_off();
    op_end(&dead->op);
    far_session_close(dead);
    probe_close(&p);
    store_rig_close(&r);
}

static void a_barrier_gives_up_after_its_bound(void **state)
{
    struct store_rig r;
    (void)state;
    start(&r, "mem:?size=4m&lease=50");
    far_session *slow = store_rig_join(&r);
    assert_int_equal(op_begin(&slow->op, NULL), FAR_OK);
    hook_session(r.session);
    hook_clock(); /* the waiting client's clock stands still, so it takes nobody for dead */
    assert_int_equal(client_barrier(&r.session->op, 1), FAR_TIMEOUT);
    hook_off();
    op_end(&slow->op);
    far_session_close(slow);
    store_rig_close(&r);
}

/* While an operation rests, the epoch goes on; when it resumes, its view is valid. */
static void a_resting_operation_holds_up_nobody(void **state)
{
    struct store_rig r;
    struct probe p;
    uint64_t key = 1;
    (void)state;
    start(&r, "mem:?size=4m&" HOUR);
    far_session *other = store_rig_join(&r);
    probe_open(&p, r.fab);
    assert_int_equal(far_put(other, r.table, &key, 8, &key, 8), FAR_OK);
    struct index_view *view = store_known(other, r.table)->view;
    for (unsigned rests = 0; rests < 2; rests++) {
        uint64_t epoch = probe_epoch(&p);
        assert_int_equal(op_begin(&other->op, &view->cached), FAR_OK);
        if (rests)
            index_rest(&other->op);
        for (unsigned i = 0; i < 30; i++) {
            assert_int_equal(client_drive_epoch(&r.session->op), FAR_OK);
            if (rests)
                assert_int_equal(client_drive_epoch(&other->op), FAR_OK);
        }
        assert_true(rests ? probe_epoch(&p) > epoch + 3 : probe_epoch(&p) <= epoch + 1);
        if (rests) {
            view->cached.stale = true;
            assert_int_equal(index_resume(&other->op, view), FAR_OK);
            assert_true(op_in_flight(&other->op) && !view->cached.stale);
        }
        op_end(&other->op);
    }
    far_session_close(other);
    probe_close(&p);
    store_rig_close(&r);
}

/* A client that gives up its registration leaves its journal to others, and goes on elsewhere. */
static unsigned recovered;
static int note_recovery(void *arg, struct op *op, const struct journal_entry *entry)
{
    (void)arg;
    (void)op;
    recovered += entry->subject.what == 1;
    return FAR_OK;
}

static int fence_nobody(struct fab_ep *ep, uint64_t client)
{
    (void)ep;
    (void)client;
    return FAR_OK;
}

static void a_client_that_renounces_is_recovered_by_others(void **state)
{
    (void)state;
    for (unsigned fences = 0; fences < 2; fences++) {
        struct store_rig r;
        struct probe p;
        uint64_t key = 1;
        start(&r, "mem:?size=4m&lease=1000");
        far_session *s = store_rig_join(&r);
        probe_open(&p, r.fab);
        assert_int_equal(far_put(s, r.table, &key, 8, &key, 8), FAR_OK);
        unsigned slot = s->client.slot;
        uint64_t incarnation = s->client.incarnation;
        journal_plant(&p, &r.pool->pool, slot, (struct journal_subject){.what = 1}, 0);
        if (fences) { /* as on a fabric that can shut a client out */
            hook_on(s->client.ep);
            hook.ops.fence = fence_nobody;
        }
        client_renounce(&s->op);
        if (fences)
            hook_off();
        /* No client takes it for dead before the fabric has shut it out (LEASE-L2). */
        assert_true(probe_incarnation(&p, slot) == incarnation);
        assert_true((probe_get(&p, 0, PROBE_SLOT(slot, heartbeat)) ==
                     client_slot_renounced(incarnation)) == fences);
        assert_int_equal(far_put(s, r.table, &key, 8, &key, 8), FAR_OK);
        assert_true(s->client.slot != slot); /* others complete its work now */
        r.pool->pool.recover = note_recovery;
        recovered = 0;
        hook_session(r.session);
        hook_clock();
        waits.trip_ns = fences ? 0 : 50000000;
        for (unsigned i = 0; i < 200 && recovered == 0; i++) {
            assert_int_equal(client_drive_epoch(&r.session->op), FAR_OK);
            assert_int_equal(far_exists(s, r.table, &key, 8), FAR_OK);
        }
        hook_off();
        assert_int_equal(recovered, 1);
        far_session_close(s);
        probe_close(&p);
        store_rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_barrier_waits_for_operations_in_flight),
        cmocka_unit_test(a_barrier_does_not_wait_for_what_begins_later),
        cmocka_unit_test(a_barrier_shuts_out_dead_clients),
        cmocka_unit_test(a_barrier_gives_up_after_its_bound),
        cmocka_unit_test(a_resting_operation_holds_up_nobody),
        cmocka_unit_test(a_client_that_renounces_is_recovered_by_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
