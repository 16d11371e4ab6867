/*
 * Runs of chunks: cut for what is smaller, joined again for what is larger, so that memory which
 * held values of one size serves those of any other.
 */
#include "support/audit.h"
#include "support/puppet.h"
#include "support/store_rig.h"
#include "support/pool_rig.h"

#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static void expect_sound(struct store_rig *r)
{
    struct audit a;
    struct far_pool_usage usage;
    assert_int_equal(sim_audit(&a, r->pool, &r->session, 1), FAR_OK);
    if (a.wrong > 0)
        fail_msg("%u objects in two places: %s", a.wrong, a.first);
    assert_int_equal(a.bytes[AUDIT_NOWHERE], 0);
    assert_int_equal(far_pool_usage(r->session, &usage), FAR_OK);
    assert_int_equal(usage.unknown, 0);
    assert_true(usage.live == a.bytes[AUDIT_LIVE]);
}

/* ---- from one size to another ---------------------------------------------------------------- */

static uint8_t value[FAR_VALUE_MAX];

static uint64_t fill(struct store_rig *r, size_t len)
{
    uint64_t n = 0;
    int rc = FAR_OK;
    while ((rc = far_put(r->session, r->table, &n, sizeof n, value, len)) == FAR_OK)
        n++;
    assert_int_equal(rc, FAR_POOL_FULL);
    return n;
}

/* The part of the pool that is in use, in percent: blocks, and what is left of their last
 * chunks. */
static unsigned used(struct store_rig *r)
{
    struct far_pool_usage u;
    assert_int_equal(far_pool_usage(r->session, &u), FAR_OK);
    return (unsigned)(100 * (u.live + u.metadata) / u.total);
}

/* A pool full of values of one length, emptied, holds as many of another as if it were new, or at
 * least nine tenths of its size; and then of the first again. */
static void memory_serves_values_of_every_length_in_turn(void **state)
{
    static const size_t pairs[][2] = {{1u << 20, 100}, {100, 1u << 20}, {70000, 1000},
                                      {1000, 200000},  {20000, 40000},  {200000, 2u << 20},
                                      {1500000, 50000}};
    (void)state;
    /* Always the same keys in the same places: a value of 1 MiB is 2 % of the pool. */
    for (unsigned i = 0; i<sizeof pairs / sizeof *pairs; i += SLOWER> 1 ? 2 : 1) {
        struct store_rig r;
        store_rig_open(&r, "mem:?size=64m", NULL, &(struct far_session_options){.seed = 1},
                       &(struct far_table_options){.hash_seed = 1});
        for (unsigned turn = 0; turn < 3; turn++) {
            size_t len = pairs[i][turn % 2];
            uint64_t n = fill(&r, len);
            unsigned percent = used(&r);
            if (percent < 90)
                fail_msg("values of %zu bytes after those of %zu: %u %%", len,
                         pairs[i][(turn + 1) % 2], percent);
            for (uint64_t k = 0; k < n; k++)
                assert_int_equal(far_delete(r.session, r.table, &k, sizeof k), FAR_OK);
        }
        expect_sound(&r);
        store_rig_close(&r);
    }
}

/* What one session freed serves another, of another size, without the first having to leave. */
static void what_one_session_freed_serves_another(void **state)
{
    struct store_rig r;
    far_session *first = NULL, *second = NULL;

    (void)state;
    store_rig_open(&r, "mem:?size=16m&nodes=2&lease=60000", NULL, NULL, NULL);
    second = r.session;
    assert_int_equal(far_session_open(r.pool, NULL, &first), FAR_OK);
    r.session = first;
    uint64_t n = fill(&r, 300000), many = 0;
    assert_true(n > 20);
    for (uint64_t k = 0; k < n; k++)
        assert_int_equal(far_delete(first, r.table, &k, sizeof k), FAR_OK);
    assert_int_equal(client_park(&first->op), FAR_OK); /* it is not used from now on */
    r.session = second;
    for (; many % 1000 != 0 || used(&r) < 90; many++)
        assert_int_equal(far_put(second, r.table, &many, sizeof many, value, 500), FAR_OK);
    far_session_close(first);
    for (uint64_t k = 0; k < many; k++)
        assert_int_equal(far_exists(second, r.table, &k, sizeof k), FAR_OK);
    store_rig_close(&r);
}

/* ---- below the tables ------------------------------------------------------------------------ */

#define OBJECTS 400

struct object {
    gaddr at;
    unsigned size_class;
};

/* The object lies within its node's chunks, the table says what they are for, and nobody else has
 * any of it. */
static void own(struct pool_rig *r, uint8_t *owner, const struct object *o)
{
    const struct node_head *head = &r->pool.head[0];
    uint64_t start = head->chunks_off64 * 64ull, bytes = size_class_bytes(o->size_class);
    uint64_t chunk = (gaddr_offset(o->at) - start) >> CHUNK_SHIFT;
    assert_int_equal(gaddr_node(o->at), 0);
    assert_true(gaddr_offset(o->at) >= start);
    assert_true(gaddr_offset(o->at) + bytes <= start + head->chunks * CHUNK_BYTES);
    for (uint64_t i = 0; i < bytes / 64; i++) {
        if (owner[o->at + i] != 0)
            fail_msg("unit %llu is in two objects", (unsigned long long)(o->at + i));
        owner[o->at + i] = 1;
    }
    for (uint64_t i = 0; i < size_class_chunks(o->size_class); i++) {
        uint64_t entry = pool_rig_get(r, 0, head->table_off + (chunk + i) * 8);
        enum chunk_kind kind = o->size_class < RUN_CLASS ? CHUNK_SLAB
                               : i == 0                  ? CHUNK_LARGE
                                                         : CHUNK_LARGE_TAIL;
        assert_int_equal(entry & 0xffff, kind | o->size_class << 8);
    }
}

