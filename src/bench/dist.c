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

/* ---- Gray's method --------------------------------------------------------------------------- */

static double zeta_sum(uint64_t from, uint64_t to, double theta, double sum)
{
    for (uint64_t i = from; i < to; i++)
        sum += 1 / pow((double)i + 1, theta);
    return sum;
}

static void gray_init(struct bench_dist *d, uint64_t n, double theta)
{
    bool carry_on = d->theta == theta && d->zeta > 0 && d->n <= n;
    d->zeta = zeta_sum(carry_on ? d->n : 0, n, theta, carry_on ? d->zeta : 0);
    d->second = 1 + pow(0.5, theta);
    d->eta = (1 - pow(2.0 / (double)n, 1 - theta)) / (1 - d->second / d->zeta);
}

static uint64_t gray_rank(const struct bench_dist *d, struct rng *rng)
{
    double u = rng_unit(rng);
    if (u * d->zeta < 1)
        return 0;
    if (u * d->zeta < d->second)
        return d->n > 1 ? 1 : 0;
    double rank = (double)d->n * pow(d->eta * u - d->eta + 1, 1 / (1 - d->theta));
    /* Rounding can reach n; with two keys, eta and so the rank are not a number. */
    return rank < (double)d->n ? (uint64_t)rank : d->n - 1;
}

/* ---- rejection-inversion ---------------------------------------------------------------------
 *
 * The weight of k = rank + 1 is h(k) = k^-theta. H is an integral of h. h is convex, so a bar of
 * height h(k) over [k - 1/2, k + 1/2] has less area than H(k + 1/2) - H(k - 1/2). To draw, take a
 * point u that is uniform in H, round H^-1(u) to k, and accept it if u is in the upper part of k's
 * interval, of length h(k): then every k is accepted in proportion to its weight. The interval of
 * k = 1 is cut to exactly h(1) = 1, so it is never rejected.
 */

/* log(1 + x) / x and (exp(x) - 1) / x, which are 1 at x = 0. */
static double log1p_ratio(double x)
{
    return x != 0 ? log1p(x) / x : 1;
}

static double expm1_ratio(double x)
{
    return x != 0 ? expm1(x) / x : 1;
}

static double weight(double theta, double x)
{
    return pow(x, -theta);
}

/* H(x) = (x^(1 - theta) - 1) / (1 - theta), or log x if theta is 1. */
static double integral(double theta, double x)
{
    double log_x = log(x);
    return expm1_ratio((1 - theta) * log_x) * log_x;
}

static double integral_inverse(double theta, double u)
{
    double t = u * (1 - theta);
    return exp(log1p_ratio(t > -1 ? t : -1) * u); /* only rounding can make t less than -1 */
}

static void inversion_init(struct bench_dist *d, uint64_t n, double theta)
{
    d->low = integral(theta, 1.5) - 1;
    d->high = integral(theta, (double)n + 0.5);
    /* A point so close below k is accepted for every k; this spares computing H again. */
    d->near = 2 - integral_inverse(theta, integral(theta, 2.5) - weight(theta, 2));
}

/* Most points are accepted, so the bound on the attempts is never reached in practice. */
#define ATTEMPTS_MAX 1000u

static uint64_t inversion_rank(const struct bench_dist *d, struct rng *rng)
{
    double k = 1;
    for (unsigned i = 0; i < ATTEMPTS_MAX; i++) {
        double u = d->high + rng_unit(rng) * (d->low - d->high);
        double x = integral_inverse(d->theta, u);
        k = x < (double)d->n ? floor(x + 0.5) : (double)d->n;
        k = k < 1 ? 1 : k;
        if (k - x <= d->near || u >= integral(d->theta, k + 0.5) - weight(d->theta, k))
            break;
    }
    return (uint64_t)k - 1;
}

/* ---- all ------------------------------------------------------------------------------------- */

void bench_dist_init(struct bench_dist *d, enum bench_dist_kind kind, uint64_t n, double theta)
{
    ASSERT(n > 0 && (kind == BENCH_DIST_UNIFORM || (theta > 0 && isfinite(theta))));
    bool zipfian = kind != BENCH_DIST_UNIFORM, gray = zipfian && theta <= BENCH_GRAY_THETA_MAX;
    d->kind = kind;
    d->step = permutation_step(n);
    if (gray)
        gray_init(d, n, theta);
    else
        d->zeta = 0; /* it was the sum for another n */
    if (zipfian && !gray)
        inversion_init(d, n, theta);
    d->theta = theta;
    d->n = n;
}

uint64_t bench_dist_rank(const struct bench_dist *d, struct rng *rng)
{
    if (d->kind == BENCH_DIST_UNIFORM)
        return rng_below(rng, d->n);
    return d->theta <= BENCH_GRAY_THETA_MAX ? gray_rank(d, rng) : inversion_rank(d, rng);
}

uint64_t bench_dist_place(const struct bench_dist *d, uint64_t rank)
{
    ASSERT(rank < d->n);
    if (d->kind == BENCH_DIST_UNIFORM)
        return rank; /* uniform ranks need no scattering */
    return (uint64_t)((unsigned __int128)rank * d->step % d->n);
}
