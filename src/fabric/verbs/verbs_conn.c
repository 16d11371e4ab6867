/*
 * The verbs fabric: connections to nodes. How they are made, the hand-shake and other questions.
 *
 * Each endpoint has one queue pair per node. It is made when it is first needed, and again after it
 * was lost, by a job (verbs_job.c). The first request that needs it waits for that: up to
 * the time-out for a first connection, a sixteenth of the lease for a lost one. Once an attempt has
 * failed, the node counts as away: requests that need it fail at once, and further attempts run
 * beside other work. So a node that is away does not hold up requests to others. If the pool was
 * opened without the node (AWAY-1), there are no such requests, and a session looks for it only
 * once in a second (pool_meet()). That one waits as for a lost one, or its attempt would be resumed
 * too seldom to succeed.
 *
 *   VERBS-V1  A connection is `up` only after the hand-shake, if the node has the memory that this
 *       fabric's first connection found (the same instance), and under the identity that the
 *       endpoint has at that time.
 *   VERBS-V3  A connection's verbs are of one view or of none, and the node shuts it when that view
 *       is too old (WIRE-W6). It is of none at first. Before verbs of another view go out on it,
 *       all that is under way has ended, and the node has been told the view and has agreed. So
 *       nothing that is under way is of another view than the node believes, but for verbs of no
 *       view: they may go out on any connection, and are lost with it. A client that asks the node
 *       to refuse its own view sends no verbs of it on that connection from then on, and those that
 *       it has sent are executed before the node gets the message. So that connection stays, and is
 *       of no view.
 */
#include "base/clock.h"
#include "fabric/verbs/verbs_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE_MIN_NS  100000000ull /* between two attempts: as long as the first one took */
#define PAUSE_MAX_NS  1000000000ull
#define QUEUE_RETRIES 7 /* for a receiver that is not ready, 7 means without end */

/* ---- making a connection --------------------------------------------------------------------- */

static const char *event_text(enum rdma_cm_event_type type)
{
    switch (type) {
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
        return "cannot be reached by any RDMA device";
    case RDMA_CM_EVENT_REJECTED:
        return "refuses connections: no memory node listens there";
    case RDMA_CM_EVENT_UNREACHABLE:
        return "does not answer";
    default:
        return "cannot be connected to";
    }
}

/* Waits for the wanted event of this id. */
static int expect_event(struct verbs_conn *c, const struct rdma_cm_id *id,
                        enum rdma_cm_event_type wanted, uint64_t until, struct rdma_cm_event *event)
{
    c->awaited = id;
    c->has_event = false;
    for (verbs_ep_events(c->ep); !c->has_event && clock_ns() < until; verbs_ep_events(c->ep))
        verbs_job_rest(c, until);
    c->awaited = NULL;
    if (!c->has_event)
        return node_fail(c, FAR_UNREACHABLE, "does not answer");
    c->has_event = false;
    *event = c->event;
    return event->event == wanted ? FAR_OK
                                  : node_fail(c, FAR_UNREACHABLE, event_text(event->event));
}

static int find_way(struct verbs_conn *c, struct rdma_cm_id *id, uint64_t until)
{
    struct verbs_fab *fab = fab_of(c->ep);
    struct sockaddr *to = (struct sockaddr *)&fab->resolved[c->node];
    struct rdma_cm_event event;
    int ms = (int)fab->wire.timeout_ms, rc;

    if (rdma_resolve_addr(id, NULL, to, ms) != 0)
        return node_fail(c, FAR_UNREACHABLE,
                         errno == ENODEV ? "cannot be reached by any RDMA device"
                                         : strerror(errno));
    rc = expect_event(c, id, RDMA_CM_EVENT_ADDR_RESOLVED, until, &event);
    if (rc != FAR_OK)
        return rc;
    if (rdma_resolve_route(id, ms) != 0)
        return node_fail(c, FAR_UNREACHABLE, strerror(errno));
    return expect_event(c, id, RDMA_CM_EVENT_ROUTE_RESOLVED, until, &event);
}

