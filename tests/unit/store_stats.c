/* What operations cost, in round trips, and how statistics and table_info count. */
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS (SLOWER > 1 ? 50000u : 100000u)

static void rig(struct store_rig *r, const char *uri)
{
    struct far_session_options session = {.seed = 3};
    struct far_table_options table = {.tuning = "hot=0",
                                      .hash_seed = 17}; /* race_hot.c has hints */

    store_rig_open(r, uri, NULL, &session, &table);
}

/* 16-byte keys, as in the benchmark. */
struct key {
    uint64_t n, mixed;
};

static struct key key_of(uint64_t n)
{
    return (struct key){.n = n, .mixed = n * 0x9e3779b97f4a7c15};
}

static void load(struct store_rig *r, uint64_t keys)
{
    uint8_t value[32] = {1};

    for (uint64_t i = 0; i < keys; i++) {
        struct key k = key_of(i);
        assert_int_equal(far_put(r->session, r->table, &k, sizeof k, value, sizeof value), FAR_OK);
    }
}

static struct far_op_stats stats_of(struct store_rig *r, enum far_op_kind kind)
{
    struct far_stats stats;
    far_stats(r->session, r->table, &stats);
    return stats.op[kind];
}

static double per_op(struct far_op_stats s, uint64_t total)
{
    return (double)total / (double)s.count;
}

/* Growth from nothing, with every split charged to the put that caused it. */
static void puts_of_new_keys_take_three_round_trips_and_some_splits(void **state)
{
    static const char *const uris[] = {"mem:?size=256m", "mem:?size=128m&nodes=3"};

    (void)state;
    for (unsigned u = 0; u < 2; u++) {
        struct far_table_info info;
        struct store_rig r;

        rig(&r, uris[u]);
        load(&r, KEYS);
        struct far_op_stats put = stats_of(&r, FAR_OP_PUT);
        assert_true(put.count == KEYS);
        assert_true(per_op(put, put.rtts) >= 3.0);
        assert_true(per_op(put, put.rtts) <= 3.2);
        assert_int_equal(far_table_info(r.session, r.table, &info), FAR_OK);
        assert_int_equal(info.keys, KEYS);
        assert_true(info.splits > 0);
        assert_true(info.split_load_max >= 0.85);
        assert_true(info.split_load_max <= 1.0);
        assert_true(info.split_load_mean <= info.split_load_max);
        assert_true(info.split_load_mean > 0.7);
        assert_true(info.client_cache_bytes < 64 * 1024);
        assert_true(info.load_factor > 0.35 && info.load_factor < 0.95);
        assert_true(info.block_bytes == KEYS * 64ull); /* 16 + 16 + 32 */
        assert_true(info.index_bytes > info.slots * 8);
        assert_true(info.split_ns > 0);
        assert_string_equal(info.figure[0].name, "header_bytes");
        assert_int_equal(info.figure[0].value, info.slots / (85 * 21) * 8 * (8 + 3 * 85));
        assert_string_equal(info.figure[1].name, "directory_bytes");
        assert_true(info.figure[1].value >= 8 * (info.splits + 1));
        assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
        store_rig_close(&r);
    }
}

static void reads_take_two_round_trips_and_changes_three(void **state)
{
    struct store_rig r;
    uint8_t buf[32], value[32] = {2};
    size_t len = 0;

    (void)state;
    rig(&r, "mem:?size=256m");
    load(&r, KEYS);
    for (uint64_t i = 0; i < KEYS; i++) {
        struct key k = key_of(i), absent = key_of(i + KEYS);
        assert_int_equal(far_get(r.session, r.table, &k, sizeof k, buf, 32, &len), FAR_OK);
        assert_int_equal(far_exists(r.session, r.table, &absent, sizeof absent), FAR_NOT_FOUND);
        assert_int_equal(far_update(r.session, r.table, &k, sizeof k, value, 32), FAR_OK);
        assert_int_equal(far_insert(r.session, r.table, &k, sizeof k, value, 32), FAR_EXISTS);
        if (i % 2)
            assert_int_equal(far_delete(r.session, r.table, &k, sizeof k), FAR_OK);
    }
    struct far_op_stats get = stats_of(&r, FAR_OP_GET), exists = stats_of(&r, FAR_OP_EXISTS);
    struct far_op_stats update = stats_of(&r, FAR_OP_UPDATE), gone = stats_of(&r, FAR_OP_DELETE);
    struct far_op_stats insert = stats_of(&r, FAR_OP_INSERT);

    assert_true(get.count == KEYS && get.not_found == 0 && get.errors == 0);
    uint64_t took = 0, rtts = 0;
    for (unsigned i = 0; i < FAR_RTTS_TOLD; i++) {
        took += get.took[i];
        rtts += i * get.took[i];
    }
    assert_true(took == KEYS && rtts == get.rtts); /* none took that many */
    assert_true(per_op(get, get.rtts) >= 2.0 && per_op(get, get.rtts) <= 2.05);
    assert_true(per_op(get, get.verbs) >= 3.0 && per_op(get, get.verbs) <= 3.2);
    assert_true(per_op(get, get.bytes_read) >= 2 * 128 + 64);
    /* Now and then one carries an announcement, or passes on what the updates left over. */
    assert_true(per_op(get, get.bytes_written) < 2);

    /* A miss reads no block unless another key has its fingerprint: 28 places, 256 of them. */
    assert_true(exists.count == KEYS && exists.not_found == KEYS && exists.errors == 0);
    assert_true(per_op(exists, exists.rtts) >= 1.0 && per_op(exists, exists.rtts) <= 1.15);

    assert_true(update.count == KEYS && update.not_found == 0 && update.errors == 0);
    assert_true(per_op(update, update.rtts) >= 3.0 && per_op(update, update.rtts) <= 3.1);
    assert_true(per_op(update, update.bytes_written) >= 64);

    assert_true(insert.count == KEYS && insert.exists == KEYS && insert.errors == 0);
    assert_true(per_op(insert, insert.rtts) >= 2.0 && per_op(insert, insert.rtts) <= 2.05);

    assert_true(gone.count == KEYS / 2 && gone.not_found == 0 && gone.errors == 0);
    assert_true(per_op(gone, gone.rtts) >= 3.0 && per_op(gone, gone.rtts) <= 3.1);
    store_rig_close(&r);
}

