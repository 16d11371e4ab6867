/* The results of a benchmark for people: a table, line by line as they come. */
#ifndef BENCH_PRINT_H
#define BENCH_PRINT_H

#include "bench/bench.h"
#include "bench/summary.h"
#include "out/text.h"

#include <stdio.h>

#define PRINT_INDEX   32 /* bytes of the name of an index */
#define PRINT_COLUMNS 11

/* A run, to be compared with the same one with another number of threads. */
struct print_seen {
    char index[PRINT_INDEX];
    const char *workload;
    unsigned place; /* in the list of workloads */
    unsigned threads;
    double ops_per_s;
};

struct bench_print {
    FILE *out;
    struct column column[PRINT_COLUMNS];
    struct columns columns;
    const struct bench_config *config;
    char index[PRINT_INDEX];     /* of the last run; "" if there is none */
    bool refusal_told;           /* why counters are missing */
    bool several;                /* numbers of threads, one after the other */
    unsigned place;              /* of the next run in the list of workloads */
    unsigned runs;               /* of this index so far */
    struct far_table_info space; /* after the last run; splits of all runs */
    struct print_seen *seen;
    unsigned seen_count;
};

/* Prints what will run, what the columns mean, and their heads. `threads`: one number, or several
 * with commas between them. */
void bench_print_begin(struct bench_print *r, FILE *out, const struct bench_config *config,
                       const char *threads);
/* Begins with config->threads; to be called for each of several numbers. */
void bench_print_threads(struct bench_print *r, const struct bench_config *config);
void bench_print_run(struct bench_print *r, const struct bench_run *run);
/* Prints the runs of a repeated workload in the place of one run, and how far they were apart. */
void bench_print_summary(struct bench_print *r, const struct summary *summary);
/* Prints how the index used memory, if something ran. */
void bench_print_index(struct bench_print *r, const char *index);
/* Prints that a table was dropped. */
void bench_print_dropped(struct bench_print *r, const struct bench_drop *drop);
/* Prints what to know about the numbers, and whether more threads were slower than one. */
void bench_print_end(struct bench_print *r);
/* What to do about an error that ends a run, or NULL. */
const char *bench_hint(int status);

#endif
