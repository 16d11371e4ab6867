/*
 * Pool: addresses, allocation, key-value blocks, the catalog of tables, the registry of clients.
 *
 *   struct pool     what all threads share: the fabric and the geometry, constant after open
 *   struct client   one session's standing in the pool: its slot and the memory it allocates from
 *   struct op       one operation at work: its batch, its buffers, the client it runs for
 */
#ifndef POOL_POOL_H
#define POOL_POOL_H

#include "base/hash.h"
#include "base/rng.h"
#include "fabric/batch.h"
#include "pool/layout.h"

#include <stdatomic.h>

/*
 * ---- size classes -------------------------------------------------------------------------------
 *
 * 64-byte steps to 512, four to each doubling up to 512 KiB, then runs of 9, 10, 12, 14, 16, 17, 20,
 * ... 65 chunks: four to each doubling, and one more for a value of 512 KiB, 1, 2 or 4 MiB together
 * with its key.
 */
#define CLASS_COUNT     64
#define CLASS_SMALL_MAX 32768u /* larger objects have chunks of their own: a run */

#define RUN_CLASS      32u /* the smallest class of which an object is a run */
#define CHUNK_CLASS    35u /* of which an object is a chunk                  */
#define RUN_CHUNKS_MAX 65ull

uint32_t size_class_bytes(unsigned size_class);
/* The smallest class that holds that many bytes, or CLASS_COUNT when none does. */
unsigned size_class_for(size_t bytes);
/* How many chunks an object of a class has; 1 if it shares a chunk with others. */
uint64_t size_class_chunks(unsigned size_class);
/* The largest class whose objects have at most that many chunks, of which there is one or more. Its
 * objects fill their chunks. */
unsigned size_class_for_chunks(uint64_t chunks);

/* Can that be the entry of the first of so many chunks? It cannot when it is damaged; CHUNK_UNUSED
 * and CHUNK_LARGE_TAIL are legal, too. */
static inline bool chunk_fits(uint64_t entry, uint64_t chunks)
{
    unsigned kind = entry & 0xff, size_class = (entry >> 8) & 0xff;
    if (kind > CHUNK_LARGE_TAIL || size_class >= CLASS_COUNT)
        return false;
    if (kind == CHUNK_SLAB)
        return size_class_bytes(size_class) <= CLASS_SMALL_MAX;
    return kind != CHUNK_LARGE || (size_class_bytes(size_class) > CLASS_SMALL_MAX &&
                                   size_class_chunks(size_class) <= chunks);
}

/* ---- pool ------------------------------------------------------------------------------------ */

/* Settings that a test makes rare things common with; production leaves them as they are. */
struct client;
struct knobs {
    uint64_t hash_mask;       /* bits of the key hash that count: fewer make keys collide     */
    uint8_t fingerprint_mask; /* likewise for fingerprints                                    */
    uint8_t generation_mask;  /* likewise for generations of blocks                           */
    unsigned patience;        /* polls of another client's unfinished work before taking over */
    unsigned tick_ops;        /* operations between two announcements of a busy client        */
    bool no_reclaim;     /* nothing comes back, nobody is watched: to measure what that costs */
    unsigned stock_max;  /* objects of a class that a client keeps to itself              */
    unsigned run_chunks; /* chunks that are taken at once for small objects: more leave runs that
                            are to be cut */

    /* NULL, or told when an object may be reused, and when it is: to catch who touches it between
     * the two. */
    const struct free_watch *free_watch;
    /* NULL, or told when a part of a table was replaced by others: to count how tables grow. */
    const struct growth_watch *growth_watch;
};
struct free_watch {
    void (*freed)(const struct free_watch *watch, const struct client *by, gaddr at,
                  unsigned size_class);
    void (*taken)(const struct free_watch *watch, const struct client *by, gaddr at,
                  unsigned size_class);
};
struct growth_watch {
    void (*grew)(const struct growth_watch *watch, gaddr from, const gaddr *to, unsigned count);
};
extern const struct knobs pool_knobs_default;

struct op;
struct journal_entry;

/* Told of every object that can be reached. */
struct marker {
    void (*mark)(struct marker *marker, gaddr at, unsigned size_class);
    bool sweeps; /* what it is not told of will be reused: caches must be outdated afterwards */
};

struct pool {
    bool kept; /* as users open it: sessions that are idle are parked; those that died idle, of whom
                  nobody takes notice, are looked for when all slots are taken */
    struct fab *fab;
    struct knobs knobs;
    uint64_t pool_id;
    unsigned nodes;
    unsigned clients; /* slots in the registry */
    unsigned places;  /* of the catalog, which begins at */
    uint64_t catalog_off;
    struct node_head head[FAB_NODES_MAX];

