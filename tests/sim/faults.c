/* Each kind of fault occurs, has the effect it should have, and occurs only when it is allowed. */
#include "sim/rig.h"

#define SEEDS 10000u
#define AT    256u
#define WORDS 8u

static const uint64_t ones[WORDS] = {1, 1, 1, 1, 1, 1, 1, 1};

/* What happened over all seeds of a test. */
static struct {
    unsigned runs, none, half, all;    /* of a WRITE's words, in memory at the end     */
    unsigned ok, unknown, unreachable; /* statuses                                     */
    unsigned returned;                 /* clients that saw their request end           */
    uint64_t longest;                  /* nanoseconds that a request took              */
    uint64_t clock_min, clock_max;     /* nanoseconds of a client's clock in a second  */
    unsigned set_at_error, set_later;  /* words of a WRITE that failed, then and later */
    struct sim_counts counts;
} saw;

static unsigned words_set(void)
{
    unsigned set = 0;
    for (unsigned i = 0; i < WORDS; i++)
        set += rig_word(0, AT + 8 * i) == 1;
    return set;
}

static void tally_memory(void)
{
    unsigned set = words_set();
    saw.set_later += saw.set_at_error < set;
    saw.set_at_error = WORDS;
    saw.none += set == 0;
    saw.all += set == WORDS;
    saw.half += set != 0 && set != WORDS;
}

static void write_words(void *arg)
{
    (void)arg;
    struct fab_ep *ep = rig_ep();
    uint64_t begin = sim_now(rig.sim);
    struct fab_verb v = rig_write(0, AT, (void *)(uintptr_t)ones, sizeof ones);
    int rc = rig_flush(ep, &v, 1);
    if (!sim_unwinding(rig.sim)) {
        saw.returned++;
        saw.ok += rc == FAR_OK;
        saw.unknown += rc == FAR_UNKNOWN;
        saw.set_at_error = rc == FAR_UNKNOWN ? words_set() : WORDS;
        saw.unreachable += rc == FAR_UNREACHABLE;
        if (sim_now(rig.sim) - begin > saw.longest)
            saw.longest = sim_now(rig.sim) - begin;
    } else {
        assert_int_equal(rc, FAR_UNREACHABLE);
    }
    ep->ops->ep_close(ep);
}

static void run_seeds(unsigned adversity, unsigned clients, void (*fn)(void *arg))
{
    memset(&saw, 0, sizeof saw);
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        struct sim_settings s = rig_settings(SIM_IB, adversity, clients);
        s.nodes = 1;
        tape_from_seed(&rig.tape, seed, false);
        assert_int_equal(sim_begin(rig.sim, &s, &rig.tape), FAR_OK);
        for (unsigned i = 0; i < clients; i++)
            assert_int_equal(sim_start(rig.sim, i, fn, NULL), FAR_OK);
        assert_int_equal(sim_run(rig.sim, UINT32_MAX), SIM_FINISHED);
        saw.runs++;
        tally_memory();
        for (unsigned i = 0; i < SIM_ADVERSITY_COUNT; i++)
            saw.counts.happened[i] += sim_counts(rig.sim)->happened[i];
        sim_end(rig.sim);
    }
}

static void without_faults_nothing_goes_wrong(void **state)
{
    (void)state;
    run_seeds(SIM_ALL & ~(unsigned)SIM_FAULTS, 1, write_words);
    assert_int_equal(saw.ok, saw.runs);
    assert_int_equal(saw.all, saw.runs);
    for (unsigned i = 0; i < SIM_ADVERSITY_COUNT; i++)
        assert_int_equal(saw.counts.happened[i], 0);
}

/* A crashed client never learns how its request ended. */
static void a_crashed_clients_request_is_done_half_done_or_not_done(void **state)
{
    (void)state;
    run_seeds(SIM_CRASH | SIM_TORN | SIM_INTERLEAVE | SIM_DELAY, 1, write_words);
    assert_true(saw.counts.happened[SIM_NUMBER_CRASH] > 0);
    assert_int_equal(saw.returned + saw.counts.happened[SIM_NUMBER_CRASH], saw.runs);
    assert_int_equal(saw.ok, saw.returned);
    assert_true(saw.none > 0);
    assert_true(saw.half > 0);
    assert_true(saw.all > saw.returned); /* some were done nevertheless */
}

