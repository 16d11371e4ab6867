/* A table and one key, for tests of hints. The test defines KEY: its bytes and its length. */
#ifndef TESTS_HOT_RIG_H
#define TESTS_HOT_RIG_H

#include "support/hook.h"
#include "support/store_rig.h"

static inline void rig(struct store_rig *r, const char *uri, const char *tuning)
{
    struct far_table_options table = {.tuning = tuning, .hash_seed = 17};
    store_rig_open(r, uri, NULL, NULL, &table);
}

static inline void expect_rtts(const far_session *s, uint64_t round_trips)
{
    assert_int_equal(s->op.cost.rtts, round_trips);
}

static inline void put(far_session *s, struct store_rig *r, const char *value)
{
    assert_int_equal(far_put(s, r->table, KEY, value, strlen(value)), FAR_OK);
}

/* Gets the key, whatever that takes. */
static inline void expect_found(far_session *s, struct store_rig *r, const char *value)
{
    char got[16] = "";
    size_t len = 0;
    assert_int_equal(far_get(s, r->table, KEY, got, sizeof got, &len), FAR_OK);
    assert_int_equal(len, strlen(value));
    assert_memory_equal(got, value, len);
}

/* Gets the key. That must take this many round trips. */
static inline void expect_get(far_session *s, struct store_rig *r, const char *value,
                              uint64_t round_trips)
{
    expect_found(s, r, value);
    expect_rtts(s, round_trips);
}

/* HINT-H1: a get reads the block behind what the hint is compared with, which has `len` bytes. */
static inline void expect_block_behind(size_t len)
{
    static const struct {
        unsigned order;
        bool fenced;
    } cases[] = {{ORDER_IB, false}, {ORDER_ALL & ~ORDER(FAB_R, FAB_R), true}};
    for (unsigned i = 0; i < 2; i++) {
        struct store_rig r;
        rig(&r, "mem:?size=8m", "hot=1");
        put(r.session, &r, "one");
        unsigned order = r.fab->order;
        r.fab->order = cases[i].order;
        hook_record(r.session->client.ep);
        expect_get(r.session, &r, "one", cases[i].fenced ? 2 : 1); /* a fence counts as one */
        hook_off();
        r.fab->order = order;
        assert_int_equal(recorded.posts, 1);
        assert_int_equal(recorded.count, 2);
        assert_int_equal(recorded.verb[0].len, len);
        assert_int_equal(recorded.verb[1].len, 64);
        assert_int_equal(recorded.verb[1].flags & FAB_FENCE, cases[i].fenced ? FAB_FENCE : 0);
        store_rig_close(&r);
    }
}

/* A test. */
static inline void long_blocks_are_not_read_ahead(void **state)
{
    static char value[2 * BLOCK_SHORT_MAX], got[sizeof value];
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    assert_int_equal(far_put(r.session, r.table, KEY, value, sizeof value), FAR_OK);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(far_get(r.session, r.table, KEY, got, sizeof got, NULL), FAR_OK);
        expect_rtts(r.session, 2);
    }
    assert_int_equal(far_put(r.session, r.table, KEY, value, BLOCK_SHORT_MAX / 2), FAR_OK);
    assert_int_equal(far_get(r.session, r.table, KEY, got, sizeof got, NULL), FAR_OK);
    expect_rtts(r.session, 1);
    store_rig_close(&r);
}

#endif
