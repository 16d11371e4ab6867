/*
 * The directory and a session's cache of it.
 *
 * RACE-R8: the directory is advice. The cache learns of a split from the subtable itself
 * (`forward`). The remote directory is read when a session starts, and when the cache has turned
 * out to be useless. The client that splits a subtable notes it in the remote directory.
 */
#include "index/race/race.h"
#include "index/refresh.h"

#include <stdlib.h>
#include <string.h>

void race_hash(const struct race_view *view, struct slice bytes, struct race_key *key)
{
    const struct knobs *knobs = &view->base.table->pool->knobs;
    struct hash128 h = hash_key(bytes.data, bytes.len, view->base.table->desc.hash_seed);
    uint64_t lo = h.lo & knobs->hash_mask, hi = h.hi & knobs->hash_mask;

    key->bytes = bytes;
    key->hash = lo;
    key->fingerprint = (uint8_t)(lo >> 56) & knobs->fingerprint_mask;
    uint32_t first = hash_range((uint32_t)(hi >> 32), 2 * view->groups);
    uint32_t step = 1 + hash_range((uint32_t)hi, view->groups - 1);
    uint32_t group = (first / 2 + step) % view->groups;
    key->combined[0] = race_combined_offset(first);
    key->combined[1] = race_combined_offset(2 * group + ((lo >> 40) & 1));
}

/* Doubles the cache until it has 2^depth entries. */
static int grow_cache(struct race_view *view, unsigned depth)
{
    if (depth > view->dir_bits)
        return err_fail(FAR_CORRUPT, "a subtable of depth %u in a directory of %u bits", depth,
                        view->dir_bits);
    if (depth <= view->depth)
        return FAR_OK;
    uint64_t *entries = realloc(view->entries, sizeof *entries << depth);
    if (!entries)
        return err_fail(FAR_NO_MEMORY, "no memory for a directory of depth %u", depth);
    for (; view->depth < depth; view->depth++)
        memcpy(entries + (1ull << view->depth), entries, sizeof *entries << view->depth);
    view->entries = entries;
    return FAR_OK;
}

int race_follow(struct race_view *view, uint64_t entry, uint64_t hash, uint64_t forward)
{
    ASSERT(forward != 0);
    unsigned depth = race_entry_depth(entry);
    int rc = grow_cache(view, depth + 1);
    if (rc != FAR_OK)
        return rc;
    uint64_t suffix = race_suffix(hash, depth);
    for (uint64_t i = suffix; i < 1ull << view->depth; i += 1ull << depth)
        if (view->entries[i] == entry)
            view->entries[i] = race_forward_entry(forward, (i >> depth) & 1, depth + 1);
    return FAR_OK;
}

/* Reads the directory as deep as the root says, and behind it whether the root still says so: an
 * entry is never deeper than the directory was when it was read. */
static int read_directory(struct op *op, struct race_view *view, struct race_root *root,
                          uint64_t **image)
{
    for (unsigned attempt = 0; attempt <= view->dir_bits; attempt++) { /* it grows no more often */
        if (root->depth > view->dir_bits)
            return err_fail(FAR_CORRUPT, "the directory's depth is %llu of at most %u",
                            (unsigned long long)root->depth, view->dir_bits);
        uint32_t bytes = 8u << root->depth;
        *image = op_buffer(op, BUF_BULK, bytes);
        if (!*image)
            return FAR_NO_MEMORY;
        batch_read(&op->batch, view->directory, 0, *image, bytes);
        batch_fence(&op->batch);
        unsigned depth = op_read(op, view->root, 0);
        int rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            return rc == FAR_BOUNDS ? err_fail(FAR_CORRUPT, "the directory is outside the pool")
                                    : rc;
        if (op_result(op, depth) == root->depth)
            return FAR_OK;
        root->depth = op_result(op, depth);
    }
    return err_fail(FAR_CORRUPT, "the directory's depth is damaged");
}

/* Makes what was read of the directory the session's cache. */
static int install(struct race_view *view, const struct race_root *root, const uint64_t *image)
{
    ASSERT(root->depth <= view->dir_bits);
    uint64_t *entries = malloc(sizeof *entries << root->depth);
    if (!entries)
        return err_fail(FAR_NO_MEMORY, "no memory for a directory of depth %llu",
                        (unsigned long long)root->depth);
    memcpy(entries, image, sizeof *entries << root->depth);
    free(view->entries);
    view->entries = entries;
    view->depth = (unsigned)root->depth;
    return FAR_OK;
}

