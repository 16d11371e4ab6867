/* SepHash's FPTables: whatever the entries are, the range of an fp has all of its entries. */
#include "base/rng.h"
#include "index/sephash/sephash.h"

#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static uint32_t start[SEPHASH_FPS + 1];

/* Fills start[] for `entries` entries. `fp` chooses their fps. */
static void fill(unsigned entries, struct rng *rng, unsigned (*fp)(struct rng *rng))
{
    memset(start, 0, sizeof start);
    for (unsigned i = 0; i < entries; i++)
        start[fp(rng) + 1]++;
    for (unsigned i = 0; i < SEPHASH_FPS; i++)
        start[i + 1] += start[i];
}

static unsigned even(struct rng *rng)
{
    return (unsigned)rng_below(rng, SEPHASH_FPS);
}
static unsigned few(struct rng *rng)
{
    return (unsigned)rng_below(rng, 3) * 100;
}
static unsigned first(struct rng *rng)
{
    (void)rng;
    return 0;
}
static unsigned last(struct rng *rng)
{
    (void)rng;
    return SEPHASH_FPS - 1;
}
static unsigned in_waves(struct rng *rng)
{
    return (unsigned)(rng_below(rng, 16) * 16 + rng_below(rng, 4));
}

/* Returns the length of the longest range. */
static unsigned expect_all_found(bool plain, unsigned *points)
{
    uint16_t table[SEPHASH_FPS];
    unsigned err = 0, entries = start[SEPHASH_FPS], longest = 0;
    *points = sephash_table_make(plain, start, table, &err);
    assert_true(*points <= (plain ? SEPHASH_FPS : SEPHASH_POINTS_MAX) && err <= UINT16_MAX);
    for (unsigned fp = 0; fp < SEPHASH_FPS; fp++) {
        unsigned from = 0, to = 0;
        sephash_table_find(plain, table, *points, err, entries, fp, &from, &to);
        assert_true(from <= to && to <= entries);
        if (start[fp] < start[fp + 1])
            assert_true(from <= start[fp] && to >= start[fp + 1]);
        longest = to - from > longest ? to - from : longest;
    }
    return longest;
}

static void every_entry_is_in_the_range_of_its_fp(void **state)
{
    static unsigned (*const kind[])(struct rng *) = {even, few, first, last, in_waves};
    static const unsigned sizes[] = {0, 1, 2, 7, 100, 255, 1000, 4096, 8192, 30000, 65535};
    struct rng rng;
    (void)state;
    rng_seed(&rng, 1);
    for (unsigned k = 0; k < sizeof kind / sizeof *kind; k++) {
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            unsigned points = 0;
            fill(sizes[i], &rng, kind[k]);
            expect_all_found(false, &points);
            expect_all_found(true, &points);
        }
    }
}

/* The paper's 32 points are enough for full segments; those that were just split take some more. */
static void random_keys_take_few_points_and_short_ranges(void **state)
{
    static const struct {
        unsigned entries, points;
    } cases[] = {{8192, 32}, {6000, 40}, {4096, 48}};
    struct rng rng;
    (void)state;
    rng_seed(&rng, 2);
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (unsigned n = 0; n < 50; n++) {
            unsigned points = 0, average = cases[i].entries / SEPHASH_FPS;
            fill(cases[i].entries, &rng, even);
            assert_true(expect_all_found(false, &points) <= 5 * average);
            assert_true(points <= cases[i].points);
        }
    }
}

/* A table that is damaged gives a wrong range, but one within the segment. */
static void any_table_gives_a_range_within_the_segment(void **state)
{
    uint16_t table[SEPHASH_FPS];
    struct rng rng;
    (void)state;
    rng_seed(&rng, 3);
    for (unsigned n = 0; n < 2000; n++) {
        unsigned points = (unsigned)rng_below(&rng, SEPHASH_FPS + 1), from = 0, to = 0;
        unsigned entries = (unsigned)rng_below(&rng, 65536), err = (unsigned)rng_below(&rng, 65536);
        for (unsigned i = 0; i < SEPHASH_FPS; i++)
            table[i] = (uint16_t)rng_next(&rng);
        for (unsigned plain = 0; plain < 2; plain++) {
            sephash_table_find(plain, table, points, err, entries, n % SEPHASH_FPS, &from, &to);
            assert_true(from <= to && to <= entries);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_entry_is_in_the_range_of_its_fp),
        cmocka_unit_test(random_keys_take_few_points_and_short_ranges),
        cmocka_unit_test(any_table_gives_a_range_within_the_segment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
