/*
 * Repairing damaged rows (RCUCKOO-C14).
 *
 * The subtable is closed meanwhile, so nobody else changes its rows. If this client dies in the
 * middle, a row is as damaged as before, or torn, or whole. The next repair goes on with that: an
 * entry that proved itself still does.
 */
#include "index/rcuckoo/rcuckoo.h"
#include "index/walk.h"

#define CLOSINGS 3u /* attempts to close the subtable */

struct salvage {
    struct op *op;
    struct rcuckoo_view *view;
    const struct rcuckoo_sub *sub;
    struct index_report *report;
    uint64_t *rows; /* all of the subtable's, in BUF_BULK; behind them room for one */
    unsigned salvaged, lost;
    unsigned place;   /* the entry that is to be removed: row * RCUCKOO_SLOTS + slot, */
    uint64_t pointer; /* and its pointer */
    bool removed;
};

static uint64_t *row_of(const struct salvage *v, unsigned row)
{
    return v->rows + (size_t)row * v->view->shape.row;
}

static bool is_whole(const struct salvage *v, unsigned row)
{
    return rcuckoo_row_whole(&v->view->shape, rcuckoo_sub_id(v->view, v->sub), row, row_of(v, row));
}

/* Nothing is left where an entry was removed. */
static bool is_empty(const struct rcuckoo_shape *s, uint64_t *row, unsigned slot)
{
    uint64_t any = rcuckoo_tags(s, row)[slot];
    for (unsigned i = 0; i < s->entry; i++)
        any |= rcuckoo_slot(s, row, slot)[i];
    return any == 0;
}

/* Does the key belong to the subtable, and to this row? */
static bool belongs(const struct salvage *v, const struct rcuckoo_key *key, unsigned row)
{
    const struct index_part *part = &v->sub->part;
    return index_suffix(key->hash, part->depth) == part->suffix &&
           (key->row[0] == row || key->row[1] == row);
}

/* Is the entry that of a block? The tag is not asked: it may be what is damaged. *key: the block's,
 * good until the next read. *tag: the right one, or 0. */
static int prove_entry(const struct salvage *v, unsigned row, unsigned slot,
                       struct rcuckoo_key *key, uint8_t *tag)
{
    const struct rcuckoo_shape *s = &v->view->shape;
    const uint64_t *words = rcuckoo_slot(s, row_of(v, row), slot);
    uint64_t pointer = words[s->value_at], entry[RCUCKOO_ENTRY_MAX / 8];
    const void *block = NULL;
    *tag = 0;
    int rc = index_walk_block(v->op, RCUCKOO_POINTER, pointer, &block);
    if (rc != FAR_OK || !block)
        return rc;
    const struct block_head *h = block;
    struct slice value = index_block_value(block);
    rcuckoo_key_set(v->view, (struct slice){block_key(h), h->klen}, key);
    if (rcuckoo_fits(s, key, value.len) || !belongs(v, key, row))
        return FAR_OK;
    uint8_t right = rcuckoo_encode(s, key, value, pointer, entry);
    if (memcmp(entry, words, 8 * (size_t)s->entry) == 0)
        *tag = right;
    return FAR_OK;
}

/* A split has copied the row to both children: is the entry, as far as can be told, the
 * other one's? */
static bool of_another(const struct salvage *v, unsigned row, unsigned slot)
{
    const struct index_part *part = &v->sub->part;
    uint64_t hash = 0;
    return rcuckoo_slot_hash(v->view, row_of(v, row), slot, &hash) &&
           index_suffix(hash & rcuckoo_hash_mask(v->view), part->depth) != part->suffix;
}

/* Is the key in its other row, or in what was kept of this one? */
static bool is_there(const struct salvage *v, const struct rcuckoo_key *key, unsigned row,
                     uint64_t *kept)
{
    const struct rcuckoo_shape *s = &v->view->shape;
    unsigned other = key->row[key->row[0] == row];
    return rcuckoo_candidates(s, key, kept) != 0 ||
           (other != row && is_whole(v, other) &&
            rcuckoo_candidates(s, key, row_of(v, other)) != 0);
}

/* Keeps what proves itself. */
static int keep_entries(struct salvage *v, unsigned row)
{
    const struct rcuckoo_shape *s = &v->view->shape;
    uint64_t *old = row_of(v, row), *kept = row_of(v, s->rows);
    unsigned version = (rcuckoo_version(*rcuckoo_meta(s, old)) + 1) & RCUCKOO_VERSION_MASK;
    memset(kept, 0, rcuckoo_row_bytes(s));
    for (unsigned slot = 0; slot < RCUCKOO_SLOTS; slot++) {
        struct rcuckoo_key key;
        uint8_t tag = 0;
        if (is_empty(s, old, slot))
            continue;
        int rc = prove_entry(v, row, slot, &key, &tag);
        if (rc != FAR_OK)
            return rc;
        v->lost += tag == 0 && !of_another(v, row, slot);
        if (tag == 0 || is_there(v, &key, row, kept))
            continue;
        memcpy(rcuckoo_slot(s, kept, slot), rcuckoo_slot(s, old, slot), 8 * (size_t)s->entry);
        rcuckoo_tags(s, kept)[slot] = tag;
        v->salvaged++;
    }
    *rcuckoo_meta(s, kept) =
        rcuckoo_meta_of(s, rcuckoo_sub_id(v->view, v->sub), row, kept, version);
    memcpy(old, kept, rcuckoo_row_bytes(s));
    return FAR_OK;
}

