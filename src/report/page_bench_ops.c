/* The charts of a benchmark that are about its operations: time, round trips, bytes. */
#include "report/bench_view.h"
#include "report/html.h"
#include "report/number.h"
#include "report/part.h"

#include <math.h>

#define TABLE_LINES 60u   /* of a time line */
#define CDF_END     0.999 /* a few operations beyond would take most of the axis */

/* ---- latency ---------------------------------------------------------------------------------- */

/* A scale for the medians and percentiles of all indexes. At least one median is greater than 0. */
static struct scale latency_scale(const struct bench_view *v, unsigned label, const char *op)
{
    static const char *const members[] = {"p50_us", "p99_us", "p999_us"};
    struct scale s;
    double low = INFINITY, high = 0;
    for (unsigned i = 0; i < v->indexes; i++)
        for (unsigned m = 0; m < sizeof members / sizeof *members; m++) {
            double us = view_cost(view_run(v, label, i), op, members[m]);
            if (!(us > 0))
                continue;
            low = fmin(low, us);
            high = fmax(high, us);
        }
    scale_log(&s, low, high, VIEW_LOG_TICKS);
    return s;
}

static void draw_latency(const struct bench_view *v, unsigned label, const char *op)
{
    struct chart_range range[VIEW_INDEXES];
    if (!view_has(v, label, op, "p50_us"))
        return;
    struct scale x = latency_scale(v, label, op);
    for (unsigned i = 0; i < v->indexes; i++) {
        const struct runs_run *run = view_run(v, label, i);
        const char *title = html_index_title(v->runs->index[i]);
        char low[NUMBER_BYTES], high[NUMBER_BYTES], beyond[NUMBER_BYTES];
        range[i] = (struct chart_range){.name = title,
                                        .style = view_style(v->runs->index[i], i),
                                        .low = view_cost(run, op, "p50_us"),
                                        .high = view_cost(run, op, "p99_us"),
                                        .beyond = view_cost(run, op, "p999_us")};
        number_short(range[i].low, low);
        number_short(range[i].high, high);
        number_short(range[i].beyond, beyond);
        snprintf(range[i].label, CHART_TEXT_BYTES, "%s – %s", low, high);
        snprintf(range[i].tip, CHART_TEXT_BYTES, "%s: p50 %s µs, p99 %s µs, p99.9 %s µs", title,
                 low, high, beyond);
    }
    view_panel(v, label, op);
    chart_ranges(v->out, "latency by index, in microseconds", v->indexes, range, &x);
    part_panel_end(v->out);
}

void bench_show_latency(const struct bench_view *v)
{
    static const char *const heads[] = {"p50 µs", "p99 µs", "p99.9 µs", "operations"};
    static const char *const members[] = {"p50_us", "p99_us", "p999_us", "count"};
    part_section(v->out, "Latency",
                 "Microseconds, on a logarithmic scale; less is better. A bar reaches from the "
                 "median to the 99th percentile, the dot is the 99.9th.");
    view_panels(v, draw_latency);
    view_table(v, "Percentiles", 4, heads, members);
    part_section_end(v->out);
}

/* ---- distribution of latencies ---------------------------------------------------------------- */

/* Fills the points of one index: latency and percent. Returns how many. */
static unsigned cdf_points(const struct runs_run *run, const char *op, struct chart_point *point)
{
    char path[LOOKUP_PATH_BYTES];
    snprintf(path, sizeof path, "per_op/%s/latency_us", op);
    const json_t *pairs = run ? lookup(run->json, path) : NULL;
    unsigned count = 0;
    for (size_t k = 0; k < json_array_size(pairs) && count < VIEW_POINTS; k++) {
        const json_t *pair = json_array_get(pairs, k);
        double part = lookup_number(pair, "0"), us = lookup_number(pair, "1");
        if (us > 0 && part <= CDF_END)
            point[count++] = (struct chart_point){us, 100 * part};
    }
    return count;
}

static void draw_cdf(const struct bench_view *v, unsigned label, const char *op)
{
    struct chart_series series[VIEW_INDEXES];
    double low = INFINITY, high = 0;
    for (unsigned i = 0; i < v->indexes; i++) {
        struct chart_point *point = v->point + i * VIEW_POINTS;
        unsigned count = cdf_points(view_run(v, label, i), op, point);
        series[i] = (struct chart_series){.name = html_index_title(v->runs->index[i]),
                                          .style = view_style(v->runs->index[i], i),
                                          .count = count,
                                          .point = point};
        if (count > 0) {
            low = fmin(low, point[0].x);
            high = fmax(high, point[count - 1].x);
        }
    }
    if (high == 0)
        return;
    struct scale x, y;
    scale_log(&x, low, high, VIEW_LOG_TICKS);
    scale_linear(&y, 0, 100, VIEW_TICKS);
    struct chart_axes axes = {&x, &y, " µs", " % of the operations"};
    view_panel(v, label, op);
    chart_lines(v->out, "percent of the operations over microseconds", v->indexes, series, &axes);
    part_panel_end(v->out);
}

