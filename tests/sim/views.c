/*
 * Views on the simulated fabric (NIC-N7): one client works in view 1 until a node refuses it,
 * another has view 1 refused. Nothing of view 1 takes effect once the fence has returned.
 */
#include "sim/rig.h"

#include "fabric/batch.h"
#include "fabric/superblock_layout.h"

#define WORD            128u
#define SEEDS           1000u
#define WITHIN_CONTRACT (SIM_DELAY | SIM_REORDER | SIM_TORN | SIM_INTERLEAVE)
#define REQUESTS_MAX    64u

static struct {
    unsigned nodes;
    uint64_t done, unknown, refused; /* requests of the one in view 1          */
    uint32_t named;                  /* the view that the node named           */
    bool fenced;                     /* fence_view() has returned FAR_OK       */
    uint64_t begun;                  /* verbs of view 1 that took effect then  */
    uint64_t pending, raised;        /* answers FAB_PENDING; and with the word */
} now;

static struct {
    uint64_t refused, unknown, pending, raised;
} seen;

/* Adds one to a word of each node, and writes a long one. */
static void work_in_view_1(void *arg)
{
    (void)arg;
    struct fab_ep *ep = rig_ep();
    uint64_t old[2], many[32] = {0};
    ep->view = 1;
    for (unsigned i = 0; i < REQUESTS_MAX && now.refused == 0; i++) {
        struct fab_verb v[3] = {rig_faa(0, WORD, 1, &old[0]), rig_write(0, 1024, many, sizeof many),
                                rig_faa(1, WORD, 1, &old[1])};
        int rc = rig_flush(ep, v, now.nodes + 1);
        if (rc == FAR_UNREACHABLE)
            break;
        now.done += rc == FAR_OK;
        now.refused += rc == FAR_FENCED;
        now.unknown += rc == FAR_UNKNOWN;
    }
    now.named = ep->view_refused;
    ep->ops->ep_close(ep);
}

static void have_view_1_refused(void *arg)
{
    (void)arg;
    struct fab_ep *ep = rig_ep();
    int rc;
    for (unsigned i = 0; i < 5; i++)
        sim_think(rig.sim);
    while ((rc = ep->ops->fence_view(ep, 0, 2)) == FAB_PENDING) {
        now.pending++;
        now.raised += rig_word(0, NODE_VIEW_OFF) == 2;
        sim_sleep(rig.sim, 1000);
    }
    now.fenced = rc == FAR_OK;
    if (rc == FAR_OK)
        assert_int_equal(ep->ops->fence_view(ep, 0, 2) < 0, 0); /* once more: never an error */
    ep->ops->ep_close(ep);
}

static void watch(void *arg, unsigned client, uint64_t identity, const struct fab_verb *verb)
{
    (void)arg;
    (void)identity;
    now.begun += client == 0 && verb->node == 0 && now.fenced;
}

static void run_one(struct sim_settings s, unsigned nodes, void (*work)(void *arg))
{
    memset(&now, 0, sizeof now);
    now.nodes = nodes;
    s.direct_verbs_max = 0;
    assert_int_equal(sim_begin(rig.sim, &s, &rig.tape), FAR_OK);
    sim_watch(rig.sim, watch, NULL);
    assert_int_equal(sim_start(rig.sim, 0, work, NULL), FAR_OK);
    assert_int_equal(sim_start(rig.sim, 1, have_view_1_refused, NULL), FAR_OK);
    assert_int_equal(sim_run(rig.sim, UINT32_MAX), SIM_FINISHED);
    sim_end(rig.sim);
    sim_watch(rig.sim, NULL, NULL);
    seen.refused += now.refused;
    seen.unknown += now.unknown;
    seen.pending += now.pending;
    seen.raised += now.raised;
}

static void run(struct sim_settings s, unsigned nodes)
{
    run_one(s, nodes, work_in_view_1);
    assert_int_equal(now.begun, 0);
}

