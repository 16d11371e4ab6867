/*
 * A client dies while it splits a subtable, after each of its batches. The client that finds it
 * dead completes what its journal says. If no client reads the journal, nothing is lost either.
 */
#include "support/journal_rig.h"
#include "support/audit.h"
#include "support/puppet.h"
#include "support/store_rig.h"
#include "support/leaks_allowed.h"

#include "index/race/race.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define URI  "mem:?size=8m&defer=1&lease=3600000"
#define SEED 11
#define MORE 300u /* keys, after what was split: ten times as many as a subtable has */

static struct store_rig rig(const char *uri)
{
    struct knobs knobs = pool_knobs_default;
    struct far_session_options session = {.seed = 7, .depth = 1};
    struct far_table_options table = {.tuning = "groups=2", .hash_seed = SEED};
    struct store_rig r;
    knobs.tick_ops = 4;
    knobs.patience = 2; /* nobody waits long for a splitter that is stopped here */
    store_rig_open_driven(&r, uri, &knobs, &session, &table);
    return r;
}

static far_session *join(struct store_rig *r)
{
    struct far_session_options options = {.seed = 8, .depth = 1};
    far_session *s = NULL;
    assert_int_equal(far_session_open(r->pool, &options, &s), FAR_OK);
    return s;
}

static int insert(struct store_rig *r, far_session *s, uint64_t key)
{
    return far_insert(s, r->table, &key, sizeof key, &key, sizeof key);
}

static struct race_view *view_of(struct store_rig *r, far_session *s)
{
    return (struct race_view *)store_known(s, r->table)->view;
}

/* The key whose insert makes the n-th split, of the same table each time. */
static uint64_t key_of_split(unsigned n)
{
    struct store_rig r = rig(URI);
    far_session *s = join(&r);
    uint64_t key = 0;
    do
        assert_int_equal(insert(&r, s, key++), FAR_OK);
    while (view_of(&r, s)->base.grown < n);
    far_session_close(s);
    store_rig_close(&r);
    return key - 1;
}

/* The session does nothing more. Only its fiber is freed. */
static void stop_for_good(far_session *s)
{
    fiber_destroy(s->slot[0].fiber);
    s->slot[0].fiber = NULL;
}

/* Inserts the key, and stops after that many batches. Returns whether it was done before. */
static bool insert_in_part(struct store_rig *r, far_session *s, uint64_t *key, unsigned batches)
{
    struct far_op op = {.kind = FAR_OP_INSERT,
                        .table = r->table,
                        .key = key,
                        .key_len = 8,
                        .value = key,
                        .value_len = 8};
    struct far_result result;
    assert_int_equal(far_submit(s, &op), FAR_OK);
    for (unsigned i = 0; i < batches; i++) {
        if (far_reap(s, &result, 1, 0) == 1) {
            assert_true(result.status == FAR_OK || result.status == FAR_EXISTS);
            return true;
        }
    }
    return false;
}

/* The directory leads to no subtable that was split, and none is sealed. */
static void expect_nothing_stranded(struct store_rig *r)
{
    struct probe p;
    struct race_view *view = view_of(r, r->session);
    probe_open(&p, r->fab);
    assert_int_equal(race_refresh(&r->session->op, view), FAR_OK);
    for (uint64_t i = 0; i < 1ull << view->depth; i++) {
        gaddr at = race_entry_subtable(view->entries[i]);
        assert_true(probe_get(&p, at, offsetof(struct race_subtable_head, forward)) == 0);
        for (unsigned w = sizeof(struct race_subtable_head) / 8; w < race_subtable_bytes(2) / 8;
             w++)
            if (race_is_slot(w))
                assert_true(!(probe_get(&p, at, w * 8ull) & RACE_SLOT_SEALED));
    }
    probe_close(&p);
}

/* All keys below `keys` are there, and the table grows on: what was split and split again is
 * reused meanwhile. */
static void expect_all_well(struct store_rig *r, uint64_t keys)
{
    struct audit a;
    for (uint64_t k = 0; k < keys; k++)
        assert_int_equal(far_exists(r->session, r->table, &k, 8), FAR_OK);
    assert_int_equal(far_table_check(r->session, r->table, NULL, NULL), FAR_OK);
    for (uint64_t k = keys; k < keys + MORE; k++) {
        int rc = insert(r, r->session, k);
        assert_true(rc == FAR_OK || (rc == FAR_EXISTS && k == keys));
    }
    for (uint64_t k = 0; k < keys + MORE; k++)
        assert_int_equal(far_exists(r->session, r->table, &k, 8), FAR_OK);
    assert_int_equal(far_table_check(r->session, r->table, NULL, NULL), FAR_OK);
    sim_audit(&a, r->pool, &r->session, 1); /* what another session has is nowhere */
    if (a.wrong)
        fail_msg("%s", a.first);
}

