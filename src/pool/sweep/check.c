/*
 * Checks a pool, except for its tables, while others work. What must hold:
 *
 *   CHECK-N1  Sweep: a client that has announced one is alive.
 *   CHECK-N2  Shared free lists: every page on them is a bundle of that list (FREELIST-S2).
 *   CHECK-N3  Chunk tables: every chunk that was handed out is cut into objects of an existing
 *       class, or is part of a run, or its entry has not been written (yet).
 *   CHECK-N4  Journals: the lines of every client slot are a chain that ends.
 *
 * Superblocks are judged when a pool is opened, the registry and the epoch when a client joins. A
 * sweep repairs the first three: it takes over the sweep, builds the lists again, and finds what no
 * entry describes.
 */
#include "pool/pool_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void report(const struct pool_findings *f, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void report(const struct pool_findings *f, const char *format, ...)
{
    char text[256];
    va_list args;
    if (!f->report)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    f->report(f->arg, text);
}

/* CHECK-N1 */
static int inspect_sweep(struct op *op, struct pool_findings *f)
{
    struct pool_control *control = op_buffer(op, BUF_POOL, sizeof *control);
    bool alive = true;

    if (!control)
        return FAR_NO_MEMORY;
    batch_read(&op->batch, gaddr_make(0, 0), CONTROL_OFF, control, sizeof *control);
    int rc = batch_flush(&op->batch);
    uint64_t sweep = control->sweep;
    f->deaths = control->deaths;
    if (rc == FAR_OK && sweep != 0)
        rc = client_owner_alive(op, sweep, &alive);
    if (rc != FAR_OK || alive)
        return rc;
    /* It may have ended its sweep, and left, meanwhile. */
    batch_read(&op->batch, NODE0, CONTROL_OFF + offsetof(struct pool_control, sweep), op->pool_word,
               8);
    rc = batch_flush(&op->batch);
    if (rc != FAR_OK || op->pool_word[0] != sweep)
        return rc;
    f->stranded++;
    report(f, "stranded: the session in slot %u died while it swept for lost memory",
           owner_slot(sweep));
    return FAR_OK;
}

/* CHECK-N2 */
static int inspect_lists(struct op *op, struct pool_findings *f, unsigned node)
{
    for (unsigned i = 0; i < CLASS_COUNT; i++) {
        bool whole = true;
        int rc = freelist_whole(op, node, i, &whole);
        if (rc != FAR_OK)
            return rc;
        if (whole)
            continue;
        f->violations++;
        report(f, "broken link: node %u's list of free objects of %u bytes is damaged", node,
               size_class_bytes(i));
    }
    return FAR_OK;
}

/* CHECK-N3 */
static int inspect_chunks(struct op *op, struct pool_findings *f, unsigned node)
{
    uint64_t chunks = pool_head(op->pool, node)->chunks, *table = NULL;

    batch_read(&op->batch, gaddr_make(node, NODE_NEXT_CHUNK_OFF), 0, op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    uint64_t count = op->pool_word[0] < chunks ? op->pool_word[0] : chunks;
    if (rc == FAR_OK)
        rc = pool_chunk_table(op, node, count, &table);
    for (uint64_t at = 0; at < count && rc == FAR_OK; at++) {
        if (chunk_fits(table[at], count - at))
            continue;
        f->violations++;
        report(f, "damaged: node %u's chunk table has no valid entry for chunk %llu (%llu bytes)",
               node, (unsigned long long)at, CHUNK_BYTES);
    }
    free(table);
    return rc;
}

/* CHECK-N4 */
static int inspect_journals(struct op *op, struct pool_findings *f)
{
    unsigned damaged = 0, slot = 0;
    int rc = journal_mark(op, NULL, &damaged, &slot);
    if (rc != FAR_OK || damaged == 0)
        return rc;
    f->violations += damaged;
    report(f, "damaged: the journal of client slot %u%s", slot, damaged > 1 ? ", and others" : "");
    return FAR_OK;
}

int pool_check(struct op *op, struct pool_findings *f)
{
    int rc = inspect_sweep(op, f);
    if (rc == FAR_OK)
        rc = inspect_journals(op, f);
    for (unsigned node = 0; node < op->pool->nodes && rc == FAR_OK; node++) {
        if (pool_away(op->pool) >> node & 1)
            continue; /* the caller says so */
        rc = inspect_lists(op, f, node);
        if (rc == FAR_OK)
            rc = inspect_chunks(op, f, node);
    }
    return rc;
}