    /* Set by the layer that knows the tables: completes or undoes what a line of a dead client's
     * journal says; calls back for every object that the tables reach. */
    int (*recover)(void *arg, struct op *op, const struct journal_entry *entry);
    int (*mark)(void *arg, struct op *op, struct marker *marker);
    /* Likewise: completes the dropping of tables that others have left unfinished. Not within an
     * operation. */
    int (*settle)(void *arg, struct op *op);
    void *tables;
};

/* Lays a pool out on fresh memory, or reads the one that is there. The fabric stays the caller's.
 * FAR_NOT_A_POOL, FAR_LAYOUT, FAR_CORRUPT, FAR_POOL_FULL (too small to hold a pool) or the
 * fabric's. */
int pool_open(struct fab *fab, const struct knobs *knobs, struct pool *pool);

/* ---- clients --------------------------------------------------------------------------------- */

/* Where the pool's own words are: gaddr_make(0, 0), and offsets from there. */
#define NODE0 ((gaddr)0)
static inline uint64_t slot_delta(unsigned slot)
{
    return CLIENTS_OFF + slot * sizeof(struct client_slot);
}

/* Free objects of one class on one node, in a client's hands. */
struct stock {
    gaddr next; /* the next never-used object of the current chunk, 0: none */
    uint32_t left;
    unsigned kept, room; /* reusable ones */
    gaddr *keep;
};

/* Retired objects, oldest first, each with the epoch at which it may be reused. */
struct limbo {
    struct limbo_entry {
        uint64_t object; /* gaddr, size class above it */
        uint64_t reuse_at;
    } * ring;
    size_t head, count, room; /* room is a power of two */
};

/* Remote addresses that outlive an operation in a client's cache. They may be used only as long as
 * the word at version_at has the value it had when they were read; `stale` says that it may not
 * have. */
struct cached {
    struct cached *next;
    gaddr version_at;
    uint32_t version_delta;
    bool stale;
    uint64_t version;
};

/* What a client knows of another whose silence is in its way. */
struct watch {
    uint64_t incarnation, heartbeat, since;
    bool repairing; /* an operation of this client recovers it */
};

/* The journal lines of a client's slot (journal.c). */
struct lines {
    struct line {
        gaddr at;
        uint32_t next; /* free: the next free line on its node; a place is an index and one more */
        uint32_t walk; /* that came by last */
        uint8_t state;
    } * line;
    unsigned count, room;
    unsigned undone;       /* lines that were left and say something */
    unsigned registration; /* how often the client has taken a slot */
    uint64_t stamps;       /* given so far */
    uint64_t nodes;        /* what the slot says of them: a bit per node, as is: */
    uint64_t loaded, cut;  /* the chain was read; it is damaged, and is to be cut */
    unsigned walks;        /* of chains, so far */
    uint32_t free[FAB_NODES_MAX];
    gaddr next[FAB_NODES_MAX];      /* of the first line, when it was last looked at */
    gaddr broken[FAB_NODES_MAX];    /* the line at which it is to be cut, */
    uint64_t astray[FAB_NODES_MAX]; /* and what that says of the next one */
};

#define NO_SLOT UINT32_MAX /* a client that is not registered yet */
struct client {
    struct pool *pool;
    struct fab_ep *ep;
    unsigned slot;
    uint64_t incarnation;
    struct rng rng;
    uint8_t generation;                 /* of the next block written */
    struct stock (*stock)[CLASS_COUNT]; /* by node and class         */

    /* epoch.c */
    struct batch_rider rider;
    uint64_t *flight;      /* registered: what the rider writes and reads                      */
    uint64_t seen;         /* the newest global epoch read                                     */
    uint64_t validated;    /* caches were found valid after this epoch was read                */
    uint64_t certified;    /* what the last flight said                                        */
    uint64_t high;         /* client slots to look at                                          */
    uint64_t advance_from; /* all clients have certified this epoch: it may go on; or NO_EPOCH */
    uint64_t heartbeat;
    unsigned ops_since_tick;
    uint64_t retired_since_tick; /* bytes */
    uint64_t flights; /* that have landed: who fills a cache compares before and after   */
    bool flight_has_registry;
    bool joining;                /* one operation registers the client anew */
    uint64_t flight_incarnation; /* whose it is: we may have registered anew meanwhile */
    bool hurried;                /* the epoch should go on, though nothing of ours waits for it */
    uint64_t flight_posted;
    struct cached *flight_cached;
    struct cached *caches;
    struct op *oldest, *newest; /* operations in flight, by age */
    struct limbo limbo;
    uint64_t retired_bytes, held_bytes;
    uint64_t lost_bytes;               /* not 0: there is something for a sweep to find */
    uint64_t taken_bytes;              /* by pool_alloc(), ever */
    bool loss_told;                    /* more was lost, and is counted with the deaths */
    int overfull_node, overfull_class; /* a stock past its limit; class -1: none */
    bool tidying;                      /* an operation sees to that: one is enough */

