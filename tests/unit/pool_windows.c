/*
 * What may happen between two steps of registering, of parking, of meeting a sweep: requests whose
 * outcome is unknown or that arrive late, other operations of the same ring, other clients.
 */
#include "support/journal_rig.h"
#include "support/puppet.h"
#include "support/register_rig.h"
#include "store/store_internal.h"

#include <stdlib.h>

/* The client's operations from now on do not ask for its lease: as on a fabric that shuts clients
 * out by itself. */
static int fence_nobody(struct fab_ep *ep, uint64_t client)
{
    (void)ep, (void)client;
    return FAR_OK;
}

static void identify_as(struct fab_ep *ep, uint64_t client)
{
    (void)ep, (void)client;
}

static void hook_fence(void)
{
    hook.ops.fence = fence_nobody;
    hook.ops.identify = identify_as;
}

/* ---- registering ----------------------------------------------------------------------------- */

static bool claim_lost;

/* The first claim of a slot arrives; its outcome is unknown. */
static int post_claim_unknown(struct fab_ep *ep, struct fab_req *req)
{
    if (claim_lost || !claims_slot(&req->verbs[0]))
        return hook.real->post(ep, req);
    claim_lost = true;
    hook_run(ep, req);
    req->status = FAR_UNKNOWN;
    return FAR_OK;
}

/* Until it is announced, the slot holds the certificate of its last owner, which may be
 * NO_EPOCH. */
static void a_slot_of_unknown_outcome_is_announced_before_it_counts(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    start(&r, &p, URI);
    far_session *s = join(&r);
    struct client *c = &s->client;
    shut_out(&p, s);
    probe_set(&p, 0, PROBE_SLOT(c->slot, epoch), NO_EPOCH); /* its last owner was parked */
    hook_on(c->ep);
    claim_lost = false;
    hook.ops.post = post_claim_unknown;
    assert_int_equal(get(&r, s), FAR_UNREACHABLE);
    assert_true(claim_lost);
    hook_off();
    assert_int_equal(op_begin(&s->op, NULL), FAR_OK); /* in flight from here on */
    uint64_t began = probe_epoch(&p);
    push_epochs(r.session);
    assert_true(probe_epoch(&p) <= began + 2);
    op_end(&s->op);
    far_session_close(s);
    end(&r, &p);
}

/* The last owner's certificate was old, and the epoch has moved on since. */
static void a_slot_of_unknown_outcome_does_not_hold_the_epoch(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    start(&r, &p, URI);
    far_session *s = join(&r);
    struct client *c = &s->client;
    shut_out(&p, s);
    push_epochs(r.session);
    uint64_t epoch = probe_epoch(&p);
    hook_on(c->ep);
    claim_lost = false;
    hook.ops.post = post_claim_unknown;
    assert_int_equal(get(&r, s), FAR_UNREACHABLE);
    hook_off();
    assert_int_equal(get(&r, s), FAR_OK);
    for (unsigned i = 0; i < 100; i++) {
        puppet_no_strays(c); /* long ago */
        assert_int_equal(client_drive_epoch(&s->op), FAR_OK);
        assert_int_equal(client_drive_epoch(&r.session->op), FAR_OK);
    }
    assert_true(probe_epoch(&p) > epoch + 5);
    far_session_close(s);
    end(&r, &p);
}

/* Its certificate is too old for the epoch. Going on with it would not help. */
static void a_client_that_was_left_behind_takes_another_slot(void **state)
{
    struct store_rig r;
    struct probe p;
    unsigned registrations = 0;

    (void)state;
    start(&r, &p, URI);
    far_session *s = join(&r);
    struct client *c = &s->client;
    uint64_t epoch = probe_epoch(&p) + 10;
    unsigned slot = c->slot;
    assert_int_equal(client_park(&r.session->op), FAR_OK);
    probe_set(&p, 0, PROBE_CONTROL(epoch), epoch);
    for (unsigned i = 0; i < 100; i++) {
        uint64_t incarnation = c->incarnation;
        assert_int_equal(client_drive_epoch(&s->op), FAR_OK);
        registrations += c->incarnation != incarnation;
    }
    assert_true(registrations == 1 && c->slot != slot);
    assert_true(probe_get(&p, 0, PROBE_SLOT(c->slot, epoch)) >= epoch);
    far_session_close(s);
    end(&r, &p);
}

