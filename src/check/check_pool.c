/* The pool of a run: counters about to wrap around, reaping and sweeping while others work, and the
 * audit of its memory at the end. */
#include "check/check_internal.h"

#include "check/audit.h"

#include <inttypes.h>

/* Verbs that a client posts while it waits, for memory or in a sweep, until another's lease
 * lapses. */
#define WAITING_VERBS 20000u

void check_wrap_lists(struct check *c)
{
    for (unsigned node = 0; node < c->plan.nodes; node++)
        for (unsigned i = 0; i < CLASS_COUNT; i++) { /* the number before that of a reference */
            uint64_t number = NODE_FREE_OFF + i * 8ull + GADDR_BITS / 8;
            sim_fill(c->sim, node, number, 1, 0xfe);
            sim_fill(c->sim, node, number + 1, 7 - GADDR_BITS / 8, 0xff);
        }
}

void check_wrap_client(far_session *session)
{
    session->client.sweep.count = 126;
}

uint64_t check_pool_verbs(const struct check *c)
{
    uint64_t clients = c->clients;
    bool waits =
        c->plan.tight || c->plan.upkeep || c->plan.reopens || c->plan.drops || c->plan.repairs > 0;
    uint64_t turns = clients + 1 + (c->plan.stuffed ? c->set->ops : 0); /* each change may wait */
    return waits ? clients * turns * WAITING_VERBS : 0;
}

int check_drive_epochs(struct check *c, struct op *op, unsigned turns)
{
    int rc = FAR_OK;
    for (unsigned i = 0; i < turns && rc == FAR_OK && !sim_unwinding(c->sim); i++) {
        rc = client_drive_epoch(op);
        client_reclaim(op->client);
    }
    return rc;
}

int check_reap_or_sweep(struct check *c, struct check_client *me)
{
    struct sweep_result swept;
    unsigned dead = 0;
    bool reaps = tape_choose(c->tape, 4, TAPE_WORK) == 3;
    sim_note(c->sim, "%s", reaps ? "reaps dead clients" : "sweeps");
    int rc =
        reaps ? client_reap_dead(&me->session->op, &dead) : pool_sweep(&me->session->op, &swept);
    if (sim_unwinding(c->sim))
        return rc;
    sim_note(c->sim, "   %s", far_errname(rc));
    c->result.sweeps += !reaps && rc == FAR_OK;
    if (rc != FAR_OK && rc != FAR_CONTENTION && rc != FAR_POOL_FULL && rc != FAR_FENCED &&
        rc != FAR_TIMEOUT && !check_is_excused(c, rc))
        check_fail_status(c, CHECK_BAD_STATUS, rc, "%s",
                          reaps ? "reaping dead clients" : "a sweep");
    return rc;
}

/* All sessions, the given one first. */
static unsigned all_sessions(const struct check *c, far_session *fresh, far_session **sessions)
{
    unsigned count = 0;
    sessions[count++] = fresh;
    for (unsigned i = 0; i < c->clients; i++)
        sessions[count++] = c->client[i].session;
    return count;
}

/* `reaped`: all dead clients have been recovered. Before that, one may have died while it wrote to
 * a table that walk_tables() leaves out, a short-lived one or that of check_handle.c: then the
 * audit gives up. */
static bool audit(struct check *c, far_session *fresh, bool reaped, struct audit *a)
{
    far_session *sessions[CHECK_CLIENTS_MAX + 1];
    unsigned count = all_sessions(c, fresh, sessions);
    int rc = sim_audit(a, c->pool, sessions, count);
    if (rc == FAR_CONTENTION && !reaped && (c->plan.drops || c->plan.closes))
        return false;
    if (rc != FAR_OK)
        check_fail_status(c, CHECK_BAD_MEMORY, rc, "the audit of the pool's memory");
    else if (a->wrong > 0)
        check_fail(c, CHECK_BAD_MEMORY,
                   "the audit found %u objects accounted for wrongly; first: %s", a->wrong,
                   a->first);
    return rc == FAR_OK && a->wrong == 0;
}

/* Does the incarnation belong to a session that is alive? */
static bool is_ours(const struct check *c, const far_session *fresh, uint64_t incarnation)
{
    bool ours = fresh->client.incarnation == incarnation;
    for (unsigned i = 0; i < c->clients && !ours; i++)
        ours = c->client[i].session && !sim_crashed(c->sim, i) &&
               c->client[i].session->client.incarnation == incarnation;
    return ours;
}