/* Clients that do not crash go on. */
static void others_survive_a_crash(void **state)
{
    (void)state;
    run_seeds(SIM_CRASH | SIM_DELAY | SIM_INTERLEAVE, 4, write_words);
    assert_true(saw.counts.happened[SIM_NUMBER_CRASH] > 0);
    assert_int_equal(saw.returned + saw.counts.happened[SIM_NUMBER_CRASH], 4 * saw.runs);
}

static void a_request_that_fails_may_be_done_half_done_or_land_later(void **state)
{
    (void)state;
    run_seeds(SIM_ERROR | SIM_TORN | SIM_INTERLEAVE | SIM_DELAY, 1, write_words);
    assert_int_equal(saw.unknown, saw.counts.happened[SIM_NUMBER_ERROR]);
    assert_true(saw.unknown > 0);
    assert_int_equal(saw.ok + saw.unknown, saw.runs);
    assert_true(saw.none > 0);
    assert_true(saw.half > 0);
    assert_true(saw.all > saw.ok);
    assert_true(saw.set_later > 0);
}

static void a_pause_may_be_longer_than_any_lease(void **state)
{
    (void)state;
    run_seeds(SIM_DELAY | SIM_INTERLEAVE, 1, write_words);
    assert_true(saw.longest < SIM_PAUSE_NS);
    run_seeds(SIM_PAUSE | SIM_DELAY | SIM_INTERLEAVE, 1, write_words);
    assert_true(saw.counts.happened[SIM_NUMBER_PAUSE] > 0);
    assert_true(saw.longest > SIM_PAUSE_NS);
    assert_int_equal(saw.ok, saw.runs);
    assert_int_equal(saw.all, saw.runs);
}

/* A verb of a paused client may land while it sleeps, or after it wakes. */
static bool slept;
static uint64_t seen_meanwhile, woke_at;

static void sleep_in_a_write(void *arg)
{
    write_words(arg);
    woke_at = sim_now(rig.sim);
    slept = true;
}

static void look_now_and_then(void *arg)
{
    (void)arg;
    struct fab_ep *ep = rig_ep();
    uint64_t word = 0;
    for (unsigned i = 0; i < 60 && !slept; i++) {
        struct fab_verb v = rig_read(0, AT, &word, 8);
        assert_int_equal(rig_flush(ep, &v, 1), FAR_OK);
        ep->ops->pause(ep, 1000000000u);
    }
    seen_meanwhile = slept ? 2 : word;
    ep->ops->ep_close(ep);
}

static void verbs_of_a_paused_client_land_meanwhile_or_later(void **state)
{
    (void)state;
    unsigned meanwhile = 0, later = 0;
    for (unsigned seed = 1; seed <= 3 * SEEDS; seed++) {
        struct sim_settings s = rig_settings(SIM_IB, SIM_PAUSE | SIM_DELAY | SIM_INTERLEAVE, 2);
        s.faults_max = 1;
        slept = false;
        tape_from_seed(&rig.tape, seed, false);
        assert_int_equal(sim_begin(rig.sim, &s, &rig.tape), FAR_OK);
        assert_int_equal(sim_start(rig.sim, 0, sleep_in_a_write, NULL), FAR_OK);
        assert_int_equal(sim_start(rig.sim, 1, look_now_and_then, NULL), FAR_OK);
        assert_int_equal(sim_run(rig.sim, UINT32_MAX), SIM_FINISHED);
        sim_end(rig.sim);
        assert_int_equal(rig_word(0, AT), 1);
        /* it looked for a minute, and the other was still paused */
        meanwhile += seen_meanwhile == 1;
        later += seen_meanwhile == 0;
    }
    assert_true(meanwhile > 0);
    assert_true(later > 0);
}

static void keep_writing(void *arg)
{
    (void)arg;
    struct fab_ep *ep = rig_ep();
    for (unsigned i = 0; i < 20; i++) {
        struct fab_verb v = rig_write(0, AT, (void *)(uintptr_t)ones, sizeof ones);
        int rc = rig_flush(ep, &v, 1);
        saw.ok += rc == FAR_OK;
        saw.unreachable += rc == FAR_UNREACHABLE;
        saw.unknown += rc == FAR_UNKNOWN;
    }
    ep->ops->ep_close(ep);
}

