/*
 * Requests and verbs: what a NIC does with them.
 *
 * NIC-N1  A verb begins when every verb of its request and node that must go before it is done: those
 *     that the profile's order says, and those before the last fence (FABRIC-F3).
 * NIC-N2  A READ or WRITE moves whole granules; any subset of those left, in any event (FABRIC-F1).
 * NIC-N3  An atomic reads its word and writes it, in one event or in two. Between the two no other
 *     atomic touches the word, but a READ sees it as it was, and a WRITE of it is overwritten.
 * NIC-N4  A request completes when all its verbs are answered. A verb is answered when it is done;
 *     under SIM_IB_LOOSE a WRITE may be answered as soon as it has begun. Until it is done, what
 *     its client posts to that node waits (a WRITE holds back all that follows it).
 * NIC-N5  After a client was shut out, nothing of it takes effect any more; what is half done then, or
 *     was answered, is done before, and of the rest any part is.
 * NIC-N6  After a crash, nothing that was not done is done any more, except the second half of an
 *     atomic. After an error likewise, or else WRITEs and atomics that were under way land later,
 * all or only the first of them, whatever their client does meanwhile: on the old connection, as it
 *     were. None does later than half a lease, or when its client has been shut out (FABRIC-F5).
 */
#include "sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

#define TIMEOUT_NS     1000000u /* until a lost node is noticed */
#define STRAY_LEASE_MS 5000u    /* where the fabric does not say what its pool's lease is */

/* A harness that needs more, or the code that it runs, goes round in circles. */
#define DIRECT_VERBS_MAX 2000000u

/* ---- flights --------------------------------------------------------------------------------- */

static struct flight *flight_take(struct sim *sim)
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

static void flight_release(struct flight *f)
{
    if (f->req || f->events > 0)
        return;
    free(f->late_data);
    f->late_data = NULL;
    f->in_use = false;
}

void sim_nic_drop_all(struct sim *sim)
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
        flight_release(f);
    }
    sim->queue.count = 0;
    sim->busy_count = 0;
}

static bool goes_first(const struct sim *sim, const struct flight *f, unsigned i, unsigned j)
{
    const struct sim_verb *a = &f->verb[i], *b = &f->verb[j];
    if (!(sim->set.adversity & SIM_REORDER))
        return true;
    unsigned pair = ORDER(fab_class_of(a->v.kind), fab_class_of(b->v.kind));
    return a->v.node == b->v.node && (i < b->fence || (sim->fab.order & pair));
}

