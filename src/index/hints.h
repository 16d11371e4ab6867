/*
 * Hints: where keys were when this process saw them last, and what their slots were.
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
 *   HINT-H4  The sessions of a process share the hints of a table. They read and write them without
 *       locks, so a hint may be half of one and half of another, or be lost. That costs a round
 *       trip and nothing else: by HINT-H1 an operation believes only what it has read itself.
 *
 * A set of hints is a cache line. When it is full, keys that are used often stay: each use of a
 * hint counts for it, each key that finds no room counts against one of the set, and the hint of a
 * key that does not count at all gives way. A hint that was wrong counts against itself. Keys that
 * other processes change all the time have wrong hints, so they are left out for some looks.
 */
#ifndef INDEX_HINTS_H
#define INDEX_HINTS_H

#include "index/blocks.h"

#define INDEX_LINE 64u
/* Zeroed cache lines, or NULL. What is to be freed is *memory. */
void *index_lines(uint64_t count, void **memory);

/* The hints of a table and a process. NULL: there are none. */
struct index_hints;

/* A slot, and its place: a number by which the index finds it again. */
#define INDEX_HINT_PLACES 255u
struct index_hint {
    uint64_t slot; /* 0: there is none */
    unsigned place;
    bool wrong; /* for index_hint_note(): the key had a hint, which was of no use */
};

/* The hints that the op's process has for this table, in up to `bytes` of memory. */
struct index_hints *index_hints_open(const struct op *op, const struct index_table *table,
                                     uint64_t bytes);
/* Frees those of all processes, when the table has no views any more. */
void index_hints_free(struct index_table *table);
/* How much memory they take up. */
uint64_t index_hints_bytes(const struct index_hints *hints);

/* What is known of a key with this hash and fingerprint: it may be of another key. */
struct index_hint index_hint_of(struct index_hints *hints, struct slot_format format, uint64_t hash,
                                uint64_t fingerprint);

/* The same, but it does not count as a use. */
struct index_hint index_hint_peek(const struct index_hints *hints, struct slot_format format,
                                  uint64_t hash, uint64_t fingerprint);

/* A key of this hash and fingerprint was seen: it has this slot, which is in use. Slot 0: it has
 * none. Long blocks are not worth reading in vain, so their slots are not kept. */
void index_hint_note(struct index_hints *hints, struct slot_format format, uint64_t hash,
                     uint64_t fingerprint, struct index_hint hint);

#endif
