/* Runs: their memory, their clients, the fabric's functions, and the loop over events. */
#include "sim/sim_internal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define CLIENT_STACK_BYTES (256u * 1024u)
#define POLL_NS            200u    /* between two looks of a client that polls without waiting */
#define FENCED_FLIGHTS_MAX 1024u   /* of one client's requests under way */
#define UNWINDING_POSTS    100000u /* a client that still tries after so many does not give up */

static const struct fab_ops sim_ops, sim_ops_without_fence;

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
        free(sim->dirty[i]);
        free(sim->dirty_page[i]);
    }
    for (size_t i = 0; i < sim->flights; i++) {
        free(sim->flight[i]->late_data);
        free(sim->flight[i]);
    }
    free(sim->flight);
    free(sim->queue.event);
    free(sim->visited);
    free(sim->line);
    free(sim);
}

/* ---- memory ---------------------------------------------------------------------------------- */

void sim_touch(struct sim *sim, unsigned node, uint64_t off, uint64_t len)
{
    if (len == 0)
        return;
    uint64_t last = (off + len - 1) >> SIM_PAGE_SHIFT;
    for (uint64_t page = off >> SIM_PAGE_SHIFT; page <= last; page++) {
        if (sim->dirty[node][page])
            continue;
        sim->dirty[node][page] = 1;
        sim->dirty_page[node][sim->dirty_count[node]++] = (uint32_t)page;
    }
}

/* Zeroes what earlier runs wrote, and no more: most of a node is never touched. */
static bool clean_node(struct sim *sim, unsigned node, uint64_t bytes)
{
    if (sim->memory_bytes[node] == bytes) {
        for (uint32_t i = 0; i < sim->dirty_count[node]; i++) {
            uint32_t page = sim->dirty_page[node][i];
            memset(sim->memory[node] + ((uint64_t)page << SIM_PAGE_SHIFT), 0, 1u << SIM_PAGE_SHIFT);
            sim->dirty[node][page] = 0;
        }
        sim->dirty_count[node] = 0;
        return true;
    }
    free(sim->memory[node]);
    free(sim->dirty[node]);
    free(sim->dirty_page[node]);
    uint64_t pages = (bytes >> SIM_PAGE_SHIFT) + 1;
    sim->memory[node] = calloc(pages, 1u << SIM_PAGE_SHIFT);
    sim->dirty[node] = calloc(pages, 1);
    sim->dirty_page[node] = calloc(pages, sizeof *sim->dirty_page[node]);
    sim->dirty_count[node] = 0;
    bool all = sim->memory[node] && sim->dirty[node] && sim->dirty_page[node];
    sim->memory_bytes[node] = all ? bytes : 0;
    return all;
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
        s->node_bytes % 64 != 0)
        return err_fail(FAR_INVALID, "the simulator does not take these settings");
    for (unsigned i = 0; i < s->nodes; i++)
        if (!clean_node(sim, i, s->node_bytes))
            return err_fail(FAR_NO_MEMORY, "no memory for a simulated node");

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
    sim_nic_drop_all(sim);

    memset(&sim->fab, 0, sizeof sim->fab);
    sim->fab.ops = s->no_fence ? &sim_ops_without_fence : &sim_ops;
    sim->fab.caps = s->no_mcas ? 0 : FAB_CAP_MCAS;
    sim->fab.order = profile_order[s->profile];
    sim->fab.nodes = s->nodes;
    sim->fab.fresh = true;
    for (unsigned i = 0; i < s->nodes; i++)
        sim->fab.size[i] = s->node_bytes;
    for (unsigned i = 0; i < SIM_CLIENTS_MAX; i++) {
        struct fiber *fiber = sim->client[i].fiber;
        sim->client[i] = (struct sim_client){.fiber = fiber, .sim = sim};
    }
    sim_fault_begin(sim);
    return FAR_OK;
}

struct fab *sim_fab(struct sim *sim)
{
    return &sim->fab;
}

static void run_client(void *arg)
{
    struct sim_client *c = arg;
    c->fn(c->arg);
}

