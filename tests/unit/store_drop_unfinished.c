/* Drops that their session did not complete: others do, and nothing is lost or freed twice. */
#include "index/race/race.h"
#include "support/drop_rig.h"
#include "support/hook.h"

#include "store/drop.h"
#include "store/store_internal.h"

/* A dropped table is nobody's free memory before its drop is completed, and then it is. */
static void a_sweep_leaves_a_dropped_table_alone(void **state)
{
    struct store_rig r;
    struct sweep_result swept;
    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    uint64_t before = live_bytes(r.session);
    far_table *u = create(r.session, "u");
    fill(r.session, u, 3000);
    uint64_t with_u = live_bytes(r.session);
    drop_and_stop(r.session, u);
    assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_OK);
    assert_true(live_bytes(r.session) == with_u);
    far_table *v = create(r.session, "v");
    assert_int_equal(far_table_drop(r.session, v), FAR_OK); /* which completes that of u, too */
    assert_true(live_bytes(r.session) == before);
    assert_int_equal(get(r.session, u, 1), FAR_NO_TABLE);
    puppet_reclaim_all(&r.session->op);
    expect_nothing_lost(r.pool, r.session);
    store_rig_close(&r);
}

static void a_full_pool_completes_drops(void **state)
{
    struct store_rig r;
    (void)state;
    store_rig_open(&r, "mem:?size=4m&" HOUR, NULL, NULL, NULL);
    far_table *u = create(r.session, "u");
    unsigned keys = 0;
    while (put(r.session, u, keys, 4000) == FAR_OK)
        keys++;
    assert_true(keys > 100);
    drop_and_stop(r.session, u);
    for (unsigned i = 0; i < keys; i++)
        assert_int_equal(put(r.session, r.table, i, 4000), FAR_OK);
    store_rig_close(&r);
}

static void a_full_catalog_completes_drops(void **state)
{
    struct store_rig r;
    far_table *t = NULL;
    (void)state;
    store_rig_open(&r, "mem:?size=4m&" HOUR, NULL, NULL, NULL);
    far_table *u = create(r.session, "u");
    unsigned places = r.pool->pool.places;
    for (unsigned i = 2; i < places; i++) {
        char name[16];
        snprintf(name, sizeof name, "more%u", i);
        struct table_desc desc = desc_of(name);
        assert_int_equal(catalog_add(&r.session->op, &desc), FAR_OK);
    }
    assert_int_equal(far_table_create(r.session, "v", "race", NULL, &t), FAR_CATALOG_FULL);
    drop_and_stop(r.session, u);
    assert_int_equal(far_table_create(r.session, "v", "race", NULL, &t), FAR_OK);
    assert_int_equal(t->index.desc.id, u->index.desc.id);
    store_rig_close(&r);
}

static void take_line(void *arg, const char *line)
{
    snprintf(arg, 100, "%s", line);
}

static void a_repair_completes_drops(void **state)
{
    struct store_rig r;
    struct far_pool_check check;
    char line[100] = "";
    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    uint64_t before = live_bytes(r.session);
    far_table *u = create(r.session, "u");
    fill(r.session, u, 1000);
    drop_and_stop(r.session, u);
    assert_int_equal(far_pool_check(r.session, false, take_line, line, &check), FAR_OK);
    assert_string_equal(line, "note: 1 table is being dropped");
    assert_int_equal(check.violations + check.stranded, 0);
    assert_true(live_bytes(r.session) > before);
    assert_int_equal(far_pool_check(r.session, true, NULL, NULL, &check), FAR_OK);
    assert_true(live_bytes(r.session) == before);
    assert_int_equal(check.leaked_bytes, 0);
    store_rig_close(&r);
}

/* Another session completes the drop while this one is at it: before each of its posts in turn.
 * Once the other has the memory, this one does not give it back. */
static struct {
    far_session *other;
    unsigned id, at, posts;
    bool released;
} completing;

static int post_while_another_completes(struct fab_ep *ep, struct fab_req *req)
{
    if (++completing.posts == completing.at) {
        struct op *op = &completing.other->op;
        struct table_desc desc;
        ASSERT(op_begin(op, NULL) == FAR_OK);
        if (catalog_get(op, completing.id, &desc) == FAR_OK && table_is_dropped(&desc))
            ASSERT(catalog_release(op, &desc, &completing.released) == FAR_OK);
        op_end(op);
        ASSERT(client_park(op) == FAR_OK);
    }
    return hook.real->post(ep, req);
}

static void a_drop_is_completed_once(void **state)
{
    bool late = false;
    unsigned released = 0;
    (void)state;
    for (unsigned at = 1; !late; at++) {
        struct store_rig r;
        store_rig_open(&r, "mem:?size=4m&" HOUR, NULL, NULL,
                       &(struct far_table_options){.tuning = "groups=2"});
        far_session *other = store_rig_join(&r);
        assert_int_equal(client_park(&other->op), FAR_OK);
        far_table *u = create(r.session, "u");
        for (unsigned i = 0; i < 40; i++)
            assert_int_equal(put(r.session, u, i, 100), FAR_OK);
        completing = (typeof(completing)){.other = other, .id = u->index.desc.id, .at = at};
        hook_on(r.session->client.ep);
        hook.ops.post = post_while_another_completes;
        assert_int_equal(far_table_drop(r.session, u), FAR_OK);
        hook_off();
        late = completing.posts < at;
        released += completing.released;
        assert_int_equal(puppet_in_limbo(&r.session->client) > 0, !completing.released);
        assert_int_equal(get(r.session, u, 1), FAR_NO_TABLE);
        far_session_close(other);
        store_rig_close(&r);
    }
    assert_true(released > 10);
}

