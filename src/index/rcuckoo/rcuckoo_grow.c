/*
 * Closing a subtable: to read all of it at one instant, or to split it (RCUCKOO-C11).
 *
 *   close   CAS closer 0 -> me; set S in all lock words; READ them until no lock is held
 *   split   READ rows; WRITE the children; WRITE rows with the moved bit; CAS forward 0 -> children
 *   open    WRITE rows without the moved bit, if they have it; clear S; CAS closer me -> 0
 *
 * After a split S and closer stay as they are.
 */
#include "index/rcuckoo/rcuckoo.h"

/* ---- opening and closing --------------------------------------------------------------------- */

static void add_close(struct op *op, const struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                      uint64_t swap)
{
    for (unsigned i = 0; i < view->shape.words; i++)
        op_mcas(op, MARK_LOCK, sub->part.anchor, rcuckoo_word_at(i), 0, 0, swap, RCUCKOO_CLOSED);
}

int rcuckoo_open(struct op *op, const struct rcuckoo_view *view, const struct rcuckoo_sub *sub)
{
    add_close(op, view, sub, 0);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK) {
        op_cas(op, MARK_LOCK, sub->part.anchor, offsetof(struct rcuckoo_anchor, closer),
               client_owner_word(op->client), 0);
        rc = batch_flush(&op->batch);
    }
    if (rc != FAR_OK)
        client_renounce(op);
    return rc;
}

/* With pauses in between that grow to a millisecond: those that are at work have long unlocked. */
#define DRAIN_LOOKS 24

/* Waits until no lock is held. *held: some still are, after a while: their holders may be dead, and
 * this operation must not hold up their recovery. */
static int drain(struct op *op, const struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                 bool *held)
{
    uint64_t pause_ns = 0, *word = op_buffer(op, BUF_INDEX, 8ull * view->shape.words);
    if (!word)
        return FAR_NO_MEMORY;
    add_close(op, view, sub, RCUCKOO_CLOSED);
    *held = true;
    for (unsigned looks = 0; *held && looks < DRAIN_LOOKS; looks++) {
        if (looks > 0)
            op_pause(op, &pause_ns);
        batch_fence(&op->batch); /* nobody takes a lock from here on */
        batch_read_head(&op->batch, sub->part.anchor, rcuckoo_word_at(0), word,
                        8 * view->shape.words);
        int rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            return rc;
        *held = false;
        for (unsigned i = 0; i < view->shape.words; i++)
            *held |= (word[i] & ~RCUCKOO_CLOSED) != 0;
    }
    return FAR_OK;
}

int rcuckoo_close(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                  struct index_lock_wait *wait, bool *mine, bool *rests)
{
    ASSERT(op->batch.count == 0);
    unsigned n = op_cas(op, MARK_LOCK, sub->part.anchor, offsetof(struct rcuckoo_anchor, closer), 0,
                        client_owner_word(op->client));
    bool held = false;
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK) {
        client_renounce(op);
        return rc;
    }
    if (!op_swapped(op, n))
        return rcuckoo_wait_open(op, view, sub, wait, rests);
    rc = drain(op, view, sub, &held);
    if (rc != FAR_OK)
        client_renounce(op);
    *mine = rc == FAR_OK && !held;
    if (rc != FAR_OK || !held)
        return rc;
    *rests = true;
    return rcuckoo_open(op, view, sub);
}

static void add_rows(struct op *op, const struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                     uint64_t *rows)
{
    batch_read(&op->batch, sub->rows, 0, rows, rcuckoo_rows_bytes(&view->shape));
}

/* Sets or removes the moved bit. True: some row did not have it so. */
static bool set_moved(const struct rcuckoo_shape *s, uint64_t *rows, bool moved)
{
    bool changed = false;
    for (unsigned i = 0; i < s->rows; i++) {
        uint64_t *meta = rcuckoo_meta(s, rows + (size_t)i * s->row);
        changed |= (*meta & RCUCKOO_MOVED) != moved;
        *meta = (*meta & ~(uint64_t)RCUCKOO_MOVED) | moved;
    }
    return changed;
}

/* The closer has died, and this client has taken its place. If there are moved bits, then no lock
 * was held when they were set, and none has been taken since: the rows are constant. */