static const unsigned splits[] = {1, 2, 3, 6};

static void a_split_is_completed_by_a_client_that_finds_its_owner_dead(void **state)
{
    unsigned recovered = 0;

    (void)state;
    for (unsigned n = 0; n < sizeof splits / sizeof *splits; n++) {
        uint64_t last = key_of_split(splits[n]);
        bool done = false;
        for (unsigned batches = 0; !done; batches++) {
            struct store_rig r = rig(URI);
            far_session *s = join(&r);
            struct client *c = &r.session->client;
            uint64_t key = last;
            assert_true(batches < 1000);
            for (uint64_t k = 0; k < last; k++)
                assert_int_equal(insert(&r, s, k), FAR_OK);
            assert_int_equal(far_exists(r.session, r.table, &key, 8), FAR_NOT_FOUND);
            done = insert_in_part(&r, s, &key, batches);
            unsigned slot = s->client.slot;
            uint64_t inc = s->client.incarnation;
            stop_for_good(s);

            struct probe p;
            probe_open(&p, r.fab);
            recovered += journal_says(&p, &r.pool->pool, slot);
            assert_int_equal(puppet_recover(&r.session->op, slot, inc), FAR_OK);
            assert_true(probe_incarnation(&p, slot) == 0);
            assert_false(journal_says(&p, &r.pool->pool, c->slot));
            probe_close(&p);
            expect_nothing_stranded(&r);
            expect_all_well(&r, last);
            store_rig_close(&r);
        }
    }
    assert_true(recovered > 20);
}

/* The client that recovers it dies, too. The next one finds the work half done. */
static void a_recovery_is_completed_by_the_next_client(void **state)
{
    uint64_t last = key_of_split(4);

    (void)state;
    for (unsigned batches = 2; batches < 40; batches += 3) {
        for (unsigned more = 1; more < 30; more += 7) {
            struct store_rig r = rig(URI);
            far_session *s = join(&r), *second = join(&r);
            uint64_t key = last;
            for (uint64_t k = 0; k < last; k++)
                assert_int_equal(insert(&r, s, k), FAR_OK);
            assert_int_equal(far_exists(r.session, r.table, &key, 8), FAR_NOT_FOUND);
            (void)insert_in_part(&r, s, &key, batches);
            unsigned slot = s->client.slot;
            uint64_t inc = s->client.incarnation;
            stop_for_good(s);
            /* The second client has fenced the first, and dies in the middle of the same split. */
            struct probe p;
            probe_open(&p, r.fab);
            assert_true(probe_cas(&p, 0, PROBE_SLOT(slot, incarnation), inc, inc | CLIENT_FENCED));
            probe_close(&p);
            (void)insert_in_part(&r, second, &key, more);
            unsigned slot2 = second->client.slot;
            uint64_t inc2 = second->client.incarnation;
            stop_for_good(second);
            unsigned slots[] = {slot2, slot};
            uint64_t incs[] = {inc2, inc | CLIENT_FENCED};
            for (unsigned i = 0; i < 2; i++) {
                assert_int_equal(puppet_recover(&r.session->op, slots[i], incs[i]), FAR_OK);
            }
            expect_nothing_stranded(&r);
            expect_all_well(&r, last);
            store_rig_close(&r);
        }
    }
}

/* All slots are taken: a session that wants to register takes the dead client's, with its work. */
static void a_split_is_completed_by_a_client_that_needs_the_slot(void **state)
{
    uint64_t last = key_of_split(4);

    (void)state;
    for (unsigned batches = 2; batches < 40; batches += 3) {
        struct store_rig r = rig("mem:?size=32m&defer=1&clients=2&lease=3600000");
        far_session *s = join(&r);
        struct probe p;
        uint64_t key = last;
        probe_open(&p, r.fab);
        for (uint64_t k = 0; k < last; k++)
            assert_int_equal(insert(&r, s, k), FAR_OK);
        (void)insert_in_part(&r, s, &key, batches);
        unsigned slot = s->client.slot;
        uint64_t inc = s->client.incarnation;
        stop_for_good(s);
        assert_true(probe_cas(&p, 0, PROBE_SLOT(slot, incarnation), inc, inc | CLIENT_FENCED));
        r.pool->pool.kept = true; /* as users open it */
        far_session *next = join(&r);
        assert_int_equal(next->client.slot, slot);
        assert_false(journal_says(&p, &r.pool->pool, slot));
        /* As its keeper does. Otherwise the one that closes would wait for it, for two leases. */
        assert_int_equal(client_park(&r.session->op), FAR_OK);
        far_session_close(next);
        probe_close(&p);
        assert_int_equal(far_exists(r.session, r.table, &(uint64_t){0}, 8), FAR_OK);
        expect_nothing_stranded(&r);
        expect_all_well(&r, last);
        store_rig_close(&r);
    }
}

