/*
 * Merges: the entries of a node go to its left neighbour, if both are children of one parent and
 * together at most half full. Internal nodes are merged like leaves. All three are locked, so the
 * parent never names a dead node unless its holder has died, and the recovery of the parent mends
 * that. Nobody needs a merge, so it is given up at the first obstacle.
 */
#include "index/blocks.h"
#include "index/chime/chime.h"

enum { LEFT, RIGHT, PARENT, NODES };

/* The nodes of a merge: the left one takes all. */
struct merge {
    gaddr at[NODES];
    struct chime_held held[NODES];
    unsigned place;             /* of the right one in the parent */
    uint64_t k[CHIME_SPAN_MAX]; /* of the right one's entries, as the left one has them */
    uint64_t version;           /* that caches had before */
    uint64_t *image;            /* the left one as it will be */
};

/* Releases what is held. */
static int let_go(struct op *op, struct merge *m)
{
    uint64_t me = client_owner_word(op->client);
    for (unsigned i = 0; i < NODES; i++) {
        if (m->held[i].at != 0)
            op_cas(op, MARK_LOCK, m->held[i].at, offsetof(struct chime_head, lock), me, 0);
        m->held[i].at = 0;
    }
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        client_renounce(op);
    return rc;
}

/* Locks and reads all three, or none. *all: they are held. */
static int hold_all(struct op *op, struct chime_view *view, struct merge *m, bool *all)
{
    const struct chime_shape *s = &view->shape;
    uint64_t me = client_owner_word(op->client), *images;
    unsigned lock[NODES];
    images = op_buffer(op, BUF_INDEX, (NODES + 1) * (size_t)s->bytes);
    if (!images)
        return FAR_NO_MEMORY;
    m->image = images + NODES * (s->bytes / 8);
    for (unsigned i = 0; i < NODES; i++)
        lock[i] = op_cas(op, MARK_LOCK, m->at[i], offsetof(struct chime_head, lock), 0, me);
    batch_fence(&op->batch);
    for (unsigned i = 0; i < NODES; i++) {
        m->held[i] = (struct chime_held){.node = images + i * (s->bytes / 8),
                                         .stamp = index_cache_stamp(view->cache, op)};
        batch_read_head(&op->batch, m->at[i], 0, m->held[i].node, s->bytes);
    }
    int rc = batch_flush(&op->batch);
    bool unknown = false;
    *all = rc == FAR_OK;
    for (unsigned i = 0; i < NODES; i++) {
        enum batch_outcome outcome = batch_outcome(&op->batch, lock[i]);
        m->held[i].at = outcome == BATCH_DONE ? m->at[i] : 0;
        *all = *all && outcome == BATCH_DONE;
        unknown |= rc != FAR_OK && outcome == BATCH_UNKNOWN;
    }
    if (unknown)
        client_renounce(op);
    if (!*all && !unknown) {
        int released = let_go(op, m);
        return rc == FAR_OK ? released : rc;
    }
    return rc;
}

/* Where the parent names a node; span: it does not. */
static unsigned named_at(const struct chime_shape *s, const struct merge *m, unsigned node)
{
    const struct chime_head *head = chime_head(m->held[node].node);
    uint64_t *parent = m->held[PARENT].node, named = head->low.lng ? head->low.lng : m->at[node];
    unsigned place = 0;
    while (place < s->span &&
           (chime_kind_at(parent, place) == CHIME_EMPTY || chime_entry(parent, place)[1] != named))
        place++;
    return place;
}

/* Sets m->k. If the two leaves have different stems, the keys of the right one are read for that.
 * *fits: all can be read, and all may be in the left one. */
static int take_ks(struct op *op, const struct chime_view *view, struct merge *m, bool *fits)
{
    const struct chime_stem *stem = &m->held[LEFT].stem, *old = &m->held[RIGHT].stem;
    uint64_t *right = m->held[RIGHT].node;
    bool same = stem->len == old->len && stem->hash == old->hash;
    struct index_blocks blocks;
    index_blocks_start(&blocks, op, SIZE_MAX);
    for (unsigned p = 0; p < view->shape.span; p++) {
        uint64_t v = chime_entry(right, p)[1];
        unsigned kind = chime_kind_at(right, p);
        m->k[p] = chime_entry(right, p)[0];
        *fits &= kind != CHIME_INLINE || stem->len == 0; /* CHIME-C14 */
        if (!same && kind == CHIME_BLOCK)
            (void)index_blocks_add(&blocks, v, index_block_key_bytes(v), p);
    }
    int rc = *fits && blocks.count > 0 ? index_blocks_read(op, &blocks, false) : FAR_OK;
    *fits &= rc == FAR_OK;
    for (unsigned i = 0; i < blocks.count && *fits; i++) {
        const struct index_block *b = &blocks.block[i];
        const struct block_head *h = b->image;
        *fits = index_block_whole(b, CHIME_SLOT);
        if (*fits)
            m->k[b->place] = chime_k(view, stem, (struct slice){block_key(h), h->klen});
    }
    return rc;
}

