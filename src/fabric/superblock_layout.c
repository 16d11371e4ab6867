#include "fabric/superblock_layout.h"

#include "base/hash.h"

uint64_t superblock_sum(const struct node_head *head)
{
    return hash_sum(head, offsetof(struct node_head, checksum), POOL_MAGIC);
}

int superblock_check(const struct node_head *head, unsigned node)
{
    if (head->magic != POOL_MAGIC)
        return err_fail(FAR_NOT_A_POOL, "node %u holds no Farside pool", node);
    if (head->layout_version != POOL_LAYOUT_VERSION)
        return err_fail(
            FAR_LAYOUT,
            "node %u has layout version %u, where version %u is expected; to upgrade, run "
            "'farside dump' of the version that made the pool, and load the dump into a "
            "new one",
            node, head->layout_version, POOL_LAYOUT_VERSION);
    if (head->checksum != superblock_sum(head))
        return err_fail(FAR_CORRUPT, "the superblock of node %u fails its checksum", node);
    return FAR_OK;
}
