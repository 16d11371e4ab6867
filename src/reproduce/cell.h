/* One cell, measured. */
#ifndef REPRODUCE_CELL_H
#define REPRODUCE_CELL_H

#include "reproduce/plan.h"

#include <jansson.h>

/* How cells are run, whichever experiment they are of. */
struct cell_setting {
    const char *testbed; /* the pool for cells on a network; NULL: the model */
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

/*
 * cell_measure - run the cell
 *
 * runs   set to a new array with the runs, as `farside bench --json` has them
 *
 * FAR_STOPPED  setting->stop was set; nothing was measured
 * FAR_INVALID  operations failed or returned something wrong; the detail says which
 * or an error of bench_suite().
 */
int cell_measure(const struct plan_cell *cell, const struct cell_setting *setting, json_t **runs);

#endif
