/*
 * CHIME: a B+ tree whose leaves are hopscotch hash tables. It keeps keys in order, and scans.
 *
 * After "CHIME: A Cache-Efficient and High-Performance Hybrid Index on Disaggregated Memory" (SOSP
 * '24). docs/index/chime.md says what was changed and shows the interleavings that made it
 * necessary.
 *
 * Sessions cache internal nodes. A key's home is a place of its leaf; the key is there or in one of
 * the next places, its neighbourhood. An insert that finds the neighbourhood full moves other
 * entries within their own neighbourhoods, or splits the leaf.
 *
 *   get      READ the groups of the neighbourhood
 *   change   1. CAS of the lock; READ vacancy and groups
 *            2. WRITE the entry, WRITE its G, WRITE vacancy; CAS that unlocks
 *   scan     READ all groups of several leaves
 *
 * Linearization points
 *
 *   insert, delete, put of a new key           the WRITE of G
 *   update, modify, put of a known key         the later of the WRITEs of V and G; between the two
 *   nobody
 *                                              can read the entry
 *   get, hit                                   the READ of the group's G
 *   get, miss; each pair or gap of a scan      an instant within the READ (CHIME-C5)
 *   exists, not found, unchanged               the READ under the lock
 *
 * Guarantees, each used by those after it
 *
 *   CHIME-C1  One writer. Every word of a living node but `lock` is written only by the holder of
 *       its lock, and `lock` changes only by CAS.
 *   CHIME-C2  Whole groups. If G fits K and V that were read with it, the group had this content at
 *       an instant of the READ: G is of a state that the group had then, and the others equal what
 *       it had.
 *   CHIME-C3  One word decides. After any prefix of a batch, with any part of the WRITE in
 *       progress, each group is whole, or fits with G := `intent`. A batch only fills empty
 *       entries, or writes single Gs, or V after `intent`, or a run of groups in which only Gs
 *       differ.
 *   CHIME-C4  A hit is true: a key in a whole group of a node with the expected name had that value
 *       at an instant of the READ. A key is in two entries only under a lock, and with one value:
 *       while it is moved, while a leaf is split (the new one is locked until the old one is
 *       clean), while two are merged (both are locked).
 *   CHIME-C5  A miss is true: all groups of the neighbourhood are whole, have one era, and fit the
 *       node's name. Within an era no key moves and the range stands, so a key that was there
 *       throughout was in one entry throughout, and that was read. The name has the separators of
 *       the node and of its sibling, and these never change. The groups of a node that dies are
 *       renamed before anything else forgets it, and those of a new one are named after the node to
 *       its left names it (CHIME-C7). The expected name has the range in which the key was looked
 *       for: each node on the way begins where the one before says (inner_from()). So it does not
 *       matter how old the session's knowledge is by which it came here.
 *   CHIME-C6  Eras. Whatever moves a key or changes the range writes all Gs with a new era. A
 *       reader that sees only the old era finds the key in its old place, one that sees only the
 *       new era in the new place, and one that sees both reads again.
 *   CHIME-C7  Split. The new node is whole before the old one names it, but its groups get its name
 *       only after that: if the client dies before, nobody takes the new node for a living one,
 *       even if an earlier node had the same name. The new node is locked and BORN until no group
 *       of the old one names a key of it. The key whose insert caused the split enters after that.
 *   CHIME-C8  Merge, to the left. The right node is MERGING before the left one changes, and MERGED
 *       only after the left one has all its entries. The left one stays locked until the right one
 *       is dead.
 *   CHIME-C9  Death. A lock names its holder, whose name never comes again, so a CAS from a dead
 *       holder's word cannot hit another hold. What a recovery does follows from what is in memory,
 *       and a recovery may die at any word itself (chime_recover.c).
 *   CHIME-C10  Memory. A node is retired only when it is dead, its left sibling and its parent do
 *       not name it, and the version of caches was changed. A dead node is never entered into a
 *       parent: its state is read behind the parent's lock. Verbs that change memory go only to
 *       addresses that the operation has read itself, or from cached nodes that are fresh
 *       (CACHE-K1, CACHE-K2, CACHE-K6). READs through older ones are judged by the name (CHIME-C5).
 *   CHIME-C11  Damage. A group that is not whole though the lock is free, or held by this client,
 *       is damaged, if another group of the node fits: then the head is as it was. What needs the
 *       group ends with FAR_CORRUPT, and nothing else does. Nobody writes it but a split, which
 *       copies it to both nodes as damaged as it was, a recovery, which leaves it so, and a repair.
 *       A walk marks all that its entries may point to, so that a sweep leaves what a repair may
 *       salvage.
 *   CHIME-C12  A repair makes a group whole again if one flipped bit explains the damage (FLIP-1).
 *       Of any other damaged group of a leaf it keeps the entries that their blocks prove:
 *       `vacancy` also says that there is one, the block is whole and of the pointer's generation,
 *       and K, fingerprint, place and range are those of its key. For an inline value the checksum
 *       is the only proof, so it is lost.
 *   CHIME-C13  If a head, or all groups, do not fit, the node is not believed in anything. An
 *       iteration or a scan goes past such a leaf, to where its parent says that it ends, and
 *       counts all its places. A repair corrects the head if one flipped bit explains it (FLIP-1):
 *       the head's checksum, the level and a group that fits the name prove it.
 *
 *   CHIME-C14  Stems. A leaf may have a stem, which is a beginning of its separator. K of a key
 *       that begins with it is what follows; K of any other key is the highest number. No key of
 *       the leaf is below the separator, so a key without the stem is above all that have it: if
 *       keys ascend, their Ks do not descend. That holds in any range which begins at the
 *       separator, so the stem stays right while splits and merges move the end of the range.
 *       Separator and stem never change, and the name has both, so whoever knows the name of a leaf
 *       computes the Ks that are in it. An entry that comes from a leaf with another stem gets its
 *       new K before any group names it: in a node that is not born, or in an empty entry of the
 *       left node of a merge. K of an inline pair is the whole key, so a leaf with a stem has
 *       blocks only. Damaged entries keep their Ks, so a split that copies such keeps the stem
 *       (CHIME-C12).
 *
 * Progress: nobody waits for a lock while holding one. Every loop is bounded and ends with
 * FAR_CONTENTION.
 */
