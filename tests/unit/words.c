/* WORDS-1: no word that is published looks like a reference, and walkers report one that does. */
#include "index/sephash/sephash.h"
#include "pool/pool_internal.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

/* ---- walkers --------------------------------------------------------------------------------- */

static gaddr published; /* the word that the session has published last: its node */
static uint64_t published_off;

static void listen(struct batch_tap *tap, const struct fab_verb *verbs, unsigned count)
{
    (void)tap;
    for (unsigned i = 0; i < count; i++) {
        if ((verbs[i].flags & FAB_MARK) != MARK_PUBLISH)
            continue;
        published = gaddr_make(verbs[i].node, 0);
        published_off = verbs[i].off;
    }
}

static struct far_pool_check check(struct store_rig *r, bool repair, int expected)
{
    struct far_pool_check c = {0};
    assert_int_equal(far_pool_check(r->session, repair, NULL, NULL, &c), expected);
    return c;
}

/* The word becomes a reference to what it names, and then what it was. */
static void expect_reported(struct store_rig *r, gaddr at, uint64_t delta)
{
    uint64_t word = store_rig_get(r, at, delta);
    check(r, false, FAR_OK);
    assert_false(word_is_reference(word));
    store_rig_set(r, at, delta, word | ~GADDR_MASK);
    check(r, false, FAR_CORRUPT);
    store_rig_set(r, at, delta, word);
    check(r, false, FAR_OK);
}

static void rig(struct store_rig *r, const char *index)
{
    struct batch_tap tap = {.posted = listen};
    uint32_t key = 7;
    index_tested = index;
    store_rig_open(r, "mem:?size=4m", NULL, NULL, NULL);
    r->session->op.batch.tap = &tap;
    assert_int_equal(far_insert(r->session, r->table, &key, sizeof key, &key, sizeof key), FAR_OK);
    r->session->op.batch.tap = NULL;
}

static void slots_are_judged(void **state)
{
    static const char *const indexes[] = {"race", "shard", "sephash"};
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct store_rig r;
        published_off = 0;
        rig(&r, indexes[i]);
        assert_true(published_off != 0);
        expect_reported(&r, published, published_off);
        store_rig_close(&r);
    }
}

static void roots_are_judged(void **state)
{
    static const char *const indexes[] = {"race", "shard", "sephash", "rcuckoo", "chime"};
    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        struct store_rig r;
        rig(&r, indexes[i]);
        expect_reported(&r, store_known(r.session, r.table)->view->table->desc.root, 0);
        store_rig_close(&r);
    }
}

static void the_catalog_is_judged(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, "race");
    expect_reported(&r, gaddr_make(0, 0), r.pool->pool.catalog_off);
    store_rig_close(&r);
    for (gaddr at = 0; at < 8; at++) /* one of them has the right check bits */
        assert_true(catalog_damaged(~GADDR_MASK | at));
}

static void lists_of_free_objects_are_judged(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, "race");
    expect_reported(&r, gaddr_make(0, 0), NODE_FREE_OFF + 8 * BUNDLE_CLASS);
    store_rig_close(&r);
}

/* ---- SepHash --------------------------------------------------------------------------------- */

/* Its entries have no bit to spare: blocks of the largest class have all bits of it set, and so
 * some tag must not. */
static void no_tag_of_sephash_has_all_bits(void **state)
{
    struct store_rig r;
    unsigned last[2] = {0}; /* keys that have the last fp, and one of the last fp2s */
    (void)state;
    rig(&r, "sephash");
    const struct sephash_view *view = sephash_view(store_known(r.session, r.table)->view);
    for (uint32_t i = 0; i < 1u << 20; i++) {
        struct sephash_key key;
        sephash_hash(view, (struct slice){&i, sizeof i}, &key);
        if (key.fp < SEPHASH_FPS - 1 || key.fp2 < SEPHASH_FP2_LAST - 1)
            continue;
        last[key.fp2 - (SEPHASH_FP2_LAST - 1)]++;
        for (unsigned depth = view->parts.start; depth <= view->parts.depth_max; depth++)
            assert_false(word_is_reference(sephash_key_tag(view, &key, depth) | ~SEPHASH_TAG));
    }
    assert_true(last[0] > 96); /* 128 are to be expected: those of two fp2s */
    assert_int_equal(last[1], 0);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_judged),
        cmocka_unit_test(roots_are_judged),
        cmocka_unit_test(the_catalog_is_judged),
        cmocka_unit_test(lists_of_free_objects_are_judged),
        cmocka_unit_test(no_tag_of_sephash_has_all_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