    bool parked;             /* the certificate says NO_EPOCH */
    bool astray;             /* or will, nobody knows when: the slot is to be abandoned */
    bool unannounced;        /* the slot is taken, but its certificate is the last owner's */
    uint64_t taken_at;       /* the slot was not taken earlier than that */
    struct lines lines;      /* journal.c */
    bool inherited;          /* the slot was taken with its last owner's work: client_complete() */
    uint64_t complete_after; /* time for another attempt at that */
    unsigned inside;         /* calls of its session that are under way */
    _Atomic uint64_t turn;   /* who may use this: see client_enter() */

    /* sweep.c: while one goes on, chunks below old_chunks[node] are not allocated from, and what
     * is freed in them is left to the sweep */
    uint64_t sweep;
    bool sweep_unmet;     /* seen, and not prepared for yet */
    uint64_t sweep_count; /* of the next one that this client makes */
    uint64_t sweep_mine;  /* the one that this client makes, once it collects: it has met that */
    uint64_t *old_chunks;
    uint64_t sweeps; /* the pool's count when this client last had nothing to fear from a sweep */

    /* lease.c */
    struct lease lease;
    uint64_t lease_ns;
    uint64_t broke_at;      /* a batch that writes failed then; 0: none ever did */
    struct watch *watch;    /* by slot */
    int suspect;            /* a slot whose lease has lapsed, as watched; -1: none known */
    uint64_t recover_after; /* time for another attempt at a fenced one, if the last has failed */
    unsigned recoveries;    /* operations that are recovering something */
    unsigned reaped;        /* clients recovered so far */
    uint64_t reap_after;    /* time for another look for the dead, if memory is short */
    uint64_t recut_after;   /* likewise for memory that is cut for other sizes */
    unsigned wanted;        /* the class that there was no memory for */
    uint64_t retired_since_recut;

    /* Progress callback for long calls; returning false cancels. NULL except during such a call. */
    bool (*progress)(void *arg, const char *what, uint64_t done, uint64_t total);
    void *progress_arg;

    /* Lets the session's ring go on while a synchronous call waits for epochs: operations in flight
     * there hold them back. NULL: there is no ring. */
    void (*drive_ring)(struct client *client);
    /* NULL, or called when a call has ended while others, of the ring, are under way. */
    void (*endpoint_used)(struct client *client);
};

struct op;

/* Takes a slot of the registry. FAR_NO_CLIENT_SLOT. */
int client_open(struct pool *pool, struct fab_ep *ep, uint64_t seed, struct client *client);
void client_close(struct client *client);

/* For work that takes long. FAR_STOPPED: it is to end. */
int client_progress(struct client *client, const char *what, uint64_t done, uint64_t total);

/* ---- operations ------------------------------------------------------------------------------ */

/*
 * Buffers that verbs may name, one per purpose; they only ever grow. BUF_POOL and what follows are
 * the pool's own, and so are pool_word[]: no pool function touches the others or word[], except that
 * block_prepare() encodes into BUF_BLOCK_OUT. An index may call any of them with its buffers full.
 */
enum op_buf {
    BUF_INDEX,
    BUF_BLOCK_OUT,
    BUF_BLOCK_IN,
    BUF_BULK,
    BUF_POOL,
    BUF_POOL_BLOCK,
    BUF_JOURNAL,
    BUF_COUNT
};

/* Words for the results of atomics and for single-word writes: the pool's own first. */
#define OP_POOL_WORDS  72
#define OP_INDEX_WORDS BATCH_MAX

struct op {
    struct client *client;
    struct pool *pool;
    struct batch batch;
    struct cost cost;           /* what its batches cost since the operation started */
    uint64_t *pool_word, *word; /* OP_POOL_WORDS, OP_INDEX_WORDS */
    void *buf[BUF_COUNT];
    size_t buf_bytes[BUF_COUNT];
    uint64_t epoch; /* while in flight: what the client had validated when it began */
    bool recovers; /* another client's work, or what was left of its own: client_begin_recovery() */
    struct op *older, *newer;
};

int op_init(struct op *op, struct client *client);
void op_free(struct op *op);

/*
 * Other work on the same op, in the middle of what it does: completing a dead client's work calls an
 * index. op_set_aside() takes the index's buffers and words out of its reach, and op_take_back() puts
 * them back as they were. The batch must be empty at both. FAR_NO_MEMORY.
 */
struct op_aside {
    uint64_t *word;
    void *buf[BUF_POOL];
    size_t buf_bytes[BUF_POOL];
};
int op_set_aside(struct op *op, struct op_aside *aside);
void op_take_back(struct op *op, const struct op_aside *aside);

/* The purpose's buffer with at least that many bytes; contents survive only if it did not have to
 * grow. NULL when out of memory. */
void *op_buffer(struct op *op, enum op_buf which, size_t bytes);

/* Statuses of work that was ended by what it found: every batch came back as it should, so that what
 * it took is its own still, and nothing of it is on the way. */
