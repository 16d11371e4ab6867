/* The keeper: a thread of a pool that takes care of idle sessions. */
#ifndef STORE_KEEPER_H
#define STORE_KEEPER_H

#include "store/store.h"

/* The keeper takes care of the session until store_keeper_drop(), which waits if the keeper is
 * using the session. FAR_SYSTEM: the thread could not be started. */
int store_keeper_add(far_pool *pool, far_session *session);
void store_keeper_drop(far_session *session);

/* Parks idle sessions soon: one that waits for others calls this. */
void store_keeper_hurry(far_pool *pool);

/* Ends the thread. No session may be left. */
void store_keeper_stop(far_pool *pool);

/* In a child of fork(), which has no such thread: frees its copy. */
void store_keeper_free_in_child(far_pool *pool);

#endif
