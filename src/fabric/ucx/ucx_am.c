/* The UCX fabric: requests become messages, replies become results. */
#include "fabric/ucx/ucx_internal.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOL_STEP 64u /* flights and legs are allocated that many at a time */

/* ---- flights and legs ------------------------------------------------------------------------ */

/* Allocates more of both, in one block of memory. They return to the free lists and are freed with
 * the hub. */
static bool more_flights(struct ucx_hub *h)
{
    struct pool {
        struct block block;
        struct flight flight[POOL_STEP];
        struct leg leg[POOL_STEP];
    } *pool = calloc(1, sizeof *pool);

    if (!pool)
        return false;
    pool->block.next = h->blocks;
    h->blocks = &pool->block;
    for (unsigned i = 0; i < POOL_STEP; i++) {
        pool->flight[i].next = h->free_flights;
        h->free_flights = &pool->flight[i];
        pool->leg[i].next = h->free_legs;
        h->free_legs = &pool->leg[i];
    }
    h->free_leg_count += POOL_STEP;
    return true;
}

void ucx_free_flights(struct ucx_hub *h)
{
    while (h->blocks) {
        struct block *block = h->blocks;

        h->blocks = block->next;
        free(block);
    }
}

/* Details of errors are kept per thread. On a shared hub this thread may not be the poster's. */
static void keep_detail(struct ucx_ep *e, int status)
{
    e->failed = status;
    snprintf(e->why, sizeof e->why, "%s", far_error_detail());
}

static void complete(struct flight *f)
{
    struct ucx_ep *e = f->ep;

    ASSERT(e->pending > 0);
    fab_complete(f->req, f->status);
    e->pending--;
    e->completed++;
    f->next = e->hub->free_flights;
    e->hub->free_flights = f;
}

/* A leg is over; with the last one, so is its request. */
static void leg_done(struct ucx_hub *h, struct leg *leg, int status)
{
    struct flight *f = leg->flight;
    struct ucx_ep *e = f->ep;

    ASSERT(f->legs > 0);
    if (f->status == FAR_OK)
        f->status = status;
    f->touched |= leg->touched;
    if (!leg->touched && status_means(status, STATUS_NOT_EXECUTED)) {
        f->req->away |= 1ull << leg->node;
        f->req->away_status = status;
    }
    f->failed |= status != FAR_OK && (leg->touched || status != FAR_FENCED);
    if (status != FAR_OK && h->shared)
        keep_detail(e, status);
    leg->next = h->free_legs;
    h->free_legs = leg;
    h->free_leg_count++;
    if (--f->legs > 0)
        return;
    if (f->touched && status_means(f->status, STATUS_NOT_EXECUTED)) { /* FABRIC-F5 */
        f->status = FAR_UNKNOWN;
        f->req->rest_done = !f->failed;
    }
    if (!h->shared) {
        complete(f);
        return;
    }
    f->next = e->answered;
    e->answered = f;
    ucx_hub_wake(e);
}

void ucx_take_answered(struct ucx_ep *e)
{
    while (e->answered) {
        struct flight *f = e->answered;

        e->answered = f->next;
        complete(f);
    }
}

static void queue_leg(struct ucx_conn *c, struct leg *leg)
{
    leg->next = NULL;
    if (c->first)
        c->last->next = leg;
    else
        c->first = leg;
    c->last = leg;
}

static void queue_leg_first(struct ucx_conn *c, struct leg *leg)
{
    leg->next = c->first;
    if (!c->first)
        c->last = leg;
    c->first = leg;
}

