/* Nodes of CHIME that are not as they should be: what the walker says of them, and what operations
 * do. */
#include "support/chime_image.h"
#include "support/sweep_rig.h"

#include <stdio.h>

#define SMALL "span=8&neighbourhood=8&cache=16&hot=0"

struct rig {
    struct store_rig r;
    far_session *s; /* r.session */
    far_table *t;
    struct chime_view *view;
};

/* Keys 0, 2, 4, ... in ascending order, so that all leaves but the last are full. */
static void open_rig(struct rig *g, unsigned keys)
{
    struct far_table_options options = {.tuning = SMALL, .hash_seed = 3};
    memset(g, 0, sizeof *g);
    store_rig_open_driven(&g->r, "mem:?size=4m&clients=8", NULL, NULL, NULL);
    g->s = g->r.session;
    assert_int_equal(far_table_create(g->s, "d", "chime", &options, &g->t), FAR_OK);
    for (uint64_t n = 0; n < keys; n++) {
        uint64_t key = __builtin_bswap64(2 * n);
        assert_int_equal(far_put(g->s, g->t, &key, 8, &n, 8), FAR_OK);
    }
    if (keys > 0)
        g->view = chime_view(store_known(g->s, g->t)->view);
}

static void put_long_keys(struct rig *g, unsigned from, unsigned to)
{
    char key[16];
    for (uint64_t n = from; n < to; n++) {
        int len = snprintf(key, sizeof key, "together%03u", (unsigned)n);
        assert_int_equal(far_put(g->s, g->t, key, (size_t)len, &n, 8), FAR_OK);
    }
    g->view = chime_view(store_known(g->s, g->t)->view);
}

/* The same with keys whose first 8 bytes are the same. */
static void open_long_rig(struct rig *g, unsigned keys)
{
    open_rig(g, 0);
    put_long_keys(g, 0, keys);
}

static int get(struct rig *g, uint64_t n)
{
    uint64_t key = __builtin_bswap64(n), value = 0;
    size_t len = 0;
    return far_get(g->s, g->t, &key, 8, &value, 8, &len);
}
static int put_key(struct rig *g, uint64_t n)
{
    uint64_t key = __builtin_bswap64(n);
    return far_put(g->s, g->t, &key, 8, &n, 8);
}

/* The leaf in this order, from the left. */
static void read_leaf(struct rig *g, unsigned nth, struct image *leaf)
{
    struct image top;
    image_read_top(&g->r, g->view, &top);
    assert_int_equal(chime_head(top.node)->level, 1);
    image_read(&g->r, g->view, chime_entry(top.node, image_used(&top, 0))[1], leaf);
    while (nth-- > 0)
        image_read(&g->r, g->view, chime_next_at(chime_head(leaf->node)->next), leaf);
}

/* ---- the walker ------------------------------------------------------------------------------ */
static const char *expected;
static unsigned reported;

static void hear(void *arg, const char *line)
{
    (void)arg;
    reported += strstr(line, expected) != NULL;
}

static void expect_report(struct rig *g, const char *what, int status)
{
    expected = what;
    reported = 0;
    assert_int_equal(far_table_check(g->s, g->t, hear, NULL), status);
    assert_true(reported > 0);
}

static void the_walker_finds_a_gap_between_leaves(void **state)
{
    struct rig g;
    struct image leaf;
    (void)state;
    open_rig(&g, 32);
    read_leaf(&g, 1, &leaf);
    chime_head(leaf.node)->high.k--;
    image_write(&g.r, g.view, &leaf);
    expect_report(&g, "CHIME-W3", FAR_CORRUPT);
    store_rig_close(&g.r);
}

static void the_walker_finds_separators_that_do_not_ascend(void **state)
{
    struct rig g;
    struct image leaf, next;
    (void)state;
    open_rig(&g, 32);
    read_leaf(&g, 1, &leaf);
    read_leaf(&g, 2, &next);
    chime_head(leaf.node)->high.k = chime_head(next.node)->low.k = chime_head(leaf.node)->low.k;
    chime_head(next.node)->sum = chime_head_sum(g.view, next.at, chime_head(next.node));
    image_write(&g.r, g.view, &leaf);
    image_write(&g.r, g.view, &next);
    expect_report(&g, "CHIME-W3", FAR_CORRUPT);
    store_rig_close(&g.r);
}

static void the_walker_finds_the_lock_of_a_client_that_is_gone(void **state)
{
    struct rig g;
    struct image leaf;
    (void)state;
    open_rig(&g, 32);
    read_leaf(&g, 1, &leaf);
    far_session *gone = store_rig_join(&g.r);
    uint64_t owner = client_owner_word(&gone->client);
    far_session_close(gone);
    store_rig_set(&g.r, leaf.at, offsetof(struct chime_head, lock), owner);
    expect_report(&g, "CHIME-W8", FAR_OK);
    store_rig_close(&g.r);
}

static void break_block(struct rig *g, uint64_t pointer)
{
    gaddr at = pointer_gaddr(pointer);
    store_rig_set(&g->r, at, 0, ~store_rig_get(&g->r, at, 0));
}

