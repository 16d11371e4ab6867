#include "reproduce/claim.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

void claim_open(struct claim_finding *f, const char *why)
{
    f->verdict = CLAIM_OPEN;
    snprintf(f->why, sizeof f->why, "%s", why);
}

void claim_decide(struct claim_finding *f, double margin, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(f->why, sizeof f->why, format, args);
    va_end(args);
    f->verdict = margin > 0 ? CLAIM_HOLDS : CLAIM_FAILS;
    if (isnan(margin))
        claim_open(f, "not everything that it needs was measured");
}

double claim_least(unsigned count, const double *numbers)
{
    double least = INFINITY;
    for (unsigned i = 0; i < count; i++) {
        if (isnan(numbers[i]))
            return NAN;
        if (numbers[i] < least)
            least = numbers[i];
    }
    return least;
}

double claim_rising(unsigned count, const double *numbers, double slack)
{
    double least = INFINITY;
    for (unsigned i = 1; i < count; i++) {
        double step = numbers[i] - numbers[i - 1] * (1 - slack);
        if (isnan(step))
            return NAN;
        if (step < least)
            least = step;
    }
    return least;
}

struct claim_finding claim_judge(const struct claim *claim, const struct results *r)
{
    struct claim_finding finding = {.verdict = CLAIM_OPEN};
    claim->decide(r, &finding);
    return finding;
}

const char *claim_verdict_text(enum claim_verdict verdict)
{
    static const char *const text[] = {
        [CLAIM_HOLDS] = "holds",
        [CLAIM_FAILS] = "does not hold",
        [CLAIM_OPEN] = "cannot be told here",
    };
    return text[verdict];
}
