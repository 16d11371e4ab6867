/*
 * Charts, as inline SVG. They are functions of plain numbers.
 *
 * A chart is CHART_WIDTH units wide and scales with the page. A caller puts charts side by side where
 * there is room. Each mark has a <title> with its numbers, which browsers show under the pointer. Text
 * is placed so that no two labels can overlap; names of series stand in the page's legend instead.
 */
#ifndef REPORT_CHART_H
#define REPORT_CHART_H

#include "report/scale.h"

#include <stdio.h>

#define CHART_WIDTH      340
#define CHART_TEXT_BYTES 224

/* A horizontal bar: `value`, and behind it, in a lighter shade, `more`. */
struct chart_bar {
    const char *name, *style;
    double value, more;           /* more: 0 if there is nothing */
    char label[CHART_TEXT_BYTES]; /* at its end */
    char tip[CHART_TEXT_BYTES];   /* under the pointer */
};

/* Bars on a linear scale that begins with 0 and ends with `max`. Bars that are not a number are left
 * out, but keep their name. */
void chart_bars(FILE *out, const char *what, unsigned count, const struct chart_bar *bars,
                double max);

/* A range, and a mark beyond it: the median, the 99th percentile and the 99.9th. */
struct chart_range {
    const char *name, *style;
    double low, high, beyond;
    char label[CHART_TEXT_BYTES];
    char tip[CHART_TEXT_BYTES];
};

void chart_ranges(FILE *out, const char *what, unsigned count, const struct chart_range *ranges,
                  const struct scale *x);

struct chart_point {
    double x, y; /* y: NAN if there is none */
};

struct chart_series {
    const char *name, *style;
    unsigned count;
    const struct chart_point *point; /* x rises */
};

struct chart_axes {
    const struct scale *x, *y;
    const char *x_unit, *y_unit; /* in texts under the pointer: "1.2 us: 99 %" */
};

void chart_lines(FILE *out, const char *what, unsigned count, const struct chart_series *series,
                 const struct chart_axes *axes);

#endif
