/* Options that the commands which measure workloads have in common: bench and compare. */
#ifndef CLI_MEASURE_H
#define CLI_MEASURE_H

#include "bench/bench.h"
#include "cli/cli.h"

/* Of a struct bench_config *. */
#define MEASURE_OPTIONS(c)                                                                         \
    {.name = "tuning", .text = &(c)->tuning},                                                      \
        {.name = "workload", .take = measure_take_workloads, .arg = &(c)->workloads},              \
        {.name = "keys", .large = &(c)->keys, .min = 1, .max = BENCH_COUNT_MAX},                   \
        {.name = "ops", .large = &(c)->ops, .min = 1, .max = BENCH_COUNT_MAX},                     \
        {.name = "warmup", .large = &(c)->warmup, .max = BENCH_COUNT_MAX},                         \
        {.name = "depth", .number = &(c)->depth, .min = 1, .max = FAR_DEPTH_MAX},                  \
        {.name = "key-size", .take = measure_take_key_size, .arg = &(c)->sizes.key},               \
        {.name = "value-size", .take = measure_take_value_size, .arg = &(c)->sizes.value},         \
        {.name = "dist", .take = measure_take_dist, .arg = (c)},                                   \
        {.name = "theta", .take = measure_take_theta, .arg = &(c)->theta},                         \
    {                                                                                              \
        .name = "seed", .take = measure_take_seed, .arg = &(c)->seed                               \
    }

#define MEASURE_KEYS_HELP                                                                          \
    "  --key-size BYTES   bytes of a key, at least 8 (16); MIN-MAX varies them from key\n"         \
    "                     to key\n"                                                                \
    "  --value-size BYTES bytes of a value (32); MIN-MAX, with MIN at least 16, varies\n"          \
    "                     them from write to write\n"                                              \
    "  --dist NAME        how popular keys are: zipfian, uniform or latest (zipfian, but\n"        \
    "                     latest in workload d)\n"                                                 \
    "  --theta T          skew of zipfian and latest, greater than 0 (0.99)\n"                     \
    "  --seed N           seed of all random choices: the same seed gives the same\n"              \
    "                     operations (1)\n"

bool measure_take_workloads(const char *command, const char *text, void *arg);
bool measure_take_key_size(const char *command, const char *text, void *arg);
bool measure_take_value_size(const char *command, const char *text, void *arg);
bool measure_take_dist(const char *command, const char *text, void *arg);
bool measure_take_theta(const char *command, const char *text, void *arg);
bool measure_take_seed(const char *command, const char *text, void *arg);

#endif
