/*
 * Repairing what a walk has found, while others work. No good data is lost by it:
 *
 *   RACE-Q1  A word is changed by CAS, from what was judged to be wrong. The walk is within an
 *       epoch, so that what a slot named when it was judged is the same still. Sealed slots are a
 *       splitter's and stay as they are.
 *   RACE-Q2  A slot that leads to no whole block, and whose block no single bit makes whole
 *       (index_walk_mend()), is emptied: its key cannot be read by any client.
 *   RACE-Q3  A key in a wrong place is inserted, as any session would, and only then is that place
 *       emptied. If it is in its right place already, that is what everybody saw.
 *   RACE-Q4  Of a key that is there twice, the slot stays that lookups come to first. That both are
 *       there is seen in one instant: the first, the second, and the first again, unchanged.
 *       A client that deletes the key after that deletes the one that we leave. Only a client with
 *       a hint of the second (HINT-H1), or that wrote it (HINT-H2), comes to that one, and what it
 *       changes there is lost.
 *   RACE-Q5  A slot that leads to a whole block, but gives it another size, is given that of the
 *       block.
 *
 * The blocks of slots that were emptied are for a sweep to find: something else may point to them.
 */
#include "index/race/race.h"
#include "index/walk.h"

/* RACE-Q1. If the word has changed, another client has handled it, and nothing is done here. */
static int change(struct op *op, gaddr at, uint64_t delta, uint64_t from, uint64_t to, bool *done)
{
    unsigned n = op_cas(op, MARK_PUBLISH, at, delta, from, to);
    int rc = batch_flush(&op->batch);
    *done = rc == FAR_OK && op_swapped(op, n);
    return rc;
}

static int empty_slot(struct op *op, gaddr subtable, const struct index_finding *f, bool *done)
{
    return change(op, subtable, f->place * 8ull, f->found, 0, done);
}

/* RACE-Q3 */
static int put_in_place(struct op *op, struct race_view *view, gaddr subtable,
                        const struct index_finding *f, bool *done)
{
    bool there = false;
    int rc = index_walk_insert(op, &view->base, RACE_SLOT, f->found, race_change, &there);
    return there ? empty_slot(op, subtable, f, done) : rc;
}

/* RACE-Q4 */
static int drop_second(struct op *op, gaddr subtable, const struct index_finding *f, bool *done)
{
    unsigned before = op_read(op, subtable, f->first * 8ull);
    batch_fence(&op->batch);
    unsigned second = op_read(op, subtable, f->place * 8ull);
    batch_fence(&op->batch);
    unsigned after = op_read(op, subtable, f->first * 8ull);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK || op_result(op, before) != f->first_found ||
        op_result(op, second) != f->found || op_result(op, after) != f->first_found)
        return rc; /* for the next walk */
    return empty_slot(op, subtable, f, done);
}

int race_repair(struct op *op, struct race_view *view, gaddr subtable,
                const struct index_finding *f, bool *done)
{
    ASSERT(op->batch.count == 0);
    int rc = FAR_OK;
    *done = false;
    if (f->fault == RACE_HEADER)
        return change(op, subtable, f->place * 8ull, f->found, f->right, done);
    if (f->found & RACE_SLOT_SEALED)
        return FAR_OK;
    switch (f->fault) {
    case RACE_CLASS:
        rc = change(op, subtable, f->place * 8ull, f->found, f->right, done);
        break;
    case RACE_UNREADABLE:
        rc = empty_slot(op, subtable, f, done);
        break;
    case RACE_MISPLACED:
        rc = put_in_place(op, view, subtable, f, done);
        break;
    default:
        rc = drop_second(op, subtable, f, done);
    }
    return rc;
}

int race_repair_entry(struct op *op, struct race_view *view, uint64_t index, bool *done)
{
    ASSERT(op->batch.count == 0);
    struct race_subtable_head *head = op_buffer(op, BUF_INDEX, sizeof *head);
    *done = false;
    if (!head)
        return FAR_NO_MEMORY;
    /* A subtable of depth d has all entries whose lowest d bits are its suffix. */
    for (unsigned bit = 0; bit < view->depth; bit++) {
        uint64_t entry = view->entries[index ^ 1ull << bit];
        unsigned depth = race_entry_depth(entry);
        if (entry == 0 || depth > bit)
            continue;
        batch_read(&op->batch, race_entry_subtable(entry), 0, head, sizeof *head);
        int rc = batch_flush(&op->batch);
        if (rc == FAR_BOUNDS)
            continue;
        if (rc != FAR_OK)
            return rc;
        if (head->header != race_header_of(view, index, depth))
            continue;
        rc = change(op, view->directory, index * 8, view->entries[index], entry, done);
        if (*done)
            view->entries[index] = entry;
        return rc;
    }
    return FAR_OK;
}
