/*
 * The layout of a SepHash table in remote memory. Words have 8 bytes, low bits first.
 *
 *   root ----> first anchors, an array of addresses (constant)
 *      \-----> directory, 2^depth entries (advice)
 *
 *   anchor --> CurSegment -----> pages of the MainSegment
 *      \         header            entries, sorted by fp
 *       \        filter
 *        \       slots, in lanes
 *         \      FPTable
 *          \-> fork, if it was split --> two anchors
 *
 *   entry   address 40 | class 6 | fp 8 | fp2 6 | dep 4     in slots and in pages; 0: empty slot;
 *                                                          fp and fp2 are never all ones (WORDS-1)
 *   anchor  state: 0 | generation 23 | CurSegment 40        live
 *                  1 | 0              | fork 40             split, for good
 *           id:    suffix 32 | depth 8 | tag 24
 *
 * Only these words are ever changed, by CAS: an anchor's state, empty slots, entries of the
 * directory, the directory's word and the reserve in the root. Words of a filter are set to 1 by
 * WRITE. All else is written before anything points to it, and constant.
 */
#ifndef SEPHASH_LAYOUT_H
#define SEPHASH_LAYOUT_H

#include "index/slot.h"
#include "index/split_bits.h"

#define SEPHASH_SLOT                                                                               \
    ((struct slot_format){                                                                         \
        .generation = 0, .fingerprint_at = POINTER_OWN_AT(0), .fingerprint = SEPHASH_FP_BITS})
#define SEPHASH_FP_BITS  8
#define SEPHASH_FPS      (1u << SEPHASH_FP_BITS)
#define SEPHASH_FP2_BITS 6
#define SEPHASH_FP2_LAST ((1u << SEPHASH_FP2_BITS) - 1)
#define SEPHASH_FP2_AT   (POINTER_OWN_AT(0) + SEPHASH_FP_BITS)
#define SEPHASH_DEP_AT   (SEPHASH_FP2_AT + SEPHASH_FP2_BITS)
#define SEPHASH_TAG      (~0ull << POINTER_OWN_AT(0)) /* fp, fp2, dep: all that a word says of its key */
_Static_assert(SEPHASH_DEP_AT + INDEX_SPLIT_BITS == 64, "an entry is a word");

/* What a repair makes of an entry that leads nowhere: it leads to no block, and the slot stays
 * filled. */
#define SEPHASH_VOID (1ull << POINTER_CLASS_AT)

/* A delete whose key cannot be told any more, because its block is damaged: a tag, and no address
 * (SEPHASH-H9). */
#define SEPHASH_UNTOLD (2ull << POINTER_CLASS_AT)

/* No slot behind it in its lane is ever filled (SEPHASH-H2). */
#define SEPHASH_CLOSED (3ull << POINTER_CLASS_AT)

static inline bool sephash_untold(uint64_t entry)
{
    return (entry & ~SEPHASH_TAG) == SEPHASH_UNTOLD;
}

static inline unsigned sephash_fp(uint64_t entry)
{
    return slot_fingerprint(SEPHASH_SLOT, entry);
}
static inline unsigned sephash_fp2(uint64_t entry)
{
    return entry >> SEPHASH_FP2_AT & SEPHASH_FP2_LAST;
}
static inline unsigned sephash_dep(uint64_t entry)
{
    return (unsigned)(entry >> SEPHASH_DEP_AT);
}
static inline uint64_t sephash_tag(unsigned fp, unsigned fp2, uint64_t dep)
{
    ASSERT(fp < SEPHASH_FPS && fp2 <= SEPHASH_FP2_LAST && dep >> INDEX_SPLIT_BITS == 0);
    return (uint64_t)fp << POINTER_OWN_AT(0) | (uint64_t)fp2 << SEPHASH_FP2_AT |
           dep << SEPHASH_DEP_AT;
}
/* fp, fp2 and dep as a number. */
static inline uint32_t sephash_tag_of(uint64_t entry)
{
    return (uint32_t)(entry >> POINTER_OWN_AT(0));
}
static inline uint64_t sephash_entry(uint64_t pointer, uint64_t tag)
{
    return (pointer & ~SEPHASH_TAG) | tag;
}

