/*
 * Devices: mapped as they are, never grown. /dev/zero stands in for one that has memory; it has
 * new memory for everyone who maps it.
 */
#include "fabric/shm_scratch.h"

static void a_device_needs_a_size(void **state)
{
    far_pool *pool = NULL;

    (void)state;
    assert_int_equal(far_pool_open("shm:/dev/zero", &pool), FAR_BAD_URI);
    assert_non_null(strstr(far_error_detail(), "needs size="));
    assert_null(pool);
}

static void a_device_that_cannot_be_mapped(void **state)
{
    far_pool *pool = NULL;

    (void)state;
    assert_int_equal(far_pool_open("shm:/dev/null?size=8m", &pool), FAR_SYSTEM);
    assert_non_null(strstr(far_error_detail(), "cannot map"));
    assert_null(pool);
}

static void a_pool_on_a_device(void **state)
{
    struct far_pool_info info;
    far_session *session;
    far_table *table;
    far_pool *pool;
    char value[8];
    size_t len;

    (void)state;
    assert_int_equal(far_pool_open("shm:/dev/zero?size=4m&nodes=3", &pool), FAR_OK);
    assert_int_equal(far_session_open(pool, NULL, &session), FAR_OK);
    assert_int_equal(far_pool_info(session, &info), FAR_OK);
    assert_int_equal(info.nodes, 3);
    assert_int_equal(info.bytes_total, 12 << 20);
    assert_int_equal(far_table_create(session, "t", "race", NULL, &table), FAR_OK);
    assert_int_equal(far_put(session, table, "key", 3, "value", 5), FAR_OK);
    assert_int_equal(far_get(session, table, "key", 3, value, sizeof value, &len), FAR_OK);
    assert_int_equal(len, 5);
    assert_int_equal(far_table_check(session, table, NULL, NULL), FAR_OK);
    far_session_close(session);
    far_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_needs_a_size),
        cmocka_unit_test(a_device_that_cannot_be_mapped),
        cmocka_unit_test(a_pool_on_a_device),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
