/*
 * Sweeping: all memory that nobody has is found, and none that somebody has. Others work meanwhile:
 * the sweeper is a fiber that is stopped at each of its batches, and so are they.
 */
#include "support/hook.h"
#include "support/audit.h"
#include "support/puppet.h"
#include "support/store_rig.h"
#include "support/undead.h"

#include <pthread.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define HOUR "lease=3600000"

static far_session *join(struct store_rig *r, uint64_t seed, unsigned depth)
{
    struct far_session_options options = {.seed = seed, .depth = depth};
    far_session *s = NULL;
    assert_int_equal(far_session_open(r->pool, &options, &s), FAR_OK);
    return s;
}

static int put(struct store_rig *r, far_session *s, uint64_t key, size_t len)
{
    static uint8_t value[100000];
    for (size_t i = 0; i < len; i++)
        value[i] = (uint8_t)(key + i);
    return far_put(s, r->table, &key, sizeof key, value, len);
}

static void expect_sound(struct store_rig *r, far_session *const *sessions, unsigned count,
                         struct audit *a)
{
    sim_audit(a, r->pool, sessions, count);
    if (a->wrong > 0)
        fail_msg("%u objects in two places: %s", a->wrong, a->first);
}

/* ---- exactly what is lost -------------------------------------------------------------------- */

/* Sessions work and die with their hands full; the account says what was lost, the sweep finds
 * that, and the pool's own figures agree with both. */
static void what_dead_clients_had_is_found_to_the_byte(void **state)
{
    static const char *const uris[] = {"mem:?size=16m&lease=60", "mem:?size=8m&nodes=3&lease=60"};

    (void)state;
    for (unsigned u = 0; u < 2; u++) {
        struct knobs knobs = pool_knobs_default;
        struct store_rig r;
        struct audit before, after;
        struct far_pool_check check;
        struct far_pool_usage usage;
        knobs.tick_ops = 1;
        store_rig_open_driven(&r, uris[u], &knobs, NULL, NULL);
        for (unsigned turn = 0; turn < 2; turn++) {
            far_session *s = join(&r, turn + 2, 8);
            for (uint64_t k = 0; k < 300; k++) {
                assert_int_equal(put(&r, s, k, k * 7 % 3000), FAR_OK);
                if (k % 3 == 0)
                    assert_int_equal(far_delete(s, r.table, &k, 8), FAR_OK);
                assert_int_equal(far_exists(r.session, r.table, &k, 8),
                                 k % 3 == 0 ? FAR_NOT_FOUND : FAR_OK);
            }
            assert_int_equal(put(&r, s, 1000, 90000), FAR_OK);
            assert_int_equal(put(&r, s, 1000, 1), FAR_OK);
            far_session *two[] = {r.session, s};
            expect_sound(&r, two, 2, &before);
            if (turn == 0)
                assert_true(before.bytes[AUDIT_NOWHERE] == 0);
            store_rig_kill(s);
        }
        expect_sound(&r, &r.session, 1, &before);
        assert_true(before.bytes[AUDIT_NOWHERE] > 100000);
        assert_int_equal(far_pool_check(r.session, true, NULL, NULL, &check), FAR_OK);
        assert_int_equal(check.dead_clients, 2);
        assert_int_equal(check.violations, 0);
        assert_true(check.repaired_bytes == before.bytes[AUDIT_NOWHERE]);
        assert_true(check.leaked_bytes == 0);
        expect_sound(&r, &r.session, 1, &after);
        assert_true(after.bytes[AUDIT_NOWHERE] == 0);
        assert_true(after.bytes[AUDIT_LIVE] == before.bytes[AUDIT_LIVE]);
        assert_int_equal(far_pool_usage(r.session, &usage), FAR_OK);
        assert_true(usage.unknown == 0);
        assert_true(usage.live == after.bytes[AUDIT_LIVE]);
        /* Once more: there is nothing to be found. */
        assert_int_equal(far_pool_check(r.session, true, NULL, NULL, &check), FAR_OK);
        assert_true(check.repaired_bytes == 0 && check.dead_clients == 0);
        store_rig_close(&r);
    }
}

