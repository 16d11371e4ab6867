#include "index/parts_walk.h"

#include <stdlib.h>
#include <string.h>

/* ---- anchors --------------------------------------------------------------------------------- */

static void push(struct index_parts_walk *w, gaddr anchor, unsigned depth, uint64_t suffix)
{
    ASSERT(w->waiting < sizeof w->stack / sizeof *w->stack);
    w->stack[w->waiting++] =
        (struct index_part){.anchor = anchor, .depth = (uint8_t)depth, .suffix = suffix};
}

int index_parts_walk_split(struct index_parts_walk *w, const struct index_part *parent,
                           const uint64_t child[2])
{
    if (parent->depth >= w->parts->depth_max)
        return err_fail(FAR_CORRUPT, "a part of table '%s' is too deep to be split",
                        w->parts->table->desc.name);
    push(w, child[1], parent->depth + 1u, parent->suffix | 1ull << parent->depth);
    push(w, child[0], parent->depth + 1u, parent->suffix);
    return FAR_OK;
}

/* One anchor. If proofs are wanted, one that leads nowhere is a finding, and the walk goes on. */
static int visit_anchor(struct index_parts_walk *w, const struct index_part *part)
{
    const struct index_parts *parts = w->parts;
    batch_read(&w->base->op->batch, part->anchor, 0, w->base->op->word, parts->anchor_bytes);
    int rc = batch_flush(&w->base->op->batch);
    if (rc == FAR_BOUNDS ||
        (rc == FAR_OK && w->base->op->word[parts->id_at / 8] != index_part_id(parts, part)))
        rc = index_damaged(parts->table, "an anchor");
    if (rc == FAR_OK) {
        index_walk_object(&w->base->info, w->base->marker, part->anchor,
                          size_class_for(parts->anchor_bytes));
        w->deepest = part->depth > w->deepest ? part->depth : w->deepest;
        rc = w->visit(w->base, part, w->base->op->word);
    }
    if (rc == FAR_CORRUPT && w->base->report) {
        index_violation(w->base->report, "%s: broken link: %s (depth %u, suffix %llu)", w->anchors,
                        far_error_detail(), part->depth, (unsigned long long)part->suffix);
        return FAR_OK;
    }
    return rc;
}

/* All anchors that one of the first ones leads to. */
static int visit_all(struct index_parts_walk *w, gaddr first, uint64_t suffix)
{
    unsigned most = w->parts->depth_max;
    int rc = FAR_OK;
    push(w, first, w->parts->start, suffix);
    while (w->waiting > 0 && rc == FAR_OK) {
        struct index_part part = w->stack[--w->waiting];
        unsigned before = w->waiting;
        rc = visit_anchor(w, &part);
        if (w->waiting == before)
            w->done += 1ull << (most - part.depth);
        if (rc == FAR_OK)
            rc = index_walk_progress(w->base->op, w->base->view, w->done, 1ull << most);
    }
    return rc;
}

/* ---- the directory --------------------------------------------------------------------------- */

/* Is it a directory that the root's word names? */
static bool names_directory(const struct index_parts_walk *w, uint64_t word)
{
    unsigned depth = index_deep_depth(word);
    return depth >= w->parts->start && depth <= INDEX_DIRECTORY_BITS_MAX &&
           index_inside(w->base->op->pool, index_deep_at(word), 8ull << depth);
}

static int mark_directory(struct index_parts_walk *w, uint64_t word)
{
    if (names_directory(w, word))
        index_walk_object(&w->base->info, w->base->marker, index_deep_at(word),
                          index_directory_class(index_deep_depth(word)));
    else if (w->base->report)
        index_violation(w->base->report, "%s: broken link: the root names no directory",
                        w->directory);
    else if (w->base->marker)
        return index_damaged(w->parts->table, "the root");
    return FAR_OK;
}

/* An entry of the directory is wrong. `first`: the first anchors. */
static int report_entry(struct index_parts_walk *w, gaddr directory, uint64_t i, uint64_t entry,
                        const uint64_t *first)
{
    ASSERT(w->base->report && i >> INDEX_DIRECTORY_BITS_MAX == 0);
    unsigned start = w->parts->start;
    index_violation(w->base->report, "%s: broken link: entry %llu of the directory", w->directory,
                    (unsigned long long)i);
    if (!w->base->report->repair)
        return FAR_OK;
    unsigned n = op_cas(w->base->op, MARK_PUBLISH, directory, 8 * i, entry,
                        index_deep(first[index_suffix(i, start)], start));
    int rc = batch_flush(&w->base->op->batch);
    if (rc == FAR_OK && op_swapped(w->base->op, n))
        index_repaired(w->base->report, &w->base->report->violations,
                       "  repaired: it leads to a first anchor");
    return rc;
}

