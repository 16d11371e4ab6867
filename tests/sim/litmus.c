/*
 * What each profile allows and forbids, by small programs of two clients.
 *
 * A program's clients note what they saw. An outcome is "weird" if it is impossible as long as the
 * verbs of each request take effect in posting order. A weird outcome that is allowed must occur
 * under some seed. One that is forbidden must not occur under any schedule (by enumeration), nor
 * under thousands of seeds with all delays.
 */
#include "sim/rig.h"

#define X               64u
#define Y               128u
#define SEEDS           (4000u / RIG_SLOW)
#define WITHIN_CONTRACT (SIM_DELAY | SIM_REORDER | SIM_TORN | SIM_INTERLEAVE)

struct litmus {
    unsigned profile;
    bool fence;
    uint64_t seen[4];
    bool completed; /* a signal between the clients, outside of the fabric */
    void (*client[2])(struct litmus *l, struct fab_ep *ep);
    bool (*weird)(const struct litmus *l);
};

static struct litmus now;

static void run_client(void *arg)
{
    struct fab_ep *ep = rig_ep();
    now.client[*(unsigned *)arg](&now, ep);
    ep->ops->ep_close(ep);
}

static bool run_litmus(const struct litmus *l, bool by_choice)
{
    static unsigned id[2] = {0, 1};
    struct sim_settings s = rig_settings(l->profile, WITHIN_CONTRACT, 2);
    s.by_choice = by_choice;
    now = *l;
    assert_int_equal(sim_begin(rig.sim, &s, &rig.tape), FAR_OK);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(sim_start(rig.sim, i, run_client, &id[i]), FAR_OK);
    assert_int_equal(sim_run(rig.sim, UINT32_MAX), SIM_FINISHED);
    sim_end(rig.sim);
    return l->weird(&now);
}

static bool happens(const struct litmus *l)
{
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        tape_from_seed(&rig.tape, seed, false);
        if (run_litmus(l, false))
            return true;
    }
    return false;
}

static bool can_happen(const struct litmus *l)
{
    bool weird = false;
    tape_enumerate(&rig.tape, SIZE_MAX, SIZE_MAX);
    do
        weird |= run_litmus(l, true);
    while (tape_next(&rig.tape));
    assert_false(rig.tape.cut);
    return weird;
}

static void expect(struct litmus l, enum sim_profile profile, bool fence, bool allowed)
{
    l.profile = profile;
    l.fence = fence;
    if (happens(&l) != allowed || can_happen(&l) != allowed)
        fail_msg("under %s%s the outcome %s", sim_profile_name(profile), fence ? ", fenced," : "",
                 allowed ? "did not occur, but is allowed" : "occurred, but is forbidden");
}

static struct fab_verb second(const struct litmus *l, struct fab_verb verb)
{
    return l->fence ? rig_fenced(verb) : verb;
}

/* ---- message passing: READ, then READ -------------------------------------------------------- */

static void write_data_then_flag(struct litmus *l, struct fab_ep *ep)
{
    (void)l;
    uint64_t one = 1;
    struct fab_verb v[] = {rig_write(0, X, &one, 8), rig_write(0, Y, &one, 8)};
    assert_int_equal(rig_flush(ep, v, 2), FAR_OK);
}

static void read_flag_then_data(struct litmus *l, struct fab_ep *ep)
{
    struct fab_verb v[] = {rig_read(0, Y, &l->seen[0], 8),
                           second(l, rig_read(0, X, &l->seen[1], 8))};
    assert_int_equal(rig_flush(ep, v, 2), FAR_OK);
}

static bool flag_without_data(const struct litmus *l)
{
    return l->seen[0] == 1 && l->seen[1] == 0;
}

static void only_ib_loose_reorders_two_reads(void **state)
{
    (void)state;
    const struct litmus l = {.client = {write_data_then_flag, read_flag_then_data},
                             .weird = flag_without_data};
    expect(l, SIM_SC, false, false);
    expect(l, SIM_IB, false, false);
    expect(l, SIM_IB_LOOSE, false, true);
    expect(l, SIM_IB_LOOSE, true, false);
}

