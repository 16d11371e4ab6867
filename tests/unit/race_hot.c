/* Hints of RACE: keys that a session has seen take a round trip less (HINT-H1, and
 * index/hints.h). */
#include "support/race_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEY "key", 3

#include "support/hot_rig.h"

static void keys_that_were_seen_take_a_round_trip_less(void **state)
{
    static const struct {
        const char *tuning;
        uint32_t saved;
    } cases[] = {{"hot=0", 0}, {"hot=1", 1}, {"", 1}};
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t saved = cases[i].saved;
        struct store_rig r;
        rig(&r, "mem:?size=8m", cases[i].tuning);
        far_session *s = r.session, *other = store_rig_join_apart(&r);
        put(s, &r, "one");
        expect_get(s, &r, "one", 2 - saved); /* an own change is a hint */
        put(s, &r, "two");
        expect_rtts(s, 3 - saved);
        far_session *mate = store_rig_join(&r);
        assert_int_equal(far_exists(mate, r.table, "other", 5), FAR_NOT_FOUND); /* opens it */
        expect_get(mate, &r, "two", 2 - saved);                                 /* HINT-H4 */
        far_session_close(mate);
        assert_int_equal(far_exists(other, r.table, "other", 5), FAR_NOT_FOUND);
        expect_get(other, &r, "two", 2); /* not seen */
        expect_get(other, &r, "two", 2 - saved);
        assert_int_equal(far_delete(other, r.table, KEY), FAR_OK);
        expect_rtts(other, 3 - saved);
        assert_int_equal(far_get(other, r.table, KEY, NULL, 0, NULL), FAR_NOT_FOUND);
        expect_rtts(other, 1);
        far_session_close(other);
        store_rig_close(&r);
    }
}

static void a_hint_that_is_out_of_date_says_nothing(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    far_session *s = r.session, *other = store_rig_join_apart(&r);
    put(s, &r, "one");
    put(other, &r, "two");
    expect_get(s, &r, "two", 2);
    expect_get(s, &r, "two", 1);
    put(other, &r, "three");
    put(s, &r, "four");
    expect_get(s, &r, "four", 1);
    expect_get(other, &r, "four", 2);
    assert_int_equal(far_delete(s, r.table, KEY), FAR_OK);
    assert_int_equal(far_exists(other, r.table, KEY), FAR_NOT_FOUND);
    far_session_close(other);
    store_rig_close(&r);
}

/* A hint is of no use if the block is on another node than the buckets, and it costs nothing. */
static void a_block_of_another_node_is_not_read_ahead(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=8m&nodes=2", "hot=1");
    put(r.session, &r, "one");
    struct race_spot spot;
    race_rig_find(&r, KEY, &spot);
    uint64_t elsewhere = spot.found.slot ^ gaddr_make(1, 0); /* the same offset of the other node */
    race_hint_note(race_rig_view(&r), &spot.key,
                   (struct index_hint){.slot = elsewhere, .place = (unsigned)spot.found.place});
    expect_get(r.session, &r, "one", 2);
    assert_int_equal(r.session->op.cost.verbs, 3);
    expect_get(r.session, &r, "one", 1);
    store_rig_close(&r);
}

/* Two threads note the key at once, one that it is there and one that it is not: of both notes, a
 * hint is left whose place is that of a header (HINT-H4). A header looks like the slot of a key
 * whose fingerprint is 0. */
static void a_header_is_not_taken_for_a_slot(void **state)
{
    struct far_table_options table = {.tuning = "hot=1", .hash_seed = 17};
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    (void)state;
    knobs.fingerprint_mask = 0;
    store_rig_open(&r, "mem:?size=8m", &knobs, NULL, &table);
    for (unsigned place = 0; place < RACE_PLACES; place += RACE_BUCKET_WORDS) {
        struct race_spot spot;
        put(r.session, &r, "one");
        race_rig_find(&r, KEY, &spot);
        struct index_hint torn = {.slot = spot.found.slot, .place = place};
        struct index_hints *hints = race_rig_view(&r)->hints;
        index_hint_note(hints, RACE_SLOT, spot.key.hash, spot.key.fingerprint, torn);
        expect_get(r.session, &r, "one", 2);
        expect_get(r.session, &r, "one", 1);
        index_hint_note(hints, RACE_SLOT, spot.key.hash, spot.key.fingerprint, torn);
        put(r.session, &r, "two");
        expect_get(r.session, &r, "two", 1);
    }
    store_rig_close(&r);
}

