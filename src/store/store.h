/* What is behind the public handles: for the store's own files and for test harnesses. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "base/fiber.h"
#include "base/process.h"
#include "index/index.h"
#include "pool/pool.h"
#include "store/groups.h"

#include <pthread.h>

/* HANDLE-1  A handle is freed when it was closed as often as it was opened, and no session has a
 * view of its table. A session frees its views of closed and of dropped tables when it makes a new
 * one, and all of them when it is closed. */
struct far_table {
    struct index_table index;
    struct far_pool *pool;
    unsigned number; /* of this handle in far_pool.table    */
    unsigned opened; /* times; guarded by the pool's lock   */
    unsigned views;  /* of all sessions; guarded by it, too */
};

struct far_pool {
    struct fab *fab, *machines; /* the same, or chains of these */
    struct pool pool;
    bool owns_fab;
    unsigned process;         /* that may use it, see process.h; 0: it is closed    */
    unsigned opener;          /* the process that opened it                         */
    unsigned sessions;        /* that are open: the last one frees a closed pool    */
    struct groups *groups;    /* NULL: none, the fabric never waits                 */
    struct keeper *keeper;    /* NULL before the first session                      */
    pthread_mutex_t lock;     /* guards sessions and table handles; no operation takes it */
    struct far_table **table; /* NULL: the number is free */
    unsigned tables, tables_room;
};

/* Counts a session that was opened, or closed: the last one frees a pool that was closed. */
void store_session_opened(struct far_pool *pool);
void store_session_closed(struct far_pool *pool);

/* Opens a pool on a fabric that the caller made and owns: for tests and the simulator. */
int store_open(struct fab *fab, const struct knobs *knobs, far_pool **pool);

/* One place of the ring, and the operation in it. */
struct ring_slot {
    struct op op;
    struct fiber *fiber; /* NULL on fabrics that never wait */
    unsigned at;         /* while it runs: in far_session.running */
    struct far_session *session;
    struct far_op request;
    struct far_result result;
    char detail[ERR_DETAIL_BYTES]; /* of the result; "" for none */
};

/* What a session keeps of one table. */
struct table_view {
    struct far_table *table;
    struct index_view *view; /* NULL before the first operation, and when the table is gone */
    unsigned users;          /* operations that are using the view, or about to */
    bool gone;               /* the table was dropped */
    struct far_stats stats;
};

struct far_session {
    struct far_pool *pool;
    _Atomic bool held; /* a call is under way: see store_hold() */
    struct client client;
    struct op op;              /* synchronous calls */
    struct table_view **table; /* by the number of the table's handle; NULL: not used yet */
    unsigned tables;           /* length of that array */
    unsigned depth;
    struct ring_slot *slot;             /* `depth` of them                */
    unsigned *idle, idle_count;         /* slots free for far_submit()    */
    unsigned *running, running_count;   /* slots whose fiber is suspended */
    unsigned *finished, finished_count; /* slots waiting to be reaped     */
    struct batch_ring ring;             /* what those that run wait for   */
    unsigned backlog;                   /* how many may wait for a slot   */
    struct far_op *waiting;             /* a ring of that many            */
    unsigned waiting_first, waiting_count;
    uint64_t *cancelled; /* user_data of cancelled operations that wait to be reaped */
    unsigned cancelled_count;
    struct group_session groups;
    struct wait *wait; /* NULL until far_session_fd() is called */
    bool (*progress)(void *arg, const char *what, uint64_t done, uint64_t total); /* or NULL */
    void *progress_arg;
    struct far_session *next_kept; /* the keeper's list of sessions */
    uint64_t turn_seen;            /* client.turn when the keeper last looked */
};

/* What the session keeps of the table; NULL if it has not used it. */
static inline struct table_view *store_known(const struct far_session *s,
                                             const struct far_table *table)
{
    return table->number < s->tables ? s->table[table->number] : NULL;
}

#endif
