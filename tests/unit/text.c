/* Sizes, numbers and pool URIs: what is taken, what is refused, and what the refusal says. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "farside.h"

#define K      UINT64_C(1024)
#define M      (K * K)
#define G      (K * M)
#define T      (K * G)
#define LEN(a) (sizeof(a) / sizeof((a)[0]))

static void sizes_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},
        {"64", 64},
        {"007", 7},
        {"64k", 64 * K},
        {"64K", 64 * K},
        {"3m", 3 * M},
        {"3M", 3 * M},
        {"1.5g", G + G / 2},
        {"1.50G", G + G / 2},
        {"0.25t", T / 4},
        {"2T", 2 * T},
        {"0k", 0},
        {"0.1k", 102}, /* 102.4 */
        {"1.000000000000000000k", K},
        {"0.999999999999999999t", T - 1},
        {"18446744073709551615", UINT64_MAX},
        {"16777215t", UINT64_MAX - T + 1},
        {"16777215.999999999999999999t", UINT64_MAX},
    };
    for (size_t i = 0; i < LEN(cases); i++) {
        uint64_t bytes = 12345;
        assert_true(text_size(cases[i].text, &bytes));
        assert_true(bytes == cases[i].bytes);
    }
}

static void what_is_no_size_is_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        " ",
        "k",
        "-1",
        "-0",
        "+1",
        "1x",
        "1kk",
        "1kb",
        "1k ",
        " 1k",
        "1 k",
        "\t1",
        "1\n",
        "nan",
        "NaN",
        "inf",
        "0x10",
        "0x",
        "1e3",
        "1.5",
        "1.",
        "1.k",
        ".5g",
        ".",
        "1..5g",
        "1.5.5g",
        "1.-5g",
        "1,5g",
        "16777216t",
        "99999999999999999999",
        "18446744073709551616",
        "18446744073709551615k",
        "0.1234567890123456789k",
        "1.99999999999999999999g",
        "1p",
        "\xd9\xa1",
    };
    for (size_t i = 0; i < LEN(cases); i++) {
        uint64_t bytes = 12345;
        assert_false(text_size(cases[i], &bytes));
        assert_true(bytes == 12345);
    }
}

static void sizes_are_written(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0"},
        {1, "1"},
        {1023, "1023"},
        {K, "1k"},
        {K + 1, "1025"},
        {1536 * K, "1536k"},
        {5 * G, "5g"},
        {2048 * T, "2048t"},
        {UINT64_MAX, "18446744073709551615"},
    };
    (void)state;
    for (size_t i = 0; i < LEN(cases); i++) {
        char text[TEXT_SIZE_BYTES];
        uint64_t bytes = 0;
        assert_string_equal(text_of_size(cases[i].bytes, text), cases[i].text);
        assert_true(text_size(text, &bytes) && bytes == cases[i].bytes);
    }
}

static void what_is_not_utf8_is_escaped(void **state)
{
    static const struct {
        const char *text, *copy;
    } cases[] = {
        {"", ""},
        {"plain", "plain"},
        {"\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf",
         "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf"},
        {"\xff", "\\xff"},
        {"a\x80z", "a\\x80z"},
        {"\xc3", "\\xc3"},                            /* cut off */
        {"\xe2\x82", "\\xe2\\x82"},                   /* cut off */
        {"\xc3\xc3\xa4", "\\xc3\xc3\xa4"},            /* cut off, then whole */
        {"\xc0\xaf", "\\xc0\\xaf"},                   /* too long */
        {"\xe0\x80\xaf", "\\xe0\\x80\\xaf"},          /* too long */
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},          /* a surrogate */
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, /* past the last */
        {"\xf8\x88\x80\x80\x80", "\\xf8\\x88\\x80\\x80\\x80"},
    };
    (void)state;
    for (size_t i = 0; i < LEN(cases); i++) {
        char copy[64];
        assert_true(text_utf8(cases[i].text, copy) == (strcmp(cases[i].text, cases[i].copy) == 0));
        assert_string_equal(copy, cases[i].copy);
    }
}

static void numbers_are_read_within_their_range(void **state)
{
    (void)state;
    uint64_t value = 0;
    assert_true(text_number("0", 0, 10, &value) && value == 0);
    assert_true(text_number("10", 0, 10, &value) && value == 10);
    assert_true(text_number("0010", 10, 10, &value) && value == 10);
    assert_true(text_number("18446744073709551615", 0, UINT64_MAX, &value) && value == UINT64_MAX);
    value = 12345;
    assert_false(text_number("11", 0, 10, &value));
    assert_false(text_number("4", 5, 10, &value));
    assert_false(text_number("18446744073709551616", 0, UINT64_MAX, &value));
    assert_false(text_number("184467440737095516150", 0, UINT64_MAX, &value));
    static const char *const cases[] = {"",    " ",  "-1", "+1",  " 1",  "1 ", "1k",
                                        "1.0", "1x", "x",  "0x1", "1e1", "nan"};
    for (size_t i = 0; i < LEN(cases); i++)
        assert_false(text_number(cases[i], 0, UINT64_MAX, &value));
    assert_true(value == 12345);
}

