/* Sessions that close, or are parked, during a sweep: what they must not give away, and what
 * they must remember. */
#include "support/journal_rig.h"
#include "support/audit.h"
#include "support/hook.h"
#include "support/puppet.h"
#include "support/store_rig.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define HOUR "lease=3600000"
#define KEYS 40u

/* A session that has free memory of its own, and is parked with it. */
static far_session *parked_session(struct store_rig *r)
{
    far_session *s = NULL;
    assert_int_equal(far_session_open(r->pool, NULL, &s), FAR_OK);
    for (uint64_t k = 0; k < KEYS; k++)
        assert_int_equal(far_put(s, r->table, &k, 8, &k, 8), FAR_OK);
    assert_true(puppet_held_bytes(&s->client) > 0);
    assert_int_equal(client_park(&s->op), FAR_OK);
    return s;
}

static struct audit audit(struct store_rig *r)
{
    struct audit a;
    assert_int_equal(sim_audit(&a, r->pool, &r->session, 1), FAR_OK);
    if (a.wrong > 0)
        fail_msg("%s", a.first);
    return a;
}

/* EPOCH-E5: the sweep did not wait for it, and has found what it holds. */
static void a_parked_session_does_not_give_away_what_a_sweep_has_found(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=4m&" HOUR);
    struct sweep_result swept;

    (void)state;
    far_session *s = parked_session(&r);
    assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_OK);
    assert_true(swept.bytes >= puppet_held_bytes(&s->client));
    far_session_close(s);
    assert_true(audit(&r).bytes[AUDIT_NOWHERE] == 0);
    store_rig_close(&r);
}

/* SWEEP-P1: closing a parked client unparks it, which may be in the middle of a sweep. */
static void a_session_that_closes_in_a_sweep_leaves_the_lists_alone(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=4m&" HOUR);
    uint64_t heads[CLASS_COUNT];
    struct probe p;

    (void)state;
    probe_open(&p, r.fab);
    far_session *s = parked_session(&r);
    for (unsigned i = 0; i < CLASS_COUNT; i++)
        heads[i] = probe_get(&p, 0, NODE_FREE_OFF + i * 8ull);
    uint64_t deaths = probe_get(&p, 0, PROBE_CONTROL(deaths));
    probe_set(&p, 0, NODE_SWEEP_OFF, probe_get(&p, 0, NODE_NEXT_CHUNK_OFF));
    probe_set(&p, 0, PROBE_CONTROL(sweep), client_owner_word(&r.session->client) | SWEEP_ANNOUNCED);
    far_session_close(s);
    for (unsigned i = 0; i < CLASS_COUNT; i++)
        assert_true(probe_get(&p, 0, NODE_FREE_OFF + i * 8ull) == heads[i]);
    assert_true(probe_get(&p, 0, PROBE_CONTROL(deaths)) > deaths); /* it has left something */
    probe_set(&p, 0, PROBE_CONTROL(sweep), 0);
    probe_close(&p);
    store_rig_close(&r);
}

/* The sweep has not found what the client had taken above the mark. So the client must count it
 * as lost. */
static void a_client_that_forgets_its_memory_counts_it_as_lost(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=4m&" HOUR);
    struct probe p;
    uint64_t key = 0;

    (void)state;
    probe_open(&p, r.fab);
    far_session *s = parked_session(&r);
    uint64_t held = puppet_held_bytes(&s->client);
    probe_set(&p, 0, PROBE_CONTROL(sweeps), probe_get(&p, 0, PROBE_CONTROL(sweeps)) + 1);
    assert_int_equal(far_exists(s, r.table, &key, 8), FAR_OK);
    assert_true(puppet_held_bytes(&s->client) == 0);
    uint64_t deaths = probe_get(&p, 0, PROBE_CONTROL(deaths));
    assert_true(puppet_lost_bytes(&s->client) >= held || deaths > 0);
    far_session_close(s);
    probe_close(&p);
    store_rig_close(&r);
}

