/* accept(), connect() and recv() in a memory node: it survives a lack of descriptors, ends silent
 * connections, and receives little from peers that have not proved themselves. The test calls what
 * a thread of the node does each second. */
#define PEERS_MAX 128
#include "cli/incoming.c"
#include "cli/stranger.c"

#include <arpa/inet.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static int listener;
static struct sockaddr_in at;

static int start(void **state)
{
    socklen_t bytes = sizeof at;

    (void)state;
    at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    listener = socket(AF_INET, SOCK_STREAM, 0);
    door.guards = true;
    fill_reserve();
    return bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 16) != 0 ||
           getsockname(listener, (struct sockaddr *)&at, &bytes) != 0;
}

static int end(void **state)
{
    (void)state;
    while (door.reserves > 0)
        close(door.reserve[--door.reserves]);
    return close(listener);
}

static int peer(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static void ten_seconds_pass(void)
{
    for (unsigned i = 0; i <= SILENT_LOOKS; i++)
        end_silent();
}

static bool has_ended(int fd)
{
    char byte;

    return recv(fd, &byte, 1, 0) <= 0;
}

static bool goes_on(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static void a_silent_connection_is_ended(void **state)
{
    int there = peer(), here = accept(listener, NULL, NULL);

    (void)state;
    assert_true(here >= 0);
    for (unsigned i = 0; i < SILENT_LOOKS; i++) /* however late they are */
        end_silent();
    assert_true(goes_on(there)); /* it has time */
    end_silent();
    assert_true(has_ended(there));
    close(here);
    close(there);
}

/* What UCX's own peers send. */
static const uint64_t to_the_listener[2] = {0, 0};
static const uint8_t message[DATA_HEAD + OURS_HEAD] = {KIND_SINGLE, OURS_HEAD};
static const uint8_t put_request[DATA_HEAD + 20] = {33, 20};

#define NUMBER  3   /* of the node's endpoint */
#define ALL     48u /* bytes of a request or its answer */
#define TENTH   100 /* milliseconds */
#define MINUTES 600000

/* A request to the listener, or its answer: an endpoint is its last. */
static void put_endpoint(uint8_t out[ALL], uint16_t port)
{
    memset(out, 0, ALL);
    out[0] = ALL - SETUP_HEAD;
    out[ALL - ENDPOINT_BYTES] = 10;
    memcpy(out + ALL - ENDPOINT_BYTES + 1, &port, sizeof port);
    out[ALL - ENDPOINT_BYTES + 3] = NUMBER;
}

/* Sends it; returns what a recv() of UCX does. */
static ssize_t pass(int there, int here, const void *bytes, size_t count)
{
    char got[256];
    struct pollfd readable = {.fd = here, .events = POLLIN};

    assert_int_equal(send(there, bytes, count, 0), count);
    assert_int_equal(poll(&readable, 1, MINUTES), 1);
    return recv(here, got, sizeof got, MSG_DONTWAIT);
}

static struct sockaddr_in theirs; /* where the node could connect to */

/* A peer asks the listener. The node may connect to it, and then answers. */
static void ask(bool node_connects)
{
    int there = peer(), here = accept(listener, NULL, NULL);
    uint8_t out[ALL];

    theirs = (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(1), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    put_endpoint(out, theirs.sin_port);
    assert_int_equal(pass(there, here, out, sizeof out), sizeof out);
    if (node_connects) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        (void)connect(fd, (struct sockaddr *)&theirs, sizeof theirs);
        close(fd);
    }
    put_endpoint(out, at.sin_port);
    assert_int_equal(send(here, out, sizeof out, 0), sizeof out);
    assert_int_equal(recvfrom(there, out, sizeof out, 0, NULL, NULL), sizeof out);
    close(here);
    close(there);
}

/* Then it connects to the endpoint that the answer names. */
static ssize_t pass_connect(int there, int here)
{
    uint8_t out[MAGIC_BYTES + DATA_HEAD + CONNECT_HEAD + sizeof theirs] = {0};
    const uint64_t magic = MAGIC;

    memcpy(out, &magic, sizeof magic);
    memcpy(out + 8, (const uint8_t[]){KIND_CONNECT, CONNECT_HEAD + sizeof theirs}, 2);
    memcpy(out + 13, (const uint8_t[]){REQUEST, 0, 0, 0, TO_ENDPOINT, NUMBER}, 6);
    memcpy(out + sizeof out - sizeof theirs, &theirs, sizeof theirs);
    return pass(there, here, out, sizeof out);
}

/* A connection for data. */
static int met(int there)
{
    int here = accept(listener, NULL, NULL);

    assert_true(here >= 0);
    ask(false);
    assert_true(pass_connect(there, here) > 0);
    return here;
}

static void a_connection_that_has_asked_the_listener_goes_on(void **state)
{
    int there = peer(), here = accept(listener, NULL, NULL);

    (void)state;
    assert_int_equal(pass(there, here, to_the_listener, sizeof to_the_listener),
                     sizeof to_the_listener);
    ten_seconds_pass();
    assert_true(goes_on(there));
    close(here);
    close(there);
}

static void a_connection_that_sends_a_little_is_ended(void **state)
{
    char got[8];

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        int there = peer(), here = i == 0 ? accept(listener, NULL, NULL) : met(there);

        if (i == 1)
            assert_int_equal(pass(there, here, message, 1), 1);
        assert_int_equal(send(there, message + i, 1, 0), 1);
        ten_seconds_pass();
        assert_true(has_ended(there));
        assert_int_equal(recv(here, got, sizeof got, 0), 0); /* not even what it had sent before */
        close(here);
        close(there);
    }
}

static void each_message_has_ten_seconds(void **state)
{
    int there = peer(), here = met(there);

    (void)state;
    ten_seconds_pass();
    assert_int_equal(pass(there, here, message, 1), 1);
    end_silent();
    assert_true(goes_on(there));
    assert_int_equal(pass(there, here, message + 1, sizeof message - 1), sizeof message - 1);
    ten_seconds_pass();
    assert_true(goes_on(there)); /* it waits for nothing */
    assert_int_equal(pass(there, here, message, 1), 1);
    ten_seconds_pass();
    assert_true(has_ended(there));
    close(here);
    close(there);
}

static void a_stranger_is_ended_when_it_sends_what_it_must_not(void **state)
{
    int there = peer(), here = met(there);

    (void)state;
    assert_int_equal(pass(there, here, put_request, sizeof put_request), 0);
    assert_true(has_ended(there));
    close(here);
    close(there);
}

static void so_is_one_that_the_node_has_connected_to(void **state)
{
    int there = peer(), here = accept4(listener, NULL, NULL, 0);

    (void)state;
    assert_int_equal(pass(here, there, put_request, sizeof put_request), 0);
    assert_true(has_ended(here));
    close(here);
    close(there);
}

static void a_peer_that_has_proved_itself_sends_what_it_likes(void **state)
{
    int other = peer(), stranger = met(other);
    int there = peer(), here = met(there);

    (void)state;
    incoming_proved();
    assert_int_equal(pass(other, stranger, message, sizeof message), sizeof message);
    assert_int_equal(pass(there, here, put_request, sizeof put_request), sizeof put_request);
    incoming_proved(); /* of the same socket again, not of the last stranger's */
    assert_int_equal(pass(other, stranger, put_request, sizeof put_request), 0);
    ten_seconds_pass();
    assert_true(goes_on(there));
    close(here);
    close(there);
    close(other);
    close(stranger);
}

static void the_next_connection_of_that_number_is_a_strangers(void **state)
{
    int there = peer(), here = met(there);

    (void)state;
    incoming_proved();
    close(here);
    close(there);
    there = peer();
    door.next = here; /* it has come round again */
    assert_int_equal(accept(listener, NULL, NULL), here);
    assert_int_equal(pass(there, here, put_request, sizeof put_request), 0);
    close(here);
    close(there);
}

static void looking_at_what_is_there_takes_nothing(void **state)
{
    int there = peer(), here = accept(listener, NULL, NULL);
    char byte;

    (void)state;
    assert_int_equal(send(there, to_the_listener, sizeof to_the_listener, 0),
                     sizeof to_the_listener);
    assert_int_equal(recv(here, &byte, 1, MSG_PEEK), 1);
    assert_int_equal(door.peer[here].stranger.stage, STRANGER_NEW);
    assert_int_equal(recv(here, &byte, 1, 0), 1);
    assert_int_equal(door.peer[here].stranger.got, 1);
    close(here);
    close(there);
}

static void ucx_receives_nothing_before_the_first_message_is_there(void **state)
{
    int there = peer(), here = accept(listener, NULL, NULL);
    struct pollfd readable = {.fd = here, .events = POLLIN};
    uint8_t out[ALL], got[ALL];

    (void)state;
    put_endpoint(out, htons(1));
    for (size_t i = 0; i + 1 < ALL; i++) {
        assert_int_equal(send(there, out + i, 1, 0), 1);
        errno = 0;
        assert_int_equal(recv(here, got, sizeof got, MSG_DONTWAIT), -1); /* nothing woke it */
        assert_int_equal(errno, EAGAIN);
    }
    assert_int_equal(poll(&readable, 1, TENTH), 0);
    assert_int_equal(pass(there, here, out + ALL - 1, 1), ALL);
    assert_true(goes_on(there));
    close(here);
    close(there);
}

static void half_a_message_and_no_more_ends_a_connection(void **state)
{
    int there = peer(), here = accept(listener, NULL, NULL);
    struct pollfd readable = {.fd = here, .events = POLLIN};
    uint8_t out[ALL];

    (void)state;
    put_endpoint(out, htons(1));
    assert_int_equal(send(there, out, ALL / 2, 0), ALL / 2);
    assert_int_equal(shutdown(there, SHUT_WR), 0);
    assert_int_equal(poll(&readable, 1, MINUTES), 1);
    assert_int_equal(recv(here, out, sizeof out, 0), 0);
    close(here);
    close(there);
}

static void without_the_knock_ucx_sees_nothing(void **state)
{
    const uint64_t knock = 0x1122334455667788;
    _Atomic uint64_t refused = 0;
    uint8_t out[ALL], got[ALL];

    (void)state;
    incoming_door(knock, &refused);
    for (unsigned knows = 0; knows < 2; knows++) {
        int there = peer(), here = accept(listener, NULL, NULL);

        put_endpoint(out, htons(1));
        if (knows)
            memcpy(out + SETUP_HEAD + 3, &knock, sizeof knock);
        assert_int_equal(pass(there, here, out, sizeof out), knows ? ALL : 0);
        assert_int_equal(refused, 1);
        if (knows) {
            assert_true(goes_on(there));
        } else { /* it learns why */
            assert_int_equal(recvfrom(there, got, sizeof got, 0, NULL, NULL), SETUP_HEAD);
            assert_int_equal((int8_t)got[8], WIRE_NOT_LET_IN);
            assert_true(has_ended(there));
        }
        close(here);
        close(there);
    }
    incoming_door(0, NULL);
    door.by_tcp = false;
}

static void without_a_secret_ucx_sees_only_sound_requests(void **state)
{
    uint8_t out[ALL];

    (void)state;
    for (unsigned by_tcp = 0; by_tcp < 2; by_tcp++) {
        int there = peer(), here = accept(listener, NULL, NULL);

        door.by_tcp = by_tcp;
        put_endpoint(out, htons(1)); /* this one is not */
        assert_int_equal(pass(there, here, out, sizeof out), by_tcp ? 0 : ALL);
        close(here);
        close(there);
    }
    door.by_tcp = false;
}

static void only_who_has_an_answer_connects_and_once(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        int there = peer(), here = accept(listener, NULL, NULL);

        if (i == 1)
            ask(false);
        assert_int_equal(pass_connect(there, here) > 0, i == 1);
        close(here);
        close(there);
    }
}

