/* Images of nodes with damaged groups: telling them from the others, and keeping them as they are.
 * Nothing here waits. */
#include "index/chime/chime.h"

unsigned chime_damaged_groups(const struct chime_view *view, gaddr at, unsigned level,
                              uint64_t *node)
{
    const struct chime_head *head = chime_head(node);
    struct chime_name name = chime_head_name(at, head);
    struct chime_seal seal = chime_name_seal(view, &name);
    unsigned damaged = 0, groups = view->shape.groups;
    if (head->sum != chime_head_sum(view, at, head) || head->level != level || head->state != 0)
        return 0;
    for (unsigned g = 0; g < groups; g++) {
        const uint64_t *words = chime_group(node, g);
        if (!chime_group_whole(seal, g, words))
            damaged |= 1u << g;
        else if (chime_era(words[0]) != chime_next_era(head->next))
            return 0;
    }
    return damaged == (1u << groups) - 1 ? 0 : damaged;
}

void chime_empty_groups(uint64_t *node, unsigned groups)
{
    for (; groups; groups &= groups - 1)
        *chime_group(node, (unsigned)__builtin_ctz(groups)) &= ~CHIME_KINDS;
}

/* ---- one flipped bit ------------------------------------------------------------------------- */

struct place {
    struct chime_seal seal;
    unsigned group;
};

static bool whole_there(const uint64_t *words, const void *arg)
{
    const struct place *p = arg;
    return chime_group_whole(p->seal, p->group, words);
}

bool chime_undo_flip(struct chime_seal seal, unsigned group, uint64_t *words)
{
    ASSERT(group < CHIME_GROUPS_MAX);
    struct place place = {seal, group};
    unsigned bit = index_flipped(words, CHIME_GROUP_WORDS, whole_there, &place);
    if (bit != INDEX_NO_BIT)
        index_flip(words, bit);
    return bit != INDEX_NO_BIT;
}

/* ---- in a leaf that is held ------------------------------------------------------------------ */

void chime_harm_beyond(struct chime_harm *harm, uint64_t *node, unsigned g)
{
    ASSERT(g < CHIME_GROUPS_MAX);
    uint64_t *words = chime_group(node, g);
    harm->beyond |= 1u << g;
    for (unsigned i = 0; i < CHIME_GROUP; i++)
        if (!chime_is_free(chime_head(node)->vacancy, CHIME_GROUP * g + i))
            harm->kinds[g] |= (uint8_t)(chime_kind(words[0], i) << 2 * i);
    words[0] &= ~CHIME_KINDS;
}

bool chime_take_harm(const struct chime_view *view, struct chime_held *h)
{
    struct chime_seal seal = chime_name_seal(view, &h->name);
    struct chime_harm *harm = &h->harm;
    *harm = (struct chime_harm){
        .groups = h->need.count > 0 ? chime_damaged_groups(view, h->at, 0, h->node) : 0};
    for (unsigned i = 0; i < h->need.count; i++)
        if (harm->groups >> (h->need.first + i) % view->shape.groups & 1)
            return false;
    for (unsigned left = harm->groups; left; left &= left - 1) {
        unsigned g = (unsigned)__builtin_ctz(left);
        if (!chime_undo_flip(seal, g, chime_group(h->node, g)))
            chime_harm_beyond(harm, h->node, g);
    }
    return harm->groups != 0;
}

/* A group that one flipped bit explained gets a checksum with one wrong bit: a repair finds it, as
 * it would have before. Any other gets one that no single bit makes right. */
void chime_harm_set(const struct chime_harm *harm, struct chime_seal seal, uint64_t *node)
{
    for (unsigned left = harm->groups; left; left &= left - 1) {
        unsigned g = (unsigned)__builtin_ctz(left);
        uint64_t *words = chime_group(node, g);
        bool beyond = harm->beyond >> g & 1;
        if (beyond) {
            words[0] |= harm->kinds[g];
            chime_group_seal(seal, g, words);
        }
        words[0] ^= beyond ? CHIME_SUM : CHIME_SUM_BIT;
    }
}

void chime_harm_undo(const struct chime_harm *harm, struct chime_seal seal, uint64_t *node)
{
    chime_empty_groups(node, harm->beyond);
    for (unsigned left = harm->groups; left; left &= left - 1) {
        unsigned g = (unsigned)__builtin_ctz(left);
        chime_group_seal(seal, g, chime_group(node, g));
    }
}

uint64_t chime_harm_vacancy(const struct chime_harm *harm, const struct chime_shape *s,
                            uint64_t *node)
{
    uint64_t vacancy = chime_vacancy(s, node);
    for (unsigned left = harm->beyond; left; left &= left - 1) {
        unsigned g = (unsigned)__builtin_ctz(left);
        for (unsigned i = 0; i < CHIME_GROUP; i++)
            if (chime_kind(harm->kinds[g], i) != CHIME_EMPTY)
                vacancy = chime_taken(vacancy, CHIME_GROUP * g + i);
    }
    return vacancy;
}