/* On a ring, one operation registers the client; others must wait until it is announced. */
static void no_operation_begins_while_the_client_is_announced(void **state)
{
    struct store_rig r;
    struct probe p;
    uint64_t got[2];
    struct far_result results[4];
    unsigned reaped = 0;

    (void)state;
    start(&r, &p, URI_RING);
    far_session *s = join(&r);
    struct client *c = &s->client;
    shut_out(&p, s);
    probe_set(&p, 0, PROBE_SLOT(c->slot, epoch), NO_EPOCH); /* its last owner was parked */
    hook_on(c->ep);
    hook.ops.post = post_until_it_breaks;
    breaks = (typeof(breaks)){.pass = 0};
    assert_int_equal(get(&r, s), FAR_UNREACHABLE);
    assert_true(puppet_unannounced(c));
    hook_off();
    uint64_t incarnation = c->incarnation;
    assert_int_equal(submit_get(&r, s, &got[0]), FAR_OK);
    for (unsigned i = 0; i < 50 && c->incarnation == incarnation; i++) /* it goes on in its slot */
        reaped += far_reap(s, results, 1, 0);
    assert_true(puppet_joining(c) && puppet_unannounced(c) && reaped == 0);
    assert_int_equal(submit_get(&r, s, &got[1]), FAR_OK);
    assert_false(puppet_has_op_in_flight(c));
    assert_int_equal(far_reap(s, results, 2, 2), 2);
    assert_true(results[0].status == FAR_OK && results[1].status == FAR_OK);
    far_session_close(s);
    end(&r, &p);
}

/* On a ring, an operation meets a sweep, which takes a round trip. Meanwhile the lease lapses, and
 * another operation registers the client: the first one must not begin before that is done. */
static void an_operation_that_waited_looks_again_before_it_begins(void **state)
{
    struct store_rig r;
    struct probe p;
    uint64_t got[2];
    struct far_result result;
    bool both = false;

    (void)state;
    start(&r, &p, URI_RING);
    far_session *s = join(&r);
    struct client *c = &s->client;
    probe_set(&p, 0, PROBE_CONTROL(sweep), client_owner_word(&r.session->client) | SWEEP_ANNOUNCED);
    assert_int_equal(client_drive_epoch(&s->op), FAR_OK);
    assert_true(puppet_sweep_unmet(c));
    hook_on(c->ep);
    hook_fence();
    assert_int_equal(submit_get(&r, s, &got[0]), FAR_OK); /* reads what is being swept */
    shut_out(&p, s);                                      /* the process was stopped */
    unsigned slot = c->slot;
    far_session *other = join(&r); /* and another has its slot */
    assert_int_equal(other->client.slot, slot);
    assert_int_equal(submit_get(&r, s, &got[1]), FAR_OK); /* finds the lease lapsed */
    assert_true(puppet_joining(c));
    for (unsigned i = 0; i < 200 && s->running_count > 0; i++) {
        both |= puppet_joining(c) && puppet_has_op_in_flight(c);
        (void)far_reap(s, &result, 1, 0);
    }
    assert_false(both);
    probe_set(&p, 0, PROBE_CONTROL(sweep), 0);
    hook_off();
    far_session_close(other);
    far_session_close(s);
    end(&r, &p);
}

/* A client that has completed another's work may have taken longer than its lease. */
static int recover_slowly(void *arg, struct op *op, const struct journal_entry *entry)
{
    (void)arg, (void)entry;
    puppet_lose_lease(op->client);
    return FAR_OK;
}

