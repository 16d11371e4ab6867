#include "bench/bare.h"
#include "base/rng.h"
#include "model/model.h"

#include <stdlib.h>

struct bare {
    struct fab *fab;
    enum fab_kind kind;
    unsigned outstanding, bytes, rounds;
    struct rng rng;
    uint64_t from, to; /* when it began and ended */
    int status;
};

static void post_all(const struct bare *b, struct fab_ep *ep, struct fab_verb *verbs,
                     struct fab_req *reqs, struct rng *rng)
{
    uint64_t places = (b->fab->size[0] - b->bytes) / 8;
    for (unsigned i = 0; i < b->outstanding; i++) {
        verbs[i].off = rng_below(rng, places) * 8;
        reqs[i] = (struct fab_req){.verbs = &verbs[i], .count = 1};
        ASSERT(ep->ops->post(ep, &reqs[i]) == FAR_OK);
    }
}

static void await_all(const struct bare *b, struct fab_ep *ep, const struct fab_req *reqs)
{
    for (unsigned i = 0; i < b->outstanding; i++)
        while (!reqs[i].done)
            ep->ops->poll(ep, true);
}

static void client(void *arg)
{
    struct bare *b = arg;
    struct fab_ep *ep = NULL;
    struct fab_verb *verbs = calloc(b->outstanding, sizeof *verbs);
    struct fab_req *reqs = calloc(b->outstanding, sizeof *reqs);
    char *buf = NULL;
    b->status = verbs && reqs ? b->fab->ops->ep_open(b->fab, &ep) : FAR_NO_MEMORY;
    if (b->status == FAR_OK && !(buf = ep->ops->buf_alloc(ep, b->bytes)))
        b->status = FAR_NO_MEMORY;
    for (unsigned i = 0; b->status == FAR_OK && i < b->outstanding; i++)
        verbs[i] = (struct fab_verb){.kind = (uint8_t)b->kind, .len = b->bytes, .buf = buf};
    b->from = model_now(b->fab);
    for (unsigned i = 0; b->status == FAR_OK && i < b->rounds; i++) {
        post_all(b, ep, verbs, reqs, &b->rng);
        await_all(b, ep, reqs);
    }
    b->to = model_now(b->fab);
    if (buf)
        ep->ops->buf_free(ep, buf, b->bytes);
    if (ep)
        ep->ops->ep_close(ep);
    free(reqs);
    free(verbs);
}

int bare_rate(const char *uri, enum fab_kind kind, unsigned outstanding, unsigned bytes,
              unsigned rounds, double *rate)
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
        all[i] = (struct bare){
            .fab = fab, .kind = kind, .outstanding = outstanding, .bytes = bytes, .rounds = rounds};
        rng_seed(&all[i].rng, i + 1);
    }
    if (rc == FAR_OK)
        rc = model_run(fab, client, all, sizeof *all, NULL, NULL);
    *rate = 0;
    for (unsigned i = 0; i < count && rc == FAR_OK; i++) {
        rc = all[i].status;
        *rate += (double)outstanding * rounds * 1000 / (double)(all[i].to - all[i].from);
    }
    free(all);
    fab_close(fab);
    return rc;
}
