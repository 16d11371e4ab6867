/* The submit/reap ring of a session. */
#ifndef STORE_RING_H
#define STORE_RING_H

#include "store/store.h"

/* Resumes the operations in flight that can go on: for a client whose synchronous call waits. */
void store_ring_drive(struct client *client);

/* Finishes what is in flight and frees the ring; fine if there never was one. */
void store_ring_close(struct far_session *s);

/* In a child of fork(): frees the ring as it is. Not while store_ring_running(): then a thread of the
 * parent was within an operation, and what that worked on may be half changed. */
void store_ring_free_in_child(struct far_session *s);
bool store_ring_running(const struct far_session *s);

#endif
