/* Many clients append to one segment of SepHash: such a segment is split early, and the changes of
 * a process take turns. */
#include "pool/turns.h"
#include "support/sephash_rig.h"

#define SLOTS 16u

/* It has one segment, which has room for 256 keys. */
static void open_table(void)
{
    open_actors("mem:?size=4m&clients=8", "sephash", "slots=16&ratio=16&depth=0", NULL);
}

static uint64_t splits_of(struct actor *a)
{
    return view_of(a)->base.grown - view_of(a)->merges;
}

/* B fills all slots but the last, the last `lost` of them while A is about to append. Then A fills
 * the last one, and merges. */
static void fill_against(unsigned lost, bool same_key)
{
    uint32_t key = 0;
    open_table();
    meet_table(&A);
    for (unsigned slot = 0; slot < SLOTS - 1; slot++, key += !same_key) {
        if (slot == SLOTS - 1 - lost)
            actor_reach(&A, (struct place){A_CAS, .side = BEFORE_REQUEST}, put_key, 99, 99);
        expect_ok(put_key(&B, key, key));
    }
    expect_ok(actor_go_on(&A));
    assert_int_equal(view_of(&A)->base.grown, 1);
    expect_found(&A, 99, 99);
    expect_keys(&A, 0, same_key ? 1 : SLOTS - 1);
    expect_keys(&B, 0, same_key ? 1 : SLOTS - 1);
    expect_sound_table();
}

TEST(a_segment_that_many_append_to_is_split_early)
{
    fill_against(4, false);
    assert_int_equal(splits_of(&A), 1);
}

TEST(a_segment_that_few_append_to_is_split_when_it_is_full)
{
    fill_against(3, false);
    assert_int_equal(splits_of(&A), 0);
}

/* A split would not help those that change the same key. */
TEST(a_crowded_segment_of_few_keys_is_not_split)
{
    fill_against(4, true);
    assert_int_equal(splits_of(&A), 0);
}

/* ---- turns ----------------------------------------------------------------------------------- */

static struct turn turn; /* it is B's */

static void take_turn(void)
{
    open_table();
    rig.pool->pool.turns = turns_open(1, 1);
    assert_non_null(rig.pool->pool.turns);
    expect_ok(put_key(&A, 0, 0)); /* it has memory, and knows the segment */
    expect_ok(insert_key(&B, 1, 1));
    turn_take(&B.s->op, sephash_known_of(view_of(&B), 0)->segment.part.anchor, &turn);
}
static void give_turn(void)
{
    turn_give(&B.s->op, &turn);
}

/* A loses a slot to another key, and waits for its turn. */
static void lose_and_wait(deed *act, uint32_t key)
{
    actor_reach(&A, (struct place){A_CAS, .side = BEFORE_REQUEST}, act, key, 10);
    expect_ok(put_key(&B, 20, 20));
    assert_int_equal(actor_go_until(&A, (struct place){.waits = true}), STOPPED);
}

/* The READ of the slots behind those that it knows is one round trip, however many were filled. */
TEST(a_change_that_has_waited_reads_at_once_what_was_appended)
{
    take_turn();
    lose_and_wait(put_key, 2);
    put_keys(&B, 21, 27);
    give_turn();
    expect_ok(actor_go_on(&A));
    assert_int_equal(A.s->op.cost.rtts, 4); /* a look, a CAS, that READ, a CAS */
    expect_found(&B, 2, 10);
    expect_keys(&B, 20, 27);
    expect_sound_table();
}

/* B deletes the key while A waits to update it. */
TEST(a_change_that_has_waited_judges_all_that_was_appended)
{
    take_turn();
    lose_and_wait(update_key, 1);
    expect_ok(delete_key(&B, 1, 0));
    put_keys(&B, 21, 24);
    give_turn();
    assert_int_equal(actor_go_on(&A), FAR_NOT_FOUND);
    assert_int_equal(get_key(&B, 1, 0), FAR_NOT_FOUND);
    expect_keys(&B, 20, 24);
    expect_sound_table();
}

