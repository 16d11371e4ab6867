/* Tables of numbers for people. The first row has the heads of the columns; the first column is
 * aligned left, the others right. */
#ifndef REPRODUCE_SHEET_H
#define REPRODUCE_SHEET_H

#include <stdio.h>

#define SHEET_COLUMNS_MAX 14u
#define SHEET_ROWS_MAX    64u
#define SHEET_TEXT_BYTES  32

struct sheet {
    unsigned rows, columns; /* columns of the row that is being filled */
    unsigned left;          /* columns that are aligned left; at least the first */
    char text[SHEET_ROWS_MAX][SHEET_COLUMNS_MAX][SHEET_TEXT_BYTES];
};

/* Begins an empty table. */
void sheet_init(struct sheet *s);
/* Begins a row. */
void sheet_row(struct sheet *s);
/* Fills the next field of the row. */
void sheet_text(struct sheet *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with a number; "-" if it is not one. */
void sheet_number(struct sheet *s, double number, int decimals);
/* Prints the table behind a title, and begins an empty one. */
void sheet_print(struct sheet *s, FILE *out, const char *title);

#endif
