/* What happens at the sites of requests, and faults that are aimed at one. */
#include "sim/sim_internal.h"

#include <stddef.h>

#define MANY_VERBS 3u

void sim_count_sites(struct sim *sim, struct sites *sites)
{
    sim->sites = sites;
}

static struct site *site_of(const struct sim *sim, const struct sim_request *r)
{
    return sim->sites && r->site != SITE_NONE ? &sim->sites->site[r->site] : NULL;
}

/* The verbs of the request that its site has added: piggybacked ones come behind them. */
static unsigned own_verbs(const struct fab_req *req)
{
    const struct batch *b = (const struct batch *)((const char *)req - offsetof(struct batch, req));
    const struct fab_verb *end = b->verb + b->own;
    if (req->verbs >= end)
        return 0;
    return req->verbs + req->count <= end ? req->count : (unsigned)(end - req->verbs);
}

void sim_site_posted(struct sim *sim, struct sim_request *r)
{
    struct sites *sites = sim->sites;
    r->site = SITE_NONE;
    if (!sites || !r->req->site) /* only batches name their site */
        return;
    r->own = (uint16_t)own_verbs(r->req);
    r->site = r->own > 0 ? sites_number(sites, r->req->site) : SITE_NONE;
    struct site *site = site_of(sim, r);
    if (!site)
        return;
    r->visit = sites_posted(sites, r->site);
    site->posts++;
    unsigned pieces = 0;
    r->writes = false;
    for (unsigned i = 0; i < r->own; i++) {
        const struct sim_verb *verb = &r->verb[i];
        unsigned count = (unsigned)__builtin_popcountll(verb->left);
        pieces += count;
        r->writes |= verb->v.kind != FAB_READ;
        if (verb->v.kind == FAB_READ && count > 1)
            site->applies |= 1u << SITE_TORN;
    }
    site->applies |= 1u << SITE_BEFORE | 1u << SITE_BEHIND | 1u << SITE_STOPPED;
    if (r->writes)
        site->applies |= 1u << SITE_UNKNOWN;
    if (r->writes && pieces > 1)
        site->applies |= 1u << SITE_BETWEEN;
}

void sim_site_note(struct sim *sim, const struct sim_request *r, enum site_fault fault)
{
    struct site *site = site_of(sim, r);
    if (site && site_applies(site, fault))
        site->met[fault]++;
}

/* How much of its own verbs has taken effect? READs have none. */
static enum site_fault progress(const struct sim_request *r)
{
    bool begun = false, all = true;
    for (unsigned i = 0; i < r->own; i++) {
        begun |= r->verb[i].begun;
        all &= r->verb[i].state == VERB_DONE;
    }
    return all ? SITE_BEHIND : begun && r->writes ? SITE_BETWEEN : SITE_BEFORE;
}

void sim_site_torn(struct sim *sim, const struct sim_request *r, unsigned i)
{
    if (i < r->own && r->verb[i].v.kind == FAB_READ && (sim->adversity & SIM_INTERLEAVE))
        sim_site_note(sim, r, SITE_TORN);
}

void sim_site_died(struct sim *sim, const struct sim_request *r)
{
    if (site_of(sim, r) && r->status == FAR_OK)
        sim_site_note(sim, r, progress(r));
}

void sim_site_executed(struct sim *sim, const struct sim_request *r, unsigned i)
{
    struct site *site = site_of(sim, r);
    if (!site || i >= r->own || !sim->sites->uses)
        return;
    unsigned uses = sim->sites->uses(sim->sites->uses_arg, &r->verb[i].v);
    if (uses > 0)
        site->applies |= 1u << SITE_REUSED;
    if (uses > 1)
        site->met[SITE_REUSED]++;
}

void sim_site_completed(struct sim *sim, const struct sim_request *r)
{
    if (site_of(sim, r) && r->writes && r->status == FAR_UNKNOWN)
        sim_site_note(sim, r, SITE_UNKNOWN);
}

/* ---- aims ------------------------------------------------------------------------------------ */

/* The aim of this moment. */
static const struct site_aim *aim_of(const struct sites *s)
{
    return s->aimed ? &s->then : &s->aim;
}

static bool is_aim(const struct sim *sim, const struct sim_request *r)
{
    const struct sites *s = sim->sites;
    if (!s || r->site == SITE_NONE || s->again || r->visit < aim_of(s)->skip)
        return false;
    bool found = r->site == aim_of(s)->site;
    for (unsigned i = 0; i < SITE_OTHERS; i++)
        found |= r->site == s->others[s->aimed][i];
    return found;
}

static void note_struck(struct sites *s)
{
    s->again = s->aimed;
    s->aimed = true;
}

static bool may_strike(const struct sim *sim, const struct sim_request *r, unsigned adversity)
{
    const struct sim_client *c = &sim->client[r->client];
    return (sim->adversity & adversity) && sim->faults_used < sim->set.faults_max &&
           c->state != CLIENT_CRASHED && c->frozen_until <= sim->now;
}

/* Where in the request a fault strikes that has a choice: aims that skip more posts strike
 * later. */
static bool is_moment(const struct sim *sim, const struct sim_request *r, bool answers)
{
    bool late = aim_of(sim->sites)->skip % 2 == 1;
    return late ? answers : progress(r) == SITE_BEFORE || answers;
}

/* When a client dies between many verbs, it is not always the first one alone that has taken
 * effect. */
static bool waits_for_more(struct sim *sim, const struct sim_request *r)
{
    return aim_of(sim->sites)->fault == SITE_BETWEEN && r->count > MANY_VERBS &&
           tape_chance(sim->tape, 3, 4, TAPE_FAULT);
}

enum fault sim_site_fault(struct sim *sim, const struct sim_request *r, bool answers)
{
    enum fault fault = FAULT_NONE;
    if (!is_aim(sim, r))
        return fault;
    const struct site_aim *aim = aim_of(sim->sites);
    switch (aim->fault) {
    case SITE_BEFORE:
    case SITE_BETWEEN:
    case SITE_BEHIND:
        if (may_strike(sim, r, SIM_CRASH) && progress(r) == aim->fault && !waits_for_more(sim, r))
            fault = FAULT_CRASH;
        break;
    case SITE_STOPPED:
        if (may_strike(sim, r, SIM_PAUSE) && is_moment(sim, r, answers))
            fault = FAULT_PAUSE;
        break;
    case SITE_UNKNOWN:
        if (may_strike(sim, r, SIM_ERROR) && r->writes && is_moment(sim, r, answers))
            fault = FAULT_ERROR;
        break;
    case SITE_TORN:
    case SITE_REUSED:
    case SITE_FAULT_COUNT:
        break;
    }
    if (fault != FAULT_NONE)
        note_struck(sim->sites);
    return fault;
}

bool sim_site_tears(struct sim *sim, const struct sim_request *r, unsigned i)
{
    unsigned needed = SIM_TORN | SIM_INTERLEAVE;
    const struct sim_verb *verb = &r->verb[i];
    if (!is_aim(sim, r) || aim_of(sim->sites)->fault != SITE_TORN || i >= r->own ||
        (sim->adversity & needed) != needed || sim->set.profile == SIM_SC ||
        verb->v.kind != FAB_READ || (verb->left & (verb->left - 1)) == 0)
        return false;
    note_struck(sim->sites);
    return true;
}
