/*
 * What an index uses of the pool.
 *
 *   struct op        one operation: its batch, its buffers, the client that it runs for
 *   pool_alloc()     memory, and the three ways to give it back
 *   block_...()      key-value blocks: prepare, write, read, judge
 *   journal_...()    what others must complete or undo if this client dies
 *   client_...()     owner words for locks, barriers, long waits
 *   struct marker    reports every object that a table reaches
 *
 * pointer.h has the words that point to blocks, array.h arrays that span nodes.
 * docs/writing-an-index.md shows how to use them together. pool.h has what only the store uses.
 */
#ifndef POOL_OP_H
#define POOL_OP_H

#include "base/hash.h"
#include "base/rng.h"
#include "fabric/batch.h"
#include "pool/pool_layout.h"
#include "pool/size_class.h"

struct client;
struct cached;
struct journal_seen;

/* ---- the pool -------------------------------------------------------------------------------- */

/* Test hooks: values that make rare interleavings frequent. Production leaves them as they are. */
struct knobs {
    uint64_t hash_mask;       /* bits of the key hash that count: fewer make keys collide     */
    uint8_t fingerprint_mask; /* bits of a fingerprint that count                            */
    uint8_t generation_mask;  /* bits of a block's generation that count                     */
    unsigned patience;        /* polls of another client's unfinished work before taking over */
    unsigned tick_ops;        /* operations between two announcements of a busy client        */
    unsigned stock_max;       /* objects of a class that a client keeps to itself             */
    unsigned run_chunks;      /* chunks taken at once for small objects: the rest is cut      */
    unsigned bundle_max;      /* objects of a bundle of a shared list                          */
    unsigned group_words;     /* of the table of groups of a process (groups.h); 0: none       */
    uint64_t group_patience; /* nanoseconds, drawn below this for each operation; 0: see groups.c */
    unsigned group_spares;   /* records of a session besides one for each operation           */
    unsigned turn_queues;    /* of a process (turns.h); 0: none                                */
    uint64_t turn_patience;  /* nanoseconds, drawn below this for each turn; 0: see turns.c    */
    unsigned hits;          /* gets that found their keys, until RCuckoo's do with fewer READs    */
    unsigned iterate_parts; /* parts of a table that a call of an iteration reads at most    */
    unsigned stem_slack;    /* common bytes that the stem of a new leaf of CHIME does not have */
    unsigned resize_steps;  /* versions that a resize of a SHARD table goes over, at least    */
    unsigned move_every;    /* one change in this many moves a unit of SHARD that is behind;
                               0: see shard_attach() */
    uint64_t clear_part;    /* bytes that a change clears at most, of what grows ahead of need */
    bool scatters;          /* objects that any node may hold are dealt to all nodes, in pairs */

    /* NULL, or called when an object may be reused, and when it is: it catches accesses between the
     * two. */
    const struct free_watch *free_watch;
    /* NULL, or called when a part of a table was replaced by others: it counts how tables grow. */
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
    /* A session met a part of a table that is behind the table's version. */
    void (*lags)(const struct growth_watch *watch, unsigned versions, bool pending);
};
extern const struct knobs pool_knobs_default;

struct op;
struct journal_entry;

/* Called with every object that can be reached. */
struct marker {
    void (*mark)(struct marker *marker, gaddr at, unsigned size_class);
    bool sweeps;  /* objects that it is not called with will be reused, so the walk then changes the
                    version of caches */
    bool damaged; /* set by a walk that met damage: it has passed all that the damaged part may lead
                     to, which may be others' memory, or none */
};

/* What all threads share. Constant after pool_open(), except for what concerns nodes that are
 * away. */
struct pool {
    bool kept;   /* opened by a user: idle sessions are parked, and as with `evicts` */
    bool evicts; /* clients that died idle are looked for when all slots are taken */
    bool waits;  /* for clients that are silent and not known to be dead (LEASE-L5) */
    struct fab *fab;
    struct turns *turns;   /* NULL: none */
    struct relief *relief; /* of each process: see relief.c */
    struct knobs knobs;
    uint64_t pool_id;
    unsigned nodes;              /* that keep data: witnesses come behind them */
    unsigned clients;            /* slots in the registry */
    unsigned places;             /* in the catalog */
    unsigned voters;             /* when it was made; 0: it has none (members.h) */
    struct members_head members; /* how the log of members begins */
    uint64_t catalog_off;        /* where the catalog begins, on node 0 */
    struct node_head
        head[FAB_NODES_MAX]; /* pool_head() has them, too, and those of nodes that are away */
    struct node_head absent; /* of any node that is away */
    uint64_t meet_after;     /* when nodes that are away are looked for again; atomic */
    bool meeting;            /* a thread does so; atomic */

