/*
 * The stock: memory that a client holds. Free objects by node and class, and retired objects that
 * wait for their epoch (limbo). Nothing here touches remote memory.
 *
 *   ALLOC-A2  An object is handed out once, unless it came back by pool_free_unpublished(): then
 *       nothing points to it. From then on it has one owner: a client, or a shared list.
 */
#include "pool/pool_internal.h"

#include <stdlib.h>

/* What a client keeps of a class: this many bytes, and at least this many objects, if the knob
 * allows. The rest goes to the shared lists. */
#define STOCK_MIN   4
#define STOCK_BYTES (256u << 10)

#define REUSE_AFTER 3 /* epochs: EPOCH-E3 */

/* ---- free objects ---------------------------------------------------------------------------- */

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

unsigned stock_max(const struct client *c, unsigned size_class)
{
    unsigned n = STOCK_BYTES / size_class_bytes(size_class), most = c->pool->knobs.stock_max;
    n = n < STOCK_MIN ? STOCK_MIN : n;
    return n > most ? most : n;
}

void pool_free_unpublished(struct client *c, gaddr at, unsigned size_class)
{
    unsigned node = gaddr_node(at);
    struct stock *stock = &c->stock.of[node][size_class];
    if (client_swept(c, at) || (stock->kept == stock->room && !stock_grow(stock))) {
        pool_abandon(c, size_class);
        return;
    }
    if (__builtin_expect(c->pool->knobs.free_watch != NULL, 0))
        c->pool->knobs.free_watch->freed(c->pool->knobs.free_watch, c, at, size_class);
    ASSERT(stock->kept < stock->room);
    stock->keep[stock->kept++] = at;
    c->stock.held_bytes += size_class_bytes(size_class);
    if (stock->kept > stock_max(c, size_class)) {
        c->stock.overfull[node] |= 1ull << size_class;
        c->stock.overfull_nodes |= 1ull << node;
    }
}

/* Reports to the test hook that an object leaves the stock to be used. */
static void taken(struct client *c, gaddr at, unsigned size_class)
{
    const struct free_watch *watch = c->pool->knobs.free_watch;
    if (__builtin_expect(watch != NULL, 0))
        watch->taken(watch, c, at, size_class);
}

bool stock_take_kept(struct client *c, unsigned node, unsigned size_class, gaddr *at)
{
    struct stock *stock = &c->stock.of[node][size_class];
    if (stock->kept == 0)
        return false;
    *at = stock->keep[--stock->kept];
    taken(c, *at, size_class);
    c->stock.held_bytes -= size_class_bytes(size_class);
    return true;
}

bool stock_take(struct client *c, unsigned node, unsigned size_class, gaddr *at)
{
    ASSERT(node < c->pool->nodes);
    struct stock *stock = &c->stock.of[node][size_class];
    uint32_t bytes = size_class_bytes(size_class);
    if (stock->left > 0 && stock->kept == 0) {
        *at = stock->next;
        stock->next += bytes / 64;
        stock->left--;
        c->stock.held_bytes -= bytes;
    } else if (!stock_take_kept(c, node, size_class, at)) {
        return false;
    }
    c->stock.taken_ever += bytes;
    return true;
}

unsigned stock_take_many(struct client *c, unsigned node, unsigned size_class, uint64_t most,
                         uint64_t *objects)
{
    struct stock *stock = &c->stock.of[node][size_class];
    unsigned count = 0;
    while (count < most && stock->kept > 0)
        objects[count++] = stock->keep[--stock->kept];
    c->stock.held_bytes -= (uint64_t)count * size_class_bytes(size_class);
    return count;
}

void stock_keep_rest(struct client *c, unsigned node, unsigned size_class)
{
    struct stock *stock = &c->stock.of[node][size_class];
    uint32_t bytes = size_class_bytes(size_class);
    for (; stock->left > 0; stock->left--, stock->next += bytes / 64) {
        c->stock.held_bytes -= bytes;
        pool_free_unpublished(c, stock->next, size_class);
    }
}

