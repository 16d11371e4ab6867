/*
 * A slot: a word that names a block (pool/pointer.h) and has a fingerprint of its key's hash.
 *
 *     low bits first:  address 40 | size class 6 | generation g | fingerprint f and the index's own
 *
 * An index chooses the widths, and the place of the fingerprint, in a constant:
 *
 *     #define RACE_SLOT                                                                     \
 *         ((struct slot_format){.generation = 8, .fingerprint_at = 54, .fingerprint = 8})
 *     _Static_assert(POINTER_OWN_AT(8) <= 54, "a pointer fits below the fingerprint");
 *
 * pointer_gaddr(), pointer_class() and pointer_with_class() are the same for slots of all formats.
 */
#ifndef INDEX_SLOT_H
#define INDEX_SLOT_H

#include "pool/pointer.h"

struct slot_format {
    unsigned generation;     /* bits */
    unsigned fingerprint_at; /* its lowest bit */
    unsigned fingerprint;    /* bits */
};

static inline uint64_t slot_fingerprint_mask(struct slot_format f)
{
    return ((1ull << f.fingerprint) - 1) << f.fingerprint_at;
}
/* A fingerprint where slots have it. */
static inline uint64_t slot_fingerprint_word(struct slot_format f, uint64_t fingerprint)
{
    return fingerprint << f.fingerprint_at;
}
static inline uint64_t slot_make(struct slot_format f, const struct block_ref *block,
                                 uint64_t fingerprint)
{
    ASSERT(fingerprint >> f.fingerprint == 0);
    return pointer_make(block, f.generation) | slot_fingerprint_word(f, fingerprint);
}
static inline unsigned slot_fingerprint(struct slot_format f, uint64_t word)
{
    return (unsigned)((word & slot_fingerprint_mask(f)) >> f.fingerprint_at);
}
/* For block_judge(). */
static inline unsigned slot_generation(struct slot_format f, uint64_t word)
{
    return pointer_generation(word, f.generation);
}

/* The candidates for a key: bit i is set if words[i] equals `want` in the bits of `mask`. Up to 64
 * words. */
static inline uint64_t slot_candidates(const uint64_t *words, unsigned count, uint64_t mask,
                                       uint64_t want)
{
    uint64_t candidates = 0;
    ASSERT(count <= 64);
    for (unsigned i = 0; i < count; i++)
        candidates |= (uint64_t)(((words[i] ^ want) & mask) == 0) << i;
    return candidates;
}

#endif