/* More keys than there are hints, some of them with the same fingerprint in one set. */
static void keys_take_turns(void **state)
{
    enum { KEYS = 3000 };
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    for (unsigned round = 0; round < 3; round++)
        for (uint32_t i = 0; i < KEYS; i++) {
            uint32_t got = 0, value = i * 2 + round;
            if (round > 0) {
                assert_int_equal(far_get(r.session, r.table, &i, 4, &got, 4, NULL), FAR_OK);
                assert_true(got == value - 1);
            }
            assert_int_equal(far_put(r.session, r.table, &i, 4, &value, 4), FAR_OK);
            assert_int_equal(far_get(r.session, r.table, &i, 4, &got, 4, NULL), FAR_OK);
            assert_true(got == value);
        }
    store_rig_close(&r);
}

static void a_damaged_block_is_not_taken_for_an_absent_key(void **state)
{
    struct store_rig r;
    struct race_spot spot;
    char got[16];
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    put(r.session, &r, "one");
    race_rig_find(&r, KEY, &spot);
    struct op *op = &r.session->op;
    gaddr block = pointer_gaddr(spot.found.slot);
    unsigned n = op_read(op, block, 16);
    assert_int_equal(batch_flush(&op->batch), FAR_OK);
    op->word[0] = ~op_result(op, n);
    batch_write(&op->batch, MARK_EARLY, block, 16, &op->word[0], 8);
    assert_int_equal(batch_flush(&op->batch), FAR_OK);
    assert_int_equal(far_get(r.session, r.table, KEY, got, sizeof got, NULL), FAR_CORRUPT);
    store_rig_close(&r);
}

/* Hints that are of no use any more cost nothing. */
static void keys_that_are_gone_are_forgotten(void **state)
{
    static char value[2 * BLOCK_SHORT_MAX];
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    far_session *s = r.session, *other = store_rig_join_apart(&r);
    put(s, &r, "one");
    assert_int_equal(far_delete(s, r.table, KEY), FAR_OK);
    assert_int_equal(far_exists(s, r.table, KEY), FAR_NOT_FOUND);
    assert_int_equal(s->op.cost.verbs, 2);
    put(s, &r, "one");
    assert_int_equal(far_delete(other, r.table, KEY), FAR_OK);
    for (unsigned verbs = 4; verbs >= 2; verbs -= 2) { /* the first one finds out */
        assert_int_equal(far_exists(s, r.table, KEY), FAR_NOT_FOUND);
        assert_int_equal(s->op.cost.verbs, verbs);
    }
    put(s, &r, "one");
    assert_int_equal(far_delete(other, r.table, KEY), FAR_OK);
    for (unsigned verbs = 4; verbs >= 2; verbs -= 2) { /* a change that finds nothing, too */
        assert_int_equal(far_delete(s, r.table, KEY), FAR_NOT_FOUND);
        assert_int_equal(s->op.cost.verbs, verbs);
    }
    put(other, &r, "one");
    assert_int_equal(far_insert(s, r.table, KEY, "two", 3), FAR_EXISTS);
    expect_get(s, &r, "one", 1);
    assert_int_equal(far_put(s, r.table, KEY, value, sizeof value), FAR_OK);
    assert_int_equal(far_exists(s, r.table, KEY), FAR_OK);
    assert_int_equal(s->op.cost.verbs, 3);
    far_session_close(other);
    store_rig_close(&r);
}

/* Fills the table, which splits what there is. Other sessions do not know. */
static void split_subtables(far_session *s, struct store_rig *r)
{
    for (uint32_t i = 0; i < 200; i++)
        assert_int_equal(far_put(s, r->table, &i, 4, &i, 4), FAR_OK);
}

/* RACE-R5: a slot that was sealed when it was read may be out of use. So it is not believed because
 * of a hint, even if the hint was noted when it was sealed already. */
static void a_sealed_slot_is_not_believed_because_of_a_hint(void **state)
{
    struct store_rig r;
    struct race_spot spot;
    (void)state;
    rig(&r, "mem:?size=8m", "groups=2&hot=1");
    far_session *s = r.session, *other = store_rig_join_apart(&r);
    put(s, &r, "one");
    race_rig_find(&r, KEY, &spot);
    split_subtables(other, &r);
    put(other, &r, "two");
    race_hint_note(race_rig_view(&r), &spot.key,
                   (struct index_hint){.slot = spot.found.slot | RACE_SLOT_SEALED,
                                       .place = (unsigned)spot.found.place});
    expect_found(s, &r, "two");
    far_session_close(other);
    store_rig_close(&r);
}

