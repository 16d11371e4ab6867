/* Tables: the handles that all threads of a process share, and what concerns a table as a whole. */
#include "store/store_internal.h"

#include "store/drop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_name(const char *name)
{
    if (!name)
        return store_null("the table's name");
    size_t len = strnlen(name, FAR_NAME_MAX + 1);
    if (len == 0)
        return err_fail(FAR_INVALID, "the table's name is empty");
    if (len > FAR_NAME_MAX)
        return err_fail(FAR_INVALID, "the table's name has more than %u bytes", FAR_NAME_MAX);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c < ' ' || c == 127)
            return err_fail(FAR_INVALID,
                            "the table's name has a control character (byte %zu is 0x%02x)", i, c);
    }
    return FAR_OK;
}

static int handle_for(far_pool *pool, const struct index_ops *ops, const struct table_desc *desc,
                      far_table **out)
{
    far_table *table = store_handle_open(pool, ops, desc);
    if (!table)
        return err_fail(FAR_NO_MEMORY, "no memory for a table handle");
    *out = table;
    return FAR_OK;
}

static int no_index(const char *name)
{
    char known[128] = "";
    size_t used = 0;
    for (unsigned i = 0; far_index_name(i) && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 far_index_name(i));
    return err_fail(FAR_NO_INDEX, "there is no index '%s' (available: %s)", name, known);
}

static int find_index(const far_session *s, const char *name, const struct index_ops **ops)
{
    *ops = index_find(name);
    if (!*ops)
        return no_index(name);
    if (((*ops)->order_needed & s->pool->fab->order) != (*ops)->order_needed)
        return err_fail(FAR_UNSUPPORTED, "index %s needs verbs in an order that %s: does not keep",
                        name, s->pool->fab->ops->scheme);
    return FAR_OK;
}

/* As with operations on keys, a call that was fenced did nothing and is tried once more. */

/* Builds the table and adds it, within an epoch. */
static int build_once(far_session *s, const struct index_ops *ops,
                      const struct index_options *options, struct table_desc *desc)
{
    uint64_t before = pool_taken_bytes(&s->client);
    int rc = op_begin(&s->op, NULL);
    if (rc != FAR_OK)
        return rc;
    rc = INDEX_CALL(ops, create, &s->op, options, desc->hash_seed, &desc->root);
    if (rc == FAR_OK) {
        rc = catalog_add(&s->op, desc);
        if (rc != FAR_OK &&
            (!op_all_known(rc) || INDEX_CALL(ops, discard, &s->op, desc->root) != FAR_OK))
            pool_abandon_since(&s->client, before);
    }
    rc = store_judge(&s->op, rc);
    op_end(&s->op);
    return rc;
}

static int build(far_session *s, const struct index_ops *ops, const struct index_options *options,
                 struct table_desc *desc)
{
    int rc = build_once(s, ops, options, desc);
    return rc == FAR_FENCED ? build_once(s, ops, options, desc) : rc;
}

/* Finds a table by name, within an epoch. */
static int find_desc_once(far_session *s, const char *name, struct table_desc *desc)
{
    int rc = op_begin(&s->op, NULL);
    if (rc != FAR_OK)
        return rc;
    rc = store_judge(&s->op, catalog_find(&s->op, name, desc));
    op_end(&s->op);
    return rc;
}

static int find_desc(far_session *s, const char *name, struct table_desc *desc)
{
    int rc = find_desc_once(s, name, desc);
    return rc == FAR_FENCED ? find_desc_once(s, name, desc) : rc;
}

