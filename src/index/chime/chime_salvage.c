/*
 * Repairing damaged groups (CHIME-C12).
 *
 * The node is locked meanwhile. If this client dies in the middle, a group is as damaged as before,
 * or torn, or whole. The next repair goes on with that: an entry that proved itself still does.
 */
#include "index/chime/chime.h"
#include "index/walk.h"

struct salvage {
    struct op *op;
    struct chime_view *view;
    const struct chime_bound *low, *high;
    struct chime_held held;
    unsigned salvaged, lost;
};

/* Does a block prove the entry? */
static int prove_entry(struct salvage *v, unsigned place, bool *proved)
{
    const struct chime_shape *s = &v->view->shape;
    const uint64_t *entry = chime_entry(v->held.node, place);
    const void *block = NULL;
    struct chime_key key;
    int exact = -1;
    int rc = index_walk_block(v->op, CHIME_SLOT, entry[1], &block);
    if (rc != FAR_OK || !block)
        return rc;
    const struct block_head *h = block;
    chime_key_set(v->view, (struct slice){block_key(h), h->klen}, &key);
    bool same = chime_k(v->view, &v->held.stem, key.bound.bytes) == entry[0] &&
                slot_fingerprint(CHIME_SLOT, entry[1]) == key.fingerprint;
    bool here = ((place - key.home) & (s->span - 1)) < s->hood &&
                chime_reaches(&key.bound, v->low) &&
                !(v->high && chime_reaches(&key.bound, v->high));
    bool there = chime_candidates(v->view, v->held.node, &key, chime_all(s), &v->held.name,
                                  &v->held.stem, &exact) != 0 ||
                 exact >= 0; /* in a group that is whole */
    *proved = same && here && !there;
    return FAR_OK;
}

/* Is the entry's key that of another one of the group that was kept? */
static bool is_kept(const struct chime_held *h, unsigned group, unsigned i, uint64_t g)
{
    const uint64_t *entry = chime_entry(h->node, CHIME_GROUP * group + i);
    for (unsigned j = 0; j < i; j++) {
        const uint64_t *other = chime_entry(h->node, CHIME_GROUP * group + j);
        if (chime_kind(g, j) == CHIME_BLOCK && other[0] == entry[0] &&
            slot_fingerprint(CHIME_SLOT, other[1]) == slot_fingerprint(CHIME_SLOT, entry[1]))
            return true;
    }
    return false;
}

/* Keeps what proves itself. The group is not whole yet, so chime_candidates() does not look at
 * it. */
static int keep_entries(struct salvage *v, unsigned group)
{
    uint64_t *words = chime_group(v->held.node, group), g = words[0];
    const struct chime_head *head = chime_head(v->held.node);
    for (unsigned i = 0; i < CHIME_GROUP; i++) {
        unsigned place = CHIME_GROUP * group + i;
        bool proved = false, there = !chime_is_free(head->vacancy, place);
        int rc = chime_kind(g, i) == CHIME_BLOCK && there ? prove_entry(v, place, &proved) : FAR_OK;
        if (rc != FAR_OK)
            return rc;
        proved = proved && !is_kept(&v->held, group, i, g);
        v->salvaged += proved;
        v->lost += !proved && chime_kind(g, i) != CHIME_EMPTY;
        if (!proved)
            g = chime_with_kind(g, i, CHIME_EMPTY);
    }
    words[0] = chime_with_era(g, chime_next_era(head->next));
    chime_group_seal(chime_name_seal(v->view, &v->held.name), group, words);
    return FAR_OK;
}

static int salvage_group(struct salvage *v, unsigned group, bool *mended)
{
    uint64_t *words = chime_group(v->held.node, group);
    v->salvaged = v->lost = 0;
    *mended = true;
    if (!chime_undo_flip(chime_name_seal(v->view, &v->held.name), group, words)) {
        *mended = chime_head(v->held.node)->level == 0; /* no block proves the address of a child */
        return *mended ? keep_entries(v, group) : FAR_OK;
    }
    for (unsigned i = 0; i < CHIME_GROUP; i++)
        v->salvaged += chime_kind(words[0], i) != CHIME_EMPTY;
    return FAR_OK;
}

