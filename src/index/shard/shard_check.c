/*
 * Walking the whole table: to count what is in it, to mark it, and to prove on a quiet table that
 *
 *   SHARD-W1  every entry points to a whole block of its generation and size class (SHARD-S1),
 *       whose key belongs to this unit, and has the entry's fingerprint and sid;
 *   SHARD-W2  no key has two live entries (SHARD-S3);
 *   SHARD-W3  the last slot of a level says so if the levels behind it hold entries (SHARD-S7);
 *   SHARD-W4  all words are ones that there can be, and chains end.
 *
 * Units are visited in the order of their numbers, so a parent comes before its children: what a
 * move takes along meanwhile is seen in one of the two.
 */
#include "index/shard/shard.h"
#include "index/walk.h"

enum fault { UNREADABLE, MISPLACED, WRONG_BITS, TWICE, HIDDEN, INVALID };
#define FINDINGS_MAX (2 * SHARD_UNIT_MAX + 2) /* a word may be invalid, and one thing more */

struct walk {
    struct index_walk base;
    struct shard_view *view;
    struct shard_unit unit;
    unsigned u; /* its version */
};

/* Is it an entry of the unit, in use? */
static bool in_use(const struct walk *w, uint64_t word)
{
    return shard_live(word) || shard_sealed_by(word, w->u);
}

/* ---- proofs ---------------------------------------------------------------------------------- */

static struct index_finding *found(struct walk *w, enum fault fault, unsigned slot)
{
    return index_found(&w->base.findings, fault, slot, w->unit.words[slot]);
}

/* SHARD-W1 for one entry. */
static void check_block(struct walk *w, unsigned slot, const void *block)
{
    struct shard_view *view = w->view;
    uint64_t word = w->unit.words[slot];
    const struct block_head *h = block;
    struct shard_key key;
    shard_hash(view, (struct slice){block_key(block), h->klen}, &key);
    if (shard_bucket(view, key.hash, w->u) != w->unit.bucket || key.lane != w->unit.lane) {
        found(w, MISPLACED, slot);
        return;
    }
    uint64_t right = shard_with_key(word, key.fingerprint, shard_sid(view, key.hash, w->u));
    right = pointer_with_class(right, size_class_for(block_bytes(h->klen, h->vlen)));
    /* Of a unit that is being moved, some entries have their next sid already. */
    bool moving = shard_with_sid(right, shard_sid(view, key.hash, w->u + 1)) == word;
    if (word != right && !moving) {
        found(w, WRONG_BITS, slot)->right = right;
        return;
    }
    w->base.seen[w->base.seen_count++] = index_walk_key(&view->base, block, slot, slot);
}

static bool has_block(void *arg, unsigned slot, uint64_t *pointer)
{
    const struct walk *w = arg;
    *pointer = w->unit.words[slot];
    return in_use(w, *pointer);
}

static int each_block(void *arg, unsigned slot, const void *block)
{
    if (block)
        check_block(arg, slot, block);
    else
        found(arg, UNREADABLE, slot);
    return FAR_OK;
}

static int check_words(struct walk *w)
{
    struct shard_view *view = w->view;
    unsigned guard[2] = {view->level1 - 1, view->words - 1};
    bool hidden[2] = {false, false};
    w->base.seen_count = 0;
    for (unsigned i = 0; i < w->unit.count; i++) {
        uint64_t word = w->unit.words[i];
        if (!shard_word_valid(word)) /* SHARD-W4 */
            found(w, INVALID, i);
        if (!in_use(w, word))
            continue;
        for (unsigned j = 0; j < 2; j++) { /* SHARD-W3 */
            if (i <= guard[j] || hidden[j] || shard_overflows(w->unit.words[guard[j]]))
                continue;
            hidden[j] = true;
            found(w, HIDDEN, guard[j])->right = word;
        }
    }
    int rc = index_walk_blocks(w->base.op, &(struct index_walk_blocks){SHARD_SLOT, w->unit.count,
                                                                       has_block, each_block, w});
    index_walk_twice(&w->base, TWICE, w->unit.words); /* SHARD-W2 */
    return rc;
}

/* ---- repairs --------------------------------------------------------------------------------- */

/* Changes a slot, from what was judged to be wrong. If the word has changed, another client has
 * handled it. */
static int change_slot(struct walk *w, unsigned slot, uint64_t from, uint64_t to, bool *done)
{
    unsigned n = shard_cas(w->base.op, w->view, &w->unit, slot, from, to);
    int rc = batch_flush(&w->base.op->batch);
    *done = rc == FAR_OK && op_swapped(w->base.op, n);
    return rc;
}

