/*
 * The client registry: a slot on node 0 for every session of the pool.
 *
 * A client takes a slot by a CAS of its first word from 0 to the client's incarnation, a random odd
 * number. Before it does anything else it reads the global epoch and certifies it. Until then the
 * slot still holds its previous owner's fields. That is safe: their certificate was true, and at
 * most holds the epoch back. The journal's lines are blank (JOURNAL-J4), unless the slot is taken
 * from a dead client together with its work (LEASE-L2).
 */
#include "pool/pool_internal.h"

#include <unistd.h>

#define JOINS     4 /* how often a client that is opened registers, if it is shut out meanwhile */
#define EVICTIONS 8 /* how often a client that registers frees slots, while others are faster */

/* ---- voters ---------------------------------------------------------------------------------- */

/* Asks the registry, outside of views. FAR_CONTENTION: the slot is not this client's any more. */
static int check_slot(struct client *c)
{
    batch_read(c->to_voters, NODE0, slot_delta(c->slot), c->members.word, 8);
    int rc = batch_flush(c->to_voters);
    return rc == FAR_OK && c->members.word[0] != c->incarnation ? FAR_CONTENTION : rc;
}

/* Works in the view that is known. If voters say that another client has the slot, the registry
 * decides: a client that left while a voter could not be reached has left its line there. */
static int attend_view(struct client *c)
{
    if (c->pool->voters == 0)
        return FAR_OK;
    int rc = members_attend(&c->members, c->to_voters, c->slot, c->incarnation, false);
    if (rc == FAR_CONTENTION) {
        rc = check_slot(c);
        if (rc == FAR_OK)
            rc = members_attend(&c->members, c->to_voters, c->slot, c->incarnation, true);
    }
    if (rc == FAR_CONTENTION) {
        c->attention.lease_lost = c->must_leave_slot = true;
        return FAR_FENCED;
    }
    return rc;
}

int client_learn_view(struct client *c)
{
    if (c->pool->voters == 0)
        return FAR_OK;
    int rc = members_read(&c->members, c->to_voters);
    if (rc == FAR_OK && c->slot != NO_SLOT)
        rc = attend_view(c);
    if (rc == FAR_OK)
        __atomic_store_n(&c->ep->view, members_view(&c->members), __ATOMIC_RELAXED);
    return rc;
}

/* Has the client a slot in the registry, by now? */
static int look_for_client(struct op *op, uint64_t incarnation, bool *found)
{
    struct client_slot *slots = NULL;
    int rc = client_registry(op, &slots);
    *found = false;
    for (unsigned i = 0; i < op->pool->clients && rc == FAR_OK; i++)
        *found |= slots[i].incarnation == incarnation;
    return rc;
}

/* The voters, or the slot's lines, say that `holder` has a slot that nobody has in the registry: it
 * registers just now, or it died while it registered or left. If it does not get on for two leases,
 * it is shut out, and the slot is free. If it has another slot, it tried this one and could not
 * take its line back. */
static int clear_slot(struct op *op, unsigned slot, uint64_t holder)
{
    struct client *c = op->client;
    struct backoff patience = {0};
    do {
        batch_read(&op->batch, NODE0, slot_delta(slot), op->pool_word, 8);
        int rc = batch_flush(&op->batch);
        if (rc != FAR_OK || op->pool_word[0] != 0)
            return rc;
    } while (client_backoff(op, &patience, 2));
    bool registered = false;
    int rc = look_for_client(op, holder, &registered);
    if (rc == FAR_OK && !registered)
        rc = client_fence_out(op, holder | 1);
    if (rc == FAR_OK && !registered)
        rc = client_settle(c, slot, holder);
    if (rc == FAR_OK && c->pool->voters > 0)
        members_absent(&c->members, c->to_voters, slot, holder);
    return rc;
}

/* ---- taking a slot --------------------------------------------------------------------------- */

/* Takes the lowest free slot. That keeps short the part of the registry that all clients read. A
 * slot that voters have given to another client is the last choice. */
