/* A connection with several requests in flight. The other end is a thread that answers as a server
 * would, in pieces of any size, or misbehaves. */
#include "base/err.h"
#include "compare/pipeline.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OPS   100u
#define DEPTH 8u

#define SET "*3\r\n$3\r\nSET\r\n$4\r\nk%03u\r\n$4\r\nv%03u\r\n"
#define GET "*2\r\n$3\r\nGET\r\n$4\r\nk%03u\r\n"

/* A server for OPS requests: first puts, then gets of the same keys. */
struct peer {
    int fd;
    size_t piece;     /* bytes that it sends at a time */
    unsigned answers; /* after as many it closes the connection */
    bool in_order;    /* the requests were the expected ones */
    bool too_many;    /* more than DEPTH requests were in flight */
    pthread_t thread;
};

static struct rival_setup setup_of(unsigned depth)
{
    return (struct rival_setup){.key_max = 4, .value_max = 4, .depth = depth, .fail = err_fail};
}

/* Reads request n. False at the end. */
static bool read_request(struct peer *p, unsigned n)
{
    char expected[64], got[64] = "";
    int len = snprintf(expected, sizeof expected, n % 2 ? GET : SET, n / 2, n / 2);
    for (int have = 0; have < len;) {
        ssize_t more = recv(p->fd, got + have, (size_t)(len - have), 0);
        if (more <= 0)
            return false;
        have += (int)more;
    }
    p->in_order &= strcmp(expected, got) == 0;
    return true;
}

/* Have more requests come than may be in flight beside the one that is answered? DEPTH - 1 are at
 * most four puts of 33 bytes and three gets of 23. */
static bool has_too_many(const struct peer *p)
{
    char all[4096];
    return recv(p->fd, all, sizeof all, MSG_PEEK | MSG_DONTWAIT) > 4 * 33 + 3 * 23;
}

static void *peer_main(void *arg)
{
    struct peer *p = arg;
    p->in_order = true;
    for (unsigned n = 0; n < p->answers && read_request(p, n); n++) {
        char reply[32];
        p->too_many |= has_too_many(p);
        int len = n % 2 ? snprintf(reply, sizeof reply, "$4\r\nv%03u\r\n", n / 2)
                        : snprintf(reply, sizeof reply, "+OK\r\n");
        for (size_t at = 0; at < (size_t)len; at += p->piece) {
            size_t left = (size_t)len - at;
            (void)send(p->fd, reply + at, left < p->piece ? left : p->piece, MSG_NOSIGNAL);
        }
    }
    shutdown(p->fd, SHUT_RDWR);
    return NULL;
}

/* The operations, and room for their keys and values. */
static struct rival_op ops[OPS];
static char keys[OPS][8], values[OPS][8];

static void make_ops(void)
{
    for (unsigned n = 0; n < OPS; n++) {
        snprintf(keys[n], sizeof keys[n], "k%03u", n / 2);
        snprintf(values[n], sizeof values[n], "v%03u", n / 2);
        ops[n] = (struct rival_op){.key = keys[n], .key_len = 4, .put = n % 2 == 0};
        if (ops[n].put) {
            ops[n].value = values[n];
            ops[n].value_len = 4;
        } else {
            memset(values[n], 0, sizeof values[n]);
            ops[n].buf = values[n];
        }
    }
}

static struct pipeline *connect_to(struct peer *p, const struct rival_setup *setup)
{
    struct pipeline *pipeline = NULL;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    p->fd = fds[1];
    assert_int_equal(pthread_create(&p->thread, NULL, peer_main, p), 0);
    assert_int_equal(pipeline_open_socket(&protocol_resp, setup, fds[0], &pipeline), FAR_OK);
    return pipeline;
}

static void disconnect(struct peer *p, struct pipeline *pipeline)
{
    pipeline_close(pipeline);
    pthread_join(p->thread, NULL);
    close(p->fd);
}

static void run_with(unsigned depth, size_t piece)
{
    struct rival_setup setup = setup_of(depth);
    struct peer p = {.piece = piece, .answers = OPS};
    struct pipeline *pipeline = connect_to(&p, &setup);
    make_ops();
    assert_int_equal(pipeline_run(pipeline, ops, OPS), FAR_OK);
    disconnect(&p, pipeline);
    assert_true(p.in_order);
    assert_false(p.too_many);
    for (unsigned n = 1; n < OPS; n += 2) {
        char expected[8];
        snprintf(expected, sizeof expected, "v%03u", n / 2);
        assert_true(ops[n].found);
        assert_int_equal(ops[n].got_len, 4);
        assert_memory_equal(values[n], expected, 4);
    }
}

static void every_reply_goes_to_its_operation(void **state)
{
    (void)state;
    run_with(1, 32);
    run_with(DEPTH, 32);
    run_with(DEPTH, 3);
    run_with(DEPTH, 1);
}

static void a_server_that_leaves_is_an_error(void **state)
{
    struct rival_setup setup = setup_of(DEPTH);
    struct peer p = {.piece = 32, .answers = 20};
    struct pipeline *pipeline = connect_to(&p, &setup);
    (void)state;
    make_ops();
    assert_int_equal(err_end(pipeline_run(pipeline, ops, OPS)), FAR_SYSTEM);
    disconnect(&p, pipeline);
}

/* The far end gets no requests, only an answer. */
static int answer_of(const char *reply)
{
    struct rival_setup setup = setup_of(2);
    struct pipeline *pipeline = NULL;
    int fds[2];
    make_ops();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(pipeline_open_socket(&protocol_resp, &setup, fds[0], &pipeline), FAR_OK);
    assert_int_equal(send(fds[1], reply, strlen(reply), 0), strlen(reply));
    int rc = err_end(pipeline_run(pipeline, ops, 1));
    pipeline_close(pipeline);
    close(fds[1]);
    return rc;
}

static void what_no_one_asked_for_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(answer_of("+OK\r\n"), FAR_OK);
    assert_int_equal(answer_of("+OK\r\n+OK\r\n"), FAR_CORRUPT);
    assert_int_equal(answer_of("-ERR no\r\n"), FAR_SYSTEM);
    assert_string_equal(far_error_detail(), "Redis reports: ERR no");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reply_goes_to_its_operation),
        cmocka_unit_test(a_server_that_leaves_is_an_error),
        cmocka_unit_test(what_no_one_asked_for_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
