/*
 * The adversary: how long things take, in what pieces they happen, and when faults strike.
 *
 * Runs that differ in kind find more than runs that are all alike. So each run draws, when it
 * begins, how long the longest delays are, how far apart the verbs of a request are, how often
 * verbs tear, whether one client is far slower than the others, whether messages stall now and
 * then, and how frequent each fault is, if there are faults at all.
 */
#include "sim/sim_internal.h"

#define TRANSIT_NS 800u /* one way, when nothing delays it */
#define GAP_NS     20u  /* between verbs and between pieces */

/* If one client is slow, or messages stall now and then, others should get much done meanwhile. So
 * the usual delays are shorter then. */
#define UNEVEN_TAIL  1u
#define STALK_RATE   64u /* crashes of 65536 events, at least, in runs with stalking */
#define STALK_EVENTS 48u /* of a client, from when it shuts out another, until it is struck */
#define STOP_IN      32u /* one rest between the pieces of a WRITE is a stop, in runs with stops */
#define STALL_IN     48u /* one message of 48 stalls */
#define STALL_SHIFT  6u  /* for 2^6 times the usual transit, */
#define STALL_RANGE  6u  /* up to 2^11 times */

const char *sim_adversity_name(enum sim_adversity which)
{
    static const char *const name[SIM_ADVERSITY_COUNT] = {
#define SIM_X(name, text) text,
        SIM_ADVERSITIES(SIM_X)
#undef SIM_X
    };
    return name[which];
}

static unsigned rate(struct sim *sim, unsigned flag)
{
    static const unsigned of_65536[] = {0, 4, 16, 64, 256, 16};
    if (!(sim->adversity & flag))
        return 0;
    return of_65536[tape_choose(sim->tape, 6, TAPE_SETUP)];
}

