/* What concerns the pool as a whole and needs to know its tables: marking what they reach,
 * finishing what a dead session was at, checking, repairing. */
#include "store/maintain.h"

#include <stdio.h>

/* Runs `work` on a table through a view of its own, within an epoch. */
static int with_view(far_pool *pool, struct op *op, const struct table_desc *desc,
                     int (*work)(struct op *op, struct index_view *view, void *arg), void *arg)
{
    struct index_table table = {.ops = index_find(desc->index), .pool = &pool->pool, .desc = *desc};
    struct index_view *view = NULL;
    if (!table.ops)
        return fail(FAR_NO_INDEX, "table '%s' is kept by %s, which is not in this build",
                    desc->name, desc->index);
    bool inside = op_in_flight(op); /* recovering on behalf of an operation */
    int rc = inside ? FAR_OK : op_begin(op, NULL);
    if (rc != FAR_OK)
        return rc;
    rc = table.ops->attach(op, &table, &view);
    if (rc == FAR_OK) {
        rc = work(op, view, arg);
        client_uncache(op->client, &view->cached); /* a flight may have had it validated */
        table.ops->detach(view);
    }
    if (!inside)
        op_end(op);
    return rc;
}

static int mark_table(struct op *op, struct index_view *view, void *arg)
{
    return view->table->ops->mark(op, view, arg);
}

static int mark_tables(void *arg, struct op *op, struct marker *marker)
{
    for (unsigned id = 0;; id++) {
        struct table_desc desc;
        int rc = catalog_get(op, id, &desc);
        if (rc == FAR_OK)
            rc = with_view(arg, op, &desc, mark_table, marker);
        if (rc != FAR_OK)
            return rc == FAR_NO_TABLE ? FAR_OK : rc;
    }
}

static int recover_table(struct op *op, struct index_view *view, void *arg)
{
    const uint64_t *journal = arg;
    const struct index_ops *ops = view->table->ops;
    return ops->recover ? ops->recover(op, view, (uint32_t)(journal[0] >> 32), journal[1]) : FAR_OK;
}

static int recover(void *arg, struct op *op, const uint64_t journal[2])
{
    struct table_desc desc;
    int rc = catalog_get(op, index_journal_table(journal), &desc);
    if (rc == FAR_NO_TABLE)
        return FAR_OK;
    return rc == FAR_OK ? with_view(arg, op, &desc, recover_table, (void *)(uintptr_t)journal) : rc;
}

void maintain_pool(far_pool *pool)
{
    pool->pool.mark = mark_tables;
    pool->pool.recover = recover;
    pool->pool.tables = pool;
}

int far_pool_usage(far_session *s, struct far_pool_usage *usage)
{
    if (!s || !usage)
        return fail(FAR_INVALID, "no session, or no usage");
    client_enter(&s->client);
    int rc = pool_usage(&s->op, usage);
    client_leave(&s->client);
    return rc;
}

static int check_table(struct op *op, struct index_view *view, void *arg)
{
    struct index_report *report = arg;
    unsigned before = report->violations;
    int rc = view->table->ops->check(op, view, report);
    if (rc == FAR_CORRUPT)
        index_violation(report, "%s", far_error_detail());
    if (report->violations > before)
        index_violation(report, "table '%s' is damaged", view->table->desc.name);
    return rc == FAR_CORRUPT ? FAR_OK : rc;
}

static int check_tables(far_session *s, struct index_report *report)
{
    for (unsigned id = 0;; id++) {
        struct table_desc desc;
        int rc = catalog_get(&s->op, id, &desc);
        if (rc == FAR_OK)
            rc = with_view(s->pool, &s->op, &desc, check_table, report);
        else if (rc == FAR_CORRUPT)
            index_violation(report, "%s", far_error_detail());
        if (rc != FAR_OK)
            return rc == FAR_NO_TABLE || rc == FAR_CORRUPT ? FAR_OK : rc;
    }
}

static void note(const struct index_report *report, const char *what, uint64_t n)
{
    char line[128];
    snprintf(line, sizeof line, "%llu %s", (unsigned long long)n, what);
    if (report->line)
        report->line(report->arg, line);
}

/* Clears dead sessions away and finds what they lost; *before: how things were until then. */
static int mend(far_session *s, const struct index_report *report, struct far_pool_check *check,
                struct far_pool_usage *before)
{
    struct sweep_result swept;
    int rc = client_bury(&s->op, &check->dead_clients);
    if (rc == FAR_OK)
        rc = pool_usage(&s->op, before);
    if (rc == FAR_OK)
        rc = pool_sweep(&s->op, &swept);
    if (rc == FAR_OK && check->dead_clients > 0)
        note(report, "dead sessions were cleared away", check->dead_clients);
    return rc;
}

int far_pool_check(far_session *s, bool repair, void (*report)(void *, const char *), void *arg,
                   struct far_pool_check *check)
{
    struct index_report r = {.line = report, .arg = arg};
    struct far_pool_check c = {0};
    struct far_pool_usage before = {0}, usage;

    if (!s || !check)
        return fail(FAR_INVALID, "no session, or nowhere to put the outcome");
    client_enter(&s->client);
    int rc = repair ? mend(s, &r, &c, &before) : FAR_OK;
    if (rc == FAR_OK)
        rc = check_tables(s, &r);
    if (rc == FAR_OK)
        rc = pool_usage(&s->op, &usage);
    client_leave(&s->client);
    if (rc != FAR_OK)
        return rc;
    c.violations = r.violations;
    c.leaked_bytes = usage.unknown;
    c.repaired_bytes = before.unknown > usage.unknown ? before.unknown - usage.unknown : 0;
    if (c.repaired_bytes > 0)
        note(&r, "bytes of lost memory are free again", c.repaired_bytes);
    if (usage.unknown > 0)
        note(&r, "bytes are in no table and in no session's hands", usage.unknown);
    *check = c;
    return c.violations > 0 ? fail(FAR_CORRUPT, "%u violations", c.violations) : FAR_OK;
}
