/*
 * Leases: telling a dead client from a slow one, and what is done about it.
 *
 * A client that is alive changes its heartbeat several times a lease, by verbs that ride on its
 * operations, also in the middle of a long one. Whoever finds a client in its way (its certificate holds the epoch back, it holds a
 * lock) watches that client's heartbeat with its own clock: unchanged for a lease and a margin for
 * clocks that drift, the client is dead, or as good as. No clock is compared with another. The time
 * between two looks is that from the end of the first to the beginning of the second: the watcher
 * itself may be stopped between a look and its judgement, for as long as it pleases the system.
 *
 *   LEASE-L1  A client writes nothing once its own lease has passed since it posted the last
 *       heartbeat that it knows to have arrived (batch.c asks before every post that writes).
 *       Fabrics that can shut a client out do so besides.
 *
 *   LEASE-L2  A dead client is first fenced: by the fabric where it can, and by a CAS of its slot's
 *       incarnation. Then one client claims the slot, by a CAS that puts its own name there. It
 *       completes or undoes what the slot's journal says, counts the death (the dead client's memory
 *       is for a sweep to find), and frees the slot by another CAS. If it dies before that, its name is
 *       no living client's, and the next one claims the slot from it: by then the fabric has shut it
 *       out. If it cannot go on, it puts nobody's name there, after verbs of its own that failed can
 *       arrive no more (FABRIC-F5). So no two clients recover one at the same time. A recovery belongs to a
 *       registration: it does not go on under another name, and the client registers anew behind it.
 *       A fenced client's certificate does not count any more: a recovery may wait for a barrier.
 *       Completing a journal takes a registered client. If every slot is taken and only slots with
 *       unfinished work are silent, a client that wants to register takes such a slot by a CAS from
 *       the fenced word to its own incarnation: of several, one gets it. It announces itself and
 *       completes the work. If it dies before that, it is a dead client with the same journal.
 *       A client whose lease lapsed in the middle of its own work, and that nobody has fenced, does
 *       the same in its own slot. Its locks name its old incarnation, so others take it for dead.
 *
 *   LEASE-L3  Watching takes WATCH_LEASES leases, so that there is time between the last write that
 *       LEASE-L1 allows and the first reuse. On shared memory this is all there is: a client that
 *       is stopped by the system between the question and the write, for longer than the margin,
 *       can still do harm.
 *
 * An idle client is parked (EPOCH-E5), and its heartbeat kept up by its process. Where nobody does that,
 * it falls silent and is fenced like a dead one; it notices at its next operation, and registers
 * again. An operation that was in flight is tried once more, and returns FAR_FENCED if the lease
 * lapses again.
 */
#include "pool/pool.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WATCH_LEASES(ns) ((ns) + (ns) / 2)
#define FENCE_PAUSE_NS   20000

int client_registry(struct op *op, struct client_slot **slots)
{
    uint32_t bytes = op->pool->clients * (uint32_t)sizeof **slots;
    struct client_slot *image = op_buffer(op, BUF_POOL, bytes);
    if (!image)
        return FAR_NO_MEMORY;
    batch_read(&op->batch, NODE0, CLIENTS_OFF, image, bytes);
    *slots = image;
    return batch_flush(&op->batch);
}

/* Is an owner word that of the client whose slot says this? (A slot that is free says 0, and so does an
 * owner word that names nobody.) */
static bool owner_lives(uint64_t incarnation, uint64_t owner_word)
{
    return incarnation != 0 && !(incarnation & CLIENT_FENCED) &&
           ((incarnation ^ owner_word) & OWNER_INCARNATION) == 0;
}

/* Is the slot being recovered, by another client that is alive or by a sibling of the operation? */
static bool in_repair(const struct client *c, const struct client_slot *slots, unsigned count,
                      unsigned slot)
{
    uint64_t word = slots[slot].incarnation;
    unsigned by = word & OWNER_SLOT;
    if (!(word & CLIENT_FENCED) || !(word & CLIENT_REPAIRED))
        return false;
    if (by == c->slot)
        return c->watch[slot].repairing;
    return by < count && owner_lives(slots[by].incarnation, word);
}