void stock_refill(struct client *c, unsigned node, unsigned size_class, gaddr next, uint32_t count)
{
    ASSERT(node < c->pool->nodes && gaddr_node(next) == node);
    struct stock *stock = &c->stock.of[node][size_class];
    stock_keep_rest(c, node, size_class);
    stock->next = next;
    stock->left = count;
    c->stock.held_bytes += (uint64_t)count * size_class_bytes(size_class);
}

uint64_t stock_take_chunks(struct client *c, unsigned node, unsigned size_class, uint64_t chunks,
                           gaddr *at)
{
    struct stock *stock = &c->stock.of[node][size_class];
    uint32_t bytes = size_class_bytes(size_class), each = (uint32_t)(CHUNK_BYTES / bytes);
    uint64_t whole = stock->left / each;
    if (whole < chunks)
        return 0;
    stock->left -= (uint32_t)whole * each;
    *at = stock->next + (uint64_t)stock->left * bytes / 64;
    c->stock.held_bytes -= whole * CHUNK_BYTES;
    return whole;
}

unsigned pool_wanted(const struct client *c)
{
    return c->stock.wanted;
}

void pool_want(struct client *c, unsigned size_class)
{
    ASSERT(size_class < CLASS_COUNT);
    c->stock.wanted = size_class;
}

uint64_t stock_count(const struct client *c, unsigned size_class)
{
    uint64_t count = 0;
    for (unsigned node = 0; node < c->pool->nodes; node++)
        count += c->stock.of[node][size_class].kept + c->stock.of[node][size_class].left;
    return count;
}

bool stock_serves(const struct client *c, unsigned size_class)
{
    if (stock_count(c, size_class) > 1)
        return true;
    for (unsigned i = RUN_CLASS; i < CLASS_COUNT; i++)
        if (i != size_class && size_class_chunks(i) >= size_class_chunks(size_class) &&
            stock_count(c, i) > 0)
            return true;
    return false;
}

void stock_note_recut(struct client *c)
{
    c->stock.recut_at = c->stock.retired_ever;
}

/* The stocks that are past their limit take turns: the node's next class, else the next node. */
bool stock_begin_giving(struct client *c, unsigned *node, unsigned *size_class)
{
    struct client_stock *s = &c->stock;
    if (s->overfull_nodes == 0 || s->giving)
        return false;
    uint64_t classes = s->overfull[s->gives_node] & ~1ull << s->gives_class;
    if (classes == 0) {
        uint64_t above = s->overfull_nodes & ~1ull << s->gives_node;
        s->gives_node = (unsigned)__builtin_ctzll(above ? above : s->overfull_nodes);
        classes = s->overfull[s->gives_node];
    }
    s->gives_class = (unsigned)__builtin_ctzll(classes);
    *node = s->gives_node;
    *size_class = s->gives_class;
    s->giving = true;
    return true;
}

void stock_end_giving(struct client *c, unsigned node, unsigned size_class)
{
    ASSERT(c->stock.giving);
    c->stock.giving = false;
    if (c->stock.of[node][size_class].kept > stock_max(c, size_class) / 2)
        return;
    c->stock.overfull[node] &= ~(1ull << size_class);
    if (c->stock.overfull[node] == 0)
        c->stock.overfull_nodes &= ~(1ull << node);
}

/* ---- retired objects ------------------------------------------------------------------------- */

static bool limbo_grow(struct limbo *l)
{
    size_t room = l->room ? 2 * l->room : 1024;
    struct limbo_entry *ring = malloc(room * sizeof *ring);
    if (!ring)
        return false;
    for (size_t i = 0; i < l->count; i++)
        ring[i] = l->ring[(l->head + i) & (l->room - 1)];
    free(l->ring);
    *l = (struct limbo){.ring = ring, .count = l->count, .room = room};
    return true;
}

