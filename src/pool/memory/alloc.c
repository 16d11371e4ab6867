/*
 * Allocation without a server.
 *
 * A node's memory is cut into chunks of 64 KiB. A fetch-and-add on the node's counter hands the
 * next chunk, or a run of them, to a client, which writes into the chunk table what it is for.
 * The client cuts the chunk into objects of one size class by itself, so most allocations touch
 * nothing remote.
 *
 *   ALLOC-A1  A chunk belongs to the client whose FAA covered it, until a sweep finds all of it
 *       free and hands it out again, as a run or as part of one (SWEEP-P5).
 *   ALLOC-A3  Every chunk below the counter has a chunk table entry, except for those whose owner
 *       died between the FAA and the WRITE.
 *   ALLOC-A4  The counter never goes back below a chunk that exists, because sweeps treat
 *       everything below it as handed out.
 *   ALLOC-A5  The owner of a free run may cut it, for a smaller run or for a chunk of small
 *       objects. The entries of all of its chunks are rewritten before any piece of it is handed
 *       out or given away. Nothing in it is reachable meanwhile, so it does no harm if only some of
 *       the entries are new: a sweep goes by what is reachable (SWEEP-P5), and if the owner dies,
 *       it finds all of the run. Only sweeps join pieces again.
 *   ALLOC-A6  If operations on a ring find no object of a class, one of them fetches some and the
 *       others wait for it. Else each would take a chunk. Waiting only saves memory: after a few
 *       fetches an operation gets its own.
 *   ALLOC-A7  A key that is added leaves its client a spare: a free object of the class of its
 *       block. So a client that has filled the pool can replace values of this size: each
 *       replacement takes the spare, and gives one back after three epochs. Only a block may take
 *       the spare, or what an index needs to give blocks back. One that is a run is not cut.
 */
#include "pool/pool_internal.h"

#include <stdlib.h>
#include <string.h>

/* How often an operation looks whether another has fetched memory for it, if nobody wakes it. */
#define FETCH_LOOK_NS 500

/* An operation tries to get an object this many times. It waits for other operations' fetches at
 * most in the first of them: a fetch may bring only one object, for one of those that wait. */
#define TAKE_TRIES  64
#define FETCH_WAITS 8

/* Lost races for several chunks in a row; each is another client's success. */
#define RUN_TRIES 1024

/* A long run that is cut for shorter ones is cut into up to this many of them. */
#define RUN_PIECES 4

/* Clusters: for objects of this size or more that divide a chunk, several chunks are taken at once.
 * A cluster is 1/CLUSTER_SHARE of what the node has left, divided by the number of clients, and at
 * most CLUSTER_MOST chunks. */
#define CLUSTER_BYTES_MIN 4096u
#define CLUSTER_SHARE     4u
#define CLUSTER_MOST      64u
#define CLUSTER_RUN       16u /* a free run of this many chunks is preferred to shorter ones */

/* Chunks in a row. */
struct extent {
    uint64_t first, chunks;
};

/* A spare is no larger than this part of the pool. */
#define SPARE_SHARE 32u

#define PIECE 4096u /* entries of a chunk table that are read at once */

/* Takes the next chunk from a node's counter. FAR_POOL_FULL when there is none. */
static int take_chunk(struct op *op, unsigned node, uint64_t *first)
{
    uint64_t *old = &op->pool_word[0];
    gaddr counter = gaddr_make(node, NODE_NEXT_CHUNK_OFF);

    batch_faa(&op->batch, MARK_PUBLISH, counter, 0, 1, old);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    if (*old < pool_head(op->pool, node)->chunks) {
        *first = *old;
        return FAR_OK;
    }
    /* Undo the FAA unless another client's followed it, so that the counter does not grow for
     * ever. */
    batch_cas(&op->batch, MARK_PUBLISH, counter, 0, *old + 1, *old, &op->pool_word[1]);
    rc = batch_flush(&op->batch);
    return rc != FAR_OK ? rc : FAR_POOL_FULL;
}

/* How many chunks are taken at once for objects of a class. An index keeps its subtables as long as
 * its table exists. If they were scattered, each would stand between chunks that become free, and
 * these could not be joined to long runs. So they are kept together. */