/* SWEEP-P1: the sweeper empties the lists, and must be alone with them. */
static void a_client_that_has_met_a_sweep_takes_nothing_from_the_lists(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=4m&" HOUR);
    struct client *c = &r.session->client;
    struct probe p;
    unsigned classes = 0;

    (void)state;
    probe_open(&p, r.fab);
    far_session_close(parked_session(&r)); /* all it had is on the lists */
    puppet_set_sweep(c, 1);                /* met, and nothing is below its mark */
    for (unsigned i = 0; i < RUN_CLASS; i++) {
        uint64_t head = probe_get(&p, 0, NODE_FREE_OFF + i * 8ull);
        gaddr at = 0;
        if ((head & ((1ull << GADDR_BITS) - 1)) == 0)
            continue;
        classes++;
        puppet_empty_stock(c, 0, i);
        assert_int_equal(pool_alloc(&r.session->op, 0, i, &at), FAR_OK);
        assert_true(probe_get(&p, 0, NODE_FREE_OFF + i * 8ull) == head);
    }
    assert_true(classes > 0);
    puppet_set_sweep(c, 0);
    probe_close(&p);
    store_rig_close(&r);
}

static struct {
    uint64_t chunks; /* the counter, from the mark on */
    bool raised;
    struct probe *probe;
} spill;

/* Another chunk is allocated just before the lists are emptied. */
static int spill_post(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *v = &req->verbs[0];
    if (!spill.raised && v->kind == FAB_READ && v->off == NODE_FREE_OFF &&
        v->len == CLASS_COUNT * 8) {
        spill.raised = true;
        probe_set(spill.probe, 0, NODE_NEXT_CHUNK_OFF, spill.chunks + 1);
    }
    return hook.real->post(ep, req);
}

/* A sweep empties the lists, but looks at nothing above its mark. */
static void what_falls_off_the_lists_above_the_mark_is_counted(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=4m&" HOUR);
    struct sweep_result swept;
    struct probe p;

    (void)state;
    probe_open(&p, r.fab);
    far_session_close(parked_session(&r)); /* all it had is on the lists */
    for (unsigned more = 0; more < 2; more++) {
        spill.chunks = probe_get(&p, 0, NODE_NEXT_CHUNK_OFF);
        spill.probe = &p;
        spill.raised = more == 0;
        hook_on(r.session->client.ep);
        hook.ops.post = spill_post;
        assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_OK);
        hook_off();
        assert_true(spill.raised);
        assert_int_equal(probe_get(&p, 0, PROBE_CONTROL(deaths)), more);
    }
    probe_set(&p, 0, NODE_NEXT_CHUNK_OFF, spill.chunks);
    probe_close(&p);
    store_rig_close(&r);
}

static struct {
    struct fab_verb verbs[BATCH_MAX];
    uint64_t word[BATCH_MAX];
    uint64_t image[CLASS_COUNT];
    unsigned count;
    uint64_t from, to; /* words of a node */
} stray;

/* Verbs that change those words time out, and arrive later. */
static int stray_post(struct fab_ep *ep, struct fab_req *req)
{
    bool strays = false;
    for (unsigned i = 0; i < req->count; i++) {
        const struct fab_verb *v = &req->verbs[i];
        strays |= v->kind != FAB_READ && v->off >= stray.from && v->off < stray.to;
    }
    if (!strays || stray.count > 0)
        return hook.real->post(ep, req);
    for (unsigned i = 0; i < req->count; i++) {
        struct fab_verb *v = &stray.verbs[stray.count];
        *v = req->verbs[i];
        if (v->off < stray.from || v->off >= stray.to)
            continue; /* the announcement */
        if (v->kind == FAB_WRITE)
            memcpy(stray.image, v->buf, v->len);
        v->buf = v->kind == FAB_WRITE ? stray.image : &stray.word[stray.count];
        stray.count++;
    }
    req->status = FAR_TIMEOUT;
    req->done = true;
    return FAR_OK;
}

static void stray_sweep(struct store_rig *r, uint64_t from, uint64_t to)
{
    struct sweep_result swept;
    stray.count = 0;
    stray.from = from;
    stray.to = to;
    hook_on(r->session->client.ep);
    hook.ops.post = stray_post;
    assert_int_equal(pool_sweep(&r->session->op, &swept), FAR_TIMEOUT);
    hook_off();
    assert_true(stray.count > 0);
}

static void stray_arrives(struct probe *p)
{
    struct fab_req req = {.verbs = stray.verbs, .count = stray.count};
    assert_int_equal(p->ep->ops->post(p->ep, &req), FAR_OK);
}

/* FABRIC-F5: a client that meets a sweep must not read the mark of an earlier one. */
static void a_late_mark_is_not_that_of_the_next_sweep(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=4m&" HOUR);
    struct probe p;

    (void)state;
    probe_open(&p, r.fab);
    stray_sweep(&r, NODE_SWEEP_OFF, NODE_SWEEP_OFF + 8);
    uint64_t next = probe_get(&p, 0, NODE_NEXT_CHUNK_OFF) + 1;
    probe_set(&p, 0, NODE_SWEEP_OFF, next);
    stray_arrives(&p);
    assert_true(probe_get(&p, 0, NODE_SWEEP_OFF) == next);
    probe_close(&p);
    store_rig_close(&r);
}

