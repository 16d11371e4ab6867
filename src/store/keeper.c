/*
 * The keeper: a thread of a pool that takes care of idle sessions.
 *
 * A session announces itself by verbs that are piggybacked on its operations. A session without
 * operations is silent, so to others it looks as if it had stopped in the middle of one, and they
 * would wait for it until its lease has lapsed. So the keeper looks at all sessions of the process
 * now and then, and parks those that were not used since its last look: nobody waits for a parked
 * session, and the keeper renews its lease. A session that is used again takes itself back
 * (client_enter()), by a compare-and-swap on a word that it shares with the keeper only.
 *
 * The keeper does not touch a session with operations in flight: if its thread stops, its heartbeat
 * must stop, too.
 *
 * Parking is a round trip. Several sessions are parked at the same time, each on a fiber of its
 * own, so that a memory node that does not answer does not delay the heartbeats of other sessions.
 * The keeper's lock is held only to choose sessions: a session that is lent to the keeper cannot be
 * closed before it is returned.
 *
 * A session that waits for all others rings (store_keeper_hurry()). Then the keeper looks twice, a
 * short time apart.
 */
#include "store/keeper.h"

#include "base/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOKS_PER_LEASE 16
#define PERIOD_NS_MOST  250000000ull

/* A session that is not used for this long is idle, when another one waits for it. */
#define HURRY_NS 2000000ull

/* How many sessions are parked at the same time, and the pause between two looks at them. */
#define LANES       16
#define LANE_NS     20000
#define STACK_BYTES (64u * 1024)

struct lane {
    struct far_session *session; /* NULL: the lane is free */
    uint64_t turn;
    struct fiber *fiber; /* made when it is first needed */
};

struct keeper {
    pthread_t thread;
    struct lane lane[LANES];
    uint64_t period_ns;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t wakeup;
    bool stop;
    uint64_t round; /* when the next round begins */
    unsigned hurry; /* how many rounds are to follow soon */
    struct far_session *sessions;
    struct far_session *next; /* the next one to look at in this round */
};

static void park(void *arg)
{
    (void)client_park(arg); /* if it fails, the next operation finds out */
}

/* Borrows the session if it was not used since the last look and needs a heartbeat or parking. */
static bool borrow(struct far_session *s, uint64_t *turn)
{
    struct client *c = &s->client;
    *turn = atomic_load_explicit(&c->turn, memory_order_relaxed);
    if ((*turn & CLIENT_TURN_WHO) == CLIENT_TURN_LENT)
        return false; /* in a lane since an earlier round */
    if (*turn != s->turn_seen || !client_borrow(c, *turn)) {
        s->turn_seen = *turn;
        return false;
    }
    if (!client_is_parked(c) || client_heartbeat_due(c))
        return true;
    client_return(c, *turn);
    return false;
}

/* The next session of this round that is to be parked, or NULL. */
static struct far_session *choose(struct keeper *k, uint64_t *turn)
{
    struct far_session *chosen = NULL;
    pthread_mutex_lock(&k->lock);
    while (k->next && !chosen && !k->stop) {
        struct far_session *s = k->next;
        k->next = s->next_kept;
        if (borrow(s, turn))
            chosen = s;
    }
    pthread_mutex_unlock(&k->lock);
    return chosen;
}

static void finish(struct lane *lane)
{
    ASSERT((atomic_load_explicit(&lane->session->client.turn, memory_order_relaxed) &
            CLIENT_TURN_WHO) == CLIENT_TURN_LENT);
    lane->session->op.batch.on_ring = false;
    client_return(&lane->session->client, lane->turn);
    lane->session = NULL;
}

/* Starts to park a session. Without a fiber, it is done when this returns. */
static void start(struct lane *lane, struct far_session *s)
{
    bool waits = !(s->pool->fab->caps & FAB_CAP_IMMEDIATE);
    lane->session = s;
    if (waits && !lane->fiber)
        lane->fiber = fiber_create(STACK_BYTES, park, &s->op);
    else if (waits)
        fiber_reset(lane->fiber, park, &s->op);
    if (!waits || !lane->fiber) {
        park(&s->op);
        finish(lane);
        return;
    }
    s->op.batch.on_ring = true;
    fiber_resume(lane->fiber);
    if (fiber_finished(lane->fiber))
        finish(lane);
}

/* Continues to park a session. False: its request has not completed yet. */
static bool proceed(struct lane *lane)
{
    struct op *op = &lane->session->op;
    op->batch.ep->ops->poll(op->batch.ep, false);
    if (!op->batch.req.done)
        return false;
    fiber_resume(lane->fiber);
    if (fiber_finished(lane->fiber))
        finish(lane);
    return true;
}