bool client_watch(struct client *c, const struct client_slot *slots, unsigned count, uint64_t epoch,
                  uint64_t asked)
{
    uint64_t now = c->ep->ops->coarse(c->ep);
    bool doubtful = false;
    for (unsigned i = 0; i < count; i++) {
        const struct client_slot *s = &slots[i];
        struct watch *w = &c->watch[i];
        bool waits = epoch == NO_EPOCH || s->epoch < epoch || (s->incarnation & CLIENT_FENCED);
        if (s->incarnation == 0 || i == c->slot || !waits)
            continue;
        if (w->incarnation != s->incarnation || w->heartbeat != s->heartbeat) {
            doubtful |= w->incarnation != s->incarnation; /* else it is alive: it moved */
            if (c->suspect == (int)i)
                c->suspect = -1; /* that was another */
            w->incarnation = s->incarnation;
            w->heartbeat = s->heartbeat;
            w->since = now;
        } else if (in_repair(c, slots, count, i)) {
            doubtful = true;
        } else if ((s->incarnation & CLIENT_FENCED) ||
                   s->heartbeat == client_slot_renounced(s->incarnation) ||
                   (asked > w->since && asked - w->since > WATCH_LEASES(c->lease_ns))) {
            c->suspect = (int)i;
            return true;
        } else {
            doubtful = true;
        }
    }
    return doubtful;
}

/* A sweep whose sweeper is dead is over, as if it had given it up: until then nobody uses memory
 * below its mark, and all would take new chunks until there is none. What it had in hand is lost,
 * which the count of deaths says. */
static int end_sweep(struct op *op, unsigned slot)
{
    const uint64_t delta = CONTROL_OFF + offsetof(struct pool_control, sweep);
    batch_read(&op->batch, NODE0, delta, op->pool_word, 8);
    batch_fence(&op->batch);
    batch_read(&op->batch, NODE0, slot_delta(slot), op->pool_word + 1, 8);
    int rc = batch_flush(&op->batch);
    uint64_t sweep = op->pool_word[0];
    /* If the slot is fenced, any client of the slot that had announced a sweep is dead. */
    if (rc != FAR_OK || sweep == 0 || (sweep & OWNER_SLOT) != slot ||
        !(op->pool_word[1] & CLIENT_FENCED))
        return rc;
    batch_cas(&op->batch, NODE0, delta, sweep, 0, op->pool_word);
    return batch_flush(&op->batch);
}

/* Nodes that do not answer must not hold up those that do. So the fabric does not wait for them,
 * and a fiber leaves the thread to others meanwhile. FAB_PENDING only if it is not to wait. */
static int fence_out(struct op *op, uint64_t incarnation, bool wait)
{
    struct client *c = op->client;
    struct fab_ep *ep = c->ep;
    int rc = ep->ops->fence ? ep->ops->fence(ep, incarnation) : FAR_OK;
    while (rc == FAB_PENDING && wait) { /* until the fabric's time-out at most */
        batch_pause(&op->batch, FENCE_PAUSE_NS);
        if (op->batch.rider && client_heartbeat_due(c)) { /* which may be longer than our lease */
            c->rider.due = true;
            batch_read(&op->batch, NODE0, CONTROL_OFF, op->pool_word, 8);
            rc = batch_flush(&op->batch);
            if (rc != FAR_OK)
                return rc;
        }
        rc = ep->ops->fence(ep, incarnation);
    }
    return rc;
}

/* LEASE-L2: a client that is not registered cannot complete anything. It takes the slot, and the journal
 * with it. */
