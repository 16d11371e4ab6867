/*
 * A change of a key, as far as it does not depend on where the index keeps its slots: what is to be
 * done, the block of the new value, and the block of the old one.
 *
 *     struct index_change c = {.key = key, .want = change};
 *     rc = index_change_known(&c) ? index_change_prepare(op, &c, node) : FAR_OK;
 *     for each attempt:
 *         index_change_write(op, &c);                       goes out with the look for the key
 *         rc = batch_flush(...); c.written = true;
 *         rc = index_change_resolve(op, view, &c, &found, node, &action);
 *         index_change_write_first(op, &c);
 *         ... the CAS of the slot, to slot_make(..., &c.block, ...), or to nothing ...
 *         index_change_replaced(op, &found, swapped, rc);   if the key was there
 *     return index_change_end(op, &c, rc);
 *
 * A value that is known from the beginning is written in the round trip that looks for the key; one
 * that depends on the old value in the round trip that publishes it, ahead of the CAS.
 */
#ifndef INDEX_CHANGE_H
#define INDEX_CHANGE_H

#include "index/blocks.h"

struct index_change {
    struct slice key;
    struct change *want;
    struct block_ref block; /* of the new value; at is 0 while there is none */
    bool written;           /* the block's WRITE has taken effect, or is ahead of the CAS */
    bool last;              /* there is no more memory of its size: it may replace, but not add */
};

/* Is the value known from the beginning? Then index_change_prepare() is called first. */
static inline bool index_change_known(const struct index_change *c)
{
    return c->want->absent == CHANGE_STORE || c->want->present == CHANGE_STORE;
}
/* Allocates and encodes the block, near `node`. FAR_CORRUPT: the pool has no such node. */
int index_change_prepare(struct op *op, struct index_change *c, unsigned node);

/* Adds the WRITE of the block, if there is one that is not written. The caller notes that it is
 * when the flush has succeeded. */
static inline void index_change_write(struct op *op, const struct index_change *c)
{
    if (c->block.at != 0 && !c->written)
        block_write(op, &c->block);
}
/* The same ahead of the CAS that publishes the block: behind a fence, the CAS follows. */
static inline void index_change_write_first(struct op *op, struct index_change *c)
{
    if (c->block.at == 0 || c->written)
        return;
    block_write(op, &c->block);
    batch_fence(&op->batch);
    c->written = true; /* if the flush fails, so does the operation */
}

/* What a probe needs of the old value: all of it if the user is asked, otherwise nothing. */
const struct value_out *index_change_out(const struct index_change *c);

/* Is the user to be asked, now that the key was looked for? Then index_change_ask() does, and
 * prepares the block for the answer near `node`. */
static inline enum change_action index_change_action(const struct index_change *c,
                                                     const struct index_found *found)
{
    return found->place >= 0 ? c->want->present : c->want->absent;
}
int index_change_ask(struct op *op, const struct index_view *view, struct index_change *c,
                     const struct index_found *found, unsigned node, enum change_action *action);
/* After FAR_OK the slot is to be changed: to the block, or to nothing if there is none. FAR_EXISTS,
 * FAR_NOT_FOUND: nothing is to be done. FAR_POOL_FULL: a key cannot be added. */
static inline int index_change_judge(const struct index_change *c, const struct index_found *found,
                                     enum change_action action)
{
    bool present = found->place >= 0;
    if (action == CHANGE_NOTHING || (action == CHANGE_REMOVE && !present))
        return present ? FAR_EXISTS : FAR_NOT_FOUND;
    return c->block.at != 0 && c->last && !present ? FAR_POOL_FULL : FAR_OK; /* ALLOC-A7 */
}
/* All of that, once the key was looked for: what is to be done. */
static inline int index_change_resolve(struct op *op, const struct index_view *view,
                                       struct index_change *c, const struct index_found *found,
                                       unsigned node, enum change_action *action)
{
    int rc = FAR_OK;
    *action = index_change_action(c, found);
    if (*action == CHANGE_ASK)
        rc = index_change_ask(op, view, c, found, node, action);
    return rc == FAR_OK ? index_change_judge(c, found, *action) : rc;
}

/* The CAS of the slot that was found has ended with op_decided(): retires the old block, or gives
 * it up if it is not known whether the slot still names it. */
void index_change_replaced(struct op *op, const struct index_found *found, bool swapped, int rc);

/*
 * CHANGE-C1  A change that has lost its slot to another may be done all the same.
 *
 * The CAS of a change failed, because another change has put the block `winner`, of the same key,
 * into the slot since this one looked at it. The winner must be another block than the one that was
 * found: the word of that one may change, too, when it is sealed or repaired, and then nobody has
 * won. If neither of the two changes depends on the value before, this one can count as done right
 * before the other: then the other has overwritten its value, and nobody has seen it. So it need
 * not try again, and the changes of a popular key do not keep each other from ending.
 *
 * An update needs a key that is there, and there it was if the winner is an update, too. The winner
 * of a put may be an update or a put. A block that far_modify() or far_insert() has written is no
 * such winner: that call has seen what was there before, and a change in between would make that
 * wrong. A client whose lease has lapsed has no winner, either: what it has read may have been used
 * again.
 */
bool index_change_overwritten(const struct op *op, const struct index_change *c,
                              const void *winner);
/* Can it be true? Else the winner's block need not be read. */
bool index_change_may_lose(const struct index_change *c);

/* Gives back a block that no slot names. */
void index_change_drop(struct op *op, struct index_change *c);

/* The end of the operation: returns rc. If that is an error, no slot names the block, or it is not
 * known whether one does. */
int index_change_end(struct op *op, const struct index_change *c, int rc);

#endif
