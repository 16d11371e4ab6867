/* The harness itself: its verdicts, its enumeration, and shrinking. */
#include "check/check.h"
#include "sim/rig.h"
#include "support/ordered_index.h"

#include <stdio.h>

static const struct check_settings settings = {
    .index = "race", .clients = 3, .keys = 3, .ops = 20, .adversity = SIM_ALL, .profile = SIM_IB};

/* With a tiny budget some histories are undecided. Which ones depends on the index. */
static uint64_t find_undecided(struct check *c, const struct check_settings *s,
                               struct check_result *r)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        check_seed(c, s, seed, r);
        if (r->verdict == CHECK_UNDECIDED)
            return seed;
        assert_int_equal(r->verdict, CHECK_PASSED);
    }
    fail_msg("seeds 1..100 were all decided");
    return 0;
}

static void undecided_is_a_verdict_of_its_own(void **state)
{
    (void)state;
    struct check *c = check_new();
    struct check_settings s = settings;
    struct check_result r;
    assert_non_null(c);
    s.lin_budget = 3;
    uint64_t seed = find_undecided(c, &s, &r);
    assert_non_null(strstr(r.what, "the search ended before"));
    s.lin_budget = 0;
    rig_expect_passed(c, &s, seed, &r);
    assert_string_equal(r.what, "");
    check_free(c);
}

static void an_unknown_index_fails_to_set_up(void **state)
{
    (void)state;
    struct check *c = check_new();
    struct check_settings s = settings;
    struct check_result r;
    assert_non_null(c);
    s.index = "none";
    check_seed(c, &s, 1, &r);
    assert_int_equal(r.verdict, CHECK_NO_SETUP);
    assert_non_null(strstr(r.what, "FAR_NO_INDEX"));
    check_free(c);
}

/* Tables of these runs cannot be filled. A seed fails in the same way however often it runs. */
static void a_set_up_that_failed_has_learned_nothing(void **state)
{
    (void)state;
    struct check *c = check_new();
    struct check_settings s = settings;
    struct check_result first, again;
    unsigned failed = 0;
    assert_non_null(c);
    s.index = ORDERED_NAME;
    ordered_fault = ORDERED_REFUSES;
    for (unsigned seed = 1; seed <= 10; seed++) {
        check_seed(c, &s, seed, &first);
        check_seed(c, &s, seed, &again);
        assert_int_equal(first.verdict, again.verdict);
        assert_string_equal(first.what, again.what);
        failed += first.verdict == CHECK_NO_SETUP;
    }
    assert_true(failed > 0);
    ordered_fault = ORDERED_SOUND;
    check_free(c);
}

static void every_kind_of_fault_occurs_within_200_seeds(void **state)
{
    (void)state;
    struct check *c = check_new();
    struct check_result r;
    struct sim_counts sum = {0};
    uint64_t unknown = 0, operations = 0;
    assert_non_null(c);
    for (unsigned seed = 1; seed <= 200; seed++) {
        rig_expect_passed(c, &settings, seed, &r);
        check_add_counts(&sum, &r.counts);
        unknown += r.unknown;
        operations += r.operations;
    }
    assert_true(unknown > 0 && unknown < operations / 4);
    assert_true(sum.torn > 0 && sum.halved > 0 && sum.reordered > 0);
    for (unsigned i = SIM_NUMBER_CRASH; i <= SIM_NUMBER_NODE; i++)
        assert_true(sum.happened[i] > 0);
    check_free(c);
}

/* What was once rare, and hid faults, is common. A run is a function of its seed, so these numbers
 * do not depend on chance. */
static void every_kind_of_run_is_common(void **state)
{
    (void)state;
    struct check_settings s = settings;
    struct check *c = check_new();
    struct check_totals n = {0};
    struct check_result r;
    assert_non_null(c);
    s.ops = 25; /* as `farside check` has it */
    for (unsigned seed = 1; seed <= 300; seed++) {
        rig_expect_passed(c, &s, seed, &r);
        check_add_coverage(&n, &r.coverage);
    }
    assert_int_equal(n.runs, 300);
    assert_true(2 * n.restructured >= 3 * n.runs);
    assert_true(10 * n.cascades >= n.runs);
    assert_true(10 * n.rings >= n.runs);
    assert_true(20 * n.nodes >= n.runs);
    assert_true(4 * n.tables >= n.runs);
    assert_true(12 * n.emulated >= n.runs);
    assert_true(5 * n.unfenced >= n.runs);
    assert_true(5 * n.accounted >= n.runs);
    assert_true(n.opened >= n.runs && n.closed >= n.runs);
    assert_true(2 * n.closed_parked >= n.runs);
    assert_true(n.parks >= n.runs && n.attached >= n.runs);
    assert_true(n.exists >= n.runs && n.locks >= n.runs);
    assert_true(n.modified >= n.runs && n.iterated >= n.runs / 8);
    assert_true(n.cached_fresh >= n.runs && n.cached_doubted >= n.runs);
    assert_true(n.cached_changes >= n.runs);
    assert_true(n.recovered >= n.runs / 30 && n.redone > 0);
    assert_true(n.dropped >= n.runs / 20 && n.found_gone >= n.runs / 4);
    assert_true(n.checked >= n.runs / 2 && n.repaired >= n.runs / 2);
    assert_true(n.slept >= n.runs / 12 && n.emptied >= n.runs / 12);
    assert_true(n.lives >= n.runs / 30 && n.stopped > 0);
    assert_true(n.struck >= n.runs / 12 && n.struck_again > 0);
    assert_true(n.found_full >= n.runs / 20 && n.room_made > 0);
    check_free(c);
}

