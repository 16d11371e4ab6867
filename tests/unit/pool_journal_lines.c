/* Journals: the lines that operations hold, what they say when their client is dead, and that
 * one client at a time recovers them. */
#include "support/recovery_rig.h"
#include "check/audit.h"

#define NODES "mem:?nodes=3&size=4m&clients=8&" LEASE

static void operations_have_lines_of_their_own(void **state)
{
    struct journal j[20];
    struct store_rig r;
    struct probe p;

    (void)state;
    begin(&r, &p, URI);
    far_session *s = join(&r);
    unsigned slot = s->client.slot;
    for (unsigned i = 0; i < 20; i++) {
        take(s, 0, &j[i], 1ull << i);
        for (unsigned k = 0; k < i; k++)
            assert_true(j[k].at != j[i].at);
    }
    for (unsigned i = 0; i < 20; i += 2) { /* half of them end, and say nothing */
        give(s, &j[i]);
    }
    assert_int_equal(recover(r.session, s), FAR_OK);
    assert_int_equal(seen.calls, 10);
    assert_true(seen.sum == 0xaaaaa);
    assert_true(probe_incarnation(&p, slot) == 0);
    close_dead(s);
    /* The next client in the slot finds them blank, and uses them again. */
    s = join(&r);
    assert_int_equal(s->client.slot, slot);
    for (unsigned i = 0; i < 20; i++) {
        struct journal again;
        bool old = false;
        take(s, 0, &again, 1);
        for (unsigned k = 0; k < 20; k++)
            old |= j[k].at == again.at;
        assert_true(old);
    }
    close_dead(s);
    end(&r, &p);
}

/* A line is on the node of the lock. No other nodes need be asked. */
static void lines_are_recovered_on_every_node(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    for (unsigned nodes = 0; nodes < 8; nodes++) {
        begin(&r, &p, NODES);
        far_session *s = join(&r);
        for (unsigned node = 0; node < 3; node++) {
            struct journal j;
            if (nodes >> node & 1)
                take(s, node, &j, 1ull << node);
        }
        assert_true(probe_get(&p, 0, PROBE_SLOT(s->client.slot, journals)) == nodes);
        assert_int_equal(recover(r.session, s), FAR_OK);
        assert_true(seen.sum == nodes);
        close_dead(s);
        end(&r, &p);
    }
}

static int post_not_to_node_1(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count; i++)
        if (req->verbs[i].node == 1)
            return FAR_UNREACHABLE;
    return hook.real->post(ep, req);
}

static void a_node_that_is_away_does_not_hold_up_others(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j[3];

    (void)state;
    begin(&r, &p, NODES);
    far_session *s = join(&r);
    unsigned slot = s->client.slot;
    for (unsigned node = 0; node < 3; node++)
        take(s, node, &j[node], 1ull << node);
    hook_on(r.session->client.ep);
    hook.ops.post = post_not_to_node_1;
    assert_int_equal(recover(r.session, s), FAR_UNREACHABLE);
    hook_off();
    assert_true(seen.sum == 5);
    assert_true(probe_incarnation(&p, slot) == (CLIENT_FENCED | CLIENT_REPAIRED));
    s->client.incarnation = probe_incarnation(&p, slot);
    assert_int_equal(recover(r.session, s), FAR_OK);
    assert_true(seen.sum == 7 && seen.calls == 3); /* each once */
    assert_true(probe_incarnation(&p, slot) == 0);
    close_dead(s);
    end(&r, &p);
}

/* A client drives the epochs on, and meets a dead client with a line on that node. It is not
 * held up. */
