/*
 * What a session knows of the segments, and the remote directory.
 *
 * The session's directory has a pointer for each suffix, to what is known of its segment. It learns of
 * merges and splits from the anchors. The remote directory is read only when a session attaches; it
 * is brought up to date by the client that splits a segment.
 */
#include "index/refresh.h"
#include "index/sephash/sephash.h"

#include <stdlib.h>
#include <string.h>

#define ROOM_AT_FIRST 40u /* points, in what is known of a segment */

void sephash_hash(const struct sephash_view *view, struct slice bytes, struct sephash_key *key)
{
    const struct knobs *knobs = &view->base.table->pool->knobs;
    struct hash128 h = hash_key(bytes.data, bytes.len, view->base.table->desc.hash_seed);
    uint64_t lo = h.lo & knobs->hash_mask, hi = h.hi & knobs->hash_mask;

    key->bytes = bytes;
    key->hash = lo;
    key->fp = (lo >> 56) & knobs->fingerprint_mask;
    key->fp2 = hi & ((1u << SEPHASH_FP2_BITS) - 1) & knobs->fingerprint_mask;
    key->bucket = hash_range((uint32_t)(hi >> 32), view->shape.buckets);
}

/* ---- what is known ----------------------------------------------------------------------------- */

static struct sephash_known *new_segment(gaddr anchor, unsigned depth, uint64_t suffix,
                                         unsigned room)
{
    struct sephash_known *k = calloc(1, sizeof *k + room * sizeof *k->table);
    if (!k) {
        err_fail(FAR_NO_MEMORY, "no memory for a segment");
        return NULL;
    }
    k->segment.anchor = anchor;
    k->segment.depth = (uint8_t)depth;
    k->segment.suffix = suffix;
    k->room = room;
    return k;
}

/* Makes all suffixes of a segment lead to `k`. */
static void enter(struct sephash_view *view, struct sephash_known *k)
{
    for (uint64_t i = k->segment.suffix; i < 1ull << view->depth; i += 1ull << k->segment.depth)
        view->directory[i] = k;
}

/* What is known in place of `like`, or NULL if the session knows another segment there by now. */
static struct sephash_known *known(const struct sephash_view *view,
                                   const struct sephash_segment *like)
{
    struct sephash_known *k = sephash_known_of(view, like->suffix);
    const struct sephash_segment *s = &k->segment;
    bool same = s->anchor == like->anchor && s->depth == like->depth && s->suffix == like->suffix;
    return same ? k : NULL; /* a damaged directory may say another depth of an anchor */
}

int sephash_know(struct sephash_view *view, const struct sephash_segment *segment,
                 const uint16_t *table)
{
    struct sephash_known *k = known(view, segment);
    if (!k)
        return FAR_OK;
    if (k->room < segment->points) {
        struct sephash_known *more =
            new_segment(segment->anchor, segment->depth, segment->suffix, segment->points);
        if (!more)
            return FAR_NO_MEMORY;
        enter(view, more);
        free(k);
        k = more;
    }
    k->segment = *segment;
    memcpy(k->table, table, segment->points * sizeof *table);
    return FAR_OK;
}

void sephash_know_filled(struct sephash_view *view, const struct sephash_segment *segment,
                         unsigned filled)
{
    struct sephash_known *k = known(view, segment);
    struct sephash_segment *s = k ? &k->segment : NULL;
    if (!s || s->state != segment->state)
        return;
    if (filled > s->filled)
        s->filled = (uint16_t)filled;
    if (segment->seen > s->seen)
        s->seen = segment->seen;
}

/* Doubles the session's directory until it has 2^depth entries. */
static int deepen(struct sephash_view *view, unsigned depth)
{
    if (depth <= view->depth)
        return FAR_OK;
    struct sephash_known **grown = realloc(view->directory, sizeof *grown << depth);
    if (!grown)
        return err_fail(FAR_NO_MEMORY, "no memory for a directory of depth %u", depth);
    for (; view->depth < depth; view->depth++)
        memcpy(grown + (1ull << view->depth), grown, sizeof *grown << view->depth);
    view->directory = grown;
    return FAR_OK;
}