/* Finds places in the left node for all entries of the right one, and fills them in the image.
 * False: they do not fit. */
static bool take_over(const struct chime_view *view, struct merge *m)
{
    const struct chime_shape *s = &view->shape;
    uint64_t *image = m->image, *right = m->held[RIGHT].node;
    bool leaf = chime_head(image)->level == 0;
    for (unsigned p = 0; p < s->span; p++) {
        unsigned kind = chime_kind_at(right, p);
        if (kind == CHIME_EMPTY)
            continue;
        uint64_t vacancy = chime_vacancy(s, image);
        unsigned to = leaf ? chime_free_place(s, vacancy, chime_entry_home(view, right, p))
                           : (unsigned)__builtin_ctzll(vacancy);
        if (to == s->span)
            return false;
        uint64_t *group = chime_group(image, to / CHIME_GROUP);
        memcpy(chime_entry(image, to), (uint64_t[]){m->k[p], chime_entry(right, p)[1]}, 16);
        group[0] = chime_with_kind(group[0], to % CHIME_GROUP, kind);
    }
    return true;
}

/* The entries go to the left node, and no group names them yet. Then all groups get their new
 * words. */
static struct chime_name write_left(struct op *op, struct chime_view *view, struct merge *m,
                                    struct chime_staging *staging, unsigned era)
{
    const struct chime_shape *s = &view->shape;
    struct chime_held *l = &m->held[LEFT];
    const struct chime_name *right = &m->held[RIGHT].name;
    struct chime_name name = l->name;
    for (unsigned p = 0; p < s->span; p++)
        memcpy(chime_entry(l->node, p), chime_entry(m->image, p), 16);
    chime_staging_groups(op, staging, s, l->at, l->node);
    batch_fence(&op->batch);
    name.next = right->next;
    name.high = right->high;
    chime_renew(view, m->image, &name, era);
    chime_staging_groups(op, staging, s, l->at, m->image);
    chime_then(op, l->at, m->at[RIGHT]);
    return name;
}

/* The right node's groups name nothing any more. */
static void write_right(struct op *op, struct chime_view *view, struct merge *m,
                        struct chime_staging *staging, unsigned era)
{
    struct chime_held *r = &m->held[RIGHT];
    struct chime_name dead = chime_dead_name(r->at, chime_head(r->node));
    for (unsigned g = 0; g < view->shape.groups; g++)
        *chime_group(r->node, g) &= ~0xffull;
    chime_renew(view, r->node, &dead, era);
    chime_staging_groups(op, staging, &view->shape, r->at, r->node);
    chime_then(op, r->at, m->at[LEFT]);
}

/* The parent's entry for the right node goes. */
static void write_parent(struct op *op, struct chime_view *view, struct merge *m,
                         struct chime_staging *staging)
{
    struct chime_held *p = &m->held[PARENT];
    unsigned group = m->place / CHIME_GROUP;
    uint64_t *words = chime_group(p->node, group);
    words[0] = chime_with_kind(words[0], m->place % CHIME_GROUP, CHIME_EMPTY);
    chime_group_seal(chime_name_seal(view, &p->name), group, words);
    chime_staging_word(op, staging, p->at, chime_group_at(group), words[0]);
    chime_staging_word(op, staging, p->at, offsetof(struct chime_head, vacancy),
                       chime_vacancy(&view->shape, p->node));
}

/* All that is written, in this order (CHIME-C8). The version of caches changes when nothing names
 * the right node any more. */
static int write_merge(struct op *op, struct chime_view *view, struct merge *m)
{
    gaddr left = m->at[LEFT], right = m->at[RIGHT];
    uint64_t me = client_owner_word(op->client);
    size_t lock_at = offsetof(struct chime_head, lock),
           state_at = offsetof(struct chime_head, state);
    unsigned era = chime_era(*chime_group(m->held[LEFT].node, 0)) + 1;
    struct chime_staging staging;
    int rc = chime_staging_start(op, &staging);
    if (rc != FAR_OK) {
        (void)let_go(op, m);
        return rc;
    }
    chime_staging_word(op, &staging, right, state_at,
                       chime_state(CHIME_MERGING, left, right, view->seed));
    chime_then(op, right, left);
    struct chime_name name = write_left(op, view, m, &staging, era);
    chime_staging_word(op, &staging, right, state_at,
                       chime_state(CHIME_MERGED, left, right, view->seed));
    batch_fence(&op->batch);
    write_right(op, view, m, &staging, era);
    chime_staging_next(op, &staging, &name, era);
    chime_staging_word(op, &staging, left, offsetof(struct chime_head, vacancy),
                       chime_vacancy(&view->shape, m->image));
    chime_then(op, left, m->at[PARENT]);
    write_parent(op, view, m, &staging);
    chime_then(op, m->at[PARENT], view->base.cached.version_at);
    unsigned bumped = index_bump_version(op, &view->base);
    op_cas(op, MARK_LOCK, right, lock_at, me, CHIME_DEAD);
    op_cas(op, MARK_LOCK, left, lock_at, me, 0);
    op_cas(op, MARK_LOCK, m->at[PARENT], lock_at, me, 0);
    rc = chime_finish(op);
    m->version = op_result(op, bumped);
    return rc;
}

