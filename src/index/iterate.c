#include "index/iterate.h"

int index_iterate_add(struct op *op, const struct index_view *view, struct slot_format format,
                      struct index_blocks *blocks, struct entries_out *out, unsigned *next,
                      bool *full)
{
    ASSERT(!*full);
    int rc = index_blocks_read(op, blocks, false);
    for (unsigned i = 0; rc == FAR_OK && i < blocks->count && !*full; i++) {
        const struct index_block *b = &blocks->block[i];
        const struct block_head *h = b->image;
        if (!index_block_whole(b, format)) { /* ITERATE-1 */
            out->damaged++;
            continue;
        }
        rc = index_add_entry(view, out, (struct slice){block_key(h), h->klen}, index_block_value(h),
                             full);
        if (*full)
            *next = b->place;
    }
    return rc;
}
