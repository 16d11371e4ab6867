/* Values are replaced in a full pool. */
#include "support/full_pool.h"

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

int main(int argc, char **argv)
{
    indexes_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_replaced_in_a_full_pool),
    };
    return INDEXES_RUN(tests);
}
