#include "bench/workload.h"
#include "base/err.h"
#include "bench/keys.h"
#include "bench/mix.h"

#include <stdlib.h>
#include <string.h>

static const struct workload workloads[] = {
    {"load", "put every key once into an empty table", {[WORKLOAD_ADD] = 100}, false},
    {"a", "YCSB A: 50 % get, 50 % update", {[WORKLOAD_GET] = 50, [WORKLOAD_UPDATE] = 50}, false},
    {"b", "YCSB B: 95 % get, 5 % update", {[WORKLOAD_GET] = 95, [WORKLOAD_UPDATE] = 5}, false},
    {"c", "YCSB C: 100 % get", {[WORKLOAD_GET] = 100}, false},
    {"d",
     "YCSB D: 95 % get of the latest keys, 5 % insert",
     {[WORKLOAD_GET] = 95, [WORKLOAD_INSERT] = 5},
     true},
    {"e",
     "YCSB E: 95 % scan of 1 to 100 entries, 5 % insert; for ordered indexes",
     {[WORKLOAD_SCAN] = 95, [WORKLOAD_INSERT] = 5},
     false},
    {"f",
     "YCSB F: 50 % get, 50 % get followed by update",
     {[WORKLOAD_GET] = 50, [WORKLOAD_RMW] = 50},
     false},
    {"get", "get, the same as c", {[WORKLOAD_GET] = 100}, false},
    {"miss", "get of keys that do not exist", {[WORKLOAD_MISS] = 100}, false},
    {"put", "put of keys that exist", {[WORKLOAD_PUT] = 100}, false},
    {"update", "update", {[WORKLOAD_UPDATE] = 100}, false},
    {"insert", "insert of new keys", {[WORKLOAD_INSERT] = 100}, false},
    {"add", "put of new keys", {[WORKLOAD_ADD] = 100}, false},
    {"delete", "delete, another key each time", {[WORKLOAD_DELETE] = 100}, false},
    {"modify",
     "far_modify() that increments a counter in the value",
     {[WORKLOAD_MODIFY] = 100},
     false},
    {"iterate",
     "each thread iterates over the whole table once; every entry counts as an operation",
     {[WORKLOAD_ITERATE] = 100},
     false},
    {"scan", "scan of 1 to 100 entries; for ordered indexes", {[WORKLOAD_SCAN] = 100}, false},
    {"zippydb",
     "86 % get, 14 % put of keys that exist, as ZippyDB in db_bench without its seeks",
     {[WORKLOAD_GET] = 86, [WORKLOAD_PUT] = 14},
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
    return strcmp(w->name, "load") == 0;
}

bool workload_adds(const struct workload *w)
{
    return w->percent[WORKLOAD_ADD] > 0 || w->percent[WORKLOAD_INSERT] > 0;
}

bool workload_deletes(const struct workload *w)
{
    return w->percent[WORKLOAD_DELETE] > 0;
}

bool workload_scans(const struct workload *w)
{
    return w->percent[WORKLOAD_SCAN] > 0;
}

bool workload_iterates(const struct workload *w)
{
    return w->percent[WORKLOAD_ITERATE] > 0;
}

/* Does --ops say how many operations it has? The load puts every key, and an iteration gets every
 * entry. */
static bool takes_ops(const struct workload *w)
{
    return !workload_is_load(w) && !workload_iterates(w);
}

bool workload_draws(const struct workload *w)
{
    return w->percent[WORKLOAD_GET] > 0 || w->percent[WORKLOAD_PUT] > 0 ||
           w->percent[WORKLOAD_UPDATE] > 0 || w->percent[WORKLOAD_RMW] > 0 ||
           w->percent[WORKLOAD_MODIFY] > 0 || workload_scans(w);
}

static bool needs_keys(const struct workload *w)
{
    return workload_draws(w) || w->percent[WORKLOAD_DELETE] > 0 || workload_iterates(w);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static int unknown_workload(const char *name)
{
    char known[160] = "";
    const struct workload *w = NULL;
    for (unsigned i = 0; (w = workload_at(i)) != NULL; i++) {
        strncat(known, i > 0 ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, w->name, sizeof known - strlen(known) - 1);
    }
    return err_fail(FAR_INVALID,
                    "unknown workload '%.32s' (available: %s, and mixes such as insert=30+get=70)",
                    name, known);
}

/* Reads one workload of a list. */
static int parse_one(const char *text, size_t len, struct workload *w)
{
    char name[WORKLOAD_NAME_BYTES];
    if (len >= sizeof name)
        return err_fail(FAR_INVALID, "workload '%.32s...' is longer than %zu characters", text,
                        sizeof name - 1);
    memcpy(name, text, len);
    name[len] = '\0';
    if (strchr(name, '='))
        return mix_parse(name, w);
    const struct workload *found = workload_find(name);
    if (!found)
        return unknown_workload(name);
    *w = *found;
    return FAR_OK;
}

int workload_parse(const char *text, struct workload_list *list)
{
    struct workload_list found = {.count = 0};

    for (const char *at = text; at;) {
        if (found.count == WORKLOAD_LIST_MAX)
            return err_fail(FAR_INVALID, "too many workloads: at most %d can be listed",
                            WORKLOAD_LIST_MAX);
        struct workload *w = &found.item[found.count];
        int rc = parse_one(at, strcspn(at, ","), w);
        if (rc != FAR_OK)
            return rc;
        if (workload_is_load(w) && found.count > 0)
            return err_fail(FAR_INVALID,
                            "workload 'load' must come first: it starts with an empty table");
        found.count++;

        at = strchr(at, ',');
        at = at ? at + 1 : NULL;
    }
    *list = found;
    return FAR_OK;
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* How many tasks there are of each kind: its share, exact to within one task. */
static void count_kinds(const struct workload *w, uint64_t tasks, uint64_t *count)
{
    uint64_t percent = 0, before = 0;
    for (unsigned k = 0; k < WORKLOAD_TASK_KINDS; k++) {
        percent += w->percent[k];
        uint64_t until = (tasks * percent + 50) / 100;
        count[k] = until - before;
        before = until;
    }
}

static uint64_t ops_of(const struct workload *w, struct workload_span keys, uint64_t load,
                       uint64_t ops)
{
    uint64_t there = keys.next - keys.first;
    if (workload_is_load(w))
        return load;
    if (w->percent[WORKLOAD_DELETE] == 100 && ops > there)
        return there;
    return ops;
}

static struct workload_span span_after(struct workload_span keys, const uint64_t *count)
{
    keys.first += count[WORKLOAD_DELETE];
    keys.next += count[WORKLOAD_ADD] + count[WORKLOAD_INSERT];
    return keys;
}

/* Are there enough keys for the deletes, and one that stays if others are drawn? */
static int check_keys(const struct workload *w, struct workload_span keys, const uint64_t *count)
{
    uint64_t there = keys.next - keys.first;
    if (needs_keys(w) && there == 0)
        return err_fail(FAR_INVALID,
                        "workload '%s' has no keys left: the workloads before it delete all",
                        w->name);
    uint64_t needed = count[WORKLOAD_DELETE] + workload_draws(w);
    if (needed > there)
        return err_fail(FAR_INVALID,
                        "workload '%s' deletes %llu keys and needs %llu, but there are %llu: use "
                        "more --keys or fewer --ops",
                        w->name, (unsigned long long)count[WORKLOAD_DELETE],
                        (unsigned long long)needed, (unsigned long long)there);
    return FAR_OK;
}

int workload_check(const struct workload_list *list, uint64_t keys, uint64_t ops)
{
    struct workload_span span = {.next = keys};
    for (unsigned i = 0; i < list->count; i++) {
        const struct workload *w = &list->item[i];
        uint64_t count[WORKLOAD_TASK_KINDS];
        if (workload_is_load(w))
            continue;
        count_kinds(w, ops_of(w, span, keys, ops), count);
        int rc = check_keys(w, span, count);
        if (rc != FAR_OK)
            return rc;
        span = span_after(span, count);
    }
    return FAR_OK;
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* The first key that stays: the deletes take those before it. */
static uint64_t first_drawn(const struct workload_plan *plan)
{
    return plan->keys.first + plan->count[WORKLOAD_DELETE];
}

int workload_plan_init(struct workload_plan *plan, const struct workload *w,
                       const struct workload_plan_options *options, struct bench_dist *dist)
{
    ASSERT(options->threads > 0);
    uint64_t warm = takes_ops(w) ? options->warm : 0;
    struct workload_plan p = {
        .workload = w,
        .keys = options->keys,
        .ops = ops_of(w, options->keys, options->load, options->ops + warm),
        .threads = options->threads,
        .rate = takes_ops(w) ? options->rate : 0,
        .least_ops = takes_ops(w) ? options->least_ops : 0,
        .least_ns = takes_ops(w) ? options->least_ns : 0,
        .seed = options->seed,
    };
    if (warm > 0 && p.ops > options->ops) /* deletes end when no key is left */
        p.warm = p.ops - options->ops;
    count_kinds(w, workload_iterates(w) ? p.threads : p.ops, p.count);
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
        bench_dist_init(dist, options->dist, p.keys.next - first_drawn(&p), options->theta);
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
    return span_after(plan->keys, plan->count);
}

/* ---- sources --------------------------------------------------------------------------------- */

static uint64_t share(uint64_t total, unsigned threads, unsigned thread)
{
    return total / threads + (thread < total % threads ? 1 : 0);
}

/* The tasks are dealt to the threads in turn, kind by kind, like cards. So all threads have the
 * same number of tasks, or one less, and about the same number of each kind. */
void workload_source_init(struct workload_source *s, const struct workload_plan *plan,
                          unsigned thread)
{
    ASSERT(thread < plan->threads);
    uint64_t dealt = 0;
    *s = (struct workload_source){.plan = plan, .thread = thread};
    for (unsigned k = 0; k < WORKLOAD_TASK_KINDS; k++) {
        uint64_t before = share(dealt, plan->threads, thread);
        dealt += plan->count[k];
        s->left_of[k] = share(dealt, plan->threads, thread) - before;
        s->left += s->left_of[k];
    }
    s->warm = share(plan->warm, plan->threads, thread);
    rng_seed(&s->rng, plan->seed ^ bench_mix(thread + 1));
}

/* The place of a thread's n-th task of a kind among all tasks of that kind. Each place belongs to
 * one thread; together they have all places. */
static uint64_t place_in_kind(const struct workload_source *s, enum workload_task_kind kind,
                              uint64_t n)
{
    unsigned threads = s->plan->threads;
    uint64_t dealt = 0;
    for (unsigned k = 0; k < kind; k++)
        dealt += s->plan->count[k];
    return n * threads + (s->thread + threads - dealt % threads) % threads;
}

/* The kind that is dealt last. */
static enum workload_task_kind last_kind(const struct workload *w)
{
    unsigned k = WORKLOAD_TASK_KINDS - 1;
    while (w->percent[k] == 0)
        k--;
    return k;
}

/* Selection sampling: the number of tasks of each kind is fixed, and every order is equally likely.
 * Nothing is drawn once only the last kind is left. */
static enum workload_task_kind next_kind(struct workload_source *s)
{
    ASSERT(s->left > 0);
    bool last = s->left_of[last_kind(s->plan->workload)] == s->left;
    uint64_t at = last ? 0 : rng_below(&s->rng, s->left);
    unsigned kind = 0;
    while (at >= s->left_of[kind])
        at -= s->left_of[kind++];
    s->left_of[kind]--;
    s->left--;
    return kind;
}

static struct workload_task task_on_existing(struct workload_source *s, enum far_op_kind kind)
{
    const struct workload_plan *plan = s->plan;
    uint64_t rank = bench_dist_rank(&plan->dist, &s->rng);
    if (plan->dist.kind == BENCH_DIST_LATEST)
        return (struct workload_task){.kind = kind, .number = rank, .latest = true};
    return (struct workload_task){
        .kind = kind, .number = first_drawn(plan) + bench_dist_place(&plan->dist, rank)};
}

static struct workload_task task_on_new(struct workload_source *s, enum workload_task_kind task,
                                        enum far_op_kind kind)
{
    uint64_t number = s->plan->keys.next + place_in_kind(s, task, s->added++);
    return (struct workload_task){.kind = kind, .number = number};
}

static struct workload_task next_task(struct workload_source *s)
{
    struct workload_task task = {.kind = FAR_OP_GET};
    enum workload_task_kind kind = next_kind(s);

    switch (kind) {
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
        return task_on_new(s, kind, FAR_OP_PUT);
    case WORKLOAD_INSERT:
        return task_on_new(s, kind, FAR_OP_INSERT);
    case WORKLOAD_DELETE:
        task.kind = FAR_OP_DELETE;
        task.number = s->plan->keys.first + place_in_kind(s, kind, s->deleted++);
        return task;
    case WORKLOAD_MISS:
        /* No key has a number in the upper half. */
        task.number = rng_next(&s->rng) | (1ull << 63);
        return task;
    case WORKLOAD_TASK_KINDS:
        break; /* next_kind() returns a kind */
    }
    return task;
}

unsigned workload_source_draw(struct workload_source *s, struct workload_task *tasks, unsigned max)
{
    unsigned n = 0;
    for (; n < max && s->left > 0; n++)
        tasks[n] = next_task(s);
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
