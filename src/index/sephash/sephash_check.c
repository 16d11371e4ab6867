/*
 * Walking the whole table: to count what is in it, to mark what it reaches, and to prove on a quiet
 * table that
 *
 *   SEPHASH-W1  every anchor that is found from the first ones is of the right depth and suffix,
 *       and leads to a whole fork or to a whole CurSegment (PARTS-1);
 *   SEPHASH-W2  every entry that counts points to a whole block of its size class, whose key
 *       belongs to the segment and has the entry's tag;
 *   SEPHASH-W3  MainSegments are sorted by fp, and the FPTable says where each fp is;
 *   SEPHASH-W4  no key is in a MainSegment twice (SEPHASH-H2);
 *   SEPHASH-W5  the slots behind an empty one of their lane are empty (SEPHASH-H1), and the keys of
 *       the others are marked in the filter, if there is one (SEPHASH-H5);
 *   SEPHASH-W6  every entry of the directory leads to an anchor of its suffix (PARTS-2).
 */
#include "index/parts_walk.h"
#include "index/sephash/sephash.h"

#include <stdlib.h>
#include <string.h>

/* The places of findings are the entries of the MainSegment, and behind them the slots. */
enum fault { UNREADABLE, MISPLACED, WRONG_BITS, TWICE, UNSORTED, BEHIND, UNMARKED };

struct walk {
    struct index_walk base;
    struct sephash_view *view;
    struct index_parts_walk parts_walk;
    struct sephash_state state;
    uint64_t *marks; /* of its filter, in BUF_BLOCK_OUT */
    uint64_t *words; /* copies of all words of the segment: as they were read, */
    uint64_t *kept;  /* and as a merge would keep them; 0: it would not */
    unsigned words_room;
    const struct index_part *part; /* the segment, */
    uint64_t visited;              /* and the word of its anchor when the walk came to it */
};

static void mark(struct walk *w, gaddr at, unsigned size_class)
{
    index_walk_object(&w->base.info, w->base.marker, at, size_class);
}

static void mark_pointer(struct walk *w, uint64_t pointer)
{
    mark(w, pointer_gaddr(pointer), pointer_class(pointer));
}

/* ---- one segment ----------------------------------------------------------------------------- */

static int make_room(struct walk *w, unsigned words)
{
    if (words <= w->words_room)
        return FAR_OK;
    free(w->words);
    w->words_room = words;
    w->words = malloc(2 * words * sizeof *w->words);
    w->kept = w->words ? w->words + words : NULL;
    return w->words ? index_walk_room(&w->base, words, 4 * words) : index_walk_no_memory();
}

static struct index_finding *found(struct walk *w, enum fault fault, unsigned place)
{
    return index_found(&w->base.findings, fault, place, w->words[place]);
}

/* SEPHASH-W2 for an entry with its block, and SEPHASH-W5 for a slot. */
static void check_block(struct walk *w, unsigned place, const void *block)
{
    struct sephash_view *view = w->view;
    const struct sephash_segment *s = &w->state.look.segment;
    const struct block_head *h = block;
    struct sephash_key key;
    sephash_hash(view, (struct slice){block_key(block), h->klen}, &key);
    uint64_t right = sephash_entry(w->words[place], sephash_key_tag(view, &key, s->part.depth));
    right = pointer_with_class(right, size_class_for(block_bytes(h->klen, h->vlen)));
    if (index_suffix(key.hash, s->part.depth) != s->part.suffix ||
        key.fp != sephash_fp(w->words[place])) {
        found(w, MISPLACED, place);
        return;
    }
    if (right != w->words[place])
        found(w, WRONG_BITS, place)->right = right;
    if (place < s->entries)
        w->base.seen[w->base.seen_count++] = index_walk_key(&view->base, block, place, place);
    else if (view->shape.buckets && w->marks[key.bucket] == 0)
        found(w, UNMARKED, place)->right = key.bucket;
}

/* Is the entry where the FPTable says that its fp is? */
static bool in_range(const struct walk *w, unsigned place)
{
    const struct sephash_look *l = &w->state.look;
    const struct sephash_segment *s = &l->segment;
    unsigned from = 0, to = 0;
    sephash_table_find(w->view->shape.plain, l->table, s->points, s->err, s->entries,
                       sephash_fp(w->words[place]), &from, &to);
    return place >= from && place < to;
}

static bool has_block(void *arg, unsigned place, uint64_t *pointer)
{
    const struct walk *w = arg;
    *pointer = w->words[place];
    return w->kept[place] != 0;
}

static int each_block(void *arg, unsigned place, const void *block)
{
    if (block)
        check_block(arg, place, block);
    else
        found(arg, UNREADABLE, place);
    return FAR_OK;
}

