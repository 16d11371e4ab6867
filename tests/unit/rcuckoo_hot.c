/* Hints of RCuckoo: keys with blocks that a process has seen take a round trip less (HINT-H1, and
 * index/hints.h). */
#include "index/rcuckoo/rcuckoo.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEY "a key, not inline", 17

#include "support/hot_rig.h"

static struct rcuckoo_view *view_of(far_session *s, struct store_rig *r)
{
    return rcuckoo_view(store_known(s, r->table)->view);
}

/* The session meets the table, so that it has a view, an anchor and a line of its journal. */
static void meet(far_session *s, struct store_rig *r)
{
    assert_int_equal(far_put(s, r->table, "other", 5, "", 0), FAR_OK);
}

/* Appends a letter. arg: what the value must be before. */
static enum far_decision append(void *arg, const void *old, size_t old_len, const void **value,
                                size_t *value_len)
{
    static char new[16];
    assert_int_equal(old_len, strlen(arg));
    assert_memory_equal(old, arg, old_len);
    memcpy(new, old, old_len);
    new[old_len] = '+';
    *value = new;
    *value_len = old_len + 1;
    return FAR_STORE;
}

static void keys_that_were_seen_take_a_round_trip_less(void **state)
{
    static const struct {
        const char *tuning;
        uint64_t saved;
    } cases[] = {{"hot=0", 0}, {"hot=1", 1}, {"", 1}};
    char two[] = "two", two_more[] = "two+";
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t saved = cases[i].saved;
        struct store_rig r;
        rig(&r, "mem:?size=8m", cases[i].tuning);
        far_session *s = r.session, *other = store_rig_join_apart(&r);
        meet(other, &r);
        put(s, &r, "one");
        expect_get(s, &r, "one", 2 - saved); /* an own change is a hint */
        put(s, &r, "two");
        expect_rtts(s, 3 - saved);
        assert_int_equal(far_modify(s, r.table, KEY, append, two), FAR_OK);
        expect_rtts(s, 6 - 2 * saved);
        assert_int_equal(far_modify(s, r.table, KEY, append, two_more), FAR_OK);
        expect_rtts(s, 3 - saved); /* by now it knows that the answer needs a block */
        assert_int_equal(far_update(s, r.table, KEY, "three", 5), FAR_OK);
        expect_rtts(s, 3 - saved);
        expect_get(other, &r, "three", 2); /* not seen */
        expect_get(other, &r, "three", 2 - saved);
        assert_int_equal(far_delete(other, r.table, KEY), FAR_OK);
        expect_rtts(other, 3 - saved);
        assert_int_equal(far_exists(other, r.table, KEY), FAR_NOT_FOUND);
        expect_rtts(other, 1);
        far_session_close(other);
        store_rig_close(&r);
    }
}

/* The key is inline, and its value is in a block. */
static void values_in_blocks_take_a_round_trip_less(void **state)
{
    static char value[100], got[100];
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    assert_int_equal(far_put(r.session, r.table, "k", 1, value, sizeof value), FAR_OK);
    assert_int_equal(far_get(r.session, r.table, "k", 1, got, sizeof got, NULL), FAR_OK);
    expect_rtts(r.session, 1);
    assert_int_equal(far_exists(r.session, r.table, "k", 1), FAR_OK);
    assert_int_equal(r.session->op.cost.bytes_read / 64, 2 * 144 / 64); /* reads no block */
    assert_int_equal(far_put(r.session, r.table, "k", 1, "short", 5), FAR_OK);
    assert_int_equal(far_get(r.session, r.table, "k", 1, got, sizeof got, NULL), FAR_OK);
    expect_rtts(r.session, 1);
    assert_string_equal(got, "short");
    store_rig_close(&r);
}

/* A value that is inline now, and is the very word by which its slot named the block before. */
static void a_value_that_looks_like_the_hint_is_no_block(void **state)
{
    static char value[100];
    uint64_t got = 0;
    size_t len = 0;
    struct store_rig r;
    struct rcuckoo_key key;
    struct rcuckoo_sub sub;
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    far_session *s = r.session, *other = store_rig_join_apart(&r);
    struct op *op = &s->op;
    assert_int_equal(far_put(s, r.table, "k", 1, value, sizeof value), FAR_OK);
    struct rcuckoo_view *view = view_of(s, &r);
    rcuckoo_key_set(view, (struct slice){"k", 1}, &key);
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    assert_int_equal(rcuckoo_find(op, view, key.hash, &sub), FAR_OK);
    uint64_t word = rcuckoo_hint(op, view, &sub, &key).slot;
    op_end(op);
    assert_true(word != 0);
    assert_int_equal(far_put(other, r.table, "k", 1, &word, 8), FAR_OK);
    assert_int_equal(far_get(s, r.table, "k", 1, &got, 8, &len), FAR_OK);
    assert_true(len == 8 && got == word);
    far_session_close(other);
    store_rig_close(&r);
}

