/* Registrations that break off in the middle, and what a client may say of itself afterwards. */
#include "support/pool_rig.h"
#include "support/puppet.h"
#include "support/register_rig.h"

/* A slot that was freed still says NO_EPOCH, if its owner was parked. A client that takes it and
 * then cannot say more has no certificate: nobody would wait for its operations. */
static void a_join_that_breaks_off_is_no_registration(void **state)
{
    (void)state;
    for (unsigned pass = 0; pass < 2; pass++) { /* before the epoch was read, and after */
        struct store_rig r;
        struct probe p;
        start(&r, &p, "mem:?size=16m&clients=8&" LEASE);
        far_session *idle = join(&r), *s = join(&r);
        assert_int_equal(client_park(&idle->op), FAR_OK);
        shut_out(&p, s);
        shut_out(&p, idle);
        puppet_die(&idle->client); /* so that closing it does nothing */
        puppet_renounce(&idle->client);

        hook_on(s->client.ep);
        hook.ops.post = post_until_it_breaks;
        breaks = (typeof(breaks)){.pass = pass};
        assert_int_equal(get(&r, s), FAR_UNREACHABLE);
        assert_true(breaks.claimed);
        unsigned slot = s->client.slot;
        breaks.pass = 2; /* it can take its slot once more, but not announce itself */
        assert_int_equal(get(&r, s), FAR_UNREACHABLE);
        breaks.claimed = false;
        for (unsigned i = 0; i < 20; i++) {
            assert_int_equal(get(&r, s), FAR_OK);
            assert_true(probe_get(&p, 0, PROBE_SLOT(s->client.slot, epoch)) != NO_EPOCH);
        }
        assert_int_equal(s->client.slot, slot); /* it leaves no slot behind */
        hook_off();
        far_session_close(s);
        far_session_close(idle);
        end(&r, &p);
    }
}

static int post_until_shut_out(struct fab_ep *ep, struct fab_req *req)
{
    if (breaks.claimed) {
        breaks.claimed = false;
        breaks.pass--;
        return FAR_FENCED;
    }
    breaks.claimed = breaks.pass > 0 && claims_slot(&req->verbs[0]);
    return hook.real->post(ep, req);
}

/* It stood still behind its claim of a slot, so others took it for dead. */
static void a_client_that_is_shut_out_while_it_registers_begins_again(void **state)
{
    struct pool_rig r;
    struct fab_ep *ep;
    struct client c;

    (void)state;
    for (unsigned times = 3; times < 5; times++) {
        pool_rig_open(&r, URI);
        assert_int_equal(r.fab->ops->ep_open(r.fab, &ep), FAR_OK);
        hook_on(ep);
        hook.ops.post = post_until_shut_out;
        breaks = (typeof(breaks)){.pass = times};
        int rc = client_open(&r.pool, ep, 2, &c);
        assert_int_equal(rc, times == 3 ? FAR_OK : FAR_FENCED);
        hook_off();
        if (rc == FAR_OK)
            client_close(&c);
        ep->ops->ep_close(ep);
        pool_rig_close(&r);
    }
}

/* A parked client that tried to announce itself, and failed, has no longer lease than before. */
static void an_announcement_that_breaks_off_does_not_extend_the_lease(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    start(&r, &p, "mem:?size=16m&clients=8&" LEASE);
    far_session *s = join(&r);
    assert_int_equal(client_park(&s->op), FAR_OK);
    uint64_t deadline = puppet_deadline(&s->client);
    hook_on(s->client.ep);
    hook_clock();
    hook.clock += 1000000000;
    hook.ops.post = post_until_it_breaks;
    breaks = (typeof(breaks)){.claimed = true, .pass = 1};
    assert_int_equal(get(&r, s), FAR_UNREACHABLE);
    assert_true(puppet_deadline(&s->client) == deadline && puppet_parked(&s->client));
    hook_off();
    assert_int_equal(get(&r, s), FAR_OK);
    far_session_close(s);
    end(&r, &p);
}

/* The registry is full when a client comes back, and later it is not. */
static void a_client_without_a_slot_gets_one_when_there_is_one(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    start(&r, &p, "mem:?size=16m&clients=2&" LEASE);
    far_session *s = join(&r);
    unsigned slot = s->client.slot;
    shut_out(&p, s);
    probe_set(&p, 0, PROBE_SLOT(slot, incarnation), 4711);
    s->client.slot = NO_SLOT; /* as after it has looked for dead clients in vain */
    assert_int_equal(get(&r, s), FAR_NO_CLIENT_SLOT);
    probe_set(&p, 0, PROBE_SLOT(slot, incarnation), 0);
    assert_int_equal(get(&r, s), FAR_OK);
    far_session_close(s);
    end(&r, &p);
}

/* All clients have certified the epoch, this one too. Then one of its requests fails, and it
 * must not certify more for a while. Its next announcement must not move the epoch on ahead of
 * its certificate: it would find itself left behind, and give up its registration. */
static void the_epoch_does_not_outrun_a_certificate_that_was_set_back(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    start(&r, &p, "mem:?size=16m&clients=8&" LEASE);
    struct client *c = &r.session->client;
    for (unsigned i = 0;
         i < 40 && (puppet_epoch_seen(c) < 2 || puppet_advances_from(c) != probe_epoch(&p)); i++)
        assert_int_equal(client_drive_epoch(&r.session->op), FAR_OK);
    uint64_t epoch = probe_epoch(&p), incarnation = c->incarnation;
    assert_true(puppet_advances_from(c) == epoch); /* the next announcement is to move it on */
    puppet_certify(c, puppet_advances_from(c) - 1);
    puppet_strays(c);
    assert_int_equal(client_drive_epoch(&r.session->op), FAR_OK);
    assert_true(probe_epoch(&p) == epoch);
    assert_false(puppet_lost_lease(c));
    puppet_no_strays(c);
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(client_drive_epoch(&r.session->op), FAR_OK);
    assert_true(probe_epoch(&p) > epoch && c->incarnation == incarnation);
    end(&r, &p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_join_that_breaks_off_is_no_registration),
        cmocka_unit_test(a_client_that_is_shut_out_while_it_registers_begins_again),
        cmocka_unit_test(an_announcement_that_breaks_off_does_not_extend_the_lease),
        cmocka_unit_test(a_client_without_a_slot_gets_one_when_there_is_one),
        cmocka_unit_test(the_epoch_does_not_outrun_a_certificate_that_was_set_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