static inline bool op_all_known(int rc)
{
    return rc == FAR_TABLE_EXISTS || rc == FAR_CATALOG_FULL || rc == FAR_POOL_FULL ||
           rc == FAR_CONTENTION || rc == FAR_CORRUPT || rc == FAR_NO_MEMORY || rc == FAR_NO_TABLE;
}

/* The outcome of a flush whose CAS decides an operation: after an error of the fabric, unknown.
 * A client whose lease has lapsed does not post, so FAR_FENCED means that nothing happened, unless
 * an earlier post of the same batch did. */
static inline int op_decided(const struct op *op, int rc)
{
    bool refused = rc == FAR_BOUNDS || rc == FAR_INVALID || rc == FAR_FENCED;
    return rc == FAR_OK || (refused && !op->batch.acted) ? rc : FAR_UNKNOWN;
}

/* ---- epochs (epoch.c) ------------------------------------------------------------------------ */

/*
 * Brackets an operation: between the two, nothing that it can reach is reused. `cached` is the
 * cache it works from, NULL for none.
 * FAR_FENCED: this client was declared dead; see client_rejoin().
 */
int op_begin(struct op *op, struct cached *cached);
void op_end(struct op *op);
static inline bool op_in_flight(const struct op *op)
{
    return op->older || op->client->oldest == op;
}
/* Adds a cache to those that are validated with every epoch. It starts out stale. */
void client_cache(struct client *client, struct cached *cached);
void client_uncache(struct client *client, struct cached *cached);

/* An object that others may still be reading: reused two epochs later. */
void pool_retire(struct client *client, gaddr at, unsigned size_class);

/*
 * Idle clients. A session's thread has its client between client_enter() and client_leave(), which
 * may be nested; somebody else, between client_borrow() and client_return(), and only while nobody
 * has it. The word's lower bits say who; the upper ones count the times it was entered, so that
 * whoever looks again can tell that it was idle all along.
 */
#define CLIENT_TURN_FREE  0ull
#define CLIENT_TURN_OWN   1ull
#define CLIENT_TURN_LENT  2ull
#define CLIENT_TURN_WHO   3ull
#define CLIENT_TURN_COUNT 4ull
void client_await_turn(struct client *client);
static inline void client_enter(struct client *c)
{
    if (c->inside++ > 0)
        return;
    uint64_t turn = atomic_load_explicit(&c->turn, memory_order_relaxed) & ~CLIENT_TURN_WHO;
    if (!atomic_compare_exchange_strong_explicit(&c->turn, &turn,
                                                 turn + CLIENT_TURN_COUNT + CLIENT_TURN_OWN,
                                                 memory_order_acquire, memory_order_relaxed))
        client_await_turn(c);
}
static inline void client_leave(struct client *c)
{
    if (--c->inside == 0)
        atomic_store_explicit(
            &c->turn, atomic_load_explicit(&c->turn, memory_order_relaxed) & ~CLIENT_TURN_WHO,
            memory_order_release);
    else if (__builtin_expect(c->endpoint_used != NULL, 0))
        c->endpoint_used(c);
}
/* Is it as it was when `turn` was read, and in nobody's hands? Then it is ours. */
static inline bool client_borrow(struct client *c, uint64_t turn)
{
    return (turn & CLIENT_TURN_WHO) == CLIENT_TURN_FREE &&
           atomic_compare_exchange_strong_explicit(&c->turn, &turn, turn | CLIENT_TURN_LENT,
                                                   memory_order_acquire, memory_order_relaxed);
}
static inline void client_return(struct client *c, uint64_t turn)
{
    atomic_store_explicit(&c->turn, turn, memory_order_release);
}
/* In a child of fork(): frees the copy, and leaves the pool alone. */
void client_free_in_child(struct client *client);
/* Says that the client has nothing in flight, so that nobody waits for it, and that it is alive. It
 * announces itself anew with its next operation. Costs a round trip. */
int client_park(struct op *op);
/* Has an eighth of the lease passed since the last heartbeat? */
bool client_heartbeat_due(const struct client *client);

/* Hands objects whose epoch has come over to the stock. True if there were any. */
bool client_reclaim(struct client *client);

/* Drives epochs by round trips of its own, for a client that needs memory now: announces, reads,
 * advances, shuts out clients whose lease has lapsed. */
int client_drive_epoch(struct op *op);
/* Does so until the epoch is there. Another client may hold it up for as long as its lease and the
 * watch take: FAR_TIMEOUT when it has not moved for so many leases. */
int client_await_epoch(struct op *op, uint64_t epoch, unsigned leases);

/*
 * A barrier: returns when every operation that was in flight when it was called, of any client, has
 * ended; parked clients have none, and dead ones are shut out on the way. Not within an operation,
 * whose own epoch would hold it up: op_end() first, and op_begin() after. FAR_TIMEOUT when some
 * client's operation does not end for that many leases.
 */
int client_barrier(struct op *op, unsigned leases);

/*
 * Gives up the client's registration: for an operation that holds locks when the outcome of a batch
 * is unknown. Others take the client for dead and recover what it held, by its journal. The session's
 * next operation registers again, in another slot.
 */
