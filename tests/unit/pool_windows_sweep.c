/* What may happen while a sweep is announced, met or carried out: clients that join, operations of
 * the same ring, leases that lapse. */
#include "support/puppet.h"
#include "support/register_rig.h"

static struct {
    struct store_rig *rig;
    far_session *late;
} joining;

/* Between the two steps that announce a sweep and count it, a session begins. It takes memory from
 * a shared list, and is parked. */
static int post_with_a_joiner(struct fab_ep *ep, struct fab_req *req)
{
    bool counts = false;
    for (unsigned i = 0; i < req->count; i++)
        counts |= req->verbs[i].kind == FAB_FAA && req->verbs[i].off == PROBE_CONTROL(sweeps);
    if (!counts || req->count < 2)
        return hook.real->post(ep, req);
    struct fab_req first = {.verbs = req->verbs, .count = 1};
    struct fab_req rest = {.verbs = req->verbs + 1, .count = req->count - 1};
    hook_run(ep, &first);
    assert_int_equal(far_session_open(joining.rig->pool, NULL, &joining.late), FAR_OK);
    hook_run(ep, &rest);
    assert_int_equal(put(joining.rig, joining.late, 5000), FAR_OK);
    assert_int_equal(client_park(&joining.late->op), FAR_OK); /* as the keeper does */
    req->status = FAR_OK;
    req->done = true;
    return FAR_OK;
}

/* Objects that wait on the shared lists. */
static void fill_lists(struct store_rig *r)
{
    far_session *s = join(r);
    for (uint64_t key = 100; key < 300; key++)
        assert_int_equal(put(r, s, key), FAR_OK);
    for (uint64_t key = 100; key < 300; key++)
        assert_int_equal(far_delete(s, r->table, &key, 8), FAR_OK);
    for (unsigned i = 0; i < 30; i++) {
        assert_int_equal(client_drive_epoch(&r->session->op), FAR_OK);
        assert_int_equal(client_drive_epoch(&s->op), FAR_OK);
    }
    assert_int_equal(client_park(&r->session->op), FAR_OK);
    far_session_close(s);
}

static void a_sweep_is_announced_before_it_is_counted(void **state)
{
    struct store_rig r;
    struct probe p;
    struct sweep_result swept;

    (void)state;
    start(&r, &p, URI);
    fill_lists(&r);
    joining = (typeof(joining)){.rig = &r};
    hook_on(r.session->client.ep);
    hook.ops.post = post_with_a_joiner;
    assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_OK);
    hook_off();
    assert_non_null(joining.late);
    assert_int_equal(get(&r, joining.late), FAR_OK);
    far_session *other = join(&r);
    assert_int_equal(op_begin(&other->op, NULL), FAR_OK);
    for (unsigned i = 0; i < 1500; i++) {
        gaddr at = 0;
        assert_int_equal(pool_alloc(&other->op, 0, 0, &at), FAR_OK);
        assert_false(puppet_holds(&joining.late->client, at, 0));
    }
    op_end(&other->op);
    far_session_close(other);
    far_session_close(joining.late);
    end(&r, &p);
}

static struct {
    struct probe *probe;
    uint64_t word, count;
    bool met;
} announcing;

/* Between the two reads that follow a certificate, a sweep is announced and counted. */
static int post_with_a_sweep(struct fab_ep *ep, struct fab_req *req)
{
    struct fab_verb *v = req->verbs;
    if (announcing.met || req->count != 3 || v[0].kind != FAB_WRITE || v[0].off < CLIENTS_OFF)
        return hook.real->post(ep, req);
    announcing.met = true;
    struct fab_req first = {.verbs = v, .count = 2}, second = {.verbs = v + 2, .count = 1};
    hook_run(ep, &first);
    probe_set(announcing.probe, 0, PROBE_CONTROL(sweep), announcing.word);
    probe_set(announcing.probe, 0, PROBE_CONTROL(sweeps), announcing.count);
    hook_run(ep, &second);
    req->status = FAR_OK;
    req->done = true;
    return FAR_OK;
}

/* A parked client forgets what it holds if a sweep was counted since it was announced. So it must
 * not count one that it has not seen announced. */
static void a_client_counts_only_sweeps_that_it_has_met(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    start(&r, &p, URI);
    far_session *s = join(&r);
    struct client *c = &s->client;
    assert_int_equal(client_park(&s->op), FAR_OK);
    announcing = (typeof(announcing)){
        .probe = &p,
        .word = client_owner_word(&r.session->client) | SWEEP_ANNOUNCED,
        .count = probe_get(&p, 0, PROBE_CONTROL(sweeps)) + 1,
    };
    hook_on(c->ep);
    hook.ops.post = post_with_a_sweep;
    assert_int_equal(op_begin(&s->op, NULL), FAR_OK);
    assert_true(announcing.met);
    assert_true(puppet_sweep(c) == announcing.word || puppet_sweeps_seen(c) < announcing.count);
    op_end(&s->op);
    hook_off();
    probe_set(&p, 0, PROBE_CONTROL(sweep), 0);
    far_session_close(s);
    end(&r, &p);
}

