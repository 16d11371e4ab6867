/* A pool, a session and a table of index_tested, on a fabric that the test keeps and can look
 * into. */
#ifndef TESTS_STORE_RIG_H
#define TESTS_STORE_RIG_H

#include "support/driven_clock.h"
#include "support/index_tested.h"
#include "support/puppet.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#define STORE_RIG_FEATURE(x) __has_feature(x)
#else
#define STORE_RIG_FEATURE(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) ||                               \
    STORE_RIG_FEATURE(thread_sanitizer) || STORE_RIG_FEATURE(address_sanitizer)
#define SLOWER 8 /* sanitizers: that many times fewer repetitions */
#else
#define SLOWER 1
#endif

/* How many fibers a test may have: gcc 12's thread sanitizer runs out of room at some 500. Nor does
 * it bear a child of fork() that starts threads. */
#if defined(__SANITIZE_THREAD__) || STORE_RIG_FEATURE(thread_sanitizer)
#define DEEPEST             128u
#define FORKED_HAVE_THREADS 0
#else
#define DEEPEST             FAR_DEPTH_MAX
#define FORKED_HAVE_THREADS 1
#endif

struct store_rig {
    struct fab *fab;
    far_pool *pool;
    far_session *session;
    far_table *table;           /* "t" */
    struct driven_clock *clock; /* NULL: the machine's */
    bool kept;                  /* idle sessions are parked, as in pools of users */
};

/* Unless the test says otherwise, keys have the same hashes in each run. */
static inline void store_rig_start(struct store_rig *r, const struct knobs *knobs,
                                   const struct far_session_options *session,
                                   const struct far_table_options *table)
{
    struct far_session_options options = {0};
    if (session)
        options = *session;
    if (options.seed == 0)
        options.seed = 1;
    if (r->fab->lease_ms == 0) /* unless the test says otherwise, no client is taken for dead */
        r->fab->lease_ms = 60000;
    if (r->fab->processes == 0)
        r->fab->processes = 2; /* see store_rig_join_apart() */
    ASSERT(store_open(r->fab, knobs, &r->pool) == FAR_OK);
    r->pool->pool.kept = r->kept;
    ASSERT(far_session_open(r->pool, &options, &r->session) == FAR_OK);
    ASSERT(far_table_create(r->session, "t", index_tested, table, &r->table) == FAR_OK);
}

static inline void store_rig_open(struct store_rig *r, const char *uri, const struct knobs *knobs,
                                  const struct far_session_options *session,
                                  const struct far_table_options *table)
{
    memset(r, 0, sizeof *r);
    ASSERT(fab_open(uri, &r->fab) == FAR_OK);
    store_rig_start(r, knobs, session, table);
}

/* The same, for tests that have several sessions in one thread and an index that waits for all. */
static inline void store_rig_open_kept(struct store_rig *r, const char *uri,
                                       const struct knobs *knobs,
                                       const struct far_table_options *table)
{
    memset(r, 0, sizeof *r);
    r->kept = true;
    ASSERT(fab_open(uri, &r->fab) == FAR_OK);
    store_rig_start(r, knobs, NULL, table);
}

/* The same, with time that the test drives: see driven_clock.h. */
static inline void store_rig_open_driven(struct store_rig *r, const char *uri,
                                         const struct knobs *knobs,
                                         const struct far_session_options *session,
                                         const struct far_table_options *table)
{
    memset(r, 0, sizeof *r);
    ASSERT(fab_open(uri, &r->fab) == FAR_OK);
    ASSERT((r->clock = malloc(sizeof *r->clock)));
    driven_clock_set(r->clock, r->fab);
    store_rig_start(r, knobs, session, table);
}

/* A small table, and announcements with every operation. */
static inline struct store_rig store_rig_announcing(const char *uri)
{
    struct far_table_options table = {.tuning = "groups=2"};
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    knobs.tick_ops = 1;
    store_rig_open(&r, uri, &knobs, NULL, &table);
    return r;
}

/* Another session. */
static inline far_session *store_rig_join(struct store_rig *r)
{
    far_session *s = NULL;
    ASSERT(far_session_open(r->pool, NULL, &s) == FAR_OK);
    return s;
}

/* The same, as if it was of another process: it shares no hints with the rig's session. */
static inline far_session *store_rig_join_apart(struct store_rig *r)
{
    far_session *s = store_rig_join(r);
    s->client.ep->process = 1;
    return s;
}

/* Ends a session like a process that dies: its slot and all it had stay as they are. */
static inline void store_rig_kill(far_session *s)
{
    puppet_die(&s->client);
    far_session_close(s);
}

static inline void store_rig_pass(struct store_rig *r, uint64_t ns)
{
    r->clock->now += ns;
}

static inline void store_rig_close(struct store_rig *r)
{
    far_session_close(r->session);
    far_pool_close(r->pool);
    fab_close(r->fab);
    free(r->clock);
}

/* Words of the pool's memory, past the store. */
static inline uint64_t store_rig_get(struct store_rig *r, gaddr at, uint64_t delta)
{
    struct op *op = &r->session->op;
    batch_read(&op->batch, at, delta, op->word, 8);
    ASSERT(batch_flush(&op->batch) == FAR_OK);
    return op->word[0];
}

static inline void store_rig_set(struct store_rig *r, gaddr at, uint64_t delta, uint64_t value)
{
    struct op *op = &r->session->op;
    op->word[0] = value;
    batch_write(&op->batch, MARK_EARLY, at, delta, op->word, 8);
    ASSERT(batch_flush(&op->batch) == FAR_OK);
}

#endif