static int open_for(struct op *op, const struct rcuckoo_view *view, const struct rcuckoo_sub *sub)
{
    const struct rcuckoo_shape *s = &view->shape;
    uint64_t *rows = op_buffer(op, BUF_BULK, rcuckoo_rows_bytes(s));
    if (!rows)
        return FAR_NO_MEMORY;
    add_rows(op, view, sub, rows);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK && set_moved(s, rows, false)) {
        batch_write(&op->batch, MARK_PLACE, sub->rows, 0, rows, rcuckoo_rows_bytes(s));
        batch_fence(&op->batch);
    }
    return rc == FAR_OK ? rcuckoo_open(op, view, sub) : rc;
}

static int take_over(struct op *op, const struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                     uint64_t closer)
{
    unsigned n = op_cas(op, MARK_LOCK, sub->part.anchor, offsetof(struct rcuckoo_anchor, closer),
                        closer, client_owner_word(op->client));
    batch_fence(&op->batch); /* the dead client's last verb may have been the CAS of `forward` */
    unsigned forward = op_read(op, sub->part.anchor, offsetof(struct rcuckoo_anchor, forward));
    int rc = batch_flush(&op->batch);
    bool mine = rc == FAR_OK && op_swapped(op, n);
    if (mine && op_result(op, forward) == 0)
        rc = open_for(op, view, sub);
    if (rc != FAR_OK)
        client_renounce(op);
    return rc;
}

int rcuckoo_wait_open(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                      struct index_lock_wait *wait, bool *rests)
{
    ASSERT(op->batch.count == 0);
    struct rcuckoo_anchor anchor;
    enum index_lock_state state = INDEX_LOCK_HELD;
    bool split = false;
    int rc = rcuckoo_read_anchor(op, view, sub, &anchor);
    if (rc == FAR_OK)
        rc = rcuckoo_know(op, view, sub, &anchor, &split);
    if (rc != FAR_OK || split || anchor.closer == 0)
        return rc;
    rc = index_lock_wait(op, wait, anchor.closer, &state);
    if (rc == FAR_OK && state == INDEX_LOCK_ORPHANED)
        rc = take_over(op, view, sub, anchor.closer);
    *rests = state == INDEX_LOCK_OVERDUE;
    return rc;
}

/* Is the subtable closed while `closer` has this name? */
static int closed_by(struct op *op, const struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                     uint64_t closer, bool *closed)
{
    const uint64_t delta = offsetof(struct rcuckoo_anchor, closer);
    uint64_t set = 0, *word = op_buffer(op, BUF_INDEX, 8ull * view->shape.words);
    if (!word)
        return FAR_NO_MEMORY;
    unsigned before = op_read_head(op, sub->part.anchor, delta);
    batch_fence(&op->batch);
    batch_read_head(&op->batch, sub->part.anchor, rcuckoo_word_at(0), word, 8 * view->shape.words);
    batch_fence(&op->batch);
    unsigned after = op_read_head(op, sub->part.anchor, delta);
    int rc = batch_flush(&op->batch);
    for (unsigned i = 0; i < view->shape.words && rc == FAR_OK; i++)
        set |= word[i] & RCUCKOO_CLOSED;
    *closed = rc == FAR_OK && set != 0 && op_result(op, before) == closer &&
              op_result(op, after) == closer;
    return rc;
}

int rcuckoo_check_closed(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                         struct index_report *report)
{
    struct rcuckoo_anchor anchor;
    bool alive = false, closed = false;
    int rc = rcuckoo_read_anchor(op, view, sub, &anchor);
    if (rc != FAR_OK || anchor.forward != 0)
        return rc;
    if (anchor.closer != 0)
        rc = client_owner_alive(op, anchor.closer, &alive);
    if (rc == FAR_OK && !alive) /* it may have opened the subtable, and left, meanwhile */
        rc = closed_by(op, view, sub, anchor.closer, &closed);
    if (rc != FAR_OK || !closed)
        return rc;
    index_stranded(report, "RCUCKOO-W7: the subtable is closed (depth %u, suffix %llu)",
                   sub->part.depth, (unsigned long long)sub->part.suffix);
    if (!report->repair)
        return FAR_OK;
    rc = take_over(op, view, sub, anchor.closer);
    if (rc == FAR_OK)
        index_repaired(report, &report->stranded, "  repaired: opened");
    return rc;
}

