/* The events that are due, in a heap by time; while the tape chooses, in order of arrival. */
#include "sim/sim_internal.h"

#include <stdlib.h>

static bool before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : (int32_t)(a->seq - b->seq) < 0;
}

static void sift_up(struct event *heap, size_t i)
{
    struct event e = heap[i];
    while (i > 0 && before(&e, &heap[(i - 1) / 2])) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = e;
}

static void sift_down(struct event *heap, size_t count)
{
    struct event e = heap[0];
    size_t i = 0, child = 0;
    while ((child = 2 * i + 1) < count) {
        if (child + 1 < count && before(&heap[child + 1], &heap[child]))
            child++;
        if (!before(&heap[child], &e))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = e;
}

void sim_queue_push(struct sim *sim, enum event_kind kind, uint64_t at, uint32_t client,
                    struct sim_request *r, unsigned verb)
{
    struct queue *q = &sim->queue;
    ASSERT(client < sim->set.clients && (!r || (r->in_use && verb < r->count)));
    if (q->count == q->room) {
        size_t room = q->room ? 2 * q->room : 256;
        struct event *bigger = realloc(q->event, room * sizeof *bigger);
        ASSERT(bigger);
        q->event = bigger;
        q->room = room;
    }
    q->event[q->count++] = (struct event){.at = at,
                                          .seq = q->seq++,
                                          .kind = (uint8_t)kind,
                                          .client = (uint8_t)client,
                                          .verb = (uint16_t)verb,
                                          .request = r};
    if (r)
        r->events++;
    if (!sim->by_choice)
        sift_up(q->event, q->count - 1);
}

void sim_queue_by_time(struct sim *sim)
{
    sim->by_choice = false;
    for (size_t i = 1; i < sim->queue.count; i++)
        sift_up(sim->queue.event, i);
}

bool sim_queue_pop(struct sim *sim, struct event *e)
{
    struct queue *q = &sim->queue;
    if (q->count == 0)
        return false;
    *e = q->event[0];
    q->event[0] = q->event[--q->count];
    if (q->count > 1)
        sift_down(q->event, q->count);
    return true;
}
