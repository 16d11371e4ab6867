/*
 * Splits of nodes, and how parents learn of them. The upper half of the entries goes to a new node,
 * in the same places. It is in the tree as soon as its left sibling names it. The parent's entry is
 * a shortcut. A client that misses it adds it.
 */
#include "index/chime/chime.h"

#include <stdlib.h>

#define ENTER_ATTEMPTS 64u
#define VACANCY_AT     offsetof(struct chime_head, vacancy)

/* ---- the order of the entries ---------------------------------------------------------------- */

/* An entry of the node that is split. */
struct item {
    uint64_t k;
    uint64_t inlined;   /* the bytes of an inline key */
    struct slice bytes; /* of any other, once they were read */
    uint8_t place;
    bool is_long; /* its bytes count if another one has the same k */
};

/* Where the node is cut. */
struct cut {
    struct item item[CHIME_SPAN_MAX]; /* in order */
    unsigned count, at;               /* those from `at` on go to the new node */
    bool all;                         /* they are of a leaf, and their keys were read */
    struct chime_bound separator;     /* bytes: they are in BUF_BLOCK_IN, or those of x */
    struct chime_stem stem;           /* of the new node */
    struct index_blocks blocks;
};

static struct slice bytes_of(const struct item *i)
{
    return i->bytes.data ? i->bytes : (struct slice){&i->inlined, 8};
}

static int by_key(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->k != y->k)
        return x->k < y->k ? -1 : 1;
    if (!x->is_long || !y->is_long)
        return (int)x->is_long - (int)y->is_long;
    return index_key_compare(bytes_of(x), bytes_of(y));
}

static void list_items(const struct chime_view *view, uint64_t *node, struct cut *c)
{
    bool leaf = chime_head(node)->level == 0;
    c->count = 0;
    for (unsigned p = 0; p < view->shape.span; p++) {
        unsigned kind = chime_kind_at(node, p);
        if (kind == CHIME_EMPTY)
            continue;
        struct item *i = &c->item[c->count++];
        *i = (struct item){.k = chime_entry(node, p)[0], .place = (uint8_t)p};
        i->is_long = leaf || kind == CHIME_BLOCK;
        i->inlined = __builtin_bswap64(i->k);
    }
}

/* Does K tell the item from all others, and from the new entry? */
static bool k_tells(const struct cut *c, unsigned i, uint64_t k)
{
    const struct item *item = &c->item[i];
    return item->k != k && (i == 0 || item[-1].k != item->k) &&
           (i + 1 == c->count || item[1].k != item->k);
}

/* Does it tell all items? */
static bool k_tells_all(const struct cut *c, uint64_t k)
{
    bool tells = true;
    for (unsigned i = 0; i < c->count && tells; i++)
        tells = k_tells(c, i, k);
    return tells;
}

/* Puts the entries in order. `k`: that of the new entry. */
static int sort_items(struct op *op, const struct chime_view *view, uint64_t *node, uint64_t k,
                      struct cut *c)
{
    bool leaf = chime_head(node)->level == 0;
    bool plain = leaf && chime_edge_stem(&chime_head(node)->low) == 0; /* K is the first 8 bytes */
    list_items(view, node, c);
    qsort(c->item, c->count, sizeof *c->item, by_key);
    c->all = leaf && !(plain && k_tells_all(c, k));
    index_blocks_start(&c->blocks, op, SIZE_MAX);
    for (unsigned i = 0; i < c->count; i++) {
        unsigned place = c->item[i].place;
        uint64_t v = chime_entry(node, place)[1];
        if (chime_kind_at(node, place) == CHIME_BLOCK && (c->all || !leaf))
            (void)index_blocks_add(&c->blocks, v, index_block_key_bytes(v), i);
    }
    if (c->blocks.count == 0)
        return FAR_OK;
    int rc = index_blocks_read(op, &c->blocks, false);
    for (unsigned i = 0; i < c->blocks.count && rc == FAR_OK; i++) {
        const struct index_block *b = &c->blocks.block[i];
        if (!index_block_whole(b, CHIME_SLOT)) {
            if (plain && k_tells(c, b->place, k))
                continue; /* it is known where the key belongs */
            return err_fail(FAR_CORRUPT, "a key-value block fails its checksum");
        }
        struct item *item = &c->item[b->place];
        item->bytes =
            (struct slice){block_key(b->image), ((const struct block_head *)b->image)->klen};
        item->k = chime_prefix(item->bytes);
    }
    qsort(c->item, c->count, sizeof *c->item, by_key);
    return rc;
}

