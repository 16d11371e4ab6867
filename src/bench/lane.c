/* One operation of a worker: its key and value, and whether the answer is right. */
#include "bench/lane.h"
#include "base/status.h"
#include "bench/keys.h"
#include "model/model.h"

#include <string.h>

/* The buffer of an iteration: worth a round trip, and large enough for the longest entry. */
#define ITERATE_BYTES (1u << 20)

/* Notes an error of an operation. After some, all that follow would fail like it: then the workers
 * stop. */
static void note_error(struct worker *w, int status)
{
    bool hopeless =
        status == FAR_POOL_FULL || status == FAR_TABLE_FULL || status_means(status, STATUS_FABRIC);
    if (w->first_error == FAR_OK)
        w->first_error = status;
    if (hopeless)
        worker_halt(w, status);
}

size_t lane_buf_bytes(const struct bench_config *c, const struct workload *w)
{
    size_t key = c->sizes.key.max, value = c->sizes.value.max;
    size_t entry = 16 + key + value; /* 16: the lengths, and some more */
    if (workload_scans(w))
        return WORKLOAD_SCAN_MAX * entry;
    if (workload_iterates(w))
        return entry > ITERATE_BYTES ? entry : ITERATE_BYTES;
    return value;
}

void lane_begin(struct worker *w, struct lane *l, const struct workload_task *task, uint64_t since)
{
    l->task = *task;
    l->number = workload_task_number(w->plan, task);
    l->started = since;
    l->cursor = 0;
    if (w->target->model)
        model_operation(w->target->model);
    l->key_size = bench_key_size(l->sizes, l->number);
    bench_key_write(l->number, l->key, l->key_size);
}

static enum far_decision count_one(void *arg, const void *old, size_t old_len, const void **value,
                                   size_t *value_len)
{
    struct lane *l = arg;
    l->right = old && bench_value_right(l->sizes, l->number, old, old_len);
    if (!l->right)
        return FAR_KEEP;
    *value = l->value;
    *value_len = bench_value_next(l->sizes, l->number, old, old_len, l->value);
    return FAR_STORE;
}

struct far_op lane_op(struct worker *w, struct lane *l)
{
    struct far_op op = {
        .kind = l->task.kind,
        .table = w->target->table,
        .key = l->key,
        .key_len = l->key_size,
        .user_data = (uint64_t)(l - w->lanes),
    };
    if (op.kind == FAR_OP_GET || op.kind == FAR_OP_SCAN || op.kind == FAR_OP_ITERATE) {
        op.buf = l->buf;
        op.cap = op.kind == FAR_OP_GET ? l->sizes->value.max
                                       : lane_buf_bytes(w->config, w->plan->workload);
        op.limit = l->task.limit;
        op.cursor = l->cursor;
    } else if (op.kind == FAR_OP_MODIFY) {
        op.modify = count_one;
        op.modify_arg = l;
    } else if (op.kind != FAR_OP_DELETE) {
        op.value = l->value;
        op.value_len = bench_value_size(l->sizes, l->number, w->tasks_done);
        bench_value_write(l->number, w->tasks_done, l->value, op.value_len);
    }
    return op;
}

/* Does the entry of a scan come after the key before it, or is it the first? That is the key of the
 * task, which exists. The first bytes of any two keys differ. */
static bool entry_in_order(const struct lane *l, const struct far_entry *e, const void *before)
{
    if (before)
        return memcmp(e->key, before, BENCH_KEY_MIN) > 0;
    return e->key_len == l->key_size && memcmp(e->key, l->key, e->key_len) == 0;
}

/* Are these entries of the table, the right number of them, and in order if it is a scan? */
static bool entries_right(const struct lane *l, const struct far_result *r)
{
    bool scan = l->task.kind == FAR_OP_SCAN;
    const void *before = NULL;
    unsigned count = 0;
    struct far_entry e;
    for (size_t pos = 0; far_entry_next(l->buf, r->len, &pos, &e); count++) {
        if (!bench_entry_right(l->sizes, &e, l->expected) ||
            (scan && !entry_in_order(l, &e, before)))
            return false;
        before = e.key;
    }
    return count == r->count && (!scan || (count > 0 && count <= l->task.limit));
}

static bool answer_right(const struct lane *l, const struct far_result *r)
{
    switch (l->task.kind) {
    case FAR_OP_GET:
        return bench_value_right(l->sizes, l->number, l->buf, r->len);
    case FAR_OP_MODIFY:
        return l->right;
    case FAR_OP_SCAN:
    case FAR_OP_ITERATE:
        return entries_right(l, r);
    default:
        return true;
    }
}

static uint64_t rtts_between(const struct far_stats *before, const struct far_stats *after)
{
    uint64_t rtts = 0;
    for (unsigned k = 0; k < FAR_OP_KINDS; k++)
        rtts += after->op[k].rtts - before->op[k].rtts;
    return rtts;
}

uint64_t lane_rtts_so_far(const struct worker *w, const struct far_stats *stats)
{
    static const struct far_stats none;
    return rtts_between(&none, &w->of_dead) + rtts_between(&w->before, stats);
}

/* Counts tasks in their window of time. */
static void count_window(struct worker *w, unsigned tasks, uint64_t now)
{
    uint64_t at = (w->busy + now - w->started) / w->config->window_ns;
    if (at > w->windows && w->windows + 1 < BENCH_WINDOWS_MAX) {
        struct far_stats stats;
        far_stats(w->session, w->target->table, &stats);
        uint64_t rtts = lane_rtts_so_far(w, &stats);
        while (w->windows < at && w->windows + 1 < BENCH_WINDOWS_MAX)
            w->window[w->windows++].rtts = rtts;
    }
    w->window[w->windows].ops += tasks;
}

bool lane_end(struct worker *w, struct lane *l, const struct far_result *r, uint64_t now)
{
    hist_record(&w->latency[l->task.kind], now - l->started);
    if (r->status == FAR_OK)
        w->wrong[l->task.kind] += !answer_right(l, r);
    else if (r->status != FAR_NOT_FOUND)
        note_error(w, r->status);
    bool iterates = l->task.kind == FAR_OP_ITERATE, goes_on = false;
    if (l->task.then_update && r->status == FAR_OK) {
        l->task.then_update = false;
        l->task.kind = FAR_OP_UPDATE;
        l->started = now;
        return true;
    }
    if (iterates && r->status == FAR_OK) {
        l->cursor = r->cursor;
        l->started = now;
        goes_on = r->cursor != 0 && !worker_stopped(w);
    }
    w->inserted += l->task.kind == FAR_OP_INSERT;
    w->tasks_done += iterates ? r->count : 1;
    count_window(w, iterates ? r->count : 1, now);
    atomic_store_explicit(&w->done, w->warmed + w->tasks_done, memory_order_relaxed);
    return goes_on;
}
