/*
 * CHANGE-C1 on RACE: changes that lose their slot to another session. The other one acts between
 * the look and the CAS of the one that loses. If its block shows that it has overwritten what the
 * loser would have stored, the loser is done; otherwise it tries again.
 */
#include "index/walk.h"
#include "support/duel.h"
#include "support/race_rig.h"

/* A look, the block, the CAS, the winner's block. */
#define RTTS_DONE 4u

/* The key is alone in its table, so that it gets the same place again after a delete. */
static void start(void)
{
    open_duel("groups=2&hot=0", NULL);
}

static void is_done(int (*call)(far_session *s, uint32_t value), void (*act)(void))
{
    start();
    expect_done(call, act, OTHERS);
    assert_int_equal(duel.rtts, RTTS_DONE);
    close_duel();
}

static void tries_again(int (*call)(far_session *s, uint32_t value), void (*act)(void))
{
    start();
    expect_again(call, act);
    assert_true(duel.rtts > RTTS_DONE);
    assert_int_equal(far_table_check(duel.r.session, duel.r.table, NULL, NULL), FAR_OK);
    close_duel();
}

/* ---- what the other does --------------------------------------------------------------------- */

static void other_updates_twice(void)
{
    assert_int_equal(update(duel.other, OTHERS + 1), FAR_OK);
    assert_int_equal(update(duel.other, OTHERS), FAR_OK);
}

static void other_deletes_and_inserts(void)
{
    uint32_t value = OTHERS;
    other_deletes();
    assert_int_equal(far_insert(duel.other, duel.r.table, KEY, &value, sizeof value), FAR_OK);
}

static void other_deletes_and_puts(void)
{
    other_deletes();
    other_puts();
}

/* Where the key's slot is: the other looks, because the loser is in the middle of a call. */
static struct race_spot spot_of(const void *key, size_t len)
{
    struct store_rig other = duel.r;
    struct race_spot spot;
    other.session = duel.other;
    race_rig_find(&other, key, len, &spot);
    assert_true(spot.found.place >= 0);
    return spot;
}

static void set_slot(const struct race_spot *spot, uint64_t word)
{
    struct store_rig other = duel.r;
    other.session = duel.other;
    store_rig_set(&other, spot->look.subtable,
                  race_place_offset(&spot->key, (unsigned)spot->found.place), word);
}

/* A put that has not committed its slot yet. */
static void other_dies_before_it_commits(void)
{
    other_deletes_and_puts();
    struct race_spot spot = spot_of(KEY);
    set_slot(&spot, spot.found.slot | RACE_SLOT_TENTATIVE);
}

static void other_seals(void)
{
    struct race_spot spot = spot_of(KEY);
    set_slot(&spot, spot.found.slot | RACE_SLOT_SEALED);
}

static void other_updates_and_seals(void)
{
    other_updates();
    other_seals();
}

/* The slot has another key, with the same fingerprint, and that key was updated. */
static void other_key_takes_the_slot(void)
{
    static const char key[] = "another key";
    uint32_t value = OTHERS;
    struct race_spot mine = spot_of(KEY);
    assert_int_equal(far_put(duel.other, duel.r.table, key, sizeof key, &value, 4), FAR_OK);
    assert_int_equal(far_update(duel.other, duel.r.table, key, sizeof key, &value, 4), FAR_OK);
    struct race_spot others = spot_of(key, sizeof key);
    uint64_t mask = slot_fingerprint_mask(RACE_SLOT);
    set_slot(&mine, (others.found.slot & ~mask) | (mine.found.slot & mask));
}