/* Takes the device of the first connection for the whole fabric. */
static int settle_device(struct verbs_conn *c, const struct rdma_cm_id *id)
{
    struct verbs_fab *fab = fab_of(c->ep);
    struct verbs_ep *e = c->ep;

    if (!fab->pd) {
        int rc = verbs_qp_limits(id->verbs, id->port_num, &fab->limits);
        if (rc != FAR_OK)
            return rc;
        fab->pd = ibv_alloc_pd(id->verbs);
        if (!fab->pd)
            return err_fail(FAR_SYSTEM, "cannot make a protection domain: %s", strerror(errno));
    }
    if (fab->pd->context != id->verbs)
        return node_fail(c, FAR_UNSUPPORTED, "is reached by another device than the first node");
    e->arena.pd = fab->pd;
    if (!e->completions) {
        e->completions = ibv_create_comp_channel(id->verbs);
        if (!e->completions)
            return err_fail(FAR_SYSTEM, "cannot make a completion channel: %s", strerror(errno));
        fcntl(e->completions->fd, F_SETFL, fcntl(e->completions->fd, F_GETFL) | O_NONBLOCK);
    }
    if (!c->in)
        c->in = verbs_arena_alloc(&e->arena, WIRE_CONTROL_MAX);
    if (!c->said)
        c->said = verbs_arena_alloc(&e->arena, WIRE_CONTROL_MAX);
    if (!c->in || !c->said)
        return err_fail(FAR_NO_MEMORY, "cannot register memory (ulimit -l is the limit)");
    return FAR_OK;
}

static int make_queue_pair(struct verbs_conn *c, struct rdma_cm_id *id)
{
    struct verbs_fab *fab = fab_of(c->ep);
    int rc = settle_device(c, id);

    if (rc == FAR_OK)
        rc = verbs_qp_make(&c->qp, id, fab->pd, c->ep->completions, c, fab->limits.send_wrs);
    if (rc != FAR_OK) {
        rdma_destroy_id(id);
        return rc;
    }
    c->run_size = c->wrs_free = c->qp.send_wrs;
    c->run_first = c->run_count = 0;
    c->run = calloc(c->run_size, sizeof *c->run);
    return c->run ? FAR_OK
                  : err_fail(FAR_NO_MEMORY, "no memory for a connection to node %u", c->node);
}

static int join(struct verbs_conn *c, uint64_t until)
{
    const struct verbs_qp_limits *limits = &fab_of(c->ep)->limits;
    struct rdma_conn_param param = {.initiator_depth = (uint8_t)limits->reads_out,
                                    .retry_count = QUEUE_RETRIES,
                                    .rnr_retry_count = QUEUE_RETRIES,
                                    .qp_num = c->qp.ibv->qp_num};
    struct rdma_cm_event event;

    if (rdma_connect(c->qp.id, &param) != 0)
        return node_fail(c, FAR_UNREACHABLE, strerror(errno));
    int rc = expect_event(c, c->qp.id, RDMA_CM_EVENT_CONNECT_RESPONSE, until, &event);
    if (rc != FAR_OK)
        return rc;
    if (!c->qp.ibv) /* closed again meanwhile */
        return node_fail(c, FAR_UNREACHABLE, "has closed the connection");
    unsigned reads = event.param.conn.initiator_depth;
    if (reads == 0)
        return node_fail(c, FAR_UNSUPPORTED, "accepts no READs");
    rc = verbs_qp_ready(&c->qp, reads < limits->reads_out ? reads : limits->reads_out, 0,
                        fab_of(c->ep)->wire.timeout_ms);
    if (rc == FAR_OK && rdma_establish(c->qp.id) != 0)
        rc = node_fail(c, FAR_UNREACHABLE, strerror(errno));
    return rc;
}

/* ---- questions ------------------------------------------------------------------------------- */

