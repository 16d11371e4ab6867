/* Opening and running, and the fabric's functions. */
#include "model/model_internal.h"

#include "farside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODE_BYTES_DEFAULT (4ull << 30)
#define NODE_BYTES_MAX     (1ull << 40)
#define GBITS_MAX          1600u
#define POLL_PS            100000u /* between two polls of a client that does not wait */
#define POOL_CLIENTS_MAX   65536u
#define LEASE_MS_MAX       3600000u
#define PS_PER_NS          1000u
#define PS_PER_S           1000000000000ull
#define TICK_EVENTS        100000u

static const struct fab_ops model_ops;

static struct model *model_of(const struct fab *fab)
{
    return (struct model *)(uintptr_t)fab; /* the fabric is its first field */
}
_Static_assert(offsetof(struct model, fab) == 0, "a model is a fabric");

/* ---- opening --------------------------------------------------------------------------------- */

bool model_named(const char *uri)
{
    return strncmp(uri, MODEL_SCHEME ":", sizeof MODEL_SCHEME) == 0;
}

struct options {
    const struct nic *nic;
    struct model_shape shape;
    uint64_t nodes, size, clients, replicas, outstanding, groups, gbits;
    bool shared_doorbells, locks_in_nic;
};

static int read_nic(struct uri *uri, struct options *o)
{
    const char *name = uri_option(uri, "nic");
    char known[128] = "";
    o->nic = name ? nic_find(name) : nic_at(0);
    if (o->nic)
        return FAR_OK;
    for (unsigned i = 0; nic_at(i); i++) {
        strncat(known, i ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, nic_at(i)->name, sizeof known - strlen(known) - 1);
    }
    return err_fail(FAR_BAD_URI, "nic=%s is not one of %s", name, known);
}

/* An option that has one of two values: is it the second? It is the first if it is not given. */
static int read_choice(struct uri *uri, const char *name, const char *first, const char *second,
                       bool *is_second)
{
    const char *text = uri_option(uri, name);
    *is_second = text && strcmp(text, second) == 0;
    if (text && !*is_second && strcmp(text, first) != 0)
        return err_fail(FAR_BAD_URI, "%s=%s is neither %s nor %s", name, text, first, second);
    return FAR_OK;
}

static int read_shape(struct uri *uri, struct options *o)
{
    uint64_t machines = 1, threads = 1, depth = 1;
    int rc = uri_number(uri, "machines", 1, 1, MODEL_MACHINES_MAX, &machines);
    if (rc == FAR_OK)
        rc = uri_number(uri, "threads", 1, 1, MODEL_CLIENTS_MAX, &threads);
    if (rc == FAR_OK)
        rc = uri_number(uri, "depth", 1, 1, FAR_DEPTH_MAX, &depth);
    if (rc == FAR_OK && machines * threads > MODEL_CLIENTS_MAX)
        rc = err_fail(FAR_BAD_URI,
                      "machines=%llu with threads=%llu each are more than %u clients: take fewer",
                      (unsigned long long)machines, (unsigned long long)threads, MODEL_CLIENTS_MAX);
    o->shape.machines = (unsigned)machines;
    o->shape.threads = (unsigned)threads;
    o->shape.depth = (unsigned)depth;
    return rc;
}

static int read_options(const char *text, struct options *o)
{
    struct uri uri;
    int rc = uri_parse(text, &uri);
    if (rc == FAR_OK && uri.rest[0])
        rc = err_fail(FAR_BAD_URI, "'%s' follows " MODEL_SCHEME ":, where only options are allowed",
                      uri.rest);
    if (rc == FAR_OK)
        rc = read_nic(&uri, o);
    if (rc == FAR_OK)
        rc = read_choice(&uri, "doorbells", "own", "shared", &o->shared_doorbells);
    if (rc == FAR_OK)
        rc = read_choice(&uri, "locks", "host", "nic", &o->locks_in_nic);
    if (rc == FAR_OK)
        rc = uri_number(&uri, "gbits", 0, 1, GBITS_MAX, &o->gbits);
    if (rc == FAR_OK)
        rc = read_shape(&uri, o);
    if (rc == FAR_OK)
        rc = uri_number(&uri, "nodes", 1, 1, MODEL_NODES_MAX, &o->nodes);
    if (rc == FAR_OK)
        rc = uri_size(&uri, "size", NODE_BYTES_DEFAULT, 1, NODE_BYTES_MAX, &o->size);
    if (rc == FAR_OK)
        rc = uri_number(&uri, "replicas", 1, 1, 2, &o->replicas);
    if (rc == FAR_OK)
        rc = uri_number(&uri, "outstanding", o->nic->outstanding, 0, UINT32_MAX, &o->outstanding);
    if (rc == FAR_OK)
        rc = uri_number(&uri, "clients", 0, 1, POOL_CLIENTS_MAX, &o->clients);
    if (rc == FAR_OK) /* nothing holds up a modelled client, so a short lease is safe */
        rc = uri_number(&uri, "lease", 0, 1, LEASE_MS_MAX, &o->shape.lease_ms);
    if (rc == FAR_OK)
        rc = uri_number(&uri, "groups", 1, 0, 1, &o->groups);
    if (rc == FAR_OK)
        rc = uri_finish(&uri);
    /* Every client has a session, and there are some more for what is not measured. */
    if (rc == FAR_OK && o->clients == 0)
        o->clients = o->shape.machines * o->shape.threads + 16;
    return rc;
}

