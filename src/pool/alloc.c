/*
 * Allocation without a server.
 *
 * A node's memory is cut into chunks of 64 KiB. A fetch-and-add on the node's counter hands the
 * next chunk, or a run of them, to a client, which writes into the chunk table what it is for.
 * A client cuts a chunk into objects of one size class by itself, so that most allocations touch
 * nothing remote.
 *
 *   ALLOC-A1  A chunk belongs to the client whose FAA covered it, until a sweep finds all of it
 *       free and hands it out again, as a run or as part of one (SWEEP-P5).
 *   ALLOC-A2  An object is handed out once, unless it came back by pool_free_unpublished(): then
 *       nothing points to it. It has one owner then: a client, or a shared list.
 *   ALLOC-A3  Every chunk below the counter has a chunk table entry, but for those whose owner died
 *       between the FAA and the WRITE.
 *   ALLOC-A4  The counter never goes back below a chunk that exists: a sweep takes what is below it
 *       for handed out.
 *   ALLOC-A5  A free run may be cut by its owner, for a smaller run or for a chunk of small
 *       objects. The entries of all of its chunks are rewritten before any piece of it is handed
 *       out or given away. Nothing is reachable in it meanwhile, so nobody acts on entries of which
 *       only some are new: a sweep goes by what is reachable (SWEEP-P5), and if the owner dies,
 *       finds all of it. Pieces are joined again by sweeps only.
 */
#include "pool/pool.h"

#include <stdlib.h>

/* Bytes, and objects at least, of a class that a client keeps to itself, if the knob allows; more
 * go to the shared lists. */
#define STOCK_MIN   4
#define STOCK_BYTES (256u << 10)

/* Bytes that a client loses before it says so. */
#define LOSS_TOLD CLASS_SMALL_MAX

/* Lost races for several chunks in a row; each is another client's success. */
#define RUN_TRIES 1024

/* A long run that is cut for shorter ones makes up to this many of them. */
#define RUN_PIECES 4

/* Objects from this size on that divide a chunk come by several chunks at once: by that part of what
 * the node has left, divided by the number of clients, and no more than so many. */
#define CLUSTER_BYTES_MIN 4096u
#define CLUSTER_SHARE     4u
#define CLUSTER_MOST      64u
#define CLUSTER_RUN       16u /* chunks of a free run that is as good as new */

/* Chunks in a row. */
struct extent {
    uint64_t first, chunks;
};

/* Takes the next chunk from a node's counter. FAR_POOL_FULL when there is none. */
static int take_chunk(struct op *op, unsigned node, uint64_t *first)
{
    uint64_t *old = &op->pool_word[0];
    gaddr counter = gaddr_make(node, NODE_NEXT_CHUNK_OFF);

    batch_faa(&op->batch, counter, 0, 1, old);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    if (*old < op->pool->head[node].chunks) {
        *first = *old;
        return FAR_OK;
    }
    /* Put back, unless somebody has counted past it: the counter is not to grow for ever. */
    batch_cas(&op->batch, counter, 0, *old + 1, *old, &op->pool_word[1]);
    rc = batch_flush(&op->batch);
    return rc != FAR_OK ? rc : FAR_POOL_FULL;
}

/* Objects of these classes come by several chunks at once, if so many are left. An index keeps them
 * for as long as its table is there, and each would stand between chunks that come free, so that
 * these make no long run: therefore they stand together. */
static uint64_t cluster_chunks(unsigned size_class, uint64_t left)
{
    uint32_t bytes = size_class_bytes(size_class);
    if (bytes < CLUSTER_BYTES_MIN || bytes > CLASS_SMALL_MAX || CHUNK_BYTES % bytes != 0)
        return 1;
    return left < 1 ? 1 : left > CLUSTER_MOST ? CLUSTER_MOST : left;
}

/*
 * Takes several chunks in a row for objects of a class. Not by adding and putting back what did not
 * fit: the counter must never go back below a chunk that exists (ALLOC-A4), and a smaller request may
 * still fit.
 */