static uint64_t cluster_chunks(unsigned size_class, uint64_t left)
{
    uint32_t bytes = size_class_bytes(size_class);
    if (bytes < CLUSTER_BYTES_MIN || bytes > CLASS_SMALL_MAX || CHUNK_BYTES % bytes != 0)
        return 1;
    return left < 1 ? 1 : left > CLUSTER_MOST ? CLUSTER_MOST : left;
}

/*
 * Takes several chunks in a row for objects of a class. By a CAS, not by an FAA that is undone if
 * it did not fit: the counter must never go back below a chunk that exists (ALLOC-A4), and a
 * smaller request may still fit.
 */
static int take_run(struct op *op, unsigned node, unsigned size_class, struct extent *extent)
{
    const struct node_head *head = pool_head(op->pool, node);
    uint64_t *old = &op->pool_word[0], run = size_class_chunks(size_class);
    uint64_t least = op->pool->knobs.run_chunks;
    uint64_t share = CLUSTER_SHARE * op->client->epoch.high; /* a part for each client */
    gaddr counter = gaddr_make(node, NODE_NEXT_CHUNK_OFF);

    batch_read(&op->batch, counter, 0, old, 8);
    int rc = batch_flush(&op->batch);
    for (unsigned i = 0; i < RUN_TRIES && rc == FAR_OK; i++) {
        uint64_t seen = *old, left = seen < head->chunks ? head->chunks - seen : 0;
        extent->chunks = run > 1 ? run : cluster_chunks(size_class, left / share);
        if (extent->chunks > left)
            return FAR_POOL_FULL;
        if (extent->chunks < least) /* set by a test */
            extent->chunks = least < left ? least : left;
        batch_cas(&op->batch, MARK_PUBLISH, counter, 0, seen, seen + extent->chunks, old);
        rc = batch_flush(&op->batch);
        if (rc == FAR_OK && *old == seen) {
            extent->first = seen;
            return FAR_OK;
        }
    }
    return rc == FAR_OK ? FAR_CONTENTION : rc;
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

/* ALLOC-A7: would taking an object of the class leave the client without a spare? */
static bool only_spare_left(const struct client *c, unsigned size_class)
{
    return (c->stock.spares >> size_class & 1) && stock_count(c, size_class) == 1;
}

/* For a block, also the spare. */
static bool take_held(struct client *c, unsigned node, unsigned size_class, bool block, gaddr *at)
{
    return (block || !only_spare_left(c, size_class)) && stock_take(c, node, size_class, at);
}

/* The shortest free run that this client holds of at least `chunks` chunks. */
static bool take_own_run(struct client *c, unsigned node, uint64_t chunks, gaddr *at,
                         unsigned *size_class)
{
    for (unsigned i = RUN_CLASS; i < CLASS_COUNT; i++) {
        if (size_class_chunks(i) >= chunks && take_held(c, node, i, false, at)) {
            *size_class = i;
            return true;
        }
    }
    return false;
}

/* The chunks at the end of a cluster of this client's from which nothing was taken yet, if there
 * are at least `chunks` of them. */
static bool take_own_cluster(struct client *c, unsigned node, uint64_t chunks,
                             struct extent *extent)
{
    gaddr at = 0;
    for (unsigned i = size_class_for(CLUSTER_BYTES_MIN); i < RUN_CLASS; i++) {
        if (cluster_chunks(i, CLUSTER_MOST) == 1)
            continue;
        extent->chunks = stock_take_chunks(c, node, i, chunks, &at);
        if (extent->chunks == 0)
            continue;
        extent->first = chunk_of(pool_head(c->pool, node), at);
        return true;
    }
    return false;
}

/* A free run of at least `chunks` chunks: this client's own, else one from the shared lists. */
static int take_free_run(struct op *op, unsigned node, uint64_t chunks, struct extent *extent)
{
    struct client *c = op->client;
    unsigned size_class = 0;
    gaddr at = 0;

    for (unsigned attempt = 0; attempt < RUN_TRIES; attempt++) {
        if (take_own_run(c, node, chunks, &at, &size_class)) {
            extent->first = chunk_of(pool_head(op->pool, node), at);
            extent->chunks = size_class_chunks(size_class);
            return FAR_OK;
        }
        size_class = 0;
        int rc = c->sweep.met ? FAR_POOL_FULL /* SWEEP-P1 */
                              : freelist_run_class(op, node, chunks, &size_class);
        if (rc == FAR_POOL_FULL && take_own_cluster(c, node, chunks, extent))
            return FAR_OK;
        if (rc == FAR_OK)
            rc = freelist_take(op, node, size_class);
        /* If another client or operation was faster, look again. */
        if (rc != FAR_OK && rc != FAR_CONTENTION && (rc != FAR_POOL_FULL || size_class == 0))
            return rc;
    }
    return FAR_CONTENTION;
}

/* Takes chunks for objects of a class: a free chunk of the client's own, else new ones, else a free
 * run that will be cut. */
static int take_chunks(struct op *op, unsigned node, unsigned size_class, struct extent *extent)
{
    struct client *c = op->client;
    uint64_t run = size_class_chunks(size_class);
    gaddr at = 0;
    bool cluster = cluster_chunks(size_class, CLUSTER_MOST) > 1;
    bool several = run > 1 || cluster || op->pool->knobs.run_chunks > 1;

    ASSERT(size_class_bytes(CHUNK_CLASS) == CHUNK_BYTES);
    extent->chunks = run;
    if (size_class < RUN_CLASS && take_held(c, node, CHUNK_CLASS, false, &at)) {
        extent->first = chunk_of(pool_head(op->pool, node), at);
        return FAR_OK;
    }
    int rc =
        several ? take_run(op, node, size_class, extent) : take_chunk(op, node, &extent->first);
    if (rc != FAR_OK && rc != FAR_CONTENTION && rc != FAR_POOL_FULL)
        pool_abandon_bytes(c, extent->chunks << CHUNK_SHIFT); /* they may be ours */
    if (rc == FAR_POOL_FULL && cluster) /* a long run first: short ones were cut before */
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

/* Divides an extent: into `pieces` runs of the class, or as many chunks of its small objects. What
 * is left becomes runs that are as long as possible; `rest` gets their classes. Returns their
 * number. */
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
    bool small = size_class < RUN_CLASS;
    uint64_t run = size_class_chunks(size_class);
    struct extent extent = {0, 0};
    uint8_t rest[RUN_CHUNKS_MAX];

    int rc = take_chunks(op, node, size_class, &extent);
    if (rc != FAR_OK)
        return rc;
    const struct node_head *head = pool_head(op->pool, node); /* not before: it may have been met */
    uint64_t pieces = piece_count(size_class, &extent);
    unsigned count = divide(op, size_class, pieces, &extent, rest);
    batch_write(&op->batch, MARK_EARLY, gaddr_make(node, 0), head->table_off + extent.first * 8,
                op->pool_word, (uint32_t)extent.chunks * 8);
    rc = batch_flush(&op->batch); /* ALLOC-A5 */
    gaddr next = chunk_gaddr(head, node, extent.first);
    if (rc != FAR_OK || client_swept(c, next)) {
        /* Since we took the extent, a sweep was announced, and another operation met it. */
        pool_abandon_bytes(c, extent.chunks << CHUNK_SHIFT);
        return rc;
    }
    /* Another operation of this client may have refilled the class: what is left of its chunk is
     * kept. */
    uint64_t count_first = small ? pieces * (CHUNK_BYTES / size_class_bytes(size_class)) : 1;
    stock_refill(c, node, size_class, next, (uint32_t)count_first);
    for (uint64_t i = 1; i < pieces && !small; i++)
        pool_free_unpublished(c, chunk_gaddr(head, node, extent.first + i * run), size_class);
    uint64_t at = extent.first + pieces * run;
    for (unsigned i = 0; i < count; at += size_class_chunks(rest[i++]))
        pool_free_unpublished(c, chunk_gaddr(head, node, at), rest[i]);
    return FAR_OK;
}

/* Fetches objects: from the shared list, else from a new chunk. */
static int fetch(struct op *op, unsigned node, unsigned size_class)
{
    struct client *c = op->client;
    struct stock *stock = &c->stock.of[node][size_class];
    stock->fetching++;
    int rc = c->sweep.met ? FAR_POOL_FULL : freelist_take(op, node, size_class);
    if (rc == FAR_POOL_FULL || rc == FAR_CONTENTION)
        rc = refill(op, node, size_class);
    stock->fetching--;
    stock->fetched++;
    while (stock->waiting.first)
        batch_wake(&stock->waiting);
    return rc;
}

/* ALLOC-A6: if another operation of this client fetches objects of the class, waits until a fetch
 * has ended. False: this one must fetch. A call that is not on the ring does not wait: the ring
 * stands still meanwhile. */
static bool await_fetch(struct op *op, unsigned node, unsigned size_class)
{
    struct stock *stock = &op->client->stock.of[node][size_class];
    unsigned before = stock->fetched;
    if (stock->fetching == 0 || !op->batch.on_ring)
        return false;
    if (op->batch.ring)
        batch_sleep(&op->batch, &stock->waiting);
    while (stock->fetched == before) /* by FABRIC-F5 every fetch ends */
        batch_pause(&op->batch, FETCH_LOOK_NS);
    return true;
}

/* Takes an object from one node, trying the cheapest source first. */
static int take_from(struct op *op, unsigned node, unsigned size_class, bool block, gaddr *at)
{
    struct client *c = op->client;
    /* Another operation of this client may use up a refill while this one waits for it. */
    for (unsigned attempt = 0; attempt < TAKE_TRIES; attempt++) {
        if (take_held(c, node, size_class, block, at) ||
            (client_reclaim(c) && take_held(c, node, size_class, block, at)))
            return FAR_OK;
        if (attempt < FETCH_WAITS && await_fetch(op, node, size_class))
            continue;
        int rc = fetch(op, node, size_class);
        /* Also if the node is full: another operation of this client may have got the last
         * chunk. */
        if (rc == FAR_POOL_FULL && take_held(c, node, size_class, block, at))
            return FAR_OK;
        if (rc != FAR_OK)
            return rc;
    }
    return FAR_CONTENTION;
}

/* For pool_make_room(): what the operation lacks. */
static void note_lack(struct op *op, unsigned size_class)
{
    op->client->stock.wanted = size_class;
    op->lacks_line = 0;
}

static int take_anywhere(struct op *op, unsigned node, unsigned size_class, bool block, gaddr *at)
{
    ASSERT(op->batch.count == 0);
    ASSERT(size_class < CLASS_COUNT && node < op->pool->nodes);
    int rc = FAR_POOL_FULL;
    if (__builtin_expect(op->pool->knobs.scatters, 0))
        node = op->client->stock.scattered++ / 2 % op->pool->nodes;
    for (unsigned i = 0; i <= op->pool->nodes && rc == FAR_POOL_FULL; i++) /* `node` also last */
        rc = take_from(op, (node + i) % op->pool->nodes, size_class, block, at);
    if (rc != FAR_POOL_FULL)
        return rc;
    note_lack(op, size_class);
    return err_fail(FAR_POOL_FULL, "no node has %u bytes left", size_class_bytes(size_class));
}

int pool_alloc(struct op *op, unsigned node, unsigned size_class, gaddr *at)
{
    return take_anywhere(op, node, size_class, false, at);
}

int pool_alloc_block(struct op *op, unsigned node, unsigned size_class, gaddr *at)
{
    return take_anywhere(op, node, size_class, true, at);
}

int pool_alloc_on(struct op *op, unsigned node, unsigned size_class, gaddr *at)
{
    ASSERT(op->batch.count == 0);
    ASSERT(size_class < CLASS_COUNT && node < op->pool->nodes);
    int rc = take_from(op, node, size_class, false, at);
    if (rc != FAR_POOL_FULL)
        return rc;
    note_lack(op, size_class);
    return err_fail(FAR_POOL_FULL, "node %u does not have %u bytes left", node,
                    size_class_bytes(size_class));
}

int pool_alloc_aside(struct op *op, unsigned node, unsigned size_class, gaddr *at)
{
    unsigned wanted = op->client->stock.wanted;
    int rc = pool_alloc_on(op, node, size_class, at);
    op->client->stock.wanted = wanted;
    return rc;
}

/* ALLOC-A7 */
bool pool_keep_spare(struct op *op, unsigned node, unsigned size_class)
{
    struct client *c = op->client;
    const struct stock *stock = &c->stock.of[node][size_class];
    uint64_t chunks = 0;
    gaddr at = 0;

    if (c->stock.spares >> size_class & 1 && (stock->kept > 0 || stock->left > 0))
        return true;
    for (unsigned i = 0; i < op->pool->nodes; i++)
        chunks += pool_head(op->pool, i)->chunks;
    if (size_class_chunks(size_class) > chunks / SPARE_SHARE)
        return true;
    c->stock.spares |= 1ull << size_class;
    if (stock_count(c, size_class) > 0)
        return true;
    int rc = pool_alloc_block(op, node, size_class, &at);
    if (rc == FAR_OK)
        pool_free_unpublished(c, at, size_class);
    return rc != FAR_POOL_FULL; /* if the fabric fails, the operation finds out by itself */
}

void pool_restore_spares(struct op *op)
{
    const struct client_stock *s = &op->client->stock;
    unsigned wanted = s->wanted;
    for (unsigned i = CLASS_COUNT; i > RUN_CLASS; i--)
        if (s->spares >> (i - 1) & 1)
            (void)pool_keep_spare(op, 0, i - 1);
    pool_want(op->client, wanted);
}

/* ---- giving to the shared lists -------------------------------------------------------------- */

/* Finds a page for a bundle, of the class *of. FAR_POOL_FULL: there is nothing to give. */
static int find_page(struct op *op, unsigned node, unsigned size_class, gaddr *page, unsigned *of)
{
    struct client *c = op->client;
    unsigned wanted = c->stock.wanted;
    *of = BUNDLE_CLASS;
    if (size_class < BUNDLE_CLASS && c->stock.of[node][size_class].kept > 0) {
        int rc = stock_take_kept(c, node, BUNDLE_CLASS, page)
                     ? FAR_OK
                     : pool_alloc(op, node, BUNDLE_CLASS, page);
        c->stock.wanted = wanted; /* no operation waits for a page */
        if (rc != FAR_POOL_FULL)
            return rc;
    }
    *of = size_class; /* FREELIST-S3 */
    return stock_take_kept(c, node, size_class, page) ? FAR_OK : FAR_POOL_FULL;
}

int client_give(struct op *op, unsigned node, unsigned size_class)
{
    gaddr page = 0;
    unsigned of = 0;
    ASSERT(op->batch.count == 0 && node < op->pool->nodes && size_class < CLASS_COUNT);
    int rc = find_page(op, node, size_class, &page, &of);
    if (rc != FAR_OK)
        return rc == FAR_POOL_FULL ? FAR_OK : rc;
    return freelist_give(op, node, size_class, page, of);
}

static int give_class(struct op *op, unsigned node, unsigned size_class)
{
    struct client *c = op->client;
    int rc = FAR_OK;
    stock_keep_rest(c, node, size_class);
    while (c->stock.of[node][size_class].kept > 0 && rc == FAR_OK && c->sweep.met == 0)
        rc = client_give(op, node, size_class);
    return rc;
}

int client_give_all(struct op *op, unsigned node)
{
    int rc = FAR_OK;
    for (unsigned i = 0; i < CLASS_COUNT && rc == FAR_OK; i++)
        if (i != BUNDLE_CLASS)
            rc = give_class(op, node, i);
    return rc == FAR_OK ? give_class(op, node, BUNDLE_CLASS) : rc; /* last: the others need pages */
}

/* ---- the chunk table ------------------------------------------------------------------------- */

int pool_chunk_table(struct op *op, unsigned node, uint64_t count, uint64_t **out)
{
    ASSERT(op->batch.count == 0 && node < op->pool->nodes);
    uint64_t *table = calloc(count + 1, 8);
    int rc = table ? FAR_OK : err_fail(FAR_NO_MEMORY, "no memory for a chunk table");

    *out = table;
    for (uint64_t at = 0; at < count && rc == FAR_OK; at += PIECE) {
        uint32_t bytes = (uint32_t)((count - at < PIECE ? count - at : PIECE) * 8);
        uint64_t *image = op_buffer(op, BUF_POOL, bytes);
        if (!image)
            return FAR_NO_MEMORY;
        batch_read(&op->batch, gaddr_make(node, 0), pool_head(op->pool, node)->table_off + at * 8,
                   image, bytes);
        rc = batch_flush(&op->batch);
        memcpy(table + at, image, bytes);
    }
    return rc;
}
