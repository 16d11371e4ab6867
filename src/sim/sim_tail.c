/*
 * Tails: a second image of each node, which lags as the marks of verbs allow, and the loss of one
 * of the two.
 *
 * A pool that keeps each word on two nodes decides changes at the first, the head, and brings them
 * to the second, the tail, before they are acknowledged. Such a pool is simulated here by what it
 * may do, not by how: in one step where the pool takes a message. So a run shows whether marks are
 * right before any fabric believes them.
 *
 * TAIL-T1  READs see the tail, but those of MARK_HEAD. A verb without a mark that changes something
 *          is a mistake, and so is one that publishes what would be taken for a reference.
 * TAIL-T2  A request has stages. When all verbs of a stage are done at the head, they go to the
 *          tail in posting order (one event for each piece). A part ends at a fence if a
 *          `publish` or a released lock precedes it. Locks are released in a stage of their own,
 *          the last of their part, so the tail's lock is released before the head's. The request is
 *          answered when the last stage is at the tail.
 * TAIL-T3  `early` and `sum` reach head and tail in any order, and `early` in pieces. A READ of the
 *          tail that follows them finds them there.
 * TAIL-T4  `place` takes the locks along that its client knows to have: they stand at the tail
 *          before it. A lock under which nothing was placed is at the head only. So is one of
 *          another operation of the client's ring that was not answered: what names it may not be
 *          at the tail yet, so nobody could release it there.
 * TAIL-T5  `hint` is at the head only.
 * TAIL-T6  From the time when `publish` has changed a word at the head until it is at the tail,
 *          other atomics and READs of the head wait. A request that waits brings first to the tail
 *          what it has at the head, so nobody waits in a circle.
 * TAIL-T7  After an error, and when its client is shut out, what a request has done at the head is
 *          at the tail at once; what is done of it later comes there with it. After a crash the
 *          same happens when somebody waits for it, or shuts the client out.
 * TAIL-T8  One head or one tail is lost in a run, and the other goes on alone; or one of each, of
 *          two nodes: a machine may be the head of one and the tail of another. With the head,
 *          hints are lost, and what its clients had not brought to the tail yet: clients that live
 *          do that again, and take their locks along. With the tail, nothing is. That happens at
 *          any event, or behind an atomic that has changed a word there, or soon after the death
 *          of a client that was writing there.
 */
#include "sim/sim_internal.h"

#include <string.h>

#define HOLDS_MAX (sizeof((struct sim *)0)->hold / sizeof *((struct sim *)0)->hold)

static enum fab_mark mark_of(const struct fab_verb *v)
{
    return (enum fab_mark)(v->flags & FAB_MARK);
}

static uint64_t *tail_word(struct sim *sim, const struct fab_verb *v)
{
    return (uint64_t *)(void *)(sim->tail_memory[v->node] + v->off);
}

static bool has_tail(const struct sim *sim, unsigned node)
{
    return sim->set.tails && !sim->alone[node];
}

/* May the client bring locks along, and do again what was lost? */
static bool lives(const struct sim *sim, const struct sim_request *r)
{
    const struct sim_client *c = &sim->client[r->client];
    return c->state != CLIENT_CRASHED && !r->settled && !r->stray;
}

/* ---- locks ----------------------------------------------------------------------------------- */

static bool same_word(const struct sim_hold *h, const struct fab_verb *v)
{
    return h->node == v->node && h->off == v->off;
}

static void release_at_tail(struct sim *sim, const struct fab_verb *v, uint64_t old, uint64_t new)
{
    uint64_t *tail = tail_word(sim, v);
    if (v->kind != FAB_CAS)
        *tail &= ~(old & ~new);
    else if (old != 0 && *tail == old)
        *tail = new;
}

/* Takes note of an atomic of MARK_LOCK that has changed its word at the head. A CAS takes the word
 * as a whole; others set and clear bits. What is released is released at the tail, too. */
