/* Segments of SHARD that are cleared before the table needs them (SHARD-S11). */
#include "support/shard_rig.h"

#include "check/audit.h"

static struct rig g;
static uint32_t next_key;

#define ROOT(field) offsetof(struct shard_root, field)

static uint64_t root_word(uint64_t at)
{
    return store_rig_get(&g.r, view_of(&g, g.b)->root, at);
}

static void put_by(far_session *s)
{
    assert_int_equal(insert(&g, s, next_key++, 1), FAR_OK);
}

/* A table whose next segment takes several parts, and which has nearly enough keys for a draft. */
static int start(void **state)
{
    (void)state;
    the = &g;
    next_key = 1u << 20;
    open_rig(&g);
    g.r.pool->pool.knobs.clear_part = 64;
    store_rig_set(&g.r, view_of(&g, g.b)->root, ROOT(count), 17);
    return 0;
}

static struct shard_draft *begin_draft(far_session *s)
{
    assert_true(root_word(ROOT(draft)) == 0);
    put_by(s);
    struct shard_draft *d = &view_of(&g, s)->draft;
    assert_true(d->word != 0 && d->word == root_word(ROOT(draft)));
    assert_true(d->cleared[0] == 0);
    return d;
}

/* The memory of the draft was in use before. */
static void soil(const struct pool_array *a)
{
    for (uint64_t i = 0, delta = 0; i < a->count; i++)
        for (unsigned word = 0; word < a->element / 8; word++) {
            gaddr at = pool_array_at(a, i, &delta);
            store_rig_set(&g.r, at, delta + word * 8, 0x5555);
        }
}

static void expect_clear(uint64_t ref)
{
    struct pool_array a;
    assert_int_equal(pool_array_open(&g.b->op, ref, &a), FAR_OK);
    for (uint64_t i = 0, delta = 0; i < a.count; i++)
        for (unsigned word = 0; word < a.element / 8; word++) {
            gaddr at = pool_array_at(&a, i, &delta);
            assert_true(store_rig_get(&g.r, at, delta + word * 8) == 0);
        }
    pool_array_close(&a);
}

static uint64_t nowhere(far_session *const *sessions, unsigned count)
{
    struct audit a;
    assert_int_equal(sim_audit(&a, g.r.pool, sessions, count), FAR_OK);
    if (a.wrong > 0)
        fail_msg("%u objects in two places: %s", a.wrong, a.first);
    return a.bytes[AUDIT_NOWHERE];
}

static void expect_nothing_nowhere(void)
{
    far_session *const both[] = {g.a, g.b};
    assert_true(nowhere(both, 2) == 0);
    assert_int_equal(far_table_check(g.b, g.t, say, NULL), FAR_OK);
}

static int end(void **state)
{
    (void)state;
    close_rig(&g);
    return 0;
}

static void a_draft_is_cleared_part_by_part(void **state)
{
    (void)state;
    struct shard_draft *d = begin_draft(g.b);
    uint64_t units = d->array[0].ref, tops = d->array[1].ref;
    uint64_t bytes = pool_array_bytes(&d->array[0]) + pool_array_bytes(&d->array[1]);
    unsigned changes = 0;
    soil(&d->array[0]);
    soil(&d->array[1]);
    while (d->word != 0) {
        assert_true(root_word(ROOT(segment[1].units)) == 0);
        expect_nothing_nowhere();
        put_by(g.b);
        assert_true(++changes <= bytes / 64);
    }
    assert_in_range(changes, 3, bytes / 64);
    assert_true(root_word(ROOT(draft)) == 0);
    assert_true(root_word(ROOT(segment[1].units)) == units);
    assert_true(root_word(ROOT(segment[1].tops)) == tops);
    expect_clear(units);
    expect_clear(tops);
    assert_int_equal(view_of(&g, g.b)->version, 0);
    resize(&g);
    assert_true(root_word(ROOT(segment[1].units)) == units);
    expect_nothing_nowhere();
}

