/*
 * Waiting for the client that holds a lock. The lock word names its owner (client_owner_word()).
 *
 *     struct index_lock_wait wait = {0};
 *     while (the lock is held by `owner`) {
 *         rc = index_lock_wait(op, &wait, owner, &state);
 *         if (rc != FAR_OK)
 *             return rc;
 *         if (state != INDEX_LOCK_HELD)
 *             break;
 *         ... reads the lock again, or tries to take it by CAS ...
 *     }
 *
 * Pauses are short as long as the lock changes hands, and grow while one owner has it: PAUSE-1 to
 * PAUSE-3 (attempt.h). The registry is asked whether the owner is alive every 16 looks at one
 * owner's lock, and after each index_lock_rest(). The caller decides what the outcome means:
 *
 *   INDEX_LOCK_HELD      Look again.
 *   INDEX_LOCK_ORPHANED  The owner is dead and shut out: none of its verbs can take effect any
 *                        more. A lock that recover() releases is free soon; another is taken over
 *                        by CAS from the owner's word, and what the owner left undone is completed.
 *   INDEX_LOCK_OVERDUE   The owner has been given `patience` looks or a quarter of a lease, and
 *                        counts as alive. (Its lease is not watched before the first rest.) If
 *                        several clients may do the work at once, do it now (RACE-R6). If only the
 *                        owner may, call index_lock_rest() and start over.
 */
#ifndef INDEX_LOCK_WAIT_H
#define INDEX_LOCK_WAIT_H

#include "index/index.h"

/* All zero at first. One for all waits of an operation. */
struct index_lock_wait {
    uint64_t owner;     /* the one waited for: with another one, patience starts again */
    uint64_t since;     /* when this owner was met */
    uint64_t waited_ns; /* for this owner, since the last rest */
    uint64_t paused_at; /* when the last pause ended */
    unsigned looks;     /* at this owner's lock, since the last rest */
    unsigned owners;    /* met so far */
    struct backoff rest;
};
enum index_lock_state { INDEX_LOCK_HELD, INDEX_LOCK_ORPHANED, INDEX_LOCK_OVERDUE };

/* After a look that found the lock held: pauses before the next one, if there is to be one.
 * FAR_CONTENTION: it has lost the lock to very many owners, one after the other. */
int index_lock_wait(struct op *op, struct index_lock_wait *wait, uint64_t owner,
                    enum index_lock_state *state);

/* Lets the epoch go on, and drives it: a client whose lease has lapsed is shut out by that, and its
 * journal is recovered. The rules of index_rest() hold: afterwards the operation starts over.
 * FAR_CONTENTION: it has waited for INDEX_LOCK_LEASES leases, in all. */
#define INDEX_LOCK_LEASES 8
int index_lock_rest(struct op *op, struct index_view *view, struct index_lock_wait *wait);

#endif
