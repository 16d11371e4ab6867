/* When a table of SHARD grows. */
#include "support/shard_rig.h"

/* Even if no client ever reports of itself how many keys it has added. */
static void a_full_bucket_makes_its_client_report(void **state)
{
    struct far_table_options options = {.tuning = "buckets=1&slots=8&sync=1000000"};
    struct store_rig r;
    far_table *table = NULL;

    (void)state;
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, NULL);
    assert_int_equal(far_table_create(r.session, "seldom", "shard", &options, &table), FAR_OK);
    for (uint32_t key = 0; key < 20000; key++) {
        int rc = far_insert(r.session, table, &key, sizeof key, &key, sizeof key);
        if (rc != FAR_OK)
            fail_msg("key %u: %s: %s", key, far_errname(rc), far_error_detail());
    }
    for (uint32_t key = 0; key < 20000; key++)
        assert_int_equal(far_exists(r.session, table, &key, sizeof key), FAR_OK);
    assert_int_equal(far_table_check(r.session, table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

/* Many operations are in flight. One of them resizes the table; the others wait for it. */
static void full_buckets_wait_for_the_operation_that_resizes(void **state)
{
    enum { KEYS = 8000, DEPTH = 32 };
    struct far_table_options options = {.tuning = "buckets=1&slots=8&sync=1000000"};
    struct far_session_options session = {.depth = DEPTH};
    static uint32_t keys[KEYS];
    struct far_result result[DEPTH];
    struct store_rig r;
    far_table *table = NULL;

    (void)state;
    store_rig_open(&r, "mem:?size=64m&defer=1", NULL, &session, NULL);
    assert_int_equal(far_table_create(r.session, "seldom", "shard", &options, &table), FAR_OK);
    for (uint32_t started = 0, done = 0; done < KEYS;) {
        for (; started < KEYS && started < done + DEPTH; started++) {
            keys[started] = started;
            struct far_op op = {.kind = FAR_OP_INSERT,
                                .table = table,
                                .key = &keys[started],
                                .key_len = sizeof keys[started],
                                .value = "",
                                .user_data = started};
            assert_int_equal(far_submit(r.session, &op), FAR_OK);
        }
        unsigned count = far_reap(r.session, result, DEPTH, 1);
        for (unsigned i = 0; i < count; i++)
            if (result[i].status != FAR_OK)
                fail_msg("key %u: %s", (unsigned)result[i].user_data,
                         far_errname(result[i].status));
        done += count;
    }
    assert_int_equal(far_table_check(r.session, table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

/* The bucket is full to the end of its chain. Returns another key of that bucket. */
static uint32_t fill_bucket(struct rig *g, uint64_t bucket, uint32_t *first)
{
    struct far_table_options options = {.tuning = "buckets=2&slots=8&sync=1000000"};
    uint32_t from = 0, v = 0;

    the = g;
    store_rig_open(&g->r, "mem:?size=64m&lease=20000", NULL, NULL, NULL);
    g->b = g->r.session;
    assert_int_equal(far_table_create(g->b, "seldom", "shard", &options, &g->t), FAR_OK);
    assert_int_equal(get(g, g->b, 0, &v), FAR_NOT_FOUND);
    *first = key_with(g, &from, 1, bucket);
    assert_int_equal(insert(g, g->b, *first, 0), FAR_OK);
    for (unsigned i = 1; i < 8 + 1 + 1 + SHARD_CHAIN_FULL * 7; i++)
        assert_int_equal(insert(g, g->b, key_with(g, &from, 1, bucket), i), FAR_OK);
    return key_with(g, &from, 1, bucket);
}

/* Then the table is resized, and nobody has waited for the barrier yet. */
static uint32_t fill_and_resize(struct rig *g, uint64_t bucket)
{
    uint32_t first, v, key = fill_bucket(g, bucket, &first), from = key;
    uint32_t other = key_with(g, &from, 1, 1 - bucket);

    view_of(g, g->b)->since = 1000000;
    assert_int_equal(insert(g, g->b, other, 0), FAR_OK);
    assert_int_equal(get(g, g->b, other, &v), FAR_OK);
    struct shard_view *view = view_of(g, g->b);
    assert_int_equal(view->version, 1);
    assert_int_equal(view->settled, 0);
    return key;
}

static void expect_room(struct rig *g, uint32_t key)
{
    int rc = insert(g, g->b, key, 0);
    if (rc != FAR_OK)
        fail_msg("%s: %s", far_errname(rc), far_error_detail());
    assert_int_equal(view_of(g, g->b)->settled, 1);
    assert_int_equal(far_table_check(g->b, g->t, say, NULL), FAR_OK);
    store_rig_close(&g->r);
}

static void a_full_bucket_with_deleted_slots_makes_its_client_report(void **state)
{
    struct rig g;
    uint32_t first;

    (void)state;
    uint32_t key = fill_bucket(&g, 0, &first);
    assert_int_equal(far_delete(g.b, g.t, &first, sizeof first), FAR_OK);
    expect_room(&g, key);
}

static void a_full_bucket_waits_for_all_of_the_barrier(void **state)
{
    struct rig g;

    (void)state;
    uint32_t key = fill_and_resize(&g, 0);
    expect_room(&g, key);
}

/* The resizer has died before it noted the epoch. */
static void a_full_bucket_makes_its_client_begin_the_barrier(void **state)
{
    struct rig g;

    (void)state;
    uint32_t key = fill_and_resize(&g, 0);
    store_rig_set(&g.r, view_of(&g, g.b)->root, 0, shard_resize(1, 0));
    view_of(&g, g.b)->barrier = 0;
    expect_room(&g, key);
}

/* Another client has claimed the resize, and does nothing more, though it lives. */
static void a_full_bucket_heeds_no_claim(void **state)
{
    struct rig g;
    uint32_t first;

    (void)state;
    uint32_t key = fill_bucket(&g, 0, &first);
    far_session *other = store_rig_join(&g.r);
    uint32_t v;
    assert_int_equal(get(&g, other, first, &v), FAR_OK);
    assert_int_equal(client_park(&other->op), FAR_OK); /* the barrier does not wait for it */
    store_rig_set(&g.r, view_of(&g, g.b)->root, offsetof(struct shard_root, claim),
                  shard_claim(1, client_owner_word(&other->client)));
    assert_int_equal(insert(&g, g.b, key, 0), FAR_OK);
    assert_int_equal(get(&g, g.b, key, &v), FAR_OK);
    assert_int_equal(view_of(&g, g.b)->version, 1);
    far_session_close(other);
    store_rig_close(&g.r);
}

static int post_in_flight(struct fab_ep *ep, struct fab_req *req)
{
    assert_true(op_in_flight(&the->b->op));
    return hook.real->post(ep, req);
}

/* A key of the full bucket is in the other one. A repair would insert it where it belongs. There is
 * no room before the barrier is over, but the repair does not wait for that: it would end the
 * walk's epoch. The key stays where it is, for the next repair. In its place in the full bucket is
 * a copy of its neighbour, so nothing there can be purged. */
static void a_repair_does_not_wait_for_the_barrier(void **state)
{
    struct rig g;
    struct index_report report = {.line = say, .repair = true};

    (void)state;
    (void)fill_and_resize(&g, 1);
    uint64_t misplaced = word_of(&g, 1, 0), neighbour = word_of(&g, 1, 1);
    assert_true(shard_live(misplaced) && shard_live(neighbour) && !shard_live(word_of(&g, 0, 1)));
    store_rig_set(&g.r, 0, unit_off(&g, 1), neighbour);
    store_rig_set(&g.r, 0, unit_off(&g, 0) + 8, misplaced);
    hook_on(g.b->client.ep);
    hook.ops.post = post_in_flight;
    assert_int_equal(op_begin(&g.b->op, NULL), FAR_OK);
    int rc = shard_check(&g.b->op, store_known(g.b, g.t)->view, &report);
    op_end(&g.b->op);
    hook_off();
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(report.violations, 1); /* the key */
    assert_int_equal(report.repaired, 1);   /* the copy */
    store_rig_close(&g.r);
}

/* Sessions come and go, and change keys that are there. */
static void a_table_does_not_grow_without_inserts(void **state)
{
    enum { KEYS = 300, SESSIONS = 60, CHANGES = 100 };
    struct far_table_options options = {.tuning = "buckets=64&slots=8&sync=50"};
    struct store_rig r;
    far_table *table = NULL;

    (void)state;
    store_rig_open_driven(&r, "mem:?size=64m", NULL, NULL, NULL);
    assert_int_equal(far_table_create(r.session, "changed", "shard", &options, &table), FAR_OK);
    for (uint32_t key = 0; key < KEYS; key++)
        assert_int_equal(far_insert(r.session, table, &key, sizeof key, "v", 1), FAR_OK);
    for (unsigned i = 0; i < SESSIONS; i++) {
        struct far_session_options session = {.seed = i + 2};
        far_session *s = NULL;
        assert_int_equal(far_session_open(r.pool, &session, &s), FAR_OK);
        for (uint32_t n = 0; n < CHANGES; n++) {
            uint32_t key = (i * CHANGES + n) % KEYS;
            if (i % 2)
                assert_int_equal(far_delete(s, table, &key, sizeof key), FAR_OK);
            assert_int_equal(far_put(s, table, &key, sizeof key, "w", 1), FAR_OK);
        }
        assert_int_equal(shard_view(store_known(s, table)->view)->version, 0);
        far_session_close(s);
    }
    store_rig_close(&r);
}

/* Each of many sessions has made too few inserts to report them. They are parked in turn, because
 * nobody else runs them. */
static void a_table_is_not_full_because_others_do_not_report(void **state)
{
    enum { KEYS = 1000, SESSIONS = 64 };
    struct far_table_options options = {.tuning = "buckets=1&slots=8&sync=1000000"};
    far_session *s[SESSIONS];
    struct store_rig r;
    far_table *table = NULL;

    (void)state;
    store_rig_open_driven(&r, "mem:?size=64m&clients=100", NULL, NULL, NULL);
    assert_int_equal(far_table_create(r.session, "seldom", "shard", &options, &table), FAR_OK);
    assert_int_equal(client_park(&r.session->op), FAR_OK);
    for (unsigned i = 0; i < SESSIONS; i++)
        s[i] = store_rig_join(&r);
    for (uint32_t key = 0; key < KEYS; key++) {
        far_session *session = s[key % SESSIONS];
        int rc = far_insert(session, table, &key, sizeof key, &key, sizeof key);
        if (rc != FAR_OK)
            fail_msg("key %u: %s: %s", key, far_errname(rc), far_error_detail());
        assert_int_equal(client_park(&session->op), FAR_OK);
    }
    for (unsigned i = 0; i < SESSIONS; i++)
        far_session_close(s[i]);
    assert_int_equal(far_table_check(r.session, table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

/* ---- a session that walks the table again and again ------------------------------------------ */
static struct {
    far_session *by;
    far_table *table;
    bool now;
    unsigned count;
} walks;

/* In each pause of the other session, there is time for a walk. */
static void pause_for_a_walk(struct fab_ep *ep, uint64_t ns)
{
    driven_pause(ep, ns);
    if (walks.now)
        return;
    walks.now = true;
    walks.count++;
    assert_int_equal(far_table_check(walks.by, walks.table, NULL, NULL), FAR_OK);
    walks.now = false;
}

/* A resize waits for three epochs, and each of them for the walk under way. */
static void a_table_grows_beside_a_session_that_walks_it(void **state)
{
    struct far_table_options options = {.tuning = "buckets=64&slots=8"};
    struct store_rig r;
    unsigned most = 0;

    (void)state;
    store_rig_open_driven(&r, "mem:?size=64m&lease=1000", NULL, NULL, NULL);
    assert_int_equal(far_table_create(r.session, "walked", "shard", &options, &walks.table),
                     FAR_OK);
    walks.by = store_rig_join(&r);
    assert_int_equal(far_table_check(walks.by, walks.table, NULL, NULL), FAR_OK);
    r.clock->ops.pause = pause_for_a_walk;
    for (uint32_t key = 0; key < 4000; key++) {
        walks.count = 0;
        assert_int_equal(far_put(r.session, walks.table, &key, sizeof key, &key, sizeof key),
                         FAR_OK);
        most = walks.count > most ? walks.count : most;
    }
    printf("    at most %u walks beside one put\n", most);
    assert_in_range(most, 1, 12);
    r.clock->ops.pause = driven_pause;
    far_session_close(walks.by);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_bucket_makes_its_client_report),
        cmocka_unit_test(full_buckets_wait_for_the_operation_that_resizes),
        cmocka_unit_test(a_full_bucket_with_deleted_slots_makes_its_client_report),
        cmocka_unit_test(a_full_bucket_waits_for_all_of_the_barrier),
        cmocka_unit_test(a_full_bucket_makes_its_client_begin_the_barrier),
        cmocka_unit_test(a_full_bucket_heeds_no_claim),
        cmocka_unit_test(a_repair_does_not_wait_for_the_barrier),
        cmocka_unit_test(a_table_does_not_grow_without_inserts),
        cmocka_unit_test(a_table_is_not_full_because_others_do_not_report),
        cmocka_unit_test(a_table_grows_beside_a_session_that_walks_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
