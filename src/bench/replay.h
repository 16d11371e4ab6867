/*
 * The same verbs without an index.
 *
 * A recorder keeps the shape of the batches that an index posts for a sample of operations: kinds,
 * nodes, lengths, places within a line, and which batches make up an operation. The replay posts
 * operations of these shapes straight to the pool's fabric, at random addresses in as much scratch
 * memory as the table takes. The throughput is what an index that needs no time itself would reach:
 * the yardstick for efficiency.
 */
#ifndef BENCH_REPLAY_H
#define BENCH_REPLAY_H

#include "bench/bench.h"
#include "bench/workers.h"
#include "fabric/batch.h"

struct replay_verb {
    uint8_t kind, flags, node;
    uint8_t place; /* bytes past a multiple of 64 */
    uint32_t len;
};

struct replay_recorder {
    struct batch_tap tap;
    uint64_t stride; /* one operation in `stride` is kept */
    uint64_t seen;
    bool on;
    int status; /* FAR_NO_MEMORY: the sample ends there */
    /* Operation i is batches op[i] .. op[i + 1] - 1, batch j is verbs batch[j] .. batch[j + 1] - 1;
     * both have one more entry than they count. */
    struct replay_verb *verb;
    size_t *batch, *op;
    size_t verbs, batches, ops;
    size_t verbs_max, batches_max, ops_max;
};

/* For a run of `ops` operations. FAR_NO_MEMORY. */
int replay_recorder_init(struct replay_recorder *r, uint64_t ops);
void replay_recorder_free(struct replay_recorder *r);

/* Between these two calls, the session's synchronous operations are recorded. */
void replay_recorder_attach(struct replay_recorder *r, far_session *session);
void replay_recorder_detach(struct replay_recorder *r, far_session *session);

/* Announces the next operation. */
void replay_recorder_next(struct replay_recorder *r);

struct replay_load {
    far_session *session;        /* holds the scratch memory, and can do nothing else meanwhile */
    struct workers_team *team;   /* whose processes run it; NULL: threads of this one */
    unsigned processes, threads; /* threads of each process */
    unsigned depth;
    uint64_t ops;
    uint64_t footprint; /* bytes, over all nodes */
    uint64_t seed;
    const atomic_bool *stop; /* may be NULL */
};

/* The bytes that replay_run() needs of a team's memory. */
size_t replay_shared_bytes(unsigned workers);

/*
 * Replays `ops` operations of the sample; each thread starts at another place of it.
 *
 * FAR_INVALID      the sample is empty
 * FAR_TIMEOUT      stopped before the end
 * FAR_POOL_FULL    the pool has less memory left than the table takes
 * FAR_FENCED       the session lost the memory: this process was stopped for too long
 * or the error of the fabric.
 */
int replay_run(const struct replay_load *load, const struct replay_recorder *sample,
               double *ops_per_s);

/* What a process of a team does for it, with its own handle of the pool. */
int replay_serve(struct workers_process *process, far_pool *pool);

#endif
