/* A pool with one client and one op, on a fabric that the test keeps: for tests below the store. */
#ifndef TESTS_POOL_RIG_H
#define TESTS_POOL_RIG_H

#include "pool/pool_internal.h"

#include <string.h>

struct pool_rig {
    struct fab *fab;
    bool owns_fab;
    struct pool pool;
    struct fab_ep *ep;
    struct client client;
    struct op op;
};

/* A client of the pool that is on the fabric, or of a new one. Returns a status instead of failing
 * the test: it is also called by threads, where cmocka's asserts do not work. */
static inline int pool_rig_join(struct pool_rig *r, struct fab *fab, uint64_t seed)
{
    memset(r, 0, sizeof *r);
    r->fab = fab;
    int rc = pool_open(fab, NULL, &r->pool);
    if (rc != FAR_OK)
        return rc;
    rc = fab->ops->ep_open(fab, &r->ep);
    if (rc != FAR_OK)
        return rc;
    rc = client_open(&r->pool, r->ep, seed, &r->client);
    if (rc != FAR_OK) {
        r->ep->ops->ep_close(r->ep);
        return rc;
    }
    return op_init(&r->op, &r->client);
}

static inline void pool_rig_open(struct pool_rig *r, const char *uri)
{
    struct fab *fab = NULL;

    ASSERT(fab_open(uri, &fab) == FAR_OK);
    if (fab->lease_ms == 0) /* unless the test says otherwise, no client is taken for dead */
        fab->lease_ms = 60000;
    ASSERT(pool_rig_join(r, fab, 1) == FAR_OK);
    r->owns_fab = true;
}

static inline void pool_rig_close(struct pool_rig *r)
{
    op_free(&r->op);
    client_close(&r->client);
    r->ep->ops->ep_close(r->ep);
    if (r->owns_fab)
        fab_close(r->fab);
}

static inline uint64_t pool_rig_get(struct pool_rig *r, unsigned node, uint64_t off)
{
    batch_read(&r->op.batch, gaddr_make(node, 0), off, r->op.word, 8);
    ASSERT(batch_flush(&r->op.batch) == FAR_OK);
    return r->op.word[0];
}

static inline void pool_rig_set(struct pool_rig *r, unsigned node, uint64_t off, uint64_t value)
{
    r->op.word[0] = value;
    batch_write(&r->op.batch, MARK_EARLY, gaddr_make(node, 0), off, r->op.word, 8);
    ASSERT(batch_flush(&r->op.batch) == FAR_OK);
}

#endif
