/*
 * Starting over, with a bound.
 *
 * An operation that lost a race against another client starts over. After INDEX_ATTEMPTS attempts
 * it returns FAR_CONTENTION:
 *
 *     for (unsigned attempts = 0; index_attempt_after_pause(op, &attempts, lost);) {
 *         ... returns when the operation is done ...
 *     }
 *     return FAR_CONTENTION;
 *
 * Hundreds of clients may compete for a popular key or lock. How long they pause, here and in
 * lock_wait.h:
 *
 *   PAUSE-1  As long as others get on, a pause is short: a random time, in proportion to what an
 *       attempt takes (its round trips), and half as much again for each competitor met so far. It
 *       never is longer than INDEX_PAUSE_MOST attempts, so the one that has waited longest does not
 *       wait much longer than others.
 *   PAUSE-2  Only what stands still is looked at less and less often: if the same owner has a lock
 *       for long, a pause lasts up to a quarter of the time that it has had the lock. So a wait
 *       takes a quarter longer than needed at most, and few verbs. A change that has lost very
 *       often pauses longer, too, because its number of attempts is limited.
 *   PAUSE-3  A pause ends before the next heartbeat is due, and within a millisecond or two.
 */
#ifndef INDEX_ATTEMPT_H
#define INDEX_ATTEMPT_H

#include "pool/op.h"

#define INDEX_ATTEMPTS 2000

/*
 * A change that has lost a word to others pauses before it tries again, if it is not the first
 * time. Other reasons to start over end soon, like a directory that has grown: these have pauses
 * only after many attempts.
 */
#define INDEX_LOST_WITHOUT_PAUSE     1
#define INDEX_ATTEMPTS_WITHOUT_PAUSE 16
#define INDEX_ATTEMPTS_TO_DOUBLE     128 /* PAUSE-2 */
#define INDEX_ATTEMPT_PAUSE_NS_MOST  2000000u
#define INDEX_PAUSE_MOST             8u
#define INDEX_PAUSE_NS_LEAST         1000u

/* PAUSE-1: the longest pause, if an attempt takes that long. */
static inline uint64_t index_pause_ns(uint64_t attempt_ns, unsigned competitors)
{
    uint64_t unit = attempt_ns > INDEX_PAUSE_NS_LEAST ? attempt_ns : INDEX_PAUSE_NS_LEAST;
    return competitors < 2 * INDEX_PAUSE_MOST - 2 ? unit * (2 + competitors) / 2
                                                  : unit * INDEX_PAUSE_MOST;
}

/* May another attempt be made? Without pauses: for readers, and for work that others help along. */
static inline bool index_attempt(unsigned *attempts)
{
    return (*attempts)++ < INDEX_ATTEMPTS;
}
static inline unsigned index_attempt_excess(unsigned count, unsigned most)
{
    return count > most ? count - most : 0;
}
/* The same, with pauses: for changes that compete with others for the same words. `lost`: how many
 * of the attempts ended because another client was faster. */
static inline bool index_attempt_after_pause(struct op *op, unsigned *attempts, unsigned lost)
{
    unsigned pauses = index_attempt_excess(lost, INDEX_LOST_WITHOUT_PAUSE) +
                      index_attempt_excess(*attempts - lost, INDEX_ATTEMPTS_WITHOUT_PAUSE);
    if (pauses > 0) {
        uint64_t most = index_pause_ns(batch_now(&op->batch) - op->attempt_at, pauses)
                        << pauses / INDEX_ATTEMPTS_TO_DOUBLE;
        op_pause_below(op, most < INDEX_ATTEMPT_PAUSE_NS_MOST ? most : INDEX_ATTEMPT_PAUSE_NS_MOST);
    }
    if (*attempts > 0) /* most operations have no use for the time */
        op->attempt_at = batch_now(&op->batch);
    return index_attempt(attempts);
}

#endif
