/*
 * Mixes: workloads that the user defines.
 *
 *   insert=30+get=70
 *
 * Each part names an operation and says how many percent of all operations it is. The parts are
 * whole numbers, and they sum to 100.
 */
#ifndef BENCH_MIX_H
#define BENCH_MIX_H

#include "bench/workload.h"

/* The operations that a mix can have, in order; NULL after the last. */
const char *mix_operation_at(unsigned i);

/* Reads a mix, whose text becomes the workload's name. FAR_INVALID; the detail says what is
 * wrong. */
int mix_parse(const char *text, struct workload *w);

#endif
