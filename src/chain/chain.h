/*
 * Chains: a fabric that keeps each word on two machines, the head and the tail of its node.
 *
 * It stands on another fabric, whose nodes are the machines. Node i has its head on machine i and
 * its tail on the next one. Whoever uses it sees nodes, offsets and verbs as with any fabric, and
 * each READ costs what it costs there. Marks say what becomes of the other verbs:
 *
 *   CHAIN-1  READs are of the tail, but those of MARK_HEAD. What a READ of the tail has returned is
 *       at the head, too: as it is, or in a line that says how it comes about.
 *   CHAIN-2  `publish` is decided at the head: a CAS from the old word to a reference to a line,
 *       which is open and has the old word and the new one. Then the new word is written to the
 *       tail, and the verb is answered. Behind that the reference is replaced by the new word.
 *   CHAIN-3  While the head has a reference, nobody but the owner of its line changes this word, at
 *       the head or at the tail; and the tail has the line's old word, or its new one.
 *   CHAIN-4  `place` writes the head, then the tail. A line is open at both before either is
 *       written, and names the range and the locks that its client holds on that node. The locks
 *       stand at the tail before the range is written there.
 *   CHAIN-5  A lock that stands at the tail is released there before it is released at the head,
 *       and behind what was placed under it.
 *   CHAIN-6  `early` and `sum` are executed at both at once, `hint` at the head alone, and so is a
 *       `lock` under which nothing was placed.
 *   CHAIN-7  Who meets a reference waits until it is gone. A call that waits has brought to the
 *       tail before what it has decided at the head. So nobody waits in a circle.
 *   CHAIN-8  A part of a request begins when all of the part before it is at the tail. A part ends
 *       at a fence that follows a `publish`, or the release of a lock.
 */
#ifndef CHAIN_CHAIN_H
#define CHAIN_CHAIN_H

#include "fabric/fabric.h"

/* Makes chains of the machines, which belong to it from then on. The pool has that many client
 * slots. Verbs of endpoints that have no slot (fab_chain_ops.seat) must not meet others: their
 * words are written as they are. FAR_INVALID: fewer than two machines, or too small.
 * FAR_UNSUPPORTED, FAR_NO_MEMORY. */
int chain_open(struct fab *machines, unsigned clients, struct fab **fab);

/* The same, for a pool that is to be made, if its URI asks for it. Otherwise *fab is `machines`. */
int chain_open_if(struct fab *machines, struct fab **fab);
/* Frees what that has made, but not the machines. */
void chain_free(struct fab *fab, struct fab *machines);

/* ---- for audits ------------------------------------------------------------------------------ */

/* All READs are of the head from now on, or only those with a mark. */
void chain_read_heads(struct fab *fab, bool heads);
/* From now on tails are all there is: verbs of any mark are executed there alone. */
void chain_lose_heads(struct fab *fab);
/* Where the node's tail is: the machine, and from which offset. */
unsigned chain_tail_of(const struct fab *fab, unsigned node, uint64_t *from);
/* Is a line of the slot open? `head`: the memory of the machine that is the node's head. */
bool chain_some_open(const struct fab *fab, const void *head, unsigned node, unsigned slot);
/* Who has the slot's lines? `head`: that of node 0. */
uint64_t chain_seat_of(const struct fab *fab, const void *head, unsigned slot);

#endif
