#include "pool/sweep/marks.h"
#include "pool/pool_internal.h"

#include <stdlib.h>

static bool is_marked(const struct marks *m, unsigned node, uint64_t unit)
{
    return m->reached[node][unit / 64] >> (unit % 64) & 1;
}

/* SWEEP-P4 */
static void reach(struct marker *marker, gaddr at, unsigned size_class)
{
    struct marks *m = (struct marks *)marker; /* the marker comes first */
    const struct pool *pool = m->op->pool;
    unsigned node = gaddr_node(at);
    if (node >= pool->nodes || gaddr_offset(at) < pool_chunks_start(pool, node) ||
        size_class >= CLASS_COUNT)
        return; /* a damaged pointer reaches nothing */
    uint64_t first = (gaddr_offset(at) - pool_chunks_start(pool, node)) / 64,
             end = first + size_class_bytes(size_class) / 64;
    if (end > m->chunks[node] << (CHUNK_SHIFT - 6))
        return;
    if (!is_marked(m, node, first))
        m->reached_bytes += size_class_bytes(size_class);
    for (uint64_t unit = first; unit < end; unit++)
        m->reached[node][unit / 64] |= 1ull << (unit % 64);
}

bool marks_reached(const struct marks *m, unsigned node, uint64_t offset_in_chunks, uint32_t bytes)
{
    ASSERT(node < m->op->pool->nodes && offset_in_chunks + bytes <= m->chunks[node] << CHUNK_SHIFT);
    for (uint64_t unit = offset_in_chunks / 64; unit < (offset_in_chunks + bytes) / 64; unit++)
        if (is_marked(m, node, unit))
            return true;
    return false;
}

int marks_all(struct marks *m)
{
    struct op *op = m->op;
    for (unsigned node = 0; node < op->pool->nodes; node++) {
        m->reached[node] = calloc((m->chunks[node] << (CHUNK_SHIFT - 12)) + 1, 8);
        if (!m->reached[node])
            return err_fail(FAR_NO_MEMORY, "no memory for a sweep");
    }
    unsigned damaged = 0, slot = 0;
    int rc = catalog_mark(op, &m->marker);
    if (rc == FAR_OK)
        rc = journal_mark(op, &m->marker, &damaged, &slot);
    if (damaged > 0) /* lines that cannot be read may be in use by the slot's owner */
        return err_fail(FAR_CORRUPT, "the journal of client slot %u is damaged", slot);
    return rc == FAR_OK && op->pool->mark ? op->pool->mark(op->pool->tables, op, &m->marker) : rc;
}

int marks_init(struct marks *m, struct op *op, bool sweeps)
{
    *m = (struct marks){.marker = {.mark = reach, .sweeps = sweeps}, .op = op};
    m->chunks = calloc(op->pool->nodes, sizeof *m->chunks);
    m->reached = calloc(op->pool->nodes, sizeof *m->reached);
    return m->chunks && m->reached ? FAR_OK : err_fail(FAR_NO_MEMORY, "no memory for marks");
}

void marks_free(struct marks *m)
{
    for (unsigned i = 0; m->reached && i < m->op->pool->nodes; i++)
        free(m->reached[i]);
    free(m->reached);
    free(m->chunks);
}