static void note_lock(struct sim *sim, const struct sim_request *r, const struct fab_verb *v,
                      uint64_t old, uint64_t new)
{
    bool whole = v->kind == FAB_CAS;
    uint64_t set = whole ? new : new & ~old, cleared = whole ? UINT64_MAX : old & ~new;
    for (unsigned i = sim->holds; i-- > 0;) {
        struct sim_hold *h = &sim->hold[i];
        if (same_word(h, v) && (h->bits &= ~cleared) == 0)
            *h = sim->hold[--sim->holds];
    }
    if (has_tail(sim, v->node))
        release_at_tail(sim, v, old, new);
    if (set == 0)
        return;
    for (unsigned i = 0; i < sim->holds; i++)
        if (same_word(&sim->hold[i], v) && sim->hold[i].identity == r->identity) {
            sim->hold[i].bits |= set;
            return;
        }
    ASSERT(sim->holds < HOLDS_MAX);
    sim->hold[sim->holds++] =
        (struct sim_hold){r->client, v->node, v->off, r->identity, set, whole};
}

static void copy_lock(struct sim *sim, const struct sim_hold *h, uint64_t bits)
{
    uint64_t *word = (uint64_t *)(void *)(sim->tail_memory[h->node] + h->off);
    if (bits != 0)
        *word = h->whole ? bits : *word | bits;
}

/* Which bits of the lock does its client not know yet to have? */
static uint64_t unanswered(const struct sim *sim, const struct sim_request *r,
                           const struct sim_hold *h)
{
    uint64_t bits = 0;
    for (size_t n = 0; n < sim->requests; n++) {
        const struct sim_request *other = sim->request[n];
        if (!other->in_use || !other->req || other == r || other->client != r->client)
            continue;
        for (unsigned i = 0; i < other->count; i++) {
            const struct sim_verb *verb = &other->verb[i];
            if (verb->executed && mark_of(&verb->v) == MARK_LOCK && same_word(h, &verb->v))
                bits |= verb->result & ~*(const uint64_t *)verb->v.buf;
        }
    }
    return h->whole && bits != 0 ? UINT64_MAX : bits;
}

/* TAIL-T4 */
static void take_locks_along(struct sim *sim, const struct sim_request *r, unsigned node)
{
    for (unsigned i = 0; i < sim->holds; i++) {
        const struct sim_hold *h = &sim->hold[i];
        if (h->node == node && h->identity == r->identity)
            copy_lock(sim, h, h->bits & ~unanswered(sim, r, h));
    }
}

static const struct sim_hold *find_hold(const struct sim *sim, const struct sim_request *r,
                                        const struct fab_verb *v)
{
    for (unsigned i = 0; i < sim->holds; i++)
        if (same_word(&sim->hold[i], v) && sim->hold[i].identity == r->identity)
            return &sim->hold[i];
    return NULL;
}

/* ---- words on their way to the tail ---------------------------------------------------------- */

static void end_way(struct sim *sim, const struct sim_request *r, unsigned verb)
{
    for (unsigned i = 0; i < sim->ways; i++)
        if (sim->way[i].request == r && sim->way[i].verb == verb) {
            sim->way[i] = sim->way[--sim->ways];
            return;
        }
}

static const struct sim_way *find_way(const struct sim *sim, const struct sim_request *r,
                                      const struct fab_verb *v)
{
    for (unsigned i = 0; i < sim->ways; i++) {
        const struct sim_way *w = &sim->way[i];
        const struct fab_verb *other = &w->request->verb[w->verb].v;
        if (w->request != r && other->node == v->node && other->off >= v->off &&
            other->off < v->off + v->len)
            return w;
    }
    return NULL;
}

/* ---- bringing verbs to the tail -------------------------------------------------------------- */

/* Does the verb still have to be brought there? */
static bool is_behind(const struct sim *sim, const struct sim_verb *verb)
{
    return verb->v.kind != FAB_READ && !verb->at_tail && has_tail(sim, verb->v.node);
}

static void tail_move(struct sim *sim, const struct sim_verb *verb, uint64_t pieces)
{
    const struct fab_verb *v = &verb->v;
    uint64_t bytes = verb->piece_bytes, base = v->off / bytes * bytes;
    for (; pieces; pieces &= pieces - 1) {
        uint64_t from = base + (unsigned)__builtin_ctzll(pieces) * bytes, to = from + bytes;
        if (from < v->off)
            from = v->off;
        if (to > v->off + v->len)
            to = v->off + v->len;
        memcpy(sim->tail_memory[v->node] + from, (const uint8_t *)v->buf + (from - v->off),
               to - from);
    }
}