static int claim_slot(struct op *op, struct client *c)
{
    unsigned clients = c->pool->clients, first = 0, given = clients;
    uint64_t holder = 0;
    ASSERT(clients > 0);
    /* If another client is faster, look again: each time, one client has got a slot. */
    for (unsigned attempt = 0; attempt < 2 * clients; attempt++) {
        struct client_slot *slots = NULL;
        unsigned slot = first;
        int rc = client_registry(op, &slots);
        if (rc != FAR_OK)
            return rc;
        while (slot < clients && slots[slot].incarnation != 0)
            slot++;
        if (slot == clients && given == clients)
            break;
        if (slot == clients) {
            rc = clear_slot(op, given, holder);
            if (rc != FAR_OK)
                return rc;
            first = 0;
            given = clients;
            continue;
        }
        rc = client_appear(op, (struct presence_claim){slot, 0, c->incarnation, false}, &holder);
        if (rc == FAR_CONTENTION) {
            given = slot;
            first = slot + 1;
            continue;
        }
        if (rc != FAR_OK)
            return rc;
        c->slot = slot;        /* after an error this may be wrong: client_renew() finds out */
        c->unannounced = true; /* the slot still holds its previous owner's fields */
        c->taken_at = client_now(c);
        batch_cas(&op->batch, MARK_PUBLISH, NODE0, slot_delta(slot), 0, c->incarnation,
                  op->pool_word);
        rc = batch_flush(&op->batch);
        if (rc != FAR_OK || op->pool_word[0] == 0)
            return rc;
        c->slot = NO_SLOT;
        client_vanish(c, slot, c->incarnation);
    }
    c->slot = NO_SLOT;
    return FAR_NO_CLIENT_SLOT;
}

/* Reads the registry; *room says whether a slot is free. */
static int look_for_room(struct op *op, struct client_slot **slots, bool *room)
{
    int rc = client_registry(op, slots);
    *room = false;
    for (unsigned i = 0; i < op->pool->clients && rc == FAR_OK; i++)
        *room |= (*slots)[i].incarnation == 0;
    return rc;
}

/* As client_watch(), but prefers a suspect that left no work: its slot can be freed. If there is
 * none, and only if `heir`, the suspect is a client that left work: its slot is taken together with
 * the work. */
static bool suspect_one(struct op *op, struct client_slot *slots, bool heir, uint64_t asked)
{
    struct client *c = op->client;
    int with_work = -1;
    bool doubtful = false;
    for (unsigned i = 0; i <= c->pool->clients; i++) { /* each turn removes one */
        unsigned lines = 0;
        doubtful = client_watch(c, slots, c->pool->clients, NO_EPOCH, asked);
        if (c->watch.suspect < 0)
            break;
        int rc = journal_pending(op, (unsigned)c->watch.suspect, &lines);
        if (rc == FAR_OK && lines == 0)
            break; /* if a node is unreachable, it counts as one with work */
        with_work = c->watch.suspect;
        slots[with_work].incarnation = 0;
        client_suspect(c, -1);
    }
    if (c->watch.suspect < 0 && heir)
        client_suspect(c, with_work);
    return doubtful;
}

/*
 * All slots are taken: by clients that are alive, or by clients that died unnoticed. Two registry
 * reads, WATCH_LEASES apart, find those. All of them are removed: after a crash other clients need
 * slots too, and should not have to wait for each. If all dead clients left work undone, the slot
 * of one is taken over with its work (LEASE-L2).
 */
static int evict_dead(struct op *op, struct client *c)
{
    struct backoff patience = {0};
    bool doubtful = true, room = false;
    unsigned cleared = 0;

    c->slot = NO_SLOT;
    while (doubtful && cleared < c->pool->clients &&
           (cleared > 0 || client_backoff(op, &patience, 2))) {
        struct client_slot *slots = NULL;
        uint64_t asked = client_now(c);
        int rc = look_for_room(op, &slots, &room);
        if (rc != FAR_OK)
            return rc;
        if (room && cleared == 0)
            return FAR_OK;
        doubtful = suspect_one(op, slots, cleared == 0, asked);
        if (c->watch.suspect < 0) {
            if (cleared > 0)
                break;
            continue;
        }
        unsigned before = c->watch.reaped;
        rc = client_recover(op);
        if (c->slot != NO_SLOT)
            return rc;
        if (rc != FAR_OK)
            return room ? FAR_OK : rc;
        if (cleared > 0 || c->watch.reaped > before) /* else another client was faster */
            cleared++;
    }
    return cleared > 0 ? FAR_OK : FAR_NO_CLIENT_SLOT;
}

/* Frees slots of dead clients, and takes one. Other clients that register may be faster: then it
 * looks for dead clients again. */
static int claim_evicted(struct op *op, struct client *c)
{
    int rc = FAR_NO_CLIENT_SLOT;
    for (unsigned turn = 0; rc == FAR_NO_CLIENT_SLOT && turn < EVICTIONS; turn++) {
        rc = evict_dead(op, c);
        if (rc != FAR_OK || c->slot != NO_SLOT)
            return rc;
        rc = claim_slot(op, c);
    }
    return rc;
}

/* Adds the WRITE of the witness to the batch, so that others can ask whether this client's process
 * lives (LEASE-L4). */
static void write_witness(struct op *op, struct client *c, uint64_t *word)
{
    if (!c->ep->ops->witness)
        return;
    *word = c->ep->ops->witness(c->ep, c->incarnation);
    batch_write(&op->batch, MARK_EARLY, NODE0,
                slot_delta(c->slot) + offsetof(struct client_slot, witness), word, 8);
}