/* There was no room for a journal line. Writers that meet the split complete it. */
static void a_split_without_a_journal_is_no_loss(void **state)
{
    (void)state;
    for (unsigned n = 0; n < sizeof splits / sizeof *splits; n++) {
        uint64_t last = key_of_split(splits[n]);
        bool done = false;
        for (unsigned batches = 0; !done; batches++) {
            struct store_rig r = rig(URI);
            struct probe p;
            far_session *s = join(&r);
            uint64_t key = last;
            for (uint64_t k = 0; k < last; k++)
                assert_int_equal(insert(&r, s, k), FAR_OK);
            done = insert_in_part(&r, s, &key, batches);
            unsigned slot = s->client.slot;
            stop_for_good(s);
            probe_open(&p, r.fab);
            probe_set(&p, 0, PROBE_SLOT(slot, incarnation), 0);
            probe_close(&p);
            expect_all_well(&r, last);
            store_rig_close(&r);
        }
    }
}

/* Completing the split takes memory, and the dead client has all of it. */
static void recovery_in_a_full_pool_does_not_wait_for_memory(void **state)
{
    uint64_t last = key_of_split(3);

    (void)state;
    for (unsigned batches = 0; batches < 40; batches += 4) {
        struct store_rig r = rig("mem:?size=2m&defer=1&lease=200");
        far_session *s = join(&r);
        uint64_t key = last, more = 1000000;
        gaddr at = 0;
        for (uint64_t k = 0; k < last; k++)
            assert_int_equal(insert(&r, s, k), FAR_OK);
        (void)insert_in_part(&r, s, &key, batches);
        /* It holds what is left of the pool. */
        while (pool_alloc(&r.session->op, 0, size_class_for(RACE_PAGE), &at) == FAR_OK)
            ;
        stop_for_good(s);
        /* Inserts until memory is needed: it is found, and the dead client with it. */
        int rc = FAR_OK;
        for (unsigned i = 0; i < 3000 && rc == FAR_OK; i++)
            rc = insert(&r, r.session, more++);
        assert_true(rc == FAR_OK || rc == FAR_POOL_FULL);
        struct far_pool_info info;
        assert_int_equal(far_pool_info(r.session, &info), FAR_OK);
        assert_int_equal(info.clients, 1);
        assert_true(more > 1000500);
        for (uint64_t k = 0; k < last; k++)
            assert_int_equal(insert(&r, r.session, k), FAR_EXISTS);
        store_rig_close(&r);
    }
}

/* The client is not dead but slow. Meanwhile others split the same subtable and its children,
 * and double the directory. */
static void a_slow_splitter_does_no_harm(void **state)
{
    (void)state;
    for (unsigned n = 0; n < sizeof splits / sizeof *splits; n++) {
        uint64_t last = key_of_split(splits[n]);
        bool done = false;
        for (unsigned batches = 0; !done; batches++) {
            for (unsigned others = 4; others < 100; others += 36) {
                struct store_rig r = rig(URI);
                far_session *s = join(&r);
                uint64_t key = last;
                struct far_result result;
                for (uint64_t k = 0; k < last; k++)
                    assert_int_equal(insert(&r, s, k), FAR_OK);
                done = insert_in_part(&r, s, &key, batches);
                for (uint64_t k = 1000; k < 1000 + others; k++)
                    assert_int_equal(insert(&r, r.session, k), FAR_OK);
                if (!done) {
                    assert_int_equal(far_reap(s, &result, 1, 1), 1);
                    assert_int_equal(result.status, FAR_OK);
                }
                expect_nothing_stranded(&r);
                for (uint64_t k = 1000; k < 1000 + others; k++)
                    assert_int_equal(far_delete(s, r.table, &k, 8), FAR_OK);
                assert_int_equal(far_exists(r.session, r.table, &key, 8), FAR_OK);
                far_session_close(s);
                expect_all_well(&r, last);
                store_rig_close(&r);
            }
        }
    }
}

/* Keys of the left half of the table alone make it deep there, and leave the right half shallow. */
static uint64_t next_of_half(struct store_rig *r, far_session *s, uint64_t from, unsigned half)
{
    struct race_key key;
    for (;; from++) {
        race_hash(view_of(r, s), (struct slice){&from, 8}, &key);
        if ((key.hash & 1) == half)
            return from;
    }
}

