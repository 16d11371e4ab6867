/* What concerns the pool as a whole and needs to know its tables: marking their memory, completing
 * the work of dead sessions, checking and repairing. */
#include "store/maintain.h"

#include "store/drop.h"
#include "store/keeper.h"
#include "store/store_internal.h"

#include <stdarg.h>
#include <stdio.h>

/* store_view_work() on the table at a place of the catalog, in an operation of its own unless the
 * caller is within one. FAR_NO_TABLE: there is none, or it was dropped, unless `dropped_too`. */
static int with_table(far_pool *pool, struct op *op, unsigned id, bool dropped_too,
                      int (*work)(struct op *op, struct index_view *view, void *arg), void *arg)
{
    struct table_desc desc;
    bool inside = op_in_flight(op); /* it recovers a dead session's work */
    int rc = inside ? FAR_OK : op_begin(op, NULL);
    if (rc != FAR_OK)
        return rc;
    rc = catalog_get(op, id, &desc);
    if (rc == FAR_OK && table_is_dropped(&desc) && !dropped_too)
        rc = FAR_NO_TABLE;
    if (rc == FAR_OK)
        rc = store_view_work(pool, op, &desc, dropped_too, work, arg);
    rc = store_judge(op, rc);
    if (!inside)
        op_end(op);
    return rc;
}

static int mark_table(struct op *op, struct index_view *view, void *arg)
{
    return INDEX_CALL(view->table->ops, mark, op, view, arg);
}

/* CAT-5: also the dropped ones. */
static int mark_tables(void *arg, struct op *op, struct marker *marker)
{
    for (unsigned id = 0;; id++) {
        int rc = catalog_next(op, false, &id);
        if (rc != FAR_OK)
            return rc == FAR_NO_TABLE ? FAR_OK : rc;
        rc = with_table(arg, op, id, true, mark_table, marker);
        if (rc != FAR_OK && rc != FAR_NO_TABLE)
            return rc;
    }
}

static int recover_table(struct op *op, struct index_view *view, void *arg)
{
    const struct index_ops *ops = view->table->ops;
    const struct journal_entry *entry = arg;
    bool same = view->table->desc.serial == entry->subject.tag; /* else it is a later table there */
    return ops->recover && same ? INDEX_CALL(ops, recover, op, view, entry) : FAR_OK;
}

/* May be called in the middle of another operation, whose buffers are preserved. Dropped tables are
 * recovered, too: they are walked until they are gone, and a walk may wait for what the dead client
 * holds. */
static int recover(void *arg, struct op *op, const struct journal_entry *entry)
{
    struct op_aside aside;
    int rc = op_set_aside(op, &aside);
    if (rc != FAR_OK)
        return rc;
    rc = with_table(arg, op, entry->subject.place, true, recover_table, (void *)(uintptr_t)entry);
    op_take_back(op, &aside);
    return rc == FAR_NO_TABLE ? FAR_OK : rc; /* then there is nothing left to complete */
}

static int settle(void *arg, struct op *op)
{
    return store_drop_settle(arg, op);
}

static void hurry(void *arg)
{
    store_keeper_hurry(arg);
}

void store_maintain_pool(far_pool *pool)
{
    pool->pool.mark = mark_tables;
    pool->pool.recover = recover;
    pool->pool.settle = settle;
    pool->pool.hurry = hurry;
    pool->pool.tables = pool;
}

int far_pool_usage(far_session *s, struct far_pool_usage *usage)
{
    int rc = store_begin(s, usage, "usage");
    if (rc != FAR_OK)
        return err_end(rc);
    store_enter(s);
    rc = pool_usage(&s->op, usage);
    store_leave(s);
    return err_end(rc);
}

/* ---- checking -------------------------------------------------------------------------------- */

/* The state of a check, which all of its parts add to. */
struct checking {
    far_session *session;
    struct index_report report;
    struct far_pool_check sum;
    bool no_usage;  /* a table is so damaged that it is not known what it reaches */
    bool no_memory; /* and therefore lost memory was not searched for */
    uint64_t nodes_away;
    bool swept;   /* it was, and what had been lost before was found */
    bool spilled; /* others allocated new memory during the sweep */
};

