/*
 * Walking the whole table: to count what is in it, to mark what it reaches, and to prove on a quiet
 * table that
 *
 *   RCUCKOO-W1  every anchor that is found from the first ones is whole, and of the right depth and
 *       suffix (PARTS-1);
 *   RCUCKOO-W2  every row agrees with its checksum (RCUCKOO-C1);
 *   RCUCKOO-W3  every entry is in its subtable, and in one of its two rows;
 *   RCUCKOO-W4  no key is there twice (RCUCKOO-C2);
 *   RCUCKOO-W5  every entry with a block leads to a whole one of its key (RCUCKOO-C12);
 *   RCUCKOO-W6  every entry of the directory leads to an anchor of its suffix (PARTS-2);
 *   RCUCKOO-W7  locks, R and S are set only for clients that are alive (RCUCKOO-C9, RCUCKOO-C11).
 */
#include "index/parts_walk.h"
#include "index/rcuckoo/rcuckoo.h"

#define LOOK_PAUSE_NS 1000000u /* so that most moves of keys are over */

enum fault { MISPLACED, TWICE, UNREADABLE };

struct walk {
    struct index_walk base;
    struct rcuckoo_view *view;
    struct index_parts_walk parts;
    struct rcuckoo_snapshot snapshot;
};

static void mark(struct walk *w, gaddr at, unsigned size_class)
{
    index_walk_object(&w->base.info, w->base.marker, at, size_class);
}

/* ---- counting and marking -------------------------------------------------------------------- */

static void mark_block(struct walk *w, uint64_t *row, unsigned slot)
{
    const struct rcuckoo_shape *s = &w->view->shape;
    struct rcuckoo_entry e;
    if (!rcuckoo_entry_of(s, rcuckoo_tags(s, row)[slot], rcuckoo_slot(s, row, slot), &e) ||
        e.kind < RCUCKOO_VALUE_OUT)
        return;
    uint64_t pointer = rcuckoo_slot_pointer(s, row, slot);
    w->base.info.block_bytes += size_class_bytes(pointer_class(pointer));
    if (w->base.marker)
        w->base.marker->mark(w->base.marker, pointer_gaddr(pointer), pointer_class(pointer));
}

/* RCUCKOO-C13: the tags may be wrong, so every slot counts as one with a pointer. */
static void count_damaged(struct walk *w, unsigned row)
{
    const struct rcuckoo_shape *s = &w->view->shape;
    w->base.info.damaged += RCUCKOO_SLOTS;
    if (!w->base.marker)
        return;
    w->base.marker->damaged = true;
    for (unsigned slot = 0; slot < RCUCKOO_SLOTS; slot++) {
        uint64_t pointer =
            rcuckoo_slot_pointer(s, rcuckoo_snapshot_row(s, &w->snapshot, row), slot);
        w->base.marker->mark(w->base.marker, pointer_gaddr(pointer), pointer_class(pointer));
    }
}

/* Are the two rows of the entry near each other? */
static bool is_near(struct walk *w, uint64_t *row, unsigned number, unsigned slot)
{
    unsigned other = rcuckoo_other_row(w->view, row, number, slot);
    if (other == RCUCKOO_ROWS_MAX)
        return false;
    unsigned apart = other > number ? other - number : number - other;
    unsigned round = w->view->shape.rows - apart; /* the rows are a ring */
    return (apart < round ? apart : round) <= RCUCKOO_NEAR_ROWS;
}

static void count_row(struct walk *w, unsigned i)
{
    const struct rcuckoo_shape *s = &w->view->shape;
    bool counts = !w->base.marker && !w->base.report;
    uint64_t *row = rcuckoo_snapshot_row(s, &w->snapshot, i);
    for (unsigned slot = 0; slot < RCUCKOO_SLOTS; slot++) {
        uint64_t *gone = rcuckoo_snapshot_gone(s, &w->snapshot, i, slot);
        bool used = rcuckoo_tags(s, row)[slot] != 0;
        w->base.info.keys += used;
        w->base.info.figure[0].value += used && counts && is_near(w, row, i, slot);
        mark_block(w, row, slot);
        if (gone && w->base.marker)
            mark_block(w, gone, slot);
    }
}

static void count_rows(struct walk *w)
{
    const struct rcuckoo_shape *s = &w->view->shape;
    mark(w, w->snapshot.sub.rows, rcuckoo_rows_class(s));
    w->base.info.slots += (uint64_t)s->rows * RCUCKOO_SLOTS;
    for (unsigned i = 0; i < s->rows; i++) {
        if (rcuckoo_snapshot_whole(w->view, &w->snapshot, i))
            count_row(w, i);
        else
            count_damaged(w, i);
    }
}