static void run_seeds(enum sim_profile profile, unsigned adversity, unsigned nodes)
{
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        tape_from_seed(&rig.tape, seed, false);
        run(rig_settings(profile, adversity, 2), nodes);
        uint64_t count = rig_word(0, WORD);
        assert_in_range(count, now.done, now.done + now.unknown);
        if (now.refused > 0)
            assert_int_equal(now.named, 2);
    }
}

static void a_refused_request_has_no_effect(void **state)
{
    (void)state;
    for (unsigned profile = 0; profile < SIM_PROFILES; profile++) {
        memset(&seen, 0, sizeof seen);
        run_seeds(profile, WITHIN_CONTRACT, 1);
        assert_true(seen.refused > SEEDS / 2);
        assert_int_equal(seen.unknown, 0);
        assert_true(seen.pending > SEEDS / 2);
        assert_true(seen.raised > SEEDS / 4); /* the word, before the answer */
        run_seeds(profile, SIM_DELAY, 1);     /* requests in one event */
    }
}

/* What has happened on another node is not known, but the node that refuses has nothing of it. */
static void a_request_to_two_nodes_is_refused_by_one(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof seen);
    run_seeds(SIM_IB, WITHIN_CONTRACT, 2); /* the other node always does its part */
    assert_true(seen.refused == 0 && seen.unknown > 0);
    run_seeds(SIM_IB, WITHIN_CONTRACT | SIM_ERROR, 2);
    assert_true(seen.refused > 0);
}

static struct fab_ep *learner;
static uint32_t learner_view; /* in the end */
static int learning;          /* how it ends */

static int learn(const struct batch_policy *policy)
{
    (void)policy;
    if (learning == FAR_OK)
        learner->view = learner->view_refused;
    return learning;
}

static void note_failure(const struct batch_policy *policy)
{
    (void)policy;
}

/* Adds one to a word of each node, by batches, until it has learned of view 2. */
static void work_until_view_2(void *arg)
{
    static const struct batch_policy policy = {.learn = learn, .failed = note_failure};
    struct batch b;
    struct cost cost = {0};
    uint64_t old[2];

    (void)arg;
    learner = rig_ep();
    learner->view = 1;
    batch_init(&b, learner, &cost);
    b.policy = &policy;
    for (unsigned i = 0; i < REQUESTS_MAX && learner->view == 1 && now.refused == 0; i++) {
        for (unsigned n = 0; n < now.nodes; n++)
            batch_faa(&b, MARK_PUBLISH, gaddr_make(n, 0), WORD, 1, &old[n]);
        int rc = batch_flush(&b);
        now.done += rc == FAR_OK;
        now.refused += rc != FAR_OK && rc != FAR_UNKNOWN;
        now.unknown += rc == FAR_UNKNOWN;
    }
    learner_view = learner->view;
    learner->ops->ep_close(learner);
}

/* Whether it can learn the new view or not: each batch that ended is there once, and others not. */
static void batches_that_meet_a_new_view_are_done_once(void **state)
{
    (void)state;
    for (unsigned fails = 0; fails < 2; fails++) {
        unsigned learned = 0, done_then = 0;
        learning = fails ? FAR_UNREACHABLE : FAR_OK;
        memset(&seen, 0, sizeof seen);
        for (unsigned seed = 1; seed <= SEEDS; seed++) {
            tape_from_seed(&rig.tape, seed, false);
            run_one(rig_settings(SIM_IB, WITHIN_CONTRACT | SIM_ERROR, 2), 2, work_until_view_2);
            for (unsigned n = 0; n < 2; n++)
                assert_in_range(rig_word(n, WORD), now.done, now.done + now.unknown);
            learned += learner_view == 2;
            done_then += learner_view == 2 && now.unknown == 0;
        }
        assert_int_equal(learned > 0, !fails);
        assert_int_equal(done_then > SEEDS / 8, !fails);
        assert_int_equal(seen.refused > 0, fails);
        assert_true(seen.unknown > 0);
    }
}

static void nothing_lands_behind_a_view_fence_whatever_fails(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof seen);
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        tape_from_seed(&rig.tape, seed, false);
        run(rig_settings(SIM_IB, WITHIN_CONTRACT | SIM_CRASH | SIM_PAUSE | SIM_ERROR, 2), 1);
    }
    assert_true(seen.unknown > 0 && seen.refused > 0);
}

