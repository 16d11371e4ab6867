#include "members/members.h"

#include "base/err.h"
#include "members/members_internal.h"
#include "members/paxos.h"

#include <stdlib.h>

#define TURNS       64u    /* ballots that a client tries for one change */
#define PAUSE_NS    20000u /* at most, after the first ballot that was overtaken */
#define LIFE_AT     (MEMBERS_WORDS - 1)
#define SPREAD_TRYS 4u /* a node's word changes at most so often beside us */

unsigned members_count(const struct members *m)
{
    return (unsigned)__builtin_popcountll(m->voters);
}

int members_too_few(const struct members *m, unsigned answered)
{
    struct err_detail why;
    err_keep(&why);
    return err_fail(FAR_UNREACHABLE, "only %u of %u voters answer%s%s", answered, members_count(m),
                    why.text[0] ? ": " : "", why.text);
}

/* ---- the beginning --------------------------------------------------------------------------- */

struct members_head members_first(uint64_t pool_id, unsigned voters, uint64_t witnesses,
                                  const uint64_t *life)
{
    struct members_head head = {.pool_id = pool_id, .witnesses = witnesses, .voters = voters};
    for (unsigned i = 0; i < voters; i++)
        head.life[i] = life_part(life[i]);
    head.checksum = members_head_sum(&head);
    return head;
}

int members_judge(const struct members_head *head, uint64_t pool_id, unsigned node)
{
    if (head->checksum != members_head_sum(head) || head->pool_id != pool_id ||
        head->voters > VOTERS_MAX)
        return err_fail(FAR_CORRUPT, "the log of members on node %u is damaged", node);
    return FAR_OK;
}

int members_begin(struct members *m, const struct members_head *head, unsigned nodes, uint64_t off,
                  uint64_t *word)
{
    *m = (struct members){.word = word, .off = off, .nodes = (uint8_t)nodes};
    m->log = calloc(MEMBERS_ENTRIES, sizeof *m->log);
    if (!m->log || !word)
        return err_fail(FAR_NO_MEMORY, "no memory for the log of members");
    m->first = (uint8_t)head->voters;
    m->voters = (1ull << m->first) - 1;
    for (unsigned i = 0; i < m->first; i++)
        m->life[i] = head->life[i];
    return FAR_OK;
}

void members_end(struct members *m)
{
    free(m->log);
    m->log = NULL;
}

/* ---- one voter ------------------------------------------------------------------------------- */

/* The look at the node's life comes behind all that the batch does. So what was done was done in
 * that life, or in one before that the node knows all of. */
int members_flush(struct members *m, struct batch *b, unsigned node, bool *counts)
{
    batch_fence(b);
    batch_read(b, gaddr_make(node, 0), NODE_LIFE_OFF, &m->word[LIFE_AT], 8);
    int rc = batch_flush(b);
    *counts =
        rc == FAR_OK && (!members_votes(m, node) || life_part(m->word[LIFE_AT]) == m->life[node]);
    if (rc == FAR_OK && !*counts)
        (void)err_fail(FAR_NODE_LOST,
                       "node %u was killed, or has other memory than before: it does not vote "
                       "until it is taken in again",
                       node);
    return rc;
}

int members_change_word(struct members *m, struct batch *b, unsigned node, uint64_t off,
                        uint64_t from, uint64_t to, struct answer *answer)
{
    unsigned cas = 0;
    if (from == to)
        batch_read(b, gaddr_make(node, 0), m->off + off, &m->word[0], 8);
    else
        cas = batch_cas(b, MARK_PUBLISH, gaddr_make(node, 0), m->off + off, from, to, &m->word[0]);
    int rc = members_flush(m, b, node, &answer->counts);
    answer->unknown = from != to && rc != FAR_OK && batch_outcome(b, cas) == BATCH_UNKNOWN;
    answer->found = m->word[0];
    return rc;
}

