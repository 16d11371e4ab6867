/*
 * Walking the whole table: to count what is in it, to mark what it reaches, and to prove on a quiet
 * table that
 *
 *   CHIME-W1  every node has the head of a node of its level, and a state only while it is locked;
 *   CHIME-W2  the groups of a node are whole and have one era, which is also that of `next`
 *             (CHIME-C2);
 *   CHIME-W3  the separators of a level ascend, and a node ends where its sibling begins;
 *   CHIME-W4  every key or separator is in its node's range, and none is there twice (CHIME-C4);
 *   CHIME-W5  every key is in the neighbourhood of its home, and has the right K and fingerprint. A
 *             leaf with a stem has no inline pairs (CHIME-C14);
 *   CHIME-W6  `vacancy` says what the groups say, if the lock is free;
 *   CHIME-W7  every child of an internal node is a node of the level below that has the entry's
 *       separator and stem, and one child has the separator of the internal node itself. A child is
 *       dead only while the node is locked (CHIME-C8);
 *   CHIME-W8  locks are held only by clients that are alive (CHIME-C9);
 *   CHIME-W9  every block of an entry or a separator is whole.
 *
 * A walk visits the nodes of each level from left to right. Their ranges tile the whole key space,
 * so an entry that is in the tree throughout is visited. If a node dies before the walk has come to
 * it, its entries are in a node to its left. Then the walk descends again, by the bound that it has
 * covered.
 *
 * Levels are walked from the leaves up, so that a dead node that its parent still names is marked.
 * If the node was alive when its level was walked, it was marked there. If it was dead by then, the
 * parent had named it before, and still does when it is read later, or never will again (CHIME-C8,
 * CHIME-C10).
 */
#include "index/chime/chime.h"
#include "index/walk.h"

#define FINDINGS_MAX  (4 * CHIME_SPAN_MAX)
#define DAMAGED_MAX   64u /* damaged nodes of a level that the walk passes */
#define RECOVERIES    4u
#define LOOK_PAUSE_NS 1000000u

/* The place of a finding is the span if it is not an entry. */
enum fault { STATEFUL, OUTSIDE, TWICE, MISPLACED, VACANCY, NO_CHILD, NO_FIRST, UNREADABLE };

/* A separator, with a copy of its bytes. */
struct edge {
    struct chime_bound bound;
    char bytes[FAR_KEY_MAX];
};

struct walk {
    struct index_walk base;
    struct chime_view *view;
    struct chime_wait wait;
    unsigned level, attempts, damaged;
    bool ended;  /* the level has no more nodes, or they cannot be reached */
    gaddr at;    /* the node to be visited */
    gaddr from;  /* the parent or left sibling that led to it; 0: the root did */
    bool linked; /* the walk came from its left sibling, which says that the node begins at: */
    struct chime_edge edge;
    struct edge done;      /* all of the level that is below was visited */
    struct edge low, high; /* of the node in `node`; `high` only if it has a sibling */
    uint64_t node[CHIME_HEAD_WORDS + CHIME_GROUP_WORDS * CHIME_GROUPS_MAX];
    enum chime_verdict verdict; /* of the last look at the node */
    unsigned harm;              /* its damaged groups, a bit each */
    bool free;                  /* nobody held its lock then */
    bool first;                 /* an entry has the node's own separator */
};

static gaddr sibling(struct walk *w)
{
    return chime_next_at(chime_head(w->node)->next);
}

/* ---- separators and entries ------------------------------------------------------------------ */

static void copy_edge(struct edge *to, const struct edge *from)
{
    to->bound = from->bound;
    if (from->bound.bytes.data) {
        memcpy(to->bytes, from->bytes, from->bound.bytes.len);
        to->bound.bytes.data = to->bytes;
    }
}

static int read_edge(struct walk *w, uint64_t k, uint64_t lng, struct edge *edge)
{
    struct slice bytes = {NULL, 0};
    int rc = lng != 0 ? chime_separator(w->base.op, w->view, lng, &bytes) : FAR_OK;
    if (rc == FAR_OK && bytes.len > FAR_KEY_MAX)
        rc = chime_damaged(w->view, w->at);
    if (rc != FAR_OK)
        return rc;
    edge->bound = (struct chime_bound){.k = k};
    if (lng != 0) {
        memcpy(edge->bytes, bytes.data, bytes.len);
        edge->bound.bytes = (struct slice){edge->bytes, bytes.len};
    }
    return FAR_OK;
}