/* Can the entry lead to an anchor? */
static bool names_anchor(const struct index_parts_walk *w, uint64_t entry)
{
    unsigned depth = index_deep_depth(entry);
    return depth >= w->parts->start && depth <= w->parts->depth_max &&
           index_inside(w->base->op->pool, index_deep_at(entry), w->parts->anchor_bytes);
}

/* The lowest index of those that lead to the part of this entry. It may hold another entry. */
static uint64_t lowest(const uint64_t *entries, uint64_t i)
{
    return index_suffix(i, index_deep_depth(entries[i]));
}

/* Reads the ids of anchors from entry `from` on, as many as fit into a batch, and judges the
 * entries by them. Of those that are the same, the lowest says whether all are good. Returns where
 * it ended. */
static uint64_t judge_entries(struct index_parts_walk *w, const uint64_t *entries, uint64_t from,
                              uint64_t end, bool *good, int *rc)
{
    struct op *op = w->base->op;
    uint64_t i = from, seed = w->parts->table->desc.hash_seed;
    unsigned n = 0;
    for (; i < end && batch_room(&op->batch) > 0; i++)
        if (names_anchor(w, entries[i]) &&
            (lowest(entries, i) == i || entries[lowest(entries, i)] != entries[i]))
            (void)op_read(op, index_deep_at(entries[i]), w->parts->id_at);
    *rc = batch_flush(&op->batch);
    for (uint64_t j = from; j < i && *rc == FAR_OK; j++) {
        good[j] = names_anchor(w, entries[j]);
        if (!good[j])
            continue;
        uint64_t same = lowest(entries, j);
        if (same < j && entries[same] == entries[j])
            good[j] = good[same];
        else
            good[j] = op->word[n++] == index_anchor_id(seed, index_deep_depth(entries[j]), same);
    }
    return i;
}

static int check_entries(struct index_parts_walk *w, gaddr directory, const uint64_t *entries,
                         uint64_t count, const uint64_t *first)
{
    bool *good = malloc(count);
    int rc = good ? FAR_OK : index_walk_no_memory();
    for (uint64_t i = 0; i < count && rc == FAR_OK;) {
        uint64_t from = i;
        i = judge_entries(w, entries, from, count, good, &rc);
        for (uint64_t j = from; j < i && rc == FAR_OK; j++)
            if (!good[j])
                rc = report_entry(w, directory, j, entries[j], first);
    }
    free(good);
    return rc;
}

/* Reads an array of 2^depth words. The caller frees it. */
static int read_words(struct op *op, gaddr at, unsigned depth, uint64_t **words)
{
    ASSERT(op->batch.count == 0);
    uint64_t *in = op_buffer(op, BUF_BULK, 8ull << depth);
    *words = malloc(8ull << depth);
    if (!in || !*words)
        return index_walk_no_memory();
    batch_read(&op->batch, at, 0, in, 8u << depth);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        memcpy(*words, in, 8ull << depth);
    return rc;
}

/* `began`: the root's word when the walk began. */
static int check_directory(struct index_parts_walk *w, uint64_t began, uint64_t word,
                           const uint64_t *first)
{
    unsigned depth = index_deep_depth(word);
    uint64_t *entries = NULL;
    if (!names_directory(w, word))
        return FAR_OK; /* that was reported */
    /* A directory is doubled for a part of its depth. If there is none, the word is damaged, and
     * what it names may be anything. But if the word has changed since, then a part may have been
     * split behind the walk: the next one looks at that. */
    if (depth > w->deepest) {
        if (word == began)
            index_violation(w->base->report, "%s: broken link: the directory is too large",
                            w->directory);
        return FAR_OK;
    }
    int rc = read_words(w->base->op, index_deep_at(word), depth, &entries);
    if (rc == FAR_OK)
        rc = check_entries(w, index_deep_at(word), entries, 1ull << depth, first);
    free(entries);
    return rc;
}

int index_parts_walk(struct index_parts_walk *w, uint64_t word)
{
    ASSERT(w->waiting == 0);
    const struct index_parts *parts = w->parts;
    uint64_t *first = NULL;
    int rc = read_words(w->base->op, parts->first, parts->start, &first);
    index_walk_object(&w->base->info, w->base->marker, parts->first,
                      index_directory_class(parts->start));
    if (rc == FAR_OK)
        rc = mark_directory(w, word);
    for (uint64_t i = 0; rc == FAR_OK && i < 1ull << parts->start; i++)
        rc = visit_all(w, first[i], i);
    if (rc == FAR_OK &&
        w->base->report) { /* a visit may have let the epoch go on: which one is it now? */
        unsigned n = op_read(w->base->op, parts->table->desc.root, parts->word_at);
        rc = batch_flush(&w->base->op->batch);
        if (rc == FAR_OK)
            rc = check_directory(w, word, op_result(w->base->op, n), first);
    }
    free(first);
    return rc == FAR_BOUNDS ? index_damaged(parts->table, "the root") : rc;
}