static void it_has_ten_seconds_for_that(void **state)
{
    (void)state;
    ask(false);
    ten_seconds_pass();
    int there = peer(), here = accept(listener, NULL, NULL);
    assert_int_equal(pass_connect(there, here), 0);
    close(here);
    close(there);
    for (unsigned i = 0; i < PEERS_MAX; i++) /* the same numbers come again, and others between */
        ask(i % 3 == 0);
    there = peer();
    here = met(there);
    close(here);
    close(there);
    ten_seconds_pass();
    assert_null(first_waiting(&door.waiting));
    assert_int_equal(door.waiting, -1);
}

static void if_the_node_connects_its_peer_does_not(void **state)
{
    int there = peer(), here = accept(listener, NULL, NULL);

    (void)state;
    ask(true);
    assert_int_equal(pass_connect(there, here), 0);
    close(here);
    close(there);
}

static void another_socket_of_the_same_number_goes_on(void **state)
{
    int there = peer(), here = accept(listener, NULL, NULL), second = peer();
    int other = accept4(listener, NULL, NULL, 0); /* not watched */

    (void)state;
    assert_true(other >= 0);
    assert_int_equal(dup2(other, here), here);
    ten_seconds_pass();
    assert_true(goes_on(second));
    close(here);
    close(other);
    close(there);
    close(second);
}

