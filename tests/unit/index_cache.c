/*
 * The cache of addresses: what is fresh for which operation (CACHE-K1, CACHE-K2), what operations
 * of one session do to each other's entries (CACHE-K5), and that it never has more bytes than it
 * was given.
 */
#include "support/hook.h"
#include "support/pool_rig.h"
#include "support/puppet.h"

#include "base/rng.h"
#include "index/cache.h"

#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define BUDGET 65536u

static struct index_cache *cache_of(size_t budget, size_t entry_bytes, struct cached *cached)
{
    struct index_cache *cache = NULL;
    assert_int_equal(index_cache_new(budget, entry_bytes, cached, &cache), FAR_OK);
    assert_non_null(cache);
    return cache;
}

static void put(struct index_cache *cache, const struct op *op, uint64_t key, uint64_t value)
{
    assert_true(index_cache_put(cache, key, index_cache_stamp(cache, op), &value, sizeof value));
}

static enum index_cache_state find(struct index_cache *cache, const struct op *op, uint64_t key,
                                   uint64_t *value)
{
    struct index_cache_stamp stamp = index_cache_stamp(cache, op);
    struct index_cache_hit hit = {0};
    enum index_cache_state state = index_cache_find(cache, op, key, &stamp, &hit);
    if (state != INDEX_CACHE_MISS && value)
        memcpy(value, hit.data, sizeof *value);
    return state;
}

static struct index_cache_stats stats_of(const struct index_cache *cache)
{
    struct index_cache_stats stats;
    index_cache_stats(cache, &stats);
    return stats;
}

/* ---- the budget ------------------------------------------------------------------------------ */

static void a_cache_that_could_hold_nothing_is_refused(void **state)
{
    struct index_cache *cache = NULL;
    (void)state;
    assert_int_equal(index_cache_new(INDEX_CACHE_BUDGET_MIN - 1, 8, NULL, &cache), FAR_INVALID);
    assert_int_equal(index_cache_new(INDEX_CACHE_BUDGET_MAX + 1, 8, NULL, &cache), FAR_INVALID);
    assert_int_equal(index_cache_new(4096, 4096, NULL, &cache), FAR_INVALID);
    assert_int_equal(index_cache_new(0, 0, NULL, &cache), FAR_INVALID);
    assert_null(cache);
    index_cache_free(cache);
    cache = cache_of(INDEX_CACHE_BUDGET_MIN, 0, NULL);
    index_cache_free(cache);
}

static void an_entry_that_would_drive_out_the_others_is_not_taken(void **state)
{
    struct op op = {.epoch = 1};
    struct index_cache *cache = cache_of(BUDGET, 64, NULL);
    char *large = calloc(1, BUDGET);
    (void)state;
    assert_non_null(large);
    put(cache, &op, 1, 11);
    assert_false(index_cache_put(cache, 1, index_cache_stamp(cache, &op), large, BUDGET / 8));
    assert_false(index_cache_put(cache, 2, index_cache_stamp(cache, &op), large, SIZE_MAX));
    uint64_t value = 0;
    assert_int_equal(find(cache, &op, 1, &value), INDEX_CACHE_FRESH);
    assert_true(value == 11 && stats_of(cache).entries == 1);
    free(large);
    index_cache_free(cache);
}

#define KEYS 1024u

/* What is in the cache is what was put last, whatever was moved, replaced, dropped and evicted
 * since; and the figures are right. That nothing is written outside is for the sanitizer to say. */
