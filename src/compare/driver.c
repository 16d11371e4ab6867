#include "compare/driver.h"
#include "base/err.h"

#include <stdlib.h>

/* Operations that are prepared at a time: enough that draining a pipeline at their end hardly
 * counts, and few enough to stay in the processor's cache. */
#define PREPARED_MIN       1024u
#define PREPARED_PER_DEPTH 16u

struct driver_client {
    const struct rival_ops *rival;
    void *client;
    struct rival_op *ops;  /* one for each task */
    unsigned char *memory; /* of keys and values */
    int status;            /* of running them */
};

static int open_client(struct worker *w)
{
    const struct driver_store *s = w->target->store;
    const struct bench_sizes *sizes = &w->config->sizes;
    size_t bytes = sizes->key.max + sizes->value.max;
    struct driver_client *c = w->client = calloc(1, sizeof *c);
    if (c)
        *c = (struct driver_client){.rival = s->ops,
                                    .ops = calloc(w->tasks_max, sizeof *c->ops),
                                    .memory = malloc(w->tasks_max * bytes)};
    if (!c || !c->ops || !c->memory)
        return err_fail(FAR_NO_MEMORY, "no memory for the keys and values of %u operations",
                        w->tasks_max);
    for (unsigned i = 0; i < w->tasks_max; i++) {
        c->ops[i].key = c->memory + i * bytes;
        c->ops[i].buf = c->memory + i * bytes + sizes->key.max;
        c->ops[i].value = c->ops[i].buf;
    }
    return s->ops->client_open(s->store, &c->client);
}

static void close_client(struct worker *w)
{
    struct driver_client *c = w->client;
    if (!c)
        return;
    if (c->client)
        c->rival->client_close(c->client);
    free(c->ops);
    free(c->memory);
    free(c);
}

static void prepare_one(const struct bench_sizes *sizes, const struct workload_task *task,
                        uint64_t version, struct rival_op *op)
{
    op->key_len = (uint32_t)bench_key_size(sizes, task->number);
    bench_key_write(task->number, (void *)(uintptr_t)op->key, op->key_len);
    op->put = task->kind != FAR_OP_GET;
    op->found = false;
    if (!op->put)
        return;
    op->value_len = (uint32_t)bench_value_size(sizes, task->number, version);
    bench_value_init(op->buf, op->value_len);
    bench_value_write(task->number, version, op->buf, op->value_len);
}

static void prepare(struct worker *w)
{
    const struct driver_client *c = w->client;
    for (unsigned i = 0; i < w->drawn; i++)
        prepare_one(&w->config->sizes, &w->tasks[i], w->warmed + w->tasks_done + i, &c->ops[i]);
}

static void run(struct worker *w)
{
    struct driver_client *c = w->client;
    c->status = c->rival->run(c->client, c->ops, w->drawn);
}

/* Keys with such a number do not exist; see next_task() in bench/workload.c. */
static bool is_missing(uint64_t number)
{
    return number >> 63 != 0;
}

static int check_one(const struct worker *w, const struct rival_op *op, uint64_t number)
{
    if (op->put || (is_missing(number) && !op->found))
        return FAR_OK;
    if (!op->found)
        return err_fail(FAR_CORRUPT, "%s did not find a key that exists", w->target->name);
    if (!bench_value_right(&w->config->sizes, number, op->buf, op->got_len))
        return err_fail(FAR_CORRUPT, "%s returned a wrong value", w->target->name);
    return FAR_OK;
}

static void check(struct worker *w)
{
    const struct driver_client *c = w->client;
    int status = c->status;
    for (unsigned i = 0; i < w->drawn && status == FAR_OK; i++)
        status = check_one(w, &c->ops[i], w->tasks[i].number);
    if (status != FAR_OK)
        worker_halt(w, status);
    w->tasks_done += w->drawn;
    atomic_store_explicit(&w->done, w->warmed + w->tasks_done, memory_order_relaxed);
}

const struct worker_driver driver_of_rivals = {
    .tasks_min = PREPARED_MIN,
    .tasks_per_lane = PREPARED_PER_DEPTH,
    .open = open_client,
    .prepare = prepare,
    .work = run,
    .check = check,
    .close = close_client,
};