/* The same for a slot that was updated since the hint, sealed, and updated again in the child. */
static void a_sealed_slot_is_not_believed_because_it_was_updated(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=8m", "groups=2&hot=1");
    far_session *s = r.session, *other = store_rig_join_apart(&r);
    put(s, &r, "one");
    put(other, &r, "two");
    split_subtables(other, &r);
    put(other, &r, "three");
    expect_found(s, &r, "three");
    far_session_close(other);
    store_rig_close(&r);
}

/* A bucket whose header is damaged is no part of the table, also if a hint leads there. */
static void a_damaged_header_is_not_overlooked(void **state)
{
    struct store_rig r;
    struct race_spot spot;
    char got[16];
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    put(r.session, &r, "one");
    race_rig_find(&r, KEY, &spot);
    struct op *op = &r.session->op;
    unsigned header = (unsigned)spot.found.place & ~(RACE_BUCKET_WORDS - 1u);
    op->word[0] = ~spot.look.words[header];
    batch_write(&op->batch, MARK_EARLY, spot.look.subtable, race_place_offset(&spot.key, header),
                &op->word[0], 8);
    assert_int_equal(batch_flush(&op->batch), FAR_OK);
    assert_int_equal(far_get(r.session, r.table, KEY, got, sizeof got, NULL), FAR_CORRUPT);
    store_rig_close(&r);
}

/* There are few hints at first, and more when they are needed, up to the limit. */
static void hints_grow_with_the_keys(void **state)
{
    enum { KEYS = 20000 };
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=32m", "hot=300");
    struct index_hints *hints = NULL;
    uint64_t bytes = 0, round_trips = 0;
    for (unsigned round = 0; round < 3; round++) {
        round_trips = 0;
        for (uint32_t i = 0; i < KEYS; i++) {
            assert_int_equal(far_put(r.session, r.table, &i, 4, &i, 4), FAR_OK);
            round_trips += r.session->op.cost.rtts;
            hints = race_rig_view(&r)->hints;
            bytes = i == 0 && round == 0 ? index_hints_bytes(hints) : bytes;
        }
    }
    assert_int_equal(bytes, 64 << 10);
    assert_int_equal(index_hints_bytes(hints), 256 << 10);
    assert_true(round_trips < 23 * KEYS / 10); /* 2 with a hint, 3 without */
    store_rig_close(&r);
}

/* ---- losing ---------------------------------------------------------------------------------- */

static struct {
    struct store_rig *r;
    far_session *other;
    unsigned pauses;
    bool lost;
} race;

/* Another client changes the slot just before this one does. */
static int post_second(struct fab_ep *ep, struct fab_req *req)
{
    if (req->verbs[0].kind == FAB_CAS && !race.lost) {
        race.lost = true;
        put(race.other, race.r, "two");
    }
    return hook.real->post(ep, req);
}

static void count_pause(struct fab_ep *ep, uint64_t ns)
{
    race.pauses++;
    hook.real->pause(ep, ns);
}

static void who_loses_once_does_not_pause(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    far_session *s = r.session;
    race.r = &r;
    race.other = store_rig_join_apart(&r);
    race.lost = false;
    race.pauses = 0;
    put(s, &r, "one");
    put(race.other, &r, "one");
    expect_get(s, &r, "one", 2);
    hook_on(s->client.ep);
    hook.ops.post = post_second;
    hook.ops.pause = count_pause;
    assert_int_equal(far_delete(s, r.table, KEY), FAR_OK);
    hook_off();
    assert_true(race.lost && race.pauses == 0);
    far_session_close(race.other);
    store_rig_close(&r);
}

/* ---- the order ------------------------------------------------------------------------------- */

/* HINT-H1 */
static void the_block_is_read_behind_the_slot(void **state)
{
    (void)state;
    expect_block_behind(8 * RACE_BUCKET_WORDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_were_seen_take_a_round_trip_less),
        cmocka_unit_test(a_hint_that_is_out_of_date_says_nothing),
        cmocka_unit_test(a_block_of_another_node_is_not_read_ahead),
        cmocka_unit_test(a_header_is_not_taken_for_a_slot),
        cmocka_unit_test(long_blocks_are_not_read_ahead),
        cmocka_unit_test(keys_take_turns),
        cmocka_unit_test(a_damaged_block_is_not_taken_for_an_absent_key),
        cmocka_unit_test(keys_that_are_gone_are_forgotten),
        cmocka_unit_test(a_sealed_slot_is_not_believed_because_of_a_hint),
        cmocka_unit_test(a_sealed_slot_is_not_believed_because_it_was_updated),
        cmocka_unit_test(a_damaged_header_is_not_overlooked),
        cmocka_unit_test(hints_grow_with_the_keys),
        cmocka_unit_test(who_loses_once_does_not_pause),
        cmocka_unit_test(the_block_is_read_behind_the_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
