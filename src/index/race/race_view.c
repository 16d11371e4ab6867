/*
 * The directory and a session's cache of it.
 *
 * R8: the directory is advice. The cache learns of a split from the subtable itself (`forward`);
 * the remote directory is read when a session starts and when the cache turned out to be useless,
 * and is told of each split by the client that did it.
 */
#include "index/race/race.h"

#include <stdlib.h>
#include <string.h>

static uint32_t main_bucket_offset(uint32_t bucket)
{
    /* An even main bucket is followed by its overflow bucket, an odd one is preceded by it. */
    return (uint32_t)sizeof(struct race_subtable_head) + bucket / 2 * RACE_GROUP_BYTES +
           (bucket & 1) * 64;
}

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
    key->combined[0] = main_bucket_offset(first);
    key->combined[1] = main_bucket_offset(2 * group + ((lo >> 40) & 1));
}

uint64_t race_root_sum(const struct race_root *root)
{
    size_t first = offsetof(struct race_root, groups);
    return hash_sum(&root->groups, offsetof(struct race_root, checksum) - first, 0);
}

uint32_t race_tag(uint64_t hash_seed)
{
    return (uint32_t)hash_sum(&hash_seed, sizeof hash_seed, 0);
}

/* Doubles the cache until it has 2^depth entries. */
static int grow_cache(struct race_view *view, unsigned depth)
{
    if (depth > view->dir_bits)
        return fail(FAR_CORRUPT, "a subtable of depth %u in a directory of %u bits", depth,
                    view->dir_bits);
    if (depth <= view->depth)
        return FAR_OK;
    uint64_t *entries = realloc(view->entries, sizeof *entries << depth);
    if (!entries)
        return fail(FAR_NO_MEMORY, "no memory for a directory of depth %u", depth);
    for (; view->depth < depth; view->depth++)
        memcpy(entries + (1ull << view->depth), entries, sizeof *entries << view->depth);
    view->entries = entries;
    return FAR_OK;
}

int race_follow(struct race_view *view, uint64_t entry, uint64_t hash, uint64_t forward)
{
    unsigned depth = race_entry_depth(entry);
    int rc = grow_cache(view, depth + 1);
    if (rc != FAR_OK)
        return rc;
    uint64_t suffix = hash & ((1ull << depth) - 1);
    for (uint64_t i = suffix; i < 1ull << view->depth; i += 1ull << depth)
        if (view->entries[i] == entry)
            view->entries[i] = race_forward_entry(forward, (i >> depth) & 1, depth + 1);
    return FAR_OK;
}

static int read_root(struct op *op, struct race_view *view, struct race_root *root)
{
    struct race_root *image = op_buffer(op, BUF_INDEX, sizeof *image);
    if (!image)
        return FAR_NO_MEMORY;
    batch_read(&op->batch, view->root, 0, image, sizeof *image);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        *root = *image;
    return rc == FAR_BOUNDS ? fail(FAR_CORRUPT, "the table's root is outside the pool") : rc;
}

int race_refresh(struct op *op, struct race_view *view)
{
    struct race_root root;
    int rc = read_root(op, view, &root);
    if (rc != FAR_OK)
        return rc;
    if (root.depth > view->dir_bits)
        return fail(FAR_CORRUPT, "the directory's depth is %llu of at most %u",
                    (unsigned long long)root.depth, view->dir_bits);
    uint32_t bytes = 8u << root.depth;
    uint64_t *image = op_buffer(op, BUF_BULK, bytes);
    if (!image)
        return FAR_NO_MEMORY;
    batch_read(&op->batch, view->directory, 0, image, bytes);
    rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc == FAR_BOUNDS ? fail(FAR_CORRUPT, "the directory is outside the pool") : rc;

    uint64_t *entries = malloc(bytes);
    if (!entries)
        return fail(FAR_NO_MEMORY, "no memory for a directory of depth %llu",
                    (unsigned long long)root.depth);
    memcpy(entries, image, bytes);
    free(view->entries);
    view->entries = entries;
    view->depth = (unsigned)root.depth;
    return FAR_OK;
}