/* live + retired + free + metadata = total, with nothing left over. */
static void usage_adds_up_on_a_quiet_pool(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    far_session *s[4];
    struct rng rng;

    (void)state;
    knobs.tick_ops = 1;
    store_rig_open(&r, "mem:?size=16m&nodes=2&" HOUR, &knobs, NULL, NULL);
    s[0] = r.session;
    for (unsigned i = 1; i < 4; i++)
        s[i] = join(&r, i + 1, 8);
    rng_seed(&rng, 5);
    for (unsigned round = 0; round < 20; round++) {
        struct far_pool_usage usage;
        struct far_pool_info info;
        struct audit a;
        for (unsigned i = 0; i < 300; i++) {
            uint64_t key = rng_below(&rng, 200);
            far_session *who = s[rng_below(&rng, 4)];
            int rc = rng_below(&rng, 3) ? put(&r, who, key, rng_below(&rng, 5000))
                                        : far_delete(who, r.table, &key, 8);
            assert_true(rc == FAR_OK || rc == FAR_NOT_FOUND);
        }
        for (unsigned i = 0; i < 4; i++) { /* all say what they have */
            uint64_t key = 1;
            (void)far_exists(s[i], r.table, &key, 8);
            (void)far_exists(s[i], r.table, &key, 8);
        }
        expect_sound(&r, s, 4, &a);
        assert_int_equal(far_pool_info(r.session, &info), FAR_OK);
        assert_int_equal(far_pool_usage(r.session, &usage), FAR_OK);
        assert_true(usage.total == 2 * (16ull << 20));
        assert_true(usage.live == a.bytes[AUDIT_LIVE]);
        assert_true(usage.retired == a.bytes[AUDIT_RETIRED]);
        assert_true(usage.free == a.bytes[AUDIT_LISTED] + a.bytes[AUDIT_HELD] + info.bytes_free);
        assert_true(usage.unknown == 0 && a.bytes[AUDIT_NOWHERE] == 0);
        assert_true(usage.metadata + usage.live + usage.retired + usage.free == usage.total);
    }
    for (unsigned i = 1; i < 4; i++)
        far_session_close(s[i]);
    store_rig_close(&r);
}

/* ---- under a microscope ---------------------------------------------------------------------- */

#define WORKERS   2
#define DEPTH     4
#define VALUE_MAX 20000

/* Classes of which a chunk has many objects, and such of which a client keeps but a few. */
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
    bool only_hastening[WORKERS]; /* it waits for memory, and starts no operation */
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

/* One batch of the sweeper. Its pauses are no time to wait for here. */
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
    if (s->only_hastening[who] && s->session[1 + who]->running_count == 0)
        assert_int_equal(client_drive_epoch(&s->session[1 + who]->op), FAR_OK);
    else if (!s->only_hastening[who] && rng_below(&s->rng, 3) == 0)
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

/* A worker leaves, with whatever it has met or not, and another comes. */
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
            s.only_hastening[rng_below(&s.rng, WORKERS)] ^= true;
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
    memset(s.only_hastening, 0, sizeof s.only_hastening);
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

/* The same client sweeps twice; the other meets the second as well, though it was between the two
 * all the time and has seen only the first. */
static void two_sweeps_of_one_client_are_two(void **state)
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
            assert_int_equal(client_return_all(&s.session[1]->op, 0), FAR_OK);
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
        s.rig.pool->pool.knobs.tick_ops = UINT32_MAX; /* it carries no flight */
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

/* ---- sweepers that die or fail --------------------------------------------------------------- */

/* The sweeper stops for good after each number of batches. */
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
        assert_int_equal(client_return_all(&sweeper->op, 0), FAR_OK);
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

static int fail_to_mark(void *arg, struct op *op, struct marker *marker)
{
    (void)arg;
    (void)op;
    (void)marker;
    return FAR_CORRUPT;
}

