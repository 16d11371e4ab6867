/*
 * What the cells of one experiment have measured.
 *
 * Each workload has a run for each seed. A number is that of one seed, or the median of all. So
 * tables and claims are computed from one kind of results, whether they are about a seed or about
 * all of them.
 *
 * The functions return NAN if the cell, the workload or the number is not there, so that what is
 * computed from such a number is not a number either. Cells are named by a format like printf's.
 */
#ifndef REPRODUCE_RESULTS_H
#define REPRODUCE_RESULTS_H

#include "reproduce/plan.h"

#include <jansson.h>

struct results {
    const struct plan *plan;
    json_t *runs[PLAN_CELLS_MAX]; /* of each cell of the plan, as cell_measure() returns them */
    unsigned seed; /* numbers are those of the n-th seed; 0: the median of all seeds' */
};

/*
 * Did the clients stand still for most of a run, for reasons that do not show in 99 % of its
 * operations? All clients together then had more than RESULTS_STALL times the time that the
 * operations need at their 99th percentiles. Without stalls, also under contention, it is about
 * once that time. Such a run says nothing about throughput.
 */
#define RESULTS_STALL 5.0
bool results_stalled(const struct plan_cell *cell, const json_t *run);

/* Is a number missing because a run stood still? Such a NAN stays one of its kind in what is
 * computed from it. */
bool results_stood_still(double number);

/* Operations per second of a workload; NAN if it stood still. */
double results_rate(const struct results *r, const char *workload, const char *cell, ...)
    __attribute__((format(printf, 3, 4)));
/* The same of the run at a place in the cell's list of workloads. */
double results_rate_at(const struct results *r, unsigned place, const char *cell, ...)
    __attribute__((format(printf, 3, 4)));
/* The same of each window of a run, one after the other: sets up to `room` of them, and returns how
 * many. 0 if the cell has none. */
unsigned results_timeline(const struct results *r, const char *workload, double *rates,
                          unsigned room, const char *cell, ...)
    __attribute__((format(printf, 5, 6)));
/* A member of "per_op": results_op(r, "a", "update", "rtts", ...). */
double results_op(const struct results *r, const char *workload, const char *op, const char *member,
                  const char *cell, ...) __attribute__((format(printf, 5, 6)));
/* A member of "space" after the workload. */
double results_space(const struct results *r, const char *workload, const char *member,
                     const char *cell, ...) __attribute__((format(printf, 4, 5)));

void results_free(struct results *r);

#endif
