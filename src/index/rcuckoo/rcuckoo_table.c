/* What a session knows of the table: attaching, and the anchors of subtables. */
#include "index/rcuckoo/rcuckoo.h"
#include "index/refresh.h"

#include <stdlib.h>

/* ---- attaching ------------------------------------------------------------------------------- */

static int judge_root(struct rcuckoo_view *view, const struct rcuckoo_root *root)
{
    struct rcuckoo_shape *s = &view->shape;
    if (root->checksum != rcuckoo_root_sum(root))
        return index_damaged(view->base.table, "the root");
    for (unsigned i = 0; i < RCUCKOO_TUNING_HOT; i++)
        view->tuning[i] = root->tuning[i];
    view->tuning[RCUCKOO_TUNING_HOT] = root->hot < RCUCKOO_HOT_MAX ? root->hot : RCUCKOO_HOT_MAX;
    (void)rcuckoo_shape_set(s, view->tuning); /* as it was when the table was made */
    memcpy(s->modulus, root->modulus, sizeof s->modulus);
    view->parts.anchor_bytes = rcuckoo_anchor_bytes(s);
    view->parts.first = root->first;
    view->parts.start = root->start;
    view->parts.depth_max = root->depth_max;
    return FAR_OK;
}

int rcuckoo_attach(struct op *op, struct index_view *base)
{
    struct rcuckoo_view *view = rcuckoo_view(base);
    const struct index_table *table = base->table;
    struct rcuckoo_root root;
    uint64_t version = 0;
    view->root = table->desc.root;
    view->parts.table = table;
    view->parts.bytes = sizeof(struct rcuckoo_sub);
    view->parts.word_at = offsetof(struct rcuckoo_root, directory);
    view->parts.id_at = offsetof(struct rcuckoo_anchor, id);
    int rc = rcuckoo_cache_new(&view->cache);
    if (rc == FAR_OK)
        rc = index_read_confirmed(op, &view->base, &root, sizeof root, &version);
    if (rc == FAR_OK)
        rc = judge_root(view, &root);
    if (rc == FAR_OK)
        view->hints = index_hints_open(op, table, view->tuning[RCUCKOO_TUNING_HOT] * 1024);
    if (rc == FAR_OK)
        rc = index_parts_attach(op, &view->parts, root.directory);
    if (rc == FAR_OK)
        rc = rcuckoo_refresh(op, &view->base);
    return rc;
}

void rcuckoo_detach(struct index_view *base)
{
    struct rcuckoo_view *view = rcuckoo_view(base);
    index_parts_detach(&view->parts);
    free(view->cache);
}

/* Nothing of what a session knows becomes invalid as long as the table is there (RCUCKOO-C12). */
int rcuckoo_refresh(struct op *op, struct index_view *base)
{
    return index_refresh_root(op, base, sizeof(struct rcuckoo_root));
}

/* ---- subtables ------------------------------------------------------------------------------- */

static int damaged(const struct rcuckoo_view *view)
{
    return index_damaged(view->base.table, "an anchor");
}

int rcuckoo_judge_anchor(const struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                         const struct rcuckoo_anchor *anchor)
{
    const struct rcuckoo_shape *s = &view->shape;
    bool good = anchor->id == rcuckoo_sub_id(view, sub) &&
                anchor->checksum == rcuckoo_anchor_sum(anchor) &&
                pointer_class(anchor->rows) == rcuckoo_rows_class(s) &&
                gaddr_node(pointer_gaddr(anchor->rows)) == gaddr_node(sub->part.anchor);
    return good ? FAR_OK : damaged(view);
}

int rcuckoo_read_anchor(struct op *op, const struct rcuckoo_view *view,
                        const struct rcuckoo_sub *sub, struct rcuckoo_anchor *anchor)
{
    ASSERT(op->batch.count == 0);
    struct rcuckoo_anchor *image = op_buffer(op, BUF_INDEX, sizeof *image);
    if (!image)
        return FAR_NO_MEMORY;
    batch_read_head(&op->batch, sub->part.anchor, 0, image, sizeof *image);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_BOUNDS)
        return damaged(view);
    if (rc == FAR_OK)
        *anchor = *image;
    return rc == FAR_OK ? rcuckoo_judge_anchor(view, sub, anchor) : rc;
}

int rcuckoo_children(struct op *op, const struct rcuckoo_view *view,
                     const struct rcuckoo_sub *parent, gaddr forward, uint64_t child[2])
{
    ASSERT(forward != 0);
    struct rcuckoo_sub first = {.part = parent->part};
    struct rcuckoo_anchor anchor;
    first.part.anchor = child[0] = forward;
    first.part.depth++;
    int rc = rcuckoo_read_anchor(op, view, &first, &anchor);
    child[1] = rc == FAR_OK ? anchor.sibling : 0;
    return rc;
}

int rcuckoo_know(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                 const struct rcuckoo_anchor *anchor, bool *split)
{
    uint64_t child[2];
    *split = anchor->forward != 0;
    if (*split) {
        int rc = rcuckoo_children(op, view, sub, anchor->forward, child);
        return rc == FAR_OK ? index_parts_know_split(&view->parts, &sub->part, child) : rc;
    }
    struct rcuckoo_sub *known = (struct rcuckoo_sub *)index_part_known(&view->parts, &sub->part);
    if (known)
        known->rows = pointer_gaddr(anchor->rows);
    return FAR_OK;
}

int rcuckoo_find(struct op *op, struct rcuckoo_view *view, uint64_t hash, struct rcuckoo_sub *sub)
{
    struct index_parts *parts = &view->parts;
    bool restarted = false;
    for (unsigned depth = 0; depth <= 2 * parts->depth_max + 2; depth++) {
        struct rcuckoo_anchor anchor;
        bool split = false;
        *sub = *(struct rcuckoo_sub *)index_part_of(parts, hash);
        if (sub->rows != 0)
            return FAR_OK;
        int rc = rcuckoo_read_anchor(op, view, sub, &anchor);
        if (rc == FAR_CORRUPT && !restarted) { /* it came from a directory that is damaged? */
            restarted = true;
            rc = index_parts_restart(op, parts, &sub->part);
            if (rc != FAR_OK)
                return rc;
            continue;
        }
        if (rc == FAR_OK)
            rc = rcuckoo_know(op, view, sub, &anchor, &split);
        if (rc != FAR_OK)
            return rc;
    }
    return damaged(view);
}
