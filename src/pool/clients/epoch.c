/*
 * Epochs: when may memory be reused that others may still be reading?
 *
 * There is one global epoch G, a word on node 0. Every client keeps a certificate in its registry
 * slot: an epoch e, which says "no operation of mine that is still in flight began before I had
 * read e, and none uses an address from a cache that was not validated after that". The global
 * epoch goes from g to g+1 only when every client has certified at least g.
 *
 * None of this costs a round trip. Every so often, an operation's batch carries a few more verbs
 * (an announcement). They write the certificate, and read the epoch, the registry and the version
 * of the cache in use.
 *
 *   EPOCH-E1  G <= certificate of any live client + 1.
 *   EPOCH-E2  A client certifies e only when all of its operations in flight began after it had
 *       validated its caches, and it validated them after it had read e. To validate a cache is to
 *       read its version word. This happens in the announcement after the one that read e, so it
 *       surely came later. Caches that were not validated are marked stale, and are read again
 *       before their next use. Entries that carry the epoch in which they were read need no version
 *       (CACHE-K1 in index/cache.h).
 *   EPOCH-E3  An object is retired after it was made unreachable, and, if caches may know it, after
 *       their version word was changed. Let v be the epoch that the retiring client had validated
 *       at that time, t. Then G(t) <= v+1 by EPOCH-E1. The object is reused when G has been seen at
 *       v+3 or more. By then every client has certified v+2, so it read v+2 after t. By EPOCH-E2
 *       all of its operations in flight began, and all of its caches were validated, when the
 *       object was unreachable.
 *   EPOCH-E4  Only an object that is known to be unreachable is retired. Suppose
 *       that the verb that makes an object reachable, or unreachable, ends with an error of the
 *       fabric. Then the object may be either. No epoch helps, and it is left to a sweep
 *       (pool_abandon()).
 *   EPOCH-E5  A client without operations in flight may certify NO_EPOCH (it is parked): nobody
 *       waits for it. It holds no address but in its caches, which are all stale from then on. It
 *       begins its next operation like a client that joins. What it holds is its own unless a sweep
 *       was announced meanwhile. The sweep has not waited for it to let go, so it forgets what it
 *       held, and counts it as lost, because the sweep did not look above its mark.
 *   EPOCH-E6  Verbs of a request that ended with an error may land later, for up to half a lease
 *       (FABRIC-F5). For that long they count as an operation in flight: the client certifies
 *       nothing newer, is not parked, and does not give up its slot.
 *
 * A client that joins reads G before anything else and holds no addresses, so no harm is done if
 * others do not see it at first. A client that is silent for a lease and a half is shut out
 * (lease.c), and its certificate no longer counts.
 *
 * Example: why v+3, and not v+2. A retires X when it has validated 7 and G is 8 already.
 *
 *    G   client A                              client B
 *    8   has validated 7                       an operation begins at 8, and reads a pointer to X
 *    8   unlinks X, retires it: 7 + 3 = 10
 *    8   certifies 8                           certifies 8, so G may go on to 9
 *    9   reads 9: X still waits                reads X, certifies no more than 8: G stays at 9
 *    9   certifies 9                           the operation ends. B certifies 9: G goes on to 10
 *   10   reads 10: X goes to its stock         nothing that B has in flight or cached leads to X
 */
#include "pool/pool_internal.h"

#include <string.h>

/* The words of an announcement. */
enum { F_SLOT = 0, F_CONTROL = 4, F_VERSION = 8, F_CAS = 9, F_INCARNATION = 10, F_REGISTRY = 16 };

/* Retired bytes after which a client announces itself, however few operations that took. This
 * bounds the bytes that wait for their epoch. */
#define TICK_BYTES (256u << 10)

/* ---- announcements --------------------------------------------------------------------------- */

/* The client certifies nothing newer while it has not met a sweep that was announced (SWEEP-P1),
 * nor while an operation is in flight that began before it had (SWEEP-P2), nor while verbs of a
 * request that failed may still land (EPOCH-E6). */
static uint64_t certificate(const struct client *c)
{
    if (c->attention.parked) /* EPOCH-E5 */
        return NO_EPOCH;
    if (c->attention.sweep_unmet || c->epoch.unmet > 0 || client_has_stray_writes(c))
        return c->epoch.certified;
    uint64_t epoch = c->epoch.validated;
    if (c->epoch.oldest && c->epoch.oldest->epoch < epoch)
        epoch = c->epoch.oldest->epoch;
    if (c->rescue) { /* what is left of requests that are done (fab_chain_ops) */
        uint64_t oldest = c->ep->ops->chain->oldest(c->ep, 0);
        epoch = oldest < epoch ? oldest : epoch;
    }
    return epoch;
}