/* ---- reading all of it ----------------------------------------------------------------------- */

/* Is every entry that was there all the time in one of the two images? Suppose that one is in
 * neither. It was moved while the rows were read the second time: from a row that was read behind
 * the move. In that row's first image it is not. So that row was written twice in between. */
static bool complete(const struct rcuckoo_view *view, const struct rcuckoo_snapshot *snap)
{
    const struct rcuckoo_shape *s = &view->shape;
    for (unsigned i = 0; i < s->rows; i++) {
        unsigned before = rcuckoo_version(snap->before[(i + 1ull) * s->row - 1]);
        unsigned after = rcuckoo_version(snap->rows[(i + 1ull) * s->row - 1]);
        if (((after - before) & RCUCKOO_VERSION_MASK) > 1)
            return false;
    }
    return true;
}

/* How many rows are not whole. */
static unsigned torn(const struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                     const uint64_t *rows)
{
    const struct rcuckoo_shape *s = &view->shape;
    uint64_t id = rcuckoo_sub_id(view, sub);
    unsigned count = 0;
    for (unsigned i = 0; i < s->rows; i++)
        count += !rcuckoo_row_whole(s, id, i, rows + (size_t)i * s->row);
    return count;
}

/* One look at the rows, while others may change them. *good: it is complete. */
static int snapshot_look(struct op *op, struct rcuckoo_view *view, struct rcuckoo_snapshot *snap,
                         bool *good)
{
    const struct rcuckoo_sub *sub = &snap->sub;
    struct rcuckoo_anchor *anchor = op_buffer(op, BUF_INDEX, sizeof *anchor);
    if (!anchor)
        return FAR_NO_MEMORY;
    for (unsigned i = 0; i < 2; i++) {
        add_rows(op, view, sub, i == 0 ? snap->before : snap->rows);
        batch_may_be_freed(&op->batch);
        batch_fence(&op->batch);
    }
    batch_read(&op->batch, sub->part.anchor, 0, anchor, sizeof *anchor); /* RCUCKOO-C11 */
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        rc = rcuckoo_judge_anchor(view, sub, anchor);
    if (rc == FAR_OK)
        rc = rcuckoo_know(op, view, sub, anchor, &snap->split);
    *good = rc == FAR_OK && !snap->split && torn(view, sub, snap->before) == 0 &&
            torn(view, sub, snap->rows) == 0 && complete(view, snap);
    return rc;
}

/* Under S. */
static int snapshot_closed(struct op *op, struct rcuckoo_view *view, struct rcuckoo_snapshot *snap,
                           struct index_lock_wait *wait, bool *good)
{
    bool mine = false, rests = false;
    int rc = rcuckoo_close(op, view, &snap->sub, wait, &mine, &rests);
    if (rc == FAR_OK && mine) {
        add_rows(op, view, &snap->sub, snap->rows);
        rc = batch_flush(&op->batch);
        int opened = rcuckoo_open(op, view, &snap->sub);
        rc = rc == FAR_OK ? opened : rc;
        snap->before = snap->rows;
        snap->damaged = rc == FAR_OK ? torn(view, &snap->sub, snap->rows) : 0;
        *good = true;
    }
    /* The walks of sweeps and drops are one operation each: they look again. */
    bool may_rest = !view->base.table->dropped_too;
    return rc == FAR_OK && rests && may_rest ? index_lock_rest(op, &view->base, wait) : rc;
}

#define SNAPSHOT_LOOKS 4

