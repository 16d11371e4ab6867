/* Which keys have hints, and hints that threads share (index/hints.h). */
#include "support/store_rig.h"
#include "index/hints.h"
#include "index/race/race_layout.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define BYTES 1024u /* 96 hints */

/* A key's hash is its number; its slot has the fingerprint that belongs to it. */
static struct index_hints *hints;

static uint64_t fingerprint(uint64_t key)
{
    return key * 7 & 0xff;
}

static uint64_t slot(uint64_t key, uint64_t version)
{
    return slot_fingerprint_word(RACE_SLOT, (uint8_t)fingerprint(key)) |
           (key << 16 | version << 8 | 8);
}

static struct index_hint look(uint64_t key)
{
    return index_hint_of(hints, RACE_SLOT, key, fingerprint(key));
}

static void note(uint64_t key, uint64_t version, bool wrong)
{
    index_hint_note(
        hints, RACE_SLOT, key, fingerprint(key),
        (struct index_hint){.slot = slot(key, version), .place = key % 200, .wrong = wrong});
}

static bool is_known(uint64_t key)
{
    struct index_hint hint = look(key);
    assert_true(hint.slot == 0 || (hint.slot == slot(key, 0) && hint.place == key % 200));
    return hint.slot != 0;
}

static void rig(struct store_rig *r, uint64_t bytes)
{
    struct far_table_options table = {.hash_seed = 17};
    store_rig_open(r, "mem:?size=8m", NULL, NULL, &table);
    hints = index_hints_open(&r->session->op, &r->table->index, bytes);
    assert_non_null(hints);
}

static void keys_that_are_used_often_stay(void **state)
{
    enum { HOT = 24, ROUNDS = 200, COLD = 40 };
    struct store_rig r;
    unsigned known = 0;
    (void)state;
    rig(&r, BYTES);
    for (unsigned round = 0; round < ROUNDS; round++) {
        known = 0;
        for (uint64_t key = 0; key < HOT; key++) {
            known += is_known(key);
            note(key, 0, false);
        }
        for (uint64_t i = 0; i < COLD; i++) { /* each only once */
            uint64_t key = HOT + round * COLD + i;
            (void)is_known(key);
            note(key, 0, false);
        }
    }
    assert_int_equal(known, HOT);
    store_rig_close(&r);
}

/* A look ahead finds what a look finds, and is no use of it: the key gives way like one that was
 * used once. */
static void a_peek_does_not_count(void **state)
{
    enum { KEYS = 2000 };
    struct store_rig r;
    unsigned known[2] = {0, 0};
    (void)state;
    for (unsigned peeks = 0; peeks < 2; peeks++) {
        rig(&r, BYTES);
        note(1, 0, false);
        for (uint64_t key = 2; key < KEYS; key++) {
            note(key, 0, false);
            for (unsigned i = 0; i < 4 * peeks; i++)
                (void)index_hint_peek(hints, RACE_SLOT, key / 2, fingerprint(key / 2));
        }
        for (uint64_t key = 1; key < KEYS; key++) {
            struct index_hint hint = index_hint_peek(hints, RACE_SLOT, key, fingerprint(key));
            if (hint.slot != 0 && hint.slot == slot(key, 0)) {
                assert_int_equal(hint.place, key % 200);
                known[peeks] += (unsigned)key;
            }
        }
        assert_true(known[peeks] > 0);
        store_rig_close(&r);
    }
    assert_int_equal(known[0], known[1]);
}

static void a_peek_finds_no_hint_that_was_wrong(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, BYTES);
    note(1, 0, false);
    assert_int_equal(index_hint_peek(hints, RACE_SLOT, 1, fingerprint(1)).slot, slot(1, 0));
    note(1, 1, true);
    assert_int_equal(index_hint_peek(hints, RACE_SLOT, 1, fingerprint(1)).slot, 0);
    assert_int_equal(index_hint_peek(NULL, RACE_SLOT, 1, fingerprint(1)).slot, 0);
    store_rig_close(&r);
}

