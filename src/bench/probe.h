/* Looks at memory nodes without opening a pool: do they answer, and how long does a round trip
 * take? */
#ifndef BENCH_PROBE_H
#define BENCH_PROBE_H

#include "base/err.h"
#include "farside.h"

#include <stdatomic.h>

#define PROBE_NODES_MAX 64u

struct probe_node {
    uint64_t bytes;
    int status; /* of the READ that failed; then the rest is not set */
    char detail[ERR_DETAIL_BYTES];
    unsigned reads;
    uint64_t least_ns, median_ns, p99_ns;
};

struct probe {
    unsigned nodes;
    bool empty; /* the nodes hold no pool yet */
    struct probe_node node[PROBE_NODES_MAX];
};

/*
 * Opens the fabric that the URI names, and READs 8 bytes from each node up to 1,000 times, for a
 * second at most. Nothing is written to the nodes. Stops early when `stop` is set. If several nodes
 * fail, only the first one is named in the error of opening the fabric.
 *
 * Returns the error of opening the fabric, or FAR_NO_MEMORY.
 */
int probe_run(const char *uri, const atomic_bool *stop, struct probe *probe);

/* Counts the sessions of the pool that are silent for longer than a lease. Takes up to a lease and
 * a half if there are other sessions; far_session_watch() can stop it. Changes nothing. */
int probe_dead(far_session *session, unsigned *dead);

/* The lease of the session's pool. */
uint64_t probe_lease_ms(const far_session *session);

#endif