/* ---- load buffering: READ, then WRITE -------------------------------------------------------- */

static void read_x_write_y(struct litmus *l, struct fab_ep *ep)
{
    uint64_t one = 1;
    struct fab_verb v[] = {rig_read(0, X, &l->seen[0], 8), second(l, rig_write(0, Y, &one, 8))};
    assert_int_equal(rig_flush(ep, v, 2), FAR_OK);
}

static void read_y_write_x(struct litmus *l, struct fab_ep *ep)
{
    uint64_t one = 1;
    struct fab_verb v[] = {rig_read(0, Y, &l->seen[1], 8), second(l, rig_write(0, X, &one, 8))};
    assert_int_equal(rig_flush(ep, v, 2), FAR_OK);
}

static bool both_one(const struct litmus *l)
{
    return l->seen[0] == 1 && l->seen[1] == 1;
}

static void a_write_after_a_read_needs_a_fence(void **state)
{
    (void)state;
    const struct litmus l = {.client = {read_x_write_y, read_y_write_x}, .weird = both_one};
    expect(l, SIM_SC, false, false);
    expect(l, SIM_IB, false, true);
    expect(l, SIM_IB, true, false);
    expect(l, SIM_IB_LOOSE, false, true);
    expect(l, SIM_IB_LOOSE, true, false);
}

/* ---- Dekker: atomic, then READ; WRITE, then READ --------------------------------------------- */

static void cas_x_read_y(struct litmus *l, struct fab_ep *ep)
{
    uint64_t old;
    struct fab_verb v[] = {rig_cas(0, X, 0, 1, &old), second(l, rig_read(0, Y, &l->seen[0], 8))};
    assert_int_equal(rig_flush(ep, v, 2), FAR_OK);
}

static void cas_y_read_x(struct litmus *l, struct fab_ep *ep)
{
    uint64_t old;
    struct fab_verb v[] = {rig_cas(0, Y, 0, 1, &old), second(l, rig_read(0, X, &l->seen[1], 8))};
    assert_int_equal(rig_flush(ep, v, 2), FAR_OK);
}

static bool both_zero(const struct litmus *l)
{
    return l->seen[0] == 0 && l->seen[1] == 0;
}

static void only_ib_loose_reorders_an_atomic_and_a_read(void **state)
{
    (void)state;
    const struct litmus l = {.client = {cas_x_read_y, cas_y_read_x}, .weird = both_zero};
    expect(l, SIM_SC, false, false);
    expect(l, SIM_IB, false, false);
    expect(l, SIM_IB_LOOSE, false, true);
    expect(l, SIM_IB_LOOSE, true, false);
}

static void write_x_read_y(struct litmus *l, struct fab_ep *ep)
{
    uint64_t one = 1;
    struct fab_verb v[] = {rig_write(0, X, &one, 8), rig_read(0, Y, &l->seen[0], 8)};
    assert_int_equal(rig_flush(ep, v, 2), FAR_OK);
}

static void write_y_read_x(struct litmus *l, struct fab_ep *ep)
{
    uint64_t one = 1;
    struct fab_verb v[] = {rig_write(0, Y, &one, 8), rig_read(0, X, &l->seen[1], 8)};
    assert_int_equal(rig_flush(ep, v, 2), FAR_OK);
}

static void a_read_stays_behind_a_write(void **state)
{
    (void)state;
    const struct litmus l = {.client = {write_x_read_y, write_y_read_x}, .weird = both_zero};
    for (unsigned profile = 0; profile < SIM_PROFILES; profile++)
        expect(l, profile, false, false);
}

/* ---- atomic, then atomic --------------------------------------------------------------------- */

static void add_x_add_y(struct litmus *l, struct fab_ep *ep)
{
    uint64_t old[2];
    struct fab_verb v[] = {rig_faa(0, X, 1, &old[0]), second(l, rig_faa(0, Y, 1, &old[1]))};
    assert_int_equal(rig_flush(ep, v, 2), FAR_OK);
}

static void read_y_read_x_apart(struct litmus *l, struct fab_ep *ep)
{
    struct fab_verb y = rig_read(0, Y, &l->seen[0], 8), x = rig_read(0, X, &l->seen[1], 8);
    assert_int_equal(rig_flush(ep, &y, 1), FAR_OK);
    assert_int_equal(rig_flush(ep, &x, 1), FAR_OK);
}

