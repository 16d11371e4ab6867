/*
 * Hints: where keys were when this session saw them last, and what their slots were.
 *
 * An operation on a key that it has a hint of reads only the line that has the slot, and the slot's
 * block behind it, in one round trip. If the slot is still the same word, it has all it needs.
 * Otherwise the key may have been updated there, or it is looked for as if there was no hint
 * (PTR-4).
 *
 *   HINT-H1  The block is read behind the slot (batch_fence(), on the same node). A slot that is in
 *       use and names it when the slot is read keeps it from being reused until the operation ends
 *       (EPOCH-E3), so what is read of it afterwards is what the slot stands for. The other way
 *       round, the READ may return what was there before: an old value of the key, if its memory
 *       was given to a new one in between.
 */
#ifndef INDEX_HINTS_H
#define INDEX_HINTS_H

#include "index/blocks.h"

#define INDEX_LINE 64u
/* Zeroed cache lines, or NULL. What is to be freed is *memory. */
void *index_lines(uint64_t count, void **memory);

/* Sets of hints, each a cache line. Two keys of one set that look alike take turns. */
#define INDEX_HINT_WAYS 7u
struct index_hint_set {
    uint64_t slot[INDEX_HINT_WAYS]; /* 0: free */
    uint8_t place[INDEX_HINT_WAYS]; /* and in the upper bits, some of the key's hash */
    uint8_t next;                   /* the way that gives way, if all are taken */
};
/* There are few sets at first, and twice as many whenever hints have given way often. */
struct index_hints {
    struct index_hint_set *set; /* by a part of the key's hash; NULL: no hints */
    void *memory;               /* of the sets */
    unsigned bits, bits_max;    /* there are 2^bits sets, and memory for 2^bits_max */
    unsigned displaced;         /* hints that were overwritten since the last growth */
};

/* A slot, and its place: a number by which the index finds it again. */
#define INDEX_HINT_PLACES 32u
struct index_hint {
    uint64_t slot; /* 0: there is none */
    unsigned place;
};

/* Takes up to `bytes` of memory for hints. If there is none, there are no hints. */
void index_hints_open(struct index_hints *hints, uint64_t bytes);
void index_hints_close(struct index_hints *hints);
/* How much is in use. */
static inline uint64_t index_hints_bytes(const struct index_hints *hints)
{
    return hints->set ? sizeof *hints->set << hints->bits : 0;
}

/* What is known of a key with this hash and fingerprint: it may be of another key. */
struct index_hint index_hint_of(const struct index_hints *hints, struct slot_format format,
                                uint64_t hash, uint64_t fingerprint);

/* A key of this hash and fingerprint was seen: it has this slot, which is in use. Slot 0: it has
 * none. Long blocks are not worth reading in vain, so their slots are not kept. */
void index_hint_note(struct index_hints *hints, struct slot_format format, uint64_t hash,
                     uint64_t fingerprint, struct index_hint hint);

#endif