static int salvage_row(struct salvage *v, unsigned row)
{
    const struct rcuckoo_shape *s = &v->view->shape;
    uint64_t *image = row_of(v, row);
    unsigned bit = rcuckoo_row_flipped(s, rcuckoo_sub_id(v->view, v->sub), row, image);
    int rc = FAR_OK;
    v->salvaged = v->lost = 0;
    if (bit == INDEX_NO_BIT) {
        rc = keep_entries(v, row);
    } else {
        index_flip(image, bit);
        v->salvaged = rcuckoo_row_used(s, image);
    }
    if (rc != FAR_OK)
        return rc;
    batch_write(&v->op->batch, MARK_PLACE, v->sub->rows, rcuckoo_row_at(s, row), image,
                rcuckoo_row_bytes(s));
    rc = batch_flush(&v->op->batch);
    if (rc == FAR_OK)
        index_salvaged(v->report, v->salvaged, v->lost);
    return rc;
}

/* The subtable is closed. */
static int salvage_rows(struct salvage *v)
{
    const struct rcuckoo_shape *s = &v->view->shape;
    v->rows = op_buffer(v->op, BUF_BULK, rcuckoo_rows_bytes(s) + rcuckoo_row_bytes(s));
    if (!v->rows)
        return FAR_NO_MEMORY;
    batch_read(&v->op->batch, v->sub->rows, 0, v->rows, rcuckoo_rows_bytes(s));
    int rc = batch_flush(&v->op->batch);
    for (unsigned i = 0; i < s->rows && rc == FAR_OK; i++)
        if (!is_whole(v, i))
            rc = salvage_row(v, i);
    return rc;
}

/* The subtable is closed. Removes an entry, if it still has its pointer. */
static int remove_entry(struct salvage *v)
{
    const struct rcuckoo_shape *s = &v->view->shape;
    uint64_t id = rcuckoo_sub_id(v->view, v->sub),
             *words = op_buffer(v->op, BUF_BULK, rcuckoo_row_bytes(s));
    unsigned row = v->place / RCUCKOO_SLOTS, slot = v->place % RCUCKOO_SLOTS;
    if (!words)
        return FAR_NO_MEMORY;
    batch_read(&v->op->batch, v->sub->rows, rcuckoo_row_at(s, row), words, rcuckoo_row_bytes(s));
    int rc = batch_flush(&v->op->batch);
    if (rc != FAR_OK || !rcuckoo_row_whole(s, id, row, words) ||
        rcuckoo_tags(s, words)[slot] == 0 || rcuckoo_slot_pointer(s, words, slot) != v->pointer)
        return rc; /* for the next walk */
    unsigned version = (rcuckoo_version(*rcuckoo_meta(s, words)) + 1) & RCUCKOO_VERSION_MASK;
    memset(rcuckoo_slot(s, words, slot), 0, 8 * (size_t)s->entry);
    rcuckoo_tags(s, words)[slot] = 0;
    *rcuckoo_meta(s, words) = rcuckoo_meta_of(s, id, row, words, version);
    batch_write(&v->op->batch, MARK_PLACE, v->sub->rows, rcuckoo_row_at(s, row), words,
                rcuckoo_row_bytes(s));
    rc = batch_flush(&v->op->batch);
    v->removed = rc == FAR_OK;
    return rc;
}

/* Closes the subtable, works on it and opens it. */
static int while_closed(struct salvage *v, int (*work)(struct salvage *v))
{
    struct index_lock_wait wait = {0};
    bool mine = false, rests = false;
    int rc = FAR_OK;
    for (unsigned i = 0; i < CLOSINGS && rc == FAR_OK && !mine; i++)
        rc = rcuckoo_close(v->op, v->view, v->sub, &wait, &mine, &rests);
    if (rc != FAR_OK || !mine)
        return rc;
    rc = work(v);
    if (op_all_known(rc)) {
        int opened = rcuckoo_open(v->op, v->view, v->sub);
        return rc == FAR_OK ? opened : rc;
    }
    client_renounce(v->op);
    return rc;
}

int rcuckoo_salvage(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                    struct index_report *report)
{
    ASSERT(op->batch.count == 0);
    struct salvage v = {.op = op, .view = view, .sub = sub, .report = report};
    return while_closed(&v, salvage_rows);
}

int rcuckoo_remove(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                   unsigned place, uint64_t pointer, bool *done)
{
    ASSERT(place < view->shape.rows * RCUCKOO_SLOTS);
    struct salvage v = {.op = op, .view = view, .sub = sub, .place = place, .pointer = pointer};
    int rc = while_closed(&v, remove_entry);
    *done = v.removed;
    return rc;
}
