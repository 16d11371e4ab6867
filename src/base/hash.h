/* Hashes and checksums: XXH3, inlined. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct hash128 {
    uint64_t lo, hi;
};

static inline struct hash128 hash_key(const void *key, size_t len, uint64_t seed)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(key, len, seed);
    return (struct hash128){.lo = h.low64, .hi = h.high64};
}

static inline uint64_t hash_sum(const void *data, size_t len, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, len, seed);
}

/* Maps 32 random bits onto [0, n) without a division. */
static inline uint32_t hash_range(uint32_t bits, uint32_t n)
{
    return (uint32_t)(((uint64_t)bits * n) >> 32);
}

#endif
