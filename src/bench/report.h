/* The results of a benchmark: a table for people, JSON for programs. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "bench/bench.h"

#include <jansson.h>
#include <stdio.h>

/* ---- for people: lines as they come, 120 columns at most ------------------------------------- */

struct report {
    FILE *out;
    const struct bench_config *config;
    const char *index;           /* of the last run */
    unsigned runs;               /* of this index so far */
    struct far_table_info space; /* after the last run; splits of all runs */
};

/* Prints what will run, what the columns mean, and their heads. */
void report_begin(struct report *r, FILE *out, const struct bench_config *config);
void report_run(struct report *r, const struct bench_run *run);
/* Prints how the index used memory, if something ran. */
void report_index(struct report *r, const char *index);
/* Prints that a table was dropped. */
void report_dropped(struct report *r, const struct bench_drop *drop);
/* What to do about an error that ends a run, or NULL. */
const char *report_hint(int status);

/* ---- for programs ------------------------------------------------------------------------------
 *
 * New references, NULL when out of memory. docs/man/farside-bench.1 describes the members.
 */
json_t *report_json(const struct bench_config *config, json_t *runs, json_t *drops,
                    bool interrupted);
json_t *report_json_drop(const struct bench_drop *drop);
json_t *report_json_run(const struct bench_config *config, const struct bench_run *run);

#endif
