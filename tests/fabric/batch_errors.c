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

static int flush_with_node_away(const char *batch, unsigned fail_at, uint64_t away)
{
    recorder_reset(&rec, ORDER_IB, 0);
    rec.fail_at = fail_at;
    rec.status = FAR_UNKNOWN;
    rec.away = away;
    recorder_fill(&rec, batch);
    return batch_flush(&rec.b);
}

static void reads_are_never_of_unknown_outcome(void **state)
{
    (void)state;
    assert_int_equal(flush_with_node_away("R0R1", 1, 0), FAR_UNREACHABLE);
    assert_int_equal(flush_with_node_away("R0R1", 1, 2), FAR_REFUSED);
    assert_int_equal(flush_with_node_away("R0W1", 1, 0), FAR_UNKNOWN);
    assert_int_equal(flush_failing("R0R1", 1, FAR_OK, FAR_TIMEOUT), FAR_TIMEOUT);
}

static void verbs_that_were_not_sent_have_not_happened(void **state)
{
    (void)state;
    assert_int_equal(flush_with_node_away("C1W1", 1, 2), FAR_REFUSED);
    assert_int_equal(batch_outcome(&rec.b, 0), BATCH_NOT);
    assert_false(rec.b.in_doubt);
    assert_int_equal(flush_with_node_away("C1W0", 1, 2), FAR_UNKNOWN);
    assert_int_equal(batch_outcome(&rec.b, 0), BATCH_UNKNOWN);
    assert_int_equal(flush_with_node_away("W0|C1", 2, 2), FAR_REFUSED);
    assert_int_equal(batch_outcome(&rec.b, 0), BATCH_DONE);
    assert_int_equal(batch_outcome(&rec.b, 1), BATCH_NOT);
    assert_int_equal(flush_with_node_away("C1W1", 1, 0), FAR_UNKNOWN);
    assert_int_equal(batch_outcome(&rec.b, 0), BATCH_UNKNOWN);
}

/* A batch's piggybacked verbs go to node 0. */
static int completed_with;
static void piggyback_look(struct batch_piggyback *piggyback)
{
    (void)piggyback;
}
static void piggyback_add(struct batch_piggyback *piggyback, struct batch *b)
{
    (void)piggyback;
    batch_write(b, MARK_EARLY, gaddr_make(0, 0), 64, &rec.buf[8], 8);
}
static void piggyback_completed(struct batch_piggyback *piggyback, int status)
{
    (void)piggyback;
    completed_with = status;
}
static void post_failed(const struct batch_policy *policy)
{
    (void)policy;
}

static void piggybacked_verbs_do_not_decide_a_batch_that_was_not_sent(void **state)
{
    struct batch_piggyback piggyback = {.due = true,
                                        .look = piggyback_look,
                                        .add = piggyback_add,
                                        .completed = piggyback_completed};
    struct batch_policy policy = {.failed = post_failed, .piggyback = &piggyback};
    (void)state;
    recorder_reset(&rec, ORDER_IB, 0);
    rec.fail_at = 1;
    rec.status = FAR_UNKNOWN;
    rec.away = 2;
    rec.b.policy = &policy;
    recorder_fill(&rec, "C1");
    assert_int_equal(batch_flush(&rec.b), FAR_REFUSED);
    assert_int_equal(batch_outcome(&rec.b, 0), BATCH_NOT);
    assert_int_equal(completed_with, FAR_UNKNOWN); /* its own outcome */
    assert_int_equal(rec.verbs, 2);
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
        cmocka_unit_test(reads_are_never_of_unknown_outcome),
        cmocka_unit_test(verbs_that_were_not_sent_have_not_happened),
        cmocka_unit_test(piggybacked_verbs_do_not_decide_a_batch_that_was_not_sent),
        cmocka_unit_test(the_batch_is_empty_and_usable_afterwards),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