/* Certifies the epoch that was read, and reads it again. */
static int certify(struct op *op, struct client *c, struct pool_control *control)
{
    struct client_slot *mine = (struct client_slot *)&op->pool_word[1]; /* [0] is for `sweeps` */
    if (control->epoch > EPOCH_LAST)
        return err_fail(FAR_CORRUPT, "the pool's epoch is damaged");
    /* The heartbeat goes on counting: a watcher must never see an old value again. */
    *mine = (struct client_slot){.epoch = control->epoch,
                                 .heartbeat = client_certify(c, control->epoch),
                                 .pid = (uint64_t)getpid()};
    batch_write(&op->batch, MARK_EARLY, NODE0, slot_delta(c->slot) + 8, &mine->epoch,
                offsetof(struct client_slot, journals) - 8);
    if (c->unannounced)
        write_witness(op, c, &mine->witness);
    /* Read the sweep after the certificate is written: a client that certifies an epoch later than
     * a sweep's announcement must know of the sweep. Read the count of sweeps first: all sweeps
     * that it counts have been announced when the word is read. */
    batch_fence(&op->batch);
    batch_read(&op->batch, NODE0, SWEEPS_DELTA, op->pool_word, 8);
    batch_fence(&op->batch);
    batch_read(&op->batch, NODE0, CONTROL_OFF, control, sizeof *control);
    return batch_flush(&op->batch);
}

/* The lease begins when the request was posted. */
static void set_lease(struct client *c, uint64_t posted)
{
    c->lease_deadline = posted + c->lease_ns;
    c->attention.lease_lost = false;
}

/* Raises `high` above the slot, reads the epoch, certifies it. The lease counts from `began`,
 * before the slot was taken: others may have watched the slot since. */
static int announce(struct op *op, struct client *c, uint64_t began)
{
    ASSERT(op->batch.count == 0 && c->slot < c->pool->clients);
    struct pool_control *control = op_buffer(op, BUF_POOL, sizeof *control);
    int rc = FAR_OK;

    if (!control)
        return FAR_NO_MEMORY;
    for (unsigned attempt = 0; attempt <= c->pool->clients; attempt++) {
        batch_read(&op->batch, NODE0, CONTROL_OFF, control, sizeof *control);
        rc = batch_flush(&op->batch);
        if (rc != FAR_OK || control->high > c->slot)
            break;
        batch_cas(&op->batch, MARK_PUBLISH, NODE0,
                  CONTROL_OFF + offsetof(struct pool_control, high), control->high, c->slot + 1,
                  op->pool_word);
        rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            break;
    }
    if (rc != FAR_OK)
        return rc;
    if (control->high > c->pool->clients)
        return err_fail(FAR_CORRUPT, "the pool's client count is damaged");
    c->epoch.high = control->high;
    /* Until the certificate was written nobody waited for us: the epoch may have gone on beyond it,
     * and one step more by a client that had read the registry before. Then it stops, and the
     * second certificate holds it back (EPOCH-E1). */
    for (unsigned turn = 0; turn < 2 && (turn == 0 || control->epoch > c->epoch.certified);
         turn++) {
        rc = certify(op, c, control);
        if (rc != FAR_OK)
            return rc;
    }
    set_lease(c, began);
    client_learn_sweep(c, control->sweep, op->pool_word[0]);
    c->attention.parked = c->must_leave_slot = c->unannounced = false;
    return FAR_OK;
}

static uint64_t new_incarnation(struct client *c)
{
    uint64_t incarnation =
        (client_unique(c) | 1) & ~(CLIENT_FENCED | CLIENT_REPAIRED | INCARNATION_CLEAR);
    if (c->ep->ops->identify)
        c->ep->ops->identify(c->ep, incarnation);
    return incarnation;
}

static int join(struct op *op, struct client *c)
{
    c->incarnation = new_incarnation(c);
    c->slot = NO_SLOT; /* the old one may belong to another client */
    c->must_leave_slot = false;
    c->attention.inherited = false;
    journal_forget(c);
    int rc = client_visit(op);
    if (rc == FAR_OK)
        rc = client_learn_view(c);
    if (rc == FAR_OK)
        rc = claim_slot(op, c);
    if (rc == FAR_NO_CLIENT_SLOT && (c->pool->kept || c->pool->evicts))
        rc = claim_evicted(op, c);
    if (rc == FAR_NO_CLIENT_SLOT)
        return err_fail(rc, "all %u client slots of the pool are taken", c->pool->clients);
    if (rc == FAR_OK)
        rc = announce(op, c, c->taken_at);
    return rc == FAR_OK ? attend_view(c) : rc;
}

