/*
 * What a session may conclude for its own cache from a split: that it is up to date only if nothing
 * in it leads to the parent any more, and never that it should go back.
 */
#include "support/hook.h"
#include "support/probe.h"
#include "support/puppet.h"
#include "support/race_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static struct store_rig rig(void)
{
    struct far_table_options table = {.tuning = "groups=2", .hash_seed = 5};
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    knobs.tick_ops = UINT32_MAX; /* no flight looks at the cache */
    store_rig_open(&r, "mem:?size=16m&lease=3600000", &knobs, NULL, &table);
    return r;
}

static void put(struct store_rig *r, uint64_t key)
{
    assert_int_equal(far_put(r->session, r->table, &key, 8, &key, 8), FAR_OK);
}

/* Puts keys until the table has been split so often; returns how many. */
static uint64_t fill(struct store_rig *r, uint64_t splits)
{
    uint64_t keys = 0;
    put(r, keys++);
    while (race_rig_view(r)->base.grown < splits)
        put(r, keys++);
    return keys;
}

static uint64_t hash_of(const struct race_view *view, uint64_t number)
{
    struct race_key key;
    race_hash(view, (struct slice){&number, 8}, &key);
    return key.hash;
}

static uint64_t place_of(const struct race_view *view, uint64_t number)
{
    return hash_of(view, number) & ((1ull << view->depth) - 1);
}

/* On a ring, an operation may learn of a split after another has learned of those of the children.
 */
static void a_split_that_is_followed_late_does_not_lead_back(void **state)
{
    struct store_rig r = rig();

    (void)state;
    put(&r, 0);
    struct race_view *view = race_rig_view(&r);
    uint64_t old = view->entries[0], hash = hash_of(view, 0), entries[64];
    (void)fill(&r, 4);
    assert_true(view->depth >= 2 && view->depth <= 6);
    uint64_t forward = store_rig_get(&r, race_entry_subtable(old), 0);
    assert_true(forward != 0); /* the first of all subtables: nothing has reused it yet */
    memcpy(entries, view->entries, sizeof *entries << view->depth);
    assert_int_equal(race_follow(view, old, hash, forward), FAR_OK);
    assert_memory_equal(entries, view->entries, sizeof *entries << view->depth);
    store_rig_close(&r);
}

/* A subtable that several entries of the cache lead to. */
static uint64_t find_shared_entry(const struct race_view *view)
{
    for (uint64_t i = 0; i < 1ull << view->depth; i++)
        if (race_entry_depth(view->entries[i]) < view->depth)
            return view->entries[i];
    fail_msg("every subtable has one entry");
    return 0;
}

/* Adds keys of one place of the cache until the subtable there is split. */
static void split_at(struct store_rig *r, uint64_t place, uint64_t next)
{
    const struct race_view *view = race_rig_view(r);
    uint64_t before = view->base.grown, tries = 0;
    while (view->base.grown == before && tries++ < 100000) {
        if (place_of(view, next) == place)
            put(r, next);
        next++;
    }
    assert_true(view->base.grown == before + 1);
}

static uint64_t remote_version(struct probe *p, const struct race_view *view)
{
    return probe_get(p, view->base.cached.version_at, view->base.cached.version_delta);
}

/* The cache also names an ancestor: an operation that follows it comes to the parent after all, and
 * may do so when it has been reused. So the cache is not as new as the split. */
static void a_cache_with_an_ancestor_is_not_up_to_date(void **state)
{
    (void)state;
    for (unsigned ancestor = 0; ancestor < 2; ancestor++) {
        struct store_rig r = rig();
        struct probe p;
        probe_open(&p, r.fab);
        uint64_t keys = fill(&r, 2);
        struct race_view *view = race_rig_view(&r);
        while (view->depth < 2)
            keys = fill(&r, view->base.grown + 1);
        uint64_t entry = find_shared_entry(view), first = 0, second = 0;
        while (view->entries[first] != entry)
            first++;
        for (uint64_t i = first + 1; i < 1ull << view->depth; i++)
            second = view->entries[i] == entry ? i : second;
        assert_true(second > first);
        if (ancestor) /* of another depth, at another place: it is only looked at */
            view->entries[second] =
                race_entry(race_entry_subtable(entry), race_entry_depth(entry) - 1);
        assert_true(view->base.cached.version == remote_version(&p, view));
        split_at(&r, first, keys);
        assert_int_equal(view->base.cached.version == remote_version(&p, view), !ancestor);
        if (ancestor)
            view->entries[second] = view->entries[first];
        view->base.cached.stale = true;
        probe_close(&p);
        store_rig_close(&r);
    }
}

static struct race_view *refreshed;

