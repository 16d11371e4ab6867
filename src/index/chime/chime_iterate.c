/*
 * iterate: leaf by leaf, from left to right.
 *
 * A cursor says: all keys below a leaf's range were returned, and of the keys in that range those
 * whose turn t is below the cursor's. A key's turn is a part of its hash, so it does not depend on
 * what else happens in the leaf. Keys with the same turn follow each other in their order, and
 * `same` of those with turn t were returned. Low bits first:
 *
 *     the leaf's address 40 | t 9 | same 3 | check 12
 *
 * The check is of the leaf's range: of its beginning, and if t is not 0 also of its end. If the
 * leaf has taken over its right neighbour meanwhile, keys of that one have had no turn. It is also
 * of the `same` keys. If the check fails, or there is no such leaf any more, the iteration begins
 * again. A dead leaf was merged to the left: its range is found by its separator, and entries of
 * the left neighbour are returned twice. If `same` is not 0, its range cannot be checked, and the
 * iteration begins again.
 *
 * A leaf that is on a node that is passed (FAR_PASS_AWAY), or whose head is damaged (CHIME-C13), is
 * left out: its parent says where it ends. So is all below an internal node on such a node.
 */
#include "index/chime/chime_items.h"
#include "index/iterate.h"

#define LEAVES     16u /* that a call reads */
#define TURN_BITS  9u
#define SAME_BITS  3u
#define CHECK_BITS 12u
#define CHECK_SALT 0x6368696d65637572ull
#define SAME_AT    (GADDR_BITS + TURN_BITS)
#define CHECK_AT   (SAME_AT + SAME_BITS)
#define SAME_MAX   ((1u << SAME_BITS) - 1)
_Static_assert(CHECK_AT + CHECK_BITS == 64, "a cursor is a word");

struct walk {
    gaddr at; /* the leaf; 0: it is found by `bound` */
    unsigned t, same, check;
    bool sure;              /* this operation has read the address, and has not rested since */
    bool routed;            /* the leaf was found by `bound` */
    struct chime_edge edge; /* if the left neighbour led to it: where it begins */
    gaddr by;               /* the node that named it */
    bool done;
    unsigned leaves;          /* that were read */
    unsigned damaged;         /* groups of the leaf, a bit each */
    unsigned lost;            /* other entries of it, whose blocks are damaged */
    struct chime_bound bound; /* all keys below were returned */
    struct chime_wait wait;
    uint64_t *node; /* the leaf's image; behind it its items. In BUF_INDEX */
    struct chime_item *item;
    unsigned items;
    struct chime_stem stem; /* of the leaf */
    char key[FAR_KEY_MAX];  /* the bound's bytes */
};

static unsigned check_of(const struct chime_view *view, const uint64_t range[4])
{
    return hash_sum(range, 4 * sizeof *range, view->seed ^ CHECK_SALT) & ((1u << CHECK_BITS) - 1);
}

static unsigned check_head(const struct chime_view *view, const struct chime_head *head, unsigned t)
{
    uint64_t range[4] = {head->low.k, head->low.lng, t ? head->high.k : 0, t ? head->high.lng : 0};
    return check_of(view, range);
}

static uint64_t cursor_of(const struct walk *w)
{
    return w->at | (uint64_t)w->t << GADDR_BITS | (uint64_t)w->same << SAME_AT |
           (uint64_t)w->check << CHECK_AT;
}

static int start(const struct chime_view *view, struct walk *w, uint64_t cursor)
{
    memset(w, 0, offsetof(struct walk, key));
    w->at = cursor & GADDR_MASK;
    w->t = cursor >> GADDR_BITS & ((1u << TURN_BITS) - 1);
    w->same = cursor >> SAME_AT & SAME_MAX;
    w->check = (unsigned)(cursor >> CHECK_AT);
    if (cursor != 0 && !index_inside(view->base.table->pool, w->at, view->shape.bytes))
        return err_fail(FAR_INVALID, "not a cursor");
    return FAR_OK;
}

/* The leaf is to be found by the bound, which is the lowest one unless it is set. */
static void find_again(struct walk *w, struct chime_bound bound)
{
    w->at = 0;
    w->t = w->same = 0;
    w->bound = bound;
    if (bound.bytes.data && bound.bytes.data != w->key)
        w->bound.bytes.data = memcpy(w->key, bound.bytes.data, bound.bytes.len);
}

/* ---- entries of a leaf ----------------------------------------------------------------------- */

