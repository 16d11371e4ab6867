/*
 * A sweep, batch by batch, while others work: the sweeper is a fiber that is stopped at each of its
 * batches, and so are they. All memory that nobody has is found, and none that somebody has.
 */
#include "support/puppet.h"
#include "support/sweep_rig.h"
#include "support/leaks_allowed.h"

#define WORKERS   2
#define DEPTH     4
#define VALUE_MAX 20000

/* Classes with many objects in a chunk, and classes of which a client keeps only a few. */
static const size_t value_sizes[] = {8, 8, 304, 1504, 5000, VALUE_MAX};

/* What the operations in flight read and write. */
static uint64_t values[WORKERS][DEPTH][VALUE_MAX / 8], reads[WORKERS][DEPTH][VALUE_MAX / 8];

struct scope {
    struct store_rig rig; /* its session sweeps */
    struct rng rng;
    struct op op;
    struct fiber *fiber;
    bool sweeping;
    int rc;
    struct sweep_result result;
    far_session *session[1 + WORKERS]; /* [0] is the rig's */
    uint64_t key[WORKERS][DEPTH];
    bool busy[WORKERS][DEPTH];
    bool only_drives[WORKERS]; /* it waits for memory, and starts no operation */
};

static void sweep_body(void *arg)
{
    struct scope *s = arg;
    s->rc = pool_sweep(&s->op, &s->result);
}

static void scope_open(struct scope *s, uint64_t seed)
{
    struct knobs knobs = pool_knobs_default;
    struct far_table_options table = {.tuning = "groups=2", .hash_seed = seed};

    memset(s, 0, sizeof *s);
    rng_seed(&s->rng, seed);
    knobs.tick_ops = 1 + (unsigned)rng_below(&s->rng, 3);
    store_rig_open(&s->rig, "mem:?size=256m&defer=1&" HOUR, &knobs, NULL, &table);
    assert_int_equal(op_init(&s->op, &s->rig.session->client), FAR_OK);
    s->op.batch.on_ring = true;
    assert_non_null(s->fiber = fiber_create(128 * 1024, sweep_body, s));
    s->session[0] = s->rig.session;
    for (unsigned i = 0; i < WORKERS; i++)
        s->session[1 + i] = join(&s->rig, seed * 100 + i, DEPTH);
}

static void scope_close(struct scope *s)
{
    fiber_destroy(s->fiber);
    op_free(&s->op);
    for (unsigned i = 1; i <= WORKERS; i++)
        far_session_close(s->session[i]);
    store_rig_close(&s->rig);
}

static void start_sweep(struct scope *s)
{
    fiber_reset(s->fiber, sweep_body, s);
    fiber_resume(s->fiber);
    s->sweeping = !fiber_finished(s->fiber);
}

/* One batch of the sweeper. Its pauses are cut short. */
static void step_sweep(struct scope *s)
{
    struct fab_ep *ep = s->op.batch.ep;
    ep->ops->poll(ep, false);
    if (s->op.batch.wake_at == 0 && !s->op.batch.req.done)
        return;
    s->op.batch.wake_at = s->op.batch.wake_at ? 1 : 0;
    fiber_resume(s->fiber);
    if (fiber_finished(s->fiber)) {
        s->sweeping = false;
        assert_int_equal(s->rc, FAR_OK);
    }
}

static void reap(struct scope *s, unsigned who, unsigned least)
{
    struct far_result results[DEPTH];
    unsigned n = far_reap(s->session[1 + who], results, DEPTH, least);
    for (unsigned i = 0; i < n; i++) {
        unsigned place = (unsigned)results[i].user_data;
        int rc = results[i].status;
        if (rc != FAR_OK && rc != FAR_NOT_FOUND && rc != FAR_EXISTS)
            fail_msg("%s: %s", far_errname(rc), far_error_detail());
        if (rc == FAR_OK && results[i].len > 0) {
            uint64_t key = s->key[who][place];
            assert_true(results[i].len == value_sizes[key % 6]);
            for (size_t k = 0; k < results[i].len / 8; k++)
                assert_true(reads[who][place][k] == key * 3);
        }
        s->busy[who][place] = false;
    }
}