/* Another session has grown the table: each stale entry of the cache costs once, not always. */
static void a_stale_cache_costs_little(void **state)
{
    struct store_rig r;
    far_session *reader = NULL;
    struct far_stats stats;
    uint8_t buf[32];
    size_t len = 0;

    (void)state;
    rig(&r, "mem:?size=256m");
    load(&r, 10);
    assert_int_equal(far_session_open(r.pool, NULL, &reader), FAR_OK);
    struct key k = key_of(0);
    assert_int_equal(far_get(reader, r.table, &k, sizeof k, buf, 32, &len), FAR_OK);
    load(&r, KEYS); /* many splits, unknown to the reader */
    for (uint64_t i = 0; i < KEYS; i++) {
        k = key_of(i);
        assert_int_equal(far_get(reader, r.table, &k, sizeof k, buf, 32, &len), FAR_OK);
    }
    far_stats(reader, r.table, &stats);
    struct far_op_stats get = stats.op[FAR_OP_GET];
    assert_true(per_op(get, get.rtts) <= 2.05);
    far_session_close(reader);
    store_rig_close(&r);
}

static void tables_kinds_and_sessions_are_counted_apart(void **state)
{
    struct store_rig r;
    far_session *second = NULL;
    far_table *other = NULL;
    struct far_stats mine, others, seconds;

    (void)state;
    rig(&r, "mem:?size=32m");
    assert_int_equal(far_table_create(r.session, "u", "race", NULL, &other), FAR_OK);
    assert_int_equal(far_session_open(r.pool, NULL, &second), FAR_OK);
    far_stats(r.session, r.table, &mine);
    for (unsigned i = 0; i < FAR_OP_KINDS; i++)
        assert_true(mine.op[i].count == 0 && mine.op[i].rtts == 0 && mine.op[i].verbs == 0);

    assert_int_equal(far_put(r.session, r.table, "a", 1, "v", 1), FAR_OK);
    assert_int_equal(far_insert(r.session, r.table, "a", 1, "v", 1), FAR_EXISTS);
    assert_int_equal(far_update(r.session, r.table, "b", 1, "v", 1), FAR_NOT_FOUND);
    assert_int_equal(far_delete(r.session, r.table, "b", 1), FAR_NOT_FOUND);
    assert_int_equal(far_get(r.session, r.table, "a", 1, NULL, 0, NULL), FAR_TOO_SMALL);
    assert_int_equal(far_put(r.session, other, "a", 1, "v", 1), FAR_OK);
    assert_int_equal(far_exists(second, other, "a", 1), FAR_OK);
    far_stats(r.session, r.table, &mine);
    far_stats(r.session, other, &others);
    far_stats(second, other, &seconds);

    static const struct {
        enum far_op_kind kind;
        unsigned not_found, exists, errors;
    } expected[] = {{FAR_OP_PUT, 0, 0, 0},
                    {FAR_OP_INSERT, 0, 1, 0},
                    {FAR_OP_UPDATE, 1, 0, 0},
                    {FAR_OP_DELETE, 1, 0, 0},
                    {FAR_OP_GET, 0, 0, 1}};
    for (unsigned i = 0; i < 5; i++) {
        const struct far_op_stats *s = &mine.op[expected[i].kind];
        assert_true(s->count == 1 && s->rtts >= 1 && s->verbs >= s->rtts);
        assert_true(s->not_found == expected[i].not_found);
        assert_true(s->exists == expected[i].exists);
        assert_true(s->errors == expected[i].errors);
    }
    assert_true(mine.op[FAR_OP_EXISTS].count == 0);
    for (unsigned i = 0; i < FAR_OP_KINDS; i++) {
        assert_true(others.op[i].count == (i == FAR_OP_PUT));
        assert_true(seconds.op[i].count == (i == FAR_OP_EXISTS));
    }
    far_session_close(second);
    store_rig_close(&r);
}