#ifndef CHIME_CHIME_H
#define CHIME_CHIME_H

#include "index/attempt.h"
#include "index/cache.h"
#include "index/change.h"
#include "index/chime/chime_layout.h"
#include "index/flip.h"
#include "index/hints.h"
#include "index/lock_wait.h"

extern const struct index_ops chime_index;

enum chime_tuning {
    CHIME_TUNING_SPAN,
    CHIME_TUNING_HOOD,
    CHIME_TUNING_CACHE,
    CHIME_TUNING_HOT,
    CHIME_TUNING_WHOLE,
    CHIME_TUNING_VACANCY,
    CHIME_TUNING_META,
    CHIME_TUNINGS
};

enum chime_meta {                     /* how a reader knows the range of a leaf */
                  CHIME_META_SIBLING, /* by the cached parent, as the checksums say */
                  CHIME_META_POINTER, /* by the sibling's address, which it reads besides */
                  CHIME_META_FENCES   /* by the leaf's own separators, which it reads besides */
};

/* A session's view. */
struct chime_view {
    struct index_view base;
    gaddr root;
    uint64_t seed; /* of all hashes */
    struct chime_shape shape;
    uint64_t tuning[CHIME_TUNINGS];
    uint64_t
        top; /* the root's word. Perhaps an old one: the node it names is still one of the tree */
    struct index_cache *cache; /* internal nodes, by address: struct chime_inner */
    struct index_hints *hints; /* of keys: see chime_hint.c */
    struct chime_inner *made;  /* room for one that was just read; used between two waits only */
    unsigned fill;             /* entries of leaves that scans met lately, on average, in 1/256 */
    uint64_t gets, hot_hits;   /* and those that found their key by a hint */
};
static inline struct chime_view *chime_view(struct index_view *base)
{
    return (struct chime_view *)base;
}

/* ---- keys and separators --------------------------------------------------------------------- */

/* A key, or a separator: its first 8 bytes as a number, and all its bytes. A separator without
 * `bytes` is below all keys that begin with k. */
