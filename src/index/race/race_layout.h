/*
 * RACE in remote memory.
 *
 *   root (two lines)          directory                subtable (16 KiB with 85 groups)
 *   +--------------+          +-----------+            +---------------------------------+
 *   | global depth |    +---> | entry     | ---------> | forward | claim | header        |
 *   +--------------+    |     | entry     |            +---------------------------------+
 *   | parameters   | ---+     | ...       |            | main | overflow | main   group 0 |
 *   +--------------+          +-----------+            | main | overflow | main   group 1 |
 *                             2^dir_bits reserved,     | ...                             |
 *                             2^depth in use           +---------------------------------+
 *
 *   bucket: header + 7 slots, 8 bytes each. A key has two main buckets, in different groups; each
 *   is read together with the overflow bucket beside it (a combined bucket: 128 bytes).
 *
 *   slot       sealed 1 | tentative 1 | fingerprint 8 | 0 2 | generation 6 | class 6 | gaddr 40
 *              all zero but for `sealed`: empty
 *   header     suffix 32 | tag 24 | depth 8          the same in all buckets of a subtable,
 * constant entry      node 8 | depth 8 | 0 20 | 4 KiB page 28 forward    node 8 | child 1 page 28 |
 * child 0 page 28          0: not split
 */
#ifndef RACE_LAYOUT_H
#define RACE_LAYOUT_H

#include "index/slot.h"

#define RACE_BUCKET_WORDS   8
#define RACE_BUCKET_SLOTS   7
#define RACE_GROUP_BYTES    192
#define RACE_GROUP_SLOTS    21
#define RACE_COMBINED_BYTES 128
#define RACE_COMBINED_WORDS 16

#define RACE_GROUPS_DEFAULT 85
#define RACE_GROUPS_MIN     2
#define RACE_GROUPS_MAX     340
#define RACE_DIR_BITS_MAX   18
#define RACE_PAGE           4096

/* ---- slots ----------------------------------------------------------------------------------- */
#define RACE_SLOT_SEALED    (1ull << 63)
#define RACE_SLOT_TENTATIVE (1ull << 62)

#define RACE_SLOT ((struct slot_format){.generation = 6, .fingerprint_at = 54, .fingerprint = 8})
_Static_assert(POINTER_OWN_AT(6) <= 54, "a pointer fits below the fingerprint");

static inline bool race_slot_empty(uint64_t slot)
{
    return (slot & ~RACE_SLOT_SEALED) == 0;
}
/* What a splitter turns a slot into: an insert that was not confirmed in time did not happen. */
static inline uint64_t race_slot_sealed(uint64_t slot)
{
    return (slot & RACE_SLOT_TENTATIVE) ? RACE_SLOT_SEALED : slot | RACE_SLOT_SEALED;
}

/* ---- subtables ------------------------------------------------------------------------------- */
struct race_subtable_head {
    uint64_t forward;
    uint64_t claim; /* the client that is splitting it: advice to others to wait a while */
    uint64_t header;
    uint64_t reserved[5];
};
_Static_assert(sizeof(struct race_subtable_head) == 64, "one line before the groups");

static inline uint32_t race_subtable_bytes(unsigned groups)
{
    return (uint32_t)sizeof(struct race_subtable_head) + groups * RACE_GROUP_BYTES;
}
/* Subtables lie on pages: the class is that of a power of two, at least a page. */
static inline unsigned race_subtable_class(unsigned groups)
{
    uint32_t bytes = RACE_PAGE;
    while (bytes < race_subtable_bytes(groups))
        bytes *= 2;
    return size_class_for(bytes);
}
_Static_assert(sizeof(struct race_subtable_head) + RACE_GROUPS_DEFAULT * RACE_GROUP_BYTES == 16384,
               "85 groups fill four pages");

static inline uint64_t race_header(uint32_t tag, unsigned depth, uint64_t suffix)
{
    return suffix << 32 | (uint64_t)(tag & 0xffffff) << 8 | depth;
}

/* ---- directory ------------------------------------------------------------------------------- */
static inline uint64_t race_entry(gaddr subtable, unsigned depth)
{
    return (uint64_t)gaddr_node(subtable) << 56 | (uint64_t)depth << 48 |
           gaddr_offset(subtable) / RACE_PAGE;
}
static inline gaddr race_entry_subtable(uint64_t entry)
{
    return gaddr_make((unsigned)(entry >> 56), (entry & 0xfffffff) * RACE_PAGE);
}
static inline unsigned race_entry_depth(uint64_t entry)
{
    return (entry >> 48) & 0xff;
}

/* Both children are on one node; entries of the given depth. */
static inline uint64_t race_forward(gaddr child0, gaddr child1)
{
    return (uint64_t)gaddr_node(child0) << 56 | (gaddr_offset(child1) / RACE_PAGE) << 28 |
           gaddr_offset(child0) / RACE_PAGE;
}
static inline uint64_t race_forward_entry(uint64_t forward, unsigned which, unsigned depth)
{
    uint64_t page = (forward >> (28 * which)) & 0xfffffff;
    return (forward >> 56) << 56 | (uint64_t)depth << 48 | page;
}

/* ---- root ------------------------------------------------------------------------------------ */
struct race_root {
    uint64_t depth; /* global depth: how much of the directory is in use. All that changes. */
    uint64_t unused[7];
    uint32_t groups;
    uint32_t dir_bits;
    uint64_t directory;   /* gaddr */
    uint64_t depth_asked; /* of the tuning: 0 or dir_bits */
    uint64_t reserved[4];
    uint64_t checksum; /* of the second line before it */
};
_Static_assert(sizeof(struct race_root) == 128, "two lines");

#endif
