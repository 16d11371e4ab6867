/* Many connections to a memory node with several threads, some by clients that vanish at once. */
#include "base/rng.h"
#include "support/memd_child.h"
#include "fabric/rig.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#define CLIENTS     4u
#define CONNECTIONS (400u / CLIENTS)
#define VANISHING   (4000u / CLIENTS)
#define SPINS_MAX   100000u
#define TRIES_MAX   600u /* a tenth of a second each, and a hand-shake may take ten seconds */
#define AT          65536u

static struct memd_child node;

/* What a client sends first when it connects. */
static char greeting[4096];
static size_t greeting_bytes;

static bool one_connection(const char *uri)
{
    struct fab *fab = NULL;
    if (fab_open(uri, &fab) != FAR_OK)
        return false;
    struct rig *r = rig_on(fab);
    gaddr at = gaddr_make(0, AT);
    batch_read(&r->b, at, 0, r->buf, 8);
    bool works = batch_flush(&r->b) == FAR_OK;
    rig_free(r);
    fab_close(fab);
    return works;
}

/* Runs in processes of their own: in this one, UCX is not used. */
static pid_t start(void run(unsigned number), unsigned number)
{
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    run(number);
    _exit(0);
}

static void run_all(void run(unsigned number))
{
    pid_t pid[CLIENTS];
    for (unsigned i = 0; i < CLIENTS; i++)
        pid[i] = start(run, i);
    for (unsigned i = 0; i < CLIENTS; i++) {
        int status = 0;
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(waitpid(node.pid, NULL, WNOHANG), 0); /* it lives */
}

static void connect_often(unsigned number)
{
    (void)number;
    for (unsigned i = 0; i < CONNECTIONS;
         i++) /* on a busy machine, a node may stand still for seconds */
        if (!one_connection(memd_uri(&node, 1, "?timeout=600000"))) {
            fprintf(stderr, "connection %u: %s\n", i, far_error_detail());
            abort();
        }
}

static void connections_come_and_go(void **state)
{
    (void)state;
    run_all(connect_often);
}

static struct sockaddr_in loopback(unsigned port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

static void connect_to(unsigned port)
{
    char uri[64];
    snprintf(uri, sizeof uri, "ucx://127.0.0.1:%u", port);
    (void)one_connection(uri);
}

static void learn_greeting(void)
{
    struct sockaddr_in at = loopback(0);
    socklen_t bytes = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), status = 0;
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
    pid_t client = start(connect_to, ntohs(at.sin_port));
    int fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    ssize_t got = recv(fd, greeting, sizeof greeting, 0);
    assert_true(got > 0);
    greeting_bytes = (size_t)got;
    close(fd);
    close(listener);
    assert_int_equal(kill(client, SIGKILL), 0);
    assert_int_equal(waitpid(client, &status, 0), client);
}

static int connect_by_hand(void)
{
    struct sockaddr_in at = loopback(memd_port(&node));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT(fd >= 0);
    ASSERT(connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    return fd;
}

static void vanish_often(unsigned number)
{
    struct linger reset = {.l_onoff = 1};
    struct rng rng;
    rng_seed(&rng, number + 1);
    for (unsigned i = 0; i < VANISHING; i++) {
        int fd = connect_by_hand();
        ASSERT(send(fd, greeting, greeting_bytes, MSG_NOSIGNAL) == (ssize_t)greeting_bytes);
        for (uint64_t spins = rng_below(&rng, SPINS_MAX); spins > 0; spins--)
            __asm__ volatile("");
        if (rng_below(&rng, 2))
            ASSERT(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
        close(fd);
    }
}

/* While it gets rid of the others, the node may refuse clients. */
static void connect_in_the_end(unsigned number)
{
    (void)number;
    for (unsigned tries = 0; !one_connection(memd_uri(&node, 1, "")); tries++) {
        ASSERT(tries < TRIES_MAX);
        close(connect_by_hand()); /* fails if the node is gone */
        usleep(100000);
    }
}

static void clients_vanish_while_they_connect(void **state)
{
    (void)state;
    learn_greeting();
    run_all(vanish_often);
    run_all(connect_in_the_end);
}

int main(void)
{
    static const char *const more[] = {"--size", "8m", "--threads", "4", NULL};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_come_and_go),
        cmocka_unit_test(clients_vanish_while_they_connect),
    };
    memd_start(&node, 0, more);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return memd_end(&node, SIGTERM) == 0 ? failed : 1;
}
