/*
 * The descriptor that a program waits on for the ring of a session: an epoll instance that holds a
 * signal (an eventfd), a timer and the fabric's descriptors. To the user's epoll it is one
 * descriptor, readable when far_reap() should be called.
 *
 * Whenever the session's thread is in no call of Farside,
 *
 *   WAIT-1  if a result can be taken, the signal is given;
 *   WAIT-2  if an operation is running, the signal is given, or the fabric was armed after the
 *           endpoint was last used, its descriptors count, and the timer runs out at the latest
 *           when the first pause of an operation ends, or when the fabric wants to be polled;
 *   WAIT-3  otherwise the signal is not given. The timer may run out, and the fabric's
 *           descriptors may become readable because of the keeper, which uses the endpoint of an
 *           idle session, or because a node closes a connection. The first far_reap() that finds
 *           nothing to do turns them off, so this wakes a server once.
 *
 * far_reap() arms the fabric last of all. Any other call that may have used the endpoint while
 * operations were running, or that has added results, gives the signal. So nothing is lost between
 * two calls, and a server that only waits and reaps is woken for every event.
 */
#include "store/wait.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define OFF UINT64_MAX /* of the timer */

struct wait {
    struct fab_ep *ep;
    int epoll, signal, timer;
    bool given;
    int fabric[FAB_WAIT_FDS];
    unsigned fabric_count;
    bool fabric_counts; /* its descriptors are in the epoll instance */
    uint64_t set_to;    /* when the timer runs out, by the endpoint's clock */
};

static int add(struct wait *w, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events};

    return epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &event) == 0
               ? FAR_OK
               : err_fail(FAR_SYSTEM, "cannot make a descriptor to wait on: %s", strerror(errno));
}

/* Takes the fabric's descriptors out. Asking for no events would not do: epoll reports errors and
 * hang-ups in any case. */
static void ignore_fabric(struct wait *w)
{
    for (unsigned i = 0; i < w->fabric_count && w->fabric_counts; i++)
        ASSERT(epoll_ctl(w->epoll, EPOLL_CTL_DEL, w->fabric[i], NULL) == 0);
    w->fabric_counts = false;
}

static int count_fabric(struct wait *w)
{
    for (unsigned i = 0; i < w->fabric_count && !w->fabric_counts; i++) {
        int rc = add(w, w->fabric[i], EPOLLIN);
        if (rc == FAR_OK)
            continue;
        while (i-- > 0)
            ASSERT(epoll_ctl(w->epoll, EPOLL_CTL_DEL, w->fabric[i], NULL) == 0);
        return rc;
    }
    w->fabric_counts = true;
    return FAR_OK;
}

static int make(struct wait *w)
{
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    /* Not CLOCK_BOOTTIME: after a suspension it is early enough if the rest of the time runs
     * out. */
    w->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    w->signal = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->epoll < 0 || w->timer < 0 || w->signal < 0)
        return err_fail(FAR_SYSTEM, "cannot make a descriptor to wait on: %s", strerror(errno));
    int rc = add(w, w->signal, EPOLLIN);
    if (rc == FAR_OK)
        rc = add(w, w->timer, EPOLLIN);
    if (rc == FAR_OK && w->ep->ops->wait_fds)
        rc = w->ep->ops->wait_fds(w->ep, w->fabric, &w->fabric_count);
    if (rc == FAR_OK)
        rc = count_fabric(w); /* to see that it works */
    ignore_fabric(w);
    return rc;
}

int store_wait_open(struct fab_ep *ep, struct wait **wait)
{
    if (!ep->ops->arm && !(ep->fab->caps & FAB_CAP_IMMEDIATE))
        return err_fail(FAR_UNSUPPORTED, "this fabric can only be polled");
    struct wait *w = calloc(1, sizeof *w);
    if (!w)
        return err_fail(FAR_NO_MEMORY, "no memory for a descriptor to wait on");
    *w = (struct wait){.ep = ep, .epoll = -1, .signal = -1, .timer = -1, .set_to = OFF};
    int rc = make(w);
    if (rc == FAR_OK)
        *wait = w;
    else
        store_wait_close(w);
    return rc;
}

void store_wait_close(struct wait *w)
{
    if (!w)
        return;
    if (w->signal >= 0)
        close(w->signal);
    if (w->timer >= 0)
        close(w->timer);
    if (w->epoll >= 0)
        close(w->epoll);
    free(w);
}

int store_wait_fd(const struct wait *w)
{
    return w->epoll;
}

/* Sets the timer to run out after ns nanoseconds; 0: never. */
static void set(struct wait *w, uint64_t set_to, uint64_t ns)
{
    struct itimerspec time = {
        .it_value = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)}};

    ASSERT(timerfd_settime(w->timer, 0, &time, NULL) == 0);
    w->set_to = set_to;
}

void store_wait_ring(struct wait *w)
{
    if (!w->given)
        ASSERT(eventfd_write(w->signal, 1) == 0);
    w->given = true;
}

static void be_quiet(struct wait *w)
{
    eventfd_t count;

    if (w->given)
        ASSERT(eventfd_read(w->signal, &count) == 0);
    w->given = false;
}

void store_wait_for_fabric(struct wait *w, uint64_t until)
{
    uint64_t now = w->ep->ops->now(w->ep);

    if (until <= now || count_fabric(w) != FAR_OK) { /* if the kernel has no memory, poll */
        store_wait_ring(w);
        return;
    }
    /* A timer that runs out earlier can stay. That rarely costs a needless wake-up; setting it each
     * time would cost a system call for each reap. */
    if (until < w->set_to || w->set_to <= now)
        set(w, until, until == OFF ? 0 : until - now);
    be_quiet(w);
}

void store_wait_for_nothing(struct wait *w)
{
    be_quiet(w);
}

void store_wait_turn_off(struct wait *w)
{
    ignore_fabric(w);
    if (w->set_to != OFF)
        set(w, OFF, 0);
}
