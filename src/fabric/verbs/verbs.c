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
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_MS_MIN 50
#define TIMEOUT_MS_MAX 600000

#define SPIN_NS       20000 /* polling before sleeping: several round trips of a real network */
#define COMPLETIONS   32    /* taken at once                                                   */
#define IDLE_POLLS    1024  /* between two checks for lost connections                         */
#define LOOK_AFTER_NS 100000000
#define COARSE_NS     15000000 /* by which the coarse clock may lag                               */
#define ERRAND_LOOK_NS                                                                             \
    10000000 /* between two resumptions of errands, if nothing happens          */

/* ---- completions ----------------------------------------------------------------------------- */

void verbs_conn_push_run(struct verbs_conn *c, struct fab_req *req, unsigned wrs)
{
    unsigned last = (c->run_first + c->run_count) % c->run_size;

    ASSERT(c->run_count < c->run_size && wrs <= c->wrs_free);
    if (c->run_count == 0)
        c->progress_at = clock_coarse_ns();
    c->run[last] = (struct run){.req = req, .wrs = wrs};
    c->run_count++;
    c->wrs_free -= wrs;
    c->ep->busy |= 1ull << c->node;
}

static void pop_run(struct verbs_conn *c)
{
    ASSERT(c->run_count > 0);
    struct run run = c->run[c->run_first];

    c->run_first = (c->run_first + 1) % c->run_size;
    c->wrs_free += run.wrs;
    if (--c->run_count == 0)
        c->ep->busy &= ~(1ull << c->node);
    if (run.req)
        req_part_done(run.req, FAR_OK);
}

static bool drain_conn(struct verbs_conn *c)
{
    struct ibv_wc wc[COMPLETIONS];
    int count = ibv_poll_cq(c->qp.cq, COMPLETIONS, wc);

    for (int i = 0; i < count; i++) {
        if (wc[i].status != IBV_WC_SUCCESS) {
            verbs_conn_lose(c, wc[i].status == IBV_WC_RETRY_EXC_ERR
                                   ? "does not answer"
                                   : ibv_wc_status_str(wc[i].status));
            return true;
        }
        if (wc[i].opcode & IBV_WC_RECV)
            c->in_bytes = wc[i].byte_len;
        else
            pop_run(c);
    }
    if (count > 0)
        c->progress_at = clock_coarse_ns();
    return count > 0;
}

/* ---- posting --------------------------------------------------------------------------------- */

static void describe(const struct verbs_conn *c, const struct fab_verb *v, uint32_t from,
                     uint32_t len, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
    uint64_t at = c->base + v->off + from;

    sge->addr = (uintptr_t)v->buf + from;
    sge->length = len;
    sge->lkey = arena_key(&c->ep->arena, (const char *)v->buf + from);
    wr->wr_id = 0;
    wr->next = NULL;
    wr->sg_list = sge;
    wr->num_sge = 1;
    wr->send_flags = (v->flags & FAB_FENCE) && from == 0 ? IBV_SEND_FENCE : 0;
    if (v->kind == FAB_READ || v->kind == FAB_WRITE) {
        wr->opcode = v->kind == FAB_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        wr->wr.rdma.remote_addr = at;
        wr->wr.rdma.rkey = c->rkey;
        if (v->kind == FAB_WRITE && len <= c->qp.inline_max)
            wr->send_flags |= IBV_SEND_INLINE;
        return;
    }
    wr->opcode = v->kind == FAB_CAS ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr->wr.atomic.remote_addr = at;
    wr->wr.atomic.rkey = c->rkey;
    wr->wr.atomic.compare_add = v->kind == FAB_CAS ? v->compare : v->swap;
    wr->wr.atomic.swap = v->swap;
}

static void append(struct verbs_conn *c, struct ibv_send_wr *wr)
{
    if (c->list_wrs++ == 0)
        c->list = wr;
    else
        c->list_last->next = wr;
    c->list_last = wr;
}

static void post_list(struct verbs_conn *c, struct fab_req *req)
{
    struct ibv_send_wr *bad;

    ASSERT(c->list_wrs > 0);
    c->list_last->send_flags |= IBV_SEND_SIGNALED;
    req->parts++;
    verbs_conn_push_run(c, req, c->list_wrs);
    c->list_wrs = 0;
    int error = ibv_post_send(c->qp.ibv, c->list, &bad);
    if (error)
        verbs_conn_lose(c, strerror(error));
}

