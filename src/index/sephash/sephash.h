/*
 * SepHash: a small segment for appending, a large sorted one below it, made linearizable.
 *
 * After "SepHash: A Write-Optimized Hash Index On Disaggregated Memory via Separate Segment
 * Structure" (Min et al., PVLDB 17(5), 2024). docs/index/sephash.md says what was changed and shows
 * the interleavings that made it necessary.
 *
 * A segment has the keys with one suffix of the hash. Its anchor names its CurSegment C, and C
 * names the pages of its MainSegment M. All changes are appended to C. When C is full for
 * a key, any client makes a new pair (C', M') of both, or two pairs if M' becomes too large, and
 * changes the anchor's word.
 *
 *                     append        merge              split
 *   anchor A  C0 M0 --------> C0' M0 ------> C1 M1 --> ... ------> fork --> anchor A0  C M
 *                                                                     \---> anchor A1  C M
 *
 * A put appends the word of its block. A delete appends the very word that it deletes: a word that
 * is in the segment twice says that its key is deleted. The address of a block is not used again
 * while a segment names it, so no two puts have the same word.
 *
 * Linearization points
 *
 *   put; insert, update, delete, modify that change    the CAS of the slot
 *   put, update that has lost the slot to another      right before that one's CAS (CHANGE-C1)
 *   get; insert, exists; update, delete, not found     an instant between call and return
 *   (SEPHASH-H3)
 *
 * Guarantees, each used by those after it
 *
 *   SEPHASH-H1  C has lanes of slots, and a spill behind them. A key may have the slots of its
 *       lane, and behind these the slots of the spill. They fill in this order, and each once: a
 *       client CASes one of them from 0 only if it has seen that those before it are filled. So
 *       what C has of a key is a sequence, and a state of it is its length.
 *   SEPHASH-H2  C is current from the CAS that makes its anchor name it to the CAS that makes it
 *       name another. The second comes after all lanes and the spill are full or closed: the client
 *       that does it has put a word that means nothing into the first empty slot of each, and
 *       nobody appends behind such a word. So a CAS that fills a slot does so while C is current,
 *       and when C is replaced, both segments have been constant since. All clients that merge a
 *       segment read the same, and one of their CAS succeeds, because the anchor's word has a
 *       generation. Any of them may die.
 *   SEPHASH-H3  The slots of a key up to the first empty one that READs have found, together with
 *       M, are the key's state at one instant of the operation. Let slot i be found empty, and
 *       those below it filled. Then there is an instant when exactly those were filled: slot i-1
 *       was filled before the READ ended, and slot i is filled after it began. If C was replaced
 *       before that, the READ finds it full or closed, and its last state held up to that CAS. The
 *       operation has read the anchor, so it has begun before C was replaced. So a READ of the
 *       slots needs no second look, nor an order against the READs of the anchor and of M.
 *   SEPHASH-H4  Exact results. An operation judges the key by such a state with n filled slots, and
 *       CASes slot n. If that succeeds, the key was in this state at that time. If it fails,
 *       the word that was found is all that is new. If that one can be of the key, it looks again.
 *       If not, the judgement holds for the state with n + 1 slots, and so on. It does not matter
 *       whether such words were found by CAS or by a READ, up to the first empty slot (SEPHASH-H3).
 *       A put or an update may be done then (CHANGE-C1): slot n was filled after the look that has
 *       found it empty, and right before that the key was in the state that was judged.
 *   SEPHASH-H5  The filter, if there is one. A client writes the mark of a key ahead of the CAS of
 *       its slot, in the same batch: a mark that is found 0 says that no slot with the key was
 *       filled then. All write the same word 1, and nobody clears it: a new C has a new filter.
 *   SEPHASH-H6  Memory. An operation writes to C, and follows words of C and M, only if it has read
 *       the anchor that names C. What is retired later is not reused before it ends (EPOCH-E3). C,
 *       the pages of M and the blocks of words that are covered or deleted are retired by the
 *       client whose CAS has replaced them, and by no other.
 *   SEPHASH-H7  Caches are guesses. READs through them go out with the READ of the anchor, and
 *       count only if its word is the same as when the cache was filled. Then C was current in
 *       between, because of the generation. Anchors are no guesses: they are never freed as long as
 *       the table is there, and one that was split leads to its children for ever (PARTS-1). The
 *       directory is advice (PARTS-2).
 *   SEPHASH-H8  A merge takes memory before it gives some back. For deletes in a full pool the root
 *       has a reserve, as large as the largest segment. Only a merge may use it that gives blocks
 *       back, or lets a key be deleted or replaced, and no other merge goes on before the reserve
 *       is complete. A segment has as many pages as its next merge needs: so such a merge takes no
 *       more than it gives back.
 *   SEPHASH-H9  A value that was replaced or deleted does not come back if the newer block is
 *       damaged. Nobody can tell the key of such a block: it may be that of any older entry with
 *       its tag. So an entry stays ahead of these: in merges, in splits that change the tags, and
 *       as a word without an address if it is a delete. A repair removes them together with it.
 *   SEPHASH-H10  Newest first. Of the words that may be of the key, the newest one that is decides
 *       alone. A popular key has many slots, so if several slots may be of the key, the block of
 *       the newest one is read first, and the others only if that is another key's. The state that
 *       is judged stays that of the look: no word of it changes, and all blocks stay as they are
 *       until the operation ends (SEPHASH-H3, SEPHASH-H6).
 *   SEPHASH-H11  Hints. A hint says which word was the newest of a key. Its block is read behind
 *       the anchor and the slots (HINT-H1), and counts only if the look finds the word to be the
 *       newest entry of the key: in the slots, or in M if no slot may be of the key. If the look
 *       has read one entry of M instead of the range, and that is the word, and its block is the
 *       key's, then there is no other entry of the key in M, unless a damaged one is ahead of it
 *       (SEPHASH-H9). The header says whether there may be one, and then the range is read.
 *
 * Progress: lock-free, except that an operation that finds C full waits a little for the client
 * that has filled it. Every loop is bounded and ends with FAR_CONTENTION.
 */
