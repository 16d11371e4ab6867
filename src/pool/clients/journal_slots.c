/* The lines of any slot: how many say something, marking them for a sweep, cutting damaged
 * chains. */
#include "pool/clients/journal_internal.h"

#include <stdlib.h>

int journal_used_nodes(struct op *op, unsigned slot, uint64_t *nodes)
{
    const unsigned count = op->pool->nodes;
    batch_read(&op->batch, NODE0, slot_delta(slot) + offsetof(struct client_slot, journals),
               op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    *nodes = op->pool_word[0] & (count == 64 ? UINT64_MAX : (1ull << count) - 1);
    return rc;
}

struct pending {
    struct walk walk;
    unsigned lines;
};

static void count_pending(struct walk *w, unsigned slot, gaddr at, const struct journal_line *line)
{
    (void)slot, (void)at;
    ((struct pending *)w)->lines += line->intent.stamp != 0;
}

int journal_pending(struct op *op, unsigned slot, unsigned *lines)
{
    struct pending p = {.walk = {.op = op, .visit = count_pending}};
    uint64_t nodes = 0;
    int rc = journal_used_nodes(op, slot, &nodes);
    for (unsigned node = 0; node < op->pool->nodes && rc == FAR_OK; node++)
        if (nodes >> node & 1)
            rc = journal_walk_one(&p.walk, node, slot);
    *lines = p.lines;
    return rc;
}

struct marking {
    struct walk walk;
    struct marker *marker;
};

static void mark_line(struct walk *w, unsigned slot, gaddr at, const struct journal_line *line)
{
    struct marker *marker = ((struct marking *)w)->marker;
    (void)line;
    if (marker && at != first_line(w->op->pool, gaddr_node(at), slot))
        marker->mark(marker, at, JOURNAL_CLASS);
}

int journal_mark(struct op *op, struct marker *marker, unsigned *damaged, unsigned *slot)
{
    struct marking m = {.walk = {.op = op, .visit = mark_line}, .marker = marker};
    struct walk *w = &m.walk;
    struct pool *pool = op->pool;
    uint64_t *nodes = malloc(pool->clients * sizeof *nodes);
    struct client_slot *slots = NULL;
    int rc =
        nodes ? client_registry(op, &slots) : err_fail(FAR_NO_MEMORY, "no memory for journals");

    for (unsigned i = 0; i < pool->clients && rc == FAR_OK; i++)
        nodes[i] = slots[i].journals;
    for (unsigned i = 0; i < pool->clients * pool->nodes && rc == FAR_OK; i++) {
        unsigned of = i / pool->nodes, node = i % pool->nodes;
        if (nodes[of] >> node & 1)
            rc = journal_walk_add(w, node, of);
    }
    if (rc == FAR_OK)
        rc = journal_walk(w);
    free(nodes);
    if (damaged)
        *damaged = w->damaged;
    if (slot)
        *slot = w->last;
    return rc;
}

static void visit_not(struct walk *w, unsigned slot, gaddr at, const struct journal_line *line)
{
    (void)w, (void)slot, (void)at, (void)line;
}

/* Cuts the chain of a free slot behind its first line. Meanwhile the slot is claimed, as if its
 * client were being recovered (LEASE-L2). */
static int cut_chain(struct op *op, unsigned node, unsigned slot)
{
    uint64_t mine = CLIENT_FENCED | CLIENT_REPAIRED | client_owner_word(op->client);
    uint64_t *word = op->pool_word;
    gaddr first = first_line(op->pool, node, slot);
    batch_cas(&op->batch, MARK_PUBLISH, NODE0, slot_delta(slot), 0, mine, &word[0]);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_UNREACHABLE || (rc == FAR_OK && word[0] != 0))
        return rc; /* it is in use by now */
    if (rc == FAR_OK) {
        batch_read(&op->batch, first, offsetof(struct journal_line, next), &word[0], 8);
        rc = batch_flush(&op->batch);
    }
    if (rc == FAR_OK) {
        batch_cas(&op->batch, MARK_PUBLISH, first, offsetof(struct journal_line, next), word[0], 0,
                  &word[1]);
        rc = batch_flush(&op->batch);
    }
    if (rc == FAR_OK) {
        batch_cas(&op->batch, MARK_PUBLISH, NODE0, slot_delta(slot), mine, 0, &word[0]);
        rc = batch_flush(&op->batch);
    }
    if (rc != FAR_OK)
        client_renounce(op); /* others recover the claim, also if its CAS lands late */
    return rc;
}

int journal_repair(struct op *op)
{
    int rc = FAR_OK;
    for (unsigned slot = 0; slot < op->pool->clients && rc == FAR_OK; slot++) {
        uint64_t nodes = 0;
        rc = journal_used_nodes(op, slot, &nodes);
        for (unsigned node = 0; node < op->pool->nodes && rc == FAR_OK; node++) {
            struct walk w = {.op = op, .visit = visit_not};
            if (nodes >> node & 1)
                rc = journal_walk_one(&w, node, slot);
            if (rc == FAR_OK && w.damaged > 0)
                rc = cut_chain(op, node, slot);
        }
    }
    return rc;
}
