/* Recoveries that are disturbed: by siblings, by a lease that lapses, by batches of unknown
 * outcome. */
#include "support/recovery_rig.h"

static struct {
    struct store_rig *rig;
    struct probe *probe;
    unsigned slot, posts, times;
    uint64_t incarnation, became;
    bool armed;
} here;

/* Returns a session that will be dead, with one line. */
static far_session *begin_with_a_line(struct store_rig *r, struct probe *p, struct journal *j)
{
    begin(r, p, URI);
    far_session *s = join(r);
    take(s, 0, j, 1);
    here = (typeof(here)){.rig = r, .slot = s->client.slot, .incarnation = s->client.incarnation};
    return s;
}

static int fence_well(struct fab_ep *ep, uint64_t incarnation)
{
    (void)ep, (void)incarnation;
    return FAR_OK;
}

static int post_or_not(struct fab_ep *ep, struct fab_req *req)
{
    if (here.armed && here.times > 0) {
        here.times--;
        return FAR_UNREACHABLE;
    }
    return hook.real->post(ep, req);
}

static int break_off(struct op *op)
{
    struct client *c = op->client;
    puppet_strays(c); /* a WRITE of ours has failed, and may yet arrive */
    here.armed = true;
    return FAR_TIMEOUT;
}

/* LEASE-L2: then the claim stays, and the client gives up its registration. */
static void a_claim_is_not_given_up_while_verbs_may_arrive(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    for (unsigned fences = 0; fences < 2; fences++) {
        begin(&r, &p, URI);
        far_session *s = join(&r);
        struct client *c = &r.session->client;
        uint64_t claim = claim_of(r.session);
        take(s, 0, &j, 1);
        seen.then = break_off;
        here = (typeof(here)){.times = 1};
        hook_on(c->ep);
        hook_clock();
        hook.ops.pause = pause_not;
        hook.ops.post = post_or_not;
        hook.ops.fence = fences ? fence_well : NULL;
        assert_int_equal(recover(r.session, s), FAR_TIMEOUT);
        hook_off();
        assert_int_equal(r.session->op.batch.count, 0);
        assert_true(probe_incarnation(&p, s->client.slot) == claim);
        assert_true(puppet_renounced(c));
        puppet_no_strays(c);
        close_dead(s);
        close_dead(r.session);
        r.session = join(&r);
        end(&r, &p);
    }
}

static int break_and_lapse(struct op *op)
{
    puppet_lapse(op->client);
    return break_off(op);
}

/* Under a new incarnation in the same slot, it would give up its claim too early. */
static void a_client_that_lapses_with_a_claim_takes_another_slot(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    begin(&r, &p, URI);
    far_session *s = join(&r);
    struct client *c = &r.session->client;
    unsigned old = c->slot;
    uint64_t claim = claim_of(r.session), incarnation = c->incarnation;
    take(s, 0, &j, 1);
    seen.then = break_and_lapse;
    assert_int_equal(recover(r.session, s), FAR_TIMEOUT);
    assert_int_equal(get(&r, r.session), FAR_OK);
    assert_true(c->slot != old);
    assert_true(probe_incarnation(&p, old) == incarnation); /* until it is fenced */
    assert_true(probe_incarnation(&p, s->client.slot) == claim);
    puppet_no_strays(c);
    close_dead(s);
    end(&r, &p);
}

static bool claims(const struct fab_req *req)
{
    return req->verbs[0].kind == FAB_CAS &&
           req->verbs[0].off == PROBE_SLOT(here.slot, incarnation) &&
           (req->verbs[0].swap & CLIENT_REPAIRED);
}

/* The claim is made, but its operation does not know yet; a sibling comes. */
static int post_and_let_sibling_try(struct fab_ep *ep, struct fab_req *req)
{
    if (!claims(req) || here.posts++ > 0)
        return hook.real->post(ep, req);
    hook_run(ep, req);
    struct op sibling;
    assert_int_equal(op_init(&sibling, &here.rig->session->client), FAR_OK);
    assert_int_equal(puppet_recover(&sibling, here.slot, here.incarnation), FAR_OK);
    assert_int_equal(seen.calls, 0);
    op_free(&sibling);
    return FAR_OK;
}

static void a_sibling_does_not_recover_while_the_claim_is_made(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    far_session *s = begin_with_a_line(&r, &p, &j);
    hook_on(r.session->client.ep);
    hook.ops.post = post_and_let_sibling_try;
    assert_int_equal(recover(r.session, s), FAR_OK);
    hook_off();
    assert_int_equal(seen.calls, 1);
    assert_true(probe_incarnation(&p, s->client.slot) == 0);
    close_dead(s);
    end(&r, &p);
}

/* A's claim is about to be made when a sibling tries. If that one makes a claim too, A's is
 * faster. */
