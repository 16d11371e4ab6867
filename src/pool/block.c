/*
 * Key-value blocks: written whole before anything points to them, never changed after.
 *
 * Whoever follows a pointer may come late, when the block has been given up and its memory holds
 * something else, or is being overwritten this moment. The checksum tells a torn or foreign image,
 * the generation (kept in the pointer too) tells a later block of the same key from the one meant.
 */
#include "pool/pool.h"

#include <string.h>

#define CHECKSUM_SEED 0x66617273696465ull

static uint64_t block_sum(const void *image, size_t klen, size_t vlen)
{
    const struct block_head *h = image;
    return hash_sum(&h->vlen, block_bytes(klen, vlen) - offsetof(struct block_head, vlen),
                    CHECKSUM_SEED);
}

int block_prepare(struct op *op, unsigned node, const void *key, size_t klen, const void *value,
                  size_t vlen, struct block_ref *block)
{
    size_t bytes = block_bytes(klen, vlen), padded = (bytes + 63) & ~(size_t)63;
    unsigned size_class = class_for(bytes);
    gaddr at = 0;

    ASSERT(size_class < CLASS_COUNT);
    char *image = op_buffer(op, BUF_BLOCK_OUT, padded);
    if (!image)
        return FAR_NO_MEMORY;
    int rc = pool_alloc(op, node, size_class, &at);
    if (rc != FAR_OK)
        return rc;

    uint8_t generation = op->client->generation;
    op->client->generation = (generation + 1) % BLOCK_GENERATIONS;
    struct block_head *h = (struct block_head *)image;
    *h = (struct block_head){
        .vlen = (uint32_t)vlen, .klen = (uint16_t)klen, .generation = generation};
    memcpy(image + sizeof *h, key, klen);
    if (vlen > 0)
        memcpy(image + sizeof *h + klen, value, vlen);
    memset(image + bytes, 0, padded - bytes);
    h->checksum = block_sum(image, klen, vlen);

    *block = (struct block_ref){.at = at,
                                .size_class = (uint8_t)size_class,
                                .generation = generation,
                                .image = image,
                                .bytes = (uint32_t)padded};
    return FAR_OK;
}

bool block_valid(const void *image, size_t bytes, uint8_t generation)
{
    const struct block_head *h = image;
    return h->generation == generation && h->klen > 0 && block_bytes(h->klen, h->vlen) <= bytes &&
           h->checksum == block_sum(image, h->klen, h->vlen);
}

enum block_verdict block_judge(const void *image, size_t bytes, uint8_t generation, const void *key,
                               size_t klen)
{
    if (!block_valid(image, bytes, generation))
        return BLOCK_STALE;
    const struct block_head *h = image;
    return h->klen == klen && memcmp(block_key(image), key, klen) == 0 ? BLOCK_MATCH : BLOCK_OTHER;
}
