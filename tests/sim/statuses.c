/* The harness knows which statuses an operation may end with. */
#include "check/check_internal.h"
#include "sim/rig.h"

static const struct check_settings settings = {
    .index = "race", .clients = 2, .keys = 2, .ops = 2, .adversity = SIM_ALL, .profile = SIM_IB};

/* A run with all faults that has ended, so that every error of the fabric is excused. */
static struct check *after_a_run(void)
{
    struct check *c = check_new();
    struct check_result r;
    assert_non_null(c);
    check_seed(c, &settings, 1, &r);
    assert_int_equal(r.verdict, CHECK_PASSED);
    return c;
}

static enum check_verdict verdict_on(enum lin_kind kind, int status)
{
    struct check *c = after_a_run();
    struct pending_op pending;
    check_note_call(c, 0, kind, 0, &pending);
    check_note_return(c, &pending, status, 0);
    enum check_verdict verdict = c->result.verdict;
    check_free(c);
    return verdict;
}

static void a_change_may_be_of_unknown_outcome(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < LIN_KINDS; kind++)
        if (kind != LIN_GET && kind != LIN_EXISTS)
            assert_int_equal(verdict_on(kind, FAR_UNKNOWN), CHECK_PASSED);
}

static void a_read_of_unknown_outcome_is_a_bad_status(void **state)
{
    (void)state;
    assert_int_equal(verdict_on(LIN_GET, FAR_UNKNOWN), CHECK_BAD_STATUS);
    assert_int_equal(verdict_on(LIN_EXISTS, FAR_UNKNOWN), CHECK_BAD_STATUS);
    assert_int_equal(verdict_on(LIN_GET, FAR_UNREACHABLE), CHECK_PASSED);
    assert_int_equal(verdict_on(LIN_EXISTS, FAR_TIMEOUT), CHECK_PASSED);
}

static void a_walk_of_unknown_outcome_is_not_explained(void **state)
{
    (void)state;
    struct check *c = after_a_run();
    assert_true(check_is_explained(c, FAR_UNKNOWN));
    assert_false(check_read_is_explained(c, FAR_UNKNOWN));
    assert_true(check_read_is_explained(c, FAR_UNREACHABLE));
    check_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_may_be_of_unknown_outcome),
        cmocka_unit_test(a_read_of_unknown_outcome_is_a_bad_status),
        cmocka_unit_test(a_walk_of_unknown_outcome_is_not_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
