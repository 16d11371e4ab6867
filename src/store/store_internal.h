/*
 * What only the store's own files use. Each calls only those above it in this list:
 *
 *   wait      the descriptor that a ring is waited for with
 *   groups    changes of one key that wait for each other
 *   ride      operations of a session on one key that go out as one change
 *   call      what every public function does first and last
 *   keeper    the thread that looks after idle sessions
 *   handle    the handles of tables, which all threads share
 *   view      what a session keeps of each table
 *   drop      completing the drops of tables
 *   request   one operation
 *   ops       the public functions for one operation each
 *   ring      many operations in flight
 *   session   opening and closing sessions
 *   table     opening, dropping, listing and checking tables
 *   maintain  checking, repairing and measuring a pool
 *   store     opening and closing pools
 */
#ifndef STORE_INTERNAL_H
#define STORE_INTERNAL_H

#include "store/store.h"

/* ---- call.c ---------------------------------------------------------------------------------- */

/* FAR_INVALID: an argument must not be NULL. */
int store_null(const char *what);

/* FAR_INVALID with the reason why the session, or the session with the table, cannot be used: NULL,
 * opened by the parent of this process, in use, or of different pools. store_check() asks first. */
int store_refuse(const struct far_session *s);
int store_refuse_table(const struct far_session *s, const struct far_table *table);
static inline bool store_usable(const struct far_session *s)
{
    return s && process_same(s->pool->process) &&
           !atomic_load_explicit(&s->held, memory_order_relaxed);
}
static inline int store_check(const struct far_session *s)
{
    return __builtin_expect(store_usable(s), 1) ? FAR_OK : store_refuse(s);
}
static inline int store_check_table(const struct far_session *s, const struct far_table *table)
{
    bool good = store_usable(s) && table && table->pool == s->pool;
    return __builtin_expect(good, 1) ? FAR_OK : store_refuse_table(s, table);
}

/* Brackets what a call does with a session that store_check() has accepted. Any other call on it is
 * refused meanwhile: that of another thread, or of a callback. For misuse only, so plain loads and
 * stores are enough: of two threads that call at the same instant, neither may notice. */
static inline void store_hold(struct far_session *s)
{
    atomic_store_explicit(&s->held, true, memory_order_relaxed);
}
static inline void store_unhold(struct far_session *s)
{
    atomic_store_explicit(&s->held, false, memory_order_relaxed);
}

/* How most public functions begin: forgets the last detail, and judges the session, its table and
 * one more argument, which must not be NULL. FAR_INVALID. */
int store_begin(const struct far_session *s, bool given, const char *argument);
int store_begin_table(const struct far_session *s, const struct far_table *table, bool given,
                      const char *argument);

/* Brackets a call that uses the session's client. */
void store_take(struct far_session *s);
void store_give(struct far_session *s);

/* Brackets a call that may take long: it reports to the session's progress callback. */
void store_enter(struct far_session *s);
void store_leave(struct far_session *s);

/* FAR_FENCED: the lease has lapsed. */
int store_silent(void);

/* What a client reads after its lease has lapsed may have been reused: damage found then counts for
 * nothing. */
int store_judge(const struct op *op, int rc);

/* ---- handle.c -------------------------------------------------------------------------------- */

/* The only handle of a table in this process, made when it is first needed. NULL: no memory. */
struct far_table *store_handle_open(struct far_pool *pool, const struct index_ops *ops,
                                    const struct table_desc *desc);
void store_handle_add_view(struct far_table *table);
void store_handle_drop_view(struct far_table *table);
bool store_handle_closed(struct far_table *table);
void store_handle_free(struct far_table *table);

/* ---- view.c ---------------------------------------------------------------------------------- */

struct table_view *store_view_make(struct far_session *s, struct far_table *table);
/* What the session keeps of the table, made when it first uses it. NULL: no memory. The caller
 * counts as a user of it until store_view_release(). */
static inline struct table_view *store_view_use(struct far_session *s, struct far_table *table)
{
    struct table_view *v = store_known(s, table);
    if (__builtin_expect(!v, 0))
        v = store_view_make(s, table);
    if (v)
        v->users++;
    return v;
}
/* Frees what the session knows of a table that was dropped, if nobody uses it. */
void store_view_close(struct far_session *s, struct table_view *view);
static inline void store_view_release(struct far_session *s, struct table_view *v, int rc)
{
    ASSERT(v->users > 0);
    v->users--;
    v->gone |= rc == FAR_NO_TABLE;
    if (__builtin_expect(v->gone, 0))
        store_view_close(s, v);
}

/* Begins work on a table: an epoch, and a view that is valid in it. If it returns FAR_OK, the
 * caller ends it, with the status of the work. */
int store_view_begin(struct far_session *s, struct op *op, struct far_table *table,
                     struct table_view **view);
void store_view_end(struct far_session *s, struct op *op, struct table_view *view, int rc);

int store_view_gone(const struct table_view *view); /* FAR_NO_TABLE */
/* Makes the view if there is none, and brings it up to date. Ends the operation if that fails. */
int store_view_update(struct far_session *s, struct op *op, struct table_view *view);
/* As store_view_begin(), with a view that the caller uses already. op_begin() may wait, while
 * another operation finds that the table was dropped, so the view must be in use. Ends with
 * op_end(). */
static inline int store_view_enter(struct far_session *s, struct op *op, struct table_view *v)
{
    ASSERT(s->client.inside > 0); /* else the keeper may have the client */
    ASSERT(v->users > 0);
    if (__builtin_expect(v->gone, 0))
        return store_view_gone(v);
    int rc = op_begin(op, v->view ? &v->view->cached : NULL);
    bool ready = rc == FAR_OK && v->view && !v->view->cached.stale;
    return __builtin_expect(ready, 1) || rc != FAR_OK ? rc : store_view_update(s, op, v);
}

/* The table was dropped: frees the session's view of it, now or when its last operation ends. */
void store_view_forget(struct far_session *s, const struct far_table *table);

/* Frees all views: the session ends. */
void store_view_close_all(struct far_session *s);

/* Runs `work` on a table with a temporary view, within an operation. FAR_NO_INDEX: the index is not
 * in this build. FAR_NO_TABLE: the table was dropped, and `dropped_too` is false. */
int store_view_work(struct far_pool *pool, struct op *op, const struct table_desc *desc,
                    bool dropped_too,
                    int (*work)(struct op *op, struct index_view *view, void *arg), void *arg);

/* ---- request.c ------------------------------------------------------------------------------- */

/* May this session run this operation? FAR_INVALID. */
int store_accepts(const struct far_session *s, const struct far_op *request);

/* Runs one operation to its end on the caller's stack or fiber, and counts it. The session is
 * held. */
int store_run(struct far_session *s, struct op *op, const struct far_op *request,
              struct far_result *result);

#endif
