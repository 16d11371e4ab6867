/*
 * The NIC: what it does with requests and their verbs.
 *
 * NIC-N1  A verb begins when every verb of its request and node that must go before it is done:
 *         those that the profile orders before it, and those before the last fence (FABRIC-F3).
 * NIC-N2  A READ or WRITE moves whole granules; each event moves any subset of those that are left
 *         (FABRIC-F1).
 * NIC-N3  An atomic reads its word and writes it, in one event or in two. Between the two, no other
 *         atomic touches the word; a READ sees the old word; a WRITE of it is overwritten.
 * NIC-N4  A request completes when all its verbs are answered. A verb is answered when it is done.
 *         Under SIM_IB_LOOSE a WRITE may be answered as soon as it has begun. Until it is done,
 *         what its client posts to that node waits: a WRITE holds back all that follows it.
 * NIC-N5  After a client was shut out, nothing of it takes effect any more. What is half done by
 *         then, or was answered, is finished first; of the rest any part is.
 * NIC-N6  After a crash, nothing more is done, except the second half of an atomic. The same holds
 *         after an error; or else the WRITEs and atomics that were under way land later, all or
 *         only the first of them, whatever their client does meanwhile, as if on the old
 *         connection. None lands later than half a lease, nor after its client was shut out
 *         (FABRIC-F5).
 * NIC-N7  A node asks for its view when a request's first verb there begins. If the request names
 *         an older one, nothing of it happens there. Otherwise all of it goes on there, even if the
 *         view is raised meanwhile: fence_view() then waits for it (FABRIC-F6). Other nodes may
 *         execute their verbs all the same.
 */
#include "sim/sim_internal.h"

#include "fabric/superblock_layout.h"

#include <stdlib.h>
#include <string.h>

/* A harness that needs more verbs than this, or the code it runs, is in an endless loop. */
#define DIRECT_VERBS_MAX 2000000u

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

