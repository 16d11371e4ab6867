/*
 * verbs: - memory nodes reached by RDMA, through libibverbs and librdmacm.
 *
 * A request becomes one list of work requests per node, handed to the device by one call. Only the
 * last of each list is signalled: the queue pair completes in order, so its completion stands for
 * all of them. A failure of any one ends the connection with its own error. Work requests that the
 * send queue has no room for wait, in order, until something completes.
 *
 * Order is that of the reliable connection (ORDER_IB): the work requests of one request go to a
 * node in posting order through one queue pair, the node's memory is never registered with relaxed
 * ordering, and FAB_FENCE is the device's own fence, which holds a work request and those behind it
 * back until earlier READs and atomics have returned. WRITEs need none: they are executed in order.
 * FABRIC-F4 holds because a completion is the node's acknowledgement.
 *
 * When a connection is lost, or makes no progress for the time-out while something is under way,
 * everything under way on it ends with FAR_UNKNOWN, and what was not posted yet with
 * FAR_UNREACHABLE. The next request that needs the connection makes it again (verbs_conn.c).
 */
#include "base/clock.h"
#include "fabric/backends.h"
#include "fabric/direct.h"
#include "fabric/verbs/verbs_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS_MIN 50
#define TIMEOUT_MS_MAX 600000

#define SPIN_NS       20000 /* polling before sleeping: several round trips of a real network */
#define IDLE_POLLS    1024  /* between two checks for lost connections                         */
#define LOOK_AFTER_NS 100000000

/* ---- posting and polling --------------------------------------------------------------------- */

/* The node may have closed an idle connection meanwhile, for example because others declared this
 * client dead. It is better to know that before something is posted. */
static int usable(struct verbs_conn *c, uint32_t view)
{
    if (c->up && c->run_count == 0 && clock_coarse_ns() > c->progress_at + LOOK_AFTER_NS) {
        c->progress_at = clock_coarse_ns();
        verbs_ep_events(c->ep);
    }
    return verbs_conn_need_view(c, view);
}

static int verbs_post(struct fab_ep *ep, struct fab_req *req)
{
    struct verbs_ep *e = (struct verbs_ep *)ep;
    uint64_t seen = 0;

    for (unsigned i = 0; i < req->count; i++) {
        unsigned node = req->verbs[i].node;
        int rc = seen & (1ull << node) ? FAR_OK : usable(&e->conn[node], req->view);

        if (rc != FAR_OK)
            return rc;
        seen |= 1ull << node;
    }
    req->done = false;
    req->status = FAR_OK;
    req->parts = 1; /* itself, until all of it is posted */
    req->next = NULL;
    if (e->first) {
        ASSERT(e->last != req); /* posted twice */
        e->last->next = req;
        e->last = req;
        return FAR_OK;
    }
    e->first = e->last = req;
    verbs_ep_advance(e);
    return FAR_OK;
}

static int verbs_wait_fds(struct fab_ep *ep, int fds[FAB_WAIT_FDS], unsigned *count)
{
    const struct verbs_ep *e = (const struct verbs_ep *)ep;

    ASSERT(e->completions); /* the endpoint has been connected, to register a client */
    fds[0] = e->completions->fd;
    fds[1] = e->cm->fd;
    *count = 2;
    return FAR_OK;
}

