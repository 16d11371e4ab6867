/*
 * Arrays larger than any size class, up to what a node holds: RCuckoo's rows, SHARD's segments.
 *
 * An array is made of pieces: objects of one size class, the last one perhaps of a smaller one. The
 * number of elements in a piece is a power of two, so an element is found by a shift, a mask and a
 * multiplication. The pieces need not be adjacent. A descriptor, an object of its own, lists them:
 * it is written once, before anything points to it, and has a checksum. An index publishes `ref`, a
 * pointer (pointer.h) to the descriptor, by one word, and caches the list (struct pool_array).
 *
 *     one node     all pieces on one node, in the order of their elements
 *     striped      2^k elements on one node, the next 2^k on the next node, and so on round. A lane
 *                  is what one node has of that: pieces of its own
 *
 * For epochs and sweeps an array is one object: pieces and descriptor are retired together, after
 * `ref` was made unreachable and the version of caches that know the list was changed (EPOCH-E3);
 * mark() reports all of them. If a client dies before it has published `ref`, a sweep finds all of
 * it (EPOCH-E4, SWEEP-P3).
 */
#ifndef POOL_ARRAY_H
#define POOL_ARRAY_H

#include "pool/pointer.h"

struct array_shape {
    uint64_t count;   /* elements */
    uint32_t element; /* bytes of one: a multiple of 8, at most ARRAY_ELEMENT_MAX */
    uint64_t stripe;  /* elements that lie together on a node: a power of two; 0: all of them do */
    unsigned node;    /* the node, or that of the first stripe */
};
#define ARRAY_ELEMENT_MAX 65536u

struct pool_array {
    uint64_t ref; /* the descriptor: address and size class */
    uint64_t count;
    uint32_t element;
    unsigned stripe_shift, piece_shift; /* elements in a stripe, stripes in a piece */
    unsigned lanes;                     /* 1: one node */
    unsigned pieces;
    uint8_t piece_class, last_class; /* the last piece of a lane may be smaller */
    gaddr *piece;                    /* the lanes in turns: piece i is of lane i % lanes */
};

/*
 * Takes the memory and writes the descriptor; the elements are not cleared. All of it is on the
 * nodes that the shape asks for, except that an array on one node goes to another node as a whole
 * if that one is full. The op's batch must be empty. After an error nothing is held: FAR_POOL_FULL,
 * FAR_INVALID (a shape that cannot be), FAR_NO_MEMORY, or the fabric's.
 */
int pool_array_alloc(struct op *op, const struct array_shape *shape, struct pool_array *array);

/* Fills it with zeros, by bounded batches; the client's heartbeat goes on. After an error of the
 * fabric some of the WRITEs may still land: pool_array_drop(). FAR_STOPPED. */
int pool_array_clear(struct op *op, const struct pool_array *array);
/* The next part of that, of at most `most` bytes, in one batch. *done is 0 at first, and counts
 * what was cleared. */
int pool_array_clear_part(struct op *op, const struct pool_array *array, uint64_t *done,
                          uint64_t most);
bool pool_array_is_clear(const struct pool_array *array, uint64_t done);

/* Reads the descriptor. FAR_CORRUPT: `ref` leads to no array. FAR_NO_MEMORY. */
int pool_array_open(struct op *op, uint64_t ref, struct pool_array *array);
/* Frees what this process knows of it, and nothing else. */
void pool_array_close(struct pool_array *array);

/* Gives back an array that nothing ever pointed to, after work on it that ended with `rc`: at once
 * if no WRITE to it can still land, else it is left to a sweep. */
void pool_array_drop(struct op *op, const struct pool_array *array, int rc);
/* Gives back an array that was in use (EPOCH-E3). */
void pool_array_retire(struct client *client, const struct pool_array *array);
/* A CAS that was to publish or unlink it has an unknown outcome: only a sweep can tell. */
void pool_array_abandon(struct client *client, const struct pool_array *array);

/* Reports the descriptor and all pieces to the marker. */
void pool_array_mark(const struct pool_array *array, struct marker *marker);

/* Bytes of the pool that it takes, with its descriptor. */
uint64_t pool_array_bytes(const struct pool_array *array);

/* Where element i is: an address, and a byte offset from there. Elements from i on lie together up
 * to the next multiple of 2^stripe_shift. */
static inline gaddr pool_array_at(const struct pool_array *a, uint64_t i, uint64_t *delta)
{
    uint64_t stripe = i >> a->stripe_shift, lane = 0;

    ASSERT(i < a->count);
    i &= (1ull << a->stripe_shift) - 1;
    if (a->lanes > 1) {
        lane = stripe % a->lanes;
        stripe /= a->lanes;
    }
    uint64_t row = stripe & ((1ull << a->piece_shift) - 1);
    *delta = ((row << a->stripe_shift) + i) * a->element;
    return a->piece[(stripe >> a->piece_shift) * a->lanes + lane];
}

#endif
