/* Tables that could not be added leave nothing behind: not a byte is lost. */
#include "support/audit.h"
#include "support/hook.h"
#include "support/puppet.h"
#include "support/store_rig.h"

#include <pthread.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

/* ---- races ----------------------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS  (SLOWER > 1 ? 6u : 20u)

struct creator {
    far_pool *pool;
    pthread_t thread;
    pthread_barrier_t *barrier;
    unsigned won, lost, failed;
};

/* Every round, all create a table of one name at once. */
static void *create(void *arg)
{
    struct creator *c = arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        far_session *s = NULL;
        far_table *t = NULL;
        char name[16];
        snprintf(name, sizeof name, "t%u", i);
        int rc = far_session_open(c->pool, NULL, &s);
        pthread_barrier_wait(c->barrier);
        if (rc == FAR_OK)
            rc = far_table_create(s, name, "race", NULL, &t);
        c->won += rc == FAR_OK;
        c->lost += rc == FAR_TABLE_EXISTS;
        c->failed += rc != FAR_OK && rc != FAR_TABLE_EXISTS;
        far_session_close(s);
    }
    return NULL;
}

static void losers_of_a_race_lose_no_memory(void **state)
{
    struct store_rig r;
    struct creator c[THREADS] = {{0}};
    pthread_barrier_t barrier;
    unsigned won = 0;

    (void)state;
    store_rig_open(&r, "mem:?size=64m&nodes=2", NULL, NULL, NULL);
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        c[i] = (struct creator){.pool = r.pool, .barrier = &barrier};
        assert_int_equal(pthread_create(&c[i].thread, NULL, create, &c[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(c[i].thread, NULL);
        won += c[i].won;
        assert_int_equal(c[i].failed, 0);
    }
    pthread_barrier_destroy(&barrier);
    assert_int_equal(won, ROUNDS);
    expect_nothing_lost(r.pool, r.session);
    store_rig_close(&r);
}

/* One client builds a table, another adds one of the name meanwhile: the first gives all back. */
static void come_too_late(const char *index)
{
    struct index_options sizes[] = {{.expected_keys = 0}, {.expected_keys = 20000}};
    const struct index_ops *ops = index_find(index);
    struct store_rig r;

    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(tuning_parse(index, ops->tuning, NULL, sizes[i].tuning), FAR_OK);
    store_rig_open(&r, "mem:?size=16m&nodes=2", NULL, NULL, NULL);
    for (unsigned i = 0; i < 2; i++) {
        struct op *op = &r.session->op;
        struct table_desc desc = {.hash_seed = 7, .name = "t"};
        uint64_t held = puppet_held_bytes(&r.session->client);
        snprintf(desc.index, sizeof desc.index, "%s", index);
        assert_int_equal(op_begin(op, NULL), FAR_OK);
        assert_int_equal(ops->create(op, &sizes[i], desc.hash_seed, &desc.root), FAR_OK);
        assert_int_equal(catalog_add(op, &desc), FAR_TABLE_EXISTS);
        assert_int_equal(ops->discard(op, desc.root), FAR_OK);
        op_end(op);
        assert_true(puppet_held_bytes(&r.session->client) >= held);
        expect_nothing_lost(r.pool, r.session);
    }
    store_rig_close(&r);
}

static void a_table_that_came_too_late_is_given_back(void **state)
{
    (void)state;
    for (unsigned i = 0; far_index_name(i); i++)
        come_too_late(far_index_name(i));
}

static struct store_rig *the;
static unsigned reads; /* that are left until the lease lapses */

static int lapse_at_read(struct fab_ep *ep, struct fab_req *req)
{
    int rc = hook.real->post(ep, req);
    if (!hook_writes(req) && reads > 0 && --reads == 0)
        puppet_lapse(&the->session->client);
    return rc;
}

/* The lease lapses at the n-th READ, if there are so many. Then the table may be swept, and its
 * memory may be anything. Returns whether there were. */
static bool lapse_while_discarding(struct store_rig *r, const char *index, unsigned n)
{
    struct index_options sizes = {.expected_keys = 0};
    const struct index_ops *ops = index_find(index);
    struct op *op = &r->session->op;
    gaddr root = 0;

    assert_int_equal(tuning_parse(index, ops->tuning, NULL, sizes.tuning), FAR_OK);
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    assert_int_equal(ops->create(op, &sizes, 7, &root), FAR_OK);
    uint64_t held = puppet_held_bytes(&r->session->client);
    reads = n;
    hook_on(r->session->client.ep);
    hook.ops.post = lapse_at_read;
    int rc = ops->discard(op, root);
    hook_off();
    puppet_renew_lease(&r->session->client);
    op_end(op);
    assert_int_equal(rc, reads == 0 ? FAR_FENCED : FAR_OK);
    if (n == 1) /* the root's */
        assert_true(puppet_held_bytes(&r->session->client) == held);
    return reads == 0;
}

static void nothing_that_was_read_after_the_lease_is_given_back(void **state)
{
    (void)state;
    for (unsigned i = 0; far_index_name(i); i++) {
        struct store_rig r;
        unsigned n = 1;
        the = &r;
        store_rig_open(&r, "mem:?size=16m", NULL, NULL, NULL);
        while (lapse_while_discarding(&r, far_index_name(i), n))
            n++;
        assert_true(n > 1);
        store_rig_close(&r);
    }
}

/* ---- no room --------------------------------------------------------------------------------- */

static void a_full_catalog_takes_no_memory(void **state)
{
    struct store_rig r;
    far_table *t = NULL;

    (void)state;
    store_rig_open(&r, "mem:?size=2m", NULL, NULL, NULL);
    for (unsigned i = 1; i < r.pool->pool.places; i++) {
        struct table_desc desc = {.root = 1, .index = "race"}; /* no real ones: they take memory */
        snprintf(desc.name, sizeof desc.name, "more%u", i);
        assert_int_equal(catalog_add(&r.session->op, &desc), FAR_OK);
    }
    const struct client *c = &r.session->client;
    uint64_t held = 0;
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(far_table_create(r.session, "one", "race", NULL, &t), FAR_CATALOG_FULL);
        held = i == 0 ? puppet_held_bytes(c) : held; /* what it takes, it keeps for the next one */
    }
    assert_true(puppet_held_bytes(c) == held && puppet_retired_bytes(c) == 0 &&
                puppet_lost_bytes(c) == 0);
    store_rig_close(&r);
}

/* However far it got. */
static void a_table_that_the_pool_has_no_room_for_is_given_back(void **state)
{
    (void)state;
    for (uint64_t keys = 1000; keys < 300000; keys += keys / 2) {
        struct store_rig r;
        struct far_table_options options = {.expected_keys = keys};
        far_table *t = NULL;
        static uint8_t value[3000];
        store_rig_open(&r, "mem:?size=2m&nodes=2", NULL, NULL, NULL);
        uint64_t n = 0; /* so that some of what it is cut from is not in a row */
        while (far_put(r.session, r.table, &n, sizeof n, value, sizeof value) == FAR_OK)
            n++;
        for (uint64_t i = 0; i < n; i += 2)
            assert_int_equal(far_delete(r.session, r.table, &i, sizeof i), FAR_OK);
        int rc = far_table_create(r.session, "u", "race", &options, &t);
        assert_true(rc == FAR_OK || rc == FAR_POOL_FULL);
        expect_nothing_lost(r.pool, r.session);
        store_rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losers_of_a_race_lose_no_memory),
        cmocka_unit_test(a_table_that_came_too_late_is_given_back),
        cmocka_unit_test(nothing_that_was_read_after_the_lease_is_given_back),
        cmocka_unit_test(a_full_catalog_takes_no_memory),
        cmocka_unit_test(a_table_that_the_pool_has_no_room_for_is_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
