/* How workers reach a table of Farside: each has a session and lanes. */
#include "base/err.h"
#include "base/status.h"
#include "bench/keys.h"
#include "bench/lane.h"
#include "bench/probe.h"
#include "bench/replay.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

/* Tasks drawn at a time: enough that draining the lanes before each draw costs nothing. */
#define DRAW_PER_LANE 256u
#define DRAW_MIN      (16 * DRAW_PER_LANE)
#define DRAW_PACED    32u /* at a fixed rate: within some microseconds */

#define SPIN_NS  100000u   /* more than it usually takes a thread to wake up */
#define SLEEP_NS 50000000u /* at a time: then it looks whether the run was stopped */

/* Call with nothing in flight: then all keys that were added exist, and others may draw them. */
static void publish_inserted(struct worker *w)
{
    atomic_store_explicit(&w->plan->added[w->thread].count, w->inserted, memory_order_release);
}

/* ---- tasks ----------------------------------------------------------------------------------- */

/* Is there a task to begin? At a fixed rate, this draws some more if none is left. */
static bool has_task(struct worker *w)
{
    if (w->next == w->drawn && pace_on(&w->pace)) {
        w->drawn = workload_source_draw(&w->source, w->tasks, DRAW_PACED);
        w->next = 0;
    }
    return w->next < w->drawn && !worker_stopped(w);
}

/* Lets virtual time pass. A modelled client has no keeper, so it has to park its session itself if
 * it is idle for long. */
static void wait_in_model(struct worker *w, uint64_t ns)
{
    uint64_t most = probe_lease_ms(w->session) * 1000000 / 8;
    const struct client *c = &w->session->client;
    model_wait(w->target->model, ns < most ? ns : most);
    if (ns >= most && (!client_is_parked(c) || client_heartbeat_due(c)))
        (void)client_park(&w->session->op); /* if it fails, the next operation finds out */
}

/* Waits until the next operation is due. A thread that sleeps wakes up late,
 * so it spins for the last part. */
static void await_due(struct worker *w)
{
    uint64_t due = pace_due(&w->pace);
    for (uint64_t now = worker_now(w); now < due && !worker_stopped(w); now = worker_now(w)) {
        uint64_t left = due - now;
        if (w->target->model)
            wait_in_model(w, left);
        else if (left > SPIN_NS)
            clock_sleep(left - SPIN_NS < SLEEP_NS ? left - SPIN_NS : SLEEP_NS);
    }
}

/* Waits until a task may begin, with nothing in flight. False: there is none. */
static bool await_task(struct worker *w)
{
    if (has_task(w) && pace_on(&w->pace))
        await_due(w);
    return has_task(w);
}

/* ---- depth 1: synchronous calls -------------------------------------------------------------- */

static void work_sync(struct worker *w)
{
    struct lane *l = &w->lanes[0];
    uint64_t now = worker_now(w);

    while (await_task(w)) {
        bool more = true, first = true;
        /* The end of one operation is the start of the next: one look at the clock serves both. */
        uint64_t since = pace_on(&w->pace) ? pace_take(&w->pace, worker_now(w)) : now;
        lane_begin(w, l, &w->tasks[w->next++], since);
        while (more) {
            struct far_op op = lane_op(w, l);
            struct far_result result = {.status = FAR_OK};
            if (w->target->recorder && (first || op.kind == FAR_OP_ITERATE))
                replay_recorder_next(w->target->recorder);
            first = false;
            (void)far_execute(w->session, &op, &result);
            now = worker_now(w);
            more = lane_end(w, l, &result, now);
        }
        if (l->task.kind == FAR_OP_INSERT)
            publish_inserted(w);
    }
}

/* ---- deeper: the ring ------------------------------------------------------------------------ */

static void submit(struct worker *w, struct lane *l)
{
    struct far_op op = lane_op(w, l);
    int rc = far_submit(w->session, &op);
    ASSERT(rc ==
           FAR_OK); /* first_operation() made the ring, and it is as deep as there are lanes */
}

