/*
 * RCuckoo: cuckoo hashing with keys and values inline, locks of one bit, and repair by others.
 *
 * After "Cuckoo for Clients: Disaggregated Cuckoo Hashing" (Grant and Snoeren).
 * docs/index/rcuckoo.md says what was changed and shows the interleavings that made it necessary.
 *
 * A key belongs to one subtable, by a suffix of its hash, and there to two rows, A and B, which are
 * mostly near each other. Each row has eight entries. An insert that finds both rows full moves
 * entries to their other rows, along a path that ends in a row with room.
 *
 *   subtable:  anchor [ forward | closer | repair | lock words ]      rows 0 1 2 ... n-1
 *                                                                          A    B
 *   get      READ A; READ B; if neither has the key, READ A's meta word
 *   get, with a hint (HINT-H1): READ its row; READ the block
 *   change   1. WRITE intent; masked CAS of the lock words; READ rows
 *            2. WRITE redo; WRITE rows, the end of the path first; WRITE done; FAA that unlocks
 *
 * Linearization points
 *
 *   insert, put, update, delete, modify that change    the WRITE of the meta word of the key's row
 *   exists, not found, unchanged                       the READ of the rows under the locks
 *   get, hit                                           the READ of the meta word of the key's row
 *   get, miss                                          an instant between the READs (RCUCKOO-C4)
 *   a change whose client died                         as above; the WRITE may be the recovery's
 *
 * Guarantees, each used by those after it
 *
 *   RCUCKOO-C1  A row changes only under its lock, by the holder or by the client that recovers a
 *       dead holder, and by one WRITE with the next version. So an image that agrees with its
 *       checksum is the row at the instant when its meta word was read. Any other image says
 *       nothing of the table, and is not judged.
 *   RCUCKOO-C2  A key has one entry, or two equal ones while an insert moves it. A change holds the
 *       locks of both rows of its key, and of all rows of its path, and has read them under the
 *       locks. It writes a moved entry to its new row before it overwrites the old one.
 *   RCUCKOO-C3  A hit needs nothing else: the entry was the key's at that instant.
 *   RCUCKOO-C4  A miss is a READ of A, a READ of B and a READ of A's meta word, in this order, all
 *       whole, without the key, and A's meta word the same both times. Suppose that the key was
 *       there all the time. B did not have it when it was read, so it was in A then, and its entry
 *       in A was written before B was (RCUCKOO-C2). A did not have it when it was read. So A was
 *       written in between, and has another version. The version would have to go round, by
 *       65,536 WRITEs of A within two round trips. If A and B are read by one READ, there is no
 *       order between them, and both meta words must be the same. The last READ may be in a later
 *       batch: a miss is true at an instant between the first two READs, and what happens after
 *       that can only make the reader look again.
 *   RCUCKOO-C5  From before a client takes a lock until it has released it, a line of its journal
 *       names the lock. A line is written again only while its operation holds no lock, so an
 *       intent that is torn names none that is held.
 *   RCUCKOO-C6  The redo is whole before the first row is touched, and `done` is written after the
 *       last row and before the unlock. So a line with a redo that is not done surely holds its
 *       locks, and its rows are as they were, or as the redo says, or torn between the two. In a
 *       row that is torn, all but the one entry is the same in both. All other lines have no row
 *       half written.
 *   RCUCKOO-C7  One client at a time recovers a dead client's lines (LEASE-L2), after that client
 *       was shut out. It completes a redo that is not done. Then it writes `done`, and only then
 *       unlocks: the next recovery, if there is one, does not do it again.
 *   RCUCKOO-C8  A recovery releases locks only while the stamp of its line is in the anchor's
 *       `repair` word, and so one line at a time. R is set and cleared under that stamp. If the
 *       client dies, or has to wait, the next one to recover the same line goes on. (Without the
 *       stamp, a redo's unlock could come after another recovery has released the same locks,
 *       because its line was done.)
 *   RCUCKOO-C9  A line that perhaps holds a lock: its client is shut out, so a lock that is free at
 *       any look is not its own, and most are free soon. If one stays held, R is set, so nobody
 *       takes a lock of that word. Then all lines are read. If a lock is still set after that, its
 *       holder took it before R was set, so a line of its journal named it (RCUCKOO-C5). If no line
 *       of a living client does, the lock belongs to a dead one, whose line was final when it was
 *       read (JOURNAL-J6). If some do, this waits until each of them has another stamp, or is
 *       blank. Then its operation has released its locks (RCUCKOO-C5), and what the line says now
 *       was written after R was set, so it takes none. A line may also stay as it is, of a client
 *       that changes nothing for a while. Then this waits until all operations have ended that were
 *       in flight when R was set: the epoch has gone on by two. (An epoch that was noted when R was
 *       set before does not count, so it is cleared before R is set.) Then the lines are read
 *       again, since a client may have been shut out in the middle, or have left its line. (That
 *       may take long when clients die often: the epoch waits for dead clients that are not fenced
 *       yet.)
 *   RCUCKOO-C10  Then the lock is released, unless a line with a redo that is not done names it,
 *       too, be its client dead or alive. That line surely holds it, and its recovery releases it.
 *   RCUCKOO-C11  A subtable is split, or read as a whole, by the client whose name is in its
 *       `closer` word. It sets S in all lock words, and waits until no lock is held. From then on
 *       rows do not change, but for the moved bit. `forward` is set when all rows have that bit. So
 *       a row without it was authoritative when it was read, and one with it was if `forward` is 0
 *       afterwards. If the closer dies, the next client takes its name's place, removes the bits
 *       and opens the subtable again.
 *   RCUCKOO-C12  Memory. Anchors are never freed while the table stands, so locks may be looked at
 *       any time. The rows of a subtable that was split are retired. Sessions may still know them:
 *       a READ finds the moved bit, or something that is not a row of this subtable. Blocks are
 *       retired when the WRITE has completed that took their pointer out of the row.
 *   RCUCKOO-C13  Damage. A row that is not whole though no lock is held (RCUCKOO-C11) is damaged.
 *       What needs it ends with FAR_CORRUPT, and nothing else does. Nobody writes it but a split,
 *       which copies it to both children as damaged as it was, and a repair. A walk marks all that
 *       its slots may point to, so that a sweep leaves what a repair may salvage.
 *   RCUCKOO-C14  A repair makes a row whole again if one flipped bit explains the damage (FLIP-1).
 *       Of any other damaged row it keeps the entries that their blocks prove: the block is whole,
 *       of the pointer's generation, and an entry for its key and this pointer would be the same,
 *       and in this row. For a value inline the row's checksum is the only proof, so it is lost.
 *
 * Progress: readers wait only for a row that is being written. Writers take all locks at once, or
 * release those they got, and nobody waits while holding one. Every loop is bounded and ends with
 * FAR_CONTENTION.
 */
