/*
 * What a session knows of the parts of a table, and the remote directory.
 *
 * The session's directory has a pointer for each suffix, to what is known of its part. It learns of
 * splits from the anchors. The remote directory is read only when a session attaches; it is brought
 * up to date by the client that splits a part.
 */
#include "index/parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is known --------------------------------------------------------------------------- */

static struct index_part *new_part(const struct index_parts *parts, gaddr anchor, unsigned depth,
                                   uint64_t suffix)
{
    struct index_part *p = calloc(1, parts->bytes);
    if (!p) {
        err_fail(FAR_NO_MEMORY, "no memory for a part of table '%s'", parts->table->desc.name);
        return NULL;
    }
    *p = (struct index_part){
        .anchor = anchor, .suffix = suffix, .bytes = parts->bytes, .depth = (uint8_t)depth};
    return p;
}

/* Makes all suffixes of a part lead to it. */
static void enter(struct index_parts *parts, struct index_part *p)
{
    for (uint64_t i = p->suffix; i < 1ull << parts->depth; i += 1ull << p->depth)
        parts->entry[i] = p;
}

struct index_part *index_part_known(const struct index_parts *parts, const struct index_part *like)
{
    struct index_part *p = index_part_of(parts, like->suffix);
    bool same = p->anchor == like->anchor && p->depth == like->depth; /* so is the suffix */
    return same ? p : NULL; /* a damaged directory may say another depth of an anchor */
}

struct index_part *index_part_grow(struct index_parts *parts, struct index_part *part,
                                   uint32_t bytes)
{
    ASSERT(bytes > part->bytes);
    struct index_part *more = realloc(part, bytes);
    if (!more) {
        err_fail(FAR_NO_MEMORY, "no memory for a part of table '%s'", parts->table->desc.name);
        return NULL;
    }
    more->bytes = bytes;
    enter(parts, more);
    return more;
}

/* Doubles the session's directory until it has 2^depth entries. */
static int deepen(struct index_parts *parts, unsigned depth)
{
    if (depth <= parts->depth)
        return FAR_OK;
    struct index_part **grown = realloc(parts->entry, sizeof *grown << depth);
    if (!grown)
        return err_fail(FAR_NO_MEMORY, "no memory for a directory of depth %u", depth);
    for (; parts->depth < depth; parts->depth++)
        memcpy(grown + (1ull << parts->depth), grown, sizeof *grown << parts->depth);
    parts->entry = grown;
    return FAR_OK;
}

int index_parts_know_split(struct index_parts *parts, const struct index_part *parent,
                           const uint64_t child[2])
{
    ASSERT(parts->entry);
    unsigned depth = parent->depth + 1u;
    struct index_part *p = index_part_known(parts, parent), *made[2] = {NULL, NULL};
    if (!p)
        return FAR_OK;
    if (depth > parts->depth_max)
        return err_fail(FAR_CORRUPT, "a part of depth %u in table '%s' of at most %u", depth,
                        parts->table->desc.name, parts->depth_max);
    int rc = deepen(parts, depth);
    for (unsigned i = 0; i < 2 && rc == FAR_OK; i++) {
        uint64_t suffix = parent->suffix | (uint64_t)i << parent->depth;
        made[i] = new_part(parts, child[i], depth, suffix);
        rc = made[i] ? FAR_OK : FAR_NO_MEMORY;
    }
    if (rc != FAR_OK) {
        free(made[0]);
        return rc;
    }
    enter(parts, made[0]);
    enter(parts, made[1]);
    free(p);
    return FAR_OK;
}

uint64_t index_parts_bytes(const struct index_parts *parts)
{
    uint64_t bytes = sizeof *parts->entry << parts->depth;
    for (uint64_t i = 0; i < 1ull << parts->depth; i++)
        if (parts->entry[i]->suffix == i)
            bytes += parts->entry[i]->bytes;
    return bytes;
}

/* Frees what is known of the parts whose suffixes end like this. Backwards: the last entry of a
 * part is that of its suffix. */
static void forget(struct index_parts *parts, uint64_t suffix, unsigned depth)
{
    for (uint64_t i = parts->entry ? 1ull << parts->depth : 0; i-- > 0;)
        if (index_suffix(i, depth) == suffix && parts->entry[i] && parts->entry[i]->suffix == i)
            free(parts->entry[i]);
}

void index_parts_detach(struct index_parts *parts)
{
    forget(parts, 0, 0);
    free(parts->entry);
    parts->entry = NULL;
}

/* ---- attaching ------------------------------------------------------------------------------- */

