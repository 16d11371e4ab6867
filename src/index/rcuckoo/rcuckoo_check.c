/*
 * Walking the whole table: to count what is in it, to mark what it reaches, and to prove on a quiet table
 * that
 *
 *   RCUCKOO-W1  every anchor that is found from the first ones is whole, and of the right depth and suffix
 *       (PARTS-1);
 *   RCUCKOO-W2  every row agrees with its checksum (RCUCKOO-C1);
 *   RCUCKOO-W3  every entry is in its subtable, and in one of its two rows;
 *   RCUCKOO-W4  no key is there twice (RCUCKOO-C2);
 *   RCUCKOO-W5  every entry with a block leads to a whole one of its key (RCUCKOO-C12);
 *   RCUCKOO-W6  every entry of the directory leads to an anchor of its suffix (PARTS-2);
 *   RCUCKOO-W7  locks, R and S are set only for clients that are alive (RCUCKOO-C9, RCUCKOO-C11).
 */
#include "index/parts_walk.h"
#include "index/rcuckoo/rcuckoo.h"

#include <stdlib.h>

#define LOOK_PAUSE_NS 1000000u /* so that most moves of keys are over */

enum fault { MISPLACED, TWICE, UNREADABLE };

struct walk {
    struct op *op;
    struct rcuckoo_view *view;
    struct index_report *report; /* NULL: no proofs are wanted */
    struct marker *marker;       /* NULL: nothing is to be marked */
    struct far_table_info info;
    struct index_parts_walk parts;
    struct rcuckoo_snapshot snapshot;
    struct index_walk_key *seen;
    struct index_findings findings;
};

static void mark(struct walk *w, gaddr at, unsigned size_class)
{
    index_walk_object(&w->info, w->marker, at, size_class);
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
    w->info.block_bytes += size_class_bytes(pointer_class(pointer));
    if (w->marker)
        w->marker->mark(w->marker, pointer_gaddr(pointer), pointer_class(pointer));
}

static void count_rows(struct walk *w)
{
    const struct rcuckoo_shape *s = &w->view->shape;
    mark(w, w->snapshot.sub.rows, rcuckoo_rows_class(s));
    w->info.slots += (uint64_t)s->rows * RCUCKOO_SLOTS;
    for (unsigned i = 0; i < s->rows; i++)
        for (unsigned slot = 0; slot < RCUCKOO_SLOTS; slot++) {
            uint64_t *row = w->snapshot.rows + (size_t)i * s->row;
            uint64_t *gone = rcuckoo_snapshot_gone(s, &w->snapshot, i, slot);
            w->info.keys += rcuckoo_tags(s, row)[slot] != 0;
            mark_block(w, row, slot);
            if (gone && w->marker)
                mark_block(w, gone, slot);
        }
}

/* ---- proving --------------------------------------------------------------------------------- */

static void report_slot(struct walk *w, const char *what, unsigned row, unsigned slot)
{
    const struct rcuckoo_sub *sub = &w->snapshot.sub;
    index_violation(w->report, "%s: row %u, slot %u (depth %u, suffix %llu)", what, row, slot,
                    sub->part.depth, (unsigned long long)sub->part.suffix);
}

/* RCUCKOO-W3, RCUCKOO-W5. *seen: the key, if it could be read. */
static int prove_slot(struct walk *w, unsigned i, unsigned slot, unsigned *seen)
{
    const struct rcuckoo_view *view = w->view;
    const struct rcuckoo_shape *s = &view->shape;
    const struct rcuckoo_sub *sub = &w->snapshot.sub;
    uint64_t *row = w->snapshot.rows + (size_t)i * s->row, hash = 0,
             seed = view->base.table->desc.hash_seed;
    unsigned of[2] = {0, 0};
    struct rcuckoo_entry e;
    if (rcuckoo_tags(s, row)[slot] == 0)
        return FAR_OK;
    bool good = rcuckoo_slot_hash(view, row, slot, &hash) &&
                rcuckoo_slot_entry(view, row, slot, &e) == FAR_OK;
    rcuckoo_rows_of(s, hash & rcuckoo_hash_mask(view), of);
    if (!good || (of[0] != i && of[1] != i) ||
        index_suffix(hash & rcuckoo_hash_mask(view), sub->part.depth) != sub->part.suffix) {
        index_found(&w->findings, MISPLACED, i * RCUCKOO_SLOTS + slot, hash);
        return FAR_OK;
    }
    struct slice key = {rcuckoo_slot(s, row, slot) + s->key_at, e.klen};
    if (e.kind != RCUCKOO_INLINE) {
        const void *block = NULL;
        int rc =
            index_walk_block(w->op, RCUCKOO_POINTER, rcuckoo_slot_pointer(s, row, slot), &block);
        if (rc != FAR_OK)
            return rc;
        const struct block_head *h = block;
        bool right =
            block && (e.kind == RCUCKOO_KEY_OUT
                          ? hash_key(block_key(h), h->klen, seed).lo == hash
                          : h->klen == e.klen && memcmp(block_key(h), key.data, e.klen) == 0);
        if (!right) {
            index_found(&w->findings, UNREADABLE, i * RCUCKOO_SLOTS + slot,
                        rcuckoo_slot_pointer(s, row, slot));
            return FAR_OK;
        }
        key = (struct slice){block_key(h), h->klen};
    }
    w->seen[(*seen)++] = (struct index_walk_key){.hash = hash_key(key.data, key.len, seed),
                                                 .slot = i * RCUCKOO_SLOTS + slot,
                                                 .order = i * RCUCKOO_SLOTS + slot};
    return FAR_OK;
}