/* While this session waits for the barrier, the other one completes the drop, makes another table
 * in the same place, and begins to drop that one. */
static struct {
    far_session *other;
    far_table *first, *second;
} follows;

static void pause_and_follow(struct fab_ep *ep, uint64_t ns)
{
    far_session *other = follows.other;
    struct table_desc desc;
    bool released = false;
    driven_pause(ep, ns);
    if (!other)
        return;
    follows.other = NULL; /* once */
    assert_int_equal(op_begin(&other->op, NULL), FAR_OK);
    assert_int_equal(catalog_get(&other->op, follows.first->index.desc.id, &desc), FAR_OK);
    assert_int_equal(catalog_release(&other->op, &desc, &released), FAR_OK);
    op_end(&other->op);
    assert_true(released);
    follows.second = create(other, "second");
    drop_and_stop(other, follows.second);
    assert_int_equal(client_park(&other->op), FAR_OK);
}

/* CAT-4, step two: nobody has waited for the sessions that work on the second table. */
static void a_barrier_is_for_the_tables_that_were_dropped_before_it(void **state)
{
    struct store_rig r;
    struct table_desc now;

    (void)state;
    store_rig_open_driven(&r, "mem:?size=4m&" HOUR, NULL, NULL, NULL);
    far_session *other = store_rig_join(&r);
    far_table *first = create(r.session, "first");
    assert_int_equal(put(other, r.table, 1, 8), FAR_OK); /* it takes part in the epochs */
    follows = (typeof(follows)){.other = other, .first = first};
    r.clock->ops.pause = pause_and_follow;
    assert_int_equal(far_table_drop(r.session, first), FAR_OK);
    r.clock->ops.pause = driven_pause;
    assert_non_null(follows.second);
    assert_int_equal(follows.second->index.desc.id, first->index.desc.id);
    assert_int_equal(op_begin(&r.session->op, NULL), FAR_OK);
    assert_int_equal(catalog_get(&r.session->op, first->index.desc.id, &now), FAR_OK);
    op_end(&r.session->op);
    assert_true(now.serial == follows.second->index.desc.serial && table_is_dropped(&now));
    assert_int_equal(puppet_in_limbo(&r.session->client), 0);
    far_session_close(other);
    store_rig_close(&r);
}

/* Its place is another table's by now, which is not looked at for what the line says. */
static void a_journal_of_a_dropped_table_is_nothing_to_do(void **state)
{
    struct store_rig r;
    uint64_t rtts[2];

    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    struct op *op = &r.session->op;
    const struct pool *pool = &r.pool->pool;
    const struct table_desc *desc = &r.table->index.desc;
    assert_int_equal(far_exists(r.session, r.table, "k", 1), FAR_NOT_FOUND); /* the view is made */
    for (unsigned same = 0; same < 2; same++) {
        struct journal_entry entry = {.subject = {.place = desc->id, .tag = desc->serial + !same},
                                      .data =
                                          race_view(store_known(r.session, r.table)->view)->entries,
                                      .len = 8};
        op->cost = (struct cost){0};
        assert_int_equal(pool->recover(pool->tables, op, &entry), FAR_OK);
        rtts[same] = op->cost.rtts;
    }
    assert_true(rtts[0] < rtts[1]);
    store_rig_close(&r);
}

static uint64_t away; /* offset of a root that is out of reach */

static int post_not_to_a_root(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count; i++)
        if (req->verbs[i].off == away)
            return FAR_UNREACHABLE;
    return hook.real->post(ep, req);
}

/* Two sessions died in the middle of a drop. The memory of the first table is out of reach. */
static void a_table_that_cannot_be_walked_holds_up_no_other(void **state)
{
    struct table_desc now;
    struct store_rig r;

    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    struct op *op = &r.session->op;
    far_table *other = create(r.session, "other");
    far_table *table[] = {r.table, other};
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(catalog_drop(op, &table[i]->index.desc), FAR_OK);
    op_end(op);
    away = gaddr_offset(r.table->index.desc.root);
    hook_on(r.session->client.ep);
    hook.ops.post = post_not_to_a_root;
    assert_int_equal(store_drop_settle(r.pool, op), FAR_UNREACHABLE);
    hook_off();
    assert_int_equal(catalog_get(op, other->index.desc.id, &now), FAR_NO_TABLE);
    assert_int_equal(catalog_get(op, r.table->index.desc.id, &now), FAR_OK);
    assert_int_equal(store_drop_settle(r.pool, op), FAR_OK);
    assert_int_equal(catalog_get(op, r.table->index.desc.id, &now), FAR_NO_TABLE);
    store_rig_close(&r);
}

