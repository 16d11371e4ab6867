/* A pool that is opened while a memory node is away, and the node that comes back. */
#include "support/hook.h"
#include "support/indexes.h"
#include "support/probe.h"
#include "support/store_rig.h"

#include <stdio.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS 300u
#define AWAY 1u

struct rig {
    struct store_rig all; /* it was opened with all nodes */
    uint64_t size;        /* of the node that is away */
    far_pool *pool;       /* it was opened without that one */
    far_session *session;
    far_table *table;
    char reported[8192];
};

static void listen(void *arg, const char *line)
{
    struct rig *r = arg;
    size_t len = strlen(r->reported);
    snprintf(r->reported + len, sizeof r->reported - len, "%s\n", line);
}

/* As the fabric does if it cannot connect to the node. */
static void lose_node(struct rig *r)
{
    struct fab *fab = r->all.fab;
    fab->away = 1ull << AWAY;
    fab->size[AWAY] = FAB_AWAY_BYTES;
    fab->found[AWAY] = 0;
}

/* The fabric has reached the node, and the pool is to look for it now. */
static void find_node(struct rig *r, uint64_t size)
{
    r->all.fab->found[AWAY] = size;
    r->pool->pool.meet_after = 0;
}

static void open_without_node(struct rig *r)
{
    *r = (struct rig){.size = 0};
    store_rig_open_driven(&r->all, "mem:?size=16m&nodes=2&lease=1000", NULL, NULL,
                          &(struct far_table_options){.tuning = indexes_smallest()});
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(far_put(r->all.session, r->all.table, &i, sizeof i, &i, sizeof i), FAR_OK);
    r->size = r->all.fab->size[AWAY];
    lose_node(r);
    assert_int_equal(store_open(r->all.fab, NULL, &r->pool), FAR_OK);
    assert_int_equal(far_session_open(r->pool, NULL, &r->session), FAR_OK);
    assert_int_equal(far_table_open(r->session, "t", NULL, &r->table), FAR_OK);
}

static void end(struct rig *r)
{
    r->all.fab->away = 0;
    r->all.fab->size[AWAY] = r->size;
    far_session_close(r->session);
    far_pool_close(r->pool);
    store_rig_close(&r->all);
}

static int get(struct rig *r, uint32_t key)
{
    uint32_t value = 0;
    int rc = far_get(r->session, r->table, &key, sizeof key, &value, sizeof value, NULL);
    assert_true(rc != FAR_OK || value == key);
    return rc;
}

static void what_is_on_other_nodes_is_read(void **state)
{
    (void)state;
    struct rig r;
    struct far_pool_info info;
    unsigned there = 0, away = 0;
    open_without_node(&r);
    for (uint32_t i = 0; i < KEYS; i++) {
        int rc = get(&r, i);
        assert_true(rc == FAR_OK || rc == FAR_UNREACHABLE);
        assert_true(rc == FAR_OK || strstr(far_error_detail(), "node 1"));
        there += rc == FAR_OK;
        away += rc != FAR_OK;
    }
    assert_true(away > 0);
    assert_true(there > 0 || strcmp(index_tested, "race") != 0);
    assert_int_equal(far_pool_info(r.session, &info), FAR_OK);
    assert_int_equal(info.nodes_away, 1u << AWAY);
    assert_int_equal(info.bytes_total, r.size);
    end(&r);
}

/* Keys that an iteration returns, as a bit each. */
static int iterate(struct rig *r, unsigned flags, bool *returned)
{
    char buf[4096];
    struct far_entry e;
    size_t len = 0;
    uint64_t cursor = 0;
    int rc = FAR_OK;
    do {
        rc = far_iterate(r->session, r->table, &cursor, flags, buf, sizeof buf, &len);
        for (size_t pos = 0; rc == FAR_OK && far_entry_next(buf, len, &pos, &e);) {
            uint32_t key;
            memcpy(&key, e.key, sizeof key);
            assert_memory_equal(e.value, &key, sizeof key);
            returned[key] = true;
        }
    } while (rc == FAR_OK && cursor != 0);
    return rc;
}

static void an_iteration_passes_what_is_away(void **state)
{
    (void)state;
    struct rig r;
    bool returned[KEYS] = {false}, none[KEYS] = {false};
    open_without_node(&r);
    assert_int_equal(iterate(&r, 0, none), FAR_UNREACHABLE);
    assert_int_equal(iterate(&r, FAR_PASS_AWAY, returned), FAR_OK);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_true(returned[i] || get(&r, i) == FAR_UNREACHABLE);
    end(&r);
}

static int post_nothing(struct fab_ep *ep, struct fab_req *req)
{
    (void)ep, (void)req;
    return FAR_UNREACHABLE;
}

