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

/* The benchmark that measures the cell, without stop. Its pool is `uri`. FAR_INVALID: no such
 * workload. */
int cell_config(const struct plan_cell *cell, const char *testbed, char uri[CELL_URI_BYTES],
                struct bench_config *config);

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
    json_t *runs; /* a new array with the runs, as `farside bench --json` has them, or those of
                * verbs with workload, outstanding and ops_per_s; NULL: it failed */
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
