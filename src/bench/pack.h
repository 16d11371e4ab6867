/*
 * Structures as few bytes, for sending them to another machine.
 *
 * A run has hundreds of kilobytes, almost all of them empty buckets of histograms. It is taken as
 * words of 8 bytes, and packed as pairs: how many words that are 0 come first, and the next word.
 * Both are numbers with 7 bits in each byte, lowest first; the top bit says that more follow. What
 * the fields mean does not matter, so new ones need nothing here, unless they are pointers:
 * the receiver replaces those.
 */
#ifndef BENCH_PACK_H
#define BENCH_PACK_H

#include <stddef.h>

/* The most that `bytes` can become: no word is 0. */
#define PACK_BYTES_MAX(bytes) ((bytes) / 8 * 11)

/* bytes is a multiple of 8, and `from` is aligned to 8. Returns the length of what is in `to`. */
size_t pack(const void *from, size_t bytes, void *to);

/* The inverse; fills all of `to`. FAR_CORRUPT: this does not unpack to that many bytes. */
int unpack(const void *from, size_t len, void *to, size_t bytes);

#endif
