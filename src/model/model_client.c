/*
 * Clients: fibers that run until they wait for something.
 *
 * A client runs at one moment of virtual time, but its CPU is busy for some time afterwards. Its
 * clock says until when. What it posts leaves when its clock says so, and it does not go on before
 * then.
 */
#include "model/model_internal.h"

#include <stdlib.h>

#define STACK_BYTES (256u * 1024u)

static void run_client(void *arg)
{
    struct model_client *c = arg;
    c->fn(c->worker);
}

int model_client_start(struct model_client *c, void (*fn)(void *worker), void *worker)
{
    c->fn = fn;
    c->worker = worker;
    if (c->fiber)
        fiber_reset(c->fiber, run_client, c);
    else
        c->fiber = fiber_create(STACK_BYTES, run_client, c);
    return c->fiber ? FAR_OK : err_fail(FAR_NO_MEMORY, "no memory for a modelled client's stack");
}

void model_client_wake(struct model_client *c)
{
    c->event = model_push(c->model, EVENT_CLIENT, c->clock, c);
}

void model_client_resume(struct model_client *c)
{
    struct model *m = c->model;
    ASSERT(!m->running && c->state != CLIENT_FINISHED);
    c->woken = false;
    c->state = CLIENT_RUNNING;
    if (c->clock < m->now)
        c->clock = m->now;
    m->running = c;
    fiber_resume(c->fiber);
    m->running = NULL;
    if (fiber_finished(c->fiber)) {
        c->state = CLIENT_FINISHED;
        m->alive--;
    }
}

/* Frees the fiber of the client that dies, now or when its last request has completed. False when
 * out of memory. */
static bool leave_remains(struct model_client *c)
{
    if (c->in_flight == 0) {
        fiber_destroy(c->fiber);
        return true;
    }
    struct remains *r = malloc(sizeof *r);
    if (!r)
        return false;
    *r = (struct remains){c->remains, c->fiber, c->life, c->in_flight};
    c->remains = r;
    return true;
}

void model_client_drop(struct model_client *c, unsigned life)
{
    struct remains **at = &c->remains;
    while ((*at)->life != life)
        at = &(*at)->next;
    struct remains *r = *at;
    if (--r->in_flight > 0)
        return;
    *at = r->next;
    fiber_destroy(r->fiber);
    free(r);
}

/* Events of the one that died are ignored: those of its verbs by `life`, and the one that would let
 * it go on because there is a new one. */
int model_client_replace(struct model_client *c)
{
    struct fiber *fiber = fiber_create(STACK_BYTES, run_client, c);
    if (!fiber || !leave_remains(c)) {
        fiber_destroy(fiber);
        return FAR_NO_MEMORY;
    }
    c->fiber = fiber;
    c->life++;
    c->in_flight = 0;
    c->owed = 0;
    c->completed = c->woken = false;
    c->state = CLIENT_PAUSING;
    c->clock = c->model->now;
    model_client_wake(c);
    return FAR_OK;
}

void model_client_completed(struct model_client *c)
{
    c->completed = true;
    if (c->state != CLIENT_POLLING || c->woken)
        return;
    if (c->clock <= c->model->now) {
        model_client_resume(c);
    } else {
        c->woken = true;
        model_client_wake(c);
    }
}

/* Operations on a session's ring run on fibers of their own. They wait by yielding to the client's
 * fiber, which is the one that gets here. */
static void give_way(struct model_client *c, enum client_state state)
{
    ASSERT(fiber_current() == c->fiber);
    c->state = state;
    fiber_yield();
    ASSERT(c->model->running == c);
}

void model_client_poll(struct model_client *c)
{
    if (!c->completed && c->in_flight > 0)
        give_way(c, CLIENT_POLLING);
    c->completed = false;
    model_work(c, c->owed);
    c->owed = 0;
}

void model_client_pause(struct model_client *c, uint64_t ps)
{
    c->clock += ps;
    model_client_wake(c);
    give_way(c, CLIENT_PAUSING);
}
