/* Iterating over a table: every key that stays is returned, whatever the table does meanwhile. */
#include "support/indexes.h"
#include "support/store_rig.h"

#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS_MAX 40000

static unsigned seen[KEYS_MAX]; /* how often each key was returned */

static void put(struct store_rig *r, far_session *s, uint64_t key)
{
    uint64_t value[2] = {key, ~key};
    assert_int_equal(far_put(s, r->table, &key, 8, value, 8 + key % 9), FAR_OK);
}

static void fill(struct store_rig *r, uint64_t from, uint64_t to)
{
    for (uint64_t key = from; key < to; key++)
        put(r, r->session, key);
}

/* Takes a buffer apart, and compares each value with its key's. */
static unsigned note(const void *buf, size_t len, bool keys_only)
{
    struct far_entry e;
    unsigned count = 0;
    for (size_t pos = 0; far_entry_next(buf, len, &pos, &e); count++) {
        uint64_t key = 0, value[2];
        assert_int_equal(e.key_len, 8);
        memcpy(&key, e.key, 8);
        assert_true(key < KEYS_MAX);
        value[0] = key;
        value[1] = ~key;
        assert_int_equal(e.value_len, 8 + key % 9);
        if (keys_only)
            assert_null(e.value);
        else
            assert_memory_equal(e.value, value, e.value_len);
        seen[key]++;
    }
    return count;
}

/* One walk through the table with a buffer of that size; how many entries it had. */
static unsigned walk(struct store_rig *r, far_session *s, size_t cap, unsigned flags)
{
    char *buf = malloc(cap);
    uint64_t cursor = 0;
    size_t len = 0;
    unsigned entries = 0, calls = 0;
    memset(seen, 0, sizeof seen);
    do {
        assert_int_equal(far_iterate(s, r->table, &cursor, flags, buf, cap, &len), FAR_OK);
        entries += note(buf, len, flags & FAR_KEYS_ONLY);
        assert_true(++calls < 1000000);
    } while (cursor != 0);
    free(buf);
    return entries;
}

static void rig(struct store_rig *r, const char *uri, bool small)
{
    struct far_table_options options = {.tuning = small ? indexes_smallest() : NULL};
    store_rig_open_kept(r, uri, NULL, &options);
}

static uint64_t splits_of(struct store_rig *r)
{
    struct far_table_info info;
    assert_int_equal(far_table_info(r->session, r->table, &info), FAR_OK);
    return info.splits;
}

static void a_quiet_table_is_returned_exactly_once(void **state)
{
    static const char *const uris[] = {"mem:?size=64m", "mem:?size=32m&nodes=3",
                                       "mem:?size=64m&defer=1"};
    (void)state;
    for (unsigned n = 0; n < 12; n++) {
        struct store_rig r;
        uint64_t keys = n / 3 % 2 ? 3000 : n < 6 ? 0 : 1;
        rig(&r, uris[n % 3], n / 3 % 2);
        fill(&r, 0, keys);
        assert_int_equal(walk(&r, r.session, n % 2 ? 100 : 65536, n % 4 ? 0 : FAR_KEYS_ONLY), keys);
        for (uint64_t key = 0; key < keys; key++)
            assert_int_equal(seen[key], 1);
        store_rig_close(&r);
    }
}

/* Between any two calls the table grows several times, by another session. */
static void keys_that_stay_are_returned_while_the_table_grows(void **state)
{
    (void)state;
    for (unsigned n = 0; n < 4; n++) {
        struct store_rig r;
        far_session *other = NULL;
        char buf[512];
        uint64_t cursor = 0, stay = 300, next = 1000;
        size_t len = 0;
        rig(&r, n % 2 ? "mem:?size=64m&nodes=2" : "mem:?size=64m", true);
        assert_int_equal(far_session_open(r.pool, NULL, &other), FAR_OK);
        fill(&r, 0, stay);
        uint64_t splits = splits_of(&r);
        memset(seen, 0, sizeof seen);
        do {
            assert_int_equal(far_iterate(other, r.table, &cursor, 0, buf, sizeof buf, &len),
                             FAR_OK);
            (void)note(buf, len, false);
            for (unsigned i = 0; i < 100 && next < KEYS_MAX; i++)
                put(&r, r.session, next++);
            for (uint64_t key = 0; key < 10 && next > 1200; key++) {
                uint64_t gone = next - 150 + key;
                int rc = far_delete(r.session, r.table, &gone, 8);
                assert_true(rc == FAR_OK || rc == FAR_NOT_FOUND);
            }
        } while (cursor != 0);
        for (uint64_t key = 0; key < stay; key++)
            assert_true(seen[key] >= 1);
        assert_true(splits_of(&r) > splits + 3);
        far_session_close(other);
        store_rig_close(&r);
    }
}

