/* get: both rows. If the key is in neither, the first one's meta word once more. Or only the row
 * and the block that a hint names. */
#include "index/ahead.h"
#include "index/rcuckoo/rcuckoo.h"

/* Looks that may go wrong, because a row is being written, before the lock is looked at. */
#define TORN_LOOKS 8

struct look {
    struct rcuckoo_key key;
    struct rcuckoo_sub sub;
    bool doubtful; /* the last look found something wrong: the anchor is read, too */
    bool twice;    /* the second look is in the batch of the first one */
    unsigned torn; /* looks in a row that found a torn row */
    uint64_t stale;
    uint64_t *row[2];
    struct index_hint hint;
    uint64_t *meta; /* of the rows once more, each where it is in its row */
    struct rcuckoo_anchor *anchor;
    struct index_lock_wait wait;
    bool rested; /* it has waited for a writer, which index_lock_rest() bounds */
};

static unsigned low_of(const struct look *l)
{
    return l->key.row[0] < l->key.row[1] ? 0 : 1;
}

/* Adjacent rows are read by one READ (RCUCKOO-C4). */
static bool adjacent(const struct look *l)
{
    unsigned low = low_of(l);
    return l->key.row[!low] - l->key.row[low] == 1;
}

/* Adds the second look: the meta word of A, or of both rows if one READ has read them. */
static void add_second_look(struct op *op, const struct rcuckoo_view *view, const struct look *l)
{
    const struct rcuckoo_shape *s = &view->shape;
    unsigned low = low_of(l), first = adjacent(l) ? low : 0;
    uint64_t *to = rcuckoo_meta(s, l->meta) + (first == low ? 0 : s->row);
    uint32_t bytes = rcuckoo_row_bytes(s);
    batch_read(&op->batch, l->sub.rows, rcuckoo_row_at(s, l->key.row[first]) + bytes - 8, to,
               adjacent(l) ? bytes + 8 : 8);
    batch_may_be_freed(&op->batch);
}

/* A miss needs a second look, and a hit does not. If the session's last looks all found their keys,
 * the next one does without, and takes a round trip more if it finds nothing. Let p be the part of
 * the gets that miss: that adds p * (1 - p)^64 round trips to a get, at most 0.006. */
static bool looks_twice(const struct rcuckoo_view *view)
{
    return view->hits < view->base.table->pool->knobs.hits;
}

/* Adds the READs. */
static int add_reads(struct op *op, const struct rcuckoo_view *view, struct look *l)
{
    const struct rcuckoo_shape *s = &view->shape;
    struct batch *b = &op->batch;
    uint32_t bytes = rcuckoo_row_bytes(s);
    const unsigned *row = l->key.row;
    unsigned low = low_of(l);
    uint64_t *image = op_buffer(op, BUF_INDEX, 4ull * bytes + sizeof *l->anchor);
    if (!image)
        return FAR_NO_MEMORY;
    l->row[low] = image;
    l->row[!low] = image + s->row;
    l->meta = image + 2ull * s->row;
    l->anchor = (struct rcuckoo_anchor *)(image + 4ull * s->row);
    if (adjacent(l)) {
        batch_read(b, l->sub.rows, rcuckoo_row_at(s, row[low]), image, 2 * bytes);
        batch_may_be_freed(b);
    } else {
        batch_read(b, l->sub.rows, rcuckoo_row_at(s, row[0]), l->row[0], bytes);
        batch_may_be_freed(b);
        batch_fence(b); /* RCUCKOO-C4 */
        batch_read(b, l->sub.rows, rcuckoo_row_at(s, row[1]), l->row[1], bytes);
        batch_may_be_freed(b);
    }
    if (l->twice) {
        batch_fence(b); /* RCUCKOO-C4 */
        add_second_look(op, view, l);
    }
    if (l->doubtful) {
        batch_fence(b); /* RCUCKOO-C11: `forward` behind the rows */
        batch_read(b, l->sub.part.anchor, 0, l->anchor, sizeof *l->anchor);
    }
    return FAR_OK;
}

/* Are the meta words the same at the second look? */
static bool unchanged(const struct rcuckoo_view *view, const struct look *l)
{
    const struct rcuckoo_shape *s = &view->shape;
    unsigned low = low_of(l);
    const uint64_t *second[2];
    second[low] = rcuckoo_meta(s, l->meta);
    second[!low] = second[low] + s->row;
    bool same = *second[0] == *rcuckoo_meta(s, l->row[0]);
    if (adjacent(l))
        same = same && *second[1] == *rcuckoo_meta(s, l->row[1]);
    return same;
}