/* Is there an entry in the slot, and an empty slot before it? */
static bool is_behind(const struct walk *w, unsigned slot)
{
    const struct sephash_look *l = &w->state.look;
    uint64_t word = w->words[l->segment.entries + slot];
    return word != 0 && word != SEPHASH_VOID && word != SEPHASH_CLOSED &&
           !sephash_slot_counts(&w->view->shape, l, slot);
}

static int check_words(struct walk *w)
{
    const struct sephash_look *l = &w->state.look;
    unsigned entries = l->segment.entries, slots = w->view->shape.slots;
    w->base.seen_count = 0;
    for (unsigned i = 0; i < entries; i++)
        if (w->kept[i] != 0 && !in_range(w, i)) /* SEPHASH-W3 */
            found(w, UNSORTED, i);
    for (unsigned i = 0; i < slots; i++)
        if (is_behind(w, i))
            found(w, BEHIND, entries + i);
    if (entries + l->filled > 0 &&
        w->view->shape.buckets) /* with the blocks, behind the slots: marks come before them */
        batch_read(&w->base.op->batch, sephash_target(l->segment.state), sephash_filter_at(0),
                   w->marks, 8 * w->view->shape.buckets);
    int rc =
        index_walk_blocks(w->base.op, &(struct index_walk_blocks){SEPHASH_SLOT, entries + slots,
                                                                  has_block, each_block, w});
    index_walk_twice(&w->base, TWICE, w->words); /* SEPHASH-W4 */
    return rc;
}

/* ---- repairs --------------------------------------------------------------------------------- */

static gaddr word_at(const struct index_walk *walk, unsigned place, uint64_t *delta)
{
    const struct walk *w = (const struct walk *)walk;
    const struct sephash_segment *s = &w->state.look.segment;
    unsigned page = w->view->shape.page;
    if (place >= s->entries) {
        *delta = sephash_slot_at(&w->view->shape, place - s->entries);
        return sephash_target(s->state);
    }
    *delta = 8ull * (place % page);
    return pointer_gaddr(s->page[place / page]);
}

/* Changes a word, from what was judged to be wrong. A client that merges the segment meanwhile may
 * bring the old one back: then it is for the next walk. */
static int change_word(struct walk *w, const struct index_finding *f, uint64_t to, bool *done)
{
    uint64_t delta;
    gaddr at = word_at(&w->base, f->place, &delta);
    unsigned n = op_cas(w->base.op, MARK_PUBLISH, at, delta, f->found, to);
    int rc = batch_flush(&w->base.op->batch);
    *done = rc == FAR_OK && (op_swapped(w->base.op, n) || op_result(w->base.op, n) == to);
    return rc;
}

static bool is_unreadable(const struct walk *w, unsigned place)
{
    for (unsigned i = 0; i < w->base.findings.count; i++)
        if (w->base.findings.now[i].fault == UNREADABLE && w->base.findings.now[i].place == place)
            return true;
    return false;
}

/* May both be of one key? Not if they are in different lanes (SEPHASH-H1). */
static bool one_key(const struct sephash_shape *shape, unsigned slot, unsigned other)
{
    unsigned spill = shape->lanes * shape->lane;
    return slot >= spill || other >= spill || slot / shape->lane == other / shape->lane;
}

/* Is an entry older than another one, which may be of its key? The MainSegment has the newer ones
 * of a tag first. */
static bool is_older(const struct walk *w, unsigned place, unsigned than)
{
    unsigned entries = w->state.look.segment.entries;
    if (place >= entries)
        return place < than && one_key(&w->view->shape, place - entries, than - entries);
    return than >= entries || place > than;
}

/* Does a lookup come to the entry? */
static bool counts(const struct walk *w, unsigned place)
{
    unsigned entries = w->state.look.segment.entries;
    return place < entries || sephash_slot_counts(&w->view->shape, &w->state.look, place - entries);
}

/* Removes the older entries that a damaged one may have replaced or deleted, and then itself
 * (SEPHASH-H9). */
static int remove_damaged(struct walk *w, const struct index_finding *f, bool *done)
{
    const struct sephash_look *l = &w->state.look;
    for (unsigned i = 0; i < l->segment.entries + w->view->shape.slots; i++) {
        struct index_finding older = {.place = i, .found = w->words[i]};
        bool removed = false;
        if (!counts(w, i) || ((older.found ^ f->found) & SEPHASH_TAG) != 0 ||
            !is_older(w, i, f->place))
            continue;
        int rc = change_word(w, &older, SEPHASH_VOID, &removed);
        if (rc != FAR_OK)
            return rc;
        w->base.report->lost += removed && w->kept[i] != 0 && !is_unreadable(w, i);
    }
    return change_word(w, f, SEPHASH_VOID, done);
}

