/* The ring: submit and reap, on a fabric that never waits and on one that always does. */
#include "support/hook.h"
#include "support/race_groups.h"
#include "support/store_rig.h"

#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define DEPTH 16

static const char *const uris[] = {"mem:?size=64m", "mem:?size=64m&defer=1",
                                   "mem:?size=32m&nodes=3&defer=1"};
#define URIS (sizeof uris / sizeof *uris)

static void rig(struct store_rig *r, const char *uri, unsigned depth, unsigned groups)
{
    struct far_session_options session = {.depth = depth, .seed = 5};
    struct far_table_options table = {.tuning = RACE_GROUPS(groups), .hash_seed = 9};

    store_rig_open(r, uri, NULL, &session, &table);
}

static struct far_op op_put(far_table *table, const uint64_t *key, const uint64_t *value)
{
    return (struct far_op){.kind = FAR_OP_PUT,
                           .table = table,
                           .key = key,
                           .key_len = 8,
                           .value = value,
                           .value_len = 8,
                           .user_data = *key};
}

static struct far_op op_get(far_table *table, const uint64_t *key, uint64_t *buf)
{
    return (struct far_op){.kind = FAR_OP_GET,
                           .table = table,
                           .key = key,
                           .key_len = 8,
                           .buf = buf,
                           .cap = 8,
                           .user_data = *key};
}

static uint64_t value_of(struct store_rig *r, uint64_t key)
{
    uint64_t value = 0;
    size_t len = 0;

    assert_int_equal(far_get(r->session, r->table, &key, 8, &value, 8, &len), FAR_OK);
    assert_int_equal(len, 8);
    return value;
}

/* Reaps all that is under way; every status must be FAR_OK. Returns how many there were. */
static unsigned drain(struct store_rig *r)
{
    struct far_result results[7];
    unsigned all = 0, n;

    while ((n = far_reap(r->session, results, 7, 7)) > 0) {
        for (unsigned i = 0; i < n; i++)
            assert_int_equal(results[i].status, FAR_OK);
        all += n;
    }
    return all;
}

static void the_ring_holds_its_depth(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        struct store_rig r;
        struct far_result results[2 * DEPTH];
        uint64_t key[DEPTH + 1];
        bool seen[DEPTH] = {false};

        rig(&r, uris[u], DEPTH, 0);
        for (unsigned i = 0; i <= DEPTH; i++)
            key[i] = i;
        for (unsigned i = 0; i < DEPTH; i++) {
            struct far_op op = op_put(r.table, &key[i], &key[i]);
            assert_int_equal(far_submit(r.session, &op), FAR_OK);
        }
        struct far_op more = op_put(r.table, &key[DEPTH], &key[DEPTH]);
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(far_submit(r.session, &more), FAR_RING_FULL);
        assert_int_equal(far_reap(r.session, results, 2 * DEPTH, 2 * DEPTH), DEPTH);
        for (unsigned i = 0; i < DEPTH; i++) {
            assert_int_equal(results[i].status, FAR_OK);
            assert_in_range(results[i].user_data, 0, DEPTH - 1);
            assert_false(seen[results[i].user_data]);
            seen[results[i].user_data] = true;
        }
        assert_int_equal(far_reap(r.session, results, DEPTH, DEPTH), 0);
        assert_int_equal(far_exists(r.session, r.table, &key[DEPTH], 8), FAR_NOT_FOUND);
        assert_int_equal(far_submit(r.session, &more), FAR_OK); /* there is room again */
        assert_int_equal(drain(&r), 1);
        assert_true(value_of(&r, DEPTH) == DEPTH);
        store_rig_close(&r);
    }
}

