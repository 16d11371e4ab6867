/*
 * The client registry: a line on node 0 for every session of the pool.
 *
 * A slot is taken by a CAS of its first word from 0 to the client's incarnation, a random odd
 * number. Before it does anything else the client reads the global epoch and certifies it. Until
 * then the slot says what the last who had it said: a certificate that was true, and at most holds
 * the epoch back. The journal's lines are blank (JOURNAL-J4), unless the slot is taken from a dead client
 * together with its work (LEASE-L2).
 */
#include "pool/pool.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Between two looks whether the keeper is done. */
#define TURN_NS 2000

/* Longer than any pool is used. */
#define NO_LEASE_NS (1ull << 60)

/* Each epoch takes up to three; what was retired last waits for three epochs. */
#define SETTLE_EPOCH   3
#define SETTLE_FLIGHTS (4 * SETTLE_EPOCH)

/* How long a client that closes waits for that: idle clients are parked much sooner, dead ones are
 * found within one and a half. */
#define SETTLE_LEASES 2

/* How often it sweeps: others may be sweeping, too. */
#define SETTLE_SWEEPS 3

/* Finds the lowest free slot: those in use stay few, and so the part of the registry that all
 * clients read. */
static int claim_slot(struct op *op, struct client *c)
{
    unsigned clients = c->pool->clients;
    ASSERT(clients > 0);
    /* Whoever loses a slot to another client looks again; each time, somebody got one. */
    for (unsigned attempt = 0; attempt < 2 * clients; attempt++) {
        struct client_slot *slots = NULL;
        unsigned slot = 0;
        int rc = client_registry(op, &slots);
        if (rc != FAR_OK)
            return rc;
        while (slot < clients && slots[slot].incarnation != 0)
            slot++;
        if (slot == clients)
            break;
        c->slot = slot;        /* after an error perhaps, too: renew() finds out */
        c->unannounced = true; /* the slot still says what its last owner said */
        c->taken_at = c->ep->ops->coarse(c->ep);
        batch_cas(&op->batch, NODE0, slot_delta(slot), 0, c->incarnation, op->pool_word);
        rc = batch_flush(&op->batch);
        if (rc != FAR_OK || op->pool_word[0] == 0)
            return rc;
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

/* As client_watch(). The suspect is a client that left no work, if there is one: its slot can be
 * freed. Only if `heir`, it may be one whose slot is taken together with its work. */
static bool suspect_one(struct op *op, struct client_slot *slots, bool heir, uint64_t asked)
{
    struct client *c = op->client;
    int with_work = -1;
    bool doubtful = false;
    for (unsigned i = 0; i <= c->pool->clients; i++) { /* each turn crosses one out */
        unsigned lines = 0;
        doubtful = client_watch(c, slots, c->pool->clients, NO_EPOCH, asked);
        if (c->suspect < 0)
            break;
        int rc = journal_pending(op, (unsigned)c->suspect, &lines);
        if (rc == FAR_OK && lines == 0)
            break; /* if a node is away, nobody can say */
        with_work = c->suspect;
        slots[with_work].incarnation = 0;
        c->suspect = -1;
    }
    if (c->suspect < 0 && heir)
        c->suspect = with_work;
    return doubtful;
}

/*
 * All slots are taken: by clients that are alive, or by clients that died unnoticed. Two registry
 * reads, a watch apart, tell. All that are found dead are cleared away: after a crash others need
 * slots too, and should not have to wait for each. If all that are dead left work undone, the slot of
 * one is taken over with its work (LEASE-L2).
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
        uint64_t asked = c->ep->ops->coarse(c->ep);
        int rc = look_for_room(op, &slots, &room);
        if (rc != FAR_OK)
            return rc;
        if (room && cleared == 0)
            return FAR_OK;
        doubtful = suspect_one(op, slots, cleared == 0, asked);
        if (c->suspect < 0) {
            if (cleared > 0)
                break;
            continue;
        }
        unsigned before = c->reaped;
        rc = client_recover(op);
        if (c->slot != NO_SLOT)
            return rc;
        if (rc != FAR_OK)
            return room ? FAR_OK : rc;
        if (cleared > 0 || c->reaped > before) /* else another client was faster */
            cleared++;
    }
    return cleared > 0 ? FAR_OK : FAR_NO_CLIENT_SLOT;
}

