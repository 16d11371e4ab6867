/*
 * Walking the whole table: to count, to mark, and to prove that
 *
 *   TRIE-W1  every word that names a node leads to one with the id that its path gives (TRIE-T6);
 *   TRIE-W2  every other word that is not 0 leads to a whole block (TRIE-T1) of the word's class
 *       and fingerprint, whose key has its place there (TRIE-T3).
 *
 * Repairs are made while others work, and no good data is lost by them:
 *
 *   TRIE-Q1  A word is changed by CAS, from what was judged to be wrong.
 *   TRIE-Q2  An id that is wrong in one bit is corrected. So is a word that leads to the right node
 *       after one of its bits was flipped: by FLIP-1, these ids are as good as a checksum. Others
 *       that should lead to a node stay as they are.
 *   TRIE-Q3  A key in a wrong place is inserted, as any session would, and only then is that place
 *       emptied.
 *   TRIE-Q4  A word that leads to no whole block is emptied: its key cannot be read by any client.
 *   TRIE-Q5  A word that gives its block another size is given that of the block.
 */
#include "trie/trie.h"
#include "index/flip.h"
#include "index/walk.h"

/* A node that is visited. */
struct part {
    gaddr node;
    uint64_t id, position;
    unsigned level;
    uint64_t *image;
};

struct walk {
    struct index_walk base;
    struct trie_view *view;
    uint64_t *images; /* a node for each level */
    struct part part; /* that is proved */
};

enum fault { UNREADABLE, MISPLACED, WRONG_CLASS };

/* TRIE-W1 */
static int read_node(struct walk *w, const struct part *part)
{
    part->image[0] = 0;
    batch_read(&w->base.op->batch, part->node, 0, part->image, w->view->bytes);
    int rc = batch_flush(&w->base.op->batch);
    if (rc == FAR_BOUNDS || (rc == FAR_OK && part->image[0] != part->id))
        return err_fail(FAR_CORRUPT, "TRIE-W1: broken link: there is no node at %u:0x%llx",
                        gaddr_node(part->node), (unsigned long long)gaddr_offset(part->node));
    return rc;
}

/* ---- proving --------------------------------------------------------------------------------- */

static bool has_block(void *arg, unsigned digit, uint64_t *pointer)
{
    const struct walk *w = arg;
    *pointer = w->part.image[1 + digit];
    return *pointer != 0 && !trie_is_node(*pointer);
}

/* TRIE-W2 for one word. */
static int each_block(void *arg, unsigned digit, const void *block)
{
    struct walk *w = arg;
    const struct part *part = &w->part;
    const struct block_head *h = block;
    uint64_t word = part->image[1 + digit];
    struct trie_key key;
    if (!block) {
        index_found(&w->base.findings, UNREADABLE, digit, word);
        return FAR_OK;
    }
    trie_hash(w->view, (struct slice){block_key(block), h->klen}, &key);
    uint64_t here = part->position | (uint64_t)digit << trie_shift(w->view, part->level);
    unsigned size_class = size_class_for(block_bytes(h->klen, h->vlen));
    if (key.fingerprint != slot_fingerprint(TRIE_SLOT, word) ||
        (key.position ^ here) >> trie_shift(w->view, part->level) != 0)
        index_found(&w->base.findings, MISPLACED, digit, word);
    else if (size_class != pointer_class(word))
        index_found(&w->base.findings, WRONG_CLASS, digit, word)->right =
            pointer_with_class(word, size_class);
    return FAR_OK;
}

/* WALK-1: every look after the first reads the node again. */
static int look(void *arg, unsigned number)
{
    struct walk *w = arg;
    int rc = number > 0 ? read_node(w, &w->part) : FAR_OK;
    return rc == FAR_OK ? index_walk_blocks(w->base.op,
                                            &(struct index_walk_blocks){TRIE_SLOT, w->view->words,
                                                                        has_block, each_block, w})
                        : rc;
}

/* ---- repairing ------------------------------------------------------------------------------- */

