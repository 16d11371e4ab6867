/*
 * Iterating: the units in an order that growth does not disturb.
 *
 * Take the lowest 40 bits of a key's hash, reversed, as its position. A unit of version u holds the
 * keys of one interval of positions, in each lane. A move cuts the interval in two; the unit keeps
 * the first half, and what stays there keeps its slots. So a cursor is a lane, a position where an
 * interval begins, and a slot. All keys before it have been returned.
 *
 *   SHARD-I1  What is returned was true when its word was read: the unit's version is known,
 *       because its children were read before it and behind it. The version tells which sealed
 *       entries are still current and which have moved on, and how large the unit's interval is.
 */
#include "index/iterate.h"
#include "index/shard/shard.h"

/* One call reads at most this many units. */
#define ITERATE_UNITS 32

#define POSITION_BITS 40
#define SLOT_BITS     10
_Static_assert(SHARD_UNIT_MAX < 1 << SLOT_BITS, "a cursor has room for every slot");

struct iteration {
    unsigned lane;
    uint64_t position;
    unsigned slot; /* those before it have been returned */
    struct shard_unit unit;
    unsigned u; /* the unit's version */
};

/* Reads the unit that the position lies in. */
static int read_unit(struct op *op, struct shard_view *view, struct iteration *it)
{
    uint64_t hash = index_reverse_bits(it->position, POSITION_BITS);
    shard_unit_set(view, &it->unit, it->lane, shard_bucket(view, hash, view->version));
    it->unit.words = op_buffer(op, BUF_INDEX, 2 * SHARD_UNIT_MAX * 8);
    if (!it->unit.words)
        return FAR_NO_MEMORY;
    for (;;) {
        int rc = shard_unit_look(op, view, &it->unit, &it->u); /* SHARD-I1 */
        if (rc != FAR_OK || shard_published(view, &it->unit))
            return rc;
        shard_unit_set(view, &it->unit, it->lane, shard_parent(view, it->unit.bucket));
    }
}

/* Adds entries of the unit from it->slot on. *full: one did not fit. */
static int add_some(struct op *op, struct shard_view *view, struct iteration *it,
                    struct entries_out *out, bool *full)
{
    struct index_blocks blocks;
    index_iterate_start(&blocks, op, out);
    for (; it->slot < it->unit.count; it->slot++) {
        uint64_t word = it->unit.words[it->slot];
        if ((shard_live(word) || shard_sealed_by(word, it->u)) &&
            !index_iterate_slot(op, &blocks, out, word, it->slot))
            break;
    }
    return index_iterate_add(op, &view->base, SHARD_SLOT, &blocks, out, &it->slot, full);
}

int shard_iterate(struct op *op, struct index_view *base, struct entries_out *out)
{
    struct shard_view *view = shard_view(base);
    uint64_t at = out->cursor == 0 ? 0 : out->cursor - 1;
    struct iteration it = {.lane = (unsigned)(at >> (POSITION_BITS + SLOT_BITS)),
                           .position = at >> SLOT_BITS & ((1ull << POSITION_BITS) - 1),
                           .slot = at & ((1u << SLOT_BITS) - 1)};
    bool full = false;
    if (at >> (POSITION_BITS + SLOT_BITS) >= view->lanes || it.slot > SHARD_UNIT_MAX)
        return err_fail(FAR_INVALID, "the cursor does not belong to this table");
    uint64_t turns = index_iterate_parts(op->pool, ITERATE_UNITS);
    for (unsigned turn = 0; turn < turns && !full; turn++) {
        int rc = read_unit(op, view, &it);
        if (index_iterate_passes(op, out, rc)) {
            rc = FAR_OK;
            it.unit.count = 0;
            it.u = view->version; /* no other bucket is left out with it */
        }
        while (rc == FAR_OK && !full && it.slot < it.unit.count)
            rc = add_some(op, view, &it, out, &full);
        if (rc != FAR_OK)
            return rc;
        if (full)
            break;
        uint64_t size = 1ull << (POSITION_BITS - view->start_bits - it.u);
        it.slot = 0;
        it.position = (it.position / size + 1) * size;
        if (it.position >> POSITION_BITS != 0) {
            it.position = 0;
            it.lane++;
        }
        if (it.lane == view->lanes) {
            out->cursor = 0;
            return FAR_OK;
        }
    }
    if (full && out->count == 0)
        return FAR_TOO_SMALL;
    out->cursor = (((uint64_t)it.lane << POSITION_BITS | it.position) << SLOT_BITS | it.slot) + 1;
    return FAR_OK;
}
