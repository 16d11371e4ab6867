/* Sweeping: what dead clients had is found, and counted once; sweeps that fail or come second;
 * threads that work meanwhile. */
#include "support/hook.h"
#include "support/sweep_rig.h"

#include <pthread.h>

/* ---- exactly what is lost -------------------------------------------------------------------- */

/* Sessions work and die with memory in stock. The audit says what was lost, the sweep finds that
 * much, and the pool's own figures agree with both. */
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
        /* A second sweep finds nothing. */
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

/* ---- sweeps that fail, or come second ------------------------------------------------------- */

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

/* Another client sweeps. */
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
    assert_int_equal(put(&r, r.session, 1, 8), FAR_OK); /* nevertheless */
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
        cmocka_unit_test(a_sweep_that_fails_is_over),
        cmocka_unit_test(one_sweep_at_a_time),
        cmocka_unit_test(runs_that_were_half_written_down_are_found_once),
        cmocka_unit_test(a_request_that_does_not_fit_leaves_the_counter_alone),
        cmocka_unit_test(threads_work_through_sweeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
