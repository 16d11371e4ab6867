/*
 * How voters decide one entry of the log: Paxos, of which every step is a CAS of one word.
 *
 * A voter is passive. It has a word for the entry (members_layout.h), which proposers change by
 * CAS. A proposer looks at the words, takes a ballot above all that it has seen, raises the promise
 * of a majority to it, and has the value accepted there: the value that was accepted in the highest
 * ballot, if any was, else its own.
 *
 *   PAXOS-1  At most one proposer has a ballot. It has it if its own CAS raised the promise of a
 *       majority: of two that try the same number, each voter lets one through.
 *   PAXOS-2  A proposer has values accepted only by voters whose promise it raised itself, and by a
 *       CAS from the word that it left there. So nothing was promised or accepted in between.
 *   PAXOS-3  Words only grow: the ballot promised never sinks. So a CAS that arrives late either
 *       finds another word, or does what it would have done in time.
 *   PAXOS-4  If the outcome of a CAS is not known, the voter does not count in this ballot. A
 *       ballot that has not got a majority is never used again, and the next one begins with a
 *       look.
 *   PAXOS-5  A value is decided once a majority has accepted it in the same ballot. Whoever sees
 *       that may write LOG_DECIDED, which is true at every node and for ever.
 *
 * This file has no verbs: it says which CAS comes next and is told how it ended. So all schedules
 * of small cases can be explored (unit/members_paxos).
 */
#ifndef MEMBERS_PAXOS_H
#define MEMBERS_PAXOS_H

#include "members/members_layout.h"

enum paxos_end {
    PAXOS_GOES_ON,
    PAXOS_DECIDED,     /* `value` */
    PAXOS_EMPTY,       /* nothing is decided yet, and there is nothing to propose */
    PAXOS_NO_MAJORITY, /* too few voters answer */
    PAXOS_OVERTAKEN    /* others propose, too: begin again after a pause */
};

/* How an attempt to reach a voter ended. */
enum paxos_answer {
    PAXOS_ANSWERED, /* `found` is the word before the CAS */
    PAXOS_SILENT,   /* it was not reached, or is no voter: nothing happened there */
    PAXOS_UNKNOWN   /* the CAS has happened, or not, or will yet */
};

struct paxos {
    uint64_t word[VOTERS_MAX]; /* what each voter has, as far as is known */
    uint8_t state[VOTERS_MAX]; /* enum voter_state */
    uint8_t voters, at, phase;
    uint16_t ballot;
    uint32_t mine, value; /* proposed; and what is to be accepted, or is decided */
    uint8_t end;          /* enum paxos_end */
};

/* `mine`: the value to propose; 0: only learns what is decided, or may be. */
void paxos_begin(struct paxos *p, unsigned voters, uint32_t mine);
/* The next step, if p->end is PAXOS_GOES_ON: a CAS of the voter's word. `from` and `to` are the
 * same if it only looks. */
void paxos_next(const struct paxos *p, unsigned *voter, uint64_t *from, uint64_t *to);
void paxos_answer(struct paxos *p, enum paxos_answer answer, uint64_t found);

#endif