/* Another operation of the session reads the directory again while this one notes its split
 * there. */
static int refreshing_post(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *v = &req->verbs[0];
    if (v->kind == FAB_FAA &&
        v->off == refreshed->base.cached.version_at + refreshed->base.cached.version_delta)
        refreshed->base.refreshes++;
    return hook.real->post(ep, req);
}

static void a_cache_that_was_read_meanwhile_is_not_up_to_date(void **state)
{
    struct store_rig r = rig();
    struct probe p;

    (void)state;
    probe_open(&p, r.fab);
    uint64_t keys = fill(&r, 2), before = 0;
    refreshed = race_rig_view(&r);
    before = refreshed->base.refreshes;
    hook_on(r.session->client.ep);
    hook.ops.post = refreshing_post;
    split_at(&r, place_of(refreshed, 0), keys);
    hook_off();
    assert_true(refreshed->base.refreshes == before + 1);
    assert_true(refreshed->base.cached.version < remote_version(&p, refreshed));
    probe_close(&p);
    store_rig_close(&r);
}

static struct {
    struct store_rig *r;
    uint64_t directory, next;
    bool done;
} doubling;

/* Between the look at the root and that at the directory, the directory doubles. */
static int doubling_post(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *v = &req->verbs[0];
    if (!doubling.done && v->kind == FAB_READ && v->off == doubling.directory) {
        const struct race_view *view = race_rig_view(doubling.r);
        unsigned depth = view->depth;
        doubling.done = true;
        while (view->depth == depth)
            put(doubling.r, doubling.next++);
    }
    return hook.real->post(ep, req);
}

static void a_directory_that_doubles_is_read_as_it_is_then(void **state)
{
    struct store_rig r = rig();
    far_session *s = NULL;
    uint64_t key = 0;

    (void)state;
    doubling.next = fill(&r, 2);
    doubling.r = &r;
    doubling.directory = gaddr_offset(race_rig_view(&r)->directory);
    assert_int_equal(far_session_open(r.pool, NULL, &s), FAR_OK);
    hook_on(s->client.ep);
    hook.ops.post = doubling_post;
    assert_int_equal(far_exists(s, r.table, &key, 8), FAR_OK);
    hook_off();
    assert_true(doubling.done);
    const struct race_view *view = race_view(store_known(s, r.table)->view);
    assert_int_equal(view->depth, race_rig_view(&r)->depth);
    for (uint64_t i = 0; i < 1ull << view->depth; i++)
        assert_true(race_entry_depth(view->entries[i]) <= view->depth);
    far_session_close(s);
    store_rig_close(&r);
}

/* A session notes a split. Meanwhile the directory is doubled twice, by a client that had copied
 * the entries before: the root says so when this session has changed the entries that it knew
 * of. */
static struct {
    struct store_rig *r;
    struct probe *p;
    uint64_t old;          /* an entry of the suffix 0 */
    unsigned looks, depth; /* of the directory, at first */
} noting;

static int doubled_meanwhile(struct fab_ep *ep, struct fab_req *req)
{
    const struct race_view *view = race_rig_view(noting.r);
    if (req->verbs[0].kind != FAB_READ || req->verbs[0].off != gaddr_offset(view->root) ||
        noting.looks++ != 1)
        return hook.real->post(ep, req);
    uint64_t end = 1ull << noting.depth, step = 1ull << race_entry_depth(noting.old);
    for (uint64_t i = end; i < 4 * end; i++)
        if (i % step != 0)
            probe_set(noting.p, view->directory, 8 * i,
                      probe_get(noting.p, view->directory, 8 * (i % end)));
        else if (i >= 2 * end)
            probe_set(noting.p, view->directory, 8 * i, noting.old);
    probe_set(noting.p, view->root, 0, noting.depth + 2);
    return hook.real->post(ep, req);
}

static void a_split_is_noted_again_if_the_directory_was_doubled(void **state)
{
    struct store_rig r = rig();
    struct probe p;

    (void)state;
    probe_open(&p, r.fab);
    put(&r, 0);
    struct race_view *view = race_rig_view(&r);
    uint64_t old = view->entries[0], depth = race_entry_depth(old), step = 1ull << depth;
    for (uint64_t key = 1; view->entries[0] == old; key++)
        put(&r, key);
    uint64_t forward = probe_get(&p, race_entry_subtable(old), 0);
    assert_true(forward != 0);
    noting = (typeof(noting)){.r = &r, .p = &p, .old = old};
    noting.depth = (unsigned)probe_get(&p, view->root, 0);
    assert_true(noting.depth > depth && noting.depth + 2 <= view->dir_bits);
    for (uint64_t i = 0; i < 2ull << noting.depth; i += step) /* as if nobody had noted it */
        probe_set(&p, view->directory, 8 * i, old);
    assert_int_equal(op_begin(&r.session->op, NULL), FAR_OK);
    hook_on(r.session->client.ep);
    hook.ops.post = doubled_meanwhile;
    assert_int_equal(race_update_directory(&r.session->op, view, old, 0, forward), FAR_OK);
    hook_off();
    op_end(&r.session->op);
    assert_true(noting.looks > 1);
    for (uint64_t i = 0; i < 4ull << noting.depth; i += step)
        assert_true(race_entry_depth(probe_get(&p, view->directory, 8 * i)) > depth);
    probe_close(&p);
    store_rig_close(&r);
}