static void a_hint_that_is_out_of_date_says_nothing(void **state)
{
    struct store_rig r;
    char three[] = "three";
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    far_session *s = r.session, *other = store_rig_join_apart(&r);
    meet(other, &r);
    put(s, &r, "one");
    put(other, &r, "two");
    expect_get(s, &r, "two", 2); /* in the same row */
    expect_get(s, &r, "two", 1);
    put(other, &r, "three");
    assert_int_equal(far_modify(s, r.table, KEY, append, three), FAR_OK);
    expect_get(s, &r, "three+", 1);
    put(s, &r, "four");
    assert_int_equal(far_delete(other, r.table, KEY), FAR_OK);
    assert_int_equal(far_exists(s, r.table, KEY), FAR_NOT_FOUND);
    assert_int_equal(far_update(s, r.table, KEY, "five", 4), FAR_NOT_FOUND);
    put(s, &r, "six");
    expect_get(other, &r, "six", 2);
    far_session_close(other);
    store_rig_close(&r);
}

/* The hint of the key. */
static struct index_hint hint_of(far_session *s, struct store_rig *r, struct rcuckoo_key *key)
{
    struct rcuckoo_view *view = view_of(s, r);
    struct rcuckoo_sub sub;
    rcuckoo_key_set(view, (struct slice){KEY}, key);
    assert_int_equal(rcuckoo_find(&s->op, view, key->hash, &sub), FAR_OK);
    struct index_hint hint = rcuckoo_hint(&s->op, view, &sub, key);
    assert_true(hint.slot != 0 && hint.place < 2 * RCUCKOO_SLOTS);
    return hint;
}

/* Hints may be anything (HINT-H4). They cost round trips and nothing else. */
static void hints_that_are_wrong_do_no_harm(void **state)
{
    enum { OTHER_ROW, OTHER_NODE, OUTSIDE, CASES };
    static const uint64_t round_trips[CASES] = {3, 2, 2};
    (void)state;
    for (unsigned i = 0; i < CASES; i++) {
        struct store_rig r;
        struct rcuckoo_key key;
        rig(&r, "mem:?size=8m&nodes=2", "hot=1");
        put(r.session, &r, "one");
        struct index_hint wrong = hint_of(r.session, &r, &key);
        if (i == OTHER_ROW)
            wrong.place ^= RCUCKOO_SLOTS;
        else
            wrong.slot ^= i == OTHER_NODE ? gaddr_make(1, 0) : GADDR_MASK >> 6 & ~63ull;
        rcuckoo_hint_note(view_of(r.session, &r), &key, wrong);
        expect_get(r.session, &r, "one", round_trips[i]);
        expect_get(r.session, &r, "one", 1);
        rcuckoo_hint_note(view_of(r.session, &r), &key, wrong);
        put(r.session, &r, "two");
        expect_rtts(r.session, 3);
        expect_get(r.session, &r, "two", 1);
        store_rig_close(&r);
    }
}

/* RCUCKOO-C11: the rows of a subtable that was split stay as they were, with the moved bit. */
static void a_row_that_was_moved_is_not_believed_because_of_a_hint(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=8m", "rows=4&lock_rows=1&locks=2&hot=1");
    far_session *s = r.session, *other = store_rig_join_apart(&r);
    put(s, &r, "one");
    for (uint32_t i = 0; i < 200; i++)
        assert_int_equal(far_put(other, r.table, &i, 4, &i, 4), FAR_OK);
    put(other, &r, "two");
    expect_found(s, &r, "two");
    far_session_close(other);
    store_rig_close(&r);
}

/* RCUCKOO-C1: a row that is not whole says nothing. Here it is damaged. */
static void a_row_that_is_not_whole_is_not_believed_because_of_a_hint(void **state)
{
    struct store_rig r;
    struct rcuckoo_key key;
    struct rcuckoo_sub sub;
    char got[8];
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    put(r.session, &r, "one");
    struct rcuckoo_view *view = view_of(r.session, &r);
    unsigned place = hint_of(r.session, &r, &key).place;
    assert_int_equal(rcuckoo_find(&r.session->op, view, key.hash, &sub), FAR_OK);
    uint64_t at = rcuckoo_row_at(&view->shape, key.row[place / RCUCKOO_SLOTS]);
    at += 16 * ((place + 1) % RCUCKOO_SLOTS); /* an entry beside the key's */
    store_rig_set(&r, sub.rows, at, ~store_rig_get(&r, sub.rows, at));
    assert_int_equal(far_get(r.session, r.table, KEY, got, sizeof got, NULL), FAR_CORRUPT);
    store_rig_close(&r);
}

