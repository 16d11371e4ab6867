/*
 * Iterating: the subtables in an order that growth does not disturb, and in each of them the keys
 * in the order of their hashes, because rows and slots of a key change.
 *
 * A cursor is a position: the bits of a key's hash that make suffixes, reversed, and then the
 * others. All keys before it have been returned. A subtable is an interval of positions, and a
 * split cuts it in two.
 *
 *   RCUCKOO-I1  What is returned was true at an instant of the call, and a key that is there during
 *       the whole call is in one of the two images of its subtable (rcuckoo_snapshot()). So it is
 *       returned by the call whose positions have its own, if it was there during the whole
 *       iteration. A call reads one subtable at least: a position of 0 means the end.
 */
#include "index/iterate.h"
#include "index/rcuckoo/rcuckoo.h"

#include <stdlib.h>

/* One call reads about this many bytes of rows, but one subtable at least. */
#define ITERATE_BYTES (512u << 10)

struct item {
    uint64_t position;
    uint64_t *row; /* in one of the images */
    unsigned slot;
};
struct iteration {
    struct rcuckoo_snapshot snapshot;
    struct item *items; /* in BUF_INDEX */
    unsigned count, next;
};

static int compare(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->position != y->position)
        return x->position < y->position ? -1 : 1;
    return x->row < y->row ? 1 : x->row > y->row ? -1 : 0; /* the second image first */
}

static void add_item(const struct rcuckoo_view *view, struct iteration *it, uint64_t from,
                     uint64_t *row, unsigned slot)
{
    uint64_t hash = 0;
    if (!row || !rcuckoo_slot_hash(view, row, slot, &hash))
        return;
    uint64_t position = rcuckoo_position(view, hash);
    if (position >= from)
        it->items[it->count++] = (struct item){position, row, slot};
}

/* Is it the same key as the one before it, as far as can be told without blocks? */
static bool same_key(const struct rcuckoo_shape *s, const struct item *a, const struct item *b)
{
    const uint64_t *x = rcuckoo_slot(s, a->row, a->slot), *y = rcuckoo_slot(s, b->row, b->slot);
    struct rcuckoo_entry of, other;
    if (a->position != b->position ||
        !rcuckoo_entry_of(s, rcuckoo_tags(s, a->row)[a->slot], x, &of) ||
        !rcuckoo_entry_of(s, rcuckoo_tags(s, b->row)[b->slot], y, &other) || of.klen != other.klen)
        return false;
    if (of.klen == 0)
        return x[s->value_at] == y[s->value_at];
    return memcmp(x + s->key_at, y + s->key_at, of.klen) == 0;
}

/* Lists the entries from a position on, in order, each key once. */
static int list_items(struct op *op, const struct rcuckoo_view *view, struct iteration *it,
                      uint64_t from)
{
    const struct rcuckoo_shape *s = &view->shape;
    it->items = op_buffer(op, BUF_INDEX, 2ull * s->rows * RCUCKOO_SLOTS * sizeof *it->items);
    if (!it->items)
        return FAR_NO_MEMORY;
    it->count = it->next = 0;
    for (unsigned row = 0; row < s->rows; row++)
        for (unsigned slot = 0;
             slot < RCUCKOO_SLOTS && rcuckoo_snapshot_whole(view, &it->snapshot, row); slot++) {
            add_item(view, it, from, rcuckoo_snapshot_row(s, &it->snapshot, row), slot);
            add_item(view, it, from, rcuckoo_snapshot_gone(s, &it->snapshot, row, slot), slot);
        }
    qsort(it->items, it->count, sizeof *it->items, compare);
    unsigned kept = 0;
    for (unsigned i = 0; i < it->count; i++)
        if (kept == 0 || !same_key(s, &it->items[kept - 1], &it->items[i]))
            it->items[kept++] = it->items[i];
    it->count = kept;
    return FAR_OK;
}

/* Must the block be read? If only keys are wanted, for the value's length. */
static bool needs_block(struct rcuckoo_entry e)
{
    return e.kind > RCUCKOO_INLINE;
}

