#include "bench/bare.h"
#include "base/rng.h"
#include "model/model.h"

#include <stdlib.h>

struct bare {
    struct fab *fab;
    struct bare_verbs verbs;
    struct rng rng;
    uint64_t from, to; /* when it began and ended */
    int status;
};

static void post_all(const struct bare *b, struct fab_ep *ep, struct fab_verb *verbs,
                     struct fab_req *reqs, struct rng *rng)
{
    uint64_t places = b->verbs.one_place ? 1 : (b->fab->size[0] - b->verbs.bytes) / 8;
    for (unsigned i = 0; i < b->verbs.outstanding; i++) {
        verbs[i].off = rng_below(rng, places) * 8;
        reqs[i] = (struct fab_req){.verbs = &verbs[i], .count = 1};
        ASSERT(ep->ops->post(ep, &reqs[i]) == FAR_OK);
    }
}

static void await_all(const struct bare *b, struct fab_ep *ep, const struct fab_req *reqs)
{
    for (unsigned i = 0; i < b->verbs.outstanding; i++)
        while (!reqs[i].done)
            ep->ops->poll(ep, true);
}

static void client(void *arg)
{
    struct bare *b = arg;
    struct fab_ep *ep = NULL;
    const struct bare_verbs *v = &b->verbs;
    uint8_t flags = v->kind == FAB_CAS ? MARK_LOCK : MARK_NONE;
    struct fab_verb *verbs = calloc(v->outstanding, sizeof *verbs);
    struct fab_req *reqs = calloc(v->outstanding, sizeof *reqs);
    char *buf = NULL;
    b->status = verbs && reqs ? b->fab->ops->ep_open(b->fab, &ep) : FAR_NO_MEMORY;
    if (b->status == FAR_OK && !(buf = ep->ops->buf_alloc(ep, v->bytes)))
        b->status = FAR_NO_MEMORY;
    for (unsigned i = 0; b->status == FAR_OK && i < v->outstanding; i++)
        verbs[i] = (struct fab_verb){
            .kind = (uint8_t)v->kind, .flags = flags, .len = v->bytes, .buf = buf};
    b->from = model_now(b->fab);
    for (unsigned i = 0; b->status == FAR_OK && i < v->rounds; i++) {
        post_all(b, ep, verbs, reqs, &b->rng);
        await_all(b, ep, reqs);
    }
    b->to = model_now(b->fab);
    if (buf)
        ep->ops->buf_free(ep, buf, v->bytes);
    if (ep)
        ep->ops->ep_close(ep);
    free(reqs);
    free(verbs);
}

int bare_rate(const char *uri, const struct bare_verbs *verbs, double *rate)
{
    struct model_shape shape;
    struct fab *fab = NULL;
    int rc = model_shape(uri, &shape);
    if (rc == FAR_OK)
        rc = model_open(uri, &fab);
    if (rc != FAR_OK)
        return rc;
    unsigned count = shape.machines * shape.threads;
    struct bare *all = calloc(count, sizeof *all);
    rc = all ? FAR_OK : err_fail(FAR_NO_MEMORY, "no memory for %u clients", count);
    for (unsigned i = 0; i < count && rc == FAR_OK; i++) {
        all[i] = (struct bare){.fab = fab, .verbs = *verbs};
        rng_seed(&all[i].rng, i + 1);
    }
    if (rc == FAR_OK)
        rc = model_run(fab, client, all, sizeof *all, NULL, NULL);
    *rate = 0;
    for (unsigned i = 0; i < count && rc == FAR_OK; i++) {
        rc = all[i].status;
        *rate +=
            (double)verbs->outstanding * verbs->rounds * 1000 / (double)(all[i].to - all[i].from);
    }
    free(all);
    fab_close(fab);
    return rc;
}
