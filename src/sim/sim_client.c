/* Clients: fibers that run until they wait for an event. */
#include "sim/sim_internal.h"

#define CLIENT_STACK_BYTES (256u * 1024u)

static void run_client(void *arg)
{
    struct sim_client *c = arg;
    c->fn(c->arg);
}

int sim_start(struct sim *sim, unsigned client, void (*fn)(void *arg), void *arg)
{
    ASSERT(client < sim->set.clients && sim->client[client].state == CLIENT_IDLE);
    struct sim_client *c = &sim->client[client];
    c->fn = fn;
    c->arg = arg;
    if (c->fiber)
        fiber_reset(c->fiber, run_client, c);
    else
        c->fiber = fiber_create(CLIENT_STACK_BYTES, run_client, c);
    if (!c->fiber)
        return err_fail(FAR_NO_MEMORY, "no memory for a simulated client's stack");
    c->state = CLIENT_READY;
    sim->alive++;
    sim->memory_hash = 0; /* a state has only what clients changed */
    sim_queue_push(sim, EVENT_START, sim->now + sim_adversary_transit(sim, client), client, NULL,
                   0);
    return FAR_OK;
}

void sim_identify_client(struct sim *sim, unsigned client, uint64_t identity)
{
    ASSERT(client < sim->set.clients);
    sim->client[client].identity = identity;
}

void sim_client_resume(struct sim *sim, uint32_t client)
{
    struct sim_client *c = &sim->client[client];
    ASSERT(sim->running == NOBODY && c->state != CLIENT_IDLE && c->state != CLIENT_FINISHED);
    ASSERT(c->state != CLIENT_CRASHED || c->unwinding);
    c->state = CLIENT_RUNNING;
    c->seen = mix(c->seen, 1);
    sim->running = client;
    fiber_resume(c->fiber);
    sim->running = NOBODY;
    if (fiber_finished(c->fiber)) {
        c->state = CLIENT_FINISHED;
        if (!c->unwinding)
            sim->alive--;
    }
}

void sim_client_wake(struct sim *sim, const struct event *e)
{
    struct sim_client *c = &sim->client[e->client];
    if (c->frozen_until > sim->now)
        sim_queue_push(sim, e->kind, c->frozen_until, e->client, NULL, 0);
    else if (c->state == CLIENT_READY || c->state == CLIENT_PAUSING)
        sim_client_resume(sim, e->client);
}

struct sim_client *sim_client_running(struct sim *sim)
{
    return sim->running == NOBODY ? NULL : &sim->client[sim->running];
}

static void give_way(void *client)
{
    struct sim *sim = ((struct sim_client *)client)->sim;
    uint32_t me = sim->running;
    fiber_yield();
    ASSERT(sim->running == me);
}

/* Operations on the ring run on fibers of their own. They wait by yielding to the client's fiber,
 * or let the whole client wait, as for voters. */
void sim_client_give_way(struct sim_client *c, enum client_state state)
{
    c->state = state;
    if (fiber_current() == c->fiber)
        give_way(c);
    else
        fiber_outside(give_way, c);
}

void sim_client_wait(struct sim_client *c, uint64_t ns)
{
    c->local_time += ns;
    sim_queue_push(c->sim, EVENT_WAKE, c->sim->now + ns, (uint32_t)(c - c->sim->client), NULL, 0);
    sim_client_give_way(c, CLIENT_PAUSING);
}

void sim_think(struct sim *sim)
{
    struct sim_client *c = sim_client_running(sim);
    ASSERT(c);
    if (!c->unwinding)
        sim_client_wait(c, sim_adversary_transit(sim, sim->running));
}

void sim_spread(struct sim *sim, unsigned client, unsigned transits)
{
    sim->client[client].spread = transits;
}

void sim_sleep(struct sim *sim, uint64_t ns)
{
    struct sim_client *c = sim_client_running(sim);
    ASSERT(c);
    if (!c->unwinding)
        sim_client_wait(c, ns);
}

bool sim_unwinding(const struct sim *sim)
{
    return sim->running != NOBODY && sim->client[sim->running].unwinding;
}

uint64_t sim_identity(const struct sim *sim)
{
    return sim->running == NOBODY ? 0 : sim->client[sim->running].identity;
}

bool sim_crashed(const struct sim *sim, unsigned client)
{
    ASSERT(client < sim->set.clients);
    return sim->client[client].state == CLIENT_CRASHED;
}
