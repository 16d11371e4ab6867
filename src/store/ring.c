/*
 * The ring: up to `depth` operations of one thread in flight.
 *
 * On a fabric that never waits, an operation runs to its end within far_submit(). On other fabrics
 * each place of the ring has a fiber: the operation runs until its first flush, far_submit()
 * returns, and far_reap() resumes fibers as their requests complete. Nothing is allocated after the
 * ring's first use.
 *
 * A place is idle, running or finished, and its number is in the list of that name. Batches keep
 * queues of those that run and can continue (RING-2), so nothing here takes longer with more places
 * running.
 *
 * A session may have a backlog: operations that are submitted while no place is idle wait there,
 * and start in order when results are reaped. So while an operation waits, no place is idle. A
 * waiting operation has done nothing yet, so far_cancel() only has to take it out; its result then
 * waits in a list of its own. Waiting and cancelled operations together never exceed the backlog.
 */
#include "store/ring.h"

#include "store/store_internal.h"
#include "store/wait.h"

#include <stdlib.h>

#define STACK_BYTES (64u * 1024)

/* How often far_reap_within() looks for something to continue with. */
#define LOOK_NS 20000

/* How often in a row the fabric is polled until it can be armed. After that the user's loop comes
 * first. */
#define ARM_TRIES 16

/* An operation that waits for time to pass must not hold up those that wait for the fabric. */
#define PAUSE_NS_PENDING 1000

static void run_slot(void *arg)
{
    struct ring_slot *slot = arg;
    int rc = store_run(slot->session, &slot->op, &slot->request, &slot->result);
    err_end(rc);
    err_take(slot->detail);
}

static int ring_open(far_session *s)
{
    bool waits = !(s->pool->fab->caps & FAB_CAP_IMMEDIATE);
    s->slot = calloc(s->depth, sizeof *s->slot);
    s->idle = calloc(3ull * s->depth, sizeof *s->idle);
    s->ring.pausing = calloc(s->depth, sizeof(struct batch *));
    if (!s->slot || !s->idle || !s->ring.pausing)
        return err_fail(FAR_NO_MEMORY, "no memory for a ring of %u", s->depth);
    if (s->backlog > 0) {
        s->waiting = calloc(s->backlog, sizeof *s->waiting);
        s->cancelled = calloc(s->backlog, sizeof *s->cancelled);
        if (!s->waiting || !s->cancelled)
            return err_fail(FAR_NO_MEMORY, "no memory for a backlog of %u", s->backlog);
    }
    s->running = s->idle + s->depth;
    s->finished = s->running + s->depth;
    for (unsigned i = 0; i < s->depth; i++) {
        struct ring_slot *slot = &s->slot[i];
        slot->session = s;
        int rc = op_init(&slot->op, &s->client);
        if (rc != FAR_OK)
            return rc;
        slot->op.batch.on_ring = waits;
        slot->op.batch.ring = waits ? &s->ring : NULL;
        slot->op.batch.tap = s->op.batch.tap;
        if (waits && !(slot->fiber = fiber_create(STACK_BYTES, run_slot, slot)))
            return err_fail(FAR_NO_MEMORY, "no stack for a fiber");
        s->idle[s->idle_count++] = i;
    }
    return FAR_OK;
}

/* Runs a slot's fiber until it waits or is done. */
static bool resume(struct ring_slot *slot)
{
    fiber_resume(slot->fiber);
    return fiber_finished(slot->fiber);
}

/* Results that can be taken. */
static unsigned ready(const far_session *s)
{
    return s->finished_count + s->cancelled_count;
}

/* Starts an operation in an idle place. */
static void start(far_session *s, const struct far_op *r)
{
    ASSERT(s->idle_count > 0);
    ASSERT(s->idle_count + s->running_count + s->finished_count == s->depth);
    unsigned i = s->idle[--s->idle_count];
    struct ring_slot *slot = &s->slot[i];
    slot->request = *r;
    bool done = true;
    if (slot->fiber) {
        fiber_reset(slot->fiber, run_slot, slot);
        done = resume(slot);
    } else {
        run_slot(slot);
    }
    if (done) {
        s->finished[s->finished_count++] = i;
    } else {
        slot->at = s->running_count;
        s->running[s->running_count++] = i;
    }
}

