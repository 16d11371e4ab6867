/* Interleavings and limits that once broke SepHash, or that must not: verbs are torn or delayed as
 * docs/fabric.md allows, sessions come between two verbs of another. */
#include "index/sephash/sephash.h"
#include "support/hook.h"
#include "support/sweep_rig.h"

#include <stdio.h>

struct rig {
    struct store_rig r;
    far_session *a, *b; /* b is r.session */
    far_table *t;
};
static struct rig *the; /* for hooks */

static void open_rig_with(struct rig *g, const char *uri, const char *tuning, struct knobs knobs)
{
    struct far_table_options options = {.tuning = tuning, .hash_seed = 3};
    knobs.tick_ops = 1;
    store_rig_open_driven(&g->r, uri, &knobs, NULL, NULL);
    g->b = g->r.session;
    g->a = store_rig_join(&g->r);
    assert_int_equal(far_table_create(g->b, "s", "sephash", &options, &g->t), FAR_OK);
    the = g;
}

static void open_rig(struct rig *g, const char *uri, const char *tuning)
{
    open_rig_with(g, uri, tuning, pool_knobs_default);
}

static void close_rig(struct rig *g)
{
    far_session_close(g->a);
    store_rig_close(&g->r);
}

static int put_u32(struct rig *g, far_session *s, uint32_t key, uint32_t value)
{
    return far_put(s, g->t, &key, sizeof key, &value, sizeof value);
}
static int get_u32(struct rig *g, far_session *s, uint32_t key, uint32_t *value)
{
    size_t len = 0;
    return far_get(s, g->t, &key, sizeof key, value, sizeof *value, &len);
}
static struct sephash_view *view_of(struct rig *g, far_session *s)
{
    return sephash_view(store_known(s, g->t)->view);
}
static void hash_u32(struct rig *g, uint32_t *key, struct sephash_key *k)
{
    sephash_hash(view_of(g, g->b), (struct slice){key, sizeof *key}, k);
}

static void say(void *arg, const char *line)
{
    (void)arg;
    printf("      %s\n", line);
}

/* ---- a walk that reads the slots while they are filled --------------------------------------- */
static uint32_t next_key;
static unsigned tears;

/* The READ of all slots finds the first empty one before two keys are put, and those behind it
 * after that (FABRIC-F1). */
static int tear_slots(struct fab_ep *ep, struct fab_req *req)
{
    static bool within;
    const struct sephash_view *view = view_of(the, the->b);
    struct fab_verb *hit = NULL;
    for (unsigned i = 0; i < req->count && !within; i++)
        if (req->verbs[i].kind == FAB_READ && req->verbs[i].len == 8 * view->shape.slots)
            hit = &req->verbs[i];
    int rc = hook.real->post(ep, req);
    if (!hit)
        return rc;
    uint64_t *slot = hit->buf;
    unsigned n = 0;
    while (n < view->shape.slots && slot[n] != 0)
        n++;
    if (n + 2 >= view->shape.slots)
        return rc;
    within = true;
    assert_int_equal(put_u32(the, the->b, next_key, next_key), FAR_OK);
    assert_int_equal(put_u32(the, the->b, next_key + 1, next_key + 1), FAR_OK);
    next_key += 2;
    slot[n + 1] = store_rig_get(&the->r, gaddr_make(hit->node, hit->off & ~63ull),
                                (hit->off & 63) + 8 * (n + 1));
    within = false;
    tears++;
    return rc;
}

static void a_walk_takes_no_torn_read_for_damage(void **state)
{
    struct rig g;
    (void)state;
    tears = 0;
    next_key = 0;
    open_rig(&g, "mem:?size=4m&clients=8", "slots=512&ratio=4&depth=0");
    for (; next_key < 8; next_key++)
        assert_int_equal(put_u32(&g, g.b, next_key, next_key), FAR_OK);
    hook_on(g.a->client.ep);
    hook.ops.post = tear_slots;
    struct far_pool_check result = {0};
    int rc = far_pool_check(g.a, true, say, NULL, &result);
    hook_off();
    printf("    %u tears, check: %s\n", tears, far_strerror(rc));
    assert_true(tears >= 3);
    for (uint32_t k = 0, v = 0; k < next_key; k++) {
        assert_int_equal(get_u32(&g, g.b, k, &v), FAR_OK);
        assert_int_equal(v, k);
    }
    assert_int_equal(rc, FAR_OK);
    close_rig(&g);
}

/* ---- a repair of an entry behind an empty slot ----------------------------------------------- */
static gaddr slots_at;
static uint64_t slots_delta, stray;

/* Notes where the slots are. Right before the stray entry is removed, keys are put until one is
 * behind it. */
static int fill_before_the_repair(struct fab_ep *ep, struct fab_req *req)
{
    const struct sephash_view *view = view_of(the, the->b);
    for (unsigned i = 0; i < req->count; i++) {
        const struct fab_verb *v = &req->verbs[i];
        if (v->kind == FAB_READ && v->len == 8 * view->shape.slots && slots_at == 0) {
            slots_at = gaddr_make(v->node, v->off & ~63ull);
            slots_delta = v->off & 63;
        }
        if (v->kind == FAB_CAS && stray != 0 && v->compare == stray) {
            stray = 0;
            for (unsigned put = 0; put < 3; put++, next_key++)
                assert_int_equal(put_u32(the, the->b, next_key, next_key), FAR_OK);
        }
    }
    return hook.real->post(ep, req);
}

