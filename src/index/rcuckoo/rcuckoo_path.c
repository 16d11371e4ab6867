/*
 * Where a new key goes: into one of its rows, or along a path of moves.
 *
 * The search is breadth first, so paths are as short as they can be. It runs twice. Before the
 * locks are taken it goes by what the session remembers of rows that were full, and says which rows
 * to lock. Under the locks it goes by the rows that were read, and what it finds is true.
 */
#include "index/rcuckoo/rcuckoo.h"

#include <stdlib.h>

/* ---- rows that were full --------------------------------------------------------------------- */

/* 64 KiB, as in the paper: of each row only where else its entries may be. */
#define CACHE_ROWS 2730u
struct full_row {
    uint64_t of; /* the anchor's address and the row; 0: none */
    uint16_t other[RCUCKOO_SLOTS];
};
_Static_assert(CACHE_ROWS * sizeof(struct full_row) <= 65536, "64 KiB");
_Static_assert(GADDR_BITS + 14 <= 64 && RCUCKOO_ROWS_MAX <= 1 << 14, "both fit into a word");

static uint64_t row_name(const struct rcuckoo_sub *sub, unsigned row)
{
    return sub->part.anchor << 14 | row;
}

/* ---- the search ------------------------------------------------------------------------------ */

/* Subtables fill evenly. If all had paths of the same length, they would be split at the same time,
 * and puts would stall. So in a table that grows, every second one is split earlier. */
#define PATH_EARLY 2u
static unsigned path_most(const struct rcuckoo_view *view, const struct rcuckoo_sub *sub)
{
    unsigned depth = sub->part.depth, most = view->shape.path;
    bool early = view->tuning[RCUCKOO_TUNING_GROWS] != 0 && depth > 0 &&
                 (sub->part.suffix >> (depth - 1) & 1) != 0;
    return early && most > PATH_EARLY ? PATH_EARLY : most;
}

#define NODES_MAX 512u
struct node {
    uint16_t row, parent; /* the node whose entry would move here */
    uint8_t slot;         /* of that entry, in the parent's row */
    uint8_t depth;        /* moves up to here */
};
struct search {
    struct rcuckoo_view *view;
    const struct rcuckoo_sub *sub;
    const struct rcuckoo_ranges *ranges; /* NULL: by the cache */
    unsigned count;
    struct node node[NODES_MAX];
    uint64_t visited[RCUCKOO_ROWS_MAX / 64];
};

struct rcuckoo_cache {
    struct full_row row[CACHE_ROWS];
    struct search search; /* too large for a fiber's stack; nothing waits while it is in use */
};

int rcuckoo_cache_new(struct rcuckoo_cache **cache)
{
    *cache = calloc(1, sizeof **cache);
    return *cache ? FAR_OK : err_fail(FAR_NO_MEMORY, "no memory for a cache of rows");
}

void rcuckoo_cache_forget(struct rcuckoo_cache *cache)
{
    memset(cache->row, 0, sizeof cache->row);
}

uint64_t rcuckoo_cache_bytes(void)
{
    return CACHE_ROWS * sizeof(struct full_row);
}

static struct full_row *row_place(struct rcuckoo_cache *cache, uint64_t name)
{
    return &cache->row[hash_range((uint32_t)(name * 0x9e3779b97f4a7c15u >> 32), CACHE_ROWS)];
}

/* Where else the entries of a full row may be. False: the row has room, or is not known. */
static bool others_of(struct search *f, unsigned row, uint16_t other[RCUCKOO_SLOTS])
{
    uint64_t name = row_name(f->sub, row);
    struct full_row *full = row_place(f->view->cache, name);
    if (f->ranges) {
        uint64_t *image = rcuckoo_ranges_row(&f->view->shape, f->ranges, row);
        full->of = name;
        for (unsigned slot = 0; slot < RCUCKOO_SLOTS; slot++)
            full->other[slot] = (uint16_t)rcuckoo_other_row(f->view, image, row, slot);
    }
    if (full->of != name)
        return false;
    memcpy(other, full->other, sizeof full->other);
    return true;
}

static void visit(struct search *f, unsigned row, unsigned parent, unsigned slot, unsigned depth)
{
    f->visited[row / 64] |= 1ull << row % 64;
    f->node[f->count++] =
        (struct node){(uint16_t)row, (uint16_t)parent, (uint8_t)slot, (uint8_t)depth};
}

