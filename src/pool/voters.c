/* Voters of a pool, for its users: who they are, and changing that. */
#include "pool/pool_internal.h"

#include <stdio.h>
#include <string.h>

#define FENCE_PAUSE_NS 20000u

static void describe(struct op *op, unsigned node, struct far_member *member)
{
    struct pool *pool = op->pool;
    struct client *c = op->client;
    struct fab_ep *ep = c->ep;
    *member = (struct far_member){.node = node};
    if (ep->ops->node_name)
        snprintf(member->address, sizeof member->address, "%s",
                 ep->ops->node_name(pool->fab, node));
    member->data = node < pool->nodes;
    member->votes = pool->voters > 0 && members_votes(&c->members, node);
    member->status = pool_meet_node(op, node); /* if it is away, it may be another by now */
    if (member->status == FAR_OK && pool->voters > 0) {
        member->status = members_ask(&c->members, c->to_voters, node);
    } else if (member->status == FAR_OK) {
        batch_read(&op->batch, gaddr_make(node, 0), 0, op->pool_word, 8);
        member->status = batch_flush(&op->batch);
    }
    if (member->status != FAR_OK)
        snprintf(member->detail, sizeof member->detail, "%s", far_error_detail());
}

int pool_members(struct op *op, struct far_members *members, struct far_member *list)
{
    struct client *c = op->client;
    struct far_members sum = {.nodes = op->pool->fab->nodes};
    int rc = client_attend(op);
    if (rc == FAR_OK)
        rc = client_learn_view(c); /* without a majority it is not known, and the rest is of use */
    if (rc != FAR_OK && !status_means(rc, STATUS_FABRIC))
        return rc;
    if (op->pool->voters > 0) {
        sum.voters = (unsigned)__builtin_popcountll(c->members.voters);
        sum.majority = sum.voters / 2 + 1;
        sum.view = members_view(&c->members);
        sum.changes_left = MEMBERS_ENTRIES - sum.view;
    }
    for (unsigned i = 0; i < sum.nodes; i++) {
        struct far_member member;
        describe(op, i, &member);
        if (!status_means(member.status, STATUS_FABRIC) && member.status != FAR_OK)
            return member.status;
        sum.answering += member.votes && member.status == FAR_OK;
        if (list)
            list[i] = member;
    }
    *members = sum;
    return FAR_OK;
}

/* From now on no node that answers executes what clients post in older views. Those learn of it. */
static int fence_views(struct op *op)
{
    struct client *c = op->client;
    struct fab_ep *ep = c->ep;
    for (unsigned i = 0; i < op->pool->fab->nodes && ep->ops->fence_view; i++) {
        int rc = ep->ops->fence_view(ep, i, ep->view);
        while (rc == FAB_PENDING) { /* until the fabric's time-out at most */
            batch_pause(&op->batch, FENCE_PAUSE_NS);
            rc = ep->ops->fence_view(ep, i, ep->view);
        }
        if (rc != FAR_OK && !status_means(rc, STATUS_FABRIC))
            return rc;
    }
    return FAR_OK;
}

static int no_voters(void)
{
    return err_fail(FAR_UNSUPPORTED,
                    "the pool has no voters; those of a new pool are given by voters=3");
}

int pool_change_members(struct op *op, unsigned node, bool in)
{
    struct client *c = op->client;
    if (op->pool->voters == 0)
        return no_voters();
    int rc = client_attend(op);
    if (rc == FAR_OK && in)
        rc = pool_meet_node(op, node); /* if it is away, it may be another by now */
    if (rc == FAR_OK)
        rc = members_propose(&c->members, c->to_voters, in ? MEMBERS_IN : MEMBERS_OUT, node);
    struct err_detail why;
    err_keep(&why);
    /* Also after an error: what others have decided is known then. */
    int learned = client_learn_view(c);
    if (learned == FAR_OK)
        learned = fence_views(op);
    if (rc != FAR_OK)
        err_restore(&why);
    return rc == FAR_OK ? learned : rc;
}

int pool_accept_members(struct pool *pool)
{
    struct fab *fab = pool->fab;
    struct fab_ep *ep = NULL;
    struct members members;
    struct batch b;
    struct cost cost = {0};
    if (pool->voters == 0)
        return no_voters();
    int rc = fab->ops->ep_open(fab, &ep);
    if (rc != FAR_OK)
        return rc;
    batch_init(&b, ep, &cost);
    b.outside_views = true;
    uint64_t *word = ep->ops->buf_alloc(ep, MEMBERS_WORDS * 8);
    rc =
        members_begin(&members, &pool->members, pool->fab->nodes, members_off(pool->clients), word);
    if (rc == FAR_OK)
        rc = members_accept(&members, &b);
    members_end(&members);
    if (word)
        ep->ops->buf_free(ep, word, MEMBERS_WORDS * 8);
    ep->ops->ep_close(ep);
    return rc;
}