static int take_run(struct op *op, unsigned node, unsigned size_class, struct extent *extent)
{
    const struct node_head *head = &op->pool->head[node];
    uint64_t *old = &op->pool_word[0], run = size_class_chunks(size_class);
    uint64_t least = op->pool->knobs.run_chunks;
    uint64_t share = CLUSTER_SHARE * op->client->high; /* for every client that there is */
    gaddr counter = gaddr_make(node, NODE_NEXT_CHUNK_OFF);

    batch_read(&op->batch, counter, 0, old, 8);
    int rc = batch_flush(&op->batch);
    for (unsigned i = 0; i < RUN_TRIES && rc == FAR_OK; i++) {
        uint64_t seen = *old, left = seen < head->chunks ? head->chunks - seen : 0;
        extent->chunks = run > 1 ? run : cluster_chunks(size_class, left / share);
        if (extent->chunks > left)
            return FAR_POOL_FULL;
        if (extent->chunks < least) /* as a test has it */
            extent->chunks = least < left ? least : left;
        batch_cas(&op->batch, counter, 0, seen, seen + extent->chunks, old);
        rc = batch_flush(&op->batch);
        if (rc == FAR_OK && *old == seen) {
            extent->first = seen;
            return FAR_OK;
        }
    }
    return rc == FAR_OK ? FAR_CONTENTION : rc;
}

/* Puts the never-used objects of the current chunk with the others. */
static void keep_rest(struct client *c, struct stock *stock, unsigned size_class)
{
    uint32_t bytes = size_class_bytes(size_class);
    for (; stock->left > 0; stock->left--, stock->next += bytes / 64) {
        c->held_bytes -= bytes;
        pool_free_unpublished(c, stock->next, size_class);
    }
}

static bool take_local(struct client *c, unsigned node, unsigned size_class, gaddr *at)
{
    struct stock *stock = &c->stock[node][size_class];
    if (stock->kept > 0) {
        *at = stock->keep[--stock->kept];
        pool_taken(c, *at, size_class);
    } else if (stock->left > 0) {
        *at = stock->next;
        stock->next += size_class_bytes(size_class) / 64;
        stock->left--;
    } else {
        return false;
    }
    c->held_bytes -= size_class_bytes(size_class);
    c->taken_bytes += size_class_bytes(size_class);
    return true;
}

/* ---- cutting runs ---------------------------------------------------------------------------- */

static gaddr chunk_gaddr(const struct node_head *head, unsigned node, uint64_t chunk)
{
    return gaddr_make(node, (uint64_t)head->chunks_off64 * 64 + (chunk << CHUNK_SHIFT));
}

static uint64_t chunk_of(const struct node_head *head, gaddr at)
{
    return (gaddr_offset(at) - (uint64_t)head->chunks_off64 * 64) >> CHUNK_SHIFT;
}

void pool_describe_run(uint64_t *entries, unsigned size_class, unsigned client)
{
    uint64_t run = size_class_chunks(size_class);
    for (uint64_t i = 0; i < run; i++)
        entries[i] = chunk_entry(i == 0 ? CHUNK_LARGE : CHUNK_LARGE_TAIL, size_class, client, run);
}

/* A free run in our hands of at least so many chunks, the shortest. */
static bool take_own_run(struct client *c, unsigned node, uint64_t chunks, gaddr *at,
                         unsigned *size_class)
{
    for (unsigned i = RUN_CLASS; i < CLASS_COUNT; i++) {
        if (size_class_chunks(i) >= chunks && take_local(c, node, i, at)) {
            *size_class = i;
            return true;
        }
    }
    return false;
}

/* The chunks at the end of a cluster of ours from which nothing was taken yet, if they are so many. */
static bool take_own_cluster(struct client *c, unsigned node, uint64_t chunks,
                             struct extent *extent)
{
    for (unsigned i = size_class_for(CLUSTER_BYTES_MIN); i < RUN_CLASS; i++) {
        struct stock *stock = &c->stock[node][i];
        uint32_t bytes = size_class_bytes(i), each = (uint32_t)(CHUNK_BYTES / bytes);
        uint64_t whole = stock->left / each;
        if (cluster_chunks(i, CLUSTER_MOST) == 1 || whole < chunks)
            continue;
        gaddr end = stock->next + (uint64_t)stock->left * bytes / 64;
        stock->left -= (uint32_t)whole * each;
        c->held_bytes -= whole * CHUNK_BYTES;
        extent->first = chunk_of(&c->pool->head[node], end) - whole;
        extent->chunks = whole;
        return true;
    }
    return false;
}

