/*
 * Ground: memory of a pool for verbs that mean nothing, beside the tables of others.
 *
 * It is allocated as an index allocates, in pieces of one size on every node, by an operation of a
 * session that lasts for as long as the scratch is in use: no sweep takes away what an operation in
 * flight has in hand. Nothing ever points to it. All of it is zero at first.
 */
#ifndef BENCH_SCRATCH_H
#define BENCH_SCRATCH_H

#include "farside.h"

#include <stdint.h>

struct scratch {
    far_session *session;
    unsigned size_class;
    unsigned nodes, pieces; /* on each node                                         */
    uint32_t piece_bytes;
    uint64_t *piece; /* byte offset of piece p of node n at [n * pieces + p]        */
    unsigned taken;  /* entries of it that are set                                  */
};

/*
 * At least `bytes` on every node, in pieces of at least `piece_min` bytes. The session is the
 * scratch's until scratch_close().
 *
 * FAR_UNSUPPORTED  no object is as large as that piece
 * FAR_POOL_FULL    a node has too little left
 * or what the pool failed with.
 */
int scratch_open(far_session *session, uint64_t bytes, uint64_t piece_min, struct scratch *scratch);
void scratch_close(struct scratch *scratch);

/* Keeps the session alive: to be called several times in a lease. FAR_FENCED if it was too late,
 * and the memory may be another's by now. */
int scratch_keep_alive(struct scratch *scratch);

#endif