/* The node is held. One finding is counted for it, however many groups are damaged. */
static int salvage_groups(struct salvage *v, unsigned damaged, unsigned *salvaged, unsigned *lost,
                          bool *all)
{
    struct chime_staging staging;
    gaddr at = v->held.at;
    int rc = chime_staging_start(v->op, &staging);
    *all = true;
    for (; damaged && rc == FAR_OK; damaged &= damaged - 1) {
        unsigned g = (unsigned)__builtin_ctz(damaged);
        bool mended = false;
        rc = salvage_group(v, g, &mended);
        *all &= mended;
        if (rc == FAR_OK && mended)
            chime_staging_write(v->op, &staging, at, chime_group_at(g),
                                chime_group(v->held.node, g), 8 * CHIME_GROUP_WORDS);
        *salvaged += v->salvaged;
        *lost += v->lost;
        if (rc == FAR_OK)
            rc = batch_flush(&v->op->batch);
    }
    if (rc == FAR_OK && *all)
        chime_staging_word(v->op, &staging, at, offsetof(struct chime_head, vacancy),
                           chime_vacancy(&v->view->shape, v->held.node));
    if (rc != FAR_OK && !op_all_known(rc)) {
        client_renounce(v->op);
        return rc;
    }
    chime_unlock(v->op, at);
    int finished = chime_finish(v->op);
    return rc == FAR_OK ? finished : rc;
}

/* ---- heads ----------------------------------------------------------------------------------- */

struct head_of {
    const struct chime_view *view;
    uint64_t *node;
    gaddr at;
    unsigned level;
};

/* Does the head fit itself, and a group at least? */
static bool head_fits(const uint64_t *words, const void *arg)
{
    const struct head_of *of = arg;
    const struct chime_head *head = (const struct chime_head *)words;
    if (head->sum != chime_head_sum(of->view, of->at, head) || head->level != of->level ||
        head->state != 0)
        return false;
    struct chime_name name = chime_head_name(of->at, head);
    struct chime_seal seal = chime_name_seal(of->view, &name);
    for (unsigned g = 0; g < of->view->shape.groups; g++)
        if (chime_group_whole(seal, g, chime_group(of->node, g)) &&
            chime_era(*chime_group(of->node, g)) == chime_next_era(head->next))
            return true;
    return false;
}

int chime_mend_head(struct op *op, struct chime_view *view, gaddr at, unsigned level, bool *done)
{
    ASSERT(op->batch.count == 0);
    uint64_t *node = op_buffer(op, BUF_INDEX, view->shape.bytes);
    struct head_of of = {view, node, at, level};
    struct chime_staging staging;
    bool held = false;
    if (!node)
        return FAR_NO_MEMORY;
    unsigned n = chime_lock(op, at);
    batch_read_head(&op->batch, at, 0, node, view->shape.bytes);
    int rc = chime_locked(op, at, n, batch_flush(&op->batch), &held);
    if (rc != FAR_OK || !held)
        return rc;                                                        /* for the next walk */
    unsigned bit = index_flipped(node, CHIME_HEAD_WORDS, head_fits, &of); /* CHIME-C13 */
    rc = bit != INDEX_NO_BIT ? chime_staging_start(op, &staging) : FAR_OK;
    if (rc != FAR_OK || bit == INDEX_NO_BIT) {
        int released = chime_release(op, at);
        return rc == FAR_OK ? released : rc;
    }
    index_flip(node, bit);
    chime_staging_word(op, &staging, at, bit / 64 * 8ull, node[bit / 64]);
    chime_unlock(op, at);
    rc = chime_finish(op);
    *done = rc == FAR_OK;
    return rc;
}

/* ---- groups ---------------------------------------------------------------------------------- */

int chime_salvage(struct op *op, struct chime_view *view, gaddr at, unsigned level,
                  const struct chime_bound *low, const struct chime_bound *high,
                  struct index_report *report, bool *done)
{
    ASSERT(report->repair);
    struct salvage v = {.op = op, .view = view, .low = low, .high = high};
    struct chime_held *h = &v.held;
    unsigned salvaged = 0, lost = 0;
    bool held = false;
    h->node = op_buffer(op, BUF_INDEX, view->shape.bytes);
    if (!h->node)
        return FAR_NO_MEMORY;
    unsigned n = chime_lock(op, at);
    batch_read_head(&op->batch, at, 0, h->node, view->shape.bytes);
    int rc = chime_locked(op, at, n, batch_flush(&op->batch), &held);
    if (rc != FAR_OK || !held)
        return rc; /* for the next walk */
    h->at = at;
    h->name = chime_head_name(at, chime_head(h->node));
    h->stem = chime_head_stem(chime_head(h->node));
    unsigned damaged = chime_damaged_groups(view, at, level, h->node);
    rc = salvage_groups(&v, damaged, &salvaged, &lost, done);
    if (rc == FAR_OK && *done && damaged != 0)
        index_salvaged(report, salvaged, lost);
    return rc;
}