/* Begins as many tasks as there are idle lanes and, at a fixed rate, as are due. */
static void fill_lanes(struct worker *w)
{
    while (w->idle_count > 0 && has_task(w)) {
        uint64_t now = worker_now(w);
        if (pace_on(&w->pace) && now < pace_due(&w->pace))
            break;
        struct lane *l = &w->lanes[w->idle[--w->idle_count]];
        lane_begin(w, l, &w->tasks[w->next++], pace_on(&w->pace) ? pace_take(&w->pace, now) : now);
        submit(w, l);
    }
}

/* Ends the operations that are done. Waits for one of them, unless a task may be due before
 * that. */
static void end_some(struct worker *w)
{
    unsigned depth = w->target->depth;
    bool paced = pace_on(&w->pace) && w->idle_count > 0 && has_task(w);
    unsigned n = far_reap(w->session, w->results, depth, paced ? 0 : 1);
    uint64_t now = worker_now(w);
    for (unsigned i = 0; i < n; i++) {
        const struct far_result *r = &w->results[i];
        ASSERT(r->user_data < depth);
        struct lane *l = &w->lanes[r->user_data];
        if (lane_end(w, l, r, now))
            submit(w, l);
        else
            w->idle[w->idle_count++] = (unsigned)r->user_data;
    }
}

static void work_ring(struct worker *w)
{
    unsigned depth = w->target->depth;
    while (w->idle_count < depth || await_task(w)) {
        fill_lanes(w);
        end_some(w);
        if (w->idle_count == depth)
            publish_inserted(w);
    }
}

/* ---- batches --------------------------------------------------------------------------------- */

static void work_batches(struct worker *w)
{
    while (await_task(w)) {
        unsigned count = 0;
        uint64_t now = worker_now(w);
        for (; count < w->target->depth && has_task(w); count++) {
            lane_begin(w, &w->lanes[count], &w->tasks[w->next++], now);
            w->batch[count] = lane_op(w, &w->lanes[count]);
        }
        (void)far_execute_many(w->session, w->batch, w->results, count);
        now = worker_now(w);
        for (unsigned i = 0; i < count; i++)
            while (lane_end(w, &w->lanes[i], &w->results[i], now)) {
                struct far_op op = lane_op(w, &w->lanes[i]);
                (void)far_execute(w->session, &op, &w->results[i]);
                now = worker_now(w);
            }
        publish_inserted(w);
    }
}

/* ---- a session's life ------------------------------------------------------------------------ */

static int lanes_alloc(struct worker *w)
{
    size_t key = w->config->sizes.key.max, value = w->config->sizes.value.max;
    size_t bytes = 2 * key + value + lane_buf_bytes(w->config, w->plan->workload);
    unsigned depth = w->target->depth;

    w->lanes = calloc(depth, sizeof *w->lanes);
    w->lane_memory = malloc(depth * bytes);
    w->idle = calloc(depth, sizeof *w->idle);
    w->results = calloc(depth, sizeof *w->results);
    w->batch = calloc(depth, sizeof *w->batch);
    if (!w->lanes || !w->lane_memory || !w->idle || !w->results || !w->batch)
        return err_fail(FAR_NO_MEMORY, "no memory for the buffers of %u operations", depth);

    for (unsigned i = 0; i < depth; i++) {
        struct lane *l = &w->lanes[i];
        l->sizes = &w->config->sizes;
        l->key = w->lane_memory + i * bytes;
        l->value = l->key + key;
        l->expected = l->value + value;
        l->buf = l->expected + key;
        bench_value_init(l->value, value);
        w->idle[w->idle_count++] = i;
    }
    return FAR_OK;
}