int members_ask(struct members *m, struct batch *b, unsigned node)
{
    struct answer answer;
    int rc = members_change_word(m, b, node, 0, 0, 0, &answer);
    return rc == FAR_OK && !answer.counts ? FAR_NODE_LOST : rc;
}

/* ---- entries --------------------------------------------------------------------------------- */

/* MEMBERS-3 */
static unsigned fewest(const struct members *m)
{
    return m->first / 2u + 1;
}

static void learn(struct members *m, uint32_t value)
{
    unsigned node = value_node(value), count = members_count(m);
    bool votes = members_votes(m, node);
    m->log[++m->entries] = value;
    if (node >= m->nodes)
        return;
    if (value_change(value) == MEMBERS_OUT && votes && count > fewest(m) &&
        m->life[node] == life_part(value)) {
        m->voters &= ~(1ull << node);
    } else if (value_change(value) == MEMBERS_IN && (votes || count < VOTERS_MAX)) {
        m->voters |= 1ull << node;
        m->life[node] = life_part(value);
    }
}

/* Reads the next words of the log from a node, and learns what it knows to be decided. *open: it
 * has accepted something for the entry behind that. */
static int look(struct members *m, struct batch *b, unsigned node, bool *counts, bool *open)
{
    unsigned next = m->entries + 1, count = MEMBERS_ENTRIES - next;
    count = count < LOG_AHEAD ? count : LOG_AHEAD;
    batch_read(b, gaddr_make(node, 0), m->off + log_off(next), m->word, count * 8);
    int rc = members_flush(m, b, node, counts);
    unsigned known = 0;
    while (rc == FAR_OK && known < count && log_accepted(m->word[known]) == LOG_DECIDED)
        learn(m, log_value(m->word[known++]));
    *open |= rc == FAR_OK && known < count && log_accepted(m->word[known]) != 0;
    return rc;
}

/* A round of Paxos about the entry behind those that are known. */
static int decide(struct members *m, struct batch *b, uint32_t mine, struct paxos *p)
{
    unsigned node[VOTERS_MAX], voters = 0;
    for (unsigned i = 0; i < m->nodes; i++)
        if (members_votes(m, i))
            node[voters++] = i;
    paxos_begin(p, voters, mine);
    while (p->end == PAXOS_GOES_ON) {
        uint64_t from, to;
        unsigned at = 0;
        struct answer a;
        paxos_next(p, &at, &from, &to);
        int rc = members_change_word(m, b, node[at], log_off(m->entries + 1), from, to, &a);
        if (rc != FAR_OK && !voter_is_lost(rc))
            return rc;
        paxos_answer(p,
                     a.counts    ? PAXOS_ANSWERED
                     : a.unknown ? PAXOS_UNKNOWN
                                 : PAXOS_SILENT,
                     a.found);
    }
    return FAR_OK;
}

/* Tells a node that an entry is decided. */
static int tell(struct members *m, struct batch *b, unsigned node, unsigned entry, uint32_t value)
{
    struct answer a = {.found = 0};
    uint64_t from = 0;
    int rc = FAR_OK;
    for (unsigned i = 0; i < SPREAD_TRYS; i++) {
        rc = members_change_word(m, b, node, log_off(entry), from, log_decided(value), &a);
        if (rc != FAR_OK || a.found == from || a.found == log_decided(value))
            break;
        from = a.found;
    }
    return rc;
}

/* The entry is decided: all nodes that answer are told. */
static int spread(struct members *m, struct batch *b, uint32_t value)
{
    unsigned entry = m->entries + 1;
    for (unsigned i = 0; i < m->nodes; i++) {
        int rc = tell(m, b, i, entry, value);
        if (rc != FAR_OK && !voter_is_lost(rc))
            return rc;
    }
    learn(m, value);
    return FAR_OK;
}

/* Pauses longer each time, and a part that differs: who propose at the same time must not do so for
 * ever. */
static void pause_before(struct batch *b, unsigned turn)
{
    uint64_t most = (uint64_t)PAUSE_NS << (turn < 10 ? turn : 10), now = batch_now(b);
    uint64_t seed[2] = {now, (uintptr_t)b->ep->process};
    batch_pause(b, 1000 + hash_sum(seed, sizeof seed, turn) % most);
}

