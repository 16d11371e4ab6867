/* A full pool that is emptied takes as much again, and values are replaced in a full pool. Time is the
 * test's own: how long a session waits for memory does not depend on the machine. */
#include "support/indexes.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS_MAX 100000u
#define OTHERS   1000000u /* from here on: keys of the second filling */
#define STAY     2000000u /* keys with small values, which stay */
#define STAYING  1000u    /* with the smallest parts, they make hundreds of them */

static char value[70000];

/* Puts keys from `first` on, until one is refused. Returns how many were not. */
static uint32_t fill(far_session *s, far_table *t, uint32_t first, uint32_t most, size_t len)
{
    for (uint32_t i = 0; i < most; i++) {
        uint32_t key = first + i;
        int rc = far_put(s, t, &key, sizeof key, value, len);
        if (rc != FAR_OK) {
            assert_int_equal(rc, FAR_POOL_FULL);
            return i;
        }
    }
    return most;
}

static void empty(far_session *s, far_table *t, uint32_t first, uint32_t count)
{
    for (uint32_t key = first; key < first + count; key++)
        assert_int_equal(far_delete(s, t, &key, sizeof key), FAR_OK);
}

/* A table with many parts, in a pool that is then full. Returns the number of large values. */
static uint32_t open_full(struct store_rig *r, const char *uri, size_t len)
{
    struct far_table_options options = {.tuning = indexes_smallest()};
    store_rig_open_driven(r, uri, NULL, NULL, &options);
    assert_int_equal(fill(r->session, r->table, STAY, STAYING, 32), STAYING);
    uint32_t count = fill(r->session, r->table, 0, KEYS_MAX, len);
    assert_true(count > 10 && count < KEYS_MAX);
    return count;
}

static void close_whole(struct store_rig *r)
{
    struct far_pool_check check;
    assert_int_equal(far_table_check(r->session, r->table, NULL, NULL), FAR_OK);
    assert_int_equal(far_pool_check(r->session, false, NULL, NULL, &check), FAR_OK);
    assert_true(check.leaked_bytes == 0);
    store_rig_close(r);
}

static void a_pool_that_was_emptied_takes_as_much_again(void **state)
{
    static const char *const uris[] = {"mem:?size=4m", "mem:?size=2m&nodes=2"};
    static const size_t lengths[] = {10000, 50000};
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct store_rig r;
        uint32_t count = open_full(&r, uris[i / 2], lengths[i % 2]);
        empty(r.session, r.table, 0, count);
        uint32_t again = fill(r.session, r.table, OTHERS, count, lengths[i % 2]);
        assert_true(again >=
                    count - count / 32); /* an index may need other memory for other keys */
        close_whole(&r);
    }
}

/* Wherever the deleted one was. */
static void a_value_that_was_deleted_makes_room_for_another(void **state)
{
    (void)state;
    struct store_rig r;
    uint32_t count = open_full(&r, "mem:?size=4m", 10000);
    for (uint32_t key = 0; key < count / 2; key++) {
        empty(r.session, r.table, key, 1);
        assert_int_equal(fill(r.session, r.table, OTHERS + key, 1, 10000), 1);
    }
    close_whole(&r);
}

/* A session keeps a little of what it has freed. */
static void what_one_session_deletes_another_can_use(void **state)
{
    (void)state;
    struct store_rig r;
    uint32_t count = open_full(&r, "mem:?size=8m", 10000);
    far_session *other = store_rig_join(&r);
    empty(other, r.table, 0, count);
    assert_true(fill(r.session, r.table, OTHERS, count, 10000) >= count - count / 10);
    far_session_close(other);
    close_whole(&r);
}

static enum far_decision replace(void *arg, const void *old, size_t old_len, const void **new_value,
                                 size_t *new_len)
{
    assert_non_null(old);
    *new_value = value;
    *new_len = *(const size_t *)arg;
    assert_int_equal(old_len, *new_len);
    return FAR_STORE;
}

static void values_are_replaced_in_a_full_pool(void **state)
{
    static const size_t lengths[] = {100, 4000, 50000};
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct store_rig r;
        size_t len = lengths[i];
        uint32_t count = open_full(&r, "mem:?size=4m", len), some = count < 300 ? count : 300;
        for (uint32_t key = OTHERS; key < OTHERS + 300; key++) /* a part may have a place left */
            (void)far_put(r.session, r.table, &key, sizeof key, value, len);
        for (unsigned round = 0; round < 3; round++) {
            for (uint32_t n = 0; n < some; n++) {
                uint32_t key = n * (count / some);
                int rc = round == 0   ? far_put(r.session, r.table, &key, 4, value, len)
                         : round == 1 ? far_update(r.session, r.table, &key, 4, value, len)
                                      : far_modify(r.session, r.table, &key, 4, replace, &len);
                assert_int_equal(rc, FAR_OK);
            }
        }
        uint32_t key = 0;
        for (unsigned n = 0; n < 100; n++) /* and one key again and again */
            assert_int_equal(far_put(r.session, r.table, &key, 4, value, len), FAR_OK);
        close_whole(&r);
    }
}

/* What a dropped table had is of other sizes than what is put then. */
static void what_a_dropped_table_had_is_usable_at_once(void **state)
{
    static const size_t lengths[][2] = {{32, 32}, {32, 10000}, {10000, 1000}};
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct store_rig r;
        far_table *dropped = NULL;
        size_t before = lengths[i][0], after = lengths[i][1];
        store_rig_open_driven(&r, "mem:?size=4m", NULL, NULL, NULL);
        assert_int_equal(far_table_create(r.session, "u", index_tested, NULL, &dropped), FAR_OK);
        uint32_t count = fill(r.session, dropped, 0, KEYS_MAX, before);
        assert_true(count < KEYS_MAX);
        assert_int_equal(far_table_drop(r.session, dropped), FAR_OK);
        uint32_t most =
            (uint32_t)(3000000 / size_class_bytes(size_class_for(block_bytes(4, after))));
        most = most < 1000 ? most : 1000;
        assert_int_equal(fill(r.session, r.table, 0, most, after), most);
        close_whole(&r);
    }
}

int main(int argc, char **argv)
{
    indexes_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_that_was_emptied_takes_as_much_again),
        cmocka_unit_test(a_value_that_was_deleted_makes_room_for_another),
        cmocka_unit_test(what_one_session_deletes_another_can_use),
        cmocka_unit_test(values_are_replaced_in_a_full_pool),
        cmocka_unit_test(what_a_dropped_table_had_is_usable_at_once),
    };
    return INDEXES_RUN(tests);
}
