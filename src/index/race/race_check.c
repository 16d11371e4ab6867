/*
 * Walking the whole table: to count what is in it, and to prove on a quiet table that
 *
 *   W1  every directory entry leads to a live subtable, through `forward` if it is stale, whose
 *       depth and suffix are right for that entry;
 *   W2  all bucket headers of a subtable are the same, and right;
 *   W3  every committed slot points to a whole block of the slot's generation (R1), whose key has
 *       the slot's fingerprint and belongs to this subtable and to this bucket;
 *   W4  no key has two committed slots (R2).
 *
 * Tentative slots, and seals on a subtable that has no children, are what a client that died in
 * the middle leaves behind: legal, and mended by whoever comes next.
 */
#include "index/race/race.h"

#include <stdlib.h>

#define PROVE_LOOKS 3

struct walk {
    struct op *op;
    struct race_view *view;
    struct index_report *report; /* NULL: nobody asks for proofs */
    struct marker *marker;       /* NULL: nobody asks what is reached */
    struct far_table_info info;
    uint64_t *image;      /* a subtable's words                      */
    struct hash128 *seen; /* hashes of the keys of one subtable      */
    unsigned seen_count;
};

static int compare_hashes(const void *a, const void *b)
{
    const struct hash128 *x = a, *y = b;
    if (x->lo != y->lo)
        return x->lo < y->lo ? -1 : 1;
    return x->hi < y->hi ? -1 : x->hi > y->hi;
}

/* W3 for the slot at `word` of the subtable's image. */
static void check_block(struct walk *w, uint64_t entry, uint64_t suffix, unsigned word,
                        const void *block)
{
    uint64_t slot = w->image[word];
    unsigned depth = race_entry_depth(entry);
    struct race_key key;

    if (!block_valid(block, class_bytes(slot_class(slot)), slot_generation(slot))) {
        index_violation(w->report, "W3: subtable %llx word %u: the block is not whole",
                        (unsigned long long)entry, word);
        return;
    }
    const struct block_head *h = block;
    race_hash(w->view, (struct slice){block_key(block), h->klen}, &key);
    if (key.fingerprint != slot_fingerprint(slot))
        index_violation(w->report, "W3: subtable %llx word %u: fingerprint %02x of a key with %02x",
                        (unsigned long long)entry, word, slot_fingerprint(slot), key.fingerprint);
    if ((key.hash & ((1ull << depth) - 1)) != suffix)
        index_violation(w->report, "W3: subtable %llx word %u: the key belongs to another subtable",
                        (unsigned long long)entry, word);
    uint64_t offset = word * 8ull;
    bool first = offset - key.combined[0] < RACE_COMBINED_BYTES;
    bool second = offset - key.combined[1] < RACE_COMBINED_BYTES;
    if (!first && !second)
        index_violation(w->report, "W3: subtable %llx word %u: the key belongs to another bucket",
                        (unsigned long long)entry, word);
    w->seen[w->seen_count++] =
        hash_key(block_key(block), h->klen, w->view->base.table->desc.hash_seed);
}

static int check_slots(struct walk *w, uint64_t entry, uint64_t suffix)
{
    unsigned words = race_subtable_bytes(w->view->groups) / 8;
    w->seen_count = 0;
    for (unsigned i = sizeof(struct race_subtable_head) / 8; i < words; i++) {
        uint64_t slot = w->image[i];
        if (!race_is_slot(i) || slot_empty(slot) || (slot & SLOT_TENTATIVE))
            continue;
        if (slot_class(slot) >= CLASS_COUNT) {
            index_violation(w->report, "W3: subtable %llx word %u: no such size class",
                            (unsigned long long)entry, i);
            continue;
        }
        uint32_t bytes = class_bytes(slot_class(slot));
        void *block = op_buffer(w->op, BUF_BLOCK_IN, bytes);
        if (!block)
            return FAR_NO_MEMORY;
        batch_read(&w->op->batch, slot_gaddr(slot), 0, block, bytes);
        int rc = batch_flush(&w->op->batch);
        if (rc == FAR_BOUNDS)
            index_violation(w->report, "W3: subtable %llx word %u points outside the pool",
                            (unsigned long long)entry, i);
        else if (rc != FAR_OK)
            return rc;
        else
            check_block(w, entry, suffix, i, block);
    }
    qsort(w->seen, w->seen_count, sizeof *w->seen, compare_hashes);
    for (unsigned i = 1; i < w->seen_count; i++)
        if (compare_hashes(&w->seen[i - 1], &w->seen[i]) == 0)
            index_violation(w->report, "W4: subtable %llx holds a key twice",
                            (unsigned long long)entry);
    return FAR_OK;
}

/* Counts, and marks, one live subtable whose image has been read. */
static void visit_live(struct walk *w, uint64_t entry, uint64_t suffix)
{
    struct race_view *view = w->view;
    uint64_t header = race_header(view->tag, race_entry_depth(entry), suffix);

    for (unsigned i = sizeof(struct race_subtable_head) / 8;
         i < race_subtable_bytes(view->groups) / 8; i++) {
        uint64_t word = w->image[i];
        if (!race_is_slot(i)) {
            if (word != header && w->report)
                index_violation(w->report, "W2: subtable %llx word %u: a wrong bucket header",
                                (unsigned long long)entry, i);
        } else if (!slot_empty(word) && !(word & SLOT_TENTATIVE)) {
            w->info.keys++;
            if (slot_class(word) < CLASS_COUNT)
                w->info.block_bytes += class_bytes(slot_class(word));
            if (w->marker)
                w->marker->mark(w->marker, slot_gaddr(word), slot_class(word));
        }
    }
    w->info.slots += (uint64_t)view->groups * RACE_GROUP_SLOTS;
    w->info.index_bytes += class_bytes(race_subtable_class(view->groups));
}

