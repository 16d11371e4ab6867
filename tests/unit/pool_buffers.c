/* An index's buffers and words are its own: no pool function changes them. */
#include "support/journal_rig.h"
#include "support/probe.h"
#include "support/pool_rig.h"
#include "support/puppet.h"
#include "support/store_rig.h"
#include "support/leaks_allowed.h"

#include "pool/array.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define BYTES 20000u /* of each buffer: more than any pool function needs at once here */

static const enum op_buf own[] = {BUF_INDEX, BUF_BLOCK_OUT, BUF_BLOCK_IN, BUF_BULK};
#define OWN (sizeof own / sizeof *own)

static struct {
    struct op *op;
    uint8_t *buf[OWN];
    uint64_t *word;
} kept;

/* Never twice the same, so that no pool function writes it by chance. */
static uint8_t pattern(unsigned which, unsigned at)
{
    return (uint8_t)(0xa5 ^ (which * 31 + at * 7 + at / 256));
}

static void fill(struct op *op)
{
    kept.op = op;
    for (unsigned i = 0; i < OWN; i++) {
        kept.buf[i] = op_buffer(op, own[i], BYTES);
        assert_non_null(kept.buf[i]);
        for (unsigned at = 0; at < BYTES; at++)
            kept.buf[i][at] = pattern(i, at);
    }
    kept.word = op->word;
    for (unsigned i = 0; i < OP_INDEX_WORDS; i++)
        op->word[i] = ~(uint64_t)i * 0x9e3779b97f4a7c15ull;
}

/* As they were filled, and where they were. */
static void expect_kept(const char *after)
{
    for (unsigned i = 0; i < OWN; i++) {
        if (op_buffer(kept.op, own[i], BYTES) != kept.buf[i])
            fail_msg("after %s buffer %u is another", after, i);
        for (unsigned at = 0; at < BYTES; at++)
            if (kept.buf[i][at] != pattern(i, at))
                fail_msg("after %s byte %u of buffer %u has changed", after, at, i);
    }
    if (kept.op->word != kept.word)
        fail_msg("after %s the words are elsewhere", after);
    for (unsigned i = 0; i < OP_INDEX_WORDS; i++)
        if (kept.word[i] != ~(uint64_t)i * 0x9e3779b97f4a7c15ull)
            fail_msg("after %s word %u has changed", after, i);
}

