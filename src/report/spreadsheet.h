/* Results as a table for spreadsheets: a row for each run and kind of operation. */
#ifndef REPORT_SPREADSHEET_H
#define REPORT_SPREADSHEET_H

#include <jansson.h>
#include <stdio.h>

/* Writes the head and the rows of all results of the array: objects as --json of bench and
 * reproduce writes them. docs/man/farside-bench.1 lists the columns. The caller checks the stream
 * for errors. */
void spreadsheet_write(FILE *out, const json_t *results);

#endif
