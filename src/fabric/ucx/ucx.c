/*
 * ucx: - memory nodes on the network, by UCX.
 *
 * A request goes out as an active message and comes back as a reply. Requests that are posted
 * between two polls share a message, but 64 of them do not wait for the poll. The memory node
 * executes them in order, with the verbs of mem:, so the order is exact (ORDER_ALL) and masked CAS
 * is one verb. docs/wire.md has the protocol, ucx_internal.h the parts of this fabric.
 */
#include "fabric/backends.h"
#include "fabric/direct.h"
#include "fabric/ucx/ucx_internal.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_MS_MIN 10
#define TIMEOUT_MS_MAX 3600000
#define PROGRESS_MAX   256u /* calls of ucp_worker_progress() in one poll */

/* ---- progress -------------------------------------------------------------------------------- */

/* A request on a shared hub may have failed in another thread; this passes the detail on. */
static void take_detail(struct ucx_ep *e)
{
    if (e->failed != FAR_OK)
        (void)err_fail(e->failed, "%s", e->why);
    e->failed = FAR_OK;
}

static void ucx_poll(struct fab_ep *ep, bool wait)
{
    struct ucx_ep *e = (struct ucx_ep *)ep;
    struct ucx_hub *h = e->hub;
    struct ucx_spin spin = {0};
    uint64_t before = e->completed, now = clock_coarse_ns();

    ucx_hub_enter(h);
    ucx_hub_rise(e);
    /* Deadlines are checked when the coarse clock has moved: some hundred times a second. Before
     * that, replies are taken that came while the user did not poll. */
    if (now != h->looked && ucp_worker_progress(h->worker))
        h->stirred = true;
    ucx_hub_tend(h, now != h->looked ? now : 0);
    h->looked = now;
    for (unsigned i = 0; i < PROGRESS_MAX && ucp_worker_progress(h->worker); i++)
        h->stirred = true;
    ucx_hub_tend(h, 0);
    /* The loop ends: everything under way ends by its deadline. */
    while (wait && !e->answered && e->completed == before && e->pending > 0)
        ucx_hub_wait(e, &spin);
    ucx_hub_waited(e);
    ucx_take_answered(e);
    take_detail(e);
    ucx_hub_settle(h);
    ucx_hub_exit(h);
}

static int ucx_wait_fds(struct fab_ep *ep, int fds[FAB_WAIT_FDS], unsigned *count)
{
    return ucx_hub_wait_fds((struct ucx_ep *)ep, fds, count);
}

static bool ucx_arm(struct fab_ep *ep, uint64_t *until)
{
    struct ucx_ep *e = (struct ucx_ep *)ep;

    ucx_hub_enter(e->hub);
    bool armed = ucx_hub_arm(e, until);
    ucx_hub_exit(e->hub);
    return armed;
}

struct answer {
    uint32_t value;
    struct wire_counts counts;
};

/* Asks a node and waits for the answer. */
static int ask(struct ucx_ep *e, unsigned node, enum wire_type type, uint64_t identity,
               struct answer *answer)
{
    struct ucx_hub *h = e->hub;
    struct question *q = &h->conn[node].question;
    struct ucx_spin spin = {0};

    ucx_hub_enter(h);
    while (q->awaited) /* by another endpoint, until its deadline at most */
        ucx_hub_wait(e, &spin);
    *q = (struct question){
        .state = QUESTION_WAITING, .awaited = true, .type = type, .identity = identity};
    ucx_hub_tend(h, clock_ns());
    while (q->state != QUESTION_DONE) /* by its deadline at the latest */
        ucx_hub_wait(e, &spin);
    q->awaited = false;
    int rc = q->status;
    if (answer)
        *answer = (struct answer){.value = q->value, .counts = q->counts};
    ucx_hub_wake_all(h);
    ucx_hub_waited(e);
    ucx_hub_settle(h);
    ucx_hub_exit(h);
    return rc;
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static void ucx_ep_close(struct fab_ep *ep)
{
    struct ucx_ep *e = (struct ucx_ep *)ep;

    while (e->hub->shared && e->pending > 0)
        ucx_poll(ep, true);
    ucx_hub_enter(e->hub);
    ucx_hub_rise(e);
    ucx_hub_exit(e->hub);
    ucx_hub_leave(e);
    if (e->has_alarm)
        close(e->alarm);
    pthread_cond_destroy(&e->wakeup);
    free(e);
}

static int wakeup_init(pthread_cond_t *wakeup)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC); /* for sleeps that wait for messages */
    int error = pthread_cond_init(wakeup, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return error == 0 ? FAR_OK : err_fail(FAR_SYSTEM, "cannot make a condition variable");
}