static bool own_sweep_met;

static int mark_nothing(void *arg, struct op *op, struct marker *marker)
{
    (void)arg, (void)marker;
    own_sweep_met = puppet_sweep(op->client) != 0 && puppet_kept(op->client, 0, 0) == 0;
    return FAR_UNREACHABLE; /* and so the sweep ends */
}

static void a_sweeper_meets_its_own_sweep(void **state)
{
    struct store_rig r;
    struct probe p;
    struct sweep_result swept;

    (void)state;
    start(&r, &p, URI);
    own_sweep_met = false;
    r.pool->pool.mark = mark_nothing;
    assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_UNREACHABLE);
    assert_true(own_sweep_met);
    end(&r, &p);
}

static struct {
    struct fab_req *request;
} held;

/* The mark of the first sweep is read; the answer takes long. */
static int post_and_hold(struct fab_ep *ep, struct fab_req *req)
{
    if (held.request || req->verbs[0].kind != FAB_READ || req->verbs[0].off != NODE_SWEEP_OFF)
        return hook.real->post(ep, req);
    hook_run(ep, req);
    req->done = false;
    held.request = req;
    return FAR_OK;
}

/* On a ring, one operation meets a sweep, and another the next one. */
static void of_two_sweeps_the_older_is_not_met_last(void **state)
{
    struct store_rig r;
    struct probe p;
    uint64_t got[2];
    struct far_result result;

    (void)state;
    start(&r, &p, URI_RING);
    far_session *s = join(&r);
    struct client *c = &s->client;
    uint64_t word = client_owner_word(&r.session->client) | SWEEP_ANNOUNCED;
    probe_set(&p, 0, NODE_SWEEP_OFF, 1);
    probe_set(&p, 0, PROBE_CONTROL(sweep), word);
    assert_int_equal(client_drive_epoch(&s->op), FAR_OK);
    assert_true(puppet_sweep_unmet(c));
    hook_on(c->ep);
    hook.ops.post = post_and_hold;
    held.request = NULL;
    assert_int_equal(submit_get(&r, s, &got[0]), FAR_OK);
    for (unsigned i = 0; i < 20 && !held.request; i++)
        (void)far_reap(s, &result, 1, 0);
    assert_non_null(held.request);
    probe_set(&p, 0, NODE_SWEEP_OFF, 5); /* that sweep is over, another begins */
    probe_set(&p, 0, PROBE_CONTROL(sweep), word + SWEEP_COUNT);
    assert_int_equal(submit_get(&r, s, &got[1]), FAR_OK);
    assert_int_equal(far_reap(s, &result, 1, 1), 1);
    assert_true(puppet_sweep(c) == word + SWEEP_COUNT && puppet_sweep_mark(c, 0) == 5 &&
                !puppet_sweep_unmet(c));
    fab_complete(held.request, held.request->status);
    assert_int_equal(far_reap(s, &result, 1, 1), 1);
    assert_true(puppet_sweep(c) == word + SWEEP_COUNT && puppet_sweep_mark(c, 0) == 5);
    hook_off();
    probe_set(&p, 0, PROBE_CONTROL(sweep), 0);
    far_session_close(s);
    end(&r, &p);
}

static struct {
    struct store_rig *rig;
    struct probe *probe;
    struct op op; /* of the sweeper's session, too */
    bool met;
} emptying;

/* The lists have been read. The sweeper's lease lapses, and another operation of its session
 * begins. Others have ended the sweep, and use the lists. */
static int post_between_lists(struct fab_ep *ep, struct fab_req *req)
{
    if (emptying.met || req->verbs[0].kind != FAB_READ || req->verbs[0].off != NODE_FREE_OFF)
        return hook.real->post(ep, req);
    emptying.met = true;
    hook_run(ep, req);
    probe_set(emptying.probe, 0, PROBE_CONTROL(sweep), 0);
    shut_out(emptying.probe, emptying.rig->session);
    if (op_begin(&emptying.op, NULL) == FAR_OK)
        op_end(&emptying.op);
    probe_set(emptying.probe, 0, NODE_FREE_OFF, 4711);
    return FAR_OK;
}

static void lists_in_use_are_not_emptied(void **state)
{
    struct store_rig r;
    struct probe p;
    struct sweep_result swept;

    (void)state;
    start(&r, &p, "mem:?size=16m&clients=8&lease=20000");
    struct client *c = &r.session->client;
    emptying = (typeof(emptying)){.rig = &r, .probe = &p};
    assert_int_equal(op_init(&emptying.op, c), FAR_OK);
    hook_on(c->ep);
    hook_clock();
    hook.ops.pause = pause_not; /* it would wait in vain */
    hook.ops.post = post_between_lists;
    assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_FENCED);
    assert_true(emptying.met);
    hook_off();
    assert_true(probe_get(&p, 0, NODE_FREE_OFF) == 4711);
    probe_set(&p, 0, NODE_FREE_OFF, 0);
    op_free(&emptying.op);
    end(&r, &p);
}

