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
 */
#ifndef INDEX_ATTEMPT_H
#define INDEX_ATTEMPT_H

#include "pool/op.h"

#define INDEX_ATTEMPTS 2000

/*
 * A change that has lost a word to others pauses before it tries again, if it is not the first
 * time: hundreds of clients may compete for a popular key. Other reasons to start over end soon,
 * like a directory that has grown: these have pauses only after many attempts. Pauses are random,
 * and up to twice as long each time.
 */
#define INDEX_LOST_WITHOUT_PAUSE     1
#define INDEX_ATTEMPTS_WITHOUT_PAUSE 16
#define INDEX_ATTEMPT_PAUSE_NS       1000
#define INDEX_ATTEMPT_DOUBLINGS      11

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
        unsigned doublings = pauses - 1;
        if (doublings > INDEX_ATTEMPT_DOUBLINGS)
            doublings = INDEX_ATTEMPT_DOUBLINGS;
        op_pause_below(op, (uint64_t)INDEX_ATTEMPT_PAUSE_NS << doublings);
    }
    return index_attempt(attempts);
}

#endif
