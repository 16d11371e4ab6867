/*
 * What a pool looks like in remote memory. Everything is little-endian; structs here are images
 * that are read and written whole, words that are changed by atomics stand alone.
 *
 *   every node                              node 0 has besides
 *   0        node_head (one line)           CONTROL_OFF   epoch, high, deaths (struct pool_control)
 *   64       next free chunk (FAA)          CATALOG_OFF   CATALOG_SLOTS words, each the gaddr of a
 *   128      free lists, a word per class                 table descriptor, filled in order
 *   table_off   chunk table, a word each    CLIENTS_OFF   client slots, 64 bytes each
 *   chunks_off  chunks of 64 KiB
 */
#ifndef POOL_LAYOUT_H
#define POOL_LAYOUT_H

#include "fabric/superblock.h"

#include <stdbool.h>

#define CHUNK_SHIFT 16
#define CHUNK_BYTES (1ull << CHUNK_SHIFT)

#define NODE_NEXT_CHUNK_OFF 64  /* the word that FAA hands chunks out from                    */
#define NODE_SWEEP_OFF      72  /* chunks below this are being swept, while a sweep goes on     */
#define NODE_FREE_OFF       128 /* heads of the shared free lists, by size class: gaddr and tag */

/* Words of node 0 that all clients read often: one line. */
struct pool_control {
    uint64_t epoch;  /* the global epoch                                         */
    uint64_t high;   /* client slots at and above this were never taken          */
    uint64_t deaths; /* clients that died since the last sweep: memory was lost  */
    uint64_t sweep;  /* owner word of the client that is sweeping, 0: nobody. SWEEP_ANNOUNCED:
                        all take part. In between a count: no two sweeps have the same word */
    uint64_t sweeps; /* that were ever announced, or about to be */
    uint64_t reserved[3];
};
_Static_assert(sizeof(struct pool_control) == 64, "one line");
#define SWEEP_ANNOUNCED (1ull << 63)
#define SWEEP_COUNT     (1ull << 56)
#define CONTROL_OFF     640
#define CATALOG_SLOTS   64
#define CATALOG_OFF     704
#define CLIENTS_OFF     (CATALOG_OFF + CATALOG_SLOTS * 8)
#define NO_EPOCH        UINT64_MAX
#define EPOCH_LAST      (1ull << 62) /* no pool gets there: sums with it do not wrap */

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

/*
 * Client slot. `incarnation` is 0 (free), a random odd number (live), or that with the top bit set
 * (fenced: declared dead, being recovered). The next four words its owner writes together.
 */
#define CLIENT_FENCED (1ull << 63)
struct client_slot {
    uint64_t incarnation;
    uint64_t epoch;         /* certificate: no operation of this client began before it read this
                               global epoch, and no cached address is older. NO_EPOCH: it has no
                               operation in flight, and will look about before it begins one */
    uint64_t heartbeat;     /* changes while the client is alive */
    uint64_t retired_bytes; /* waiting for their epoch */
    uint64_t held_bytes;    /* free, in the client's hands */
    uint64_t pid;
    uint64_t
        journal[2]; /* unfinished work: what a recoverer must complete or undo; 0: none. The low
                            16 bits are one more than the table's place in the catalog */
};
_Static_assert(sizeof(struct client_slot) == 64, "one line a client");

/* The last heartbeat of a client that gives up its registration. It names the client: the next one in
 * the slot finds it there. */
static inline uint64_t client_slot_renounced(uint64_t incarnation)
{
    return incarnation | CLIENT_FENCED;
}

/* Is there work to complete? Of no table, it is none: the slot is damaged. */
static inline bool client_slot_has_work(const uint64_t journal[2])
{
    return (journal[0] & 0xffff) >= 1 && (journal[0] & 0xffff) <= CATALOG_SLOTS;
}

/*
 * Key-value block. Written whole before anything points to it, never changed after.
 *
 *   short   block_head | key | value
 *   long    block_head | block_long | key | value       if that is more than BLOCK_SHORT_MAX bytes
 *
 * In a short block the checksum covers everything from vlen to the end of the value, so a torn block,
 * or one of another generation, is recognized. In a long one it covers the rest of the head and
 * block_long, which has checksums of its own over key and value: the head can be judged by itself,
 * and the key without the value.
 * If BLOCK_EXPIRES is ever set, 8 bytes of time stamp stand before the key; no version writes that
 * yet.
 */
#define BLOCK_SHORT_MAX 4096u
#define BLOCK_EXPIRES   1u /* flags */
#define BLOCK_LONG      2u
struct block_head {
    uint64_t checksum;
    uint32_t vlen;
    uint16_t klen;
    uint8_t generation;
    uint8_t flags;
};
_Static_assert(sizeof(struct block_head) == 16, "a 16-byte key and a 32-byte value fill a line");
struct block_long {
    uint64_t key_sum;
    uint64_t value_sum;
};

#endif
