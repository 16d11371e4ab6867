/* All slots are taken, and the silent ones hold work that their owners left undone: a client takes
 * such a slot together with the work. */
#include "support/journal_rig.h"
#include "support/puppet.h"
#include "support/register_rig.h"

#define DEAD    4711ull /* incarnation of a client that died in the middle of its work */
#define WORKING 77ull
#define URI_TWO "mem:?size=16m&clients=2&" LEASE

static struct {
    unsigned calls;
    int rc;
    bool registered; /* at every call */
} recoveries;

/* Stands in for the tables. */
static int note_recovery(void *arg, struct op *op, const struct journal_entry *entry)
{
    struct probe p;
    const struct client *c = op->client;
    (void)arg;
    uint64_t data = 0;
    memcpy(&data, entry->data, 8);
    assert_true(entry->len == 8 && data == WORKING && entry->subject.what == 1);
    assert_true(entry->redo == NULL && !entry->done);
    probe_open(&p, c->pool->fab);
    assert_true(journal_says(&p, c->pool, c->slot));
    recoveries.registered &=
        probe_incarnation(&p, c->slot) == c->incarnation &&
        probe_get(&p, 0, PROBE_SLOT(c->slot, epoch)) == puppet_certificate(c) && !client_lapsed(c);
    probe_close(&p);
    recoveries.calls++;
    return recoveries.rc;
}

/* The slot is a dead client's, and holds its work. It is fenced already, so that no test has to
 * wait. */
static void leave_work(struct probe *p, const struct pool *pool, unsigned slot)
{
    probe_set(p, 0, PROBE_SLOT(slot, incarnation), DEAD | CLIENT_FENCED);
    probe_set(p, 0, PROBE_SLOT(slot, epoch), 0);
    journal_plant(p, pool, slot, (struct journal_subject){.what = 1}, WORKING);
}

/* A pool of two slots. The session is in the first; if there is a second one, it has lost its slot
 * to the dead client. */
static far_session *start_full(struct store_rig *r, struct probe *p, const char *uri, bool second)
{
    far_session *s = NULL;
    start(r, p, uri);
    if (second) {
        s = join(r);
        shut_out(p, s);
    } else {
        far_session_close(join(r));
    }
    leave_work(p, &r->pool->pool, 1);
    recoveries = (typeof(recoveries)){.rc = FAR_OK, .registered = true};
    r->pool->pool.recover = note_recovery;
    r->pool->pool.kept = true; /* as users open it */
    return s;
}

static void a_dead_clients_work_does_not_lock_others_out(void **state)
{
    struct store_rig r;
    struct probe p;
    far_session *s = NULL;

    (void)state;
    (void)start_full(&r, &p, URI_TWO, false);
    uint64_t deaths = probe_get(&p, 0, PROBE_CONTROL(deaths));
    assert_int_equal(far_session_open(r.pool, NULL, &s), FAR_OK);
    assert_int_equal(s->client.slot, 1);
    assert_true(recoveries.calls == 1 && recoveries.registered);
    assert_true(probe_incarnation(&p, 1) == s->client.incarnation);
    assert_false(journal_says(&p, &r.pool->pool, 1));
    assert_true(probe_get(&p, 0, PROBE_CONTROL(deaths)) == deaths + 1);
    assert_int_equal(get(&r, s), FAR_OK);
    assert_int_equal(recoveries.calls, 1);
    far_session_close(s);
    assert_true(probe_incarnation(&p, 1) == 0);
    end(&r, &p);
}

/* Both slots are dead clients'. One can be had without doing its work first. */
static void a_slot_without_work_is_taken_first(void **state)
{
    struct store_rig r;
    struct probe p;
    far_session *s = NULL, *t = NULL;

    (void)state;
    start(&r, &p, "mem:?size=16m&clients=3&" LEASE);
    s = join(&r);
    t = join(&r);
    far_session_close(s);
    far_session_close(t);
    leave_work(&p, &r.pool->pool, 1);
    probe_set(&p, 0, PROBE_SLOT(2, incarnation), (DEAD + 1) | CLIENT_FENCED);
    probe_set(&p, 0, PROBE_SLOT(2, epoch), 0);
    recoveries = (typeof(recoveries)){.rc = FAR_OK, .registered = true};
    r.pool->pool.recover = note_recovery;
    r.pool->pool.kept = true;
    assert_int_equal(far_session_open(r.pool, NULL, &s), FAR_OK);
    assert_int_equal(s->client.slot, 2);
    assert_int_equal(recoveries.calls, 0);
    assert_true(journal_says(&p, &r.pool->pool, 1));
    far_session_close(s);
    end(&r, &p);
}

static void a_session_that_registers_again_takes_work_over_too(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    far_session *s = start_full(&r, &p, URI_TWO, true);
    assert_int_equal(get(&r, s), FAR_OK);
    assert_true(s->client.slot == 1 && recoveries.calls == 1 && recoveries.registered);
    assert_false(journal_says(&p, &r.pool->pool, 1));
    far_session_close(s);
    end(&r, &p);
}

/* The work cannot be done now. The session is usable, and the work is not forgotten. */
static void work_that_cannot_be_completed_stays_in_the_slot(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    far_session *s = start_full(&r, &p, URI_TWO, true);
    recoveries.rc = FAR_UNREACHABLE;
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(get(&r, s), FAR_OK);
    assert_int_equal(recoveries.calls, 1); /* the next attempt is due in a lease */
    puppet_complete_now(&s->client);
    assert_int_equal(client_park(&s->op), FAR_OK);
    assert_int_equal(get(&r, s), FAR_OK);
    assert_int_equal(recoveries.calls, 2);
    uint64_t incarnation = s->client.incarnation;
    far_session_close(s); /* the slot is found silent, and the work with it */
    assert_true(probe_incarnation(&p, 1) == incarnation);
    assert_true(journal_says(&p, &r.pool->pool, 1));
    end(&r, &p);
}

