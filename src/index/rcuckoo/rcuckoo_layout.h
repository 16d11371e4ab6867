/*
 * The layout of an RCuckoo table in remote memory. Words have 8 bytes, low bits first.
 *
 *   root ----> first anchors, an array of addresses (constant)
 *      \-----> directory, 2^depth entries (advice)
 *
 *   anchor --> rows, an object of their own on the anchor's node
 *      |       head: id, rows, sibling, forward, closer, repair
 *      |       lock words
 *      \-----> an anchor, if it was split: the first child, whose sibling is the second
 *
 *   lock word  locks 62 | R: closed for repair | S: closed for a split
 *   row        8 entries | 8 tags of a byte | meta: moved 1 | version 16 | checksum 47
 *   entry      key | value           inline
 *              key | pointer         value in a block
 *              hash | pointer        key and value in a block
 *
 * The tag of an entry says which of the three it is, and how long key and value are. If a byte is
 * too small for that, entries begin with a word for the lengths.
 */
#ifndef RCUCKOO_LAYOUT_H
#define RCUCKOO_LAYOUT_H

#include "index/parts.h"
#include "index/slot.h"

#include <string.h>

#define RCUCKOO_SLOTS     8u /* entries of a row */
#define RCUCKOO_ENTRY_MAX 320u
#define RCUCKOO_ROWS_MAX  16384u /* of a subtable */
#define RCUCKOO_MODULI    24u

/* How the parts of a table are cut: by its tuning, and the same for all clients. */
struct rcuckoo_shape {
    unsigned rows;             /* of a subtable */
    unsigned key, value;       /* bytes that fit inline */
    unsigned key_at, value_at; /* words of an entry */
    unsigned entry;            /* words */
    unsigned row;              /* words */
    bool wide;                 /* entries begin with the lengths */
    unsigned lock_rows, locks; /* rows of a lock, locks of a word */
    unsigned block;            /* rows of a word */
    unsigned words;            /* lock words of a subtable */
    unsigned path;             /* rows that an insert changes, at most */
    uint32_t modulus[RCUCKOO_MODULI];
};

/* ---- entries --------------------------------------------------------------------------------- */
/* A pointer. In hints, with bits of the key's hash where it has zeros. */
#define RCUCKOO_HINT                                                                               \
    ((struct slot_format){.generation = 6,                                                         \
                          .fingerprint_at = POINTER_OWN_AT(6),                                     \
                          .fingerprint = 64 - POINTER_OWN_AT(6)})
#define RCUCKOO_POINTER                                                                            \
    ((struct slot_format){.generation = 6, .fingerprint_at = POINTER_OWN_AT(6), .fingerprint = 0})

enum rcuckoo_kind { RCUCKOO_EMPTY, RCUCKOO_INLINE, RCUCKOO_VALUE_OUT, RCUCKOO_KEY_OUT };

struct rcuckoo_entry {
    enum rcuckoo_kind kind;
    unsigned klen, vlen; /* of what is inline */
};

/* Tags without lengths in the entry: 0 | inline, by both lengths | value out, by the key's | key
 * out. */
static inline unsigned rcuckoo_tag_value_out(const struct rcuckoo_shape *s)
{
    return 1 + s->key * (s->value + 1);
}
static inline unsigned rcuckoo_tag_key_out(const struct rcuckoo_shape *s)
{
    return rcuckoo_tag_value_out(s) + s->key;
}
static inline uint8_t rcuckoo_tag(const struct rcuckoo_shape *s, struct rcuckoo_entry e)
{
    if (s->wide || e.kind == RCUCKOO_EMPTY)
        return (uint8_t)e.kind;
    if (e.kind == RCUCKOO_KEY_OUT)
        return (uint8_t)rcuckoo_tag_key_out(s);
    if (e.kind == RCUCKOO_VALUE_OUT)
        return (uint8_t)(rcuckoo_tag_value_out(s) + e.klen - 1);
    return (uint8_t)(1 + (e.klen - 1) * (s->value + 1) + e.vlen);
}
static inline uint64_t rcuckoo_lengths(struct rcuckoo_entry e)
{
    return e.klen | (uint64_t)e.vlen << 16;
}
/* False: there are no such entries. */
static inline bool rcuckoo_entry_of(const struct rcuckoo_shape *s, unsigned tag,
                                    const uint64_t *words, struct rcuckoo_entry *e)
{
    *e = (struct rcuckoo_entry){RCUCKOO_EMPTY, 0, 0};
    if (tag == 0)
        return true;
    if (s->wide) {
        *e = (struct rcuckoo_entry){(enum rcuckoo_kind)tag, words[0] & 0xffff, words[0] >> 16};
        bool key = tag == RCUCKOO_KEY_OUT ? e->klen == 0 : e->klen > 0 && e->klen <= s->key;
        return tag <= RCUCKOO_KEY_OUT && key && words[0] >> 32 == 0 &&
               e->vlen <= (tag == RCUCKOO_INLINE ? s->value : 0);
    }
    if (tag > rcuckoo_tag_key_out(s))
        return false;
    if (tag == rcuckoo_tag_key_out(s)) {
        e->kind = RCUCKOO_KEY_OUT;
    } else if (tag >= rcuckoo_tag_value_out(s)) {
        *e = (struct rcuckoo_entry){RCUCKOO_VALUE_OUT, tag - rcuckoo_tag_value_out(s) + 1, 0};
    } else {
        *e = (struct rcuckoo_entry){RCUCKOO_INLINE, (tag - 1) / (s->value + 1) + 1,
                                    (tag - 1) % (s->value + 1)};
    }
    return true;
}