static void disown(uint8_t *owner, const struct object *o)
{
    memset(owner + o->at, 0, size_class_bytes(o->size_class) / 64);
}

/* Objects of all classes come and go on a pool that is nearly full, so that runs are cut all the
 * time: none overlaps another, and none is lost. */
static void pieces_of_runs_never_overlap(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 20 / SLOWER + 1; seed++) {
        struct pool_rig r;
        static struct object object[OBJECTS];
        unsigned count = 0;
        struct rng rng;
        struct far_pool_usage usage;
        pool_rig_open(&r, "mem:?size=12m");
        uint8_t *owner = calloc(1, r.pool.head[0].size / 64);
        assert_non_null(owner);
        rng_seed(&rng, seed);
        uint64_t in_use = 0;
        for (unsigned i = 0; i < 4000; i++) {
            if (count < OBJECTS && rng_below(&rng, 2)) {
                struct object o = {.size_class = (unsigned)rng_below(&rng, CLASS_COUNT)};
                int rc = pool_alloc(&r.op, 0, o.size_class, &o.at);
                if (rc == FAR_POOL_FULL)
                    continue;
                assert_int_equal(rc, FAR_OK);
                own(&r, owner, &o);
                object[count++] = o;
                in_use += size_class_bytes(o.size_class);
            } else if (count > 0) {
                unsigned which = (unsigned)rng_below(&rng, count);
                struct object o = object[which];
                object[which] = object[--count];
                disown(owner, &o);
                pool_free_unpublished(&r.client, o.at, o.size_class);
                in_use -= size_class_bytes(o.size_class);
                assert_int_equal(client_upkeep(&r.op), FAR_OK);
            }
        }
        assert_int_equal(pool_usage(&r.op, &usage), FAR_OK);
        assert_true(usage.unknown == in_use); /* by nothing that a table reaches */
        free(owner);
        pool_rig_close(&r);
    }
}

/* The longest run is cut for a small object: the rest stays as long as possible. */
static void a_run_is_cut_from_its_beginning(void **state)
{
    struct pool_rig r;
    gaddr run = 0, at = 0;

    (void)state;
    pool_rig_open(&r, "mem:?size=4352k"); /* 66 chunks, or a few less */
    uint64_t chunks = r.pool.head[0].chunks;
    unsigned longest = size_class_for_chunks(chunks);
    assert_int_equal(pool_alloc(&r.op, 0, longest, &run), FAR_OK);
    for (uint64_t i = size_class_chunks(longest); i < chunks; i++)
        assert_int_equal(pool_alloc(&r.op, 0, CHUNK_CLASS, &at), FAR_OK);
    assert_int_equal(pool_alloc(&r.op, 0, 0, &at), FAR_POOL_FULL);
    pool_free_unpublished(&r.client, run, longest);
    assert_int_equal(pool_alloc(&r.op, 0, 0, &at), FAR_OK);
    assert_true(at == run);
    unsigned rest = size_class_for_chunks(size_class_chunks(longest) - 1);
    assert_int_equal(puppet_kept(&r.client, 0, rest), 1);
    /* Nothing of it is left over: what is held is all but the object. */
    assert_true(puppet_held_bytes(&r.client) == size_class_chunks(longest) * CHUNK_BYTES - 64);
    for (uint64_t i = 1; i < size_class_chunks(longest); i++) {
        assert_int_equal(pool_alloc(&r.op, 0, CHUNK_CLASS, &at), FAR_OK);
        assert_true(at != run);
    }
    assert_int_equal(pool_alloc(&r.op, 0, CHUNK_CLASS, &at), FAR_POOL_FULL);
    pool_rig_close(&r);
}

/* ---- lists on a full pool -------------------------------------------------------------------- */

/* A client that leaves a pool of which every byte is in use leaves what it has on the lists, though
 * there is no page to be had. */
static void a_client_leaves_a_full_pool_with_empty_hands(void **state)
{
    struct pool_rig r, other;
    gaddr at = 0, first[20], got = 0;

    (void)state;
    for (unsigned size_class = 0; size_class < 9; size_class++) {
        pool_rig_open(&r, "mem:?size=1m");
        assert_int_equal(pool_rig_join(&other, r.fab, 2), FAR_OK);
        for (unsigned i = 0; i < 20; i++)
            assert_int_equal(pool_alloc(&other.op, 0, size_class, &first[i]), FAR_OK);
        while (pool_alloc(&other.op, 0, size_class, &at) == FAR_OK) {
        }
        for (unsigned i = 0; i < 20; i++)
            pool_free_unpublished(&other.client, first[i], size_class);
        pool_rig_close(&other);
        assert_true(pool_rig_get(&r, 0, PROBE_CONTROL(deaths)) == 0);
        for (unsigned i = 0; i < 20; i++) {
            unsigned same = 0;
            assert_int_equal(pool_alloc(&r.op, 0, size_class, &got), FAR_OK);
            for (unsigned k = 0; k < 20; k++)
                same += first[k] == got;
            assert_int_equal(same, 1);
        }
        assert_int_equal(pool_alloc(&r.op, 0, size_class, &got), FAR_POOL_FULL);
        pool_rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_serves_values_of_every_length_in_turn),
        cmocka_unit_test(what_one_session_freed_serves_another),
        cmocka_unit_test(pieces_of_runs_never_overlap),
        cmocka_unit_test(a_run_is_cut_from_its_beginning),
        cmocka_unit_test(a_client_leaves_a_full_pool_with_empty_hands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