static void an_atomic_after_an_atomic_needs_a_fence(void **state)
{
    (void)state;
    const struct litmus l = {.client = {add_x_add_y, read_y_read_x_apart},
                             .weird = flag_without_data};
    expect(l, SIM_SC, false, false);
    expect(l, SIM_IB, false, true);
    expect(l, SIM_IB, true, false);
    expect(l, SIM_IB_LOOSE, false, true);
    expect(l, SIM_IB_LOOSE, true, false);
}

/* ---- two nodes ------------------------------------------------------------------------------- */

static void write_to_two_nodes(struct litmus *l, struct fab_ep *ep)
{
    uint64_t one = 1;
    struct fab_verb v[] = {rig_write(0, X, &one, 8), second(l, rig_write(1, Y, &one, 8))};
    assert_int_equal(rig_flush(ep, v, 2), FAR_OK);
}

static void read_two_nodes_apart(struct litmus *l, struct fab_ep *ep)
{
    struct fab_verb y = rig_read(1, Y, &l->seen[0], 8), x = rig_read(0, X, &l->seen[1], 8);
    assert_int_equal(rig_flush(ep, &y, 1), FAR_OK);
    assert_int_equal(rig_flush(ep, &x, 1), FAR_OK);
}

static void verbs_to_different_nodes_have_no_order(void **state)
{
    (void)state;
    const struct litmus l = {.client = {write_to_two_nodes, read_two_nodes_apart},
                             .weird = flag_without_data};
    expect(l, SIM_IB, false, true);
    expect(l, SIM_IB, true, true); /* a fence orders verbs of one node only */
}

/* ---- completion and visibility --------------------------------------------------------------- */

static void write_x_and_signal(struct litmus *l, struct fab_ep *ep)
{
    uint64_t one = 1;
    struct fab_verb v = rig_write(0, X, &one, 8);
    assert_int_equal(rig_flush(ep, &v, 1), FAR_OK);
    l->completed = true;
    v = rig_read(0, X, &l->seen[2], 8);
    assert_int_equal(rig_flush(ep, &v, 1), FAR_OK);
}

static void read_x_and_note_the_signal(struct litmus *l, struct fab_ep *ep)
{
    l->seen[1] = l->completed;
    struct fab_verb v = rig_read(0, X, &l->seen[0], 8);
    assert_int_equal(rig_flush(ep, &v, 1), FAR_OK);
}

static bool completed_and_not_visible(const struct litmus *l)
{
    return l->seen[1] == 1 && l->seen[0] == 0;
}

static bool not_visible_to_itself(const struct litmus *l)
{
    return l->seen[2] == 0;
}

