/*
 * Keys and values by number. Key number n always has the same bytes, no two numbers have the same
 * ones, and the keys of neighbouring numbers look unrelated. A value begins with the number of its
 * key, so that a reader can check that it got the right value.
 */
#ifndef BENCH_KEYS_H
#define BENCH_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_KEY_MIN 8 /* bytes that distinguish all numbers */

/* A bijection of 64-bit numbers whose results look random; also makes seeds. */
uint64_t bench_mix(uint64_t n);

/* size is at least BENCH_KEY_MIN. */
void bench_key_write(uint64_t number, void *key, size_t size);

/* Fills the part of a value that all keys have in common. */
void bench_value_init(void *value, size_t size);
/* Makes it the value of one key; the version only helps in a debugger. */
void bench_value_write(uint64_t number, uint64_t version, void *value, size_t size);
/* Increments the version, if the value has one. */
void bench_value_increment(void *value, size_t size);
/* Can these bytes be a value of that key? A value under 8 bytes has only a part of the number. */
bool bench_value_belongs(uint64_t number, const void *value, size_t size);
/* Does the value belong to the key? Values under 8 bytes always pass. `expected`: room for a
 * key. */
bool bench_value_fits_key(const void *value, size_t value_size, const void *key, size_t key_size,
                          void *expected);

#endif
