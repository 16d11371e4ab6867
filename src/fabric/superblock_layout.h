/*
 * The superblock: the first line of every node of a pool.
 *
 * The rest of a pool's layout is in pool/pool_layout.h. The first line is here because a fabric
 * that finds existing memory must learn from it whether there is a pool, how many nodes it has and
 * how large they are.
 *
 *   SUPERBLOCK-S1  There is a pool if and only if node 0 has the magic. Formatting writes the magic
 *       last: a creator that dies before this write leaves no pool; one that dies after it leaves a
 *       complete one.
 */
#ifndef FABRIC_SUPERBLOCK_LAYOUT_H
#define FABRIC_SUPERBLOCK_LAYOUT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "remote structures are little-endian images; a big-endian host needs accessors"
#endif

#define POOL_MAGIC          0x3130656469737266ull /* "frside01" */
#define POOL_LAYOUT_VERSION 9u

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
    uint32_t lease_ms;     /* a client silent for longer counts as dead   */
    uint32_t flags;        /* NODE_HEAD_...                               */
    uint64_t checksum;     /* of the bytes before it */
};
/* Sessions that are silent and not known to be dead are waited for (LEASE-L5). */
#define NODE_HEAD_WAITS   1u
#define NODE_HEAD_WITNESS 2u /* it votes, and has no data */
/* How many nodes voted at first; 0: the pool has no voters (members.h). */
static inline unsigned node_head_voters(const struct node_head *head)
{
    return head->flags >> 8 & 0xf;
}
static inline uint32_t node_head_flags(bool waits, bool witness, unsigned voters)
{
    return (waits ? NODE_HEAD_WAITS : 0) | (witness ? NODE_HEAD_WITNESS : 0) | voters << 8;
}

/* Words that a memory node writes before it lets anybody in. On memory without such a node they are
 * 0. */
#define NODE_LIFE_OFF     88 /* random: another one if it may have forgotten something (MEMBERS-1) */
#define NODE_KIND_OFF     96 /* NODE_KIND_...                                                      */
#define NODE_KIND_WITNESS 1u
_Static_assert(sizeof(struct node_head) == 64, "node_head is one line");
_Static_assert(offsetof(struct node_head, checksum) == 56, "the checksum covers what is before it");

/* The word of every node that holds its view: requests of older views are refused (FABRIC-F6). In
 * the pool's memory, so that it lasts as long as that does. The line at 64 has the chunk counter at
 * 64 and the sweep's word at 72 as well (pool_layout.h). Only fence_view() changes it. */
#define NODE_VIEW_OFF 80u

/* The right checksum. */
uint64_t superblock_sum(const struct node_head *head);

/* Is it a whole superblock of this layout? Whether it fits its memory is not checked.
 * FAR_NOT_A_POOL, FAR_LAYOUT, FAR_CORRUPT. */
int superblock_check(const struct node_head *head, unsigned node);

#endif