/* ---- anchors and forks ----------------------------------------------------------------------- */
struct sephash_anchor {
    uint64_t state, id;
};
struct sephash_fork {
    uint64_t child[2]; /* addresses of anchors */
    uint64_t checksum;
};
#define SEPHASH_SMALL_CLASS     0 /* of both: an object of 64 bytes */
#define SEPHASH_GENERATION_BITS 23
#define SEPHASH_DEPTH_MAX       26u

static inline uint64_t sephash_live(gaddr cur, uint64_t generation)
{
    return cur << 24 | (generation & ((1u << SEPHASH_GENERATION_BITS) - 1)) << 1;
}
static inline uint64_t sephash_split_to(gaddr fork)
{
    ASSERT(fork != 0);
    return fork << 24 | 1;
}
static inline bool sephash_is_split(uint64_t state)
{
    return state & 1;
}
static inline gaddr sephash_target(uint64_t state) /* the CurSegment, or the fork */
{
    return state >> 24;
}
static inline uint64_t sephash_generation(uint64_t state)
{
    return (state & 0xffffff) >> 1;
}
_Static_assert(GADDR_BITS + SEPHASH_GENERATION_BITS + 1 == 64, "a state is a word");

static inline uint64_t sephash_fork_sum(const struct sephash_fork *fork)
{
    return hash_sum(fork->child, sizeof fork->child, 0);
}

/* ---- CurSegments ----------------------------------------------------------------------------- */
#define SEPHASH_PAGES     20u /* of a MainSegment, at most */
#define SEPHASH_SLOTS_MIN 4u  /* of a CurSegment */
#define SEPHASH_SLOTS_MAX 512u
#define SEPHASH_LANE_MIN  8u /* slots of a lane, if there are several */
#define SEPHASH_LANES_MAX (SEPHASH_SLOTS_MAX / SEPHASH_LANE_MIN)
#define SEPHASH_PAGE_MIN  8u /* entries */

struct sephash_head {
    uint64_t id;
    uint16_t entries;             /* of the MainSegment */
    uint16_t doubtful;            /* 1: some of them may hide others (SEPHASH-H9) */
    uint16_t err, points;         /* of the FPTable: sephash_table.c */
    uint64_t checksum;            /* of the header and the FPTable, without this word */
    uint64_t page[SEPHASH_PAGES]; /* pointers; 0: none */
    uint64_t unused;
};
_Static_assert(sizeof(struct sephash_head) == 192, "three lines");

/* What an FPTable has room for: a number for each fp, or record points. The paper's 32 are enough
 * for large segments; those that were just split take some more. */
#define SEPHASH_POINTS_MAX 128u

/* A record point: from this fp on, the deviation is that many units. */
static inline uint16_t sephash_point(unsigned fp, int8_t delta)
{
    ASSERT(fp < SEPHASH_FPS);
    return (uint16_t)(fp << 8 | (uint8_t)delta);
}
static inline unsigned sephash_point_fp(uint16_t point)
{
    return point >> 8;
}
static inline int8_t sephash_point_delta(uint16_t point)
{
    return (int8_t)(point & 0xff);
}

/* The sizes of a table's parts. */
struct sephash_shape {
    unsigned slots, buckets; /* of a CurSegment and its filter; no buckets: no filter */
    unsigned lane, lanes;    /* slots of a lane, and how many lanes there are */
    unsigned spill;          /* the slots behind them, for keys whose lanes are full */
    unsigned limit;          /* entries of a MainSegment from which on it is split */
    unsigned page;           /* entries of a page */
    bool plain;              /* the FPTable has a number for each fp */
};
static inline unsigned sephash_largest(unsigned a, unsigned b, unsigned c)
{
    return a > b ? (a > c ? a : c) : (b > c ? b : c);
}
/* Pages are as large as the sixteenth part of a MainSegment, so that little of the
 * last one is empty, and what one segment gives back serves any other. There is room for what a
 * segment has when it is split, and for some more. */