static void only_ib_loose_completes_before_others_see_it(void **state)
{
    (void)state;
    struct litmus l = {.client = {write_x_and_signal, read_x_and_note_the_signal},
                       .weird = completed_and_not_visible};
    expect(l, SIM_SC, false, false);
    expect(l, SIM_IB, false, false);
    expect(l, SIM_IB_LOOSE, false, true);
    l.weird = not_visible_to_itself;
    expect(l, SIM_IB_LOOSE, false, false);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static void write_two_words(struct litmus *l, struct fab_ep *ep)
{
    (void)l;
    uint64_t data[2] = {0x1111111111111111u, 0x1111111111111111u};
    struct fab_verb v = rig_write(0, X, data, sizeof data);
    assert_int_equal(rig_flush(ep, &v, 1), FAR_OK);
}

static void read_two_words(struct litmus *l, struct fab_ep *ep)
{
    struct fab_verb v = rig_read(0, X, l->seen, 16);
    assert_int_equal(rig_flush(ep, &v, 1), FAR_OK);
}

static bool first_word_only(const struct litmus *l)
{
    return l->seen[0] != 0 && l->seen[1] == 0;
}

static bool second_word_only(const struct litmus *l)
{
    return l->seen[0] == 0 && l->seen[1] != 0;
}

static bool torn_word(const struct litmus *l)
{
    return (l->seen[0] != 0 && l->seen[0] != 0x1111111111111111u) ||
           (l->seen[1] != 0 && l->seen[1] != 0x1111111111111111u);
}

static void words_have_no_order_but_are_whole(void **state)
{
    (void)state;
    struct litmus l = {.client = {write_two_words, read_two_words}};
    bool (*const half[])(const struct litmus *) = {first_word_only, second_word_only};
    for (unsigned i = 0; i < 2; i++) {
        l.weird = half[i];
        expect(l, SIM_SC, false, false);
        expect(l, SIM_IB, false, true);
        expect(l, SIM_IB_LOOSE, false, true);
    }
    l.weird = torn_word;
    for (unsigned profile = 0; profile < SIM_PROFILES; profile++)
        expect(l, profile, false, false);
}

/* ---- atomics against atomics, and against WRITE ---------------------------------------------- */

static void add_to_x(struct litmus *l, struct fab_ep *ep)
{
    uint64_t old;
    (void)l;
    struct fab_verb v = rig_faa(0, X, 1, &old);
    assert_int_equal(rig_flush(ep, &v, 1), FAR_OK);
}

static void write_100_to_x(struct litmus *l, struct fab_ep *ep)
{
    uint64_t hundred = 100;
    (void)l;
    struct fab_verb v = rig_write(0, X, &hundred, 8);
    assert_int_equal(rig_flush(ep, &v, 1), FAR_OK);
}

static bool write_was_lost(const struct litmus *l)
{
    (void)l;
    return rig_word(0, X) == 1; /* neither 100 nor 101 */
}

static bool add_was_lost(const struct litmus *l)
{
    (void)l;
    return rig_word(0, X) != 2;
}

static void atomics_are_atomic_against_atomics_only(void **state)
{
    (void)state;
    struct litmus l = {.client = {add_to_x, write_100_to_x}, .weird = write_was_lost};
    expect(l, SIM_SC, false, false);
    expect(l, SIM_IB, false, true);
    l = (struct litmus){.client = {add_to_x, add_to_x}, .weird = add_was_lost};
    for (unsigned profile = 0; profile < SIM_PROFILES; profile++)
        expect(l, profile, false, false);
}

/* ---- without SIM_REORDER --------------------------------------------------------------------- */

static void without_reordering_nothing_weird_happens(void **state)
{
    (void)state;
    /* Even under the loosest profile. */
    static unsigned id[2] = {0, 1};
    const struct litmus l = {.client = {write_data_then_flag, read_flag_then_data},
                             .weird = flag_without_data};
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        struct sim_settings s =
            rig_settings(SIM_IB_LOOSE, SIM_DELAY | SIM_TORN | SIM_INTERLEAVE, 2);
        now = l;
        tape_from_seed(&rig.tape, seed, false);
        assert_int_equal(sim_begin(rig.sim, &s, &rig.tape), FAR_OK);
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(sim_start(rig.sim, i, run_client, &id[i]), FAR_OK);
        assert_int_equal(sim_run(rig.sim, UINT32_MAX), SIM_FINISHED);
        assert_int_equal(sim_counts(rig.sim)->reordered, 0);
        assert_int_equal(sim_counts(rig.sim)->late, 0);
        sim_end(rig.sim);
        assert_false(flag_without_data(&now));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_ib_loose_reorders_two_reads),
        cmocka_unit_test(a_write_after_a_read_needs_a_fence),
        cmocka_unit_test(only_ib_loose_reorders_an_atomic_and_a_read),
        cmocka_unit_test(a_read_stays_behind_a_write),
        cmocka_unit_test(an_atomic_after_an_atomic_needs_a_fence),
        cmocka_unit_test(verbs_to_different_nodes_have_no_order),
        cmocka_unit_test(only_ib_loose_completes_before_others_see_it),
        cmocka_unit_test(words_have_no_order_but_are_whole),
        cmocka_unit_test(atomics_are_atomic_against_atomics_only),
        cmocka_unit_test(without_reordering_nothing_weird_happens),
    };
    return cmocka_run_group_tests(tests, rig_set_up, rig_tear_down);
}
