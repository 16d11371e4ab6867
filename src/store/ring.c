/*
 * The ring: up to `depth` operations of one thread in flight.
 *
 * On a fabric that never waits an operation simply runs within far_submit(). On the others each
 * place of the ring has a fiber: the operation runs until its first flush, far_submit() returns,
 * and far_reap() resumes fibers as their requests complete. Nothing is allocated after the ring's
 * first use.
 *
 * A place is idle, running or finished, and its number is in the list of that name.
 */
#include "store/ring.h"

#include <stdlib.h>

#define STACK_BYTES (64u * 1024)

/* A wait with an end looks this often whether there is something to go on with. */
#define LOOK_NS 20000

/* While others wait for the fabric, one that waits for time to pass must not hold them up. */
#define PAUSE_NS_PENDING 10000

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
    if (!s->slot || !s->idle)
        return fail(FAR_NO_MEMORY, "no memory for a ring of %u", s->depth);
    s->running = s->idle + s->depth;
    s->finished = s->running + s->depth;
    for (unsigned i = 0; i < s->depth; i++) {
        struct ring_slot *slot = &s->slot[i];
        slot->session = s;
        int rc = op_init(&slot->op, &s->client);
        if (rc != FAR_OK)
            return rc;
        slot->op.batch.on_ring = waits;
        slot->op.batch.tap = s->op.batch.tap;
        if (waits && !(slot->fiber = fiber_create(STACK_BYTES, run_slot, slot)))
            return fail(FAR_NO_MEMORY, "no stack for a fiber");
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

int far_submit(far_session *s, const struct far_op *r)
{
    err_begin_ring();
    int rc = store_accepts(s, r);
    if (rc == FAR_OK && !s->slot) {
        client_enter(&s->client); /* the keeper uses the endpoint, too */
        rc = ring_open(s);
        if (rc != FAR_OK)
            ring_close(s);
        client_leave(&s->client);
    }
    if (rc != FAR_OK)
        return err_end(rc);
    if (s->idle_count == 0)
        return err_end(FAR_RING_FULL);
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
    if (done)
        s->finished[s->finished_count++] = i;
    else
        s->running[s->running_count++] = i;
    return err_end(FAR_OK);
}

/* Makes progress: resumes every fiber that can go on. With wait, at least one will have been. */
static void drive(far_session *s, bool wait)
{
    struct fab_ep *ep = s->client.ep;
    bool resumed = false;

    ep->ops->poll(ep, false);
    while (s->running_count > 0) {
        uint64_t now = 0, earliest = UINT64_MAX;
        bool pending = false;
        for (unsigned n = 0; n < s->running_count;) {
            unsigned i = s->running[n];
            struct batch *b = &s->slot[i].op.batch;
            if (b->wake_at != 0) {
                now = now ? now : ep->ops->now(ep);
                if (now < b->wake_at) {
                    earliest = b->wake_at < earliest ? b->wake_at : earliest;
                    n++;
                    continue;
                }
            } else if (!b->req.done) {
                pending = true;
                n++;
                continue;
            }
            resumed = true;
            if (resume(&s->slot[i])) {
                s->running[n] = s->running[--s->running_count];
                s->finished[s->finished_count++] = i;
            } else {
                n++;
            }
        }
        if (resumed || !wait || s->running_count == 0)
            return;
        if (earliest != UINT64_MAX) { /* somebody only waits for time to pass */
            uint64_t ns = earliest - now;
            ep->ops->pause(ep, pending && ns > PAUSE_NS_PENDING ? PAUSE_NS_PENDING : ns);
            ep->ops->poll(ep, false);
        } else {
            ep->ops->poll(ep, true);
        }
    }
}

void ring_drive(struct client *c)
{
    far_session *s = (far_session *)((char *)c - offsetof(struct far_session, client));
    bool (*progress)(void *, const char *, uint64_t, uint64_t) = c->progress;
    c->progress = NULL; /* it is the call's that waits, not theirs */
    if (s->running_count > 0)
        drive(s, false);
    c->progress = progress;
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

/* Is there work to wait for, and are there too few results? */
static bool wanting(const far_session *s, unsigned results)
{
    return s->finished_count < results && s->running_count > 0;
}

static unsigned take_results(far_session *s, struct far_result *results, unsigned max_results)
{
    unsigned count = 0;
    const struct ring_slot *explained = NULL;
    while (count < max_results && s->finished_count > 0) {
        unsigned i = s->finished[--s->finished_count];
        results[count++] = s->slot[i].result;
        explained = s->slot[i].detail[0] ? &s->slot[i] : explained;
        s->idle[s->idle_count++] = i;
    }
    if (explained)
        fail(explained->result.status, "%s", explained->detail);
    else
        err_end(FAR_OK);
    return count;
}

/* Does an operation run right now? Of use in a child of fork() only. */
bool ring_running(const far_session *s)
{
    for (unsigned i = 0; s->slot && i < s->depth; i++)
        if (s->slot[i].fiber && fiber_running(s->slot[i].fiber))
            return true;
    return false;
}

/* Can results be reaped from it at all? What is wrong is kept as detail. */
static bool reapable(const far_session *s, const struct far_result *results, unsigned max_results)
{
    err_begin_ring();
    if (store_check(s) != FAR_OK || !s->slot || max_results == 0)
        return false;
    if (!results)
        store_null("results");
    return results != NULL;
}

unsigned far_reap(far_session *s, struct far_result *results, unsigned max_results,
                  unsigned min_results)
{
    if (!reapable(s, results, max_results))
        return 0;
    if (wanting(s, max_results))
        drive(s, false);
    while (wanting(s, min_results < max_results ? min_results : max_results))
        drive(s, true);
    return take_results(s, results, max_results);
}

unsigned far_reap_within(far_session *s, struct far_result *results, unsigned max_results,
                         unsigned min_results, uint64_t timeout_ns)
{
    if (!reapable(s, results, max_results))
        return 0;
    struct fab_ep *ep = s->client.ep;
    uint64_t began = ep->ops->now(ep), waited = 0;
    if (wanting(s, max_results))
        drive(s, false);
    while (wanting(s, min_results < max_results ? min_results : max_results) &&
           waited < timeout_ns) {
        uint64_t left = timeout_ns - waited;
        ep->ops->pause(ep, left < LOOK_NS ? left : LOOK_NS);
        drive(s, false);
        waited = ep->ops->now(ep) - began;
    }
    return take_results(s, results, max_results);
}

void ring_close(far_session *s)
{
    while (s->running_count > 0)
        drive(s, true);
    ring_abandon(s);
}

void ring_abandon(far_session *s)
{
    for (unsigned i = 0; s->slot && i < s->depth; i++) {
        fiber_destroy(s->slot[i].fiber);
        if (s->slot[i].op.client)
            op_free(&s->slot[i].op);
    }
    free(s->slot);
    free(s->idle);
    s->slot = NULL;
    s->idle = s->running = s->finished = NULL;
    s->idle_count = s->running_count = s->finished_count = 0;
}