static struct {
    struct store_rig *rig;
    struct probe *probe;
    struct op op;   /* of the sweeper's session, too */
    uint64_t other; /* the word of another sweeper that takes over; 0: none does */
    bool half;      /* the slot has the new name, but the client does not know yet */
    bool met, marked;
} renewing;

static bool changes_sweep(const struct fab_verb *v)
{
    return v->kind == FAB_CAS && v->off == PROBE_CONTROL(sweep);
}

/* The sweeper's lease lapses, and another operation of its session begins. */
static void renew(void)
{
    struct client *c = &renewing.rig->session->client;
    uint64_t incarnation = c->incarnation;
    if (renewing.half) {
        puppet_set_joining(c, true);
        return;
    }
    puppet_lapse(c);
    assert_int_equal(op_begin(&renewing.op, NULL), FAR_OK);
    op_end(&renewing.op);
    assert_true(c->incarnation != incarnation);
}

/* The sweeper has put its name into the word. */
static int post_and_renew(struct fab_ep *ep, struct fab_req *req)
{
    if (renewing.met || !changes_sweep(&req->verbs[0]))
        return hook.real->post(ep, req);
    renewing.met = true;
    hook_run(ep, req);
    renew();
    return FAR_OK;
}

#define OTHER_MARK 100 /* more chunks than are in use */

/* The sweeper knows its marks. Before it sets them, another takes over, and sets its own. */
static int post_and_take_over(struct fab_ep *ep, struct fab_req *req)
{
    if (renewing.met || req->verbs[0].kind != FAB_READ || req->verbs[0].off != NODE_NEXT_CHUNK_OFF)
        return hook.real->post(ep, req);
    renewing.met = true;
    hook_run(ep, req);
    renew();
    probe_set(renewing.probe, 0, PROBE_CONTROL(sweep), renewing.other);
    probe_set(renewing.probe, 0, NODE_SWEEP_OFF, OTHER_MARK);
    return FAR_OK;
}

static int mark_and_note(void *arg, struct op *op, struct marker *marker)
{
    (void)arg, (void)op, (void)marker;
    renewing.marked = true;
    return FAR_OK;
}

/* Sweeps, with that hook. */
static void sweep_renewed(struct store_rig *r, struct probe *p,
                          int (*post)(struct fab_ep *ep, struct fab_req *req))
{
    struct sweep_result swept;

    renewing.rig = r;
    renewing.probe = p;
    renewing.met = renewing.marked = false;
    assert_int_equal(op_init(&renewing.op, &r->session->client), FAR_OK);
    int (*mark)(void *arg, struct op *op, struct marker *marker) = r->pool->pool.mark;
    r->pool->pool.mark = mark_and_note;
    hook_on(r->session->client.ep);
    hook.ops.post = post;
    assert_int_equal(pool_sweep(&r->session->op, &swept), FAR_FENCED);
    hook_off();
    r->pool->pool.mark = mark;
    puppet_set_joining(&r->session->client, false);
    assert_true(renewing.met && !renewing.marked);
    op_free(&renewing.op);
}

/* The word names a client that is gone. So others take over, and the sweeper must not go on. */
static void a_sweeper_that_got_another_name_gives_up(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    start(&r, &p, URI);
    renewing = (typeof(renewing)){.other = 0};
    sweep_renewed(&r, &p, post_and_renew);
    assert_true(probe_get(&p, 0, PROBE_CONTROL(sweep)) == 0);
    end(&r, &p);
}

/* With a lower mark, clients that meet the other's sweep would keep what it finds. */
static void set_no_marks(bool half)
{
    struct store_rig r;
    struct probe p;

    start(&r, &p, URI);
    far_session *s = join(&r);
    renewing = (typeof(renewing)){.other = client_owner_word(&s->client), .half = half};
    sweep_renewed(&r, &p, post_and_take_over);
    assert_true(probe_get(&p, 0, NODE_SWEEP_OFF) == OTHER_MARK);
    assert_true(probe_get(&p, 0, PROBE_CONTROL(sweep)) == renewing.other);
    probe_set(&p, 0, PROBE_CONTROL(sweep), 0);
    far_session_close(s);
    end(&r, &p);
}

static void a_sweeper_that_got_another_name_sets_no_marks(void **state)
{
    (void)state;
    set_no_marks(false);
}

static void a_sweeper_that_is_being_renamed_sets_no_marks(void **state)
{
    (void)state;
    set_no_marks(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sweep_is_announced_before_it_is_counted),
        cmocka_unit_test(a_client_counts_only_sweeps_that_it_has_met),
        cmocka_unit_test(a_sweeper_meets_its_own_sweep),
        cmocka_unit_test(of_two_sweeps_the_older_is_not_met_last),
        cmocka_unit_test(lists_in_use_are_not_emptied),
        cmocka_unit_test(a_sweeper_that_got_another_name_gives_up),
        cmocka_unit_test(a_sweeper_that_got_another_name_sets_no_marks),
        cmocka_unit_test(a_sweeper_that_is_being_renamed_sets_no_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
