/*
 * Litmus tests: what threads may see of each other's verbs, on the machine's real memory order.
 *
 * Two threads run a program of two verbs each on variables x and y, over and over, each time on
 * fresh variables and as nearly at the same instant as a rendezvous can arrange. What they read
 * is compared with the outcomes that the contract forbids. Order is asked for the way protocol
 * code does: by nothing at all where the fabric promises it, else by a fence.
 */
#ifndef TESTS_FABRIC_LITMUS_H
#define TESTS_FABRIC_LITMUS_H

#include "base/clock.h"
#include "fabric/rig.h"

#include <pthread.h>
#include <sched.h>

#ifndef LITMUS_SLOTS
#define LITMUS_SLOTS 512 /* pairs of variables between two clean-ups */
#endif
#define LITMUS_ROUNDS ((200000 / RIG_SLOW + LITMUS_SLOTS - 1) / LITMUS_SLOTS)
#define LITMUS_NS     5000000000u /* after this time the round under way is the last */
#define LITMUS_STRIDE 128         /* bytes from one slot's variable to the next */
#define LITMUS_X      (1u << 20)
#define LITMUS_Y      (LITMUS_X + LITMUS_SLOTS * LITMUS_STRIDE + 64)
#define LITMUS_SPAN   (LITMUS_SLOTS * LITMUS_STRIDE)

enum litmus_var { X, Y };

struct litmus_step {
    enum fab_kind kind;
    enum litmus_var var;
    uint64_t value; /* WRITE, and CAS from 0 */
};

/* r[thread][step] is what the step read; x and y are what is there in the end. */
typedef bool litmus_forbidden(uint64_t r[2][2], uint64_t x, uint64_t y);

struct litmus {
    const char *name;
    struct litmus_step step[2][2];
    litmus_forbidden *forbidden;
};

static bool message_without_data(uint64_t r[2][2], uint64_t x, uint64_t y)
{
    (void)x, (void)y;
    return r[1][0] == 1 && r[1][1] == 0;
}

static bool both_were_first(uint64_t r[2][2], uint64_t x, uint64_t y)
{
    (void)x, (void)y;
    return r[0][1] == 0 && r[1][1] == 0;
}

static bool both_saw_the_future(uint64_t r[2][2], uint64_t x, uint64_t y)
{
    (void)x, (void)y;
    return r[0][0] == 1 && r[1][0] == 1;
}

static bool both_lost(uint64_t r[2][2], uint64_t x, uint64_t y)
{
    (void)r;
    return x == 1 && y == 1;
}

static const struct litmus litmus_tests[] = {
    {"message passing",
     {{{FAB_WRITE, X, 1}, {FAB_WRITE, Y, 1}}, {{FAB_READ, Y, 0}, {FAB_READ, X, 0}}},
     message_without_data},
    {"WRITE, then published by CAS",
     {{{FAB_WRITE, X, 1}, {FAB_CAS, Y, 1}}, {{FAB_READ, Y, 0}, {FAB_READ, X, 0}}},
     message_without_data},
    {"CAS, then WRITE",
     {{{FAB_CAS, X, 1}, {FAB_WRITE, Y, 1}}, {{FAB_READ, Y, 0}, {FAB_READ, X, 0}}},
     message_without_data},
    {"CAS, then CAS",
     {{{FAB_CAS, X, 1}, {FAB_CAS, Y, 1}}, {{FAB_READ, Y, 0}, {FAB_READ, X, 0}}},
     message_without_data},
    {"message passing, received by CAS",
     {{{FAB_WRITE, X, 1}, {FAB_WRITE, Y, 1}}, {{FAB_CAS, Y, 2}, {FAB_READ, X, 0}}},
     message_without_data},
    {"store buffering with CAS",
     {{{FAB_CAS, X, 1}, {FAB_READ, Y, 0}}, {{FAB_CAS, Y, 1}, {FAB_READ, X, 0}}},
     both_were_first},
    {"store buffering with WRITE",
     {{{FAB_WRITE, X, 1}, {FAB_READ, Y, 0}}, {{FAB_WRITE, Y, 1}, {FAB_READ, X, 0}}},
     both_were_first},
    {"load buffering",
     {{{FAB_READ, X, 0}, {FAB_WRITE, Y, 1}}, {{FAB_READ, Y, 0}, {FAB_WRITE, X, 1}}},
     both_saw_the_future},
    {"load buffering with CAS",
     {{{FAB_READ, X, 0}, {FAB_CAS, Y, 1}}, {{FAB_READ, Y, 0}, {FAB_CAS, X, 1}}},
     both_saw_the_future},
    {"two and two WRITEs",
     {{{FAB_WRITE, X, 1}, {FAB_WRITE, Y, 2}}, {{FAB_WRITE, Y, 1}, {FAB_WRITE, X, 2}}},
     both_lost},
};