/* A cursor is good in any session, and long after. */
static void a_cursor_outlives_its_session(void **state)
{
    struct store_rig r;
    uint64_t cursor = 0;
    size_t len = 0;
    char buf[1000];

    (void)state;
    rig(&r, "mem:?size=64m", true);
    fill(&r, 0, 500);
    memset(seen, 0, sizeof seen);
    do {
        far_session *s = NULL;
        assert_int_equal(far_session_open(r.pool, NULL, &s), FAR_OK);
        assert_int_equal(far_iterate(s, r.table, &cursor, 0, buf, sizeof buf, &len), FAR_OK);
        (void)note(buf, len, false);
        far_session_close(s);
    } while (cursor != 0);
    for (uint64_t key = 0; key < 500; key++)
        assert_int_equal(seen[key], 1);
    store_rig_close(&r);
}

/* It does not hold the epoch between calls, so what others retire meanwhile comes back. */
static void an_iteration_holds_nothing_between_calls(void **state)
{
    struct store_rig r;
    uint64_t cursor = 0;
    size_t len = 0;
    char buf[200];

    (void)state;
    rig(&r, "mem:?size=2m&lease=3600000", true);
    fill(&r, 0, 500);
    assert_int_equal(far_iterate(r.session, r.table, &cursor, 0, buf, sizeof buf, &len), FAR_OK);
    assert_true(cursor != 0);
    for (unsigned i = 0; i < 60000; i++) /* several times the pool */
        put(&r, r.session, i % 500);
    store_rig_close(&r);
}

static void an_entry_that_does_not_fit_says_how_long_it_is(void **state)
{
    struct store_rig r;
    static char value[100000];
    uint64_t key = 1, cursor = 0, before = 0;
    size_t len = 0;
    char *buf = malloc(200000);
    struct far_entry e;

    (void)state;
    rig(&r, "mem:?size=64m", true);
    memset(value, 'x', sizeof value);
    assert_int_equal(far_put(r.session, r.table, &key, 8, value, sizeof value), FAR_OK);
    assert_int_equal(far_iterate(r.session, r.table, &cursor, 0, buf, 100, &len), FAR_TOO_SMALL);
    assert_true(cursor == before && len >= sizeof value + 8);
    assert_int_equal(far_iterate(r.session, r.table, &cursor, 0, buf, len, &len), FAR_OK);
    size_t pos = 0;
    assert_true(far_entry_next(buf, len, &pos, &e));
    assert_int_equal(e.value_len, sizeof value);
    assert_memory_equal(e.value, value, sizeof value);
    assert_false(far_entry_next(buf, len, &pos, &e));
    cursor = 0; /* keys alone take little room */
    assert_int_equal(far_iterate(r.session, r.table, &cursor, FAR_KEYS_ONLY, buf, 100, &len),
                     FAR_OK);
    pos = 0;
    assert_true(far_entry_next(buf, len, &pos, &e) && e.value == NULL);
    assert_int_equal(e.value_len, sizeof value);
    free(buf);
    store_rig_close(&r);
}

