/*
 * Allocation without a server.
 *
 * A node's memory is cut into chunks of 64 KiB. A fetch-and-add on the node's counter hands the
 * next chunk, or a run of them, to a client, which writes into the chunk table what it is for.
 * A client cuts a chunk into objects of one size class by itself, so that most allocations touch
 * nothing remote.
 *
 *   A1  A chunk belongs to the client whose FAA covered it, until a sweep finds all of it free and
 *       hands it out anew, as an object of its own class (P5).
 *   A2  An object is handed out once, unless it came back by pool_unalloc(): then nothing ever
 *       pointed to it.
 *   A3  Every chunk below the counter has a chunk table entry, but for those whose owner died
 *       between the FAA and the WRITE.
 *   A4  The counter never goes back below a chunk that exists: a sweep takes what is below it for
 *       handed out.
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

/*
 * Takes several chunks in a row. Not by adding and putting back what did not fit: the counter must
 * never go back below a chunk that exists (A4), and a smaller request may still fit.
 */
static int take_run(struct op *op, unsigned node, uint64_t run, uint64_t *first)
{
    const struct node_head *head = &op->pool->head[node];
    uint64_t *old = &op->pool_word[0];
    gaddr counter = gaddr_make(node, NODE_NEXT_CHUNK_OFF);

    batch_read(&op->batch, counter, 0, old, 8);
    int rc = batch_flush(&op->batch);
    for (unsigned i = 0; i < RUN_TRIES && rc == FAR_OK; i++) {
        uint64_t seen = *old;
        if (seen > head->chunks || run > head->chunks - seen)
            return FAR_POOL_FULL;
        batch_cas(&op->batch, counter, 0, seen, seen + run, old);
        rc = batch_flush(&op->batch);
        if (rc == FAR_OK && *old == seen) {
            *first = seen;
            return FAR_OK;
        }
    }
    return rc == FAR_OK ? FAR_CONTENTION : rc;
}

/* Puts the never-used objects of the current chunk with the others. */
static void keep_rest(struct client *c, struct stock *stock, unsigned size_class)
{
    uint32_t bytes = class_bytes(size_class);
    for (; stock->left > 0; stock->left--, stock->next += bytes / 64) {
        c->held_bytes -= bytes;
        pool_unalloc(c, stock->next, size_class);
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
        stock->next += class_bytes(size_class) / 64;
        stock->left--;
    } else {
        return false;
    }
    c->held_bytes -= class_bytes(size_class);
    return true;
}

/* A chunk to be cut: one that a sweep found wholly free (P5) and that we have in hand, else a new
 * one, else one that others have. */
static int take_slab(struct op *op, unsigned node, uint64_t *first)
{
    struct client *c = op->client;
    gaddr at = 0;
    ASSERT(class_bytes(CHUNK_CLASS) == CHUNK_BYTES);
    if (!take_local(c, node, CHUNK_CLASS, &at)) {
        int rc = take_chunk(op, node, first);
        if (rc != FAR_POOL_FULL || c->sweep)
            return rc;
        rc = shared_take(op, node, CHUNK_CLASS);
        if (rc != FAR_OK)
            return rc;
        if (!take_local(c, node, CHUNK_CLASS, &at)) /* another operation of ours was faster */
            return FAR_POOL_FULL;
    }
    *first = (gaddr_offset(at) - (uint64_t)op->pool->head[node].chunks_off64 * 64) >> CHUNK_SHIFT;
    return FAR_OK;
}

static int refill(struct op *op, unsigned node, unsigned size_class)
{
    struct client *c = op->client;
    const struct node_head *head = &op->pool->head[node];
    uint32_t bytes = class_bytes(size_class);
    bool large = bytes > CLASS_SMALL_MAX;
    uint64_t run = class_chunks(size_class), first = 0;

    int rc = run > 1                     ? take_run(op, node, run, &first)
             : size_class != CHUNK_CLASS ? take_slab(op, node, &first)
                                         : take_chunk(op, node, &first);
    if (rc != FAR_OK && rc != FAR_POOL_FULL && rc != FAR_CONTENTION)
        c->lost_bytes += run << CHUNK_SHIFT; /* nobody knows whether they are ours */
    if (rc != FAR_OK)
        return rc;
    ASSERT(run <= OP_POOL_WORDS);
    for (uint64_t i = 0; i < run; i++)
        op->pool_word[i] = chunk_entry(!large   ? CHUNK_SLAB
                                       : i == 0 ? CHUNK_LARGE
                                                : CHUNK_LARGE_TAIL,
                                       size_class, c->slot, run);
    batch_write(&op->batch, gaddr_make(node, 0), head->table_off + first * 8, op->pool_word,
                (uint32_t)run * 8);
    rc = batch_flush(&op->batch);
    if (rc != FAR_OK) {
        c->lost_bytes += run << CHUNK_SHIFT;
        return rc;
    }
    struct stock *stock = &c->stock[node][size_class];
    gaddr next = gaddr_make(node, (uint64_t)head->chunks_off64 * 64 + (first << CHUNK_SHIFT));
    if (client_swept(c, next)) { /* announced, and met by another operation, since we took it */
        c->lost_bytes += run << CHUNK_SHIFT;
        return FAR_OK;
    }
    /* Another operation of this client may have come first: what is left of that chunk is kept. */
    keep_rest(c, stock, size_class);
    stock->next = next;
    stock->left = large ? 1 : (uint32_t)(CHUNK_BYTES / bytes);
    c->held_bytes += (uint64_t)stock->left * bytes;
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
        int rc = c->sweep ? FAR_POOL_FULL : shared_take(op, node, size_class);
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
    return rc == FAR_POOL_FULL
               ? fail(FAR_POOL_FULL, "no node has %u bytes left", class_bytes(size_class))
               : rc;
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
    if (rc != FAR_OK || now < c->bury_after)
        return rc;
    c->bury_after = now + 2 * c->lease_ns;
    return client_bury(op, &dead);
}

