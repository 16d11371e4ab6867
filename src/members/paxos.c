#include "members/paxos.h"

enum phase { LOOKS, PREPARES, ACCEPTS };
enum voter_state { OUT_OF_REACH, SEEN, PROMISED, ACCEPTED };

static unsigned count(const struct paxos *p, enum voter_state least)
{
    unsigned n = 0;
    for (unsigned i = 0; i < p->voters; i++)
        n += p->state[i] >= least;
    return n;
}

static bool majority(const struct paxos *p, unsigned n)
{
    return 2 * n > p->voters;
}

static void decide(struct paxos *p, uint32_t value)
{
    p->value = value;
    p->end = PAXOS_DECIDED;
}

/* PAXOS-5 */
static bool look_for_decision(struct paxos *p)
{
    for (unsigned i = 0; i < p->voters; i++) {
        unsigned ballot = log_accepted(p->word[i]), same = 0;
        if (p->state[i] == OUT_OF_REACH || ballot == 0)
            continue;
        for (unsigned j = 0; j < p->voters; j++)
            same += p->state[j] != OUT_OF_REACH && log_accepted(p->word[j]) == ballot;
        if (majority(p, same) || ballot == LOG_DECIDED) {
            decide(p, log_value(p->word[i]));
            return true;
        }
    }
    return false;
}

/* The value accepted in the highest ballot; 0: none was. */
static uint32_t adopted(const struct paxos *p, enum voter_state least)
{
    unsigned highest = 0;
    uint32_t value = 0;
    for (unsigned i = 0; i < p->voters; i++)
        if (p->state[i] >= least && log_accepted(p->word[i]) > highest) {
            highest = log_accepted(p->word[i]);
            value = log_value(p->word[i]);
        }
    return value;
}

static void begin_ballot(struct paxos *p)
{
    if (look_for_decision(p))
        return;
    if (!majority(p, count(p, SEEN))) {
        p->end = PAXOS_NO_MAJORITY;
        return;
    }
    if (p->mine == 0 && adopted(p, SEEN) == 0) {
        p->end = PAXOS_EMPTY;
        return;
    }
    for (unsigned i = 0; i < p->voters; i++)
        if (p->state[i] == SEEN && log_promised(p->word[i]) >= p->ballot)
            p->ballot = (uint16_t)(log_promised(p->word[i]) + 1);
    p->phase = PREPARES;
    if (p->ballot > LOG_BALLOTS_MAX)
        p->end = PAXOS_OVERTAKEN;
}

static void begin_accepting(struct paxos *p)
{
    uint32_t value = adopted(p, PROMISED);
    if (!majority(p, count(p, PROMISED))) {
        p->end = majority(p, count(p, SEEN)) ? PAXOS_OVERTAKEN : PAXOS_NO_MAJORITY;
        return;
    }
    p->value = value != 0 ? value : p->mine;
    p->phase = ACCEPTS;
    if (p->value == 0)
        p->end = PAXOS_EMPTY; /* the one that had a value is out of reach by now */
}

static void end_ballot(struct paxos *p)
{
    if (majority(p, count(p, ACCEPTED)))
        p->end = PAXOS_DECIDED;
    else
        p->end = majority(p, count(p, SEEN)) ? PAXOS_OVERTAKEN : PAXOS_NO_MAJORITY;
}

/* Goes to the next voter that the phase asks; behind the last one the next phase begins. */
static void move_on(struct paxos *p)
{
    static const uint8_t asks[] = {[LOOKS] = OUT_OF_REACH, [PREPARES] = SEEN, [ACCEPTS] = PROMISED};
    while (p->end == PAXOS_GOES_ON) {
        while (++p->at < p->voters)
            if (p->state[p->at] == asks[p->phase])
                return;
        p->at = UINT8_MAX;
        if (p->phase == LOOKS)
            begin_ballot(p);
        else if (p->phase == PREPARES)
            begin_accepting(p);
        else
            end_ballot(p);
    }
}

void paxos_begin(struct paxos *p, unsigned voters, uint32_t mine)
{
    *p = (struct paxos){.voters = (uint8_t)voters, .mine = mine, .ballot = 1};
}

void paxos_next(const struct paxos *p, unsigned *voter, uint64_t *from, uint64_t *to)
{
    uint64_t word = p->word[p->at];
    *voter = p->at;
    *from = *to = word;
    if (p->phase == PREPARES)
        *to = log_word(p->ballot, log_accepted(word), log_value(word));
    else if (p->phase == ACCEPTS)
        *to = log_word(p->ballot, p->ballot, p->value);
}

static void answered(struct paxos *p, uint64_t found)
{
    unsigned at = p->at;
    bool swapped = found == p->word[at];
    uint64_t from, to;
    paxos_next(p, &at, &from, &to);
    p->word[at] = swapped ? to : found;
    if (log_accepted(found) == LOG_DECIDED) {
        decide(p, log_value(found));
    } else if (p->phase == LOOKS) {
        p->word[at] = found;
        p->state[at] = SEEN;
    } else if (swapped) {
        p->state[at] = p->phase == PREPARES ? PROMISED : ACCEPTED;
    } else if (p->phase == PREPARES && log_promised(found) < p->ballot) {
        return; /* an older ballot was faster: the same voter again */
    } else if (p->phase == ACCEPTS) {
        p->state[at] = SEEN; /* PAXOS-2 */
    }
    move_on(p);
}

void paxos_answer(struct paxos *p, enum paxos_answer answer, uint64_t found)
{
    if (answer == PAXOS_ANSWERED) {
        answered(p, found);
        return;
    }
    p->state[p->at] = OUT_OF_REACH; /* PAXOS-4 */
    move_on(p);
}
