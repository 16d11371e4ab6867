/* Large values: the largest there are, and what operations that do not need them read of them. */
#include "support/shm_scratch.h"
#include "support/race_rig.h"
#include "support/values.h"

#define LARGE (1u << 20)
#define TIMES 10

static void the_largest_values_come_back_from_mem(void **state)
{
    (void)state;
    values_round_trip("mem:?size=64m");
    values_round_trip("mem:?size=48m&nodes=2&defer=1");
}

static void the_largest_values_come_back_from_shm(void **state)
{
    (void)state;
    values_round_trip(scratch_uri(scratch_name(false), "?size=64m"));
    values_round_trip(scratch_uri(scratch_name(true), "?size=48m&nodes=2"));
}

/* ---- what is read ---------------------------------------------------------------------------- */

static uint8_t value[LARGE + 1], got[LARGE + 1];

static struct far_op_stats stats_of(struct store_rig *r, enum far_op_kind kind)
{
    struct far_stats stats;
    far_stats(r->session, r->table, &stats);
    return stats.op[kind];
}

/* What one operation of the kind read, on average of all since `before`. */
static uint64_t read_each(struct store_rig *r, enum far_op_kind kind, struct far_op_stats before)
{
    struct far_op_stats now = stats_of(r, kind);
    assert_true(now.count > before.count);
    return (now.bytes_read - before.bytes_read) / (now.count - before.count);
}

/* Only what tells the key is read, whatever the operation and the length of the key, in no more
 * round trips than a short value takes. */
static void only_a_get_that_has_room_reads_a_large_value(void **state)
{
    static const size_t klens[] = {1, 32, 33, 1000, FAR_KEY_MAX};
    static uint8_t key[FAR_KEY_MAX];

    (void)state;
    for (unsigned k = 0; k < sizeof klens / sizeof *klens; k++) {
        struct store_rig r;
        size_t klen = klens[k], len = 0, most = 2048 + klen;
        store_rig_open(&r, "mem:?size=64m", NULL, NULL, NULL);
        assert_int_equal(far_put(r.session, r.table, key, klen, value, LARGE), FAR_OK);
        struct far_op_stats none = {0};
        for (unsigned i = 0; i < TIMES; i++) {
            assert_int_equal(far_exists(r.session, r.table, key, klen), FAR_OK);
            assert_int_equal(far_get(r.session, r.table, key, klen, NULL, 0, &len), FAR_TOO_SMALL);
            assert_int_equal(len, LARGE);
            len = 0;
            assert_int_equal(far_get(r.session, r.table, key, klen, got, LARGE / 2, &len),
                             FAR_TOO_SMALL);
            assert_int_equal(len, LARGE);
        }
        assert_true(stats_of(&r, FAR_OP_EXISTS).rtts == 2 * TIMES);
        assert_true(stats_of(&r, FAR_OP_GET).rtts == 2 * 2 * TIMES);
        assert_in_range(read_each(&r, FAR_OP_EXISTS, none), 1, most);
        assert_in_range(read_each(&r, FAR_OP_GET, none), 1, most);
        for (unsigned i = 0; i < TIMES; i++) {
            assert_int_equal(far_insert(r.session, r.table, key, klen, value, LARGE), FAR_EXISTS);
            assert_int_equal(far_update(r.session, r.table, key, klen, value, LARGE), FAR_OK);
        }
        assert_in_range(read_each(&r, FAR_OP_INSERT, none), 1, most);
        assert_in_range(read_each(&r, FAR_OP_UPDATE, none), 1, most);

        struct far_op_stats before = stats_of(&r, FAR_OP_GET);
        assert_int_equal(far_get(r.session, r.table, key, klen, got, LARGE, &len), FAR_OK);
        assert_true(read_each(&r, FAR_OP_GET, before) > LARGE);
        assert_int_equal(far_delete(r.session, r.table, key, klen), FAR_OK);
        assert_in_range(read_each(&r, FAR_OP_DELETE, none), 1, most);
        store_rig_close(&r);
    }
}

/* Around every size class, with buffers around the value's length: the answer is the same whether
 * or not the value was read. */
static void every_buffer_gets_the_right_answer(void **state)
{
    static const size_t sizes[] = {4000, 4060, 4070, 4096, 5000, 5120, 70000, LARGE - 24, LARGE};
    struct store_rig r;

    (void)state;
    values_fill(value, sizeof value, 3);
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, NULL);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t vlen = sizes[i] - 40; vlen <= sizes[i]; vlen += 4) {
            assert_int_equal(far_put(r.session, r.table, "k", 1, value, vlen), FAR_OK);
            for (unsigned n = 0; n < 6; n++) {
                const size_t caps[] = {0, vlen / 2, vlen - vlen / 8, vlen - 1, vlen, vlen + 1};
                size_t len = 0;
                int rc = far_get(r.session, r.table, "k", 1, got, caps[n], &len);
                assert_int_equal(rc, caps[n] < vlen ? FAR_TOO_SMALL : FAR_OK);
                assert_int_equal(len, vlen);
                if (rc == FAR_OK)
                    assert_memory_equal(got, value, vlen);
            }
        }
    }
    store_rig_close(&r);
}