/* Has the entry decided that some voters have accepted. FAR_CONTENTION: others do, too. */
static int settle(struct members *m, struct batch *b, uint32_t mine, uint32_t *decided)
{
    struct paxos p;
    int rc = decide(m, b, mine, &p);
    *decided = 0;
    if (rc != FAR_OK)
        return rc;
    if (p.end == PAXOS_NO_MAJORITY)
        return members_too_few(m, members_count(m) / 2);
    if (p.end == PAXOS_OVERTAKEN)
        return FAR_CONTENTION;
    if (p.end != PAXOS_DECIDED)
        return FAR_OK;
    *decided = p.value;
    return spread(m, b, p.value);
}

int members_read(struct members *m, struct batch *b)
{
    for (unsigned turn = 0; turn < TURNS;) {
        uint32_t before = m->entries, value = 0;
        unsigned answered = 0;
        bool open = false, all = false;
        struct err_detail why = {.text = ""};
        if (before + 1 == MEMBERS_ENTRIES)
            return FAR_OK;
        for (unsigned i = 0; i < 2 * m->nodes && m->entries == before; i++) {
            unsigned node = i % m->nodes;
            all = i >= m->nodes; /* then those that do not vote: they may know entries, too */
            if (members_votes(m, node) == all)
                continue;
            if (all && 2 * answered > members_count(m))
                break;
            bool counts = false;
            int rc = look(m, b, node, &counts, &open);
            if (rc != FAR_OK && !voter_is_lost(rc))
                return rc;
            answered += counts && !all;
            if (!counts && !all)
                err_keep(&why);
        }
        if (m->entries > before)
            continue;
        if (2 * answered <= members_count(m)) {
            err_restore(&why);
            return members_too_few(m, answered);
        }
        if (!open)
            return FAR_OK;
        int rc = settle(m, b, 0, &value);
        if (rc == FAR_CONTENTION)
            pause_before(b, turn++);
        else if (rc != FAR_OK || value == 0)
            return rc;
    }
    return err_fail(FAR_CONTENTION, "other clients change the members all the time");
}

/* ---- proposing ------------------------------------------------------------------------------- */

/* A node that is to vote has to know all that is decided: those that voted before may be lost
 * later. */
static int teach(struct members *m, struct batch *b, unsigned node)
{
    int rc = FAR_OK;
    for (unsigned entry = 1; entry <= m->entries && rc == FAR_OK; entry++)
        rc = tell(m, b, node, entry, m->log[entry]);
    return rc;
}

/* Without the node, do most of those that are left count? Else nothing could be decided any
 * more. */
static int check_rest(struct members *m, struct batch *b, unsigned node)
{
    unsigned counting = 0, rest = members_count(m) - 1;
    for (unsigned i = 0; i < m->nodes; i++) {
        if (i == node || !members_votes(m, i))
            continue;
        int rc = members_ask(m, b, i);
        if (rc != FAR_OK && !voter_is_lost(rc))
            return rc;
        counting += rc == FAR_OK;
    }
    return 2 * counting > rest ? FAR_OK
                               : err_fail(FAR_INVALID,
                                          "without node %u, %u voters are left and only %u of them "
                                          "count: take others in first",
                                          node, rest, counting);
}

static int log_is_full(const struct members *m)
{
    return err_fail(FAR_POOL_FULL,
                    "the members have changed %u times: there is no room for another change",
                    m->entries);
}