/* An entry, with the key or separator that it stands for. The bytes are good until the next
 * read. */
struct item {
    unsigned kind;
    bool whole; /* it could be read */
    struct chime_bound bound;
    uint64_t v, inlined;
    gaddr child;   /* of an internal node */
    unsigned stem; /* of a leaf, as its parent says how long it is */
};

/* Whether it is whole is said by its block, if it has one. */
static void item_at(struct walk *w, unsigned place, struct item *i)
{
    const uint64_t *entry = chime_entry(w->node, place);
    *i = (struct item){
        .kind = chime_kind_at(w->node, place), .bound = {.k = entry[0]}, .v = entry[1]};
    i->whole = i->kind == CHIME_INLINE;
    i->inlined = __builtin_bswap64(entry[0]);
    i->child = pointer_gaddr(i->v);
    if (i->kind == CHIME_INLINE && w->level == 0)
        i->bound.bytes = (struct slice){&i->inlined, 8};
}

static void item_block(const struct walk *w, const void *image, struct item *i)
{
    const struct block_head *block = image;
    if (!block)
        return;
    i->whole = w->level == 0 || chime_is_separator(block);
    i->bound.bytes = (struct slice){block_key(block), block->klen};
    if (w->level == 0)
        i->bound.k = chime_prefix(i->bound.bytes);
    if (w->level > 0 && i->whole) {
        i->child = chime_child_node(chime_block_child(block));
        i->stem = chime_child_stem(chime_block_child(block));
    }
}

static int read_item(struct walk *w, unsigned place, struct item *i)
{
    const void *image = NULL;
    item_at(w, place, i);
    if (i->kind != CHIME_BLOCK)
        return FAR_OK;
    int rc = index_walk_block(w->base.op, CHIME_SLOT, i->v, &image);
    if (rc == FAR_OK)
        item_block(w, image, i);
    return rc;
}

/* ---- counting and marking -------------------------------------------------------------------- */

static int mark_child(struct walk *w, unsigned place)
{
    struct item i;
    int rc = read_item(w, place, &i);
    if (rc != FAR_OK || !i.whole)
        return rc == FAR_OK ? chime_damaged(w->view, w->at) : rc;
    w->base.marker->mark(w->base.marker, i.child, chime_node_class(&w->view->shape));
    if (i.kind == CHIME_BLOCK)
        w->base.marker->mark(w->base.marker, pointer_gaddr(i.v), pointer_class(i.v));
    return FAR_OK;
}

/* `fresh`: no part of the node's range was visited before. What was visited is marked again, but
 * not counted again. */
static int count_entry(struct walk *w, unsigned place, bool fresh)
{
    struct item i;
    if (!w->base.marker && !fresh) {
        int rc = read_item(w, place, &i);
        if (rc != FAR_OK || !chime_reaches(&i.bound, &w->done.bound))
            return rc;
    }
    if (chime_kind_at(w->node, place) == CHIME_BLOCK)
        index_walk_slot(&w->base.info, w->base.marker, chime_entry(w->node, place)[1]);
    else
        w->base.info.keys++;
    return FAR_OK;
}

/* CHIME-C11: what the group says of its entries may be wrong, so each counts as one with a pointer.
 * That of an internal node may also be the address of a child. */
static int count_damaged(struct walk *w, unsigned group, bool fresh)
{
    if (w->level == 0 && fresh)
        w->base.info.damaged += CHIME_GROUP;
    if (!w->base.marker)
        return FAR_OK;
    w->base.marker->damaged = true;
    for (unsigned p = CHIME_GROUP * group; p < CHIME_GROUP * (group + 1); p++) {
        uint64_t v = chime_entry(w->node, p)[1];
        gaddr child = pointer_gaddr(v);
        const void *block = NULL;
        int rc = w->level > 0 ? index_walk_block(w->base.op, CHIME_SLOT, v, &block) : FAR_OK;
        if (rc != FAR_OK)
            return rc;
        w->base.marker->mark(w->base.marker, pointer_gaddr(v), pointer_class(v));
        if (block && ((const struct block_head *)block)->vlen == sizeof child)
            child = chime_child_node(chime_block_child(block));
        if (w->level > 0)
            w->base.marker->mark(w->base.marker, child, chime_node_class(&w->view->shape));
    }
    return FAR_OK;
}

