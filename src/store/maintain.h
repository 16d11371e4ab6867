/* The pool as a whole, seen by the layer that knows its tables. */
#ifndef STORE_MAINTAIN_H
#define STORE_MAINTAIN_H

#include "store/store.h"

/* Lends the pool the knowledge of its tables. */
void store_maintain_pool(struct far_pool *pool);

/* Runs `work` on a table through a view of its own, within an operation. FAR_NO_INDEX: this build does not
 * have the index. FAR_NO_TABLE: it was dropped, unless `dropped_too`. */
int store_with_view(struct far_pool *pool, struct op *op, const struct table_desc *desc,
                    bool dropped_too,
                    int (*work)(struct op *op, struct index_view *view, void *arg), void *arg);

#endif
