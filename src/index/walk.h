/*
 * Walking a table whose keys are in the blocks of slots: what info(), check() and mark() share.
 *
 *   WALK-1  A READ has no order among its words, so while others write, an image is of many
 *       instants: a key that was deleted and inserted again may be in it twice. So what is reported
 *       of a part of the table, and repaired, was found there by several looks, and in the same
 *       way: the same fault of the same word, and of a key that is there twice the same two words.
 *       A word that leads to a block does not come back in the walk's epoch after it has gone. So
 *       it was there from one look to the next, and if two were, then both at once.
 */
#ifndef INDEX_WALK_H
#define INDEX_WALK_H

#include "index/blocks.h"

#define INDEX_WALK_LOOKS 3

/* Something wrong with a word of a part of the table. */
struct index_finding {
    unsigned fault, place; /* the index's numbers of what is wrong, and of the word */
    uint64_t found, right; /* what is there; what should be, or what else belongs to the finding */
    unsigned first;        /* of a key that is there twice: the place that lookups come to first, */
    uint64_t first_found;  /* and what is there */
};
/* What a look has found, and the look before. */
struct index_findings {
    struct index_finding *now, *before;
    unsigned count, count_before, room;
};
/* Makes room for this many findings of a look. Also after FAR_NO_MEMORY, index_findings_free() is
 * due. */
int index_findings_make(struct index_findings *f, unsigned room);
void index_findings_free(struct index_findings *f);
/* Adds one. If there is no room, it is not counted. */
struct index_finding *index_found(struct index_findings *f, unsigned fault, unsigned place,
                                  uint64_t found);

/* A walk through a table. Those of indexes begin with this. */
struct index_walk {
    struct op *op;
    struct index_view *view;
    struct index_report *report;    /* NULL: no proofs are wanted */
    struct marker *marker;          /* NULL: nothing is to be marked */
    struct far_table_info info;     /* what was counted */
    struct index_walk_key *seen;    /* the keys of a part, */
    unsigned seen_count;            /* and how many there are */
    struct index_findings findings; /* what is wrong with it */
    void *image;                    /* NULL: none */
    size_t image_bytes;
};
/* An index's walk: how large it is, and what it does. */
struct index_walker {
    size_t bytes;
    int (*walk)(struct index_walk *walk);
};
int index_walk_check(const struct index_walker *walker, struct op *op, struct index_view *view,
                     struct index_report *report);
int index_walk_mark(const struct index_walker *walker, struct op *op, struct index_view *view,
                    struct marker *marker);
/* `tuning` is what the table was made with. */
int index_walk_info(const struct index_walker *walker, struct op *op, struct index_view *view,
                    const uint64_t *tuning, struct far_table_info *info);
/* For walk(): room for the keys and the findings of a part. */
int index_walk_room(struct index_walk *walk, unsigned keys, unsigned findings);
/* For walk(): memory to read into, beside the operation's buffers, because repairs use those. NULL:
 * there is none, as the error's detail says. */
void *index_walk_image(struct index_walk *walk, size_t bytes);
int index_walk_no_memory(void); /* FAR_NO_MEMORY */

/* WALK-1: looks at a part until there is nothing wrong with it that was there at all looks, or
 * until there were enough looks. look() adds what it finds; `number`: how many looks there were
 * before. */
int index_walk_prove(struct index_findings *f, int (*look)(void *arg, unsigned number), void *arg);

/* What check() says of a fault, and of its repair. */
struct index_fault {
    const char *what, *repaired;
    bool no_slot; /* the word is none */
};
/* How check() handles what is wrong with a part whose words are slots. */
struct index_walk_faults {
    struct slot_format format;
    const struct index_fault *fault; /* by its number */
    unsigned unreadable;             /* the fault of a slot that leads to no whole block */
    gaddr (*word_at)(const struct index_walk *walk, unsigned place, uint64_t *delta);
    int (*repair)(struct index_walk *walk, const struct index_finding *f, bool *done);
};
/* Reports what was found, and repairs it if that is wanted. */
int index_walk_handle(struct index_walk *walk, const struct index_walk_faults *faults);
/* Both: looks at a part, and handles what is wrong with it. */
int index_walk_part(struct index_walk *walk, int (*look)(void *walk, unsigned number),
                    const struct index_walk_faults *faults);

