/*
 * Key-value blocks: written whole before anything points to them, never changed after.
 *
 * A client may follow a pointer too late, when the block has been given back and its memory holds
 * something else, or is being overwritten. The checksum recognizes a torn or foreign image. The
 * generation (as many bits of it as the pointer has) tells a later block of the same key from the
 * one meant. pointer.h says what readers may rely on.
 *
 *   BLOCK-B1  A long block's key can be judged without its value: `checksum` covers the lengths,
 *       the generation and the sums of key and value. If the beginning is whole, then klen is true.
 *       If klen is that of the key asked for, then the key has been read, and key_sum tells a
 *       damaged key from another one.
 *   BLOCK-B2  Whether a block is long follows from its length, and so from its size class: a reader
 *       knows from the pointer how to read it. An image that says otherwise is no block of that
 *       pointer.
 */
#include "pool/pool_internal.h"

#include <string.h>

#define CHECKSUM_SEED 0x66617273696465ull

static struct block_long *long_part(const struct block_head *h)
{
    return (struct block_long *)(uintptr_t)(h + 1);
}

/* The right `checksum`. A long block's image must have its sums already. */
static uint64_t head_sum_of(const struct block_head *h)
{
    size_t bytes = h->flags & BLOCK_LONG ? block_key_at(true) : block_key_end(h) + h->vlen;
    return hash_sum(&h->vlen, bytes - offsetof(struct block_head, vlen), CHECKSUM_SEED);
}

static uint64_t key_sum_of(const struct block_head *h)
{
    return hash_sum(block_key(h), h->klen, CHECKSUM_SEED);
}

static uint64_t value_sum_of(const struct block_head *h)
{
    return hash_sum(block_value(h), h->vlen, CHECKSUM_SEED);
}

static unsigned length_flag(size_t bytes)
{
    return bytes > BLOCK_SHORT_MAX ? BLOCK_LONG : 0;
}

/* PTR-5: at one address, blocks of different epochs differ. So do most blocks at different
 * addresses, so that a damaged pointer is recognized. */
static uint8_t generation_of(const struct op *op, gaddr at)
{
    uint64_t mixed = at * 0x9e3779b97f4a7c15ull >> 56;
    return (op->epoch + mixed) & op->pool->knobs.generation_mask;
}

int block_prepare(struct op *op, unsigned node, const void *key, size_t klen, const void *value,
                  size_t vlen, unsigned written_by, struct block_ref *block)
{
    size_t bytes = block_bytes(klen, vlen), padded = (bytes + 63) & ~(size_t)63;
    unsigned size_class = size_class_for(bytes);
    gaddr at = 0;

    ASSERT(size_class < CLASS_COUNT);
    char *image = op_buffer(op, BUF_BLOCK_OUT, padded);
    if (!image)
        return FAR_NO_MEMORY;
    int rc = pool_alloc_block(op, node, size_class, &at);
    if (rc != FAR_OK)
        return rc;

    uint8_t generation = generation_of(op, at);
    struct block_head *h = (struct block_head *)image;
    *h = (struct block_head){.vlen = (uint32_t)vlen,
                             .klen = (uint16_t)klen,
                             .generation = generation,
                             .flags = (uint8_t)(written_by | length_flag(bytes))};
    memcpy(image + bytes - vlen - klen, key, klen);
    if (vlen > 0)
        memcpy(image + bytes - vlen, value, vlen);
    memset(image + bytes, 0, padded - bytes);
    if (h->flags & BLOCK_LONG)
        *long_part(h) = (struct block_long){key_sum_of(h), value_sum_of(h)};
    h->checksum = head_sum_of(h);

    *block = (struct block_ref){.at = at,
                                .size_class = (uint8_t)size_class,
                                .generation = generation,
                                .image = image,
                                .bytes = (uint32_t)padded};
    return FAR_OK;
}

/* Can this be the head of a block in `bytes` bytes of memory, as blocks of its length are
 * written? */
static bool head_fits(const struct block_head *h, size_t bytes, unsigned generation)
{
    size_t needed = block_bytes(h->klen, h->vlen);
    unsigned compared = 0xff & ~(generation >> 8);
    return ((h->generation ^ generation) & compared) == 0 && h->klen > 0 && needed <= bytes &&
           (h->flags & ~(BLOCK_UPDATE | BLOCK_PUT)) == length_flag(needed);
}

bool block_valid(const void *image, size_t bytes, unsigned generation)
{
    const struct block_head *h = image;
    if (!head_fits(h, bytes, generation) || h->checksum != head_sum_of(h))
        return false;
    return !(h->flags & BLOCK_LONG) ||
           (long_part(h)->key_sum == key_sum_of(h) && long_part(h)->value_sum == value_sum_of(h));
}

static enum block_verdict compare(const struct block_head *h, const void *key, size_t klen)
{
    return h->klen == klen && memcmp(block_key(h), key, klen) == 0 ? BLOCK_MATCH : BLOCK_OTHER;
}

enum block_verdict block_judge(const void *image, size_t bytes, unsigned generation,
                               const void *key, size_t klen)
{
    return block_valid(image, bytes, generation) ? compare(image, key, klen) : BLOCK_STALE;
}

enum block_verdict block_judge_head(const void *image, size_t bytes, unsigned generation,
                                    const void *key, size_t klen)
{
    const struct block_head *h = image;
    if (!head_fits(h, bytes, generation) || !(h->flags & BLOCK_LONG) ||
        h->checksum != head_sum_of(h))
        return BLOCK_STALE;
    if (h->klen == klen && long_part(h)->key_sum != key_sum_of(h)) /* BLOCK-B1 */
        return BLOCK_STALE;
    return compare(h, key, klen);
}
