/* What only the pool's own files use. They stand above each other, in the order of this header: a
 * file calls those above its section here, and none below (tests/e2e/rooms.sh). */
#ifndef POOL_INTERNAL_H
#define POOL_INTERNAL_H

#include "pool/pool.h"

/* Where the pool's own words are: gaddr_make(0, 0), and offsets from there. */
#define NODE0 ((gaddr)0)
static inline uint64_t slot_delta(unsigned slot)
{
    return CLIENTS_OFF + slot * sizeof(struct client_slot);
}

/* Where a node's chunks begin. */
static inline uint64_t pool_chunks_start(const struct pool *pool, unsigned node)
{
    return (uint64_t)pool->head[node].chunks_off64 * 64;
}

static inline uint64_t client_now(const struct client *c)
{
    return c->ep->ops->coarse(c->ep);
}

/* May verbs of a request that failed still take effect? By FABRIC-F5 for half a lease; clocks
 * drift. */
static inline bool client_has_stray_writes(const struct client *c)
{
    return c->broke_at != 0 && client_now(c) - c->broke_at <= c->lease_ns / 2 + c->lease_ns / 16;
}

/* Sets the rules for the op's posts. Returns those that it had. */
static inline const struct batch_policy *client_set_policy(struct op *op, enum client_policy which)
{
    const struct batch_policy *before = op->batch.policy;
    op->batch.policy = &op->client->posts[which].policy;
    return before;
}

/* ---- stock.c --------------------------------------------------------------------------------- */

/* Is the object in memory that is being swept? Then it is not ours to hand out or keep. */
static inline bool client_swept(const struct client *c, gaddr at)
{
    if (__builtin_expect(c->sweep.met == 0, 1))
        return false;
    unsigned node = gaddr_node(at);
    uint64_t first = pool_chunks_start(c->pool, node);
    return (gaddr_offset(at) - first) >> CHUNK_SHIFT < c->sweep.old_chunks[node];
}

/* Takes an object of the stock, of any node's chunk or only one that was used before. */
bool stock_take(struct client *client, unsigned node, unsigned size_class, gaddr *at);
bool stock_take_kept(struct client *client, unsigned node, unsigned size_class, gaddr *at);
/* Puts the never-used objects of the current chunk with the others. */
void stock_keep_rest(struct client *client, unsigned node, unsigned size_class);
/* Makes these the never-used objects of the class. */
void stock_refill(struct client *client, unsigned node, unsigned size_class, gaddr next,
                  uint32_t count);
/* Takes `chunks` or more whole chunks off the end of the never-used objects. 0: there are not as many. */
uint64_t stock_take_chunks(struct client *client, unsigned node, unsigned size_class,
                           uint64_t chunks, gaddr *at);
/* Takes up to `most` objects that were used before. */
unsigned stock_take_many(struct client *client, unsigned node, unsigned size_class, uint64_t most,
                         uint64_t *objects);
/* How many objects of a class it may keep. */
unsigned stock_max(const struct client *client, unsigned size_class);
/* Moves objects whose epoch has come to the stock. True if there were any. */
bool client_reclaim(struct client *client);
/* Bytes that only a sweep can find were reported, so that others sweep, too; or found by a sweep. */
void client_loss_reported(struct client *client, uint64_t bytes);
void client_loss_found(struct client *client, uint64_t bytes);
/* Drops all free and retired memory: it is for a sweep to find. */
void client_drop_all(struct client *client);
/* Drops what the sweep that was just met looks for. */
void client_drop_swept(struct client *client);

/* ---- watch.c --------------------------------------------------------------------------------- */

/* Reads the registry, all of it, into one of the op's buffers. */
int client_registry(struct op *op, struct client_slot **slots);
/* Bytes that all clients have announced as retired, and as free in their hands. */
int client_bytes(struct op *op, uint64_t *retired, uint64_t *held);
/* Judges the registry as it was read by a request that was posted when it was `asked`: is there a
 * client with a certificate below `epoch` (NO_EPOCH: with any) that has been silent for longer than
 * its lease, or a fenced one that nobody recovers? It becomes the suspect. True while there is a client
 * of which it cannot be said whether it is alive. */
bool client_watch(struct client *client, const struct client_slot *slots, unsigned count,
                  uint64_t epoch, uint64_t asked);
/* Takes a client for silent. -1: none. */
void client_suspect(struct client *client, int slot);
/* Forgets what was seen of all clients. */
void client_watch_again(struct client *client);
#define WATCH_LEASES(ns) ((ns) + (ns) / 2) /* LEASE-L3 */
/* Has the last attempt to recover a client failed, a moment ago? That client was fenced, so it holds up
 * nobody's epoch. */
static inline bool client_recovery_waits(const struct client *c)
{
    return client_now(c) < c->watch.recover_after;
}

/* ---- freelist.c: lists of free objects that clients share ------------------------------------ */

/* Gives a bundle of the stock, written on a page of the class `page_class`. */
int freelist_give(struct op *op, unsigned node, unsigned size_class, gaddr page,
                  unsigned page_class);