static void verbs_poll(struct fab_ep *ep, bool wait)
{
    struct verbs_ep *e = (struct verbs_ep *)ep;

    verbs_jobs_resume(e);
    if (verbs_ep_drain(e))
        return;
    if (!e->busy) {
        verbs_ep_advance(e); /* fails what waits for a connection that was lost */
        return;
    }
    if (!wait) {
        if (++e->idle_polls % IDLE_POLLS == 0)
            verbs_ep_look_around(e);
        return;
    }
    uint64_t spin_until = clock_ns() + SPIN_NS;
    while (clock_ns() < spin_until) {
        if (verbs_ep_drain(e))
            return;
    }
    while (!verbs_ep_sleep(e, UINT64_MAX)) /* something ends by the time-out at the latest */
        verbs_jobs_resume(e);
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static void verbs_ep_close(struct fab_ep *ep)
{
    struct verbs_ep *e = (struct verbs_ep *)ep;

    for (unsigned i = 0; i < ep->fab->nodes; i++) {
        verbs_job_drop(&e->conn[i]);
        if (e->conn[i].qp.id)
            verbs_conn_break(&e->conn[i]);
    }
    verbs_arena_close(&e->arena);
    if (e->completions)
        ibv_destroy_comp_channel(e->completions);
    if (e->cm)
        rdma_destroy_event_channel(e->cm);
    free(e);
}

static int verbs_ep_open(struct fab *fab, struct fab_ep **ep)
{
    struct verbs_ep *e = calloc(1, sizeof *e + fab->nodes * sizeof e->conn[0]);
    int rc = FAR_OK;

    if (!e)
        return err_fail(FAR_NO_MEMORY, "no memory for an endpoint of verbs:");
    e->ep.fab = fab;
    e->ep.ops = fab->ops;
    for (unsigned i = 0; i < fab->nodes && rc == FAR_OK; i++) {
        e->conn[i].ep = e;
        e->conn[i].node = i;
        rc = wire_random(&e->conn[i].link, sizeof e->conn[i].link);
    }
    if (rc == FAR_OK)
        rc = verbs_arena_open(&e->arena);
    e->arena.pd = ((struct verbs_fab *)fab)->pd;
    if (rc == FAR_OK) {
        e->cm = rdma_create_event_channel();
        if (!e->cm)
            rc = err_fail(FAR_UNSUPPORTED, "no RDMA on this machine: %s", strerror(errno));
    }
    if (rc != FAR_OK) {
        verbs_ep_close(&e->ep);
        return rc;
    }
    fcntl(e->cm->fd, F_SETFL, fcntl(e->cm->fd, F_GETFL) | O_NONBLOCK);
    *ep = &e->ep;
    return FAR_OK;
}

static void *verbs_buf_alloc(struct fab_ep *ep, size_t bytes)
{
    return verbs_arena_alloc(&((struct verbs_ep *)ep)->arena, bytes);
}

static void verbs_buf_free(struct fab_ep *ep, void *buf, size_t bytes)
{
    verbs_arena_free(&((struct verbs_ep *)ep)->arena, buf, bytes);
}

/* A node that cannot be reached now learns the identity when the connection is made again. */
static void verbs_identify(struct fab_ep *ep, uint64_t identity)
{
    struct verbs_ep *e = (struct verbs_ep *)ep;

    e->identity = identity;
    verbs_ep_events(e);
    for (unsigned i = 0; i < ep->fab->nodes; i++) {
        struct verbs_conn *c = &e->conn[i];
        int rc = c->up ? verbs_conn_identify(c, c->view, NULL) : FAR_OK; /* else when it is made */

        if (rc != FAR_OK && c->up)
            verbs_conn_break(c);
    }
}

/* A job: asks the node to shut a client or older views out. */
static void ask_fence(struct verbs_conn *c)
{
    c->fence_status = verbs_conn_fence(c, c->fence);
    c->fenced = true;
}

/* Asks the node that, or returns its answer. */
static int fence_node(struct verbs_conn *c, enum wire_type type, uint64_t what)
{
    bool ours = c->fence.type == type && c->fence.what == what;

    if (!c->up && !c->out && clock_ns() < c->not_before)
        return err_fail(c->down_status, "%s", c->down_why);
    if (!c->up && !c->out)
        verbs_job_start(c, verbs_conn_connect);
    if (c->up && !c->out && !(ours && c->fenced)) {
        c->fence = (struct verbs_fence){type, what};
        c->fenced = false;
        ours = true;
        verbs_job_start(c, ask_fence);
    }
    if (c->out || !ours || !c->fenced) /* another job may have to end first */
        return atomic_load(&fab_of(c->ep)->away[c->node])
                   ? err_fail(FAR_UNREACHABLE, "node %u (%s) is away", c->node,
                              fab_of(c->ep)->wire.address[c->node].text)
                   : FAB_PENDING;
    c->fenced = false; /* if it has failed, the next call asks again */
    return c->fence_status;
}

static int verbs_fence(struct fab_ep *ep, uint64_t client)
{
    struct verbs_ep *e = (struct verbs_ep *)ep;
    unsigned pending = 0;
    int status = FAR_OK;

    if (e->fenced_client != client)
        e->fenced = 0;
    e->fenced_client = client;
    verbs_jobs_resume(e);
    for (unsigned i = 0; i < ep->fab->nodes; i++) {
        int rc = e->fenced >> i & 1 ? FAR_OK : fence_node(&e->conn[i], WIRE_FENCE, client);

        if (rc == FAR_OK)
            e->fenced |= 1ull << i;
        pending += rc == FAB_PENDING;
        if (!(ep->fab->witnesses >> i & 1))
            status = rc < 0 ? rc : status;
    }
    return status != FAR_OK ? status : pending > 0 ? FAB_PENDING : FAR_OK;
}

static int verbs_fence_view(struct fab_ep *ep, unsigned node, uint32_t view)
{
    struct verbs_ep *e = (struct verbs_ep *)ep;

    verbs_jobs_resume(e);
    return fence_node(&e->conn[node], WIRE_FENCE_VIEW, view);
}

static int verbs_node_stat(struct fab_ep *ep, unsigned node, struct far_node_info *info)
{
    struct verbs_conn *c = &((struct verbs_ep *)ep)->conn[node];
    const struct wire_head *answer;
    struct wire_head question = {0};
    int rc = verbs_conn_need(c);

    if (rc == FAR_OK)
        rc = verbs_conn_ask(c, WIRE_STAT, &question, sizeof question, &answer);
    if (rc == FAR_OK && answer->type != WIRE_COUNTS)
        rc = node_fail(c, FAR_UNREACHABLE, "sent an unexpected answer");
    if (rc == FAR_OK)
        wire_node_info((const struct wire_counts *)answer, &fab_of(c->ep)->wire.address[node],
                       info);
    return rc;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void drop_opener(struct verbs_fab *fab)
{
    if (fab->opener)
        verbs_ep_close(&fab->opener->ep);
    fab->opener = NULL;
}

static void verbs_close(struct fab *fab)
{
    struct verbs_fab *v = (struct verbs_fab *)fab;

    drop_opener(v);
    if (v->pd)
        ibv_dealloc_pd(v->pd);
    wire_secret_forget(&v->wire.secret);
    free(v);
}

/* Node 0 last, since it lets others in. If this fails, the next client that opens the pool finds
 * the superblock and sends FORMATTED itself. */
static void verbs_formatted(struct fab *fab)
{
    struct verbs_fab *v = (struct verbs_fab *)fab;
    struct wire_head question = {0};

    for (unsigned i = fab->nodes; v->opener && i-- > 0;) {
        if (v->opener->conn[i].up)
            (void)verbs_conn_order(&v->opener->conn[i], WIRE_FORMATTED, &question, sizeof question,
                                   NULL);
    }
    drop_opener(v);
}

static int claim(struct fab *fab, uint32_t *value)
{
    struct wire_head question = {0};

    return verbs_conn_order(&((struct verbs_fab *)fab)->opener->conn[0], WIRE_CLAIM, &question,
                            sizeof question, value);
}

static int connect_node(struct fab *fab, unsigned node)
{
    return verbs_conn_need(&((struct verbs_fab *)fab)->opener->conn[node]);
}

static const char *verbs_node_name(const struct fab *fab, unsigned node)
{
    return ((const struct verbs_fab *)fab)->wire.address[node].text;
}

static int resolve(struct verbs_fab *v, unsigned node)
{
    struct addrinfo wish = {.ai_socktype = SOCK_STREAM}, *found;
    int error = getaddrinfo(v->wire.address[node].host, v->wire.address[node].port, &wish, &found);

    if (error)
        return err_fail(FAR_UNREACHABLE, "node %u (%s): %s", node, v->wire.address[node].text,
                        gai_strerror(error));
    memcpy(&v->resolved[node], found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return FAR_OK;
}

static int verbs_open(struct uri *uri, struct fab **fab);

const struct fab_ops verbs_fabric = {.scheme = "verbs",
                                     .open = verbs_open,
                                     .close = verbs_close,
                                     .formatted = verbs_formatted,
                                     .ep_open = verbs_ep_open,
                                     .ep_close = verbs_ep_close,
                                     .buf_alloc = verbs_buf_alloc,
                                     .buf_free = verbs_buf_free,
                                     .post = verbs_post,
                                     .poll = verbs_poll,
                                     .wait_fds = verbs_wait_fds,
                                     .arm = verbs_arm,
                                     .now = direct_now,
                                     .coarse = direct_coarse,
                                     .pause = direct_pause,
                                     .identify = verbs_identify,
                                     .fence = verbs_fence,
                                     .fence_view = verbs_fence_view,
                                     .node_stat = verbs_node_stat,
                                     .node_name = verbs_node_name};

static int verbs_open(struct uri *uri, struct fab **fab)
{
    struct verbs_fab *v = calloc(1, sizeof *v);
    struct fab_ep *opener = NULL;

    if (!v)
        return err_fail(FAR_NO_MEMORY, "no memory for the fabric verbs:");
    v->fab.ops = &verbs_fabric;
    v->fab.order = ORDER_IB;
    v->fab.outstanding = FAB_OUTSTANDING;
    int rc = wire_nodes_read(uri, TIMEOUT_MS_MIN, TIMEOUT_MS_MAX, &v->wire, &v->fab);
    for (unsigned i = 0; i < v->fab.nodes && rc == FAR_OK; i++)
        rc = resolve(v, i);
    if (rc == FAR_OK)
        rc = verbs_ep_open(&v->fab, &opener);
    v->opener = (struct verbs_ep *)opener;
    if (rc == FAR_OK)
        rc = wire_nodes_connect(&v->fab, connect_node);
    if (rc == FAR_OK)
        rc = wire_nodes_claim(&v->wire, &v->fab, claim);
    if (rc != FAR_OK) {
        verbs_close(&v->fab);
        return rc;
    }
    *fab = &v->fab;
    return FAR_OK;
}