/* Pieces are whole granules, at most 64 of them, cut at multiples of their size. */
static void cut_pieces(const struct sim *sim, struct sim_verb *verb)
{
    uint64_t bytes = sim->set.granule, first = 0, last = 0;
    for (;; bytes *= 2) { /* ends: len is below 2^32 */
        first = verb->v.off / bytes;
        last = (verb->v.off + verb->v.len - 1) / bytes;
        if (last - first < 64)
            break;
    }
    uint64_t count = last - first + 1;
    verb->piece_bytes = (uint32_t)bytes;
    verb->left = count == 64 ? UINT64_MAX : (1ull << count) - 1;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static uint64_t *word_at(struct sim *sim, unsigned node, uint64_t off)
{
    return (uint64_t *)(void *)(sim->memory[node] + off);
}

static uint64_t hash_word(unsigned node, uint64_t off, uint64_t word)
{
    return word ? mix(mix(0x5bd1e995u + node, off), word) : 0;
}

static void move_bytes(struct sim *sim, const struct fab_verb *v, uint64_t from, uint64_t to)
{
    uint8_t *far = sim->memory[v->node] + from;
    uint8_t *near = (uint8_t *)v->buf + (from - v->off);
    if (v->kind == FAB_READ) {
        memcpy(near, far, to - from);
    } else {
        sim_touch(sim, v->node, from, to - from);
        memcpy(far, near, to - from);
    }
}

/* For an enumeration: what a READ gathers, and what a WRITE changes. To be called before. */
static uint64_t hash_move(struct sim *sim, const struct fab_verb *v, uint64_t from, uint64_t to)
{
    uint64_t h = 0;
    const uint64_t *far = word_at(sim, v->node, from);
    const uint64_t *near = (const uint64_t *)(const void *)((char *)v->buf + (from - v->off));
    for (size_t i = 0; i < (to - from) / 8; i++) {
        uint64_t off = from + 8 * i;
        if (v->kind == FAB_READ)
            h = mix(h, far[i]);
        else
            sim->memory_hash ^= hash_word(v->node, off, far[i]) ^ hash_word(v->node, off, near[i]);
    }
    return h;
}

static uint64_t move_pieces(struct sim *sim, struct sim_verb *verb, uint64_t pieces)
{
    const struct fab_verb *v = &verb->v;
    uint64_t bytes = verb->piece_bytes, base = v->off / bytes * bytes, end = v->off + v->len;
    uint64_t h = pieces;
    verb->left &= ~pieces;
    while (pieces) {
        unsigned first = (unsigned)__builtin_ctzll(pieces);
        uint64_t rest = ~(pieces >> first);
        unsigned run = rest ? (unsigned)__builtin_ctzll(rest) : 64;
        uint64_t from = base + first * bytes, to = from + run * bytes;
        if (from < v->off)
            from = v->off;
        if (to > end)
            to = end;
        if (sim->harness_hash)
            h = mix(h, hash_move(sim, v, from, to));
        move_bytes(sim, v, from, to);
        pieces &= run + first >= 64 ? 0 : UINT64_MAX << (run + first);
    }
    return h;
}

static uint64_t atomic_result(const struct fab_verb *v, uint64_t old)
{
    switch (v->kind) {
    case FAB_CAS:
        return old == v->compare ? v->swap : old;
    case FAB_MCAS:
        if (((old ^ v->compare) & v->compare_mask) != 0)
            return old;
        return (old & ~v->swap_mask) | (v->swap & v->swap_mask);
    default:
        return old + v->swap;
    }
}

static void atomic_write(struct sim *sim, const struct fab_verb *v, uint64_t new)
{
    uint64_t *word = word_at(sim, v->node, v->off);
    sim_touch(sim, v->node, v->off, 8);
    if (sim->harness_hash)
        sim->memory_hash ^= hash_word(v->node, v->off, *word) ^ hash_word(v->node, v->off, new);
    *word = new;
}

static void atomic_whole(struct sim *sim, const struct fab_verb *v)
{
    uint64_t old = *word_at(sim, v->node, v->off), new = atomic_result(v, old);
    if (new != old) /* a comparison that failed writes nothing */
        atomic_write(sim, v, new);
    memcpy(v->buf, &old, 8);
}

static struct busy_word *find_busy(struct sim *sim, const struct fab_verb *v)
{
    for (unsigned i = 0; i < sim->busy_count; i++)
        if (sim->busy[i].node == v->node && sim->busy[i].off == v->off)
            return &sim->busy[i];
    return NULL;
}

static void set_busy(struct sim *sim, const struct fab_verb *v)
{
    ASSERT(sim->busy_count < sizeof sim->busy / sizeof *sim->busy);
    sim->busy[sim->busy_count++] = (struct busy_word){.node = v->node, .off = v->off};
}

static void clear_busy(struct sim *sim, const struct fab_verb *v)
{
    struct busy_word *busy = find_busy(sim, v);
    ASSERT(busy != NULL);
    *busy = sim->busy[--sim->busy_count];
}

/* ---- posting --------------------------------------------------------------------------------- */

int sim_nic_post_direct(struct sim *sim, struct fab_req *req)
{
    if (sim->counts.direct_verbs > DIRECT_VERBS_MAX)
        return err_fail(FAR_TIMEOUT, "more than %u verbs with nobody else at work",
                        DIRECT_VERBS_MAX);
    for (unsigned i = 0; i < req->count; i++) {
        const struct fab_verb *v = &req->verbs[i];
        ASSERT(fab_valid(&sim->fab, v));
        if (v->kind <= FAB_WRITE)
            move_bytes(sim, v, v->off, v->off + v->len);
        else
            atomic_whole(sim, v);
    }
    sim->counts.direct_verbs += req->count;
    req->status = FAR_OK;
    req->done = true;
    return FAR_OK;
}

static void lay_out(struct sim *sim, struct flight *f, const struct fab_req *req)
{
    for (unsigned j = 0; j < f->count; j++) {
        struct sim_verb *verb = &f->verb[j];
        const struct fab_verb *v = &req->verbs[j];
        ASSERT(fab_valid(&sim->fab, v));
        verb->v = *v;
        verb->state = VERB_WAITING;
        verb->answered = verb->begun = verb->half = verb->torn = verb->late = false;
        verb->waits = 0;
        verb->fence = (v->flags & FAB_FENCE) ? (uint16_t)j : 0;
        for (unsigned i = 0; i < j; i++)
            if (f->verb[i].v.node == v->node && f->verb[i].fence > verb->fence)
                verb->fence = f->verb[i].fence;
        for (unsigned i = 0; i < j; i++)
            verb->waits += goes_first(sim, f, i, j);
        if (v->kind <= FAB_WRITE)
            cut_pieces(sim, verb);
        else
            verb->left = 1;
    }
}

/* A node that cannot be reached, for a while or until the faults stop. */
static void lose_or_regain(struct sim *sim)
{
    bool *lost = &sim->lost[sim->lose_node];
    if (sim->counts.requests > sim->lose_after && !*lost) {
        *lost = true;
        sim->counts.happened[SIM_NUMBER_NODE]++;
        sim_log_line(sim, NOBODY, "node %u IS LOST", sim->lose_node);
    } else if (*lost && sim->counts.requests > sim->lose_after + sim->lose_for) {
        *lost = false;
        sim->lose_after = UINT64_MAX;
        sim_log_line(sim, NOBODY, "node %u IS BACK", sim->lose_node);
    }
}

int sim_nic_post(struct sim *sim, uint32_t client, struct fab_req *req)
{
    struct sim_client *c = &sim->client[client];
    struct flight *f = flight_take(sim);
    if (!f)
        return FAR_NO_MEMORY;
    ASSERT(req->count > 0 && req->count <= BATCH_MAX);
    f->in_use = true;
    f->reported = f->any_executed = f->stray = false;
    f->req = req;
    f->client = client;
    f->identity = c->identity;
    f->number = c->requests++;
    f->events = 0;
    f->status = FAR_OK;
    f->count = f->unanswered = (uint16_t)req->count;
    req->done = false;
    lay_out(sim, f, req);
    c->in_flight++;
    sim->counts.requests++;
    sim->counts.verbs += req->count;
    lose_or_regain(sim);
    sim_log_post(sim, f);

    uint64_t arrives = sim->now + sim_fault_transit(sim, client);
    if (!(sim->adversity & SIM_INTERLEAVE)) {
        sim_queue_push(sim, EVENT_REQUEST, arrives, client, f, 0);
        return FAR_OK;
    }
    for (unsigned i = 0; i < f->count; i++) {
        if (f->verb[i].waits > 0)
            continue;
        f->verb[i].state = VERB_DUE;
        sim_queue_push(sim, EVENT_VERB, arrives + sim_fault_gap(sim), client, f, i);
    }
    return FAR_OK;
}

/* ---- execution ------------------------------------------------------------------------------- */

/* The trace has when, who, what and where, and the words of atomics. It leaves out what READs and
 * WRITEs carry: a process's number or the time that a pool was made differ from run to run, and
 * whatever matters of the rest shows in what is done next. */
static void note_gathered(struct sim *sim, const struct flight *f, unsigned i, uint64_t pieces,
                          uint64_t what)
{
    const struct fab_verb *v = &f->verb[i].v;
    sim->trace = mix(sim->trace, sim->now);
    sim->trace = mix(sim->trace, (uint64_t)f->client << 56 | (uint64_t)v->kind << 48 | v->off);
    sim->trace = mix(sim->trace, v->kind <= FAB_WRITE ? pieces : what);
    if (sim->harness_hash)
        sim->client[f->client].gathers ^= mix(mix((uint64_t)f->number << 16 | i, 1), what);
}

static void report(struct sim *sim, struct flight *f, uint64_t after)
{
    if (f->reported || !f->req || sim->client[f->client].state == CLIENT_CRASHED)
        return;
    f->reported = true;
    sim_queue_push(sim, EVENT_COMPLETE, sim->now + after, f->client, f, 0);
}

static void answer(struct sim *sim, struct flight *f, unsigned i)
{
    if (f->verb[i].answered)
        return;
    f->verb[i].answered = true;
    if (--f->unanswered == 0)
        report(sim, f, sim_fault_transit(sim, f->client));
}

static void verb_done(struct sim *sim, struct flight *f, unsigned i)
{
    struct sim_verb *verb = &f->verb[i];
    verb->state = VERB_DONE;
    if (verb->late)
        sim->client[f->client].late[verb->v.node]--;
    for (unsigned j = i + 1; j < f->count; j++) {
        struct sim_verb *later = &f->verb[j];
        if (later->state != VERB_WAITING || !goes_first(sim, f, i, j) || --later->waits > 0)
            continue;
        later->state = VERB_DUE;
        if (sim->adversity & SIM_INTERLEAVE)
            sim_queue_push(sim, EVENT_VERB, sim->now + sim_fault_gap(sim), f->client, f, j);
    }
    answer(sim, f, i);
}

static void begin_verb(struct sim *sim, struct flight *f, unsigned i)
{
    struct sim_verb *verb = &f->verb[i];
    verb->begun = f->any_executed = true;
    for (unsigned j = 0; j < i; j++)
        if (f->verb[j].state != VERB_DONE) {
            sim->counts.reordered++;
            break;
        }
    if (sim->set.profile == SIM_IB_LOOSE && (sim->adversity & SIM_REORDER) &&
        sim->by_choice == sim->set.by_choice && verb->v.kind == FAB_WRITE &&
        tape_chance(sim->tape, 1, 3, TAPE_ORDER))
        answer(sim, f, i); /* and done in later events */
}

/* One event's worth of a verb; true when that was the last. */
static bool step(struct sim *sim, struct flight *f, unsigned i)
{
    struct sim_verb *verb = &f->verb[i];
    const struct fab_verb *v = &verb->v;
    if (!verb->begun) {
        begin_verb(sim, f, i);
        if (verb->answered)
            return false;
    }
    if (sim->watch)
        sim->watch(sim->watch_arg, f->client, f->identity, v);
    if (v->kind <= FAB_WRITE) {
        uint64_t pieces = sim_fault_pieces(sim, verb->left);
        sim_log_verb(sim, f, i, LOG_WHOLE, pieces);
        note_gathered(sim, f, i, pieces, move_pieces(sim, verb, pieces));
        sim->counts.torn += verb->left != 0 && !verb->torn;
        verb->torn |= verb->left != 0;
        return verb->left == 0;
    }
    if (verb->half) { /* its buffer may be another's by now */
        verb->half = false;
        atomic_write(sim, v, verb->result);
        clear_busy(sim, v);
        sim_log_verb(sim, f, i, LOG_SECOND_HALF, 0);
        note_gathered(sim, f, i, 0, verb->result + 1);
        return true;
    }
    uint64_t old = *word_at(sim, v->node, v->off);
    verb->result = atomic_result(v, old);
    if (verb->result != old && sim_fault_halves(sim)) {
        verb->half = true;
        memcpy(v->buf, &old, 8);
        set_busy(sim, v);
        sim->counts.halved++;
        sim_log_verb(sim, f, i, LOG_FIRST_HALF, 0);
        note_gathered(sim, f, i, 0, old);
        return false;
    }
    atomic_whole(sim, v);
    sim_log_verb(sim, f, i, LOG_WHOLE, 0);
    note_gathered(sim, f, i, 0, old);
    return true;
}

uint64_t sim_nic_held(struct sim *sim, const struct event *e)
{
    const struct flight *f = e->flight;
    uint64_t until = 0;
    if (!f || e->kind == EVENT_COMPLETE)
        return 0;
    unsigned first = e->kind == EVENT_VERB ? e->verb : 0;
    unsigned end = e->kind == EVENT_VERB ? first + 1 : f->count;
    for (unsigned i = first; i < end; i++) {
        const struct sim_verb *verb = &f->verb[i];
        const struct sim_client *c = &sim->client[f->client];
        if (verb->half || verb->state >= VERB_DONE)
            continue;
        const struct busy_word *busy = verb->v.kind > FAB_WRITE ? find_busy(sim, &verb->v) : NULL;
        if (busy && busy->until >= until)
            until = busy->until + 1;
        if (f->req && c->late[verb->v.node] > 0 && c->late_until[verb->v.node] >= until)
            until = c->late_until[verb->v.node] + 1;
    }
    return until;
}

/* Puts a verb's next event into the queue; others may be held until then. */
static void push_verb(struct sim *sim, struct flight *f, unsigned i, uint64_t at)
{
    const struct sim_verb *verb = &f->verb[i];
    uint64_t *late_until = &sim->client[f->client].late_until[verb->v.node];
    if (verb->half)
        find_busy(sim, &verb->v)->until = at;
    if (verb->answered && *late_until < at)
        *late_until = at;
    sim_queue_push(sim, EVENT_VERB, at, f->client, f, i);
}

/* Puts an event off. */
static bool put_off(struct sim *sim, const struct event *e, uint64_t until)
{
    if (e->kind == EVENT_VERB)
        push_verb(sim, e->flight, e->verb, until);
    else
        sim_queue_push(sim, e->kind, until, e->client, e->flight, 0);
    return true;
}

/* Faults and obstacles before an event of a request. True when it is not to be carried out: it
 * has been put off, or its request or client is no more. */
static bool obstructed(struct sim *sim, const struct event *e)
{
    struct flight *f = e->flight;
    struct sim_client *c = &sim->client[f->client];
    bool half = e->kind == EVENT_VERB && f->verb[e->verb].half;
    if (half)
        return false; /* the NIC finishes what it has begun */
    if (f->stray && !f->req && sim->now > f->until) {
        sim_nic_cancel(sim, f);
        return true;
    }
    bool answers = e->kind == EVENT_COMPLETE;
    if (c->frozen_until > sim->now && (answers || c->stuck))
        return put_off(sim, e, c->frozen_until + sim_fault_gap(sim));
    uint64_t held = sim->by_choice ? 0 : sim_nic_held(sim, e);
    if (held)
        return put_off(sim, e, held > sim->now ? held : sim->now + 1);
    switch (f->req && f->status == FAR_OK ? sim_fault_draw(sim, f->client) : FAULT_NONE) {
    case FAULT_NONE:
        return false;
    case FAULT_CRASH:
        sim_fault_crash(sim, f->client);
        return true;
    case FAULT_PAUSE:
        sim_fault_pause(sim, f->client);
        return put_off(sim, e, answers || c->stuck ? c->frozen_until : sim->now);
    case FAULT_ERROR:
        sim_fault_error(sim, f);
        if (answers)
            return false; /* the answer is on its way, and is the error now */
        return f->stray ? put_off(sim, e, sim->now + sim_fault_lag(sim, f->client)) : true;
    }
    return false;
}

/* What has begun, or was answered (NIC-N4), has reached the node before. */
static bool node_is_gone(struct sim *sim, struct flight *f, unsigned i)
{
    if (!sim->lost[f->verb[i].v.node] || f->verb[i].half || f->verb[i].answered)
        return false;
    sim_log_line(sim, f->client, "#%u finds node %u gone", f->number, f->verb[i].v.node);
    sim_nic_fail(sim, f, f->any_executed ? FAR_UNKNOWN : FAR_UNREACHABLE);
    return true;
}

void sim_nic_verb(struct sim *sim, const struct event *e)
{
    struct flight *f = e->flight;
    unsigned i = e->verb;
    f->events--;
    if (f->verb[i].state < VERB_DONE && !obstructed(sim, e) && !node_is_gone(sim, f, i)) {
        if (step(sim, f, i))
            verb_done(sim, f, i);
        else
            push_verb(sim, f, i,
                      sim->now + (f->verb[i].answered ? sim_fault_lag(sim, f->client)
                                                      : sim_fault_gap(sim)));
    }
    flight_release(f);
}

/* All verbs of the request at one go, in an order that the profile allows. */
void sim_nic_request(struct sim *sim, const struct event *e)
{
    struct flight *f = e->flight;
    f->events--;
    bool go = f->verb[0].state != VERB_CANCELLED && !obstructed(sim, e);
    unsigned left = go ? f->count : 0;
    while (left > 0) {
        unsigned ready[BATCH_MAX] = {0}, count = 0;
        for (unsigned i = 0; i < f->count; i++)
            if (f->verb[i].state <= VERB_DUE && f->verb[i].waits == 0)
                ready[count++] = i;
        ASSERT(count > 0); /* nothing waits for what comes after it */
        unsigned i = ready[tape_choose(sim->tape, count, TAPE_ORDER)];
        if (node_is_gone(sim, f, i))
            break;
        begin_verb(sim, f, i);
        while (!step(sim, f, i))
            continue; /* ends: every step takes a piece */
        verb_done(sim, f, i);
        left--;
    }
    flight_release(f);
}

/* ---- completion ------------------------------------------------------------------------------ */

/* What is not done goes on from a copy: its buffers are the client's again. */
static void detach(struct flight *f)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < f->count; i++)
        if (f->verb[i].state <= VERB_DUE)
            bytes += f->verb[i].v.len;
    if (bytes == 0)
        return;
    char *copy = malloc(bytes);
    ASSERT(copy != NULL);
    f->late_data = copy;
    for (unsigned i = 0; i < f->count; i++) {
        struct fab_verb *v = &f->verb[i].v;
        if (f->verb[i].state > VERB_DUE)
            continue;
        memcpy(copy, v->buf, v->len);
        v->buf = copy;
        copy += v->len;
    }
}