/* ---- the backlog ----------------------------------------------------------------------------- */

static int wait_for_place(far_session *s, const struct far_op *r)
{
    ASSERT(s->idle_count == 0 && s->waiting_count + s->cancelled_count <= s->backlog);
    if (s->waiting_count + s->cancelled_count == s->backlog)
        return FAR_RING_FULL;
    s->waiting[(s->waiting_first + s->waiting_count++) % s->backlog] = *r;
    return FAR_OK;
}

/* Starts waiting operations while places are idle. True: it started some. */
static bool start_waiting(far_session *s)
{
    bool some = s->waiting_count > 0 && s->idle_count > 0;
    while (s->waiting_count > 0 && s->idle_count > 0) {
        const struct far_op *r = &s->waiting[s->waiting_first];
        s->waiting_first = (s->waiting_first + 1) % s->backlog;
        s->waiting_count--;
        start(s, r);
    }
    return some;
}

/* Takes the operations with that user_data out of the backlog; the others keep their order. */
static unsigned cancel_waiting(far_session *s, uint64_t user_data)
{
    unsigned kept = 0, count = s->waiting_count;
    for (unsigned i = 0; i < count; i++) {
        struct far_op *r = &s->waiting[(s->waiting_first + i) % s->backlog];
        if (r->user_data == user_data)
            s->cancelled[s->cancelled_count++] = user_data;
        else
            s->waiting[(s->waiting_first + kept++) % s->backlog] = *r;
    }
    s->waiting_count = kept;
    return count - kept;
}

/* Has an operation with that user_data started or been cancelled, and not been reaped? */
static bool is_known(const far_session *s, uint64_t user_data)
{
    bool known = false;
    for (unsigned i = 0; i < s->running_count; i++)
        known |= s->slot[s->running[i]].request.user_data == user_data;
    for (unsigned i = 0; i < s->finished_count; i++)
        known |= s->slot[s->finished[i]].request.user_data == user_data;
    for (unsigned i = 0; i < s->cancelled_count; i++)
        known |= s->cancelled[i] == user_data;
    return known;
}

int far_cancel(far_session *s, uint64_t user_data, unsigned *cancelled)
{
    err_begin();
    int rc = store_check(s);
    if (rc != FAR_OK)
        return err_end(rc);
    unsigned count = cancel_waiting(s, user_data);
    if (count == 0)
        rc = is_known(s, user_data)
                 ? FAR_STARTED
                 : err_fail(FAR_INVALID, "no operation with user_data %llu is to be reaped",
                            (unsigned long long)user_data);
    if (cancelled && rc == FAR_OK)
        *cancelled = count;
    if (s->wait && count > 0)
        store_wait_ring(s->wait);
    return err_end(rc);
}

int far_submit(far_session *s, const struct far_op *r)
{
    err_begin_ring();
    int rc = store_accepts(s, r);
    if (rc == FAR_OK && !s->slot) {
        client_enter(&s->client); /* the keeper uses the endpoint, too */
        rc = ring_open(s);
        if (rc != FAR_OK)
            store_ring_close(s);
        client_leave(&s->client);
    }
    if (rc != FAR_OK)
        return err_end(rc);
    if (s->idle_count == 0)
        return err_end(wait_for_place(s, r));
    store_hold(s);
    start(s, r);
    store_unhold(s);
    if (s->wait)
        store_wait_ring(s->wait);
    return err_end(FAR_OK);
}

/* Continues with a running operation. */
static void proceed(far_session *s, struct batch *b)
{
    struct ring_slot *slot =
        (struct ring_slot *)(void *)((char *)b - offsetof(struct ring_slot, op.batch));
    if (!resume(slot))
        return;
    unsigned last = s->running[--s->running_count];
    s->running[slot->at] = last;
    s->slot[last].at = slot->at;
    s->finished[s->finished_count++] = (unsigned)(slot - s->slot);
}

/* Resumes fibers that can continue, each once or so. True: it resumed some. */
static bool resume_all(far_session *s, uint64_t now)
{
    struct batch *b;
    bool resumed = false;
    for (unsigned n = s->running_count; n > 0 && (b = batch_ring_next(&s->ring, now)); n--) {
        proceed(s, b);
        resumed = true;
    }
    return resumed;
}

