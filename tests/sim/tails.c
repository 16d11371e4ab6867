/*
 * What marks allow and forbid, by small programs of two clients on heads and tails.
 *
 * What is allowed must occur under some seed, and what is forbidden under none.
 */
#include "check/check.h"
#include "sim/rig.h"

#define X         64u
#define SEEDS     (4000u / RIG_SLOW)
#define LOOKS     6u
#define ADVERSITY (SIM_DELAY | SIM_REORDER | SIM_TORN | SIM_INTERLEAVE)

struct program {
    enum fab_mark mark; /* of what client 0 does to X, from 0 to 1 */
    bool writes;        /* by a WRITE; otherwise by a CAS          */
    enum fab_mark look; /* of client 1's READs of X                */
    bool loses_tail;    /* once client 1 has seen the 1; otherwise the head is lost */
};

static struct program now;
static uint64_t seen[LOOKS];
static bool completed; /* client 0's request, as clients know outside of the fabric */
static unsigned after; /* the first look that began after that */

static void change(void *arg)
{
    struct fab_ep *ep = rig_ep();
    uint64_t one = 1, old = 0;
    struct fab_verb v = now.writes ? rig_write(0, X, &one, 8) : rig_cas(0, X, 0, 1, &old);
    (void)arg;
    v.flags = (uint8_t)now.mark;
    completed = rig_flush(ep, &v, 1) == FAR_OK;
    ep->ops->ep_close(ep);
}

static void look(void *arg)
{
    struct fab_ep *ep = rig_ep();
    bool lost = false;
    (void)arg;
    after = LOOKS;
    for (unsigned i = 0; i < LOOKS; i++) {
        struct fab_verb v = rig_read(0, X, &seen[i], 8);
        v.flags = (uint8_t)now.look;
        if (completed && after == LOOKS)
            after = i;
        seen[i] = 0;
        (void)rig_flush(ep, &v, 1);
        if (seen[i] == 1 && !lost)
            sim_lose_half(rig.sim, 0, now.loses_tail);
        lost |= seen[i] == 1;
        sim_think(rig.sim);
    }
    ep->ops->ep_close(ep);
}

/* In how many seeds does it happen? */
static unsigned count(struct program program, bool (*happened)(void))
{
    unsigned n = 0;
    now = program;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        struct sim_settings s = rig_settings(SIM_IB, ADVERSITY, 2);
        s.tails = true;
        s.nodes = 1;
        tape_from_seed(&rig.tape, seed, false);
        completed = false;
        assert_int_equal(sim_begin(rig.sim, &s, &rig.tape), FAR_OK);
        assert_int_equal(sim_start(rig.sim, 0, change, NULL), FAR_OK);
        assert_int_equal(sim_start(rig.sim, 1, look, NULL), FAR_OK);
        assert_int_equal(sim_run(rig.sim, UINT32_MAX), SIM_FINISHED);
        sim_end(rig.sim);
        n += happened();
    }
    return n;
}

/* What was seen is not there any more. */
static bool unseen(void)
{
    bool once = false;
    for (unsigned i = 0; i < LOOKS; i++) {
        if (once && seen[i] == 0)
            return true;
        once |= seen[i] == 1;
    }
    return false;
}

/* What was acknowledged is not there. */
static bool missing(void)
{
    for (unsigned i = after; i < LOOKS; i++)
        if (seen[i] == 0)
            return true;
    return false;
}

static bool shown(void)
{
    for (unsigned i = 0; i < LOOKS; i++)
        if (seen[i] == 1)
            return true;
    return false;
}

static void what_is_published_or_placed_is_never_missing(void **state)
{
    (void)state;
    for (unsigned tail = 0; tail < 2; tail++) {
        const struct program published = {.mark = MARK_PUBLISH, .loses_tail = tail};
        const struct program placed = {.mark = MARK_PLACE, .writes = true, .loses_tail = tail};
        const struct program early = {.mark = MARK_EARLY, .writes = true, .loses_tail = tail};
        assert_int_equal(count(published, missing), 0);
        assert_int_equal(count(published, unseen), 0);
        assert_int_equal(count(placed, missing), 0);
        assert_int_equal(count(placed, unseen), 0);
        assert_int_equal(count(early, missing), 0);
        assert_int_equal(count(early, unseen) > 0, tail); /* so nobody may act on it */
        assert_true(count(published, shown) > SEEDS / 2 && count(placed, shown) > SEEDS / 2);
    }
}

static void a_hint_is_for_readers_of_the_head_and_gets_lost_with_it(void **state)
{
    (void)state;
    const struct program head = {.mark = MARK_HINT, .look = MARK_HEAD}, tail = {.mark = MARK_HINT};
    const struct program kept = {.mark = MARK_HINT, .look = MARK_HEAD, .loses_tail = true};
    assert_true(count(head, shown) > SEEDS / 2 && count(head, unseen) > SEEDS / 2);
    assert_int_equal(count(tail, shown), 0);
    assert_int_equal(count(kept, unseen), 0);
}

/* Its owner lives. Readers of the tail do not see it as long as both are there. */
static void a_lock_goes_along_with_its_owner(void **state)
{
    (void)state;
    const struct program head = {.mark = MARK_LOCK, .look = MARK_HEAD}, tail = {.mark = MARK_LOCK};
    assert_true(count(head, shown) > SEEDS / 2);
    assert_int_equal(count(head, unseen), 0);
    assert_int_equal(count(tail, shown), 0);
}

/* With a wrong mark of the epoch of SHARD's resize nothing is lost, but no table grows. */
static void tables_grow(void **state)
{
    struct check_settings s = {.index = "shard",
                               .clients = 3,
                               .keys = 3,
                               .ops = 25,
                               .adversity = ADVERSITY,
                               .profile = SIM_IB,
                               .tails = true};
    struct check *c = check_new();
    struct check_result r;
    unsigned alone = 0, grown = 0; /* runs with one table; those in which it grew */
    (void)state;
    assert_non_null(c);
    for (unsigned seed = 1; seed <= 200; seed++) {
        rig_expect_passed(c, &s, seed, &r);
        alone += r.coverage.tables == 1;
        grown += r.coverage.tables == 1 && r.coverage.restructured > 0;
    }
    check_free(c);
    assert_true(alone > 0 && 3 * grown > alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_published_or_placed_is_never_missing),
        cmocka_unit_test(a_hint_is_for_readers_of_the_head_and_gets_lost_with_it),
        cmocka_unit_test(a_lock_goes_along_with_its_owner),
        cmocka_unit_test(tables_grow),
    };
    return cmocka_run_group_tests(tests, rig_set_up, rig_tear_down);
}
