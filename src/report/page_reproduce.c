/* The results of farside reproduce: what the papers claim, and what was found. */
#include "report/html.h"
#include "report/lookup.h"
#include "report/number.h"
#include "report/page_internal.h"
#include "report/part.h"
#include "report/sheet_chart.h"

#include <string.h>

#define OPEN_ROWS 12u /* tables with more rows are closed at first */

/* The style of a verdict. */
static const char *verdict_style(const char *verdict)
{
    return strcmp(verdict, "holds") == 0      ? "good"
           : strncmp(verdict, "does", 4) == 0 ? "bad"
                                              : "open";
}

static void put_paragraph(FILE *out, const char *style, const char *head, const char *text)
{
    fprintf(out, "<p class=\"%s\">", style);
    html_text(out, head);
    html_text(out, text);
    fputs("</p>\n", out);
}

/* ---- tables ----------------------------------------------------------------------------------- */

/* One field; those on the left name the row. */
static void put_field(FILE *out, const json_t *root, const char *path, size_t row, size_t column)
{
    const json_t *sheet = lookup(root, path);
    const json_t *value = json_array_get(json_array_get(lookup(sheet, "rows"), row), column);
    const char *text = json_string_value(value);
    bool left = (double)column < lookup_number(sheet, "left");
    if (row == 0)
        html_table_head(out, text ? text : "");
    else if (text && left)
        html_table_text(out, text);
    else if (text)
        html_table_field(out, text);
    else
        html_table_number(out, root, "%s/rows/%zu/%zu", path, row, column);
}

static void put_table(FILE *out, const json_t *root, const char *path)
{
    const json_t *sheet = lookup(root, path), *rows = lookup(sheet, "rows");
    char title[512];
    snprintf(title, sizeof title, "%s", lookup_text(sheet, "title"));
    size_t len = strlen(title), count = json_array_size(rows);
    if (len > 0 && title[len - 1] == ':')
        title[len - 1] = '\0';
    fputs("<h3>", out);
    html_text(out, title);
    fputs("</h3>\n", out);
    sheet_chart(out, sheet);
    html_table_begin(out, "Table", count <= OPEN_ROWS);
    for (size_t r = 0; r < count; r++) {
        const json_t *row = json_array_get(rows, r);
        if (r > 0)
            html_table_row(out);
        for (size_t c = 0; c < json_array_size(row); c++)
            put_field(out, root, path, r, c);
    }
    html_table_end(out);
}

/* ---- claims ----------------------------------------------------------------------------------- */

static void put_claim(FILE *out, const json_t *claim)
{
    const char *verdict = lookup_text(claim, "verdict"), *style = verdict_style(verdict);
    fprintf(out, "<li><span class=\"verdict %s\">", style);
    html_text(out, verdict);
    fputs("</span><div><p><b>", out);
    html_text(out, lookup_text(claim, "name"));
    fputs("</b> (", out);
    html_text(out, lookup_text(claim, "source"));
    fputs("): ", out);
    html_text(out, lookup_text(claim, "claim"));
    fputs("</p>", out);
    put_paragraph(out, "soft", "Here: ", lookup_text(claim, "found"));
    if (strcmp(style, "bad") == 0 && *lookup_text(claim, "reason"))
        put_paragraph(out, "soft", "", lookup_text(claim, "reason"));
    fputs("</div></li>\n", out);
}

static void put_claims(FILE *out, const json_t *claims)
{
    fputs("<h3>What the papers claim</h3>\n<ul class=\"claims\">\n", out);
    for (size_t i = 0; i < json_array_size(claims); i++)
        put_claim(out, json_array_get(claims, i));
    fputs("</ul>\n", out);
}

static unsigned count_claims(const json_t *experiment, const char *style)
{
    const json_t *claims = lookup(experiment, "claims");
    unsigned count = 0;
    for (size_t i = 0; i < json_array_size(claims); i++)
        count +=
            strcmp(verdict_style(lookup_text(json_array_get(claims, i), "verdict")), style) == 0;
    return count;
}

/* ---- experiments ------------------------------------------------------------------------------ */

static void put_differences(FILE *out, const json_t *differs)
{
    if (json_array_size(differs) == 0)
        return;
    fputs("<details><summary>What differs from the papers</summary><ul>\n", out);
    for (size_t i = 0; i < json_array_size(differs); i++) {
        const char *text = json_string_value(json_array_get(differs, i));
        fputs("<li>", out);
        html_text(out, text ? text : "");
        fputs("</li>\n", out);
    }
    fputs("</ul></details>\n", out);
}

