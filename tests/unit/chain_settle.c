/* Settling: what is left of a client that died between head and tail, and who has its lines. */
#include "chain/chain_internal.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#define CLIENTS 2u
#define DEAD    2001ull
#define ALIVE   1001ull
#define AT_WORD 4096u
#define AT_DATA 8192u
#define BYTES   128u

static struct fab *machines, *fab;
static struct fab_ep *raw, *ep; /* of machines, and of a client that lives */
static uint64_t *buf;

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(fab_open("mem:?nodes=2&size=4m", &machines), FAR_OK);
    assert_int_equal(chain_open(machines, CLIENTS, &fab), FAR_OK);
    assert_int_equal(machines->ops->ep_open(machines, &raw), FAR_OK);
    assert_int_equal(fab->ops->ep_open(fab, &ep), FAR_OK);
    buf = raw->ops->buf_alloc(raw, CHAIN_LONG_BYTES);
    uint64_t holder;
    ep->ops->identify(ep, ALIVE);
    assert_int_equal(ep->ops->chain->seat(ep, 0, 0, ALIVE, &holder), FAR_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ep->ops->ep_close(ep);
    raw->ops->buf_free(raw, buf, CHAIN_LONG_BYTES);
    raw->ops->ep_close(raw);
    fab_close(fab);
    return 0;
}

static void raw_verb(enum fab_kind kind, bool tail, uint64_t off, void *data, size_t len)
{
    const struct chain *c = (const struct chain *)(void *)fab;
    struct fab_verb v = {.kind = (uint8_t)kind,
                         .node = (uint16_t)(tail ? chain_tail(c, 0) : 0),
                         .len = (uint32_t)len,
                         .off = off + (tail ? c->tail_at[0] : 0),
                         .buf = buf};
    struct fab_req req = {.verbs = &v, .count = 1};
    if (kind == FAB_WRITE)
        memcpy(buf, data, len);
    assert_int_equal(raw->ops->post(raw, &req), FAR_OK);
    while (!req.done)
        raw->ops->poll(raw, true);
    if (kind == FAB_READ)
        memcpy(data, buf, len);
}

static uint64_t word_at(bool tail, uint64_t off)
{
    uint64_t word;
    raw_verb(FAB_READ, tail, off, &word, 8);
    return word;
}

static void set_word(bool tail, uint64_t off, uint64_t word)
{
    raw_verb(FAB_WRITE, tail, off, &word, 8);
}

static void set_seat(unsigned slot, uint64_t word)
{
    set_word(false, chain_seat((const struct chain *)(void *)fab, slot), word);
}

static uint64_t line_at(unsigned slot, unsigned line)
{
    return chain_line_off(fab->size[0], slot, line);
}

/* A line of the dead client, which has slot 1. */
static void leave_line(unsigned number, unsigned entries, const struct chain_entry *entry,
                       bool tail)
{
    uint64_t room[CHAIN_SHORT_BYTES / 8] = {0};
    struct chain_line *line = (void *)room;
    line->stamp = 7 + number;
    line->owner = DEAD;
    line->entries = entries;
    memcpy(line->entry, entry, entries * sizeof *entry);
    line->checksum = chain_line_sum(line, gaddr_make(0, line_at(1, number)));
    raw_verb(FAB_WRITE, false, line_at(1, number), line, chain_line_bytes(entries));
    if (tail)
        raw_verb(FAB_WRITE, true, line_at(1, number), line, chain_line_bytes(entries));
    set_seat(1, DEAD);
}

static struct chain_entry entry(enum chain_what what, uint64_t off, uint64_t a, uint64_t b)
{
    return (struct chain_entry){(uint64_t)what << 56 | off, a, b};
}

static void settle(void)
{
    uint64_t holder = 0;
    assert_int_equal(ep->ops->chain->settle(ep, 1, DEAD, &holder), FAR_OK);
    assert_int_equal(ep->ops->chain->holder(ep, 1, &holder), FAR_OK);
    assert_int_equal(holder, 0);
    for (unsigned i = 0; i < CHAIN_LINES; i++) {
        assert_int_equal(word_at(false, line_at(1, i)), 0);
        assert_int_equal(word_at(true, line_at(1, i)), 0);
    }
}

static void fill(bool tail, uint64_t off, uint8_t byte)
{
    uint8_t data[BYTES];
    memset(data, byte, sizeof data);
    raw_verb(FAB_WRITE, tail, off, data, sizeof data);
}

static void a_word_that_was_decided_gets_to_the_tail_with_what_it_leads_to(void **state)
{
    (void)state;
    struct chain_entry e[] = {entry(CHAIN_EARLY, AT_DATA, BYTES, 0),
                              entry(CHAIN_WORD, AT_WORD, 5, 6)};
    leave_line(3, 2, e, false);
    fill(false, AT_DATA, 0x11);
    set_word(false, AT_WORD, chain_reference(1, 3, 7 + 3));
    set_word(true, AT_WORD, 5);
    settle();
    assert_int_equal(word_at(false, AT_WORD), 6);
    assert_int_equal(word_at(true, AT_WORD), 6);
    assert_int_equal(word_at(true, AT_DATA), 0x1111111111111111);
    assert_int_equal(word_at(true, AT_DATA + BYTES - 8), 0x1111111111111111);
}

