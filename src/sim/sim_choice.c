/*
 * The next event, by choice: the tape picks one of all events that may happen now. The first of
 * them is the uneventful choice: so the events of the client that went last come first, in their
 * order, and wake-ups come last. As long as faults are left, a crash of a client or an error of a
 * request is one more choice.
 *
 * An enumeration does not continue from the same state twice. A state is a hash of memory, of all
 * answers that each client has got, of what its verbs have done so far, and of what the harness
 * knows. A client is a deterministic program, so the answers it has got determine where it is.
 * States are distinguished by 64-bit hashes: among 10 million states, the chance that two are
 * confused is about 3 in a million.
 */
#include "sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

#define WAYS_MAX 512u

static uint64_t state_hash(const struct sim *sim)
{
    uint64_t h = mix(sim->memory_hash, sim->faults_used);
    for (unsigned i = 0; i < sim->set.clients; i++) {
        const struct sim_client *c = &sim->client[i];
        h = mix(h, c->seen);
        h = mix(h, c->gathers);
        h = mix(h, (uint64_t)c->state << 32 | c->requests);
    }
    /* The last client decides only which choice is the uneventful one. */
    if (sim->tape->deviations_max != SIZE_MAX)
        h = mix(h, sim->last);
    return mix(h, sim->harness_hash(sim->harness_arg));
}

static bool visited_grow(struct sim *sim)
{
    size_t room = sim->visited_room ? 2 * sim->visited_room : 1 << 16;
    struct visited *bigger = calloc(room, sizeof *bigger);
    if (!bigger)
        return false;
    for (size_t i = 0; i < sim->visited_room; i++) {
        if (sim->visited[i].deviations_left == 0)
            continue;
        size_t j = sim->visited[i].state & (room - 1);
        while (bigger[j].deviations_left != 0) /* ends: at most half of it is taken */
            j = (j + 1) & (room - 1);
        bigger[j] = sim->visited[i];
    }
    free(sim->visited);
    sim->visited = bigger;
    sim->visited_room = room;
    return true;
}

/* Has the search continued from this state before, with at least as many deviations left? If not,
 * it is noted as one it continues from. Without memory for more states, the search only takes
 * longer. */
static bool was_visited(struct sim *sim)
{
    uint64_t state = state_hash(sim);
    size_t left = sim->tape->deviations_max - sim->tape->deviations + 1;
    if (2 * (sim->visited_count + 1) > sim->visited_room && !visited_grow(sim))
        return false;
    size_t i = state & (sim->visited_room - 1);
    for (; sim->visited[i].deviations_left != 0; i = (i + 1) & (sim->visited_room - 1)) {
        if (sim->visited[i].state != state)
            continue;
        if (sim->visited[i].deviations_left >= left)
            return true;
        sim->visited[i].deviations_left = left;
        return false;
    }
    sim->visited[i] = (struct visited){.state = state, .deviations_left = left};
    sim->visited_count++;
    return false;
}

struct ways { /* what may happen next */
    unsigned count;
    struct {
        enum fault fault;
        uint32_t client;
        size_t event; /* place in the queue */
    } way[WAYS_MAX];
};

static void add_way(struct ways *w, enum fault fault, uint32_t client, size_t event)
{
    w->way[w->count].fault = fault;
    w->way[w->count].client = client;
    w->way[w->count++].event = event;
}

static void add_events(struct sim *sim, struct ways *w, bool of_last, bool waking)
{
    for (size_t i = 0; i < sim->queue.count && w->count < WAYS_MAX; i++) {
        const struct event *e = &sim->queue.event[i];
        bool is_last = e->client == sim->last, is_wake = e->kind == EVENT_WAKE;
        if (is_wake != waking || (!waking && is_last != of_last) || sim_nic_held(sim, e))
            continue;
        add_way(w, FAULT_NONE, e->client, i);
    }
}

static void add_faults(const struct sim *sim, struct ways *w)
{
    if (sim->faults_used >= sim->set.faults_max)
        return;
    for (uint32_t c = 0; c < sim->set.clients && w->count < WAYS_MAX; c++) {
        enum client_state s = sim->client[c].state;
        if ((sim->adversity & SIM_CRASH) && (s == CLIENT_POLLING || s == CLIENT_PAUSING))
            add_way(w, FAULT_CRASH, c, 0);
    }
    for (size_t i = 0; i < sim->queue.count && w->count < WAYS_MAX; i++) {
        const struct event *e = &sim->queue.event[i];
        const struct sim_request *r = e->subject;
        bool answering = e->kind == EVENT_COMPLETE && r->status == FAR_OK;
        bool first_due =
            (e->kind == EVENT_VERB || e->kind == EVENT_REQUEST) && r->req && r->unanswered > 0;
        for (size_t j = 0; j < i && first_due; j++) /* one error per request is enough */
            first_due = sim->queue.event[j].subject != r;
        if ((sim->adversity & SIM_ERROR) && (answering || first_due))
            add_way(w, FAULT_ERROR, e->client, i);
    }
}

static void take(struct event_queue *q, size_t i, struct event *e)
{
    *e = q->event[i];
    q->count--;
    memmove(&q->event[i], &q->event[i + 1], (q->count - i) * sizeof *q->event);
}

/* Takes an event that needs no choice. Events of cancelled verbs change nothing. Completions may be
 * immediate: delaying one is like delaying what its client does next, except that the operation
 * seems longer. Only if an error may still strike the answer, there is a choice. */
static bool pop_foregone(const struct sim *sim, struct event_queue *q, struct event *e)
{
    bool may_break = (sim->adversity & SIM_ERROR) && sim->faults_used < sim->set.faults_max;
    for (size_t i = 0; i < q->count; i++) {
        const struct sim_request *r = q->event[i].subject;
        unsigned kind = q->event[i].kind;
        if ((kind == EVENT_COMPLETE && !may_break) ||
            (kind == EVENT_VERB && r->verb[q->event[i].verb].state >= VERB_DONE) ||
            (kind == EVENT_REQUEST && r->verb[0].state == VERB_CANCELLED)) {
            take(q, i, e);
            return true;
        }
    }
    return false;
}

bool sim_choice_pop(struct sim *sim, struct event *e)
{
    struct event_queue *q = &sim->queue;
    for (;;) { /* ends: every turn uses a fault or returns */
        if (pop_foregone(sim, q, e))
            return true;
        struct ways w;
        w.count = 0;
        add_events(sim, &w, true, false);
        add_events(sim, &w, false, false);
        add_events(sim, &w, false, true);
        if (w.count == 0)
            return false;
        add_faults(sim, &w);
        if (w.count > 1 && sim->harness_hash && tape_exploring(sim->tape) && !sim->tape->narrow &&
            was_visited(sim))
            tape_narrow(sim->tape);
        uint32_t pick = tape_choose(sim->tape, w.count, TAPE_EVENT);
        if (w.way[pick].fault == FAULT_CRASH) {
            sim_fault_crash(sim, w.way[pick].client);
        } else if (w.way[pick].fault == FAULT_ERROR) {
            sim_fault_error(sim, q->event[w.way[pick].event].subject);
        } else {
            take(q, w.way[pick].event, e);
            return true;
        }
    }
}

void sim_prune(struct sim *sim, uint64_t (*harness_hash)(void *arg), void *arg)
{
    sim->harness_hash = harness_hash;
    sim->harness_arg = arg;
}

void sim_forget_states(struct sim *sim)
{
    if (sim->visited_room > 0)
        memset(sim->visited, 0, sim->visited_room * sizeof *sim->visited);
    sim->visited_count = 0;
}
