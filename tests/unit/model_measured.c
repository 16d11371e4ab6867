/* The model against measurements of others: bare verbs, within the bars of measured.h. */
#include "bench/bare.h"
#include "reproduce/measured.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#define ROUNDS 40u

static double rate(enum measured_verb verb, unsigned threads, unsigned outstanding,
                   const char *more)
{
    char uri[128];
    double rate = 0;
    snprintf(uri, sizeof uri, "model:?nic=cx6&threads=%u&size=64m%s", threads, more);
    assert_int_equal(
        bare_rate(uri, verb == MEASURED_READ ? FAB_READ : FAB_WRITE, outstanding, 8, ROUNDS, &rate),
        FAR_OK);
    return rate;
}

static void within_bars(const struct measured_errors *e)
{
    assert_true(measured_median(e) <= MEASURED_MEDIAN_BAR);
    assert_true(measured_worst(e) <= MEASURED_WORST_BAR);
}

static void the_grids_are_met(void **state)
{
    (void)state;
    for (unsigned verb = 0; verb < MEASURED_VERBS; verb++) {
        struct measured_errors e = {.count = 0};
        for (unsigned t = 0; t < MEASURED_GRID_THREADS; t++)
            for (unsigned i = 0; i < MEASURED_GRID_OUTSTANDING; i++)
                measured_add(&e, measured_error(measured_grid[verb][t][i],
                                                rate(verb, measured_grid_threads[t],
                                                     measured_grid_outstanding[i], "")));
        assert_int_equal(e.count, 48);
        within_bars(&e);
    }
}

static void the_doorbells_are_met(void **state)
{
    (void)state;
    for (unsigned verb = 0; verb < MEASURED_VERBS; verb++)
        for (unsigned way = 0; way < MEASURED_DOORBELLS; way++) {
            struct measured_errors e = {.count = 0};
            for (unsigned t = 0; t < MEASURED_THREADS; t++)
                measured_add(
                    &e, measured_error(measured_doorbells[verb][way][t],
                                       rate(verb, measured_threads[t], MEASURED_CURVE_OUTSTANDING,
                                            way == MEASURED_SHARED ? "&doorbells=shared" : "")));
            within_bars(&e);
        }
}

static void a_run_is_the_same_twice(void **state)
{
    (void)state;
    assert_true(rate(MEASURED_READ, 36, 16, "") == rate(MEASURED_READ, 36, 16, ""));
    assert_true(rate(MEASURED_WRITE, 24, 8, "&doorbells=shared") ==
                rate(MEASURED_WRITE, 24, 8, "&doorbells=shared"));
}

static void median_and_worst_are_of_sizes(void **state)
{
    (void)state;
    struct measured_errors e = {.count = 0};
    assert_true(isnan(measured_median(&e)));
    measured_add(&e, measured_error(2, 1)); /* -50 % */
    measured_add(&e, measured_error(4, 5)); /* +25 % */
    assert_true(measured_median(&e) == 0.375);
    assert_true(measured_worst(&e) == 0.5);
    measured_add(&e, 0);
    assert_true(measured_median(&e) == 0.25);
    measured_add(&e, NAN);
    assert_true(isnan(measured_median(&e)));
    assert_true(isnan(measured_worst(&e)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_grids_are_met),
        cmocka_unit_test(the_doorbells_are_met),
        cmocka_unit_test(a_run_is_the_same_twice),
        cmocka_unit_test(median_and_worst_are_of_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
