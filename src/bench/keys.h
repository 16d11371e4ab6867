/*
 * Keys and values by number. Key number n always has the same bytes, no two numbers share them,
 * and neighbouring numbers look unrelated. A value begins with the number of its key, so that
 * whoever reads it can tell whether it got the right one.
 */
#ifndef BENCH_KEYS_H
#define BENCH_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_KEY_MIN 8 /* bytes that tell all numbers apart */

/* A bijection of 64-bit numbers that leaves no pattern. */
uint64_t bench_mix(uint64_t n);

/* size is at least BENCH_KEY_MIN. */
void bench_key_write(uint64_t number, void *key, size_t size);

/* Fills the part of a value that is the same for all keys. */
void bench_value_init(void *value, size_t size);
/* Makes it the value of one key; the version is for whoever looks at it in a debugger. */
void bench_value_write(uint64_t number, uint64_t version, void *value, size_t size);
/* Adds one to the version of such a value. */
void bench_value_increment(void *value, size_t size);
/* Can these bytes be a value of that key? Values under 8 bytes are told apart by what they have. */
bool bench_value_belongs(uint64_t number, const void *value, size_t size);
/* Is that a key with a value of its own? `expected` has room for the key. Values under 8 bytes do not
 * tell. */
bool bench_value_fits_key(const void *value, size_t value_size, const void *key, size_t key_size,
                          void *expected);

#endif
