/*
 * Faults: crashes, pauses and errors.
 *
 * Faults strike between two events. So at a crash or an error each verb under way is done, half
 * done (some of its pieces) or not done, and what the contract orders stays in order.
 */
#include "sim/sim_internal.h"

#define PAUSE_MIN 50000u

/* Others wait for a client that lives, and give up each of their operations after a lease. */
#define LIVE_LEASES 5u

void sim_fault_crash(struct sim *sim, uint32_t client)
{
    struct sim_client *c = &sim->client[client];
    ASSERT(c->state != CLIENT_CRASHED && c->state != CLIENT_FINISHED);
    sim_log_line(sim, client, "CRASHES");
    sim->trace = mix(sim->trace, 0xdead0000u + client);
    sim->counts.happened[SIM_NUMBER_CRASH]++;
    sim->faults_used++;
    c->state = CLIENT_CRASHED;
    sim->alive--;
    sim_tail_died(sim, client);
    for (size_t i = 0; i < sim->requests; i++)
        if (sim->request[i]->req && sim->request[i]->client == client) {
            sim_site_died(sim, sim->request[i]);
            sim_request_cancel(sim, sim->request[i]);
        }
}

/* Is a part of one of its WRITEs placed, and a part not? */
static bool is_within_write(const struct sim_request *r)
{
    for (unsigned i = 0; i < r->count; i++)
        if (r->verb[i].v.kind == FAB_WRITE && r->verb[i].torn && r->verb[i].left != 0)
            return true;
    return false;
}

void sim_fault_pause(struct sim *sim, uint32_t client, bool outlasts, bool within)
{
    struct sim_client *c = &sim->client[client];
    uint32_t length = tape_choose(sim->tape, 24, TAPE_FAULT);
    if (outlasts && length < 16)
        length = 16;
    uint64_t ns = length < 16 ? (uint64_t)PAUSE_MIN << length : SIM_PAUSE_NS + (length << 26);
    uint64_t lease = (uint64_t)sim->fab.lease_ms * 1000000;
    if (sim->set.lives && lease > 0 && ns > LIVE_LEASES * lease)
        ns = (2 + length % (LIVE_LEASES - 1)) * lease;
    c->frozen_until = sim->now + ns;
    c->stuck = !sim->set.tails && (within || (tape_choose(sim->tape, 2, TAPE_FAULT) &&
                                              (!sim->set.no_fence || sim->set.lives)));
    sim_log_line(sim, client, "PAUSES for %.3f ms, its verbs %s", (double)ns / 1e6,
                 c->stuck ? "too" : "go on");
    sim->trace = mix(sim->trace, 0xf0000000u + client);
    sim->counts.happened[SIM_NUMBER_PAUSE]++;
    sim->faults_used++;
    for (size_t i = 0; i < sim->requests && ns > lease; i++)
        if (sim->request[i]->req && sim->request[i]->client == client) {
            sim_site_note(sim, sim->request[i], SITE_STOPPED);
            sim->counts.stopped += c->stuck && is_within_write(sim->request[i]);
        }
}

void sim_fault_error(struct sim *sim, struct sim_request *r)
{
    bool apart = !sim->by_choice && (sim->adversity & SIM_INTERLEAVE);
    bool stray = apart && tape_choose(sim->tape, 2, TAPE_FAULT);
    sim_log_line(sim, r->client, "#%u FAILS%s", r->number,
                 stray ? ", but its verbs may still land" : "");
    sim->trace = mix(sim->trace, 0xe0000000u + r->client);
    sim->counts.happened[SIM_NUMBER_ERROR]++;
    sim->faults_used++;
    if (stray)
        sim_request_stray(sim, r);
    else
        sim_request_fail(sim, r, FAR_UNKNOWN);
}

void sim_stop_faults(struct sim *sim)
{
    sim->adversity &= ~(unsigned)SIM_FAULTS;
    if (sim->by_choice) { /* the tape chooses nothing from here on */
        sim->adversity &= SIM_INTERLEAVE | SIM_REORDER;
        sim_queue_by_time(sim);
    }
    sim->crash_rate = sim->pause_rate = sim->error_rate = 0;
    for (unsigned i = 0; i < sim->set.clients; i++)
        sim->client[i].doom_in = 0;
    sim->lose_after = sim->lose_half_after = UINT64_MAX;
    sim->lose_half_changes = 0;
    for (unsigned i = 0; i < sim->set.nodes; i++)
        sim->lost[i] = false;
}
