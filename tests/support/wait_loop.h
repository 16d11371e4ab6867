/* A server's loop: it sleeps on the descriptor of a session, by epoll, and reaps when it is
 * readable. It never waits in any other way. What it was woken for is counted. */
#ifndef TESTS_WAIT_LOOP_H
#define TESTS_WAIT_LOOP_H

#include "base/clock.h"
#include "base/err.h"

#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* No machine is so slow that it has nothing to reap for that long. The fabric's own time-outs,
 * which would get a loop that was not woken going again, are shorter: so loops also bound how often
 * they are woken, and tests of single wake-ups look at the descriptor itself. */
#define WAIT_HANGS_MS 60000

struct wait_loop {
    far_session *session;
    int epoll, fd;
    uint64_t wakes;
};

static inline void wait_loop_open(struct wait_loop *l, far_session *session)
{
    *l = (struct wait_loop){.session = session, .epoll = epoll_create1(EPOLL_CLOEXEC)};
    struct epoll_event event = {.events = EPOLLIN};

    ASSERT(l->epoll >= 0);
    ASSERT(far_session_fd(session, &l->fd) == FAR_OK);
    ASSERT(epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->fd, &event) == 0);
}

static inline void wait_loop_close(struct wait_loop *l)
{
    close(l->epoll);
}

/* Is it readable within that time? */
static inline bool wait_loop_within(struct wait_loop *l, int ms)
{
    struct epoll_event event;

    return epoll_wait(l->epoll, &event, 1, ms) == 1;
}

/* Sleeps until it is readable, and reaps once. A loop that is not woken has failed. */
static inline unsigned wait_loop_step(struct wait_loop *l, struct far_result *results, unsigned max)
{
    ASSERT(wait_loop_within(l, WAIT_HANGS_MS));
    l->wakes++;
    return far_reap(l->session, results, max, 0);
}

/* Sleeps for that time, and returns how often it was woken although nothing is in flight. */
static inline unsigned wait_loop_rest(struct wait_loop *l, unsigned ms)
{
    uint64_t until = clock_ns() + ms * 1000000ull;
    struct far_result result;
    unsigned wakes = 0;

    for (uint64_t now = clock_ns(); now < until && wakes < 1000000; now = clock_ns()) {
        if (!wait_loop_within(l, (int)((until - now) / 1000000) + 1))
            continue;
        ASSERT(far_reap(l->session, &result, 1, 0) == 0);
        wakes++;
    }
    return wakes;
}

/* Puts keys 0 to count - 1 and gets them again, `depth` at a time. Returns how often it was
 * woken. */
static inline uint64_t wait_loop_work(struct wait_loop *l, far_table *table, unsigned count,
                                      unsigned depth)
{
    enum { MOST = 1024 };
    static uint64_t key[MOST], got[MOST];
    struct far_result results[8];
    uint64_t before = l->wakes;

    ASSERT(count <= MOST);
    for (unsigned phase = 0; phase < 2; phase++) {
        unsigned next = 0, done = 0;

        while (done < count) {
            for (; next < count && next - done < depth; next++) {
                struct far_op op = {.kind = phase == 0 ? FAR_OP_PUT : FAR_OP_GET,
                                    .table = table,
                                    .key = &key[next],
                                    .key_len = 8,
                                    .value = &key[next],
                                    .value_len = 8,
                                    .buf = &got[next],
                                    .cap = 8,
                                    .user_data = next};
                key[next] = next;
                got[next] = UINT64_MAX;
                ASSERT(far_submit(l->session, &op) == FAR_OK);
            }
            unsigned n = wait_loop_step(l, results, 8);
            for (unsigned i = 0; i < n; i++)
                ASSERT(results[i].status == FAR_OK);
            done += n;
        }
        for (unsigned i = 0; phase == 1 && i < count; i++)
            ASSERT(got[i] == i);
    }
    return l->wakes - before;
}

#endif
