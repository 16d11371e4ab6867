/*
 * Latency histogram: log-linear, 7 bits of mantissa, so that a value reported for a percentile is
 * within 1 % of the true one. Fixed size, no allocation; recording is a few instructions.
 */
#ifndef BASE_HIST_H
#define BASE_HIST_H

#include <stdint.h>

#define HIST_SUB_BITS 7
#define HIST_SUB      (1u << HIST_SUB_BITS)
#define HIST_BUCKETS  ((64 - HIST_SUB_BITS + 1) * HIST_SUB)

struct hist {
    uint64_t count, min, max;
    uint64_t bucket[HIST_BUCKETS];
};

void hist_clear(struct hist *h);
void hist_record(struct hist *h, uint64_t value);
void hist_merge(struct hist *into, const struct hist *from);

/* The value that a fraction q (0..1) of the recorded ones does not exceed; 0 when empty.
 * q = 1 is the exact maximum. */
uint64_t hist_quantile(const struct hist *h, double q);

#endif