static void put_failures(FILE *out, const json_t *cells)
{
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *cell = json_array_get(cells, i);
        const char *failure = lookup_text(cell, "failure");
        if (!*failure)
            continue;
        fputs("<p class=\"bad\">", out);
        html_text(out, lookup_text(cell, "name"));
        fputs(" was not measured: ", out);
        html_text(out, failure);
        fputs("</p>\n", out);
    }
}

static void put_experiment(FILE *out, const json_t *root, const char *path)
{
    const json_t *e = lookup(root, path);
    fputs("<section id=\"", out);
    html_text(out, lookup_text(e, "name"));
    fputs("\">\n<h2>", out);
    html_text(out, lookup_text(e, "name"));
    fputs(": ", out);
    html_text(out, lookup_text(e, "summary"));
    fputs("</h2>\n", out);
    put_paragraph(out, "note", "After ", lookup_text(e, "after"));
    put_paragraph(out, "note", "Here: ", lookup_text(e, "here"));
    put_differences(out, lookup(e, "differs"));
    put_failures(out, lookup(e, "cells"));
    for (size_t i = 0; i < json_array_size(lookup(e, "tables")); i++) {
        char table[LOOKUP_PATH_BYTES];
        snprintf(table, sizeof table, "%.100s/tables/%zu", path, i);
        put_table(out, root, table);
    }
    put_claims(out, lookup(e, "claims"));
    fputs("</section>\n", out);
}

/* A table of the experiments, with links to them. */
static void put_overview(FILE *out, const json_t *experiments)
{
    static const char *const styles[] = {"good", "bad", "open"};
    char number[NUMBER_BYTES];
    html_table_begin(out, "Experiments, and the papers' claims about them", true);
    html_table_head(out, "experiment");
    html_table_head(out, "hold");
    html_table_head(out, "do not hold");
    html_table_head(out, "cannot be told");
    for (size_t i = 0; i < json_array_size(experiments); i++) {
        const json_t *e = json_array_get(experiments, i);
        html_table_row(out);
        fputs("<td class=\"text\"><a href=\"#", out);
        html_text(out, lookup_text(e, "name"));
        fputs("\">", out);
        html_text(out, lookup_text(e, "name"));
        fputs("</a></td>", out);
        for (unsigned k = 0; k < sizeof styles / sizeof *styles; k++)
            fprintf(out, "<td>%s</td>", number_tick(count_claims(e, styles[k]), number));
    }
    html_table_end(out);
}

static void put_head(FILE *out, const json_t *o)
{
    unsigned held = 0, failed = 0, open = 0;
    const json_t *experiments = lookup(o, "experiments");
    for (size_t i = 0; i < json_array_size(experiments); i++) {
        const json_t *e = json_array_get(experiments, i);
        held += count_claims(e, "good");
        failed += count_claims(e, "bad");
        open += count_claims(e, "open");
    }
    fputs("<header><h1>The papers&#39; experiments, repeated</h1>\n<p class=\"soft\">Farside ",
          out);
    html_text(out, lookup_text(o, "farside"));
    fputs(", ", out);
    html_text(out, lookup_text(o, "time"));
    fputs("</p></header>\n<div class=\"card\"><dl>\n", out);
    part_fact(out, "claims", "%u hold, %u do not hold, %u cannot be told here", held, failed, open);
    part_fact(out, "size", "%s",
              json_is_true(lookup(o, "quick")) ? "fewer keys, operations and points (--quick)"
                                               : "full");
    part_fact(out, "complete", "%s", json_is_true(lookup(o, "complete")) ? "yes" : "no");
    part_machine(out, lookup(o, "machine"));
    fputs("</dl>\n", out);
    put_overview(out, experiments);
    fputs("</div>\n", out);
}

bool page_reproduce(FILE *out, const json_t *root, const char *path)
{
    const json_t *o = lookup(root, path);
    size_t count = json_array_size(lookup(o, "experiments"));
    put_head(out, o);
    for (size_t i = 0; i < count; i++) {
        char experiment[LOOKUP_PATH_BYTES];
        snprintf(experiment, sizeof experiment, "%.60s/experiments/%zu", path, i);
        put_experiment(out, root, experiment);
    }
    return true;
}
