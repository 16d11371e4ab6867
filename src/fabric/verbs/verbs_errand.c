/* The verbs fabric: errands, the tasks of a connection that run beside other work, on a fiber. */
#include "base/clock.h"
#include "fabric/verbs/verbs_internal.h"

#include <poll.h>

#define STACK_BYTES (64u * 1024)
#define NAP_MS      10
#define ROUNDS      4 /* resumptions at a time, while something arrives */

static void end(struct verbs_conn *c)
{
    c->out = false;
    c->ep->errands &= ~(1ull << c->node);
}

static void body(void *arg)
{
    struct verbs_conn *c = arg;

    c->task(c);
    end(c);
}

/* If there is no memory for a fiber, the caller runs the errand itself and waits. */
void verbs_errand_start(struct verbs_conn *c, verbs_errand_task *task)
{
    ASSERT(!c->out);
    c->out = true;
    c->task = task;
    c->ep->errands |= 1ull << c->node;
    if (!c->errand)
        c->errand = fiber_create(STACK_BYTES, body, c);
    else
        fiber_reset(c->errand, body, c);
    if (c->errand)
        fiber_resume(c->errand);
    else
        body(c);
}

bool verbs_errand_here(const struct verbs_conn *c)
{
    return c->out && (!c->errand || fiber_current() == c->errand);
}

void verbs_errand_rest(struct verbs_conn *c, uint64_t until)
{
    struct verbs_ep *e = c->ep;
    struct pollfd fd = {.fd = e->cm->fd, .events = POLLIN};

    if (c->errand && fiber_current() == c->errand)
        fiber_yield();
    else if (e->completions)
        verbs_ep_sleep(e, until);
    else
        poll(&fd, 1, NAP_MS);
}

void verbs_errands_resume(struct verbs_ep *e)
{
    for (unsigned i = 0; i < ROUNDS && e->errands != 0; i++) {
        verbs_ep_events(e);
        for (uint64_t left = e->errands; left; left &= left - 1) {
            struct verbs_conn *c = &e->conn[__builtin_ctzll(left)];

            if (c->errand)
                fiber_resume(c->errand);
        }
        if (!verbs_ep_drain(e))
            return;
    }
}

void verbs_errand_await(struct verbs_conn *c, uint64_t until)
{
    while (c->out) { /* the errand has its own time-outs */
        uint64_t now = clock_ns();

        verbs_errands_resume(c->ep);
        if (!c->out || now >= until)
            return;
        verbs_errand_rest(c, now + NAP_MS * 1000000ull < until ? now + NAP_MS * 1000000ull : until);
    }
}

void verbs_errand_drop(struct verbs_conn *c)
{
    fiber_destroy(c->errand);
    c->errand = NULL;
    if (c->out)
        end(c);
    c->awaited = NULL;
    if (c->way)
        rdma_destroy_id(c->way);
    c->way = NULL;
}
