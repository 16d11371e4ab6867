/* The tape: the same source gives the same choices; recordings play back; an enumeration visits
 * every sequence once, and reports if a bound left some out. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "sim/tape.h"

#include <string.h>

static struct tape tape;

static int set_up(void **state)
{
    (void)state;
    tape_init(&tape);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tape_free(&tape);
    return 0;
}

static void a_seed_repeats_itself(void **state)
{
    (void)state;
    uint32_t first[200];
    for (unsigned run = 0; run < 3; run++) {
        tape_from_seed(&tape, 42, run == 2); /* recording changes nothing */
        for (unsigned i = 0; i < 200; i++) {
            uint32_t c = tape_choose(&tape, 1 + i, TAPE_WORK);
            assert_true(c <= i);
            if (run == 0)
                first[i] = c;
            assert_int_equal(c, first[i]);
        }
    }
    assert_int_equal(tape.count, 200);
    tape_from_seed(&tape, 43, false);
    unsigned same = 0;
    for (unsigned i = 0; i < 200; i++)
        same += tape_choose(&tape, 1 + i, TAPE_WORK) == first[i];
    assert_true(same < 50);
}

/* What is chosen aside changes nothing else, and is part of a recording. */
static void a_choice_aside_leaves_the_others_as_they_were(void **state)
{
    (void)state;
    uint32_t first[50], aside[50];
    unsigned same = 0;
    tape_from_seed(&tape, 7, false);
    for (unsigned i = 0; i < 50; i++)
        first[i] = tape_choose(&tape, 1000, TAPE_WORK);
    tape_from_seed(&tape, 7, true);
    for (unsigned i = 0; i < 50; i++) {
        aside[i] = tape_choose_aside(&tape, 1000, TAPE_SETUP);
        assert_int_equal(tape_choose(&tape, 1000, TAPE_WORK), first[i]);
        same += aside[i] == first[i];
    }
    assert_true(same < 10);
    assert_int_equal(tape.count, 100);
    assert_true(tape_from_record(&tape, tape.mark, tape.count));
    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(tape_choose_aside(&tape, 1000, TAPE_SETUP), aside[i]);
        assert_int_equal(tape_choose(&tape, 1000, TAPE_WORK), first[i]);
    }
}

static void a_recording_plays_back_and_ends_in_zeroes(void **state)
{
    (void)state;
    uint32_t first[50];
    tape_from_seed(&tape, 7, true);
    for (unsigned i = 0; i < 50; i++)
        first[i] = tape_choose(&tape, 10, TAPE_DELAY);
    assert_int_equal(tape.mark[3].choice, first[3]);
    assert_int_equal(tape.mark[3].of, 10);
    assert_string_equal(tape_label_name(tape.mark[3].label), "delay");

    assert_true(tape_from_record(&tape, tape.mark, 40));
    for (unsigned i = 0; i < 50; i++)
        assert_int_equal(tape_choose(&tape, 10, TAPE_DELAY), i < 40 ? first[i] : 0);

    const struct tape_mark edited[] = {{.choice = 7, .of = 10}, {.choice = 0, .of = 2}};
    assert_true(tape_from_record(&tape, edited, 2));
    assert_int_equal(tape_choose(&tape, 5, TAPE_DELAY), 2); /* made to fit */
    assert_int_equal(tape_choose(&tape, 5, TAPE_DELAY), 0);
}

static void bytes_are_choices_until_they_end(void **state)
{
    (void)state;
    const uint8_t bytes[] = {5, 1, 2};
    tape_from_bytes(&tape, bytes, sizeof bytes, false);
    assert_int_equal(tape_choose(&tape, 1, TAPE_WORK), 0); /* costs no byte */
    assert_int_equal(tape_choose(&tape, 4, TAPE_WORK), 1);
    assert_int_equal(tape_choose(&tape, 1000, TAPE_WORK), 258);
    assert_int_equal(tape_choose(&tape, 1000, TAPE_WORK), 0);
}

static void a_chance_has_the_probability_asked_for(void **state)
{
    (void)state;
    unsigned hits = 0;
    tape_from_seed(&tape, 1, false);
    for (unsigned i = 0; i < 10000; i++)
        hits += tape_chance(&tape, 1, 10, TAPE_FAULT);
    assert_in_range(hits, 900, 1100);
    assert_true(tape_from_record(&tape, NULL, 0));
    assert_false(tape_chance(&tape, 9, 10, TAPE_FAULT));
}

/* A tree whose shape depends on the choices: 3 ways, and below way k another k + 1 ways, twice. */
static unsigned walk(unsigned seen[3][3][3])
{
    uint32_t a = tape_choose(&tape, 3, TAPE_EVENT);
    uint32_t b = tape_choose(&tape, a + 1, TAPE_EVENT);
    uint32_t c = tape_choose(&tape, a + 1, TAPE_EVENT);
    return ++seen[a][b][c];
}

static void enumeration_visits_everything_once(void **state)
{
    (void)state;
    unsigned seen[3][3][3] = {0}, runs = 0;
    tape_enumerate(&tape, 100, 100);
    do {
        assert_int_equal(walk(seen), 1);
        runs++;
    } while (tape_next(&tape));
    assert_int_equal(runs, 1 + 4 + 9);
    assert_false(tape.cut);
}

static void enumeration_keeps_its_bounds(void **state)
{
    (void)state;
    for (unsigned deviations = 0; deviations < 4; deviations++) {
        const unsigned expected[] = {1, 3, 9, 14}; /* sequences with that many non-zeroes or less */
        unsigned seen[3][3][3] = {0}, runs = 0;
        tape_enumerate(&tape, 100, deviations);
        do
            assert_int_equal(walk(seen), 1), runs++;
        while (tape_next(&tape));
        assert_int_equal(runs, expected[deviations]);
        assert_int_equal(tape.cut, deviations < 3);
    }
    unsigned seen[3][3][3] = {0}, runs = 0;
    tape_enumerate(&tape, 1, 100);
    do
        walk(seen), runs++;
    while (tape_next(&tape));
    assert_int_equal(runs, 3);
    assert_true(tape.cut);
}

static void narrowing_ends_the_branching_of_a_run(void **state)
{
    (void)state;
    unsigned runs = 0;
    tape_enumerate(&tape, 100, 100);
    do {
        uint32_t a = tape_choose(&tape, 3, TAPE_EVENT);
        if (a == 1)
            tape_narrow(&tape);
        tape_choose(&tape, 4, TAPE_EVENT);
        runs++;
    } while (tape_next(&tape));
    assert_int_equal(runs, 4 + 1 + 4);
    assert_false(tape.cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seed_repeats_itself),
        cmocka_unit_test(a_choice_aside_leaves_the_others_as_they_were),
        cmocka_unit_test(a_recording_plays_back_and_ends_in_zeroes),
        cmocka_unit_test(bytes_are_choices_until_they_end),
        cmocka_unit_test(a_chance_has_the_probability_asked_for),
        cmocka_unit_test(enumeration_visits_everything_once),
        cmocka_unit_test(enumeration_keeps_its_bounds),
        cmocka_unit_test(narrowing_ends_the_branching_of_a_run),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
