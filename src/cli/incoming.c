/*
 * Connections that come in at a memory node.
 *
 * UCX accepts them by accept(), before any of our code knows of them. This program has its own
 * accept(), which the linker prefers to the C library's for all shared objects of the process:
 *
 *   - If accept() fails, UCX 1.13 closes the socket at which its transport listens. Then the node can
 *     never be reached again. So accept() only says that there is nothing to accept, whatever is
 *     wrong. If descriptors have run out, it gives up one that is held in reserve, accepts the
 *     connection and closes it: the peer learns at once that it has to come again. Other code may
 *     get the descriptor first; so there are some, and they are replaced when that is possible.
 *   - UCX notes the events that a busy worker has missed by the number of their descriptor, and gives
 *     them to the socket that has this number when the worker looks. If that is another one by then,
 *     UCX 1.13 ends the process by an assertion: its state does not go with the event. So a connection
 *     gets the next higher number than the one before it, and a number comes again only when all
 *     others have had their turn.
 *   - UCX waits without end for the first bytes of a connection. A thread shuts those down that have
 *     sent nothing in SILENT_NS. UCX then finds the end of the connection, and closes it.
 */
#include "cli/incoming.h"

#include "base/clock.h"
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define SILENT_NS    (10ull * 1000000000)
#define LOOK_NS      (1ull * 1000000000)
#define COMPLAIN_NS  (60ull * 1000000000)
#define GREETING     8u    /* UCX's shortest first message is longer                            */
#define WATCHED_MAX  4096u /* connections that have sent nothing yet; others are not watched    */
#define RESERVES     8u
#define REST_NS      1000000u /* if there is no reserve: UCX tries again at once */
#define RESERVE_FILE "/dev/null"
#define NUMBER_MAX   65536u /* UCX takes descriptors up to a million */

int incoming_accept(int listener, struct sockaddr *from, socklen_t *bytes) __asm__("accept")
    __attribute__((visibility("default")));

static struct {
    pthread_mutex_t lock;
    _Atomic bool guards;
    int reserve[RESERVES];
    unsigned reserves;
    uint64_t complain_at;
    int next; /* the least number for a connection */
    unsigned watched;
    struct silent {
        int fd;
        uint64_t cookie; /* the socket's own: descriptors are reused */
        uint64_t since;
    } watch[WATCHED_MAX];
} door = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* With the lock. */
static void fill_reserve(void)
{
    int fd;

    while (door.reserves < RESERVES && (fd = open(RESERVE_FILE, O_RDONLY | O_CLOEXEC)) >= 0)
        door.reserve[door.reserves++] = fd;
}

static bool cookie_of(int fd, uint64_t *cookie)
{
    socklen_t bytes = sizeof *cookie;

    return getsockopt(fd, SOL_SOCKET, SO_COOKIE, cookie, &bytes) == 0;
}

/* With the lock. */
static void watch(int fd)
{
    struct silent *s = &door.watch[door.watched];

    if (door.watched == WATCHED_MAX || !cookie_of(fd, &s->cookie))
        return;
    s->fd = fd;
    s->since = clock_ns();
    door.watched++;
}

/* With the lock: has it sent something, or been closed? Then it is no longer watched. */
static bool is_silent(const struct silent *s)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    uint64_t cookie;

    return cookie_of(s->fd, &cookie) && cookie == s->cookie &&
           getsockopt(s->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
           info.tcpi_bytes_received < GREETING;
}

static void end_silent(void)
{
    uint64_t now = clock_ns();
    unsigned left = 0;

    pthread_mutex_lock(&door.lock);
    for (unsigned i = 0; i < door.watched; i++) {
        const struct silent s = door.watch[i];

        if (!is_silent(&s))
            continue;
        if (now - s.since > SILENT_NS)
            (void)shutdown(s.fd, SHUT_RDWR);
        else
            door.watch[left++] = s;
    }
    door.watched = left;
    fill_reserve();
    pthread_mutex_unlock(&door.lock);
}

static void *look_after(void *arg)
{
    for (;;) {
        clock_sleep(LOOK_NS);
        end_silent();
    }
    return arg;
}

/* With the lock. */
static void complain(void)
{
    uint64_t now = clock_ns();

    if (now < door.complain_at)
        return;
    door.complain_at = now + COMPLAIN_NS;
    fputs("farside memd: turning connections away: no file descriptors are left (ulimit -n)\n",
          stderr);
}

/* With the lock: accepts a connection by means of the reserve, and closes it. */
static void turn_away(int listener)
{
    complain();
    if (door.reserves == 0) {
        clock_sleep(REST_NS);
        return;
    }
    close(door.reserve[--door.reserves]);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    fill_reserve();
}

/* With the lock: the same connection under another number, the next one. The lower quarter is left to
 * other files, so that numbers of these do not become a connection's. */
static int renumber(int fd)
{
    struct rlimit limit = {.rlim_cur = 0};

    (void)getrlimit(RLIMIT_NOFILE, &limit);
    int end = (int)(limit.rlim_cur < NUMBER_MAX ? limit.rlim_cur : NUMBER_MAX), moved = -1;
    for (unsigned i = 0; i < 2 && moved < 0; i++) {
        if (door.next < end / 4 || door.next >= end || i > 0)
            door.next = end / 4;
        moved = fcntl(fd, F_DUPFD, door.next);
    }
    if (moved < 0) /* hardly any is left */
        return fd;
    door.next = moved + 1;
    close(fd);
    return moved;
}

int incoming_accept(int listener, struct sockaddr *from, socklen_t *bytes)
{
    if (!door.guards)
        return accept4(listener, from, bytes, 0);
    pthread_mutex_lock(&door.lock); /* or one thread could take the reserve of another */
    int fd = accept4(listener, from, bytes, 0), error = errno; /* UCX's listeners do not block */
    if (fd >= 0) {
        fd = renumber(fd);
        watch(fd);
    } else {
        if (error == EMFILE || error == ENFILE)
            turn_away(listener);
        error = EAGAIN;
    }
    pthread_mutex_unlock(&door.lock);
    if (fd < 0)
        errno = error;
    return fd;
}

int incoming_guard(void)
{
    pthread_attr_t detached;
    pthread_t thread;

    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int error = pthread_create(&thread, &detached, look_after, NULL);
    pthread_attr_destroy(&detached);
    if (error != 0)
        return err_fail(FAR_SYSTEM, "cannot start a thread");
    pthread_mutex_lock(&door.lock);
    fill_reserve();
    door.guards = true;
    pthread_mutex_unlock(&door.lock);
    return FAR_OK;
}
