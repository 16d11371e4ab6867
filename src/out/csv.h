/* Tables for spreadsheets, by RFC 4180: rows, field by field. */
#ifndef OUT_CSV_H
#define OUT_CSV_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* The caller checks the stream for errors. */
struct csv {
    FILE *out;
    bool begun; /* the row has a field */
};

/* Writes the next field. It is quoted if it has a comma, a quote or the end of a line. */
void csv_text(struct csv *c, const char *text);
/* A text, a number or a truth value; otherwise, and for NULL, the field is empty. */
void csv_value(struct csv *c, const json_t *value);
/* Ends the row. */
void csv_end(struct csv *c);

#endif
