/*
 * CHIME in remote memory: the root, and nodes. Everything is little-endian words of 8 bytes.
 *
 *   node    head (16 words) | group 0 | group 1 | ...
 *   group   G | K0 V0 | K1 V1 | K2 V2 | K3 V3
 *
 * Leaves and internal nodes have the same form. Entry p is in group p / 4. A node has `span`
 * entries.
 */
#ifndef CHIME_CHIME_LAYOUT_H
#define CHIME_CHIME_LAYOUT_H

#include "index/slot.h"

#define CHIME_SPAN_MAX    64u
#define CHIME_GROUP       4u /* entries */
#define CHIME_GROUP_WORDS 9u
#define CHIME_GROUPS_MAX  (CHIME_SPAN_MAX / CHIME_GROUP)
#define CHIME_LEVELS      16u

/* ---- the root -------------------------------------------------------------------------------- */

struct chime_root {
    uint64_t top; /* the highest node: see chime_top(). Changed by CAS */
    uint32_t tuning[8];
    uint64_t checksum; /* of the tuning */
};
#define CHIME_ROOT_SEED 0x6368696d65726f6full

static inline uint64_t chime_root_sum(const struct chime_root *root)
{
    return hash_sum(root->tuning, sizeof root->tuning, CHIME_ROOT_SEED);
}

/* Words that are not covered by a group's checksum have 16 check bits of their own, above 48. */
static inline uint64_t chime_seal(uint64_t word, uint64_t seed)
{
    word &= (1ull << 48) - 1;
    return word | hash_sum(&word, sizeof word, seed) << 48;
}

/* Bits 0..39 the node's address, 40..43 its level; a leaf has level 0. */
_Static_assert((uint64_t)CHIME_LEVELS << GADDR_BITS < 1ull << 48, "WORDS-1: a bit stays 0");
static inline uint64_t chime_top(gaddr at, unsigned level, uint64_t seed)
{
    return chime_seal(at | (uint64_t)level << GADDR_BITS, seed);
}
static inline gaddr chime_top_at(uint64_t top)
{
    return top & GADDR_MASK;
}
static inline unsigned chime_top_level(uint64_t top)
{
    return top >> GADDR_BITS & (CHIME_LEVELS - 1);
}

/* ---- heads ----------------------------------------------------------------------------------- */

/*
 * A separator is the lowest key that a node may have. If its first 8 bytes K tell it from all keys
 * below, it is just K: keys whose first 8 bytes are K or more are not below it. Otherwise it is a
 * block whose key is the whole separator and whose value is the word of chime_child().
 */
struct chime_edge {
    uint64_t k;
    uint64_t lng; /* the pointer to its block; 0: there is none */
    uint64_t
        sum; /* bits 0..11 how long the leaf's stem is; above: a hash of the bytes in the block,
                     whose memory may be used again, for another separator */
};
#define CHIME_STEM_BITS 12u
#define CHIME_STEM_MAX  ((1u << CHIME_STEM_BITS) - 1)

static inline unsigned chime_edge_stem(const struct chime_edge *edge)
{
    return (unsigned)edge->sum & CHIME_STEM_MAX;
}
/* Have they the same bytes, though perhaps not the same stem? */
static inline bool chime_edge_same(const struct chime_edge *a, const struct chime_edge *b)
{
    return a->k == b->k && (a->sum ^ b->sum) >> CHIME_STEM_BITS == 0;
}

/* What the block of a long separator says of its node: bits 0..39 the address, 40..51 how long the
 * leaf's stem is. */
static inline uint64_t chime_child(gaddr at, unsigned stem)
{
    ASSERT(stem <= CHIME_STEM_MAX);
    return at | (uint64_t)stem << GADDR_BITS;
}
static inline gaddr chime_child_node(uint64_t child)
{
    return child & GADDR_MASK;
}
static inline unsigned chime_child_stem(uint64_t child)
{
    return child >> GADDR_BITS & CHIME_STEM_MAX;
}

struct chime_head {
    uint64_t lock;          /* 0: free; the holder's owner word; CHIME_DEAD. CAS only */
    uint64_t vacancy;       /* bit p: entry p is free. A copy of what the groups say */
    uint64_t next;          /* bits 0..39 the right sibling, 0: none; 40..55 the era */
    struct chime_edge high; /* the sibling's separator: a copy */
    uint64_t state;         /* see chime_state() */
    uint64_t intent;        /* the G that an update in place is about to write */
    struct chime_edge low;  /* this node's separator. From here on nothing ever changes */
    uint64_t level;
    uint64_t sum;  /* of address, low, level and stem */
    uint64_t stem; /* a hash of the stem's bytes; 0: it has none */
    uint64_t unused[2];
};
#define CHIME_HEAD_WORDS 16u
_Static_assert(sizeof(struct chime_head) == 8 * CHIME_HEAD_WORDS, "two lines");

#define CHIME_DEAD (1ull << 63) /* in `lock`: the node was merged into its left neighbour */

static inline uint64_t chime_next(gaddr at, unsigned era)
{
    return at | (uint64_t)(era & 0xffff) << GADDR_BITS;
}
static inline gaddr chime_next_at(uint64_t next)
{
    return next & GADDR_MASK;
}
static inline unsigned chime_next_era(uint64_t next)
{
    return next >> GADDR_BITS & 0xffff;
}

/* Of `vacancy`: is the entry free? */
static inline bool chime_is_free(uint64_t vacancy, unsigned place)
{
    return vacancy >> place & 1;
}
static inline uint64_t chime_taken(uint64_t vacancy, unsigned place)
{
    return vacancy & ~(1ull << place);
}