    /* Set by the layer that knows the tables. recover() completes or undoes what a line of a dead
     * client's journal says. mark() reports every object that the tables reach. */
    int (*recover)(void *arg, struct op *op, const struct journal_entry *entry);
    int (*mark)(void *arg, struct op *op, struct marker *marker);
    /* settle() completes drops of tables that other clients left unfinished. It is not called
     * within an operation. */
    int (*settle)(void *arg, struct op *op);
    /* A client that waits for others calls hurry(): idle sessions of this process are then parked
     * soon. NULL: nobody parks them. */
    void (*hurry)(void *arg);
    void *tables;
};

/* The nodes with data that the pool was opened without, as bits. */
static inline uint64_t pool_away(const struct pool *pool)
{
    return fab_away(pool->fab) & ~pool->members.witnesses;
}

/* The head of a node, or what stands for it while the node is away (AWAY-2). A thread may meet the
 * node at any time, so both may be returned within one operation. */
static inline const struct node_head *pool_head(const struct pool *pool, unsigned node)
{
    return fab_away(pool->fab) >> node & 1 ? &pool->absent : &pool->head[node];
}

/* ---- operations ------------------------------------------------------------------------------ */

/*
 * Buffers that verbs may name, one per purpose; they only grow. BUF_POOL and those after it are the
 * pool's own, and so are pool_word[]. Pool functions do not touch the others or word[], except that
 * block_prepare() encodes into BUF_BLOCK_OUT. So an index may call them with its buffers full.
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

/* Words for the results of atomics and for single-word writes: the pool's, and the index's. */
#define OP_POOL_WORDS  72
#define OP_INDEX_WORDS BATCH_MAX

/* Exponential back-off, for waiting on other clients: client_backoff(). */
struct backoff {
    uint64_t pause_ns, waited_ns;
};

struct op {
    struct client *client;
    struct pool *pool;
    struct batch batch;
    struct cost cost;           /* what its batches cost since the operation started */
    uint64_t *pool_word, *word; /* OP_POOL_WORDS, OP_INDEX_WORDS */
    void *buf[BUF_COUNT];
    size_t buf_bytes[BUF_COUNT];
    uint64_t epoch;      /* while in flight: what the client had validated when it began */
    uint64_t attempt_at; /* when its last attempt began, if that was not the first (attempt.h) */
    bool unmet;          /* it began before its client had met a sweep: SWEEP-P2 */
    bool recovers; /* completes another client's work, or what its own client left (lease.c) */
    struct journal_seen *journal_seen; /* NULL, or the lines that it recovers */
    unsigned lacks_line; /* the node, plus one, where it has no line; 0: what it lacks is memory */
    struct backoff line_patience; /* for that */
    struct op *older, *newer;
};

/* The purpose's buffer with at least that many bytes; contents survive only if it did not have to
 * grow. NULL when out of memory. */
void *op_buffer_grow(struct op *op, enum op_buf which, size_t bytes);
static inline void *op_buffer(struct op *op, enum op_buf which, size_t bytes)
{
    return bytes <= op->buf_bytes[which] ? op->buf[which] : op_buffer_grow(op, which, bytes);
}

/*
 * Single words of a batch. Each of these adds a verb and returns its number n in the batch; the old
 * word goes to op->word[n]. After the flush, op_result() returns that word, and op_swapped() says
 * whether a CAS surely swapped, until verbs are added to the next batch.
 */
static inline uint64_t *op_next_word(struct op *op)
{
    return &op->word[op->batch.count];
}
static inline unsigned op_read(struct op *op, gaddr at, uint64_t delta)
{
    unsigned n = op->batch.count;
    batch_read(&op->batch, at, delta, op_next_word(op), 8);
    return n;
}
static inline unsigned op_read_head(struct op *op, gaddr at, uint64_t delta)
{
    unsigned n = op->batch.count;
    batch_read_head(&op->batch, at, delta, op_next_word(op), 8);
    return n;
}
static inline unsigned op_cas(struct op *op, enum fab_mark mark, gaddr at, uint64_t delta,
                              uint64_t compare, uint64_t swap)
{
    return batch_cas(&op->batch, mark, at, delta, compare, swap, op_next_word(op));
}
static inline unsigned op_mcas(struct op *op, enum fab_mark mark, gaddr at, uint64_t delta,
                               uint64_t compare, uint64_t compare_mask, uint64_t swap,
                               uint64_t swap_mask)
{
    return batch_mcas(&op->batch, mark, at, delta, compare, compare_mask, swap, swap_mask,
                      op_next_word(op));
}
static inline unsigned op_faa(struct op *op, enum fab_mark mark, gaddr at, uint64_t delta,
                              uint64_t add)
{
    return batch_faa(&op->batch, mark, at, delta, add, op_next_word(op));
}
static inline uint64_t op_result(const struct op *op, unsigned n)
{
    ASSERT(n < OP_INDEX_WORDS);
    return op->word[n];
}
static inline bool op_swapped(const struct op *op, unsigned n)
{
    return batch_swapped(&op->batch, n);
}

