/* Runs one workload on one store, with threads, and measures it. */
#ifndef COMPARE_MEASURE_H
#define COMPARE_MEASURE_H

#include "bench/bench.h"
#include "compare/rival.h"

struct measure {
    const char *name; /* of the store, for errors */
    const struct rival_ops *ops;
    void *store;
    const struct rival_setup *setup;
    const struct bench_sizes *sizes;
    const struct workload_plan *plan;
    const atomic_bool *stop; /* may be NULL */
};

/*
 * Sets the operations per second, by the slowest thread's time without preparing operations and
 * checking answers. If `stop` was set, the number means nothing.
 *
 * FAR_CORRUPT  a get did not find a key that exists, or returned a wrong value
 * FAR_NO_MEMORY, or what the store failed with.
 */
int measure_run(const struct measure *m, double *ops_per_s);

/* Can the workload be compared: is every operation a get or a put? */
bool measure_can(const struct workload *w);

#endif
