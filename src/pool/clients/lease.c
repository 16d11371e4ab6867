/*
 * Leases: telling a dead client from a slow one, and what is done about it.
 *
 * A client that is alive changes its heartbeat several times a lease, by verbs that ride on its
 * operations, also in the middle of a long one. If a client is in the way of another (its
 * certificate holds the epoch back, or it holds a lock), the other one watches its heartbeat, by
 * its own clock. If the heartbeat has not changed for a lease and a margin for clocks that drift,
 * the client counts as dead. No clock is compared with another. The time between two looks is that
 * from the end of the first to the beginning of the second, because the watcher itself may be
 * stopped for any time between a look and its judgement.
 *
 *   LEASE-L1  Where the fabric cannot shut clients out, a client writes nothing once its own lease
 *       has passed since it posted the last heartbeat that it knows to have arrived (batch.c asks
 *       before every post that writes). Where it can, it drops a client's verbs once that is
 *       fenced.
 *
 *   LEASE-L2  A dead client is first fenced: by the fabric where it can, and by a CAS of its slot's
 *       incarnation. Then one client claims the slot, by a CAS that puts its own name there. It
 *       completes or undoes what the slot's journal says, counts the death (the dead client's
 *       memory is for a sweep to find), and frees the slot by another CAS. If the recovering client
 *       dies first, the slot names a client that is not alive. The next one claims the slot from
 *       it, after the fabric has shut it out. If it cannot go on, it waits until its own failed
 *       verbs can no longer arrive (FABRIC-F5), and then clears its name from the slot. So no two
 *       clients recover one at the same time. A recovery belongs to a registration: it does not go
 *       on under another name, and the client registers again only after it has ended. A fenced
 *       client's certificate does not count any more, so a recovery may wait for a barrier. Only a
 *       registered client can complete a journal. If every slot is taken and only slots with
 *       unfinished work are silent, a client that wants to register takes such a slot by a CAS from
 *       the fenced word to its own incarnation. If several try, one gets it. It announces itself
 *       and completes the work. If it dies before that, it is a dead client with the same journal.
 *       A client whose lease lapsed in the middle of its own work, and that nobody has fenced, does
 *       the same in its own slot. Its locks name its old incarnation, so others take it for dead.
 *
 *   LEASE-L3  Watching takes one and a half leases (WATCH_LEASES()), so that there is time between
 *       the last write that LEASE-L1 allows and the first reuse.
 *
 *   LEASE-L4  On shared memory that is not enough: a client that the system stops between the
 *       question and the write, or in the middle of a long WRITE, goes on with it whenever it is
 *       continued. So the fabric is asked whether the client's process lives (fab_ops.life). While
 *       it does, the client is not taken for dead, however long it is silent. Once the process has
 *       ended, it writes nothing any more, and its client is dead without a watch. The fabric is
 *       asked when a heartbeat is overdue by an eighth of a lease, and at once by those who search
 *       for dead clients; never while heartbeats come. By its witness, which it writes into its
 *       slot, a client says that it can be seen to have ended. Where there is none, or the client
 *       is on another machine, LEASE-L1 and LEASE-L3 are all there is. (On mem: all threads are
 *       stopped together, mostly, and then the clock of leases is, too: MEM-1.) A client that waits
 *       for one that stands still gives up after a lease, with the status that it returns if a lock
 *       is held for too long, and says who it is (client_held_up()).
 *
 *   LEASE-L5  Where a process cannot be seen, LEASE-L3 leaves a risk: one piece of a WRITE, or one
 *       atomic, of a client that was stopped in the middle of it for longer than half a lease. In a
 *       pool that was made with wait=1, a client that is silent and not known to be dead is treated
 *       as one that stands still. So epochs wait for it, and its locks, journal and slot stay its
 *       own: nothing that it may still write to is used for anything else. This ends when the
 *       client goes on, when the fabric says that its process has ended (its own machine can tell),
 *       or when a client that opened the pool with wait=0 takes it for dead.
 *
 * An idle client is parked (EPOCH-E5), and its process keeps up its heartbeat. Where no process
 * does that, the client falls silent and is fenced like a dead one. It notices at its next
 * operation, and registers again. An operation that was in flight is tried once more, and returns
 * FAR_FENCED if the lease lapses again.
 *
 * Example, with a lease of 5 s, in which A sends a heartbeat every 0.625 s (an eighth):
 *
 *    0.0 s  A posts a heartbeat, takes a lock, and is stopped
 *    0.1    B finds that A's certificate holds the epoch back, and notes A's heartbeat
 *    5.0    A's lease has passed: on shared memory it writes nothing any more (LEASE-L1)
 *    7.7    B reads the same heartbeat more than 7.5 s (WATCH_LEASES) after 0.1: A is the suspect.
 *           B fences it: by the fabric, then CAS A -> FENCED|A. The epoch no longer waits for A
 *           (If the fabric says that A's process lives, B does not. If it says that it has ended, B
 *           does so at 1.4 s, when it finds A's heartbeat overdue: LEASE-L4)
 *    7.7    B claims the slot: CAS FENCED|A -> FENCED|REPAIRED|B. It recovers the lines of A's
 *           journal, which frees the lock, counts the death, and frees the slot: CAS to 0
 *    later  a sweep finds the memory that A held. If A runs again, it finds that its slot was taken
 *           from it, drops what it held, and registers as another client
 */