#ifndef SEPHASH_SEPHASH_H
#define SEPHASH_SEPHASH_H

#include "index/attempt.h"
#include "index/change.h"
#include "index/hints.h"
#include "index/index.h"
#include "index/parts.h"
#include "index/sephash/sephash_layout.h"

_Static_assert(SEPHASH_DEPTH_MAX <= INDEX_PART_DEPTH_MAX, "a suffix fits into an id");

extern const struct index_ops sephash_index;

enum sephash_tuning {
    SEPHASH_TUNING_SLOTS,
    SEPHASH_TUNING_RATIO,
    SEPHASH_TUNING_FILTER,
    SEPHASH_TUNING_POINTS,
    SEPHASH_TUNING_DEPTH,
    SEPHASH_TUNING_LANE,
    SEPHASH_TUNING_HOT,
    SEPHASH_TUNINGS
};
#define SEPHASH_POINTS_UNUSED 2 /* of "points": lookups read whole MainSegments */

/* What a session knows of a segment. */
struct sephash_segment {
    struct index_part part; /* anchor, suffix, depth */
    uint64_t state;         /* of the anchor when the rest was true; 0: nothing is known */
    uint64_t seen;          /* the epoch of the operation that found this last */
    uint16_t barren;        /* with this many slots filled, it had no block to give back */
    uint16_t err, points;
    uint16_t spilled; /* this many slots of the spill are filled, and perhaps more */
    uint64_t full;    /* a bit for each lane: all of its slots are filled */
    uint64_t busy;    /* a bit for each lane: the session's last change there has met others */
    uint16_t entries;
    uint16_t doubtful; /* a damaged entry of M is ahead of others that have its tag, perhaps */
    uint64_t page[SEPHASH_PAGES];
};
/* The same with its FPTable. The session's directory leads to these. */
struct sephash_known {
    struct sephash_segment segment;
    uint16_t table[];
};

/* A session's view: the sizes, and a directory of what it knows. */
struct sephash_view {
    struct index_view base;
    gaddr root;
    struct sephash_shape shape;
    uint64_t tuning[SEPHASH_TUNINGS];
    struct index_parts parts;
    struct index_hints *hints;
    uint64_t merges;        /* of base.grown; the others are splits */
    bool owes;              /* the reserve may be incomplete */
    unsigned reserve_pages; /* that it must have, as far as this session knows */
    uint64_t compacted;     /* the suffix that sephash_make_room() comes to next */
    unsigned refused;       /* changes in a row, because the pool is full */
    uint64_t fruitless;     /* segments in a row that it has looked at in vain */
};

