/* The verbs fabric: jobs of a connection that run beside other work, on a fiber. */
#include "base/clock.h"
#include "fabric/verbs/verbs_internal.h"

#include <poll.h>

#define STACK_BYTES (64u * 1024)
#define SLEEP_MS    10
#define ROUNDS      4 /* resumptions at a time, while something arrives */

static void end(struct verbs_conn *c)
{
    c->out = false;
    c->ep->jobs &= ~(1ull << c->node);
}

static void body(void *arg)
{
    struct verbs_conn *c = arg;

    c->task(c);
    end(c);
}

/* If there is no memory for a fiber, the caller runs the job itself and waits. */
void verbs_job_start(struct verbs_conn *c, verbs_job_task *task)
{
    ASSERT(!c->out);
    c->out = true;
    c->task = task;
    c->ep->jobs |= 1ull << c->node;
    if (!c->job)
        c->job = fiber_create(STACK_BYTES, body, c);
    else
        fiber_reset(c->job, body, c);
    if (c->job)
        fiber_resume(c->job);
    else
        body(c);
}

bool verbs_job_here(const struct verbs_conn *c)
{
    return c->out && (!c->job || fiber_current() == c->job);
}

void verbs_job_rest(struct verbs_conn *c, uint64_t until)
{
    struct verbs_ep *e = c->ep;
    struct pollfd fd = {.fd = e->cm->fd, .events = POLLIN};

    if (c->job && fiber_current() == c->job)
        fiber_yield();
    else if (e->completions)
        verbs_ep_sleep(e, until);
    else
        poll(&fd, 1, SLEEP_MS);
}

void verbs_jobs_resume(struct verbs_ep *e)
{
    for (unsigned i = 0; i < ROUNDS && e->jobs != 0; i++) {
        verbs_ep_events(e);
        for (uint64_t left = e->jobs; left; left &= left - 1) {
            struct verbs_conn *c = &e->conn[__builtin_ctzll(left)];

            if (c->job)
                fiber_resume(c->job);
        }
        if (!verbs_ep_drain(e))
            return;
    }
}

void verbs_job_await(struct verbs_conn *c, uint64_t until)
{
    while (c->out) { /* the job has its own time-outs */
        uint64_t now = clock_ns();

        verbs_jobs_resume(c->ep);
        if (!c->out || now >= until)
            return;
        verbs_job_rest(c,
                       now + SLEEP_MS * 1000000ull < until ? now + SLEEP_MS * 1000000ull : until);
    }
}

void verbs_job_drop(struct verbs_conn *c)
{
    fiber_destroy(c->job);
    c->job = NULL;
    if (c->out)
        end(c);
    c->awaited = NULL;
    if (c->way)
        rdma_destroy_id(c->way);
    c->way = NULL;
}
