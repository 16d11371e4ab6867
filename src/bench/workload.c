#include "bench/workload.h"
#include "base/err.h"
#include "bench/keys.h"

#include <stdlib.h>
#include <string.h>

static const struct workload workloads[] = {
    {"load", "put every key once into an empty table", WORKLOAD_ADD, WORKLOAD_ADD, 0, false},
    {"a", "YCSB A: 50 % get, 50 % update", WORKLOAD_GET, WORKLOAD_UPDATE, 50, false},
    {"b", "YCSB B: 95 % get, 5 % update", WORKLOAD_GET, WORKLOAD_UPDATE, 5, false},
    {"c", "YCSB C: 100 % get", WORKLOAD_GET, WORKLOAD_GET, 0, false},
    {"d", "YCSB D: 95 % get of the latest keys, 5 % insert", WORKLOAD_GET, WORKLOAD_INSERT, 5,
     true},
    {"e", "YCSB E: 95 % scan of 1 to 100 entries, 5 % insert; for ordered indexes", WORKLOAD_SCAN,
     WORKLOAD_INSERT, 5, false},
    {"f", "YCSB F: 50 % get, 50 % get followed by update", WORKLOAD_GET, WORKLOAD_RMW, 50, false},
    {"get", "get, the same as c", WORKLOAD_GET, WORKLOAD_GET, 0, false},
    {"miss", "get of keys that do not exist", WORKLOAD_MISS, WORKLOAD_MISS, 0, false},
    {"put", "put of keys that exist", WORKLOAD_PUT, WORKLOAD_PUT, 0, false},
    {"update", "update", WORKLOAD_UPDATE, WORKLOAD_UPDATE, 0, false},
    {"insert", "insert of new keys", WORKLOAD_INSERT, WORKLOAD_INSERT, 0, false},
    {"delete", "delete, another key each time", WORKLOAD_DELETE, WORKLOAD_DELETE, 0, false},
    {"modify", "far_modify() that increments a counter in the value", WORKLOAD_MODIFY,
     WORKLOAD_MODIFY, 0, false},
    {"iterate",
     "each thread iterates over the whole table once; every entry counts as an operation",
     WORKLOAD_ITERATE, WORKLOAD_ITERATE, 0, false},
    {"scan", "scan of 1 to 100 entries; for ordered indexes", WORKLOAD_SCAN, WORKLOAD_SCAN, 0,
     false},
};

const struct workload *workload_at(unsigned i)
{
    return i < sizeof workloads / sizeof *workloads ? &workloads[i] : NULL;
}

const struct workload *workload_find(const char *name)
{
    const struct workload *w = NULL;
    for (unsigned i = 0; (w = workload_at(i)) != NULL; i++)
        if (strcmp(w->name, name) == 0)
            break;
    return w;
}

bool workload_is_load(const struct workload *w)
{
    return w->mostly == WORKLOAD_ADD;
}

bool workload_adds(const struct workload *w)
{
    return w->mostly == WORKLOAD_ADD || w->mostly == WORKLOAD_INSERT ||
           w->sometimes == WORKLOAD_INSERT;
}

static bool needs_keys(const struct workload *w)
{
    return w->mostly != WORKLOAD_ADD && w->mostly != WORKLOAD_INSERT && w->mostly != WORKLOAD_MISS;
}

bool workload_scans(const struct workload *w)
{
    return w->mostly == WORKLOAD_SCAN;
}

bool workload_iterates(const struct workload *w)
{
    return w->mostly == WORKLOAD_ITERATE;
}