static int read_subtable(struct walk *w, uint64_t entry)
{
    op_breathe(w->op, &w->view->base.cached);
    batch_read(&w->op->batch, race_entry_subtable(entry), 0, w->image,
               race_subtable_bytes(w->view->groups));
    int rc = batch_flush(&w->op->batch);
    return rc == FAR_BOUNDS ? fail(FAR_CORRUPT, "W1: a subtable is outside the pool") : rc;
}

/* Checks one live subtable. While others write, the image is of many instants, and a key that was
 * deleted and inserted again may be in it twice: what is wrong must be wrong at every look. */
static int prove(struct walk *w, uint64_t entry, uint64_t suffix)
{
    struct index_report quiet, *report = w->report;
    for (unsigned look = 0; look < PROVE_LOOKS; look++) {
        bool last = look + 1 == PROVE_LOOKS;
        quiet = (struct index_report){.violations = 0};
        w->report = last ? report : &quiet;
        int rc = check_slots(w, entry, suffix);
        w->report = report;
        if (rc != FAR_OK || last || quiet.violations == 0)
            return rc;
        rc = read_subtable(w, entry);
        if (rc != FAR_OK)
            return rc;
    }
    return FAR_OK;
}

/*
 * Goes from a directory entry to the live subtables behind it. `bits` of `path` are decided: those
 * of the entry's index. Of the indexes that lead to one subtable, the lowest visits it.
 */
static int visit(struct walk *w, uint64_t entry, uint64_t path, unsigned bits)
{
    struct race_view *view = w->view;
    const struct race_subtable_head *head = (const struct race_subtable_head *)w->image;

    for (;;) { /* each turn goes one deeper: at most dir_bits turns */
        unsigned depth = race_entry_depth(entry);
        uint64_t suffix = path & ((1ull << depth) - 1);
        if (depth > view->dir_bits)
            return fail(FAR_CORRUPT, "W1: a subtable below the directory's limit");
        int rc = read_subtable(w, entry);
        if (rc != FAR_OK)
            return rc;
        if (head->header != race_header(view->tag, depth, suffix))
            return fail(FAR_CORRUPT, "W1: a directory entry leads to another subtable");
        if (w->marker)
            w->marker->mark(w->marker, race_entry_subtable(entry),
                            race_subtable_class(view->groups));
        uint64_t forward = head->forward;
        if (forward == 0) {
            if (depth < bits && path != suffix)
                return FAR_OK;
            visit_live(w, entry, suffix);
            return w->report ? prove(w, entry, suffix) : FAR_OK;
        }
        if (depth >= bits) { /* deeper than the directory says: both children are ours to visit */
            rc = visit(w, race_forward_entry(forward, 0, depth + 1), path, depth + 1);
            if (rc != FAR_OK)
                return rc;
            path |= 1ull << depth;
            bits = depth + 1;
        }
        entry = race_forward_entry(forward, (path >> depth) & 1, depth + 1);
    }
}

static int walk(struct walk *w)
{
    struct race_view *view = w->view;
    int rc = race_refresh(w->op, view);
    if (rc != FAR_OK)
        return rc;
    w->image = op_buffer(w->op, BUF_BULK, race_subtable_bytes(view->groups));
    w->seen = malloc(view->groups * RACE_GROUP_SLOTS * sizeof *w->seen);
    if (!w->image || !w->seen)
        rc = fail(FAR_NO_MEMORY, "no memory for walking a table");
    for (uint64_t i = 0; i < 1ull << view->depth && rc == FAR_OK; i++)
        rc = view->entries[i] == 0 || race_entry_depth(view->entries[i]) > view->depth
                 ? fail(FAR_CORRUPT, "W1: directory entry %llu is damaged", (unsigned long long)i)
                 : visit(w, view->entries[i], i, view->depth);
    free(w->seen);
    w->info.index_bytes += sizeof(struct race_root) + (8ull << view->dir_bits);
    return rc;
}

int race_info(struct op *op, struct index_view *base, struct far_table_info *info)
{
    struct race_view *view = race_view(base);
    struct walk w = {.op = op, .view = view};
    int rc = walk(&w);
    if (rc != FAR_OK)
        return rc;
    w.info.client_cache_bytes = sizeof *view + (sizeof *view->entries << view->depth);
    w.info.load_factor = w.info.slots ? (double)w.info.keys / (double)w.info.slots : 0;
    w.info.splits = view->splits;
    w.info.split_load_max = view->split_load_max;
    w.info.split_load_mean = view->splits ? view->split_load_sum / (double)view->splits : 0;
    *info = w.info;
    return FAR_OK;
}

int race_check(struct op *op, struct index_view *base, struct index_report *report)
{
    struct walk w = {.op = op, .view = race_view(base), .report = report};
    return walk(&w);
}

int race_mark(struct op *op, struct index_view *base, struct marker *marker)
{
    struct race_view *view = race_view(base);
    struct walk w = {.op = op, .view = view, .marker = marker};
    marker->mark(marker, view->root, class_for(sizeof(struct race_root)));
    marker->mark(marker, view->directory, class_for(8ull << view->dir_bits));
    return walk(&w);
}
