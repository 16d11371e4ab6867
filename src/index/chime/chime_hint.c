/*
 * Hints of where keys are (index/hints.h): the place is the number of the group. A get reads this
 * one group, and behind it the block that the hint names (HINT-H1). A change reads the block
 * together with the neighbourhood, under the lock.
 *
 * What is read is judged as without a hint: the group is whole, of the leaf's name, and has an
 * entry of the key's K and fingerprint that names the block (CHIME-C4).
 */
#include "index/chime/chime.h"

/* The hint of an inline entry names no block. */
#define INLINE_SLOT (1ull << POINTER_GENERATION_AT)
_Static_assert((INLINE_SLOT & GADDR_MASK) == 0, "it has no address");
_Static_assert(CHIME_GROUPS_MAX <= INDEX_HINT_PLACES, "a hint's place can be any group");

struct index_hint chime_hint(const struct chime_view *view, const struct chime_key *key)
{
    struct index_hint hint = index_hint_of(view->hints, CHIME_SLOT, key->hash, key->fingerprint);
    if (hint.place >= view->shape.groups)
        hint.slot = 0;
    return hint;
}

void chime_hint_note(const struct chime_view *view, const struct chime_key *key,
                     const struct chime_seen *seen, const struct index_hint *known)
{
    struct index_hint hint = {.slot = 0};
    /* It would save no round trip, and a move makes it wrong: many follow while a table is
     * loaded. */
    if (seen->kind == CHIME_INLINE && seen->changed && known->slot == 0)
        return;
    if (seen->kind == CHIME_BLOCK)
        hint.slot = seen->v;
    else if (seen->kind == CHIME_INLINE)
        hint.slot = INLINE_SLOT | slot_fingerprint_word(CHIME_SLOT, key->fingerprint);
    if (hint.slot != 0) {
        hint.place = seen->place / CHIME_GROUP;
        hint.wrong = !seen->changed && known->slot != 0;
    }
    if (hint.slot != known->slot || (hint.slot != 0 && hint.place != known->place))
        index_hint_note(view->hints, CHIME_SLOT, key->hash, key->fingerprint, hint);
}

void chime_peek(struct op *op, const struct index_hint *hint, gaddr leaf, struct index_block *block)
{
    gaddr at = pointer_gaddr(hint->slot);
    uint32_t bytes = size_class_bytes(pointer_class(hint->slot));
    *block = (struct index_block){.slot = 0};
    if (at == 0 || gaddr_node(at) != gaddr_node(leaf) || !index_inside(op->pool, at, bytes))
        return;
    void *image = op_buffer(op, BUF_BLOCK_IN, bytes);
    if (!image)
        return;
    *block = (struct index_block){.slot = hint->slot, .bytes = bytes, .image = image};
    batch_fence(&op->batch); /* HINT-H1 */
    batch_read(&op->batch, at, 0, image, bytes);
    batch_may_be_freed(&op->batch);
}

bool chime_peeked(const struct index_probe *probe, struct index_block *block, const uint64_t *words,
                  uint64_t candidates, struct index_found *found)
{
    *found = (struct index_found){.place = -1};
    for (; block->slot != 0 && candidates; candidates &= candidates - 1) {
        block->place = (unsigned)__builtin_ctzll(candidates);
        if (words[block->place] == block->slot)
            return index_probe_judge(probe, block, found);
    }
    return false;
}
