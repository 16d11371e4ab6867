#include "index/refresh.h"

bool index_refresh_again(struct op *op, const struct index_view *view, struct index_refresh *r)
{
    if (r->attempts > 0 && view->refreshes != r->refreshes && !view->cached.stale) {
        r->rc = FAR_OK;
        return false;
    }
    r->rc = FAR_CONTENTION;
    r->refreshes = view->refreshes;
    r->before = client_epoch_view(op->client);
    return r->attempts++ < INDEX_REFRESHES;
}

bool index_refresh_holds(struct op *op, struct index_refresh *r)
{
    ASSERT(r->attempts > 0);
    struct epoch_view now = client_epoch_view(op->client);
    /* An announcement that completed meanwhile has not validated what was read. */
    r->stale = now.announced != r->before.announced;
    return now.newest <= r->before.validated; /* EPOCH-E2 */
}

void index_refresh_end(struct index_view *view, const struct index_refresh *r)
{
    ASSERT(r->attempts > 0);
    view->refreshes++;
    view->cached.version = r->version;
    view->cached.stale = r->stale;
}

int index_refresh_root(struct op *op, struct index_view *view, uint32_t bytes)
{
    uint64_t root[INDEX_ROOT_MAX / 8];
    struct index_refresh r = {0};
    ASSERT(bytes <= sizeof root);
    while (index_refresh_again(op, view, &r)) {
        int rc = index_read_confirmed(op, view, root, bytes, &r.version);
        if (rc != FAR_OK)
            return rc;
        if (index_refresh_holds(op, &r)) {
            index_refresh_end(view, &r);
            return FAR_OK;
        }
    }
    return r.rc;
}