static uint64_t control_word(const struct check *c, uint64_t field)
{
    return sim_word(c->sim, 0, CONTROL_OFF + field);
}

/* Has no client died (the pool knows of it, or its slot is still taken), and was no sweep broken
 * off? Then all memory is accounted for: it is in some place, or a client knows that it lost it. */
static bool all_accounted_for(const struct check *c, const far_session *fresh)
{
    uint64_t high = control_word(c, offsetof(struct pool_control, high));
    for (unsigned i = 0; i < high; i++) {
        uint64_t incarnation = sim_word(c->sim, 0, slot_delta(i));
        if (incarnation != 0 && !is_ours(c, fresh, incarnation))
            return false;
    }
    return control_word(c, offsetof(struct pool_control, deaths)) == 0 &&
           control_word(c, offsetof(struct pool_control, sweep)) == 0;
}

/* The bytes that a session knows to be lost. If it was parked before a sweep, it will count what it
 * held as lost (EPOCH-E5). */
static uint64_t known_losses(const struct check *c, const far_session *session)
{
    const struct client *client = &session->client;
    uint64_t lost = client->stock.lost_bytes;
    if (client->attention.parked &&
        client->sweep.counted != control_word(c, offsetof(struct pool_control, sweeps)))
        lost += client->stock.held_bytes + client->stock.retired_bytes;
    return lost;
}

void check_memory_audit(struct check *c, far_session *fresh)
{
    far_session *sessions[CHECK_CLIENTS_MAX + 1];
    struct audit a;
    uint64_t lost = 0;
    if (c->program || !audit(c, fresh, false, &a) || !all_accounted_for(c, fresh))
        return;
    unsigned count = all_sessions(c, fresh, sessions);
    for (unsigned i = 0; i < count; i++)
        lost += sessions[i] ? known_losses(c, sessions[i]) : 0;
    c->result.coverage.accounted = true;
    if (a.bytes[AUDIT_NOWHERE] > lost)
        check_fail(c, CHECK_BAD_MEMORY,
                   "lost: %" PRIu64 " bytes are in no place, but clients know of %" PRIu64
                   " lost bytes only",
                   a.bytes[AUDIT_NOWHERE], lost);
}

void check_count_session(struct check *c, const far_session *session)
{
    c->result.reaped += session->client.watch.reaped;
    c->result.coverage.joined += session->groups.joined;
    c->result.coverage.rode += session->groups.rode;
    c->result.coverage.left += session->groups.left;
}

static void count_sessions(struct check *c, far_session *fresh)
{
    far_session *sessions[CHECK_CLIENTS_MAX + 1];
    unsigned count = all_sessions(c, fresh, sessions);
    for (unsigned i = 0; i < count; i++)
        if (sessions[i])
            check_count_session(c, sessions[i]);
}

void check_sweep_audit(struct check *c, far_session *fresh)
{
    struct sweep_result swept;
    struct far_pool_usage usage;
    struct audit a;
    unsigned dead = 0;
    if (c->program)
        return;
    int rc = client_reap_dead(&fresh->op, &dead);
    if (rc == FAR_OK)
        check_drop_audit(c, fresh);
    if (rc == FAR_OK)
        rc = pool_sweep(&fresh->op, &swept);
    count_sessions(c, fresh);
    if (rc != FAR_OK) {
        check_fail_status(c, CHECK_NOT_LIVE, rc,
                          "with no other client at work, reaping and sweeping");
        return;
    }
    c->result.sweeps++;
    if (!audit(c, fresh, true, &a))
        return;
    rc = far_pool_usage(fresh, &usage);
    if (rc != FAR_OK)
        check_fail_status(c, CHECK_BAD_STATUS, rc, "far_pool_usage()");
    else if (a.bytes[AUDIT_NOWHERE] > 0 || usage.unknown > 0)
        check_fail(c, CHECK_BAD_MEMORY,
                   "after a sweep, %" PRIu64 " bytes are in no place and %" PRIu64
                   " are reported as unknown, not 0",
                   a.bytes[AUDIT_NOWHERE], usage.unknown);
    else if (usage.live != a.bytes[AUDIT_LIVE])
        check_fail(c, CHECK_BAD_MEMORY,
                   "usage: %" PRIu64 " bytes are live, but %" PRIu64 " are reported",
                   a.bytes[AUDIT_LIVE], usage.live);
}
