/* Every index under the adversary: a part of what `make check` runs. */
#include "check/check.h"
#include "sim/rig.h"
#include "support/indexes.h"

static void run_seeds(struct check_settings s, unsigned seeds)
{
    struct check *c = check_new();
    struct check_result r;
    unsigned alone = 0, grown = 0; /* runs with one table; those in which it grew */
    assert_non_null(c);
    s.index = index_tested;
    for (unsigned seed = 1; seed <= indexes_share(seeds / RIG_SLOW); seed++) {
        rig_expect_passed(c, &s, seed, &r);
        alone += r.coverage.tables == 1;
        grown += r.coverage.tables == 1 && r.coverage.restructured > 0;
    }
    check_free(c);
    if (alone >= 50 && 3 * grown < alone) /* else it passes because hardly anything happens */
        fail_msg("tables grew in %u of %u runs", grown, alone);
}

static void it_withstands_all_faults(void **state)
{
    (void)state;
    for (unsigned profile = 0; profile < SIM_PROFILES; profile++)
        run_seeds(
            (struct check_settings){
                .clients = 3, .keys = 3, .ops = 25, .adversity = SIM_ALL, .profile = profile},
            1000);
}

static void it_withstands_many_clients_on_one_key(void **state)
{
    (void)state;
    run_seeds((struct check_settings){.clients = 8,
                                      .keys = 1,
                                      .ops = 8,
                                      .adversity = SIM_ALL & ~(unsigned)SIM_FAULTS,
                                      .profile = SIM_IB},
              700);
}

static void it_withstands_crashes(void **state)
{
    (void)state;
    run_seeds((struct check_settings){.clients = 2,
                                      .keys = 1,
                                      .ops = 12,
                                      .adversity = SIM_ALL & ~(unsigned)(SIM_ERROR | SIM_NODE),
                                      .profile = SIM_IB},
              700);
}

/* Takes long: each set-up is for one index. `make check` runs all of them on every index. */
static void exhaust(unsigned setup, unsigned clients, unsigned ops, unsigned adversity,
                    size_t switches)
{
    if (!indexes_deal(setup))
        return;
    struct check *c = check_new();
    struct check_settings s = {.index = index_tested,
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
    exhaust(0, 2, 1, SIM_REORDER | SIM_INTERLEAVE, SIZE_MAX);
    exhaust(1, 2, 1, SIM_CRASH, SIZE_MAX);
    exhaust(2, 2, 1, SIM_ERROR, SIZE_MAX);
}

static void schedules_with_few_switches_of_more_operations_pass(void **state)
{
    (void)state;
    exhaust(3, 3, 1, SIM_INTERLEAVE, 2);
    exhaust(4, 2, 2, 0, 3);
}

/* Every program must restructure: else the enumeration would pass because nothing happens. */
static void expect_growth(unsigned grow, unsigned clients, unsigned keys, unsigned adversity)
{
    struct check *c = check_new();
    struct check_settings s = {.index = index_tested,
                               .clients = clients,
                               .keys = keys,
                               .ops = 1,
                               .grow = grow,
                               .adversity = adversity,
                               .profile = SIM_IB};
    struct check_exhausted x;
    assert_non_null(c);
    check_exhaust(c, &s, 1, UINT64_MAX, NULL, NULL, &x);
    if (x.first.verdict != CHECK_PASSED)
        fail_msg("%s: %s", check_verdict_name(x.first.verdict), x.first.what);
    assert_int_equal(x.programs, check_programs(&s));
    assert_int_equal(x.grown, x.programs);
    assert_true(2 * x.totals.grew > x.runs);
    check_free(c);
}

static void every_program_with_growth_restructures(void **state)
{
    (void)state;
    expect_growth(1, 2, 1, 0);
    expect_growth(2, 1, 2, 0);
    expect_growth(3, 1, 1, 0);
    expect_growth(1, 1, 1, SIM_CRASH);
    expect_growth(1, 1, 1, SIM_REORDER | SIM_INTERLEAVE);
}

int main(int argc, char **argv)
{
    indexes_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_withstands_all_faults),
        cmocka_unit_test(it_withstands_many_clients_on_one_key),
        cmocka_unit_test(it_withstands_crashes),
        cmocka_unit_test(every_schedule_of_two_operations_passes),
        cmocka_unit_test(schedules_with_few_switches_of_more_operations_pass),
        cmocka_unit_test(every_program_with_growth_restructures),
    };
    return INDEXES_RUN(tests);
}