/* ---- proving --------------------------------------------------------------------------------- */

static void report_slot(struct walk *w, const char *what, unsigned row, unsigned slot)
{
    const struct rcuckoo_sub *sub = &w->snapshot.sub;
    index_violation(w->base.report, "%s: row %u, slot %u (depth %u, suffix %llu)", what, row, slot,
                    sub->part.depth, (unsigned long long)sub->part.suffix);
}

/* A slot in use, by its place: row * RCUCKOO_SLOTS + slot. */
struct slot {
    uint64_t *row, hash;
    unsigned number;
    struct rcuckoo_entry entry;
};

/* False: it is empty, its row is damaged or, if *misplaced, it says no entry of its row and
 * subtable. */
static bool read_slot(struct walk *w, unsigned place, struct slot *x, bool *misplaced)
{
    const struct rcuckoo_view *view = w->view;
    const struct rcuckoo_shape *s = &view->shape;
    const struct index_part *part = &w->snapshot.sub.part;
    unsigned i = place / RCUCKOO_SLOTS, of[2] = {0, 0};
    *x = (struct slot){.row = w->snapshot.rows + (size_t)i * s->row,
                       .number = place % RCUCKOO_SLOTS};
    *misplaced = false;
    if (rcuckoo_tags(s, x->row)[x->number] == 0 || !rcuckoo_snapshot_whole(view, &w->snapshot, i))
        return false;
    bool good = rcuckoo_slot_hash(view, x->row, x->number, &x->hash) &&
                rcuckoo_slot_entry(view, x->row, x->number, &x->entry) == FAR_OK;
    rcuckoo_rows_of(s, x->hash & rcuckoo_hash_mask(view), of);
    *misplaced = !good || (of[0] != i && of[1] != i) ||
                 index_suffix(x->hash & rcuckoo_hash_mask(view), part->depth) != part->suffix;
    return !*misplaced;
}

static void saw(struct walk *w, unsigned place, struct slice key)
{
    uint64_t seed = w->view->base.table->desc.hash_seed;
    w->base.seen[w->base.seen_count++] = (struct index_walk_key){
        .hash = hash_key(key.data, key.len, seed), .slot = place, .order = place};
}

/* RCUCKOO-W3 of a slot, and its key, if that is in the slot. */
static void prove_slot(struct walk *w, unsigned place)
{
    const struct rcuckoo_shape *s = &w->view->shape;
    struct slot x;
    bool misplaced;
    if (!read_slot(w, place, &x, &misplaced)) {
        if (misplaced)
            index_found(&w->base.findings, MISPLACED, place, x.hash);
    } else if (x.entry.kind == RCUCKOO_INLINE) {
        saw(w, place, (struct slice){rcuckoo_slot(s, x.row, x.number) + s->key_at, x.entry.klen});
    }
}

static bool has_block(void *arg, unsigned place, uint64_t *pointer)
{
    struct walk *w = arg;
    struct slot x;
    bool misplaced;
    if (!read_slot(w, place, &x, &misplaced) || x.entry.kind == RCUCKOO_INLINE)
        return false;
    *pointer = rcuckoo_slot_pointer(&w->view->shape, x.row, x.number);
    return true;
}

/* RCUCKOO-W5 */
static int prove_block(void *arg, unsigned place, const void *block)
{
    struct walk *w = arg;
    const struct rcuckoo_shape *s = &w->view->shape;
    const struct block_head *h = block;
    struct slot x;
    bool misplaced;
    (void)read_slot(w, place, &x, &misplaced);
    const void *key = rcuckoo_slot(s, x.row, x.number) + s->key_at;
    bool right =
        block &&
        (x.entry.kind == RCUCKOO_KEY_OUT
             ? hash_key(block_key(h), h->klen, w->view->base.table->desc.hash_seed).lo == x.hash
             : h->klen == x.entry.klen && memcmp(block_key(h), key, h->klen) == 0);
    if (right)
        saw(w, place, (struct slice){block_key(h), h->klen});
    else
        index_found(&w->base.findings, UNREADABLE, place, rcuckoo_slot_pointer(s, x.row, x.number));
    return FAR_OK;
}

/* RCUCKOO-W4 for keys that are there twice, which is legal while an insert moves one. That is over
 * if a row was not locked, and has not been written since the look before: its meta word says that.
 * `locks` were read after that look. NULL: it is the first one. */
