/*
 * The layout of a pool in remote memory. Everything is little-endian. Structs here are images that
 * are read and written whole; words that are changed by atomics stand alone.
 *
 *   every node                              node 0 has besides
 *   0        node_head (one line)           CONTROL_OFF   epoch, high, deaths (struct pool_control)
 *   64       next free chunk (FAA)          CLIENTS_OFF   client slots, 64 bytes each
 *   128      free lists, a word per class   catalog_off() the catalog: a place for each table,
 *   journal_off()  a line per client slot                 16 bytes each (struct catalog_entry)
 *   members_off()  who is a member, if there are voters
 *   table_off   chunk table, a word each
 *   chunks_off  chunks of 64 KiB
 */
#ifndef POOL_POOL_LAYOUT_H
#define POOL_POOL_LAYOUT_H

#include "base/hash.h"
#include "fabric/batch.h"
#include "fabric/superblock_layout.h"
#include "members/members_layout.h"

#include <stdbool.h>

#define CHUNK_SHIFT 16
#define CHUNK_BYTES (1ull << CHUNK_SHIFT)

#define NODE_NEXT_CHUNK_OFF 64  /* the counter that hands out chunks, by FAA                    */
#define NODE_SWEEP_OFF      72  /* chunks below this are being swept, while a sweep is under way */
#define NODE_FREE_OFF       128 /* heads of the shared free lists, by size class: gaddr and tag */

/* Words of node 0 that all clients read often: one line. */
struct pool_control {
    uint64_t epoch;  /* the global epoch                                         */
    uint64_t high;   /* client slots at and above this were never taken          */
    uint64_t deaths; /* clients that died since the last sweep: memory was lost  */
    uint64_t sweep;  /* owner word of the client that is sweeping, 0: nobody. SWEEP_ANNOUNCED: all
                        take part. SWEEP_COUNT times a count, so that sweeps have different words */
    uint64_t sweeps; /* counts announced sweeps, and attempts to announce one */
    uint64_t reserved[3];
};
_Static_assert(sizeof(struct pool_control) == 64, "one line");
#define SWEEP_ANNOUNCED (1ull << 63)
#define SWEEP_COUNT     (1ull << 56) /* a sweep's number, of 7 bits, counts from here */
#define CONTROL_OFF     640
#define CLIENTS_OFF     704
#define CATALOG_SLOTS   4096u /* places that a catalog has at most: see catalog_places() */
#define NO_EPOCH        UINT64_MAX
#define EPOCH_LAST      (1ull << 62) /* no pool gets there: sums with it do not wrap */
_Static_assert(EPOCH_LAST >> 63 == 0, "WORDS-1");

/*
 * Chunk table entry: what a chunk is used for, written by the client that took it.
 *   bits 0..7 kind, 8..15 size class, 16..31 client slot, 32..63 chunks in the run (large only)
 */
enum chunk_kind { CHUNK_UNUSED, CHUNK_SLAB, CHUNK_LARGE, CHUNK_LARGE_TAIL };

static inline uint64_t chunk_entry(enum chunk_kind kind, unsigned size_class, unsigned client,
                                   uint64_t run)
{
    return (uint64_t)kind | (uint64_t)size_class << 8 | (uint64_t)client << 16 | run << 32;
}
static inline unsigned chunk_kind(uint64_t entry) /* of a damaged entry, perhaps no chunk_kind */
{
    return entry & 0xff;
}
static inline unsigned chunk_class(uint64_t entry)
{
    return entry >> 8 & 0xff;
}

/*
 * Free lists: a word per node and class, a stack of bundles.
 *   head   bits 0..39 gaddr of the top bundle's page, 40..63 a tag that every change counts up
 *   page   a bundle. The page is an object of the list's class (BUNDLE_OWN), else of BUNDLE_CLASS
 */
#define BUNDLE_MAX   62
#define BUNDLE_CLASS 7            /* 512 bytes */
#define BUNDLE_OWN   (1ull << 63) /* in `next` */
struct bundle {
    uint64_t checksum; /* of what follows */
    uint64_t next;     /* gaddr of the bundle below, the number of objects above it, BUNDLE_OWN */
    uint64_t object[BUNDLE_MAX];
};
_Static_assert(sizeof(struct bundle) == 512, "a bundle fills an object of its class");

static inline uint64_t bundle_next(gaddr below, uint64_t count, bool own)
{
    return below | count << GADDR_BITS | (own ? BUNDLE_OWN : 0);
}
static inline gaddr bundle_below(const struct bundle *bundle)
{
    return bundle->next & GADDR_MASK;
}
static inline uint64_t bundle_count(const struct bundle *bundle)
{
    return (bundle->next & ~BUNDLE_OWN) >> GADDR_BITS;
}
static inline uint64_t bundle_sum(const struct bundle *bundle, gaddr page, unsigned size_class)
{
    return hash_sum(&bundle->next, 8 + bundle_count(bundle) * 8,
                    page | (uint64_t)size_class << GADDR_BITS);
}

