/* accept(), connect() and recv() in a memory node: it survives a lack of descriptors, ends silent
 * connections, and receives little from peers that have not proved themselves. The test calls what a
 * thread of the node does each second, and says what time it is. */
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
    for (int fd = 0; fd < door.peers; fd++)
        door.peer[fd].since -= SILENT_NS + 1;
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
    end_silent();
    assert_true(goes_on(there)); /* it has time */
    ten_seconds_pass();
    assert_true(has_ended(there));
    close(here);
    close(there);
}

/* What UCX's own peers send first. */
static const uint64_t to_the_listener[2] = {0, 0}, magic = MAGIC;
static const uint8_t message[DATA_HEAD + OURS_HEAD] = {KIND_SINGLE, OURS_HEAD};
static const uint8_t
    put_request[DATA_HEAD +
                20] = {33, 20},
                connect_request[DATA_HEAD + 29] = {
                    KIND_CONNECT, 29, 0, 0, 0, REQUEST, 0, 0, 0, TO_ENDPOINT, 3, [18] = AF_INET};

/* Sends it; returns what a recv() of UCX does. */
static ssize_t pass(int there, int here, const void *bytes, size_t count)
{
    char got[256];
    struct pollfd readable = {.fd = here, .events = POLLIN};

    assert_int_equal(send(there, bytes, count, 0), count);
    assert_int_equal(poll(&readable, 1, -1), 1);
    return recv(here, got, sizeof got, 0);
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
    int there = peer(), here = accept(listener, NULL, NULL);
    char got[8];

    (void)state;
    assert_int_equal(pass(there, here, &magic, sizeof magic), sizeof magic);
    assert_int_equal(send(there, "", 1, 0), 1);
    ten_seconds_pass();
    assert_true(has_ended(there));
    assert_int_equal(recv(here, got, sizeof got, 0), 0); /* not even what it had sent before */
    close(here);
    close(there);
}

static void each_message_has_ten_seconds(void **state)
{
    int there = peer(), here = accept(listener, NULL, NULL);

    (void)state;
    assert_int_equal(pass(there, here, &magic, sizeof magic), sizeof magic);
    assert_int_equal(pass(there, here, connect_request, sizeof connect_request),
                     sizeof connect_request);
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
    int there = peer(), here = accept(listener, NULL, NULL);

    (void)state;
    assert_int_equal(pass(there, here, &magic, sizeof magic), sizeof magic);
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
    int there = peer(), here = accept(listener, NULL, NULL);
    int other = peer(), stranger = accept(listener, NULL, NULL);

    (void)state;
    assert_int_equal(pass(there, here, &magic, sizeof magic), sizeof magic);
    incoming_proved();
    assert_int_equal(pass(other, stranger, &magic, sizeof magic), sizeof magic);
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
    int there = peer(), here = accept(listener, NULL, NULL);

    (void)state;
    assert_int_equal(pass(there, here, &magic, sizeof magic), sizeof magic);
    incoming_proved();
    close(here);
    close(there);
    there = peer();
    door.next = here; /* it has come round again */
    assert_int_equal(accept(listener, NULL, NULL), here);
    assert_int_equal(pass(there, here, &magic, sizeof magic), sizeof magic);
    assert_int_equal(pass(there, here, put_request, sizeof put_request), 0);
    close(here);
    close(there);
}

static void looking_at_what_is_there_takes_nothing(void **state)
{
    int there = peer(), here = accept(listener, NULL, NULL);
    char byte;

    (void)state;
    assert_int_equal(send(there, &magic, sizeof magic, 0), sizeof magic);
    assert_int_equal(recv(here, &byte, 1, MSG_PEEK), 1);
    assert_int_equal(door.peer[here].stranger.got, 0);
    assert_int_equal(pass(there, here, "", 1), sizeof magic + 1);
    assert_int_equal(door.peer[here].stranger.stage, STRANGER_DATA);
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
        cmocka_unit_test(another_socket_of_the_same_number_goes_on),
        cmocka_unit_test(without_descriptors_it_turns_connections_away),
        cmocka_unit_test(a_number_does_not_come_again_soon),
        cmocka_unit_test(there_are_only_so_many_connections),
        cmocka_unit_test(any_other_error_says_that_nothing_is_there),
    };
    return cmocka_run_group_tests(tests, start, end);
}
