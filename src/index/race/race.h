/*
 * RACE: extendible hashing for passive memory, made linearizable.
 *
 * After "RACE: One-sided RDMA-conscious Extendible Hashing" (Zuo et al., ACM TOS 18(2), 2022).
 * docs/index/race.md says what was changed and shows the interleavings that made it necessary.
 *
 * The life of a slot
 *
 *            CAS                  CAS                        CAS
 *   empty ---------> tentative ---------> committed(block) ---------> committed(block')
 *     ^                  |                     |        update
 *     +------------------+---------------------+
 *        killed, retracted      deleted
 *
 *   and from each of them, once, to sealed: the splitter's last word about a slot.
 *
 * Linearization points
 *
 *   insert, put of a new key   the CAS from tentative to committed
 *   update, put of a known key the CAS from committed(block) to committed(block')
 *   the same, if it has lost   right before that of the change that has won (CHANGE-C1)
 *   delete                     the CAS from committed to empty
 *   get, found                 the READ of the committed slot (of a sealed one: see RACE-R5)
 *   get, not found             an instant between call and return when the key was absent (RACE-R4)
 *   update, delete, not found  likewise;  insert, exists: as for get, found
 *
 * Guarantees, each used by those after it
 *
 *   RACE-R1  A block is whole before a slot names it (a flush lies between, or a fence) and never
 *       changes while a slot names it. Hence a slot's word stands for one key and one value.
 *   RACE-R2  A key has at most one committed slot in the authoritative subtable. An inserter CASes
 *       a slot from empty to tentative and re-reads both combined buckets behind it (fenced). Of
 *       two inserters of one key, the one whose CAS came later sees the other's slot. It commits
 *       only if it sees no committed slot of the key, and only after the tentative slots of the
 *       same fingerprint that it saw are dead (CAS to empty). So of two only one commits. Only its
 *       owner commits a tentative slot; any client may kill it, at any time.
 *   RACE-R3  A committed slot leaves its place only by delete or by a split. Nothing moves within a
 *       subtable.
 *   RACE-R4  Reading all the 28 places of a key, each at its own time, and finding it committed in
 *       none of them proves that it was absent at some instant between the first and the last READ:
 *       a key present throughout has, by RACE-R2 and RACE-R3, one place throughout (else it was
 *       deleted in between), and that place was read. No second look is needed.
 *   RACE-R5  A split seals every slot of the old subtable by CAS, empty ones too, then copies what
 *       is sealed into two new subtables, each word to the same place, then publishes both by one
 *       CAS of `forward` from 0. Until that CAS the old subtable is authoritative, after it the new
 *       ones are. A sealed slot never changes again: so a reader that meets one reads `forward`,
 *       and if that is still 0, what it saw was true when it saw it. Writers that meet one wait for
 *       `forward`, or do the split themselves. A slot that is not sealed yet may still be changed:
 *       the splitter copies what it has sealed.
 *   RACE-R6  Any number of clients may split one subtable at once: sealing is idempotent, what is
 *       sealed is the same for all, and one CAS of `forward` wins. The claim only saves double
 *       work. A splitter that dies leaves nothing that another cannot do again.
 *   RACE-R7  The same places are free in a child as in its parent, or more: a copy always fits. A
 *       slot whose block is damaged goes to both children: no lookup takes it for absence.
 *   RACE-R8  The directory is advice. A stale entry, remote or cached, leads to a subtable that is
 *       sealed and forwards. Entries change by CAS from the parent to its child, so they never go
 *       back.
 *
 * Progress: lock-free, with one exception. Two clients that insert the same absent key at once may
 * kill each other's tentative slots. They back off at random, so one of them gets through soon, but
 * not surely. A waiter looks `patience` times whether the splitter is done, then splits by itself.
 * Every loop is bounded and ends with FAR_CONTENTION.
 */
#ifndef RACE_RACE_H
#define RACE_RACE_H

#include "index/attempt.h"
#include "index/change.h"
#include "index/index.h"
#include "index/own.h"
#include "index/race/race_layout.h"

extern const struct index_ops race_index;

enum race_tuning { RACE_TUNING_GROUPS, RACE_TUNING_DEPTH, RACE_TUNING_HOT };

