/* What a peer may send to UCX before it has proved itself (STRANGER-1, STRANGER-2). */
#include "cli/stranger.c"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define SHORT 80u

static struct stranger s;
static uint64_t mine, yours,
    id; /* the numbers of endpoints, and of what is done with our messages */
static uint8_t out[2 * BYTES_MAX];
static size_t out_bytes;

static void put(uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        out[out_bytes++] = i < sizeof value ? (uint8_t)(value >> (8 * i)) : 0;
}

static void begin(enum kind kind, uint64_t length)
{
    put(kind, 1);
    put(length, 4);
}

static void wireup(uint8_t type)
{
    begin(KIND_WIREUP, 120);
    put(type, 1);
    put(0, 3);
    put(mine, 8);
    put(yours, 8);
    out_bytes += 100;
}

/* A message of ours as UCX sends it while it connects: in pieces, of which there is one. */
static void first(size_t bytes, uint64_t total)
{
    begin(KIND_FIRST, OURS_HEAD + bytes + FIRST_FOOT);
    put(0x30000 + id, OURS_HEAD); /* with flags */
    out_bytes += bytes;
    put(0, 8);
    put(mine, 8);
    put(total, 8);
}

static void single(enum kind kind, size_t bytes, uint32_t second)
{
    begin(kind, OURS_HEAD + bytes);
    put((uint64_t)second << 32 | id, OURS_HEAD);
    out_bytes += bytes;
}

static void single_reply(size_t bytes)
{
    single(KIND_SINGLE_REPLY, bytes + REPLY_FOOT, 0);
    out_bytes -= REPLY_FOOT;
    put(mine, REPLY_FOOT);
}

static void connect_of(uint32_t what, uint8_t flags, uint16_t family, unsigned address)
{
    begin(KIND_CONNECT, CONNECT_HEAD + address);
    put(what, 4);
    put(flags, 1);
    put(yours, 8);
    put(family, 2);
    out_bytes += address - 2;
}

static void connect_request(void)
{
    connect_of(REQUEST, TO_ENDPOINT, AF_INET, sizeof(struct sockaddr_in));
}

/* Everything that was put, in one piece and then byte by byte. */
static bool may(bool called)
{
    bool at_once, in_bytes = true;

    s = (struct stranger){.stage = STRANGER_NEW};
    if (called)
        stranger_called(&s);
    at_once = stranger_says(&s, out, out_bytes);
    s = (struct stranger){.stage = STRANGER_NEW};
    if (called)
        stranger_called(&s);
    for (size_t i = 0; i < out_bytes; i++)
        in_bytes = stranger_says(&s, &out[i], 1);
    assert_true(at_once == in_bytes);
    return at_once;
}

static int clean(void **state)
{
    (void)state;
    memset(out, 0, sizeof out);
    out_bytes = 0;
    mine = 3;
    yours = 5;
    id = 0;
    return 0;
}

static void what_a_client_sends_passes(void **state)
{
    (void)state;
    put(MAGIC, 8);
    connect_request();
    wireup(WIREUP_REQUEST);
    first(sizeof(struct wire_hello), sizeof(struct wire_hello));
    wireup(WIREUP_ACK);
    single(KIND_SINGLE, sizeof(struct wire_proof), 0);
    assert_true(may(false));
    assert_true(stranger_is_idle(&s));
    clean(NULL);
    single_reply(WIRE_CONTROL_MAX);
    assert_true(may(true));
    clean(NULL);
    put(MAGIC, 8);
    connect_of(REQUEST, TO_ENDPOINT, AF_INET6, sizeof(struct sockaddr_in6));
    assert_true(may(false));
}

static void a_request_to_the_listener_passes(void **state)
{
    (void)state;
    put(47, 8);
    put(0, 8);
    assert_true(may(false));
    assert_false(stranger_is_idle(&s));
    out_bytes += 46;
    assert_true(may(false));
    assert_false(stranger_is_idle(&s)); /* a byte is missing */
    out_bytes += 1 + 16;                /* the last message of UCX's hand-shake has no body */
    assert_true(may(false));
    assert_true(stranger_is_idle(&s));
}

static void a_long_request_to_the_listener_does_not(void **state)
{
    (void)state;
    put(SETUP_MAX + 1, 8);
    put(0, 8);
    assert_false(may(false));
}

static void a_message_in_several_pieces_does_not_pass(void **state)
{
    (void)state;
    first(SHORT, 700u << 20);
    assert_false(may(true));
    clean(NULL);
    first(SHORT, SHORT + 1);
    assert_false(may(true));
    clean(NULL);
    first(SHORT, SHORT - 1);
    assert_false(may(true));
    clean(NULL);
    first(SHORT, SHORT);
    assert_true(may(true));
}

static void a_message_longer_than_ours_does_not_pass(void **state)
{
    (void)state;
    single(KIND_SINGLE, WIRE_CONTROL_MAX, 0);
    assert_true(may(true));
    clean(NULL);
    single(KIND_SINGLE, WIRE_CONTROL_MAX + 1, 0);
    assert_false(may(true));
    clean(NULL);
    single(KIND_SINGLE, SHORT, SHORT + 1); /* its second part would begin before the first */
    assert_false(may(true));
    clean(NULL);
    first(WIRE_CONTROL_MAX + 1, WIRE_CONTROL_MAX + 1);
    assert_false(may(true));
    clean(NULL);
    begin(KIND_SINGLE, UINT32_MAX);
    assert_false(may(true));
}

