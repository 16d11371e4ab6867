/* What the papers claim, and whether our results say the same. */
#ifndef REPRODUCE_CLAIM_H
#define REPRODUCE_CLAIM_H

#include "reproduce/results.h"

#include <stdbool.h>

enum claim_verdict {
    CLAIM_HOLDS,
    CLAIM_OTHER_SIZE, /* a difference as claimed, but not as large or as small */
    CLAIM_FAILS,
    CLAIM_OPEN,    /* something is missing, or the seeds disagree */
    CLAIM_NOT_RUN, /* nothing is measured for it */
};

struct claim_finding {
    enum claim_verdict verdict;
    char why[1024]; /* our numbers, and the reason if it was tested */
};

/* Why a claim need not hold here. It is printed with the numbers of a run that would refute it. */
struct claim_reason {
    const char *text;
    /* Are the run's numbers as the reason says? Writes them. NULL: why the claim is not run. */
    bool (*tested)(const struct results *r, char *numbers, size_t room);
};
#define CLAIM_REASON(text, tested)                                                                 \
    &(const struct claim_reason)                                                                   \
    {                                                                                              \
        text, tested                                                                               \
    }

struct claim {
    const char *name;   /* SHARD-CLAIM-1; NULL ends an array of claims */
    const char *source; /* the place in the paper */
    const char *text;   /* what it says, with its numbers */
    void (*decide)(const struct results *r, struct claim_finding *finding); /* NULL: not run */
    const struct claim_reason *reason; /* NULL: none is known that was tested */
};
/* The end of a claim that nothing is measured for. */
#define CLAIM_NOT_MEASURED(why) NULL, CLAIM_REASON(why, NULL)

/*
 * Sets the finding. The margin is the distance to the place where the claim would be wrong: it
 * holds if that is positive, and does not if it is negative. At 0 the difference has the direction
 * of the claim, but another size. A margin that is not a number means that something was not
 * measured, so that nothing can be told. The text has our numbers.
 */
void claim_decide(struct claim_finding *f, double margin, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets the finding: nothing can be told, for this reason. */
void claim_open(struct claim_finding *f, const char *why);

/* A difference of less than a tenth is none: it is a tie. */
#define CLAIM_TIE 0.1
/* A number is as claimed if it is within a quarter of that. */
#define CLAIM_NEAR 0.25

/* The margin of "`more` is more than `less`", times as much as the paper says. `times` is 0 if the
 * paper has no number. */
double claim_more(double more, double less, double times);

/* The least of the numbers; NAN if one of them is. */
double claim_least(unsigned count, const double *numbers);
#define CLAIM_ALL(...)                                                                             \
    claim_least(sizeof((double[]){__VA_ARGS__}) / sizeof(double), (double[]){__VA_ARGS__})

/* Are the numbers rising, from the first to the last by more than a tie? None may be less than the
 * one before it by more than `slack` times that. */
double claim_rising(unsigned count, const double *numbers, double slack);

/* Judges by the median of the seeds. If a seed by itself says otherwise, nothing can be told. */
struct claim_finding claim_judge(const struct claim *claim, const struct results *r);

/* "holds", "same direction, other size", "does not hold", "cannot be told", "not run" */
const char *claim_verdict_text(enum claim_verdict verdict);

#endif