/* A sweep that fails is given up: others may sweep, and use the lists. */
static void a_sweep_that_fails_is_over(void **state)
{
    struct store_rig r;
    struct sweep_result result = {0};
    struct probe p;
    struct audit a;

    (void)state;
    store_rig_open(&r, "mem:?size=8m&" HOUR, NULL, NULL, NULL);
    probe_open(&p, r.fab);
    for (uint64_t k = 0; k < 200; k++)
        assert_int_equal(put(&r, r.session, k, 100), FAR_OK);
    int (*mark)(void *, struct op *, struct marker *) = r.pool->pool.mark;
    r.pool->pool.mark = fail_to_mark;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(pool_sweep(&r.session->op, &result), FAR_CORRUPT);
        assert_true(result.objects == 0);
        assert_true(probe_get(&p, 0, PROBE_CONTROL(sweep)) == 0);
        assert_true(probe_get(&p, 0, PROBE_CONTROL(deaths)) > 0); /* what was on the lists */
        assert_int_equal(put(&r, r.session, 1, 100), FAR_OK);
    }
    r.pool->pool.mark = mark;
    assert_int_equal(pool_sweep(&r.session->op, &result), FAR_OK);
    expect_sound(&r, &r.session, 1, &a);
    assert_true(a.bytes[AUDIT_NOWHERE] == 0);
    assert_true(probe_get(&p, 0, PROBE_CONTROL(deaths)) == 0);
    probe_close(&p);
    store_rig_close(&r);
}

/* Somebody else is at it. */
static void one_sweep_at_a_time(void **state)
{
    struct store_rig r;
    struct sweep_result result = {0};
    struct probe p;

    (void)state;
    store_rig_open(&r, "mem:?size=8m&" HOUR, NULL, NULL, NULL);
    probe_open(&p, r.fab);
    far_session *other = join(&r, 2, 8);
    uint64_t word = client_owner_word(&other->client);
    for (unsigned i = 0; i < 2; i++) {
        probe_set(&p, 0, PROBE_CONTROL(sweep), i ? word | SWEEP_ANNOUNCED : word);
        assert_int_equal(pool_sweep(&r.session->op, &result), FAR_CONTENTION);
        assert_true(probe_get(&p, 0, PROBE_CONTROL(sweep)) == (i ? word | SWEEP_ANNOUNCED : word));
    }
    assert_int_equal(put(&r, r.session, 1, 8), FAR_OK); /* all the same */
    far_session_close(other);
    assert_int_equal(pool_sweep(&r.session->op, &result), FAR_OK); /* its word names nobody now */
    assert_true(probe_get(&p, 0, PROBE_CONTROL(sweep)) == 0);
    probe_close(&p);
    store_rig_close(&r);
}

/* ---- chunks that were never written down ----------------------------------------------------- */

/* A client took chunks and died while it wrote what they are for: some of it may be there. */
static void runs_that_were_half_written_down_are_found_once(void **state)
{
    unsigned large = size_class_for(5 * CHUNK_BYTES);

    (void)state;
    for (unsigned written = 0; written < 32; written++) { /* which entries of the run are there */
        struct store_rig r;
        struct sweep_result result = {0};
        struct audit a;
        struct probe p;
        store_rig_open(&r, "mem:?size=8m&" HOUR, NULL, NULL, NULL);
        probe_open(&p, r.fab);
        assert_int_equal(put(&r, r.session, 1, 100), FAR_OK);
        uint64_t first = probe_get(&p, 0, NODE_NEXT_CHUNK_OFF);
        probe_set(&p, 0, NODE_NEXT_CHUNK_OFF, first + 5);
        for (unsigned i = 0; i < 5; i++)
            if (written >> i & 1)
                probe_set(&p, 0, r.pool->pool.head[0].table_off + (first + i) * 8,
                          chunk_entry(i ? CHUNK_LARGE_TAIL : CHUNK_LARGE, large, 9, 5));
        assert_int_equal(put(&r, r.session, 2, 10000), FAR_OK); /* something behind it */
        assert_int_equal(pool_sweep(&r.session->op, &result), FAR_OK);
        expect_sound(&r, &r.session, 1, &a);
        assert_true(a.bytes[AUDIT_NOWHERE] == 0);
        probe_close(&p);
        store_rig_close(&r);
    }
}