static struct client *announcer(struct batch_piggyback *piggyback)
{
    return (struct client *)((char *)piggyback - offsetof(struct client, epoch.announcement));
}

static void add_announcement(struct batch_piggyback *piggyback, struct batch *b)
{
    struct client *c = announcer(piggyback);
    uint64_t *f = c->epoch.words;

    f[F_SLOT] = c->epoch.certified = certificate(c);
    f[F_SLOT + 1] = ++c->epoch.heartbeat;
    f[F_SLOT + 2] = c->stock.retired_bytes;
    f[F_SLOT + 3] = c->stock.held_bytes;
    batch_write(b, MARK_EARLY, NODE0, slot_delta(c->slot) + offsetof(struct client_slot, epoch),
                &f[F_SLOT], 32);
    batch_read(b, NODE0, slot_delta(c->slot), &f[F_INCARNATION], 8);
    c->epoch.posted_as = c->incarnation;
    batch_read(b, NODE0, CONTROL_OFF, &f[F_CONTROL], 32);
    if (c->epoch.validates)
        batch_read(b, c->epoch.validates->version_at, c->epoch.validates->version_delta,
                   &f[F_VERSION], 8);
    /* All clients had certified advance_from at our last look, and so had we. Since then a failed
     * request or a sweep may have set our own certificate back (EPOCH-E1). */
    if (c->epoch.advance_from != NO_EPOCH && c->epoch.certified >= c->epoch.advance_from)
        batch_cas(b, MARK_PUBLISH, NODE0, CONTROL_OFF, c->epoch.advance_from,
                  c->epoch.advance_from + 1, &f[F_CAS]);
    c->epoch.reads_registry =
        (c->stock.limbo.count > 0 || c->epoch.hurried) && c->epoch.advance_from == NO_EPOCH;
    c->epoch.hurried = false;
    if (c->epoch.reads_registry)
        batch_read(b, NODE0, CLIENTS_OFF, &f[F_REGISTRY],
                   (uint32_t)(c->epoch.high * sizeof(struct client_slot)));
    c->epoch.advance_from = NO_EPOCH;
    c->epoch.ops_since = 0;
    c->epoch.retired_at = c->stock.retired_ever;
    c->epoch.posted_at = client_now(c);
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

static void announcement_completed(struct batch_piggyback *piggyback, int status)
{
    struct client *c = announcer(piggyback);
    const uint64_t *f = c->epoch.words;

    if (status != FAR_OK) {
        piggyback->due = true;
        /* EPOCH-E5: it may arrive when operations are in flight. */
        if (c->epoch.certified == NO_EPOCH && status != FAR_FENCED && status != FAR_UNREACHABLE)
            c->attention.lease_lost = c->must_leave_slot = true;
        return;
    }
    if (c->epoch.posted_as != c->incarnation)
        return;
    if (f[F_INCARNATION] != c->incarnation) { /* LEASE-L1: fenced, though we thought we had time */
        c->attention.lease_lost = true;
        return;
    }
    /* EPOCH-E1: nobody counts our certificate, or it is damaged. */
    if (!c->attention.parked && f[F_CONTROL] > c->epoch.certified + 1) {
        c->attention.lease_lost = c->must_leave_slot = true;
        return;
    }
    if (c->epoch.posted_at + c->lease_ns > c->lease_deadline) /* else RESCUE-3 */
        c->lease_deadline = c->epoch.posted_at + c->lease_ns;
    /* EPOCH-E2: this announcement read the version after the last one had read the epoch. */
    for (struct cached *cached = c->epoch.caches; cached; cached = cached->next)
        if (cached != c->epoch.validates || f[F_VERSION] != cached->version)
            cached->stale = true;
    c->epoch.announced++;
    uint64_t before = c->epoch.seen;
    c->epoch.validated = before;
    if (c->rescue)
        (void)c->ep->ops->chain->oldest(c->ep, c->epoch.oldest && c->epoch.oldest->epoch < before
                                                   ? c->epoch.oldest->epoch
                                                   : before);
    /* If the registry has grown since our last look, we have not read all of it: a client that
     * joined before the epoch was `before` is below the `high` that this announcement has read. */
    if (f[F_CONTROL + 1] > c->epoch.high && f[F_CONTROL + 1] <= c->pool->clients) {
        c->epoch.high = f[F_CONTROL + 1];
    } else if (c->epoch.reads_registry) {
        const struct client_slot *slots = (const struct client_slot *)&f[F_REGISTRY];
        if (all_certified(c, slots, (unsigned)c->epoch.high, before))
            c->epoch.advance_from = before;
        client_watch(c, slots, (unsigned)c->epoch.high, before, c->epoch.posted_at);
    }
    if (f[F_CONTROL] > c->epoch.seen)
        c->epoch.seen = f[F_CONTROL];
    uint64_t sweep = f[F_CONTROL + 3];
    if (!(sweep & SWEEP_ANNOUNCED) || sweep == c->sweep.mine)
        sweep = 0; /* if there was one that we did not meet, it was given up */
    if (sweep == 0)
        c->sweep.met = 0;
    c->attention.sweep_unmet = sweep != c->sweep.met;
}

/* Has an eighth of the lease passed since the last heartbeat? Has half of it? */
static bool heartbeat_due(const struct client *c, uint64_t now)
{
    return now + c->lease_ns - c->lease_ns / 8 > c->lease_deadline;
}

static bool heartbeat_urgent(const struct client *c, uint64_t now)
{
    return now + c->lease_ns / 2 > c->lease_deadline;
}

bool client_heartbeat_due(const struct client *c)
{
    return heartbeat_due(c, client_now(c));
}

/* The next batch carries an announcement, which validates the cache (NULL: none). */
static void announce_soon(struct client *c, struct cached *cached)
{
    if (c->epoch.announcement.posted)
        return;
    c->epoch.announcement.due = true;
    c->epoch.validates = cached;
}

/* A long operation sends heartbeats, too. And its batches count like operations. Otherwise a
 * session that walks tables would announce itself only when a heartbeat is due, and hold up all
 * epochs until then. Not if it works without a cache: the announcement would make all caches stale.
 * And not while there is something to attend to: operations that meet a sweep start over when an
 * announcement has completed. */
static void look(struct batch_piggyback *piggyback)
{
    struct client *c = announcer(piggyback);
    piggyback->flushes = 0;
    uint64_t now = client_now(c);
    piggyback->due |= heartbeat_due(c, now);
    c->epoch.ops_since += PIGGYBACK_LOOK;
    if (c->epoch.ops_since >= c->pool->knobs.tick_ops && c->epoch.used && c->attention.any == 0)
        announce_soon(c, c->epoch.used);
    piggyback->urgent = heartbeat_urgent(c, now);
}

/* Verbs of a batch that failed may still land (FABRIC-F5). So nobody may take this client for dead
 * before the fabric has shut it out. The client does not fence itself, but asks for it, by its last
 * heartbeat; a client that sees this does it in the order of LEASE-L2. Where the fabric cannot shut
 * clients out, the lease is left to lapse. */
void client_renounce(struct op *op)
{
    struct client *c = op->client;
    if (c->ep->ops->fence && !c->attention.lease_lost) {
        client_withhold_announcements(c, true);
        op->pool_word[0] = client_slot_renounced(c->incarnation);
        batch_write(&op->batch, MARK_EARLY, NODE0,
                    slot_delta(c->slot) + offsetof(struct client_slot, heartbeat), op->pool_word,
                    8);
        (void)batch_flush(&op->batch); /* if it fails, others find out in time */
    }
    c->attention.lease_lost = true;
    c->must_leave_slot = true;
}

/* ---- the rules for posts --------------------------------------------------------------------- */

/* LEASE-L1 */
static bool within_lease(const struct batch_policy *policy)
{
    return !client_lapsed(((const struct client_posts *)policy)->client);
}

static void post_failed(const struct batch_policy *policy)
{
    struct client *c = ((const struct client_posts *)policy)->client;
    c->broke_at = client_now(c);
    if (c->rescue) /* its lines may say what it does not know: others settle them */
        c->attention.lease_lost = c->must_leave_slot = true;
}

void client_epoch_init(struct client *c, uint64_t *words)
{
    /* Where the fabric shuts clients out, posts need not ask for the lease. */
    bool leased = !c->ep->ops->fence;
    c->epoch.words = words;
    c->epoch.advance_from = NO_EPOCH;
    c->epoch.announcement = (struct batch_piggyback){
        .look = look, .add = add_announcement, .completed = announcement_completed};
    for (unsigned i = 0; i < POLICY_COUNT; i++)
        c->posts[i] = (struct client_posts){
            .policy = {.may_write = leased && i != POLICY_JOINING ? within_lease : NULL,
                       .refusal = "this client's lease has lapsed",
                       .failed = post_failed,
                       .piggyback = i == POLICY_ANNOUNCING ? &c->epoch.announcement : NULL},
            .client = c};
}

/* ---- operations ------------------------------------------------------------------------------ */

uint64_t client_next_heartbeat(struct client *c)
{
    return ++c->epoch.heartbeat;
}

void client_send_heartbeat(struct client *c)
{
    c->epoch.announcement.due = true;
}

void client_hurry_epoch(struct client *c)
{
    c->epoch.announcement.due = c->epoch.hurried = true;
}

/* As many as this read the registry, on average. */
#define HURRYING 8u

void client_help_epoch(struct client *c)
{
    c->epoch.announcement.due = true;
    if (c->epoch.high <= HURRYING || rng_below(&c->rng, c->epoch.high) < HURRYING)
        c->epoch.hurried = true;
}

#define STAMP_COUNT_BITS 23
uint64_t client_stamp(struct client *c)
{
    uint64_t count = c->stamps++ & ((1ull << STAMP_COUNT_BITS) - 1);
    uint64_t mask = (1ull << CLIENT_STAMP_BITS) - 1;
    return (c->incarnation << STAMP_COUNT_BITS & mask) | count;
}

void client_announce_parked(struct client *c)
{
    ASSERT(!c->epoch.oldest);
    c->epoch.announcement.due = true;
    c->epoch.validates = NULL; /* EPOCH-E5: all caches are stale when this has completed */
}

void client_withhold_announcements(struct client *c, bool withheld)
{
    c->epoch.announcement.withheld = withheld;
}

uint64_t client_certify(struct client *c, uint64_t epoch)
{
    c->epoch.seen = c->epoch.validated = c->epoch.certified = epoch;
    if (c->rescue)
        (void)c->ep->ops->chain->oldest(c->ep, epoch);
    return ++c->epoch.heartbeat;
}

bool op_in_flight(const struct op *op)
{
    return op->older || op->client->epoch.oldest == op;
}

int op_begin(struct op *op, struct cached *cached)
{
    struct client *c = op->client;
    ASSERT(!op_in_flight(op) && op->batch.count == 0 && op->batch.policy);
    uint64_t now = client_now(c);
    if (__builtin_expect(c->attention.any != 0 || now > c->lease_deadline, 0)) {
        int rc = c->attend(op);
        if (rc != FAR_OK)
            return rc;
        now = client_now(c);
    }
    op->unmet = c->attention.sweep_unmet; /* it has work to recover before it meets the sweep */
    c->epoch.unmet += op->unmet;
    op->epoch = c->epoch.validated;
    op->newer = NULL;
    op->older = c->epoch.newest;
    if (c->epoch.newest)
        c->epoch.newest->newer = op;
    else
        c->epoch.oldest = op;
    c->epoch.newest = op;
    c->epoch.announcement.flushes = 0;
    c->epoch.used = cached;
    if (++c->epoch.ops_since >= c->pool->knobs.tick_ops ||
        c->stock.retired_ever - c->epoch.retired_at >= TICK_BYTES || heartbeat_due(c, now))
        announce_soon(c, cached);
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
        c->epoch.oldest = op->newer;
    if (op->newer)
        op->newer->older = op->older;
    else
        c->epoch.newest = op->older;
    c->epoch.unmet -= op->unmet;
    op->older = op->newer = NULL;
}

void client_forget_caches(struct client *c)
{
    c->epoch.caches = c->epoch.validates = c->epoch.used = NULL;
}

void client_cache(struct client *c, struct cached *cached)
{
    cached->stale = true;
    cached->next = c->epoch.caches;
    c->epoch.caches = cached;
}

void client_uncache(struct client *c, struct cached *cached)
{
    struct cached **at = &c->epoch.caches;
    while (*at && *at != cached)
        at = &(*at)->next;
    if (*at)
        *at = cached->next;
    if (c->epoch.validates == cached)
        c->epoch.validates = NULL;
    if (c->epoch.used == cached)
        c->epoch.used = NULL;
}

void client_doubt_caches(struct client *c)
{
    for (struct cached *cached = c->epoch.caches; cached; cached = cached->next)
        cached->stale = true;
}

struct epoch_view client_epoch_view(const struct client *c)
{
    return (struct epoch_view){.seen = c->epoch.seen,
                               .validated = c->epoch.validated,
                               .newest = c->epoch.newest ? c->epoch.newest->epoch : 0,
                               .announced = c->epoch.announced};
}