static void submit(struct scope *s, unsigned who)
{
    static const enum far_op_kind kinds[] = {FAR_OP_INSERT, FAR_OP_PUT, FAR_OP_PUT, FAR_OP_DELETE,
                                             FAR_OP_GET};
    unsigned place = 0;
    while (place < DEPTH && s->busy[who][place])
        place++;
    if (place == DEPTH)
        return;
    s->busy[who][place] = true;
    uint64_t key = s->key[who][place] = 1 + rng_below(&s->rng, 400);
    for (size_t n = 0; n < value_sizes[key % 6] / 8; n++)
        values[who][place][n] = key * 3;
    struct far_op op = {.kind = kinds[rng_below(&s->rng, 5)],
                        .table = s->rig.table,
                        .key = &s->key[who][place],
                        .key_len = 8,
                        .value = values[who][place],
                        .value_len = value_sizes[key % 6],
                        .buf = reads[who][place],
                        .cap = VALUE_MAX,
                        .user_data = place};
    assert_int_equal(far_submit(s->session[1 + who], &op), FAR_OK);
}

static void step_worker(struct scope *s, unsigned who)
{
    if (s->only_drives[who] && s->session[1 + who]->running_count == 0)
        assert_int_equal(client_drive_epoch(&s->session[1 + who]->op), FAR_OK);
    else if (!s->only_drives[who] && rng_below(&s->rng, 3) == 0)
        submit(s, who);
    else
        reap(s, who, 0);
}

static void drain(struct scope *s)
{
    for (unsigned i = 0; i < WORKERS; i++)
        while (s->session[1 + i]->running_count + s->session[1 + i]->finished_count > 0)
            reap(s, i, 1);
}

static void scope_sound(struct scope *s, struct audit *a)
{
    expect_sound(&s->rig, s->session, 1 + WORKERS, a);
    assert_int_equal(far_table_check(s->rig.session, s->rig.table, NULL, NULL), FAR_OK);
}

/* A worker leaves, whether it has met the sweep or not, and another comes. */
static void replace_worker(struct scope *s, unsigned who)
{
    while (s->session[1 + who]->running_count + s->session[1 + who]->finished_count > 0)
        reap(s, who, 1);
    far_session_close(s->session[1 + who]);
    s->session[1 + who] = join(&s->rig, rng_next(&s->rng), DEPTH);
}

/* Sweeps one after another, while workers work, wait, come and go. Returns how often all memory was
 * accounted for between two of them. */
static unsigned look_closely(uint64_t seed, unsigned steps)
{
    struct scope s;
    struct audit a;
    unsigned swept = 0, audits = 0;

    scope_open(&s, seed);
    for (unsigned i = 0; i < steps; i++) {
        unsigned who = (unsigned)rng_below(&s.rng, WORKERS + 1);
        if (rng_below(&s.rng, 100) == 0)
            s.only_drives[rng_below(&s.rng, WORKERS)] ^= true;
        if (rng_below(&s.rng, 300) == 0)
            replace_worker(&s, (unsigned)rng_below(&s.rng, WORKERS));
        if (who < WORKERS) {
            step_worker(&s, who);
        } else if (s.sweeping) {
            step_sweep(&s);
            swept += !s.sweeping;
        } else if (rng_below(&s.rng, 10) == 0) {
            if (rng_below(&s.rng, 2) == 0) {
                drain(&s);
                scope_sound(&s, &a);
                audits++;
            }
            start_sweep(&s);
        }
    }
    memset(s.only_drives, 0, sizeof s.only_drives);
    for (unsigned turn = 0; turn < 2; turn++) { /* the last one finds what the others lost */
        while (s.sweeping) {
            step_sweep(&s);
            step_worker(&s, (unsigned)rng_below(&s.rng, WORKERS));
        }
        drain(&s);
        start_sweep(&s);
    }
    while (s.sweeping) {
        step_sweep(&s);
        for (unsigned i = 0; i < WORKERS; i++)
            assert_int_equal(client_drive_epoch(&s.session[1 + i]->op), FAR_OK);
    }
    scope_sound(&s, &a);
    assert_true(a.bytes[AUDIT_NOWHERE] == 0);
    scope_close(&s);
    return swept < audits ? swept : audits;
}

static void nothing_that_somebody_has_is_found(void **state)
{
    unsigned audits = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 40 / SLOWER; seed++)
        audits += look_closely(seed, 8000);
    assert_true(audits > 40 / SLOWER);
}

/* The same client sweeps twice. The other has seen the first sweep, but not its end. It meets
 * the second one, too. */
