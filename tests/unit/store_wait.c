/* What a session waits for, and what it must not: its own ring, another session's dead node. */
#include "support/hook.h"
#include "support/probe.h"
#include "support/puppet.h"
#include "support/store_rig.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define LEASE "lease=3600000"

static char value[3000];

/* A synchronous call on a full pool needs the epoch to go on, which operations in flight on its own
 * session's ring hold back. The lease is an hour: a call that waits for them never returns. */
static void a_synchronous_call_drives_its_own_ring(void **state)
{
    struct store_rig r;
    struct far_result result;
    uint64_t keys = 0, first = 0;

    (void)state;
    store_rig_open(&r, "mem:?size=2m&defer=1&clients=8&" LEASE, NULL,
                   &(struct far_session_options){.depth = 4},
                   &(struct far_table_options){.tuning = "groups=2"});
    while (far_insert(r.session, r.table, &keys, 8, value, sizeof value) == FAR_OK)
        keys++;
    assert_true(keys > 100);
    for (uint64_t key = 1; key < 40; key++) {
        struct far_op op = {.kind = FAR_OP_EXISTS, .table = r.table, .key = &first, .key_len = 8};
        assert_int_equal(far_submit(r.session, &op), FAR_OK);
        assert_int_equal(far_delete(r.session, r.table, &key, 8), FAR_OK);
        assert_int_equal(far_insert(r.session, r.table, &key, 8, value, sizeof value), FAR_OK);
        assert_int_equal(far_reap(r.session, &result, 1, 1), 1);
        assert_int_equal(result.status, FAR_OK);
    }
    store_rig_close(&r);
}

/* Every write comes too late, so the operation is fenced, registers again, and is fenced again:
 * then it says so, and nothing was done. */
static int post_late(struct fab_ep *ep, struct fab_req *req)
{
    int rc = hook.real->post(ep, req);
    hook.clock += 1000000000000000ull;
    return rc;
}

static void an_operation_is_tried_once_more_when_it_was_fenced(void **state)
{
    struct store_rig r;
    uint64_t key = 1, old = 5, new = 6, got = 0;

    (void)state;
    store_rig_open(&r, "mem:?size=4m&" LEASE, NULL, NULL, NULL);
    assert_int_equal(far_put(r.session, r.table, &key, 8, &old, 8), FAR_OK);
    hook_on(r.session->client.ep);
    hook_clock();
    hook.ops.post = post_late;
    uint64_t incarnation = r.session->client.incarnation;
    assert_int_equal(far_put(r.session, r.table, &key, 8, &new, 8), FAR_FENCED);
    assert_true(r.session->client.incarnation != incarnation);
    hook.ops.post = hook.real->post;
    hook.clock += 1000000000000000ull; /* once only */
    assert_int_equal(far_get(r.session, r.table, &key, 8, &got, 8, NULL), FAR_OK);
    assert_true(got == old);
    hook_off();
    store_rig_close(&r);
}

/* The progress callback is for the calls that name it. An operation that waits for memory looks for
 * dead sessions on the way, and must not say FAR_STOPPED. */
static bool stop(void *arg, const char *what, uint64_t done, uint64_t total)
{
    (void)what;
    (void)done;
    (void)total;
    ++*(unsigned *)arg;
    return false;
}

static void operations_are_not_stopped_by_a_progress_callback(void **state)
{
    struct store_rig r;
    struct far_pool_check check;
    unsigned asked = 0;

    (void)state;
    store_rig_open_driven(&r, "mem:?size=2m&clients=8&lease=50", NULL, NULL,
                          &(struct far_table_options){.tuning = "groups=2"});
    far_session *other = NULL;
    assert_int_equal(far_session_open(r.pool, NULL, &other), FAR_OK);
    far_session_watch(r.session, stop, &asked);
    int rc = FAR_OK;
    for (uint64_t key = 0; rc == FAR_OK; key++)
        rc = far_insert(key % 2 ? r.session : other, r.table, &key, 8, value, sizeof value);
    uint64_t key = 1;
    (void)far_delete(other, r.table, &key, 8); /* retired: worth looking for others */
    for (unsigned i = 0; i < 4; i++) {
        key = 1000000 + i;
        rc = far_insert(r.session, r.table, &key, 8, value, sizeof value);
        assert_true(rc == FAR_OK || rc == FAR_POOL_FULL);
    }
    assert_int_equal(asked, 0);
    assert_int_equal(far_pool_check(r.session, true, NULL, NULL, &check), FAR_STOPPED);
    assert_int_equal(asked, 1);
    far_session_close(other);
    store_rig_close(&r);
}

