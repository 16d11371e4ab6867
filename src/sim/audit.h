/*
 * An account of a quiet pool's memory, made from outside: every object of every chunk is reachable,
 * on a shared list, in a client's stock or waiting in its limbo; in one of these, once, or lost.
 */
#ifndef SIM_AUDIT_H
#define SIM_AUDIT_H

#include "store/store.h"

enum audit_place {
    AUDIT_NOWHERE,
    AUDIT_LIVE,
    AUDIT_LISTED,
    AUDIT_HELD,
    AUDIT_RETIRED,
    AUDIT_PLACES
};

struct audit {
    struct marker marker;
    far_pool *pool;
    struct op *op;                 /* for looking; its client's lease is no matter   */
    uint8_t *place[FAB_NODES_MAX]; /* of each 64-byte unit of a node                 */
    uint64_t bytes[AUDIT_PLACES];  /* AUDIT_NOWHERE: lost */
    unsigned wrong;                /* objects in two places, or outside the chunks */
    char first[160];               /* the first of them */
};

/*
 * No operation is in flight. Sessions may be NULL, but for the first, which is used for looking; of
 * those that are registered no more, nothing counts. FAR_NO_MEMORY, or as marking fails.
 */
int sim_audit(struct audit *a, far_pool *pool, far_session *const *sessions, unsigned count);

#endif