static struct fab_req *held;

static int post_one_claim_within_another(struct fab_ep *ep, struct fab_req *req)
{
    if (!claims(req))
        return hook.real->post(ep, req);
    if (here.posts++ > 0) {
        if (held)
            hook_run(ep, held);
        held = NULL;
        return hook.real->post(ep, req);
    }
    struct op sibling;
    held = req;
    assert_int_equal(op_init(&sibling, &here.rig->session->client), FAR_OK);
    assert_int_equal(puppet_recover(&sibling, here.slot, here.incarnation), FAR_OK);
    op_free(&sibling);
    if (held)
        hook_run(ep, held);
    held = NULL;
    return FAR_OK;
}

/* While A recovers the client, another sibling tries. */
static int let_another_sibling_try(struct op *op)
{
    struct op third;
    seen.then = NULL;
    assert_int_equal(op_init(&third, op->client), FAR_OK);
    assert_int_equal(puppet_recover(&third, here.slot, claim_of(here.rig->session)), FAR_OK);
    op_free(&third);
    return FAR_OK;
}

static void a_sibling_that_came_second_leaves_the_recovery_to_the_first(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    far_session *s = begin_with_a_line(&r, &p, &j);
    seen.then = let_another_sibling_try;
    hook_on(r.session->client.ep);
    hook.ops.post = post_one_claim_within_another;
    assert_int_equal(recover(r.session, s), FAR_OK);
    hook_off();
    assert_int_equal(seen.calls, 1);
    assert_true(probe_incarnation(&p, s->client.slot) == 0);
    close_dead(s);
    end(&r, &p);
}

/* The slot said that a sibling recovers it. When that is known, it is another client's. */
static int post_and_find_another(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *v = &req->verbs[0];
    if (v->kind != FAB_CAS || v->off != PROBE_SLOT(here.slot, incarnation) || here.posts++ > 0)
        return hook.real->post(ep, req);
    hook_run(ep, req);
    probe_set(here.probe, 0, PROBE_SLOT(here.slot, incarnation), here.became);
    return FAR_OK;
}

static void a_slot_that_a_sibling_has_freed_is_left_alone(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    begin(&r, &p, URI);
    far_session *s = join(&r);
    unsigned slot = s->client.slot;
    take(s, 0, &j, 1);
    here = (typeof(here)){.probe = &p, .slot = slot, .became = s->client.incarnation};
    probe_set(&p, 0, PROBE_SLOT(slot, incarnation), claim_of(r.session));
    hook_on(r.session->client.ep);
    hook.ops.post = post_and_find_another;
    assert_int_equal(puppet_recover(&r.session->op, slot, 4711), FAR_OK);
    hook_off();
    assert_int_equal(seen.calls, 0);
    assert_true(probe_incarnation(&p, slot) == s->client.incarnation);
    give(s, &j);
    far_session_close(s);
    end(&r, &p);
}

/* Another session claims the slot between this one's look and its own claim. */
static int post_behind_another_claim(struct fab_ep *ep, struct fab_req *req)
{
    if (claims(req) && here.posts++ == 0)
        probe_set(here.probe, 0, PROBE_SLOT(here.slot, incarnation), here.became);
    return hook.real->post(ep, req);
}

static void of_two_that_claim_a_slot_one_recovers(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    begin(&r, &p, URI);
    far_session *s = join(&r), *other = join(&r);
    unsigned slot = s->client.slot;
    take(s, 0, &j, 1);
    here = (typeof(here)){.probe = &p, .slot = slot, .became = claim_of(other)};
    hook_on(r.session->client.ep);
    hook.ops.post = post_behind_another_claim;
    assert_int_equal(recover(r.session, s), FAR_OK);
    hook_off();
    assert_int_equal(here.posts, 1);
    assert_int_equal(seen.calls, 0);
    assert_true(probe_incarnation(&p, slot) == claim_of(other));
    assert_int_equal(puppet_recover(&other->op, slot, claim_of(other)), FAR_OK);
    assert_int_equal(seen.calls, 1);
    assert_true(probe_incarnation(&p, slot) == 0);
    close_dead(s);
    far_session_close(other);
    end(&r, &p);
}

/* The claim is made, but its outcome is unknown. */
static int post_and_lose_claim(struct fab_ep *ep, struct fab_req *req)
{
    bool lost = claims(req) && here.posts++ == 0;
    hook_run(ep, req);
    if (lost)
        req->status = FAR_UNKNOWN;
    return FAR_OK;
}

