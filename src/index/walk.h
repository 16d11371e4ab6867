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

/* WALK-1: looks at a part until there is nothing wrong with it that was there at all looks, or
 * until there were enough looks. look() adds what it finds; `number`: how many looks there were
 * before. */
int index_walk_prove(struct index_findings *f, int (*look)(void *arg, unsigned number), void *arg);

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
