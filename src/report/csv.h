/* Results as a table for spreadsheets, by RFC 4180: a row for each run and kind of operation. */
#ifndef REPORT_CSV_H
#define REPORT_CSV_H

#include <jansson.h>
#include <stdio.h>

/* Writes a field. It is quoted if it has a comma, a quote or the end of a line. */
void csv_field(FILE *out, const char *text);

/* Writes the head and the rows of all results of the array: objects as --json of bench and
 * reproduce writes them. docs/man/farside-bench.1 lists the columns. The caller checks the stream
 * for errors. */
void csv_write(FILE *out, const json_t *results);

#endif
