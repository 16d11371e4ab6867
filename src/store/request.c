/* One operation on a table: its arguments, its attempts and its statistics. */
#include "store/ride.h"
#include "store/store_internal.h"

#include <limits.h>
#include <string.h>

/* How often an operation tries again after memory was freed: other clients may take it first. */
#define RELIEF_ATTEMPTS 8

/* Sets of kinds, by bits, so that asking is one comparison. */
#define KINDS_VALUE  (1u << FAR_OP_PUT | 1u << FAR_OP_INSERT | 1u << FAR_OP_UPDATE)
#define KINDS_CHANGE (KINDS_VALUE | 1u << FAR_OP_DELETE | 1u << FAR_OP_MODIFY)

static bool has_value(enum far_op_kind kind)
{
    return KINDS_VALUE >> kind & 1;
}

static bool changes(enum far_op_kind kind)
{
    return KINDS_CHANGE >> kind & 1;
}

/* Functions that a get, the most frequent operation, goes through are compiled once more for it. */
#define INLINED __attribute__((always_inline)) static inline

/* A change on behalf of an operation. */
struct request_change {
    struct change change;
    const struct far_op *request;
    int error; /* what is wrong with the callback's decision */
};

static enum change_action decide(struct change *change, struct slice old)
{
    struct request_change *c = (struct request_change *)change; /* `change` comes first */
    enum change_action action;
    c->error = store_ask(c->request, old, &change->value, &action);
    return action;
}

static int change(struct op *op, const struct far_op *r, struct index_view *view)
{
    struct request_change c = {.change = {.absent = store_action(r, false),
                                          .present = store_action(r, true),
                                          .value = {r->value, r->value_len},
                                          .decide = decide},
                               .request = r};
    int rc = INDEX_CALL(r->table->index.ops, change, op, view, (struct slice){r->key, r->key_len},
                        &c.change);
    if (c.error == FAR_OK || !status_means(rc, STATUS_ANSWER))
        return rc;
    return c.error == FAR_VALUE_SIZE
               ? err_fail(c.error, "the callback's value may have 0 to %zu bytes, not %zu",
                          index_value_max(r->table->index.ops), c.change.value.len)
               : err_fail(
                     c.error,
                     "the callback returned no decision, or NULL as a value that is not empty");
}

/* What an iteration or a scan has returned. FAR_PARTIAL: entries were left out. */
static int judge_entries(const struct far_op *r, const struct entries_out *out, int rc,
                         struct far_result *result)
{
    result->len = rc == FAR_TOO_SMALL ? out->needed : out->len;
    result->count = out->count;
    result->damaged =
        rc == FAR_OK ? out->damaged : 0; /* otherwise the next call passes them again */
    if (result->damaged == 0)
        return rc;
    return err_fail(FAR_PARTIAL, "up to %u entries of table '%s' are damaged", out->damaged,
                    r->table->index.desc.name);
}

static int iterate(struct op *op, const struct far_op *r, struct index_view *view,
                   struct far_result *result)
{
    struct entries_out out = {.buf = r->buf,
                              .cap = r->cap,
                              .cursor = r->cursor,
                              .keys_only = (r->flags & FAR_KEYS_ONLY) != 0};
    if (r->flags & FAR_PASS_AWAY)
        out.away = pool_away(op->pool);
    op->batch.refused = false;
    int rc = INDEX_CALL(r->table->index.ops, iterate, op, view, &out);
    result->cursor = out.cursor;
    return judge_entries(r, &out, rc, result);
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
    int rc = INDEX_CALL(r->table->index.ops, scan, op, view, &range, &out);
    ASSERT(out.count <= range.limit && (rc != FAR_OK || !out.more || out.count > 0));
    result->more = out.more;
    return judge_entries(r, &out, rc, result);
}

INLINED int dispatch(struct op *op, const struct far_op *r, enum far_op_kind kind,
                     struct index_view *view, struct far_result *result)
{
    if (kind == FAR_OP_ITERATE)
        return iterate(op, r, view, result);
    if (kind == FAR_OP_SCAN)
        return scan(op, r, view, result);
    if (changes(kind))
        return change(op, r, view);
    struct value_out got = {
        .buf = r->buf, .cap = r->cap, .skip = kind == FAR_OP_EXISTS, .client = op->client};
    int rc =
        INDEX_CALL(r->table->index.ops, get, op, view, (struct slice){r->key, r->key_len}, &got);
    result->len = got.len;
    return rc;
}

/* The status of what changed nothing: its outcome is known, even if the connection broke. */
static int without_effect(int rc)
{
    return rc == FAR_UNKNOWN ? FAR_UNREACHABLE : rc;
}

