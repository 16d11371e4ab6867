/*
 * scan: all groups of several leaves in one round trip, and then the blocks of their entries.
 *
 * Everything below the cursor is settled: it was added, or it was absent at an instant. A leaf that
 * fits the name that its parent gives it was that leaf at an instant (CHIME-C5), so it settles its
 * whole range. Leaves are settled from left to right. The first one that does not fit is looked at
 * again: by a parent that was read again, and then with its own head. A leaf that is read later may
 * have entries below the cursor, of a leaf that was merged into it. These are left out.
 */
#include "index/chime/chime_items.h"

#define LEAVES     16u  /* in one batch */
#define TORN_LOOKS 8u   /* looks that find something being written, before the lock is looked at */
#define ROUNDING   160u /* a part of a leaf counts as one if it is more than 96/256 */
#define TEXT_BYTES (4u * FAR_KEY_MAX)
#define ROOM_SLACK (16u * 1024) /* blocks are read beyond what the caller has room for */

struct leaf {
    struct chime_name name;
    struct chime_stem stem;
    gaddr parent;
    struct slice high; /* the bytes of a long upper bound; data is NULL: they are not known */
};

struct scan {
    const struct scan_range *range;
    struct entries_out *out;
    struct chime_bound cursor; /* its bytes are in `key`, or are those of range->from */
    struct chime_bound to;     /* if there is an end */
    struct chime_wait wait;
    struct index_cache_stamp stamp;
    bool doubted; /* what is cached and led to the leaves may be old */
    bool fresh;   /* what is doubted is read again */
    bool around;  /* the leaf is read with its head */
    bool moved;   /* the cursor did, in this attempt */
    bool done;    /* the scan ends with this attempt */
    unsigned torn, misfits;
    unsigned passed; /* damaged entries behind the last one that was added */
    /* The leaves that are read together. Their images, items and text are in BUF_INDEX. */
    unsigned leaves;
    struct leaf leaf[LEAVES];
    uint64_t *node;
    struct chime_item *item;
    unsigned items, taken; /* those before `taken` were added, or are out of the range */
    char *text;
    size_t text_left;
    char key[FAR_KEY_MAX];
};

static uint64_t *image_of(const struct chime_view *view, const struct scan *s, unsigned leaf)
{
    return s->node + leaf * (view->shape.bytes / 8);
}

/* Whatever was in the buffer before is void. */
static int take_buffer(struct op *op, const struct chime_view *view, struct scan *s)
{
    size_t images = (size_t)LEAVES * view->shape.bytes;
    size_t items = (size_t)LEAVES * view->shape.span * sizeof *s->item;
    char *buffer = op_buffer(op, BUF_INDEX, images + items + TEXT_BYTES);
    if (!buffer)
        return FAR_NO_MEMORY;
    s->node = (uint64_t *)(void *)buffer;
    s->item = (struct chime_item *)(void *)(buffer + images);
    s->text = buffer + images + items;
    s->text_left = TEXT_BYTES;
    s->leaves = s->items = s->taken = 0;
    return FAR_OK;
}

/* Keeps the bytes of a leaf's upper bound, if it is long and there is room. */
static void keep_high(struct scan *s, struct leaf *leaf, struct slice bytes)
{
    if (!bytes.data || bytes.len > s->text_left)
        return;
    leaf->high = (struct slice){memmove(s->text, bytes.data, bytes.len), bytes.len};
    s->text += bytes.len;
    s->text_left -= bytes.len;
}

/* Does the range end with this leaf, as far as is known? */
static bool last_leaf(const struct scan *s, const struct leaf *leaf)
{
    struct chime_bound high = {leaf->name.high.k, leaf->high};
    return leaf->name.next == 0 || (s->range->to.data && chime_reaches(&high, &s->to));
}

/* ---- entries --------------------------------------------------------------------------------- */

/* The end of the items that must be ordered together with item i: those of its leaf with the same
 * K. */
static unsigned run_end(const struct scan *s, unsigned i)
{
    unsigned end = i + 1;
    while (!s->item[i].ordered && end < s->items && s->item[end].k == s->item[i].k &&
           s->item[end].leaf == s->item[i].leaf)
        end++;
    return end;
}

/* Adds the blocks of a run. False: they do not all fit, and none is added. */
static bool add_run(const struct op *op, struct index_blocks *blocks, const struct scan *s,
                    unsigned from, unsigned end)
{
    unsigned count = blocks->count;
    size_t bytes = blocks->bytes;
    for (unsigned i = from; i < end; i++) {
        const struct chime_item *item = &s->item[i];
        if (item->block &&
            !index_blocks_add(blocks, item->v, chime_item_read_bytes(op, item, s->out->keys_only),
                              i)) {
            blocks->count = count;
            blocks->bytes = bytes;
            return false;
        }
    }
    return true;
}