/* Resumes every fiber that can continue, and with `wait`, waits for one. True: it resumed some. */
static bool drive(far_session *s, bool wait)
{
    struct fab_ep *ep = s->client.ep;

    ep->ops->poll(ep, false);
    while (s->running_count > 0) {
        uint64_t now = s->ring.pausing_count > 0 ? ep->ops->now(ep) : 0;
        bool resumed = resume_all(s, now);
        if (resumed || !wait)
            return resumed;
        if (s->ring.pausing_count > 0) { /* an operation only waits for time to pass */
            uint64_t ns = batch_ring_wakes(&s->ring) - now;
            bool pending = s->ring.pausing_count < s->running_count;
            ep->ops->pause(ep, pending && ns > PAUSE_NS_PENDING ? PAUSE_NS_PENDING : ns);
            ep->ops->poll(ep, false);
        } else {
            ep->ops->poll(ep, true);
        }
    }
    return false;
}

void store_ring_drive(struct client *c)
{
    far_session *s = (far_session *)((char *)c - offsetof(struct far_session, client));
    bool (*progress)(void *, const char *, uint64_t, uint64_t) = c->progress;
    c->progress = NULL; /* it belongs to the call that waits, not to these operations */
    if (s->running_count > 0)
        drive(s, false);
    c->progress = progress;
    if (s->wait &&
        s->running_count + ready(s) > 0) /* else no far_reap() would take the signal back */
        store_wait_ring(s->wait);
}

/* ---- waiting by a descriptor, see wait.c ----------------------------------------------------- */

/* A call has used the endpoint while operations are running. */
static void endpoint_used(struct client *c)
{
    far_session *s = (far_session *)((char *)c - offsetof(struct far_session, client));
    if (!fiber_current()) /* else one of these operations has ended, within far_reap() */
        store_wait_ring(s->wait);
}

/* Drives operations until all of them wait for the fabric or for time. Makes the descriptor
 * readable when that has come. */
static void arm(far_session *s)
{
    struct fab_ep *ep = s->client.ep;
    uint64_t until = UINT64_MAX;
    bool armed = false;
    for (unsigned i = 0; i < ARM_TRIES && s->running_count > 0 && ready(s) == 0 && !armed; i++)
        armed = !drive(s, false) && ep->ops->arm(ep, &until);
    uint64_t wake = batch_ring_wakes(&s->ring);
    if (ready(s) > 0 || (s->running_count > 0 && !armed))
        store_wait_ring(s->wait);
    else if (s->running_count > 0)
        store_wait_for_fabric(s->wait, wake < until ? wake : until);
    else
        store_wait_for_nothing(s->wait);
}

int far_session_fd(far_session *s, int *fd)
{
    int rc = store_begin(s, fd, "fd");
    if (rc == FAR_OK && !s->wait) {
        rc = store_wait_open(s->client.ep, &s->wait);
        if (rc == FAR_OK)
            s->client.endpoint_used = endpoint_used;
        if (rc == FAR_OK && (s->running_count > 0 || ready(s) > 0))
            store_wait_ring(s->wait);
    }
    if (rc == FAR_OK)
        *fd = store_wait_fd(s->wait);
    return err_end(rc);
}

int far_submit_many(far_session *s, const struct far_op *ops, unsigned count, unsigned *started)
{
    unsigned done = 0;
    err_begin();
    int rc = ops || count == 0 ? store_check(s) : store_null("ops");
    err_end(rc);
    while (rc == FAR_OK && done < count) {
        rc = far_submit(s, &ops[done]);
        done += rc == FAR_OK;
    }
    if (started)
        *started = done;
    return rc;
}

/* Are there too few results, and operations to wait for? */
static bool wanting(const far_session *s, unsigned results)
{
    return ready(s) < results && s->running_count > 0;
}

