#include "reproduce/sheet.h"

#include "base/err.h"
#include "bench/text.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

void sheet_init(struct sheet *s)
{
    s->rows = s->columns = 0;
    s->left = 1;
    s->lines = false;
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
    vsnprintf(s->text[s->rows - 1][s->columns], SHEET_TEXT_BYTES, format, args);
    va_end(args);
    s->number[s->rows - 1][s->columns++] = NAN;
}

void sheet_number(struct sheet *s, double number, int decimals)
{
    if (isnan(number))
        sheet_text(s, "-");
    else
        sheet_text(s, "%.*f", decimals, number);
    s->number[s->rows - 1][s->columns - 1] = number;
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

static void print_text(const struct sheet *s, FILE *out, const char *title)
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
    ASSERT(total <= TEXT_COLUMNS);
    text_wrap(out, "", title);
    for (unsigned r = 0; r < s->rows; r++)
        print_row(s, out, r, width);
    fputs("\n", out);
}

/* A number, a text, or null for a number that is not known. */
static json_t *json_field(const struct sheet *s, unsigned row, unsigned column)
{
    const char *text = s->text[row][column];
    if (!isnan(s->number[row][column]))
        return json_real(s->number[row][column]);
    return strcmp(text, "-") == 0 ? json_null() : json_string(text);
}

static json_t *json_rows(const struct sheet *s)
{
    json_t *rows = json_array();
    int bad = rows ? 0 : -1;
    for (unsigned r = 0; r < s->rows; r++) {
        json_t *row = json_array();
        for (unsigned c = 0; c < SHEET_COLUMNS_MAX && *s->text[0][c]; c++)
            bad |= json_array_append_new(row, json_field(s, r, c));
        bad |= json_array_append_new(rows, row);
    }
    if (bad == 0)
        return rows;
    json_decref(rows);
    return NULL;
}

static json_t *json_sheet(const struct sheet *s, const char *title)
{
    const char *head = s->text[0][0];
    bool axis = *head && head[strlen(head) - 1] == ':';
    const char *lines = axis ? "rows" : s->lines ? "columns" : NULL;
    return json_pack("{s:s, s:i, s:s?, s:o}", "title", title, "left", (int)s->left, "lines", lines,
                     "rows", json_rows(s));
}

void sheet_print(struct sheet *s, struct sheet_sink *out, const char *title)
{
    if (out->text)
        print_text(s, out->text, title);
    if (out->json)
        out->failed |= json_array_append_new(out->json, json_sheet(s, title)) != 0;
    sheet_init(s);
}
