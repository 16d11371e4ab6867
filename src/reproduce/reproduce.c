#include "reproduce/reproduce.h"

#include "base/err.h"
#include "out/text.h"
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

/* ---- measuring ------------------------------------------------------------------------------- */

/* Measures cell i and keeps its result. */
static int measure(struct reproduction *r, const struct reproduce_options *o, unsigned i,
                   const struct archive_key *key)
{
    struct cell_outcome outcome;
    r->failed = &r->plan.cell[i];
    int rc = cell_measure(r->failed, &o->setting, &outcome);
    if (rc == FAR_OK && outcome.runs && cell_kept(&o->setting))
        rc = archive_save(key, outcome.runs);
    if (rc != FAR_OK) {
        json_decref(outcome.runs);
        return rc;
    }
    r->results.runs[i] = outcome.runs;
    snprintf(r->failure[i], sizeof r->failure[i], "%s", outcome.failure);
    r->failures += !outcome.runs;
    r->measured++;
    r->failed = NULL;
    return FAR_OK;
}

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
    bool kept = cell_kept(&o->setting);
    enum archive_state state =
        o->resume && kept ? archive_load(&key, &r->results.runs[i]) : ARCHIVE_NONE;
    int rc = FAR_OK;
    if (o->setting.meet) /* the others measure what machine 0 does not have */
        rc = meet_share(o->setting.meet, FAR_OK, &state, sizeof state);
    r->reused += state == ARCHIVE_FOUND;
    r->outdated += state == ARCHIVE_OTHER;
    if (rc == FAR_OK && state != ARCHIVE_FOUND && cell_measured(cell, &o->setting))
        rc = measure(r, o, i, &key);
    json_decref(key.configuration);
    return rc;
}

int reproduce_run(struct reproduction *r, const struct reproduce_options *o)
{
    int rc = cell_kept(&o->setting) ? archive_make(o->dir, r->experiment->name) : FAR_OK;
    for (unsigned i = 0; i < r->plan.count && rc == FAR_OK; i++)
        rc = o->setting.stop && atomic_load(o->setting.stop) ? FAR_STOPPED : run_cell(r, o, i);
    return rc;
}

