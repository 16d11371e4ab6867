/* The events that are due, by time; while the tape chooses, in order of arrival. */
#include "sim/sim_internal.h"

void sim_queue_push(struct sim *sim, enum event_kind kind, uint64_t at, uint32_t client,
                    struct sim_request *r, unsigned verb)
{
    ASSERT(client < sim->set.clients && (!r || (r->in_use && verb < r->count)));
    struct event e = {.at = at,
                      .kind = (uint8_t)kind,
                      .client = (uint8_t)client,
                      .verb = (uint16_t)verb,
                      .subject = r};
    if (r)
        r->events++;
    if (sim->by_choice)
        event_queue_append(&sim->queue, e);
    else
        (void)event_queue_push(&sim->queue, e);
}

void sim_queue_by_time(struct sim *sim)
{
    sim->by_choice = false;
    event_queue_order(&sim->queue);
}
