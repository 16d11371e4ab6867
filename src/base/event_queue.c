#include "base/event_queue.h"
#include "base/err.h"

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

void event_queue_append(struct event_queue *q, struct event e)
{
    if (q->count == q->room) {
        size_t room = q->room ? 2 * q->room : 256;
        struct event *bigger = realloc(q->event, room * sizeof *bigger);
        ASSERT(bigger);
        q->event = bigger;
        q->room = room;
    }
    e.seq = q->seq++;
    q->event[q->count++] = e;
}

uint32_t event_queue_push(struct event_queue *q, struct event e)
{
    event_queue_append(q, e);
    sift_up(q->event, q->count - 1);
    return q->seq - 1;
}

void event_queue_order(struct event_queue *q)
{
    for (size_t i = 1; i < q->count; i++)
        sift_up(q->event, i);
}

bool event_queue_pop(struct event_queue *q, struct event *e)
{
    if (q->count == 0)
        return false;
    *e = q->event[0];
    q->event[0] = q->event[--q->count];
    if (q->count > 1)
        sift_down(q->event, q->count);
    return true;
}
