/*
 * Shadow of a simulated pool's memory: which of it is free, and which verbs touch free memory.
 *
 * An object that may be reused is filled with a pattern at once, so that a late reader gets garbage
 * and not the old bytes. It counts as free until it is handed out again. Mistakes are
 *
 *   - a WRITE or an atomic that takes effect in free memory, by any client;
 *   - a READ of free memory, unless the verb is marked as one that may be too late
 *     (FAB_MAY_BE_FREED), or its client was declared dead and cannot be shut out (no_fence);
 *   - a pattern that is not whole when the object is handed out again;
 *   - an object that is freed twice.
 */
#ifndef CHECK_SHADOW_H
#define CHECK_SHADOW_H

#include "pool/pool.h"
#include "sim/sim.h"

struct shadow {
    struct free_watch watch; /* for the pool's knobs */
    struct sim *sim;
    const struct sim_settings *set;
    uint8_t *free[SIM_NODES_MAX]; /* a byte for each 64 bytes of a node */
    uint8_t *uses[SIM_NODES_MAX]; /* the same: how often they were handed out, 2 at most */
    uint64_t units;
    uint64_t reused; /* objects handed out that were in use before */
    void (*mistake)(void *arg, const char *what);
    void *arg;
};

/* For a run that has just begun. False when out of memory. */
bool shadow_begin(struct shadow *map, struct sim *sim, const struct sim_settings *set,
                  void (*mistake)(void *arg, const char *what), void *arg);
/* How often has the memory of a verb been handed out? At most 2, which stands for more too. */
unsigned shadow_uses(void *map, const struct fab_verb *verb);
void shadow_free(struct shadow *map);

#endif
