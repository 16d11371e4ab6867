/* Requests under way: taking one up, what orders its verbs, and its end. */
#include "sim/sim_internal.h"

#include <stdlib.h>

#define TIMEOUT_NS     1000000u /* until a lost node is noticed */
#define STRAY_LEASE_MS 5000u    /* where the fabric does not say what its pool's lease is */

struct flight *sim_request_take(struct sim *sim)
{
    for (size_t i = 0; i < sim->flights; i++)
        if (!sim->flight[i]->in_use)
            return sim->flight[i];
    if (sim->flights == sim->flights_room) {
        size_t room = sim->flights_room ? 2 * sim->flights_room : 64;
        struct flight **bigger = realloc(sim->flight, room * sizeof *bigger);
        if (!bigger)
            return NULL;
        sim->flight = bigger;
        sim->flights_room = room;
    }
    struct flight *f = calloc(1, sizeof *f);
    if (f)
        sim->flight[sim->flights++] = f;
    return f;
}

void sim_request_release(struct flight *f)
{
    if (f->req || f->events > 0)
        return;
    free(f->late_data);
    f->late_data = NULL;
    f->in_use = false;
}

void sim_request_drop_all(struct sim *sim)
{
    for (size_t i = 0; i < sim->flights; i++) {
        struct flight *f = sim->flight[i];
        if (f->req) {
            f->req->status = FAR_UNREACHABLE;
            f->req->done = true;
            sim->client[f->client].in_flight--;
        }
        f->req = NULL;
        f->events = 0;
        sim_request_release(f);
    }
    sim->queue.count = 0;
    sim->busy_count = 0;
}

bool sim_request_goes_first(const struct sim *sim, const struct flight *f, unsigned i, unsigned j)
{
    const struct sim_verb *a = &f->verb[i], *b = &f->verb[j];
    if (!(sim->set.adversity & SIM_REORDER))
        return true;
    unsigned pair = ORDER(fab_class_of(a->v.kind), fab_class_of(b->v.kind));
    return a->v.node == b->v.node && (i < b->fence || (sim->fab.order & pair));
}

void sim_request_report(struct sim *sim, struct flight *f, uint64_t after)
{
    if (f->reported || !f->req || sim->client[f->client].state == CLIENT_CRASHED)
        return;
    f->reported = true;
    sim_queue_push(sim, EVENT_COMPLETE, sim->now + after, f->client, f, 0);
}

void sim_request_cancel(struct sim *sim, struct flight *f)
{
    for (unsigned i = 0; i < f->count; i++) {
        struct sim_verb *verb = &f->verb[i];
        if (verb->state == VERB_DONE || verb->state == VERB_CANCELLED || verb->half)
            continue;
        if (verb->late)
            sim->client[f->client].late[verb->v.node]--;
        verb->state = VERB_CANCELLED;
    }
}

void sim_request_stray(struct sim *sim, struct flight *f)
{
    uint64_t lease_ms = sim->fab.lease_ms ? sim->fab.lease_ms : STRAY_LEASE_MS;
    unsigned lands = f->count - tape_choose(sim->tape, f->count, TAPE_FAULT);
    for (unsigned j = 0; j < f->count; j++) {
        struct sim_verb *verb = &f->verb[j];
        bool lost = j >= lands || verb->v.kind == FAB_READ; /* nobody is there to be told */
        for (unsigned i = 0; i < j && !lost; i++)
            lost = f->verb[i].state == VERB_CANCELLED && sim_request_goes_first(sim, f, i, j);
        if (lost && verb->state <= VERB_DUE && !verb->half)
            verb->state = VERB_CANCELLED;
    }
    f->stray = true;
    f->until = sim->now + lease_ms * 500000;
    f->status = FAR_UNKNOWN;
    sim_request_report(sim, f, sim_fault_transit(sim, f->client));
}

void sim_request_fail(struct sim *sim, struct flight *f, int status)
{
    sim_request_cancel(sim, f);
    f->status = status;
    sim_request_report(sim, f, status == FAR_UNREACHABLE ? TIMEOUT_NS : sim_fault_transit(sim, f->client));
}