struct litmus_run {
    const struct litmus *test;
    struct fab *fab;
    bool apart; /* each verb in a request of its own */
    bool over;  /* set before the barrier of a round that there is not */
    gaddr var[2];
    pthread_barrier_t round;
    unsigned arrived[2]; /* rendezvous: slots begun, by thread */
    uint64_t result[2][LITMUS_SLOTS][2];
};

struct litmus_thread {
    struct litmus_run *run;
    unsigned self;
};

/* Both threads go on together. Where there is but one processor to share, they take turns. */
static void rendezvous(struct litmus_run *run, unsigned self, unsigned begun)
{
    __atomic_store_n(&run->arrived[self], begun, __ATOMIC_RELEASE);
    for (unsigned spins = 1; __atomic_load_n(&run->arrived[!self], __ATOMIC_ACQUIRE) < begun;
         spins++) {
        if (spins % 1024 == 0)
            sched_yield();
    }
}

static void litmus_order(struct rig *r, const struct litmus_run *run, const struct litmus_step *s)
{
    if (run->apart)
        rig_flush(r);
    else if (gaddr_node(run->var[s[0].var]) != gaddr_node(run->var[s[1].var]))
        batch_fence(&r->b);
    else
        rig_ordered(r, fab_class_of((uint8_t)s[0].kind), fab_class_of((uint8_t)s[1].kind));
}

static void litmus_slot(struct rig *r, const struct litmus_run *run, unsigned self, unsigned slot)
{
    const struct litmus_step *step = run->test->step[self];

    for (unsigned i = 0; i < 2; i++) {
        gaddr at = run->var[step[i].var];
        uint64_t delta = (uint64_t)slot * LITMUS_STRIDE;
        uint64_t *word = &r->buf[slot * 2 + i];

        if (i)
            litmus_order(r, run, step);
        *word = step[i].value;
        if (step[i].kind == FAB_READ)
            batch_read(&r->b, at, delta, word, 8);
        else if (step[i].kind == FAB_WRITE)
            batch_write(&r->b, MARK_EARLY, at, delta, word, 8);
        else
            batch_cas(&r->b, MARK_PUBLISH, at, delta, 0, step[i].value, word);
    }
    rig_flush(r);
}

/* Gives each thread a processor of its own, where there are two: a scheduler with other work to do
 * would put both on one, and nothing would ever happen at the same time. */
static void litmus_settle(unsigned self)
{
    cpu_set_t allowed, one;
    unsigned seen = 0;

    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || seen++ < self)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

static void *litmus_worker(void *arg)
{
    const struct litmus_thread *t = arg;
    struct litmus_run *run = t->run;
    struct rig *r = rig_on(run->fab);
    unsigned begun = 0;

    litmus_settle(t->self);
    for (;;) {
        pthread_barrier_wait(&run->round); /* the variables are clean */
        if (run->over)
            break;
        for (unsigned slot = 0; slot < LITMUS_SLOTS; slot++) {
            rendezvous(run, t->self, ++begun);
            litmus_slot(r, run, t->self, slot);
        }
        memcpy(run->result[t->self], r->buf, sizeof run->result[0]);
        pthread_barrier_wait(&run->round); /* the results are there */
    }
    rig_free(r);
    return NULL;
}

static unsigned litmus_judge(struct litmus_run *run, const uint64_t *x, const uint64_t *y)
{
    unsigned violations = 0;

    for (unsigned slot = 0; slot < LITMUS_SLOTS; slot++) {
        uint64_t r[2][2];

        memcpy(r[0], run->result[0][slot], sizeof r[0]);
        memcpy(r[1], run->result[1][slot], sizeof r[1]);
        violations +=
            run->test->forbidden(r, x[slot * LITMUS_STRIDE / 8], y[slot * LITMUS_STRIDE / 8]);
    }
    return violations;
}

/* The forbidden outcomes seen. Verbs apart or on two nodes are posts with a wait between them,
 * which leave less to chance than one request does: a quarter of the rounds will do. Where other
 * programs keep the processors busy, the two threads hardly ever run at the same time, and each
 * rendezvous waits for the scheduler: then time decides. */
