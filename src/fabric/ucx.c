/*
 * ucx: - memory nodes on the network, by UCX.
 *
 * Each batch is one active message and one reply, and the batches that are posted between two polls
 * share one: the memory node executes them, in order, with the verbs of mem:. So the order is exact
 * (ORDER_ALL) and masked CAS is one verb. Where all nodes offer it (farside memd --listen
 * ...?rma=1) and UCX has a transport that does it by itself, verbs are UCX's put, get and atomics,
 * with no order but by fences. docs/wire.md has the protocol; ucx_fab.h how the parts of
 * this fabric hang together.
 */
#include "fabric/backends.h"
#include "fabric/direct.h"
#include "fabric/ucx_fab.h"

#include "base/clock.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS_DEFAULT 5000
#define TIMEOUT_MS_MIN     10
#define TIMEOUT_MS_MAX     3600000

/* How long the worker is looked at before it is armed and slept on: about as long as a sleeping
 * node takes to wake up, so that short waits do not become long ones by falling asleep. After a few
 * looks, whoever else needs the processor gets it first. */
#define SPIN_NS  150000u
#define SPINS    20u
#define CLOSINGS 50u

/* Waiting for another client that is making the pool. */
#define CLAIM_WAIT_NS  (60ull * 1000000000)
#define CLAIM_PAUSE_NS 10000000ull

/* ---- progress -------------------------------------------------------------------------------- */

static ucs_status_t receive(void *arg, const void *header, size_t header_bytes, void *data,
                            size_t bytes, const ucp_am_recv_param_t *param)
{
    struct ucx_ep *e = arg;
    struct wire_head head;
    unsigned node;

    (void)header;
    if (header_bytes != 0 || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) ||
        wire_check(data, bytes) != FAR_OK)
        return UCS_OK;
    memcpy(&head, data, sizeof head);
    node = head.seq % LINK_INDEX_MAX;
    if (node < e->ep.fab->nodes)
        link_heard(&e->link[node], data, bytes);
    return UCS_OK;
}

static bool wanted(const struct ucx_link *l)
{
    return l->first != NULL || l->resumable > 0 || l->question.state == QUESTION_WAITING;
}

/* Sends what waits, connects where that is needed, and sees to what has gone wrong. */
static void tend(struct ucx_ep *e, uint64_t now)
{
    for (unsigned i = 0; i < e->ep.fab->nodes; i++) {
        struct ucx_link *l = &e->link[i];

        if (l->broken != UCS_OK || l->refused || now != 0)
            link_look(l, now);
        if (!wanted(l))
            continue;
        if (l->state == LINK_DOWN)
            link_connect(l);
        if (l->state == LINK_UP && l->question.state == QUESTION_WAITING)
            link_ask(l);
        if (l->state == LINK_UP && ucx_fab_of(e)->rma)
            rma_send(l);
        else if (l->state == LINK_UP)
            link_send(l);
    }
}

static bool under_way(const struct ucx_ep *e)
{
    if (e->pending > 0)
        return true;
    for (unsigned i = 0; i < e->ep.fab->nodes; i++) {
        const struct question *q = &e->link[i].question;

        if (q->state == QUESTION_WAITING || q->state == QUESTION_SENT)
            return true;
    }
    return false;
}

/* Sleeps until UCX has something to say, or the first of those waited for is late. */
static void doze(struct ucx_ep *e)
{
    struct pollfd fd = {.fd = e->fd, .events = POLLIN};
    uint64_t first = UINT64_MAX, now = clock_ns();

    for (unsigned i = 0; i < e->ep.fab->nodes; i++) {
        uint64_t deadline = link_deadline(&e->link[i]);

        first = deadline < first ? deadline : first;
    }
    if (ucp_worker_arm(e->worker) == UCS_OK) {
        uint64_t ms = first <= now ? 0 : (first - now) / 1000000 + 1;

        poll(&fd, 1, ms > 1000 ? 1000 : (int)ms);
    }
    tend(e, clock_ns());
}

