/*
 * A script of verbs: a test tells an interleaving in the order in which it happens.
 *
 * An actor is a session whose operation can stop at any of its verbs. Meanwhile the test does what
 * it likes, also with other actors. Then the operation goes on, or fails, or its client dies.
 *
 *     static int put_one(struct actor *a, uint64_t key, uint64_t value);    calls far_put(a->s..)
 *
 *     actor_reach(&A, (struct place){A_WRITE, .nth = 3}, put_one, 5, 7);    two WRITEs of A happen
 *     actor_reach(&B, (struct place){.waits = true}, put_one, 5, 8);        B finds A's lock
 *     actor_kill(&A);                                                       the third never happens
 *     expect_ok(actor_go_on(&B));
 *     expect_ok(get_one(&C, 5, 8));                                         without any stop
 *
 * Each operation of an actor has a stack of its own, a fiber. It must not assert: it returns its
 * status, and the test asserts. While an actor acts, its clock is its own, and stands still when it
 * is stopped: it does not notice that its lease has passed. Nor do others notice how long it waits.
 */
#ifndef TESTS_VERB_SCRIPT_H
#define TESTS_VERB_SCRIPT_H

#include "base/fiber.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define expect_ok(call) assert_int_equal(call, FAR_OK)
#define TEST(name)      static void name(void **state __attribute__((unused)))

/* ---- places ---------------------------------------------------------------------------------- */

enum verb_kind { ANY_VERB, A_READ, A_WRITE, A_CAS, A_MCAS, A_FAA };
enum stop_side { BEFORE, AFTER, BEFORE_REQUEST, AFTER_REQUEST }; /* a request is a batch of verbs */

/* Where an actor stops: at the verb that all fields fit. Fields that are 0 fit any verb. */
struct place {
    enum verb_kind kind;
    unsigned nth; /* such verb of the operation, from 1; 0: the first */
    enum stop_side side;
    unsigned then;         /* stop this many verbs of the request later */
    gaddr of;              /* The verb begins at of + delta, or less than `bytes` behind that; */
    uint64_t delta, bytes; /* bytes 0: anywhere. */
    uint32_t len;          /* of the verb */
    unsigned least;        /* verbs of its request */
    bool first;            /* the request begins with it */
    bool (*is)(const struct fab_req *req, unsigned verb);
    bool waits; /* no verb, but a pause */
    bool each;  /* and again at the next one, until the operation ends */
};

static inline bool place_is(const struct place *p, const struct fab_req *req, unsigned i)
{
    const struct fab_verb *v = &req->verbs[i];
    bool there = p->bytes == 0 || (v->node == gaddr_node(p->of) &&
                                   v->off - gaddr_offset(p->of) - p->delta < p->bytes);
    return (p->kind == ANY_VERB || v->kind == p->kind - A_READ + FAB_READ) && there &&
           (p->len == 0 || v->len == p->len) && req->count >= p->least && (i == 0 || !p->first) &&
           (!p->is || p->is(req, i));
}

/* The operation runs to its end. */
#define NOWHERE ((struct place){.is = place_never})
static inline bool place_never(const struct fab_req *req, unsigned verb)
{
    (void)req;
    (void)verb;
    return false;
}

/* ---- actors ---------------------------------------------------------------------------------- */

#define STOPPED 1 /* instead of the operation's status, which is never positive */

struct actor;
typedef int deed(struct actor *a, uint64_t key, uint64_t value);

struct actor {
    struct driven_clock own; /* its endpoint's functions and time while it acts; first */
    const struct fab_ops *real;
    struct store_rig *r;
    far_session *s; /* NULL: it is dead */
    far_table *t;
    uint64_t found; /* for deeds that find something */
    struct place place;
    struct fab_req *req;   /* in which it is stopped; NULL: in a pause */
    struct fab_verb *verb; /* at which it is stopped */
    unsigned next;         /* verb of the request that has not happened yet */
    unsigned seen;         /* verbs of the request that were compared with the place */
    enum { GOES_ON, ANSWERED, REFUSED } how;
    int answer, rc;
    bool torn, dead;
    struct fiber *fiber;
    deed *act;
    uint64_t key, value;
};

/* The actor uses this session. */
static inline void actor_set(struct actor *a, struct store_rig *r, far_session *s, far_table *t)
{
    struct fiber *fiber = a->fiber;
    *a = (struct actor){.r = r, .s = s, .t = t, .fiber = fiber};
}

/* Some more verbs of the request happen. */
static inline int actor_do(struct actor *a, unsigned count)
{
    struct fab_req *req = a->req;
    struct fab_verb *all = req->verbs;
    unsigned of = req->count;
    if (count == 0)
        return FAR_OK;
    req->verbs = all + a->next;
    req->count = count;
    req->done = false;
    int rc = a->real->post(a->s->client.ep, req);
    req->verbs = all;
    req->count = of;
    a->next += count;
    return rc;
}

static inline void actor_pass_place(struct actor *a)
{
    if (!a->place.each)
        a->place = NOWHERE;
}

/* How many verbs of the request happen before it stops again; more than it has: it does not. */
static inline unsigned actor_stops_at(struct actor *a)
{
    for (; a->seen < a->req->count; a->seen++) {
        unsigned i = a->seen;
        if (a->place.waits || !place_is(&a->place, a->req, i) ||
            (a->place.nth > 1 && a->place.nth-- > 1))
            continue;
        unsigned end = a->place.side == BEFORE           ? i
                       : a->place.side == AFTER          ? i + 1
                       : a->place.side == BEFORE_REQUEST ? 0
                                                         : a->req->count;
        end += a->place.then;
        ASSERT(end >= a->next && end <= a->req->count);
        a->verb = &a->req->verbs[i];
        a->seen = a->place.side > AFTER ? a->req->count : i + 1;
        actor_pass_place(a);
        return end;
    }
    return UINT32_MAX;
}