void client_renounce(struct op *op);

/* Waiting for what other clients do, which may take leases: ever longer pauses, and an end to them,
 * for a damaged pool may never come round. False when it has come. */
struct backoff {
    uint64_t pause_ns, waited_ns;
};
#define PAUSE_NS_LEAST 1000
#define PAUSE_NS_MOST  1000000
static inline bool client_backoff(struct op *op, struct backoff *p, unsigned leases)
{
    if (p->waited_ns > leases * op->client->lease_ns)
        return false;
    p->pause_ns = p->pause_ns == 0 ? PAUSE_NS_LEAST : 2 * p->pause_ns;
    if (p->pause_ns > PAUSE_NS_MOST)
        p->pause_ns = PAUSE_NS_MOST;
    batch_pause(&op->batch, p->pause_ns);
    p->waited_ns += p->pause_ns;
    return true;
}

/* Has the lease passed, or been taken? What was read since may have been anything. */
static inline bool client_lapsed(const struct client *c)
{
    return c->lease.lost || c->ep->ops->coarse(c->ep) > c->lease.deadline;
}

/* Announces a parked client. */
int client_unpark(struct op *op);
/* May verbs of a request that failed still take effect? By FABRIC-F5 for half a lease; clocks drift. */
static inline bool client_has_stray_writes(const struct client *c)
{
    return c->broke_at != 0 &&
           c->ep->ops->coarse(c->ep) - c->broke_at <= c->lease_ns / 2 + c->lease_ns / 16;
}

/* For registry.c: sets the rider up; the size of its buffer. */
void client_ride(struct client *client);
/* Lets go of all free and retired memory: it is for a sweep to find. */
void client_drop_all(struct client *client);
/* Lets go of what the sweep that was just met looks for. */
void client_drop_swept(struct client *client);
static inline size_t client_flight_bytes(const struct pool *pool)
{
    return 128 + pool->clients * sizeof(struct client_slot);
}

/* ---- allocation (alloc.c, freelist.c) ---------------------------------------------------------- */

/*
 * An object of a class, on the node if it has room, else on any other. Mostly local; once per
 * chunk it costs three round trips. The op's batch must be empty.
 * Its memory is not cleared. FAR_POOL_FULL.
 */
int pool_alloc(struct op *op, unsigned node, unsigned size_class, gaddr *at);

/* The same on this node or not at all. */
int pool_alloc_on(struct op *op, unsigned node, unsigned size_class, gaddr *at);

/* For alloc.c and sweep.c: what the chunk table says of a run. */
void pool_describe_run(uint64_t *entries, unsigned size_class, unsigned client);

/* For alloc.c and freelist.c: an object leaves the stock to be used. */
static inline void pool_taken(const struct client *c, gaddr at, unsigned size_class)
{
    const struct free_watch *watch = c->pool->knobs.free_watch;
    if (__builtin_expect(watch != NULL, 0))
        watch->taken(watch, c, at, size_class);
}

/* An object that nothing in the pool ever pointed to: reusable at once. */
void pool_free_unpublished(struct client *client, gaddr at, unsigned size_class);

/* An object of which it is not known whether something points to it, or will: a CAS or a WRITE
 * ended with an error of the fabric. Only a sweep can tell. */
static inline void pool_abandon(struct client *client, unsigned size_class)
{
    client->lost_bytes += size_class_bytes(size_class);
}

/* The same for all that was allocated since taken_bytes was `before`, perhaps for others of the ring: at
 * most that much is lost. */
static inline void pool_abandon_since(struct client *client, uint64_t before)
{
    client->lost_bytes += client->taken_bytes - before;
}

/* After FAR_POOL_FULL, between operations: gets memory back that waits for its epoch or was lost.
 * FAR_OK: it is worth trying again. FAR_POOL_FULL: there is none to be had. */
int pool_make_room(struct op *op);

/* Sees to what is not urgent: reuses what may be, recovers a client found dead, passes on what this
 * one has too much of. A round trip or two now and then. */
int client_upkeep(struct op *op);
/* Gives all free objects on a node to the shared lists. */
int client_return_all(struct op *op, unsigned node);

/* Shared free lists: bundles of objects that a client has too many of. The pages that they are
 * written on are objects of their own class. */
#define BUNDLE_CLASS 7 /* 512 bytes */
int freelist_give(struct op *op, unsigned node, unsigned size_class);
/* How many objects of a class it gives at once, at most. */
unsigned freelist_bundle(unsigned size_class);
/* Which of the node's lists has the shortest runs of at least so many chunks? 0 and FAR_POOL_FULL:
 * none. */