static void a_node_that_is_away_does_not_hold_up_epochs(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    begin(&r, &p, NODES);
    far_session *s = join(&r);
    struct client *c = &r.session->client;
    unsigned slot = s->client.slot;
    take(s, 1, &j, 1);
    probe_set(&p, 0, PROBE_SLOT(slot, incarnation), s->client.incarnation | CLIENT_FENCED);
    uint64_t epoch = probe_epoch(&p);
    hook_on(c->ep);
    hook_clock();
    hook.ops.post = post_not_to_node_1;
    push_epochs(r.session);
    assert_true(probe_epoch(&p) > epoch + 4);
    assert_int_equal(seen.calls, 0);
    assert_true(probe_incarnation(&p, slot) & CLIENT_FENCED);
    hook_off(); /* the node is back, and some time has passed */
    puppet_recover_now(c);
    push_epochs(r.session);
    assert_int_equal(seen.calls, 1);
    assert_true(probe_incarnation(&p, slot) == 0);
    close_dead(s);
    end(&r, &p);
}

/* JOURNAL-J2, for one line on node 0. */
static void a_torn_line_says_nothing(void **state)
{
    enum { INTENT, TORN_INTENT, REDO, TORN_REDO, DONE, USED_AGAIN, ALL };
    struct store_rig r;
    struct probe p;
    uint64_t redo = 99;

    (void)state;
    for (unsigned way = 0; way < ALL; way++) {
        struct journal j;
        begin(&r, &p, URI);
        far_session *s = join(&r);
        unsigned slot = s->client.slot;
        take(s, 0, &j, 5);
        if (way >= REDO)
            journal_redo(&s->op, &j, &redo, 8);
        if (way >= DONE)
            journal_done(&s->op, &j);
        assert_int_equal(batch_flush(&s->op.batch), FAR_OK);
        if (way == USED_AGAIN) {
            give(s, &j);
            take(s, 0, &j, 5);
        }
        if (way == TORN_INTENT)
            probe_set(&p, 0, JOURNAL_AT(&r.pool->pool, slot, intent.data), 6);
        if (way == TORN_REDO)
            probe_set(&p, 0, JOURNAL_AT(&r.pool->pool, slot, redo.data), 98);
        assert_int_equal(recover(r.session, s), FAR_OK);
        assert_int_equal(seen.calls, way != TORN_INTENT);
        assert_true(seen.redo == (way == REDO || way == DONE ? redo : 0));
        assert_true(seen.done == (way == DONE));
        assert_false(journal_says(&p, &r.pool->pool, slot));
        assert_true(probe_incarnation(&p, slot) == 0);
        close_dead(s);
        end(&r, &p);
    }
}

/* JOURNAL-J3. Also after a lapse that nobody noticed. */
static void a_client_completes_what_its_own_operations_left(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    for (unsigned lapses = 0; lapses < 2; lapses++) {
        struct journal j, other, third;
        begin(&r, &p, URI);
        far_session *s = join(&r);
        struct client *c = &s->client;
        take(s, 0, &j, 1);
        take(s, 0, &other, 2);
        journal_give(&s->op, &j, false); /* its batch failed */
        assert_int_equal(journal_take(&s->op, 0, &third), FAR_OK);
        assert_true(third.at != j.at);
        journal_give(&s->op, &third, false); /* nothing was written there */
        assert_int_equal(puppet_undone(c), 1);
        puppet_strays(c); /* verbs of it may still arrive */
        assert_int_equal(get(&r, s), FAR_OK);
        assert_int_equal(seen.calls, 0);
        puppet_no_strays(c);
        if (lapses) {
            give(s, &other); /* no operation outlives its registration */
            puppet_lapse(c);
        }
        assert_int_equal(get(&r, s), FAR_OK);
        assert_true(seen.calls == 1 && seen.sum == 1); /* the other one is in use */
        assert_int_equal(puppet_undone(c), 0);
        take(s, 0, &third, 4);
        assert_int_equal(get(&r, s), FAR_OK);
        assert_int_equal(seen.calls, 1);
        close_dead(s);
        end(&r, &p);
    }
}

