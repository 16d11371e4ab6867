/*
 * SHARD: three-level hashing for passive memory, resized lazily, made linearizable.
 *
 * After "SHARD: A Scalable and Resize-optimized Hash Index on Disaggregated Memory" (Zha et al.,
 * PVLDB 19(4), 2025). docs/index/shard.md says what was changed and shows the interleavings that
 * made it necessary.
 *
 * A unit is a bucket with its three levels: slots 0..63, 64..71, 72, and the chain behind that. A
 * key's levels are all in one unit. The table has a version R, the number of its resizes; the
 * unit of a hash at version v is hash mod S * 2^v. A resize adds a segment with as many buckets as
 * there were. Each unit is moved when it is met: half of its keys go to its new child.
 *
 * The life of a slot
 *
 *        insert          update            delete                 purge
 *   free --------> entry ------> entry' --------> tombstone -> filler -> free
 *                    |
 *                    +--> sealed, by a move --> free, when the child is published
 *
 * Linearization points
 *
 *   insert, put of a new key   the CAS of the tail (if it rides on a move: that or the publishing
 *                              CAS, the later one)
 *   update, put of a known key the CAS of the entry
 *   the same, if it has lost   right before that of the change that has won (CHANGE-C1)
 *   delete                     the CAS from the entry to a tombstone
 *   get, found                 the READ of the entry
 *   get, not found             an instant between call and return when the key was absent
 *   (SHARD-S7) update, delete, not found  as for get, not found;  insert, exists: as for get, found
 *
 * Guarantees, each used by those after it
 *
 *   SHARD-S1  A block is whole before a word names it, and does not change while one does.
 *   SHARD-S2  Nothing that others can reach is ever written by WRITE. Words change by CAS only, so
 *       there are no locks, and nothing to recover: any client may die at any verb.
 *   SHARD-S3  Inserts of a unit compete for one word, the tail: the lowest free one. Used slots
 *       stay used, and keep their key, until a purge or a move. So if the CAS of the tail succeeds,
 *       no key was inserted in the unit since its image was read, and a key has at most one live
 *       slot.
 *   SHARD-S4  A purge makes deleted slots free in three steps, each complete before the next. First
 *       every tombstone below the frontier (the lowest candidate) becomes a filler with a new
 *       stamp. Then every candidate above the frontier becomes open. Then the frontier becomes
 *       complete. A CAS of the first two steps fails only if another purge was faster. Then that
 *       word has the stamp of the other purge, and an open word is as good with any stamp. Fillers
 *       are free only while the frontier is complete with their stamp, and they are used before it.
 *       So every insert that has read an older frontier fails, and a candidate that is not open
 *       shows that no purge was completed. A READ may be torn, and show words of before and after a
 *       purge. So an insert whose frontier is open or complete, or that has none because the unit
 *       is full, reads twice, and the second image must show the same frontier as the first.
 *   SHARD-S5  A move from version u to u+1 changes the tail to a plan, and so stops inserts. It
 *       seals every live entry that goes to the child. All that on one image: then what moves is
 *       frozen and complete. Then it fills the child by CAS from 0, in the order of the slots, and
 *       marks slot 63. The last of these CAS publishes the child. All movers fill in the same, and
 *       a late CAS fails, because no word of a published bucket is ever 0 again in a slot that was
 *       filled. What a purge has left is freed behind the plan, and may lie below it, or be the
 *       frontier above a filler that the plan is in. A torn image may show such a word, and not the
 *       plan: then it has a wrong tail. So if the tail was freed by the move from u itself, inserts
 *       and movers read twice. The second image shows the plan.
 *   SHARD-S6  A unit is published once and for all, and its children in the order of their
 *       versions. The authority for a hash is the newest published unit on its path. It passes from
 *       a unit to its child with the publishing CAS; what is in the child then is what was frozen.
 *   SHARD-S7  A miss in the unit of version R, if that is published, is true: a key that was
 *       present throughout has one slot throughout, which was read. This holds across the levels,
 *       too: the last slot of a level is used before any slot of the next one, and it says so
 *       (`overflow`) until nothing is left there.
 *   SHARD-S8  The barrier. No move to version R begins while an operation is in flight that does
 *       not know R. The resizer sets R, then changes the version of all caches, then notes when the
 *       epoch will be such that every operation has validated its cache after that (EPOCH-E3).
 *       Until then operations that know R work in the old unit, and look whether its child has been
 *       touched: then the barrier is over. A resize may go over several versions. Then no move to
 *       any of them begins before, and the first child of a unit shows it, because children are
 *       published in order (SHARD-S6): so all look at that one whose key may go with any of the
 *       moves.
 *       An operation may also work in a unit of the version before although the barrier is over,
 *       as long as it sees no move there. Each CAS of a move compares what the mover has seen.
 *   SHARD-S9  A live word in a published unit on its key's path is the key's, whatever else is in
 *       the unit: it was sealed before a child that it goes to was published (SHARD-S5), and
 *       nothing makes it live again. So a hint needs no other word. But a unit that is not
 *       published may have live words that do not count yet. So a hint is followed only into a unit
 *       that this session knows to be published, and a unit stays so (SHARD-S6).
 *   SHARD-S10  A change does without a look at the unit only if the session knows that the unit is
 *       at version R, and that no barrier is pending. A mover needs an instant in which no entry
 *       that it seals or renews is changed. It gets that, because all that look at a unit of an
 *       older version help to move it, at the latest when they see the move or look a second time.
 *   SHARD-S11  A draft is a segment that one client clears ahead of its resize, a part with each
 *       change. The root leads to it by one word, and that word decides what becomes of it: to
 *       "ready", by its maker, when all is clear, or to 0, by anyone who needs its memory. Before
 *       each part, in the same operation, its maker reads the word, and a stamp that no other
 *       draft has. So its WRITEs end before the memory of a draft that was taken away is used again
 *       (EPOCH-E3). If one of them fails, it takes the draft away itself. A draft that is ready
 *       is the table's segment, if that has none: anyone notes that, and then takes the word away.
 *       A sweep reads the word before those of the segments.
 *
 * Progress: lock-free, with one exception: an insert into a unit that is full to the end of a chain
 * waits until the barrier is over, for a few leases at most. Every loop is bounded and ends with
 * FAR_CONTENTION.
 */
