/* Handles of tables and what sessions keep of them: freed when nobody needs them any more. */
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define CYCLES 200u

static void rig(struct store_rig *r)
{
    store_rig_open(r, "mem:?size=32m", NULL, NULL, NULL);
}

static far_table *create(far_session *s, const char *name)
{
    far_table *table = NULL;
    assert_int_equal(far_table_create(s, name, index_tested, NULL, &table), FAR_OK);
    assert_int_equal(far_put(s, table, "k", 1, "v", 1), FAR_OK);
    return table;
}

static unsigned handles(const far_pool *pool)
{
    unsigned count = 0;
    for (unsigned i = 0; i < pool->tables; i++)
        count += pool->table[i] != NULL;
    return count;
}

static unsigned views(const far_session *s)
{
    unsigned count = 0;
    for (unsigned i = 0; i < s->tables; i++)
        count += s->table[i] != NULL;
    return count;
}

static void a_handle_is_closed_as_often_as_it_was_opened(void **state)
{
    struct store_rig r;
    far_table *again = NULL;
    (void)state;
    rig(&r);
    far_table *u = create(r.session, "u");
    assert_int_equal(far_table_open(r.session, "u", NULL, &again), FAR_OK);
    assert_ptr_equal(again, u);
    far_table_close(again);
    assert_int_equal(far_put(r.session, r.table, "k", 1, "v", 1), FAR_OK); /* frees unused views */
    assert_int_equal(views(r.session), 2);
    assert_int_equal(far_exists(r.session, u, "k", 1), FAR_OK);
    assert_string_equal(far_table_name(u), "u");
    far_table_close(u);
    far_table_close(NULL);
    assert_int_equal(far_table_open(r.session, "u", NULL, &again), FAR_OK); /* the table stays */
    assert_int_equal(far_exists(r.session, again, "k", 1), FAR_OK);
    store_rig_close(&r);
}

static void a_session_frees_its_view_of_a_closed_table(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r);
    far_table *u = create(r.session, "u");
    far_session *second = store_rig_join(&r);
    assert_int_equal(far_exists(second, u, "k", 1), FAR_OK);
    far_table_close(u);
    assert_int_equal(handles(r.pool), 2); /* both sessions have a view */
    far_session_close(second);
    assert_int_equal(handles(r.pool), 2);
    assert_int_equal(far_put(r.session, r.table, "k", 1, "v", 1), FAR_OK);
    assert_int_equal(views(r.session), 1);
    assert_int_equal(handles(r.pool), 1);
    store_rig_close(&r);
}

static void tables_that_are_dropped_and_closed_leave_nothing(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r);
    for (unsigned i = 0; i < CYCLES; i++) {
        far_table *u = create(r.session, "u");
        assert_int_equal(far_table_drop(r.session, u), FAR_OK);
        far_table_close(u);
        assert_true(r.pool->tables <= 3); /* the old one goes with the first use of the new one */
        assert_true(views(r.session) <= 1);
    }
    assert_int_equal(far_put(r.session, r.table, "k", 1, "v", 1), FAR_OK);
    assert_int_equal(handles(r.pool), 1);
    store_rig_close(&r);
}

static void a_session_keeps_nothing_of_tables_that_were_dropped(void **state)
{
    struct store_rig r;
    struct far_stats stats;
    (void)state;
    rig(&r);
    far_table *u = create(r.session, "u");
    assert_int_equal(far_table_drop(r.session, u), FAR_OK);
    for (unsigned i = 0; i < CYCLES; i++) {
        assert_int_equal(far_table_drop(r.session, create(r.session, "v")), FAR_OK);
        assert_true(views(r.session) <= 1);
    }
    far_stats(r.session, u, &stats);
    assert_int_equal(stats.op[FAR_OP_PUT].count, 0);
    assert_int_equal(far_exists(r.session, u, "k", 1),
                     FAR_NO_TABLE); /* not closed, so it is valid */
    store_rig_close(&r);
}

/* Operations in flight use views. */
static void a_view_in_use_is_kept(void **state)
{
    struct store_rig r;
    struct far_session_options options = {.depth = 4};
    struct far_result result;
    (void)state;
    store_rig_open(&r, "mem:?size=32m&defer=1", NULL, &options, NULL);
    far_table *u = create(r.session, "u"), *v = create(r.session, "v");
    far_session *second = store_rig_join(&r);
    struct far_op op = {.kind = FAR_OP_EXISTS, .table = u, .key = "k", .key_len = 1};
    assert_int_equal(far_submit(second, &op), FAR_OK);
    far_table_close(u); /* too early, but the operation has begun */
    assert_int_equal(far_exists(second, v, "k", 1), FAR_OK);
    assert_int_equal(far_reap(second, &result, 1, 1), 1);
    assert_int_equal(result.status, FAR_OK);
    far_session_close(second);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handle_is_closed_as_often_as_it_was_opened),
        cmocka_unit_test(a_session_frees_its_view_of_a_closed_table),
        cmocka_unit_test(tables_that_are_dropped_and_closed_leave_nothing),
        cmocka_unit_test(a_session_keeps_nothing_of_tables_that_were_dropped),
        cmocka_unit_test(a_view_in_use_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
