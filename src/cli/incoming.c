/*
 * Connections that come in at a memory node.
 *
 * UCX accepts them by accept(), before any of our code knows of them. This program has its own
 * accept(), connect() and recv(), which the linker prefers to the C library's for all shared objects of
 * the process:
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
 *   - UCX waits without end for the first bytes of a connection, and for the rest of a message. A
 *     thread shuts down what has waited for SILENT_NS. UCX then finds the end of the connection, and
 *     closes it.
 *   - UCX trusts its peers. A peer is a stranger until it has proved itself, and of what a stranger
 *     sends, recv() lets only that through which stranger.c allows. UCX hands a message over in the
 *     thread that has received its last byte, so the proof came by the socket of that thread's last
 *     recv(). While a connection is made, the node may connect to its client: hence connect().
 */
#include "cli/incoming.h"

#include "base/clock.h"
#include "base/err.h"
#include "cli/stranger.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SILENT_NS   (10ull * 1000000000)
#define LOOK_NS     (1ull * 1000000000)
#define COMPLAIN_NS (60ull * 1000000000)
#ifndef PEERS_MAX
#define PEERS_MAX 32768 /* descriptors of connections are lower: 4096 clients have three each */
#endif
#define RESERVES     8u
#define REST_NS      1000000u /* if there is no reserve: UCX tries again at once */
#define RESERVE_FILE "/dev/null"

int incoming_accept(int listener, struct sockaddr *from, socklen_t *bytes) __asm__("accept")
    __attribute__((visibility("default")));
int incoming_connect(int fd, const struct sockaddr *to, socklen_t bytes) __asm__("connect")
    __attribute__((visibility("default")));
ssize_t incoming_recv(int fd, void *into, size_t room, int flags) __asm__("recv")
    __attribute__((visibility("default")));

static struct {
    pthread_mutex_t lock;
    _Atomic bool guards;
    int reserve[RESERVES];
    unsigned reserves;
    int next; /* the least number for a connection */
    uint64_t complain_at[2];
    int peers; /* beyond the highest descriptor that was a connection's */
    struct peer {
        _Atomic bool is_stranger;
        bool called;     /* the node has connected to it          */
        uint64_t cookie; /* the socket's own: descriptors are reused */
        uint64_t since;  /* when it connected, or began the current message */
        struct stranger stranger;
    } peer[PEERS_MAX]; /* by descriptor */
} door = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local int received = -1; /* the descriptor that this thread has received from last */

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
static void meet(int fd, bool called)
{
    struct peer *p = &door.peer[fd];

    if (fd >= door.peers)
        door.peers = fd + 1;
    p->called = called;
    p->since = clock_ns();
    p->stranger = (struct stranger){.stage = STRANGER_NEW};
    if (called)
        stranger_called(&p->stranger);
    if (!cookie_of(fd, &p->cookie))
        p->cookie = 0;
    p->is_stranger = true;
}

/* With the lock: has UCX waited too long for what this peer sends? */
static bool is_late(const struct peer *p, uint64_t now)
{
    return p->is_stranger && !p->called && p->stranger.stage != STRANGER_ENDED &&
           !stranger_is_idle(&p->stranger) && now - p->since > SILENT_NS;
}

static void end_silent(void)
{
    uint64_t now = clock_ns(), cookie;

    pthread_mutex_lock(&door.lock);
    for (int fd = 0; fd < door.peers; fd++) {
        struct peer *p = &door.peer[fd];

        if (!is_late(p, now))
            continue;
        p->stranger.stage = STRANGER_ENDED; /* what it has sent could still be received */
        p->is_stranger = cookie_of(fd, &cookie) && cookie == p->cookie;
        if (p->is_stranger)
            (void)shutdown(fd, SHUT_RDWR);
    }
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

enum complaint { NO_DESCRIPTORS, BAD_STRANGER };

/* With the lock. */
static void complain(enum complaint what)
{
    uint64_t now = clock_ns();

    if (now < door.complain_at[what])
        return;
    door.complain_at[what] = now + COMPLAIN_NS;
    fputs(what == NO_DESCRIPTORS
              ? "farside memd: turning connections away: no file descriptors are left (ulimit -n)\n"
              : "farside memd: ending connections that send what no client sends before it has "
                "proved itself\n",
          stderr);
}

/* With the lock: accepts a connection by means of the reserve, and closes it. */
static void turn_away(int listener)
{
    complain(NO_DESCRIPTORS);
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
    int end = (int)(limit.rlim_cur < PEERS_MAX ? limit.rlim_cur : PEERS_MAX), moved = -1;
    for (unsigned i = 0; i < 2 && moved < 0; i++) {
        if (door.next < end / 4 || door.next >= end || i > 0)
            door.next = end / 4;
        moved = fcntl(fd, F_DUPFD, door.next);
        if (moved >= end) {
            close(moved);
            moved = -1;
        }
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
    fd = fd >= 0 ? renumber(fd) : fd;
    if (fd >= PEERS_MAX) {
        close(fd);
        complain(NO_DESCRIPTORS);
        fd = -1;
        error = EAGAIN;
    } else if (fd >= 0) {
        meet(fd, false);
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

int incoming_connect(int fd, const struct sockaddr *to, socklen_t bytes)
{
    if (door.guards && fd >= PEERS_MAX) {
        errno = EMFILE;
        return -1;
    }
    if (door.guards && fd >= 0) {
        pthread_mutex_lock(&door.lock);
        meet(fd, true);
        pthread_mutex_unlock(&door.lock);
    }
    return (int)syscall(SYS_connect, fd, to, bytes);
}

/* May UCX see this? */
static bool may_pass(int fd, const void *bytes, size_t count)
{
    struct peer *p = &door.peer[fd];

    pthread_mutex_lock(&door.lock);
    if (stranger_is_idle(&p->stranger))
        p->since = clock_ns();
    bool may = stranger_says(&p->stranger, bytes, count);
    if (!may) {
        complain(BAD_STRANGER);
        (void)shutdown(fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&door.lock);
    return may;
}

ssize_t incoming_recv(int fd, void *into, size_t room, int flags)
{
    ssize_t count = recvfrom(fd, into, room, flags, NULL, NULL);

    received = fd;
    if (count <= 0 || fd >= PEERS_MAX || (flags & MSG_PEEK) ||
        !atomic_load_explicit(&door.peer[fd].is_stranger, memory_order_relaxed))
        return count;
    return may_pass(fd, into, (size_t)count) ? count : 0; /* 0: the connection has ended */
}

void incoming_proved(void)
{
    if (received < 0 || received >= PEERS_MAX)
        return;
    pthread_mutex_lock(&door.lock);
    door.peer[received].is_stranger = false;
    pthread_mutex_unlock(&door.lock);
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
