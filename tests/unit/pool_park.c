/* Sessions that are not used: nobody waits for them, and nothing goes wrong when they come back. */
#include "support/audit.h"
#include "support/hook.h"
#include "support/probe.h"
#include "support/puppet.h"
#include "support/store_rig.h"

#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define HOUR "lease=3600000" /* nobody is taken for dead meanwhile */

static void put(struct store_rig *r, far_session *s, uint64_t key, uint64_t value)
{
    assert_int_equal(far_put(s, r->table, &key, sizeof key, &value, sizeof value), FAR_OK);
}

static void key_holds(struct store_rig *r, far_session *s, uint64_t key, uint64_t value)
{
    uint64_t got = 0;
    assert_int_equal(far_get(s, r->table, &key, sizeof key, &got, sizeof got, NULL), FAR_OK);
    assert_true(got == value);
}

static void expect_sound(struct store_rig *r, far_session *const *sessions, unsigned count)
{
    struct audit a;
    sim_audit(&a, r->pool, sessions, count);
    if (a.wrong > 0)
        fail_msg("%u objects in two places: %s", a.wrong, a.first);
}

/* The pool is opened as users do: with a keeper. Twice what fits goes through it. */
static void nobody_waits_for_an_idle_session(void **state)
{
    far_pool *pool = NULL;
    far_session *idle = NULL, *busy = NULL;
    far_table *table = NULL;
    uint64_t key = 1, value[128] = {0}, got = 0;

    (void)state;
    assert_int_equal(far_pool_open("mem:?size=4m&" HOUR, &pool), FAR_OK);
    assert_int_equal(far_session_open(pool, NULL, &idle), FAR_OK);
    assert_int_equal(far_table_create(idle, "t", "race", NULL, &table), FAR_OK);
    assert_int_equal(far_put(idle, table, &key, 8, &key, 8), FAR_OK);
    assert_int_equal(far_session_open(pool, NULL, &busy), FAR_OK);
    for (unsigned i = 0; i < 8000; i++) {
        uint64_t other = 2 + i % 16;
        assert_int_equal(far_put(busy, table, &other, 8, value, sizeof value), FAR_OK);
    }
    assert_int_equal(far_get(idle, table, &key, 8, &got, 8, NULL), FAR_OK);
    assert_true(got == 1);
    far_session_close(idle);
    far_session_close(busy);
    far_pool_close(pool);
}

/* While it is parked the table grows, and what its directory names is reused for other things. */
static void what_a_parked_session_knows_is_out_of_date(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=64m&" HOUR);
    far_session *idle = store_rig_join(&r);

    (void)state;
    for (uint64_t key = 0; key < 50; key++)
        put(&r, idle, key, key);
    for (uint64_t round = 0; round < 30; round++) {
        uint64_t first = 1000 + round * 100;
        assert_int_equal(client_park(&idle->op), FAR_OK);
        for (uint64_t key = first; key < first + 100; key++)
            put(&r, r.session, key, key);
        for (unsigned i = 0; i < 20; i++) /* what was retired is free */
            assert_int_equal(client_drive_epoch(&r.session->op), FAR_OK);
        (void)client_reclaim(&r.session->client);
        for (uint64_t key = 0; key < 50; key++) {
            key_holds(&r, idle, key, key + (round > 0 ? round - 1 : 0));
            put(&r, idle, key, key + round);
            key_holds(&r, r.session, key, key + round);
        }
    }
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    far_session_close(idle);
    store_rig_close(&r);
}

/* Also the one that the announcement before has found valid, and that has not changed. */
static void a_parked_session_doubts_its_caches(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=16m&" HOUR);
    struct op *op = &r.session->op;
    struct cached cached = {.version_at = 0, .version_delta = CLIENTS_OFF};

    (void)state;
    client_cache(&r.session->client, &cached);
    cached.stale = false;
    cached.version = r.session->client.incarnation;
    assert_int_equal(r.session->client.slot, 0); /* where version_delta leads */
    assert_int_equal(op_begin(op, &cached), FAR_OK);
    batch_read(&op->batch, 0, CONTROL_OFF, op->pool_word, 8);
    assert_int_equal(batch_flush(&op->batch), FAR_OK);
    op_end(op);
    assert_true(!cached.stale);
    assert_int_equal(client_park(op), FAR_OK);
    assert_int_equal(op_begin(op, &cached), FAR_OK);
    assert_true(cached.stale);
    op_end(op);
    client_uncache(&r.session->client, &cached);
    store_rig_close(&r);
}

/* A sweep takes what a parked session holds for lost. */
static void a_sweep_does_not_wait_for_a_parked_session(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=16m&" HOUR);
    far_session *both[2] = {r.session, store_rig_join(&r)};
    struct sweep_result swept;

    (void)state;
    for (unsigned round = 0; round < 10; round++) {
        for (uint64_t key = 0; key < 200; key++)
            put(&r, both[1], key, key);
        assert_int_equal(client_park(&both[1]->op), FAR_OK);
        assert_true(puppet_held_bytes(&both[1]->client) > 0);
        assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_OK);
        assert_true(swept.bytes > 0);
        for (uint64_t key = 200; key < 400; key++) /* from what was found */
            put(&r, r.session, key, key);
        put(&r, both[1], 0, round);
        expect_sound(&r, both, 2);
        if (round % 2 == 0) { /* nor may it give it away when it leaves */
            assert_int_equal(client_park(&both[1]->op), FAR_OK);
            assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_OK);
            far_session_close(both[1]);
            expect_sound(&r, both, 1);
            both[1] = store_rig_join(&r);
        }
    }
    far_session_close(both[1]);
    store_rig_close(&r);
}

