/*
 * Walking the whole table: to count what is in it, and to prove on a quiet table that
 *
 *   RACE-W1  every directory entry leads to a live subtable, through `forward` if it is stale,
 *       whose depth and suffix are right for that entry;
 *   RACE-W2  all bucket headers of a subtable are the same, and right;
 *   RACE-W3  no slot is sealed and tentative; every committed slot points to a whole block of the
 *       slot's generation and size class (RACE-R1), whose key has the slot's fingerprint and
 *       belongs to this subtable and to this bucket;
 *   RACE-W4  no key has two committed slots (RACE-R2).
 *
 * A client that dies in the middle leaves tentative slots, or seals and a claim on a subtable that
 * has no children. They are legal, and the next client that meets them cleans up. A dead client's
 * claim is reported all the same: writers wait for it until they notice.
 */
#include "index/race/race.h"
#include "index/walk.h"

#include <stdlib.h>
#include <string.h>

struct walk {
    struct index_walk base;
    struct race_view *view;
    unsigned depth;         /* of the directory when the walk began                   */
    uint64_t *entries;      /* ... as it was then, but for what was repaired          */
    uint64_t *forward;      /* of the subtable that an index is the lowest to lead to */
    uint64_t *image;        /* a subtable's words                                     */
    uint64_t entry, suffix; /* of the directory, and its suffix: they lead there      */
};

static struct index_finding *found(struct walk *w, enum race_fault fault, unsigned word)
{
    return index_found(&w->base.findings, fault, word, w->image[word]);
}

/* RACE-W3 for the slot at `word` of the subtable's image. */
static void check_block(struct walk *w, unsigned word, const void *block)
{
    uint64_t slot = w->image[word], offset = word * 8ull;
    const struct block_head *h = block;
    struct race_key key;

    race_hash(w->view, (struct slice){block_key(block), h->klen}, &key);
    bool first = offset - key.combined[0] < RACE_COMBINED_BYTES;
    bool second = offset - key.combined[1] < RACE_COMBINED_BYTES;
    if (key.fingerprint != slot_fingerprint(RACE_SLOT, slot) || (!first && !second) ||
        race_suffix(key.hash, race_entry_depth(w->entry)) != w->suffix) {
        found(w, RACE_MISPLACED, word);
        return;
    }
    unsigned size_class = size_class_for(block_bytes(h->klen, h->vlen));
    if (size_class != pointer_class(slot)) {
        found(w, RACE_CLASS, word)->right = pointer_with_class(slot, size_class);
        return;
    }
    w->base.seen[w->base.seen_count++] =
        index_walk_key(&w->view->base, block, word,
                       (unsigned)(first ? offset - key.combined[0]
                                        : RACE_COMBINED_BYTES + offset - key.combined[1]));
}

static bool has_block(void *arg, unsigned word, uint64_t *pointer)
{
    const struct walk *w = arg;
    *pointer = w->image[word];
    return word >= RACE_HEAD_WORDS && race_is_slot(word) && race_slot_committed(*pointer);
}

static int each_block(void *arg, unsigned word, const void *block)
{
    if (block)
        check_block(arg, word, block);
    else
        found(arg, RACE_UNREADABLE, word);
    return FAR_OK;
}

/* RACE-W2, RACE-W3 and RACE-W4 for one live subtable, whose image has been read. */
static int check_words(struct walk *w)
{
    uint64_t header = race_header(w->view->tag, race_entry_depth(w->entry), w->suffix);
    unsigned words = race_subtable_words(w->view->groups);
    w->base.seen_count = 0;
    for (unsigned i = RACE_HEAD_WORDS; i < words; i++)
        if (!race_is_slot(i) && w->image[i] != header)
            found(w, RACE_HEADER, i)->right = header;
        else if (race_is_slot(i) && race_slot_unknown(w->image[i]))
            found(w, RACE_UNKNOWN, i);
    int rc = index_walk_blocks(
        w->base.op, &(struct index_walk_blocks){RACE_SLOT, words, has_block, each_block, w});
    index_walk_twice(&w->base, RACE_TWICE, w->image);
    return rc;
}