void sim_adversary_begin(struct sim *sim)
{
    struct tape *t = sim->tape;
    sim->adversity = sim->set.adversity;
    sim->faults_used = 0;
    sim->lose_after = sim->lose_half_after = UINT64_MAX;
    sim->lose_half_changes = 0;
    for (unsigned i = 0; i < SIM_NODES_MAX; i++)
        sim->lost[i] = sim->alone[i] = false;
    sim->tail = sim->gap = sim->tear_in_8 = 0;
    sim->slow = NOBODY;
    sim->stalls = false;
    sim->crash_rate = sim->pause_rate = sim->error_rate = 0;
    for (unsigned i = 0; i < sim->set.clients; i++) {
        sim->client[i].clock_offset = 0;
        sim->client[i].clock_ppm = 0;
        sim->client[i].spread = 0;
        sim->client[i].doom_in = 0;
    }
    if (sim->set.by_choice)
        return; /* the tape chooses events instead */

    static const unsigned gap[] = {GAP_NS, 4 * GAP_NS, TRANSIT_NS / 2, 2 * TRANSIT_NS};
    if (sim->adversity & SIM_DELAY) {
        sim->tail = tape_choose(t, sim->set.no_fence ? 2 : 6, TAPE_SETUP);
        sim->gap = gap[tape_choose(t, 4, TAPE_SETUP)];
        sim->stalls = tape_chance(t, 1, 2, TAPE_SETUP);
        if (tape_chance(t, 1, 3, TAPE_SETUP)) {
            sim->slow = tape_choose(t, sim->set.clients, TAPE_SETUP);
            sim->slow_by = 4u << tape_choose(t, sim->set.no_fence ? 2 : 5, TAPE_SETUP);
        }
        if ((sim->stalls || sim->slow != NOBODY) && sim->tail > UNEVEN_TAIL)
            sim->tail = UNEVEN_TAIL;
    }
    if (sim->adversity & SIM_TORN)
        sim->tear_in_8 = tape_choose(t, 6, TAPE_SETUP);
    if ((sim->adversity & SIM_FAULTS) && tape_chance(t, 2, 3, TAPE_SETUP)) {
        sim->crash_rate = rate(sim, SIM_CRASH);
        sim->pause_rate = rate(sim, SIM_PAUSE);
        sim->error_rate = rate(sim, SIM_ERROR);
        if (sim->set.stalks && (sim->adversity & SIM_CRASH) && sim->crash_rate < STALK_RATE)
            sim->crash_rate = STALK_RATE;
        if ((sim->adversity & SIM_NODE) && tape_chance(t, 1, 4, TAPE_SETUP)) {
            sim->lose_after = tape_choose(t, 1u << (4 + tape_choose(t, 8, TAPE_SETUP)), TAPE_SETUP);
            sim->lose_node = tape_choose(t, sim->set.nodes, TAPE_SETUP);
            sim->lose_for = tape_choose(t, 4, TAPE_SETUP) == 3
                                ? UINT64_MAX / 2
                                : 1u << tape_choose(t, 6, TAPE_SETUP);
        }
    }
    if (sim->set.tails && (sim->adversity & SIM_FAULTS)) {
        if (tape_chance(t, 1, 2, TAPE_SETUP))
            sim->lose_half_changes =
                1 + tape_choose(t, 1u << tape_choose(t, 12, TAPE_SETUP), TAPE_SETUP);
        else
            sim->lose_half_after =
                tape_choose(t, 1u << (6 + tape_choose(t, 12, TAPE_SETUP)), TAPE_SETUP);
        sim->lose_half_of = tape_choose(t, sim->set.nodes, TAPE_SETUP);
        sim->lose_tail = tape_chance(t, 1, 3, TAPE_SETUP);
    }
    for (unsigned i = 0; i < sim->set.clients && (sim->adversity & SIM_DRIFT); i++) {
        uint32_t ppm = tape_choose(t, 2 * SIM_DRIFT_PPM + 1, TAPE_CLOCK);
        sim->client[i].clock_ppm = (int32_t)ppm - (int32_t)SIM_DRIFT_PPM;
        sim->client[i].clock_offset = (uint64_t)tape_choose(t, UINT32_MAX, TAPE_CLOCK) << 16;
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Mostly short, seldom long: powers of two, up to an end that the run has drawn. */
static uint64_t stretch(struct sim *sim, uint64_t unit)
{
    static const uint8_t shift[16] = {0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9};
    uint32_t c = tape_choose(sim->tape, 256, TAPE_DELAY);
    unsigned by = shift[c % 16];
    if (by > 3)
        by = 3 + (by - 3) * sim->tail / 3;
    return (unit << by) * (c / 16) / 4;
}

uint64_t sim_adversary_transit(struct sim *sim, uint32_t client)
{
    if (sim->by_choice)
        return 0;
    if (!(sim->adversity & SIM_DELAY))
        return TRANSIT_NS;
    uint64_t ns = TRANSIT_NS / 4 + stretch(sim, TRANSIT_NS);
    if (sim->stalls && tape_chance(sim->tape, 1, STALL_IN, TAPE_DELAY))
        return ns + ((uint64_t)TRANSIT_NS
                     << (STALL_SHIFT + tape_choose(sim->tape, STALL_RANGE, TAPE_DELAY)));
    return client == sim->slow ? ns * sim->slow_by : ns;
}

uint64_t sim_adversary_gap(struct sim *sim)
{
    if (sim->set.by_choice || !(sim->adversity & SIM_INTERLEAVE))
        return 0;
    if (!(sim->adversity & SIM_DELAY))
        return tape_choose(sim->tape, GAP_NS, TAPE_DELAY);
    return stretch(sim, sim->gap);
}

uint64_t sim_adversary_rest(struct sim *sim, uint32_t client, const struct sim_verb *verb)
{
    unsigned spread = sim->client[client].spread;
    uint64_t ns = sim_adversary_gap(sim);
    if (spread == 0 || verb->v.kind != FAB_READ)
        return ns;
    return ns + (uint64_t)TRANSIT_NS * tape_choose(sim->tape, spread, TAPE_DELAY) /
                    (unsigned)__builtin_popcountll(verb->left);
}

uint64_t sim_adversary_lag(struct sim *sim, uint32_t client)
{
    return sim_adversary_transit(sim, client) + sim_adversary_transit(sim, client) +
           sim_adversary_gap(sim);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static uint64_t nth_piece(uint64_t left, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        left &= left - 1;
    return left & -left;
}

uint64_t sim_adversary_pieces(struct sim *sim, uint32_t client, uint64_t left)
{
    if (!(sim->adversity & SIM_TORN) || sim->set.profile == SIM_SC || (left & (left - 1)) == 0)
        return left;
    struct tape *t = sim->tape;
    unsigned count = (unsigned)__builtin_popcountll(left);
    if (sim->set.by_choice) { /* all that are left, or any single one */
        uint32_t c = tape_choose(t, count + 1, TAPE_TEAR);
        return c == 0 ? left : nth_piece(left, c - 1);
    }
    if (sim->client[client].spread > 0)
        return left & -left;
    if (!sim->tear_in_8 || !tape_chance(t, sim->tear_in_8, 8, TAPE_TEAR))
        return left;
    uint64_t some = 0;
    switch (tape_choose(t, 3, TAPE_TEAR)) {
    case 0: /* one */
        return nth_piece(left, tape_choose(t, count, TAPE_TEAR));
    case 1: /* all from one on, or all before it */
        some = nth_piece(left, 1 + tape_choose(t, count - 1, TAPE_TEAR));
        some = tape_choose(t, 2, TAPE_TEAR) ? left & ~(some - 1) : left & (some - 1);
        return some;
    default: /* any */
        some = (uint64_t)tape_choose(t, UINT32_MAX, TAPE_TEAR) << 32;
        some = left & (some | tape_choose(t, UINT32_MAX, TAPE_TEAR));
        return some ? some : left;
    }
}

bool sim_adversary_halves(struct sim *sim)
{
    if (!(sim->adversity & SIM_TORN) || sim->set.profile == SIM_SC)
        return false;
    return tape_chance(sim->tape, 1, sim->set.by_choice ? 2 : 4, TAPE_TEAR);
}

/* ---- faults ---------------------------------------------------------------------------------- */

void sim_adversary_stalk(struct sim *sim, struct sim_client *c)
{
    unsigned both = SIM_CRASH | SIM_PAUSE;
    if (!sim->set.stalks || (sim->adversity & both) != both || c->doom_in > 0 ||
        !tape_choose(sim->tape, 2, TAPE_FAULT))
        return;
    c->doom_in = 1 + tape_choose(sim->tape, STALK_EVENTS, TAPE_FAULT);
    c->doom = tape_choose(sim->tape, 2, TAPE_FAULT) ? FAULT_CRASH : FAULT_PAUSE;
}

bool sim_adversary_stops(struct sim *sim, uint32_t client, const struct sim_verb *verb)
{
    return sim->set.stops && (sim->adversity & SIM_PAUSE) && verb->v.kind == FAB_WRITE &&
           verb->torn && sim->faults_used < sim->set.faults_max &&
           sim->client[client].frozen_until <= sim->now &&
           tape_chance(sim->tape, 1, STOP_IN, TAPE_FAULT);
}

enum fault sim_adversary_draw_fault(struct sim *sim, uint32_t client)
{
    struct sim_client *c = &sim->client[client];
    unsigned all = sim->crash_rate + sim->pause_rate + sim->error_rate;
    if (c->doom_in > 0 && --c->doom_in == 0 && sim->faults_used < sim->set.faults_max &&
        c->state != CLIENT_CRASHED && c->frozen_until <= sim->now)
        return c->doom;
    if (all == 0 || sim->faults_used >= sim->set.faults_max || c->state == CLIENT_CRASHED ||
        c->frozen_until > sim->now)
        return FAULT_NONE;
    uint32_t x = 65535 - tape_choose(sim->tape, 65536, TAPE_FAULT);
    if (x >= all)
        return FAULT_NONE;
    return x < sim->crash_rate                     ? FAULT_CRASH
           : x < sim->crash_rate + sim->pause_rate ? FAULT_PAUSE
                                                   : FAULT_ERROR;
}