/* Continues to park sessions, and the round. True: some are still being parked. */
static bool look_around(struct keeper *k)
{
    bool more = true, busy = false, moved;
    do {
        moved = busy = false;
        for (unsigned i = 0; i < LANES; i++) {
            struct lane *lane = &k->lane[i];
            if (lane->session) {
                moved |= proceed(lane);
            } else if (more) {
                struct far_session *s = choose(k, &lane->turn);
                more = s != NULL;
                if (s)
                    start(lane, s);
                moved |= more;
            }
            busy |= lane->session != NULL;
        }
    } while (moved);
    return busy;
}

/* Called with the lock. */
static void sleep_until(struct keeper *k, uint64_t ns)
{
    struct timespec until = {.tv_sec = (time_t)(ns / 1000000000),
                             .tv_nsec = (long)(ns % 1000000000)};
    if (!k->stop)
        pthread_cond_timedwait(&k->wakeup, &k->lock, &until);
}

/* A round begins once in a period, whether or not the last one is over. A session whose node does
 * not answer stays in its lane. */
static void *keep(void *arg)
{
    struct keeper *k = arg;
    bool busy = false;

    pthread_mutex_lock(&k->lock);
    while (!k->stop) {
        uint64_t soon = clock_ns() + LANE_NS;
        sleep_until(k, busy && soon < k->round ? soon : k->round);
        if (clock_ns() >= k->round) {
            k->hurry -= k->hurry > 0;
            k->next = k->sessions;
            k->round = clock_ns() + (k->hurry > 0 ? HURRY_NS : k->period_ns);
        }
        pthread_mutex_unlock(&k->lock);
        busy = look_around(k);
        pthread_mutex_lock(&k->lock);
    }
    pthread_mutex_unlock(&k->lock);
    for (unsigned i = 0; i < LANES; i++)
        fiber_destroy(k->lane[i].fiber);
    return NULL;
}

/* With all signals blocked: they are for the application's threads. */
static int start_thread(struct keeper *k)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&k->thread, NULL, keep, k);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static int keeper_start(far_pool *pool)
{
    struct keeper *k = calloc(1, sizeof *k);
    if (!k)
        return err_fail(FAR_NO_MEMORY, "no memory for the keeper's thread");
    k->period_ns = pool->pool.head[0].lease_ms * 1000000ull / LOOKS_PER_LEASE;
    if (k->period_ns > PERIOD_NS_MOST)
        k->period_ns = PERIOD_NS_MOST;
    k->round = clock_ns() + k->period_ns;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC); /* as clock_ns(), by which it waits */
    pthread_cond_init(&k->wakeup, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&k->lock, NULL);
    int error = start_thread(k);
    if (error != 0) {
        pthread_mutex_destroy(&k->lock);
        pthread_cond_destroy(&k->wakeup);
        free(k);
        return err_fail(FAR_SYSTEM, "cannot start the keeper's thread: %s", strerror(error));
    }
    pool->keeper = k;
    return FAR_OK;
}

int store_keeper_add(far_pool *pool, far_session *s)
{
    int rc = FAR_OK;
    pthread_mutex_lock(&pool->lock);
    if (!pool->keeper)
        rc = keeper_start(pool);
    pthread_mutex_unlock(&pool->lock);
    if (rc != FAR_OK)
        return rc;
    struct keeper *k = pool->keeper;
    pthread_mutex_lock(&k->lock);
    s->next_kept = k->sessions;
    k->sessions = s;
    pthread_mutex_unlock(&k->lock);
    return FAR_OK;
}

void store_keeper_drop(far_session *s)
{
    struct keeper *k = s->pool->keeper;
    if (!k)
        return;
    client_enter(&s->client); /* and never leaves it: the keeper cannot borrow it again */
    pthread_mutex_lock(&k->lock);
    struct far_session **at = &k->sessions;
    while (*at && *at != s)
        at = &(*at)->next_kept;
    if (*at)
        *at = s->next_kept;
    if (k->next == s)
        k->next = s->next_kept;
    pthread_mutex_unlock(&k->lock);
}

void store_keeper_hurry(far_pool *pool)
{
    struct keeper *k = pool->keeper;
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    if (k->hurry == 0) {
        k->hurry = 2;
        k->round = clock_ns();
        pthread_cond_signal(&k->wakeup);
    }
    pthread_mutex_unlock(&k->lock);
}

void store_keeper_free_in_child(far_pool *pool)
{
    struct keeper *k = pool->keeper;
    for (unsigned i = 0; k && i < LANES; i++)
        if (k->lane[i].fiber && !fiber_running(k->lane[i].fiber))
            fiber_destroy(k->lane[i].fiber);
    free(k);
    pool->keeper = NULL;
}

void store_keeper_stop(far_pool *pool)
{
    struct keeper *k = pool->keeper;
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    k->stop = true;
    pthread_cond_signal(&k->wakeup);
    pthread_mutex_unlock(&k->lock);
    pthread_join(k->thread, NULL);
    pthread_mutex_destroy(&k->lock);
    pthread_cond_destroy(&k->wakeup);
    free(k);
    pool->keeper = NULL;
}
