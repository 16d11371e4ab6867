/* clang-format off */
/*
 * SHARD in remote memory: every structure and word, each with its encoder and decoder.
 *
 *   root                       segment r: two arrays
 *   +------------------+       units: level 1 and 2 of each bucket     tops: level 3
 *   | resize           |       +--------------------------+-------+    +---+
 *   | count            |       | 64 words                 | 8     |    | 1 |  bucket 0
 *   | parameters       |       | 64 words                 | 8     |    | 1 |  bucket 1
 *   | segment 0..39    | ----> | ...                      |       |    |   |
 *   +------------------+       +--------------------------+-------+    +---+
 *
 *   Segment 0 has S buckets in each lane, segment r has S * 2^(r-1). At version v the bucket of a
 *   hash is its lowest bits: hash mod S * 2^v. Lanes are the pool's nodes. A bucket and its
 *   children are in one lane, and so on one node.
 *
 *   The slots of a bucket are numbered through its levels: 0..63, 64..71, 72. Slot 72 may be a link
 *   to a chain node of 8 more, whose last one may be a link again.
 *
 *   entry      0 2 | seal 2 | sid 4 | fingerprint 7 | generation 3 | class 6 | gaddr 40
 *   tombstone  1 2 | the entry that was deleted
 *   link       2 2 | 0 16 | class 6 | gaddr 40
 *   control    3 2 | what 3 | overflow 1 | 58 bits
 *     free       stage                    2u+1: the move from version u has freed it
 *     mark       done 1 | entries 7       slot 63 of a new bucket
 *     plan       sealed 1 | version 8     a move to this version has begun
 *     open       stamp                    free, after the purge with this stamp
 *     complete   stamp                    the same; and its fillers are free
 *     filler     stamp                    was a tombstone; free when the purge is complete
 *   0          free if the bucket is published, else not filled yet
 *
 *   resize     steps 8 | epoch 48 | version 8     the last resize: to which version, over how many
 *                                         more than one, and its barrier (0: not known yet)
 *   claim      version 8 | owner word 56  a client resizes the table to this version
 */
/* clang-format on */
#ifndef SHARD_LAYOUT_H
#define SHARD_LAYOUT_H

#include "index/slot.h"

#define SHARD_SEGMENTS   40
#define SHARD_LEVEL1     64 /* entries by default */
#define SHARD_LEVEL1_MIN 4
#define SHARD_HOT        4096 /* KiB by default */
#define SHARD_HOT_MAX    (4u << 20)
#define SHARD_NODE_WORDS 8u /* of a chain */
#define SHARD_CHAIN_MAX  32u
#define SHARD_CHAIN_FULL                                                                           \
    28u /* inserts do not make it longer: all of it may have to go to a child */
#define SHARD_UNIT_MAX (SHARD_LEVEL1 + SHARD_LEVEL1 / 8 + 1 + SHARD_CHAIN_MAX * SHARD_NODE_WORDS)

/* ---- words ----------------------------------------------------------------------------------- */
#define SHARD_SLOT ((struct slot_format){.generation = 3, .fingerprint_at = 49, .fingerprint = 7})
_Static_assert(POINTER_OWN_AT(3) <= 49, "a pointer fits below the fingerprint");

#define SHARD_KIND_AT 62
#define SHARD_SEAL_AT 60
#define SHARD_SID_AT  56
#define SHARD_SID     (15ull << SHARD_SID_AT)
#define SHARD_SEALED  (3ull << SHARD_SEAL_AT)

enum shard_kind { SHARD_ENTRY, SHARD_TOMBSTONE, SHARD_LINK, SHARD_CONTROL };
enum shard_what {
    SHARD_FREE,
    SHARD_MARK,
    SHARD_PLAN,
    SHARD_OPEN,
    SHARD_FILLER,
    SHARD_COMPLETE,
    SHARD_WHATS
};
_Static_assert(SHARD_WHATS <= 7, "WORDS-1: no `what` has all bits set");

#define SHARD_WHAT_AT     59
#define SHARD_OVERFLOW    (1ull << 58)
#define SHARD_STAMP_BITS  CLIENT_STAMP_BITS
#define SHARD_STAMP       ((1ull << SHARD_STAMP_BITS) - 1)
#define SHARD_MARK_DONE   (1ull << 7)
#define SHARD_PLAN_SEALED (1ull << 8) /* all that goes is sealed */