/* No sweep was made, or one that it met. */
static void a_parked_session_keeps_what_it_has(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=16m&" HOUR);
    far_session *both[2] = {r.session, store_rig_join(&r)};

    (void)state;
    for (uint64_t key = 0; key < 200; key++)
        put(&r, both[1], key, key);
    uint64_t held = puppet_held_bytes(&both[1]->client);
    assert_true(held > 0);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(client_park(&both[1]->op), FAR_OK);
        key_holds(&r, both[1], 1, 1);
        assert_true(puppet_held_bytes(&both[1]->client) == held);
    }
    expect_sound(&r, both, 2);
    far_session_close(both[1]);
    store_rig_close(&r);
}

/* Moves the epoch on before the second request, when a session that comes back has read it, but
 * has no certificate yet. And by one more before the third, for a client that had looked before
 * that. */
static struct {
    const struct fab_ops *real;
    struct fab_ops ops;
    struct probe probe;
    unsigned posted;
    uint64_t by;
} meanwhile;

static int post_late(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t by = ++meanwhile.posted == 2 ? meanwhile.by : meanwhile.posted == 3;
    probe_set(&meanwhile.probe, 0, PROBE_CONTROL(epoch), probe_epoch(&meanwhile.probe) + by);
    return meanwhile.real->post(ep, req);
}

static void the_epoch_runs_on_while_a_session_comes_back(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=16m&" HOUR);
    struct client *c = &r.session->client;

    (void)state;
    put(&r, r.session, 1, 1);
    probe_open(&meanwhile.probe, r.fab);
    meanwhile.real = c->ep->ops;
    meanwhile.ops = *meanwhile.real;
    meanwhile.ops.post = post_late;
    uint64_t inc = c->incarnation;
    for (meanwhile.by = 1; meanwhile.by < 5; meanwhile.by++) {
        assert_int_equal(client_park(&r.session->op), FAR_OK);
        uint64_t epoch = probe_epoch(&meanwhile.probe);
        meanwhile.posted = 0;
        c->ep->ops = &meanwhile.ops;
        for (unsigned i = 0; i < 10; i++) {
            put(&r, r.session, 1, i);
            assert_true(!puppet_lost_lease(c) && c->incarnation == inc);
        }
        c->ep->ops = meanwhile.real;
        assert_true(meanwhile.posted > 3 && probe_epoch(&meanwhile.probe) > epoch + meanwhile.by);
    }
    probe_close(&meanwhile.probe);
    store_rig_close(&r);
}

/* No epoch waits for them, but a client that needs their slot or their memory finds them. */
static void sessions_that_die_idle_are_found(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    far_session *s = NULL;

    (void)state;
    knobs.tick_ops = 1;
    store_rig_open_driven(&r, "mem:?size=16m&clients=4&lease=100", &knobs, NULL, NULL);
    for (unsigned i = 0; i < 3; i++) {
        s = store_rig_join(&r);
        put(&r, s, i, i);
        assert_int_equal(client_park(&s->op), FAR_OK);
        store_rig_kill(s);
    }
    r.pool->pool.kept = true;
    s = store_rig_join(&r); /* dead clients have all slots */
    for (unsigned i = 0; i < 3; i++)
        key_holds(&r, s, i, i);
    struct far_pool_check check;
    assert_int_equal(far_pool_check(s, true, NULL, NULL, &check), FAR_OK);
    assert_int_equal(check.dead_clients, 0); /* they all went when it joined, our idle one too */
    assert_true(check.repaired_bytes > 0);
    assert_true(check.leaked_bytes == 0);
    far_session_close(s);
    store_rig_close(&r);
}

static unsigned slots_taken(struct store_rig *r)
{
    struct probe p;
    unsigned taken = 0;
    probe_open(&p, r->fab);
    for (unsigned i = 0; i < r->pool->pool.clients; i++)
        taken += probe_incarnation(&p, i) != 0;
    probe_close(&p);
    return taken;
}

/* After a crash with a full registry, the first session that is opened waits and finds them all:
 * those after it do not have to. */
static void one_wait_frees_all_silent_slots(void **state)
{
    struct store_rig r;
    far_session *s = NULL;

    (void)state;
    store_rig_open_driven(&r, "mem:?size=16m&clients=64&lease=100", NULL, NULL, NULL);
    for (unsigned i = 1; i < 64; i++)
        store_rig_kill(store_rig_join(&r));
    assert_int_equal(slots_taken(&r), 64);
    r.pool->pool.kept = true;
    s = store_rig_join(&r);
    assert_int_equal(slots_taken(&r), 1); /* also that of our idle session, which nobody keeps up */
    far_session_close(s);
    store_rig_close(&r);
}

