/* Turns of operations of one process: who waits, for whom, and for how long. Each operation is a
 * fiber, as on a ring, and goes on only when the test says so. */
#include "base/fiber.h"
#include "pool/turns.h"
#include "support/driven_clock.h"
#include "support/pool_rig.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define OPS      40
#define WORD     gaddr_make(0, 77 * 64)
#define STEP_NS  500u
#define PATIENCE 150000u /* nanoseconds: a little more than a queue may stand still at first */

static struct {
    struct pool_rig pool;
    struct driven_clock clock;
    struct fab *fab;
    struct taker {
        struct op op;
        struct fiber *fiber;
        struct turn turn;
        gaddr at;
        bool has; /* its turn has come */
    } of[OPS];
} r;

static void take(void *arg)
{
    struct taker *t = arg;
    turn_take(&t->op, t->at, &t->turn);
    t->has = true;
}

static void go_on(unsigned who)
{
    if (!fiber_finished(r.of[who].fiber))
        fiber_resume(r.of[who].fiber);
}

/* The operation wants a turn at that word: it goes on until it waits. */
static void want(unsigned who, gaddr at)
{
    struct taker *t = &r.of[who];
    t->at = at;
    t->has = false;
    fiber_reset(t->fiber, take, t);
    go_on(who);
}

static void want_all(unsigned first, unsigned count)
{
    for (unsigned i = first; i < first + count; i++)
        want(i, WORD);
}

/* Those operations look again and again, for that time or until the last of them has its turn. */
static uint64_t look(unsigned first, unsigned count, uint64_t ns)
{
    uint64_t began = r.clock.now;
    while (r.clock.now - began < ns && !r.of[first + count - 1].has) {
        r.clock.now += STEP_NS;
        for (unsigned i = first; i < first + count; i++)
            go_on(i);
    }
    return r.clock.now - began;
}

static void give(unsigned who)
{
    assert_true(r.of[who].has);
    turn_give(&r.of[who].op, &r.of[who].turn);
}

static unsigned count_served(unsigned first, unsigned count)
{
    unsigned served = 0;
    for (unsigned i = first; i < first + count; i++)
        served += r.of[i].has;
    return served;
}

static int set_up(void **state)
{
    (void)state;
    memset(&r, 0, sizeof r);
    assert_int_equal(fab_open("mem:?size=4m", &r.fab), FAR_OK);
    r.fab->lease_ms = 60000;
    driven_clock_set(&r.clock, r.fab);
    assert_int_equal(pool_rig_join(&r.pool, r.fab, 1), FAR_OK);
    r.pool.pool.turns = turns_open(2, 64);
    assert_non_null(r.pool.pool.turns);
    for (unsigned i = 0; i < OPS; i++) {
        assert_int_equal(op_init(&r.of[i].op, &r.pool.client), FAR_OK);
        r.of[i].op.batch.on_ring = true;
        assert_non_null(r.of[i].fiber = fiber_create(32768, take, &r.of[i]));
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned i = 0; i < OPS; i++) {
        fiber_destroy(r.of[i].fiber);
        op_free(&r.of[i].op);
    }
    turns_close(r.pool.pool.turns);
    pool_rig_close(&r.pool);
    fab_close(r.fab);
    return 0;
}

static void a_turn_that_is_free_takes_no_time(void **state)
{
    (void)state;
    uint64_t began = r.clock.now, verbs = r.of[0].op.cost.verbs;
    for (unsigned i = 0; i < 3; i++) {
        want(i, WORD);
        give(i);
    }
    assert_true(r.clock.now == began && r.of[0].op.cost.verbs == verbs);
}

static void the_first_that_comes_goes_first(void **state)
{
    (void)state;
    want_all(0, 4);
    assert_int_equal(count_served(0, 4), 1);
    for (unsigned next = 1; next < 4; next++) {
        look(next, 4 - next, 20000);
        assert_int_equal(count_served(0, 4), next); /* nobody is in front of its time */
        give(next - 1);
        assert_true(look(next, 1, 20000) < 20000);
        assert_int_equal(count_served(0, 4), next + 1);
    }
    give(3);
}

/* TURN-3. Otherwise clients of other processes would hardly ever find the lock free. */
static void a_busy_queue_lets_others_go_now_and_then(void **state)
{
    (void)state;
    want(0, WORD);
    for (unsigned ticket = 1; ticket <= 32; ticket++) {
        unsigned who = ticket % 2;
        want(who, WORD);
        give(1 - who);
        uint64_t waited = look(who, 1, 20000);
        assert_true(ticket % 16 == 0 ? waited >= 3000 && waited < 20000 : waited <= 1500);
    }
    give(0);
    for (unsigned ticket = 33; ticket <= 48; ticket++) { /* nobody waits: nor does this one */
        want(1, WORD);
        give(1);
    }
}

