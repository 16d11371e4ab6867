/* What the tables and the JSON of a report share. */
#ifndef BENCH_REPORT_INTERNAL_H
#define BENCH_REPORT_INTERNAL_H

#include "bench/report.h"

extern const char *const report_kind_names[FAR_OP_KINDS];

static inline double report_per(uint64_t sum, uint64_t count)
{
    return count > 0 ? (double)sum / (double)count : 0;
}

static inline double report_window_ms(const struct bench_config *c)
{
    return (double)c->window_ns / 1e6;
}

static inline double report_quantile_us(const struct bench_op *op, double q)
{
    return (double)hist_quantile(&op->latency, q) / 1e3;
}

#endif