#ifndef SHARD_SHARD_H
#define SHARD_SHARD_H

#include "index/attempt.h"
#include "index/change.h"
#include "index/index.h"
#include "index/own.h"
#include "index/shard/shard_layout.h"
#include "index/split_bits.h"
#include "pool/array.h"

extern const struct index_ops shard_index;

enum shard_tuning {
    SHARD_TUNING_BUCKETS,
    SHARD_TUNING_SLOTS,
    SHARD_TUNING_LOAD,
    SHARD_TUNING_ALPHA,
    SHARD_TUNING_SYNC,
    SHARD_TUNING_COMBINING,
    SHARD_TUNING_HOT,
    SHARD_TUNINGS
};

struct shard_segment {
    struct pool_array units, tops;
    uint64_t *known; /* a bit for each unit: it is known to be published; or NULL */
};

/* The draft that this session makes (SHARD-S11). */
struct shard_draft {
    bool due;                   /* it is time to begin one */
    unsigned over;              /* the version for which this session begins none any more */
    uint64_t changes;           /* of this session */
    unsigned version;           /* for which it is made */
    uint64_t word;              /* the root's, which leads to it; 0: this session makes none */
    uint64_t stamp;             /* in its head */
    struct pool_array array[2]; /* units, tops */
    uint64_t cleared[2];        /* bytes of them */
    double pace, credit;        /* bytes to clear: of each change, and of those so far */
};

/* A session's view: the geometry, the segments, and what is known of the table's size. */
struct shard_view {
    struct index_view base;
    gaddr root;
    unsigned start_bits, lanes, level1, level2;
    unsigned words; /* level1 + level2 */
    uint64_t tuning[SHARD_TUNINGS];

    unsigned version; /* R */
    unsigned settled; /* moves to this version may begin: R, or R - steps before the barrier */
    uint64_t barrier; /* the epoch at which they may, or 0 */
    unsigned steps;   /* the versions that the last resize went over */
    unsigned opened;  /* segments */
    struct shard_segment *segment;