/* A free run of at least so many chunks: one of ours, else one from the shared lists. */
static int take_free_run(struct op *op, unsigned node, uint64_t chunks, struct extent *extent)
{
    struct client *c = op->client;
    unsigned size_class = 0;
    gaddr at = 0;

    for (unsigned attempt = 0; attempt < RUN_TRIES; attempt++) {
        if (take_own_run(c, node, chunks, &at, &size_class)) {
            extent->first = chunk_of(&op->pool->head[node], at);
            extent->chunks = size_class_chunks(size_class);
            return FAR_OK;
        }
        size_class = 0;
        int rc = c->sweep ? FAR_POOL_FULL /* SWEEP-P1 */
                          : freelist_run_class(op, node, chunks, &size_class);
        if (rc == FAR_POOL_FULL && take_own_cluster(c, node, chunks, extent))
            return FAR_OK;
        if (rc == FAR_OK)
            rc = freelist_take(op, node, size_class);
        /* Another client, or operation, may have been faster: then we look again. */
        if (rc != FAR_OK && rc != FAR_CONTENTION && (rc != FAR_POOL_FULL || size_class == 0))
            return rc;
    }
    return FAR_CONTENTION;
}

/* Chunks for objects of a class: a free chunk of ours, else new ones, else a free run that is to be
 * cut. */
static int take_chunks(struct op *op, unsigned node, unsigned size_class, struct extent *extent)
{
    struct client *c = op->client;
    uint64_t run = size_class_chunks(size_class);
    gaddr at = 0;
    bool cluster = cluster_chunks(size_class, CLUSTER_MOST) > 1;
    bool several = run > 1 || cluster || op->pool->knobs.run_chunks > 1;

    ASSERT(size_class_bytes(CHUNK_CLASS) == CHUNK_BYTES);
    extent->chunks = run;
    if (size_class < RUN_CLASS && take_local(c, node, CHUNK_CLASS, &at)) {
        extent->first = chunk_of(&op->pool->head[node], at);
        return FAR_OK;
    }
    int rc =
        several ? take_run(op, node, size_class, extent) : take_chunk(op, node, &extent->first);
    if (rc != FAR_OK && rc != FAR_CONTENTION && rc != FAR_POOL_FULL)
        c->lost_bytes += extent->chunks << CHUNK_SHIFT; /* nobody knows whether they are ours */
    if (rc == FAR_POOL_FULL && cluster) /* rather not what others have begun to cut */
        rc = take_free_run(op, node, CLUSTER_RUN, extent);
    return rc == FAR_POOL_FULL ? take_free_run(op, node, run, extent) : rc;
}

/* How many pieces for objects of a class are cut from an extent at once. */
static uint64_t piece_count(unsigned size_class, const struct extent *extent)
{
    uint64_t pieces = extent->chunks / size_class_chunks(size_class);
    uint64_t most = size_class >= RUN_CLASS ? RUN_PIECES : cluster_chunks(size_class, pieces);
    return pieces < most ? pieces : most;
}

/* Divides an extent: `pieces` runs of the class, or as many chunks of its small objects, and runs as
 * long as possible of the rest, whose classes are put into `rest`. Returns how many those are. */
static unsigned divide(struct op *op, unsigned size_class, uint64_t pieces,
                       const struct extent *extent, uint8_t rest[RUN_CHUNKS_MAX])
{
    uint64_t run = size_class_chunks(size_class), at = 0, *entry = op->pool_word;
    unsigned count = 0, client = op->client->slot;

    ASSERT(extent->chunks <= RUN_CHUNKS_MAX && pieces * run <= extent->chunks);
    for (uint64_t i = 0; i < pieces; i++, at += run) {
        if (size_class >= RUN_CLASS)
            pool_describe_run(&entry[at], size_class, client);
        else
            entry[at] = chunk_entry(CHUNK_SLAB, size_class, client, 1);
    }
    while (at < extent->chunks) {
        rest[count] = (uint8_t)size_class_for_chunks(extent->chunks - at);
        pool_describe_run(&entry[at], rest[count], client);
        at += size_class_chunks(rest[count++]);
    }
    return count;
}