/* How often an operation reads the directory again because its entry led to something else. What it
 * has read cannot be reused while it is in flight (EPOCH-E3), so once is enough if nothing is
 * damaged. */
#define RACE_REFRESHES 4

/* Subtables that operations of one session split at the same time, known to the others. */
#define RACE_SPLITTING 16

/* A session's view: the geometry, and the directory as it was last seen. */
struct race_view {
    struct index_view base;
    uint32_t tag; /* of the bucket headers: tells tables apart */
    unsigned groups;
    unsigned dir_bits;
    uint64_t depth_asked, hot; /* of the tuning */
    gaddr root, directory;
    unsigned depth;                     /* the cached directory has 2^depth entries */
    uint64_t *entries;                  /* ... */
    uint64_t splitting[RACE_SPLITTING]; /* entries that this session's operations split, or 0 */
    struct index_hints *hints;
    struct index_owns owns;
};

static inline struct race_view *race_view(struct index_view *base)
{
    return (struct race_view *)base; /* base comes first */
}

/* Where the cached directory leads. */
static inline uint64_t race_cached_entry(const struct race_view *view, uint64_t hash)
{
    return view->entries[race_suffix(hash, view->depth)];
}

/* What the headers of a subtable of that depth, with keys like this one, must be. */
static inline uint64_t race_header_of(const struct race_view *view, uint64_t hash, unsigned depth)
{
    return race_header(view->tag, depth, race_suffix(hash, depth));
}

/* A key, and what its hash says. */
struct race_key {
    struct slice bytes;
    uint64_t hash;
    uint8_t fingerprint;
    uint32_t combined[2]; /* byte offsets of its combined buckets within a subtable */
};

/* Where it was looked for: one subtable, with both combined buckets as they were read; or only with
 * one bucket, by race_peek(). */
#define RACE_PLACES      (2 * RACE_COMBINED_WORDS)
#define RACE_SLOT_PLACES 0xfefefefeu /* as bits: every eighth is a header */
struct race_look {
    uint64_t entry; /* the cached directory entry that was followed */
    gaddr subtable;
    unsigned depth;
    uint64_t *words;  /* RACE_PLACES; every eighth is a bucket header */
    bool sealed;      /* one of the slots is */
    uint64_t forward; /* of the subtable: race_probe() reads it if slots are sealed, else 0 */
    unsigned strayed; /* looks of this operation that found no part of the table */
};

/* Where a place of a look is in the subtable. */
static inline uint64_t race_place_offset(const struct race_key *key, unsigned place)
{
    ASSERT(place < RACE_PLACES);
    return key->combined[place / RACE_COMBINED_WORDS] + (place % RACE_COMBINED_WORDS) * 8ull;
}

/* ---- race_directory.c: hashing, the directory and its cache ---------------------------------- */
void race_hash(const struct race_view *view, struct slice bytes, struct race_key *key);
int race_attach(struct op *op, struct index_view *view);
void race_detach(struct index_view *view);
/* Reads the directory again. */
int race_refresh(struct op *op, struct race_view *view);
/* Notes in the cache that `entry`'s subtable was split. */
int race_follow(struct race_view *view, uint64_t entry, uint64_t hash, uint64_t forward);
/* Notes it in the remote directory. */
int race_update_directory(struct op *op, struct race_view *view, uint64_t entry, uint64_t hash,
                          uint64_t forward);

/* Reads a subtable's `forward`. */
int race_read_forward(struct op *op, gaddr subtable, uint64_t *forward);

/* ---- race_read.c ----------------------------------------------------------------------------- */

/* Where the cached directory leads: the beginning of any look. */
int race_find_subtable(const struct race_view *view, const struct race_key *key,
                       struct race_look *look, uint64_t *words);
/* Adds the READs of both combined buckets to the batch. MARK_HEAD: with tentative slots. */
static inline void race_read_buckets(struct op *op, const struct race_key *key,
                                     const struct race_look *look, enum fab_mark mark,
                                     uint64_t *words)
{
    for (unsigned i = 0; i < 2; i++)
        batch_add(&op->batch, FAB_READ, mark, look->subtable, key->combined[i],
                  words + i * RACE_COMBINED_WORDS, RACE_COMBINED_BYTES);
}
/* Starts a look: adds the READs of both combined buckets to the batch. `words` must be in
 * BUF_INDEX. */