static void other_words_and_other_processes_do_not_wait(void **state)
{
    (void)state;
    want(0, WORD);
    want(1, gaddr_make(0, 78 * 64));
    assert_true(r.of[1].has);
    r.pool.ep->process = 1;
    want(2, WORD);
    assert_true(r.of[2].has);
    r.pool.ep->process = 0;
    want(3, WORD);
    assert_false(r.of[3].has);
    give(0);
    look(3, 1, PATIENCE);
    for (unsigned i = 1; i < 4; i++)
        give(i);
}

/* TURN-1. The first one never gives its turn. Its successors go on, one after the other. */
static void a_turn_that_is_never_given_does_not_stop_others(void **state)
{
    (void)state;
    want_all(0, 3);
    assert_true(look(1, 1, 2 * PATIENCE) < PATIENCE);
    look(2, 1, 20000);
    assert_false(r.of[2].has);
    give(1);
    assert_true(look(2, 1, 20000) < 20000);
    want(3, WORD);
    give(0); /* it comes back, late: its turn is over */
    look(3, 1, 20000);
    assert_false(r.of[3].has);
    give(2);
    assert_true(look(3, 1, 20000) < 20000);
    give(3);
    want(4, WORD);
    assert_true(r.of[4].has);
    give(4);
}

/* TURN-1. All in front of the last one stand still in the queue. It does not wait for each of
 * them. */
static void a_queue_that_stands_still_is_passed(void **state)
{
    (void)state;
    want_all(0, OPS);
    assert_true(look(OPS - 1, 1, OPS * PATIENCE) < 8 * PATIENCE);
    assert_true(r.of[OPS - 1].has);
    give(OPS - 1);
    for (unsigned i = 1; i < OPS - 1; i++) { /* the others come back, and are not in the way */
        look(i, 1, PATIENCE);
        give(i);
    }
    want(1, WORD);
    assert_true(r.of[1].has);
    give(1);
}

/* All that wait lose patience at the same time. They do not come to far memory together. */
static void those_that_lose_patience_together_go_one_after_the_other(void **state)
{
    (void)state;
    want_all(0, OPS);
    r.clock.now += PATIENCE;
    for (unsigned i = OPS - 1; i > 0; i--) /* the last one finds out first */
        go_on(i);
    look(1, OPS - 1, STEP_NS);
    assert_int_equal(count_served(1, OPS - 1), 1);
    give(1);
    for (unsigned i = 2; i < OPS; i++) {
        for (unsigned steps = 0; steps < 200 && !r.of[i].has; steps++)
            look(i, OPS - i, STEP_NS);
        assert_int_equal(count_served(1, OPS - 1), i);
        give(i);
    }
}

static void one_that_stood_still_does_not_make_others_patient(void **state)
{
    (void)state;
    want(0, WORD);
    r.clock.now += 1000000000;
    give(0);
    want(0, WORD);
    want(1, WORD);
    assert_true(look(1, 1, 1000000000) < 2 * PATIENCE);
    give(1);
}

static void tickets_come_round(void **state)
{
    (void)state;
    want(0, WORD);
    _Atomic uint32_t *next_and_serving = (_Atomic uint32_t *)(void *)r.of[0].turn.queue;
    give(0);
    atomic_store(&next_and_serving[0], UINT32_MAX - 1);
    atomic_store(&next_and_serving[1], UINT32_MAX - 1);
    the_first_that_comes_goes_first(state);
    assert_int_equal(atomic_load(&next_and_serving[1]), 2);
    atomic_store(&next_and_serving[0], UINT32_MAX - 1);
    atomic_store(&next_and_serving[1], UINT32_MAX - 1);
    a_queue_that_stands_still_is_passed(state);
}

static void without_turns_nobody_waits(void **state)
{
    (void)state;
    struct turns *turns = r.pool.pool.turns;
    r.pool.pool.turns = NULL;
    want_all(0, 2);
    assert_int_equal(count_served(0, 2), 2);
    give(0);
    give(0);
    give(1);
    r.pool.pool.turns = turns;
}

static void a_turn_is_given_once(void **state)
{
    (void)state;
    want_all(0, 3);
    give(0);
    give(0);
    look(1, 2, 20000);
    assert_int_equal(count_served(0, 3), 2);
    give(1);
    look(2, 1, 20000);
    give(2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_turn_that_is_free_takes_no_time),
        TEST(the_first_that_comes_goes_first),
        TEST(a_busy_queue_lets_others_go_now_and_then),
        TEST(other_words_and_other_processes_do_not_wait),
        TEST(a_turn_that_is_never_given_does_not_stop_others),
        TEST(a_queue_that_stands_still_is_passed),
        TEST(those_that_lose_patience_together_go_one_after_the_other),
        TEST(one_that_stood_still_does_not_make_others_patient),
        TEST(tickets_come_round),
        TEST(without_turns_nobody_waits),
        TEST(a_turn_is_given_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
