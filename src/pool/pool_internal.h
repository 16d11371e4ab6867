/* What only the pool's own files use. They are layered in the order of this header: a file calls
 * functions of the sections above its own, and none of those below (tests/e2e/rooms.sh). */
#ifndef POOL_INTERNAL_H
#define POOL_INTERNAL_H

#include "pool/pool.h"

/* Where the pool's own words are: gaddr_make(0, 0), and offsets from there. */
#define NODE0        ((gaddr)0)
#define SWEEP_DELTA  (CONTROL_OFF + offsetof(struct pool_control, sweep))
#define SWEEPS_DELTA (CONTROL_OFF + offsetof(struct pool_control, sweeps))
#define DEATHS_DELTA (CONTROL_OFF + offsetof(struct pool_control, deaths))
static inline uint64_t slot_delta(unsigned slot)
{
    return CLIENTS_OFF + slot * sizeof(struct client_slot);
}

/* Where a node's chunks begin. */
static inline uint64_t pool_chunks_start(const struct pool *pool, unsigned node)
{
    return (uint64_t)pool_head(pool, node)->chunks_off64 * 64;
}

static inline uint64_t client_now(const struct client *c)
{
    return c->ep->ops->coarse(c->ep);
}

/* May verbs of a request that failed still take effect? They may for half a lease (FABRIC-F5); a
 * sixteenth is added for clocks that drift. */
static inline bool client_has_stray_writes(const struct client *c)
{
    return c->broke_at != 0 && client_now(c) - c->broke_at <= c->lease_ns / 2 + c->lease_ns / 16;
}

/* Sets the rules for the op's posts. Returns those that it had. */
static inline const struct batch_policy *client_set_policy(struct op *op, enum client_policy which)
{
    ASSERT(which < POLICY_COUNT);
    const struct batch_policy *before = op->batch.policy;
    op->batch.policy = &op->client->posts[which].policy;
    return before;
}

/* ---- memory/stock.c -------------------------------------------------------------------------- */

/* Is the object in memory that is being swept? Then the client must neither hand it out nor keep
 * it. */
static inline bool client_swept(const struct client *c, gaddr at)
{
    if (__builtin_expect(c->sweep.met == 0, 1))
        return false;
    unsigned node = gaddr_node(at);
    uint64_t first = pool_chunks_start(c->pool, node);
    return (gaddr_offset(at) - first) >> CHUNK_SHIFT < c->sweep.old_chunks[node];
}

/* Takes an object from the stock; the second takes only one that was used before. False: none. */
bool stock_take(struct client *client, unsigned node, unsigned size_class, gaddr *at);
bool stock_take_kept(struct client *client, unsigned node, unsigned size_class, gaddr *at);
/* Puts the never-used objects of the current chunk with the others. */
void stock_keep_rest(struct client *client, unsigned node, unsigned size_class);
/* Makes these the never-used objects of the class. */
void stock_refill(struct client *client, unsigned node, unsigned size_class, gaddr next,
                  uint32_t count);
/* Takes all whole chunks off the end of the never-used objects, if there are at least `chunks`.
 * Returns how many; 0: too few. */
uint64_t stock_take_chunks(struct client *client, unsigned node, unsigned size_class,
                           uint64_t chunks, gaddr *at);
/* Takes up to `most` objects that were used before. */
unsigned stock_take_many(struct client *client, unsigned node, unsigned size_class, uint64_t most,
                         uint64_t *objects);
/* How many objects of a class a client may keep. */
unsigned stock_max(const struct client *client, unsigned size_class);
/* Objects of the class that the client holds, on all nodes. */
uint64_t stock_count(const struct client *client, unsigned size_class);
/* Has it one besides a spare, or a run that can be cut for one? */
bool stock_serves(const struct client *client, unsigned size_class);
/* Notes that a sweep begins that only cuts memory again. */
void stock_note_recut(struct client *client);
/* Is a stock past its limit, and does no other operation give some of it to the shared lists? The
 * first lets this operation do so, the second ends it. */
bool stock_begin_giving(struct client *client, unsigned *node, unsigned *size_class);
void stock_end_giving(struct client *client, unsigned node, unsigned size_class);
/* Moves objects whose epoch has come to the stock. True if there were any. */
bool client_reclaim(struct client *client);
/* Lost bytes were reported, so that others sweep, too. */
void client_loss_reported(struct client *client, uint64_t bytes);
/* A sweep has found them. */
void client_loss_found(struct client *client, uint64_t bytes);
/* Drops all free and retired memory: a sweep finds it. */
void client_drop_all(struct client *client);
/* Drops what lies in memory that is being swept. */
void client_drop_swept(struct client *client);

