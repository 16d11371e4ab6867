/* Rare cases of CHIME that random histories hardly ever meet: several deaths at certain verbs,
 * memory that is used again at the same address, old caches, shortages. */
#include "index/chime/chime.h"
#include "support/hook.h"
#include "support/sweep_rig.h"
#include "support/verb_script.h"

#include <stdio.h>

struct rig {
    struct store_rig r;
    far_session *a, *b; /* b is r.session */
    far_table *t;
};
static struct rig *the; /* for hooks */

static void open_rig(struct rig *g, const char *uri, const char *tuning, struct knobs knobs)
{
    struct far_table_options options = {.tuning = tuning, .hash_seed = 3};
    knobs.tick_ops = 1;
    store_rig_open_driven(&g->r, uri, &knobs, NULL, NULL);
    g->b = g->r.session;
    g->a = store_rig_join(&g->r);
    assert_int_equal(far_table_create(g->b, "s", "chime", &options, &g->t), FAR_OK);
    the = g;
}

static void close_rig(struct rig *g)
{
    if (g->a)
        far_session_close(g->a);
    store_rig_close(&g->r);
}

static int put_u64(struct rig *g, far_session *s, uint64_t n)
{
    uint64_t key = __builtin_bswap64(n);
    return far_put(s, g->t, &key, sizeof key, &n, sizeof n);
}
static int get_u64(struct rig *g, far_session *s, uint64_t n, uint64_t *value)
{
    uint64_t key = __builtin_bswap64(n);
    size_t len = 0;
    return far_get(s, g->t, &key, sizeof key, value, sizeof *value, &len);
}
static int delete_u64(struct rig *g, far_session *s, uint64_t n)
{
    uint64_t key = __builtin_bswap64(n);
    return far_delete(s, g->t, &key, sizeof key);
}
static struct chime_view *view_of(struct rig *g, far_session *s)
{
    return chime_view(store_known(s, g->t)->view);
}

/* ---- a full pool ----------------------------------------------------------------------------- */

/* A leaf is split with the last memory of the pool, and its parent has no room for the new one: the
 * keys are there, and can be read and deleted. */
static void keys_behind_an_unknown_split_can_be_used_in_a_full_pool(void **state)
{
    struct rig g;
    uint64_t n = 0, value = 0;
    (void)state;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    /* 8 full leaves, and a full parent */
    for (; n < 64; n++)
        assert_int_equal(put_u64(&g, g.b, n), FAR_OK);
    unsigned size_class = chime_node_class(&view_of(&g, g.b)->shape);
    struct op *op = &g.b->op;
    gaddr at = 0, last = 0;
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    while (pool_alloc(op, 0, size_class, &at) == FAR_OK)
        last = at;
    pool_free_unpublished(op->client, last, size_class);
    op_end(op);
    int rc = put_u64(&g, g.b, n);
    assert_int_equal(rc, FAR_OK);
    rc = get_u64(&g, g.b, n, &value);
    int deleted = delete_u64(&g, g.b, n);
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(deleted, FAR_OK);
    close_rig(&g);
}

/* ---- an old root ----------------------------------------------------------------------------- */

