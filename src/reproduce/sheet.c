#include "reproduce/sheet.h"

#include "base/err.h"
#include "bench/report.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

void sheet_init(struct sheet *s)
{
    s->rows = s->columns = 0;
    s->left = 1;
    memset(s->text, 0, sizeof s->text);
}

void sheet_row(struct sheet *s)
{
    ASSERT(s->rows < SHEET_ROWS_MAX);
    s->rows++;
    s->columns = 0;
}

void sheet_text(struct sheet *s, const char *format, ...)
{
    ASSERT(s->rows > 0 && s->columns < SHEET_COLUMNS_MAX);
    va_list args;
    va_start(args, format);
    vsnprintf(s->text[s->rows - 1][s->columns++], SHEET_TEXT_BYTES, format, args);
    va_end(args);
}

void sheet_number(struct sheet *s, double number, int decimals)
{
    if (isnan(number))
        sheet_text(s, "-");
    else
        sheet_text(s, "%.*f", decimals, number);
}

/* Prints one row, without spaces at its end. */
static void print_row(const struct sheet *s, FILE *out, unsigned row, const unsigned *width)
{
    unsigned last = 0, spaces = 2;
    for (unsigned c = 0; c < SHEET_COLUMNS_MAX; c++)
        if (*s->text[row][c])
            last = c;
    for (unsigned c = 0; c <= last; c++) {
        const char *text = s->text[row][c];
        unsigned pad = width[c] - (unsigned)strlen(text);
        if (c >= s->left)
            spaces += pad;
        fprintf(out, "%*s%s", (int)spaces, "", text);
        spaces = 2 + (c < s->left ? pad : 0);
    }
    fputs("\n", out);
}

void sheet_print(struct sheet *s, FILE *out, const char *title)
{
    unsigned width[SHEET_COLUMNS_MAX] = {0}, total = 0;
    for (unsigned r = 0; r < s->rows; r++)
        for (unsigned c = 0; c < SHEET_COLUMNS_MAX; c++) {
            unsigned len = (unsigned)strlen(s->text[r][c]);
            if (len > width[c])
                width[c] = len;
        }
    for (unsigned c = 0; c < SHEET_COLUMNS_MAX; c++)
        total += width[c] > 0 ? width[c] + 2 : 0;
    ASSERT(total <= REPORT_COLUMNS);
    report_wrap(out, "", title);
    for (unsigned r = 0; r < s->rows; r++)
        print_row(s, out, r, width);
    fputs("\n", out);
    sheet_init(s);
}
