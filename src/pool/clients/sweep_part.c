/* A client's part in a sweep, its own or another client's: see SWEEP-P1 in sweep.c. */
#include "pool/pool_internal.h"

#include <string.h>

/* Reads a word of every node, except for those that are away: theirs stays. */
int pool_read_marks(struct op *op, uint64_t delta, uint64_t *words)
{
    uint64_t *image = op_buffer(op, BUF_POOL, op->pool->nodes * 8), away = pool_away(op->pool);
    if (!image)
        return FAR_NO_MEMORY;
    for (unsigned i = 0; i < op->pool->nodes; i++)
        if (!(away >> i & 1))
            batch_read(&op->batch, gaddr_make(i, 0), delta, &image[i], 8);
    int rc = batch_flush(&op->batch);
    for (unsigned i = 0; i < op->pool->nodes && rc == FAR_OK; i++)
        if (!(away >> i & 1))
            words[i] = image[i] < pool_head(op->pool, i)->chunks ? image[i]
                                                                 : pool_head(op->pool, i)->chunks;
    return rc;
}

void client_learn_sweep(struct client *c, uint64_t sweep, uint64_t sweeps)
{
    c->sweep.met = 0;
    c->attention.sweep_unmet = (sweep & SWEEP_ANNOUNCED) != 0;
    /* EPOCH-E5: there was a sweep. What this client holds may be above its mark, and is lost. (A
     * client that joins holds nothing.) */
    if (sweeps != c->sweep.counted) {
        pool_abandon_bytes(c, c->stock.held_bytes + c->stock.retired_bytes);
        client_drop_all(c);
    }
    c->sweep.counted = sweeps;
}

int client_meet_sweep(struct op *op)
{
    struct client *c = op->client;
    ASSERT(op->batch.count == 0);
    uint64_t old_chunks[FAB_NODES_MAX], announced = c->epoch.announced;
    /* The count first: it does not include sweeps later than the one that the word announces. */
    batch_read(&op->batch, NODE0, SWEEPS_DELTA, &op->pool_word[1], 8);
    batch_fence(&op->batch);
    batch_read(&op->batch, NODE0, SWEEP_DELTA, &op->pool_word[0], 8);
    int rc = batch_flush(&op->batch);
    uint64_t sweep = op->pool_word[0], sweeps = op->pool_word[1];
    if (rc != FAR_OK)
        return rc;
    if (sweep & SWEEP_ANNOUNCED) {
        /* Of a node that is away all counts as below the mark. This client holds nothing there. */
        memset(old_chunks, 0xff, sizeof old_chunks);
        rc = pool_read_marks(op, NODE_SWEEP_OFF, old_chunks);
        if (rc != FAR_OK || !c->attention.sweep_unmet || c->epoch.announced != announced)
            return rc; /* another operation has met this sweep, or seen a later one */
        if (client_has_undone(c))
            return FAR_OK; /* SWEEP-P2: later. Until then this client certifies nothing newer */
        memcpy(c->sweep.old_chunks, old_chunks, op->pool->nodes * sizeof *old_chunks);
        c->sweep.met = sweep;
        c->sweep.counted = sweeps;
        client_drop_swept(c);
    }
    c->attention.sweep_unmet = false;
    return FAR_OK;
}
