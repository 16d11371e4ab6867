/* Every function of farside.h with each of its pointers NULL in turn: FAR_INVALID, a detail that
 * names the argument, outputs left alone, and nothing crashes. */
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static void rig(struct store_rig *r)
{
    store_rig_open(r, "mem:?size=16m", NULL, NULL, NULL);
}

/* The detail is compared as a whole: a message that blames another argument misleads. */
static void refused(int rc, const char *says)
{
    if (rc != FAR_INVALID || strcmp(far_error_detail(), says) != 0)
        print_error("%s (%s), not: %s\n", far_errname(rc), far_error_detail(), says);
    assert_int_equal(rc, FAR_INVALID);
    assert_string_equal(far_error_detail(), says);
}

#define NULL_SESSION "session must not be NULL"
#define NULL_TABLE   "table must not be NULL"

static int each(void *arg, const char *name, const char *index)
{
    (void)arg;
    (void)name;
    (void)index;
    return 0;
}

static void wrong_arguments_of_pools_are_named(void **state)
{
    struct store_rig r;
    far_pool *pool = NULL;
    struct far_pool_info info;
    struct far_pool_usage usage;
    struct far_pool_check check;
    struct far_node_info node;

    (void)state;
    rig(&r);
    refused(far_pool_open(NULL, &pool), "uri must not be NULL");
    refused(far_pool_open("mem:?size=1m", NULL), "pool must not be NULL");
    assert_null(pool);
    refused(far_pool_remove(NULL), "uri must not be NULL");
    refused(far_pool_info(NULL, &info), NULL_SESSION);
    refused(far_pool_info(r.session, NULL), "info must not be NULL");
    refused(far_pool_usage(NULL, &usage), NULL_SESSION);
    refused(far_pool_usage(r.session, NULL), "usage must not be NULL");
    refused(far_pool_check(NULL, false, NULL, NULL, &check), NULL_SESSION);
    refused(far_pool_check(r.session, true, NULL, NULL, NULL), "check must not be NULL");
    assert_int_equal(far_pool_check(r.session, false, NULL, NULL, &check), FAR_OK);
    refused(far_node_info(NULL, 0, &node), NULL_SESSION);
    refused(far_node_info(r.session, 0, NULL), "info must not be NULL");
    refused(far_node_info(r.session, 7, &node), "node is 7, but the pool has nodes 0 to 0");
    far_pool_close(NULL);
    store_rig_close(&r);
}

static void wrong_arguments_of_sessions_are_named(void **state)
{
    struct store_rig r;
    far_session *session = NULL;

    (void)state;
    rig(&r);
    refused(far_session_open(NULL, NULL, &session), "pool must not be NULL");
    refused(far_session_open(r.pool, NULL, NULL), "session must not be NULL");
    assert_null(session);
    far_session_watch(NULL, NULL, NULL);
    far_session_watch(r.session, NULL, NULL);
    far_session_close(NULL);
    store_rig_close(&r);
}

static void wrong_arguments_of_tables_are_named(void **state)
{
    static const char long_name[] =
        "0123456789012345678901234567890123456789012345678901234567890123";
    struct store_rig r;
    far_table *table = NULL;
    struct far_table_info info;

    (void)state;
    rig(&r);
    refused(far_table_create(NULL, "a", "race", NULL, &table), NULL_SESSION);
    refused(far_table_create(r.session, NULL, "race", NULL, &table),
            "the table's name must not be NULL");
    refused(far_table_create(r.session, "a", NULL, NULL, &table), "index must not be NULL");
    refused(far_table_create(r.session, "a", "race", NULL, NULL), NULL_TABLE);
    refused(far_table_open(NULL, "t", NULL, &table), NULL_SESSION);
    refused(far_table_open(r.session, NULL, NULL, &table), "the table's name must not be NULL");
    refused(far_table_open(r.session, "t", NULL, NULL), NULL_TABLE);
    refused(far_table_open(r.session, "", NULL, &table), "the table's name is empty");
    refused(far_table_open(r.session, "a\nb", NULL, &table),
            "the table's name has a control character (byte 1 is 0x0a)");
    refused(far_table_create(r.session, long_name, "race", NULL, &table),
            "the table's name has more than 63 bytes");
    refused(far_table_drop(NULL, r.table), NULL_SESSION);
    refused(far_table_drop(r.session, NULL), NULL_TABLE);
    refused(far_table_list(NULL, each, NULL), NULL_SESSION);
    refused(far_table_list(r.session, NULL, NULL), "each must not be NULL");
    refused(far_table_info(NULL, r.table, &info), NULL_SESSION);
    refused(far_table_info(r.session, NULL, &info), NULL_TABLE);
    refused(far_table_info(r.session, r.table, NULL), "info must not be NULL");
    refused(far_table_check(NULL, r.table, NULL, NULL), NULL_SESSION);
    refused(far_table_check(r.session, NULL, NULL, NULL), NULL_TABLE);
    assert_null(table);
    assert_string_equal(far_table_name(NULL), "");
    assert_string_equal(far_table_index(NULL), "");
    store_rig_close(&r);
}

