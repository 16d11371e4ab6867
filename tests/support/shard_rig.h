/* Two sessions and a table of SHARD with the smallest buckets, whose resizes the test decides. */
#ifndef TESTS_SHARD_RIG_H
#define TESTS_SHARD_RIG_H

#include "index/shard/shard.h"
#include "support/hook.h"
#include "support/sweep_rig.h"

#include <stdio.h>

struct rig {
    struct store_rig r;
    far_session *a, *b; /* b is r.session */
    far_table *t;
};

static inline struct shard_view *view_of(struct rig *g, far_session *s)
{
    return shard_view(store_known(s, g->t)->view);
}

static inline uint64_t hash_of(struct rig *g, uint32_t key)
{
    struct shard_key k;
    shard_hash(view_of(g, g->b), (struct slice){&key, sizeof key}, &k);
    return k.hash;
}

/* The next key from *from on whose hash has these low bits. */
static inline uint32_t key_with(struct rig *g, uint32_t *from, uint64_t mask, uint64_t want)
{
    while ((hash_of(g, *from) & mask) != want)
        ++*from;
    return (*from)++;
}

static inline int get(struct rig *g, far_session *s, uint32_t key, uint32_t *value)
{
    size_t len = 0;
    return far_get(s, g->t, &key, sizeof key, value, sizeof *value, &len);
}
static inline int insert(struct rig *g, far_session *s, uint32_t key, uint32_t value)
{
    return far_insert(s, g->t, &key, sizeof key, &value, sizeof value);
}

static uint32_t dummy; /* a key that no test is about */

static inline void settle(struct rig *g)
{
    uint32_t v;
    for (unsigned i = 0; i < 400; i++) {
        assert_int_equal(get(g, g->a, dummy, &v), FAR_OK);
        assert_int_equal(get(g, g->b, dummy, &v), FAR_OK);
        struct shard_view *x = view_of(g, g->a), *y = view_of(g, g->b);
        if (x->version == y->version && x->settled == x->version && y->settled == y->version)
            return;
    }
    fail_msg("not settled");
}

/* One resize, and its barrier. Only the dummy key's unit is touched. */
static inline void resize(struct rig *g)
{
    unsigned before = view_of(g, g->b)->version;
    uint64_t at = offsetof(struct shard_root, count);
    store_rig_set(&g->r, view_of(g, g->b)->root, at, 1u << 30);
    for (unsigned i = 0; i < 8 && view_of(g, g->b)->version == before; i++) {
        uint32_t v = 7;
        assert_int_equal(far_put(g->b, g->t, &dummy, sizeof dummy, &v, sizeof v), FAR_OK);
        store_rig_set(&g->r, view_of(g, g->b)->root, at, i == 0 ? 0 : 1u << 30);
        assert_int_equal(get(g, g->b, dummy, &v), FAR_OK);
    }
    store_rig_set(&g->r, view_of(g, g->b)->root, at, 0);
    assert_int_equal(view_of(g, g->b)->version, before + 1);
    settle(g);
}

/* A knows the new version, but not when the barrier is over. */
static inline void before_the_barrier(struct rig *g)
{
    struct shard_view *view = view_of(g, g->a);
    view->settled = view->version - 1;
    view->barrier = 0;
    store_rig_set(&g->r, view->root, offsetof(struct shard_root, resize),
                  shard_resize(view->version, 0));
}

static const char *uri = "mem:?size=16m&clients=8&lease=60";
static unsigned hot; /* KiB for hints */
static inline void open_rig(struct rig *g)
{
    struct knobs knobs = pool_knobs_default;
    char tuning[64];
    struct far_table_options options = {.tuning = tuning, .hash_seed = 3};
    uint32_t from = 0;
    (void)snprintf(tuning, sizeof tuning, "buckets=4&slots=4&load=100&sync=1&hot=%u", hot);
    knobs.tick_ops = 1;
    knobs.move_every = 1;
    store_rig_open_driven(&g->r, uri, &knobs, NULL, NULL);
    g->b = g->r.session;
    g->a = store_rig_join_apart(&g->r);
    assert_int_equal(far_table_create(g->b, "s", "shard", &options, &g->t), FAR_OK);
    assert_int_equal(insert(g, g->b, 0, 0), FAR_OK);
    assert_int_equal(far_delete(g->b, g->t, &from, 4), FAR_OK);
    dummy = key_with(g, &(uint32_t){1000}, 3, 3);
    assert_int_equal(insert(g, g->b, dummy, 7), FAR_OK);
    settle(g);
}

static inline void close_rig(struct rig *g)
{
    far_session_close(g->a);
    store_rig_close(&g->r);
}

static inline void say(void *arg, const char *line)
{
    (void)arg;
    printf("      %s\n", line);
}

static struct rig *the; /* for hooks and taps */

static inline uint64_t unit_off(struct rig *g, uint64_t bucket)
{
    uint64_t delta;
    gaddr at = shard_unit_at(view_of(g, g->b), 0, bucket, &delta);
    return gaddr_offset(at) + delta;
}
static inline uint64_t word_of(struct rig *g, uint64_t bucket, unsigned slot)
{
    return store_rig_get(&g->r, 0, unit_off(g, bucket) + slot * 8);
}

#endif
