/*
 * Which memory of a simulated pool is free, and who touches it all the same.
 *
 * An object that may be reused is filled with a pattern at once, so that whoever comes late reads
 * garbage and not the bytes of old, and it is remembered as free until it is handed out again.
 * Mistakes are
 *
 *   - a WRITE or an atomic that takes effect in free memory, whoever posted it;
 *   - a READ of free memory, unless its poster said that it may be too late (FAB_MAY_BE_FREED), or was
 *     declared dead before and could not be shut out (no_fence);
 *   - a pattern that is not whole when the object is handed out again;
 *   - an object that is freed twice.
 */
#ifndef SIM_SHADOW_H
#define SIM_SHADOW_H

#include "pool/pool.h"
#include "sim/sim.h"

struct shadow {
    struct free_watch watch; /* what the pool is given */
    struct sim *sim;
    const struct sim_settings *set;
    uint8_t *free[SIM_NODES_MAX]; /* a byte for each 64 bytes of a node */
    uint64_t units;
    uint64_t reused; /* objects handed out that were in use before */
    void (*mistake)(void *arg, const char *what);
    void *arg;
};

/* For a run that has just begun. False when out of memory. */
bool shadow_begin(struct shadow *map, struct sim *sim, const struct sim_settings *set,
                  void (*mistake)(void *arg, const char *what), void *arg);
void shadow_free(struct shadow *map);

#endif
