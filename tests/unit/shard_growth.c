/* When a table of SHARD grows. */
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

/* Even if no client ever reports of itself how many keys it has added. */
static void a_full_bucket_makes_its_client_report(void **state)
{
    struct far_table_options options = {.tuning = "buckets=1&slots=8&sync=1000000"};
    struct store_rig r;
    far_table *table = NULL;

    (void)state;
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, NULL);
    assert_int_equal(far_table_create(r.session, "seldom", "shard", &options, &table), FAR_OK);
    for (uint32_t key = 0; key < 20000; key++) {
        int rc = far_insert(r.session, table, &key, sizeof key, &key, sizeof key);
        if (rc != FAR_OK)
            fail_msg("key %u: %s: %s", key, far_errname(rc), far_error_detail());
    }
    for (uint32_t key = 0; key < 20000; key++)
        assert_int_equal(far_exists(r.session, table, &key, sizeof key), FAR_OK);
    assert_int_equal(far_table_check(r.session, table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_bucket_makes_its_client_report),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