int race_refresh(struct op *op, struct race_view *view)
{
    struct index_refresh r = {0};
    while (index_refresh_again(op, &view->base, &r)) {
        struct race_root root;
        uint64_t *image = NULL;
        int rc = index_read_confirmed(op, &view->base, &root, sizeof root, &r.version);
        if (rc == FAR_OK)
            rc = read_directory(op, view, &root, &image);
        if (rc != FAR_OK)
            return rc;
        if (!index_refresh_holds(op, &r))
            continue;
        rc = install(view, &root, image);
        if (rc == FAR_OK)
            index_refresh_end(&view->base, &r);
        return rc;
    }
    return r.rc;
}

int race_attach(struct op *op, struct index_view *base)
{
    struct race_view *view = race_view(base);
    const struct index_table *table = base->table;
    struct race_root root;
    uint64_t version = 0;
    view->root = table->desc.root;
    int rc = index_read_confirmed(op, &view->base, &root, sizeof root, &version);
    if (rc == FAR_OK && !race_root_valid(&root))
        rc = index_damaged(table, "the root");
    if (rc == FAR_OK) {
        view->tag = race_tag(table->desc.hash_seed);
        view->groups = root.groups;
        view->dir_bits = root.dir_bits;
        view->depth_asked = root.depth_asked;
        view->hot = root.hot;
        view->directory = root.directory;
        view->hints = index_hints_open(op, table, view->hot * 1024);
        if (!(op->pool->fab->caps & FAB_CAP_IMMEDIATE)) /* else a look is no round trip */
            index_owns_open(&view->owns, RACE_SLOT, view->hot * 1024);
        rc = race_refresh(op, view);
    }
    return rc;
}

void race_detach(struct index_view *base)
{
    index_owns_close(&race_view(base)->owns);
    free(race_view(base)->entries);
}

int race_read_forward(struct op *op, gaddr subtable, uint64_t *forward)
{
    ASSERT(op->batch.count == 0);
    unsigned n = op_read(op, subtable, offsetof(struct race_subtable_head, forward));
    int rc = batch_flush(&op->batch);
    *forward = rc == FAR_OK ? op_result(op, n) : 0;
    return rc;
}

/* ---- the remote directory -------------------------------------------------------------------- */

static int read_depth(struct op *op, struct race_view *view, unsigned *depth)
{
    unsigned n = op_read(op, view->root, 0);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    if (op_result(op, n) > view->dir_bits)
        return err_fail(FAR_CORRUPT, "the directory's depth is damaged");
    *depth = (unsigned)op_result(op, n);
    return FAR_OK;
}

/*
 * Brings the directory from `depth` to one more. The new half is a copy of the old, and must be a
 * true one before any client may look at it. Otherwise what it names may have been retired: just
 * now or, if a client died here, long ago. So it is copied until a look at both halves finds
 * nothing to do. A splitter changes the old half first and the new one behind it, whether or not it
 * is in use yet (redirect()): either we see its change in the old half, or it finds our copy in the
 * new one. An entry is only ever replaced by a deeper one, so no client undoes another's work.
 */
static int double_directory(struct op *op, struct race_view *view, unsigned depth)
{
    uint64_t half = 1ull << depth;
    uint64_t *image = op_buffer(op, BUF_BULK, 2 * half * 8);
    if (!image)
        return FAR_NO_MEMORY;

    for (unsigned attempts = 0; index_attempt(&attempts);) {
        bool copied = false;
        batch_read(&op->batch, view->directory, 0, image, (uint32_t)(2 * half * 8));
        int rc = batch_flush(&op->batch);
        for (uint64_t i = 0; i < half && rc == FAR_OK; i++) {
            uint64_t from = image[half + i], to = image[i];
            if (from == to || (from != 0 && race_entry_depth(from) >= race_entry_depth(to)))
                continue;
            if (race_entry_depth(to) > depth)
                continue; /* not for both halves: another client has doubled it */
            copied = true;
            op_cas(op, MARK_PUBLISH, view->directory, (half + i) * 8, from, to);
            if (batch_room(&op->batch) == 0)
                rc = batch_flush(&op->batch);
        }
        if (rc == FAR_OK && !copied)
            op_cas(op, MARK_PUBLISH, view->root, 0, depth, depth + 1);
        if (rc == FAR_OK)
            rc = batch_flush(&op->batch);
        if (rc != FAR_OK || !copied)
            return rc;
    }
    return FAR_CONTENTION;
}

