/*
 * Pages with the results of `farside bench` and `farside reproduce`.
 *
 *   page.html   the page without its results, style and script
 *   page.css    the style
 *   page.js     the script: it draws charts and tables from the JSON that the page has
 *
 * The build joins the three (cmake/page.cmake). page_write() adds the results.
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
