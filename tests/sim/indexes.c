/* RACE under the adversary: a part of what `make check` runs. */
#include "sim/check.h"
#include "sim/rig.h"

static void run_seeds(struct check_settings s, unsigned seeds)
{
    struct check *c = check_new();
    struct check_result r;
    assert_non_null(c);
    s.index = "race";
    for (unsigned seed = 1; seed <= seeds / RIG_SLOW; seed++)
        rig_expect_passed(c, &s, seed, &r);
    check_free(c);
}

static void race_withstands_all_faults(void **state)
{
    (void)state;
    for (unsigned profile = 0; profile < SIM_PROFILES; profile++)
        run_seeds(
            (struct check_settings){
                .clients = 3, .keys = 3, .ops = 25, .adversity = SIM_ALL, .profile = profile},
            1000);
}

static void race_withstands_many_clients_on_one_key(void **state)
{
    (void)state;
    run_seeds((struct check_settings){.clients = 8,
                                      .keys = 1,
                                      .ops = 8,
                                      .adversity = SIM_ALL & ~(unsigned)SIM_FAULTS,
                                      .profile = SIM_IB},
              700);
}

static void race_withstands_crashes(void **state)
{
    (void)state;
    run_seeds((struct check_settings){.clients = 2,
                                      .keys = 1,
                                      .ops = 12,
                                      .adversity = SIM_ALL & ~(unsigned)(SIM_ERROR | SIM_NODE),
                                      .profile = SIM_IB},
              700);
}

static void exhaust(unsigned clients, unsigned ops, unsigned adversity, size_t switches)
{
    struct check *c = check_new();
    struct check_settings s = {.index = "race",
                               .clients = clients,
                               .keys = 1,
                               .ops = ops,
                               .adversity = adversity,
                               .profile = SIM_IB};
    struct check_exhausted x;
    assert_non_null(c);
    check_exhaust(c, &s, RIG_SLOW > 1 ? 1 : switches, UINT64_MAX, NULL, NULL, &x);
    if (x.first.verdict != CHECK_PASSED)
        fail_msg("%s: %s", check_verdict_name(x.first.verdict), x.first.what);
    assert_true(x.complete || switches != SIZE_MAX || RIG_SLOW > 1);
    check_free(c);
}

static void every_schedule_of_two_operations_passes(void **state)
{
    (void)state;
    exhaust(2, 1, SIM_REORDER | SIM_INTERLEAVE, SIZE_MAX);
    exhaust(2, 1, SIM_CRASH, SIZE_MAX);
    exhaust(2, 1, SIM_ERROR, SIZE_MAX);
}

static void schedules_with_few_switches_of_more_operations_pass(void **state)
{
    (void)state;
    exhaust(3, 1, SIM_INTERLEAVE, 2);
    exhaust(2, 2, 0, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(race_withstands_all_faults),
        cmocka_unit_test(race_withstands_many_clients_on_one_key),
        cmocka_unit_test(race_withstands_crashes),
        cmocka_unit_test(every_schedule_of_two_operations_passes),
        cmocka_unit_test(schedules_with_few_switches_of_more_operations_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