/* A key in a wrong place is inserted, as any session would, and only then deleted here. */
static int put_in_place(struct walk *w, const struct index_finding *f, bool *done)
{
    bool there = false;
    int rc = index_walk_insert(w->base.op, &w->view->base, SHARD_SLOT, f->found,
                               shard_change_at_once, &there);
    return there ? change_slot(w, f->place, f->found, shard_tombstone(f->found), done) : rc;
}

/* Of a key that is there twice, the slot stays that lookups come to first. It has to be there
 * still: the first, the second, and the first again, unchanged. A client that deletes the key after
 * that deletes the one that we leave. */
static int drop_second(struct walk *w, const struct index_finding *f, bool *done)
{
    struct op *op = w->base.op;
    const unsigned slot[3] = {f->first, f->place, f->first};
    unsigned n[3];
    for (unsigned i = 0; i < 3; i++) {
        uint64_t delta;
        gaddr at = shard_slot_at(w->view, &w->unit, slot[i], &delta);
        if (i > 0)
            batch_fence(&op->batch);
        n[i] = op_read(op, at, delta);
    }
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK || op_result(op, n[0]) != f->first_found || op_result(op, n[1]) != f->found ||
        op_result(op, n[2]) != f->first_found)
        return rc; /* for the next walk */
    return change_slot(w, f->place, f->found, shard_tombstone(f->found), done);
}

static int repair(struct index_walk *walk, const struct index_finding *f, bool *done)
{
    struct walk *w = (struct walk *)walk;
    if (f->fault == HIDDEN)
        return change_slot(w, f->place, f->found,
                           f->found == 0 ? shard_control(SHARD_FREE, 2 * w->u, true)
                                         : f->found | SHARD_OVERFLOW,
                           done);
    if (!shard_live(f->found)) /* a move's, or of no known kind */
        return FAR_OK;
    if (f->fault == WRONG_BITS)
        return change_slot(w, f->place, f->found, f->right, done);
    if (f->fault == MISPLACED)
        return put_in_place(w, f, done);
    if (f->fault == TWICE)
        return drop_second(w, f, done);
    return change_slot(w, f->place, f->found, shard_tombstone(f->found), done);
}

static gaddr word_at(const struct index_walk *walk, unsigned place, uint64_t *delta)
{
    const struct walk *w = (const struct walk *)walk;
    return shard_slot_at(w->view, &w->unit, place, delta);
}

static const struct index_walk_faults faults = {
    .format = SHARD_SLOT,
    .unreadable = UNREADABLE,
    .word_at = word_at,
    .repair = repair,
    .fault =
        (const struct index_fault[]){
            [UNREADABLE] = {"SHARD-W1: broken link: no whole block",
                            "  repaired: the entry was deleted; its key cannot be read any more",
                            false},
            [MISPLACED] = {"SHARD-W1: broken link: a key in a place where it is not looked for",
                           "  repaired: the key is where it belongs", false},
            [WRONG_BITS] = {"SHARD-W1: broken link: an entry that does not fit its block",
                            "  repaired: the entry was corrected", false},
            [TWICE] = {"SHARD-W2: duplicate: a key that is there twice",
                       "  repaired: the copy that no lookup finds was removed", false},
            [HIDDEN] = {"SHARD-W3: broken link: a level that readers do not look at has entries",
                        "  repaired: they look there again", false},
            [INVALID] = {"SHARD-W4: broken link: a word of no known kind", "", false},
        },
};

/* ---- the walk -------------------------------------------------------------------------------- */

/* Counts and marks a unit. */
static void visit(struct walk *w, bool published)
{
    unsigned node = size_class_for(SHARD_NODE_WORDS * 8);
    for (unsigned i = 0; i < w->unit.count; i++) {
        uint64_t word = w->unit.words[i];
        /* A unit that is not published may hold the only word that leads to a block: of an insert
         * that rode on the move, and whose client has died. */
        if (!published && w->base.marker && shard_is_entry(word))
            w->base.marker->mark(w->base.marker, pointer_gaddr(word), pointer_class(word));
        if (!published || !in_use(w, word))
            continue;
        index_walk_slot(&w->base.info, w->base.marker, word);
    }
    for (unsigned i = 0; i < w->unit.chains; i++) {
        w->base.info.index_bytes += size_class_bytes(node);
        if (w->base.marker)
            w->base.marker->mark(w->base.marker, w->unit.chain[i], node);
    }
    w->base.info.slots += w->unit.count - w->unit.chains;
}

static int look(void *arg, unsigned number)
{
    struct walk *w = arg;
    int rc = number > 0 ? shard_unit_look(w->base.op, w->view, &w->unit, &w->u) : FAR_OK;
    return rc == FAR_OK ? check_words(w) : rc;
}