/* What it left cannot be completed: it does not leave its slot. */
static void a_client_that_closes_leaves_no_line_behind(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    for (unsigned fails = 0; fails < 2; fails++) {
        struct journal j;
        begin(&r, &p, URI);
        seen.rc = fails ? FAR_UNREACHABLE : FAR_OK;
        far_session *s = join(&r);
        unsigned slot = s->client.slot;
        uint64_t incarnation = s->client.incarnation;
        take(s, 0, &j, 1);
        journal_give(&s->op, &j, false);
        far_session_close(s);
        assert_int_equal(seen.calls, 1);
        assert_true(probe_incarnation(&p, slot) == (fails ? incarnation : 0));
        assert_true(journal_says(&p, &r.pool->pool, slot) == fails);
        end(&r, &p);
    }
}

/* LEASE-L2: while a live client recovers a dead one, others leave it alone. */
static void one_client_at_a_time_recovers(void **state)
{
    enum { ALIVE, FENCED, GONE, NOBODY, ALL };
    struct store_rig r;
    struct probe p;

    (void)state;
    for (unsigned way = 0; way < ALL; way++) {
        struct journal j;
        begin(&r, &p, URI);
        far_session *s = join(&r), *other = join(&r);
        unsigned slot = s->client.slot, by = other->client.slot;
        uint64_t claim = claim_of(other);
        take(s, 0, &j, 1);
        if (way == NOBODY)
            claim = CLIENT_FENCED | CLIENT_REPAIRED;
        probe_set(&p, 0, PROBE_SLOT(slot, incarnation), claim);
        if (way == FENCED)
            probe_set(&p, 0, PROBE_SLOT(by, incarnation),
                      other->client.incarnation | CLIENT_FENCED);
        if (way == GONE)
            probe_set(&p, 0, PROBE_SLOT(by, incarnation), 0);
        s->client.incarnation = claim;
        assert_int_equal(recover(r.session, s), FAR_OK);
        assert_int_equal(seen.calls, way != ALIVE);
        assert_true(probe_incarnation(&p, slot) == (way == ALIVE ? claim : 0));
        /* Nor does it become a suspect. */
        struct client *c = &r.session->client;
        struct client_slot *slots = NULL;
        puppet_suspect_nobody(c);
        assert_int_equal(client_registry(&r.session->op, &slots), FAR_OK);
        if (way == ALIVE)
            assert_true(client_watch(c, slots, 8, NO_EPOCH, c->ep->ops->coarse(c->ep)));
        assert_int_equal(puppet_suspected(c), -1);
        close_dead(s);
        close_dead(other);
        end(&r, &p);
    }
}

static struct store_rig *rig_again;
static far_session *dead_again;

/* While an operation recovers it, a sibling of that operation tries to. */
static int recover_within(struct op *op)
{
    struct client *c = op->client;
    seen.then = NULL;
    uint64_t claim = CLIENT_FENCED | CLIENT_REPAIRED | client_owner_word(c);
    struct op sibling;
    assert_int_equal(op_init(&sibling, c), FAR_OK);
    assert_int_equal(puppet_recover(&sibling, dead_again->client.slot, claim), FAR_OK);
    assert_int_equal(seen.calls, 1);
    op_free(&sibling);
    return FAR_OK;
}

static void siblings_do_not_recover_the_same_client(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    begin(&r, &p, URI);
    far_session *s = join(&r);
    take(s, 0, &j, 1);
    seen.then = recover_within;
    dead_again = s;
    assert_int_equal(recover(r.session, s), FAR_OK);
    assert_int_equal(seen.calls, 1);
    assert_true(probe_incarnation(&p, s->client.slot) == 0);
    close_dead(s);
    end(&r, &p);
}

static int break_off(struct op *op)
{
    struct client *c = op->client;
    puppet_strays(c); /* a WRITE of ours has failed, and may yet arrive */
    return FAR_UNREACHABLE;
}