/* The next piece of a verb comes to the tail. */
static void bring(struct sim *sim, struct sim_request *r, unsigned i, uint64_t pieces)
{
    struct sim_verb *verb = &r->verb[i];
    const struct fab_verb *v = &verb->v;
    uint64_t *word = tail_word(sim, v);
    sim_memory_touch(sim, v->node, v->off, v->len);
    if (v->kind == FAB_WRITE) {
        if (mark_of(v) == MARK_PLACE)
            take_locks_along(sim, r, v->node);
        tail_move(sim, verb, pieces);
        verb->tail_left &= ~pieces;
        verb->at_tail = verb->tail_left == 0;
        return;
    }
    switch (mark_of(v)) {
    case MARK_PUBLISH:
        if (verb->changed)
            *word = verb->result;
        end_way(sim, r, i);
        break;
    case MARK_LOCK: { /* a release: its word at the head follows */
        uint64_t head = *sim_memory_word(sim, v->node, v->off);
        release_at_tail(sim, v, head, sim_atomic_result(v, head));
        break;
    }
    case MARK_SUM:
        *word = sim_atomic_result(v, *word);
        break;
    default:
        break;
    }
    verb->at_tail = true;
}

/* Brings the verb wholly to the tail, or what the head has of it. */
static void bring_done(struct sim *sim, struct sim_request *r, unsigned i)
{
    struct sim_verb *verb = &r->verb[i];
    if (!is_behind(sim, verb) || !verb->begun || (verb->v.kind > FAB_WRITE && !verb->executed))
        return;
    uint64_t pieces = verb->tail_left & ~verb->left;
    if (verb->v.kind > FAB_WRITE || pieces != 0)
        bring(sim, r, i, pieces);
}

void sim_tail_settle(struct sim *sim, struct sim_request *r)
{
    if (!sim->set.tails)
        return;
    r->settled = true;
    for (unsigned i = 0; i < r->count; i++)
        bring_done(sim, r, i);
}

void sim_tail_settle_all(struct sim *sim)
{
    while (sim->ways > 0)
        sim_tail_settle(sim, sim->way[0].request);
}

/* ---- stages ---------------------------------------------------------------------------------- */

static bool is_release(const struct sim *sim, const struct sim_request *r, const struct fab_verb *v)
{
    if (mark_of(v) != MARK_LOCK)
        return false;
    return v->kind == FAB_CAS ? v->swap == 0 || find_hold(sim, r, v)
                              : v->kind == FAB_FAA || !(v->swap & v->swap_mask);
}

/* Does the tail have the lock already, under which a part placed something? */
static bool is_at_tail(const struct sim *sim, const struct sim_request *r, const struct fab_verb *v)
{
    const struct sim_hold *own = find_hold(sim, r, v);
    uint64_t word = *(const uint64_t *)(const void *)(sim->tail_memory[v->node] + v->off);
    return own && word & own->bits;
}

/* Is `a` for the head only, and `b` for the tail? Then they have no order. */
static bool is_apart(const struct sim *sim, const struct sim_verb *a, const struct sim_verb *b)
{
    enum fab_mark mark = mark_of(&a->v);
    return has_tail(sim, b->v.node) && a->v.kind != FAB_READ && b->v.kind == FAB_READ &&
           (mark == MARK_LOCK || mark == MARK_HINT) && mark_of(&b->v) != MARK_HEAD;
}

bool sim_tail_goes_first(const struct sim *sim, const struct sim_request *r, unsigned i, unsigned j)
{
    const struct sim_verb *a = &r->verb[i], *b = &r->verb[j];
    if (a->stage > b->stage || is_apart(sim, a, b))
        return false;
    if (!(sim->set.adversity & SIM_REORDER))
        return true;
    unsigned pair = ORDER(fab_class_of(a->v.kind), fab_class_of(b->v.kind));
    return a->v.node == b->v.node && (i < b->fence || (sim->fab.order & pair));
}

bool sim_tail_lags(const struct sim *sim, const struct sim_request *r, unsigned i)
{
    for (unsigned j = i + 1; sim->set.tails && j < r->count; j++)
        if (is_apart(sim, &r->verb[i], &r->verb[j]))
            return tape_chance(sim->tape, 1, 2, TAPE_ORDER);
    return false;
}