static int repair(struct index_walk *walk, const struct index_finding *f, bool *done)
{
    struct walk *w = (struct walk *)walk;
    bool there = false;
    switch ((enum fault)f->fault) {
    case UNREADABLE:
        return remove_damaged(w, f, done);
    case TWICE:
    case BEHIND: /* not 0: meanwhile others may have filled slots before it and behind it */
        return change_word(w, f, SEPHASH_VOID, done);
    case WRONG_BITS:
        return change_word(w, f, f->right, done);
    case UNMARKED:
        w->base.op->word[0] = 1;
        batch_write(&w->base.op->batch, MARK_EARLY, sephash_target(w->state.look.segment.state),
                    sephash_filter_at((unsigned)f->right), &w->base.op->word[0], 8);
        *done = true;
        return batch_flush(&w->base.op->batch);
    case MISPLACED:
    case UNSORTED:
        break;
    }
    /* The key is inserted, as any session would, and only then taken away here. */
    int rc = index_walk_insert(w->base.op, &w->view->base, SEPHASH_SLOT, f->found, sephash_change,
                               &there);
    return there ? change_word(w, f, SEPHASH_VOID, done) : rc;
}

static const struct index_walk_faults faults = {
    .format = SEPHASH_SLOT,
    .unreadable = UNREADABLE,
    .word_at = word_at,
    .repair = repair,
    .fault =
        (const struct index_fault[]){
            [UNREADABLE] = {"SEPHASH-W2: broken link: no whole block",
                            "  repaired: the entry was removed; its key cannot be read any more",
                            false},
            [MISPLACED] = {"SEPHASH-W2: broken link: a key in a place where it is not looked for",
                           "  repaired: the key is where it belongs", false},
            [WRONG_BITS] = {"SEPHASH-W2: broken link: an entry that does not fit its block",
                            "  repaired: the entry was corrected", false},
            [TWICE] = {"SEPHASH-W4: duplicate: a key that is there twice",
                       "  repaired: the copy that no lookup finds was removed", false},
            [UNSORTED] = {"SEPHASH-W3: broken link: an entry that is out of order",
                          "  repaired: the key is where it belongs", false},
            [BEHIND] = {"SEPHASH-W5: broken link: an entry behind an empty slot",
                        "  repaired: it was removed", false},
            [UNMARKED] = {"SEPHASH-W5: broken link: a key that the filter does not show",
                          "  repaired: it is marked again", false},
        },
};

/* ---- the walk -------------------------------------------------------------------------------- */

/* Reads all of a segment, and copies its words. */
static int read_segment(struct walk *w)
{
    struct sephash_look *l = &w->state.look;
    const struct sephash_shape *shape = &w->view->shape;
    unsigned entries = l->segment.entries;
    int rc = make_room(w, entries + shape->slots);
    w->marks = op_buffer(w->base.op, BUF_BLOCK_OUT, 8ull * SEPHASH_SLOTS_MAX);
    if (rc != FAR_OK || !w->marks)
        return rc == FAR_OK ? FAR_NO_MEMORY : rc;
    rc = sephash_read_state(w->base.op, w->view, &w->state);
    if (rc == FAR_OK) {
        memcpy(w->words, w->state.main, entries * sizeof *w->words);
        memcpy(w->words + entries, l->slots, shape->slots * sizeof *w->words);
        sephash_clear_dead(w->view, &w->state);
        memcpy(w->kept, w->state.main, entries * sizeof *w->kept);
        memcpy(w->kept + entries, l->slots, shape->slots * sizeof *w->kept);
    }
    free(w->state.items);
    w->state.items = NULL;
    return rc;
}

/* If the segment was merged since the walk came to it, there is nothing to be found. A READ of
 * slots that others fill may find one empty and the next filled. If that one was filled at an
 * earlier look, then it is damage (SEPHASH-H1). */
static int look(void *arg, unsigned number)
{
    struct walk *w = arg;
    if (number == 0) /* it was read just now */
        return check_words(w);
    unsigned n = op_read(w->base.op, w->part->anchor, 0);
    int rc = batch_flush(&w->base.op->batch);
    if (rc != FAR_OK || op_result(w->base.op, n) != w->visited)
        return rc;
    rc = read_segment(w);
    return rc == FAR_OK ? check_words(w) : rc;
}

static int prove(struct walk *w, const struct index_part *a, uint64_t state)
{
    w->part = a;
    w->visited = state;
    return index_walk_part(&w->base, look, &faults);
}

