/* The results of farside bench: charts by workload and operation, each beside its numbers. */
#include "report/bench_view.h"
#include "report/html.h"
#include "report/number.h"
#include "report/page_internal.h"
#include "report/part.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- throughput ------------------------------------------------------------------------------- */

static void draw_rate(const struct bench_view *v, unsigned label)
{
    struct chart_bar bar[VIEW_INDEXES];
    char rate[NUMBER_BYTES];
    double max = 0;
    for (unsigned i = 0; i < v->indexes; i++) {
        const char *title = html_index_title(v->runs->index[i]);
        bar[i] = (struct chart_bar){.name = title,
                                    .style = view_style(v->runs->index[i], i),
                                    .value = view_rate(view_run(v, label, i))};
        max = fmax(max, bar[i].value);
        snprintf(bar[i].label, CHART_TEXT_BYTES, "%s", number_short(bar[i].value, rate));
        snprintf(bar[i].tip, CHART_TEXT_BYTES, "%s: %s operations per second", title,
                 number_grouped(bar[i].value, rate));
    }
    part_panel(v->out, v->runs->label[label].text, v->runs->label[label].mix);
    chart_bars(v->out, "operations per second by index", v->indexes, bar, max);
    part_panel_end(v->out);
}

/* A table with a row for each index, and a column for each workload. */
static void put_rates(const struct bench_view *v)
{
    html_table_begin(v->out, "Operations per second", true);
    html_table_head(v->out, "index");
    for (unsigned l = 0; l < v->runs->labels; l++)
        html_table_head(v->out, v->runs->label[l].text);
    for (unsigned i = 0; i < v->indexes; i++) {
        html_table_row(v->out);
        html_table_text(v->out, html_index_title(v->runs->index[i]));
        for (unsigned l = 0; l < v->runs->labels; l++) {
            const struct runs_run *run = view_run(v, l, i);
            html_table_number(v->out, v->runs->root, "%s/ops_per_s", run ? run->path : "none");
        }
    }
    html_table_end(v->out);
}

/* A table with the slowest and the fastest repeat of each workload. */
static void put_spread(const struct bench_view *v)
{
    const struct runs *r = v->runs;
    html_table_begin(v->out, "Operations per second of the slowest and the fastest repeat", true);
    html_table_head(v->out, "index");
    html_table_head(v->out, "repeat");
    for (unsigned l = 0; l < r->labels; l++)
        html_table_head(v->out, r->label[l].text);
    for (unsigned i = 0; i < v->indexes; i++)
        for (unsigned fastest = 0; fastest < 2; fastest++) {
            html_table_row(v->out);
            html_table_text(v->out, html_index_title(r->index[i]));
            html_table_text(v->out, fastest ? "fastest" : "slowest");
            for (unsigned l = 0; l < r->labels; l++) {
                const struct runs_run *run =
                    runs_pick(r, l, r->index[i], v->clients, fastest ? RUNS_FASTEST : RUNS_SLOWEST);
                html_table_number(v->out, r->root, "%s/ops_per_s", run ? run->path : "none");
            }
        }
    html_table_end(v->out);
}

static void show_rates(const struct bench_view *v)
{
    char note[240];
    snprintf(
        note, sizeof note,
        "Operations per second of %u client%s; more is better. Each workload has its own "
        "scale.%s",
        v->clients, v->clients == 1 ? "" : "s",
        v->runs->repeated
            ? " Of the repeats of a workload, all charts show the one with the median throughput."
            : "");
    part_section(v->out, "Throughput", note);
    part_panels(v->out);
    for (unsigned l = 0; l < v->runs->labels; l++)
        draw_rate(v, l);
    part_panels_end(v->out);
    put_rates(v);
    if (v->runs->repeated)
        put_spread(v);
    part_section_end(v->out);
}

/* ---- throughput over clients ------------------------------------------------------------------ */

