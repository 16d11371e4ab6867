/*
 * Completing drops: steps one to three of CAT-4 (pool/catalog.c says why they are enough).
 *
 * First all objects of the table are listed. They are retired only after this client has freed the
 * table's place, when nothing can fail any more. The walk is the one that sweeps mark with, so it
 * finds what a sweep would find. Several paths may lead to one object; it is retired once. The
 * objects of a damaged table are not retired, because a damaged pointer may lead to another table's
 * memory. Its place is freed, and its memory is left to the next sweep.
 */
#include "store/drop.h"

#include "store/store_internal.h"

#include <stdlib.h>

/* How long another session's operation may hold up a drop. */
#define BARRIER_LEASES 8u

/* ---- what a table reaches -------------------------------------------------------------------- */

#define SEEN_WORDS (CHUNK_BYTES / 64 / 64)

struct found {
    struct marker marker;
    const struct pool *pool;
    uint64_t **seen[FAB_NODES_MAX]; /* for each node and chunk, NULL or a bit per unit */
    uint64_t *object;               /* gaddr, size class above it */
    size_t count, room;
    uint64_t bytes;
    bool damaged, no_memory;
};

/* The bits of a chunk, made when they are first needed. */
static uint64_t *seen_in(struct found *f, unsigned node, uint64_t chunk)
{
    if (!f->seen[node])
        f->seen[node] =
            calloc((pool_head(f->pool, node)->size >> CHUNK_SHIFT) + 1, sizeof(uint64_t *));
    if (f->seen[node] && !f->seen[node][chunk])
        f->seen[node][chunk] = calloc(SEEN_WORDS, sizeof(uint64_t));
    return f->seen[node] ? f->seen[node][chunk] : NULL;
}

static bool has_room(struct found *f)
{
    if (f->count < f->room)
        return true;
    size_t room = f->room ? 2 * f->room : 1024;
    uint64_t *grown = realloc(f->object, room * sizeof *grown);
    if (!grown)
        return false;
    f->object = grown;
    f->room = room;
    return true;
}

static void note(struct marker *marker, gaddr at, unsigned size_class)
{
    struct found *f = (struct found *)marker; /* the marker comes first */
    unsigned node = gaddr_node(at);
    uint64_t offset = gaddr_offset(at), unit = offset / 64 % (64 * SEEN_WORDS);
    if (node >= f->pool->nodes || size_class >= CLASS_COUNT ||
        offset < pool_head(f->pool, node)->chunks_off64 * 64ull ||
        offset + size_class_bytes(size_class) > pool_head(f->pool, node)->size) {
        f->damaged = true;
        return;
    }
    uint64_t *seen = seen_in(f, node, offset >> CHUNK_SHIFT);
    if (!seen || !has_room(f)) {
        f->no_memory = true;
        return;
    }
    if (seen[unit / 64] >> (unit % 64) & 1)
        return;
    seen[unit / 64] |= 1ull << (unit % 64);
    f->object[f->count++] = at | (uint64_t)size_class << GADDR_BITS;
    f->bytes += size_class_bytes(size_class);
}

static void free_found(struct found *f)
{
    for (unsigned node = 0; node < f->pool->nodes; node++) {
        uint64_t chunks = (pool_head(f->pool, node)->size >> CHUNK_SHIFT) + 1;
        for (uint64_t i = 0; f->seen[node] && i < chunks; i++)
            free(f->seen[node][i]);
        free(f->seen[node]);
    }
    free(f->object);
}

/* FAR_CORRUPT: the table is damaged, so what was found may belong to others. */
static int walk(struct op *op, struct index_view *view, void *arg)
{
    struct found *f = arg;
    const struct index_ops *ops = view->table->ops;
    struct index_report report = {.line = NULL};
    int rc = INDEX_CALL(ops, check, op, view, &report);
    if (rc == FAR_OK && report.violations > 0)
        rc = FAR_CORRUPT;
    if (rc == FAR_OK)
        rc = INDEX_CALL(ops, mark, op, view, &f->marker);
    if (rc == FAR_OK && f->no_memory)
        rc = err_fail(FAR_NO_MEMORY, "no memory for walking a table");
    return rc == FAR_OK && (f->damaged || f->marker.damaged) ? FAR_CORRUPT : rc;
}

/* ---- completing ------------------------------------------------------------------------------ */