/* One attempt at an operation, within an epoch. */
INLINED int attempt_once(far_session *s, struct op *op, const struct far_op *r,
                         enum far_op_kind kind, struct table_view *view, struct far_result *result)
{
    int rc = without_effect(store_view_enter(s, op, view));
    if (rc != FAR_OK)
        return rc;
    ASSERT(op->batch.count == 0);
    rc = dispatch(op, r, kind, view->view, result);
    if (!changes(kind))
        rc = without_effect(rc);
    /* What a client reads after its lease has lapsed may have been reused. A change that was made
     * was made in time, because batches that write are not posted later. The same holds for a value
     * that was delivered. */
    bool made = (changes(kind) || kind == FAR_OP_GET) && rc == FAR_OK;
    if (rc != FAR_OK && status_means(rc, STATUS_FABRIC)) {
        op_end(op); /* if it was silent, this is why, and the detail names the node */
        return rc;
    }
    if (!made && client_lapsed(op->client))
        rc = store_silent();
    if (rc != FAR_FENCED)
        (void)client_upkeep(op); /* if it fails, the next operation reports it */
    op_end(op);
    return rc;
}

static __attribute__((noinline)) int attempt_any(far_session *s, struct op *op,
                                                 const struct far_op *r, struct table_view *view,
                                                 struct far_result *result)
{
    return attempt_once(s, op, r, r->kind, view, result);
}

/* An operation that was fenced did nothing, and is tried once more under a new registration. */
static int attempt(far_session *s, struct op *op, const struct far_op *r, struct table_view *view,
                   struct far_result *result)
{
    int rc = attempt_any(s, op, r, view, result);
    if (rc == FAR_FENCED)
        rc = attempt_any(s, op, r, view, result);
    op_forget_locks(op);
    return rc;
}