/* Chooses what is read at once: whole runs, up to the limit. Returns the end of it. */
static unsigned choose(struct op *op, const struct scan *s, struct index_blocks *blocks)
{
    size_t room = s->out->cap - s->out->len, budget = INDEX_BLOCKS_BYTES;
    unsigned end = s->taken, wanted = s->range->limit - s->out->count;
    if (!s->out->keys_only && room < (INDEX_BLOCKS_BYTES - ROOM_SLACK) / 2)
        budget = 2 * room + ROOM_SLACK;
    index_blocks_start(blocks, op, budget);
    while (end < s->items && end - s->taken < wanted) {
        unsigned next = run_end(s, end);
        if (!add_run(op, blocks, s, end, next))
            break;
        end = next;
    }
    return end;
}

/* Not all blocks of a run can be read at once: reads only the keys, and puts the run in order. */
static int order_run(struct op *op, const struct chime_view *view, struct scan *s,
                     struct index_blocks *blocks)
{
    unsigned end = run_end(s, s->taken);
    index_blocks_start(blocks, op, SIZE_MAX);
    for (unsigned i = s->taken; i < end; i++)
        if (s->item[i].block)
            (void)index_blocks_add(blocks, s->item[i].v,
                                   chime_item_read_bytes(op, &s->item[i], true), i);
    int rc = chime_items_read(op, view, s->item, blocks);
    if (rc != FAR_OK)
        return rc;
    chime_items_sort(s->item + s->taken, end - s->taken, chime_items_by_key);
    for (unsigned i = s->taken; i < end; i++)
        s->item[i].ordered = true;
    return FAR_OK;
}

/* Adds the items before `end`, whose blocks were read. */
static int add_items(const struct chime_view *view, struct scan *s, unsigned end)
{
    struct entries_out *out = s->out;
    for (unsigned i = s->taken; i < end; i = run_end(s, i))
        chime_items_sort(s->item + i, run_end(s, i) - i, chime_items_by_key);
    for (; s->taken < end && out->count < s->range->limit; s->taken++) {
        bool full = false;
        const struct chime_item *item = &s->item[s->taken];
        s->passed += item->damaged;
        if (item->damaged)
            continue; /* its key may be outside the range */
        struct slice key = chime_item_key(item);
        struct chime_bound bound = chime_key_bound(key);
        enum scan_place place = index_scan_place(s->range, key);
        s->done = place == SCAN_ABOVE;
        if (s->done)
            return FAR_OK;
        if (place == SCAN_BELOW || !chime_reaches(&bound, &s->cursor))
            continue;
        int rc = index_add_entry(&view->base, out, key, chime_item_value(item), &full);
        if (rc != FAR_OK)
            return rc;
        s->done = full;
        if (full) {
            out->more = out->count > 0;
            return out->more ? FAR_OK : FAR_TOO_SMALL;
        }
        out->damaged += s->passed;
        s->passed = 0;
    }
    return FAR_OK;
}

/* Adds the items of all leaves that are settled, as far as the limit and the buffer allow. */
static int add_all(struct op *op, const struct chime_view *view, struct scan *s)
{
    struct index_blocks blocks;
    int rc = FAR_OK;
    while (rc == FAR_OK && !s->done && s->taken < s->items && s->out->count < s->range->limit) {
        unsigned end = choose(op, s, &blocks);
        if (end == s->taken) {
            rc = order_run(op, view, s, &blocks);
            continue;
        }
        rc = chime_items_read(op, view, s->item, &blocks);
        if (rc == FAR_OK)
            rc = add_items(view, s, end);
    }
    return rc;
}

/* ---- the cursor ------------------------------------------------------------------------------ */

/* All up to the end of this leaf is settled. */
static int move_on(struct op *op, const struct chime_view *view, struct scan *s, struct leaf *leaf)
{
    struct slice bytes = leaf->high;
    int rc = FAR_OK;
    if (leaf->name.high.lng != 0 && !bytes.data)
        rc = chime_separator(op, view, leaf->name.high.lng, &bytes);
    if (rc != FAR_OK)
        return rc;
    s->cursor = (struct chime_bound){.k = leaf->name.high.k};
    if (leaf->name.high.lng != 0)
        s->cursor.bytes = (struct slice){memcpy(s->key, bytes.data, bytes.len), bytes.len};
    s->moved = true;
    s->fresh = s->around = false;
    s->torn = s->misfits = 0;
    return FAR_OK;
}