static void a_repair_leaves_no_hole_among_the_slots(void **state)
{
    struct rig g;
    struct far_pool_check result = {0};
    (void)state;
    stray = slots_at = 0;
    open_rig(&g, "mem:?size=4m&clients=8", "slots=512&ratio=4&depth=0");
    for (next_key = 0; next_key < 8; next_key++)
        assert_int_equal(put_u32(&g, g.b, next_key, next_key), FAR_OK);
    hook_on(g.a->client.ep);
    hook.ops.post = fill_before_the_repair;
    assert_int_equal(far_table_check(g.a, g.t, say, NULL), FAR_OK);
    stray = store_rig_get(&g.r, slots_at, slots_delta + 8 * 3);
    store_rig_set(&g.r, slots_at, slots_delta + 8 * 9, stray);
    int rc = far_pool_check(g.a, true, say, NULL, &result);
    hook_off();
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(stray, 0); /* it was repaired */
    for (uint32_t k = 0, v = 0; k < next_key; k++) {
        assert_int_equal(get_u32(&g, g.b, k, &v), FAR_OK);
        assert_int_equal(v, k);
    }
    assert_int_equal(far_pool_check(g.a, false, say, NULL, &result), FAR_OK);
    close_rig(&g);
}

/* ---- a delete whose READ of the slots is torn ------------------------------------------------ */
static uint32_t deleted_key, other_key;

/* The READ of all slots finds the first empty one before the key is deleted there, and the one
 * behind it after another key was put. */
static int tear_once(struct fab_ep *ep, struct fab_req *req)
{
    const struct sephash_view *view = view_of(the, the->b);
    int rc = hook.real->post(ep, req);
    for (unsigned i = 0; i < req->count && tears == 0; i++) {
        struct fab_verb *v = &req->verbs[i];
        if (v->kind != FAB_READ || v->len != 8 * view->shape.slots)
            continue;
        uint64_t *slot = v->buf;
        unsigned n = 0;
        while (slot[n] != 0)
            n++;
        tears++;
        assert_int_equal(far_delete(the->b, the->t, &deleted_key, sizeof deleted_key), FAR_OK);
        assert_int_equal(put_u32(the, the->b, other_key, 2), FAR_OK);
        slot[n + 1] = store_rig_get(&the->r, gaddr_make(v->node, v->off & ~63ull),
                                    (v->off & 63) + 8 * (n + 1));
        assert_true(slot[n] == 0 && slot[n + 1] != 0);
    }
    return rc;
}

static void a_torn_read_shows_no_state_that_never_was(void **state)
{
    struct rig g;
    uint32_t v = 0;
    (void)state;
    tears = 0;
    deleted_key = 1;
    other_key = 2;
    open_rig(&g, "mem:?size=4m&clients=8", "slots=32&ratio=4&depth=0");
    assert_int_equal(put_u32(&g, g.b, deleted_key, 1), FAR_OK);
    assert_int_equal(get_u32(&g, g.a, deleted_key, &v), FAR_OK); /* it knows the segment */
    hook_on(g.a->client.ep);
    hook.ops.post = tear_once;
    int rc = far_delete(g.a, g.t, &deleted_key, sizeof deleted_key);
    hook_off();
    assert_int_equal(tears, 1);
    assert_int_equal(rc, FAR_NOT_FOUND); /* b has deleted it */
    assert_int_equal(get_u32(&g, g.a, deleted_key, &v), FAR_NOT_FOUND);
    assert_int_equal(far_table_check(g.b, g.t, say, NULL), FAR_OK);
    close_rig(&g);
}

/* ---- an iteration while keys that share a group come and go ---------------------------------- */

/* Two keys of the same fp and fp2 in a table of one segment. */
static void find_group(struct rig *g, uint32_t pair[2])
{
    static uint32_t first[SEPHASH_FPS << SEPHASH_FP2_BITS];
    memset(first, 0, sizeof first);
    for (uint32_t key = 1000;; key++) {
        struct sephash_key k;
        hash_u32(g, &key, &k);
        unsigned group = k.fp << SEPHASH_FP2_BITS | k.fp2;
        if (first[group] != 0) {
            pair[0] = first[group];
            pair[1] = key;
            return;
        }
        first[group] = key;
    }
}

static void merge_all(struct rig *g, uint32_t key)
{
    uint64_t before = view_of(g, g->b)->merges;
    for (uint32_t i = 0; view_of(g, g->b)->merges == before; i++)
        assert_int_equal(put_u32(g, g->b, key, i), FAR_OK);
}

