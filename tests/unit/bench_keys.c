/* Keys and values of the benchmark: every key is unique, and a value identifies its key. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "bench/keys.h"

#include <stdlib.h>
#include <string.h>

#define COUNT 200000u

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void no_two_numbers_share_a_key(void **state)
{
    (void)state;
    uint64_t *keys = calloc(COUNT, sizeof *keys);
    assert_non_null(keys);
    for (uint64_t i = 0; i < COUNT; i++) {
        /* Low numbers, and numbers that differ only in high bits, like those of absent keys. */
        uint64_t number = i % 2 == 0 ? i : i << 44 | 1ull << 63;
        bench_key_write(number, &keys[i], sizeof keys[i]);
    }
    qsort(keys, COUNT, sizeof *keys, by_value);
    for (uint64_t i = 1; i < COUNT; i++)
        assert_true(keys[i] != keys[i - 1]);
    free(keys);
}

/* The inverse of the mix, step by step: it exists, so the mix is a bijection. */
static uint64_t unmix(uint64_t n)
{
    n ^= n >> 31 ^ n >> 62;
    n *= 0x319642b2d24d8ec3u;
    n ^= n >> 27 ^ n >> 54;
    n *= 0x96de1b173f119089u;
    return n ^ n >> 30 ^ n >> 60;
}

static void the_mix_can_be_undone(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 64; bit++)
        for (uint64_t i = 0; i < 1000; i++)
            assert_true(unmix(bench_mix(i ^ 1ull << bit)) == (i ^ 1ull << bit));
}

static void longer_keys_are_filled_to_the_end(void **state)
{
    (void)state;
    unsigned char key[65], again[65], other[65];
    for (size_t size = BENCH_KEY_MIN; size <= 64; size++) {
        memset(key, 0, sizeof key);
        memset(again, 0xff, sizeof again);
        bench_key_write(7, key, size);
        bench_key_write(7, again, size);
        bench_key_write(8, other, size);
        assert_memory_equal(key, again, size);
        assert_memory_not_equal(key, other, size);
        assert_int_equal(again[size], 0xff); /* nothing is written past the end */
    }
}

static void a_value_belongs_to_its_key_only(void **state)
{
    (void)state;
    unsigned char value[100];
    for (unsigned size = 0; size <= sizeof value; size++) {
        struct bench_sizes sizes = {.value = {size, size}};
        bench_value_init(value, size);
        bench_value_write(0x1122334455667788, 5, value, size);
        assert_true(bench_value_right(&sizes, 0x1122334455667788, value, size));
        if (size == 0)
            continue;
        assert_false(bench_value_right(&sizes, 0x1122334455667799, value, size));
        assert_false(bench_value_right(&sizes, 0x1122334455667788, value, size - 1));
    }
}

static const struct bench_sizes varied = {.key = {8, 40}, .value = {16, 115}};

static void all_sizes_of_a_range_are_equally_likely(void **state)
{
    (void)state;
    unsigned keys[41] = {0}, values[116] = {0}, versions[116] = {0};
    for (uint64_t i = 0; i < COUNT; i++) {
        size_t key = bench_key_size(&varied, i), value = bench_value_size(&varied, i, 7);
        size_t version = bench_value_size(&varied, 7, i);
        assert_in_range(key, 8, 40);
        assert_in_range(value, 16, 115);
        assert_in_range(version, 16, 115);
        assert_int_equal(key, bench_key_size(&varied, i));
        keys[key]++;
        values[value]++;
        versions[version]++;
    }
    for (unsigned i = 8; i <= 40; i++)
        assert_in_range(keys[i], COUNT / 33 * 9 / 10, COUNT / 33 * 11 / 10);
    for (unsigned i = 16; i <= 115; i++) {
        assert_in_range(values[i], COUNT / 100 * 85 / 100, COUNT / 100 * 115 / 100);
        assert_in_range(versions[i], COUNT / 100 * 85 / 100, COUNT / 100 * 115 / 100);
    }
}

static void a_value_of_a_varied_size_proves_its_size(void **state)
{
    (void)state;
    unsigned char value[116], next[116];
    bench_value_init(value, sizeof value);
    bench_value_init(next, sizeof next);
    for (uint64_t number = 0; number < 1000; number++) {
        size_t size = bench_value_size(&varied, number, 3 * number);
        bench_value_write(number, 3 * number, value, size);
        assert_true(bench_value_right(&varied, number, value, size));
        for (size_t other = 0; other < sizeof value; other++)
            assert_true(bench_value_right(&varied, number, value, other) == (other == size));
        assert_false(bench_value_right(&varied, number + 1, value, size));
        size_t after = bench_value_next(&varied, number, value, size, next);
        assert_int_equal(after, bench_value_size(&varied, number, 3 * number + 1));
        assert_true(bench_value_right(&varied, number, next, after));
    }
}

/* Values of one size keep it, also if they are too short for a version. */
static void the_next_value_has_the_same_size_if_all_have(void **state)
{
    (void)state;
    for (unsigned size = 0; size <= 40; size++) {
        struct bench_sizes sizes = {.value = {size, size}};
        unsigned char value[41], next[41];
        memset(next, 0xff, sizeof next);
        bench_value_init(value, size);
        bench_value_write(9, 4, value, size);
        assert_int_equal(bench_value_next(&sizes, 9, value, size, next), size);
        assert_true(bench_value_right(&sizes, 9, next, size));
        if (size >= 16)
            assert_int_equal(next[8], 5);
        assert_int_equal(next[size], 0xff);
    }
}

static void an_entry_is_right_if_value_and_key_belong_together(void **state)
{
    (void)state;
    unsigned char key[41], value[116], expected[41];
    bench_value_init(value, sizeof value);
    for (uint64_t number = 0; number < 100; number++) {
        struct far_entry e = {.key = key, .value = value};
        e.key_len = bench_key_size(&varied, number);
        e.value_len = bench_value_size(&varied, number, 5);
        bench_key_write(number, key, sizeof key);
        bench_value_write(number, 5, value, e.value_len);
        assert_true(bench_entry_right(&varied, &e, expected));
        e.key_len++;
        assert_false(bench_entry_right(&varied, &e, expected));
        e.key_len--;
        e.value_len++;
        assert_false(bench_entry_right(&varied, &e, expected));
        e.value_len = 3;
        assert_false(bench_entry_right(&varied, &e, expected));
        e.value_len = bench_value_size(&varied, number, 5);
        key[0] ^= 1;
        assert_false(bench_entry_right(&varied, &e, expected));
    }
    /* Too short for a number: only the sizes are known. */
    const struct bench_sizes tiny = {.key = {8, 40}, .value = {3, 3}};
    struct far_entry e = {.key = key, .key_len = 40, .value = value, .value_len = 3};
    assert_true(bench_entry_right(&tiny, &e, expected));
    e.key_len = 41;
    assert_false(bench_entry_right(&tiny, &e, expected));
    e = (struct far_entry){.key = key, .key_len = 8, .value = value, .value_len = 2};
    assert_false(bench_entry_right(&tiny, &e, expected));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_two_numbers_share_a_key),
        cmocka_unit_test(the_mix_can_be_undone),
        cmocka_unit_test(longer_keys_are_filled_to_the_end),
        cmocka_unit_test(a_value_belongs_to_its_key_only),
        cmocka_unit_test(all_sizes_of_a_range_are_equally_likely),
        cmocka_unit_test(a_value_of_a_varied_size_proves_its_size),
        cmocka_unit_test(the_next_value_has_the_same_size_if_all_have),
        cmocka_unit_test(an_entry_is_right_if_value_and_key_belong_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
