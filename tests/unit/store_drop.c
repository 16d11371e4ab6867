/* Dropping tables: names, handles, memory, clients that create and drop the same ones, and many
 * tables. */
#include "support/drop_rig.h"
#include "support/hook.h"

#include <pthread.h>
#include <stdio.h>

#define THREADS 3

/* ---- names and handles ----------------------------------------------------------------------- */

static void a_dropped_table_is_gone(void **state)
{
    struct store_rig r;
    far_table *found = NULL;
    struct far_stats stats;
    struct far_table_info info;
    uint64_t cursor = 0;
    char buf[4096];
    size_t len = 0;

    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    far_table *u = create(r.session, "u");
    assert_int_equal(put(r.session, u, 1, 10), FAR_OK);
    assert_true(is_listed(r.session, "u", 2));
    assert_int_equal(far_table_drop(r.session, u), FAR_OK);
    assert_false(is_listed(r.session, "u", 1));
    assert_null(store_known(r.session, u)->view);

    assert_int_equal(get(r.session, u, 1), FAR_NO_TABLE);
    assert_string_equal(far_error_detail(), "table 'u' was dropped");
    assert_int_equal(put(r.session, u, 1, 10), FAR_NO_TABLE);
    assert_int_equal(far_iterate(r.session, u, &cursor, 0, buf, sizeof buf, &len), FAR_NO_TABLE);
    assert_int_equal(far_table_info(r.session, u, &info), FAR_NO_TABLE);
    assert_int_equal(far_table_check(r.session, u, NULL, NULL), FAR_NO_TABLE);
    assert_int_equal(far_table_drop(r.session, u), FAR_NO_TABLE);
    assert_int_equal(far_table_open(r.session, "u", NULL, &found), FAR_NO_TABLE);
    assert_null(found);
    assert_string_equal(far_table_name(u), "u");
    far_stats(r.session, u, &stats);
    assert_int_equal(stats.op[FAR_OP_PUT].count, 2);

    far_table *again = create(r.session, "u");
    assert_ptr_not_equal(again, u);
    assert_int_equal(again->index.desc.id, u->index.desc.id); /* the place is used again */
    assert_int_equal(get(r.session, again, 1), FAR_NOT_FOUND);
    assert_int_equal(put(r.session, again, 1, 10), FAR_OK);
    assert_int_equal(get(r.session, u, 1), FAR_NO_TABLE);
    assert_int_equal(far_table_open(r.session, "u", "race", &found), FAR_OK);
    assert_ptr_equal(found, again);
    assert_int_equal(put(r.session, r.table, 1, 10), FAR_OK);
    store_rig_close(&r);
}

static void the_name_is_free_at_once(void **state)
{
    struct store_rig r;
    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    far_session *dropper = store_rig_join(&r);
    fill(r.session, r.table, 100);
    drop_and_stop(dropper, r.table);
    assert_false(is_listed(r.session, "t", 0));
    far_table *again = create(dropper, "t"); /* at another place: the memory has not come back */
    assert_int_not_equal(again->index.desc.id, r.table->index.desc.id);
    assert_int_equal(put(dropper, again, 1, 10), FAR_OK);
    assert_int_equal(get(dropper, again, 2), FAR_NOT_FOUND);
    far_session_close(dropper);
    store_rig_close(&r);
}