/* A session has seen the tree when it was low. Others make it high. */
static void a_session_learns_that_the_tree_has_grown(void **state)
{
    struct rig g;
    uint64_t n = 0, value = 0;
    (void)state;
    open_rig(&g, "mem:?size=256m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    for (; n < 20; n++)
        assert_int_equal(put_u64(&g, g.b, n), FAR_OK);
    assert_int_equal(get_u64(&g, g.a, 3, &value), FAR_OK);
    for (; n < 300000; n++)
        assert_int_equal(put_u64(&g, g.b, n), FAR_OK);
    assert_int_equal(get_u64(&g, g.a, 20000, &value), FAR_OK);
    assert_true(g.a->op.cost.rtts < 20);
    assert_int_equal(get_u64(&g, g.a, n - 1, &value), FAR_OK);
    assert_int_equal(chime_top_level(view_of(&g, g.a)->top),
                     chime_top_level(view_of(&g, g.b)->top));
    close_rig(&g);
}

/* ---- sessions that die in the middle --------------------------------------------------------- */

/* Only the first verbs of the request happen, and it ends with an error. */
static int post_some(struct fab_ep *ep, struct fab_req *req, unsigned end)
{
    unsigned count = req->count;
    req->count = end;
    int rc = hook.real->post(ep, req);
    req->count = count;
    req->status = FAR_TIMEOUT;
    return rc;
}

static unsigned stop_after; /* verbs of the request that stops; 0: it was met */

static bool of_groups(const struct fab_verb *v)
{
    return v->kind == FAB_WRITE && v->len == view_of(the, the->b)->shape.group_bytes;
}

/* The request of a merge. */
static int stop_merge(struct fab_ep *ep, struct fab_req *req)
{
    bool merges = req->count >= 12 && req->verbs[0].kind == FAB_WRITE &&
                  of_groups(&req->verbs[1]) && of_groups(&req->verbs[2]);
    if (!merges || stop_after == 0)
        return hook.real->post(ep, req);
    int rc = post_some(ep, req, stop_after);
    stop_after = 0;
    return rc;
}

static bool completes_merge(const struct fab_req *req)
{
    return req->count >= 6 && of_groups(&req->verbs[0]) &&
           (req->verbs[1].kind == FAB_CAS || of_groups(&req->verbs[1]));
}

/* The request of a recovery which completes a merge. */
static int stop_recovery(struct fab_ep *ep, struct fab_req *req)
{
    bool recovers = completes_merge(req);
    if (!recovers || stop_after == 0)
        return hook.real->post(ep, req);
    int rc = post_some(ep, req, stop_after);
    stop_after = 0;
    return rc;
}

static void hook_at(far_session *s, int (*post)(struct fab_ep *, struct fab_req *))
{
    hook_on(s->client.ep);
    hook.clock = the->r.clock->now;
    hook.ops.post = post;
}

static struct chime_spot spot_of(struct rig *g, far_session *s, uint64_t n)
{
    uint64_t key = __builtin_bswap64(n);
    struct chime_bound bound = chime_key_bound((struct slice){&key, 8});
    struct chime_wait wait = {0};
    struct chime_spot spot;
    assert_int_equal(op_begin(&s->op, NULL), FAR_OK);
    assert_int_equal(chime_descend(&s->op, view_of(g, s), &bound, 0, true, &wait, &spot), FAR_OK);
    op_end(&s->op);
    return spot;
}

/* 64 keys in 8 leaves. Of leaf 1 and leaf 2 so few are left that the next delete of key 14 merges
 * them. Session a dies in that merge after some verbs. */
static void die_in_merge(struct rig *g, unsigned verbs, struct chime_spot *left,
                         struct chime_spot *right)
{
    for (uint64_t n = 0; n < 64; n++)
        assert_int_equal(put_u64(g, g->b, n), FAR_OK);
    for (uint64_t n = 16; n < 22; n++)
        assert_int_equal(delete_u64(g, g->b, n), FAR_OK);
    for (uint64_t n = 8; n < 14; n++)
        assert_int_equal(delete_u64(g, g->b, n), FAR_OK);
    *left = spot_of(g, g->b, 15);
    *right = spot_of(g, g->b, 22);
    assert_true(left->name.at != right->name.at && left->parent == right->parent);
    uint64_t value;
    assert_int_equal(get_u64(g, g->a, 1, &value), FAR_OK);
    stop_after = verbs;
    hook_at(g->a, stop_merge);
    assert_int_equal(delete_u64(g, g->a, 14), FAR_OK);
    hook_off();
    assert_int_equal(stop_after, 0);
    store_rig_kill(g->a);
    g->a = NULL;
}

/* A merge was decided, and then its client died. Another one completes it, and dies when the right
 * node is dead, but the left one still names it. A third one recovers the parent. */
static void recover_and_die(unsigned verbs)
{
    struct rig g;
    struct chime_spot left, right;
    uint64_t value = 0, n = 64;
    const size_t next_at = offsetof(struct chime_head, next),
                 sum_at = offsetof(struct chime_head, sum);
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    die_in_merge(&g, 4, &left, &right);
    far_session *c = store_rig_join(&g.r);
    assert_int_equal(get_u64(&g, c, 1, &value), FAR_OK);
    stop_after = verbs;
    hook_at(c, stop_recovery);
    (void)get_u64(&g, c, 15, &value);
    hook_off();
    assert_int_equal(stop_after, 0);
    store_rig_kill(c);
    uint64_t sum = store_rig_get(&g.r, right.name.at, sum_at);
    int rc = FAR_OK;
    for (; n < 20000 && rc == FAR_OK && store_rig_get(&g.r, right.name.at, sum_at) == sum; n++)
        rc = put_u64(&g, g.b, n);
    bool named = chime_next_at(store_rig_get(&g.r, left.name.at, next_at)) == right.name.at;
    bool reused = store_rig_get(&g.r, right.name.at, sum_at) != sum;
    int first = get_u64(&g, g.b, 15, &value), second = get_u64(&g, g.b, 22, &value);
    assert_false(reused && named);
    assert_int_equal(first, FAR_OK);
    assert_int_equal(second, FAR_OK);
    assert_int_equal(far_table_check(g.b, g.t, NULL, NULL), FAR_OK);
    close_rig(&g);
}

static void a_dead_node_is_not_freed_while_its_sibling_names_it(void **state)
{
    (void)state;
    for (unsigned verbs = 1; verbs <= 7; verbs++)
        recover_and_die(verbs);
}

/* ---- a recovery that takes its time ---------------------------------------------------------- */

static int rc_between;
static uint64_t rtts_between;

/* While a session has the left node's lock and is about to write, another one wants the right
 * node. */
static int get_between(struct fab_ep *ep, struct fab_req *req)
{
    bool recovers = completes_merge(req);
    if (recovers && stop_after != 0) {
        uint64_t value;
        stop_after = 0;
        rc_between = get_u64(the, the->b, 22, &value);
        rtts_between = the->b->op.cost.rtts;
    }
    return hook.real->post(ep, req);
}

static void a_get_rests_while_another_session_recovers(void **state)
{
    struct rig g;
    struct chime_spot left, right;
    uint64_t value = 0;
    (void)state;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    die_in_merge(&g, 5, &left, &right);
    g.a = store_rig_join(&g.r);
    assert_int_equal(get_u64(&g, g.a, 1, &value), FAR_OK);
    stop_after = 1;
    hook_at(g.a, get_between);
    uint64_t before = g.r.clock->now;
    int rc = get_u64(&g, g.a, 15, &value);
    hook_off();
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(stop_after, 0);
    assert_true(g.r.clock->now - before >
                60000ull * 1000000); /* it has waited for leases, not for its attempts */
    close_rig(&g);
}

/* ---- no local memory ------------------------------------------------------------------------- */

static void *no_bulk(struct fab_ep *ep, size_t bytes)
{
    return bytes == CHIME_STAGING_BYTES ? NULL : hook.real->buf_alloc(ep, bytes);
}

static void a_split_without_local_memory_releases_its_lock(void **state)
{
    struct rig g;
    uint64_t n = 0, value = 0;
    (void)state;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    for (; n < 8; n++)
        assert_int_equal(put_u64(&g, g.b, n), FAR_OK);
    assert_int_equal(get_u64(&g, g.a, 1, &value), FAR_OK);
    hook_on(g.a->client.ep);
    hook.ops.buf_alloc = no_bulk;
    assert_int_equal(put_u64(&g, g.a, n), FAR_NO_MEMORY);
    hook_off();
    uint64_t lock = store_rig_get(&g.r, chime_top_at(view_of(&g, g.b)->top), 0);
    assert_true(lock == 0);
    close_rig(&g);
}

/* ---- names ----------------------------------------------------------------------------------- */

#define LONG_VALUE 300u

static size_t text_key(char *key, unsigned n)
{
    return (size_t)sprintf(key, "prefix00%02u", n);
}
static int put_text(struct rig *g, far_session *s, unsigned n)
{
    char key[16];
    static char value[LONG_VALUE];
    size_t len = text_key(key, n);
    return far_put(s, g->t, key, len, value, sizeof value);
}
static int get_text(struct rig *g, far_session *s, unsigned n)
{
    char key[16];
    static char value[LONG_VALUE];
    size_t len = text_key(key, n), got = 0;
    return far_get(s, g->t, key, len, value, sizeof value, &got);
}
static int delete_text(struct rig *g, far_session *s, unsigned n)
{
    char key[16];
    size_t len = text_key(key, n);
    return far_delete(s, g->t, key, len);
}
static struct chime_spot spot_of_text(struct rig *g, far_session *s, unsigned n)
{
    char key[16];
    size_t len = text_key(key, n);
    struct chime_bound bound = chime_key_bound((struct slice){key, len});
    struct chime_wait wait = {0};
    struct chime_spot spot;
    assert_int_equal(op_begin(&s->op, NULL), FAR_OK);
    assert_int_equal(chime_descend(&s->op, view_of(g, s), &bound, 0, true, &wait, &spot), FAR_OK);
    op_end(&s->op);
    return spot;
}

/* Takes all memory of the class. Returns whether `wanted` was a part of it. */
static bool take_all(struct op *op, unsigned size_class, gaddr wanted)
{
    bool found = false;
    gaddr at = 0;
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    while (pool_alloc(op, 0, size_class, &at) == FAR_OK)
        found |= at == wanted;
    op_end(op);
    return found;
}

/* A leaf with a long separator is merged, and its memory and that of its separator are used for the
 * same again. But the separator has other bytes. Another session still knows the old ones. */
static void a_name_tells_long_separators_apart(void **state)
{
    struct rig g;
    struct knobs knobs = pool_knobs_default;
    (void)state;
    knobs.generation_mask = 0;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0", knobs);
    for (unsigned n = 0; n < 32; n++)
        assert_int_equal(put_text(&g, g.b, n), FAR_OK);
    struct chime_spot old = spot_of_text(&g, g.b, 16);
    assert_true(old.name.low.lng != 0);
    assert_int_equal(get_text(&g, g.a, 16), FAR_OK);
    for (unsigned n = 16; n < 22; n++)
        assert_int_equal(delete_text(&g, g.b, n), FAR_OK);
    for (unsigned n = 8; n < 15; n++)
        assert_int_equal(delete_text(&g, g.b, n), FAR_OK);
    assert_true(spot_of_text(&g, g.b, 16).name.at != old.name.at);
    for (unsigned n = 16; n < 21; n++)
        assert_int_equal(put_text(&g, g.b, n), FAR_OK);
    struct op *op = &g.b->op;
    unsigned node_class = chime_node_class(&view_of(&g, g.b)->shape);
    unsigned block_class = size_class_for(block_bytes(10, LONG_VALUE));
    gaddr block = 0;
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    assert_int_equal(pool_alloc(op, 0, block_class, &block), FAR_OK);
    op_end(op);
    bool node_found = false, separator_found = false;
    for (unsigned i = 0; i < 100 && !(node_found && separator_found); i++) {
        node_found |= take_all(op, node_class, old.name.at);
        separator_found |=
            take_all(op, pointer_class(old.name.low.lng), pointer_gaddr(old.name.low.lng));
        assert_int_equal(get_text(&g, g.a, 1), FAR_OK);
        assert_int_equal(get_text(&g, g.b, 1), FAR_OK);
    }
    assert_true(node_found && separator_found);
    pool_free_unpublished(op->client, old.name.at, node_class);
    pool_free_unpublished(op->client, pointer_gaddr(old.name.low.lng),
                          pointer_class(old.name.low.lng));
    pool_free_unpublished(op->client, block, block_class);
    assert_int_equal(put_text(&g, g.b, 21), FAR_OK);
    assert_int_equal(spot_of_text(&g, g.b, 23).name.at, old.name.at);
    assert_int_equal(get_text(&g, g.b, 16), FAR_OK);
    int rc = get_text(&g, g.a, 16);
    assert_int_equal(rc, FAR_OK);
    close_rig(&g);
}

/* The session remembers this first child of an internal node that was at that address once, and
 * ended there. */
static void remember_old(struct rig *g, far_session *s, gaddr at, struct chime_child child,
                         gaddr next, uint64_t high)
{
    uint64_t words[16] = {0};
    struct index_cache_stamp long_ago = {.epoch = 0, .version = UINT64_MAX};
    struct chime_inner *n = (struct chime_inner *)words;
    assert_true(chime_inner_bytes(1) <= sizeof words);
    n->next = next;
    n->high.k = high;
    n->bytes = (uint32_t)chime_inner_bytes(1);
    n->count = n->level = 1;
    n->child[0] = child;
    for (unsigned i = 0; i < 100 && s->op.epoch == 0; i++) { /* so that it is doubted */
        uint64_t value;
        assert_int_equal(op_begin(&g->b->op, NULL), FAR_OK);
        (void)client_drive_epoch(&g->b->op);
        op_end(&g->b->op);
        assert_int_equal(get_u64(g, g->b, 2, &value), FAR_OK);
        assert_int_equal(get_u64(g, s, 2, &value), FAR_OK);
    }
    assert_true(s->op.epoch > 0);
    index_cache_drop(view_of(g, s)->cache, at);
    assert_true(index_cache_put(view_of(g, s)->cache, at, long_ago, n, n->bytes));
}

/* The last leaf of an internal node is split. A session does not know that. And what it knows of
 * the next internal node is from another one that was there before. That one began where the leaf
 * ends now, with a leaf at the same address. So the name that the session expects of the leaf is
 * right, but for another key. */
static void look_beyond_the_end(bool puts)
{
    struct rig g;
    uint64_t value = 0, n = 0;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    do {
        n += 2;
        assert_int_equal(put_u64(&g, g.b, n), FAR_OK);
    } while (spot_of(&g, g.b, 2).parent == spot_of(&g, g.b, n).parent);
    struct chime_spot right = spot_of(&g, g.b, n);
    uint64_t low = right.name.low.k;
    while (spot_of(&g, g.b, low).parent == right.parent)
        low = spot_of(&g, g.b, low).name.low.k - 2;
    struct chime_spot last = spot_of(&g, g.b, low); /* of the left parent */
    assert_int_equal(get_u64(&g, g.a, low, &value), FAR_OK);
    assert_int_equal(put_u64(&g, g.b, last.name.low.k + 1), FAR_OK); /* a split */
    struct chime_spot born = spot_of(&g, g.b, low);
    assert_true(born.name.at != last.name.at);
    remember_old(&g, g.a, right.parent, (struct chime_child){born.name.low.k, born.name.at}, 0, 0);
    if (puts)
        assert_int_equal(put_u64(&g, g.a, low + 1), FAR_OK);
    assert_int_equal(get_u64(&g, puts ? g.b : g.a, puts ? low + 1 : low, &value), FAR_OK);
    assert_int_equal(far_table_check(g.b, g.t, NULL, NULL), FAR_OK);
    close_rig(&g);
}

static void a_leaf_ends_where_its_parent_does(void **state)
{
    (void)state;
    look_beyond_the_end(false);
    look_beyond_the_end(true);
}

/* Two internal nodes. A session remembers one of them as another one that was there before, with a
 * higher beginning or a lower end. It looks for a key. */
static void look_by_an_old_node(bool end, bool scans)
{
    struct rig g;
    uint64_t value = 0, n = 0, from = 0;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    do {
        n += 2;
        assert_int_equal(put_u64(&g, g.b, n), FAR_OK);
    } while (spot_of(&g, g.b, 2).parent == spot_of(&g, g.b, n).parent);
    struct chime_spot first = spot_of(&g, g.b, 2), last = spot_of(&g, g.b, n);
    uint64_t wanted = end ? 20 : last.name.low.k - 2;
    assert_int_equal(spot_of(&g, g.b, wanted).parent, end ? first.parent : last.parent);
    assert_int_equal(get_u64(&g, g.a, wanted, &value), FAR_OK);
    assert_int_equal(get_u64(&g, g.a, n, &value), FAR_OK);
    if (end)
        remember_old(&g, g.a, first.parent, (struct chime_child){0, first.name.at}, last.parent,
                     10);
    else
        remember_old(&g, g.a, last.parent, (struct chime_child){last.name.low.k, last.name.at}, 0,
                     0);
    from = __builtin_bswap64(wanted);
    struct far_range range = {.from = &from, .from_len = 8, .limit = 1};
    char buf[64] = {0};
    size_t len = 0;
    if (scans)
        assert_int_equal(far_scan(g.a, g.t, &range, buf, sizeof buf, &len, NULL), FAR_OK);
    else
        assert_int_equal(get_u64(&g, g.a, wanted, &value), FAR_OK);
    assert_true(!scans || memcmp(buf + 8, &from, 8) == 0);
    close_rig(&g);
}

static void an_internal_node_begins_where_others_say(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++)
        look_by_an_old_node(i & 1, i & 2);
}

