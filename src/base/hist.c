/*
 * Values below HIST_SUB have a bucket each. Above, every power of two [2^e, 2^(e+1)) is cut into
 * HIST_SUB equal buckets, so a bucket's width is at most 1 / HIST_SUB of any value in it, and its
 * middle is within half of that: 0.4 %.
 */
#include "base/hist.h"

#include "base/err.h"

#include <float.h>
#include <string.h>

static unsigned bucket_of(uint64_t value)
{
    if (value < HIST_SUB)
        return (unsigned)value;
    unsigned shift = 63 - (unsigned)__builtin_clzll(value) - HIST_SUB_BITS;
    return shift * HIST_SUB + (unsigned)(value >> shift);
}

static uint64_t bucket_middle(unsigned bucket)
{
    if (bucket < 2 * HIST_SUB)
        return bucket;
    unsigned shift = bucket / HIST_SUB - 1;
    uint64_t low = (uint64_t)(bucket - shift * HIST_SUB) << shift;
    return low + ((UINT64_C(1) << shift) - 1) / 2;
}

void hist_clear(struct hist *h)
{
    memset(h, 0, sizeof *h);
}

void hist_record(struct hist *h, uint64_t value)
{
    if (h->count == 0 || value < h->min)
        h->min = value;
    if (value > h->max)
        h->max = value;
    h->count++;
    h->bucket[bucket_of(value)]++;
}

void hist_merge(struct hist *into, const struct hist *from)
{
    if (from->count == 0)
        return;
    if (into->count == 0 || from->min < into->min)
        into->min = from->min;
    if (from->max > into->max)
        into->max = from->max;
    into->count += from->count;
    for (unsigned i = 0; i < HIST_BUCKETS; i++)
        into->bucket[i] += from->bucket[i];
}

uint64_t hist_quantile(const struct hist *h, double q)
{
    ASSERT(q >= 0 && q <= 1);
    if (q == 1)
        return h->max;

    /* The rank is q * count rounded up; the factor keeps a product that should be whole, such as
     * 0.07 * 100, from being rounded up because 0.07 has no exact binary form. */
    double want = q * (double)h->count * (1 - 4 * DBL_EPSILON);
    uint64_t rank = (uint64_t)want;
    if ((double)rank < want)
        rank++;

    uint64_t seen = 0;
    for (unsigned i = 0; i < HIST_BUCKETS && rank > 0; i++) {
        seen += h->bucket[i];
        if (seen >= rank) {
            uint64_t value = bucket_middle(i);
            return value < h->min ? h->min : value > h->max ? h->max : value;
        }
    }
    return h->min;
}