static void the_walker_finds_an_entry_without_a_block(void **state)
{
    struct rig g;
    struct image top;
    (void)state;
    open_long_rig(&g, 4);
    image_read_top(&g.r, g.view, &top);
    break_block(&g, chime_entry(top.node, image_used(&top, 0))[1]);
    expect_report(&g, "CHIME-W9: an entry", FAR_CORRUPT);
    store_rig_close(&g.r);
}

static void the_walker_finds_a_separator_without_a_block(void **state)
{
    struct rig g;
    struct image leaf;
    (void)state;
    open_long_rig(&g, 32);
    read_leaf(&g, 1, &leaf);
    assert_true(chime_head(leaf.node)->low.lng != 0);
    break_block(&g, chime_head(leaf.node)->low.lng);
    expect_report(&g, "CHIME-W9: a separator", FAR_CORRUPT);
    store_rig_close(&g.r);
}

static void break_block_of(struct rig *g, uint64_t k)
{
    struct image leaf;
    unsigned place = 0;
    read_leaf(g, 0, &leaf);
    while (chime_kind_at(leaf.node, place) != CHIME_BLOCK || chime_entry(leaf.node, place)[0] != k)
        place++;
    break_block(g, chime_entry(leaf.node, place)[1]);
}

/* If the first 8 bytes of a key tell its place in the order, a split does without the block. */
static void a_leaf_with_a_damaged_block_is_split(void **state)
{
    struct rig g;
    char key[16];
    int rc = FAR_OK;
    (void)state;
    open_rig(&g, 0);
    assert_int_equal(far_put(g.s, g.t, "alone", 5, "", 0), FAR_OK);
    put_long_keys(&g, 0, 10);
    break_block_of(&g, chime_prefix((struct slice){"alone", 5}));
    unsigned grown = g.view->base.grown;
    for (unsigned n = 32; n > 0 && rc == FAR_OK; n--) { /* the first leaf takes all of them */
        int len = snprintf(key, sizeof key, "together000%02u", n);
        if (n == 16) {
            assert_true(g.view->base.grown > grown);
            break_block_of(&g, chime_prefix((struct slice){"together", 8}));
        }
        rc = far_put(g.s, g.t, key, (size_t)len, "", 0);
        assert_int_equal(rc, n > 16 || rc == FAR_OK ? FAR_OK : FAR_CORRUPT);
    }
    assert_int_equal(rc, FAR_CORRUPT);
    store_rig_close(&g.r);
}

/* ---- levels ---------------------------------------------------------------------------------- */

/* An entry of the parent leads to the parent itself. */
static void a_child_of_another_level_is_damage(void **state)
{
    struct rig g;
    struct image top, bad;
    uint64_t *entry;
    (void)state;
    open_rig(&g, 32);
    image_read_top(&g.r, g.view, &top);
    bad = top;
    entry = chime_entry(bad.node, image_used(&bad, 1));
    assert_int_equal(entry[0], 16);
    entry[1] = bad.at;
    image_write(&g.r, g.view, &bad);
    index_cache_drop(g.view->cache, bad.at);
    int got = get(&g, 16), put = put_key(&g, 17);
    image_write(&g.r, g.view, &top);
    index_cache_drop(g.view->cache, bad.at);
    assert_int_equal(got, FAR_CORRUPT);
    assert_int_equal(put, FAR_CORRUPT);
    assert_int_equal(far_table_check(g.s, g.t, NULL, NULL), FAR_OK);
    store_rig_close(&g.r);
}

/* What a session has cached of an address is from a time when a node of a higher level was
 * there. */
static void a_cached_node_of_another_level_is_not_used(void **state)
{
    struct rig g;
    struct image top;
    struct op *op;
    (void)state;
    open_rig(&g, 128);
    image_read_top(&g.r, g.view, &top);
    assert_int_equal(chime_head(top.node)->level, 2);
    gaddr child = chime_entry(top.node, image_used(&top, 0))[1];
    op = &g.s->op;
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    struct index_cache_stamp stamp = index_cache_stamp(g.view->cache, op);
    assert_int_equal(chime_encode(op, g.view, top.node), FAR_OK);
    index_cache_drop(g.view->cache, child);
    (void)index_cache_put(g.view->cache, child, stamp, g.view->made, g.view->made->bytes);
    op_end(op);
    for (uint64_t n = 0; n < 256; n += 2)
        assert_int_equal(get(&g, n), FAR_OK);
    store_rig_close(&g.r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_walker_finds_a_gap_between_leaves),
        cmocka_unit_test(the_walker_finds_separators_that_do_not_ascend),
        cmocka_unit_test(the_walker_finds_the_lock_of_a_client_that_is_gone),
        cmocka_unit_test(the_walker_finds_an_entry_without_a_block),
        cmocka_unit_test(the_walker_finds_a_separator_without_a_block),
        cmocka_unit_test(a_leaf_with_a_damaged_block_is_split),
        cmocka_unit_test(a_child_of_another_level_is_damage),
        cmocka_unit_test(a_cached_node_of_another_level_is_not_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