static int wait_for_answer(struct verbs_conn *c)
{
    uint64_t until = clock_ns() + fab_of(c->ep)->wire.timeout_ms * 1000000;

    while (c->in_bytes == 0) {
        if (!verbs_ep_drain(c->ep))
            verbs_job_rest(c, until);
        if (!c->qp.ibv && c->in_bytes == 0) /* lost while draining, which set the detail */
            return FAR_UNREACHABLE;
        if (c->in_bytes == 0 && clock_ns() >= until)
            return node_fail(c, FAR_UNREACHABLE, "does not answer");
    }
    return FAR_OK;
}

static int exchange(struct verbs_conn *c, const void *question, size_t bytes)
{
    const struct arena *arena = &c->ep->arena;
    uint64_t until = clock_ns() + fab_of(c->ep)->wire.timeout_ms * 1000000;

    while (c->qp.ibv && c->wrs_free == 0 && clock_ns() < until)
        verbs_job_rest(c, until);
    if (!c->qp.ibv || c->wrs_free == 0)
        return node_fail(c, FAR_UNREACHABLE, "does not answer");
    ASSERT(bytes <= WIRE_CONTROL_MAX && !(c->ep->asking >> c->node & 1));
    memcpy(c->said, question, bytes);
    c->in_bytes = 0;
    int rc = verbs_qp_receive(&c->qp, c->in, WIRE_CONTROL_MAX, arena_key(arena, c->in));
    if (rc == FAR_OK)
        rc = verbs_qp_send(&c->qp, c->said, bytes, arena_key(arena, c->said));
    if (rc != FAR_OK)
        return node_fail(c, rc, far_error_detail());
    verbs_conn_push_run(c, NULL, 1);
    c->ep->asking |= 1ull << c->node;
    rc = wait_for_answer(c);
    c->ep->asking &= ~(1ull << c->node);
    return rc;
}

/* A refusal by the node, with its reason. Its status counts only if it is a known one. */
static int refusal(const struct verbs_conn *c, int status, const char *text)
{
    if (status == FAR_OK || strcmp(far_errname(status), far_errname(1)) == 0)
        status = FAR_UNREACHABLE;
    return node_fail(c, status, text[0] ? text : far_strerror(status));
}

int verbs_conn_ask(struct verbs_conn *c, enum wire_type type, void *question, size_t bytes,
                   const struct wire_head **answer)
{
    uint32_t view = ((const struct wire_head *)question)->view;
    struct wire_head head;

    if (!verbs_job_here(c)) /* there is one question at a time */
        verbs_job_await(c, UINT64_MAX);
    if (!c->qp.ibv)
        return node_fail(c, FAR_UNREACHABLE, "the connection was lost");
    head = wire_head_of(type, c->slot, c->token, ++c->seq);
    head.view = view;
    memcpy(question, &head, sizeof head);
    int rc = exchange(c, question, bytes);
    const struct wire_head *got = (const struct wire_head *)c->in;
    if (rc == FAR_OK && wire_check(got, c->in_bytes) != FAR_OK)
        rc = node_fail(c, FAR_UNREACHABLE, far_error_detail());
    if (rc == FAR_OK && got->type == WIRE_REFUSED) {
        struct wire_refused *refused = (struct wire_refused *)c->in;
        refused->text[WIRE_TEXT - 1] = '\0';
        rc = refusal(c, refused->status, refused->text);
    } else if (rc == FAR_OK && got->seq != c->seq) {
        rc = node_fail(c, FAR_UNREACHABLE, "sent an unexpected answer");
    }
    if (rc != FAR_OK) {
        verbs_conn_break(c);
        return rc;
    }
    *answer = got;
    return FAR_OK;
}

int verbs_conn_order(struct verbs_conn *c, enum wire_type type, void *question, size_t bytes,
                     uint32_t *value)
{
    const struct wire_head *head;
    int rc = verbs_conn_ask(c, type, question, bytes, &head);

    if (rc != FAR_OK)
        return rc;
    const struct wire_answer *answer = (const struct wire_answer *)head;
    if (head->type != WIRE_ANSWER) {
        rc = node_fail(c, FAR_UNREACHABLE, "sent an unexpected answer");
        verbs_conn_break(c);
        return rc;
    }
    if (answer->status != FAR_OK)
        return refusal(c, answer->status, "");
    if (value)
        *value = answer->value;
    return FAR_OK;
}