static void an_iteration_leaves_no_key_out(void **state)
{
    struct rig g;
    uint32_t pair[2], seen[2] = {0, 0}, deleted = 0;
    char buf[24]; /* for one entry */
    size_t len = 0;
    uint64_t cursor = 0;
    int rc = FAR_OK;
    (void)state;
    open_rig(&g, "mem:?size=4m&clients=8", "slots=4&ratio=64&depth=0");
    assert_int_equal(put_u32(&g, g.b, 1, 1), FAR_OK);
    find_group(&g, pair);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(put_u32(&g, g.b, pair[i], 5), FAR_OK);
    do {
        struct far_entry e;
        rc = far_iterate(g.b, g.t, &cursor, 0, buf, sizeof buf, &len);
        for (size_t pos = 0; rc == FAR_OK && far_entry_next(buf, len, &pos, &e);)
            for (unsigned i = 0; i < 2; i++)
                seen[i] += memcmp(e.key, &pair[i], 4) == 0;
        /* The first one that was returned is deleted, and nothing remains of it. */
        for (unsigned i = 0; i < 2 && deleted == 0; i++) {
            if (seen[i] == 0)
                continue;
            deleted = pair[i];
            assert_int_equal(far_delete(g.b, g.t, &deleted, 4), FAR_OK);
            merge_all(&g, 1);
        }
    } while (rc == FAR_OK && cursor != 0);
    printf("    returned: %u and %u times\n", seen[0], seen[1]);
    assert_int_equal(rc, FAR_OK);
    assert_true(deleted != 0 && seen[0] > 0 && seen[1] > 0);
    close_rig(&g);
}

/* Two keys whose hashes have the same 23 highest bits. */
static void find_tie(uint64_t seed, uint32_t pair[2])
{
    enum { BITS = 23 };
    uint32_t *first = calloc(1u << BITS, sizeof *first);
    assert_non_null(first);
    for (pair[1] = 1000;; pair[1]++) {
        uint64_t high = hash_key(&pair[1], 4, seed).hi >> (64 - BITS);
        if (first[high] != 0) {
            pair[0] = first[high];
            break;
        }
        first[high] = pair[1];
    }
    free(first);
}

static void an_iteration_ends_if_keys_have_the_same_place(void **state)
{
    struct rig g;
    struct knobs knobs = pool_knobs_default;
    uint32_t pair[2];
    char buf[64];
    size_t len = 0, cap = 24; /* for one entry */
    uint64_t cursor = 0;
    unsigned returned = 0, calls = 0;
    int rc = FAR_OK;
    (void)state;
    knobs.fingerprint_mask = 0;
    open_rig_with(&g, "mem:?size=4m&clients=8", "slots=4&ratio=64&depth=0", knobs);
    find_tie(g.t->index.desc.hash_seed, pair);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(put_u32(&g, g.b, pair[i], 5), FAR_OK);
    do {
        struct far_entry e;
        rc = far_iterate(g.b, g.t, &cursor, 0, buf, cap, &len);
        if (rc == FAR_TOO_SMALL) {
            assert_true(len > cap && len <= sizeof buf);
            cap = len;
            continue;
        }
        assert_int_equal(rc, FAR_OK);
        for (size_t pos = 0; far_entry_next(buf, len, &pos, &e);)
            returned++;
    } while (++calls < 100 && (rc != FAR_OK || cursor != 0));
    printf("    %u returned in %u calls, with %zu bytes\n", returned, calls, cap);
    assert_true(calls < 100);
    assert_true(returned >= 2);
    close_rig(&g);
}

/* ---- more than fits into half of a segment --------------------------------------------------- */
static void keys_that_no_split_separates_fill_the_table_cleanly(void **state)
{
    struct rig g;
    uint32_t keys = 0, v = 0;
    int rc = FAR_OK;
    struct knobs knobs = pool_knobs_default;
    (void)state;
    knobs.hash_mask = 0;
    open_rig_with(&g, "mem:?size=16m&clients=8", "slots=128&ratio=1&depth=0", knobs);
    for (; keys < 4000 && rc == FAR_OK; keys += rc == FAR_OK)
        rc = put_u32(&g, g.b, keys, keys);
    printf("    %u keys, then %s\n", keys, far_strerror(rc));
    assert_int_equal(rc, FAR_TABLE_FULL);
    for (uint32_t k = 0; k < keys; k++) {
        assert_int_equal(get_u32(&g, g.a, k, &v), FAR_OK);
        assert_int_equal(v, k);
    }
    assert_int_equal(far_table_check(g.b, g.t, say, NULL), FAR_OK);
    close_rig(&g);
}

