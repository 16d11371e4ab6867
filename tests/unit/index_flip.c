/* Damage that one flipped bit explains (FLIP-1). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/hash.h"
#include "index/flip.h"

#define WORDS 9u

/* The last word is a checksum of the others: of `bits` bits. */
static uint64_t sum(const uint64_t *words, unsigned bits)
{
    return hash_sum(words, 8 * (WORDS - 1), 1) >> (64 - bits);
}
static bool whole(const uint64_t *words, const void *bits)
{
    return words[WORDS - 1] == sum(words, *(const unsigned *)bits);
}

static void fill(uint64_t *words, unsigned bits)
{
    for (unsigned i = 0; i < WORDS - 1; i++)
        words[i] = i * 0x9e3779b97f4a7c15u;
    words[WORDS - 1] = sum(words, bits);
}

static void every_bit_is_found(void **state)
{
    uint64_t words[WORDS], damaged[WORDS];
    unsigned bits = 48;
    (void)state;
    fill(words, bits);
    for (unsigned bit = 0; bit < 64 * WORDS; bit++) {
        for (unsigned i = 0; i < WORDS; i++)
            damaged[i] = words[i];
        index_flip(damaged, bit);
        uint64_t before = damaged[bit / 64];
        assert_int_equal(index_flipped(damaged, WORDS, whole, &bits), bit);
        assert_int_equal(damaged[bit / 64], before);
    }
}

static void two_bits_are_not_one(void **state)
{
    uint64_t words[WORDS];
    unsigned bits = 48;
    (void)state;
    fill(words, bits);
    index_flip(words, 3);
    index_flip(words, 70);
    assert_int_equal(index_flipped(words, WORDS, whole, &bits), INDEX_NO_BIT);
}

/* A checksum that is too short to tell: several bits would explain the damage. */
static void an_ambiguous_bit_is_none(void **state)
{
    uint64_t words[WORDS];
    unsigned bits = 2;
    (void)state;
    fill(words, bits);
    index_flip(words, 3);
    assert_int_equal(index_flipped(words, WORDS, whole, &bits), INDEX_NO_BIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bit_is_found),
        cmocka_unit_test(two_bits_are_not_one),
        cmocka_unit_test(an_ambiguous_bit_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