#ifndef RCUCKOO_RCUCKOO_H
#define RCUCKOO_RCUCKOO_H

#include "index/attempt.h"
#include "index/change.h"
#include "index/flip.h"
#include "index/hints.h"
#include "index/lock_wait.h"
#include "index/rcuckoo/rcuckoo_layout.h"

extern const struct index_ops rcuckoo_index;

enum rcuckoo_tuning {
    RCUCKOO_TUNING_ROWS,
    RCUCKOO_TUNING_KEY,
    RCUCKOO_TUNING_VALUE,
    RCUCKOO_TUNING_F,
    RCUCKOO_TUNING_LOCK_ROWS,
    RCUCKOO_TUNING_LOCKS,
    RCUCKOO_TUNING_WORDS,
    RCUCKOO_TUNING_GROWS,
    RCUCKOO_TUNING_HOT,
    RCUCKOO_TUNINGS
};
#define RCUCKOO_HOT_MAX     (1u << 22) /* KiB */
#define RCUCKOO_HOT_DEFAULT 4096u

/* What a session knows of a subtable. */
struct rcuckoo_sub {
    struct index_part part;
    gaddr rows; /* 0: not read yet */
};

/* A session's view: the sizes, a directory of what it knows, and rows that were full. */
struct rcuckoo_view {
    struct index_view base;
    gaddr root;
    struct rcuckoo_shape shape;
    uint64_t tuning[RCUCKOO_TUNINGS];
    struct index_parts parts;
    struct rcuckoo_cache *cache;
    struct index_hints *hints; /* of keys with blocks: the pointer, and the place, which is
                                        row (0: A, 1: B) * RCUCKOO_SLOTS + slot */
    bool answers;              /* the last answer of a modify needed a block, of this class */
    unsigned answer_class;
    bool blocks;                     /* the session has seen some */
    unsigned crowded;                /* see rcuckoo_write.c */
    unsigned hits;                   /* looks in a row that found the key */
    uint64_t lockings, lockings_one; /* by inserts: all, and those that took one word */
    /* Inserts: all, those that moved no entry, and those whose paths were short. */
    uint64_t paths, paths_unmoved, paths_short;
};
#define RCUCKOO_SHORT_SPAN 32u /* rows from the first to the last one of a short path */
#define RCUCKOO_NEAR_ROWS  5u  /* two rows of a key that are near each other */
static inline struct rcuckoo_view *rcuckoo_view(struct index_view *base)
{
    return (struct rcuckoo_view *)base;
}
static inline uint64_t rcuckoo_sub_id(const struct rcuckoo_view *view,
                                      const struct rcuckoo_sub *sub)
{
    return index_part_id(&view->parts, &sub->part);
}

