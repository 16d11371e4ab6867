/*
 * The benchmark: workloads on tables, measured.
 *
 *   keys      key numbers to bytes
 *   dist      which key next
 *   workload  which operation next
 *   mix       workloads that the user defines
 *   workers   threads of one process or several that start and stop together
 *   scratch   memory of a pool for verbs without a meaning
 *   counters  what a thread costs its processor
 *   pace      when operations are due at a fixed rate
 *   sums      figures of several workers or runs, added up
 *   meet      machines that measure together, in a table of the pool
 *   pack      structures as few bytes
 *   merge     the runs of all machines in one
 *   worker    a thread that does tasks, by a driver
 *   lane      one operation in flight
 *   session   the driver for tables of Farside
 *   runner    one workload on one table, measured
 *   replay    the same verbs without an index
 *   tables    names of tables, and dropping them
 *   suite     a list of workloads on every index
 *   summary   the runs of a workload that was repeated
 *   print     the results for people: a table
 *   json      the results for programs
 *   machine   on what it ran
 *   probe     whether memory nodes answer, and how fast
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "base/err.h"
#include "base/hist.h"
#include "bench/counters.h"
#include "bench/keys.h"
#include "bench/workload.h"
#include "model/model.h"

#include "farside.h"

#include <stdatomic.h>

struct meet;

#define BENCH_COUNT_MAX   1000000000u /* keys, and operations of a workload */
#define BENCH_THREADS_MAX 1024u       /* of all processes together, on all machines */
#define BENCH_REPEAT_MAX  1000u

struct bench_config {
    const char *pool;
    const char *index;      /* NULL: all */
    const char *indexes;    /* the list that it is from, for its head; NULL: none */
    const char *tuning;     /* NULL: the defaults */
    uint64_t expected_keys; /* the room that the table begins with; 0: it starts small */
    struct workload_list workloads;
    uint64_t keys, ops;
    uint64_t warmup; /* operations before those that are measured */
    /* > 0: a run goes on beyond `ops` until it has lasted so long, unless it loads or deletes keys.
     * Then no other workload may follow it. */
    uint64_t least_ns;
    unsigned processes, threads; /* threads of each process; if > 1 processes, this one leads */
    /* Machines that measure together: this process is one, of that rank, with threads of its own.
     * If there are others, they have met. */
    unsigned machines, rank;
    struct meet *meet;
    unsigned clients; /* threads of all machines, if not as many on each; 0: they are */
    unsigned depth;
    bool batch; /* `depth` operations at a time by far_execute_many(), not through the ring */
    struct bench_sizes sizes;
    bool dist_given; /* else zipfian, or latest if the workload prefers that */
    enum bench_dist_kind dist;
    double theta;
    uint64_t rate;   /* operations per second, of all threads together; 0: as fast as possible */
    unsigned repeat; /* how often each workload runs */
    uint64_t seed;
    unsigned deaths; /* of clients, in a second of virtual time */
    bool raw;
    bool counters;           /* count cycles, cache misses and so on */
    bool timeline;           /* show the windows of a run one by one */
    uint64_t window_ns;      /* length of a window, > 0 */
    bool keep;               /* leave the tables in the pool, named bench-INDEX */
    const atomic_bool *stop; /* ends the measurement when set; may be NULL */
};

/* The threads of all processes of this machine. */
static inline unsigned bench_worker_count(const struct bench_config *c)
{
    if (c->clients > 0)
        return c->clients / c->machines + (c->rank < c->clients % c->machines);
    return c->processes * c->threads;
}

/* Those of all machines. */
static inline unsigned bench_worker_total(const struct bench_config *c)
{
    return c->clients > 0 ? c->clients : c->machines * bench_worker_count(c);
}

/* Those of the machines with lower ranks. */
static inline unsigned bench_workers_before(const struct bench_config *c)
{
    unsigned more = c->clients > 0 ? c->clients % c->machines : 0; /* machines with one more */
    return c->rank * (bench_worker_total(c) / c->machines) + (c->rank < more ? c->rank : more);
}

/* What the processes of a team have to do: their shared memory begins with one of these. */
enum bench_order { BENCH_MEASURE, BENCH_REPLAY };

/* The defaults of farside bench, without stop. */
extern const struct bench_config bench_defaults;

/* The cost of the operations of one kind. */
struct bench_op {
    struct far_op_stats stats; /* sums over all operations */
    uint64_t wrong;            /* returned the value of another key, or wrong entries */
    struct hist latency;       /* nanoseconds */
};

/* What all threads together did in a window of time, each by its own clock, which does not run
 * while it draws tasks. */
struct bench_window {
    uint64_t ops, rtts;
};
#define BENCH_WINDOWS_MAX 6000u /* ten minutes of 100 ms each; the last has all that follows */

/* How well a run kept to a fixed rate: the worst of its threads. */
struct bench_pace {
    uint64_t rate; /* operations per second that were asked for; 0: as many as possible */
    /* Nanoseconds between the time at which an operation was due and its begin: the longest, and
     * that of the last operation. */
    uint64_t late_max, late_last;
    bool fell_behind; /* late_last is more than a hundredth of the time that was planned */
};

