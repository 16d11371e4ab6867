#include "bench/crew.h"
#include "base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TICK_NS 100000000

enum phase { OPENING, RUNNING, CLOSING };

struct crew {
    const struct crew_job *job;
    pthread_mutex_t lock;
    pthread_cond_t arrival, departure;
    enum phase phase;
    unsigned arrived;
    int status; /* of the first member that failed to open */
    char detail[256];
};

struct hand {
    struct crew *crew;
    void *member;
    pthread_t thread;
};

/* Says that this thread has done its part of the phase, and waits for the next one. */
static void arrive(struct crew *c, int status, enum phase next)
{
    pthread_mutex_lock(&c->lock);
    if (status != FAR_OK && c->status == FAR_OK) {
        c->status = status;
        snprintf(c->detail, sizeof c->detail, "%s", far_error_detail());
    }
    c->arrived++;
    pthread_cond_signal(&c->arrival);
    while (c->phase < next)
        pthread_cond_wait(&c->departure, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

static void *hand_main(void *arg)
{
    struct hand *h = arg;
    struct crew *c = h->crew;

    arrive(c, c->job->open(h->member), RUNNING);
    if (c->status == FAR_OK) /* nobody writes it after the first phase */
        c->job->run(h->member);
    arrive(c, FAR_OK, CLOSING);
    c->job->close(h->member);
    return NULL;
}

static void wait_for_all(struct crew *c, unsigned count, bool ticking)
{
    pthread_mutex_lock(&c->lock);
    while (c->arrived < count) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += TICK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&c->arrival, &c->lock, &until);
        if (ticking)
            c->job->tick(c->job->arg);
    }
    pthread_mutex_unlock(&c->lock);
}

static void go_on(struct crew *c, enum phase phase)
{
    pthread_mutex_lock(&c->lock);
    c->phase = phase;
    c->arrived = 0;
    pthread_cond_broadcast(&c->departure);
    pthread_mutex_unlock(&c->lock);
}

/* Notes a failure of the whole, while all members wait. */
static void note(struct crew *c, int status)
{
    if (status == FAR_OK || c->status != FAR_OK)
        return;
    c->status = status;
    snprintf(c->detail, sizeof c->detail, "%s", far_error_detail());
}

/* Waits for the other processes of the company, if there is one. */
static int meet(struct crew *c)
{
    if (c->status != FAR_OK)
        (void)err_fail(c->status, "%s", c->detail);
    return c->job->meet != NULL ? c->job->meet(c->job->meeting, c->status) : FAR_OK;
}

int crew_run(const struct crew_job *job, void *const *members, unsigned count)
{
    struct crew crew = {.job = job};
    struct hand *hands = calloc(count, sizeof *hands);
    if (hands == NULL)
        return err_fail(FAR_NO_MEMORY, "%u threads", count);

    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&crew.lock, NULL);
    pthread_cond_init(&crew.arrival, &monotonic);
    pthread_cond_init(&crew.departure, NULL);
    pthread_condattr_destroy(&monotonic);

    unsigned started = 0;
    int error = 0;
    while (started < count && error == 0) {
        hands[started] = (struct hand){.crew = &crew, .member = members[started]};
        error = pthread_create(&hands[started].thread, NULL, hand_main, &hands[started]);
        started += error == 0;
    }
    wait_for_all(&crew, started, false);
    if (error != 0)
        note(&crew, err_fail(FAR_SYSTEM, "cannot start thread %u: %s", started, strerror(error)));
    note(&crew, meet(&crew));
    go_on(&crew, RUNNING);
    wait_for_all(&crew, started, job->tick != NULL);
    (void)meet(&crew);
    go_on(&crew, CLOSING);
    for (unsigned i = 0; i < started; i++)
        pthread_join(hands[i].thread, NULL);

    pthread_cond_destroy(&crew.departure);
    pthread_cond_destroy(&crew.arrival);
    pthread_mutex_destroy(&crew.lock);
    free(hands);
    return crew.status != FAR_OK ? err_fail(crew.status, "%s", crew.detail) : FAR_OK;
}
