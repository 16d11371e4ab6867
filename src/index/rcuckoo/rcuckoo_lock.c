/* Lock sets: taking all locks of an operation at once, and releasing them. */
#include "index/rcuckoo/rcuckoo.h"

/* Two rows may have the same word, or even the same bit: words are merged after that mapping. */
bool rcuckoo_locks_add(const struct rcuckoo_shape *s, struct rcuckoo_locks *locks, unsigned row)
{
    ASSERT(row < s->rows && locks->count <= RCUCKOO_LOCK_WORDS);
    unsigned word = rcuckoo_lock_word(s, row), i = 0;
    while (i < locks->count && locks->lock[i].word < word)
        i++;
    if (i == locks->count || locks->lock[i].word != word) {
        if (locks->count == RCUCKOO_LOCK_WORDS)
            return false;
        memmove(&locks->lock[i + 1], &locks->lock[i],
                (locks->count - i) * sizeof(struct rcuckoo_locked));
        locks->lock[i] = (struct rcuckoo_locked){word, 0};
        locks->count++;
    }
    locks->lock[i].mask |= rcuckoo_lock_bit(s, row);
    return true;
}

void rcuckoo_intend(struct op *op, const struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                    struct journal *line, const struct rcuckoo_locks *locks)
{
    struct rcuckoo_intent intent = {.anchor =
                                        rcuckoo_intent_anchor(sub->part.anchor, locks->count)};
    memcpy(intent.lock, locks->lock, sizeof intent.lock);
    index_intend(op, &view->base, line, 0, &intent, rcuckoo_intent_bytes(locks->count));
}

void rcuckoo_lock(struct op *op, const struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                  struct journal *line, struct rcuckoo_locks *locks)
{
    rcuckoo_intend(op, view, sub, line, locks);
    batch_fence(&op->batch); /* RCUCKOO-C5: named before they are taken */
    for (unsigned i = 0; i < locks->count; i++) {
        uint64_t mask = locks->lock[i].mask;
        locks->verb[i] =
            op_mcas(op, MARK_LOCK, sub->part.anchor, rcuckoo_word_at((unsigned)locks->lock[i].word),
                    0, mask | RCUCKOO_REPAIR | RCUCKOO_CLOSED, mask, mask);
    }
    batch_fence(&op->batch); /* RCUCKOO-C2: what is read is read under the locks */
}

bool rcuckoo_locked(const struct op *op, struct rcuckoo_locks *locks, bool *closed)
{
    unsigned held = 0, asked = locks->count;
    *closed = false;
    for (unsigned i = 0; i < asked; i++) {
        *closed |= (op_result(op, locks->verb[i]) & RCUCKOO_CLOSED) != 0;
        if (op_swapped(op, locks->verb[i]))
            locks->lock[held++] = locks->lock[i];
    }
    locks->count = held;
    return held == asked;
}

/* By FAA, which cannot miss: the bits are set, and only this client clears them. */
void rcuckoo_unlock(struct op *op, const struct rcuckoo_sub *sub, const struct rcuckoo_locks *locks)
{
    batch_fence(&op->batch); /* RCUCKOO-C6: behind `done` */
    for (unsigned i = 0; i < locks->count; i++)
        op_faa(op, MARK_LOCK, sub->part.anchor, rcuckoo_word_at((unsigned)locks->lock[i].word),
               -locks->lock[i].mask);
}
