/* Hints of SepHash: keys that this process has seen, and what others do to them (SEPHASH-H11). */
#include "support/sephash_rig.h"

/* One segment. C is in another process, and has other hints than A and B. */
static void open_table(void)
{
    open_actors("mem:?size=4m&clients=8", "sephash", "slots=32&ratio=16&depth=0&lane=8", NULL);
    actor_set(&C, &rig, store_rig_join_apart(&rig), B.t);
    meet_table(&A);
    meet_table(&C);
}

/* The actor merges the segment by changes of another key. */
static void merge_by(struct actor *a)
{
    uint64_t before = view_of(a)->merges;
    for (uint32_t i = 0; view_of(a)->merges == before; i++)
        expect_ok(put_key(a, 1u << 20, i));
}

static void expect_rtts(struct actor *a, uint64_t rtts)
{
    assert_int_equal(a->s->op.cost.rtts, rtts);
}

TEST(a_get_of_a_key_that_was_seen_takes_one_round_trip)
{
    uint64_t bytes[3] = {0};
    open_table();
    for (unsigned in_main = 0; in_main < 2; in_main++) {
        put_keys(&B, 1, 6);
        if (in_main)
            merge_by(&B);
        for (unsigned i = 0; i < 3; i++) {
            for (uint32_t key = 1; key < 6; key++) {
                expect_found(&B, key, key);
                expect_rtts(&B, 1);
                bytes[i] = B.s->op.cost.bytes_read;
            }
        }
    }
    assert_true(bytes[2] < bytes[0]); /* one entry of the MainSegment, not all that may be */
}

TEST(a_change_of_a_key_that_was_seen_takes_two_round_trips)
{
    open_table();
    put_keys(&B, 1, 4);
    for (unsigned i = 0; i < 2; i++) {
        merge_by(&B);
        expect_ok(update_key(&B, 1, 7 + i));
        expect_rtts(&B, 2);
        expect_ok(update_key(&B, 1, 9 + i));
        expect_rtts(&B, 2);
        expect_found(&C, 1, 9 + i);
    }
    expect_ok(delete_key(&B, 1, 0));
    expect_rtts(&B, 2);
    assert_int_equal(get_key(&C, 1, 0), FAR_NOT_FOUND);
    assert_int_equal(get_key(&B, 1, 0), FAR_NOT_FOUND);
    assert_int_equal(update_key(&B, 1, 0), FAR_NOT_FOUND);
}

/* Another process changes the key. It was in the CurSegment, or in the MainSegment. */
TEST(a_newer_entry_is_noticed)
{
    open_table();
    put_keys(&B, 1, 4);
    for (uint32_t i = 0; i < 6; i++) {
        if (i % 2 == 1)
            merge_by(&B);
        expect_ok(get_key(&B, 1, 0));
        expect_ok(update_key(&C, 1, 100 + i));
        expect_found(&B, 1, 100 + i);
        expect_ok(put_key(&C, 1, 200 + i));
        expect_ok(update_key(&B, 1, 300 + i));
        expect_found(&C, 1, 300 + i);
    }
    expect_sound_table();
}

TEST(a_delete_is_noticed)
{
    open_table();
    for (uint32_t i = 0; i < 4; i++) {
        expect_ok(put_key(&B, 1, i));
        if (i % 2 == 1)
            merge_by(&B);
        expect_found(&B, 1, i);
        expect_found(&B, 1, i);
        expect_ok(delete_key(&C, 1, 0));
        if (i / 2 == 1)
            merge_by(&C);
        assert_int_equal(get_key(&A, 1, 0), FAR_NOT_FOUND);
        assert_int_equal(update_key(&B, 1, 0), FAR_NOT_FOUND);
    }
    expect_sound_table();
}

/* A key is deleted and merged away. The process still has a hint, and its block has the key. */
TEST(what_is_not_in_the_segment_is_not_found)
{
    open_table();
    put_keys(&B, 1, 4);
    merge_by(&B);
    expect_found(&B, 1, 1);
    expect_ok(delete_key(&C, 1, 0));
    merge_by(&C);
    expect_ok(get_key(&A, 2, 0)); /* the session knows the new segments */
    expect_ok(get_key(&B, 2, 0));
    assert_int_equal(get_key(&B, 1, 0), FAR_NOT_FOUND);
}

