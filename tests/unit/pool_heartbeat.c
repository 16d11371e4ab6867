/*
 * Heartbeats and leases of a client whose operations are long, or need fences and several posts.
 * Time is the test's own: each post takes as long as the test says.
 */
#include "support/hook.h"
#include "support/probe.h"
#include "support/puppet.h"
#include "support/race_groups.h"
#include "support/race_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define LEASE_MS 50
#define LEASE    "lease=50"

static struct {
    uint64_t trip_ns;    /* a post takes */
    uint64_t deadline;   /* until which the lease lasts, as the test sees it */
    unsigned late;       /* posts that write when the lease is over */
    unsigned heartbeats; /* that arrived */
} slow;

static int post_slowly(struct fab_ep *ep, struct fab_req *req)
{
    bool writes = hook_writes(req);
    if (slow.deadline != 0 && hook.clock > slow.deadline && writes)
        slow.late++;
    for (unsigned i = 0; i < req->count; i++)
        slow.heartbeats += req->verbs[i].kind == FAB_WRITE && req->verbs[i].node == 0 &&
                           req->verbs[i].off >= CLIENTS_OFF && req->verbs[i].len == 32;
    int rc = hook.real->post(ep, req);
    hook.clock += slow.trip_ns;
    return rc;
}

static void start(struct store_rig *r, const char *uri, const struct far_table_options *table,
                  uint64_t trip_ns)
{
    store_rig_open(r, uri, NULL, NULL, table);
    hook_on(r->session->client.ep);
    hook_clock();
    puppet_renew_lease(&r->session->client); /* making the table may have taken longer */
    hook.ops.post = post_slowly;
    slow = (typeof(slow)){.trip_ns = trip_ns};
}

static void end(struct store_rig *r)
{
    hook_off();
    store_rig_close(r);
}

/* The largest subtables, and round trips so slow that a split takes several leases. */
static void a_split_longer_than_a_lease_gets_done(void **state)
{
    struct far_table_options table = {.tuning = RACE_GROUPS(RACE_GROUPS_MAX), .hash_seed = 3};
    struct store_rig r;

    (void)state;
    start(&r, "mem:?size=64m&clients=8&" LEASE, &table, 1200000);
    uint64_t incarnation = r.session->client.incarnation;
    for (uint64_t key = 0; key < 20000; key++)
        assert_int_equal(far_put(r.session, r.table, &key, 8, &key, 8), FAR_OK);
    assert_true(race_rig_view(&r)->base.grown > 0);
    assert_true(r.session->client.incarnation == incarnation); /* never even registered again */
    end(&r);
}

/* One update under a lock: all of its batches have a fence, or an atomic that is emulated. */
static int locked_update(struct op *op, gaddr at)
{
    struct batch *b = &op->batch;
    int rc = op_begin(op, NULL);
    if (rc != FAR_OK)
        return rc;
    batch_mcas(b, MARK_PUBLISH, at, 0, 0, 1, 1, 1, &op->word[0]);
    batch_fence(b);
    batch_read(b, at, 8, &op->word[1], 8);
    rc = batch_flush(b);
    if (rc == FAR_OK) {
        op->word[2]++;
        batch_write(b, MARK_EARLY, at, 8, &op->word[2], 8);
        batch_fence(b);
        batch_mcas(b, MARK_PUBLISH, at, 0, 1, 1, 0, 1, &op->word[3]);
        rc = batch_flush(b);
    }
    op_end(op);
    return rc;
}

static void locked_updates(const char *uri, bool emulated)
{
    struct store_rig r;
    gaddr at = 0;

    start(&r, uri, NULL, 1000000);
    struct op *op = &r.session->op;
    if (emulated)
        r.fab->caps &= ~FAB_CAP_MCAS;
    assert_int_equal(pool_alloc(op, 0, 0, &at), FAR_OK);
    for (unsigned i = 0; i < 8; i++)
        store_rig_set(&r, at, i * 8, 0);
    slow.heartbeats = 0;
    for (unsigned i = 0; i < 10 * LEASE_MS; i++) /* twenty leases */
        assert_int_equal(locked_update(op, at), FAR_OK);
    assert_true(slow.heartbeats >= 20);
    pool_free_unpublished(op->client, at, 0);
    end(&r);
}

static void locked_updates_send_heartbeats(void **state)
{
    (void)state;
    locked_updates("mem:?size=4m&" LEASE, false);
    locked_updates("mem:?size=4m&" LEASE, true);
}

/* Heartbeats find no room in batches that are full: then they cost a post of their own, but only
 * when half of the lease has passed. */