/* ---- what is remembered of a parent ---------------------------------------------------------- */

static gaddr parent_at;

/* The session has entered a leaf into its parent, and waits for the answer. Meanwhile another leaf
 * of that parent is merged, and an operation on the session's ring finds that the version has
 * changed. */
static int merge_between(struct fab_ep *ep, struct fab_req *req)
{
    int rc = hook.real->post(ep, req);
    bool enters = req->count >= 4 && req->verbs[0].kind == FAB_WRITE && req->verbs[0].len == 16 &&
                  req->verbs[0].off > gaddr_offset(parent_at) &&
                  req->verbs[0].off < gaddr_offset(parent_at) + view_of(the, the->b)->shape.bytes;
    if (!enters || stop_after == 0)
        return rc;
    stop_after = 0;
    assert_int_equal(delete_u64(the, the->b, 14), FAR_OK);
    struct cached *cached = &view_of(the, the->a)->base.cached;
    cached->version = store_rig_get(&the->r, cached->version_at, cached->version_delta);
    return rc;
}

static void what_is_remembered_is_as_old_as_it_is(void **state)
{
    struct rig g;
    uint64_t value = 0, n = 0;
    (void)state;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    for (; n < 56; n++)
        assert_int_equal(put_u64(&g, g.b, n), FAR_OK);
    for (uint64_t k = 16; k < 22; k++)
        assert_int_equal(delete_u64(&g, g.b, k), FAR_OK);
    for (uint64_t k = 8; k < 14; k++)
        assert_int_equal(delete_u64(&g, g.b, k), FAR_OK);
    struct chime_spot right = spot_of(&g, g.b, 22);
    parent_at = right.parent;
    assert_int_equal(get_u64(&g, g.a, 1, &value), FAR_OK);
    stop_after = 1;
    hook_at(g.a, merge_between);
    assert_int_equal(put_u64(&g, g.a, n++), FAR_OK);
    hook_off();
    assert_int_equal(stop_after, 0);
    assert_true(store_rig_get(&g.r, right.name.at, 0) == CHIME_DEAD);
    for (; n < 100000 && store_rig_get(&g.r, right.name.at, 0) == CHIME_DEAD; n++) {
        assert_int_equal(put_u64(&g, g.b, n), FAR_OK);
        assert_int_equal(get_u64(&g, g.a, 1, &value), FAR_OK);
    }
    for (uint64_t k = 0; k < 8; k++)
        assert_int_equal(put_u64(&g, g.b, n + k), FAR_OK);
    int rc = put_u64(&g, g.a, 21);
    rc = get_u64(&g, g.b, 21, &value);
    assert_int_equal(rc, FAR_OK);
    close_rig(&g);
}

