/*
 * The verbs fabric: what is under way on connections, from posting to completion, and how
 * connections are lost.
 *
 *   VERBS-V2  Once verbs_conn_break() has returned, the device touches no buffer for that
 *       connection any more, and every request that had a part on it has its status.
 */
#include "base/clock.h"
#include "fabric/verbs/verbs_internal.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define COMPLETIONS 32       /* taken at once                                              */
#define COARSE_NS   15000000 /* by which the coarse clock may lag                          */
#define JOB_LOOK_NS 10000000 /* between two resumptions of jobs, if nothing happens     */

/* ---- runs ------------------------------------------------------------------------------------ */

/* A part of the request is over. */
static void req_part_done(struct fab_req *req, int status)
{
    ASSERT(req->parts > 0 && !req->done);
    if (status != FAR_OK && req->status == FAR_OK)
        req->status = status;
    if (--req->parts == 0)
        fab_complete(req, req->status);
}

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

/* ---- losing a connection --------------------------------------------------------------------- */

void verbs_conn_break(struct verbs_conn *c)
{
    c->up = false;
    if (c->qp.id)
        rdma_disconnect(c->qp.id);
    verbs_qp_destroy(&c->qp);
    c->ep->busy &= ~(1ull << c->node);
    c->ep->asking &= ~(1ull << c->node);
    for (unsigned i = 0; i < c->run_count; i++) {
        struct fab_req *req = c->run[(c->run_first + i) % c->run_size].req;

        if (req)
            req_part_done(req, FAR_UNKNOWN);
    }
    c->run_count = 0;
    free(c->run);
    c->run = NULL;
}

static void lose(struct verbs_conn *c, const char *why)
{
    verbs_conn_break(c);
    (void)node_fail(c, FAR_UNREACHABLE, why);
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
        lose(c, strerror(error));
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

        if (!verbs_conn_fits(c, req) || c->list_wrs == c->wrs_free)
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
 * lost. Nor on one of another view: it may have been made since. */
static bool stranded(struct verbs_ep *e)
{
    struct fab_req *req = e->first;
    const struct verbs_conn *c;

    if (req->status != FAR_OK)
        return true;
    if (e->verb == req->count)
        return false;
    c = &e->conn[req->verbs[e->verb].node];
    if (verbs_conn_fits(c, req))
        return false;
    req->status = node_fail(c, e->verb == 0 && e->verb_bytes == 0 ? FAR_UNREACHABLE : FAR_UNKNOWN,
                            "the connection was lost");
    return true;
}

void verbs_ep_advance(struct verbs_ep *e)
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

/* ---- completions ----------------------------------------------------------------------------- */

static bool drain_conn(struct verbs_conn *c)
{
    struct ibv_wc wc[COMPLETIONS];
    int count = ibv_poll_cq(c->qp.cq, COMPLETIONS, wc);

    for (int i = 0; i < count; i++) {
        if (wc[i].status != IBV_WC_SUCCESS) {
            lose(c, wc[i].status == IBV_WC_RETRY_EXC_ERR ? "does not answer"
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

bool verbs_ep_drain(struct verbs_ep *e)
{
    bool some = false;

    for (uint64_t left = e->busy | e->asking; left; left &= left - 1)
        some |= drain_conn(&e->conn[__builtin_ctzll(left)]);
    if (some && e->first)
        verbs_ep_advance(e);
    return some;
}

/* ---- the connection manager's events --------------------------------------------------------- */

/* Copies the next event. False: there is none. */
static bool next_event(struct verbs_ep *e, struct rdma_cm_event *copy)
{
    struct rdma_cm_event *event;

    if (rdma_get_cm_event(e->cm, &event) != 0)
        return false;
    *copy = *event;
    rdma_ack_cm_event(event);
    return true;
}

/* Keeps an event that is awaited. Any other one means that the connection is lost, or does not
 * matter. */
static void take_event(const struct rdma_cm_event *event)
{
    struct verbs_conn *c = event->id->context;

    if (event->id == c->awaited && !c->has_event) {
        c->event = *event;
        c->has_event = true;
    } else if (c->qp.id == event->id && event->event != RDMA_CM_EVENT_TIMEWAIT_EXIT &&
               event->event != RDMA_CM_EVENT_ADDR_CHANGE &&
               event->event != RDMA_CM_EVENT_ESTABLISHED) {
        if (c->ep->asking & 1ull << c->node) /* a node that refuses sends its reason, then closes */
            (void)verbs_ep_drain(c->ep);
        if (c->qp.id == event->id)
            lose(c, "has closed the connection");
    }
}

void verbs_ep_events(struct verbs_ep *e)
{
    struct rdma_cm_event event;

    for (unsigned i = 0; i < 2 * FAB_NODES_MAX && next_event(e, &event); i++)
        take_event(&event);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Ends connections without progress for the time-out. */
static void end_stalled(struct verbs_ep *e)
{
    uint64_t now = clock_coarse_ns(), limit = fab_of(e)->wire.timeout_ms * 1000000;

    for (uint64_t left = e->busy; left; left &= left - 1) {
        struct verbs_conn *c = &e->conn[__builtin_ctzll(left)];

        if (now >= c->progress_at + limit)
            lose(c, "does not answer");
    }
}

bool verbs_ep_look_around(struct verbs_ep *e)
{
    uint64_t before = e->busy;

    verbs_ep_events(e);
    end_stalled(e);
    if (e->busy != before && e->first)
        verbs_ep_advance(e);
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
    return verbs_ep_drain(e) || verbs_ep_look_around(e);
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
bool verbs_arm(struct fab_ep *ep, uint64_t *until)
{
    struct verbs_ep *e = (struct verbs_ep *)ep;
    uint64_t soon = clock_ns() + JOB_LOOK_NS;

    take_notices(e);
    arm(e);
    if (verbs_ep_drain(e) || verbs_ep_look_around(e) || (e->first && !e->busy))
        return false;
    *until = first_stall(e);
    if (e->jobs != 0 && soon < *until)
        *until = soon;
    return true;
}
