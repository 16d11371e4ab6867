/* When the pool is full: getting back memory that waits for its epoch, that others hold, or that
 * was lost. */
#include "pool/pool_internal.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Free memory of other sizes that makes it worth looking for chunks in which nothing is in use. */
#define RECUT_BYTES (8 * CHUNK_BYTES)

/*
 *   RELIEF-1  Of the sessions of a process one watches for clients that died idle, or sweeps to cut
 *       memory again, and the others know that it was tried a short while ago. What it finds is
 *       for all. A session that watches announces itself rarely: dozens of them would hold up the
 *       epochs that all of them wait for.
 *   RELIEF-2  If an operation needs a line of the journal, and there is no memory to make one, it
 *       waits for one that its client has (JOURNAL-J1: there is at least one on each node). A
 *       sibling gives it back, or it is recovered: the client has left it, or found it in its slot.
 *       If none becomes free in time, memory for another one is looked for.
 */
#define RECUT_LEASES 2 /* between two sweeps that only cut memory again, unless much was freed */
#define REAP_LEASES  8 /* between two watches for dead clients */
#define LINE_LEASES  4 /* a recovery may wait until clients that died are found */

struct relief {
    _Atomic uint64_t reap_after;  /* when dead clients may be watched for again */
    _Atomic uint64_t recut_after; /* when a sweep may be made that only cuts memory again */
};

/* Is it too early? A time that is more than `ns` ahead is of a clock that was set back since. */
static bool is_early(uint64_t now, uint64_t due, uint64_t ns)
{
    return now < due && due - now <= ns;
}

/* Is it time? Then the next time is `ns` later. */
static bool is_due(_Atomic uint64_t *after, uint64_t now, uint64_t ns)
{
    uint64_t due = atomic_load(after);
    return !is_early(now, due, ns) && atomic_compare_exchange_strong(after, &due, now + ns);
}

/* FAR_POOL_FULL if the epochs do not move: waiting has not helped. */
static int await_epoch(struct op *op, uint64_t epoch)
{
    int rc = client_await_epoch(op, epoch, 4);
    return rc == FAR_TIMEOUT ? FAR_POOL_FULL : rc;
}

/* Waits until retired objects may be reused: until one of them serves, or until all may that had
 * been retired when this began. */
static int relieve_by_epochs(struct op *op)
{
    struct client *c = op->client;
    const struct limbo *l = &c->stock.limbo;
    if (l->count == 0)
        return FAR_POOL_FULL;
    uint64_t last = l->ring[(l->head + l->count - 1) & (l->room - 1)].reuse_at;
    int rc = FAR_OK;
    do {
        rc = await_epoch(op, l->ring[l->head].reuse_at);
        (void)client_reclaim(c);
    } while (rc == FAR_OK && l->count > 0 && l->ring[l->head].reuse_at <= last &&
             !stock_serves(c, c->stock.wanted));
    return rc;
}

/* Other clients hold memory that waits for its epoch, or more free memory than they need. When the
 * epoch has gone on, they will have passed it on, and dead clients will have been found. But no
 * epoch waits for clients that died idle: these are looked for, though not every time. */
static int relieve_by_others(struct op *op, struct relief *r)
{
    struct client *c = op->client;
    uint64_t retired = 0, held = 0, now = client_now(c);
    unsigned dead = 0;
    int rc = client_bytes(op, &retired, &held);
    if (rc != FAR_OK)
        return rc;
    if (retired + held - c->stock.retired_bytes - c->stock.held_bytes < CHUNK_BYTES)
        return FAR_POOL_FULL;
    rc = await_epoch(op, c->epoch.seen + 3);
    if (rc != FAR_OK || !is_due(&r->reap_after, now, REAP_LEASES * c->lease_ns))
        return rc;
    rc = client_reap_dead(op, &dead);
    if (rc != FAR_OK)
        atomic_store(&r->reap_after, now); /* others may */
    return rc;
}

/* RELIEF-2. FAR_POOL_FULL: none became free. */
static int await_line(struct op *op)
{
    int rc = FAR_OK;
    while (rc == FAR_OK && journal_lacks_line(op) &&
           client_backoff(op, &op->line_patience, LINE_LEASES))
        rc = client_drive_epoch(op);
    if (rc == FAR_OK && journal_lacks_line(op))
        rc = FAR_POOL_FULL;
    op->lacks_line = 0;
    return rc;
}

