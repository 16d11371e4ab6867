/* Sessions: opened, watched and closed. */
#include "store/store_internal.h"

#include "store/keeper.h"
#include "store/ring.h"
#include "store/wait.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DEPTH_DEFAULT 32

static int open_session(far_pool *pool, const struct far_session_options *options,
                        far_session **out)
{
    struct fab_ep *ep = NULL;
    unsigned depth = options && options->depth ? options->depth : DEPTH_DEFAULT;
    uint64_t seed = options ? options->seed : 0;

    if (depth > FAR_DEPTH_MAX)
        return err_fail(FAR_INVALID, "depth is %u, but may be at most %u", depth, FAR_DEPTH_MAX);
    if (options && options->backlog > FAR_BACKLOG_MAX)
        return err_fail(FAR_INVALID, "backlog is %u, but may be at most %u", options->backlog,
                        FAR_BACKLOG_MAX);
    far_session *s = calloc(1, sizeof *s);
    if (!s)
        return err_fail(FAR_NO_MEMORY, "no memory for a session");
    s->pool = pool;
    s->depth = depth;
    s->backlog = options ? options->backlog : 0;
    int rc = pool->fab->ops->ep_open(pool->fab, &ep);
    if (rc != FAR_OK)
        goto free_session;
    if (seed == 0) {
        uint64_t parts[3] = {clock_ns(), (uint64_t)getpid(), (uintptr_t)s};
        seed = hash_sum(parts, sizeof parts, 0);
    }
    rc = client_open(&pool->pool, ep, seed, &s->client);
    if (rc != FAR_OK)
        goto close_ep;
    rc = op_init(&s->op, &s->client);
    if (rc != FAR_OK)
        goto close_client;
    s->client.drive_ring = store_ring_drive;
    store_groups_join(pool->groups, ep->process, depth + pool->pool.knobs.group_spares, &s->groups);
    rc = pool->pool.kept ? store_keeper_add(pool, s) : FAR_OK;
    if (rc != FAR_OK)
        goto free_op;
    __atomic_fetch_add(&pool->fab->sharers, 1, __ATOMIC_RELAXED);
    store_session_opened(pool);
    *out = s;
    return FAR_OK;

free_op:
    store_groups_leave(&s->groups);
    op_free(&s->op);
close_client:
    client_close(&s->client);
close_ep:
    ep->ops->ep_close(ep);
free_session:
    free(s);
    return rc;
}

int far_session_open(far_pool *pool, const struct far_session_options *options, far_session **out)
{
    err_begin();
    if (!pool || !out)
        return err_end(store_null(!pool ? "pool" : "session"));
    if (!process_same(pool->process))
        return err_end(store_refuse(&(far_session){.pool = pool}));
    return err_end(open_session(pool, options, out));
}

/* In a child of fork(): frees the copy. If another thread of the parent was using the session at
 * that moment, the copy may be half changed, and is not freed. */
static void abandon_session(far_session *s)
{
    uint64_t turn = atomic_load_explicit(&s->client.turn, memory_order_relaxed);
    bool lent = (turn & CLIENT_TURN_WHO) == CLIENT_TURN_LENT;
    if (lent || s->client.inside > s->running_count || store_ring_running(s))
        return;
    struct fab_ep *ep = s->client.ep;
    fab_ep_free_in_child(ep);
    store_wait_close(s->wait);
    store_ring_free_in_child(s);
    store_view_close_all(s);
    free(s->groups.record);
    op_free(&s->op);
    client_free_in_child(&s->client);
    ep->ops->ep_close(ep);
    free(s);
}

void far_session_close(far_session *s)
{
    if (!s)
        return;
    if (!process_same(s->pool->opener)) {
        abandon_session(s);
        return;
    }
    if (atomic_load_explicit(&s->held, memory_order_relaxed)) {
        fputs("farside: far_session_close() was called during a call on the session, by another "
              "thread or by a callback\n",
              stderr);
        abort();
    }
    struct err_detail kept;
    far_pool *pool = s->pool;
    err_keep(&kept);
    __atomic_fetch_sub(&pool->fab->sharers, 1, __ATOMIC_RELAXED);
    store_keeper_drop(s);
    s->client.endpoint_used = NULL;
    store_wait_close(s->wait);
    s->wait = NULL;
    store_ring_close(s);
    ASSERT(!op_in_flight(&s->op));
    store_view_close_all(s);
    store_groups_leave(&s->groups);
    op_free(&s->op);
    struct fab_ep *ep = s->client.ep;
    client_close(&s->client);
    ep->ops->ep_close(ep);
    free(s);
    store_session_closed(pool);
    err_restore(&kept);
}

void far_session_watch(far_session *s, bool (*progress)(void *, const char *, uint64_t, uint64_t),
                       void *arg)
{
    if (!s)
        return;
    s->progress = progress;
    s->progress_arg = arg;
}