/* A segment of the next version is there: nobody makes another. */
static void there_is_one_draft_for_a_version(void **state)
{
    (void)state;
    struct shard_draft *d = begin_draft(g.b);
    uint64_t word = d->word;
    put_by(g.a);
    assert_true(view_of(&g, g.a)->draft.word == 0);
    assert_true(root_word(ROOT(draft)) == word);
    while (d->word != 0)
        put_by(g.b);
    put_by(g.a);
    put_by(g.b);
    assert_true(view_of(&g, g.a)->draft.word == 0 && d->word == 0);
    assert_true(root_word(ROOT(draft)) == 0);
    expect_nothing_nowhere();
}

/* ---- sweeps beside it ------------------------------------------------------------------------ */

static struct {
    struct marker marker;
    gaddr units; /* a piece of the draft */
    bool found;
} seen;

static void note(struct marker *marker, gaddr at, unsigned size_class)
{
    (void)marker;
    (void)size_class;
    seen.found |= at == seen.units;
}

/* The draft becomes the table's segment after the walk's first READ of the root. */
static int end_draft_behind(struct fab_ep *ep, struct fab_req *req)
{
    hook_run(ep, req);
    while (view_of(&g, g.a)->draft.word != 0)
        put_by(g.a);
    return FAR_OK;
}

static void a_walk_sees_a_draft_that_becomes_a_segment(void **state)
{
    (void)state;
    struct shard_draft *d = begin_draft(g.a);
    seen = (typeof(seen)){.marker = {.mark = note}, .units = d->array[0].piece[0]};
    uint32_t v;
    assert_int_equal(get(&g, g.b, dummy, &v), FAR_OK);
    assert_int_equal(op_begin(&g.b->op, NULL), FAR_OK);
    hook_on(g.b->client.ep);
    hook.ops.post = end_draft_behind;
    int rc = shard_mark(&g.b->op, store_known(g.b, g.t)->view, &seen.marker);
    hook_off();
    op_end(&g.b->op);
    assert_int_equal(rc, FAR_OK);
    assert_true(d->word == 0 && seen.found);
}

/* So the word that leads to the draft is taken away last. */
static uint64_t order[4];
static unsigned ordered;

static int note_order(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t root = gaddr_offset(view_of(&g, g.b)->root);
    for (unsigned i = 0; i < req->count && ordered < 4; i++) {
        uint64_t at = req->verbs[i].off - root;
        if (req->verbs[i].kind == FAB_CAS &&
            (at == ROOT(draft) || at == ROOT(segment[1].units) || at == ROOT(segment[1].tops)))
            order[ordered++] = at;
    }
    return hook.real->post(ep, req);
}

static void a_draft_is_a_segment_before_it_is_none(void **state)
{
    (void)state;
    struct shard_draft *d = begin_draft(g.b);
    hook_on(g.b->client.ep);
    hook.ops.post = note_order;
    ordered = 0;
    while (d->word != 0)
        put_by(g.b);
    hook_off();
    assert_int_equal(ordered, 4);
    assert_true(order[0] == ROOT(draft)); /* it is ready */
    assert_true(order[1] == ROOT(segment[1].units) && order[2] == ROOT(segment[1].tops));
    assert_true(order[3] == ROOT(draft));
}

/* Another client is due to resize the table. It does not wait. */
static void a_draft_that_comes_too_late_is_given_back(void **state)
{
    (void)state;
    struct shard_draft *d = begin_draft(g.a);
    uint64_t units = d->array[0].ref;
    resize(&g);
    assert_true(root_word(ROOT(segment[1].units)) != units);
    for (unsigned i = 0; i < 8 && d->word != 0; i++)
        put_by(g.a);
    assert_true(d->word == 0 && root_word(ROOT(draft)) == 0);
    assert_true(puppet_lost_bytes(&g.a->client) == 0);
    expect_nothing_nowhere();
}

/* Its maker has become due itself: it clears a part with each change, and resizes the table
 * then. */
static void a_resize_waits_for_the_draft_of_its_own_session(void **state)
{
    (void)state;
    struct shard_draft *d = begin_draft(g.b);
    uint64_t units = d->array[0].ref;
    d->pace = 0;
    for (unsigned i = 0; i < 4; i++)
        put_by(g.b);
    assert_true(d->cleared[0] == 0);
    store_rig_set(&g.r, view_of(&g, g.b)->root, ROOT(count), 1u << 30);
    put_by(g.b);
    assert_true(d->cleared[0] > 0 && d->word != 0);
    assert_int_equal(shard_resize_version(root_word(ROOT(resize))), 0);
    for (unsigned i = 0; i < 8 && d->word != 0; i++)
        put_by(g.b);
    assert_true(d->word == 0);
    assert_true(root_word(ROOT(segment[1].units)) == units);
    assert_int_equal(shard_resize_version(root_word(ROOT(resize))), 1);
    expect_nothing_nowhere();
}

