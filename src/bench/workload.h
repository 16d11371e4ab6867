/*
 * Workloads: which operations in which proportion, and the order they come in.
 *
 * The keys of a table under test are numbers [first, next): what is added gets numbers from next
 * on, what is deleted is taken from first on. A plan is one workload made ready to run on such a
 * span of keys by so many threads; each thread draws its tasks from a source. What the threads add
 * and delete is dealt out among them beforehand, and the proportions are kept exactly, so that the
 * same seed gives the same operations, whoever is faster.
 */
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include "base/rng.h"
#include "bench/dist.h"

#include "farside.h"

#include <stdatomic.h>

enum workload_task_kind {
    WORKLOAD_GET,
    WORKLOAD_MISS, /* get of a key that is not there           */
    WORKLOAD_PUT,  /* put of a key that is there               */
    WORKLOAD_ADD,  /* put of a new key                         */
    WORKLOAD_INSERT,
    WORKLOAD_UPDATE,
    WORKLOAD_DELETE, /* each takes another key                 */
    WORKLOAD_RMW,    /* a get, then an update of the same key  */
    WORKLOAD_MODIFY, /* of a key that is there                 */
    WORKLOAD_SCAN,   /* of up to WORKLOAD_SCAN_MAX entries             */
    WORKLOAD_ITERATE /* the whole table, in as many calls as that takes */
};
#define WORKLOAD_SCAN_MAX 100u

struct workload {
    const char *name;
    const char *summary;
    enum workload_task_kind mostly, sometimes;
    unsigned percent; /* of the tasks that are `sometimes` */
    bool latest;      /* prefers what was added last, if nobody asks for something else */
};

/* The workloads there are; NULL past the last. */
const struct workload *workload_at(unsigned i);
const struct workload *workload_find(const char *name);

#define WORKLOAD_LIST_MAX 32
struct workload_list {
    unsigned count;
    const struct workload *item[WORKLOAD_LIST_MAX];
};

/* "load,a,b". FAR_INVALID with the detail of what is wrong. */
int workload_parse(const char *text, struct workload_list *list);

struct workload_span {
    uint64_t first, next;
};

/* Is every workload of the list left some keys to work on? FAR_INVALID naming the first that is
 * not. */
int workload_check(const struct workload_list *list, uint64_t keys, uint64_t ops);

/* The first workload: adds all keys to an empty table. */
bool workload_is_load(const struct workload *w);
bool workload_adds(const struct workload *w);
/* Are its keys drawn by popularity? */
bool workload_draws(const struct workload *w);
/* Does it need a table that is ordered? */
bool workload_scans(const struct workload *w);
/* Does each thread have one task, the whole table? Its operations are the entries then. */
bool workload_iterates(const struct workload *w);

struct workload_plan {
    const struct workload *workload;
    struct workload_span keys; /* before it */
    uint64_t ops;
    unsigned threads;
    uint64_t seed;
    struct bench_dist dist;
    /* By thread, how many of the keys it added are surely there, on a cache line each. */
    struct workload_added {
        _Alignas(64) _Atomic uint64_t count;
    } * added;
};

struct workload_plan_options {
    struct workload_span keys;
    uint64_t load; /* how many keys the load adds */
    uint64_t ops;
    unsigned threads;
    uint64_t seed;
    enum bench_dist_kind dist;
    double theta;
};

/* `dist` carries the sums of earlier plans over; NULL starts afresh. FAR_NO_MEMORY. */
int workload_plan_init(struct workload_plan *plan, const struct workload *w,
                       const struct workload_plan_options *options, struct bench_dist *dist);
void workload_plan_free(struct workload_plan *plan);

/* The keys that are there once the plan has run to its end. */
struct workload_span workload_plan_leaves(const struct workload_plan *plan);

struct workload_task {
    uint64_t number; /* of the key; if latest, how far back from the newest one */
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
    uint64_t left;           /* tasks still to come           */
    uint64_t sometimes_left; /* of them, of the rarer kind    */
    uint64_t added, deleted; /* keys of its share it has used */
};

void workload_source_init(struct workload_source *s, const struct workload_plan *plan,
                          unsigned thread);

/* Draws up to max tasks and returns how many; 0 at the end. */
unsigned workload_source_draw(struct workload_source *s, struct workload_task *tasks, unsigned max);

/* The key number of a task that is to start now. */
uint64_t workload_task_number(const struct workload_plan *plan, const struct workload_task *task);

#endif
