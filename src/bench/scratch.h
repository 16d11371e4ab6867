/*
 * Scratch memory: memory of a pool for verbs without a meaning, beside the tables of others.
 *
 * It is allocated as an index allocates, in pieces of one size on every node. An operation of a
 * session holds it, and lasts as long as the memory is in use: no sweep takes what an operation in
 * flight holds. Nothing points to it. At first, it is all zero.
 */
#ifndef BENCH_SCRATCH_H
#define BENCH_SCRATCH_H

#include "farside.h"

#include <stdint.h>

struct scratch {
    far_session *session;
    unsigned size_class;
    unsigned nodes, pieces; /* on each node */
    uint32_t piece_bytes;
    uint64_t *piece; /* byte offset of piece p of node n at [n * pieces + p] */
    unsigned taken;  /* entries that are set */
};

/*
 * Allocates at least `bytes` on every node, in pieces of at least `piece_min` bytes. The session
 * must not be used for anything else until scratch_close().
 *
 * FAR_UNSUPPORTED  no object is as large as such a piece
 * FAR_POOL_FULL    a node has too little memory left
 * or the error of the pool.
 */
int scratch_open(far_session *session, uint64_t bytes, uint64_t piece_min, struct scratch *scratch);
void scratch_close(struct scratch *scratch);

/* Keeps the session alive; call it several times in a lease. FAR_FENCED if that was too late:
 * others may have the memory by now. */
int scratch_keep_alive(struct scratch *scratch);

#endif