static void expect_as_put(struct index_cache *cache, const struct op *op, const uint16_t *bytes,
                          const uint8_t *fill)
{
    struct index_cache_stats before = stats_of(cache);
    uint64_t entries = 0, used = 0;
    for (uint64_t key = 0; key < KEYS; key++) {
        struct index_cache_stamp stamp = index_cache_stamp(cache, op);
        struct index_cache_hit hit;
        if (index_cache_find(cache, op, key, &stamp, &hit) == INDEX_CACHE_MISS)
            continue;
        entries++;
        used += 32 + (hit.bytes + 7) / 8 * 8;
        assert_int_equal(hit.bytes, bytes[key]);
        assert_int_equal((uintptr_t)hit.data % 8, 0);
        for (size_t i = 0; i < hit.bytes; i++)
            assert_int_equal(((const uint8_t *)hit.data)[i], fill[key]);
    }
    assert_true(entries == before.entries && used == before.bytes && used <= before.budget);
}

static void it_never_has_more_than_its_budget(void **state)
{
    static uint16_t bytes[KEYS];
    static uint8_t fill[KEYS], data[8192];
    struct op op = {.epoch = 1};
    struct rng rng;
    (void)state;
    rng_seed(&rng, 7);
    for (size_t budget = INDEX_CACHE_BUDGET_MIN; budget <= BUDGET; budget += 4321) {
        struct index_cache *cache = cache_of(budget, 40, NULL);
        for (unsigned turn = 0; turn < 20000; turn++) {
            uint64_t key = rng_below(&rng, rng_below(&rng, 4) ? 64 : KEYS);
            size_t most = rng_below(&rng, 8) ? 64 : budget / 10 - 32;
            switch (rng_below(&rng, 8)) {
            case 0:
                index_cache_drop(cache, key);
                break;
            case 1:
            case 2:
                (void)find(cache, &op, key, NULL);
                break;
            default:
                bytes[key] = (uint16_t)rng_below(&rng, most + 1);
                fill[key] = (uint8_t)turn;
                memset(data, fill[key], bytes[key]);
                assert_true(
                    index_cache_put(cache, key, index_cache_stamp(cache, &op), data, bytes[key]));
            }
            if (turn % 1000 == 0)
                expect_as_put(cache, &op, bytes, fill);
        }
        expect_as_put(cache, &op, bytes, fill);
        assert_true(stats_of(cache).evictions > 1000);
        /* Most of it is used: what is lost is the end of the ring, and what was replaced. */
        assert_true(stats_of(cache).bytes > budget / 4);
        index_cache_free(cache);
    }
}

static void what_is_used_stays(void **state)
{
    struct op op = {.epoch = 1};
    struct index_cache *cache = cache_of(BUDGET, 8, NULL);
    uint64_t keys = 0, value = 0;
    (void)state;
    for (; stats_of(cache).evictions == 0; keys++)
        put(cache, &op, keys, keys + 1);
    keys -= 2; /* the last one drove the first one out */
    for (unsigned turn = 0; turn < 8; turn++) {
        for (uint64_t key = 2; key < keys; key += 16)
            assert_int_equal(find(cache, &op, key, NULL), INDEX_CACHE_FRESH);
        for (uint64_t n = 0; n < keys / 2; n++)
            put(cache, &op, 1000000 + turn * keys + n, 0);
    }
    for (uint64_t key = 2; key < keys; key += 16) {
        assert_int_equal(find(cache, &op, key, &value), INDEX_CACHE_FRESH);
        assert_true(value == key + 1);
    }
    assert_int_equal(find(cache, &op, 3, NULL), INDEX_CACHE_MISS);
    index_cache_free(cache);
}

/* If everything is used, a put still finds an end soon. */
static void not_everything_can_stay(void **state)
{
    struct op op = {.epoch = 1};
    struct index_cache *cache = cache_of(BUDGET, 8, NULL);
    uint64_t keys = 0;
    (void)state;
    for (; stats_of(cache).evictions == 0; keys++)
        put(cache, &op, keys, 0);
    for (uint64_t key = 1; key < keys; key++)
        assert_int_equal(find(cache, &op, key, NULL), INDEX_CACHE_FRESH);
    uint64_t before = stats_of(cache).evictions;
    put(cache, &op, keys, 0);
    assert_int_equal(stats_of(cache).evictions, before + 1);
    assert_int_equal(find(cache, &op, keys, NULL), INDEX_CACHE_FRESH);
    index_cache_free(cache);
}

