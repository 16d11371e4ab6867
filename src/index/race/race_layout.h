/* clang-format off */
/*
 * RACE in remote memory: every structure and word, each with its encoder and decoder.
 *
 *   root (two lines)          directory                subtable (16 KiB with 85 groups)
 *   +--------------+          +-----------+            +-----------------------------------+
 *   | global depth |    +---> | entry     | ---------> | forward | claim | header          |
 *   +--------------+    |     | entry     |            +-----------------------------------+
 *   | parameters   | ---+     | ...       |            | main | overflow | main    group 0 |
 *   +--------------+          +-----------+            | main | overflow | main    group 1 |
 *                             2^dir_bits reserved,     | ...                               |
 *                             2^depth in use           +-----------------------------------+
 *
 *   bucket: header + 7 slots, 8 bytes each. A key has two main buckets, in different groups. Each
 *   is read together with the overflow bucket beside it (a combined bucket: 128 bytes).
 *
 *   slot      sealed 1 | tentative 1 | fingerprint 8 | generation 8 | class 6 | gaddr 40
 *             all zero but for `sealed`: empty
 *   header    suffix 32 | tag 24 | depth 8       the same in all buckets of a subtable, constant
 *   entry     node 8 | depth 8 | 0 20 | 4 KiB page 28
 *   forward   node 8 | child 1 page 28 | child 0 page 28          0: not split
 *   claim     the owner word of the client that splits it, or 0
 *
 *   The journal line of a split: `what` is the subtable's suffix, its data are the directory entry.
 */
/* clang-format on */
#ifndef RACE_LAYOUT_H
#define RACE_LAYOUT_H

#include "index/slot.h"

#include <string.h>

#define RACE_BUCKET_WORDS   8
#define RACE_BUCKET_SLOTS   7
#define RACE_GROUP_BYTES    192
#define RACE_GROUP_SLOTS    21
#define RACE_COMBINED_BYTES 128
#define RACE_COMBINED_WORDS 16

#define RACE_HEAD_WORDS 8 /* of a subtable, before its groups */

#define RACE_GROUPS_DEFAULT 85
#define RACE_HOT_DEFAULT    4096 /* KiB: 458,752 keys */
#define RACE_HOT_MAX        (4u << 20)
#define RACE_GROUPS_MIN     2
#define RACE_GROUPS_MAX     340
#define RACE_DIR_BITS_MAX   18
#define RACE_PAGE           4096

/* ---- slots ----------------------------------------------------------------------------------- */
#define RACE_SLOT_SEALED    (1ull << 63)
#define RACE_SLOT_TENTATIVE (1ull << 62)

#define RACE_SLOT ((struct slot_format){.generation = 8, .fingerprint_at = 54, .fingerprint = 8})
_Static_assert(POINTER_OWN_AT(8) <= 54, "a pointer fits below the fingerprint");

static inline bool race_slot_empty(uint64_t slot)
{
    return (slot & ~RACE_SLOT_SEALED) == 0;
}
/* Does it name a block that readers see? */
static inline bool race_slot_committed(uint64_t slot)
{
    return !race_slot_empty(slot) && !(slot & RACE_SLOT_TENTATIVE);
}
/* What a splitter turns a slot into: an insert that was not committed in time did not happen. */
static inline uint64_t race_slot_sealed(uint64_t slot)
{
    return (slot & RACE_SLOT_TENTATIVE) ? RACE_SLOT_SEALED : slot | RACE_SLOT_SEALED;
}

/* There is no such slot, and so none that looks like a reference (WORDS-1). */
static inline bool race_slot_unknown(uint64_t slot)
{
    return slot >= (RACE_SLOT_SEALED | RACE_SLOT_TENTATIVE);
}

/* What it was before. */
static inline uint64_t race_slot_unsealed(uint64_t slot)
{
    return slot & ~RACE_SLOT_SEALED;
}