static void rings_of_every_depth_work(void **state)
{
    static const unsigned depths[] = {1, 2, 0, DEEPEST};

    (void)state;
    for (unsigned u = 0; u < 2; u++) {
        for (unsigned d = 0; d < 4; d++) {
            static uint64_t key[DEEPEST + 1];
            struct store_rig r;
            unsigned n = 0, depth = depths[d] ? depths[d] : 32;
            int rc = FAR_OK;

            rig(&r, uris[u], depths[d], 0);
            for (; n <= DEEPEST; n++) {
                key[n] = n;
                struct far_op op = op_put(r.table, &key[n], &key[n]);
                rc = far_submit(r.session, &op);
                if (rc != FAR_OK)
                    break;
            }
            assert_int_equal(rc, FAR_RING_FULL);
            assert_int_equal(n, depth);
            assert_int_equal(drain(&r), depth);
            for (uint64_t i = 0; i < depth; i++)
                assert_true(value_of(&r, i) == i);
            store_rig_close(&r);
        }
    }
}

static void reap_gives_between_min_and_max(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        struct store_rig r;
        struct far_result results[DEPTH];
        uint64_t key[DEPTH];
        unsigned n, left = DEPTH;

        rig(&r, uris[u], DEPTH, 0);
        assert_int_equal(far_reap(r.session, results, DEPTH, 1), 0); /* before the first submit */
        for (unsigned i = 0; i < DEPTH; i++) {
            key[i] = i;
            struct far_op op = op_put(r.table, &key[i], &key[i]);
            assert_int_equal(far_submit(r.session, &op), FAR_OK);
        }
        assert_int_equal(far_reap(r.session, results, 0, 5), 0);
        memset(results, 0xa5, sizeof results);
        n = far_reap(r.session, results, 3, 3);
        assert_int_equal(n, 3);
        assert_true(results[3].user_data == 0xa5a5a5a5a5a5a5a5);
        left -= n;
        n = far_reap(r.session, results, 2, 10); /* min is cut to max */
        assert_int_equal(n, 2);
        left -= n;
        n = far_reap(r.session, results, 4, 1);
        assert_in_range(n, 1, 4);
        left -= n;
        for (unsigned turn = 0; left > 0; turn++) { /* without waiting it gets there too */
            assert_true(turn < 100000);
            n = far_reap(r.session, results, DEPTH, 0);
            assert_true(n <= left);
            left -= n;
        }
        assert_int_equal(far_reap(r.session, results, DEPTH, 1), 0);
        store_rig_close(&r);
    }
}

/* Nothing has happened yet when submit returns, and a reap that does not wait says so. */
static void a_waiting_fabric_leaves_operations_in_flight(void **state)
{
    struct store_rig r;
    struct far_result result;
    uint64_t key = 1, value = 2;

    (void)state;
    rig(&r, "mem:?size=64m&defer=1", DEPTH, 0);
    struct far_op op = op_put(r.table, &key, &value);
    assert_int_equal(far_submit(r.session, &op), FAR_OK);
    assert_int_equal(r.session->running_count, 1);
    assert_int_equal(far_reap(r.session, &result, 1, 0), 0);
    assert_int_equal(far_reap(r.session, &result, 1, 1), 1);
    assert_true(value_of(&r, key) == value);
    store_rig_close(&r);
}

/* ---- results --------------------------------------------------------------------------------- */

