/* Walks of whole tables: how many round trips they take, with one client. */
#include "support/indexes.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS 4000u

/* A table of KEYS keys whose values are in blocks. */
static struct store_rig rig_with_keys(const char *tuning)
{
    struct far_table_options table = {.tuning = tuning};
    struct store_rig r;
    char value[64] = {0};
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, &table);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(far_put(r.session, r.table, &i, sizeof i, value, sizeof value), FAR_OK);
    r.session->op.cost.rtts = 0;
    return r;
}

/* One for each key would be minutes on a busy machine. */
static void a_check_reads_many_blocks_in_a_round_trip(void **state)
{
    (void)state;
    struct store_rig r = rig_with_keys(NULL);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    assert_true(r.session->op.cost.rtts < KEYS / 4);
    store_rig_close(&r);
}

/* A table with the smallest parts, and a directory as large as it gets. */
static void a_check_of_many_parts_takes_few_round_trips_for_each(void **state)
{
    (void)state;
    struct store_rig r = rig_with_keys(indexes_smallest());
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    assert_true(r.session->op.cost.rtts < 2 * KEYS);
    store_rig_close(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_check_reads_many_blocks_in_a_round_trip),
        cmocka_unit_test(a_check_of_many_parts_takes_few_round_trips_for_each),
    };
    indexes_arguments(argc, argv);
    return INDEXES_RUN(tests);
}
