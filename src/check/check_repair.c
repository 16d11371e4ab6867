/*
 * Checks of tables and of the pool, with and without repair, while others work.
 *
 * A walker must find no damage, whatever others do meanwhile: clients break nothing, not even when
 * they die. It may find locks of dead clients, and complete what they did. If nobody has died,
 * there is nothing to be found, and so nothing to be repaired. If a repair removes a key that was
 * not damaged, the history shows it.
 */
#include "check/check_internal.h"

#include "store/store_internal.h"

#include <stdio.h>
#include <string.h>

#define LINE_BYTES 160
#define SPREAD     96u /* transits */

/* Has anything happened that may leave a client's work unfinished? */
static bool may_have_died(const struct check *c)
{
    const struct sim_counts *n = sim_counts(c->sim);
    uint64_t faults = n->shut_out;
    for (unsigned i = SIM_NUMBER_CRASH; i <= SIM_NUMBER_NODE; i++)
        faults += n->happened[i];
    return faults > 0;
}

static void judge(struct check *c, int rc, unsigned damage, unsigned others, const char *line)
{
    if (rc == FAR_CORRUPT || (rc == FAR_OK && damage > 0))
        check_fail(c, CHECK_BAD_STRUCTURE, "a check beside others found damage: %s (%s)", line,
                   far_errname(rc));
    else if (rc == FAR_OK && others > 0 && !may_have_died(c))
        check_fail(c, CHECK_BAD_STRUCTURE, "nobody died, but a check beside others found: %s",
                   line);
    else if (rc != FAR_OK && rc != FAR_CONTENTION && rc != FAR_POOL_FULL && rc != FAR_FENCED &&
             rc != FAR_TIMEOUT && !check_is_excused(c, rc))
        check_fail_status(c, CHECK_BAD_STATUS, rc, "a check beside others");
}

/* ---- a table --------------------------------------------------------------------------------- */

struct walk {
    struct index_report report;
    unsigned damage; /* violations, also those that have been repaired since */
    char line[LINE_BYTES];
};

static void on_finding(void *arg, const char *line)
{
    struct walk *w = arg;
    if (w->report.violations > w->damage)
        w->damage = w->report.violations;
    if (w->line[0] == '\0')
        snprintf(w->line, LINE_BYTES, "%s", line);
}

/* As far_pool_check() does it. That looks for silent sessions first, and reads what the session
 * knows of the table, which takes so long that others have ended by then. */
static int check_table(struct check *c, struct check_client *me, bool repairs)
{
    struct walk w = {.report = {.line = on_finding, .arg = &w, .repair = repairs}};
    far_session *s = me->session;
    struct table_view *known = NULL;
    far_table *table = c->table[tape_choose(c->tape, c->plan.tables, TAPE_WORK)];
    store_enter(s);
    int rc = store_view_begin(s, &s->op, table, &known);
    if (rc == FAR_OK) {
        rc = INDEX_CALL(table->index.ops, check, &s->op, known->view, &w.report);
        if (!check_fabric_failed(rc) && client_lapsed(&s->client))
            rc = store_silent();
        store_view_end(s, &s->op, known, rc);
    }
    store_leave(s);
    if (!sim_unwinding(c->sim))
        judge(c, rc, w.damage, w.report.stranded + w.report.repaired, w.line);
    return rc;
}

/* ---- the pool -------------------------------------------------------------------------------- */

static void on_line(void *arg, const char *line)
{
    char *first = arg;
    bool finding = strncmp(line, "note:", 5) != 0 && strncmp(line, "dead:", 5) != 0 &&
                   strncmp(line, "repaired:", 9) != 0;
    if (first[0] == '\0' && finding)
        snprintf(first, LINE_BYTES, "%s", line);
}

static int check_all(struct check *c, struct check_client *me, bool repairs)
{
    struct far_pool_check found = {0};
    char line[LINE_BYTES] = "";
    int rc = far_pool_check(me->session, repairs, on_line, line, &found);
    if (!sim_unwinding(c->sim))
        judge(c, rc, found.violations, found.dead_clients > 0 ? 0 : found.stranded + found.repaired,
              line);
    return rc;
}

int check_repair(struct check *c, struct check_client *me)
{
    bool repairs = tape_choose(c->tape, 2, TAPE_WORK);
    /* A check of the pool takes so long that others have ended by then: so it comes last. */
    bool all = c->plan.repairs == 1 && tape_choose(c->tape, 2, TAPE_WORK);
    c->plan.repairs--;
    if (!c->plan.no_fence) /* else the requests of a client must end within its lease */
        sim_spread(c->sim, me->id, SPREAD * tape_choose(c->tape, 4, TAPE_WORK));
    sim_note(c->sim, "%s %s", repairs ? "repairs" : "checks", all ? "the pool" : "a table");
    c->walks++;
    int rc = all ? check_all(c, me, repairs) : check_table(c, me, repairs);
    c->walks--;
    sim_spread(c->sim, me->id, 0);
    if (sim_unwinding(c->sim))
        return rc;
    sim_note(c->sim, "   %s", far_errname(rc));
    c->result.coverage.checked += rc == FAR_OK && !repairs;
    c->result.coverage.repaired += rc == FAR_OK && repairs;
    return rc;
}