static void the_second_sweep_of_a_client_is_met_too(void **state)
{
    struct scope s;
    struct audit a;

    (void)state;
    scope_open(&s, 1);
    far_session *x = s.session[1], *idle = s.session[2];
    for (unsigned turn = 0; turn < 3; turn++) {
        start_sweep(&s);
        for (uint64_t k = 0; s.sweeping; k++) {
            step_sweep(&s);
            if (!s.sweeping)
                break; /* x has not seen its end */
            assert_int_equal(put(&s.rig, x, k % 50, 8), FAR_OK);
            assert_int_equal(client_drive_epoch(&idle->op), FAR_OK);
        }
        assert_true(puppet_held_bytes(&x->client) > 0);
    }
    scope_sound(&s, &a);
    scope_close(&s);
}

/* A client that joins in the middle and makes a table. */
static void a_table_made_during_a_sweep_stays(void **state)
{
    (void)state;
    for (unsigned when = 0; when < 60; when++) {
        struct scope s;
        struct audit a;
        struct far_table_options options = {.tuning = "groups=2", .expected_keys = 500};
        far_table *table = NULL;
        far_session *late = NULL;
        scope_open(&s, 3);
        for (uint64_t k = 0; k < 300; k++)
            assert_int_equal(put(&s.rig, s.session[1], k, 8), FAR_OK);
        for (uint64_t k = 0; k < 300; k += 2)
            assert_int_equal(far_delete(s.session[1], s.rig.table, &k, 8), FAR_OK);
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(client_give_all(&s.session[1]->op, 0), FAR_OK);
        start_sweep(&s);
        for (unsigned i = 0; s.sweeping; i++) {
            if (i == when) {
                late = join(&s.rig, 77, DEPTH);
                assert_int_equal(far_table_create(late, "late", "race", &options, &table), FAR_OK);
            }
            for (unsigned w = 1; w <= WORKERS; w++)
                assert_int_equal(client_drive_epoch(&s.session[w]->op), FAR_OK);
            if (late)
                assert_int_equal(client_drive_epoch(&late->op), FAR_OK);
            step_sweep(&s);
        }
        far_session *all[] = {s.session[0], s.session[1], s.session[2], late};
        expect_sound(&s.rig, all, 4, &a);
        if (late) {
            for (uint64_t k = 0; k < 600; k++)
                assert_int_equal(put(&s.rig, s.session[1], k, 8), FAR_OK);
            assert_int_equal(far_table_check(s.rig.session, table, NULL, NULL), FAR_OK);
            far_session_close(late);
        }
        scope_close(&s);
    }
}

struct taker {
    struct op op;
    struct fiber *fiber;
    gaddr at;
    int rc;
};

static void take(void *arg)
{
    struct taker *t = arg;
    t->rc = op_begin(&t->op, NULL);
    if (t->rc != FAR_OK)
        return;
    t->rc = pool_alloc(&t->op, 0, 20, &t->at);
    if (t->rc == FAR_OK)
        pool_free_unpublished(t->op.client, t->at, 20);
    op_end(&t->op);
}

/* An operation is fetching a chunk when another of its session meets the sweep: for each batch that
 * it may be waiting for. */
static void a_chunk_taken_before_the_sweep_was_met_is_left_to_it(void **state)
{
    (void)state;
    for (unsigned batches = 0; batches < 5; batches++) {
        struct scope s;
        struct taker t = {.rc = FAR_OK};
        struct audit a;
        uint64_t key = 1;
        scope_open(&s, 2);
        s.rig.pool->pool.knobs.tick_ops = UINT32_MAX; /* it carries no announcement */
        far_session *x = s.session[1];
        assert_int_equal(put(&s.rig, x, key, 8), FAR_OK);
        assert_int_equal(op_init(&t.op, &x->client), FAR_OK);
        t.op.batch.on_ring = true;
        assert_non_null(t.fiber = fiber_create(64 * 1024, take, &t));
        fiber_resume(t.fiber);
        for (unsigned i = 0; i < batches && !fiber_finished(t.fiber); i++) {
            x->client.ep->ops->poll(x->client.ep, false);
            fiber_resume(t.fiber);
        }
        s.rig.pool->pool.knobs.tick_ops = 1;
        start_sweep(&s);
        for (unsigned i = 0; puppet_sweep(&x->client) == 0; i++) { /* until x has met it */
            assert_true(i < 1000);
            step_sweep(&s);
            assert_int_equal(far_exists(x, s.rig.table, &key, 8), FAR_OK);
        }
        for (unsigned i = 0; !fiber_finished(t.fiber); i++) {
            assert_true(i < 1000);
            x->client.ep->ops->poll(x->client.ep, false);
            if (t.op.batch.req.done)
                fiber_resume(t.fiber);
        }
        assert_int_equal(t.rc, FAR_OK);
        while (s.sweeping) {
            step_sweep(&s);
            for (unsigned i = 1; i <= WORKERS; i++)
                assert_int_equal(client_drive_epoch(&s.session[i]->op), FAR_OK);
        }
        scope_sound(&s, &a);
        fiber_destroy(t.fiber);
        op_free(&t.op);
        scope_close(&s);
    }
}

