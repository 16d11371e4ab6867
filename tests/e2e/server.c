/*
 * An event loop that drives a ring: a server with one thread that waits, in one epoll_wait(), for
 * its clients' sockets and for Farside.
 *
 *   server POOL-URI [PORT]      at the loopback address; prints the port; ends with SIGTERM or
 *                               SIGINT
 *
 * A client sends lines, "put KEY VALUE", "get KEY" or "del KEY", and gets a line for each. The
 * requests of one client are handled one after another, those of different clients at the same
 * time. When a client disconnects, its request is cancelled, if it has not started.
 */
#include <farside.h>

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024
#define EVENTS         64

struct client {
    int fd;      /* -1: disconnected                                   */
    bool busy;   /* a request is in flight and uses `line` and `value` */
    bool asks;   /* the request is a get                               */
    size_t have; /* bytes of input                                     */
    char input[LINE_MAX_BYTES], line[LINE_MAX_BYTES], value[LINE_MAX_BYTES];
};

static far_session *session;
static far_table *table;
static int loop;

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, far_error_detail());
    exit(1);
}

static void watch(int how, int fd, uint32_t events, void *what)
{
    struct epoll_event event = {.events = events, .data.ptr = what};

    if (fd < 0 || epoll_ctl(loop, how, fd, &event) != 0) {
        perror("epoll");
        exit(1);
    }
}

/* ---- clients --------------------------------------------------------------------------------- */

/* The memory of a client stays until its request is done. */
static void drop(struct client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    if (c->busy) /* the result still comes: see take_results() */
        (void)far_cancel(session, (uintptr_t)c, NULL);
    else
        free(c);
}

static void reply(struct client *c, const char *text, size_t len)
{
    if (c->fd >= 0 && send(c->fd, text, len, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)len)
        (void)shutdown(c->fd, SHUT_RDWR); /* a client that does not read */
}

/* Nothing more is read from a client while it waits for an answer. */
static void set_busy(struct client *c, bool busy)
{
    if (c->busy != busy && c->fd >= 0)
        watch(EPOLL_CTL_MOD, c->fd, busy ? EPOLLRDHUP : EPOLLRDHUP | EPOLLIN, c);
    c->busy = busy;
}

/* Starts the request. FAR_INVALID: the line is not a request. */
static int start(struct client *c)
{
    char *rest = c->line, *verb = strsep(&rest, " "), *key = strsep(&rest, " ");
    struct far_op op = {.table = table,
                        .key = key,
                        .key_len = key ? strlen(key) : 0,
                        .value = rest,
                        .value_len = rest ? strlen(rest) : 0,
                        .buf = c->value,
                        .cap = sizeof c->value - 1,
                        .user_data = (uintptr_t)c};

    if (strcmp(verb, "get") == 0)
        op.kind = FAR_OP_GET;
    else if (strcmp(verb, "put") == 0 && rest)
        op.kind = FAR_OP_PUT;
    else if (strcmp(verb, "del") == 0)
        op.kind = FAR_OP_DELETE;
    else
        return FAR_INVALID;
    c->asks = op.kind == FAR_OP_GET;
    return far_submit(session, &op);
}

/* Handles the next line, if it is complete and the previous request is done. */
static void next_line(struct client *c)
{
    char *end;

    while (!c->busy && (end = memchr(c->input, '\n', c->have)) != NULL) {
        size_t len = (size_t)(end - c->input);
        char text[128];
        int rc;

        memcpy(c->line, c->input, len);
        c->line[len] = '\0';
        rc = start(c);
        c->have -= len + 1;
        memmove(c->input, end + 1, c->have);
        set_busy(c, rc == FAR_OK);
        if (rc != FAR_OK) /* FAR_RING_FULL if the backlog is full */
            reply(c, text, (size_t)snprintf(text, sizeof text, "%s\n", far_strerror(rc)));
    }
}

static void receive(struct client *c, uint32_t events)
{
    ssize_t n = 0;

    if ((events & EPOLLIN) && c->have < sizeof c->input)
        n = recv(c->fd, c->input + c->have, sizeof c->input - c->have, MSG_DONTWAIT);
    if (n <= 0) { /* disconnected, or the line is too long */
        drop(c);
        return;
    }
    c->have += (size_t)n;
    next_line(c);
}

static void greet(int listener)
{
    struct client *c = calloc(1, sizeof *c);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    if (!c || fd < 0) {
        free(c);
        return;
    }
    c->fd = fd;
    watch(EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLRDHUP, c);
}

/* ---- Farside --------------------------------------------------------------------------------- */

static void take_results(void)
{
    struct far_result results[32];
    int count = far_reap(session, results, 32, 0);

    for (int i = 0; i < count; i++) {
        struct client *c = (struct client *)(uintptr_t)results[i].user_data;
        const char *text = results[i].status == FAR_OK ? "ok" : far_strerror(results[i].status);
        size_t len = strlen(text);

        set_busy(c, false);
        if (c->fd < 0) {
            free(c);
            continue;
        }
        if (c->asks && results[i].status == FAR_OK) {
            text = c->value;
            len = results[i].len;
        }
        memmove(c->value, text, len);
        c->value[len] = '\n';
        reply(c, c->value, len + 1);
        next_line(c);
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

static int listen_at(const char *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, 64) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &bytes) != 0) {
        perror("listen");
        exit(1);
    }
    printf("%u\n", ntohs(at.sin_port));
    fflush(stdout);
    return fd;
}

static int signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

int main(int argc, char **argv)
{
    /* Each client can have one request in flight. The backlog holds those beyond the ring's
     * depth. */
    const struct far_session_options options = {.depth = 32, .backlog = 4096};
    static char for_listener, for_signal, for_ring; /* what an event is about, if not a client */
    far_pool *pool;
    int ring, listener;

    if (argc < 2) {
        fprintf(stderr, "usage: server POOL-URI [PORT]\n");
        return 2;
    }
    loop = epoll_create1(EPOLL_CLOEXEC);
    watch(EPOLL_CTL_ADD, signals(), EPOLLIN, &for_signal); /* before there are threads */
    if (far_pool_open(argv[1], &pool) != FAR_OK ||
        far_session_open(pool, &options, &session) != FAR_OK ||
        (far_table_create(session, "server", "race", NULL, &table) != FAR_OK &&
         far_table_open(session, "server", NULL, &table) != FAR_OK) ||
        far_session_fd(session, &ring) != FAR_OK)
        die(argv[1]);
    listener = listen_at(argc > 2 ? argv[2] : "0");
    watch(EPOLL_CTL_ADD, listener, EPOLLIN, &for_listener);
    watch(EPOLL_CTL_ADD, ring, EPOLLIN, &for_ring);
    for (bool stop = false; !stop;) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(loop, events, EVENTS, -1);

        for (int i = 0; i < n; i++) {
            void *what = events[i].data.ptr;

            if (what == &for_ring)
                take_results();
            else if (what == &for_listener)
                greet(listener);
            else if (what == &for_signal)
                stop = true;
            else
                receive(what, events[i].events);
        }
    }
    far_session_close(session); /* finishes what is in flight, and closes the descriptor */
    far_pool_close(pool);
    return 0;
}