static int refill(struct op *op, unsigned node, unsigned size_class)
{
    struct client *c = op->client;
    const struct node_head *head = &op->pool->head[node];
    struct stock *stock = &c->stock[node][size_class];
    bool small = size_class < RUN_CLASS;
    uint64_t run = size_class_chunks(size_class);
    struct extent extent = {0, 0};
    uint8_t rest[RUN_CHUNKS_MAX];

    int rc = take_chunks(op, node, size_class, &extent);
    if (rc != FAR_OK)
        return rc;
    uint64_t pieces = piece_count(size_class, &extent);
    unsigned count = divide(op, size_class, pieces, &extent, rest);
    batch_write(&op->batch, gaddr_make(node, 0), head->table_off + extent.first * 8, op->pool_word,
                (uint32_t)extent.chunks * 8);
    rc = batch_flush(&op->batch); /* ALLOC-A5 */
    gaddr next = chunk_gaddr(head, node, extent.first);
    if (rc != FAR_OK || client_swept(c, next)) {
        /* The sweep was announced, and met by another operation, since we took it. */
        c->lost_bytes += extent.chunks << CHUNK_SHIFT;
        return rc;
    }
    /* Another operation of this client may have come first: what is left of that chunk is kept. */
    keep_rest(c, stock, size_class);
    stock->next = next;
    stock->left = (uint32_t)(small ? pieces * (CHUNK_BYTES / size_class_bytes(size_class)) : 1);
    c->held_bytes += (uint64_t)stock->left * size_class_bytes(size_class);
    for (uint64_t i = 1; i < pieces && !small; i++)
        pool_free_unpublished(c, chunk_gaddr(head, node, extent.first + i * run), size_class);
    uint64_t at = extent.first + pieces * run;
    for (unsigned i = 0; i < count; at += size_class_chunks(rest[i++]))
        pool_free_unpublished(c, chunk_gaddr(head, node, at), rest[i]);
    return FAR_OK;
}

/* One node's sources, from the nearest to the farthest. */
static int take_from(struct op *op, unsigned node, unsigned size_class, gaddr *at)
{
    struct client *c = op->client;
    /* Another operation of this client may use up a refill while this one waits for it. */
    for (unsigned attempt = 0; attempt < 64; attempt++) {
        if (take_local(c, node, size_class, at) ||
            (client_reclaim(c) && take_local(c, node, size_class, at)))
            return FAR_OK;
        int rc = c->sweep ? FAR_POOL_FULL : freelist_take(op, node, size_class);
        if (rc == FAR_POOL_FULL || rc == FAR_CONTENTION)
            rc = refill(op, node, size_class);
        /* Even on a full node: another operation of this client may have got the last chunk. */
        if (rc == FAR_POOL_FULL && take_local(c, node, size_class, at))
            return FAR_OK;
        if (rc != FAR_OK)
            return rc;
    }
    return FAR_CONTENTION;
}

static int take_anywhere(struct op *op, unsigned node, unsigned size_class, gaddr *at)
{
    int rc = FAR_POOL_FULL;
    for (unsigned i = 0; i < op->pool->nodes && rc == FAR_POOL_FULL; i++)
        rc = take_from(op, (node + i) % op->pool->nodes, size_class, at);
    return rc;
}

int pool_alloc(struct op *op, unsigned node, unsigned size_class, gaddr *at)
{
    ASSERT(op->batch.count == 0);
    ASSERT(size_class < CLASS_COUNT && node < op->pool->nodes);
    int rc = take_from(op, node, size_class, at);
    if (rc == FAR_POOL_FULL)
        rc = take_anywhere(op, (node + 1) % op->pool->nodes, size_class, at);
    if (rc != FAR_POOL_FULL)
        return rc;
    op->client->wanted = size_class;
    return err_fail(FAR_POOL_FULL, "no node has %u bytes left", size_class_bytes(size_class));
}

int pool_alloc_on(struct op *op, unsigned node, unsigned size_class, gaddr *at)
{
    ASSERT(op->batch.count == 0);
    ASSERT(size_class < CLASS_COUNT && node < op->pool->nodes);
    int rc = take_from(op, node, size_class, at);
    if (rc != FAR_POOL_FULL)
        return rc;
    op->client->wanted = size_class;
    return err_fail(FAR_POOL_FULL, "node %u does not have %u bytes left", node,
                    size_class_bytes(size_class));
}

/* ---- when the pool is full ------------------------------------------------------------------- */

/* So much free memory of other sizes is worth looking for chunks of which nothing is in use. */
#define RECUT_BYTES (8 * CHUNK_BYTES)

/* FAR_POOL_FULL if the epochs do not move: waiting has not helped. */
static int await_epoch(struct op *op, uint64_t epoch)
{
    int rc = client_await_epoch(op, epoch, 4);
    return rc == FAR_TIMEOUT ? FAR_POOL_FULL : rc;
}