/* Keys of one fingerprint are distinguished by their beginnings, also if their lengths differ. */
static void large_values_behind_one_fingerprint_are_distinguished(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    static uint8_t key[300];

    (void)state;
    knobs.hash_mask = 0;
    store_rig_open(&r, "mem:?size=64m", &knobs, NULL, NULL);
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(far_put(r.session, r.table, key, 1 + 13 * i, value, 100000 + i), FAR_OK);
    for (unsigned i = 0; i < 20; i++) {
        size_t len = 0;
        assert_int_equal(far_exists(r.session, r.table, key, 1 + 13 * i), FAR_OK);
        assert_int_equal(far_exists(r.session, r.table, key, 2 + 13 * i), FAR_NOT_FOUND);
        assert_int_equal(far_get(r.session, r.table, key, 1 + 13 * i, NULL, 0, &len),
                         FAR_TOO_SMALL);
        assert_int_equal(len, 100000 + i);
    }
    assert_true(stats_of(&r, FAR_OP_EXISTS).bytes_read < 40u * 20 * 512);
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(far_delete(r.session, r.table, key, 1 + 13 * i), FAR_OK);
    store_rig_close(&r);
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* All operations report a damaged head or key; a damaged value, those that read it. */
static void damage_before_the_value_is_reported_by_all_operations(void **state)
{
    struct store_rig r;
    struct race_spot spot;
    size_t len = 0;

    (void)state;
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, NULL);
    assert_int_equal(far_put(r.session, r.table, "key", 3, value, LARGE), FAR_OK);
    race_rig_find(&r, "key", 3, &spot);
    gaddr block = pointer_gaddr(spot.found.slot);
    for (unsigned word = 0; word < 6; word++) { /* 4: the key; 5: the value */
        uint64_t was = store_rig_get(&r, block, word * 8);
        store_rig_set(&r, block, word * 8, was ^ 1ull << 17);
        int expected = word < 5 ? FAR_CORRUPT : FAR_OK;
        assert_int_equal(far_get(r.session, r.table, "key", 3, got, LARGE, &len), FAR_CORRUPT);
        assert_int_equal(far_exists(r.session, r.table, "key", 3), expected);
        assert_int_equal(far_get(r.session, r.table, "key", 3, NULL, 0, &len),
                         word < 5 ? FAR_CORRUPT : FAR_TOO_SMALL);
        if (word < 5)
            assert_int_equal(far_update(r.session, r.table, "key", 3, "", 0), FAR_CORRUPT);
        store_rig_set(&r, block, word * 8, was);
    }
    assert_int_equal(far_get(r.session, r.table, "key", 3, got, LARGE, &len), FAR_OK);
    store_rig_close(&r);
}

/* A slot that promises a longer block than it leads to must not pass for a value that was not
 * read. */
static void a_wrong_size_class_delivers_nothing(void **state)
{
    struct store_rig r;
    struct race_spot spot;
    size_t len = 0;

    (void)state;
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, NULL);
    assert_int_equal(far_put(r.session, r.table, "key", 3, value, 5000), FAR_OK);
    race_rig_find(&r, "key", 3, &spot);
    unsigned place = (unsigned)spot.found.place;
    store_rig_set(&r, spot.look.subtable, race_place_offset(&spot.key, place),
                  pointer_with_class(spot.found.slot, size_class_for(LARGE)));
    memset(got, 0x5a, sizeof got);
    assert_int_equal(far_get(r.session, r.table, "key", 3, got, 6000, &len), FAR_CORRUPT);
    assert_true(got[0] == 0x5a && got[5999] == 0x5a);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_values_come_back_from_mem),
        cmocka_unit_test(the_largest_values_come_back_from_shm),
        cmocka_unit_test(only_a_get_that_has_room_reads_a_large_value),
        cmocka_unit_test(every_buffer_gets_the_right_answer),
        cmocka_unit_test(large_values_behind_one_fingerprint_are_distinguished),
        cmocka_unit_test(damage_before_the_value_is_reported_by_all_operations),
        cmocka_unit_test(a_wrong_size_class_delivers_nothing),
    };
    scratch_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
