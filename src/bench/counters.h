/*
 * What a thread costs its processor: cycles, instructions, cache misses and context switches.
 *
 * The first three are counted by perf_event_open(2), if the kernel and the processor let it.
 * Context switches are those of getrusage(2), which never refuses. Counters run between
 * counters_resume() and counters_pause(). Each of these is a few system calls, so call them around
 * thousands of operations, not around one.
 */
#ifndef BENCH_COUNTERS_H
#define BENCH_COUNTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum counters_kind {
    COUNTERS_CYCLES,
    COUNTERS_INSTRUCTIONS,
    COUNTERS_CACHE_MISSES,
    COUNTERS_KINDS
};

struct counters_event {
    uint32_t type; /* as in struct perf_event_attr */
    uint64_t config;
};
extern const struct counters_event counters_events[COUNTERS_KINDS];

/* What was counted, of one thread or of several. */
struct counters_sum {
    bool on;                    /* something was counted; else all is 0 */
    bool known[COUNTERS_KINDS]; /* of all threads */
    bool user_only;             /* of some thread, the kernel's part is not in `count` */
    int error;                  /* why one of them is not known: errno; 0 if all are */
    uint64_t count[COUNTERS_KINDS];
    uint64_t switches; /* voluntary and involuntary */
};

/* The counters of one thread, which makes all the calls. */
struct counters {
    struct counters_sum sum;
    int fd[COUNTERS_KINDS]; /* -1: not known */
    uint64_t switches;      /* of the thread when the counters were resumed */
};

/* Opens counters for these events; they do not run yet. Where the kernel refuses to count itself,
 * only what the thread does in user mode is counted. */
void counters_open(struct counters *c, const struct counters_event events[COUNTERS_KINDS]);
/* The following do nothing if the counters were not opened. */
void counters_resume(struct counters *c);
void counters_pause(struct counters *c);
/* Forgets what was counted. The counters must be paused. */
void counters_reset(struct counters *c);
/* Completes c->sum. The counters must be paused. */
void counters_close(struct counters *c);

/* Adds what another thread, or another run, has counted. */
void counters_add(struct counters_sum *sum, const struct counters_sum *more);

/* Says what to do about an error of perf_event_open(2). `paranoid`: the setting of the kernel. */
const char *counters_hint(int error, int paranoid);
/* kernel.perf_event_paranoid of this machine; -1 if it cannot be read. */
int counters_paranoid(void);

#endif
