/* Bare verbs on a modelled pool: rates that others have measured on real NICs. */
#ifndef BENCH_BARE_H
#define BENCH_BARE_H

#include "fabric/fabric.h"

/* FAB_CAS is one of a lock: see locks= of model:. */
struct bare_verbs {
    enum fab_kind kind;
    unsigned outstanding, bytes, rounds;
    bool one_place; /* else at random places */
};

/*
 * Every client posts `outstanding` verbs, each with a doorbell of its own, waits for all of them,
 * and begins again, `rounds` times. Sets *rate to millions of verbs per second. FAR_BAD_URI,
 * FAR_NO_MEMORY.
 */
int bare_rate(const char *uri, const struct bare_verbs *verbs, double *rate);

#endif
