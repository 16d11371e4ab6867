/* Lines and tables for people, and numbers in them. */
#ifndef OUT_TEXT_H
#define OUT_TEXT_H

#include <stdint.h>
#include <stdio.h>

#define TEXT_COLUMNS 100 /* no line is longer */
#define TEXT_MAX     32  /* bytes of a number */

/* 1234567 as 1,234,567 */
const char *text_grouped(uint64_t number, char text[TEXT_MAX]);
/* With as many of the decimals as fit into so many columns, and if need be in thousands (k),
 * millions (M) and so on. */
char *text_fit(double value, int width, int decimals, char text[TEXT_MAX]);
/* "16", or "16 to 64". */
const char *text_range(unsigned least, unsigned most, char text[TEXT_MAX]);
/* "s", or "" for one. */
const char *text_plural(uint64_t count);

/* Prints a line that begins with `head`. If it would be longer than TEXT_COLUMNS, it goes on in the
 * next one, behind as many spaces. A word that is longer than a line is cut. */
void text_wrap(FILE *out, const char *head, const char *text);
/* The same with a format. */
void text_say(FILE *out, const char *head, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- columns: rows of a table, field by field; none has spaces at its end -------------------- */

struct column {
    const char *head;
    int width; /* < 0: aligned left */
};

struct columns {
    FILE *out;
    const struct column *column;
    int gap;     /* spaces between columns; 0 stands for 1 */
    int indent;  /* spaces before the first */
    unsigned at; /* the next field */
    int skipped; /* spaces that stand before it */
};

/* Fills the next field. A text that is longer than its column moves those behind it. */
void columns_text(struct columns *c, const char *text);
/* A number with as many of the decimals as fit, and if need be in thousands (k), millions (M) and
 * so on. */
void columns_number(struct columns *c, double value, int decimals);
/* Ends the row. */
void columns_end(struct columns *c);
/* A row with the heads of the first columns. */
void columns_heads(struct columns *c, unsigned count);

#endif