struct chime_bound {
    uint64_t k;
    struct slice bytes;
};
uint64_t chime_prefix(struct slice key);
/* The bytes of a bound. Those of one that has only k are put into `text`. */
struct slice chime_bound_bytes(const struct chime_bound *bound, char text[8]);
static inline struct chime_bound chime_key_bound(struct slice key)
{
    return (struct chime_bound){chime_prefix(key), key};
}
/* Is the key, or the separator, not below the separator? */
static inline bool chime_reaches(const struct chime_bound *key, const struct chime_bound *separator)
{
    if (key->k != separator->k)
        return key->k > separator->k;
    return separator->bytes.data == NULL || index_key_compare(key->bytes, separator->bytes) >= 0;
}

/* The stem of a leaf: a beginning of its separator, which Ks of blocks leave out (CHIME-C14). */
struct chime_stem {
    unsigned len;
    uint64_t hash; /* of its bytes; 0: there are none */
};
struct chime_stem chime_stem(const struct chime_view *view, const void *bytes, unsigned len);
/* Does the key begin with it? */
bool chime_has_stem(const struct chime_view *view, const struct chime_stem *stem, struct slice key);
/* K of a key in a leaf with that stem. The key is not below the leaf. */
uint64_t chime_k(const struct chime_view *view, const struct chime_stem *stem, struct slice key);

/* A key, and where it belongs in its leaf. */
struct chime_key {
    struct chime_bound bound;
    unsigned home;
    unsigned fingerprint; /* its lowest bits are the home */
    bool inside;          /* of 8 bytes, so that it is inline if its value is */
    uint64_t hash;        /* for hints */
};
void chime_key_set(const struct chime_view *view, struct slice bytes, struct chime_key *key);

/* ---- chime_node.c: images of nodes ----------------------------------------------------------- */
static inline struct chime_head *chime_head(uint64_t *node)
{
    return (struct chime_head *)node;
}
static inline uint64_t *chime_group(uint64_t *node, unsigned group)
{
    return node + CHIME_HEAD_WORDS + CHIME_GROUP_WORDS * group;
}
static inline uint64_t *chime_entry(uint64_t *node, unsigned place) /* K, then V */
{
    return chime_group(node, place / CHIME_GROUP) + 1 + 2 * (place % CHIME_GROUP);
}
static inline unsigned chime_kind_at(uint64_t *node, unsigned place)
{
    return chime_kind(*chime_group(node, place / CHIME_GROUP), place % CHIME_GROUP);
}

/* A name, made ready for checksums. */
struct chime_seal {
    uint64_t seed;
    unsigned tag;
};
struct chime_seal chime_name_seal(const struct chime_view *view, const struct chime_name *name);
/* The name that a node's own head gives. */
struct chime_name chime_head_name(gaddr at, const struct chime_head *head);
/* That of a node that is dead. */
struct chime_name chime_dead_name(gaddr at, const struct chime_head *head);
uint64_t chime_head_sum(const struct chime_view *view, gaddr at, const struct chime_head *head);
static inline struct chime_stem chime_head_stem(const struct chime_head *head)
{
    return (struct chime_stem){chime_edge_stem(&head->low), head->stem};
}
/* Of the bytes of a long separator, and how long the stem is (struct chime_edge); 0 if there are
 * none. */
uint64_t chime_text_sum(const struct chime_view *view, struct slice bytes, unsigned stem);

bool chime_group_whole(struct chime_seal seal, unsigned group, const uint64_t *words);
/* Sets tag and checksum of a group whose kinds, era and entries are set. */
void chime_group_seal(struct chime_seal seal, unsigned group, uint64_t *words);
/* Gives all groups the era, and the checksums that go with the name. */
void chime_renew(const struct chime_view *view, uint64_t *node, const struct chime_name *name,
                 unsigned era);

