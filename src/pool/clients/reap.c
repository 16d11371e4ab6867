/* Finding clients that are silent, even if they hold nobody up: when memory or slots are short, and
 * when a pool is checked. */
#include "pool/pool_internal.h"

#include <stdlib.h>
#include <string.h>

static enum fab_life life_of(const struct client *c, const struct client_slot *s)
{
    const struct fab_ops *ops = c->ep->ops;
    return ops->life ? ops->life(c->ep, s->incarnation, s->witness) : FAB_LIFE_UNKNOWN;
}

/* Does a client that is silent count as dead? LEASE-L5 */
static bool counts_as_dead(const struct client *c, const struct client_slot *s)
{
    return !c->pool->waits || (s->incarnation & CLIENT_FENCED) ||
           s->heartbeat == client_slot_renounced(s->incarnation) || life_of(c, s) == FAB_DEAD;
}

/* Removes the clients whose heartbeat has moved since, or whose process lives (LEASE-L4). Returns
 * of how many it is not known yet whether they are dead. */
static unsigned still_silent(const struct client *c, struct client_slot *first,
                             const struct client_slot *now, unsigned count)
{
    unsigned left = 0;
    for (unsigned i = 0; i < count; i++) {
        enum fab_life life = FAB_LIFE_UNKNOWN;
        if (i == c->slot || first[i].incarnation != now[i].incarnation ||
            first[i].heartbeat != now[i].heartbeat)
            first[i].incarnation = 0;
        if (first[i].incarnation != 0)
            life = life_of(c, &now[i]);
        if (life == FAB_ALIVE)
            first[i].incarnation = 0;
        left += first[i].incarnation != 0 && life == FAB_LIFE_UNKNOWN;
    }
    return left;
}

int client_find_silent(struct op *op,
                       void (*each)(void *arg, unsigned slot, const struct client_slot *s,
                                    bool dead),
                       void *arg)
{
    struct client *c = op->client;
    unsigned clients = op->pool->clients, left = 1;
    uint64_t since = 0, waited = 0, watch = WATCH_LEASES(c->lease_ns);
    struct client_slot *first = malloc(clients * sizeof *first);
    int rc = first ? FAR_OK : err_fail(FAR_NO_MEMORY, "no memory for the registry");

    for (unsigned turn = 0; rc == FAR_OK && left > 0 && waited <= watch && turn < 48; turn++) {
        struct client_slot *now = NULL;
        rc = op_begin(op, NULL); /* keeps up our own lease */
        if (rc != FAR_OK)
            break;
        uint64_t asked = client_now(c);
        rc = client_registry(op, &now);
        op_end(op);
        if (rc != FAR_OK)
            break;
        if (turn == 0) {
            memcpy(first, now, clients * sizeof *first);
            asked = since = client_now(c);
        }
        left = still_silent(c, first, now, clients);
        waited = asked - since;
        rc = client_progress(c, "watching for silent sessions", waited, watch);
        if (rc == FAR_OK && left > 0)
            batch_pause(&op->batch, c->lease_ns / 16);
    }
    for (unsigned i = 0; i < clients && rc == FAR_OK; i++)
        if (first[i].incarnation != 0)
            each(arg, i, &first[i], counts_as_dead(c, &first[i]));
    free(first);
    return rc;
}

int client_reap_dead(struct op *op, unsigned *dead)
{
    struct client *c = op->client;
    unsigned clients = op->pool->clients;
    unsigned before = c->watch.reaped;
    uint64_t began = client_now(c);
    *dead = 0;
    /* Two looks, WATCH_LEASES apart, find the silent clients: 24 turns of a sixteenth of a lease.
     * Each client found is recovered, in a turn of its own. Both looks must be after the call: that
     * a heartbeat has moved since some earlier look says nothing. */
    client_watch_again(c);
    for (unsigned turn = 0; turn < 48 + clients; turn++) {
        uint64_t waited = client_now(c) - began, watch = WATCH_LEASES(c->lease_ns);
        int rc = c->watch.reaped > before ? client_progress(c, "removing dead sessions",
                                                            c->watch.reaped - before, clients)
                                          : client_progress(c, "watching for silent sessions",
                                                            waited < watch ? waited : watch, watch);
        if (rc == FAR_OK)
            rc = client_drive_epoch(op); /* keeps up our own lease */
        if (rc != FAR_OK)
            return rc;
        struct client_slot *slots = NULL;
        uint64_t asked = client_now(c);
        rc = client_registry(op, &slots);
        if (rc != FAR_OK)
            return rc;
        bool doubtful = client_watch(c, slots, clients, NO_EPOCH, asked);
        if (c->watch.suspect >= 0) {
            unsigned reaped = c->watch.reaped;
            rc = client_recover(op);
            if (rc != FAR_OK && rc != FAR_TIMEOUT)
                return rc;
            doubtful |= rc == FAR_TIMEOUT; /* it waits for others: again, a little later */
            if (c->watch.reaped > reaped)
                continue; /* the others have been silent for as long: no need to wait */
        }
        if (!doubtful)
            break;
        batch_pause(&op->batch, c->lease_ns / 16);
    }
    *dead = c->watch.reaped - before;
    return FAR_OK;
}
