/* Hints of RACE: keys that a session has seen take a round trip less (HINT-H1, and index/hints.h). */
#include "support/hook.h"
#include "support/race_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEY "key", 3

static void rig(struct store_rig *r, const char *uri, const char *tuning)
{
    struct far_table_options table = {.tuning = tuning, .hash_seed = 17};
    store_rig_open(r, uri, NULL, NULL, &table);
}

static uint32_t rtts(const far_session *s)
{
    return (uint32_t)s->op.cost.rtts;
}

static void put(far_session *s, struct store_rig *r, const void *value, size_t len)
{
    assert_int_equal(far_put(s, r->table, KEY, value, len), FAR_OK);
}

/* Gets the key, with so many round trips. */
static void expect_get(far_session *s, struct store_rig *r, const char *value, uint32_t round_trips)
{
    char got[16] = "";
    size_t len = 0;
    assert_int_equal(far_get(s, r->table, KEY, got, sizeof got, &len), FAR_OK);
    assert_int_equal(len, strlen(value));
    assert_memory_equal(got, value, len);
    assert_int_equal(rtts(s), round_trips);
}

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
        far_session *s = r.session, *other = store_rig_join(&r);
        put(s, &r, "one", 3);
        expect_get(s, &r, "one", 2 - saved); /* an own change is a hint */
        put(s, &r, "two", 3);
        assert_int_equal(rtts(s), 3 - saved);
        assert_int_equal(far_exists(other, r.table, KEY), FAR_OK); /* opens the table */
        far_session *third = store_rig_join(&r);
        assert_int_equal(far_exists(third, r.table, "other", 5), FAR_NOT_FOUND);
        expect_get(third, &r, "two", 2); /* not seen */
        expect_get(third, &r, "two", 2 - saved);
        assert_int_equal(far_delete(third, r.table, KEY), FAR_OK);
        assert_int_equal(rtts(third), 3 - saved);
        assert_int_equal(far_get(third, r.table, KEY, NULL, 0, NULL), FAR_NOT_FOUND);
        assert_int_equal(rtts(third), 1);
        far_session_close(third);
        far_session_close(other);
        store_rig_close(&r);
    }
}

static void a_hint_that_is_out_of_date_says_nothing(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    far_session *s = r.session, *other = store_rig_join(&r);
    put(s, &r, "one", 3);
    put(other, &r, "two", 3);
    expect_get(s, &r, "two", 2);
    expect_get(s, &r, "two", 1);
    put(other, &r, "three", 5);
    put(s, &r, "four", 4);
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
    put(r.session, &r, "one", 3);
    struct race_spot spot;
    race_rig_find(&r, KEY, &spot);
    uint64_t elsewhere = spot.found.slot ^ gaddr_make(1, 0); /* the same offset of the other node */
    race_look_note(race_rig_view(&r), &spot.key, elsewhere);
    expect_get(r.session, &r, "one", 2);
    assert_int_equal(r.session->op.cost.verbs, 3);
    expect_get(r.session, &r, "one", 1);
    store_rig_close(&r);
}

