#include "report/sheet_chart.h"

#include "report/chart.h"
#include "report/html.h"
#include "report/lookup.h"
#include "report/number.h"
#include "report/part.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX   64u
#define BARS_MAX   24u
#define LINES_MAX  12u
#define POINTS_MAX 64u
#define NAME_BYTES 80
#define LOG_FROM   20.0 /* an axis whose end is this many times its beginning is logarithmic */

struct sheet_view {
    FILE *out;
    const json_t *rows;
    unsigned count, columns; /* count: without the heads */
    unsigned left;
    const char *title;
};

/* The field of a row, counted from the heads, which are row 0. */
static const json_t *field(const struct sheet_view *v, unsigned row, unsigned column)
{
    return json_array_get(json_array_get(v->rows, row), column);
}

static double number_in(const struct sheet_view *v, unsigned row, unsigned column)
{
    const json_t *f = field(v, row, column);
    return json_is_number(f) ? json_number_value(f) : NAN;
}

static const char *text_in(const struct sheet_view *v, unsigned row, unsigned column)
{
    const char *text = json_string_value(field(v, row, column));
    return text ? text : "";
}

/* The number at the beginning of a field; NAN if there is none. */
static double leading_number(const struct sheet_view *v, unsigned row, unsigned column)
{
    const char *text = text_in(v, row, column);
    char *end;
    double number = strtod(text, &end);
    if (json_is_number(field(v, row, column)))
        return number_in(v, row, column);
    return end != text ? number : NAN;
}

static const char *style_for(const char *name, unsigned n)
{
    const char *style = html_index_style(name);
    return style ? style : html_other_style(n);
}

/* ---- lines ------------------------------------------------------------------------------------ */

struct lines {
    unsigned count;
    struct chart_series series[LINES_MAX];
    struct chart_point point[LINES_MAX][POINTS_MAX];
    char name[LINES_MAX][NAME_BYTES];
    double first, last, most; /* of x, and the largest y */
};

static void add_point(struct lines *l, unsigned line, double x, double y)
{
    struct chart_series *s = &l->series[line];
    if (isnan(x) || s->count == POINTS_MAX)
        return;
    l->point[line][s->count++] = (struct chart_point){x, y};
    l->first = fmin(l->first, x);
    l->last = fmax(l->last, x);
    l->most = fmax(l->most, y);
}

/* Begins a line. NULL: there are too many. */
static char *add_line(struct lines *l)
{
    if (l->count == LINES_MAX)
        return NULL;
    l->series[l->count] =
        (struct chart_series){.name = l->name[l->count], .point = l->point[l->count]};
    return l->name[l->count++];
}

static void take_rows(const struct sheet_view *v, struct lines *l)
{
    for (unsigned r = 1; r <= v->count; r++) {
        char *name = add_line(l);
        if (!name)
            return;
        snprintf(name, NAME_BYTES, "%s", text_in(v, r, 0));
        for (unsigned c = 1; c < v->columns; c++)
            add_point(l, l->count - 1, leading_number(v, 0, c), number_in(v, r, c));
    }
}

/* The name of a column. If another has the same head, the head before it comes first. */
static void name_column(const struct sheet_view *v, unsigned column, char name[NAME_BYTES])
{
    const char *head = text_in(v, 0, column);
    bool unique = true;
    for (unsigned c = 0; c < v->columns; c++)
        unique &= c == column || strcmp(text_in(v, 0, c), head) != 0;
    if (unique || column == 0)
        snprintf(name, NAME_BYTES, "%s", head);
    else
        snprintf(name, NAME_BYTES, "%s, %s", text_in(v, 0, column - 1), head);
}

static unsigned numbers_of(const struct sheet_view *v, unsigned column)
{
    unsigned count = 0;
    for (unsigned r = 1; r <= v->count; r++)
        count += !isnan(number_in(v, r, column));
    return count;
}

static void take_columns(const struct sheet_view *v, struct lines *l)
{
    for (unsigned c = v->left; c < v->columns; c++) {
        char *name = numbers_of(v, c) > 0 ? add_line(l) : NULL;
        if (!name)
            continue;
        name_column(v, c, name);
        for (unsigned r = 1; r <= v->count; r++)
            add_point(l, l->count - 1, leading_number(v, r, 0), number_in(v, r, c));
    }
}

