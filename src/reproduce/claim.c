#include "reproduce/claim.h"

#include "reproduce/cell.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CLAIM_NUMBERS_BYTES 160

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
    f->verdict = margin > 0 ? CLAIM_HOLDS : margin < 0 ? CLAIM_FAILS : CLAIM_OTHER_SIZE;
    if (isnan(margin))
        claim_open(f, "not everything that it needs was measured");
}

double claim_more(double more, double less, double times)
{
    double ratio = more / less;
    if (isnan(ratio))
        return NAN;
    if (times > 0 && ratio < times * (1 + CLAIM_NEAR) && ratio > times / (1 + CLAIM_NEAR) &&
        (ratio > 1 + CLAIM_TIE || times < 1 + CLAIM_TIE))
        return 1;
    if (ratio <= 1 + CLAIM_TIE)
        return -1;
    return times > 0 ? 0 : 1;
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
    double least = claim_more(numbers[count - 1], numbers[0], 0);
    for (unsigned i = 1; i < count; i++) {
        double step = numbers[i] - numbers[i - 1] * (1 - slack);
        if (isnan(step) || isnan(least))
            return NAN;
        if (step < 0)
            least = -1;
    }
    return least;
}

/* Adds the reason behind the numbers, if the run that could refute it has not. */
static void add_reason(const struct claim *claim, const struct results *r, struct claim_finding *f)
{
    char numbers[CLAIM_NUMBERS_BYTES] = "";
    size_t used = strlen(f->why);
    if (f->verdict == CLAIM_HOLDS || f->verdict == CLAIM_OPEN || !claim->reason ||
        !claim->reason->tested(r, numbers, sizeof numbers))
        return;
    snprintf(f->why + used, sizeof f->why - used, ". %s (%s)", claim->reason->text, numbers);
}

struct claim_finding claim_judge(const struct claim *claim, const struct results *r)
{
    struct claim_finding all = {.verdict = CLAIM_NOT_RUN};
    if (!claim->decide) {
        snprintf(all.why, sizeof all.why, "%s", claim->reason->text);
        return all;
    }
    claim->decide(r, &all);
    for (unsigned seed = 1; seed <= CELL_SEEDS && all.verdict != CLAIM_OPEN; seed++) {
        struct results one = *r;
        struct claim_finding its = {.verdict = CLAIM_OPEN};
        one.seed = seed;
        claim->decide(&one, &its);
        if (its.verdict != all.verdict && its.verdict != CLAIM_OPEN) {
            size_t used = strlen(all.why);
            all.verdict = CLAIM_OPEN;
            snprintf(all.why + used, sizeof all.why - used, "; seed %u by itself: %s", seed,
                     claim_verdict_text(its.verdict));
        }
    }
    add_reason(claim, r, &all);
    return all;
}

const char *claim_verdict_text(enum claim_verdict verdict)
{
    static const char *const text[] = {
        [CLAIM_HOLDS] = "holds",         [CLAIM_OTHER_SIZE] = "same direction, other size",
        [CLAIM_FAILS] = "does not hold", [CLAIM_OPEN] = "cannot be told",
        [CLAIM_NOT_RUN] = "not run",
    };
    return text[verdict];
}
