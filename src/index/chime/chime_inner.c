/* Internal nodes as sessions cache them: the children in order, and the bytes of long
 * separators. */
#include "index/chime/chime.h"

#include <stdlib.h>

/* ---- looking into one ------------------------------------------------------------------------ */

static const struct chime_long *longs_of(const struct chime_inner *n)
{
    return (const struct chime_long *)&n->child[n->count];
}

static const struct chime_long *long_of(const struct chime_inner *n, unsigned i)
{
    return longs_of(n) + __builtin_popcountll(n->longs & ((1ull << i) - 1));
}

/* The long separator of child i, or of the upper bound if there is no such child; NULL: it is
 * short. */
static const struct chime_long *long_at(const struct chime_inner *n, unsigned i)
{
    if (i == n->count)
        return n->high.lng != 0 ? longs_of(n) + __builtin_popcountll(n->longs) : NULL;
    return n->longs >> i & 1 ? long_of(n, i) : NULL;
}

/* The beginning that all long separators have in common. */
static struct slice common_of(const struct chime_inner *n)
{
    unsigned longs = (unsigned)__builtin_popcountll(n->longs) + (n->high.lng != 0);
    return (struct slice){longs_of(n) + longs, n->common};
}

gaddr chime_child_at(const struct chime_inner *n, unsigned i)
{
    return n->longs >> i & 1 ? long_of(n, i)->at : n->child[i].v;
}

size_t chime_child_text(const struct chime_inner *n, unsigned i)
{
    const struct chime_long *l = long_at(n, i);
    return l ? n->common + (size_t)l->len : 0;
}

struct chime_bound chime_child_bound(const struct chime_inner *n, unsigned i, char *text)
{
    const struct chime_long *l = long_at(n, i);
    struct chime_bound bound = {.k = i == n->count ? n->high.k : n->child[i].k};
    if (!l)
        return bound;
    bound.bytes = (struct slice){text, chime_child_text(n, i)};
    memcpy(text, common_of(n).data, n->common);
    memcpy(text + n->common, (const char *)n + l->offset, l->len);
    return bound;
}

struct chime_edge chime_child_edge(const struct chime_inner *n, unsigned i)
{
    struct chime_edge edge = {.k = n->child[i].k};
    if (n->longs >> i & 1) {
        edge.lng = n->child[i].v;
        edge.sum = long_of(n, i)->sum;
    }
    return edge;
}

struct chime_stem chime_stem_at(const struct chime_inner *n, unsigned i)
{
    if (!(n->longs >> i & 1))
        return (struct chime_stem){0};
    const struct chime_long *l = long_of(n, i);
    return (struct chime_stem){(unsigned)l->sum & CHIME_STEM_MAX, l->stem};
}

/* How a key compares with the beginning that all long separators have in common. 0: it has it. */
static int beside_common(const struct chime_inner *n, const struct chime_bound *key)
{
    struct slice bytes = key->bytes;
    if (bytes.len > n->common)
        bytes.len = n->common;
    return index_key_compare(bytes, common_of(n));
}

/* chime_reaches() for the bound of child i, by what beside_common() says of the key. */
static bool reaches(const struct chime_inner *n, unsigned i, const struct chime_bound *key,
                    int beside)
{
    uint64_t k = i == n->count ? n->high.k : n->child[i].k;
    const struct chime_long *l = long_at(n, i);
    if (key->k != k || !l)
        return key->k >= k;
    if (beside != 0)
        return beside > 0;
    struct slice rest = key->bytes;
    if (n->common > 0)
        rest = (struct slice){(const char *)rest.data + n->common, rest.len - n->common};
    return index_key_compare(rest, (struct slice){(const char *)n + l->offset, l->len}) >= 0;
}

bool chime_reaches_high(const struct chime_inner *n, const struct chime_bound *key)
{
    ASSERT(n->next != 0);
    return reaches(n, n->count, key, beside_common(n, key));
}

