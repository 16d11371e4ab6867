/*
 * Twists: what a run may have besides its plan. They are chosen aside, so half of the runs of any
 * seeds are as if there were none.
 */
#include "check/check_internal.h"

#include <string.h>

#define SLEEPS_FOR   24u /* operations of others */
#define SMALL_BUNDLE 4u
#define SWEPT_BUNDLE 16u
#define SITES_TRIED  16u
#define AIM_POSTS    4u

static unsigned choose(struct check *c, unsigned n)
{
    return tape_choose_aside(c->tape, n, TAPE_SETUP);
}

/* What is freed is used again at once, by any client, while another still knows it by its
 * caches. */
static void reuse_at_once(struct check *c)
{
    struct plan *p = &c->plan;
    p->alike = p->drives_epochs = true;
    p->knobs.tick_ops = 1;
    p->knobs.stock_max = 1;
}

static void sleep_once(struct check *c)
{
    struct plan *p = &c->plan;
    p->sleeps_at = 1 + choose(c, 1 + c->set->ops / 2);
    p->sleeps_for = 2 + choose(c, SLEEPS_FOR);
    p->sleeps_parked = choose(c, 4) > 0;
}

static void spread_over_nodes(struct check *c)
{
    struct plan *p = &c->plan;
    p->knobs.scatters = true;
    if (p->nodes == 1)
        p->nodes = 2 + choose(c, NODES_MAX - 1);
}

static void walk_slowly(struct check *c)
{
    struct plan *p = &c->plan;
    p->dawdles = true;
    p->iterates = true;
    p->scans = check_can_scan(c);
    p->knobs.iterate_parts = 1 + choose(c, 2);
}

/* Can runs of these tables get to that place in the source? `recovers`: is it where clients recover
 * others? */
static bool is_suitable(const struct check *c, const struct site *site, bool recovers)
{
    static const char *const recovery[] = {"/lease.c:", "/journal", "recover", "_repair.c:"};
    bool suits = !recovers;
    for (unsigned i = 0; i < sizeof recovery / sizeof *recovery; i++)
        suits |= strstr(site->name, recovery[i]) != NULL;
    for (unsigned i = 0; far_index_name(i); i++) {
        const char *name = far_index_name(i);
        char folder[32];
        snprintf(folder, sizeof folder, "index/%s/", name);
        if (strstr(site->name, folder) && strcmp(name, c->set->index) != 0 &&
            (c->plan.tables == 1 || strcmp(name, c->plan.other_index) != 0))
            return false;
    }
    return suits;
}

static uint32_t choose_site(struct check *c, const struct sites *sites, bool recovers)
{
    for (unsigned i = 0; i < SITES_TRIED; i++) {
        uint32_t site = choose(c, sites->count);
        if (is_suitable(c, &sites->site[site], recovers))
            return site;
    }
    return SITE_NONE;
}

static void choose_aim(struct check *c, const struct sites *sites, bool recovers,
                       struct site_aim *aim, uint32_t others[SITE_OTHERS])
{
    static const enum site_fault faults[] = {SITE_BEFORE, SITE_BETWEEN, SITE_BEHIND, SITE_STOPPED,
                                             SITE_UNKNOWN};
    aim->fault = faults[choose(c, recovers ? 4 : 5)];
    aim->skip = choose(c, recovers ? 2 : AIM_POSTS);
    aim->site = choose_site(c, sites, recovers);
    for (unsigned i = 0; i < SITE_OTHERS; i++)
        others[i] = choose_site(c, sites, recovers);
}

/* A fault strikes at one of some places in the source: all are chosen equally often, however seldom
 * clients are there. Then another strikes where clients recover others, so that two deaths meet, or
 * two recoveries. */
static void strike_somewhere(struct check *c, struct sites *sites)
{
    struct site_aim aim, then;
    uint32_t others[2][SITE_OTHERS];
    choose_aim(c, sites, false, &aim, others[0]);
    choose_aim(c, sites, true, &then, others[1]);
    if (c->set->aim) /* another one was asked for */
        return;
    sites->aim = aim;
    sites->then = then;
    memcpy(sites->others, others, sizeof others);
}

