#include "reproduce/sheet.h"

#include "base/err.h"
#include "out/json.h"
#include "out/text.h"
#include "reproduce/results.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void sheet_init(struct sheet *s)
{
    s->rows = s->columns = 0;
    s->left = 1;
    s->lines = s->across = s->scaling = false;
    s->papers = 0;
    memset(s->text, 0, sizeof s->text);
    for (unsigned r = 0; r < SHEET_ROWS_MAX; r++)
        for (unsigned c = 0; c < SHEET_COLUMNS_MAX; c++)
            s->number[r][c] = NAN;
}

/* Fills the next field of the row. */
static void put(struct sheet *s, const char *format, va_list args)
{
    ASSERT(s->rows > 0 && s->columns < SHEET_COLUMNS_MAX);
    vsnprintf(s->text[s->rows - 1][s->columns], SHEET_TEXT_BYTES, format, args);
    s->number[s->rows - 1][s->columns++] = NAN;
}

void sheet_begin_row(struct sheet *s)
{
    ASSERT(s->rows < SHEET_ROWS_MAX);
    s->rows++;
    s->columns = 0;
}

void sheet_row(struct sheet *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    sheet_begin_row(s);
    put(s, format, args);
    va_end(args);
}

void sheet_text(struct sheet *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put(s, format, args);
    va_end(args);
}

void sheet_row_of(struct sheet *s, const char *const *texts)
{
    for (sheet_row(s, "%s", *texts++); *texts; texts++)
        sheet_text(s, "%s", *texts);
}

void sheet_axis(struct sheet *s, const char *text, const struct plan_axis *axis)
{
    sheet_row(s, "%s", text);
    for (unsigned i = 0; i < axis->count; i++)
        sheet_text(s, "%u", axis->value[i]);
}

void sheet_number(struct sheet *s, double number, int decimals)
{
    if (isnan(number))
        sheet_text(s, "-");
    else
        sheet_text(s, "%.*f", decimals, number);
    s->number[s->rows - 1][s->columns - 1] = number;
}

static void note_paper(struct sheet *s, unsigned column, int at, double number, const char *source)
{
    ASSERT(s->rows > 0 && column < SHEET_COLUMNS_MAX);
    if (isnan(number))
        return;
    ASSERT(s->papers < SHEET_PAPERS_MAX);
    s->paper[s->papers++] = (struct sheet_paper){s->rows - 1, column, at, number, source};
}

void sheet_paper(struct sheet *s, unsigned column, double number, const char *source)
{
    note_paper(s, column, -1, number, source);
}

void sheet_paper_number(struct sheet *s, unsigned column, double number, int decimals,
                        const char *source)
{
    note_paper(s, column, (int)s->columns, number, source);
    sheet_number(s, number, decimals);
}

void sheet_paper_text(struct sheet *s, unsigned column, const char *text, const char *source)
{
    char *end = NULL;
    double number = strtod(text, &end);
    note_paper(s, column, (int)s->columns, *text && !*end ? number : NAN, source);
    sheet_text(s, "%s", text);
}

