/* RACE changes keys that a session has written before in one round trip (HINT-H2, index/own.h). */
#include "support/race_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEY       "key", 3
#define OWN_TURNS 16

static void rig(struct store_rig *r, const char *uri, const struct knobs *knobs, const char *tuning)
{
    struct far_table_options table = {.tuning = tuning, .hash_seed = 17};
    store_rig_open(r, uri, knobs, NULL, &table);
}

/* Puts the key. That must take this many round trips. */
static void expect_put(far_session *s, struct store_rig *r, const char *value, uint32_t round_trips)
{
    assert_int_equal(far_put(s, r->table, KEY, value, strlen(value)), FAR_OK);
    assert_int_equal(s->op.cost.rtts, round_trips);
}

static void holds(far_session *s, struct store_rig *r, const char *value)
{
    char got[16] = "";
    size_t len = 0;
    assert_int_equal(far_get(s, r->table, KEY, got, sizeof got, &len), FAR_OK);
    assert_int_equal(len, strlen(value));
    assert_memory_equal(got, value, len);
}

static void own_keys_are_changed_in_one_round_trip(void **state)
{
    static const struct {
        const char *uri, *tuning;
        uint32_t change;
    } cases[] = {{"mem:?size=8m&defer=1", "", 1},
                 {"mem:?size=8m&defer=1", "hot=1", 1},
                 {"mem:?size=8m&defer=1", "hot=0", 3},
                 {"mem:?size=8m", "", 2}}; /* it never waits: a look costs nothing */
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t change = cases[i].change;
        struct store_rig r;
        rig(&r, cases[i].uri, NULL, cases[i].tuning);
        far_session *s = r.session, *other = store_rig_join(&r);
        expect_put(s, &r, "one", 3);
        expect_put(s, &r, "two", change);
        assert_int_equal(s->op.cost.verbs, change == 1 ? 2 : s->op.cost.verbs);
        holds(other, &r, "two");
        assert_int_equal(far_update(s, r.table, KEY, "three", 5), FAR_OK);
        assert_int_equal(s->op.cost.rtts, change);
        holds(other, &r, "three");
        assert_int_equal(far_insert(s, r.table, KEY, "four", 4), FAR_EXISTS);
        assert_int_equal(far_delete(s, r.table, KEY), FAR_OK);
        assert_int_equal(s->op.cost.rtts, change);
        assert_int_equal(far_exists(other, r.table, KEY), FAR_NOT_FOUND);
        assert_int_equal(far_update(s, r.table, KEY, "five", 4), FAR_NOT_FOUND);
        assert_int_equal(far_delete(s, r.table, KEY), FAR_NOT_FOUND);
        assert_int_equal(far_table_check(s, r.table, NULL, NULL), FAR_OK);
        far_session_close(other);
        store_rig_close(&r);
    }
}

/* It may have been written long ago. */
static void a_slot_that_another_wrote_is_looked_for(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=8m&defer=1", NULL, "");
    far_session *other = store_rig_join(&r);
    assert_int_equal(far_put(other, r.table, KEY, "one", 3), FAR_OK);
    assert_int_equal(far_insert(r.session, r.table, KEY, "two", 3), FAR_EXISTS);
    holds(r.session, &r, "one");
    expect_put(r.session, &r, "three", 2);
    expect_put(r.session, &r, "four", 1);
    far_session_close(other);
    store_rig_close(&r);
}

/* Another session's change is seen, and the next change looks first: until it finds the own
 * slot. */
