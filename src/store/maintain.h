/* What concerns the pool as a whole and needs to know its tables. */
#ifndef STORE_MAINTAIN_H
#define STORE_MAINTAIN_H

#include "store/store.h"

/* Sets the pool's callbacks that need to know its tables. */
void store_maintain_pool(struct far_pool *pool);

#endif
