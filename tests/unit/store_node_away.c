/* Statuses of operations while a memory node is away. What goes to the other nodes is executed. */
#include "support/hook.h"
#include "support/indexes.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS 200u
#define AWAY 1u

/* As ucx: the verbs to other nodes take effect, and the request names the node that is away. */
static int post_without_node(struct fab_ep *ep, struct fab_req *req)
{
    struct fab_verb other[BATCH_MAX + PIGGYBACK_VERBS + 1];
    struct fab_req rest = {.verbs = other};
    for (unsigned i = 0; i < req->count; i++)
        if (req->verbs[i].node != AWAY)
            other[rest.count++] = req->verbs[i];
    if (rest.count > 0)
        hook_run(ep, &rest);
    req->status = rest.count == req->count ? FAR_OK : rest.count > 0 ? FAR_UNKNOWN : FAR_NODE_LOST;
    if (rest.count < req->count) {
        req->away = 1ull << AWAY;
        req->away_status = FAR_NODE_LOST;
    }
    req->done = true;
    return FAR_OK;
}

/* All connections break: what was under way is unknown. */
static int post_and_break(struct fab_ep *ep, struct fab_req *req)
{
    (void)ep;
    req->status = FAR_UNKNOWN;
    req->done = true;
    return FAR_OK;
}

/* The same for requests that change something. */
static int post_and_break_if_it_writes(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count; i++)
        if (req->verbs[i].kind != FAB_READ)
            return post_and_break(ep, req);
    return hook.real->post(ep, req);
}

/* The same, when the batch of a CAS is posted. */
static int post_and_break_at_a_cas(struct fab_ep *ep, struct fab_req *req)
{
    return req->verbs[0].kind == FAB_CAS ? post_and_break(ep, req) : hook.real->post(ep, req);
}

/* Every operation's first batch carries an announcement, to node 0. */
static struct store_rig rig_with_keys(void)
{
    struct far_table_options table = {.tuning = indexes_smallest()};
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    knobs.tick_ops = 1;
    store_rig_open(&r, "mem:?size=16m&nodes=2", &knobs, NULL, &table);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(far_put(r.session, r.table, &i, sizeof i, &i, sizeof i), FAR_OK);
    hook_on(r.session->client.ep);
    return r;
}

static int get(struct store_rig *r, uint32_t key)
{
    uint32_t value = 0;
    return far_get(r->session, r->table, &key, sizeof key, &value, sizeof value, NULL);
}

static int iterate(struct store_rig *r)
{
    char buf[4096];
    size_t len = 0;
    uint64_t cursor = 0;
    int rc = FAR_OK;
    do
        rc = far_iterate(r->session, r->table, &cursor, 0, buf, sizeof buf, &len);
    while (rc == FAR_OK && cursor != 0);
    return rc;
}

static void a_read_ends_with_the_status_of_the_node_that_is_away(void **state)
{
    (void)state;
    struct store_rig r = rig_with_keys();
    unsigned away = 0, there = 0;
    hook.ops.post = post_without_node;
    for (uint32_t i = 0; i < KEYS; i++) {
        int rc = get(&r, i);
        assert_true(rc == FAR_OK || rc == FAR_NODE_LOST);
        away += rc == FAR_NODE_LOST;
        there += rc == FAR_OK;
        rc = far_exists(r.session, r.table, &i, sizeof i);
        assert_true(rc == FAR_OK || rc == FAR_NODE_LOST);
    }
    assert_true(away > 0);
    assert_true(there > 0 || strcmp(index_tested, "race") != 0);
    assert_int_equal(iterate(&r), FAR_NODE_LOST);
    hook_off();
    store_rig_close(&r);
}

static void a_read_whose_connection_breaks_is_unreachable(void **state)
{
    (void)state;
    struct store_rig r = rig_with_keys();
    hook.ops.post = post_and_break;
    assert_int_equal(get(&r, 1), FAR_UNREACHABLE);
    assert_int_equal(far_exists(r.session, r.table, "k", 1), FAR_UNREACHABLE);
    assert_int_equal(iterate(&r), FAR_UNREACHABLE);
    hook_off();
    store_rig_close(&r);
}

