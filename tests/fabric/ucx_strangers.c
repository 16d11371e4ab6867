/* A peer that does not know the secret makes a memory node neither allocate memory nor write it;
 * meanwhile clients are served. */
#include "fabric/ucx/ucx_common.h"
#include "fabric/wire.h"
#include "support/memd_ports.h"
#include "fabric/rig.h"

#include <poll.h>

#define LONG        (256u << 20) /* bytes of a message */
#define MEMORY_KIB  (64u << 10)  /* that the node may take meanwhile */
#define WAIT_MS     60000        /* at most */
#define AT          65536u
#define STRANGERS   4u
#define MAGIC       0xcafebabe12345678ull /* with which a connection for UCX's messages begins */
#define MESSAGE_MAX 512u

enum kind { FIRST = 24, CONNECT = 32, PUT = 33 }; /* of UCX's messages */

static struct memd_child node;
static struct fab *fab;
static struct rig *client;

static void assert_served(void)
{
    batch_read(&client->b, gaddr_make(0, AT), 0, client->buf, 8);
    assert_int_equal(batch_flush(&client->b), FAR_OK);
}

/* ---- by UCX ---------------------------------------------------------------------------------- */

static bool ended;

static void on_end(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg;
    (void)ep;
    (void)status;
    ended = true;
}

static void on_sent(void *request, ucs_status_t status, void *arg)
{
    (void)status;
    (void)arg;
    ucp_request_free(request);
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_bytes, void *data,
                               size_t bytes, const ucp_am_recv_param_t *param)
{
    (void)arg;
    (void)header;
    (void)header_bytes;
    (void)data;
    (void)bytes;
    (void)param;
    return UCS_OK;
}

/* Sends a message until the node has had enough. It gets through the door, but does not prove
 * itself. */
static void send_long(void)
{
    struct wire_secret secret;
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)memd_port(&node)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER | UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_end},
        .sockaddr = {.addr = (const struct sockaddr *)&at, .addrlen = sizeof at}};
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    char *message = calloc(1, LONG);
    int fd;

    ASSERT(message && ucx_context_open("stranger", AF_INET, &context) == FAR_OK);
    ASSERT(wire_secret_load(NULL, &secret) == FAR_OK);
    ASSERT(ucx_worker_open(context, on_message, NULL, wire_knock(&secret), &worker, &fd) == FAR_OK);
    ASSERT(ucp_ep_create(worker, &params, &ep) == UCS_OK);
    (void)ucx_send(ep, message, LONG, 0, on_sent, NULL);
    while (!ended)
        ucp_worker_progress(worker);
}

/* They are started before this process uses UCX, and wait until a byte comes. */
static struct {
    pid_t pid;
    int go;
} stranger[STRANGERS];

static void start_strangers(void)
{
    for (unsigned i = 0; i < STRANGERS; i++) {
        int fds[2];
        char byte;
        ASSERT(pipe2(fds, O_CLOEXEC) == 0);
        stranger[i].pid = fork();
        ASSERT(stranger[i].pid >= 0);
        if (stranger[i].pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            ASSERT(read(fds[0], &byte, 1) == 1);
            send_long();
            _exit(0);
        }
        stranger[i].go = fds[1];
        close(fds[0]);
    }
}

static void a_long_message_takes_no_memory(void **state)
{
    unsigned long before = memd_kib(&node);
    (void)state;
    for (unsigned i = 0; i < STRANGERS; i++) {
        int status = 0;
        ASSERT(write(stranger[i].go, "", 1) == 1);
        while (waitpid(stranger[i].pid, &status, WNOHANG) == 0)
            assert_served();
        assert_int_equal(status, 0);
    }
    assert_true(memd_kib(&node) < before + MEMORY_KIB);
    assert_served();
}

/* ---- by hand --------------------------------------------------------------------------------- */

static char out[MESSAGE_MAX];
static size_t out_bytes;

static void put(const void *bytes, size_t count)
{
    ASSERT(out_bytes + count <= sizeof out);
    memcpy(out + out_bytes, bytes, count);
    out_bytes += count;
}

static void put_head(uint8_t kind, uint32_t bytes)
{
    put(&kind, sizeof kind);
    put(&bytes, sizeof bytes);
}

/* What a client sends first: its endpoint's number, and where it can be reached. */
static void put_connect(void)
{
    static const char request[29] = {1, 0, 0, 0, 1, 1, [13] = AF_INET, [17] = 127, [20] = 1};
    const uint64_t magic = MAGIC;
    out_bytes = 0;
    put(&magic, sizeof magic);
    put_head(CONNECT, sizeof request);
    put(request, sizeof request);
}

/* The node ends the connection, whichever of UCX's sockets it was made to. */
static void assert_ended(void)
{
    struct sockaddr_in at[PORTS_MAX];
    unsigned ports = memd_ports(&node, at), data_ports = 0;
    for (unsigned i = 0; i < ports; i++) {
        if (ntohs(at[i].sin_port) == memd_port(&node))
            continue; /* there, something else comes first */
        struct pollfd peer = {.fd = memd_connect(&at[i]), .events = POLLIN};
        ASSERT(send(peer.fd, out, out_bytes, MSG_NOSIGNAL) == (ssize_t)out_bytes);
        assert_int_equal(poll(&peer, 1, WAIT_MS / 10), 1); /* sooner than a silent one */
        close(peer.fd);
        data_ports++;
    }
    assert_true(data_ports > 0);
    assert_int_equal(waitpid(node.pid, NULL, WNOHANG), 0); /* it lives */
    assert_served();
}

static void the_first_piece_of_a_long_message_ends_a_connection(void **state)
{
    const uint64_t words[5] = {0, 0, 0, 0, LONG}; /* flags, some data, two numbers, all bytes */
    (void)state;
    put_connect();
    put_head(FIRST, sizeof words);
    put(words, sizeof words);
    assert_ended();
}

static void a_put_ends_a_connection(void **state)
{
    const uint64_t where[2] = {(uint64_t)(uintptr_t)&node, sizeof node};
    const uint32_t number = 0;
    (void)state;
    put_connect();
    put_head(PUT, sizeof where + sizeof number);
    put(where, sizeof where);
    put(&number, sizeof number);
    assert_ended();
}

int main(void)
{
    static const char *const more[] = {"--size", "8m", "--threads", "1", NULL};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_message_takes_no_memory),
        cmocka_unit_test(the_first_piece_of_a_long_message_ends_a_connection),
        cmocka_unit_test(a_put_ends_a_connection),
    };
    ASSERT(setenv("FARSIDE_SECRET", "known to clients only", 1) == 0);
    memd_start(&node, 0, more);
    start_strangers();
    ASSERT(fab_open(memd_uri(&node, 1, ""), &fab) == FAR_OK);
    client = rig_on(fab);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rig_free(client);
    fab_close(fab);
    return memd_end(&node, SIGTERM) == 0 ? failed : 1;
}