/* Else others would wait for this client for as long as it is registered. */
static void a_claim_of_unknown_outcome_is_given_up(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    begin(&r, &p, URI);
    far_session *s = join(&r);
    struct client *c = &r.session->client;
    take(s, 0, &j, 1);
    here = (typeof(here)){.slot = s->client.slot};
    hook_on(c->ep);
    hook_clock();
    hook.ops.pause = hook_pause;
    hook.ops.post = post_and_lose_claim;
    assert_int_equal(recover(r.session, s), FAR_UNKNOWN);
    hook_off();
    assert_true(probe_incarnation(&p, s->client.slot) == (CLIENT_FENCED | CLIENT_REPAIRED));
    puppet_never_lapse(c); /* its clock is the machine's again */
    puppet_no_strays(c);
    close_dead(s);
    end(&r, &p);
}

static int lapse_and_begin(struct op *op)
{
    struct client *c = op->client;
    struct op sibling;
    here.incarnation = c->incarnation;
    puppet_lapse(c);
    if (here.armed) /* others have found out */
        probe_set(here.probe, 0, PROBE_SLOT(c->slot, incarnation), 0);
    assert_int_equal(op_init(&sibling, c), FAR_OK);
    int rc = op_begin(&sibling, NULL);
    op_end(&sibling);
    op_free(&sibling);
    assert_int_equal(rc, FAR_FENCED);
    rc = op_begin(op, NULL);
    op_end(op);
    assert_true(c->incarnation == here.incarnation);
    return rc;
}

/* A recovery belongs to a registration: after a new one, another client could go on with it,
 * too. */
static void a_client_does_not_register_again_while_it_recovers(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    for (unsigned way = 0; way < 4; way++) {
        bool own = way & 1;
        begin(&r, &p, URI);
        far_session *s = join(&r);
        struct client *c = &r.session->client;
        take(own ? r.session : s, 0, &j, 1);
        seen.then = lapse_and_begin;
        here = (typeof(here)){.probe = &p, .armed = way & 2};
        hook_on(c->ep);
        hook.ops.pause = pause_not;
        if (own) {
            journal_give(&r.session->op, &j, false);
            assert_int_equal(client_complete(&r.session->op), FAR_FENCED);
        } else {
            assert_int_equal(recover(r.session, s), FAR_FENCED);
            assert_true(probe_incarnation(&p, s->client.slot) ==
                        (CLIENT_FENCED | CLIENT_REPAIRED | (here.incarnation & OWNER_INCARNATION)));
        }
        hook_off();
        assert_int_equal(seen.calls, 1);
        assert_true(journal_says(&p, &r.pool->pool, own ? 0 : s->client.slot));
        seen.then = NULL;
        assert_int_equal(get(&r, r.session), FAR_OK);
        assert_true(c->incarnation != here.incarnation && !puppet_recovers(c));
        close_dead(s);
        end(&r, &p);
    }
}

/* A sibling has begun to register the client again. */
static int post_and_find_it_joining(struct fab_ep *ep, struct fab_req *req)
{
    struct client *c = &here.rig->session->client;
    const struct fab_verb *v = &req->verbs[0];
    hook_run(ep, req);
    if (v->kind == FAB_CAS && v->off == PROBE_SLOT(here.slot, incarnation) && here.posts++ == 0) {
        puppet_set_joining(c, true);
        c->slot = here.armed ? NO_SLOT : c->slot;
    }
    return FAR_OK;
}

static void nothing_is_recovered_while_a_sibling_registers_the_client(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    for (unsigned way = 0; way < 2; way++) {
        begin(&r, &p, URI);
        far_session *s = join(&r);
        struct client *c = &r.session->client;
        unsigned own = c->slot;
        take(s, 0, &j, 1);
        here = (typeof(here)){.rig = &r, .slot = s->client.slot, .armed = way};
        hook_on(c->ep);
        hook.ops.post = post_and_find_it_joining;
        assert_int_equal(recover(r.session, s), FAR_OK);
        hook_off();
        assert_true(c->slot == (way ? NO_SLOT : own) && !puppet_inherited(c));
        assert_int_equal(seen.calls, 0);
        assert_true(probe_incarnation(&p, s->client.slot) ==
                    (s->client.incarnation | CLIENT_FENCED));
        puppet_set_joining(c, false);
        c->slot = own;
        close_dead(s);
        end(&r, &p);
    }
}

static far_session *leaver;
static struct journal left;

static int leave_another(struct op *op)
{
    struct client *c = op->client;
    seen.then = NULL;
    journal_give(&leaver->op, &left, false); /* a sibling's batch has failed */
    puppet_strays(c);
    return FAR_OK;
}