static void lookups_are_counted(void **state)
{
    struct op op = {.epoch = 1}, later = {.epoch = 2};
    struct index_cache *cache = cache_of(BUDGET, 8, NULL);
    (void)state;
    put(cache, &op, 1, 1);
    find(cache, &op, 1, NULL);
    find(cache, &op, 1, NULL);
    find(cache, &later, 1, NULL);
    find(cache, &op, 2, NULL);
    struct index_cache_stats stats = stats_of(cache);
    assert_true(stats.fresh == 2 && stats.doubted == 1 && stats.misses == 1);
    assert_true(stats.entries == 1 && stats.bytes == 40 && stats.budget == BUDGET);
    index_cache_drop(cache, 1);
    index_cache_drop(cache, 1);
    stats = stats_of(cache);
    assert_true(stats.entries == 0 && stats.bytes == 0 && stats.evictions == 0);
    index_cache_free(cache);
}

/* ---- CACHE-K1 -------------------------------------------------------------------------------- */

static void an_entry_is_fresh_in_the_epoch_it_was_read_in(void **state)
{
    struct op earlier = {.epoch = 6}, op = {.epoch = 7}, later = {.epoch = 8};
    struct index_cache *cache = cache_of(BUDGET, 8, NULL);
    uint64_t value = 0;
    (void)state;
    assert_int_equal(find(cache, &op, 1, NULL), INDEX_CACHE_MISS);
    put(cache, &op, 1, 11);
    assert_int_equal(find(cache, &op, 1, NULL), INDEX_CACHE_FRESH);
    assert_int_equal(find(cache, &earlier, 1, NULL), INDEX_CACHE_FRESH); /* a sibling in flight */
    assert_int_equal(find(cache, &later, 1, &value), INDEX_CACHE_DOUBTED);
    assert_true(value == 11); /* it is a hint still */
    value = 12;
    index_cache_confirm(cache, 1, index_cache_stamp(cache, &later), &value, 8);
    assert_int_equal(find(cache, &later, 1, &value), INDEX_CACHE_DOUBTED); /* another has put it */
    assert_true(value == 11);
    index_cache_confirm(cache, 2, index_cache_stamp(cache, &later), &value, 8);
    assert_int_equal(find(cache, &later, 2, NULL), INDEX_CACHE_MISS);
    index_cache_confirm(cache, 1, index_cache_stamp(cache, &later), &value, 8);
    assert_int_equal(find(cache, &later, 1, NULL), INDEX_CACHE_FRESH);
    index_cache_confirm(cache, 1, index_cache_stamp(cache, &op), &value, 8); /* comes late */
    assert_int_equal(find(cache, &later, 1, NULL), INDEX_CACHE_FRESH);
    index_cache_free(cache);
}

/* The client may have seen a later epoch by then, and what the operation finds through a fresh
 * entry may have been retired before that. */
static void a_stamp_is_the_epoch_of_its_operation(void **state)
{
    struct client client = puppet_at_epoch(8, 9);
    struct op op = {.client = &client, .epoch = 7};
    struct index_cache *cache = cache_of(BUDGET, 8, NULL);
    (void)state;
    assert_true(index_cache_stamp(cache, &op).epoch == 7);
    index_cache_free(cache);
}

/* A part of the content may say that all of it is true; more than there is cannot be. */
static void an_entry_is_confirmed_by_its_beginning(void **state)
{
    struct op op = {.epoch = 7}, later = {.epoch = 8};
    struct index_cache *cache = cache_of(BUDGET, 8, NULL);
    uint64_t content[3] = {1, 2, 3};
    (void)state;
    assert_true(index_cache_put(cache, 1, index_cache_stamp(cache, &op), content, 16));
    index_cache_confirm(cache, 1, index_cache_stamp(cache, &later), content, 24);
    assert_int_equal(find(cache, &later, 1, NULL), INDEX_CACHE_DOUBTED);
    index_cache_confirm(cache, 1, index_cache_stamp(cache, &later), content, 8);
    assert_int_equal(find(cache, &later, 1, NULL), INDEX_CACHE_FRESH);
    index_cache_free(cache);
}

