/* Options that the commands which measure workloads have in common: bench and compare. */
#ifndef CLI_MEASURE_H
#define CLI_MEASURE_H

#include "bench/bench.h"
#include "cli/cli.h"

/* Of a struct bench_config *. */
#define MEASURE_OPTIONS(c)                                                                         \
    {"tuning", "TEXT", "parameters of the table: name=number, joined by &", .text = &(c)->tuning}, \
        {"warmup", "N",                                                                            \
         "operations before the others of each workload, which are not measured (0); "             \
         "load and iterate have none",                                                             \
         .large = &(c)->warmup, .max = BENCH_COUNT_MAX},                                           \
        {"key-size", "BYTES",                                                                      \
         "bytes of a key, at least 8 (16); MIN-MAX varies them from key to key",                   \
         .take = measure_take_key_size, .arg = &(c)->sizes.key},                                   \
        {"value-size", "BYTES",                                                                    \
         "bytes of a value (32); MIN-MAX, with MIN at least 16, varies them from write "           \
         "to write",                                                                               \
         .take = measure_take_value_size, .arg = &(c)->sizes.value},                               \
        {"dist", "NAME",                                                                           \
         "how popular keys are: zipfian, uniform or latest (zipfian, but latest in "               \
         "workload d)",                                                                            \
         .take = measure_take_dist, .arg = (c)},                                                   \
        {"theta", "T", "skew of zipfian and latest, greater than 0 (0.99)",                        \
         .take = measure_take_theta, .arg = &(c)->theta},                                          \
    {                                                                                              \
        "seed", "N", "seed of all random choices: the same seed gives the same operations (1)",    \
            .take = measure_take_seed, .arg = &(c)->seed                                           \
    }

bool measure_take_workloads(const char *command, const char *text, void *arg);
bool measure_take_key_size(const char *command, const char *text, void *arg);
bool measure_take_value_size(const char *command, const char *text, void *arg);
bool measure_take_dist(const char *command, const char *text, void *arg);
bool measure_take_theta(const char *command, const char *text, void *arg);
bool measure_take_seed(const char *command, const char *text, void *arg);

#endif