static void wrong_use_is_refused(void **state)
{
    struct store_rig r;
    uint64_t cursor = 0;
    size_t len = 7, pos = 0;
    char buf[100];
    struct far_entry e;

    (void)state;
    rig(&r, "mem:?size=4m", true);
    fill(&r, 0, 10);
    assert_int_equal(far_iterate(NULL, r.table, &cursor, 0, buf, 100, &len), FAR_INVALID);
    assert_int_equal(far_iterate(r.session, NULL, &cursor, 0, buf, 100, &len), FAR_INVALID);
    assert_int_equal(far_iterate(r.session, r.table, NULL, 0, buf, 100, &len), FAR_INVALID);
    assert_int_equal(far_iterate(r.session, r.table, &cursor, 2, buf, 100, &len), FAR_INVALID);
    assert_int_equal(far_iterate(r.session, r.table, &cursor, 0, NULL, 100, &len), FAR_INVALID);
    assert_int_equal(far_iterate(r.session, r.table, &cursor, 0, buf, 100, NULL), FAR_INVALID);
    for (uint64_t wild = 1; wild < 1ull << 61; wild = wild * 3 + 1) {
        cursor = wild; /* each index knows which numbers are cursors */
        len = 7;
        int rc = far_iterate(r.session, r.table, &cursor, 0, buf, sizeof buf, &len);
        assert_true(rc == FAR_OK || rc == FAR_INVALID);
        assert_true(rc == FAR_OK || (cursor == wild && len == 7));
    }
    /* A buffer that was cut short, or holds something else, gives no entry outside of it. */
    memset(buf, 0xff, sizeof buf);
    for (size_t cut = 0; cut <= sizeof buf; cut++) {
        pos = 0;
        assert_false(far_entry_next(buf, cut, &pos, &e));
    }
    pos = 200;
    assert_false(far_entry_next(buf, sizeof buf, &pos, &e));
    assert_false(far_entry_next(NULL, 8, &pos, &e));
    store_rig_close(&r);
}

static void the_ring_iterates_too(void **state)
{
    struct store_rig r;
    char buf[4096];
    struct far_op op = {.kind = FAR_OP_ITERATE, .buf = buf, .cap = sizeof buf, .user_data = 9};
    struct far_result result;
    unsigned entries = 0;

    (void)state;
    rig(&r, "mem:?size=64m&defer=1", true);
    fill(&r, 0, 1000);
    op.table = r.table;
    memset(seen, 0, sizeof seen);
    do {
        assert_int_equal(far_submit(r.session, &op), FAR_OK);
        assert_int_equal(far_reap(r.session, &result, 1, 1), 1);
        assert_int_equal(result.status, FAR_OK);
        assert_true(result.user_data == 9);
        assert_int_equal(note(buf, result.len, false), result.count);
        entries += result.count;
        op.cursor = result.cursor;
    } while (result.cursor != 0);
    assert_int_equal(entries, 1000);
    op.cursor = 0;
    assert_int_equal(far_execute(r.session, &op, &result), FAR_OK);
    assert_true(result.cursor != 0 && result.count > 0);
    store_rig_close(&r);
}

static void a_number_that_no_cursor_of_race_has_is_refused(void **state)
{
    struct store_rig r;
    uint64_t cursor = 1ull << 60;
    size_t len = 7;
    char buf[100];

    (void)state;
    rig(&r, "mem:?size=4m", true);
    assert_int_equal(far_iterate(r.session, r.table, &cursor, 0, buf, 100, &len), FAR_INVALID);
    assert_true(cursor == 1ull << 60 && len == 7);
    store_rig_close(&r);
}

/* A walk with a roomy buffer takes a round trip for a hundred keys, or better. */
static void iterating_is_cheap(void **state)
{
    struct store_rig r;
    struct far_stats stats;

    (void)state;
    rig(&r, "mem:?size=64m", false);
    fill(&r, 0, KEYS_MAX);
    assert_int_equal(walk(&r, r.session, 1 << 20, 0), KEYS_MAX);
    far_stats(r.session, r.table, &stats);
    const struct far_op_stats *s = &stats.op[FAR_OP_ITERATE];
    assert_true(s->entries == KEYS_MAX && s->rtts * 50 < s->entries);
    store_rig_close(&r);
}

int main(int argc, char **argv)
{
    indexes_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quiet_table_is_returned_exactly_once),
        cmocka_unit_test(keys_that_stay_are_returned_while_the_table_grows),
        cmocka_unit_test(a_cursor_outlives_its_session),
        cmocka_unit_test(an_iteration_holds_nothing_between_calls),
        cmocka_unit_test(an_entry_that_does_not_fit_says_how_long_it_is),
        cmocka_unit_test(wrong_use_is_refused),
        cmocka_unit_test(the_ring_iterates_too),
    };
    const struct CMUnitTest of_race[] = {
        cmocka_unit_test(a_number_that_no_cursor_of_race_has_is_refused),
        cmocka_unit_test(iterating_is_cheap),
    };
    int failed = INDEXES_RUN(tests);
    return failed + cmocka_run_group_tests(of_race, NULL, NULL);
}
