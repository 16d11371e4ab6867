/*
 * Starting over, with a bound.
 *
 * An operation that lost a race against another client starts over. After INDEX_ATTEMPTS attempts
 * it returns FAR_CONTENTION:
 *
 *     for (unsigned attempts = 0; index_attempt_after_pause(op, &attempts);) {
 *         ... returns when the operation is done ...
 *     }
 *     return FAR_CONTENTION;
 */
#ifndef INDEX_ATTEMPT_H
#define INDEX_ATTEMPT_H

#include "pool/op.h"

#define INDEX_ATTEMPTS 2000

/* After this many attempts there are pauses. They are random, and up to twice as long each time: a
 * popular key may have hundreds of clients that compete for it. */
#define INDEX_ATTEMPT_PAUSES_FROM 2
#define INDEX_ATTEMPT_PAUSE_NS    1000
#define INDEX_ATTEMPT_DOUBLINGS   11

/* May another attempt be made? Without pauses: for readers, and for work that others help along. */
static inline bool index_attempt(unsigned *attempts)
{
    return (*attempts)++ < INDEX_ATTEMPTS;
}
/* The same, with pauses: for changes that compete with others for the same words. */
static inline bool index_attempt_after_pause(struct op *op, unsigned *attempts)
{
    if (*attempts >= INDEX_ATTEMPT_PAUSES_FROM) {
        unsigned longer = *attempts - INDEX_ATTEMPT_PAUSES_FROM;
        if (longer > INDEX_ATTEMPT_DOUBLINGS)
            longer = INDEX_ATTEMPT_DOUBLINGS;
        batch_pause(&op->batch, op_random(op, (uint64_t)INDEX_ATTEMPT_PAUSE_NS << longer));
    }
    return index_attempt(attempts);
}

#endif