static void pause_by_hook(struct fab_ep *ep, uint64_t ns)
{
    struct probe p;
    (void)ep;
    hook.clock += ns;
    probe_open(&p, rig_again->fab); /* until then the claim is ours */
    assert_true(probe_incarnation(&p, dead_again->client.slot) == claim_of(rig_again->session));
    probe_close(&p);
}

static void a_recovery_is_given_up_when_nothing_of_it_can_arrive(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    begin(&r, &p, URI);
    far_session *s = join(&r);
    struct client *c = &r.session->client;
    take(s, 0, &j, 1);
    seen.then = break_off;
    rig_again = &r;
    dead_again = s;
    hook_on(c->ep);
    hook_clock();
    hook.ops.pause = pause_by_hook;
    uint64_t began = hook.clock;
    assert_int_equal(recover(r.session, s), FAR_UNREACHABLE);
    assert_true(hook.clock - began > puppet_lease_ns(c) / 2);
    assert_true(probe_incarnation(&p, s->client.slot) == (CLIENT_FENCED | CLIENT_REPAIRED));
    hook_off();
    puppet_never_lapse(c); /* its clock is the machine's again */
    puppet_no_strays(c);
    close_dead(s);
    end(&r, &p);
}

static int wait_at_barrier(struct op *op)
{
    return client_barrier(op, 2);
}

/* LEASE-L2: the dead client's certificate is old, and holds nobody up once it is fenced. */
static void a_recovery_can_wait_for_a_barrier(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    begin(&r, &p, URI);
    far_session *s = join(&r);
    take(s, 0, &j, 1);
    push_epochs(r.session);
    seen.then = wait_at_barrier;
    uint64_t epoch = probe_epoch(&p);
    assert_true(probe_get(&p, 0, PROBE_SLOT(s->client.slot, epoch)) < epoch);
    struct client *c = &r.session->client;
    hook_on(c->ep);
    hook_clock();
    assert_int_equal(recover(r.session, s), FAR_OK);
    hook_off();
    assert_true(probe_epoch(&p) >= epoch + 1);
    assert_true(probe_incarnation(&p, s->client.slot) == 0);
    close_dead(s);
    end(&r, &p);
}

static struct {
    struct probe *probe;
    unsigned slot, pauses;
    bool free;
    int (*mark)(void *arg, struct op *op, struct marker *marker);
} sweeps;

static int mark_after_recovery(void *arg, struct op *op, struct marker *marker)
{
    assert_true(sweeps.free);
    return sweeps.mark(arg, op, marker);
}

/* The other client has recovered it at last. */
static void pause_and_recover(struct fab_ep *ep, uint64_t ns)
{
    (void)ep, (void)ns;
    if (sweeps.pauses++ < 10)
        return;
    probe_set(sweeps.probe, 0, PROBE_SLOT(sweeps.slot, incarnation), 0);
    sweeps.free = true;
}

/* SWEEP-P2: also for a recovery by another client. */
static void a_sweep_waits_for_recoveries(void **state)
{
    struct sweep_result result;
    struct store_rig r;
    struct probe p;

    (void)state;
    begin(&r, &p, URI);
    far_session *s = join(&r), *other = join(&r);
    assert_int_equal(client_park(&other->op), FAR_OK); /* it is idle, as far as others see */
    probe_set(&p, 0, PROBE_SLOT(s->client.slot, incarnation), claim_of(other));
    sweeps = (typeof(sweeps)){&p, s->client.slot, 0, false, r.pool->pool.mark};
    r.pool->pool.mark = mark_after_recovery;
    hook_on(r.session->client.ep);
    hook.ops.pause = pause_and_recover;
    assert_int_equal(pool_sweep(&r.session->op, &result), FAR_OK);
    hook_off();
    close_dead(s);
    close_dead(other);
    end(&r, &p);
}