static inline enum shard_kind shard_kind(uint64_t word)
{
    return (enum shard_kind)(word >> SHARD_KIND_AT);
}
static inline bool shard_is_entry(uint64_t word)
{
    return word != 0 && shard_kind(word) == SHARD_ENTRY;
}
/* An entry that no move has sealed. */
static inline bool shard_live(uint64_t word)
{
    return word != 0 && word >> SHARD_SEAL_AT == 0;
}
/* The bits by which live entries differ from all other words. */
#define SHARD_LIVE_MASK (3ull << SHARD_KIND_AT | SHARD_SEALED)
/* How the move from version u to u+1 seals an entry. */
static inline uint64_t shard_seal(unsigned u)
{
    return (1ull + (u & 1)) << SHARD_SEAL_AT;
}
static inline bool shard_sealed_by(uint64_t word, unsigned u)
{
    return shard_is_entry(word) && (word & SHARD_SEALED) == shard_seal(u);
}
static inline uint64_t shard_unsealed(uint64_t entry)
{
    return entry & ~SHARD_SEALED;
}
static inline uint64_t shard_with_sid(uint64_t entry, uint64_t sid)
{
    return (entry & ~SHARD_SID) | sid << SHARD_SID_AT;
}
/* An entry with the bits of another key. */
static inline uint64_t shard_with_key(uint64_t entry, uint64_t fingerprint, uint64_t sid)
{
    entry &= ~slot_fingerprint_mask(SHARD_SLOT);
    return shard_with_sid(entry | slot_fingerprint_word(SHARD_SLOT, fingerprint), sid);
}
static inline uint64_t shard_tombstone(uint64_t entry)
{
    return entry | (uint64_t)SHARD_TOMBSTONE << SHARD_KIND_AT;
}
static inline uint64_t shard_link(gaddr node)
{
    return (uint64_t)SHARD_LINK << SHARD_KIND_AT |
           (uint64_t)size_class_for(SHARD_NODE_WORDS * 8) << POINTER_CLASS_AT | node;
}
static inline uint64_t shard_control(enum shard_what what, uint64_t number, bool overflow)
{
    ASSERT(what < SHARD_WHATS && number <= SHARD_STAMP);
    return (uint64_t)SHARD_CONTROL << SHARD_KIND_AT | (uint64_t)what << SHARD_WHAT_AT |
           (overflow ? SHARD_OVERFLOW : 0) | number;
}
static inline bool shard_is(uint64_t word, enum shard_what what)
{
    return word >> SHARD_WHAT_AT == ((uint64_t)SHARD_CONTROL << 3 | what);
}
static inline uint64_t shard_number(uint64_t control)
{
    return control & SHARD_STAMP;
}
static inline unsigned shard_plan_version(uint64_t plan)
{
    return plan & 0xff;
}
static inline unsigned shard_mark_entries(uint64_t mark)
{
    return mark & (SHARD_MARK_DONE - 1);
}
/* May there be entries in the levels behind this word? Asked of the last word of level 1 and 2. */
static inline bool shard_overflows(uint64_t word)
{
    if (shard_kind(word) == SHARD_CONTROL && !shard_is(word, SHARD_FILLER))
        return word & SHARD_OVERFLOW;
    return word != 0;
}
/* A word that the move from version u frees. */
static inline uint64_t shard_freed(uint64_t word, unsigned u)
{
    return shard_control(SHARD_FREE, 2 * u + 1, shard_overflows(word));
}
static inline bool shard_freed_by(uint64_t word, unsigned u)
{
    return shard_is(word, SHARD_FREE) && shard_number(word) == 2 * u + 1;
}
/*
 * A candidate of version u is a word that an insert may use, when its turn comes: free, or an entry
 * that an earlier move has taken away.
 */
static inline bool shard_candidate(uint64_t word, unsigned u)
{
    if (word == 0 || shard_is(word, SHARD_FREE) || shard_is(word, SHARD_MARK) ||
        shard_is(word, SHARD_OPEN) || shard_is(word, SHARD_COMPLETE))
        return true;
    if (shard_is(word, SHARD_PLAN))
        return shard_plan_version(word) <= u;
    return shard_sealed_by(word, u + 1); /* the same as u - 1 */
}
/* Words that become free when a purge is complete: what is deleted, and what an incomplete purge
 * has left. */