static inline uint64_t rcuckoo_child_id(const struct rcuckoo_view *view,
                                        const struct rcuckoo_sub *parent, unsigned half)
{
    ASSERT(half < 2);
    unsigned depth = parent->part.depth;
    return index_anchor_id(view->base.table->desc.hash_seed, depth + 1,
                           parent->part.suffix | (uint64_t)half << depth);
}

/* A key, and where it belongs. */
struct rcuckoo_key {
    struct slice bytes;
    uint64_t hash;
    uint64_t first, mask; /* the word with which its entry begins, behind the lengths, as far as it
                             is compared */
    unsigned row[2];
    bool inside; /* it is short enough to be inline */
};

/* ---- rcuckoo_row.c: hashes, entries, rows ---------------------------------------------------- */
/* Sets all that follows from the tuning. False: entries would be too large. */
bool rcuckoo_shape_set(struct rcuckoo_shape *s, const uint64_t *tuning);
/* The moduli of the paper's formula, for f in hundredths. For the client that creates a table: all
 * others take them from the root, so that nobody else needs floating point. */
void rcuckoo_moduli(struct rcuckoo_shape *s, uint64_t f);

/* The bits of a hash that say where the key belongs. */
static inline uint64_t rcuckoo_hash_mask(const struct rcuckoo_view *view)
{
    return view->base.table->pool->knobs.hash_mask;
}
void rcuckoo_rows_of(const struct rcuckoo_shape *s, uint64_t hash, unsigned row[2]);
void rcuckoo_key_set(const struct rcuckoo_view *view, struct slice bytes, struct rcuckoo_key *key);

/* Where an iteration comes to a key with this hash: by the suffix, and then by the rest. */
uint64_t rcuckoo_position(const struct rcuckoo_view *view, uint64_t hash);
/* The hash of the entry in a slot, all 64 bits. False: there is none, or it is damaged. */
bool rcuckoo_slot_hash(const struct rcuckoo_view *view, uint64_t *row, unsigned slot,
                       uint64_t *hash);
