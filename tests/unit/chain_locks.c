/* Locks of chains: when they get to the tail, and when they leave it. */
#include "chain/chain_internal.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#define CLIENTS 2u
#define ME      1001ull
#define DEAD    2001ull
#define AT_LOCK 4096u
#define AT_MORE 4160u
#define AT_DATA 8192u

static struct fab *machines, *fab;
static struct fab_ep *raw, *ep; /* of machines, and of a client */
static uint64_t *word;          /* of raw */

/* An operation: its request, and up to four verbs with a word each. */
struct job {
    struct fab_req req;
    struct fab_verb verb[4];
    uint64_t *buf;
};
static struct job one, other;

static void begin(struct job *j)
{
    memset(j->verb, 0, sizeof j->verb);
    j->req = (struct fab_req){.verbs = j->verb};
}

static int open_on(const char *uri)
{
    uint64_t holder;
    assert_int_equal(fab_open(uri, &machines), FAR_OK);
    assert_int_equal(chain_open(machines, CLIENTS, &fab), FAR_OK);
    assert_int_equal(machines->ops->ep_open(machines, &raw), FAR_OK);
    assert_int_equal(fab->ops->ep_open(fab, &ep), FAR_OK);
    word = raw->ops->buf_alloc(raw, 8);
    one.buf = ep->ops->buf_alloc(ep, 32);
    other.buf = ep->ops->buf_alloc(ep, 32);
    begin(&one);
    begin(&other);
    assert_int_equal(ep->ops->chain->seat(ep, 0, 0, ME, &holder), FAR_OK);
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    return open_on("mem:?nodes=2&size=4m");
}

static int set_up_deferred(void **state)
{
    (void)state;
    return open_on("mem:?nodes=2&size=4m&defer=1");
}

static int tear_down(void **state)
{
    (void)state;
    ep->ops->buf_free(ep, one.buf, 32);
    ep->ops->buf_free(ep, other.buf, 32);
    ep->ops->ep_close(ep);
    raw->ops->buf_free(raw, word, 8);
    raw->ops->ep_close(raw);
    fab_close(fab);
    return 0;
}

static uint64_t raw_word(enum fab_kind kind, bool tail, uint64_t off, uint64_t value)
{
    uint64_t from;
    unsigned machine = chain_tail_of(fab, 0, &from);
    struct fab_verb v = {.kind = (uint8_t)kind,
                         .node = (uint16_t)(tail ? machine : 0),
                         .len = 8,
                         .off = off + (tail ? from : 0),
                         .buf = word};
    struct fab_req req = {.verbs = &v, .count = 1};
    *word = value;
    assert_int_equal(raw->ops->post(raw, &req), FAR_OK);
    while (!req.done)
        raw->ops->poll(raw, true);
    return *word;
}

static uint64_t head_at(uint64_t off)
{
    return raw_word(FAB_READ, false, off, 0);
}

static uint64_t tail_at(uint64_t off)
{
    return raw_word(FAB_READ, true, off, 0);
}

static void set_both(uint64_t off, uint64_t value)
{
    (void)raw_word(FAB_WRITE, false, off, value);
    (void)raw_word(FAB_WRITE, true, off, value);
}

static struct fab_verb *add(struct job *j, enum fab_kind kind, unsigned mark, uint64_t off)
{
    struct fab_verb *v = &j->verb[j->req.count];
    *v = (struct fab_verb){.kind = (uint8_t)kind,
                           .flags = (uint8_t)mark,
                           .len = 8,
                           .off = off,
                           .buf = &j->buf[j->req.count]};
    j->req.count++;
    return v;
}

static void cas(struct job *j, uint64_t off, uint64_t from, uint64_t to)
{
    struct fab_verb *v = add(j, FAB_CAS, MARK_LOCK, off);
    v->compare = from;
    v->swap = to;
}

static void set_bits(struct job *j, uint64_t off, uint64_t bits, bool set)
{
    struct fab_verb *v = add(j, FAB_MCAS, MARK_LOCK, off);
    v->swap = set ? bits : 0;
    v->swap_mask = bits;
    v->compare_mask = set ? bits : 0;
}

static void place(struct job *j, uint64_t value)
{
    *(uint64_t *)add(j, FAB_WRITE, MARK_PLACE, AT_DATA)->buf = value;
}

static void run(struct job *j)
{
    assert_int_equal(ep->ops->post(ep, &j->req), FAR_OK);
    while (!j->req.done)
        ep->ops->poll(ep, true);
    assert_int_equal(j->req.status, FAR_OK);
    ep->ops->chain->finish(ep);
    begin(j);
}

static void assert_both(uint64_t off, uint64_t head, uint64_t tail)
{
    assert_int_equal(head_at(off), head);
    assert_int_equal(tail_at(off), tail);
}

