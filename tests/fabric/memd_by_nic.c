/* A memory node whose network card executes the atomics does none in batches, and says so. */
#include "fuzz/memd_input.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define AT 64u

/* Sends a batch of one FAA, or of one READ, and returns what the node says of it. */
static int send_one(struct memd_client *c, uint8_t kind)
{
    uint64_t word = 0;
    struct fab_verb verb = {.kind = kind, .len = 8, .off = AT, .buf = &word, .swap = 1};
    size_t bytes = sizeof(struct wire_batch) + sizeof(struct wire_part) + wire_verb_bytes(kind, 8);
    struct wire_batch *batch = calloc(1, bytes);
    struct wire_part *part = (struct wire_part *)(void *)(batch + 1);
    struct wire_answer answer;

    ASSERT(batch);
    *batch = (struct wire_batch){.head = wire_head_of(WIRE_BATCH, c->slot, c->token, 9),
                                 .valid_until = clock_ns() + 60000000000ull,
                                 .parts = 1};
    part->verbs = 1;
    wire_put_verb((char *)(part + 1), &verb, 0, 8);
    input_send(c, batch, bytes);
    memcpy(&answer, input_node.reply, sizeof answer);
    return answer.head.type == WIRE_ANSWER ? answer.status : FAR_OK;
}

static void atomics_are_refused_and_nothing_else(void **state)
{
    struct memd_client *c = &input_node.client[0];
    uint64_t *word;

    (void)state;
    input_start();
    input_connect(0);
    input_greet(c, true);
    assert_int_equal(c->state, MEMD_WELCOMED);
    word = (uint64_t *)(void *)(input_node.memd.region.base + AT);
    assert_int_equal(send_one(c, FAB_FAA), FAR_OK);
    assert_int_equal(*word, 1);
    input_node.listener.by_nic = true;
    assert_int_equal(send_one(c, FAB_FAA), FAR_UNSUPPORTED);
    assert_int_equal(*word, 1);
    assert_int_equal(send_one(c, FAB_READ), FAR_OK);
    free(input_node.reply);
    free(input_node.memd.region.base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(atomics_are_refused_and_nothing_else)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