    int64_t unreported;     /* inserts less deletes since the last report */
    int64_t count;          /* of keys, as last heard */
    int64_t heard;          /* the same when this session last reported */
    double active;          /* sessions that seem to report as much as this one, with itself */
    double inserts, losses; /* of late, and how often they lost their unit's tail */
    unsigned since;         /* changes since then that count: see shard_sync_add() */
    unsigned assumed;       /* of them, those that it has not made */
    unsigned sync_after;    /* how many there may be */
    unsigned waited;        /* operations that found a barrier not over */
    bool driven;            /* an operation waits for it, and drives the epoch */
    struct {
        unsigned lane;
        uint64_t bucket, mark; /* 0: none */
    } note;                    /* a unit that is published, and whose mark does not say so yet */
    bool due;                  /* it is time to resize, */
    unsigned due_at;           /* from this version */
    bool resizing;             /* an operation of this session is at it, or at its draft */
    struct shard_draft draft;
    unsigned move_every; /* one change in this many moves a unit that is behind */
    unsigned behind_ops; /* operations during which units are expected to be behind */
    struct index_hints *hints;
    struct index_owns owns;
};

static inline struct shard_view *shard_view(struct index_view *base)
{
    return (struct shard_view *)base; /* base comes first */
}

/* A key, and what its hash says. */
struct shard_key {
    struct slice bytes;
    uint64_t hash;
    unsigned lane;
    uint8_t fingerprint;
};

/* ---- places ---------------------------------------------------------------------------------- */
static inline uint64_t shard_buckets(const struct shard_view *view, unsigned version)
{
    return 1ull << (view->start_bits + version);
}
static inline uint64_t shard_bucket(const struct shard_view *view, uint64_t hash, unsigned version)
{
    return hash & (shard_buckets(view, version) - 1);
}
/* The version that made the bucket, and so its segment. */
static inline unsigned shard_birth(const struct shard_view *view, uint64_t bucket)
{
    uint64_t above = bucket >> view->start_bits;
    return above == 0 ? 0 : 64u - (unsigned)__builtin_clzll(above);
}
/* The child that the move from version u makes. */
static inline uint64_t shard_child(const struct shard_view *view, uint64_t bucket, unsigned u)
{
    return bucket + shard_buckets(view, u);
}
/* The bucket that it was made of. Not for those of segment 0. */
static inline uint64_t shard_parent(const struct shard_view *view, uint64_t bucket)
{
    ASSERT(bucket >> view->start_bits != 0);
    return bucket - shard_buckets(view, shard_birth(view, bucket) - 1);
}
/* Does the move from version u take the hash away? */
static inline bool shard_goes(const struct shard_view *view, uint64_t hash, unsigned u)
{
    return hash >> (view->start_bits + u) & 1;
}
/* May a move whose barrier is not over take the hash away? The resize may be over several versions;
 * then the children are made in turn, and the first of them shows whether it is over. */
static inline bool shard_may_go(const struct shard_view *view, uint64_t hash)
{
    uint64_t path = shard_bucket(view, hash, view->version);
    return path != shard_bucket(view, hash, view->settled);
}
/* An entry's sid is its split bits (split_bits.h). A unit is a part of the table, and its version
 * the part's level. */
static inline unsigned shard_phase(const struct shard_view *view, uint64_t bucket)
{
    return index_split_phase(view->start_bits, bucket);
}
static inline uint64_t shard_sid(const struct shard_view *view, uint64_t hash, unsigned version)
{
    return index_split_bits(view->start_bits, hash, version);
}
static inline bool shard_entry_goes(uint64_t entry, unsigned u, unsigned phase)
{
    return index_split_goes(entry >> SHARD_SID_AT, u, phase);
}

/* Places in units of the table's version, without chains; and the keys at which it is resized. */
static inline int64_t shard_capacity(const struct shard_view *view)
{
    return (int64_t)((view->words + 1) * view->lanes * shard_buckets(view, view->version));
}
static inline int64_t shard_threshold(const struct shard_view *view)
{
    return (int64_t)((double)shard_capacity(view) * (double)view->tuning[SHARD_TUNING_LOAD] / 100);
}

