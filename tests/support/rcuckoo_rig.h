/* Actors on a table of RCuckoo, and its rows and locks. */
#ifndef TESTS_RCUCKOO_RIG_H
#define TESTS_RCUCKOO_RIG_H

#include "index/rcuckoo/rcuckoo.h"
#include "support/actors.h"

static inline struct rcuckoo_view *view_of(const struct actor *a)
{
    return rcuckoo_view(store_known(a->s, a->t)->view);
}

static inline const struct rcuckoo_shape *shape(void)
{
    return &view_of(&B)->shape;
}

static inline uint32_t row_bytes(void)
{
    return rcuckoo_row_bytes(shape());
}

static inline struct rcuckoo_key key_of(const uint32_t *number)
{
    struct rcuckoo_key key;
    rcuckoo_key_set(view_of(&B), (struct slice){number, sizeof *number}, &key);
    return key;
}

static inline struct rcuckoo_sub sub_of(uint32_t number)
{
    struct rcuckoo_sub found;
    expect_ok(rcuckoo_find(&B.s->op, view_of(&B), key_of(&number).hash, &found));
    return found;
}

/* A word of the subtable's anchor, as a place of verbs. */
static inline struct place anchor_place(const struct rcuckoo_sub *sub, enum verb_kind kind,
                                        uint64_t word, enum stop_side side)
{
    return (struct place){kind, .side = side, .of = sub->part.anchor, .delta = word, .bytes = 8};
}

/* Places that the whole request decides. */
static inline bool writes_a_path(const struct fab_req *req, unsigned verb)
{
    unsigned rows = 0;
    (void)verb;
    for (unsigned i = 0; i < req->count; i++)
        rows += req->verbs[i].kind == FAB_WRITE && req->verbs[i].len == row_bytes();
    return rows >= 2;
}

static inline bool is_last_faa(const struct fab_req *req, unsigned verb)
{
    for (unsigned i = verb + 1; i < req->count; i++)
        if (req->verbs[i].kind == FAB_FAA)
            return false;
    return req->verbs[verb].kind == FAB_FAA;
}

/* It dies. If it is stopped, its operation fails. Returns its slot. */
static inline unsigned kill_actor(struct actor *a)
{
    unsigned slot = a->s->client.slot;
    bool stopped = a->fiber && !fiber_finished(a->fiber);
    assert_true((actor_kill(a) != FAR_OK) == stopped);
    return slot;
}

/* A deed: recovers the client of a slot, or goes on with a recovery that another one has begun. It
 * may have ended meanwhile. */
static inline int recover_slot(struct actor *a, uint64_t slot, uint64_t unused)
{
    uint64_t word = store_rig_get(&rig, NODE0, slot_delta((unsigned)slot));
    (void)unused;
    return word == 0 ? FAR_OK : puppet_recover(&a->s->op, (unsigned)slot, word);
}

#endif
