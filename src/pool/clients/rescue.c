/*
 * Words that are kept on two machines, and clients that stop between the two.
 *
 * While a client has a word on its way (src/chain), nobody else can change that word. Who wants it
 * waits, and after a while is told whose word it is. Then it looks after that client:
 *
 *   RESCUE-1  A client whose heartbeat stands still is shut out and settled, as one that is in the
 *       way of anything else (LEASE-L2). It counts as dead later, when its slot is recovered.
 *   RESCUE-2  A client that has the lines of a slot, but not the slot, registers, leaves, or
 *       settles another one. It has no heartbeat, and two leases for that.
 *   RESCUE-3  Whoever waits sends its own heartbeat meanwhile: its announcement may wait, too.
 */
#include "pool/pool_internal.h"

#include <stdlib.h>

#define SETTLE_PAUSE_NS 100000u

struct rescue {
    struct batch batch;
    struct cost cost;
    uint64_t *word; /* the slot that is looked at, the own one's incarnation, the own heartbeat */
    bool busy;
    struct holder { /* since when has this client had the lines of a slot, without the slot? */
        uint64_t client, since;
    } holder[]; /* of each slot, and of guests */
};
#define GUESTS_MAX  64u
#define W_OWN       (sizeof(struct client_slot) / 8)
#define W_HEARTBEAT (W_OWN + 1)
#define WORDS       (W_OWN + 2)

/* Shuts out a client that settles, or is a guest. Nothing of them waits for a heartbeat of ours. */
static int shut_out(struct client *c, uint64_t client)
{
    const struct fab_ops *ops = c->ep->ops;
    int rc = ops->fence ? ops->fence(c->ep, client | 1) : FAR_OK;
    while (rc == FAB_PENDING) { /* until the fabric's time-out at most */
        ops->pause(c->ep, SETTLE_PAUSE_NS);
        rc = ops->fence(c->ep, client | 1);
    }
    return rc;
}

/* Waits while another client settles the slot. A client that settles takes some round trips. If it
 * takes longer than a quarter of a lease, it is shut out. */
int client_settle(struct client *c, unsigned slot, uint64_t incarnation)
{
    const struct fab_ops *ops = c->ep->ops;
    uint64_t holder = 0, last = 0, since = 0;
    if (!c->rescue)
        return FAR_OK;
    for (;;) {
        int rc = ops->chain->settle(c->ep, slot, incarnation, &holder);
        if (rc != FAR_CONTENTION)
            return rc;
        if (holder & 1) /* it goes on under another name, or is another client */
            return FAR_OK;
        if (holder != last)
            since = client_now(c);
        last = holder;
        if (client_now(c) - since > c->lease_ns / 4) {
            rc = shut_out(c, holder);
            if (rc != FAR_OK)
                return rc;
            incarnation = holder;
        }
        ops->pause(c->ep, SETTLE_PAUSE_NS);
    }
}

int client_visit(struct op *op)
{
    struct client *c = op->client;
    uint64_t holder = 0;
    unsigned slot = 0;
    if (!c->rescue)
        return FAR_OK;
    for (;;) {
        struct backoff patience = {0};
        int rc = FAR_CONTENTION;
        do
            rc = c->ep->ops->chain->visit(c->ep, c->incarnation, &slot, &holder);
        while (rc == FAR_CONTENTION && client_backoff(op, &patience, 2));
        if (rc == FAR_CONTENTION) { /* RESCUE-2 */
            rc = shut_out(c, holder);
            if (rc == FAR_OK)
                rc = client_settle(c, slot, holder);
            if (rc == FAR_OK)
                continue;
        }
        return rc;
    }
}

/* Is the client dead that has the slot's lines, as far as is known? */
static bool is_dead(struct client *c, unsigned slot, uint64_t holder, uint64_t asked)
{
    struct rescue *r = c->rescue;
    const struct client_slot *s = (const struct client_slot *)r->word;
    if (slot < c->pool->clients && s->incarnation == holder)
        return client_is_dead(c, s, slot, asked);
    struct holder *h = &r->holder[slot];
    if (h->client != holder)
        *h = (struct holder){holder, asked};
    return asked - h->since > 2 * c->lease_ns; /* RESCUE-2 */
}

static int look(struct client *c, unsigned slot)
{
    struct rescue *r = c->rescue;
    struct batch *b = &r->batch;
    bool registered = c->slot != NO_SLOT && !c->unannounced && !c->attention.lease_lost;
    uint64_t posted = client_now(c);
    batch_read(b, NODE0, slot < c->pool->clients ? slot_delta(slot) : CONTROL_OFF, r->word,
               sizeof(struct client_slot));
    if (registered) { /* RESCUE-3 */
        r->word[W_HEARTBEAT] = client_next_heartbeat(c);
        batch_write(b, MARK_EARLY, NODE0,
                    slot_delta(c->slot) + offsetof(struct client_slot, heartbeat),
                    &r->word[W_HEARTBEAT], 8);
        batch_read(b, NODE0, slot_delta(c->slot), &r->word[W_OWN], 8);
    }
    int rc = batch_flush(b);
    if (rc == FAR_OK && registered && r->word[W_OWN] == c->incarnation)
        c->lease_deadline = posted + c->lease_ns;
    return rc;
}

static void held_up(const struct batch_policy *policy, unsigned slot)
{
    struct client *c = ((const struct client_posts *)policy)->client;
    const struct fab_ops *ops = c->ep->ops;
    uint64_t holder = 0, asked = client_now(c);
    if (c->rescue->busy || slot == c->slot || slot >= c->pool->clients + GUESTS_MAX)
        return;
    c->rescue->busy = true;
    int rc = look(c, slot);
    if (rc == FAR_OK)
        rc = ops->chain->holder(c->ep, slot, &holder);
    if (rc == FAR_OK && holder != 0 && is_dead(c, slot, holder, asked)) {
        rc = ops->fence ? ops->fence(c->ep, holder | 1) : FAR_OK;
        if (rc == FAR_OK)
            (void)client_settle(c, slot, holder);
    }
    c->rescue->busy = false;
}

void client_finish(struct client *c)
{
    if (c->rescue)
        c->ep->ops->chain->finish(c->ep);
}

int client_rescue_init(struct client *c)
{
    struct rescue *r = calloc(1, sizeof *r + (c->pool->clients + GUESTS_MAX) * sizeof r->holder[0]);
    uint64_t *word = r ? c->ep->ops->buf_alloc(c->ep, WORDS * 8) : NULL;
    if (!word) {
        free(r);
        return err_fail(FAR_NO_MEMORY, "no memory for a client");
    }
    c->rescue = r;
    r->word = word;
    batch_init(&r->batch, c->ep, &r->cost);
    r->batch.policy = &c->posts[POLICY_JOINING].policy;
    for (unsigned i = 0; i < POLICY_COUNT; i++)
        c->posts[i].policy.held_up = held_up;
    return FAR_OK;
}

void client_rescue_free(struct client *c)
{
    if (!c->rescue)
        return;
    c->ep->ops->buf_free(c->ep, c->rescue->word, WORDS * 8);
    free(c->rescue);
    c->rescue = NULL;
}