/* RCUCKOO-C4: takes the second look, if the batch did not have it. *again: it shows a change. */
static int look_twice(struct op *op, const struct rcuckoo_view *view, const struct look *l,
                      bool *again)
{
    int rc = FAR_OK;
    if (!l->twice) {
        add_second_look(op, view, l);
        rc = batch_flush(&op->batch);
    }
    *again = rc == FAR_OK && !unchanged(view, l);
    return rc;
}

static bool whole(const struct rcuckoo_view *view, const struct look *l, unsigned i)
{
    return rcuckoo_row_whole(&view->shape, rcuckoo_sub_id(view, &l->sub), l->key.row[i], l->row[i]);
}

/* May the row be judged? RCUCKOO-C1, and for a row that was moved RCUCKOO-C11. */
static bool counts(const struct rcuckoo_view *view, const struct look *l, unsigned i)
{
    bool moved = *rcuckoo_meta(&view->shape, l->row[i]) & RCUCKOO_MOVED;
    return (!moved || l->doubtful) && whole(view, l, i);
}

/* ---- hints ----------------------------------------------------------------------------------- */

static uint64_t hint_mark(const struct rcuckoo_key *key)
{
    return key->hash >> 20 & slot_fingerprint_mask(RCUCKOO_HINT) >> RCUCKOO_HINT.fingerprint_at;
}

struct index_hint rcuckoo_hint(const struct op *op, const struct rcuckoo_view *view,
                               const struct rcuckoo_sub *sub, const struct rcuckoo_key *key)
{
    const struct index_hint none = {.slot = 0};
    if (key->inside && !view->blocks)
        return none;
    struct index_hint hint = index_hint_of(view->hints, RCUCKOO_HINT, key->hash, hint_mark(key));
    hint.slot &= ~slot_fingerprint_mask(RCUCKOO_HINT);
    uint32_t bytes = size_class_bytes(pointer_class(hint.slot));
    /* HINT-H4: it may be anything. On another node, the block takes a round trip of its own. */
    bool good = hint.slot != 0 && hint.place < 2 * RCUCKOO_SLOTS &&
                gaddr_node(pointer_gaddr(hint.slot)) == gaddr_node(sub->rows) &&
                index_block_inside(op, hint.slot, bytes) != 0;
    return good ? hint : none;
}

void rcuckoo_hint_note(struct rcuckoo_view *view, const struct rcuckoo_key *key,
                       struct index_hint now)
{
    ASSERT(now.place < 2 * RCUCKOO_SLOTS);
    view->blocks |= now.slot != 0;
    if (now.slot != 0)
        now.slot |= slot_fingerprint_word(RCUCKOO_HINT, hint_mark(key));
    index_hint_note(view->hints, RCUCKOO_HINT, key->hash, hint_mark(key), now);
}

/* What a get has found; pointer 0: no block. */
static void note(struct rcuckoo_view *view, const struct look *l, uint64_t pointer, unsigned place)
{
    struct index_hint now = {.slot = pointer, .place = place, .wrong = l->hint.slot != 0};
    if (pointer != l->hint.slot || (pointer != 0 && place != l->hint.place))
        rcuckoo_hint_note(view, &l->key, now);
}

void rcuckoo_hint_read(struct op *op, const struct index_hint *hint, struct index_block *block)
{
    uint32_t bytes = size_class_bytes(pointer_class(hint->slot));
    void *image = op_buffer(op, BUF_BLOCK_IN, bytes);
    *block = (struct index_block){.slot = 0};
    if (!image)
        return;
    *block = (struct index_block){
        .slot = hint->slot, .bytes = bytes, .place = hint->place, .image = image};
    batch_fence(&op->batch); /* HINT-H1 */
    batch_read(&op->batch, pointer_gaddr(hint->slot), 0, image, bytes);
    batch_may_be_freed(&op->batch);
}

/* ---- judging --------------------------------------------------------------------------------- */

/* The value of the entry in a slot. *stale: a block that was not whole. */
static int deliver(struct op *op, struct rcuckoo_view *view, struct look *l, unsigned i,
                   unsigned candidates, struct value_out *out, bool *found,
                   struct index_found *stale)
{
    const struct rcuckoo_shape *s = &view->shape;
    uint64_t words[RCUCKOO_SLOTS];
    struct rcuckoo_entry e;
    unsigned slot = (unsigned)__builtin_ctz(candidates);
    int rc = rcuckoo_slot_entry(view, l->row[i], slot, &e);
    if (rc != FAR_OK)
        return rc;
    *found = e.kind != RCUCKOO_KEY_OUT;
    if (e.kind == RCUCKOO_INLINE) {
        note(view, l, 0, 0);
        return index_deliver(&view->base, rcuckoo_slot_value(s, l->row[i], slot, e), out);
    }
    if (out->skip && *found)
        return FAR_OK;
    for (slot = 0; slot < RCUCKOO_SLOTS; slot++)
        words[slot] = rcuckoo_slot_pointer(s, l->row[i], slot);
    struct index_probe probe = {.key = l->key.bytes, .format = RCUCKOO_POINTER, .out = out};
    struct index_found block;
    rc = index_probe(op, &probe, words, candidates, &block);
    *found = rc == FAR_OK && block.place >= 0;
    if (*found)
        note(view, l, block.slot, i * RCUCKOO_SLOTS + (unsigned)block.place);
    if (*found)
        return index_deliver(&view->base, index_block_value(block.block), out);
    if (rc == FAR_OK)
        index_found_also(stale, block.stale);
    return rc;
}

