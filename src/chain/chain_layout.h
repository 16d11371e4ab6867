/*
 * What chains keep on their machines besides the pool: lines. Each client slot has some on each
 * node, behind the pool's memory of that node, at the head and at the tail. Behind the lines is a
 * word for each slot, of which only that of node 0's head is used: who has the slot's lines.
 *
 *   machine   0        the head of the node with its number: the pool's memory, lines, words
 *             size/2   the tail of the node before it, the same
 */
#ifndef CHAIN_CHAIN_LAYOUT_H
#define CHAIN_CHAIN_LAYOUT_H

#include "base/hash.h"
#include "fabric/batch.h"

#define CHAIN_SHORTS       28u /* lines of a client on a node that have room for a few entries */
#define CHAIN_LONGS        4u  /* and for all that a batch may have */
#define CHAIN_LINES        (CHAIN_SHORTS + CHAIN_LONGS)
#define CHAIN_SHORT_BYTES  256u
#define CHAIN_LONG_BYTES   3392u
#define CHAIN_CLIENT_BYTES (CHAIN_SHORTS * CHAIN_SHORT_BYTES + CHAIN_LONGS * CHAIN_LONG_BYTES)

enum chain_what {
    CHAIN_WORD = 1, /* a: the old word, b: the new one */
    CHAIN_RANGE,    /* a: bytes, under a lock or of a sole owner */
    CHAIN_EARLY     /* a: bytes, of what a word or range behind it leads to */
};
struct chain_entry {
    uint64_t at; /* offset in the node | enum chain_what << 56 */
    uint64_t a, b;
};
struct chain_line {
    uint64_t checksum; /* of what follows; 0: the line is not open */
    uint64_t stamp;    /* another one each time, so that a line is not taken for an earlier one */
    uint64_t owner;    /* the client's incarnation */
    uint64_t entries;
    struct chain_entry entry[];
};
#define CHAIN_SHORT_ENTRIES                                                                        \
    ((CHAIN_SHORT_BYTES - sizeof(struct chain_line)) / sizeof(struct chain_entry))
#define CHAIN_LONG_ENTRIES                                                                         \
    ((CHAIN_LONG_BYTES - sizeof(struct chain_line)) / sizeof(struct chain_entry))
_Static_assert(CHAIN_SHORT_BYTES % 64 == 0 && CHAIN_LONG_BYTES % 64 == 0, "lines have addresses");
_Static_assert(CHAIN_LONG_ENTRIES >= BATCH_MAX + 10, "a batch fits");

/* Slots behind those of clients: for those that have none yet. */
#define CHAIN_GUESTS 8u

/* Bytes of the lines and words of so many slots. */
static inline uint64_t chain_bytes(unsigned slots)
{
    return (uint64_t)slots * (CHAIN_CLIENT_BYTES + 8);
}

/* The word of a slot: the incarnation of the client that has its lines, an odd number; less one, of
 * a client that settles them; 0: nobody's. */
static inline uint64_t chain_seat_off(uint64_t lines, unsigned slots, unsigned slot)
{
    return lines + (uint64_t)slots * CHAIN_CLIENT_BYTES + 8ull * slot;
}

/* Where a line is in its node, from where lines begin. */
static inline uint64_t chain_line_off(uint64_t lines, unsigned slot, unsigned line)
{
    uint64_t client = lines + (uint64_t)slot * CHAIN_CLIENT_BYTES;
    return line < CHAIN_SHORTS ? client + (uint64_t)line * CHAIN_SHORT_BYTES
                               : client + CHAIN_SHORTS * CHAIN_SHORT_BYTES +
                                     (uint64_t)(line - CHAIN_SHORTS) * CHAIN_LONG_BYTES;
}

static inline size_t chain_line_bytes(uint64_t entries)
{
    return sizeof(struct chain_line) + entries * sizeof(struct chain_entry);
}

static inline uint64_t chain_line_sum(const struct chain_line *line, gaddr at)
{
    uint64_t sum = hash_sum(&line->stamp, chain_line_bytes(line->entries) - 8, at);
    return sum ? sum : 1;
}

/*
 * What stands at the head while a word is on its way to the tail (WORDS-1): which line of which
 * client has it. The line is on the word's node. The stamp tells it from earlier uses of the line.
 *   bits 0..18 of the line's stamp, 19..23 line, 24..39 client slot, 40..63 all set
 */
#define CHAIN_STAMP_BITS 19u
static inline uint64_t chain_reference(unsigned slot, unsigned line, uint64_t stamp)
{
    return UINT64_MAX << GADDR_BITS | (uint64_t)slot << 24 | (uint64_t)line << CHAIN_STAMP_BITS |
           (stamp & ((1u << CHAIN_STAMP_BITS) - 1));
}
static inline unsigned chain_reference_slot(uint64_t word)
{
    return word >> 24 & 0xffff;
}
static inline unsigned chain_reference_line(uint64_t word)
{
    return word >> CHAIN_STAMP_BITS & 0x1f;
}
_Static_assert(CHAIN_LINES == 32, "a line's number has five bits");

/* Is the line open? `at` is its address. */
static inline bool chain_line_open(const struct chain_line *line, gaddr at)
{
    return line->checksum != 0 && line->entries <= CHAIN_LONG_ENTRIES &&
           line->checksum == chain_line_sum(line, at);
}

static inline enum chain_what chain_entry_what(const struct chain_entry *entry)
{
    return (enum chain_what)(entry->at >> 56);
}
static inline uint64_t chain_entry_off(const struct chain_entry *entry)
{
    return entry->at & ((1ull << 56) - 1);
}

/* Is the line open, and does the reference mean it, in the word at that offset? `at` is the line's
 * address. */
static inline bool chain_line_names(const struct chain_line *line, gaddr at, uint64_t reference,
                                    uint64_t off)
{
    uint64_t differs = line->stamp ^ reference;
    if ((differs & ((1u << CHAIN_STAMP_BITS) - 1)) != 0 || !chain_line_open(line, at))
        return false;
    for (uint64_t i = 0; i < line->entries; i++)
        if (line->entry[i].at == (off | (uint64_t)CHAIN_WORD << 56))
            return true;
    return false;
}

#endif
