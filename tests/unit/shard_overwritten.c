/* CHANGE-C1 on SHARD: see duel.h. */
#include "index/shard/shard.h"
#include "support/duel.h"

/* A look, the block, the CAS, the winner's block. */
#define RTTS_DONE 4u

static void open_shard(void)
{
    open_duel("buckets=1&slots=8&hot=0", NULL);
}

/* The word of the only key, and where it is. */
static uint64_t find_word(gaddr *at, uint64_t *delta)
{
    struct store_rig other = duel.r;
    other.session = duel.other;
    *at = shard_unit_at(shard_view(store_known(duel.other, duel.r.table)->view), 0, 0, delta);
    uint64_t word = store_rig_get(&other, *at, *delta);
    assert_true(shard_live(word));
    return word;
}

static void set_word(uint64_t word)
{
    struct store_rig other = duel.r;
    gaddr at;
    uint64_t delta;
    (void)find_word(&at, &delta);
    other.session = duel.other;
    store_rig_set(&other, at, delta, word);
}

static uint64_t word_now(void)
{
    gaddr at;
    uint64_t delta;
    return find_word(&at, &delta);
}

static void other_deletes_and_puts(void)
{
    other_deletes();
    other_puts();
}

/* The slot has another key with the same fingerprint, which was updated. */
static void other_key_takes_the_slot(void)
{
    static const char key[] = "another key";
    uint32_t value = OTHERS;
    uint64_t mine = word_now();
    struct store_rig other = duel.r;
    gaddr at;
    uint64_t delta;
    other.session = duel.other;
    assert_int_equal(far_put(duel.other, duel.r.table, key, sizeof key, &value, 4), FAR_OK);
    assert_int_equal(far_update(duel.other, duel.r.table, key, sizeof key, &value, 4), FAR_OK);
    (void)find_word(&at, &delta);
    uint64_t others = store_rig_get(&other, at, delta + 8),
             mask = slot_fingerprint_mask(SHARD_SLOT);
    assert_true(shard_live(others));
    set_word((others & ~mask) | (mine & mask));
}

/* The slot gave its block the class after its own. */
static void other_repairs(void)
{
    uint64_t word = word_now();
    set_word(pointer_with_class(word, pointer_class(word) - 1));
}

static void a_change_that_loses_to_an_update_is_done(void **state)
{
    (void)state;
    open_shard();
    expect_done(update, other_updates, OTHERS);
    expect_done(put, other_updates, OTHERS);
    expect_done(put, other_puts, OTHERS);
    assert_int_equal(lose(update, other_updates), FAR_OK);
    assert_int_equal(duel.r.session->op.cost.rtts, RTTS_DONE);
    close_duel();
}

static void a_change_that_loses_to_another_kind_tries_again(void **state)
{
    (void)state;
    open_shard();
    expect_again(update, other_puts);
    expect_again(update, other_modifies);
    expect_again(put, other_modifies);
    expect_again(put, other_deletes);
    expect_again(put, other_deletes_and_puts);
    expect_again(update, other_deletes_and_puts);
    assert_int_equal(lose(update, other_deletes), FAR_NOT_FOUND);
    assert_int_equal(value_now(duel.r.session), 0);
    assert_int_equal(far_table_check(duel.r.session, duel.r.table, NULL, NULL), FAR_OK);
    close_duel();
}

/* They depend on what was there. */
static void a_modify_or_delete_that_loses_tries_again(void **state)
{
    (void)state;
    open_shard();
    assert_int_equal(lose(modify_call, other_updates), FAR_OK);
    assert_int_equal(value_now(duel.r.session), OTHERS + ONE_MORE);
    assert_int_equal(lose(delete_call, other_updates), FAR_OK);
    assert_int_equal(value_now(duel.r.session), 0);
    close_duel();
}

static void another_key_with_the_same_fingerprint_is_no_winner(void **state)
{
    (void)state;
    open_shard();
    assert_int_equal(lose(update, other_key_takes_the_slot), FAR_NOT_FOUND);
    close_duel();
}

static void a_word_that_was_repaired_is_no_winner(void **state)
{
    (void)state;
    open_shard();
    uint64_t word = word_now();
    set_word(pointer_with_class(word, pointer_class(word) + 1));
    expect_again(update, other_repairs);
    close_duel();
}

int main(void)
{
    index_tested = "shard";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_that_loses_to_an_update_is_done),
        cmocka_unit_test(a_change_that_loses_to_another_kind_tries_again),
        cmocka_unit_test(a_modify_or_delete_that_loses_tries_again),
        cmocka_unit_test(another_key_with_the_same_fingerprint_is_no_winner),
        cmocka_unit_test(a_word_that_was_repaired_is_no_winner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