/* Groups that are read together, from `first` on; behind the last one comes group 0. */
struct chime_window {
    unsigned first, count;
};
struct chime_window chime_window(const struct chime_shape *s, unsigned home);
static inline struct chime_window chime_all(const struct chime_shape *s)
{
    return (struct chime_window){0, s->groups};
}
/* Adds the READs of a window into an image. `flags`: FAB_MAY_BE_FREED, MARK_HEAD. */
void chime_read_window(struct op *op, const struct chime_shape *s, gaddr at, struct chime_window w,
                       uint64_t *node, unsigned flags);

enum chime_fit {
    CHIME_FITS,  /* all groups are whole, of one era, and of the name */
    CHIME_TORN,  /* the name is right, but something is being written */
    CHIME_MISFIT /* the node has another name */
};
enum chime_fit chime_judge(const struct chime_view *view, uint64_t *node, struct chime_window w,
                           const struct chime_name *name);

/* Entries of the neighbourhood that may be the key's, a bit each: inline, or a block of that
 * fingerprint. Only groups that are whole are looked at. *exact: the one inline entry with the
 * key. */
uint64_t chime_candidates(const struct chime_view *view, uint64_t *node,
                          const struct chime_key *key, struct chime_window w,
                          const struct chime_name *name, const struct chime_stem *stem, int *exact);
/* The home of a leaf's entry. */
unsigned chime_entry_home(const struct chime_view *view, uint64_t *node, unsigned place);
/* Bit p: entry p is free. */
uint64_t chime_vacancy(const struct chime_shape *s, uint64_t *node);
static inline unsigned chime_used(const struct chime_shape *s, uint64_t vacancy)
{
    return s->span - (unsigned)__builtin_popcountll(vacancy);
}
static inline uint64_t chime_places(const struct chime_shape *s) /* a bit for each */
{
    return s->span == 64 ? UINT64_MAX : (1ull << s->span) - 1;
}

/* How a new entry gets a place: `move`s of others, in this order, and then `place` is free. */
#define CHIME_MOVES 8u
struct chime_plan {
    unsigned moves, place;
    struct {
        uint8_t from, to;
    } move[CHIME_MOVES];
};
/* A free place of the neighbourhood, by the vacancy alone; span: there is none. */
unsigned chime_free_place(const struct chime_shape *s, uint64_t vacancy, unsigned home);
/* False: there is no way, or it takes too many moves. */
bool chime_plan(const struct chime_view *view, uint64_t *node, unsigned home,
                struct chime_plan *plan);
int chime_damaged(const struct chime_view *view, gaddr at); /* FAR_CORRUPT */

/* ---- chime_hint.c: where keys are that this process has seen --------------------------------- */
/* What is known of the key; its place is a group of the leaf. */
struct index_hint chime_hint(const struct chime_view *view, const struct chime_key *key);
/* The key's entry as an operation knows it. */
struct chime_seen {
    enum chime_kind kind; /* CHIME_EMPTY: there is none, or it is not known where */
    uint64_t v;
    unsigned place;
    bool changed; /* by the operation itself */
};
/* Remembers where the key was seen. `known` is the hint that it had before. */
void chime_hint_note(const struct chime_view *view, const struct chime_key *key,
                     const struct chime_seen *seen, const struct index_hint *known);
/* Adds the READ of the block that the hint names, behind those of the groups, if it names one, of
 * the leaf's memory node. Otherwise block->slot is 0. The image is in BUF_BLOCK_IN. */
void chime_peek(struct op *op, const struct index_hint *hint, gaddr leaf,
                struct index_block *block);
/* After the flush: is one of the candidates the block's, and is that the key's? The candidates are
 * those of whole groups (chime_candidates()), and words[i] is the V of place i. */
bool chime_peeked(const struct index_probe *probe, struct index_block *block, const uint64_t *words,
                  uint64_t candidates, struct index_found *found);

/* ---- chime_lock.c: locks, and what is written under them ------------------------------------- */

/* Damaged groups of a node that is held (CHIME-C11). In the image those that one flipped bit
 * explains are whole, and the others are empty. */
struct chime_harm {
    unsigned groups; /* a bit each */
    unsigned beyond; /* those that no single bit explains, */
    uint8_t
        kinds[CHIME_GROUPS_MAX]; /* and what they said of their entries, if the head said so, too */
};

