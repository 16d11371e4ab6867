/* Masked CAS emulated by CAS, on a fabric that has no masked CAS. */
#include "fabric/recorder.h"

static struct recorder rec;
#define AT   gaddr_make(1, 64)
#define WORD rec.word[1][8]

static int setup(void **state)
{
    (void)state;
    recorder_reset(&rec, ORDER_IB, 0);
    return 0;
}

static void a_right_guess_costs_one_round_trip(void **state)
{
    (void)state;
    WORD = 0xaa01;
    batch_mcas(&rec.b, MARK_PUBLISH, AT, 0, 0xaa01, 0xff, 0x02, 0xff, rec.buf);
    assert_int_equal(batch_flush(&rec.b), FAR_OK);
    assert_int_equal(rec.buf[0], 0xaa01);
    assert_int_equal(WORD, 0xaa02);
    assert_int_equal(rec.cost.rtts, 1);
    assert_int_equal(rec.cost.verbs, 1);
    assert_int_equal(rec.cost.bytes_read, 8);
    assert_int_equal(rec.cost.bytes_written, 8);
}

static void a_wrong_guess_costs_one_more(void **state)
{
    (void)state;
    WORD = 0xaa01;
    batch_mcas(&rec.b, MARK_PUBLISH, AT, 0, 0x01, 0xff, 0xbb02, 0x0fff, rec.buf);
    assert_int_equal(batch_flush(&rec.b), FAR_OK);
    assert_int_equal(rec.buf[0], 0xaa01);
    assert_int_equal(WORD, 0xab02);
    assert_int_equal(rec.cost.rtts, 2);
    assert_int_equal(rec.cost.verbs, 2);
}

static void a_mismatch_under_the_mask_is_final(void **state)
{
    (void)state;
    WORD = 0xaa01;
    batch_mcas(&rec.b, MARK_PUBLISH, AT, 0, 0x02, 0xff, 0x03, 0xff, rec.buf);
    assert_int_equal(batch_flush(&rec.b), FAR_OK);
    assert_int_equal(rec.buf[0], 0xaa01);
    assert_int_equal(WORD, 0xaa01);
    assert_int_equal(rec.cost.rtts, 1);
}

/* A guess that is right in the mask's bits and wrong elsewhere, then the mask's bits change too. */
static void lose_then_mismatch(struct recorder *r)
{
    r->word[1][8] = r->posts == 0 ? 0xaa01 : 0xaa05;
}

static void a_word_lost_on_the_way_is_a_mismatch(void **state)
{
    (void)state;
    rec.interfere = lose_then_mismatch;
    batch_mcas(&rec.b, MARK_PUBLISH, AT, 0, 0x01, 0xff, 0x02, 0xff, rec.buf);
    assert_int_equal(batch_flush(&rec.b), FAR_OK);
    assert_int_equal(rec.buf[0], 0xaa05);
    assert_int_equal(WORD, 0xaa05);
    assert_int_equal(rec.cost.rtts, 2);
}

static void count_above_the_mask(struct recorder *r)
{
    r->word[1][8] += 0x100;
}

static void endless_contention_is_given_up(void **state)
{
    uint64_t before;

    (void)state;
    rec.interfere = count_above_the_mask;
    WORD = 0x01;
    batch_mcas(&rec.b, MARK_PUBLISH, AT, 0, 0x01, 0xff, 0x02, 0xff, rec.buf);
    assert_int_equal(batch_flush(&rec.b), FAR_CONTENTION);
    assert_true(far_error_detail()[0]);
    assert_int_equal(WORD & 0xff, 0x01); /* nothing was done */
    assert_in_range(rec.posts, 10, RECORDER_VERBS);
    assert_int_equal(rec.cost.rtts, rec.posts);

    before = WORD; /* the batch can be used again */
    rec.interfere = NULL;
    batch_mcas(&rec.b, MARK_PUBLISH, AT, 0, before, 0xff, 0x02, 0xff, rec.buf);
    assert_int_equal(batch_flush(&rec.b), FAR_OK);
    assert_int_equal(WORD & 0xff, 0x02);
}

/* All tries but the last one lose. */
static unsigned tries;

static void give_way_at_last(struct recorder *r)
{
    if (r->posts + 1 < tries)
        count_above_the_mask(r);
}

