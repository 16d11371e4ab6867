/*
 * Workloads: which operations in which proportion, and the order they come in.
 *
 * The keys of a table under test are the numbers [first, next). New keys get numbers from next on;
 * deletes take keys from first on. Other operations draw keys that the same run does not delete, so
 * they find them. A plan is one workload, ready to run on such a span of keys with
 * a given number of threads; each thread draws its tasks from a source. The keys that a thread adds
 * and deletes are fixed in advance, and the proportions are exact, so the same seed gives the same
 * operations, whichever thread is faster.
 */
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include "base/rng.h"
#include "bench/dist.h"

#include "farside.h"

#include <stdatomic.h>

/* In this order, tasks are dealt to the threads; see workload_source_init(). Inserts come first:
 * workload_task_number() relies on that. */
enum workload_task_kind {
    WORKLOAD_INSERT,
    WORKLOAD_DELETE, /* another key each time */
    WORKLOAD_UPDATE,
    WORKLOAD_RMW,     /* a get, then an update of the same key */
    WORKLOAD_PUT,     /* put of a key that exists */
    WORKLOAD_MODIFY,  /* of a key that exists */
    WORKLOAD_MISS,    /* get of a key that does not exist */
    WORKLOAD_SCAN,    /* of up to WORKLOAD_SCAN_MAX entries */
    WORKLOAD_ADD,     /* put of a new key; alone in its workload */
    WORKLOAD_ITERATE, /* the whole table, in as many calls as needed; alone in its workload */
    WORKLOAD_GET,
    WORKLOAD_TASK_KINDS
};
#define WORKLOAD_SCAN_MAX   100u
#define WORKLOAD_NAME_BYTES 96

struct workload {
    char name[WORKLOAD_NAME_BYTES];
    const char *summary;                  /* NULL: a mix that the user has defined */
    uint8_t percent[WORKLOAD_TASK_KINDS]; /* of the tasks are of this kind; 100 together */
    bool latest;                          /* by default, the keys added last are popular */
};

/* All workloads that have a name of their own; NULL after the last. */
const struct workload *workload_at(unsigned i);
const struct workload *workload_find(const char *name);

#define WORKLOAD_LIST_MAX 32
struct workload_list {
    unsigned count;
    struct workload item[WORKLOAD_LIST_MAX];
};

/* Parses "load,a,insert=30+get=70": names, and mixes (see mix.h). FAR_INVALID; the detail says what
 * is wrong. */
int workload_parse(const char *text, struct workload_list *list);

struct workload_span {
    uint64_t first, next;
};

/* Does every workload of the list find keys to work on? If not, FAR_INVALID; the detail names the
 * first that does not. */
int workload_check(const struct workload_list *list, uint64_t keys, uint64_t ops);

/* The first workload: adds all keys to an empty table. */
bool workload_is_load(const struct workload *w);
bool workload_adds(const struct workload *w);
bool workload_deletes(const struct workload *w);
/* Does it draw keys by popularity? */
bool workload_draws(const struct workload *w);
/* Does it need an index that keeps keys in order? */
bool workload_scans(const struct workload *w);
/* Does each thread have one task, the whole table? Then every entry counts as an operation. */
bool workload_iterates(const struct workload *w);

struct workload_plan {
    const struct workload *workload;
    struct workload_span keys; /* before the run */
    uint64_t ops;
    uint64_t warm;                       /* of the operations: the first, which are not measured */
    uint64_t least_ops, least_ns;        /* > 0: it ends when it has had both */
    uint64_t count[WORKLOAD_TASK_KINDS]; /* tasks of each kind, of all threads together */
    unsigned threads;
    uint64_t rate; /* operations per second, of all threads together; 0: as fast as possible */
    uint64_t seed;
    struct bench_dist dist;
    /* For each thread, on its own cache line: how many of its new keys surely exist. */
    struct workload_added {
        _Alignas(64) _Atomic uint64_t count;
    } * added;
};

struct workload_plan_options {
    struct workload_span keys;
    uint64_t load; /* keys that the load adds */
    uint64_t ops;
    uint64_t warm;                /* operations before these, if --ops holds for the workload */
    uint64_t least_ops, least_ns; /* as in struct workload_plan */
    uint64_t rate;                /* likewise */
    unsigned threads;
    uint64_t seed;
    enum bench_dist_kind dist;
    double theta;
};

/* `dist` keeps the sums of earlier plans; NULL computes them again. FAR_NO_MEMORY. */
int workload_plan_init(struct workload_plan *plan, const struct workload *w,
                       const struct workload_plan_options *options, struct bench_dist *dist);
void workload_plan_free(struct workload_plan *plan);

/* The keys that exist after the plan has run. */
struct workload_span workload_plan_leaves(const struct workload_plan *plan);

struct workload_task {
    uint64_t number; /* of the key; if latest, its distance from the newest one */
    uint8_t kind;    /* enum far_op_kind */
    bool latest;
    bool then_update;
    uint16_t limit; /* scan */
};

/* One thread's tasks. */
struct workload_source {
    const struct workload_plan *plan;
    unsigned thread;
    struct rng rng;
    uint64_t warm;                         /* tasks that come first and are not measured */
    uint64_t left;                         /* tasks still to come */
    uint64_t left_of[WORKLOAD_TASK_KINDS]; /* of those, of each kind */
    uint64_t added, deleted;               /* keys of its share used so far */
};

void workload_source_init(struct workload_source *s, const struct workload_plan *plan,
                          unsigned thread);

/* Draws up to max tasks and returns their number; 0 at the end. */
unsigned workload_source_draw(struct workload_source *s, struct workload_task *tasks, unsigned max);

/* The key number of a task that starts now. */
uint64_t workload_task_number(const struct workload_plan *plan, const struct workload_task *task);

#endif