int sephash_know_split(struct sephash_view *view, const struct sephash_segment *parent,
                       const uint64_t child[2])
{
    unsigned depth = parent->depth + 1u;
    struct sephash_known *k = known(view, parent), *made[2] = {NULL, NULL};
    if (!k)
        return FAR_OK;
    if (depth > view->shape.depth_max)
        return err_fail(FAR_CORRUPT, "a segment of depth %u in a table of at most %u", depth,
                        view->shape.depth_max);
    int rc = deepen(view, depth);
    for (unsigned i = 0; i < 2 && rc == FAR_OK; i++) {
        uint64_t suffix = parent->suffix | (uint64_t)i << parent->depth;
        made[i] = new_segment(child[i], depth, suffix, ROOM_AT_FIRST);
        rc = made[i] ? FAR_OK : FAR_NO_MEMORY;
    }
    if (rc != FAR_OK) {
        free(made[0]);
        return rc;
    }
    enter(view, made[0]);
    enter(view, made[1]);
    free(k);
    return FAR_OK;
}

/* ---- attaching ------------------------------------------------------------------------------- */

static int judge_root(struct sephash_view *view, const struct sephash_root *root)
{
    struct sephash_shape *s = &view->shape;
    if (root->checksum != sephash_root_sum(root))
        return err_fail(FAR_CORRUPT, "the root of table '%s' is damaged",
                        view->base.table->desc.name);
    view->first = root->first;
    sephash_shape_set(s, root->slots, root->ratio, root->filter, root->points);
    s->start = root->start;
    s->depth_max = root->depth_max;
    view->tuning[SEPHASH_TUNING_SLOTS] = root->slots;
    view->tuning[SEPHASH_TUNING_RATIO] = root->ratio;
    view->tuning[SEPHASH_TUNING_FILTER] = root->filter;
    view->tuning[SEPHASH_TUNING_POINTS] = root->points;
    view->tuning[SEPHASH_TUNING_DEPTH] = root->depth;
    return FAR_OK;
}

/* Enters the segments of a depth that the directory names. While a split is being noted, some entries
 * of a segment lead to its children and some do not: then the segment itself is entered. */
static int enter_depth(struct sephash_view *view, const uint64_t *image, unsigned depth)
{
    for (uint64_t i = 0; i < 1ull << view->depth; i++) {
        if (view->directory[i] || sephash_deep_depth(image[i]) != depth ||
            !sephash_inside(view->base.table->pool, sephash_deep_at(image[i]),
                            sizeof(struct sephash_anchor)))
            continue;
        struct sephash_known *k =
            new_segment(sephash_deep_at(image[i]), depth, sephash_suffix(i, depth), ROOM_AT_FIRST);
        if (!k)
            return FAR_NO_MEMORY;
        enter(view, k);
    }
    return FAR_OK;
}

/* Fills the session's directory from that of the pool. */
static int read_directory(struct op *op, struct sephash_view *view, uint64_t word)
{
    unsigned depth = sephash_deep_depth(word);
    if (depth > SEPHASH_DIRECTORY_BITS_MAX || depth > view->shape.depth_max ||
        depth < view->shape.start)
        return err_fail(FAR_CORRUPT, "the directory's depth is %u", depth);
    uint64_t *image = op_buffer(op, BUF_BULK, 8ull << depth);
    view->directory = calloc(1ull << depth, sizeof *view->directory);
    view->depth = depth;
    if (!image || !view->directory)
        return err_fail(FAR_NO_MEMORY, "no memory for a directory of depth %u", depth);
    batch_read(&op->batch, sephash_deep_at(word), 0, image, 8u << depth);
    int rc = batch_flush(&op->batch);
    for (unsigned d = view->shape.start; d <= depth && rc == FAR_OK; d++)
        rc = enter_depth(view, image, d);
    for (uint64_t i = 0; i < 1ull << depth && rc == FAR_OK; i++)
        if (!view->directory[i])
            rc = err_fail(FAR_CORRUPT, "directory entry %llu is damaged", (unsigned long long)i);
    return rc == FAR_BOUNDS ? err_fail(FAR_CORRUPT, "the directory is outside the pool") : rc;
}

