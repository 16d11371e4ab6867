/* What each status means, status by status: a change of the table must be a change of this test. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/status.h"
#include "pool/pool.h"

static const int statuses[] = {
#define FAR_X(name, value, text) FAR_##name,
    FAR_ERRORS(FAR_X)
#undef FAR_X
};
#define STATUSES (sizeof statuses / sizeof statuses[0])

/* `expected` ends with FAR_OK. */
static bool listed(const int *expected, int status)
{
    while (*expected != FAR_OK && *expected != status)
        expected++;
    return *expected != FAR_OK;
}

static void meaning_is_of(unsigned meaning, const int *expected)
{
    for (size_t i = 0; i < STATUSES; i++)
        if (status_means(statuses[i], meaning) != listed(expected, statuses[i]))
            fail_msg("%s: unexpected for meaning %u", far_errname(statuses[i]), meaning);
    assert_false(status_means(FAR_OK, meaning));
    assert_false(status_means(1, meaning));
    assert_false(status_means(-1000, meaning));
}

static void each_meaning_is_of_exactly_these_statuses(void **state)
{
    (void)state;
    meaning_is_of(STATUS_ANSWER, (int[]){FAR_NOT_FOUND, FAR_EXISTS, FAR_OK});
    meaning_is_of(STATUS_SETTLED,
                  (int[]){FAR_NOT_FOUND, FAR_EXISTS, FAR_NO_TABLE, FAR_TABLE_EXISTS, FAR_CORRUPT,
                          FAR_POOL_FULL, FAR_TABLE_FULL, FAR_CATALOG_FULL, FAR_CONTENTION, FAR_OK});
    meaning_is_of(STATUS_NO_EFFECT,
                  (int[]){FAR_CONTENTION, FAR_POOL_FULL, FAR_TABLE_FULL, FAR_FENCED, FAR_OK});
    meaning_is_of(STATUS_FABRIC, (int[]){FAR_UNREACHABLE, FAR_TIMEOUT, FAR_UNKNOWN, FAR_REFUSED,
                                         FAR_NODE_LOST, FAR_OK});
    meaning_is_of(STATUS_NOT_EXECUTED,
                  (int[]){FAR_UNREACHABLE, FAR_FENCED, FAR_REFUSED, FAR_NODE_LOST, FAR_OK});
    meaning_is_of(STATUS_NOT_POSTED, (int[]){FAR_BOUNDS, FAR_INVALID, FAR_FENCED, FAR_OK});
    meaning_is_of(STATUS_MISUSE,
                  (int[]){FAR_INVALID, FAR_BAD_URI, FAR_NO_FABRIC, FAR_NO_INDEX, FAR_OK});
    meaning_is_of(STATUS_DAMAGE, (int[]){FAR_CORRUPT, FAR_BOUNDS, FAR_PARTIAL, FAR_OK});
}

static void several_meanings_are_asked_for_at_once(void **state)
{
    (void)state;
    assert_true(status_means(FAR_EXISTS, STATUS_ANSWER | STATUS_FABRIC));
    assert_true(status_means(FAR_TIMEOUT, STATUS_ANSWER | STATUS_FABRIC));
    assert_false(status_means(FAR_INVALID, STATUS_ANSWER | STATUS_FABRIC));
}

static void every_error_but_unreachable_leaves_a_request_in_doubt(void **state)
{
    (void)state;
    assert_false(status_in_doubt(FAR_OK));
    for (size_t i = 0; i < STATUSES; i++)
        assert_int_equal(status_in_doubt(statuses[i]), statuses[i] != FAR_UNREACHABLE);
}

static void success_settled_work_and_a_lack_of_local_memory_are_all_known(void **state)
{
    (void)state;
    for (size_t i = 0; i < STATUSES; i++)
        assert_int_equal(op_all_known(statuses[i]),
                         status_means(statuses[i], STATUS_SETTLED) || statuses[i] == FAR_NO_MEMORY);
    assert_true(op_all_known(FAR_OK));
}

static void a_flush_that_was_posted_and_failed_has_an_unknown_outcome(void **state)
{
    (void)state;
    struct op op = {0};
    const int refused[] = {FAR_BOUNDS, FAR_INVALID, FAR_FENCED, FAR_OK};
    for (size_t i = 0; i < STATUSES; i++) {
        op.batch = (struct batch){.in_doubt = true};
        assert_int_equal(op_decided(&op, statuses[i]),
                         listed(refused, statuses[i]) ? statuses[i] : FAR_UNKNOWN);
        op.batch = (struct batch){.acted = true, .completed = 1};
        assert_int_equal(op_decided(&op, statuses[i]), FAR_UNKNOWN);
    }
    assert_int_equal(op_decided(&op, FAR_OK), FAR_OK);
}

static void a_flush_of_which_nothing_was_sent_has_had_no_effect(void **state)
{
    (void)state;
    struct op op = {0};
    for (size_t i = 0; i < STATUSES; i++)
        assert_int_equal(op_decided(&op, statuses[i]), statuses[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_meaning_is_of_exactly_these_statuses),
        cmocka_unit_test(several_meanings_are_asked_for_at_once),
        cmocka_unit_test(every_error_but_unreachable_leaves_a_request_in_doubt),
        cmocka_unit_test(success_settled_work_and_a_lack_of_local_memory_are_all_known),
        cmocka_unit_test(a_flush_that_was_posted_and_failed_has_an_unknown_outcome),
        cmocka_unit_test(a_flush_of_which_nothing_was_sent_has_had_no_effect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