/* Certifies the epoch that was read, and reads it again. */
static int certify(struct op *op, struct client *c, struct pool_control *control)
{
    struct client_slot *mine = (struct client_slot *)&op->pool_word[1]; /* [0] is for `sweeps` */
    if (control->epoch > EPOCH_LAST)
        return err_fail(FAR_CORRUPT, "the pool's epoch is damaged");
    c->seen = c->validated = c->certified = control->epoch;
    /* The heartbeat goes on from where it was: a client that saw it long ago must not see it again. */
    *mine = (struct client_slot){
        .epoch = c->validated, .heartbeat = ++c->heartbeat, .pid = (uint64_t)getpid()};
    batch_write(&op->batch, NODE0, slot_delta(c->slot) + 8, &mine->epoch,
                offsetof(struct client_slot, journals) - 8);
    /* After the certificate: a client that certifies an epoch later than a sweep's announcement must
     * know of the sweep. The count of sweeps comes first: all that it counts have been announced when
     * the word is read. */
    batch_fence(&op->batch);
    batch_read(&op->batch, NODE0, CONTROL_OFF + offsetof(struct pool_control, sweeps),
               op->pool_word, 8);
    batch_fence(&op->batch);
    batch_read(&op->batch, NODE0, CONTROL_OFF, control, sizeof *control);
    return batch_flush(&op->batch);
}

/* Raises `high` above the slot, reads the epoch, certifies it. The lease counts from before the
 * slot was taken: others may watch it since. */
static int announce(struct op *op, struct client *c, uint64_t began)
{
    struct pool_control *control = op_buffer(op, BUF_POOL, sizeof *control);
    int rc = FAR_OK;

    if (!control)
        return FAR_NO_MEMORY;
    for (unsigned attempt = 0; attempt <= c->pool->clients; attempt++) {
        batch_read(&op->batch, NODE0, CONTROL_OFF, control, sizeof *control);
        rc = batch_flush(&op->batch);
        if (rc != FAR_OK || control->high > c->slot)
            break;
        batch_cas(&op->batch, NODE0, CONTROL_OFF + offsetof(struct pool_control, high),
                  control->high, c->slot + 1, op->pool_word);
        rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            break;
    }
    if (rc != FAR_OK)
        return rc;
    if (control->high > c->pool->clients)
        return err_fail(FAR_CORRUPT, "the pool's client count is damaged");
    c->high = control->high;
    /* Until the certificate was there nobody waited for us: the epoch may have gone on beyond it,
     * and by one more for whoever had looked before. Then it stands; the next certificate holds
     * (EPOCH-E1). */
    for (unsigned turn = 0; turn < 2 && (turn == 0 || control->epoch > c->certified); turn++) {
        rc = certify(op, c, control);
        if (rc != FAR_OK)
            return rc;
    }
    c->lease = (struct lease){.deadline = began + c->lease_ns};
    c->sweep = 0;
    c->sweep_unmet = (control->sweep & SWEEP_ANNOUNCED) != 0;
    if (op->pool_word[0] != c->sweeps) { /* EPOCH-E5; a client that joins has nothing in hand */
        c->lost_bytes += c->held_bytes + c->retired_bytes; /* it may be above the sweep's mark */
        client_drop_all(c);
    }
    c->sweeps = op->pool_word[0];
    c->parked = c->astray = c->unannounced = false;
    return FAR_OK;
}

static uint64_t new_incarnation(struct client *c)
{
    uint64_t incarnation = (rng_next(&c->rng) | 1) & ~(CLIENT_FENCED | CLIENT_REPAIRED);
    if (c->ep->ops->identify)
        c->ep->ops->identify(c->ep, incarnation);
    return incarnation;
}

static int join(struct op *op, struct client *c)
{
    c->incarnation = new_incarnation(c);
    c->slot = NO_SLOT; /* the old one may be another's */
    c->astray = false;
    c->inherited = false;
    journal_forget(c);
    int rc = claim_slot(op, c);
    if (rc == FAR_NO_CLIENT_SLOT && c->pool->kept) {
        rc = evict_dead(op, c);
        if (rc == FAR_OK && c->slot == NO_SLOT)
            rc = claim_slot(op, c);
    }
    if (rc == FAR_NO_CLIENT_SLOT)
        return err_fail(rc, "the pool has %u client slots, and all are taken", c->pool->clients);
    if (rc != FAR_OK)
        return rc;
    return announce(op, c, c->taken_at);
}