static enum far_decision keep(void *arg, const void *old, size_t old_len, const void **value,
                              size_t *value_len)
{
    (void)arg;
    (void)old;
    (void)old_len;
    (void)value;
    (void)value_len;
    return FAR_KEEP;
}

static void wrong_arguments_of_operations_are_named(void **state)
{
    struct store_rig r;
    char buf[8];
    size_t len = 77;

    (void)state;
    rig(&r);
    far_session *s = r.session;
    far_table *t = r.table;
    assert_int_equal(far_put(s, t, "k", 1, "v", 1), FAR_OK);

    refused(far_get(NULL, t, "k", 1, buf, 8, &len), NULL_SESSION);
    refused(far_get(s, NULL, "k", 1, buf, 8, &len), NULL_TABLE);
    refused(far_get(s, t, NULL, 1, buf, 8, &len), "key must not be NULL");
    refused(far_get(s, t, NULL, 0, buf, 8, &len), "key must not be NULL");
    refused(far_get(s, t, "k", 1, NULL, 8, &len), "buf is NULL, but cap is 8");
    assert_int_equal(len, 77);
    assert_int_equal(far_get(s, t, "k", 1, buf, 8, NULL), FAR_OK);
    uint64_t cursor = 0;
    refused(far_iterate(NULL, t, &cursor, 0, buf, 8, &len), NULL_SESSION);
    refused(far_iterate(s, NULL, &cursor, 0, buf, 8, &len), NULL_TABLE);
    refused(far_iterate(s, t, NULL, 0, buf, 8, &len), "cursor must not be NULL");
    refused(far_iterate(s, t, &cursor, 0, NULL, 8, &len), "buf must not be NULL");
    refused(far_iterate(s, t, &cursor, 0, buf, 8, NULL), "len must not be NULL");
    struct far_range range = {.limit = 1}; /* before it is seen that this table has no order */
    refused(far_scan(NULL, t, &range, buf, 8, &len, NULL), NULL_SESSION);
    refused(far_scan(s, NULL, &range, buf, 8, &len, NULL), NULL_TABLE);
    refused(far_scan(s, t, NULL, buf, 8, &len, NULL), "range must not be NULL");
    refused(far_scan(s, t, &range, buf, 8, NULL, NULL), "len must not be NULL");
    refused(far_modify(NULL, t, "k", 1, keep, NULL), NULL_SESSION);
    refused(far_modify(s, NULL, "k", 1, keep, NULL), NULL_TABLE);
    refused(far_modify(s, t, NULL, 1, keep, NULL), "key must not be NULL");
    refused(far_modify(s, t, "k", 1, NULL, NULL), "modify must not be NULL");
    refused(far_exists(NULL, t, "k", 1), NULL_SESSION);
    refused(far_exists(s, NULL, "k", 1), NULL_TABLE);
    refused(far_exists(s, t, NULL, 1), "key must not be NULL");
    refused(far_delete(NULL, t, "k", 1), NULL_SESSION);
    refused(far_delete(s, NULL, "k", 1), NULL_TABLE);
    refused(far_delete(s, t, NULL, 1), "key must not be NULL");

    static int (*const changes[])(far_session *, far_table *, const void *, size_t, const void *,
                                  size_t) = {far_put, far_insert, far_update};
    for (unsigned i = 0; i < 3; i++) {
        refused(changes[i](NULL, t, "k", 1, "w", 1), NULL_SESSION);
        refused(changes[i](s, NULL, "k", 1, "w", 1), NULL_TABLE);
        refused(changes[i](s, t, NULL, 1, "w", 1), "key must not be NULL");
        refused(changes[i](s, t, "k", 1, NULL, 1), "value is NULL, but value_len is 1");
    }
    assert_int_equal(far_get(s, t, "k", 1, buf, 8, &len), FAR_OK);
    assert_true(len == 1 && buf[0] == 'v');
    assert_int_equal(far_put(s, t, "k", 1, NULL, 0), FAR_OK); /* an empty value */
    store_rig_close(&r);
}

