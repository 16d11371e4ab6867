#include "bench/scratch.h"
#include "store/store.h"

#include <stdlib.h>

#define CLEAR_BYTES 65536u

/* Zeroes the piece. This also touches its pages, so that the measurement does not. */
static int clear(struct op *op, gaddr at, uint32_t bytes, const void *zeros)
{
    int rc = FAR_OK;
    for (uint32_t off = 0; off < bytes && rc == FAR_OK; off += CLEAR_BYTES) {
        batch_write(&op->batch, MARK_EARLY, at, off, zeros,
                    bytes - off < CLEAR_BYTES ? bytes - off : CLEAR_BYTES);
        rc = batch_flush(&op->batch);
    }
    return rc;
}

static int take(struct scratch *s, unsigned node, const void *zeros)
{
    struct op *op = &s->session->op;
    gaddr at = 0;
    int rc = pool_alloc(op, node, s->size_class, &at);
    if (rc != FAR_OK)
        return rc;
    if (gaddr_node(at) != node) {
        pool_free_unpublished(op->client, at, s->size_class);
        return err_fail(FAR_POOL_FULL, "node %u has no %u contiguous bytes left", node,
                        s->piece_bytes);
    }
    s->piece[s->taken++] = gaddr_offset(at);
    return clear(op, at, s->piece_bytes, zeros);
}

int scratch_open(far_session *session, uint64_t bytes, uint64_t piece_min, struct scratch *scratch)
{
    struct op *op = &session->op;
    struct fab_ep *ep = session->client.ep;
    unsigned size_class = size_class_for(bytes > piece_min ? bytes : piece_min);

    if (size_class == CLASS_COUNT) /* then several pieces of the largest class */
        size_class = CLASS_COUNT - 1;
    if (size_class_bytes(size_class) < piece_min)
        return err_fail(FAR_UNSUPPORTED, "no object has %llu contiguous bytes",
                        (unsigned long long)piece_min);
    struct scratch s = {
        .session = session,
        .size_class = size_class,
        .nodes = op->pool->nodes,
        .piece_bytes = size_class_bytes(size_class),
    };
    s.pieces = (unsigned)((bytes + s.piece_bytes - 1) / s.piece_bytes);
    s.pieces += s.pieces == 0;
    s.piece = calloc((size_t)s.nodes * s.pieces, sizeof *s.piece);
    void *zeros = ep->ops->buf_alloc(ep, CLEAR_BYTES);
    int rc =
        s.piece && zeros ? FAR_OK : err_fail(FAR_NO_MEMORY, "no memory for the raw measurement");

    client_enter(&session->client);
    if (rc == FAR_OK)
        rc = op_begin(op, NULL);
    for (unsigned i = 0; i < s.nodes * s.pieces && rc == FAR_OK; i++)
        rc = take(&s, i / s.pieces, zeros);
    if (zeros)
        ep->ops->buf_free(ep, zeros, CLEAR_BYTES);
    if (rc != FAR_OK) {
        scratch_close(&s);
        return rc;
    }
    *scratch = s;
    return FAR_OK;
}

void scratch_close(struct scratch *s)
{
    struct op *op = &s->session->op;
    /* Once the lease has lapsed, a sweep finds what the client held. */
    for (unsigned i = 0; i < s->taken && !client_lapsed(op->client); i++)
        pool_free_unpublished(op->client, gaddr_make(i / s->pieces, s->piece[i]), s->size_class);
    op_end(op);
    client_leave(op->client);
    free(s->piece);
}

int scratch_keep_alive(struct scratch *s)
{
    struct op *op = &s->session->op;
    if (client_heartbeat_due(op->client)) {
        client_send_heartbeat(op->client);
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