static int join_first(struct client *c)
{
    struct op op;
    int rc = op_init(&op, c);
    if (rc != FAR_OK)
        return rc;
    op.batch.rider = NULL; /* it has nothing to announce yet, and no lease to lose */
    const struct lease *lease = op.batch.lease;
    op.batch.lease = NULL;
    rc = join(&op, c);
    op.batch.lease = lease;
    op.batch.rider = &c->rider;
    if (rc == FAR_OK && client_must_complete(c))
        (void)client_complete(&op); /* it is tried again later */
    op_free(&op);
    return rc;
}

void client_drop_all(struct client *c)
{
    for (unsigned node = 0; node < c->pool->nodes; node++)
        for (unsigned i = 0; i < CLASS_COUNT; i++)
            c->stock[node][i].left = c->stock[node][i].kept = 0;
    c->limbo.head = c->limbo.count = 0;
    c->retired_bytes = c->held_bytes = 0;
    c->overfull_class = -1;
}

void client_drop_swept(struct client *c)
{
    struct limbo *l = &c->limbo;
    for (unsigned node = 0; node < c->pool->nodes; node++) {
        for (unsigned i = 0; i < CLASS_COUNT; i++) {
            struct stock *stock = &c->stock[node][i];
            unsigned before = stock->kept + stock->left, kept = 0;
            for (unsigned n = 0; n < stock->kept; n++)
                if (!client_swept(c, stock->keep[n]))
                    stock->keep[kept++] = stock->keep[n];
            stock->kept = kept;
            if (stock->left > 0 && client_swept(c, stock->next))
                stock->left = 0;
            c->held_bytes -= (uint64_t)(before - kept - stock->left) * size_class_bytes(i);
        }
    }
    size_t count = l->count;
    l->count = 0;
    for (size_t i = 0; i < count; i++) {
        struct limbo_entry e = l->ring[(l->head + i) & (l->room - 1)];
        if (client_swept(c, e.object & ((1ull << GADDR_BITS) - 1)))
            c->retired_bytes -= size_class_bytes((unsigned)(e.object >> GADDR_BITS));
        else
            l->ring[(l->head + l->count++) & (l->room - 1)] = e;
    }
}

/*
 * A client that was silent for too long, but whom nobody has fenced, goes on in its slot under a
 * new name: whoever was about to fence it will miss. Its certificate has counted all the time, so
 * what it holds is its own. Unfinished work it completes (LEASE-L2).
 */
static int renew(struct op *op, struct client *c)
{
    struct client_slot *slot = (struct client_slot *)op->pool_word;

    if (c->slot == NO_SLOT)
        return FAR_FENCED;
    uint64_t incarnation = new_incarnation(c), posted = c->ep->ops->coarse(c->ep);
    batch_read(&op->batch, NODE0, slot_delta(c->slot), slot, sizeof *slot);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    if (slot->incarnation != c->incarnation)
        return FAR_FENCED;
    batch_cas(&op->batch, NODE0, slot_delta(c->slot), c->incarnation, incarnation, op->pool_word);
    rc = batch_flush(&op->batch);
    if (rc != FAR_OK || op->pool_word[0] != c->incarnation)
        return rc != FAR_OK ? rc : FAR_FENCED;
    c->incarnation = incarnation;
    c->complete_after = 0;
    c->lease = (struct lease){.deadline = posted + c->lease_ns};
    return FAR_OK;
}

/* Another operation of the ring may be registering the client already. And before a client may
 * register again, all operations and recoveries that began under its old registration must have ended.
 * They do, because they can write nothing more. */
static void await_joined(struct op *op)
{
    struct client *c = op->client;
    struct backoff patience = {0};
    while ((c->joining || (c->lease.lost && (c->oldest || c->recoveries > 0))) &&
           client_backoff(op, &patience, 1)) {
        if (c->drive_ring && !op->batch.on_ring)
            c->drive_ring(c);
    }
}

static void doubt_caches(struct client *c)
{
    for (struct cached *cached = c->caches; cached; cached = cached->next)
        cached->stale = true;
}

int client_rejoin(struct op *op)
{
    struct client *c = op->client;
    struct batch_rider *rider = op->batch.rider;
    const struct lease *lease = op->batch.lease;

    if (!op->recovers)
        await_joined(op);
    if (!c->lease.lost)
        return FAR_OK;
    if (c->oldest || c->joining || c->recoveries > 0)
        return err_fail(FAR_FENCED, "this client was silent for longer than its lease");
    c->joining = c->rider.grounded = true;
    op->batch.rider = NULL;
    op->batch.lease = NULL;
    uint64_t began = c->ep->ops->coarse(c->ep);
    int rc = c->astray ? FAR_FENCED : renew(op, c);
    if (rc == FAR_OK && c->unannounced) {
        c->lease.lost = true; /* so that no other operation begins before that */
        rc = announce(op, c, began);
    }
    if (rc == FAR_FENCED) {
        doubt_caches(c);
        client_drop_all(c); /* what it held is another's to find */
        rc = join(op, c);
    }
    if (rc != FAR_OK)
        c->lease.lost = true; /* a broken-off join is no registration */
    else
        c->rider.grounded = false;
    op->batch.rider = rider;
    op->batch.lease = lease;
    c->joining = false;
    return rc;
}

