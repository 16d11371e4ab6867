/* Axes have round ticks, and numbers are short enough to read. */
#include "report/number.h"
#include "report/scale.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>

static void expect_ticks(const struct scale *s, unsigned count, const double *ticks)
{
    assert_int_equal(s->ticks, count);
    for (unsigned i = 0; i < count; i++)
        assert_float_equal(s->tick[i], ticks[i], 1e-9 * ticks[count - 1]);
}
#define EXPECT_TICKS(s, ...)                                                                       \
    expect_ticks(s, sizeof((double[]){__VA_ARGS__}) / sizeof(double), (double[]){__VA_ARGS__})

static void linear_scales_end_with_a_tick(void **state)
{
    (void)state;
    struct scale s;
    scale_linear(&s, 0, 100, 5);
    EXPECT_TICKS(&s, 0, 25, 50, 75, 100);
    scale_linear(&s, 0, 7.3, 5);
    EXPECT_TICKS(&s, 0, 2, 4, 6, 8);
    scale_linear(&s, 0, 1234567, 5);
    EXPECT_TICKS(&s, 0, 500e3, 1e6, 1.5e6);
    scale_linear(&s, 0, 0.003, 5);
    EXPECT_TICKS(&s, 0, 0.001, 0.002, 0.003);
}

static void a_scale_of_nothing_is_one_long(void **state)
{
    (void)state;
    struct scale s;
    scale_linear(&s, 0, 0, 5);
    assert_float_equal(s.high, 1, 0);
    scale_linear(&s, 0, NAN, 5);
    assert_float_equal(s.high, 1, 0);
}

static void log_scales_have_1_2_5_or_powers_of_ten(void **state)
{
    (void)state;
    struct scale s;
    scale_log(&s, 0.31, 4.2, 7);
    EXPECT_TICKS(&s, 0.2, 0.5, 1, 2, 5);
    scale_log(&s, 0.3, 900, 7);
    EXPECT_TICKS(&s, 1, 10, 100, 1000);
    scale_log(&s, 1e-6, 1e9, 7);
    EXPECT_TICKS(&s, 1e-6, 1e-3, 1, 1e3, 1e6, 1e9);
    scale_log(&s, 5, 5, 7);
    assert_true(s.high > s.low);
}

static void scales_of_any_number_end(void **state)
{
    (void)state;
    struct scale s;
    scale_log(&s, 1e-308, 1e308, 7);
    assert_in_range(s.ticks, 2, 7);
    scale_linear(&s, 0, 1e308, 5);
    assert_in_range(s.ticks, 3, 5);
}

/* For many ranges: the ends enclose the values, ticks rise, and there are neither too many nor too
 * few. */
static void all_scales_enclose_their_values(void **state)
{
    (void)state;
    for (double low = 1e-3; low < 1e5; low *= 1.7)
        for (double factor = 1.01; factor < 1e6; factor *= 1.9) {
            struct scale log, linear;
            scale_log(&log, low, low * factor, 7);
            assert_true(log.low <= low * (1 + 1e-6) && log.high >= low * factor * (1 - 1e-6));
            assert_in_range(log.ticks, 1, 7);
            scale_linear(&linear, 0, low * factor, 5);
            assert_true(linear.high >= low * factor * (1 - 1e-6));
            assert_in_range(linear.ticks, 3, 5);
            for (unsigned i = 1; i < log.ticks; i++)
                assert_true(log.tick[i] > log.tick[i - 1]);
        }
}

static void places_are_parts_of_the_axis(void **state)
{
    (void)state;
    struct scale s;
    scale_linear(&s, 0, 100, 5);
    assert_float_equal(scale_at(&s, 25), 0.25, 1e-12);
    assert_float_equal(scale_at(&s, -1), 0, 0);
    assert_float_equal(scale_at(&s, 101), 1, 0);
    scale_log(&s, 1, 100, 7);
    assert_float_equal(scale_at(&s, 10), 0.5, 1e-12);
    assert_float_equal(scale_at(&s, 0), 0, 0);
}

static void numbers_have_three_digits(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *shorter, *tick, *grouped;
    } rows[] = {
        {0, "0", "0", "0"},
        {1, "1.00", "1", "1.00"},
        {2.5, "2.50", "2.5", "2.50"},
        {0.0412, "0.0412", "0.0412", "0.0412"},
        {9.996, "10.0", "10", "10.0"},
        {99.96, "100", "100", "100"},
        {999.4, "999", "999", "999"},
        {999.6, "1.00 k", "1 k", "1,000"},
        {1234567, "1.23 M", "1.23 M", "1,234,567"},
        {250000, "250 k", "250 k", "250,000"},
        {-1234.4, "-1.23 k", "-1.23 k", "-1,234"},
        {2e12, "2.00 T", "2 T", "2,000,000,000,000"},
        {NAN, "-", "-", "-"},
        {INFINITY, "-", "-", "-"},
    };
    char text[NUMBER_BYTES];
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_string_equal(number_short(rows[i].value, text), rows[i].shorter);
        assert_string_equal(number_tick(rows[i].value, text), rows[i].tick);
        assert_string_equal(number_grouped(rows[i].value, text), rows[i].grouped);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_scales_end_with_a_tick),
        cmocka_unit_test(a_scale_of_nothing_is_one_long),
        cmocka_unit_test(log_scales_have_1_2_5_or_powers_of_ten),
        cmocka_unit_test(scales_of_any_number_end),
        cmocka_unit_test(all_scales_enclose_their_values),
        cmocka_unit_test(places_are_parts_of_the_axis),
        cmocka_unit_test(numbers_have_three_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
