/* The keeper: a thread of a pool that sees to sessions which nobody uses. */
#ifndef STORE_KEEPER_H
#define STORE_KEEPER_H

#include "store/store.h"

/* The session is looked after from now on; until store_keeper_drop(), which waits for the keeper if it
 * is at it. FAR_SYSTEM: no thread could be started. */
int store_keeper_add(far_pool *pool, far_session *session);
void store_keeper_drop(far_session *session);

/* When no session is left. */
void store_keeper_stop(far_pool *pool);

/* In a child of fork(), which has no such thread: frees its copy. */
void store_keeper_free_in_child(far_pool *pool);

#endif