static bool by_turn(const struct chime_item *a, const struct chime_item *b)
{
    return a->t != b->t ? a->t < b->t : index_key_compare(chime_item_key(a), chime_item_key(b)) < 0;
}

/* The check, with the `same` items before this one. */
static unsigned check_items(const struct chime_view *view, const struct walk *w, unsigned first)
{
    unsigned check = check_head(view, chime_head(w->node), w->t);
    for (unsigned i = first - w->same; i < first; i++) {
        struct slice key = chime_item_key(&w->item[i]);
        uint64_t range[4] = {check, hash_key(key.data, key.len, view->seed).lo};
        check = check_of(view, range);
    }
    return check;
}

/* Takes out the items whose blocks are on nodes that are passed. */
static void drop_away(struct walk *w, const struct entries_out *out)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < w->items; i++)
        if (!w->item[i].block || !index_iterate_is_away(out, w->item[i].v))
            w->item[kept++] = w->item[i];
    w->items = kept;
}

/* Reads the blocks of all items, or only their keys if they have too many bytes. *whole: the
 * values were read, too. A function of its own, so that descents need less stack. */
static __attribute__((noinline)) int read_items(struct op *op, const struct chime_view *view,
                                                struct walk *w, const struct entries_out *out,
                                                bool *whole)
{
    struct index_blocks blocks;
    size_t room = out->cap - out->len, bytes = 0;
    for (unsigned i = 0; i < w->items; i++)
        if (w->item[i].block)
            bytes += chime_item_read_bytes(op, &w->item[i], false);
    bool keys = out->keys_only || bytes > (room < INDEX_BLOCKS_BYTES ? room : INDEX_BLOCKS_BYTES);
    *whole = true;
    index_blocks_start(&blocks, op, SIZE_MAX);
    for (unsigned i = 0; i < w->items; i++) {
        if (!w->item[i].block)
            continue;
        uint32_t part = chime_item_read_bytes(op, &w->item[i], keys);
        *whole &= out->keys_only || part == chime_item_read_bytes(op, &w->item[i], false);
        (void)index_blocks_add(&blocks, w->item[i].v, part, i);
    }
    return chime_items_read(op, view, w->item, &blocks);
}

/* Takes out the items whose keys could not be read. */
static void drop_damaged(struct walk *w)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < w->items; i++)
        if (!w->item[i].damaged)
            w->item[kept++] = w->item[i];
    w->lost = w->items - kept;
    w->items = kept;
}

/* Sorts the items by their turns. *first: the first whose turn has not been. False: those that were
 * to be returned before are not the same. */
static bool take_turns(const struct chime_view *view, struct walk *w, unsigned *next)
{
    unsigned first = 0;
    for (unsigned i = 0; i < w->items; i++) {
        struct slice key = chime_item_key(&w->item[i]);
        uint64_t hash = hash_key(key.data, key.len, view->seed).hi;
        hash &= view->base.table->pool->knobs.hash_mask;
        w->item[i].t = hash & ((1u << TURN_BITS) - 1);
    }
    chime_items_sort(w->item, w->items, by_turn);
    while (first < w->items && w->item[first].t < w->t)
        first++;
    for (unsigned i = 0; i < w->same; i++, first++)
        if (first == w->items || w->item[first].t != w->t)
            return false;
    *next = first;
    return w->same == 0 || check_items(view, w, first) == w->check;
}

/* The bytes that an item takes in the caller's buffer. */
static size_t bytes_of(const struct chime_item *item, const struct entries_out *out)
{
    char nowhere;
    struct entries_out none = {.buf = &nowhere, .keys_only = out->keys_only};
    (void)index_entries_add(&none, chime_item_key(item), chime_item_value(item));
    return none.needed;
}

/* The end of the items that there is room for. *needed: bytes of the first one that does not
 * fit. */
static unsigned fitting(const struct walk *w, const struct entries_out *out, unsigned first,
                        size_t *needed)
{
    size_t room = out->cap - out->len;
    for (; first < w->items; first++) {
        *needed = bytes_of(&w->item[first], out);
        if (*needed > room)
            break;
        room -= *needed;
    }
    return first;
}

/* How many items before this one have its turn. */
static unsigned same_before(const struct walk *w, unsigned item)
{
    unsigned same = 0;
    while (same < item && w->item[item - same - 1].t == w->item[item].t)
        same++;
    return same;
}