/* Shows the tables with the medians of the seeds and, in the sink, those of each seed. */
static void show_tables(const struct reproduction *r, struct sheet_sink *sink)
{
    for (unsigned i = 0; i < CELL_SEEDS; i++) {
        struct results one = r->results;
        struct sheet_sink numbers = {.json = json_array()};
        one.seed = i + 1;
        if (numbers.json)
            r->experiment->show(&one, &numbers);
        sink->failed |= !numbers.json || numbers.failed;
        sink->of_seed[i] = numbers.json;
    }
    r->experiment->show(&r->results, sink);
    for (unsigned i = 0; i < CELL_SEEDS; i++)
        json_decref(sink->of_seed[i]);
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print_claims(const struct reproduction *r, FILE *out)
{
    char text[1200];
    for (const struct claim *c = r->experiment->claims; c->name; c++) {
        struct claim_finding f = claim_judge(c, &r->results);
        snprintf(text, sizeof text, "%s (%s): %s", c->name, c->source, c->text);
        text_wrap(out, "  ", text);
        snprintf(text, sizeof text, "%s: %s", claim_verdict_text(f.verdict), f.why);
        text_wrap(out, "    -> ", text);
    }
}

static void print_failures(const struct reproduction *r, FILE *out)
{
    char text[ERR_DETAIL_BYTES + PLAN_NAME_BYTES + 8];
    if (r->failures > 0)
        fputs("Not measured, because operations failed:\n", out);
    for (unsigned i = 0; i < r->plan.count; i++)
        if (*r->failure[i]) {
            snprintf(text, sizeof text, "%s: %s", r->plan.cell[i].name, r->failure[i]);
            text_wrap(out, "  ", text);
        }
    if (r->failures > 0)
        fputs("\n", out);
}

/* Names a run that stood still. */
static void print_stall(FILE *out, const struct plan_cell *cell, const json_t *run)
{
    char text[PLAN_NAME_BYTES + 128];
    snprintf(text, sizeof text, "%s: %.2f s for %lld operations of workload %s", cell->name,
             json_number_value(json_object_get(run, "seconds")),
             (long long)json_integer_value(json_object_get(run, "ops")),
             json_string_value(json_object_get(run, "workload")));
    text_wrap(out, "  ", text);
}

/* Says which runs have no throughput, and why. */
static void print_stalls(const struct reproduction *r, FILE *out)
{
    bool any = false;
    for (unsigned i = 0; i < r->plan.count; i++)
        for (size_t k = 0; k < json_array_size(r->results.runs[i]); k++) {
            const json_t *run = json_array_get(r->results.runs[i], k);
            if (!results_stalled(&r->plan.cell[i], run))
                continue;
            if (!any)
                text_wrap(out, "",
                          "Without a throughput, because clients stood still for far longer than "
                          "99 % of the operations took:");
            any = true;
            print_stall(out, &r->plan.cell[i], run);
        }
    if (any)
        fputs("\n", out);
}

void reproduce_print(const struct reproduction *r, FILE *out)
{
    const struct experiment *e = r->experiment;
    char text[256];
    snprintf(text, sizeof text, "%s: %s", e->name, e->summary);
    text_wrap(out, "== ", text);
    text_wrap(out, "   after:   ", e->sources);
    text_wrap(out, "   here:    ", e->setup);
    if (r->plan.quick)
        text_wrap(out, "   quick:   ",
                  "fewer keys, operations and points (--quick): the numbers are rougher");
    for (unsigned i = 0; e->differs[i]; i++)
        text_wrap(out, i == 0 ? "   differs: - " : "            - ", e->differs[i]);
    fputs("\n", out);
    struct sheet_sink sink = {.text = out};
    show_tables(r, &sink);
    print_failures(r, out);
    print_stalls(r, out);
    fputs("What the papers claim, and what these results say:\n", out);
    print_claims(r, out);
    fputs("\n", out);
    fflush(out);
}

/* ---- for programs ---------------------------------------------------------------------------- */

static json_t *json_cells(const struct reproduction *r, const struct reproduce_options *o)
{
    json_t *cells = json_array();
    int bad = cells ? 0 : -1;
    for (unsigned i = 0; i < r->plan.count; i++)
        bad |= json_array_append_new(
            cells, json_pack("{s:s, s:o, s:s, s:O?}", "name", r->plan.cell[i].name, "configuration",
                             cell_configuration(&r->plan.cell[i], o->setting.testbed), "failure",
                             r->failure[i], "runs", r->results.runs[i]));
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

/* The tables that are printed for people. */
static json_t *json_tables(const struct reproduction *r)
{
    struct sheet_sink sink = {.json = json_array()};
    if (sink.json)
        show_tables(r, &sink);
    if (!sink.failed)
        return sink.json;
    json_decref(sink.json);
    return NULL;
}

static json_t *json_differs(const struct experiment *e)
{
    json_t *differs = json_array();
    int bad = differs ? 0 : -1;
    for (unsigned i = 0; e->differs[i]; i++)
        bad |= json_array_append_new(differs, json_string(e->differs[i]));
    if (bad == 0)
        return differs;
    json_decref(differs);
    return NULL;
}

/* The runs that stood still, which have no throughput. */
static json_t *json_stalls(const struct reproduction *r)
{
    json_t *stalls = json_array();
    int bad = stalls ? 0 : -1;
    for (unsigned i = 0; i < r->plan.count; i++)
        for (size_t k = 0; k < json_array_size(r->results.runs[i]); k++) {
            const json_t *run = json_array_get(r->results.runs[i], k);
            if (results_stalled(&r->plan.cell[i], run))
                bad |= json_array_append_new(
                    stalls,
                    json_pack("{s:s, s:O?, s:O?, s:O?, s:O?}", "cell", r->plan.cell[i].name,
                              "workload", json_object_get(run, "workload"), "seed",
                              json_object_get(run, "seed"), "seconds",
                              json_object_get(run, "seconds"), "ops", json_object_get(run, "ops")));
        }
    if (bad == 0)
        return stalls;
    json_decref(stalls);
    return NULL;
}

json_t *reproduce_json(const struct reproduction *r, const struct reproduce_options *o)
{
    const struct experiment *e = r->experiment;
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:b, s:o, s:o, s:o, s:o}", "name", e->name,
                     "summary", e->summary, "after", e->sources, "here", e->setup, "differs",
                     json_differs(e), "quick", r->plan.quick, "claims", json_claims(r), "tables",
                     json_tables(r), "stalls", json_stalls(r), "cells", json_cells(r, o));
}