/* Frees what is known of the segments whose suffixes end like this. Backwards: the last entry of a segment
 * is that of its suffix. */
static void forget(struct sephash_view *view, uint64_t suffix, unsigned depth)
{
    for (uint64_t i = view->directory ? 1ull << view->depth : 0; i-- > 0;)
        if (sephash_suffix(i, depth) == suffix && view->directory[i] &&
            view->directory[i]->segment.suffix == i)
            free(view->directory[i]);
}

/* The directory is damaged: fills the session's with the first segments (SEPHASH-H7). */
static int read_first(struct op *op, struct sephash_view *view)
{
    unsigned start = view->shape.start;
    uint64_t *image = op_buffer(op, BUF_BULK, 8ull << start);
    forget(view, 0, 0);
    free(view->directory);
    view->directory = calloc(1ull << start, sizeof *view->directory);
    view->depth = start;
    if (!image || !view->directory)
        return err_fail(FAR_NO_MEMORY, "no memory for a directory of depth %u", start);
    batch_read(&op->batch, view->first, 0, image, 8u << start);
    int rc = batch_flush(&op->batch);
    for (uint64_t i = 0; i < 1ull << start && rc == FAR_OK; i++) {
        view->directory[i] = new_segment(image[i], start, i, ROOM_AT_FIRST);
        rc = view->directory[i] ? FAR_OK : FAR_NO_MEMORY;
    }
    return rc == FAR_BOUNDS ? err_fail(FAR_CORRUPT, "the table's root is damaged") : rc;
}

int sephash_restart(struct op *op, struct sephash_view *view, const struct sephash_segment *bad)
{
    unsigned start = view->shape.start;
    uint64_t suffix = sephash_suffix(bad->suffix, start);
    unsigned n = op_read(op, view->first, 8 * suffix);
    int rc = batch_flush(&op->batch);
    gaddr at = rc == FAR_OK ? op_result(op, n) : 0;
    if (rc == FAR_OK) {
        n = op_read(op, at, offsetof(struct sephash_anchor, id));
        rc = batch_flush(&op->batch);
    }
    /* If the lease has lapsed, both may be anything. */
    if (rc == FAR_BOUNDS ||
        (rc == FAR_OK && op_result(op, n) != sephash_id(view->tag, start, suffix)))
        rc = err_fail(FAR_CORRUPT, "an anchor of table '%s' is damaged",
                      view->base.table->desc.name);
    if (rc != FAR_OK || !known(view, bad))
        return rc;
    struct sephash_known *k = new_segment(at, start, suffix, ROOM_AT_FIRST);
    if (!k)
        return FAR_NO_MEMORY;
    forget(view, suffix, start);
    enter(view, k);
    return FAR_OK;
}

int sephash_attach(struct op *op, const struct index_table *table, struct index_view **out)
{
    struct sephash_root root;
    uint64_t version = 0;
    struct sephash_view *view = calloc(1, sizeof *view);
    if (!view)
        return err_fail(FAR_NO_MEMORY, "no memory for a view");
    index_view_init(&view->base, table);
    view->root = table->desc.root;
    view->tag = sephash_tag_of(table->desc.hash_seed);
    int rc = index_read_confirmed(op, &view->base, &root, sizeof root, &version);
    if (rc == FAR_OK)
        rc = judge_root(view, &root);
    if (rc == FAR_OK)
        rc = read_directory(op, view, root.directory);
    if (rc == FAR_CORRUPT && view->first != 0)
        rc = read_first(op, view);
    if (rc == FAR_OK)
        rc = sephash_refresh(op, &view->base);
    if (rc != FAR_OK) {
        sephash_detach(&view->base);
        return rc;
    }
    *out = &view->base;
    return FAR_OK;
}

void sephash_detach(struct index_view *base)
{
    struct sephash_view *view = sephash_view(base);
    forget(view, 0, 0);
    free(view->directory);
    free(view);
}