/* Verbs of a batch that failed may still land (FABRIC-F5). So nobody may take this client for dead before the
 * fabric has shut it out: it does not fence itself, but asks for it, and whoever sees that does it in
 * the order of LEASE-L2. Where the fabric cannot, the lease is left to lapse. */
void client_renounce(struct op *op)
{
    struct client *c = op->client;
    if (c->ep->ops->fence && !c->lease.lost) {
        c->rider.grounded = true; /* it would say that we are alive */
        op->pool_word[0] = client_slot_renounced(c->incarnation);
        batch_write(&op->batch, NODE0,
                    slot_delta(c->slot) + offsetof(struct client_slot, heartbeat), op->pool_word,
                    8);
        (void)batch_flush(&op->batch); /* if it fails, others find out in time */
    }
    c->lease.lost = true;
    c->astray = true;
}

int client_unpark(struct op *op)
{
    struct client *c = op->client;
    struct batch_rider *rider = op->batch.rider;

    await_joined(op);
    if (!c->parked)
        return FAR_OK;
    if (c->joining)
        return err_fail(FAR_TIMEOUT, "another operation of this session cannot announce it");
    c->joining = true;
    op->batch.rider = NULL;
    int rc = announce(op, c, c->ep->ops->coarse(c->ep));
    op->batch.rider = rider;
    c->joining = false;
    return rc;
}

/* The keeper has it for a round trip, which ends, if not otherwise, by the fabric's time-out. */
void client_await_turn(struct client *c)
{
    for (;;) {
        uint64_t turn = atomic_load_explicit(&c->turn, memory_order_relaxed) & ~CLIENT_TURN_WHO;
        if (atomic_compare_exchange_weak_explicit(&c->turn, &turn,
                                                  turn + CLIENT_TURN_COUNT + CLIENT_TURN_OWN,
                                                  memory_order_acquire, memory_order_relaxed))
            return;
        clock_sleep(TURN_NS);
    }
}

int client_progress(struct client *c, const char *what, uint64_t done, uint64_t total)
{
    if (!c->progress || c->progress(c->progress_arg, what, done, total))
        return FAR_OK;
    return err_fail(FAR_STOPPED, "%s: stopped", what);
}

static void free_client(struct client *c)
{
    for (unsigned node = 0; c->stock && node < c->pool->nodes; node++)
        for (unsigned i = 0; i < CLASS_COUNT; i++)
            free(c->stock[node][i].keep);
    free(c->stock);
    free(c->watch);
    free(c->old_chunks);
    free(c->limbo.ring);
    free(c->lines.line);
    if (c->flight)
        c->ep->ops->buf_free(c->ep, c->flight, client_flight_bytes(c->pool));
}

void client_free_in_child(struct client *c)
{
    free_client(c);
}

int client_open(struct pool *pool, struct fab_ep *ep, uint64_t seed, struct client *c)
{
    memset(c, 0, sizeof *c);
    c->pool = pool;
    c->ep = ep;
    c->suspect = -1;
    c->advance_from = NO_EPOCH;
    c->overfull_class = -1;
    c->lease_ns = pool->knobs.no_reclaim ? NO_LEASE_NS : pool->head[0].lease_ms * 1000000ull;
    rng_seed(&c->rng, seed);
    c->generation = (uint8_t)rng_below(&c->rng, BLOCK_GENERATIONS);
    client_ride(c);
    c->stock = calloc(pool->nodes, sizeof *c->stock);
    c->watch = calloc(pool->clients, sizeof *c->watch);
    c->old_chunks = calloc(pool->nodes, sizeof *c->old_chunks);
    c->flight = ep->ops->buf_alloc(ep, client_flight_bytes(pool));
    int rc = c->stock && c->watch && c->old_chunks && c->flight
                 ? join_first(c)
                 : err_fail(FAR_NO_MEMORY, "no memory for a client");
    if (rc != FAR_OK)
        free_client(c);
    return rc;
}