/* Inserts keys of the left half with `s` until the next one will make the n-th split. */
static uint64_t deepen(struct store_rig *r, far_session *s, unsigned n)
{
    static uint64_t known[32]; /* one past the key that makes it, once we know */
    uint64_t k = 0;
    assert_int_equal(far_exists(s, r->table, &k, 8), FAR_NOT_FOUND); /* the view is made */
    for (k = next_of_half(r, s, 0, 0); view_of(r, s)->base.grown < n;
         k = next_of_half(r, s, k + 1, 0)) {
        if (known[n] == k + 1)
            return k;
        assert_int_equal(insert(r, s, k), FAR_OK);
        if (view_of(r, s)->base.grown == n)
            known[n] = k + 1;
    }
    return UINT64_MAX; /* too late, but next time */
}

/* One client doubles the directory, and is stopped after each batch. Another splits a subtable
 * whose entry has been copied, or will be. It is so shallow that the directory need not grow for
 * it. */
static void a_split_during_a_doubling_is_not_lost(void **state)
{
    unsigned met = 0;

    (void)state;
    for (unsigned n = 2; n < 8; n++) {
        bool done = false;
        for (int batches = -1; !done; batches++) {
            struct store_rig r = rig(URI);
            far_session *s = join(&r);
            struct far_result result;
            struct probe p;
            probe_open(&p, r.fab);
            gaddr root = r.table->index.desc.root;
            uint64_t key = deepen(&r, s, n), before = probe_get(&p, root, 0), more = 1u << 20;
            if (batches >= 0) {
                done = insert_in_part(&r, s, &key, (unsigned)batches);
                bool apart = probe_get(&p, root, 0) == before;
                (void)far_exists(r.session, r.table, &key, 8);
                while (view_of(&r, r.session)->base.grown == 0) {
                    more = next_of_half(&r, r.session, more + 1, 1);
                    assert_int_equal(insert(&r, r.session, more), FAR_OK);
                }
                apart = apart && probe_get(&p, root, 0) == before;
                if (!done) {
                    assert_int_equal(far_reap(s, &result, 1, 1), 1);
                    assert_int_equal(result.status, FAR_OK);
                }
                met += apart && probe_get(&p, root, 0) > before;
                assert_int_equal(far_exists(r.session, r.table, &key, 8), FAR_OK);
                expect_nothing_stranded(&r);
                assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
            }
            probe_close(&p);
            far_session_close(s);
            store_rig_close(&r);
        }
    }
    assert_true(met > 10);
}

/* A client died while it doubled the directory. The unused half has entries that lead to
 * subtables which are long gone. */
static void a_directory_is_doubled_over_old_remains(void **state)
{
    struct store_rig r = rig(URI);
    struct probe p;
    uint64_t key = 0, old[256];
    unsigned depth = 0, planted = 0;

    (void)state;
    probe_open(&p, r.fab);
    assert_int_equal(insert(&r, r.session, key++), FAR_OK);
    while (depth < 8) {
        struct race_view *view = view_of(&r, r.session);
        assert_int_equal(race_refresh(&r.session->op, view), FAR_OK);
        depth = view->depth;
        uint64_t half = 1ull << depth;
        memcpy(old, view->entries, half * 8);
        /* Some of these are split, and the directory does not grow. */
        while (view->depth == depth && memcmp(old, view->entries, half * 8) == 0)
            assert_int_equal(insert(&r, r.session, key++), FAR_OK);
        for (uint64_t i = 0; view->depth == depth && i < half; i++) {
            probe_set(&p, view->directory, (half + i) * 8, old[i]);
            planted += view->entries[i] != old[i];
        }
        while (view->depth == depth)
            assert_int_equal(insert(&r, r.session, key++), FAR_OK);
        expect_nothing_stranded(&r);
        for (uint64_t k = 0; k < key; k++)
            assert_int_equal(far_exists(r.session, r.table, &k, 8), FAR_OK);
        depth = view->depth;
    }
    assert_true(planted > 0);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    probe_close(&p);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_split_is_completed_by_a_client_that_finds_its_owner_dead),
        cmocka_unit_test(a_recovery_is_completed_by_the_next_client),
        cmocka_unit_test(a_split_is_completed_by_a_client_that_needs_the_slot),
        cmocka_unit_test(a_split_without_a_journal_is_no_loss),
        cmocka_unit_test(recovery_in_a_full_pool_does_not_wait_for_memory),
        cmocka_unit_test(a_slow_splitter_does_no_harm),
        cmocka_unit_test(a_split_during_a_doubling_is_not_lost),
        cmocka_unit_test(a_directory_is_doubled_over_old_remains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
