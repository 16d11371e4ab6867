/*
 * A fabric's clock for tests with several threads: that of the slowest thread. A request takes its
 * thread a microsecond, and a pause as long as it says. The clock shows the time of the thread that
 * has spent the least. So a thread that the system does not run holds the clock up, and is not
 * taken for dead, on a machine of any speed. Sessions that no thread uses any more are, after their
 * lease.
 */
#ifndef TESTS_PACED_CLOCK_H
#define TESTS_PACED_CLOCK_H

#include "fabric/fabric.h"

#include <unistd.h>

#define PACED_THREADS 8
#define PACED_POST_NS 1000
#define PACED_GONE    UINT64_MAX

struct paced_clock {
    struct fab_ops ops; /* the fabric's own but for its time; first, so that it leads here */
    int (*post)(struct fab_ep *ep, struct fab_req *req);
    uint64_t had[PACED_THREADS]; /* the time each thread has spent; PACED_GONE: it has left */
    uint64_t last;               /* the time when all had left                              */
};

static _Thread_local unsigned paced_self; /* this thread's place; the first one has 0 */

static inline uint64_t paced_time(struct paced_clock *clock)
{
    uint64_t least = PACED_GONE;
    for (unsigned i = 0; i < PACED_THREADS; i++) {
        uint64_t had = __atomic_load_n(&clock->had[i], __ATOMIC_ACQUIRE);
        least = had < least ? had : least;
    }
    return least;
}

static inline struct paced_clock *paced_clock_of(struct fab_ep *ep)
{
    return (struct paced_clock *)(uintptr_t)ep->ops;
}

static inline uint64_t paced_now(struct fab_ep *ep)
{
    return paced_time(paced_clock_of(ep));
}

static inline void paced_spend(struct paced_clock *clock, uint64_t ns)
{
    uint64_t *had = &clock->had[paced_self];
    __atomic_store_n(had, __atomic_load_n(had, __ATOMIC_RELAXED) + ns, __ATOMIC_RELEASE);
}

static inline int paced_post(struct fab_ep *ep, struct fab_req *req)
{
    paced_spend(paced_clock_of(ep), PACED_POST_NS);
    return paced_clock_of(ep)->post(ep, req);
}

/* Waits for the others: each of them goes on, pauses or leaves. */
static inline void paced_pause(struct fab_ep *ep, uint64_t ns)
{
    struct paced_clock *clock = paced_clock_of(ep);
    paced_spend(clock, ns);
    uint64_t until = clock->had[paced_self];
    while (paced_time(clock) < until)
        usleep(20); /* not a yield: on a busy machine a thread that yields comes last */
}

/* Before the fabric has endpoints, by the thread whose place is 0. */
static inline void paced_clock_set(struct paced_clock *clock, struct fab *fab)
{
    *clock = (struct paced_clock){.ops = *fab->ops, .post = fab->ops->post};
    clock->ops.now = clock->ops.coarse = paced_now;
    clock->ops.pause = paced_pause;
    clock->ops.post = paced_post;
    for (unsigned i = 1; i < PACED_THREADS; i++)
        clock->had[i] = PACED_GONE;
    clock->had[0] = 3600ull * 1000000000;
    fab->ops = &clock->ops;
}

/* A thread is added by one that is there, and leaves by itself. The thread whose place is 0 comes
 * back when all others have left. */
static inline void paced_clock_join(struct paced_clock *clock, unsigned place)
{
    ASSERT(place < PACED_THREADS);
    uint64_t time = paced_time(clock);
    if (time == PACED_GONE)
        time = __atomic_load_n(&clock->last, __ATOMIC_ACQUIRE);
    __atomic_store_n(&clock->had[place], time, __ATOMIC_RELEASE);
}

static inline void paced_clock_leave(struct paced_clock *clock)
{
    uint64_t had = clock->had[paced_self], last = __atomic_load_n(&clock->last, __ATOMIC_RELAXED);
    while (last < had && !__atomic_compare_exchange_n(&clock->last, &last, had, true,
                                                      __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        ;
    __atomic_store_n(&clock->had[paced_self], PACED_GONE, __ATOMIC_RELEASE);
}

#endif
