/* The results of a benchmark: a table for people, JSON for programs. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "bench/bench.h"
#include "bench/summary.h"
#include "out/text.h"

#include <jansson.h>
#include <stdio.h>

/* ---- for people: lines as they come ---------------------------------------------------------- */

#define REPORT_INDEX   32 /* bytes of the name of an index */
#define REPORT_COLUMNS 11

/* A run, to be compared with the same one with another number of threads. */
struct report_seen {
    char index[REPORT_INDEX];
    const char *workload;
    unsigned place; /* in the list of workloads */
    unsigned threads;
    double ops_per_s;
};

struct report {
    FILE *out;
    struct column column[REPORT_COLUMNS];
    struct columns columns;
    const struct bench_config *config;
    char index[REPORT_INDEX];    /* of the last run; "" if there is none */
    bool refusal_told;           /* why counters are missing */
    bool several;                /* numbers of threads, one after the other */
    unsigned place;              /* of the next run in the list of workloads */
    unsigned runs;               /* of this index so far */
    struct far_table_info space; /* after the last run; splits of all runs */
    struct report_seen *seen;
    unsigned seen_count;
};

/* Prints what will run, what the columns mean, and their heads. `threads`: one number, or several
 * with commas between them. */
void report_begin(struct report *r, FILE *out, const struct bench_config *config,
                  const char *threads);
/* Begins with config->threads; to be called for each of several numbers. */
void report_threads(struct report *r, const struct bench_config *config);
void report_run(struct report *r, const struct bench_run *run);
/* Prints the runs of a repeated workload in the place of one run, and how far they were apart. */
void report_summary(struct report *r, const struct summary *summary);
/* Prints how the index used memory, if something ran. */
void report_index(struct report *r, const char *index);
/* Prints that a table was dropped. */
void report_dropped(struct report *r, const struct bench_drop *drop);
/* Prints what to know about the numbers, and whether more threads were slower than one. */
void report_end(struct report *r);
/* What to do about an error that ends a run, or NULL. */
const char *report_hint(int status);

/* ---- for programs ------------------------------------------------------------------------------
 *
 * New references, NULL when out of memory. docs/man/farside-bench.1 describes the members.
 */
json_t *report_json(const struct bench_config *config, json_t *runs,
                    const struct summary_list *summaries, json_t *drops, bool interrupted);
json_t *report_json_drop(const struct bench_drop *drop);
json_t *report_json_run(const struct bench_config *config, const struct bench_run *run);
/* Numbers in a unit: of microseconds in nanoseconds, 1000. */
json_t *report_json_spread(struct summary_spread spread, double unit);

#endif
