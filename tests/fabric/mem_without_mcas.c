/* The conformance suite on a mem: without masked CAS, which batches must emulate. */
#include "fabric/conformance.h"

static struct fab_ops poorer_ops;
static int (*mem_post)(struct fab_ep *ep, struct fab_req *req);

static int poorer_post(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count; i++)
        ASSERT(req->verbs[i].kind != FAB_MCAS);
    return mem_post(ep, req);
}

static int open_poorer(struct fab **fab)
{
    int rc = fab_open("mem:?size=8m&nodes=2", fab);

    if (rc)
        return rc;
    mem_post = (*fab)->ops->post;
    poorer_ops = *(*fab)->ops;
    poorer_ops.post = poorer_post;
    (*fab)->ops = &poorer_ops;
    (*fab)->caps &= ~FAB_CAP_MCAS;
    return FAR_OK;
}

int main(void)
{
    return conformance("mem: without masked CAS", open_poorer);
}
