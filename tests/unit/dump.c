/* The format of dumps: what is written is read again, and nothing else is accepted. A dump that was
 * altered, cut off, or put together from others is refused, with the place. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/dump_read.h"
#include "cli/dump_write.h"

/* ---- dumps in memory ------------------------------------------------------------------------- */

struct image {
    char *bytes;
    size_t len;
};

struct sample {
    const char *key;
    size_t key_len;
    const char *value;
    size_t value_len;
};
#define BYTES(s) s, sizeof(s) - 1

static const struct sample first[] = {
    {BYTES("plain"), BYTES("value")},   {BYTES("empty"), BYTES("")},
    {BYTES("\0\xff\n"), BYTES("a\0b")}, {BYTES("gr\xc3\xbcn"), BYTES("tab\tquote\"backslash\\")},
    {BYTES("\xff"), BYTES("\xfe")},     {BYTES("\xff\xfe"), BYTES("\xfe\xff\xfe\xff")},
};
static const struct sample second[] = {{BYTES("k"), BYTES("v")}};
#define LEN(a) (sizeof(a) / sizeof((a)[0]))

static const struct dump_table tables[] = {
    {.name = "people", .index = "race", .tuning = "groups=85&depth=0"},
    {.name = "caf\xe9", .index = "chime", .tuning = ""},
    {.name = "nothing", .index = "shard", .tuning = "slots=64"},
};

static void add(struct dump_writer *w, const struct sample *s)
{
    struct dump_pair pair = {.key = (const unsigned char *)s->key,
                             .key_len = s->key_len,
                             .value = (const unsigned char *)s->value,
                             .value_len = s->value_len};
    assert_true(dump_add_pair(w, &pair));
}

/* Closes a file, and returns what it had. */
static struct image take(FILE *file)
{
    struct image image;
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    image.len = (size_t)ftell(file);
    image.bytes = malloc(image.len);
    rewind(file);
    assert_non_null(image.bytes);
    assert_int_equal(fread(image.bytes, 1, image.len, file), image.len);
    fclose(file);
    return image;
}

static struct image make(bool json)
{
    struct dump_writer w;
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_true(dump_begin(&w, file, json));
    assert_true(dump_add_table(&w, &tables[0]));
    for (size_t i = 0; i < LEN(first); i++)
        add(&w, &first[i]);
    assert_true(dump_add_table(&w, &tables[1]));
    add(&w, &second[0]);
    assert_true(dump_add_table(&w, &tables[2]));
    assert_true(dump_finish(&w));
    dump_writer_free(&w);
    return take(file);
}

/* What a reader has seen: a text with everything, for comparisons. */
struct seen {
    char *text;
    size_t len;
    char error[256];
};

static void note(FILE *out, const struct dump_record *r)
{
    struct dump_pair p;
    if (r->kind == DUMP_TABLE)
        fprintf(out, "table %s %s %s\n", r->table->name, r->table->index, r->table->tuning);
    for (size_t pos = 0; r->kind == DUMP_PAIRS && dump_pair_next(r->pairs, r->len, &pos, &p);) {
        fprintf(out, "%zu %zu ", p.key_len, p.value_len);
        fwrite(p.key, 1, p.key_len, out);
        fwrite(p.value, 1, p.value_len, out);
    }
}

/* True if all was read up to the end. */
static bool read_all(const char *bytes, size_t len, struct seen *seen)
{
    /* A copy that ends with the mapping's last byte: a sanitizer sees what is read behind it. */
    char *copy = malloc(len + 1);
    memcpy(copy, bytes, len);
    FILE *file = len > 0 ? fmemopen(copy, len, "r") : fopen("/dev/null", "r");
    struct dump_reader r;
    struct dump_record record = {.kind = DUMP_TABLE};
    *seen = (struct seen){.text = NULL};
    FILE *out = open_memstream(&seen->text, &seen->len);
    assert_non_null(file);
    bool good = dump_open(&r, file);
    while (good && record.kind != DUMP_END) {
        good = dump_read(&r, &record);
        if (good)
            note(out, &record);
    }
    snprintf(seen->error, sizeof seen->error, "%s", r.error);
    dump_reader_free(&r);
    fclose(file);
    fclose(out);
    free(copy);
    return good;
}

static void expect_refused(const char *bytes, size_t len, const struct seen *whole)
{
    struct seen seen;
    assert_false(read_all(bytes, len, &seen));
    assert_non_null(strstr(seen.error, ", at byte "));
    /* What was handed out before is what was written. */
    assert_true(seen.len <= whole->len && memcmp(seen.text, whole->text, seen.len) == 0);
    free(seen.text);
}