/* The slot gives its block the class after its own: a check has found that. */
static void other_repairs(void)
{
    struct store_rig other = duel.r;
    struct race_spot spot = spot_of(KEY);
    uint64_t found = spot.found.slot;
    struct index_finding finding = {
        .fault = RACE_CLASS,
        .place = (unsigned)race_place_offset(&spot.key, (unsigned)spot.found.place) / 8,
        .found = found,
        .right = pointer_with_class(found, pointer_class(found) - 1)};
    bool done = false;
    other.session = duel.other;
    assert_int_equal(
        race_repair(&duel.other->op, race_rig_view(&other), spot.look.subtable, &finding, &done),
        FAR_OK);
    assert_true(done);
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void an_update_that_loses_to_an_update_is_done(void **state)
{
    (void)state;
    is_done(update, other_updates);
    is_done(update, other_updates_twice);
}

static void a_put_that_loses_to_a_put_or_an_update_is_done(void **state)
{
    (void)state;
    is_done(put, other_puts);
    is_done(put, other_updates);
    is_done(put, other_deletes_and_puts);
}

/* The modify has seen the value before, and no other may come between. */
static void a_change_that_loses_to_a_modify_tries_again(void **state)
{
    (void)state;
    tries_again(update, other_modifies);
    tries_again(put, other_modifies);
}

/* The insert has seen that the key was absent. */
static void a_change_that_loses_to_an_insert_tries_again(void **state)
{
    (void)state;
    tries_again(update, other_deletes_and_inserts);
    tries_again(put, other_deletes_and_inserts);
}

/* Right before the put the key may have been absent, as it was here: there was nothing to
 * update. */
static void an_update_that_loses_to_a_put_tries_again(void **state)
{
    (void)state;
    tries_again(update, other_puts);
    tries_again(update, other_deletes_and_puts);
}

static void a_change_that_loses_to_a_delete_finds_no_key(void **state)
{
    (void)state;
    tries_again(put, other_deletes);
    start();
    assert_int_equal(lose(update, other_deletes), FAR_NOT_FOUND);
    assert_int_equal(value_now(duel.r.session), 0);
    close_duel();
}

/* They depend on what was there, so they are never done without having had the slot. */
static void a_modify_or_delete_that_loses_tries_again(void **state)
{
    (void)state;
    start();
    assert_int_equal(lose(modify_call, other_updates), FAR_OK);
    assert_int_equal(value_now(duel.r.session), OTHERS + ONE_MORE);
    assert_int_equal(lose(delete_call, other_updates), FAR_OK);
    assert_int_equal(value_now(duel.r.session), 0);
    close_duel();
}

/* Nobody sees its value, and if the other is dead, nobody ever will. */
static void a_tentative_slot_is_no_winner(void **state)
{
    (void)state;
    tries_again(put, other_dies_before_it_commits);
}

/* The slot still has the block that the loser found. */
static void a_slot_that_was_only_sealed_is_no_winner(void **state)
{
    (void)state;
    tries_again(update, other_seals);
    tries_again(put, other_seals);
}

/* It was updated before it was sealed. */
static void a_winner_that_is_sealed_has_won(void **state)
{
    (void)state;
    start();
    assert_int_equal(lose(update, other_updates_and_seals), FAR_OK);
    assert_int_equal(duel.rtts, RTTS_DONE);
    assert_int_equal(value_now(duel.r.session), OTHERS);
    close_duel();
}

static void another_key_with_the_same_fingerprint_is_no_winner(void **state)
{
    (void)state;
    start();
    assert_int_equal(lose(update, other_key_takes_the_slot), FAR_NOT_FOUND);
    assert_int_equal(value_now(duel.r.session), 0);
    close_duel();
    start();
    assert_int_equal(lose(put, other_key_takes_the_slot), FAR_OK);
    assert_int_equal(value_now(duel.r.session), MINE);
    close_duel();
}

/* The slot gives its block a wrong size. A repair corrects that, and the block is the old one. */
static void a_slot_that_was_repaired_is_no_winner(void **state)
{
    (void)state;
    start();
    struct race_spot spot = spot_of(KEY);
    set_slot(&spot, pointer_with_class(spot.found.slot, pointer_class(spot.found.slot) + 1));
    assert_int_equal(lose(update, other_repairs), FAR_OK);
    assert_int_equal(value_now(duel.r.session), MINE);
    close_duel();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_update_that_loses_to_an_update_is_done),
        cmocka_unit_test(a_put_that_loses_to_a_put_or_an_update_is_done),
        cmocka_unit_test(a_change_that_loses_to_a_modify_tries_again),
        cmocka_unit_test(a_change_that_loses_to_an_insert_tries_again),
        cmocka_unit_test(an_update_that_loses_to_a_put_tries_again),
        cmocka_unit_test(a_change_that_loses_to_a_delete_finds_no_key),
        cmocka_unit_test(a_modify_or_delete_that_loses_tries_again),
        cmocka_unit_test(a_tentative_slot_is_no_winner),
        cmocka_unit_test(a_slot_that_was_only_sealed_is_no_winner),
        cmocka_unit_test(a_winner_that_is_sealed_has_won),
        cmocka_unit_test(another_key_with_the_same_fingerprint_is_no_winner),
        cmocka_unit_test(a_slot_that_was_repaired_is_no_winner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