/* No client waits for ever. */
static void requests_to_a_lost_node_end_with_an_error(void **state)
{
    (void)state;
    run_seeds(SIM_NODE | SIM_DELAY | SIM_INTERLEAVE, 2, keep_writing);
    assert_true(saw.counts.happened[SIM_NUMBER_NODE] > 0);
    assert_true(saw.unreachable > 0);
    assert_int_equal(saw.ok + saw.unreachable + saw.unknown, 40 * saw.runs);
}

/* Its memory is as it was. */
static void a_lost_node_is_back_when_the_faults_stop(void **state)
{
    (void)state;
    unsigned healed = 0;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        memset(&saw, 0, sizeof saw);
        struct sim_settings s = rig_settings(SIM_IB, SIM_NODE | SIM_DELAY, 1);
        s.nodes = 1;
        tape_from_seed(&rig.tape, seed, false);
        assert_int_equal(sim_begin(rig.sim, &s, &rig.tape), FAR_OK);
        assert_int_equal(sim_start(rig.sim, 0, keep_writing, NULL), FAR_OK);
        bool limit = sim_run(rig.sim, 19) == SIM_LIMIT;
        bool lost = saw.unreachable > 0;
        sim_stop_faults(rig.sim);
        unsigned before = saw.ok;
        assert_int_equal(sim_run(rig.sim, UINT32_MAX), SIM_FINISHED);
        healed += limit && lost && saw.ok > before;
        sim_end(rig.sim);
    }
    assert_true(healed > 0);
}

static void look_at_the_clock(void *arg)
{
    (void)arg;
    struct fab_ep *ep = rig_ep();
    uint64_t begin = ep->ops->now(ep), real = sim_now(rig.sim);
    ep->ops->pause(ep, 1000000000u);
    uint64_t mine = ep->ops->now(ep) - begin, passed = sim_now(rig.sim) - real;
    mine = mine * 1000 / (passed / 1000000); /* nanoseconds of its own per second */
    if (saw.clock_min == 0 || mine < saw.clock_min)
        saw.clock_min = mine;
    if (mine > saw.clock_max)
        saw.clock_max = mine;
    ep->ops->ep_close(ep);
}

static void clocks_drift_within_the_bound(void **state)
{
    (void)state;
    const uint64_t second = 1000000000u, bound = second / 1000000 * SIM_DRIFT_PPM;
    run_seeds(SIM_DELAY, 3, look_at_the_clock);
    assert_in_range(saw.clock_min, second - 2000, second + 2000);
    assert_in_range(saw.clock_max, second - 2000, second + 2000);
    run_seeds(SIM_DELAY | SIM_DRIFT, 3, look_at_the_clock);
    assert_in_range(saw.clock_min, second - bound - 2000, second - bound / 2);
    assert_in_range(saw.clock_max, second + bound / 2, second + bound + 2000);
}

static void an_enumeration_tries_faults_at_every_point(void **state)
{
    (void)state;
    const unsigned adversity[] = {SIM_CRASH | SIM_INTERLEAVE, SIM_ERROR | SIM_INTERLEAVE};
    for (unsigned i = 0; i < 2; i++) {
        struct sim_settings s = rig_settings(SIM_IB, adversity[i], 1);
        s.by_choice = true;
        s.faults_max = 1;
        memset(&saw, 0, sizeof saw);
        tape_enumerate(&rig.tape, SIZE_MAX, SIZE_MAX);
        do {
            assert_int_equal(sim_begin(rig.sim, &s, &rig.tape), FAR_OK);
            assert_int_equal(sim_start(rig.sim, 0, write_words, NULL), FAR_OK);
            assert_int_equal(sim_run(rig.sim, UINT32_MAX), SIM_FINISHED);
            tally_memory();
            saw.runs++;
            sim_end(rig.sim);
        } while (tape_next(&rig.tape));
        assert_int_equal(saw.ok, 1);
        assert_int_equal(saw.none, 1);
        assert_int_equal(saw.unknown, i == 0 ? 0 : saw.runs - 1);
    }
}

