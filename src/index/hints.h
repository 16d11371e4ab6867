/*
 * Hints: the slots that keys had when this session saw them last.
 *
 * An operation that has a hint reads the block it names along with the buckets. If one of the slots it
 * has read is still the same word, it has the block already, and saves a round trip. Otherwise the
 * hint has cost a READ and says nothing (PTR-4).
 *
 *   HINT-H1  The block is read behind the slots (batch_fence(), on the same node). A slot that is in
 *       use and names it when the slots are read keeps it from being reused until the operation ends
 *       (EPOCH-E3), so what is read of it afterwards is what the slot stands for. The other way
 *       round, the READ may return what was there before: an old value of the key, if its memory was
 *       given to a new one in between.
 */
#ifndef INDEX_HINTS_H
#define INDEX_HINTS_H

#include "index/blocks.h"

/* Sets of slots, each a cache line. Two keys of one set with the same fingerprint take turns. */
#define INDEX_HINT_WAYS 8u
struct index_hints {
    struct index_hint_set {
        uint64_t slot[INDEX_HINT_WAYS]; /* 0: free */
    } * set;                            /* by a part of the key's hash; NULL: no hints */
    void *memory;                       /* of the sets */
    unsigned bits;                      /* there are 2^bits sets */
    unsigned next;                      /* the way that gives way, if all are taken */
};

/* Takes `bytes` of memory for hints. If there is none, there are no hints. */
void index_hints_open(struct index_hints *hints, uint64_t bytes);
void index_hints_close(struct index_hints *hints);
static inline uint64_t index_hints_bytes(const struct index_hints *hints)
{
    return hints->set ? sizeof *hints->set << hints->bits : 0;
}

/* A key of this hash and fingerprint was seen: it has this slot, which is in use. 0: it has none. Long
 * blocks are not worth reading in vain, so their slots are not kept. */
void index_hint_note(struct index_hints *hints, struct slot_format format, uint64_t hash,
                     uint64_t fingerprint, uint64_t slot);

/* Adds the READ of the block that the key's hint names to the batch, which has the READs of its slots.
 * It does not if there is no hint, or if anything in the batch goes to another node: then it would
 * take a round trip of its own. block->slot is 0 if it did not. */
void index_hint_read(struct op *op, const struct index_hints *hints, struct slot_format format,
                     uint64_t hash, uint64_t fingerprint, struct index_block *block);
/* After the flush: is the block of the hint the key's, and its slot one of the words at `places` (by
 * bits)? If the slot is there and the block whole, *judged has the bit of its place. */
bool index_hint_holds(const struct index_probe *probe, struct index_block *block,
                      const uint64_t *words, uint64_t places, struct index_found *found,
                      uint64_t *judged);

#endif
