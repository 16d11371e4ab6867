/*
 * A hash trie: the smallest index that is complete. It is an example and not for users.
 * docs/writing-an-index.md takes it apart; programs that are linked with trie_add.c find it as
 * "trie".
 *
 * A key's hash chooses one word at each level. The word is empty, names the block of a key, or
 * names a node of the next level:
 *
 *   root               node, level 0           node, level 1
 *   +------------+     +-------------+         +-------------+
 *   | first node | --> | id          |    +--> | id          |
 *   | tuning     |     | block of k1 |    |    | 0           |
 *   | checksum   |     | node        | ---+    | block of k2 |
 *   +------------+     | 0           |         | block of k3 |
 *                      +-------------+         +-------------+
 *
 * The life of a word: each arrow is one CAS
 *
 *            insert             update                growth
 *   empty ------------> block ----------> block' ------------> node, for ever
 *     ^                   |
 *     +-------------------+
 *            delete
 *
 * Guarantees
 *
 *   TRIE-T1  A block, and a node with the words that it begins with, is whole before a word names
 *       it: a flush or a fence lies between. A block never changes, nor does the id of a node.
 *   TRIE-T2  A word that names a node never changes again. So a node stays as long as the table,
 *       and what a session knows of nodes stays true.
 *   TRIE-T3  A key has one place: the first word on its path that names no node. The key is there
 *       if and only if that word names its block. So one READ of the word decides a lookup, and one
 *       CAS of it a change: these are the linearization points. By TRIE-T2, it does not matter when
 *       the words before it were read.
 *   TRIE-T4  If the word names the block of another key, the table grows: a new node gets that
 *       word, where the other key looks for it at the next level, and the word of the new key, if
 *       that has another place there. One CAS puts the node in the place of the word. The other key
 *       is there before and after, with the same block.
 *   TRIE-T5  A CAS expects a word that this operation has read (PTR-2), or one that this session
 *       has written (HINT-H2), or 0. If it finds the word, what the operation knows of the place is
 *       true, whatever was there meanwhile: 0 means that no key has this place, and no node can
 *       have come and gone (TRIE-T2).
 *   TRIE-T6  The id of a node follows from its path. An operation believes no word of a node with
 *       another id, and changes none.
 *
 * A client that dies leaves no lock and nothing half done: at most a block or a node that no word
 * names, for a sweep. So there is no journal and no recover().
 *
 * Progress: lock-free. A CAS fails only because another one has succeeded. A get has no loop but
 * that of the levels.
 *
 * Limits: nodes are not given back before the table is dropped. Two keys that have the same place
 * at all levels do not fit into one table: FAR_TABLE_FULL.
 */
#ifndef TRIE_TRIE_H
#define TRIE_TRIE_H

#include "index/attempt.h"
#include "index/change.h"
#include "index/index.h"
#include "index/own.h"

/* ---- what is in remote memory ---------------------------------------------------------------- */

struct trie_root {       /* constant */
    uint64_t first;      /* gaddr of the node of level 0 */
    uint64_t lines, hot; /* the tuning */
    uint64_t unused[4];
    uint64_t checksum; /* of all before it */
};
_Static_assert(sizeof(struct trie_root) == 64, "a root is a cache line");

static inline uint64_t trie_root_sum(const struct trie_root *root)
{
    return hash_sum(root, offsetof(struct trie_root, checksum), 0);
}

static inline uint64_t trie_mix(uint64_t a, uint64_t b)
{
    uint64_t both[] = {a, b};
    return hash_sum(both, sizeof both, 0);
}

/* A node has its id, and then its words: with the id, they fill whole lines. */
static inline uint64_t trie_first_id(uint64_t hash_seed)
{
    return trie_mix(hash_seed, 0);
}
static inline uint64_t trie_child_id(uint64_t id, unsigned digit)
{
    return trie_mix(id, digit);
}
static inline uint64_t trie_word_offset(unsigned digit)
{
    return 8 + digit * 8ull;
}

/* A word that names a block:  0 2 | fingerprint 8 | generation 8 | class 6 | gaddr 40 */
#define TRIE_SLOT ((struct slot_format){.generation = 8, .fingerprint_at = 54, .fingerprint = 8})
_Static_assert(POINTER_OWN_AT(8) <= 54, "a pointer fits below the fingerprint");

