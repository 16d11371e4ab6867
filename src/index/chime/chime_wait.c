/* Waiting for the holders of locks, and whole nodes: reading one, and locking one. */
#include "index/chime/chime.h"

#define DAMAGE_LOOKS 12u /* looks that find the same image, with a free lock: it is damaged */

/* ---- waiting --------------------------------------------------------------------------------- */

int chime_wait(struct op *op, struct chime_view *view, gaddr at, uint64_t word,
               struct chime_wait *wait, enum chime_verdict *verdict)
{
    enum index_lock_state state = INDEX_LOCK_HELD;
    *verdict = word & CHIME_DEAD ? CHIME_GONE : CHIME_GOOD;
    wait->paused = false;
    if (word == 0 || *verdict == CHIME_GONE)
        return FAR_OK;
    int rc = index_lock_wait(op, &wait->lock, word, &state);
    wait->paused = rc == FAR_OK && state == INDEX_LOCK_HELD;
    if (rc != FAR_OK || state == INDEX_LOCK_HELD)
        return rc;
    if (state == INDEX_LOCK_ORPHANED)
        rc = chime_recover(op, view, at, word, wait);
    else
        wait->rests = true;
    if (wait->rests)
        *verdict = CHIME_AGAIN;
    return rc;
}

int chime_rest(struct op *op, struct chime_view *view, struct chime_wait *wait, unsigned *attempts)
{
    ASSERT(op->batch.count == 0);
    if (!wait->rests)
        return FAR_OK;
    wait->rests = false;
    *attempts = 0; /* index_lock_rest() has a bound of its own */
    return index_lock_rest(op, &view->base, &wait->lock);
}

/* ---- reading a whole node -------------------------------------------------------------------- */

/* What an image says of its node. CHIME_AGAIN: something is being written, or damaged. */
static enum chime_verdict judge_node(const struct chime_view *view, gaddr at, unsigned level,
                                     uint64_t *node)
{
    const struct chime_head *head = chime_head(node);
    if (head->sum != chime_head_sum(view, at, head) || head->level != level)
        return CHIME_OTHER;
    if (!chime_state_good(head->state, at, view->seed))
        return CHIME_AGAIN;
    if (head->lock & CHIME_DEAD)
        return CHIME_GONE;
    struct chime_name name = chime_dead_name(at, head);
    if (chime_stage(head->state) == CHIME_MERGED && /* only its lock does not say so yet */
        chime_judge(view, node, chime_all(&view->shape), &name) == CHIME_FITS)
        return CHIME_GONE;
    name = chime_head_name(at, head);
    return chime_judge(view, node, chime_all(&view->shape), &name) == CHIME_FITS &&
                   chime_era(*chime_group(node, 0)) == chime_next_era(head->next)
               ? CHIME_GOOD
               : CHIME_AGAIN;
}

/* The looks that found nothing good. */
struct looks {
    uint64_t last; /* a hash of the image */
    unsigned same; /* how often it was the same, with a free lock */
    uint64_t pause_ns;
};

int chime_read_node(struct op *op, struct chime_view *view, gaddr at, unsigned level,
                    bool may_be_freed, uint64_t *node, struct chime_wait *wait,
                    enum chime_verdict *verdict)
{
    ASSERT(op->batch.count == 0 && level < CHIME_LEVELS);
    struct looks looks = {0};
    for (unsigned attempts = 0; index_attempt(&attempts);) {
        unsigned n = op_read_head(op, at, offsetof(struct chime_head, lock));
        if (may_be_freed)
            batch_may_be_freed(&op->batch);
        batch_fence(&op->batch);
        batch_read(&op->batch, at, 0, node, view->shape.bytes);
        if (may_be_freed)
            batch_may_be_freed(&op->batch);
        int rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            return rc == FAR_BOUNDS ? chime_damaged(view, at) : rc;
        uint64_t lock = op_result(op, n);
        *verdict = judge_node(view, at, level, node);
        if (may_be_freed && *verdict == CHIME_AGAIN &&
            chime_stage(chime_head(node)->state) == CHIME_BORN)
            *verdict = CHIME_GONE; /* perhaps its client died before anything named it */
        if (*verdict == CHIME_GOOD || *verdict == CHIME_GONE ||
            (*verdict == CHIME_OTHER && may_be_freed))
            return FAR_OK;
        if (lock != 0 && *verdict != CHIME_OTHER) {
            rc = chime_wait(op, view, at, lock, wait, verdict);
            if (rc != FAR_OK || *verdict == CHIME_AGAIN)
                return rc;
            looks.same = 0;
            continue;
        }
        uint64_t hash = hash_sum(node, view->shape.bytes, 0);
        looks.same = hash == looks.last ? looks.same + 1 : 0;
        looks.last = hash;
        if (looks.same == DAMAGE_LOOKS)
            return chime_damaged(view, at);
        if (looks.same > 0)
            op_pause(op, &looks.pause_ns);
    }
    return FAR_CONTENTION;
}