/* Leaves up to this one are settled, and their items are listed: adds these, and moves the
 * cursor. */
static int settle(struct op *op, const struct chime_view *view, struct scan *s, struct leaf *last)
{
    int rc = add_all(op, view, s);
    if (rc != FAR_OK || s->done)
        return rc;
    bool ended = s->taken == s->items && last_leaf(s, last);
    s->done = ended || s->out->count == s->range->limit;
    s->out->more = s->done && !ended;
    return s->done ? FAR_OK : move_on(op, view, s, last);
}

/* The least k that the items of a leaf may have. The cursor is in the first leaf, so the keys of
 * others are above it. */
static uint64_t least_of(const struct chime_view *view, const struct scan *s, unsigned leaf)
{
    char text[8];
    return leaf == 0 /* CHIME-C14: for others it may be below the leaf */
               ? chime_k(view, &s->leaf[0].stem, chime_bound_bytes(&s->cursor, text))
               : 0;
}

/* Lists the items of a leaf that is settled. */
static void list_leaf(struct chime_view *view, struct scan *s, unsigned leaf)
{
    const struct chime_shape *shape = &view->shape;
    uint64_t *node = image_of(view, s, leaf);
    int used = (int)chime_used(shape, chime_vacancy(shape, node)) * 256;
    view->fill = view->fill == 0 ? shape->span * 512 / 3 : view->fill;
    view->fill = (unsigned)((int)view->fill + (used - (int)view->fill) / 64);
    const struct chime_stem *stem = &s->leaf[leaf].stem;
    uint64_t most = s->range->to.data ? chime_k(view, stem, s->range->to) : UINT64_MAX;
    s->items += chime_items_list(shape, node, leaf, stem, least_of(view, s, leaf), most,
                                 s->item + s->items);
}

/* ---- several leaves, by their names ---------------------------------------------------------- */

/* A parent of leaves, if it is cached. If the cache is old, it may be a node of another level: then
 * its children do not follow the leaf before them. */
static const struct chime_inner *cached(struct op *op, struct chime_view *view, struct scan *s,
                                        gaddr at)
{
    struct index_cache_hit hit;
    enum index_cache_state state = index_cache_find(view->cache, op, at, &s->stamp, &hit);
    if (state == INDEX_CACHE_MISS || (state == INDEX_CACHE_DOUBTED && s->fresh))
        return NULL;
    s->doubted |= state == INDEX_CACHE_DOUBTED;
    return hit.data;
}

/* Is child i of the node the sibling that the name has? */
static bool follows(const struct chime_inner *n, unsigned i, const struct chime_name *left)
{
    struct chime_edge edge = chime_child_edge(n, i);
    return chime_child_at(n, i) == left->next && memcmp(&edge, &left->high, sizeof edge) == 0;
}

/* The sibling that the name has is child i of the node. */
static void name_next(struct chime_name *name, const struct chime_inner *n, unsigned i)
{
    name->next = chime_child_at(n, i);
    name->high = chime_child_edge(n, i);
}

/* Adds child i of the node, if its own sibling is known. */
static bool add_leaf(struct op *op, struct chime_view *view, struct scan *s,
                     const struct chime_inner *n, gaddr parent, unsigned i)
{
    struct leaf *leaf = &s->leaf[s->leaves];
    struct chime_name *name = &leaf->name;
    *leaf = (struct leaf){.parent = parent};
    name->at = chime_child_at(n, i);
    if (index_cache_retired(view->cache, name->at))
        return false;
    name->low = chime_child_edge(n, i);
    leaf->stem = chime_stem_at(n, i);
    if (i + 1 < n->count) {
        name_next(name, n, i + 1);
    } else if (n->next != 0) {
        const struct chime_inner *right = cached(op, view, s, n->next);
        if (!right)
            return false;
        name_next(name, right, 0);
    }
    s->leaves++;
    return true;
}

/* Adds leaves to the right of the first one, as far as their parents are cached. Nothing here
 * waits. */