/* How long after the request, or after the verb before it, a verb is executed. */
static uint64_t gap(struct sim *sim, const struct sim_request *r, unsigned i)
{
    uint64_t ns = sim_adversary_gap(sim);
    if (!sim_tail_lags(sim, r, i))
        return ns;
    return ns + (sim_adversary_transit(sim, r->client) << tape_choose(sim->tape, 4, TAPE_DELAY));
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* A verb of a stage that begins now may go, once those that go first are done. */
static void admit(struct sim *sim, struct sim_request *r, unsigned i)
{
    struct sim_verb *verb = &r->verb[i];
    ASSERT(verb->waits > 0);
    if (--verb->waits > 0)
        return;
    verb->state = VERB_DUE;
    if (sim->adversity & SIM_INTERLEAVE)
        sim_queue_push(sim, EVENT_VERB, sim->now + gap(sim, r, i), r->client, r, i);
}

/* The verbs of its stage are done at the head. */
static void go_on(struct sim *sim, struct sim_request *r)
{
    enum tail_step step = sim->set.tails ? TAIL_NEXT_STAGE : TAIL_DONE;
    while (r->unanswered == 0 && step == TAIL_NEXT_STAGE) {
        step = sim_tail_step(sim, r);
        for (unsigned i = 0; i < r->count && step == TAIL_NEXT_STAGE; i++)
            if (r->verb[i].stage == r->stage && r->verb[i].state == VERB_WAITING)
                admit(sim, r, i);
    }
    if (step == TAIL_DONE)
        sim_request_report(sim, r, sim_adversary_transit(sim, r->client));
}

/* ---- views ----------------------------------------------------------------------------------- */

uint32_t sim_nic_view(struct sim *sim, unsigned node)
{
    return (uint32_t)*sim_memory_word(sim, node, NODE_VIEW_OFF);
}

void sim_nic_raise_view(struct sim *sim, unsigned node, uint32_t view)
{
    uint64_t old;
    struct fab_verb v = {.kind = FAB_CAS,
                         .flags = MARK_EARLY,
                         .node = (uint16_t)node,
                         .len = 8,
                         .off = NODE_VIEW_OFF,
                         .buf = &old,
                         .compare = sim_nic_view(sim, node),
                         .swap = view};

    if (view <= v.compare)
        return;
    sim_atomic_whole(sim, &v);
    memcpy(sim->tail_memory[node] + NODE_VIEW_OFF, sim->memory[node] + NODE_VIEW_OFF, 8);
    sim_log_line(sim, sim->running, "node %u is in view %u", node, view);
}

bool sim_nic_executes_older(const struct sim *sim, unsigned node, uint32_t view)
{
    for (size_t n = 0; n < sim->requests; n++) {
        const struct sim_request *r = sim->request[n];
        if (!r->in_use || !(r->entered >> node & 1) || !fab_view_is_old(r->view, view))
            continue;
        for (unsigned i = 0; i < r->count; i++)
            if (r->verb[i].v.node == node && (r->verb[i].state <= VERB_DUE || r->verb[i].half))
                return true;
    }
    return false;
}

/* ---- posting --------------------------------------------------------------------------------- */

int sim_nic_post_direct(struct sim *sim, struct fab_ep *ep, struct fab_req *req)
{
    uint64_t most = sim->set.direct_verbs_max ? sim->set.direct_verbs_max : DIRECT_VERBS_MAX;
    if (sim->counts.direct_verbs > most)
        return err_fail(FAR_TIMEOUT, "more than %llu verbs were posted with no client at work",
                        (unsigned long long)most);
    sim_tail_settle_all(sim);
    for (unsigned i = 0; i < req->count; i++) {
        unsigned node = req->verbs[i].node;
        uint32_t view = sim_nic_view(sim, node);
        if (!fab_view_is_old(req->view, view))
            continue;
        fab_complete(req, fab_view_refused(ep, node, req->view, view));
        return FAR_OK;
    }
    for (unsigned i = 0; i < req->count; i++) {
        const struct fab_verb *v = &req->verbs[i];
        ASSERT(fab_valid(&sim->fab, v));
        uint64_t old = *sim_memory_word(sim, v->node, v->off);
        if (v->kind <= FAB_WRITE)
            sim_memory_move(sim, v, v->off, v->off + v->len);
        else
            sim_atomic_whole(sim, v);
        sim_tail_direct(sim, v, old);
    }
    sim->counts.direct_verbs += req->count;
    fab_complete(req, FAR_OK);
    return FAR_OK;
}

static void init_verbs(struct sim *sim, struct sim_request *r, const struct fab_req *req)
{
    for (unsigned j = 0; j < r->count; j++)
        r->verb[j].v = req->verbs[j];
    sim_tail_cut(sim, r);
    r->unanswered = 0;
    for (unsigned j = 0; j < r->count; j++) {
        struct sim_verb *verb = &r->verb[j];
        const struct fab_verb *v = &req->verbs[j];
        ASSERT(fab_valid(&sim->fab, v));
        verb->state = VERB_WAITING;
        verb->answered = verb->begun = verb->half = verb->torn = verb->late = false;
        verb->waits = 0;
        verb->fence = (v->flags & FAB_FENCE) ? (uint16_t)j : 0;
        for (unsigned i = 0; i < j; i++)
            if (r->verb[i].v.node == v->node && r->verb[i].fence > verb->fence)
                verb->fence = r->verb[i].fence;
        for (unsigned i = 0; i < j; i++)
            verb->waits += sim_tail_goes_first(sim, r, i, j);
        verb->waits += verb->stage > 0; /* until that begins */
        r->unanswered += verb->stage == 0;
        if (v->kind <= FAB_WRITE)
            cut_pieces(sim, verb);
        else
            verb->left = 1;
    }
}

/* Makes a node unreachable, for a time or until the faults stop. */
static void lose_or_restore_node(struct sim *sim)
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

int sim_nic_post(struct sim *sim, uint32_t client, struct fab_ep *ep, struct fab_req *req)
{
    struct sim_client *c = &sim->client[client];
    ASSERT(c->state == CLIENT_RUNNING && !c->unwinding && !c->fenced);
    struct sim_request *r = sim_request_take(sim);
    if (!r)
        return FAR_NO_MEMORY;
    ASSERT(req->count > 0 && req->count <= SIM_VERBS_MAX);
    r->in_use = true;
    r->reported = r->any_executed = r->stray = false;
    r->req = req;
    r->ep = ep;
    r->view = req->view;
    r->refused = 0;
    r->entered = 0;
    r->client = client;
    r->identity = c->identity;
    r->number = c->requests++;
    r->events = 0;
    r->status = FAR_OK;
    r->count = (uint16_t)req->count;
    req->done = false;
    init_verbs(sim, r, req);
    sim_site_posted(sim, r);
    c->in_flight++;
    sim->counts.requests++;
    sim->counts.verbs += req->count;
    lose_or_restore_node(sim);
    sim_log_post(sim, r);

    uint64_t arrives = sim->now + sim_adversary_transit(sim, client);
    if (!(sim->adversity & SIM_INTERLEAVE)) {
        sim_queue_push(sim, EVENT_REQUEST, arrives, client, r, 0);
        return FAR_OK;
    }
    for (unsigned i = 0; i < r->count; i++) {
        if (r->verb[i].waits > 0)
            continue;
        r->verb[i].state = VERB_DUE;
        sim_queue_push(sim, EVENT_VERB, arrives + gap(sim, r, i), client, r, i);
    }
    if (r->unanswered == 0) /* all of it is of later stages */
        go_on(sim, r);
    return FAR_OK;
}

/* ---- execution ------------------------------------------------------------------------------- */

#define GATHERED_SALT 0xd6e8feb86659fd93u

/* The trace has the time, the client, the verb and its place, and the words of atomics. It leaves
 * out the bytes of READs and WRITEs: the number of the process and the time when the pool was made
 * differ from run to run, and the rest shows in what happens next. */
static void note_gathered(struct sim *sim, const struct sim_request *r, unsigned i, uint64_t pieces,
                          uint64_t what)
{
    const struct fab_verb *v = &r->verb[i].v;
    sim->trace = mix(sim->trace, sim->now);
    sim->trace = mix(sim->trace, (uint64_t)r->client << 56 | (uint64_t)v->kind << 48 | v->off);
    sim->trace = mix(sim->trace, v->kind <= FAB_WRITE ? pieces : what);
    if (sim->harness_hash) /* with a salt: mix(x, x) is 0, and `what` is made by mix(), too */
        sim->client[r->client].gathers ^=
            mix(mix((uint64_t)r->number << 16 | i, GATHERED_SALT), what);
}

static void answer(struct sim *sim, struct sim_request *r, unsigned i)
{
    if (r->verb[i].answered)
        return;
    r->verb[i].answered = true;
    ASSERT(r->unanswered > 0);
    if (--r->unanswered == 0)
        go_on(sim, r);
}

static void verb_done(struct sim *sim, struct sim_request *r, unsigned i)
{
    struct sim_verb *verb = &r->verb[i];
    verb->state = VERB_DONE;
    if (verb->late)
        sim->client[r->client].late[verb->v.node]--;
    for (unsigned j = i + 1; j < r->count; j++) {
        struct sim_verb *later = &r->verb[j];
        if (later->state != VERB_WAITING || !sim_tail_goes_first(sim, r, i, j) ||
            --later->waits > 0)
            continue;
        later->state = VERB_DUE;
        if (sim->adversity & SIM_INTERLEAVE)
            sim_queue_push(sim, EVENT_VERB, sim->now + gap(sim, r, j), r->client, r, j);
    }
    answer(sim, r, i);
}

/* True: it goes on in a later event. */
static bool begin_verb(struct sim *sim, struct sim_request *r, unsigned i)
{
    struct sim_verb *verb = &r->verb[i];
    verb->begun = r->any_executed = true;
    for (unsigned j = 0; j < i; j++)
        if (r->verb[j].state != VERB_DONE) {
            sim->counts.reordered++;
            break;
        }
    bool later = sim_tail_begun(sim, r, i);
    if (sim->set.profile == SIM_IB_LOOSE && !sim->set.tails && (sim->adversity & SIM_REORDER) &&
        sim->by_choice == sim->set.by_choice && verb->v.kind == FAB_WRITE &&
        tape_chance(sim->tape, 1, 3, TAPE_ORDER)) {
        answer(sim, r, i);
        later = true;
    }
    return later;
}

/* One event of a verb. True when it was the last. */
static bool step(struct sim *sim, struct sim_request *r, unsigned i)
{
    struct sim_verb *verb = &r->verb[i];
    const struct fab_verb *v = &verb->v;
    if (!verb->begun && begin_verb(sim, r, i))
        return false;
    if (sim->watch)
        sim->watch(sim->watch_arg, r->client, r->identity, v);
    sim_site_executed(sim, r, i);
    if (v->kind <= FAB_WRITE) {
        uint64_t pieces = sim_site_tears(sim, r, i)
                              ? verb->left & -verb->left
                              : sim_adversary_pieces(sim, r->client, verb->left);
        sim_log_verb(sim, r, i, LOG_WHOLE, pieces);
        note_gathered(sim, r, i, pieces, sim_memory_move_pieces(sim, verb, pieces));
        sim_tail_stepped(sim, r, i);
        bool tears = verb->left != 0 && !verb->torn;
        sim->counts.torn += tears;
        if (tears)
            sim_site_torn(sim, r, i);
        verb->torn |= verb->left != 0;
        return verb->left == 0;
    }
    if (verb->half) { /* its buffer may be in use for something else */
        uint64_t old = *sim_memory_word(sim, v->node, v->off);
        verb->half = false;
        sim_atomic_write(sim, v, verb->result);
        sim_busy_clear(sim, v);
        sim_tail_executed(sim, r, i, old);
        sim_tail_stepped(sim, r, i);
        sim_log_verb(sim, r, i, LOG_SECOND_HALF, 0);
        note_gathered(sim, r, i, 0, verb->result + 1);
        return true;
    }
    if (verb->skipped) {
        memcpy(v->buf, &verb->result, 8);
        return true;
    }
    uint64_t old = *sim_memory_word(sim, v->node, v->off);
    verb->result = sim_atomic_result(v, old);
    if (verb->result != old && sim_adversary_halves(sim)) {
        verb->half = true;
        memcpy(v->buf, &old, 8);
        sim_busy_set(sim, v);
        sim->counts.halved++;
        sim_log_verb(sim, r, i, LOG_FIRST_HALF, 0);
        note_gathered(sim, r, i, 0, old);
        return false;
    }
    sim_atomic_whole(sim, v);
    sim_tail_executed(sim, r, i, old);
    sim_tail_stepped(sim, r, i);
    sim_log_verb(sim, r, i, LOG_WHOLE, 0);
    note_gathered(sim, r, i, 0, old);
    return true;
}

uint64_t sim_nic_held(struct sim *sim, const struct event *e)
{
    const struct sim_request *r = e->subject;
    uint64_t until = 0;
    if (!r || e->kind == EVENT_COMPLETE || e->kind == EVENT_TAIL)
        return 0;
    unsigned first = e->kind == EVENT_VERB ? e->verb : 0;
    unsigned end = e->kind == EVENT_VERB ? first + 1 : r->count;
    for (unsigned i = first; i < end; i++) {
        const struct sim_verb *verb = &r->verb[i];
        const struct sim_client *c = &sim->client[r->client];
        if (verb->half || verb->state >= VERB_DONE)
            continue;
        const struct busy_word *busy =
            verb->v.kind > FAB_WRITE ? sim_busy_find(sim, &verb->v) : NULL;
        if (busy && busy->until >= until)
            until = busy->until + 1;
        if (r->req && c->late[verb->v.node] > 0 && c->late_until[verb->v.node] >= until)
            until = c->late_until[verb->v.node] + 1;
    }
    return until;
}

/* Queues a verb's next event. Other events may wait for it. */
static void push_verb(struct sim *sim, struct sim_request *r, unsigned i, uint64_t at)
{
    const struct sim_verb *verb = &r->verb[i];
    uint64_t *late_until = &sim->client[r->client].late_until[verb->v.node];
    if (verb->half)
        sim_busy_find(sim, &verb->v)->until = at;
    if (verb->answered && *late_until < at)
        *late_until = at;
    sim_queue_push(sim, EVENT_VERB, at, r->client, r, i);
}

/* Queues the event again, for later. */
static bool put_off(struct sim *sim, const struct event *e, uint64_t until)
{
    if (e->kind == EVENT_VERB)
        push_verb(sim, e->subject, e->verb, until);
    else
        sim_queue_push(sim, e->kind, until, e->client, e->subject, 0);
    return true;
}

/* What keeps an event of a request from executing: faults, and what it must wait for. True if it
 * does not execute now: it was put off, or its request or client has failed. */
static bool obstructed(struct sim *sim, const struct event *e)
{
    struct sim_request *r = e->subject;
    struct sim_client *c = &sim->client[r->client];
    bool half = e->kind == EVENT_VERB && r->verb[e->verb].half;
    if (half)
        return false; /* the NIC finishes what it has begun */
    if (r->stray && !r->req && sim->now > r->until) {
        sim_request_cancel(sim, r);
        return true;
    }
    bool answers = e->kind == EVENT_COMPLETE;
    if (c->frozen_until > sim->now && (answers || c->stuck || e->kind == EVENT_TAIL))
        return put_off(sim, e, c->frozen_until + sim_adversary_gap(sim));
    uint64_t held = sim->by_choice ? 0 : sim_nic_held(sim, e);
    if (held)
        return put_off(sim, e, held > sim->now ? held : sim->now + 1);
    uint64_t until = e->kind == EVENT_VERB ? sim_tail_waits(sim, r, e->verb) : 0;
    if (until)
        return put_off(sim, e, until);
    /* What a client that has ended left under way may go on, but there is nobody to fail. */
    bool healthy = r->req && r->status == FAR_OK && c->state != CLIENT_FINISHED;
    enum fault aimed = healthy ? sim_site_fault(sim, r, answers) : FAULT_NONE;
    if (!aimed && healthy && e->kind == EVENT_VERB &&
        sim_adversary_stops(sim, r->client, &r->verb[e->verb])) {
        sim_fault_pause(sim, r->client, true, true);
        return put_off(sim, e, c->frozen_until);
    }
    switch (aimed ? aimed : healthy ? sim_adversary_draw_fault(sim, r->client) : FAULT_NONE) {
    case FAULT_NONE:
        return false;
    case FAULT_CRASH:
        sim_fault_crash(sim, r->client);
        return true;
    case FAULT_PAUSE:
        sim_fault_pause(sim, r->client, aimed, false);
        return put_off(sim, e, answers || c->stuck ? c->frozen_until : sim->now);
    case FAULT_ERROR:
        sim_fault_error(sim, r);
        if (answers)
            return false; /* the answer is on its way, and has become the error */
        return r->stray ? put_off(sim, e, sim->now + sim_adversary_lag(sim, r->client)) : true;
    }
    return false;
}

/* Names the lost nodes on which no verb of the request has begun. */
static void note_away(const struct sim *sim, struct sim_request *r)
{
    uint64_t begun = 0;
    for (unsigned i = 0; i < r->count; i++) {
        unsigned node = r->verb[i].v.node;
        begun |= (uint64_t)(r->verb[i].begun || r->verb[i].answered) << node;
        r->req->away |= (uint64_t)sim->lost[node] << node;
    }
    r->req->away &= ~begun;
    r->req->away_status = FAR_UNREACHABLE;
}

/* A verb that has begun, or was answered (NIC-N4), has already reached the node. */
static bool node_is_gone(struct sim *sim, struct sim_request *r, unsigned i)
{
    if (!sim->lost[r->verb[i].v.node] || r->verb[i].half || r->verb[i].answered)
        return false;
    sim_log_line(sim, r->client, "#%u cannot reach node %u", r->number, r->verb[i].v.node);
    if (r->req)
        note_away(sim, r);
    sim_request_fail(sim, r, r->any_executed ? FAR_UNKNOWN : FAR_UNREACHABLE);
    return true;
}

/* NIC-N7. */
static bool is_refused(struct sim *sim, struct sim_request *r, unsigned i)
{
    unsigned node = r->verb[i].v.node, bit = 1u << node;
    if (r->view == 0 || (r->entered & bit))
        return false;
    uint32_t view = sim_nic_view(sim, node);
    if (!fab_view_is_old(r->view, view)) {
        r->entered |= (uint8_t)bit;
        return false;
    }
    sim_log_line(sim, r->client, "#%u of view %u is refused by node %u", r->number, r->view, node);
    note_gathered(sim, r, i, 0, view);
    if (r->stray) { /* its client gets FAR_UNKNOWN in any case */
        sim_request_cancel(sim, r);
        return true;
    }
    r->req->away |= bit;
    r->req->away_status = FAR_FENCED;
    bool begins = r->refused == 0;
    r->refused = view > r->refused ? view : r->refused;
    if (begins && (sim->adversity & SIM_ERROR) && tape_chance(sim->tape, 1, 2, TAPE_FAULT)) {
        sim_request_fail(sim, r, r->any_executed ? FAR_UNKNOWN : FAR_FENCED);
        return true;
    }
    r->verb[i].at_tail = true;
    verb_done(sim, r, i); /* without effect; other nodes execute theirs */
    return true;
}

/* All is answered, but nodes have refused their part. */
static void end_refused(struct sim_request *r)
{
    if (r->refused == 0 || r->status != FAR_OK)
        return;
    r->status = r->any_executed ? FAR_UNKNOWN : FAR_FENCED;
    r->req->rest_done = r->any_executed;
}

void sim_nic_verb(struct sim *sim, const struct event *e)
{
    struct sim_request *r = e->subject;
    unsigned i = e->verb;
    ASSERT(r->in_use && r->events > 0);
    r->events--;
    if (r->verb[i].state < VERB_DONE && !obstructed(sim, e) && !node_is_gone(sim, r, i) &&
        !is_refused(sim, r, i)) {
        if (step(sim, r, i))
            verb_done(sim, r, i);
        else
            push_verb(sim, r, i,
                      sim->now + (r->verb[i].answered
                                      ? sim_adversary_lag(sim, r->client)
                                      : sim_adversary_rest(sim, r->client, &r->verb[i])));
    }
    sim_request_release(r);
}

void sim_nic_tail(struct sim *sim, const struct event *e)
{
    struct sim_request *r = e->subject;
    ASSERT(r->in_use && r->events > 0);
    r->events--;
    bool ended = sim->client[r->client].state == CLIENT_CRASHED || (r->status && !r->stray);
    if (!ended && !obstructed(sim, e)) {
        sim_tail_event(sim, r);
        go_on(sim, r);
    }
    sim_request_release(r);
}

/* Executes all verbs of the request in one event, in an order that the profile allows. */
void sim_nic_request(struct sim *sim, const struct event *e)
{
    struct sim_request *r = e->subject;
    ASSERT(r->in_use && r->events > 0);
    r->events--;
    bool go = r->verb[0].state != VERB_CANCELLED && !obstructed(sim, e);
    unsigned left = go ? r->count : 0;
    if (go && r->unanswered == 0)
        go_on(sim, r);
    while (left > 0) {
        unsigned ready[SIM_VERBS_MAX] = {0}, count = 0;
        for (unsigned i = 0; i < r->count; i++)
            if (r->verb[i].state <= VERB_DUE && r->verb[i].waits == 0)
                ready[count++] = i;
        ASSERT(count > 0); /* no verb waits for a later one */
        unsigned i = ready[tape_choose(sim->tape, count, TAPE_ORDER)];
        if (node_is_gone(sim, r, i))
            break;
        if (!is_refused(sim, r, i)) {
            (void)begin_verb(sim, r, i);
            while (!step(sim, r, i))
                continue; /* ends: every step takes a piece */
            verb_done(sim, r, i);
        }
        if (r->verb[i].state != VERB_DONE)
            break;
        left--;
    }
    sim_request_release(r);
}

/* ---- completion ------------------------------------------------------------------------------ */

/* Verbs that are not done go on from a copy: their buffers are the client's again. */
static void copy_buffers(struct sim_request *r)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < r->count; i++)
        if (r->verb[i].state <= VERB_DUE)
            bytes += r->verb[i].v.len;
    if (bytes == 0)
        return;
    char *copy = malloc(bytes);
    ASSERT(copy);
    r->late_data = copy;
    for (unsigned i = 0; i < r->count; i++) {
        struct fab_verb *v = &r->verb[i].v;
        if (r->verb[i].state > VERB_DUE)
            continue;
        memcpy(copy, v->buf, v->len);
        v->buf = copy;
        copy += v->len;
    }
}