static gaddr word_at(const struct index_walk *walk, unsigned place, uint64_t *delta)
{
    *delta = place * 8ull;
    return race_entry_subtable(((const struct walk *)walk)->entry);
}

static int repair(struct index_walk *walk, const struct index_finding *f, bool *done)
{
    struct walk *w = (struct walk *)walk;
    return race_repair(walk->op, w->view, race_entry_subtable(w->entry), f, done);
}

static const struct index_walk_faults faults = {
    .format = RACE_SLOT,
    .unreadable = RACE_UNREADABLE,
    .word_at = word_at,
    .repair = repair,
    .fault =
        (const struct index_fault[]){
            [RACE_HEADER] = {"RACE-W2: broken link: a wrong bucket header",
                             "  repaired: the header was corrected", true},
            [RACE_UNREADABLE] =
                {"RACE-W3: broken link: no whole block",
                 "  repaired: the slot was emptied; its key cannot be read any more", false},
            [RACE_MISPLACED] = {"RACE-W3: broken link: a key in a place where it is not looked for",
                                "  repaired: the key is where it belongs", false},
            [RACE_CLASS] =
                {"RACE-W3: broken link: a slot that gives a block another size than it has",
                 "  repaired: the size was corrected", false},
            [RACE_TWICE] = {"RACE-W4: duplicate: a key that is there twice",
                            "  repaired: the copy that others do not find was removed", false},
            [RACE_UNKNOWN] = {"RACE-W3: broken link: a word of no known kind", "", false},
        },
};

/* Counts, and marks, one live subtable whose image has been read. */
static void visit_live(struct walk *w)
{
    struct race_view *view = w->view;
    for (unsigned i = RACE_HEAD_WORDS; i < race_subtable_words(view->groups); i++) {
        uint64_t word = w->image[i];
        if (race_is_slot(i) && race_slot_committed(word))
            index_walk_slot(&w->base.info, w->base.marker, word);
    }
    w->base.info.slots += (uint64_t)view->groups * RACE_GROUP_SLOTS;
    w->base.info.figure[0].value += 8ull * (RACE_HEAD_WORDS + 3 * view->groups);
    w->base.info.index_bytes += size_class_bytes(race_subtable_class(view->groups));
}

static int read_subtable(struct walk *w, uint64_t entry)
{
    batch_read(&w->base.op->batch, race_entry_subtable(entry), 0, w->image,
               race_subtable_bytes(w->view->groups));
    int rc = batch_flush(&w->base.op->batch);
    return rc == FAR_BOUNDS ? err_fail(FAR_CORRUPT, "RACE-W1: a subtable is outside the pool") : rc;
}

static int look(void *arg, unsigned number)
{
    struct walk *w = arg;
    int rc = number > 0 ? read_subtable(w, w->entry) : FAR_OK;
    return rc == FAR_OK ? check_words(w) : rc;
}

/* Checks one live subtable. */
static int prove(struct walk *w, uint64_t entry, uint64_t suffix)
{
    w->entry = entry;
    w->suffix = suffix;
    return index_walk_part(&w->base, look, &faults);
}

/* A claim of a client that is dead. *forward is set if the split has been completed. */
static int check_claim(struct walk *w, uint64_t entry, uint64_t suffix, uint64_t claim,
                       uint64_t *forward)
{
    gaddr subtable = race_entry_subtable(entry);
    bool alive = true;
    int rc = client_owner_alive(w->base.op, claim, &alive);
    if (rc == FAR_OK && !alive) /* it may have completed the split, and left, meanwhile */
        rc = race_read_forward(w->base.op, subtable, forward);
    if (rc != FAR_OK || alive || *forward != 0)
        return rc;
    index_stranded(w->base.report,
                   "stranded lock: the session in slot %u left a split of the subtable at "
                   "%u:0x%llx undone",
                   owner_slot(claim), gaddr_node(subtable),
                   (unsigned long long)gaddr_offset(subtable));
    if (!w->base.report->repair)
        return FAR_OK;
    rc = race_complete_split(w->base.op, &w->view->base, (uint32_t)suffix, entry);
    if (rc == FAR_OK)
        rc = race_read_forward(w->base.op, subtable, forward);
    if (rc == FAR_OK && *forward != 0)
        index_repaired(w->base.report, &w->base.report->stranded,
                       "  repaired: the split was completed");
    return rc;
}

