/* What a benchmark measured: a table for people, JSON for programs. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "bench/bench.h"

#include <jansson.h>
#include <stdio.h>

/* ---- for people: lines as they come, 120 columns at most ------------------------------------- */

struct report {
    FILE *out;
    const struct bench_config *config;
    unsigned runs;               /* of the index under test so far          */
    struct far_table_info space; /* after the last of them; splits of all   */
};

/* What is going to run, what the columns mean, and their heads. */
void report_begin(struct report *r, FILE *out, const struct bench_config *config);
void report_run(struct report *r, const struct bench_run *run);
/* How the index used memory, if it came to that. */
void report_index(struct report *r, const char *index);

/* ---- for programs ------------------------------------------------------------------------------
 *
 * New references, NULL when out of memory. docs/man/farside-bench.1 describes the members.
 */
json_t *report_json(const struct bench_config *config, json_t *runs, bool interrupted);
json_t *report_json_run(const struct bench_config *config, const struct bench_run *run);

#endif