static inline int actor_post(struct fab_ep *ep, struct fab_req *req)
{
    struct actor *a = (struct actor *)(uintptr_t)ep->ops;
    int rc = FAR_OK;
    if (a->dead)
        return FAR_UNREACHABLE;
    a->req = req;
    a->next = a->seen = 0;
    a->torn = false;
    for (unsigned end; rc == FAR_OK && (end = actor_stops_at(a)) <= req->count;) {
        rc = actor_do(a, end - a->next);
        if (rc != FAR_OK)
            break;
        a->how = GOES_ON;
        fiber_yield();
        if (a->how == REFUSED)
            return a->answer;
        if (a->how == ANSWERED) {
            req->done = true;
            req->status = a->answer;
            return FAR_OK;
        }
    }
    return rc == FAR_OK ? actor_do(a, req->count - a->next) : rc;
}

/* Time passes for all others only if the actor stops here. */
static inline void actor_pause(struct fab_ep *ep, uint64_t ns)
{
    struct actor *a = (struct actor *)(uintptr_t)ep->ops;
    a->own.now += ns;
    if (!a->place.waits || a->dead)
        return;
    a->r->clock->now += ns;
    actor_pass_place(a);
    a->req = NULL;
    a->next = 0;
    fiber_yield();
}

static inline void actor_act(void *arg)
{
    struct actor *a = arg;
    a->rc = a->act(a, a->key, a->value);
}

/* Until it stops or ends. */
static inline int actor_run(struct actor *a)
{
    fiber_resume(a->fiber);
    if (!fiber_finished(a->fiber))
        return STOPPED;
    a->s->client.ep->ops = a->real;
    return a->rc;
}

/* Begins an operation, and returns STOPPED at the place, or the status if it never comes there. */
static inline int actor_begin(struct actor *a, struct place place, deed *act, uint64_t key,
                              uint64_t value)
{
    ASSERT(a->r->clock);
    ASSERT(!a->fiber || fiber_finished(a->fiber));
    a->real = a->s->client.ep->ops;
    a->own = (struct driven_clock){.ops = *a->real, .now = a->r->clock->now};
    a->own.ops.post = actor_post;
    a->own.ops.pause = actor_pause;
    a->s->client.ep->ops = &a->own.ops;
    a->place = place;
    a->dead = false;
    a->act = act;
    a->key = key;
    a->value = value;
    if (a->fiber)
        fiber_reset(a->fiber, actor_act, a);
    else
        ASSERT((a->fiber = fiber_create(1u << 20, actor_act, a)));
    return actor_run(a);
}

/* Begins an operation, which must come to the place. */
#define actor_reach(a, ...) assert_int_equal(actor_begin(a, __VA_ARGS__), STOPPED)

/* ---- what a stopped actor does next. Each returns the operation's status, or STOPPED again --- */

static inline int actor_go_on(struct actor *a)
{
    return actor_run(a);
}

/* To another place. */
static inline int actor_go_until(struct actor *a, struct place place)
{
    a->place = place;
    return actor_run(a);
}

/* The rest of its request does not happen, and is answered by this status. */
static inline int actor_answer(struct actor *a, int status)
{
    a->how = ANSWERED;
    a->answer = status;
    return actor_run(a);
}

/* Nothing of its request happens, and the client knows it. */
static inline int actor_refuse(struct actor *a, int status)
{
    ASSERT(a->next == 0);
    a->how = REFUSED;
    a->answer = status;
    return actor_run(a);
}

/* No other verb of its operation happens. */
static inline int actor_abort(struct actor *a)
{
    if (!a->fiber || fiber_finished(a->fiber))
        return FAR_OK;
    a->dead = true;
    a->how = a->next > 0 || a->torn ? ANSWERED : REFUSED;
    a->answer = a->how == ANSWERED ? FAR_UNKNOWN : FAR_UNREACHABLE;
    int rc = actor_run(a);
    ASSERT(rc != STOPPED);
    return rc;
}

/* The same, and the client is dead: its slot and all it has stay as they are. */
static inline int actor_kill(struct actor *a)
{
    int rc = actor_abort(a);
    store_rig_kill(a->s);
    a->s = NULL;
    return rc;
}

/* ---- verb by verb ---------------------------------------------------------------------------- */

/* The next verb of its request happens. False: all have. */
static inline bool actor_step(struct actor *a)
{
    if (a->next == a->req->count)
        return false;
    assert_int_equal(actor_do(a, 1), FAR_OK);
    return true;
}

/* Half of the next verb happens, if that is a WRITE of more than a word. */
static inline void actor_tear(struct actor *a)
{
    struct fab_verb *v = &a->req->verbs[a->next];
    uint32_t len = v->len;
    if (v->kind != FAB_WRITE || len <= 8)
        return;
    v->len = len / 16 * 8;
    assert_int_equal(actor_do(a, 1), FAR_OK);
    v->len = len;
    a->next--;
    a->torn = true;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Its session is closed, unless it is the rig's. A test that has failed may leave it stopped. */
static inline void actor_leave(struct actor *a)
{
    (void)actor_abort(a);
    if (a->s && a->s != a->r->session)
        far_session_close(a->s);
    a->s = NULL;
    fiber_destroy(a->fiber);
    a->fiber = NULL;
}

#endif