/* ---- all schedules --------------------------------------------------------------------------- */

static uint64_t first, later;

static void add_once(void *arg)
{
    (void)arg;
    struct fab_ep *ep = rig_ep();
    uint64_t old;
    ep->view = 1;
    struct fab_verb v = rig_faa(0, WORD, 1, &old);
    now.refused += rig_flush(ep, &v, 1) == FAR_FENCED;
    ep->ops->ep_close(ep);
}

static void fence_and_read_twice(void *arg)
{
    (void)arg;
    struct fab_ep *ep = rig_ep();
    while (ep->ops->fence_view(ep, 0, 2) == FAB_PENDING)
        sim_sleep(rig.sim, 1000);
    struct fab_verb v = rig_read(0, WORD, &first, 8);
    assert_int_equal(rig_flush(ep, &v, 1), FAR_OK);
    v = rig_read(0, WORD, &later, 8);
    assert_int_equal(rig_flush(ep, &v, 1), FAR_OK);
    ep->ops->ep_close(ep);
}

static void in_every_schedule_it_is_done_before_or_never(void **state)
{
    (void)state;
    struct sim_settings s = rig_settings(SIM_IB, SIM_TORN | SIM_INTERLEAVE, 2);
    unsigned refused = 0, done = 0;
    s.by_choice = true;
    tape_enumerate(&rig.tape, SIZE_MAX, 6);
    do {
        memset(&now, 0, sizeof now);
        assert_int_equal(sim_begin(rig.sim, &s, &rig.tape), FAR_OK);
        assert_int_equal(sim_start(rig.sim, 0, add_once, NULL), FAR_OK);
        assert_int_equal(sim_start(rig.sim, 1, fence_and_read_twice, NULL), FAR_OK);
        (void)sim_run(rig.sim, 100);
        sim_end(rig.sim);
        assert_int_equal(first, later);
        assert_int_equal(first, 1 - now.refused);
        refused += now.refused != 0;
        done += now.refused == 0;
    } while (tape_next(&rig.tape));
    assert_true(refused > 0 && done > 0);
}

static void a_lower_view_changes_nothing(void **state)
{
    (void)state;
    struct sim_settings s = rig_settings(SIM_IB, 0, 1);
    uint64_t old;
    tape_from_seed(&rig.tape, 1, false);
    assert_int_equal(sim_begin(rig.sim, &s, &rig.tape), FAR_OK);
    struct fab_ep *ep = rig_ep();
    assert_int_equal(ep->ops->fence_view(ep, 1, 5), FAR_OK);
    assert_int_equal(ep->ops->fence_view(ep, 1, 4), FAR_OK);
    assert_int_equal(rig_word(1, NODE_VIEW_OFF), 5);
    struct fab_verb v = rig_faa(1, WORD, 1, &old);
    for (ep->view = 1; ep->view < 5; ep->view++)
        assert_int_equal(rig_flush(ep, &v, 1), FAR_FENCED);
    assert_int_equal(ep->view_refused, 5);
    assert_int_equal(rig_word(1, WORD), 0);
    assert_int_equal(rig_flush(ep, &v, 1), FAR_OK);
    ep->view = 0;
    assert_int_equal(rig_flush(ep, &v, 1), FAR_OK);
    assert_int_equal(rig_word(1, WORD), 2);
    ep->ops->ep_close(ep);
    sim_end(rig.sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refused_request_has_no_effect),
        cmocka_unit_test(a_request_to_two_nodes_is_refused_by_one),
        cmocka_unit_test(batches_that_meet_a_new_view_are_done_once),
        cmocka_unit_test(nothing_lands_behind_a_view_fence_whatever_fails),
        cmocka_unit_test(in_every_schedule_it_is_done_before_or_never),
        cmocka_unit_test(a_lower_view_changes_nothing),
    };
    return cmocka_run_group_tests(tests, rig_set_up, rig_tear_down);
}
