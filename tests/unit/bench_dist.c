/* The popularity of keys: zipfian follows the formula, uniform is flat, places are a
 * permutation. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "bench/dist.h"

#include <math.h>
#include <stdlib.h>

#define DRAWS 1000000u

static double expected_share(uint64_t from, uint64_t to, uint64_t n, double theta)
{
    double part = 0, all = 0;
    for (uint64_t i = 0; i < n; i++) {
        double weight = 1 / pow((double)i + 1, theta);
        all += weight;
        part += i >= from && i < to ? weight : 0;
    }
    return part / all;
}

static void draw(const struct bench_dist *d, uint64_t seed, unsigned *hits)
{
    struct rng rng;
    rng_seed(&rng, seed);
    for (unsigned i = 0; i < DRAWS; i++) {
        uint64_t rank = bench_dist_rank(d, &rng);
        assert_true(rank < d->n);
        hits[rank]++;
    }
}

static double share_of(const unsigned *hits, uint64_t from, uint64_t to)
{
    double sum = 0;
    for (uint64_t i = from; i < to; i++)
        sum += hits[i];
    return sum / DRAWS;
}

static void zipfian_follows_the_formula(void **state)
{
    (void)state;
    const double thetas[] = {0.5, 0.9, 0.99};
    for (unsigned t = 0; t < 3; t++) {
        struct bench_dist d = {.n = 0};
        unsigned *hits = calloc(10000, sizeof *hits);
        assert_non_null(hits);
        bench_dist_init(&d, BENCH_DIST_ZIPFIAN, 10000, thetas[t]);
        draw(&d, 42, hits);

        /* The first two ranks are exact. The others come from an integral, so bands of them
         * agree. */
        const uint64_t edges[] = {0, 1, 2, 10, 100, 1000, 10000};
        for (unsigned i = 0; i + 1 < sizeof edges / sizeof *edges; i++) {
            double want = expected_share(edges[i], edges[i + 1], 10000, thetas[t]);
            double got = share_of(hits, edges[i], edges[i + 1]);
            assert_true(fabs(got - want) < 0.1 * want + 0.002);
        }
        free(hits);
    }
}

/* Five standard deviations of the number of hits, as a share. */
static double tolerance(double share)
{
    return 5 * sqrt(share * (1 - share) / DRAWS);
}

/* Near 1 and above, all ranks are drawn with exactly their probability. */
static void zipfian_is_exact_for_any_large_theta(void **state)
{
    (void)state;
    static const double thetas[] = {0.9995, 1, 1.0000001, 1.2, 2, 7};
    static const uint64_t sizes[] = {1, 2, 3, 10, 1000};
    static const uint64_t edges[] = {0, 1, 2, 3, 5, 10, 30, 100, 300, 1000};
    for (unsigned t = 0; t < sizeof thetas / sizeof *thetas; t++) {
        for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            struct bench_dist d = {.n = 0};
            unsigned hits[1000] = {0};
            bench_dist_init(&d, BENCH_DIST_ZIPFIAN, sizes[s], thetas[t]);
            draw(&d, 7, hits);
            for (unsigned i = 0; i + 1 < sizeof edges / sizeof *edges; i++) {
                double want = expected_share(edges[i], edges[i + 1], sizes[s], thetas[t]);
                double got = share_of(hits, edges[i], edges[i + 1]);
                if (fabs(got - want) > tolerance(want) + 1e-9)
                    fail_msg("theta %g, %d keys, ranks %d to %d: %g instead of %g", thetas[t],
                             (int)sizes[s], (int)edges[i], (int)edges[i + 1], got, want);
            }
        }
    }
}

static void an_extreme_theta_draws_the_first_rank_only(void **state)
{
    (void)state;
    static const double thetas[] = {1000, 1e10, 1e308};
    for (unsigned t = 0; t < sizeof thetas / sizeof *thetas; t++) {
        struct bench_dist d = {.n = 0};
        struct rng rng;
        bench_dist_init(&d, BENCH_DIST_ZIPFIAN, 1000000000, thetas[t]);
        rng_seed(&rng, 1);
        for (unsigned i = 0; i < 10000; i++)
            assert_int_equal(bench_dist_rank(&d, &rng), 0);
    }
}

/* A billion keys at theta 1: the first rank has a share of 1 / H(10^9), H(n) being the harmonic
 * number, log n + 0.5772 + 1 / 2n. */
static void many_keys_need_no_sum_above_one(void **state)
{
    (void)state;
    struct bench_dist d = {.n = 0};
    struct rng rng;
    const double n = 1e9, want = 1 / (log(n) + 0.57721566490153286 + 0.5 / n);
    unsigned first = 0, lower_half = 0;
    bench_dist_init(&d, BENCH_DIST_ZIPFIAN, (uint64_t)n, 1);
    rng_seed(&rng, 3);
    for (unsigned i = 0; i < DRAWS; i++) {
        uint64_t rank = bench_dist_rank(&d, &rng);
        assert_true(rank < d.n);
        first += rank == 0;
        lower_half += rank >= d.n / 2;
    }
    double half = log(2) * want;
    assert_true(fabs((double)first / DRAWS - want) < tolerance(want));
    assert_true(fabs((double)lower_half / DRAWS - half) < tolerance(half));
}