/* A random number below `bound`, for back-off and for choices among equals. */
uint64_t op_random(struct op *op, uint64_t bound);

/*
 * Waits for other operations, of this client or of others.
 *
 *   RING-1  A call that waits for others drives the ring of its session meanwhile. What it waits
 *       for may be an operation of that ring, or another client that waits for one, and nobody else
 *       drives the ring before the call has returned.
 */
void op_wait(struct op *op, uint64_t ns);
/* The same for a microsecond if *pause_ns is 0, then twice as long each time, up to a
 * millisecond. */
void op_pause(struct op *op, uint64_t *pause_ns);
/* The same for a random time below `bound`. */
void op_pause_below(struct op *op, uint64_t bound);
/* Neither of these two is longer than an eighth of the lease: the batch that follows brings the
 * next heartbeat. */

/*
 * Brackets an operation: between the two, nothing that it can reach is reused. `cached` is the
 * cache it works from, NULL for none.
 * FAR_FENCED: this client was declared dead, and cannot register again yet.
 */
int op_begin(struct op *op, struct cached *cached);
void op_end(struct op *op);
/* The operation has ended for good. Locks that it leaves are others' to release. */
static inline void op_forget_locks(struct op *op)
{
    const struct fab_chain_ops *chain = op->batch.ep->ops->chain;
    if (__builtin_expect(chain != NULL, 0))
        chain->forget(op->batch.ep, &op->batch.req);
}
bool op_in_flight(const struct op *op);

/* Work that ended with this status has no verbs under way. If it has published nothing, then it
 * still owns what it allocated. (Local memory runs out between batches.) */
static inline bool op_all_known(int rc)
{
    return rc == FAR_OK || status_means(rc, STATUS_SETTLED) || rc == FAR_NO_MEMORY;
}

/* The outcome of a flush whose CAS decides an operation: after an error of the fabric, unknown,
 * unless nothing of the batch was sent to its node. A client whose lease has lapsed does not post,
 * so FAR_FENCED means that nothing happened, unless an earlier post of the same batch did. */
static inline int op_decided(const struct op *op, int rc)
{
    const struct batch *b = &op->batch;
    bool refused = status_means(rc, STATUS_NOT_POSTED) && !b->acted;
    bool not_sent = !b->in_doubt && b->completed == 0;
    return rc == FAR_OK || refused || not_sent ? rc : FAR_UNKNOWN;
}

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

/* What the client knows of the epoch, for those that fill a cache. */
struct epoch_view {
    uint64_t seen;      /* the newest epoch read */
    uint64_t validated; /* caches were found valid after this one was read */
    uint64_t newest;    /* op->epoch of the operation that began last; 0: none is in flight */
    /* Announcements that have completed. One that completed while a cache was filled has not
     * validated it. */
    uint64_t announced;
};
struct epoch_view client_epoch_view(const struct client *client);

/* ---- waiting for others ---------------------------------------------------------------------- */

/*
 * A barrier: returns when every operation that was in flight when it was called, of any client, has
 * ended. Parked clients have none, and dead ones are shut out meanwhile. Not within an operation,
 * whose own epoch would hold it up: op_end() first, and op_begin() after. FAR_TIMEOUT: some
 * client's operation has not ended for `leases` leases.
 */
int client_barrier(struct op *op, unsigned leases);

/* Reads the global epoch, by a round trip. Every operation that was in flight when this was called,
 * of any client, has ended when the epoch has reached *epoch + 2. May be called within an operation
 * and by recover(). But while an operation of this client lasts that was in flight then, the epoch
 * does not get so far. The op's batch must be empty. */
int client_epoch_now(struct op *op, uint64_t *epoch);

/* Drives epochs by round trips of its own, for a client that needs memory now: announces, reads,
 * advances, shuts out clients whose lease has lapsed. */