/* The sweeper dies after each number of batches. */
static void the_next_sweeper_takes_over(void **state)
{
    unsigned finished = 0;

    (void)state;
    for (unsigned batches = 1; finished < 2; batches++) {
        struct knobs knobs = pool_knobs_default;
        struct far_table_options table = {.tuning = "groups=2", .hash_seed = 3};
        struct store_rig r;
        struct scope s;
        struct audit a;
        struct far_pool_check check;
        assert_true(batches < 1000);
        knobs.tick_ops = 1;
        memset(&s, 0, sizeof s);
        store_rig_open(&r, "mem:?size=8m&defer=1&" HOUR, &knobs, NULL, &table);
        struct probe p;
        probe_open(&p, r.fab);
        far_session *sweeper = join(&r, 2, DEPTH);
        for (uint64_t k = 0; k < 200; k++)
            assert_int_equal(put(&r, sweeper, k, 8), FAR_OK);
        for (uint64_t k = 0; k < 200; k += 2)
            assert_int_equal(far_delete(sweeper, r.table, &k, 8), FAR_OK);
        assert_int_equal(client_give_all(&sweeper->op, 0), FAR_OK);
        assert_int_equal(op_init(&s.op, &sweeper->client), FAR_OK);
        s.op.batch.on_ring = true;
        assert_non_null(s.fiber = fiber_create(128 * 1024, sweep_body, &s));
        start_sweep(&s);
        for (unsigned i = 1; i < batches && s.sweeping; i++) {
            (void)client_drive_epoch(&r.session->op);
            struct fab_ep *ep = sweeper->client.ep;
            ep->ops->poll(ep, false);
            if (s.op.batch.wake_at != 0 || s.op.batch.req.done) {
                s.op.batch.wake_at = s.op.batch.wake_at ? 1 : 0;
                fiber_resume(s.fiber);
                s.sweeping = !fiber_finished(s.fiber);
            }
        }
        finished += !s.sweeping;
        fiber_destroy(s.fiber); /* in the middle: its op may never be touched again */
        puppet_forget_ops(&sweeper->client);
        unsigned slot = sweeper->client.slot;
        store_rig_kill(sweeper);
        probe_set(&p, 0, PROBE_SLOT(slot, incarnation), 0); /* and was reaped */
        probe_set(&p, 0, PROBE_CONTROL(deaths), probe_get(&p, 0, PROBE_CONTROL(deaths)) + 1);
        assert_int_equal(far_pool_check(r.session, true, NULL, NULL, &check), FAR_OK);
        assert_int_equal(check.violations, 0);
        expect_sound(&r, &r.session, 1, &a);
        assert_true(a.bytes[AUDIT_NOWHERE] == 0);
        assert_true(probe_get(&p, 0, PROBE_CONTROL(sweep)) == 0);
        assert_true(probe_get(&p, 0, PROBE_CONTROL(deaths)) == 0);
        probe_close(&p);
        for (uint64_t k = 1; k < 200; k += 2)
            assert_int_equal(far_exists(r.session, r.table, &k, 8), FAR_OK);
        store_rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_that_somebody_has_is_found),
        cmocka_unit_test(the_second_sweep_of_a_client_is_met_too),
        cmocka_unit_test(a_table_made_during_a_sweep_stays),
        cmocka_unit_test(a_chunk_taken_before_the_sweep_was_met_is_left_to_it),
        cmocka_unit_test(the_next_sweeper_takes_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
