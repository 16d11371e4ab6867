/* A memory node executes a batch only within the time for which it is valid (WIRE-W5). */
#include "fuzz/memd_input.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define HOUR 3600000000000ull
#define AT   64u

static struct memd_client *client = &input_node.client[0];

static int start(void **state)
{
    (void)state;
    input_start();
    input_connect(0);
    input_greet(client, true);
    return client->state != MEMD_WELCOMED;
}

static int end(void **state)
{
    (void)state;
    memd_client_end(client);
    free(input_node.reply);
    free(input_node.memd.region.base);
    return 0;
}

/* Adds 1 to a word by a batch that was sent at that time and is valid for an hour and a bit.
 * Returns whether it was executed, and checks that the node says what its clock is. */
static bool executed(uint64_t sent)
{
    struct {
        struct wire_batch batch;
        struct wire_part part;
        struct wire_verb verb;
        uint64_t addend;
    } m = {.batch = {.head = wire_head_of(WIRE_BATCH, client->slot, client->token, 1),
                     .sent = sent,
                     .valid_us = UINT32_MAX,
                     .parts = 1},
           .part = {.verbs = 1},
           .verb = {.kind = FAB_FAA, .len = 8, .off = AT},
           .addend = 1};
    const uint64_t *word = (const uint64_t *)(void *)(input_node.memd.region.base + AT);
    uint64_t before = *word, earlier = clock_boot_ns(), clock;
    size_t bytes = 0;

    assert_true(memd_batch(client, &m, sizeof m, input_room, NULL, &bytes));
    const struct wire_head *head = input_node.reply;
    if (head->type == WIRE_REPLY) {
        clock = ((const struct wire_reply *)input_node.reply)->clock;
        assert_int_equal(*word, before + 1);
    } else {
        const struct wire_answer *answer = input_node.reply;
        clock = answer->clock;
        assert_int_equal(head->type, WIRE_ANSWER);
        assert_int_equal(answer->status, FAR_TIMEOUT);
        assert_int_equal(*word, before);
    }
    assert_true(clock >= earlier && clock <= clock_boot_ns());
    return head->type == WIRE_REPLY;
}

static void a_batch_in_time_is_executed(void **state)
{
    (void)state;
    assert_true(executed(clock_boot_ns()));
}

static void a_batch_that_is_too_old_is_not_executed(void **state)
{
    (void)state;
    assert_false(executed(clock_boot_ns() - 2 * HOUR));
}

/* It would be valid for longer than its client believes. */
static void a_batch_from_the_future_is_not_executed(void **state)
{
    (void)state;
    assert_false(executed(clock_boot_ns() + HOUR));
}

static void answers_say_what_the_clock_is(void **state)
{
    struct wire_client fence = {.head = wire_head_of(WIRE_FENCE, client->slot, client->token, 1),
                                .identity = 1};
    struct wire_answer answer;
    char bytes[WIRE_CONTROL_MAX];
    size_t count = 0;
    uint64_t earlier = clock_boot_ns();

    (void)state;
    assert_true(memd_message(client, &fence, sizeof fence, bytes, &count));
    assert_int_equal(count, sizeof answer);
    memcpy(&answer, bytes, sizeof answer);
    assert_true(answer.clock >= earlier && answer.clock <= clock_boot_ns());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_in_time_is_executed),
        cmocka_unit_test(a_batch_that_is_too_old_is_not_executed),
        cmocka_unit_test(a_batch_from_the_future_is_not_executed),
        cmocka_unit_test(answers_say_what_the_clock_is),
    };
    return cmocka_run_group_tests(tests, start, end);
}