/* Where a unit's first word is. */
gaddr shard_unit_at(const struct shard_view *view, unsigned lane, uint64_t bucket, uint64_t *delta);

/* ---- shard_unit.c: images of units ----------------------------------------------------------- */
struct shard_unit {
    unsigned lane;
    uint64_t bucket;
    gaddr at; /* of its first word: this and a byte offset */
    uint64_t delta;
    uint64_t *words; /* in BUF_INDEX */
    unsigned count;  /* of words that were read */
    unsigned chains;
    gaddr chain[SHARD_CHAIN_MAX];
};

/* Says which unit it is. */
static inline void shard_unit_set(const struct shard_view *view, struct shard_unit *unit,
                                  unsigned lane, uint64_t bucket)
{
    unit->lane = lane;
    unit->bucket = bucket;
    unit->at = shard_unit_at(view, lane, bucket, &unit->delta);
}
/* Where a slot is. */
gaddr shard_slot_at(const struct shard_view *view, const struct shard_unit *unit, unsigned slot,
                    uint64_t *delta);
static inline unsigned shard_cas(struct op *op, const struct shard_view *view,
                                 const struct shard_unit *unit, unsigned slot, uint64_t from,
                                 uint64_t to)
{
    uint64_t delta;
    gaddr at = shard_slot_at(view, unit, slot, &delta);
    return op_cas(op, MARK_PUBLISH, at, delta, from, to);
}
/* Adds the READ of a unit's first `count` words: level 1, or level 1 and 2. */
void shard_unit_read(struct op *op, const struct shard_view *view, struct shard_unit *unit,
                     unsigned count);
/* Adds the READ of the last word of level 1, by which a unit shows whether it is published. Returns
 * its number. */
unsigned shard_guard_read(struct op *op, const struct shard_view *view, unsigned lane,
                          uint64_t bucket);
/* Reads the levels that are missing: flushes what is in the batch, and again for each chain node.
 * Each time it also reads, behind the rest, the guard word of the child that the move from version
 * u makes; it returns the last one in *child. u is SHARD_NO_CHILD: none. */
#define SHARD_NO_CHILD UINT32_MAX
int shard_unit_extend(struct op *op, const struct shard_view *view, struct shard_unit *unit,
                      unsigned u, uint64_t *child);
/* Is level 3 in the image, if there may be anything? */
static inline bool shard_unit_whole(const struct shard_view *view, const struct shard_unit *unit)
{
    return unit->count > view->words ||
           (unit->count == view->words && !shard_overflows(unit->words[view->words - 1]));
}
/* Is the unit published? At least level 1 is in the image. */
bool shard_published(const struct shard_view *view, const struct shard_unit *unit);

/* The same of a unit whose guard word has been read: 1, 0, or -1 if it takes a look at level 1. */
int shard_guard_says(const struct shard_view *view, uint64_t bucket, uint64_t guard);
/* Looks at level 1 then. */
int shard_look_published(struct op *op, struct shard_view *view, unsigned lane, uint64_t bucket,
                         bool *published);
/* Notes in the mark that the unit is published. This takes no round trip: the CAS goes out with the
 * session's next change (shard_note_add()). */
void shard_note(struct shard_view *view, unsigned lane, uint64_t bucket, uint64_t mark);
void shard_note_add(struct op *op, struct shard_view *view);

/* Reads all of a unit, and which version it had throughout. */
int shard_unit_look(struct op *op, struct shard_view *view, struct shard_unit *unit, unsigned *u);

/* Finds the newest published unit on the path to a bucket, and reads all of it with its version.
 * *again: the next one on the path has been published meanwhile. */
int shard_find_authority(struct op *op, struct shard_view *view, unsigned lane, uint64_t bucket,
                         struct shard_unit *unit, unsigned *u, bool *again);

/* Where inserts compete in an image of version u. */
struct shard_tail {
    unsigned slot;
    uint64_t word;
    bool full;         /* there is none: slot and word are the last ones of the unit */
    bool freed;        /* by a move from version u: SHARD-S5 */
    bool twice;        /* SHARD-S4, SHARD-S5: the unit must be read twice */
    unsigned frontier; /* the lowest candidate, or the last slot if it is full; */
    uint64_t frontier_word;
};
void shard_find_tail(const struct shard_unit *unit, unsigned u, struct shard_tail *tail);

