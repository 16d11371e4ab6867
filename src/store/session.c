/* Sessions: one thread's operations, run on its own stack, with their statistics. */
#include "store/store.h"
#include "store/keeper.h"
#include "store/ring.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEPTH_DEFAULT 32

/* Other clients may be faster to take what was freed: how often an operation then tries again. */
#define RELIEF_ATTEMPTS 8

static int open_session(far_pool *pool, const struct far_session_options *options,
                        far_session **out)
{
    struct fab_ep *ep = NULL;
    unsigned depth = options && options->depth ? options->depth : DEPTH_DEFAULT;
    uint64_t seed = options ? options->seed : 0;

    if (depth > FAR_DEPTH_MAX)
        return fail(FAR_INVALID, "depth is %u, at most %u", depth, FAR_DEPTH_MAX);
    far_session *s = calloc(1, sizeof *s);
    if (!s)
        return fail(FAR_NO_MEMORY, "no memory for a session");
    s->pool = pool;
    s->depth = depth;
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
    s->client.drive_ring = ring_drive;
    rc = pool->pool.kept && !pool->pool.knobs.no_reclaim ? keeper_add(pool, s) : FAR_OK;
    if (rc != FAR_OK)
        goto free_op;
    *out = s;
    return FAR_OK;

free_op:
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

static void close_views(far_session *s)
{
    for (unsigned i = 0; i < TABLES_MAX; i++) {
        struct index_view *view = s->table[i].view;
        if (view) {
            client_uncache(&s->client, &view->cached);
            s->pool->table[i]->index.ops->detach(view);
        }
    }
}

/* In a child of fork(): frees the copy. If another thread of the parent was using the session at
 * that moment, the copy may be half changed, and is left. */
static void abandon_session(far_session *s)
{
    uint64_t turn = atomic_load_explicit(&s->client.turn, memory_order_relaxed);
    bool lent = (turn & CLIENT_TURN_WHO) == CLIENT_TURN_LENT;
    if (lent || s->client.inside > s->running_count || ring_running(s))
        return;
    struct fab_ep *ep = s->client.ep;
    fab_ep_abandon(ep);
    ring_abandon(s);
    close_views(s);
    op_free(&s->op);
    client_abandon(&s->client);
    ep->ops->ep_close(ep);
    free(s);
}

void far_session_close(far_session *s)
{
    if (!s)
        return;
    if (!process_same(s->pool->process)) {
        abandon_session(s);
        return;
    }
    struct err_detail kept;
    err_keep(&kept);
    keeper_drop(s);
    ring_close(s);
    close_views(s);
    op_free(&s->op);
    struct fab_ep *ep = s->client.ep;
    client_close(&s->client);
    ep->ops->ep_close(ep);
    free(s);
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

/* Work that may take long and tells how far it has come. Operations on keys do not. */
void store_enter(far_session *s)
{
    client_enter(&s->client);
    s->client.progress = s->progress;
    s->client.progress_arg = s->progress_arg;
}

void store_leave(far_session *s)
{
    s->client.progress = NULL;
    client_leave(&s->client);
}

/* The session's view of a table, made at its first operation on it: within an epoch, because the
 * view keeps addresses. */
static int view_of(far_session *s, struct op *op, const far_table *table, struct table_view **out)
{
    struct table_view *view = &s->table[table->index.desc.id];
    if (!view->view) {
        struct index_view *made = NULL;
        int rc = table->index.ops->attach(op, &table->index, &made);
        if (rc != FAR_OK)
            return rc;
        if (view->view) { /* another operation of this session was faster */
            table->index.ops->detach(made);
        } else {
            view->view = made;
            bool stale = made->cached.stale;
            client_cache(&s->client, &made->cached);
            made->cached.stale = stale;
        }
    }
    *out = view;
    return FAR_OK;
}

static bool has_value(enum far_op_kind kind)
{
    return kind == FAR_OP_PUT || kind == FAR_OP_INSERT || kind == FAR_OP_UPDATE;
}

static int dispatch(struct op *op, const struct far_op *r, struct index_view *view, size_t *len)
{
    const struct index_ops *ops = r->table->index.ops;
    struct slice key = {r->key, r->key_len}, value = {r->value, r->value_len};
    struct value_out got = {.buf = r->buf, .cap = r->cap, .skip = r->kind == FAR_OP_EXISTS};
    int rc = FAR_INVALID;

    switch (r->kind) {
    case FAR_OP_GET:
    case FAR_OP_EXISTS:
        rc = ops->get(op, view, key, &got);
        *len = got.len;
        break;
    case FAR_OP_PUT:
        rc = ops->put(op, view, key, value);
        break;
    case FAR_OP_INSERT:
        rc = ops->insert(op, view, key, value);
        break;
    case FAR_OP_UPDATE:
        rc = ops->update(op, view, key, value);
        break;
    case FAR_OP_DELETE:
        rc = ops->remove(op, view, key);
        break;
    }
    return rc;
}

/* The fabric's word for why there is no result. */
static bool no_result(int rc)
{
    return rc == FAR_UNREACHABLE || rc == FAR_TIMEOUT || rc == FAR_UNKNOWN || rc == FAR_REFUSED ||
           rc == FAR_NODE_LOST;
}

/* Begins work on a table: an epoch, and a view that is valid in it. */
static int begin(far_session *s, struct op *op, const far_table *table, struct table_view **view)
{
    struct index_view *known = s->table[table->index.desc.id].view;
    int rc = op_begin(op, known ? &known->cached : NULL);
    if (rc != FAR_OK)
        return rc;
    rc = view_of(s, op, table, view);
    op->cost = known ? op->cost : (struct cost){0}; /* attaching was nobody's operation */
    if (rc == FAR_OK && (*view)->view->cached.stale)
        rc = table->index.ops->refresh(op, (*view)->view);
    if (rc != FAR_OK)
        op_end(op);
    return rc;
}

/* One attempt at an operation, within an epoch. */
static int attempt_once(far_session *s, struct op *op, const struct far_op *r, size_t *len)
{
    struct table_view *view = NULL;
    int rc = begin(s, op, r->table, &view);
    if (rc != FAR_OK)
        return rc;
    rc = dispatch(op, r, view->view, len);
    /* What a client reads when its lease has lapsed may have been reused. A change that was made
     * was made in time: batches that write are not posted later. */
    bool made = r->kind >= FAR_OP_PUT && rc == FAR_OK;
    if (no_result(rc)) { /* which is why it was silent, if it was, and names the node */
        op_end(op);
        return rc;
    }
    if (!made && client_lapsed(op->client))
        rc = fail(FAR_FENCED, "this client was silent for longer than its lease");
    if (rc != FAR_FENCED)
        (void)client_tidy(op); /* if it fails, the next operation will say so */
    op_end(op);
    return rc;
}

/* One that was fenced and did nothing is tried once more, under a new registration. */
static int attempt(far_session *s, struct op *op, const struct far_op *r, size_t *len)
{
    int rc = attempt_once(s, op, r, len);
    return rc == FAR_FENCED ? attempt_once(s, op, r, len) : rc;
}

static int check_request(const struct far_op *r)
{
    if (!r->key)
        return store_null("key");
    if (r->key_len == 0 || r->key_len > FAR_KEY_MAX)
        return fail(FAR_KEY_SIZE, "a key has 1 to %u bytes, not %zu", FAR_KEY_MAX, r->key_len);
    if (has_value(r->kind) && r->value_len > FAR_VALUE_MAX)
        return fail(FAR_VALUE_SIZE, "a value has 0 to %u bytes, not %zu", FAR_VALUE_MAX,
                    r->value_len);
    if (has_value(r->kind) && !r->value && r->value_len > 0)
        return fail(FAR_INVALID, "value is NULL, but value_len is %zu", r->value_len);
    if (r->kind == FAR_OP_GET && !r->buf && r->cap > 0)
        return fail(FAR_INVALID, "buf is NULL, but cap is %zu", r->cap);
    return FAR_OK;
}

static int run(far_session *s, struct op *op, const struct far_op *r, size_t *len)
{
    int rc = check_request(r);
    if (rc != FAR_OK)
        return rc;
    struct far_op_stats *stats = &s->table[r->table->index.desc.id].stats.op[r->kind];
    op->cost = (struct cost){0};
    rc = attempt(s, op, r, len);
    for (unsigned i = 0; rc == FAR_POOL_FULL && i < RELIEF_ATTEMPTS; i++) {
        rc = pool_relieve(op); /* not within the operation: its own epoch would hold it up */
        if (rc != FAR_OK && rc != FAR_FENCED)
            break;
        rc = attempt(s, op, r, len);
    }
    if (rc == FAR_BOUNDS) /* whatever led there, it was read from the pool */
        rc = fail(FAR_CORRUPT, "an address in the table lies outside the pool");
    ASSERT(op->batch.count == 0);

    stats->count++;
    stats->not_found += rc == FAR_NOT_FOUND;
    stats->exists += rc == FAR_EXISTS;
    stats->errors += rc != FAR_OK && rc != FAR_NOT_FOUND && rc != FAR_EXISTS;
    stats->rtts += op->cost.rtts;
    stats->verbs += op->cost.verbs;
    stats->bytes_read += op->cost.bytes_read;
    stats->bytes_written += op->cost.bytes_written;
    return rc;
}

int store_run(far_session *s, struct op *op, const struct far_op *r, struct far_result *result)
{
    size_t len = 0;
    client_enter(&s->client);
    int rc = run(s, op, r, &len);
    client_leave(&s->client);
    *result = (struct far_result){.user_data = r->user_data, .status = rc, .len = len};
    return rc;
}

static int call(far_session *s, const struct far_op *r, size_t *len)
{
    struct far_result result;
    err_begin();
    int rc = store_check_table(s, r->table);
    if (rc != FAR_OK)
        return err_end(rc);
    rc = store_run(s, &s->op, r, &result);
    if (len && (rc == FAR_OK || rc == FAR_TOO_SMALL))
        *len = result.len;
    return err_end(rc);
}

int far_get(far_session *s, far_table *table, const void *key, size_t key_len, void *buf,
            size_t cap, size_t *len)
{
    return call(s,
                &(struct far_op){.kind = FAR_OP_GET,
                                 .table = table,
                                 .key = key,
                                 .key_len = key_len,
                                 .buf = buf,
                                 .cap = cap},
                len);
}

static int call_plain(far_session *s, enum far_op_kind kind, far_table *table, const void *key,
                      size_t key_len, const void *value, size_t value_len)
{
    return call(s,
                &(struct far_op){.kind = kind,
                                 .table = table,
                                 .key = key,
                                 .key_len = key_len,
                                 .value = value,
                                 .value_len = value_len},
                NULL);
}

int far_exists(far_session *s, far_table *table, const void *key, size_t key_len)
{
    return call_plain(s, FAR_OP_EXISTS, table, key, key_len, NULL, 0);
}

int far_put(far_session *s, far_table *table, const void *key, size_t key_len, const void *value,
            size_t value_len)
{
    return call_plain(s, FAR_OP_PUT, table, key, key_len, value, value_len);
}

int far_insert(far_session *s, far_table *table, const void *key, size_t key_len, const void *value,
               size_t value_len)
{
    return call_plain(s, FAR_OP_INSERT, table, key, key_len, value, value_len);
}

int far_update(far_session *s, far_table *table, const void *key, size_t key_len, const void *value,
               size_t value_len)
{
    return call_plain(s, FAR_OP_UPDATE, table, key, key_len, value, value_len);
}

int far_delete(far_session *s, far_table *table, const void *key, size_t key_len)
{
    return call_plain(s, FAR_OP_DELETE, table, key, key_len, NULL, 0);
}

void far_stats(const far_session *s, const far_table *table, struct far_stats *stats)
{
    if (!stats)
        return;
    if (s && table && table->pool == s->pool)
        *stats = s->table[table->index.desc.id].stats;
    else
        *stats = (struct far_stats){0};
}

int far_table_info(far_session *s, far_table *table, struct far_table_info *info)
{
    struct table_view *view = NULL;
    err_begin();
    int rc = store_check_table(s, table);
    if (rc == FAR_OK && !info)
        rc = store_null("info");
    if (rc != FAR_OK)
        return err_end(rc);
    store_enter(s);
    rc = begin(s, &s->op, table, &view);
    if (rc == FAR_OK) {
        rc = table->index.ops->info(&s->op, view->view, info);
        op_end(&s->op);
    }
    store_leave(s);
    return err_end(rc);
}

int far_table_check(far_session *s, far_table *table, void (*report)(void *, const char *),
                    void *arg)
{
    struct table_view *view = NULL;
    struct index_report r = {.line = report, .arg = arg};
    err_begin();
    int rc = store_check_table(s, table);
    if (rc != FAR_OK)
        return err_end(rc);
    store_enter(s);
    rc = begin(s, &s->op, table, &view);
    if (rc == FAR_OK) {
        rc = table->index.ops->check(&s->op, view->view, &r);
        op_end(&s->op);
    }
    store_leave(s);
    if (rc == FAR_CORRUPT)
        index_violation(&r, "%s", far_error_detail());
    else if (rc == FAR_OK && r.violations > 0)
        rc = fail(FAR_CORRUPT, "%u violation%s", r.violations, r.violations == 1 ? "" : "s");
    return err_end(rc);
}
