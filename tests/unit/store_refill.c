/* A full pool that is emptied takes as much again. */
#include "support/full_pool.h"

static void empty(far_session *s, far_table *t, uint32_t first, uint32_t count)
{
    for (uint32_t key = first; key < first + count; key++)
        assert_int_equal(far_delete(s, t, &key, sizeof key), FAR_OK);
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
    uint32_t count = open_full(&r, "mem:?size=4m", 10000);
    far_session *other = store_rig_join(&r);
    empty(other, r.table, 0, count);
    assert_true(fill(r.session, r.table, OTHERS, count, 10000) >= count - count / 10);
    far_session_close(other);
    close_whole(&r);
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
        store_rig_open_driven(&r, "mem:?size=2m", NULL, NULL, NULL);
        assert_int_equal(far_table_create(r.session, "u", index_tested, NULL, &dropped), FAR_OK);
        uint32_t count = fill(r.session, dropped, 0, KEYS_MAX, before);
        assert_true(count < KEYS_MAX);
        assert_int_equal(far_table_drop(r.session, dropped), FAR_OK);
        uint32_t most =
            (uint32_t)(1400000 / size_class_bytes(size_class_for(block_bytes(4, after))));
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
        cmocka_unit_test(what_a_dropped_table_had_is_usable_at_once),
    };
    return INDEXES_RUN(tests);
}