int freelist_run_class(struct op *op, unsigned node, uint64_t chunks, unsigned *size_class);
/* What is on the lists, pages included; counted until it is enough. */
int freelist_bytes(struct op *op, uint64_t enough, uint64_t *bytes);
/* Is the node's list of that class whole? While others change it, nobody can say: then it is. */
int freelist_whole(struct op *op, unsigned node, unsigned size_class, bool *whole);
/* The head word that follows `head`, with another top. */
uint64_t freelist_head(uint64_t head, gaddr top);
/* FAR_POOL_FULL: the list is empty. */
int freelist_take(struct op *op, unsigned node, unsigned size_class);

/* ---- sweeping (sweep.c) ---------------------------------------------------------------------- */

struct sweep_result {
    uint64_t objects, bytes; /* found lost, and free again */
    bool spilled; /* others used memory that this sweep did not look at; it may have lost some */
};
/* Finds all memory that nothing reaches and nobody holds, and puts it on the shared lists. Others
 * go on working meanwhile. FAR_CONTENTION: somebody else is sweeping. */
int pool_sweep(struct op *op, struct sweep_result *result);

/* Adds up what the pool's memory is used for. Others may work meanwhile: the parts are of
 * different instants then. */
int pool_usage(struct op *op, struct far_pool_usage *usage);

/* What is wrong with the pool itself, besides its tables; each finding is also told as text. */
struct pool_findings {
    void (*tell)(void *arg, const char *text); /* may be NULL */
    void *arg;
    unsigned violations, stranded;
    uint64_t deaths; /* of clients, since the last sweep: memory was lost */
};
int pool_check(struct op *op, struct pool_findings *findings);

/* What the first so many chunks of a node are used for. The caller frees the table, also after an
 * error. */
int pool_chunk_table(struct op *op, unsigned node, uint64_t count, uint64_t **table);

/* Takes part in a sweep that was announced: reads what is being swept. */
int client_meet_sweep(struct op *op);

/* Is the object in memory that is being swept? Then it is not ours to hand out or keep. */
static inline bool client_swept(const struct client *c, gaddr at)
{
    if (__builtin_expect(c->sweep == 0, 1))
        return false;
    unsigned node = gaddr_node(at);
    uint64_t first = (uint64_t)c->pool->head[node].chunks_off64 * 64;
    return (gaddr_offset(at) - first) >> CHUNK_SHIFT < c->old_chunks[node];
}

/* ---- leases (lease.c) ------------------------------------------------------------------------ */

/* Reads the registry, all of it, into one of the op's buffers. */
int client_registry(struct op *op, struct client_slot **slots);

/* Judges the registry as it was read by a request that was posted when it was `asked`: is there a
 * client with a certificate below `epoch` (NO_EPOCH: with any) that has been silent for longer than
 * its lease, or a fenced one that nobody recovers? It becomes the suspect. True while there is one of which it cannot be said whether it
 * is alive. */
bool client_watch(struct client *client, const struct client_slot *slots, unsigned count,
                  uint64_t epoch, uint64_t asked);

/* Shuts the suspect out and recovers what it left. Any number of clients may call this at once: one
 * does it, the others return. A client without a slot takes the suspect's if its owner left work undone,
 * and completes that once it is announced. */
int client_recover(struct op *op);
/* Has the last attempt failed, a moment ago? The client was fenced, so it holds up nobody's epoch. */
static inline bool client_recovery_waits(const struct client *c)
{
    return c->ep->ops->coarse(c->ep) < c->recover_after;
}
/* The same, but while nodes have not answered it returns FAR_OK and leaves the suspect as it is. */
int client_try_recover(struct op *op);

/* Completes the work that this client found in its slot, or that its own operations left. If that
 * fails, the journal stays, and the next attempt is due a lease later. */
int client_complete(struct op *op);
static inline bool client_has_undone(const struct client *c)
{
    return c->inherited || c->lines.undone > 0;
}
static inline bool client_must_complete(const struct client *c)
{
    return __builtin_expect(client_has_undone(c), 0) && !c->joining &&
           !client_has_stray_writes(c) && c->ep->ops->coarse(c->ep) >= c->complete_after;
}

/* Brackets a recovery, which may be within another: whether it is, the one returns and the other is given.
 * It belongs to the client's registration, though it is not an operation in flight: while it lasts, the
 * client does not register anew. */
static inline bool client_begin_recovery(struct op *op)
{
    bool outer = op->recovers;
    op->client->recoveries += !outer;
    op->recovers = true;
    return outer;
}
static inline void client_end_recovery(struct op *op, bool outer)
{
    op->client->recoveries -= !outer;
    op->recovers = outer;
}

/* Finds and recovers all clients that are dead; takes about a lease if there is any doubt. */
int client_reap_dead(struct op *op, unsigned *dead);

/* Finds the clients that are silent for longer than a lease, and leaves them alone; takes that long
 * if there is any doubt. */
int client_find_silent(struct op *op,
                       void (*each)(void *arg, unsigned slot, const struct client_slot *s),
                       void *arg);

/* Bytes that all clients have announced as retired, and as free in their hands. */
int client_bytes(struct op *op, uint64_t *retired, uint64_t *held);

