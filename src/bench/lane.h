/*
 * A lane: one operation of Farside in flight, with its buffers. At depth 1, a worker has one lane
 * and calls the synchronous functions; at larger depths, it keeps its lanes filled through the
 * ring.
 */
#ifndef BENCH_LANE_H
#define BENCH_LANE_H

#include "bench/worker.h"

struct lane {
    struct workload_task task;
    uint64_t number;
    uint64_t started;
    uint64_t cursor; /* of an iteration */
    const struct bench_sizes *sizes;
    unsigned char *key, *value, *buf, *expected;
    size_t key_size;
    bool right; /* modify: the old value was one of that key */
};

/* The bytes that the buffer of an operation must have. */
size_t lane_buf_bytes(const struct bench_config *c, const struct workload *w);
/* A task begins. `since`: its latency counts from then. */
void lane_begin(struct worker *w, struct lane *l, const struct workload_task *task, uint64_t since);
/* The operation that the lane's task is at. */
struct far_op lane_op(struct worker *w, struct lane *l);
/* Records a result. True if the task goes on with another operation, which starts now. */
bool lane_end(struct worker *w, struct lane *l, const struct far_result *r, uint64_t now);
/* The round trips of all sessions of the worker. `stats` are those of the last session. */
uint64_t lane_rtts_so_far(const struct worker *w, const struct far_stats *stats);

#endif
