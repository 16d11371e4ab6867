/* One cell, measured. */
#ifndef REPRODUCE_CELL_H
#define REPRODUCE_CELL_H

#include "base/err.h"
#include "bench/meet.h"
#include "reproduce/plan.h"

#include <jansson.h>

/* How cells are run, whichever experiment they are of. */
struct cell_setting {
    const char *testbed; /* the pool for cells on a network; NULL: the model */
    struct meet *meet;   /* machines that measure on it together; NULL: this one alone */
    const atomic_bool *stop;
    void *arg;
    /* May be NULL. */
    void (*progress)(void *arg, const struct plan_cell *cell, const char *what, uint64_t done,
                     uint64_t total);
};

/* The URI of the cell's pool. */
#define CELL_URI_BYTES 1024
const char *cell_uri(const struct plan_cell *cell, const char *testbed, char uri[CELL_URI_BYTES]);

/*
 * How each workload of a cell is measured: once for each seed, on a table of its own, which is
 * filled before. On a network, clients work for a while before that is measured, so that their
 * caches are full, and then for at least CELL_LEAST_MS, of virtual time on the model. Runs that
 * fill a table (until_full) have as many operations as the cell says, all together.
 */
#define CELL_SEEDS            3u
#define CELL_LEAST_MS         20u
#define CELL_TESTBED_LEAST_MS 1000u /* where time is real */
#define CELL_WARM_OPS         500u  /* of each client */

/* The benchmark that measures the cell's workload at that place, with the n-th seed, without stop.
 * Its pool is `uri`. FAR_INVALID: no such workload. */
int cell_config(const struct plan_cell *cell, unsigned place, unsigned seed, const char *testbed,
                char uri[CELL_URI_BYTES], struct bench_config *config);

/* How many workloads the cell has. */
unsigned cell_workloads(const struct plan_cell *cell);

/* Everything on which the cell's result depends, except for the version. A new reference; NULL when
 * out of memory. */
json_t *cell_configuration(const struct plan_cell *cell, const char *testbed);

/* Does this machine keep the results? */
static inline bool cell_kept(const struct cell_setting *setting)
{
    return !setting->meet || meet_rank(setting->meet) == 0;
}
/* Does it measure the cell? Only those on the testbed are for all machines. */
bool cell_measured(const struct plan_cell *cell, const struct cell_setting *setting);

struct cell_outcome {
    json_t *runs; /* a new array with the runs, as `farside bench --json` has them, those of the
                   * first seed, then those of the next one; or those of verbs with workload,
                   * outstanding and ops_per_s; NULL: it failed */
    char failure[ERR_DETAIL_BYTES];
};

/*
 * cell_measure - run the cell
 *
 * If operations fail or return something wrong, which does not concern other cells, the outcome
 * says so.
 *
 * FAR_STOPPED  setting->stop was set; nothing was measured
 * or an error of bench_suite() or bare_rate() that other cells would have, too.
 */
int cell_measure(const struct plan_cell *cell, const struct cell_setting *setting,
                 struct cell_outcome *outcome);

#endif