/* Waits for the end of somebody's sweep. *orphaned is set if that client did not live to see it. */
static int await_sweep(struct op *op, bool *orphaned)
{
    struct client *c = op->client;
    struct patience patience = {0};
    bool alive = true;
    int rc = FAR_OK;
    do {
        rc = client_hasten(op);
        if (rc == FAR_OK && c->sweep)
            rc = client_owner_alive(op, c->sweep, &alive);
    } while (rc == FAR_OK && alive && client_wait(op, &patience, 10) &&
             (c->sweep || c->sweep_unmet));
    *orphaned = rc == FAR_OK && !alive;
    return rc;
}

/* Has somebody died, or have we lost something, since the last sweep? Or is there memory that is
 * free, but cut for other sizes? It could be cut anew (P5), which is not tried all the time. */
static int sweep_is_worth_it(struct op *op, bool *worth)
{
    struct client *c = op->client;
    uint64_t now = c->ep->ops->coarse(c->ep), listed = 0, retired = 0, held = 0;
    batch_read(&op->batch, gaddr_make(0, 0), CONTROL_OFF + offsetof(struct pool_control, deaths),
               op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    *worth = rc == FAR_OK && (op->pool_word[0] != 0 || c->lost_bytes != 0);
    if (rc != FAR_OK || *worth || (now < c->recut_after && c->retired_since_recut < RECUT_BYTES))
        return rc;
    rc = client_bytes(op, &retired, &held);
    if (rc == FAR_OK && held < RECUT_BYTES)
        rc = shared_bytes(op, RECUT_BYTES, &listed);
    *worth = rc == FAR_OK && held + listed >= RECUT_BYTES;
    if (*worth) {
        c->recut_after = now + 2 * c->lease_ns;
        c->retired_since_recut = 0;
    }
    return rc;
}

int pool_relieve(struct op *op)
{
    struct client *c = op->client;
    struct sweep_result swept = {0};

    if (op->pool->knobs.no_reclaim)
        return FAR_POOL_FULL;
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
    if (rc == FAR_OK)
        c->lost_bytes -= lost < c->lost_bytes ? lost : c->lost_bytes;
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
    unsigned n = STOCK_BYTES / class_bytes(size_class), most = c->pool->knobs.stock_max;
    n = n < STOCK_MIN ? STOCK_MIN : n;
    return n > most ? most : n;
}

void pool_unalloc(struct client *c, gaddr at, unsigned size_class)
{
    unsigned node = gaddr_node(at);
    struct stock *stock = &c->stock[node][size_class];
    if (client_swept(c, at) || (stock->kept == stock->room && !stock_grow(stock))) {
        pool_lose(c, size_class);
        return;
    }
    if (__builtin_expect(c->pool->knobs.free_watch != NULL, 0))
        c->pool->knobs.free_watch->freed(c->pool->knobs.free_watch, c, at, size_class);
    stock->keep[stock->kept++] = at;
    c->held_bytes += class_bytes(size_class);
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
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        c->lost_bytes += told;
    return rc;
}

int client_tidy(struct op *op)
{
    struct client *c = op->client;
    if (c->limbo.count > 0)
        client_reclaim(c);
    if (c->lost_bytes > 0) {
        int rc = tell_of_loss(op);
        if (rc != FAR_OK)
            return rc;
    }
    if (c->suspect >= 0) { /* it holds up what waits for its epoch */
        int rc = client_try_recover(op);
        if (rc != FAR_OK)
            return rc;
    }
    if (c->overfull_class < 0 || c->tidying)
        return FAR_OK;
    unsigned node = (unsigned)c->overfull_node, size_class = (unsigned)c->overfull_class;
    c->tidying = true;
    int rc = c->sweep ? FAR_OK : shared_give(op, node, size_class);
    c->tidying = false;
    if (c->stock[node][size_class].kept <= stock_max(c, size_class) / 2 || rc == FAR_POOL_FULL)
        c->overfull_class = -1; /* without a page for the bundle, not again before there is more */
    return rc;
}

static int return_class(struct op *op, unsigned node, unsigned size_class)
{
    struct stock *stock = &op->client->stock[node][size_class];
    int rc = FAR_OK;
    keep_rest(op->client, stock, size_class);
    while (stock->kept > 0 && rc == FAR_OK && op->client->sweep == 0)
        rc = shared_give(op, node, size_class);
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
