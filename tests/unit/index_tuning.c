/* Tuning as text: what is taken, what is refused, and what the refusal says. */
#include "index/index.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

enum { ROWS, SPAN, FLAG, PARAMS };
static const struct tuning_param params[] = {
    [ROWS] = {"rows", "rows of a table", 1024, 1 << 20, 4096},
    [SPAN] = {"span", "rows that a lock is for", 2, 340, 16},
    [FLAG] = {"sp", "whether it is so", 0, 1, 1},
    {NULL, NULL, 0, 0, 0},
};

static void expect(const char *text, uint64_t rows, uint64_t span, uint64_t flag)
{
    uint64_t value[TUNING_MAX] = {0};
    assert_int_equal(tuning_parse("x", params, text, value), FAR_OK);
    assert_int_equal(value[ROWS], rows);
    assert_int_equal(value[SPAN], span);
    assert_int_equal(value[FLAG], flag);
}

static void expect_refused(const struct tuning_param *table, const char *text, const char *detail)
{
    uint64_t value[TUNING_MAX];
    for (unsigned i = 0; i < TUNING_MAX; i++)
        value[i] = 7 + i;
    err_begin();
    assert_int_equal(err_end(tuning_parse("x", table, text, value)), FAR_INVALID);
    assert_string_equal(far_error_detail(), detail);
    for (unsigned i = 0; i < TUNING_MAX; i++)
        assert_int_equal(value[i], 7 + i);
}

static void names_are_found_in_any_order(void **state)
{
    (void)state;
    expect(NULL, 4096, 16, 1);
    expect("", 4096, 16, 1);
    expect("span=2", 4096, 2, 1);
    expect("sp=0&rows=1024", 1024, 16, 0);
    expect("span=340&sp=1&rows=1048576", 1048576, 340, 1);
    expect("rows=64k&span=007", 65536, 7, 1);
    expect("rows=1M", 1048576, 16, 1);
    expect("rows=1.5k", 1536, 16, 1);
    expect("rows=0000000000000000000000000002000", 2000, 16, 1);
}

static void what_is_not_understood_is_refused(void **state)
{
#define KNOWN " (known: rows=1k..1m, span=2..340, sp=0..1)"
    static const struct {
        const char *text, *detail;
    } bad[] = {
        {"row=2000", "index x: unknown tuning 'row'" KNOWN},
        {"rowss=2000", "index x: unknown tuning 'rowss'" KNOWN},
        {"ROWS=2000", "index x: unknown tuning 'ROWS'" KNOWN},
        {" rows=2000", "index x: unknown tuning ' rows'" KNOWN},
        {"=2000", "index x: unknown tuning ''" KNOWN},
        {"span=2&no-such-name-that-goes-on-and-on-and-on-and-on=1",
         "index x: unknown tuning 'no-such-name-that-goes-on-and-on-and-on-'" KNOWN},
        {"span=2&sp=1&span=2", "index x: tuning 'span' is given twice"},
        {"rows", "index x: tuning 'rows' has no '='"},
        {"&rows=2000", "index x: tuning '' has no '='"},
        {"rows=2000&", "index x: tuning '' has no '='"},
        {"rows=2000&&span=2", "index x: tuning '' has no '='"},
        {"rows=", "index x: tuning 'rows' takes a number from 1k to 1m, not ''"},
        {"rows=1023", "index x: tuning 'rows' takes a number from 1k to 1m, not '1023'"},
        {"rows=1048577", "index x: tuning 'rows' takes a number from 1k to 1m, not '1048577'"},
        {"span=1", "index x: tuning 'span' takes a number from 2 to 340, not '1'"},
        {"span=341", "index x: tuning 'span' takes a number from 2 to 340, not '341'"},
        {"span=-2", "index x: tuning 'span' takes a number from 2 to 340, not '-2'"},
        {"span=0x10", "index x: tuning 'span' takes a number from 2 to 340, not '0x10'"},
        {"span=2 ", "index x: tuning 'span' takes a number from 2 to 340, not '2 '"},
        {"span==2", "index x: tuning 'span' takes a number from 2 to 340, not '=2'"},
        {"span=2,sp=1", "index x: tuning 'span' takes a number from 2 to 340, not '2,sp=1'"},
        {"span=18446744073709551618", /* 2^64 + 2 */
         "index x: tuning 'span' takes a number from 2 to 340, not '18446744073709551618'"},
        {"span=00000000000000000000000000000000000000000000000002",
         "index x: tuning 'span' takes a number from 2 to 340, not "
         "'0000000000000000000000000000000000000000'"},
    };
    (void)state;
    for (unsigned i = 0; i < LEN(bad); i++)
        expect_refused(params, bad[i].text, bad[i].detail);
}