static void the_last_try_counts(void **state)
{
    (void)state;
    rec.interfere = count_above_the_mask;
    WORD = 0x01;
    batch_mcas(&rec.b, MARK_PUBLISH, AT, 0, 0x01, 0xff, 0x02, 0xff, rec.buf);
    assert_int_equal(batch_flush(&rec.b), FAR_CONTENTION);
    tries = rec.posts;

    recorder_reset(&rec, ORDER_IB, 0);
    rec.interfere = give_way_at_last;
    WORD = 0x01;
    unsigned n = batch_mcas(&rec.b, MARK_PUBLISH, AT, 0, 0x01, 0xff, 0x02, 0xff, rec.buf);
    assert_int_equal(batch_flush(&rec.b), FAR_OK);
    assert_true(batch_swapped(&rec.b, n));
    assert_int_equal(rec.posts, tries);
    assert_int_equal(WORD & 0xff, 0x02);
}

static void several_in_one_batch_are_each_finished(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++)
        rec.word[1][8 + i] = 0x100 * i + i;
    for (unsigned i = 0; i < 3; i++)
        batch_mcas(&rec.b, MARK_PUBLISH, AT, 8 * i, i, 0xff, 0x40, 0xf0, &rec.buf[i]);
    assert_int_equal(batch_flush(&rec.b), FAR_OK);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(rec.buf[i], 0x100 * i + i);
        assert_int_equal(rec.word[1][8 + i], 0x100 * i + i + 0x40);
    }
    assert_int_equal(rec.cost.rtts, 3); /* all together, then the two that guessed wrong */
}

/* What the fabric would have ordered behind the masked CAS sees its outcome. */
static void what_is_ordered_behind_it_waits_for_it(void **state)
{
    (void)state;
    WORD = 0xaa01;
    rec.buf[1] = 7;
    batch_write(&rec.b, MARK_EARLY, AT, 8, &rec.buf[1], 8);
    batch_mcas(&rec.b, MARK_PUBLISH, AT, 0, 0x01, 0xff, 0x02, 0xff, &rec.buf[0]);
    batch_read(&rec.b, AT, 0, &rec.buf[2], 16);
    assert_int_equal(batch_flush(&rec.b), FAR_OK);
    assert_int_equal(rec.buf[2], 0xaa02);
    assert_int_equal(rec.buf[3], 7);
    assert_int_equal(rec.cost.rtts, 3);
}

static void verbs_ordered_behind_it_go_out_in_a_later_post(void **state)
{
    static const struct recorder_case cases[] = {
        {ORDER_IB, "M0", "C0"},
        {ORDER_IB, "M0M0M1", "C0C0C1"},
        {ORDER_IB, "M0W0", "C0W0"},
        {ORDER_IB, "M0W0R0", "C0W0/R0"},
        {ORDER_IB, "M0R1R0", "C0R1/R0"},
        {ORDER_IB, "W0M0R0R0", "W0C0/R0R0"},
        {ORDER_IB, "M0|W0", "C0/W0"},
        {ORDER_IB, "M0|M0", "C0/C0"},
        {ORDER_IB, "M0|W1", "C0/W1"},
        {ORDER_IB, "C0|M0", "C0!C0"},
        {ORDER_IB, "C0|M0R0", "C0!C0/R0"},
        {ORDER_IB, "C0M0|C0C0", "C0C0/C0C0"},
        {ORDER_IB, "R0|M0|C0", "R0!C0/C0"},
        {ORDER_ALL, "M0M0", "C0/C0"},
        {ORDER_ALL, "M0M1W1", "C0C1/W1"},
        {ORDER_ALL, "M0|W0", "C0/W0"},
        {0, "M0R0W0C0", "C0R0W0C0"},
        {0, "M0|R0", "C0/R0"},
        {0, "M0R0|R0", "C0R0/R0"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        recorder_expect(&rec, &cases[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_right_guess_costs_one_round_trip, setup),
        cmocka_unit_test_setup(a_wrong_guess_costs_one_more, setup),
        cmocka_unit_test_setup(a_mismatch_under_the_mask_is_final, setup),
        cmocka_unit_test_setup(a_word_lost_on_the_way_is_a_mismatch, setup),
        cmocka_unit_test_setup(endless_contention_is_given_up, setup),
        cmocka_unit_test_setup(the_last_try_counts, setup),
        cmocka_unit_test_setup(several_in_one_batch_are_each_finished, setup),
        cmocka_unit_test_setup(what_is_ordered_behind_it_waits_for_it, setup),
        cmocka_unit_test_setup(verbs_ordered_behind_it_go_out_in_a_later_post, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