static bool is_soiled(const struct pool_array *a)
{
    bool soiled = true;
    for (uint64_t i = 0, delta = 0; i < a->count; i++) {
        gaddr at = pool_array_at(a, i, &delta);
        soiled &= store_rig_get(&g.r, at, delta) == 0x5555;
    }
    return soiled;
}

/* Its memory is another's by then. */
static void expect_left_alone(far_session *s, struct shard_draft *d)
{
    struct pool_array units;
    assert_int_equal(pool_array_open(&g.b->op, d->array[0].ref, &units), FAR_OK);
    soil(&units);
    for (unsigned i = 0; i < 4; i++)
        put_by(s);
    assert_true(d->word == 0 && is_soiled(&units));
    pool_array_close(&units);
}

static void a_draft_that_a_sweep_took_away_is_left_alone(void **state)
{
    struct sweep_result swept;
    (void)state;
    struct shard_draft *d = begin_draft(g.a);
    assert_int_equal(client_park(&g.a->op), FAR_OK);
    assert_int_equal(pool_sweep(&g.b->op, &swept), FAR_OK);
    assert_true(root_word(ROOT(draft)) == 0 && d->word != 0);
    expect_left_alone(g.a, d);
    assert_true(root_word(ROOT(segment[1].units)) == 0);
}

/* The head has the same address. */
static void a_draft_of_another_session_is_left_alone(void **state)
{
    (void)state;
    struct shard_draft *d = begin_draft(g.a);
    gaddr at = pointer_gaddr(d->word);
    struct shard_draft_head head = {
        .stamp = d->stamp + 1, .version = 1, .segment = {d->array[0].ref, d->array[1].ref}};
    head.checksum = hash_sum(&head, offsetof(struct shard_draft_head, checksum), 0);
    for (unsigned i = 0; i < sizeof head / 8; i++)
        store_rig_set(&g.r, at, i * 8, ((uint64_t *)&head)[i]);
    expect_left_alone(g.a, d);
    assert_true(root_word(ROOT(draft)) != 0);
}

/* Nobody has to know of the death. */
static void a_sweep_finds_the_draft_of_a_dead_client(void **state)
{
    struct sweep_result swept;
    (void)state;
    begin_draft(g.a);
    store_rig_kill(g.a);
    g.a = store_rig_join_apart(&g.r);
    for (unsigned i = 0; i < 100 && root_word(ROOT(draft)) != 0; i++) {
        uint32_t v;
        store_rig_pass(&g.r, 20000000);
        assert_int_equal(get(&g, g.b, dummy, &v), FAR_OK);
        assert_int_equal(client_park(&g.a->op), FAR_OK);
        (void)pool_sweep(&g.b->op, &swept);
    }
    assert_true(root_word(ROOT(draft)) == 0);
    expect_nothing_nowhere();
}

/* Its maker has died before the draft became a segment. Returns its units. */
static uint64_t leave_ready(gaddr *piece)
{
    struct shard_draft *d = begin_draft(g.a);
    uint64_t units = d->array[0].ref;
    uint32_t v;
    *piece = d->array[0].piece[0];
    store_rig_set(&g.r, view_of(&g, g.b)->root, ROOT(draft), d->word | SHARD_DRAFT_READY);
    store_rig_kill(g.a);
    g.a = store_rig_join_apart(&g.r);
    assert_int_equal(get(&g, g.b, dummy, &v), FAR_OK);
    return units;
}

static void expect_used(uint64_t units)
{
    far_session *const both[] = {g.a, g.b};
    assert_true(root_word(ROOT(segment[1].units)) == units && root_word(ROOT(draft)) == 0);
    (void)nowhere(both, 2); /* nothing is in two places */
    assert_int_equal(far_table_check(g.b, g.t, say, NULL), FAR_OK);
}

