#include "index/blocks.h"

static inline int read_blocks(struct op *op, struct index_blocks *b, bool may_be_freed)
{
    char *image = op_buffer(op, BUF_BLOCK_IN, b->bytes);
    if (!image && b->bytes > 0) {
        (void)batch_flush(&op->batch); /* what the caller put there leads nowhere now */
        return FAR_NO_MEMORY;
    }
    for (unsigned i = 0; i < b->count; i++) {
        struct index_block *block = &b->block[i];
        block->image = image;
        if (block->bytes == 0)
            continue;
        batch_read(&op->batch, pointer_gaddr(block->slot), 0, image, block->bytes);
        if (may_be_freed)
            batch_may_be_freed(&op->batch);
        image += block->bytes;
    }
    return batch_flush(&op->batch);
}

int index_blocks_read(struct op *op, struct index_blocks *b, bool may_be_freed)
{
    return read_blocks(op, b, may_be_freed);
}

bool index_block_whole(const struct index_block *b, struct slot_format format)
{
    const struct block_head *h = b->image;
    uint32_t bytes = size_class_bytes(pointer_class(b->slot));
    unsigned generation = slot_generation(format, b->slot);
    if (b->bytes == bytes)
        return block_valid(b->image, bytes, generation);
    return b->bytes > 0 && h->klen <= FAR_KEY_MAX &&
           block_judge_head(b->image, bytes, generation, block_key(b->image), h->klen) ==
               BLOCK_MATCH;
}

/* How much of a slot's block is read: all of it if it is short, or if its value is wanted and may
 * fit; otherwise the beginning, up to the end of a key of this length (BLOCK-B1). */
static uint32_t probe_bytes(const struct index_probe *p, uint64_t slot)
{
    unsigned size_class = pointer_class(slot);
    uint32_t bytes = size_class_bytes(size_class);
    if (!block_class_long(size_class))
        return bytes;
    size_t head = block_key_at(true) + p->key.len;
    /* A block of this class has more bytes than one of the class below. */
    if (p->out && !p->out->skip &&
        (p->out->cap >= bytes || size_class_bytes(size_class - 1) < head + p->out->cap))
        return bytes;
    return (uint32_t)((head + 63) & ~(size_t)63);
}

static enum block_verdict probe_judge(const struct index_probe *p, const struct index_block *b)
{
    uint32_t bytes = size_class_bytes(pointer_class(b->slot));
    unsigned generation = slot_generation(p->format, b->slot);
    if (b->bytes == 0) /* as damaged as if it led to nothing whole */
        return BLOCK_STALE;
    if (b->bytes == bytes)
        return block_judge(b->image, bytes, generation, p->key.data, p->key.len);
    enum block_verdict verdict =
        block_judge_head(b->image, bytes, generation, p->key.data, p->key.len);
    /* A value that is wanted, fits and was not read: the slot's class is not that of the block. */
    if (verdict == BLOCK_MATCH && p->out && !p->out->skip &&
        ((const struct block_head *)b->image)->vlen <= p->out->cap)
        return BLOCK_STALE;
    return verdict;
}

bool index_probe_judge(const struct index_probe *p, const struct index_block *b,
                       struct index_found *found)
{
    switch (probe_judge(p, b)) {
    case BLOCK_MATCH:
        found->place = (int)b->place;
        found->slot = b->slot;
        found->block = b->image;
        return true;
    case BLOCK_STALE:
        found->stale = b->slot;
        break;
    case BLOCK_OTHER:
        break;
    }
    return false;
}

/* Is one of these the key's? */
static bool probe_judge_all(const struct index_probe *p, const struct index_blocks *blocks,
                            struct index_found *found)
{
    for (unsigned i = 0; i < blocks->count; i++)
        if (index_probe_judge(p, &blocks->block[i], found))
            return true;
    return false;
}

int index_probe_blocks(struct op *op, const struct index_probe *p, const uint64_t *words,
                       uint64_t candidates, struct index_found *found)
{
    struct index_blocks blocks;
    do {
        index_blocks_start(&blocks, op, INDEX_BLOCKS_BYTES);
        for (; candidates; candidates &= candidates - 1) {
            unsigned place = (unsigned)__builtin_ctzll(candidates);
            uint64_t slot = words[place];
            uint32_t bytes = pointer_gaddr(slot) != 0 ? probe_bytes(p, slot) : 0;
            if (!index_blocks_add(&blocks, slot, bytes, place))
                break;
        }
        int rc = read_blocks(op, &blocks, p->may_be_freed);
        if (rc != FAR_OK)
            return rc == FAR_BOUNDS ? err_fail(FAR_CORRUPT, "a slot points outside the pool") : rc;
    } while (!probe_judge_all(p, &blocks, found) && candidates);
    return FAR_OK;
}

int index_probe_all(struct op *op, const struct index_probe *p, const uint64_t *words,
                    unsigned count, struct index_found *found)
{
    uint64_t stale = 0;
    for (unsigned from = 0;;) {
        unsigned some = count - from < 64 ? count - from : 64;
        uint64_t all = some == 64 ? UINT64_MAX : (1ull << some) - 1;
        int rc = index_probe(op, p, words + from, all, found);
        if (rc != FAR_OK)
            return rc;
        stale = stale ? stale : found->stale;
        found->stale = stale;
        if (found->place >= 0)
            found->place += (int)from;
        from += some;
        if (found->place >= 0 || from == count)
            return FAR_OK;
    }
}

int index_found_stale(const struct index_found *found, uint64_t *stale)
{
    if (found->stale == *stale)
        return err_fail(FAR_CORRUPT, "a key-value block fails its checksum");
    *stale = found->stale;
    return FAR_OK;
}