/* WRITEs that are answered and not done: NIC-N4. */
static void count_late(struct sim *sim, struct flight *f)
{
    for (unsigned i = 0; i < f->count; i++) {
        struct sim_verb *verb = &f->verb[i];
        verb->late = verb->state == VERB_DUE && verb->answered;
        sim->client[f->client].late[verb->v.node] += verb->late;
        sim->counts.late += verb->late;
    }
}

void sim_nic_complete(struct sim *sim, const struct event *e)
{
    struct flight *f = e->flight;
    struct sim_client *c = &sim->client[f->client];
    f->events--;
    if (f->req && c->state != CLIENT_CRASHED && !obstructed(sim, e)) {
        detach(f);
        count_late(sim, f);
        f->req->status = f->status;
        f->req->done = true;
        f->req = NULL;
        c->in_flight--;
        c->completed = true;
        if (f->status)
            sim_log_line(sim, f->client, "#%u ends with %s", f->number, far_errname(f->status));
        sim->trace = mix(sim->trace, sim->now ^ f->client);
        c->seen = mix(mix(c->seen, (uint64_t)f->number << 32 | (uint32_t)f->status), c->gathers);
        c->gathers = 0;
        c->local_time += 1000;
        if (c->state == CLIENT_POLLING)
            sim_resume(sim, f->client);
    }
    flight_release(f);
}

