/*
 * All schedules of small cases of Paxos (members/paxos.h): proposers whose CASes are answered, get
 * lost, land late or land without an answer, and voters that stop. In every state that can be
 * reached at most one value is decided, and a proposer that works alone decides it.
 */
#include "members/paxos.h"

#include "support/leaks_allowed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PROPOSERS 3u
#define LATE      2u

struct late {
    uint64_t from, to;
    uint32_t voter, used;
};
struct state {
    uint64_t word[VOTERS_MAX];
    struct paxos p[PROPOSERS];
    struct late late[LATE];                   /* CASes that will land, or have no effect any more */
    uint8_t stopped;                          /* voters, as bits */
    uint8_t stops, faults, begins[PROPOSERS]; /* that are left */
    uint8_t spoken;                           /* a decision was written to some voter */
    uint32_t decided;                         /* by whoever was first; 0: by nobody */
};

struct setting {
    unsigned voters, proposers, stops, faults, begins;
    bool learner;  /* the last proposer has nothing to propose */
    bool stubborn; /* only the first one begins again */
};

/* ---- states that were seen ------------------------------------------------------------------- */

static struct {
    uint64_t *hash;
    size_t room, count;
} seen;
static struct {
    struct state *at;
    size_t room, count;
} todo;

static void remember(uint64_t hash)
{
    size_t i = hash & (seen.room - 1);
    while (seen.hash[i] != 0)
        i = (i + 1) & (seen.room - 1);
    seen.hash[i] = hash;
    seen.count++;
}

static bool is_new(const struct state *s)
{
    uint64_t hash = hash_sum(s, sizeof *s, 1) | 1;
    size_t i = hash & (seen.room - 1);
    for (; seen.hash[i] != 0; i = (i + 1) & (seen.room - 1))
        if (seen.hash[i] == hash)
            return false;
    if (2 * seen.count >= seen.room) {
        uint64_t *old = seen.hash;
        size_t room = seen.room;
        seen.room *= 2;
        seen.count = 0;
        seen.hash = calloc(seen.room, sizeof *seen.hash);
        assert_non_null(seen.hash);
        for (size_t j = 0; j < room; j++)
            if (old[j] != 0)
                remember(old[j]);
        free(old);
    }
    remember(hash);
    return true;
}