/* A subtable that was split: what is to be noted in the directory. */
struct advice {
    uint64_t entry, suffix, child[2];
    unsigned depth;
};

#define NOWHERE UINT64_MAX

/*
 * Sends the entries from `first` on, below `end`, to the children. *older is set to the index of an
 * entry that leads to an ancestor, if there is one: that one's split is not in the directory yet.
 */
static int redirect(struct op *op, struct race_view *view, const struct advice *a, uint64_t first,
                    uint64_t end, uint64_t *older)
{
    uint64_t step = 1ull << a->depth, i = first;
    *older = NOWHERE;
    while (i < end) {
        uint64_t start = i;
        for (; i < end && batch_room(&op->batch) > 0; i += step)
            op_cas(op, MARK_PUBLISH, view->directory, i * 8, a->entry,
                   a->child[(i >> a->depth) & 1]);
        unsigned posted = op->batch.count;
        int rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            return rc;
        for (unsigned n = 0; n < posted; n++) {
            uint64_t found = op_result(op, n);
            if (found != 0 && race_entry_depth(found) < a->depth)
                *older = start + n * step;
        }
    }
    return FAR_OK;
}

/* Notes the split of an ancestor in the directory: its splitter has not done so, or has died. */
static int advise_older(struct op *op, struct race_view *view, uint64_t index, unsigned below)
{
    unsigned n = op_read(op, view->directory, index * 8);
    int rc = batch_flush(&op->batch);
    uint64_t entry = op_result(op, n);
    if (rc != FAR_OK || race_entry_depth(entry) >= below)
        return rc; /* another client was faster */
    const struct race_subtable_head *head = (const struct race_subtable_head *)op->word;
    unsigned depth = race_entry_depth(entry);
    batch_read(&op->batch, race_entry_subtable(entry), 0, op->word, sizeof *head);
    rc = batch_flush(&op->batch);
    /* What is not the subtable that it should be has no say in the directory. */
    if (rc == FAR_BOUNDS || (rc == FAR_OK && (head->forward == 0 ||
                                              head->header != race_header_of(view, index, depth))))
        return err_fail(FAR_CORRUPT, "directory entry %llu is damaged", (unsigned long long)index);
    return rc == FAR_OK ? race_update_directory(op, view, entry, index, head->forward) : rc;
}

int race_update_directory(struct op *op, struct race_view *view, uint64_t entry, uint64_t hash,
                          uint64_t forward)
{
    ASSERT(op->batch.count == 0 && forward != 0);
    unsigned depth = race_entry_depth(entry), before = 0, global = 0;
    struct advice a = {.entry = entry, .suffix = race_suffix(hash, depth), .depth = depth};
    for (unsigned i = 0; i < 2; i++)
        a.child[i] = race_forward_entry(forward, i, depth + 1);

    int rc = read_depth(op, view, &global);
    /* Each turn the directory has grown, or an ancestor is out of it: by us or by another. */
    for (unsigned attempts = 0; rc == FAR_OK && index_attempt(&attempts);) {
        uint64_t end = 1ull << global, older = NOWHERE, ignored;
        before = global;
        if (global <= depth) {
            rc = double_directory(op, view, global);
        } else {
            rc = redirect(op, view, &a, a.suffix, end, &older);
            if (rc == FAR_OK && older != NOWHERE)
                rc = advise_older(op, view, older, depth);
            else if (rc == FAR_OK && global < view->dir_bits)
                rc = redirect(op, view, &a, end + a.suffix, 2 * end, &ignored);
        }
        if (rc == FAR_OK)
            rc = read_depth(op, view, &global);
        if (rc == FAR_OK && older == NOWHERE && before > depth && global == before)
            return FAR_OK;
    }
    return rc == FAR_OK ? FAR_CONTENTION : rc;
}