int race_look_start(struct op *op, struct race_view *view, const struct race_key *key,
                    struct race_look *look, uint64_t *words);
/* Judges what was read. FAR_CORRUPT when it is no part of the table even after a refresh;
 * *again is set when the look must be started over. */
int race_look_finish(struct op *op, struct race_view *view, const struct race_key *key,
                     struct race_look *look, bool *again);

/* Looks for the key's committed slot among the places looked at: index_probe() of all slots with
 * its fingerprint, but for those in `known` (places that were judged before and still hold the same
 * word; NULL: none). Reads look->forward of a sealed subtable along. */
int race_probe(struct op *op, const struct race_key *key, struct race_look *look,
               const struct value_out *out, const uint64_t *known, struct index_found *found);
int race_get(struct op *op, struct index_view *view, struct slice key, struct value_out *out);
void race_ahead(const struct op *op, const struct index_view *view, struct slice key,
                struct index_ahead *ahead);

/* What this process knows of the key (index/hints.h). */
struct index_hint race_hint(const struct race_view *view, const struct race_key *key);
/* The key has that slot at that place of a look, or none if the slot is 0. */
void race_hint_note(struct race_view *view, const struct race_key *key, struct index_hint hint);
/*
 * Looks for the key only where the hint says, in one round trip (HINT-H1), or in two if its slot
 * was changed. A change's block is written along. A change does not find it beside a slot that is
 * sealed: if changes did not wait, the splitter might never get hold of a popular slot.
 * found->place is -1 if the key was not found there, or if the hint is of no use: then it may be
 * anywhere. `words` must be in BUF_INDEX.
 */
int race_peek(struct op *op, struct race_view *view, const struct race_key *key,
              const struct index_hint *hint, const struct value_out *out,
              struct index_change *change, struct race_look *look, uint64_t *words,
              struct index_found *found);

/* ---- race_iterate.c -------------------------------------------------------------------------- */
int race_iterate(struct op *op, struct index_view *view, struct entries_out *out);

/* ---- race_write.c ---------------------------------------------------------------------------- */
int race_change(struct op *op, struct index_view *view, struct slice key, struct change *change);

/* ---- race_split.c ---------------------------------------------------------------------------- */

/* The subtable of the look is full or being split: returns when it has been, with the cache
 * brought up to date. FAR_TABLE_FULL, FAR_POOL_FULL. */
int race_split_or_wait(struct op *op, struct race_view *view, const struct race_key *key,
                       const struct race_look *look);

/* A client died that had claimed a subtable. */
int race_recover(struct op *op, struct index_view *view, const struct journal_entry *entry);
/* Completes the split of a subtable, by its directory entry, if it was begun. */
int race_complete_split(struct op *op, struct index_view *view, uint32_t suffix, uint64_t entry);

/* ---- race_repair.c --------------------------------------------------------------------------- */

/* What is wrong with one word of a live subtable. */
enum race_fault {
    RACE_HEADER,     /* of a bucket, or of the subtable                            */
    RACE_UNREADABLE, /* a slot that leads to no block                              */
    RACE_MISPLACED,  /* a slot of a key that no lookup searches for here           */
    RACE_CLASS,      /* a slot that gives its block another size class than it has */
    RACE_TWICE,      /* a slot of a key that has another, which comes first        */
    RACE_UNKNOWN     /* a slot that is sealed and tentative at once                */
};
/* Repairs it, while others work. *done stays false if that is not possible. The finding's place is
 * the number of the word. Of a header or a class, it says what should be. */
struct index_finding;
int race_repair(struct op *op, struct race_view *view, gaddr subtable,
                const struct index_finding *finding, bool *done);
/* Repairs a directory entry that leads nowhere, by another one that leads to the same subtable. */
int race_repair_entry(struct op *op, struct race_view *view, uint64_t index, bool *done);

/* ---- race_check.c ---------------------------------------------------------------------------- */
int race_info(struct op *op, struct index_view *view, struct far_table_info *info);
int race_check(struct op *op, struct index_view *view, struct index_report *report);
int race_mark(struct op *op, struct index_view *view, struct marker *marker);

#endif
