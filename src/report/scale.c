#include "report/scale.h"

#include "base/err.h"

#include <math.h>

/* Ticks are multiples of the step. This much of a step is the error of floating point. */
#define SLACK 1e-9

/* Scales end here. No measured number is beyond, but a file with results may have any. */
#define LEAST 1e-15
#define MOST  1e15

/* The least of 1, 2, 5 and, if `quarters`, 2.5 times a power of ten that is at least the value. */
static double round_to(double value, bool quarters)
{
    double power = pow(10, floor(log10(value)));
    static const double steps[] = {1, 2, 2.5, 5};
    for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i] * power >= value * (1 - SLACK) && (quarters || steps[i] != 2.5))
            return steps[i] * power;
    return 10 * power;
}

static double round_up(double value)
{
    return round_to(value, false);
}

static double step_of(double low, double high, unsigned ticks)
{
    ASSERT(ticks >= 3 && ticks <= SCALE_TICKS_MAX);
    return round_to((high - low) / (ticks - 1), true);
}

void scale_linear(struct scale *s, double low, double high, unsigned ticks)
{
    if (high > MOST)
        high = MOST;
    if (!(high > low))
        high = low + 1;
    double step = step_of(low, high, ticks);
    long first = lround(ceil(low / step - SLACK)), last = lround(ceil(high / step - SLACK));
    *s = (struct scale){.low = low, .high = (double)last * step};
    for (long n = first; n <= last && s->ticks < SCALE_TICKS_MAX; n++)
        s->tick[s->ticks++] = (double)n * step;
}

/* The greatest of 1, 2 and 5 times a power of ten that is at most the value. */
static double round_down(double value)
{
    double up = round_up(value);
    if (up <= value * (1 + SLACK))
        return up;
    double lead = up / pow(10, floor(log10(up) + SLACK));
    return lead > 3 ? up / 2.5 : up / 2;
}

static bool is_power(double value)
{
    double exponent = log10(value);
    return fabs(exponent - round(exponent)) < 1e-6;
}

/* Adds the ticks: all 1, 2, 5, or every `decades`-th power of ten. */
static void add_log_ticks(struct scale *s, unsigned decades)
{
    double at = s->low;
    s->ticks = 0;
    while (at <= s->high * (1 + SLACK)) {
        bool kept = decades == 0 || (is_power(at) && lround(log10(at)) % (long)decades == 0);
        if (kept && s->ticks < SCALE_TICKS_MAX)
            s->tick[s->ticks++] = at;
        at = round_up(at * 1.5);
    }
}

void scale_log(struct scale *s, double low, double high, unsigned ticks)
{
    ASSERT(low > 0 && high > 0 && ticks <= SCALE_TICKS_MAX);
    low = fmin(fmax(low, LEAST), MOST);
    high = fmin(fmax(high, LEAST), MOST);
    *s = (struct scale){.log = true, .low = round_down(low), .high = round_up(high)};
    if (!(s->high > s->low * (1 + SLACK)))
        s->high = round_up(s->low * 1.5);
    double spanned = log10(s->high / s->low);
    unsigned decades = 0;
    if (3 * spanned + 1 > ticks) /* three ticks in a decade would be too many */
        decades = 1 + (unsigned)(spanned / ticks);
    add_log_ticks(s, decades);
}

double scale_at(const struct scale *s, double value)
{
    double part = s->log ? (value > 0 ? log(value / s->low) / log(s->high / s->low) : 0)
                         : (value - s->low) / (s->high - s->low);
    return part < 0 ? 0 : part > 1 ? 1 : part;
}
