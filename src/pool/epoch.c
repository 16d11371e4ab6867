/*
 * Epochs: when may memory be reused that others may still be reading?
 *
 * There is one global epoch, a word on node 0. Every client keeps a certificate in its registry
 * slot: an epoch e, which says "no operation of mine that is still in flight began before I had
 * read e, and none uses an address from a cache that was not validated after that". The global
 * epoch goes from g to g+1 only when every client has certified at least g.
 *
 * None of this costs a round trip. Certificates are written, and the epoch, the registry and the
 * version of the cache in use are read, by a few verbs that ride on an operation's batch
 * every so often (a "flight").
 *
 *   EPOCH-E1  G <= certificate of any live client + 1.
 *   EPOCH-E2  A client certifies e only when all of its operations in flight began after it had
 *       validated its caches, and it validated them after it had read e. Validation is reading the
 *       cache's version word: in the flight after the one that read e, so that it surely came
 *       later. Caches that were not looked at are marked stale, and are read again before their
 *       next use. Entries that carry the epoch in which they were read need no version (CACHE-K1 in
 *       index/cache.h).
 *   EPOCH-E3  An object is retired after it was made unreachable, and, if caches may know it, after
 *       their version word was changed. Let the retiring client have validated v at that time, t.
 *       Then G(t) <= v+1 by EPOCH-E1. The object is reused when G has been seen at v+3 or more: by
 *       then every client has certified v+2, so it read v+2 after t, and by EPOCH-E2 whatever it
 *       has in flight began, and whatever it has cached was validated, when the object was
 *       unreachable.
 *   EPOCH-E4  Retired is only what is known to be unreachable. If the verb that was to make an
 *       object reachable, or unreachable, ended with an error of the fabric, nobody knows which it
 *       is: no epoch helps, and the object is left to a sweep (pool_abandon()).
 *   EPOCH-E5  A client without operations in flight may certify NO_EPOCH: nobody waits for it. It
 *       holds no address but in its caches, which are all stale from then on; its next operation it
 *       begins like a client that joins. What it has in hand is its own unless a sweep was
 *       announced meanwhile: then it forgets it, for the sweep has not waited for it to let go. It
 *       counts it as lost, because what lies above the sweep's mark was not found.
 *   EPOCH-E6  Verbs of a request that ended with an error may land later, for up to half a lease
 *       (FABRIC-F5). For that long they are in flight as much as an operation is: the client
 *       certifies nothing newer, is not parked, and does not give up its slot.
 *
 * A client that joins reads G before anything else and holds no addresses: it cannot be missed
 * harmfully. A client that is silent for a lease is shut out (lease.c), and its certificate with
 * it.
 */
#include "pool/pool.h"

#include <stdlib.h>
#include <string.h>

/* The flight's words. */
enum { F_SLOT = 0, F_CONTROL = 4, F_VERSION = 8, F_CAS = 9, F_INCARNATION = 10, F_REGISTRY = 16 };

#define REUSE_AFTER 3

/* Retired bytes after which a client announces itself, however few operations that were: so that
 * what waits for its epoch is bounded in bytes, too. */
#define TICK_BYTES (256u << 10)

/* ---- limbo ----------------------------------------------------------------------------------- */

static bool limbo_grow(struct limbo *l)
{
    size_t room = l->room ? 2 * l->room : 1024;
    struct limbo_entry *ring = malloc(room * sizeof *ring);
    if (!ring)
        return false;
    for (size_t i = 0; i < l->count; i++)
        ring[i] = l->ring[(l->head + i) & (l->room - 1)];
    free(l->ring);
    *l = (struct limbo){.ring = ring, .count = l->count, .room = room};
    return true;
}

void pool_retire(struct client *c, gaddr at, unsigned size_class)
{
    struct limbo *l = &c->limbo;
    if (client_swept(c, at) || c->pool->knobs.no_reclaim ||
        (l->count == l->room && !limbo_grow(l))) {
        pool_abandon(c, size_class);
        return;
    }
    l->ring[(l->head + l->count++) & (l->room - 1)] = (struct limbo_entry){
        .object = at | (uint64_t)size_class << GADDR_BITS, .reuse_at = c->validated + REUSE_AFTER};
    c->retired_bytes += size_class_bytes(size_class);
    c->retired_since_tick += size_class_bytes(size_class);
    c->retired_since_recut += size_class_bytes(size_class);
}

