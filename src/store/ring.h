/* The submit/reap ring of a session. */
#ifndef STORE_RING_H
#define STORE_RING_H

#include "store/store.h"

/* Resumes operations in flight that can continue, while a synchronous call of the client waits. */
void store_ring_drive(struct client *client);

/* Finishes all operations and frees the ring, if there is one. */
void store_ring_close(struct far_session *s);

/* In a child of fork(): frees the ring as it is. Not if store_ring_running(): then a thread of the
 * parent was within an operation, whose data may be half changed. */
void store_ring_free_in_child(struct far_session *s);
bool store_ring_running(const struct far_session *s);

#endif
