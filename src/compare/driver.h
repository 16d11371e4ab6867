/* How the workers of the benchmark (bench/worker.h) reach a store that is compared: each has a
 * client of the store. Operations are prepared before the clock runs, and answers checked when it
 * has stopped. */
#ifndef COMPARE_DRIVER_H
#define COMPARE_DRIVER_H

#include "bench/worker.h"
#include "compare/rival.h"

/* The `store` of a target with this driver. */
struct driver_store {
    const struct rival_ops *ops;
    void *store;
};

/*
 * A run is halted by what the store failed with, or by
 *
 * FAR_CORRUPT  a get did not find a key that exists, or returned a wrong value
 */
extern const struct worker_driver driver_of_rivals;

#endif
