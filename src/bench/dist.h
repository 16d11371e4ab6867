/*
 * Which key next: how popularity is spread over n keys.
 *
 *   zipfian   rank r is drawn in proportion to 1 / (r + 1)^theta, by the method of Gray et al.,
 *             "Quickly generating billion-record synthetic databases" (SIGMOD 1994), which YCSB
 *             uses too; a permutation scatters the ranks over the keys
 *   uniform   all keys are equally popular
 *   latest    zipfian, rank 0 being the key added last
 */
#ifndef BENCH_DIST_H
#define BENCH_DIST_H

#include "base/rng.h"

#include <stdbool.h>
#include <stdint.h>

enum bench_dist_kind { BENCH_DIST_ZIPFIAN, BENCH_DIST_UNIFORM, BENCH_DIST_LATEST };

struct bench_dist {
    enum bench_dist_kind kind;
    uint64_t n;
    uint64_t step; /* of the permutation: coprime to n */
    double theta, zeta, eta, second;
};

const char *bench_dist_name(enum bench_dist_kind kind);
bool bench_dist_parse(const char *name, enum bench_dist_kind *kind);

/*
 * n > 0; theta is in (0, 1), and uniform does not use it. The first zipfian call takes time in
 * proportion to n. A new struct must be zeroed; one that was initialized before keeps its sum, and
 * only the keys added since then take time.
 */
void bench_dist_init(struct bench_dist *d, enum bench_dist_kind kind, uint64_t n, double theta);

/* Draws a rank in [0, n). Unless all are equally popular, 0 is the most popular. */
uint64_t bench_dist_rank(const struct bench_dist *d, struct rng *rng);

/* Maps a rank to a place in [0, n): a permutation. */
uint64_t bench_dist_place(const struct bench_dist *d, uint64_t rank);

#endif