static int queue_request(struct ucx_ep *e, struct fab_req *req, uint64_t nodes)
{
    struct ucx_hub *h = e->hub;
    unsigned legs = (unsigned)__builtin_popcountll(nodes);
    struct flight *f;

    if ((h->free_leg_count < legs || !h->free_flights) && !more_flights(h))
        return err_fail(FAR_NO_MEMORY, "no memory for a request of ucx:");
    f = h->free_flights;
    h->free_flights = f->next;
    *f = (struct flight){.ep = e, .req = req, .legs = legs};
    req->done = false;
    e->pending++;
    h->free_leg_count -= legs;
    for (; nodes != 0; nodes &= nodes - 1) {
        struct ucx_conn *c = &h->conn[__builtin_ctzll(nodes)];
        struct leg *leg = h->free_legs;

        h->free_legs = leg->next;
        *leg = (struct leg){
            .flight = f, .identity = e->identity, .view = req->view, .node = (uint8_t)c->node};
        queue_leg(c, leg);
        if (++c->posted >= SENT_AT_ONCE && c->state == CONN_UP)
            ucx_conn_send(c);
    }
    return FAR_OK;
}

int ucx_post(struct fab_ep *ep, struct fab_req *req)
{
    struct ucx_ep *e = (struct ucx_ep *)ep;
    uint64_t nodes = 0;

    for (unsigned i = 0; i < req->count; i++)
        nodes |= 1ull << req->verbs[i].node;
    if (nodes == 0) {
        fab_complete(req, FAR_OK);
        return FAR_OK;
    }
    ucx_hub_enter(e->hub);
    int rc = queue_request(e, req, nodes);
    ucx_hub_exit(e->hub);
    return rc;
}

/* ---- filling messages ------------------------------------------------------------------------ */

static void message_start(struct message *m, const struct leg *leg)
{
    m->bytes = sizeof(struct wire_batch);
    m->reply_bytes = sizeof(struct wire_reply);
    m->parts = m->targets = 0;
    m->identity = leg->identity;
    m->view = leg->view;
}

/* How many bytes of a verb fit into the message: all or none; but of a READ or WRITE that is too
 * long for any message, as many as there is room for. */
static uint32_t fits(const struct message *m, const struct fab_verb *v, uint32_t from)
{
    size_t room = WIRE_MESSAGE_MAX - m->bytes, reply_room = WIRE_MESSAGE_MAX - m->reply_bytes;
    uint32_t len = v->len - from, most;

    if (m->targets == MESSAGE_VERBS)
        return 0;
    if (wire_verb_bytes(v->kind, len) <= room && wire_result_bytes(v->kind, len) <= reply_room)
        return len;
    if (v->kind > FAB_WRITE || len <= WIRE_MESSAGE_MAX / 2 || room < sizeof(struct wire_verb))
        return 0;
    most = (uint32_t)(v->kind == FAB_READ ? reply_room : room - sizeof(struct wire_verb)) & ~63u;
    return most < len ? most : len;
}

/* Adds as much of the leg to the message as there is room for. False: the message is full. */
static bool add_part(struct ucx_conn *c, struct message *m, struct leg *leg)
{
    const struct fab_req *req = leg->flight->req;
    struct part *part = &m->part[m->parts];
    struct wire_part *head = (struct wire_part *)(void *)(m->buf + m->bytes);
    unsigned verbs = 0, before = m->targets;

    if (m->parts == MESSAGE_PARTS || WIRE_MESSAGE_MAX - m->bytes < sizeof *head ||
        WIRE_MESSAGE_MAX - m->reply_bytes < sizeof(struct wire_result))
        return false;
    m->bytes += sizeof *head;
    m->reply_bytes += sizeof(struct wire_result);
    for (; leg->verb < req->count && verbs < WIRE_PART_VERBS; leg->verb++, leg->from = 0) {
        const struct fab_verb *v = &req->verbs[leg->verb];

        if (v->node != c->node)
            continue;
        uint32_t len = fits(m, v, leg->from);
        if (len == 0)
            break;
        wire_put_verb(m->buf + m->bytes, v, leg->from, len);
        m->bytes += wire_verb_bytes(v->kind, len);
        m->reply_bytes += wire_result_bytes(v->kind, len);
        if (v->kind != FAB_WRITE)
            m->target[m->targets++] = (struct target){(char *)v->buf + leg->from, len};
        verbs++;
        if (len < v->len - leg->from) {
            leg->from += len;
            break;
        }
    }
    if (verbs == 0) {
        m->bytes -= sizeof *head;
        m->reply_bytes -= sizeof(struct wire_result);
        return false;
    }
    *head = (struct wire_part){.verbs = verbs};
    while (leg->verb < req->count && req->verbs[leg->verb].node != c->node)
        leg->verb++;
    *part = (struct part){leg, m->targets - before, leg->verb < req->count};
    m->parts++;
    return true;
}

