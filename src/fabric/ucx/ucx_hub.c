/*
 * The UCX fabric: hubs, and which endpoint has which.
 *
 * A hub is a UCX worker with a connection to each node. It takes about HUB_FDS + CONN_FDS * nodes
 * file descriptors in this process, and a few less at the nodes. An endpoint gets a private hub,
 * which only its own thread uses, without a lock. There are up to PRIVATE_MAX of these, as long as
 * they take no more than a quarter of the file descriptors that the process may have. Later
 * endpoints share up to SHARED_MAX hubs, within another quarter.
 *
 * A shared hub has a lock, which every thread that uses the hub holds:
 *
 *   HUB-1  Any thread may post, send and make progress, for all endpoints of the hub.
 *   HUB-2  Of the threads that wait, one drives: it makes progress, yields, and sleeps on the
 *          worker's descriptor. It releases the lock while it yields and sleeps. The others follow:
 *          each sleeps until its endpoint is woken.
 *   HUB-3  A thread that completes a request wakes the thread of its endpoint, or wakes the driver
 *          if the request is the driver's and the driver sleeps. A driver that has what it waited
 *          for wakes one follower, which then drives. So no thread sleeps whose request is
 *          over, and while any thread waits, one drives.
 *   HUB-4  Only the endpoint's own thread marks a request done, since it looks at requests without
 *          the lock. Other threads put what they complete on the endpoint's list.
 *   HUB-5  No thread sleeps past the earliest deadline of the hub, nor for longer than DOZE_MS.
 *   HUB-6  An endpoint can also wait by descriptors, on which any thread sleeps: that of the armed
 *          worker and, on a shared hub, an alarm of its own. A thread that completes a request of
 *          the endpoint raises the alarm. A thread that has made progress may have used up the
 *          event for which the worker was armed. So when it leaves a hub that no thread drives, it
 *          arms the worker again or, if there is something to do, raises the alarms of all that
 *          wait so. Hence every event wakes a thread.
 */
#include "fabric/ucx/ucx_internal.h"

#include "base/clock.h"
#include "base/fds.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define HUB_FDS     8u
#define CONN_FDS    3u
#define PRIVATE_MAX 128u
#define SHARED_MAX  8u

/* How long a thread polls the worker before it arms it and sleeps: about as long as a sleeping node
 * takes to wake up, so that falling asleep does not make a short wait long. After SPINS polls it
 * yields the processor between them. */
#define SPIN_NS  150000u
#define SPINS    20u
#define DOZE_MS  1000u
#define CLOSINGS 50u

/* The coarse clock, by which time-outs are judged, may lag by that much. */
#define COARSE_NS 15000000ull

/* ---- what arrives, and what is to be sent ---------------------------------------------------- */

static ucs_status_t receive(void *arg, const void *header, size_t header_bytes, void *data,
                            size_t bytes, const ucp_am_recv_param_t *param)
{
    struct ucx_hub *h = arg;
    struct wire_head head;

    (void)header;
    if (header_bytes != 0 || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) ||
        wire_check(data, bytes) != FAR_OK)
        return UCS_OK;
    memcpy(&head, data, sizeof head);
    unsigned node = head.seq % CONN_INDEX_MAX;
    if (node < h->fab->fab.nodes)
        ucx_conn_heard(&h->conn[node], data, bytes);
    return UCS_OK;
}

static bool wanted(const struct ucx_conn *c)
{
    return c->first != NULL || c->late > 0 || c->question.state == QUESTION_WAITING;
}

