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
    for (size_t size = 0; size <= sizeof value; size++) {
        bench_value_init(value, size);
        bench_value_write(0x1122334455667788, 5, value, size);
        assert_true(bench_value_belongs(0x1122334455667788, value, size));
        if (size > 0)
            assert_false(bench_value_belongs(0x1122334455667799, value, size));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_two_numbers_share_a_key),
        cmocka_unit_test(the_mix_can_be_undone),
        cmocka_unit_test(longer_keys_are_filled_to_the_end),
        cmocka_unit_test(a_value_belongs_to_its_key_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
