/* What a peer may send to UCX before it has proved itself (STRANGER-1 to STRANGER-6). */
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
    first(sizeof(struct wire_hello), sizeof(struct wire_hello));
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

static void a_second_request_does_not(void **state)
{
    (void)state;
    put(1, 8);
    put(0, 8);
    out_bytes++;
    put(1, 8);
    put(0, 8);
    assert_false(may(false));
}

/* ---- the first message ----------------------------------------------------------------------- */

static void it_is_known_how_long_the_first_message_is(void **state)
{
    (void)state;
    put(MAGIC, 8);
    connect_request();
    for (size_t count = 0; count <= out_bytes; count++) {
        size_t bytes = stranger_first(out, count);
        assert_true(count < MAGIC_BYTES + DATA_HEAD ? bytes == MAGIC_BYTES + DATA_HEAD
                                                    : bytes == out_bytes);
    }
    assert_false(stranger_asks(out));
    out[MAGIC_BYTES] = KIND_SINGLE; /* it must connect first */
    assert_int_equal(stranger_first(out, out_bytes), 0);
    clean(NULL);
    put(47, 8);
    put(0, 8);
    assert_true(stranger_first(out, 15) > 15);
    assert_int_equal(stranger_first(out, 16), 16 + 47);
    assert_true(stranger_asks(out));
    clean(NULL);
    put(SETUP_MAX + 1, 8);
    put(0, 8);
    assert_int_equal(stranger_first(out, out_bytes), 0);
}

static void a_knock_is_found_anywhere(void **state)
{
    const uint64_t knock = 0x1122334455667788;
    (void)state;
    put(47, 8);
    put(0, 8);
    out_bytes += 13;
    put(knock, 8);
    assert_true(stranger_knocks(out, out_bytes, knock));
    assert_false(stranger_knocks(out, out_bytes - 1, knock)); /* not all of it */
    assert_false(stranger_knocks(out, out_bytes, knock + 1));
}

/* A request to the listener, or its answer, with this endpoint in it. */
static bool name(uint16_t port, uint64_t number, struct stranger_endpoint *endpoint)
{
    clean(NULL);
    put(32, 8);
    put(0, 8 + 20);
    put(10, 1);
    put(htons(port), 2);
    put(number, 8);
    put(0x81, 1);
    return stranger_endpoint(out, out_bytes, endpoint);
}

static void an_endpoint_is_read(void **state)
{
    struct stranger_endpoint e;
    (void)state;
    assert_true(name(4711, 0x1234567890abcdef, &e));
    assert_int_equal(e.port, htons(4711));
    assert_true(e.number == 0x1234567890abcdef);
    out[out_bytes - ENDPOINT_BYTES]++;
    assert_false(stranger_endpoint(out, out_bytes, &e));
    clean(NULL);
    put(0, 8);
    put(0, 8); /* a refusal */
    assert_false(stranger_endpoint(out, out_bytes, &e));
}

/* A request of UCX's TCP transport. */
static void put_request(bool with_knock)
{
    static const float costs[3] = {5e-5f, 1.2e7f, 1e-5f};
    clean(NULL);
    put(REQUEST_HEAD + (with_knock ? KNOCK_BYTES : 0) + DEVICE_BYTES, 8);
    put(0, 8);
    put(3, 8);
    put(PEERS_FAIL, 1);
    put(BY_DEVICE, 1);
    put(0, 1);
    put(with_knock ? WITH_KNOCK : 0, 1);
    put(0x1122334455667788, with_knock ? KNOCK_BYTES : 0);
    put(0x8021, 2);
    put(0x19cf, 2);
    memcpy(out + out_bytes, costs, sizeof costs);
    out_bytes += sizeof costs;
    put(0x00231301, 4);
    put(PORT_BYTES, 1);
    put(0x2193, 2);
    put(10, 1);
    put(0x2193, 2);
    put(5, 8);
    put(LAST_LANE, 1);
}

static void a_request_of_ucx_is_sound(void **state)
{
    (void)state;
    put_request(false);
    assert_int_equal(out_bytes, stranger_first(out, out_bytes));
    assert_true(stranger_is_sound(out, out_bytes));
    put_request(true);
    assert_int_equal(out_bytes, stranger_first(out, out_bytes));
    assert_true(stranger_is_sound(out, out_bytes));
    assert_false(stranger_is_sound(out, SETUP_HEAD)); /* nothing is in it */
}

/* With these, UCX ends the process, or takes one field for another. */
static void a_malformed_request_is_not(void **state)
{
    static const struct {
        unsigned at;
        uint8_t is;
    } wrong[] = {{0, 0},     {0, 4},     {8, 0},     {9, 1},  {10, 1},
                 {11, 2},    {11, 0x40}, {12, 0x41}, {13, 0}, {32, 0xc3},
                 {33, 0x94}, {35, 11},   {38, 4},    {46, 1}, {46, 0x82}};
    static const float costs[] = {-1, -0.5f, 1e20f, __builtin_inff(), __builtin_nanf("")};
    (void)state;
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put_request(false);
        out[SETUP_HEAD + wrong[i].at] = wrong[i].is;
        assert_false(stranger_is_sound(out, out_bytes));
    }
    for (unsigned i = 0; i < sizeof costs / sizeof *costs; i++) {
        for (unsigned at = 0; at < 3; at++) {
            put_request(false);
            memcpy(out + SETUP_HEAD + REQUEST_HEAD + 4 + at * sizeof *costs, &costs[i],
                   sizeof *costs);
            assert_false(stranger_is_sound(out, out_bytes));
        }
    }
    put_request(false);
    assert_false(stranger_is_sound(out, out_bytes - 1));
    assert_false(stranger_is_sound(out, out_bytes + 1));
}