static int inherit(struct op *op, unsigned slot, uint64_t fenced)
{
    struct client *c = op->client;
    c->slot = slot; /* after an error perhaps, too: renew() finds out */
    c->unannounced = true;
    c->inherited = true;
    c->complete_after = 0;
    c->taken_at = c->ep->ops->coarse(c->ep);
    batch_cas(&op->batch, NODE0, slot_delta(slot), fenced, c->incarnation, op->pool_word);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK && op->pool_word[0] != fenced) { /* another client was faster */
        c->slot = NO_SLOT;
        c->inherited = false;
    }
    c->reaped += rc == FAR_OK && c->slot == slot;
    return rc;
}

int client_complete(struct op *op)
{
    struct client *c = op->client;
    c->complete_after = c->ep->ops->coarse(c->ep) + c->lease_ns;
    bool outer = client_begin_recovery(op);
    int rc = journal_complete(op);
    client_end_recovery(op, outer);
    if (rc == FAR_OK)
        c->inherited = false;
    return rc;
}

/* Shuts the client out whose slot says `*word`. Afterwards that is what the slot says, if the client is
 * to be recovered by this one, and 0 if not. */
static int shut_out(struct op *op, unsigned slot, bool wait, uint64_t *word)
{
    struct client *c = op->client;
    uint64_t incarnation = *word & ~CLIENT_FENCED, fenced = *word | CLIENT_FENCED;
    bool alive = false;
    int rc = FAR_OK;

    if ((*word & CLIENT_REPAIRED) == 0 || (*word & CLIENT_FENCED) == 0) {
        rc = fence_out(op, incarnation, wait);
        if (rc != FAR_OK)
            return rc;
        batch_cas(&op->batch, NODE0, slot_delta(slot), incarnation, fenced, op->pool_word);
    } else {
        batch_read(&op->batch, NODE0, slot_delta(slot), op->pool_word, 8);
    }
    rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    *word = op->pool_word[0] == incarnation ? fenced : op->pool_word[0];
    if (!(*word & CLIENT_FENCED)) {
        *word = 0; /* it left, or came back as another, or was recovered */
    } else if (*word & CLIENT_REPAIRED) {
        if (c->slot != NO_SLOT &&
            (*word & (OWNER_INCARNATION | OWNER_SLOT)) == client_owner_word(c))
            alive = c->watch[slot].repairing;
        else
            rc = client_owner_alive(op, *word, &alive);
        if (alive)
            *word = 0;
    }
    return rc;
}

/* Counted before the slot is free, so that no death goes uncounted; perhaps twice. The rest of the slot
 * stays as it is: it may be another's already, if we are not the first. */
static int count_death(struct op *op, unsigned slot)
{
    batch_faa(&op->batch, NODE0, CONTROL_OFF + offsetof(struct pool_control, deaths), 1,
              op->pool_word);
    int rc = batch_flush(&op->batch);
    return rc == FAR_OK ? end_sweep(op, slot) : rc;
}

/* Frees the slot, if it still says `word`. */
static int free_slot(struct op *op, unsigned slot, uint64_t word)
{
    struct client *c = op->client;
    batch_cas(&op->batch, NODE0, slot_delta(slot), word, 0, op->pool_word);
    int rc = batch_flush(&op->batch);
    c->reaped += rc == FAR_OK && op->pool_word[0] == word;
    return rc;
}

/* A recovery has failed. Others may go on with it when verbs of ours that failed cannot arrive any
 * more. If that cannot be said to them, this client gives up its registration, which says it, too: under
 * another name in the same slot it would say so too early. */
static void give_up_claim(struct op *op, unsigned slot, uint64_t mine)
{
    struct client *c = op->client;
    while (client_has_stray_writes(c) && !client_lapsed(c)) {
        batch_pause(&op->batch, c->lease_ns / 16);
        c->rider.due |= client_heartbeat_due(c);
        batch_read(&op->batch, NODE0, CONTROL_OFF, op->pool_word, 8);
        if (batch_flush(&op->batch) != FAR_OK)
            break;
    }
    if (!client_has_stray_writes(c)) {
        if (client_lapsed(c))
            return;
        batch_cas(&op->batch, NODE0, slot_delta(slot), mine, CLIENT_FENCED | CLIENT_REPAIRED,
                  op->pool_word);
        if (batch_flush(&op->batch) == FAR_OK)
            return;
    }
    client_renounce(op);
}

