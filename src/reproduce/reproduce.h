/*
 * Repeats experiments of the papers on RACE, SepHash, SHARD, RCuckoo and CHIME.
 *
 *   plan        cells: what an experiment measures
 *   cell        one cell, measured by bench_suite()
 *   results     the numbers of an experiment's cells
 *   archive     the files with the results
 *   claim       what the papers claim, and whether it holds here
 *   sheet       tables
 *   experiment  the list of experiments
 *   exp_*       the experiments
 *   reproduce   runs experiments, prints them, and writes them as JSON
 */
#ifndef REPRODUCE_REPRODUCE_H
#define REPRODUCE_REPRODUCE_H

#include "reproduce/cell.h"
#include "reproduce/experiment.h"

struct reproduce_options {
    const char *dir; /* for the results */
    bool quick;
    bool resume; /* results that are there are used */
    struct cell_setting setting;
};

/* One experiment, planned and measured. */
struct reproduction {
    const struct experiment *experiment;
    struct plan plan;
    struct results results;
    unsigned measured, reused; /* cells so far */
    unsigned outdated;         /* results of another configuration or version, measured again */
    const struct plan_cell *failed; /* if an error has ended it: the cell */
    /* Cells of which operations failed, and why: they have no results. */
    unsigned failures;
    char failure[PLAN_CELLS_MAX][ERR_DETAIL_BYTES];
};

/* Plans the experiment. NULL when out of memory. */
struct reproduction *reproduce_new(const struct experiment *e, bool quick);
void reproduce_free(struct reproduction *r);

/* Measures all cells, and keeps each result as soon as it is there. FAR_STOPPED: setting.stop was
 * set. Any other error is one of a cell, which `failed` names, or of the directory. If operations
 * fail, the cell is noted in `failure`, and the next one is measured. */
int reproduce_run(struct reproduction *r, const struct reproduce_options *options);

/* Prints what was run, the results, and the claims. */
void reproduce_print(const struct reproduction *r, FILE *out);

/* The same for programs. A new reference; NULL when out of memory. docs/man/farside-reproduce.1
 * describes the members. */
json_t *reproduce_json(const struct reproduction *r, const struct reproduce_options *options);

#endif
