/*
 * A memory node that gets arbitrary bytes: shared by memd_fuzz and memd_hostile.
 *
 * The input is a small program. It sends raw bytes as messages, messages with a valid head and
 * invalid contents, batches of arbitrary verbs, and valid hand-shakes, from two connections. Every
 * message and every reply is in a piece of memory of exactly its length, so that a sanitizer
 * notices any access outside of it.
 */
#ifndef TESTS_FUZZ_MEMD_INPUT_H
#define TESTS_FUZZ_MEMD_INPUT_H

#include "base/clock.h"
#include "memd/memd.h"

#include <stdlib.h>
#include <string.h>

#define INPUT_NODE_BYTES (1u << 20)
#define INPUT_CLIENTS    2

struct input {
    const uint8_t *at;
    size_t left;
};

static const struct memd_listener_ops input_transport = {.scheme = "none"};

static struct {
    struct memd memd;
    struct memd_listener listener;
    struct memd_client client[INPUT_CLIENTS];
    struct memd_keep keep;
    void *reply;
    size_t reply_bytes;
} input_node;

static inline uint64_t input_take(struct input *in, unsigned bytes)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < bytes && in->left > 0; i++, in->at++, in->left--)
        value = value << 8 | *in->at;
    return value;
}

static inline void input_connect(unsigned i)
{
    struct memd_client *c = &input_node.client[i];

    if (c->memd)
        memd_client_end(c);
    ASSERT(memd_client_init(&input_node.memd, &input_node.listener, i + 1, c) == FAR_OK);
}

static inline void input_start(void)
{
    struct memd *m = &input_node.memd;

    m->region = (struct memd_region){.base = aligned_alloc(64, INPUT_NODE_BYTES),
                                     .size = INPUT_NODE_BYTES,
                                     .keep = &input_node.keep,
                                     .fd = -1};
    ASSERT(m->region.base);
    memset(m->region.base, 0, INPUT_NODE_BYTES);
    memcpy(m->secret.key, "sesame", 6);
    m->secret.bytes = 6;
    ASSERT(memd_init(m) == FAR_OK);
    input_node.listener = (struct memd_listener){.ops = &input_transport, .memd = m};
}

/* ---- sending --------------------------------------------------------------------------------- */

static inline void *input_room(void *arg, size_t bytes)
{
    (void)arg;
    ASSERT(bytes >= sizeof(struct wire_answer) && bytes <= WIRE_MESSAGE_MAX);
    free(input_node.reply);
    input_node.reply = malloc(bytes);
    input_node.reply_bytes = bytes;
    return input_node.reply;
}

/* As a transport does it; the message is freed. */
static inline void input_send(struct memd_client *c, void *message, size_t bytes)
{
    char answer[WIRE_CONTROL_MAX];
    bool welcomed = c->state == MEMD_WELCOMED;
    uint64_t batches = c->count.batches;
    size_t answer_bytes = 0;

    if (c->state != MEMD_OVER && memd_is_batch(message, bytes)) {
        bool goes_on = memd_batch(c, message, bytes, input_room, NULL, &answer_bytes);

        ASSERT(goes_on && (answer_bytes == 0 || answer_bytes <= input_node.reply_bytes));
        ASSERT(welcomed || c->count.batches == batches); /* WIRE-W1 */
    } else if (c->state != MEMD_OVER) {
        bool goes_on = memd_message(c, message, bytes, answer, &answer_bytes);

        ASSERT(answer_bytes <= sizeof answer);
        ASSERT(answer_bytes == 0 || wire_check(answer, answer_bytes) == FAR_OK);
        if (!goes_on)
            input_connect((unsigned)(c - input_node.client));
    }
    free(message);
}

static inline void input_send_struct(struct memd_client *c, const void *message, size_t bytes)
{
    void *copy = malloc(bytes);

    ASSERT(copy);
    input_send(c, memcpy(copy, message, bytes), bytes);
}

static inline void input_greet(struct memd_client *c, bool prove)
{
    struct wire_hello hello = {.head = wire_head_of(WIRE_HELLO, 0, 0, 1), .link = 7};
    struct wire_proof proof = {.head = {0}};

    input_send_struct(c, &hello, sizeof hello);
    if (!prove || c->state != MEMD_CHALLENGED)
        return;
    proof.head = wire_head_of(WIRE_PROOF_IS, c->slot, c->token, 2);
    wire_prove(&input_node.memd.secret, WIRE_CLIENT, c->client_nonce, c->node_nonce, c->link,
               proof.proof);
    input_send_struct(c, &proof, sizeof proof);
}