/* JOURNAL-J3 */
static void a_line_that_was_just_left_is_recovered_later(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    begin(&r, &p, URI);
    far_session *s = leaver = r.session;
    take(s, 0, &j, 1);
    take(s, 0, &left, 1);
    journal_give(&s->op, &j, false);
    seen.then = leave_another;
    assert_int_equal(get(&r, s), FAR_OK);
    assert_int_equal(seen.calls, 1);
    assert_int_equal(puppet_undone(&s->client), 1);
    puppet_no_strays(&s->client);
    puppet_complete_now(&s->client);
    assert_int_equal(get(&r, s), FAR_OK);
    assert_int_equal(seen.calls, 2);
    assert_int_equal(puppet_undone(&s->client), 0);
    end(&r, &p);
}

/* JOURNAL-J3: an idle client may not be used again for long. */
static void an_idle_client_lets_others_recover_what_it_left(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    for (unsigned fences = 0; fences < 2; fences++) {
        begin(&r, &p, URI);
        far_session *s = join(&r);
        struct client *c = &s->client;
        unsigned slot = c->slot;
        take(s, 0, &j, 1);
        journal_give(&s->op, &j, false);
        hook_on(c->ep);
        hook.ops.fence = fences ? fence_well : NULL;
        puppet_strays(c);
        assert_int_equal(client_park(&s->op), FAR_OK);
        assert_false(puppet_parked(c) || puppet_lost_lease(c));
        puppet_no_strays(c);
        assert_int_equal(client_park(&s->op), FAR_FENCED);
        hook_off();
        assert_true(puppet_renounced(c) && !puppet_parked(c));
        bool announced =
            probe_get(&p, 0, PROBE_SLOT(slot, heartbeat)) == client_slot_renounced(c->incarnation);
        assert_true(announced == fences);
        assert_int_equal(recover(r.session, s), FAR_OK);
        assert_int_equal(seen.calls, 1);
        assert_int_equal(get(&r, s), FAR_OK);
        far_session_close(s);
        end(&r, &p);
    }
}

static int (*mark_tables)(void *arg, struct op *op, struct marker *marker);

static int mark_when_all_is_recovered(void *arg, struct op *op, struct marker *marker)
{
    assert_false(journal_says(here.probe, op->pool, here.slot));
    return mark_tables(arg, op, marker);
}

/* What can be recovered now, and could not before. */
static void pause_and_allow(struct fab_ep *ep, uint64_t ns)
{
    (void)ep, (void)ns;
    if (++here.posts < 20)
        return;
    seen.rc = FAR_OK;
    puppet_complete_now(&here.rig->session->client);
    if (!here.armed) /* else it is the client that sweeps */
        assert_int_equal(get(here.rig, here.rig->session), FAR_OK);
}

/* SWEEP-P2: what an operation wrote down before its client met the sweep may become reachable, also
 * by that client itself. */
static void a_sweep_waits_for_lines_that_live_clients_left(void **state)
{
    struct sweep_result result;
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    for (unsigned own = 0; own < 2; own++) {
        begin(&r, &p, URI);
        far_session *s = r.session, *by = own ? s : join(&r);
        seen.rc = FAR_UNREACHABLE;
        take(s, 0, &j, 1);
        journal_give(&s->op, &j, false);
        assert_int_equal(get(&r, s), FAR_OK);
        assert_int_equal(seen.calls, 1);
        here = (typeof(here)){.rig = &r, .probe = &p, .slot = s->client.slot, .armed = own};
        mark_tables = r.pool->pool.mark;
        r.pool->pool.mark = mark_when_all_is_recovered;
        hook_on(by->client.ep);
        hook.ops.pause = pause_and_allow;
        if (own) { /* it says so at once */
            assert_int_equal(pool_sweep(&by->op, &result), FAR_CONTENTION);
            seen.rc = FAR_OK;
            puppet_complete_now(&s->client);
        }
        assert_int_equal(pool_sweep(&by->op, &result), FAR_OK);
        hook_off();
        assert_int_equal(seen.calls, 2);
        if (!own)
            far_session_close(by);
        end(&r, &p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_claim_is_not_given_up_while_verbs_may_arrive),
        cmocka_unit_test(a_client_that_lapses_with_a_claim_takes_another_slot),
        cmocka_unit_test(a_sibling_does_not_recover_while_the_claim_is_made),
        cmocka_unit_test(a_sibling_that_came_second_leaves_the_recovery_to_the_first),
        cmocka_unit_test(a_slot_that_a_sibling_has_freed_is_left_alone),
        cmocka_unit_test(of_two_that_claim_a_slot_one_recovers),
        cmocka_unit_test(a_claim_of_unknown_outcome_is_given_up),
        cmocka_unit_test(a_client_does_not_register_again_while_it_recovers),
        cmocka_unit_test(nothing_is_recovered_while_a_sibling_registers_the_client),
        cmocka_unit_test(a_line_that_was_just_left_is_recovered_later),
        cmocka_unit_test(an_idle_client_lets_others_recover_what_it_left),
        cmocka_unit_test(a_sweep_waits_for_lines_that_live_clients_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