int verbs_conn_identify(struct verbs_conn *c, uint32_t view, uint32_t *node_view)
{
    struct wire_client question = {.head.view = view, .identity = c->ep->identity};
    int rc = verbs_conn_order(c, WIRE_IDENTIFY, &question, sizeof question, NULL);

    if (rc == FAR_OK)
        c->view = view;
    if (rc == FAR_FENCED && node_view && c->in) /* the answer is still there */
        *node_view = ((const struct wire_head *)c->in)->view;
    return rc;
}

int verbs_conn_fence(struct verbs_conn *c, struct verbs_fence fence)
{
    bool view = fence.type == WIRE_FENCE_VIEW;
    struct wire_client question = {.identity = fence.what};

    question.head.view = view ? (uint32_t)fence.what : 0;
    if (fab_view_is_old(c->view, question.head.view)) /* VERBS-V3 */
        c->view = 0;
    return verbs_conn_order(c, fence.type, &question, view ? sizeof question.head : sizeof question,
                            NULL);
}

/* ---- the hand-shake -------------------------------------------------------------------------- */

/* Checks that it is the memory that this fabric knows. */
static int check_memory(struct verbs_conn *c, const struct wire_welcome *welcome)
{
    struct verbs_fab *fab = fab_of(c->ep);
    const char *why;

    if (!(welcome->flags & WIRE_FLAG_ONE_SIDED))
        return node_fail(c, FAR_UNREACHABLE, "does not offer its memory to verbs");
    int rc = wire_nodes_welcomed(&fab->wire, c->node, welcome, &fab->fab, &why);
    if (rc != FAR_OK)
        return node_fail(c, rc, why);
    c->base = welcome->address;
    c->rkey = welcome->rkey;
    return FAR_OK;
}

static int prove(struct verbs_conn *c, const uint8_t nonce[WIRE_NONCE],
                 const struct wire_challenge *challenge)
{
    const struct wire_secret *secret = &fab_of(c->ep)->wire.secret;
    uint8_t expected[WIRE_PROOF], node_nonce[WIRE_NONCE];
    struct wire_proof proof = {0};
    const struct wire_head *head;
    const char *why;

    int rc = wire_nodes_challenged(&fab_of(c->ep)->wire, challenge, &why);
    if (rc != FAR_OK)
        return node_fail(c, rc, why);
    memcpy(node_nonce, challenge->nonce, sizeof node_nonce);
    c->slot = challenge->head.slot;
    c->token = challenge->head.token;
    wire_prove(secret, WIRE_CLIENT, nonce, node_nonce, c->link, proof.proof);
    rc = verbs_conn_ask(c, WIRE_PROOF_IS, &proof, sizeof proof, &head);
    if (rc != FAR_OK)
        return rc;
    const struct wire_welcome *welcome = (const struct wire_welcome *)head;
    if (head->type != WIRE_WELCOME)
        return node_fail(c, FAR_UNREACHABLE, "sent an unexpected answer");
    wire_prove(secret, WIRE_NODE, nonce, node_nonce, c->link, expected);
    if (!wire_proof_equal(expected, welcome->proof))
        return node_fail(c, FAR_REFUSED, "does not know the secret");
    return check_memory(c, welcome);
}

static int greet(struct verbs_conn *c)
{
    struct wire_hello hello = {.link = c->link};
    const struct wire_head *head;
    int rc = wire_random(hello.nonce, sizeof hello.nonce);

    c->slot = 0;
    c->token = 0;
    if (rc == FAR_OK)
        rc = verbs_conn_ask(c, WIRE_HELLO, &hello, sizeof hello, &head);
    if (rc != FAR_OK)
        return rc;
    if (head->type != WIRE_CHALLENGE)
        return node_fail(c, FAR_UNREACHABLE, "sent an unexpected answer");
    return prove(c, hello.nonce, (const struct wire_challenge *)head);
}

