/* The scale of an axis: where values are, and its ticks, which are round numbers. It ends at 1e15, and a
 * logarithmic one begins at 1e-15 at the earliest. */
#ifndef REPORT_SCALE_H
#define REPORT_SCALE_H

#include <stdbool.h>

#define SCALE_TICKS_MAX 12u

struct scale {
    bool log;
    double low, high; /* low < high; both > 0 if log */
    unsigned ticks;
    double tick[SCALE_TICKS_MAX]; /* rising */
};

/* A linear scale from `low` up to a tick that is at least `high`. It has at most `ticks` ticks, which
 * is 3 to SCALE_TICKS_MAX. If high is not above low, the scale is one long. */
void scale_linear(struct scale *s, double low, double high, unsigned ticks);

/* A logarithmic scale that begins and ends with 1, 2 or 5 times a power of ten. Its ticks are these,
 * or if there would be too many, powers of ten. `low` and `high` are > 0. */
void scale_log(struct scale *s, double low, double high, unsigned ticks);

/* Where the value is: 0 at `low`, 1 at `high`. Values beyond the ends are at the ends. */
double scale_at(const struct scale *s, double value);

#endif
