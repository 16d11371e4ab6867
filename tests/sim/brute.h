/* A checker that tries every order and every choice of unknown operations: slow, but too simple to
 * be wrong. For a handful of operations on one key. */
#ifndef TESTS_SIM_BRUTE_H
#define TESTS_SIM_BRUTE_H

#include "check/lin.h"

static bool brute_from(const struct lin_history *h, unsigned placed, uint32_t state)
{
    bool complete = true;
    for (unsigned i = 0; i < h->count; i++)
        if (h->op[i].outcome == LIN_DONE && !(placed & 1u << i))
            complete = false;
    if (complete)
        return true;

    for (unsigned i = 0; i < h->count; i++) {
        const struct lin_op *op = &h->op[i];
        if ((placed & 1u << i) || op->outcome == LIN_FAILED)
            continue;
        bool may_be_next = true; /* no operation that is not placed returned before its call */
        for (unsigned j = 0; j < h->count; j++)
            if (j != i && h->op[j].outcome == LIN_DONE && !(placed & 1u << j) &&
                h->op[j].ret < op->call)
                may_be_next = false;
        uint32_t after = 0;
        if (may_be_next && lin_apply(op, state, &after) && brute_from(h, placed | 1u << i, after))
            return true;
    }
    return false;
}

static inline bool brute_linearizable(const struct lin_history *h)
{
    return brute_from(h, 0, LIN_ABSENT);
}

#endif
