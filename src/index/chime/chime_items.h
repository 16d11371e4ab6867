/* Entries of leaves that were read, for scans and iterations: listing, ordering, and reading
 * their blocks. */
#ifndef CHIME_CHIME_ITEMS_H
#define CHIME_CHIME_ITEMS_H

#include "index/blocks.h"
#include "index/chime/chime.h"

struct chime_item {
    uint64_t k, v;
    const struct chime_stem *stem; /* of its leaf */
    union {
        uint64_t bytes;    /* inline: the key */
        const void *image; /* else the block, or its beginning, once it was read. In BUF_BLOCK_IN.
                              NULL: it was not read, or cannot even say where its key ends */
    };
    uint16_t t;   /* iterate: its turn */
    uint8_t leaf; /* the caller's number of its leaf */
    bool block;
    bool ordered; /* it is known to be in its place among items with the same K */
    bool damaged; /* its block is: only K is known */
};

/* Lists the entries of a leaf whose K is in this interval, by K. There is room for shape.span
 * items. Returns how many there are. The stem is used as long as they are. */
unsigned chime_items_list(const struct chime_shape *s, uint64_t *node, unsigned leaf,
                          const struct chime_stem *stem, uint64_t least, uint64_t most,
                          struct chime_item *items);

/* Does a come before b? For keys, the blocks were read; damaged ones come first. */
typedef bool chime_item_before(const struct chime_item *a, const struct chime_item *b);
bool chime_items_by_key(const struct chime_item *a, const struct chime_item *b);
/* Sorts a few items in place. */
void chime_items_sort(struct chime_item *items, unsigned count, chime_item_before *before);

/* Key and value. The item is inline, or its block was read. They are good until the item moves.
 * What is damaged has no value, and perhaps another key. */
struct slice chime_item_key(const struct chime_item *item);
struct slice chime_item_value(const struct chime_item *item);

/* What is read of an item's block. */
static inline uint32_t chime_item_read_bytes(const struct op *op, const struct chime_item *item,
                                             bool key_only)
{
    return index_block_inside(op, item->v,
                              key_only ? index_block_key_bytes(item->v)
                                       : size_class_bytes(pointer_class(item->v)));
}
/* Reads the blocks; the place of each is the number of its item. Says which items are damaged. The
 * leaf was read by this operation, and was alive, so its entries were in use (ITERATE-1). */
int chime_items_read(struct op *op, const struct chime_view *view, struct chime_item *items,
                     struct index_blocks *blocks);

#endif
