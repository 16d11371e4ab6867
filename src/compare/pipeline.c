#include "compare/pipeline.h"
#include "base/err.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

struct pipeline {
    const struct protocol *protocol;
    const struct rival_setup *setup;
    int fd;
    unsigned char *out, *in;
    size_t out_at, out_len;        /* bytes that were sent, and that there are */
    size_t in_at, in_len, in_room; /* bytes that were parsed, that there are, that fit */
};

int pipeline_open_socket(const struct protocol *protocol, const struct rival_setup *setup, int fd,
                         struct pipeline **pipeline)
{
    struct timeval patience = {.tv_sec = PIPELINE_PATIENCE_MS / 1000};
    size_t each = protocol->overhead + setup->key_max + setup->value_max;
    struct pipeline *p = calloc(1, sizeof *p);
    if (p)
        *p = (struct pipeline){.protocol = protocol,
                               .setup = setup,
                               .fd = fd,
                               .out = malloc(setup->depth * each),
                               .in = malloc(setup->depth * each),
                               .in_room = setup->depth * each};
    if (!p || !p->out || !p->in) {
        if (p)
            pipeline_close(p);
        else
            close(fd);
        return err_fail(FAR_NO_MEMORY, "no memory for %u requests of %zu bytes", setup->depth,
                        each);
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    *pipeline = p;
    return FAR_OK;
}

int pipeline_open(const struct protocol *protocol, const struct rival_setup *setup, unsigned port,
                  struct pipeline **pipeline)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0)
        return err_fail(FAR_SYSTEM, "cannot make a socket: %s", strerror(errno));
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
        int rc = err_fail(FAR_SYSTEM, "cannot connect to 127.0.0.1:%u: %s", port, strerror(errno));
        close(fd);
        return rc;
    }
    return pipeline_open_socket(protocol, setup, fd, pipeline);
}

void pipeline_close(struct pipeline *p)
{
    close(p->fd);
    free(p->out);
    free(p->in);
    free(p);
}

static int broken(void)
{
    return err_fail(FAR_SYSTEM, "the connection broke: %s", strerror(errno));
}

static int silent(void)
{
    return err_fail(FAR_SYSTEM, "the server did not answer for %d ms", PIPELINE_PATIENCE_MS);
}

static bool would_wait(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK;
}

/* Sends what is possible without waiting. */
static int send_some(struct pipeline *p)
{
    if (p->out_at == p->out_len)
        return FAR_OK;
    ssize_t n =
        send(p->fd, p->out + p->out_at, p->out_len - p->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && !would_wait() && errno != EINTR)
        return broken();
    p->out_at += n > 0 ? (size_t)n : 0;
    return FAR_OK;
}

/* Sends all, and waits until something came. The server may wait until its replies are read before
 * it reads more requests, so replies are also taken while requests cannot be sent. */
static int exchange(struct pipeline *p)
{
    for (;;) {
        int rc = send_some(p);
        if (rc != FAR_OK)
            return rc;
        bool all = p->out_at == p->out_len;
        ssize_t n = recv(p->fd, p->in + p->in_len, p->in_room - p->in_len, all ? 0 : MSG_DONTWAIT);
        if (n > 0) {
            p->in_len += (size_t)n;
            return FAR_OK;
        }
        if (n == 0)
            return err_fail(FAR_SYSTEM, "the server closed the connection");
        if (errno == EINTR)
            continue;
        if (!would_wait())
            return broken();
        struct pollfd wait = {.fd = p->fd, .events = POLLIN | POLLOUT};
        if (all || poll(&wait, 1, PIPELINE_PATIENCE_MS) == 0)
            return silent();
    }
}

/* Parses the replies that are complete, and moves the rest to the front. */
static int take_replies(struct pipeline *p, struct rival_op *ops, unsigned sent, unsigned *done)
{
    while (*done < sent) {
        size_t used = 0;
        int rc = p->protocol->parse(p->in + p->in_at, p->in_len - p->in_at, &ops[*done],
                                    p->setup->value_max, &used);
        if (rc != FAR_OK)
            return rc;
        if (used == 0)
            break;
        p->in_at += used;
        ++*done;
    }
    p->in_len -= p->in_at;
    memmove(p->in, p->in + p->in_at, p->in_len);
    p->in_at = 0;
    if (*done == sent && p->in_len > 0)
        return err_fail(FAR_CORRUPT, "the server sent more than it was asked for");
    return FAR_OK;
}

int pipeline_run(struct pipeline *p, struct rival_op *ops, unsigned count)
{
    unsigned sent = 0, done = 0;
    int rc = FAR_OK;
    while (done < count && rc == FAR_OK) {
        if (p->out_at == p->out_len)
            p->out_at = p->out_len = 0;
        /* The buffer has room for `depth` requests, so nothing is added behind what waits there. */
        for (; p->out_at == 0 && sent < count && sent - done < p->setup->depth; sent++)
            p->out_len += p->protocol->encode(&ops[sent], p->out + p->out_len);
        rc = exchange(p);
        if (rc == FAR_OK)
            rc = take_replies(p, ops, sent, &done);
    }
    return rc;
}
