/* Rows of a table for people, field by field. No row has spaces at its end. */
#ifndef OUT_COLUMNS_H
#define OUT_COLUMNS_H

#include <stdio.h>

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
/* A number with as many of the decimals as fit, and if need be in thousands (k), millions (M) and so
 * on. */
void columns_number(struct columns *c, double value, int decimals);
/* Ends the row. */
void columns_end(struct columns *c);
/* A row with the heads of the first columns. */
void columns_heads(struct columns *c, unsigned count);

#endif