static inline struct sephash_view *sephash_view(struct index_view *base)
{
    return (struct sephash_view *)base; /* base comes first */
}

/* A key, and what its hash says. */
struct sephash_key {
    struct slice bytes;
    uint64_t hash;
    unsigned fp, fp2;
    unsigned bucket; /* of the filter */
    unsigned lane;
};
void sephash_hash(const struct sephash_view *view, struct slice bytes, struct sephash_key *key);
/* The tag that the key's entries have in a segment of that depth. */
static inline uint64_t sephash_key_tag(const struct sephash_view *view,
                                       const struct sephash_key *key, unsigned depth)
{
    unsigned start = view->parts.start;
    return sephash_tag(key->fp, key->fp2, index_split_bits(start, key->hash, depth - start));
}

/* ---- sephash_table.c: the FPTable ------------------------------------------------------------ */
/* Makes the table of a MainSegment: the entries of fp i are those from start[i] on, below start[i +
 * 1]. Returns the number of points. */
unsigned sephash_table_make(bool plain, const uint32_t start[SEPHASH_FPS + 1], uint16_t *table,
                            unsigned *err);
/* The entries *from and up to *to may have the fp, and all others have not. */
void sephash_table_find(bool plain, const uint16_t *table, unsigned points, unsigned err,
                        unsigned entries, unsigned fp, unsigned *from, unsigned *to);

/* ---- sephash_view.c: what a session knows ---------------------------------------------------- */
int sephash_attach(struct op *op, struct index_view *view);
void sephash_detach(struct index_view *view);
int sephash_refresh(struct op *op, struct index_view *view);

static inline struct sephash_known *sephash_known_of(const struct sephash_view *view, uint64_t hash)
{
    return (struct sephash_known *)index_part_of(&view->parts, hash); /* the part comes first */
}
/* Notes what was read of a segment, unless the session knows another one there by now. */
int sephash_know(struct sephash_view *view, const struct sephash_segment *segment,
                 const uint16_t *table);
/* Notes that the segment was found as it is known. */
void sephash_know_seen(struct sephash_view *view, const struct sephash_segment *segment);
/* Notes that the lane is full. filled: of the slots that its keys may have. */
void sephash_know_full(struct sephash_view *view, const struct sephash_segment *segment,
                       unsigned lane, unsigned filled);
/* Notes that a merge with this many slots filled would give no block back. */
void sephash_know_barren(struct sephash_view *view, const struct sephash_segment *segment,
                         unsigned filled);

/* ---- sephash_look.c: an operation's view of a segment ---------------------------------------- */
struct sephash_look {
    struct sephash_segment segment; /* a copy */
    unsigned from, to;              /* the entries of the MainSegment that may be of the key */
    uint64_t tag;                   /* of the key here */
    bool current; /* this operation has read the anchor, and it names the segment */
    bool misled;  /* what was read is not the anchor */
    bool has_slots;
    unsigned lane;   /* of the key */
    unsigned room;   /* slots that the key may have, and that were read */
    unsigned filled; /* slots that the key may have, up to the first empty one; or all that are */
    bool full;       /* nothing more can be appended for the key; or at all */
    uint64_t *slots; /* in BUF_INDEX: the lane and the spill; or all slots */
    uint16_t in_lane[SEPHASH_LANES_MAX], in_spill; /* if all were read: those that are filled */
    uint64_t *range;                               /* in BUF_BULK */
    const uint16_t *table;                         /* in BUF_INDEX, after sephash_learn() */
    uint64_t mark;                                 /* of the filter */
    uint64_t *candidate;                           /* in BUF_BULK: newest first */
    unsigned in_slots, candidates;
    unsigned base; /* `from`, unless a hint says which entry it is: then that alone was read */
    bool narrow;
    bool late;                 /* some slots were read behind that */
    struct index_block hinted; /* what a hint names, read behind the rest; slot 0: nothing */
};
enum sephash_wanted {
    SEPHASH_LANE = 1,  /* the slots of the key's lane */
    SEPHASH_SLOTS = 2, /* all slots */
    SEPHASH_MARK = 4,  /* the mark of the key */
    SEPHASH_RANGE = 8, /* the entries of the MainSegment */
};
/* Reads what is wanted of the key's segment, with what is in the batch. If the session knew another
 * segment, or none, it takes more round trips. With a hint, the block that it names is read,
 * too. */