int sim_start(struct sim *sim, unsigned client, void (*fn)(void *arg), void *arg)
{
    ASSERT(client < sim->set.clients && sim->client[client].state == CLIENT_IDLE);
    struct sim_client *c = &sim->client[client];
    c->fn = fn;
    c->arg = arg;
    if (c->fiber)
        fiber_reset(c->fiber, run_client, c);
    else
        c->fiber = fiber_create(CLIENT_STACK_BYTES, run_client, c);
    if (!c->fiber)
        return err_fail(FAR_NO_MEMORY, "no memory for a simulated client's stack");
    c->state = CLIENT_READY;
    sim->alive++;
    sim->memory_hash = 0; /* states are compared by what clients changed */
    sim_queue_push(sim, EVENT_START, sim->now + sim_fault_transit(sim, client), client, NULL, 0);
    return FAR_OK;
}

void sim_identify_client(struct sim *sim, unsigned client, uint64_t identity)
{
    sim->client[client].identity = identity;
}

void sim_resume(struct sim *sim, uint32_t client)
{
    struct sim_client *c = &sim->client[client];
    c->state = CLIENT_RUNNING;
    c->seen = mix(c->seen, 1);
    sim->running = client;
    fiber_resume(c->fiber);
    sim->running = NOBODY;
    if (fiber_finished(c->fiber)) {
        c->state = CLIENT_FINISHED;
        if (!c->unwinding)
            sim->alive--;
    }
}

static void wake(struct sim *sim, const struct event *e)
{
    struct sim_client *c = &sim->client[e->client];
    if (c->frozen_until > sim->now)
        sim_queue_push(sim, e->kind, c->frozen_until, e->client, NULL, 0);
    else if (c->state == CLIENT_READY || c->state == CLIENT_PAUSING)
        sim_resume(sim, e->client);
}

enum sim_end sim_run(struct sim *sim, uint64_t verbs)
{
    uint64_t limit = sim->counts.verbs + verbs;
    struct event e;
    while (sim->counts.verbs < limit && sim_queue_pop(sim, &e)) {
        if (e.at > sim->now)
            sim->now = e.at;
        sim->counts.events++;
        sim->last = e.client;
        switch ((enum event_kind)e.kind) {
        case EVENT_START:
        case EVENT_WAKE:
            wake(sim, &e);
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
        }
    }
    if (sim->queue.count > 0)
        return SIM_LIMIT;
    ASSERT(sim->alive == 0); /* whoever waits, waits for something in the queue */
    return SIM_FINISHED;
}

void sim_end(struct sim *sim)
{
    sim_nic_drop_all(sim);
    for (unsigned i = 0; i < sim->set.clients; i++) {
        struct sim_client *c = &sim->client[i];
        if (c->state == CLIENT_IDLE || c->state == CLIENT_FINISHED)
            continue;
        c->unwinding = true;
        sim_resume(sim, i);
        ASSERT(c->state == CLIENT_FINISHED); /* nothing makes an unwinding client wait */
    }
}

/* ---- within a client ------------------------------------------------------------------------- */

static struct sim_client *self(struct sim *sim)
{
    return sim->running == NOBODY ? NULL : &sim->client[sim->running];
}

/* Gives way to the scheduler. Operations on the ring run on fibers of their own, and those wait
 * by yielding to the client's, which is the one that comes here. */
static void give_way(struct sim_client *c, enum client_state state)
{
    struct sim *sim = c->sim;
    uint32_t me = sim->running;
    ASSERT(fiber_current() == c->fiber);
    c->state = state;
    fiber_yield();
    ASSERT(sim->running == me);
}

static void nap(struct sim_client *c, uint64_t ns)
{
    c->local_time += ns;
    sim_queue_push(c->sim, EVENT_WAKE, c->sim->now + ns, (uint32_t)(c - c->sim->client), NULL, 0);
    give_way(c, CLIENT_PAUSING);
}

void sim_think(struct sim *sim)
{
    struct sim_client *c = self(sim);
    ASSERT(c != NULL);
    if (!c->unwinding)
        nap(c, sim_fault_transit(sim, sim->running));
}

void sim_sleep(struct sim *sim, uint64_t ns)
{
    struct sim_client *c = self(sim);
    ASSERT(c != NULL);
    if (!c->unwinding)
        nap(c, ns);
}

bool sim_dead(const struct sim *sim)
{
    return sim->running != NOBODY && sim->client[sim->running].unwinding;
}

uint64_t sim_identity(const struct sim *sim)
{
    return sim->running == NOBODY ? 0 : sim->client[sim->running].identity;
}

int sim_self(const struct sim *sim)
{
    return sim->running == NOBODY ? -1 : (int)sim->running;
}