static int get_and_break(struct op *op, struct index_view *view, struct slice key,
                         struct value_out *out)
{
    (void)op, (void)view, (void)key, (void)out;
    return FAR_UNKNOWN;
}

/* Whatever the index says. */
static void a_read_is_not_of_unknown_outcome(void **state)
{
    (void)state;
    struct store_rig r = rig_with_keys();
    const struct index_ops *real = r.table->index.ops;
    struct index_ops broken = *real;
    broken.get = get_and_break;
    r.table->index.ops = &broken;
    assert_int_equal(get(&r, 1), FAR_UNREACHABLE);
    r.table->index.ops = real;
    hook_off();
    store_rig_close(&r);
}

/* Its own connection broke when it should have registered again. */
static void an_operation_that_cannot_begin_is_unreachable(void **state)
{
    (void)state;
    struct store_rig r = rig_with_keys();
    hook.ops.post = post_and_break_if_it_writes;
    r.session->client.attention.lease_lost = true;
    assert_int_equal(get(&r, 1), FAR_UNREACHABLE);
    r.session->client.attention.lease_lost = true;
    assert_int_equal(far_put(r.session, r.table, "k", 1, "v", 1), FAR_UNREACHABLE);
    hook_off();
    store_rig_close(&r);
}

/* RACE: the CAS that decides goes to the node that is away, and was not sent. */
static void a_change_that_was_not_sent_has_no_effect(void **state)
{
    (void)state;
    struct store_rig r = rig_with_keys();
    unsigned away = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        hook.ops.post = post_without_node;
        int rc = far_delete(r.session, r.table, &i, sizeof i);
        assert_true(rc == FAR_OK || rc == FAR_NODE_LOST);
        away += rc == FAR_NODE_LOST;
        hook.ops.post = hook.real->post;
        assert_int_equal(get(&r, i), rc == FAR_OK ? FAR_NOT_FOUND : FAR_OK);
    }
    assert_true(away > 0 && away < KEYS);
    hook_off();
    store_rig_close(&r);
}

static void a_batch_that_was_executed_in_part_is_of_unknown_outcome(void **state)
{
    static struct op op;
    (void)state;
    op.batch.completed = 0;
    assert_int_equal(op_decided(&op, FAR_NODE_LOST), FAR_NODE_LOST);
    op.batch.completed = 1; /* and the CAS behind a fence was not sent */
    assert_int_equal(op_decided(&op, FAR_NODE_LOST), FAR_UNKNOWN);
    op.batch.completed = 0;
    op.batch.in_doubt = true;
    assert_int_equal(op_decided(&op, FAR_NODE_LOST), FAR_UNKNOWN);
}

static void a_change_that_was_sent_is_of_unknown_outcome(void **state)
{
    (void)state;
    struct store_rig r = rig_with_keys();
    uint32_t key = 1;
    hook.ops.post = post_and_break_at_a_cas;
    assert_int_equal(far_delete(r.session, r.table, &key, sizeof key), FAR_UNKNOWN);
    hook_off();
    store_rig_close(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_ends_with_the_status_of_the_node_that_is_away),
        cmocka_unit_test(a_read_whose_connection_breaks_is_unreachable),
        cmocka_unit_test(an_operation_that_cannot_begin_is_unreachable),
    };
    const struct CMUnitTest of_race[] = {
        cmocka_unit_test(a_read_is_not_of_unknown_outcome),
        cmocka_unit_test(a_batch_that_was_executed_in_part_is_of_unknown_outcome),
        cmocka_unit_test(a_change_that_was_not_sent_has_no_effect),
        cmocka_unit_test(a_change_that_was_sent_is_of_unknown_outcome),
    };
    indexes_arguments(argc, argv);
    int failed = INDEXES_RUN(tests);
    return failed + cmocka_run_group_tests(of_race, NULL, NULL);
}