static int count_node(struct walk *w)
{
    const struct chime_shape *s = &w->view->shape;
    uint64_t lng = chime_head(w->node)->low.lng;
    bool fresh = chime_reaches(&w->low.bound, &w->done.bound);
    int rc = FAR_OK;
    if (w->base.marker || fresh)
        index_walk_object(&w->base.info, w->base.marker, w->at, chime_node_class(s));
    if (lng != 0 && (w->base.marker || fresh))
        index_walk_object(&w->base.info, w->base.marker, pointer_gaddr(lng), pointer_class(lng));
    if (w->level == 0 && fresh)
        w->base.info.slots += s->span;
    for (unsigned left = w->harm; left && rc == FAR_OK; left &= left - 1)
        rc = count_damaged(w, (unsigned)__builtin_ctz(left), fresh);
    for (unsigned p = 0; p < s->span && rc == FAR_OK; p++) {
        if (chime_kind_at(w->node, p) == CHIME_EMPTY || w->harm >> p / CHIME_GROUP & 1)
            continue;
        if (w->level == 0)
            rc = count_entry(w, p, fresh);
        else if (w->base.marker)
            rc = mark_child(w, p);
    }
    return rc;
}

/* ---- one look at a node ---------------------------------------------------------------------- */

/* An entry's key belongs to the finding: values may be alike. */
static struct index_finding *found(struct walk *w, enum fault fault, unsigned place, uint64_t word)
{
    struct index_finding *f = index_found(&w->base.findings, fault, place, word);
    if (place < w->view->shape.span)
        f->right = chime_entry(w->node, place)[0];
    return f;
}

/* CHIME-W5 of an entry that could be read. */
static void check_key(struct walk *w, unsigned place, const struct item *i)
{
    const struct chime_shape *s = &w->view->shape;
    struct chime_key key;
    struct chime_stem stem = chime_head_stem(chime_head(w->node));
    chime_key_set(w->view, i->bound.bytes, &key);
    uint64_t k = i->kind == CHIME_BLOCK ? chime_k(w->view, &stem, i->bound.bytes) : key.bound.k;
    if (k != chime_entry(w->node, place)[0] || (i->kind == CHIME_INLINE && stem.len > 0) ||
        ((place - key.home) & (s->span - 1)) >= s->hood ||
        (i->kind == CHIME_BLOCK && slot_fingerprint(CHIME_SLOT, i->v) != key.fingerprint))
        found(w, MISPLACED, place, i->v);
}

/* CHIME-W7 of an entry that could be read. */
static int check_child(struct walk *w, unsigned place, const struct item *i)
{
    struct chime_head *head = op_buffer(w->base.op, BUF_INDEX, sizeof *head);
    if (!head)
        return FAR_NO_MEMORY;
    batch_read(&w->base.op->batch, i->child, 0, head, sizeof *head);
    int rc = batch_flush(&w->base.op->batch);
    if (rc != FAR_OK && rc != FAR_BOUNDS)
        return rc;
    if (rc == FAR_BOUNDS || head->sum != chime_head_sum(w->view, i->child, head) ||
        head->level + 1 != w->level || head->low.k != i->bound.k ||
        (w->free && head->lock & CHIME_DEAD) ||
        head->low.lng != (i->kind == CHIME_BLOCK ? i->v : 0) ||
        head->low.sum != chime_text_sum(w->view, i->bound.bytes, i->stem) ||
        head->stem != chime_stem(w->view, i->bound.bytes.data, i->stem).hash)
        found(w, NO_CHILD, place, i->v);
    return FAR_OK;
}

