#include "fabric/superblock.h"

#include "base/hash.h"

uint64_t head_sum(const struct node_head *head)
{
    return hash_sum(head, offsetof(struct node_head, checksum), POOL_MAGIC);
}

int head_check(const struct node_head *head, unsigned node)
{
    if (head->magic != POOL_MAGIC)
        return fail(FAR_NOT_A_POOL, "node %u holds no Farside pool", node);
    if (head->layout_version != POOL_LAYOUT_VERSION)
        return fail(FAR_LAYOUT, "node %u has layout version %u, this is version %u", node,
                    head->layout_version, POOL_LAYOUT_VERSION);
    if (head->checksum != head_sum(head))
        return fail(FAR_CORRUPT, "the superblock of node %u fails its checksum", node);
    return FAR_OK;
}