int client_drive_epoch(struct op *op);

/* The same without a round trip: the next batch carries an announcement that drives the epoch,
 * though nothing of this client waits for it. */
void client_hurry_epoch(struct client *client);

/* The same, if all clients may be waiting for the epoch at once. The registry is as long as there
 * are clients, so only some of them read it; the others certify, and read the epoch. */
void client_help_epoch(struct client *client);

/* A number of CLIENT_STAMP_BITS bits that no other call returns, of this client or of another: not
 * before this client has asked for eight million more. */
#define CLIENT_STAMP_BITS 58
uint64_t client_stamp(struct client *client);

/*
 * Gives up the client's registration: for an operation that holds locks when the outcome of a batch
 * is unknown. Others take the client for dead, and recover its journal. The session's next
 * operation registers again, in another slot.
 */
void client_renounce(struct op *op);

/* Returns false after `leases` leases: in a damaged pool, what one waits for may never come. */
bool client_backoff(struct op *op, struct backoff *backoff, unsigned leases);

/* How long a client may be silent before it counts as dead. */
uint64_t client_lease_ns(const struct client *client);

/* Has the lease lapsed, or was the client fenced? What was read since may be anything. */
bool client_lapsed(const struct client *client);

/* Reports the progress of long work. FAR_STOPPED: the caller wants it to end. */
int client_progress(struct client *client, const char *what, uint64_t done, uint64_t total);

/* The owner word of this client (pool_layout.h), for its locks. */
uint64_t client_owner_word(const struct client *client);
/* Is the holder that a lock word names still registered, and not fenced? */
int client_owner_alive(struct op *op, uint64_t owner_word, bool *alive);

/* ---- memory ---------------------------------------------------------------------------------- */

/*
 * An object of a class, on the node if it has room, else on any other. Mostly local; once per
 * chunk it costs three round trips. The op's batch must be empty.
 * Its memory is not cleared. FAR_POOL_FULL.
 */
int pool_alloc(struct op *op, unsigned node, unsigned size_class, gaddr *at);
/* As pool_alloc(), for a block, or for what lets blocks be given back: it may take the spare
 * (ALLOC-A7). */
int pool_alloc_block(struct op *op, unsigned node, unsigned size_class, gaddr *at);

/* The same on this node or not at all. */
int pool_alloc_on(struct op *op, unsigned node, unsigned size_class, gaddr *at);

/* Has the client an object of the class besides the one that it has just taken, or can it get one?
 * Not asked of objects that are a large part of the pool. The batch must be empty. */
bool pool_keep_spare(struct op *op, unsigned node, unsigned size_class);

/* The class that an allocation of this client last asked for in vain. Memory is looked for, and
 * cut, for this one. An index that allocates in order to get memory back sets it as it was. */
unsigned pool_wanted(const struct client *client);
void pool_want(struct client *client, unsigned size_class);

/* Is there memory for roughly that many bytes? A table whose first allocation is large asks before
 * it uses up the pool. Memory on the shared lists and in this client's stock counts: it can be cut.
 * FAR_POOL_FULL. */
int pool_check_room(struct op *op, uint64_t needed);

/* Gives back an object that others may still be reading. It is reused when all operations that may
 * know it have ended (EPOCH-E3). */
void pool_retire(struct client *client, gaddr at, unsigned size_class);

/* Gives back an object that nothing in the pool ever pointed to: reusable at once. */
void pool_free_unpublished(struct client *client, gaddr at, unsigned size_class);

/* Gives up an object when it is not known whether something points to it, or will: a CAS or a WRITE
 * ended with an error of the fabric. Only a sweep can tell. */
void pool_abandon(struct client *client, unsigned size_class);
void pool_abandon_bytes(struct client *client, uint64_t bytes);

/* The same for all that was allocated since pool_taken_bytes() was `before`. Some of it may belong
 * to siblings of the ring, so this is the most that can be lost. */
uint64_t pool_taken_bytes(const struct client *client);
void pool_abandon_since(struct client *client, uint64_t before);

/* ---- journals (journal.c) -------------------------------------------------------------------- */

/* The line of an operation, from journal_take() to journal_give(). If place is 0, there is none,
 * and the functions below do nothing. */
struct journal {
    gaddr at;
    uint32_t place;
    unsigned registration;
    uint64_t stamp;
};

/* The table that a line belongs to, and what is done there. */
struct journal_subject {
    unsigned place; /* of the table in the catalog */
    uint64_t tag;   /* of the table */
    uint32_t what;  /* defined by the index */
};

