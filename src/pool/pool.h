/*
 * Pool: addresses, allocation, key-value blocks, the catalog of tables, the registry of clients.
 *
 *   struct pool     what all threads share: the fabric and the geometry, constant after open
 *   struct client   one session's standing in the pool: its slot and the memory it allocates from
 *   struct op       one operation at work: its batch, its buffers, the client it runs for
 */
#ifndef POOL_POOL_H
#define POOL_POOL_H

#include "base/hash.h"
#include "base/rng.h"
#include "fabric/batch.h"
#include "pool/layout.h"

/* ---- size classes: 64-byte steps to 512, then four to each doubling, up to 2 MiB ------------ */
#define CLASS_COUNT     56
#define CLASS_SMALL_MAX 16384u /* larger objects get a run of chunks of their own */

uint32_t class_bytes(unsigned size_class);
/* The smallest class that holds that many bytes, or CLASS_COUNT when none does. */
unsigned class_for(size_t bytes);

/* ---- pool ------------------------------------------------------------------------------------ */

/* Settings that a test makes rare things common with; production leaves them as they are. */
struct knobs {
    uint64_t hash_mask;       /* bits of the key hash that count: fewer make keys collide     */
    uint8_t fingerprint_mask; /* likewise for fingerprints                                    */
    unsigned patience;        /* polls of another client's unfinished work before taking over */
};
extern const struct knobs knobs_default;

struct pool {
    struct fab *fab;
    struct knobs knobs;
    uint64_t pool_id;
    unsigned nodes;
    unsigned clients; /* slots in the registry */
    struct node_head head[FAB_NODES_MAX];
};

/* Lays a pool out on fresh memory, or reads the one that is there. The fabric stays the caller's.
 * FAR_NOT_A_POOL, FAR_LAYOUT, FAR_CORRUPT, FAR_POOL_FULL (too small to hold a pool) or the
 * fabric's. */
int pool_open(struct fab *fab, const struct knobs *knobs, struct pool *pool);

/* ---- clients --------------------------------------------------------------------------------- */
#define CLIENT_KEEP   64            /* never-published objects kept for reuse, per class */
#define CLIENT_SPARES FAR_DEPTH_MAX /* chunks begun but not current, of all classes      */

struct slab {
    gaddr next;    /* the next never-used object, 0 when there is none */
    uint32_t left; /* how many from there on                           */
};

/* Operations of one client that run out at the same time each fetch a chunk: one becomes the
 * current one, the others wait here. */
struct spare {
    struct slab slab;
    unsigned size_class;
};

struct class_stock {
    unsigned kept;
    gaddr keep[CLIENT_KEEP];
};

struct client {
    struct pool *pool;
    struct fab_ep *ep;
    unsigned slot;
    uint64_t incarnation;
    struct rng rng;
    uint8_t generation;                       /* of the next block written */
    struct slab (*slabs)[CLASS_COUNT];        /* by node and class         */
    struct class_stock (*stock)[CLASS_COUNT]; /* by node and class         */
    struct spare spare[CLIENT_SPARES];
    unsigned spares;
    uint64_t retired_bytes; /* published once, now unreachable */
};

struct op;

/* Takes a slot of the registry. FAR_NO_CLIENT_SLOT. */
int client_open(struct pool *pool, struct fab_ep *ep, uint64_t seed, struct client *client);
void client_close(struct client *client);

/* ---- operations ------------------------------------------------------------------------------ */

/* Buffers that verbs may name, one per purpose; they only ever grow. */
enum op_buf { BUF_INDEX, BUF_BLOCK_OUT, BUF_BLOCK_IN, BUF_BULK, BUF_COUNT };

/* Words for the results of atomics and for single-word writes: the pool's own first. */
#define OP_POOL_WORDS  40
#define OP_INDEX_WORDS BATCH_MAX