/* The row where else the entry of a slot may be; RCUCKOO_ROWS_MAX if the entry is damaged. */
unsigned rcuckoo_other_row(const struct rcuckoo_view *view, uint64_t *row, unsigned number,
                           unsigned slot);

/* An entry for a key and a value. `pointer`: of the block, if one of them is too long to be
 * inline. */
bool rcuckoo_fits(const struct rcuckoo_shape *s, const struct rcuckoo_key *key, size_t vlen);
uint8_t rcuckoo_encode(const struct rcuckoo_shape *s, const struct rcuckoo_key *key,
                       struct slice value, uint64_t pointer, uint64_t *entry);

/* The slots of a row whose entries may be the key's, a bit each. If the key is inline, there is at
 * most one, and it is the key's. */
unsigned rcuckoo_candidates(const struct rcuckoo_shape *s, const struct rcuckoo_key *key,
                            uint64_t *row);
/* What the slot says of its entry: it is of a whole row. FAR_CORRUPT. */
int rcuckoo_slot_entry(const struct rcuckoo_view *view, uint64_t *row, unsigned slot,
                       struct rcuckoo_entry *e);
struct slice rcuckoo_slot_value(const struct rcuckoo_shape *s, uint64_t *row, unsigned slot,
                                struct rcuckoo_entry e);
static inline uint64_t rcuckoo_slot_pointer(const struct rcuckoo_shape *s, uint64_t *row,
                                            unsigned slot)
{
    return rcuckoo_slot(s, row, slot)[s->value_at];
}

/* Does the slot name this block? An inline value may be any word. */
bool rcuckoo_slot_names(const struct rcuckoo_shape *s, uint64_t *row, unsigned slot,
                        uint64_t pointer);

/* FAR_CORRUPT. */
int rcuckoo_row_damaged(const struct rcuckoo_view *view, unsigned row);
/* FLIP-1: the bit that explains the damage of a row, or INDEX_NO_BIT. */
unsigned rcuckoo_row_flipped(const struct rcuckoo_shape *s, uint64_t id, unsigned number,
                             uint64_t *row);
/* An empty row. */
void rcuckoo_row_init(const struct rcuckoo_shape *s, uint64_t id, unsigned number, uint64_t *row);
/* Changes one entry as the redo says, and with it version and checksum. */
void rcuckoo_row_redo(const struct rcuckoo_shape *s, uint64_t id, uint64_t *row,
                      const uint64_t *item);

/* ---- rcuckoo_table.c: what a session knows --------------------------------------------------- */
int rcuckoo_attach(struct op *op, struct index_view *view);
void rcuckoo_detach(struct index_view *view);
int rcuckoo_refresh(struct op *op, struct index_view *view);

/* A copy of what is known of the subtable with the hash: siblings on the ring may change it. Reads
 * the anchor if the session has not yet. */
int rcuckoo_find(struct op *op, struct rcuckoo_view *view, uint64_t hash, struct rcuckoo_sub *sub);
/* Is that the anchor of the subtable? FAR_CORRUPT. */
int rcuckoo_judge_anchor(const struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                         const struct rcuckoo_anchor *anchor);
/* Takes note of what an anchor says. *split: the subtable was split, and its children are known
 * now. */
int rcuckoo_know(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                 const struct rcuckoo_anchor *anchor, bool *split);
/* The anchors of the children: reads the first one, which names the second. Uses BUF_INDEX. */
int rcuckoo_children(struct op *op, const struct rcuckoo_view *view,
                     const struct rcuckoo_sub *parent, gaddr forward, uint64_t child[2]);
/* Reads the anchor, in a round trip of its own. Uses BUF_INDEX. */
int rcuckoo_read_anchor(struct op *op, const struct rcuckoo_view *view,
                        const struct rcuckoo_sub *sub, struct rcuckoo_anchor *anchor);

