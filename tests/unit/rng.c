/* The random numbers are those of the published generators, and spread evenly. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/rng.h"

static void the_seed_is_spread_by_splitmix64(void **state)
{
    (void)state;
    /* The published first outputs of splitmix64 from 1234567. */
    static const uint64_t expected[4] = {6457827717110365317u, 3203168211198807973u,
                                         9817491932198370423u, 4593380528125082431u};
    struct rng r;
    rng_seed(&r, 1234567);
    for (int i = 0; i < 4; i++)
        assert_true(r.s[i] == expected[i]);
}

static void the_numbers_are_those_of_xoshiro256starstar(void **state)
{
    (void)state;
    /* The reference implementation's first outputs from the state {1, 2, 3, 4}. */
    static const uint64_t expected[10] = {
        11520u,
        0u,
        1509978240u,
        1215971899390074240u,
        1216172134540287360u,
        607988272756665600u,
        16172922978634559625u,
        8476171486693032832u,
        10595114339597558777u,
        2904607092377533576u,
    };
    struct rng r = {.s = {1, 2, 3, 4}};
    for (int i = 0; i < 10; i++)
        assert_true(rng_next(&r) == expected[i]);
}

/* The two generators once more, written from their descriptions: state words in variables, the
 * rotations spelled out as a multiplication and a division by a power of two. */
struct reference {
    uint64_t a, b, c, d;
};

static uint64_t reference_mix(uint64_t seed, uint64_t step)
{
    uint64_t z = seed + step * UINT64_C(11400714819323198485);
    z = (z ^ z / (UINT64_C(1) << 30)) * UINT64_C(13787848793156543929);
    z = (z ^ z / (UINT64_C(1) << 27)) * UINT64_C(10723151780598845931);
    return z ^ z / (UINT64_C(1) << 31);
}

static uint64_t reference_rotate(uint64_t x, unsigned k)
{
    return x * (UINT64_C(1) << k) + x / (UINT64_C(1) << (64 - k));
}

static uint64_t reference_next(struct reference *s)
{
    uint64_t result = reference_rotate(s->b * 5, 7) * 9;
    struct reference old = *s;
    s->a = old.a ^ old.b ^ old.d;
    s->b = old.a ^ old.b ^ old.c;
    s->c = old.a ^ old.c ^ old.b << 17;
    s->d = reference_rotate(old.b ^ old.d, 45);
    return result;
}

static void it_agrees_with_an_independent_implementation(void **state)
{
    (void)state;
    static const uint64_t seeds[] = {0, 1, 42, UINT64_C(0xdeadbeefcafef00d), UINT64_MAX};
    for (unsigned i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        struct rng r;
        struct reference s = {reference_mix(seeds[i], 1), reference_mix(seeds[i], 2),
                              reference_mix(seeds[i], 3), reference_mix(seeds[i], 4)};
        rng_seed(&r, seeds[i]);
        for (int n = 0; n < 10000; n++)
            assert_true(rng_next(&r) == reference_next(&s));
    }
}

static void a_seed_repeats_and_another_differs(void **state)
{
    (void)state;
    struct rng a, b, c;
    rng_seed(&a, 7);
    rng_seed(&b, 7);
    rng_seed(&c, 8);
    int same = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t x = rng_next(&a);
        assert_true(x == rng_next(&b));
        same += x == rng_next(&c);
    }
    assert_int_equal(same, 0);
}

static void below_stays_in_range(void **state)
{
    (void)state;
    static const uint64_t ranges[] = {1, 2, 3, 1000, UINT64_C(1) << 63, UINT64_MAX};
    struct rng r;
    rng_seed(&r, 1);
    for (unsigned i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        for (int n = 0; n < 10000; n++)
            assert_true(rng_below(&r, ranges[i]) < ranges[i]);
    }
    struct rng top = {.s = {0, UINT64_MAX, 0, 0}};
    struct rng copy = top;
    uint64_t bits = rng_next(&copy);
    assert_true(rng_below(&top, 16) == bits >> 60);
}

static void below_is_uniform(void **state)
{
    (void)state;
    enum { CELLS = 100, DRAWS = 1000000 };
    unsigned counts[CELLS] = {0};
    struct rng r;
    rng_seed(&r, 2026);
    for (int i = 0; i < DRAWS; i++)
        counts[rng_below(&r, CELLS)]++;
    double chi2 = 0, expected = (double)DRAWS / CELLS;
    for (int i = 0; i < CELLS; i++)
        chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
    /* 99 degrees of freedom: a fair generator is within this with probability 0.9999. */
    assert_true(chi2 > 52 && chi2 < 162);
}

static void every_bit_is_set_half_of_the_time(void **state)
{
    (void)state;
    enum { DRAWS = 100000 };
    unsigned ones[64] = {0};
    struct rng r;
    rng_seed(&r, 3);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t x = rng_next(&r);
        for (int bit = 0; bit < 64; bit++)
            ones[bit] += x >> bit & 1;
    }
    for (int bit = 0; bit < 64; bit++) /* five standard deviations are 791 */
        assert_in_range(ones[bit], DRAWS / 2 - 791, DRAWS / 2 + 791);
}

static void unit_is_uniform_below_one(void **state)
{
    (void)state;
    enum { DRAWS = 1000000 };
    struct rng r;
    rng_seed(&r, 4);
    double sum = 0, squares = 0;
    for (int i = 0; i < DRAWS; i++) {
        double x = rng_unit(&r);
        assert_true(x >= 0 && x < 1);
        sum += x;
        squares += x * x;
    }
    assert_true(sum / DRAWS > 0.499 && sum / DRAWS < 0.501);
    assert_true(squares / DRAWS > 0.332 && squares / DRAWS < 0.335);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_seed_is_spread_by_splitmix64),
        cmocka_unit_test(the_numbers_are_those_of_xoshiro256starstar),
        cmocka_unit_test(it_agrees_with_an_independent_implementation),
        cmocka_unit_test(a_seed_repeats_and_another_differs),
        cmocka_unit_test(below_stays_in_range),
        cmocka_unit_test(below_is_uniform),
        cmocka_unit_test(every_bit_is_set_half_of_the_time),
        cmocka_unit_test(unit_is_uniform_below_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
