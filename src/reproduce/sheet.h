/*
 * Tables of numbers. The first row has the heads of the columns; the first column is aligned left,
 * the others right. If the first head ends with a colon ("clients:"), it says what the numbers in
 * the other heads are: the columns are points of an axis, and each row is a line over it.
 */
#ifndef REPRODUCE_SHEET_H
#define REPRODUCE_SHEET_H

#include "reproduce/cell.h"
#include "reproduce/plan.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#define SHEET_COLUMNS_MAX 14u
#define SHEET_ROWS_MAX    64u
#define SHEET_PAPERS_MAX  128u
#define SHEET_TEXT_BYTES  32

/* A number of a paper, of the same kind as the field beside which it belongs. */
struct sheet_paper {
    unsigned row, column; /* of the field with our number */
    int at;               /* the column of the row that has only the paper's number; -1: none has */
    double number;
    const char *source; /* SHARD Table 3 */
};

struct sheet {
    unsigned rows, columns; /* columns of the row that is being filled */
    unsigned left;          /* columns that are aligned left; at least the first */
    bool lines;             /* the rows are points of an axis, and each column is a line over it */
    bool across; /* the columns behind those on the left are points of an axis, as if the first head
                   * ended with a colon */
    bool scaling; /* the axis has numbers of clients and the lines are throughputs, so that a line
                   * that falls is a collapse */
    unsigned papers;
    struct sheet_paper paper[SHEET_PAPERS_MAX];
    char text[SHEET_ROWS_MAX][SHEET_COLUMNS_MAX][SHEET_TEXT_BYTES];
    double number[SHEET_ROWS_MAX][SHEET_COLUMNS_MAX]; /* NAN: the field has only a text */
};

/* Where tables go: to people, as text, or to programs, as objects in an array. The other is
 * NULL. */
struct sheet_sink {
    FILE *text;
    json_t *json;
    json_t *of_seed[CELL_SEEDS]; /* the same tables of each seed, for the spread */
    unsigned tables;             /* so far */
    bool failed;                 /* memory ran out; to be looked at after the last table */
};

/* Begins an empty table. */
void sheet_init(struct sheet *s);
/* Begins a row. */
void sheet_begin_row(struct sheet *s);
/* Begins a row, and fills its first field. */
void sheet_row(struct sheet *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A row with these texts. */
#define sheet_texts(s, ...) sheet_row_of(s, (const char *const[]){__VA_ARGS__, NULL})
void sheet_row_of(struct sheet *s, const char *const *texts);
/* A row with a text, and the numbers of an axis behind it. */
void sheet_axis(struct sheet *s, const char *text, const struct plan_axis *axis);
/* Fills the next field of the row. */
void sheet_text(struct sheet *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with a number; "-" if it is not one. */
void sheet_number(struct sheet *s, double number, int decimals);
/* The paper has this number for the field in that column of the row, in the same unit. Programs get
 * it; people do not see it here. NAN: it has none. */
void sheet_paper(struct sheet *s, unsigned column, double number, const char *source);
/* The same, and fills the next field with it. */
void sheet_paper_number(struct sheet *s, unsigned column, double number, int decimals,
                        const char *source);
/* The same with what the paper says. If that is more than a number, such as "> 95", programs do not
 * get it. */
void sheet_paper_text(struct sheet *s, unsigned column, const char *text, const char *source);
/* Puts out the table behind a title, and begins an empty one. */
void sheet_print(struct sheet *s, struct sheet_sink *out, const char *title);

#endif