void sim_tail_cut(const struct sim *sim, struct sim_request *r)
{
    unsigned part = 0, first = 0;
    bool ends = false;
    r->stage = 0;
    r->settled = false;
    for (unsigned i = 0; i < r->count; i++) {
        struct sim_verb *verb = &r->verb[i];
        verb->at_tail = verb->changed = verb->executed = verb->skipped = false;
        verb->stage = 0;
        if (!sim->set.tails)
            continue;
        bool changes = verb->v.kind != FAB_READ;
        ASSERT(!changes || mark_of(&verb->v) != MARK_NONE); /* TAIL-T1 */
        ASSERT(!changes || mark_of(&verb->v) != MARK_HEAD);
        if ((verb->v.flags & FAB_PART) && ends) {
            part++;
            ends = false;
        }
        ends |= mark_of(&verb->v) == MARK_PUBLISH || is_release(sim, r, &verb->v);
        verb->stage = (uint16_t)(2 * part);
    }
    for (unsigned i = 0; i < r->count && sim->set.tails; i++) {
        bool places = false;
        if (i > 0 && r->verb[i].stage / 2 != r->verb[i - 1].stage / 2)
            first = i;
        for (unsigned j = first; j < r->count && r->verb[j].stage / 2 == r->verb[i].stage / 2; j++)
            places |= mark_of(&r->verb[j].v) == MARK_PLACE;
        const struct fab_verb *v = &r->verb[i].v;
        r->verb[i].stage +=
            has_tail(sim, v->node) && is_release(sim, r, v) && (places || is_at_tail(sim, r, v));
    }
}

/* TAIL-T3: a READ of the tail finds there what goes first. */
static void bring_before(struct sim *sim, struct sim_request *r, unsigned read)
{
    for (unsigned i = 0; i < read; i++) {
        struct sim_verb *verb = &r->verb[i];
        enum fab_mark mark = mark_of(&verb->v);
        if ((mark == MARK_EARLY || mark == MARK_SUM) && verb->state == VERB_DONE &&
            verb->v.node == r->verb[read].v.node && is_behind(sim, verb) &&
            sim_tail_goes_first(sim, r, i, read))
            bring(sim, r, i, verb->tail_left);
    }
}

bool sim_tail_begun(struct sim *sim, struct sim_request *r, unsigned i)
{
    struct sim_verb *verb = &r->verb[i];
    enum fab_mark mark = mark_of(&verb->v);
    if (!sim->set.tails)
        return false;
    if (verb->v.kind == FAB_READ && mark != MARK_HEAD)
        bring_before(sim, r, i);
    verb->tail_left = verb->v.kind == FAB_WRITE ? verb->left : 0;
    if (mark == MARK_HINT || (mark == MARK_LOCK && verb->stage % 2 == 0))
        verb->at_tail = true;
    bool first = (mark == MARK_EARLY || mark == MARK_SUM) && has_tail(sim, verb->v.node) &&
                 tape_chance(sim->tape, 1, 3, TAPE_ORDER);
    if (first) /* TAIL-T3 */
        bring(sim, r, i,
              verb->tail_left ? sim_adversary_pieces(sim, r->client, verb->tail_left) : 0);
    return first;
}

void sim_tail_executed(struct sim *sim, struct sim_request *r, unsigned i, uint64_t old)
{
    struct sim_verb *verb = &r->verb[i];
    verb->executed = true;
    if (!sim->set.tails || verb->result == old)
        return;
    if (verb->v.node == sim->lose_half_of && sim->lose_half_changes > 0 &&
        --sim->lose_half_changes == 0)
        sim->lose_half_after = sim->counts.events + tape_choose(sim->tape, 8, TAPE_FAULT);
    if (mark_of(&verb->v) == MARK_LOCK)
        note_lock(sim, r, &verb->v, old, verb->result);
    if (mark_of(&verb->v) != MARK_PUBLISH || !has_tail(sim, verb->v.node))
        return;
    ASSERT(!word_is_reference(verb->result)); /* TAIL-T1 */
    verb->changed = true;
    if (r->settled)
        return;
    ASSERT(sim->ways < sizeof sim->way / sizeof *sim->way);
    sim->way[sim->ways++] = (struct sim_way){r, i};
}

void sim_tail_stepped(struct sim *sim, struct sim_request *r, unsigned i)
{
    if (sim->set.tails && r->settled)
        bring_done(sim, r, i);
}

static unsigned next_behind(const struct sim *sim, const struct sim_request *r)
{
    for (unsigned i = 0; i < r->count; i++) {
        const struct sim_verb *verb = &r->verb[i];
        bool in_stage =
            verb->stage == r->stage || (r->stage % 2 == 0 && verb->stage == r->stage + 1);
        if (in_stage && verb->state != VERB_CANCELLED && is_behind(sim, verb))
            return i;
    }
    return r->count;
}