/* One unit. If proofs are wanted, a chain that leads nowhere is a finding, and the walk goes on. */
static int visit_unit(struct walk *w)
{
    int rc = shard_unit_look(w->base.op, w->view, &w->unit, &w->u);
    if (rc == FAR_CORRUPT && w->base.report) {
        index_violation(w->base.report, "SHARD-W4: broken link: %s (bucket %llu)",
                        far_error_detail(), (unsigned long long)w->unit.bucket);
        return FAR_OK;
    }
    if (rc != FAR_OK)
        return rc;
    bool published = shard_published(w->view, &w->unit);
    visit(w, published);
    return w->base.report && published ? index_walk_part(&w->base, look, &faults) : FAR_OK;
}

/* The next segment may be there ahead of its resize (SHARD-S11). */
static int count_next(struct walk *w)
{
    struct shard_root root;
    struct pool_array array;
    int rc = index_read_root(w->base.op, w->view->root, &root, sizeof root);
    if (w->view->version + 1 == SHARD_SEGMENTS)
        return rc;
    const struct shard_segment_refs *next = &root.segment[w->view->version + 1];
    for (unsigned i = 0; i < 2 && rc == FAR_OK; i++) {
        uint64_t ref = i == 0 ? next->units : next->tops; /* each is judged by itself */
        rc = ref != 0 ? pool_array_open(w->base.op, ref, &array) : FAR_OK;
        if (rc == FAR_OK && ref != 0) {
            w->base.info.index_bytes += pool_array_bytes(&array);
            pool_array_close(&array);
        }
    }
    return rc;
}

static int walk(struct index_walk *base)
{
    struct walk *w = (struct walk *)base;
    struct shard_view *view = w->view = shard_view(base->view);
    int rc = base->report ? index_walk_room(base, SHARD_UNIT_MAX, FINDINGS_MAX) : FAR_OK;
    if (rc == FAR_OK)
        rc = shard_refresh(base->op, view);
    if (rc != FAR_OK)
        return rc;
    uint64_t buckets = shard_buckets(view, view->version), done = 0;
    w->unit.words = index_walk_image(base, SHARD_UNIT_MAX * 8);
    if (!w->unit.words)
        return FAR_NO_MEMORY;
    for (uint64_t bucket = 0; bucket < buckets && rc == FAR_OK; bucket++) {
        for (unsigned lane = 0; lane < view->lanes && rc == FAR_OK; lane++) {
            shard_unit_set(view, &w->unit, lane, bucket);
            rc = visit_unit(w);
        }
        if (rc == FAR_OK)
            rc = index_walk_progress(w->base.op, &view->base, ++done, buckets);
    }
    for (unsigned r = 0; r <= view->version; r++)
        w->base.info.index_bytes +=
            pool_array_bytes(&view->segment[r].units) + pool_array_bytes(&view->segment[r].tops);
    w->base.info.index_bytes += sizeof(struct shard_root);
    return rc == FAR_OK ? count_next(w) : rc;
}

static const struct index_walker walker = {sizeof(struct walk), walk};

int shard_info(struct op *op, struct index_view *base, struct far_table_info *info)
{
    struct shard_view *view = shard_view(base);
    int rc = index_walk_info(&walker, op, base, view->tuning, info);
    if (rc != FAR_OK)
        return rc;
    info->client_cache_bytes =
        sizeof *view + view->opened * sizeof *view->segment + shard_hint_bytes(view);
    for (unsigned r = 0; r < view->opened; r++)
        info->client_cache_bytes +=
            (view->segment[r].units.pieces + view->segment[r].tops.pieces) * sizeof(gaddr);
    return FAR_OK;
}

int shard_check(struct op *op, struct index_view *base, struct index_report *report)
{
    return index_walk_check(&walker, op, base, report);
}

/* Segments that a resizer has published, but not the version that they belong to, are reached from
 * the root, too. */
static int mark_segments(struct op *op, struct shard_view *view, struct marker *marker)
{
    struct shard_root root;
    int rc = shard_draft_mark(op, view, marker); /* before the segments: SHARD-S11 */
    if (rc == FAR_OK)
        rc = index_read_root(op, view->root, &root, sizeof root);
    if (rc != FAR_OK)
        return rc;
    marker->mark(marker, view->root, size_class_for(sizeof root));
    for (unsigned r = 0; r < SHARD_SEGMENTS && rc == FAR_OK; r++) {
        if (root.segment[r].units != 0)
            rc = shard_mark_array(op, root.segment[r].units, marker);
        if (rc == FAR_OK && root.segment[r].tops != 0)
            rc = shard_mark_array(op, root.segment[r].tops, marker);
    }
    return rc;
}

int shard_mark(struct op *op, struct index_view *base, struct marker *marker)
{
    int rc = mark_segments(op, shard_view(base), marker);
    return rc == FAR_OK ? index_walk_mark(&walker, op, base, marker) : rc;
}