/* How far the walk has come. FAR_STOPPED: it is to end. */
int index_walk_progress(struct op *op, const struct index_view *view, uint64_t done,
                        uint64_t total);

/* Counts an object of the table's structure, and marks it if there is a marker. */
static inline void index_walk_object(struct far_table_info *info, struct marker *marker, gaddr at,
                                     unsigned size_class)
{
    info->index_bytes += size_class_bytes(size_class);
    if (marker)
        marker->mark(marker, at, size_class);
}

/* Counts a slot in use, and marks its block if there is a marker. */
static inline void index_walk_slot(struct far_table_info *info, struct marker *marker,
                                   uint64_t slot)
{
    info->keys++;
    info->block_bytes += size_class_bytes(pointer_class(slot));
    if (marker)
        marker->mark(marker, pointer_gaddr(slot), pointer_class(slot));
}

/* Reads a slot's block into BUF_BLOCK_IN. *block is NULL if the slot leads to no whole one. */
int index_walk_block(struct op *op, struct slot_format format, uint64_t slot, const void **block);

/* A slot leads to no whole block, at several looks. If one flipped bit explains it (FLIP-1), that
 * is corrected in the block, by CAS from what was judged: *mended. Blocks of more than 4 KiB are
 * not tried, because each bit takes a checksum of all. `report` says that an entry was salvaged. */
int index_walk_mend(struct op *op, struct slot_format format, uint64_t slot,
                    struct index_report *report, bool *mended);
/* What was just reported has been repaired by taking away the entry of a damaged block. */
void index_walk_removed(struct index_report *report, const char *how);

/* Reads the blocks of a part's words, many in a round trip. A walk that reads them one by one takes
 * a round trip for each key, and on a busy machine some minutes. */
struct index_walk_blocks {
    struct slot_format format;
    unsigned count; /* words, whose places are 0 to count - 1 */
    /* Sets *pointer to that of a word. False: it has none. */
    bool (*has)(void *arg, unsigned place, uint64_t *pointer);
    /* Gets every block; NULL: the pointer leads to no whole one. It may flush, but not use
     * BUF_BLOCK_IN. */
    int (*each)(void *arg, unsigned place, const void *block);
    void *arg;
};
/* Verbs that are in the batch go out with the first READs. */
int index_walk_blocks(struct op *op, const struct index_walk_blocks *w);

/* A key of a part of the table, and its slot. */
struct index_walk_key {
    struct hash128 hash;
    unsigned slot, order; /* the caller's; lookups come to the slots of a key in this order */
    unsigned first;       /* of the slots of this key */
};
struct index_walk_key index_walk_key(const struct index_view *view, const void *block,
                                     unsigned slot, unsigned order);
/* Sorts the keys of a part, and sets their `first`: where that is not the slot itself, the key is
 * there twice. */
void index_walk_match(struct index_walk_key *keys, unsigned count);

/* Adds a finding for each key that was seen twice. The words of the part are named by slots. */
void index_walk_twice(struct index_walk *walk, unsigned fault, const uint64_t *words);

/* Reports what is wrong with the slot at this address. */
void index_walk_report(struct index_report *report, const char *what, gaddr at, uint64_t delta,
                       uint64_t slot);

/* Inserts the key of a slot that is in a wrong place, as any session would, by the index's
 * change(). change() must not rest (index_rest()): what the walk has found is of its epoch
 * (WALK-1), and so is the slot that is emptied next. *there: it is where it belongs, and the slot
 * may be emptied. */
int index_walk_insert(struct op *op, struct index_view *view, struct slot_format format,
                      uint64_t slot,
                      int (*change)(struct op *op, struct index_view *view, struct slice key,
                                    struct change *change),
                      bool *there);

#endif
