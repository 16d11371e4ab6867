/* The share of a NIC: how many verbs an endpoint has under way, and in which order requests on a
 * ring are posted (SHARE-1, SHARE-2). */
#include "support/hook.h"
#include "support/race_groups.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define DEPTH 16
#define SHARE 5u

/* What the posts of one endpoint looked like. */
static struct seen {
    unsigned posts, most; /* verbs under way */
    unsigned oversized;   /* requests larger than the share */
    unsigned next_ticket;
    bool too_many, out_of_turn;
} seen;

static int post_seen(struct fab_ep *ep, struct fab_req *req)
{
    const struct batch *b = (const struct batch *)((char *)req - offsetof(struct batch, req));
    unsigned share = fab_share(ep->fab);
    seen.posts++;
    seen.most = ep->under_way > seen.most ? ep->under_way : seen.most;
    seen.oversized += req->count > share;
    seen.too_many |= ep->under_way > share && ep->under_way != req->count;
    seen.out_of_turn |= b->ticket != seen.next_ticket++;
    return hook.real->post(ep, req);
}

/* A session with a ring, which bears that many verbs. All that is posted from now on is seen. */
static void rig(struct store_rig *r, unsigned outstanding)
{
    struct far_session_options session = {.depth = DEPTH, .seed = 5};
    struct far_table_options table = {.tuning = RACE_GROUPS(2), .hash_seed = 9};
    struct knobs knobs = pool_knobs_default;
    knobs.tick_ops = 1000; /* no announcement makes a request larger */
    store_rig_open(r, "mem:?size=64m&defer=1", &knobs, &session, &table);
    r->fab->outstanding = outstanding;
    seen = (struct seen){.next_ticket = r->session->client.ep->ticket_next};
    hook_on(r->session->client.ep);
    hook.ops.post = post_seen;
}

static void unrig(struct store_rig *r)
{
    hook_off();
    store_rig_close(r);
}

/* Keeps the ring full with puts and gets of these keys in turn. Requests of both have different
 * sizes. */
static void work(struct store_rig *r, uint64_t keys)
{
    static uint64_t key[4096], got[4096];
    struct far_result result;
    assert_true(keys <= 4096);
    for (uint64_t i = 0; i < keys; i++) {
        key[i] = i / 2;
        struct far_op op = {.kind = i % 2 ? FAR_OP_GET : FAR_OP_PUT,
                            .table = r->table,
                            .key = &key[i],
                            .key_len = 8,
                            .value = &key[i],
                            .value_len = 8,
                            .buf = &got[i],
                            .cap = 8};
        while (far_submit(r->session, &op) == FAR_RING_FULL) {
            assert_int_equal(far_reap(r->session, &result, 1, 1), 1);
            assert_true(result.status == FAR_OK || result.status == FAR_NOT_FOUND);
        }
    }
    while (far_reap(r->session, &result, 1, 1) == 1)
        assert_true(result.status == FAR_OK || result.status == FAR_NOT_FOUND);
}

static void no_more_than_the_share_is_under_way(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, SHARE);
    work(&r, 40); /* fits into the first subtable: no request is large */
    assert_true(seen.posts > 40);
    assert_false(seen.too_many);
    assert_int_equal(seen.most, SHARE);
    assert_int_equal(seen.oversized, 0);
    assert_int_equal(r.session->client.ep->under_way, 0);
    unrig(&r);
}

/* A split posts up to BATCH_MAX verbs at once. */
static void a_request_larger_than_the_share_goes_alone(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, SHARE);
    work(&r, 2000 / SLOWER);
    assert_true(seen.oversized > 0);
    assert_true(seen.most > SHARE);
    assert_false(seen.too_many);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    unrig(&r);
}

/* Else small requests would pass a large one for ever. */
static void requests_are_posted_in_the_order_of_their_tickets(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, SHARE);
    work(&r, 2000 / SLOWER);
    assert_false(seen.out_of_turn);
    unrig(&r);
}

static void a_nic_that_bears_any_number_makes_nobody_wait(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, 0);
    work(&r, 40);
    assert_true(seen.most > SHARE);
    assert_int_equal(r.session->client.ep->ticket_next, 0);
    unrig(&r);
}

static void sessions_share_the_nic(void **state)
{
    struct store_rig r;
    (void)state;
    store_rig_open(&r, "mem:?size=8m", NULL, NULL, NULL);
    assert_true(fab_share(r.fab) == UINT32_MAX);
    r.fab->outstanding = 30;
    assert_int_equal(fab_share(r.fab), 30);
    far_session *second = store_rig_join(&r), *third = store_rig_join(&r);
    assert_int_equal(fab_share(r.fab), 10);
    far_session_close(third);
    assert_int_equal(fab_share(r.fab), 15);
    far_session_close(second);
    assert_int_equal(fab_share(r.fab), 30);
    r.fab->outstanding = FAB_SHARE_LEAST - 1;
    assert_int_equal(fab_share(r.fab), FAB_SHARE_LEAST);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_more_than_the_share_is_under_way),
        cmocka_unit_test(a_request_larger_than_the_share_goes_alone),
        cmocka_unit_test(requests_are_posted_in_the_order_of_their_tickets),
        cmocka_unit_test(a_nic_that_bears_any_number_makes_nobody_wait),
        cmocka_unit_test(sessions_share_the_nic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
