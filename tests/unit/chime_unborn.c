/* A node of CHIME that was never born: its client has written it, and died before the left sibling
 * named it. An earlier node had the same address, the same range and the same sibling, and others
 * still know that one. Or it came too late. */
#include "index/chime/chime.h"
#include "support/hook.h"
#include "support/sweep_rig.h"

struct rig {
    struct store_rig r;
    far_session *a, *b; /* a knows the earlier node; b is r.session */
    far_table *t;
    gaddr left, node; /* the node was split off the left one */
    uint64_t cursor;  /* of an iteration that has come to the node */
};

static void open_rig(struct rig *g)
{
    struct far_table_options options = {.tuning = "span=8&neighbourhood=8&cache=16&hot=0",
                                        .hash_seed = 3};
    struct knobs knobs = pool_knobs_default;
    knobs.tick_ops = 1;
    store_rig_open_driven(&g->r, "mem:?size=1m&clients=8", &knobs, NULL, NULL);
    g->b = g->r.session;
    g->a = store_rig_join(&g->r);
    assert_int_equal(far_table_create(g->b, "s", "chime", &options, &g->t), FAR_OK);
}

static void close_rig(struct rig *g)
{
    far_session_close(g->a);
    store_rig_close(&g->r);
}

static int put_u64(struct rig *g, far_session *s, uint64_t n, uint64_t value)
{
    uint64_t key = __builtin_bswap64(n);
    return far_put(s, g->t, &key, sizeof key, &value, sizeof value);
}
static int get_u64(struct rig *g, far_session *s, uint64_t n, uint64_t *value)
{
    uint64_t key = __builtin_bswap64(n);
    size_t len = 0;
    return far_get(s, g->t, &key, sizeof key, value, sizeof *value, &len);
}
static void delete_range(struct rig *g, uint64_t from, uint64_t to)
{
    for (; from < to; from++) {
        uint64_t key = __builtin_bswap64(from);
        assert_int_equal(far_delete(g->b, g->t, &key, sizeof key), FAR_OK);
    }
}
static struct chime_view *view_of(struct rig *g, far_session *s)
{
    return chime_view(store_known(s, g->t)->view);
}

static gaddr leaf_of(struct rig *g, uint64_t n)
{
    uint64_t key = __builtin_bswap64(n);
    struct chime_bound bound = chime_key_bound((struct slice){&key, 8});
    struct chime_wait wait = {0};
    struct chime_spot spot;
    struct op *op = &g->b->op;
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    assert_int_equal(chime_descend(op, view_of(g, g->b), &bound, 0, true, &wait, &spot), FAR_OK);
    op_end(op);
    return spot.name.at;
}

/* An iteration by keys alone, which has room for one leaf, comes to the second one. */
static uint64_t iterate_to_the_second_leaf(struct rig *g)
{
    char buf[8 * 16];
    uint64_t cursor = 0;
    size_t len = 0;
    assert_int_equal(far_iterate(g->b, g->t, &cursor, FAR_KEYS_ONLY, buf, sizeof buf, &len),
                     FAR_OK);
    return cursor;
}

/* Takes the freed node's memory, and gives it to the session, which will use it next. */
static void take_memory(struct rig *g, far_session *to)
{
    unsigned size_class = chime_node_class(&view_of(g, g->b)->shape);
    struct op *op = &g->b->op;
    bool found = false;
    uint64_t value;
    for (unsigned i = 0; i < 100 && !found; i++) {
        gaddr at = 0;
        assert_int_equal(op_begin(op, NULL), FAR_OK);
        while (pool_alloc(op, 0, size_class, &at) == FAR_OK)
            found |= at == g->node;
        op_end(op);
        assert_int_equal(get_u64(g, g->a, 20, &value), FAR_OK);
        assert_int_equal(get_u64(g, g->b, 20, &value), FAR_OK);
        assert_int_equal(get_u64(g, to, 20, &value), FAR_OK);
    }
    assert_true(found);
    pool_free_unpublished(&to->client, g->node, size_class);
}

static unsigned stop_after; /* verbs of the split that happen; 0: it was met */
static uint32_t node_bytes;

static int stop_split(struct fab_ep *ep, struct fab_req *req)
{
    bool splits = req->verbs[0].kind == FAB_WRITE && req->verbs[0].len == node_bytes;
    if (!splits || stop_after == 0)
        return hook.real->post(ep, req);
    unsigned count = req->count;
    req->count = stop_after;
    int rc = hook.real->post(ep, req);
    req->count = count;
    req->status = FAR_TIMEOUT;
    stop_after = 0;
    return rc;
}

/* Leaves of the keys 0 to 7, 8 to 15, and 16 to 23. The second one is merged into the first one.
 * Then the first one is split in the same way, and the new leaf is where the second one was. But
 * the split fails after some verbs. */
