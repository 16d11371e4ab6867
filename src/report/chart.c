#include "report/chart.h"

#include "report/html.h"
#include "report/number.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static void begin(FILE *out, const char *what, double height)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %g\" role=\"img\" "
            "aria-label=\"",
            CHART_WIDTH, height);
    html_text(out, what);
    fputs("\">\n", out);
}

static void end(FILE *out)
{
    fputs("</svg>\n", out);
}

static void put_text(FILE *out, const char *kind, double x, double y, const char *text)
{
    fprintf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", kind, x, y);
    html_text(out, text);
    fputs("</text>\n", out);
}

static void put_title(FILE *out, const char *text)
{
    fputs("<title>", out);
    html_text(out, text);
    fputs("</title>", out);
}

static void put_rect(FILE *out, const char *kind, double x, double y, double width, double height)
{
    fprintf(out,
            "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" rx=\"1.5\"/>",
            kind, x, y, width, height);
}

/* ---- rows: bars and ranges -------------------------------------------------------------------- */

#define NAME_CHARS 9    /* longer names stand above their bar */
#define NAME_MAX   50   /* longer ones are cut */
#define NAME_UNITS 60.0 /* for names beside bars */
#define ROW        22.0
#define ROW_TALL   40.0
#define BAR        13.0
#define LABEL      64.0  /* units for the label of a bar */
#define LABEL_TWO  108.0 /* for one with two numbers */

/* Where the rows of a chart are. */
struct rows {
    bool tall;         /* names above bars */
    double left, room; /* of bars */
    double height;     /* of a row */
};

static struct rows rows_for(bool tall, double label)
{
    struct rows r = {.tall = tall, .left = tall ? 0 : NAME_UNITS};
    r.room = CHART_WIDTH - r.left - label;
    r.height = tall ? ROW_TALL : ROW;
    return r;
}

/* The top of row i's bar. */
static double bar_top(const struct rows *r, unsigned i)
{
    return i * r->height + (r->tall ? 20 : (ROW - BAR) / 2);
}

static void put_name(FILE *out, const struct rows *r, unsigned i, const char *name)
{
    char cut[NAME_MAX + 8];
    snprintf(cut, sizeof cut, "%.*s%s", NAME_MAX, name, strlen(name) > NAME_MAX ? "..." : "");
    if (r->tall)
        put_text(out, "name", 0, i * r->height + 15, cut);
    else
        put_text(out, "name end", r->left - 7, bar_top(r, i) + BAR - 3, cut);
}

static bool is_long(const char *name)
{
    return strlen(name) > NAME_CHARS;
}

static void put_bar(FILE *out, const struct rows *r, unsigned i, const struct chart_bar *bar,
                    double max)
{
    double first = r->room * bar->value / max, second = r->room * bar->more / max;
    double top = bar_top(r, i);
    fprintf(out, "<g class=\"%s\">", bar->style);
    put_title(out, bar->tip);
    put_rect(out, "hit", 0, i * r->height, CHART_WIDTH, r->height);
    put_rect(out, "fill", r->left, top, fmax(first, 1), BAR);
    if (bar->more > 0)
        put_rect(out, "pale", r->left + fmax(first, 1), top, fmax(second, 1), BAR);
    fputs("</g>\n", out);
    put_text(out, "value", r->left + first + second + 6, top + BAR - 3, bar->label);
}

void chart_bars(FILE *out, const char *what, unsigned count, const struct chart_bar *bars,
                double max)
{
    bool tall = false, two = false;
    for (unsigned i = 0; i < count; i++) {
        tall |= is_long(bars[i].name);
        two |= bars[i].more > 0;
    }
    struct rows r = rows_for(tall, two ? LABEL_TWO : LABEL);
    begin(out, what, count * r.height);
    fprintf(out, "<path class=\"axis\" d=\"M%.1f 0V%.1f\"/>\n", r.left, count * r.height);
    for (unsigned i = 0; i < count; i++) {
        put_name(out, &r, i, bars[i].name);
        if (isfinite(bars[i].value) && max > 0)
            put_bar(out, &r, i, &bars[i], max);
    }
    end(out);
}

/* Ticks along the bottom, with lines up from them. */
static void put_x_ticks(FILE *out, const struct scale *x, double left, double room, double bottom)
{
    char text[NUMBER_BYTES];
    for (unsigned i = 0; i < x->ticks; i++) {
        double at = left + room * scale_at(x, x->tick[i]);
        fprintf(out, "<path class=\"grid\" d=\"M%.1f 0V%.1f\"/>\n", at, bottom);
        put_text(out, "tick middle", at, bottom + 17, number_tick(x->tick[i], text));
    }
}

static void put_range(FILE *out, const struct rows *r, unsigned i, const struct chart_range *range,
                      const struct scale *x)
{
    double low = r->left + r->room * scale_at(x, range->low);
    double high = r->left + r->room * scale_at(x, range->high);
    double beyond = r->left + r->room * scale_at(x, range->beyond);
    double top = bar_top(r, i), middle = top + BAR / 2;
    fprintf(out, "<g class=\"%s\">", range->style);
    put_title(out, range->tip);
    put_rect(out, "hit", 0, i * r->height, CHART_WIDTH, r->height);
    fprintf(out, "<path class=\"thin\" d=\"M%.1f %.1fH%.1f\"/>", high, middle, beyond);
    put_rect(out, "pale", low, top + 2, fmax(high - low, 1), BAR - 4);
    put_rect(out, "fill", low - 1.5, top, 3, BAR);
    put_rect(out, "fill", high - 1.5, top, 3, BAR);
    fprintf(out, "<circle class=\"fill\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/></g>\n", beyond,
            middle);
    put_text(out, "value", CHART_WIDTH - LABEL_TWO + 12, top + BAR - 3, range->label);
}

