/*
 * get: the groups of the key's neighbourhood, in one round trip. What does not fit is looked at
 * more closely: first the parent is read again, then the whole leaf with its head.
 */
#include "index/chime/chime.h"

#define TORN_LOOKS 8u /* looks that find something being written, before the lock is looked at */

/* ---- whole nodes ----------------------------------------------------------------------------- */

/* ---- get ------------------------------------------------------------------------------------- */

struct look {
    struct chime_key key;
    struct chime_spot spot;
    struct chime_wait wait;
    bool fresh; /* what was cached and may be old has led nowhere */
    unsigned torn, stale;
    uint64_t block; /* a pointer whose block was not whole, */
    bool unsure;    /* at this look */
    uint64_t *node;
    bool hinted;               /* the hint of the key was looked at */
    struct index_hint hint;    /* its slot is 0: none */
    struct index_block peeked; /* the block that it names, if that was read along */
};

/* Looks for the key in the groups of the window that are whole. *found: rc is the get's status. */
static int look_in(struct op *op, struct chime_view *view, struct look *l, struct chime_window w,
                   const struct chime_name *name, const struct chime_stem *stem,
                   struct value_out *out, bool *found)
{
    uint64_t words[CHIME_SPAN_MAX];
    int exact = -1;
    uint64_t candidates = chime_candidates(view, l->node, &l->key, w, name, stem, &exact);
    *found = exact >= 0;
    l->unsure = false;
    if (*found) {
        struct slice value = {chime_entry(l->node, (unsigned)exact) + 1, 8};
        struct chime_seen seen = {.kind = CHIME_INLINE, .place = (unsigned)exact};
        chime_hint_note(view, &l->key, &seen, &l->hint);
        return index_deliver(&view->base, value, out);
    }
    if (candidates == 0)
        return FAR_OK;
    for (uint64_t left = candidates; left; left &= left - 1) {
        unsigned place = (unsigned)__builtin_ctzll(left);
        words[place] = chime_entry(l->node, place)[1];
    }
    struct index_probe probe = {.key = l->key.bound.bytes, .format = CHIME_SLOT, .out = out};
    struct index_found block;
    int rc = FAR_OK;
    if (!chime_peeked(&probe, &l->peeked, words, candidates, &block))
        rc = index_probe(op, &probe, words, candidates, &block);
    if (rc != FAR_OK)
        return rc;
    *found = block.place >= 0;
    if (*found) {
        struct chime_seen seen = {
            .kind = CHIME_BLOCK, .v = block.slot, .place = (unsigned)block.place};
        chime_hint_note(view, &l->key, &seen, &l->hint);
        return index_deliver(&view->base, index_block_value(block.block), out);
    }
    l->unsure = block.stale != 0;
    return l->unsure ? index_found_stale(&block, &l->block) : FAR_OK;
}

/* Reads the one group where the key was lately, and the block that it had. It is a hit, or says
 * nothing (CHIME-C4). */
static int look_hot(struct op *op, struct chime_view *view, struct look *l, struct value_out *out,
                    bool *found)
{
    struct chime_window w = {l->hint.place, 1};
    gaddr leaf = l->spot.name.at;
    chime_read_window(op, &view->shape, leaf, w, l->node, l->spot.fresh ? 0 : FAB_MAY_BE_FREED);
    chime_peek(op, &l->hint, leaf, &l->peeked);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_BOUNDS)
        return chime_damaged(view, leaf);
    if (rc == FAR_OK)
        rc = look_in(op, view, l, w, &l->spot.name, &l->spot.stem, out, found);
    l->peeked.slot = 0;
    return rc;
}

/* The usual look. *fit: what the groups are worth, if the key was not found. */
static int look_near(struct op *op, struct chime_view *view, struct look *l, struct value_out *out,
                     bool *found, enum chime_fit *fit)
{
    const struct chime_shape *s = &view->shape;
    struct chime_name *name = &l->spot.name;
    enum chime_meta meta = (enum chime_meta)view->tuning[CHIME_TUNING_META];
    struct chime_window w =
        view->tuning[CHIME_TUNING_WHOLE] ? chime_all(s) : chime_window(s, l->key.home);
    bool below = true;
    chime_read_window(op, s, name->at, w, l->node, l->spot.fresh ? 0 : FAB_MAY_BE_FREED);
    if (meta != CHIME_META_SIBLING) {
        batch_read(&op->batch, name->at, 0, l->node,
                   meta == CHIME_META_FENCES ? 8 * CHIME_HEAD_WORDS
                                             : offsetof(struct chime_head, state));
        if (!l->spot.fresh)
            batch_may_be_freed(&op->batch);
    }
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc == FAR_BOUNDS ? chime_damaged(view, name->at) : rc;
    if (meta != CHIME_META_SIBLING) { /* the key's own range, instead of the parent's word for it */
        const struct chime_head *head = chime_head(l->node);
        name->next = chime_next_at(head->next);
        name->high = head->high;
    }
    *fit = chime_judge(view, l->node, w, name);
    if (meta != CHIME_META_SIBLING && *fit == CHIME_FITS)
        rc = chime_below_high(op, view, chime_head(l->node), &l->key.bound, &below);
    if (!below)
        *fit = CHIME_MISFIT;
    if (rc == FAR_OK && below)
        rc = look_in(op, view, l, w, name, &l->spot.stem, out, found);
    if (rc == FAR_OK && !*found && below && l->unsure)
        *fit = CHIME_TORN; /* the next look finds another pointer, or it is damage */
    return rc;
}

