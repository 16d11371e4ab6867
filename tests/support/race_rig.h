/* Looking into a RACE table: where a key's slot and buckets are. */
#ifndef TESTS_RACE_RIG_H
#define TESTS_RACE_RIG_H

#include "index/race/race.h"
#include "support/store_rig.h"

struct race_spot {
    struct race_key key;
    struct race_look look;
    struct index_found found;
};

static inline struct race_view *race_rig_view(struct store_rig *r)
{
    return race_view(store_known(r->session, r->table)->view);
}

/* Where the key is, or would be. The session must have used the table before. */
static inline void race_rig_find(struct store_rig *r, const void *key, size_t len,
                                 struct race_spot *spot)
{
    struct op *op = &r->session->op;
    struct race_view *view = race_rig_view(r);
    uint64_t *words = op_buffer(op, BUF_INDEX, 2 * RACE_PLACES * 8);
    bool again = false;

    ASSERT(words);
    spot->look.strayed = 0;
    race_hash(view, (struct slice){key, len}, &spot->key);
    ASSERT(race_look_start(op, view, &spot->key, &spot->look, words) == FAR_OK);
    ASSERT(race_look_finish(op, view, &spot->key, &spot->look, &again) == FAR_OK && !again);
    ASSERT(race_probe(op, &spot->key, &spot->look, NULL, NULL, &spot->found) == FAR_OK);
}

#endif