/* CACHE-K5: answers of two operations may come in any order. */
static void an_older_answer_does_not_replace_a_newer_one(void **state)
{
    struct cached cached = {.version = 3};
    struct op op = {.epoch = 7}, later = {.epoch = 8};
    struct index_cache *cache = cache_of(BUDGET, 8, &cached);
    struct index_cache_stamp slow = index_cache_stamp(cache, &op);
    struct index_cache_stamp slower = index_cache_stamp(cache, &later);
    uint64_t old = 11, value = 0;
    (void)state;
    cached.version = 4;
    put(cache, &later, 1, 12);
    assert_true(index_cache_put(cache, 1, slow, &old, 8));
    assert_true(index_cache_put(cache, 1, slower, &old, 4));
    assert_int_equal(find(cache, &later, 1, &value), INDEX_CACHE_FRESH);
    assert_true(value == 12);
    index_cache_free(cache);
}

/* ---- CACHE-K2 -------------------------------------------------------------------------------- */

static void a_version_that_is_unchanged_keeps_entries_fresh(void **state)
{
    struct cached cached = {.version = 3};
    struct op op = {.epoch = 7}, later = {.epoch = 20};
    struct index_cache *cache = cache_of(BUDGET, 8, &cached);
    (void)state;
    put(cache, &op, 1, 11);
    assert_int_equal(find(cache, &later, 1, NULL), INDEX_CACHE_FRESH);
    cached.stale = true; /* nobody has looked since */
    assert_int_equal(find(cache, &later, 1, NULL), INDEX_CACHE_DOUBTED);
    assert_int_equal(find(cache, &op, 1, NULL), INDEX_CACHE_FRESH); /* CACHE-K1 */
    cached.stale = false;
    cached.version = 4;
    assert_int_equal(find(cache, &later, 1, NULL), INDEX_CACHE_DOUBTED);
    put(cache, &later, 1, 11);
    later.epoch++;
    assert_int_equal(find(cache, &later, 1, NULL), INDEX_CACHE_FRESH);
    index_cache_free(cache);
}

/* What is read through an entry of an older version is not known to be of the newer one: the node
 * that it names may have been unlinked, and what that names retired, before the version became
 * that. */
static void a_path_has_the_oldest_version_on_it(void **state)
{
    struct cached cached = {.version = 3};
    struct op op = {.epoch = 7}, later = {.epoch = 8};
    struct index_cache *cache = cache_of(BUDGET, 8, &cached);
    struct index_cache_hit hit;
    uint64_t value = 22;
    (void)state;
    put(cache, &op, 1, 2);
    cached.version = 4;
    struct index_cache_stamp path = index_cache_stamp(cache, &op);
    assert_int_equal(index_cache_find(cache, &op, 1, &path, &hit), INDEX_CACHE_FRESH);
    assert_true(path.version == 3 && path.epoch == 7);
    assert_true(index_cache_put(cache, 2, path, &value, 8));
    assert_int_equal(find(cache, &op, 2, NULL), INDEX_CACHE_FRESH);
    assert_int_equal(find(cache, &later, 2, NULL), INDEX_CACHE_DOUBTED);
    /* A doubted entry is no part of the path. */
    path = index_cache_stamp(cache, &later);
    assert_int_equal(index_cache_find(cache, &later, 1, &path, &hit), INDEX_CACHE_DOUBTED);
    assert_true(path.version == 4 && path.epoch == 8);
    index_cache_free(cache);
}