/* ---- the fabric's functions ------------------------------------------------------------------ */

static struct sim *sim_of(struct fab_ep *ep)
{
    return (struct sim *)(void *)ep->fab; /* the fabric is the first thing in it */
}
_Static_assert(offsetof(struct sim, fab) == 0, "a simulator is a fabric");

static int sim_ep_open(struct fab *fab, struct fab_ep **ep)
{
    struct fab_ep *e = calloc(1, sizeof *e);
    if (!e)
        return err_fail(FAR_NO_MEMORY, "no memory for an endpoint");
    e->fab = fab;
    e->ops = fab->ops;
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
    struct sim_client *c = self(sim);
    if (!c)
        return sim_nic_post_direct(sim, req);
    if (c->unwinding) {
        ASSERT(c->unwound_posts++ < UNWINDING_POSTS);
        return err_fail(FAR_UNREACHABLE, "this client has crashed");
    }
    if (c->fenced)
        return err_fail(FAR_FENCED, "this client was shut out");
    return sim_nic_post(sim, sim->running, req);
}

static void sim_identify(struct fab_ep *ep, uint64_t identity)
{
    struct sim_client *c = self(sim_of(ep));
    if (!c)
        return;
    c->identity = identity;
    c->fenced = false;
}

/*
 * Takes no time: a memory node does this when it is told to, and what tells it is not the subject.
 * What the client has under way, be it of an earlier connection or under an earlier name, comes in
 * at the last moment or not at all.
 */
static int sim_fence(struct fab_ep *ep, uint64_t identity)
{
    struct sim *sim = sim_of(ep);
    struct flight *theirs[FENCED_FLIGHTS_MAX];
    size_t count = 0;
    for (unsigned i = 0; i < sim->set.clients; i++) {
        struct sim_client *c = &sim->client[i];
        if (c->identity != identity || c->fenced)
            continue;
        sim_log_line(sim, i, "IS SHUT OUT");
        sim->counts.shut_out++;
        c->fenced = true;
    }
    for (size_t n = 0; n < sim->flights; n++) {
        struct flight *f = sim->flight[n];
        if (!f->in_use || (f->identity != identity && sim->client[f->client].identity != identity))
            continue;
        ASSERT(count < FENCED_FLIGHTS_MAX);
        theirs[count++] = f;
    }
    sim_nic_shut_out(sim, theirs, count);
    return FAR_OK;
}

static void sim_poll(struct fab_ep *ep, bool wait)
{
    struct sim *sim = sim_of(ep);
    struct sim_client *c = self(sim);
    if (!c || c->unwinding)
        return;
    if (wait && !c->completed && c->in_flight > 0)
        give_way(c, CLIENT_POLLING);
    else if (!wait && !c->completed)
        nap(c, POLL_NS); /* whoever looks again and again lets others get on */
    c->completed = false;
}

static uint64_t sim_clock(struct fab_ep *ep)
{
    struct sim *sim = sim_of(ep);
    const struct sim_client *c = self(sim);
    if (!c)
        return sim->now;
    if (sim->set.by_choice)
        return c->local_time;
    sim->now++; /* looking at the clock takes time, too */
    int64_t gone = (int64_t)(sim->now / 1000);
    return sim->now + c->clock_offset + (uint64_t)(gone * c->clock_ppm / 1000);
}

static void sim_pause(struct fab_ep *ep, uint64_t ns)
{
    struct sim *sim = sim_of(ep);
    struct sim_client *c = self(sim);
    if (!c || c->unwinding)
        sim->now += ns;
    else
        nap(c, ns);
}

/* A simulated pool is made by its harness, never named by a URI: there is no open nor close. */
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
};

static const struct fab_ops sim_ops_without_fence = {
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

const void *sim_memory(const struct sim *sim, unsigned node)
{
    return sim->memory[node];
}

void sim_fill(struct sim *sim, unsigned node, uint64_t off, uint64_t bytes, uint8_t byte)
{
    sim_touch(sim, node, off, bytes);
    memset(sim->memory[node] + off, byte, bytes);
}

void sim_watch(struct sim *sim, sim_watcher *verb, void *arg)
{
    sim->watch = verb;
    sim->watch_arg = arg;
}

bool sim_crashed(const struct sim *sim, unsigned client)
{
    return sim->client[client].state == CLIENT_CRASHED;
}
