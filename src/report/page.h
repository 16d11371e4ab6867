/*
 * Pages with the results of `farside bench` and `farside reproduce`.
 *
 *   page.html   the page without its results, style and script
 *   page.css    the style
 *   *.js        the script: it draws charts and tables from the JSON that the page has
 *
 * The script is one program in several files. Each file uses those before it:
 *
 *   basics.js     numbers, scales, elements, tables
 *   charts.js     charts of plain numbers
 *   load.js       what limits a run on a modelled network
 *   bench.js      the results of bench
 *   reproduce.js  those of reproduce
 *   page.js       shows all of them, and numbers under the pointer
 *
 * The build joins all files (cmake/page.cmake). page_write() adds the results.
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