int sephash_look(struct op *op, struct sephash_view *view, const struct sephash_key *key,
                 unsigned wanted, const struct index_hint *hint, struct sephash_look *look);
/* Reads the header and the slots of the CurSegment that the state names, into the look and the
 * cache. */
int sephash_learn(struct op *op, struct sephash_view *view, uint64_t state,
                  struct sephash_look *look);
/* Adds the READ of the slots of the key's lane, and of the spill if the lane is known to be full.
 * The flush is followed by sephash_count_lane(), which may have to read the spill. */
void sephash_read_lane(struct op *op, const struct sephash_view *view, struct sephash_look *look);
int sephash_count_lane(struct op *op, struct sephash_view *view, struct sephash_look *look);
/* Adds the READ of all slots; the flush is followed by sephash_count_slots(). */
void sephash_read_slots(struct op *op, const struct sephash_view *view, struct sephash_look *look);
void sephash_count_slots(const struct sephash_view *view, struct sephash_look *look);
/* Adds the READ of the key's slots behind those that were filled, of a segment that is current. */
void sephash_read_on(struct op *op, const struct sephash_view *view, struct sephash_look *look);
/* All slots were read: is this one filled, and are those before it in its lane or the spill? */
static inline bool sephash_slot_counts(const struct sephash_shape *shape,
                                       const struct sephash_look *look, unsigned slot)
{
    unsigned spill = shape->lanes * shape->lane;
    return slot < spill ? slot % shape->lane < look->in_lane[slot / shape->lane]
                        : slot - spill < look->in_spill;
}
/* Adds the READs of some entries of the MainSegment. */
void sephash_read_main(struct op *op, const struct sephash_view *view,
                       const struct sephash_segment *segment, unsigned from, unsigned to,
                       uint64_t *image);
/* Gathers the entries that may be of the key, and reads their blocks, as far as it takes
 * (SEPHASH-H10). found->place is among the candidates; below look->in_slots it is one of the
 * slots. */
void sephash_gather(struct sephash_look *look);
int sephash_probe(struct op *op, const struct sephash_key *key, const struct sephash_look *look,
                  const struct value_out *out, struct index_found *found);
/* The same, by the block that a hint names if that is the newest. *misled: the hint was wrong, and
 * not all that is needed was read (SEPHASH-H11). */
int sephash_find(struct op *op, const struct sephash_key *key, struct sephash_look *look,
                 const struct value_out *out, struct index_found *found, bool *misled);
/* Is the candidate a delete? */
bool sephash_deletes(const struct sephash_look *look, unsigned place);

/* ---- sephash_hint.c: where keys were --------------------------------------------------------- */
/* Places in a hint are entries of the MainSegment, counted from the first one that may be of the
 * key. This one: the word is among the slots, or further away. */
#define SEPHASH_ANYWHERE (INDEX_HINT_PLACES - 1)
struct index_hint sephash_hint(const struct sephash_view *view, const struct sephash_key *key);
/* May the place be used? Otherwise the segment was merged since. */
bool sephash_hint_recent(const struct index_hint *hint, uint64_t state);
/* The place of a word that was found in a look. */
unsigned sephash_hint_place(const struct sephash_look *look, uint64_t word);
/* The key has that word, at that place. 0: it is absent. hint: what was known of it, or NULL. */
void sephash_hint_note(struct sephash_view *view, const struct sephash_key *key, uint64_t state,
                       uint64_t word, unsigned place, const struct index_hint *hint);

