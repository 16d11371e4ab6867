/*
 * Settling: ends what a client has begun that is shut out.
 *
 *   SETTLE-1  Who settles has put its name into the word of the slot, so it is alone. If it dies,
 *       the next one shuts it out, and takes the word from it.
 *   SETTLE-2  A line that is open at the head tells what its client may have left. A word that
 *       refers to it is brought to the tail, and put in place of the reference. Ranges are copied
 *       from the head to the tail: the client's lock is still there, and keeps others away. What
 *       these lead to is copied before: it was at the head before they were.
 *   SETTLE-3  A line is closed when all it says has been done, at the head first. A line that is
 *       open at the tail alone has been.
 *   SETTLE-4  The client counts as dead from then on, not before. So its locks are its own
 *       meanwhile, and what the index recovers is whole on both machines.
 */
#include "chain/chain_internal.h"

#include <string.h>

#define PIECE_BYTES 4096u

int chain_execute(struct chain_ep *e, struct fab_verb *verbs, unsigned count)
{
    const struct fab_ops *ops = e->machines->ops;
    struct fab_req req = {.verbs = verbs, .count = count};
    int rc = ops->post(e->machines, &req);
    while (rc == FAR_OK && !req.done)
        ops->poll(e->machines, true);
    return rc == FAR_OK ? req.status : rc;
}

/* A client's lines of one node. */
struct settling {
    struct chain_ep *e;
    unsigned node, slot;
    char *head, *tail, *piece; /* images of the lines; and a part of a range */
    uint64_t *word;
};

static int execute_one(struct settling *s, enum fab_kind kind, bool at_tail, uint64_t off,
                       void *buf, size_t len)
{
    const struct chain *c = chain_of(s->e);
    struct fab_verb v = {.kind = (uint8_t)kind,
                         .node = (uint16_t)(at_tail ? chain_tail(c, s->node) : s->node),
                         .len = (uint32_t)len,
                         .off = off + (at_tail ? c->tail_at[s->node] : 0),
                         .buf = buf};
    return chain_execute(s->e, &v, 1);
}

static int settle_word(struct settling *s, uint64_t off, uint64_t reference, uint64_t new)
{
    int rc = execute_one(s, FAB_READ, false, off, s->word, 8);
    if (rc != FAR_OK || *s->word != reference)
        return rc;
    *s->word = new;
    rc = execute_one(s, FAB_WRITE, true, off, s->word, 8);
    if (rc != FAR_OK)
        return rc;
    struct fab_verb cas = {.kind = FAB_CAS,
                           .node = (uint16_t)s->node,
                           .len = 8,
                           .off = off,
                           .buf = s->word,
                           .compare = reference,
                           .swap = new};
    return chain_execute(s->e, &cas, 1);
}

static int settle_range(struct settling *s, uint64_t off, uint64_t bytes)
{
    int rc = FAR_OK;
    for (uint64_t at = 0, part; at < bytes && rc == FAR_OK; at += part) {
        part = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        rc = execute_one(s, FAB_READ, false, off + at, s->piece, part);
        if (rc == FAR_OK)
            rc = execute_one(s, FAB_WRITE, true, off + at, s->piece, part);
    }
    return rc;
}

/* Has the line a word that refers to it, or a range? Then others may find what it wrote early. */
static int is_decided(struct settling *s, const struct chain_line *line, uint64_t reference,
                      bool *decided)
{
    int rc = FAR_OK;
    *decided = false;
    for (uint64_t i = 0; i < line->entries && !*decided && rc == FAR_OK; i++) {
        const struct chain_entry *entry = &line->entry[i];
        *decided = chain_entry_what(entry) == CHAIN_RANGE;
        if (chain_entry_what(entry) != CHAIN_WORD)
            continue;
        rc = execute_one(s, FAB_READ, false, chain_entry_off(entry), s->word, 8);
        *decided = rc == FAR_OK && *s->word == reference;
    }
    return rc;
}