static inline uint64_t rcuckoo_row_at(const struct rcuckoo_shape *s, unsigned row)
{
    return (uint64_t)row * rcuckoo_row_bytes(s);
}

/* ---- rcuckoo_read.c -------------------------------------------------------------------------- */
/* Where the key's block was, if that was seen, and may be read behind the rows of the subtable. */
struct index_hint rcuckoo_hint(const struct op *op, const struct rcuckoo_view *view,
                               const struct rcuckoo_sub *sub, const struct rcuckoo_key *key);
/* The key has this block, or none: slot 0. `wrong`: its hint was of no use. */
void rcuckoo_hint_note(struct rcuckoo_view *view, const struct rcuckoo_key *key,
                       struct index_hint now);
/* Adds the READ of the block that a hint names, behind the rows (HINT-H1). Without memory for it,
 * block->slot is 0. */
void rcuckoo_hint_read(struct op *op, const struct index_hint *hint, struct index_block *block);
int rcuckoo_get(struct op *op, struct index_view *view, struct slice key, struct value_out *out);
void rcuckoo_ahead(const struct op *op, const struct index_view *view, struct slice key,
                   struct index_ahead *ahead);

/* ---- rcuckoo_lock.c: taking and releasing locks ---------------------------------------------- */
struct rcuckoo_locks {
    unsigned count;
    struct rcuckoo_locked lock[RCUCKOO_LOCK_WORDS]; /* by word, ascending, each once */
    unsigned verb[RCUCKOO_LOCK_WORDS];
};
/* False: it would be one word too many. */
bool rcuckoo_locks_add(const struct rcuckoo_shape *s, struct rcuckoo_locks *locks, unsigned row);
/* Adds the intent. */
void rcuckoo_intend(struct op *op, const struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                    struct journal *line, const struct rcuckoo_locks *locks);
/* Adds the intent and the masked CAS. What is read under the locks is added behind that. */
void rcuckoo_lock(struct op *op, const struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                  struct journal *line, struct rcuckoo_locks *locks);
/* The batch has succeeded: true if all locks are held. Otherwise `locks` are those that were taken,
 * and *closed says that the subtable is closed. */
bool rcuckoo_locked(const struct op *op, struct rcuckoo_locks *locks, bool *closed);
/* Adds the verbs that release them. */
void rcuckoo_unlock(struct op *op, const struct rcuckoo_sub *sub,
                    const struct rcuckoo_locks *locks);

/* ---- rcuckoo_path.c: where a new key goes ---------------------------------------------------- */
/* Rows that were read under the locks. */
#define RCUCKOO_RANGES 8u
struct rcuckoo_ranges {
    unsigned count;
    struct {
        unsigned first, count;
        uint64_t *image;
    } range[RCUCKOO_RANGES];
};
uint64_t *rcuckoo_ranges_row(const struct rcuckoo_shape *s, const struct rcuckoo_ranges *ranges,
                             unsigned row);

/* The rows of a path and the slots that change there. The first one gets the new key. */
struct rcuckoo_path {
    unsigned count;
    unsigned row[RCUCKOO_PATH_MAX], slot[RCUCKOO_PATH_MAX];
};
/* Looks for a path within the rows that were read. False: there is none. */
bool rcuckoo_path_find(struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                       const struct rcuckoo_key *key, const struct rcuckoo_ranges *ranges,
                       struct rcuckoo_path *path);
/* Guesses one from the rows that were full lately. Rows that are not known count as having room. */
bool rcuckoo_path_guess(struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                        const struct rcuckoo_key *key, struct rcuckoo_path *path);
int rcuckoo_cache_new(struct rcuckoo_cache **cache);
void rcuckoo_cache_forget(struct rcuckoo_cache *cache);
uint64_t rcuckoo_cache_bytes(void);

/* ---- rcuckoo_write.c ------------------------------------------------------------------------- */
int rcuckoo_change(struct op *op, struct index_view *view, struct slice key, struct change *change);