/* A node that this operation has locked, and what it has read of it. */
struct chime_held {
    gaddr at; /* 0: none */
    struct chime_name name;
    struct chime_stem stem;
    uint64_t *node;                 /* an image */
    struct chime_window have;       /* the groups that were read */
    bool whole;                     /* the head was, too */
    struct index_cache_stamp stamp; /* from before it was locked */
    struct chime_window need;       /* groups that must be whole; none: all */
    struct chime_harm harm;         /* of the others */
};

/* Adds the CAS that takes the lock. What is added behind it is read under the lock. */
unsigned chime_lock(struct op *op, gaddr at);
/* After a flush that had chime_lock() as its verb n and ended with rc: is the lock held? If the
 * operation failed and may hold it, this releases it, or gives up the registration. */
int chime_locked(struct op *op, gaddr at, unsigned n, int rc, bool *held);
/* Adds the CAS that releases the lock, behind all that is in the batch. */
void chime_unlock(struct op *op, gaddr at);
/* Releases it in a round trip, after an operation that changes nothing. */
int chime_release(struct op *op, gaddr at);
/* Flushes changes and the release: the operation's status. Unknown outcomes end the
 * registration. */
int chime_finish(struct op *op);
/* What follows at `to` takes effect after what was added for `from`. Between two memory nodes a
 * READ shows that a WRITE is visible, also on fabrics that answer it a little earlier. */
void chime_then(struct op *op, gaddr from, gaddr to);

/* What is to be written, until the flush: copies in BUF_BULK. */
#define CHIME_STAGING_BYTES (16u * 1024)
struct chime_staging {
    char *at;
    size_t left;
};
int chime_staging_start(struct op *op, struct chime_staging *staging);
void chime_staging_write(struct op *op, struct chime_staging *staging, gaddr at, uint64_t delta,
                         const void *data, size_t bytes);
static inline void chime_staging_word(struct op *op, struct chime_staging *staging, gaddr at,
                                      uint64_t delta, uint64_t word)
{
    chime_staging_write(op, staging, at, delta, &word, 8);
}
/* All groups of the image, and the name's upper end with the era. */
void chime_staging_groups(struct op *op, struct chime_staging *staging, const struct chime_shape *s,
                          gaddr at, uint64_t *node);
void chime_staging_next(struct op *op, struct chime_staging *staging, const struct chime_name *name,
                        unsigned era);
/* An entry that is to be added to a node. */
struct chime_new {
    uint64_t k, v;
    enum chime_kind kind;
    unsigned home;
    struct chime_bound bound; /* its key, or its separator */
};
/* Adds the WRITEs of an entry at a free place, and of its G; changes the image. */
void chime_write_entry(struct op *op, const struct chime_view *view, struct chime_staging *staging,
                       struct chime_held *h, unsigned place, const struct chime_new *x);
/* Nothing names the dead node any more: tells all caches, and retires it with its separator
 * (CHIME-C10). */
int chime_retire(struct op *op, struct chime_view *view, gaddr dead, uint64_t lng);
/* The same, when the version of caches has just been changed from `version`. */
void chime_retired(struct op *op, struct chime_view *view, gaddr dead, uint64_t lng,
                   uint64_t version);
/* It is not known whether something names a node and its separator. */
void chime_abandon(struct op *op, const struct chime_shape *s, uint64_t lng);
/* Is the key below the node's upper bound? May read the separator's block (BUF_BLOCK_IN). */
int chime_below_high(struct op *op, const struct chime_view *view, const struct chime_head *head,
                     const struct chime_bound *key, bool *below);
/* Reads the bytes of a long separator. They are in BUF_BLOCK_IN until the next read. */
int chime_separator(struct op *op, const struct chime_view *view, uint64_t pointer,
                    struct slice *bytes);

/* ---- chime_inner.c: internal nodes as they are cached ---------------------------------------- */
/* An internal node as it is cached: its children in order. A child whose separator is long has the
 * pointer to that in v. What else belongs to it is in a struct chime_long behind the children, in
 * their order. The node's own upper bound comes last there, if it is long. Then come the bytes: the
 * beginning that all long separators of the node have in common, once, and the rest of each. */
