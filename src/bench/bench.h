/*
 * The benchmark: workloads on tables, measured.
 *
 *   keys      key numbers to bytes
 *   dist      which key next
 *   workload  which operation next
 *   workers   threads of one process or several, that start and stop together
 *   scratch   memory of a pool for verbs that mean nothing
 *   runner    one workload on one table: what it took
 *   replay    the same verbs with no index on top
 *   suite     a list of workloads on every index
 *   report    tables for people, JSON for programs
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "base/hist.h"
#include "bench/workload.h"

#include "farside.h"

#include <stdatomic.h>

#define BENCH_COUNT_MAX   1000000000u /* keys, and operations of a workload */
#define BENCH_THREADS_MAX 1024u       /* of all processes together */

struct bench_config {
    const char *pool;
    const char *index;  /* NULL: all there are */
    const char *tuning; /* of the tables; NULL: as usual */
    struct workload_list workloads;
    uint64_t keys, ops;
    unsigned processes, threads; /* so many threads in each; processes > 1: others do the work */
    unsigned depth;
    unsigned key_size, value_size;
    bool dist_given; /* else zipfian, but latest where the workload says so */
    enum bench_dist_kind dist;
    double theta;
    uint64_t seed;
    bool raw;
    const atomic_bool *stop; /* set by a signal: measure no further */
};

/* All threads that share a run. */
static inline unsigned bench_worker_count(const struct bench_config *c)
{
    return c->processes * c->threads;
}

/* What the processes of a team have to do: their shared memory begins with one of these. */
enum bench_order { BENCH_MEASURE, BENCH_REPLAY };

/* As farside bench has it when nothing is said, without stop. */
extern const struct bench_config bench_defaults;

/* What the operations of one kind took. */
struct bench_op {
    struct far_op_stats stats; /* sums over all operations                      */
    uint64_t wrong;            /* that brought another key's value, or entries that are not right */
    struct hist latency;       /* nanoseconds                                   */
};

/* One workload on one table, measured. */
struct bench_run {
    const char *index, *workload;
    bool draws_keys; /* by dist; others take them in turn */
    enum bench_dist_kind dist;
    uint64_t ops_planned, ops; /* a get followed by an update is one; of an iteration, each entry */
    double seconds;            /* of the slowest thread, without drawing tasks   */
    double ops_per_s;
    struct bench_op op[FAR_OP_KINDS];
    struct far_table_info space; /* after it; splits are those of this run        */
    double raw_ops_per_s;        /* 0: not measured                               */
    int first_error;             /* of an operation, other than FAR_NOT_FOUND     */
    bool interrupted;
};

/* Operations of a kind that went wrong, whatever way. */
uint64_t bench_op_errors(const struct bench_op *op);

struct bench_observer {
    void *arg;
    /* A workload is at work, or (done == total) just ended. What is not measured, such as loading
     * keys beforehand, shows up here only. */
    void (*progress)(void *arg, const char *index, const char *what, uint64_t done, uint64_t total);
    /* An index has its pool and table, and is about to be measured. */
    void (*index_begin)(void *arg, const char *index);
    void (*run)(void *arg, const struct bench_run *run);
    /* After the last run of an index. */
    void (*index_done)(void *arg, const char *index);
};

/* Does the configuration make sense? FAR_INVALID; the detail says why not. */
int bench_check(const struct bench_config *config);

/*
 * bench_suite - run the configured workloads on the configured indexes
 *
 * Each index has a pool opened for it and works on a new table "bench-INDEX". If the list does not
 * begin with load, the keys are loaded before it without being measured. A signal ends it early,
 * with FAR_OK.
 *
 * FAR_INVALID   as bench_check()
 * FAR_SYSTEM    a process of several has died
 * FAR_NO_INDEX  no such index
 * or what opening the pool or the table failed with.
 */
int bench_suite(const struct bench_config *config, const struct bench_observer *observer);

#endif
