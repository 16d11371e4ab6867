/* One plan, carried out on one table. */
#ifndef BENCH_RUNNER_H
#define BENCH_RUNNER_H

#include "bench/bench.h"

struct replay_recorder;
struct workers_process;
struct workers_team;

struct bench_target {
    far_pool *pool;
    far_table *table;
    unsigned depth;
    struct replay_recorder *recorder; /* NULL, or sees the verbs: then one thread, depth 1 */
    struct workers_team *team;        /* whose processes do it; NULL: threads of this one  */
    const char *what;                 /* for the observer's progress */
};

/* What bench_measure() needs of a team's memory. */
size_t bench_measure_shared_bytes(unsigned workers);

/*
 * Carries the plan out with its threads, those of all processes, each with a session of its own,
 * and fills run but for raw_ops_per_s. Operations that fail are counted, and are no failure here.
 * FAR_NO_CLIENT_SLOT, FAR_NO_MEMORY, FAR_SYSTEM, FAR_UNREACHABLE
 */
int bench_measure(const struct bench_config *config, const struct bench_target *target,
                  const struct workload_plan *plan, const struct bench_observer *observer,
                  struct bench_run *run);

/* A process's part of it, on its own handle of the pool. */
int bench_measure_serve(const struct bench_config *config, struct workers_process *process,
                        far_pool *pool);

#endif
