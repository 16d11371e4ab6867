/* A pool without any memory left. Changes of RCuckoo need a line of the journal, and each client
 * has one on each node. */
#include "index/rcuckoo/rcuckoo.h"
#include "store/store_internal.h"
#include "support/journal_rig.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#define KEYS  64u
#define DEPTH 8u
#define DEAD  4711ull /* the incarnation of a client that died */

static struct store_rig rig;
static far_table *table; /* of RCuckoo */

static void open_table(const char *uri)
{
    struct far_table_options options = {.hash_seed = 3};
    store_rig_open_driven(&rig, uri, NULL, NULL, NULL);
    assert_int_equal(far_table_create(rig.session, "s", "rcuckoo", &options, &table), FAR_OK);
    for (uint32_t key = 0; key < KEYS; key++)
        assert_int_equal(far_put(rig.session, table, &key, 4, &key, 4), FAR_OK);
}

#define LINE_CLASS 7     /* of 512 bytes, as a line of the journal */
static gaddr last_taken; /* an object as large as a line */

/* The rig's session takes what is left. */
static void fill_pool(void)
{
    gaddr at = 0;
    for (unsigned size_class = CLASS_COUNT; size_class > 0; size_class--)
        while (pool_alloc(&rig.session->op, 0, size_class - 1, &at) == FAR_OK)
            last_taken = size_class - 1 == LINE_CLASS ? at : last_taken;
}

static void submit_delete(far_session *s, const uint32_t *key)
{
    struct far_op op = {.kind = FAR_OP_DELETE, .table = table, .key = key, .key_len = 4};
    assert_int_equal(far_submit(s, &op), FAR_OK);
}

static void reap_one(far_session *s, int expected)
{
    struct far_result result;
    while (far_reap(s, &result, 1, 0) == 0)
        store_rig_pass(&rig, 1000);
    assert_int_equal(result.status, expected);
}

/* RELIEF-2. Each delete of a ring needs a line, and there is one for all. */
static void the_deletes_of_a_ring_share_a_line(void **state)
{
    struct far_session_options ring = {.depth = DEPTH, .seed = 2};
    uint32_t key[DEPTH];
    far_session *s = NULL;

    (void)state;
    open_table("mem:?size=4m&defer=1&lease=60");
    assert_int_equal(far_session_open(rig.pool, &ring, &s), FAR_OK);
    key[0] = 0;
    assert_int_equal(far_exists(s, table, key, 4), FAR_OK);
    fill_pool();
    for (uint32_t first = 0; first < KEYS; first += DEPTH) {
        for (unsigned i = 0; i < DEPTH; i++) {
            key[i] = first + i;
            submit_delete(s, &key[i]);
        }
        for (unsigned i = 0; i < DEPTH; i++)
            reap_one(s, FAR_OK);
    }
    assert_int_equal(far_table_check(s, table, NULL, NULL), FAR_OK);
    far_session_close(s);
    store_rig_close(&rig);
}

static unsigned recoveries, waits;

/* Stands in for the tables: a recovery that has to wait for others, so often. */
static int recover_later(void *arg, struct op *op, const struct journal_entry *entry)
{
    (void)arg, (void)op, (void)entry;
    return ++recoveries > waits ? FAR_OK : FAR_TIMEOUT;
}

/* A session takes the only slot that is left, with the work of a dead client, which says something
 * in the slot's line. The pool is full. */
static far_session *inherit(void)
{
    const unsigned slot = 1;
    struct probe p;
    far_session *s = NULL;
    open_table("mem:?size=4m&clients=2&lease=60");
    fill_pool();
    probe_open(&p, rig.fab);
    probe_set(&p, 0, PROBE_SLOT(slot, incarnation), DEAD | CLIENT_FENCED);
    probe_set(&p, 0, PROBE_SLOT(slot, epoch), 0);
    journal_plant(&p, &rig.pool->pool, slot, (struct journal_subject){.what = 1}, 77);
    probe_close(&p);
    rig.pool->pool.recover = recover_later;
    rig.pool->pool.kept = true; /* as users open it */
    recoveries = 0;
    waits = 3;
    assert_int_equal(far_session_open(rig.pool, NULL, &s), FAR_OK);
    assert_int_equal(s->client.slot, slot);
    assert_int_equal(recoveries, 1);
    rig.pool->pool.kept = false;
    return s;
}

static void close_both(far_session *s)
{
    far_session_close(s);
    store_rig_close(&rig);
}

/* RELIEF-2. The line is free when its recovery has ended. */
static void a_delete_waits_for_the_line_of_its_slot(void **state)
{
    uint32_t key = 1;
    (void)state;
    far_session *s = inherit();
    assert_int_equal(far_delete(s, table, &key, 4), FAR_OK);
    assert_int_equal(recoveries, 4);
    assert_int_equal(far_exists(s, table, &key, 4), FAR_NOT_FOUND);
    close_both(s);
}