static int settle_line(struct settling *s, unsigned number, const struct chain_line *line)
{
    uint64_t reference = chain_reference(s->slot, number, line->stamp);
    bool decided;
    int rc = is_decided(s, line, reference, &decided);
    for (unsigned early = 2; early-- > 0 && decided;)
        for (uint64_t i = 0; i < line->entries && rc == FAR_OK; i++) {
            const struct chain_entry *entry = &line->entry[i];
            uint64_t off = chain_entry_off(entry);
            if ((chain_entry_what(entry) == CHAIN_EARLY) != (early == 1))
                continue;
            rc = chain_entry_what(entry) == CHAIN_WORD ? settle_word(s, off, reference, entry->b)
                                                       : settle_range(s, off, entry->a);
        }
    return rc;
}

static int settle_lines(struct settling *s)
{
    uint64_t lines = s->e->ep.fab->size[s->node], from = chain_line_off(lines, s->slot, 0);
    int rc = execute_one(s, FAB_READ, false, from, s->head, CHAIN_CLIENT_BYTES);
    if (rc == FAR_OK)
        rc = execute_one(s, FAB_READ, true, from, s->tail, CHAIN_CLIENT_BYTES);
    for (unsigned i = 0; i < CHAIN_LINES && rc == FAR_OK; i++) {
        uint64_t at = chain_line_off(lines, s->slot, i);
        const struct chain_line *head = (const void *)(s->head + (at - from));
        const struct chain_line *tail = (const void *)(s->tail + (at - from));
        if (chain_line_open(head, gaddr_make(s->node, at)))
            rc = settle_line(s, i, head);
        *s->word = 0;
        if (rc == FAR_OK && head->checksum != 0)
            rc = execute_one(s, FAB_WRITE, false, at, s->word, 8);
        if (rc == FAR_OK && chain_line_open(tail, gaddr_make(s->node, at)))
            rc = execute_one(s, FAB_WRITE, true, at, s->word, 8);
    }
    return rc;
}

static int settle_nodes(struct chain_ep *e, unsigned slot)
{
    const struct fab_ops *ops = e->machines->ops;
    const size_t bytes = 2 * CHAIN_CLIENT_BYTES + PIECE_BYTES + 8;
    char *buf = ops->buf_alloc(e->machines, bytes);
    if (!buf)
        return err_fail(FAR_NO_MEMORY, "no memory to settle what a client has begun");
    struct settling s = {.e = e,
                         .slot = slot,
                         .head = buf,
                         .tail = buf + CHAIN_CLIENT_BYTES,
                         .piece = buf + 2 * CHAIN_CLIENT_BYTES,
                         .word = (void *)(buf + 2 * CHAIN_CLIENT_BYTES + PIECE_BYTES)};
    int rc = FAR_OK;
    for (; s.node < e->ep.fab->nodes && rc == FAR_OK; s.node++)
        rc = settle_lines(&s);
    ops->buf_free(e->machines, buf, bytes);
    return rc;
}

int chain_settle(struct fab_ep *ep, unsigned slot, uint64_t client, uint64_t *holder)
{
    struct chain_ep *e = (struct chain_ep *)ep;
    uint64_t mine = e->identity & ~1ull;
    struct fab_verb seat = {.kind = FAB_CAS,
                            .len = 8,
                            .off = chain_seat(chain_of(e), slot),
                            .buf = e->zero + 2,
                            .compare = client,
                            .swap = mine};
    int rc = chain_execute(e, &seat, 1);
    uint64_t found = e->zero[2];
    if (rc != FAR_OK || found == 0)
        return rc; /* 0: they are settled */
    *holder = found;
    if (found != client)
        return FAR_CONTENTION;
    rc = settle_nodes(e, slot);
    if (rc != FAR_OK)
        return rc; /* SETTLE-1 */
    seat.compare = mine;
    seat.swap = 0;
    return chain_execute(e, &seat, 1);
}