static void lines_survive_a_sweep(void **state)
{
    struct sweep_result result;
    struct store_rig r;
    struct probe p;
    struct journal j[6];
    struct audit a;

    (void)state;
    begin(&r, &p, "mem:?size=2m&clients=8&" LEASE);
    for (unsigned i = 0; i < 6; i++)
        take(r.session, 0, &j[i], 1);
    assert_int_equal(pool_sweep(&r.session->op, &result), FAR_OK);
    assert_int_equal(sim_audit(&a, r.pool, &r.session, 1), FAR_OK);
    if (a.wrong) /* lines that are free and in use */
        fail_msg("%s", a.first);
    assert_true(a.bytes[AUDIT_NOWHERE] == 0);
    close_dead(r.session);
    r.session = join(&r);
    end(&r, &p);
}

/* A chain leads nowhere. The check finds that, and the slot's owner starts a new chain. */
static void a_damaged_chain_is_cut(void **state)
{
    static const uint64_t next[] = {UINT64_MAX, 1ull << 33, 3, 1ull << GADDR_UNIT_BITS};
    struct store_rig r;
    struct probe p;

    (void)state;
    for (unsigned i = 0; i < sizeof next / sizeof *next; i++) {
        struct pool_findings findings = {0};
        struct sweep_result result;
        struct journal first, second;
        begin(&r, &p, URI);
        far_session *s = r.session;
        probe_set(&p, 0, JOURNAL_AT(&r.pool->pool, s->client.slot, next), next[i]);
        take(s, 0, &first, 1);
        assert_int_equal(pool_check(&s->op, &findings), FAR_OK);
        assert_int_equal(findings.violations, 1);
        assert_int_equal(pool_sweep(&s->op, &result), FAR_CORRUPT);
        take(s, 0, &second, 2);
        findings.violations = 0;
        assert_int_equal(pool_check(&s->op, &findings), FAR_OK);
        assert_int_equal(findings.violations, 0);
        r.session = join(&r);
        assert_int_equal(recover(r.session, s), FAR_OK);
        assert_true(seen.calls == 2 && seen.sum == 3);
        close_dead(s);
        end(&r, &p);
    }
}

/* The lines before the damage are known to the slot's owner, and used: they stay in the chain. */
static void what_is_before_the_damage_stays_in_the_chain(void **state)
{
    enum { NEXT, MAGIC, CIRCLE, ALL };
    struct store_rig r;
    struct probe p;

    (void)state;
    for (unsigned way = 0; way < ALL; way++) {
        struct pool_findings findings = {0};
        struct journal j[6];
        begin(&r, &p, URI);
        far_session *s = join(&r);
        for (unsigned i = 0; i < 4; i++)
            take(s, 0, &j[i], 1);
        for (unsigned i = 0; i < 4; i++) /* the first, and then from the last to the second */
            give(s, &j[i]);
        far_session_close(s);
        if (way == MAGIC)
            probe_set(&p, j[1].at, offsetof(struct journal_line, magic), 1);
        else
            probe_set(&p, j[1].at, offsetof(struct journal_line, next),
                      way == CIRCLE ? j[3].at : 3);
        s = join(&r);
        for (unsigned i = 0; i < 6; i++)
            take(s, 0, &j[i], 1ull << i);
        assert_int_equal(pool_check(&s->op, &findings), FAR_OK);
        assert_int_equal(findings.violations, 0);
        assert_int_equal(recover(r.session, s), FAR_OK);
        assert_true(seen.calls == 6 && seen.sum == 63);
        close_dead(s);
        end(&r, &p);
    }
}