bool client_reclaim(struct client *c)
{
    struct limbo *l = &c->limbo;
    bool any = false;
    /* A few at a time: this is somebody's operation. */
    for (unsigned i = 0; i < 64 && l->count > 0; i++) {
        struct limbo_entry *e = &l->ring[l->head];
        if (e->reuse_at > c->seen)
            break;
        unsigned size_class = (unsigned)(e->object >> GADDR_BITS);
        l->head = (l->head + 1) & (l->room - 1);
        l->count--;
        c->retired_bytes -= size_class_bytes(size_class);
        pool_free_unpublished(c, e->object & ((1ull << GADDR_BITS) - 1), size_class);
        any = true;
    }
    return any;
}

/* ---- flights --------------------------------------------------------------------------------- */

/* While a sweep is announced that this client has not met (SWEEP-P1), or verbs of a request that failed
 * may still land (EPOCH-E6), nothing newer. */
static uint64_t certificate(const struct client *c)
{
    if (c->parked) /* EPOCH-E5 */
        return NO_EPOCH;
    if (c->sweep_unmet || client_has_stray_writes(c))
        return c->certified;
    return c->oldest && c->oldest->epoch < c->validated ? c->oldest->epoch : c->validated;
}

static void board(struct batch_rider *rider, struct batch *b)
{
    struct client *c = (struct client *)((char *)rider - offsetof(struct client, rider));
    uint64_t *f = c->flight;

    f[F_SLOT] = c->certified = certificate(c);
    f[F_SLOT + 1] = ++c->heartbeat;
    f[F_SLOT + 2] = c->retired_bytes;
    f[F_SLOT + 3] = c->held_bytes;
    batch_write(b, NODE0, slot_delta(c->slot) + offsetof(struct client_slot, epoch), &f[F_SLOT],
                32);
    batch_read(b, NODE0, slot_delta(c->slot), &f[F_INCARNATION], 8);
    c->flight_incarnation = c->incarnation;
    batch_read(b, NODE0, CONTROL_OFF, &f[F_CONTROL], 32);
    if (c->flight_cached)
        batch_read(b, c->flight_cached->version_at, c->flight_cached->version_delta, &f[F_VERSION],
                   8);
    /* All had certified it when we last looked, and so had we. Since then a failed request or a
     * sweep may have set our own certificate back (EPOCH-E1). */
    if (c->advance_from != NO_EPOCH && c->certified >= c->advance_from)
        batch_cas(b, NODE0, CONTROL_OFF, c->advance_from, c->advance_from + 1, &f[F_CAS]);
    c->flight_has_registry = (c->limbo.count > 0 || c->hurried) && c->advance_from == NO_EPOCH;
    c->hurried = false;
    if (c->flight_has_registry)
        batch_read(b, NODE0, CLIENTS_OFF, &f[F_REGISTRY],
                   (uint32_t)(c->high * sizeof(struct client_slot)));
    c->advance_from = NO_EPOCH;
    c->ops_since_tick = 0;
    c->retired_since_tick = 0;
    c->flight_posted = c->ep->ops->coarse(c->ep);
}

static bool all_certified(const struct client *c, const struct client_slot *slots, unsigned count,
                          uint64_t epoch)
{
    for (unsigned i = 0; i < count; i++) {
        bool live = slots[i].incarnation != 0 && !(slots[i].incarnation & CLIENT_FENCED);
        if (live && i != c->slot && slots[i].epoch < epoch)
            return false;
    }
    return certificate(c) >= epoch;
}

