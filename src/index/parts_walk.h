/*
 * Walking a table that is divided into parts (parts.h): visits every anchor, marks what parts.h has
 * in the pool, and proves that
 *
 *   - every anchor that is found from the first ones has the right id, and the index finds it whole
 *     (PARTS-1);
 *   - every entry of the directory leads to an anchor of its suffix (PARTS-2). One that does not is
 *     repaired: it leads to a first anchor then.
 */
#ifndef INDEX_PARTS_WALK_H
#define INDEX_PARTS_WALK_H

#include "index/parts.h"
#include "index/walk.h"

/* The caller sets all but the last ones. It is too large for a fiber's stack. */
struct index_parts_walk {
    struct index_walk *base;
    const struct index_parts *parts;
    const char *anchors, *directory; /* the index's tags for the two proofs */
    /* Visits a part. The image of its anchor is in op->word[]: it was found to have the right id,
     * and was marked. If the part was split, calls index_parts_walk_split(). FAR_CORRUPT: what the
     * anchor leads to is damaged. If proofs are wanted, that is reported, and the walk goes on. */
    int (*visit)(struct index_walk *base, const struct index_part *part, const void *anchor);

    struct index_part stack[INDEX_PART_DEPTH_MAX + 1]; /* to be visited */
    unsigned waiting;
    uint64_t done;    /* of 2^depth_max suffixes */
    unsigned deepest; /* of the anchors that were found */
};

/* `word`: the root's, for the directory. Uses BUF_BULK. */
int index_parts_walk(struct index_parts_walk *walk, uint64_t word);
/* The children are to be visited next. FAR_CORRUPT: there can be none of that depth. */
int index_parts_walk_split(struct index_parts_walk *walk, const struct index_part *parent,
                           const uint64_t child[2]);

#endif