/* ---- deletes in a full pool ------------------------------------------------------------------ */
static void deletes_go_on_however_often_the_pool_runs_full(void **state)
{
    static const struct {
        const char *tuning;
        size_t value;
    } run[] = {{"slots=4&ratio=1&depth=0", 4},
               {"slots=4&ratio=1&depth=0", 400},
               {"slots=32&ratio=16&depth=0", 4},
               {"slots=32&ratio=16&depth=0", 1000},
               {"slots=128&ratio=64&depth=2", 16000}};
    static char value[16384];
    (void)state;
    for (unsigned i = 0; i < sizeof run / sizeof *run; i++) {
        struct rig g;
        uint32_t put = 0, gone = 0;
        unsigned refused = 0;
        open_rig(&g, "mem:?size=2m&clients=8", run[i].tuning);
        for (unsigned round = 0; round < 300 / SLOWER && refused == 0; round++) {
            unsigned fails = 0;
            while (fails < 20) {
                int rc = far_put(g.b, g.t, &put, 4, value, run[i].value);
                assert_true(rc == FAR_OK || rc == FAR_POOL_FULL);
                fails = rc == FAR_OK ? 0 : fails + 1;
                put++;
            }
            for (unsigned n = 0; n < 1 + round % 7 && gone < put;) {
                int rc = far_delete(g.b, g.t, &gone, 4);
                refused += rc != FAR_OK && rc != FAR_NOT_FOUND;
                n += rc == FAR_OK;
                if (rc != FAR_OK && rc != FAR_NOT_FOUND)
                    printf("    %s, %zu B: round %u: delete: %s\n", run[i].tuning, run[i].value,
                           round, far_strerror(rc));
                gone++;
            }
        }
        assert_int_equal(refused, 0);
        assert_int_equal(far_table_check(g.b, g.t, say, NULL), FAR_OK);
        close_rig(&g);
    }
}

/* Takes all memory but a few objects of one class. */
static void take_all_but(far_session *s, unsigned count, unsigned size_class)
{
    struct op *op = &s->op;
    gaddr at = 0, left[8];
    unsigned taken = 0;
    assert_true(count <= 8);
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    for (; taken < count; taken++)
        assert_int_equal(pool_alloc(op, 0, size_class, &left[taken]), FAR_OK);
    for (unsigned i = CLASS_COUNT; i-- > 0;)
        while (pool_alloc(op, 0, i, &at) == FAR_OK)
            continue; /* ends: the pool is small */
    while (taken > 0)
        pool_free_unpublished(&s->client, left[--taken], size_class);
    op_end(op);
}

/* Inserts have filled the CurSegment and the pool, and the merge found no memory. It gives no block
 * back, so only what it is for lets it use the reserve. */
static void a_value_is_replaced_behind_inserts_that_filled_the_pool(void **state)
{
    static const char value[400];
    (void)state;
    for (unsigned puts = 0; puts < 2; puts++) {
        struct rig g;
        uint32_t key = 0;
        open_rig(&g, "mem:?size=2m&clients=8", "slots=4&ratio=1&depth=0");
        far_session_close(g.a); /* idle, it would hold up the epoch */
        g.a = NULL;
        for (; key < 3; key++)
            assert_int_equal(far_put(g.b, g.t, &key, 4, value, sizeof value), FAR_OK);
        take_all_but(g.b, 4, size_class_for(block_bytes(4, sizeof value)));
        assert_int_equal(far_insert(g.b, g.t, &key, 4, value, sizeof value), FAR_OK);
        assert_int_equal(view_of(&g, g.b)->base.grown, 0);
        key = 0;
        int rc = puts ? far_put(g.b, g.t, &key, 4, value, sizeof value)
                      : far_update(g.b, g.t, &key, 4, value, sizeof value);
        assert_int_equal(rc, FAR_OK);
        assert_int_equal(view_of(&g, g.b)->merges, 1);
        close_rig(&g);
    }
}

/* ---- a damaged directory --------------------------------------------------------------------- */
static void expect_all(struct rig *g, far_session *s, uint32_t keys)
{
    for (uint32_t k = 0, v = 0; k < keys; k++) {
        assert_int_equal(get_u32(g, s, k, &v), FAR_OK);
        assert_int_equal(v, k);
    }
}

static void the_directory_is_only_advice(void **state)
{
    struct rig g;
    struct far_pool_check result = {0};
    uint32_t keys = 300;
    (void)state;
    open_rig(&g, "mem:?size=4m&clients=8", "slots=4&ratio=1&depth=2");
    for (uint32_t k = 0; k < keys; k++)
        assert_int_equal(put_u32(&g, g.b, k, k), FAR_OK);
    gaddr root = view_of(&g, g.b)->root;
    uint64_t word = store_rig_get(&g.r, root, 0), depth = index_deep_depth(word);
    gaddr directory = index_deep_at(word);
    for (unsigned bit = 0; bit < 64; bit++) { /* of an entry */
        uint64_t at = 8 * (bit % (1u << depth)), entry = store_rig_get(&g.r, directory, at);
        far_session *s = store_rig_join(&g.r);
        store_rig_set(&g.r, directory, at, entry ^ 1ull << bit);
        expect_all(&g, s, keys);
        assert_int_equal(far_table_check(g.b, g.t, NULL, NULL), FAR_CORRUPT);
        assert_int_equal(far_pool_check(s, true, NULL, NULL, &result), FAR_OK);
        assert_int_equal(far_table_check(g.b, g.t, NULL, NULL), FAR_OK);
        far_session_close(s);
    }
    for (unsigned bit = 0; bit < 64; bit++) { /* of the word in the root */
        far_session *s = store_rig_join(&g.r);
        store_rig_set(&g.r, root, 0, word ^ 1ull << bit);
        expect_all(&g, s, keys);
        (void)far_table_check(g.b, g.t, NULL, NULL); /* a smaller directory is none the worse */
        store_rig_set(&g.r, root, 0, word);
        far_session_close(s);
    }
    assert_int_equal(far_table_check(g.b, g.t, NULL, NULL), FAR_OK);
    close_rig(&g);
}