/* ---- where to cut ---------------------------------------------------------------------------- */

/* The lowest separator that tells a from b in a leaf; in an internal node it is b's. */
static struct chime_bound between(struct chime_bound a, struct chime_bound b, bool leaf)
{
    struct chime_bound bound = {.k = b.k};
    if (!leaf)
        return b;
    if (a.k == b.k) {
        const char *x = a.bytes.data, *y = b.bytes.data;
        size_t same = 0;
        while (same < a.bytes.len && same < b.bytes.len && x[same] == y[same])
            same++;
        bound.bytes = (struct slice){y, same + 1};
    }
    return bound;
}

static struct chime_bound bound_of(const struct cut *c, unsigned i)
{
    const struct item *item = &c->item[i];
    return (struct chime_bound){item->k, item->is_long ? bytes_of(item) : (struct slice){NULL, 0}};
}

/* Cuts before the item; at the end, the new node gets only the new entry. */
static void cut_at(struct cut *c, unsigned at, const struct chime_new *x, bool leaf)
{
    c->at = at;
    c->separator = between(bound_of(c, at - 1), at < c->count ? bound_of(c, at) : x->bound, leaf);
}

static uint64_t places_from(const struct cut *c, unsigned from)
{
    uint64_t places = 0;
    for (unsigned i = from; i < c->count; i++)
        places |= 1ull << c->item[i].place;
    return places;
}

/* Where x goes: to the new node or to the old one, and its place there; span: it has none. */
static unsigned place_of(const struct chime_shape *s, const struct cut *c,
                         const struct chime_new *x, bool leaf, bool *up)
{
    uint64_t upper = places_from(c, c->at), all = places_from(c, 0);
    *up = chime_reaches(&x->bound, &c->separator);
    uint64_t vacancy = chime_places(s) & ~(*up ? upper : all & ~upper);
    return leaf ? chime_free_place(s, vacancy, x->home) : (unsigned)__builtin_ctzll(vacancy);
}

/* The middle of the entries in the neighbourhood of x: then x gets the place of one of the other
 * half. */
static unsigned middle_of_hood(const struct chime_shape *s, const struct cut *c,
                               const struct chime_new *x)
{
    unsigned seen = 0;
    for (unsigned i = 0; i < c->count; i++) {
        unsigned distance = (c->item[i].place - x->home) & (s->span - 1);
        if (distance < s->hood && ++seen == s->hood / 2 + 1)
            return i;
    }
    return c->count / 2;
}

static int choose_cut(struct op *op, const struct chime_view *view, const struct chime_held *h,
                      const struct chime_new *x, struct cut *c)
{
    bool leaf = chime_head(h->node)->level == 0, up = false;
    int rc = sort_items(op, view, h->node, x->bound.k, c);
    if (rc != FAR_OK)
        return rc;
    struct chime_bound last = bound_of(c, c->count - 1);
    bool above = x->bound.k != last.k ? x->bound.k > last.k : chime_reaches(&x->bound, &last);
    if (h->name.next == 0 && above) { /* keys come in ascending order: the old node stays full */
        cut_at(c, leaf ? c->count : c->count - 1, x, leaf); /* an internal node is never empty */
        return FAR_OK;
    }
    cut_at(c, c->count / 2, x, leaf);
    if (place_of(&view->shape, c, x, leaf, &up) == view->shape.span)
        cut_at(c, middle_of_hood(&view->shape, c, x), x, leaf);
    return FAR_OK;
}

/* The stem of the new leaf: what the separator and the highest key have in common, but the last
 * bytes, because keys that come may differ in them. If the leaf begins with the new key only, those
 * that come will differ as those of the old leaf do. An inline key has no other K, and so the leaf
 * no stem. */
