/* The hashes are XXH3 as published: what one build writes, another must find. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "base/hash.h"

static void sums_are_those_of_xxh3(void **state)
{
    (void)state;
    assert_true(hash_sum("", 0, 0) == UINT64_C(0x2d06800538d394c2));
    assert_true(hash_sum("a", 1, 0) == UINT64_C(0xe6c632b61e964e1f));
    assert_true(hash_sum("abc", 3, 0) == UINT64_C(0x78af5f94892f3950));
}

static void keys_are_hashed_by_xxh3_128(void **state)
{
    (void)state;
    struct hash128 h = hash_key("", 0, 0);
    assert_true(h.hi == UINT64_C(0x99aa06d3014798d8) && h.lo == UINT64_C(0x6001c324468d497f));
    h = hash_key("abc", 3, 0);
    assert_true(h.hi == UINT64_C(0x06b05ab6733a6185) && h.lo == UINT64_C(0x78af5f94892f3950));
}

/* XXH3 has a path of its own for 0, 1-3, 4-8, 9-16, 17-128, 129-240 and more bytes. */
static const size_t lengths[] = {0,   1,   3,   4,   8,   9,    16,   17,  64,
                                 128, 129, 240, 241, 255, 1024, 4096, 5000};
#define LENGTHS (sizeof lengths / sizeof lengths[0])

static void length_and_seed_matter(void **state)
{
    (void)state;
    static unsigned char data[5000];
    for (size_t i = 0; i < LENGTHS; i++) {
        struct hash128 h = hash_key(data, lengths[i], 1), other = hash_key(data, lengths[i], 2);
        assert_true(h.lo != other.lo && h.hi != other.hi);
        assert_true(hash_sum(data, lengths[i], 1) != hash_sum(data, lengths[i], 2));
        for (size_t j = 0; j < i; j++) {
            assert_true(hash_key(data, lengths[j], 1).lo != h.lo);
            assert_true(hash_sum(data, lengths[j], 1) != hash_sum(data, lengths[i], 1));
        }
    }
}

static void any_flipped_bit_changes_the_sum(void **state)
{
    (void)state;
    static unsigned char data[5000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 131 + 7);
    for (size_t i = 0; i < LENGTHS; i++) {
        uint64_t sum = hash_sum(data, lengths[i], 9);
        size_t step = lengths[i] > 256 ? 13 : 1;
        for (size_t bit = 0; bit < lengths[i] * 8; bit += step) {
            data[bit / 8] ^= (unsigned char)(1u << bit % 8);
            assert_true(hash_sum(data, lengths[i], 9) != sum);
            data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        assert_true(hash_sum(data, lengths[i], 9) == sum);
    }
}

static void alignment_does_not_matter(void **state)
{
    (void)state;
    static unsigned char data[5000 + 16];
    for (size_t i = 0; i < LENGTHS; i++) {
        for (size_t shift = 0; shift < 16; shift++) {
            memset(data, 0, sizeof data);
            memset(data + shift, 'x', lengths[i]);
            uint64_t sum = hash_sum(data + shift, lengths[i], 0);
            memmove(data, data + shift, lengths[i]);
            assert_true(hash_sum(data, lengths[i], 0) == sum);
        }
    }
}

static void range_covers_evenly_and_never_reaches_n(void **state)
{
    (void)state;
    static const uint32_t ranges[] = {1, 2, 3, 85, 340, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        assert_int_equal(hash_range(0, ranges[i]), 0);
        assert_int_equal(hash_range(UINT32_MAX, ranges[i]), ranges[i] - 1);
    }
    unsigned counts[85] = {0};
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 4001)
        counts[hash_range((uint32_t)bits, 85)]++;
    unsigned expected = UINT32_MAX / 4001 / 85;
    for (size_t i = 0; i < 85; i++)
        assert_in_range(counts[i], expected - 2, expected + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_xxh3),
        cmocka_unit_test(keys_are_hashed_by_xxh3_128),
        cmocka_unit_test(length_and_seed_matter),
        cmocka_unit_test(any_flipped_bit_changes_the_sum),
        cmocka_unit_test(alignment_does_not_matter),
        cmocka_unit_test(range_covers_evenly_and_never_reaches_n),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