static int ucx_ep_open(struct fab *fab, struct fab_ep **ep)
{
    struct ucx_ep *e = calloc(1, sizeof *e);

    if (!e)
        return err_fail(FAR_NO_MEMORY, "no memory for an endpoint of ucx:");
    e->ep = (struct fab_ep){.fab = fab, .ops = fab->ops};
    int rc = wakeup_init(&e->wakeup);
    if (rc != FAR_OK) {
        free(e);
        return rc;
    }
    rc = ucx_hub_join((struct ucx_fab *)fab, e);
    if (rc != FAR_OK) {
        pthread_cond_destroy(&e->wakeup);
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

/* The set of nodes that have confirmed to this endpoint that the client is shut out. */
static uint64_t *fenced_by(struct ucx_ep *e, uint64_t client)
{
    for (unsigned i = 0; i < UCX_FENCES; i++) {
        if (e->fence[i].client == client)
            return &e->fence[i].nodes;
    }
    e->fences = (e->fences + 1) % UCX_FENCES;
    e->fence[e->fences].client = client;
    e->fence[e->fences].nodes = 0;
    return &e->fence[e->fences].nodes;
}

/* A node that has refused the last connection says why: it may have lost its memory. */
static int away_or_pending(const struct ucx_conn *c)
{
    if (!ucx_conn_is_away(c))
        return FAB_PENDING;
    return c->refused_last ? c->refused_last : FAR_UNREACHABLE;
}

/* Within the hub: sends FENCE or FENCE_VIEW to the node, or returns its answer. */
static int fence_node(struct ucx_conn *c, enum wire_type type, uint64_t what)
{
    struct question *q = &c->question;
    bool ours = q->type == type && q->identity == what && q->state != QUESTION_NONE;
    bool unasked = q->state == QUESTION_NONE || q->state == QUESTION_DONE;

    if (q->awaited || (!ours && !unasked)) /* another question is under way */
        return away_or_pending(c);
    if (!ours)
        *q = (struct question){.state = QUESTION_WAITING, .type = type, .identity = what};
    if (q->state == QUESTION_WAITING)
        ucx_hub_tend(c->hub, 0);
    if (q->state != QUESTION_DONE)
        return away_or_pending(c);
    int rc = q->status;
    q->state = QUESTION_NONE;
    return rc;
}

static void enter_and_progress(struct ucx_hub *h)
{
    ucx_hub_enter(h);
    for (unsigned i = 0; i < PROGRESS_MAX && ucp_worker_progress(h->worker); i++)
        h->stirred = true;
    ucx_hub_tend(h, clock_ns());
}

/* Asks all nodes at once. Those that have confirmed it are not asked again. */
static int ucx_fence(struct fab_ep *ep, uint64_t client)
{
    struct ucx_hub *h = ucx_hub_of(ep);
    uint64_t *done = fenced_by((struct ucx_ep *)ep, client);
    unsigned pending = 0, failed = 0;
    int status = FAR_OK;

    enter_and_progress(h);
    for (unsigned i = 0; i < ep->fab->nodes; i++) {
        int rc = *done >> i & 1 ? FAR_OK : fence_node(&h->conn[i], WIRE_FENCE, client);

        if (rc == FAR_OK)
            *done |= 1ull << i;
        pending += rc == FAB_PENDING;
        if (rc < 0 && !(ep->fab->witnesses >> i & 1)) {
            status = rc;
            failed = i;
        }
    }
    ucx_hub_settle(h);
    ucx_hub_exit(h);
    if (status != FAR_OK)
        return err_fail(status, "%s could not be asked to shut out a client",
                        ((struct ucx_fab *)ep->fab)->wire.address[failed].text);
    return pending > 0 ? FAB_PENDING : FAR_OK;
}

static int ucx_fence_view(struct fab_ep *ep, unsigned node, uint32_t view)
{
    struct ucx_hub *h = ucx_hub_of(ep);

    enter_and_progress(h);
    int rc = fence_node(&h->conn[node], WIRE_FENCE_VIEW, view);
    ucx_hub_settle(h);
    ucx_hub_exit(h);
    return rc < 0 ? err_fail(rc, "%s could not be asked to refuse older views",
                             ((struct ucx_fab *)ep->fab)->wire.address[node].text)
                  : rc;
}

/* ---- the fabric ------------------------------------------------------------------------------ */

static void leave_opener(struct ucx_fab *u)
{
    if (u->opener)
        ucx_ep_close(u->opener);
    u->opener = NULL;
}

static void ucx_formatted(struct fab *fab)
{
    struct ucx_fab *u = (struct ucx_fab *)fab;

    /* Node 0 last, since it lets others in. If this fails, the next client that opens the pool
     * finds the superblock and sends FORMATTED itself. */
    for (unsigned i = fab->nodes; u->opener && i-- > 0;)
        if (!(fab_away(fab) >> i & 1))
            (void)ask((struct ucx_ep *)u->opener, i, WIRE_FORMATTED, 0, NULL);
    leave_opener(u);
}

static void ucx_close(struct fab *fab)
{
    struct ucx_fab *u = (struct ucx_fab *)fab;

    leave_opener(u);
    if (u->context)
        ucp_cleanup(u->context);
    pthread_mutex_destroy(&u->lock);
    wire_secret_forget(&u->wire.secret);
    free(u);
}

static int ucx_node_stat(struct fab_ep *ep, unsigned node, struct far_node_info *info)
{
    const struct ucx_fab *u = (const struct ucx_fab *)ep->fab;
    struct answer answer;
    int rc = ask((struct ucx_ep *)ep, node, WIRE_STAT, 0, &answer);

    if (rc != FAR_OK)
        return rc;
    wire_node_info(&answer.counts, &u->wire.address[node], info);
    return FAR_OK;
}

/* Names are looked up once, when the pool is opened: a look-up can take seconds, and would hold up
 * requests to other nodes if it were done at each new connection. */
static int resolve(struct ucx_fab *u)
{
    for (unsigned i = 0; i < u->fab.nodes; i++) {
        struct ucx_node *node = &u->node[i];
        int rc = ucx_resolve(&u->wire.address[i], false, &node->at, &node->at_bytes);

        if (rc != FAR_OK)
            return rc;
        if (node->at.ss_family != u->node[0].at.ss_family)
            return err_fail(FAR_UNSUPPORTED, "%s and %s: one is IPv4, the other IPv6",
                            u->wire.address[0].text, u->wire.address[i].text);
    }
    return FAR_OK;
}

static int claim(struct fab *fab, uint32_t *value)
{
    struct answer answer;
    int rc = ask((struct ucx_ep *)((struct ucx_fab *)fab)->opener, 0, WIRE_CLAIM, 0, &answer);

    *value = answer.value;
    return rc;
}

static const char *ucx_node_name(const struct fab *fab, unsigned node)
{
    return ((const struct ucx_fab *)fab)->wire.address[node].text;
}

static int connect_node(struct fab *fab, unsigned node)
{
    return ask((struct ucx_ep *)((struct ucx_fab *)fab)->opener, node, WIRE_STAT, 0, NULL);
}

static int connect_all(struct ucx_fab *u)
{
    int rc = ucx_context_open("farside", u->node[0].at.ss_family, &u->context);

    if (rc != FAR_OK) {
        u->context = NULL;
        return rc;
    }
    rc = ucx_ep_open(&u->fab, &u->opener);
    return rc == FAR_OK ? wire_nodes_connect(&u->fab, connect_node) : rc;
}

static int ucx_open(struct uri *uri, struct fab **fab);

const struct fab_ops ucx_fabric = {
    .scheme = "ucx",
    .open = ucx_open,
    .close = ucx_close,
    .formatted = ucx_formatted,
    .ep_open = ucx_ep_open,
    .ep_close = ucx_ep_close,
    .buf_alloc = direct_buf_alloc,
    .buf_free = direct_buf_free,
    .post = ucx_post,
    .poll = ucx_poll,
    .wait_fds = ucx_wait_fds,
    .arm = ucx_arm,
    .now = direct_now,
    .coarse = direct_coarse,
    .pause = direct_pause,
    .node_stat = ucx_node_stat,
    .node_name = ucx_node_name,
    .identify = ucx_identify,
    .fence = ucx_fence,
    .fence_view = ucx_fence_view,
};

static int ucx_open(struct uri *uri, struct fab **fab)
{
    struct ucx_fab *u = calloc(1, sizeof *u);

    if (!u)
        return err_fail(FAR_NO_MEMORY, "no memory for the fabric ucx:");
    if (pthread_mutex_init(&u->lock, NULL) != 0) {
        free(u);
        return err_fail(FAR_SYSTEM, "cannot make a lock");
    }
    u->fab.ops = &ucx_fabric;
    u->fab.caps = FAB_CAP_MCAS;
    u->fab.order = ORDER_ALL;
    int rc = wire_nodes_read(uri, TIMEOUT_MS_MIN, TIMEOUT_MS_MAX, &u->wire, &u->fab);
    if (rc == FAR_OK)
        rc = resolve(u);
    if (rc == FAR_OK)
        rc = connect_all(u);
    if (rc == FAR_OK)
        rc = wire_nodes_claim(&u->wire, &u->fab, claim);
    if (rc != FAR_OK) {
        ucx_close(&u->fab);
        return rc;
    }
    *fab = &u->fab;
    return FAR_OK;
}