static unsigned litmus_run(struct rig *r, const struct litmus *test, unsigned y_node, bool apart)
{
    struct litmus_run *run = calloc(1, sizeof *run);
    struct litmus_thread arg[2] = {{run, 0}, {run, 1}};
    pthread_t thread[2];
    unsigned violations = 0, rounds = apart || y_node ? (LITMUS_ROUNDS + 3) / 4 : LITMUS_ROUNDS;
    uint64_t *x = r->buf, *y = r->buf + LITMUS_SPAN / 8, began = clock_ns();

    assert_non_null(run);
    run->test = test;
    run->fab = r->fab;
    run->apart = apart;
    run->var[X] = gaddr_make(0, LITMUS_X);
    run->var[Y] = gaddr_make(y_node, LITMUS_Y);
    assert_int_equal(pthread_barrier_init(&run->round, NULL, 3), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, litmus_worker, &arg[i]), 0);
    for (unsigned round = 0; round < rounds; round++) {
        if (round > 0 && clock_ns() - began > LITMUS_NS)
            break;
        memset(r->buf, 0, 2 * LITMUS_SPAN);
        batch_write(&r->b, MARK_EARLY, run->var[X], 0, x, LITMUS_SPAN);
        batch_write(&r->b, MARK_EARLY, run->var[Y], 0, y, LITMUS_SPAN);
        rig_flush(r);
        pthread_barrier_wait(&run->round);
        pthread_barrier_wait(&run->round);
        batch_read(&r->b, run->var[X], 0, x, LITMUS_SPAN);
        batch_read(&r->b, run->var[Y], 0, y, LITMUS_SPAN);
        rig_flush(r);
        violations += litmus_judge(run, x, y);
    }
    run->over = true;
    pthread_barrier_wait(&run->round);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&run->round);
    free(run);
    return violations;
}

static void litmus_orders_hold(void **state)
{
    struct rig *r = *state;
    unsigned violations = 0, last = r->fab->nodes - 1;

    for (size_t i = 0; i < sizeof litmus_tests / sizeof litmus_tests[0]; i++) {
        const struct litmus *test = &litmus_tests[i];
        unsigned together = litmus_run(r, test, 0, false);
        unsigned apart = litmus_run(r, test, 0, true);
        unsigned nodes = last ? litmus_run(r, test, last, false) : 0;

        if (together + apart + nodes)
            print_error("%s: forbidden outcomes in one request %u, in two %u, on two nodes %u\n",
                        test->name, together, apart, nodes);
        violations += together + apart + nodes;
    }
    assert_int_equal(violations, 0);
}

/* ---- several threads on the same words ------------------------------------------------------- */

#define CROWD 3

struct crowd {
    struct fab *fab;
    unsigned self;
    unsigned count;    /* repetitions           */
    unsigned failures; /* what the thread found */
    uint64_t *seen;    /* tickets drawn         */
};

/* Runs fn on CROWD threads and returns the failures they found together. */
static unsigned crowd_run(struct fab *fab, unsigned count, void *(*fn)(void *), uint64_t *seen)
{
    pthread_t thread[CROWD];
    struct crowd crowd[CROWD];
    unsigned failures = 0;

    for (unsigned i = 0; i < CROWD; i++) {
        crowd[i] = (struct crowd){.fab = fab, .self = i, .count = count};
        crowd[i].seen = seen ? seen + (size_t)i * count : NULL;
        assert_int_equal(pthread_create(&thread[i], NULL, fn, &crowd[i]), 0);
    }
    for (unsigned i = 0; i < CROWD; i++) {
        pthread_join(thread[i], NULL);
        failures += crowd[i].failures;
    }
    return failures;
}

#define CROWD_WORD gaddr_make(0, 2u << 20)

/* One thread counts up, the others must never see it count down. */
static void *coherence_thread(void *arg)
{
    struct crowd *c = arg;
    struct rig *r = rig_on(c->fab);
    uint64_t last = 0;

    for (unsigned i = 1; i <= c->count; i++) {
        if (c->self == 0) {
            rig_set(r, CROWD_WORD, 0, i);
            continue;
        }
        batch_read(&r->b, CROWD_WORD, 0, &r->buf[0], 8);
        rig_ordered(r, FAB_R, FAB_R);
        batch_read(&r->b, CROWD_WORD, 0, &r->buf[1], 8);
        rig_flush(r);
        c->failures += r->buf[0] < last || r->buf[1] < r->buf[0];
        last = r->buf[1];
    }
    rig_free(r);
    return NULL;
}

static void litmus_one_word_is_coherent(void **state)
{
    struct rig *r = *state;
    unsigned count = 200000 / RIG_SLOW;

    rig_set(r, CROWD_WORD, 0, 0);
    assert_int_equal(crowd_run(r->fab, count, coherence_thread, NULL), 0);
    assert_int_equal(rig_get(r, CROWD_WORD, 0), count);
}

/* Two threads write spans of words whose halves are alike; the third reads and compares. */
#define TORN_SPAN 65536u