/* ---- subtables ------------------------------------------------------------------------------- */
struct race_subtable_head {
    uint64_t forward;
    uint64_t claim; /* the client that is splitting it: advice to others to wait a while */
    uint64_t header;
    uint64_t reserved[5];
};
_Static_assert(sizeof(struct race_subtable_head) == 8 * RACE_HEAD_WORDS,
               "a line before the groups");

static inline uint32_t race_subtable_bytes(unsigned groups)
{
    return (uint32_t)sizeof(struct race_subtable_head) + groups * RACE_GROUP_BYTES;
}
static inline unsigned race_subtable_words(unsigned groups)
{
    return race_subtable_bytes(groups) / 8;
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

/* Every eighth of the words behind the head, and of a combined bucket's places, is a header. */
static inline bool race_is_slot(unsigned word)
{
    return word % RACE_BUCKET_WORDS != 0;
}

/* The main buckets are numbered, two to a group. An even one is followed by its overflow bucket, an
 * odd one is preceded by it. This is where the combined bucket begins. */
static inline uint32_t race_combined_offset(uint32_t main_bucket)
{
    return (uint32_t)sizeof(struct race_subtable_head) + main_bucket / 2 * RACE_GROUP_BYTES +
           (main_bucket & 1) * 64;
}
/* The reverse: is the main bucket the first of the two? */
static inline bool race_main_comes_first(uint32_t combined_offset)
{
    return (combined_offset - sizeof(struct race_subtable_head)) % RACE_GROUP_BYTES == 0;
}

/* The bits of a key's hash that the keys of its subtable, of that depth, have in common. */
static inline uint64_t race_suffix(uint64_t hash, unsigned depth)
{
    return hash & ((1ull << depth) - 1);
}
/* Tells tables apart. */
static inline uint32_t race_tag(uint64_t hash_seed)
{
    return (uint32_t)hash_sum(&hash_seed, sizeof hash_seed, 0);
}
/* A header is never taken apart: it is compared with the one that should be there. */
static inline uint64_t race_header(uint32_t tag, unsigned depth, uint64_t suffix)
{
    return suffix << 32 | (uint64_t)(tag & 0xffffff) << 8 | depth;
}
/* An empty subtable. */
static inline void race_subtable_clear(uint64_t *image, unsigned words, uint64_t header)
{
    memset(image, 0, words * 8ull);
    ((struct race_subtable_head *)image)->header = header;
    for (unsigned i = RACE_HEAD_WORDS; i < words; i += RACE_BUCKET_WORDS)
        image[i] = header;
}

/* ---- directory ------------------------------------------------------------------------------- */
_Static_assert(RACE_DIR_BITS_MAX < 0xff, "WORDS-1: no depth has all bits set");
static inline uint64_t race_entry(gaddr subtable, unsigned depth)
{
    ASSERT(depth <= RACE_DIR_BITS_MAX && gaddr_offset(subtable) % RACE_PAGE == 0);
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

/* Both children are on one node. */
static inline uint64_t race_forward(gaddr child0, gaddr child1)
{
    ASSERT(gaddr_node(child0) == gaddr_node(child1));
    ASSERT((gaddr_offset(child0) | gaddr_offset(child1)) % RACE_PAGE == 0);
    return (uint64_t)gaddr_node(child0) << 56 | (gaddr_offset(child1) / RACE_PAGE) << 28 |
           gaddr_offset(child0) / RACE_PAGE;
}
/* The directory entry of a child, whose depth that is. */
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
    uint64_t hot;         /* of the tuning */
    uint64_t reserved[3];
    uint64_t checksum; /* of the second line before it */
};
_Static_assert(sizeof(struct race_root) == 128, "two lines");

static inline uint64_t race_root_sum(const struct race_root *root)
{
    size_t first = offsetof(struct race_root, groups);
    return hash_sum(&root->groups, offsetof(struct race_root, checksum) - first, 0);
}
static inline bool race_root_valid(const struct race_root *root)
{
    return root->checksum == race_root_sum(root) && root->groups >= RACE_GROUPS_MIN &&
           root->groups <= RACE_GROUPS_MAX && root->dir_bits <= RACE_DIR_BITS_MAX &&
           root->hot <= RACE_HOT_MAX;
}

#endif