/*
 * A client that was silent for too long, but that nobody has fenced, goes on in its slot under a
 * new name. If another client is about to fence it, its CAS will fail. The certificate has counted
 * all the time, so what the client holds is its own. It completes unfinished work (LEASE-L2).
 */
int client_renew(struct op *op)
{
    struct client *c = op->client;
    struct client_slot *slot = (struct client_slot *)op->pool_word;

    if (c->slot == NO_SLOT)
        return FAR_FENCED;
    uint64_t incarnation = new_incarnation(c), posted = client_now(c), holder = 0;
    uint32_t view = fab_view(c->ep);
    batch_read(&op->batch, NODE0, slot_delta(c->slot), slot, sizeof *slot);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    if (slot->incarnation != c->incarnation)
        return FAR_FENCED;
    rc = client_appear(op, (struct presence_claim){c->slot, c->incarnation, incarnation, true},
                       &holder);
    if (rc != FAR_OK)
        return rc == FAR_CONTENTION ? FAR_FENCED : rc;
    batch_cas(&op->batch, MARK_PUBLISH, NODE0, slot_delta(c->slot), c->incarnation, incarnation,
              op->pool_word);
    rc = batch_flush(&op->batch);
    if (rc == FAR_OK && op->pool_word[0] != c->incarnation) {
        client_vanish(c, c->slot, incarnation);
        return FAR_FENCED;
    }
    if (rc != FAR_OK)
        return rc;
    c->incarnation = incarnation;
    if (fab_view(c->ep) != view) /* a view began: the client has attended it under its old name */
        rc = attend_view(c);
    if (rc != FAR_OK)
        return rc;
    c->complete_after = 0;
    set_lease(c, posted);
    write_witness(op, c, op->pool_word);
    return batch_flush(&op->batch);
}

int client_join(struct client *c)
{
    struct op op;
    int rc = op_init(&op, c);
    if (rc != FAR_OK)
        return rc;
    ASSERT(!c->epoch.oldest);
    (void)client_set_policy(&op, POLICY_JOINING); /* it has nothing to announce, and no lease */
    rc = FAR_FENCED;
    for (unsigned turn = 0; rc == FAR_FENCED && turn < JOINS; turn++)
        rc = join(&op, c); /* others take it for dead if it stands still meanwhile */
    (void)client_set_policy(&op, POLICY_ANNOUNCING);
    if (rc == FAR_OK && client_must_complete(c))
        (void)client_complete(&op); /* if it fails, it is tried again later */
    op_free(&op);
    return rc;
}

/* Waits while another operation of the ring registers the client. Also, before a client may
 * register again, all operations and recoveries that began under its old registration must have
 * ended. They do end, because they can write nothing more. */
static void await_joined(struct op *op)
{
    struct client *c = op->client;
    struct backoff patience = {0};
    while ((c->attention.joining ||
            (c->attention.lease_lost && (c->epoch.oldest || c->watch.recoveries > 0))) &&
           client_backoff(op, &patience, 1)) {
    }
}

int client_rejoin(struct op *op)
{
    struct client *c = op->client;

    if (!op->recovers)
        await_joined(op);
    if (!c->attention.lease_lost)
        return FAR_OK;
    if (c->epoch.oldest || c->attention.joining || c->watch.recoveries > 0)
        return err_fail(FAR_FENCED, "this client was silent for longer than its lease");
    c->attention.joining = true;
    client_withhold_announcements(c, true);
    const struct batch_policy *before = client_set_policy(op, POLICY_JOINING);
    uint64_t began = client_now(c);
    int rc = c->must_leave_slot ? FAR_FENCED : client_renew(op);
    if (rc == FAR_OK && c->unannounced) {
        c->attention.lease_lost = true; /* no other operation may begin before it is announced */
        rc = announce(op, c, began);
    }
    if (rc == FAR_FENCED) {
        client_doubt_caches(c);
        client_drop_all(c); /* a sweep finds what it held */
        rc = join(op, c);
    }
    if (rc != FAR_OK)
        c->attention.lease_lost = true; /* a join that failed is no registration */
    else
        client_withhold_announcements(c, false);
    op->batch.policy = before;
    c->attention.joining = false;
    return rc;
}

int client_unpark(struct op *op)
{
    struct client *c = op->client;

    await_joined(op);
    if (!c->attention.parked)
        return FAR_OK;
    if (c->attention.lease_lost) /* another operation could not register it: it has no slot */
        return err_fail(FAR_FENCED, "this client was silent for longer than its lease");
    if (c->attention.joining)
        return err_fail(FAR_TIMEOUT,
                        "timed out while another operation of this session announces it");
    c->attention.joining = true;
    const struct batch_policy *before = client_set_policy(op, POLICY_SILENT);
    int rc = announce(op, c, client_now(c));
    op->batch.policy = before;
    c->attention.joining = false;
    return rc;
}