int rcuckoo_snapshot(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                     struct rcuckoo_snapshot *snap)
{
    ASSERT(op->batch.count == 0);
    const struct rcuckoo_shape *s = &view->shape;
    struct index_lock_wait wait = {0};
    bool good = false;
    int rc = FAR_OK;
    uint64_t *rows = op_buffer(op, BUF_BULK, 2ull * rcuckoo_rows_bytes(s));
    if (!rows)
        return FAR_NO_MEMORY;
    *snap = (struct rcuckoo_snapshot){.sub = *sub};
    for (unsigned attempts = 0; rc == FAR_OK && !good && !snap->split; attempts++) {
        snap->before = rows;
        snap->rows = rows + (size_t)s->rows * s->row;
        if (attempts == RCUCKOO_CLOSINGS)
            rc = FAR_CONTENTION;
        else if (attempts >= SNAPSHOT_LOOKS)
            rc = snapshot_closed(op, view, snap, &wait, &good);
        if (rc == FAR_OK && !good) /* or another client has closed it, or split it */
            rc = snapshot_look(op, view, snap, &good);
    }
    return rc;
}

bool rcuckoo_snapshot_whole(const struct rcuckoo_view *view, const struct rcuckoo_snapshot *snap,
                            unsigned row)
{
    ASSERT(row < view->shape.rows);
    const struct rcuckoo_shape *s = &view->shape;
    return snap->damaged == 0 || rcuckoo_row_whole(s, rcuckoo_sub_id(view, &snap->sub), row,
                                                   rcuckoo_snapshot_row(s, snap, row));
}

uint64_t *rcuckoo_snapshot_gone(const struct rcuckoo_shape *s, const struct rcuckoo_snapshot *snap,
                                unsigned row, unsigned slot)
{
    uint64_t *before = snap->before + (size_t)row * s->row,
             *after = snap->rows + (size_t)row * s->row;
    bool same =
        rcuckoo_version(*rcuckoo_meta(s, before)) == rcuckoo_version(*rcuckoo_meta(s, after));
    unsigned tag = rcuckoo_tags(s, before)[slot];
    bool gone = !same && tag != 0 &&
                (tag != rcuckoo_tags(s, after)[slot] ||
                 memcmp(rcuckoo_slot(s, before, slot), rcuckoo_slot(s, after, slot),
                        8 * (size_t)s->entry) != 0);
    return gone ? before : NULL;
}

/* ---- splitting ------------------------------------------------------------------------------- */

struct split {
    const struct rcuckoo_sub *parent;
    gaddr anchor[2], rows[2];
    uint64_t *old, *image[2]; /* in BUF_BULK */
    char *anchors;
    unsigned keys;
};

static void give_back(struct op *op, const struct rcuckoo_shape *s, const struct split *p)
{
    for (unsigned i = 0; i < 2; i++) {
        if (p->rows[i] != 0)
            pool_free_unpublished(op->client, p->rows[i], rcuckoo_rows_class(s));
        if (p->anchor[i] != 0)
            pool_free_unpublished(op->client, p->anchor[i], rcuckoo_anchor_class(s));
    }
}

static int allocate_on(struct op *op, const struct rcuckoo_shape *s, unsigned node, struct split *p)
{
    int rc = FAR_OK;
    for (unsigned i = 0; i < 2; i++)
        p->anchor[i] = p->rows[i] = 0;
    for (unsigned i = 0; i < 4 && rc == FAR_OK; i++)
        rc = i < 2 ? pool_alloc_on(op, node, rcuckoo_rows_class(s), &p->rows[i])
                   : pool_alloc_on(op, node, rcuckoo_anchor_class(s), &p->anchor[i - 2]);
    if (rc != FAR_OK)
        give_back(op, s, p);
    return rc;
}

/* Memory for the children: on the parent's node, or else on another one, but all on the same. */
static int allocate(struct op *op, const struct rcuckoo_shape *s, struct split *p)
{
    unsigned nodes = op->pool->nodes, first = gaddr_node(p->parent->part.anchor);
    int rc = FAR_POOL_FULL;
    for (unsigned i = 0; i < nodes && rc == FAR_POOL_FULL; i++)
        rc = allocate_on(op, s, (first + i) % nodes, p);
    return rc;
}

static uint64_t *child_row(const struct rcuckoo_shape *s, const struct split *p, unsigned half,
                           unsigned i)
{
    return p->image[half] + (size_t)i * s->row;
}