static int create(far_session *s, const char *name, const struct index_ops *ops,
                  const struct far_table_options *options, far_table **out)
{
    struct index_options with = {.expected_keys = options->expected_keys};
    int rc = tuning_parse(ops->name, ops->tuning, options->tuning, with.tuning);
    if (rc != FAR_OK)
        return rc;
    /* Only to save the work of building a table that cannot be added. */
    struct table_desc desc = {.id = 0};
    rc = find_desc(s, name, &desc);
    if (rc == FAR_OK)
        return err_fail(FAR_TABLE_EXISTS, "table '%s' already exists, with index %s", name,
                        desc.index);
    if (rc != FAR_NO_TABLE)
        return rc;

    rc = pool_meet(&s->op); /* AWAY-4: it may need all nodes */
    if (rc != FAR_OK)
        return rc;
    strcpy(desc.name, name);
    strcpy(desc.index, ops->name);
    desc.hash_seed = options->hash_seed ? options->hash_seed : rng_next(&s->client.rng);
    rc = build(s, ops, &with, &desc);
    if (rc == FAR_POOL_FULL && pool_make_room(&s->op, false) == FAR_OK)
        rc = build(s, ops, &with, &desc);
    /* A session that died while it dropped a table may have left a place. */
    if (rc == FAR_CATALOG_FULL && store_drop_settle(s->pool, &s->op) == FAR_OK)
        rc = build(s, ops, &with, &desc);
    return rc == FAR_OK ? handle_for(s->pool, ops, &desc, out) : rc;
}

int far_table_create(far_session *s, const char *name, const char *index,
                     const struct far_table_options *options, far_table **out)
{
    static const struct far_table_options none;
    const struct index_ops *ops = NULL;

    int rc = store_begin(s, index && out, !index ? "index" : "table");
    if (rc == FAR_OK)
        rc = check_name(name);
    if (rc == FAR_OK)
        rc = find_index(s, index, &ops);
    if (rc != FAR_OK)
        return err_end(rc);
    store_take(s);
    rc = create(s, name, ops, options ? options : &none, out);
    store_give(s);
    return err_end(rc);
}

static int find_table(far_session *s, const char *name, const char *index, far_table **out)
{
    const struct index_ops *ops = NULL;
    struct table_desc desc;

    store_take(s);
    int rc = find_desc(s, name, &desc);
    store_give(s);
    if (rc == FAR_NO_TABLE)
        return err_fail(rc, "there is no table '%s'", name);
    if (rc != FAR_OK)
        return rc;
    if (index && strcmp(index, desc.index) != 0)
        return err_fail(FAR_WRONG_INDEX, "table '%s' has index %s, not %s", name, desc.index,
                        index);
    rc = find_index(s, desc.index, &ops);
    return rc == FAR_OK ? handle_for(s->pool, ops, &desc, out) : rc;
}

int far_table_open(far_session *s, const char *name, const char *index, far_table **out)
{
    int rc = store_begin(s, out, "table");
    if (rc == FAR_OK)
        rc = check_name(name);
    return err_end(rc == FAR_OK ? find_table(s, name, index, out) : rc);
}

/* Frees the name. */
static int drop_name(far_session *s, const far_table *table)
{
    struct op *op = &s->op;
    struct table_desc now;
    int rc = op_begin(op, NULL);
    if (rc != FAR_OK)
        return rc;
    rc = store_judge(op, catalog_get(op, table->index.desc.id, &now));
    if (rc == FAR_NO_TABLE ||
        (rc == FAR_OK && (now.serial != table->index.desc.serial || table_is_dropped(&now))))
        rc = err_fail(FAR_NO_TABLE, "table '%s' was dropped", table->index.desc.name);
    if (rc == FAR_OK)
        rc = catalog_drop(op, &now);
    op_end(op);
    return rc;
}

/* Frees the name, and then completes the drop. If this fails, another session completes it. */
static int drop(far_session *s, far_table *table)
{
    int rc = drop_name(s, table);
    if (rc == FAR_FENCED)
        rc = drop_name(s, table);
    if (rc == FAR_OK) {
        rc = store_drop_settle(s->pool, &s->op);
        if (rc == FAR_FENCED ||
            (rc == FAR_POOL_FULL && pool_make_room(&s->op, false) == FAR_OK)) /* RELIEF-2 */
            rc = store_drop_settle(s->pool, &s->op);
    }
    if (rc == FAR_OK || rc == FAR_NO_TABLE)
        store_view_forget(s, table);
    return rc;
}

