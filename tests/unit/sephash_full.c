/* Values of a SepHash table are replaced in a full pool, also if they have the size of its pages or
 * CurSegments (SEPHASH-H8). */
#include "index/sephash/sephash.h"
#include "support/full_pool.h"

static void expect_replaced(const char *tuning, size_t len)
{
    struct store_rig r;
    struct far_table_options options = {.tuning = tuning, .hash_seed = 3};
    store_rig_open_driven(&r, "mem:?size=4m", NULL, NULL, &options);
    uint32_t count = fill(r.session, r.table, 0, KEYS_MAX, len);
    for (uint32_t key = OTHERS; key < OTHERS + 300; key++) /* a segment may have a place left */
        (void)far_put(r.session, r.table, &key, sizeof key, value, len);
    for (unsigned n = 0; n < 300; n++) {
        uint32_t key = n % count;
        assert_int_equal(far_put(r.session, r.table, &key, sizeof key, value, len), FAR_OK);
    }
    close_whole(&r);
}

static unsigned class_of(size_t len)
{
    return size_class_for(block_bytes(sizeof(uint32_t), len));
}

static void values_as_large_as_a_part_of_a_segment_are_replaced(void **state)
{
    struct sephash_shape shape;
    (void)state;
    sephash_shape_set(&shape, 32, 16, true, true, 512);
    assert_int_equal(class_of(1000), sephash_cur_class(&shape));
    expect_replaced("slots=32&ratio=16&depth=0&lane=512&filter=1", 1000);
    sephash_shape_set(&shape, 128, 64, true, true, 512);
    assert_int_equal(class_of(4000), sephash_page_class(&shape));
    expect_replaced("slots=128&ratio=64&depth=2&lane=512&filter=1", 4000);
}

static void values_of_any_size_are_replaced(void **state)
{
    (void)state;
    for (size_t len = 500; len <= 4000; len += SLOWER > 1 ? 3500 : 500) {
        expect_replaced("slots=128&ratio=8&depth=0&lane=512&filter=1", len);
        expect_replaced("slots=32&ratio=16&depth=2&lane=512&filter=1", len);
    }
}

int main(void)
{
    index_tested = "sephash";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_as_large_as_a_part_of_a_segment_are_replaced),
        cmocka_unit_test(values_of_any_size_are_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
