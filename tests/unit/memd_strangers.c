/* What a peer without the secret can do to another client's connection: nothing. UCX lets it choose
 * the connection that its messages belong to, so it sends them as that connection's. */
#include "fuzz/memd_input.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define STRANGE_TOKEN 0x5555555555555555ull

static struct memd_client *victim = &input_node.client[0];

static int start(void **state)
{
    (void)state;
    input_start();
    return 0;
}

static int end(void **state)
{
    (void)state;
    memd_client_end(victim);
    free(input_node.memd.region.base);
    return 0;
}

static struct wire_head strange_head(void)
{
    return wire_head_of(WIRE_STAT, victim->slot, STRANGE_TOKEN, 9);
}

/* Sends it as the victim's, and expects that the connection goes on, without an answer. */
static void assert_dropped(const void *message, size_t bytes)
{
    char answer[WIRE_CONTROL_MAX];
    size_t answer_bytes = 1;
    enum memd_state before = victim->state;
    uint64_t rejected = victim->count.rejected;

    assert_true(memd_message(victim, message, bytes, answer, &answer_bytes));
    assert_int_equal(answer_bytes, 0);
    assert_int_equal(victim->state, before);
    assert_int_equal(victim->count.rejected, rejected + 1);
}

static void assert_all_dropped(void)
{
    char large[WIRE_CONTROL_MAX + 8] = "";
    struct wire_head head = strange_head();

    assert_dropped(&head, sizeof head);
    memcpy(large, &head, sizeof head);
    assert_dropped(large, sizeof large); /* longer than any message of its type */
    head.magic++;
    assert_dropped(&head, sizeof head);
    head = strange_head();
    head.version++;
    assert_dropped(&head, sizeof head);
    head = strange_head();
    head.type = UINT16_MAX;
    assert_dropped(&head, sizeof head);
}

static void a_stranger_ends_no_connection(void **state)
{
    (void)state;
    input_connect(0);
    input_greet(victim, true);
    assert_int_equal(victim->state, MEMD_WELCOMED);
    assert_all_dropped();
}

static void a_stranger_ends_no_hand_shake(void **state)
{
    (void)state;
    input_connect(0);
    assert_all_dropped();
    input_greet(victim, false);
    assert_int_equal(victim->state, MEMD_CHALLENGED);
    assert_all_dropped();
}

static void assert_refused(const void *message, size_t bytes, int status)
{
    struct wire_refused refused;
    char answer[WIRE_CONTROL_MAX];
    size_t answer_bytes = 0;

    assert_false(memd_message(victim, message, bytes, answer, &answer_bytes));
    assert_int_equal(answer_bytes, sizeof refused);
    memcpy(&refused, answer, sizeof refused);
    assert_int_equal(refused.status, status);
}

static void a_client_is_told_why_it_is_refused(void **state)
{
    struct wire_hello hello = {.head = wire_head_of(WIRE_HELLO, 0, 0, 1)};
    struct wire_head head;

    (void)state;
    hello.head.version++;
    input_connect(0);
    assert_refused(&hello, sizeof hello, FAR_LAYOUT);
    input_connect(0);
    input_greet(victim, true);
    head = wire_head_of(WIRE_FENCE, victim->slot, victim->token, 3); /* too short for its type */
    assert_refused(&head, sizeof head, FAR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stranger_ends_no_connection),
        cmocka_unit_test(a_stranger_ends_no_hand_shake),
        cmocka_unit_test(a_client_is_told_why_it_is_refused),
    };
    return cmocka_run_group_tests(tests, start, end);
}
