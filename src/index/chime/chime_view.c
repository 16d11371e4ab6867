/* What a session knows: the highest node, and internal nodes in a cache. */
#include "index/chime/chime.h"

#include <stdlib.h>

#define DESCENTS    512u  /* attempts to get down, while nodes die: more than looks before a rest */
#define MOVES_RIGHT 4096u /* on the way: more than there can be, unless the tree is damaged */

/* ---- attaching ------------------------------------------------------------------------------- */

static int judge_root(struct chime_view *view, const struct chime_root *root)
{
    if (root->checksum != chime_root_sum(root) || chime_seal(root->top, view->seed) != root->top)
        return index_damaged(view->base.table, "the root");
    for (unsigned i = 0; i < CHIME_TUNINGS; i++)
        view->tuning[i] = root->tuning[i];
    view->shape = chime_shape((unsigned)view->tuning[CHIME_TUNING_SPAN],
                              (unsigned)view->tuning[CHIME_TUNING_HOOD]);
    view->top = root->top;
    return FAR_OK;
}

/* Reads the root's word again. Whatever it was before still is a node of the tree. */
static int read_top(struct op *op, struct chime_view *view)
{
    unsigned n = op_read(op, view->root, offsetof(struct chime_root, top));
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    uint64_t top = op_result(op, n);
    if (chime_seal(top, view->seed) != top)
        return index_damaged(view->base.table, "the root");
    if (chime_top_level(top) >=
        chime_top_level(view->top)) /* else a sibling on the ring knows better */
        view->top = top;
    return FAR_OK;
}

int chime_attach(struct op *op, struct index_view *base)
{
    struct chime_view *view = chime_view(base);
    const struct index_table *table = base->table;
    struct chime_root root;
    uint64_t version = 0;
    view->root = table->desc.root;
    view->seed = table->desc.hash_seed;
    int rc = index_read_confirmed(op, &view->base, &root, sizeof root, &version);
    if (rc == FAR_OK)
        rc = judge_root(view, &root);
    if (rc == FAR_OK)
        rc = index_cache_new(view->tuning[CHIME_TUNING_CACHE] * 1024,
                             chime_inner_bytes(view->shape.span * 2 / 3), &view->base.cached,
                             &view->cache);
    if (rc != FAR_OK)
        return rc;
    view->hints = index_hints_open(op, table, view->tuning[CHIME_TUNING_HOT] * 1024);
    return chime_refresh(op, &view->base);
}

void chime_detach(struct index_view *base)
{
    struct chime_view *view = chime_view(base);
    index_cache_free(view->cache);
    free(view->made);
}

int chime_refresh(struct op *op, struct index_view *base)
{
    return index_cache_refresh(op, base, chime_view(base)->cache);
}

uint64_t chime_cached_bytes(const struct chime_view *view)
{
    struct index_cache_stats stats;
    index_cache_stats(view->cache, &stats);
    return sizeof *view + stats.bytes;
}

/* ---- internal nodes -------------------------------------------------------------------------- */

int chime_inner_at(struct op *op, struct chime_view *view, gaddr at, unsigned level,
                   struct chime_path *path, struct chime_wait *wait,
                   const struct chime_inner **inner)
{
    ASSERT(level > 0 && op->batch.count == 0);
    struct index_cache_hit hit;
    enum index_cache_state state = index_cache_find(view->cache, op, at, &path->stamp, &hit);
    const struct chime_inner *n = state == INDEX_CACHE_MISS ? NULL : hit.data;
    *inner = NULL;
    if (index_cache_retired(view->cache, at))
        return FAR_OK;
    if (n && n->level == level && (state == INDEX_CACHE_FRESH || !path->fresh)) {
        path->doubted |= state != INDEX_CACHE_FRESH;
        *inner = n;
        return FAR_OK;
    }
    if (path->doubted)
        return FAR_OK; /* the address may not be valid any more */
    enum chime_verdict verdict = CHIME_AGAIN;
    uint64_t *node = op_buffer(op, BUF_INDEX, view->shape.bytes);
    if (!node)
        return FAR_NO_MEMORY;
    int rc = chime_read_node(op, view, at, level, false, node, wait, &verdict);
    if (rc != FAR_OK || verdict != CHIME_GOOD)
        return rc;
    rc = chime_encode(op, view, node);
    if (rc != FAR_OK)
        return rc;
    (void)index_cache_put(view->cache, at, path->stamp, view->made, view->made->bytes);
    *inner = view->made;
    return FAR_OK;
}