/* Below a sweep's mark nothing is handed out: so the counter never goes back. */
static void a_request_that_does_not_fit_leaves_the_counter_alone(void **state)
{
    struct store_rig r;
    struct probe p;
    gaddr at = 0;

    (void)state;
    store_rig_open(&r, "mem:?size=2m&clients=64&" HOUR, NULL, NULL, NULL);
    probe_open(&p, r.fab);
    struct op *op = &r.session->op;
    while (pool_alloc(op, 0, size_class_for(4 * CHUNK_BYTES), &at) == FAR_OK)
        ;
    uint64_t counter = probe_get(&p, 0, NODE_NEXT_CHUNK_OFF);
    assert_true(counter < r.pool->pool.head[0].chunks);
    for (unsigned i = 0; i < 3; i++) {
        uint64_t posted = r.session->op.cost.bytes_written;
        assert_int_equal(pool_alloc(op, 0, size_class_for(4 * CHUNK_BYTES), &at), FAR_POOL_FULL);
        assert_true(r.session->op.cost.bytes_written == posted); /* not even for a moment */
        assert_true(probe_get(&p, 0, NODE_NEXT_CHUNK_OFF) == counter);
    }
    probe_close(&p);
    store_rig_close(&r);
}

/* ---- threads --------------------------------------------------------------------------------- */

#define THREADS 2

struct worker {
    struct store_rig *rig;
    pthread_t thread;
    unsigned who, ops;
    int rc;
    bool *stop;
    uint64_t version[64]; /* of each of its own keys; 0: deleted */
};

static void fill_value(uint64_t *value, unsigned words, uint64_t key, uint64_t version)
{
    for (unsigned i = 0; i < words; i++)
        value[i] = key << 32 ^ version;
}

static int expect_version(struct worker *w, far_session *s, uint64_t key)
{
    uint64_t got[64] = {0}, want[64], id = (uint64_t)w->who << 8 | key;
    size_t len = 0;
    int rc = far_get(s, w->rig->table, &id, 8, got, sizeof got, &len);
    if (w->version[key] == 0)
        return rc == FAR_NOT_FOUND ? FAR_OK : rc == FAR_OK ? FAR_CORRUPT : rc;
    fill_value(want, 64, id, w->version[key]);
    return rc != FAR_OK ? rc : memcmp(got, want, len) == 0 ? FAR_OK : FAR_CORRUPT;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    far_session *s = NULL;
    struct rng rng;
    uint64_t value[64];

    rng_seed(&rng, w->who + 5);
    w->rc = far_session_open(w->rig->pool, NULL, &s);
    for (uint64_t i = 1; w->rc == FAR_OK && !__atomic_load_n(w->stop, __ATOMIC_RELAXED); i++) {
        uint64_t key = rng_below(&rng, 64), id = (uint64_t)w->who << 8 | key;
        unsigned words = 1 + (unsigned)rng_below(&rng, 64);
        if (rng_below(&rng, 4) == 0) {
            w->rc = far_delete(s, w->rig->table, &id, 8);
            w->rc = w->rc == FAR_NOT_FOUND && w->version[key] == 0 ? FAR_OK : w->rc;
            w->version[key] = 0;
        } else {
            fill_value(value, words, id, i);
            w->rc = far_put(s, w->rig->table, &id, 8, value, words * 8);
            w->version[key] = i;
        }
        if (w->rc == FAR_OK)
            w->rc = expect_version(w, s, rng_below(&rng, 64));
        w->ops++;
    }
    far_session_close(s);
    return NULL;
}