/* What was hot once does not stay for ever. */
static void keys_that_are_used_no_more_give_way(void **state)
{
    enum { KEYS = 64, ROUNDS = 40 };
    struct store_rig r;
    unsigned known = 0;
    (void)state;
    rig(&r, BYTES);
    for (uint64_t from = 0; from < 5 * KEYS; from += KEYS)
        for (unsigned round = 0; round < ROUNDS; round++) {
            known = 0;
            for (uint64_t key = from; key < from + KEYS; key++) {
                known += is_known(key);
                note(key, 0, false);
            }
        }
    assert_in_range(known, KEYS * 3 / 4, KEYS); /* some sets have more than their share of keys */
    store_rig_close(&r);
}

/* A key that another process changes before each look: most looks go without a hint. */
static void keys_whose_hints_are_wrong_are_left_out(void **state)
{
    enum { LOOKS = 1000 };
    struct store_rig r;
    unsigned in_vain = 0;
    (void)state;
    rig(&r, BYTES);
    for (uint64_t i = 0; i < LOOKS; i++) {
        bool wrong = look(1).slot != 0;
        in_vain += wrong;
        note(1, i % 200, wrong);
    }
    assert_in_range(in_vain, LOOKS / 10, LOOKS / 3);
    /* It is changed no more. */
    unsigned looks = 0;
    while (look(1).slot != slot(1, 7) && looks++ < 100)
        note(1, 7, false);
    assert_in_range(looks, 0, 8);
    /* A hint that is right most of the time is kept, though it is wrong now and then. */
    in_vain = 0;
    for (uint64_t i = 0; i < LOOKS; i++) {
        uint64_t version = i / 4 % 200;
        uint64_t has = look(1).slot;
        in_vain += has != slot(1, version);
        if (has != slot(1, version))
            note(1, version, has != 0);
    }
    assert_in_range(in_vain, LOOKS / 4, LOOKS / 3);
    store_rig_close(&r);
}

static void processes_have_hints_of_their_own(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, BYTES);
    far_session *mate = store_rig_join(&r), *other = store_rig_join_apart(&r);
    assert_ptr_equal(index_hints_open(&mate->op, &r.table->index, BYTES), hints);
    struct index_hints *others = index_hints_open(&other->op, &r.table->index, BYTES);
    assert_true(others && others != hints);
    assert_null(index_hints_open(&mate->op, &r.table->index, 0));
    far_session_close(mate);
    far_session_close(other);
    store_rig_close(&r);
}

/* HINT-H4: threads read, write and grow hints at the same time. A hint that one of them gets has
 * the fingerprint that it asked for; all else may be anyone's. */
static void *work(void *arg)
{
    uint64_t seed = *(const uint64_t *)arg;
    for (unsigned i = 0; i < 400000 / SLOWER; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        uint64_t key = seed >> 50;
        struct index_hint hint = look(key);
        ASSERT(hint.slot == 0 || slot_fingerprint(RACE_SLOT, hint.slot) == fingerprint(key));
        note(key, seed >> 20 & 7, seed >> 24 & 1);
    }
    return NULL;
}

static void threads_share_hints(void **state)
{
    enum { THREADS = 4 };
    struct store_rig r;
    pthread_t thread[THREADS];
    uint64_t seed[THREADS];
    (void)state;
    rig(&r, 256 << 10);
    uint64_t before = index_hints_bytes(hints);
    for (unsigned i = 0; i < THREADS; i++) {
        seed[i] = i + 1;
        assert_int_equal(pthread_create(&thread[i], NULL, work, &seed[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_true(index_hints_bytes(hints) > before);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_are_used_often_stay),
        cmocka_unit_test(a_peek_does_not_count),
        cmocka_unit_test(a_peek_finds_no_hint_that_was_wrong),
        cmocka_unit_test(keys_that_are_used_no_more_give_way),
        cmocka_unit_test(keys_whose_hints_are_wrong_are_left_out),
        cmocka_unit_test(processes_have_hints_of_their_own),
        cmocka_unit_test(threads_share_hints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
