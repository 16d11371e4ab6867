/* Lanes of a CurSegment: each fills by itself, then the spill, and a merge closes those that are
 * not full. */
#include "support/sephash_rig.h"

static gaddr cur(void)
{
    return sephash_target(sephash_known_of(view_of(&B), 0)->segment.state);
}
static uint64_t slot_now(unsigned slot)
{
    return store_rig_get(&rig, cur(), sephash_slot_at(&view_of(&B)->shape, slot));
}

/* The first key of the lane, from that one on. */
static uint32_t key_in(unsigned lane, uint32_t key)
{
    while (key_of(key).lane != lane)
        key++;
    return key;
}

/* One segment of three lanes and a spill, of eight slots each. Both know it. */
static void open_lanes(void)
{
    open_actors("mem:?size=4m&clients=8", "sephash", "slots=32&ratio=16&depth=0&lane=8&hot=0",
                NULL);
    meet_table(&A);
    meet_table(&B);
    actor_join(&C);
    meet_table(&C);
    assert_int_equal(view_of(&B)->shape.lanes, 3);
    assert_int_equal(view_of(&B)->shape.spill, 8);
}

/* B merges the segment by changes of one key, and A finds the last one. */
static void merge_by(uint32_t key)
{
    uint64_t before = view_of(&B)->merges;
    uint32_t i = 0;
    for (; view_of(&B)->merges == before; i++)
        expect_ok(put_key(&B, key, i));
    expect_found(&C, key, i - 1);
}

static struct place slot_place(uint32_t key, unsigned n, enum stop_side side)
{
    uint64_t at = sephash_slot_at(&view_of(&B)->shape, key_of(key).lane * 8 + n);
    return (struct place){A_CAS, .side = side, .of = cur(), .delta = at, .bytes = 8};
}

TEST(a_key_is_in_its_lane)
{
    open_lanes();
    for (unsigned lane = 0; lane < 3; lane++) {
        expect_ok(put_key(&B, key_in(lane, 1), 1));
        for (unsigned i = 0; i < 32; i++)
            assert_int_equal(slot_now(i) != 0, i % 8 == 0 && i / 8 <= lane);
    }
    expect_sound_table();
}

/* A change looks at its lane, and not at all slots. */
TEST(a_change_reads_one_lane)
{
    open_lanes();
    uint32_t key = key_in(1, 1);
    for (unsigned i = 0; i < 4; i++) {
        expect_ok(put_key(&B, key, i));
        assert_true(i == 0 ||
                    B.s->op.cost.bytes_read < sizeof(uint64_t) * view_of(&B)->shape.slots);
    }
}

/* A is about to append to a lane when B merges the segment because another one is full: A finds its
 * lane closed, and appends to the new CurSegment. */
TEST(nothing_is_appended_to_a_lane_that_was_closed)
{
    open_lanes();
    uint32_t key = key_in(0, 1), other = key_in(2, 1);
    actor_reach(&A, slot_place(key, 0, BEFORE_REQUEST), put_key, key, 7);
    merge_by(other);
    expect_ok(actor_go_on(&A));
    expect_found(&A, key, 7);
    expect_found(&B, key, 7);
    expect_sound_table();
}

/* The merger has read the slots. Before it closes a lane, another client appends to it. */
TEST(what_is_appended_before_a_lane_is_closed_is_merged)
{
    open_lanes();
    uint32_t key = key_in(0, 1), other = key_in(2, 1);
    int rc = FAR_OK;
    uint32_t i = 0;
    for (; i < 16 && rc == FAR_OK; i++)
        rc = actor_begin(&A, slot_place(key, 0, BEFORE_REQUEST), put_key, other, i);
    assert_int_equal(rc, STOPPED);
    expect_ok(put_key(&B, key, 7));
    expect_ok(actor_go_on(&A));
    expect_found(&A, key, 7);
    expect_found(&B, key, 7);
    expect_found(&B, other, i - 1);
    expect_sound_table();
}