static void print_text(const struct sheet *s, FILE *out, const char *title)
{
    struct column column[SHEET_COLUMNS_MAX] = {{.width = 0}};
    struct columns row = {.out = out, .column = column, .gap = 2, .indent = 2};
    int total = 0;
    for (unsigned c = 0; c < SHEET_COLUMNS_MAX; c++) {
        int width = 0;
        for (unsigned r = 0; r < s->rows; r++)
            if ((int)strlen(s->text[r][c]) > width)
                width = (int)strlen(s->text[r][c]);
        total += width > 0 ? width + 2 : 0;
        column[c].width = c < s->left ? -width : width;
    }
    ASSERT(total <= TEXT_COLUMNS);
    text_wrap(out, "", title);
    for (unsigned r = 0; r < s->rows; r++) {
        for (unsigned c = 0; c < SHEET_COLUMNS_MAX; c++)
            columns_text(&row, s->text[r][c]);
        columns_end(&row);
    }
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

/* The least and the most that a seed has at that place of the table. False: there is no number. */
static bool spread(const struct sheet_sink *out, size_t row, size_t column, double range[2])
{
    range[0] = INFINITY;
    range[1] = -INFINITY;
    for (unsigned i = 0; i < CELL_SEEDS; i++) {
        const json_t *rows = json_object_get(json_array_get(out->of_seed[i], out->tables), "rows");
        const json_t *at = json_array_get(json_array_get(rows, row), column);
        if (!json_is_number(at))
            return false;
        range[0] = fmin(range[0], json_number_value(at));
        range[1] = fmax(range[1], json_number_value(at));
    }
    return true;
}

/* For each row, [least, most] of each number, and null for what is none. */
static json_t *json_spread(const struct sheet *s, const struct sheet_sink *out)
{
    json_t *rows = json_array();
    int bad = rows ? 0 : -1;
    double range[2];
    for (unsigned r = 0; r < s->rows; r++) {
        json_t *row = json_array();
        for (unsigned c = 0; c < SHEET_COLUMNS_MAX && *s->text[0][c]; c++)
            bad |= json_array_append_new(row, !isnan(s->number[r][c]) && spread(out, r, c, range)
                                                  ? json_pack("[f, f]", range[0], range[1])
                                                  : json_null());
        bad |= json_array_append_new(rows, row);
    }
    if (bad == 0)
        return rows;
    json_decref(rows);
    return NULL;
}

/* The papers' numbers, with the places of ours. */
static json_t *json_papers(const struct sheet *s)
{
    json_t *papers = json_array();
    int bad = papers ? 0 : -1;
    for (unsigned i = 0; i < s->papers; i++) {
        const struct sheet_paper *p = &s->paper[i];
        bad |= json_array_append_new(
            papers, OUT_OBJECT({"row", out_count(p->row)}, {"column", out_count(p->column)},
                               {"at", p->at < 0 ? json_null() : json_integer(p->at)},
                               {"number", json_real(p->number)}, {"source", out_text(p->source)}));
    }
    if (bad == 0)
        return papers;
    json_decref(papers);
    return NULL;
}

/* [row, column] of each number that is missing because clients stood still. */
static json_t *json_stood_still(const struct sheet *s)
{
    json_t *places = json_array();
    int bad = places ? 0 : -1;
    for (unsigned r = 0; r < s->rows; r++)
        for (unsigned c = 0; c < SHEET_COLUMNS_MAX && *s->text[0][c]; c++)
            if (results_stood_still(s->number[r][c]))
                bad |= json_array_append_new(places, json_pack("[i, i]", (int)r, (int)c));
    if (bad == 0)
        return places;
    json_decref(places);
    return NULL;
}

static json_t *json_sheet(const struct sheet *s, const struct sheet_sink *out, const char *title)
{
    const char *head = s->text[0][0];
    bool axis = *head && head[strlen(head) - 1] == ':';
    const char *lines = axis || s->across ? "rows" : s->lines ? "columns" : NULL;
    return OUT_OBJECT({"title", out_text(title)}, {"left", out_count(s->left)},
                      {"lines", out_text(lines)}, {"scaling", json_boolean(s->scaling)},
                      {"rows", json_rows(s)}, {"spread", json_spread(s, out)},
                      {"paper", json_papers(s)}, {"stood_still", json_stood_still(s)});
}

/* Numbers whose seeds differ by more than this part are named, with their range. */
#define WIDE 0.1

/* What the columns on the left say of the row, also where that is in a row above. */
static void name_of_row(const struct sheet *s, unsigned row, char *name, size_t room)
{
    *name = '\0';
    for (unsigned c = 0; c < s->left; c++) {
        unsigned r = row;
        while (r > 1 && c + 1 < s->left && strspn(s->text[r][c], " ") == strlen(s->text[r][c]))
            r--;
        size_t used = strlen(name);
        snprintf(name + used, room - used, "%s%s", c > 0 ? " " : "", s->text[r][c]);
    }
}

/* Says how far the seeds are apart. */
static void print_spread(const struct sheet *s, const struct sheet_sink *out)
{
    char text[4096] = "", name[2 * SHEET_TEXT_BYTES];
    double others = 0, range[2];
    bool any = false;
    for (unsigned r = 1; r < s->rows; r++)
        for (unsigned c = 0; c < SHEET_COLUMNS_MAX; c++) {
            if (isnan(s->number[r][c]) || !spread(out, r, c, range))
                continue;
            double width = range[1] > range[0] ? (range[1] - range[0]) / fabs(s->number[r][c]) : 0;
            any = true;
            if (width <= WIDE) {
                others = fmax(others, width);
                continue;
            }
            size_t used = strlen(text);
            name_of_row(s, r, name, sizeof name);
            snprintf(text + used, sizeof text - used, "%s%s, %s %.4g to %.4g", used > 0 ? "; " : "",
                     name, s->text[0][c], range[0], range[1]);
        }
    if (!any)
        return;
    fprintf(out->text, "  Spread of the seeds: %s%.1f %%%s\n", *text ? "up to " : "at most ",
            100 * others, *text ? ", and" : "");
    if (*text)
        text_wrap(out->text, "  ", text);
}

void sheet_print(struct sheet *s, struct sheet_sink *out, const char *title)
{
    if (out->text) {
        print_text(s, out->text, title);
        print_spread(s, out);
        fputs("\n", out->text);
    }
    if (out->json)
        out->failed |= json_array_append_new(out->json, json_sheet(s, out, title)) != 0;
    out->tables++;
    sheet_init(s);
}
