/* Requests under way: taking and releasing them, and how they end. */
#include "sim/sim_internal.h"

#include <stdlib.h>

#define TIMEOUT_NS     1000000u /* until a lost node is noticed */
#define STRAY_LEASE_MS 5000u    /* where the fabric does not say what its pool's lease is */

struct sim_request *sim_request_take(struct sim *sim)
{
    for (size_t i = 0; i < sim->requests; i++)
        if (!sim->request[i]->in_use)
            return sim->request[i];
    if (sim->requests == sim->request_room) {
        size_t room = sim->request_room ? 2 * sim->request_room : 64;
        struct sim_request **bigger = realloc(sim->request, room * sizeof *bigger);
        if (!bigger)
            return NULL;
        sim->request = bigger;
        sim->request_room = room;
    }
    struct sim_request *r = calloc(1, sizeof *r);
    if (r)
        sim->request[sim->requests++] = r;
    return r;
}

void sim_request_release(struct sim_request *r)
{
    if (r->req || r->events > 0)
        return;
    free(r->late_data);
    r->late_data = NULL;
    r->in_use = false;
}

void sim_request_drop_all(struct sim *sim)
{
    for (size_t i = 0; i < sim->requests; i++) {
        struct sim_request *r = sim->request[i];
        if (r->req) {
            fab_complete(r->req, FAR_UNREACHABLE);
            sim->client[r->client].in_flight--;
        }
        r->req = NULL;
        r->events = 0;
        sim_request_release(r);
    }
    sim->queue.count = 0;
    sim->busy_count = sim->ways = sim->holds = 0;
}

void sim_request_report(struct sim *sim, struct sim_request *r, uint64_t after)
{
    if (r->reported || !r->req || sim->client[r->client].state == CLIENT_CRASHED)
        return;
    r->reported = true;
    sim_queue_push(sim, EVENT_COMPLETE, sim->now + after, r->client, r, 0);
}

void sim_request_cancel(struct sim *sim, struct sim_request *r)
{
    for (unsigned i = 0; i < r->count; i++) {
        struct sim_verb *verb = &r->verb[i];
        if (verb->state == VERB_DONE || verb->state == VERB_CANCELLED || verb->half)
            continue;
        if (verb->late)
            sim->client[r->client].late[verb->v.node]--;
        verb->state = VERB_CANCELLED;
    }
}

void sim_request_stray(struct sim *sim, struct sim_request *r)
{
    uint64_t lease_ms = sim->fab.lease_ms ? sim->fab.lease_ms : STRAY_LEASE_MS;
    unsigned lands = r->count - tape_choose(sim->tape, r->count, TAPE_FAULT);
    for (unsigned j = 0; j < r->count; j++) {
        struct sim_verb *verb = &r->verb[j];
        bool lost = j >= lands || verb->v.kind == FAB_READ; /* its client has got the answer */
        for (unsigned i = 0; i < j && !lost; i++)
            lost = r->verb[i].state == VERB_CANCELLED && sim_tail_goes_first(sim, r, i, j);
        if (lost && verb->state <= VERB_DUE && !verb->half)
            verb->state = VERB_CANCELLED;
    }
    r->stray = true;
    r->until = sim->now + lease_ms * 500000;
    r->status = FAR_UNKNOWN;
    sim_tail_settle(sim, r);
    sim_request_report(sim, r, sim_adversary_transit(sim, r->client));
}

void sim_request_fail(struct sim *sim, struct sim_request *r, int status)
{
    ASSERT(status != FAR_OK);
    sim_request_cancel(sim, r);
    r->status = status;
    sim_tail_settle(sim, r);
    sim_request_report(
        sim, r, status == FAR_UNREACHABLE ? TIMEOUT_NS : sim_adversary_transit(sim, r->client));
}
