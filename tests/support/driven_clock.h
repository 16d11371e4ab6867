/*
 * A fabric's clock, driven by the test. It stands still until the test moves it, or a client
 * pauses, which moves it at once. So leases lapse when the test says so, on a machine of any speed.
 * For tests with one thread: another would find its lease lapsed whenever this one pauses.
 */
#ifndef TESTS_DRIVEN_CLOCK_H
#define TESTS_DRIVEN_CLOCK_H

#include "fabric/fabric.h"

struct driven_clock {
    struct fab_ops ops; /* the fabric's own but for its time; first, so that it leads here */
    uint64_t now;
};

static inline uint64_t driven_now(struct fab_ep *ep)
{
    return ((const struct driven_clock *)ep->ops)->now;
}

static inline void driven_pause(struct fab_ep *ep, uint64_t ns)
{
    ((struct driven_clock *)(uintptr_t)ep->ops)->now += ns;
}

/* Before the fabric has endpoints. It must be closed before the clock is gone. */
static inline void driven_clock_set(struct driven_clock *clock, struct fab *fab)
{
    *clock = (struct driven_clock){.ops = *fab->ops, .now = 3600ull * 1000000000};
    clock->ops.now = clock->ops.coarse = driven_now;
    clock->ops.pause = driven_pause;
    fab->ops = &clock->ops;
}

#endif
