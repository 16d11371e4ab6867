#include "reproduce/reproduce.h"

#include "base/err.h"
#include "bench/report.h"
#include "reproduce/archive.h"

#include <stdlib.h>
#include <string.h>

struct reproduction *reproduce_new(const struct experiment *e, bool quick)
{
    struct reproduction *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->experiment = e;
    r->plan.quick = quick;
    r->results.plan = &r->plan;
    e->plan(&r->plan);
    return r;
}

void reproduce_free(struct reproduction *r)
{
    if (r)
        results_free(&r->results);
    free(r);
}

/* ---- measuring -------------------------------------------------------------------------------- */

/* Sets the results of cell i: those that are kept, or new ones. */
static int run_cell(struct reproduction *r, const struct reproduce_options *o, unsigned i)
{
    const struct plan_cell *cell = &r->plan.cell[i];
    struct archive_key key = {
        .dir = o->dir,
        .experiment = r->experiment->name,
        .cell = cell->name,
        .configuration = cell_configuration(cell, o->setting.testbed),
    };
    if (!key.configuration)
        return err_fail(FAR_NO_MEMORY, "no memory for the results");
    enum archive_state state = o->resume ? archive_load(&key, &r->results.runs[i]) : ARCHIVE_NONE;
    int rc = FAR_OK;
    r->reused += state == ARCHIVE_FOUND;
    r->outdated += state == ARCHIVE_OTHER;
    if (state != ARCHIVE_FOUND) {
        r->failed = cell;
        rc = cell_measure(cell, &o->setting, &r->results.runs[i]);
        if (rc == FAR_OK)
            rc = archive_save(&key, r->results.runs[i]);
        r->measured += rc == FAR_OK;
    }
    if (rc == FAR_OK)
        r->failed = NULL;
    json_decref(key.configuration);
    return rc;
}

int reproduce_run(struct reproduction *r, const struct reproduce_options *o)
{
    int rc = archive_make(o->dir, r->experiment->name);
    for (unsigned i = 0; i < r->plan.count && rc == FAR_OK; i++)
        rc = o->setting.stop && atomic_load(o->setting.stop) ? FAR_STOPPED : run_cell(r, o, i);
    return rc;
}

/* ---- for people ------------------------------------------------------------------------------- */

static void print_claims(const struct reproduction *r, FILE *out)
{
    char text[1024];
    for (const struct claim *c = r->experiment->claims; c->name; c++) {
        struct claim_finding f = claim_judge(c, &r->results);
        snprintf(text, sizeof text, "%s (%s): %s", c->name, c->source, c->text);
        report_wrap(out, "  ", text);
        snprintf(text, sizeof text, "%s: %s", claim_verdict_text(f.verdict), f.why);
        report_wrap(out, "    -> ", text);
        if (f.verdict == CLAIM_FAILS && c->reason)
            report_wrap(out, "       ", c->reason);
    }
}

void reproduce_print(const struct reproduction *r, FILE *out)
{
    const struct experiment *e = r->experiment;
    char text[256];
    snprintf(text, sizeof text, "%s: %s", e->name, e->summary);
    report_wrap(out, "== ", text);
    report_wrap(out, "   after:   ", e->sources);
    report_wrap(out, "   here:    ", e->setup);
    if (r->plan.quick)
        report_wrap(out, "   quick:   ",
                    "fewer keys, operations and points (--quick): the numbers are rougher");
    for (unsigned i = 0; e->differs[i]; i++)
        report_wrap(out, i == 0 ? "   differs: - " : "            - ", e->differs[i]);
    fputs("\n", out);
    e->show(&r->results, out);
    fputs("What the papers claim, and what these results say:\n", out);
    print_claims(r, out);
    fputs("\n", out);
    fflush(out);
}

/* ---- for programs ----------------------------------------------------------------------------- */

static json_t *json_cells(const struct reproduction *r, const struct reproduce_options *o)
{
    json_t *cells = json_array();
    int bad = cells ? 0 : -1;
    for (unsigned i = 0; i < r->plan.count; i++)
        bad |= json_array_append_new(
            cells, json_pack("{s:s, s:o, s:O}", "name", r->plan.cell[i].name, "configuration",
                             cell_configuration(&r->plan.cell[i], o->setting.testbed), "runs",
                             r->results.runs[i]));
    if (bad == 0)
        return cells;
    json_decref(cells);
    return NULL;
}

static json_t *json_claims(const struct reproduction *r)
{
    json_t *claims = json_array();
    int bad = claims ? 0 : -1;
    for (const struct claim *c = r->experiment->claims; c->name; c++) {
        struct claim_finding f = claim_judge(c, &r->results);
        bad |= json_array_append_new(claims,
                                     json_pack("{s:s, s:s, s:s, s:s, s:s}", "name", c->name,
                                               "source", c->source, "claim", c->text, "verdict",
                                               claim_verdict_text(f.verdict), "found", f.why));
    }
    if (bad == 0)
        return claims;
    json_decref(claims);
    return NULL;
}

json_t *reproduce_json(const struct reproduction *r, const struct reproduce_options *o)
{
    const struct experiment *e = r->experiment;
    return json_pack("{s:s, s:s, s:s, s:b, s:o, s:o}", "name", e->name, "summary", e->summary,
                     "after", e->sources, "quick", r->plan.quick, "claims", json_claims(r), "cells",
                     json_cells(r, o));
}