/* The first operation of a session makes its ring and fills its caches; neither is measured. */
static int first_operation(struct worker *w)
{
    struct far_result result;
    struct far_op op = {.kind = FAR_OP_EXISTS, .table = w->target->table, .key = "", .key_len = 1};

    if (w->target->depth == 1) {
        (void)far_execute(w->session, &op, &result);
    } else {
        int rc = far_submit(w->session, &op);
        if (rc != FAR_OK)
            return rc;
        unsigned n = far_reap(w->session, &result, 1, 1);
        ASSERT(n == 1);
    }
    return result.status == FAR_NOT_FOUND ? FAR_OK : result.status;
}

static int open_session(struct worker *w)
{
    struct far_session_options options = {
        .depth = w->target->depth,
        .seed = bench_mix(w->plan->seed + w->thread + ((uint64_t)w->lives << 32)) | 1,
    };
    int rc = far_session_open(w->target->pool, &options, &w->session);
    if (rc == FAR_OK)
        rc = first_operation(w);
    if (rc == FAR_OK)
        far_stats(w->session, w->target->table, &w->before);
    return rc;
}

static int session_open(struct worker *w)
{
    int rc = lanes_alloc(w);
    if (rc == FAR_OK)
        rc = open_session(w);
    if (rc == FAR_OK && w->target->recorder)
        replay_recorder_attach(w->target->recorder, w->session);
    return rc;
}

/* Adds up what the session of a client that died has done. The session is left as it is: nobody
 * closes the session of a client that has died. */
static void leave_session(struct worker *w)
{
    struct far_stats last;
    far_stats(w->session, w->target->table, &last);
    for (unsigned k = 0; k < FAR_OP_KINDS; k++)
        bench_stats_add(&w->of_dead.op[k], &w->before.op[k], &last.op[k]);
    __atomic_fetch_sub(&w->target->model->sharers, 1, __ATOMIC_RELAXED);
    w->before = (struct far_stats){0};
    w->session = NULL;
}

/* The modelled client has died and is there again. What it had begun is lost. */
static void session_revive(struct worker *w)
{
    if (w->session) /* else it died while it opened one */
        leave_session(w);
    w->idle_count = 0;
    for (unsigned i = 0; i < w->target->depth; i++)
        w->idle[w->idle_count++] = i;
    int rc = open_session(w);
    if (rc != FAR_OK)
        worker_halt(w, rc);
}

static void session_work(struct worker *w)
{
    if (w->config->batch)
        work_batches(w);
    else if (w->target->depth == 1)
        work_sync(w);
    else
        work_ring(w);
}

static void session_forget(struct worker *w)
{
    far_stats(w->session, w->target->table, &w->before);
}

/* A modelled client has no keeper that does this for idle sessions. */
static void session_rest(struct worker *w)
{
    if (w->target->model && w->session)
        (void)client_park(&w->session->op);
}

static void session_close(struct worker *w)
{
    if (w->session) {
        if (w->target->recorder)
            replay_recorder_detach(w->target->recorder, w->session);
        far_stats(w->session, w->target->table, &w->after);
        /* Sessions differ only in the splits they made, so the others need not walk the table. It
         * cannot be walked if a node is lost. */
        if (!status_means(w->halted_by, STATUS_FABRIC) &&
            (w->thread == 0 || workload_adds(w->plan->workload)))
            w->info_status = far_table_info(w->session, w->target->table, &w->info);
        w->info_known = w->info.slots > 0;
        far_session_close(w->session);
    }
    w->window[w->windows].rtts = lane_rtts_so_far(w, &w->after);
    free(w->batch);
    free(w->results);
    free(w->idle);
    free(w->lane_memory);
    free(w->lanes);
}

const struct worker_driver session_driver = {
    .tasks_min = DRAW_MIN,
    .tasks_per_lane = DRAW_PER_LANE,
    .open = session_open,
    .work = session_work,
    .forget = session_forget,
    .revive = session_revive,
    .rest = session_rest,
    .close = session_close,
};
