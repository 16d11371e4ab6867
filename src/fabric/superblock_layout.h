/*
 * The superblock: the first line of every node of a pool.
 *
 * What is in a pool is the pool's business (pool/layout.h). Its first line is known down here
 * because a fabric that finds memory, rather than making it, must tell from it whether there is a
 * pool, of how many nodes, and how large they are.
 *
 *   SUPERBLOCK-S1  A pool is there if and only if node 0 has the magic. The magic is written last
 *       of all that formatting writes: who dies before leaves no pool behind, who dies after a
 *       whole one.
 */
#ifndef FABRIC_SUPERBLOCK_LAYOUT_H
#define FABRIC_SUPERBLOCK_LAYOUT_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "remote structures are little-endian images; a big-endian host needs accessors"
#endif

#define POOL_MAGIC          0x3130656469737266ull /* "frside01" */
#define POOL_LAYOUT_VERSION 3u

struct node_head {
    uint64_t magic;
    uint32_t layout_version;
    uint16_t node, nodes;
    uint64_t pool_id; /* the same on all nodes, different for every pool */
    uint64_t size;
    uint32_t clients;      /* slots of the client registry                */
    uint32_t table_off;    /* byte offset of the chunk table              */
    uint32_t chunks;       /* how many chunks the node has                */
    uint32_t chunks_off64; /* byte offset of the first chunk, in 64 bytes */
    uint32_t lease_ms;     /* how long a silent client is taken for alive */
    uint32_t reserved;
    uint64_t checksum; /* of the bytes before it                      */
};
_Static_assert(sizeof(struct node_head) == 64, "node_head is one line");
_Static_assert(offsetof(struct node_head, checksum) == 56, "the checksum covers what is before it");

/* What the checksum has to be. */
uint64_t superblock_sum(const struct node_head *head);

/* Is it a superblock, of this layout, and whole? FAR_NOT_A_POOL, FAR_LAYOUT, FAR_CORRUPT. Whether
 * it fits its memory is left to ask. */
int superblock_check(const struct node_head *head, unsigned node);

#endif