/* The client that took the work over dies before it has completed it. */
static void work_is_taken_over_from_one_that_took_it_over(void **state)
{
    struct store_rig r;
    struct probe p;
    far_session *next = NULL;

    (void)state;
    far_session *s = start_full(&r, &p, URI_TWO, true);
    recoveries.rc = FAR_UNREACHABLE;
    assert_int_equal(get(&r, s), FAR_OK);
    uint64_t fenced = s->client.incarnation | CLIENT_FENCED;
    probe_set(&p, 0, PROBE_SLOT(1, incarnation), fenced);
    puppet_lapse(&s->client);
    recoveries.rc = FAR_OK;
    assert_int_equal(far_session_open(r.pool, NULL, &next), FAR_OK);
    assert_true(recoveries.calls == 2 && recoveries.registered);
    assert_false(journal_says(&p, &r.pool->pool, 1));
    assert_true(probe_incarnation(&p, 1) == next->client.incarnation);
    far_session_close(s);
    assert_true(probe_incarnation(&p, 1) == next->client.incarnation);
    far_session_close(next);
    end(&r, &p);
}

static struct {
    struct probe *probe;
    bool unknown, met;
} takes;

/* The CAS that takes the slot over arrives late, or its outcome is unknown. */
static int post_takeover(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *v = &req->verbs[0];
    if (takes.met || v->kind != FAB_CAS || v->compare != (DEAD | CLIENT_FENCED) ||
        v->off != PROBE_SLOT(1, incarnation))
        return hook.real->post(ep, req);
    takes.met = true;
    if (!takes.unknown) {
        probe_set(takes.probe, 0, PROBE_SLOT(1, incarnation), DEAD + 2);
        return hook.real->post(ep, req);
    }
    hook_run(ep, req);
    req->status = FAR_UNKNOWN;
    return FAR_OK;
}

static void of_several_that_want_the_slot_one_gets_it(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    far_session *s = start_full(&r, &p, "mem:?size=16m&clients=2&lease=2000", true);
    hook_on(s->client.ep);
    hook_clock(); /* nobody is silent for long */
    hook.ops.pause = pause_not;
    hook.ops.post = post_takeover;
    takes = (typeof(takes)){.probe = &p};
    probe_set(&p, 0, PROBE_SLOT(0, incarnation), DEAD + 4);
    assert_int_equal(get(&r, s), FAR_NO_CLIENT_SLOT);
    assert_true(takes.met && recoveries.calls == 0);
    hook_off();
    assert_true(probe_incarnation(&p, 1) == DEAD + 2);
    assert_true(journal_says(&p, &r.pool->pool, 1));
    assert_true(probe_get(&p, 0, PROBE_SLOT(1, epoch)) == 0);
    probe_set(&p, 0, PROBE_SLOT(0, incarnation), r.session->client.incarnation);
    far_session_close(s);
    end(&r, &p);
}

static void a_takeover_of_unknown_outcome_is_found_out(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    far_session *s = start_full(&r, &p, URI_TWO, true);
    hook_on(s->client.ep);
    hook.ops.post = post_takeover;
    takes = (typeof(takes)){.probe = &p, .unknown = true};
    assert_int_equal(get(&r, s), FAR_UNREACHABLE);
    assert_true(takes.met && recoveries.calls == 0);
    hook_off();
    puppet_no_strays(
        &s->client); /* long ago: the work waits until nothing of its own can arrive late */
    assert_int_equal(get(&r, s), FAR_OK);
    assert_true(s->client.slot == 1 && recoveries.calls == 1 && recoveries.registered);
    assert_false(journal_says(&p, &r.pool->pool, 1));
    far_session_close(s);
    end(&r, &p);
}

/* Its lease lapses in the middle of its work, and nobody is there to notice. */
static void a_client_that_lapsed_completes_its_own_work(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    start(&r, &p, "mem:?size=16m&clients=1&" LEASE);
    struct client *c = &r.session->client;
    recoveries = (typeof(recoveries)){.rc = FAR_OK, .registered = true};
    r.pool->pool.recover = note_recovery;
    uint64_t old = c->incarnation;
    journal_plant(&p, &r.pool->pool, c->slot, (struct journal_subject){.what = 1}, WORKING);
    puppet_inherit(c); /* an operation that lapsed has left it */
    puppet_lapse(c);
    assert_int_equal(get(&r, r.session), FAR_OK);
    assert_true(c->incarnation != old && recoveries.calls == 1 && recoveries.registered);
    assert_false(journal_says(&p, &r.pool->pool, c->slot));
    assert_int_equal(get(&r, r.session), FAR_OK);
    assert_int_equal(recoveries.calls, 1);
    end(&r, &p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dead_clients_work_does_not_lock_others_out),
        cmocka_unit_test(a_slot_without_work_is_taken_first),
        cmocka_unit_test(a_session_that_registers_again_takes_work_over_too),
        cmocka_unit_test(work_that_cannot_be_completed_stays_in_the_slot),
        cmocka_unit_test(work_is_taken_over_from_one_that_took_it_over),
        cmocka_unit_test(of_several_that_want_the_slot_one_gets_it),
        cmocka_unit_test(a_takeover_of_unknown_outcome_is_found_out),
        cmocka_unit_test(a_client_that_lapsed_completes_its_own_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