static void retire_all(struct client *c, const struct found *f)
{
    for (size_t i = 0; i < f->count; i++)
        pool_retire(c, f->object[i] & ((1ull << GADDR_BITS) - 1),
                    (unsigned)(f->object[i] >> GADDR_BITS));
}

/* Retires the memory of a table that no session works on any more. */
static int take_apart(far_pool *pool, struct op *op, const struct table_desc *desc)
{
    struct found f = {.marker = {.mark = note}, .pool = &pool->pool};
    bool released = false;
    int walked = store_judge(op, store_view_work(pool, op, desc, true, walk, &f)), rc = walked;
    if (walked == FAR_OK || walked == FAR_CORRUPT)
        rc = catalog_release(op, desc, &released);
    if (released && walked == FAR_OK)
        retire_all(op->client, &f);
    else if (released || rc == FAR_UNKNOWN)
        pool_abandon_bytes(op->client, f.bytes > CHUNK_BYTES ? f.bytes : CHUNK_BYTES); /* or more */
    free_found(&f);
    /* Another client has completed it, or one whose build has the index will. */
    return rc == FAR_NO_TABLE || rc == FAR_NO_INDEX ? FAR_OK : rc;
}

static int complete(far_pool *pool, struct op *op, const struct table_desc *desc)
{
    struct table_desc now;
    int rc = op_begin(op, NULL);
    if (rc != FAR_OK)
        return rc;
    rc = store_judge(op, catalog_get(op, desc->id, &now));
    if (rc == FAR_OK && now.serial == desc->serial && table_is_dropped(&now))
        rc = take_apart(pool, op, &now);
    op_end(op);
    return rc == FAR_NO_TABLE ? FAR_OK : rc;
}

/* Tables that were found dropped. */
struct dropped {
    struct table_desc *desc;
    unsigned count, room;
};

static bool add_dropped(struct dropped *d, const struct table_desc *desc)
{
    if (d->count == d->room) {
        unsigned room = d->room ? 2 * d->room : 4;
        struct table_desc *grown = realloc(d->desc, room * sizeof *grown);
        if (!grown)
            return false;
        d->desc = grown;
        d->room = room;
    }
    d->desc[d->count++] = *desc;
    return true;
}

/* Finds the dropped tables, and outdates the caches that sessions have of them: step one. */
static int find_dropped(struct op *op, struct dropped *d)
{
    unsigned id = 0;
    int rc = op_begin(op, NULL);
    if (rc != FAR_OK)
        return rc;
    while (rc == FAR_OK) {
        struct table_desc desc;
        rc = catalog_next(op, true, &id);
        if (rc != FAR_OK)
            break;
        rc = catalog_get(op, id++, &desc);
        if (rc == FAR_OK && table_is_dropped(&desc)) {
            catalog_bump_version(op, &desc);
            rc = batch_flush(&op->batch);
            if (rc == FAR_OK && !add_dropped(d, &desc))
                rc = err_fail(FAR_NO_MEMORY, "no memory for dropping tables");
        }
        if (rc == FAR_NO_TABLE || rc == FAR_CORRUPT) /* another client completed it; or damaged */
            rc = FAR_OK;
    }
    op_end(op);
    return rc == FAR_NO_TABLE ? FAR_OK : rc;
}

/* Step three. A table that cannot be walked because a node is down does not hold up the others. */
static int complete_all(far_pool *pool, struct op *op, const struct dropped *d)
{
    int first = FAR_OK, rc = FAR_OK;
    for (unsigned i = 0; i < d->count && rc != FAR_FENCED && rc != FAR_STOPPED; i++) {
        rc = complete(pool, op, &d->desc[i]);
        first = first == FAR_OK ? rc : first;
    }
    return first;
}

int store_drop_settle(far_pool *pool, struct op *op)
{
    struct dropped d = {.count = 0};
    ASSERT(!op_in_flight(op)); /* its own epoch would hold up the barrier */
    int rc = find_dropped(op, &d);
    if (rc == FAR_OK && d.count > 0) {
        rc = client_barrier(op, BARRIER_LEASES); /* step two */
        if (rc == FAR_TIMEOUT)
            rc = err_fail(FAR_TIMEOUT,
                          "the epoch does not advance: another client does not end its operation");
    }
    if (rc == FAR_OK)
        rc = complete_all(pool, op, &d);
    free(d.desc);
    return rc;
}
