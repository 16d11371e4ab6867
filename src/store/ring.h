/* The submit/reap ring of a session. */
#ifndef STORE_RING_H
#define STORE_RING_H

#include "store/store.h"

/* Finishes what is in flight and frees the ring; fine if there never was one. */
void ring_close(struct far_session *s);

#endif
