/* Pointers: what a word says of a block, whatever bits the index has for itself, and that the
 * word means one block for as long as any client may remember it. */
#include "support/probe.h"
#include "support/race_rig.h"
#include "support/pool_rig.h"

#include "pool/pointer.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static void a_pointer_says_what_it_was_made_of(void **state)
{
    const gaddr places[] = {1, gaddr_make(0, 64), gaddr_make(63, (1ull << 40) - 64)};

    (void)state;
    for (unsigned p = 0; p < sizeof places / sizeof *places; p++) {
        for (unsigned bits = 0; bits <= 8; bits++) {
            for (unsigned size_class = 0; size_class < CLASS_COUNT; size_class++) {
                struct block_ref block = {.at = places[p], .size_class = (uint8_t)size_class};
                block.generation = (uint8_t)(size_class * 5 % BLOCK_GENERATIONS);
                uint64_t word = pointer_make(&block, bits);
                assert_true(word >> POINTER_OWN_AT(bits) == 0);
                word |= UINT64_MAX << POINTER_OWN_AT(bits); /* the index's own bits are ignored */
                assert_true(pointer_gaddr(word) == places[p]);
                assert_int_equal(pointer_class(word), size_class);
                assert_int_equal(pointer_generation(word, bits) & 0xff,
                                 block.generation & ((1u << bits) - 1));
                uint64_t other = pointer_with_class(word, 63 - size_class);
                assert_int_equal(pointer_class(other), 63 - size_class);
                assert_true(pointer_with_class(other, size_class) == word);
            }
        }
    }
    assert_int_equal(gaddr_node(places[2]), 63);
    assert_true(gaddr_offset(places[2]) == (1ull << 40) - 64);
    assert_int_equal(64 - POINTER_OWN_AT(0), 18);
    assert_int_equal(64 - POINTER_OWN_AT(3), 15);
    assert_int_equal(64 - POINTER_OWN_AT(8), 10);
}

/* A node that an address cannot name does not become one that it can. */
static void a_node_that_cannot_be_is_out_of_bounds(void **state)
{
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=4m&nodes=2");
    for (unsigned node = 0; node < 256; node++) {
        batch_read(&r.op.batch, gaddr_make(node, 64), 0, r.op.word, 8);
        assert_int_equal(batch_flush(&r.op.batch), node < 2 ? FAR_OK : FAR_BOUNDS);
    }
    pool_rig_close(&r);
}

/* As many bits as the pointer has are compared, in a short block, in a long one, and in the
 * beginning of that. */
static void only_the_pointers_bits_are_compared(void **state)
{
    static const size_t lengths[] = {5, 10000};
    static char value[10000];
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m");
    for (unsigned l = 0; l < 2; l++) {
        struct block_ref block;
        assert_int_equal(block_prepare(&r.op, 0, "key", 3, value, lengths[l], 0, &block), FAR_OK);
        uint32_t bytes = size_class_bytes(block.size_class);
        for (unsigned bits = 0; bits <= 8; bits++) {
            for (unsigned other = 0; other < BLOCK_GENERATIONS; other++) {
                struct block_ref meant = block;
                meant.generation = (uint8_t)other;
                unsigned g = pointer_generation(pointer_make(&meant, bits), bits);
                bool same = ((other ^ block.generation) & ((1u << bits) - 1)) == 0;
                enum block_verdict match = same ? BLOCK_MATCH : BLOCK_STALE;
                assert_int_equal(block_valid(block.image, bytes, g), same);
                assert_int_equal(block_judge(block.image, bytes, g, "key", 3), match);
                assert_int_equal(block_judge(block.image, bytes, g, "kez", 3),
                                 same ? BLOCK_OTHER : BLOCK_STALE);
                if (l == 1)
                    assert_int_equal(block_judge_head(block.image, bytes, g, "key", 3), match);
            }
        }
        assert_true(block_valid(block.image, bytes, BLOCK_ANY_GENERATION));
        ((char *)block.image)[bytes > 100 ? 100 : 20] ^= 1; /* its checksum is asked in any case */
        assert_false(block_valid(block.image, bytes, BLOCK_ANY_GENERATION));
    }
    pool_rig_close(&r);
}

