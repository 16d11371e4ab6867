/* Values in blocks and values inline in an index's own memory: they are delivered, asked about and
 * iterated over by the same functions, with the same limits. */
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static struct index_ops ops;
static struct index_table table = {.ops = &ops, .desc = {.name = "t"}};
static struct index_view view = {.table = &table};

static int setup(void **state)
{
    (void)state;
    ops = (struct index_ops){.name = "test"};
    return 0;
}

/* The same value twice: in a block, and beside a length in memory of its own. */
struct twice {
    struct slice from[2];
    uint64_t inline_words[16];
    struct store_rig r;
};

static void twice_open(struct twice *t, const char *value)
{
    struct block_ref block;
    size_t len = strlen(value);
    store_rig_open(&t->r, "mem:?size=4m", NULL, NULL, NULL);
    assert_int_equal(block_prepare(&t->r.session->op, 0, "key", 3, value, len, 0, &block), FAR_OK);
    assert_true(block_valid(block.image, size_class_bytes(block.size_class), block.generation));
    t->from[0] = index_block_value(block.image);
    memcpy(t->inline_words, value, len);
    assert_int_equal(
        index_inline_value(&view, t->inline_words, sizeof t->inline_words, len, &t->from[1]),
        FAR_OK);
}

static void values_are_delivered_alike(void **state)
{
    static const char *const values[] = {"", "v", "a value of some length"};
    (void)state;
    for (unsigned v = 0; v < sizeof values / sizeof *values; v++) {
        size_t len = strlen(values[v]);
        struct twice t;
        twice_open(&t, values[v]);
        for (unsigned i = 0; i < 2; i++) {
            char buf[64];
            assert_int_equal(t.from[i].len, len);
            for (size_t cap = 0; cap <= len + 1; cap++) {
                struct value_out out = {.buf = buf, .cap = cap, .len = 99};
                memset(buf, '#', sizeof buf);
                int rc = index_deliver(&view, t.from[i], &out);
                assert_int_equal(rc, cap < len ? FAR_TOO_SMALL : FAR_OK);
                assert_int_equal(out.len, len);
                if (rc == FAR_OK)
                    assert_memory_equal(buf, values[v], len);
                assert_int_equal(buf[rc == FAR_OK ? len : 0], '#');
            }
            struct value_out exists = {.buf = NULL, .cap = 0, .len = 99, .skip = true};
            assert_int_equal(index_deliver(&view, t.from[i], &exists), FAR_OK);
            assert_int_equal(exists.len, 99);
            struct value_out nowhere = {.buf = NULL, .cap = 0};
            assert_int_equal(index_deliver(&view, t.from[i], &nowhere),
                             len > 0 ? FAR_TOO_SMALL : FAR_OK);
        }
        store_rig_close(&t.r);
    }
}

/* Its bytes may not have been read. */
static void a_value_that_does_not_fit_is_not_looked_at(void **state)
{
    const void *volatile nowhere = (const void *)8; /* which the compiler does not see through */
    struct slice unread = {nowhere, 1000};
    char buf[999];
    struct value_out out = {.buf = buf, .cap = sizeof buf};
    (void)state;
    assert_int_equal(index_deliver(&view, unread, &out), FAR_TOO_SMALL);
    assert_int_equal(out.len, 1000);
    out.skip = true;
    assert_int_equal(index_deliver(&view, unread, &out), FAR_OK);
}

static void an_inline_value_ends_within_its_place(void **state)
{
    uint64_t place[3] = {0};
    (void)state;
    for (size_t room = 0; room <= sizeof place; room++) {
        for (size_t len = 0; len < 40; len++) {
            struct slice value = {NULL, 99};
            int rc = index_inline_value(&view, place, room, len, &value);
            assert_int_equal(rc, len <= room ? FAR_OK : FAR_CORRUPT);
            assert_true(value.data == (rc == FAR_OK ? place : NULL));
            assert_int_equal(value.len, rc == FAR_OK ? len : 99);
        }
    }
}

static unsigned asked;
static struct slice seen;

static enum change_action keep(struct change *change, struct slice old)
{
    (void)change;
    asked++;
    seen = old;
    return CHANGE_NOTHING;
}

