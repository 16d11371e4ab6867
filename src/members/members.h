/*
 * Who is a member of a pool: its voters, and which of them count.
 *
 * A pool that is made with voters keeps a log on its nodes. Each entry changes one thing, and is
 * decided by a majority of the voters that the entries before it leave (paxos.h). Views are
 * numbers: the first is 1, and each entry begins the next. All clients agree about every view,
 * whatever nodes and clients are lost, as long as a majority of the voters of the newest one
 * answers.
 *
 *   MEMBERS-1  A voter is a node in one of its lives. A memory node begins another life when it
 *       cannot know that it still has all that it has promised: after it was killed, or if its
 *       memory is a copy. Such a node answers, but it does not count until an entry takes it in.
 *   MEMBERS-2  Entries are read in order, and none is skipped. What one node knows to be decided is
 *       enough to know it (LOG_DECIDED). That nothing was decided since takes a majority.
 *   MEMBERS-3  An entry that makes no sense changes nothing: one that would leave fewer than a
 *       majority of the first voters, or takes in a sixth. All clients judge that alike. So it does
 *       not matter that two may propose such entries at the same time.
 *   MEMBERS-4  A client writes its incarnation into the line of its slot at a majority of the
 *       voters before it takes the slot in the registry, and removes it when it has left it. So two
 *       clients never count as present in a slot. A voter that could not be reached then keeps the
 *       line, and the client that has the slot in the registry writes over it.
 *
 * These functions post verbs and wait for them; a voter that does not answer costs the fabric's
 * time-out once. A pool without voters never calls them. The words belong to a node and to no
 * index, so they are asked one node after the other, and a lost node is no error while a majority
 * is left.
 */
#ifndef MEMBERS_MEMBERS_H
#define MEMBERS_MEMBERS_H

#include "fabric/batch.h"
#include "members/members_layout.h"

/* What a client knows. */
struct members {
    uint64_t *word;               /* for verbs: MEMBERS_WORDS            */
    uint64_t off;                 /* where a node keeps it               */
    uint64_t voters;              /* nodes, as bits                      */
    uint32_t entries;             /* that are known                      */
    uint8_t nodes, first;         /* how many; how many voted at first   */
    uint32_t life[FAB_NODES_MAX]; /* life_part() of the voters           */
    uint32_t *log;                /* the values of all entries that are known */
};
#define MEMBERS_WORDS 16u
#define LOG_AHEAD     8u /* entries that a look reads */

static inline uint32_t members_view(const struct members *m)
{
    return m->entries + 1;
}
static inline bool members_votes(const struct members *m, unsigned node)
{
    return m->voters >> node & 1;
}

/* The head of a new pool's log: nodes 0 and up vote. The rest of it is zeros. */
struct members_head members_first(uint64_t pool_id, unsigned voters, uint64_t witnesses,
                                  const uint64_t *life);
/* Is it the head of this pool's log? FAR_CORRUPT. */
int members_judge(const struct members_head *head, uint64_t pool_id, unsigned node);

/* Sets up what a client knows: the beginning. `word` is from the endpoint, `off` where the nodes
 * keep the log. FAR_NO_MEMORY. members_end() frees it; all zeros need no end. */
int members_begin(struct members *m, const struct members_head *head, unsigned nodes, uint64_t off,
                  uint64_t *word);
void members_end(struct members *m);

/* Learns all entries that are decided. FAR_UNREACHABLE: no majority of the voters answers. */
int members_read(struct members *m, struct batch *b);

/* Has an entry decided, and learns it. FAR_EXISTS: it is so already. FAR_INVALID: it makes no sense
 * (MEMBERS-3). FAR_UNREACHABLE: no majority answers; it may be decided later. FAR_CONTENTION: other
 * clients propose all the time. FAR_POOL_FULL: the log is. */
int members_propose(struct members *m, struct batch *b, enum members_change change, unsigned node);

/* For an operator, when so many voters were killed that no majority counts: those that answer vote
 * in the lives that they have. Only while nobody else works with the pool, and if none of them has
 * older memory than it had. FAR_EXISTS: a majority counts. FAR_UNREACHABLE: too few answer. */
int members_accept(struct members *m, struct batch *b);

/* Does the node answer, and if it votes, is it in the life that counts (MEMBERS-1)? FAR_NODE_LOST:
 * it is not. */
int members_ask(struct members *m, struct batch *b, unsigned node);

/* MEMBERS-4: takes the line of a slot for `to`, at a majority. *holder: who has it otherwise.
 * FAR_CONTENTION: somebody has. */
struct presence_claim {
    unsigned slot;
    uint64_t from, to; /* lines that say `from` or nothing can be taken */
    bool owned;        /* so can all others: nobody else can get the slot in the registry. They were
                          left behind by clients that could not reach the voter */
};
int members_present(struct members *m, struct batch *b, struct presence_claim claim,
                    uint64_t *holder);
/* Removes it where it says so; 0: whatever it says. A voter that is out of reach keeps it. */
void members_absent(struct members *m, struct batch *b, unsigned slot, uint64_t incarnation);
/* Says at a majority of the voters of this view that the client has the slot, and works in the
 * view. FAR_CONTENTION: another one has the slot. */
int members_attend(struct members *m, struct batch *b, unsigned slot, uint64_t incarnation,
                   bool owned);

#endif