static void add(const struct state *s)
{
    if (!is_new(s))
        return;
    if (todo.count == todo.room) {
        todo.room = todo.room ? 2 * todo.room : 1024;
        todo.at = realloc(todo.at, todo.room * sizeof *todo.at);
        assert_non_null(todo.at);
    }
    todo.at[todo.count++] = *s;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static uint64_t cas(struct state *s, unsigned voter, uint64_t from, uint64_t to)
{
    uint64_t found = s->word[voter];
    if (found == from) {
        assert_true(log_promised(to) >= log_promised(from)); /* PAXOS-3 */
        s->word[voter] = to;
    }
    return found;
}

/* Takes note of what a proposer takes for decided. */
static void judge(struct state *s, const struct paxos *p)
{
    if (p->end != PAXOS_DECIDED)
        return;
    assert_int_not_equal(p->value, 0);
    if (s->decided != 0)
        assert_int_equal(p->value, s->decided);
    s->decided = p->value;
}

static void step(const struct state *before, unsigned i)
{
    unsigned voter = 0;
    uint64_t from, to;
    paxos_next(&before->p[i], &voter, &from, &to);
    struct state s = *before;
    if (s.stopped >> voter & 1) {
        paxos_answer(&s.p[i], PAXOS_SILENT, 0);
        add(&s);
        return;
    }
    paxos_answer(&s.p[i], PAXOS_ANSWERED, cas(&s, voter, from, to));
    judge(&s, &s.p[i]);
    add(&s);
    if (before->faults == 0)
        return;
    s = *before; /* it has no effect; or it was a look without an answer */
    s.faults--;
    paxos_answer(&s.p[i], from == to ? PAXOS_SILENT : PAXOS_UNKNOWN, 0);
    add(&s);
    if (from == to)
        return;
    s = *before; /* nobody learns of its effect */
    s.faults--;
    (void)cas(&s, voter, from, to);
    paxos_answer(&s.p[i], PAXOS_UNKNOWN, 0);
    add(&s);
    s = *before; /* it lands later */
    s.faults--;
    for (unsigned j = 0; j < LATE; j++)
        if (!s.late[j].used) {
            s.late[j] = (struct late){from, to, voter, 1};
            paxos_answer(&s.p[i], PAXOS_UNKNOWN, 0);
            add(&s);
            return;
        }
}

static void begin_again(const struct state *before, unsigned i)
{
    struct state s = *before;
    s.begins[i]--;
    paxos_begin(&s.p[i], s.p[i].voters, s.p[i].mine);
    add(&s);
}

/* A proposer that knows the decision tells a voter. */
static void tell(const struct state *before, unsigned i)
{
    for (unsigned v = 0; v < before->p[i].voters; v++) {
        struct state s = *before;
        if (s.stopped >> v & 1)
            continue;
        s.word[v] = log_decided(s.p[i].value);
        s.spoken = 1;
        add(&s);
    }
}

/* One that works alone decides, if most voters work, and nothing but what is decided. */
static void check_progress(const struct state *at)
{
    struct state s = *at;
    struct paxos *p = &s.p[0];
    unsigned voters = p->voters, working = 0;
    for (unsigned v = 0; v < voters; v++)
        working += !(s.stopped >> v & 1);
    paxos_begin(p, voters, p->mine);
    for (unsigned steps = 0; p->end == PAXOS_GOES_ON; steps++) {
        unsigned voter = 0;
        uint64_t from, to;
        assert_true(steps < 4 * voters);
        paxos_next(p, &voter, &from, &to);
        bool stopped = s.stopped >> voter & 1;
        paxos_answer(p, stopped ? PAXOS_SILENT : PAXOS_ANSWERED,
                     stopped ? 0 : cas(&s, voter, from, to));
    }
    if (2 * working > voters)
        assert_int_equal(p->end, PAXOS_DECIDED);
    else
        assert_true(p->end == PAXOS_DECIDED || p->end == PAXOS_NO_MAJORITY);
    judge(&s, p);
}

static void expand(const struct state *s, const struct setting *set)
{
    check_progress(s);
    for (unsigned i = 0; i < set->proposers; i++) {
        if (s->p[i].end == PAXOS_GOES_ON)
            step(s, i);
        else if (s->p[i].end == PAXOS_DECIDED)
            tell(s, i);
        else if (s->begins[i] > 0)
            begin_again(s, i);
    }
    for (unsigned j = 0; j < LATE; j++)
        if (s->late[j].used) {
            struct state next = *s;
            (void)cas(&next, next.late[j].voter, next.late[j].from, next.late[j].to);
            next.late[j] = (struct late){0};
            add(&next);
        }
    for (unsigned v = 0; v < set->voters && s->stops > 0; v++)
        if (!(s->stopped >> v & 1)) {
            struct state next = *s;
            next.stopped |= (uint8_t)(1u << v);
            next.stops--;
            add(&next);
        }
}

static void explore(const struct setting *set, size_t least)
{
    struct state first;
    memset(&first, 0, sizeof first);
    seen.room = 1 << 16;
    seen.count = todo.count = 0;
    seen.hash = calloc(seen.room, sizeof *seen.hash);
    assert_non_null(seen.hash);
    first.stops = (uint8_t)set->stops;
    first.faults = (uint8_t)set->faults;
    for (unsigned i = 0; i < set->proposers; i++) {
        bool learns = set->learner && i == set->proposers - 1;
        first.begins[i] = (uint8_t)(set->stubborn && i > 0 ? 0 : set->begins);
        paxos_begin(&first.p[i], set->voters, learns ? 0 : 100 + i);
    }
    add(&first);
    while (todo.count > 0) {
        struct state s = todo.at[--todo.count];
        expand(&s, set);
    }
    print_message("%zu states\n", seen.count);
    assert_true(seen.count >= least); /* else something was not explored */
    free(seen.hash);
    free(todo.at);
    memset(&todo, 0, sizeof todo);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static bool thorough; /* --long: 34 million states instead of half a million */

static void two_proposers_decide_one_value(void **state)
{
    (void)state;
    explore(&(struct setting){.voters = 3, .proposers = 2, .begins = thorough ? 2 : 1}, 10000);
}

static void verbs_get_lost_and_land_late(void **state)
{
    (void)state;
    explore(&(struct setting){.voters = 3,
                              .proposers = 2,
                              .begins = 1,
                              .stubborn = !thorough,
                              .faults = thorough ? 2 : 1},
            100000);
}

static void a_voter_stops(void **state)
{
    (void)state;
    explore(
        &(struct setting){
            .voters = 3, .proposers = 2, .begins = thorough, .faults = thorough, .stops = 1},
        10000);
}

static void a_third_one_learns_what_is_decided(void **state)
{
    (void)state;
    explore(&(struct setting){.voters = 3, .proposers = 2 + thorough, .learner = true}, 500);
}

static void one_voter_is_a_majority(void **state)
{
    (void)state;
    explore(
        &(struct setting){
            .voters = 1, .proposers = 2 + thorough, .begins = 1, .faults = thorough ? 2 : 1},
        1000);
}

static void five_voters_bear_two_that_stop(void **state)
{
    (void)state;
    if (thorough)
        explore(&(struct setting){.voters = 5, .proposers = 2, .stops = 2}, 1000000);
    else
        explore(&(struct setting){.voters = 5, .proposers = 1, .stops = 2}, 100);
}

int main(int argc, char **argv)
{
    thorough = argc > 1 && strcmp(argv[1], "--long") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_proposers_decide_one_value),
        cmocka_unit_test(verbs_get_lost_and_land_late),
        cmocka_unit_test(a_voter_stops),
        cmocka_unit_test(a_third_one_learns_what_is_decided),
        cmocka_unit_test(one_voter_is_a_majority),
        cmocka_unit_test(five_voters_bear_two_that_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