void pool_retire(struct client *c, gaddr at, unsigned size_class)
{
    struct limbo *l = &c->stock.limbo;
    if (client_swept(c, at) || (l->count == l->room && !limbo_grow(l))) {
        pool_abandon(c, size_class);
        return;
    }
    ASSERT(l->count < l->room);
    l->ring[(l->head + l->count++) & (l->room - 1)] =
        (struct limbo_entry){.object = at | (uint64_t)size_class << GADDR_BITS,
                             .reuse_at = c->epoch.validated + REUSE_AFTER};
    c->stock.retired_bytes += size_class_bytes(size_class);
    c->stock.retired_ever += size_class_bytes(size_class);
}

bool client_reclaim(struct client *c)
{
    struct limbo *l = &c->stock.limbo;
    bool any = false;
    /* A few at a time, because an operation waits for this. */
    for (unsigned i = 0; i < 64 && l->count > 0; i++) {
        struct limbo_entry *e = &l->ring[l->head];
        if (e->reuse_at > c->epoch.seen)
            break;
        unsigned size_class = (unsigned)(e->object >> GADDR_BITS);
        l->head = (l->head + 1) & (l->room - 1);
        l->count--;
        c->stock.retired_bytes -= size_class_bytes(size_class);
        pool_free_unpublished(c, e->object & ((1ull << GADDR_BITS) - 1), size_class);
        any = true;
    }
    return any;
}

/* ---- lost objects ---------------------------------------------------------------------------- */

void pool_abandon_bytes(struct client *c, uint64_t bytes)
{
    c->stock.lost_bytes += bytes;
}

void client_loss_reported(struct client *c, uint64_t bytes)
{
    c->stock.lost_bytes -= bytes;
    c->stock.loss_reported = true;
}

void client_loss_found(struct client *c, uint64_t bytes)
{
    c->stock.lost_bytes -= bytes < c->stock.lost_bytes ? bytes : c->stock.lost_bytes;
    c->stock.loss_reported = false;
}

void pool_abandon(struct client *c, unsigned size_class)
{
    pool_abandon_bytes(c, size_class_bytes(size_class));
}

uint64_t pool_taken_bytes(const struct client *c)
{
    return c->stock.taken_ever;
}

void pool_abandon_since(struct client *c, uint64_t before)
{
    pool_abandon_bytes(c, c->stock.taken_ever - before);
}

void client_drop_all(struct client *c)
{
    for (unsigned node = 0; node < c->pool->nodes; node++)
        for (unsigned i = 0; i < CLASS_COUNT; i++)
            c->stock.of[node][i].left = c->stock.of[node][i].kept = 0;
    c->stock.limbo.head = c->stock.limbo.count = 0;
    c->stock.retired_bytes = c->stock.held_bytes = 0;
}

void client_drop_swept(struct client *c)
{
    struct limbo *l = &c->stock.limbo;
    for (unsigned node = 0; node < c->pool->nodes; node++) {
        for (unsigned i = 0; i < CLASS_COUNT; i++) {
            struct stock *stock = &c->stock.of[node][i];
            unsigned before = stock->kept + stock->left, kept = 0;
            for (unsigned n = 0; n < stock->kept; n++)
                if (!client_swept(c, stock->keep[n]))
                    stock->keep[kept++] = stock->keep[n];
            stock->kept = kept;
            if (stock->left > 0 && client_swept(c, stock->next))
                stock->left = 0;
            c->stock.held_bytes -= (uint64_t)(before - kept - stock->left) * size_class_bytes(i);
        }
    }
    size_t count = l->count;
    l->count = 0;
    for (size_t i = 0; i < count; i++) {
        struct limbo_entry e = l->ring[(l->head + i) & (l->room - 1)];
        if (client_swept(c, e.object & ((1ull << GADDR_BITS) - 1)))
            c->stock.retired_bytes -= size_class_bytes((unsigned)(e.object >> GADDR_BITS));
        else
            l->ring[(l->head + l->count++) & (l->room - 1)] = e;
    }
}