void chime_remember(struct op *op, struct chime_view *view, gaddr at,
                    struct index_cache_stamp stamp, uint64_t *node)
{
    ASSERT(at != 0);
    bool plain = chime_head(node)->high.lng == 0;
    for (unsigned p = 0; p < view->shape.span && plain; p++)
        plain = chime_kind_at(node, p) != CHIME_BLOCK;
    if (plain && chime_encode(op, view, node) == FAR_OK)
        (void)index_cache_put(view->cache, at, stamp, view->made, view->made->bytes);
    else
        index_cache_drop(view->cache, at);
}

int chime_forget(struct op *op, struct chime_view *view, gaddr at)
{
    if (at == 0)
        return read_top(op, view);
    index_cache_drop(view->cache, at);
    return FAR_OK;
}

int chime_settle(struct op *op, struct chime_view *view, gaddr parent, struct chime_wait *wait)
{
    enum chime_verdict verdict = CHIME_GOOD;
    if (parent == 0)
        return chime_forget(op, view, 0);
    index_cache_drop(view->cache, parent);
    unsigned n = op_read_head(op, parent, offsetof(struct chime_head, lock));
    int rc = batch_flush(&op->batch);
    return rc == FAR_OK ? chime_wait(op, view, parent, op_result(op, n), wait, &verdict) : rc;
}

/* ---- descending ------------------------------------------------------------------------------ */

/* The name of child i, as far as the node knows. *next: the first child of this node is the
 * sibling; 0: it is known. */
static struct chime_name name_of(const struct chime_inner *n, unsigned i, gaddr *next)
{
    struct chime_name name = {.at = chime_child_at(n, i), .low = chime_child_edge(n, i)};
    *next = i + 1 < n->count ? 0 : n->next;
    if (i + 1 < n->count) {
        name.next = chime_child_at(n, i + 1);
        name.high = chime_child_edge(n, i + 1);
    }
    return name;
}

/* The internal node at this address, which begins at `low`. What is cached may be of another node
 * that had the address before, and does not have the key: that is forgotten, and *inner is NULL. */
static int inner_from(struct op *op, struct chime_view *view, gaddr at, unsigned level,
                      struct chime_edge low, struct chime_path *path, struct chime_wait *wait,
                      const struct chime_inner **inner)
{
    int rc = chime_inner_at(op, view, at, level, path, wait, inner);
    if (rc != FAR_OK || *inner == NULL)
        return rc;
    struct chime_edge first = chime_child_edge(*inner, 0);
    if (chime_edge_same(&first, &low))
        return FAR_OK;
    *inner = NULL;
    index_cache_drop(view->cache, at);
    return path->doubted ? FAR_OK : chime_damaged(view, at);
}

/* Completes the name of the last child of a node by the first child of the next node, which begins
 * where the node ends, at `high`. It is only compared, so it does not matter how old it is. */
static int name_sibling(struct op *op, struct chime_view *view, gaddr next, struct chime_edge high,
                        const struct chime_path *path, struct chime_wait *wait,
                        struct chime_name *name, bool *again)
{
    const struct chime_inner *n = NULL;
    struct chime_path own = *path;
    own.fresh = false;
    int rc = inner_from(op, view, next, 1, high, &own, wait, &n);
    if (n) {
        name->next = chime_child_at(n, 0);
        name->high = chime_child_edge(n, 0);
    }
    *again = n == NULL;
    return rc;
}