/* Posts as much of the first request as there is room for. False: there was no room. */
static bool post_some(struct verbs_ep *e)
{
    uint64_t message_max = fab_of(e)->limits.message_max, touched = 0;
    struct fab_req *req = e->first;
    unsigned used = 0;

    for (; e->verb < req->count && used < PASS_WRS && req->status == FAR_OK; used++) {
        const struct fab_verb *v = &req->verbs[e->verb];
        struct verbs_conn *c = &e->conn[v->node];
        uint32_t len = v->len - e->verb_bytes;

        if (!c->up || c->list_wrs == c->wrs_free)
            break;
        if (len > message_max)
            len = (uint32_t)message_max;
        describe(c, v, e->verb_bytes, len, &e->wr[used], &e->sge[used]);
        append(c, &e->wr[used]);
        touched |= 1ull << v->node;
        e->verb_bytes += len;
        if (e->verb_bytes == v->len) {
            e->verb++;
            e->verb_bytes = 0;
        }
    }
    for (; touched; touched &= touched - 1)
        post_list(&e->conn[__builtin_ctzll(touched)], req);
    return used > 0;
}

/* A request that has lost a part, or has verbs left for a node whose connection is lost, goes no
 * further: its later verbs must not take effect on a new connection without those that were
 * lost. */
static bool stranded(struct verbs_ep *e)
{
    struct fab_req *req = e->first;
    const struct verbs_conn *c;

    if (req->status != FAR_OK)
        return true;
    if (e->verb == req->count)
        return false;
    c = &e->conn[req->verbs[e->verb].node];
    if (c->up)
        return false;
    req->status = err_fail(e->verb == 0 && e->verb_bytes == 0 ? FAR_UNREACHABLE : FAR_UNKNOWN,
                           "node %u (%s): the connection was lost", c->node,
                           fab_of(e)->wire.address[c->node].text);
    return true;
}

/* Posts waiting requests, as far as there is room. */
static void advance(struct verbs_ep *e)
{
    while (e->first) {
        struct fab_req *req = e->first;
        bool some = post_some(e);

        if (!stranded(e) && e->verb < req->count) {
            if (!some)
                return;
            continue;
        }
        e->first = req->next;
        e->verb = 0;
        e->verb_bytes = 0;
        req_part_done(req, FAR_OK);
    }
}

/* The node may have closed an idle connection meanwhile, for example because others declared this
 * client dead. It is better to know that before something is posted. */
static int usable(struct verbs_conn *c)
{
    if (c->up && c->run_count == 0 && clock_coarse_ns() > c->progress_at + LOOK_AFTER_NS) {
        c->progress_at = clock_coarse_ns();
        verbs_ep_events(c->ep);
    }
    return verbs_conn_need(c);
}