/* ---- an append, verb by verb ----------------------------------------------------------------- */
static uint32_t the_key;
static unsigned stage;

static const struct sephash_segment *segment_of(struct rig *g, uint32_t key)
{
    struct sephash_key k;
    hash_u32(g, &key, &k);
    return &sephash_known_of(view_of(g, g->b), k.hash)->segment;
}

/* When A's CAS has filled the slot, B finds the key. */
static int find_behind_the_cas(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t cur = gaddr_offset(sephash_target(segment_of(the, the_key)->state));
    uint64_t end = cur + sephash_slot_at(&view_of(the, the->b)->shape, 4);
    struct fab_verb *all = req->verbs;
    unsigned count = req->count;
    int rc = FAR_OK;
    for (unsigned i = 0; i < count && rc == FAR_OK; i++) {
        uint32_t v = 0;
        req->verbs = &all[i];
        req->count = 1;
        req->done = false;
        rc = hook.real->post(ep, req);
        if (all[i].kind != FAB_CAS || all[i].off < cur || all[i].off >= end)
            continue;
        stage++;
        assert_int_equal(far_insert(the->b, the->t, &the_key, 4, &v, 4), FAR_EXISTS);
        assert_int_equal(get_u32(the, the->b, the_key, &v), FAR_OK);
    }
    req->verbs = all;
    req->count = count;
    return rc;
}

static void a_mark_comes_before_its_slot(void **state)
{
    struct rig g;
    uint32_t v;
    (void)state;
    stage = 0;
    the_key = 2;
    open_rig(&g, "mem:?size=4m&clients=8", "slots=4&ratio=4&depth=0");
    assert_int_equal(put_u32(&g, g.b, 1, 1), FAR_OK);
    assert_int_equal(get_u32(&g, g.b, the_key, &v), FAR_NOT_FOUND);
    hook_on(g.a->client.ep);
    hook.ops.post = find_behind_the_cas;
    int rc = put_u32(&g, g.a, the_key, 5);
    hook_off();
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(stage, 1);
    close_rig(&g);
}

/* ---- a merge whose outcome is not known ------------------------------------------------------ */

/* The CAS of the anchor happens, but its client is not told. */
static int forget_the_answer(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t anchor = gaddr_offset(segment_of(the, the_key)->part.anchor);
    int rc = hook.real->post(ep, req);
    for (unsigned i = 0; i < req->count && stage == 0; i++) {
        if (req->verbs[i].kind != FAB_CAS || req->verbs[i].off != anchor)
            continue;
        stage = 1;
        req->status = FAR_TIMEOUT;
    }
    return rc;
}

static void merge_with_unknown_outcome(struct rig *g, struct audit *audit)
{
    stage = 0;
    the_key = 1;
    open_rig(g, "mem:?size=4m&clients=8", "slots=4&ratio=4&depth=0");
    assert_int_equal(put_u32(g, g->b, the_key, 1), FAR_OK);
    merge_all(g, the_key); /* so there is an old MainSegment, too */
    hook_on(g->a->client.ep);
    hook.ops.post = forget_the_answer;
    for (uint32_t i = 0; i < 8 && stage == 0; i++)
        assert_int_equal(put_u32(g, g->a, the_key, i), FAR_OK);
    hook_off();
    assert_int_equal(stage, 1);
    assert_int_equal(sim_audit(audit, g->r.pool, (far_session *[]){g->b, g->a}, 2), FAR_OK);
}

static void a_segment_that_may_be_published_is_not_reused(void **state)
{
    struct rig g;
    struct audit audit;
    (void)state;
    merge_with_unknown_outcome(&g, &audit);
    assert_int_equal(audit.wrong, 0);
    close_rig(&g);
}

static void what_a_merge_of_unknown_outcome_may_lose_is_reported(void **state)
{
    struct rig g;
    struct audit audit;
    (void)state;
    merge_with_unknown_outcome(&g, &audit);
    printf("    %llu bytes are in no place\n", (unsigned long long)audit.bytes[AUDIT_NOWHERE]);
    assert_true(audit.bytes[AUDIT_NOWHERE] > 0);
    assert_true(puppet_lost_bytes(&g.a->client) >= audit.bytes[AUDIT_NOWHERE]);
    close_rig(&g);
}

/* ---- the reserve, and two clients that have read the root ------------------------------------ */
static struct sephash_root read_root(struct rig *g)
{
    struct sephash_root root;
    struct op *op = &g->b->op;
    batch_read(&op->batch, view_of(g, g->b)->root, 0, op->word, SEPHASH_ROOT_CHANGES);
    assert_int_equal(batch_flush(&op->batch), FAR_OK);
    memcpy(&root, op->word, SEPHASH_ROOT_CHANGES);
    return root;
}