/* CHIME-W4, CHIME-W5, CHIME-W7 and CHIME-W9 of an entry, with its block if it has one. */
static int check_entry(void *arg, unsigned place, const void *block)
{
    struct walk *w = arg;
    struct item i;
    item_at(w, place, &i);
    item_block(w, block, &i);
    if (!i.whole) {
        found(w, UNREADABLE, place, i.v);
        return FAR_OK;
    }
    if (!chime_reaches(&i.bound, &w->low.bound) ||
        (sibling(w) != 0 && chime_reaches(&i.bound, &w->high.bound)))
        found(w, OUTSIDE, place, i.v);
    struct slice unique = w->level == 0 ? i.bound.bytes : (struct slice){&i.child, sizeof i.child};
    w->base.seen[w->base.seen_count++] = (struct index_walk_key){
        .hash = hash_key(unique.data, unique.len, w->view->seed), .slot = place, .order = place};
    w->first |= chime_reaches(&i.bound, &w->low.bound) && chime_reaches(&w->low.bound, &i.bound);
    if (w->level > 0)
        return check_child(w, place, &i);
    check_key(w, place, &i);
    return FAR_OK;
}

static bool has_block(void *arg, unsigned place, uint64_t *pointer)
{
    struct walk *w = arg;
    *pointer = chime_entry(w->node, place)[1];
    return chime_kind_at(w->node, place) == CHIME_BLOCK;
}

static int check_entries(struct walk *w)
{
    unsigned span = w->view->shape.span;
    w->base.seen_count = 0;
    w->first = false;
    int rc = index_walk_blocks(
        w->base.op, &(struct index_walk_blocks){CHIME_SLOT, span, has_block, check_entry, w});
    for (unsigned p = 0; p < span && rc == FAR_OK; p++)
        if (chime_kind_at(w->node, p) != CHIME_EMPTY && chime_kind_at(w->node, p) != CHIME_BLOCK)
            rc = check_entry(w, p, NULL);
    if (w->level > 0 && !w->first)
        found(w, NO_FIRST, span, chime_head(w->node)->low.k);
    index_walk_match(w->base.seen, w->base.seen_count);
    for (unsigned i = 0; i < w->base.seen_count && w->free; i++)
        if (w->base.seen[i].first != w->base.seen[i].slot)
            found(w, TWICE, w->base.seen[i].slot, chime_entry(w->node, w->base.seen[i].slot)[1])
                ->first = w->base.seen[i].first;
    return rc;
}

static int check_node(struct walk *w)
{
    const struct chime_head *head = chime_head(w->node);
    const struct chime_shape *s = &w->view->shape;
    unsigned n = op_read_head(w->base.op, w->at, offsetof(struct chime_head, lock));
    int rc = batch_flush(&w->base.op->batch);
    if (rc != FAR_OK)
        return rc;
    w->free = head->lock == 0 && op_result(w->base.op, n) == 0;
    if (w->free && head->state != 0)
        found(w, STATEFUL, s->span, head->state);
    if (w->free && head->vacancy != chime_vacancy(s, w->node))
        found(w, VACANCY, s->span, head->vacancy);
    return check_entries(w);
}

/* ---- reports and repairs --------------------------------------------------------------------- */

/* Writes the vacancy under the lock. */
static int repair_vacancy(struct walk *w, bool *done)
{
    struct chime_held h;
    struct chime_staging staging;
    enum chime_verdict verdict = CHIME_GOOD;
    int rc = chime_hold(w->base.op, w->view, w->at, w->level, 0, &w->wait, &h, &verdict);
    if (rc != FAR_OK || h.at == 0)
        return rc == FAR_CORRUPT ? FAR_OK : rc; /* for the next walk */
    rc = chime_staging_start(w->base.op, &staging);
    if (rc != FAR_OK) {
        (void)chime_release(w->base.op, h.at);
        return rc;
    }
    chime_staging_word(w->base.op, &staging, h.at, offsetof(struct chime_head, vacancy),
                       chime_vacancy(&w->view->shape, h.node));
    chime_unlock(w->base.op, h.at);
    rc = chime_finish(w->base.op);
    *done = rc == FAR_OK;
    return rc;
}