/* TRIE-Q1. If the word has changed, another client has handled it. */
static int correct(struct walk *w, gaddr node, uint64_t offset, uint64_t from, uint64_t to,
                   bool *done)
{
    unsigned n = op_cas(w->base.op, MARK_PUBLISH, node, offset, from, to);
    int rc = batch_flush(&w->base.op->batch);
    *done = rc == FAR_OK && op_swapped(w->base.op, n);
    return rc;
}

/* TRIE-Q2: the word, with one of its bits flipped, that leads to the node with this id. 0: there is
 * none, or there are several. */
static int find_node(struct walk *w, uint64_t word, uint64_t id, uint64_t *right)
{
    uint64_t tried[64];
    unsigned count = 0, hits = 0;
    *right = 0;
    for (unsigned bit = 0; bit < 64; bit++) {
        uint64_t other = word;
        index_flip(&other, bit);
        if (!trie_is_node(other) ||
            !index_inside(w->base.op->pool, trie_node_at(other), w->view->bytes))
            continue;
        tried[count++] = other;
        op_read(w->base.op, trie_node_at(other), 0);
        batch_may_be_freed(&w->base.op->batch);
    }
    int rc = batch_flush(&w->base.op->batch);
    for (unsigned n = 0; n < count && rc == FAR_OK; n++)
        if (op_result(w->base.op, n) == id) {
            *right = tried[n];
            hits++;
        }
    if (hits != 1)
        *right = 0;
    return rc;
}

static int repair_word(struct walk *w, const struct index_finding *f, const char **how)
{
    uint64_t to = f->right, offset = trie_word_offset(f->place);
    bool there = f->fault != MISPLACED, done = false;
    int rc = FAR_OK;
    *how = "  repaired: the size was corrected";
    if (f->fault == UNREADABLE) {
        rc = find_node(w, f->found, trie_child_id(w->part.id, f->place), &to);
        *how = to ? "  repaired: it leads to a node again"
                  : "  repaired: it was emptied; its key cannot be read any more"; /* TRIE-Q4 */
    } else if (f->fault == MISPLACED) {                                            /* TRIE-Q3 */
        rc =
            index_walk_insert(w->base.op, &w->view->base, TRIE_SLOT, f->found, trie_change, &there);
        *how = "  repaired: the key is where it belongs";
    }
    if (rc == FAR_OK && there)
        rc = correct(w, w->part.node, offset, f->found, to, &done);
    if (!done)
        *how = NULL;
    return rc;
}

static int prove(struct walk *w)
{
    static const char *const what[] = {
        [UNREADABLE] = "TRIE-W2: broken link: no whole block",
        [MISPLACED] = "TRIE-W2: broken link: a key in a place where it is not looked for",
        [WRONG_CLASS] = "TRIE-W2: broken link: another size than that of the block",
    };
    int rc = index_walk_prove(&w->base.findings, look, w);
    for (unsigned i = 0; i < w->base.findings.count && rc == FAR_OK; i++) {
        const struct index_finding *f = &w->base.findings.now[i];
        const char *how = NULL;
        index_walk_report(w->base.report, what[f->fault], w->part.node, trie_word_offset(f->place),
                          f->found);
        if (w->base.report->repair)
            rc = repair_word(w, f, &how);
        if (how)
            index_repaired(w->base.report, &w->base.report->violations, how);
    }
    return rc;
}

/* TRIE-Q2 for a node that could not be read. *there: it could after that. */
static int repair_link(struct walk *w, const struct part *parent, unsigned digit, struct part *part,
                       bool *there)
{
    bool done = false;
    uint64_t id = part->image[0], right = 0;
    int rc = FAR_OK;
    index_violation(w->base.report, "%s", far_error_detail());
    if (!w->base.report->repair)
        return FAR_OK;
    if (__builtin_popcountll(id ^ part->id) == 1) {
        rc = correct(w, part->node, 0, id, part->id, &done);
    } else if (parent) {
        rc = find_node(w, parent->image[1 + digit], part->id, &right);
        part->node = trie_node_at(right);
        if (right != 0)
            rc = correct(w, parent->node, trie_word_offset(digit), parent->image[1 + digit], right,
                         &done);
    }
    if (done) {
        index_repaired(w->base.report, &w->base.report->violations,
                       "  repaired: the node is there again");
        rc = read_node(w, part);
        *there = rc == FAR_OK;
    }
    return rc;
}