/* The same random operations, one by one through the ring and by the functions: same results. */
static void results_are_those_of_the_functions(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        struct store_rig ring, plain;
        struct rng rng;

        rig(&ring, uris[u], DEPTH, 2);
        rig(&plain, uris[0], DEPTH, 2);
        rng_seed(&rng, 21 + u);
        for (unsigned i = 0; i < 8000 / SLOWER; i++) {
            uint64_t key = rng_below(&rng, 300), value = rng_next(&rng);
            uint64_t got[2] = {0x5a5a, 0x5a5a};
            size_t klen = rng_below(&rng, 50) ? 8 : 0;
            size_t vlen = rng_below(&rng, 9), cap = rng_below(&rng, 9);
            struct far_result result;
            struct far_op op = {.kind =
                                    (enum far_op_kind)(FAR_OP_GET + rng_below(&rng, FAR_OP_DELETE)),
                                .table = ring.table,
                                .key = &key,
                                .key_len = klen,
                                .value = &value,
                                .value_len = vlen,
                                .buf = &got[0],
                                .cap = cap,
                                .user_data = rng_next(&rng)};
            int rc = FAR_OK;
            assert_int_equal(far_submit(ring.session, &op), FAR_OK);
            assert_int_equal(far_reap(ring.session, &result, 1, 1), 1);
            assert_true(result.user_data == op.user_data);
            struct far_result executed;
            struct far_op same = op;
            same.table = plain.table;
            same.buf = &got[1];
            rc = far_execute(plain.session, &same, &executed);
            assert_true(executed.user_data == op.user_data && executed.status == rc);
            assert_int_equal(result.len, executed.len);
            assert_memory_equal(&got[0], &got[1], 8);
            assert_int_equal(result.status, rc);
        }
        struct far_stats stats[2]; /* nor do they cost more */
        far_stats(ring.session, ring.table, &stats[0]);
        far_stats(plain.session, plain.table, &stats[1]);
        for (unsigned k = 0; k < FAR_OP_KINDS; k++) {
            assert_true(stats[0].op[k].count == stats[1].op[k].count);
            assert_true(stats[0].op[k].not_found == stats[1].op[k].not_found);
            assert_true(stats[0].op[k].exists == stats[1].op[k].exists);
            assert_true(stats[0].op[k].errors == stats[1].op[k].errors);
        }
        assert_int_equal(far_table_check(ring.session, ring.table, NULL, NULL), FAR_OK);
        store_rig_close(&plain);
        store_rig_close(&ring);
    }
}

/* Errors of an operation are its result, not the submit's. */
static void errors_come_with_the_result(void **state)
{
    (void)state;
    for (unsigned u = 0; u < 2; u++) {
        struct store_rig r;
        struct far_result result;
        uint64_t key = 1, buf = 0x77;

        rig(&r, uris[u], DEPTH, 0);
        struct far_op op = op_get(r.table, &key, &buf);
        op.key_len = 0;
        assert_int_equal(far_submit(r.session, &op), FAR_OK);
        assert_int_equal(far_reap(r.session, &result, 1, 1), 1);
        assert_int_equal(result.status, FAR_KEY_SIZE);
        op = op_put(r.table, &key, &key);
        op.value_len = FAR_VALUE_MAX + 1;
        assert_int_equal(far_submit(r.session, &op), FAR_OK);
        assert_int_equal(far_reap(r.session, &result, 1, 1), 1);
        assert_int_equal(result.status, FAR_VALUE_SIZE);
        op = op_get(r.table, &key, &buf);
        assert_int_equal(far_submit(r.session, &op), FAR_OK);
        assert_int_equal(far_reap(r.session, &result, 1, 1), 1);
        assert_int_equal(result.status, FAR_NOT_FOUND);
        assert_int_equal(far_put(r.session, r.table, &key, 8, "too long for it", 15), FAR_OK);
        assert_int_equal(far_submit(r.session, &op), FAR_OK);
        assert_int_equal(far_reap(r.session, &result, 1, 1), 1);
        assert_int_equal(result.status, FAR_TOO_SMALL);
        assert_int_equal(result.len, 15);
        assert_true(buf == 0x77);
        store_rig_close(&r);
    }
}

/* ---- many in flight -------------------------------------------------------------------------- */

/* Keeps the ring full while a table grows from almost nothing: every split has fibers in it. */
static void a_table_grows_under_a_full_ring(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        enum { KEYS = 6000 / SLOWER };
        static uint64_t key[KEYS];
        struct store_rig r;
        struct far_table_info empty, info;

        rig(&r, uris[u], 64, 2);
        assert_int_equal(far_table_info(r.session, r.table, &empty), FAR_OK);
        for (unsigned i = 0; i < KEYS; i++) {
            key[i] = i;
            struct far_op op = op_put(r.table, &key[i], &key[i]);
            op.kind = FAR_OP_INSERT;
            while (far_submit(r.session, &op) == FAR_RING_FULL) {
                struct far_result results[8];
                unsigned n = far_reap(r.session, results, 8, 1);
                assert_in_range(n, 1, 8);
                for (unsigned k = 0; k < n; k++)
                    assert_int_equal(results[k].status, FAR_OK);
            }
        }
        drain(&r);
        assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
        assert_int_equal(far_table_info(r.session, r.table, &info), FAR_OK);
        assert_int_equal(info.keys, KEYS);
        assert_true(info.splits > 10);
        assert_int_equal(info.splits, (info.slots - empty.slots) / (2 * 21));
        for (uint64_t i = 0; i < KEYS; i++)
            assert_true(value_of(&r, i) == i);
        store_rig_close(&r);
    }
}

