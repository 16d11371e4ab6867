/* Opening chains and their endpoints, and what goes to the machines as it is. */
#include "chain/chain_internal.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN 4096u

static void chain_close(struct fab *fab)
{
    struct chain *c = (struct chain *)fab;
    fab_close(c->machines);
    free(c);
}

static void chain_ep_close(struct fab_ep *ep)
{
    struct chain_ep *e = (struct chain_ep *)ep;
    const struct fab_ops *ops = e->machines->ops;
    chain_finish(e);
    while (e->made) {
        struct chain_call *next = e->made->made;
        ops->buf_free(e->machines, e->made->word, CALL_WORDS_BYTES);
        free(e->made);
        e->made = next;
    }
    for (unsigned i = 0; i < ep->fab->nodes; i++)
        if (e->image[i])
            ops->buf_free(e->machines, e->image[i], CHAIN_CLIENT_BYTES);
    if (e->zero)
        ops->buf_free(e->machines, e->zero, 24);
    ops->ep_close(e->machines);
    free(e);
}

static int chain_ep_open(struct fab *fab, struct fab_ep **ep)
{
    struct chain *c = (struct chain *)fab;
    struct chain_ep *e = calloc(1, sizeof *e);
    if (!e)
        return err_fail(FAR_NO_MEMORY, "no memory for an endpoint");
    int rc = c->machines->ops->ep_open(c->machines, &e->machines);
    if (rc != FAR_OK) {
        free(e);
        return rc;
    }
    const struct fab_ops *ops = e->machines->ops;
    e->ep.fab = fab;
    e->ep.ops = fab->ops;
    bool enough = (e->zero = ops->buf_alloc(e->machines, 24)) != NULL;
    for (unsigned i = 0; i < fab->nodes && enough; i++)
        enough = (e->image[i] = ops->buf_alloc(e->machines, CHAIN_CLIENT_BYTES)) != NULL;
    if (!enough) {
        chain_ep_close(&e->ep);
        return err_fail(FAR_NO_MEMORY, "no memory for an endpoint");
    }
    *ep = &e->ep;
    return FAR_OK;
}

/* ---- the slot whose lines a client has ------------------------------------------------------- */

/* Replaces what the slot's word says, if it says `old`. */
static int seat_swap(struct chain_ep *e, unsigned slot, uint64_t old, uint64_t new, uint64_t *found)
{
    struct fab_verb cas = {.kind = FAB_CAS,
                           .len = 8,
                           .off = chain_seat(chain_of(e), slot),
                           .buf = e->zero + 2,
                           .compare = old,
                           .swap = new};
    int rc = chain_execute(e, &cas, 1);
    if (rc == FAR_OK)
        *found = e->zero[2];
    return rc;
}

static void chain_leave(struct fab_ep *ep)
{
    struct chain_ep *e = (struct chain_ep *)ep;
    uint64_t found;
    chain_finish(e);
    if (e->has_client && !e->broken)
        (void)seat_swap(e, e->slot, e->incarnation, 0, &found); /* else others find it */
    e->has_client = false;
}

static int chain_take_seat(struct fab_ep *ep, unsigned slot, uint64_t from, uint64_t client,
                           uint64_t *holder)
{
    struct chain_ep *e = (struct chain_ep *)ep;
    ASSERT(slot < chain_of(e)->slots);
    chain_finish(e);
    bool guest = e->has_client && e->slot >= chain_of(e)->clients;
    *holder = from;
    if (from != 0 && e->broken) /* it must leave the slot */
        return FAR_CONTENTION;
    int rc = seat_swap(e, slot, from, client, holder);
    if (rc != FAR_OK)
        return rc;
    if (*holder != from)
        return FAR_CONTENTION;
    if (guest)
        chain_leave(ep);
    *holder = from;
    if (from == 0)
        e->holds = 0;
    e->has_client = true;
    e->broken = false;
    e->slot = slot;
    e->incarnation = client;
    memset(e->used, 0, sizeof e->used);
    return FAR_OK;
}