static int read_sweep(struct op *op, uint64_t *word)
{
    batch_read(&op->batch, NODE0, SWEEP_DELTA, op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    *word = op->pool_word[0];
    return rc;
}

/* Waits for the end of another client's sweep. It reads the pool's word: a client that sweeps puts
 * its name there before it announces the sweep, and may die before that. *orphaned: that client
 * died before its sweep ended, and this one can take over. */
static int await_sweep(struct op *op, bool *orphaned)
{
    struct client *c = op->client;
    struct backoff patience = {0};
    bool alive = true;
    uint64_t sweep = 0;
    int rc = FAR_OK;
    do {
        rc = client_drive_epoch(op);
        if (rc == FAR_OK)
            rc = read_sweep(op, &sweep);
        if (rc == FAR_OK && sweep != 0 && !client_has_undone(c)) /* SWEEP-P2 */
            rc = client_owner_alive(op, sweep, &alive);
    } while (rc == FAR_OK && alive && client_backoff(op, &patience, 10) &&
             (sweep != 0 || c->sweep.met || c->attention.sweep_unmet));
    *orphaned = rc == FAR_OK && !alive;
    return rc;
}

/* Bytes that a sweep would find with clients: what is free there, and what parked clients have
 * retired, which they do not pass on before they are used again. */
static int unused_bytes(struct op *op, uint64_t *bytes)
{
    struct client_slot *slots = NULL;
    int rc = client_registry(op, &slots);
    *bytes = op->client->stock.held_bytes;
    for (unsigned i = 0; i < op->pool->clients && rc == FAR_OK; i++) {
        if (slots[i].incarnation == 0 || i == op->client->slot)
            continue;
        *bytes += slots[i].held_bytes;
        if (slots[i].epoch == NO_EPOCH)
            *bytes += slots[i].retired_bytes;
    }
    return rc;
}

/* Has a client died, or has this one lost something, since the last sweep? Or is there memory that
 * is free, but cut for other sizes? It could be cut again (SWEEP-P5), but this is not tried every
 * time. */
static int sweep_is_worth_it(struct op *op, struct relief *r, bool *worth)
{
    struct client *c = op->client;
    uint64_t now = client_now(c), pause = RECUT_LEASES * c->lease_ns, listed = 0, held = 0;
    batch_read(&op->batch, NODE0, DEATHS_DELTA, op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    *worth = rc == FAR_OK && (op->pool_word[0] != 0 || c->stock.lost_bytes != 0);
    if (rc != FAR_OK || *worth ||
        (is_early(now, atomic_load(&r->recut_after), pause) &&
         c->stock.retired_ever - c->stock.recut_at < RECUT_BYTES))
        return rc;
    rc = unused_bytes(op, &held);
    if (rc == FAR_OK && held < RECUT_BYTES)
        rc = freelist_bytes(op, RECUT_BYTES, &listed);
    *worth = rc == FAR_OK && held + listed >= RECUT_BYTES;
    if (*worth) {
        stock_note_recut(c);
        atomic_store(&r->recut_after, now + pause);
    }
    return rc;
}

/* Does a client stand still whose process lives? As long as it does, no epoch and no sweep comes to
 * its end (LEASE-L4). What is known of it may be old, so this looks again. */
static bool held_up(struct op *op)
{
    const struct client *c = op->client;
    return c->watch.still >= 0 && client_drive_epoch(op) == FAR_OK && c->watch.still >= 0;
}

/* What takes long: others' memory, dead clients, a sweep. */
static int relieve_by_all(struct op *op, struct relief *r)
{
    struct client *c = op->client;
    struct sweep_result swept = {0};
    bool sweeps = false;
    int rc = FAR_OK;
    if (c->sweep.met || c->attention.sweep_unmet) {
        rc = await_sweep(op, &sweeps);
        if (!sweeps)
            return rc;
    } else {
        rc = sweep_is_worth_it(op, r, &sweeps);
        if (!sweeps)
            return rc == FAR_OK ? relieve_by_others(op, r) : rc;
    }
    uint64_t lost = c->stock.lost_bytes; /* the sweep may miss what is lost from here on */
    rc = pool_sweep(op, &swept);
    if (rc == FAR_CONTENTION)
        return await_sweep(op, &sweeps);
    if (rc == FAR_OK)
        client_loss_found(c, lost);
    return rc == FAR_OK && swept.objects == 0 ? FAR_POOL_FULL : rc;
}

struct relief *pool_relief_open(unsigned processes)
{
    return calloc(processes, sizeof(struct relief));
}

void pool_relief_close(struct relief *relief)
{
    free(relief);
}

int pool_make_room(struct op *op, bool again)
{
    ASSERT(!op_in_flight(op) && op->batch.count == 0);
    if (!again)
        op->line_patience = (struct backoff){0};
    int rc = op->lacks_line != 0 ? await_line(op) : FAR_POOL_FULL;
    if (rc != FAR_POOL_FULL)
        return rc;
    if (held_up(op))
        return client_reclaim(op->client) ? FAR_OK : FAR_POOL_FULL;
    if (op->pool->settle)
        (void)op->pool->settle(op->pool->tables, op); /* if it fails, try the other ways */
    rc = relieve_by_epochs(op);
    if (rc != FAR_POOL_FULL)
        return rc;
    struct relief alone = {0}, *all = op->pool->relief;
    return relieve_by_all(op, all ? &all[op->batch.ep->process] : &alone);
}
