/*
 * A fixed rate: when each operation is due.
 *
 * The workers take turns: of `workers` workers, operation n of worker i is due
 * (n * workers + i) / rate seconds after the start. An operation that cannot begin then begins as
 * soon as it can. Its latency counts from the time at which it was due, so a stall also shows in
 * the operations that had to wait behind it. Measured from the time at which they were sent, the
 * stall would be one slow operation among many fast ones ("coordinated omission").
 */
#ifndef BENCH_PACE_H
#define BENCH_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_RATE_MAX 1000000000u

/* The schedule of one worker. */
struct pace {
    uint64_t rate; /* operations per second, of all workers together; 0: as fast as possible */
    unsigned workers, worker;
    uint64_t start;    /* nanoseconds, as all times here */
    uint64_t next;     /* the number of the worker's next operation */
    uint64_t late;     /* how long after it was due the last operation began */
    uint64_t late_max; /* the longest of these */
};

/* rate <= PACE_RATE_MAX; worker < workers. */
void pace_begin(struct pace *p, uint64_t rate, unsigned workers, unsigned worker, uint64_t start);

static inline bool pace_on(const struct pace *p)
{
    return p->rate > 0;
}

/* When the next operation is due. Up to 18 billion operations of all workers. */
uint64_t pace_due(const struct pace *p);

/* The next operation begins now, which is not before it is due. Returns when it was due. */
uint64_t pace_take(struct pace *p, uint64_t now);

#endif
