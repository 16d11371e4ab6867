/*
 * The UCX fabric: verbs as UCX's put, get and atomics.
 *
 * A leg's verbs are handed to UCX one by one, those up to the next fence at once, and behind WRITEs
 * a flush of the connection. When UCX has completed them all, so has the leg, or it goes on behind
 * its fence.
 *
 *   R1  UCX keeps no order between operations, so the fabric's order is 0. FAB_FENCE waits until all
 *       before it has completed. ucp_worker_fence() would hold up every other request of the
 *       endpoint as well, and was repaired several times after version 1.13 (openucx/ucx#9502).
 *   R2  A put that has completed has left its buffer, not arrived; a flush that has completed says
 *       that all before it has happened at the node. A get or atomic has when its result is there.
 *   R3  UCX's shared memory moves words by this processor's loads and stores with no barrier. F4
 *       asks for one between what completed and what is posted next, so each step of a leg begins
 *       and ends with a full one; beside a network's round trip it costs nothing.
 *   R4  After a time-out or a loss the connection is closed by force first. A leg is over when UCX
 *       has let go of every operation of it: nothing is written to its buffers after that.
 *
 * Emulated (mode=rma where no transport does it), the node's side executes operations whenever it
 * gets to them, also after the client gave up, which is not what F5 asks for; and threads of the
 * node copy words from and to messages in which they are not aligned, which is not F1. It is for
 * tests only, on a node with one thread.
 */
#include "fabric/ucx_fab.h"

#include "base/clock.h"

#include <string.h>

/* UCX's emulation cuts what does not fit one of its messages, in the middle of words. */
#define EMULATED_PIECE 4096u

/* ---- the key --------------------------------------------------------------------------------- */

int rma_welcomed(struct ucx_link *l, const struct wire_welcome *in, const char **why)
{
    struct ucx_fab *u = l->hub->fab;
    struct ucx_node *node = &u->node[l->node];
    bool opening = u->opener && l->hub == ucx_hub_of(u->opener), real;
    struct ucx_lanes lanes;
    void *here;

    *why = "UCX cannot use the node's key";
    if (in->key_bytes == 0 || in->key_bytes > sizeof in->key ||
        ucp_ep_rkey_unpack(l->ucp, in->key, &l->rkey) != UCS_OK) {
        l->rkey = NULL;
        return FAR_UNSUPPORTED;
    }
    *why = "no memory to look at the connection";
    if (ucx_ep_lanes(l->ucp, &lanes) != FAR_OK)
        return FAR_NO_MEMORY;
    /* A network card reaches all that is registered; shared memory only what UCX made, which a node
     * that keeps its memory in a file does not use. */
    real = lanes.rma && lanes.amo &&
           (lanes.by_nic || ucp_rkey_ptr(l->rkey, in->address, &here) == UCS_OK);
    *why = "the node leaves atomics to its network card, and this connection does not";
    if ((in->flags & WIRE_FLAG_BY_NIC) && !(real && lanes.by_nic))
        return FAR_UNSUPPORTED;
    *why = "the connection has become one that does no put, get and atomics by itself";
    if (!opening && node->real && !real)
        return FAR_UNSUPPORTED;
    if (opening)
        node->real = real;
    l->real = real;
    l->base = in->address;
    return FAR_OK;
}

/* ---- legs under way -------------------------------------------------------------------------- */

static void list_leg(struct leg *leg)
{
    struct ucx_link *l = leg->link;

    leg->prev = NULL;
    leg->next = l->issued;
    if (leg->next)
        leg->next->prev = leg;
    l->issued = leg;
}

static void unlist_leg(struct leg *leg)
{
    if (leg->prev)
        leg->prev->next = leg->next;
    else
        leg->link->issued = leg->next;
    if (leg->next)
        leg->next->prev = leg->prev;
}

static bool at_end(const struct leg *leg)
{
    return leg->verb == leg->flight->req->count;
}

/* UCX has completed all that was issued. */
static void step_done(struct leg *leg)
{
    struct ucx_link *l = leg->link;

    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (leg->over || (at_end(leg) && !leg->failed)) {
        unlist_leg(leg);
        ucx_leg_done(l->hub, leg, leg->over ? leg->status : FAR_OK);
    } else if (!leg->failed) {
        l->resumable++;
    } /* else the link is about to go down, and this with it */
}

static void op_failed(struct leg *leg, ucs_status_t status)
{
    leg->failed = true;
    if (!leg->over && leg->link->state == LINK_UP)
        leg->link->broken = status;
}