#include "pool/pool_internal.h"

#define FENCE_PAUSE_NS 20000

/* Ends the sweep of a dead sweeper, as if that had given it up. As long as it goes on, nobody uses
 * memory below its mark, and all would take new chunks until there is none left. What the sweeper
 * held is lost; the count of deaths says so. */
static int end_sweep(struct op *op, unsigned slot)
{
    const uint64_t delta = SWEEP_DELTA;
    batch_read(&op->batch, NODE0, delta, op->pool_word, 8);
    batch_fence(&op->batch);
    batch_read(&op->batch, NODE0, slot_delta(slot), op->pool_word + 1, 8);
    int rc = batch_flush(&op->batch);
    uint64_t sweep = op->pool_word[0];
    /* If the slot is fenced, any client of the slot that had announced a sweep is dead. */
    if (rc != FAR_OK || sweep == 0 || owner_slot(sweep) != slot ||
        !(op->pool_word[1] & CLIENT_FENCED))
        return rc;
    batch_cas(&op->batch, MARK_PUBLISH, NODE0, delta, sweep, 0, op->pool_word);
    return batch_flush(&op->batch);
}

/* Nodes that do not answer must not hold up those that do. So the fabric does not wait for them,
 * and a fiber leaves the thread to others meanwhile. Returns FAB_PENDING only if `wait` is
 * false. */
static int fence_out(struct op *op, uint64_t incarnation, bool wait)
{
    struct client *c = op->client;
    struct fab_ep *ep = c->ep;
    int rc = ep->ops->fence ? ep->ops->fence(ep, incarnation) : FAR_OK;
    while (rc == FAB_PENDING && wait) { /* until the fabric's time-out at most */
        batch_pause(&op->batch, FENCE_PAUSE_NS);
        /* The time-out may be longer than our lease. */
        if (op->batch.policy->piggyback && client_heartbeat_due(c)) {
            client_send_heartbeat(c);
            batch_read(&op->batch, NODE0, CONTROL_OFF, op->pool_word, 8);
            rc = batch_flush(&op->batch);
            if (rc != FAR_OK)
                return rc;
        }
        rc = ep->ops->fence(ep, incarnation);
    }
    return rc;
}

int client_fence_out(struct op *op, uint64_t incarnation)
{
    return fence_out(op, incarnation, true);
}

/* ---- the lines of client slots, at voters and of chains -------------------------------------- */

int client_appear(struct op *op, struct presence_claim claim, uint64_t *holder)
{
    struct client *c = op->client;
    const struct fab_chain_ops *chain = c->ep->ops->chain;
    int rc = FAR_OK;
    if (c->pool->voters > 0)
        rc = members_present(&c->members, c->to_voters, claim, holder);
    if (rc != FAR_OK || !chain)
        return rc;
    rc = chain->seat(c->ep, claim.slot, claim.from, claim.to, holder);
    if (rc != FAR_OK && c->pool->voters > 0)
        members_absent(&c->members, c->to_voters, claim.slot, claim.to);
    return rc;
}

void client_vanish(struct client *c, unsigned slot, uint64_t incarnation)
{
    if (c->ep->ops->chain && incarnation != 0)
        c->ep->ops->chain->leave(c->ep);
    if (c->pool->voters > 0)
        members_absent(&c->members, c->to_voters, slot, incarnation);
}

