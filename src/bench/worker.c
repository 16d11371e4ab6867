/* A worker's life: it draws tasks, has its driver do them, and takes the time. */
#include "bench/worker.h"
#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void worker_halt(struct worker *w, int status)
{
    if (w->halted_by != FAR_OK)
        return;
    w->halted_by = status;
    snprintf(w->detail, sizeof w->detail, "%s", far_error_detail());
    atomic_store(w->halt, true);
}

int worker_open(void *arg)
{
    struct worker *w = arg;
    const struct worker_driver *d = w->driver;
    unsigned lanes = d->tasks_per_lane * w->target->depth;
    workload_source_init(&w->source, w->plan, w->thread);
    if (w->config->counters)
        counters_open(&w->counters, counters_events);
    w->tasks_max = lanes > d->tasks_min ? lanes : d->tasks_min;
    w->tasks = calloc(w->tasks_max, sizeof *w->tasks);
    if (!w->tasks)
        return err_fail(FAR_NO_MEMORY, "no memory for %u operations", w->tasks_max);
    return d->open(w);
}

/* Draws up to `max` tasks, with nothing in flight; then the clock runs. */
static void draw(struct worker *w, uint64_t max)
{
    w->drawn = workload_source_draw(&w->source, w->tasks,
                                    max < w->tasks_max ? (unsigned)max : w->tasks_max);
    w->next = 0;
    if (w->driver->prepare)
        w->driver->prepare(w);
    w->started = worker_now(w);
}

/* Says when the measured part ends, with the clock as draw() has set it. */
static void set_end(struct worker *w)
{
    uint64_t least = w->plan->least_ns;
    w->ends = least == 0 ? 0 : w->started + (least > w->busy ? least - w->busy : 0);
}

static void work(struct worker *w)
{
    counters_resume(&w->counters);
    w->driver->work(w);
    w->busy += worker_now(w) - w->started;
    counters_pause(&w->counters);
    if (w->driver->check)
        w->driver->check(w);
}

/* Forgets what was measured so far, but not that something failed. */
static void forget(struct worker *w)
{
    w->warmed = w->tasks_done;
    w->tasks_done = w->busy = 0;
    w->windows = 0;
    memset(w->window, 0, sizeof w->window);
    counters_reset(&w->counters);
    memset(w->wrong, 0, sizeof w->wrong);
    for (unsigned k = 0; k < FAR_OP_KINDS; k++)
        hist_clear(&w->latency[k]);
    if (w->driver->forget)
        w->driver->forget(w);
}

void worker_warm(void *arg)
{
    struct worker *w = arg;
    uint64_t left = w->source.warm;
    if (left == 0)
        return;
    for (draw(w, left); w->drawn > 0 && !worker_stopped(w); draw(w, left)) {
        left -= w->drawn;
        work(w);
    }
    forget(w);
}

void worker_run(void *arg)
{
    struct worker *w = arg;
    if (w->lives++ > 0) {
        w->driver->revive(w);
    } else {
        draw(w, w->tasks_max);
        set_end(w);
        pace_begin(&w->pace, w->plan->rate, w->plan->threads, w->thread, w->started);
    }
    while (w->drawn > 0 && !worker_stopped(w)) {
        work(w);
        if (worker_stopped(w))
            break;
        draw(w, w->tasks_max);
        set_end(w);
    }
    if (w->driver->rest)
        w->driver->rest(w);
}

void worker_close(void *arg)
{
    struct worker *w = arg;
    w->driver->close(w);
    counters_close(&w->counters);
    free(w->tasks);
}