/* A peer at this address connects to our endpoint; it has port 4000 and we have 5000. */
static bool connects_from(uint32_t address, uint16_t port, uint64_t number)
{
    struct stranger_endpoint theirs, ours;
    struct sockaddr_in named = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(address)}};
    struct sockaddr_in here = {
        .sin_family = AF_INET, .sin_port = htons(5000), .sin_addr = {htonl(0x7f000002)}};
    assert_true(name(4000, 7, &theirs) && name(5000, 9, &ours));
    clean(NULL);
    put(MAGIC, 8);
    yours = number;
    connect_request();
    memcpy(out + out_bytes - sizeof named, &named, sizeof named);
    return stranger_connects(out, &theirs, &ours, (struct sockaddr *)&here);
}

static void only_the_peer_that_has_asked_connects(void **state)
{
    (void)state;
    assert_true(connects_from(0x7f000002, 4000, 9));
    assert_true(connects_from(0x7f000001, 4000, 9));
    assert_false(connects_from(0x7f000002, 4001, 9));
    assert_false(connects_from(0x7f000002, 4000, 7));
}

static void the_one_with_the_higher_address_does_not_connect(void **state)
{
    (void)state;
    assert_false(connects_from(0x7f000003, 4000, 9));
    struct stranger_endpoint theirs, ours;
    struct sockaddr_in6 here = {.sin6_family = AF_INET6, .sin6_port = htons(5000)};
    struct sockaddr_in6 named = {.sin6_family = AF_INET6, .sin6_port = htons(4000)};
    for (unsigned i = 0; i < 3; i++) {
        here.sin6_addr.s6_addr[15] = 1;
        named.sin6_addr.s6_addr[15] = (uint8_t)i;
        assert_true(name(4000, 7, &theirs) && name(5000, 5, &ours));
        clean(NULL);
        put(MAGIC, 8);
        connect_of(REQUEST, TO_ENDPOINT, AF_INET6, sizeof named);
        memcpy(out + out_bytes - sizeof named, &named, sizeof named);
        assert_true(stranger_connects(out, &theirs, &ours, (struct sockaddr *)&here) == (i < 2));
    }
    clean(NULL);
    put(MAGIC, 8);
    connect_request(); /* of another family */
    memcpy(out + out_bytes - 14, &named.sin6_port, 2);
    assert_false(stranger_connects(out, &theirs, &ours, (struct sockaddr *)&here));
}

/* ---- what follows ---------------------------------------------------------------------------- */

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

/* Puts, which write at any address; addresses, which may be malformed, and messages that end any
 * connection; later pieces of messages; whatever later versions of UCX have. */
static void other_kinds_do_not_pass(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 256; kind++) {
        bool fine = kind == KIND_SINGLE || kind == KIND_FIRST || kind == KIND_SINGLE_REPLY ||
                    kind == KIND_CONNECT;

        clean(NULL);
        begin(kind, 40);
        assert_true(may(true) == fine); /* so far */
    }
}

/* UCX takes an even number for an address. */
static void even_endpoints_do_not_pass(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        for (unsigned even = 0; even < 2; even++) {
            clean(NULL);
            mine = yours = even ? 0x1000 : 3;
            if (i == 0) {
                first(SHORT, SHORT);
            } else if (i == 1) {
                single_reply(SHORT);
            } else {
                put(MAGIC, 8);
                connect_request();
            }
            assert_true(may(i != 2) == !even);
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
    single(KIND_SINGLE, SHORT, 0);
    assert_false(stranger_says(&s, out, out_bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_a_client_sends_passes, clean),
        cmocka_unit_test_setup(a_request_to_the_listener_passes, clean),
        cmocka_unit_test_setup(a_long_request_to_the_listener_does_not, clean),
        cmocka_unit_test_setup(a_second_request_does_not, clean),
        cmocka_unit_test_setup(it_is_known_how_long_the_first_message_is, clean),
        cmocka_unit_test_setup(a_knock_is_found_anywhere, clean),
        cmocka_unit_test_setup(an_endpoint_is_read, clean),
        cmocka_unit_test_setup(a_request_of_ucx_is_sound, clean),
        cmocka_unit_test_setup(a_malformed_request_is_not, clean),
        cmocka_unit_test_setup(only_the_peer_that_has_asked_connects, clean),
        cmocka_unit_test_setup(the_one_with_the_higher_address_does_not_connect, clean),
        cmocka_unit_test_setup(a_message_in_several_pieces_does_not_pass, clean),
        cmocka_unit_test_setup(a_message_longer_than_ours_does_not_pass, clean),
        cmocka_unit_test_setup(other_kinds_do_not_pass, clean),
        cmocka_unit_test_setup(even_endpoints_do_not_pass, clean),
        cmocka_unit_test_setup(it_connects_once_and_first, clean),
        cmocka_unit_test_setup(a_malformed_connect_does_not_pass, clean),
        cmocka_unit_test_setup(a_message_with_another_id_does_not_pass, clean),
        cmocka_unit_test_setup(it_may_send_so_much, clean),
        cmocka_unit_test_setup(nothing_passes_after_that, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