/* Sends each entry of a row to a child, in the row and slot where it was. */
static int divide_row(const struct rcuckoo_view *view, struct split *p, unsigned i)
{
    const struct rcuckoo_shape *s = &view->shape;
    uint64_t *old = p->old + (size_t)i * s->row;
    for (unsigned h = 0; h < 2; h++)
        memset(child_row(s, p, h, i), 0, rcuckoo_row_bytes(s));
    for (unsigned slot = 0; slot < RCUCKOO_SLOTS; slot++) {
        uint64_t hash = 0;
        if (rcuckoo_tags(s, old)[slot] == 0)
            continue;
        if (!rcuckoo_slot_hash(view, old, slot, &hash))
            return index_damaged(view->base.table, "an entry");
        unsigned half = (hash & rcuckoo_hash_mask(view)) >> p->parent->part.depth & 1;
        uint64_t *row = child_row(s, p, half, i);
        memcpy(rcuckoo_slot(s, row, slot), rcuckoo_slot(s, old, slot), 8 * (size_t)s->entry);
        rcuckoo_tags(s, row)[slot] = rcuckoo_tags(s, old)[slot];
        p->keys++;
    }
    for (unsigned h = 0; h < 2; h++) {
        uint64_t *row = child_row(s, p, h, i);
        *rcuckoo_meta(s, row) = rcuckoo_meta_of(s, rcuckoo_child_id(view, p->parent, h), i, row, 0);
    }
    return FAR_OK;
}

/* RCUCKOO-C13: a damaged row becomes two that are. If one flipped bit explains the damage, each
 * gets what is its own, and the same bit is flipped there: a repair finds it, as it would have
 * before. Otherwise each gets all that is there, with a checksum that no single bit makes right. */
static int divide_damaged(const struct rcuckoo_view *view, struct split *p, unsigned i)
{
    const struct rcuckoo_shape *s = &view->shape;
    uint64_t *old = p->old + (size_t)i * s->row;
    unsigned bit = rcuckoo_row_flipped(s, rcuckoo_sub_id(view, p->parent), i, old);
    int rc = FAR_OK;
    if (bit != INDEX_NO_BIT) {
        index_flip(old, bit);
        rc = divide_row(view, p, i);
        index_flip(old, bit);
    }
    for (unsigned h = 0; h < 2; h++) {
        uint64_t *row = child_row(s, p, h, i), id = rcuckoo_child_id(view, p->parent, h);
        if (bit != INDEX_NO_BIT) {
            index_flip(row, bit);
            continue;
        }
        memcpy(row, old, rcuckoo_row_bytes(s));
        *rcuckoo_meta(s, row) = rcuckoo_meta_of(s, id, i, row, 0) ^ RCUCKOO_CHECKSUM_MASK;
    }
    return rc;
}

static int divide(const struct rcuckoo_view *view, struct split *p)
{
    const struct rcuckoo_shape *s = &view->shape;
    uint64_t id = rcuckoo_sub_id(view, p->parent);
    int rc = FAR_OK;
    for (unsigned i = 0; i < s->rows && rc == FAR_OK; i++) {
        bool whole = rcuckoo_row_whole(s, id, i, p->old + (size_t)i * s->row);
        rc = whole ? divide_row(view, p, i) : divide_damaged(view, p, i);
    }
    return rc;
}

/* Writes the children, and reads the root's word for the directory. */
static int write_children(struct op *op, const struct rcuckoo_view *view, struct split *p,
                          uint64_t *word)
{
    const struct rcuckoo_shape *s = &view->shape;
    uint32_t bytes = rcuckoo_anchor_bytes(s);
    memset(p->anchors, 0, 2 * (size_t)bytes);
    for (unsigned h = 0; h < 2; h++) {
        char *anchor = p->anchors + (size_t)h * bytes;
        rcuckoo_anchor_init((struct rcuckoo_anchor *)anchor, rcuckoo_child_id(view, p->parent, h),
                            s, p->rows[h], h == 0 ? p->anchor[1] : 0);
        batch_write(&op->batch, MARK_EARLY, p->rows[h], 0, p->image[h], rcuckoo_rows_bytes(s));
        batch_write(&op->batch, MARK_EARLY, p->anchor[h], 0, anchor, bytes);
    }
    unsigned n = op_read(op, view->root, offsetof(struct rcuckoo_root, directory));
    int rc = batch_flush(&op->batch);
    *word = op_result(op, n);
    return rc;
}