/* LEASE-L2: a client that is not registered cannot complete anything. It takes the slot, and the
 * journal with it. In the registry the slot is that of a dead client, so whoever voters say has it
 * cannot get it there. */
static int inherit(struct op *op, unsigned slot, uint64_t fenced)
{
    struct client *c = op->client;
    uint64_t holder = 0;
    int rc = client_appear(op, (struct presence_claim){slot, 0, c->incarnation, true}, &holder);
    if (rc != FAR_OK)
        return rc;
    c->slot = slot; /* after an error this may be wrong: client_renew() finds out */
    c->unannounced = true;
    c->attention.inherited = true;
    c->complete_after = 0;
    c->taken_at = client_now(c);
    batch_cas(&op->batch, MARK_PUBLISH, NODE0, slot_delta(slot), fenced, c->incarnation,
              op->pool_word);
    rc = batch_flush(&op->batch);
    if (rc == FAR_OK && op->pool_word[0] != fenced) { /* another client was faster */
        c->slot = NO_SLOT;
        c->attention.inherited = false;
        client_vanish(c, slot, c->incarnation);
    }
    c->watch.reaped += rc == FAR_OK && c->slot == slot;
    return rc;
}

/* Brackets a recovery. It may be within another one: begin_recovery() returns whether it is, for
 * end_recovery(). A recovery belongs to the client's registration, though it is not an operation in
 * flight: while it lasts, the client does not register again. */
static bool begin_recovery(struct op *op)
{
    bool outer = op->recovers;
    op->client->watch.recoveries += !outer;
    op->recovers = true;
    return outer;
}

static void end_recovery(struct op *op, bool outer)
{
    ASSERT(op->recovers && op->client->watch.recoveries > 0);
    op->client->watch.recoveries -= !outer;
    op->recovers = outer;
}

#define AGAIN_NS_LEAST 1000000u

/* How long to wait with a recovery that began at `began` and has failed, if the last wait was
 * `pause`. If it waits for others (FAR_TIMEOUT), locks may be closed until it goes on: it is tried
 * again soon, and then after twice as long each time. At most a quarter of this client's time goes
 * into that. */
static uint64_t pause_before_again(const struct client *c, uint64_t pause, uint64_t began, int rc)
{
    uint64_t spent = client_now(c) - began, most = c->lease_ns / 4;
    pause = pause == 0 ? AGAIN_NS_LEAST : 2 * pause;
    if (pause < 3 * spent)
        pause = 3 * spent;
    return rc != FAR_TIMEOUT || pause > most ? most : pause;
}

/* The recovery of the client in that slot, which began at `began`, has failed. */
static void recover_later(struct client *c, struct watch *w, uint64_t began, int rc)
{
    if (w->recover_after + c->lease_ns < client_now(c))
        w->recover_pause = 0; /* it was long ago, and perhaps another client's death */
    w->recover_pause = pause_before_again(c, w->recover_pause, began, rc);
    w->recover_after = client_now(c) + w->recover_pause;
}

int client_complete(struct op *op)
{
    struct client *c = op->client;
    uint64_t began = client_now(c), last = c->complete_after;
    c->complete_after = began + c->lease_ns;
    bool outer = begin_recovery(op);
    int rc = journal_complete(op);
    end_recovery(op, outer);
    if (rc == FAR_OK)
        c->attention.inherited = false;
    if (rc != FAR_TIMEOUT) {
        c->complete_pause = 0;
        return rc;
    }
    if (last + c->lease_ns < began)
        c->complete_pause = 0; /* what it waited for then was other work */
    c->complete_pause = pause_before_again(c, c->complete_pause, began, rc);
    c->complete_after = client_now(c) + c->complete_pause;
    return rc;
}

/* Shuts out the client whose slot says *word. Then sets *word to what the slot says now, if this
 * client is to recover it, else to 0. */
static int shut_out(struct op *op, unsigned slot, bool wait, uint64_t *word)
{
    struct client *c = op->client;
    uint64_t incarnation = *word & ~CLIENT_FENCED, fenced = *word | CLIENT_FENCED;
    bool alive = false;
    int rc = FAR_OK;

    if ((*word & CLIENT_REPAIRED) == 0 || (*word & CLIENT_FENCED) == 0) {
        rc = fence_out(op, incarnation, wait);
        if (rc == FAR_OK)
            rc = client_settle(c, slot, incarnation);
        if (rc != FAR_OK)
            return rc;
        batch_cas(&op->batch, MARK_PUBLISH, NODE0, slot_delta(slot), incarnation, fenced,
                  op->pool_word);
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
        if (c->slot != NO_SLOT && owner_slot(*word) == c->slot && owner_is(*word, c->incarnation))
            alive = c->watch.of[slot].repairing;
        else
            rc = client_owner_alive(op, *word, &alive);
        if (alive)
            *word = 0;
    }
    return rc;
}