/* The frontier of an earlier image. */
struct shard_seen {
    bool once;
    unsigned slot;
    uint64_t word;
};
/* May the tail be used? If the unit must be read twice, the frontier is remembered, and this is
 * true when the next image shows the same one (SHARD-S4, SHARD-S5). */
static inline bool shard_seen_enough(struct shard_seen *seen, const struct shard_tail *tail)
{
    if (!tail->twice ||
        (seen->once && seen->slot == tail->frontier && seen->word == tail->frontier_word))
        return true;
    *seen = (struct shard_seen){true, tail->frontier, tail->frontier_word};
    return false;
}

/* Slots that agree with a key under a mask. */
struct shard_matches {
    unsigned count;
    uint64_t word[SHARD_UNIT_MAX];
    uint16_t slot[SHARD_UNIT_MAX];
};
/* Adds those from slot `from` on. */
void shard_match(const struct shard_unit *unit, unsigned from, uint64_t mask, uint64_t want,
                 struct shard_matches *matches);
/* Looks for the key among their blocks. Flushes what is in the batch. found->place is the slot. */
int shard_probe(struct op *op, struct slice key, const struct shard_matches *matches,
                const struct value_out *out, struct index_found *found);

/* ---- shard_table.c: hashing, the root, growing ----------------------------------------------- */
void shard_hash(const struct shard_view *view, struct slice bytes, struct shard_key *key);
int shard_attach(struct op *op, struct index_view *view);
void shard_detach(struct index_view *view);
int shard_refresh(struct op *op, struct shard_view *view);
/* Makes the arrays of a segment, empty. */
int shard_make_segment(struct op *op, const struct shard_view *view, unsigned r,
                       struct shard_segment *segment);
/* Is the barrier over? */
void shard_settle(struct op *op, struct shard_view *view);
/* Adds the verbs that report the session's inserts and read the table's size, if it is time. */
struct shard_sync {
    bool added;
    unsigned count, resize;
    int64_t reported;
    int64_t assumed; /* of these */
    int grows;       /* by the change that it goes with: 1, 0 or -1 keys */
};
void shard_sync_add(struct op *op, struct shard_view *view, struct shard_sync *sync);
/* Reports out of turn what this session has really made. */
void shard_sync_add_now(struct op *op, struct shard_view *view, struct shard_sync *sync);
/* Estimates the number of keys from a few units, in case that others have not reported theirs: is
 * it time to resize? `words` has room for a unit. */
int shard_estimate(struct op *op, struct shard_view *view, uint64_t *words);
/* Behind the flush. `done`: the change was made. */
void shard_sync_completed(struct op *op, struct shard_view *view, struct shard_sync *sync, int rc,
                          bool done);
/* An insert has lost its unit's tail this often. */
void shard_note_losses(struct shard_view *view, unsigned losses);
/* Resizes the table if it has come to that, and no other client does so; `forced`: though another
 * client does. Not being able to is no error of the caller's. */
void shard_grow(struct op *op, struct shard_view *view, bool forced);

/* ---- shard_draft.c: a segment is cleared before it is needed --------------------------------- */

/* The session has heard how many keys there are: is it time for a draft? */
void shard_draft_consider(struct shard_view *view);
/* Asked once for each change: is there something to do for the draft? */
static inline bool shard_draft_waits(struct shard_view *view)
{
    struct shard_draft *d = &view->draft;
    d->changes++;
    d->credit += d->pace; /* 0 without a draft */
    return d->due || d->credit >= (double)view->base.table->pool->knobs.clear_part;
}
/* One step with the session's draft, if it has one, or is to begin one. `hurry`: the table is due
 * to be resized; `whole`: all steps at once. */