int chime_read_past(struct op *op, struct chime_view *view, gaddr at, unsigned level,
                    bool may_be_freed, uint64_t *node, struct chime_wait *wait,
                    enum chime_verdict *verdict, unsigned *damaged)
{
    ASSERT(op->batch.count == 0 && level < CHIME_LEVELS);
    int rc = chime_read_node(op, view, at, level, may_be_freed, node, wait, verdict);
    *damaged = rc == FAR_CORRUPT && chime_head(node)->lock == 0
                   ? chime_damaged_groups(view, at, level, node)
                   : 0;
    if (*damaged == 0)
        return rc;
    *verdict = CHIME_GOOD;
    return FAR_OK;
}

/* ---- a node that is held --------------------------------------------------------------------- */

int chime_judge_held(struct op *op, struct chime_view *view, struct chime_held *h, unsigned level)
{
    ASSERT(h->at != 0);
    const struct chime_head *head = chime_head(h->node);
    h->name = chime_head_name(h->at, head);
    h->stem = chime_head_stem(head);
    h->have = chime_all(&view->shape);
    h->whole = true;
    if (head->sum == chime_head_sum(view, h->at, head) && head->level == level &&
        head->state == 0 &&
        (chime_judge(view, h->node, h->have, &h->name) == CHIME_FITS || chime_take_harm(view, h)))
        return FAR_OK;
    int rc = chime_release(op, h->at);
    gaddr at = h->at;
    h->at = 0;
    return rc == FAR_OK ? chime_damaged(view, at) : rc;
}

int chime_hold(struct op *op, struct chime_view *view, gaddr at, unsigned level, gaddr other,
               struct chime_wait *wait, struct chime_held *h, enum chime_verdict *verdict)
{
    ASSERT(op->batch.count == 0 && at != 0);
    bool held = false;
    *h = (struct chime_held){
        .node = op_buffer(op, BUF_INDEX, view->shape.bytes + sizeof(struct chime_head)),
        .stamp = index_cache_stamp(view->cache, op)};
    *verdict = CHIME_GOOD;
    if (!h->node)
        return FAR_NO_MEMORY;
    unsigned n = chime_lock(op, at);
    batch_read_head(&op->batch, at, 0, h->node, view->shape.bytes);
    if (other != 0)
        batch_read(&op->batch, other, 0, chime_other_head(&view->shape, h),
                   sizeof(struct chime_head));
    int rc = chime_locked(op, at, n, batch_flush(&op->batch), &held);
    if (rc != FAR_OK)
        return rc;
    if (!held)
        return chime_wait(op, view, at, op_result(op, n), wait, verdict);
    h->at = at;
    return chime_judge_held(op, view, h, level);
}

int chime_read_rest(struct op *op, struct chime_view *view, struct chime_held *h)
{
    ASSERT(h->at != 0);
    if (h->whole)
        return FAR_OK;
    batch_read_head(&op->batch, h->at, 0, h->node, view->shape.bytes);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        return chime_judge_held(op, view, h, 0);
    (void)chime_release(op, h->at);
    h->at = 0;
    return rc;
}