static void message_sent(void *request, ucs_status_t status, void *arg)
{
    struct message *m = arg;

    (void)status; /* if it failed, the connection is reported broken as well */
    m->sending = false;
    ucp_request_free(request);
}

static void message_send(struct ucx_conn *c, struct message *m)
{
    const struct ucx_fab *u = c->hub->fab;
    struct wire_batch *batch = (struct wire_batch *)(void *)m->buf;
    ucs_status_ptr_t sent;

    ASSERT(c->state == CONN_UP && m->waiting && !m->sending);
    ASSERT(m->parts > 0 && m->bytes <= WIRE_MESSAGE_MAX && m->reply_bytes <= WIRE_MESSAGE_MAX);
    m->seq = next_seq(c);
    *batch = (struct wire_batch){.head = wire_head_of(WIRE_BATCH, c->slot, c->token, m->seq),
                                 .identity = m->identity,
                                 .sent = wire_clock_least(&c->clock, clock_boot_ns()),
                                 .valid_us = wire_valid_us(u->fab.lease_ms, u->wire.timeout_ms),
                                 .parts = m->parts};
    batch->head.view = m->view;
    sent = ucx_send(c->ucp, m->buf, m->bytes, 0, message_sent, m);
    m->sending = UCS_PTR_IS_PTR(sent);
    if (UCS_PTR_IS_ERR(sent))
        c->broken = UCS_PTR_STATUS(sent);
}

/* A message to fill. NULL: all are under way, or there is no memory for another. */
static struct message *free_message(struct ucx_conn *c)
{
    for (unsigned i = 0; i < CONN_MESSAGES; i++) {
        struct message *m = c->message[i];

        if (!m) {
            m = calloc(1, sizeof *m);
            if (!m)
                return NULL;
            m->buf = aligned_alloc(64, WIRE_MESSAGE_MAX);
            if (!m->buf) {
                free(m);
                return NULL;
            }
            c->message[i] = m;
        }
        if (!m->waiting && !m->sending)
            return m;
    }
    return NULL;
}

/* Moves legs from the queue into the message, as many as fit. A message has one identity and one
 * view, so the legs of other endpoints of the hub, and those of other views, stay queued. */
static void message_fill(struct ucx_conn *c, struct message *m)
{
    struct leg **at = &c->first, *leg, *before = NULL;

    message_start(m, c->first);
    while ((leg = *at) != NULL) {
        if (leg->identity != m->identity || leg->view != m->view) {
            before = leg;
            at = &leg->next;
            continue;
        }
        if (!add_part(c, m, leg))
            return;
        *at = leg->next;
        if (c->last == leg)
            c->last = before;
        if (m->part[m->parts - 1].more)
            return;
    }
}

/* Sends late messages again, whose ANSWER has said what the node's clock is. Nothing of them was
 * executed. Their deadlines stay the same, so this ends. */
static void send_late(struct ucx_conn *c)
{
    for (unsigned i = 0; c->late > 0 && i < CONN_MESSAGES; i++) {
        struct message *m = c->message[i];

        if (!m || !m->late || m->sending || c->broken != UCS_OK)
            continue;
        m->late = false;
        c->late--;
        message_send(c, m);
    }
}

void ucx_conn_send(struct ucx_conn *c)
{
    struct message *m;

    c->posted = 0;
    send_late(c);
    while (c->first && c->broken == UCS_OK && (m = free_message(c)) != NULL) {
        message_fill(c, m);
        m->waiting = true;
        m->deadline = clock_coarse_ns() + ucx_timeout_ns(c->hub->fab);
        c->under_way++;
        message_send(c, m);
    }
}

