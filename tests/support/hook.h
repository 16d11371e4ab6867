/* Replaces an endpoint's functions, so that a test sees every post, and drives the clock. */
#ifndef TESTS_HOOK_H
#define TESTS_HOOK_H

#include "fabric/fabric.h"

#include <string.h>

struct hook {
    struct fab_ep *ep;
    const struct fab_ops *real;
    struct fab_ops ops;
    uint64_t clock; /* what coarse() says, if hook_clock() was called */
};

static struct hook hook; /* one endpoint at a time is enough */

/* The endpoint's functions from now on; change hook.ops as needed. */
static inline void hook_on(struct fab_ep *ep)
{
    hook = (struct hook){.ep = ep, .real = ep->ops, .ops = *ep->ops};
    ep->ops = &hook.ops;
}

static inline void hook_off(void)
{
    hook.ep->ops = hook.real;
}

static inline uint64_t hook_coarse(struct fab_ep *ep)
{
    (void)ep;
    return hook.clock;
}

/* From now on the endpoint's coarse clock stands still, unless the test moves it. */
static inline void hook_clock(void)
{
    hook.clock = hook.real->coarse(hook.ep);
    hook.ops.coarse = hook_coarse;
}

/* A pause that moves that clock on. */
static inline void hook_pause(struct fab_ep *ep, uint64_t ns)
{
    (void)ep;
    hook.clock += ns;
}

/* What was posted since hook_record(). */
static struct {
    struct fab_verb verb[16];
    unsigned count, posts;
} recorded;

static inline int hook_post_recorded(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count && recorded.count < 16; i++)
        recorded.verb[recorded.count++] = req->verbs[i];
    recorded.posts++;
    return hook.real->post(ep, req);
}

/* Hooks the endpoint, and records its first verbs. */
static inline void hook_record(struct fab_ep *ep)
{
    hook_on(ep);
    hook.ops.post = hook_post_recorded;
    memset(&recorded, 0, sizeof recorded);
}

/* Posts for real, and waits. */
static inline void hook_run(struct fab_ep *ep, struct fab_req *req)
{
    ASSERT(hook.real->post(ep, req) == FAR_OK);
    while (!req->done)
        hook.real->poll(ep, true);
}

static inline bool hook_writes(const struct fab_req *req)
{
    for (unsigned i = 0; i < req->count; i++)
        if (req->verbs[i].kind != FAB_READ)
            return true;
    return false;
}

#endif
