/* Pools: the handles that all threads of a process share. */
#include "store/store_internal.h"

#include "chain/chain.h"
#include "pool/turns.h"
#include "store/keeper.h"
#include "store/maintain.h"

#include <stdio.h>
#include <stdlib.h>

/* What operations of a process wait for each other with. Without memory for that they do not. */
static void open_shared(far_pool *pool)
{
    const struct knobs *knobs = &pool->pool.knobs;
    unsigned processes = fab_processes(pool->fab);
    pool->pool.relief = pool_relief_open(processes);
    if (!pool->fab->groups)
        return;
    if (knobs->group_words > 0)
        pool->groups = store_groups_open(processes, knobs->group_words);
    if (knobs->turn_queues > 0)
        pool->pool.turns = turns_open(processes, knobs->turn_queues);
}

int store_open(struct fab *fab, const struct knobs *knobs, far_pool **out)
{
    far_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return err_fail(FAR_NO_MEMORY, "no memory for a pool handle");
    int rc = process_number(&pool->process);
    pool->fab = pool->machines = fab;
    if (rc == FAR_OK)
        rc = chain_open_if(fab, &pool->fab);
    if (rc == FAR_OK)
        rc = pool_open(pool->fab, knobs, &pool->pool);
    if (rc != FAR_OK) {
        chain_free(pool->fab, fab);
        free(pool);
        return rc;
    }
    pool->opener = pool->process;
    store_maintain_pool(pool);
    open_shared(pool);
    pthread_mutex_init(&pool->lock, NULL);
    *out = pool;
    return FAR_OK;
}

static int open_uri(const char *uri, far_pool **out)
{
    struct fab *fab = NULL;
    if (!uri || !out)
        return store_null(!uri ? "uri" : "pool");
    int rc = fab_open(uri, &fab);
    if (rc != FAR_OK)
        return rc;
    rc = store_open(fab, NULL, out);
    if (rc != FAR_OK)
        fab_close(fab);
    else
        (*out)->owns_fab = (*out)->pool.kept = true;
    return rc;
}

int far_pool_open(const char *uri, far_pool **out)
{
    err_begin();
    return err_end(open_uri(uri, out));
}

static void free_pool(far_pool *pool, bool ours)
{
    for (unsigned i = 0; i < pool->tables; i++)
        store_handle_free(pool->table[i]);
    free(pool->table);
    store_groups_close(pool->groups);
    turns_close(pool->pool.turns);
    pool_relief_close(pool->pool.relief);
    if (ours)
        pthread_mutex_destroy(&pool->lock);
    chain_free(pool->fab, pool->machines);
    if (pool->owns_fab && (ours || (pool->machines->caps & FAB_CAP_LOCAL)))
        fab_close(pool->machines);
    free(pool);
}

void store_session_opened(far_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->sessions++;
    pthread_mutex_unlock(&pool->lock);
}

void store_session_closed(far_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    bool last = --pool->sessions == 0 && pool->process == 0;
    pthread_mutex_unlock(&pool->lock);
    if (last)
        free_pool(pool, true);
}

/* A session that is still open keeps the pool's memory, so that its calls can be refused. */
static void close_pool(far_pool *pool)
{
    store_keeper_stop(pool);
    pthread_mutex_lock(&pool->lock);
    __atomic_store_n(&pool->process, 0, __ATOMIC_RELAXED);
    bool last = pool->sessions == 0;
    pthread_mutex_unlock(&pool->lock);
    if (last)
        free_pool(pool, true);
}

/* In a child of fork() the handle is a copy, and the keeper's thread and the network connections
 * belong to the parent. So only memory is freed. Locks are not touched: a thread of the parent may
 * have held them. */
void far_pool_close(far_pool *pool)
{
    if (!pool)
        return;
    struct err_detail kept;
    err_keep(&kept);
    if (process_same(pool->opener)) {
        close_pool(pool);
    } else {
        store_keeper_free_in_child(pool);
        free_pool(pool, false);
    }
    err_restore(&kept);
}

int far_pool_remove(const char *uri)
{
    err_begin();
    return err_end(uri ? fab_remove(uri) : store_null("uri"));
}

int far_pool_info(far_session *s, struct far_pool_info *info)
{
    int rc = store_begin(s, info, "info");
    if (rc != FAR_OK)
        return err_end(rc);
    store_take(s);
    (void)pool_meet(&s->op); /* it says which nodes are away */
    rc = pool_info(&s->op, info);
    store_give(s);
    return err_end(rc);
}

int far_pool_members(far_session *s, struct far_members *members, struct far_member *list)
{
    int rc = store_begin(s, members, "members");
    if (rc != FAR_OK)
        return err_end(rc);
    store_take(s);
    (void)pool_meet(&s->op);
    rc = pool_members(&s->op, members, list);
    store_give(s);
    return err_end(rc);
}

int far_pool_change_members(far_session *s, unsigned node, bool in)
{
    int rc = store_begin(s, s, "session");
    if (rc == FAR_OK && node >= s->pool->pool.fab->nodes)
        rc = err_fail(FAR_INVALID, "node is %u, but the pool has nodes 0 to %u", node,
                      s->pool->pool.fab->nodes - 1);
    if (rc != FAR_OK)
        return err_end(rc);
    store_take(s);
    (void)pool_meet(&s->op);
    rc = pool_change_members(&s->op, node, in);
    store_give(s);
    return err_end(rc);
}

int far_pool_accept_members(far_pool *pool)
{
    err_begin();
    return err_end(pool ? pool_accept_members(&pool->pool) : store_null("pool"));
}

int far_node_info(far_session *s, unsigned node, struct far_node_info *info)
{
    int rc = store_begin(s, info, "info");
    if (rc == FAR_OK && node >= s->pool->pool.fab->nodes)
        rc = err_fail(FAR_INVALID, "node is %u, but the pool has nodes 0 to %u", node,
                      s->pool->pool.fab->nodes - 1);
    if (rc != FAR_OK)
        return err_end(rc);
    struct fab_ep *ep = s->client.ep;
    if (!ep->ops->node_stat)
        return err_end(err_fail(FAR_UNSUPPORTED, "%s: has no memory nodes", ep->ops->scheme));
    store_take(s); /* the keeper uses the endpoint, too */
    rc = fab_away(s->pool->fab) >> node & 1 ? pool_meet(&s->op) : FAR_OK;
    if (rc == FAR_OK)
        rc = ep->ops->node_stat(ep, node, info);
    else if (ep->ops->node_name)
        snprintf(info->address, sizeof info->address, "%s", ep->ops->node_name(s->pool->fab, node));
    /* To the keeper, a session that only calls this function looks busy, so this call sends the
     * heartbeat that the keeper would send. Operations in flight carry heartbeats of their own. */
    if (s->client.inside == 1 && client_heartbeat_due(&s->client))
        (void)client_park(&s->op); /* if it fails, the next operation finds out */
    store_give(s);
    return err_end(rc);
}