static void set_descriptors(rlim_t count)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = count;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void without_descriptors_it_turns_connections_away(void **state)
{
    struct rlimit before;
    int there = peer(), second = peer();
    rlim_t used = (rlim_t)second + 1;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    set_descriptors(used); /* the lowest free number is beyond it */
    for (unsigned i = 0; i < 2; i++) {
        errno = 0;
        assert_int_equal(accept(listener, NULL, NULL), -1);
        assert_int_equal(errno, EAGAIN); /* else UCX would stop listening */
        assert_true(has_ended(i == 0 ? there : second));
    }
    assert_int_equal(door.reserves, RESERVES);
    set_descriptors(before.rlim_cur);
    close(there);
    close(second);
    there = peer();
    int here = accept(listener, NULL, NULL);
    assert_true(here >= 0);
    close(here);
    close(there);
}

/* What UCX has noted of a connection must not be taken for the next one's. */
static void a_number_does_not_come_again_soon(void **state)
{
    bool seen[PEERS_MAX];

    (void)state;
    for (unsigned turn = 0; turn < 2; turn++) {
        memset(seen, 0, sizeof seen);
        for (unsigned i = 0; i < PEERS_MAX / 2; i++) { /* of three quarters: others may have some */
            int there = peer(), here = accept(listener, NULL, NULL);
            assert_true(here >= PEERS_MAX / 4 && here < PEERS_MAX && !seen[here]);
            seen[here] = true;
            close(here);
            assert_true(has_ended(there)); /* its other number is closed, too */
            close(there);
        }
        door.next = 0;
    }
}

