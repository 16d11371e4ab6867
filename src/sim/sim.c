/* Runs: their beginning and end, the loop over events, and the fabric's functions. */
#include "sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

#define POLL_NS             200u    /* between two polls of a client that does not wait */
#define FENCED_REQUESTS_MAX 1024u   /* of one client's requests under way */
#define VIEW_FENCES_LATE    3u      /* calls of fence_view() in a row that the adversary puts off */
#define UNWINDING_POSTS     100000u /* more than any client needs to unwind */

static const struct fab_ops sim_ops;

const char *sim_profile_name(enum sim_profile profile)
{
    static const char *const name[SIM_PROFILES] = {"sc", "ib", "ib_loose"};
    return name[profile];
}

struct sim *sim_new(void)
{
    struct sim *sim = calloc(1, sizeof *sim);
    if (sim)
        sim->running = NOBODY;
    return sim;
}

void sim_free(struct sim *sim)
{
    if (!sim)
        return;
    for (unsigned i = 0; i < SIM_CLIENTS_MAX; i++)
        fiber_destroy(sim->client[i].fiber);
    for (unsigned i = 0; i < SIM_NODES_MAX; i++) {
        free(sim->memory[i]);
        free(sim->tail_memory[i]);
        free(sim->dirty[i]);
        free(sim->dirty_page[i]);
    }
    for (size_t i = 0; i < sim->requests; i++) {
        free(sim->request[i]->late_data);
        free(sim->request[i]);
    }
    free(sim->request);
    free(sim->queue.event);
    free(sim->visited);
    free(sim->line);
    free(sim);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static const unsigned profile_order[SIM_PROFILES] = {
    [SIM_SC] = ORDER_ALL,
    [SIM_IB] = ORDER_IB,
    [SIM_IB_LOOSE] = ORDER(FAB_W, FAB_W) | ORDER(FAB_W, FAB_R) | ORDER(FAB_W, FAB_A),
};

int sim_begin(struct sim *sim, const struct sim_settings *s, struct tape *tape)
{
    if (s->clients > SIM_CLIENTS_MAX || s->nodes < 1 || s->nodes > SIM_NODES_MAX ||
        (s->granule != 8 && s->granule != 64) || s->profile >= SIM_PROFILES ||
        s->node_bytes % 64 != 0 || (s->tails && (s->by_choice || s->no_fence)))
        return err_fail(FAR_INVALID, "bad settings for the simulator");
    for (unsigned i = 0; i < s->nodes; i++)
        if (!sim_memory_clean(sim, i, s->node_bytes))
            return err_fail(FAR_NO_MEMORY, "no memory for a simulated node");

    ASSERT(tape && sim->running == NOBODY);
    sim->set = *s;
    sim->tape = tape;
    sim->now = 1000000;
    sim->last = NOBODY;
    sim->by_choice = s->by_choice;
    sim->trace = 0;
    sim->memory_hash = 0;
    sim->alive = 0;
    sim->lines = sim->lines_lost = 0;
    sim->queue.seq = 0;
    memset(&sim->counts, 0, sizeof sim->counts);
    sim_request_drop_all(sim);

    memset(&sim->fab, 0, sizeof sim->fab);
    sim->ops = sim_ops;
    if (s->no_fence)
        sim->ops.fence = NULL;
    if (!s->no_fence || !s->lives)
        sim->ops.life = NULL, sim->ops.witness = NULL;
    sim->fab.ops = &sim->ops;
    sim->fab.caps = s->no_mcas ? 0 : FAB_CAP_MCAS;
    sim->fab.order = profile_order[s->profile];
    if (s->tails) /* fences must not be left out */
        sim->fab.order &= ~ORDER(FAB_A, FAB_A);
    sim->fab.nodes = s->nodes;
    sim->fab.fresh = true;
    for (unsigned i = 0; i < s->nodes; i++)
        sim->fab.size[i] = s->node_bytes;
    for (unsigned i = 0; i < SIM_CLIENTS_MAX; i++) {
        struct fiber *fiber = sim->client[i].fiber;
        sim->client[i] = (struct sim_client){.fiber = fiber, .sim = sim};
    }
    sim_adversary_begin(sim);
    return FAR_OK;
}

struct fab *sim_fab(struct sim *sim)
{
    return &sim->fab;
}

static bool next_event(struct sim *sim, struct event *e)
{
    return sim->by_choice ? sim_choice_pop(sim, e) : event_queue_pop(&sim->queue, e);
}

enum sim_end sim_run(struct sim *sim, uint64_t verbs)
{
    uint64_t limit = sim->counts.verbs + verbs;
    struct event e;
    while (sim->counts.verbs < limit && next_event(sim, &e)) {
        if (e.at > sim->now)
            sim->now = e.at;
        sim->counts.events++;
        sim->last = e.client;
        sim_tail_lose(sim);
        switch ((enum event_kind)e.kind) {
        case EVENT_START:
        case EVENT_WAKE:
            sim_client_wake(sim, &e);
            break;
        case EVENT_VERB:
            sim_nic_verb(sim, &e);
            break;
        case EVENT_REQUEST:
            sim_nic_request(sim, &e);
            break;
        case EVENT_COMPLETE:
            sim_nic_complete(sim, &e);
            break;
        case EVENT_TAIL:
            sim_nic_tail(sim, &e);
            break;
        }
    }
    if (sim->queue.count > 0)
        return SIM_LIMIT;
    ASSERT(sim->alive == 0); /* every client that waits has an event in the queue */
    return SIM_FINISHED;
}

void sim_end(struct sim *sim)
{
    sim_request_drop_all(sim);
    for (unsigned i = 0; i < sim->set.clients; i++) {
        struct sim_client *c = &sim->client[i];
        if (c->state == CLIENT_IDLE || c->state == CLIENT_FINISHED)
            continue;
        c->unwinding = true;
        sim_client_resume(sim, i);
        ASSERT(c->state == CLIENT_FINISHED); /* nothing makes an unwinding client wait */
    }
}

/* ---- the fabric's functions ------------------------------------------------------------------ */

static struct sim *sim_of(struct fab_ep *ep)
{
    return (struct sim *)(void *)ep->fab; /* the fabric is its first field */
}
_Static_assert(offsetof(struct sim, fab) == 0, "a simulator is a fabric");

void sim_open_in(struct sim *sim, unsigned process)
{
    ASSERT(process < sim->fab.processes);
    sim->opens_in = process;
}

static int sim_ep_open(struct fab *fab, struct fab_ep **ep)
{
    struct fab_ep *e = calloc(1, sizeof *e);
    if (!e)
        return err_fail(FAR_NO_MEMORY, "no memory for an endpoint");
    e->fab = fab;
    e->ops = fab->ops;
    e->process = sim_of(e)->opens_in;
    *ep = e;
    return FAR_OK;
}

static void sim_ep_close(struct fab_ep *ep)
{
    free(ep);
}

static void *sim_buf_alloc(struct fab_ep *ep, size_t bytes)
{
    (void)ep;
    void *buf = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (buf)
        memset(buf, 0, bytes);
    return buf;
}

static void sim_buf_free(struct fab_ep *ep, void *buf, size_t bytes)
{
    (void)ep;
    (void)bytes;
    free(buf);
}

static int sim_post(struct fab_ep *ep, struct fab_req *req)
{
    struct sim *sim = sim_of(ep);
    struct sim_client *c = sim_client_running(sim);
    if (!c)
        return sim_nic_post_direct(sim, ep, req);
    if (c->unwinding) {
        ASSERT(c->unwound_posts++ < UNWINDING_POSTS);
        return err_fail(FAR_UNREACHABLE, "this client has crashed");
    }
    if (c->fenced)
        return err_fail(FAR_FENCED, "this client was shut out");
    return sim_nic_post(sim, sim->running, ep, req);
}

static void sim_identify(struct fab_ep *ep, uint64_t identity)
{
    struct sim_client *c = sim_client_running(sim_of(ep));
    if (!c)
        return;
    c->identity = identity;
    c->fenced = false;
}

/*
 * Takes no time: the message that makes a memory node fence a client is not simulated. What the
 * client has under way, also on an earlier connection or under an earlier identity, lands now or
 * never.
 */
static int sim_fence(struct fab_ep *ep, uint64_t identity)
{
    struct sim *sim = sim_of(ep);
    struct sim_request *theirs[FENCED_REQUESTS_MAX];
    size_t count = 0;
    bool found = false;
    for (unsigned i = 0; i < sim->set.clients; i++) {
        struct sim_client *c = &sim->client[i];
        if (c->identity != identity || c->fenced)
            continue;
        sim_log_line(sim, i, "IS SHUT OUT");
        sim->counts.shut_out++;
        c->fenced = found = true;
    }
    for (size_t n = 0; n < sim->requests; n++) {
        struct sim_request *r = sim->request[n];
        if (!r->in_use || (r->identity != identity && sim->client[r->client].identity != identity))
            continue;
        ASSERT(count < FENCED_REQUESTS_MAX);
        theirs[count++] = r;
    }
    if (!found && count > 0) /* its client has registered again since */
        sim->counts.shut_out++;
    sim_nic_shut_out(sim, theirs, count);
    if (sim_client_running(sim))
        sim_adversary_stalk(sim, sim_client_running(sim));
    return FAR_OK;
}

/* The message may be late, or its answer: then the node refuses older requests already, and the
 * client does not know. */
enum view_fence { VIEW_FENCE_DONE, VIEW_FENCE_LATE, VIEW_FENCE_ANSWER_LATE, VIEW_FENCE_WAYS };

static enum view_fence draw_view_fence(struct sim *sim, struct sim_client *c, unsigned node)
{
    if (!c || !(sim->adversity & SIM_DELAY) || c->put_off[node] >= VIEW_FENCES_LATE)
        return VIEW_FENCE_DONE;
    c->put_off[node]++;
    return (enum view_fence)tape_choose(sim->tape, VIEW_FENCE_WAYS, TAPE_FAULT);
}

static int sim_fence_view(struct fab_ep *ep, unsigned node, uint32_t view)
{
    struct sim *sim = sim_of(ep);
    struct sim_client *c = sim_client_running(sim);
    int rc = FAR_OK;
    if ((c && c->unwinding) || sim->lost[node])
        return err_fail(FAR_UNREACHABLE, "node %u cannot be asked to refuse older views", node);
    enum view_fence way = draw_view_fence(sim, c, node);
    if (way != VIEW_FENCE_LATE)
        sim_nic_raise_view(sim, node, view);
    if (way != VIEW_FENCE_DONE || sim_nic_executes_older(sim, node, view))
        rc = FAB_PENDING;
    if (c && rc == FAR_OK)
        c->put_off[node] = 0;
    if (c)
        c->seen = mix(c->seen, (uint64_t)view << 32 | (uint64_t)node << 8 | (rc == FAB_PENDING));
    return rc;
}

/* Only clients at work have a process: one that is done has ended. Atomics that it has begun are
 * finished, so it has not ended before. */
static enum fab_life sim_life(struct fab_ep *ep, uint64_t identity, uint64_t witness)
{
    const struct sim *sim = sim_of(ep);
    for (unsigned i = 0; i < sim->set.clients; i++) {
        const struct sim_client *c = &sim->client[i];
        if (c->identity == identity && c->state != CLIENT_CRASHED && c->state != CLIENT_FINISHED)
            return FAB_ALIVE;
    }
    for (size_t n = 0; n < sim->requests; n++)
        if (sim->request[n]->in_use && sim->request[n]->events > 0 &&
            sim->request[n]->identity == identity)
            return FAB_ALIVE;
    return witness == identity ? FAB_DEAD : FAB_LIFE_UNKNOWN;
}

static uint64_t sim_witness(struct fab_ep *ep, uint64_t identity)
{
    (void)ep;
    return identity;
}

static void sim_poll(struct fab_ep *ep, bool wait)
{
    struct sim *sim = sim_of(ep);
    struct sim_client *c = sim_client_running(sim);
    if (!c || c->unwinding)
        return;
    if (wait && !c->completed && c->in_flight > 0)
        sim_client_give_way(c, CLIENT_POLLING);
    else if (!wait && !c->completed)
        sim_client_wait(c, POLL_NS); /* let others run */
    c->completed = false;
}

static uint64_t sim_clock(struct fab_ep *ep)
{
    struct sim *sim = sim_of(ep);
    const struct sim_client *c = sim_client_running(sim);
    if (!c)
        return sim->now;
    if (sim->set.by_choice)
        return c->local_time;
    sim->now++; /* reading the clock takes time too */
    int64_t gone = (int64_t)(sim->now / 1000);
    return sim->now + c->clock_offset + (uint64_t)(gone * c->clock_ppm / 1000);
}

static void sim_pause(struct fab_ep *ep, uint64_t ns)
{
    struct sim *sim = sim_of(ep);
    struct sim_client *c = sim_client_running(sim);
    if (!c || c->unwinding)
        sim->now += ns;
    else
        sim_client_wait(c, ns);
}

/* A harness makes the simulated pool; no URI names it. So there is no open and no close. */
static const struct fab_ops sim_ops = {
    .scheme = "sim",
    .ep_open = sim_ep_open,
    .ep_close = sim_ep_close,
    .buf_alloc = sim_buf_alloc,
    .buf_free = sim_buf_free,
    .post = sim_post,
    .poll = sim_poll,
    .now = sim_clock,
    .coarse = sim_clock,
    .pause = sim_pause,
    .identify = sim_identify,
    .fence = sim_fence,
    .fence_view = sim_fence_view,
    .life = sim_life,
    .witness = sim_witness,
};

/* ---- looking at a run ------------------------------------------------------------------------ */

const struct sim_counts *sim_counts(const struct sim *sim)
{
    return &sim->counts;
}

uint64_t sim_trace(const struct sim *sim)
{
    return mix(sim->trace, sim->counts.events);
}

uint64_t sim_now(const struct sim *sim)
{
    return sim->now;
}

void sim_watch(struct sim *sim, sim_watcher *verb, void *arg)
{
    sim->watch = verb;
    sim->watch_arg = arg;
}