/* Clients stop in the middle of a WRITE. Without a fence, others must know that they live. */
static void stop_within_writes(struct check *c)
{
    c->plan.stops = true;
    c->plan.lives = c->plan.no_fence;
}

/* Clients share processes, and changes of a key form groups. Keys share words, records are used
 * again at once, and operations lose patience at any time. */
static void share_processes(struct check *c)
{
    static const uint8_t meeting[LIN_KINDS] = {3, 6, 1, 8, 1, 0, 1};
    struct plan *p = &c->plan;
    p->processes = 1 + choose(c, 2);
    p->knobs.group_words = 1u << choose(c, 3);
    p->knobs.group_spares = choose(c, 2) ? pool_knobs_default.group_spares : 0;
    p->knobs.group_patience = p->knobs.turn_patience = 16384ull << choose(c, 8);
    p->knobs.turn_queues = p->knobs.group_words;
    if (choose(c, 4) > 0 && p->cold > 0) /* tables are to grow */
        return;
    p->focus = true;
    p->cold = 0;
    p->ring = 3 * c->set->clients <= CONCURRENT_MAX   ? 3
              : 2 * c->set->clients <= CONCURRENT_MAX ? 2
                                                      : 1;
    p->weight_sum = 0;
    for (unsigned i = 0; i < LIN_KINDS; i++)
        p->weight_sum += p->weight[i] = meeting[i];
}

/* A table that grows while half of its keys rest: so parts are several versions behind when they
 * are met. */
static void leave_behind(struct check *c)
{
    struct plan *p = &c->plan;
    p->lags = true;
    p->tables = 1;
    p->scans = p->scans && check_can_scan(c);
}

/* Sessions register with voters, and clients change who votes. Either voters are put out and taken
 * in, or one at a time is killed, comes back and is taken in again. */
static void let_nodes_vote(struct check *c)
{
    struct plan *p = &c->plan;
    p->nodes = NODES_MAX;
    p->votes = true;
    p->restarts = choose(c, 2);
}

void check_twist(struct check *c, struct sites *sites)
{
    struct plan *p = &c->plan;
    if (c->program || choose(c, 2) == 0)
        return;
    p->key_shape = choose(c, KEY_SHAPES);
    p->tuning = choose(c, 2) ? choose(c, TUNINGS) : 0;
    p->crowded = choose(c, 4) == 3;
    if (choose(c, 2)) /* a sweep makes many, so they must not be too small */
        p->knobs.bundle_max = p->tight || p->upkeep ? SWEPT_BUNDLE : SMALL_BUNDLE;
    p->stalks = choose(c, 3) == 2;
    p->empties = choose(c, 4) == 3;
    bool scatters = choose(c, 3) == 2, reuses = choose(c, 3) == 2, sleeps = choose(c, 3) == 2,
         walks = choose(c, 4) == 3;
    if (walks)
        walk_slowly(c);
    p->aims = choose(c, 4) > 0;
    if (p->aims && sites)
        strike_somewhere(c, sites);
    if (choose(c, 2))
        stop_within_writes(c);
    if (choose(c, 4) == 3)
        share_processes(c);
    /* In this profile what has completed may be visible later (FABRIC-F4): so memory must be reused
     * much later, and what is written to one node may be seen after what leads to it from
     * another. */
    if (c->set->profile == SIM_IB_LOOSE)
        return;
    if (scatters)
        spread_over_nodes(c);
    if (reuses)
        reuse_at_once(c);
    if (sleeps)
        sleep_once(c);
    if (choose(c, 4) == 3 && p->cold > 0 && !p->shrinks)
        leave_behind(c);
    p->closes = choose(c, 2) && !p->tight;
    p->stuffed = choose(c, 8) == 7 && p->tight;
    if (choose(c, 8) == 7)
        let_nodes_vote(c);
}