/* Does a client that closes still have something that it cannot give back: memory that waits for its
 * epoch, or that a sweep has asked it to let go? */
static bool unsettled(const struct client *c)
{
    return c->limbo.count > 0 || c->sweep != 0 || c->sweep_unmet;
}

/* Drives the epochs on until nothing waits for them. Where idle sessions are parked it waits for that,
 * or until one that holds the epoch up has been found dead. */
static int settle_epochs(struct client *c, struct op *op)
{
    struct backoff patience = {0};
    unsigned flights = SETTLE_FLIGHTS;
    int rc = FAR_OK;
    do {
        for (unsigned i = 0; i < flights && unsettled(c) && rc == FAR_OK; i++) {
            rc = client_drive_epoch(op);
            while (client_reclaim(c)) {
            }
        }
        flights = SETTLE_EPOCH;
    } while (rc == FAR_OK && unsettled(c) && c->pool->kept &&
             client_backoff(op, &patience, SETTLE_LEASES));
    return rc;
}

/* What a client that closes would leave behind for a sweep is not left: what waits for its epoch is
 * waited for, and what it has lost, by freeing it while another swept, it finds by a sweep of its
 * own. */
static void settle(struct client *c, struct op *op)
{
    struct sweep_result swept;

    c->caches = c->flight_cached = NULL; /* they went with the views */
    op->batch.rider = &c->rider;
    int rc = settle_epochs(c, op);
    for (unsigned i = 0; i < SETTLE_SWEEPS && c->pool->kept && rc == FAR_OK &&
                         (c->lost_bytes > 0 || c->loss_told) && !client_has_stray_writes(c);
         i++) {
        rc = pool_sweep(op, &swept);
        if (rc == FAR_OK) {
            c->lost_bytes = 0;
            c->loss_told = false;
        }
        if (rc == FAR_OK || rc == FAR_CONTENTION) /* then one that began before ends first */
            rc = settle_epochs(c, op);
    }
    op->batch.rider = NULL;
}

/* Gives back what is free; what still waits for its epoch is left for a sweep. */
static void leave(struct client *c, struct op *op)
{
    uint64_t *word = op->pool_word;
    bool left_some = c->limbo.count > 0 || c->lost_bytes > 0 || c->sweep != 0;
    /* Twice: pages for what lies on a full node come from others, and with them more than is needed. */
    for (unsigned i = 0; i < 2 * c->pool->nodes; i++)
        left_some |= client_return_all(op, i % c->pool->nodes) != FAR_OK;
    if (client_has_stray_writes(c))
        return; /* EPOCH-E6: some of it may still arrive, and must not find another's memory there */
    if (left_some)
        batch_faa(&op->batch, NODE0, CONTROL_OFF + offsetof(struct pool_control, deaths), 1,
                  &word[0]);
    const uint32_t bytes = offsetof(struct client_slot, journals) - 8; /* which stay */
    memset(&word[2], 0, bytes);
    batch_write(&op->batch, NODE0, slot_delta(c->slot) + 8, &word[2], bytes);
    batch_fence(&op->batch);
    batch_cas(&op->batch, NODE0, slot_delta(c->slot), c->incarnation, 0, &word[1]);
    (void)batch_flush(&op->batch); /* a pool out of reach keeps the slot: its lease will lapse */
}

void client_close(struct client *c)
{
    struct op op;
    if (op_init(&op, c) == FAR_OK) {
        const struct lease *lease = op.batch.lease;
        op.batch.rider = NULL;
        op.batch.lease = NULL;
        bool registered = !client_lapsed(c) || (!c->astray && renew(&op, c) == FAR_OK);
        op.batch.lease = lease;
        if (registered && c->parked) /* else it might give away what a sweep has found */
            registered = client_unpark(&op) == FAR_OK;
        op.batch.rider = &c->rider;
        if (registered && client_must_complete(c))
            (void)client_complete(&op);
        op.batch.rider = NULL;
        if (registered && c->sweep_unmet) /* SWEEP-P1: its lists are not to be touched */
            registered = client_meet_sweep(&op) == FAR_OK;
        if (registered && !c->pool->knobs.no_reclaim)
            settle(c, &op);
        /* Else its lease will lapse, and others complete what is left (JOURNAL-J3, EPOCH-E6). */
        if (registered && !c->lease.lost && !client_has_stray_writes(c) && !client_has_undone(c))
            leave(c, &op);
        op_free(&op);
    }
    free_client(c);
}
