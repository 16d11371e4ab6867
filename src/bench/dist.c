#include "bench/dist.h"
#include "base/err.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {[BENCH_DIST_ZIPFIAN] = "zipfian",
                                    [BENCH_DIST_UNIFORM] = "uniform",
                                    [BENCH_DIST_LATEST] = "latest"};

const char *bench_dist_name(enum bench_dist_kind kind)
{
    return names[kind];
}

bool bench_dist_parse(const char *name, enum bench_dist_kind *kind)
{
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) {
            *kind = i;
            return true;
        }
    }
    return false;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* A step near the golden section of n sends neighbouring ranks far apart for every n. The search
 * ends at n - 1 at the latest, which is coprime to n. */
static uint64_t permutation_step(uint64_t n)
{
    uint64_t step = (uint64_t)((double)n * 0.6180339887498949);
    while (gcd(step, n) != 1)
        step++;
    return step;
}

static double zeta_sum(uint64_t from, uint64_t to, double theta, double sum)
{
    for (uint64_t i = from; i < to; i++)
        sum += 1 / pow((double)i + 1, theta);
    return sum;
}

void bench_dist_init(struct bench_dist *d, enum bench_dist_kind kind, uint64_t n, double theta)
{
    ASSERT(n > 0 && (kind == BENCH_DIST_UNIFORM || (theta > 0 && theta < 1)));
    d->kind = kind;
    d->step = permutation_step(n);
    if (kind != BENCH_DIST_UNIFORM) {
        bool carry_on = d->theta == theta && d->zeta > 0 && d->n <= n;
        d->zeta = zeta_sum(carry_on ? d->n : 0, n, theta, carry_on ? d->zeta : 0);
        d->theta = theta;
        d->second = 1 + pow(0.5, theta);
        d->eta = (1 - pow(2.0 / (double)n, 1 - theta)) / (1 - d->second / d->zeta);
    } else {
        d->zeta = 0; /* it was the sum for another n */
    }
    d->n = n;
}

uint64_t bench_dist_rank(const struct bench_dist *d, struct rng *rng)
{
    if (d->kind == BENCH_DIST_UNIFORM)
        return rng_below(rng, d->n);

    double u = rng_unit(rng);
    if (u * d->zeta < 1)
        return 0;
    if (u * d->zeta < d->second)
        return d->n > 1 ? 1 : 0;
    double rank = (double)d->n * pow(d->eta * u - d->eta + 1, 1 / (1 - d->theta));
    /* Rounding can reach n; with two keys, eta and so the rank are not a number. */
    return rank < (double)d->n ? (uint64_t)rank : d->n - 1;
}

uint64_t bench_dist_place(const struct bench_dist *d, uint64_t rank)
{
    ASSERT(rank < d->n);
    if (d->kind == BENCH_DIST_UNIFORM)
        return rank; /* uniform ranks need no scattering */
    return (uint64_t)((unsigned __int128)rank * d->step % d->n);
}
