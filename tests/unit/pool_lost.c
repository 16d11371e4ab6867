/* Lost memory: every byte of it is counted. And what clients must not do to the shared lists
 * during a sweep. */
#include "support/hook.h"
#include "support/probe.h"
#include "support/puppet.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define URI  "mem:?size=4m&lease=3600000"
#define KEYS 40u

static struct store_rig rig(void)
{
    struct far_table_options table = {.tuning = "groups=2"};
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    knobs.tick_ops = UINT32_MAX;
    store_rig_open(&r, URI, &knobs, NULL, &table);
    for (uint64_t k = 0; k < KEYS; k++)
        assert_int_equal(far_put(r.session, r.table, &k, 8, &k, 8), FAR_OK);
    return r;
}

static void read_lists(struct probe *p, uint64_t *heads)
{
    for (unsigned i = 0; i < CLASS_COUNT; i++)
        heads[i] = probe_get(p, 0, NODE_FREE_OFF + i * 8ull);
}

/* SWEEP-P1: neither when it holds too much, nor when it leaves. */
static void a_client_that_has_met_a_sweep_gives_nothing_to_the_lists(void **state)
{
    struct store_rig r = rig();
    struct client *c = &r.session->client;
    uint64_t before[CLASS_COUNT], after[CLASS_COUNT];
    struct probe p;

    (void)state;
    probe_open(&p, r.fab);
    for (uint64_t k = 0; k < KEYS; k++)
        assert_int_equal(far_delete(r.session, r.table, &k, 8), FAR_OK);
    puppet_reclaim_all(&r.session->op);
    unsigned class = 0;
    while (class < CLASS_COUNT && puppet_kept(c, 0, class) == 0)
        class ++;
    assert_true(class < CLASS_COUNT);
    read_lists(&p, before);
    /* It has met the sweep, and all that it holds is above the mark. */
    puppet_set_sweep(c, client_owner_word(c) | SWEEP_ANNOUNCED);
    puppet_overfill(c, 0, class);
    assert_int_equal(client_upkeep(&r.session->op), FAR_OK);
    assert_int_equal(client_give_all(&r.session->op, 0), FAR_OK);
    read_lists(&p, after);
    assert_memory_equal(before, after, sizeof before);
    puppet_set_sweep(c, 0);
    probe_close(&p);
    store_rig_close(&r);
}

/* SWEEP-P1: the sweep may have found it meanwhile. What is above the mark is the client's own. */
static void what_is_freed_below_the_mark_of_a_sweep_is_not_kept(void **state)
{
    struct store_rig r = rig();
    struct client *c = &r.session->client;
    gaddr at[2];

    (void)state;
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pool_alloc(&r.session->op, 0, 0, &at[i]), FAR_OK);
    unsigned kept = puppet_kept(c, 0, 0);
    uint64_t lost = puppet_lost_bytes(c);
    puppet_set_sweep(c, client_owner_word(c) | SWEEP_ANNOUNCED);
    puppet_set_sweep_mark(c, 0, UINT32_MAX);
    pool_free_unpublished(c, at[0], 0);
    assert_int_equal(puppet_kept(c, 0, 0), kept);
    assert_true(puppet_lost_bytes(c) == lost + size_class_bytes(0));
    puppet_set_sweep_mark(c, 0, 0);
    pool_free_unpublished(c, at[1], 0);
    assert_int_equal(puppet_kept(c, 0, 0), kept + 1);
    assert_true(puppet_lost_bytes(c) == lost + size_class_bytes(0));
    puppet_set_sweep(c, 0);
    store_rig_close(&r);
}

