/* One endpoint of a fabric with a batch and a buffer: what nearly every fabric test starts from. */
#ifndef TESTS_FABRIC_RIG_H
#define TESTS_FABRIC_RIG_H

#include "fabric/batch.h"

#include <stdlib.h>
#include <string.h>

/* cmocka last, because it has a macro fail(). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#if defined(__has_feature)
#define RIG_FEATURE(x) __has_feature(x)
#else
#define RIG_FEATURE(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) ||                               \
    RIG_FEATURE(thread_sanitizer) || RIG_FEATURE(address_sanitizer)
#define RIG_SANITIZED 50 /* that many times fewer repetitions */
#else
#define RIG_SANITIZED 1
#endif
#ifndef RIG_NETWORK
#define RIG_NETWORK 1 /* a test of a slow fabric says how many times fewer it will have */
#endif
#define RIG_SLOW (RIG_SANITIZED * RIG_NETWORK)

#define RIG_BUF_BYTES (4u << 20)

struct rig {
    struct fab *fab;
    struct fab_ep *ep;
    struct cost cost;
    uint64_t *buf; /* RIG_BUF_BYTES that verbs may name */
    struct batch b;
};

/* An endpoint on an open fabric. Aborts where it cannot: it is also called by threads, where
 * cmocka's asserts do not work. */
static inline struct rig *rig_on(struct fab *fab)
{
    struct rig *r = calloc(1, sizeof *r);

    ASSERT(r);
    r->fab = fab;
    ASSERT(fab->ops->ep_open(fab, &r->ep) == FAR_OK);
    r->buf = fab->ops->buf_alloc(r->ep, RIG_BUF_BYTES);
    ASSERT(r->buf);
    batch_init(&r->b, r->ep, &r->cost);
    return r;
}

/* Frees the endpoint and leaves the fabric open. */
static inline void rig_free(struct rig *r)
{
    r->fab->ops->buf_free(r->ep, r->buf, RIG_BUF_BYTES);
    r->fab->ops->ep_close(r->ep);
    free(r);
}

static inline void rig_flush(struct rig *r)
{
    ASSERT(batch_flush(&r->b) == FAR_OK);
}

/* Words by their own round trips, through the last words of the buffer. */
static inline uint64_t *rig_scratch(struct rig *r)
{
    return r->buf + RIG_BUF_BYTES / 8 - 8;
}

static inline uint64_t rig_get(struct rig *r, gaddr at, uint64_t delta)
{
    batch_read(&r->b, at, delta, rig_scratch(r), 8);
    rig_flush(r);
    return *rig_scratch(r);
}

static inline void rig_set(struct rig *r, gaddr at, uint64_t delta, uint64_t value)
{
    *rig_scratch(r) = value;
    batch_write(&r->b, MARK_EARLY, at, delta, rig_scratch(r), 8);
    rig_flush(r);
}

/* Shuts a client out, however long it takes. */
static inline int rig_fence(struct rig *r, uint64_t client)
{
    int rc;

    while ((rc = r->ep->ops->fence(r->ep, client)) == FAB_PENDING)
        r->ep->ops->pause(r->ep, 20000);
    return rc;
}

/* Makes a node refuse older views, however long it takes. */
static inline int rig_fence_view(struct rig *r, unsigned node, uint32_t view)
{
    int rc;

    while ((rc = r->ep->ops->fence_view(r->ep, node, view)) == FAB_PENDING)
        r->ep->ops->pause(r->ep, 20000);
    return rc;
}

/* Keeps the next verb, of class `second`, behind those before it, of class `first` and to the
 * same node: by the fabric's promise where it makes one, by a fence where not. */
static inline void rig_ordered(struct rig *r, enum fab_class first, enum fab_class second)
{
    if (!(r->fab->order & ORDER(first, second)))
        batch_fence(&r->b);
}

#endif