int model_shape(const char *uri, struct model_shape *shape)
{
    struct options o;
    int rc = read_options(uri, &o);
    if (rc == FAR_OK)
        *shape = o.shape;
    return rc;
}

static int open_memory(struct model *m, const struct options *o)
{
    char uri[128];
    snprintf(uri, sizeof uri, "mem:?size=%llu&nodes=%llu", (unsigned long long)o->size,
             (unsigned long long)o->nodes);
    int rc = fab_open(uri, &m->memory);
    return rc == FAR_OK ? m->memory->ops->ep_open(m->memory, &m->memory_ep) : rc;
}

static void set_up_clients(struct model *m)
{
    for (unsigned i = 0; i < m->clients; i++) {
        struct model_client *c = &m->client[i];
        c->model = m;
        c->machine = &m->machine[i / m->shape.threads];
        if (m->shared_doorbells) {
            c->doorbell = &c->machine->doorbell[i % m->shape.threads % NIC_DOORBELLS];
            c->doorbell->threads++;
        }
        for (unsigned n = 0; n < m->fab.nodes; n++)
            c->pair[n] = (struct pair){.client = c, .node = &m->node[n]};
    }
}

static void model_close(struct fab *fab)
{
    struct model *m = model_of(fab);
    for (unsigned i = 0; m->client && i < m->clients; i++)
        fiber_destroy(m->client[i].fiber);
    for (unsigned i = 0; i < MODEL_NODES_MAX; i++)
        free(m->node[i].word);
    while (m->idle) {
        struct model_verb *next = m->idle->next;
        free(m->idle);
        m->idle = next;
    }
    if (m->memory_ep)
        m->memory->ops->ep_close(m->memory_ep);
    if (m->memory)
        fab_close(m->memory);
    free(m->queue.event);
    free(m->client);
    free(m);
}

