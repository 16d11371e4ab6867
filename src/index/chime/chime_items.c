/* Entries of leaves that were read. Only chime_items_read() waits. */
#include "index/chime/chime_items.h"

static bool by_k(const struct chime_item *a, const struct chime_item *b)
{
    return a->k < b->k;
}

bool chime_items_by_key(const struct chime_item *a, const struct chime_item *b)
{
    if (a->k != b->k)
        return a->k < b->k;
    if (a->damaged || b->damaged)
        return a->damaged && !b->damaged;
    return index_key_compare(chime_item_key(a), chime_item_key(b)) < 0;
}

/* A shell sort: it needs no memory, and there are at most CHIME_SPAN_MAX items. */
void chime_items_sort(struct chime_item *items, unsigned count, chime_item_before *before)
{
    static const unsigned gaps[] = {23, 10, 4, 1};
    for (unsigned g = 0; g < sizeof gaps / sizeof *gaps; g++) {
        unsigned gap = gaps[g];
        for (unsigned i = gap; i < count; i++) {
            struct chime_item item = items[i];
            unsigned to = i;
            for (; to >= gap && before(&item, &items[to - gap]); to -= gap)
                items[to] = items[to - gap];
            items[to] = item;
        }
    }
}

unsigned chime_items_list(const struct chime_shape *s, uint64_t *node, unsigned leaf,
                          const struct chime_stem *stem, uint64_t least, uint64_t most,
                          struct chime_item *items)
{
    unsigned count = 0;
    for (unsigned p = 0; p < s->span; p++) {
        const uint64_t *entry = chime_entry(node, p);
        unsigned kind = chime_kind_at(node, p);
        if (kind == CHIME_EMPTY || entry[0] < least || entry[0] > most)
            continue;
        struct chime_item *item = &items[count++];
        *item = (struct chime_item){.k = entry[0],
                                    .v = entry[1],
                                    .stem = stem,
                                    .leaf = (uint8_t)leaf,
                                    .block = kind != CHIME_INLINE};
        if (!item->block)
            item->bytes = __builtin_bswap64(entry[0]);
    }
    chime_items_sort(items, count, by_k);
    return count;
}

struct slice chime_item_key(const struct chime_item *item)
{
    if (!item->block)
        return (struct slice){&item->bytes, 8};
    if (!item->image)
        return (struct slice){&item->k, 8};
    return (struct slice){block_key(item->image), ((const struct block_head *)item->image)->klen};
}

struct slice chime_item_value(const struct chime_item *item)
{
    return item->block ? index_block_value(item->image) : (struct slice){&item->v, 8};
}

/* Is the block whole, and is it that of the entry? */
static bool fits(const struct chime_view *view, const struct chime_item *item,
                 const struct index_block *b)
{
    const struct block_head *h = b->image;
    return index_block_whole(b, CHIME_SLOT) && h->klen <= FAR_KEY_MAX &&
           chime_k(view, item->stem, (struct slice){block_key(h), h->klen}) == item->k;
}

int chime_items_read(struct op *op, const struct chime_view *view, struct chime_item *items,
                     struct index_blocks *blocks)
{
    int rc = blocks->count > 0 ? index_blocks_read(op, blocks, false) : FAR_OK;
    for (unsigned i = 0; i < blocks->count && rc == FAR_OK; i++) {
        const struct index_block *b = &blocks->block[i];
        struct chime_item *item = &items[b->place];
        item->damaged = !fits(view, item, b);
        bool within = b->bytes > 0 && block_key_end(b->image) <= b->bytes;
        item->image = within ? b->image : NULL;
    }
    return rc;
}