/* A death is counted before the slot is free, so that none goes uncounted; it may be counted twice.
 * The rest of the slot stays as it is: if we are not the first, it may belong to another client
 * already. */
static int count_death(struct op *op, unsigned slot)
{
    batch_faa(&op->batch, MARK_PUBLISH, NODE0, DEATHS_DELTA, 1, op->pool_word);
    int rc = batch_flush(&op->batch);
    return rc == FAR_OK ? end_sweep(op, slot) : rc;
}

/* Frees the slot, if it still says `word`. */
static int free_slot(struct op *op, unsigned slot, uint64_t word)
{
    struct client *c = op->client;
    client_vanish(c, slot, 0);
    batch_cas(&op->batch, MARK_PUBLISH, NODE0, slot_delta(slot), word, 0, op->pool_word);
    int rc = batch_flush(&op->batch);
    c->watch.reaped += rc == FAR_OK && op->pool_word[0] == word;
    return rc;
}

/* A recovery has failed. Others may go on with it once verbs of ours that failed cannot arrive any
 * more: then this puts nobody's name into the slot. If that write fails, this client gives up its
 * registration, which has the same effect. It must not renew its registration in the same slot
 * under another name: others would go on too early. */
static void give_up_claim(struct op *op, unsigned slot, uint64_t mine)
{
    struct client *c = op->client;
    while (client_has_stray_writes(c) && !client_lapsed(c)) {
        batch_pause(&op->batch, c->lease_ns / 16);
        if (client_heartbeat_due(c))
            client_send_heartbeat(c);
        batch_read(&op->batch, NODE0, CONTROL_OFF, op->pool_word, 8);
        if (batch_flush(&op->batch) != FAR_OK)
            break;
    }
    if (!client_has_stray_writes(c)) {
        if (client_lapsed(c))
            return;
        batch_cas(&op->batch, MARK_PUBLISH, NODE0, slot_delta(slot), mine,
                  CLIENT_FENCED | CLIENT_REPAIRED, op->pool_word);
        if (batch_flush(&op->batch) == FAR_OK)
            return;
    }
    client_renounce(op);
}

/* Puts this client's name into a slot that says `word`. It does so even if that is its name
 * already, because a sibling may have freed the slot since it was read. */
static int claim(struct op *op, unsigned slot, uint64_t word, uint64_t mine, bool *claimed)
{
    batch_cas(&op->batch, MARK_PUBLISH, NODE0, slot_delta(slot), word, mine, op->pool_word);
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
    /* The claim may stand, unless the CAS was not even posted (FABRIC-F5). */
    bool perhaps = claimed || rc != FAR_UNREACHABLE;
    if (rc != FAR_OK && perhaps && registration == c->lines.registration)
        give_up_claim(op, slot, mine);
    end_recovery(op, outer);
    c->watch.of[slot].repairing = false;
    return rc;
}

static int recover(struct op *op, bool wait)
{
    struct client *c = op->client;
    ASSERT(op->batch.count == 0 && c->watch.suspect >= 0);
    unsigned slot = (unsigned)c->watch.suspect, lines = 0;
    uint64_t word = c->watch.of[slot].incarnation;

    bool registers = !op->batch.policy->piggyback; /* this operation registers the client */
    c->watch.suspect = -1;
    int rc = registers ? client_visit(op) : FAR_OK;
    if (rc == FAR_OK)
        rc = shut_out(op, slot, wait, &word);
    if (rc == FAB_PENDING) {
        c->watch.suspect = (int)slot; /* goes on with the next operation */
        return FAR_OK;
    }
    if (rc != FAR_OK || word == 0)
        return rc;
    if (!registers && (c->attention.joining || c->slot == NO_SLOT))
        return FAR_OK; /* a sibling does: the name to recover under is not known yet */
    if (!registers) {
        uint64_t began = client_now(c);
        rc = recover_claimed(op, slot, word);
        if (rc != FAR_OK)
            recover_later(c, &c->watch.of[slot], began, rc);
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