/* CACHE-K6: only what the session has retired itself is in doubt. */
static void own_changes_of_the_version_leave_entries_fresh(void **state)
{
    struct cached cached = {.version = 3};
    struct op op = {.epoch = 7}, later = {.epoch = 20};
    struct index_cache *cache = cache_of(BUDGET, 8, &cached);
    (void)state;
    cached.version = 2;
    put(cache, &op, 1, 11);
    cached.version = 3;
    put(cache, &op, 2, 22);
    index_cache_changed(cache, 3, 640);
    put(cache, &op, 3, 33);
    index_cache_changed(cache, 4, 1280);
    assert_int_equal(cached.version, 5);
    assert_int_equal(find(cache, &later, 1, NULL), INDEX_CACHE_DOUBTED);
    assert_int_equal(find(cache, &later, 2, NULL), INDEX_CACHE_FRESH);
    assert_int_equal(find(cache, &later, 3, NULL), INDEX_CACHE_FRESH);
    assert_false(index_cache_retired(cache, 64));
    assert_true(index_cache_retired(cache, 640));
    assert_int_equal(find(cache, &later, 2, NULL), INDEX_CACHE_DOUBTED);
    assert_int_equal(find(cache, &later, 3, NULL), INDEX_CACHE_DOUBTED);
    assert_false(index_cache_retired(cache, 640)); /* the list is empty */
    index_cache_free(cache);
}

static void changes_by_others_put_all_entries_in_doubt(void **state)
{
    struct cached cached = {.version = 3};
    struct op op = {.epoch = 7}, later = {.epoch = 20};
    struct index_cache *cache = cache_of(BUDGET, 8, &cached);
    (void)state;
    put(cache, &op, 1, 11);
    index_cache_changed(cache, 3, 640);
    index_cache_changed(cache, 5, 1280); /* somebody else has changed it from 4 */
    assert_int_equal(cached.version, 4);
    cached.version = 6; /* read again */
    assert_int_equal(find(cache, &later, 1, NULL), INDEX_CACHE_DOUBTED);
    index_cache_changed(cache, 6, 1920);
    assert_int_equal(find(cache, &later, 1, NULL), INDEX_CACHE_DOUBTED);
    cached.version = 4; /* an older answer that comes late */
    assert_int_equal(find(cache, &later, 1, NULL), INDEX_CACHE_DOUBTED);
    index_cache_free(cache);
}

/* The list has room for some, and no retired object is left out of it while its entries count as
 * fresh. */
static void the_list_of_retired_objects_is_bounded(void **state)
{
    struct cached cached = {.version = 3};
    struct op op = {.epoch = 7}, later = {.epoch = 20};
    struct index_cache *cache = cache_of(BUDGET, 8, &cached);
    unsigned n = 0;
    (void)state;
    put(cache, &op, 1, 11);
    while (n < BUDGET && find(cache, &later, 1, NULL) == INDEX_CACHE_FRESH)
        index_cache_changed(cache, cached.version, 64 * (uint64_t)++n);
    assert_true(n > 16 && n < BUDGET / 64);
    put(cache, &op, 1, 11);
    index_cache_changed(cache, cached.version, 64);
    assert_int_equal(find(cache, &later, 1, NULL), INDEX_CACHE_FRESH);
    assert_true(index_cache_retired(cache, 64));
    index_cache_free(cache);
}

static struct client *landing; /* whose flight lands while the version is read */

static int post_and_land(struct fab_ep *ep, struct fab_req *req)
{
    hook_run(ep, req);
    puppet_land(landing);
    return FAR_OK;
}