static int add_items(const struct chime_view *view, const struct walk *w, struct entries_out *out,
                     unsigned from, unsigned end)
{
    int rc = FAR_OK;
    for (unsigned i = from; i < end && rc == FAR_OK; i++) {
        bool full = false;
        const struct chime_item *item = &w->item[i];
        out->damaged += item->damaged; /* its value; its key could be read */
        if (item->damaged)
            continue;
        rc = index_add_entry(&view->base, out, chime_item_key(item), chime_item_value(item), &full);
        if (full)
            rc = err_fail(FAR_CORRUPT, "a key-value block has changed its length");
    }
    return rc;
}

/* The same, but only the keys were read so far. */
static __attribute__((noinline)) int read_and_add(struct op *op, const struct chime_view *view,
                                                  struct walk *w, struct entries_out *out,
                                                  unsigned from, unsigned end)
{
    struct index_blocks blocks;
    int rc = FAR_OK;
    while (from < end && rc == FAR_OK) {
        unsigned next = from;
        index_blocks_start(&blocks, op, INDEX_BLOCKS_BYTES);
        for (; next < end; next++) {
            const struct chime_item *item = &w->item[next];
            if (item->block &&
                !index_blocks_add(&blocks, item->v, chime_item_read_bytes(op, item, false), next))
                break;
        }
        rc = chime_items_read(op, view, w->item, &blocks);
        if (rc == FAR_OK)
            rc = add_items(view, w, out, from, next);
        from = next;
    }
    return rc;
}

/* The call ends in this leaf, before the item. */
static void stop(const struct chime_view *view, struct walk *w, struct entries_out *out,
                 unsigned item)
{
    w->check = check_items(view, w, item);
    out->cursor = cursor_of(w);
    w->done = true;
}

/* Goes on with the next leaf. */
static void step_right(const struct chime_view *view, struct walk *w, struct entries_out *out)
{
    const struct chime_head *head = chime_head(w->node);
    uint64_t range[4] = {head->high.k, head->high.lng, 0, 0};
    out->damaged += chime_places_of(w->damaged) + w->lost; /* CHIME-C11, ITERATE-1 */
    w->by = w->at;
    w->at = chime_next_at(head->next);
    w->t = w->same = 0;
    w->check = check_of(view, range);
    w->sure = true;
    w->routed = false;
    w->edge = head->high;
    bool away = out->away >> gaddr_node(w->at) & 1; /* nobody could go on there */
    w->done =
        w->at == 0 || (++w->leaves >= index_iterate_parts(view->base.table->pool, LEAVES) && !away);
    if (w->done)
        out->cursor = w->at ? cursor_of(w) : 0;
}

/* The leaf was read whole: adds its entries, and goes on. */
static int add_leaf(struct op *op, const struct chime_view *view, struct walk *w,
                    struct entries_out *out)
{
    bool whole = false;
    size_t needed = 0;
    w->stem = chime_head_stem(chime_head(w->node));
    w->items = chime_items_list(&view->shape, w->node, 0, &w->stem, 0, UINT64_MAX, w->item);
    if (out->away != 0)
        drop_away(w, out);
    int rc = read_items(op, view, w, out, &whole);
    if (rc != FAR_OK)
        return rc;
    unsigned first = 0, end;
    drop_damaged(w);
    if (!take_turns(view, w, &first)) {
        find_again(w, (struct chime_bound){0});
        return FAR_OK;
    }
    end = fitting(w, out, first, &needed);
    while (end < w->items && end > first && same_before(w, end) > SAME_MAX)
        end--; /* as good as never */
    if (first < w->items && end == first && out->count == 0) {
        out->needed = needed;
        return FAR_TOO_SMALL;
    }
    rc = whole ? add_items(view, w, out, first, end) : read_and_add(op, view, w, out, first, end);
    if (rc != FAR_OK)
        return rc;
    if (end == w->items) {
        step_right(view, w, out);
        return FAR_OK;
    }
    w->t = w->item[end].t;
    w->same = same_before(w, end);
    stop(view, w, out, end);
    return FAR_OK;
}

/* ---- leaves ---------------------------------------------------------------------------------- */

/* The separator of a dead node. The node may have been freed since, and the separator's block
 * with it: if that is not the node's any more, the bound is the lowest one. */
