/* The simulator scans ordered tables and notices wrong scans. */
#include "support/ordered_index.h"
#include "check/check.h"
#include "sim/rig.h"

#define SEEDS     120u
#define SEEDS_MAX 1000u /* one or two of a hundred notice ORDERED_STALE */

static const struct check_settings settings = {.index = ORDERED_NAME,
                                               .deletes_take_memory = true,
                                               .clients = 3,
                                               .keys = 6,
                                               .ops = 20,
                                               .adversity = SIM_ALL,
                                               .profile = SIM_IB};

static void sound_scans_pass(void **state)
{
    struct check *c = check_new();
    struct check_totals n = {0};
    struct check_result r;

    (void)state;
    assert_non_null(c);
    ordered_fault = ORDERED_SOUND;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        rig_expect_passed(c, &settings, seed, &r);
        check_add_coverage(&n, &r.coverage);
    }
    assert_true(4 * n.scanned >= n.runs);
    check_free(c);
}

/* Within some seeds. The structure and all other operations are sound. */
static void wrong_scans_are_noticed(void **state)
{
    static const struct {
        enum ordered_fault fault;
        enum check_verdict verdict;
        const char *what;
    } faults[] = {
        {ORDERED_SKIPS, CHECK_NOT_LINEARIZABLE, ""},
        {ORDERED_STALE, CHECK_NOT_LINEARIZABLE, ""},
        {ORDERED_BLIND, CHECK_NOT_LINEARIZABLE, ""},
        {ORDERED_TWICE, CHECK_BAD_VALUE, "a scan returned a key twice"},
        {ORDERED_BACKWARD, CHECK_BAD_VALUE, "a scan returned keys out of order"},
        {ORDERED_PAST, CHECK_BAD_VALUE, "a scan returned a key out of its range"},
    };
    struct check *c = check_new();
    struct check_result r = {.verdict = CHECK_PASSED};

    (void)state;
    assert_non_null(c);
    for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++) {
        ordered_fault = faults[i].fault;
        unsigned seed = 1;
        do
            check_seed(c, &settings, seed, &r);
        while (r.verdict == CHECK_PASSED && ++seed <= SEEDS_MAX);
        if (r.verdict != faults[i].verdict)
            print_error("fault %d, seed %u: %s (%s)\n", (int)faults[i].fault, seed,
                        check_verdict_name(r.verdict), r.what);
        assert_int_equal(r.verdict, faults[i].verdict);
        assert_non_null(strstr(r.what, faults[i].what));
    }
    ordered_fault = ORDERED_SOUND;
    check_free(c);
}

/* Tables without order are not scanned. */
static void hash_tables_are_not_scanned(void **state)
{
    struct check *c = check_new();
    struct check_settings s = settings;
    struct check_totals n = {0};
    struct check_result r;

    (void)state;
    assert_non_null(c);
    s.index = "race";
    for (unsigned seed = 1; seed <= 20; seed++) {
        rig_expect_passed(c, &s, seed, &r);
        check_add_coverage(&n, &r.coverage);
    }
    assert_int_equal(n.scanned, 0);
    check_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_scans_pass),
        cmocka_unit_test(wrong_scans_are_noticed),
        cmocka_unit_test(hash_tables_are_not_scanned),
    };
    ordered_index_add();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