static void a_key_that_others_write_is_looked_for(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=8m&defer=1", NULL, "");
    far_session *s = r.session, *other = store_rig_join(&r);
    expect_put(s, &r, "one", 3);
    assert_int_equal(far_put(other, r.table, KEY, "two", 3), FAR_OK);
    expect_put(s, &r, "three", 3); /* in vain, then by a hint of what it met */
    holds(other, &r, "three");
    expect_put(s, &r, "four", 2);
    expect_put(s, &r, "five", 1);
    assert_int_equal(far_delete(other, r.table, KEY), FAR_OK);
    assert_int_equal(far_update(s, r.table, KEY, "six", 3), FAR_NOT_FOUND);
    assert_int_equal(far_put(other, r.table, KEY, "seven", 5), FAR_OK);
    assert_int_equal(far_delete(s, r.table, KEY), FAR_OK);
    assert_int_equal(far_exists(other, r.table, KEY), FAR_NOT_FOUND);
    far_session_close(other);
    store_rig_close(&r);
}

/* PTR-5: as long as the generations last. */
static void a_word_is_trusted_for_some_epochs(void **state)
{
    static const unsigned masks[] = {0, 3, 0xff};
    (void)state;
    for (unsigned i = 0; i < sizeof masks / sizeof *masks; i++) {
        struct knobs knobs = pool_knobs_default;
        struct store_rig r;
        knobs.generation_mask = (uint8_t)masks[i];
        knobs.tick_ops = UINT32_MAX; /* only this test drives epochs */
        rig(&r, "mem:?size=8m&defer=1&lease=3600000", &knobs, "");
        for (unsigned ahead = 0; ahead < masks[i] + 3; ahead++) {
            assert_int_equal(far_put(r.session, r.table, KEY, "v", 1), FAR_OK);
            uint64_t written = r.session->op.epoch;
            while (client_epoch_view(&r.session->client).validated < written + ahead)
                assert_int_equal(client_drive_epoch(&r.session->op), FAR_OK);
            assert_int_equal(far_exists(r.session, r.table, KEY), FAR_OK); /* reads caches again */
            bool trusted = ahead == 0 || ahead < masks[i];
            expect_put(r.session, &r, "value", trusted ? 1 : 2);
            assert_int_equal(r.session->op.epoch, written + ahead);
            assert_int_equal(far_delete(r.session, r.table, KEY), FAR_OK); /* no turn counts */
        }
        store_rig_close(&r);
    }
}

/* The word of a slot that the session wrote comes again, in the same place, for another key. */
static void a_word_that_has_come_again_is_not_the_keys(void **state)
{
    static const uint8_t masks[] = {0, 3};
    (void)state;
    for (unsigned i = 0; i < sizeof masks; i++) {
        struct knobs knobs = pool_knobs_default;
        struct store_rig r;
        knobs.generation_mask = masks[i];
        knobs.fingerprint_mask = 0;
        knobs.hash_mask = 0;
        knobs.tick_ops = UINT32_MAX;
        rig(&r, "mem:?size=8m&defer=1&lease=3600000", &knobs, "");
        far_session *s = r.session, *other = store_rig_join(&r);
        struct race_spot before, after;
        assert_int_equal(far_put(s, r.table, KEY, "one", 3), FAR_OK);
        uint64_t written = s->op.epoch;
        race_rig_find(&r, KEY, &before);
        assert_int_equal(far_delete(other, r.table, KEY), FAR_OK);
        while (client_epoch_view(&other->client).validated < written + 4) {
            assert_int_equal(client_drive_epoch(&other->op), FAR_OK);
            assert_int_equal(client_drive_epoch(&s->op), FAR_OK);
        }
        client_reclaim(&other->client);
        assert_int_equal(far_put(other, r.table, "kez", 3, "two", 3), FAR_OK);
        race_rig_find(&r, "kez", 3, &after);
        assert_true(after.found.slot == before.found.slot);
        assert_int_equal(after.found.place, before.found.place);
        assert_int_equal(far_put(s, r.table, KEY, "three", 5), FAR_OK);
        assert_int_equal(far_exists(other, r.table, "kez", 3), FAR_OK);
        holds(other, &r, "three");
        far_session_close(other);
        store_rig_close(&r);
    }
}