struct chime_child {
    uint64_t k, v;
};
struct chime_long {
    gaddr at;
    uint64_t sum;
    uint64_t stem;        /* a hash of its bytes */
    uint32_t offset, len; /* of the rest of its bytes; the offset is from that of the node */
};
struct chime_inner {
    gaddr next;
    struct chime_edge high;
    uint64_t longs; /* bit i: child i has a long separator */
    uint32_t bytes;
    uint16_t common; /* bytes with which all long separators begin */
    uint8_t count;
    uint8_t level;
    struct chime_child child[];
};
/* What the block of a long separator has as its value. */
static inline uint64_t chime_block_child(const void *block)
{
    uint64_t child;
    memcpy(&child, block_value(block), sizeof child);
    return child;
}
/* Can a block that is whole be that of a separator? */
static inline bool chime_is_separator(const void *block)
{
    const struct block_head *h = block;
    return h->vlen == 8 && h->klen > 0 && chime_child_stem(chime_block_child(block)) <= h->klen;
}
gaddr chime_child_at(const struct chime_inner *n, unsigned i);
struct chime_edge chime_child_edge(const struct chime_inner *n, unsigned i);
struct chime_stem chime_stem_at(const struct chime_inner *n, unsigned i);
/* Where child i begins, or where the node's range ends if i is the number of children and `next` is
 * not 0. The bytes of a long separator are put together in `text`, FAR_KEY_MAX bytes. */
struct chime_bound chime_child_bound(const struct chime_inner *n, unsigned i, char *text);
/* How many bytes that takes. */
size_t chime_child_text(const struct chime_inner *n, unsigned i);
/* Is the key not below the end of the node's range? Only if `next` is not 0. */
bool chime_reaches_high(const struct chime_inner *n, const struct chime_bound *key);
/* The child that has the key. */
unsigned chime_route(const struct chime_inner *n, const struct chime_bound *key);
static inline size_t chime_inner_bytes(unsigned children)
{
    return sizeof(struct chime_inner) + children * sizeof(struct chime_child);
}
/* Makes the cached form of an image that is whole: view->made. May read separators. */
int chime_encode(struct op *op, struct chime_view *view, uint64_t *node);
/* The children that the image of an internal node names, by place; 0: the entry is empty. Uses
 * BUF_BLOCK_IN. */
int chime_children(struct op *op, const struct chime_view *view, uint64_t *node,
                   gaddr child[CHIME_SPAN_MAX]);

/* How an operation waits for others. One for all its waits. */
struct chime_wait {
    struct index_lock_wait lock;
    bool rests;  /* the operation must rest, and start over: chime_rest() */
    bool paused; /* it has paused, and may look again */
};

/* ---- chime_recover.c ------------------------------------------------------------------------- */
/* The lock of the node names a client that is dead and shut out. Completes or undoes what it did,
 * and releases the lock. Somebody else may do so as well. */
int chime_recover(struct op *op, struct chime_view *view, gaddr at, uint64_t owner,
                  struct chime_wait *wait);

/* ---- chime_wait.c: waiting, and whole nodes -------------------------------------------------- */
enum chime_verdict {
    CHIME_GOOD,  /* the image is the node at an instant */
    CHIME_GONE,  /* the node is dead, or perhaps was never born; its head was read */
    CHIME_AGAIN, /* the operation starts over */
    CHIME_OTHER  /* there is no node of this level any more: only with may_be_freed */
};
/* The lock was not taken: `word` is in it. Waits a little. *verdict is CHIME_GOOD: try again at
 * once; CHIME_GONE: the node is dead; CHIME_AGAIN: the operation has to rest. */
int chime_wait(struct op *op, struct chime_view *view, gaddr at, uint64_t word,
               struct chime_wait *wait, enum chime_verdict *verdict);
/* Called between two attempts, when the operation holds nothing: rests if it must. *attempts counts
 * from there. */
int chime_rest(struct op *op, struct chime_view *view, struct chime_wait *wait, unsigned *attempts);
/* Reads a whole node, and waits until it is whole, for the holder of its lock if need be. The image
 * is of shape.bytes. `wait` is the operation's. */