/* ---- two that have died, one on the other ---------------------------------------------------- */

static gaddr merged_at; /* only the merge of this node stops */

static int stop_merge_of(struct fab_ep *ep, struct fab_req *req)
{
    bool merges = req->count >= 12 && req->verbs[0].kind == FAB_WRITE &&
                  req->verbs[0].off == gaddr_offset(merged_at) + offsetof(struct chime_head, state);
    if (!merges || stop_after == 0)
        return hook.real->post(ep, req);
    int rc = post_some(ep, req, stop_after);
    stop_after = 0;
    return rc;
}

/* Until the dead client is shut out. */
static void shut_out(struct rig *g, uint64_t owner)
{
    uint64_t value;
    bool alive = true;
    for (unsigned i = 0; i < 100 && alive; i++) {
        store_rig_pass(&g->r, 2000ull * 1000000);
        assert_int_equal(get_u64(g, g->a, 1, &value), FAR_OK);
        assert_int_equal(get_u64(g, g->b, 1, &value), FAR_OK);
        assert_int_equal(op_begin(&g->b->op, NULL), FAR_OK);
        (void)client_drive_epoch(&g->b->op);
        assert_int_equal(client_owner_alive(&g->b->op, owner, &alive), FAR_OK);
        op_end(&g->b->op);
    }
    assert_false(alive);
}

static void delete_and_die(struct rig *g, uint64_t n, gaddr right, unsigned verbs)
{
    uint64_t value;
    far_session *s = store_rig_join(&g->r);
    assert_int_equal(get_u64(g, s, 1, &value), FAR_OK);
    merged_at = right;
    stop_after = verbs;
    hook_at(s, stop_merge_of);
    assert_int_equal(delete_u64(g, s, n), FAR_OK);
    hook_off();
    assert_int_equal(stop_after, 0);
    uint64_t owner = client_owner_word(&s->client);
    store_rig_kill(s);
    shut_out(g, owner);
}

/* A client dies when it has merged two internal nodes, but for the parent. The left one is
 * recovered. Another client dies when it has merged two of its leaves, but for the left one itself.
 * Then the right one is recovered. */