/* False: the request has no more stages. */
static bool begin_next_stage(struct sim_request *r)
{
    unsigned last = 0;
    for (unsigned i = 0; i < r->count; i++)
        last = r->verb[i].stage > last ? r->verb[i].stage : last;
    if (r->stage == last)
        return false;
    r->stage++;
    for (unsigned i = 0; i < r->count; i++)
        r->unanswered += r->verb[i].stage == r->stage;
    return true;
}

enum tail_step sim_tail_step(struct sim *sim, struct sim_request *r)
{
    for (unsigned i; (i = next_behind(sim, r)) < r->count;) {
        if (sim->adversity & SIM_INTERLEAVE) {
            sim_queue_push(sim, EVENT_TAIL, sim->now + sim_adversary_transit(sim, r->client),
                           r->client, r, 0);
            return TAIL_UNDER_WAY;
        }
        bring(sim, r, i, r->verb[i].tail_left);
    }
    return begin_next_stage(r) ? TAIL_NEXT_STAGE : TAIL_DONE;
}

void sim_tail_event(struct sim *sim, struct sim_request *r)
{
    unsigned i = next_behind(sim, r);
    if (i == r->count)
        return;
    struct sim_verb *verb = &r->verb[i];
    bring(sim, r, i, verb->tail_left ? sim_adversary_pieces(sim, r->client, verb->tail_left) : 0);
    sim_log_line(sim, r->client, "#%u: verb %u %s at the tail", r->number, i,
                 verb->at_tail ? "is" : "is partly");
    sim->trace = mix(sim->trace, sim->now ^ i);
}

/* ---- waiting --------------------------------------------------------------------------------- */

uint64_t sim_tail_waits(struct sim *sim, struct sim_request *r, unsigned i)
{
    const struct fab_verb *v = &r->verb[i].v;
    bool concerned = v->kind > FAB_WRITE || (v->kind == FAB_READ && mark_of(v) == MARK_HEAD);
    if (!sim->set.tails || !concerned || r->verb[i].half)
        return 0;
    const struct sim_way *way = find_way(sim, r, v);
    if (!way)
        return 0;
    const struct sim_client *holder = &sim->client[way->request->client];
    uint64_t until = sim->now + sim_adversary_transit(sim, r->client);
    if (holder->frozen_until > sim->now) /* it takes long: look less often */
        until += (holder->frozen_until - sim->now) / 8;
    sim->counts.waited++;
    for (unsigned j = 0; j < r->count; j++) /* TAIL-T6 */
        if (mark_of(&r->verb[j].v) == MARK_PUBLISH)
            for (unsigned k = 0; k <= j; k++)
                bring_done(sim, r, k);
    if (holder->state == CLIENT_CRASHED && tape_chance(sim->tape, 1, 8, TAPE_FAULT))
        sim_tail_settle(sim, way->request);
    return until;
}

void sim_tail_direct(struct sim *sim, const struct fab_verb *v, uint64_t old)
{
    if (!has_tail(sim, v->node) || v->kind == FAB_READ || mark_of(v) == MARK_HINT)
        return;
    sim_memory_touch(sim, v->node, v->off, v->len);
    uint64_t new = *sim_memory_word(sim, v->node, v->off);
    if (v->kind == FAB_WRITE)
        memcpy(tail_word(sim, v), v->buf, v->len);
    else if (mark_of(v) == MARK_LOCK && v->kind != FAB_CAS)
        *tail_word(sim, v) = (*tail_word(sim, v) & ~(old & ~new)) | (new & ~old);
    else if (new != old)
        *tail_word(sim, v) = new;
}

/* ---- the loss -------------------------------------------------------------------------------- */

/* What clients that live had not brought to the tail, they do there now, or begin once more. */
static void begin_again(struct sim *sim, struct sim_request *r, unsigned i)
{
    struct sim_verb *verb = &r->verb[i];
    struct fab_verb *v = &verb->v;
    if (v->kind == FAB_READ || verb->skipped || !verb->begun)
        return;
    if (verb->half) { /* what it has read is lost: it begins once more */
        verb->half = false;
        sim_busy_clear(sim, v);
        return;
    }
    if (verb->at_tail || !lives(sim, r))
        return;
    if (v->kind == FAB_WRITE) {
        if (verb->state == VERB_DUE)
            verb->left = verb->tail_left;
        else
            bring(sim, r, i, verb->tail_left);
        return;
    }
    if (!verb->executed)
        return;
    if (mark_of(v) == MARK_SUM)
        bring(sim, r, i, 0);
    if (mark_of(v) != MARK_PUBLISH || !verb->changed)
        return;
    uint64_t old = *tail_word(sim, v);
    *tail_word(sim, v) = sim_atomic_result(v, old);
    memcpy(v->buf, &old, 8);
    verb->at_tail = true;
}