static int add_entry(const struct rcuckoo_view *view, const struct item *item,
                     struct rcuckoo_entry e, const struct index_block *block,
                     struct entries_out *out, bool *full)
{
    const struct rcuckoo_shape *s = &view->shape;
    struct slice key = {rcuckoo_slot(s, item->row, item->slot) + s->key_at, e.klen};
    struct slice value = rcuckoo_slot_value(s, item->row, item->slot, e);
    if (block) {
        const struct block_head *h = block->image;
        if (!index_block_whole(block, RCUCKOO_POINTER)) { /* ITERATE-1 */
            out->damaged++;
            return FAR_OK;
        }
        key = (struct slice){block_key(h), h->klen};
        value = index_block_value(h);
    }
    return index_add_entry(&view->base, out, key, value, full);
}

/* Adds some of the entries: as many as one round trip can read the blocks of. */
static int add_some(struct op *op, const struct rcuckoo_view *view, struct iteration *it,
                    struct entries_out *out, bool *full)
{
    const struct rcuckoo_shape *s = &view->shape;
    struct index_blocks blocks;
    struct rcuckoo_entry e;
    unsigned end = it->next, block = 0;
    index_iterate_start(&blocks, op, out);
    for (; end < it->count; end++) {
        struct item *item = &it->items[end];
        int rc = rcuckoo_slot_entry(view, item->row, item->slot, &e);
        if (rc != FAR_OK)
            return rc;
        if (needs_block(e) &&
            !index_iterate_slot(op, &blocks, out, rcuckoo_slot_pointer(s, item->row, item->slot),
                                end))
            break;
    }
    int rc = index_blocks_read(op, &blocks, false);
    for (; it->next < end && rc == FAR_OK && !*full; it->next += !*full) {
        const struct item *item = &it->items[it->next];
        (void)rcuckoo_slot_entry(view, item->row, item->slot, &e);
        if (needs_block(e) &&
            index_iterate_is_away(out, rcuckoo_slot_pointer(s, item->row, item->slot)))
            continue;
        const struct index_block *b = needs_block(e) ? &blocks.block[block++] : NULL;
        rc = add_entry(view, item, e, b, out, full);
    }
    return rc;
}

/* All of the subtable that the position lies in. */
static int add_subtable(struct op *op, struct rcuckoo_view *view, struct iteration *it,
                        uint64_t from, struct entries_out *out, bool *full)
{
    struct rcuckoo_sub sub;
    int rc = rcuckoo_find(op, view, index_reverse_bits(from >> 32, 32), &sub);
    if (rc == FAR_OK)
        rc = rcuckoo_snapshot(op, view, &sub, &it->snapshot);
    if (index_iterate_passes(op, out, rc)) {
        it->snapshot.sub = sub;
        it->snapshot.split = false;
        return FAR_OK;
    }
    if (rc != FAR_OK || it->snapshot.split)
        return rc;
    rc = list_items(op, view, it, from);
    while (rc == FAR_OK && !*full && it->next < it->count)
        rc = add_some(op, view, it, out, full);
    return rc;
}

int rcuckoo_iterate(struct op *op, struct index_view *base, struct entries_out *out)
{
    struct rcuckoo_view *view = rcuckoo_view(base);
    struct iteration it;
    uint64_t from = out->cursor, read = 0;
    unsigned splits = 0;
    bool full = false;
    uint64_t subtable = rcuckoo_rows_bytes(&view->shape);
    uint64_t most = index_iterate_parts(op->pool, (ITERATE_BYTES + subtable - 1) / subtable);
    while (read < most) {
        int rc = add_subtable(op, view, &it, from, out, &full);
        if (rc != FAR_OK)
            return rc;
        /* A call that has read nothing from the first position on must not return that position,
         * which means the end. So it looks again. */
        if (it.snapshot.split && ++splits == RCUCKOO_CLOSINGS)
            return err_fail(FAR_CONTENTION, "subtables are split again and again");
        if (it.snapshot.split)
            continue;
        read++;
        if (full) {
            uint64_t at = it.items[it.next].position;
            bool stuck = at == out->cursor && out->count > 0; /* keys of one position do not fit */
            out->needed += stuck ? out->len : 0;
            out->cursor = at;
            return out->count == 0 || stuck ? FAR_TOO_SMALL : FAR_OK;
        }
        out->damaged += it.snapshot.damaged * RCUCKOO_SLOTS;            /* RCUCKOO-C13 */
        uint64_t size = 1ull << (63 - it.snapshot.sub.part.depth) << 1; /* 0: all there is */
        from = size == 0 ? 0 : from / size * size + size;
        if (from == 0)
            break;
    }
    out->cursor = from;
    return FAR_OK;
}
