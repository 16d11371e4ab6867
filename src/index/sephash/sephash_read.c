/*
 * Looking for a key: its lane of the CurSegment and its range of the MainSegment in one round trip,
 * the block in another. With a filter, the first has the key's mark instead of the lane. If the key
 * is marked, the lane is read together with the block.
 */
#include "index/sephash/sephash.h"

/* How often a look is repeated because a block was not whole. */
#define LOOKS 4u

struct read {
    struct sephash_key key;
    struct index_hint hint;
    struct sephash_look look;
    struct index_found found;
    struct value_out *out;
};

/* Reads the slots, because the key is marked, together with the blocks of the MainSegment's
 * candidates. If a slot agrees with the key, its block counts first. */
static int probe_marked(struct op *op, struct sephash_view *view, struct read *r)
{
    sephash_read_lane(op, view, &r->look);
    sephash_gather(&r->look);
    int rc = sephash_probe(op, &r->key, &r->look, r->out, &r->found);
    if (rc != FAR_OK)
        return rc;
    rc = sephash_count_lane(op, view, &r->look);
    if (rc != FAR_OK)
        return rc;
    sephash_gather(&r->look);
    return r->look.in_slots > 0 ? sephash_probe(op, &r->key, &r->look, r->out, &r->found) : FAR_OK;
}

static int look(struct op *op, struct sephash_view *view, struct read *r,
                const struct index_hint *hint)
{
    unsigned wanted = SEPHASH_RANGE | (view->shape.buckets ? SEPHASH_MARK : SEPHASH_LANE);
    bool misled = false;
    int rc = sephash_look(op, view, &r->key, wanted, hint, &r->look);
    if (rc != FAR_OK)
        return rc;
    if (!r->look.has_slots && r->look.mark != 0) /* SEPHASH-H5 */
        return probe_marked(op, view, r);
    rc = sephash_find(op, &r->key, &r->look, r->out, &r->found, &misled);
    return rc == FAR_OK && misled ? look(op, view, r, NULL) : rc;
}

int sephash_get(struct op *op, struct index_view *base, struct slice bytes, struct value_out *out)
{
    struct sephash_view *view = sephash_view(base);
    struct read r = {.out = out};
    uint64_t stale = 0;
    sephash_hash(view, bytes, &r.key);
    r.hint = sephash_hint(view, &r.key);
    for (unsigned attempts = 0; attempts < LOOKS; attempts++) {
        int rc = look(op, view, &r, attempts == 0 ? &r.hint : NULL);
        if (rc != FAR_OK)
            return rc;
        if (r.found.stale != 0) { /* it may be the newest of the key */
            rc = index_found_stale(&r.found, &stale);
            if (rc != FAR_OK)
                return rc;
            continue;
        }
        bool absent = r.found.place < 0 || sephash_deletes(&r.look, (unsigned)r.found.place);
        uint64_t word = absent ? 0 : r.found.slot;
        sephash_hint_note(view, &r.key, r.look.segment.state, word,
                          absent ? 0 : sephash_hint_place(&r.look, word), &r.hint);
        if (absent)
            return FAR_NOT_FOUND;
        return index_deliver(base, index_block_value(r.found.block), out);
    }
    return FAR_CONTENTION;
}