/* HINT-H3 */
static void a_look_is_due_after_some_turns(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    (void)state;
    knobs.tick_ops = UINT32_MAX;
    rig(&r, "mem:?size=8m&defer=1&lease=3600000", &knobs, "");
    expect_put(r.session, &r, "value", 3);
    for (unsigned i = 1; i < 5 * (OWN_TURNS + 1); i++)
        expect_put(r.session, &r, "value", i % (OWN_TURNS + 1) == 0 ? 2 : 1);
    store_rig_close(&r);
}

/* A split moves keys. The old subtable is sealed, and the new one has the same words. */
static void keys_that_a_split_has_moved_are_changed_where_they_are(void **state)
{
    enum { KEYS = 400 };
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=8m&defer=1", NULL, "groups=2");
    far_session *s = r.session, *other = store_rig_join(&r);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(far_put(i % 4 ? other : s, r.table, &i, 4, &i, 4), FAR_OK);
    for (uint32_t round = 1; round < 4; round++) {
        for (uint32_t i = 0; i < KEYS; i += 4) {
            uint32_t value = i + round;
            assert_int_equal(far_put(s, r.table, &i, 4, &value, 4), FAR_OK);
        }
        for (uint32_t i = 0; i < KEYS; i++) {
            uint32_t got = 0;
            assert_int_equal(far_get(other, r.table, &i, 4, &got, 4, NULL), FAR_OK);
            assert_int_equal(got, i % 4 ? i : i + round);
        }
    }
    assert_int_equal(far_table_check(s, r.table, NULL, NULL), FAR_OK);
    far_session_close(other);
    store_rig_close(&r);
}

/* The cached directory leads out of the pool, as that of a session that has read a damaged
 * entry. */
static void a_directory_that_was_damaged_is_read_again(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=8m&defer=1", NULL, "");
    expect_put(r.session, &r, "one", 3);
    struct race_view *view = race_rig_view(&r);
    for (uint64_t i = 0; i < 1ull << view->depth; i++)
        view->entries[i] = race_entry(gaddr_make(0, 1ull << 32), view->depth);
    assert_int_equal(far_put(r.session, r.table, KEY, "two", 3), FAR_OK);
    holds(r.session, &r, "two");
    store_rig_close(&r);
}

/* Keys that are too long, and more keys than there are entries. */
static void keys_that_are_not_kept_are_looked_for(void **state)
{
    enum { KEYS = 500 };
    struct store_rig r;
    char key[INDEX_OWN_KEY + 1] = "";
    (void)state;
    rig(&r, "mem:?size=8m&defer=1", NULL, "hot=1");
    for (size_t len = INDEX_OWN_KEY; len <= sizeof key; len++)
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(far_put(r.session, r.table, key, len, "v", 1), FAR_OK);
            assert_int_equal(r.session->op.cost.rtts, i == 0 ? 3 : len > INDEX_OWN_KEY ? 2 : 1);
        }
    assert_int_equal(index_owns_bytes(&race_rig_view(&r)->owns), 64);
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t i = 0; i < KEYS; i++)
            assert_int_equal(far_put(r.session, r.table, &i, 4, &i, 4), FAR_OK);
    assert_int_equal(index_owns_bytes(&race_rig_view(&r)->owns), 1024);
    for (uint32_t i = 0; i < KEYS; i++) {
        uint32_t got = 0;
        assert_int_equal(far_get(r.session, r.table, &i, 4, &got, 4, NULL), FAR_OK);
        assert_int_equal(got, i);
    }
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_keys_are_changed_in_one_round_trip),
        cmocka_unit_test(a_slot_that_another_wrote_is_looked_for),
        cmocka_unit_test(a_key_that_others_write_is_looked_for),
        cmocka_unit_test(a_word_is_trusted_for_some_epochs),
        cmocka_unit_test(a_word_that_has_come_again_is_not_the_keys),
        cmocka_unit_test(a_look_is_due_after_some_turns),
        cmocka_unit_test(keys_that_a_split_has_moved_are_changed_where_they_are),
        cmocka_unit_test(a_directory_that_was_damaged_is_read_again),
        cmocka_unit_test(keys_that_are_not_kept_are_looked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
