/*
 * Whether polling pays.
 *
 *   CROWD-1  A thread that polls pays off if it has a processor to itself. On a busy machine its
 *       polls take the time of the other end, and a yield costs a turn of the scheduler, while a
 *       thread that wakes up soon gets a processor. So a thread notes how long its fruitless polls
 *       or a yield took. If that was CROWD_NS or more, another thread had the processor: for
 *       CROWD_LASTS_NS it sleeps after CROWD_POLLS fruitless polls. Then it tries again.
 */
#ifndef BASE_CROWD_H
#define BASE_CROWD_H

#include <stdbool.h>
#include <stdint.h>

#define CROWD_NS       500000u
#define CROWD_LASTS_NS 200000000u
#define CROWD_POLLS    2u

struct crowd {
    uint64_t until; /* 0: no crowd was met */
};

static inline bool crowd_lasts(const struct crowd *c, uint64_t now)
{
    return c->until - now - 1 < CROWD_LASTS_NS; /* false also if the clock was set back */
}

static inline void crowd_note(struct crowd *c, uint64_t began, uint64_t ended)
{
    if (ended - began >= CROWD_NS)
        c->until = ended + CROWD_LASTS_NS;
}

#endif