/* What is asked of a table as a whole is nobody's operation. */
static void walking_a_table_is_not_charged_to_operations(void **state)
{
    struct store_rig r;
    struct far_table_info info;
    struct far_pool_info pool;
    struct far_stats before, after;

    (void)state;
    rig(&r, "mem:?size=32m");
    load(&r, 1000);
    far_stats(r.session, r.table, &before);
    assert_int_equal(far_table_info(r.session, r.table, &info), FAR_OK);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    assert_int_equal(far_pool_info(r.session, &pool), FAR_OK);
    far_stats(r.session, r.table, &after);
    assert_memory_equal(&before, &after, sizeof before);
    struct key k = key_of(1);
    assert_int_equal(far_exists(r.session, r.table, &k, sizeof k), FAR_OK);
    assert_true(stats_of(&r, FAR_OP_EXISTS).rtts == 2);
    store_rig_close(&r);
}

static unsigned subtables_read;

static void count_subtables(struct batch_tap *tap, const struct fab_verb *verbs, unsigned count)
{
    (void)tap;
    for (unsigned i = 0; i < count; i++)
        subtables_read += verbs[i].kind == FAB_READ && verbs[i].len == 16384;
}

/* Each subtable was read as often as directory entries lead to it. */
static void a_walk_reads_a_subtable_once(void **state)
{
    struct batch_tap tap = {.posted = count_subtables};
    struct far_table_info info;
    struct store_rig r;

    (void)state;
    rig(&r, "mem:?size=256m");
    load(&r, KEYS);
    r.session->op.batch.tap = &tap;
    assert_int_equal(far_table_info(r.session, r.table, &info), FAR_OK);
    r.session->op.batch.tap = NULL;
    assert_true(info.slots / (85 * 21) == subtables_read);
    store_rig_close(&r);
}

static void info_follows_the_keys(void **state)
{
    struct store_rig r;
    struct far_table_info info;

    (void)state;
    rig(&r, "mem:?size=32m");
    assert_int_equal(far_table_info(r.session, r.table, &info), FAR_OK);
    assert_true(info.keys == 0 && info.block_bytes == 0 && info.splits == 0);
    assert_true(info.slots == 85 * 21 && info.load_factor == 0);
    assert_true(info.split_load_max == 0 && info.split_load_mean == 0);
    load(&r, 100);
    load(&r, 100); /* the same ones: replaced, not added */
    assert_int_equal(far_table_info(r.session, r.table, &info), FAR_OK);
    assert_true(info.keys == 100 && info.block_bytes == 100 * 64);
    for (uint64_t i = 0; i < 40; i++) {
        struct key k = key_of(i);
        assert_int_equal(far_delete(r.session, r.table, &k, sizeof k), FAR_OK);
    }
    assert_int_equal(far_table_info(r.session, r.table, &info), FAR_OK);
    assert_true(info.keys == 60 && info.block_bytes == 60 * 64);
    store_rig_close(&r);
}

/* A table that is created with room for the expected keys does not split while it fills. */
static void expected_keys_make_room(void **state)
{
    struct far_table_options options = {.expected_keys = KEYS, .hash_seed = 1};
    struct far_table_info info;
    struct store_rig r;

    (void)state;
    store_rig_open(&r, "mem:?size=256m&nodes=2", NULL, NULL, &options);
    assert_int_equal(far_table_info(r.session, r.table, &info), FAR_OK);
    assert_true(info.slots * 0.75 >= KEYS && info.slots < KEYS * 8);
    load(&r, KEYS);
    assert_int_equal(far_table_info(r.session, r.table, &info), FAR_OK);
    assert_true(info.splits == 0);
    assert_true(per_op(stats_of(&r, FAR_OP_PUT), stats_of(&r, FAR_OP_PUT).rtts) <= 3.05);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_of_new_keys_take_three_round_trips_and_some_splits),
        cmocka_unit_test(reads_take_two_round_trips_and_changes_three),
        cmocka_unit_test(a_stale_cache_costs_little),
        cmocka_unit_test(tables_kinds_and_sessions_are_counted_apart),
        cmocka_unit_test(walking_a_table_is_not_charged_to_operations),
        cmocka_unit_test(a_walk_reads_a_subtable_once),
        cmocka_unit_test(info_follows_the_keys),
        cmocka_unit_test(expected_keys_make_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