/* Is only the head of the subtable wrong? Most of its buckets have the right header then. */
static bool only_head_differs(const struct walk *w, uint64_t header)
{
    unsigned agree = 0, buckets = w->view->groups * 3;
    for (unsigned i = 0; i < buckets; i++)
        agree += w->image[RACE_HEAD_WORDS + i * RACE_BUCKET_WORDS] == header;
    return agree > buckets / 2;
}

/* `ours`: of the entries that lead there, this is the one that reports it. */
static int check_head(struct walk *w, uint64_t entry, uint64_t header, bool ours)
{
    const unsigned word = offsetof(struct race_subtable_head, header) / 8;
    if (!w->base.report || !only_head_differs(w, header))
        return err_fail(FAR_CORRUPT, "RACE-W1: broken link: it leads to another subtable");
    if (!ours)
        return FAR_OK;
    w->entry = entry;
    w->base.findings.count = 0;
    found(w, RACE_HEADER, word)->right = header;
    int rc = index_walk_handle(&w->base, &faults);
    return rc == FAR_OK ? read_subtable(w, entry) : rc;
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
        uint64_t suffix = race_suffix(path, depth);
        if (depth > view->dir_bits)
            return err_fail(FAR_CORRUPT, "RACE-W1: a subtable deeper than the directory's limit");
        int rc = read_subtable(w, entry);
        if (rc != FAR_OK)
            return rc;
        if (head->header != race_header(view->tag, depth, suffix))
            rc = check_head(w, entry, race_header(view->tag, depth, suffix),
                            depth >= bits || path == suffix);
        if (rc != FAR_OK)
            return rc;
        if (w->base.marker)
            w->base.marker->mark(w->base.marker, race_entry_subtable(entry),
                                 race_subtable_class(view->groups));
        uint64_t forward = head->forward;
        if (path == suffix && depth <= w->depth && w->entries[path] == entry)
            w->forward[path] = forward;
        if (forward == 0 && depth < bits && path != suffix)
            return FAR_OK;
        if (forward == 0 && head->claim != 0 && w->base.report)
            rc = check_claim(w, entry, suffix, head->claim, &forward);
        if (rc != FAR_OK)
            return rc;
        if (forward == 0) {
            visit_live(w);
            return w->base.report ? prove(w, entry, suffix) : FAR_OK;
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

/* Many entries may lead to one subtable, which is read for the lowest of them. */
static int visit_once(struct walk *w, uint64_t entry, uint64_t index)
{
    unsigned depth = race_entry_depth(entry);
    uint64_t lowest = race_suffix(index, depth);
    if (lowest == index || w->entries[lowest] != entry)
        return visit(w, entry, index, w->depth);
    uint64_t forward = w->forward[lowest];
    return forward == 0 ? FAR_OK
                        : visit(w, race_forward_entry(forward, (index >> depth) & 1, depth + 1),
                                index, w->depth);
}

/* One directory entry. If proofs are wanted, damage to it is a finding, and the walk goes on with
 * the next one. */
static int visit_entry(struct walk *w, uint64_t i)
{
    struct race_view *view = w->view;
    bool done = false;
    for (unsigned attempt = 0;; attempt++) {
        uint64_t entry = w->entries[i];
        int rc =
            entry == 0 || race_entry_depth(entry) > w->depth
                ? err_fail(FAR_CORRUPT, "RACE-W1: broken link: directory entry %llu is damaged",
                           (unsigned long long)i)
                : visit_once(w, entry, i);
        if (rc != FAR_CORRUPT || !w->base.report)
            return rc;
        if (attempt == 0)
            index_violation(w->base.report, "%s (directory entry %llu)", far_error_detail(),
                            (unsigned long long)i);
        if (attempt > 0 || !w->base.report->repair)
            return FAR_OK;
        rc = race_repair_entry(w->base.op, view, i, &done);
        if (rc != FAR_OK || !done)
            return rc;
        w->entries[i] = view->entries[i];
        index_repaired(w->base.report, &w->base.report->violations,
                       "  repaired: it was replaced by another that leads there");
    }
}

static bool too_deep(const struct race_view *view)
{
    for (uint64_t i = 0; i < 1ull << view->depth; i++)
        if (race_entry_depth(view->entries[i]) > view->depth)
            return true;
    return false;
}

/* Its depth is read before its entries: if it was doubled in between, once more. */
static int read_directory(struct walk *w)
{
    int rc = race_refresh(w->base.op, w->view);
    for (unsigned i = 0; rc == FAR_OK && i <= w->view->dir_bits && too_deep(w->view); i++)
        rc = race_refresh(w->base.op, w->view);
    return rc;
}

static int walk(struct index_walk *base)
{
    struct walk *w = (struct walk *)base;
    struct race_view *view = w->view = race_view(base->view);
    int rc = read_directory(w);
    if (rc != FAR_OK)
        return rc;
    unsigned words = race_subtable_words(view->groups);
    uint64_t entries = 1ull << view->depth;
    w->depth = view->depth;
    w->image = index_walk_image(base, words * 8);
    w->entries = calloc(2 * entries, sizeof *w->entries);
    rc = w->image && w->entries ? index_walk_room(base, words, words) : index_walk_no_memory();
    if (rc == FAR_OK) {
        memcpy(w->entries, view->entries, entries * sizeof *w->entries);
        w->forward = w->entries + entries;
    }
    for (uint64_t i = 0; i < entries && rc == FAR_OK; i++) {
        rc = visit_entry(w, i);
        if (rc == FAR_OK)
            rc = index_walk_progress(w->base.op, &view->base, i + 1, entries);
    }
    free(w->entries);
    w->base.info.index_bytes += sizeof(struct race_root) + (8ull << view->dir_bits);
    w->base.info.figure[1].value = 8ull << view->depth;
    return rc;
}

static const struct index_walker walker = {sizeof(struct walk), walk};

int race_info(struct op *op, struct index_view *base, struct far_table_info *info)
{
    struct race_view *view = race_view(base);
    const uint64_t tuning[] = {[RACE_TUNING_GROUPS] = view->groups,
                               [RACE_TUNING_DEPTH] = view->depth_asked,
                               [RACE_TUNING_HOT] = view->hot};
    int rc = index_walk_info(&walker, op, base, tuning, info);
    if (rc == FAR_OK) {
        info->client_cache_bytes = sizeof *view + (sizeof *view->entries << view->depth) +
                                   index_hints_bytes(view->hints) + index_owns_bytes(&view->owns);
        info->figure[0].name = "header_bytes";
        info->figure[1].name = "directory_bytes";
    }
    return rc;
}

int race_check(struct op *op, struct index_view *base, struct index_report *report)
{
    return index_walk_check(&walker, op, base, report);
}

int race_mark(struct op *op, struct index_view *base, struct marker *marker)
{
    struct race_view *view = race_view(base);
    marker->mark(marker, view->root, size_class_for(sizeof(struct race_root)));
    marker->mark(marker, view->directory, size_class_for(8ull << view->dir_bits));
    int rc = index_walk_mark(&walker, op, base, marker);
    if (rc != FAR_OK || !marker->sweeps)
        return rc;
    /* The splitter of a subtable may have failed or died between taking it out of the directory and
     * changing the version. */
    index_bump_version(op, &view->base);
    return batch_flush(&op->batch);
}
