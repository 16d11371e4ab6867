/* What the papers claim, and whether our results say the same. */
#ifndef REPRODUCE_CLAIM_H
#define REPRODUCE_CLAIM_H

#include "reproduce/results.h"

enum claim_verdict { CLAIM_HOLDS, CLAIM_FAILS, CLAIM_OPEN };

struct claim_finding {
    enum claim_verdict verdict;
    char why[512]; /* our numbers */
};

struct claim {
    const char *name;   /* SHARD-CLAIM-1; NULL ends an array of claims */
    const char *source; /* the place in the paper */
    const char *text;   /* what it says, with its numbers */
    void (*decide)(const struct results *r, struct claim_finding *finding);
    /* Why it need not hold here: printed if it does not. NULL: no reason is known. */
    const char *reason;
};

/* Sets the finding: the claim holds if the margin is positive. A margin that is not a number means
 * that something was not measured, so that nothing can be told. The text has our numbers. */
void claim_decide(struct claim_finding *f, double margin, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets the finding: nothing can be told, for this reason. */
void claim_open(struct claim_finding *f, const char *why);

/* The least of the numbers; NAN if one of them is. */
double claim_least(unsigned count, const double *numbers);
#define CLAIM_ALL(...)                                                                             \
    claim_least(sizeof((double[]){__VA_ARGS__}) / sizeof(double), (double[]){__VA_ARGS__})

/* Are the numbers rising? The margin is the least step, plus `slack` times the number before it. */
double claim_rising(unsigned count, const double *numbers, double slack);

struct claim_finding claim_judge(const struct claim *claim, const struct results *r);

/* "holds", "does not hold", "cannot be told here" */
const char *claim_verdict_text(enum claim_verdict verdict);

#endif