/* Ticks at the points, except where two would be too close to each other. */
static struct scale axis_of(const struct lines *l)
{
    struct scale s = {.low = l->first, .high = l->last};
    const struct chart_series *longest = &l->series[0];
    double last = -1;
    s.log = s.low > 0 && s.high / s.low >= LOG_FROM;
    for (unsigned i = 1; i < l->count; i++)
        if (l->series[i].count > longest->count)
            longest = &l->series[i];
    for (unsigned i = 0; i < longest->count && s.ticks < SCALE_TICKS_MAX; i++) {
        double at = scale_at(&s, longest->point[i].x);
        if (last >= 0 && at - last < 0.12)
            continue;
        s.tick[s.ticks++] = longest->point[i].x;
        last = at;
    }
    return s;
}

static void draw_lines(const struct sheet_view *v, struct lines *l)
{
    const char *names[LINES_MAX], *styles[LINES_MAX];
    struct scale y;
    if (l->count == 0 || !(l->last > l->first) || !(l->most > 0))
        return;
    for (unsigned i = 0; i < l->count; i++) {
        names[i] = l->name[i];
        styles[i] = l->series[i].style = style_for(names[i], i);
    }
    struct scale x = axis_of(l);
    scale_linear(&y, 0, l->most, 5);
    struct chart_axes axes = {&x, &y, "", ""};
    html_legend(v->out, l->count, names, styles);
    part_panels(v->out);
    part_panel(v->out, "", text_in(v, 0, 0));
    chart_lines(v->out, v->title, l->count, l->series, &axes);
    part_panel_end(v->out);
    part_panels_end(v->out);
}

/* ---- bars ------------------------------------------------------------------------------------- */

/* The fields on the left of a row. An empty one means the same as in the row above. */
static void name_row(const struct sheet_view *v, unsigned row, char name[NAME_BYTES])
{
    size_t len = 0;
    for (unsigned c = 0; c < v->left && len < NAME_BYTES; c++) {
        unsigned r = row;
        char number[NUMBER_BYTES];
        while (r > 1 && field(v, r, c) && json_is_string(field(v, r, c)) && !*text_in(v, r, c))
            r--;
        const char *text = json_is_number(field(v, r, c))
                               ? number_grouped(number_in(v, r, c), number)
                               : text_in(v, r, c);
        len += (size_t)snprintf(name + len, NAME_BYTES - len, "%s%s", len > 0 ? " " : "", text);
    }
}

static void draw_column(const struct sheet_view *v, unsigned column)
{
    char names[BARS_MAX][NAME_BYTES];
    struct chart_bar bars[BARS_MAX];
    char head[NAME_BYTES], number[NUMBER_BYTES];
    double max = 0;
    for (unsigned r = 1; r <= v->count; r++) {
        double value = number_in(v, r, column);
        name_row(v, r, names[r - 1]);
        const char *last = text_in(v, r, v->left - 1);
        struct chart_bar *bar = &bars[r - 1];
        *bar =
            (struct chart_bar){.name = names[r - 1], .style = style_for(last, 0), .value = value};
        snprintf(bar->label, CHART_TEXT_BYTES, "%s", number_short(value, number));
        snprintf(bar->tip, CHART_TEXT_BYTES, "%.*s: %s", NAME_BYTES, names[r - 1], number);
        max = fmax(max, value);
    }
    name_column(v, column, head);
    part_panel(v->out, head, "");
    chart_bars(v->out, head, v->count, bars, max);
    part_panel_end(v->out);
}

static void draw_bars(const struct sheet_view *v)
{
    if (v->count > BARS_MAX || v->count < 2)
        return;
    part_panels(v->out);
    for (unsigned c = v->left; c < v->columns; c++)
        if (numbers_of(v, c) >= 2)
            draw_column(v, c);
    part_panels_end(v->out);
}

void sheet_chart(FILE *out, const json_t *sheet)
{
    const char *shape = lookup_text(sheet, "lines");
    double left = lookup_number(sheet, "left");
    struct sheet_view v = {
        .out = out, .rows = lookup(sheet, "rows"), .title = lookup_text(sheet, "title")};
    size_t rows = json_array_size(v.rows);
    if (rows < 2 || rows > ROWS_MAX || !(left >= 1 && left < ROWS_MAX))
        return;
    v.left = (unsigned)left;
    v.count = (unsigned)rows - 1;
    v.columns = (unsigned)json_array_size(json_array_get(v.rows, 0));
    struct lines *l = calloc(1, sizeof *l);
    if (!l)
        return; /* the table has the numbers */
    l->first = INFINITY;
    if (strcmp(shape, "rows") == 0)
        take_rows(&v, l);
    else if (strcmp(shape, "columns") == 0)
        take_columns(&v, l);
    if (*shape)
        draw_lines(&v, l);
    else
        draw_bars(&v);
    free(l);
}