static void a_client_checks_its_lease_again_after_a_recovery(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    start(&r, &p, URI);
    struct client *c = &r.session->client;
    hook_on(c->ep);
    hook_fence();
    puppet_ask_for_no_lease(c);
    r.pool->pool.recover = recover_slowly;
    probe_set(&p, 0, PROBE_SLOT(5, incarnation), 4711);
    journal_plant(&p, &r.pool->pool, 5, (struct journal_subject){.what = 1}, 0);
    puppet_suspect(c, 5, 4711);
    uint64_t incarnation = c->incarnation;
    assert_int_equal(client_drive_epoch(&r.session->op), FAR_OK);
    assert_true(c->incarnation != incarnation);
    hook_off();
    end(&r, &p);
}

static int post_no_claim(struct fab_ep *ep, struct fab_req *req)
{
    return claims_slot(&req->verbs[0]) ? FAR_UNREACHABLE : hook.real->post(ep, req);
}

/* Its old slot is another client's by now. A call that begins no operation must not send its
 * heartbeat. */
static void a_client_that_could_not_register_announces_nothing(void **state)
{
    struct store_rig r;
    struct probe p;
    struct far_pool_info info;

    (void)state;
    start(&r, &p, URI);
    far_session *s = join(&r);
    struct client *c = &s->client;
    hook_on(c->ep);
    hook_fence();
    puppet_ask_for_no_lease(&s->client);
    assert_int_equal(client_park(&s->op), FAR_OK);
    unsigned slot = c->slot;
    shut_out(&p, s);
    far_session *other = join(&r);
    assert_int_equal(other->client.slot, slot);
    hook.ops.post = post_no_claim;
    assert_int_equal(get(&r, s), FAR_UNREACHABLE);
    hook.ops.post = hook.real->post;
    c->slot = slot; /* whichever it tried to take */
    for (unsigned i = 0; i < 10; i++)
        (void)far_pool_info(s, &info);
    assert_true(probe_get(&p, 0, PROBE_SLOT(slot, epoch)) == puppet_certificate(&other->client));
    hook_off();
    far_session_close(other);
    far_session_close(s);
    end(&r, &p);
}

static int post_no_registry(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *v = &req->verbs[0];
    bool registry = v->kind == FAB_READ && v->off == CLIENTS_OFF && v->len > 64;
    return registry ? FAR_UNREACHABLE : hook.real->post(ep, req);
}

static void a_client_whose_join_failed_has_no_slot(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    start(&r, &p, URI);
    far_session *s = join(&r);
    shut_out(&p, s);
    hook_on(s->client.ep);
    hook.ops.post = post_no_registry;
    assert_int_equal(get(&r, s), FAR_UNREACHABLE);
    assert_int_equal(s->client.slot, NO_SLOT);
    hook_off();
    assert_int_equal(get(&r, s), FAR_OK);
    far_session_close(s);
    end(&r, &p);
}

static int post_fails(struct fab_ep *ep, struct fab_req *req)
{
    (void)ep, (void)req;
    return FAR_UNREACHABLE;
}

/* A client whose parking had an unknown outcome abandons its slot, but not the slots that it
 * takes later. */
static void a_parking_of_unknown_outcome_costs_one_slot(void **state)
{
    struct store_rig r;
    struct probe p;
    unsigned taken = 0;

    (void)state;
    start(&r, &p, URI);
    far_session *s = join(&r);
    hook_on(s->client.ep);
    hook.ops.post = post_fails;
    assert_int_equal(client_park(&s->op), FAR_UNREACHABLE);
    hook.ops.post = post_until_it_breaks;
    for (unsigned i = 0; i < 4; i++) {
        breaks = (typeof(breaks)){.pass = 0};
        (void)get(&r, s);
    }
    hook_off();
    assert_int_equal(get(&r, s), FAR_OK);
    for (unsigned i = 0; i < 8; i++)
        taken += probe_incarnation(&p, i) != 0;
    assert_int_equal(taken, 3); /* two live clients', and the abandoned one */
    far_session_close(s);
    end(&r, &p);
}

/* On a fabric that keeps no order, reads may overtake the certificate. The epoch moves on before it
 * is there, and the client does not know. */
static struct {
    struct store_rig *rig;
    bool met;
} disorder;

