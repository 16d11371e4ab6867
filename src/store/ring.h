/* The submit/reap ring of a session. */
#ifndef STORE_RING_H
#define STORE_RING_H

#include "store/store.h"

/* Resumes the operations in flight that can go on: for a client whose synchronous call waits. */
void ring_drive(struct client *client);

/* Finishes what is in flight and frees the ring; fine if there never was one. */
void ring_close(struct far_session *s);

#endif