/* Far more than fit, if places, handles or memory were not used again. */
static void places_are_used_again(void **state)
{
    struct store_rig r;
    (void)state;
    store_rig_open(&r, "mem:?size=4m&" HOUR, NULL, NULL, NULL);
    for (unsigned i = 0; i < (SLOWER > 1 ? 600u : 3000u); i++) {
        far_table *u = create(r.session, i % 2 ? "u" : "v");
        assert_int_equal(u->index.desc.id, 1);
        assert_int_equal(put(r.session, u, i, 100), FAR_OK);
        assert_int_equal(far_table_drop(r.session, u), FAR_OK);
    }
    puppet_reclaim_all(&r.session->op);
    expect_nothing_lost(r.pool, r.session);
    store_rig_close(&r);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void memory_comes_back_to_the_byte(void **state)
{
    struct store_rig r;
    struct far_pool_info first = {0}, info;

    (void)state;
    store_rig_open(&r, "mem:?size=32m&nodes=2&" HOUR, NULL, NULL, NULL);
    fill(r.session, r.table, 500);
    uint64_t live = live_bytes(r.session);
    for (unsigned i = 0; i < 6; i++) {
        far_table *u = create(r.session, "u");
        fill(r.session, u, SLOWER > 1 ? 2000 : 10000); /* it grows */
        assert_true(live_bytes(r.session) > live + (512u << 10));
        assert_int_equal(far_table_drop(r.session, u), FAR_OK);
        assert_true(live_bytes(r.session) == live);
        puppet_reclaim_all(&r.session->op);
        expect_nothing_lost(r.pool, r.session);
        assert_int_equal(far_pool_info(r.session, &info), FAR_OK);
        first = i == 0 ? info : first;
        assert_true(info.bytes_allocated < 2 * first.bytes_allocated);
    }
    for (uint64_t i = 0; i < 500; i++)
        assert_int_equal(get(r.session, r.table, i), FAR_OK);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

/* What a damaged pointer leads to may be another table's: nothing is freed by it. */
static void a_damaged_table_is_dropped_and_swept(void **state)
{
    struct store_rig r;
    struct sweep_result swept;
    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    uint64_t live = live_bytes(r.session);
    far_table *u = create(r.session, "u");
    fill(r.session, u, 300);
    fill(r.session, r.table, 300);
    uint64_t with_t = live_bytes(r.session);
    const struct race_view *view = race_view(store_known(r.session, u)->view);
    const struct race_view *other = race_view(store_known(r.session, r.table)->view);
    gaddr from = race_entry_subtable(other->entries[0]), to = race_entry_subtable(view->entries[0]);
    uint64_t word = 0, at = sizeof(struct race_subtable_head) + 8;
    while ((word = store_rig_get(&r, from, at)) == 0)
        at += 8;
    store_rig_set(&r, to, at, word); /* a slot that leads to a block of the other table */
    assert_int_equal(far_table_drop(r.session, u), FAR_OK);
    assert_int_equal(get(r.session, u, 1), FAR_NO_TABLE);
    assert_true(live_bytes(r.session) < with_t && live_bytes(r.session) > live);
    assert_true(puppet_lost_bytes(&r.session->client) > 0);
    assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_OK);
    assert_true(swept.bytes > 0);
    puppet_set_lost_bytes(&r.session->client, 0); /* as after a sweep */
    expect_nothing_lost(r.pool, r.session);
    for (uint64_t i = 0; i < 300; i++)
        assert_int_equal(get(r.session, r.table, i), FAR_OK);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

/* ---- races ----------------------------------------------------------------------------------- */

struct rival {
    far_pool *pool;
    pthread_t thread;
    unsigned created, dropped;
    int failed;
};

#define RIVALRIES (SLOWER > 1 ? 40u : 200u)

/* Creates and drops tables of two names, as all the others do. */
static void *compete(void *arg)
{
    struct rival *c = arg;
    far_session *s = NULL;
    c->failed = far_session_open(c->pool, NULL, &s);
    for (unsigned i = 0; i < RIVALRIES && c->failed == FAR_OK; i++) {
        const char *name = i % 2 ? "a" : "b";
        far_table *t = NULL;
        int rc = far_table_create(s, name, "race", NULL, &t);
        c->created += rc == FAR_OK;
        if (rc == FAR_TABLE_EXISTS)
            rc = far_table_open(s, name, NULL, &t);
        if (rc == FAR_OK)
            (void)put(s, t, i, 64);
        if (rc == FAR_OK) {
            rc = far_table_drop(s, t);
            c->dropped += rc == FAR_OK;
        }
        if (rc != FAR_OK && rc != FAR_NO_TABLE)
            c->failed = rc;
    }
    far_session_close(s);
    return NULL;
}

static void of_creates_and_drops_one_wins_each(void **state)
{
    struct store_rig r = open_kept("mem:?size=32m&lease=60000");
    struct rival c[THREADS];
    unsigned created = 0, dropped = 0;

    (void)state;
    for (unsigned i = 0; i < THREADS; i++) {
        c[i] = (struct rival){.pool = r.pool};
        assert_int_equal(pthread_create(&c[i].thread, NULL, compete, &c[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(c[i].thread, NULL);
        if (c[i].failed != FAR_OK)
            fail_msg("%s", far_errname(c[i].failed));
        created += c[i].created;
        dropped += c[i].dropped;
    }
    assert_true(created > 0);
    assert_int_equal(created, dropped); /* each drops what it has created, if nobody else does */
    assert_false(is_listed(r.session, "a", 1));
    puppet_reclaim_all(&r.session->op);
    expect_nothing_lost(r.pool, r.session);
    close_kept(&r);
}

/* CAT-1, one interleaving at a time: a rival adds the same name when the first has read the places,
 * when its place is tentative, or when it has killed what was in its way. */
static struct {
    struct store_rig *rig;
    far_session *rival;
    unsigned at, posts; /* which post the rival comes before */
    int rc;
    bool inside;
} adding;

static int post_with_a_rival(struct fab_ep *ep, struct fab_req *req)
{
    if (!adding.inside && ++adding.posts == adding.at) {
        struct table_desc desc = desc_of("same");
        adding.inside = true;
        adding.rc = catalog_add(&adding.rival->op, &desc);
        adding.inside = false;
    }
    return hook.real->post(ep, req);
}

static void of_two_adders_one_wins_whenever_they_meet(void **state)
{
    bool late = false;
    (void)state;
    for (unsigned at = 1; !late; at++) {
        struct store_rig r;
        struct table_desc desc = desc_of("same"), found;
        store_rig_open(&r, "mem:?size=4m&" HOUR, NULL, NULL, NULL);
        adding = (typeof(adding)){.rig = &r, .rival = store_rig_join(&r), .at = at};
        hook_on(r.session->client.ep);
        hook.ops.post = post_with_a_rival;
        int rc = catalog_add(&r.session->op, &desc);
        hook_off();
        late = adding.posts < at;
        assert_true(rc == FAR_OK || (!late && rc == FAR_TABLE_EXISTS));
        if (!late) {
            assert_true((rc == FAR_OK) != (adding.rc == FAR_OK));
            assert_true(rc == FAR_OK ? adding.rc == FAR_TABLE_EXISTS : rc == FAR_TABLE_EXISTS);
        }
        assert_int_equal(catalog_find(&r.session->op, "same", &found), FAR_OK);
        unsigned tables = 0;
        assert_int_equal(catalog_count(&r.session->op, &tables), FAR_OK);
        assert_int_equal(tables, 2);
        far_session_close(adding.rival);
        store_rig_close(&r);
    }
}

/* ---- many ------------------------------------------------------------------------------------ */

static void thousands_of_tables_come_and_go(void **state)
{
    struct store_rig r;
    unsigned many = SLOWER > 1 ? 60 : 600;
    far_table **t = calloc(many, sizeof(far_table *));
    (void)state;
    assert_non_null(t);
    store_rig_open(&r, "mem:?size=64m&" HOUR, NULL, NULL, NULL);
    assert_int_equal(r.pool->pool.places, 4096);
    uint64_t live = live_bytes(r.session);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < many; i++) {
            char name[16];
            snprintf(name, sizeof name, "n%u", i);
            t[i] = create(r.session, name);
            assert_int_equal(put(r.session, t[i], i, 20), FAR_OK);
        }
        assert_true(is_listed(r.session, "n7", many + 1));
        for (unsigned i = 0; i < many; i++)
            assert_int_equal(get(r.session, t[i], i), FAR_OK);
        for (unsigned i = 0; i < many; i++) /* not in the order of their making */
            assert_int_equal(far_table_drop(r.session, t[i * 7 % many]), FAR_OK);
        assert_false(is_listed(r.session, "n7", 1));
        assert_true(live_bytes(r.session) == live);
    }
    puppet_reclaim_all(&r.session->op);
    expect_nothing_lost(r.pool, r.session);
    free(t);
    store_rig_close(&r);
}

static far_table *create_small(far_session *s, unsigned i)
{
    struct far_table_options options = {.tuning = "groups=2&depth=2"};
    far_table *table = NULL;
    char name[16];
    snprintf(name, sizeof name, "n%u", i);
    assert_int_equal(far_table_create(s, name, "race", &options, &table), FAR_OK);
    return table;
}

/* As many as the catalog holds. */
static void a_pool_holds_4096_tables(void **state)
{
    static far_table *table[4096];
    struct store_rig r;
    struct table_desc found;
    far_table *none = NULL;
    uint64_t got = 0;
    char name[16];

    (void)state;
    store_rig_open(&r, "mem:?size=128m&" HOUR, NULL, NULL, NULL);
    struct op *op = &r.session->op;
    for (uint64_t i = 1; i < 4096; i++) {
        table[i] = create_small(r.session, (unsigned)i);
        assert_int_equal(far_put(r.session, table[i], &i, 8, &i, 8), FAR_OK);
    }
    assert_true(is_listed(r.session, "n4095", 4096));
    for (unsigned i = 1; i < 4096; i += 5) {
        snprintf(name, sizeof name, "n%u", i);
        op->cost = (struct cost){0};
        assert_int_equal(catalog_find(op, name, &found), FAR_OK);
        assert_true(op->cost.rtts <= 2); /* the places, and the descriptors that it may be */
        assert_true(op->cost.verbs < 64);
        assert_string_equal(found.name, name);
    }
    assert_int_equal(far_table_open(r.session, "n4096", NULL, &none), FAR_NO_TABLE);
    assert_int_equal(far_table_create(r.session, "n4096", "race", NULL, &none), FAR_CATALOG_FULL);
    assert_int_equal(far_table_create(r.session, "n17", "race", NULL, &none), FAR_TABLE_EXISTS);
    assert_int_equal(far_table_drop(r.session, r.table), FAR_OK); /* a hole */
    assert_int_equal(far_table_create(r.session, "n17", "race", NULL, &none), FAR_TABLE_EXISTS);
    assert_int_equal(create_small(r.session, 4096)->index.desc.id, r.table->index.desc.id);
    for (uint64_t i = 1; i < 4096; i++) {
        assert_int_equal(far_get(r.session, table[i], &i, 8, &got, 8, NULL), FAR_OK);
        assert_true(got == i);
    }
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dropped_table_is_gone),
        cmocka_unit_test(the_name_is_free_at_once),
        cmocka_unit_test(places_are_used_again),
        cmocka_unit_test(memory_comes_back_to_the_byte),
        cmocka_unit_test(a_damaged_table_is_dropped_and_swept),
        cmocka_unit_test(of_creates_and_drops_one_wins_each),
        cmocka_unit_test(of_two_adders_one_wins_whenever_they_meet),
        cmocka_unit_test(thousands_of_tables_come_and_go),
        cmocka_unit_test(a_pool_holds_4096_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