static void find_twice(struct walk *w, const uint64_t *locks)
{
    const struct rcuckoo_shape *s = &w->view->shape;
    index_walk_match(w->base.seen, w->base.seen_count);
    for (unsigned i = 0; i < w->base.seen_count; i++) {
        const struct index_walk_key *key = &w->base.seen[i];
        unsigned row = key->slot / RCUCKOO_SLOTS, first = key->first / RCUCKOO_SLOTS;
        if (key->first == key->slot ||
            (locks && locks[rcuckoo_lock_word(s, row)] & rcuckoo_lock_bit(s, row)))
            continue;
        struct index_finding *f =
            index_found(&w->base.findings, TWICE, key->slot,
                        *rcuckoo_meta(s, w->snapshot.rows + (size_t)row * s->row));
        f->first = key->first;
        f->first_found = *rcuckoo_meta(s, w->snapshot.rows + (size_t)first * s->row);
    }
}

/* Reads the lock words, and then all rows again. */
static int look_again(struct walk *w, uint64_t locks[RCUCKOO_WORDS_MAX])
{
    const struct rcuckoo_shape *s = &w->view->shape;
    struct rcuckoo_sub sub = w->snapshot.sub;
    uint64_t *words = op_buffer(w->base.op, BUF_INDEX, 8ull * s->words);
    if (!words)
        return FAR_NO_MEMORY;
    batch_pause(&w->base.op->batch, LOOK_PAUSE_NS);
    batch_read_head(&w->base.op->batch, sub.part.anchor, rcuckoo_word_at(0), words, 8 * s->words);
    int rc = batch_flush(&w->base.op->batch);
    memcpy(locks, words, 8ull * s->words);
    return rc == FAR_OK ? rcuckoo_snapshot(w->base.op, w->view, &sub, &w->snapshot) : rc;
}

static int look(void *arg, unsigned number)
{
    struct walk *w = arg;
    const struct rcuckoo_shape *s = &w->view->shape;
    uint64_t locks[RCUCKOO_WORDS_MAX];
    unsigned slots = s->rows * RCUCKOO_SLOTS;
    int rc = number > 0 ? look_again(w, locks) : FAR_OK;
    if (rc != FAR_OK || w->snapshot.split)
        return rc;
    w->base.seen_count = 0;
    for (unsigned i = 0; i < slots; i++)
        prove_slot(w, i);
    rc = index_walk_blocks(
        w->base.op, &(struct index_walk_blocks){RCUCKOO_POINTER, slots, has_block, prove_block, w});
    find_twice(w, number > 0 ? locks : NULL);
    return rc;
}

/* RCUCKOO-W2. */
static int prove_rows(struct walk *w)
{
    unsigned damaged = w->snapshot.damaged;
    for (unsigned i = 0; i < w->view->shape.rows && damaged > 0; i++)
        if (!rcuckoo_snapshot_whole(w->view, &w->snapshot, i))
            index_violation(
                w->base.report, "RCUCKOO-W2: damaged row: row %u (depth %u, suffix %llu)", i,
                w->snapshot.sub.part.depth, (unsigned long long)w->snapshot.sub.part.suffix);
    if (damaged == 0 || !w->base.report->repair)
        return FAR_OK;
    struct rcuckoo_sub sub = w->snapshot.sub;
    int rc = rcuckoo_salvage(w->base.op, w->view, &sub, w->base.report);
    return rc == FAR_OK ? rcuckoo_snapshot(w->base.op, w->view, &sub, &w->snapshot) : rc;
}

/* RCUCKOO-W5: the finding has the entry's pointer. */
static int repair_block(struct walk *w, const struct index_finding *f)
{
    const struct rcuckoo_sub sub = w->snapshot.sub;
    const void *block = NULL;
    bool done = false;
    int rc = index_walk_mend(w->base.op, RCUCKOO_POINTER, f->found, w->base.report, &done);
    if (rc == FAR_OK && !done)
        rc = index_walk_block(w->base.op, RCUCKOO_POINTER, f->found, &block);
    if (rc != FAR_OK || done ||
        block) /* a whole block of another key: nobody knows which one is wrong */
        return rc;
    rc = rcuckoo_remove(w->base.op, w->view, &sub, f->place, f->found, &done);
    if (done)
        index_walk_removed(w->base.report,
                           "  repaired: the entry was removed; its value cannot be read any more");
    return rc;
}