static struct chime_stem choose_stem(const struct chime_view *view, const struct chime_held *h,
                                     const struct chime_new *x, const struct cut *c)
{
    const struct chime_stem none = {0};
    struct slice low = c->separator.bytes, high = x->bound.bytes;
    struct chime_bound last = bound_of(c, c->count - 1);
    size_t same = 0, slack = view->base.table->pool->knobs.stem_slack;
    bool blocks = x->kind == CHIME_BLOCK;
    if (h->harm.beyond != 0) /* CHIME-C12: both leaves have the Ks of these groups as they were */
        return chime_has_stem(view, &h->stem, low) ? h->stem : none;
    if (c->at == c->count && low.data) /* the separator has all that x and the lowest key share */
        low = bound_of(c, 0).bytes;
    if (!chime_reaches(&x->bound, &last))
        high = last.bytes;
    for (unsigned i = c->at; i < c->count; i++)
        blocks = blocks && c->item[i].bytes.data;
    while (same < low.len && same < high.len &&
           ((const char *)low.data)[same] == ((const char *)high.data)[same])
        same++;
    return blocks && same > slack ? chime_stem(view, low.data, (unsigned)(same - slack)) : none;
}

/* Chooses the stem of the new leaf, and sets the Ks that the entries get. */
static void set_ks(const struct chime_view *view, const struct chime_held *h,
                   const struct chime_new *x, struct cut *c)
{
    c->stem = c->all ? choose_stem(view, h, x, c) : (struct chime_stem){0};
    for (unsigned i = c->at; i < c->count && c->all; i++)
        if (c->item[i].bytes.data)
            c->item[i].k = chime_k(view, &c->stem, c->item[i].bytes);
}

/* ---- splitting ------------------------------------------------------------------------------- */

/* A split under way. */
struct split {
    struct cut cut;
    gaddr born;
    struct block_ref block; /* of a long separator */
    struct chime_edge edge;
    uint64_t image[CHIME_HEAD_WORDS + CHIME_GROUP_WORDS * CHIME_GROUPS_MAX];
};

/* Takes memory for the new node, on any of the nodes, and for a long separator. */
static int prepare(struct op *op, const struct chime_view *view, struct split *p)
{
    unsigned node = op->pool->nodes > 1 ? (unsigned)op_random(op, op->pool->nodes) : 0;
    unsigned size_class = chime_node_class(&view->shape);
    const struct slice *bytes = &p->cut.separator.bytes;
    int rc = pool_alloc(op, node, size_class, &p->born);
    p->block.at = 0;
    p->edge = (struct chime_edge){.k = p->cut.separator.k,
                                  .sum = chime_text_sum(view, *bytes, p->cut.stem.len)};
    if (rc != FAR_OK || !bytes->data)
        return rc;
    uint64_t value = chime_child(p->born, p->cut.stem.len);
    rc = block_prepare(op, gaddr_node(p->born), bytes->data, bytes->len, &value, 8, 0, &p->block);
    if (rc == FAR_OK)
        p->edge.lng = slot_make(CHIME_SLOT, &p->block, 0);
    else
        pool_free_unpublished(op->client, p->born, size_class);
    return rc;
}

/* The image of the new node: what is above the cut, and nobody else's to touch. Its groups have the
 * name of a dead node until the old node names it: nothing names it if this client dies before
 * (CHIME-C7). */
static void make_image(struct op *op, const struct chime_view *view, const struct chime_held *h,
                       struct split *p)
{
    uint64_t upper = places_from(&p->cut, p->cut.at);
    struct chime_head *head = chime_head(p->image);
    memcpy(p->image, h->node, view->shape.bytes);
    for (unsigned place = 0; place < view->shape.span; place++) {
        uint64_t *group = chime_group(p->image, place / CHIME_GROUP);
        if (!(upper >> place & 1))
            group[0] = chime_with_kind(group[0], place % CHIME_GROUP, CHIME_EMPTY);
    }
    for (unsigned i = p->cut.at; i < p->cut.count; i++)
        chime_entry(p->image, p->cut.item[i].place)[0] = p->cut.item[i].k;
    head->lock = client_owner_word(op->client);
    head->vacancy = chime_vacancy(&view->shape, p->image);
    head->next = chime_next(h->name.next, 0);
    head->state = chime_state(CHIME_BORN, h->at, p->born, view->seed);
    head->intent = 0;
    head->low = p->edge;
    head->stem = p->cut.stem.hash;
    head->sum = chime_head_sum(view, p->born, head);
    struct chime_name none = chime_dead_name(p->born, head);
    chime_renew(view, p->image, &none, 0);
}

/* The new node's groups get its name, and name x if it has that place. */
static void name_image(const struct chime_view *view, struct split *p, unsigned place,
                       const struct chime_new *x)
{
    struct chime_name name = chime_head_name(p->born, chime_head(p->image));
    if (place < view->shape.span) {
        uint64_t *group = chime_group(p->image, place / CHIME_GROUP);
        group[0] = chime_with_kind(group[0], place % CHIME_GROUP, x->kind);
    }
    chime_renew(view, p->image, &name, 0);
}

