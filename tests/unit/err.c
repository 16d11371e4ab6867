/* Statuses, their names and texts, the detail of each thread, and asserts. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#undef fail /* cmocka has a macro of that name */
#include "base/err.h"
#include "support/death.h"

static const struct {
    int value;
    const char *name, *text;
} statuses[] = {{FAR_OK, "FAR_OK", "success"},
#define FAR_X(status, number, text) {number, "FAR_" #status, text},
                FAR_ERRORS(FAR_X)
#undef FAR_X
};
#define STATUSES (sizeof statuses / sizeof statuses[0])

static void every_status_has_its_name_and_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < STATUSES; i++) {
        assert_string_equal(far_errname(statuses[i].value), statuses[i].name);
        assert_string_equal(far_strerror(statuses[i].value), statuses[i].text);
    }
    assert_int_equal(FAR_NOT_FOUND, -1);
    assert_string_equal(far_errname(FAR_BAD_URI), "FAR_BAD_URI");
}

static void statuses_are_negative_and_distinct(void **state)
{
    (void)state;
    for (size_t i = 1; i < STATUSES; i++) {
        assert_true(statuses[i].value < 0);
        for (size_t j = 1; j < i; j++) {
            assert_int_not_equal(statuses[i].value, statuses[j].value);
            assert_string_not_equal(statuses[i].text, statuses[j].text);
        }
    }
}

static void a_number_that_is_no_status_is_named_so(void **state)
{
    (void)state;
    const int strangers[] = {1, 42, -1000, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++) {
        assert_string_equal(far_strerror(strangers[i]), "unknown status");
        assert_string_equal(far_errname(strangers[i]), "FAR_?");
    }
}

static void fail_returns_the_status_and_keeps_the_detail(void **state)
{
    (void)state;
    assert_int_equal(err_fail(FAR_NO_TABLE, "table '%s' of %d", "users", 3), FAR_NO_TABLE);
    assert_string_equal(far_error_detail(), "table 'users' of 3");
    assert_int_equal(err_fail(FAR_TIMEOUT, "%s", ""), FAR_TIMEOUT);
    assert_string_equal(far_error_detail(), "");
}

static void a_long_detail_is_cut(void **state)
{
    (void)state;
    char text[1000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(err_fail(FAR_INVALID, "%s", text), FAR_INVALID);
    size_t len = strlen(far_error_detail());
    assert_true(len >= 100 && len < sizeof text - 1);
    assert_memory_equal(far_error_detail(), text, len);
}

static void *other_thread(void *arg)
{
    const char **found = arg;
    found[0] = strdup(far_error_detail());
    err_fail(FAR_INVALID, "of the other thread");
    found[1] = strdup(far_error_detail());
    return NULL;
}

static void each_thread_has_its_own_detail(void **state)
{
    (void)state;
    char *found[2] = {NULL, NULL};
    pthread_t thread;
    err_fail(FAR_INVALID, "of the first thread");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, found), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(found[0], "");
    assert_string_equal(found[1], "of the other thread");
    assert_string_equal(far_error_detail(), "of the first thread");
    free(found[0]);
    free(found[1]);
}

static void break_an_invariant(void *arg)
{
    int n = *(int *)arg;
    ASSERT(n == 1);
}

static void an_assert_ends_the_process_only_when_broken(void **state)
{
    (void)state;
    int broken = 2, kept = 1, evaluated = 0;
    assert_true(fails_assert(break_an_invariant, &broken, "n == 1"));
    assert_false(fails_assert(break_an_invariant, &kept, "n == 1"));
    ASSERT(++evaluated > 0);
    assert_int_equal(evaluated, 1);
}

static void the_version_is_that_of_the_header(void **state)
{
    (void)state;
    char numbers[32];
    snprintf(numbers, sizeof numbers, "%d.%d.%d", FAR_VERSION_MAJOR, FAR_VERSION_MINOR,
             FAR_VERSION_PATCH);
    assert_string_equal(far_version(), FAR_VERSION);
    assert_string_equal(far_version(), numbers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_name_and_text),
        cmocka_unit_test(statuses_are_negative_and_distinct),
        cmocka_unit_test(a_number_that_is_no_status_is_named_so),
        cmocka_unit_test(fail_returns_the_status_and_keeps_the_detail),
        cmocka_unit_test(a_long_detail_is_cut),
        cmocka_unit_test(each_thread_has_its_own_detail),
        cmocka_unit_test(an_assert_ends_the_process_only_when_broken),
        cmocka_unit_test(the_version_is_that_of_the_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
