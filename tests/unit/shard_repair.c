/* Repairs of a SHARD table beside a session that deletes and inserts the key they are about. */
#include "index/walk.h"
#include "support/shard_rig.h"

static uint32_t hot;    /* the key */
static uint64_t bucket; /* where it is */
static bool busy;       /* the other session is at work */
static unsigned looks;  /* of the walker at the bucket so far */

static int slot_of_hot(struct rig *g)
{
    struct shard_key k;
    shard_hash(view_of(g, g->b), (struct slice){&hot, sizeof hot}, &k);
    for (unsigned i = 0; i < 16; i++) {
        uint64_t word = word_of(g, bucket, i);
        if (shard_live(word) && slot_fingerprint(SHARD_SLOT, word) == k.fingerprint)
            return (int)i;
    }
    return -1;
}

static void start(struct rig *g)
{
    struct knobs knobs = pool_knobs_default;
    struct far_table_options options = {.tuning = "buckets=4&slots=16&load=100&sync=1&hot=0",
                                        .hash_seed = 3};
    uint32_t from = 1, v = 0;
    the = g;
    looks = 0;
    knobs.tick_ops = 1;
    store_rig_open_driven(&g->r, uri, &knobs, NULL, NULL);
    g->b = g->r.session;
    g->a = store_rig_join(&g->r);
    assert_int_equal(far_table_create(g->b, "s", "shard", &options, &g->t), FAR_OK);
    assert_int_equal(insert(g, g->b, 0, 0), FAR_OK);
    assert_int_equal(get(g, g->a, 0, &v), FAR_OK);
    bucket = ((hash_of(g, 0) & 3) + 1) & 3;
    hot = key_with(g, &from, 3, bucket);
    assert_int_equal(insert(g, g->b, hot, 5), FAR_OK);
}

static void repair(struct rig *g, int (*post)(struct fab_ep *ep, struct fab_req *req),
                   struct index_report *report)
{
    struct op *op = &g->a->op;
    *report = (struct index_report){.line = say, .repair = true};
    hook_on(g->a->client.ep);
    hook.ops.post = post;
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    int rc = shard_check(op, store_known(g->a, g->t)->view, report);
    op_end(op);
    hook_off();
    assert_int_equal(rc, FAR_OK);
}

/* The READ of the bucket's first level, if the request has it. */
static struct fab_verb *read_of_bucket(struct fab_req *req)
{
    for (unsigned i = 0; i < req->count && !busy; i++) {
        struct fab_verb *v = &req->verbs[i];
        if (v->kind == FAB_READ && v->off == unit_off(the, bucket) && v->len == 128)
            return v;
    }
    return NULL;
}

/* The READ finds the key's old slot first. Then the key is deleted and inserted again, and then the
 * READ finds the rest: it has no order among its words (FABRIC-F1). */
static int move_between_words(struct fab_ep *ep, struct fab_req *req)
{
    struct fab_verb *hit = read_of_bucket(req);
    int slot = -1;
    uint64_t early = 0;
    if (hit) {
        busy = true;
        slot = slot_of_hot(the);
        assert_true(slot >= 0);
        early = word_of(the, bucket, (unsigned)slot);
        assert_int_equal(far_delete(the->b, the->t, &hot, sizeof hot), FAR_OK);
        assert_int_equal(insert(the, the->b, hot, 100 + looks++), FAR_OK);
        busy = false;
    }
    int rc = hook.real->post(ep, req);
    if (hit)
        ((uint64_t *)hit->buf)[slot] = early;
    return rc;
}

static void a_key_that_comes_and_goes_is_not_taken_for_two(void **state)
{
    struct rig g;
    struct index_report report;
    uint32_t v = 0;
    (void)state;
    start(&g);
    repair(&g, move_between_words, &report);
    assert_true(looks > 1);
    assert_int_equal(report.violations, 0);
    assert_int_equal(report.repaired, 0);
    assert_int_equal(get(&g, g.b, hot, &v), FAR_OK);
    assert_int_equal(v, 100 + looks - 1);
    close_rig(&g);
}

/* Two entries of the key, with the values 5 and 6. */
static void damage(struct rig *g)
{
    unsigned first = (unsigned)slot_of_hot(g);
    uint64_t at = unit_off(g, bucket) + first * 8, word = word_of(g, bucket, first);
    store_rig_set(&g->r, 0, at, shard_tombstone(word));
    assert_int_equal(insert(g, g->b, hot, 6), FAR_OK);
    store_rig_set(&g->r, 0, at, word);
}

/* Before the walker touches one of the bucket's slots, the first entry is deleted. */
static int delete_first(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t unit = unit_off(the, bucket);
    uint32_t v = 0;
    looks += read_of_bucket(req) != NULL;
    for (unsigned i = 0; i < req->count && !busy && looks == INDEX_WALK_LOOKS; i++) {
        const struct fab_verb *verb = &req->verbs[i];
        if (verb->off < unit || verb->off >= unit + 128 || verb->len == 128)
            continue;
        busy = true;
        looks++; /* once */
        assert_int_equal(far_delete(the->b, the->t, &hot, sizeof hot), FAR_OK);
        assert_int_equal(get(the, the->b, hot, &v), FAR_OK);
        assert_int_equal(v, 6);
        busy = false;
    }
    return hook.real->post(ep, req);
}

static void the_second_entry_stays_if_the_first_has_gone(void **state)
{
    struct rig g;
    struct index_report report;
    uint32_t v = 0;
    (void)state;
    start(&g);
    damage(&g);
    repair(&g, delete_first, &report);
    assert_int_equal(looks, INDEX_WALK_LOOKS + 1);
    assert_int_equal(report.violations, 1);
    assert_int_equal(report.repaired, 0);
    assert_int_equal(get(&g, g.b, hot, &v), FAR_OK);
    assert_int_equal(v, 6);
    close_rig(&g);
}

static int pass(struct fab_ep *ep, struct fab_req *req)
{
    return hook.real->post(ep, req);
}

static void the_entry_stays_that_lookups_find(void **state)
{
    struct rig g;
    struct index_report report;
    uint32_t v = 0;
    (void)state;
    start(&g);
    damage(&g);
    repair(&g, pass, &report);
    assert_int_equal(report.violations, 0);
    assert_int_equal(report.repaired, 1);
    assert_int_equal(get(&g, g.b, hot, &v), FAR_OK);
    assert_int_equal(v, 5);
    assert_int_equal(far_delete(g.b, g.t, &hot, sizeof hot), FAR_OK);
    assert_int_equal(get(&g, g.b, hot, &v), FAR_NOT_FOUND);
    close_rig(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_that_comes_and_goes_is_not_taken_for_two),
        cmocka_unit_test(the_second_entry_stays_if_the_first_has_gone),
        cmocka_unit_test(the_entry_stays_that_lookups_find),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