/* FREELIST-S1: a client that has read the list before must not take the empty list for it. */
static void a_list_that_a_sweep_has_emptied_has_another_head(void **state)
{
    struct store_rig r = rig();
    uint64_t before[CLASS_COUNT], after[CLASS_COUNT];
    struct sweep_result swept;
    struct probe p;

    (void)state;
    probe_open(&p, r.fab);
    assert_int_equal(client_give_all(&r.session->op, 0), FAR_OK);
    read_lists(&p, before);
    assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_OK);
    read_lists(&p, after);
    for (unsigned i = 0; i < CLASS_COUNT; i++)
        assert_true(after[i] >> GADDR_BITS > before[i] >> GADDR_BITS);
    probe_close(&p);
    store_rig_close(&r);
}

/* ---- unknown outcomes ------------------------------------------------------------------------ */

static struct {
    enum fab_kind kind;
    uint64_t off, end;
    unsigned broken;
} breaks;

/* Such a verb takes effect, but its request fails. */
static int breaking_post(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *v = &req->verbs[0];
    int rc = hook.real->post(ep, req);
    if (v->kind == breaks.kind && v->off >= breaks.off && v->off < breaks.end) {
        breaks.broken++;
        req->status = FAR_UNKNOWN;
    }
    return rc;
}

static void break_at(struct store_rig *r, enum fab_kind kind, uint64_t off, uint64_t bytes)
{
    breaks.kind = kind;
    breaks.off = off;
    breaks.end = off + bytes;
    breaks.broken = 0;
    hook_on(r->session->client.ep);
    hook.ops.post = breaking_post;
}

static void a_chunk_that_is_perhaps_taken_is_lost(void **state)
{
    struct store_rig r = rig();
    struct op *op = &r.session->op;
    gaddr at = 0;

    (void)state;
    uint64_t lost = puppet_lost_bytes(&r.session->client);
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    break_at(&r, FAB_FAA, NODE_NEXT_CHUNK_OFF, 8);
    assert_int_equal(pool_alloc(op, 0, 20, &at), FAR_UNKNOWN); /* a class that nothing has used */
    hook_off();
    op_end(op);
    assert_true(breaks.broken > 0);
    assert_true(puppet_lost_bytes(&r.session->client) >= lost + CHUNK_BYTES);
    store_rig_close(&r);
}

/* With all its objects, not only the page that names them. */
static void a_bundle_that_is_perhaps_taken_is_lost(void **state)
{
    enum { CLASS = 20, OBJECTS = 3 }; /* a class that nothing has used */
    struct store_rig r = rig();
    struct op *op = &r.session->op;
    gaddr at[OBJECTS];
    uint64_t before = 0, listed = 0, lost = puppet_lost_bytes(op->client);

    (void)state;
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    for (unsigned i = 0; i < OBJECTS; i++)
        assert_int_equal(pool_alloc(op, 0, CLASS, &at[i]), FAR_OK);
    for (unsigned i = 0; i < OBJECTS; i++)
        pool_free_unpublished(op->client, at[i], CLASS);
    assert_int_equal(freelist_bytes(op, UINT64_MAX, &before), FAR_OK);
    assert_int_equal(client_give(op, 0, CLASS), FAR_OK);
    assert_int_equal(freelist_bytes(op, UINT64_MAX, &listed), FAR_OK);
    assert_true(listed == before + OBJECTS * size_class_bytes(CLASS));
    break_at(&r, FAB_CAS, NODE_FREE_OFF + CLASS * 8, 8);
    assert_int_equal(freelist_take(op, 0, CLASS), FAR_UNKNOWN);
    hook_off();
    op_end(op);
    assert_int_equal(breaks.broken, 1);
    assert_true(puppet_lost_bytes(op->client) == lost + listed - before);
    store_rig_close(&r);
}

static void a_loss_that_could_not_be_counted_is_remembered(void **state)
{
    struct store_rig r = rig();
    struct client *c = &r.session->client;

    (void)state;
    puppet_set_lost_bytes(c, CHUNK_BYTES);
    break_at(&r, FAB_FAA, CONTROL_OFF + offsetof(struct pool_control, deaths), 8);
    assert_int_equal(client_upkeep(&r.session->op), FAR_UNKNOWN);
    hook_off();
    assert_int_equal(breaks.broken, 1);
    assert_true(puppet_lost_bytes(c) == CHUNK_BYTES);
    store_rig_close(&r);
}