/* B overwrites the key while A waits (CHANGE-C1). */
TEST(a_change_that_has_waited_may_be_overwritten)
{
    take_turn();
    lose_and_wait(update_key, 1);
    put_keys(&B, 21, 23);
    expect_ok(update_key(&B, 1, 11));
    put_keys(&B, 23, 25);
    give_turn();
    expect_ok(actor_go_on(&A));
    expect_found(&A, 1, 11);
    expect_ok(put_key(&A, 30, 30)); /* it fills the next slot */
    expect_found(&B, 30, 30);
    expect_keys(&B, 20, 25);
    expect_sound_table();
}

/* The READ finds the first of two slots empty, and the one behind it filled (FABRIC-F1). */
TEST(a_change_that_has_waited_stops_at_an_empty_slot)
{
    take_turn();
    lose_and_wait(update_key, 1);
    give_turn();
    struct place slots = {A_READ, .side = AFTER_REQUEST};
    assert_int_equal(actor_go_until(&A, slots), STOPPED);
    expect_ok(delete_key(&B, 1, 0));
    expect_ok(put_key(&B, 21, 21));
    uint64_t *slot = A.verb->buf;
    assert_int_equal(slot[0], 0);
    slot[1] = store_rig_get(&rig, 0, A.verb->off + 8);
    assert_int_not_equal(slot[1], 0);
    assert_int_equal(actor_go_on(&A), FAR_NOT_FOUND);
    assert_int_equal(get_key(&B, 1, 0), FAR_NOT_FOUND);
    expect_sound_table();
}

/* The CurSegment is not current any more. */
TEST(a_change_that_has_waited_finds_the_new_segment)
{
    take_turn();
    lose_and_wait(update_key, 1);
    for (uint32_t key = 21; view_of(&B)->base.grown == 0; key++)
        expect_ok(put_key(&B, key, key));
    give_turn();
    expect_ok(actor_go_on(&A));
    expect_found(&B, 1, 10);
    expect_sound_table();
}

/* TURN-1: nobody depends on the one whose turn it is. */
TEST(a_change_does_not_wait_for_ever)
{
    take_turn();
    lose_and_wait(update_key, 1);
    expect_ok(actor_go_on(&A));
    expect_found(&B, 1, 10);
    give_turn();
}

TEST(a_put_that_expects_others_takes_its_turn_first)
{
    take_turn();
    lose_and_wait(put_key, 2);
    give_turn();
    expect_ok(actor_go_on(&A));
    turn_take(&B.s->op, sephash_known_of(view_of(&B), 0)->segment.part.anchor, &turn);
    actor_reach(&A, (struct place){.waits = true}, put_key, 3, 3);
    assert_int_equal(A.s->op.cost.rtts, 0);
    put_keys(&B, 21, 25);
    give_turn();
    expect_ok(actor_go_on(&A));
    assert_int_equal(A.s->op.cost.rtts, 2);
    /* Nobody has the turn any more. */
    expect_ok(actor_begin(&A, (struct place){.waits = true}, put_key, 4, 4));
    assert_int_equal(A.s->op.cost.rtts, 2);
    expect_keys(&B, 3, 5);
    expect_sound_table();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_segment_that_many_append_to_is_split_early),
        cmocka_unit_test(a_segment_that_few_append_to_is_split_when_it_is_full),
        cmocka_unit_test(a_crowded_segment_of_few_keys_is_not_split),
        cmocka_unit_test(a_change_that_has_waited_reads_at_once_what_was_appended),
        cmocka_unit_test(a_change_that_has_waited_judges_all_that_was_appended),
        cmocka_unit_test(a_change_that_has_waited_may_be_overwritten),
        cmocka_unit_test(a_change_that_has_waited_stops_at_an_empty_slot),
        cmocka_unit_test(a_change_that_has_waited_finds_the_new_segment),
        cmocka_unit_test(a_change_does_not_wait_for_ever),
        cmocka_unit_test(a_put_that_expects_others_takes_its_turn_first),
    };
    return cmocka_run_group_tests(tests, NULL, close_actors);
}