static int post_disordered(struct fab_ep *ep, struct fab_req *req)
{
    struct fab_verb *v = req->verbs;
    if (disorder.met || req->count < 2 || v[0].kind != FAB_WRITE || v[0].off < CLIENTS_OFF ||
        (v[1].flags & FAB_FENCE))
        return hook.real->post(ep, req);
    disorder.met = true;
    struct fab_req reads = {.verbs = v + 1, .count = req->count - 1},
                   write = {.verbs = v, .count = 1};
    hook_run(ep, &reads);
    push_epochs(disorder.rig->session);
    hook_run(ep, &write);
    req->status = FAR_OK;
    req->done = true;
    return FAR_OK;
}

static void a_client_looks_at_the_epoch_behind_its_certificate(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    start(&r, &p, URI);
    r.fab->order = 0;
    far_session *s = join(&r);
    assert_int_equal(client_park(&s->op), FAR_OK);
    hook_on(s->client.ep);
    hook.ops.post = post_disordered;
    disorder = (typeof(disorder)){.rig = &r};
    assert_int_equal(get(&r, s), FAR_OK);
    hook_off();
    assert_true(probe_epoch(&p) <= probe_get(&p, 0, PROBE_SLOT(s->client.slot, epoch)) + 1);
    far_session_close(s);
    end(&r, &p);
}

/* ---- leases that lapse ----------------------------------------------------------------------- */

static void calls_that_only_read_go_on_after_a_lapse(void **state)
{
    struct store_rig r;
    struct probe p;
    struct far_pool_info info;
    far_table *table = NULL;

    (void)state;
    start(&r, &p, URI);
    far_session *s = join(&r);
    puppet_lapse(&s->client);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(far_pool_info(s, &info), FAR_OK);
    assert_int_equal(far_table_open(s, "t", NULL, &table), FAR_OK);
    far_session_close(s);
    end(&r, &p);
}

static struct {
    unsigned posts;
    far_session *self, *first, *second;
    struct store_rig *rig;
    struct probe *probe;
} closing;

/* After the first post it is stopped. When it goes on, another client has its slot. It tries to
 * take a slot, but a third client is faster, and it does not learn that. */
static int post_while_closing(struct fab_ep *ep, struct fab_req *req)
{
    if (claims_slot(&req->verbs[0])) {
        if (!closing.second)
            closing.second = join(closing.rig);
        return FAR_UNREACHABLE;
    }
    int rc = hook.real->post(ep, req);
    if (closing.posts++ == 0) {
        hook.clock += 2 * puppet_lease_ns(&closing.self->client);
        probe_set(closing.probe, 0, PROBE_SLOT(closing.self->client.slot, incarnation), 0);
        closing.first = join(closing.rig);
    }
    return rc;
}

static bool is_cleared(struct probe *p, const far_session *s)
{
    return probe_get(p, 0, PROBE_SLOT(s->client.slot, heartbeat)) == 0;
}

static void a_client_that_closes_does_not_clear_anothers_slot(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    start(&r, &p, URI);
    far_session *s = join(&r);
    unsigned slot = s->client.slot;
    assert_int_equal(put(&r, s, 7), FAR_OK);
    assert_int_equal(put(&r, s, 7), FAR_OK); /* something waits for its epoch */
    closing = (typeof(closing)){.self = s, .rig = &r, .probe = &p};
    struct fab_ep *ep = s->client.ep;
    hook_on(ep);
    hook_clock();
    hook_fence();
    puppet_ask_for_no_lease(&s->client);
    hook.ops.post = post_while_closing;
    store_view_forget(s, r.table); /* as far_session_close() does */
    free(s->table[r.table->number]);
    free(s->table);
    op_free(&s->op);
    client_close(&s->client);
    hook_off();
    ep->ops->ep_close(ep);
    free(s);
    store_session_closed(r.pool);
    assert_true(closing.first && closing.second);
    assert_int_equal(closing.first->client.slot, slot);
    assert_false(is_cleared(&p, closing.first));
    assert_false(is_cleared(&p, closing.second));
    far_session_close(closing.first);
    far_session_close(closing.second);
    end(&r, &p);
}

