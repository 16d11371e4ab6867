/*
 * Twists: what a run may have besides its plan. They are chosen aside, so half of the runs of any
 * seeds are as if there were none.
 */
#include "sim/check_internal.h"

#define SLEEPS_FOR   24u /* operations of others */
#define SMALL_BUNDLE 4u
#define SWEPT_BUNDLE 16u

static unsigned choose(struct check *c, unsigned n)
{
    return tape_choose_aside(c->tape, n, TAPE_SETUP);
}

/* What is freed is used again at once, by any client, while another still knows it by its caches. */
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

void check_twist(struct check *c)
{
    struct plan *p = &c->plan;
    if (c->program || choose(c, 2) == 0)
        return;
    p->key_shape = choose(c, KEY_SHAPES);
    if (choose(c, 2)) /* a sweep makes many, so they must not be too small */
        p->knobs.bundle_max = p->tight || p->upkeep ? SWEPT_BUNDLE : SMALL_BUNDLE;
    p->stalks = choose(c, 3) == 2;
    p->empties = choose(c, 4) == 3;
    bool scatters = choose(c, 3) == 2, reuses = choose(c, 3) == 2, sleeps = choose(c, 3) == 2,
         walks = choose(c, 4) == 3;
    if (walks)
        walk_slowly(c);
    /* In this profile what has completed may be visible later (FABRIC-F4): so memory must be reused much
     * later, and what is written to one node may be seen after what leads to it from another. */
    if (c->set->profile == SIM_IB_LOOSE)
        return;
    if (scatters)
        spread_over_nodes(c);
    if (reuses)
        reuse_at_once(c);
    if (sleeps)
        sleep_once(c);
}