/* The old node without what the new one has. */
static void clean_image(const struct chime_view *view, struct chime_held *h, const struct split *p,
                        unsigned era)
{
    uint64_t upper = places_from(&p->cut, p->cut.at);
    for (uint64_t left = upper; left; left &= left - 1) {
        unsigned place = (unsigned)__builtin_ctzll(left);
        uint64_t *group = chime_group(h->node, place / CHIME_GROUP);
        group[0] = chime_with_kind(group[0], place % CHIME_GROUP, CHIME_EMPTY);
    }
    h->name.next = p->born;
    h->name.high = p->edge;
    chime_renew(view, h->node, &h->name, era);
}

/* Groups of one of the two nodes. CHIME-C11: both have the damage. */
static void write_groups(struct op *op, const struct chime_view *view,
                         struct chime_staging *staging, const struct chime_harm *harm,
                         const struct chime_name *name, uint64_t *node)
{
    struct chime_seal seal = chime_name_seal(view, name);
    chime_harm_set(harm, seal, node);
    chime_staging_groups(op, staging, &view->shape, name->at, node);
    chime_harm_undo(harm, seal, node);
}

/* All of the new node, while nothing names it. A recovery that gives its groups their name finds
 * the damage there, too. */
static void write_image(struct op *op, const struct chime_view *view, struct chime_staging *staging,
                        const struct chime_harm *harm, struct split *p)
{
    struct chime_name none = chime_dead_name(p->born, chime_head(p->image));
    struct chime_seal seal = chime_name_seal(view, &none);
    chime_harm_set(harm, seal, p->image);
    chime_staging_write(op, staging, p->born, 0, p->image, view->shape.bytes);
    chime_harm_undo(harm, seal, p->image);
}

/* All that is written, in this order (CHIME-C7). */
static int write_split(struct op *op, struct chime_view *view, struct chime_held *h,
                       struct split *p, const struct chime_new *x, struct chime_staging *staging)
{
    const struct chime_shape *s = &view->shape;
    unsigned era = chime_era(*chime_group(h->node, 0)) + 1;
    bool up = false;
    unsigned place = place_of(s, &p->cut, x, chime_head(h->node)->level == 0, &up);
    ASSERT(place < s->span);
    make_image(op, view, h, p);
    if (up) { /* no group names it yet */
        bool block = x->kind == CHIME_BLOCK;
        uint64_t k = block ? chime_k(view, &p->cut.stem, x->bound.bytes) : x->k;
        memcpy(chime_entry(p->image, place), (uint64_t[]){k, x->v}, 16);
    }
    if (p->edge.lng != 0)
        block_write(op, &p->block);
    write_image(op, view, staging, &h->harm, p);
    chime_then(op, p->born, h->at);
    clean_image(view, h, p, era);
    chime_staging_next(op, staging, &h->name, era);
    batch_fence(&op->batch);
    write_groups(op, view, staging, &h->harm, &h->name, h->node);
    if (!up) {
        batch_fence(&op->batch);
        chime_write_entry(op, view, staging, h, place, x);
    }
    chime_staging_word(op, staging, h->at, VACANCY_AT, chime_harm_vacancy(&h->harm, s, h->node));
    chime_then(op, h->at, p->born);
    name_image(view, p, up ? place : s->span, x);
    struct chime_name name = chime_head_name(p->born, chime_head(p->image));
    write_groups(op, view, staging, &h->harm, &name, p->image);
    batch_fence(&op->batch);
    chime_staging_word(op, staging, p->born, VACANCY_AT, chime_harm_vacancy(&h->harm, s, p->image));
    chime_staging_word(op, staging, p->born, offsetof(struct chime_head, state), 0);
    chime_unlock(op, p->born);
    op_cas(op, MARK_LOCK, h->at, offsetof(struct chime_head, lock), client_owner_word(op->client),
           0);
    return chime_finish(op);
}