static void add_leaves(struct op *op, struct chime_view *view, struct scan *s, unsigned wanted)
{
    gaddr parent = s->leaf[0].parent;
    const struct chime_inner *n = parent != 0 ? cached(op, view, s, parent) : NULL;
    unsigned i = n ? chime_route(n, &s->cursor) : 0;
    if (n && chime_child_at(n, i) != s->leaf[0].name.at)
        return;
    while (n) {
        struct leaf *last = &s->leaf[s->leaves - 1];
        if (++i == n->count) {
            parent = n->next;
            n = parent != 0 ? cached(op, view, s, parent) : NULL;
            i = 0;
        }
        if (!n || !follows(n, i, &last->name))
            return;
        if (chime_child_text(n, i) <= s->text_left)
            keep_high(s, last, chime_child_bound(n, i, s->text).bytes);
        if (s->leaves == wanted || last_leaf(s, last) || !add_leaf(op, view, s, n, parent, i))
            return;
    }
}

/* How many leaves to read, by how full leaves are, and where in the first one the cursor is if
 * keys are spread evenly. A leaf too many costs its bytes, and one too few a round trip. If K
 * tells keys badly apart, more blocks than entries are read, and a leaf too few costs two round
 * trips. */
static unsigned leaves_wanted(const struct chime_view *view, const struct scan *s)
{
    const struct entries_out *out = s->out;
    const struct chime_name *name = &s->leaf[0].name;
    uint64_t fill = view->fill ? view->fill : view->shape.span * 512 / 3;
    uint64_t wanted = s->range->limit - out->count, before = 128; /* 1/256 of the first leaf */
    uint64_t fit = (out->cap - out->len) / (out->count ? out->len / out->count : 16) + 1;
    if (wanted > fit)
        wanted = fit;
    uint64_t range = name->high.k - name->low.k, below = s->cursor.k - name->low.k;
    if (name->high.k > name->low.k && s->cursor.k >= name->low.k && s->cursor.k < name->high.k)
        before = range < 1ull << 32 ? below * 256 / range : below / (range / 256 + 1);
    if ((name->low.lng != 0 || name->high.lng != 0) && s->leaf[0].stem.len == 0)
        before += 256;
    uint64_t leaves = ((wanted << 16) / (fill < 256 ? 256 : fill) + before + ROUNDING) / 256;
    return leaves < 1 ? 1 : leaves > LEAVES ? LEAVES : (unsigned)leaves;
}

/* Finds out which leaves to read. *lost: the operation has to rest. */
static int plan(struct op *op, struct chime_view *view, struct scan *s, bool *lost)
{
    struct chime_spot spot;
    s->stamp = index_cache_stamp(view->cache, op);
    int rc = chime_descend(op, view, &s->cursor, 0, s->fresh, &s->wait, &spot);
    *lost = spot.lost;
    if (rc == FAR_OK && !*lost)
        rc = take_buffer(op, view, s);
    if (rc != FAR_OK || *lost)
        return rc;
    s->leaf[0] = (struct leaf){.name = spot.name, .stem = spot.stem, .parent = spot.parent};
    s->leaves = 1;
    s->doubted = !spot.fresh;
    add_leaves(op, view, s, leaves_wanted(view, s));
    return FAR_OK;
}

/* A leaf did not fit. */
static int met_misfit(struct op *op, struct chime_view *view, struct scan *s, enum chime_fit fit,
                      gaddr parent)
{
    if (fit == CHIME_TORN) {
        s->around = ++s->torn > TORN_LOOKS;
        s->fresh |= s->around;
        return FAR_OK;
    }
    s->fresh = true;
    s->around = s->misfits++ > 0;
    return !s->around || parent == 0 ? chime_forget(op, view, parent) : FAR_OK;
}

/* One attempt to go ahead, by the names that parents give. */
static int go_ahead(struct op *op, struct chime_view *view, struct scan *s)
{
    const struct chime_shape *shape = &view->shape;
    enum chime_fit fit = CHIME_FITS;
    unsigned fitting = 0;
    bool lost = false;
    int rc = plan(op, view, s, &lost);
    if (rc != FAR_OK || lost)
        return rc;
    for (unsigned i = 0; i < s->leaves; i++)
        chime_read_window(op, shape, s->leaf[i].name.at, chime_all(shape), image_of(view, s, i),
                          s->doubted ? FAB_MAY_BE_FREED : 0);
    rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc == FAR_BOUNDS ? chime_damaged(view, s->leaf[0].name.at) : rc;
    while (fitting < s->leaves) {
        fit =
            chime_judge(view, image_of(view, s, fitting), chime_all(shape), &s->leaf[fitting].name);
        if (fit != CHIME_FITS)
            break;
        list_leaf(view, s, fitting++);
    }
    if (fitting > 0)
        rc = settle(op, view, s, &s->leaf[fitting - 1]);
    if (rc != FAR_OK || s->done || fit == CHIME_FITS)
        return rc;
    return met_misfit(op, view, s, fit, s->leaf[fitting].parent);
}