/* A recovery that does not end keeps the line. The session goes on with what needs none. It waits
 * for four leases, and then looks for memory. */
static void a_delete_does_not_wait_for_ever(void **state)
{
    uint32_t key = 1;
    (void)state;
    far_session *s = inherit();
    waits = UINT32_MAX;
    uint64_t began = rig.clock->now;
    assert_int_equal(far_delete(s, table, &key, 4), FAR_POOL_FULL);
    assert_in_range(rig.clock->now - began, 240000000u, 960000000u);
    assert_int_equal(far_exists(s, table, &key, 4), FAR_OK);
    waits = 0;
    assert_int_equal(far_delete(s, table, &key, 4), FAR_OK);
    close_both(s);
}

/* But memory for another line may become free instead. */
static void a_delete_makes_a_line_if_its_own_stays_away(void **state)
{
    uint32_t key = 1;
    (void)state;
    far_session *s = inherit();
    waits = UINT32_MAX;
    store_take(s);
    pool_retire(&s->client, last_taken, LINE_CLASS);
    store_give(s);
    assert_int_equal(far_delete(s, table, &key, 4), FAR_OK);
    waits = 0;
    assert_int_equal(far_exists(s, table, &key, 4), FAR_NOT_FOUND);
    close_both(s);
}

/* RACE splits without a line. What it lacks later may be memory. */
static void no_operation_waits_for_a_line_that_it_does_not_need(void **state)
{
    struct journal line;
    gaddr at = 0;
    (void)state;
    far_session *s = inherit();
    waits = UINT32_MAX;
    store_take(s);
    assert_int_equal(journal_take(&s->op, 0, &line), FAR_POOL_FULL);
    assert_int_equal(pool_alloc(&s->op, 0, LINE_CLASS, &at), FAR_POOL_FULL);
    pool_retire(&s->client, last_taken, LINE_CLASS);
    uint64_t began = rig.clock->now;
    assert_int_equal(pool_make_room(&s->op, false), FAR_OK);
    assert_in_range(rig.clock->now - began, 0, 200000000u);
    store_give(s);
    waits = 0;
    close_both(s);
}

/* A lock that nobody holds, which a walk looks into with a line of its own. */
static void leave_a_lock(void)
{
    uint32_t key = 1;
    struct rcuckoo_view *view = rcuckoo_view(store_known(rig.session, table)->view);
    struct rcuckoo_key of;
    struct rcuckoo_sub sub;
    rcuckoo_key_set(view, (struct slice){&key, 4}, &of);
    assert_int_equal(rcuckoo_find(&rig.session->op, view, of.hash, &sub), FAR_OK);
    store_rig_set(&rig, sub.part.anchor, rcuckoo_word_at(0), 1);
}

static void count_locks(void *arg, const char *line)
{
    *(unsigned *)arg += strstr(line, "RCUCKOO-W7: locks 0x1 ") != NULL;
}

static void a_walk_waits_for_the_line_of_its_slot(void **state)
{
    unsigned locks = 0;
    (void)state;
    far_session *s = inherit();
    leave_a_lock();
    assert_int_equal(far_table_check(s, table, count_locks, &locks), FAR_OK);
    assert_int_equal(recoveries, 4);
    assert_int_equal(locks, 1);
    close_both(s);
}

static void a_check_of_the_pool_waits_for_the_line_of_its_slot(void **state)
{
    struct far_pool_check check;
    unsigned locks = 0;
    (void)state;
    far_session *s = inherit();
    waits = 12; /* looking for dead sessions takes a lease and a half */
    leave_a_lock();
    assert_int_equal(far_pool_check(s, false, count_locks, &locks, &check), FAR_OK);
    assert_int_equal(locks, 1);
    close_both(s);
}

/* A drop walks the table, too. */
static void a_drop_waits_for_the_line_of_its_slot(void **state)
{
    struct far_pool_info info;
    (void)state;
    far_session *s = inherit();
    leave_a_lock();
    waits = 12;
    assert_int_equal(far_table_drop(s, table), FAR_OK);
    assert_true(puppet_retired_bytes(&s->client) > 0);
    assert_int_equal(far_pool_info(s, &info), FAR_OK);
    assert_int_equal(info.tables, 1);
    close_both(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_deletes_of_a_ring_share_a_line),
        cmocka_unit_test(a_delete_waits_for_the_line_of_its_slot),
        cmocka_unit_test(a_delete_does_not_wait_for_ever),
        cmocka_unit_test(a_delete_makes_a_line_if_its_own_stays_away),
        cmocka_unit_test(no_operation_waits_for_a_line_that_it_does_not_need),
        cmocka_unit_test(a_walk_waits_for_the_line_of_its_slot),
        cmocka_unit_test(a_drop_waits_for_the_line_of_its_slot),
        cmocka_unit_test(a_check_of_the_pool_waits_for_the_line_of_its_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