static int dead_bound(struct op *op, struct walk *w, const struct chime_head *head,
                      struct chime_bound *bound)
{
    uint64_t pointer = head->low.lng;
    gaddr at = 0;
    uint32_t len = size_class_bytes(pointer_class(pointer));
    *bound = (struct chime_bound){.k = head->low.k};
    if (pointer == 0)
        return FAR_OK;
    char *image = op_buffer(op, BUF_BLOCK_IN, len);
    if (!image)
        return FAR_NO_MEMORY;
    batch_read(&op->batch, pointer_gaddr(pointer), 0, image, len);
    batch_may_be_freed(&op->batch);
    int rc = batch_flush(&op->batch);
    const struct block_head *h = (const void *)image;
    bool good = rc == FAR_OK && block_valid(image, len, slot_generation(CHIME_SLOT, pointer)) &&
                h->vlen == 8 && h->klen <= FAR_KEY_MAX;
    if (good)
        at = chime_child_node(chime_block_child(image));
    if (good && at == w->at) {
        memcpy(w->key, block_key(image), h->klen);
        bound->bytes = (struct slice){w->key, h->klen};
        good = chime_prefix(bound->bytes) == head->low.k;
    }
    if (!good || at != w->at)
        *bound = (struct chime_bound){0};
    return rc == FAR_BOUNDS ? FAR_OK : rc;
}

/* The leaf is dead: its range is found by its separator. */
static int leave_dead(struct op *op, struct chime_view *view, struct walk *w)
{
    struct chime_bound bound;
    int rc = dead_bound(op, w, chime_head(w->node), &bound);
    if (rc == FAR_OK && w->sure)
        rc = chime_settle(op, view, w->by, &w->wait);
    find_again(w, bound);
    return rc;
}

/* Finds the leaf by the bound, if need be, and the buffer. *lost: the operation has to rest. */
static int prepare(struct op *op, struct chime_view *view, struct walk *w, bool *lost)
{
    if (w->at == 0) {
        struct chime_spot spot;
        int rc = chime_descend(op, view, &w->bound, 0, true, &w->wait, &spot);
        *lost = spot.lost;
        if (rc != FAR_OK || *lost)
            return rc;
        w->at = spot.name.at;
        w->by = spot.parent;
        w->sure = w->routed = true;
    }
    size_t bytes = view->shape.bytes, items = view->shape.span * sizeof *w->item;
    char *buffer = op_buffer(op, BUF_INDEX, bytes + items);
    if (!buffer)
        return FAR_NO_MEMORY;
    w->node = (uint64_t *)(void *)buffer;
    w->item = (struct chime_item *)(void *)(buffer + bytes);
    return FAR_OK;
}

/* Rests, if the operation must. Then no address is sure any more. */
static int rest(struct op *op, struct chime_view *view, struct walk *w, unsigned *attempts)
{
    if (w->wait.rests) {
        w->sure = false;
        w->at = w->routed ? 0 : w->at;
    }
    return chime_rest(op, view, &w->wait, attempts);
}

/* ---- leaves that cannot be read -------------------------------------------------------------- */
/* Some of these are functions of their own, so that other ways need less stack. */

/* Is child i the leaf that the cursor is of, at its beginning? */
static bool is_cursors(const struct chime_view *view, const struct walk *w,
                       const struct chime_inner *n, unsigned i)
{
    struct chime_edge low = chime_child_edge(n, i);
    uint64_t range[4] = {low.k, low.lng, 0, 0};
    return chime_child_at(n, i) == w->at && w->t == 0 && check_of(view, range) == w->check;
}

/* Finds the leaf of the cursor by its address, in a parent. *found is false, or an error: it was
 * not found. */
static __attribute__((noinline)) int find_by_address(struct op *op, struct chime_view *view,
                                                     struct walk *w, bool *found)
{
    struct chime_end end = {.bound = {0}};
    for (;;) {
        struct chime_spot spot;
        struct chime_path path = {.stamp = index_cache_stamp(view->cache, op), .fresh = true};
        const struct chime_inner *n = NULL;
        struct chime_bound bound = end.bound;
        char bytes[FAR_KEY_MAX];
        if (bound.bytes.data)
            bound.bytes.data = memcpy(bytes, bound.bytes.data, bound.bytes.len);
        int rc = chime_descend_past(op, view, &bound, 1, &w->wait, &spot, &end);
        if (rc == FAR_OK && !spot.lost && !spot.none)
            rc = chime_inner_at(op, view, spot.name.at, 1, &path, &w->wait, &n);
        if (rc != FAR_OK || !n)
            return rc;
        for (unsigned i = 0; i < n->count && !*found; i++)
            if (is_cursors(view, w, n, i)) {
                find_again(w, chime_child_bound(n, i, bytes));
                *found = true;
            }
        if (*found || !end.known || end.last)
            return FAR_OK;
    }
}