/* What a node is in the middle of, and with which other node: bits 0..39 its address, 40..41 this.
 * The word is 0 if there is nothing. */
enum chime_stage {
    CHIME_ALONE,
    CHIME_BORN,    /* it was split off that node, which may not have been cleaned yet */
    CHIME_MERGING, /* its entries are being copied to that node */
    CHIME_MERGED   /* that node has all its entries */
};
static inline uint64_t chime_state(enum chime_stage stage, gaddr with, gaddr node, uint64_t seed)
{
    ASSERT(stage == CHIME_ALONE || with != 0);
    uint64_t word = with | (uint64_t)stage << GADDR_BITS;
    return stage == CHIME_ALONE ? 0 : chime_seal(word, seed ^ node);
}
static inline enum chime_stage chime_stage(uint64_t state)
{
    return (enum chime_stage)(state >> GADDR_BITS & 3);
}
static inline gaddr chime_with(uint64_t state)
{
    return state & GADDR_MASK;
}
static inline bool chime_state_good(uint64_t state, gaddr node, uint64_t seed)
{
    return state == 0 ||
           (chime_stage(state) != CHIME_ALONE && chime_seal(state, seed ^ node) == state);
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* A group's word G: bits 0..7 the kinds of its entries, 8..23 the era, 24..31 the tag, 32..63 the
 * checksum. Both depend on the node's name (struct chime_name); the checksum also covers the
 * group's number, kinds and era, and K and V of the entries that are not empty. If the tag is
 * wrong, the node is not what the reader thinks; if only the checksum is, the group is being
 * written. */
enum chime_kind {
    CHIME_EMPTY,
    CHIME_INLINE, /* leaf: K and V are key and value, 8 bytes each. Internal: V is the child's address */
    CHIME_BLOCK, /* leaf: K is that of chime_k(), and V points to the block of key and value.
                    Internal: V points to the separator's block */
};
#define CHIME_TAG_AT  24u
#define CHIME_SUM_AT  32u
#define CHIME_SUM_BIT (1ull << CHIME_SUM_AT) /* its lowest one */
#define CHIME_SUM     (~0ull << CHIME_SUM_AT)

static inline unsigned chime_kind(uint64_t g, unsigned i)
{
    return g >> (2 * i) & 3;
}
static inline uint64_t chime_with_kind(uint64_t g, unsigned i, unsigned kind)
{
    ASSERT(i < CHIME_GROUP && kind <= CHIME_BLOCK);
    return (g & ~(3ull << (2 * i))) | (uint64_t)kind << (2 * i);
}
#define CHIME_KINDS 0xffull /* of all its entries */
static inline unsigned chime_tag(uint64_t g)
{
    return g >> CHIME_TAG_AT & 0xff;
}
/* The kinds and the era. */
static inline uint64_t chime_said(uint64_t g)
{
    return g & ((1ull << CHIME_TAG_AT) - 1);
}
static inline uint64_t chime_with_seal(uint64_t said, unsigned tag, uint64_t sum)
{
    return said | (uint64_t)tag << CHIME_TAG_AT | sum << CHIME_SUM_AT;
}
static inline unsigned chime_era(uint64_t g)
{
    return g >> 8 & 0xffff;
}
static inline uint64_t chime_with_era(uint64_t g, unsigned era)
{
    return (g & ~(0xffffull << 8)) | (uint64_t)(era & 0xffff) << 8;
}

/* A block's pointer in a leaf: the lowest bits of the fingerprint say where its home is. */
#define CHIME_SLOT      ((struct slot_format){.generation = 6, .fingerprint_at = 52, .fingerprint = 12})
#define CHIME_HOME_BITS 6u
_Static_assert(POINTER_OWN_AT(6) <= 52, "a pointer fits below the fingerprint");
_Static_assert(1u << CHIME_HOME_BITS == CHIME_SPAN_MAX, "a home fits");

/* What the groups of a node are bound to: where it is, and its range. A node that dies gets another
 * name first, so a group that fits was part of a living node with this range (CHIME-C5). */
struct chime_name {
    gaddr at;
    struct chime_edge low;
    gaddr next;
    struct chime_edge high;
};
_Static_assert(sizeof(struct chime_name) == 64, "hashed as it is");
#define CHIME_NOWHERE UINT64_MAX /* `next` in the name of a dead node */

/* ---- sizes ----------------------------------------------------------------------------------- */

/* What follows from the tuning. */
struct chime_shape {
    unsigned span, hood; /* entries of a node; places where a key may be, from its home on */
    unsigned groups;
    uint32_t bytes, group_bytes; /* of a node, of all its groups */
};
static inline struct chime_shape chime_shape(unsigned span, unsigned hood)
{
    struct chime_shape s = {.span = span, .hood = hood, .groups = span / CHIME_GROUP};
    s.group_bytes = 8 * CHIME_GROUP_WORDS * s.groups;
    s.bytes = 8 * CHIME_HEAD_WORDS + s.group_bytes;
    return s;
}
static inline unsigned chime_node_class(const struct chime_shape *s)
{
    return size_class_for(s->bytes);
}
static inline uint64_t chime_group_at(unsigned group)
{
    return 8 * (CHIME_HEAD_WORDS + (uint64_t)CHIME_GROUP_WORDS * group);
}
static inline uint64_t chime_entry_at(unsigned place)
{
    return chime_group_at(place / CHIME_GROUP) + 8 + 16 * (uint64_t)(place % CHIME_GROUP);
}

#endif