/* The place of a hint is wrong: the key is found all the same. */
TEST(a_wrong_place_is_noticed)
{
    open_table();
    for (uint32_t key = 1; key < 100; key++)
        expect_ok(put_key(&B, key, key));
    merge_by(&B);
    for (uint32_t key = 1; key < 100; key++) {
        struct sephash_view *view = view_of(&B);
        struct sephash_key k;
        expect_found(&B, key, key);
        sephash_hash(view, (struct slice){&key, sizeof key}, &k);
        struct index_hint hint = sephash_hint(view, &k);
        if (hint.slot == 0 || hint.place >= SEPHASH_ANYWHERE - 1)
            continue;
        hint.place++;
        index_hint_note(view->hints, SEPHASH_SLOT, k.hash, k.fp, hint);
        if (key % 2 == 0) {
            expect_found(&B, key, key);
            expect_ok(update_key(&B, key, key));
            continue;
        }
        /* The word is among the slots, too: it deletes the entry that B does not read. */
        expect_ok(delete_key(&C, key, 0));
        assert_int_equal(get_key(&B, key, 0), FAR_NOT_FOUND);
    }
}

/* On a network that keeps no order among READs, that takes a fence, which counts as a round
 * trip. */
TEST(the_block_is_read_behind_the_slots)
{
    open_table();
    put_keys(&B, 1, 2);
    expect_found(&B, 1, 1);
    expect_rtts(&B, 1);
    unsigned order = rig.fab->order;
    rig.fab->order = ORDER_ALL & ~ORDER(FAB_R, FAB_R);
    expect_found(&B, 1, 1);
    rig.fab->order = order;
    expect_rtts(&B, 2);
}

/* B does not know that the lane of the key is full. So it reads the key's slot, in the spill,
 * behind the block that the hint of A names, and reads that again. */
TEST(a_slot_that_was_read_behind_the_block_does_not_count)
{
    open_table();
    meet_table(&B);
    for (uint32_t i = 0; i < 9; i++)
        expect_ok(put_key(&A, 1, i));
    expect_found(&B, 1, 8);
    expect_rtts(&B, 3);
    expect_found(&B, 1, 8);
    expect_rtts(&B, 1);
}

/* The actor's process has a hint of the word, with the generation of the segment, and any place: as
 * if it was of a segment that was split since. */
static void expect_hidden(struct actor *a, uint32_t key, uint64_t word)
{
    struct sephash_view *view = view_of(a);
    struct sephash_key k;
    sephash_hash(view, (struct slice){&key, sizeof key}, &k);
    const struct sephash_segment *s = &sephash_known_of(view, k.hash)->segment;
    assert_int_equal(get_key(a, key, 0), FAR_CORRUPT);
    for (unsigned place = 0; place < s->entries; place++) {
        sephash_hint_note(view, &k, s->state, word, place, NULL);
        assert_int_equal(get_key(a, key, 0), FAR_CORRUPT);
        assert_int_equal(update_key(a, key, 3), FAR_CORRUPT);
    }
}

/* The newest entry of a key is damaged, or a delete of it. A hint does not bring back the one that
 * is behind it in the MainSegment (SEPHASH-H9). */
TEST(a_hint_brings_no_old_value_back)
{
    for (uint32_t deleted = 0; deleted < 2; deleted++) {
        uint32_t key = 1;
        struct sephash_key k;
        open_table();
        put_keys(&C, 1, 4);
        merge_by(&C);
        expect_found(&C, key, 1);
        sephash_hash(view_of(&C), (struct slice){&key, sizeof key}, &k);
        uint64_t old = sephash_hint(view_of(&C), &k).slot;
        expect_ok(put_key(&C, key, 2));
        gaddr at = pointer_gaddr(sephash_hint(view_of(&C), &k).slot);
        assert_true(old != 0 && at != 0);
        if (deleted)
            expect_ok(delete_key(&C, key, 0));
        store_rig_set(&rig, at, 16, store_rig_get(&rig, at, 16) ^ 3);
        for (unsigned merges = 0; merges < 2; merges++) {
            merge_by(&C);
            expect_hidden(&C, key, old);
            expect_hidden(&A, key, old);
        }
        close_actors(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_get_of_a_key_that_was_seen_takes_one_round_trip),
        cmocka_unit_test(a_change_of_a_key_that_was_seen_takes_two_round_trips),
        cmocka_unit_test(a_newer_entry_is_noticed),
        cmocka_unit_test(a_delete_is_noticed),
        cmocka_unit_test(what_is_not_in_the_segment_is_not_found),
        cmocka_unit_test(a_wrong_place_is_noticed),
        cmocka_unit_test(the_block_is_read_behind_the_slots),
        cmocka_unit_test(a_slot_that_was_read_behind_the_block_does_not_count),
        cmocka_unit_test(a_hint_brings_no_old_value_back),
    };
    return cmocka_run_group_tests(tests, NULL, close_actors);
}