/* ---- rows ------------------------------------------------------------------------------------ */
#define RCUCKOO_MOVED         1u
#define RCUCKOO_VERSION_AT    1u
#define RCUCKOO_VERSION_MASK  0xffffu
#define RCUCKOO_CHECKSUM_MASK (~0ull << 17)

static inline uint32_t rcuckoo_row_bytes(const struct rcuckoo_shape *s)
{
    return 8 * s->row;
}
static inline uint64_t *rcuckoo_slot(const struct rcuckoo_shape *s, uint64_t *row, unsigned slot)
{
    return row + (size_t)slot * s->entry;
}
static inline uint8_t *rcuckoo_tags(const struct rcuckoo_shape *s, uint64_t *row)
{
    return (uint8_t *)(row + s->row - 2);
}
static inline uint64_t *rcuckoo_meta(const struct rcuckoo_shape *s, uint64_t *row)
{
    return row + s->row - 1;
}
static inline unsigned rcuckoo_version(uint64_t meta)
{
    return meta >> RCUCKOO_VERSION_AT & RCUCKOO_VERSION_MASK;
}
/* The meta word of a row that is not moved. Its checksum covers where the row belongs. */
static inline uint64_t rcuckoo_meta_of(const struct rcuckoo_shape *s, uint64_t id, unsigned number,
                                       const uint64_t *row, unsigned version)
{
    uint64_t seed = id ^ ((uint64_t)number << 16 | version) * 0x9e3779b97f4a7c15u;
    uint64_t sum = hash_sum(row, 8 * (size_t)(s->row - 1), seed);
    return (sum & RCUCKOO_CHECKSUM_MASK) | (uint64_t)version << RCUCKOO_VERSION_AT;
}
static inline bool rcuckoo_row_whole(const struct rcuckoo_shape *s, uint64_t id, unsigned number,
                                     const uint64_t *row)
{
    uint64_t meta = row[s->row - 1] & ~(uint64_t)RCUCKOO_MOVED;
    return meta == rcuckoo_meta_of(s, id, number, row, rcuckoo_version(meta));
}
static inline unsigned rcuckoo_row_used(const struct rcuckoo_shape *s, const uint64_t *row)
{
    uint64_t tags = row[s->row - 2], used = 0;
    for (; tags; tags >>= 8)
        used += (tags & 0xff) != 0;
    return (unsigned)used;
}
/* The first slot without an entry, or RCUCKOO_SLOTS. */
static inline unsigned rcuckoo_row_free(const struct rcuckoo_shape *s, uint64_t *row)
{
    unsigned slot = 0;
    while (slot < RCUCKOO_SLOTS && rcuckoo_tags(s, row)[slot] != 0)
        slot++;
    return slot;
}

/* ---- subtables ------------------------------------------------------------------------------- */
#define RCUCKOO_WORDS_MAX 64u /* lock words */
#define RCUCKOO_LOCK_BITS 62u
#define RCUCKOO_REPAIR    (1ull << 62) /* R */
#define RCUCKOO_CLOSED    (1ull << 63) /* S */

static inline uint32_t rcuckoo_rows_bytes(const struct rcuckoo_shape *s)
{
    return s->rows * rcuckoo_row_bytes(s);
}
static inline unsigned rcuckoo_rows_class(const struct rcuckoo_shape *s)
{
    return size_class_for(rcuckoo_rows_bytes(s));
}

struct rcuckoo_anchor {
    uint64_t id;       /* constant */
    uint64_t rows;     /* constant: a pointer to the object with the rows */
    uint64_t sibling;  /* constant: of a first child, the address of the second one */
    uint64_t checksum; /* of the three */
    uint64_t forward;  /* 0, or the address of the first child: it was split, for good */
    uint64_t closer;   /* 0, or the owner word of the client that has closed it */
    uint64_t repair;   /* 0, or the stamp of the journal line whose locks are being released */
    uint64_t since;    /* 0, or the epoch when R was set: RCUCKOO-C9 */
};
_Static_assert(sizeof(struct rcuckoo_anchor) == 64, "one line; the lock words follow");

