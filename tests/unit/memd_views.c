/* A memory node refuses what is of older views (NODE-N3, WIRE-W6). */
#include "fabric/superblock_layout.h"
#include "fuzz/memd_input.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <unistd.h>

#define AT 128u

static struct memd_client *client = &input_node.client[0], *other = &input_node.client[1];
static unsigned shut_calls;

static void shut(struct memd_client *c)
{
    ASSERT(c == other || c == client);
    shut_calls++;
}

static int start(void **state)
{
    (void)state;
    input_start();
    for (unsigned i = 0; i < 2; i++) {
        struct wire_hello hello = {.head = wire_head_of(WIRE_HELLO, 0, 0, 1), .link = i + 1};
        struct wire_proof proof = {.proof = {0}};
        struct memd_client *c = &input_node.client[i];

        input_connect(i);
        input_send_struct(c, &hello, sizeof hello);
        proof.head = wire_head_of(WIRE_PROOF_IS, c->slot, c->token, 2);
        wire_prove(&input_node.memd.secret, WIRE_CLIENT, c->client_nonce, c->node_nonce, c->link,
                   proof.proof);
        input_send_struct(c, &proof, sizeof proof);
        if (c->state != MEMD_WELCOMED)
            return 1;
    }
    return 0;
}

static int end(void **state)
{
    (void)state;
    memd_client_end(client);
    memd_client_end(other);
    free(input_node.reply);
    free(input_node.memd.region.base);
    return 0;
}

static uint64_t word(unsigned off)
{
    return __atomic_load_n((const uint64_t *)(const void *)(input_node.memd.region.base + off),
                           __ATOMIC_ACQUIRE);
}

/* Asks, and returns the answer. */
static struct wire_answer ask(struct memd_client *c, enum wire_type type, uint32_t view,
                              uint64_t identity)
{
    struct wire_client m = {.head = wire_head_of(type, c->slot, c->token, 1), .identity = identity};
    struct wire_answer answer;
    char bytes[WIRE_CONTROL_MAX];
    size_t count = 0;

    m.head.view = view;
    ASSERT(memd_message(c, &m, type == WIRE_FENCE_VIEW ? sizeof m.head : sizeof m, bytes, &count));
    ASSERT(count == sizeof answer);
    memcpy(&answer, bytes, sizeof answer);
    return answer;
}

static void fence_view(uint32_t view)
{
    assert_int_equal(ask(other, WIRE_FENCE_VIEW, view, 0).status, FAR_OK);
}

/* Adds 1 to a word in that view. Returns the view of the node that refuses it, or 0. */
static uint32_t refused(uint32_t view)
{
    struct {
        struct wire_batch batch;
        struct wire_part part;
        struct wire_verb verb;
        uint64_t addend;
    } m = {.batch = {.head = wire_head_of(WIRE_BATCH, client->slot, client->token, 1),
                     .sent = clock_boot_ns(),
                     .valid_us = UINT32_MAX,
                     .parts = 1},
           .part = {.verbs = 1},
           .verb = {.kind = FAB_FAA, .len = 8, .off = AT},
           .addend = 1};
    uint64_t before = word(AT), counted = client->count.old_views;
    size_t bytes = 0;

    m.batch.head.view = view;
    assert_true(memd_batch(client, &m, sizeof m, input_room, NULL, &bytes));
    const struct wire_answer *answer = input_node.reply;
    if (answer->head.type == WIRE_REPLY) {
        assert_int_equal(word(AT), before + 1);
        assert_int_equal(client->count.old_views, counted);
        return 0;
    }
    assert_int_equal(answer->head.type, WIRE_ANSWER);
    assert_int_equal(answer->status, FAR_FENCED);
    assert_int_equal(word(AT), before);
    assert_int_equal(client->count.old_views, counted + 1);
    assert_true(answer->head.view > view);
    return answer->head.view;
}

static void older_batches_are_refused(void **state)
{
    (void)state;
    assert_int_equal(refused(1), 0);
    fence_view(3);
    assert_int_equal(word(NODE_VIEW_OFF), 3);
    assert_int_equal(refused(1), 3);
    assert_int_equal(refused(2), 3);
    assert_int_equal(refused(3), 0);
    assert_int_equal(refused(4), 0);
    assert_int_equal(refused(UINT32_MAX), 0);
    assert_int_equal(refused(0), 0);
}

static void a_lower_view_changes_nothing(void **state)
{
    (void)state;
    fence_view(5);
    fence_view(4);
    fence_view(0);
    assert_int_equal(word(NODE_VIEW_OFF), 5);
    assert_int_equal(refused(4), 5);
    assert_int_equal(refused(5), 0);
}

static void *fence_in_a_thread(void *arg)
{
    ASSERT(ask(other, WIRE_FENCE_VIEW, 7, 0).status == FAR_OK);
    __atomic_store_n((bool *)arg, true, __ATOMIC_SEQ_CST);
    return NULL;
}

/* A connection that is busy with an older batch: it is not answered before that has ended. */
static void what_is_being_executed_is_waited_for(void **state)
{
    pthread_t thread;
    bool answered = false;

    (void)state;
    atomic_store(&client->busy, 1 + 6);
    assert_int_equal(pthread_create(&thread, NULL, fence_in_a_thread, &answered), 0);
    while (word(NODE_VIEW_OFF) != 7)
        usleep(1000);
    usleep(100000);
    assert_false(__atomic_load_n(&answered, __ATOMIC_SEQ_CST));
    atomic_store(&client->busy, 0);
    pthread_join(thread, NULL);
    assert_true(answered);
    atomic_store(&client->busy, 1 + 7); /* not older, and without a view */
    fence_view(7);
    atomic_store(&client->busy, 1);
    fence_view(7);
    atomic_store(&client->busy, 0);
}

static void one_sided_connections_of_older_views_are_shut(void **state)
{
    static const struct memd_listener_ops one_sided = {.scheme = "cards", .shut = shut};
    uint32_t now = (uint32_t)word(NODE_VIEW_OFF);

    (void)state;
    input_node.listener.ops = &one_sided;
    client->one_sided = other->one_sided = true;
    assert_int_equal(ask(client, WIRE_IDENTIFY, now, 1).status, FAR_OK);
    struct wire_answer answer = ask(client, WIRE_IDENTIFY, now - 1, 1);
    assert_int_equal(answer.status, FAR_FENCED);
    assert_int_equal(answer.head.view, now);
    assert_int_equal(client->view, now); /* it keeps the one that it had */
    assert_int_equal(ask(other, WIRE_IDENTIFY, now, 2).status, FAR_OK);
    fence_view(now);
    assert_int_equal(shut_calls, 0);
    fence_view(now + 1); /* of the other's own connection: that goes on, and is of no view */
    assert_int_equal(shut_calls, 1);
    assert_true(atomic_load(&client->shut));
    assert_false(atomic_load(&other->shut));
    assert_int_equal(other->view, 0);
    fence_view(now + 2);
    assert_int_equal(shut_calls, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(older_batches_are_refused),
        cmocka_unit_test(a_lower_view_changes_nothing),
        cmocka_unit_test(what_is_being_executed_is_waited_for),
        cmocka_unit_test(one_sided_connections_of_older_views_are_shut),
    };
    return cmocka_run_group_tests(tests, start, end);
}