static void landed(struct batch_rider *rider, int status)
{
    struct client *c = (struct client *)((char *)rider - offsetof(struct client, rider));
    const uint64_t *f = c->flight;

    if (status != FAR_OK) {
        rider->due = true;
        if (c->certified == NO_EPOCH && status != FAR_FENCED && status != FAR_UNREACHABLE)
            c->lease.lost = c->astray =
                true; /* EPOCH-E5: it may arrive when operations are in flight */
        return;
    }
    if (c->flight_incarnation != c->incarnation)
        return;
    if (f[F_INCARNATION] != c->incarnation) { /* LEASE-L1: fenced, though we thought we had time */
        c->lease.lost = true;
        return;
    }
    if (!c->parked &&
        f[F_CONTROL] >
            c->certified + 1) { /* EPOCH-E1: nobody counts our certificate, or it is damaged */
        c->lease.lost = c->astray = true;
        return;
    }
    c->lease.deadline = c->flight_posted + c->lease_ns;
    /* EPOCH-E2: this flight's look at the version came after the last flight's look at the epoch. */
    for (struct cached *cached = c->caches; cached; cached = cached->next)
        if (cached != c->flight_cached || f[F_VERSION] != cached->version)
            cached->stale = true;
    c->flights++;
    uint64_t before = c->seen;
    c->validated = before;
    /* Of a registry that has grown since we last looked we have not seen all: whoever joined before
     * the epoch was `before` is below the `high` of this flight. */
    if (f[F_CONTROL + 1] > c->high && f[F_CONTROL + 1] <= c->pool->clients) {
        c->high = f[F_CONTROL + 1];
    } else if (c->flight_has_registry) {
        const struct client_slot *slots = (const struct client_slot *)&f[F_REGISTRY];
        if (all_certified(c, slots, (unsigned)c->high, before))
            c->advance_from = before;
        client_watch(c, slots, (unsigned)c->high, before, c->flight_posted);
    }
    if (f[F_CONTROL] > c->seen)
        c->seen = f[F_CONTROL];
    uint64_t sweep = f[F_CONTROL + 3];
    if (!(sweep & SWEEP_ANNOUNCED) || sweep == c->sweep_mine)
        sweep = 0; /* if one was that we did not meet, it was given up */
    if (sweep == 0)
        c->sweep = 0;
    c->sweep_unmet = sweep != c->sweep;
}

/* Has that part of the lease passed since the last heartbeat? */
static bool silent_for(const struct client *c, uint64_t ns)
{
    return c->ep->ops->coarse(c->ep) + c->lease_ns - ns > c->lease.deadline;
}

bool client_heartbeat_due(const struct client *c)
{
    return silent_for(c, c->lease_ns / 8);
}

/* An operation that lasts sends heartbeats, too. */
static void look(struct batch_rider *rider)
{
    struct client *c = (struct client *)((char *)rider - offsetof(struct client, rider));
    rider->flushes = 0;
    rider->due |= client_heartbeat_due(c);
    rider->urgent = silent_for(c, c->lease_ns / 2);
}

void client_ride(struct client *c)
{
    c->rider = (struct batch_rider){.look = look, .board = board, .landed = landed};
}

/* ---- operations ------------------------------------------------------------------------------ */

static void send_flight(struct client *c, struct cached *cached)
{
    if (c->rider.aboard)
        return;
    c->rider.due = true;
    c->flight_cached = cached;
}

#define AWAKE_TURNS 16

/* What comes before anything a client does. */
static int awake_once(struct op *op)
{
    struct client *c = op->client;
    if (client_lapsed(c)) {
        c->lease.lost = true;
        int rc = client_rejoin(op); /* with nothing in flight, nobody need know */
        if (rc != FAR_OK)
            return rc;
    }
    if (c->parked) {
        int rc = client_unpark(op);
        if (rc != FAR_OK)
            return rc;
    }
    if (client_must_complete(c) && !op->recovers)
        (void)client_complete(op); /* whatever comes of it, this client goes on */
    return c->sweep_unmet ? client_meet_sweep(op) : FAR_OK;
}

/* Each of those steps may wait, and meanwhile other operations of the ring go on: so all is looked at
 * again until nothing is left to do. */
static int awake(struct op *op)
{
    const struct client *c = op->client;
    for (unsigned i = 0; i < AWAKE_TURNS; i++) {
        int rc = awake_once(op);
        bool met =
            !c->sweep_unmet || client_has_undone(c); /* or it holds the sweep up (SWEEP-P2) */
        if (rc != FAR_OK || (!client_lapsed(c) && !c->joining && !c->parked && met))
            return rc;
    }
    return err_fail(FAR_FENCED, "this client's lease lapses faster than it can register");
}

int op_begin(struct op *op, struct cached *cached)
{
    struct client *c = op->client;
    if (c->pool->knobs.no_reclaim)
        return FAR_OK;
    int rc = awake(op);
    if (rc != FAR_OK)
        return rc;
    op->epoch = c->validated;
    op->newer = NULL;
    op->older = c->newest;
    if (c->newest)
        c->newest->newer = op;
    else
        c->oldest = op;
    c->newest = op;
    c->rider.flushes = 0;
    if (++c->ops_since_tick >= c->pool->knobs.tick_ops || c->retired_since_tick >= TICK_BYTES ||
        client_heartbeat_due(c))
        send_flight(c, cached);
    return FAR_OK;
}