static int verbs_post(struct fab_ep *ep, struct fab_req *req)
{
    struct verbs_ep *e = (struct verbs_ep *)ep;
    uint64_t seen = 0;

    for (unsigned i = 0; i < req->count; i++) {
        unsigned node = req->verbs[i].node;
        int rc = seen & (1ull << node) ? FAR_OK : usable(&e->conn[node]);

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
    advance(e);
    return FAR_OK;
}

/* ---- progress -------------------------------------------------------------------------------- */

bool verbs_ep_drain(struct verbs_ep *e)
{
    bool some = false;

    for (uint64_t left = e->busy | e->asking; left; left &= left - 1)
        some |= drain_conn(&e->conn[__builtin_ctzll(left)]);
    if (some && e->first)
        advance(e);
    return some;
}

/* Ends connections without progress for the time-out. */
static void end_stalled(struct verbs_ep *e)
{
    uint64_t now = clock_coarse_ns(), limit = fab_of(e)->wire.timeout_ms * 1000000;

    for (uint64_t left = e->busy; left; left &= left - 1) {
        struct verbs_conn *c = &e->conn[__builtin_ctzll(left)];

        if (now >= c->progress_at + limit)
            verbs_conn_lose(c, "does not answer");
    }
}

/* Finds lost connections, which polling for completions does not. True: there was one. */
static bool look_around(struct verbs_ep *e)
{
    uint64_t before = e->busy;

    verbs_ep_events(e);
    end_stalled(e);
    if (e->busy != before && e->first)
        advance(e);
    return e->busy != before;
}

static void arm(struct verbs_ep *e)
{
    for (uint64_t left = e->busy | e->asking; left; left &= left - 1)
        ibv_req_notify_cq(e->conn[__builtin_ctzll(left)].qp.cq, 0);
}

static void take_notices(struct verbs_ep *e)
{
    struct ibv_cq *cq;
    void *context;

    for (unsigned i = 0; i < 2 * FAB_NODES_MAX; i++) {
        if (ibv_get_cq_event(e->completions, &cq, &context) != 0)
            return;
        ibv_ack_cq_events(cq, 1);
    }
}

bool verbs_ep_sleep(struct verbs_ep *e, uint64_t until)
{
    struct pollfd fd[2] = {{.fd = e->completions->fd, .events = POLLIN},
                           {.fd = e->cm->fd, .events = POLLIN}};
    uint64_t now = clock_ns(), slice = fab_of(e)->wire.timeout_ms * 1000000 / 4;

    arm(e);
    if (verbs_ep_drain(e)) /* it may have arrived before the arming */
        return true;
    if (until > now && until - now < slice)
        slice = until - now;
    if (until > now)
        poll(fd, 2, (int)(slice / 1000000) + 1);
    take_notices(e);
    return verbs_ep_drain(e) || look_around(e);
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

/* When the first connection reaches the time-out without progress. */
static uint64_t first_stall(const struct verbs_ep *e)
{
    uint64_t first = UINT64_MAX, limit = fab_of(e)->wire.timeout_ms * 1000000;

    for (uint64_t left = e->busy; left; left &= left - 1) {
        const struct verbs_conn *c = &e->conn[__builtin_ctzll(left)];

        if (c->progress_at + limit < first)
            first = c->progress_at + limit;
    }
    return first == UINT64_MAX ? first : first + COARSE_NS;
}

/* Errands have their own time-outs, which are not known here: they are resumed now and then. */
static bool verbs_arm(struct fab_ep *ep, uint64_t *until)
{
    struct verbs_ep *e = (struct verbs_ep *)ep;
    uint64_t soon = clock_ns() + ERRAND_LOOK_NS;

    take_notices(e);
    arm(e);
    if (verbs_ep_drain(e) || look_around(e) || (e->first && !e->busy))
        return false;
    *until = first_stall(e);
    if (e->errands != 0 && soon < *until)
        *until = soon;
    return true;
}

static void verbs_poll(struct fab_ep *ep, bool wait)
{
    struct verbs_ep *e = (struct verbs_ep *)ep;
    uint64_t spin_until;

    verbs_errands_resume(e);
    if (verbs_ep_drain(e))
        return;
    if (!e->busy) {
        advance(e); /* fails what waits for a connection that was lost */
        return;
    }
    if (!wait) {
        if (++e->idle_polls % IDLE_POLLS == 0)
            look_around(e);
        return;
    }
    spin_until = clock_ns() + SPIN_NS;
    while (clock_ns() < spin_until) {
        if (verbs_ep_drain(e))
            return;
    }
    while (!verbs_ep_sleep(e, UINT64_MAX)) /* something ends by the time-out at the latest */
        verbs_errands_resume(e);
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static void verbs_ep_close(struct fab_ep *ep)
{
    struct verbs_ep *e = (struct verbs_ep *)ep;

    for (unsigned i = 0; i < ep->fab->nodes; i++) {
        verbs_errand_drop(&e->conn[i]);
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
        return err_fail(FAR_NO_MEMORY, "an endpoint of verbs:");
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

/* A node that cannot be told now learns the identity when the connection is made again. */
static void verbs_identify(struct fab_ep *ep, uint64_t identity)
{
    struct verbs_ep *e = (struct verbs_ep *)ep;

    e->identity = identity;
    verbs_ep_events(e);
    for (unsigned i = 0; i < ep->fab->nodes; i++) {
        struct verbs_conn *c = &e->conn[i];
        int rc = c->up ? verbs_conn_client(c, WIRE_IDENTIFY, identity)
                       : FAR_OK; /* else when it is made */

        if (rc != FAR_OK && c->up)
            verbs_conn_break(c);
    }
}

/* The task of an errand: asks the node to shut a client out. */
static void ask_fence(struct verbs_conn *c)
{
    uint64_t client = c->ep->fenced_client;

    c->fence_status = verbs_conn_client(c, WIRE_FENCE, client);
    c->fenced = client;
}

/* Asks the node to shut the client out, or returns its answer. */
static int fence_node(struct verbs_conn *c, uint64_t client)
{
    if (!c->up && !c->out && clock_ns() < c->not_before)
        return err_fail(c->down_status, "%s", c->down_why);
    if (!c->up && !c->out)
        verbs_errand_start(c, verbs_conn_connect);
    if (c->up && !c->out && c->fenced != client)
        verbs_errand_start(c, ask_fence);
    if (c->out || c->fenced != client) /* another errand may have to end first */
        return atomic_load(&fab_of(c->ep)->away[c->node])
                   ? err_fail(FAR_UNREACHABLE, "node %u (%s) is away", c->node,
                              fab_of(c->ep)->wire.address[c->node].text)
                   : FAB_PENDING;
    c->fenced = 0; /* if it has failed, the next call asks again */
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
    verbs_errands_resume(e);
    for (unsigned i = 0; i < ep->fab->nodes; i++) {
        int rc = e->fenced >> i & 1 ? FAR_OK : fence_node(&e->conn[i], client);

        if (rc == FAR_OK)
            e->fenced |= 1ull << i;
        pending += rc == FAB_PENDING;
        status = rc < 0 ? rc : status;
    }
    return status != FAR_OK ? status : pending > 0 ? FAB_PENDING : FAR_OK;
}

static int verbs_node_stat(struct fab_ep *ep, unsigned node, struct far_node_info *info)
{
    struct verbs_conn *c = &((struct verbs_ep *)ep)->conn[node];
    const struct wire_head *answer;
    struct wire_head question;
    int rc = verbs_conn_need(c);

    if (rc == FAR_OK)
        rc = verbs_conn_ask(c, WIRE_STAT, &question, sizeof question, &answer);
    if (rc == FAR_OK && answer->type != WIRE_COUNTS)
        rc = err_fail(FAR_UNREACHABLE, "node %u (%s): sent an unexpected answer", node,
                      fab_of(c->ep)->wire.address[node].text);
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
    explicit_bzero(&v->wire.secret, sizeof v->wire.secret);
    free(v);
}

/* Node 0 last, since it lets others in. If this fails, the next client that opens the pool finds
 * the superblock and sends FORMATTED itself. */
static void verbs_formatted(struct fab *fab)
{
    struct verbs_fab *v = (struct verbs_fab *)fab;
    struct wire_head question;

    for (unsigned i = fab->nodes; v->opener && i-- > 0;) {
        if (v->opener->conn[i].up)
            (void)verbs_conn_order(&v->opener->conn[i], WIRE_FORMATTED, &question, sizeof question,
                                   NULL);
    }
    drop_opener(v);
}

static int claim(struct fab *fab, uint32_t *value)
{
    struct wire_head question;

    return verbs_conn_order(&((struct verbs_fab *)fab)->opener->conn[0], WIRE_CLAIM, &question,
                            sizeof question, value);
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
                                     .node_stat = verbs_node_stat};

static int verbs_open(struct uri *uri, struct fab **fab)
{
    struct verbs_fab *v = calloc(1, sizeof *v);
    struct fab_ep *opener = NULL;
    int rc;

    if (!v)
        return err_fail(FAR_NO_MEMORY, "verbs:");
    v->fab.ops = &verbs_fabric;
    v->fab.order = ORDER_IB;
    rc = wire_nodes_read(uri, TIMEOUT_MS_MIN, TIMEOUT_MS_MAX, &v->wire, &v->fab);
    for (unsigned i = 0; i < v->fab.nodes && rc == FAR_OK; i++)
        rc = resolve(v, i);
    if (rc == FAR_OK)
        rc = verbs_ep_open(&v->fab, &opener);
    v->opener = (struct verbs_ep *)opener;
    for (unsigned i = 0; i < v->fab.nodes && rc == FAR_OK; i++)
        rc = verbs_conn_need(&v->opener->conn[i]);
    if (rc == FAR_OK)
        rc = wire_nodes_claim(&v->wire, &v->fab, claim);
    if (rc != FAR_OK) {
        verbs_close(&v->fab);
        return rc;
    }
    *fab = &v->fab;
    return FAR_OK;
}
