/* The runs of all machines in one. */
#ifndef BENCH_MERGE_H
#define BENCH_MERGE_H

#include "bench/bench.h"
#include "bench/meet.h"

/* A step of all machines: *run, what this one measured, becomes what all of them measured together,
 * the same on each. `status` is what became of it here. FAR_NO_MEMORY, or as meet_agree(). */
int merge_runs(struct meet *meet, int status, struct bench_run *run);

#endif