static void a_uri_may_be_a_scheme_alone(void **state)
{
    (void)state;
    struct uri uri;
    assert_int_equal(uri_parse("mem:", &uri), FAR_OK);
    assert_string_equal(uri.scheme, "mem");
    assert_string_equal(uri.rest, "");
    assert_int_equal(uri.options, 0);
    assert_null(uri_option(&uri, "size"));
    assert_int_equal(uri_finish(&uri), FAR_OK);
}

static void options_are_found_by_name(void **state)
{
    (void)state;
    struct uri uri;
    assert_int_equal(uri_parse("mem:?size=1g&nodes=3&empty=&eq=a=b?c:d", &uri), FAR_OK);
    assert_string_equal(uri.scheme, "mem");
    assert_string_equal(uri.rest, "");
    assert_int_equal(uri.options, 4);
    assert_string_equal(uri_option(&uri, "size"), "1g");
    assert_string_equal(uri_option(&uri, "nodes"), "3");
    assert_string_equal(uri_option(&uri, "empty"), "");
    assert_string_equal(uri_option(&uri, "eq"), "a=b?c:d");
    assert_null(uri_option(&uri, "siz"));
    assert_null(uri_option(&uri, "sizes"));
    assert_int_equal(uri_finish(&uri), FAR_OK);
}

static void the_rest_is_kept_as_it_is(void **state)
{
    (void)state;
    struct uri uri;
    assert_int_equal(uri_parse("ucx://a:7000,b:7000?x=y", &uri), FAR_OK);
    assert_string_equal(uri.scheme, "ucx");
    assert_string_equal(uri.rest, "//a:7000,b:7000");
    assert_string_equal(uri_option(&uri, "x"), "y");
    assert_int_equal(uri_parse("shm:a=b&c%20d", &uri), FAR_OK);
    assert_string_equal(uri.rest, "a=b&c%20d");
    assert_int_equal(uri.options, 0);
}

static void a_malformed_uri_says_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text, *detail;
    } cases[] = {
        {"", "no ':' after the scheme in ''"},
        {"mem", "no ':' after the scheme in 'mem'"},
        {"mem?a=b:c", "no ':' after the scheme in 'mem?a=b:c'"},
        {":", "no scheme before the ':' in ':'"},
        {"://a?x=y", "no scheme before the ':' in '://a?x=y'"},
        {"mem:?", "option '' has no '='"},
        {"mem:?size", "option 'size' has no '='"},
        {"mem:?size=1g&nodes", "option 'nodes' has no '='"},
        {"mem:?size=1g&", "option '' has no '='"},
        {"mem:?&size=1g", "option '' has no '='"},
        {"mem:?a=1&&b=2", "option '' has no '='"},
        {"mem:?=1g", "option '=1g' has no name"},
        {"mem:?size=1g&size=2g", "option 'size' is given twice"},
        {"mem:?a=1&ab=2&a=1", "option 'a' is given twice"},
    };
    for (size_t i = 0; i < LEN(cases); i++) {
        struct uri uri, before;
        memset(&uri, 0x5a, sizeof uri);
        memset(&before, 0x5a, sizeof before);
        assert_int_equal(uri_parse(cases[i].text, &uri), FAR_BAD_URI);
        assert_string_equal(far_error_detail(), cases[i].detail);
        assert_memory_equal(&uri, &before, sizeof uri);
    }
}

static void options_are_limited_in_number(void **state)
{
    (void)state;
    struct uri uri;
    char text[URI_TEXT_MAX] = "mem:";
    for (int i = 0; i < URI_OPTIONS_MAX; i++) {
        size_t len = strlen(text);
        snprintf(text + len, sizeof text - len, "%co%d=%d", i == 0 ? '?' : '&', i, i);
    }
    assert_int_equal(uri_parse(text, &uri), FAR_OK);
    assert_int_equal(uri.options, URI_OPTIONS_MAX);
    assert_string_equal(uri_option(&uri, "o15"), "15");
    strcat(text, "&one=more");
    assert_int_equal(uri_parse(text, &uri), FAR_BAD_URI);
    assert_string_equal(far_error_detail(), "the URI has more than 16 options");
}

static void a_uri_is_limited_in_length(void **state)
{
    (void)state;
    struct uri uri;
    char text[URI_TEXT_MAX + 1] = "shm:";
    memset(text + 4, 'x', URI_TEXT_MAX - 5);
    assert_int_equal(strlen(text), URI_TEXT_MAX - 1);
    assert_int_equal(uri_parse(text, &uri), FAR_OK);
    assert_string_equal(uri.rest, text + 4);
    text[URI_TEXT_MAX - 1] = 'x';
    assert_int_equal(uri_parse(text, &uri), FAR_BAD_URI);
    assert_string_equal(far_error_detail(), "the URI is longer than 1023 bytes");
}