/* Slots that hold anything at all. What cannot be a journal is nobody's work. */
static void a_registry_of_nonsense_is_cleared(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=16m&clients=40&lease=1000");
    far_session *s = NULL;
    struct far_pool_check check;
    struct probe p;
    struct rng rng;

    (void)state;
    put(&r, r.session, 1, 1);
    probe_open(&p, r.fab);
    rng_seed(&rng, 9);
    for (unsigned i = 0; i < 40; i++)
        for (unsigned word = 0; word < sizeof(struct client_slot) / 8; word++)
            probe_set(&p, 0, PROBE_SLOT(i, incarnation) + word * 8,
                      word == 6 ? rng_next(&rng) | 0xff00 : rng_next(&rng) | 1);
    probe_close(&p);
    r.pool->pool.kept = true;
    s = store_rig_join(&r); /* clears those away that say that they are fenced already */
    assert_int_equal(far_pool_check(s, true, NULL, NULL, &check), FAR_OK);
    assert_int_equal(slots_taken(&r), 1);
    assert_int_equal(check.leaked_bytes, 0);
    key_holds(&r, s, 1, 1);
    far_session_close(s);
    store_rig_close(&r);
}

/* A session of a live process keeps its slot, used or not. The pool's keeper, a thread, has a
 * lease and a half to show that it is alive. */
static void sessions_of_live_processes_keep_their_slots(void **state)
{
    far_pool *pool = NULL;
    far_session *s[4] = {NULL}, *none = NULL;

    (void)state;
    assert_int_equal(far_pool_open("mem:?size=16m&clients=4&lease=20000", &pool), FAR_OK);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(far_session_open(pool, NULL, &s[i]), FAR_OK);
    assert_int_equal(far_session_open(pool, NULL, &none), FAR_NO_CLIENT_SLOT);
    assert_non_null(strstr(far_error_detail(), "4 client slots"));
    far_session_close(s[2]);
    assert_int_equal(far_session_open(pool, NULL, &s[2]), FAR_OK);
    for (unsigned i = 0; i < 4; i++)
        far_session_close(s[i]);
    far_pool_close(pool);
}

static struct {
    struct probe *probe;
    unsigned slot;
    uint64_t certificate; /* of that slot, when a sweep was begun */
} begun;

static int post_of_a_sweeper(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count && begun.certificate == 0; i++)
        if (req->verbs[i].kind == FAB_CAS && req->verbs[i].off == PROBE_CONTROL(sweep))
            begun.certificate = probe_get(begun.probe, 0, PROBE_SLOT(begun.slot, epoch));
    return hook.real->post(ep, req);
}

/* If it died while parked, no other client would look for it, and its sweep would go on for
 * ever. */
static void a_parked_client_is_announced_before_it_sweeps(void **state)
{
    struct store_rig r;
    struct probe p;
    struct sweep_result swept;

    (void)state;
    store_rig_open(&r, "mem:?size=64m&" HOUR, NULL, NULL, NULL);
    probe_open(&p, r.pool->fab);
    struct client *c = &r.session->client;
    assert_int_equal(client_park(&r.session->op), FAR_OK);
    assert_true(probe_get(&p, 0, PROBE_SLOT(c->slot, epoch)) == NO_EPOCH);
    begun = (typeof(begun)){.probe = &p, .slot = c->slot};
    hook_on(c->ep);
    hook.ops.post = post_of_a_sweeper;
    assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_OK);
    hook_off();
    assert_true(begun.certificate != 0 && begun.certificate != NO_EPOCH);
    probe_close(&p);
    store_rig_close(&r);
}

/* While it waited, another operation lost the registration and could not get another. */
static void a_client_without_a_slot_is_not_announced(void **state)
{
    struct store_rig r;

    (void)state;
    store_rig_open(&r, "mem:?size=64m&" HOUR, NULL, NULL, NULL);
    struct client *c = &r.session->client;
    assert_int_equal(client_park(&r.session->op), FAR_OK);
    unsigned slot = c->slot;
    c->slot = NO_SLOT;
    puppet_lose_lease(c);
    assert_int_equal(client_unpark(&r.session->op), FAR_FENCED);
    c->slot = slot;
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_waits_for_an_idle_session),
        cmocka_unit_test(what_a_parked_session_knows_is_out_of_date),
        cmocka_unit_test(a_parked_session_doubts_its_caches),
        cmocka_unit_test(the_epoch_runs_on_while_a_session_comes_back),
        cmocka_unit_test(a_sweep_does_not_wait_for_a_parked_session),
        cmocka_unit_test(a_parked_session_keeps_what_it_has),
        cmocka_unit_test(sessions_that_die_idle_are_found),
        cmocka_unit_test(one_wait_frees_all_silent_slots),
        cmocka_unit_test(a_registry_of_nonsense_is_cleared),
        cmocka_unit_test(sessions_of_live_processes_keep_their_slots),
        cmocka_unit_test(a_parked_client_is_announced_before_it_sweeps),
        cmocka_unit_test(a_client_without_a_slot_is_not_announced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