/* Puts this client's name into a slot that says `word`; also if that is its name already, for a sibling
 * may have freed the slot since that was read. */
static int claim(struct op *op, unsigned slot, uint64_t word, uint64_t mine, bool *claimed)
{
    batch_cas(&op->batch, NODE0, slot_delta(slot), word, mine, op->pool_word);
    int rc = batch_flush(&op->batch);
    *claimed = rc == FAR_OK && op->pool_word[0] == word;
    return rc;
}

/* Recovers a client that is shut out, by its slot's word. */
static int recover_claimed(struct op *op, unsigned slot, uint64_t word)
{
    struct client *c = op->client;
    uint64_t mine = CLIENT_FENCED | CLIENT_REPAIRED | client_owner_word(c);
    unsigned registration = c->lines.registration;
    bool claimed = false;
    if (c->watch[slot].repairing)
        return FAR_OK; /* a sibling was faster */
    c->watch[slot].repairing = true;
    bool outer = client_begin_recovery(op);
    int rc = claim(op, slot, word, mine, &claimed);
    if (claimed)
        rc = journal_recover(op, slot);
    if (claimed && rc == FAR_OK)
        rc = count_death(op, slot);
    if (claimed && rc == FAR_OK)
        rc = free_slot(op, slot, mine);
    bool perhaps = claimed || rc != FAR_UNREACHABLE; /* nobody knows, but for that (FABRIC-F5) */
    if (rc != FAR_OK && perhaps && registration == c->lines.registration)
        give_up_claim(op, slot, mine);
    client_end_recovery(op, outer);
    c->watch[slot].repairing = false;
    return rc;
}

static int recover(struct op *op, bool wait)
{
    struct client *c = op->client;
    unsigned slot = (unsigned)c->suspect, lines = 0;
    uint64_t word = c->watch[slot].incarnation;

    c->suspect = -1;
    int rc = shut_out(op, slot, wait, &word);
    if (rc == FAB_PENDING) {
        c->suspect = (int)slot; /* goes on with the next operation */
        return FAR_OK;
    }
    if (rc != FAR_OK || word == 0)
        return rc;
    bool registers = op->batch.rider == NULL; /* it is this operation that registers the client */
    if (!registers && (c->joining || c->slot == NO_SLOT))
        return FAR_OK; /* a sibling does, and under which name this would be done nobody knows */
    if (!registers) {
        rc = recover_claimed(op, slot, word);
        if (rc != FAR_OK)
            c->recover_after = c->ep->ops->coarse(c->ep) + c->lease_ns / 4;
        return rc;
    }
    bool known = journal_pending(op, slot, &lines) == FAR_OK;
    rc = count_death(op, slot);
    if (rc != FAR_OK)
        return rc;
    return lines > 0 || !known ? inherit(op, slot, word) : free_slot(op, slot, word);
}

int client_recover(struct op *op)
{
    return recover(op, true);
}

int client_try_recover(struct op *op)
{
    return recover(op, false);
}