static void an_index_without_parameters_takes_none(void **state)
{
    uint64_t value[TUNING_MAX];
    char text[FAR_TUNING_MAX + 1] = "before";

    (void)state;
    assert_int_equal(tuning_count(NULL), 0);
    assert_int_equal(tuning_parse("x", NULL, NULL, value), FAR_OK);
    assert_int_equal(tuning_parse("x", NULL, "", value), FAR_OK);
    expect_refused(NULL, "rows=1", "index x: unknown tuning 'rows' (known: none)");
    tuning_text(NULL, value, text);
    assert_string_equal(text, "");
}

static void values_become_text_that_can_be_read_again(void **state)
{
    uint64_t value[TUNING_MAX] = {65536, 2, 0}, again[TUNING_MAX] = {0};
    char text[FAR_TUNING_MAX + 1];

    (void)state;
    tuning_text(params, value, text);
    assert_string_equal(text, "rows=65536&span=2&sp=0");
    assert_int_equal(tuning_parse("x", params, text, again), FAR_OK);
    assert_memory_equal(again, value, PARAMS * sizeof *value);
}

/* Of every index that there is: its defaults are in range, its smallest geometry is understood, and
 * its text has room whatever its numbers are. */
static void every_index_has_a_sound_table(void **state)
{
    const struct index_ops *ops = NULL;

    (void)state;
    for (unsigned i = 0; (ops = index_at(i)) != NULL; i++) {
        uint64_t value[TUNING_MAX], most[TUNING_MAX];
        char text[FAR_TUNING_MAX + 1];
        unsigned count = tuning_count(ops->tuning);
        assert_true(count <= TUNING_MAX);
        for (unsigned k = 0; k < count; k++) {
            const struct tuning_param *p = &ops->tuning[k];
            assert_true(p->name[0] != '\0' && p->meaning && p->meaning[0] != '\0');
            assert_null(strpbrk(p->name, "=& '"));
            assert_true(p->least <= p->usual && p->usual <= p->most);
            most[k] = UINT64_MAX;
        }
        tuning_text(ops->tuning, most, text); /* asserts that there is room */
        assert_int_equal(tuning_parse(ops->name, ops->tuning, ops->smallest, value), FAR_OK);
        assert_string_equal(tuning_smallest(ops->name), ops->smallest);
        assert_string_equal(tuning_varied(ops->name, 0), ops->smallest);
        unsigned varied = 0;
        for (; ops->varied && ops->varied[varied]; varied++) {
            const char *other = tuning_varied(ops->name, varied + 1);
            assert_string_equal(other, ops->varied[varied]);
            assert_int_equal(tuning_parse(ops->name, ops->tuning, other, value), FAR_OK);
        }
        assert_true(varied > 0);
        assert_string_equal(tuning_varied(ops->name, varied + 1), ops->smallest);
    }
    assert_null(tuning_smallest("none"));
    assert_null(tuning_varied("none", 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_in_any_order),
        cmocka_unit_test(what_is_not_understood_is_refused),
        cmocka_unit_test(an_index_without_parameters_takes_none),
        cmocka_unit_test(values_become_text_that_can_be_read_again),
        cmocka_unit_test(every_index_has_a_sound_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