void sim_nic_cancel(struct sim *sim, struct flight *f)
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

/* Carries a verb out that is under way, to its end. */
static void rush(struct sim *sim, struct flight *f, unsigned i)
{
    while (!step(sim, f, i))
        continue; /* ends: every step takes a piece */
    verb_done(sim, f, i);
}

void sim_nic_shut_out(struct sim *sim, struct flight *const *flights, size_t count)
{
    for (size_t n = 0; n < count; n++)
        for (unsigned i = 0; i < flights[n]->count; i++) {
            const struct sim_verb *verb = &flights[n]->verb[i];
            if (verb->half || (verb->state == VERB_DUE && verb->answered))
                rush(sim, flights[n], i);
        }
    for (size_t n = 0; n < count; n++) {
        struct flight *f = flights[n];
        for (unsigned i = 0; i < f->count && !sim->by_choice; i++) {
            const struct sim_verb *verb = &f->verb[i];
            if (verb->state != VERB_DUE || sim->lost[verb->v.node] ||
                (verb->v.kind > FAB_WRITE && find_busy(sim, &verb->v)) ||
                !tape_chance(sim->tape, 1, 2, TAPE_FAULT))
                continue;
            rush(sim, f, i);
        }
        sim_nic_cancel(sim, f);
        if (f->req)
            sim_nic_fail(sim, f, FAR_UNKNOWN);
    }
}

void sim_nic_stray(struct sim *sim, struct flight *f)
{
    uint64_t lease_ms = sim->fab.lease_ms ? sim->fab.lease_ms : STRAY_LEASE_MS;
    unsigned lands = f->count - tape_choose(sim->tape, f->count, TAPE_FAULT);
    for (unsigned j = 0; j < f->count; j++) {
        struct sim_verb *verb = &f->verb[j];
        bool lost = j >= lands || verb->v.kind == FAB_READ; /* nobody is there to be told */
        for (unsigned i = 0; i < j && !lost; i++)
            lost = f->verb[i].state == VERB_CANCELLED && goes_first(sim, f, i, j);
        if (lost && verb->state <= VERB_DUE && !verb->half)
            verb->state = VERB_CANCELLED;
    }
    f->stray = true;
    f->until = sim->now + lease_ms * 500000;
    f->status = FAR_UNKNOWN;
    report(sim, f, sim_fault_transit(sim, f->client));
}

void sim_nic_fail(struct sim *sim, struct flight *f, int status)
{
    sim_nic_cancel(sim, f);
    f->status = status;
    report(sim, f, status == FAR_UNREACHABLE ? TIMEOUT_NS : sim_fault_transit(sim, f->client));
}