/* It leaves out what is on the node, and not what cannot be read for another reason. */
static void an_iteration_does_not_pass_other_nodes(void **state)
{
    (void)state;
    struct rig r;
    bool returned[KEYS] = {false};
    open_without_node(&r);
    (void)get(&r, 0); /* makes the session's view */
    hook_on(r.session->client.ep);
    hook.ops.post = post_nothing;
    assert_int_equal(iterate(&r, FAR_PASS_AWAY, returned), FAR_UNREACHABLE);
    hook_off();
    end(&r);
}

static void what_needs_all_nodes_is_not_done(void **state)
{
    (void)state;
    struct rig r;
    struct far_pool_check check = {0};
    struct far_pool_usage usage;
    far_table *table = NULL;
    open_without_node(&r);
    assert_int_equal(far_pool_check(r.session, false, listen, &r, &check), FAR_UNREACHABLE);
    assert_non_null(strstr(r.reported, "missing: node 1 (node 1) is away"));
    assert_null(strstr(r.reported, "damaged")); /* nor is anything there taken for damage */
    assert_null(strstr(r.reported, "broken"));
    assert_int_equal(check.violations, 0);
    assert_int_equal(far_pool_check(r.session, true, NULL, NULL, &check), FAR_UNREACHABLE);
    assert_int_equal(far_pool_usage(r.session, &usage), FAR_UNREACHABLE);
    assert_int_equal(far_table_create(r.session, "other", index_tested, NULL, &table),
                     FAR_UNREACHABLE);
    end(&r);
}

static void a_node_that_is_back_is_used(void **state)
{
    (void)state;
    struct rig r;
    struct far_pool_info info;
    struct far_pool_check check;
    open_without_node(&r);
    for (uint32_t i = 0; i < KEYS; i++)
        (void)get(&r, i);
    find_node(&r, r.size);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(get(&r, i), FAR_OK);
    for (uint32_t i = KEYS; i < 2 * KEYS; i++)
        assert_int_equal(far_put(r.session, r.table, &i, sizeof i, &i, sizeof i), FAR_OK);
    assert_int_equal(far_pool_info(r.session, &info), FAR_OK);
    assert_true(info.nodes_away == 0 && info.bytes_total == 2 * r.size);
    assert_int_equal(far_pool_check(r.session, false, listen, &r, &check), FAR_OK);
    end(&r);
}

/* AWAY-3: empty; another node of the pool; a node of another pool; of another size. */
static void a_node_that_comes_back_as_another_is_refused(void **state)
{
    (void)state;
    struct rig r;
    struct probe p;
    struct node_head head, wrong[3];
    open_without_node(&r);
    probe_open(&p, r.all.fab);
    for (unsigned i = 0; i < sizeof head / 8; i++)
        ((uint64_t *)&head)[i] = probe_get(&p, gaddr_make(AWAY, 0), 8 * i);
    for (unsigned i = 0; i < 3; i++)
        wrong[i] = head;
    memset(&wrong[0], 0, sizeof wrong[0]);
    wrong[1].node = 0;
    wrong[1].checksum = superblock_sum(&wrong[1]);
    wrong[2].pool_id++;
    wrong[2].checksum = superblock_sum(&wrong[2]);
    uint32_t key = 0;
    while (get(&r, key) != FAR_UNREACHABLE)
        key++;
    for (unsigned i = 0; i < 3; i++) {
        for (unsigned n = 0; n < sizeof head / 8; n++)
            probe_set(&p, gaddr_make(AWAY, 0), 8 * n, ((uint64_t *)&wrong[i])[n]);
        find_node(&r, r.size);
        assert_int_equal(get(&r, key), FAR_NODE_LOST);
        assert_int_equal(r.all.fab->away, 1u << AWAY);
    }
    for (unsigned n = 0; n < sizeof head / 8; n++)
        probe_set(&p, gaddr_make(AWAY, 0), 8 * n, ((uint64_t *)&head)[n]);
    find_node(&r, r.size / 2);
    assert_int_equal(get(&r, key), FAR_NODE_LOST);
    find_node(&r, r.size);
    assert_int_equal(get(&r, key), FAR_OK);
    probe_close(&p);
    end(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_on_other_nodes_is_read),
        cmocka_unit_test(an_iteration_passes_what_is_away),
        cmocka_unit_test(an_iteration_does_not_pass_other_nodes),
        cmocka_unit_test(what_needs_all_nodes_is_not_done),
        cmocka_unit_test(a_node_that_is_back_is_used),
        cmocka_unit_test(a_node_that_comes_back_as_another_is_refused),
    };
    indexes_arguments(argc, argv);
    return INDEXES_RUN(tests);
}