/* ---- processes ------------------------------------------------------------------------------- */

static struct sim_settings machine(unsigned clients)
{
    struct sim_settings s =
        rig_settings(SIM_IB, SIM_TORN | SIM_INTERLEAVE | SIM_DELAY | SIM_PAUSE, clients);
    s.nodes = 1;
    s.no_fence = s.lives = s.stops = true;
    return s;
}

/* A client stops when a part of its WRITE is placed, for longer than any lease. Then the rest is
 * placed. */
static void clients_stop_within_writes(void **state)
{
    (void)state;
    uint64_t stopped = 0;
    memset(&saw, 0, sizeof saw);
    for (unsigned seed = 1; seed <= 500; seed++) {
        struct sim_settings s = machine(1);
        tape_from_seed(&rig.tape, seed, false);
        assert_int_equal(sim_begin(rig.sim, &s, &rig.tape), FAR_OK);
        assert_int_equal(sim_start(rig.sim, 0, write_words, NULL), FAR_OK);
        assert_int_equal(sim_run(rig.sim, UINT32_MAX), SIM_FINISHED);
        assert_int_equal(words_set(), WORDS);
        stopped += sim_counts(rig.sim)->stopped;
        sim_end(rig.sim);
    }
    assert_true(stopped > 5 && stopped < 250);
    assert_true(saw.ok == 500 && saw.longest > SIM_PAUSE_NS);
}

static void live_for_a_while(void *arg)
{
    (void)arg;
    struct fab_ep *ep = rig_ep();
    ep->ops->identify(ep, 7);
    sim_sleep(rig.sim, 1000000);
    ep->ops->ep_close(ep);
}

static void ask_whether_it_lives(void *arg)
{
    (void)arg;
    struct fab_ep *ep = rig_ep();
    sim_sleep(rig.sim, 500000);
    assert_int_equal(ep->ops->life(ep, 7, 0), FAB_ALIVE);
    sim_sleep(rig.sim, 1000000);
    assert_int_equal(ep->ops->life(ep, 7, 0), FAB_LIFE_UNKNOWN); /* as if it were elsewhere */
    assert_int_equal(ep->ops->life(ep, 7, ep->ops->witness(ep, 7)), FAB_DEAD);
    ep->ops->ep_close(ep);
}

static void it_is_known_which_processes_live(void **state)
{
    (void)state;
    struct sim_settings s = machine(2);
    tape_from_record(&rig.tape, NULL, 0);
    assert_int_equal(sim_begin(rig.sim, &s, &rig.tape), FAR_OK);
    assert_int_equal(sim_start(rig.sim, 0, live_for_a_while, NULL), FAR_OK);
    assert_int_equal(sim_start(rig.sim, 1, ask_whether_it_lives, NULL), FAR_OK);
    assert_int_equal(sim_run(rig.sim, UINT32_MAX), SIM_FINISHED);
    sim_end(rig.sim);
    s.lives = false;
    assert_int_equal(sim_begin(rig.sim, &s, &rig.tape), FAR_OK);
    assert_null(sim_fab(rig.sim)->ops->life);
    sim_end(rig.sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_faults_nothing_goes_wrong),
        cmocka_unit_test(a_crashed_clients_request_is_done_half_done_or_not_done),
        cmocka_unit_test(others_survive_a_crash),
        cmocka_unit_test(a_request_that_fails_may_be_done_half_done_or_land_later),
        cmocka_unit_test(a_pause_may_be_longer_than_any_lease),
        cmocka_unit_test(verbs_of_a_paused_client_land_meanwhile_or_later),
        cmocka_unit_test(requests_to_a_lost_node_end_with_an_error),
        cmocka_unit_test(a_lost_node_is_back_when_the_faults_stop),
        cmocka_unit_test(clocks_drift_within_the_bound),
        cmocka_unit_test(an_enumeration_tries_faults_at_every_point),
        cmocka_unit_test(clients_stop_within_writes),
        cmocka_unit_test(it_is_known_which_processes_live),
    };
    return cmocka_run_group_tests(tests, rig_set_up, rig_tear_down);
}