/* Puts, which write at any address; later pieces of messages; whatever later versions of UCX have. */
static void other_kinds_do_not_pass(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 256; kind++) {
        bool fine = kind == KIND_WIREUP || kind == KIND_SINGLE || kind == KIND_FIRST ||
                    kind == KIND_SINGLE_REPLY || kind == KIND_CONNECT;

        clean(NULL);
        begin(kind, 40);
        assert_true(may(true) == fine); /* so far */
    }
}

/* One of them ends a connection, whoever's it is. */
static void other_wireups_do_not_pass(void **state)
{
    (void)state;
    for (unsigned type = 0; type < 256; type++) {
        clean(NULL);
        wireup((uint8_t)type);
        assert_true(may(true) == (type == WIREUP_REQUEST || type == WIREUP_ACK));
    }
}

/* UCX takes an even number for an address. */
static void even_endpoints_do_not_pass(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        for (unsigned even = 0; even < 2; even++) {
            clean(NULL);
            mine = even ? 0x1000 : 3;
            if (i == 0)
                first(SHORT, SHORT);
            else if (i == 1)
                single_reply(SHORT);
            else if (i == 2)
                wireup(WIREUP_ACK);
            yours = even ? 0x1000 : 5;
            if (i == 3) {
                mine = 3;
                wireup(WIREUP_ACK);
            } else if (i == 4) {
                put(MAGIC, 8);
                connect_request();
            }
            assert_true(may(i != 4) == !even);
        }
    }
}

static void it_connects_once_and_first(void **state)
{
    (void)state;
    put(MAGIC, 8);
    single(KIND_SINGLE, SHORT, 0);
    assert_false(may(false));
    clean(NULL);
    put(MAGIC, 8);
    connect_request();
    assert_true(may(false));
    connect_request();
    assert_false(may(false));
    clean(NULL);
    connect_request();
    assert_false(may(true)); /* the node has connected */
}

static void a_malformed_connect_does_not_pass(void **state)
{
    static const struct {
        uint32_t what;
        uint8_t flags;
        uint16_t family;
        unsigned address;
    } wrong[] = {
        {2, TO_ENDPOINT, AF_INET, sizeof(struct sockaddr_in)},
        {REQUEST, 0, AF_INET, sizeof(struct sockaddr_in)},
        {REQUEST, TO_ENDPOINT, AF_UNIX, sizeof(struct sockaddr_in)},
        {REQUEST, TO_ENDPOINT, AF_INET6, sizeof(struct sockaddr_in)},
        {REQUEST, TO_ENDPOINT, AF_INET, sizeof(struct sockaddr_in6)},
        {REQUEST, TO_ENDPOINT, AF_INET, sizeof(struct sockaddr_in) + 1},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        clean(NULL);
        put(MAGIC, 8);
        connect_of(wrong[i].what, wrong[i].flags, wrong[i].family, wrong[i].address);
        assert_false(may(false));
    }
}

static void a_message_with_another_id_does_not_pass(void **state)
{
    (void)state;
    id = 1;
    single(KIND_SINGLE, SHORT, 0);
    assert_false(may(true));
    clean(NULL);
    id = 1;
    first(SHORT, SHORT);
    assert_false(may(true));
}

static void it_may_send_so_much(void **state)
{
    (void)state;
    for (unsigned i = 0; i < WIREUPS_MAX; i++)
        wireup(WIREUP_REQUEST);
    assert_true(may(true));
    wireup(WIREUP_REQUEST);
    assert_false(may(true));
    clean(NULL);
    while (out_bytes + DATA_HEAD + OURS_HEAD + SHORT <= BYTES_MAX)
        single(KIND_SINGLE, SHORT, 0);
    assert_true(may(true));
    single(KIND_SINGLE, SHORT, 0);
    assert_false(may(true));
    clean(NULL);
    put(0, 16);
    assert_true(may(false));
    out_bytes += BYTES_MAX;
    assert_false(may(false));
}

static void nothing_passes_after_that(void **state)
{
    (void)state;
    single(KIND_SINGLE, WIRE_CONTROL_MAX + 1, 0);
    assert_false(may(true));
    clean(NULL);
    wireup(WIREUP_REQUEST);
    assert_false(stranger_says(&s, out, out_bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_a_client_sends_passes, clean),
        cmocka_unit_test_setup(a_request_to_the_listener_passes, clean),
        cmocka_unit_test_setup(a_long_request_to_the_listener_does_not, clean),
        cmocka_unit_test_setup(a_message_in_several_pieces_does_not_pass, clean),
        cmocka_unit_test_setup(a_message_longer_than_ours_does_not_pass, clean),
        cmocka_unit_test_setup(other_kinds_do_not_pass, clean),
        cmocka_unit_test_setup(other_wireups_do_not_pass, clean),
        cmocka_unit_test_setup(even_endpoints_do_not_pass, clean),
        cmocka_unit_test_setup(it_connects_once_and_first, clean),
        cmocka_unit_test_setup(a_malformed_connect_does_not_pass, clean),
        cmocka_unit_test_setup(a_message_with_another_id_does_not_pass, clean),
        cmocka_unit_test_setup(it_may_send_so_much, clean),
        cmocka_unit_test_setup(nothing_passes_after_that, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