/* ---- memory/freelist.c: lists of free objects that clients share ----------------------------- */

/* Gives a bundle of the stock, written on a page of the class `page_class`. */
int freelist_give(struct op *op, unsigned node, unsigned size_class, gaddr page,
                  unsigned page_class);
/* How many objects of a class are given at once, at most. */
unsigned freelist_bundle(unsigned size_class);
/* Finds the node's list with the shortest runs of at least `chunks` chunks. FAR_POOL_FULL, and
 * class 0: there is none. */
int freelist_run_class(struct op *op, unsigned node, uint64_t chunks, unsigned *size_class);
/* Counts the bytes on the lists, pages included, until there are `enough`. */
int freelist_bytes(struct op *op, uint64_t enough, uint64_t *bytes);
/* Is the node's list of that class undamaged? If it changed meanwhile, nobody knows, and this says
 * yes. */
int freelist_whole(struct op *op, unsigned node, unsigned size_class, bool *whole);
/* FAR_POOL_FULL: the list is empty. */
int freelist_take(struct op *op, unsigned node, unsigned size_class);

/* ---- memory/alloc.c -------------------------------------------------------------------------- */

/* In a sweep, which has taken all that the client held: gets its spares back, as far as they are
 * runs and there is memory. */
void pool_restore_spares(struct op *op);
/* As pool_alloc_on(), but sweeps do not cut memory for it: operations wait for other sizes. */
int pool_alloc_aside(struct op *op, unsigned node, unsigned size_class, gaddr *at);
/* Makes the chunk table entries of a run. */
void pool_describe_run(uint64_t *entries, unsigned size_class, unsigned client);
/* Reads what the first `count` chunks of a node are used for. The caller frees the table, also
 * after an error. */
int pool_chunk_table(struct op *op, unsigned node, uint64_t count, uint64_t **table);
/* Finds a page, and gives a bundle of the class to the shared lists. */
int client_give(struct op *op, unsigned node, unsigned size_class);
/* Gives all free objects on a node to the shared lists. */
int client_give_all(struct op *op, unsigned node);

/* ---- clients/watch.c ------------------------------------------------------------------------- */

/* Does this client count as dead, by what its slot says now and has said before? */
bool client_is_dead(struct client *c, const struct client_slot *s, unsigned slot, uint64_t asked);
/* Reads the registry, all of it, into one of the op's buffers. */
int client_registry(struct op *op, struct client_slot **slots);
/* Bytes that all clients have announced as retired, and as free but held. */
int client_bytes(struct op *op, uint64_t *retired, uint64_t *held);
/* Judges the registry, as read by a request that was posted at `asked`. If a client with a
 * certificate below `epoch` (NO_EPOCH: with any) has been silent for WATCH_LEASES, or its process
 * is known to be dead (LEASE-L4), or it is fenced and nobody recovers it, it becomes the suspect.
 * Returns true while it is not known of all such clients whether they are alive. The silence of all
 * others counts, too, unless they are parked: when one of several dead clients is out of the way,
 * the next one need not be watched first. */
bool client_watch(struct client *client, const struct client_slot *slots, unsigned count,
                  uint64_t epoch, uint64_t asked);
/* Sets the suspect: a slot, or -1. */
void client_suspect(struct client *client, int slot);
/* Forgets what was seen of all clients. */
void client_watch_again(struct client *client);
#define WATCH_LEASES(ns) ((ns) + (ns) / 2) /* LEASE-L3 */
/* Did an attempt to recover the client in a slot fail a moment ago? Then the next one can wait:
 * that client is fenced, so it holds up no epoch. */
static inline bool client_recovery_waits(const struct client *c, unsigned slot)
{
    return client_now(c) < c->watch.of[slot].recover_after;
}

/* ---- clients/epoch.c ------------------------------------------------------------------------- */

/* For a heartbeat that does not ride with an announcement. */
uint64_t client_next_heartbeat(struct client *c);
/* Sets up the announcement and the rules for posts. `words` has client_words_bytes(). */
void client_epoch_init(struct client *client, uint64_t *words);
static inline size_t client_words_bytes(const struct pool *pool)
{
    return 128 + pool->clients * sizeof(struct client_slot);
}
/* The next batch carries the announcement of a parked client, which validates no cache. */
void client_announce_parked(struct client *client);
/* Withholds announcements: they would say that a client is alive that is not registered. */
void client_withhold_announcements(struct client *client, bool withheld);
/* Starts at an epoch that a client which joins has read, and certifies it. Returns its next
 * heartbeat. */