/* Lengths that no store let in come from damaged memory, inline ones as any. */
static void a_length_that_cannot_be_is_damage(void **state)
{
    static char bytes[64];
    const struct {
        uint32_t key_max, value_max;
    } limits[] = {{0, 0}, {8, 8}, {16, 40}};
    (void)state;
    for (unsigned i = 0; i < sizeof limits / sizeof *limits; i++) {
        ops.key_max = limits[i].key_max;
        ops.value_max = limits[i].value_max;
        size_t key_most = limits[i].key_max ? limits[i].key_max : FAR_KEY_MAX;
        size_t most = limits[i].value_max ? limits[i].value_max : FAR_VALUE_MAX;
        assert_int_equal(index_key_max(&ops), key_most);
        assert_int_equal(index_value_max(&ops), most);
        struct value_out out = {.buf = bytes, .cap = 0, .len = 99};
        struct change change = {.absent = CHANGE_ASK, .present = CHANGE_ASK, .decide = keep};
        struct entries_out entries = {.buf = bytes, .cap = sizeof bytes, .keys_only = true};
        enum change_action action = CHANGE_STORE;
        bool full = false;
        asked = 0;

        assert_int_equal(index_deliver(&view, (struct slice){bytes, most + 1}, &out), FAR_CORRUPT);
        assert_int_equal(out.len, 99);
        assert_non_null(strstr(far_error_detail(), "'t'"));
        assert_int_equal(index_deliver(&view, (struct slice){bytes, most}, &out), FAR_TOO_SMALL);
        struct slice old = {bytes, most + 1};
        assert_int_equal(index_decide(&view, &change, old, &action), FAR_CORRUPT);
        assert_int_equal(asked, 0);
        old.len = most;
        assert_int_equal(index_decide(&view, &change, old, &action), FAR_OK);
        assert_int_equal(action, CHANGE_NOTHING);
        assert_true(asked == 1 && seen.data == bytes && seen.len == most);
        assert_int_equal(index_decide(&view, &change, (struct slice){NULL, 0}, &action), FAR_OK);
        assert_true(asked == 2 && seen.data == NULL);

        struct slice key = {bytes, 8}, value = {bytes, most + 1};
        assert_int_equal(index_add_entry(&view, &entries, key, value, &full), FAR_CORRUPT);
        value.len = most;
        key.len = key_most + 1;
        assert_int_equal(index_add_entry(&view, &entries, key, value, &full), FAR_CORRUPT);
        key.len = 0;
        assert_int_equal(index_add_entry(&view, &entries, key, value, &full), FAR_CORRUPT);
        assert_int_equal(entries.count, 0);
        key.len = 8;
        assert_int_equal(index_add_entry(&view, &entries, key, value, &full), FAR_OK);
        assert_true(!full && entries.count == 1);
        for (unsigned n = 0; n < 8 && !full; n++)
            assert_int_equal(index_add_entry(&view, &entries, key, value, &full), FAR_OK);
        assert_true(full && entries.count == 4);
    }
}

static enum far_decision store_much(void *arg, const void *old, size_t old_len, const void **value,
                                    size_t *value_len)
{
    (void)old;
    (void)old_len;
    *value = "0123456789";
    *value_len = *(size_t *)arg;
    return FAR_STORE;
}

/* An index that holds less than others says so in one place: every operation keeps to it. */
static void the_store_keeps_to_the_indexs_limits(void **state)
{
    struct store_rig r;
    char buf[16];
    size_t len = 0;
    (void)state;
    store_rig_open(&r, "mem:?size=4m", NULL, NULL, NULL);
    struct index_ops small = *r.table->index.ops;
    small.key_max = 4;
    small.value_max = 8;
    r.table->index.ops = &small;
    assert_int_equal(far_put(r.session, r.table, "four", 4, "12345678", 8), FAR_OK);
    assert_int_equal(far_put(r.session, r.table, "fives", 5, "1", 1), FAR_KEY_SIZE);
    assert_non_null(strstr(far_error_detail(), "1 to 4 bytes, not 5"));
    assert_int_equal(far_get(r.session, r.table, "fives", 5, buf, 16, &len), FAR_KEY_SIZE);
    assert_int_equal(far_delete(r.session, r.table, "fives", 5), FAR_KEY_SIZE);
    assert_int_equal(far_exists(r.session, r.table, "fives", 5), FAR_KEY_SIZE);
    assert_int_equal(far_put(r.session, r.table, "four", 4, "123456789", 9), FAR_VALUE_SIZE);
    assert_non_null(strstr(far_error_detail(), "0 to 8 bytes, not 9"));
    assert_int_equal(far_insert(r.session, r.table, "four", 4, "123456789", 9), FAR_VALUE_SIZE);
    assert_int_equal(far_update(r.session, r.table, "four", 4, "123456789", 9), FAR_VALUE_SIZE);
    size_t much = 9;
    assert_int_equal(far_modify(r.session, r.table, "four", 4, store_much, &much), FAR_VALUE_SIZE);
    assert_non_null(strstr(far_error_detail(), "0 to 8 bytes, not 9"));
    assert_int_equal(far_get(r.session, r.table, "four", 4, buf, 16, &len), FAR_OK);
    assert_int_equal(len, 8);
    much = 8;
    assert_int_equal(far_modify(r.session, r.table, "four", 4, store_much, &much), FAR_OK);
    assert_int_equal(far_get(r.session, r.table, "four", 4, buf, 16, &len), FAR_OK);
    assert_memory_equal(buf, "01234567", 8);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(values_are_delivered_alike, setup),
        cmocka_unit_test_setup(a_value_that_does_not_fit_is_not_looked_at, setup),
        cmocka_unit_test_setup(an_inline_value_ends_within_its_place, setup),
        cmocka_unit_test_setup(a_length_that_cannot_be_is_damage, setup),
        cmocka_unit_test_setup(the_store_keeps_to_the_indexs_limits, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