/* A table that both sessions know, with its reserve complete. */
static void open_reserve(struct rig *g)
{
    open_rig(g, "mem:?size=4m&clients=8", "slots=4&ratio=4&depth=0");
    assert_int_equal(put_u32(g, g->b, 1, 1), FAR_OK);
    assert_int_equal(put_u32(g, g->a, 2, 1), FAR_OK);
    assert_int_equal(sephash_reserve_restore(&g->b->op, view_of(g, g->b)), FAR_OK);
    assert_int_not_equal(read_root(g).reserve[SEPHASH_RESERVE - 1], 0);
}

static void audit_both(struct rig *g, struct audit *audit)
{
    assert_int_equal(sim_audit(audit, g->r.pool, (far_session *[]){g->b, g->a}, 2), FAR_OK);
    if (audit->wrong > 0)
        printf("    %s\n", audit->first);
    assert_int_equal(audit->wrong, 0);
}

static void take_reserve(struct rig *g, far_session *s, struct sephash_root root)
{
    assert_int_equal(sephash_reserve_take(&s->op, view_of(g, s), &root), FAR_OK);
}

static void what_is_in_the_reserve_is_taken_once(void **state)
{
    (void)state;
    struct rig g;
    struct audit audit;
    open_reserve(&g);
    struct sephash_root root = read_root(&g);
    take_reserve(&g, g.a, root);
    take_reserve(&g, g.b, root);
    audit_both(&g, &audit);
    close_rig(&g);
}

/* Fills the reserve as somebody who has read `root`. */
static int fill_reserve(struct rig *g, far_session *s, const struct sephash_root *root)
{
    struct sephash_spares spares;
    struct sephash_view *view = view_of(g, s);
    assert_int_equal(sephash_reserve_fill(&s->op, view, root, 1, &spares), FAR_OK);
    assert_true(spares.count > 0);
    sephash_reserve_add(&s->op, view, &spares);
    int rc = batch_flush(&s->op.batch);
    sephash_reserve_end(&s->op, view, &spares, true, rc);
    return rc;
}

static void what_the_reserve_has_no_room_for_is_not_lost(void **state)
{
    (void)state;
    struct rig g;
    struct audit audit;
    open_reserve(&g);
    take_reserve(&g, g.a, read_root(&g));
    struct sephash_root root = read_root(&g);
    assert_int_equal(fill_reserve(&g, g.a, &root), FAR_OK);
    assert_int_equal(fill_reserve(&g, g.b, &root), FAR_OK);
    audit_both(&g, &audit);
    assert_int_equal(audit.bytes[AUDIT_NOWHERE], 0);
    close_rig(&g);
}

static int answer_with_a_timeout(struct fab_ep *ep, struct fab_req *req)
{
    int rc = hook.real->post(ep, req);
    req->status = FAR_TIMEOUT;
    return rc;
}

static void what_may_be_in_the_reserve_is_not_reused(void **state)
{
    (void)state;
    struct rig g;
    struct audit audit;
    struct sephash_spares spares;
    open_reserve(&g);
    take_reserve(&g, g.a, read_root(&g));
    struct sephash_root root = read_root(&g);
    struct sephash_view *view = view_of(&g, g.a);
    assert_int_equal(sephash_reserve_fill(&g.a->op, view, &root, 1, &spares), FAR_OK);
    sephash_reserve_add(&g.a->op, view, &spares);
    hook_on(g.a->client.ep);
    hook.ops.post = answer_with_a_timeout;
    int rc = batch_flush(&g.a->op.batch);
    hook_off();
    assert_int_not_equal(rc, FAR_OK);
    sephash_reserve_end(&g.a->op, view, &spares, true, rc);
    audit_both(&g, &audit);
    close_rig(&g);
}

/* ---- what an anchor leads to ----------------------------------------------------------------- */
static uint64_t anchor_off;

/* From the CAS of the anchor on, B reads behind each verb. */
static int read_behind_the_cas(struct fab_ep *ep, struct fab_req *req)
{
    struct fab_verb *all = req->verbs;
    unsigned count = req->count;
    bool changed = false;
    int rc = FAR_OK;
    for (unsigned i = 0; i < count && rc == FAR_OK; i++) {
        uint32_t v = 0;
        req->verbs = &all[i];
        req->count = 1;
        req->done = false;
        rc = hook.real->post(ep, req);
        changed |= all[i].kind == FAB_CAS && all[i].off == anchor_off;
        if (changed)
            assert_int_equal(get_u32(the, the->b, the_key, &v), FAR_OK);
    }
    req->verbs = all;
    req->count = count;
    return rc;
}

static uint64_t splits(struct rig *g)
{
    return view_of(g, g->a)->base.grown - view_of(g, g->a)->merges;
}

/* SEPHASH-H7 */
static void a_fork_is_written_before_the_anchor_leads_to_it(void **state)
{
    struct rig g;
    (void)state;
    the_key = 0;
    open_rig(&g, "mem:?size=4m&clients=8", "slots=4&ratio=1&depth=0");
    assert_int_equal(put_u32(&g, g.b, the_key, 0), FAR_OK);
    assert_int_equal(put_u32(&g, g.a, 1, 1), FAR_OK);
    anchor_off = gaddr_offset(segment_of(&g, the_key)->part.anchor);
    hook_on(g.a->client.ep);
    hook.ops.post = read_behind_the_cas;
    for (uint32_t i = 2; i < 100 && splits(&g) == 0; i++)
        assert_int_equal(put_u32(&g, g.a, i, i), FAR_OK);
    hook_off();
    assert_true(splits(&g) > 0);
    close_rig(&g);
}