/* A lock that is released at the tail, and not yet at the head that is lost. */
static void skip_release(struct sim *sim, struct sim_request *r, unsigned i)
{
    struct sim_verb *verb = &r->verb[i];
    if (mark_of(&verb->v) != MARK_LOCK || verb->stage % 2 == 0 || !verb->at_tail ||
        verb->executed || !lives(sim, r))
        return;
    uint64_t old = *sim_memory_word(sim, verb->v.node, verb->v.off);
    if (verb->half)
        sim_busy_clear(sim, &verb->v);
    verb->half = false;
    verb->skipped = true;
    verb->result = old;
    note_lock(sim, r, &verb->v, old, sim_atomic_result(&verb->v, old));
}

static void lose_head(struct sim *sim, unsigned node)
{
    for (size_t n = 0; n < sim->requests; n++)
        for (unsigned i = 0; sim->request[n]->in_use && i < sim->request[n]->count; i++)
            if (sim->request[n]->verb[i].v.node == node)
                skip_release(sim, sim->request[n], i);
    for (unsigned i = 0; i < sim->holds; i++) {
        const struct sim_client *c = &sim->client[sim->hold[i].client];
        if (sim->hold[i].node == node && c->state != CLIENT_CRASHED && !c->fenced &&
            c->identity == sim->hold[i].identity)
            copy_lock(sim, &sim->hold[i], sim->hold[i].bits);
    }
    for (size_t n = 0; n < sim->requests; n++)
        for (unsigned i = 0; sim->request[n]->in_use && i < sim->request[n]->count; i++)
            if (sim->request[n]->verb[i].v.node == node)
                begin_again(sim, sim->request[n], i);
    memcpy(sim->memory[node], sim->tail_memory[node], sim->set.node_bytes);
}

void sim_lose_half(struct sim *sim, unsigned node, bool tail)
{
    ASSERT(sim->set.tails && !sim->alone[node]);
    sim->lose_half_of = node;
    sim->lose_tail = tail;
    sim->lose_half_after = 0;
}

void sim_tail_died(struct sim *sim, uint32_t client)
{
    if (!sim->set.tails || (sim->lose_half_after == UINT64_MAX && sim->lose_half_changes == 0) ||
        !tape_chance(sim->tape, 1, 2, TAPE_FAULT))
        return;
    for (size_t i = 0; i < sim->requests; i++) {
        const struct sim_request *r = sim->request[i];
        if (!r->in_use || !r->req || r->client != client)
            continue;
        sim->lose_half_of = r->verb[tape_choose(sim->tape, r->count, TAPE_FAULT)].v.node;
        sim->lose_tail = false;
        sim->lose_half_changes = 0;
        sim->lose_half_after =
            sim->counts.events +
            tape_choose(sim->tape, 1u << tape_choose(sim->tape, 8, TAPE_FAULT), TAPE_FAULT);
    }
}

static void lose_half(struct sim *sim, unsigned node, bool tail)
{
    if (tail)
        sim->counts.tails_lost++;
    else
        sim->counts.heads_lost++;
    sim_log_line(sim, NOBODY, "node %u LOSES ITS %s", node, tail ? "TAIL" : "HEAD");
    if (!tail)
        lose_head(sim, node);
    sim->alone[node] = true;
    for (unsigned i = sim->ways; i-- > 0;)
        if (sim->way[i].request->verb[sim->way[i].verb].v.node == node)
            sim->way[i] = sim->way[--sim->ways];
}

void sim_tail_lose(struct sim *sim)
{
    unsigned node = sim->lose_half_of, next = (node + 1) % sim->set.nodes;
    if (!sim->set.tails || sim->counts.events < sim->lose_half_after)
        return;
    sim->lose_half_after = UINT64_MAX;
    lose_half(sim, node, sim->lose_tail);
    if (next != node && !sim->alone[next] && tape_chance(sim->tape, 1, 2, TAPE_FAULT))
        lose_half(sim, next, !sim->lose_tail);
}
