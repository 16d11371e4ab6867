/*
 * Puppet: how tests put a client into a rare state, and ask what state it is in.
 *
 * Rule: outside tests/support, no test reads or writes a field of struct client but pool, ep, slot
 * and incarnation, nor any field of the states within it, of its lease or of its announcements. A
 * test that needs another one gets a function here, named for what it does or asks. So the pool's
 * structures may change, and one file of tests with them.
 */
#ifndef TESTS_PUPPET_H
#define TESTS_PUPPET_H

#include "pool/pool_internal.h"

/* ---- its lease ------------------------------------------------------------------------------- */

/* Its lease passes, and nobody else knows. */
static inline void puppet_lapse(struct client *c)
{
    c->lease_deadline = 0;
}

/* It finds out that it was fenced. */
static inline void puppet_lose_lease(struct client *c)
{
    c->attention.lease_lost = true;
}

static inline bool puppet_lost_lease(const struct client *c)
{
    return c->attention.lease_lost;
}

/* Its lease is counted from now. */
static inline void puppet_renew_lease(struct client *c)
{
    c->lease_deadline = client_now(c) + c->lease_ns;
}

/* Its lease does not pass before the test ends: for a client whose clock has jumped. */
static inline void puppet_never_lapse(struct client *c)
{
    c->lease_deadline = UINT64_MAX / 2;
}

static inline uint64_t puppet_deadline(const struct client *c)
{
    return c->lease_deadline;
}

static inline uint64_t puppet_lease_ns(const struct client *c)
{
    return c->lease_ns;
}

static inline void puppet_set_lease_ns(struct client *c, uint64_t ns)
{
    c->lease_ns = ns;
}

/* It may write at any time, as on a fabric that shuts clients out by itself. */
static inline void puppet_ask_for_no_lease(struct client *c)
{
    for (unsigned i = 0; i < POLICY_COUNT; i++)
        c->posts[i].policy.may_write = NULL;
}

/* ---- its registration and its calls ---------------------------------------------------------- */

/* It dies: its slot and all it has stay as they are. Not even a close finds its slot. */
static inline void puppet_die(struct client *c)
{
    c->attention.lease_lost = true;
    c->incarnation ^= 1ull << 40;
}

/* It has given its slot up, and will take another. */
static inline void puppet_renounce(struct client *c)
{
    c->attention.lease_lost = c->must_leave_slot = true;
}

static inline bool puppet_renounced(const struct client *c)
{
    return c->attention.lease_lost && c->must_leave_slot;
}

/* client_park() has failed: its certificate may become NO_EPOCH at any time. */
static inline void puppet_fail_to_park(struct client *c)
{
    c->attention.parked = true;
    puppet_renounce(c);
}

static inline bool puppet_parked(const struct client *c)
{
    return c->attention.parked;
}

/* One of its operations is registering it again. */
static inline bool puppet_joining(const struct client *c)
{
    return c->attention.joining;
}

static inline void puppet_set_joining(struct client *c, bool joining)
{
    c->attention.joining = joining;
}

/* It has taken a slot, whose certificate is still its last owner's. */
static inline bool puppet_unannounced(const struct client *c)
{
    return c->unannounced;
}

static inline bool puppet_has_op_in_flight(const struct client *c)
{
    return c->epoch.oldest != NULL;
}

/* Its operations in flight stop for good: their memory is gone. */
static inline void puppet_forget_ops(struct client *c)
{
    c->epoch.oldest = c->epoch.newest = NULL;
    c->epoch.unmet = 0;
}

/* Another thread, the keeper of idle sessions, is using it. */
static inline bool puppet_is_lent(struct client *c)
{
    return (atomic_load(&c->turn) & CLIENT_TURN_WHO) == CLIENT_TURN_LENT;
}

/* What a long call reports its progress to; NULL: nothing. */
static inline void puppet_set_progress(struct client *c,
                                       bool (*progress)(void *arg, const char *what, uint64_t done,
                                                        uint64_t total),
                                       void *arg)
{
    c->progress = progress;
    c->progress_arg = arg;
}

/* A function in the place of the store's that drives the ring of the client's session. */
static inline void puppet_set_drive_ring(struct client *c, void (*drive_ring)(struct client *c))
{
    c->drive_ring = drive_ring;
}

/* Its session's ring goes on, as when a synchronous call waits for others. */
static inline void puppet_drive_ring(struct client *c)
{
    c->drive_ring(c);
}

/* ---- epochs ---------------------------------------------------------------------------------- */

/* The newest epoch that it has read, and the one after which it found its caches valid. */
static inline uint64_t puppet_epoch_seen(const struct client *c)
{
    return c->epoch.seen;
}

static inline uint64_t puppet_epoch_validated(const struct client *c)
{
    return c->epoch.validated;
}

/* What its last announcement certified. */
static inline uint64_t puppet_certificate(const struct client *c)
{
    return c->epoch.certified;
}

static inline void puppet_certify(struct client *c, uint64_t epoch)
{
    c->epoch.certified = epoch;
}

