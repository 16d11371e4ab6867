/*
 * The keeper: a thread of a pool that sees to sessions which nobody uses.
 *
 * Sessions announce themselves by verbs that ride on their operations; one without operations says
 * nothing, and to others looks like one that has stopped in the middle of something. They would
 * wait for it until its lease has lapsed. So the keeper looks at all sessions of the process now
 * and then, and those that were not used since it last looked it parks: nobody waits for them, and
 * their leases are kept up. A session that is used takes itself back (client_enter()), at the price
 * of a compare-and-swap on a word that only the keeper shares.
 *
 * A session with operations in flight is its own thread's business: if that stops, so does the
 * session's heartbeat.
 */
#include "store/keeper.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOKS_PER_LEASE 16
#define PERIOD_NS_MOST  250000000ull

struct keeper {
    pthread_t thread;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t bell;
    uint64_t period_ns;
    bool stop;
    struct far_session *sessions;
};

static void look_after(struct far_session *s)
{
    struct client *c = &s->client;
    uint64_t turn = atomic_load_explicit(&c->turn, memory_order_relaxed);
    if (turn != s->turn_seen || !client_borrow(c, turn)) {
        s->turn_seen = turn;
        return;
    }
    if (!c->parked || client_heartbeat_due(c))
        (void)client_park(&s->op); /* what went wrong, the next operation will find out */
    client_return(c, turn);
}

static void *keep(void *arg)
{
    struct keeper *k = arg;

    pthread_mutex_lock(&k->lock);
    while (!k->stop) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        uint64_t ns = (uint64_t)until.tv_nsec + k->period_ns;
        until.tv_sec += (time_t)(ns / 1000000000);
        until.tv_nsec = (long)(ns % 1000000000);
        pthread_cond_timedwait(&k->bell, &k->lock, &until);
        for (struct far_session *s = k->sessions; s && !k->stop; s = s->next_kept)
            look_after(s);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

/* Signals are for the threads of the application. */
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
        return fail(FAR_NO_MEMORY, "no memory for a keeper of sessions");
    k->period_ns = pool->pool.head[0].lease_ms * 1000000ull / LOOKS_PER_LEASE;
    if (k->period_ns > PERIOD_NS_MOST)
        k->period_ns = PERIOD_NS_MOST;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&k->bell, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&k->lock, NULL);
    int error = start_thread(k);
    if (error != 0) {
        pthread_mutex_destroy(&k->lock);
        pthread_cond_destroy(&k->bell);
        free(k);
        return fail(FAR_SYSTEM, "cannot start a keeper of sessions: %s", strerror(error));
    }
    pool->keeper = k;
    return FAR_OK;
}

int keeper_add(far_pool *pool, far_session *s)
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

void keeper_drop(far_session *s)
{
    struct keeper *k = s->pool->keeper;
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    struct far_session **at = &k->sessions;
    while (*at && *at != s)
        at = &(*at)->next_kept;
    if (*at)
        *at = s->next_kept;
    pthread_mutex_unlock(&k->lock);
}

void keeper_stop(far_pool *pool)
{
    struct keeper *k = pool->keeper;
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    k->stop = true;
    pthread_cond_signal(&k->bell);
    pthread_mutex_unlock(&k->lock);
    pthread_join(k->thread, NULL);
    pthread_mutex_destroy(&k->lock);
    pthread_cond_destroy(&k->bell);
    free(k);
    pool->keeper = NULL;
}
