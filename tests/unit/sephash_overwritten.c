/* CHANGE-C1 on SepHash: see duel.h. The word that a change meets where it wanted to append its own
 * is that of a put, of an update, or of a delete, which appends the word that it deletes. A put
 * that has not looked cannot tell which, and appends behind it. */
#include "index/sephash/sephash.h"
#include "support/duel.h"

/* A look, the block, the CAS, the winner's block. A put looks for no block, and has two CAS. */
#define RTTS_UPDATE 4u
#define RTTS_PUT    3u

static void open_sephash(void)
{
    open_duel("slots=64&depth=0&lane=512&hot=0", NULL);
}

static int put_key(far_session *s, uint32_t key)
{
    return far_put(s, duel.r.table, &key, sizeof key, &key, sizeof key);
}

static void expect_key(far_session *s, uint32_t key)
{
    uint32_t value = 0;
    size_t len = 0;
    assert_int_equal(far_get(s, duel.r.table, &key, sizeof key, &value, sizeof value, &len),
                     FAR_OK);
    assert_int_equal(value, key);
}

static void other_updates_and_merges(void)
{
    const struct sephash_view *view = sephash_view(store_known(duel.other, duel.r.table)->view);
    uint64_t merges = view->merges;
    other_updates();
    for (uint32_t key = 0; view->merges == merges; key++)
        assert_int_equal(put_key(duel.other, key), FAR_OK);
}

/* It has the same tag. */
static void other_updates_another_key(void)
{
    uint32_t key = 7;
    assert_int_equal(far_update(duel.other, duel.r.table, &key, sizeof key, &key, sizeof key),
                     FAR_OK);
}

static void a_change_that_loses_to_an_update_is_done(void **state)
{
    (void)state;
    open_sephash();
    expect_done(update, other_updates, OTHERS);
    assert_int_equal(lose(update, other_updates), FAR_OK);
    assert_int_equal(duel.r.session->op.cost.rtts, RTTS_UPDATE);
    close_duel();
}

static void a_put_that_loses_goes_on_behind_the_winner(void **state)
{
    (void)state;
    open_sephash();
    assert_int_equal(lose(put, other_puts), FAR_OK);
    assert_int_equal(duel.r.session->op.cost.rtts, RTTS_PUT);
    assert_int_equal(value_now(duel.other), MINE);
    expect_again(put, other_updates);
    expect_again(put, other_deletes);
    close_duel();
}

/* It knows which slots are filled: the next one that it fills follows them. */
static void a_change_that_was_overwritten_has_filled_no_slot(void **state)
{
    (void)state;
    open_sephash();
    assert_int_equal(lose(update, other_updates), FAR_OK);
    assert_int_equal(put_key(duel.r.session, 1), FAR_OK);
    expect_key(duel.other, 1);
    assert_int_equal(put_key(duel.other, 2), FAR_OK);
    expect_key(duel.r.session, 2);
    assert_int_equal(far_table_check(duel.r.session, duel.r.table, NULL, NULL), FAR_OK);
    close_duel();
}

/* The winner's word is in a CurSegment that is not current any more. */
static void a_winner_whose_segment_was_merged_has_won(void **state)
{
    (void)state;
    open_sephash();
    expect_done(update, other_updates_and_merges, OTHERS);
    expect_again(put, other_updates_and_merges);
    close_duel();
}

static uint32_t taken;

static enum far_decision take(void *arg, const void *old, size_t old_len, const void **value,
                              size_t *value_len)
{
    (void)arg;
    (void)value;
    (void)value_len;
    assert_int_equal(old_len, sizeof taken);
    memcpy(&taken, old, sizeof taken);
    return FAR_REMOVE;
}

static void other_takes(void)
{
    assert_int_equal(far_modify(duel.other, duel.r.table, KEY, take, NULL), FAR_OK);
}

/* A modify that removes the key appends the same word as a delete. It has seen the value, so the
 * change cannot have come right before it. */
static void a_change_that_loses_to_a_delete_tries_again(void **state)
{
    static void (*const deletes[])(void) = {other_deletes, other_takes};
    (void)state;
    open_sephash();
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(put(duel.r.session, OLD), FAR_OK);
        assert_int_equal(update(duel.r.session, OLD), FAR_OK);
        assert_int_equal(lose(update, deletes[i]), FAR_NOT_FOUND);
        assert_int_equal(value_now(duel.other), 0);
        assert_int_equal(put(duel.r.session, OLD), FAR_OK);
        assert_int_equal(lose(put, deletes[i]), FAR_OK);
        assert_int_equal(value_now(duel.other), MINE);
    }
    assert_int_equal(taken, OLD);
    close_duel();
}

static void a_change_that_loses_to_another_kind_tries_again(void **state)
{
    (void)state;
    open_sephash();
    expect_again(update, other_puts);
    expect_again(update, other_modifies);
    expect_again(put, other_modifies);
    assert_int_equal(far_table_check(duel.r.session, duel.r.table, NULL, NULL), FAR_OK);
    close_duel();
}

/* They depend on what was there. */
static void a_modify_or_delete_that_loses_tries_again(void **state)
{
    (void)state;
    open_sephash();
    assert_int_equal(lose(modify_call, other_updates), FAR_OK);
    assert_int_equal(value_now(duel.r.session), OTHERS + ONE_MORE);
    assert_int_equal(lose(delete_call, other_updates), FAR_OK);
    assert_int_equal(value_now(duel.r.session), 0);
    close_duel();
}

static void another_key_with_the_same_tag_is_no_winner(void **state)
{
    struct knobs knobs = pool_knobs_default;
    (void)state;
    knobs.hash_mask = 0;
    knobs.fingerprint_mask = 0;
    for (unsigned i = 0; i < 2; i++) {
        open_duel("slots=64&depth=0&lane=512&hot=0", &knobs);
        assert_int_equal(put_key(duel.other, 7), FAR_OK);
        expect_again(i == 0 ? update : put, other_updates_another_key);
        expect_key(duel.r.session, 7);
        close_duel();
    }
}

int main(void)
{
    index_tested = "sephash";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_that_loses_to_an_update_is_done),
        cmocka_unit_test(a_put_that_loses_goes_on_behind_the_winner),
        cmocka_unit_test(a_change_that_was_overwritten_has_filled_no_slot),
        cmocka_unit_test(a_winner_whose_segment_was_merged_has_won),
        cmocka_unit_test(a_change_that_loses_to_a_delete_tries_again),
        cmocka_unit_test(a_change_that_loses_to_another_kind_tries_again),
        cmocka_unit_test(a_modify_or_delete_that_loses_tries_again),
        cmocka_unit_test(another_key_with_the_same_tag_is_no_winner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