int model_open(const char *uri, struct fab **fab)
{
    struct options o;
    int rc = read_options(uri, &o);
    if (rc != FAR_OK)
        return rc;
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        return err_fail(FAR_NO_MEMORY, "no memory for a model");
    m->other = *o.nic;
    if (o.gbits > 0)
        m->other.byte = 8 * PS_PER_NS / o.gbits;
    m->nic = &m->other;
    m->shape = o.shape;
    m->shared_doorbells = o.shared_doorbells;
    m->locks_in_nic = o.locks_in_nic;
    m->clients = o.shape.machines * o.shape.threads;
    m->fab = (struct fab){.ops = &model_ops,
                          .caps = FAB_CAP_MCAS | FAB_CAP_LOCAL,
                          .order = ORDER_IB,
                          .nodes = (unsigned)o.nodes,
                          .fresh = true,
                          .outstanding = (unsigned)o.outstanding * o.shape.machines,
                          .processes = o.shape.machines,
                          .groups = o.groups,
                          .replicas = o.replicas,
                          .clients_wanted = o.clients,
                          .lease_ms = o.shape.lease_ms};
    m->client = calloc(m->clients, sizeof *m->client);
    bool enough = m->client != NULL;
    for (unsigned i = 0; i < m->fab.nodes; i++) {
        m->node[i].number = i;
        m->node[i].word = calloc(BUSY_WORDS, sizeof *m->node[i].word);
        enough &= m->node[i].word != NULL;
    }
    rc = enough ? open_memory(m, &o) : err_fail(FAR_NO_MEMORY, "no memory for a model");
    if (rc != FAR_OK) {
        model_close(&m->fab);
        return rc;
    }
    memcpy(m->fab.size, m->memory->size, sizeof m->fab.size);
    set_up_clients(m);
    *fab = &m->fab;
    return FAR_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

/* The next death, on average after 1/rate of a second. */
static void await_death(struct model *m)
{
    if (m->deaths_per_s > 0)
        (void)model_push(m, EVENT_DEATH,
                         m->now + rng_below(&m->rng, 2 * PS_PER_S / m->deaths_per_s), NULL);
}

static void one_dies(struct model *m)
{
    struct model_client *c = &m->client[rng_below(&m->rng, m->clients)];
    if (m->alive == 0)
        return;
    if (c->state != CLIENT_FINISHED && model_client_replace(c) == FAR_OK)
        m->counts.deaths++;
    await_death(m);
}

static void handle(struct model *m, const struct event *e)
{
    struct model_client *c = e->subject;
    switch ((enum event_kind)e->kind) {
    case EVENT_CLIENT:
        if (c->event == e->seq)
            model_client_resume(c);
        break;
    case EVENT_SEND:
        model_verb_send(m, e->subject);
        break;
    case EVENT_ARRIVE:
        model_verb_arrive(m, e->subject);
        break;
    case EVENT_EXECUTE:
        model_verb_execute(m, e->subject);
        break;
    case EVENT_COMPLETE:
        model_verb_complete(m, e->subject);
        break;
    case EVENT_DEATH:
        one_dies(m);
        break;
    }
}

int model_run(struct fab *fab, void (*fn)(void *worker), void *first, size_t size,
              void (*tick)(void *arg), void *arg)
{
    struct model *m = model_of(fab);
    struct event e;
    int rc = FAR_OK;

    ASSERT(m->alive == 0 && m->queue.count == 0);
    for (unsigned i = 0; i < m->clients && rc == FAR_OK; i++)
        rc = model_client_start(&m->client[i], fn, (char *)first + i * size);
    if (rc != FAR_OK)
        return rc;
    for (unsigned i = 0; i < m->clients; i++) {
        struct model_client *c = &m->client[i];
        c->state = CLIENT_PAUSING;
        c->clock = m->now;
        model_client_wake(c);
    }
    m->alive = m->clients;
    await_death(m);
    while (event_queue_pop(&m->queue, &e)) {
        m->now = e.at;
        if (++m->counts.events % TICK_EVENTS == 0 && tick)
            tick(arg);
        handle(m, &e);
    }
    m->deaths_per_s = 0;
    ASSERT(m->alive == 0); /* every client that waits has an event in the queue */
    for (unsigned i = 0; i < m->clients; i++)
        if (m->client[i].clock > m->now)
            m->now = m->client[i].clock;
    return FAR_OK;
}

void model_let_die(struct fab *fab, unsigned rate, uint64_t seed)
{
    struct model *m = model_of(fab);
    m->deaths_per_s = rate;
    rng_seed(&m->rng, seed);
}

uint64_t model_now(const struct fab *fab)
{
    const struct model *m = model_of(fab);
    return (m->running ? m->running->clock : m->now) / PS_PER_NS;
}

void model_wait(struct fab *fab, uint64_t ns)
{
    struct model *m = model_of(fab);
    if (m->running)
        model_client_pause(m->running, ns * PS_PER_NS);
    else
        m->now += ns * PS_PER_NS;
}

void model_operation(struct fab *fab)
{
    struct model *m = model_of(fab);
    if (m->running)
        model_work(m->running, m->nic->operation);
}

const struct model_counts *model_counts(const struct fab *fab)
{
    return &model_of(fab)->counts;
}

/* ---- load ------------------------------------------------------------------------------------ */

const char *const model_part_names[MODEL_PARTS] = {
    [MODEL_NODE_VERBS] = "node_verbs",         [MODEL_NODE_RECEIVES] = "node_receives",
    [MODEL_NODE_SENDS] = "node_sends",         [MODEL_NODE_PCIE] = "node_pcie",
    [MODEL_NODE_WORD] = "node_word",           [MODEL_CLIENT_VERBS] = "client_verbs",
    [MODEL_CLIENT_SENDS] = "client_sends",     [MODEL_CLIENT_RECEIVES] = "client_receives",
    [MODEL_CLIENT_THREADS] = "client_threads",
};

void model_load_begin(struct fab *fab)
{
    struct model *m = model_of(fab);
    m->from = m->now;
    for (unsigned i = 0; i < m->shape.machines; i++) {
        struct machine *c = &m->machine[i];
        c->message.busy = c->send.busy = c->receive.busy = c->cpu = 0;
    }
    for (unsigned i = 0; i < m->fab.nodes; i++) {
        struct node *n = &m->node[i];
        n->message.busy = n->send.busy = n->receive.busy = n->pcie.busy = 0;
        for (unsigned w = 0; w < BUSY_WORDS; w++)
            n->word[w].busy = 0;
    }
}

static void busiest(uint64_t *most, uint64_t busy)
{
    if (busy > *most)
        *most = busy;
}

void model_load(const struct fab *fab, struct model_load *load)
{
    const struct model *m = model_of(fab);
    uint64_t *busy = load->busy;
    *load = (struct model_load){.time = m->now - m->from};
    for (unsigned i = 0; i < m->shape.machines; i++) {
        const struct machine *c = &m->machine[i];
        busiest(&busy[MODEL_CLIENT_VERBS], c->message.busy);
        busiest(&busy[MODEL_CLIENT_SENDS], c->send.busy);
        busiest(&busy[MODEL_CLIENT_RECEIVES], c->receive.busy);
        busiest(&busy[MODEL_CLIENT_THREADS], c->cpu / m->shape.threads);
    }
    for (unsigned i = 0; i < m->fab.nodes; i++) {
        const struct node *n = &m->node[i];
        busiest(&busy[MODEL_NODE_VERBS], n->message.busy);
        busiest(&busy[MODEL_NODE_RECEIVES], n->receive.busy);
        busiest(&busy[MODEL_NODE_SENDS], n->send.busy);
        busiest(&busy[MODEL_NODE_PCIE], n->pcie.busy);
        for (unsigned w = 0; w < BUSY_WORDS; w++)
            busiest(&busy[MODEL_NODE_WORD], n->word[w].busy);
    }
}

enum model_part model_load_busiest(const struct model_load *load)
{
    enum model_part most = 0;
    for (unsigned p = 1; p < MODEL_PARTS; p++)
        if (load->busy[p] > load->busy[most])
            most = (enum model_part)p;
    return most;
}

/* ---- the fabric's functions ------------------------------------------------------------------ */

static int model_ep_open(struct fab *fab, struct fab_ep **ep)
{
    struct fab_ep *e = calloc(1, sizeof *e);
    if (!e)
        return err_fail(FAR_NO_MEMORY, "no memory for an endpoint");
    e->fab = fab;
    e->ops = fab->ops;
    const struct model_client *c = model_of(fab)->running;
    e->process = c ? (unsigned)(c->machine - c->model->machine) : 0;
    *ep = e;
    return FAR_OK;
}

static void model_ep_close(struct fab_ep *ep)
{
    free(ep);
}

static void *model_buf_alloc(struct fab_ep *ep, size_t bytes)
{
    const struct model *m = model_of(ep->fab);
    return m->memory->ops->buf_alloc(m->memory_ep, bytes);
}

static void model_buf_free(struct fab_ep *ep, void *buf, size_t bytes)
{
    const struct model *m = model_of(ep->fab);
    m->memory->ops->buf_free(m->memory_ep, buf, bytes);
}

static int model_post(struct fab_ep *ep, struct fab_req *req)
{
    struct model *m = model_of(ep->fab);
    return m->running ? model_verb_post(m->running, req) : m->memory->ops->post(m->memory_ep, req);
}

static void model_poll(struct fab_ep *ep, bool wait)
{
    struct model_client *c = model_of(ep->fab)->running;
    if (!c)
        return;
    if (!wait && !c->completed)
        model_client_pause(c, POLL_PS);
    else
        model_client_poll(c);
}

static uint64_t model_clock(struct fab_ep *ep)
{
    return model_now(ep->fab);
}

static void model_pause(struct fab_ep *ep, uint64_t ns)
{
    model_wait(ep->fab, ns);
}

static const struct fab_ops model_ops = {
    .scheme = MODEL_SCHEME,
    .close = model_close,
    .ep_open = model_ep_open,
    .ep_close = model_ep_close,
    .buf_alloc = model_buf_alloc,
    .buf_free = model_buf_free,
    .post = model_post,
    .poll = model_poll,
    .now = model_clock,
    .coarse = model_clock,
    .pause = model_pause,
};
