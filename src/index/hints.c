#include "index/hints.h"

#include <stdlib.h>

#define LINE 64u
_Static_assert(sizeof(struct index_hint_set) == LINE, "a set is a cache line");

void index_hints_open(struct index_hints *hints, uint64_t bytes)
{
    *hints = (struct index_hints){.bits = 1};
    if (bytes == 0)
        return;
    while (bytes >> hints->bits >= 2 * LINE)
        hints->bits++;
    hints->memory = calloc((1ull << hints->bits) + 1, LINE);
    if (hints->memory)
        hints->set = (void *)(((uintptr_t)hints->memory + LINE - 1) & ~(uintptr_t)(LINE - 1));
}

void index_hints_close(struct index_hints *hints)
{
    free(hints->memory);
    *hints = (struct index_hints){.set = NULL};
}

static struct index_hint_set *set_of(const struct index_hints *hints, uint64_t hash)
{
    return &hints->set[hash * 0x9e3779b97f4a7c15ull >> (64 - hints->bits)];
}

/* The way of the set whose slot has the fingerprint, or INDEX_HINT_WAYS. */
static unsigned way_of(const struct index_hint_set *set, struct slot_format format,
                       uint64_t fingerprint)
{
    uint64_t mask = slot_fingerprint_mask(format), want = fingerprint << format.fingerprint_at;
    for (unsigned i = 0; i < INDEX_HINT_WAYS; i++)
        if (set->slot[i] != 0 && (set->slot[i] & mask) == want)
            return i;
    return INDEX_HINT_WAYS;
}

static unsigned free_way(struct index_hints *hints, const struct index_hint_set *set)
{
    for (unsigned i = 0; i < INDEX_HINT_WAYS; i++)
        if (set->slot[i] == 0)
            return i;
    return hints->next++ % INDEX_HINT_WAYS;
}

void index_hint_note(struct index_hints *hints, struct slot_format format, uint64_t hash,
                     uint64_t fingerprint, uint64_t slot)
{
    if (!hints->set)
        return;
    struct index_hint_set *set = set_of(hints, hash);
    unsigned way = way_of(set, format, fingerprint);
    if (block_class_long(pointer_class(slot)))
        slot = 0;
    if (way == INDEX_HINT_WAYS && slot != 0)
        way = free_way(hints, set);
    if (way < INDEX_HINT_WAYS)
        set->slot[way] = slot;
}

static uint64_t hint_of(const struct index_hints *hints, struct slot_format format, uint64_t hash,
                        uint64_t fingerprint)
{
    if (!hints->set)
        return 0;
    const struct index_hint_set *set = set_of(hints, hash);
    unsigned way = way_of(set, format, fingerprint);
    return way < INDEX_HINT_WAYS ? set->slot[way] : 0;
}

static bool all_at(const struct batch *b, unsigned node)
{
    for (unsigned i = 0; i < b->count; i++)
        if (b->verb[i].node != node)
            return false;
    return true;
}

void index_hint_read(struct op *op, const struct index_hints *hints, struct slot_format format,
                     uint64_t hash, uint64_t fingerprint, struct index_block *block)
{
    uint64_t slot = hint_of(hints, format, hash, fingerprint);
    block->slot = 0;
    if (slot == 0 || !all_at(&op->batch, gaddr_node(pointer_gaddr(slot))))
        return;
    uint32_t bytes = size_class_bytes(pointer_class(slot));
    void *image = op_buffer(op, BUF_BLOCK_IN, bytes);
    if (!image)
        return;
    *block = (struct index_block){.slot = slot, .bytes = bytes, .image = image};
    batch_fence(&op->batch); /* HINT-H1 */
    batch_read(&op->batch, pointer_gaddr(slot), 0, image, bytes);
    batch_may_be_freed(&op->batch);
}

bool index_hint_holds(const struct index_probe *probe, struct index_block *block,
                      const uint64_t *words, uint64_t places, struct index_found *found,
                      uint64_t *judged)
{
    unsigned i = 0;
    *found = (struct index_found){.place = -1};
    *judged = 0;
    while (places >> i != 0 && (words[i] != block->slot || (places >> i & 1) == 0))
        i++;
    if (places >> i == 0)
        return false;
    block->place = i;
    bool holds = index_probe_judge(probe, block, found);
    if (found->stale == 0)
        *judged = 1ull << i;
    return holds;
}