/* ---- replies --------------------------------------------------------------------------------- */

static void message_over(struct ucx_conn *c, struct message *m)
{
    ASSERT(m->waiting && c->under_way > 0);
    m->waiting = false;
    c->under_way--;
    c->late -= m->late;
    m->late = false;
}

static void message_fail(struct ucx_conn *c, struct message *m, int status)
{
    message_over(c, m);
    for (unsigned i = 0; i < m->parts; i++)
        leg_done(c->hub, m->part[i].leg, status);
}

/* The node has another view: each endpoint is to know which. */
static int note_views(struct ucx_conn *c, const struct message *m, uint32_t node_view)
{
    int rc = FAR_FENCED;

    for (unsigned i = 0; i < m->parts; i++)
        rc = fab_view_refused(&m->part[i].leg->flight->ep->ep, c->node, m->view, node_view);
    return rc;
}

static void take_results(struct ucx_conn *c, struct message *m, const char *at)
{
    const struct target *target = m->target;

    message_over(c, m);
    for (unsigned i = 0; i < m->parts; i++) {
        struct part *part = &m->part[i];
        struct wire_result result;

        memcpy(&result, at, sizeof result);
        at += sizeof result;
        for (unsigned n = 0; n < part->targets; n++, target++) {
            memcpy(target->buf, at, target->len);
            at += target->len;
        }
        part->leg->touched = true;
        if (result.status == FAR_OK && part->more)
            queue_leg_first(c, part->leg);
        else if (result.status == FAR_OK)
            leg_done(c->hub, part->leg, FAR_OK);
        else
            leg_done(c->hub, part->leg,
                     err_fail(result.status < 0 ? result.status : FAR_UNKNOWN,
                              "%s could not execute a batch", conn_name(c)));
    }
}

void ucx_conn_replied(struct ucx_conn *c, const void *message, size_t bytes)
{
    struct wire_head head;
    struct message *m = NULL;

    memcpy(&head, message, sizeof head);
    for (unsigned i = 0; i < CONN_MESSAGES; i++) {
        if (c->message[i] && c->message[i]->waiting && c->message[i]->seq == head.seq)
            m = c->message[i];
    }
    if (!m || m->late)
        return;
    if (head.type == WIRE_ANSWER) {
        struct wire_answer answer;

        memcpy(&answer, message, sizeof answer);
        if (answer.status == FAR_TIMEOUT) {
            m->late = true;
            c->late++;
            return;
        }
        if (answer.status == FAR_FENCED && answer.head.view != 0)
            message_fail(c, m, note_views(c, m, answer.head.view));
        else
            message_fail(c, m,
                         err_fail(answer.status < 0 ? answer.status : FAR_UNKNOWN,
                                  answer.status == FAR_FENCED
                                      ? "%s has shut this client out, as others declared it dead"
                                      : "%s did not execute a batch",
                                  conn_name(c)));
        return;
    }
    if (bytes != m->reply_bytes) {
        c->broken = UCS_ERR_INVALID_PARAM;
        return;
    }
    struct wire_reply reply;
    memcpy(&reply, message, sizeof reply);
    c->clock = (struct wire_clock){reply.clock, clock_boot_ns()};
    take_results(c, m, (const char *)message + sizeof reply);
}

void ucx_conn_fail_all(struct ucx_conn *c, int status)
{
    struct leg *leg = c->first;

    c->first = c->last = NULL;
    for (unsigned i = 0; i < CONN_MESSAGES; i++) {
        struct message *m = c->message[i];

        if (!m || !m->waiting)
            continue;
        for (unsigned n = 0; n < m->parts; n++)
            m->part[n].leg->touched = true;
        message_fail(c, m, status);
    }
    while (leg) {
        struct leg *next = leg->next;

        leg_done(c->hub, leg, status);
        leg = next;
    }
}