static void a_lock_under_which_nothing_is_placed_stays_at_the_head(void **state)
{
    (void)state;
    cas(&one, AT_LOCK, 0, ME);
    run(&one);
    assert_both(AT_LOCK, ME, 0);
    cas(&one, AT_LOCK, ME, 0);
    run(&one);
    assert_both(AT_LOCK, 0, 0);
}

static void a_lock_gets_to_the_tail_with_what_is_placed_and_leaves_it(void **state)
{
    (void)state;
    cas(&one, AT_LOCK, 0, ME);
    run(&one);
    place(&one, 7);
    run(&one);
    assert_both(AT_LOCK, ME, ME);
    assert_both(AT_DATA, 7, 7);
    cas(&one, AT_LOCK, ME, 0);
    run(&one);
    assert_both(AT_LOCK, 0, 0);
    cas(&one, AT_LOCK, 0, ME);
    run(&one);
    place(&one, 8);
    cas(&one, AT_LOCK, ME, 0);
    run(&one);
    assert_both(AT_LOCK, 0, 0);
    assert_both(AT_DATA, 8, 8);
}

static void a_lock_that_is_taken_over_leaves_the_tail(void **state)
{
    (void)state;
    set_both(AT_LOCK, DEAD);
    cas(&one, AT_LOCK, DEAD, ME);
    run(&one);
    assert_int_equal(head_at(AT_LOCK), ME);
    cas(&one, AT_LOCK, ME, 0);
    run(&one);
    assert_both(AT_LOCK, 0, 0);
}

static void a_lock_of_a_dead_client_leaves_the_tail(void **state)
{
    (void)state;
    set_both(AT_LOCK, DEAD);
    cas(&one, AT_LOCK, DEAD, 0);
    run(&one);
    assert_both(AT_LOCK, 0, 0);
    set_both(AT_LOCK, 6); /* bits, together with one of its own */
    set_bits(&one, AT_LOCK, 8, true);
    run(&one);
    assert_both(AT_LOCK, 14, 6);
    set_bits(&one, AT_LOCK, 14, false);
    run(&one);
    assert_both(AT_LOCK, 0, 0);
}

static void a_lock_of_a_sibling_stays_at_the_head(void **state)
{
    (void)state;
    set_bits(&one, AT_MORE, 1, true);
    run(&one);
    set_bits(&other, AT_LOCK, 2, true);
    run(&other);
    place(&other, 9);
    run(&other);
    assert_both(AT_LOCK, 2, 2);
    assert_both(AT_MORE, 1, 0);
    set_bits(&other, AT_LOCK, 2, false);
    run(&other);
    assert_both(AT_LOCK, 0, 0);
}

static void bits_that_were_released_are_not_copied_later(void **state)
{
    (void)state;
    set_bits(&one, AT_LOCK, 1, true);
    run(&one);
    place(&one, 10);
    set_bits(&one, AT_LOCK, 1, false);
    run(&one);
    assert_both(AT_LOCK, 0, 0);
    set_bits(&one, AT_LOCK, 2, true);
    run(&one);
    place(&one, 20);
    run(&one);
    assert_both(AT_LOCK, 2, 2);
    set_bits(&one, AT_LOCK, 2, false);
    run(&one);
    assert_both(AT_LOCK, 0, 0);
}

static void locks_of_an_operation_that_has_ended_are_forgotten(void **state)
{
    (void)state;
    cas(&one, AT_LOCK, 0, ME);
    run(&one);
    ep->ops->chain->forget(ep, &one.req);
    cas(&one, AT_MORE, 0, ME);
    run(&one);
    place(&one, 5);
    run(&one);
    assert_both(AT_LOCK, ME, 0);
    assert_both(AT_MORE, ME, ME);
}

/* If the answer came first, and this client died, nobody would release it any more. */
static void a_dead_clients_lock_is_released_before_the_answer(void **state)
{
    (void)state;
    set_both(AT_LOCK, DEAD);
    place(&one, 7);
    cas(&one, AT_LOCK, DEAD, 0);
    assert_int_equal(ep->ops->post(ep, &one.req), FAR_OK);
    for (unsigned i = 0; i < 100 && !one.req.done; i++) {
        ep->ops->poll(ep, false);
        if (one.req.done)
            assert_both(AT_LOCK, 0, 0);
    }
    assert_true(one.req.done);
    ep->ops->chain->finish(ep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_lock_under_which_nothing_is_placed_stays_at_the_head,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lock_gets_to_the_tail_with_what_is_placed_and_leaves_it,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lock_that_is_taken_over_leaves_the_tail, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_lock_of_a_dead_client_leaves_the_tail, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lock_of_a_sibling_stays_at_the_head, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bits_that_were_released_are_not_copied_later, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(locks_of_an_operation_that_has_ended_are_forgotten, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_dead_clients_lock_is_released_before_the_answer,
                                        set_up_deferred, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