/* A word that names a node:   1 | 0 23 | gaddr 40 */
#define TRIE_NODE (1ull << 63)
static inline uint64_t trie_node_word(gaddr node)
{
    return TRIE_NODE | node;
}
static inline bool trie_is_node(uint64_t word)
{
    return word & TRIE_NODE;
}
static inline gaddr trie_node_at(uint64_t word) /* 0, which is nowhere, if the word is damaged */
{
    return word == trie_node_word(word & GADDR_MASK) ? word & GADDR_MASK : 0;
}

/* ---- what a session keeps -------------------------------------------------------------------- */

enum trie_tuning { TRIE_TUNING_LINES, TRIE_TUNING_HOT };

#define TRIE_KNOWN 1024u /* nodes that a session remembers, at most */
struct trie_known {
    uint64_t id; /* 0: free */
    gaddr at;
    unsigned level;
};

struct trie_view {
    struct index_view base; /* comes first */
    struct trie_root root;
    unsigned words, bytes, size_class; /* of a node */
    unsigned bits, levels;             /* of a position */
    struct trie_known known[TRIE_KNOWN];
    struct index_hints *hints;
    struct index_owns owns;
};
static inline struct trie_view *trie_view(struct index_view *base)
{
    return (struct trie_view *)base;
}

/*
 * A position has a digit for each level, the first one on top: which word of the node it is. A key
 * has one, which its hash decides. The cursor of an iteration is one.
 */
#define TRIE_POSITION_BITS 60u
static inline unsigned trie_shift(const struct trie_view *view, unsigned level)
{
    return TRIE_POSITION_BITS - (level + 1) * view->bits;
}
static inline unsigned trie_digit(const struct trie_view *view, uint64_t position, unsigned level)
{
    return position >> trie_shift(view, level) & ((1u << view->bits) - 1);
}

struct trie_key {
    struct slice bytes;
    uint64_t hash, position;
    uint8_t fingerprint;
};
void trie_hash(const struct trie_view *view, struct slice bytes, struct trie_key *key);

/* How far an operation has come on the path of a position. */
struct trie_look {
    uint64_t position;
    gaddr node;
    uint64_t id;
    unsigned level;
    uint64_t *image;    /* of the node, in BUF_INDEX: its id, and its words */
    uint64_t word;      /* the position's in this node */
    uint64_t refreshes; /* of the view, when the look began */
};
static inline unsigned trie_look_digit(const struct trie_view *view, const struct trie_look *look)
{
    return trie_digit(view, look->position, look->level);
}

/* ---- trie_read.c ----------------------------------------------------------------------------- */

/* Begins a look at the deepest node of the path that the session knows, down to that level. */
int trie_look_start(struct op *op, const struct trie_view *view, uint64_t position,
                    unsigned deepest, struct trie_look *look);
/* Goes on to a node of the next level, and remembers where it is. */
void trie_look_step(struct trie_view *view, struct trie_look *look, gaddr node);
/* Reads nodes until the position's word names none. Flushes what is in the batch along. */
int trie_descend(struct op *op, struct trie_view *view, struct trie_look *look);
/* The same for a key, and reads the block that its word names. found->place is 0 if it is the
 * key's, else -1. */
int trie_find(struct op *op, struct trie_view *view, const struct trie_key *key,
              const struct value_out *out, struct trie_look *look, struct index_found *found);
/* The same where a hint says, in one round trip. `change` may be NULL: its block is written along.
 * found->place is -1 also if the hint is of no use. */
int trie_peek(struct op *op, struct trie_view *view, const struct trie_key *key,
              const struct value_out *out, struct index_change *change, struct trie_look *look,
              struct index_found *found);
/* The key has this slot in the node of this level; 0: it has none. */
void trie_note(struct trie_view *view, const struct trie_key *key, uint64_t slot, unsigned level);

int trie_get(struct op *op, struct index_view *view, struct slice key, struct value_out *out);
int trie_iterate(struct op *op, struct index_view *view, struct entries_out *out);

/* ---- trie_change.c --------------------------------------------------------------------------- */
int trie_change(struct op *op, struct index_view *view, struct slice key, struct change *change);

/* ---- trie_walk.c ----------------------------------------------------------------------------- */
int trie_info(struct op *op, struct index_view *view, struct far_table_info *info);
int trie_check(struct op *op, struct index_view *view, struct index_report *report);
int trie_mark(struct op *op, struct index_view *view, struct marker *marker);

extern const struct index_ops trie_index;

#endif