/* Waits for the oldest of what waits for its epoch. */
static int relieve_by_epochs(struct op *op)
{
    struct limbo *l = &op->client->limbo;
    if (l->count == 0)
        return FAR_POOL_FULL;
    int rc = await_epoch(op, l->ring[l->head].reuse_at);
    (void)client_reclaim(op->client);
    return rc;
}

/* Other clients have memory that waits for its epoch, or too much of it in hand: when the epoch has
 * gone on they will have passed it on; those that are dead will have been found. Not so those that
 * died idle, for whom no epoch waits: they are looked for, but not all the time. */
static int relieve_by_others(struct op *op)
{
    struct client *c = op->client;
    uint64_t retired = 0, held = 0, now = c->ep->ops->coarse(c->ep);
    unsigned dead = 0;
    int rc = client_bytes(op, &retired, &held);
    if (rc != FAR_OK)
        return rc;
    if (retired + held - c->retired_bytes - c->held_bytes < CHUNK_BYTES)
        return FAR_POOL_FULL;
    rc = await_epoch(op, c->seen + 3);
    if (rc != FAR_OK || now < c->reap_after)
        return rc;
    c->reap_after = now + 2 * c->lease_ns;
    return client_reap_dead(op, &dead);
}

/* Waits for the end of somebody's sweep. *orphaned is set if that client did not live to see it. */
static int await_sweep(struct op *op, bool *orphaned)
{
    struct client *c = op->client;
    struct backoff patience = {0};
    bool alive = true;
    int rc = FAR_OK;
    do {
        rc = client_drive_epoch(op);
        if (rc == FAR_OK && c->sweep)
            rc = client_owner_alive(op, c->sweep, &alive);
    } while (rc == FAR_OK && alive && client_backoff(op, &patience, 10) &&
             (c->sweep || c->sweep_unmet));
    *orphaned = rc == FAR_OK && !alive;
    return rc;
}

/* Bytes that a sweep would find in clients' hands: what is free there, and what parked clients have
 * retired, which they do not pass on before they are used again. */
static int bytes_in_hands(struct op *op, uint64_t *bytes)
{
    struct client_slot *slots = NULL;
    int rc = client_registry(op, &slots);
    *bytes = op->client->held_bytes;
    for (unsigned i = 0; i < op->pool->clients && rc == FAR_OK; i++) {
        if (slots[i].incarnation == 0 || i == op->client->slot)
            continue;
        *bytes += slots[i].held_bytes;
        if (slots[i].epoch == NO_EPOCH)
            *bytes += slots[i].retired_bytes;
    }
    return rc;
}

/* Has somebody died, or have we lost something, since the last sweep? Or is there memory that is
 * free, but cut for other sizes? It could be cut anew (SWEEP-P5), which is not tried all the time. */