static void *torn_thread(void *arg)
{
    struct crowd *c = arg;
    struct rig *r = rig_on(c->fab);

    for (unsigned i = 0; i < c->count; i++) {
        uint64_t half = 2 * i + c->self;

        if (c->self < 2) {
            for (unsigned w = 0; w < TORN_SPAN / 8; w++)
                r->buf[w] = half << 32 | half;
            batch_write(&r->b, MARK_EARLY, CROWD_WORD, 0, r->buf, TORN_SPAN);
            rig_flush(r);
            continue;
        }
        batch_read(&r->b, CROWD_WORD, 0, r->buf, TORN_SPAN);
        rig_flush(r);
        for (unsigned w = 0; w < TORN_SPAN / 8; w++)
            c->failures += r->buf[w] >> 32 != (uint32_t)r->buf[w];
    }
    rig_free(r);
    return NULL;
}

static void litmus_words_are_never_torn(void **state)
{
    struct rig *r = *state;

    memset(r->buf, 0, TORN_SPAN);
    batch_write(&r->b, MARK_EARLY, CROWD_WORD, 0, r->buf, TORN_SPAN);
    rig_flush(r);
    assert_int_equal(crowd_run(r->fab, 5000 / RIG_SLOW, torn_thread, NULL), 0);
}

static void *cas_counter_thread(void *arg)
{
    struct crowd *c = arg;
    struct rig *r = rig_on(c->fab);
    uint64_t seen = 0, *old = r->buf;

    for (unsigned done = 0; done < c->count;) { /* each failure is another thread's success */
        batch_cas(&r->b, MARK_PUBLISH, CROWD_WORD, 0, seen, seen + 1, old);
        rig_flush(r);
        done += *old == seen;
        seen = *old == seen ? seen + 1 : *old;
    }
    rig_free(r);
    return NULL;
}

static void litmus_cas_counter_is_exact(void **state)
{
    struct rig *r = *state;
    unsigned count = 50000 / RIG_SLOW;

    rig_set(r, CROWD_WORD, 0, 0);
    crowd_run(r->fab, count, cas_counter_thread, NULL);
    assert_int_equal(rig_get(r, CROWD_WORD, 0), CROWD * count);
}

/* Each thread counts in 16 bits of its own of one word. It alone changes them, so its masked CAS
 * must not fail, whatever the others do to the rest of the word. */
static void *masked_cas_thread(void *arg)
{
    struct crowd *c = arg;
    struct rig *r = rig_on(c->fab);
    unsigned shift = 16 * c->self;
    uint64_t mask = 0xffffull << shift, *old = r->buf;

    *old = 0;
    for (unsigned i = 0; i < c->count;) {
        uint64_t compare = (*old & ~mask) | (uint64_t)(i & 0xffff) << shift;
        uint64_t swap = (uint64_t)((i + 1) & 0xffff) << shift;
        int rc;

        batch_mcas(&r->b, MARK_PUBLISH, CROWD_WORD, 0, compare, mask, swap, mask, old);
        rc = batch_flush(&r->b);
        c->failures += rc != FAR_CONTENTION && (rc != FAR_OK || ((*old ^ compare) & mask) != 0);
        i += rc != FAR_CONTENTION; /* nothing was done, because the others did so much */
    }
    rig_free(r);
    return NULL;
}

static void litmus_masked_cas_fields_are_exact(void **state)
{
    struct rig *r = *state;
    unsigned count = 50000 / RIG_SLOW;
    uint64_t expected = 0;

    for (unsigned i = 0; i < CROWD; i++)
        expected |= (uint64_t)(count & 0xffff) << 16 * i;
    rig_set(r, CROWD_WORD, 0, 0);
    assert_int_equal(crowd_run(r->fab, count, masked_cas_thread, NULL), 0);
    assert_true(rig_get(r, CROWD_WORD, 0) == expected);
}

static void *ticket_thread(void *arg)
{
    struct crowd *c = arg;
    struct rig *r = rig_on(c->fab);

    for (unsigned i = 0; i < c->count; i++) {
        batch_faa(&r->b, MARK_PUBLISH, CROWD_WORD, 0, 1, r->buf);
        rig_flush(r);
        c->seen[i] = r->buf[0];
        c->failures += i > 0 && c->seen[i] <= c->seen[i - 1];
    }
    rig_free(r);
    return NULL;
}

static void litmus_faa_tickets_are_unique(void **state)
{
    struct rig *r = *state;
    unsigned count = 50000 / RIG_SLOW, total = CROWD * count;
    uint64_t *seen = calloc(total, sizeof *seen);
    uint8_t *drawn = calloc(total, 1);

    assert_non_null(seen);
    assert_non_null(drawn);
    rig_set(r, CROWD_WORD, 0, 0);
    assert_int_equal(crowd_run(r->fab, count, ticket_thread, seen), 0);
    for (unsigned i = 0; i < total; i++) {
        assert_in_range(seen[i], 0, total - 1);
        assert_int_equal(drawn[seen[i]]++, 0);
    }
    free(drawn);
    free(seen);
}

#endif