/* The numbers of clients as ticks, except where two would be too close to each other. */
static struct scale clients_scale(const struct runs *r)
{
    struct scale s = {.log = true, .low = r->clients[0], .high = r->clients[r->clients_count - 1]};
    double last = -1;
    for (unsigned i = 0; i < r->clients_count && s.ticks < SCALE_TICKS_MAX; i++) {
        double at = scale_at(&s, r->clients[i]);
        if (last >= 0 && at - last < 0.1)
            continue;
        s.tick[s.ticks++] = r->clients[i];
        last = at;
    }
    return s;
}

static void draw_clients(const struct bench_view *v, unsigned label)
{
    const struct runs *r = v->runs;
    struct chart_series series[VIEW_INDEXES];
    struct scale x = clients_scale(r), y;
    double max = 0;
    for (unsigned i = 0; i < v->indexes; i++) {
        struct chart_point *point = v->point + i * VIEW_POINTS;
        for (unsigned c = 0; c < r->clients_count; c++) {
            double rate = view_rate(runs_find(r, label, r->index[i], r->clients[c]));
            point[c] = (struct chart_point){r->clients[c], rate};
            max = fmax(max, rate);
        }
        series[i] = (struct chart_series){.name = html_index_title(r->index[i]),
                                          .style = view_style(r->index[i], i),
                                          .count = r->clients_count,
                                          .point = point};
    }
    scale_linear(&y, 0, max, VIEW_TICKS);
    struct chart_axes axes = {&x, &y, " clients", " operations per second"};
    part_panel(v->out, r->label[label].text, r->label[label].mix);
    chart_lines(v->out, "operations per second over clients", v->indexes, series, &axes);
    part_panel_end(v->out);
}

static void put_clients(const struct bench_view *v)
{
    const struct runs *r = v->runs;
    char text[NUMBER_BYTES];
    html_table_begin(v->out, "Operations per second by clients", false);
    html_table_head(v->out, "workload");
    html_table_head(v->out, "index");
    for (unsigned c = 0; c < r->clients_count; c++)
        html_table_head(v->out, number_tick(r->clients[c], text));
    for (unsigned l = 0; l < r->labels; l++)
        for (unsigned i = 0; i < v->indexes; i++) {
            html_table_row(v->out);
            html_table_text(v->out, r->label[l].text);
            html_table_text(v->out, html_index_title(r->index[i]));
            for (unsigned c = 0; c < r->clients_count; c++) {
                const struct runs_run *run = runs_find(r, l, r->index[i], r->clients[c]);
                html_table_number(v->out, r->root, "%s/ops_per_s", run ? run->path : "none");
            }
        }
    html_table_end(v->out);
}

static void show_clients(const struct bench_view *v)
{
    if (v->runs->clients_count < 2)
        return;
    part_section(v->out, "Throughput over clients",
                 "Operations per second over the number of clients. All other charts are of the "
                 "runs with the most clients.");
    part_panels(v->out);
    for (unsigned l = 0; l < v->runs->labels; l++)
        draw_clients(v, l);
    part_panels_end(v->out);
    put_clients(v);
    part_section_end(v->out);
}

/* ---- memory ----------------------------------------------------------------------------------- */

/* The last run of the index whose table could be read, or NULL. */
static const struct runs_run *last_space(const struct bench_view *v, unsigned index)
{
    const struct runs_run *last = NULL;
    for (unsigned l = 0; l < v->runs->labels; l++) {
        const struct runs_run *run = view_run(v, l, index);
        if (run && lookup_number(run->json, "space/keys") > 0)
            last = run;
    }
    return last;
}