static void a_sweep_uses_a_draft_that_is_ready(void **state)
{
    gaddr piece;
    uint64_t units = leave_ready(&piece);
    (void)state;
    seen = (typeof(seen)){.marker = {.mark = note, .sweeps = true}, .units = piece};
    assert_int_equal(op_begin(&g.b->op, NULL), FAR_OK);
    int rc = shard_mark(&g.b->op, store_known(g.b, g.t)->view, &seen.marker);
    op_end(&g.b->op);
    assert_int_equal(rc, FAR_OK);
    assert_true(seen.found);
    expect_used(units);
}

static void a_resize_uses_a_draft_that_is_ready(void **state)
{
    gaddr piece;
    uint64_t units = leave_ready(&piece);
    (void)state;
    store_rig_set(&g.r, view_of(&g, g.b)->root, ROOT(count), 1u << 30);
    put_by(g.b);
    assert_int_equal(shard_resize_version(root_word(ROOT(resize))), 1);
    expect_used(units);
}

/* Values need the memory, and nobody sweeps. */
static void a_full_pool_takes_drafts_back(void **state)
{
    static char value[100000];
    struct change put = {
        .absent = CHANGE_STORE, .present = CHANGE_STORE, .value = {value, sizeof value}};
    uint32_t key = 77, v;
    gaddr at;
    (void)state;
    struct shard_draft *d = begin_draft(g.a);
    assert_int_equal(get(&g, g.b, dummy, &v), FAR_OK);
    assert_int_equal(op_begin(&g.b->op, NULL), FAR_OK);
    while (pool_alloc(&g.b->op, 0, size_class_for(sizeof value + 100), &at) == FAR_OK)
        ;
    struct index_view *view = store_known(g.b, g.t)->view;
    assert_int_equal(shard_change(&g.b->op, view, (struct slice){&key, sizeof key}, &put),
                     FAR_POOL_FULL);
    op_end(&g.b->op);
    assert_true(d->word != 0 && root_word(ROOT(draft)) == 0);
}

static void a_damaged_draft_stops_no_sweep(void **state)
{
    struct sweep_result swept;
    uint64_t ready = (uint64_t)1 << 63;
    (void)state;
    assert_int_equal(client_park(&g.a->op), FAR_OK);
    for (unsigned i = 0; i < 2; i++, ready = 0) {
        store_rig_set(&g.r, view_of(&g, g.b)->root, ROOT(draft), 0x123456789 | ready);
        assert_int_equal(far_table_check(g.b, g.t, say, NULL), FAR_OK);
        struct far_pool_usage usage;
        assert_int_equal(far_pool_usage(g.b, &usage), FAR_OK);
        assert_int_equal(pool_sweep(&g.b->op, &swept), FAR_OK);
        assert_true(root_word(ROOT(draft)) == 0);
    }
    expect_nothing_nowhere();
}

/* Its READ of the root may show one word of a segment, and not the other. */
static void half_a_segment_is_no_damage(void **state)
{
    (void)state;
    struct shard_draft *d = begin_draft(g.b);
    struct far_table_info info;
    uint64_t tops = d->array[1].ref;
    store_rig_set(&g.r, view_of(&g, g.b)->root, ROOT(segment[1].tops), tops);
    assert_int_equal(far_table_info(g.b, g.t, &info), FAR_OK);
    assert_int_equal(far_table_check(g.b, g.t, say, NULL), FAR_OK);
    store_rig_set(&g.r, view_of(&g, g.b)->root, ROOT(segment[1].tops), 0);
    expect_nothing_nowhere();
}

static int insert_next(far_session *s, far_table *table, uint32_t *key)
{
    ++*key;
    return far_insert(s, table, key, sizeof *key, key, sizeof *key);
}

/* It would hardly be there until the draft is clear. */
static void a_session_that_has_changed_little_begins_no_draft(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    far_table *table = NULL;
    uint32_t key = 0;

    (void)state;
    knobs.clear_part = 4096;
    store_rig_open(&r, "mem:?size=64m", &knobs, NULL, NULL);
    assert_int_equal(far_table_create(r.session, "grows", "shard", NULL, &table), FAR_OK);
    while (key < 11000) /* the table is resized at 14,950 */
        assert_int_equal(insert_next(r.session, table, &key), FAR_OK);
    gaddr root = shard_view(store_known(r.session, table)->view)->root;
    for (unsigned i = 0; i < 300; i++) {
        struct far_session_options options = {.seed = i + 2};
        far_session *s = NULL;
        assert_int_equal(far_session_open(r.pool, &options, &s), FAR_OK);
        for (unsigned n = 0; n < 10; n++)
            assert_int_equal(insert_next(s, table, &key), FAR_OK);
        far_session_close(s);
        assert_true(store_rig_get(&r, root, ROOT(draft)) == 0);
    }
    assert_true(store_rig_get(&r, root, ROOT(segment[5].units)) == 0);
    while (store_rig_get(&r, root, ROOT(draft)) == 0)
        assert_int_equal(insert_next(r.session, table, &key), FAR_OK);
    assert_true(key < 14950);
    store_rig_close(&r);
}