static void sizes_and_numbers_of_options(void **state)
{
    (void)state;
    struct uri uri;
    uint64_t value = 0;
    assert_int_equal(uri_parse("mem:?size=1.5g&nodes=3&bad=1x", &uri), FAR_OK);
    assert_int_equal(uri_size(&uri, "size", 7, 0, 2 * G, &value), FAR_OK);
    assert_true(value == G + G / 2);
    assert_int_equal(uri_size(&uri, "size", 7, value, value, &value), FAR_OK);
    assert_int_equal(uri_number(&uri, "nodes", 1, 3, 3, &value), FAR_OK);
    assert_true(value == 3);
    /* The default is the caller's own: it need not lie in the range for what is typed. */
    assert_int_equal(uri_size(&uri, "absent", 7, 8, 9, &value), FAR_OK);
    assert_true(value == 7);
    assert_int_equal(uri_number(&uri, "absent", 5, 8, 9, &value), FAR_OK);
    assert_true(value == 5);

    value = 12345;
    assert_int_equal(uri_size(&uri, "bad", 7, 0, 9, &value), FAR_BAD_URI);
    assert_string_equal(
        far_error_detail(),
        "option 'bad' takes a size in bytes from 0 to 9 (with k, m, g or t for powers "
        "of 1024), not '1x'");
    assert_int_equal(uri_size(&uri, "size", 7, 4096, M, &value), FAR_BAD_URI);
    assert_string_equal(far_error_detail(),
                        "option 'size' takes a size in bytes from 4k to 1m (with k, m, g or t for "
                        "powers of 1024), not '1.5g'");
    assert_int_equal(uri_size(&uri, "size", 7, 2 * G, 3 * G, &value), FAR_BAD_URI);
    assert_int_equal(uri_number(&uri, "bad", 7, 1, 64, &value), FAR_BAD_URI);
    assert_string_equal(far_error_detail(), "option 'bad' takes a number from 1 to 64, not '1x'");
    assert_int_equal(uri_number(&uri, "nodes", 7, 4, 64, &value), FAR_BAD_URI);
    assert_int_equal(uri_number(&uri, "nodes", 7, 1, 2, &value), FAR_BAD_URI);
    assert_true(value == 12345);
}

static void an_option_nobody_asked_for_is_named(void **state)
{
    (void)state;
    struct uri uri;
    uint64_t value;
    assert_int_equal(uri_parse("mem:?size=1g&noodles=3&clients=4", &uri), FAR_OK);
    assert_int_equal(uri_finish(&uri), FAR_BAD_URI);
    assert_string_equal(far_error_detail(), "mem: has no option 'size'");
    assert_int_equal(uri_size(&uri, "size", 0, 0, UINT64_MAX, &value), FAR_OK);
    assert_int_equal(uri_number(&uri, "nodes", 1, 1, 64, &value), FAR_OK);
    assert_int_equal(uri_number(&uri, "clients", 1, 1, 64, &value), FAR_OK);
    assert_int_equal(uri_finish(&uri), FAR_BAD_URI);
    assert_string_equal(far_error_detail(), "mem: has no option 'noodles'");
    assert_non_null(uri_option(&uri, "noodles"));
    assert_int_equal(uri_finish(&uri), FAR_OK);
}

static void arbitrary_bytes_are_escaped_for_people(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *text;
    } cases[] = {
        {"", 0, ""},
        {"a b~", 4, "a b~"},
        {"\\\t\n\r", 4, "\\\\\\t\\n\\r"},
        {"a\0b\x1b[m\x7f", 7, "a\\x00b\\x1b[m\\x7f"},
        {"\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xc2\x9b", 2, "\\xc2\\x9b"},          /* a control character */
        {"\xe2\x82\xac", 2, "\\xe2\\x82"},      /* cut off */
        {"\xff\xc0\x80", 3, "\\xff\\xc0\\x80"}, /* no UTF-8 */
    };
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64] = "", one[TEXT_ESCAPE_BYTES];
        for (size_t pos = 0; pos < cases[i].len;)
            strcat(text, text_escape(cases[i].bytes, cases[i].len, &pos, one));
        assert_string_equal(text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_read),
        cmocka_unit_test(what_is_no_size_is_refused),
        cmocka_unit_test(sizes_are_written),
        cmocka_unit_test(what_is_not_utf8_is_escaped),
        cmocka_unit_test(arbitrary_bytes_are_escaped_for_people),
        cmocka_unit_test(numbers_are_read_within_their_range),
        cmocka_unit_test(a_uri_may_be_a_scheme_alone),
        cmocka_unit_test(options_are_found_by_name),
        cmocka_unit_test(the_rest_is_kept_as_it_is),
        cmocka_unit_test(a_malformed_uri_says_what_is_wrong),
        cmocka_unit_test(options_are_limited_in_number),
        cmocka_unit_test(a_uri_is_limited_in_length),
        cmocka_unit_test(sizes_and_numbers_of_options),
        cmocka_unit_test(an_option_nobody_asked_for_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