/* ---- one leaf, with its head ----------------------------------------------------------------- */

/* The leaf was read whole, and has the cursor in its range. */
static int settle_by_head(struct op *op, struct chime_view *view, struct scan *s, gaddr at)
{
    struct leaf *leaf = &s->leaf[0];
    struct slice bytes = {NULL, 0};
    int rc = FAR_OK;
    *leaf = (struct leaf){.name = chime_head_name(at, chime_head(s->node)),
                          .stem = chime_head_stem(chime_head(s->node))};
    if (leaf->name.high.lng != 0)
        rc = chime_separator(op, view, leaf->name.high.lng, &bytes);
    if (rc != FAR_OK)
        return rc;
    keep_high(s, leaf, bytes);
    s->leaves = 1;
    list_leaf(view, s, 0);
    return settle(op, view, s, leaf);
}

/* CHIME-C13: the leaf cannot be read. Goes on behind it. */
static int pass_leaf(struct op *op, struct chime_view *view, struct scan *s,
                     const struct chime_name *name)
{
    s->leaf[0] = (struct leaf){.name = *name};
    s->out->damaged += view->shape.span;
    s->done = name->next == 0;
    return s->done ? FAR_OK : move_on(op, view, s, &s->leaf[0]);
}

/* Reads a leaf with its head, and those to the right of it, until one has the cursor in its
 * range. */
static int look_around(struct op *op, struct chime_view *view, struct scan *s)
{
    struct chime_spot spot;
    bool below = false;
    int rc = chime_descend(op, view, &s->cursor, 0, true, &s->wait, &spot);
    if (rc == FAR_OK && !spot.lost)
        rc = take_buffer(op, view, s);
    gaddr at = spot.name.at, by = spot.parent; /* by which node it was found */
    for (unsigned moves = 0; rc == FAR_OK && !spot.lost && !below; moves++) {
        enum chime_verdict verdict = CHIME_AGAIN;
        unsigned damaged = 0;
        if (moves == INDEX_ATTEMPTS)
            return FAR_CONTENTION;
        rc = chime_read_past(op, view, at, 0, false, s->node, &s->wait, &verdict, &damaged);
        if (rc == FAR_CORRUPT && at == spot.name.at && spot.parent != 0)
            return pass_leaf(op, view, s, &spot.name);
        if (rc == FAR_OK && verdict == CHIME_GONE) {
            s->around = false;
            rc = chime_settle(op, view, by, &s->wait);
        }
        if (rc != FAR_OK || verdict != CHIME_GOOD)
            return rc;
        chime_empty_groups(s->node, damaged);
        const struct chime_head *head = chime_head(s->node);
        struct chime_child_ref next = {chime_next_at(head->next), head->high.k, head->high.lng, 0};
        rc = chime_below_high(op, view, head, &s->cursor, &below);
        if (rc == FAR_OK && below)
            rc = settle_by_head(op, view, s, at);
        if (rc == FAR_OK && below && (s->done || s->moved))
            s->out->damaged += chime_places_of(damaged); /* CHIME-C11 */
        if (rc == FAR_OK && moves == 0 && next.at != 0 && next.at != spot.name.next) {
            int entered = chime_enter(op, view, &next, &s->wait);
            rc = s->done ? FAR_OK : entered;
        }
        by = at;
        at = next.at;
    }
    return rc;
}

int chime_scan(struct op *op, struct index_view *base, const struct scan_range *range,
               struct entries_out *out)
{
    struct chime_view *view = chime_view(base);
    struct scan s;
    memset(&s, 0, offsetof(struct scan, leaf));
    s.range = range;
    s.out = out;
    if (range->to.data && index_key_compare(range->from, range->to) >= 0)
        return FAR_OK;
    if (range->from.len > 0)
        s.cursor = chime_key_bound(range->from);
    if (range->to.data)
        s.to = chime_key_bound(range->to);
    for (unsigned attempts = 0; index_attempt(&attempts);) {
        s.moved = false;
        int rc = chime_rest(op, view, &s.wait, &attempts);
        if (rc == FAR_OK)
            rc = s.around ? look_around(op, view, &s) : go_ahead(op, view, &s);
        if (s.done && !out->more)
            out->damaged += s.passed; /* otherwise the next scan passes them again */
        if (rc != FAR_OK || s.done)
            return rc;
        if (s.moved)
            attempts = 0;
    }
    out->more = out->count > 0;
    return out->more ? FAR_OK : FAR_CONTENTION;
}
