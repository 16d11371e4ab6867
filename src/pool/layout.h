/*
 * What a pool looks like in remote memory. Everything is little-endian; structs here are images
 * that are read and written whole, words that are changed by atomics stand alone.
 *
 *   every node                              node 0 has besides
 *   0        node_head (one line)           catalog_off   CATALOG_SLOTS words, each the gaddr of a
 *   64       next free chunk (FAA)                        table descriptor, filled in order
 *   table_off   chunk table, a word each    clients_off   client slots, 64 bytes each
 *   chunks_off  chunks of 64 KiB
 */
#ifndef POOL_LAYOUT_H
#define POOL_LAYOUT_H

#include "fabric/superblock.h"

#define CHUNK_SHIFT 16
#define CHUNK_BYTES (1ull << CHUNK_SHIFT)

#define NODE_NEXT_CHUNK_OFF 64 /* the word that FAA hands chunks out from */

#define CATALOG_SLOTS 64
#define CATALOG_OFF   128
#define CLIENTS_OFF   (CATALOG_OFF + CATALOG_SLOTS * 8)

/*
 * Chunk table entry: what a chunk is used for, written by whoever took the chunk.
 *   bits 0..7 kind, 8..15 size class, 16..31 client slot, 32..63 chunks in the run (large only)
 */
enum chunk_kind { CHUNK_UNUSED, CHUNK_SLAB, CHUNK_LARGE, CHUNK_LARGE_TAIL };

static inline uint64_t chunk_entry(enum chunk_kind kind, unsigned size_class, unsigned client,
                                   uint64_t run)
{
    return (uint64_t)kind | (uint64_t)size_class << 8 | (uint64_t)client << 16 | run << 32;
}

/* Client slot: the first word says whether it is taken (the client's incarnation, 0: free). */
struct client_slot {
    uint64_t incarnation;
    uint64_t epoch;
    uint64_t lease;
    uint64_t pid;
    uint64_t reserved[4];
};
_Static_assert(sizeof(struct client_slot) == 64, "one line a client");

/*
 * Key-value block. Written whole before anything points to it, never changed after.
 * The checksum covers everything from vlen to the end of the value, so a torn block, or one of
 * another generation, is recognized. If FLAG_EXPIRES is ever set, 8 bytes of time stamp stand
 * between the header and the key; no version writes that yet.
 */
struct block_head {
    uint64_t checksum;
    uint32_t vlen;
    uint16_t klen;
    uint8_t generation;
    uint8_t flags;
};
_Static_assert(sizeof(struct block_head) == 16, "a 16-byte key and a 32-byte value fill a line");

#endif