static void op_done(void *request, ucs_status_t status, void *arg)
{
    struct leg *leg = arg;

    ucp_request_free(request);
    if (status != UCS_OK)
        op_failed(leg, status);
    if (--leg->ops == 0)
        step_done(leg);
}

/* ---- issuing --------------------------------------------------------------------------------- */

/* The verb, or of a READ or WRITE the piece of it. */
static ucs_status_ptr_t issue(struct leg *leg, struct fab_verb *v, uint32_t from, uint32_t len)
{
    const struct ucx_link *l = leg->link;
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.send = op_done,
                                 .user_data = leg};
    uint64_t at = l->base + v->off + from;

    if (v->kind == FAB_WRITE)
        return ucp_put_nbx(l->ucp, (char *)v->buf + from, len, at, l->rkey, &param);
    if (v->kind == FAB_READ)
        return ucp_get_nbx(l->ucp, (char *)v->buf + from, len, at, l->rkey, &param);
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
    param.datatype = ucp_dt_make_contig(sizeof(uint64_t));
    param.reply_buffer = v->buf;
    if (v->kind == FAB_FAA)
        return ucp_atomic_op_nbx(l->ucp, UCP_ATOMIC_OP_ADD, &v->swap, 1, at, l->rkey, &param);
    /* What is swapped in stands where the old word will. */
    memcpy(v->buf, &v->swap, sizeof v->swap);
    return ucp_atomic_op_nbx(l->ucp, UCP_ATOMIC_OP_CSWAP, &v->compare, 1, at, l->rkey, &param);
}

static void count_op(struct leg *leg, ucs_status_ptr_t op)
{
    if (UCS_PTR_IS_PTR(op))
        leg->ops++;
    else if (UCS_PTR_IS_ERR(op))
        op_failed(leg, UCS_PTR_STATUS(op));
}

static void issue_all(struct leg *leg, struct fab_verb *v)
{
    uint32_t len;

    for (uint32_t from = 0; from < v->len && !leg->failed; from += len) {
        len = v->len - from;
        if (!leg->link->real && len > EMULATED_PIECE)
            len = EMULATED_PIECE;
        count_op(leg, issue(leg, v, from, len));
    }
}

/* Issues a leg up to its next fence, or its end. */
static void step(struct leg *leg)
{
    const struct fab_req *req = leg->flight->req;
    struct ucx_link *l = leg->link;
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.send = op_done,
                                 .user_data = leg};
    bool first = true, writes = false;

    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    leg->flight->touched = true;
    leg->deadline = clock_coarse_ns() + l->hub->fab->timeout_ns;
    /* Counts itself as well, for as long as it is issued: UCX may complete operations meanwhile. */
    leg->ops = 1;
    for (; leg->verb < req->count && !leg->failed; leg->verb++) {
        struct fab_verb *v = &req->verbs[leg->verb];

        if (v->node != l->node)
            continue;
        if ((v->flags & FAB_FENCE) && !first)
            break;
        first = false;
        writes |= v->kind == FAB_WRITE;
        issue_all(leg, v);
    }
    if (writes && !leg->failed)
        count_op(leg, ucp_ep_flush_nbx(l->ucp, &param));
    if (--leg->ops == 0)
        step_done(leg);
}

void rma_send(struct ucx_link *l)
{
    struct leg *leg;

    for (unsigned n = l->resumable; n > 0 && l->broken == UCS_OK; n--) {
        leg = l->issued;
        while (leg->ops > 0 || leg->over || leg->failed)
            leg = leg->next; /* one of them is resumable */
        l->resumable--;
        step(leg);
    }
    while (l->first && l->broken == UCS_OK) {
        leg = l->first;
        l->first = leg->next;
        leg->link = l;
        list_leg(leg);
        step(leg);
    }
}

/* ---- the end --------------------------------------------------------------------------------- */

void rma_fail_all(struct ucx_link *l, int status)
{
    struct leg *next;

    l->resumable = 0;
    for (struct leg *leg = l->issued; leg; leg = next) {
        next = leg->next;
        if (leg->over)
            continue;
        leg->over = true;
        leg->status = status;
        if (leg->ops == 0)
            step_done(leg);
    }
}

uint64_t rma_deadline(const struct ucx_link *l)
{
    uint64_t first = UINT64_MAX;

    for (const struct leg *leg = l->issued; leg; leg = leg->next) {
        if (!leg->over && leg->deadline < first)
            first = leg->deadline;
    }
    return first;
}