/* Operations on one key at the same time: the outcomes are those of some order of them. */
static void operations_on_one_key_have_some_order(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        struct store_rig r;

        rig(&r, uris[u], DEPTH, 2);
        for (unsigned round = 0; round < 300 / SLOWER + 10; round++) {
            struct far_result results[DEPTH];
            uint64_t key = round, value[DEPTH];
            unsigned ok = 0;
            for (unsigned i = 0; i < DEPTH; i++) {
                value[i] = 1000 + i;
                struct far_op op = op_put(r.table, &key, &value[i]);
                op.kind = FAR_OP_INSERT;
                op.user_data = i;
                assert_int_equal(far_submit(r.session, &op), FAR_OK);
            }
            assert_int_equal(far_reap(r.session, results, DEPTH, DEPTH), DEPTH);
            unsigned winner = DEPTH;
            for (unsigned i = 0; i < DEPTH; i++) {
                assert_true(results[i].status == FAR_OK || results[i].status == FAR_EXISTS);
                if (results[i].status == FAR_OK) {
                    winner = (unsigned)results[i].user_data;
                    ok++;
                }
            }
            assert_int_equal(ok, 1);
            assert_true(value_of(&r, key) == value[winner]);
            for (unsigned i = 0; i < DEPTH; i++) {
                struct far_op op = op_get(r.table, &key, NULL);
                op.kind = FAR_OP_DELETE;
                assert_int_equal(far_submit(r.session, &op), FAR_OK);
            }
            ok = 0;
            assert_int_equal(far_reap(r.session, results, DEPTH, DEPTH), DEPTH);
            for (unsigned i = 0; i < DEPTH; i++) {
                assert_true(results[i].status == FAR_OK || results[i].status == FAR_NOT_FOUND);
                ok += results[i].status == FAR_OK;
            }
            assert_int_equal(ok, 1);
            assert_int_equal(far_exists(r.session, r.table, &key, 8), FAR_NOT_FOUND);
        }
        assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
        store_rig_close(&r);
    }
}

/* Puts of one key at once: the last value is one of them, and gets see only what was put. */
static void gets_of_a_key_return_its_old_or_a_new_value(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        struct store_rig r;
        uint64_t key = 1, first = 5000;

        rig(&r, uris[u], DEPTH, 2);
        assert_int_equal(far_put(r.session, r.table, &key, 8, &first, 8), FAR_OK);
        for (unsigned round = 0; round < 300 / SLOWER + 10; round++) {
            struct far_result results[DEPTH];
            uint64_t value[DEPTH], got[DEPTH] = {0}, before = value_of(&r, key);
            for (unsigned i = 0; i < DEPTH; i++) {
                value[i] = 6000 + round * DEPTH + i;
                struct far_op op =
                    i % 2 ? op_put(r.table, &key, &value[i]) : op_get(r.table, &key, &got[i]);
                op.user_data = i;
                assert_int_equal(far_submit(r.session, &op), FAR_OK);
            }
            assert_int_equal(far_reap(r.session, results, DEPTH, DEPTH), DEPTH);
            for (unsigned i = 0; i < DEPTH; i++)
                assert_int_equal(results[i].status, FAR_OK);
            for (unsigned i = 0; i < DEPTH; i += 2)
                assert_true(got[i] == before || (got[i] >= value[0] && got[i] <= value[DEPTH - 1] &&
                                                 (got[i] - value[0]) % 2 == 1));
            uint64_t after = value_of(&r, key);
            assert_true(after >= value[0] && after <= value[DEPTH - 1]);
        }
        store_rig_close(&r);
    }
}

