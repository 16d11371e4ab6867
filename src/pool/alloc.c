/*
 * Allocation without a server.
 *
 * A node's memory is cut into chunks of 64 KiB. A fetch-and-add on the node's counter hands the
 * next chunk, or a run of them, to a client, which writes into the chunk table what it is for.
 * A client cuts a chunk into objects of one size class by itself, so that most allocations touch
 * nothing remote.
 *
 *   A1  A chunk belongs to the client whose FAA covered it, and to nobody else ever after.
 *   A2  An object is handed out once, unless it came back by pool_unalloc(): then nothing ever
 *       pointed to it.
 *   A3  Every chunk below the counter has a chunk table entry, but for those whose owner died
 *       between the FAA and the WRITE.
 */
#include "pool/pool.h"

uint32_t class_bytes(unsigned size_class)
{
    ASSERT(size_class < CLASS_COUNT);
    if (size_class < 8)
        return 64 * (size_class + 1);
    unsigned step = size_class - 8;
    uint32_t base = 512u << (step / 4);
    return base + base / 4 * (step % 4 + 1);
}

unsigned class_for(size_t bytes)
{
    if (bytes <= 512)
        return bytes == 0 ? 0 : (unsigned)((bytes - 1) / 64);
    if (bytes > 512u << 12)
        return CLASS_COUNT;
    uint32_t last = (uint32_t)bytes - 1;
    unsigned top = 31u - (unsigned)__builtin_clz(last);
    return 8 + (top - 9) * 4 + ((last >> (top - 2)) & 3);
}

/* Takes a run of chunks from a node's counter. FAR_POOL_FULL when the node has not that many. */
static int take_chunks(struct op *op, unsigned node, uint64_t run, uint64_t *first)
{
    const struct node_head *head = &op->pool->head[node];
    struct batch *b = &op->batch;
    uint64_t *old = &op->pool_word[0];
    gaddr counter = gaddr_make(node, NODE_NEXT_CHUNK_OFF);

    batch_faa(b, counter, 0, run, old);
    int rc = batch_flush(b);
    if (rc != FAR_OK)
        return rc;
    if (*old <= head->chunks && run <= head->chunks - *old) {
        *first = *old;
        return FAR_OK;
    }
    /* Put back what nobody has counted past since, so that a smaller request may still fit. */
    batch_cas(b, counter, 0, *old + run, *old, &op->pool_word[1]);
    rc = batch_flush(b);
    return rc != FAR_OK ? rc : FAR_POOL_FULL;
}

/* Makes a fresh chunk the current one. What is left of the one that another operation made current
 * meanwhile is kept for later; with no room for that, it is lost. */
static void begin_slab(struct client *c, unsigned node, unsigned size_class, struct slab fresh)
{
    struct slab *slab = &c->slabs[node][size_class];
    if (slab->left > 0 && c->spares < CLIENT_SPARES)
        c->spare[c->spares++] = (struct spare){.slab = *slab, .size_class = size_class};
    *slab = fresh;
}

/* Makes a spare chunk the current one, if there is one. */
static bool take_spare(struct client *c, unsigned node, unsigned size_class)
{
    for (unsigned i = 0; i < c->spares; i++) {
        const struct spare *spare = &c->spare[i];
        if (spare->size_class == size_class && gaddr_node(spare->slab.next) == node) {
            c->slabs[node][size_class] = spare->slab;
            c->spare[i] = c->spare[--c->spares];
            return true;
        }
    }
    return false;
}

static int refill(struct op *op, unsigned node, unsigned size_class)
{
    struct client *c = op->client;
    const struct node_head *head = &op->pool->head[node];
    uint32_t bytes = class_bytes(size_class);
    bool large = bytes > CLASS_SMALL_MAX;
    uint64_t run = large ? (bytes + CHUNK_BYTES - 1) >> CHUNK_SHIFT : 1;
    uint64_t first = 0;

    int rc = take_chunks(op, node, run, &first);
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
    if (rc != FAR_OK)
        return rc;
    begin_slab(c, node, size_class,
               (struct slab){.next = gaddr_make(node, (uint64_t)head->chunks_off64 * 64 +
                                                          (first << CHUNK_SHIFT)),
                             .left = large ? 1 : (uint32_t)(CHUNK_BYTES / bytes)});
    return FAR_OK;
}

static bool take_local(struct client *c, unsigned node, unsigned size_class, gaddr *at)
{
    struct class_stock *stock = &c->stock[node][size_class];
    if (stock->kept > 0) {
        *at = stock->keep[--stock->kept];
        return true;
    }
    struct slab *slab = &c->slabs[node][size_class];
    if (slab->left == 0 && !take_spare(c, node, size_class))
        return false;
    *at = slab->next;
    slab->next += class_bytes(size_class) / 64;
    slab->left--;
    return true;
}

int pool_alloc(struct op *op, unsigned node, unsigned size_class, gaddr *at)
{
    ASSERT(op->batch.count == 0);
    ASSERT(size_class < CLASS_COUNT && node < op->pool->nodes);
    for (unsigned i = 0; i < op->pool->nodes; i++) {
        unsigned n = (node + i) % op->pool->nodes;
        if (take_local(op->client, n, size_class, at))
            return FAR_OK;
        int rc = refill(op, n, size_class);
        if (rc != FAR_OK && rc != FAR_POOL_FULL)
            return rc;
        /* Even on a full node: another operation of this client may have got the last chunk. */
        if (take_local(op->client, n, size_class, at))
            return FAR_OK;
    }
    return fail(FAR_POOL_FULL, "no node has %u bytes left", class_bytes(size_class));
}

void pool_unalloc(struct client *c, gaddr at, unsigned size_class)
{
    struct class_stock *stock = &c->stock[gaddr_node(at)][size_class];
    if (stock->kept < CLIENT_KEEP)
        stock->keep[stock->kept++] = at;
    else
        pool_retire(c, at, size_class);
}

void pool_retire(struct client *c, gaddr at, unsigned size_class)
{
    (void)at;
    c->retired_bytes += class_bytes(size_class);
}