/* CHIME-W9: removes an entry of a leaf whose block is damaged, under the lock. */
static int remove_entry(struct walk *w, const struct index_finding *f, bool *done)
{
    unsigned group = f->place / CHIME_GROUP;
    struct chime_held h;
    struct chime_staging staging;
    enum chime_verdict verdict = CHIME_GOOD;
    int rc = chime_hold(w->base.op, w->view, w->at, w->level, 0, &w->wait, &h, &verdict);
    if (rc != FAR_OK || h.at == 0)
        return rc == FAR_CORRUPT ? FAR_OK : rc; /* for the next walk */
    uint64_t *words = chime_group(h.node, group), *entry = chime_entry(h.node, f->place);
    bool same = chime_kind_at(h.node, f->place) == CHIME_BLOCK && entry[0] == f->right &&
                entry[1] == f->found;
    rc = chime_staging_start(w->base.op, &staging);
    if (rc != FAR_OK || !same) {
        int released = chime_release(w->base.op, h.at);
        return rc == FAR_OK ? released : rc;
    }
    words[0] = chime_with_kind(words[0], f->place % CHIME_GROUP, CHIME_EMPTY);
    chime_group_seal(chime_name_seal(w->view, &h.name), group, words);
    chime_staging_word(w->base.op, &staging, h.at, chime_group_at(group), words[0]);
    chime_staging_word(w->base.op, &staging, h.at, offsetof(struct chime_head, vacancy),
                       chime_vacancy(&w->view->shape, h.node));
    chime_unlock(w->base.op, h.at);
    rc = chime_finish(w->base.op);
    *done = rc == FAR_OK;
    return rc;
}

/* An entry without a whole block. That of an internal node stays, if no single bit explains it: it
 * leads to a child. */
static int repair_block(struct walk *w, const struct index_finding *f)
{
    bool mended = false, removed = false;
    int rc = index_walk_mend(w->base.op, CHIME_SLOT, f->found, w->base.report, &mended);
    if (rc == FAR_OK && !mended && w->level == 0)
        rc = remove_entry(w, f, &removed);
    if (removed)
        index_walk_removed(w->base.report,
                           "  repaired: the entry was removed; its key cannot be read any more");
    return rc;
}

static void report_node(struct walk *w, const char *what)
{
    index_violation(w->base.report, "%s: node %u:0x%llx of level %u", what, gaddr_node(w->at),
                    (unsigned long long)gaddr_offset(w->at), w->level);
}

static int report_findings(struct walk *w)
{
    static const char *const text[] = {
        [STATEFUL] = "CHIME-W1: a split or merge that nobody is doing",
        [OUTSIDE] = "CHIME-W4: a key or child outside the range of its node",
        [TWICE] = "CHIME-W4: a key or child that is there twice",
        [MISPLACED] = "CHIME-W5: a key in a place where it is not looked for",
        [VACANCY] = "CHIME-W6: wrong vacancy",
        [NO_CHILD] = "CHIME-W7: an entry that leads to no child of its separator and stem",
        [NO_FIRST] = "CHIME-W7: no child for the beginning of the node's range",
        [UNREADABLE] = "CHIME-W9: an entry without a whole block",
    };
    int rc = FAR_OK;
    for (unsigned i = 0; i < w->base.findings.count && rc == FAR_OK; i++) {
        const struct index_finding *f = &w->base.findings.now[i];
        bool done = false;
        if (f->place < w->view->shape.span)
            index_violation(w->base.report, "%s: entry %u of node %u:0x%llx of level %u",
                            text[f->fault], f->place, gaddr_node(w->at),
                            (unsigned long long)gaddr_offset(w->at), w->level);
        else
            report_node(w, text[f->fault]);
        if (f->fault == VACANCY && w->base.report->repair)
            rc = repair_vacancy(w, &done);
        if (f->fault == UNREADABLE && w->base.report->repair)
            rc = repair_block(w, f);
        if (done)
            index_repaired(w->base.report, &w->base.report->violations,
                           "  repaired: written again");
    }
    return rc;
}

/* ---- locks of dead clients ------------------------------------------------------------------- */