int chime_read_node(struct op *op, struct chime_view *view, gaddr at, unsigned level,
                    bool may_be_freed, uint64_t *node, struct chime_wait *wait,
                    enum chime_verdict *verdict);
/* chime_read_node() that goes past damage: with FAR_OK and CHIME_GOOD, all groups but *damaged are
 * whole. */
int chime_read_past(struct op *op, struct chime_view *view, gaddr at, unsigned level,
                    bool may_be_freed, uint64_t *node, struct chime_wait *wait,
                    enum chime_verdict *verdict, unsigned *damaged);
/* All of the node was read under its lock: judges it by its own head. If it is damaged, it is
 * released, and h->at is 0. */
int chime_judge_held(struct op *op, struct chime_view *view, struct chime_held *h, unsigned level);
/* Locks the node of that level and reads all of it; and of the node at `other` the head, unless
 * that is 0. *verdict as chime_wait(); if it is CHIME_GOOD, h->at is 0 or the node is held. */
int chime_hold(struct op *op, struct chime_view *view, gaddr at, unsigned level, gaddr other,
               struct chime_wait *wait, struct chime_held *h, enum chime_verdict *verdict);
/* The other node's head, behind the image of the one that is held. */
static inline struct chime_head *chime_other_head(const struct chime_shape *s,
                                                  const struct chime_held *h)
{
    return chime_head(h->node + s->bytes / 8);
}
/* The rest of a node that is held is read. */
int chime_read_rest(struct op *op, struct chime_view *view, struct chime_held *h);

/* ---- chime_view.c: what a session knows ------------------------------------------------------ */
int chime_attach(struct op *op, struct index_view *view);
void chime_detach(struct index_view *view);
int chime_refresh(struct op *op, struct index_view *view);
/* Local bytes of the cache. */
uint64_t chime_cached_bytes(const struct chime_view *view);

/* A node of some level on a key's path. */
struct chime_spot {
    struct chime_name name; /* as the parent has it; for leaves only, */
    struct chime_stem stem; /* and so is this */
    gaddr parent;           /* 0: it is the highest */
    bool fresh;             /* its address may be used for changes (CHIME-C10) */
    bool none;              /* the tree is not so high */
    bool lost;              /* the operation has to start over */
};
/* Finds the node of that level that has the key. With `fresh`, all that is cached and doubted on
 * the way is read again. */
int chime_descend(struct op *op, struct chime_view *view, const struct chime_bound *key,
                  unsigned level, bool fresh, struct chime_wait *wait, struct chime_spot *spot);
/* Where the range of a node ends, as its parent says. */
struct chime_end {
    bool known; /* the parent was read */
    bool last;  /* it has no end */
    struct chime_bound bound;
    char bytes[FAR_KEY_MAX];
};
/* The same for those that go past what cannot be read. *end is that of the last node that the
 * descent came to: if it fails, of the one that it could not read. The name has no sibling. */
int chime_descend_past(struct op *op, struct chime_view *view, const struct chime_bound *key,
                       unsigned level, struct chime_wait *wait, struct chime_spot *spot,
                       struct chime_end *end);
/* How a descent goes on: what it knows of the time of what it has met. */
struct chime_path {
    struct index_cache_stamp stamp;
    bool fresh;   /* what is doubted is read again */
    bool doubted; /* something on the path is */
};
/* The internal node at this address, to which the path has come. It is good until the next wait.
 * *inner is NULL: the node is dead or not known well enough, and the descent starts over. */
int chime_inner_at(struct op *op, struct chime_view *view, gaddr at, unsigned level,
                   struct chime_path *path, struct chime_wait *wait,
                   const struct chime_inner **inner);
/* Puts an internal node into the cache, as its holder has changed it. The stamp is from before it
 * was locked. */
void chime_remember(struct op *op, struct chime_view *view, gaddr at,
                    struct index_cache_stamp stamp, uint64_t *node);
/* Forgets an internal node, or all that leads to the highest one if `at` is 0. */
int chime_forget(struct op *op, struct chime_view *view, gaddr at);
/* A dead node was met, which this parent or left sibling seemed to name: forgets what is cached of
 * that one, and waits for its holder. If the holder is dead, recovers it. 0: the root's word named
 * it. */