static int sweep_is_worth_it(struct op *op, bool *worth)
{
    struct client *c = op->client;
    uint64_t now = c->ep->ops->coarse(c->ep), listed = 0, held = 0;
    batch_read(&op->batch, gaddr_make(0, 0), CONTROL_OFF + offsetof(struct pool_control, deaths),
               op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    *worth = rc == FAR_OK && (op->pool_word[0] != 0 || c->lost_bytes != 0);
    if (rc != FAR_OK || *worth || (now < c->recut_after && c->retired_since_recut < RECUT_BYTES))
        return rc;
    rc = bytes_in_hands(op, &held);
    if (rc == FAR_OK && held < RECUT_BYTES)
        rc = freelist_bytes(op, RECUT_BYTES, &listed);
    *worth = rc == FAR_OK && held + listed >= RECUT_BYTES;
    if (*worth) {
        c->recut_after = now + 2 * c->lease_ns;
        c->retired_since_recut = 0;
    }
    return rc;
}

int pool_make_room(struct op *op)
{
    struct client *c = op->client;
    struct sweep_result swept = {0};

    if (op->pool->knobs.no_reclaim)
        return FAR_POOL_FULL;
    if (op->pool->settle)
        (void)op->pool->settle(op->pool->tables, op); /* if it fails, there are other ways */
    int rc = relieve_by_epochs(op);
    if (rc != FAR_POOL_FULL)
        return rc;
    bool sweeps = false;
    if (c->sweep || c->sweep_unmet) {
        rc = await_sweep(op, &sweeps);
        if (!sweeps)
            return rc;
    } else {
        rc = sweep_is_worth_it(op, &sweeps);
        if (!sweeps)
            return rc == FAR_OK ? relieve_by_others(op) : rc;
    }
    uint64_t lost = c->lost_bytes; /* what is lost from here on, this sweep may miss */
    rc = pool_sweep(op, &swept);
    if (rc == FAR_CONTENTION)
        return await_sweep(op, &sweeps);
    if (rc == FAR_OK) {
        c->lost_bytes -= lost < c->lost_bytes ? lost : c->lost_bytes;
        c->loss_told = false;
    }
    return rc == FAR_OK && swept.objects == 0 ? FAR_POOL_FULL : rc;
}

/* ---- what comes back ------------------------------------------------------------------------- */

static bool stock_grow(struct stock *stock)
{
    unsigned room = stock->room ? 2 * stock->room : 64;
    gaddr *keep = realloc(stock->keep, room * sizeof *keep);
    if (!keep)
        return false;
    stock->keep = keep;
    stock->room = room;
    return true;
}

static unsigned stock_max(const struct client *c, unsigned size_class)
{
    unsigned n = STOCK_BYTES / size_class_bytes(size_class), most = c->pool->knobs.stock_max;
    n = n < STOCK_MIN ? STOCK_MIN : n;
    return n > most ? most : n;
}

void pool_free_unpublished(struct client *c, gaddr at, unsigned size_class)
{
    unsigned node = gaddr_node(at);
    struct stock *stock = &c->stock[node][size_class];
    if (client_swept(c, at) || (stock->kept == stock->room && !stock_grow(stock))) {
        pool_abandon(c, size_class);
        return;
    }
    if (__builtin_expect(c->pool->knobs.free_watch != NULL, 0))
        c->pool->knobs.free_watch->freed(c->pool->knobs.free_watch, c, at, size_class);
    stock->keep[stock->kept++] = at;
    c->held_bytes += size_class_bytes(size_class);
    if (stock->kept > stock_max(c, size_class)) {
        c->overfull_node = (int)node;
        c->overfull_class = (int)size_class;
    }
}

/* Counts with the dead's what this client has lost by errors of the fabric, so that whoever needs
 * memory sweeps. Not while one goes on, which would find too little of it. */
static int tell_of_loss(struct op *op)
{
    struct client *c = op->client;
    uint64_t told = c->lost_bytes;
    if (told < LOSS_TOLD || c->sweep || c->sweep_unmet)
        return FAR_OK;
    batch_faa(&op->batch, gaddr_make(0, 0), CONTROL_OFF + offsetof(struct pool_control, deaths), 1,
              op->pool_word);
    c->lost_bytes -= told; /* now, lest another operation tells of it too */
    c->loss_told = true;
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        c->lost_bytes += told;
    return rc;
}

int client_upkeep(struct op *op)
{
    struct client *c = op->client;
    if (c->limbo.count > 0)
        client_reclaim(c);
    if (c->lost_bytes > 0) {
        int rc = tell_of_loss(op);
        if (rc != FAR_OK)
            return rc;
    }
    if (c->suspect >= 0 && !client_recovery_waits(c)) { /* it holds up what waits for its epoch */
        int rc = client_try_recover(op);
        if (rc != FAR_OK)
            return rc;
    }
    if (c->overfull_class < 0 || c->tidying)
        return FAR_OK;
    unsigned node = (unsigned)c->overfull_node, size_class = (unsigned)c->overfull_class;
    c->tidying = true;
    int rc = c->sweep ? FAR_OK : freelist_give(op, node, size_class);
    c->tidying = false;
    if (c->stock[node][size_class].kept <= stock_max(c, size_class) / 2)
        c->overfull_class = -1;
    return rc;
}

static int return_class(struct op *op, unsigned node, unsigned size_class)
{
    struct stock *stock = &op->client->stock[node][size_class];
    int rc = FAR_OK;
    keep_rest(op->client, stock, size_class);
    while (stock->kept > 0 && rc == FAR_OK && op->client->sweep == 0)
        rc = freelist_give(op, node, size_class);
    return rc;
}

int client_return_all(struct op *op, unsigned node)
{
    int rc = FAR_OK;
    for (unsigned i = 0; i < CLASS_COUNT && rc == FAR_OK; i++)
        if (i != BUNDLE_CLASS)
            rc = return_class(op, node, i);
    return rc == FAR_OK ? return_class(op, node, BUNDLE_CLASS) : rc; /* the others need pages */
}