static void the_partner_of_a_node_is_recovered_with_its_children(void **state)
{
    struct rig g;
    uint64_t value = 0;
    (void)state;
    open_rig(&g, "mem:?size=1m&clients=16", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    for (uint64_t n = 0; n < 128; n++)
        assert_int_equal(put_u64(&g, g.b, n), FAR_OK);
    for (uint64_t n = 111; n >= 73; n--)
        assert_int_equal(delete_u64(&g, g.b, n), FAR_OK);
    for (uint64_t n = 127; n >= 114; n--)
        assert_int_equal(delete_u64(&g, g.b, n), FAR_OK);
    gaddr left = spot_of(&g, g.b, 72).parent, right = spot_of(&g, g.b, 112).parent;
    assert_true(left != right);
    delete_and_die(&g, 113, right, 7);
    for (uint64_t n = 73; n <= 80; n++) /* the split recovers the left one */
        assert_int_equal(put_u64(&g, g.b, n), FAR_OK);
    assert_true(store_rig_get(&g.r, left, 0) == 0);
    for (uint64_t n = 80; n >= 78; n--)
        assert_int_equal(delete_u64(&g, g.b, n), FAR_OK);
    gaddr leaf = chime_next_at(
        store_rig_get(&g.r, spot_of(&g, g.b, 76).name.at, offsetof(struct chime_head, next)));
    delete_and_die(&g, 77, leaf, 4);
    assert_true(store_rig_get(&g.r, left, 0) != 0 && store_rig_get(&g.r, leaf, 0) != 0);
    int rc = get_u64(&g, g.a, 112, &value);
    rc = put_u64(&g, g.a, 112);
    for (unsigned i = 0; i < 3 && rc != FAR_OK; i++)
        rc = put_u64(&g, g.a, 112);
    int got = get_u64(&g, g.b, 112, &value);
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(got, FAR_OK);
    close_rig(&g);
}

/* ---- cursors --------------------------------------------------------------------------------- */

/* A client dies when it has merged two leaves, but for the lock of the right one. The left one is
 * merged and freed, too. An iteration has come to the right one before. */
static void an_iteration_passes_a_leaf_whose_merge_nobody_ended(void **state)
{
    struct rig g;
    struct chime_spot left, right;
    uint64_t value = 0, n = 64;
    (void)state;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    die_in_merge(&g, 9, &left, &right);
    g.a = store_rig_join(&g.r);
    shut_out(&g, store_rig_get(&g.r, right.name.at, 0));
    uint64_t range[4] = {22 - 6, 0, 0, 0};
    uint64_t check = hash_sum(range, sizeof range, view_of(&g, g.b)->seed ^ 0x6368696d65637572ull);
    uint64_t cursor = right.name.at | (check & 0xfff) << (GADDR_BITS + 12);
    for (uint64_t k = 0; k < 7; k++)
        assert_int_equal(delete_u64(&g, g.b, k), FAR_OK);
    assert_int_equal(put_u64(&g, g.b, 15), FAR_OK); /* the left one is recovered */
    for (; n < 80; n++)
        assert_int_equal(put_u64(&g, g.b, n), FAR_OK);
    assert_int_equal(put_u64(&g, g.b, 6), FAR_OK);
    assert_int_equal(delete_u64(&g, g.b, 6), FAR_OK); /* merges */
    int rc = FAR_OK;
    bool taken = false;
    for (unsigned i = 0; i < 100 && !taken; i++) {
        taken = take_all(&g.b->op, chime_node_class(&view_of(&g, g.b)->shape), left.name.at);
        assert_int_equal(get_u64(&g, g.a, 7, &value), FAR_OK);
        assert_int_equal(get_u64(&g, g.b, 7, &value), FAR_OK);
    }
    assert_true(taken);
    for (size_t at = 0; at < sizeof(struct chime_head); at += 8) /* it is a block now */
        store_rig_set(&g.r, left.name.at, at, 0x1111);
    char buf[4096];
    size_t len = 0;
    rc = far_iterate(g.b, g.t, &cursor, 0, buf, sizeof buf, &len);
    assert_int_equal(rc, FAR_OK);
    close_rig(&g);
}

/* An iteration has returned one of several keys with the same turn. Its leaf is gone, and another
 * leaf that was in the same memory since is dead, too. That one had higher keys. */
static void an_iteration_among_keys_of_one_turn_does_not_trust_a_dead_leaf(void **state)
{
    struct rig g;
    bool found[24] = {false};
    (void)state;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    for (uint64_t n = 0; n < 24; n++)
        assert_int_equal(put_u64(&g, g.b, n), FAR_OK);
    gaddr leaf = spot_of(&g, g.b, 16).name.at;
    for (uint64_t n = 18; n < 24; n++)
        assert_int_equal(delete_u64(&g, g.b, n), FAR_OK);
    for (uint64_t n = 9; n < 16; n++)
        assert_int_equal(delete_u64(&g, g.b, n), FAR_OK);
    assert_true(store_rig_get(&g.r, leaf, 0) == CHIME_DEAD);
    uint64_t cursor = leaf | 7ull << GADDR_BITS | 1ull << (GADDR_BITS + 9) | 0x123ull << 52;
    do {
        char buf[4096];
        size_t len = 0;
        struct far_entry entry;
        assert_int_equal(far_iterate(g.b, g.t, &cursor, 0, buf, sizeof buf, &len), FAR_OK);
        for (size_t at = 0; far_entry_next(buf, len, &at, &entry);)
            found[((const unsigned char *)entry.key)[7]] = true;
    } while (cursor != 0);
    for (unsigned n = 0; n < 9; n++)
        assert_true(found[n]);
    close_rig(&g);
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* One bit of a leaf's lock is wrong: it looks dead. Its parent is recovered. */
static void a_leaf_that_only_looks_dead_is_not_freed(void **state)
{
    struct rig g;
    struct chime_spot left, right;
    uint64_t value = 0;
    (void)state;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    die_in_merge(&g, 1, &left, &right);
    g.a = store_rig_join(&g.r);
    shut_out(&g, store_rig_get(&g.r, right.name.at, 0));
    gaddr leaf = spot_of(&g, g.b, 40).name.at;
    store_rig_set(&g.r, leaf, 0, CHIME_DEAD);
    (void)put_u64(&g, g.b, 64); /* the split recovers the parent */
    assert_true(store_rig_get(&g.r, left.parent, 0) == 0);
    store_rig_set(&g.r, leaf, 0, 0);
    assert_int_equal(get_u64(&g, g.a, 40, &value), FAR_OK);
    bool named = false;
    for (size_t i = 0; i < view_of(&g, g.b)->shape.bytes; i += 8)
        named |= store_rig_get(&g.r, left.parent, i) == leaf;
    assert_true(named);
    close_rig(&g);
}

/* ---- what a session has retired itself ------------------------------------------------------- */

static gaddr retired_leaf;
static unsigned followed; /* READs of it that take it for valid */

static int count_followed(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count; i++) {
        const struct fab_verb *v = &req->verbs[i];
        followed += v->kind == FAB_READ && !(v->flags & FAB_MAY_BE_FREED) &&
                    v->node == gaddr_node(retired_leaf) &&
                    v->off - gaddr_offset(retired_leaf) < view_of(the, the->b)->shape.bytes;
    }
    return hook.real->post(ep, req);
}

/* Session a has cached a node that b splits behind it, and then merges two children of the new
 * half. Its image of the old half still names the leaf that is dead now (CACHE-K6). */
static void follow_an_old_image(bool below)
{
    static char buf[4096];
    struct rig g;
    uint64_t value = 0, from = 0;
    followed = 0;
    size_t len = 0;
    bool more = false;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    for (uint64_t n = 0; n < 64; n++)
        assert_int_equal(put_u64(&g, g.b, 16 * n), FAR_OK);
    assert_int_equal(get_u64(&g, g.a, 16 * 63, &value), FAR_OK);
    gaddr old = spot_of(&g, g.a, 16 * 63).parent;
    for (uint64_t n = 1; n < 4; n++)
        assert_int_equal(put_u64(&g, g.b, n), FAR_OK);
    uint64_t old_top = view_of(&g, g.a)->top;
    assert_int_equal(op_begin(&g.a->op, NULL), FAR_OK);
    assert_int_equal(chime_forget(&g.a->op, view_of(&g, g.a), 0), FAR_OK);
    op_end(&g.a->op);
    retired_leaf = spot_of(&g, g.a, 16 * 55).name.at; /* the last but one */
    assert_true(spot_of(&g, g.a, 16 * 55).parent != old);
    for (uint64_t n = 55; n >= 40; n--)
        if (n % 8 != 0)
            assert_int_equal(delete_u64(&g, g.a, 16 * n), FAR_OK);
    assert_true(spot_of(&g, g.b, 16 * 48).name.at != retired_leaf);
    for (unsigned i = 0; i < 32; i++) /* the epoch goes on */
        assert_int_equal(get_u64(&g, i % 2 ? g.a : g.b, 16 * 63, &value), FAR_OK);
    hook_at(g.a, count_followed);
    struct far_range range = {.from = &from, .from_len = 8, .limit = 200};
    if (below) /* what is above the node is as old */
        view_of(&g, g.a)->top = old_top;
    int rc = below ? get_u64(&g, g.a, 16 * 48, &value)
                   : far_scan(g.a, g.t, &range, buf, sizeof buf, &len, &more);
    hook_off();
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(followed, 0);
    close_rig(&g);
}

static void an_old_image_does_not_lead_a_scan_to_what_its_session_has_retired(void **state)
{
    (void)state;
    follow_an_old_image(false);
}

static void an_old_image_does_not_lead_down_to_what_its_session_has_retired(void **state)
{
    (void)state;
    follow_an_old_image(true);
}

/* ---- what a recovery leaves behind ----------------------------------------------------------- */

static int put_value(struct rig *g, far_session *s, uint64_t n, uint64_t value)
{
    uint64_t key = __builtin_bswap64(n);
    return far_put(s, g->t, &key, sizeof key, &value, sizeof value);
}

/* A get writes that much only if it recovers something. */
static int stop_writes(struct fab_ep *ep, struct fab_req *req)
{
    if (stop_after == 0 || req->count < 5 || req->verbs[0].kind != FAB_WRITE)
        return hook.real->post(ep, req);
    unsigned end = stop_after;
    stop_after = 0;
    return post_some(ep, req, end);
}

/* A merge was decided, and its client died. Another one completes it, and dies after some verbs, or
 * not if that is 0. Then a key of the right leaf gets another value. A session that still knows the
 * right leaf must not find the old value there. */
static void read_after_recovery(unsigned verbs)
{
    struct rig g;
    struct chime_spot left, right;
    uint64_t value = 0;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    die_in_merge(&g, 4, &left, &right);
    far_session *c = store_rig_join(&g.r), *reader = store_rig_join(&g.r);
    assert_int_equal(get_u64(&g, reader, 22, &value), FAR_OK);
    assert_int_equal(get_u64(&g, c, 1, &value), FAR_OK);
    stop_after = verbs;
    hook_at(c, stop_writes);
    (void)get_u64(&g, c, 15, &value);
    hook_off();
    assert_int_equal(stop_after, 0);
    store_rig_kill(c);
    assert_int_equal(put_value(&g, g.b, 22, 1000), FAR_OK);
    int rc = get_u64(&g, reader, 22, &value);
    far_session_close(reader);
    close_rig(&g);
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(value, 1000);
}

static void nobody_reads_a_node_whose_merge_others_completed(void **state)
{
    (void)state;
    for (unsigned verbs = 0; verbs <= 7; verbs++)
        read_after_recovery(verbs);
}

/* The left leaf was recovered, and the right one is dead. The parent, which the dead client holds,
 * still names it. */
static void leave_dead_child(struct rig *g, struct chime_spot *left, struct chime_spot *right)
{
    die_in_merge(g, 4, left, right);
    assert_int_equal(put_value(g, g->b, 15, 15), FAR_OK);
    assert_true(store_rig_get(&g->r, right->name.at, 0) == CHIME_DEAD);
    assert_true(store_rig_get(&g->r, left->parent, 0) != 0);
}

static void a_dead_child_is_retired(void **state)
{
    struct rig g;
    struct chime_spot left, right;
    uint64_t value = 0;
    (void)state;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    leave_dead_child(&g, &left, &right);
    uint64_t before = g.b->client.stock.retired_ever;
    assert_int_equal(get_u64(&g, g.b, 22, &value), FAR_OK);
    assert_true(store_rig_get(&g.r, left.parent, 0) == 0);
    uint64_t retired = g.b->client.stock.retired_ever - before;
    assert_int_equal(retired, size_class_bytes(chime_node_class(&view_of(&g, g.b)->shape)));
    close_rig(&g);
}

/* Another session learns of the table, and reads the parent, before its recovery writes it. */
static int learn_between(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t value = 0;
    bool writes = of_groups(&req->verbs[0]) && stop_after != 0 &&
                  req->verbs[0].off == gaddr_offset(parent_at) + chime_group_at(0);
    if (writes) {
        stop_after = 0;
        assert_int_equal(get_u64(the, the->a, 1, &value), FAR_OK);
    }
    return hook.real->post(ep, req);
}

/* A recovery takes a dead child out of its parent. Whatever was cached of the parent before that
 * becomes old (CHIME-C10). */
static void a_recovery_outdates_caches_after_its_change(void **state)
{
    struct rig g;
    struct chime_spot left, right;
    uint64_t value = 0, n = 64;
    (void)state;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    leave_dead_child(&g, &left, &right);
    g.a = store_rig_join(&g.r);
    parent_at = left.parent;
    stop_after = 1;
    hook_at(g.b, learn_between);
    assert_int_equal(get_u64(&g, g.b, 22, &value), FAR_OK);
    hook_off();
    assert_int_equal(stop_after, 0);
    for (; n < 100000 && store_rig_get(&g.r, right.name.at, 0) == CHIME_DEAD; n++) {
        assert_int_equal(put_u64(&g, g.b, n), FAR_OK);
        assert_int_equal(get_u64(&g, g.a, 1, &value), FAR_OK);
    }
    for (uint64_t k = 0; k < 8; k++)
        assert_int_equal(put_u64(&g, g.b, n + k), FAR_OK);
    assert_int_equal(put_u64(&g, g.a, 21), FAR_OK);
    assert_int_equal(get_u64(&g, g.b, 21, &value), FAR_OK);
    close_rig(&g);
}

/* A client wants to enter a leaf that it has split off. Others did so since, and merged it again.
 * The client that merged died when only the lock of the leaf did not say so. */
static void a_merged_leaf_is_not_entered(void **state)
{
    struct rig g;
    struct chime_spot left, right;
    struct chime_wait wait = {0};
    bool named = false;
    (void)state;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    die_in_merge(&g, 9, &left, &right);
    g.a = store_rig_join(&g.r);
    shut_out(&g, store_rig_get(&g.r, right.name.at, 0));
    struct chime_child_ref child = {.at = right.name.at, .k = right.name.low.k};
    assert_int_equal(op_begin(&g.b->op, NULL), FAR_OK);
    int rc = chime_enter(&g.b->op, view_of(&g, g.b), &child, &wait);
    op_end(&g.b->op);
    assert_int_equal(rc, FAR_OK);
    assert_true(store_rig_get(&g.r, right.name.at, 0) != CHIME_DEAD);
    uint64_t image[CHIME_HEAD_WORDS + CHIME_GROUP_WORDS * CHIME_GROUPS_MAX];
    for (unsigned w = 0; w < view_of(&g, g.b)->shape.bytes / 8; w++)
        image[w] = store_rig_get(&g.r, left.parent, 8 * (uint64_t)w);
    for (unsigned p = 0; p < view_of(&g, g.b)->shape.span; p++)
        named |=
            chime_kind_at(image, p) != CHIME_EMPTY && chime_entry(image, p)[1] == right.name.at;
    assert_false(named);
    close_rig(&g);
}

/* ---- a leaf that its parent does not know ---------------------------------------------------- */

/* The parent's lock cannot be taken. */
static int refuse_parent(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *v = &req->verbs[0];
    bool locks = v->kind == FAB_CAS && v->off == gaddr_offset(parent_at);
    stop_after -= locks && stop_after > 0;
    return locks ? FAR_UNREACHABLE : hook.real->post(ep, req);
}

static void a_merge_takes_only_neighbours(void **state)
{
    struct rig g;
    uint64_t value = 0;
    (void)state;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    for (uint64_t n = 0; n < 64; n++)
        assert_int_equal(put_u64(&g, g.b, 2 * n), FAR_OK);
    assert_int_equal(get_u64(&g, g.a, 0, &value), FAR_OK);
    parent_at = spot_of(&g, g.b, 16).parent;
    stop_after = 1;
    hook_at(g.a, refuse_parent);
    assert_int_equal(put_u64(&g, g.a, 17), FAR_OK); /* 24 to 30 are in a new leaf */
    hook_off();
    assert_int_equal(stop_after, 0);
    for (uint64_t n = 34; n <= 44; n += 2)
        assert_int_equal(delete_u64(&g, g.b, n), FAR_OK);
    assert_int_equal(delete_u64(&g, g.b, 17), FAR_OK);
    for (uint64_t n = 18; n <= 22; n += 2)
        assert_int_equal(delete_u64(&g, g.b, n), FAR_OK);
    for (uint64_t n = 24; n <= 32; n += 2)
        assert_int_equal(get_u64(&g, g.b, n, &value), FAR_OK);
    assert_int_equal(far_table_check(g.b, g.t, NULL, NULL), FAR_OK);
    close_rig(&g);
}

/* ---- sweeps ---------------------------------------------------------------------------------- */

/* The client that merged may have died before it changed the version of caches (CHIME-C10). */
static void a_sweep_outdates_caches(void **state)
{
    struct rig g;
    struct sweep_result swept;
    (void)state;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    far_session_close(g.a);
    g.a = NULL;
    assert_int_equal(put_u64(&g, g.b, 1), FAR_OK);
    const struct cached *cached = &view_of(&g, g.b)->base.cached;
    uint64_t version = store_rig_get(&g.r, cached->version_at, cached->version_delta);
    assert_int_equal(pool_sweep(&g.b->op, &swept), FAR_OK);
    assert_true(store_rig_get(&g.r, cached->version_at, cached->version_delta) != version);
    close_rig(&g);
}

/* A client dies while it merges two leaves, whose keys all begin with the same 8 bytes. The left
 * leaf was recovered. A sweep finds the dead leaf and its separator only by the parent. */
static void a_sweep_spares_a_dead_child(void **state)
{
    struct rig g;
    struct sweep_result swept;
    (void)state;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    for (unsigned n = 0; n < 64; n++)
        assert_int_equal(put_text(&g, g.b, n), FAR_OK);
    for (unsigned n = 16; n < 22; n++)
        assert_int_equal(delete_text(&g, g.b, n), FAR_OK);
    for (unsigned n = 8; n < 14; n++)
        assert_int_equal(delete_text(&g, g.b, n), FAR_OK);
    struct chime_spot right = spot_of_text(&g, g.b, 22);
    assert_true(right.name.low.lng != 0);
    assert_int_equal(get_text(&g, g.a, 1), FAR_OK);
    stop_after = 4;
    hook_at(g.a, stop_merge);
    assert_int_equal(delete_text(&g, g.a, 14), FAR_OK);
    hook_off();
    assert_int_equal(stop_after, 0);
    store_rig_kill(g.a);
    g.a = NULL;
    assert_int_equal(put_text(&g, g.b, 15), FAR_OK);
    assert_true(store_rig_get(&g.r, right.name.at, 0) == CHIME_DEAD);
    assert_int_equal(pool_sweep(&g.b->op, &swept), FAR_OK);
    assert_true(store_rig_get(&g.r, right.parent, 0) != 0);
    struct op *op = &g.b->op;
    uint64_t lng = right.name.low.lng;
    assert_false(take_all(op, chime_node_class(&view_of(&g, g.b)->shape), right.name.at));
    assert_false(take_all(op, pointer_class(lng), pointer_gaddr(lng)));
    close_rig(&g);
}

/* The separator of a leaf that its parent does not know is named only by the leaf, and by its left
 * sibling. */
static void a_sweep_spares_the_separator_of_an_unknown_leaf(void **state)
{
    struct rig g;
    struct sweep_result swept;
    (void)state;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    for (unsigned n = 0; n < 64; n++)
        assert_int_equal(put_text(&g, g.b, n), FAR_OK);
    assert_int_equal(get_text(&g, g.a, 1), FAR_OK);
    parent_at = spot_of_text(&g, g.b, 63).parent;
    stop_after = 1;
    hook_at(g.a, refuse_parent);
    assert_int_equal(put_text(&g, g.a, 64), FAR_OK);
    hook_off();
    assert_int_equal(stop_after, 0);
    far_session_close(g.a);
    g.a = NULL;
    uint64_t lng =
        store_rig_get(&g.r, spot_of_text(&g, g.b, 63).name.at,
                      offsetof(struct chime_head, high) + offsetof(struct chime_edge, lng));
    assert_true(lng != 0);
    assert_int_equal(pool_sweep(&g.b->op, &swept), FAR_OK);
    assert_false(take_all(&g.b->op, pointer_class(lng), pointer_gaddr(lng)));
    close_rig(&g);
}

/* ---- resting --------------------------------------------------------------------------------- */

static far_session *auditor; /* NULL: it was met */
static gaddr locked_at;

/* The operation rests: nothing is in its hands that a sweep would not find. Then the lock is
 * free. */
static void audit_while_resting(struct fab_ep *ep, uint64_t ns)
{
    struct audit a;
    (void)ep;
    the->r.clock->now += ns;
    hook.clock = the->r.clock->now;
    if (op_in_flight(&the->b->op) || !auditor)
        return;
    struct op *op = &auditor->op;
    far_session *sessions[] = {auditor, the->a, the->b};
    auditor = NULL;
    expect_sound(&the->r, sessions, 3, &a);
    assert_int_equal(a.bytes[AUDIT_NOWHERE], 0);
    op->word[0] = 0;
    batch_write(&op->batch, locked_at, 0, op->word, 8);
    assert_int_equal(batch_flush(&op->batch), FAR_OK);
}

/* A change has written its block, and rests because somebody holds the lock. */
static void a_change_has_no_block_while_it_rests(void **state)
{
    struct rig g;
    (void)state;
    open_rig(&g, "mem:?size=1m&clients=8&" HOUR, "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    far_session *c = auditor = store_rig_join(&g.r);
    for (unsigned n = 0; n < 8; n++)
        assert_int_equal(put_text(&g, g.b, n), FAR_OK);
    assert_int_equal(get_text(&g, g.a, 1), FAR_OK);
    assert_int_equal(get_text(&g, c, 1), FAR_OK);
    locked_at = spot_of_text(&g, g.b, 1).name.at;
    store_rig_set(&g.r, locked_at, 0, client_owner_word(&g.a->client));
    hook_at(g.b, g.b->client.ep->ops->post);
    hook.ops.pause = audit_while_resting;
    int rc = put_text(&g, g.b, 3);
    hook_off();
    assert_int_equal(rc, FAR_OK);
    assert_null(auditor);
    far_session_close(c);
    close_rig(&g);
}

/* The same, when the leaf is to be entered into its parent, and somebody holds that. */
static void a_change_has_no_block_while_it_waits_for_a_parent(void **state)
{
    struct rig g;
    struct knobs knobs = pool_knobs_default;
    (void)state;
    knobs.patience = 8;
    open_rig(&g, "mem:?size=1m&clients=8&" HOUR, "span=8&neighbourhood=8&cache=16&hot=0", knobs);
    far_session *c = auditor = store_rig_join(&g.r);
    for (unsigned n = 0; n < 56; n++)
        assert_int_equal(put_text(&g, g.b, n), FAR_OK);
    assert_int_equal(get_text(&g, g.a, 1), FAR_OK);
    assert_int_equal(get_text(&g, c, 1), FAR_OK);
    locked_at = parent_at = spot_of_text(&g, g.b, 55).parent;
    stop_after = 1;
    hook_at(g.a, refuse_parent);
    assert_int_equal(put_text(&g, g.a, 56), FAR_OK);
    hook_off();
    assert_int_equal(stop_after, 0);
    store_rig_set(&g.r, locked_at, 0, client_owner_word(&g.a->client));
    hook_at(g.b, g.b->client.ep->ops->post);
    hook.ops.pause = audit_while_resting;
    int rc = put_text(&g, g.b, 57);
    hook_off();
    assert_int_equal(rc, FAR_OK);
    assert_null(auditor);
    far_session_close(c);
    close_rig(&g);
}

/* ---- a scan during a merge ------------------------------------------------------------------- */

static char scanned[65536];

/* Returns how many bytes it has found. */
static int scan_all(struct actor *a, uint64_t key, uint64_t value)
{
    struct far_range range = {0};
    size_t len = 0;
    bool more = true;
    (void)key;
    (void)value;
    int rc = far_scan(a->s, a->t, &range, scanned, sizeof scanned, &len, &more);
    a->found = len;
    return rc;
}

/* The first two leaves are read. Then the third is merged into the second. */
static void a_scan_leaves_out_what_it_has_passed(void **state)
{
    struct rig g;
    static struct actor A;
    size_t pos = 0;
    struct far_entry e, last = {0};
    (void)state;
    open_rig(&g, "mem:?size=1m&clients=8", "span=8&neighbourhood=8&cache=16&hot=0",
             pool_knobs_default);
    for (unsigned n = 0; n < 64; n++)
        assert_int_equal(put_text(&g, g.b, n), FAR_OK);
    for (unsigned n = 16; n < 22; n++)
        assert_int_equal(delete_text(&g, g.b, n), FAR_OK);
    for (unsigned n = 8; n < 14; n++)
        assert_int_equal(delete_text(&g, g.b, n), FAR_OK);
    assert_int_equal(get_text(&g, g.a, 1), FAR_OK);
    gaddr right = spot_of_text(&g, g.b, 22).name.at;
    actor_set(&A, &g.r, g.a, g.t);
    actor_reach(
        &A,
        (struct place){A_READ, .nth = 3, .len = view_of(&g, g.b)->shape.group_bytes, .least = 4},
        scan_all, 0, 0);
    expect_ok(delete_text(&g, g.b, 14));
    assert_true(store_rig_get(&g.r, right, 0) == CHIME_DEAD);
    expect_ok(actor_go_on(&A));
    for (; far_entry_next(scanned, A.found, &pos, &e); last = e)
        assert_true(!last.key || memcmp(last.key, e.key, 10) < 0);
    fiber_destroy(A.fiber);
    close_rig(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_behind_an_unknown_split_can_be_used_in_a_full_pool),
        cmocka_unit_test(a_session_learns_that_the_tree_has_grown),
        cmocka_unit_test(a_dead_node_is_not_freed_while_its_sibling_names_it),
        cmocka_unit_test(a_get_rests_while_another_session_recovers),
        cmocka_unit_test(a_split_without_local_memory_releases_its_lock),
        cmocka_unit_test(a_name_tells_long_separators_apart),
        cmocka_unit_test(a_leaf_ends_where_its_parent_does),
        cmocka_unit_test(an_internal_node_begins_where_others_say),
        cmocka_unit_test(what_is_remembered_is_as_old_as_it_is),
        cmocka_unit_test(the_partner_of_a_node_is_recovered_with_its_children),
        cmocka_unit_test(an_iteration_passes_a_leaf_whose_merge_nobody_ended),
        cmocka_unit_test(an_iteration_among_keys_of_one_turn_does_not_trust_a_dead_leaf),
        cmocka_unit_test(a_leaf_that_only_looks_dead_is_not_freed),
        cmocka_unit_test(an_old_image_does_not_lead_a_scan_to_what_its_session_has_retired),
        cmocka_unit_test(an_old_image_does_not_lead_down_to_what_its_session_has_retired),
        cmocka_unit_test(nobody_reads_a_node_whose_merge_others_completed),
        cmocka_unit_test(a_dead_child_is_retired),
        cmocka_unit_test(a_recovery_outdates_caches_after_its_change),
        cmocka_unit_test(a_merged_leaf_is_not_entered),
        cmocka_unit_test(a_merge_takes_only_neighbours),
        cmocka_unit_test(a_sweep_outdates_caches),
        cmocka_unit_test(a_sweep_spares_a_dead_child),
        cmocka_unit_test(a_sweep_spares_the_separator_of_an_unknown_leaf),
        cmocka_unit_test(a_change_has_no_block_while_it_rests),
        cmocka_unit_test(a_change_has_no_block_while_it_waits_for_a_parent),
        cmocka_unit_test(a_scan_leaves_out_what_it_has_passed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