/* WRITEs that are answered but not done (NIC-N4). */
static void count_late(struct sim *sim, struct sim_request *r)
{
    for (unsigned i = 0; i < r->count; i++) {
        struct sim_verb *verb = &r->verb[i];
        verb->late = verb->state == VERB_DUE && verb->answered;
        sim->client[r->client].late[verb->v.node] += verb->late;
        sim->counts.late += verb->late;
    }
}

void sim_nic_complete(struct sim *sim, const struct event *e)
{
    struct sim_request *r = e->subject;
    struct sim_client *c = &sim->client[r->client];
    ASSERT(r->in_use && r->events > 0);
    r->events--;
    if (r->req && c->state != CLIENT_CRASHED && !obstructed(sim, e)) {
        copy_buffers(r);
        count_late(sim, r);
        sim_site_completed(sim, r);
        end_refused(r);
        for (unsigned node = 0; r->refused != 0 && node < sim->set.nodes; node++)
            if (r->req->away >> node & 1)
                (void)fab_view_refused(r->ep, node, r->view, r->refused);
        fab_complete(r->req, r->status);
        r->req = NULL;
        ASSERT(c->in_flight > 0);
        c->in_flight--;
        c->completed = true;
        if (r->status)
            sim_log_line(sim, r->client, "#%u ends with %s", r->number, far_errname(r->status));
        sim->trace = mix(sim->trace, sim->now ^ r->client);
        c->seen = mix(mix(c->seen, (uint64_t)r->number << 32 | (uint32_t)r->status), c->gathers);
        c->gathers = 0;
        c->local_time += 1000;
        if (c->state == CLIENT_POLLING)
            sim_client_resume(sim, r->client);
    }
    sim_request_release(r);
}