/* After the lease has lapsed: registers anew. If nobody has noticed the silence, in the old slot,
 * and what was in hand stays there; else as another client. FAR_FENCED: an operation that began
 * before is still in flight. */
int client_rejoin(struct op *op);

/* A lock word names its holder, by part of its incarnation and its slot. The top eight bits are the
 * lock's own. */
#define OWNER_SLOT        0xffffull
#define OWNER_INCARNATION 0x00ffffffffff0000ull
static inline uint64_t client_owner_word(const struct client *c)
{
    return (c->incarnation & OWNER_INCARNATION) | c->slot;
}
/* Is the holder that a lock word names still registered, and not fenced? */
int client_owner_alive(struct op *op, uint64_t owner_word, bool *alive);

/* ---- journals (journal.c) -------------------------------------------------------------------- */

/* The line that an operation has, from journal_take() to journal_give(). If place is 0 it has none,
 * and the functions below do nothing. */
struct journal {
    gaddr at;
    uint32_t place;
    unsigned registration;
    uint64_t stamp;
};

/* Whose work it is. Each line says it. */
struct journal_subject {
    unsigned place; /* of the table in the catalog */
    uint64_t tag;   /* of the table */
    uint32_t what;  /* the index's business */
};

/* What a line says to the client that recovers it. */
struct journal_entry {
    uint64_t owner; /* as client_owner_word() of the client that wrote it */
    struct journal_subject subject;
    const void *data; /* of the intent */
    size_t len;
    const void *redo; /* NULL: nothing was changed yet */
    size_t redo_len;
    bool done; /* all of the change was made, the lock may still be held */
};

#define JOURNAL_CLASS 7 /* 512 bytes: as BUNDLE_CLASS, so that they share chunks */
struct journal_image {  /* in an op's BUF_JOURNAL */
    struct journal_line line;
    uint64_t blank[2];
};

/*
 * Gives the operation a line on that node: mostly one that is free, at no cost. The client's first one on
 * a node costs a round trip or two. Each that it has more in use at once than any client in this slot
 * had before costs an allocation and two round trips. The op's batch must be empty. FAR_POOL_FULL: the
 * node has no room for another line.
 */
int journal_take(struct op *op, unsigned node, struct journal *journal);
/* Adds a WRITE to the batch, ahead of the verb that takes the lock: what is about to be done. `data` is
 * copied; its length is a multiple of 8, up to 88 bytes. */
void journal_intend(struct op *op, struct journal *journal, const struct journal_subject *subject,
                    const void *data, size_t len);
/* Likewise, ahead of the first change under the lock: how to make the change again. Up to 328 bytes. */
void journal_redo(struct op *op, struct journal *journal, const void *data, size_t len);
/* Likewise, behind the last change and ahead of the unlock. */
void journal_done(struct op *op, struct journal *journal);
/* Likewise, behind the unlock: the line is blank. Not in the batch of journal_intend(). */
void journal_end(struct op *op, struct journal *journal);
/* Gives the line back. `blank`: the batch with journal_end() has succeeded. Otherwise the line stays, and
 * this client will recover it later itself. */
void journal_give(struct op *op, struct journal *journal, bool blank);

/* How many lines of a slot say something? Takes no registration. */
int journal_pending(struct op *op, unsigned slot, unsigned *lines);
/* Recovers all lines of a dead client's slot, which this client has claimed. */
int journal_recover(struct op *op, unsigned slot);
/* Recovers those of the own slot that no operation has. */
int journal_complete(struct op *op);
/* The client has another slot, or none: its lines were the old slot's. */
void journal_forget(struct client *client);
/* Cuts chains that are damaged, of slots that nobody has. */
int journal_repair(struct op *op);
/* Marks all lines of all slots. How many chains are damaged, and one slot of those. */
int journal_mark(struct op *op, struct marker *marker, unsigned *damaged, unsigned *slot);

/* ---- key-value blocks ------------------------------------------------------------------------ */
#define BLOCK_GENERATIONS 64 /* as many as fit beside a pointer in an index's slot: pointer.h */

/* Of a pointer that has no generation, or only some bits of it, the bits that it lacks stand above the
 * number, and are not compared. */
#define BLOCK_ANY_GENERATION ((BLOCK_GENERATIONS - 1u) << 8)

/* Bytes before the key. */
static inline size_t block_key_at(bool is_long)
{
    return sizeof(struct block_head) + (is_long ? sizeof(struct block_long) : 0);
}
static inline size_t block_bytes(size_t klen, size_t vlen)
{
    size_t bytes = block_key_at(false) + klen + vlen;
    return bytes > BLOCK_SHORT_MAX ? block_key_at(true) + klen + vlen : bytes;
}
/* Are the blocks of a class long ones? Then they can be judged by their beginning. */
static inline bool block_class_long(unsigned size_class)
{
    return size_class_bytes(size_class) > BLOCK_SHORT_MAX;
}