static int recover(struct walk *w, uint64_t owner)
{
    uint64_t lock = owner;
    int rc = FAR_OK;
    for (unsigned i = 0; i < RECOVERIES && rc == FAR_OK && lock == owner; i++) {
        rc = chime_recover(w->base.op, w->view, w->at, owner, &w->wait);
        if (rc != FAR_OK)
            break;
        unsigned n = op_read_head(w->base.op, w->at, offsetof(struct chime_head, lock));
        rc = batch_flush(&w->base.op->batch);
        lock = rc == FAR_OK ? op_result(w->base.op, n) : owner;
    }
    if (lock != owner)
        index_repaired(w->base.report, &w->base.report->stranded,
                       "  repaired: recovered and released");
    return rc == FAR_CORRUPT ? FAR_OK : rc; /* reading the node finds the damage */
}

/* CHIME-W8. */
static int check_lock(struct walk *w)
{
    struct chime_head *head = op_buffer(w->base.op, BUF_INDEX, sizeof *head);
    bool alive = true;
    if (!head)
        return FAR_NO_MEMORY;
    batch_read_head(&w->base.op->batch, w->at, 0, head, sizeof *head);
    int rc = batch_flush(&w->base.op->batch);
    if (rc != FAR_OK)
        return rc == FAR_BOUNDS ? FAR_OK : rc; /* reading the node finds the damage */
    uint64_t owner = head->lock;
    if (head->sum != chime_head_sum(w->view, w->at, head) || owner == 0 || owner & CHIME_DEAD)
        return FAR_OK;
    rc = client_owner_alive(w->base.op, owner, &alive);
    if (rc != FAR_OK || alive)
        return rc;
    unsigned n = op_read_head(w->base.op, w->at, offsetof(struct chime_head, lock));
    rc = batch_flush(&w->base.op->batch);
    if (rc != FAR_OK ||
        op_result(w->base.op, n) != owner) /* it was released before its holder left */
        return rc;
    index_stranded(w->base.report,
                   "CHIME-W8: stranded lock: the session in slot %u holds node %u:0x%llx",
                   owner_slot(owner), gaddr_node(w->at), (unsigned long long)gaddr_offset(w->at));
    return w->base.report->repair ? recover(w, owner) : FAR_OK;
}

/* ---- visiting a node ------------------------------------------------------------------------- */

static int read_node(struct walk *w, enum chime_verdict *verdict)
{
    const struct chime_head *head = chime_head(w->node);
    uint32_t bytes = w->view->shape.bytes;
    uint64_t *image = op_buffer(w->base.op, BUF_INDEX, bytes);
    if (!image)
        return FAR_NO_MEMORY;
    memset(image, 0, bytes);
    int rc = chime_read_past(w->base.op, w->view, w->at, w->level, false, image, &w->wait, verdict,
                             &w->harm);
    memcpy(w->node, image, bytes);
    if (rc != FAR_OK || *verdict != CHIME_GOOD)
        return rc;
    rc = read_edge(w, head->low.k, head->low.lng, &w->low);
    if (rc == FAR_OK && sibling(w) != 0)
        rc = read_edge(w, head->high.k, head->high.lng, &w->high);
    return rc;
}

static int look(void *arg, unsigned number)
{
    struct walk *w = arg;
    int rc = FAR_OK;
    if (number > 0) {
        batch_pause(&w->base.op->batch, LOOK_PAUSE_NS);
        rc = read_node(w, &w->verdict);
    }
    return rc == FAR_OK && w->verdict == CHIME_GOOD && w->harm == 0 ? check_node(w) : rc;
}

static int prove(struct walk *w, enum chime_verdict *verdict)
{
    w->verdict = *verdict;
    int rc = index_walk_prove(&w->base.findings, look, w);
    *verdict = w->verdict;
    return rc == FAR_OK ? report_findings(w) : rc;
}

/* CHIME-W3. Separators never change, so one look is enough. */
static bool in_order(struct walk *w)
{
    const struct chime_head *head = chime_head(w->node);
    bool ascends = sibling(w) == 0 || !chime_reaches(&w->low.bound, &w->high.bound);
    bool joins = w->linked ? memcmp(&head->low, &w->edge, sizeof w->edge) == 0
                           : chime_reaches(&w->done.bound, &w->low.bound);
    return ascends && joins;
}

/* CHIME-W2: groups are damaged. What else there is to say of the node is said when they are
 * whole. */
