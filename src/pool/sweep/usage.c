/* What a pool's memory is used for. */
#include "pool/sweep/marks.h"
#include "pool/pool_internal.h"

#include <stdlib.h>

int pool_info(struct op *op, struct far_pool_info *info)
{
    struct pool *pool = op->pool;
    struct far_pool_info sum = {
        .nodes = pool->nodes, .layout_version = POOL_LAYOUT_VERSION, .clients_max = pool->clients};
    uint32_t bytes = CLIENTS_OFF + pool->clients * (uint32_t)sizeof(struct client_slot);
    char *image = op_buffer(op, BUF_POOL, bytes + pool->nodes * 8);
    if (!image)
        return FAR_NO_MEMORY;
    uint64_t *next = (uint64_t *)(image + bytes);

    sum.nodes_away = pool_away(pool);
    batch_read(&op->batch, gaddr_make(0, 0), 0, image, bytes);
    for (unsigned i = 0; i < pool->nodes; i++)
        if (!(sum.nodes_away >> i & 1))
            batch_read(&op->batch, gaddr_make(i, NODE_NEXT_CHUNK_OFF), 0, &next[i], 8);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;

    const struct client_slot *slots = (const struct client_slot *)(image + CLIENTS_OFF);
    for (unsigned i = 0; i < pool->clients; i++)
        sum.clients += slots[i].incarnation != 0;
    for (unsigned i = 0; i < pool->nodes; i++) {
        const struct node_head *head = pool_head(pool, i);
        if (sum.nodes_away >> i & 1)
            continue;
        uint64_t taken = next[i] < head->chunks ? next[i] : head->chunks;
        sum.bytes_total += head->size;
        sum.bytes_allocated += taken << CHUNK_SHIFT;
        sum.bytes_metadata += head->size - ((uint64_t)head->chunks << CHUNK_SHIFT);
    }
    sum.bytes_free = sum.bytes_total - sum.bytes_metadata - sum.bytes_allocated;
    rc = catalog_count(op, &sum.tables);
    if (rc == FAR_OK)
        *info = sum;
    return rc;
}

/* Adds the bytes at the ends of chunks that are too few for another object of the chunk's class. */
static int add_ends(struct marks *m, unsigned node, uint64_t *bytes)
{
    uint64_t *table = NULL;
    int rc = pool_chunk_table(m->op, node, m->chunks[node], &table);
    for (uint64_t chunk = 0; chunk < m->chunks[node] && rc == FAR_OK; chunk++) {
        unsigned kind = chunk_kind(table[chunk]), size_class = chunk_class(table[chunk]);
        if (!chunk_fits(table[chunk], m->chunks[node] - chunk))
            continue;
        if (kind == CHUNK_SLAB)
            *bytes += CHUNK_BYTES % size_class_bytes(size_class);
        else if (kind == CHUNK_LARGE)
            *bytes += size_class_chunks(size_class) * CHUNK_BYTES - size_class_bytes(size_class);
    }
    free(table);
    return rc;
}

int pool_usage(struct op *op, struct far_pool_usage *usage)
{
    struct marks live;
    struct far_pool_info info;
    struct far_pool_usage u = {0};
    uint64_t held = 0, listed = 0, ends = 0;

    int rc = pool_meet(op);
    if (rc != FAR_OK)
        return rc;
    rc = marks_init(&live, op, false);
    if (rc == FAR_OK)
        rc = pool_read_marks(op, NODE_NEXT_CHUNK_OFF, live.chunks);
    if (rc == FAR_OK)
        rc = marks_all(&live);
    for (unsigned node = 0; node < op->pool->nodes && rc == FAR_OK; node++)
        rc = add_ends(&live, node, &ends);
    marks_free(&live);
    if (rc == FAR_OK)
        rc = freelist_bytes(op, UINT64_MAX, &listed);
    if (rc == FAR_OK)
        rc = pool_info(op, &info);
    if (rc == FAR_OK)
        rc = client_bytes(op, &u.retired, &held);
    if (rc != FAR_OK)
        return rc;
    u.total = info.bytes_total;
    u.metadata = info.bytes_metadata + ends;
    u.live = live.reached_bytes;
    u.free = info.bytes_free + listed + held;
    /* Of other clients we know what they last announced. They may have published some of it since;
     * then it is counted twice. */
    uint64_t excess = u.metadata + u.live + u.retired + u.free;
    excess = excess > u.total ? excess - u.total : 0;
    uint64_t from_free = excess < held ? excess : held;
    u.free -= from_free;
    u.retired -= excess - from_free < u.retired ? excess - from_free : u.retired;
    uint64_t known = u.metadata + u.live + u.retired + u.free;
    u.unknown = known < u.total ? u.total - known : 0;
    *usage = u;
    return FAR_OK;
}

int pool_check_room(struct op *op, uint64_t needed)
{
    struct far_pool_info info;
    uint64_t listed = 0;
    int rc = pool_info(op, &info);
    uint64_t there = info.bytes_free + op->client->stock.held_bytes;
    if (rc == FAR_OK && needed > there)
        rc = freelist_bytes(op, needed - there, &listed);
    if (rc == FAR_OK && needed > there + listed)
        rc = err_fail(FAR_POOL_FULL, "the expected keys need %llu bytes, but only %llu are free",
                      (unsigned long long)needed, (unsigned long long)(there + listed));
    return rc;
}
