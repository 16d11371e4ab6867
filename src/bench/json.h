/* The results of a benchmark for programs: JSON.
 *
 * New references, NULL when out of memory. docs/man/farside-bench.1 describes the members. */
#ifndef BENCH_JSON_H
#define BENCH_JSON_H

#include "bench/bench.h"
#include "bench/summary.h"

#include <jansson.h>

json_t *bench_json(const struct bench_config *config, json_t *runs,
                   const struct summary_list *summaries, json_t *drops, bool interrupted);
json_t *bench_json_drop(const struct bench_drop *drop);
json_t *bench_json_run(const struct bench_config *config, const struct bench_run *run);
/* Numbers in a unit: of microseconds in nanoseconds, 1000. */
json_t *bench_json_spread(struct summary_spread spread, double unit);

#endif