/* ---- what is lost ---------------------------------------------------------------------------- */

/* Nothing that a damaged table reaches is retired: it may be another table's. */
static void what_a_damaged_table_held_counts_as_lost(void **state)
{
    struct store_rig r;
    struct race_spot spot;
    uint64_t key = 1;

    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    fill(r.session, r.table, 3000);
    race_rig_find(&r, &key, sizeof key, &spot);
    store_rig_set(&r, spot.look.subtable, race_place_offset(&spot.key, (unsigned)spot.found.place),
                  spot.found.slot | GADDR_MASK);
    drop_and_stop(r.session, r.table);
    uint64_t lost = puppet_lost_bytes(&r.session->client);
    assert_int_equal(store_drop_settle(r.pool, &r.session->op), FAR_OK);
    assert_true(puppet_lost_bytes(&r.session->client) >= lost + CHUNK_BYTES);
    store_rig_close(&r);
}

static uint64_t uncertain; /* offset of a place of the catalog */

static int post_with_unknown_outcome(struct fab_ep *ep, struct fab_req *req)
{
    int rc = hook.real->post(ep, req);
    if (req->verbs[0].kind == FAB_CAS && req->verbs[0].off == uncertain)
        req->status = FAR_UNKNOWN;
    return rc;
}

/* If its place is free, then nobody else will retire what it reaches. */
static void what_a_table_held_that_is_perhaps_released_counts_as_lost(void **state)
{
    struct store_rig r;
    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    fill(r.session, r.table, 3000);
    drop_and_stop(r.session, r.table);
    uncertain = r.pool->pool.catalog_off + r.table->index.desc.id * sizeof(struct catalog_entry);
    uint64_t lost = puppet_lost_bytes(&r.session->client);
    hook_on(r.session->client.ep);
    hook.ops.post = post_with_unknown_outcome;
    assert_int_equal(store_drop_settle(r.pool, &r.session->op), FAR_UNKNOWN);
    hook_off();
    assert_true(puppet_lost_bytes(&r.session->client) >= lost + CHUNK_BYTES);
    store_rig_close(&r);
}

/* ---- a walk that rests ----------------------------------------------------------------------- */
static struct {
    far_pool *pool;
    far_session *by, *other;
    bool within;
    int resumed;
} rests;

/* While the other session waits for the barrier, the one that rests announces itself. */
static void pause_and_announce(struct fab_ep *ep, uint64_t ns)
{
    driven_pause(ep, ns);
    if (rests.within)
        return;
    rests.within = true;
    assert_int_equal(client_drive_epoch(&rests.by->op), FAR_OK);
    rests.within = false;
}

static int rest_until_the_drop_is_completed(struct op *op, struct index_view *view, void *arg)
{
    (void)arg;
    index_rest(op);
    assert_int_equal(store_drop_settle(rests.pool, &rests.other->op), FAR_OK);
    rests.resumed = index_resume(op, view);
    return rests.resumed;
}

/* CAT-4: its memory belongs to others by then, and a walk may also write. */
static void a_walk_that_rests_finds_out_that_the_drop_was_completed(void **state)
{
    (void)state;
    for (unsigned i = 0; far_index_name(i); i++) {
        struct store_rig r;
        struct table_desc desc;
        far_table *t = NULL;
        store_rig_open_driven(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
        rests = (typeof(rests)){.pool = r.pool, .by = r.session, .other = store_rig_join(&r)};
        assert_int_equal(far_table_create(r.session, "walked", far_index_name(i), NULL, &t),
                         FAR_OK);
        assert_int_equal(put(r.session, t, 1, 8), FAR_OK);
        drop_and_stop(r.session, t);
        r.clock->ops.pause = pause_and_announce;
        struct op *op = &r.session->op;
        assert_int_equal(op_begin(op, NULL), FAR_OK);
        assert_int_equal(catalog_get(op, t->index.desc.id, &desc), FAR_OK);
        (void)store_view_work(r.pool, op, &desc, true, rest_until_the_drop_is_completed, NULL);
        assert_int_equal(rests.resumed, FAR_NO_TABLE);
        op_end(op);
        r.clock->ops.pause = driven_pause;
        far_session_close(rests.other);
        store_rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sweep_leaves_a_dropped_table_alone),
        cmocka_unit_test(a_full_pool_completes_drops),
        cmocka_unit_test(a_full_catalog_completes_drops),
        cmocka_unit_test(a_repair_completes_drops),
        cmocka_unit_test(a_drop_is_completed_once),
        cmocka_unit_test(a_barrier_is_for_the_tables_that_were_dropped_before_it),
        cmocka_unit_test(a_table_that_cannot_be_walked_holds_up_no_other),
        cmocka_unit_test(a_journal_of_a_dropped_table_is_nothing_to_do),
        cmocka_unit_test(what_a_damaged_table_held_counts_as_lost),
        cmocka_unit_test(what_a_table_held_that_is_perhaps_released_counts_as_lost),
        cmocka_unit_test(a_walk_that_rests_finds_out_that_the_drop_was_completed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