struct op {
    struct client *client;
    struct pool *pool;
    struct batch batch;
    struct cost cost;           /* what its batches cost since the operation started */
    uint64_t *pool_word, *word; /* OP_POOL_WORDS, OP_INDEX_WORDS */
    void *buf[BUF_COUNT];
    size_t buf_bytes[BUF_COUNT];
};

int op_init(struct op *op, struct client *client);
void op_free(struct op *op);

/* The purpose's buffer with at least that many bytes; contents survive only if it did not have to
 * grow. NULL when out of memory. */
void *op_buffer(struct op *op, enum op_buf which, size_t bytes);

/* ---- allocation ------------------------------------------------------------------------------ */

/*
 * An object of a class, on the node if it has room, else on any other. Mostly local; once per
 * chunk it costs two round trips. The op's batch must be empty.
 * Its memory is not cleared. FAR_POOL_FULL.
 */
int pool_alloc(struct op *op, unsigned node, unsigned size_class, gaddr *at);

/* An object that nothing in the pool ever pointed to: reusable at once. */
void pool_unalloc(struct client *client, gaddr at, unsigned size_class);

/* An object that others may still be reading. It is counted, and not reused. */
void pool_retire(struct client *client, gaddr at, unsigned size_class);

/* ---- key-value blocks ------------------------------------------------------------------------ */
#define BLOCK_GENERATIONS 64 /* that fit beside a pointer in an index's slot */

static inline size_t block_bytes(size_t klen, size_t vlen)
{
    return sizeof(struct block_head) + klen + vlen;
}

struct block_ref { /* a block that is allocated and encoded, but not pointed to yet */
    gaddr at;
    uint8_t size_class;
    uint8_t generation;
    void *image;    /* its bytes, in the op's BUF_BLOCK_OUT */
    uint32_t bytes; /* to be written: a multiple of 64      */
};

/* Allocates near `node` and encodes. FAR_POOL_FULL, FAR_NO_MEMORY. */
int block_prepare(struct op *op, unsigned node, const void *key, size_t klen, const void *value,
                  size_t vlen, struct block_ref *block);
static inline void block_write(struct op *op, const struct block_ref *block)
{
    batch_write(&op->batch, block->at, 0, block->image, block->bytes);
}

enum block_verdict {
    BLOCK_MATCH, /* holds the key                                                        */
    BLOCK_OTHER, /* whole and of the right generation, but holds another key             */
    BLOCK_STALE  /* torn, reused or damaged: the pointer was followed too late, or is bad */
};

/* Judges `bytes` of memory read through a pointer that promised `generation`. */
enum block_verdict block_judge(const void *image, size_t bytes, uint8_t generation, const void *key,
                               size_t klen);
/* Whole and of the right generation, whatever its key? */
bool block_valid(const void *image, size_t bytes, uint8_t generation);
static inline const void *block_key(const void *image)
{
    return (const char *)image + sizeof(struct block_head);
}
static inline const void *block_value(const void *image)
{
    const struct block_head *h = image;
    return (const char *)image + sizeof *h + h->klen;
}

/* ---- catalog --------------------------------------------------------------------------------- */
#define INDEX_NAME_MAX 15

struct table_desc {
    char name[FAR_NAME_MAX + 1];
    char index[INDEX_NAME_MAX + 1];
    gaddr root; /* the index's business */
    uint64_t hash_seed;
    uint32_t id; /* its place in the catalog */
};

/* Adds a table; of two that add the same name at once, one wins. desc->id is set.
 * FAR_TABLE_EXISTS, FAR_CATALOG_FULL, FAR_POOL_FULL. */
int catalog_add(struct op *op, struct table_desc *desc);
/* FAR_NO_TABLE, FAR_CORRUPT. */
int catalog_find(struct op *op, const char *name, struct table_desc *desc);
/* The id-th table. FAR_NO_TABLE past the last, FAR_CORRUPT. */
int catalog_get(struct op *op, unsigned id, struct table_desc *desc);

int pool_info(struct op *op, struct far_pool_info *info);

#endif