/* ---- errors of the fabric -------------------------------------------------------------------- */

static const struct shard_draft *watched;
static unsigned failed;

/* The first WRITE to the draft takes effect, but its maker hears of a time-out. */
static int fail_to_clear(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *v = &req->verbs[0];
    if (failed > 0 || watched->word == 0 || v->kind != FAB_WRITE ||
        v->off != gaddr_offset(watched->array[0].piece[0]))
        return hook.real->post(ep, req);
    failed++;
    hook_run(ep, req);
    req->status = FAR_TIMEOUT;
    return FAR_OK;
}

/* The WRITE may still land. */
static void a_draft_is_not_used_after_an_error(void **state)
{
    (void)state;
    struct shard_draft *d = begin_draft(g.b);
    uint64_t units = d->array[0].ref;
    watched = d;
    failed = 0;
    hook_on(g.b->client.ep);
    hook.ops.post = fail_to_clear;
    for (unsigned i = 0; i < 12; i++)
        put_by(g.b);
    hook_off();
    assert_int_equal(failed, 1);
    assert_true(d->word == 0 && root_word(ROOT(segment[1].units)) != units);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static uint64_t written;

static int count_written(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count; i++)
        written += req->verbs[i].kind == FAB_WRITE ? req->verbs[i].len : 0;
    return hook.real->post(ep, req);
}

/* However large a segment is, no change clears much of it. */
static void no_change_clears_a_segment(void **state)
{
    enum { KEYS = 20000, PART = 4096 };
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    far_table *table = NULL;
    uint64_t most = 0;

    (void)state;
    knobs.clear_part = PART;
    store_rig_open(&r, "mem:?size=64m", &knobs, NULL, NULL);
    assert_int_equal(far_table_create(r.session, "grows", "shard", NULL, &table), FAR_OK);
    hook_on(r.session->client.ep);
    hook.ops.post = count_written;
    for (uint32_t key = 0; key < KEYS; key++) {
        written = 0;
        assert_int_equal(far_insert(r.session, table, &key, sizeof key, &key, sizeof key), FAR_OK);
        most = written > most ? written : most;
    }
    hook_off();
    printf("    at most %u bytes written by an insert\n", (unsigned)most);
    assert_true(shard_view(store_known(r.session, table)->view)->version >= 4);
    assert_in_range(most, PART, 2 * PART);
    assert_int_equal(far_table_check(r.session, table, NULL, NULL), FAR_OK);
    expect_nothing_lost(r.pool, r.session);
    store_rig_close(&r);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, start, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_draft_is_cleared_part_by_part),
        CASE(there_is_one_draft_for_a_version),
        CASE(a_walk_sees_a_draft_that_becomes_a_segment),
        CASE(a_draft_is_a_segment_before_it_is_none),
        CASE(a_draft_that_comes_too_late_is_given_back),
        CASE(a_resize_waits_for_the_draft_of_its_own_session),
        CASE(a_draft_that_a_sweep_took_away_is_left_alone),
        CASE(a_draft_of_another_session_is_left_alone),
        CASE(a_sweep_finds_the_draft_of_a_dead_client),
        CASE(a_sweep_uses_a_draft_that_is_ready),
        CASE(a_resize_uses_a_draft_that_is_ready),
        CASE(a_full_pool_takes_drafts_back),
        CASE(a_damaged_draft_stops_no_sweep),
        CASE(half_a_segment_is_no_damage),
        cmocka_unit_test(a_session_that_has_changed_little_begins_no_draft),
        CASE(a_draft_is_not_used_after_an_error),
        cmocka_unit_test(no_change_clears_a_segment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