int race_attach(struct op *op, const struct index_table *table, struct index_view **out)
{
    struct race_root root;
    struct race_view *view = calloc(1, sizeof *view);
    if (!view)
        return fail(FAR_NO_MEMORY, "no memory for a view");
    view->base.table = table;
    view->root = table->desc.root;
    int rc = read_root(op, view, &root);
    if (rc == FAR_OK && (root.checksum != race_root_sum(&root) || root.groups < RACE_GROUPS_MIN ||
                         root.groups > RACE_GROUPS_MAX || root.dir_bits > RACE_DIR_BITS_MAX))
        rc = fail(FAR_CORRUPT, "the root of table '%s' is damaged", table->desc.name);
    if (rc == FAR_OK) {
        view->tag = race_tag(table->desc.hash_seed);
        view->groups = root.groups;
        view->dir_bits = root.dir_bits;
        view->directory = root.directory;
        rc = race_refresh(op, view);
    }
    if (rc != FAR_OK) {
        race_detach(&view->base);
        return rc;
    }
    *out = &view->base;
    return FAR_OK;
}

void race_detach(struct index_view *base)
{
    free(race_view(base)->entries);
    free(base);
}

/* ---- the remote directory ----------------------------------------------------------------------
 */

static int read_depth(struct op *op, struct race_view *view, unsigned *depth)
{
    batch_read(&op->batch, view->root, 0, op->word, 8);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    if (op->word[0] > view->dir_bits)
        return fail(FAR_CORRUPT, "the directory's depth is damaged");
    *depth = (unsigned)op->word[0];
    return FAR_OK;
}

/* Adds one CAS of a directory entry to the batch, flushing a full one. What it finds does not
 * matter: an entry that is not as expected has been seen to by somebody else. */
static int cas_entry(struct op *op, struct race_view *view, uint64_t i, uint64_t from, uint64_t to)
{
    batch_cas(&op->batch, view->directory, i * 8, from, to, &op->word[op->batch.count]);
    return batch_room(&op->batch) == 0 ? batch_flush(&op->batch) : FAR_OK;
}

/*
 * Brings the directory from `depth` to one more. The new half fills by CAS from 0, so that of
 * several clients doing this none undoes another's later entry. An entry that was split while it
 * was being copied is set right before this returns.
 */
static int double_directory(struct op *op, struct race_view *view, unsigned depth)
{
    uint64_t half = 1ull << depth;
    uint64_t *image = op_buffer(op, BUF_BULK, 2 * half * 8);
    if (!image)
        return FAR_NO_MEMORY;
    uint64_t *copied = image + half;

    batch_read(&op->batch, view->directory, 0, copied, (uint32_t)half * 8);
    int rc = batch_flush(&op->batch);
    for (uint64_t i = 0; i < half && rc == FAR_OK; i++)
        rc = cas_entry(op, view, half + i, 0, copied[i]);
    if (rc == FAR_OK)
        rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    batch_cas(&op->batch, view->root, 0, depth, depth + 1, &op->word[0]);
    batch_fence(&op->batch);
    batch_read(&op->batch, view->directory, 0, image, (uint32_t)half * 8);
    rc = batch_flush(&op->batch);
    for (uint64_t i = 0; i < half && rc == FAR_OK; i++)
        if (image[i] != copied[i] && race_entry_depth(image[i]) <= depth)
            rc = cas_entry(op, view, half + i, copied[i], image[i]);
    return rc == FAR_OK ? batch_flush(&op->batch) : rc;
}

int race_advise(struct op *op, struct race_view *view, uint64_t entry, uint64_t hash,
                uint64_t forward)
{
    unsigned depth = race_entry_depth(entry), global = 0;
    uint64_t suffix = hash & ((1ull << depth) - 1), child[2];

    int rc = read_depth(op, view, &global);
    while (rc == FAR_OK && global <= depth) { /* each turn raises it, by us or by another */
        rc = double_directory(op, view, global);
        if (rc == FAR_OK)
            rc = read_depth(op, view, &global);
    }
    for (unsigned i = 0; i < 2; i++)
        child[i] = race_forward_entry(forward, i, depth + 1);
    for (uint64_t i = suffix; i < 1ull << global && rc == FAR_OK; i += 1ull << depth)
        rc = cas_entry(op, view, i, entry, child[(i >> depth) & 1]);
    if (rc != FAR_OK)
        return rc;

    /* A child may have been split before the directory knew of it: then its splitter's advice was
     * in vain, and must be given again, or the directory would point to a dead subtable for good.
     */
    rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    for (unsigned i = 0; i < 2; i++)
        batch_read(&op->batch, race_entry_subtable(child[i]), 0, &op->word[i], 8);
    rc = batch_flush(&op->batch);
    uint64_t onward[2] = {op->word[0], op->word[1]};
    for (unsigned i = 0; i < 2 && rc == FAR_OK; i++)
        if (onward[i] != 0 && depth + 2 <= view->dir_bits)
            rc = race_advise(op, view, child[i], suffix | (uint64_t)i << depth, onward[i]);
    return rc;
}
