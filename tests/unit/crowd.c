/* CROWD-1: when polling pays. */
#include "base/crowd.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define NOW 1000000000000u

static void short_polls_are_no_crowd(void **state)
{
    struct crowd c = {0};
    (void)state;
    assert_false(crowd_lasts(&c, 0));
    assert_false(crowd_lasts(&c, NOW));
    crowd_note(&c, NOW, NOW + CROWD_NS - 1);
    assert_false(crowd_lasts(&c, NOW + CROWD_NS));
}

static void a_crowd_lasts_for_a_while(void **state)
{
    struct crowd c = {0};
    const uint64_t ended = NOW + CROWD_NS;
    (void)state;
    crowd_note(&c, NOW, ended);
    assert_true(crowd_lasts(&c, ended));
    crowd_note(&c, ended, ended + 1);
    assert_true(crowd_lasts(&c, ended + CROWD_LASTS_NS - 1));
    assert_false(crowd_lasts(&c, ended + CROWD_LASTS_NS));
    assert_false(crowd_lasts(&c, 2 * ended));
}

static void a_clock_that_is_set_back_makes_no_long_crowd(void **state)
{
    struct crowd c = {0};
    (void)state;
    crowd_note(&c, NOW, NOW + CROWD_NS);
    assert_false(crowd_lasts(&c, NOW / 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_polls_are_no_crowd),
        cmocka_unit_test(a_crowd_lasts_for_a_while),
        cmocka_unit_test(a_clock_that_is_set_back_makes_no_long_crowd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
