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

static double rate_of(const char *network, const struct bare_verbs *verbs)
{
    char uri[128];
    double rate = 0;
    snprintf(uri, sizeof uri, "model:?size=64m&%s", network);
    assert_int_equal(bare_rate(uri, verbs, &rate), FAR_OK);
    return rate;
}

static double rate(enum measured_verb verb, unsigned threads, unsigned outstanding,
                   const char *more)
{
    char network[64];
    snprintf(network, sizeof network, "nic=cx6&threads=%u%s", threads, more);
    return rate_of(network, &(struct bare_verbs){
                                .kind = verb == MEASURED_READ ? FAB_READ : FAB_WRITE,
                                .outstanding = outstanding,
                                .bytes = 8,
                                .rounds = ROUNDS,
                            });
}

/* RCuckoo's paper, Fig. 1: 50 million CASes a second at most, 3 at one word, and three times as
 * many in the NIC's memory. */
static void atomics_of_connectx_5_are_met(void **state)
{
    (void)state;
    struct bare_verbs cas = {.kind = FAB_CAS, .outstanding = 8, .bytes = 8, .rounds = ROUNDS};
    const char *host = "nic=cx5&machines=8&threads=8";
    assert_float_equal(rate_of(host, &cas), 50, 1);
    cas.one_place = true;
    assert_float_equal(rate_of(host, &cas), 3, 0.1);
    assert_float_equal(rate_of("nic=cx5&machines=8&threads=8&locks=nic", &cas), 9, 0.3);
}

static void a_network_has_the_rate_that_is_asked_for(void **state)
{
    (void)state;
    struct bare_verbs read = {.kind = FAB_READ, .outstanding = 16, .bytes = 4096, .rounds = ROUNDS};
    double fast = rate_of("nic=cx6&machines=8&threads=4", &read),
           slow = rate_of("nic=cx6&machines=8&threads=4&gbits=100", &read);
    assert_float_equal(fast / slow, 24.2 / 12.5, 0.05);
    assert_float_equal(slow * (4096 + 46) * 8 / 1000, 100, 2); /* Gb/s */
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
        cmocka_unit_test(atomics_of_connectx_5_are_met),
        cmocka_unit_test(a_network_has_the_rate_that_is_asked_for),
        cmocka_unit_test(a_run_is_the_same_twice),
        cmocka_unit_test(median_and_worst_are_of_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
