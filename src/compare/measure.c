#include "compare/measure.h"
#include "base/clock.h"
#include "base/err.h"
#include "bench/workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Operations that are prepared at a time: enough that draining a pipeline at their end hardly
 * counts, and few enough to stay in the processor's cache. */
#define PREPARED_MIN       1024u
#define PREPARED_PER_DEPTH 16u

struct worker {
    const struct measure *m;
    unsigned thread;
    void *client;
    struct workload_source source;
    unsigned max; /* operations that are prepared at a time */
    struct workload_task *tasks;
    struct rival_op *ops;
    unsigned char *memory; /* of keys and values */
    uint64_t busy;         /* nanoseconds */
    uint64_t done, warmed; /* operations; and those of them that were not measured */
    int status;
    char detail[ERR_DETAIL_BYTES];
};

bool measure_can(const struct workload *w)
{
    return w->percent[WORKLOAD_ADD] + w->percent[WORKLOAD_GET] + w->percent[WORKLOAD_MISS] +
               w->percent[WORKLOAD_PUT] + w->percent[WORKLOAD_UPDATE] ==
           100;
}

static size_t op_bytes(const struct measure *m)
{
    return m->sizes->key.max + m->sizes->value.max;
}

static int worker_open(void *arg)
{
    struct worker *w = arg;
    unsigned depth = w->m->setup->depth;
    w->max = PREPARED_PER_DEPTH * depth > PREPARED_MIN ? PREPARED_PER_DEPTH * depth : PREPARED_MIN;
    w->tasks = calloc(w->max, sizeof *w->tasks);
    w->ops = calloc(w->max, sizeof *w->ops);
    w->memory = malloc(w->max * op_bytes(w->m));
    if (!w->tasks || !w->ops || !w->memory)
        return err_fail(FAR_NO_MEMORY, "no memory for the keys and values of %u operations",
                        w->max);
    for (unsigned i = 0; i < w->max; i++) {
        unsigned char *at = w->memory + i * op_bytes(w->m);
        w->ops[i].key = at;
        w->ops[i].buf = at + w->m->sizes->key.max;
        w->ops[i].value = w->ops[i].buf;
    }
    workload_source_init(&w->source, w->m->plan, w->thread);
    return w->m->ops->client_open(w->m->store, &w->client);
}

static void prepare(const struct worker *w, unsigned i)
{
    const struct bench_sizes *sizes = w->m->sizes;
    const struct workload_task *task = &w->tasks[i];
    struct rival_op *op = &w->ops[i];
    op->key_len = (uint32_t)bench_key_size(sizes, task->number);
    bench_key_write(task->number, (void *)(uintptr_t)op->key, op->key_len);
    op->put = task->kind != FAR_OP_GET;
    op->found = false;
    if (!op->put)
        return;
    op->value_len = (uint32_t)bench_value_size(sizes, task->number, w->done + i);
    bench_value_init(op->buf, op->value_len);
    bench_value_write(task->number, w->done + i, op->buf, op->value_len);
}

/* Keys with such a number do not exist; see next_task() in bench/workload.c. */
static bool is_missing(uint64_t number)
{
    return number >> 63 != 0;
}

static int check(const struct worker *w, unsigned i)
{
    const struct rival_op *op = &w->ops[i];
    uint64_t number = w->tasks[i].number;
    if (op->put || (is_missing(number) && !op->found))
        return FAR_OK;
    if (!op->found)
        return err_fail(FAR_CORRUPT, "%s did not find a key that exists", w->m->name);
    if (!bench_value_right(w->m->sizes, number, op->buf, op->got_len))
        return err_fail(FAR_CORRUPT, "%s returned a wrong value", w->m->name);
    return FAR_OK;
}

/* Runs the next operations, `most` at most. False at the end. */
static bool run_some(struct worker *w, uint64_t most)
{
    unsigned n =
        workload_source_draw(&w->source, w->tasks, most < w->max ? (unsigned)most : w->max);
    if (n == 0)
        return false;
    for (unsigned i = 0; i < n; i++)
        prepare(w, i);
    uint64_t started = clock_ns();
    w->status = w->m->ops->run(w->client, w->ops, n);
    w->busy += clock_ns() - started;
    for (unsigned i = 0; i < n && w->status == FAR_OK; i++)
        w->status = check(w, i);
    w->done += n;
    return true;
}

static bool goes_on(const struct worker *w)
{
    return w->status == FAR_OK && !(w->m->stop && atomic_load(w->m->stop));
}

/* Runs until `done` operations are done, or there are no more. */
static void run_until(struct worker *w, uint64_t done)
{
    while (goes_on(w) && w->done < done && run_some(w, done - w->done)) {
    }
    if (w->status != FAR_OK)
        snprintf(w->detail, sizeof w->detail, "%s", far_error_detail());
}

static void worker_warm(void *arg)
{
    struct worker *w = arg;
    run_until(w, w->source.warm);
    w->warmed = w->done;
    w->busy = 0;
}

static void worker_run(void *arg)
{
    struct worker *w = arg;
    if (goes_on(w)) /* else the detail is known */
        run_until(w, UINT64_MAX);
}

static void worker_close(void *arg)
{
    struct worker *w = arg;
    if (w->client)
        w->m->ops->client_close(w->client);
    free(w->tasks);
    free(w->ops);
    free(w->memory);
}

/* What all workers did together. */
static int sum_up(const struct worker *workers, unsigned count, double *ops_per_s)
{
    uint64_t done = 0, busy = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct worker *w = &workers[i];
        if (w->status != FAR_OK)
            return err_fail(w->status, "%s", w->detail);
        done += w->done - w->warmed;
        busy = w->busy > busy ? w->busy : busy;
    }
    *ops_per_s = busy > 0 ? (double)done * 1e9 / (double)busy : 0;
    return FAR_OK;
}

int measure_run(const struct measure *m, double *ops_per_s)
{
    unsigned count = m->plan->threads;
    struct worker *workers = calloc(count, sizeof *workers);
    if (!workers)
        return err_fail(FAR_NO_MEMORY, "no memory for %u threads", count);
    for (unsigned i = 0; i < count; i++)
        workers[i] = (struct worker){.m = m, .thread = i};
    struct workers_job job = {.open = worker_open,
                              .warm = worker_warm,
                              .run = worker_run,
                              .close = worker_close,
                              .first = workers,
                              .size = sizeof *workers,
                              .count = count};
    int rc = workers_run(&job, NULL);
    if (rc == FAR_OK)
        rc = sum_up(workers, count, ops_per_s);
    free(workers);
    return rc;
}