/* SEPHASH-H7: a client that has guessed an old one must not find it again. */
static void no_word_of_an_anchor_comes_again(void **state)
{
    enum { MERGES = 40 };
    struct rig g;
    uint64_t word[MERGES];
    unsigned again = 0;
    uint32_t v;
    (void)state;
    open_rig(&g, "mem:?size=4m&clients=8", "slots=4&ratio=4&depth=0");
    assert_int_equal(put_u32(&g, g.b, 1, 1), FAR_OK);
    gaddr anchor = segment_of(&g, 1)->part.anchor;
    for (unsigned i = 0; i < MERGES; i++) {
        merge_all(&g, 1);
        assert_int_equal(get_u32(&g, g.a, 1, &v), FAR_OK); /* the epoch does not wait for it */
        word[i] = store_rig_get(&g.r, anchor, 0);
        for (unsigned k = 0; k < i; k++) {
            assert_true(word[k] != word[i]);
            again += sephash_target(word[k]) == sephash_target(word[i]);
        }
    }
    assert_true(again > 0); /* memory was used again */
    close_rig(&g);
}

/* ---- how far a CurSegment was filled that was replaced meanwhile ----------------------------- */
static void what_was_counted_in_another_segment_is_forgotten(void **state)
{
    struct rig g;
    (void)state;
    open_rig(&g, "mem:?size=4m&clients=8", "slots=4&ratio=4&depth=0");
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(put_u32(&g, g.b, 1, i), FAR_OK);
    struct sephash_segment old = *segment_of(&g, 1);
    merge_all(&g, 1);
    assert_true(segment_of(&g, 1)->state != old.state);
    unsigned filled = segment_of(&g, 1)->filled, barren = segment_of(&g, 1)->barren;
    sephash_know_filled(view_of(&g, g.b), &old, 3); /* as an operation that ends now */
    assert_int_equal(segment_of(&g, 1)->filled, filled);
    sephash_know_barren(view_of(&g, g.b), &old, barren + 1);
    assert_int_equal(segment_of(&g, 1)->barren, barren);
    assert_int_equal(put_u32(&g, g.b, 1, 5), FAR_OK);
    assert_int_equal(far_table_check(g.b, g.t, say, NULL), FAR_OK);
    close_rig(&g);
}

/* ---- a directory that is doubled ------------------------------------------------------------- */

/* A's CAS of the root's word is looked at: B checks the table behind it, or A does not know whether
 * it happened. */
static enum { CHECKED, DROPPED, UNKNOWN } outcome;
static int at_the_directory(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t word = gaddr_offset(view_of(the, the->b)->root);
    struct fab_verb *all = req->verbs;
    unsigned count = req->count;
    int rc = FAR_OK;
    for (unsigned i = 0; i < count && rc == FAR_OK; i++) {
        bool hit = all[i].kind == FAB_CAS && all[i].off == word && stage == 0;
        stage += hit;
        req->verbs = &all[i];
        req->count = 1;
        req->done = false;
        if (!hit || outcome != DROPPED)
            rc = hook.real->post(ep, req);
        if (hit && outcome != CHECKED) {
            req->done = true;
            req->status = FAR_TIMEOUT;
            break;
        }
        if (hit)
            assert_int_equal(far_table_check(the->b, the->t, say, NULL), FAR_OK);
    }
    req->verbs = all;
    req->count = count;
    return rc;
}

static void double_the_directory(struct rig *g)
{
    stage = 0;
    open_rig(g, "mem:?size=4m&clients=8", "slots=4&ratio=1&depth=0");
    assert_int_equal(put_u32(g, g->b, 0, 0), FAR_OK);
    hook_on(g->a->client.ep);
    hook.ops.post = at_the_directory;
    for (uint32_t i = 1; i < 200 && stage == 0; i++)
        assert_int_equal(put_u32(g, g->a, i, i), FAR_OK);
    hook_off();
    assert_int_equal(stage, 1);
}

static void a_directory_is_written_before_it_is_published(void **state)
{
    struct rig g;
    (void)state;
    outcome = CHECKED;
    double_the_directory(&g);
    close_rig(&g);
}

static void expect_nothing_in_two_places(void)
{
    struct rig g;
    struct audit audit;
    double_the_directory(&g);
    assert_int_equal(sim_audit(&audit, g.r.pool, (far_session *[]){g.b, g.a}, 2), FAR_OK);
    printf("    %u in two places\n", audit.wrong);
    assert_int_equal(audit.wrong, 0);
    close_rig(&g);
}

static void a_directory_that_may_be_in_use_is_not_retired(void **state)
{
    (void)state;
    outcome = DROPPED;
    expect_nothing_in_two_places();
}

static void a_directory_that_may_be_published_is_not_reused(void **state)
{
    (void)state;
    outcome = UNKNOWN;
    expect_nothing_in_two_places();
}