void chart_ranges(FILE *out, const char *what, unsigned count, const struct chart_range *ranges,
                  const struct scale *x)
{
    bool tall = false;
    for (unsigned i = 0; i < count; i++)
        tall |= is_long(ranges[i].name);
    struct rows r = rows_for(tall, LABEL_TWO);
    double bottom = count * r.height;
    begin(out, what, bottom + 22);
    put_x_ticks(out, x, r.left, r.room, bottom);
    for (unsigned i = 0; i < count; i++) {
        put_name(out, &r, i, ranges[i].name);
        if (isfinite(ranges[i].low))
            put_range(out, &r, i, &ranges[i], x);
    }
    end(out);
}

/* ---- lines ------------------------------------------------------------------------------------ */

#define PLOT_LEFT   46.0
#define PLOT_RIGHT  18.0
#define PLOT_TOP    10.0
#define PLOT_BOTTOM 180.0 /* of the plot */
#define PLOT_HEIGHT 204.0 /* of the chart */
#define MARKS_MAX   40u   /* points of a series that get a visible mark */
#define TARGETS_MAX 120u  /* points that can be pointed at */
#define MARK_SHAPES 5u

static double plot_x(const struct chart_axes *a, double x)
{
    return PLOT_LEFT + (CHART_WIDTH - PLOT_LEFT - PLOT_RIGHT) * scale_at(a->x, x);
}

static double plot_y(const struct chart_axes *a, double y)
{
    return PLOT_BOTTOM - (PLOT_BOTTOM - PLOT_TOP) * scale_at(a->y, y);
}

static void put_y_ticks(FILE *out, const struct scale *y, const struct chart_axes *a)
{
    char text[NUMBER_BYTES];
    for (unsigned i = 0; i < y->ticks; i++) {
        double at = plot_y(a, y->tick[i]);
        fprintf(out, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>\n", PLOT_LEFT, at,
                CHART_WIDTH - PLOT_RIGHT);
        put_text(out, "tick end", PLOT_LEFT - 6, at + 3.5, number_tick(y->tick[i], text));
    }
}

static void put_line(FILE *out, const struct chart_series *s, const struct chart_axes *a)
{
    bool drawn = false;
    fputs("<path class=\"line\" d=\"", out);
    for (unsigned i = 0; i < s->count; i++) {
        bool there = isfinite(s->point[i].y);
        if (there)
            fprintf(out, "%c%.1f %.1f", drawn ? 'L' : 'M', plot_x(a, s->point[i].x),
                    plot_y(a, s->point[i].y));
        drawn = there;
    }
    fputs("\"/>", out);
}

/* A mark whose shape tells the series where colours do not. */
static void put_mark(FILE *out, unsigned shape, double x, double y)
{
    static const char *const shapes[MARK_SHAPES] = {
        "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0",  "m-2.7 -2.7h5.4v5.4h-5.4z", "m0 -3.6l3.4 6h-6.8z",
        "m0 -3.8l3.8 3.8l-3.8 3.8l-3.8 -3.8z", "m-3.2 -2.2h6.4l-3.2 5.8z",
    };
    fprintf(out, "<path class=\"mark\" d=\"M%.1f %.1f%s\"/>", x, y, shapes[shape % MARK_SHAPES]);
}

static void put_points(FILE *out, unsigned shape, const struct chart_series *s,
                       const struct chart_axes *a)
{
    unsigned stride = 1 + (s->count - 1) / TARGETS_MAX;
    for (unsigned i = 0; i < s->count; i += stride) {
        const struct chart_point *p = &s->point[i];
        char tip[2 * CHART_TEXT_BYTES], x[NUMBER_BYTES], y[NUMBER_BYTES];
        if (!isfinite(p->y))
            continue;
        snprintf(tip, sizeof tip, "%s, %s%s: %s%s", s->name, number_short(p->x, x), a->x_unit,
                 number_short(p->y, y), a->y_unit);
        fputs("<g>", out);
        put_title(out, tip);
        fprintf(out, "<circle class=\"hit\" cx=\"%.1f\" cy=\"%.1f\" r=\"7\"/>", plot_x(a, p->x),
                plot_y(a, p->y));
        if (s->count <= MARKS_MAX)
            put_mark(out, shape, plot_x(a, p->x), plot_y(a, p->y));
        fputs("</g>\n", out);
    }
}

void chart_lines(FILE *out, const char *what, unsigned count, const struct chart_series *series,
                 const struct chart_axes *axes)
{
    begin(out, what, PLOT_HEIGHT);
    put_y_ticks(out, axes->y, axes);
    put_x_ticks(out, axes->x, PLOT_LEFT, CHART_WIDTH - PLOT_LEFT - PLOT_RIGHT, PLOT_BOTTOM);
    for (unsigned i = 0; i < count; i++) {
        fprintf(out, "<g class=\"%s\">", series[i].style);
        put_line(out, &series[i], axes);
        fputs("</g>\n", out);
    }
    for (unsigned i = 0; i < count; i++) { /* above all lines */
        fprintf(out, "<g class=\"%s\">\n", series[i].style);
        if (series[i].count > 0)
            put_points(out, i, &series[i], axes);
        fputs("</g>\n", out);
    }
    end(out);
}
