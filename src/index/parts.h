/*
 * Tables that are divided by the last bits of the hash, and grow part by part.
 *
 * A part has the keys with one suffix of the hash. `depth` is the number of bits of that suffix. An
 * anchor is the object by which all clients find a part. A split makes two new parts, with one bit
 * more:
 *
 *   root --> first anchors, an array of 2^start addresses (constant)
 *      \---> directory, 2^depth entries (advice)
 *
 *   anchor (depth d, suffix s) --> what the part contains
 *      \-- once it was split ----> anchor (d+1, s)
 *                            \---> anchor (d+1, s + 2^d)
 *
 *   entry   address 40 | depth 24             of the directory: an anchor. In the root: the
 *           directory itself
 *   id      suffix 32 | depth 8 | tag 24      in every anchor, constant: tells damage
 *
 * What a part contains, and how an anchor says that it was split, is the index's business. The
 * index keeps to this: an anchor is never freed while the table is there, and one that was split
 * leads to the same two children for ever.
 *
 *   PARTS-1  Every anchor of the right suffix is a good one to begin with: it is that of the part,
 *       or it leads there. So what a session knows of parts never becomes invalid, and an operation
 *       that reads the anchor it begins with learns of every split before that.
 *   PARTS-2  The directory is advice. A session reads it when it attaches, and takes an entry for a
 *       guess until it has found the id in the anchor. If the directory is damaged, the session
 *       begins with the first anchors. If a client dies before it has noted a split, or has no
 *       memory for a larger directory, then sessions that attach later begin with the anchor that
 *       was split.
 *   PARTS-3  An entry is only ever replaced by a deeper one, by CAS. The root's word is replaced by
 *       CAS, too, and behind what it names. The client whose CAS has replaced it retires the old
 *       directory, and no other does. Only operations that have read the root's word follow it
 *       (EPOCH-E3). If one client notes a split while another doubles the directory, the new
 *       directory may miss that split. That does no harm (PARTS-2).
 */
#ifndef INDEX_PARTS_H
#define INDEX_PARTS_H

#include "index/index.h"

/* ---- remote words ---------------------------------------------------------------------------- */
#define INDEX_DIRECTORY_BITS_MAX 19u /* the largest object holds that many */
#define INDEX_PART_DEPTH_MAX     32u /* bits of a suffix, in an id */

/* A directory entry, and the root's word for the directory itself: an address and a depth. */
_Static_assert(INDEX_PART_DEPTH_MAX < 0xff, "WORDS-1: no depth has all bits set");
static inline uint64_t index_deep(gaddr at, unsigned depth)
{
    return at | (uint64_t)depth << GADDR_BITS;
}
static inline unsigned index_deep_depth(uint64_t word)
{
    return (unsigned)(word >> GADDR_BITS);
}
static inline gaddr index_deep_at(uint64_t word)
{
    return word & GADDR_MASK;
}
/* The size class of a directory, and of the array of the first anchors. */
static inline unsigned index_directory_class(unsigned depth)
{
    return size_class_for(8ull << depth);
}
static inline uint64_t index_suffix(uint64_t hash, unsigned depth)
{
    return hash & ((1ull << depth) - 1);
}
/* The id of an anchor. */
static inline uint64_t index_anchor_id(uint64_t hash_seed, unsigned depth, uint64_t suffix)
{
    return suffix | (uint64_t)depth << 32 | hash_seed << 40;
}
static inline uint64_t index_anchor_suffix(uint64_t id)
{
    return (uint32_t)id;
}
static inline uint8_t index_anchor_depth(uint64_t id)
{
    return (uint8_t)(id >> 32);
}

/* ---- what a session knows -------------------------------------------------------------------- */
/* What is known of a part begins with this. */
struct index_part {
    gaddr anchor;
    uint64_t suffix;
    uint32_t bytes; /* of all that is known. Only parts.c sets it; in a copy it means nothing */
    uint8_t depth;
};

/* A session's directory. attach() sets all but the last two. */
struct index_parts {
    const struct index_table *table;
    gaddr first;               /* the array of the first anchors' addresses */
    unsigned start, depth_max; /* of the first parts; at most. attach() has judged them */
    uint32_t bytes;        /* of what is known of a part at first: zeros behind the index_part */
    uint32_t word_at;      /* in the root: the word for the directory */
    uint32_t anchor_bytes; /* at most 8 * OP_INDEX_WORDS */
    uint32_t id_at;        /* in an anchor: its id */
    unsigned depth;        /* there are 2^depth entries, some of them the same */
    struct index_part **entry;
};

/* Reads the directory that `word` names, or if that is damaged the first anchors. Needs BUF_BULK.
 * After an error, too, index_parts_detach() is called. */
int index_parts_attach(struct op *op, struct index_parts *parts, uint64_t word);
void index_parts_detach(struct index_parts *parts);
/* Local memory for all that is known. */
uint64_t index_parts_bytes(const struct index_parts *parts);

static inline struct index_part *index_part_of(const struct index_parts *parts, uint64_t hash)
{
    return parts->entry[index_suffix(hash, parts->depth)];
}
/* What is known in place of `like`, a copy. NULL: the session knows another part there by now. */
struct index_part *index_part_known(const struct index_parts *parts, const struct index_part *like);
/* Makes room for more bytes; those that are new are not cleared. NULL: there is no memory, and
 * `part` stays as it is. */
struct index_part *index_part_grow(struct index_parts *parts, struct index_part *part,
                                   uint32_t bytes);
/* The id that the part's anchor must have. */
static inline uint64_t index_part_id(const struct index_parts *parts, const struct index_part *part)
{
    return index_anchor_id(parts->table->desc.hash_seed, part->depth, part->suffix);
}
/* Notes that a part was split, and the children's anchors, unless the session knows that.
 * FAR_CORRUPT: there can be no parts of that depth. */
int index_parts_know_split(struct index_parts *parts, const struct index_part *parent,
                           const uint64_t child[2]);
/* What is known leads to no anchor with the right id, because the directory was damaged: goes back
 * to the first anchor. FAR_CORRUPT: that one is damaged as well. */
int index_parts_restart(struct op *op, struct index_parts *parts, const struct index_part *bad);

/* ---- a new table ----------------------------------------------------------------------------- */
/* Writes the directory and the array of the first anchors, in a round trip. `anchor` are their
 * addresses, 2^start of them, with room for as many words behind `entries`; both are in a buffer of
 * the operation. *word: the root's. */
int index_parts_write_first(struct op *op, unsigned start, const uint64_t *anchor, gaddr first,
                            gaddr directory, uint64_t *entries, uint64_t *word);

/* ---- the remote directory, after a split ----------------------------------------------------- */
/* Does the directory have to be doubled for the children? Then index_parts_advise() needs its
 * entries. */
static inline bool index_parts_doubles(const struct index_parts *parts, uint64_t word,
                                       const struct index_part *parent)
{
    unsigned depth = index_deep_depth(word);
    return depth <= parent->depth && depth < INDEX_DIRECTORY_BITS_MAX &&
           index_inside(parts->table->pool, index_deep_at(word), 8ull << depth);
}
/* Brings the directory up to date: `word` is the root's word for it, which this operation has read,
 * and `image` its entries if it has to be doubled (not in BUF_BULK), or else NULL. Errors do not
 * matter. */
void index_parts_advise(struct op *op, const struct index_parts *parts,
                        const struct index_part *parent, const uint64_t child[2], uint64_t word,
                        const uint64_t *image);

#endif
