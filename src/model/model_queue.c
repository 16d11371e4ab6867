/* Events in a heap by time. */
#include "model/model_internal.h"

#include <stdlib.h>

static bool before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : (int32_t)(a->seq - b->seq) < 0;
}

static void sift_up(struct event *heap, size_t i)
{
    struct event e = heap[i];
    for (size_t up = 0; i > 0; i = up) {
        up = (i - 1) / 2;
        if (!before(&e, &heap[up]))
            break;
        heap[i] = heap[up];
    }
    heap[i] = e;
}

static void sift_down(struct event *heap, size_t count)
{
    struct event e = heap[0];
    size_t i = 0;
    for (size_t child = 1; child < count; child = 2 * i + 1) {
        child += child + 1 < count && before(&heap[child + 1], &heap[child]);
        if (!before(&heap[child], &e))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = e;
}

uint32_t model_queue_push(struct queue *q, enum event_kind kind, uint64_t at, void *subject)
{
    if (q->count == q->room) {
        size_t room = q->room ? 2 * q->room : 4096;
        struct event *bigger = realloc(q->event, room * sizeof *bigger);
        ASSERT(bigger);
        q->event = bigger;
        q->room = room;
    }
    q->event[q->count] =
        (struct event){.at = at, .seq = q->seq++, .kind = kind, .subject = subject};
    sift_up(q->event, q->count++);
    return q->seq - 1;
}

bool model_queue_pop(struct queue *q, struct event *e)
{
    if (q->count == 0)
        return false;
    *e = q->event[0];
    q->event[0] = q->event[--q->count];
    if (q->count > 1)
        sift_down(q->event, q->count);
    return true;
}