/* ---- rcuckoo_grow.c: closing a subtable, reading all of it, splitting it --------------------- */
/* How often an operation tries to close a subtable. */
#define RCUCKOO_CLOSINGS 400u
/* The subtable was found closed. Waits for its closer, or takes its place if it is dead, and opens
 * the subtable. *rests: the operation must give back what it holds, and call index_lock_rest(). */
int rcuckoo_wait_open(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                      struct index_lock_wait *wait, bool *rests);
/* Closes the subtable. *mine: it is closed, no lock is held, and this client must open or split it.
 * Otherwise another client has closed or split it, and *rests may be set as by
 * rcuckoo_wait_open(). */
int rcuckoo_close(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                  struct index_lock_wait *wait, bool *mine, bool *rests);
/* This client has closed the subtable: opens it. If it cannot, others do, for it is dead to them
 * then. */
int rcuckoo_open(struct op *op, const struct rcuckoo_view *view, const struct rcuckoo_sub *sub);
/* Splits it, unless another client does. */
int rcuckoo_split(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                  struct index_lock_wait *wait, bool *rests);

/* All rows of a subtable, in BUF_BULK. */
struct rcuckoo_snapshot {
    struct rcuckoo_sub sub;
    uint64_t *before, *rows; /* as they were read first, and then: an entry that was there all the
                                time is in one of them */
    unsigned damaged;        /* rows that are (RCUCKOO-C13) */
    bool split;              /* it was split: there are no rows */
};
int rcuckoo_snapshot(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                     struct rcuckoo_snapshot *snapshot);
static inline uint64_t *rcuckoo_snapshot_row(const struct rcuckoo_shape *s,
                                             const struct rcuckoo_snapshot *snapshot, unsigned row)
{
    ASSERT(row < s->rows && !snapshot->split);
    return snapshot->rows + (size_t)row * s->row;
}
bool rcuckoo_snapshot_whole(const struct rcuckoo_view *view,
                            const struct rcuckoo_snapshot *snapshot, unsigned row);
/* The entry of a slot that was replaced or removed while the rows were read, in snapshot->before.
 * NULL: there was none. */
uint64_t *rcuckoo_snapshot_gone(const struct rcuckoo_shape *s,
                                const struct rcuckoo_snapshot *snapshot, unsigned row,
                                unsigned slot);

/* Reports, and repairs, that the subtable is closed and nobody opens it. */
int rcuckoo_check_closed(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                         struct index_report *report);

/* ---- rcuckoo_repair.c ------------------------------------------------------------------------ */
/* The same for locks that nobody releases. */
int rcuckoo_check_locks(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                        struct index_report *report);
int rcuckoo_recover(struct op *op, struct index_view *view, const struct journal_entry *entry);

/* ---- rcuckoo_salvage.c ----------------------------------------------------------------------- */
/* Makes the damaged rows of a subtable whole, with what can be salvaged (RCUCKOO-C14), and reports
 * what became of them. If others hold it up, leaves them to the next walk. */
int rcuckoo_salvage(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                    struct index_report *report);
/* Removes the entry with this pointer, whose block is damaged, from a place: row * RCUCKOO_SLOTS +
 * slot. Closes the subtable meanwhile. *done is false if the entry has changed, or the subtable
 * could not be closed. */
int rcuckoo_remove(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                   unsigned place, uint64_t pointer, bool *done);

/* ---- rcuckoo_iterate.c, rcuckoo_check.c ------------------------------------------------------ */
int rcuckoo_iterate(struct op *op, struct index_view *view, struct entries_out *out);
int rcuckoo_mark(struct op *op, struct index_view *view, struct marker *marker);
int rcuckoo_info(struct op *op, struct index_view *view, struct far_table_info *info);
int rcuckoo_check(struct op *op, struct index_view *view, struct index_report *report);

#endif