/* Judges what was read. *again: it says nothing. */
static int judge(struct op *op, struct rcuckoo_view *view, struct look *l, struct value_out *out,
                 bool *again)
{
    struct index_found stale = {.place = -1};
    bool torn = false;
    int rc = FAR_OK;
    view->hits++;
    for (unsigned i = 0; i < 2; i++) {
        bool found = false, good = counts(view, l, i);
        unsigned candidates = good ? rcuckoo_candidates(&view->shape, &l->key, l->row[i]) : 0;
        rc = candidates ? deliver(op, view, l, i, candidates, out, &found, &stale) : FAR_OK;
        if (found || rc != FAR_OK)
            return rc; /* RCUCKOO-C3 */
        torn |= !good;
    }
    view->hits = 0;
    l->torn = torn ? l->torn + 1 : 0;
    *again = torn;
    if (!torn)
        rc = look_twice(op, view, l, again);
    if (rc != FAR_OK || *again)
        return rc;
    if (stale.stale == 0) {
        note(view, l, 0, 0);
        return FAR_NOT_FOUND;
    }
    *again = true; /* it is in neither row, as far as their blocks are whole (BLOCKS-1) */
    return index_found_stale(&stale, &l->stale);
}

/* A row is torn again and again. Its meta word, its lock, the row, its lock, its meta word: if the
 * lock is free both times, and the version the same, then the WRITE of that version had ended
 * before the row was read, and the next one has not begun. So a row that is not whole then is
 * damaged. If the lock is held, its writer may be dead, and this waits for others, or for itself,
 * to recover it. */
static int wait_for_writer(struct op *op, struct rcuckoo_view *view, struct look *l)
{
    const struct rcuckoo_shape *s = &view->shape;
    struct batch *b = &op->batch;
    uint32_t bytes = rcuckoo_row_bytes(s);
    unsigned bad = whole(view, l, 0) ? 1 : 0, row = l->key.row[bad], meta[2], word[2];
    uint64_t *image = op_buffer(op, BUF_INDEX, bytes), at = rcuckoo_row_at(s, row);
    uint64_t lock_at = rcuckoo_word_at(rcuckoo_lock_word(s, row));
    if (!image)
        return FAR_NO_MEMORY;
    meta[0] = op_read(op, l->sub.rows, at + bytes - 8);
    batch_may_be_freed(b);
    batch_fence(b);
    word[0] = op_read_head(op, l->sub.part.anchor, lock_at);
    batch_fence(b);
    batch_read(b, l->sub.rows, at, image, bytes);
    batch_may_be_freed(b);
    batch_fence(b);
    word[1] = op_read_head(op, l->sub.part.anchor, lock_at);
    batch_fence(b);
    meta[1] = op_read(op, l->sub.rows, at + bytes - 8);
    batch_may_be_freed(b);
    int rc = batch_flush(b);
    if (rc != FAR_OK)
        return rc;
    bool held = (op_result(op, word[0]) | op_result(op, word[1])) & rcuckoo_lock_bit(s, row);
    bool same = op_result(op, meta[0]) == op_result(op, meta[1]);
    bool torn = !rcuckoo_row_whole(s, rcuckoo_sub_id(view, &l->sub), row, image);
    if (torn && !held && same)
        return rcuckoo_row_damaged(view, row);
    l->torn = 0;
    l->rested = torn && held;
    return l->rested ? index_lock_rest(op, &view->base, &l->wait) : FAR_OK;
}

/* Something was wrong with the rows. If they were moved, the session learns where to. */
static int doubt(struct op *op, struct rcuckoo_view *view, struct look *l)
{
    bool split = false;
    int rc = l->doubtful ? rcuckoo_judge_anchor(view, &l->sub, l->anchor) : FAR_OK;
    if (rc == FAR_OK && l->doubtful)
        rc = rcuckoo_know(op, view, &l->sub, l->anchor, &split);
    l->doubtful = !split;
    if (split)
        l->torn = 0;
    if (rc == FAR_OK && l->torn >= TORN_LOOKS)
        rc = wait_for_writer(op, view, l);
    return rc;
}

