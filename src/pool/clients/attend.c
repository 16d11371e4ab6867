/*
 * Attending to the client: what must be done before an operation begins, and what drives the epoch.
 *
 * Each step may wait for other operations of the ring, or for other clients.
 */
#include "pool/pool_internal.h"

#define ATTEND_TURNS 16

/* Does once what must be done before an operation begins. */
static int attend_once(struct op *op)
{
    struct client *c = op->client;
    if (client_lapsed(c)) {
        c->attention.lease_lost = true;
        int rc = client_rejoin(op); /* with nothing in flight, the caller does not notice */
        if (rc != FAR_OK)
            return rc;
    }
    if (c->attention.parked) {
        int rc = client_unpark(op);
        if (rc != FAR_OK)
            return rc;
    }
    if (client_must_complete(c) && !op->recovers)
        (void)client_complete(op); /* even if it fails, this client goes on */
    return c->attention.sweep_unmet ? client_meet_sweep(op) : FAR_OK;
}

/* Each of those steps may wait, and meanwhile other operations of the ring go on. So this repeats
 * them until nothing is left to do. */
int client_attend(struct op *op)
{
    const struct client *c = op->client;
    ASSERT(op->batch.count == 0);
    for (unsigned i = 0; i < ATTEND_TURNS; i++) {
        int rc = attend_once(op);
        /* A client with work undone does not meet the sweep, but holds it up (SWEEP-P2). */
        bool met = !c->attention.sweep_unmet || client_has_undone(c);
        if (rc != FAR_OK ||
            (!client_lapsed(c) && !c->attention.joining && !c->attention.parked && met))
            return rc;
    }
    return err_fail(FAR_FENCED, "this client's lease lapses faster than it can register again");
}

int client_drive_epoch(struct op *op)
{
    struct client *c = op->client;
    struct batch *b = &op->batch;

    ASSERT(b->count == 0);
    if (c->drive_ring && !b->on_ring)
        c->drive_ring(c);
    int rc = client_attend(op); /* a sweep cannot go on before we have met it */
    if (rc == FAR_OK && c->watch.suspect >= 0) {
        unsigned slot = (unsigned)c->watch.suspect;
        rc = client_recover(op);
        if (rc != FAR_FENCED && client_recovery_waits(c, slot))
            rc = FAR_OK; /* a node that its journal needs may be unreachable: it waits, we go on */
        if (rc == FAR_OK)
            rc = client_attend(op);
    }
    if (rc != FAR_OK)
        return rc;
    if (c->epoch.announcement.posted) { /* another operation's batch carries it: wait for that */
        batch_pause(b, 1000);
        return FAR_OK;
    }
    client_hurry_epoch(c);
    batch_read(b, NODE0, CONTROL_OFF, op->pool_word, 8);
    return batch_flush(b);
}

int client_park(struct op *op)
{
    struct client *c = op->client;

    ASSERT(c->epoch.oldest == NULL && op->batch.count == 0);
    if (client_lapsed(c))
        return FAR_FENCED; /* its next operation registers it again */
    if (c->attention.undone > 0 && !c->attention.inherited && !client_has_stray_writes(c)) {
        /* JOURNAL-J3: it would hold locks for as long as it is idle, so others recover them. (Not
         * if it took its slot with the work: then there was no other slot, and it could not
         * register.) */
        client_renounce(op);
        return FAR_FENCED;
    }
    /* JOURNAL-J5. If a node is unreachable, the next heartbeat tries again. */
    (void)journal_blank_spent(op);
    client_finish(c);
    if (!client_has_stray_writes(c)) /* EPOCH-E6: else this only sends a heartbeat */
        c->attention.parked = true;
    client_announce_parked(c);
    batch_read(&op->batch, NODE0, CONTROL_OFF, op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    client_finish(c);
    if (rc != FAR_OK) { /* it may land later, when operations are in flight again */
        c->attention.lease_lost = true;
        c->must_leave_slot = true;
    }
    return rc;
}

/*
 * Let g be the epoch, read after the call. An operation that was in flight then began in g or
 * before. While it lasts, or while verbs of it may still land (EPOCH-E6), its client certifies no
 * more than g (EPOCH-E2). The epoch gets to g+2 only when all clients have certified g+1.
 */
int client_epoch_now(struct op *op, uint64_t *epoch)
{
    ASSERT(op->batch.count == 0);
    batch_read(&op->batch, NODE0, CONTROL_OFF, op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        *epoch = op->pool_word[0];
    return rc;
}

int client_barrier(struct op *op, unsigned leases)
{
    ASSERT(!op_in_flight(op) && op->batch.count == 0);
    uint64_t epoch = 0;
    int rc = client_attend(op);
    if (rc == FAR_OK)
        rc = client_epoch_now(op, &epoch);
    return rc == FAR_OK ? client_await_epoch(op, epoch + 2, leases) : rc;
}

int client_await_epoch(struct op *op, uint64_t epoch, unsigned leases)
{
    struct client *c = op->client;
    struct backoff patience = {0};

    ASSERT(!op_in_flight(op));
    while (c->epoch.seen < epoch) {
        uint64_t seen = c->epoch.seen;
        for (unsigned i = 0; i < 8 && c->epoch.seen < epoch; i++) {
            int rc = client_drive_epoch(op);
            if (rc != FAR_OK)
                return rc;
        }
        if (c->epoch.seen == seen && !client_backoff(op, &patience, leases))
            return FAR_TIMEOUT;
    }
    return FAR_OK;
}
