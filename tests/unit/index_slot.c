/* Slot words of all widths, the candidates among them, the words of a batch, and the budget of
 * blocks read together. */
#include "index/blocks.h"
#include "support/pool_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static const struct slot_format formats[] = {
    {.generation = 6, .fingerprint_at = 54, .fingerprint = 8}, /* RACE */
    {.generation = 3, .fingerprint_at = 49, .fingerprint = 7},
    {.generation = 0, .fingerprint_at = 46, .fingerprint = 18},
    {.generation = 6, .fingerprint_at = 63, .fingerprint = 1},
};
#define FORMATS (sizeof formats / sizeof *formats)

static void a_slot_says_what_it_was_made_of(void **state)
{
    (void)state;
    for (unsigned f = 0; f < FORMATS; f++) {
        uint64_t most = (1ull << formats[f].fingerprint) - 1;
        for (unsigned n = 0; n < 64; n++) {
            struct block_ref block = {.at = gaddr_make(n % 3, 64ull * (n + 1) * 4099),
                                      .size_class = (uint8_t)(n % CLASS_COUNT),
                                      .generation = (uint8_t)n};
            uint64_t fingerprint = n * 37 & most, slot = slot_make(formats[f], &block, fingerprint);
            assert_true(pointer_gaddr(slot) == block.at);
            assert_int_equal(pointer_class(slot), block.size_class);
            assert_int_equal(slot_fingerprint(formats[f], slot), fingerprint);
            assert_int_equal(slot_generation(formats[f], slot),
                             pointer_generation(pointer_make(&block, formats[f].generation),
                                                formats[f].generation));
        }
    }
}

static void candidates_are_the_words_that_agree_under_the_mask(void **state)
{
    uint64_t words[64];
    (void)state;
    for (unsigned f = 0; f < FORMATS; f++) {
        uint64_t mask = slot_fingerprint_mask(formats[f]), expected = 0;
        for (unsigned i = 0; i < 64; i++) {
            uint64_t fingerprint = i % 5 == 0 ? 1 : 0;
            words[i] = fingerprint << formats[f].fingerprint_at | i;
            expected |= (uint64_t)(i % 5 == 0) << i;
        }
        uint64_t want = 1ull << formats[f].fingerprint_at;
        assert_true(slot_candidates(words, 64, mask, want) == expected);
        assert_true(slot_candidates(words, 7, mask, want) == (expected & 0x7f));
        assert_true(slot_candidates(words, 0, mask, want) == 0);
        assert_true(slot_candidates(words, 64, mask | 1, want) == (expected & 0x5555555555555555));
    }
}

static void words_of_a_batch_are_found_by_the_number_of_their_verb(void **state)
{
    const uint64_t at = CONTROL_OFF + offsetof(struct pool_control, reserved);
    struct pool_rig r;
    (void)state;
    pool_rig_open(&r, "mem:?size=1m");
    pool_rig_set(&r, 0, at, 0xab00);
    unsigned fails = op_mcas(&r.op, MARK_PUBLISH, NODE0, at, 0xac00, 0xff00, 0x11, 0xff);
    unsigned swaps = op_mcas(&r.op, MARK_PUBLISH, NODE0, at, 0xab77, 0xff00, 0xcd22, 0xff);
    unsigned adds = op_faa(&r.op, MARK_PUBLISH, NODE0, at, 1), reads = op_read(&r.op, NODE0, at);
    assert_int_equal(batch_flush(&r.op.batch), FAR_OK);
    assert_false(op_swapped(&r.op, fails));
    assert_int_equal(op_result(&r.op, fails), 0xab00);
    assert_true(op_swapped(&r.op, swaps));
    assert_int_equal(op_result(&r.op, swaps), 0xab00);
    assert_int_equal(op_result(&r.op, adds), 0xab22); /* only the bits of the swap mask changed */
    assert_int_equal(op_result(&r.op, reads), 0xab23);
    pool_rig_set(&r, 0, at, 0);
    pool_rig_close(&r);
}

static void blocks_are_read_within_the_budget_and_the_batch(void **state)
{
    struct pool_rig r;
    struct index_blocks blocks;
    (void)state;
    pool_rig_open(&r, "mem:?size=1m");
    index_blocks_start(&blocks, &r.op, 1000);
    assert_true(index_blocks_add(&blocks, 64, 4096, 0)); /* the first one always fits */
    assert_false(index_blocks_add(&blocks, 64, 8, 1));
    index_blocks_start(&blocks, &r.op, 1000);
    assert_true(index_blocks_add(&blocks, 64, 600, 0));
    assert_true(index_blocks_add(&blocks, 64, 400, 1));
    assert_false(index_blocks_add(&blocks, 64, 8, 2));
    unsigned word = op_read(&r.op, NODE0, 0); /* goes out with them */
    index_blocks_start(&blocks, &r.op, SIZE_MAX);
    for (unsigned i = 0; i < BATCH_MAX - 1; i++)
        assert_true(index_blocks_add(&blocks, 8ull * i, 8, i));
    assert_false(index_blocks_add(&blocks, 0, 8, BATCH_MAX));
    uint64_t trips = r.op.cost.rtts;
    assert_int_equal(index_blocks_read(&r.op, &blocks, false), FAR_OK);
    assert_int_equal(r.op.cost.rtts - trips, 1);
    assert_memory_equal(blocks.block[0].image, &r.op.word[word], 8);
    for (unsigned i = 0; i < BATCH_MAX - 1; i++)
        assert_true(blocks.block[i].image == (const char *)blocks.block[0].image + 8ul * i);
    pool_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_says_what_it_was_made_of),
        cmocka_unit_test(candidates_are_the_words_that_agree_under_the_mask),
        cmocka_unit_test(words_of_a_batch_are_found_by_the_number_of_their_verb),
        cmocka_unit_test(blocks_are_read_within_the_budget_and_the_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
