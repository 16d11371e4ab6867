/*
 * The blocks that slots name: reading many in one round trip, within a budget of bytes, and looking
 * for a key among them.
 *
 *     struct index_blocks blocks;
 *     index_blocks_start(&blocks, op, INDEX_BLOCKS_BYTES);
 *     while (there are slots && index_blocks_add(&blocks, slot, bytes, place))
 *         ...
 *     rc = index_blocks_read(op, &blocks, false);
 *     for (unsigned i = 0; rc == FAR_OK && i < blocks.count; i++)
 *         ... blocks.block[i].image ...
 */
#ifndef INDEX_BLOCKS_H
#define INDEX_BLOCKS_H

#include "index/index.h"
#include "index/slot.h"

#define INDEX_BLOCKS_BYTES (256u * 1024) /* a budget that suits most */

struct index_blocks {
    unsigned count, room;
    size_t bytes, budget;
    struct index_block {
        uint64_t slot;
        uint32_t bytes; /* that are read of it, from its beginning; 0: it is known to be damaged */
        uint32_t place; /* the caller's */
        const void *image; /* in BUF_BLOCK_IN until the next read */
    } block[BATCH_MAX];
};

/* Room for as many as fit into the batch. Verbs that it has already go out with the READs. */
static inline void index_blocks_start(struct index_blocks *b, const struct op *op, size_t budget)
{
    b->count = 0;
    b->room = batch_room(&op->batch);
    b->bytes = 0;
    b->budget = budget;
}
/* False: it does not fit with the others. The first one always fits. */
static inline bool index_blocks_add(struct index_blocks *b, uint64_t slot, uint32_t bytes,
                                    unsigned place)
{
    ASSERT(bytes % 8 == 0);
    if (b->count == b->room || (b->count > 0 && b->bytes + bytes > b->budget))
        return false;
    struct index_block *block = &b->block[b->count++];
    block->slot = slot;
    block->bytes = bytes;
    block->place = place;
    b->bytes += bytes;
    return true;
}
/* The bytes that are read of a slot's block. 0 if there cannot be a block: the slot leads out of
 * the pool. */
static inline uint32_t index_block_inside(const struct op *op, uint64_t slot, uint32_t bytes)
{
    return index_inside(op->pool, pointer_gaddr(slot), bytes) ? bytes : 0;
}
/* Reads them and flushes. `may_be_freed`: as batch_may_be_freed(). */
int index_blocks_read(struct op *op, struct index_blocks *blocks, bool may_be_freed);

/* What is read of a slot's block for its key alone: all of it if it is short, else as much as holds
 * the longest key. */
static inline uint32_t index_block_key_bytes(uint64_t slot)
{
    uint32_t all = size_class_bytes(pointer_class(slot));
    uint32_t most = (uint32_t)(block_key_at(true) + FAR_KEY_MAX + 63) & ~63u;
    return all > most ? most : all;
}
/* Is it whole, as far as it was read? */
bool index_block_whole(const struct index_block *block, struct slot_format format);

/* The key that is looked for among the blocks of some slots, and what is wanted of its block. */
struct index_probe {
    struct slice key;
    struct slot_format format;
    const struct value_out *out; /* of a get; NULL: its value is not wanted */
    bool may_be_freed;           /* the slots may have been out of use when they were read */
};
struct index_found {
    int place;         /* -1: none of the blocks has the key */
    uint64_t slot;     /* words[place] */
    const void *block; /* its image, or the beginning, in BUF_BLOCK_IN until the next read */
    uint64_t stale;    /* 0, or a slot whose block was not whole */
};
/* BLOCKS-1  A key has one slot, or several that name the same block. So a look does not end at a
 *     slot whose block is not whole: the key may be in another one, also of another READ. (Not in
 *     SepHash: SEPHASH-H9.) This keeps what an earlier READ of the look has found to be stale. */
static inline void index_found_also(struct index_found *found, uint64_t stale)
{
    if (found->stale == 0)
        found->stale = stale;
}
/* The key was not found, but a stale slot was. FAR_CORRUPT: an earlier look found the same one,
 * which is in *stale, or 0. A slot that was in use when it was read has a whole block (PTR-1).
 * Otherwise the operation looks again. */
int index_found_stale(const struct index_found *found, uint64_t *stale);

/* Is a block that was read the key's? Otherwise notes whether it is stale. */
bool index_probe_judge(const struct index_probe *probe, const struct index_block *block,
                       struct index_found *found);

int index_probe_blocks(struct op *op, const struct index_probe *probe, const uint64_t *words,
                       uint64_t candidates, struct index_found *found);
/*
 * Looks for the key in the blocks of words[i], for all bits i of `candidates` (slot_candidates()).
 * Flushes what is in the batch, together with its first READs. Reads only the beginning of a long
 * block, unless the value is wanted and may fit. FAR_CORRUPT: a slot points outside the pool.
 */
static inline int index_probe(struct op *op, const struct index_probe *probe, const uint64_t *words,
                              uint64_t candidates, struct index_found *found)
{
    *found = (struct index_found){.place = -1};
    return candidates ? index_probe_blocks(op, probe, words, candidates, found)
                      : batch_flush(&op->batch);
}

/* The same for any number of words, each of them a candidate. found->stale is a stale one that
 * comes before the key's. */
int index_probe_all(struct op *op, const struct index_probe *probe, const uint64_t *words,
                    unsigned count, struct index_found *found);

#endif