/* All are held. *merged: the right one is dead, and nothing names it. */
static int merge_held(struct op *op, struct chime_view *view, struct merge *m, unsigned level,
                      bool *merged)
{
    const struct chime_shape *s = &view->shape;
    int rc = FAR_OK;
    unsigned used = 0;
    for (unsigned i = 0; i < NODES && rc == FAR_OK; i++) {
        rc = chime_judge_held(op, view, &m->held[i], i == PARENT ? level + 1 : level);
        used += rc == FAR_OK && i != PARENT ? chime_used(s, chime_vacancy(s, m->held[i].node)) : 0;
    }
    bool fits = rc == FAR_OK && m->held[LEFT].name.next == m->at[RIGHT] && used <= s->span / 2 &&
                named_at(s, m, LEFT) < s->span;
    if (fits)
        rc = take_ks(op, view, m, &fits);
    if (fits) {
        m->place = named_at(s, m, RIGHT);
        memcpy(m->image, m->held[LEFT].node, s->bytes);
        fits = m->place < s->span && take_over(view, m);
    }
    if (!fits) {
        int released = let_go(op, m);
        return rc == FAR_OK ? released : rc;
    }
    rc = write_merge(op, view, m);
    *merged = rc == FAR_OK;
    if (rc == FAR_UNKNOWN) /* perhaps nothing names it */
        chime_abandon(op, s, chime_head(m->held[RIGHT].node)->low.lng);
    return rc;
}

/* The neighbours to be merged; one of them has the key. at[PARENT] is 0 if there are none. *few:
 * because the parent has only one child. */
static int find_pair(struct op *op, struct chime_view *view, const struct chime_bound *key,
                     unsigned level, struct merge *m, bool *few)
{
    struct chime_path path = {.stamp = index_cache_stamp(view->cache, op), .fresh = true};
    struct chime_wait wait = {0};
    const struct chime_inner *n = NULL;
    struct chime_spot spot;
    int rc = chime_descend(op, view, key, level, true, &wait, &spot);
    if (rc != FAR_OK || spot.lost || spot.none || spot.parent == 0)
        return rc;
    rc = chime_inner_at(op, view, spot.parent, level + 1, &path, &wait, &n);
    *few = n && n->count < 2;
    if (rc != FAR_OK || !n || *few)
        return rc;
    unsigned i = chime_route(n, key);
    i = i + 1 < n->count ? i : i - 1;
    m->at[LEFT] = chime_child_at(n, i);
    m->at[RIGHT] = chime_child_at(n, i + 1);
    if (!index_cache_retired(view->cache, m->at[LEFT]) &&
        !index_cache_retired(view->cache, m->at[RIGHT]))
        m->at[PARENT] = spot.parent;
    return FAR_OK;
}

/* Merges at one level. *few: the parent has few children now. */
static int shrink(struct op *op, struct chime_view *view, const struct chime_bound *key,
                  unsigned level, bool *few)
{
    struct merge m = {.at = {0}};
    bool all = false, merged = false;
    int rc = find_pair(op, view, key, level, &m, few);
    if (rc != FAR_OK || m.at[PARENT] == 0)
        return rc;
    rc = hold_all(op, view, &m, &all);
    if (rc == FAR_OK && all)
        rc = merge_held(op, view, &m, level, &merged);
    if (!merged)
        return rc;
    uint64_t *parent = m.held[PARENT].node, lng = chime_head(m.held[RIGHT].node)->low.lng;
    *few = chime_used(&view->shape, chime_vacancy(&view->shape, parent)) < view->shape.span / 8 + 1;
    index_cache_drop(view->cache, m.at[LEFT]);
    index_cache_drop(view->cache, m.at[RIGHT]);
    chime_remember(op, view, m.at[PARENT], m.held[PARENT].stamp, parent);
    chime_retired(op, view, m.at[RIGHT], lng, m.version);
    return FAR_OK;
}

void chime_shrink(struct op *op, struct chime_view *view, const struct chime_bound *key,
                  unsigned level)
{
    bool few = true;
    int rc = FAR_OK;
    for (; rc == FAR_OK && few && level < chime_top_level(view->top); level++) {
        few = false;
        rc = shrink(op, view, key, level, &few);
    }
}