/* What a line says to the client that recovers it. */
struct journal_entry {
    uint64_t owner; /* as client_owner_word() of the client that wrote it */
    gaddr at;       /* where the line is */
    uint64_t stamp; /* of this use of the line */
    struct journal_subject subject;
    const void *data; /* of the intent */
    size_t len;
    const void *redo; /* NULL: nothing was changed yet */
    size_t redo_len;
    bool done; /* the change is complete; the lock may still be held */
};

/*
 * Gives the operation a line on that node: mostly a free one, at no cost. The client's first line
 * on a node costs a round trip or two. If all lines that the slot has there are in use, another one
 * is made, which costs an allocation and two round trips. The op's batch must be empty.
 * FAR_POOL_FULL: the node has no room for another line. pool_make_room() then waits for one.
 */
int journal_take(struct op *op, unsigned node, struct journal *journal);
/* Adds a WRITE to the batch, ahead of the verb that takes the lock: what is about to be done.
 * `data` is copied; its length is a multiple of 8, up to 88 bytes. */
void journal_intend(struct op *op, struct journal *journal, const struct journal_subject *subject,
                    const void *data, size_t len);
/* Adds a WRITE ahead of the first change under the lock: how to repeat the change. Up to 328
 * bytes. */
void journal_redo(struct op *op, struct journal *journal, const void *data, size_t len);
/* Adds a WRITE behind the last change and ahead of the unlock: the change is complete. */
void journal_done(struct op *op, struct journal *journal);
/* Adds a WRITE behind the unlock: the line is blank. Not in the batch of journal_intend(). */
void journal_end(struct op *op, struct journal *journal);
/* Gives the line back. `blank`: the batch with journal_end() has succeeded. Otherwise the line
 * stays, and this client recovers it later itself. */
void journal_give(struct op *op, struct journal *journal, bool blank);
/* Gives the line back as it is, without journal_end(): the operation has released its locks. The
 * next one overwrites the line. If the client dies before that, recover() is called for this line
 * too, so it has to look whether the locks are held (JOURNAL-J5). */
void journal_spend(struct op *op, struct journal *journal);

/* For recover(). Adds a WRITE behind the change that was redone, ahead of the unlock: the line then
 * says "done". If this client dies, too, the next one need not redo the change. At most once in a
 * batch. */
void journal_entry_done(struct op *op, const struct journal_entry *entry);

/*
 * Calls visit() for each line on the node that says something, of all slots, also for lines that
 * are spent and for the caller's own. `alive` is false only if the line's writer is fenced or has
 * left its slot. It may be true a little longer than the writer lives (JOURNAL-J6). A line that is
 * written during the call may be missed. The entry is valid until visit() returns, and visit() must
 * not use the op. The op's batch must be empty. May be called by recover().
 */
int journal_visit(struct op *op, unsigned node,
                  void (*visit)(void *arg, const struct journal_entry *entry, bool alive),
                  void *arg);

/* ---- key-value blocks (block.c) -------------------------------------------------------------- */
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
/* Are blocks of this class long ones? Then their keys can be judged without their values. */
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

/* Allocates near `node` and encodes. `written_by` is BLOCK_UPDATE, BLOCK_PUT or 0. FAR_POOL_FULL,
 * FAR_NO_MEMORY. */
int block_prepare(struct op *op, unsigned node, const void *key, size_t klen, const void *value,
                  size_t vlen, unsigned written_by, struct block_ref *block);
static inline void block_write(struct op *op, const struct block_ref *block)
{
    batch_write(&op->batch, MARK_EARLY, block->at, 0, block->image, block->bytes);
}

enum block_verdict {
    BLOCK_MATCH, /* holds the key                                                        */
    BLOCK_OTHER, /* whole and of the right generation, but holds another key             */
    BLOCK_STALE  /* torn, reused or damaged: the pointer was followed too late, or is bad */
};

/* Judges `bytes` of memory read through a pointer that promised `generation`. */
enum block_verdict block_judge(const void *image, size_t bytes, unsigned generation,
                               const void *key, size_t klen);
/* The same for the beginning of a long block of `bytes` bytes: block_key_at(true) + klen bytes of
 * it were read. Its value is not judged. */
enum block_verdict block_judge_head(const void *image, size_t bytes, unsigned generation,
                                    const void *key, size_t klen);
/* Is it whole and of the right generation, whatever its key? */
bool block_valid(const void *image, size_t bytes, unsigned generation);
/* These are for images that were judged. */
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

#endif