static void a_version_is_read_in_a_round_trip(void **state)
{
    struct cached cached = {.version_delta = 8, .stale = true};
    struct op old = {.epoch = 0};
    struct pool_rig r;
    (void)state;
    pool_rig_open(&r, "mem:?size=4m");
    assert_int_equal(pool_alloc(&r.op, 0, 0, &cached.version_at), FAR_OK);
    pool_rig_set(&r, 0, gaddr_offset(cached.version_at) + 8, 5);
    struct index_cache *cache = cache_of(BUDGET, 8, &cached);
    put(cache, &old, 1, 11); /* of another version */
    assert_int_equal(op_begin(&r.op, NULL), FAR_OK);
    uint64_t trips = r.op.cost.rtts;
    assert_int_equal(index_cache_refresh(&r.op, NULL, cache), FAR_OK);
    assert_true(r.op.cost.rtts == trips + 1);
    assert_true(cached.version == 5 && !cached.stale);
    struct op later = {.epoch = puppet_epoch_seen(&r.client) + 1};
    assert_int_equal(find(cache, &later, 1, NULL), INDEX_CACHE_DOUBTED);
    put(cache, &old, 1, 12);
    assert_int_equal(find(cache, &later, 1, NULL), INDEX_CACHE_FRESH);
    op_end(&r.op);
    index_cache_free(cache);
    pool_rig_close(&r);
}

/* If a flight lands while the version is read, operations may begin in a later epoch, while the
 * version may have been read before that. It counts for those that began before. */
static void a_version_counts_from_when_it_was_asked_for(void **state)
{
    struct cached cached = {.stale = true};
    struct op old = {.epoch = 0};
    struct pool_rig r;
    (void)state;
    pool_rig_open(&r, "mem:?size=4m");
    assert_int_equal(pool_alloc(&r.op, 0, 0, &cached.version_at), FAR_OK);
    pool_rig_set(&r, 0, gaddr_offset(cached.version_at), 0);
    struct index_cache *cache = cache_of(BUDGET, 8, &cached);
    assert_int_equal(op_begin(&r.op, NULL), FAR_OK);
    puppet_pass_epochs(&r.client, 3);
    r.op.epoch = puppet_epoch_seen(&r.client);
    put(cache, &old, 1, 11);
    assert_int_equal(find(cache, &r.op, 1, NULL), INDEX_CACHE_DOUBTED);
    landing = &r.client;
    hook_on(r.ep);
    hook.ops.post = post_and_land;
    assert_int_equal(index_cache_refresh(&r.op, NULL, cache), FAR_OK);
    hook_off();
    assert_true(cached.stale);
    struct op later = {.epoch = puppet_epoch_seen(&r.client)};
    assert_int_equal(find(cache, &r.op, 1, NULL), INDEX_CACHE_FRESH);
    assert_int_equal(find(cache, &later, 1, NULL), INDEX_CACHE_DOUBTED);
    op_end(&r.op);
    index_cache_free(cache);
    pool_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cache_that_could_hold_nothing_is_refused),
        cmocka_unit_test(an_entry_that_would_drive_out_the_others_is_not_taken),
        cmocka_unit_test(it_never_has_more_than_its_budget),
        cmocka_unit_test(what_is_used_stays),
        cmocka_unit_test(not_everything_can_stay),
        cmocka_unit_test(lookups_are_counted),
        cmocka_unit_test(an_entry_is_fresh_in_the_epoch_it_was_read_in),
        cmocka_unit_test(a_stamp_is_the_epoch_of_its_operation),
        cmocka_unit_test(an_entry_is_confirmed_by_its_beginning),
        cmocka_unit_test(an_older_answer_does_not_replace_a_newer_one),
        cmocka_unit_test(a_version_that_is_unchanged_keeps_entries_fresh),
        cmocka_unit_test(a_path_has_the_oldest_version_on_it),
        cmocka_unit_test(own_changes_of_the_version_leave_entries_fresh),
        cmocka_unit_test(changes_by_others_put_all_entries_in_doubt),
        cmocka_unit_test(the_list_of_retired_objects_is_bounded),
        cmocka_unit_test(a_version_is_read_in_a_round_trip),
        cmocka_unit_test(a_version_counts_from_when_it_was_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
