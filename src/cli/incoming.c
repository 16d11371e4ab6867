/*
 * Connections that come in at a memory node.
 *
 * UCX accepts them by accept(), before any of our code knows of them. This program has its own
 * accept(), connect() and recv(), which the linker prefers to the C library's for all shared
 * objects of the process:
 *
 *   - If accept() fails, UCX 1.13 closes the socket at which its transport listens. Then the node
 *     can never be reached again. So accept() only says that there is nothing to accept, whatever
 *     is wrong. If descriptors have run out, it gives up one that is held in reserve, accepts the
 *     connection and closes it: the peer learns at once that it has to come again. Other code may
 *     get the descriptor first; so there are some, and they are replaced when that is possible.
 *   - UCX notes the events that a busy worker has missed by the number of their descriptor, and
 *     gives them to the socket that has this number when the worker looks. If that is another one
 *     by then, UCX 1.13 ends the process by an assertion: its state does not go with the event. So
 *     a connection gets the next higher number than the one before it, and a number comes again
 *     only when all others have had their turn.
 *   - UCX waits without end for the first bytes of a connection, and for the rest of a message. A
 *     thread looks once in a second, and shuts down what it has found silent at SILENT_LOOKS looks.
 *     It does not go by the clock: if the node itself stood still, what was sent meanwhile may wait
 *     to be received. UCX then finds the end of the connection, and
 *     closes it.
 *   - UCX trusts its peers. A peer is a stranger until it has proved itself, and of what a stranger
 *     sends, recv() lets only that through which stranger.c allows. UCX hands a message over in the
 *     thread that has received its last byte, so the proof came by the socket of that thread's last
 *     recv(). While a connection is made, the node may connect to its client: hence connect().
 *   - The first message of a connection is judged before UCX receives any of it. SO_RCVLOWAT keeps
 *     UCX from being woken until it is there as a whole. For a request to the listener, send() sees
 *     the answer, which names the endpoint that the peer may connect to.
 */
#include "cli/incoming.h"

#include "base/clock.h"
#include "base/err.h"
#include "cli/stranger.h"
#include "memd/memd.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SILENT_LOOKS 10u
#define LOOK_NS      (1ull * 1000000000)
#define COMPLAIN_NS  (60ull * 1000000000)
#ifndef PEERS_MAX
#define PEERS_MAX 32768 /* descriptors of connections are lower: 4096 clients have three each */
#endif
#define RESERVES     8u
#define REST_NS      1000000u /* if there is no reserve: UCX tries again at once */
#define RESERVE_FILE "/dev/null"
#define RDMA_DEVICES "/sys/class/infiniband"

int incoming_accept(int listener, struct sockaddr *from, socklen_t *bytes) __asm__("accept")
    __attribute__((visibility("default")));
int incoming_connect(int fd, const struct sockaddr *to, socklen_t bytes) __asm__("connect")
    __attribute__((visibility("default")));
ssize_t incoming_recv(int fd, void *into, size_t room, int flags) __asm__("recv")
    __attribute__((visibility("default")));
ssize_t incoming_send(int fd, const void *bytes, size_t count, int flags) __asm__("send")
    __attribute__((visibility("default")));

static struct {
    pthread_mutex_t lock;
    _Atomic bool guards;
    int reserve[RESERVES];
    unsigned reserves;
    int next; /* the least number for a connection */
    uint64_t complain_at[3];
    uint64_t knock;
    bool by_tcp; /* UCX has no other transport */
    _Atomic uint64_t *refused;
    int peers;   /* beyond the highest descriptor that was a connection's */
    int waiting; /* the first of a list of peers that ask or were answered; -1: none */
    struct peer {
        _Atomic bool is_stranger;
        bool called;     /* the node has connected to it          */
        uint64_t cookie; /* the socket's own: descriptors are reused */
        unsigned looks;  /* since it connected, or began the current message */
        struct stranger stranger;
        bool admitted;                /* UCX may receive its first message */
        struct sockaddr_storage from; /* if it has connected to the node   */
        _Atomic bool asks;            /* it has asked the listener, which has not answered yet */
        bool answered;                /* `ours` waits for `theirs`: STRANGER-5 */
        struct stranger_endpoint theirs, ours;
        unsigned waits; /* looks at it while it asked or was answered */
        bool listed;    /* in the list of these, or was: see first_waiting() */
        int next;
    } peer[PEERS_MAX]; /* by descriptor */
} door = {.lock = PTHREAD_MUTEX_INITIALIZER, .waiting = -1};

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

/* UCX is not woken until that many bytes are there, or the connection has ended. */
static void await(int fd, size_t count)
{
    int least = (int)count;

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
}

