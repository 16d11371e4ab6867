/* Counts are exact, and a quantile is within 1 % of the true one, over all 64-bit values. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/hist.h"
#include "base/rng.h"
#include "support/death.h"

static const double quantiles[] = {0,    0.001, 0.01, 0.07, 0.1,  0.25,  0.29,   0.5,
                                   0.57, 0.75,  0.9,  0.95, 0.99, 0.999, 0.9999, 1};
#define QUANTILES (sizeof quantiles / sizeof quantiles[0])

static bool within_one_percent(uint64_t value, uint64_t truth)
{
    uint64_t off = value > truth ? value - truth : truth - value;
    return off <= truth / 100;
}

static void an_empty_one_answers_zero(void **state)
{
    (void)state;
    static struct hist h;
    memset(&h, 0xff, sizeof h);
    hist_clear(&h);
    assert_true(h.count == 0);
    for (size_t i = 0; i < QUANTILES; i++)
        assert_true(hist_quantile(&h, quantiles[i]) == 0);
}

static void a_single_value_is_every_quantile(void **state)
{
    (void)state;
    static struct hist h;
    for (int e = 0; e < 64; e++) {
        for (int off = -1; off <= 1; off++) {
            uint64_t value = (UINT64_C(1) << e) + (uint64_t)(int64_t)off;
            hist_clear(&h);
            hist_record(&h, value);
            assert_true(h.count == 1 && h.min == value && h.max == value);
            for (size_t i = 0; i < QUANTILES; i++)
                assert_true(hist_quantile(&h, quantiles[i]) == value);
        }
    }
}

/* Between the extremes 0 and UINT64_MAX nothing helps the middle value but its bucket. */
static void check_middle(uint64_t value)
{
    static struct hist h;
    hist_clear(&h);
    hist_record(&h, value);
    hist_record(&h, 0);
    hist_record(&h, UINT64_MAX);
    uint64_t found = hist_quantile(&h, 0.5);
    assert_true(within_one_percent(found, value));
    if (value < 2 * HIST_SUB)
        assert_true(found == value);
    assert_true(hist_quantile(&h, 0) == 0);
    assert_true(hist_quantile(&h, 1) == UINT64_MAX);
}

static void every_magnitude_is_within_one_percent(void **state)
{
    (void)state;
    struct rng r;
    rng_seed(&r, 5);
    for (uint64_t value = 0; value < 2000; value++)
        check_middle(value);
    for (int e = 11; e < 64; e++) {
        uint64_t low = UINT64_C(1) << e;
        check_middle(low - 1);
        check_middle(low);
        check_middle(low + 1);
        check_middle(low + (low - 1));
        for (int i = 0; i < 50; i++)
            check_middle(low + rng_below(&r, low));
    }
    check_middle(UINT64_MAX);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

enum shape { SAME, SMALL, UNIFORM, EVERY_MAGNITUDE, TWO_PEAKS, SHAPES };

static uint64_t draw(struct rng *r, enum shape shape)
{
    switch (shape) {
    case SAME:
        return 1234567;
    case SMALL:
        return rng_below(r, 300);
    case UNIFORM:
        return rng_below(r, 1000000);
    case EVERY_MAGNITUDE:
        return rng_next(r) >> rng_below(r, 64);
    default:
        return rng_below(r, 100) < 90 ? 900 + rng_below(r, 200) : 50000000 + rng_next(r) % 9999;
    }
}

/* The smallest recorded value that at least q of them do not exceed, in thousandths of a
 * percent to stay in whole numbers. */
static uint64_t true_quantile(const uint64_t *sorted, uint64_t n, double q)
{
    uint64_t q100k = (uint64_t)(q * 100000 + 0.5);
    uint64_t rank = (q100k * n + 99999) / 100000;
    return sorted[rank == 0 ? 0 : rank - 1];
}

static void quantiles_are_within_one_percent_of_sorting(void **state)
{
    (void)state;
    static const uint64_t counts[] = {2, 3, 10, 99, 100, 101, 1000, 50000};
    static uint64_t values[50000];
    static struct hist h;
    struct rng r;
    rng_seed(&r, 6);
    for (int shape = SAME; shape < SHAPES; shape++) {
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            uint64_t n = counts[c], before = 0;
            hist_clear(&h);
            for (uint64_t i = 0; i < n; i++) {
                values[i] = draw(&r, shape);
                hist_record(&h, values[i]);
            }
            qsort(values, n, sizeof values[0], compare);
            assert_true(h.count == n && h.min == values[0] && h.max == values[n - 1]);
            for (size_t i = 0; i < QUANTILES; i++) {
                uint64_t found = hist_quantile(&h, quantiles[i]);
                assert_true(within_one_percent(found, true_quantile(values, n, quantiles[i])));
                assert_true(found >= before && found >= h.min && found <= h.max);
                before = found;
            }
            assert_true(hist_quantile(&h, 1) == values[n - 1]);
        }
    }
}

static void counts_are_exact(void **state)
{
    (void)state;
    static struct hist h;
    hist_clear(&h);
    for (uint64_t value = 0; value < 200; value++) {
        for (uint64_t times = 0; times <= value; times++)
            hist_record(&h, value);
    }
    uint64_t below = 0;
    for (uint64_t value = 0; value < 200; value++) {
        below += value + 1;
        assert_true(h.bucket[value] == value + 1);
        assert_true(hist_quantile(&h, (double)below / (200 * 201 / 2)) == value);
    }
    assert_true(h.count == below);
}

static void merging_is_recording_all(void **state)
{
    (void)state;
    static struct hist parts[3], all, merged;
    struct rng r;
    rng_seed(&r, 7);
    hist_clear(&all);
    hist_clear(&merged);
    for (int p = 0; p < 3; p++) {
        hist_clear(&parts[p]);
        for (int i = 0; i < 1000 * p; i++) { /* the first stays empty */
            uint64_t value = draw(&r, p == 1 ? EVERY_MAGNITUDE : UNIFORM);
            hist_record(&parts[p], value);
            hist_record(&all, value);
        }
    }
    hist_merge(&merged, &parts[0]);
    assert_true(merged.count == 0 && merged.min == 0 && merged.max == 0);
    hist_merge(&merged, &parts[1]);
    assert_memory_equal(&merged, &parts[1], sizeof merged);
    hist_merge(&merged, &parts[0]);
    hist_merge(&merged, &parts[2]);
    assert_memory_equal(&merged, &all, sizeof all);
}

static void ask_for(void *arg)
{
    static struct hist h;
    hist_quantile(&h, *(double *)arg);
}

static void a_fraction_outside_0_to_1_is_refused(void **state)
{
    (void)state;
    double wrong[] = {-0.1, 1.1, 99, __builtin_nan("")};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_true(fails_assert(ask_for, &wrong[i], "q >= 0 && q <= 1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_one_answers_zero),
        cmocka_unit_test(a_single_value_is_every_quantile),
        cmocka_unit_test(every_magnitude_is_within_one_percent),
        cmocka_unit_test(quantiles_are_within_one_percent_of_sorting),
        cmocka_unit_test(counts_are_exact),
        cmocka_unit_test(merging_is_recording_all),
        cmocka_unit_test(a_fraction_outside_0_to_1_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