/* ---- words that come again ------------------------------------------------------------------- */

struct words {
    struct store_rig r;
    far_session *other;
    uint64_t key;
};

/* No generation tells blocks apart. The other session's epoch is up to date. */
static void words_open(struct words *w)
{
    struct knobs knobs = pool_knobs_default;
    knobs.generation_mask = 0;
    knobs.tick_ops = 1;
    store_rig_open(&w->r, "mem:?size=8m&lease=3600000", &knobs, NULL, NULL);
    assert_int_equal(far_session_open(w->r.pool, NULL, &w->other), FAR_OK);
    w->key = 7;
    assert_int_equal(far_put(w->r.session, w->r.table, &w->key, 8, &w->key, 8), FAR_OK);
}

static void words_close(struct words *w)
{
    far_session_close(w->other);
    store_rig_close(&w->r);
}

/* Updates the key, with the epoch driven on as far as it goes, and returns the new word. */
static uint64_t next_word(struct words *w, uint64_t turn)
{
    struct race_spot spot;
    assert_int_equal(far_update(w->r.session, w->r.table, &w->key, 8, &turn, 8), FAR_OK);
    assert_int_equal(client_drive_epoch(&w->r.session->op), FAR_OK);
    race_rig_find(&w->r, &w->key, 8, &spot);
    assert_true(spot.found.place >= 0);
    return spot.found.slot;
}

/* PTR-2 */
static void a_word_does_not_come_again_while_an_operation_remembers_it(void **state)
{
    struct words w;
    bool again = false;

    (void)state;
    words_open(&w);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(client_drive_epoch(&w.other->op), FAR_OK);
    assert_int_equal(op_begin(&w.other->op, NULL), FAR_OK);
    struct race_spot spot;
    race_rig_find(&w.r, &w.key, 8, &spot);
    uint64_t seen = spot.found.slot; /* by the other, too: it is in flight */
    for (uint64_t i = 0; i < 400; i++)
        assert_true(next_word(&w, i) != seen);
    op_end(&w.other->op);
    for (uint64_t i = 0; i < 4000 && !again; i++) {
        if (i % 4 == 0)
            assert_int_equal(client_drive_epoch(&w.other->op), FAR_OK);
        again = next_word(&w, i) == seen;
    }
    assert_true(again); /* else all this says nothing */
    words_close(&w);
}

/* PTR-4: while the other's operations begin in one epoch, what it has seen in that epoch stays; and
 * the word does come again once the epoch is two further. */
static void a_word_does_not_come_again_within_an_epoch(void **state)
{
    struct words w;
    struct op *op = NULL;
    unsigned came_again = 0;
    struct {
        uint64_t word, epoch;
    } seen[64] = {{0, 0}};

    (void)state;
    words_open(&w);
    op = &w.other->op;
    for (uint64_t i = 0; i < 6000; i++) {
        struct race_spot spot;
        race_rig_find(&w.r, &w.key, 8, &spot);
        assert_int_equal(op_begin(op, NULL), FAR_OK); /* it remembers that, and its epoch */
        seen[i % 64].word = spot.found.slot;
        seen[i % 64].epoch = op->epoch;
        op_end(op);
        uint64_t word = next_word(&w, i);
        if (i % 3 == 0)
            assert_int_equal(client_drive_epoch(op), FAR_OK);
        assert_int_equal(op_begin(op, NULL), FAR_OK); /* later; the word is new since */
        for (unsigned n = 0; n < 64; n++) {
            if (seen[n].word != word)
                continue;
            assert_true(seen[n].epoch != op->epoch);
            came_again++;
        }
        op_end(op);
    }
    assert_true(came_again > 100);
    words_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pointer_says_what_it_was_made_of),
        cmocka_unit_test(a_node_that_cannot_be_is_out_of_bounds),
        cmocka_unit_test(only_the_pointers_bits_are_compared),
        cmocka_unit_test(a_word_does_not_come_again_while_an_operation_remembers_it),
        cmocka_unit_test(a_word_does_not_come_again_within_an_epoch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