static void full_batches_send_heartbeats(void **state)
{
    struct store_rig r;

    (void)state;
    start(&r, "mem:?size=4m&" LEASE, NULL, 1000000);
    struct op *op = &r.session->op;
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    op->cost = (struct cost){0};
    for (unsigned i = 0; i < 10 * LEASE_MS; i++) {
        while (batch_room(&op->batch) > 0)
            batch_read(&op->batch, 0, CONTROL_OFF, &op->word[op->batch.count], 8);
        assert_int_equal(batch_flush(&op->batch), FAR_OK);
        assert_false(client_lapsed(op->client));
    }
    op_end(op);
    assert_true(slow.heartbeats >= 10);
    assert_true(op->cost.rtts <= 10 * LEASE_MS + 30); /* one for each half of a lease */
    end(&r);
}

/* The lease is asked for before every post of a batch, not once for all of them. */
static void a_batch_of_several_posts_stops_when_the_lease_lapses(void **state)
{
    struct store_rig r;
    gaddr at[2] = {0};

    (void)state;
    start(&r, "mem:?size=4m&nodes=2&" LEASE, NULL, 0);
    struct op *op = &r.session->op;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pool_alloc(op, i, 0, &at[i]), FAR_OK);
        assert_int_equal(gaddr_node(at[i]), i);
        store_rig_set(&r, at[i], 0, 0);
    }
    for (unsigned atomic = 0; atomic < 2; atomic++) {
        hook.clock = puppet_deadline(op->client);
        assert_int_equal(op_begin(op, NULL), FAR_OK);
        slow.deadline = puppet_deadline(op->client);
        slow.trip_ns = 10 * LEASE_MS * 1000000ull;
        op->word[0] = 5;
        if (atomic)
            batch_faa(&op->batch, MARK_PUBLISH, at[1], 0, 1, &op->word[1]);
        else
            batch_write(&op->batch, MARK_EARLY, at[1], 0, &op->word[0], 8);
        batch_fence(&op->batch);
        batch_cas(&op->batch, MARK_PUBLISH, at[0], 0, 0, 9, &op->word[2]);
        int rc = batch_flush(&op->batch);
        assert_int_equal(rc, FAR_FENCED);
        /* If the first post had an atomic, the error must not say that nothing was done. */
        assert_int_equal(op_decided(op, rc), atomic ? FAR_UNKNOWN : FAR_FENCED);
        op_end(op);
        slow.trip_ns = 0;
        assert_int_equal(slow.late, 0);
        slow.deadline = 0;
    }
    struct probe p;
    probe_open(&p, r.fab);
    assert_true(probe_get(&p, at[0], 0) == 0 && probe_get(&p, at[1], 0) == 6);
    probe_close(&p);
    end(&r);
}

/* Another client changes bits beside the mask, so that the masked CAS has to be tried again. */
static struct {
    struct probe *probe;
    gaddr at;
    unsigned left;
} rival;

static int post_behind_a_rival(struct fab_ep *ep, struct fab_req *req)
{
    if (req->verbs[0].off == gaddr_offset(rival.at) && rival.left > 0) {
        rival.left--;
        probe_set(rival.probe, rival.at, 0, (uint64_t)(rival.left + 1) << 8);
    }
    return post_slowly(ep, req);
}

static void an_emulated_masked_cas_stops_when_the_lease_lapses(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    start(&r, "mem:?size=4m&" LEASE, NULL, 0);
    probe_open(&p, r.fab);
    struct op *op = &r.session->op;
    r.fab->caps &= ~FAB_CAP_MCAS;
    rival.probe = &p;
    rival.left = 1000;
    assert_int_equal(pool_alloc(op, 0, 0, &rival.at), FAR_OK);
    hook.ops.post = post_behind_a_rival;
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    slow.deadline = puppet_deadline(op->client);
    slow.trip_ns = LEASE_MS * 1000000ull / 4;
    batch_mcas(&op->batch, MARK_PUBLISH, rival.at, 0, 0, 1, 1, 1, &op->word[0]);
    assert_int_equal(batch_flush(&op->batch), FAR_FENCED);
    op_end(op);
    assert_int_equal(slow.late, 0);
    assert_true(rival.left > 900);
    slow.trip_ns = 0;
    probe_close(&p);
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_split_longer_than_a_lease_gets_done),
        cmocka_unit_test(locked_updates_send_heartbeats),
        cmocka_unit_test(full_batches_send_heartbeats),
        cmocka_unit_test(a_batch_of_several_posts_stops_when_the_lease_lapses),
        cmocka_unit_test(an_emulated_masked_cas_stops_when_the_lease_lapses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
