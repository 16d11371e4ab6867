/*
 * Ahead: prefetching what an operation is about to read, while those before it are executed.
 *
 * For far_execute_many(), if this process has mapped the pool's memory. A lookup misses the
 * processor's caches twice, one after the other: where the index has the words of the key, and at
 * the block that one of them names. So an operation is looked at twice before its turn comes.
 *
 *   index_ops.ahead()      prefetches the key's words (index_ahead_words()). If a hint knows which
 *                          word it is, also the block (index_ahead_block()).
 *   index_ahead_blocks()   The words have arrived. Prefetches the blocks of those that agree with
 *                          the key.
 *
 * SepHash and CHIME have no ahead(): their lookups wait for what the session has cached of the
 * table, so looking twice takes longer than what it saves.
 *
 * No answer depends on it. What it reads may be old, or torn, or of something else by now.
 */
#ifndef INDEX_AHEAD_H
#define INDEX_AHEAD_H

#include "index/index.h"
#include "pool/pointer.h"

/* Bytes of a block that are prefetched: all of a short one. The processor goes on by itself. */
#define INDEX_AHEAD_BLOCK 128u

#define INDEX_AHEAD_RANGES 2u
struct index_ahead {
    unsigned ranges;
    struct {
        const uint64_t *words;
        unsigned count;
    } range[INDEX_AHEAD_RANGES];
    uint64_t mask, want; /* the words that agree with the key: (word & mask) == want */
};

/* Forced inline: gcc 12 drops calls of functions that only prefetch, as without effect. */
#define INDEX_AHEAD __attribute__((always_inline)) static inline

INDEX_AHEAD const void *index_ahead_fetch(const struct op *op, gaddr at, uint64_t delta,
                                          uint32_t bytes)
{
    const char *mapped = batch_mapped(&op->batch, at, delta, bytes);
    for (uint32_t i = 0; mapped && i < bytes; i += 64)
        __builtin_prefetch(mapped + i);
    return mapped;
}

/* Adds words of the key; beyond INDEX_AHEAD_RANGES none. */
INDEX_AHEAD void index_ahead_words(const struct op *op, struct index_ahead *ahead, gaddr at,
                                   uint64_t delta, unsigned count)
{
    const void *words = index_ahead_fetch(op, at, delta, 8 * count);
    if (!words || ahead->ranges == INDEX_AHEAD_RANGES)
        return;
    ahead->range[ahead->ranges].words = words;
    ahead->range[ahead->ranges++].count = count;
}

/* `word` is a pointer, or anything. */
INDEX_AHEAD void index_ahead_block(const struct op *op, uint64_t word)
{
    if (pointer_gaddr(word) != 0)
        index_ahead_fetch(op, pointer_gaddr(word), 0, INDEX_AHEAD_BLOCK);
}

INDEX_AHEAD void index_ahead_blocks(const struct op *op, const struct index_ahead *ahead)
{
    for (unsigned r = 0; r < ahead->ranges; r++)
        for (unsigned i = 0; i < ahead->range[r].count; i++) {
            uint64_t word = __atomic_load_n(&ahead->range[r].words[i], __ATOMIC_RELAXED);
            if ((word & ahead->mask) == ahead->want)
                index_ahead_block(op, word);
        }
}

#endif
