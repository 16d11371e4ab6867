/* The descriptor that a program waits on for the ring of a session. */
#ifndef STORE_WAIT_H
#define STORE_WAIT_H

#include "fabric/fabric.h"

struct wait;

/* FAR_SYSTEM, FAR_NO_MEMORY; FAR_UNSUPPORTED: the fabric can only be polled. */
int store_wait_open(struct fab_ep *ep, struct wait **wait);
/* Closes the descriptors; in a child of fork(), its copies of them. NULL is ignored. */
void store_wait_close(struct wait *wait);
int store_wait_fd(const struct wait *wait);

/* Makes the descriptor readable, until one of the next two is called. */
void store_wait_ring(struct wait *wait);
/* The fabric is armed: makes it readable when one of the fabric's descriptors is, or at `until`, by
 * the endpoint's clock. */
void store_wait_for_fabric(struct wait *wait, uint64_t until);
/* Nothing is in flight: it is not readable, unless the fabric or the timer still wakes it. */
void store_wait_for_nothing(struct wait *wait);
/* Turns the fabric and the timer off, until something is in flight again. */
void store_wait_turn_off(struct wait *wait);

#endif