int chime_split(struct op *op, struct chime_view *view, struct chime_held *h,
                const struct chime_new *x, struct chime_child_ref *born)
{
    ASSERT(h->at != 0);
    struct split p;
    struct chime_staging staging;
    unsigned level = (unsigned)chime_head(h->node)->level;
    gaddr at = h->at;
    h->at = 0;
    int rc = choose_cut(op, view, &(struct chime_held){.at = at, .name = h->name, .node = h->node},
                        x, &p.cut);
    if (rc == FAR_OK)
        set_ks(view, h, x, &p.cut);
    if (rc == FAR_OK)
        rc = chime_staging_start(op, &staging);
    if (rc == FAR_OK)
        rc = prepare(op, view, &p);
    if (rc != FAR_OK) {
        int released = chime_release(op, at);
        return released != FAR_OK ? released : rc;
    }
    h->at = at;
    rc = write_split(op, view, h, &p, x, &staging);
    h->at = 0;
    if (rc != FAR_OK) { /* it is not known what others can see */
        chime_abandon(op, &view->shape, p.edge.lng);
        return rc;
    }
    if (level == 0)
        index_grew(&view->base, at, &p.born, 1, (double)p.cut.count / view->shape.span);
    else
        index_cache_drop(view->cache, at);
    *born = (struct chime_child_ref){p.born, p.edge.k, p.edge.lng, level};
    return FAR_OK;
}

/* ---- parents --------------------------------------------------------------------------------- */

/* The highest node was split: makes one above it, unless another client does. */
static int grow(struct op *op, struct chime_view *view, const struct chime_child_ref *born)
{
    uint64_t image[CHIME_HEAD_WORDS + CHIME_GROUP_WORDS * CHIME_GROUPS_MAX] = {0}, top = view->top;
    struct chime_head *head = chime_head(image);
    struct chime_staging staging;
    gaddr at = 0;
    ASSERT(born->level + 1 < CHIME_LEVELS);
    int rc = pool_alloc(op, 0, chime_node_class(&view->shape), &at);
    if (rc != FAR_OK)
        return rc;
    head->level = born->level + 1;
    head->sum = chime_head_sum(view, at, head);
    *chime_group(image, 0) = chime_with_kind(chime_with_kind(0, 0, CHIME_INLINE), 1,
                                             born->lng ? CHIME_BLOCK : CHIME_INLINE);
    chime_entry(image, 0)[1] = chime_top_at(top);
    chime_entry(image, 1)[0] = born->k;
    chime_entry(image, 1)[1] = born->lng ? born->lng : born->at;
    head->vacancy = chime_vacancy(&view->shape, image);
    struct chime_name name = chime_head_name(at, head);
    chime_renew(view, image, &name, 0);
    rc = chime_staging_start(op, &staging);
    if (rc != FAR_OK) {
        pool_free_unpublished(op->client, at, chime_node_class(&view->shape));
        return rc;
    }
    chime_staging_write(op, &staging, at, 0, image, view->shape.bytes);
    batch_fence(&op->batch);
    uint64_t higher = chime_top(at, born->level + 1, view->seed);
    unsigned n =
        op_cas(op, MARK_PUBLISH, view->root, offsetof(struct chime_root, top), top, higher);
    rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        pool_abandon(op->client, chime_node_class(&view->shape));
    else if (op_swapped(op, n))
        view->top = chime_top_level(view->top) > born->level ? view->top : higher;
    else
        pool_free_unpublished(op->client, at, chime_node_class(&view->shape));
    return rc == FAR_OK ? chime_forget(op, view, 0) : rc;
}

/* Does the parent name the node? */
static bool names(const struct chime_shape *s, uint64_t *parent,
                  const struct chime_child_ref *child)
{
    for (unsigned p = 0; p < s->span; p++)
        if (chime_kind_at(parent, p) != CHIME_EMPTY &&
            chime_entry(parent, p)[1] == (child->lng ? child->lng : child->at))
            return true;
    return false;
}

/* The parent is held, and does not name the node. If the parent is split, *born becomes its new
 * half. */
static int add_child(struct op *op, struct chime_view *view, struct chime_held *h,
                     const struct chime_bound *bound, struct chime_child_ref *born, bool *done)
{
    struct chime_new x = {.k = born->k,
                          .v = born->lng ? born->lng : born->at,
                          .kind = born->lng ? CHIME_BLOCK : CHIME_INLINE,
                          .bound = *bound};
    uint64_t vacancy = chime_vacancy(&view->shape, h->node);
    struct chime_staging staging;
    if (vacancy == 0)
        return chime_split(op, view, h, &x, born);
    *done = true;
    int rc = chime_staging_start(op, &staging);
    if (rc != FAR_OK) {
        (void)chime_release(op, h->at);
        return rc;
    }
    unsigned place = (unsigned)__builtin_ctzll(vacancy);
    gaddr at = h->at;
    chime_write_entry(op, view, &staging, h, place, &x);
    chime_staging_word(op, &staging, at, offsetof(struct chime_head, vacancy),
                       chime_taken(vacancy, place));
    chime_unlock(op, at);
    rc = chime_finish(op);
    if (rc == FAR_OK)
        chime_remember(op, view, at, h->stamp, h->node);
    return rc;
}

