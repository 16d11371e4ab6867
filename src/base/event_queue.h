/*
 * A queue of events in virtual time, for the simulator and for the model of a network.
 *
 * Events come out by time, those of the same time in the order in which they were pushed. The queue
 * knows only when an event is due. What it is, its owner says by kind, client, verb and subject.
 */
#ifndef BASE_EVENT_QUEUE_H
#define BASE_EVENT_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event {
    uint64_t at;
    uint32_t seq; /* its number, which push sets */
    uint8_t kind;
    uint8_t client;
    uint16_t verb;
    void *subject;
};

struct event_queue {
    struct event *event; /* a heap by (at, seq), unless events were appended */
    size_t count, room;
    uint32_t seq;
};

/* Returns the event's number. */
uint32_t event_queue_push(struct event_queue *q, struct event e);
/* Takes the earliest event; false when there is none. */
bool event_queue_pop(struct event_queue *q, struct event *e);

/* For an owner that takes events in an order of its own: adds one behind the others. Before events
 * are pushed or popped again, they have to be ordered. */
void event_queue_append(struct event_queue *q, struct event e);
void event_queue_order(struct event_queue *q);

#endif
