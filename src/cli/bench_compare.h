/* farside bench --compare. */
#ifndef CLI_BENCH_COMPARE_H
#define CLI_BENCH_COMPARE_H

#include "bench/bench.h"

/* Compares with the rivals of the list, and prints the results. Returns the exit status. */
int bench_compare(const struct bench_config *config, const char *list, unsigned rounds,
                  const char *json);

#endif
