/* What the table and the JSON of results share. */
#ifndef BENCH_FIGURES_H
#define BENCH_FIGURES_H

#include "bench/bench.h"

extern const char *const bench_kind_names[FAR_OP_KINDS];

static inline double bench_per(uint64_t sum, uint64_t count)
{
    return count > 0 ? (double)sum / (double)count : 0;
}

static inline double bench_window_ms(const struct bench_config *c)
{
    return (double)c->window_ns / 1e6;
}

static inline double bench_quantile_us(const struct bench_op *op, double q)
{
    return (double)hist_quantile(&op->latency, q) / 1e3;
}

#endif