static void functions_work_while_the_ring_is_busy(void **state)
{
    struct store_rig r;
    uint64_t key[DEPTH], mine = 777;

    (void)state;
    rig(&r, "mem:?size=64m&defer=1", DEPTH, 2);
    for (unsigned round = 0; round < 50; round++) {
        for (unsigned i = 0; i < DEPTH; i++) {
            key[i] = round * DEPTH + i + 1000;
            struct far_op op = op_put(r.table, &key[i], &key[i]);
            assert_int_equal(far_submit(r.session, &op), FAR_OK);
            assert_int_equal(far_put(r.session, r.table, &mine, 8, &key[i], 8), FAR_OK);
            assert_true(value_of(&r, mine) == key[i]);
        }
        assert_int_equal(drain(&r), DEPTH);
        for (unsigned i = 0; i < DEPTH; i++)
            assert_true(value_of(&r, key[i]) == key[i]);
    }
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

static const char *const all_indexes[] = {"race", "shard", "sephash", "rcuckoo", "chime"};

/* RING-1. Time passes only in pauses: without the ring, the call would wait for its own session's
 * lock until it rests, for a quarter of a lease. */
static void a_call_does_not_wait_for_its_own_ring(void **state)
{
    (void)state;
    for (unsigned n = 0; n < sizeof all_indexes / sizeof *all_indexes; n++) {
        struct far_session_options session = {.depth = DEPTH, .seed = 5};
        struct store_rig r;
        far_table *t = NULL;
        uint64_t key = 1, value = 2;
        store_rig_open_driven(&r, "mem:?size=64m&defer=1", NULL, &session, NULL);
        assert_int_equal(far_table_create(r.session, "of-its-own", all_indexes[n], NULL, &t),
                         FAR_OK);
        assert_int_equal(far_put(r.session, t, &key, 8, &value, 8), FAR_OK);
        for (unsigned depth = 1; depth <= DEPTH; depth *= 2) {
            struct far_op op = op_put(t, &key, &value);
            op.kind = FAR_OP_UPDATE;
            for (unsigned i = 0; i < depth; i++)
                assert_int_equal(far_submit(r.session, &op), FAR_OK);
            uint64_t before = r.clock->now;
            assert_int_equal(far_update(r.session, t, &key, 8, &value, 8), FAR_OK);
            assert_in_range(r.clock->now - before, 0, 1000000);
            assert_int_equal(drain(&r), depth);
        }
        assert_int_equal(far_table_check(r.session, t, NULL, NULL), FAR_OK);
        store_rig_close(&r);
    }
}

static unsigned turns;
static void count_turn(struct client *c)
{
    (void)c;
    turns++;
}

/* RING-1: operations of the ring have to send heartbeats, too. */
static void the_ring_has_a_turn_in_each_millisecond_of_a_wait(void **state)
{
    struct store_rig r;
    (void)state;
    store_rig_open_driven(&r, "mem:?size=64m&defer=1", NULL, NULL, NULL);
    uint64_t before = r.clock->now;
    turns = 0;
    puppet_set_drive_ring(&r.session->client, count_turn);
    op_wait(&r.session->op, 10500000);
    assert_int_equal(turns, 11);
    assert_int_equal(r.clock->now - before, 10500000);
    op_wait(&r.session->op, 0);
    assert_int_equal(turns, 12);
    store_rig_close(&r);
}

static void a_closed_session_has_done_what_it_was_given(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        for (unsigned count = 1; count <= DEPTH; count += 3) {
            struct store_rig r;
            uint64_t key[DEPTH];

            rig(&r, uris[u], DEPTH, 2);
            for (unsigned i = 0; i < count; i++) {
                key[i] = i;
                struct far_op op = op_put(r.table, &key[i], &key[i]);
                assert_int_equal(far_submit(r.session, &op), FAR_OK);
            }
            far_session_close(r.session);
            assert_int_equal(far_session_open(r.pool, NULL, &r.session), FAR_OK);
            for (unsigned i = 0; i < count; i++)
                assert_true(value_of(&r, i) == i);
            store_rig_close(&r);
        }
    }
}