static int chain_visit(struct fab_ep *ep, uint64_t client, unsigned *slot, uint64_t *holder)
{
    struct chain_ep *e = (struct chain_ep *)ep;
    int rc = FAR_CONTENTION;
    if (e->has_client && !e->broken && e->incarnation == client)
        return FAR_OK;
    e->has_client = false; /* what it had, others settle */
    for (*slot = chain_of(e)->slots; rc == FAR_CONTENTION && (*slot)-- > chain_of(e)->clients;)
        rc = chain_take_seat(ep, *slot, 0, client, holder);
    if (rc == FAR_CONTENTION)
        *slot = chain_of(e)->clients;
    return rc;
}

static int chain_holder(struct fab_ep *ep, unsigned slot, uint64_t *client)
{
    struct chain_ep *e = (struct chain_ep *)ep;
    struct fab_verb read = {
        .kind = FAB_READ, .len = 8, .off = chain_seat(chain_of(e), slot), .buf = e->zero + 2};
    int rc = chain_execute(e, &read, 1);
    *client = rc == FAR_OK ? e->zero[2] : 0;
    return rc;
}

static void chain_end(struct fab_ep *ep)
{
    chain_finish((struct chain_ep *)ep);
}

static uint64_t chain_oldest(struct fab_ep *ep, uint64_t epoch)
{
    struct chain_ep *e = (struct chain_ep *)ep;
    uint64_t oldest = UINT64_MAX;
    if (epoch != 0)
        e->epoch = epoch;
    for (const struct chain_call *call = e->made; call; call = call->made)
        if (call->busy && call->epoch < oldest)
            oldest = call->epoch;
    return oldest;
}

static uint64_t chain_posted(struct fab_ep *ep)
{
    return ((struct chain_ep *)ep)->calls;
}

static bool chain_ended(struct fab_ep *ep, uint64_t count)
{
    const struct chain_ep *e = (struct chain_ep *)ep;
    bool ended = !e->broken;
    for (const struct chain_call *call = e->made; call; call = call->made)
        ended &= !call->busy || call->number > count;
    return ended;
}

static void chain_forget(struct fab_ep *ep, const struct fab_req *req)
{
    struct chain_ep *e = (struct chain_ep *)ep;
    for (unsigned i = e->holds; i-- > 0;)
        if (e->hold[i].by == req)
            e->hold[i] = e->hold[--e->holds];
}

static const struct fab_chain_ops chain_lines_ops = {.visit = chain_visit,
                                                     .seat = chain_take_seat,
                                                     .leave = chain_leave,
                                                     .holder = chain_holder,
                                                     .settle = chain_settle,
                                                     .finish = chain_end,
                                                     .posted = chain_posted,
                                                     .ended = chain_ended,
                                                     .forget = chain_forget,
                                                     .oldest = chain_oldest};

/* ---- what goes to the machines as it is ------------------------------------------------------ */

static struct fab_ep *below(struct fab_ep *ep)
{
    return ((struct chain_ep *)ep)->machines;
}

static void *chain_buf_alloc(struct fab_ep *ep, size_t bytes)
{
    return below(ep)->ops->buf_alloc(below(ep), bytes);
}

static void chain_buf_free(struct fab_ep *ep, void *buf, size_t bytes)
{
    below(ep)->ops->buf_free(below(ep), buf, bytes);
}

static uint64_t chain_now(struct fab_ep *ep)
{
    return below(ep)->ops->now(below(ep));
}

static uint64_t chain_coarse(struct fab_ep *ep)
{
    return below(ep)->ops->coarse(below(ep));
}

static void chain_pause(struct fab_ep *ep, uint64_t ns)
{
    below(ep)->ops->pause(below(ep), ns);
}

static void chain_identify(struct fab_ep *ep, uint64_t client)
{
    ((struct chain_ep *)ep)->identity = client;
    if (!below(ep)->ops->identify)
        return;
    below(ep)->ops->identify(below(ep), client);
}

static int chain_fence(struct fab_ep *ep, uint64_t client)
{
    return below(ep)->ops->fence(below(ep), client);
}

static enum fab_life chain_life(struct fab_ep *ep, uint64_t client, uint64_t witness)
{
    return below(ep)->ops->life(below(ep), client, witness);
}

