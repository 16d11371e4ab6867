#include "bench/ground.h"
#include "store/store.h"

#include <stdlib.h>

#define CLEAR_BYTES 65536u

/* Writes zeros over the piece: also so that what is measured meets no page for the first time. */
static int clear(struct op *op, gaddr at, uint32_t bytes, const void *zeros)
{
    int rc = FAR_OK;
    for (uint32_t off = 0; off < bytes && rc == FAR_OK; off += CLEAR_BYTES) {
        batch_write(&op->batch, at, off, zeros,
                    bytes - off < CLEAR_BYTES ? bytes - off : CLEAR_BYTES);
        rc = batch_flush(&op->batch);
    }
    return rc;
}

static int take(struct ground *g, unsigned node, const void *zeros)
{
    struct op *op = &g->session->op;
    gaddr at = 0;
    int rc = pool_alloc(op, node, g->size_class, &at);
    if (rc != FAR_OK)
        return rc;
    if (gaddr_node(at) != node) {
        pool_free_unpublished(op->client, at, g->size_class);
        return err_fail(FAR_POOL_FULL, "node %u has no %u bytes in a row left", node,
                        g->piece_bytes);
    }
    g->piece[g->taken++] = gaddr_offset(at);
    return clear(op, at, g->piece_bytes, zeros);
}

int ground_open(far_session *session, uint64_t bytes, uint64_t piece_min, struct ground *ground)
{
    struct op *op = &session->op;
    struct fab_ep *ep = session->client.ep;
    unsigned size_class = size_class_for(bytes > piece_min ? bytes : piece_min);

    if (size_class == CLASS_COUNT) /* in several of the largest, then */
        size_class = CLASS_COUNT - 1;
    if (size_class_bytes(size_class) < piece_min)
        return err_fail(FAR_UNSUPPORTED, "%llu bytes in a row", (unsigned long long)piece_min);
    struct ground g = {
        .session = session,
        .size_class = size_class,
        .nodes = op->pool->nodes,
        .piece_bytes = size_class_bytes(size_class),
    };
    g.pieces = (unsigned)((bytes + g.piece_bytes - 1) / g.piece_bytes);
    g.pieces += g.pieces == 0;
    g.piece = calloc((size_t)g.nodes * g.pieces, sizeof *g.piece);
    void *zeros = ep->ops->buf_alloc(ep, CLEAR_BYTES);
    int rc = g.piece && zeros ? FAR_OK : err_fail(FAR_NO_MEMORY, "buffers for the raw measurement");

    client_enter(&session->client);
    if (rc == FAR_OK)
        rc = op_begin(op, NULL);
    for (unsigned i = 0; i < g.nodes * g.pieces && rc == FAR_OK; i++)
        rc = take(&g, i / g.pieces, zeros);
    if (zeros)
        ep->ops->buf_free(ep, zeros, CLEAR_BYTES);
    if (rc != FAR_OK) {
        ground_close(&g);
        return rc;
    }
    *ground = g;
    return FAR_OK;
}

void ground_close(struct ground *g)
{
    struct op *op = &g->session->op;
    /* Once the lease has lapsed, all that the client had in hand is a sweep's to find. */
    for (unsigned i = 0; i < g->taken && !client_lapsed(op->client); i++)
        pool_free_unpublished(op->client, gaddr_make(i / g->pieces, g->piece[i]), g->size_class);
    op_end(op);
    client_leave(op->client);
    free(g->piece);
}

int ground_tend(struct ground *g)
{
    struct op *op = &g->session->op;
    if (client_heartbeat_due(op->client)) {
        op->client->epoch.announcement.due = true;
        batch_read(&op->batch, gaddr_make(0, 0), 0, op->pool_word, 8);
        int rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            return rc;
    }
    return client_lapsed(op->client)
               ? err_fail(FAR_FENCED,
                          "the session that holds the memory of the raw measurement was "
                          "silent for longer than its lease")
               : FAR_OK;
}