/* Notes where child i of the node ends. */
static void note_end(const struct chime_inner *n, unsigned i, struct chime_end *end)
{
    bool within = i + 1 < n->count;
    end->known = true;
    end->last = !within && n->next == 0;
    if (end->last)
        return;
    end->bound = chime_child_bound(n, i + 1, end->bytes);
}

/* One attempt. *again: something on the way is gone, or is not known well enough. `end`: see
 * chime_descend_past(); NULL if it is not wanted. */
static int descend(struct op *op, struct chime_view *view, const struct chime_bound *key,
                   unsigned level, bool fresh, struct chime_wait *wait, struct chime_spot *spot,
                   struct chime_end *end, bool *again)
{
    struct chime_path path = {.stamp = index_cache_stamp(view->cache, op), .fresh = fresh};
    unsigned at_level = chime_top_level(view->top);
    *spot = (struct chime_spot){.name = {.at = chime_top_at(view->top)}, .none = at_level < level};
    gaddr from = 0;              /* what led here, */
    struct chime_edge low = {0}; /* and where it says that the node begins */
    for (unsigned moves = 0; at_level > level; moves++) {
        const struct chime_inner *n = NULL;
        int rc = inner_from(op, view, spot->name.at, at_level, low, &path, wait, &n);
        *again = n == NULL || moves == MOVES_RIGHT;
        if (rc == FAR_OK && n == NULL && !path.doubted && !wait->rests)
            rc = chime_settle(op, view, from, wait);
        if (rc != FAR_OK || *again)
            return rc;
        from = spot->name.at;
        if (n->next != 0 && chime_reaches_high(n, key)) {
            spot->name = (struct chime_name){.at = n->next};
            low = n->high;
            if (spot->parent == 0 && moves == 0) { /* the tree may be higher by now */
                rc = read_top(op, view);
                *again = chime_top_level(view->top) > at_level;
            }
            if (rc != FAR_OK || *again)
                return rc;
            continue;
        }
        gaddr next = 0;
        struct chime_edge last = n->high;
        spot->parent = spot->name.at;
        if (end)
            note_end(n, chime_route(n, key), end);
        spot->name = name_of(n, chime_route(n, key), &next);
        spot->stem = chime_stem_at(n, chime_route(n, key));
        low = spot->name.low;
        at_level--;
        if (at_level == 0 && next != 0 && !end)
            rc = name_sibling(op, view, next, last, &path, wait, &spot->name, again);
        if (rc == FAR_OK && *again && !path.doubted && !wait->rests)
            rc = chime_settle(op, view, from, wait);
        if (rc != FAR_OK || *again)
            return rc;
    }
    spot->fresh = !path.doubted;
    *again = index_cache_retired(view->cache, spot->name.at);
    return FAR_OK;
}

static int descend_some(struct op *op, struct chime_view *view, const struct chime_bound *key,
                        unsigned level, bool fresh, struct chime_wait *wait,
                        struct chime_spot *spot, struct chime_end *end)
{
    for (unsigned attempts = 0; attempts < DESCENTS; attempts++) {
        bool again = false;
        if (end)
            end->known = false;
        int rc = descend(op, view, key, level, fresh || attempts > 0, wait, spot, end, &again);
        spot->lost = wait->rests;
        if (rc != FAR_OK || !again || wait->rests)
            return rc;
    }
    return FAR_CONTENTION;
}

int chime_descend(struct op *op, struct chime_view *view, const struct chime_bound *key,
                  unsigned level, bool fresh, struct chime_wait *wait, struct chime_spot *spot)
{
    ASSERT(level < CHIME_LEVELS);
    return descend_some(op, view, key, level, fresh, wait, spot, NULL);
}

int chime_descend_past(struct op *op, struct chime_view *view, const struct chime_bound *key,
                       unsigned level, struct chime_wait *wait, struct chime_spot *spot,
                       struct chime_end *end)
{
    return descend_some(op, view, key, level, true, wait, spot, end);
}
