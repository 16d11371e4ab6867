/*
 * Turns: operations of one process that need the same word of far memory wait here, not there.
 *
 * Many keys share a lock or the tail of a list. Those who find it taken look again and again, which
 * keeps the memory node busy, and the holder too. So the operations of a process take turns:
 *
 *     struct turn turn;
 *     turn_take(op, at, &turn);
 *     ... takes the lock at `at`, writes, releases it ...
 *     turn_give(op, &turn);
 *
 *   TURN-1  Turns are for speed alone. If a queue stands still for much longer than a turn usually
 *       lasts, those that wait pass the first one over. If the queue still does not move, they pass
 *       two over, then four, and so on. Nothing may be concluded from having a turn.
 *   TURN-2  An operation waits before it takes anything that others need, and has one turn at a
 *       time. So two operations never wait for each other's turns.
 *   TURN-3  The next one of a queue knows at once that its turn has come, and takes the lock before
 *       clients of other processes look at it again. So a queue that never is empty would keep the
 *       lock, and they would starve. Every 16th that has waited for its turn lets them go first.
 *
 * There are no turns on fabrics that never wait.
 */
#ifndef POOL_TURNS_H
#define POOL_TURNS_H

#include "pool/op.h"

/* The queues of all processes that use a pool. Only a model has several. */
struct turns;

/* `queues` of each process: a power of two. NULL, if there is no memory: no turns. */
struct turns *turns_open(unsigned processes, unsigned queues);
void turns_close(struct turns *turns);

struct turn {
    struct turn_queue *queue; /* NULL: there are no turns, or it was given */
    uint32_t ticket;
    uint64_t since;
};

/* Waits in the queue of this address. */
void turn_take(struct op *op, gaddr at, struct turn *turn);
/* The next one may go. Does nothing if `turn` was given already. */
void turn_give(struct op *op, struct turn *turn);

#endif