bool workload_draws(const struct workload *w)
{
    return needs_keys(w) && w->mostly != WORKLOAD_DELETE && !workload_iterates(w);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static int unknown_workload(const char *name)
{
    char known[128] = "";
    const struct workload *w = NULL;
    for (unsigned i = 0; (w = workload_at(i)) != NULL; i++) {
        strncat(known, i > 0 ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, w->name, sizeof known - strlen(known) - 1);
    }
    return err_fail(FAR_INVALID, "unknown workload '%.32s' (available: %s)", name, known);
}

int workload_parse(const char *text, struct workload_list *list)
{
    struct workload_list found = {.count = 0};

    for (const char *at = text; at;) {
        char name[64];
        size_t len = strcspn(at, ",");
        if (len >= sizeof name)
            len = sizeof name - 1; /* longer than any name, so it is not found */
        memcpy(name, at, len);
        name[len] = '\0';

        const struct workload *w = workload_find(name);
        if (!w)
            return unknown_workload(name);
        if (workload_is_load(w) && found.count > 0)
            return err_fail(FAR_INVALID,
                            "workload 'load' must come first: it starts with an empty table");
        if (found.count == WORKLOAD_LIST_MAX)
            return err_fail(FAR_INVALID, "too many workloads: at most %d can be listed",
                            WORKLOAD_LIST_MAX);
        found.item[found.count++] = w;

        at = strchr(at, ',');
        at = at ? at + 1 : NULL;
    }
    *list = found;
    return FAR_OK;
}

static uint64_t sometimes_of(const struct workload *w, uint64_t ops)
{
    return (ops * w->percent + 50) / 100;
}

static uint64_t ops_of(const struct workload *w, struct workload_span keys, uint64_t load,
                       uint64_t ops)
{
    uint64_t there = keys.next - keys.first;
    if (workload_is_load(w))
        return load;
    if (w->mostly == WORKLOAD_DELETE && ops > there)
        return there;
    return ops;
}

static struct workload_span span_after(const struct workload *w, struct workload_span keys,
                                       uint64_t ops)
{
    if (w->mostly == WORKLOAD_DELETE)
        keys.first += ops;
    else if (w->sometimes == WORKLOAD_INSERT && w->mostly != WORKLOAD_INSERT)
        keys.next += sometimes_of(w, ops);
    else if (workload_adds(w))
        keys.next += ops;
    return keys;
}

int workload_check(const struct workload_list *list, uint64_t keys, uint64_t ops)
{
    struct workload_span span = {.next = keys};
    for (unsigned i = 0; i < list->count; i++) {
        const struct workload *w = list->item[i];
        if (workload_is_load(w))
            continue;
        if (needs_keys(w) && span.first == span.next)
            return err_fail(FAR_INVALID,
                            "workload '%s' has no keys left: the workloads before it delete all",
                            w->name);
        span = span_after(w, span, ops_of(w, span, keys, ops));
    }
    return FAR_OK;
}

/* ---- plans ----------------------------------------------------------------------------------- */

int workload_plan_init(struct workload_plan *plan, const struct workload *w,
                       const struct workload_plan_options *options, struct bench_dist *dist)
{
    ASSERT(options->threads > 0);
    struct workload_plan p = {
        .workload = w,
        .keys = options->keys,
        .ops = ops_of(w, options->keys, options->load, options->ops),
        .threads = options->threads,
        .seed = options->seed,
    };
    if (workload_iterates(w))
        p.ops = (p.keys.next - p.keys.first) * p.threads;
    size_t bytes = options->threads * sizeof *p.added;
    p.added = aligned_alloc(_Alignof(struct workload_added), bytes);
    if (!p.added)
        return err_fail(FAR_NO_MEMORY, "no memory for %u threads", options->threads);
    memset(p.added, 0, bytes);

    if (workload_draws(w)) {
        struct bench_dist fresh = {.n = 0};
        if (!dist)
            dist = &fresh;
        bench_dist_init(dist, options->dist, p.keys.next - p.keys.first, options->theta);
        p.dist = *dist;
    }
    *plan = p;
    return FAR_OK;
}

void workload_plan_free(struct workload_plan *plan)
{
    free(plan->added);
}

struct workload_span workload_plan_leaves(const struct workload_plan *plan)
{
    return span_after(plan->workload, plan->keys, plan->ops);
}

/* ---- sources --------------------------------------------------------------------------------- */

static uint64_t share(uint64_t total, unsigned threads, unsigned thread)
{
    return total / threads + (thread < total % threads ? 1 : 0);
}

void workload_source_init(struct workload_source *s, const struct workload_plan *plan,
                          unsigned thread)
{
    ASSERT(thread < plan->threads);
    uint64_t sometimes = sometimes_of(plan->workload, plan->ops);
    bool once = workload_iterates(plan->workload);
    *s = (struct workload_source){
        .plan = plan,
        .thread = thread,
        .left = once ? 1 : share(plan->ops, plan->threads, thread),
        .sometimes_left = share(sometimes, plan->threads, thread),
    };
    rng_seed(&s->rng, plan->seed ^ bench_mix(thread + 1));
}

/* Selection sampling: the number of tasks of each kind is fixed, and every order is equally
 * likely. */
static enum workload_task_kind next_kind(struct workload_source *s)
{
    const struct workload *w = s->plan->workload;
    ASSERT(s->sometimes_left <= s->left);
    if (s->sometimes_left == 0 || rng_below(&s->rng, s->left) >= s->sometimes_left)
        return w->mostly;
    s->sometimes_left--;
    return w->sometimes;
}

static struct workload_task task_on_existing(struct workload_source *s, enum far_op_kind kind)
{
    const struct workload_plan *plan = s->plan;
    uint64_t rank = bench_dist_rank(&plan->dist, &s->rng);
    if (plan->dist.kind == BENCH_DIST_LATEST)
        return (struct workload_task){.kind = kind, .number = rank, .latest = true};
    return (struct workload_task){.kind = kind,
                                  .number = plan->keys.first + bench_dist_place(&plan->dist, rank)};
}

static struct workload_task task_on_new(struct workload_source *s, enum far_op_kind kind)
{
    const struct workload_plan *plan = s->plan;
    uint64_t number = plan->keys.next + s->added++ * plan->threads + s->thread;
    return (struct workload_task){.kind = kind, .number = number};
}

static struct workload_task next_task(struct workload_source *s)
{
    const struct workload_plan *plan = s->plan;
    struct workload_task task = {.kind = FAR_OP_GET};

    switch (next_kind(s)) {
    case WORKLOAD_GET:
        return task_on_existing(s, FAR_OP_GET);
    case WORKLOAD_PUT:
        return task_on_existing(s, FAR_OP_PUT);
    case WORKLOAD_UPDATE:
        return task_on_existing(s, FAR_OP_UPDATE);
    case WORKLOAD_RMW:
        task = task_on_existing(s, FAR_OP_GET);
        task.then_update = true;
        return task;
    case WORKLOAD_MODIFY:
        return task_on_existing(s, FAR_OP_MODIFY);
    case WORKLOAD_SCAN:
        task = task_on_existing(s, FAR_OP_SCAN);
        task.limit = (uint16_t)(1 + rng_below(&s->rng, WORKLOAD_SCAN_MAX));
        return task;
    case WORKLOAD_ITERATE:
        task.kind = FAR_OP_ITERATE;
        return task;
    case WORKLOAD_ADD:
        return task_on_new(s, FAR_OP_PUT);
    case WORKLOAD_INSERT:
        return task_on_new(s, FAR_OP_INSERT);
    case WORKLOAD_DELETE:
        task.kind = FAR_OP_DELETE;
        task.number = plan->keys.first + s->deleted++ * plan->threads + s->thread;
        return task;
    case WORKLOAD_MISS:
        /* No key has a number in the upper half. */
        task.number = rng_next(&s->rng) | (1ull << 63);
        return task;
    }
    return task;
}

unsigned workload_source_draw(struct workload_source *s, struct workload_task *tasks, unsigned max)
{
    unsigned n = 0;
    for (; n < max && s->left > 0; n++) {
        tasks[n] = next_task(s);
        s->left--;
    }
    return n;
}

/*
 * Thread t adds the keys next + i * threads + t. So going back from the newest key passes the
 * threads in turn. Once all new keys of a thread are passed, the keys from before the run follow. A
 * thread that lags behind makes the order approximate, but the result is always a key that exists.
 */
uint64_t workload_task_number(const struct workload_plan *plan, const struct workload_task *task)
{
    if (!task->latest)
        return task->number;

    uint64_t back = task->number;
    unsigned thread = back % plan->threads;
    uint64_t turn = back / plan->threads;
    uint64_t added = atomic_load_explicit(&plan->added[thread].count, memory_order_acquire);
    if (turn < added)
        return plan->keys.next + (added - 1 - turn) * plan->threads + thread;
    return plan->keys.next - 1 - (back - added * plan->threads);
}