int chime_settle(struct op *op, struct chime_view *view, gaddr parent, struct chime_wait *wait);

/* ---- chime_damage.c -------------------------------------------------------------------------- */
/* The damaged groups of a node, a bit each, by an image of all of it. 0: there are none, or the
 * head is damaged, too. */
unsigned chime_damaged_groups(const struct chime_view *view, gaddr at, unsigned level,
                              uint64_t *node);
/* Empties groups of an image. */
void chime_empty_groups(uint64_t *node, unsigned groups);
static inline unsigned chime_places_of(unsigned groups) /* how many entries they have room for */
{
    return CHIME_GROUP * (unsigned)__builtin_popcount(groups);
}
/* FLIP-1: undoes the flip of a bit in a group, if that explains the damage. */
bool chime_undo_flip(struct chime_seal seal, unsigned group, uint64_t *words);
/* No single bit explains the damage to the group: empties it in the image, and notes its kinds. */
void chime_harm_beyond(struct chime_harm *harm, uint64_t *node, unsigned group);
/* A leaf that is held was read, and is not whole. True: h->need is, and h->harm says what is
 * not. */
bool chime_take_harm(const struct chime_view *view, struct chime_held *h);
/* Before and after groups are written: makes those that were damaged so, under their new name, and
 * undoes it. */
void chime_harm_set(const struct chime_harm *harm, struct chime_seal seal, uint64_t *node);
void chime_harm_undo(const struct chime_harm *harm, struct chime_seal seal, uint64_t *node);
/* The vacancy of such a node: entries of damaged groups are in use if their group and the head said
 * so. */
uint64_t chime_harm_vacancy(const struct chime_harm *harm, const struct chime_shape *s,
                            uint64_t *node);

/* ---- chime_salvage.c ------------------------------------------------------------------------- */
/* Makes the damaged groups of a node whole, with what can be salvaged (CHIME-C12), and reports what
 * became of them. The bounds are those of its range; high is NULL if it has no sibling. *done: none
 * is left. */
int chime_salvage(struct op *op, struct chime_view *view, gaddr at, unsigned level,
                  const struct chime_bound *low, const struct chime_bound *high,
                  struct index_report *report, bool *done);
/* If one flipped bit of the head explains why the node cannot be read (CHIME-C13), corrects it,
 * under the lock. */
int chime_mend_head(struct op *op, struct chime_view *view, gaddr at, unsigned level, bool *done);

/* ---- chime_split.c --------------------------------------------------------------------------- */
/* A node that its parent may not know yet. */
struct chime_child_ref {
    gaddr at;
    uint64_t k, lng; /* its separator */
    unsigned level;
};
/* Splits the node, which is held, and adds x. Releases it, whatever happens. After FAR_OK *born is
 * to be entered into the parent. */
int chime_split(struct op *op, struct chime_view *view, struct chime_held *h,
                const struct chime_new *x, struct chime_child_ref *born);
/* Enters a node into its parent, unless it is there, or dead. What cannot be done now is left to
 * others. */
int chime_enter(struct op *op, struct chime_view *view, const struct chime_child_ref *born,
                struct chime_wait *wait);

/* ---- chime_merge.c --------------------------------------------------------------------------- */
/* A node of this level, with this key, has few entries: merges it with a neighbour if that is
 * easy. */
void chime_shrink(struct op *op, struct chime_view *view, const struct chime_bound *key,
                  unsigned level);
/* ---- chime_read.c, chime_write.c, chime_scan.c, chime_iterate.c, chime_check.c --------------- */
int chime_get(struct op *op, struct index_view *view, struct slice key, struct value_out *out);
int chime_change(struct op *op, struct index_view *view, struct slice key, struct change *change);
int chime_scan(struct op *op, struct index_view *view, const struct scan_range *range,
               struct entries_out *out);
int chime_iterate(struct op *op, struct index_view *view, struct entries_out *out);
int chime_mark(struct op *op, struct index_view *view, struct marker *marker);
int chime_info(struct op *op, struct index_view *view, struct far_table_info *info);
int chime_check(struct op *op, struct index_view *view, struct index_report *report);

#endif