static void draw_space(const struct bench_view *v)
{
    struct chart_bar bar[VIEW_INDEXES];
    double max = 0;
    for (unsigned i = 0; i < v->indexes; i++) {
        const struct runs_run *run = last_space(v, i);
        const char *title = html_index_title(v->runs->index[i]);
        char index[NUMBER_BYTES], blocks[NUMBER_BYTES];
        double keys = run ? lookup_number(run->json, "space/keys") : NAN;
        bar[i] = (struct chart_bar){
            .name = title,
            .style = view_style(v->runs->index[i], i),
            .value = run ? lookup_number(run->json, "space/index_bytes") / keys : NAN,
            .more = run ? lookup_number(run->json, "space/block_bytes") / keys : 0};
        max = fmax(max, bar[i].value + bar[i].more);
        number_short(bar[i].value, index);
        number_short(bar[i].more, blocks);
        snprintf(bar[i].label, CHART_TEXT_BYTES, "%s%s%s", index, bar[i].more > 0 ? " + " : "",
                 bar[i].more > 0 ? blocks : "");
        snprintf(bar[i].tip, CHART_TEXT_BYTES, "%s: %s bytes of index, %s bytes of blocks per key",
                 title, index, blocks);
    }
    part_panel(v->out, "bytes per key", "index, and blocks in the lighter shade");
    chart_bars(v->out, "bytes per key by index", v->indexes, bar, max);
    part_panel_end(v->out);
}

static void show_space(const struct bench_view *v)
{
    static const char *const heads[] = {"keys",        "load factor", "index bytes",
                                        "block bytes", "cache bytes", "splits"};
    static const char *const members[] = {"keys",        "load_factor",        "index_bytes",
                                          "block_bytes", "client_cache_bytes", "splits"};
    const unsigned count = sizeof members / sizeof *members;
    bool any = false;
    for (unsigned i = 0; i < v->indexes; i++)
        any |= last_space(v, i) != NULL;
    if (!any)
        return;
    part_section(v->out, "Memory", "What the table takes in far memory after the last workload.");
    part_panels(v->out);
    draw_space(v);
    part_panels_end(v->out);
    html_table_begin(v->out, "Memory of the table; splits are those of the last workload", true);
    html_table_head(v->out, "index");
    for (unsigned m = 0; m < count; m++)
        html_table_head(v->out, heads[m]);
    for (unsigned i = 0; i < v->indexes; i++) {
        const struct runs_run *run = last_space(v, i);
        html_table_row(v->out);
        html_table_text(v->out, html_index_title(v->runs->index[i]));
        for (unsigned m = 0; m < count; m++)
            html_table_number(v->out, v->runs->root, "%s/space/%s", run ? run->path : "none",
                              members[m]);
    }
    html_table_end(v->out);
    part_section_end(v->out);
}

/* ---- the whole -------------------------------------------------------------------------------- */

/* "16", or "16 to 64" */
static const char *range_text(const json_t *o, const char *least, const char *most,
                              char text[NUMBER_BYTES])
{
    double from = lookup_number(o, least), to = lookup_number(o, most);
    if (from == to)
        snprintf(text, NUMBER_BYTES, "%.0f", from);
    else
        snprintf(text, NUMBER_BYTES, "%.0f to %.0f", from, to);
    return text;
}

static void put_facts(FILE *out, const json_t *o, const struct runs *r)
{
    const json_t *run = r->run[r->count - 1].json;
    char keys[NUMBER_BYTES], ops[NUMBER_BYTES], clients[256] = "";
    size_t len = 0;
    fputs("<div class=\"card\"><dl>\n", out);
    part_fact(out, "keys", "%s of %s bytes", number_grouped(lookup_number(run, "keys"), keys),
              range_text(o, "key_size", "key_size_max", ops));
    part_fact(out, "values", "%s bytes", range_text(o, "value_size", "value_size_max", keys));
    for (unsigned i = 0; i < r->clients_count && len < sizeof clients; i++)
        len += (size_t)snprintf(clients + len, sizeof clients - len, "%s%u", i > 0 ? ", " : "",
                                r->clients[i]);
    part_fact(out, "clients", "%s, each with %.0f in flight", clients, lookup_number(run, "depth"));
    part_fact(out, "operations of a workload", "%s",
              number_grouped(lookup_number(run, "ops_planned"), ops));
    part_fact(out, "skew of keys, seed", "theta %g, seed %.0f", lookup_number(o, "theta"),
              lookup_number(o, "seed"));
    part_machine(out, lookup(o, "machine"));
    fputs("</dl></div>\n", out);
}