/* Reads the row and the block that a hint names, in one round trip. *found: the key was there, or
 * its row says that it has another block now. Otherwise it may be anywhere. */
static int peek(struct op *op, struct rcuckoo_view *view, struct look *l, struct value_out *out,
                bool *found)
{
    const struct rcuckoo_shape *s = &view->shape;
    struct batch *b = &op->batch;
    unsigned i = l->hint.place / RCUCKOO_SLOTS, slot = l->hint.place % RCUCKOO_SLOTS;
    struct index_found at = {.place = -1}, stale = {.place = -1};
    struct index_block block;
    uint64_t *row = op_buffer(op, BUF_INDEX, rcuckoo_row_bytes(s));
    if (!row)
        return FAR_NO_MEMORY;
    l->row[i] = row;
    batch_read(b, l->sub.rows, rcuckoo_row_at(s, l->key.row[i]), row, rcuckoo_row_bytes(s));
    batch_may_be_freed(b);
    rcuckoo_hint_read(op, &l->hint, &block);
    int rc = batch_flush(b);
    if (rc != FAR_OK || !counts(view, l, i))
        return rc;
    unsigned candidates = rcuckoo_candidates(s, &l->key, row);
    struct index_probe probe = {.key = l->key.bytes, .format = RCUCKOO_POINTER, .out = out};
    if (block.slot == 0 || !(candidates >> slot & 1) ||
        !rcuckoo_slot_names(s, row, slot, block.slot))
        return candidates ? deliver(op, view, l, i, candidates, out, found, &stale) : FAR_OK;
    *found = index_probe_judge(&probe, &block, &at); /* RCUCKOO-C3 */
    return *found ? index_deliver(&view->base, index_block_value(at.block), out) : FAR_OK;
}

/* Begins with the hint, if there is one. Who asks whether a key is there that is inline needs no
 * block. */
static int begin(struct op *op, struct rcuckoo_view *view, struct look *l, struct value_out *out,
                 bool *found)
{
    int rc = rcuckoo_find(op, view, l->key.hash, &l->sub);
    if (rc != FAR_OK || (out->skip && l->key.inside))
        return rc;
    l->hint = rcuckoo_hint(op, view, &l->sub, &l->key);
    return l->hint.slot != 0 ? peek(op, view, l, out, found) : FAR_OK;
}

int rcuckoo_get(struct op *op, struct index_view *base, struct slice key, struct value_out *out)
{
    struct rcuckoo_view *view = rcuckoo_view(base);
    struct look l = {.torn = 0};
    bool found = false;
    rcuckoo_key_set(view, key, &l.key);
    int rc = begin(op, view, &l, out, &found);
    if (found || rc != FAR_OK)
        return rc;
    for (unsigned attempts = 0; index_attempt(&attempts);) {
        bool again = false;
        rc = rcuckoo_find(op, view, l.key.hash, &l.sub);
        l.twice = looks_twice(view);
        if (rc == FAR_OK)
            rc = add_reads(op, view, &l);
        if (rc == FAR_OK)
            rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            return rc;
        bool split = l.doubtful && l.anchor->forward != 0;
        if (!split)
            rc = judge(op, view, &l, out, &again);
        if (rc != FAR_OK || !(split || again))
            return rc;
        rc = doubt(op, view, &l);
        if (rc != FAR_OK)
            return rc;
        if (l.rested)
            attempts = 0;
        l.rested = false;
    }
    return FAR_CONTENTION;
}

void rcuckoo_ahead(const struct op *op, const struct index_view *base, struct slice bytes,
                   struct index_ahead *ahead)
{
    (void)ahead; /* the words of an entry do not tell which block it is in */
    const struct rcuckoo_view *view = (const struct rcuckoo_view *)base;
    const struct rcuckoo_shape *s = &view->shape;
    struct rcuckoo_key key;
    rcuckoo_key_set(view, bytes, &key);
    const struct rcuckoo_sub *sub =
        (const struct rcuckoo_sub *)index_part_of(&view->parts, key.hash);
    if (sub->rows == 0)
        return;
    for (unsigned i = 0; i < 2; i++)
        index_ahead_fetch(op, sub->rows, rcuckoo_row_at(s, key.row[i]), rcuckoo_row_bytes(s));
    struct index_hint hint = index_hint_peek(view->hints, RCUCKOO_HINT, key.hash, hint_mark(&key));
    index_ahead_block(op, hint.slot);
}