/* ---- parking --------------------------------------------------------------------------------- */

static struct {
    struct fab_verb write;
    uint64_t words[4];
} late;

/* The first heartbeat takes long. */
static int post_heartbeat_late(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count && !late.write.buf; i++) {
        if (req->verbs[i].kind != FAB_WRITE)
            continue;
        late.write = req->verbs[i];
        assert_true(late.write.len == sizeof late.words);
        memcpy(late.words, late.write.buf, sizeof late.words);
        late.write.buf = late.words;
        req->status = FAR_UNKNOWN;
        req->done = true;
        return FAR_OK;
    }
    return hook.real->post(ep, req);
}

/* It says NO_EPOCH. It arrives when the client has an operation in flight. */
static void a_parked_clients_heartbeat_that_arrives_late_does_no_harm(void **state)
{
    struct store_rig r;
    struct probe p;
    struct far_pool_info info;
    int rc = FAR_OK;

    (void)state;
    start(&r, &p, URI);
    far_session *s = join(&r);
    struct client *c = &s->client;
    assert_int_equal(client_park(&s->op), FAR_OK);
    hook_on(c->ep);
    hook_clock();
    hook.clock += puppet_lease_ns(c) / 6; /* a heartbeat is due */
    hook.ops.post = post_heartbeat_late;
    late = (typeof(late)){.write = {.buf = NULL}};
    for (unsigned i = 0; i < 20 && rc == FAR_OK; i++)
        rc = far_pool_info(s, &info);
    assert_int_equal(rc, FAR_UNREACHABLE);
    assert_int_equal(op_begin(&s->op, NULL), FAR_OK);
    struct fab_req req = {.verbs = &late.write, .count = 1};
    hook_run(c->ep, &req);
    uint64_t began = probe_epoch(&p);
    push_epochs(r.session);
    assert_true(probe_epoch(&p) <= began + 2);
    op_end(&s->op);
    hook_off();
    far_session_close(s);
    end(&r, &p);
}

static int stat_node(struct fab_ep *ep, unsigned node, struct far_node_info *info)
{
    (void)ep, (void)node;
    *info = (struct far_node_info){.bytes = 1};
    return FAR_OK;
}

/* The keeper sees it in use at every look, and does nothing for it. */
static void a_session_that_only_asks_nodes_keeps_its_lease(void **state)
{
    struct store_rig r;
    struct probe p;
    struct far_node_info info;

    (void)state;
    start(&r, &p, URI);
    far_session *s = join(&r);
    struct client *c = &s->client;
    uint64_t incarnation = c->incarnation;
    hook_on(c->ep);
    hook_clock();
    hook.ops.node_stat = stat_node;
    uint64_t began = probe_epoch(&p);
    for (unsigned i = 0; i < 100; i++) {
        uint64_t heartbeat = probe_get(&p, 0, PROBE_SLOT(c->slot, heartbeat));
        hook.clock += puppet_lease_ns(c) / 7;
        assert_int_equal(far_node_info(s, 0, &info), FAR_OK);
        assert_true(probe_get(&p, 0, PROBE_SLOT(c->slot, heartbeat)) != heartbeat);
        assert_false(client_lapsed(c));
    }
    push_epochs(r.session); /* nobody waits for it */
    assert_true(probe_epoch(&p) > began + 5);
    assert_int_equal(get(&r, s), FAR_OK);
    assert_true(c->incarnation == incarnation);
    hook_off();
    far_session_close(s);
    end(&r, &p);
}