/* One workload on one table, measured. */
struct bench_run {
    const char *index, *workload;
    unsigned place;  /* in the list of workloads */
    unsigned repeat; /* how often this workload ran on this index before */
    bool draws_keys; /* by dist; other workloads take them in turn */
    enum bench_dist_kind dist;
    /* A get followed by an update is one operation; in an iteration, each entry is one. */
    uint64_t ops_planned, ops;
    uint64_t warmup; /* operations before these, which are in no other figure but the splits */
    double seconds;  /* of the slowest thread, without drawing tasks */
    double ops_per_s;
    struct bench_pace pace;
    struct counters_sum counters; /* of all threads, while operations run */
    struct bench_op op[FAR_OP_KINDS];
    struct far_table_info space; /* after the run; splits of this run only */
    bool space_known;            /* the table could be read */
    unsigned windows;            /* that are complete; one more has the rest of the run */
    unsigned windows_filled;     /* that are complete for all workers */
    struct bench_window window[BENCH_WINDOWS_MAX];
    /* The slowest window against the median: by operations, and by operations per round trip. 0:
     * the run was too short to tell. */
    double slowest_ops, slowest_ops_per_rtt;
    double raw_ops_per_s; /* 0: not measured */
    struct model_load
        load;         /* of the modelled network, while operations ran; time 0: there is none */
    uint64_t deaths;  /* of clients, and operations that ended with them are not in ops */
    int first_error;  /* of an operation, other than FAR_NOT_FOUND */
    bool interrupted; /* config->stop was set before the last operation */
    /* The error that ended the run early, because all operations would have failed from then on: a
     * full pool, a lost node. FAR_OK: none. */
    int halted_by;
    char detail[ERR_DETAIL_BYTES]; /* of that error */
};

/* Adds what happened between two looks at the same statistics. */
void bench_stats_add(struct far_op_stats *sum, const struct far_op_stats *before,
                     const struct far_op_stats *after);

/* Adds the splits of `more` to those of `space`, and the other figures of a session. */
void bench_add_splits(struct far_table_info *space, const struct far_table_info *more);

/* Adds what another run did: operations, histograms, counters, delays, and how it ended. Times,
 * windows and space are left as they are. */
void bench_run_add(struct bench_run *sum, const struct bench_run *run);

/* Adds what another machine did in the same run: at the same time, on the same table. */
void bench_run_merge(struct bench_run *sum, const struct bench_run *run);

/* Operations that failed or returned something wrong. */
uint64_t bench_op_errors(const struct bench_op *op);

/* A table that was dropped, or stays in the pool. */
struct bench_drop {
    const char *table;
    bool left_over; /* made by a benchmark that was killed */
    bool foreign;   /* of another machine: it was not touched, because its benchmark may run */
    int status;     /* of dropping it */
    uint64_t bytes; /* that it had taken; 0: unknown */
};

struct bench_observer {
    void *arg;
    /* A workload runs, or has just ended (done == total). What is not measured, such as loading
     * keys first, is reported only here. */
    void (*progress)(void *arg, const char *index, const char *what, uint64_t done, uint64_t total);
    /* The pool is open, the table exists, and measuring begins. */
    void (*index_begin)(void *arg, const char *index);
    void (*run)(void *arg, const struct bench_run *run);
    /* After the last run of an index. */
    void (*index_done)(void *arg, const char *index);
    /* Behind index_done(), for the tables of the index, and between two repeats that each have
     * tables of their own; before the first index_begin(), for what
     * earlier benchmarks left. May be NULL. */
    void (*dropped)(void *arg, const struct bench_drop *drop);
    /* True if the benchmark is to end after this workload. May be NULL. */
    bool (*enough)(void *arg);
};

/* A modelled pool (model:) has its clients in its URI: sets threads and depth to what it says.
 * FAR_BAD_URI; FAR_INVALID: threads, depth or processes were given, too. */
int bench_take_shape(struct bench_config *config);

/* Can this configuration run? If not, FAR_INVALID; the detail says why. */
int bench_check(const struct bench_config *config);

/*
 * bench_suite - run the configured workloads on the configured indexes
 *
 * For each index, opens the pool, creates a table, and drops it at the end, whatever the outcome
 * (see tables.h). Before that, it drops tables of earlier benchmarks that were killed. If the list
 * of workloads does not begin with load, the keys are loaded first, without being measured. When
 * config->stop is set, it ends early with FAR_OK.
 *
 * With config->repeat, the list runs from its beginning to its end as often as that, each time with
 * the same operations. If one of the workloads adds or deletes keys, each repeat has a new table,
 * otherwise all have the same one. So every run of a workload begins with the same keys.
 *
 * With config->meet, all machines call this with the same configuration but for the rank. Machine 0
 * makes and drops the tables, each machine has its share of every workload, and each run is
 * reported to the observers of all machines, which get the same; only machine 0 gets the figures
 * that not all indexes have (space.figure).
 *
 * A run that is ended by an error (halted_by) is reported like others. If the pool or
 * the table was full, the suite goes on with the next index; otherwise it ends there.
 *
 * FAR_INVALID   as bench_check()
 * FAR_SYSTEM    one of several processes or machines has died
 * FAR_NO_INDEX  no such index
 * or the error of opening the pool or the table.
 */
int bench_suite(const struct bench_config *config, const struct bench_observer *observer);

#endif