/* From the CAS of `forward` on, the children are the table's. */
static int publish(struct op *op, struct rcuckoo_view *view, struct split *p, uint64_t word,
                   const uint64_t **directory)
{
    const struct rcuckoo_shape *s = &view->shape;
    const struct rcuckoo_sub *sub = p->parent;
    (void)set_moved(s, p->old, true);
    batch_write(&op->batch, MARK_PLACE, sub->rows, 0, p->old, rcuckoo_rows_bytes(s));
    batch_fence(&op->batch); /* RCUCKOO-C11 */
    unsigned n = op_cas(op, MARK_PUBLISH, sub->part.anchor,
                        offsetof(struct rcuckoo_anchor, forward), 0, p->anchor[0]);
    if (index_parts_doubles(&view->parts, word, &sub->part)) {
        uint64_t *image = op_buffer(op, BUF_INDEX, 8ull << index_deep_depth(word));
        if (image)
            batch_read(&op->batch, index_deep_at(word), 0, image, 8u << index_deep_depth(word));
        *directory = image;
    }
    int rc = batch_flush(&op->batch);
    return rc == FAR_OK && !op_swapped(op, n) /* only the closer sets it */
               ? index_damaged(view->base.table, "an anchor")
               : rc;
}

/* The split has been made: tells this session and all others. */
static void announce(struct op *op, struct rcuckoo_view *view, const struct split *p, uint64_t word,
                     const uint64_t *directory)
{
    const struct rcuckoo_shape *s = &view->shape;
    const struct rcuckoo_sub *sub = p->parent;
    pool_retire(op->client, sub->rows, rcuckoo_rows_class(s));
    (void)index_parts_know_split(&view->parts, &sub->part, p->anchor); /* else it is found again */
    index_grew(&view->base, sub->part.anchor, p->anchor, 2,
               (double)p->keys / (s->rows * RCUCKOO_SLOTS));
    index_parts_advise(op, &view->parts, &sub->part, p->anchor, word, directory);
}

/* The subtable is closed. */
static int split_closed(struct op *op, struct rcuckoo_view *view, struct split *p, bool *published)
{
    const uint64_t *directory = NULL;
    uint64_t word = 0;
    add_rows(op, view, p->parent, p->old);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        rc = divide(view, p);
    if (rc == FAR_OK)
        rc = write_children(op, view, p, &word);
    if (rc != FAR_OK)
        return rc;
    *published = true;
    rc = publish(op, view, p, word, &directory);
    if (rc == FAR_OK)
        announce(op, view, p, word, directory);
    return rc;
}

int rcuckoo_split(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                  struct index_lock_wait *wait, bool *rests)
{
    ASSERT(op->batch.count == 0);
    const struct rcuckoo_shape *s = &view->shape;
    struct split p = {.parent = sub};
    size_t bytes = rcuckoo_rows_bytes(s);
    bool mine = false, published = false;
    int rc = allocate(op, s, &p);
    if (rc != FAR_OK)
        return rc;
    char *image = op_buffer(op, BUF_BULK, 3 * bytes + 2ull * rcuckoo_anchor_bytes(s));
    rc = image ? rcuckoo_close(op, view, sub, wait, &mine, rests) : FAR_NO_MEMORY;
    if (rc == FAR_OK && mine) {
        p.old = (uint64_t *)image;
        p.image[0] = (uint64_t *)(image + bytes);
        p.image[1] = (uint64_t *)(image + 2 * bytes);
        p.anchors = image + 3 * bytes;
        rc = split_closed(op, view, &p, &published);
    }
    if (published && rc == FAR_OK)
        return rc;
    if (op_all_known(rc) && !published) {
        give_back(op, s, &p);
    } else {
        pool_abandon_bytes(op->client, 2ull * (size_class_bytes(rcuckoo_rows_class(s)) +
                                               size_class_bytes(rcuckoo_anchor_class(s))));
    }
    if (mine && op_all_known(rc) && !published)
        (void)rcuckoo_open(op, view, sub);
    else if (mine)
        client_renounce(op);
    return rc;
}