static int mend(struct walk *w, enum chime_verdict *verdict)
{
    bool done = false;
    report_node(w, "CHIME-W2: damaged groups");
    if (!w->base.report->repair)
        return FAR_OK;
    int rc = chime_salvage(w->base.op, w->view, w->at, w->level, &w->low.bound,
                           sibling(w) != 0 ? &w->high.bound : NULL, w->base.report, &done);
    if (rc == FAR_OK && done)
        rc = read_node(w, verdict);
    return rc == FAR_OK && done && *verdict == CHIME_GOOD ? prove(w, verdict) : rc;
}

static int visit(struct walk *w, enum chime_verdict *verdict)
{
    int rc = w->base.report ? check_lock(w) : FAR_OK;
    if (rc == FAR_OK)
        rc = read_node(w, verdict);
    if (rc != FAR_OK || *verdict != CHIME_GOOD)
        return rc;
    if (in_order(w) && w->base.report && w->harm != 0)
        return mend(w, verdict);
    if (in_order(w))
        return w->base.report ? prove(w, verdict) : count_node(w);
    if (!w->base.report)
        return chime_damaged(w->view, w->at);
    report_node(w, "CHIME-W3: separators out of order");
    w->ended = true;
    return FAR_OK;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static void go_right(struct walk *w)
{
    const struct chime_head *head = chime_head(w->node);
    w->from = w->at;
    w->at = sibling(w);
    w->ended = w->at == 0;
    w->linked = true;
    w->edge = head->high;
}

/* CHIME-W9: one flipped bit of a separator's block is corrected. *mended: the node may be visited
 * again. */
static int mend_separator(struct walk *w, bool *mended)
{
    const struct chime_head *head = chime_head(w->node);
    uint64_t lng[2] = {head->low.lng, head->high.lng};
    int rc = FAR_OK;
    for (unsigned i = 0; i < 2 && rc == FAR_OK && !*mended; i++) {
        const void *block = NULL;
        if (lng[i] != 0)
            rc = index_walk_block(w->base.op, CHIME_SLOT, lng[i], &block);
        if (lng[i] != 0 && rc == FAR_OK && !block)
            rc = index_walk_mend(w->base.op, CHIME_SLOT, lng[i], w->base.report, mended);
    }
    return rc;
}

/* CHIME-W1, or CHIME-W2 of all groups. */
static int mend_head(struct walk *w, bool *mended)
{
    int rc = chime_mend_head(w->base.op, w->view, w->at, w->level, mended);
    if (*mended)
        index_repaired(w->base.report, &w->base.report->violations,
                       "  repaired: one flipped bit of the head was corrected");
    return rc == FAR_CORRUPT ? FAR_OK : rc;
}

/* A node cannot be read. If its head is whole, the walk goes on to its sibling. */
static int pass_damage(struct walk *w)
{
    bool mended = false, separator = false;
    int rc = FAR_OK;
    const struct chime_head *head = chime_head(w->node);
    struct chime_name name = chime_head_name(w->at, head);
    bool is_node = head->sum == chime_head_sum(w->view, w->at, head) && head->level == w->level;
    if (!is_node || !chime_state_good(head->state, w->at, w->view->seed))
        report_node(w, "CHIME-W1: damaged head");
    else if (chime_judge(w->view, w->node, chime_all(&w->view->shape), &name) != CHIME_FITS ||
             chime_era(*chime_group(w->node, 0)) != chime_next_era(head->next))
        report_node(w, "CHIME-W2: damaged groups");
    else
        separator = true;
    if (separator)
        report_node(w, "CHIME-W9: a separator without a whole block");
    if (w->base.report->repair)
        rc = separator ? mend_separator(w, &mended) : mend_head(w, &mended);
    if (rc != FAR_OK || mended)
        return rc;
    w->ended = !is_node || w->damaged++ == DAMAGED_MAX;
    if (!w->ended)
        go_right(w);
    return FAR_OK;
}

/* Finds the node that has the end of what was visited. */
static int find(struct walk *w)
{
    w->linked = false;
    while (index_attempt(&w->attempts)) {
        struct chime_spot spot = {.lost = true};
        int rc = chime_rest(w->base.op, w->view, &w->wait, &w->attempts);
        if (rc == FAR_OK)
            rc =
                chime_descend(w->base.op, w->view, &w->done.bound, w->level, true, &w->wait, &spot);
        w->at = spot.name.at;
        w->from = spot.parent;
        if (rc != FAR_OK || !spot.lost)
            return rc;
    }
    return FAR_CONTENTION;
}

/* `gone`: the walk has come to a dead node. Whatever named it is settled first, or the descent may
 * lead to it again. */
static int find_again(struct walk *w, bool gone)
{
    int rc = gone ? chime_settle(w->base.op, w->view, w->from, &w->wait) : FAR_OK;
    if (rc == FAR_OK)
        rc = find(w);
    if (rc != FAR_CORRUPT || !w->base.report)
        return rc;
    index_violation(w->base.report, "CHIME-W7: damage above hides nodes of level %u", w->level);
    w->ended = true;
    return FAR_OK;
}

/* The node was visited. An operation waits for others only so long; that begins again with each
 * node. */
static void advance(struct walk *w)
{
    if (sibling(w) != 0 && !chime_reaches(&w->done.bound, &w->high.bound)) {
        copy_edge(&w->done, &w->high);
        w->attempts = 0;
        w->wait = (struct chime_wait){0};
    }
    go_right(w);
}

static int step(struct walk *w)
{
    const uint64_t all = 1ull << 32; /* as if keys were spread evenly */
    enum chime_verdict verdict = CHIME_GOOD;
    int rc = visit(w, &verdict);
    if (rc == FAR_CORRUPT && w->base.report) {
        return pass_damage(w);
    }
    if (rc != FAR_OK || w->ended)
        return rc;
    if (verdict != CHIME_GOOD)
        return find_again(w, verdict == CHIME_GONE);
    advance(w);
    uint64_t done = w->level > 0 || w->ended ? all : w->done.bound.k >> 32;
    return index_walk_progress(w->base.op, &w->view->base, done, all);
}

/* The tree may grow meanwhile, so the root is read for each level. */
static int walk(struct index_walk *base)
{
    struct walk *w = (struct walk *)base;
    int rc = base->report ? index_walk_room(base, CHIME_SPAN_MAX, FINDINGS_MAX) : FAR_OK;
    if (rc != FAR_OK)
        return rc;
    w->view = chime_view(base->view);
    index_walk_object(&w->base.info, w->base.marker, w->view->root,
                      size_class_for(sizeof(struct chime_root)));
    for (unsigned level = 0; level < CHIME_LEVELS; level++) {
        rc = chime_forget(w->base.op, w->view, 0);
        if (rc != FAR_OK || level > chime_top_level(w->view->top))
            return rc;
        w->level = level;
        w->attempts = w->damaged = 0;
        w->ended = false;
        w->done.bound = (struct chime_bound){0};
        rc = find_again(w, false);
        while (rc == FAR_OK && !w->ended)
            rc = step(w);
        if (rc != FAR_OK)
            return rc;
    }
    return FAR_OK;
}

static const struct index_walker walker = {sizeof(struct walk), walk};

int chime_info(struct op *op, struct index_view *base, struct far_table_info *info)
{
    uint64_t cached = chime_cached_bytes(chime_view(base)); /* before the walk fills it */
    const struct chime_view *view = chime_view(base);
    int rc = index_walk_info(&walker, op, base, view->tuning, info);
    if (rc != FAR_OK)
        return rc;
    info->client_cache_bytes = cached;
    info->session[0] = (struct far_table_figure){"gets", view->gets};
    info->session[1] = (struct far_table_figure){"hot_hits", view->hot_hits};
    return FAR_OK;
}

int chime_check(struct op *op, struct index_view *base, struct index_report *report)
{
    return index_walk_check(&walker, op, base, report);
}

int chime_mark(struct op *op, struct index_view *base, struct marker *marker)
{
    int rc = index_walk_mark(&walker, op, base, marker);
    if (rc != FAR_OK || !marker->sweeps)
        return rc;
    /* The client that took a dead node out of its parent may have failed or died before it changed
     * the version (CHIME-C10). */
    index_bump_version(op, base);
    return batch_flush(&op->batch);
}