static void expect_error(const char *bytes, size_t len, const char *error)
{
    struct seen seen;
    assert_false(read_all(bytes, len, &seen));
    if (!strstr(seen.error, error))
        fail_msg("'%s' does not say '%s'", seen.error, error);
    free(seen.text);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void both_kinds_of_dump_have_the_same_contents(void **state)
{
    (void)state;
    struct image binary = make(false), json = make(true);
    struct seen from_binary, from_json;
    assert_true(read_all(binary.bytes, binary.len, &from_binary));
    assert_true(read_all(json.bytes, json.len, &from_json));
    assert_int_equal(from_binary.len, from_json.len);
    assert_memory_equal(from_binary.text, from_json.text, from_json.len);
    assert_non_null(strstr(from_json.text, "table people race groups=85&depth=0\n5 5 plainvalue"));
    assert_non_null(memmem(from_json.text, from_json.len, BYTES("table caf\xe9 chime \n")));
    free(from_binary.text);
    free(from_json.text);
    free(binary.bytes);
    free(json.bytes);
}

static void a_dump_with_any_bit_changed_is_refused(void **state)
{
    (void)state;
    struct image image = make(false);
    struct seen whole;
    assert_true(read_all(image.bytes, image.len, &whole));
    for (size_t i = 0; i < 8 * image.len; i++) {
        image.bytes[i / 8] ^= (char)(1 << i % 8);
        expect_refused(image.bytes, image.len, &whole);
        image.bytes[i / 8] ^= (char)(1 << i % 8);
    }
    free(whole.text);
    free(image.bytes);
}

static void a_dump_that_is_cut_off_anywhere_is_refused(void **state)
{
    (void)state;
    for (int json = 0; json < 2; json++) {
        struct image image = make(json);
        struct seen whole;
        assert_true(read_all(image.bytes, image.len, &whole));
        /* Of JSON lines, the last newline may be missing. */
        for (size_t len = 0; len < image.len - (size_t)json; len++)
            expect_refused(image.bytes, len, &whole);
        free(whole.text);
        free(image.bytes);
    }
}

static void changed_lines_do_no_harm(void **state)
{
    (void)state;
    struct image image = make(true);
    for (size_t i = 0; i < 8 * image.len; i++) {
        struct seen seen;
        image.bytes[i / 8] ^= (char)(1 << i % 8);
        if (!read_all(image.bytes, image.len, &seen))
            assert_non_null(strstr(seen.error, ", at byte "));
        free(seen.text);
        image.bytes[i / 8] ^= (char)(1 << i % 8);
    }
    free(image.bytes);
}

/* The place behind record n. */
static size_t behind(const struct image *image, unsigned n)
{
    size_t at = DUMP_MAGIC_BYTES;
    for (unsigned i = 0; i <= n; i++) {
        struct dump_head head;
        memcpy(&head, image->bytes + at, sizeof head);
        at += sizeof head + head.len;
    }
    return at;
}

static void records_that_were_left_out_or_moved_are_noticed(void **state)
{
    (void)state;
    struct image image = make(false);
    size_t one = behind(&image, 0), two = behind(&image, 1), three = behind(&image, 2);
    struct seen whole;
    assert_true(read_all(image.bytes, image.len, &whole));
    char *other = malloc(2 * image.len);

    /* Record 1 is left out. */
    memcpy(other, image.bytes, one);
    memcpy(other + one, image.bytes + two, image.len - two);
    expect_refused(other, image.len - (two - one), &whole);
    expect_error(other, image.len - (two - one), "record 1, at byte");
    /* Records 1 and 2 have changed places. */
    memcpy(other, image.bytes, one);
    memcpy(other + one, image.bytes + two, three - two);
    memcpy(other + one + (three - two), image.bytes + one, two - one);
    memcpy(other + three, image.bytes + three, image.len - three);
    expect_refused(other, image.len, &whole);
    /* Record 1 is there twice. */
    memcpy(other, image.bytes, two);
    memcpy(other + two, image.bytes + one, image.len - one);
    expect_refused(other, image.len + (two - one), &whole);
    /* Something follows. */
    memcpy(other, image.bytes, image.len);
    memcpy(other + image.len, image.bytes, image.len);
    expect_error(other, 2 * image.len, "more bytes follow the end record");
    free(other);
    free(whole.text);
    free(image.bytes);
}

static void many_pairs_make_several_blocks(void **state)
{
    (void)state;
    enum { PAIRS = 3000, VALUE = 1000 };
    static unsigned char value[FAR_VALUE_MAX];
    for (int json = 0; json < 2; json++) {
        struct dump_writer w;
        FILE *file = tmpfile();
        assert_non_null(file);
        assert_true(dump_begin(&w, file, json) && dump_add_table(&w, &tables[0]));
        for (unsigned i = 0; i < PAIRS; i++) {
            struct dump_pair pair = {.key = (const unsigned char *)&i,
                                     .key_len = sizeof i,
                                     .value = value,
                                     .value_len = i == PAIRS / 2 ? FAR_VALUE_MAX : VALUE};
            memset(value, (int)i, VALUE);
            assert_true(dump_add_pair(&w, &pair));
        }
        assert_true(dump_finish(&w));
        dump_writer_free(&w);
        struct image image = take(file);

        struct dump_reader r;
        struct dump_record record;
        struct dump_pair p;
        unsigned next = 0, blocks = 0;
        file = fmemopen(image.bytes, image.len, "r");
        assert_true(dump_open(&r, file) && dump_read(&r, &record));
        assert_int_equal(record.kind, DUMP_TABLE);
        for (uint64_t last = record.last; dump_read(&r, &record) && record.kind == DUMP_PAIRS;) {
            assert_true(record.number == last + 1 && record.last >= record.number);
            last = record.last;
            blocks++;
            for (size_t pos = 0; dump_pair_next(record.pairs, record.len, &pos, &p); next++) {
                assert_memory_equal(p.key, &next, sizeof next);
                assert_int_equal(p.value[VALUE - 1], next & 0xff);
            }
        }
        assert_int_equal(record.kind, DUMP_END);
        assert_int_equal(next, PAIRS);
        assert_true(blocks > 5);
        assert_int_equal(r.totals.pairs, PAIRS);
        dump_reader_free(&r);
        fclose(file);
        free(image.bytes);
    }
}

/* A dump whose checksums are right, but not what is in it. */
static void expect_invalid(struct dump_head head, const void *payload, const char *error)
{
    char bytes[DUMP_MAGIC_BYTES + sizeof head + 256] = DUMP_MAGIC;
    size_t len = head.len;
    head.payload = dump_payload_sum(payload, len <= 256 ? len : 0);
    head.head_sum = dump_head_sum(&head, dump_first_sum());
    memcpy(bytes + DUMP_MAGIC_BYTES, &head, sizeof head);
    if (len <= 256)
        memcpy(bytes + DUMP_MAGIC_BYTES + sizeof head, payload, len);
    expect_error(bytes, sizeof bytes, error);
}

static void contents_are_judged_even_if_the_checksums_are_right(void **state)
{
    (void)state;
    static const char zeros[256];
    struct dump_pair_head pair = {.key_len = 1};
    unsigned char pairs[sizeof pair + 1] = {0};
    struct dump_table_head table = {.name_len = 3};
    char tables_payload[sizeof table + 3];
    struct dump_totals totals = {.tables = 1};

    memcpy(pairs, &pair, sizeof pair);
    expect_invalid((struct dump_head){.kind = DUMP_PAIRS, .count = 1, .len = sizeof pairs}, pairs,
                   "pairs without a table");
    expect_invalid((struct dump_head){.kind = DUMP_PAIRS, .count = 2, .len = sizeof pairs}, pairs,
                   "its pairs are not valid");
    expect_invalid((struct dump_head){.kind = DUMP_PAIRS, .count = 1, .len = sizeof pair}, pairs,
                   "its pairs are not valid");
    expect_invalid((struct dump_head){.kind = DUMP_PAIRS, .count = 1, .len = sizeof pair}, zeros,
                   "its pairs are not valid");
    expect_invalid((struct dump_head){.kind = DUMP_PAIRS, .count = 0, .len = 0}, zeros,
                   "its pairs are not valid");
    pair.value_len = UINT32_MAX;
    memcpy(pairs, &pair, sizeof pair);
    expect_invalid((struct dump_head){.kind = DUMP_PAIRS, .count = 1, .len = sizeof pairs}, pairs,
                   "its pairs are not valid");

    memcpy(tables_payload, &table, sizeof table);
    memcpy(tables_payload + sizeof table, "a\0b", 3);
    expect_invalid((struct dump_head){.kind = DUMP_TABLE, .len = sizeof tables_payload},
                   tables_payload, "a table record is not valid");
    expect_invalid((struct dump_head){.kind = DUMP_TABLE, .len = 4}, zeros,
                   "a table record is not valid");
    expect_invalid((struct dump_head){.kind = DUMP_TABLE, .len = 3}, zeros,
                   "a table record is too short");

    expect_invalid((struct dump_head){.kind = DUMP_END, .len = sizeof totals}, &totals,
                   "the end record counts 1 tables and 0 pairs, but there are 0 and 0");
    expect_invalid((struct dump_head){.kind = DUMP_END, .len = 8}, &totals,
                   "the end record is not valid");
    expect_invalid((struct dump_head){.kind = 4, .len = 0}, zeros, "a record of kind 4");
    expect_invalid((struct dump_head){.kind = DUMP_TABLE, .number = 1}, zeros,
                   "its head is not valid");
    expect_invalid((struct dump_head){.kind = DUMP_PAIRS, .len = DUMP_PAYLOAD_MAX + 1}, zeros,
                   "its head is not valid");
}

static void what_is_no_dump_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "there is nothing"},
        {"\n \n", "there is nothing"},
        {"hello", "not a dump of farside"},
        {"farside dump 2\n", "not a dump of farside"}, /* the NUL is missing */
        {"{\"farside_dump\":2}", "another version than 1"},
        {"{\"farside_dump\":1,\"x\":1}", "line 1, at byte 0: the first line has not"},
        {"{}", "not a table, a pair or the end"},
        {"{", "not an object of JSON"},
        {"[1]", "not a dump of farside"},
        {" [1]", "not an object of JSON"},
        {"{\"key\":\"a\",\"value\":\"b\"}", "a pair before the first table"},
        {"{\"table\":\"\"}", "the name of a table is empty or too long"},
        {"{\"table\":5}", "the name of a table is empty or too long"},
        {"{\"table\":\"a\\u0000b\"}", "the name of a table has a NUL"},
        {"{\"table\":\"a\",\"index\":5}", "the index or the tuning of a table is not a text"},
        {"{\"table\":\"a\",\"colour\":5}", "an unknown member"},
        {"{\"table\":\"a\",\"table\":\"b\"}", "not an object of JSON"},
        {"{\"table\":\"a\"}\n{\"farside_dump\":1}",
         "line 2, at byte 14: \"farside_dump\" may only"},
        {"{\"table\":\"a\"}\n{\"key\":\"\",\"value\":\"\"}",
         "line 2, at byte 14: a key is missing"},
        {"{\"table\":\"a\"}\n{\"key\":\"a\"}", "a value is missing or too long"},
        {"{\"table\":\"a\"}\n{\"key\":\"a\",\"value\":1}", "a value is missing or too long"},
        {"{\"table\":\"a\"}\n{\"key\":\"a\",\"value\":\"\",\"x\":1}", "an unknown member"},
        {"{\"table\":\"a\"}\n{\"key\":\"a\",\"key64\":\"YQ==\",\"value\":\"\"}",
         "a key is missing"},
        {"{\"table\":\"a\"}\n{\"key64\":\"YQ=\",\"value\":\"\"}", "in base64 is not valid"},
        {"{\"table\":\"a\"}\n{\"key64\":\"YR==\",\"value\":\"\"}", "in base64 is not valid"},
        {"{\"table\":\"a\"}\n{\"key64\":\"Y===\",\"value\":\"\"}", "in base64 is not valid"},
        {"{\"table\":\"a\"}\n{\"key64\":\"=\",\"value\":\"\"}", "in base64 is not valid"},
        {"{\"table\":\"a\"}\n{\"key64\":\"YQ==YQ==\",\"value\":\"\"}", "in base64 is not valid"},
        {"{\"farside_dump\":1}\n{\"table\":\"a\"}\n", "without an end line: it is cut off"},
        {"{\"end\":true,\"tables\":1,\"pairs\":0}",
         "the end counts 1 tables and 0 pairs, but there"},
        {"{\"end\":true,\"tables\":0,\"pairs\":-1}", "the end has not"},
        {"{\"end\":true,\"tables\":0,\"pairs\":0}\n{\"table\":\"a\"}", "more lines follow the end"},
    };
    for (size_t i = 0; i < LEN(cases); i++)
        expect_error(cases[i].text, strlen(cases[i].text), cases[i].error);
    expect_error("farside dump 2\n", DUMP_MAGIC_BYTES, "another version than 1");
}

static void lines_of_people_need_no_frame(void **state)
{
    (void)state;
    static const char text[] = "\n{\"table\": \"a\"}\n\n"
                               "{\"value\": \"1\", \"key\": \"x\"}\n"
                               "  {\"key64\": \"/+8=\", \"value64\": \"\"}";
    struct seen seen;
    assert_true(read_all(text, strlen(text), &seen));
    assert_string_equal(seen.text, "table a  \n1 1 x12 0 \xff\xef");
    free(seen.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_kinds_of_dump_have_the_same_contents),
        cmocka_unit_test(a_dump_with_any_bit_changed_is_refused),
        cmocka_unit_test(a_dump_that_is_cut_off_anywhere_is_refused),
        cmocka_unit_test(changed_lines_do_no_harm),
        cmocka_unit_test(records_that_were_left_out_or_moved_are_noticed),
        cmocka_unit_test(many_pairs_make_several_blocks),
        cmocka_unit_test(contents_are_judged_even_if_the_checksums_are_right),
        cmocka_unit_test(what_is_no_dump_is_refused),
        cmocka_unit_test(lines_of_people_need_no_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