/* The endpoint may be given another identity meanwhile; the last one counts. */
static int identify(struct verbs_conn *c)
{
    uint64_t identity = 0;
    int rc = FAR_OK;

    while (rc == FAR_OK && identity != c->ep->identity) {
        identity = c->ep->identity;
        rc = verbs_conn_identify(c, 0, NULL);
    }
    return rc;
}

static int make_way(struct verbs_conn *c, uint64_t until)
{
    if (rdma_create_id(c->ep->cm, &c->way, c, RDMA_PS_TCP) != 0) {
        c->way = NULL;
        return err_fail(FAR_SYSTEM, "cannot make a connection: %s", strerror(errno));
    }
    int rc = find_way(c, c->way, until);
    struct rdma_cm_id *id = c->way;
    c->way = NULL;
    if (rc == FAR_OK)
        return make_queue_pair(c, id);
    rdma_destroy_id(id);
    return rc;
}

void verbs_conn_connect(struct verbs_conn *c)
{
    uint64_t began = clock_ns(), until = began + fab_of(c->ep)->wire.timeout_ms * 1000000;

    c->view = 0;
    int rc = make_way(c, until);
    if (rc == FAR_OK)
        rc = join(c, until);
    if (rc == FAR_OK)
        rc = greet(c);
    if (rc == FAR_OK)
        rc = identify(c);
    atomic_store(&fab_of(c->ep)->away[c->node], rc != FAR_OK && rc != FAR_FENCED);
    if (rc == FAR_OK) {
        c->up = c->was_up = true;
        return;
    }
    verbs_conn_break(c);
    uint64_t now = clock_ns(), pause = now - began;
    pause = pause < PAUSE_MIN_NS ? PAUSE_MIN_NS : pause > PAUSE_MAX_NS ? PAUSE_MAX_NS : pause;
    c->not_before = rc == FAR_FENCED ? 0 : now + pause;
    c->down_status = rc;
    snprintf(c->down_why, sizeof c->down_why, "%s", far_error_detail());
}

/* How long the first request that needs the connection waits for it. */
static uint64_t connect_wait_ns(const struct verbs_conn *c)
{
    const struct verbs_fab *fab = fab_of(c->ep);
    uint64_t timeout = fab->wire.timeout_ms * 1000000, some = fab->fab.lease_ms * 1000000 / 16;
    bool looked_for = fab_away(&fab->fab) >> c->node & 1;

    if (atomic_load(&fab->away[c->node]) && !looked_for)
        return 0;
    return (c->was_up || looked_for) && some != 0 && some < timeout ? some : UINT64_MAX;
}

int verbs_conn_need(struct verbs_conn *c)
{
    uint64_t now, wait;

    if (c->up)
        return FAR_OK;
    now = clock_ns();
    wait = connect_wait_ns(c);
    if (!c->out && now < c->not_before)
        return err_fail(c->down_status, "%s", c->down_why);
    if (!c->out)
        verbs_job_start(c, verbs_conn_connect);
    verbs_job_await(c, wait == UINT64_MAX ? UINT64_MAX : now + wait);
    if (c->up)
        return FAR_OK;
    return c->out ? node_fail(c, FAR_UNREACHABLE, "is being connected to again")
                  : err_fail(c->down_status, "%s", c->down_why);
}

/* Waits until all requests have ended that were posted before: by the time-out at the latest. */
static void let_end(struct verbs_ep *e)
{
    while (e->busy || e->first) {
        if (!e->busy)
            verbs_ep_advance(e); /* fails what waits for a connection that was lost */
        else
            (void)verbs_ep_sleep(e, UINT64_MAX);
        verbs_jobs_resume(e);
    }
}

int verbs_conn_need_view(struct verbs_conn *c, uint32_t view)
{
    uint32_t node_view = 0;
    int rc = verbs_conn_need(c);

    if (rc != FAR_OK || view == 0 || view == c->view)
        return rc;
    let_end(c->ep);
    rc = verbs_conn_need(c);
    if (rc == FAR_OK)
        rc = verbs_conn_identify(c, view, &node_view);
    return node_view != 0 ? fab_view_refused(&c->ep->ep, c->node, view, node_view) : rc;
}