/* The epoch that its next announcement moves on; NO_EPOCH: none. */
static inline uint64_t puppet_advances_from(const struct client *c)
{
    return c->epoch.advance_from;
}

static inline uint64_t puppet_heartbeat(const struct client *c)
{
    return c->epoch.heartbeat;
}

/* Epochs go by: it has read the last of them, and its caches were valid then. */
static inline void puppet_pass_epochs(struct client *c, unsigned epochs)
{
    c->epoch.seen += epochs;
    c->epoch.validated = c->epoch.seen;
}

/* A client that no pool knows: it has seen `seen`, and its caches were valid at `validated`. */
static inline struct client puppet_at_epoch(uint64_t validated, uint64_t seen)
{
    return (struct client){.epoch = {.validated = validated, .seen = seen}};
}

/* One of its announcements arrives, and comes back with the next epoch. */
static inline void puppet_land(struct client *c)
{
    c->epoch.announced++;
    c->epoch.validated = c->epoch.seen++;
}

/* It knows of that many slots of the registry. */
static inline void puppet_know_slots(struct client *c, unsigned slots)
{
    c->epoch.high = slots;
}

/* Its next batch carries an announcement. */
static inline void puppet_announce(struct client *c)
{
    c->epoch.announcement.due = true;
}

/* Likewise, and that reads the registry, so that the epoch can go on. */
static inline void puppet_announce_hurried(struct client *c)
{
    c->epoch.announcement.due = c->epoch.hurried = true;
}

/* An announcement goes out, with the registry, and comes back as if it had been posted at that
 * time. */
static inline int puppet_announce_posted_at(struct op *op, uint64_t posted)
{
    struct client *c = op->client;
    c->epoch.announcement.add(&c->epoch.announcement, &op->batch);
    int rc = batch_flush(&op->batch);
    ASSERT(c->epoch.reads_registry);
    c->epoch.posted_at = posted;
    c->epoch.announcement.completed(&c->epoch.announcement, FAR_OK);
    return rc;
}

/* The operation's batches carry no announcements, until puppet_unmute(). */
static inline void puppet_mute(struct op *op)
{
    (void)client_set_policy(op, POLICY_SILENT);
}

static inline void puppet_unmute(struct op *op)
{
    (void)client_set_policy(op, POLICY_ANNOUNCING);
}

/* One of its requests that write has just failed: its verbs may arrive for half a lease. */
static inline void puppet_strays(struct client *c)
{
    c->broke_at = client_now(c);
}

/* That was long ago. */
static inline void puppet_no_strays(struct client *c)
{
    c->broke_at = 0;
}

/* How many caches of addresses it has. */
static inline unsigned puppet_caches(const struct client *c)
{
    unsigned count = 0;
    for (const struct cached *cached = c->epoch.caches; cached; cached = cached->next)
        count++;
    return count;
}

/* ---- other clients --------------------------------------------------------------------------- */

/* It suspects the client of that slot, whose word was `incarnation` when it looked. */
static inline void puppet_suspect(struct client *c, unsigned slot, uint64_t incarnation)
{
    c->watch.of[slot] =
        (struct watch){.incarnation = incarnation, .repairing = c->watch.of[slot].repairing};
    c->watch.suspect = (int)slot;
}

/* It suspects that client, and recovers it. */
static inline int puppet_recover(struct op *op, unsigned slot, uint64_t incarnation)
{
    puppet_suspect(op->client, slot, incarnation);
    return client_recover(op);
}

static inline void puppet_suspect_nobody(struct client *c)
{
    c->watch.suspect = -1;
}

/* The slot that it suspects, or -1. */
static inline int puppet_suspected(const struct client *c)
{
    return c->watch.suspect;
}

/* It last saw the other move at `since`. */
static inline void puppet_watch(struct client *c, const struct client *other, uint64_t since)
{
    c->watch.of[other->slot] = (struct watch){
        .incarnation = other->incarnation, .heartbeat = other->epoch.heartbeat, .since = since};
}

/* When did it last see the other, which has not moved since then, move? */
static inline uint64_t puppet_watched_since(const struct client *c, const struct client *other)
{
    const struct watch *w = &c->watch.of[other->slot];
    ASSERT(w->incarnation == other->incarnation && w->heartbeat == other->epoch.heartbeat);
    return w->since;
}

/* It need not wait any longer before it tries to recover another again. */
static inline void puppet_recover_now(struct client *c)
{
    for (unsigned i = 0; i < c->pool->clients; i++)
        c->watch.of[i].recover_after = 0;
}

static inline bool puppet_recovers(const struct client *c)
{
    return c->watch.recoveries > 0;
}

/* ---- work that was left ---------------------------------------------------------------------- */

/* It has that many journal lines to recover. */
static inline void puppet_set_undone(struct client *c, unsigned lines)
{
    c->attention.undone = lines;
}

/* How many lines of its journal were left with something in them. */
static inline unsigned puppet_undone(const struct client *c)
{
    return c->attention.undone;
}

/* It has its slot with its last owner's work. */
static inline bool puppet_inherited(const struct client *c)
{
    return c->attention.inherited;
}