/* Reads the leaf with its head, and those to the right of it, until one has the key's range.
 * *again: one is dead, or the operation has rested. */
static int look_around(struct op *op, struct chime_view *view, struct look *l,
                       struct value_out *out, bool *again)
{
    gaddr at = l->spot.name.at;
    bool below = false, found = false;
    for (unsigned moves = 0; moves < INDEX_ATTEMPTS; moves++) {
        enum chime_verdict verdict = CHIME_AGAIN;
        int rc = chime_read_node(op, view, at, 0, false, l->node, &l->wait, &verdict);
        const struct chime_head *head = chime_head(l->node);
        *again = verdict != CHIME_GOOD;
        if (rc == FAR_OK && verdict == CHIME_GONE)
            rc = chime_settle(op, view, l->spot.parent, &l->wait);
        if (rc != FAR_OK || *again)
            return rc;
        rc = chime_below_high(op, view, head, &l->key.bound, &below);
        if (rc != FAR_OK)
            return rc;
        struct chime_child_ref next = {chime_next_at(head->next), head->high.k, head->high.lng, 0};
        if (below) {
            struct chime_name name = chime_head_name(at, head);
            struct chime_stem stem = chime_head_stem(head);
            rc = look_in(op, view, l, chime_all(&view->shape), &name, &stem, out, &found);
            *again = rc == FAR_OK && !found && l->unsure;
            rc = rc == FAR_OK && !found && !*again ? FAR_NOT_FOUND : rc;
        }
        int entered = moves == 0 && next.at != 0 && next.at != l->spot.name.next
                          ? chime_enter(op, view, &next, &l->wait)
                          : FAR_OK; /* the parent was just read, and does not know it */
        if (below || rc != FAR_OK)
            return rc;
        if (entered != FAR_OK)
            return entered;
        at = next.at;
    }
    return FAR_CONTENTION;
}

/* One attempt. *again: it says nothing. */
static int look(struct op *op, struct chime_view *view, struct look *l, struct value_out *out,
                bool *again)
{
    enum chime_fit fit = CHIME_FITS;
    bool found = false;
    int rc = chime_descend(op, view, &l->key.bound, 0, l->fresh, &l->wait, &l->spot);
    *again = rc == FAR_OK && l->spot.lost;
    if (*again)
        return FAR_OK;
    l->node = rc == FAR_OK ? op_buffer(op, BUF_INDEX, view->shape.bytes) : NULL;
    if (!l->node)
        return rc == FAR_OK ? FAR_NO_MEMORY : rc;
    if (!l->hinted) {
        l->hinted = true;
        l->hint = chime_hint(view, &l->key);
        if (l->hint.slot != 0)
            rc = look_hot(op, view, l, out, &found);
        view->hot_hits += found;
    }
    if (rc == FAR_OK && !found && l->fresh && (l->stale > 1 || l->torn > TORN_LOOKS))
        return look_around(op, view, l, out, again);
    if (rc == FAR_OK && !found)
        rc = look_near(op, view, l, out, &found, &fit);
    *again = rc == FAR_OK && !found && fit != CHIME_FITS;
    if (rc != FAR_OK || found || !*again)
        return rc == FAR_OK && !found ? FAR_NOT_FOUND : rc;
    l->torn += fit == CHIME_TORN;
    l->fresh |= fit == CHIME_MISFIT || l->torn > TORN_LOOKS;
    if (fit == CHIME_MISFIT) {
        rc = l->stale++ == 0 || l->spot.parent == 0 ? chime_forget(op, view, l->spot.parent)
                                                    : FAR_OK;
    }
    return rc;
}

int chime_get(struct op *op, struct index_view *base, struct slice key, struct value_out *out)
{
    struct chime_view *view = chime_view(base);
    struct look l = {.fresh = false};
    chime_key_set(view, key, &l.key);
    view->gets++;
    for (unsigned attempts = 0; index_attempt(&attempts);) {
        bool again = false;
        int rc = look(op, view, &l, out, &again);
        if (rc == FAR_OK && again)
            rc = chime_rest(op, view, &l.wait, &attempts);
        if (rc == FAR_NOT_FOUND)
            chime_hint_note(view, &l.key, &(struct chime_seen){.kind = CHIME_EMPTY}, &l.hint);
        if (rc != FAR_OK || !again)
            return rc;
    }
    return FAR_CONTENTION;
}
