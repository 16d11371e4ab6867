/*
 * Machines that measure together meet in a table of the pool.
 *
 * A machine is a process with a rank, from 0. Machine 0 makes the table, named after the run:
 * farside-bench-meet-NAME. Each machine has one row there, which only that machine writes: the
 * steps to which it has come, a heartbeat, and how it ended. So no write can be lost, and whatever
 * is done twice does no harm.
 *
 *   - All come to the same steps in the same order. A machine is past a step when it has seen that
 *     all others have come to it. So nobody is more than one step ahead, and a row keeps what its
 *     machine brought to its last two.
 *   - A thread of each machine renews the heartbeat ten times a second, and looks at the others'.
 *     A machine whose heartbeat stands still for `patience` is given up. A machine that could not
 *     look for half that time was away itself, and begins to wait for the others again.
 *   - What stops one machine, a signal for one, stops the others: it is in its row.
 *   - A table of an earlier run that was killed confuses nobody: machine 0 replaces it when the
 *     heartbeat of its machine 0 stands still, and a machine joins only if that heartbeat moves.
 *
 * What one step costs are a put and a get of every row. While others measure, a machine that waits
 * looks up to 200 times a second.
 */
#ifndef BENCH_MEET_H
#define BENCH_MEET_H

#include "bench/workload.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEET_MACHINES_MAX 256u
#define MEET_NAME_MAX     40u   /* bytes of the name of a run */
#define MEET_OPTIONS_MAX  2048u /* bytes */
#define MEET_HOST_BYTES   64
#define MEET_JOIN_FACTOR  30u /* machines are awaited at first for this many times the patience */

struct meet;

struct meet_options {
    const char *pool;
    const char *name; /* of the run: no two may have the same at a time */
    unsigned rank, machines;
    /* What must be the same on all machines: lines such as "--keys 1000". */
    const char *options;
    unsigned patience_ms;
    const atomic_bool *stop; /* of this machine; may be NULL */
    /* Reports who joins, and for whom it waits. May be NULL. */
    void (*note)(void *arg, const char *text);
    void *arg;
};

/*
 * Meets the other machines. The call returns when all have come.
 *
 * FAR_INVALID   a bad name, or other options than those of machine 0
 * FAR_EXISTS    another process has this rank, or machine 0 leads another run of this name
 * FAR_SYSTEM    a machine has not come, or was given up
 * FAR_STOPPED   *stop, or that of another machine, was set
 * or the error of the pool.
 */
int meet_open(const struct meet_options *options, struct meet **meet);

/*
 * Leaves, and says why: the others' next step fails with this status. Machine 0 then waits until
 * the others have left, but not for longer than the patience, and drops the table. NULL is ignored.
 */
void meet_close(struct meet *m, int status);

unsigned meet_rank(const struct meet *m);
unsigned meet_machines(const struct meet *m);
/* The host that a machine runs on. */
const char *meet_host(const struct meet *m, unsigned rank);
/* Set when a machine was stopped, has failed or was given up. */
const atomic_bool *meet_stop(const struct meet *m);
/* Stops all machines. */
void meet_set_stop(struct meet *m);

/*
 * A step: waits until all machines have come to it. `status` is what this machine brings; its
 * detail is that of the last error. All machines return the same, that of the lowest rank with an
 * error. The detail names the machine.
 *
 * FAR_SYSTEM   a machine was given up
 * FAR_STOPPED  a machine has left without coming here
 * or that with which a machine has left.
 */
int meet_agree(struct meet *m, int status);

/* The same, and all get the bytes of machine 0. `len` is the same everywhere. */
int meet_share(struct meet *m, int status, void *bytes, size_t len);

/* Leaves bytes for others, instead of those of the same name before. They are there for sure when
 * this machine has come to its next step. */
int meet_post(struct meet *m, const char *what, const void *bytes, size_t len);
/* Those of a machine. FAR_TOO_SMALL, FAR_NOT_FOUND */
int meet_take(struct meet *m, unsigned rank, const char *what, void *bytes, size_t cap,
              size_t *len);

/*
 * The keys that were added (see workload.h) by the workers of other machines become known here
 * within two heartbeats, until the next call. `added` has an entry for each worker of all machines;
 * those of this machine are `count` from `first` on. NULL: the run is over.
 */
void meet_watch_added(struct meet *m, struct workload_added *added, unsigned all, unsigned first,
                      unsigned count);

#endif
