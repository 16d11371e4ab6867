/*
 * Hints: the newest entry of a key, as this process saw it last (SEPHASH-H11).
 *
 *   hint    address 40 | class 6 | fp 8 | generation 10        and a place
 *
 * A hint has the pointer of an entry. fp2 and dep follow from the key and from the segment, so
 * their bits have the lowest ones of the anchor's generation. These say whether the place may be
 * used, and nothing else: an operation believes what it has read itself.
 */
#include "index/sephash/sephash.h"

#define GENERATION_AT SEPHASH_FP2_AT

static uint64_t generation_bits(uint64_t state)
{
    return sephash_generation(state) << GENERATION_AT;
}

struct index_hint sephash_hint(const struct sephash_view *view, const struct sephash_key *key)
{
    return index_hint_of(view->hints, SEPHASH_SLOT, key->hash, key->fp);
}

bool sephash_hint_recent(const struct index_hint *hint, uint64_t state)
{
    return (hint->slot ^ generation_bits(state)) >> GENERATION_AT == 0;
}

unsigned sephash_hint_place(const struct sephash_look *l, uint64_t word)
{
    for (unsigned i = 0; i < l->to - l->from; i++)
        if (l->range[i] == word && l->from + i - l->base < SEPHASH_ANYWHERE)
            return l->from + i - l->base;
    return SEPHASH_ANYWHERE;
}

void sephash_hint_note(struct sephash_view *view, const struct sephash_key *key, uint64_t state,
                       uint64_t word, unsigned place, const struct index_hint *hint)
{
    struct index_hint now = {.place = place};
    if (!view->hints)
        return;
    if (word != 0)
        now.slot = (word & ((1ull << GENERATION_AT) - 1)) | generation_bits(state);
    if (hint && now.slot == hint->slot && now.place == hint->place)
        return;
    now.wrong = hint && hint->slot != 0 && pointer_gaddr(hint->slot) != pointer_gaddr(now.slot);
    index_hint_note(view->hints, SEPHASH_SLOT, key->hash, key->fp, now);
}