/* What became of an attempt to enter a node. */
struct entering {
    bool done;  /* it is in its parent, or must not be, or this is left to others */
    bool right; /* it belongs to the right of the node that its grandparent led to, */
    struct chime_child_ref sibling; /* which is this one */
};

/* The parent is held. */
static int enter_held(struct op *op, struct chime_view *view, struct chime_held *h,
                      const struct chime_bound *bound, struct chime_child_ref *born,
                      struct entering *e)
{
    const struct chime_head *head = chime_head(h->node);
    const struct chime_head *child = chime_other_head(&view->shape, h);
    bool below = false;
    int rc = chime_below_high(op, view, head, bound, &below);
    bool known = names(&view->shape, h->node, born);
    bool dead = child->lock & CHIME_DEAD || chime_stage(child->state) == CHIME_MERGED; /* C10 */
    if (rc == FAR_OK && below && !known && !dead)
        return add_child(op, view, h, bound, born, &e->done);
    gaddr at = h->at;
    int released = chime_release(op, at);
    e->done = known || dead;
    e->right = !below && !e->done;
    e->sibling = (struct chime_child_ref){chime_next_at(head->next), head->high.k, head->high.lng,
                                          (unsigned)head->level};
    if (rc == FAR_OK && released == FAR_OK)
        chime_remember(op, view, at, h->stamp, h->node);
    return rc == FAR_OK ? released : rc;
}

/* One attempt. */
static int enter(struct op *op, struct chime_view *view, struct chime_child_ref *born,
                 struct chime_wait *wait, struct entering *e)
{
    char copy[FAR_KEY_MAX];
    struct chime_bound bound = {.k = born->k};
    struct chime_spot spot;
    struct chime_held h;
    enum chime_verdict verdict = CHIME_GOOD;
    int rc = born->lng != 0 ? chime_separator(op, view, born->lng, &bound.bytes) : FAR_OK;
    if (rc != FAR_OK)
        return rc;
    if (born->lng != 0) {
        memcpy(copy, bound.bytes.data, bound.bytes.len);
        bound.bytes.data = copy;
    }
    rc = chime_descend(op, view, &bound, born->level + 1, true, wait, &spot);
    e->done = spot.lost;
    if (rc != FAR_OK || e->done)
        return rc;
    if (spot.none) {
        rc = chime_forget(op, view, 0);
        bool highest = chime_top_level(view->top) == born->level;
        return rc == FAR_OK && highest ? grow(op, view, born) : rc;
    }
    rc = chime_hold(op, view, spot.name.at, born->level + 1, born->at, wait, &h, &verdict);
    e->done = verdict == CHIME_AGAIN;
    if (rc == FAR_OK && verdict == CHIME_GONE)
        rc = chime_settle(op, view, spot.parent, wait);
    if (rc == FAR_OK && h.at != 0)
        rc = enter_held(op, view, &h, &bound, born, e);
    if (rc == FAR_OK && e->right) /* what is cached of the grandparent is old */
        rc = chime_forget(op, view, spot.parent);
    return rc;
}

int chime_enter(struct op *op, struct chime_view *view, const struct chime_child_ref *child,
                struct chime_wait *wait)
{
    struct chime_child_ref born[CHIME_LEVELS + 1] = {
        *child}; /* each one's parent must be entered first */
    unsigned depth = 0, rights = 0;
    int rc = FAR_OK;
    for (unsigned attempts = 0; rc == FAR_OK && attempts < ENTER_ATTEMPTS; attempts++) {
        struct entering e = {0};
        rc = enter(op, view, &born[depth], wait, &e);
        rights = e.right ? rights + 1 : 0;
        if (e.done && (depth == 0 || wait->rests))
            break;
        if (e.done)
            depth--;
        if (rights < 2 || depth == CHIME_LEVELS)
            continue;
        born[++depth] = e.sibling; /* the grandparent does not know it */
        rights = 0;
    }
    return rc == FAR_POOL_FULL ? FAR_OK : rc; /* the node can be reached without */
}