static void say(const struct checking *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void say(const struct checking *c, const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (c->report.line)
        c->report.line(c->report.arg, line);
}

struct table_report {
    const struct checking *checking;
    const char *table;
};

static void table_line(void *arg, const char *text)
{
    const struct table_report *t = arg;
    if (!client_lapsed(&t->checking->session->client)) /* else see store_judge() */
        say(t->checking, "table '%s': %s", t->table, text);
}

/* A node is away: the rest of the pool is checked. True: it was that. */
static bool passes(const struct checking *c, int rc, const char *what)
{
    if (c->nodes_away == 0 || rc != FAR_UNREACHABLE)
        return false;
    say(c, "not checked to its end: %s: %s", what, far_error_detail());
    return true;
}

static int check_table(struct op *op, struct index_view *view, void *arg)
{
    struct checking *c = arg;
    struct table_report t = {c, view->table->desc.name};
    struct index_report report = c->report;
    report.line = table_line;
    report.arg = &t;
    int rc = store_judge(op, INDEX_CALL(view->table->ops, check, op, view, &report));
    if (rc == FAR_OK && report.violations > c->report.violations && client_lapsed(op->client))
        rc = store_judge(op, FAR_CORRUPT);
    if (rc == FAR_CORRUPT)
        index_violation(&report, "%s", far_error_detail());
    if (passes(c, rc, view->table->desc.name))
        rc = FAR_OK;
    c->report.violations = report.violations;
    c->report.stranded = report.stranded;
    c->report.repaired = report.repaired;
    c->report.salvaged = report.salvaged;
    c->report.lost = report.lost;
    return rc == FAR_CORRUPT ? FAR_OK : rc;
}

/* Dropped tables whose memory is not free yet: their sessions are still dropping them, or died. */
static int check_dropped(struct checking *c)
{
    struct op *op = &c->session->op;
    unsigned dropped = 0, id = 0;
    int rc = FAR_OK;
    for (; rc == FAR_OK; id++) {
        rc = catalog_next(op, true, &id);
        dropped += rc == FAR_OK;
    }
    if (rc != FAR_NO_TABLE || dropped == 0)
        return rc == FAR_NO_TABLE ? FAR_OK : rc;
    if (c->report.repair)
        rc = store_drop_settle(c->session->pool, op);
    else
        say(c, "note: %u table%s being dropped", dropped, dropped == 1 ? " is" : "s are");
    return c->report.repair ? rc : FAR_OK;
}

/* If there is no line of the journal for the walk, it is made again (RELIEF-2). A repair has
 * counted what it has repaired. */
static int check_one(struct checking *c, unsigned id)
{
    struct op *op = &c->session->op;
    struct index_report before = c->report;
    int rc = with_table(c->session->pool, op, id, false, check_table, c);
    if (rc != FAR_POOL_FULL || pool_make_room(op, false) != FAR_OK)
        return rc;
    if (!before.repair)
        c->report = before;
    return with_table(c->session->pool, op, id, false, check_table, c);
}

static int check_tables(struct checking *c)
{
    struct op *op = &c->session->op;
    for (unsigned id = 0;; id++) {
        int rc = catalog_next(op, false, &id);
        if (rc != FAR_OK)
            return rc == FAR_NO_TABLE ? FAR_OK : rc;
        rc = check_one(c, id);
        if (passes(c, rc, "a table"))
            continue;
        if (rc == FAR_CORRUPT) /* the place, the descriptor, or the table's root */
            index_violation(&c->report, "table %u: %s", id, far_error_detail());
        else if (rc != FAR_OK && rc != FAR_NO_TABLE)
            return rc;
    }
}

static void silent_session(void *arg, unsigned slot, const struct client_slot *s, bool dead)
{
    struct checking *c = arg;
    unsigned long long in_hand = s->held_bytes + s->retired_bytes;
    if (!dead) {
        say(c,
            "waiting: the session in slot %u (process %llu) is silent and not known to be dead; "
            "%llu "
            "bytes and its locks are kept for it (wait=0 in the URI takes it for dead)",
            slot, (unsigned long long)s->pid, in_hand);
        return;
    }
    if (c->report.repair)
        return; /* it died since the dead ones were removed */
    c->sum.dead_clients++;
    say(c, "dead: the session in slot %u (process %llu) is silent; it holds %llu bytes", slot,
        (unsigned long long)s->pid, in_hand);
    unsigned lines = 0;
    if (journal_pending(&c->session->op, slot, &lines) == FAR_OK && lines > 0)
        index_stranded(&c->report, "stranded lock: the session in slot %u left unfinished work",
                       slot);
}

/* Removes dead sessions, or only looks for them. */
static int check_sessions(struct checking *c)
{
    if (!c->report.repair)
        return client_find_silent(&c->session->op, silent_session, c);
    int rc = client_reap_dead(&c->session->op, &c->sum.dead_clients);
    if (rc == FAR_OK && c->sum.dead_clients > 0)
        say(c, "repaired: %u dead session%s removed, and unfinished work was completed",
            c->sum.dead_clients, c->sum.dead_clients == 1 ? " was" : "s were");
    if (rc == FAR_OK && c->session->pool->pool.waits)
        rc = client_find_silent(&c->session->op, silent_session, c);
    return rc;
}

/* A sweep misses memory that others allocate meanwhile. Then it is repeated, but not for ever: they
 * may never stop. */
#define SWEEPS_MOST 3

/* Finds lost memory. If another session sweeps, waits for it first. */
static int sweep_once(struct checking *c)
{
    struct op *op = &c->session->op;
    struct backoff patience = {0};
    struct sweep_result swept = {.spilled = false};
    int rc = pool_sweep(op, &swept);
    while (rc == FAR_CONTENTION && client_backoff(op, &patience, 10)) {
        rc = client_progress(op->client, "waiting for another repair", 0, 1);
        if (rc == FAR_OK)
            rc = client_drive_epoch(op); /* its sweep waits for our epoch */
        if (rc == FAR_OK)
            rc = pool_sweep(op, &swept);
    }
    if (rc == FAR_CONTENTION)
        return err_fail(FAR_TIMEOUT, "another session's repair does not end");
    if (rc == FAR_CORRUPT) {
        c->no_memory = true;
        say(c, "lost memory was not searched for: it is not known what a damaged table holds");
    }
    c->swept = rc == FAR_OK;
    c->spilled = rc == FAR_OK && swept.spilled;
    return rc == FAR_CORRUPT ? FAR_OK : rc;
}

static int sweep(struct checking *c)
{
    int rc = sweep_once(c);
    for (unsigned i = 1; i < SWEEPS_MOST && rc == FAR_OK && c->spilled; i++)
        rc = sweep_once(c);
    return rc;
}

/* Checks the pool's own structures. A sweep repairs them, except for journals. What counts is what
 * was reported, or is left after the repair. */
static int check_pool(struct checking *c, struct pool_findings *left)
{
    struct op *op = &c->session->op;
    struct pool_findings found = {.report = c->report.line, .arg = c->report.arg};
    int rc = client_progress(op->client, "checking lists and chunk tables", 0, 1);
    if (rc == FAR_OK)
        rc = pool_check(op, &found);
    if (rc == FAR_OK && c->report.repair)
        rc = journal_repair(op);
    if (rc == FAR_OK && c->report.repair)
        rc = sweep(c);
    if (rc == FAR_OK && c->report.repair)
        rc = pool_check(op, left);
    else
        *left = found;
    if (rc != FAR_OK)
        return rc;
    unsigned before = found.violations + found.stranded, after = left->violations + left->stranded;
    c->report.violations += left->violations;
    c->report.stranded += left->stranded;
    if (before > after) {
        c->report.repaired += before - after;
        say(c, "  repaired: %u finding%s in the pool's own structures", before - after,
            before - after == 1 ? "" : "s");
    }
    return FAR_OK;
}

/* If a table is badly damaged, it is not known what it reaches, and there is no usage. */
static int usage_of(struct checking *c, struct far_pool_usage *usage)
{
    int rc = pool_usage(&c->session->op, usage);
    c->no_usage |= rc == FAR_CORRUPT;
    return rc == FAR_CORRUPT ? FAR_OK : rc;
}

/* What other sessions have moved since their last report is unknown as well. After a sweep so is
 * what they freed while it went on (SWEEP-P1): that waits for the next sweep, and sessions at work
 * would lose as much again. So it is no leak. */
static int judge_usage(struct checking *c, const struct far_pool_usage *before, uint64_t deaths)
{
    struct far_pool_usage now = {0};
    struct far_pool_info info;
    int rc = usage_of(c, &now);
    if (rc == FAR_OK)
        rc = pool_info(&c->session->op, &info);
    if (rc != FAR_OK || c->no_usage)
        return rc;
    if (c->report.repair && !c->no_memory && before->unknown > now.unknown) {
        c->sum.repaired_bytes = before->unknown - now.unknown;
        say(c, "repaired: %llu bytes of lost memory are free again",
            (unsigned long long)c->sum.repaired_bytes);
    }
    if (now.unknown > 0 && ((deaths > 0 && !c->swept) || info.clients == 1)) {
        c->sum.leaked_bytes = now.unknown;
        say(c, "leaked: %llu bytes are in no table and held by no session",
            (unsigned long long)now.unknown);
    } else if (now.unknown > 0) {
        say(c, "note: %llu bytes %s", (unsigned long long)now.unknown,
            c->swept ? "were moved or freed by working sessions during the repair"
                     : "are moving between sessions that are working");
    }
    return FAR_OK;
}

/* Says which nodes are away. A repair needs all (AWAY-4). */
static int check_nodes(struct checking *c)
{
    const struct fab *fab = c->session->pool->fab;
    (void)pool_meet(&c->session->op);
    c->nodes_away = pool_away(&c->session->pool->pool);
    for (unsigned i = 0; i < fab->nodes; i++) {
        char text[16];
        if (c->nodes_away >> i & 1)
            say(c, "missing: node %u (%s) is away: what it holds is not checked", i,
                fab_node_name(fab, i, text));
    }
    return c->report.repair && c->nodes_away ? fab_away_failed(fab, c->nodes_away) : FAR_OK;
}

int far_pool_check(far_session *s, bool repair, void (*report)(void *, const char *), void *arg,
                   struct far_pool_check *check)
{
    struct checking c = {.session = s, .report = {.line = report, .arg = arg, .repair = repair}};
    struct far_pool_usage before = {0};
    struct pool_findings left = {.report = NULL};

    int rc = store_begin(s, check, "check");
    if (rc != FAR_OK)
        return err_end(rc);
    store_enter(s);
    rc = check_nodes(&c);
    if (rc == FAR_OK)
        rc = check_sessions(&c);
    if (rc == FAR_OK && repair)
        rc = usage_of(&c, &before);
    c.no_usage = false; /* the repair may fix that */
    if (rc == FAR_OK)
        rc = check_dropped(&c);
    if (rc == FAR_OK)
        rc = check_tables(&c);
    if (rc == FAR_OK)
        rc = check_pool(&c, &left);
    if (passes(&c, rc, "journals of sessions"))
        rc = FAR_OK;
    if (rc == FAR_OK && c.nodes_away == 0)
        rc = judge_usage(&c, &before, left.deaths);
    else if (rc == FAR_OK && c.report.violations == 0)
        rc = fab_away_failed(s->pool->fab, c.nodes_away);
    store_leave(s);
    if (rc != FAR_OK)
        return err_end(rc);
    c.sum.violations = c.report.violations;
    c.sum.stranded = c.report.stranded;
    c.sum.repaired = c.report.repaired;
    c.sum.salvaged = c.report.salvaged;
    c.sum.lost = c.report.lost;
    *check = c.sum;
    if (c.sum.violations == 0)
        return err_end(FAR_OK);
    return err_end(err_fail(FAR_CORRUPT, "%u violation%s", c.sum.violations,
                            c.sum.violations == 1 ? "" : "s"));
}