/* Executes what is left of a verb. */
static void finish_verb(struct sim *sim, struct sim_request *r, unsigned i)
{
    while (!step(sim, r, i))
        continue; /* ends: every step takes a piece */
    verb_done(sim, r, i);
}

void sim_nic_shut_out(struct sim *sim, struct sim_request *const *requests, size_t count)
{
    for (size_t n = 0; n < count; n++)
        for (unsigned i = 0; i < requests[n]->count; i++) {
            const struct sim_verb *verb = &requests[n]->verb[i];
            if (verb->half || (verb->state == VERB_DUE && verb->answered))
                finish_verb(sim, requests[n], i);
        }
    for (size_t n = 0; n < count; n++) {
        struct sim_request *r = requests[n];
        for (unsigned i = 0; i < r->count && !sim->by_choice; i++) {
            const struct sim_verb *verb = &r->verb[i];
            if (verb->state != VERB_DUE || sim->lost[verb->v.node] ||
                (verb->v.kind > FAB_WRITE && sim_busy_find(sim, &verb->v)) ||
                sim_tail_waits(sim, r, i) != 0 || !tape_chance(sim->tape, 1, 2, TAPE_FAULT))
                continue;
            finish_verb(sim, r, i);
        }
        sim_request_cancel(sim, r);
        if (r->req)
            sim_request_fail(sim, r, FAR_UNKNOWN);
    }
}