/* How many objects of a class it gives at once, at most. */
unsigned freelist_bundle(unsigned size_class);
/* Which of the node's lists has the shortest runs of at least so many chunks? 0 and FAR_POOL_FULL:
 * none. */
int freelist_run_class(struct op *op, unsigned node, uint64_t chunks, unsigned *size_class);
/* What is on the lists, pages included; counted until it is enough. */
int freelist_bytes(struct op *op, uint64_t enough, uint64_t *bytes);
/* Is the node's list of that class whole? While others change it, nobody can say: then it is. */
int freelist_whole(struct op *op, unsigned node, unsigned size_class, bool *whole);
/* FAR_POOL_FULL: the list is empty. */
int freelist_take(struct op *op, unsigned node, unsigned size_class);

/* ---- alloc.c --------------------------------------------------------------------------------- */

/* What the chunk table says of a run. */
void pool_describe_run(uint64_t *entries, unsigned size_class, unsigned client);
/* What the first `count` chunks of a node are used for. The caller frees the table, also after an
 * error. */
int pool_chunk_table(struct op *op, unsigned node, uint64_t count, uint64_t **table);
/* Gives a bundle of the class to the shared lists, with a page that it finds for it. */
int client_give(struct op *op, unsigned node, unsigned size_class);
/* Gives all free objects on a node to the shared lists. */
int client_give_all(struct op *op, unsigned node);

/* ---- epoch.c --------------------------------------------------------------------------------- */

/* Sets the announcement and the rules for posts up. `words` has client_words_bytes(). */
void client_epoch_init(struct client *client, uint64_t *words);
static inline size_t client_words_bytes(const struct pool *pool)
{
    return 128 + pool->clients * sizeof(struct client_slot);
}
/* The next batch carries an announcement, which validates the cache (NULL: none). */
void client_announce_soon(struct client *client, struct cached *cached);
void client_forget_caches(struct client *client);
/* All caches are stale: nobody has validated them. */
void client_doubt_caches(struct client *client);

/* ---- journal.c ------------------------------------------------------------------------------- */

#define JOURNAL_CLASS 7 /* 512 bytes: as BUNDLE_CLASS, so that they share chunks */
struct journal_image {  /* in an op's BUF_JOURNAL */
    struct journal_line line;
    uint64_t blank[2];
};
/* Recovers all lines of a dead client's slot, which this client has claimed. */
int journal_recover(struct op *op, unsigned slot);
/* Recovers those of the own slot that no operation has. */
int journal_complete(struct op *op);
/* The client has another slot, or none: its lines were the old slot's. */
void journal_forget(struct client *client);
/* Marks all lines of all slots. How many chains are damaged, and one slot of those. */
int journal_mark(struct op *op, struct marker *marker, unsigned *damaged, unsigned *slot);

/* ---- sweep_part.c ---------------------------------------------------------------------------- */

/* Reads a count of chunks of every node. */
int pool_read_marks(struct op *op, uint64_t delta, uint64_t *words);
/* Takes part in a sweep that was announced: reads what is being swept. */
int client_meet_sweep(struct op *op);

/* ---- lease.c --------------------------------------------------------------------------------- */

/* Shuts the suspect out and recovers what it left. Any number of clients may call this at once: one
 * does it, the others return. A client without a slot takes the suspect's if its owner left work undone,
 * and completes that once it is announced. */
int client_recover(struct op *op);
/* The same, but while nodes have not answered it returns FAR_OK and leaves the suspect as it is. */
int client_try_recover(struct op *op);

/* Completes the work that this client found in its slot, or that its own operations left. If that
 * fails, the journal stays, and the next attempt is due a lease later. */
int client_complete(struct op *op);
static inline bool client_has_undone(const struct client *c)
{
    return c->attention.inherited || c->attention.undone > 0;
}
static inline bool client_must_complete(const struct client *c)
{
    return __builtin_expect(client_has_undone(c), 0) && !c->attention.joining &&
           !client_has_stray_writes(c) && client_now(c) >= c->complete_after;
}

/* ---- registry.c ------------------------------------------------------------------------------ */

/* Registers a client that was just opened. */
int client_join(struct client *client);
/* Goes on in the slot under another name, if nobody has fenced the client. */
int client_renew(struct op *op);
/* After the lease has lapsed: registers again. If nobody has noticed the silence, in the old slot,
 * and what the client held stays its own; else as another client. FAR_FENCED: an operation that began
 * before is still in flight. */
int client_rejoin(struct op *op);
/* Announces a parked client. */
int client_unpark(struct op *op);

/* ---- attend.c -------------------------------------------------------------------------------- */

/* Does what client.attention says. */
int client_attend(struct op *op);
/* Drives the epoch until it is there. Another client may hold it up for as long as its lease and the
 * watch take: FAR_TIMEOUT when it has not moved for that many leases. */
int client_await_epoch(struct op *op, uint64_t epoch, unsigned leases);

#endif