static far_session *fail_in_split(struct rig *g, unsigned verbs)
{
    uint64_t value = 0;
    for (uint64_t n = 0; n < 24; n++)
        assert_int_equal(put_u64(g, g->b, n, n), FAR_OK);
    assert_int_equal(get_u64(g, g->a, 9, &value), FAR_OK);
    g->left = leaf_of(g, 0);
    g->node = leaf_of(g, 9);
    g->cursor = iterate_to_the_second_leaf(g);
    delete_range(g, 11, 16);
    delete_range(g, 1, 8);
    assert_int_equal(leaf_of(g, 9), g->left);
    far_session *s = store_rig_join(&g->r);
    assert_int_equal(get_u64(g, s, 20, &value), FAR_OK);
    take_memory(g, s);
    for (uint64_t n = 1; n < 4; n++)
        assert_int_equal(put_u64(g, g->b, n, n), FAR_OK);
    assert_int_equal(put_u64(g, g->b, 11, 11), FAR_OK);
    node_bytes = view_of(g, g->b)->shape.bytes;
    stop_after = verbs;
    hook_on(s->client.ep);
    hook.clock = g->r.clock->now;
    hook.ops.post = stop_split;
    assert_int_equal(put_u64(g, s, 4, 4), FAR_UNKNOWN);
    hook_off();
    assert_int_equal(stop_after, 0);
    assert_true(store_rig_get(&g->r, g->node, offsetof(struct chime_head, low)) == 8);
    return s;
}

static void die_in_split(struct rig *g, unsigned verbs)
{
    store_rig_kill(fail_in_split(g, verbs));
}

static void a_get_does_not_find_keys_in_it(void **state)
{
    (void)state;
    for (unsigned verbs = 1; verbs <= 8; verbs++) {
        struct rig g;
        uint64_t value = 0;
        open_rig(&g);
        die_in_split(&g, verbs);
        assert_int_equal(put_u64(&g, g.b, 9, 99), FAR_OK);
        assert_int_equal(get_u64(&g, g.a, 9, &value), FAR_OK);
        assert_int_equal(value, 99);
        assert_int_equal(far_table_check(g.b, g.t, NULL, NULL), FAR_OK);
        close_rig(&g);
    }
}

static void an_iteration_does_not_find_keys_in_it(void **state)
{
    (void)state;
    for (unsigned verbs = 1; verbs <= 8; verbs++) {
        struct rig g;
        char buf[4096];
        size_t len = 0, at = 0;
        struct far_entry entry;
        uint64_t value = 0;
        open_rig(&g);
        die_in_split(&g, verbs);
        assert_int_equal(put_u64(&g, g.b, 9, 99), FAR_OK);
        assert_int_equal(g.cursor & GADDR_MASK, g.node);
        assert_int_equal(far_iterate(g.a, g.t, &g.cursor, 0, buf, sizeof buf, &len), FAR_OK);
        while (far_entry_next(buf, len, &at, &entry))
            if (entry.key_len == 8 && ((const char *)entry.key)[7] == 9)
                memcpy(&value, entry.value, sizeof value);
        assert_int_equal(value, 99);
        close_rig(&g);
    }
}

/* CHIME-C10: the left sibling may name it. */
static void its_client_does_not_use_the_memory_again(void **state)
{
    (void)state;
    for (unsigned verbs = 1; verbs <= 8; verbs++) {
        struct rig g;
        open_rig(&g);
        far_session *s = fail_in_split(&g, verbs);
        assert_false(puppet_holds(&s->client, g.node, chime_node_class(&view_of(&g, g.b)->shape)));
        store_rig_kill(s);
        close_rig(&g);
    }
}

static uint64_t top_at; /* the word that leads to the highest node */
static struct rig *the;

/* Before A makes a node above its leaf and the new one, B does. */
static int grow_before(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count && top_at != 0; i++) {
        if (req->verbs[i].kind != FAB_CAS || req->verbs[i].off != top_at)
            continue;
        top_at = 0;
        uint64_t top = view_of(the, the->b)->top;
        for (uint64_t n = 100; n < 200 && view_of(the, the->b)->top == top; n++)
            assert_int_equal(put_u64(the, the->b, n, n), FAR_OK);
        assert_true(view_of(the, the->b)->top != top);
    }
    return hook.real->post(ep, req);
}

static void a_highest_node_that_comes_too_late_is_not_lost(void **state)
{
    struct rig g;
    struct audit audit;
    (void)state;
    the = &g;
    open_rig(&g);
    assert_int_equal(put_u64(&g, g.b, 0, 0), FAR_OK);
    top_at = gaddr_offset(view_of(&g, g.b)->root) + offsetof(struct chime_root, top);
    hook_on(g.a->client.ep);
    hook.clock = g.r.clock->now;
    hook.ops.post = grow_before;
    for (uint64_t n = 1; n < 20; n++)
        assert_int_equal(put_u64(&g, g.a, n, n), FAR_OK);
    hook_off();
    assert_int_equal(top_at, 0);
    assert_int_equal(sim_audit(&audit, g.r.pool, (far_session *[]){g.b, g.a}, 2), FAR_OK);
    assert_true(audit.wrong == 0 && audit.bytes[AUDIT_NOWHERE] == 0);
    close_rig(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_get_does_not_find_keys_in_it),
        cmocka_unit_test(an_iteration_does_not_find_keys_in_it),
        cmocka_unit_test(its_client_does_not_use_the_memory_again),
        cmocka_unit_test(a_highest_node_that_comes_too_late_is_not_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
