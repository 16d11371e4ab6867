/*
 * Keys and values by number. Key number n always has the same bytes, no two numbers have the same
 * ones, and the keys of neighbouring numbers look unrelated. A value begins with the number of its
 * key, so that a reader can check that it got the right value.
 *
 * Sizes may vary. The size of a key follows from its number, and that of a value from the number
 * and the version, which are both in the value. So a reader can check the sizes, too.
 */
#ifndef BENCH_KEYS_H
#define BENCH_KEYS_H

#include "farside.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_KEY_MIN          8  /* bytes that distinguish all numbers */
#define BENCH_VALUE_VARIED_MIN 16 /* bytes that hold number and version: values that vary in size */

/* Bytes, from min to max: each size is equally likely. */
struct bench_range {
    unsigned min, max;
};

struct bench_sizes {
    struct bench_range key;   /* at least BENCH_KEY_MIN */
    struct bench_range value; /* at least BENCH_VALUE_VARIED_MIN, if min < max */
};

/* A bijection of 64-bit numbers whose results look random; also makes seeds. */
uint64_t bench_mix(uint64_t n);

size_t bench_key_size(const struct bench_sizes *sizes, uint64_t number);
size_t bench_value_size(const struct bench_sizes *sizes, uint64_t number, uint64_t version);

/* size is at least BENCH_KEY_MIN. */
void bench_key_write(uint64_t number, void *key, size_t size);

/* Fills the part of a value that all keys have in common. */
void bench_value_init(void *value, size_t size);
/* Makes it the value of one key and version. */
void bench_value_write(uint64_t number, uint64_t version, void *value, size_t size);
/* Makes `value` the one that follows `old`: the version, if there is one, is greater by one.
 * Returns its size. */
size_t bench_value_next(const struct bench_sizes *sizes, uint64_t number, const void *old,
                        size_t old_size, void *value);
/* Can these bytes be a value of that key? A value under 8 bytes has only a part of the number. */
bool bench_value_right(const struct bench_sizes *sizes, uint64_t number, const void *value,
                       size_t size);
/* Is this a key with a value of its own? If values have under 8 bytes, only the sizes are checked.
 * `expected`: room for a key. */
bool bench_entry_right(const struct bench_sizes *sizes, const struct far_entry *entry,
                       void *expected);

#endif