static void long_blocks_are_not_read_ahead(void **state)
{
    static char value[2 * BLOCK_SHORT_MAX], got[sizeof value];
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    put(r.session, &r, value, sizeof value);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(far_get(r.session, r.table, KEY, got, sizeof got, NULL), FAR_OK);
        assert_int_equal(rtts(r.session), 2);
    }
    put(r.session, &r, value, BLOCK_SHORT_MAX / 2);
    assert_int_equal(far_get(r.session, r.table, KEY, got, sizeof got, NULL), FAR_OK);
    assert_int_equal(rtts(r.session), 1);
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
            assert_true(got == value && rtts(r.session) == 1);
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
    put(r.session, &r, "one", 3);
    race_rig_find(&r, KEY, &spot);
    struct op *op = &r.session->op;
    gaddr block = pointer_gaddr(spot.found.slot);
    unsigned n = op_read(op, block, 16);
    assert_int_equal(batch_flush(&op->batch), FAR_OK);
    op->word[0] = ~op_result(op, n);
    batch_write(&op->batch, block, 16, &op->word[0], 8);
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
    far_session *s = r.session, *other = store_rig_join(&r);
    put(s, &r, "one", 3);
    assert_int_equal(far_delete(s, r.table, KEY), FAR_OK);
    assert_int_equal(far_exists(s, r.table, KEY), FAR_NOT_FOUND);
    assert_int_equal(s->op.cost.verbs, 2);
    put(s, &r, "one", 3);
    assert_int_equal(far_delete(other, r.table, KEY), FAR_OK);
    for (unsigned verbs = 3; verbs >= 2; verbs--) { /* the first one finds out */
        assert_int_equal(far_exists(s, r.table, KEY), FAR_NOT_FOUND);
        assert_int_equal(s->op.cost.verbs, verbs);
    }
    put(s, &r, "one", 3);
    put(s, &r, value, sizeof value);
    assert_int_equal(far_exists(s, r.table, KEY), FAR_OK);
    assert_int_equal(s->op.cost.verbs, 3);
    far_session_close(other);
    store_rig_close(&r);
}

/* A header is no slot, whatever it looks like. */
static void a_header_is_not_taken_for_the_slot_of_a_hint(void **state)
{
    uint64_t words[RACE_PLACES] = {0}, judged = 1;
    struct index_probe probe = {.format = RACE_SLOT};
    struct index_block block = {.slot = race_header(5, 1, 0)};
    struct index_found found;
    (void)state;
    for (unsigned i = 0; i < RACE_PLACES; i += RACE_BUCKET_WORDS)
        words[i] = block.slot;
    assert_false(index_hint_holds(&probe, &block, words, RACE_SLOT_PLACES, &found, &judged));
    assert_true(found.place == -1 && judged == 0);
}

/* RACE-R5: a slot that was sealed when it was read may be out of use. So it is not believed because
 * of a hint, even if the hint was noted when it was sealed already. */
static void a_sealed_slot_is_not_believed_because_of_a_hint(void **state)
{
    struct store_rig r;
    struct race_spot spot;
    (void)state;
    rig(&r, "mem:?size=8m", "groups=2&hot=1");
    far_session *s = r.session, *other = store_rig_join(&r);
    put(s, &r, "one", 3);
    race_rig_find(&r, KEY, &spot);
    for (uint32_t i = 0; i < 200; i++) /* splits its subtable, which this session does not know */
        assert_int_equal(far_put(other, r.table, &i, 4, &i, 4), FAR_OK);
    put(other, &r, "two", 3);
    race_look_note(race_rig_view(&r), &spot.key, spot.found.slot | RACE_SLOT_SEALED);
    char got[8] = "";
    assert_int_equal(far_get(s, r.table, KEY, got, sizeof got, NULL), FAR_OK);
    assert_string_equal(got, "two");
    far_session_close(other);
    store_rig_close(&r);
}

/* ---- a second look ---------------------------------------------------------------------------- */

/* What another client does after the first look of an insert: it inserts the key, in memory that
 * belonged to the key of the hint. Generations do not tell the two blocks apart. */
static struct {
    struct store_rig *r;
    uint64_t word, place_offset;
    gaddr subtable;
    unsigned char image[64];
    unsigned posts;
} twin;

static void write_now(struct fab_ep *ep, gaddr at, uint64_t delta, void *from, uint32_t len)
{
    struct fab_verb v = {.kind = FAB_WRITE,
                         .node = (uint16_t)gaddr_node(at),
                         .off = gaddr_offset(at) + delta,
                         .buf = from,
                         .len = len};
    struct fab_req req = {.verbs = &v, .count = 1};
    ASSERT(hook.real->post(ep, &req) == FAR_OK && req.done);
}

static int post_and_insert(struct fab_ep *ep, struct fab_req *req)
{
    int rc = hook.real->post(ep, req);
    if (++twin.posts == 1) {
        write_now(ep, pointer_gaddr(twin.word), 0, twin.image, sizeof twin.image);
        write_now(ep, twin.subtable, twin.place_offset, &twin.word, 8);
    }
    return rc;
}

