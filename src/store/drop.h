/* Completing what far_table_drop() begins. */
#ifndef STORE_DROP_H
#define STORE_DROP_H

#include "store/store.h"

/*
 * Completes the drops of all dropped tables of the pool, whichever session dropped them: waits
 * until no session can be working on them, retires their memory, and frees their places. Not within
 * an operation. FAR_TIMEOUT: another session's operation does not end. After an error a table stays
 * dropped, and the next call completes it.
 */
int store_drop_settle(struct far_pool *pool, struct op *op);

#endif