static inline bool shard_purgeable(uint64_t word)
{
    return shard_kind(word) == SHARD_TOMBSTONE || shard_is(word, SHARD_FILLER);
}
static inline bool shard_tagged(uint64_t word)
{
    return shard_is(word, SHARD_OPEN) || shard_is(word, SHARD_COMPLETE) ||
           shard_is(word, SHARD_FILLER);
}
static inline bool shard_word_valid(uint64_t word)
{
    return shard_kind(word) != SHARD_CONTROL || ((word >> SHARD_WHAT_AT) & 7) < SHARD_WHATS;
}

/* ---- chains ---------------------------------------------------------------------------------- */
static inline bool shard_is_link(uint64_t word)
{
    return shard_kind(word) == SHARD_LINK;
}

/* ---- root ------------------------------------------------------------------------------------ */
struct shard_root {
    uint64_t resize;
    uint64_t count; /* keys, as far as sessions have reported them */
    uint64_t claim; /* of the client that resizes the table */
    uint64_t draft; /* a pointer to a struct shard_draft_head; 0: there is none */
    uint64_t unused[4];
    uint32_t start_bits; /* segment 0 has 2^start_bits buckets in a lane */
    uint32_t lanes;
    uint32_t level1, level2;
    uint32_t load, alpha, sync, combining; /* of the tuning */
    uint64_t hot;                          /* of the tuning, too */
    uint64_t reserved[2];
    uint64_t checksum; /* of the second line before it */
    struct shard_segment_refs {
        uint64_t units, tops; /* arrays (pool/array.h); 0: not made yet */
    } segment[SHARD_SEGMENTS];
};
_Static_assert(offsetof(struct shard_root, segment) == 128, "two lines before the segments");

/* A draft is a segment that is cleared ahead of its resize (SHARD-S11). This does not change while
 * the root's word leads to it. */
struct shard_draft_head {
    uint64_t stamp;   /* no other draft has it */
    uint64_t version; /* that the segment is for */
    struct shard_segment_refs segment;
    uint64_t checksum;
};
#define SHARD_DRAFT_READY (1ull << 63) /* in the word: all is clear */

static inline uint64_t shard_root_sum(const struct shard_root *root)
{
    size_t first = offsetof(struct shard_root, start_bits);
    return hash_sum(&root->start_bits, offsetof(struct shard_root, checksum) - first, 0);
}

_Static_assert(SHARD_SEGMENTS < 0xff, "WORDS-1: no version, and no steps, have all bits set");
static inline uint64_t shard_resize(unsigned version, uint64_t epoch)
{
    ASSERT(version < SHARD_SEGMENTS);
    return (epoch & ((1ull << 48) - 1)) << 8 | version;
}
#define SHARD_CLAIM_VERSION_AT 56
static inline uint64_t shard_claim(unsigned version, uint64_t owner)
{
    ASSERT(version < SHARD_SEGMENTS && owner >> SHARD_CLAIM_VERSION_AT == 0);
    return (uint64_t)version << SHARD_CLAIM_VERSION_AT | owner;
}
static inline unsigned shard_claim_version(uint64_t claim)
{
    return (unsigned)(claim >> SHARD_CLAIM_VERSION_AT);
}
static inline uint64_t shard_claim_owner(uint64_t claim)
{
    return claim & ((1ull << SHARD_CLAIM_VERSION_AT) - 1);
}
static inline unsigned shard_resize_version(uint64_t resize)
{
    return resize & 0xff;
}
static inline uint64_t shard_resize_epoch(uint64_t resize)
{
    return resize >> 8 & ((1ull << 48) - 1);
}
/* A resize may go over several versions at once. */
#define SHARD_RESIZE_STEPS_AT 56
static inline uint64_t shard_resize_over(uint64_t resize, unsigned steps)
{
    ASSERT(steps > 0 && steps <= shard_resize_version(resize));
    return resize | (uint64_t)(steps - 1) << SHARD_RESIZE_STEPS_AT;
}
static inline unsigned shard_resize_steps(uint64_t resize)
{
    return (unsigned)(resize >> SHARD_RESIZE_STEPS_AT) + 1;
}

#endif
