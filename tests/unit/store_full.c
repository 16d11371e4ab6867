/* What happens when there is no room: errors that are clean, and everything else goes on. Time is
 * the test's own: how long a session waits for memory does not depend on the machine. */
#include "support/fill.h"
#include "support/puppet.h"
#include "support/indexes.h"
#include "support/race_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define UPDATES 20000u

/* Member by member: what is between them is anything. */
static void expect_same_info(const struct far_pool_info *a, const struct far_pool_info *b)
{
    assert_int_equal(a->nodes, b->nodes);
    assert_int_equal(a->layout_version, b->layout_version);
    assert_int_equal(a->clients, b->clients);
    assert_int_equal(a->clients_max, b->clients_max);
    assert_int_equal(a->tables, b->tables);
    assert_true(a->bytes_total == b->bytes_total);
    assert_true(a->bytes_metadata == b->bytes_metadata);
    assert_true(a->bytes_allocated == b->bytes_allocated);
    assert_true(a->bytes_free == b->bytes_free);
}

/* All keys are there, can be read and deleted, and nothing is wrong with the table. */
static void expect_usable(struct store_rig *r, uint32_t keys)
{
    struct far_table_info info;

    assert_int_equal(far_table_check(r->session, r->table, NULL, NULL), FAR_OK);
    for (uint32_t i = 0; i < keys; i++)
        key_holds(r, i, i);
    assert_int_equal(far_table_info(r->session, r->table, &info), FAR_OK);
    assert_int_equal(info.keys, keys);
    for (uint32_t i = 0; i < keys; i++)
        assert_int_equal(far_delete(r->session, r->table, &i, sizeof i), FAR_OK);
    for (uint32_t i = 0; i < keys; i++)
        assert_int_equal(far_exists(r->session, r->table, &i, sizeof i), FAR_NOT_FOUND);
    assert_int_equal(far_table_check(r->session, r->table, NULL, NULL), FAR_OK);
}

static void a_full_pool_keeps_what_it_has(void **state)
{
    static const char *const uris[] = {"mem:?size=1m", "mem:?size=1m&nodes=2",
                                       "mem:?size=1m&defer=1"};

    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        struct far_table_options options = {.tuning = i % 2 ? NULL : indexes_smallest()};
        struct far_pool_info before, after;
        struct store_rig r;
        store_rig_open_driven(&r, uris[i / 2], NULL, NULL, &options);
        uint32_t keys = fill(&r, FAR_POOL_FULL);
        assert_true(keys > 100);
        assert_int_equal(far_pool_info(r.session, &before), FAR_OK);
        uint64_t retired = puppet_retired_bytes(&r.session->client);
        for (uint32_t k = keys; k < keys + 100; k++) { /* trying again does no harm */
            int rc = far_insert(r.session, r.table, &k, sizeof k, &k, sizeof k);
            if (rc == FAR_OK) { /* in a part of the table that has a place left */
                assert_int_equal(far_delete(r.session, r.table, &k, sizeof k), FAR_OK);
                retired = puppet_retired_bytes(&r.session->client);
            } else {
                assert_int_equal(rc, FAR_POOL_FULL);
                assert_int_equal(far_exists(r.session, r.table, &k, sizeof k), FAR_NOT_FOUND);
            }
        }
        assert_int_equal(far_pool_info(r.session, &after), FAR_OK);
        expect_same_info(&before, &after);
        assert_true(puppet_retired_bytes(&r.session->client) <=
                    retired); /* some may have come back */
        expect_usable(&r, keys);
        store_rig_close(&r);
    }
}