static void parts_are_left_behind_and_handles_closed(void **state)
{
    (void)state;
    struct check_settings s = settings;
    struct check *c = check_new();
    struct check_totals n = {0};
    struct check_result r;
    assert_non_null(c);
    s.index = "shard";
    s.ops = 25;
    for (unsigned seed = 1; seed <= 100; seed++) {
        rig_expect_passed(c, &s, seed, &r);
        check_add_coverage(&n, &r.coverage);
    }
    assert_true(n.lagged >= n.runs / 8 && n.lagged_pending > 0);
    assert_true(n.handles_closed >= n.runs / 8);
    check_free(c);
}

static size_t printed_lines(const struct check *c)
{
    char line[256];
    size_t lines = 0;
    FILE *file = tmpfile();
    assert_non_null(file);
    check_print(c, file);
    rewind(file);
    while (fgets(line, sizeof line, file))
        lines++;
    fclose(file);
    return lines;
}

/* Any verdict can be shrunk. "undecided" is easy to get, with a tiny budget. */
static void a_failure_is_made_small(void **state)
{
    (void)state;
    struct check *c = check_new();
    struct check_settings s = settings;
    struct check_result r;
    struct check_shrunk small;
    assert_non_null(c);
    s.lin_budget = 12;
    uint64_t seed = find_undecided(c, &s, &r);
    check_shrink(c, &s, seed, &r, 3000 / RIG_SLOW, &small);
    assert_true(small.runs <= 3000 / RIG_SLOW + 1);
    assert_true(small.settings.clients <= s.clients && small.settings.ops < s.ops);
    /* The time line of the smallest run is mostly its set-up and the inspection. */
    size_t lines = printed_lines(c);
    assert_true(lines > 10 && lines < 10000); /* how far it gets depends on the seed */

    check_seed(c, &small.settings, small.seed,
               &r); /* its settings and seed are enough to run it again */
    assert_int_equal(r.verdict, CHECK_UNDECIDED);
    check_free(c);
}

static void tiny_programs_are_enumerated(void **state)
{
    (void)state;
    struct check *c = check_new();
    struct check_settings s = settings;
    struct check_exhausted x;
    assert_non_null(c);
    s.clients = 2;
    s.keys = 1;
    s.ops = 1;
    s.adversity = 0; /* whole requests: few schedules */
    assert_int_equal(check_programs(&s), 30);
    check_exhaust(c, &s, SIZE_MAX, UINT64_MAX, NULL, NULL, &x);
    assert_int_equal(x.programs, 30);
    assert_int_equal(x.failed + x.undecided, 0);
    assert_true(x.complete);
    assert_true(x.runs > 100);

    uint64_t all = x.runs; /* bounds leave some out, and that is reported */
    check_exhaust(c, &s, 1, UINT64_MAX, NULL, NULL, &x);
    assert_false(x.complete);
    assert_true(x.runs < all);
    check_exhaust(c, &s, SIZE_MAX, 2, NULL, NULL, &x);
    assert_false(x.complete);
    assert_int_equal(x.runs, 60);
    check_free(c);
}

static void programs_are_counted_without_the_order_of_clients(void **state)
{
    (void)state;
    struct check_settings s = settings;
    s.clients = 2;
    s.keys = 2;
    s.ops = 1;
    assert_int_equal(check_programs(&s), 4 * 55);
    s.clients = 3;
    s.keys = 1;
    assert_int_equal(check_programs(&s), 2 * 35);
    s.clients = 16;
    s.ops = 4;
    assert_true(check_programs(&s) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(undecided_is_a_verdict_of_its_own),
        cmocka_unit_test(an_unknown_index_fails_to_set_up),
        cmocka_unit_test(a_set_up_that_failed_has_learned_nothing),
        cmocka_unit_test(every_kind_of_fault_occurs_within_200_seeds),
        cmocka_unit_test(every_kind_of_run_is_common),
        cmocka_unit_test(parts_are_left_behind_and_handles_closed),
        cmocka_unit_test(a_failure_is_made_small),
        cmocka_unit_test(tiny_programs_are_enumerated),
        cmocka_unit_test(programs_are_counted_without_the_order_of_clients),
    };
    ordered_index_add();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
