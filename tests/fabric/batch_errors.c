/* A fabric that fails: what a flush returns, and that nothing more goes out. */
#include "fabric/recorder.h"

static struct recorder rec;

static int flush_failing(const char *batch, unsigned fail_at, int refuse, int status)
{
    recorder_reset(&rec, ORDER_IB, 0);
    rec.fail_at = fail_at;
    rec.refuse = refuse;
    rec.status = status;
    recorder_fill(&rec, batch);
    return batch_flush(&rec.b);
}

static void a_refused_post_is_reported(void **state)
{
    (void)state;
    assert_int_equal(flush_failing("W0R0", 1, FAR_UNREACHABLE, FAR_OK), FAR_UNREACHABLE);
    assert_int_equal(rec.posts, 0);
}

static void a_failed_request_is_reported(void **state)
{
    (void)state;
    assert_int_equal(flush_failing("W0R0", 1, FAR_OK, FAR_UNKNOWN), FAR_UNKNOWN);
    assert_int_equal(rec.posts, 1);
}

static void parts_behind_a_failed_one_stay_at_home(void **state)
{
    (void)state;
    assert_int_equal(flush_failing("W0|W1|W2", 2, FAR_OK, FAR_UNKNOWN), FAR_UNKNOWN);
    assert_int_equal(rec.posts, 2);
    assert_int_equal(flush_failing("W0|W1|W2", 2, FAR_UNREACHABLE, FAR_OK), FAR_UNREACHABLE);
    assert_int_equal(rec.posts, 1);
    assert_int_equal(flush_failing("M0R0", 1, FAR_OK, FAR_UNKNOWN), FAR_UNKNOWN);
    assert_int_equal(rec.posts, 1);
}

static void the_batch_is_empty_and_usable_afterwards(void **state)
{
    (void)state;
    assert_int_equal(flush_failing("W0|W1", 1, FAR_UNREACHABLE, FAR_OK), FAR_UNREACHABLE);
    assert_int_equal(batch_room(&rec.b), BATCH_MAX);
    rec.fail_at = 0;
    assert_int_equal(batch_flush(&rec.b), FAR_OK);
    assert_int_equal(rec.posts, 0);
    recorder_fill(&rec, "F0");
    assert_int_equal(batch_flush(&rec.b), FAR_OK);
    assert_int_equal(rec.posts, 1);
    assert_int_equal(rec.word[0][0], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refused_post_is_reported),
        cmocka_unit_test(a_failed_request_is_reported),
        cmocka_unit_test(parts_behind_a_failed_one_stay_at_home),
        cmocka_unit_test(the_batch_is_empty_and_usable_afterwards),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