/* Values too large for what is left fail, smaller ones do not. */
static void a_large_value_that_does_not_fit_stops_nobody(void **state)
{
    static uint8_t big[FAR_VALUE_MAX];
    struct store_rig r;
    uint32_t key = 0;
    size_t len = 0;

    (void)state;
    store_rig_open_driven(&r, "mem:?size=8m", NULL, NULL, NULL);
    int rc = FAR_OK;
    for (; rc == FAR_OK && key < 100; key++)
        rc = far_put(r.session, r.table, &key, sizeof key, big, sizeof big);
    assert_int_equal(rc, FAR_POOL_FULL);
    key--;
    assert_int_equal(far_exists(r.session, r.table, &key, sizeof key), FAR_NOT_FOUND);
    assert_int_equal(far_put(r.session, r.table, &key, sizeof key, "small", 5), FAR_OK);
    uint32_t first = 0;
    assert_int_equal(far_update(r.session, r.table, &first, sizeof first, big, sizeof big),
                     FAR_POOL_FULL);
    assert_int_equal(far_get(r.session, r.table, &first, sizeof first, big, sizeof big, &len),
                     FAR_OK);
    assert_int_equal(len, sizeof big); /* as it was */
    assert_int_equal(far_update(r.session, r.table, &first, sizeof first, "small", 5), FAR_OK);
    assert_int_equal(far_get(r.session, r.table, &first, sizeof first, big, sizeof big, &len),
                     FAR_OK);
    assert_int_equal(len, 5);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

/* What an update replaces comes back: twenty times the pool goes through one key. */
static void updates_never_use_memory_up(void **state)
{
    struct store_rig r;
    uint32_t key = 1;
    uint8_t value[1000] = {0};
    size_t len = 0;

    (void)state;
    store_rig_open_driven(&r, "mem:?size=1m", NULL, NULL, NULL);
    for (uint32_t i = 0; i < UPDATES; i++) {
        memcpy(value, &i, sizeof i);
        assert_int_equal(far_put(r.session, r.table, &key, sizeof key, value, sizeof value),
                         FAR_OK);
    }
    assert_int_equal(far_get(r.session, r.table, &key, sizeof key, value, sizeof value, &len),
                     FAR_OK);
    uint32_t last = UPDATES - 1;
    assert_memory_equal(value, &last, sizeof last);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

/* A full pool, some keys deleted, as many inserted: again and again, nothing gets lost. */
static void deletes_make_room_for_inserts(void **state)
{
    static const char *const uris[] = {"mem:?size=1m", "mem:?size=1m&nodes=2",
                                       "mem:?size=1m&defer=1"};
    (void)state;
    for (unsigned u = 0; u < 3; u++) {
        struct store_rig r;
        store_rig_open_driven(&r, uris[u], NULL, NULL, NULL);
        uint32_t keys = fill(&r, FAR_POOL_FULL), first = 0;
        for (unsigned round = 0; round < 8; round++) {
            for (uint32_t i = 0; i < keys / 4; i++, first++)
                assert_int_equal(far_delete(r.session, r.table, &first, sizeof first), FAR_OK);
            for (uint32_t i = 0; i < keys / 4; i++) {
                uint32_t k = first + keys - keys / 4 + i;
                assert_int_equal(far_insert(r.session, r.table, &k, sizeof k, &k, sizeof k),
                                 FAR_OK);
            }
        }
        for (uint32_t k = first; k < first + keys; k++)
            key_holds(&r, k, k);
        assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
        store_rig_close(&r);
    }
}

/* Chunks that were cut into small objects, all of them free again, can be cut into others. */
static void deletes_make_room_for_other_sizes(void **state)
{
    struct far_pool_check check;
    struct store_rig r;
    uint8_t big[10000] = {1};

    (void)state;
    store_rig_open_driven(&r, "mem:?size=4m", NULL, NULL, NULL);
    uint32_t keys = fill(&r, FAR_POOL_FULL), key = KEYS_MAX;
    for (uint32_t i = 0; i < keys; i++)
        assert_int_equal(far_delete(r.session, r.table, &i, sizeof i), FAR_OK);
    for (unsigned i = 0; i < 60; i++, key++)
        assert_int_equal(far_insert(r.session, r.table, &key, sizeof key, big, sizeof big), FAR_OK);
    assert_int_equal(far_pool_check(r.session, false, NULL, NULL, &check), FAR_OK);
    assert_true(check.leaked_bytes == 0);
    store_rig_close(&r);
}

/* And what was tried for it has not used up the pool. */
static void a_table_that_does_not_fit_is_not_made(void **state)
{
    static const uint64_t wishes[] = {1000000, 1ull << 40, UINT64_MAX};
    struct far_pool_info before, after;
    struct store_rig r;
    far_table *table = NULL;

    (void)state;
    store_rig_open_driven(&r, "mem:?size=8m&nodes=2", NULL, NULL, NULL);
    assert_int_equal(far_put(r.session, r.table, "k", 1, "v", 1), FAR_OK);
    assert_int_equal(far_pool_info(r.session, &before), FAR_OK);
    for (unsigned i = 0; i < 3; i++) {
        struct far_table_options options = {.expected_keys = wishes[i]};
        assert_int_equal(far_table_create(r.session, "u", "race", &options, &table), FAR_POOL_FULL);
        assert_null(table);
        assert_int_equal(far_table_open(r.session, "u", NULL, &table), FAR_NO_TABLE);
    }
    assert_int_equal(far_pool_info(r.session, &after), FAR_OK);
    /* Looking for lost memory, it may have taken a chunk of pages to list the found on. */
    assert_true(after.bytes_allocated - before.bytes_allocated <= 2 * CHUNK_BYTES);
    assert_int_equal(after.bytes_free + after.bytes_allocated,
                     before.bytes_free + before.bytes_allocated);
    assert_int_equal(after.tables, before.tables);
    assert_int_equal(far_exists(r.session, r.table, "k", 1), FAR_OK);
    struct far_table_options fits = {.expected_keys = 100000};
    assert_int_equal(far_table_create(r.session, "u", "race", &fits, &table), FAR_OK);
    store_rig_close(&r);
}

/* Keys whose hashes are all the same have 28 places, and no split makes more. */
static void a_table_that_cannot_grow_keeps_what_it_has(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct far_table_options options = {.tuning = "groups=2"};
    struct store_rig r;

    (void)state;
    knobs.hash_mask = 0;
    store_rig_open_driven(&r, "mem:?size=16m", &knobs, NULL, &options);
    uint32_t keys = fill(&r, FAR_TABLE_FULL);
    assert_int_equal(keys, 28);
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t more = keys + i, same = i % keys;
        assert_int_equal(far_put(r.session, r.table, &more, sizeof more, "v", 1), FAR_TABLE_FULL);
        assert_int_equal(far_put(r.session, r.table, &same, sizeof same, &same, sizeof same),
                         FAR_OK);
        assert_int_equal(far_delete(r.session, r.table, &same, sizeof same), FAR_OK);
        assert_int_equal(far_insert(r.session, r.table, &same, sizeof same, &same, sizeof same),
                         FAR_OK);
    }
    expect_usable(&r, keys);
    store_rig_close(&r);
}

/*
 * A split reads the blocks whose keys are longer than a glance all at one length, that of the
 * longest. One that ends where the pool ends must not be read past its end.
 */
static void a_split_does_not_read_past_the_end_of_the_pool(void **state)
{
    static uint8_t long_key[FAR_KEY_MAX], edge_key[100];
    struct far_table_options options = {.tuning = "groups=2"};
    struct store_rig r;
    struct far_table_info info;
    gaddr at = 0;

    (void)state;
    store_rig_open_driven(&r, "mem:?size=2m", NULL, NULL, &options);
    struct op *op = &r.session->op;
    const struct node_head *head = &r.pool->pool.head[0];
    uint64_t end = head->chunks_off64 * 64ull + head->chunks * CHUNK_BYTES;
    assert_true(end == head->size);

    /* Memory for short keys and for the long one is taken while there is some; then the last chunk
     * of the pool is given to the class of the edge key, and used up but for its last object. */
    assert_int_equal(far_put(r.session, r.table, "a", 1, "v", 1), FAR_OK);
    assert_int_equal(far_put(r.session, r.table, long_key, sizeof long_key, "v", 1), FAR_OK);
    while (store_rig_get(&r, gaddr_make(0, 0), NODE_NEXT_CHUNK_OFF) < head->chunks - 1ull)
        assert_int_equal(pool_alloc(op, 0, size_class_for(CHUNK_BYTES), &at), FAR_OK);
    unsigned edge_class = size_class_for(block_bytes(sizeof edge_key, 1));
    uint64_t edge = end - size_class_bytes(edge_class);
    do
        assert_int_equal(pool_alloc(op, 0, edge_class, &at), FAR_OK);
    while (gaddr_offset(at) + size_class_bytes(edge_class) < edge);
    assert_int_equal(far_put(r.session, r.table, edge_key, sizeof edge_key, "v", 1), FAR_OK);

    for (uint32_t i = 0; i < 200; i++)
        assert_int_equal(far_insert(r.session, r.table, &i, sizeof i, &i, sizeof i), FAR_OK);
    assert_int_equal(far_table_info(r.session, r.table, &info), FAR_OK);
    assert_true(info.splits >= 1);
    assert_int_equal(info.keys, 203);
    assert_int_equal(far_exists(r.session, r.table, long_key, sizeof long_key), FAR_OK);
    assert_int_equal(far_exists(r.session, r.table, edge_key, sizeof edge_key), FAR_OK);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

/* Both children of a split live on one node. Of three, only the one asked last has room for two. */
static void a_split_finds_the_node_with_room_for_both_children(void **state)
{
    struct far_table_options options = {.tuning = "groups=2", .hash_seed = 1};
    unsigned size_class = race_subtable_class(2), splits = 0;
    struct store_rig r;
    gaddr at = 0, kept[3][2] = {{0}};
    int rc = FAR_OK;

    (void)state;
    store_rig_open_driven(&r, "mem:?size=1m&nodes=3", NULL, NULL, &options);
    struct op *op = &r.session->op;
    for (uint32_t i = 0; i < 50; i++) /* every node has memory for blocks */
        assert_int_equal(far_insert(r.session, r.table, &i, sizeof i, &i, sizeof i), FAR_OK);
    for (unsigned node = 0; node < 3; node++)
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(pool_alloc(op, node, size_class, &kept[node][i]), FAR_OK);
            assert_int_equal(gaddr_node(kept[node][i]), node);
        }
    while (pool_alloc(op, 0, size_class, &at) == FAR_OK)
        ;
    static const unsigned left[3] = {1, 1, 2};
    for (unsigned node = 0; node < 3; node++)
        for (unsigned i = 0; i < left[node]; i++)
            pool_free_unpublished(op->client, kept[node][i], size_class);

    struct race_view *view = race_rig_view(&r);
    for (uint32_t i = 50; i < 10000 && rc == FAR_OK && splits == 0; i++) {
        struct race_key key;
        race_hash(view, (struct slice){&i, sizeof i}, &key);
        uint64_t entry = view->entries[key.hash & ((1ull << view->depth) - 1)];
        if (gaddr_node(race_entry_subtable(entry)) == 0)
            rc = far_insert(r.session, r.table, &i, sizeof i, &i, sizeof i);
        splits = (unsigned)view->base.grown;
    }
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(splits, 1);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

int main(int argc, char **argv)
{
    indexes_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_pool_keeps_what_it_has),
        cmocka_unit_test(a_large_value_that_does_not_fit_stops_nobody),
        cmocka_unit_test(updates_never_use_memory_up),
    };
    /* In RACE a new key may take the place of any other, and all of its parts have one size. */
    const struct CMUnitTest of_race[] = {
        cmocka_unit_test(deletes_make_room_for_inserts),
        cmocka_unit_test(deletes_make_room_for_other_sizes),
        cmocka_unit_test(a_table_that_does_not_fit_is_not_made),
        cmocka_unit_test(a_table_that_cannot_grow_keeps_what_it_has),
        cmocka_unit_test(a_split_does_not_read_past_the_end_of_the_pool),
        cmocka_unit_test(a_split_finds_the_node_with_room_for_both_children),
    };
    int failed = INDEXES_RUN(tests);
    return failed + cmocka_run_group_tests(of_race, NULL, NULL);
}
