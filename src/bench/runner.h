/* One plan, carried out on one table. */
#ifndef BENCH_RUNNER_H
#define BENCH_RUNNER_H

#include "bench/bench.h"

struct recorder;

struct bench_target {
    far_pool *pool;
    far_table *table;
    unsigned depth;
    struct recorder *recorder; /* NULL, or sees the verbs: then one thread, depth 1 */
    const char *what;          /* for the observer's progress */
};

/*
 * Carries the plan out with its threads, each with a session of its own, and fills run but for
 * raw_ops_per_s. Operations that fail are counted, and are no failure here.
 * FAR_NO_CLIENT_SLOT, FAR_NO_MEMORY, FAR_SYSTEM, FAR_UNREACHABLE
 */
int bench_measure(const struct bench_config *config, const struct bench_target *target,
                  const struct plan *plan, const struct bench_observer *observer,
                  struct bench_run *run);

#endif