uint64_t client_certify(struct client *client, uint64_t epoch);
void client_forget_caches(struct client *client);
/* Marks all caches stale. */
void client_doubt_caches(struct client *client);

/* ---- clients/rescue.c ------------------------------------------------------------------------ */

int client_rescue_init(struct client *c);
void client_rescue_free(struct client *c);
/* Takes lines for a client that has no slot yet. */
int client_visit(struct op *op);
/* Ends what a client that is shut out has begun on one machine of a chain and not on the other. */
int client_settle(struct client *c, unsigned slot, uint64_t incarnation);
/* Waits until nothing of the client is on its way to the tail. */
void client_finish(struct client *c);

/* ---- clients/journal_slots.c ----------------------------------------------------------------- */

/* Marks all lines of all slots. Sets *damaged to the number of damaged chains, *slot to the slot of
 * one. */
int journal_mark(struct op *op, struct marker *marker, unsigned *damaged, unsigned *slot);

/* ---- clients/journal.c ----------------------------------------------------------------------- */

/* Blanks the spent lines of the own slot (JOURNAL-J5). */
int journal_blank_spent(struct op *op);
/* Is there still none where journal_take() found neither a line nor memory for one? */
bool journal_lacks_line(const struct op *op);
/* Forgets the lines: the client has another slot, or none. */
void journal_forget(struct client *client);

/* ---- clients/journal_recover.c --------------------------------------------------------------- */

/* Recovers all lines of a dead client's slot, which this client has claimed. */
int journal_recover(struct op *op, unsigned slot);
/* Recovers the lines of the own slot that no operation has. */
int journal_complete(struct op *op);

/* ---- clients/sweep_part.c -------------------------------------------------------------------- */

/* Reads a word of every node that counts chunks. */
int pool_read_marks(struct op *op, uint64_t delta, uint64_t *words);
/* A client was announced, and then read the pool's count of sweeps, and the word of the sweep. */
void client_learn_sweep(struct client *client, uint64_t sweep, uint64_t sweeps);
/* Meets a sweep that was announced: reads what is being swept, and drops it (SWEEP-P1). */
int client_meet_sweep(struct op *op);

/* ---- clients/lease.c ------------------------------------------------------------------------- */

/* Asks the fabric to shut a client out, and waits for that. */
int client_fence_out(struct op *op, uint64_t incarnation);
/* MEMBERS-4: takes the line of a slot at the voters, or removes it (incarnation 0: whoever has it).
 * Does nothing in a pool without voters. */
int client_appear(struct op *op, struct presence_claim claim, uint64_t *holder);
void client_vanish(struct client *c, unsigned slot, uint64_t incarnation);

/* Shuts out the suspect and recovers what it left. Any number of clients may call this at once: one
 * does it, the others return. A client without a slot takes the suspect's if that left work undone,
 * and completes the work once it is announced. */
int client_recover(struct op *op);
/* The same, but while nodes have not answered it returns FAR_OK and leaves the suspect as it is. */
int client_try_recover(struct op *op);

/* Completes the work that this client found in its slot, or that its own operations left. If that
 * fails, the journal stays, and the next attempt is due a lease later, or soon if it waits for
 * others. */
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

/* ---- clients/registry.c ---------------------------------------------------------------------- */

/* Learns who the members are, and works in the newest view from then on. */
int client_learn_view(struct client *client);

/* Registers a client that was just opened. */
int client_join(struct client *client);
/* Goes on in the slot under another name. FAR_FENCED: the client was fenced. */
int client_renew(struct op *op);
/* After the lease has lapsed: registers again. If nobody has fenced the client, it keeps its slot
 * and what it held; else it registers as another client. FAR_FENCED: an operation that began before
 * is still in flight. */
int client_rejoin(struct op *op);
/* Announces a parked client. */
int client_unpark(struct op *op);

/* ---- clients/attend.c ------------------------------------------------------------------------ */

/* Does what client.attention says. */
int client_attend(struct op *op);
/* Drives the epoch until it has come. Another client may hold it up until that is found dead.
 * FAR_TIMEOUT: the epoch has not moved for `leases` leases. */
int client_await_epoch(struct op *op, uint64_t epoch, unsigned leases);

#endif
