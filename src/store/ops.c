/* The public functions for single operations. */
#include "index/ahead.h"
#include "store/store_internal.h"

/* Runs an operation of a synchronous call. */
static int run(far_session *s, const struct far_op *r, struct far_result *result)
{
    store_hold(s);
    int rc = store_run(s, &s->op, r, result);
    store_unhold(s);
    return rc;
}

int far_execute(far_session *s, const struct far_op *r, struct far_result *result)
{
    err_begin();
    int rc = store_accepts(s, r);
    if (rc == FAR_OK && !result)
        rc = store_null("result");
    return err_end(rc == FAR_OK ? run(s, r, result) : rc);
}

/* ---- many operations ------------------------------------------------------------------------- */

/* How many operations ahead of its turn an operation's key is looked at: first the words that may
 * have it are prefetched, and then its block. */
#define AHEAD_WORDS 4u
#define AHEAD_BLOCK 2u

/* Only for lookups: changes spend most of their time elsewhere, and gained nothing. */
static void look_ahead(const far_session *s, const struct far_op *r, struct index_ahead *ahead)
{
    bool looks_up = (r->kind == FAR_OP_GET || r->kind == FAR_OP_EXISTS) && r->key &&
                    r->key_len - 1 < FAR_KEY_MAX && r->table && r->table->pool == s->pool;
    const struct table_view *v = looks_up ? store_known(s, r->table) : NULL;
    ahead->ranges = 0;
    if (v && v->view && !v->gone && r->table->index.ops->ahead)
        r->table->index.ops->ahead(&s->op, v->view, (struct slice){r->key, r->key_len}, ahead);
}

/* One of many. Its result has its status also if it is refused. */
static int run_one(far_session *s, const struct far_op *r, struct far_result *result)
{
    err_begin();
    int rc = store_accepts(s, r);
    if (rc == FAR_OK)
        return err_end(run(s, r, result));
    *result = (struct far_result){.user_data = r->user_data, .status = rc};
    return err_end(rc);
}

static bool is_answer(int rc)
{
    return rc == FAR_OK || rc == FAR_TOO_SMALL || status_means(rc, STATUS_ANSWER);
}

int far_execute_many(far_session *s, const struct far_op *ops, struct far_result *results,
                     unsigned count)
{
    struct index_ahead ahead[AHEAD_WORDS];
    struct err_detail detail;
    int failed = store_begin(s, ops || count == 0, "ops");
    if (failed == FAR_OK && !results && count > 0)
        failed = store_null("results");
    if (failed != FAR_OK)
        return err_end(failed);
    unsigned mapped = batch_is_mapped(&s->op.batch) ? count : 0;
    for (unsigned i = 0; i < AHEAD_WORDS && i < mapped; i++)
        look_ahead(s, &ops[i], &ahead[i]);
    for (unsigned i = 0; i < count; i++) {
        int rc = run_one(s, &ops[i], &results[i]);
        if (i + AHEAD_WORDS < mapped) /* in place of this one */
            look_ahead(s, &ops[i + AHEAD_WORDS], &ahead[i % AHEAD_WORDS]);
        if (i + AHEAD_BLOCK < mapped)
            index_ahead_blocks(&s->op, &ahead[(i + AHEAD_BLOCK) % AHEAD_WORDS]);
        if (failed == FAR_OK && !is_answer(rc)) {
            failed = rc;
            err_keep(&detail);
        }
    }
    if (failed != FAR_OK)
        err_restore(&detail);
    return failed;
}

/* ---- one operation each ---------------------------------------------------------------------- */

static int call(far_session *s, const struct far_op *r, size_t *len)
{
    struct far_result result;
    err_begin();
    int rc = store_check_table(s, r->table);
    if (rc != FAR_OK)
        return err_end(rc);
    rc = run(s, r, &result);
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
    int rc = store_begin_table(s, table, cursor && len, cursor ? "len" : "cursor");
    if (rc != FAR_OK)
        return err_end(rc);
    r.cursor = *cursor;
    rc = run(s, &r, &result);
    bool some = rc == FAR_OK || rc == FAR_PARTIAL;
    if (some || rc == FAR_TOO_SMALL)
        *len = result.len;
    if (some)
        *cursor = result.cursor;
    return err_end(rc);
}

int far_scan(far_session *s, far_table *table, const struct far_range *range, void *buf, size_t cap,
             size_t *len, bool *more)
{
    struct far_result result;
    int rc = store_begin_table(s, table, range && len, range ? "len" : "range");
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
    rc = run(s, &r, &result);
    bool some = rc == FAR_OK || rc == FAR_PARTIAL;
    if (some || rc == FAR_TOO_SMALL)
        *len = result.len;
    if (some && more)
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
