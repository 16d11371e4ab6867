/*
 * The runs of a workload that was repeated: what they did together, and how far they were apart.
 *
 * Each run gives one sample of each figure. Samples are kept for as long as the list is; sums over
 * all operations, with their histograms, only until summary_forget_sums().
 */
#ifndef BENCH_SUMMARY_H
#define BENCH_SUMMARY_H

#include "bench/bench.h"

#define SUMMARY_INDEX_BYTES 32

enum summary_figure {
    SUMMARY_OPS_PER_S,
    SUMMARY_RAW_OPS_PER_S,
    SUMMARY_P50, /* latencies in nanoseconds: one of each for every kind of operation */
    SUMMARY_P99 = SUMMARY_P50 + FAR_OP_KINDS,
    SUMMARY_P999 = SUMMARY_P99 + FAR_OP_KINDS,
    SUMMARY_FIGURES = SUMMARY_P999 + FAR_OP_KINDS
};

/* One workload on one index with one number of threads. */
struct summary {
    char index[SUMMARY_INDEX_BYTES];
    const char *workload;
    unsigned place, threads;
    unsigned runs; /* that came to their end: one sample of each figure */
    double *sample[SUMMARY_FIGURES];
    uint64_t count[FAR_OP_KINDS]; /* operations of each kind, of all runs */
    /*
     * All runs in one: counts and times are sums, histograms are merged, ops_per_s is the median.
     * Space and splits are those of the last run, windows those of the first. The slowest window
     * and the longest delays are the worst of all runs.
     */
    struct bench_run *sums;
};

struct summary_list {
    struct summary **item;
    unsigned count;
};

/* Adds a run with this many threads. A run that did not come to its end is in the sums, but is no
 * sample. FAR_NO_MEMORY. */
int summary_add(struct summary_list *list, unsigned threads, const struct bench_run *run);
void summary_forget_sums(struct summary *s);
void summary_list_free(struct summary_list *list);

/* The median of an even number of samples is the mean of the two in the middle. All are 0 if there
 * is no sample. */
struct summary_spread {
    double least, median, most;
};
struct summary_spread summary_spread(const struct summary *s, unsigned figure);
/* The same of any numbers, which are sorted. */
struct summary_spread summary_spread_of(double *number, unsigned count);
void summary_sort(double *number, unsigned count);

#endif