/* Operations of a run that failed or returned something wrong. */
static double errors_of(const json_t *run)
{
    const char *op;
    json_t *cost;
    double errors = 0;
    json_object_foreach(json_object_get(run, "per_op"), op, cost) errors +=
        fmax(0, lookup_number(cost, "errors"));
    return errors;
}

/* What is wrong with a run; "" if nothing is. */
static const char *trouble_of(const json_t *run, char text[256])
{
    const char *halted = lookup_text(run, "stopped_by"), *error = lookup_text(run, "first_error");
    double ops = lookup_number(run, "ops"), planned = lookup_number(run, "ops_planned");
    text[0] = '\0';
    if (*halted)
        snprintf(text, 256, "stopped after %.0f of %.0f operations by %s", ops, planned, halted);
    else if (json_is_true(lookup(run, "interrupted")))
        snprintf(text, 256, "interrupted after %.0f of %.0f operations", ops, planned);
    else if (*error || errors_of(run) > 0)
        snprintf(text, 256, "%.0f of %.0f operations failed%s%s", errors_of(run), ops,
                 *error ? ", the first with " : "", error);
    return text;
}

static void put_troubles(FILE *out, const struct runs *r)
{
    bool any = false;
    for (unsigned i = 0; i < r->count; i++) {
        char text[256];
        if (!*trouble_of(r->run[i].json, text))
            continue;
        if (!any)
            fputs("<div class=\"card warn\"><h2>Runs that failed or were interrupted</h2>\n", out);
        any = true;
        fputs("<p>", out);
        html_text(out, html_index_title(r->run[i].index));
        fputs(", ", out);
        html_text(out, r->label[r->run[i].label].text);
        fprintf(out, ", %u client%s: ", r->run[i].clients, r->run[i].clients == 1 ? "" : "s");
        html_text(out, text);
        fputs("</p>\n", out);
    }
    if (any)
        fputs("</div>\n", out);
}

static void put_legend(const struct bench_view *v)
{
    const char *names[VIEW_INDEXES], *styles[VIEW_INDEXES];
    for (unsigned i = 0; i < v->indexes; i++) {
        names[i] = html_index_title(v->runs->index[i]);
        styles[i] = view_style(v->runs->index[i], i);
    }
    html_legend(v->out, v->indexes, names, styles);
}

static void put_sections(const struct bench_view *v)
{
    put_legend(v);
    show_rates(v);
    show_clients(v);
    bench_show_latency(v);
    bench_show_distribution(v);
    bench_show_timelines(v);
    bench_show_costs(v);
    show_space(v);
}

bool page_bench(FILE *out, const json_t *root, const char *path)
{
    const json_t *o = lookup(root, path);
    char runs_path[LOOKUP_PATH_BYTES];
    struct runs runs;
    snprintf(runs_path, sizeof runs_path, "%s/runs", path);
    if (!runs_init(&runs, root, runs_path))
        return false;
    struct bench_view v = {.out = out,
                           .runs = &runs,
                           .indexes = runs.indexes < VIEW_INDEXES ? runs.indexes : VIEW_INDEXES,
                           .point = calloc(VIEW_INDEXES * VIEW_POINTS, sizeof *v.point)};
    bool good = v.point != NULL;
    fputs("<header><h1>Benchmark on ", out);
    html_text(out, lookup_text(o, "pool"));
    fputs("</h1>\n<p class=\"soft\">Farside ", out);
    html_text(out, lookup_text(o, "farside"));
    fputs(", ", out);
    html_text(out, lookup_text(o, "time"));
    if (strncmp(lookup_text(o, "pool"), "model:", 6) == 0)
        fputs("; a modelled network: all times are virtual", out);
    fputs("</p></header>\n", out);
    if (runs.count == 0)
        fputs("<div class=\"card warn\"><p>Nothing was measured.</p></div>\n", out);
    if (good && runs.count > 0) {
        v.clients = runs.clients[runs.clients_count - 1];
        put_facts(out, o, &runs);
        put_troubles(out, &runs);
        put_sections(&v);
    }
    free(v.point);
    runs_free(&runs);
    return good;
}