/* ---- walking --------------------------------------------------------------------------------- */

static struct part part_of(const struct walk *w, const struct part *parent, unsigned digit)
{
    const struct trie_view *view = w->view;
    if (!parent)
        return (struct part){.node = view->root.first,
                             .id = trie_first_id(view->base.table->desc.hash_seed),
                             .image = w->images};
    return (struct part){.node = trie_node_at(parent->image[1 + digit]),
                         .id = trie_child_id(parent->id, digit),
                         .position = parent->position | (uint64_t)digit
                                                            << trie_shift(view, parent->level),
                         .level = parent->level + 1,
                         .image = parent->image + view->bytes / 8};
}

/* The node that a word of its parent names, and all below it. The first one has no parent. */
static int visit(struct walk *w, const struct part *parent, unsigned digit)
{
    struct trie_view *view = w->view;
    struct part part = part_of(w, parent, digit);
    bool there = false;
    if (part.level == view->levels)
        return err_fail(FAR_CORRUPT, "TRIE-W1: broken link: a path is longer than any can be");
    int rc = read_node(w, &part);
    if (rc == FAR_CORRUPT && w->base.report) {
        rc = repair_link(w, parent, digit, &part, &there);
        if (!there)
            return rc;
    }
    if (rc != FAR_OK)
        return rc;
    index_walk_object(&w->base.info, w->base.marker, part.node, view->size_class);
    w->base.info.slots += view->words;
    for (unsigned i = 1; i <= view->words; i++)
        if (part.image[i] != 0 && !trie_is_node(part.image[i]))
            index_walk_slot(&w->base.info, w->base.marker, part.image[i]);
    w->part = part;
    if (w->base.report)
        rc = prove(w);
    for (unsigned i = 0; i < view->words && rc == FAR_OK; i++) {
        if (trie_is_node(part.image[1 + i]))
            rc = visit(w, &part, i);
        if (rc == FAR_OK && part.level == 0)
            rc = index_walk_progress(w->base.op, &view->base, i + 1, view->words);
    }
    return rc;
}

static int walk(struct index_walk *base)
{
    struct walk *w = (struct walk *)base;
    struct trie_view *view = w->view = trie_view(base->view);
    w->images = index_walk_image(base, (size_t)view->levels * view->bytes);
    if (!w->images)
        return FAR_NO_MEMORY;
    index_walk_object(&base->info, base->marker, base->view->table->desc.root,
                      size_class_for(sizeof view->root));
    int rc = base->report ? index_findings_make(&base->findings, view->words) : FAR_OK;
    return rc == FAR_OK ? visit(w, NULL, 0) : rc;
}

static const struct index_walker walker = {sizeof(struct walk), walk};

int trie_info(struct op *op, struct index_view *base, struct far_table_info *info)
{
    struct trie_view *view = trie_view(base);
    const uint64_t tuning[] = {
        [TRIE_TUNING_LINES] = view->root.lines, [TRIE_TUNING_HOT] = view->root.hot};
    int rc = index_walk_info(&walker, op, base, tuning, info);
    if (rc == FAR_OK)
        info->client_cache_bytes =
            sizeof *view + index_hints_bytes(view->hints) + index_owns_bytes(&view->owns);
    return rc;
}

int trie_check(struct op *op, struct index_view *base, struct index_report *report)
{
    return index_walk_check(&walker, op, base, report);
}

int trie_mark(struct op *op, struct index_view *base, struct marker *marker)
{
    int rc = index_walk_mark(&walker, op, base, marker);
    if (rc != FAR_OK || !marker->sweeps)
        return rc;
    /* A repair may have emptied a word that led to nodes, and sessions may know them. */
    index_bump_version(op, base);
    return batch_flush(&op->batch);
}