/* An empty directory of the session's, and a buffer for that many words. */
static int make_directory(struct op *op, struct index_parts *parts, unsigned depth,
                          uint64_t **image)
{
    index_parts_detach(parts);
    *image = op_buffer(op, BUF_BULK, 8ull << depth);
    parts->entry = calloc(1ull << depth, sizeof(struct index_part *));
    parts->depth = depth;
    return *image && parts->entry
               ? FAR_OK
               : err_fail(FAR_NO_MEMORY, "no memory for a directory of depth %u", depth);
}

/* Enters the parts of a depth that the directory names. While a split is being noted, some entries
 * of a part lead to its children and some do not: then the part itself is entered. */
static int enter_depth(struct index_parts *parts, const uint64_t *image, unsigned depth)
{
    for (uint64_t i = 0; i < 1ull << parts->depth; i++) {
        if (parts->entry[i] || index_deep_depth(image[i]) != depth ||
            !index_inside(parts->table->pool, index_deep_at(image[i]), parts->anchor_bytes))
            continue;
        struct index_part *p =
            new_part(parts, index_deep_at(image[i]), depth, index_suffix(i, depth));
        if (!p)
            return FAR_NO_MEMORY;
        enter(parts, p);
    }
    return FAR_OK;
}

/* Fills the session's directory from that of the pool. */
static int read_directory(struct op *op, struct index_parts *parts, uint64_t word)
{
    unsigned depth = index_deep_depth(word);
    uint64_t *image = NULL;
    if (depth > INDEX_DIRECTORY_BITS_MAX || depth > parts->depth_max || depth < parts->start)
        return err_fail(FAR_CORRUPT, "the directory's depth is %u", depth);
    int rc = make_directory(op, parts, depth, &image);
    if (rc != FAR_OK)
        return rc;
    batch_read(&op->batch, index_deep_at(word), 0, image, 8u << depth);
    rc = batch_flush(&op->batch);
    for (unsigned d = parts->start; d <= depth && rc == FAR_OK; d++)
        rc = enter_depth(parts, image, d);
    for (uint64_t i = 0; i < 1ull << depth && rc == FAR_OK; i++)
        if (!parts->entry[i])
            rc = err_fail(FAR_CORRUPT, "directory entry %llu is damaged", (unsigned long long)i);
    return rc == FAR_BOUNDS ? err_fail(FAR_CORRUPT, "the directory is outside the pool") : rc;
}

/* The directory is damaged: fills the session's with the first parts (PARTS-2). */
static int read_first(struct op *op, struct index_parts *parts)
{
    unsigned start = parts->start;
    uint64_t *image = NULL;
    int rc = make_directory(op, parts, start, &image);
    if (rc != FAR_OK)
        return rc;
    batch_read(&op->batch, parts->first, 0, image, 8u << start);
    rc = batch_flush(&op->batch);
    for (uint64_t i = 0; i < 1ull << start && rc == FAR_OK; i++) {
        parts->entry[i] = new_part(parts, image[i], start, i);
        rc = parts->entry[i] ? FAR_OK : FAR_NO_MEMORY;
    }
    return rc == FAR_BOUNDS ? err_fail(FAR_CORRUPT, "the table's root is damaged") : rc;
}

int index_parts_attach(struct op *op, struct index_parts *parts, uint64_t word)
{
    ASSERT(!parts->entry && parts->anchor_bytes <= 8 * OP_INDEX_WORDS &&
           parts->id_at < parts->anchor_bytes);
    int rc = read_directory(op, parts, word);
    return rc == FAR_CORRUPT ? read_first(op, parts) : rc;
}

int index_parts_restart(struct op *op, struct index_parts *parts, const struct index_part *bad)
{
    ASSERT(op->batch.count == 0);
    struct index_part first = {.depth = (uint8_t)parts->start,
                               .suffix = index_suffix(bad->suffix, parts->start)};
    unsigned n = op_read(op, parts->first, 8 * first.suffix);
    int rc = batch_flush(&op->batch);
    first.anchor = rc == FAR_OK ? op_result(op, n) : 0;
    if (rc == FAR_OK) {
        n = op_read(op, first.anchor, parts->id_at);
        rc = batch_flush(&op->batch);
    }
    /* If the lease has lapsed, both may be anything. */
    if (rc == FAR_BOUNDS || (rc == FAR_OK && op_result(op, n) != index_part_id(parts, &first)))
        rc = index_damaged(parts->table, "an anchor");
    if (rc != FAR_OK || !index_part_known(parts, bad))
        return rc;
    struct index_part *p = new_part(parts, first.anchor, first.depth, first.suffix);
    if (!p)
        return FAR_NO_MEMORY;
    forget(parts, first.suffix, first.depth);
    enter(parts, p);
    return FAR_OK;
}

/* ---- a new table ----------------------------------------------------------------------------- */

