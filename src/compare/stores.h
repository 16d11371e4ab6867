/* The stores that can be compared. */
#ifndef COMPARE_STORES_H
#define COMPARE_STORES_H

#include "compare/rival.h"

/* Stores are compared within a group: with what costs a call, or what costs a message. */
enum store_group { STORE_EMBEDDED, STORE_NETWORKED, STORE_GROUPS };

extern const struct rival_ops store_farside_mem; /* a pool in the memory of this process */
extern const struct rival_ops store_farside_ucx; /* a memory node, over ucx: */
extern const struct rival_ops store_redis;
extern const struct rival_ops store_memcached;

#endif