/* The directory is read, then a subtable is split, then the root is read again. */
static int splitting_post(struct fab_ep *ep, struct fab_req *req)
{
    if (doubling.done || req->verbs[0].kind != FAB_READ ||
        req->verbs[0].off != doubling.directory || req->count < 2)
        return hook.real->post(ep, req);
    const struct race_view *view = race_rig_view(doubling.r);
    uint64_t entry = find_shared_entry(view), place = 0;
    struct fab_req first = {.verbs = req->verbs, .count = 1};
    struct fab_req rest = {.verbs = req->verbs + 1, .count = req->count - 1};
    doubling.done = true;
    while (view->entries[place] != entry)
        place++;
    hook_run(ep, &first);
    split_at(doubling.r, place, doubling.next);
    hook_run(ep, &rest);
    req->status = FAR_OK;
    req->done = true;
    return FAR_OK;
}

static void a_directory_has_the_version_of_before_it_was_read(void **state)
{
    struct store_rig r = rig();
    far_session *s = NULL;
    struct probe p;
    uint64_t key = 0;

    (void)state;
    probe_open(&p, r.fab);
    doubling.next = fill(&r, 2);
    while (race_rig_view(&r)->depth < 2)
        doubling.next = fill(&r, race_rig_view(&r)->base.grown + 1);
    doubling.r = &r;
    doubling.done = false;
    doubling.directory = gaddr_offset(race_rig_view(&r)->directory);
    assert_int_equal(far_session_open(r.pool, NULL, &s), FAR_OK);
    hook_on(s->client.ep);
    hook.ops.post = splitting_post;
    assert_int_equal(far_exists(s, r.table, &key, 8), FAR_OK);
    hook_off();
    assert_true(doubling.done);
    const struct race_view *view = race_view(store_known(s, r.table)->view);
    assert_true(view->base.cached.version < remote_version(&p, view));
    far_session_close(s);
    probe_close(&p);
    store_rig_close(&r);
}

static struct {
    unsigned table, journals, wrong;
    uint64_t tag, from;
} journal;

static int journal_post(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count; i++) {
        const struct fab_verb *v = &req->verbs[i];
        const struct journal_intent *intent = v->buf;
        if (v->kind != FAB_WRITE || v->len != offsetof(struct journal_intent, data) + 8 ||
            v->off < journal.from)
            continue;
        journal.journals++;
        journal.wrong += intent->place != journal.table || intent->tag != journal.tag;
    }
    return hook.real->post(ep, req);
}

/* The client that finds it dead looks there for what it left undone. */
static void a_journal_names_the_table_that_is_split(void **state)
{
    struct far_table_options options = {.tuning = "groups=2"};
    struct store_rig r = rig();

    (void)state;
    assert_int_equal(far_table_create(r.session, "u", "race", &options, &r.table), FAR_OK);
    journal.table = r.table->index.desc.id;
    assert_true(journal.table > 0);
    journal.tag = r.table->index.desc.serial;
    journal.from = journal_off(r.pool->pool.clients);
    hook_on(r.session->client.ep);
    hook.ops.post = journal_post;
    (void)fill(&r, 2);
    hook_off();
    assert_int_equal(journal.journals, 2);
    assert_int_equal(journal.wrong, 0);
    store_rig_close(&r);
}

/* Both attach the table, and one of them is first. */
static void two_operations_that_attach_at_once_leave_one_view(void **state)
{
    struct far_table_options table = {.tuning = "groups=2"};
    struct store_rig r;
    struct far_result results[2];
    far_session *s = NULL;
    uint64_t keys[2] = {1, 2}, value = 0;

    (void)state;
    store_rig_open(&r, "mem:?size=4m&lease=3600000&defer=1", NULL, NULL, &table);
    assert_int_equal(far_session_open(r.pool, &(struct far_session_options){.depth = 2}, &s),
                     FAR_OK);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(far_submit(s, &(struct far_op){.kind = FAR_OP_PUT,
                                                        .table = r.table,
                                                        .key = &keys[i],
                                                        .key_len = 8,
                                                        .value = &value,
                                                        .value_len = 8}),
                         FAR_OK);
    assert_int_equal(far_reap(s, results, 2, 2), 2);
    assert_int_equal(results[0].status | results[1].status, FAR_OK);
    assert_int_equal(puppet_caches(&s->client), 1);
    far_session_close(s);
    store_rig_close(&r);
}

