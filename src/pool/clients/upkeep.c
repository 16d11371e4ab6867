/* Upkeep: what a client does between operations because it is not urgent. */
#include "pool/pool_internal.h"

/* Bytes that a client loses before it reports them. */
#define LOSS_REPORTED CLASS_SMALL_MAX

/* Adds one to the count of deaths if this client has lost memory by errors of the fabric, so that a
 * client that needs memory sweeps. Not during a sweep, which would find too little of it. */
static int report_loss(struct op *op)
{
    struct client *c = op->client;
    uint64_t bytes = c->stock.lost_bytes;
    if (bytes < LOSS_REPORTED || c->sweep.met || c->attention.sweep_unmet)
        return FAR_OK;
    batch_faa(&op->batch, MARK_PUBLISH, NODE0, DEATHS_DELTA, 1, op->pool_word);
    client_loss_reported(c, bytes); /* before the flush: a sibling must not report it too */
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        pool_abandon_bytes(c, bytes);
    return rc;
}

int client_upkeep(struct op *op)
{
    struct client *c = op->client;
    ASSERT(op->batch.count == 0);
    if (c->stock.limbo.count > 0)
        client_reclaim(c);
    if (c->stock.lost_bytes > 0) {
        int rc = report_loss(op);
        if (rc != FAR_OK)
            return rc;
    }
    if (c->watch.suspect >= 0) { /* it may hold up the epoch */
        int rc = client_try_recover(op);
        if (rc != FAR_OK)
            return rc;
    }
    unsigned node = 0, size_class = 0;
    if (!stock_begin_giving(c, &node, &size_class))
        return FAR_OK;
    int rc = c->sweep.met ? FAR_OK : client_give(op, node, size_class);
    stock_end_giving(c, node, size_class);
    return rc;
}