/* FABRIC-F5: a sweep that was given up may still empty the lists when others already use them
 * again. */
static void a_late_end_of_the_lists_harms_nobody(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=4m&" HOUR);
    struct probe p;
    gaddr at[2] = {0, 0};

    (void)state;
    probe_open(&p, r.fab);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pool_alloc(&r.session->op, 0, 20, &at[i]), FAR_OK);
    stray_sweep(&r, NODE_FREE_OFF, NODE_FREE_OFF + CLASS_COUNT * 8);
    /* The others do not know of a sweep any more. */
    far_session *s = NULL;
    assert_int_equal(far_session_open(r.pool, NULL, &s), FAR_OK);
    assert_true(puppet_sweep(&s->client) == 0 && !puppet_sweep_unmet(&s->client));
    for (unsigned i = 0; i < 2; i++) {
        pool_free_unpublished(&s->client, at[i], 20);
        assert_int_equal(client_give(&s->op, 0, 20), FAR_OK);
    }
    uint64_t head = probe_get(&p, 0, NODE_FREE_OFF + 20 * 8ull);
    stray_arrives(&p);
    assert_true(probe_get(&p, 0, NODE_FREE_OFF + 20 * 8ull) == head);
    far_session_close(s);
    probe_close(&p);
    store_rig_close(&r);
}

/* The pages of a full node's lists are of other nodes. */
static void pages_that_fall_off_another_nodes_list_are_counted(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=4m&nodes=2&" HOUR);
    struct sweep_result swept;
    struct probe p;
    gaddr at = 0;

    (void)state;
    probe_open(&p, r.fab);
    assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_OK);
    for (unsigned i = 0; i < CLASS_COUNT; i++)
        probe_set(&p, 0, NODE_FREE_OFF + i * 8ull, 0); /* as if others had taken it */
    assert_int_equal(pool_alloc(&r.session->op, 1, 0, &at), FAR_OK);
    pool_free_unpublished(&r.session->client, at, 0);
    assert_int_equal(client_give_all(&r.session->op, 1), FAR_OK);
    spill.chunks = probe_get(&p, 0, NODE_NEXT_CHUNK_OFF);
    spill.probe = &p;
    spill.raised = false;
    hook_on(r.session->client.ep);
    hook.ops.post = spill_post;
    assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_OK);
    hook_off();
    assert_true(spill.raised && swept.spilled);
    assert_int_equal(probe_get(&p, 0, PROBE_CONTROL(deaths)), 1);
    probe_set(&p, 0, NODE_NEXT_CHUNK_OFF, spill.chunks);
    probe_close(&p);
    store_rig_close(&r);
}

/* On a ring, one operation sweeps, and another finds that a sweep goes on. */
static void a_sweep_that_is_refused_leaves_another_alone(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=4m&" HOUR);
    struct client *c = &r.session->client;
    struct sweep_result swept;
    struct probe p;

    (void)state;
    probe_open(&p, r.fab);
    uint64_t word = client_owner_word(c) | SWEEP_ANNOUNCED;
    probe_set(&p, 0, NODE_SWEEP_OFF, 1);
    probe_set(&p, 0, PROBE_CONTROL(sweep), word);
    puppet_set_own_sweep(c, word); /* as when it collects */
    assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_CONTENTION);
    assert_true(puppet_own_sweep(c) == word);
    assert_int_equal(client_drive_epoch(&r.session->op), FAR_OK);
    assert_false(puppet_sweep_unmet(c)); /* it does not make itself let go of what it has found */
    puppet_set_own_sweep(c, 0);
    probe_set(&p, 0, PROBE_CONTROL(sweep), 0);
    probe_close(&p);
    store_rig_close(&r);
}

static struct driven_clock *slow;

static uint64_t slow_now(struct fab_ep *ep)
{
    (void)ep;
    return slow->now;
}

/* Posts that take an eighth of a lease each. */
static int slow_post(struct fab_ep *ep, struct fab_req *req)
{
    slow->now += 125000000;
    return hook.real->post(ep, req);
}