static inline void sephash_shape_set(struct sephash_shape *s, uint64_t slots, uint64_t ratio,
                                     bool filter, bool points, uint64_t lane)
{
    s->slots = (unsigned)slots;
    s->lanes = slots >= 2 * lane ? (unsigned)((slots - slots / 4) / lane) : 1;
    s->lane = s->lanes > 1 ? (unsigned)lane : s->slots / s->lanes;
    s->spill = s->slots - s->lanes * s->lane;
    s->buckets = filter ? s->slots : 0;
    s->limit = (unsigned)(slots * ratio);
    s->page = sephash_largest(SEPHASH_PAGE_MIN, (s->limit + 15) / 16,
                              (s->limit + 3 * s->slots + SEPHASH_PAGES - 1) / SEPHASH_PAGES);
    s->plain = !points;
}
static inline uint64_t sephash_filter_at(unsigned bucket)
{
    return sizeof(struct sephash_head) + 8ull * bucket;
}
static inline uint64_t sephash_slot_at(const struct sephash_shape *s, unsigned slot)
{
    return sizeof(struct sephash_head) + 8ull * (s->buckets + slot);
}
/* The slots that a key may have: those of its lane, then the spill. */
static inline unsigned sephash_reach(const struct sephash_shape *s)
{
    return s->lane + s->spill;
}
/* The slot that is such a one. */
static inline unsigned sephash_reached(const struct sephash_shape *s, unsigned lane, unsigned i)
{
    return i < s->lane ? lane * s->lane + i : s->lanes * s->lane + i - s->lane;
}
static inline uint64_t sephash_table_at(const struct sephash_shape *s)
{
    return sephash_slot_at(s, s->slots);
}
static inline unsigned sephash_points_max(const struct sephash_shape *s)
{
    return s->plain ? SEPHASH_FPS : SEPHASH_POINTS_MAX;
}
static inline unsigned sephash_cur_class(const struct sephash_shape *s)
{
    return size_class_for(sephash_table_at(s) + 2ull * sephash_points_max(s));
}
static inline unsigned sephash_page_class(const struct sephash_shape *s)
{
    return size_class_for(8ull * s->page);
}
/* How many pages hold that many entries, and how many of them the i-th one has. */
static inline unsigned sephash_pages(const struct sephash_shape *s, unsigned entries)
{
    return (entries + s->page - 1) / s->page;
}
static inline unsigned sephash_page_entries(const struct sephash_shape *s, unsigned entries,
                                            unsigned i)
{
    unsigned before = i * s->page;
    return entries - before < s->page ? entries - before : s->page;
}
/* How many pages a segment has: one more than it needs, perhaps (SEPHASH-H8). */
static inline unsigned sephash_pages_held(const uint64_t page[SEPHASH_PAGES])
{
    unsigned held = 0;
    while (held < SEPHASH_PAGES && page[held] != 0)
        held++;
    return held;
}
static inline unsigned sephash_room(const struct sephash_shape *s)
{
    return SEPHASH_PAGES * s->page;
}
static inline uint64_t sephash_head_sum(const struct sephash_head *h, const uint16_t *table)
{
    uint64_t sum = hash_sum(h, offsetof(struct sephash_head, checksum), h->entries);
    sum = hash_sum(h->page, sizeof h->page, sum);
    return hash_sum(table, 2ull * h->points, sum);
}

/* ---- root ------------------------------------------------------------------------------------ */
#define SEPHASH_RESERVE (SEPHASH_PAGES + 1) /* pages, and a CurSegment as the last one */

/* A word of the reserve is a pointer, and a sum of it in the bits above. */
static inline uint64_t sephash_spare(gaddr at, unsigned size_class)
{
    uint64_t pointer = at | (uint64_t)size_class << POINTER_CLASS_AT;
    return pointer | hash_sum(&pointer, sizeof pointer, 0) << POINTER_OWN_AT(0);
}
static inline bool sephash_spare_whole(uint64_t word)
{
    return word == sephash_spare(pointer_gaddr(word), pointer_class(word));
}

struct sephash_root {
    uint64_t directory;
    uint64_t reserve[SEPHASH_RESERVE]; /* objects for SEPHASH-H8; 0: none */
    uint64_t unused[2];
    uint64_t first; /* the array of the first anchors' addresses: 2^start of them */
    uint32_t start, depth_max;
    uint32_t slots, ratio, filter, points, depth, lane; /* of the tuning */
    uint64_t hot;
    uint64_t checksum; /* of the constant words before it */
    uint64_t reserved;
};
_Static_assert(offsetof(struct sephash_root, first) == 192, "three lines before what is constant");

#define SEPHASH_ROOT_CHANGES offsetof(struct sephash_root, first) /* bytes of it that may change */

static inline uint64_t sephash_root_sum(const struct sephash_root *root)
{
    size_t first = offsetof(struct sephash_root, first);
    return hash_sum(&root->first, offsetof(struct sephash_root, checksum) - first, 0);
}

#endif