void op_end(struct op *op)
{
    struct client *c = op->client;
    if (!op_in_flight(op))
        return;
    if (op->older)
        op->older->newer = op->newer;
    else
        c->oldest = op->newer;
    if (op->newer)
        op->newer->older = op->older;
    else
        c->newest = op->older;
    op->older = op->newer = NULL;
}

void client_cache(struct client *c, struct cached *cached)
{
    cached->stale = true;
    cached->next = c->caches;
    c->caches = cached;
}

void client_uncache(struct client *c, struct cached *cached)
{
    struct cached **at = &c->caches;
    while (*at && *at != cached)
        at = &(*at)->next;
    if (*at)
        *at = cached->next;
    if (c->flight_cached == cached)
        c->flight_cached = NULL;
}

int client_drive_epoch(struct op *op)
{
    struct client *c = op->client;
    struct batch *b = &op->batch;

    ASSERT(b->count == 0);
    if (c->drive_ring && !b->on_ring)
        c->drive_ring(c);
    int rc = awake(op); /* also: a sweep cannot go on before we have met it */
    if (rc == FAR_OK && c->suspect >= 0 && !client_recovery_waits(c)) {
        rc = client_recover(op);
        if (rc != FAR_FENCED && client_recovery_waits(c))
            rc = FAR_OK; /* a node that its journal needs may be away: that is not our concern */
        if (rc == FAR_OK)
            rc = awake(op);
    }
    if (rc != FAR_OK)
        return rc;
    if (c->rider.aboard) { /* another operation's batch carries it: let that one come in */
        batch_pause(b, 1000);
        return FAR_OK;
    }
    c->rider.due = true;
    c->hurried = true;
    batch_read(b, NODE0, CONTROL_OFF, op->pool_word, 8);
    return batch_flush(b);
}

int client_park(struct op *op)
{
    struct client *c = op->client;

    ASSERT(c->oldest == NULL && op->batch.count == 0);
    if (client_lapsed(c))
        return FAR_FENCED; /* its next operation will see to it */
    if (c->lines.undone > 0 && !c->inherited && !client_has_stray_writes(c)) {
        /* JOURNAL-J3: it would hold locks for as long as it is idle. Others recover them. (But not if
         * it took its slot with the work: then there was no other slot, and it could not go on.) */
        client_renounce(op);
        return FAR_FENCED;
    }
    if (!client_has_stray_writes(c)) /* EPOCH-E6: until then its heartbeat is kept up, no more */
        c->parked = true;
    c->rider.due = true;
    c->flight_cached = NULL; /* EPOCH-E5: none is found valid, all are stale when this has landed */
    batch_read(&op->batch, NODE0, CONTROL_OFF, op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK) { /* it may yet arrive, when there are operations in flight again */
        c->lease.lost = true;
        c->astray = true;
    }
    return rc;
}

/*
 * Let g be the epoch, read after the call. An operation that was in flight began in g or before, and
 * while it lasts its client certifies no more than that (EPOCH-E2), nor do verbs of it that may still land
 * let it (EPOCH-E6). The epoch gets to g+2 only when all clients have certified g+1.
 */
int client_barrier(struct op *op, unsigned leases)
{
    ASSERT(!op_in_flight(op) && op->batch.count == 0);
    int rc = awake(op);
    if (rc != FAR_OK)
        return rc;
    batch_read(&op->batch, NODE0, CONTROL_OFF, op->pool_word, 8);
    rc = batch_flush(&op->batch);
    return rc == FAR_OK ? client_await_epoch(op, op->pool_word[0] + 2, leases) : rc;
}

int client_await_epoch(struct op *op, uint64_t epoch, unsigned leases)
{
    struct client *c = op->client;
    struct backoff patience = {0};

    while (c->seen < epoch) {
        uint64_t seen = c->seen;
        for (unsigned i = 0; i < 8 && c->seen < epoch; i++) {
            int rc = client_drive_epoch(op);
            if (rc != FAR_OK)
                return rc;
        }
        if (c->seen == seen && !client_backoff(op, &patience, leases))
            return FAR_TIMEOUT;
    }
    return FAR_OK;
}
