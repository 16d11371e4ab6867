/* An operation's buffers and words; its client's back-off, lease and progress. */
#include "pool/pool_internal.h"

#include <string.h>

int op_init(struct op *op, struct client *client)
{
    memset(op, 0, sizeof *op);
    op->client = client;
    op->pool = client->pool;
    batch_init(&op->batch, client->ep, &op->cost);
    (void)client_set_policy(op, POLICY_ANNOUNCING);
    op->pool_word = client->ep->ops->buf_alloc(client->ep, (OP_POOL_WORDS + OP_INDEX_WORDS) * 8);
    if (!op->pool_word)
        return err_fail(FAR_NO_MEMORY, "no buffer for an operation's words");
    op->word = op->pool_word + OP_POOL_WORDS;
    return FAR_OK;
}

void op_free(struct op *op)
{
    struct fab_ep *ep = op->batch.ep;
    for (unsigned i = 0; i < BUF_COUNT; i++)
        if (op->buf[i])
            ep->ops->buf_free(ep, op->buf[i], op->buf_bytes[i]);
    if (op->pool_word)
        ep->ops->buf_free(ep, op->pool_word, (OP_POOL_WORDS + OP_INDEX_WORDS) * 8);
    memset(op, 0, sizeof *op);
}

int op_set_aside(struct op *op, struct op_aside *aside)
{
    struct fab_ep *ep = op->batch.ep;

    ASSERT(op->batch.count == 0);
    uint64_t *word = ep->ops->buf_alloc(ep, OP_INDEX_WORDS * 8);
    if (!word)
        return err_fail(FAR_NO_MEMORY, "no buffer for an operation's words");
    aside->word = op->word;
    op->word = word;
    for (unsigned i = 0; i < BUF_POOL; i++) {
        aside->buf[i] = op->buf[i];
        aside->buf_bytes[i] = op->buf_bytes[i];
        op->buf[i] = NULL;
        op->buf_bytes[i] = 0;
    }
    return FAR_OK;
}

void op_take_back(struct op *op, const struct op_aside *aside)
{
    struct fab_ep *ep = op->batch.ep;

    ASSERT(op->batch.count == 0);
    ep->ops->buf_free(ep, op->word, OP_INDEX_WORDS * 8);
    op->word = aside->word;
    for (unsigned i = 0; i < BUF_POOL; i++) {
        if (op->buf[i])
            ep->ops->buf_free(ep, op->buf[i], op->buf_bytes[i]);
        op->buf[i] = aside->buf[i];
        op->buf_bytes[i] = aside->buf_bytes[i];
    }
}

void *op_buffer_grow(struct op *op, enum op_buf which, size_t bytes)
{
    ASSERT(which < BUF_COUNT);
    struct fab_ep *ep = op->batch.ep;
    size_t grown = 4096;
    while (grown < bytes)
        grown *= 2;
    void *buf = ep->ops->buf_alloc(ep, grown);
    if (!buf) {
        err_fail(FAR_NO_MEMORY, "no buffer of %zu bytes", grown);
        return NULL;
    }
    if (op->buf[which])
        ep->ops->buf_free(ep, op->buf[which], op->buf_bytes[which]);
    op->buf[which] = buf;
    op->buf_bytes[which] = grown;
    return buf;
}

uint64_t op_random(struct op *op, uint64_t bound)
{
    return rng_below(&op->client->rng, bound);
}

#define PAUSE_NS_LEAST 1000
#define PAUSE_NS_MOST  1000000

/* The longest pause, if it must not exceed `most`. */
static uint64_t pause_most(const struct op *op, uint64_t most)
{
    uint64_t heartbeat = op->client->lease_ns / 8;
    return most < heartbeat ? most : heartbeat;
}

/* The ring gets a turn at least this often. */
#define WAIT_TURN_NS PAUSE_NS_MOST

void op_wait(struct op *op, uint64_t ns)
{
    struct client *c = op->client;
    if (op->batch.on_ring) { /* others of the ring run meanwhile */
        batch_pause(&op->batch, ns);
        return;
    }
    do {
        uint64_t turn = ns < WAIT_TURN_NS ? ns : WAIT_TURN_NS;
        if (c->drive_ring)
            c->drive_ring(c); /* RING-1 */
        batch_pause(&op->batch, turn);
        ns -= turn;
    } while (ns > 0);
}

void op_pause(struct op *op, uint64_t *pause_ns)
{
    uint64_t most = pause_most(op, PAUSE_NS_MOST);
    *pause_ns = *pause_ns == 0 ? PAUSE_NS_LEAST : 2 * *pause_ns;
    if (*pause_ns > most)
        *pause_ns = most;
    op_wait(op, *pause_ns);
}

void op_pause_below(struct op *op, uint64_t bound)
{
    op_wait(op, op_random(op, pause_most(op, bound)));
}

/* ---- the client ------------------------------------------------------------------------------ */

/* LEASE-L4: how long a client waits once it knows of another that stands still, and whose process
 * lives: it may stand still for hours. */
#define STILL_LEASES 1

bool client_backoff(struct op *op, struct backoff *b, unsigned leases)
{
    if (op->client->watch.still >= 0 && leases > STILL_LEASES)
        leases = STILL_LEASES;
    if (b->waited_ns > leases * op->client->lease_ns)
        return false;
    if (b->pause_ns == pause_most(op, PAUSE_NS_MOST) && op->pool->hurry)
        op->pool->hurry(op->pool->tables);
    op_pause(op, &b->pause_ns);
    b->waited_ns += b->pause_ns;
    return true;
}

uint64_t client_lease_ns(const struct client *c)
{
    return c->lease_ns;
}

bool client_lapsed(const struct client *c)
{
    return c->attention.lease_lost || client_now(c) > c->lease_deadline;
}

int client_progress(struct client *c, const char *what, uint64_t done, uint64_t total)
{
    if (!c->progress || c->progress(c->progress_arg, what, done, total))
        return FAR_OK;
    return err_fail(FAR_STOPPED, "%s: stopped by the caller", what);
}