/* What is lost is not forgotten when the sweep that was to find it fails. */
static int post_without_sweep(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *v = &req->verbs[0];
    if (v->kind == FAB_READ && v->off == PROBE_CONTROL(sweep) && v->len == 8)
        return FAR_UNREACHABLE; /* for a moment */
    return hook.real->post(ep, req);
}

static void losses_are_remembered_when_a_sweep_fails(void **state)
{
    struct store_rig r;
    struct probe p;
    gaddr at = 0;

    (void)state;
    store_rig_open(&r, "mem:?size=4m&" LEASE, NULL, NULL, NULL);
    probe_open(&p, r.fab);
    struct client *c = &r.session->client;
    for (unsigned i = 0; i < 16; i++) {
        assert_int_equal(pool_alloc(&r.session->op, 0, 7, &at), FAR_OK);
        pool_abandon(c, 7);
    }
    uint64_t lost = puppet_lost_bytes(c);
    hook_on(c->ep);
    hook.ops.post = post_without_sweep;
    assert_int_equal(pool_make_room(&r.session->op, false), FAR_UNREACHABLE);
    hook_off();
    assert_true(puppet_lost_bytes(c) == lost);
    far_session_close(r.session); /* it says so when it leaves */
    assert_true(probe_get(&p, 0, PROBE_CONTROL(deaths)) > 0);
    assert_int_equal(far_session_open(r.pool, NULL, &r.session), FAR_OK);
    probe_close(&p);
    store_rig_close(&r);
}

/* ---- the keeper ------------------------------------------------------------------------------ */

static _Atomic bool away;

/* A node that does not answer until it is there again. */
static int post_to_nobody(struct fab_ep *ep, struct fab_req *req)
{
    if (!away)
        return hook.real->post(ep, req);
    req->done = false;
    hook.real->post(ep, req);
    return FAR_OK;
}

static void poll_nobody(struct fab_ep *ep, bool wait)
{
    if (!away)
        hook.real->poll(ep, wait);
}

static uint64_t heartbeat_of(struct probe *p, const far_session *s)
{
    return probe_get(p, 0, PROBE_SLOT(s->client.slot, heartbeat));
}

/* CTest's time-out ends a wait in vain. */
static void wait_for_heartbeats(struct probe *p, const far_session *a, const far_session *b,
                                unsigned count)
{
    uint64_t of_a = heartbeat_of(p, a) + count, of_b = heartbeat_of(p, b) + count;
    while (heartbeat_of(p, a) < of_a || heartbeat_of(p, b) < of_b)
        clock_sleep(1000000);
}

/* One session's parking takes for ever: the others' heartbeats go on all the same. */
static void a_session_whose_node_is_away_does_not_delay_the_others(void **state)
{
    far_pool *pool = NULL;
    far_session *s[3] = {NULL};
    struct probe p;

    (void)state;
    assert_int_equal(far_pool_open("mem:?size=16m&defer=1&clients=8&lease=8000", &pool), FAR_OK);
    probe_open(&p, pool->fab);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(far_session_open(pool, NULL, &s[i]), FAR_OK);
    client_enter(&s[1]->client); /* so that the keeper does not have it while it is changed */
    hook_on(s[1]->client.ep);
    hook.ops.post = post_to_nobody;
    hook.ops.poll = poll_nobody;
    away = true;
    client_leave(&s[1]->client);
    while (!puppet_is_lent(&s[1]->client))
        clock_sleep(1000000);
    wait_for_heartbeats(&p, s[0], s[2], 3);
    assert_true(puppet_is_lent(&s[1]->client));
    away = false;
    client_enter(&s[1]->client);
    hook_off();
    client_leave(&s[1]->client);
    for (unsigned i = 0; i < 3; i++)
        far_session_close(s[i]);
    probe_close(&p);
    far_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_synchronous_call_drives_its_own_ring),
        cmocka_unit_test(an_operation_is_tried_once_more_when_it_was_fenced),
        cmocka_unit_test(operations_are_not_stopped_by_a_progress_callback),
        cmocka_unit_test(losses_are_remembered_when_a_sweep_fails),
        cmocka_unit_test(a_session_whose_node_is_away_does_not_delay_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