int index_parts_write_first(struct op *op, unsigned start, const uint64_t *anchor, gaddr first,
                            gaddr directory, uint64_t *entries, uint64_t *word)
{
    ASSERT(op->batch.count == 0 && start <= INDEX_DIRECTORY_BITS_MAX);
    uint64_t count = 1ull << start;
    for (uint64_t i = 0; i < count; i++)
        entries[i] = index_deep(anchor[i], start);
    batch_write(&op->batch, MARK_EARLY, first, 0, anchor, (uint32_t)(8 * count));
    batch_write(&op->batch, MARK_EARLY, directory, 0, entries, (uint32_t)(8 * count));
    *word = index_deep(directory, start);
    return batch_flush(&op->batch);
}

/* ---- the remote directory -------------------------------------------------------------------- */

/* A split, as the directory is to show it. */
struct advice {
    const struct index_parts *parts;
    const struct index_part *parent;
    uint64_t entry[2]; /* of the children */
    uint64_t word;     /* the root's */
};

/* Makes a directory of twice the size, with the children in it. (If it was not doubled at an
 * earlier split, because there was no memory, then it is still too small for them.) */
static int double_directory(struct op *op, const struct advice *a, const uint64_t *old)
{
    gaddr root = a->parts->table->desc.root, at = 0;
    unsigned depth = index_deep_depth(a->word), class = index_directory_class(depth + 1);
    uint64_t half = 1ull << depth;
    uint64_t *image = op_buffer(op, BUF_BULK, 16ull << depth);
    if (!image)
        return FAR_NO_MEMORY;
    memcpy(image, old, 8ull << depth);
    memcpy(image + half, old, 8ull << depth);
    for (uint64_t i = a->parent->suffix; depth == a->parent->depth && i < 2 * half; i += half)
        image[i] = a->entry[i >> depth & 1];
    int rc = pool_alloc(op, gaddr_node(root), class, &at);
    if (rc != FAR_OK)
        return rc;
    batch_write(&op->batch, MARK_EARLY, at, 0, image, 16u << depth);
    batch_fence(&op->batch);
    unsigned n =
        op_cas(op, MARK_PUBLISH, root, a->parts->word_at, a->word, index_deep(at, depth + 1));
    rc = batch_flush(&op->batch);
    if (rc != FAR_OK) {
        pool_abandon(op->client, class);
        pool_abandon(op->client, index_directory_class(depth));
    } else if (op_swapped(op, n)) {
        pool_retire(op->client, index_deep_at(a->word), index_directory_class(depth));
    } else {
        pool_free_unpublished(op->client, at, class);
    }
    return rc;
}

/* Sends the entries of a part to its children. An entry is only ever replaced by a deeper one. If
 * one leads to an ancestor, then that one's split was not noted: it is replaced as well. */
static int redirect(struct op *op, const struct advice *a)
{
    const struct index_part *parent = a->parent;
    gaddr directory = index_deep_at(a->word);
    uint64_t step = 1ull << parent->depth, end = 1ull << index_deep_depth(a->word);
    for (uint64_t i = parent->suffix; i < end;) {
        uint64_t first = i;
        for (; i < end && batch_room(&op->batch) > 0; i += step)
            op_cas(op, MARK_PUBLISH, directory, i * 8, index_deep(parent->anchor, parent->depth),
                   a->entry[i >> parent->depth & 1]);
        unsigned posted = op->batch.count;
        uint64_t found[BATCH_MAX];
        int rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            return rc;
        memcpy(found, op->word, posted * sizeof *found);
        for (unsigned n = 0; n < posted; n++)
            if (index_deep_depth(found[n]) < parent->depth &&
                index_deep_depth(found[n]) >= a->parts->start) /* else it is no entry */
                op_cas(op, MARK_PUBLISH, directory, (first + n * step) * 8, found[n],
                       a->entry[(first + n * step) >> parent->depth & 1]);
        rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            return rc;
    }
    return FAR_OK;
}

void index_parts_advise(struct op *op, const struct index_parts *parts,
                        const struct index_part *parent, const uint64_t child[2], uint64_t word,
                        const uint64_t *image)
{
    ASSERT(!image || index_parts_doubles(parts, word, parent));
    struct advice a = {.parts = parts, .parent = parent, .word = word};
    if (index_deep_depth(word) > INDEX_DIRECTORY_BITS_MAX)
        return; /* it is damaged */
    for (unsigned i = 0; i < 2; i++)
        a.entry[i] = index_deep(child[i], parent->depth + 1u);
    if (index_deep_depth(word) > parent->depth)
        (void)redirect(op, &a);
    else if (image)
        (void)double_directory(op, &a, image);
}