static bool any_cdf(const struct bench_view *v)
{
    for (unsigned l = 0; l < v->runs->labels; l++) {
        const char *op[RUNS_OPS_MAX];
        unsigned count = runs_ops(v->runs, l, op);
        for (unsigned k = 0; k < count; k++)
            if (view_has(v, l, op[k], "latency_us/1/1"))
                return true;
    }
    return false;
}

void bench_show_distribution(const struct bench_view *v)
{
    static const char *const heads[] = {"min", "p1",  "p10",   "p50",   "p90",    "p95",
                                        "p98", "p99", "p99.5", "p99.9", "p99.99", "max"};
    static const char *const members[] = {"latency_us/0/1",  "latency_us/1/1",  "latency_us/3/1",
                                          "latency_us/7/1",  "latency_us/11/1", "latency_us/12/1",
                                          "latency_us/13/1", "latency_us/14/1", "latency_us/15/1",
                                          "latency_us/16/1", "latency_us/17/1", "latency_us/18/1"};
    if (!any_cdf(v))
        return;
    part_section(v->out, "Distribution of latencies",
                 "Percent of the operations that were done within so many microseconds, on a "
                 "logarithmic scale. The lines end at 99.9 %.");
    view_panels(v, draw_cdf);
    view_table(v, "Percentiles in microseconds", sizeof heads / sizeof *heads, heads, members);
    part_section_end(v->out);
}

/* ---- time lines ------------------------------------------------------------------------------- */

static unsigned timeline_points(const struct runs_run *run, struct chart_point *point)
{
    const json_t *windows = run ? lookup(run->json, "timeline") : NULL;
    unsigned count = 0;
    for (size_t k = 0; k < json_array_size(windows) && count < VIEW_POINTS; k++) {
        const json_t *window = json_array_get(windows, k);
        point[count++] = (struct chart_point){lookup_number(window, "seconds"),
                                              lookup_number(window, "ops_per_s")};
    }
    return count;
}

/* A line needs three windows. */
static bool has_timeline(const struct bench_view *v, unsigned label)
{
    for (unsigned i = 0; i < v->indexes; i++) {
        const struct runs_run *run = view_run(v, label, i);
        if (run && json_array_size(lookup(run->json, "timeline")) >= 3)
            return true;
    }
    return false;
}

static void draw_timeline(const struct bench_view *v, unsigned label)
{
    struct chart_series series[VIEW_INDEXES];
    double end = 0, max = 0;
    for (unsigned i = 0; i < v->indexes; i++) {
        struct chart_point *point = v->point + i * VIEW_POINTS;
        unsigned count = timeline_points(view_run(v, label, i), point);
        for (unsigned k = 0; k < count; k++) {
            end = fmax(end, point[k].x);
            max = fmax(max, point[k].y);
        }
        series[i] = (struct chart_series){.name = html_index_title(v->runs->index[i]),
                                          .style = view_style(v->runs->index[i], i),
                                          .count = count,
                                          .point = point};
    }
    struct scale x, y;
    scale_linear(&x, 0, end, VIEW_TICKS);
    scale_linear(&y, 0, max, VIEW_TICKS);
    struct chart_axes axes = {&x, &y, " s", " operations per second"};
    part_panel(v->out, v->runs->label[label].text, v->runs->label[label].mix);
    chart_lines(v->out, "operations per second over time", v->indexes, series, &axes);
    part_panel_end(v->out);
}

/* The table has every window of short time lines, and some of long ones. */
static void put_timeline(const struct bench_view *v, unsigned label)
{
    size_t most = 0;
    for (unsigned i = 0; i < v->indexes; i++) {
        const struct runs_run *run = view_run(v, label, i);
        size_t count = run ? json_array_size(lookup(run->json, "timeline")) : 0;
        most = count > most ? count : most;
    }
    for (size_t k = 0; k < most; k += 1 + most / TABLE_LINES) {
        char number[NUMBER_BYTES];
        html_table_row(v->out);
        html_table_text(v->out, v->runs->label[label].text);
        html_table_field(v->out, number_tick((double)(k + 1), number));
        for (unsigned i = 0; i < v->indexes; i++) {
            const struct runs_run *run = view_run(v, label, i);
            const char *path = run ? run->path : "none";
            html_table_number(v->out, v->runs->root, "%s/timeline/%zu/seconds", path, k);
            html_table_number(v->out, v->runs->root, "%s/timeline/%zu/ops_per_s", path, k);
        }
    }
}

