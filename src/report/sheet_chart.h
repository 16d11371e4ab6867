/* Charts of a table of `farside reproduce`: lines if it has an axis, otherwise bars for each column. */
#ifndef REPORT_SHEET_CHART_H
#define REPORT_SHEET_CHART_H

#include <jansson.h>
#include <stdio.h>

/* Draws the table (title, left, lines, rows). One that has no numbers, or too many, has no chart. */
void sheet_chart(FILE *out, const json_t *sheet);

#endif