int far_table_drop(far_session *s, far_table *table)
{
    err_begin();
    int rc = store_check_table(s, table);
    if (rc != FAR_OK)
        return err_end(rc);
    store_enter(s);
    rc = drop(s, table);
    store_leave(s);
    return err_end(rc);
}

static int list_one_once(far_session *s, unsigned *id, struct table_desc *desc)
{
    int rc = op_begin(&s->op, NULL);
    if (rc != FAR_OK)
        return rc;
    for (bool found = false; rc == FAR_OK && !found;) {
        rc = catalog_next(&s->op, false, id);
        if (rc != FAR_OK)
            break;
        rc = catalog_get(&s->op, (*id)++, desc);
        found = rc == FAR_OK && !table_is_dropped(desc);
        rc = rc == FAR_NO_TABLE ? FAR_OK : store_judge(&s->op, rc); /* it was dropped meanwhile */
    }
    op_end(&s->op);
    return rc;
}

static int list_one(far_session *s, unsigned *id, struct table_desc *desc)
{
    unsigned from = *id;
    int rc = list_one_once(s, id, desc);
    if (rc != FAR_FENCED)
        return rc;
    *id = from;
    return list_one_once(s, id, desc);
}

int far_table_list(far_session *s, int (*each)(void *, const char *, const char *), void *arg)
{
    int rc = store_begin(s, each, "each");
    if (rc != FAR_OK)
        return err_end(rc);
    for (unsigned id = 0;;) {
        struct table_desc desc;
        store_take(s);
        rc = list_one(s, &id, &desc);
        store_give(s);
        if (rc != FAR_OK)
            return err_end(rc == FAR_NO_TABLE ? FAR_OK : rc);
        rc = each(arg, desc.name, desc.index);
        if (rc != 0)
            return rc; /* the callback's; the detail is not changed */
    }
}

/* Walks a table. As with an operation, what it finds after the lease has lapsed does not count. */
static int inspect_once(far_session *s, far_table *table,
                        int (*walk)(struct op *op, struct index_view *view, void *arg), void *arg)
{
    struct table_view *view = NULL;
    int rc = store_view_begin(s, &s->op, table, &view);
    if (rc != FAR_OK)
        return rc;
    rc = walk(&s->op, view->view, arg);
    if (!status_means(rc, STATUS_FABRIC) && client_lapsed(&s->client))
        rc = store_silent();
    store_view_end(s, &s->op, view, rc);
    return rc;
}

static int inspect(far_session *s, far_table *table,
                   int (*walk)(struct op *op, struct index_view *view, void *arg), void *arg)
{
    store_enter(s);
    int rc = inspect_once(s, table, walk, arg);
    if (rc == FAR_FENCED ||
        (rc == FAR_UNREACHABLE && pool_away(&s->pool->pool) &&
         pool_meet(&s->op) == FAR_OK) ||                                  /* AWAY-3 */
        (rc == FAR_POOL_FULL && pool_make_room(&s->op, false) == FAR_OK)) /* RELIEF-2 */
        rc = inspect_once(s, table, walk, arg);
    store_leave(s);
    return rc;
}

static int walk_info(struct op *op, struct index_view *view, void *arg)
{
    return INDEX_CALL(view->table->ops, info, op, view, arg);
}

int far_table_info(far_session *s, far_table *table, struct far_table_info *info)
{
    int rc = store_begin_table(s, table, info, "info");
    if (rc != FAR_OK)
        return err_end(rc);
    struct far_table_info found;
    rc = inspect(s, table, walk_info, &found);
    if (rc == FAR_OK)
        *info = found;
    return err_end(rc);
}

/* A check whose lines go to the caller, unless the lease has lapsed. */
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
    return INDEX_CALL(view->table->ops, check, op, view, &c->report);
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