static void wrong_arguments_of_the_ring_are_named(void **state)
{
    struct store_rig r;
    struct far_op op = {.kind = FAR_OP_GET, .key = "k", .key_len = 1};
    struct far_result result = {.user_data = 5};

    (void)state;
    rig(&r);
    refused(far_submit(NULL, &op), NULL_SESSION);
    refused(far_submit(NULL, NULL), NULL_SESSION);
    refused(far_submit(r.session, NULL), "op must not be NULL");
    refused(far_submit(r.session, &op), NULL_TABLE);
    op.table = r.table;
    op.kind = (enum far_op_kind)FAR_OP_KINDS;
    refused(far_submit(r.session, &op), "there is no operation of kind 10");
    refused(far_execute(NULL, &op, &result), NULL_SESSION);
    refused(far_execute(r.session, NULL, &result), "op must not be NULL");
    refused(far_execute(r.session, &op, &result), "there is no operation of kind 10");
    op = (struct far_op){.table = r.table, .key = "k", .key_len = 1}; /* a kind was forgotten */
    refused(far_submit(r.session, &op), "there is no operation of kind 0");
    refused(far_execute(r.session, &op, &result), "there is no operation of kind 0");
    refused(far_submit_many(NULL, &op, 1, NULL), NULL_SESSION);
    refused(far_submit_many(r.session, NULL, 1, NULL), "ops must not be NULL");
    int fd = 77;
    refused(far_session_fd(NULL, &fd), NULL_SESSION);
    refused(far_session_fd(r.session, NULL), "fd must not be NULL");
    assert_int_equal(fd, 77);
    unsigned count = 77;
    refused(far_cancel(NULL, 6, &count), NULL_SESSION);
    refused(far_cancel(r.session, 6, &count), "no operation with user_data 6 is to be reaped");
    assert_int_equal(count, 77);
    refused(far_reap_within(NULL, &result, 1, 0, 0), NULL_SESSION);
    refused(far_reap(NULL, &result, 1, 0), NULL_SESSION);

    op = (struct far_op){.kind = FAR_OP_PUT, .table = r.table, .key_len = 1, .user_data = 6};
    assert_int_equal(far_submit(r.session, &op), FAR_OK); /* what is wrong, the result says */
    refused(far_reap(r.session, NULL, 1, 1),
            "results must not be NULL"); /* it stays to be reaped */
    assert_int_equal(far_reap(r.session, &result, 1, 1), 1);
    assert_true(result.user_data == 6);
    refused(result.status, "key must not be NULL");
    assert_int_equal(far_reap(r.session, NULL, 0, 0), 0);
    store_rig_close(&r);
}

static void statistics_without_a_session_or_its_table_are_zero(void **state)
{
    struct store_rig r, other;
    struct far_stats stats, none;

    (void)state;
    rig(&r);
    rig(&other);
    memset(&none, 0, sizeof none);
    assert_int_equal(far_put(r.session, r.table, "k", 1, "v", 1), FAR_OK);
    far_stats(r.session, r.table, &stats);
    assert_int_equal(stats.op[FAR_OP_PUT].count, 1);
    far_stats(r.session, r.table, NULL);
    const struct {
        const far_session *session;
        const far_table *table;
    } wrong[] = {{NULL, r.table}, {r.session, NULL}, {NULL, NULL}, {r.session, other.table}};
    for (unsigned i = 0; i < 4; i++) {
        memset(&stats, 0xff, sizeof stats);
        far_stats(wrong[i].session, wrong[i].table, &stats);
        assert_memory_equal(&stats, &none, sizeof none); /* of words only: there is no padding */
    }
    store_rig_close(&other);
    store_rig_close(&r);
}

_Static_assert(sizeof(struct far_stats) == FAR_OP_ROOM * (10 + FAR_RTTS_TOLD) * sizeof(uint64_t),
               "statistics are compared as bytes");

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_arguments_of_pools_are_named),
        cmocka_unit_test(wrong_arguments_of_sessions_are_named),
        cmocka_unit_test(wrong_arguments_of_tables_are_named),
        cmocka_unit_test(wrong_arguments_of_operations_are_named),
        cmocka_unit_test(wrong_arguments_of_the_ring_are_named),
        cmocka_unit_test(statistics_without_a_session_or_its_table_are_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
