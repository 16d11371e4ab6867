/*
 * Split bits: four bits of a key's hash that its slot keeps beside the fingerprint. They say to
 * which half the key goes when its part of the table is split, so a split need not read the key.
 *
 * A table starts with parts of `start` bits of the hash. A part of level v has been split v times,
 * and its next split goes by bit start + v of the hash. Each split uses one of the four bits; the
 * split that uses the last one renews them, and has to read the keys for that. When this happens
 * depends on the part: its phase is made of the two lowest bits of the hash, which all of its keys
 * share if the table starts with four parts or more. So keys are read in a quarter of the splits of
 * every level, and not in all splits of every fourth one.
 */
#ifndef INDEX_SPLIT_BITS_H
#define INDEX_SPLIT_BITS_H

#include <stdbool.h>
#include <stdint.h>

#define INDEX_SPLIT_BITS 4u

static inline unsigned index_split_phase(unsigned start, uint64_t hash)
{
    return start >= 2 ? hash & 3 : 0;
}
/* The bits of a key in a part of that level. */
static inline uint64_t index_split_bits(unsigned start, uint64_t hash, unsigned level)
{
    unsigned phase = index_split_phase(start, hash);
    return hash >> start << phase >> (level + phase) / INDEX_SPLIT_BITS * INDEX_SPLIT_BITS & 15;
}
/* Does the split of a part of that level take the key to the second half? */
static inline bool index_split_goes(uint64_t bits, unsigned level, unsigned phase)
{
    return bits >> (level + phase) % INDEX_SPLIT_BITS & 1;
}
/* Does it use the last of the bits? */
static inline bool index_split_renews(unsigned level, unsigned phase)
{
    return (level + 1 + phase) % INDEX_SPLIT_BITS == 0;
}

#endif
