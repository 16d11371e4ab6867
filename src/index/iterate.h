/*
 * Iterating: the entries of the slots in an image. A call reads as many blocks as are worth reading
 * at once, and `next` is where the next one goes on:
 *
 *     struct index_blocks blocks;
 *     index_iterate_start(&blocks, op, out);
 *     for (; next < end; next++)
 *         if (words[next] is in use && !index_iterate_slot(op, &blocks, out, words[next], next))
 *             break;
 *     rc = index_iterate_add(op, view, MY_SLOT, &blocks, out, &next, &full);
 */
#ifndef INDEX_ITERATE_H
#define INDEX_ITERATE_H

#include "index/blocks.h"

/* The lowest `bits` bits in reverse order. A cursor is such a position of a hash: if a part of the
 * table is halved by one more bit of the hash, its interval of positions is cut in two. */
static inline uint64_t index_reverse_bits(uint64_t x, unsigned bits)
{
    ASSERT(bits > 0 && bits <= 64);
    x = (x & 0x5555555555555555u) << 1 | ((x >> 1) & 0x5555555555555555u);
    x = (x & 0x3333333333333333u) << 2 | ((x >> 2) & 0x3333333333333333u);
    x = (x & 0x0f0f0f0f0f0f0f0fu) << 4 | ((x >> 4) & 0x0f0f0f0f0f0f0f0fu);
    return __builtin_bswap64(x) >> (64 - bits);
}

/* Parts of the table that a call reads at most: as many as is usual, unless a test wants fewer. */
static inline uint64_t index_iterate_parts(const struct pool *pool, uint64_t usual)
{
    return pool->knobs.iterate_parts < usual ? pool->knobs.iterate_parts : usual;
}

/* Not many more blocks than there is room for. */
static inline void index_iterate_start(struct index_blocks *blocks, const struct op *op,
                                       const struct entries_out *out)
{
    ASSERT(out->len <= out->cap);
    size_t room = out->cap - out->len;
    index_blocks_start(blocks, op, room < INDEX_BLOCKS_BYTES ? room : INDEX_BLOCKS_BYTES);
}
/* Is the slot's block on a node that is passed? */
static inline bool index_iterate_is_away(const struct entries_out *out, uint64_t slot)
{
    return out->away >> gaddr_node(pointer_gaddr(slot)) & 1;
}
/* A part of the table could not be read. True: it needs a node that is passed, so the part is left
 * out. */
static inline bool index_iterate_passes(struct op *op, const struct entries_out *out, int rc)
{
    bool passes = rc == FAR_UNREACHABLE && out->away != 0 && op->batch.refused; /* AWAY-1 */
    op->batch.refused = false;
    return passes;
}
/* False: it does not fit with the others. */
static inline bool index_iterate_slot(const struct op *op, struct index_blocks *blocks,
                                      const struct entries_out *out, uint64_t slot, unsigned place)
{
    if (index_iterate_is_away(out, slot))
        return true;
    uint32_t bytes =
        out->keys_only ? index_block_key_bytes(slot) : size_class_bytes(pointer_class(slot));
    return index_blocks_add(blocks, slot, index_block_inside(op, slot, bytes), place);
}
/*
 * Reads the blocks, and adds their entries. *full: one did not fit, and its place is *next.
 *
 * ITERATE-1  The slots were in use when they were read, within this operation. So a block that is
 *     not whole is damaged (PTR-1): its entry is left out and counted, and the iteration goes on.
 *     If the lease has lapsed, the store returns nothing of all this.
 */
int index_iterate_add(struct op *op, const struct index_view *view, struct slot_format format,
                      struct index_blocks *blocks, struct entries_out *out, unsigned *next,
                      bool *full);

#endif