static inline gaddr freelist_top(uint64_t head)
{
    return head & GADDR_MASK;
}
/* The head that follows `head`, with another top. No number makes it look like a reference. */
static inline uint64_t freelist_head(uint64_t head, gaddr top)
{
    uint64_t number = (head & ~GADDR_MASK) + (1ull << GADDR_BITS);
    return word_is_reference(number) ? top : number | top;
}

/*
 * Client slot. `incarnation` is one of
 *   0                                        free
 *   a random odd number                      live; the top two bits are 0
 *   CLIENT_FENCED | that number              declared dead, and shut out
 *   CLIENT_FENCED | CLIENT_REPAIRED | owner  shut out, and claimed by the client that the owner
 *                                            word names (op.h); by nobody, if that one is not alive
 * Its owner writes the next four words together.
 */
#define CLIENT_FENCED   (1ull << 63)
#define CLIENT_REPAIRED (1ull << 62)
struct client_slot {
    uint64_t incarnation;
    uint64_t epoch;         /* certificate: no operation of this client began before it read this
                               global epoch, and no cached address is older. NO_EPOCH: parked, it
                               has no operation in flight, and is announced before it begins one */
    uint64_t heartbeat;     /* changes while the client is alive */
    uint64_t retired_bytes; /* waiting for their epoch */
    uint64_t held_bytes;    /* free, held by the client */
    uint64_t pid;
    uint64_t journals; /* nodes on which its lines have been used: one bit each; stays when the
                          owner leaves */
    uint64_t witness; /* what the fabric can tell by whether the client's process lives; 0: nothing.
                         It is true of one incarnation only */
};
_Static_assert(sizeof(struct client_slot) == 64, "one line a client");

/* The last heartbeat of a client that gives up its registration. It names the client, because the
 * next one in the slot finds it there. */
static inline uint64_t client_slot_renounced(uint64_t incarnation)
{
    return incarnation | CLIENT_FENCED;
}

/*
 * An owner word names the holder of a lock: bits 0..15 its slot, 16..55 part of its incarnation.
 * The top eight bits are the lock's own.
 */
#define OWNER_INCARNATION 0x00ffffffffff0000ull
/* A bit of each incarnation that is 0, so that no owner word looks like a reference (WORDS-1). */
#define INCARNATION_CLEAR (1ull << 40)
_Static_assert(INCARNATION_CLEAR >> GADDR_BITS != 0 && (INCARNATION_CLEAR & OWNER_INCARNATION) != 0,
               "WORDS-1: it is above an address, and in owner words");
static inline uint64_t owner_word_make(uint64_t incarnation, unsigned slot)
{
    return (incarnation & OWNER_INCARNATION) | slot;
}
static inline unsigned owner_slot(uint64_t word)
{
    return word & 0xffff;
}
/* Does it name the client that has this incarnation in its slot? */
static inline bool owner_is(uint64_t word, uint64_t incarnation)
{
    return ((incarnation ^ word) & OWNER_INCARNATION) == 0;
}

/*
 * A journal line (journal.c). The first of a client slot is in an area behind the registry, on
 * every node; others are objects of the pool.
 *
 *   next, magic   constant, except for the first line's next
 *   intent        what the operation is about to lock; blank if sum and stamp are 0
 *   redo          what it is about to change; valid if it is whole and has the intent's stamp
 *   done          the intent's stamp: the change has been made
 */
#define JOURNAL_MAGIC 0x4a6f75726e616c00ull /* and the slot's number added */
#define JOURNAL_BYTES 512
struct journal_intent {
    uint64_t sum; /* of what follows */
    uint64_t stamp;
    uint64_t incarnation; /* of the client that wrote it */
    uint64_t tag;         /* the table's: places in the catalog are used again */
    uint32_t what;        /* defined by the index, as is the data */
    uint16_t place;       /* the table's, in the catalog */
    uint16_t len;
    uint8_t data[88];
};
struct journal_redo {
    uint64_t sum, stamp, len;
    uint8_t data[328];
};
struct journal_line {
    uint64_t next; /* gaddr of the slot's next line, 0: none */
    uint64_t magic;
    uint64_t done;
    uint64_t reserved;
    struct journal_intent intent;
    struct journal_redo redo;
};
_Static_assert(sizeof(struct journal_line) == JOURNAL_BYTES, "an object of JOURNAL_CLASS");
static inline uint64_t journal_off(uint64_t clients)
{
    return CLIENTS_OFF + clients * sizeof(struct client_slot);
}
_Static_assert(CLIENTS_OFF % 64 == 0, "lines have addresses");

/* The generation that a word promises of its block, which has only that many bits of it. The bits
 * that it lacks are set above the number, and are not compared. */
#define BLOCK_GENERATIONS    256
#define BLOCK_ANY_GENERATION ((BLOCK_GENERATIONS - 1u) << 8)
static inline unsigned block_generation(uint64_t generation, unsigned bits)
{
    unsigned mask = (1u << bits) - 1;
    return ((unsigned)generation & mask) | (BLOCK_ANY_GENERATION & ~(mask << 8));
}