static inline void input_fence(struct memd_client *c, struct input *in)
{
    struct wire_client fence = {.head = wire_head_of(WIRE_FENCE, c->slot, c->token, 5),
                                .identity = input_take(in, 1) % 4};

    input_send_struct(c, &fence, sizeof fence);
}

/* ---- what the input can do ------------------------------------------------------------------- */

static inline void input_raw(struct memd_client *c, struct input *in, bool good_head)
{
    size_t bytes = input_take(in, 1), head = sizeof(struct wire_head);
    char *message = calloc(1, bytes ? bytes : 1);

    ASSERT(message);
    for (size_t i = 0; i < bytes; i++)
        message[i] = (char)input_take(in, 1);
    if (good_head && bytes >= head) {
        struct wire_head h = wire_head_of((enum wire_type)(message[0] & 15), c->slot, c->token, 3);

        memcpy(message, &h, sizeof h);
    }
    input_send(c, message, bytes);
}

/* Numbers that are near to where things break. */
static inline uint64_t input_number(struct input *in, uint64_t limit)
{
    uint64_t kind = input_take(in, 1), n = input_take(in, 2);

    switch (kind % 64) {
    case 0:
        return limit - n * 8;
    case 1:
        return limit + n;
    case 2:
        return UINT64_MAX - n;
    case 3:
        return n;
    default:
        return 8 + n * 8 % (limit - 8);
    }
}

/* A batch as a client would build it, but for what the input changes. */
static inline void input_batch(struct memd_client *c, struct input *in)
{
    static char buf[WIRE_MESSAGE_MAX];
    struct wire_batch *batch = (struct wire_batch *)(void *)buf;
    unsigned parts = input_take(in, 1) % 4;
    size_t bytes = sizeof *batch;
    void *message;

    *batch = (struct wire_batch){.head = wire_head_of(WIRE_BATCH, c->slot, c->token, 4),
                                 .identity = input_take(in, 1) % 4,
                                 .sent = input_take(in, 1) == 0 ? 0 : clock_boot_ns(),
                                 .valid_us = UINT32_MAX,
                                 .parts = parts + (input_take(in, 1) == 0)};
    for (unsigned p = 0; p < parts; p++) {
        struct wire_part *part = (struct wire_part *)(void *)(buf + bytes);
        unsigned verbs = input_take(in, 1) % 8;

        bytes += sizeof *part;
        *part = (struct wire_part){.verbs = verbs + (input_take(in, 1) == 0)};
        for (unsigned i = 0; i < verbs; i++) {
            struct wire_verb *v = (struct wire_verb *)(void *)(buf + bytes);
            unsigned choice = (unsigned)input_take(in, 1);

            *v = (struct wire_verb){.kind = choice % 32 < 30 ? choice % 5 : (uint8_t)choice};
            v->len = v->kind > FAB_WRITE && choice < 224 ? 8 : (uint32_t)input_number(in, 1u << 8);
            v->off = input_number(in, INPUT_NODE_BYTES);
            bytes += v->kind <= FAB_FAA && v->len <= 1u << 12 ? wire_verb_bytes(v->kind, v->len)
                                                              : sizeof *v;
            bytes &= ~(size_t)7;
        }
    }
    if (input_take(in, 1) == 1)
        bytes -= input_take(in, 1) % (bytes + 1 - sizeof(struct wire_head));
    message = malloc(bytes);
    ASSERT(message);
    input_send(c, memcpy(message, buf, bytes), bytes);
}

static inline void input_run(const uint8_t *data, size_t bytes)
{
    struct input in = {data, bytes};

    if (!input_node.memd.region.base)
        input_start();
    memset(&input_node.keep, 0, offsetof(struct memd_keep, fenced));
    for (unsigned i = 0; i < INPUT_CLIENTS; i++)
        input_connect(i);
    while (in.left > 0) {
        unsigned what = (unsigned)input_take(&in, 1);
        struct memd_client *c = &input_node.client[what / 128];

        switch (what % 8) {
        case 0:
            input_raw(c, &in, false);
            break;
        case 1:
        case 2:
            input_raw(c, &in, true);
            break;
        case 3:
            if (what & 16)
                input_fence(c, &in);
            else
                input_greet(c, (what & 8) != 0);
            break;
        default:
            if (c->state == MEMD_NEW && (what & 8))
                input_greet(c, true);
            input_batch(c, &in);
        }
    }
}

#endif
