/* Locks of nodes, and what is written under them. */
#include "index/chime/chime.h"

#define LOCK_AT offsetof(struct chime_head, lock)

/* ---- taking and releasing -------------------------------------------------------------------- */

unsigned chime_lock(struct op *op, gaddr at)
{
    ASSERT(at != 0);
    unsigned n = op_cas(op, MARK_LOCK, at, LOCK_AT, 0, client_owner_word(op->client));
    batch_fence(&op->batch); /* CHIME-C1 */
    return n;
}

int chime_release(struct op *op, gaddr at)
{
    ASSERT(at != 0 && op->batch.count == 0);
    op_cas(op, MARK_LOCK, at, LOCK_AT, client_owner_word(op->client), 0);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        client_renounce(op); /* others take the lock for that of a dead client */
    return rc;
}

int chime_locked(struct op *op, gaddr at, unsigned n, int rc, bool *held)
{
    enum batch_outcome outcome = batch_outcome(&op->batch, n);
    *held = rc == FAR_OK && outcome == BATCH_DONE;
    if (rc != FAR_OK && outcome == BATCH_UNKNOWN)
        client_renounce(op);
    if (rc != FAR_OK && outcome == BATCH_DONE)
        (void)chime_release(op, at);
    return rc == FAR_BOUNDS ? err_fail(FAR_CORRUPT, "a node points outside the pool") : rc;
}

void chime_unlock(struct op *op, gaddr at)
{
    ASSERT(at != 0);
    batch_fence(&op->batch);
    op_cas(op, MARK_LOCK, at, LOCK_AT, client_owner_word(op->client), 0);
}

int chime_finish(struct op *op)
{
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        return rc;
    bool begun =
        op->batch.completed > 0; /* nodes are written one after the other, so a part may be seen */
    rc = begun ? FAR_UNKNOWN : op_decided(op, rc);
    client_renounce(op); /* the locks may be held */
    return rc;
}

/* ---- a node that is held --------------------------------------------------------------------- */

/* ---- writing --------------------------------------------------------------------------------- */

void chime_then(struct op *op, gaddr from, gaddr to)
{
    if (gaddr_node(from) != gaddr_node(to))
        (void)op_read(op, from, LOCK_AT);
    batch_fence(&op->batch);
}

int chime_staging_start(struct op *op, struct chime_staging *staging)
{
    staging->at = op_buffer(op, BUF_BULK, CHIME_STAGING_BYTES);
    staging->left = CHIME_STAGING_BYTES;
    return staging->at ? FAR_OK : FAR_NO_MEMORY;
}

void chime_staging_write(struct op *op, struct chime_staging *staging, gaddr at, uint64_t delta,
                         const void *data, size_t bytes)
{
    ASSERT(bytes <= staging->left);
    memcpy(staging->at, data, bytes);
    batch_write(&op->batch, MARK_PLACE, at, delta, staging->at, (uint32_t)bytes);
    staging->at += bytes;
    staging->left -= bytes;
}

void chime_staging_groups(struct op *op, struct chime_staging *staging, const struct chime_shape *s,
                          gaddr at, uint64_t *node)
{
    chime_staging_write(op, staging, at, chime_group_at(0), chime_group(node, 0), s->group_bytes);
}

void chime_staging_next(struct op *op, struct chime_staging *staging, const struct chime_name *name,
                        unsigned era)
{
    uint64_t words[] = {chime_next(name->next, era), name->high.k, name->high.lng, name->high.sum};
    chime_staging_write(op, staging, name->at, offsetof(struct chime_head, next), words,
                        sizeof words);
}

void chime_write_entry(struct op *op, const struct chime_view *view, struct chime_staging *staging,
                       struct chime_held *h, unsigned place, const struct chime_new *x)
{
    ASSERT(h->at != 0 && place < view->shape.span && x->kind != CHIME_EMPTY);
    unsigned group = place / CHIME_GROUP;
    uint64_t *words = chime_group(h->node, group), *entry = chime_entry(h->node, place);
    entry[0] = x->k;
    entry[1] = x->v;
    words[0] = chime_with_kind(words[0], place % CHIME_GROUP, x->kind);
    chime_group_seal(chime_name_seal(view, &h->name), group, words);
    chime_staging_write(op, staging, h->at, chime_entry_at(place), entry, 16);
    batch_fence(&op->batch); /* CHIME-C3 */
    chime_staging_word(op, staging, h->at, chime_group_at(group), words[0]);
}

void chime_abandon(struct op *op, const struct chime_shape *s, uint64_t lng)
{
    pool_abandon(op->client, chime_node_class(s));
    if (lng != 0)
        pool_abandon(op->client, pointer_class(lng));
}

void chime_retired(struct op *op, struct chime_view *view, gaddr dead, uint64_t lng,
                   uint64_t version)
{
    index_cache_changed(view->cache, version, dead);
    pool_retire(op->client, dead, chime_node_class(&view->shape));
    if (lng != 0)
        pool_retire(op->client, pointer_gaddr(lng), pointer_class(lng));
}

int chime_retire(struct op *op, struct chime_view *view, gaddr dead, uint64_t lng)
{
    ASSERT(dead != 0);
    unsigned n = index_bump_version(op, &view->base);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        chime_retired(op, view, dead, lng, op_result(op, n));
    else
        chime_abandon(op, &view->shape, lng);
    return rc;
}

/* ---- separators ------------------------------------------------------------------------------ */

int chime_separator(struct op *op, const struct chime_view *view, uint64_t pointer,
                    struct slice *bytes)
{
    ASSERT(pointer != 0);
    uint32_t len = size_class_bytes(pointer_class(pointer));
    void *image = op_buffer(op, BUF_BLOCK_IN, len);
    if (!image)
        return FAR_NO_MEMORY;
    batch_read(&op->batch, pointer_gaddr(pointer), 0, image, len);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK && block_valid(image, len, slot_generation(CHIME_SLOT, pointer))) {
        *bytes = (struct slice){block_key(image), ((const struct block_head *)image)->klen};
        return FAR_OK;
    }
    return rc == FAR_OK || rc == FAR_BOUNDS ? index_damaged(view->base.table, "a separator") : rc;
}

int chime_below_high(struct op *op, const struct chime_view *view, const struct chime_head *head,
                     const struct chime_bound *key, bool *below)
{
    struct chime_bound high = {.k = head->high.k};
    int rc = FAR_OK;
    if (head->high.lng != 0 && key->k == head->high.k)
        rc = chime_separator(op, view, head->high.lng, &high.bytes);
    *below = chime_next_at(head->next) == 0 || !chime_reaches(key, &high);
    return rc;
}