static void a_damaged_block_is_not_taken_for_an_absent_key(void **state)
{
    struct store_rig r;
    struct rcuckoo_key key;
    char got[16];
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    put(r.session, &r, "one");
    gaddr block = pointer_gaddr(hint_of(r.session, &r, &key).slot);
    store_rig_set(&r, block, 16, ~store_rig_get(&r, block, 16));
    assert_int_equal(far_get(r.session, r.table, KEY, got, sizeof got, NULL), FAR_CORRUPT);
    assert_int_equal(far_update(r.session, r.table, KEY, "two", 3), FAR_CORRUPT);
    store_rig_close(&r);
}

/* ---- the order ------------------------------------------------------------------------------- */

/* The READ of the block comes behind the rows, with a fence if the fabric needs one. */
static void expect_behind_the_rows(void)
{
    unsigned rows = 0, i = 0;
    for (; i < recorded.count && (recorded.verb[i].kind != FAB_READ || recorded.verb[i].len != 64);
         i++)
        rows += recorded.verb[i].kind == FAB_READ && recorded.verb[i].len >= 144;
    assert_true(i < recorded.count && rows > 0);
    assert_true(recorded.verb[i].flags & FAB_FENCE);
}

/* HINT-H1 */
static void the_block_is_read_behind_the_rows(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct store_rig r;
        rig(&r, "mem:?size=8m", "hot=1");
        put(r.session, &r, "one");
        unsigned order = r.fab->order;
        r.fab->order = ORDER_ALL & ~ORDER(FAB_R, FAB_R);
        hook_record(r.session->client.ep);
        if (i == 0)
            expect_get(r.session, &r, "one", 2); /* a fence counts as one */
        else
            put(r.session, &r, "two");
        hook_off();
        r.fab->order = order;
        expect_behind_the_rows();
        store_rig_close(&r);
    }
}

/* The block of an answer is written ahead of the redo that names it. */
static void an_answer_is_written_ahead_of_its_redo(void **state)
{
    struct store_rig r;
    char one[] = "one", one_more[] = "one+";
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    put(r.session, &r, "one");
    assert_int_equal(far_modify(r.session, r.table, KEY, append, one), FAR_OK);
    unsigned order = r.fab->order, at = 0;
    r.fab->order = ORDER_ALL & ~ORDER(FAB_W, FAB_W);
    hook_record(r.session->client.ep);
    assert_int_equal(far_modify(r.session, r.table, KEY, append, one_more), FAR_OK);
    hook_off();
    r.fab->order = order;
    struct rcuckoo_key key;
    gaddr block = pointer_gaddr(hint_of(r.session, &r, &key).slot);
    while (at < recorded.count &&
           (recorded.verb[at].kind != FAB_WRITE || recorded.verb[at].off != gaddr_offset(block)))
        at++;
    assert_true(at + 1 < recorded.count && recorded.verb[at + 1].kind == FAB_WRITE);
    assert_true(recorded.verb[at + 1].flags & FAB_FENCE);
    for (unsigned i = 0; i < at; i++) /* only the intent */
        assert_true(recorded.verb[i].kind != FAB_WRITE || i == 0);
    expect_get(r.session, &r, "one++", 1);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_were_seen_take_a_round_trip_less),
        cmocka_unit_test(values_in_blocks_take_a_round_trip_less),
        cmocka_unit_test(a_value_that_looks_like_the_hint_is_no_block),
        cmocka_unit_test(a_hint_that_is_out_of_date_says_nothing),
        cmocka_unit_test(hints_that_are_wrong_do_no_harm),
        cmocka_unit_test(a_row_that_was_moved_is_not_believed_because_of_a_hint),
        cmocka_unit_test(a_row_that_is_not_whole_is_not_believed_because_of_a_hint),
        cmocka_unit_test(long_blocks_are_not_read_ahead),
        cmocka_unit_test(a_damaged_block_is_not_taken_for_an_absent_key),
        cmocka_unit_test(an_answer_is_written_ahead_of_its_redo),
        cmocka_unit_test(the_block_is_read_behind_the_rows),
    };
    index_tested = "rcuckoo";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
