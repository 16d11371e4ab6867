/*
 * What the charts of a benchmark have in common.
 *
 *   page_bench      facts, warnings, throughput, memory
 *   page_bench_ops  latencies, round trips and bytes of each kind of operation, time lines
 */
#ifndef REPORT_BENCH_VIEW_H
#define REPORT_BENCH_VIEW_H

#include "report/chart.h"
#include "report/runs.h"

#define VIEW_INDEXES   16u   /* in one chart */
#define VIEW_POINTS    6000u /* of a line: as many as a time line has windows */
#define VIEW_TICKS     5u
#define VIEW_LOG_TICKS 7u

struct bench_view {
    FILE *out;
    const struct runs *runs;
    unsigned indexes;
    unsigned clients;          /* of the runs that are shown where only one number of clients is */
    struct chart_point *point; /* VIEW_INDEXES * VIEW_POINTS of them */
};

/* The style of an index, which is the n-th. */
const char *view_style(const char *index, unsigned n);

/* The run of a workload and an index; NULL if there is none. */
const struct runs_run *view_run(const struct bench_view *v, unsigned label, unsigned index);
/* Its operations per second; NAN if there are none. */
double view_rate(const struct runs_run *run);
/* A number of its operations of one kind; NAN if there is none. */
double view_cost(const struct runs_run *run, const char *op, const char *member);
/* Does one of the indexes have this number, greater than 0? */
bool view_has(const struct bench_view *v, unsigned label, const char *op, const char *member);

/* Draws the panel of a workload and a kind of operation, if it has something to show. */
typedef void view_draw(const struct bench_view *v, unsigned label, const char *op);
/* Draws all of them. */
void view_panels(const struct bench_view *v, view_draw *draw);
void view_panel(const struct bench_view *v, unsigned label, const char *op);

/* The table under such panels: a row for each workload, operation and index, with these members. */
void view_table(const struct bench_view *v, const char *what, unsigned count,
                const char *const *heads, const char *const *members);

/* ---- page_bench_ops.c ---- */

void bench_show_latency(const struct bench_view *v);
void bench_show_distribution(const struct bench_view *v);
void bench_show_timelines(const struct bench_view *v);
void bench_show_costs(const struct bench_view *v);

#endif