static inline void puppet_inherit(struct client *c)
{
    c->attention.inherited = true;
}

/* It need not wait any longer before it tries to complete that again. */
static inline void puppet_complete_now(struct client *c)
{
    c->complete_after = 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static inline uint64_t puppet_held_bytes(const struct client *c)
{
    return c->stock.held_bytes;
}

static inline uint64_t puppet_retired_bytes(const struct client *c)
{
    return c->stock.retired_bytes;
}

static inline uint64_t puppet_lost_bytes(const struct client *c)
{
    return c->stock.lost_bytes;
}

/* It knows of that many bytes that only a sweep finds. */
static inline void puppet_set_lost_bytes(struct client *c, uint64_t bytes)
{
    c->stock.lost_bytes = bytes;
}

/* Retired objects that it has not reused yet. */
static inline size_t puppet_in_limbo(const struct client *c)
{
    return c->stock.limbo.count;
}

/* The n-th of them, the oldest first: its address, and its size class above that. */
static inline uint64_t puppet_limbo_object(const struct client *c, size_t n)
{
    return c->stock.limbo.ring[(c->stock.limbo.head + n) & (c->stock.limbo.room - 1)].object;
}

/* Drives the epochs on until it can reuse all of them; others must not hold the epochs up. */
static inline void puppet_reclaim_all(struct op *op)
{
    for (unsigned i = 0; i < 100000 && puppet_in_limbo(op->client) > 0; i++) {
        ASSERT(client_drive_epoch(op) == FAR_OK);
        (void)client_reclaim(op->client);
    }
    ASSERT(puppet_in_limbo(op->client) == 0 && puppet_retired_bytes(op->client) == 0);
}

/* They are in a ring: its size, and where the oldest is. */
static inline size_t puppet_limbo_room(const struct client *c)
{
    return c->stock.limbo.room;
}

static inline size_t puppet_limbo_head(const struct client *c)
{
    return c->stock.limbo.head;
}

/* Reusable objects that it keeps. */
static inline unsigned puppet_kept(const struct client *c, unsigned node, unsigned size_class)
{
    return c->stock.of[node][size_class].kept;
}

/* Is the object one of those? */
static inline bool puppet_keeps(const struct client *c, gaddr at, unsigned size_class)
{
    const struct stock *stock = &c->stock.of[gaddr_node(at)][size_class];
    for (unsigned i = 0; i < stock->kept; i++)
        if (stock->keep[i] == at)
            return true;
    return false;
}

/* Is it, or is it one of the objects that the client has never used? */
static inline bool puppet_holds(const struct client *c, gaddr at, unsigned size_class)
{
    const struct stock *stock = &c->stock.of[gaddr_node(at)][size_class];
    uint64_t off = gaddr_offset(at), from = gaddr_offset(stock->next);
    return puppet_keeps(c, at, size_class) ||
           (stock->left > 0 && off >= from &&
            off < from + stock->left * size_class_bytes(size_class));
}

/* The object that it last took from a new chunk. */
static inline gaddr puppet_last_new(const struct client *c, unsigned node, unsigned size_class)
{
    return c->stock.of[node][size_class].next - size_class_bytes(size_class) / 64;
}

/* It has no object of the class any more, nor a part of a chunk. */
static inline void puppet_empty_stock(struct client *c, unsigned node, unsigned size_class)
{
    c->stock.of[node][size_class].left = c->stock.of[node][size_class].kept = 0;
}

/* It keeps more of the class than it should. */
static inline void puppet_overfill(struct client *c, unsigned node, unsigned size_class)
{
    c->stock.overfull[node] |= 1ull << size_class;
    c->stock.overfull_nodes |= 1ull << node;
}

/* ---- sweeps ---------------------------------------------------------------------------------- */

/* The sweep that it has met, by its word; 0: none goes on that it knows. */
static inline uint64_t puppet_sweep(const struct client *c)
{
    return c->sweep.met;
}

static inline void puppet_set_sweep(struct client *c, uint64_t word)
{
    c->sweep.met = word;
}

/* It knows of one that it has not met. */
static inline bool puppet_sweep_unmet(const struct client *c)
{
    return c->attention.sweep_unmet;
}

/* The sweep that it makes itself, by its word; 0: none. */
static inline uint64_t puppet_own_sweep(const struct client *c)
{
    return c->sweep.mine;
}

static inline void puppet_set_own_sweep(struct client *c, uint64_t word)
{
    c->sweep.mine = word;
}

/* Chunks of the node below this one are the sweep's. */
static inline uint64_t puppet_sweep_mark(const struct client *c, unsigned node)
{
    return c->sweep.old_chunks[node];
}

static inline void puppet_set_sweep_mark(struct client *c, unsigned node, uint64_t chunks)
{
    c->sweep.old_chunks[node] = chunks;
}

/* How many sweeps there had been when it last had nothing to fear from one. */
static inline uint64_t puppet_sweeps_seen(const struct client *c)
{
    return c->sweep.counted;
}

#endif
