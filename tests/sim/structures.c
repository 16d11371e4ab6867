/* The structures of the harness that stand for an index: its journaled locks, and what is cached.
 * Each keeps the rule that its mutant breaks. */
#include "check/check_internal.h"
#include "sim/rig.h"
#include "support/hook.h"
#include "support/puppet.h"

#include <stdlib.h>

static struct check *c; /* a run that has a pool and no tables */
static const struct check_settings settings = {.index = "race", .profile = SIM_IB};

static int set_up(void **state)
{
    struct sim_settings sim = rig_settings(SIM_IB, 0, 1);
    if (rig_set_up(state) != 0 || !(c = calloc(1, sizeof *c)))
        return -1;
    tape_from_record(&rig.tape, NULL, 0);
    sim.node_bytes = 1 << 20;
    c->sim = rig.sim;
    c->tape = &rig.tape;
    c->set = &settings;
    c->plan = (struct plan){
        .knobs = pool_knobs_default, .nodes = 2, .locks = true, .caches = true, .versions = true};
    c->plan.knobs.growth_watch = &c->growth.watch; /* for check_of() */
    assert_int_equal(sim_begin(c->sim, &sim, c->tape), FAR_OK);
    assert_int_equal(store_open(sim_fab(c->sim), &c->plan.knobs, &c->pool), FAR_OK);
    assert_int_equal(far_session_open(c->pool, NULL, &c->session), FAR_OK);
    assert_int_equal(check_journal_set_up(c), FAR_OK);
    assert_int_equal(check_cache_set_up(c), FAR_OK);
    return 0;
}

static int tear_down(void **state)
{
    far_session_close(c->session);
    far_pool_close(c->pool);
    sim_end(c->sim);
    free(c);
    return rig_tear_down(state);
}

/* ---- journaled locks ------------------------------------------------------------------------- */

static unsigned verbs_done; /* of the request that locks, those that happen; 0: all of them */

static int stop_at_the_lock(struct fab_ep *ep, struct fab_req *req)
{
    bool locks = false;
    for (unsigned i = 0; i < req->count; i++)
        locks |=
            req->verbs[i].kind == FAB_CAS && req->verbs[i].off == gaddr_offset(c->journal.cells[0]);
    if (!locks || verbs_done == 0)
        return hook.real->post(ep, req);
    unsigned count = req->count;
    req->count = verbs_done < count ? verbs_done : count;
    verbs_done = verbs_done < count ? 0 : verbs_done;
    hook_run(ep, req);
    req->count = count;
    req->status = FAR_TIMEOUT;
    return FAR_OK;
}

/* A client takes the first lock, and dies after some verbs of that. Returns whether all had
 * happened. */
static bool die_at_the_lock(unsigned verbs)
{
    struct check_client me = {.check = c};
    assert_int_equal(far_session_open(c->pool, NULL, &me.session), FAR_OK);
    struct client dead = me.session->client;
    verbs_done = verbs;
    hook_on(me.session->client.ep);
    hook.ops.post = stop_at_the_lock;
    assert_int_not_equal(check_journal_try(c, &me), FAR_OK);
    hook_off();
    puppet_die(&me.session->client);
    far_session_close(me.session);
    assert_int_equal(puppet_recover(&c->session->op, dead.slot, dead.incarnation), FAR_OK);
    return verbs_done > 0;
}

static void a_lock_is_journaled_before_it_is_taken(void **state)
{
    unsigned verbs = 1;
    gaddr cell = c->journal.cells[0];

    (void)state;
    for (bool all = false; !all; verbs++) {
        all = die_at_the_lock(verbs);
        assert_true(rig_word(gaddr_node(cell), gaddr_offset(cell)) == 0);
    }
    assert_true(verbs > 3);
}

/* ---- what is cached -------------------------------------------------------------------------- */

/* CACHE-K4: the client that unlinked what the sweep frees may have died before it changed the
 * version. */
static void a_sweep_outdates_caches(void **state)
{
    gaddr root = c->cache.root; /* its first word is the version */
    uint64_t version = rig_word(gaddr_node(root), gaddr_offset(root));
    struct sweep_result swept;

    (void)state;
    assert_int_equal(pool_sweep(&c->session->op, &swept), FAR_OK);
    assert_true(rig_word(gaddr_node(root), gaddr_offset(root)) != version);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_lock_is_journaled_before_it_is_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_sweep_outdates_caches, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