/* A merger has closed a lane and dies: the next change of this lane merges. */
TEST(a_closed_lane_is_full)
{
    open_lanes();
    uint32_t key = key_in(0, 1);
    expect_ok(put_key(&B, key, 1));
    store_rig_set(&rig, cur(), sephash_slot_at(&view_of(&B)->shape, 1), SEPHASH_CLOSED);
    gaddr before = cur();
    expect_found(&A, key, 1);
    expect_sound_table();
    expect_ok(put_key(&B, key, 2));
    assert_true(cur() != before);
    expect_found(&A, key, 2);
    expect_sound_table();
}

/* ---- the spill ------------------------------------------------------------------------------- */

/* A key whose lane is full goes on in the spill. Sessions that do not know that find it all the
 * same, with a round trip more, once. */
TEST(a_key_is_in_the_spill_if_its_lane_is_full)
{
    open_lanes();
    uint32_t key = key_in(1, 1), other = key_in(1, key + 1);
    for (uint32_t i = 0; i < 9; i++)
        expect_ok(put_key(&B, key, i));
    expect_found(&A, key, 8);
    expect_found(&C, key, 8);
    assert_int_equal(C.s->op.cost.rtts, 3);
    for (uint32_t i = 0; i < 3; i++) {
        expect_ok(put_key(&B, i == 1 ? other : key, 10 + i));
        assert_true(slot_now(25 + i) != 0);
        expect_found(&A, i == 1 ? other : key, 10 + i);
        expect_found(&C, i == 1 ? other : key, 10 + i);
        assert_int_equal(C.s->op.cost.rtts, 2);
    }
    expect_ok(update_key(&A, key, 20));
    expect_ok(delete_key(&A, other, 0));
    expect_found(&B, key, 20);
    assert_int_equal(get_key(&C, other, 0), FAR_NOT_FOUND);
    expect_sound_table();
    merge_by(key);
    assert_int_equal(get_key(&C, other, 0), FAR_NOT_FOUND);
    expect_sound_table();
}

/* A has found its lane empty. By its turn the lane is full, and so is a part of the spill. */
TEST(a_change_goes_on_from_its_lane_to_the_spill)
{
    open_lanes();
    uint32_t key = key_in(1, 1), other = key_in(1, key + 1);
    actor_reach(&A, slot_place(key, 0, BEFORE_REQUEST), put_key, key, 7);
    for (uint32_t i = 0; i < 10; i++)
        expect_ok(put_key(&B, other, i));
    expect_ok(actor_go_on(&A));
    assert_true(slot_now(24 + 2) != 0 && slot_now(24 + 3) == 0);
    expect_found(&B, key, 7);
    expect_found(&C, other, 9);
    expect_sound_table();
}

/* What is known of a CurSegment's lanes does not hold for the next one. */
TEST(a_new_current_segment_has_no_full_lane)
{
    open_lanes();
    uint32_t key = key_in(1, 1);
    for (unsigned i = 0; i < 3; i++) {
        merge_by(key);
        assert_int_equal(sephash_known_of(view_of(&B), 0)->segment.full, 0);
        assert_int_equal(sephash_known_of(view_of(&C), 0)->segment.full, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_is_in_its_lane),
        cmocka_unit_test(a_change_reads_one_lane),
        cmocka_unit_test(nothing_is_appended_to_a_lane_that_was_closed),
        cmocka_unit_test(what_is_appended_before_a_lane_is_closed_is_merged),
        cmocka_unit_test(a_closed_lane_is_full),
        cmocka_unit_test(a_key_is_in_the_spill_if_its_lane_is_full),
        cmocka_unit_test(a_change_goes_on_from_its_lane_to_the_spill),
        cmocka_unit_test(a_new_current_segment_has_no_full_lane),
    };
    return cmocka_run_group_tests(tests, NULL, close_actors);
}