/* Names the indexes that do keep keys in order. */
static int not_ordered(const far_table *table)
{
    char names[INDEX_NAMES_BYTES];
    return err_fail(
        FAR_UNSUPPORTED,
        "table '%s' has index %s, which does not keep keys in order; indexes of this build "
        "that do: %s",
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
        return err_fail(FAR_INVALID, "flags has unknown bits");
    int rc = check_bound("from", r->key, r->key_len);
    return rc == FAR_OK ? check_bound("to", r->to, r->to_len) : rc;
}

/* Checks the arguments that the operation's kind needs. */
INLINED int check_request(const struct far_op *r, enum far_op_kind kind)
{
    if (kind == FAR_OP_SCAN)
        return check_scan(r);
    if (kind == FAR_OP_ITERATE) {
        if (!r->buf)
            return store_null("buf");
        return r->flags & ~(FAR_KEYS_ONLY | FAR_PASS_AWAY)
                   ? err_fail(FAR_INVALID, "flags has unknown bits")
                   : FAR_OK;
    }
    if (!r->key)
        return store_null("key");
    const struct index_ops *ops = r->table->index.ops;
    if (r->key_len - 1 >= index_key_max(ops))
        return err_fail(FAR_KEY_SIZE, "a key has 1 to %zu bytes, not %zu", index_key_max(ops),
                        r->key_len);
    if (kind == FAR_OP_MODIFY && !r->modify)
        return store_null("modify");
    if (has_value(kind) && r->value_len > index_value_max(ops))
        return err_fail(FAR_VALUE_SIZE, "a value has 0 to %zu bytes, not %zu", index_value_max(ops),
                        r->value_len);
    if (has_value(kind) && !r->value && r->value_len > 0)
        return err_fail(FAR_INVALID, "value is NULL, but value_len is %zu", r->value_len);
    if (kind == FAR_OP_GET && !r->buf && r->cap > 0)
        return err_fail(FAR_INVALID, "buf is NULL, but cap is %zu", r->cap);
    return FAR_OK;
}

/* A session does not wait for others if it has something to do in far memory: to renew its lease,
 * for instance. Nor if its program may sleep until the descriptor is readable: nobody would wake
 * it. */
static bool begin_grouped(far_session *s, struct op *op, const struct far_op *r,
                          struct grouped *grouped, int *rc)
{
    uint64_t hash = group_hash(r);
    if (__builtin_expect(!group_is_hot(&s->groups, hash), 1))
        return false;
    bool waits = !s->wait && !client_is_due(op->client);
    return store_group_begin(&s->groups, op, r, hash, waits, grouped, rc);
}

/* The same for an operation and those that ride with it. A function of its own, so that other
 * operations need less stack. */
static __attribute__((noinline)) int attempt_ride(far_session *s, struct op *op,
                                                  const struct far_op *r, struct rider *riders,
                                                  struct table_view *view,
                                                  struct far_result *result)
{
    struct ride ride;
    struct far_op change;
    store_ride_begin(&ride, r, riders, &change);
    int rc = attempt(s, op, &change, view, result);
    return store_ride_end(&ride, &rc) ? rc : attempt(s, op, r, view, result);
}

/* An attempt has failed with that status: tries again if that may help. */
static int attempt_again(far_session *s, struct op *op, const struct far_op *r,
                         struct table_view *view, struct far_result *result, int rc)
{
    if (rc == FAR_UNREACHABLE && pool_away(op->pool)) { /* AWAY-3: is the node back? */
        rc = without_effect(pool_meet(op));
        if (rc == FAR_OK)
            rc = attempt(s, op, r, view, result);
    }
    for (unsigned i = 0; rc == FAR_POOL_FULL && i < RELIEF_ATTEMPTS; i++) {
        /* Not within the attempt: its own epoch would hold it up. */
        rc = without_effect(pool_make_room(op, i > 0));
        if (rc == FAR_TIMEOUT)
            rc = client_held_up(op->client, rc);
        if (rc != FAR_OK && rc != FAR_FENCED)
            break;
        rc = attempt(s, op, r, view, result);
    }
    return rc;
}

/* Turns the index's result, if it is not FAR_OK, into what the caller is told. */
static int explain(const struct op *op, const struct far_op *r, int rc)
{
    if (r->kind == FAR_OP_MODIFY && status_means(rc, STATUS_ANSWER))
        return FAR_OK; /* the callback decided to do nothing */
    if (rc == FAR_CONTENTION || rc == FAR_POOL_FULL)
        return client_held_up(op->client, rc);
    if (rc == FAR_BOUNDS) /* the address was read from the pool */
        return err_fail(FAR_CORRUPT, "an address in the table lies outside the pool");
    return rc;
}

static void count(struct far_op_stats *stats, const struct cost *cost, int rc)
{
    stats->count++;
    if (rc != FAR_OK) {
        stats->not_found += rc == FAR_NOT_FOUND;
        stats->exists += rc == FAR_EXISTS;
        stats->errors += !status_means(rc, STATUS_ANSWER);
    }
    stats->rtts += cost->rtts;
    stats->took[cost->rtts < FAR_RTTS_TOLD ? cost->rtts : FAR_RTTS_TOLD - 1]++;
    stats->verbs += cost->verbs;
    stats->bytes_read += cost->bytes_read;
    stats->bytes_written += cost->bytes_written;
}

/* `kind` is that of the operation: a constant where it is known. */
INLINED int run_kind(far_session *s, struct op *op, const struct far_op *r, enum far_op_kind kind,
                     struct far_result *result)
{
    int rc = check_request(r, kind);
    if (rc != FAR_OK)
        return rc;
    struct table_view *state = store_view_use(s, r->table);
    if (!state)
        return err_fail(FAR_NO_MEMORY, "no memory for a view");
    struct far_op_stats *stats = &state->stats.op[kind];
    op->cost = (struct cost){0};
    struct grouped grouped;
    grouped.word = 0;
    grouped.riders = NULL;
    if (changes(kind) && s->groups.groups && begin_grouped(s, op, r, &grouped, &rc)) {
        stats->joined++;
        goto done;
    }
    if (kind == FAR_OP_GET) {
        rc = attempt_once(s, op, r, FAR_OP_GET, state, result);
        if (rc == FAR_FENCED)
            rc = attempt_any(s, op, r, state, result);
    } else {
        rc = grouped.riders ? attempt_ride(s, op, r, grouped.riders, state, result)
                            : attempt(s, op, r, state, result);
    }
    if (rc != FAR_OK)
        rc = attempt_again(s, op, r, state, result, rc);
    if (grouped.word != 0)
        store_group_end(&s->groups, op, group_kind(r), &grouped, rc);
    if (rc != FAR_OK)
        rc = explain(op, r, rc);
    ASSERT(op->batch.count == 0);

done:
    count(stats, &op->cost, rc);
    if (kind != FAR_OP_GET && result->count > 0) /* of an iteration or a scan */
        stats->entries += rc == FAR_OK || rc == FAR_PARTIAL ? result->count : 0;
    store_view_release(s, state, rc);
    return rc;
}

static __attribute__((noinline)) int run_any(far_session *s, struct op *op, const struct far_op *r,
                                             struct far_result *result)
{
    return run_kind(s, op, r, r->kind, result);
}

/* A scan's first key may lie in the buffer that it fills, so it is copied. A function of its own,
 * so that other operations need less stack. */
static __attribute__((noinline)) int run_scan(far_session *s, struct op *op, const struct far_op *r,
                                              struct far_result *result)
{
    char from[FAR_KEY_MAX];
    struct far_op copy = *r;
    if (r->key && r->key_len <= sizeof from)
        copy.key = memcpy(from, r->key, r->key_len);
    return run_any(s, op, &copy, result);
}

int store_accepts(const far_session *s, const struct far_op *r)
{
    int rc = r ? store_check_table(s, r->table) : s ? store_null("op") : store_refuse(s);
    return rc == FAR_OK && (unsigned)r->kind - 1 >= FAR_OP_KINDS - 1
               ? err_fail(FAR_INVALID, "there is no operation of kind %d", (int)r->kind)
               : rc;
}

int store_run(far_session *s, struct op *op, const struct far_op *r, struct far_result *result)
{
    *result = (struct far_result){.user_data = r->user_data};
    client_enter(&s->client);
    result->status = r->kind == FAR_OP_GET    ? run_kind(s, op, r, FAR_OP_GET, result)
                     : r->kind == FAR_OP_SCAN ? run_scan(s, op, r, result)
                                              : run_any(s, op, r, result);
    client_leave(&s->client);
    return result->status;
}
