/* Requests for a connection that no client sends do not end a memory node, whether it has a secret
 * or not: UCX, which would end it by an assertion, does not see them. Meanwhile clients are
 * served. */
#include "fabric/wire.h"
#include "support/memd_ports.h"
#include "fabric/rig.h"

#include <poll.h>

#define HEAD       16u         /* before the request: its length, and a status */
#define ANSWER_MS  50          /* at most; what is not answered by then is not waited for */
#define MEMORY_KIB (64u << 10) /* that a node may take meanwhile */
#define SECRET     "known to clients only"
#define AT         65536u

static struct memd_child node[2]; /* with a secret, and without */

/* What a client with the secret sends first when it connects. */
static uint8_t request[4096];
static size_t request_bytes;

/* In a process of its own: in this one, UCX is not used. */
static pid_t start_client(const char *uri, bool has_secret)
{
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct fab *fab = NULL;
    ASSERT((has_secret ? setenv("FARSIDE_SECRET", SECRET, 1) : unsetenv("FARSIDE_SECRET")) == 0);
    if (fab_open(uri, &fab) != FAR_OK)
        _exit(1);
    struct rig *r = rig_on(fab);
    batch_read(&r->b, gaddr_make(0, AT), 0, r->buf, 8);
    int rc = batch_flush(&r->b);
    rig_free(r);
    fab_close(fab);
    _exit(rc == FAR_OK ? 0 : 1);
}

static void assert_served(unsigned n)
{
    int status = 1;
    pid_t client = start_client(memd_uri(&node[n], 1, "?timeout=600000"), n == 0);
    assert_int_equal(waitpid(node[n].pid, NULL, WNOHANG), 0); /* it lives */
    assert_int_equal(waitpid(client, &status, 0), client);
    assert_int_equal(status, 0);
}

static void learn_request(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof at;
    char uri[64];
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0);
    ASSERT(getsockname(listener, (struct sockaddr *)&at, &bytes) == 0);
    snprintf(uri, sizeof uri, "ucx://127.0.0.1:%u", ntohs(at.sin_port));
    pid_t client = start_client(uri, true);
    int fd = accept(listener, NULL, NULL);
    ssize_t got = recv(fd, request, sizeof request, 0);
    ASSERT(got > (ssize_t)HEAD);
    request_bytes = (size_t)got;
    close(fd);
    close(listener);
    ASSERT(kill(client, SIGKILL) == 0 && waitpid(client, NULL, 0) == client);
}

static void send_request(unsigned n, const uint8_t *bytes)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)memd_port(&node[n])),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct pollfd peer = {.fd = memd_connect(&at), .events = POLLIN};
    ASSERT(send(peer.fd, bytes, request_bytes, MSG_NOSIGNAL) == (ssize_t)request_bytes);
    (void)poll(&peer, 1, ANSWER_MS);
    close(peer.fd);
}

static uint64_t knock_of_clients(void)
{
    struct wire_secret secret;
    ASSERT(setenv("FARSIDE_SECRET", SECRET, 1) == 0);
    ASSERT(wire_secret_load(NULL, &secret) == FAR_OK);
    return wire_knock(&secret);
}

static void attack(unsigned n)
{
    uint64_t knock = knock_of_clients();
    uint8_t *at = memmem(request, request_bytes, &knock, sizeof knock), bytes[sizeof request];
    unsigned long before = memd_kib(&node[n]);
    assert_non_null(at);
    for (size_t i = HEAD; i < request_bytes; i++) {
        const uint8_t other[] = {0, 0xff, request[i] ^ 2, request[i] ^ 0x20};
        for (unsigned v = 0; v < sizeof other; v++) {
            memcpy(bytes, request, request_bytes);
            if (n == 0) /* it is a stranger's */
                memset(bytes + (at - request), 0, sizeof knock);
            bytes[i] = other[v];
            send_request(n, bytes);
        }
        if (i % 16 == 0)
            assert_served(n);
    }
    assert_served(n);
    assert_true(memd_kib(&node[n]) < before + MEMORY_KIB);
}

static void a_node_with_a_secret_lives(void **state)
{
    (void)state;
    attack(0);
}

static void a_node_without_a_secret_lives(void **state)
{
    (void)state;
    attack(1);
}

int main(void)
{
    static const char *const more[] = {"--size", "8m", "--threads", "1", NULL};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_with_a_secret_lives),
        cmocka_unit_test(a_node_without_a_secret_lives),
    };
    ASSERT(setenv("FARSIDE_SECRET", SECRET, 1) == 0);
    memd_start(&node[0], 0, more);
    ASSERT(unsetenv("FARSIDE_SECRET") == 0);
    memd_start(&node[1], 0, more);
    learn_request();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bool ended = memd_end(&node[0], SIGTERM) == 0 && memd_end(&node[1], SIGTERM) == 0;
    return ended ? failed : 1;
}