static void there_are_only_so_many_connections(void **state)
{
    int there = peer(), spare[PEERS_MAX];
    unsigned count = 0;

    (void)state;
    do
        spare[count] = dup(listener);
    while (spare[count++] < PEERS_MAX);
    assert_int_equal(accept(listener, NULL, NULL), -1);
    assert_int_equal(errno, EAGAIN);
    assert_true(has_ended(there));
    assert_int_equal(connect(spare[count - 1], (struct sockaddr *)&at, sizeof at), -1);
    assert_int_equal(errno, EMFILE);
    while (count > 0)
        close(spare[--count]);
    close(there);
    there = peer();
    int here = accept(listener, NULL, NULL);
    assert_true(here >= 0);
    close(here);
    close(there);
}

static void any_other_error_says_that_nothing_is_there(void **state)
{
    (void)state;
    errno = 0;
    assert_int_equal(accept(-1, NULL, NULL), -1);
    assert_int_equal(errno, EAGAIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_connection_is_ended),
        cmocka_unit_test(a_connection_that_has_asked_the_listener_goes_on),
        cmocka_unit_test(a_connection_that_sends_a_little_is_ended),
        cmocka_unit_test(each_message_has_ten_seconds),
        cmocka_unit_test(a_stranger_is_ended_when_it_sends_what_it_must_not),
        cmocka_unit_test(so_is_one_that_the_node_has_connected_to),
        cmocka_unit_test(a_peer_that_has_proved_itself_sends_what_it_likes),
        cmocka_unit_test(the_next_connection_of_that_number_is_a_strangers),
        cmocka_unit_test(looking_at_what_is_there_takes_nothing),
        cmocka_unit_test(ucx_receives_nothing_before_the_first_message_is_there),
        cmocka_unit_test(half_a_message_and_no_more_ends_a_connection),
        cmocka_unit_test(without_the_knock_ucx_sees_nothing),
        cmocka_unit_test(without_a_secret_ucx_sees_only_sound_requests),
        cmocka_unit_test(only_who_has_an_answer_connects_and_once),
        cmocka_unit_test(it_has_ten_seconds_for_that),
        cmocka_unit_test(if_the_node_connects_its_peer_does_not),
        cmocka_unit_test(another_socket_of_the_same_number_goes_on),
        cmocka_unit_test(without_descriptors_it_turns_connections_away),
        cmocka_unit_test(a_number_does_not_come_again_soon),
        cmocka_unit_test(there_are_only_so_many_connections),
        cmocka_unit_test(any_other_error_says_that_nothing_is_there),
    };
    return cmocka_run_group_tests(tests, start, end);
}
