/*
 * Damage that one flipped bit explains.
 *
 * FLIP-1  If a damaged part of a table has the right checksum once exactly one of its bits is
 *     flipped, then that is what it was: the checksum proves all of it, also values inline.
 *     Something else passes by chance only with the probability of the checksum, times the number
 *     of bits.
 */
#ifndef INDEX_FLIP_H
#define INDEX_FLIP_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define INDEX_NO_BIT UINT_MAX

static inline void index_flip(uint64_t *words, unsigned bit)
{
    words[bit / 64] ^= 1ull << bit % 64;
}

/* The one bit that has to be flipped for whole() to be true. INDEX_NO_BIT: there is none, or there
 * are several. The words are as before. */
static inline unsigned index_flipped(uint64_t *words, unsigned count,
                                     bool (*whole)(const uint64_t *words, const void *arg),
                                     const void *arg)
{
    unsigned found = INDEX_NO_BIT, hits = 0;
    for (unsigned bit = 0; bit < 64 * count; bit++) {
        index_flip(words, bit);
        if (whole(words, arg)) {
            found = bit;
            hits++;
        }
        index_flip(words, bit);
    }
    return hits == 1 ? found : INDEX_NO_BIT;
}

#endif