int client_owner_alive(struct op *op, uint64_t owner_word, bool *alive)
{
    unsigned slot = owner_word & OWNER_SLOT;
    if (slot >= op->pool->clients) {
        *alive = false;
        return FAR_OK;
    }
    batch_read(&op->batch, NODE0, slot_delta(slot), op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        *alive = owner_lives(op->pool_word[0], owner_word);
    return rc;
}

int client_bytes(struct op *op, uint64_t *retired, uint64_t *held)
{
    struct client_slot *slots = NULL;
    int rc = client_registry(op, &slots);
    *retired = op->client->retired_bytes;
    *held = op->client->held_bytes;
    for (unsigned i = 0; i < op->pool->clients && rc == FAR_OK; i++) {
        if (slots[i].incarnation == 0 || i == op->client->slot)
            continue;
        *retired += slots[i].retired_bytes;
        *held += slots[i].held_bytes;
    }
    return rc;
}

/* Crosses out who has moved since; how many are left. */
static unsigned still_silent(const struct client *c, struct client_slot *first,
                             const struct client_slot *now, unsigned count)
{
    unsigned left = 0;
    for (unsigned i = 0; i < count; i++) {
        if (i == c->slot || first[i].incarnation != now[i].incarnation ||
            first[i].heartbeat != now[i].heartbeat)
            first[i].incarnation = 0;
        left += first[i].incarnation != 0;
    }
    return left;
}

int client_find_silent(struct op *op,
                       void (*each)(void *arg, unsigned slot, const struct client_slot *s),
                       void *arg)
{
    struct client *c = op->client;
    unsigned clients = op->pool->clients, left = 1;
    uint64_t since = 0, waited = 0, watch = WATCH_LEASES(c->lease_ns);
    struct client_slot *first = malloc(clients * sizeof *first);
    int rc = first ? FAR_OK : err_fail(FAR_NO_MEMORY, "no memory for the registry");

    for (unsigned turn = 0; rc == FAR_OK && left > 0 && waited <= watch && turn < 48; turn++) {
        struct client_slot *now = NULL;
        rc = op_begin(op, NULL); /* our own lease goes on meanwhile */
        if (rc != FAR_OK)
            break;
        uint64_t asked = c->ep->ops->coarse(c->ep);
        rc = client_registry(op, &now);
        op_end(op);
        if (rc != FAR_OK)
            break;
        if (turn == 0) {
            memcpy(first, now, clients * sizeof *first);
            asked = since = c->ep->ops->coarse(c->ep);
        }
        left = still_silent(c, first, now, clients);
        waited = asked - since;
        rc = client_progress(c, "watching for silent sessions", waited, watch);
        if (rc == FAR_OK && left > 0)
            batch_pause(&op->batch, c->lease_ns / 16);
    }
    for (unsigned i = 0; i < clients && rc == FAR_OK; i++)
        if (first[i].incarnation != 0)
            each(arg, i, &first[i]);
    free(first);
    return rc;
}

int client_reap_dead(struct op *op, unsigned *dead)
{
    struct client *c = op->client;
    unsigned clients = op->pool->clients;
    unsigned before = c->reaped;
    uint64_t began = c->ep->ops->coarse(c->ep);
    *dead = 0;
    /* Two looks, a watch apart, tell the silent ones; each that is found is recovered: 24 turns,
     * and one for each of them. Both looks are of now: that it moved since we last looked, whenever
     * that was, says nothing. */
    for (unsigned i = 0; i < clients; i++)
        c->watch[i].incarnation = 0;
    c->suspect = -1;
    for (unsigned turn = 0; turn < 48 + clients; turn++) {
        uint64_t waited = c->ep->ops->coarse(c->ep) - began, watch = WATCH_LEASES(c->lease_ns);
        int rc = c->reaped > before ? client_progress(c, "clearing dead sessions away",
                                                      c->reaped - before, clients)
                                    : client_progress(c, "watching for silent sessions",
                                                      waited < watch ? waited : watch, watch);
        if (rc == FAR_OK)
            rc = client_drive_epoch(op); /* our own lease goes on meanwhile */
        if (rc != FAR_OK)
            return rc;
        struct client_slot *slots = NULL;
        uint64_t asked = c->ep->ops->coarse(c->ep);
        rc = client_registry(op, &slots);
        if (rc != FAR_OK)
            return rc;
        bool doubtful = client_watch(c, slots, clients, NO_EPOCH, asked);
        if (c->suspect >= 0) {
            unsigned reaped = c->reaped;
            rc = client_recover(op);
            if (rc != FAR_OK)
                return rc;
            if (c->reaped > reaped)
                continue; /* the others have been silent for as long: no need to wait */
        }
        if (!doubtful)
            break;
        batch_pause(&op->batch, c->lease_ns / 16);
    }
    *dead = c->reaped - before;
    return FAR_OK;
}