/* With the lock. */
static void meet(int fd, bool called)
{
    struct peer *p = &door.peer[fd];

    if (fd >= door.peers)
        door.peers = fd + 1;
    p->called = called;
    p->looks = 0;
    p->stranger = (struct stranger){.stage = STRANGER_NEW};
    if (called)
        stranger_called(&p->stranger);
    if (!cookie_of(fd, &p->cookie))
        p->cookie = 0;
    p->admitted = called;
    p->asks = p->answered = false;
    socklen_t bytes = sizeof p->from;
    if (called || getpeername(fd, (struct sockaddr *)&p->from, &bytes) != 0)
        p->from.ss_family = AF_UNSPEC;
    if (!called)
        await(fd, stranger_first(NULL, 0));
    p->is_stranger = true;
}

/* With the lock: does UCX wait for what this peer sends? */
static bool is_awaited(const struct peer *p)
{
    return p->is_stranger && !p->called && p->stranger.stage != STRANGER_ENDED &&
           !stranger_is_idle(&p->stranger);
}

static void end_silent(void)
{
    uint64_t cookie;

    pthread_mutex_lock(&door.lock);
    for (int fd = 0; fd < door.peers; fd++) {
        struct peer *p = &door.peer[fd];

        if ((p->asks || p->answered) && ++p->waits > SILENT_LOOKS)
            p->asks = p->answered = false;
        if (!is_awaited(p) || ++p->looks <= SILENT_LOOKS)
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

enum complaint { NO_DESCRIPTORS, BAD_STRANGER, NO_KNOCK };

/* With the lock. */
static void complain(enum complaint what)
{
    uint64_t now = clock_ns();

    if (now < door.complain_at[what])
        return;
    door.complain_at[what] = now + COMPLAIN_NS;
    static const char *const text[] = {
        "turning connections away: no file descriptors are left (ulimit -n)",
        "ending connections that send what no client sends before it has proved itself",
        "refusing clients that do not know the secret",
    };
    fprintf(stderr, "farside memd: %s\n", text[what]);
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

/* With the lock: the same connection under another number, the next one. The lower quarter is left
 * to other files, so that numbers of these do not become a connection's. */
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

/* With the lock. */
static void enlist(int fd)
{
    struct peer *p = &door.peer[fd];

    p->waits = 0;
    if (p->listed)
        return;
    p->listed = true;
    p->next = door.waiting;
    door.waiting = fd;
}

/* With the lock: the first peer at or behind *at that asks or was answered; NULL: none. Others are
 * dropped from the list. */
static struct peer *first_waiting(int *at)
{
    while (*at >= 0) {
        struct peer *p = &door.peer[*at];

        if (p->asks || p->answered)
            return p;
        p->listed = false;
        *at = p->next;
    }
    return NULL;
}

static bool same_host(const struct sockaddr *a, const struct sockaddr *b)
{
    if (a->sa_family != b->sa_family)
        return false;
    return a->sa_family == AF_INET6
               ? memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                        &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr,
                        sizeof(struct in6_addr)) == 0
               : ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
                     ((const struct sockaddr_in *)(const void *)b)->sin_addr.s_addr;
}

/* With the lock: the node connects, so the peer does not: STRANGER-5. */
static void connects_to(const struct sockaddr *to)
{
    int *at = &door.waiting;

    for (struct peer *p; (p = first_waiting(at)); at = &p->next) {
        if (p->asks && same_host(to, (struct sockaddr *)&p->from) &&
            p->theirs.port == ((const struct sockaddr_in *)(const void *)to)->sin_port)
            p->asks = false;
    }
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
        connects_to(to);
        pthread_mutex_unlock(&door.lock);
    }
    return (int)syscall(SYS_connect, fd, to, bytes);
}

/* With the lock: UCX will find that the connection has ended. */
static void end_stranger(int fd, enum complaint why)
{
    complain(why);
    door.peer[fd].stranger.stage = STRANGER_ENDED;
    (void)shutdown(fd, SHUT_RDWR);
}

/* With the lock. UCX tells a client with which status its request was refused. */
static void refuse(int fd)
{
    const uint8_t answer[16] = {[8] = (uint8_t)WIRE_NOT_LET_IN};

    (void)sendto(fd, answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0);
    if (door.refused)
        ++*door.refused;
    end_stranger(fd, NO_KNOCK);
}

/* With the lock: does somebody wait for this connection? STRANGER-5 */
static bool is_expected(int fd, const uint8_t *first)
{
    struct sockaddr_storage here = {.ss_family = AF_UNSPEC};
    socklen_t bytes = sizeof here;

    if (getsockname(fd, (struct sockaddr *)&here, &bytes) != 0)
        return false;
    int *at = &door.waiting;
    for (struct peer *p; (p = first_waiting(at)); at = &p->next) {
        if (p->answered &&
            stranger_connects(first, &p->theirs, &p->ours, (struct sockaddr *)&here)) {
            p->answered = false;
            return true;
        }
    }
    return false;
}

/* With the lock: judges the first message, which is complete. */
static bool admit(int fd, const uint8_t *first, size_t bytes)
{
    struct peer *p = &door.peer[fd];

    if (!stranger_asks(first)) {
        p->admitted = is_expected(fd, first);
        if (!p->admitted)
            end_stranger(fd, BAD_STRANGER);
    } else if (door.knock != 0 && !stranger_knocks(first, bytes, door.knock)) { /* STRANGER-4 */
        uint8_t rest[STRANGER_FIRST_MAX];

        (void)recvfrom(fd, rest, sizeof rest, MSG_DONTWAIT, NULL,
                       NULL); /* or the answer would be lost */
        refuse(fd);
    } else if (door.knock == 0 && door.by_tcp &&
               !stranger_is_sound(first, bytes)) { /* STRANGER-6 */
        end_stranger(fd, BAD_STRANGER);
    } else {
        p->admitted = true;
        p->asks = stranger_endpoint(first, bytes, &p->theirs);
        if (p->asks)
            enlist(fd);
    }
    return p->admitted;
}

static bool has_hung_up(int fd)
{
    struct pollfd peer = {.fd = fd, .events = POLLRDHUP};

    return poll(&peer, 1, 0) > 0;
}

/* May UCX receive the first bytes of this connection? */
enum verdict { MAY, MAY_NOT, NOT_YET };
static enum verdict judge(int fd)
{
    uint8_t first[STRANGER_FIRST_MAX];
    ssize_t count = recvfrom(fd, first, sizeof first, MSG_PEEK | MSG_DONTWAIT, NULL, NULL);
    enum verdict verdict = MAY;

    if (count <= 0) /* the end of the connection, or nothing */
        return MAY;
    size_t needed = stranger_first(first, (size_t)count);
    pthread_mutex_lock(&door.lock);
    if (door.peer[fd].stranger.stage == STRANGER_ENDED) {
        verdict = MAY_NOT;
    } else if (needed == 0 || (needed > (size_t)count && has_hung_up(fd))) {
        end_stranger(fd, BAD_STRANGER);
        verdict = MAY_NOT;
    } else if (needed > (size_t)count) {
        await(fd, needed);
        verdict = NOT_YET;
    } else {
        await(fd, 1);
        verdict = admit(fd, first, needed) ? MAY : MAY_NOT;
    }
    pthread_mutex_unlock(&door.lock);
    return verdict;
}

/* May UCX see this? */
static bool may_pass(int fd, const void *bytes, size_t count)
{
    struct peer *p = &door.peer[fd];

    pthread_mutex_lock(&door.lock);
    if (stranger_is_idle(&p->stranger))
        p->looks = 0;
    bool may = stranger_says(&p->stranger, bytes, count);
    if (!may)
        end_stranger(fd, BAD_STRANGER);
    pthread_mutex_unlock(&door.lock);
    return may;
}

ssize_t incoming_recv(int fd, void *into, size_t room, int flags)
{
    bool strange = fd >= 0 && fd < PEERS_MAX &&
                   atomic_load_explicit(&door.peer[fd].is_stranger, memory_order_relaxed);

    if (strange && !door.peer[fd].admitted && !(flags & MSG_PEEK)) {
        enum verdict verdict = judge(fd);

        if (verdict == MAY_NOT)
            return 0; /* the connection has ended */
        if (verdict == NOT_YET) {
            errno = EAGAIN;
            return -1;
        }
    }
    ssize_t count = recvfrom(fd, into, room, flags, NULL, NULL);

    received = fd;
    if (count <= 0 || !strange || (flags & MSG_PEEK))
        return count;
    return may_pass(fd, into, (size_t)count) ? count : 0;
}

ssize_t incoming_send(int fd, const void *bytes, size_t count, int flags)
{
    if (fd >= 0 && fd < PEERS_MAX &&
        atomic_load_explicit(&door.peer[fd].asks, memory_order_relaxed)) {
        struct peer *p = &door.peer[fd];

        pthread_mutex_lock(&door.lock);
        p->answered = p->asks && stranger_endpoint(bytes, count, &p->ours);
        p->asks = false;
        pthread_mutex_unlock(&door.lock);
    }
    return sendto(fd, bytes, count, flags, NULL, 0);
}

void incoming_proved(void)
{
    if (received < 0 || received >= PEERS_MAX)
        return;
    pthread_mutex_lock(&door.lock);
    door.peer[received].is_stranger = false;
    pthread_mutex_unlock(&door.lock);
}

void incoming_door(uint64_t knock, _Atomic uint64_t *refused)
{
    pthread_mutex_lock(&door.lock);
    door.knock = knock;
    door.by_tcp = !getenv("UCX_TLS") && access(RDMA_DEVICES, F_OK) != 0;
    door.refused = refused;
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
