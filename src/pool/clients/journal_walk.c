/* Walking the chains of lines, several at once (JOURNAL-J1). A chain that is damaged ends there. */
#include "pool/clients/journal_internal.h"

#define LINES_MAX 65536u /* of a chain: a longer one goes in a circle */

void journal_break_off(struct walk *w, struct cursor *c, gaddr at)
{
    c->at = 0;
    w->damaged++;
    w->last = c->slot;
    w->broken = c->before;
    w->bad_next = at;
}

/* Reads one line of each chain, and moves the cursors on to the next ones. */
static int walk_step(struct walk *w)
{
    struct op *op = w->op;
    const struct pool *pool = op->pool;
    const uint32_t bytes = w->whole ? JOURNAL_BYTES : WALK_BYTES;
    char *image = op_buffer(op, BUF_JOURNAL, (size_t)WALK_MANY * bytes);
    if (!image)
        return FAR_NO_MEMORY;
    for (unsigned i = 0; i < w->count; i++) {
        struct cursor *c = &w->cursor[i];
        struct fab_verb v = {.kind = FAB_READ,
                             .node = (uint16_t)gaddr_node(c->at),
                             .len = JOURNAL_BYTES,
                             .off = gaddr_offset(c->at),
                             .buf = image};
        bool away =
            v.node < pool->nodes && fab_away(pool->fab) >> v.node & 1; /* so the walk fails */
        if (c->at >> GADDR_BITS != 0 || (!away && !fab_valid(pool->fab, &v)))
            journal_break_off(w, c, c->at); /* the others go on */
        else if (c->at != 0)
            batch_read_head(&op->batch, c->at, 0, image + (size_t)i * bytes, bytes);
    }
    int rc = batch_flush(&op->batch);
    for (unsigned i = 0; i < w->count && rc == FAR_OK; i++) {
        const struct journal_line *line = (const void *)(image + (size_t)i * bytes);
        struct cursor *c = &w->cursor[i];
        gaddr at = c->at;
        if (at == 0)
            continue;
        if (at != first_line(pool, gaddr_node(at), c->slot) &&
            line->magic != JOURNAL_MAGIC + c->slot) {
            journal_break_off(w, c, at);
            continue;
        }
        c->at = line->next;
        w->visit(w, c->slot, at, line);
        c->before = at;
    }
    return rc;
}

int journal_walk(struct walk *w)
{
    ASSERT(w->count <= WALK_MANY && w->op->batch.count == 0);
    for (unsigned n = 0; n < LINES_MAX; n++) {
        bool more = false;
        for (unsigned i = 0; i < w->count; i++)
            more |= w->cursor[i].at != 0;
        int rc = more ? walk_step(w) : FAR_OK;
        if (!more || rc != FAR_OK) {
            w->count = 0;
            return rc;
        }
    }
    w->count = 0;
    w->damaged++; /* the chain is a circle */
    return FAR_OK;
}

int journal_walk_add(struct walk *w, unsigned node, unsigned slot)
{
    w->cursor[w->count++] = (struct cursor){slot, first_line(w->op->pool, node, slot), 0};
    return w->count == WALK_MANY ? journal_walk(w) : FAR_OK;
}

int journal_walk_one(struct walk *w, unsigned node, unsigned slot)
{
    int rc = journal_walk_add(w, node, slot);
    return rc == FAR_OK ? journal_walk(w) : rc;
}