void bench_show_timelines(const struct bench_view *v)
{
    bool any = false;
    for (unsigned l = 0; l < v->runs->labels; l++)
        any |= has_timeline(v, l);
    if (!any)
        return;
    part_section(v->out, "Time lines",
                 "Operations per second over seconds. Workloads that took less than three windows "
                 "of time have none.");
    part_panels(v->out);
    for (unsigned l = 0; l < v->runs->labels; l++)
        if (has_timeline(v, l))
            draw_timeline(v, l);
    part_panels_end(v->out);
    html_table_begin(v->out, "Seconds and operations per second, by window", false);
    html_table_head(v->out, "workload");
    html_table_head(v->out, "window");
    for (unsigned i = 0; i < v->indexes; i++) {
        html_table_head(v->out, "s");
        html_table_head(v->out, html_index_title(v->runs->index[i]));
    }
    for (unsigned l = 0; l < v->runs->labels; l++)
        if (has_timeline(v, l))
            put_timeline(v, l);
    html_table_end(v->out);
    part_section_end(v->out);
}

/* ---- round trips and bytes -------------------------------------------------------------------- */

static void draw_rtts(const struct bench_view *v, unsigned label, const char *op)
{
    struct chart_bar bar[VIEW_INDEXES];
    double max = 0;
    if (!view_has(v, label, op, "rtts"))
        return;
    for (unsigned i = 0; i < v->indexes; i++) {
        const struct runs_run *run = view_run(v, label, i);
        const char *title = html_index_title(v->runs->index[i]);
        char mean[NUMBER_BYTES], tail[NUMBER_BYTES], verbs[NUMBER_BYTES];
        bar[i] = (struct chart_bar){.name = title,
                                    .style = view_style(v->runs->index[i], i),
                                    .value = view_cost(run, op, "rtts")};
        max = fmax(max, bar[i].value);
        number_short(bar[i].value, mean);
        snprintf(bar[i].label, CHART_TEXT_BYTES, "%s", mean);
        snprintf(bar[i].tip, CHART_TEXT_BYTES, "%s: %s round trips (p99: %s), %s verbs", title,
                 mean, number_tick(view_cost(run, op, "rtts_p99"), tail),
                 number_short(view_cost(run, op, "verbs"), verbs));
    }
    view_panel(v, label, op);
    chart_bars(v->out, "round trips of an operation by index", v->indexes, bar, max);
    part_panel_end(v->out);
}

static void draw_bytes(const struct bench_view *v, unsigned label, const char *op)
{
    struct chart_bar bar[VIEW_INDEXES];
    double max = 0;
    if (!view_has(v, label, op, "bytes_read"))
        return;
    for (unsigned i = 0; i < v->indexes; i++) {
        const struct runs_run *run = view_run(v, label, i);
        const char *title = html_index_title(v->runs->index[i]);
        char in[NUMBER_BYTES], to[NUMBER_BYTES];
        bar[i] = (struct chart_bar){.name = title,
                                    .style = view_style(v->runs->index[i], i),
                                    .value = view_cost(run, op, "bytes_read"),
                                    .more = view_cost(run, op, "bytes_written")};
        max = fmax(max, bar[i].value + bar[i].more);
        number_short(bar[i].value, in);
        number_short(bar[i].more, to);
        snprintf(bar[i].label, CHART_TEXT_BYTES, "%s%s%s", in, bar[i].more > 0 ? " + " : "",
                 bar[i].more > 0 ? to : "");
        snprintf(bar[i].tip, CHART_TEXT_BYTES, "%s: %s bytes read, %s bytes written", title, in,
                 to);
    }
    view_panel(v, label, op);
    chart_bars(v->out, "bytes of an operation by index", v->indexes, bar, max);
    part_panel_end(v->out);
}

void bench_show_costs(const struct bench_view *v)
{
    static const char *const heads[] = {"round trips", "p99", "p99.9", "verbs"};
    static const char *const members[] = {"rtts", "rtts_p99", "rtts_p999", "verbs"};
    static const char *const byte_heads[] = {"bytes read", "bytes written"};
    static const char *const byte_members[] = {"bytes_read", "bytes_written"};
    part_section(v->out, "Round trips of an operation",
                 "Round trips to far memory, on average; fewer is better. They do not depend on "
                 "the machine.");
    view_panels(v, draw_rtts);
    view_table(v, "Round trips and verbs", 4, heads, members);
    part_section_end(v->out);
    part_section(
        v->out, "Bytes of an operation",
        "Bytes read, and in the lighter shade bytes written, on average; fewer is better.");
    view_panels(v, draw_bytes);
    view_table(v, "Bytes", 2, byte_heads, byte_members);
    part_section_end(v->out);
}
