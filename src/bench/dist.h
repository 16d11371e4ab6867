/*
 * Which key next: how popularity is spread over n keys.
 *
 *   zipfian   rank r is drawn in proportion to 1 / (r + 1)^theta; a permutation scatters the ranks
 *             over the keys
 *   uniform   all keys are equally popular
 *   latest    zipfian, rank 0 being the key added last
 *
 * There are two methods to draw a rank. Up to theta = BENCH_GRAY_THETA_MAX, it is that of Gray et
 * al., "Quickly generating billion-record synthetic databases" (SIGMOD 1994), which YCSB uses too.
 * It is exact for the first two ranks and approximates the others by an integral. It divides by
 * 1 - theta, so it loses precision near 1. Above, it is rejection-inversion by Hoermann and
 * Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions" (ACM
 * TOMACS 6(3), 1996), which is exact for every theta > 0.
 */
#ifndef BENCH_DIST_H
#define BENCH_DIST_H

#include "base/rng.h"

#include <stdbool.h>
#include <stdint.h>

#define BENCH_GRAY_THETA_MAX 0.999

enum bench_dist_kind { BENCH_DIST_ZIPFIAN, BENCH_DIST_UNIFORM, BENCH_DIST_LATEST };

struct bench_dist {
    enum bench_dist_kind kind;
    uint64_t n;
    uint64_t step; /* of the permutation: coprime to n */
    double theta;
    double zeta, eta, second; /* of Gray's method */
    double low, high, near;   /* of rejection-inversion */
};

const char *bench_dist_name(enum bench_dist_kind kind);
bool bench_dist_parse(const char *name, enum bench_dist_kind *kind);

/*
 * n > 0; theta is finite and > 0, and uniform does not use it. With Gray's method, the first call
 * takes time in proportion to n. A new struct must be zeroed; one that was initialized before keeps
 * its sum, and only the keys added since then take time.
 */
void bench_dist_init(struct bench_dist *d, enum bench_dist_kind kind, uint64_t n, double theta);

/* Draws a rank in [0, n). Unless all are equally popular, 0 is the most popular. */
uint64_t bench_dist_rank(const struct bench_dist *d, struct rng *rng);

/* Maps a rank to a place in [0, n): a permutation. */
uint64_t bench_dist_place(const struct bench_dist *d, uint64_t rank);

#endif
