/* Bare verbs on a modelled pool: rates that others have measured on real NICs. */
#ifndef BENCH_BARE_H
#define BENCH_BARE_H

#include "fabric/fabric.h"

/*
 * Every client posts `outstanding` verbs of `bytes` bytes at random places, each with a doorbell of
 * its own, waits for all of them, and begins again, `rounds` times. Sets *rate to millions of verbs
 * per second. FAR_BAD_URI, FAR_NO_MEMORY.
 */
int bare_rate(const char *uri, enum fab_kind kind, unsigned outstanding, unsigned bytes,
              unsigned rounds, double *rate);

#endif