/* RCUCKOO-W4 for keys that are there twice, which is legal while an insert moves one. That is over if a row
 * was not locked, and has not been written since the look before: its meta word says that. `locks` were read
 * after that look. NULL: it is the first one. */
static void find_twice(struct walk *w, unsigned seen, const uint64_t *locks)
{
    const struct rcuckoo_shape *s = &w->view->shape;
    index_walk_match(w->seen, seen);
    for (unsigned i = 0; i < seen; i++) {
        const struct index_walk_key *key = &w->seen[i];
        unsigned row = key->slot / RCUCKOO_SLOTS, first = key->first / RCUCKOO_SLOTS;
        if (key->first == key->slot ||
            (locks && locks[rcuckoo_lock_word(s, row)] & rcuckoo_lock_bit(s, row)))
            continue;
        struct index_finding *f =
            index_found(&w->findings, TWICE, key->slot,
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
    uint64_t *words = op_buffer(w->op, BUF_INDEX, 8ull * s->words);
    if (!words)
        return FAR_NO_MEMORY;
    batch_pause(&w->op->batch, LOOK_PAUSE_NS);
    batch_read(&w->op->batch, sub.part.anchor, rcuckoo_word_at(0), words, 8 * s->words);
    int rc = batch_flush(&w->op->batch);
    memcpy(locks, words, 8ull * s->words);
    return rc == FAR_OK ? rcuckoo_snapshot(w->op, w->view, &sub, &w->snapshot) : rc;
}

static int look(void *arg, unsigned number)
{
    struct walk *w = arg;
    const struct rcuckoo_shape *s = &w->view->shape;
    uint64_t locks[RCUCKOO_WORDS_MAX];
    unsigned seen = 0;
    int rc = number > 0 ? look_again(w, locks) : FAR_OK;
    if (rc != FAR_OK || w->snapshot.split || w->snapshot.bad < s->rows)
        return rc;
    for (unsigned i = 0; i < s->rows * RCUCKOO_SLOTS && rc == FAR_OK; i++)
        rc = prove_slot(w, i / RCUCKOO_SLOTS, i % RCUCKOO_SLOTS, &seen);
    find_twice(w, seen, number > 0 ? locks : NULL);
    return rc;
}

/* RCUCKOO-W2 to RCUCKOO-W5. */
static int prove(struct walk *w)
{
    static const char *const text[] = {[MISPLACED] = "RCUCKOO-W3: misplaced key",
                                       [TWICE] = "RCUCKOO-W4: key stored twice",
                                       [UNREADABLE] = "RCUCKOO-W5: unreadable block"};
    unsigned slots = w->view->shape.rows * RCUCKOO_SLOTS;
    if (w->snapshot.bad < w->view->shape.rows) {
        report_slot(w, "RCUCKOO-W2: damaged row", w->snapshot.bad, 0);
        return FAR_OK;
    }
    if (!w->seen)
        w->seen = malloc((size_t)slots * sizeof *w->seen);
    int rc = w->seen ? FAR_OK : err_fail(FAR_NO_MEMORY, "no memory for a walk");
    if (rc == FAR_OK && !w->findings.now)
        rc = index_findings_make(&w->findings, slots);
    if (rc == FAR_OK)
        rc = index_walk_prove(&w->findings, look, w);
    for (unsigned i = 0; i < w->findings.count && rc == FAR_OK; i++) {
        const struct index_finding *f = &w->findings.now[i];
        report_slot(w, text[f->fault], f->place / RCUCKOO_SLOTS, f->place % RCUCKOO_SLOTS);
    }
    return rc;
}

/* ---- visiting -------------------------------------------------------------------------------- */

static int visit_children(struct walk *w, const struct index_part *part, uint64_t forward)
{
    struct rcuckoo_sub sub = {.part = *part};
    uint64_t child[2];
    int rc = rcuckoo_children(w->op, w->view, &sub, forward, child);
    return rc == FAR_OK ? index_parts_walk_split(&w->parts, part, child) : rc;
}

static int visit(void *arg, const struct index_part *part, const void *image)
{
    struct walk *w = arg;
    struct rcuckoo_anchor anchor = *(const struct rcuckoo_anchor *)image;
    struct rcuckoo_sub sub = {.part = *part, .rows = pointer_gaddr(anchor.rows)};
    int rc = rcuckoo_judge_anchor(w->view, &sub, &anchor);
    if (rc != FAR_OK)
        return rc;
    if (anchor.forward == 0) {
        rc = rcuckoo_snapshot(w->op, w->view, &sub, &w->snapshot);
        if (rc == FAR_OK && w->snapshot.split) /* since the anchor was read */
            rc = rcuckoo_read_anchor(w->op, w->view, &sub, &anchor);
    }
    if (rc != FAR_OK)
        return rc;
    if (anchor.forward != 0)
        return visit_children(w, part, anchor.forward);
    if (w->snapshot.bad < w->view->shape.rows && !w->report)
        return rcuckoo_row_damaged(w->view, w->snapshot.bad);
    if (w->snapshot.bad == w->view->shape.rows)
        count_rows(w);
    if (w->report)
        rc = prove(w);
    return rc == FAR_OK && w->report ? rcuckoo_check_locks(w->op, w->view, &sub, w->report) : rc;
}

static int walk(struct walk *w)
{
    struct rcuckoo_root root;
    int rc = index_read_root(w->op, w->view->root, &root, sizeof root);
    if (rc != FAR_OK)
        return rc;
    mark(w, w->view->root, size_class_for(sizeof root));
    w->parts = (struct index_parts_walk){.op = w->op,
                                         .view = &w->view->base,
                                         .parts = &w->view->parts,
                                         .report = w->report,
                                         .marker = w->marker,
                                         .info = &w->info,
                                         .anchors = "RCUCKOO-W1",
                                         .directory = "RCUCKOO-W6",
                                         .visit = visit,
                                         .arg = w};
    return index_parts_walk(&w->parts, root.directory);
}

/* Walks the table. The caller frees what this returns; NULL: there is no memory. */
static struct walk *run(struct op *op, struct index_view *base, struct index_report *report,
                        struct marker *marker, int *rc)
{
    struct walk *w = calloc(1, sizeof *w); /* too large for a fiber's stack */
    if (!w) {
        *rc = err_fail(FAR_NO_MEMORY, "no memory for a walk");
        return NULL;
    }
    w->op = op;
    w->view = rcuckoo_view(base);
    w->report = report;
    w->marker = marker;
    *rc = walk(w);
    free(w->seen);
    index_findings_free(&w->findings);
    return w;
}

int rcuckoo_info(struct op *op, struct index_view *base, struct far_table_info *info)
{
    struct rcuckoo_view *view = rcuckoo_view(base);
    uint64_t cached = sizeof *view + index_parts_bytes(&view->parts) + rcuckoo_cache_bytes();
    int rc = FAR_OK;
    struct walk *w = run(op, base, NULL, NULL, &rc);
    if (rc == FAR_OK) {
        w->info.client_cache_bytes = cached;
        w->info.load_factor = (double)w->info.keys / (double)w->info.slots;
        w->info.splits = view->splits;
        w->info.split_load_max = view->load_max;
        w->info.split_load_mean = view->splits ? view->load_sum / (double)view->splits : 0;
        tuning_text(rcuckoo_tuning, view->tuning, w->info.tuning);
        *info = w->info;
    }
    free(w);
    return rc;
}

int rcuckoo_check(struct op *op, struct index_view *base, struct index_report *report)
{
    int rc = FAR_OK;
    free(run(op, base, report, NULL, &rc));
    return rc;
}

/* The version of caches need not change: what a session follows without a look at its anchor are rows, and
 * it recognizes those that are not the subtable's any more (RCUCKOO-C12). */
int rcuckoo_mark(struct op *op, struct index_view *base, struct marker *marker)
{
    int rc = FAR_OK;
    free(run(op, base, NULL, marker, &rc));
    return rc;
}