/* Nobody knows which of the two blocks the slot leads to now. */
/* That sweep finds too little of it, and yet ends the count. */
static void a_loss_is_not_counted_during_a_sweep(void **state)
{
    struct store_rig r = rig();
    struct client *c = &r.session->client;
    struct probe p;

    (void)state;
    probe_open(&p, r.fab);
    puppet_set_lost_bytes(c, CHUNK_BYTES);
    puppet_set_sweep(c, client_owner_word(c) | SWEEP_ANNOUNCED);
    assert_int_equal(client_upkeep(&r.session->op), FAR_OK);
    assert_true(probe_get(&p, 0, PROBE_CONTROL(deaths)) == 0);
    puppet_set_sweep(c, 0);
    assert_int_equal(client_upkeep(&r.session->op), FAR_OK);
    assert_true(probe_get(&p, 0, PROBE_CONTROL(deaths)) == 1);
    probe_close(&p);
    store_rig_close(&r);
}

static void both_blocks_of_a_broken_update_are_lost(void **state)
{
    struct store_rig r = rig();
    uint64_t key = 3, lost = puppet_lost_bytes(&r.session->client);

    (void)state;
    break_at(&r, FAB_CAS, (uint64_t)r.pool->pool.head[0].chunks_off64 * 64, UINT64_MAX / 2);
    assert_int_equal(far_update(r.session, r.table, &key, 8, &key, 8), FAR_UNKNOWN);
    hook_off();
    assert_true(breaks.broken > 0);
    assert_true(puppet_lost_bytes(&r.session->client) >= lost + 128);
    store_rig_close(&r);
}

/* ---- dead clients ---------------------------------------------------------------------------- */

/* Another client's sweep goes on, also if that client has the dead client's slot by now. */
static void the_end_of_a_client_ends_no_sweep_but_its_own(void **state)
{
    (void)state;
    for (unsigned own = 0; own < 2; own++) {
        struct store_rig r = rig();
        struct client *c = &r.session->client;
        far_session *s = NULL;
        struct probe p;
        probe_open(&p, r.fab);
        assert_int_equal(far_session_open(r.pool, NULL, &s), FAR_OK);
        uint64_t word = client_owner_word(&s->client) | SWEEP_ANNOUNCED;
        word = own ? word : client_owner_word(c) | SWEEP_ANNOUNCED;
        puppet_set_own_sweep(c, own ? 0 : word);
        probe_set(&p, 0, PROBE_CONTROL(sweep), word);
        assert_int_equal(puppet_recover(&r.session->op, s->client.slot, s->client.incarnation),
                         FAR_OK);
        assert_true(probe_incarnation(&p, s->client.slot) == 0);
        assert_true(probe_get(&p, 0, PROBE_CONTROL(sweep)) == (own ? 0 : word));
        probe_set(&p, 0, PROBE_CONTROL(sweep), 0);
        puppet_lose_lease(&s->client);
        far_session_close(s);
        probe_close(&p);
        store_rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_that_has_met_a_sweep_gives_nothing_to_the_lists),
        cmocka_unit_test(what_is_freed_below_the_mark_of_a_sweep_is_not_kept),
        cmocka_unit_test(a_list_that_a_sweep_has_emptied_has_another_head),
        cmocka_unit_test(a_chunk_that_is_perhaps_taken_is_lost),
        cmocka_unit_test(a_bundle_that_is_perhaps_taken_is_lost),
        cmocka_unit_test(a_loss_that_could_not_be_counted_is_remembered),
        cmocka_unit_test(a_loss_is_not_counted_during_a_sweep),
        cmocka_unit_test(both_blocks_of_a_broken_update_are_lost),
        cmocka_unit_test(the_end_of_a_client_ends_no_sweep_but_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