static void threads_work_through_sweeps(void **state)
{
    static struct worker w[THREADS];
    struct store_rig r;
    struct audit a;
    struct far_table_options table = {.tuning = "groups=2"};
    bool stop = false;

    (void)state;
    store_rig_open(&r, "mem:?size=64m&" HOUR, NULL, NULL, &table);
    for (unsigned i = 0; i < THREADS; i++) {
        w[i] = (struct worker){.rig = &r, .who = i + 1, .stop = &stop};
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (unsigned i = 0; i < 40 / SLOWER; i++) {
        struct sweep_result result;
        int rc = FAR_CONTENTION;
        while (rc == FAR_CONTENTION) { /* the workers sweep, too, if they have used up the pool */
            assert_int_equal(client_drive_epoch(&r.session->op), FAR_OK);
            rc = pool_sweep(&r.session->op, &result);
        }
        assert_int_equal(rc, FAR_OK);
        for (uint64_t n = 0; n < 1000; n++) /* not one after the other: nobody would get on */
            assert_int_equal(put(&r, r.session, 1u << 20 | n % 64, n % 512), FAR_OK);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(w[i].thread, NULL);
        assert_int_equal(w[i].rc, FAR_OK);
        for (uint64_t key = 0; key < 64; key++)
            assert_int_equal(expect_version(&w[i], r.session, key), FAR_OK);
    }
    expect_sound(&r, &r.session, 1, &a);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    struct far_pool_check check;
    assert_int_equal(far_pool_check(r.session, true, NULL, NULL, &check), FAR_OK);
    expect_sound(&r, &r.session, 1, &a);
    assert_true(a.bytes[AUDIT_NOWHERE] == 0);
    store_rig_close(&r);
}

static struct {
    bool counted, released;
} ends;

static int post_end(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count; i++) {
        const struct fab_verb *v = &req->verbs[i];
        ends.counted |= v->kind == FAB_FAA && v->off == PROBE_CONTROL(deaths);
        if (v->kind != FAB_CAS || v->off != PROBE_CONTROL(sweep) || v->swap != 0)
            continue;
        ends.released = true;
        assert_true(ends.counted);
    }
    return hook.real->post(ep, req);
}

/* The next sweep may begin when this one is over, and then reads the count. */
static void a_death_is_taken_off_the_count_once(void **state)
{
    struct sweep_result result;
    struct store_rig r;
    struct probe p;

    (void)state;
    store_rig_open(&r, "mem:?size=2m&" HOUR, NULL, NULL, NULL);
    probe_open(&p, r.fab);
    probe_set(&p, 0, PROBE_CONTROL(deaths), 3);
    hook_on(r.session->client.ep);
    hook.ops.post = post_end;
    ends = (typeof(ends)){false, false};
    assert_int_equal(pool_sweep(&r.session->op, &result), FAR_OK);
    hook_off();
    assert_true(ends.released);
    assert_true(probe_get(&p, 0, PROBE_CONTROL(deaths)) == 0);
    probe_close(&p);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_is_taken_off_the_count_once),
        cmocka_unit_test(what_dead_clients_had_is_found_to_the_byte),
        cmocka_unit_test(usage_adds_up_on_a_quiet_pool),
        cmocka_unit_test(nothing_that_somebody_has_is_found),
        cmocka_unit_test(two_sweeps_of_one_client_are_two),
        cmocka_unit_test(a_table_made_during_a_sweep_stays),
        cmocka_unit_test(a_chunk_taken_before_the_sweep_was_met_is_left_to_it),
        cmocka_unit_test(the_next_sweeper_takes_over),
        cmocka_unit_test(a_sweep_that_fails_is_over),
        cmocka_unit_test(one_sweep_at_a_time),
        cmocka_unit_test(runs_that_were_half_written_down_are_found_once),
        cmocka_unit_test(a_request_that_does_not_fit_leaves_the_counter_alone),
        cmocka_unit_test(threads_work_through_sweeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