/* RCUCKOO-W3 to RCUCKOO-W5. */
static int prove(struct walk *w)
{
    static const char *const text[] = {[MISPLACED] = "RCUCKOO-W3: misplaced key",
                                       [TWICE] = "RCUCKOO-W4: key stored twice",
                                       [UNREADABLE] = "RCUCKOO-W5: unreadable block"};
    unsigned slots = w->view->shape.rows * RCUCKOO_SLOTS;
    int rc = w->base.seen ? FAR_OK : index_walk_room(&w->base, slots, slots);
    if (rc == FAR_OK)
        rc = index_walk_prove(&w->base.findings, look, w);
    for (unsigned i = 0; i < w->base.findings.count && rc == FAR_OK; i++) {
        const struct index_finding *f = &w->base.findings.now[i];
        report_slot(w, text[f->fault], f->place / RCUCKOO_SLOTS, f->place % RCUCKOO_SLOTS);
        if (f->fault == UNREADABLE && w->base.report->repair)
            rc = repair_block(w, f);
    }
    return rc;
}

/* ---- visiting -------------------------------------------------------------------------------- */

static int visit_children(struct walk *w, const struct index_part *part, uint64_t forward)
{
    struct rcuckoo_sub sub = {.part = *part};
    uint64_t child[2];
    int rc = rcuckoo_children(w->base.op, w->view, &sub, forward, child);
    return rc == FAR_OK ? index_parts_walk_split(&w->parts, part, child) : rc;
}

static int visit(struct index_walk *walk, const struct index_part *part, const void *image)
{
    struct walk *w = (struct walk *)walk;
    struct rcuckoo_anchor anchor = *(const struct rcuckoo_anchor *)image;
    struct rcuckoo_sub sub = {.part = *part, .rows = pointer_gaddr(anchor.rows)};
    int rc = rcuckoo_judge_anchor(w->view, &sub, &anchor);
    if (rc != FAR_OK)
        return rc;
    if (anchor.forward == 0) {
        rc = rcuckoo_snapshot(w->base.op, w->view, &sub, &w->snapshot);
        if (rc == FAR_OK && w->snapshot.split) /* since the anchor was read */
            rc = rcuckoo_read_anchor(w->base.op, w->view, &sub, &anchor);
    }
    if (rc != FAR_OK)
        return rc;
    if (anchor.forward != 0)
        return visit_children(w, part, anchor.forward);
    count_rows(w);
    if (w->base.report)
        rc = prove_rows(w);
    if (rc == FAR_OK && w->base.report)
        rc = prove(w);
    return rc == FAR_OK && w->base.report
               ? rcuckoo_check_locks(w->base.op, w->view, &sub, w->base.report)
               : rc;
}

static int walk(struct index_walk *base)
{
    struct walk *w = (struct walk *)base;
    struct rcuckoo_root root;
    w->view = rcuckoo_view(base->view);
    int rc = index_read_root(w->base.op, w->view->root, &root, sizeof root);
    if (rc != FAR_OK)
        return rc;
    mark(w, w->view->root, size_class_for(sizeof root));
    w->parts = (struct index_parts_walk){.base = base,
                                         .parts = &w->view->parts,
                                         .anchors = "RCUCKOO-W1",
                                         .directory = "RCUCKOO-W6",
                                         .visit = visit};
    return index_parts_walk(&w->parts, root.directory);
}

static const struct index_walker walker = {sizeof(struct walk), walk};

int rcuckoo_info(struct op *op, struct index_view *base, struct far_table_info *info)
{
    struct rcuckoo_view *view = rcuckoo_view(base);
    uint64_t cached = sizeof *view + index_parts_bytes(&view->parts) + rcuckoo_cache_bytes() +
                      (view->blocks ? index_hints_bytes(view->hints) : 0);
    int rc = index_walk_info(&walker, op, base, view->tuning, info);
    if (rc != FAR_OK)
        return rc;
    info->client_cache_bytes = cached;
    info->figure[0].name = "keys_near";
    info->session[0] = (struct far_table_figure){"paths", view->paths};
    info->session[1] = (struct far_table_figure){"paths_unmoved", view->paths_unmoved};
    info->session[2] = (struct far_table_figure){"paths_short", view->paths_short};
    return FAR_OK;
}

int rcuckoo_check(struct op *op, struct index_view *base, struct index_report *report)
{
    return index_walk_check(&walker, op, base, report);
}

/* The version of caches need not change: what a session follows without a look at its anchor are
 * rows, and it recognizes those that are not the subtable's any more (RCUCKOO-C12). */
int rcuckoo_mark(struct op *op, struct index_view *base, struct marker *marker)
{
    return index_walk_mark(&walker, op, base, marker);
}
