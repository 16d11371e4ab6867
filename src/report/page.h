/*
 * Pages with the results of `farside bench` and `farside reproduce`, made of their JSON.
 *
 *   number      numbers as people read them
 *   scale       axes
 *   lookup      values by their path in the JSON
 *   style       style sheet and script
 *   html        parts of a page
 *   chart       charts
 *   part        parts that all pages have in common
 *   runs        the runs of a benchmark
 *   bench_view, page_bench, page_bench_ops
 *               results of bench
 *   sheet_chart, page_reproduce
 *               results of reproduce
 *   page        a page with any of them
 *   csv         the same runs for spreadsheets
 */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/*
 * Writes one page with all results of the array: objects as --json of bench and reproduce writes
 * them. False when out of memory. The caller checks the stream for errors.
 */
bool page_write(FILE *out, const json_t *results);

#endif