static void a_second_look_does_not_believe_what_was_read_before_it(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct far_table_options table = {.tuning = "groups=2&hot=1", .hash_seed = 17};
    struct store_rig r;
    struct race_spot spot;
    (void)state;
    knobs.fingerprint_mask = 0;
    knobs.generation_mask = 0;
    store_rig_open(&r, "mem:?size=8m", &knobs, NULL, &table);
    far_session *s = r.session;
    put(s, &r, "one", 3);
    race_rig_find(&r, KEY, &spot);
    memcpy(twin.image, spot.found.block, sizeof twin.image);
    assert_int_equal(far_delete(s, r.table, KEY), FAR_OK);
    assert_int_equal(far_put(s, r.table, "other", 5, "two", 3), FAR_OK);
    race_rig_find(&r, "other", 5, &spot);
    twin.word = spot.found.slot;
    assert_int_equal(far_delete(s, r.table, "other", 5), FAR_OK);
    race_rig_find(&r, KEY, &spot); /* where it would be: the last place, which is taken last */
    twin.subtable = spot.look.subtable;
    twin.place_offset = race_place_offset(&spot.key, RACE_PLACES - 1);
    race_look_note(race_rig_view(&r), &spot.key, twin.word);

    twin.posts = 0;
    hook_on(s->client.ep);
    hook.ops.post = post_and_insert;
    assert_int_equal(far_insert(s, r.table, KEY, "mine", 4), FAR_EXISTS);
    hook_off();
    expect_get(s, &r, "one", 1);
    assert_int_equal(far_table_check(s, r.table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

/* ---- the order ------------------------------------------------------------------------------- */

static struct {
    struct fab_verb verb[8];
    unsigned count, posts;
} seen;

static int post_seen(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count && seen.count < 8; i++)
        seen.verb[seen.count++] = req->verbs[i];
    seen.posts++;
    return hook.real->post(ep, req);
}

/* HINT-H1 */
static void the_block_is_read_behind_the_slots(void **state)
{
    static const struct {
        unsigned order;
        bool fenced;
    } cases[] = {{ORDER_IB, false}, {ORDER_ALL & ~ORDER(FAB_R, FAB_R), true}};
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct store_rig r;
        rig(&r, "mem:?size=8m", "hot=1");
        put(r.session, &r, "one", 3);
        unsigned order = r.fab->order;
        r.fab->order = cases[i].order;
        hook_on(r.session->client.ep);
        hook.ops.post = post_seen;
        memset(&seen, 0, sizeof seen);
        expect_get(r.session, &r, "one", cases[i].fenced ? 2 : 1); /* a fence counts as one */
        hook_off();
        r.fab->order = order;
        assert_int_equal(seen.posts, 1);
        assert_int_equal(seen.count, 3);
        assert_int_equal(seen.verb[0].len, RACE_COMBINED_BYTES);
        assert_int_equal(seen.verb[1].len, RACE_COMBINED_BYTES);
        assert_int_equal(seen.verb[2].len, 64);
        assert_int_equal(seen.verb[2].flags & FAB_FENCE, cases[i].fenced ? FAB_FENCE : 0);
        store_rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_were_seen_take_a_round_trip_less),
        cmocka_unit_test(a_hint_that_is_out_of_date_says_nothing),
        cmocka_unit_test(a_block_of_another_node_is_not_read_ahead),
        cmocka_unit_test(long_blocks_are_not_read_ahead),
        cmocka_unit_test(keys_take_turns),
        cmocka_unit_test(a_damaged_block_is_not_taken_for_an_absent_key),
        cmocka_unit_test(keys_that_are_gone_are_forgotten),
        cmocka_unit_test(a_header_is_not_taken_for_the_slot_of_a_hint),
        cmocka_unit_test(a_sealed_slot_is_not_believed_because_of_a_hint),
        cmocka_unit_test(a_second_look_does_not_believe_what_was_read_before_it),
        cmocka_unit_test(the_block_is_read_behind_the_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
