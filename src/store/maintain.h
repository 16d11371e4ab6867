/* The pool as a whole, seen by the layer that knows its tables. */
#ifndef STORE_MAINTAIN_H
#define STORE_MAINTAIN_H

#include "store/store.h"

/* Lends the pool the knowledge of its tables. */
void store_maintain_pool(struct far_pool *pool);

#endif