static void a_word_that_was_not_decided_stays_as_it_is(void **state)
{
    (void)state;
    struct chain_entry e[] = {entry(CHAIN_EARLY, AT_DATA, BYTES, 0),
                              entry(CHAIN_WORD, AT_WORD, 5, 6)};
    leave_line(3, 2, e, false);
    fill(false, AT_DATA, 0x11);
    set_word(false, AT_WORD, chain_reference(1, 3, 9)); /* an earlier use of the line */
    set_word(true, AT_WORD, 5);
    settle();
    assert_int_equal(word_at(false, AT_WORD), chain_reference(1, 3, 9));
    assert_int_equal(word_at(true, AT_WORD), 5);
    assert_int_equal(word_at(true, AT_DATA), 0); /* it may be another's memory by now */
}

static void a_range_is_copied_to_the_tail(void **state)
{
    (void)state;
    struct chain_entry e[] = {entry(CHAIN_RANGE, AT_DATA, BYTES, 0)};
    leave_line(30, 1, e, true);
    fill(false, AT_DATA, 0x22);
    fill(true, AT_DATA, 0x21);
    settle();
    assert_int_equal(word_at(true, AT_DATA), 0x2222222222222222);
    assert_int_equal(word_at(true, AT_DATA + BYTES - 8), 0x2222222222222222);
}

static void a_line_that_is_open_at_the_tail_alone_is_closed(void **state)
{
    (void)state;
    struct chain_entry e[] = {entry(CHAIN_RANGE, AT_DATA, BYTES, 0)};
    leave_line(30, 1, e, true);
    set_word(false, line_at(1, 30), 0);
    fill(false, AT_DATA, 0x22);
    fill(true, AT_DATA, 0x21);
    settle();
    assert_int_equal(word_at(true, AT_DATA), 0x2121212121212121);
}

static void who_settles_is_alone(void **state)
{
    (void)state;
    uint64_t holder = 0;
    set_seat(1, 3000); /* client 3001 settles */
    assert_int_equal(ep->ops->chain->settle(ep, 1, DEAD, &holder), FAR_CONTENTION);
    assert_int_equal(holder, 3000);
    assert_int_equal(ep->ops->chain->seat(ep, 1, 0, ALIVE, &holder), FAR_CONTENTION);
    assert_int_equal(ep->ops->chain->settle(ep, 1, 3000, &holder), FAR_OK); /* that died, too */
    assert_int_equal(ep->ops->chain->holder(ep, 1, &holder), FAR_OK);
    assert_int_equal(holder, 0);
}

static void guests_give_their_lines_back(void **state)
{
    (void)state;
    struct fab_ep *guest[CHAIN_GUESTS + 1];
    uint64_t holder = 0;
    unsigned slot = 0;
    for (unsigned i = 0; i <= CHAIN_GUESTS; i++) {
        assert_int_equal(fab->ops->ep_open(fab, &guest[i]), FAR_OK);
        int rc = guest[i]->ops->chain->visit(guest[i], 5001 + 2 * i, &slot, &holder);
        assert_int_equal(rc, i < CHAIN_GUESTS ? FAR_OK : FAR_CONTENTION);
    }
    assert_int_equal(slot, CLIENTS);
    assert_int_equal(holder, 5001 + 2 * (CHAIN_GUESTS - 1));
    assert_int_equal(guest[0]->ops->chain->seat(guest[0], 1, 0, 5001, &holder), FAR_OK);
    struct fab_ep *last = guest[CHAIN_GUESTS];
    assert_int_equal(last->ops->chain->visit(last, 7001, &slot, &holder), FAR_OK);
    assert_int_equal(last->ops->chain->seat(last, 1, 0, 7001, &holder), FAR_CONTENTION);
    assert_int_equal(holder, 5001);
    assert_int_equal(ep->ops->chain->holder(ep, slot, &holder), FAR_OK);
    assert_int_equal(holder, 7001); /* it is a guest still */
    guest[0]->ops->chain->leave(guest[0]);
    assert_int_equal(last->ops->chain->seat(last, 1, 0, 7001, &holder), FAR_OK);
    for (unsigned i = 0; i <= CHAIN_GUESTS; i++)
        guest[i]->ops->ep_close(guest[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_word_that_was_decided_gets_to_the_tail_with_what_it_leads_to, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_word_that_was_not_decided_stays_as_it_is, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_range_is_copied_to_the_tail, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_line_that_is_open_at_the_tail_alone_is_closed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_settles_is_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(guests_give_their_lines_back, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
