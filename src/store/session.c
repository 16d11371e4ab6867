/* Sessions: one thread's operations, run on its own stack, with their statistics. */
#include "store/store.h"
#include "store/keeper.h"
#include "store/ring.h"

#include "base/clock.h"

#include <limits.h>
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
        return err_fail(FAR_INVALID, "depth is %u, at most %u", depth, FAR_DEPTH_MAX);
    if (options && options->backlog > FAR_BACKLOG_MAX)
        return err_fail(FAR_INVALID, "backlog is %u, at most %u", options->backlog,
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
    rc = pool->pool.kept && !pool->pool.knobs.no_reclaim ? store_keeper_add(pool, s) : FAR_OK;
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

static void close_view(far_session *s, struct table_view *v)
{
    if (!v->view)
        return;
    client_uncache(&s->client, &v->view->cached);
    v->view->table->ops->detach(v->view);
    v->view = NULL;
}

static void close_views(far_session *s)
{
    for (unsigned i = 0; i < s->tables; i++) {
        if (s->table[i])
            close_view(s, s->table[i]);
        free(s->table[i]);
    }
    free(s->table);
    s->table = NULL;
    s->tables = 0;
}

/* In a child of fork(): frees the copy. If another thread of the parent was using the session at
 * that moment, the copy may be half changed, and is left. */
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
    close_views(s);
    op_free(&s->op);
    client_free_in_child(&s->client);
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
    store_keeper_drop(s);
    s->client.endpoint_used = NULL;
    store_wait_close(s->wait);
    s->wait = NULL;
    store_ring_close(s);
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

/* What the session keeps of a table, made when it first uses it. */
static struct table_view *state_of(far_session *s, const far_table *table)
{
    struct table_view *v = store_known(s, table);
    if (v)
        return v;
    unsigned room = s->tables ? s->tables : 8;
    while (room <= table->number)
        room *= 2;
    if (room > s->tables) {
        struct table_view **grown = realloc(s->table, room * sizeof(struct table_view *));
        if (!grown)
            return NULL;
        memset(grown + s->tables, 0, (room - s->tables) * sizeof(struct table_view *));
        s->table = grown;
        s->tables = room;
    }
    return s->table[table->number] = calloc(1, sizeof *v);
}

/* An operation has ended, and does not use the view any more. */
static void release(far_session *s, struct table_view *v, int rc)
{
    v->users--;
    v->gone |= rc == FAR_NO_TABLE;
    if (v->gone && v->users == 0)
        close_view(s, v);
}

void store_forget(far_session *s, const far_table *table)
{
    struct table_view *v = store_known(s, table);
    if (!v)
        return;
    v->users++;
    release(s, v, FAR_NO_TABLE);
}

/* The session's view of a table, made at its first operation on it: within an epoch, because the
 * view keeps addresses. */
static int attach(far_session *s, struct op *op, const far_table *table, struct table_view *view)
{
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
    return FAR_OK;
}

static bool has_value(enum far_op_kind kind)
{
    return kind == FAR_OP_PUT || kind == FAR_OP_INSERT || kind == FAR_OP_UPDATE;
}

static bool changes(enum far_op_kind kind)
{
    return has_value(kind) || kind == FAR_OP_DELETE || kind == FAR_OP_MODIFY;
}

/* A change on behalf of an operation. */
struct request_change {
    struct change change;
    const struct far_op *request;
    int error; /* of what the callback returned */
};

static enum change_action decide(struct change *change, struct slice old)
{
    struct request_change *c = (struct request_change *)change; /* `change` comes first */
    const struct far_op *r = c->request;
    change->value = (struct slice){NULL, 0};
    switch (r->modify(r->modify_arg, old.data, old.len, &change->value.data, &change->value.len)) {
    case FAR_STORE:
        c->error = change->value.len > index_value_max(r->table->index.ops) ? FAR_VALUE_SIZE
                   : !change->value.data && change->value.len > 0           ? FAR_INVALID
                                                                            : FAR_OK;
        return c->error == FAR_OK ? CHANGE_STORE : CHANGE_NOTHING;
    case FAR_REMOVE:
        c->error = FAR_OK;
        return CHANGE_REMOVE;
    case FAR_KEEP:
        c->error = FAR_OK;
        return CHANGE_NOTHING;
    }
    c->error = FAR_INVALID;
    return CHANGE_NOTHING;
}

static int change(struct op *op, const struct far_op *r, struct index_view *view)
{
    static const enum change_action action[FAR_OP_KINDS][2] = {
        [FAR_OP_PUT] = {CHANGE_STORE, CHANGE_STORE},
        [FAR_OP_INSERT] = {CHANGE_STORE, CHANGE_NOTHING},
        [FAR_OP_UPDATE] = {CHANGE_NOTHING, CHANGE_STORE},
        [FAR_OP_DELETE] = {CHANGE_NOTHING, CHANGE_REMOVE},
        [FAR_OP_MODIFY] = {CHANGE_ASK, CHANGE_ASK},
    };
    struct request_change c = {.change = {.absent = action[r->kind][0],
                                          .present = action[r->kind][1],
                                          .value = {r->value, r->value_len},
                                          .decide = decide},
                               .request = r};
    int rc = r->table->index.ops->change(op, view, (struct slice){r->key, r->key_len}, &c.change);
    if (c.error == FAR_OK || !status_means(rc, STATUS_ANSWER))
        return rc;
    return c.error == FAR_VALUE_SIZE
               ? err_fail(c.error, "the callback's value has 0 to %zu bytes, not %zu",
                          index_value_max(r->table->index.ops), c.change.value.len)
               : err_fail(c.error,
                          "the callback returned no decision, or a NULL value of some length");
}

static int iterate(struct op *op, const struct far_op *r, struct index_view *view,
                   struct far_result *result)
{
    struct entries_out out = {.buf = r->buf,
                              .cap = r->cap,
                              .cursor = r->cursor,
                              .keys_only = (r->flags & FAR_KEYS_ONLY) != 0};
    int rc = r->table->index.ops->iterate(op, view, &out);
    result->len = rc == FAR_TOO_SMALL ? out.needed : out.len;
    result->cursor = out.cursor;
    result->count = out.count;
    return rc;
}

static int scan(struct op *op, const struct far_op *r, struct index_view *view,
                struct far_result *result)
{
    struct entries_out out = {
        .buf = r->buf, .cap = r->cap, .keys_only = (r->flags & FAR_KEYS_ONLY) != 0};
    struct scan_range range = {.from = {r->key, r->key_len},
                               .after = (r->flags & FAR_AFTER) != 0,
                               .to = {r->to, r->to_len},
                               .limit = r->limit ? r->limit : UINT_MAX};
    int rc = r->table->index.ops->scan(op, view, &range, &out);
    ASSERT(out.count <= range.limit && (rc != FAR_OK || !out.more || out.count > 0));
    result->len = rc == FAR_TOO_SMALL ? out.needed : out.len;
    result->count = out.count;
    result->more = out.more;
    return rc;
}

static int dispatch(struct op *op, const struct far_op *r, struct index_view *view,
                    struct far_result *result)
{
    struct value_out got = {
        .buf = r->buf, .cap = r->cap, .skip = r->kind == FAR_OP_EXISTS, .client = op->client};

    if (r->kind == FAR_OP_ITERATE)
        return iterate(op, r, view, result);
    if (r->kind == FAR_OP_SCAN)
        return scan(op, r, view, result);
    if (changes(r->kind))
        return change(op, r, view);
    int rc = r->table->index.ops->get(op, view, (struct slice){r->key, r->key_len}, &got);
    result->len = got.len;
    return rc;
}

/* An operation is begun: makes its view, and brings it up to date. */
static int make_view(far_session *s, struct op *op, const far_table *table, struct table_view *v)
{
    bool known = v->view != NULL;
    int rc = attach(s, op, table, v);
    op->cost = known ? op->cost : (struct cost){0}; /* attaching was nobody's operation */
    return rc == FAR_OK && v->view->cached.stale ? table->index.ops->refresh(op, v->view) : rc;
}

/* Begins work on a table: an epoch, and a view that is valid in it. finish() ends it. */
static int begin(far_session *s, struct op *op, const far_table *table, struct table_view **out)
{
    struct table_view *v = state_of(s, table);
    if (!v)
        return err_fail(FAR_NO_MEMORY, "no memory for a view");
    if (v->gone)
        return err_fail(FAR_NO_TABLE, "table '%s' was dropped", table->index.desc.name);
    v->users++; /* op_begin() may wait, and another operation find out that the table is gone */
    int rc = op_begin(op, v->view ? &v->view->cached : NULL);
    if (rc == FAR_OK) {
        rc = store_judge(op, make_view(s, op, table, v));
        if (rc != FAR_OK)
            op_end(op);
    }
    if (rc == FAR_OK)
        *out = v;
    else
        release(s, v, rc);
    return rc;
}

static void finish(far_session *s, struct op *op, struct table_view *v, int rc)
{
    op_end(op);
    release(s, v, rc);
}

/* One attempt at an operation, within an epoch. */
static int attempt_once(far_session *s, struct op *op, const struct far_op *r,
                        struct far_result *result)
{
    struct table_view *view = NULL;
    int rc = begin(s, op, r->table, &view);
    if (rc != FAR_OK)
        return rc;
    rc = dispatch(op, r, view->view, result);
    /* What a client reads when its lease has lapsed may have been reused. A change that was made
     * was made in time: batches that write are not posted later. So was a value that was delivered. */
    bool made = (changes(r->kind) || r->kind == FAR_OP_GET) && rc == FAR_OK;
    if (status_means(
            rc, STATUS_FABRIC)) { /* which is why it was silent, if it was, and names the node */
        finish(s, op, view, rc);
        return rc;
    }
    if (!made && client_lapsed(op->client))
        rc = err_fail(FAR_FENCED, "this client was silent for longer than its lease");
    if (rc != FAR_FENCED)
        (void)client_upkeep(op); /* if it fails, the next operation will say so */
    finish(s, op, view, rc);
    return rc;
}

/* One that was fenced and did nothing is tried once more, under a new registration. */
static int attempt(far_session *s, struct op *op, const struct far_op *r, struct far_result *result)
{
    int rc = attempt_once(s, op, r, result);
    return rc == FAR_FENCED ? attempt_once(s, op, r, result) : rc;
}

/* Names the indexes that do keep keys in order. */
static int not_ordered(const far_table *table)
{
    char names[INDEX_NAMES_BYTES];
    return err_fail(
        FAR_UNSUPPORTED,
        "table '%s' is kept by %s, which keeps keys in no order; indexes of this build that "
        "do: %s",
        table->index.desc.name, table->index.desc.index, index_ordered_names(names));
}

static int check_bound(const char *name, const void *bound, size_t len)
{
    if (!bound && len > 0)
        return err_fail(FAR_INVALID, "%s is NULL, but %s_len is %zu", name, name, len);
    if (len > FAR_KEY_MAX)
        return err_fail(FAR_KEY_SIZE, "%s has %zu bytes, but a key has at most %u", name, len,
                        FAR_KEY_MAX);
    return FAR_OK;
}

static int check_scan(const struct far_op *r)
{
    if (!r->table->index.ops->scan)
        return not_ordered(r->table);
    if (!r->buf)
        return store_null("buf");
    if (r->flags & ~(FAR_KEYS_ONLY | FAR_AFTER))
        return err_fail(FAR_INVALID, "flags has bits that mean nothing");
    int rc = check_bound("from", r->key, r->key_len);
    return rc == FAR_OK ? check_bound("to", r->to, r->to_len) : rc;
}

/* Are the arguments of the operation's kind good? */
static int check_request(const struct far_op *r)
{
    if (r->kind == FAR_OP_SCAN)
        return check_scan(r);
    if (r->kind == FAR_OP_ITERATE) {
        if (!r->buf)
            return store_null("buf");
        return r->flags & ~FAR_KEYS_ONLY ? err_fail(FAR_INVALID, "flags has bits that mean nothing")
                                         : FAR_OK;
    }
    if (!r->key)
        return store_null("key");
    const struct index_ops *ops = r->table->index.ops;
    if (r->key_len == 0 || r->key_len > index_key_max(ops))
        return err_fail(FAR_KEY_SIZE, "a key has 1 to %zu bytes, not %zu", index_key_max(ops),
                        r->key_len);
    if (r->kind == FAR_OP_MODIFY && !r->modify)
        return store_null("modify");
    if (has_value(r->kind) && r->value_len > index_value_max(ops))
        return err_fail(FAR_VALUE_SIZE, "a value has 0 to %zu bytes, not %zu", index_value_max(ops),
                        r->value_len);
    if (has_value(r->kind) && !r->value && r->value_len > 0)
        return err_fail(FAR_INVALID, "value is NULL, but value_len is %zu", r->value_len);
    if (r->kind == FAR_OP_GET && !r->buf && r->cap > 0)
        return err_fail(FAR_INVALID, "buf is NULL, but cap is %zu", r->cap);
    return FAR_OK;
}

static int run(far_session *s, struct op *op, const struct far_op *r, struct far_result *result)
{
    int rc = check_request(r);
    if (rc != FAR_OK)
        return rc;
    struct table_view *state = state_of(s, r->table);
    if (!state)
        return err_fail(FAR_NO_MEMORY, "no memory for a view");
    struct far_op_stats *stats = &state->stats.op[r->kind];
    op->cost = (struct cost){0};
    rc = attempt(s, op, r, result);
    for (unsigned i = 0; rc == FAR_POOL_FULL && i < RELIEF_ATTEMPTS; i++) {
        rc = pool_make_room(op); /* not within the operation: its own epoch would hold it up */
        if (rc != FAR_OK && rc != FAR_FENCED)
            break;
        rc = attempt(s, op, r, result);
    }
    if (r->kind == FAR_OP_MODIFY && status_means(rc, STATUS_ANSWER))
        rc = FAR_OK;      /* nothing was to be done */
    if (rc == FAR_BOUNDS) /* whatever led there, it was read from the pool */
        rc = err_fail(FAR_CORRUPT, "an address in the table lies outside the pool");
    ASSERT(op->batch.count == 0);

    stats->count++;
    stats->not_found += rc == FAR_NOT_FOUND;
    stats->exists += rc == FAR_EXISTS;
    stats->errors += rc != FAR_OK && !status_means(rc, STATUS_ANSWER);
    stats->rtts += op->cost.rtts;
    stats->verbs += op->cost.verbs;
    stats->bytes_read += op->cost.bytes_read;
    stats->bytes_written += op->cost.bytes_written;
    stats->entries += rc == FAR_OK ? result->count : 0;
    return rc;
}

/* Where a scan begins may lie in the buffer that it fills. Apart, so that other operations have a
 * smaller stack. */
static __attribute__((noinline)) int run_scan(far_session *s, struct op *op, const struct far_op *r,
                                              struct far_result *result)
{
    char from[FAR_KEY_MAX];
    struct far_op copy = *r;
    if (r->key && r->key_len <= sizeof from)
        copy.key = memcpy(from, r->key, r->key_len);
    return run(s, op, &copy, result);
}

int store_accepts(const far_session *s, const struct far_op *r)
{
    int rc = r ? store_check_table(s, r->table) : s ? store_null("op") : store_refuse(s);
    return rc == FAR_OK && (unsigned)r->kind >= FAR_OP_KINDS
               ? err_fail(FAR_INVALID, "there is no operation of kind %d", (int)r->kind)
               : rc;
}

int store_run(far_session *s, struct op *op, const struct far_op *r, struct far_result *result)
{
    *result = (struct far_result){.user_data = r->user_data};
    client_enter(&s->client);
    result->status = r->kind == FAR_OP_SCAN ? run_scan(s, op, r, result) : run(s, op, r, result);
    client_leave(&s->client);
    return result->status;
}

int far_execute(far_session *s, const struct far_op *r, struct far_result *result)
{
    err_begin();
    int rc = store_accepts(s, r);
    if (rc == FAR_OK && !result)
        rc = store_null("result");
    return err_end(rc == FAR_OK ? store_run(s, &s->op, r, result) : rc);
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

int far_iterate(far_session *s, far_table *table, uint64_t *cursor, unsigned flags, void *buf,
                size_t cap, size_t *len)
{
    struct far_result result;
    struct far_op r = {
        .kind = FAR_OP_ITERATE, .table = table, .buf = buf, .cap = cap, .flags = flags};
    err_begin();
    int rc = store_check_table(s, table);
    if (rc == FAR_OK && (!cursor || !len))
        rc = store_null(cursor ? "len" : "cursor");
    if (rc != FAR_OK)
        return err_end(rc);
    r.cursor = *cursor;
    rc = store_run(s, &s->op, &r, &result);
    if (rc == FAR_OK || rc == FAR_TOO_SMALL)
        *len = result.len;
    if (rc == FAR_OK)
        *cursor = result.cursor;
    return err_end(rc);
}

int far_scan(far_session *s, far_table *table, const struct far_range *range, void *buf, size_t cap,
             size_t *len, bool *more)
{
    struct far_result result;
    err_begin();
    int rc = store_check_table(s, table);
    if (rc == FAR_OK && (!range || !len))
        rc = store_null(range ? "len" : "range");
    if (rc != FAR_OK)
        return err_end(rc);
    struct far_op r = {.kind = FAR_OP_SCAN,
                       .table = table,
                       .key = range->from,
                       .key_len = range->from_len,
                       .to = range->to,
                       .to_len = range->to_len,
                       .limit = range->limit,
                       .flags = range->flags,
                       .buf = buf,
                       .cap = cap};
    rc = store_run(s, &s->op, &r, &result);
    if (rc == FAR_OK || rc == FAR_TOO_SMALL)
        *len = result.len;
    if (rc == FAR_OK && more)
        *more = result.more;
    return err_end(rc);
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

int far_modify(far_session *s, far_table *table, const void *key, size_t key_len,
               far_modify_fn *modify, void *arg)
{
    return call(s,
                &(struct far_op){.kind = FAR_OP_MODIFY,
                                 .table = table,
                                 .key = key,
                                 .key_len = key_len,
                                 .modify = modify,
                                 .modify_arg = arg},
                NULL);
}

int far_delete(far_session *s, far_table *table, const void *key, size_t key_len)
{
    return call_plain(s, FAR_OP_DELETE, table, key, key_len, NULL, 0);
}

void far_stats(const far_session *s, const far_table *table, struct far_stats *stats)
{
    if (!stats)
        return;
    bool good = s && table && table->pool == s->pool;
    const struct table_view *v = good ? store_known(s, table) : NULL;
    *stats = v ? v->stats : (struct far_stats){0};
}

/* Walks a table. As with an operation, what it finds when the lease has lapsed counts for nothing. */
static int inspect_once(far_session *s, far_table *table,
                        int (*walk)(struct op *op, struct index_view *view, void *arg), void *arg)
{
    struct table_view *view = NULL;
    int rc = begin(s, &s->op, table, &view);
    if (rc != FAR_OK)
        return rc;
    rc = walk(&s->op, view->view, arg);
    if (!status_means(rc, STATUS_FABRIC) && client_lapsed(&s->client))
        rc = err_fail(FAR_FENCED, "this client was silent for longer than its lease");
    finish(s, &s->op, view, rc);
    return rc;
}

static int inspect(far_session *s, far_table *table,
                   int (*walk)(struct op *op, struct index_view *view, void *arg), void *arg)
{
    store_enter(s);
    int rc = inspect_once(s, table, walk, arg);
    if (rc == FAR_FENCED)
        rc = inspect_once(s, table, walk, arg);
    store_leave(s);
    return rc;
}

static int walk_info(struct op *op, struct index_view *view, void *arg)
{
    return view->table->ops->info(op, view, arg);
}

int far_table_info(far_session *s, far_table *table, struct far_table_info *info)
{
    err_begin();
    int rc = store_check_table(s, table);
    if (rc == FAR_OK && !info)
        rc = store_null("info");
    if (rc != FAR_OK)
        return err_end(rc);
    struct far_table_info found;
    rc = inspect(s, table, walk_info, &found);
    if (rc == FAR_OK)
        *info = found;
    return err_end(rc);
}

/* A check whose lines go to the caller, as long as the session is not taken for dead. */
struct table_check {
    struct index_report report;
    void (*line)(void *arg, const char *line);
    void *arg;
    const far_session *session;
};

static void pass_line(void *arg, const char *line)
{
    const struct table_check *c = arg;
    if (c->line && !client_lapsed(&c->session->client))
        c->line(c->arg, line);
}

static int walk_check(struct op *op, struct index_view *view, void *arg)
{
    struct table_check *c = arg;
    c->report = (struct index_report){.line = pass_line, .arg = c};
    return view->table->ops->check(op, view, &c->report);
}

int far_table_check(far_session *s, far_table *table, void (*report)(void *, const char *),
                    void *arg)
{
    struct table_check c = {.line = report, .arg = arg, .session = s};
    err_begin();
    int rc = store_check_table(s, table);
    if (rc != FAR_OK)
        return err_end(rc);
    rc = inspect(s, table, walk_check, &c);
    unsigned violations = c.report.violations;
    if (rc == FAR_CORRUPT && report)
        report(arg, far_error_detail());
    else if (rc == FAR_OK && violations > 0)
        rc = err_fail(FAR_CORRUPT, "%u violation%s", violations, violations == 1 ? "" : "s");
    return err_end(rc);
}