static int visit_segment(struct walk *w, const struct index_part *a, uint64_t state)
{
    struct sephash_look *l = &w->state.look;
    struct sephash_shape *shape = &w->view->shape;
    *l = (struct sephash_look){.segment = {.part = *a}};
    int rc = sephash_learn(w->base.op, w->view, state, l);
    if (rc == FAR_OK)
        rc = read_segment(w);
    if (rc != FAR_OK)
        return rc;
    mark(w, sephash_target(state), sephash_cur_class(shape));
    for (unsigned i = 0; i < sephash_pages_held(l->segment.page); i++)
        mark_pointer(w, l->segment.page[i]);
    for (unsigned i = 0; i < l->segment.entries + shape->slots; i++) {
        if (!counts(w, i))
            continue;
        if (w->kept[i] != 0 && !sephash_untold(w->kept[i]))
            index_walk_slot(&w->base.info, NULL, w->words[i]);
        if (w->base.marker && pointer_gaddr(w->words[i]) != 0)
            w->base.marker->mark(w->base.marker, pointer_gaddr(w->words[i]),
                                 pointer_class(w->words[i]));
    }
    w->base.info.slots += l->segment.entries + shape->slots;
    w->base.info.figure[0].value += 2ull * l->segment.points;
    w->base.info.figure[1].value += 2ull * SEPHASH_FPS;
    w->base.info.figure[2].value += sephash_slot_at(shape, 0);
    return w->base.report ? prove(w, a, state) : FAR_OK;
}

static int visit_fork(struct walk *w, const struct index_part *a, uint64_t state)
{
    struct sephash_fork *fork = op_buffer(w->base.op, BUF_BLOCK_OUT, sizeof *fork);
    if (!fork)
        return FAR_NO_MEMORY;
    batch_read(&w->base.op->batch, sephash_target(state), 0, fork, sizeof *fork);
    int rc = batch_flush(&w->base.op->batch);
    if (rc != FAR_OK && rc != FAR_BOUNDS)
        return rc;
    if (rc == FAR_BOUNDS || fork->checksum != sephash_fork_sum(fork))
        return index_damaged(w->view->base.table, "a fork");
    mark(w, sephash_target(state), SEPHASH_SMALL_CLASS);
    return index_parts_walk_split(&w->parts_walk, a, fork->child);
}

static int visit(struct index_walk *walk, const struct index_part *a, const void *anchor)
{
    struct walk *w = (struct walk *)walk;
    uint64_t state = ((const struct sephash_anchor *)anchor)->state;
    return sephash_is_split(state) ? visit_fork(w, a, state) : visit_segment(w, a, state);
}

static int walk(struct index_walk *base)
{
    struct walk *w = (struct walk *)base;
    struct sephash_view *view = w->view = sephash_view(base->view);
    struct sephash_root root;
    int rc = index_read_root(w->base.op, view->root, &root, sizeof root);
    if (rc != FAR_OK)
        return rc;
    mark(w, view->root, size_class_for(sizeof root));
    for (unsigned i = 0; i < SEPHASH_RESERVE; i++)
        if (root.reserve[i] != 0 && sephash_spare_whole(root.reserve[i]))
            mark_pointer(w, root.reserve[i]);
    w->parts_walk = (struct index_parts_walk){.base = base,
                                              .parts = &view->parts,
                                              .anchors = "SEPHASH-W1",
                                              .directory = "SEPHASH-W6",
                                              .visit = visit};
    rc = index_parts_walk(&w->parts_walk, root.directory);
    w->base.info.figure[3].value = 8ull << w->parts_walk.deepest;
    free(w->words);
    return rc;
}

static const struct index_walker walker = {sizeof(struct walk), walk};

int sephash_info(struct op *op, struct index_view *base, struct far_table_info *info)
{
    struct sephash_view *view = sephash_view(base);
    uint64_t cached = sizeof *view + index_parts_bytes(&view->parts) +
                      index_hints_bytes(view->hints); /* before the walk fills it */
    int rc = index_walk_info(&walker, op, base, view->tuning, info);
    if (rc == FAR_OK) {
        info->client_cache_bytes = cached;
        info->figure[0].name = "fptable_bytes";
        info->figure[1].name = "fptable_plain_bytes";
        info->figure[2].name = "header_bytes";
        info->figure[3].name = "directory_bytes";
        info->session[0] = (struct far_table_figure){"merges", view->merges};
    }
    return rc;
}

int sephash_check(struct op *op, struct index_view *base, struct index_report *report)
{
    return index_walk_check(&walker, op, base, report);
}

/* The version of caches need not change: what a session follows without a look at its anchor, the
 * anchors, stays reachable (PARTS-1). */
int sephash_mark(struct op *op, struct index_view *base, struct marker *marker)
{
    return index_walk_mark(&walker, op, base, marker);
}