unsigned chime_route(const struct chime_inner *n, const struct chime_bound *key)
{
    unsigned low = 0, high = n->count; /* the first child has all that is below the second */
    int beside = beside_common(n, key);
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (reaches(n, middle, key, beside))
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- making one ------------------------------------------------------------------------------ */

/* A child while its node is being put in order. */
struct sorting {
    struct chime_child child;
    bool is_long;
    gaddr at;
    unsigned stem; /* its length */
    struct slice bytes;
};

static int by_bound(const void *a, const void *b)
{
    const struct sorting *x = a, *y = b;
    if (x->child.k != y->child.k)
        return x->child.k < y->child.k ? -1 : 1;
    if (!x->is_long || !y->is_long)
        return (int)x->is_long - (int)y->is_long;
    return index_key_compare(x->bytes, y->bytes);
}

/* Takes the children out of the image; those with long separators only if `blocks` has their
 * blocks, in the order of their places. Returns how many there are. */
static unsigned take_children(const struct chime_shape *s, uint64_t *node,
                              const struct index_blocks *blocks, struct sorting *list)
{
    unsigned count = 0, next = 0;
    for (unsigned p = 0; p < s->span; p++) {
        const uint64_t *entry = chime_entry(node, p);
        unsigned kind = chime_kind_at(node, p);
        if (kind == CHIME_EMPTY)
            continue;
        struct sorting *c = &list[count++];
        *c = (struct sorting){.child = {entry[0], entry[1]}, .is_long = kind != CHIME_INLINE};
        c->at = pointer_gaddr(entry[1]);
        if (c->is_long) {
            const void *block = blocks->block[next++].image;
            const struct block_head *h = block;
            uint64_t child = chime_block_child(block);
            c->at = chime_child_node(child);
            c->stem = chime_child_stem(child);
            c->bytes = (struct slice){block_key(block), h->klen};
        }
    }
    return count;
}

/* The beginning that the long separators of the list have in common, and `high`, if it is long. */
static struct slice common_bytes(const struct sorting *list, unsigned count, struct slice high)
{
    struct slice common = high;
    for (unsigned i = 0; i < count; i++) {
        if (!list[i].is_long)
            continue;
        const char *one = list[i].bytes.data, *other = common.data ? common.data : one;
        size_t most = common.data ? common.len : list[i].bytes.len, same = 0;
        while (same < most && same < list[i].bytes.len && one[same] == other[same])
            same++;
        common = (struct slice){one, same};
    }
    return common;
}

/* Adds a long separator, without what is common: at offset *at. */
static void add_long(struct chime_inner *n, struct chime_long *l, struct slice bytes, size_t *at)
{
    l->offset = (uint32_t)*at;
    l->len = (uint32_t)(bytes.len - n->common);
    memcpy((char *)n + *at, (const char *)bytes.data + n->common, l->len);
    *at += l->len;
}

/* Makes the cached form, in view->made. `high`: the bytes of the upper bound, if it is long. */
static int make_inner(struct chime_view *view, uint64_t *node, struct sorting *list, unsigned count,
                      struct slice high)
{
    const struct chime_head *head = chime_head(node);
    unsigned longs = head->high.lng != 0;
    size_t text = high.len;
    qsort(list, count, sizeof *list, by_bound);
    for (unsigned i = 0; i < count; i++) {
        longs += list[i].is_long;
        text += list[i].bytes.len;
    }
    struct slice common = common_bytes(list, count, high);
    size_t at = chime_inner_bytes(count) + longs * sizeof(struct chime_long);
    size_t bytes = at + common.len + text - longs * common.len;
    struct chime_inner *n = realloc(view->made, bytes);
    if (!n)
        return err_fail(FAR_NO_MEMORY, "no memory for a node");
    view->made = n;
    *n = (struct chime_inner){.next = chime_next_at(head->next),
                              .high = head->high,
                              .bytes = (uint32_t)bytes,
                              .common = (uint16_t)common.len,
                              .count = (uint8_t)count,
                              .level = (uint8_t)head->level};
    struct chime_long *l = (struct chime_long *)&n->child[count];
    if (longs > 0)
        memcpy((char *)n + at, common.data, common.len);
    at += common.len;
    for (unsigned i = 0; i < count; i++) {
        n->child[i] = list[i].child;
        if (!list[i].is_long)
            continue;
        n->longs |= 1ull << i;
        *l = (struct chime_long){.at = list[i].at,
                                 .sum = chime_text_sum(view, list[i].bytes, list[i].stem),
                                 .stem = chime_stem(view, list[i].bytes.data, list[i].stem).hash};
        add_long(n, l++, list[i].bytes, &at);
    }
    if (head->high.lng != 0) {
        *l = (struct chime_long){0};
        add_long(n, l, high, &at);
    }
    return FAR_OK;
}

/* Reads the blocks of all long separators of the node, and of its upper bound, which comes last. */
static int read_separators(struct op *op, const struct chime_view *view, uint64_t *node,
                           struct index_blocks *blocks)
{
    const struct chime_shape *s = &view->shape;
    index_blocks_start(blocks, op, SIZE_MAX);
    for (unsigned p = 0; p < s->span; p++) {
        uint64_t v = chime_entry(node, p)[1];
        if (chime_kind_at(node, p) == CHIME_BLOCK)
            (void)index_blocks_add(blocks, v, size_class_bytes(pointer_class(v)), p);
    }
    uint64_t high = chime_head(node)->high.lng;
    if (high != 0)
        (void)index_blocks_add(blocks, high, size_class_bytes(pointer_class(high)), s->span);
    if (blocks->count == 0)
        return FAR_OK;
    int rc = index_blocks_read(op, blocks, false);
    if (rc == FAR_BOUNDS)
        rc = err_fail(FAR_CORRUPT, "a separator points outside the pool");
    for (unsigned i = 0; i < blocks->count && rc == FAR_OK; i++)
        if (!index_block_whole(&blocks->block[i], CHIME_SLOT) ||
            !chime_is_separator(blocks->block[i].image))
            rc = index_damaged(view->base.table, "a separator");
    return rc;
}

int chime_children(struct op *op, const struct chime_view *view, uint64_t *node,
                   gaddr child[CHIME_SPAN_MAX])
{
    struct index_blocks blocks;
    struct sorting list[CHIME_SPAN_MAX];
    int rc = read_separators(op, view, node, &blocks);
    if (rc != FAR_OK)
        return rc;
    (void)take_children(&view->shape, node, &blocks, list);
    for (unsigned p = 0, next = 0; p < view->shape.span; p++)
        child[p] = chime_kind_at(node, p) == CHIME_EMPTY ? 0 : list[next++].at;
    return FAR_OK;
}

/* The image is whole: makes the cached form of it. */
int chime_encode(struct op *op, struct chime_view *view, uint64_t *node)
{
    struct index_blocks blocks;
    struct sorting list[CHIME_SPAN_MAX];
    struct slice high = {NULL, 0};
    int rc = read_separators(op, view, node, &blocks);
    if (rc != FAR_OK)
        return rc;
    unsigned count = take_children(&view->shape, node, &blocks, list);
    if (chime_head(node)->high.lng != 0) {
        const void *block = blocks.block[blocks.count - 1].image;
        high = (struct slice){block_key(block), ((const struct block_head *)block)->klen};
    }
    return count > 0 ? make_inner(view, node, list, count, high)
                     : err_fail(FAR_CORRUPT, "a node of table '%s' has no children",
                                view->base.table->desc.name);
}