/* An operation of the ring is taking the session back. A parking would undo what it announces. */
static void asking_a_node_does_not_park_a_session_at_work(void **state)
{
    struct store_rig r;
    struct probe p;
    struct far_node_info info;
    struct far_result result;
    uint64_t got = 0;

    (void)state;
    start(&r, &p, URI_RING);
    far_session *s = join(&r);
    struct client *c = &s->client;
    assert_int_equal(client_park(&s->op), FAR_OK);
    hook_on(c->ep);
    hook_clock();
    hook.ops.node_stat = stat_node;
    hook.clock += puppet_lease_ns(c) / 6; /* a heartbeat is due */
    assert_int_equal(submit_get(&r, s, &got), FAR_OK);
    assert_true(puppet_joining(c));
    uint64_t heartbeat = puppet_heartbeat(c);
    assert_int_equal(far_node_info(s, 0, &info), FAR_OK);
    assert_true(puppet_heartbeat(c) == heartbeat);
    assert_int_equal(far_reap(s, &result, 1, 1), 1);
    assert_int_equal(result.status, FAR_OK);
    assert_true(probe_get(&p, 0, PROBE_SLOT(c->slot, epoch)) != NO_EPOCH && !puppet_parked(c));
    hook_off();
    far_session_close(s);
    end(&r, &p);
}

/* ---- the ring -------------------------------------------------------------------------------- */

static bool stop_it(void *arg, const char *what, uint64_t done, uint64_t total)
{
    (void)arg, (void)what, (void)done, (void)total;
    return false;
}

/* A put of the ring waits for memory, while a call that can be stopped drives the ring. */
static void a_call_that_is_stopped_does_not_stop_the_ring(void **state)
{
    struct store_rig r;
    struct probe p;
    static char big[60000];
    uint64_t key = 10;
    struct far_result result = {.status = FAR_OK};

    (void)state;
    start(&r, &p, "mem:?size=2m&clients=8&defer=1&" LEASE);
    far_session *s = r.session, *other = join(&r);
    while (far_put(s, r.table, &key, 8, big, sizeof big) == FAR_OK)
        key++;
    probe_set(&p, 0, PROBE_CONTROL(deaths), 1); /* a sweep is worth it */
    assert_int_equal(op_begin(&other->op, NULL), FAR_OK);
    struct far_op op = {.kind = FAR_OP_PUT,
                        .table = r.table,
                        .key = &key,
                        .key_len = 8,
                        .value = big,
                        .value_len = sizeof big};
    assert_int_equal(far_submit(s, &op), FAR_OK);
    for (unsigned i = 0; i < 2000; i++)
        (void)far_reap(s, &result, 1, 0);
    assert_int_equal(s->running_count, 1);
    op_end(&other->op);
    far_session_watch(s, stop_it, NULL); /* as far_pool_check() does */
    store_enter(s);
    for (unsigned i = 0; i < 2000 && s->finished_count == 0; i++) {
        (void)client_drive_epoch(&s->op);
        (void)client_drive_epoch(&other->op);
    }
    store_leave(s);
    assert_int_equal(far_reap(s, &result, 1, 1), 1);
    assert_true(result.status != FAR_STOPPED);
    far_session_close(other);
    end(&r, &p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_of_unknown_outcome_is_announced_before_it_counts),
        cmocka_unit_test(a_slot_of_unknown_outcome_does_not_hold_the_epoch),
        cmocka_unit_test(a_client_that_was_left_behind_takes_another_slot),
        cmocka_unit_test(no_operation_begins_while_the_client_is_announced),
        cmocka_unit_test(an_operation_that_waited_looks_again_before_it_begins),
        cmocka_unit_test(a_client_checks_its_lease_again_after_a_recovery),
        cmocka_unit_test(a_client_that_could_not_register_announces_nothing),
        cmocka_unit_test(a_client_whose_join_failed_has_no_slot),
        cmocka_unit_test(a_parking_of_unknown_outcome_costs_one_slot),
        cmocka_unit_test(a_client_looks_at_the_epoch_behind_its_certificate),
        cmocka_unit_test(calls_that_only_read_go_on_after_a_lapse),
        cmocka_unit_test(a_client_that_closes_does_not_clear_anothers_slot),
        cmocka_unit_test(a_parked_clients_heartbeat_that_arrives_late_does_no_harm),
        cmocka_unit_test(a_session_that_only_asks_nodes_keeps_its_lease),
        cmocka_unit_test(asking_a_node_does_not_park_a_session_at_work),
        cmocka_unit_test(a_call_that_is_stopped_does_not_stop_the_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
