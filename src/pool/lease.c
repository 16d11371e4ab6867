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
#include "pool/pool_internal.h"

#define FENCE_PAUSE_NS 20000

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
        if (op->batch.policy->piggyback &&
            client_heartbeat_due(c)) { /* which may be longer than our lease */
            c->epoch.announcement.due = true;
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
    c->attention.inherited = true;
    c->complete_after = 0;
    c->taken_at = client_now(c);
    batch_cas(&op->batch, NODE0, slot_delta(slot), fenced, c->incarnation, op->pool_word);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK && op->pool_word[0] != fenced) { /* another client was faster */
        c->slot = NO_SLOT;
        c->attention.inherited = false;
    }
    c->watch.reaped += rc == FAR_OK && c->slot == slot;
    return rc;
}

/* Brackets a recovery, which may be within another: whether it is, the one returns and the other is
 * given. It belongs to the client's registration, though it is not an operation in flight: while it lasts,
 * the client does not register again. */
static bool begin_recovery(struct op *op)
{
    bool outer = op->recovers;
    op->client->watch.recoveries += !outer;
    op->recovers = true;
    return outer;
}

static void end_recovery(struct op *op, bool outer)
{
    op->client->watch.recoveries -= !outer;
    op->recovers = outer;
}

int client_complete(struct op *op)
{
    struct client *c = op->client;
    c->complete_after = client_now(c) + c->lease_ns;
    bool outer = begin_recovery(op);
    int rc = journal_complete(op);
    end_recovery(op, outer);
    if (rc == FAR_OK)
        c->attention.inherited = false;
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
            alive = c->watch.of[slot].repairing;
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
    c->watch.reaped += rc == FAR_OK && op->pool_word[0] == word;
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
        c->epoch.announcement.due |= client_heartbeat_due(c);
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
    if (c->watch.of[slot].repairing)
        return FAR_OK; /* a sibling was faster */
    c->watch.of[slot].repairing = true;
    bool outer = begin_recovery(op);
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
    end_recovery(op, outer);
    c->watch.of[slot].repairing = false;
    return rc;
}

static int recover(struct op *op, bool wait)
{
    struct client *c = op->client;
    unsigned slot = (unsigned)c->watch.suspect, lines = 0;
    uint64_t word = c->watch.of[slot].incarnation;

    c->watch.suspect = -1;
    int rc = shut_out(op, slot, wait, &word);
    if (rc == FAB_PENDING) {
        c->watch.suspect = (int)slot; /* goes on with the next operation */
        return FAR_OK;
    }
    if (rc != FAR_OK || word == 0)
        return rc;
    bool registers = !op->batch.policy->piggyback; /* this operation registers the client */
    if (!registers && (c->attention.joining || c->slot == NO_SLOT))
        return FAR_OK; /* a sibling does, and under which name this would be done nobody knows */
    if (!registers) {
        rc = recover_claimed(op, slot, word);
        if (rc != FAR_OK)
            c->watch.recover_after = client_now(c) + c->lease_ns / 4;
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