/* A directory of four entries is doubled for a split. Others have noted splits in the new half
 * already, and begun to double it once more. Nothing that they have noted is undone. */
static void a_directory_that_is_doubled_keeps_what_others_have_noted(void **state)
{
    struct store_rig r = rig();
    struct probe p;

    (void)state;
    probe_open(&p, r.fab);
    put(&r, 0);
    struct race_view *view = race_rig_view(&r);
    gaddr at = race_entry_subtable(view->entries[0]);
    uint64_t split = race_entry(at, 2), x = race_entry(at + RACE_PAGE, 1),
             y = race_entry(at + 2 * RACE_PAGE, 1);
    uint64_t newer = race_entry(at + 3 * RACE_PAGE, 3), forward = 101ull << 28 | 100;
    uint64_t child[2] = {race_forward_entry(forward, 0, 3), race_forward_entry(forward, 1, 3)};
    const uint64_t before[16] = {split, x, newer, y, 0,     newer, 0, 0,
                                 split, 0, 0,     0, split, 0,     0, 0};
    const uint64_t after[16] = {child[0], x, newer, y, child[1], newer, 0, y,
                                child[0], 0, 0,     0, child[1], 0,     0, 0};
    for (unsigned i = 0; i < 16; i++)
        probe_set(&p, view->directory, 8ull * i, before[i]);
    probe_set(&p, view->root, 0, 2);
    assert_int_equal(op_begin(&r.session->op, NULL), FAR_OK);
    assert_int_equal(race_update_directory(&r.session->op, view, split, 0, forward), FAR_OK);
    op_end(&r.session->op);
    assert_int_equal(probe_get(&p, view->root, 0), 3);
    for (unsigned i = 0; i < 16; i++)
        assert_true(probe_get(&p, view->directory, 8ull * i) == after[i]);
    probe_close(&p);
    store_rig_close(&r);
}

/* An entry of the directory leads to an ancestor of the subtable that was split, whose header is
 * damaged. So what that says of its children is not noted. */
static void a_damaged_ancestor_is_not_believed(void **state)
{
    const uint64_t forward = 101ull << 28 | 100,
                   header_at = offsetof(struct race_subtable_head, header);
    struct store_rig r = rig();
    struct probe p;

    (void)state;
    probe_open(&p, r.fab);
    put(&r, 0);
    struct race_view *view = race_rig_view(&r);
    uint64_t older = view->entries[0];
    unsigned depth = race_entry_depth(older);
    gaddr at = race_entry_subtable(older);
    for (uint64_t i = 0; i < 4ull << depth; i++)
        probe_set(&p, view->directory, 8 * i, older);
    probe_set(&p, view->root, 0, depth + 2);
    probe_set(&p, at, offsetof(struct race_subtable_head, forward), forward);
    probe_set(&p, at, header_at, probe_get(&p, at, header_at) ^ 1);
    assert_int_equal(op_begin(&r.session->op, NULL), FAR_OK);
    assert_int_equal(race_update_directory(&r.session->op, view,
                                           race_entry(at + RACE_PAGE, depth + 1), 0, forward),
                     FAR_CORRUPT);
    op_end(&r.session->op);
    for (uint64_t i = 0; i < 4ull << depth; i++)
        assert_true(probe_get(&p, view->directory, 8 * i) == older);
    probe_close(&p);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_split_that_is_followed_late_does_not_lead_back),
        cmocka_unit_test(a_cache_with_an_ancestor_is_not_up_to_date),
        cmocka_unit_test(a_cache_that_was_read_meanwhile_is_not_up_to_date),
        cmocka_unit_test(a_directory_that_doubles_is_read_as_it_is_then),
        cmocka_unit_test(a_directory_that_is_doubled_keeps_what_others_have_noted),
        cmocka_unit_test(a_damaged_ancestor_is_not_believed),
        cmocka_unit_test(a_split_is_noted_again_if_the_directory_was_doubled),
        cmocka_unit_test(a_directory_has_the_version_of_before_it_was_read),
        cmocka_unit_test(a_journal_names_the_table_that_is_split),
        cmocka_unit_test(two_operations_that_attach_at_once_leave_one_view),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