/* What is to be proposed now. FAR_EXISTS, FAR_INVALID (MEMBERS-3), FAR_POOL_FULL. */
static int plan(struct members *m, struct batch *b, enum members_change change, unsigned node,
                uint32_t *value)
{
    unsigned count = members_count(m);
    bool votes = members_votes(m, node);
    if (m->entries + 1 == MEMBERS_ENTRIES)
        return log_is_full(m);
    if (change == MEMBERS_OUT) {
        *value = members_value(change, node, m->life[node]);
        if (!votes)
            return err_fail(FAR_EXISTS, "node %u does not vote", node);
        if (count <= fewest(m))
            return err_fail(FAR_INVALID,
                            "only %u voters are left, and %u are needed: take another "
                            "one in first",
                            count, fewest(m));
        return check_rest(m, b, node);
    }
    struct answer a;
    int rc = members_change_word(m, b, node, 0, 0, 0, &a);
    if (rc != FAR_OK)
        return rc;
    *value = members_value(change, node, m->word[LIFE_AT]);
    if (a.counts && votes)
        return err_fail(FAR_EXISTS, "node %u votes already", node);
    if (!votes && count == VOTERS_MAX)
        return err_fail(FAR_INVALID, "%u nodes vote already: put one out first", count);
    return teach(m, b, node);
}

int members_propose(struct members *m, struct batch *b, enum members_change change, unsigned node)
{
    for (unsigned turn = 0; turn < TURNS; turn++) {
        uint32_t value = 0, decided = 0;
        int rc = members_read(m, b);
        if (rc == FAR_OK)
            rc = plan(m, b, change, node, &value);
        if (rc == FAR_OK)
            rc = settle(m, b, value, &decided);
        if (rc == FAR_CONTENTION)
            pause_before(b, turn);
        else if (rc != FAR_OK || decided == value)
            return rc;
    }
    return err_fail(FAR_CONTENTION, "other clients change the members all the time");
}

/* ---- accepting ------------------------------------------------------------------------------- */

/* What voters that answer have, in whatever life: how many, the entries that would let those count
 * that do not, and what the next entry was accepted to be in the highest ballot; 0: nothing was. */
struct remnant {
    unsigned answered, lost;
    uint32_t in[VOTERS_MAX], accepted;
};

static int look_at_remnant(struct members *m, struct batch *b, struct remnant *r)
{
    unsigned highest = 0;
    *r = (struct remnant){.answered = 0};
    for (unsigned i = 0; i < m->nodes; i++) {
        struct answer a;
        if (!members_votes(m, i))
            continue;
        int rc = members_change_word(m, b, i, log_off(m->entries + 1), 0, 0, &a);
        if (rc != FAR_OK && !voter_is_lost(rc))
            return rc;
        if (rc != FAR_OK)
            continue;
        r->answered++;
        if (!a.counts)
            r->in[r->lost++] = members_value(MEMBERS_IN, i, m->word[LIFE_AT]);
        if (log_accepted(a.found) > highest) {
            highest = log_accepted(a.found);
            r->accepted = log_value(a.found);
        }
    }
    return FAR_OK;
}

static int take_in(struct members *m, struct batch *b, const struct remnant *r)
{
    int rc = FAR_OK;
    for (unsigned i = 0; i < r->lost && m->entries + 1 < MEMBERS_ENTRIES && rc == FAR_OK; i++)
        rc = spread(m, b, r->in[i]);
    return rc;
}

/* An entry that a majority has accepted is decided, though nobody may know it yet, and one of the
 * voters that answer has it. So what they have accepted comes first. */
int members_accept(struct members *m, struct batch *b)
{
    int rc = members_read(m, b);
    if (rc == FAR_OK)
        return err_fail(FAR_EXISTS, "a majority of the voters counts already");
    for (unsigned turn = 0; turn < TURNS && rc == FAR_UNREACHABLE; turn++) {
        struct remnant r;
        if (m->entries + 1 == MEMBERS_ENTRIES)
            return log_is_full(m);
        rc = look_at_remnant(m, b, &r);
        if (rc == FAR_OK && 2 * r.answered <= members_count(m))
            return members_too_few(m, r.answered);
        if (rc == FAR_OK)
            rc = r.accepted != 0 ? spread(m, b, r.accepted) : take_in(m, b, &r);
        if (rc == FAR_OK)
            rc = members_read(m, b);
    }
    return rc;
}