/* Stores results, and in `why` the detail of the last result that has one. */
static unsigned take_results(far_session *s, struct far_result *results, unsigned max_results,
                             struct err_detail *why)
{
    unsigned count = 0;
    const struct ring_slot *explained = NULL;
    while (count < max_results && s->cancelled_count > 0)
        results[count++] = (struct far_result){.user_data = s->cancelled[--s->cancelled_count],
                                               .status = FAR_STOPPED};
    while (count < max_results && s->finished_count > 0) {
        unsigned i = s->finished[--s->finished_count];
        results[count++] = s->slot[i].result;
        explained = s->slot[i].detail[0] ? &s->slot[i] : explained;
        s->idle[s->idle_count++] = i;
    }
    if (explained) {
        err_fail(explained->result.status, "%s", explained->detail);
        err_keep(why);
    }
    return count;
}

/* For a child of fork(): did an operation run at that moment? */
bool store_ring_running(const far_session *s)
{
    for (unsigned i = 0; s->slot && i < s->depth; i++)
        if (s->slot[i].fiber && fiber_running(s->slot[i].fiber))
            return true;
    return false;
}

/* May results be reaped from it? FAR_INVALID. */
static int check_reap(const far_session *s, const struct far_result *results, unsigned max_results)
{
    err_begin_ring();
    int rc = store_check(s);
    return rc == FAR_OK && !results && max_results > 0 ? store_null("results") : rc;
}

/* Waits until there are `results` results, no operation runs, or the time is over. */
static void await(far_session *s, unsigned results, uint64_t began, uint64_t timeout_ns)
{
    struct fab_ep *ep = s->client.ep;
    uint64_t waited = 0;
    if (timeout_ns == UINT64_MAX) {
        while (wanting(s, results))
            drive(s, true);
        return;
    }
    while (wanting(s, results) && (waited = ep->ops->now(ep) - began) < timeout_ns) {
        uint64_t left = timeout_ns - waited;
        ep->ops->pause(ep, left < LOOK_NS ? left : LOOK_NS);
        drive(s, false);
    }
}

static unsigned reap(far_session *s, struct far_result *results, unsigned max_results,
                     unsigned min_results, uint64_t timeout_ns)
{
    uint64_t began = timeout_ns == UINT64_MAX ? 0 : s->client.ep->ops->now(s->client.ep);
    unsigned least = min_results < max_results ? min_results : max_results, count = 0;
    bool nothing = s->running_count + ready(s) == 0, more;
    struct err_detail why;
    why.shown = false;
    do {
        if (wanting(s, max_results - count))
            drive(s, false);
        await(s, least > count ? least - count : 0, began, timeout_ns);
        count += take_results(s, results + count, max_results - count, &why);
        more = start_waiting(s);
    } while (more && count < max_results);
    if (s->wait && nothing)
        store_wait_turn_off(s->wait);
    if (s->wait)
        arm(s);
    if (why.shown)
        err_restore(&why);
    else
        err_end(FAR_OK);
    return count;
}

int far_reap_within(far_session *s, struct far_result *results, unsigned max_results,
                    unsigned min_results, uint64_t timeout_ns)
{
    int rc = check_reap(s, results, max_results);
    if (rc != FAR_OK || !s->slot || max_results == 0)
        return err_end(rc);
    store_hold(s);
    unsigned count = reap(s, results, max_results, min_results, timeout_ns);
    store_unhold(s);
    return (int)count;
}

int far_reap(far_session *s, struct far_result *results, unsigned max_results, unsigned min_results)
{
    return far_reap_within(s, results, max_results, min_results, UINT64_MAX);
}

void store_ring_close(far_session *s)
{
    do {
        while (s->running_count > 0)
            drive(s, true);
        while (s->finished_count > 0)
            s->idle[s->idle_count++] = s->finished[--s->finished_count];
    } while (start_waiting(s));
    store_ring_free_in_child(s);
}

void store_ring_free_in_child(far_session *s)
{
    for (unsigned i = 0; s->slot && i < s->depth; i++) {
        fiber_destroy(s->slot[i].fiber);
        if (s->slot[i].op.client)
            op_free(&s->slot[i].op);
    }
    free(s->slot);
    free(s->idle);
    free(s->ring.pausing);
    free(s->waiting);
    free(s->cancelled);
    s->slot = NULL;
    s->ring = (struct batch_ring){0};
    s->waiting = NULL;
    s->cancelled = NULL;
    s->idle = s->running = s->finished = NULL;
    s->idle_count = s->running_count = s->finished_count = 0;
    s->waiting_count = s->cancelled_count = 0;
}