/* Sets w->bound to where the leaf begins. *found: it is known. */
static int find_beginning(struct op *op, struct chime_view *view, struct walk *w, bool *found)
{
    struct chime_bound bound = {.k = w->edge.k};
    *found = w->at == 0 || w->routed;
    if (*found)
        return FAR_OK;
    if (!w->sure)
        return find_by_address(op, view, w, found);
    int rc = w->edge.lng != 0 ? chime_separator(op, view, w->edge.lng, &bound.bytes) : FAR_OK;
    *found = rc == FAR_OK;
    if (*found)
        find_again(w, bound);
    return rc;
}

/* The leaf, or a node on the way to it, could not be read: goes on behind that. *passed: it
 * does. */
static __attribute__((noinline)) int pass(struct op *op, struct chime_view *view, struct walk *w,
                                          struct entries_out *out, int why, bool *passed)
{
    struct chime_spot spot;
    struct chime_end end;
    gaddr failed = w->at;
    bool found = false;
    int rc = find_beginning(op, view, w, &found);
    if (rc != FAR_OK || !found)
        return rc;
    rc = chime_descend_past(op, view, &w->bound, 0, &w->wait, &spot, &end);
    bool leaf = rc == FAR_OK && !spot.lost && spot.name.at == failed;
    bool above = why == FAR_UNREACHABLE && index_iterate_passes(op, out, rc);
    *passed = true;
    w->leaves++;
    if (rc == FAR_OK && !leaf) { /* something has changed, or only the leaf's name is not known */
        w->at = spot.lost ? 0 : spot.name.at;
        w->by = spot.parent;
        w->sure = w->routed = true;
        return FAR_OK;
    }
    *passed = (leaf || above) && end.known;
    if (!*passed)
        return rc;
    out->damaged += why == FAR_CORRUPT ? view->shape.span : 0; /* CHIME-C13 */
    w->done = end.last;
    if (w->done)
        out->cursor = 0;
    else
        find_again(w, end.bound);
    return FAR_OK;
}

/* The leaf could not be read, for this reason. */
static int leave_out(struct op *op, struct chime_view *view, struct walk *w,
                     struct entries_out *out, int why)
{
    bool passed = false;
    if (why != FAR_CORRUPT && !index_iterate_passes(op, out, why))
        return why;
    int rc = pass(op, view, w, out, why, &passed);
    if (passed)
        return rc;
    return why == FAR_CORRUPT
               ? err_fail(why, "a node of table '%s' is damaged", view->base.table->desc.name)
               : why;
}

/* One attempt: reads a leaf, and adds its entries. */
static int visit(struct op *op, struct chime_view *view, struct walk *w, struct entries_out *out)
{
    enum chime_verdict verdict = CHIME_AGAIN;
    bool lost = false, found = false;
    int rc = prepare(op, view, w, &lost);
    if (rc == FAR_OK && lost)
        return rc;
    if (rc == FAR_OK)
        rc =
            chime_read_past(op, view, w->at, 0, !w->sure, w->node, &w->wait, &verdict, &w->damaged);
    if (rc != FAR_OK)
        return leave_out(op, view, w, out, rc);
    if (verdict == CHIME_AGAIN)
        return FAR_OK;
    if (verdict == CHIME_OTHER && find_by_address(op, view, w, &found) == FAR_OK && found)
        return FAR_OK; /* it is a leaf, so its head is damaged (CHIME-C13) */
    chime_empty_groups(w->node, w->damaged);
    const struct chime_head *head = chime_head(w->node);
    bool same = w->sure || check_head(view, head, w->t) == w->check;
    if (w->same > 0) /* the check is also of keys, which a dead leaf does not have */
        same = verdict == CHIME_GOOD;
    if (verdict == CHIME_OTHER || !same) {
        find_again(w, (struct chime_bound){0});
        return FAR_OK;
    }
    return verdict == CHIME_GONE ? leave_dead(op, view, w) : add_leaf(op, view, w, out);
}

int chime_iterate(struct op *op, struct index_view *base, struct entries_out *out)
{
    struct chime_view *view = chime_view(base);
    struct walk w;
    unsigned leaves = 0;
    int rc = start(view, &w, out->cursor);
    for (unsigned attempts = 0; rc == FAR_OK && index_attempt(&attempts);) {
        rc = rest(op, view, &w, &attempts);
        if (rc == FAR_OK)
            rc = visit(op, view, &w, out);
        if (rc != FAR_OK || w.done)
            return rc;
        if (w.leaves > leaves)
            attempts = 0;
        leaves = w.leaves;
    }
    return rc == FAR_OK ? FAR_CONTENTION : rc;
}