/* ---- sephash_resolve.c: which entries count -------------------------------------------------- */
enum sephash_fate {
    SEPHASH_LIVE,    /* the newest of its key */
    SEPHASH_COVERED, /* there is a newer one, or a delete: its block is retired by the merge */
    SEPHASH_GONE,    /* a delete; its block is that of the covered one */
};
struct sephash_item {
    uint64_t word;
    uint32_t group; /* items of the same group may be of the same key */
    uint32_t rank;  /* lower: newer */
    uint32_t bytes; /* of the block that were read */
    enum sephash_fate fate;
    bool fits;         /* its class is that of its block, as far as that was read */
    bool unreadable;   /* its block had to be read, and is damaged */
    const void *image; /* of the block, in BUF_BLOCK_IN; NULL: it was not read, or is not whole */
};
/* Sorts the items by group and rank, and decides what each one is. Reads the blocks of those that
 * share a group. */
int sephash_resolve(struct op *op, struct sephash_item *items, unsigned count);

/* The state of a whole segment. */
struct sephash_state {
    struct sephash_look look; /* current, with the segment's header */
    uint64_t *main; /* its entries, in BUF_BULK, with room for as many behind them, and for
                                 the slots */
    struct sephash_item *items;
    unsigned count;
};
/* Reads its words, with what is in the batch. */
int sephash_read_words(struct op *op, struct sephash_view *view, struct sephash_state *state);
/* Decides on them. The items are those that had to be compared, and say which entries do not count;
 * the caller frees them. */
int sephash_judge_words(struct op *op, struct sephash_view *view, struct sephash_state *state);
int sephash_read_state(struct op *op, struct sephash_view *view, struct sephash_state *state);
/* Clears the words that do not count. */
void sephash_clear_dead(const struct sephash_view *view, struct sephash_state *state);

/* ---- sephash_reserve.c ----------------------------------------------------------------------- */
/* Objects for the reserve. */
struct sephash_spares {
    unsigned count, place[SEPHASH_RESERVE], number[SEPHASH_RESERVE];
    uint64_t word[SEPHASH_RESERVE];
    bool complete;
};
/* Takes all of the reserve that the image of the root shows, and clears it there: it becomes free
 * memory of this client. */
int sephash_reserve_take(struct op *op, struct sephash_view *view, struct sephash_root *root);
/* Allocates what is missing for a segment of that many pages. FAR_POOL_FULL: not all. */
int sephash_reserve_fill(struct op *op, struct sephash_view *view, const struct sephash_root *root,
                         unsigned pages, struct sephash_spares *spares);
/* Adds the CAS that put it into the root. */
void sephash_reserve_add(struct op *op, const struct sephash_view *view,
                         struct sephash_spares *spares);
/* After the flush, or without one: gives back what is not there. */
void sephash_reserve_end(struct op *op, struct sephash_view *view, struct sephash_spares *spares,
                         bool posted, int rc);
/* Completes the reserve before a value is stored. FAR_POOL_FULL. */
int sephash_reserve_restore(struct op *op, struct sephash_view *view);

/* ---- sephash_merge.c ------------------------------------------------------------------------- */
/* The segment's CurSegment is full, and this operation has found its anchor: makes a new one, or
 * two. `removes`: in order to delete or replace a key (SEPHASH-H8). `crowded`: the operation has
 * met many others that append to it. FAR_OK: it is done, perhaps by another client. */
int sephash_merge(struct op *op, struct sephash_view *view, const struct sephash_segment *segment,
                  bool removes, bool crowded);
/* The pool is full: merges the segment of the hash, and others, before they are full, if that gives
 * back blocks of old values: until these make up for what was not to be had. */
void sephash_make_room(struct op *op, struct sephash_view *view, uint64_t hash);

/* ---- the rest -------------------------------------------------------------------------------- */
/* An empty CurSegment, and the image that is written. Returns its bytes. */
uint32_t sephash_cur_image(const struct sephash_shape *shape, struct sephash_head *head,
                           const uint16_t *table, void *image);
int sephash_get(struct op *op, struct index_view *view, struct slice key, struct value_out *out);
int sephash_change(struct op *op, struct index_view *view, struct slice key, struct change *change);
int sephash_iterate(struct op *op, struct index_view *view, struct entries_out *out);
int sephash_mark(struct op *op, struct index_view *view, struct marker *marker);
int sephash_info(struct op *op, struct index_view *view, struct far_table_info *info);
int sephash_check(struct op *op, struct index_view *view, struct index_report *report);

#endif