/* LEASE-L1: its memory is not given back any more once its lease has lapsed. */
static void a_client_keeps_its_lease_while_it_gives_back_much_memory(void **state)
{
    struct store_rig r;
    far_session *s = NULL;
    struct probe p;

    (void)state;
    store_rig_open_driven(&r, "mem:?size=4m&lease=1000", NULL, NULL, NULL);
    probe_open(&p, r.fab);
    assert_int_equal(far_session_open(r.pool, NULL, &s), FAR_OK);
    for (unsigned i = 0; i < 3 * BUNDLE_CLASS; i++) {
        gaddr at = 0;
        assert_int_equal(pool_alloc(&s->op, 0, i, &at), FAR_OK);
        pool_free_unpublished(&s->client, at, i);
    }
    unsigned slot = s->client.slot;
    assert_true(probe_get(&p, 0, PROBE_SLOT(slot, incarnation)) != 0);
    slow = r.clock;
    uint64_t before = slow->now;
    hook_on(s->client.ep);
    hook.ops.post = slow_post;
    hook.ops.now = hook.ops.coarse = slow_now;
    far_session_close(s);
    assert_true(slow->now > before + 2000000000);
    assert_true(probe_get(&p, 0, PROBE_SLOT(slot, incarnation)) == 0);
    probe_close(&p);
    store_rig_close(&r);
}

static unsigned recovered;

static int count_recovery(void *arg, struct op *op, const struct journal_entry *entry)
{
    (void)arg;
    (void)op;
    (void)entry;
    recovered++;
    return FAR_OK;
}

/* LEASE-L2: between the last look at a client and its recovery, it may have left, and another
 * client may be at work in its slot. */
static void a_recovery_leaves_the_slots_next_client_alone(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=4m&" HOUR);
    far_session *s = NULL;
    struct probe p;

    (void)state;
    probe_open(&p, r.fab);
    assert_int_equal(far_session_open(r.pool, NULL, &s), FAR_OK);
    unsigned slot = s->client.slot;
    uint64_t incarnation = s->client.incarnation;
    uint64_t deaths = probe_get(&p, 0, PROBE_CONTROL(deaths));
    journal_plant(&p, &r.pool->pool, slot, (struct journal_subject){.what = 1}, 0);
    r.pool->pool.recover = count_recovery;
    uint64_t last_owner = incarnation ^ 1ull << 20;
    assert_int_equal(puppet_recover(&r.session->op, slot, last_owner), FAR_OK);
    assert_int_equal(recovered, 0);
    assert_true(probe_incarnation(&p, slot) == incarnation);
    assert_true(probe_get(&p, 0, PROBE_CONTROL(deaths)) == deaths);
    journal_blank(&p, &r.pool->pool, slot);
    far_session_close(s);
    probe_close(&p);
    store_rig_close(&r);
}

static struct {
    uint64_t slot;
    bool slept, renewed;
    unsigned before; /* posts between its sleep and its new registration */
} sleepy;

/* The client stands still for longer than its lease when it has just come back. */
static int sleepy_post(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *v = &req->verbs[0];
    if (sleepy.slept && !sleepy.renewed) {
        sleepy.renewed =
            v->kind == FAB_READ && v->off == sleepy.slot && v->len == sizeof(struct client_slot);
        sleepy.before += !sleepy.renewed;
    }
    int rc = hook.real->post(ep, req);
    if (v->kind == FAB_WRITE && v->off == sleepy.slot + 8 && !sleepy.slept) {
        sleepy.slept = true;
        hook.clock += 10ull * 3600000 * 1000000;
    }
    return rc;
}

/* When an operation begins, its client is registered, whatever came before. */
static void a_lease_that_lapses_while_a_session_comes_back_is_noticed(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=4m&" HOUR);
    uint64_t key = 1;

    (void)state;
    far_session *s = parked_session(&r);
    sleepy.slot = slot_delta(s->client.slot);
    hook_on(s->client.ep);
    hook_clock();
    hook.ops.post = sleepy_post;
    puppet_ask_for_no_lease(&s->client); /* as on a fabric that shuts clients out by itself */
    assert_int_equal(far_exists(s, r.table, &key, 8), FAR_OK);
    hook_off();
    assert_true(sleepy.slept && sleepy.renewed);
    assert_int_equal(sleepy.before, 0);
    puppet_never_lapse(&s->client); /* by the clock that it has now */
    far_session_close(s);
    store_rig_close(&r);
}

/* ---- the keeper ------------------------------------------------------------------------------ */