void ucx_poll(struct fab_ep *ep, bool wait)
{
    struct ucx_ep *e = (struct ucx_ep *)ep;
    uint64_t before = e->completed, now = clock_coarse_ns(), since = 0;

    /* Who is late is looked for when the coarse clock has moved: some hundred times a second. */
    tend(e, now != e->looked ? now : 0);
    e->looked = now;
    while (ucp_worker_progress(e->worker)) {
    }
    tend(e, 0);
    if (!wait)
        return;
    /* Everything that is under way ends by its deadline, if not before. */
    for (unsigned idle = 0; e->completed == before && under_way(e); idle++) {
        if (ucp_worker_progress(e->worker)) {
            idle = 0;
            tend(e, 0);
        } else if (idle == SPINS) {
            since = clock_ns();
        } else if (idle > SPINS && clock_ns() - since > SPIN_NS) {
            doze(e);
        } else if (idle > SPINS) {
            sched_yield();
        }
    }
}

/* Asks a node and waits for its answer. */
static int ask(struct ucx_ep *e, unsigned node, enum wire_type type, uint64_t identity)
{
    struct question *q = &e->link[node].question;

    *q = (struct question){.state = QUESTION_WAITING, .type = type, .identity = identity};
    while (q->state != QUESTION_DONE) { /* which it will be by its deadline */
        tend(e, clock_ns());
        if (!ucp_worker_progress(e->worker) && q->state != QUESTION_DONE)
            doze(e);
    }
    return q->status;
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static void ucx_ep_close(struct fab_ep *ep)
{
    struct ucx_ep *e = (struct ucx_ep *)ep;

    for (unsigned i = 0; i < ep->fab->nodes; i++) {
        if (e->link[i].state != LINK_DOWN)
            link_down(&e->link[i], FAR_UNREACHABLE); /* nothing is under way */
    }
    for (unsigned i = 0; i < CLOSINGS; i++)
        ucp_worker_progress(e->worker);
    ucp_worker_destroy(e->worker);
    for (unsigned i = 0; i < ep->fab->nodes; i++) {
        for (unsigned n = 0; n < LINK_MESSAGES; n++) {
            if (e->link[i].message[n])
                free(e->link[i].message[n]->buf);
            free(e->link[i].message[n]);
        }
    }
    ucx_free_flights(e);
    free(e);
}

static int ucx_ep_open(struct fab *fab, struct fab_ep **ep)
{
    struct ucx_fab *u = (struct ucx_fab *)fab;
    struct ucx_ep *e = calloc(1, sizeof *e + fab->nodes * sizeof *e->link);
    int rc;

    if (!e)
        return fail(FAR_NO_MEMORY, "an endpoint of ucx:");
    e->ep = (struct fab_ep){.fab = fab, .ops = fab->ops};
    /* Numbers of questions begin somewhere: nobody can know what an answer must say. */
    rc = wire_random(&e->seq, sizeof e->seq);
    e->seq >>= 16;
    for (unsigned i = 0; i < fab->nodes && rc == FAR_OK; i++) {
        struct ucx_link *l = &e->link[i];

        l->ep = e;
        l->node = i;
        rc = wire_random(&l->id, sizeof l->id);
    }
    if (!rc)
        rc = ucx_worker_open(u->context, receive, e, &e->worker, &e->fd);
    if (rc) {
        free(e);
        return rc;
    }
    *ep = &e->ep;
    return FAR_OK;
}

static void ucx_identify(struct fab_ep *ep, uint64_t client)
{
    ((struct ucx_ep *)ep)->identity = client;
}

static int ucx_fence(struct fab_ep *ep, uint64_t client)
{
    int rc = FAR_OK;

    for (unsigned i = 0; i < ep->fab->nodes && rc == FAR_OK; i++)
        rc = ask((struct ucx_ep *)ep, i, WIRE_FENCE, client);
    return rc;
}

/* ---- the fabric ------------------------------------------------------------------------------ */

static void leave_opener(struct ucx_fab *u)
{
    if (u->opener)
        ucx_ep_close(u->opener);
    u->opener = NULL;
}

static void leave_context(struct ucx_fab *u)
{
    leave_opener(u);
    if (u->context)
        ucp_cleanup(u->context);
    u->context = NULL;
}

static void ucx_formatted(struct fab *fab)
{
    struct ucx_fab *u = (struct ucx_fab *)fab;

    /* The first node last: it lets others in. If this fails, the next who opens the pool finds the
     * superblock, and says so himself. */
    for (unsigned i = fab->nodes; u->opener && i-- > 0;)
        (void)ask((struct ucx_ep *)u->opener, i, WIRE_FORMATTED, 0);
    leave_opener(u);
}

static void ucx_close(struct fab *fab)
{
    struct ucx_fab *u = (struct ucx_fab *)fab;

    leave_context(u);
    free(u);
}

static int ucx_node_stat(struct fab_ep *ep, unsigned node, struct far_node_info *info);
static int ucx_open(struct uri *uri, struct fab **fab);

#define UCX_OPS                                                                                    \
    .scheme = "ucx", .open = ucx_open, .close = ucx_close, .formatted = ucx_formatted,             \
    .ep_open = ucx_ep_open, .ep_close = ucx_ep_close, .buf_alloc = direct_buf_alloc,               \
    .buf_free = direct_buf_free, .post = ucx_post, .poll = ucx_poll, .now = direct_now,            \
    .coarse = direct_coarse, .pause = direct_pause, .node_stat = ucx_node_stat

const struct fab_ops ucx_fabric = {UCX_OPS, .identify = ucx_identify, .fence = ucx_fence};

/* Where a node offers rma. It cannot tell whose put it is, nor stop it: clients see to their leases
 * themselves, all of them, since each may have to do with any other. */
static const struct fab_ops ucx_unfenced = {UCX_OPS};

static int ucx_node_stat(struct fab_ep *ep, unsigned node, struct far_node_info *info)
{
    struct ucx_ep *e = (struct ucx_ep *)ep;
    const struct wire_counts *c = &e->link[node].question.counts;
    int rc = ask(e, node, WIRE_STAT, 0);

    if (rc)
        return rc;
    wire_node_info(c, &ucx_fab_of(e)->node[node].address, info);
    return FAR_OK;
}

static int read_mode(const char *text, enum ucx_mode *mode)
{
    static const char *const name[] = {[UCX_AUTO] = "auto", [UCX_AM] = "am", [UCX_RMA] = "rma"};

    *mode = UCX_AUTO;
    for (unsigned i = 0; text && i < sizeof name / sizeof *name; i++) {
        if (strcmp(text, name[i]) == 0) {
            *mode = (enum ucx_mode)i;
            return FAR_OK;
        }
    }
    return text ? fail(FAR_BAD_URI, "mode=%s where auto, am or rma is expected", text) : FAR_OK;
}

static int read_options(struct ucx_fab *u, struct uri *uri)
{
    const char *secret = uri_option(uri, "secret"), *rest = uri->rest;
    const char *mode = uri_option(uri, "mode");
    uint64_t timeout_ms;
    int rc =
        uri_number(uri, "timeout", TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MIN, TIMEOUT_MS_MAX, &timeout_ms);

    if (!rc)
        rc = fab_pool_options(uri, &u->fab.clients_wanted, &u->fab.lease_ms);
    if (!rc)
        rc = read_mode(mode, &u->mode);
    if (!rc)
        rc = uri_finish(uri);
    if (!rc)
        rc = wire_secret_load(secret, &u->secret);
    if (!rc && strncmp(rest, "//", 2) != 0)
        rc = fail(FAR_BAD_URI, "'%s' where //host:port is expected", rest);
    if (rc)
        return rc;
    u->timeout_ns = timeout_ms * 1000000;
    rest += 2;
    do {
        if (u->fab.nodes == FAB_NODES_MAX)
            return fail(FAR_BAD_URI, "more than %d nodes", FAB_NODES_MAX);
        rc = wire_address_next(&rest, &u->node[u->fab.nodes].address);
        u->fab.nodes++;
    } while (rc == FAR_OK && *rest);
    return rc;
}

/* The names of nodes are looked up once: a look-up can take seconds, and a thread that connects again
 * has other nodes to attend to. */
static int resolve(struct ucx_fab *u)
{
    for (unsigned i = 0; i < u->fab.nodes; i++) {
        struct ucx_node *node = &u->node[i];
        int rc = ucx_resolve(&node->address, false, &node->at, &node->at_bytes);

        if (rc)
            return rc;
        if (node->at.ss_family != u->node[0].at.ss_family)
            return fail(FAR_UNSUPPORTED, "%s and %s: one is IPv4, the other IPv6",
                        u->node[0].address.text, node->address.text);
    }
    return FAR_OK;
}

/* Is there a pool, or is this client to make it? If another is at it, waits. */
static int claim(struct ucx_fab *u)
{
    struct ucx_ep *e = (struct ucx_ep *)u->opener;
    uint64_t start = clock_ns();

    for (;;) {
        int rc = ask(e, 0, WIRE_CLAIM, 0);
        uint32_t value = e->link[0].question.value;

        if (rc)
            return rc;
        u->fab.fresh = value == WIRE_CLAIM_YOURS;
        if (value != WIRE_CLAIM_WAIT)
            return FAR_OK;
        if (clock_ns() - start > CLAIM_WAIT_NS)
            return fail(FAR_TIMEOUT, "another client has been making the pool on %s for %llu s",
                        link_name(&e->link[0]), CLAIM_WAIT_NS / 1000000000);
        direct_pause(&e->ep, CLAIM_PAUSE_NS);
    }
}

/* Meets every node: all of them have to be there when a pool is opened. */
static int meet(struct ucx_fab *u, bool rma)
{
    int rc;

    leave_context(u);
    u->rma = rma;
    rc = ucx_context_open("farside", rma, u->node[0].at.ss_family, &u->context);
    if (rc) {
        u->context = NULL;
        return rc;
    }
    rc = ucx_ep_open(&u->fab, &u->opener);
    for (unsigned i = 0; i < u->fab.nodes && rc == FAR_OK; i++)
        rc = ask((struct ucx_ep *)u->opener, i, WIRE_STAT, 0);
    return rc;
}

/* Whether put, get and atomics are real on the way to every node. */
static bool all_real(const struct ucx_fab *u)
{
    for (unsigned i = 0; i < u->fab.nodes; i++) {
        if (!u->node[i].real)
            return false;
    }
    return true;
}

/*
 * Meets the nodes and settles how verbs are done. A context with put and get lets in whoever can
 * connect to it, so there is none before all nodes have said that they offer it.
 */
static int settle(struct ucx_fab *u)
{
    const struct ucx_node *without = NULL, *by_nic = NULL;
    int rc = meet(u, false);

    if (rc)
        return rc;
    for (unsigned i = 0; i < u->fab.nodes; i++) {
        without = u->node[i].offers & WIRE_FLAG_RMA ? without : &u->node[i];
        by_nic = u->node[i].offers & WIRE_FLAG_BY_NIC ? &u->node[i] : by_nic;
        if (u->node[i].offers & WIRE_FLAG_RMA)
            u->fab.ops = &ucx_unfenced;
    }
    if (u->mode == UCX_RMA && without)
        return fail(FAR_UNSUPPORTED, "%s does not offer put, get and atomics (rma=1)",
                    without->address.text);
    if (u->mode != UCX_AM && !without) {
        rc = meet(u, true);
        if (rc == FAR_OK && (u->mode == UCX_RMA || all_real(u))) {
            u->fab.order = 0;
            u->fab.caps = 0;
            return FAR_OK;
        }
        if (u->mode == UCX_RMA)
            return rc;
        rc = meet(u, false);
    }
    if (rc == FAR_OK && by_nic)
        rc = fail(FAR_UNSUPPORTED,
                  "%s leaves atomics to its network card, and UCX does not reach that from here",
                  by_nic->address.text);
    return rc;
}

static int ucx_open(struct uri *uri, struct fab **fab)
{
    struct ucx_fab *u = calloc(1, sizeof *u);
    int rc;

    if (!u)
        return fail(FAR_NO_MEMORY, "ucx:");
    u->fab.ops = &ucx_fabric;
    u->fab.caps = FAB_CAP_MCAS;
    u->fab.order = ORDER_ALL;
    rc = read_options(u, uri);
    if (!rc)
        rc = resolve(u);
    if (!rc)
        rc = settle(u);
    if (!rc)
        rc = claim(u);
    for (unsigned i = 1; i < u->fab.nodes && rc == FAR_OK && u->fab.fresh; i++) {
        if (u->node[i].formatted)
            rc = fail(FAR_NOT_A_POOL, "%s has no pool yet, but %s is part of one",
                      u->node[0].address.text, u->node[i].address.text);
    }
    if (rc) {
        ucx_close(&u->fab);
        return rc;
    }
    *fab = &u->fab;
    return FAR_OK;
}
