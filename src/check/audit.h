/*
 * An account of the memory of a pool at rest: every object of every chunk is in exactly one place,
 * or lost. The places: reachable from a table, on a shared list, in a client's stock, in its limbo.
 */
#ifndef CHECK_AUDIT_H
#define CHECK_AUDIT_H

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
    struct op *op;                 /* reads the pool; its client's lease does not matter */
    uint8_t *place[FAB_NODES_MAX]; /* of each 64-byte unit of a node                     */
    uint64_t bytes[AUDIT_PLACES];  /* AUDIT_NOWHERE: lost                                */
    unsigned wrong;                /* objects in two places, or outside the chunks       */
    char first[160];               /* the first of them                                  */
};

/*
 * No operation may be under way. The first session is used to read the pool; others may be NULL.
 * What sessions hold that are no longer registered is not counted. FAR_NO_MEMORY, or as marking
 * fails.
 */
int sim_audit(struct audit *a, far_pool *pool, far_session *const *sessions, unsigned count);

#endif