static inline uint64_t rcuckoo_anchor_sum(const struct rcuckoo_anchor *a)
{
    return hash_sum(a, offsetof(struct rcuckoo_anchor, checksum), 0);
}
/* A new anchor. The rest is 0. */
static inline void rcuckoo_anchor_init(struct rcuckoo_anchor *a, uint64_t id,
                                       const struct rcuckoo_shape *s, gaddr rows, gaddr sibling)
{
    a->id = id;
    a->sibling = sibling;
    a->rows = rows | (uint64_t)rcuckoo_rows_class(s) << POINTER_CLASS_AT;
    a->checksum = rcuckoo_anchor_sum(a);
}
static inline uint64_t rcuckoo_word_at(unsigned word)
{
    return sizeof(struct rcuckoo_anchor) + 8ull * word;
}
/* Of an anchor with its lock words. */
static inline uint32_t rcuckoo_anchor_bytes(const struct rcuckoo_shape *s)
{
    return (uint32_t)rcuckoo_word_at(s->words);
}
static inline unsigned rcuckoo_anchor_class(const struct rcuckoo_shape *s)
{
    return size_class_for(rcuckoo_anchor_bytes(s));
}
/* Which lock has a row: virtual locks share the words and bits that there are. */
static inline unsigned rcuckoo_lock_word(const struct rcuckoo_shape *s, unsigned row)
{
    return row / s->block % s->words;
}
static inline uint64_t rcuckoo_lock_bit(const struct rcuckoo_shape *s, unsigned row)
{
    return 1ull << row / s->lock_rows % s->locks % RCUCKOO_LOCK_BITS;
}

/* ---- journal lines --------------------------------------------------------------------------- */
#define RCUCKOO_LOCK_WORDS 4u /* that an operation takes at once, at most */

/* The intent: these locks. Only `count` of them are written. */
struct rcuckoo_intent {
    uint64_t anchor; /* address 40, count above it */
    struct rcuckoo_locked {
        uint64_t word, mask;
    } lock[RCUCKOO_LOCK_WORDS];
};
_Static_assert(sizeof(struct rcuckoo_intent) <= 88, "fits into an intent");
static inline uint64_t rcuckoo_intent_anchor(gaddr at, unsigned count)
{
    ASSERT(at != 0 && count <= RCUCKOO_LOCK_WORDS);
    return at | (uint64_t)count << GADDR_BITS;
}
static inline gaddr rcuckoo_intent_at(uint64_t anchor)
{
    return anchor & GADDR_MASK;
}
static inline unsigned rcuckoo_intent_count(uint64_t anchor)
{
    return (unsigned)(anchor >> GADDR_BITS);
}
static inline size_t rcuckoo_intent_bytes(unsigned count)
{
    return 8 + 16 * (size_t)count;
}

/* The redo: for each row, in the order in which they are written, a word and the new entry. */
#define RCUCKOO_REDO_BYTES 328u
#define RCUCKOO_PATH_MAX   6u /* rows: five moves and the new key */
static inline uint64_t rcuckoo_redo_word(unsigned row, unsigned slot, unsigned tag,
                                         unsigned version)
{
    ASSERT(slot < RCUCKOO_SLOTS && tag <= 0xff && version <= RCUCKOO_VERSION_MASK);
    return row | (uint64_t)slot << 32 | (uint64_t)tag << 40 | (uint64_t)version << 48;
}

static inline unsigned rcuckoo_redo_row(uint64_t word)
{
    return (uint32_t)word;
}
static inline unsigned rcuckoo_redo_slot(uint64_t word)
{
    return word >> 32 & 0xff;
}
static inline unsigned rcuckoo_redo_tag(uint64_t word)
{
    return word >> 40 & 0xff;
}
static inline unsigned rcuckoo_redo_version(uint64_t word)
{
    return (unsigned)(word >> 48);
}

/* ---- root ------------------------------------------------------------------------------------ */
struct rcuckoo_root {
    uint64_t directory;
    uint64_t hot; /* constant: KiB for hints. Not in the checksum: roots of 0.5 have 0 here */
    uint64_t unused[6];
    uint64_t first; /* the array of the first anchors' addresses: 2^start of them */
    uint32_t start, depth_max;
    uint32_t tuning[8];
    uint32_t modulus[RCUCKOO_MODULI];
    uint64_t checksum; /* of the constant words before it */
};
#define RCUCKOO_ROOT_CHANGES offsetof(struct rcuckoo_root, first)
_Static_assert(RCUCKOO_ROOT_CHANGES == 64, "a line before what is constant");

static inline uint64_t rcuckoo_root_sum(const struct rcuckoo_root *root)
{
    return hash_sum(&root->first, offsetof(struct rcuckoo_root, checksum) - RCUCKOO_ROOT_CHANGES,
                    0);
}

#endif
