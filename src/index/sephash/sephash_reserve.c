/*
 * The reserve (SEPHASH-H8): memory for one merge, which the root names. An object of it is taken by
 * a CAS of its word to 0, and is then free memory of the client. A session that has taken some, or
 * has found that some is missing, stores no values before the reserve is complete: otherwise they
 * might use up what merges give back, and then nothing could be deleted.
 */
#include "index/sephash/sephash.h"

#include <string.h>

static unsigned class_of(const struct sephash_view *view, unsigned place)
{
    return place < SEPHASH_PAGES ? sephash_page_class(&view->shape)
                                 : sephash_cur_class(&view->shape);
}

static uint64_t delta_of(unsigned place)
{
    return offsetof(struct sephash_root, reserve) + 8ull * place;
}

int sephash_reserve_take(struct op *op, struct sephash_view *view, struct sephash_root *root)
{
    ASSERT(op->batch.count == 0);
    unsigned count = 0, place[SEPHASH_RESERVE], n[SEPHASH_RESERVE];
    for (unsigned i = 0; i < SEPHASH_RESERVE; i++) {
        if (root->reserve[i] == 0)
            continue;
        place[count] = i;
        n[count++] = op_cas(op, MARK_PUBLISH, view->root, delta_of(i), root->reserve[i], 0);
    }
    view->owes = true;
    int rc = batch_flush(&op->batch);
    for (unsigned i = 0; i < count; i++) {
        uint64_t spare = root->reserve[place[i]];
        if (rc != FAR_OK)
            pool_abandon(op->client, pointer_class(spare));
        else if (op_swapped(op, n[i]) && sephash_spare_whole(spare))
            pool_free_unpublished(op->client, pointer_gaddr(spare), pointer_class(spare));
        root->reserve[place[i]] = 0;
    }
    return rc;
}

int sephash_reserve_fill(struct op *op, struct sephash_view *view, const struct sephash_root *root,
                         unsigned pages, struct sephash_spares *spares)
{
    if (view->reserve_pages < pages)
        view->reserve_pages = pages;
    spares->count = 0;
    spares->complete = false;
    for (unsigned i = 0; i < SEPHASH_RESERVE; i++) {
        gaddr at = 0;
        if (root->reserve[i] != 0 || (i < SEPHASH_PAGES && i >= view->reserve_pages))
            continue;
        view->owes = true;
        int rc = pool_alloc(op, gaddr_node(view->root), class_of(view, i), &at);
        if (rc != FAR_OK)
            return rc;
        spares->place[spares->count] = i;
        spares->word[spares->count++] = sephash_spare(at, class_of(view, i));
    }
    spares->complete = true;
    return FAR_OK;
}

void sephash_reserve_add(struct op *op, const struct sephash_view *view,
                         struct sephash_spares *spares)
{
    for (unsigned i = 0; i < spares->count; i++)
        spares->number[i] =
            op_cas(op, MARK_PUBLISH, view->root, delta_of(spares->place[i]), 0, spares->word[i]);
}

void sephash_reserve_end(struct op *op, struct sephash_view *view, struct sephash_spares *spares,
                         bool posted, int rc)
{
    for (unsigned i = 0; i < spares->count; i++) {
        uint64_t spare = spares->word[i];
        if (posted && rc == FAR_OK && op_swapped(op, spares->number[i]))
            continue;
        if (op_all_known(rc))
            pool_free_unpublished(op->client, pointer_gaddr(spare), pointer_class(spare));
        else
            pool_abandon(op->client, pointer_class(spare));
    }
    if (posted && rc == FAR_OK && spares->complete)
        view->owes = false;
    spares->count = 0;
}

int sephash_reserve_restore(struct op *op, struct sephash_view *view)
{
    ASSERT(op->batch.count == 0);
    struct sephash_root root;
    struct sephash_spares spares;
    batch_read(&op->batch, view->root, 0, op->word, SEPHASH_ROOT_CHANGES);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    memcpy(&root, op->word, SEPHASH_ROOT_CHANGES);
    rc = sephash_reserve_fill(op, view, &root, 0, &spares);
    bool post = rc == FAR_OK || rc == FAR_POOL_FULL;
    if (post)
        sephash_reserve_add(op, view, &spares);
    int flushed = post ? batch_flush(&op->batch) : rc;
    sephash_reserve_end(op, view, &spares, post, flushed);
    return rc == FAR_OK ? flushed : rc;
}