/* ---- a table that grows behind a walk -------------------------------------------------------- */

static uint64_t directory_word(struct rig *g)
{
    return store_rig_get(&g->r, view_of(g, g->b)->parts.table->desc.root,
                         offsetof(struct sephash_root, directory));
}

/* The walk has visited all parts, and asks for the directory. Before that the table grows. */
static int grow_behind_the_walk(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t at = gaddr_offset(view_of(the, the->b)->parts.table->desc.root) +
                  offsetof(struct sephash_root, directory);
    bool asks = req->count > 0 && req->verbs[0].kind == FAB_READ && req->verbs[0].len == 8 &&
                req->verbs[0].off == at;
    unsigned depth = index_deep_depth(directory_word(the));
    while (asks && tears == 0 && index_deep_depth(directory_word(the)) < depth + 2)
        assert_int_equal(put_u32(the, the->b, next_key++, 0), FAR_OK);
    tears += asks;
    return hook.real->post(ep, req);
}

static void a_walk_does_not_mistake_growth_for_damage(void **state)
{
    struct rig g;
    (void)state;
    open_rig(&g, "mem:?size=16m&clients=8", "slots=64&ratio=2");
    for (next_key = 0; next_key < 100; next_key++)
        assert_int_equal(put_u32(&g, g.b, next_key, 0), FAR_OK);
    tears = 0;
    assert_int_equal(far_exists(g.a, g.t, "x", 1), FAR_NOT_FOUND);
    hook_on(g.a->client.ep);
    hook.ops.post = grow_behind_the_walk;
    int rc = far_table_check(g.a, g.t, say, NULL);
    hook_off();
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(tears, 1);
    close_rig(&g);
}

/* Puts keys until the key's segment is split. Returns what it was before. */
static struct index_part split_segment(struct rig *g, uint32_t key)
{
    struct index_part part = segment_of(g, key)->part;
    while (segment_of(g, key)->part.depth == part.depth)
        assert_int_equal(put_u32(g, g->b, next_key++, 0), FAR_OK);
    return part;
}

/* A split that was not noted in the directory is noted with the next one. Else every session would
 * be sent there for as long as the table lasts. */
static void an_entry_that_leads_to_an_ancestor_is_replaced(void **state)
{
    struct rig g;
    (void)state;
    open_rig(&g, "mem:?size=4m&clients=8", "slots=4&ratio=1&depth=1");
    for (next_key = 0; next_key < 10; next_key++)
        assert_int_equal(put_u32(&g, g.b, next_key, 0), FAR_OK);
    struct index_part old = split_segment(&g, 1), part = segment_of(&g, 1)->part;
    uint64_t word = directory_word(&g);
    for (uint64_t i = part.suffix; i < 1ull << index_deep_depth(word); i += 1ull << part.depth)
        store_rig_set(&g.r, index_deep_at(word), 8 * i, index_deep(old.anchor, old.depth));
    (void)split_segment(&g, 1);
    part = segment_of(&g, 1)->part;
    word = directory_word(&g);
    for (uint64_t i = part.suffix; i < 1ull << index_deep_depth(word); i += 1ull << part.depth)
        assert_true(store_rig_get(&g.r, index_deep_at(word), 8 * i) ==
                    index_deep(part.anchor, part.depth));
    close_rig(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_walk_takes_no_torn_read_for_damage),
        cmocka_unit_test(a_repair_leaves_no_hole_among_the_slots),
        cmocka_unit_test(a_torn_read_shows_no_state_that_never_was),
        cmocka_unit_test(a_mark_comes_before_its_slot),
        cmocka_unit_test(what_a_merge_of_unknown_outcome_may_lose_is_reported),
        cmocka_unit_test(a_segment_that_may_be_published_is_not_reused),
        cmocka_unit_test(what_is_in_the_reserve_is_taken_once),
        cmocka_unit_test(what_the_reserve_has_no_room_for_is_not_lost),
        cmocka_unit_test(what_may_be_in_the_reserve_is_not_reused),
        cmocka_unit_test(a_fork_is_written_before_the_anchor_leads_to_it),
        cmocka_unit_test(no_word_of_an_anchor_comes_again),
        cmocka_unit_test(what_was_counted_in_another_segment_is_forgotten),
        cmocka_unit_test(a_directory_is_written_before_it_is_published),
        cmocka_unit_test(a_directory_that_may_be_in_use_is_not_retired),
        cmocka_unit_test(a_directory_that_may_be_published_is_not_reused),
        cmocka_unit_test(an_iteration_leaves_no_key_out),
        cmocka_unit_test(an_iteration_ends_if_keys_have_the_same_place),
        cmocka_unit_test(keys_that_no_split_separates_fill_the_table_cleanly),
        cmocka_unit_test(the_directory_is_only_advice),
        cmocka_unit_test(a_walk_does_not_mistake_growth_for_damage),
        cmocka_unit_test(an_entry_that_leads_to_an_ancestor_is_replaced),
        cmocka_unit_test(deletes_go_on_however_often_the_pool_runs_full),
        cmocka_unit_test(a_value_is_replaced_behind_inserts_that_filled_the_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