/* The ring's places, buffers and fibers serve for ever. */
static void the_ring_is_used_thousands_of_times(void **state)
{
    (void)state;
    for (unsigned u = 0; u < 2; u++) {
        struct store_rig r;
        struct rng rng;
        uint64_t key[DEPTH], got[DEPTH], value[DEPTH];
        struct far_result results[DEPTH];
        unsigned busy = 0;
        uint64_t submitted = 0, reaped = 0, places = (1u << DEPTH) - 1;

        rig(&r, uris[u], DEPTH, 3);
        rng_seed(&rng, 4);
        for (unsigned turn = 0; turn < 40000 / SLOWER; turn++) {
            while (busy < DEPTH && rng_below(&rng, 8)) {
                unsigned p = (unsigned)__builtin_ctzll(places);
                key[p] = rng_below(&rng, 200);
                value[p] = key[p] * 3 + 1;
                struct far_op op = rng_below(&rng, 2) ? op_put(r.table, &key[p], &value[p])
                                                      : op_get(r.table, &key[p], &got[p]);
                op.user_data = (uint64_t)op.kind << 32 | p;
                assert_int_equal(far_submit(r.session, &op), FAR_OK);
                places &= ~(1ull << p);
                submitted++;
                busy++;
            }
            unsigned n = far_reap(r.session, results, DEPTH, (unsigned)rng_below(&rng, 4));
            for (unsigned i = 0; i < n; i++) {
                unsigned p = (uint32_t)results[i].user_data;
                assert_true(p < DEPTH && !(places >> p & 1));
                if (results[i].user_data >> 32 == FAR_OP_PUT)
                    assert_int_equal(results[i].status, FAR_OK);
                else if (results[i].status == FAR_OK)
                    assert_true(got[p] == key[p] * 3 + 1);
                else
                    assert_int_equal(results[i].status, FAR_NOT_FOUND);
                places |= 1ull << p;
            }
            reaped += n;
            busy -= n;
        }
        assert_true(submitted - reaped == busy);
        store_rig_close(&r);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static uint64_t allocated_after(unsigned depth, uint64_t keys, uint64_t expected_keys)
{
    static uint64_t key[20000];
    struct far_table_options table = {.expected_keys = expected_keys, .hash_seed = 9};
    struct far_session_options session = {.depth = depth, .seed = 5};
    struct far_pool_info info;
    struct store_rig r;

    store_rig_open(&r, "mem:?size=128m&defer=1", NULL, &session, &table);
    for (uint64_t i = 0; i < keys; i++) {
        key[i] = i;
        struct far_op op = op_put(r.table, &key[i], &key[i]);
        while (far_submit(r.session, &op) == FAR_RING_FULL) {
            struct far_result result;
            assert_int_equal(far_reap(r.session, &result, 1, 1), 1);
            assert_int_equal(result.status, FAR_OK);
        }
    }
    drain(&r);
    assert_int_equal(far_pool_info(r.session, &info), FAR_OK);
    store_rig_close(&r);
    return info.bytes_allocated;
}

/* Fibers that find a chunk used up wait for one of them to fetch the next (ALLOC-A6). */
static void a_deep_ring_takes_no_more_memory_than_a_shallow_one(void **state)
{
    const uint64_t keys = 20000 / SLOWER;
    uint64_t shallow = allocated_after(1, keys, 2 * keys);
    uint64_t deep = allocated_after(64, keys, 2 * keys);

    (void)state;
    assert_true(deep <= shallow + 64 * CHUNK_BYTES);
}

/* Fibers that find a subtable full do not all split it: one does, the others wait for it. */
static void a_deep_ring_splits_a_subtable_once(void **state)
{
    const uint64_t keys = 20000 / SLOWER;
    const unsigned depth = DEEPEST / 4;
    uint64_t shallow = allocated_after(1, keys, 0), deep = allocated_after(depth, keys, 0);

    (void)state;
    assert_true(deep <= shallow + depth * CHUNK_BYTES);
}

/* As many as fit are started; the rest can be submitted when some were reaped. */
static void several_operations_are_submitted_at_once(void **state)
{
    struct store_rig r;
    struct far_op ops[20];
    struct far_result results[20];
    uint64_t key[20];
    unsigned started = 99;

    (void)state;
    rig(&r, "mem:?size=16m&defer=1", 8, 2);
    for (unsigned i = 0; i < 20; i++) {
        key[i] = i;
        ops[i] = (struct far_op){.kind = FAR_OP_PUT,
                                 .table = r.table,
                                 .key = &key[i],
                                 .key_len = 8,
                                 .value = &key[i],
                                 .value_len = 8,
                                 .user_data = i};
    }
    assert_int_equal(far_submit_many(r.session, ops, 20, &started), FAR_RING_FULL);
    assert_int_equal(started, 8);
    assert_int_equal(far_reap(r.session, results, 20, 8), 8);
    ops[10].table = NULL;
    assert_int_equal(far_submit_many(r.session, ops + 8, 12, &started), FAR_INVALID);
    assert_int_equal(started, 2);
    assert_int_equal(far_submit_many(r.session, ops + 11, 4, NULL), FAR_OK);
    assert_int_equal(far_reap(r.session, results, 20, 20), 6);
    assert_int_equal(far_submit_many(r.session, NULL, 0, &started), FAR_OK);
    assert_int_equal(started, 0);
    assert_int_equal(far_submit_many(r.session, NULL, 1, &started), FAR_INVALID);
    store_rig_close(&r);
}

/* A request that is never answered, until the test says so. */
static bool answered;

static int post_unanswered(struct fab_ep *ep, struct fab_req *req)
{
    req->done = false;
    return hook.real->post(ep, req);
}

static void poll_unanswered(struct fab_ep *ep, bool wait)
{
    if (answered)
        hook.real->poll(ep, wait);
}

static void a_wait_for_results_ends(void **state)
{
    struct store_rig r;
    uint64_t key = 1;
    struct far_op op = {.kind = FAR_OP_EXISTS, .key = &key, .key_len = 8};
    struct far_result result;

    (void)state;
    rig(&r, "mem:?size=16m&defer=1&lease=3600000", 8, 2);
    op.table = r.table;
    assert_int_equal(far_reap_within(r.session, &result, 1, 1, 1000), 0); /* nothing to wait for */
    assert_int_equal(far_exists(r.session, r.table, &key, 8), FAR_NOT_FOUND);
    hook_on(r.session->client.ep);
    hook.ops.post = post_unanswered;
    hook.ops.poll = poll_unanswered;
    answered = false;
    assert_int_equal(far_submit(r.session, &op), FAR_OK);
    assert_int_equal(far_reap_within(r.session, &result, 1, 1, 0), 0);
    assert_int_equal(far_reap_within(r.session, &result, 1, 1, 3000000), 0);
    answered = true;
    assert_int_equal(far_reap_within(r.session, &result, 1, 1, 3600000000000ull), 1);
    assert_int_equal(result.status, FAR_NOT_FOUND);
    hook_off();
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ring_holds_its_depth),
        cmocka_unit_test(rings_of_every_depth_work),
        cmocka_unit_test(reap_gives_between_min_and_max),
        cmocka_unit_test(a_waiting_fabric_leaves_operations_in_flight),
        cmocka_unit_test(results_are_those_of_the_functions),
        cmocka_unit_test(errors_come_with_the_result),
        cmocka_unit_test(a_table_grows_under_a_full_ring),
        cmocka_unit_test(operations_on_one_key_have_some_order),
        cmocka_unit_test(gets_of_a_key_return_its_old_or_a_new_value),
        cmocka_unit_test(functions_work_while_the_ring_is_busy),
        cmocka_unit_test(a_call_does_not_wait_for_its_own_ring),
        cmocka_unit_test(the_ring_has_a_turn_in_each_millisecond_of_a_wait),
        cmocka_unit_test(a_closed_session_has_done_what_it_was_given),
        cmocka_unit_test(the_ring_is_used_thousands_of_times),
        cmocka_unit_test(a_deep_ring_takes_no_more_memory_than_a_shallow_one),
        cmocka_unit_test(a_deep_ring_splits_a_subtable_once),
        cmocka_unit_test(several_operations_are_submitted_at_once),
        cmocka_unit_test(a_wait_for_results_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