/* Damage to the chain of one slot says nothing of another slot's. */
static void a_damaged_chain_is_left_behind_with_its_slot(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j[4];

    (void)state;
    begin(&r, &p, URI);
    far_session *s = join(&r), *other = join(&r);
    unsigned slot = other->client.slot;
    for (unsigned i = 0; i < 3; i++)
        take(other, 0, &j[i], 1);
    for (unsigned i = 0; i < 3; i++)
        give(other, &j[i]);
    far_session_close(other);
    probe_set(&p, 0, JOURNAL_AT(&r.pool->pool, s->client.slot, next), 3);
    take(s, 0, &j[0], 1);
    give(s, &j[0]);
    probe_set(&p, 0, PROBE_SLOT(s->client.slot, incarnation), 4711); /* it is another's */
    puppet_lapse(&s->client);
    assert_int_equal(get(&r, s), FAR_OK);
    assert_int_equal(s->client.slot, slot);
    for (unsigned i = 0; i < 4; i++)
        take(s, 0, &j[i], 1ull << i);
    assert_int_equal(recover(r.session, s), FAR_OK);
    assert_true(seen.calls == 4 && seen.sum == 15);
    close_dead(s);
    end(&r, &p);
}

/* The slot has no owner that would cut the chain, so the check repairs it. */
static void a_damaged_chain_is_repaired(void **state)
{
    struct far_pool_check check;
    struct store_rig r;
    struct probe p;

    (void)state;
    begin(&r, &p, URI);
    far_session *s = join(&r);
    unsigned slot = s->client.slot;
    far_session_close(s);
    probe_set(&p, 0, PROBE_SLOT(slot, journals), 1);
    probe_set(&p, 0, JOURNAL_AT(&r.pool->pool, slot, next), 3);
    assert_int_equal(far_pool_check(r.session, false, NULL, NULL, &check), FAR_CORRUPT);
    assert_int_equal(check.violations, 1);
    assert_int_equal(far_pool_check(r.session, true, NULL, NULL, &check), FAR_OK);
    assert_int_equal(check.repaired, 1);
    assert_int_equal(far_pool_check(r.session, false, NULL, NULL, &check), FAR_OK);
    assert_true(probe_incarnation(&p, slot) == 0);
    end(&r, &p);
}

/* There is no room for another line. The operation gets an error, and the lines that exist are
 * still used. */
static void a_full_node_has_no_more_lines(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j, more;
    gaddr at = 0;

    (void)state;
    begin(&r, &p, "mem:?nodes=2&size=1m&clients=8&" LEASE);
    while (pool_alloc(&r.session->op, 1, CHUNK_CLASS, &at) == FAR_OK && gaddr_node(at) == 1)
        ;
    take(r.session, 1, &j, 1);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(journal_take(&r.session->op, 1, &more), FAR_POOL_FULL);
    give(r.session, &j);
    take(r.session, 1, &more, 2);
    assert_true(more.at == j.at);
    give(r.session, &more);
    end(&r, &p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_have_lines_of_their_own),
        cmocka_unit_test(lines_are_recovered_on_every_node),
        cmocka_unit_test(a_node_that_is_away_does_not_hold_up_others),
        cmocka_unit_test(a_node_that_is_away_does_not_hold_up_epochs),
        cmocka_unit_test(a_torn_line_says_nothing),
        cmocka_unit_test(a_client_completes_what_its_own_operations_left),
        cmocka_unit_test(a_client_that_closes_leaves_no_line_behind),
        cmocka_unit_test(one_client_at_a_time_recovers),
        cmocka_unit_test(siblings_do_not_recover_the_same_client),
        cmocka_unit_test(a_recovery_is_given_up_when_nothing_of_it_can_arrive),
        cmocka_unit_test(a_recovery_can_wait_for_a_barrier),
        cmocka_unit_test(a_sweep_waits_for_recoveries),
        cmocka_unit_test(lines_survive_a_sweep),
        cmocka_unit_test(a_damaged_chain_is_cut),
        cmocka_unit_test(what_is_before_the_damage_stays_in_the_chain),
        cmocka_unit_test(a_damaged_chain_is_left_behind_with_its_slot),
        cmocka_unit_test(a_damaged_chain_is_repaired),
        cmocka_unit_test(a_full_node_has_no_more_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