/* How full a row is, as far as it is known: RCUCKOO_SLOTS if it has no room. */
static unsigned used_of(struct search *f, unsigned row)
{
    uint64_t name = row_name(f->sub, row);
    struct full_row *full = row_place(f->view->cache, name);
    if (!f->ranges)
        return full->of == name ? RCUCKOO_SLOTS : 0;
    unsigned used =
        rcuckoo_row_used(&f->view->shape, rcuckoo_ranges_row(&f->view->shape, f->ranges, row));
    if (used < RCUCKOO_SLOTS && full->of == name)
        full->of = 0;
    return used;
}

/* Under the locks only rows count that were read, and are whole. One that is damaged is remembered
 * as full, with entries that have no other row: guesses go around it (RCUCKOO-C13). */
static bool may_visit(struct search *f, unsigned row)
{
    const struct rcuckoo_shape *s = &f->view->shape;
    const uint64_t *image = f->ranges ? rcuckoo_ranges_row(s, f->ranges, row) : NULL;
    if (!image || rcuckoo_row_whole(s, rcuckoo_sub_id(f->view, f->sub), row, image))
        return !f->ranges || image;
    struct full_row *full = row_place(f->view->cache, row_name(f->sub, row));
    full->of = row_name(f->sub, row);
    for (unsigned slot = 0; slot < RCUCKOO_SLOTS; slot++)
        full->other[slot] = RCUCKOO_ROWS_MAX;
    return false;
}

/* The path that ends with a node. */
static void trace(const struct search *f, unsigned end, struct rcuckoo_path *path)
{
    unsigned n = end;
    path->count = f->node[end].depth + 1u;
    for (unsigned i = path->count; i-- > 0; n = f->node[n].parent) {
        path->row[i] = f->node[n].row;
        if (i > 0)
            path->slot[i - 1] = f->node[n].slot;
    }
}

/* Of the nearest rows with room, the emptiest. */
static bool search(struct search *f, const struct rcuckoo_key *key, struct rcuckoo_path *path)
{
    const struct rcuckoo_shape *s = &f->view->shape;
    unsigned best = NODES_MAX, best_used = RCUCKOO_SLOTS, most = path_most(f->view, f->sub);
    visit(f, key->row[0], 0, 0, 0);
    visit(f, key->row[1], 0, 0, 0);
    for (unsigned n = 0; n < f->count; n++) {
        uint16_t other[RCUCKOO_SLOTS];
        const struct node *node = &f->node[n];
        unsigned used = used_of(f, node->row), depth = node->depth;
        if (best < NODES_MAX && depth > f->node[best].depth)
            break;
        if (used < best_used) {
            best = n;
            best_used = used;
        }
        if (best < NODES_MAX || depth + 1 >= most || !others_of(f, node->row, other))
            continue;
        for (unsigned slot = 0; slot < RCUCKOO_SLOTS && f->count < NODES_MAX; slot++) {
            unsigned row = other[slot];
            if (row < s->rows && !(f->visited[row / 64] >> row % 64 & 1) && may_visit(f, row))
                visit(f, row, n, slot, depth + 1);
        }
    }
    if (best < NODES_MAX)
        trace(f, best, path);
    return best < NODES_MAX;
}

static bool search_by(struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                      const struct rcuckoo_key *key, const struct rcuckoo_ranges *ranges,
                      struct rcuckoo_path *path)
{
    struct search *f = &view->cache->search;
    memset(f->visited, 0, (view->shape.rows + 63) / 64 * 8);
    f->view = view;
    f->sub = sub;
    f->ranges = ranges;
    f->count = 0;
    return search(f, key, path);
}

bool rcuckoo_path_find(struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                       const struct rcuckoo_key *key, const struct rcuckoo_ranges *ranges,
                       struct rcuckoo_path *path)
{
    if (!search_by(view, sub, key, ranges, path))
        return false;
    unsigned last = path->count - 1;
    uint64_t *image = rcuckoo_ranges_row(&view->shape, ranges, path->row[last]);
    path->slot[last] = rcuckoo_row_free(&view->shape, image);
    return true;
}

bool rcuckoo_path_guess(struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                        const struct rcuckoo_key *key, struct rcuckoo_path *path)
{
    return search_by(view, sub, key, NULL, path);
}

uint64_t *rcuckoo_ranges_row(const struct rcuckoo_shape *s, const struct rcuckoo_ranges *ranges,
                             unsigned row)
{
    for (unsigned i = 0; i < ranges->count; i++)
        if (row - ranges->range[i].first < ranges->range[i].count)
            return ranges->range[i].image + (size_t)(row - ranges->range[i].first) * s->row;
    return NULL;
}