/* Nothing of what a session knows becomes invalid as long as the table is there (SEPHASH-H7). */
int sephash_refresh(struct op *op, struct index_view *base)
{
    struct sephash_root root;
    struct index_refresh r = {0};
    while (index_refresh_again(op, base, &r)) {
        int rc = index_read_confirmed(op, base, &root, sizeof root, &r.version);
        if (rc != FAR_OK)
            return rc;
        if (index_refresh_holds(op, &r)) {
            index_refresh_end(base, &r);
            return FAR_OK;
        }
    }
    return r.rc;
}

/* ---- the remote directory -------------------------------------------------------------------- */

/* Makes a directory of twice the size, with the children in it. (If it was not doubled at an earlier
 * split, because there was no memory, then it is still too small for them.) */
static int double_directory(struct op *op, struct sephash_view *view,
                            const struct sephash_segment *parent, const uint64_t entry[2],
                            uint64_t word, const uint64_t *old)
{
    unsigned depth = sephash_deep_depth(word);
    uint64_t half = 1ull << depth;
    gaddr at = 0;
    uint64_t *image = op_buffer(op, BUF_BULK, 16ull << depth);
    if (!image)
        return FAR_NO_MEMORY;
    memcpy(image, old, 8ull << depth);
    memcpy(image + half, old, 8ull << depth);
    for (uint64_t i = parent->suffix; depth == parent->depth && i < 2 * half; i += half)
        image[i] = entry[i >> depth & 1];
    unsigned class = sephash_directory_class(depth + 1);
    int rc = pool_alloc(op, gaddr_node(view->root), class, &at);
    if (rc != FAR_OK)
        return rc;
    batch_write(&op->batch, at, 0, image, 16u << depth);
    batch_fence(&op->batch);
    unsigned n = op_cas(op, view->root, offsetof(struct sephash_root, directory), word,
                        sephash_deep(at, depth + 1));
    rc = batch_flush(&op->batch);
    if (rc != FAR_OK) {
        pool_abandon(op->client, class);
        pool_abandon(op->client, sephash_directory_class(depth));
    } else if (op_swapped(op, n)) {
        pool_retire(op->client, sephash_deep_at(word), sephash_directory_class(depth));
    } else {
        pool_free_unpublished(op->client, at, class);
    }
    return rc;
}

/* Sends the entries of a segment to its children. An entry is only ever replaced by a deeper one. If one
 * leads to an ancestor, then that one's split was not noted: it is replaced as well. */
static int redirect(struct op *op, const struct sephash_view *view,
                    const struct sephash_segment *parent, const uint64_t entry[2], uint64_t word)
{
    uint64_t step = 1ull << parent->depth, end = 1ull << sephash_deep_depth(word);
    for (uint64_t i = parent->suffix; i < end;) {
        uint64_t first = i;
        for (; i < end && batch_room(&op->batch) > 0; i += step)
            op_cas(op, sephash_deep_at(word), i * 8, sephash_deep(parent->anchor, parent->depth),
                   entry[i >> parent->depth & 1]);
        unsigned posted = op->batch.count;
        uint64_t found[BATCH_MAX];
        int rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            return rc;
        memcpy(found, op->word, posted * sizeof *found);
        for (unsigned n = 0; n < posted; n++)
            if (sephash_deep_depth(found[n]) < parent->depth &&
                sephash_deep_depth(found[n]) >= view->shape.start) /* else it is no entry */
                op_cas(op, sephash_deep_at(word), (first + n * step) * 8, found[n],
                       entry[(first + n * step) >> parent->depth & 1]);
        rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            return rc;
    }
    return FAR_OK;
}

void sephash_advise(struct op *op, struct sephash_view *view, const struct sephash_segment *parent,
                    const uint64_t child[2], uint64_t word, const uint64_t *image)
{
    uint64_t entry[2];
    if (sephash_deep_depth(word) > SEPHASH_DIRECTORY_BITS_MAX)
        return; /* it is damaged */
    for (unsigned i = 0; i < 2; i++)
        entry[i] = sephash_deep(child[i], parent->depth + 1u);
    if (sephash_deep_depth(word) > parent->depth)
        (void)redirect(op, view, parent, entry, word);
    else if (image)
        (void)double_directory(op, view, parent, entry, word, image);
}
