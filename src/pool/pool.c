/* Opening a pool: laying it out on fresh memory, or reading and judging an existing one. */
#include "pool/pool_internal.h"

#include "base/clock.h"

#include <string.h>
#include <unistd.h>

const struct knobs pool_knobs_default = {
    .hash_mask = UINT64_MAX,
    .fingerprint_mask = 0xff,
    .generation_mask = 0xff,
    .patience = 200,
    .tick_ops = 128,
    .stock_max = 1024,
    .run_chunks = 1,
};

#define CLIENTS_DEFAULT 256
#define LEASE_MS        5000
#define NODE_BYTES_MAX  (1ull << (GADDR_UNIT_BITS + 6))

static int plan_node(const struct fab *fab, unsigned node, uint64_t pool_id, struct node_head *head)
{
    uint64_t size = fab->size[node];
    uint64_t clients = fab->clients_wanted ? fab->clients_wanted : CLIENTS_DEFAULT;
    uint64_t catalog_bytes = node == 0 ? catalog_places(size) * sizeof(struct catalog_entry) : 0;
    uint64_t table_off = catalog_off(clients) + catalog_bytes;

    if (size > NODE_BYTES_MAX)
        return err_fail(FAR_INVALID, "node %u has %llu bytes: at most 1 TiB can be addressed", node,
                        (unsigned long long)size);
    uint64_t chunks = size / (CHUNK_BYTES + 8), chunks_off = 0;
    for (; chunks > 0; chunks--) {
        chunks_off = (table_off + chunks * 8 + CHUNK_BYTES - 1) & ~(CHUNK_BYTES - 1);
        if (chunks_off + chunks * CHUNK_BYTES <= size)
            break;
    }
    if (chunks == 0)
        return err_fail(FAR_POOL_FULL, "node %u has %llu bytes: too few to hold a pool", node,
                        (unsigned long long)size);
    *head = (struct node_head){.magic = POOL_MAGIC,
                               .layout_version = POOL_LAYOUT_VERSION,
                               .node = (uint16_t)node,
                               .nodes = (uint16_t)fab->nodes,
                               .pool_id = pool_id,
                               .size = size,
                               .clients = (uint32_t)clients,
                               .table_off = (uint32_t)table_off,
                               .chunks = (uint32_t)chunks,
                               .chunks_off64 = (uint32_t)(chunks_off / 64),
                               .lease_ms = (uint32_t)(fab->lease_ms ? fab->lease_ms : LEASE_MS)};
    head->checksum = superblock_sum(head);
    return FAR_OK;
}

static int format(struct batch *b, struct fab *fab, struct node_head *image)
{
    uint64_t seed[3] = {clock_ns(), (uint64_t)getpid(), (uintptr_t)fab};
    uint64_t pool_id = hash_sum(seed, sizeof seed, 0);

    /* Everything else begins as zeros. Node 0 comes last, and on each node the magic: the pool
     * exists once node 0 has its magic (SUPERBLOCK-S1). */
    for (unsigned i = fab->nodes; i-- > 0;) {
        int rc = plan_node(fab, i, pool_id, image);
        if (rc != FAR_OK)
            return rc;
        batch_write(b, gaddr_make(i, 0), 8, (char *)image + 8, sizeof *image - 8);
        batch_fence(b);
        batch_write(b, gaddr_make(i, 0), 0, &image->magic, 8);
        rc = batch_flush(b);
        if (rc != FAR_OK)
            return rc;
    }
    return FAR_OK;
}

static int judge(const struct fab *fab, unsigned node, const struct node_head *head,
                 const struct node_head *first)
{
    struct node_head plan;
    int rc = superblock_check(head, node);
    if (rc != FAR_OK)
        return rc;
    if (head->pool_id != first->pool_id || head->clients != first->clients)
        return err_fail(FAR_NOT_A_POOL, "node %u belongs to another pool than node 0", node);
    if (head->nodes != fab->nodes)
        return err_fail(FAR_NOT_A_POOL, "node %u belongs to a pool of %u nodes, but %u are given",
                        node, head->nodes, fab->nodes);
    if (head->node != node)
        return err_fail(FAR_NOT_A_POOL,
                        "the memory given as node %u is node %u of its pool: wrong order", node,
                        head->node);
    /* A valid checksum does not make a geometry valid: it must be what plan_node() makes of this
     * memory. */
    struct fab as_made = *fab;
    as_made.clients_wanted = head->clients;
    as_made.lease_ms = head->lease_ms;
    if (head->size > fab->size[node] || head->clients == 0 ||
        plan_node(&as_made, node, head->pool_id, &plan) != FAR_OK ||
        memcmp(&plan, head, sizeof plan) != 0)
        return err_fail(FAR_CORRUPT, "the superblock of node %u does not match its memory", node);
    return FAR_OK;
}

int pool_open(struct fab *fab, const struct knobs *knobs, struct pool *pool)
{
    struct fab_ep *ep = NULL;
    struct batch b;
    struct cost cost = {0};

    int rc = fab->ops->ep_open(fab, &ep);
    if (rc != FAR_OK)
        return rc;
    batch_init(&b, ep, &cost);
    memset(pool, 0, sizeof *pool);
    pool->fab = fab;
    pool->nodes = fab->nodes;
    pool->knobs = knobs ? *knobs : pool_knobs_default;

    struct node_head *image = ep->ops->buf_alloc(ep, sizeof *image);
    if (!image) {
        rc = FAR_NO_MEMORY;
        goto close_ep;
    }
    if (fab->fresh) {
        rc = format(&b, fab, image);
        if (rc != FAR_OK)
            goto free_image;
        fab->fresh = false;
    }
    for (unsigned i = 0; i < fab->nodes; i++) {
        batch_read(&b, gaddr_make(i, 0), 0, image, sizeof *image);
        rc = batch_flush(&b);
        if (rc == FAR_OK) {
            pool->head[i] = *image;
            rc = judge(fab, i, image, &pool->head[0]);
        }
        if (rc != FAR_OK)
            goto free_image;
    }
    pool->pool_id = pool->head[0].pool_id;
    if (fab->lease_ms != pool->head[0].lease_ms) /* written only once: others may have it open */
        fab->lease_ms = pool->head[0].lease_ms;
    pool->clients = pool->head[0].clients;
    pool->places = catalog_places(pool->head[0].size);
    pool->catalog_off = catalog_off(pool->clients);
    if (fab->ops->formatted)
        fab->ops->formatted(fab);
free_image:
    ep->ops->buf_free(ep, image, sizeof *image);
close_ep:
    ep->ops->ep_close(ep);
    return rc;
}
