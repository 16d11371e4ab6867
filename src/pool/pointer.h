/*
 * Pointers: words that name a block, for all indexes.
 *
 *     low bits first:   address 40 | size class 6 | generation g | the index's own 18 - g
 *
 * Each index chooses g, from 0 to 8: RACE keeps 8, RCuckoo and CHIME 6, SHARD 3, SepHash none.
 * Epochs make a pointer safe. The generation is the op->epoch of the operation that wrote the
 * block, plus a number that depends on the address, modulo 2^g.
 *
 *   PTR-1  Reading. An operation that has itself read a word while its block was in use finds that
 *          block whole until the operation ends: the block was written before a word named it, it
 *          does not change, and it is not reused before the operation ends (EPOCH-E3). A block that
 *          does not judge as whole is damaged, or the word was out of use when it was read (RACE's
 *          sealed subtables). A client whose lease has lapsed may find anything; it writes nothing
 *          (LEASE-L1), and the store returns nothing of it.
 *   PTR-2  Comparing. While an operation lasts that has read a word, no other block gets that
 *          word's address, so the word means the same block wherever and whenever the operation
 *          sees it again. A CAS that finds it there is right, however often the slot has changed in
 *          between. A CAS that lands late is covered by EPOCH-E6.
 *   PTR-3  This holds for blocks that are given back by pool_retire(). pool_free_unpublished()
 *          makes memory usable at once: if a word has named the block before (RACE's tentative
 *          slots), then the next block there may have the same word, and the index has to show that
 *          this is harmless.
 *   PTR-4  Remembering across operations. A cache may keep a slot's place and its word. The word
 *          cannot have come to mean another block by accident if the cache also keeps the
 *          op->epoch, e, of the operation that saw it, and uses it only in operations whose
 *          op->epoch is e as well. The epoch was e or more when the word was seen, so what it names
 *          is reused at e+2 at the earliest (EPOCH-E1, EPOCH-E3); and while an operation with epoch
 *          e lasts, the epoch is at most e+1 (EPOCH-E1). An older entry is a guess: READ the slot,
 *          batch_fence(), READ the block with batch_may_be_freed(). If the slot still has the word,
 *          then PTR-1 holds from there on, and the entry is of this operation's epoch. To change
 *          the slot it has to wait for that.
 *   PTR-5  Remembering what one has written. An operation with op->epoch e writes a block, and puts
 *          its word into a slot. The word means no other block in operations of this client with
 *          op->epoch f, if e <= f and f - e < 2^g - 1. For another block at this address is written
 *          when the epoch is e+2 or more, as above (what a sweep collects waits as long), by an
 *          operation whose op->epoch is e+1 or more (EPOCH-E1). To have the same generation, that
 *          must be e + 2^g or more. But while an operation with epoch f lasts, the epoch is at most
 *          f+1, so there is no such block yet.
 *
 * Besides, the generation recognizes, with a chance of 1 - 2^-g, a pointer that is damaged or was
 * followed too late, where key and checksum alone would not: if the address holds another block of
 * the same key. No proof but PTR-5 relies on it, and the simulator also runs with blocks that all
 * have the same generation.
 *
 * The checksum recognizes a torn or foreign image, and the comparison of the whole key another key
 * with the same fingerprint.
 */
#ifndef POOL_POINTER_H
#define POOL_POINTER_H

#include "pool/op.h"

#define POINTER_CLASS_AT      GADDR_BITS
#define POINTER_CLASS_BITS    6
#define POINTER_GENERATION_AT (POINTER_CLASS_AT + POINTER_CLASS_BITS)
/* Where the index's own bits begin, beside a generation of that many bits. */
#define POINTER_OWN_AT(bits) (POINTER_GENERATION_AT + (bits))

_Static_assert(CLASS_COUNT == 1 << POINTER_CLASS_BITS, "every value of a class's bits is a class");
_Static_assert(POINTER_OWN_AT(0) == 46, "18 bits for the index, less those of the generation");

static inline uint64_t pointer_make(const struct block_ref *block, unsigned generation_bits)
{
    uint64_t generation = block->generation & ((1u << generation_bits) - 1);
    return block->at | (uint64_t)block->size_class << POINTER_CLASS_AT |
           generation << POINTER_GENERATION_AT;
}
static inline gaddr pointer_gaddr(uint64_t word)
{
    return word & GADDR_MASK;
}
static inline unsigned pointer_class(uint64_t word)
{
    return (word >> POINTER_CLASS_AT) & (CLASS_COUNT - 1);
}
static inline uint64_t pointer_with_class(uint64_t word, unsigned size_class)
{
    return (word & ~((CLASS_COUNT - 1ull) << POINTER_CLASS_AT)) | (uint64_t)size_class
                                                                      << POINTER_CLASS_AT;
}
/* The generation for block_judge(), which compares only the bits that the pointer has. */
static inline unsigned pointer_generation(uint64_t word, unsigned generation_bits)
{
    return block_generation(word >> POINTER_GENERATION_AT, generation_bits);
}
/* PTR-5: does the word of a block that an operation of epoch `written` has written still mean that
 * block, in this operation? */
static inline bool pointer_still_means(const struct op *op, uint64_t written,
                                       unsigned generation_bits)
{
    uint64_t last = op->pool->knobs.generation_mask & ((1u << generation_bits) - 1);
    return op->epoch == written || op->epoch - written < last;
}

#endif
