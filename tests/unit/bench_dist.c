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
            bench_dist_init(&d, kind, n, 0.99);
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
        cmocka_unit_test(uniform_draws_all_keys_equally_often),
        cmocka_unit_test(every_rank_is_drawn_even_of_one_to_five_keys),
        cmocka_unit_test(places_are_a_permutation),
        cmocka_unit_test(a_sum_that_is_continued_equals_a_new_one),
        cmocka_unit_test(names_can_be_parsed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
