#include "index/hints.h"

#include <stdlib.h>

#define BITS_FIRST 10u /* 64 KiB */
#define BITS_GROWN 18u /* 16 MiB: to double more in one operation takes too long */
_Static_assert(sizeof(struct index_hint_set) == INDEX_LINE, "a set is a cache line");

void *index_lines(uint64_t count, void **memory)
{
    *memory = calloc(count + 1, INDEX_LINE);
    uintptr_t at = ((uintptr_t)*memory + INDEX_LINE - 1) & ~(uintptr_t)(INDEX_LINE - 1);
    return *memory ? (void *)at : NULL;
}

void index_hints_open(struct index_hints *hints, uint64_t bytes)
{
    *hints = (struct index_hints){.bits_max = 1};
    if (bytes == 0)
        return;
    while (bytes >> hints->bits_max >= 2 * INDEX_LINE)
        hints->bits_max++;
    bool grows = hints->bits_max > BITS_FIRST && hints->bits_max <= BITS_GROWN;
    hints->bits = grows ? BITS_FIRST : hints->bits_max;
    hints->set = index_lines(1ull << hints->bits_max, &hints->memory);
}

void index_hints_close(struct index_hints *hints)
{
    free(hints->memory);
    *hints = (struct index_hints){.set = NULL};
}

static uint64_t mixed(uint64_t hash)
{
    return hash * 0x9e3779b97f4a7c15ull;
}

static struct index_hint_set *set_of(const struct index_hints *hints, uint64_t hash)
{
    return &hints->set[mixed(hash) >> (64 - hints->bits)];
}

/* Bits of the hash that most other keys of the set do not have. */
static unsigned tag_of(uint64_t hash)
{
    return (unsigned)(mixed(hash) >> 24) & ~(INDEX_HINT_PLACES - 1u) & UINT8_MAX;
}

/* The way of the set whose slot has the fingerprint, and the tag, or INDEX_HINT_WAYS. */
static unsigned way_of(const struct index_hint_set *set, struct slot_format format, uint64_t hash,
                       uint64_t fingerprint)
{
    uint64_t mask = slot_fingerprint_mask(format), want = fingerprint << format.fingerprint_at;
    for (unsigned i = 0; i < INDEX_HINT_WAYS; i++)
        if (set->slot[i] != 0 && (set->slot[i] & mask) == want &&
            (set->place[i] ^ tag_of(hash)) < INDEX_HINT_PLACES)
            return i;
    return INDEX_HINT_WAYS;
}

/* Makes two of each set, with the same hints. In one of the two a hint is never looked for, and
 * gives way some time. */
static void grow(struct index_hints *hints)
{
    for (size_t i = (size_t)1 << hints->bits; i-- > 0;)
        hints->set[2 * i + 1] = hints->set[2 * i] = hints->set[i];
    hints->bits++;
    hints->displaced = 0;
}

static unsigned free_way(struct index_hints *hints, struct index_hint_set *set)
{
    for (unsigned i = 0; i < INDEX_HINT_WAYS; i++)
        if (set->slot[i] == 0)
            return i;
    hints->displaced++;
    return set->next++ % INDEX_HINT_WAYS;
}

void index_hint_note(struct index_hints *hints, struct slot_format format, uint64_t hash,
                     uint64_t fingerprint, struct index_hint hint)
{
    if (!hints->set)
        return;
    /* After it has grown, half of the hints are of no use, and giving way means nothing. */
    if (hints->displaced >> hints->bits >= INDEX_HINT_WAYS / 2 + 1 && hints->bits < hints->bits_max)
        grow(hints);
    struct index_hint_set *set = set_of(hints, hash);
    unsigned way = way_of(set, format, hash, fingerprint);
    if (block_class_long(pointer_class(hint.slot)))
        hint.slot = 0;
    if (way == INDEX_HINT_WAYS && hint.slot != 0)
        way = free_way(hints, set);
    if (way == INDEX_HINT_WAYS)
        return;
    ASSERT(hint.place < INDEX_HINT_PLACES);
    set->slot[way] = hint.slot;
    set->place[way] = (uint8_t)(tag_of(hash) | hint.place);
}

struct index_hint index_hint_of(const struct index_hints *hints, struct slot_format format,
                                uint64_t hash, uint64_t fingerprint)
{
    if (!hints->set)
        return (struct index_hint){.slot = 0};
    const struct index_hint_set *set = set_of(hints, hash);
    unsigned way = way_of(set, format, hash, fingerprint);
    if (way == INDEX_HINT_WAYS)
        return (struct index_hint){.slot = 0};
    return (struct index_hint){.slot = set->slot[way],
                               .place = set->place[way] % INDEX_HINT_PLACES};
}