void ucx_hub_tend(struct ucx_hub *h, uint64_t now)
{
    for (unsigned i = 0; i < h->fab->fab.nodes; i++) {
        struct ucx_conn *c = &h->conn[i];

        if (c->broken != UCS_OK || c->refused || now != 0)
            ucx_conn_look(c, now);
        if (!wanted(c))
            continue;
        if (c->state == CONN_DOWN)
            ucx_conn_connect(c);
        if (c->state == CONN_UP && c->question.state == QUESTION_WAITING)
            ucx_conn_ask(c);
        if (c->state == CONN_UP)
            ucx_conn_send(c);
    }
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* The earliest deadline of all connections. */
static uint64_t first_deadline(const struct ucx_hub *h)
{
    uint64_t first = UINT64_MAX;

    for (unsigned i = 0; i < h->fab->fab.nodes; i++) {
        uint64_t deadline = ucx_conn_deadline(&h->conn[i]);

        first = deadline < first ? deadline : first;
    }
    return first;
}

/* Milliseconds until then, DOZE_MS at most. */
static unsigned sleep_ms(const struct ucx_hub *h)
{
    uint64_t first = first_deadline(h), now = clock_ns();

    if (first <= now)
        return 0;
    return (first - now) / 1000000 < DOZE_MS ? (unsigned)((first - now) / 1000000) + 1 : DOZE_MS;
}

/* Sleeps until the worker has an event. */
static void sleep_until_event(struct ucx_hub *h)
{
    struct pollfd fd = {.fd = h->fd, .events = POLLIN};
    unsigned ms = sleep_ms(h);

    if (ucp_worker_arm(h->worker) == UCS_OK) {
        h->asleep = true;
        ucx_hub_exit(h);
        poll(&fd, 1, (int)ms);
        ucx_hub_enter(h);
        h->asleep = false;
    }
    h->stirred = true;
    ucx_hub_tend(h, clock_ns());
}

/* Sleeps until the driver has something for this endpoint, or stops driving. */
static void follow(struct ucx_ep *e)
{
    struct ucx_hub *h = e->hub;
    struct timespec until;
    unsigned ms = sleep_ms(h) + 1; /* so that the driver checks first */

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    e->following = true;
    e->prev = NULL;
    e->next = h->followers;
    if (e->next)
        e->next->prev = e;
    h->followers = e;
    if (pthread_cond_timedwait(&e->wakeup, &h->lock, &until) == ETIMEDOUT)
        ucx_hub_tend(h, clock_ns());
    if (e->prev)
        e->prev->next = e->next;
    else
        h->followers = e->next;
    if (e->next)
        e->next->prev = e->prev;
    e->following = false;
}

/* CROWD-1 */
static void yield(struct ucx_hub *h, uint64_t now)
{
    ucx_hub_exit(h);
    sched_yield();
    ucx_hub_enter(h);
    crowd_note(&h->crowd, now, clock_ns());
}

void ucx_hub_wait(struct ucx_ep *e, struct ucx_spin *p)
{
    struct ucx_hub *h = e->hub;

    if (h->shared && h->driver && h->driver != e) {
        follow(e);
        return;
    }
    h->driver = e;
    if (ucp_worker_progress(h->worker)) {
        h->stirred = true;
        p->idle = 0;
        ucx_hub_tend(h, 0);
        return;
    }
    if (++p->idle < SPINS && p->idle != CROWD_POLLS)
        return;
    uint64_t now = clock_ns();
    if (p->idle == SPINS)
        p->since = now;
    if (crowd_lasts(&h->crowd, now)) {
        sleep_until_event(h);
        p->idle = 0;
    } else if (p->idle > SPINS && now - p->since > SPIN_NS) {
        sleep_until_event(h);
    } else if (p->idle > SPINS) {
        yield(h, now);
    }
}

void ucx_hub_waited(struct ucx_ep *e)
{
    struct ucx_hub *h = e->hub;

    if (h->driver == e)
        h->driver = NULL;
    if (!h->driver && h->followers) /* also if e was to drive next and no longer needs to */
        pthread_cond_signal(&h->followers->wakeup);
}

/* ---- waiting by descriptors ------------------------------------------------------------------ */

int ucx_hub_wait_fds(struct ucx_ep *e, int fds[FAB_WAIT_FDS], unsigned *count)
{
    struct ucx_hub *h = e->hub;

    if (h->shared && !e->has_alarm) {
        e->alarm = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (e->alarm < 0)
            return err_fail(FAR_SYSTEM, "cannot make an event descriptor: %s", strerror(errno));
        e->has_alarm = true;
    }
    fds[0] = h->fd;
    fds[1] = e->alarm;
    *count = h->shared ? 2 : 1;
    return FAR_OK;
}

void ucx_hub_rise(struct ucx_ep *e)
{
    struct ucx_ep **at = &e->hub->sleepers;
    uint64_t count;

    if (!e->sleeping)
        return;
    while (*at != e)
        at = &(*at)->next_sleeper;
    *at = e->next_sleeper;
    e->sleeping = false;
    if (e->rung)
        e->rung = read(e->alarm, &count, sizeof count) != sizeof count;
}

/* Is there something to do although nothing arrives? UCX may have reported an error while something
 * was being sent. */
static bool is_restless(const struct ucx_hub *h)
{
    for (unsigned i = 0; i < h->fab->fab.nodes; i++) {
        const struct ucx_conn *c = &h->conn[i];

        if (c->state != CONN_DOWN && (c->broken != UCS_OK || c->refused))
            return true;
    }
    return false;
}

bool ucx_hub_arm(struct ucx_ep *e, uint64_t *until)
{
    struct ucx_hub *h = e->hub;
    uint64_t first = first_deadline(h), latest = clock_ns() + DOZE_MS * 1000000ull;

    ucx_hub_rise(e);
    ucs_status_t status = e->answered || is_restless(h) ? UCS_ERR_BUSY : ucp_worker_arm(h->worker);
    if (status == UCS_ERR_BUSY)
        return false;
    if (status != UCS_OK) /* then it can only be polled */
        latest = clock_ns() + COARSE_NS;
    h->stirred = false;
    if (h->shared) {
        e->sleeping = true;
        e->next_sleeper = h->sleepers;
        h->sleepers = e;
    }
    *until = first < latest - COARSE_NS ? first + COARSE_NS : latest;
    return true;
}

void ucx_hub_settle(struct ucx_hub *h)
{
    bool restless;

    if (!h->sleepers || h->driver) /* the driver will come here, too */
        return;
    restless = is_restless(h);
    if (!restless && !h->stirred)
        return;
    if (!restless && ucp_worker_arm(h->worker) == UCS_OK) {
        h->stirred = false;
        return;
    }
    /* All of them: one alone may have nothing under way any more, and no thread that polls it. */
    for (struct ucx_ep *e = h->sleepers; e; e = e->next_sleeper)
        ucx_hub_alarm(e);
}

/* ---- hubs ------------------------------------------------------------------------------------ */

static void hub_close(struct ucx_hub *h)
{
    unsigned nodes = h->fab->fab.nodes;

    for (unsigned i = 0; i < nodes; i++) {
        if (h->conn[i].state != CONN_DOWN)
            ucx_conn_break(&h->conn[i], FAR_UNREACHABLE); /* nothing is under way */
    }
    for (unsigned i = 0; i < CLOSINGS; i++)
        ucp_worker_progress(h->worker);
    ucp_worker_destroy(h->worker);
    for (unsigned i = 0; i < nodes; i++) {
        for (unsigned n = 0; n < CONN_MESSAGES; n++) {
            if (h->conn[i].message[n])
                free(h->conn[i].message[n]->buf);
            free(h->conn[i].message[n]);
        }
    }
    ucx_free_flights(h);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

static int hub_open(struct ucx_fab *u, bool shared, struct ucx_hub **hub)
{
    /* If descriptors run out half-way, UCX does not clean up. */
    int rc = fds_check(HUB_FDS + CONN_FDS * u->fab.nodes);
    struct ucx_hub *h;

    if (rc != FAR_OK)
        return rc;
    h = calloc(1, sizeof *h + u->fab.nodes * sizeof *h->conn);
    if (!h)
        return err_fail(FAR_NO_MEMORY, "no memory for an endpoint of ucx:");
    h->fab = u;
    h->shared = shared;
    /* Questions are numbered from a random start, so that others cannot forge answers. */
    rc = wire_random(&h->seq, sizeof h->seq);
    h->seq >>= 16;
    for (unsigned i = 0; i < u->fab.nodes && rc == FAR_OK; i++) {
        struct ucx_conn *c = &h->conn[i];

        c->hub = h;
        c->node = i;
        rc = wire_random(&c->link, sizeof c->link);
    }
    if (rc == FAR_OK && pthread_mutex_init(&h->lock, NULL) != 0)
        rc = err_fail(FAR_SYSTEM, "cannot make a lock");
    if (rc == FAR_OK) {
        rc = ucx_worker_open(u->context, receive, h, wire_knock(&u->wire.secret), &h->worker,
                             &h->fd);
        if (rc != FAR_OK)
            pthread_mutex_destroy(&h->lock);
    }
    if (rc != FAR_OK)
        free(h);
    else
        *hub = h;
    return rc;
}

/* How many hubs fit into a quarter of the process's file descriptors. */
static unsigned affordable(const struct ucx_fab *u, unsigned most)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return most;
    uint64_t hubs = limit.rlim_cur / 4 / (HUB_FDS + CONN_FDS * u->fab.nodes);
    return hubs < most ? (unsigned)hubs : most;
}

/* With the fabric's lock: takes the shared hub with the fewest users, or makes a new one. */
static int share(struct ucx_fab *u, struct ucx_hub **hub)
{
    struct ucx_hub *least = u->shared;
    int rc = FAR_OK;

    for (struct ucx_hub *h = u->shared; h; h = h->next)
        least = h->users < least->users ? h : least;
    if (!least || (least->users > 0 && u->shared_hubs < affordable(u, SHARED_MAX))) {
        struct ucx_hub *more = NULL;

        rc = hub_open(u, true, &more);
        if (rc == FAR_OK) {
            more->next = u->shared;
            u->shared = least = more;
            u->shared_hubs++;
        }
    }
    if (!least)
        return rc;
    *hub = least;
    return FAR_OK;
}

int ucx_hub_join(struct ucx_fab *u, struct ucx_ep *e)
{
    int rc = FAR_SYSTEM;

    pthread_mutex_lock(&u->lock);
    if (u->private_hubs < affordable(u, PRIVATE_MAX))
        rc = hub_open(u, false, &e->hub);
    if (rc == FAR_OK)
        u->private_hubs++;
    else
        rc = share(u, &e->hub);
    if (rc == FAR_OK)
        e->hub->users++;
    pthread_mutex_unlock(&u->lock);
    return rc;
}

void ucx_hub_leave(struct ucx_ep *e)
{
    struct ucx_hub *h = e->hub, **at;
    struct ucx_fab *u = h->fab;

    ASSERT(e->pending == 0 && !e->sleeping && !e->following);
    pthread_mutex_lock(&u->lock);
    ASSERT(h->users > 0);
    if (--h->users == 0) {
        if (h->shared) {
            for (at = &u->shared; *at != h;)
                at = &(*at)->next;
            *at = h->next;
            u->shared_hubs--;
        } else {
            u->private_hubs--;
        }
        hub_close(h);
    }
    pthread_mutex_unlock(&u->lock);
}