/*
 * A place of the catalog. The word is 0 (free), or says where the descriptor of a table is:
 *   bits 0..39 gaddr, 40..42 size class, 43..44 zero, 45..50 generation, 51..58 hash of the name,
 *   59..60 state, 61..63 check bits: the XOR of the others, three at a time. Any single flipped bit
 *   is noticed.
 * The version only counts up, also when the place goes from one table to the next. It is the
 * version of everything that clients cache of the table.
 */
struct catalog_entry {
    uint64_t word;
    uint64_t version;
};
_Static_assert(sizeof(struct catalog_entry) == 16, "four places to a line");
enum catalog_state { CATALOG_FREE, CATALOG_TENTATIVE, CATALOG_LIVE, CATALOG_DROPPED };

static inline enum catalog_state catalog_state(uint64_t word)
{
    return (enum catalog_state)(word >> 59 & 3);
}
static inline uint64_t catalog_seal(uint64_t word)
{
    uint64_t rest = word & ((1ull << 61) - 1), sum = rest;
    sum ^= sum >> 33;
    sum = (sum & ((1ull << 33) - 1)) ^ (sum >> 18 & ((1ull << 15) - 1));
    sum = (sum & ((1ull << 18) - 1)) ^ (sum >> 9 & ((1ull << 9) - 1));
    return rest | ((sum ^ sum >> 3 ^ sum >> 6) & 7) << 61;
}
/* The word of the same table in another state. */
static inline uint64_t catalog_with_state(uint64_t word, enum catalog_state state)
{
    return catalog_seal((word & ~(3ull << 59)) | (uint64_t)state << 59);
}
static inline bool catalog_damaged(uint64_t word)
{
    return word != 0 && (catalog_state(word) == CATALOG_FREE || catalog_seal(word) != word ||
                         word_is_reference(word));
}

/* The word of a tentative table. Of the generation it has 6 bits. The hash of the name has 8. */
static inline uint64_t catalog_word(gaddr at, unsigned size_class, unsigned generation,
                                    unsigned hash)
{
    uint64_t word = at | (uint64_t)size_class << GADDR_BITS | (uint64_t)(generation & 0x3f) << 45 |
                    (uint64_t)hash << 51;
    return catalog_with_state(word, CATALOG_TENTATIVE);
}
static inline gaddr catalog_gaddr(uint64_t word)
{
    return word & GADDR_MASK;
}
static inline unsigned catalog_class(uint64_t word)
{
    return word >> GADDR_BITS & 7;
}
static inline unsigned catalog_generation(uint64_t word)
{
    return block_generation(word >> 45, 6);
}
static inline unsigned catalog_hash(uint64_t word)
{
    return word >> 51 & 0xff;
}

/* The value of a descriptor, which is a block. Its key is the table's name. */
#define INDEX_NAME_MAX 15
struct catalog_desc {
    char index[INDEX_NAME_MAX + 1];
    uint64_t root;
    uint64_t hash_seed;
    uint64_t serial;
};

/* Behind the journals: what nodes of a pool with voters keep of its members, then the catalog. */
static inline uint64_t members_off(uint64_t clients)
{
    return journal_off(clients) + clients * JOURNAL_BYTES;
}
static inline uint64_t catalog_off(uint64_t clients, bool voters)
{
    return members_off(clients) + (voters ? members_bytes(clients) : 0);
}

/* How many places the catalog has, by the size of node 0: one for each 8 KiB, within bounds. Few
 * indexes can keep a table in less. */
static inline unsigned catalog_places(uint64_t node_bytes)
{
    uint64_t places = node_bytes >> 13;
    return places < 64 ? 64u : places > CATALOG_SLOTS ? CATALOG_SLOTS : (unsigned)places;
}

/*
 * Key-value block. Written whole before anything points to it, never changed after.
 *
 *   short   block_head | key | value
 *   long    block_head | block_long | key | value       if that is more than BLOCK_SHORT_MAX bytes
 *
 * In a short block the checksum covers everything from vlen to the end of the value, so a torn
 * block, or one of another generation, is recognized. In a long one it covers the rest of the head
 * and block_long, which has checksums of its own over key and value. So the head can be judged by
 * itself, and the key without the value.
 * If BLOCK_EXPIRES is set, 8 bytes of time stamp precede the key; no version writes that yet.
 */
#define BLOCK_SHORT_MAX 4096u
#define BLOCK_EXPIRES   1u /* flags */
#define BLOCK_LONG      2u
/* Which function wrote the value, without looking at the one before. Other blocks have neither. */
#define BLOCK_UPDATE 4u /* far_update(): the key was there */
#define BLOCK_PUT    8u /* far_put(): the key was there or not */
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

/* The descriptor of an array (array.h). The addresses of its pieces follow. */
struct array_head {
    uint64_t checksum; /* of what follows, with the addresses */
    uint64_t count;
    uint32_t element;
    uint16_t lanes;
    uint8_t stripe_shift, piece_shift;
    uint64_t reserved;
};
_Static_assert(sizeof(struct array_head) == 32, "addresses begin at half a line");
#define ARRAY_SEED 0x61727261797321ull /* of its checksum: differs from that of blocks */

#endif