static uint64_t chain_witness(struct fab_ep *ep, uint64_t client)
{
    return below(ep)->ops->witness(below(ep), client);
}

static const struct fab_ops chain_ops = {
    .scheme = "chain",
    .close = chain_close,
    .ep_open = chain_ep_open,
    .ep_close = chain_ep_close,
    .buf_alloc = chain_buf_alloc,
    .buf_free = chain_buf_free,
    .post = chain_post,
    .poll = chain_poll,
    .now = chain_now,
    .coarse = chain_coarse,
    .pause = chain_pause,
    .identify = chain_identify,
    .chain = &chain_lines_ops,
};

int chain_open(struct fab *machines, unsigned clients, struct fab **fab)
{
    uint64_t lines = chain_bytes(clients + CHAIN_GUESTS);
    if (machines->nodes < 2)
        return err_fail(FAR_INVALID, "replicas=2 needs two memory nodes at least");
    if (!(machines->caps & FAB_CAP_MCAS))
        return err_fail(FAR_UNSUPPORTED, "replicas=2 needs a fabric with masked CAS");
    struct chain *c = calloc(1, sizeof *c);
    if (!c)
        return err_fail(FAR_NO_MEMORY, "no memory for a fabric");
    c->fab = *machines;
    c->ops = chain_ops;
    c->ops.fence = machines->ops->fence ? chain_fence : NULL;
    c->ops.life = machines->ops->life ? chain_life : NULL;
    c->ops.witness = machines->ops->witness ? chain_witness : NULL;
    c->fab.ops = &c->ops;
    c->fab.caps = machines->caps & (FAB_CAP_MCAS | FAB_CAP_LOCAL);
    c->machines = machines;
    c->clients = clients;
    c->slots = clients + CHAIN_GUESTS;
    for (unsigned i = 0; i < machines->nodes; i++) {
        uint64_t head = machines->size[i], tail = machines->size[chain_tail(c, i)];
        uint64_t half = (head < tail ? head : tail) / 2 / ALIGN * ALIGN;
        if (half <= lines + ALIGN) {
            free(c);
            return err_fail(FAR_INVALID, "node %u is too small for the lines of %u clients", i,
                            clients);
        }
        c->fab.size[i] = half - (lines + ALIGN - 1) / ALIGN * ALIGN;
        c->tail_at[i] = tail / 2 / ALIGN * ALIGN;
    }
    *fab = &c->fab;
    return FAR_OK;
}

#define CLIENTS_DEFAULT 256u

int chain_open_if(struct fab *machines, struct fab **fab)
{
    uint64_t clients = machines->clients_wanted;
    *fab = machines;
    if (machines->replicas < 2)
        return FAR_OK;
    if (machines->voters > 0)
        return err_fail(FAR_UNSUPPORTED, "replicas=2 does not go with voters yet");
    machines->clients_wanted = clients ? clients : CLIENTS_DEFAULT;
    return chain_open(machines, (unsigned)machines->clients_wanted, fab);
}

void chain_free(struct fab *fab, struct fab *machines)
{
    if (fab != machines)
        free(fab);
}

/* ---- for audits ------------------------------------------------------------------------------ */

void chain_read_heads(struct fab *fab, bool heads)
{
    ((struct chain *)(void *)fab)->heads = heads;
}

void chain_lose_heads(struct fab *fab)
{
    ((struct chain *)(void *)fab)->tails = true;
}

unsigned chain_tail_of(const struct fab *fab, unsigned node, uint64_t *from)
{
    const struct chain *c = (const void *)fab;
    *from = c->tail_at[node];
    return chain_tail(c, node);
}

bool chain_some_open(const struct fab *fab, const void *head, unsigned node, unsigned slot)
{
    bool open = false;
    for (unsigned i = 0; i < CHAIN_LINES; i++) {
        uint64_t at = chain_line_off(fab->size[node], slot, i);
        open |= chain_line_open((const void *)((const char *)head + at), gaddr_make(node, at));
    }
    return open;
}

uint64_t chain_seat_of(const struct fab *fab, const void *head, unsigned slot)
{
    uint64_t at = chain_seat((const void *)fab, slot);
    return *(const uint64_t *)(const void *)((const char *)head + at);
}