static struct {
    pthread_t closer;
    atomic_bool closing;
    atomic_uint posts; /* by others, while the session's buffers are freed */
    unsigned waits;
} closing;

static int closing_post(struct fab_ep *ep, struct fab_req *req)
{
    if (atomic_load(&closing.closing) && !pthread_equal(pthread_self(), closing.closer))
        atomic_fetch_add(&closing.posts, 1);
    return hook.real->post(ep, req);
}

/* Gives the keeper time for many looks. Before that it must have let go of the session. */
static void closing_free(struct fab_ep *ep, void *buf, size_t bytes)
{
    atomic_store(&closing.closing, true);
    for (unsigned i = 0; i < 50 && closing.waits == 0 && atomic_load(&closing.posts) == 0; i++)
        clock_sleep(2000000);
    closing.waits++;
    hook.real->buf_free(ep, buf, bytes);
}

static void the_keeper_lets_go_of_a_session_before_its_memory_is_freed(void **state)
{
    far_pool *pool = NULL;
    far_session *s = NULL;

    (void)state;
    assert_int_equal(far_pool_open("mem:?size=4m&lease=64", &pool), FAR_OK);
    assert_int_equal(far_session_open(pool, NULL, &s), FAR_OK);
    closing.closer = pthread_self();
    client_enter(&s->client); /* the keeper is not to see half a hook */
    hook_on(s->client.ep);
    hook.ops.post = closing_post;
    hook.ops.buf_free = closing_free;
    client_leave(&s->client);
    far_session_close(s);
    assert_true(closing.waits > 0);
    assert_int_equal(atomic_load(&closing.posts), 0);
    far_pool_close(pool);
}

static struct {
    struct probe p;
    uint64_t word; /* of another client's sweep; 0: it is over */
} between;

/* Another client sweeps while this one looks whether anybody does. */
static int between_post(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *v = &req->verbs[0];
    if (between.word == 0 || v->kind != FAB_READ || v->node != 0 || v->off != PROBE_CONTROL(sweep))
        return hook.real->post(ep, req);
    probe_set(&between.p, 0, PROBE_CONTROL(sweep), between.word);
    hook_run(ep, req);
    probe_set(&between.p, 0, PROBE_CONTROL(sweep), 0);
    between.word = 0;
    return FAR_OK;
}

/* It has lost memory, and finds it when the other sweep is over. */
static void a_session_that_closes_sweeps_after_another(void **state)
{
    struct store_rig r;
    gaddr at = 0;

    (void)state;
    store_rig_open_kept(&r, "mem:?size=4m&" HOUR, NULL, NULL);
    probe_open(&between.p, r.fab);
    far_session *s = store_rig_join(&r);
    assert_int_equal(pool_alloc(&s->op, 0, 20, &at), FAR_OK);
    pool_abandon(&s->client, 20);
    assert_int_equal(client_park(&r.session->op), FAR_OK);
    between.word = client_owner_word(&r.session->client);
    hook_on(s->client.ep);
    hook.ops.post = between_post;
    far_session_close(s);
    assert_true(between.word == 0);
    assert_true(probe_get(&between.p, 0, PROBE_CONTROL(deaths)) == 0); /* it leaves no loss */
    probe_close(&between.p);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_parked_session_does_not_give_away_what_a_sweep_has_found),
        cmocka_unit_test(a_session_that_closes_in_a_sweep_leaves_the_lists_alone),
        cmocka_unit_test(a_client_that_has_met_a_sweep_takes_nothing_from_the_lists),
        cmocka_unit_test(a_client_that_forgets_its_memory_counts_it_as_lost),
        cmocka_unit_test(what_falls_off_the_lists_above_the_mark_is_counted),
        cmocka_unit_test(a_late_mark_is_not_that_of_the_next_sweep),
        cmocka_unit_test(a_late_end_of_the_lists_harms_nobody),
        cmocka_unit_test(pages_that_fall_off_another_nodes_list_are_counted),
        cmocka_unit_test(a_session_that_closes_sweeps_after_another),
        cmocka_unit_test(a_sweep_that_is_refused_leaves_another_alone),
        cmocka_unit_test(a_recovery_leaves_the_slots_next_client_alone),
        cmocka_unit_test(a_lease_that_lapses_while_a_session_comes_back_is_noticed),
        cmocka_unit_test(a_client_keeps_its_lease_while_it_gives_back_much_memory),
        cmocka_unit_test(the_keeper_lets_go_of_a_session_before_its_memory_is_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