struct block_ref { /* a block that is allocated and encoded, but not pointed to yet */
    gaddr at;
    uint8_t size_class;
    uint8_t generation;
    void *image;    /* its bytes, in the op's BUF_BLOCK_OUT */
    uint32_t bytes; /* to be written: a multiple of 64      */
};

/* Allocates near `node` and encodes. FAR_POOL_FULL, FAR_NO_MEMORY. */
int block_prepare(struct op *op, unsigned node, const void *key, size_t klen, const void *value,
                  size_t vlen, struct block_ref *block);
static inline void block_write(struct op *op, const struct block_ref *block)
{
    batch_write(&op->batch, block->at, 0, block->image, block->bytes);
}

enum block_verdict {
    BLOCK_MATCH, /* holds the key                                                        */
    BLOCK_OTHER, /* whole and of the right generation, but holds another key             */
    BLOCK_STALE  /* torn, reused or damaged: the pointer was followed too late, or is bad */
};

/* Judges `bytes` of memory read through a pointer that promised `generation`. */
enum block_verdict block_judge(const void *image, size_t bytes, unsigned generation,
                               const void *key, size_t klen);
/* The same for the beginning of a long block that is said to have `bytes`: block_key_at(true) + klen
 * bytes of it were read. Its value is not looked at. */
enum block_verdict block_judge_head(const void *image, size_t bytes, unsigned generation,
                                    const void *key, size_t klen);
/* Whole and of the right generation, whatever its key? */
bool block_valid(const void *image, size_t bytes, unsigned generation);
/* What follows is for images that were judged. */
static inline size_t block_key_end(const struct block_head *h)
{
    return block_key_at(h->flags & BLOCK_LONG) + h->klen;
}
static inline const void *block_key(const void *image)
{
    const struct block_head *h = image;
    return (const char *)image + block_key_end(h) - h->klen;
}
static inline const void *block_value(const void *image)
{
    return (const char *)image + block_key_end(image);
}

/* ---- catalog --------------------------------------------------------------------------------- */
#define INDEX_NAME_MAX 15

struct table_desc {
    char name[FAR_NAME_MAX + 1];
    char index[INDEX_NAME_MAX + 1];
    gaddr root; /* the index's business */
    uint64_t hash_seed;
    uint32_t id;     /* its place in the catalog */
    uint64_t word;   /* what that said, which see for whether it is dropped */
    uint64_t serial; /* tells it from all tables that have the place before or after: CAT-6 */
};
static inline bool table_is_dropped(const struct table_desc *desc)
{
    return catalog_state(desc->word) == CATALOG_DROPPED;
}

/* Adds a table; of two that add the same name at once, one wins. desc->id, word and serial are set.
 * FAR_TABLE_EXISTS, FAR_CATALOG_FULL, FAR_POOL_FULL. */
int catalog_add(struct op *op, struct table_desc *desc);
/* What reads descriptors must be within an operation where tables may be dropped.
 * Finds a live table. FAR_NO_TABLE, FAR_CORRUPT. */
int catalog_find(struct op *op, const char *name, struct table_desc *desc);
/* The table at a place, live or dropped. FAR_NO_TABLE: the place is free, or there is none. FAR_CORRUPT. */
int catalog_get(struct op *op, unsigned id, struct table_desc *desc);
/* The first place from *id on that has a table, live or dropped, or is damaged; or only one that has a
 * dropped table. FAR_NO_TABLE: there is none. */
int catalog_next(struct op *op, bool dropped, unsigned *id);
/* How many live tables there are. */
int catalog_count(struct op *op, unsigned *tables);

/* Is it still there? The first adds READs to the batch, the second judges them after the flush, and
 * returns the version that the place had. FAR_NO_TABLE: it was dropped; with `dropped_too` only if its
 * memory has been given back as well. FAR_CORRUPT. */
void catalog_confirm(struct op *op, const struct table_desc *desc);
int catalog_confirmed(struct op *op, const struct table_desc *desc, bool dropped_too,
                      uint64_t *version);
/* Where the version of a table's caches is. */
void catalog_cached(const struct pool *pool, const struct table_desc *desc, struct cached *cached);

/*
 * Dropping a table: see CAT-4. Each of these is within an operation in which catalog_get() has found
 * the table.
 */
/* Frees the name. FAR_NO_TABLE: another client was faster. FAR_UNKNOWN. */
int catalog_drop(struct op *op, const struct table_desc *desc);
/* Adds to the batch what makes all sessions find out that it was dropped. */
void catalog_bump_version(struct op *op, const struct table_desc *desc);
/* Frees the place of a dropped table, and retires the descriptor. If *released is set, then what the
 * table reaches is the caller's. */
int catalog_release(struct op *op, const struct table_desc *desc, bool *released);

/* Marks the descriptors. */
int catalog_mark(struct op *op, struct marker *marker);

int pool_info(struct op *op, struct far_pool_info *info);

#endif
