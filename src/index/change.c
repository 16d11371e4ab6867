#include "index/change.h"

static bool is_put(const struct change *want)
{
    return want->present == CHANGE_STORE && want->absent == CHANGE_STORE;
}

static bool is_update(const struct change *want)
{
    return want->present == CHANGE_STORE && want->absent == CHANGE_NOTHING;
}

int index_change_prepare(struct op *op, struct index_change *c, unsigned node)
{
    ASSERT(op->batch.count == 0 && c->block.at == 0);
    const struct slice *key = &c->key, *value = &c->want->value;
    if (node >= op->pool->nodes)
        return err_fail(FAR_CORRUPT, "a table leads to node %u", node);
    c->written = false;
    unsigned written_by = is_put(c->want) ? BLOCK_PUT : is_update(c->want) ? BLOCK_UPDATE : 0;
    int rc = block_prepare(op, node, key->data, key->len, value->data, value->len, written_by,
                           &c->block);
    c->last =
        rc == FAR_OK && !is_update(c->want) && !pool_keep_spare(op, node, c->block.size_class);
    return rc;
}

const struct value_out *index_change_out(const struct index_change *c)
{
    static const struct value_out all = {.cap = SIZE_MAX};
    return c->want->present == CHANGE_ASK ? &all : NULL;
}

int index_change_ask(struct op *op, const struct index_view *view, struct index_change *c,
                     const struct index_found *found, unsigned node, enum change_action *action)
{
    ASSERT(op->batch.count == 0 && (found->place < 0 || found->block));
    struct slice old = {NULL, 0};
    if (found->place >= 0)
        old = index_block_value(found->block);
    int rc = index_decide(view, c->want, old, action);
    if (rc != FAR_OK)
        return rc;
    index_change_drop(op, c); /* of an earlier attempt */
    return *action == CHANGE_STORE ? index_change_prepare(op, c, node) : FAR_OK;
}

void index_change_replaced(struct op *op, const struct index_found *found, bool swapped, int rc)
{
    ASSERT(found->slot != 0);
    const struct block_head *h = found->block;
    unsigned size_class = pointer_class(found->slot);
    /* A damaged class must not make the neighbours part of what is reused. */
    bool fits = !h || size_class_for(block_bytes(h->klen, h->vlen)) == size_class;
    if (swapped && fits)
        pool_retire(op->client, pointer_gaddr(found->slot), size_class);
    else if (swapped || rc == FAR_UNKNOWN)
        pool_abandon(op->client, size_class);
}

bool index_change_may_lose(const struct index_change *c)
{
    return is_put(c->want) || is_update(c->want);
}

bool index_change_overwritten(const struct op *op, const struct index_change *c, const void *winner)
{
    if (client_lapsed(op->client))
        return false;
    unsigned written_by = ((const struct block_head *)winner)->flags & (BLOCK_UPDATE | BLOCK_PUT);
    return (is_put(c->want) && written_by != 0) ||
           (is_update(c->want) && written_by == BLOCK_UPDATE);
}

void index_change_drop(struct op *op, struct index_change *c)
{
    if (c->block.at != 0)
        pool_free_unpublished(op->client, c->block.at, c->block.size_class);
    c->block.at = 0;
}

/* If the fabric failed, a slot may name the block for ever, and its own WRITE may still be on the
 * way: then no epoch makes it free. */
int index_change_end(struct op *op, const struct index_change *c, int rc)
{
    if (c->block.at == 0 || rc == FAR_OK)
        return rc;
    if (status_means(rc, STATUS_SETTLED))
        pool_free_unpublished(op->client, c->block.at, c->block.size_class);
    else
        pool_abandon(op->client, c->block.size_class);
    return rc;
}