void shard_draft_go_on(struct op *op, struct shard_view *view, bool hurry, bool whole);
/* The root's word is that: uses the draft if it is ready, or takes it away. */
int shard_draft_settle(struct op *op, const struct shard_view *view, uint64_t word);
/* The pool is full: the same, whatever the word is. */
void shard_draft_yield(struct op *op, struct shard_view *view);
/* Forgets what this session knows of its own. */
void shard_draft_forget(struct shard_draft *draft);
/* Takes memory for the arrays of a segment. */
int shard_alloc_segment(struct op *op, const struct shard_view *view, unsigned r,
                        struct pool_array *units, struct pool_array *tops);
int shard_mark_array(struct op *op, uint64_t ref, struct marker *marker);
int shard_draft_mark(struct op *op, const struct shard_view *view, struct marker *marker);

/* ---- shard_hint.c: what a session remembers -------------------------------------------------- */

/* Words for the units of a segment that are known to be published: those of segment 0 are. */
static inline uint64_t shard_known_words(const struct shard_view *view, unsigned r)
{
    return r == 0 ? 0 : (shard_buckets(view, r - 1) * view->lanes + 63) / 64;
}
/* The unit is published. */
void shard_know(struct shard_view *view, unsigned lane, uint64_t bucket);
/* How much is in use for all that is remembered. */
uint64_t shard_hint_bytes(const struct shard_view *view);

/* What this process knows of the key (index/hints.h). */
struct index_hint shard_hint(const struct shard_view *view, const struct shard_key *key);
/* The key has that word in that slot of its unit, or none if the word is 0. Returns what is kept of
 * that. */
struct index_hint shard_hint_note(struct shard_view *view, const struct shard_key *key,
                                  struct index_hint hint);
/* The unit in which the key may be read, or changed, without a look at the rest of it; or false
 * (SHARD-S9, SHARD-S10). */
bool shard_hint_unit(struct op *op, struct shard_view *view, const struct shard_key *key,
                     bool changes, struct shard_unit *unit);
/*
 * Looks for the key only where the hint says, in one round trip (HINT-H1), or in two if its word
 * was changed. A change's block is written along. found->place is -1 if the key was not found
 * there, or if there is no hint that can be followed (*hint is 0): then it may be anywhere.
 */
int shard_peek(struct op *op, struct shard_view *view, const struct shard_key *key,
               const struct value_out *out, struct index_change *change, struct shard_unit *unit,
               struct index_hint *hint, struct index_found *found);

/* ---- shard_read.c ---------------------------------------------------------------------------- */
int shard_get(struct op *op, struct index_view *view, struct slice key, struct value_out *out);
void shard_ahead(const struct op *op, const struct index_view *view, struct slice key,
                 struct index_ahead *ahead);

/* ---- shard_write.c --------------------------------------------------------------------------- */
int shard_change(struct op *op, struct index_view *view, struct slice key, struct change *change);
/* The same, but it does not rest, as an insert into a full unit does. */
int shard_change_at_once(struct op *op, struct index_view *view, struct slice key,
                         struct change *change);

/* ---- shard_move.c ---------------------------------------------------------------------------- */

/* An insert that rides on a move. */
struct shard_ride {
    const struct shard_key *key;
    uint64_t word; /* the entry, without sid; 0: none rides */
    bool done;     /* it is inserted */
};
/* Moves the units on a hash's path until it is at `version`. With FAR_OK it is, or the ride is
 * done. `image` is NULL, or an image of the unit of version - 1 that is whole, and had that version
 * before and behind it. */
int shard_move(struct op *op, struct shard_view *view, unsigned lane, uint64_t hash,
               unsigned version, struct shard_ride *ride, const struct shard_unit *image);

/* Adds a chain node behind the last word of a full unit: with that word and `second`, and free
 * words of a new stamp. *grown: it was done. */
int shard_chain(struct op *op, struct shard_view *view, const struct shard_unit *unit,
                const struct shard_tail *tail, uint64_t stamp, uint64_t second, bool *grown);

/* ---- shard_iterate.c ------------------------------------------------------------------------- */
int shard_iterate(struct op *op, struct index_view *view, struct entries_out *out);

/* ---- shard_check.c --------------------------------------------------------------------------- */
int shard_info(struct op *op, struct index_view *view, struct far_table_info *info);
int shard_check(struct op *op, struct index_view *view, struct index_report *report);
int shard_mark(struct op *op, struct index_view *view, struct marker *marker);

#endif