/* What comes back must be FAR_OK. */
#define CALL(call)                                                                                 \
    do {                                                                                           \
        assert_int_equal(call, FAR_OK);                                                            \
        expect_kept(#call);                                                                        \
    } while (0)

/* Fills the pool with objects of all classes, and gives them back in every way there is. */
static void allocation_leaves_an_indexs_buffers_alone(void **state)
{
    struct pool_rig r;
    struct op *op = &r.op;
    struct client *c = &r.client;
    static gaddr at[20000];
    static uint8_t of[20000];
    unsigned count = 0, full = 0;

    (void)state;
    pool_rig_open(&r, "mem:?size=9m&nodes=2");
    fill(op);
    CALL(op_begin(op, NULL));
    for (unsigned i = 0; full < CLASS_COUNT; i++) {
        unsigned size_class = i % CLASS_COUNT;
        int rc = pool_alloc(op, i % 2, size_class, &at[count]);
        full = rc == FAR_POOL_FULL ? full + 1 : 0;
        assert_true(rc == FAR_OK || rc == FAR_POOL_FULL);
        of[count] = (uint8_t)size_class;
        count += rc == FAR_OK;
        if (i % 16 == 0)
            expect_kept("pool_alloc");
    }
    assert_true(count > 200);
    expect_kept("pool_alloc");
    for (unsigned i = 0; i < count; i++) {
        if (i % 2)
            pool_retire(c, at[i], of[i]);
        else
            pool_free_unpublished(c, at[i], of[i]);
        CALL(client_upkeep(op));
    }
    op_end(op);
    for (unsigned i = 0; i < 12; i++) {
        CALL(client_drive_epoch(op));
        while (client_reclaim(c)) {
        }
    }
    assert_true(puppet_in_limbo(c) == 0);
    for (unsigned i = 0; i < 4; i++)
        CALL(client_give_all(op, i % 2));
    CALL(pool_alloc(op, 0, RUN_CLASS, &at[0])); /* from the shared lists, or by cutting */
    CALL(pool_alloc(op, 1, 3, &at[1]));
    pool_rig_close(&r);
}

static void look_at(void *arg, unsigned slot, const struct client_slot *s, bool dead)
{
    (void)arg;
    (void)slot;
    (void)s;
    (void)dead;
}

static void other_calls_leave_an_indexs_buffers_alone(void **state)
{
    struct pool_rig r;
    struct op *op = &r.op;
    struct client *c = &r.client;
    struct sweep_result swept;
    struct far_pool_info info;
    struct far_pool_usage usage;
    struct pool_findings findings = {.report = NULL};
    struct table_desc desc = {.name = "t", .index = "race", .root = 1}, found;
    uint64_t retired = 0, held = 0;
    unsigned dead = 0;
    bool alive = false;
    gaddr at = 0;

    (void)state;
    pool_rig_open(&r, "mem:?size=4m&nodes=2");
    struct op add;
    assert_int_equal(op_init(&add, c), FAR_OK); /* its block is encoded in an index's buffer */
    assert_int_equal(catalog_add(&add, &desc), FAR_OK);
    op_free(&add);
    fill(op);
    CALL(catalog_find(op, "t", &found));
    CALL(catalog_get(op, 0, &found));
    CALL(client_owner_alive(op, client_owner_word(c), &alive));
    assert_true(alive);
    CALL(client_barrier(op, 4));
    CALL(pool_alloc(op, 0, 5, &at));
    puppet_set_lost_bytes(c, CHUNK_BYTES); /* there is something to look for */
    CALL(client_upkeep(op));
    CALL(pool_make_room(op, false));
    CALL(pool_sweep(op, &swept));
    CALL(pool_info(op, &info));
    CALL(pool_usage(op, &usage));
    CALL(pool_check(op, &findings));
    CALL(client_bytes(op, &retired, &held));
    CALL(client_reap_dead(op, &dead));
    CALL(client_find_silent(op, look_at, NULL));
    const struct array_shape shape = {.count = 1000, .element = 144, .stripe = 16};
    struct pool_array array, again;
    CALL(pool_array_alloc(op, &shape, &array));
    CALL(pool_array_clear(op, &array));
    CALL(pool_array_open(op, array.ref, &again));
    pool_array_drop(op, &array, FAR_CONTENTION);
    expect_kept("pool_array_drop");
    pool_array_close(&again);
    pool_array_close(&array);
    CALL(client_park(op));
    CALL(op_begin(op, NULL)); /* announces the client again */
    op_end(op);
    puppet_lose_lease(c);
    CALL(op_begin(op, NULL)); /* renews the registration */
    op_end(op);
    client_renounce(op);
    expect_kept("client_renounce");
    CALL(op_begin(op, NULL)); /* registers in another slot */
    op_end(op);
    pool_rig_close(&r);
}

/* Splits of RACE use every buffer, and the client that completes a dead client's split may be in
 * the middle of an operation. */
static void recovering_a_client_leaves_an_indexs_buffers_alone(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct far_session_options session = {.seed = 7, .depth = 1};
    struct far_table_options table = {.tuning = "groups=2", .hash_seed = 11};
    struct store_rig r;
    struct probe p;
    far_session *s = NULL;
    uint64_t key = 0;
    bool journal = false;

    (void)state;
    knobs.patience = 2;
    store_rig_open(&r, "mem:?size=32m&defer=1&lease=3600000", &knobs, &session, &table);
    assert_int_equal(far_session_open(r.pool, &session, &s), FAR_OK);
    probe_open(&p, r.fab);
    unsigned slot = s->client.slot;
    for (; !journal; key++) {
        struct far_op insert = {.kind = FAR_OP_INSERT,
                                .table = r.table,
                                .key = &key,
                                .key_len = 8,
                                .value = &key,
                                .value_len = 8};
        struct far_result result;
        assert_int_equal(far_submit(s, &insert), FAR_OK);
        while (far_reap(s, &result, 1, 0) == 0 && !journal)
            journal = journal_says(&p, &r.pool->pool, slot);
    }
    fiber_destroy(s->slot[0].fiber); /* it stops for good */
    s->slot[0].fiber = NULL;
    struct client *c = &r.session->client;
    puppet_suspect(c, slot, s->client.incarnation);
    fill(&r.session->op);
    uint64_t before = r.session->op.cost.verbs;
    CALL(client_recover(&r.session->op));
    assert_true(r.session->op.cost.verbs > before + 20); /* it did split */
    assert_true(probe_incarnation(&p, slot) == 0);
    for (uint64_t k = 0; k + 1 < key; k++)
        assert_int_equal(far_exists(r.session, r.table, &k, 8), FAR_OK);
    probe_close(&p);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocation_leaves_an_indexs_buffers_alone),
        cmocka_unit_test(other_calls_leave_an_indexs_buffers_alone),
        cmocka_unit_test(recovering_a_client_leaves_an_indexs_buffers_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