static void uniform_draws_all_keys_equally_often(void **state)
{
    (void)state;
    struct bench_dist d = {.n = 0};
    unsigned hits[100] = {0};
    bench_dist_init(&d, BENCH_DIST_UNIFORM, 100, 0);
    draw(&d, 42, hits);
    for (unsigned i = 0; i < 100; i++)
        assert_true(fabs(hits[i] - DRAWS / 100.0) < 0.05 * DRAWS / 100.0);
}

static void every_rank_is_drawn_even_of_one_to_five_keys(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 5; n++) {
        for (int kind = BENCH_DIST_ZIPFIAN; kind <= BENCH_DIST_LATEST; kind++) {
            struct bench_dist d = {.n = 0};
            struct rng rng;
            unsigned hits[5] = {0};
            bench_dist_init(&d, kind, n, n % 2 == 0 ? 0.99 : 1.1);
            rng_seed(&rng, n);
            for (unsigned i = 0; i < 10000; i++) {
                uint64_t rank = bench_dist_rank(&d, &rng);
                assert_true(rank < n);
                hits[rank]++;
            }
            for (uint64_t i = 0; i < n; i++)
                assert_true(hits[i] > 0);
        }
    }
}

static void places_are_a_permutation(void **state)
{
    (void)state;
    const uint64_t sizes[] = {1, 2, 3, 4, 6, 10, 97, 1000, 4096, 30030, 65536, 65537};
    for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct bench_dist d = {.n = 0};
        uint64_t n = sizes[s];
        unsigned char *seen = calloc(n, 1);
        assert_non_null(seen);
        bench_dist_init(&d, BENCH_DIST_ZIPFIAN, n, 0.99);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t place = bench_dist_place(&d, i);
            assert_true(place < n);
            assert_int_equal(seen[place]++, 0);
        }
        free(seen);
    }
}

static void a_sum_that_is_continued_equals_a_new_one(void **state)
{
    (void)state;
    struct bench_dist carried = {.n = 0}, fresh = {.n = 0};
    bench_dist_init(&carried, BENCH_DIST_ZIPFIAN, 1000, 0.8);
    bench_dist_init(&carried, BENCH_DIST_LATEST, 5000, 0.8);  /* more keys */
    bench_dist_init(&carried, BENCH_DIST_UNIFORM, 7000, 0.8); /* needs no sum */
    bench_dist_init(&carried, BENCH_DIST_ZIPFIAN, 3000, 0.8); /* fewer keys */
    bench_dist_init(&carried, BENCH_DIST_ZIPFIAN, 3000, 0.7); /* another skew */
    bench_dist_init(&carried, BENCH_DIST_ZIPFIAN, 3500, 0.7);
    bench_dist_init(&fresh, BENCH_DIST_ZIPFIAN, 3500, 0.7);
    assert_true(fabs(carried.zeta - fresh.zeta) < 1e-9);
    bench_dist_init(&carried, BENCH_DIST_ZIPFIAN, 3000, 1.5); /* needs no sum */
    bench_dist_init(&carried, BENCH_DIST_ZIPFIAN, 3500, 0.7);
    assert_true(fabs(carried.zeta - fresh.zeta) < 1e-9);

    struct rng a, b;
    rng_seed(&a, 1);
    rng_seed(&b, 1);
    for (unsigned i = 0; i < 1000; i++)
        assert_true(bench_dist_rank(&carried, &a) == bench_dist_rank(&fresh, &b));
}

static void names_can_be_parsed(void **state)
{
    (void)state;
    enum bench_dist_kind kind = BENCH_DIST_LATEST;
    assert_true(bench_dist_parse("uniform", &kind));
    assert_int_equal(kind, BENCH_DIST_UNIFORM);
    assert_false(bench_dist_parse("pareto", &kind));
    assert_int_equal(kind, BENCH_DIST_UNIFORM);
    assert_string_equal(bench_dist_name(BENCH_DIST_ZIPFIAN), "zipfian");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zipfian_follows_the_formula),
        cmocka_unit_test(zipfian_is_exact_for_any_large_theta),
        cmocka_unit_test(an_extreme_theta_draws_the_first_rank_only),
        cmocka_unit_test(many_keys_need_no_sum_above_one),
        cmocka_unit_test(uniform_draws_all_keys_equally_often),
        cmocka_unit_test(every_rank_is_drawn_even_of_one_to_five_keys),
        cmocka_unit_test(places_are_a_permutation),
        cmocka_unit_test(a_sum_that_is_continued_equals_a_new_one),
        cmocka_unit_test(names_can_be_parsed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
