/* Splits in awkward circumstances. Each case once went wrong. */
#include "index/race/race.h"
#include "support/store_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#undef fail
#include <cmocka.h>

static const struct far_table_options tiny = {.tuning = "groups=2", .hash_seed = 1};

/* A session whose cache is behind a split asked for two subtables before it looked whether the
 * split was done, and could not delete from a full pool. */
static void a_stale_session_deletes_from_a_full_pool(void **state)
{
    struct store_rig r;
    far_session *late = NULL;
    char key[16], value[8];
    int rc = FAR_OK, len = 0;

    (void)state;
    store_rig_open_driven(&r, "mem:?size=2m&clients=8", NULL, NULL, &tiny);
    assert_int_equal(far_session_open(r.pool, NULL, &late), FAR_OK);
    assert_int_equal(far_put(r.session, r.table, "k0", 2, "v", 1), FAR_OK);
    assert_int_equal(far_get(late, r.table, "k0", 2, value, sizeof value, NULL), FAR_OK);
    for (int i = 1; rc == FAR_OK; i++) {
        len = snprintf(key, sizeof key, "k%d", i);
        rc = far_put(r.session, r.table, key, (size_t)len, "v", 1);
    }
    assert_int_equal(rc, FAR_POOL_FULL);
    assert_int_equal(far_delete(late, r.table, "k0", 2), FAR_OK);
    assert_int_equal(far_delete(late, r.table, "k1", 2), FAR_OK);
    assert_int_equal(far_get(r.session, r.table, "k0", 2, value, sizeof value, NULL),
                     FAR_NOT_FOUND);
    far_session_close(late);
    store_rig_close(&r);
}

static struct store_rig *meddled;
static unsigned meddlings;

/* Between a split's glance at a long key and its second read: the key claims to be longer. */
static void meddle(struct batch_tap *tap, const struct fab_verb *verbs, unsigned count)
{
    (void)tap;
    for (unsigned i = 0; i < count; i++) {
        const struct fab_verb *v = &verbs[i];
        if (v->kind != FAB_READ || v->len != RACE_COMBINED_BYTES || count <= 2)
            continue; /* a bucket's READ is as long, but comes in pairs */
        struct fab_ep *ep = meddled->session->client.ep;
        uint64_t *word = ep->ops->buf_alloc(ep, 8);
        struct cost cost = {0};
        struct batch b;
        *word = 8 | 0xffffull << 32; /* vlen, klen */
        batch_init(&b, ep, &cost);
        batch_write(&b, MARK_EARLY, gaddr_make(v->node, v->off), offsetof(struct block_head, vlen),
                    word, 8);
        assert_int_equal(batch_flush(&b), FAR_OK);
        ep->ops->buf_free(ep, word, 8);
        meddlings++;
        return;
    }
}

/* A pointer that is damaged may lead to memory that changes: the key's length was taken from the
 * second image, and bytes behind the buffer were hashed. (The address sanitizer sees it.) */
static void a_key_that_grows_between_two_reads_is_not_followed(void **state)
{
    struct store_rig r;
    struct batch_tap tap = {.posted = meddle};
    char key[80];

    (void)state;
    store_rig_open(&r, "mem:?size=4m&clients=8", NULL, NULL, &tiny);
    meddled = &r;
    r.session->op.batch.tap = &tap;
    memset(key, 'x', sizeof key);
    for (int i = 0; i < 60; i++) {
        memcpy(key, &i, sizeof i);
        assert_int_equal(far_put(r.session, r.table, key, sizeof key, "v", 1), FAR_OK);
    }
    assert_true(meddlings > 0);
    r.session->op.batch.tap = NULL;
    store_rig_close(&r);
}

/* RACE-I1: its cache still names the subtable, whose slots are as they were when it was split. */
static void an_iteration_does_not_return_what_a_split_subtable_holds(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    struct far_entry e;
    uint64_t first = 0, key = 0, cursor = 0;
    char buf[4096];
    size_t len = 0;

    (void)state;
    knobs.tick_ops = UINT32_MAX; /* no announcement finds that the cache is out of date */
    store_rig_open(&r, "mem:?size=4m&lease=3600000", &knobs, NULL, &tiny);
    far_session *late = store_rig_join(&r);
    assert_int_equal(far_put(r.session, r.table, &first, 8, "v", 1), FAR_OK);
    assert_int_equal(far_exists(late, r.table, &first, 8), FAR_OK);
    while (race_view(store_known(r.session, r.table)->view)->base.grown == 0) {
        key++;
        assert_int_equal(far_put(r.session, r.table, &key, 8, "v", 1), FAR_OK);
    }
    assert_int_equal(far_delete(r.session, r.table, &first, 8), FAR_OK);
    do {
        assert_int_equal(far_iterate(late, r.table, &cursor, 0, buf, sizeof buf, &len), FAR_OK);
        for (size_t pos = 0; far_entry_next(buf, len, &pos, &e);)
            assert_memory_not_equal(e.key, &first, 8);
    } while (cursor != 0);
    far_session_close(late);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stale_session_deletes_from_a_full_pool),
        cmocka_unit_test(a_key_that_grows_between_two_reads_is_not_followed),
        cmocka_unit_test(an_iteration_does_not_return_what_a_split_subtable_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
