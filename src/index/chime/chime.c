/* The table as a whole: parameters, creating, discarding. */
#include "index/chime/chime.h"

/* A leaf that is the whole table. */
static void first_leaf(const struct chime_view *view, gaddr at, uint64_t *image)
{
    struct chime_head *head = chime_head(image);
    head->vacancy = chime_places(&view->shape);
    head->sum = chime_head_sum(view, at, head);
    struct chime_name name = chime_head_name(at, head);
    chime_renew(view, image, &name, 0);
}

static int choose_shape(const struct index_options *options, struct chime_shape *s)
{
    unsigned span = (unsigned)options->tuning[CHIME_TUNING_SPAN];
    unsigned hood = (unsigned)options->tuning[CHIME_TUNING_HOOD];
    if ((span & (span - 1)) != 0)
        return err_fail(FAR_INVALID, "index chime: span=%u is not a power of two", span);
    if (hood > span)
        return err_fail(FAR_INVALID, "index chime: neighbourhood=%u is more than span=%u", hood,
                        span);
    *s = chime_shape(span, hood);
    return FAR_OK;
}

static int write_table(struct op *op, const struct chime_view *view,
                       const struct index_options *options, gaddr leaf, gaddr root_at)
{
    struct chime_root root = {.top = chime_top(leaf, 0, view->seed)};
    uint64_t *image = op_buffer(op, BUF_INDEX, view->shape.bytes);
    if (!image)
        return FAR_NO_MEMORY;
    memset(image, 0, view->shape.bytes);
    first_leaf(view, leaf, image);
    batch_write(&op->batch, MARK_EARLY, leaf, 0, image, view->shape.bytes);
    int rc = batch_flush(&op->batch);
    for (unsigned i = 0; i < CHIME_TUNINGS; i++)
        root.tuning[i] = (uint32_t)options->tuning[i];
    root.checksum = chime_root_sum(&root);
    return rc == FAR_OK ? index_write_root(op, root_at, &root, sizeof root) : rc;
}

static int chime_create(struct op *op, const struct index_options *options, uint64_t hash_seed,
                        gaddr *out)
{
    struct chime_view view = {.seed = hash_seed};
    unsigned root_class = size_class_for(sizeof(struct chime_root));
    gaddr root = 0, leaf = 0;
    int rc = choose_shape(options, &view.shape);
    if (rc != FAR_OK)
        return rc;
    unsigned leaf_class = chime_node_class(&view.shape);
    rc = pool_alloc(op, 0, root_class, &root);
    if (rc == FAR_OK)
        rc = pool_alloc(op, 0, leaf_class, &leaf);
    if (rc == FAR_OK)
        rc = write_table(op, &view, options, leaf, root);
    if (rc == FAR_OK) {
        *out = root;
    } else if (op_all_known(rc)) {
        if (root != 0)
            pool_free_unpublished(op->client, root, root_class);
        if (leaf != 0)
            pool_free_unpublished(op->client, leaf, leaf_class);
    } else {
        pool_abandon(op->client, root_class);
        pool_abandon(op->client, leaf_class);
    }
    return rc;
}

/* Nothing points to the table, and nobody has used it. */
static int chime_discard(struct op *op, gaddr at)
{
    struct chime_root root;
    int rc = index_held(op, index_read_root(op, at, &root, sizeof root));
    if (rc != FAR_OK)
        return rc;
    struct chime_shape s =
        chime_shape(root.tuning[CHIME_TUNING_SPAN], root.tuning[CHIME_TUNING_HOOD]);
    pool_free_unpublished(op->client, chime_top_at(root.top), chime_node_class(&s));
    pool_free_unpublished(op->client, at, size_class_for(sizeof root));
    return FAR_OK;
}

static const struct tuning_param chime_tuning[] = {
    [CHIME_TUNING_SPAN] = {"span", "entries of a node, a power of two", 8, CHIME_SPAN_MAX,
                           CHIME_SPAN_MAX},
    [CHIME_TUNING_HOOD] = {"neighbourhood", "places where a key may be, from its home on", 2,
                           CHIME_SPAN_MAX, 8},
    [CHIME_TUNING_CACHE] = {"cache", "KiB that a session has for internal nodes", 16, 4u << 20,
                            16384},
    [CHIME_TUNING_HOT] = {"hot",
                          "KiB for where hot keys are, which take fewer round trips; 0: none", 0,
                          4u << 20, 30720},
    [CHIME_TUNING_WHOLE] = {"whole", "1: gets and changes read whole leaves", 0, 1, 0},
    [CHIME_TUNING_VACANCY] = {"vacancy", "0: inserts read whole leaves to find room", 0, 1, 1},
    [CHIME_TUNING_META] =
        {"meta", "range of a leaf, 0: by its checksums; 1, 2: gets read sibling, separators", 0, 2,
         0},
    {NULL, NULL, 0, 0, 0},
};

static const char *const varied[] = {"span=8&neighbourhood=2&cache=16&hot=0&meta=1",
                                     "span=8&neighbourhood=8&cache=16&hot=1&whole=1",
                                     "span=16&neighbourhood=4&cache=16&hot=1&vacancy=0",
                                     "span=8&neighbourhood=4&cache=16&hot=1&meta=2", NULL};

const struct index_ops chime_index = {
    .name = "chime",
    .ordered = true,
    .tuning = chime_tuning,
    .smallest = "span=8&neighbourhood=4&cache=16&hot=1",
    .varied = varied,
    .create = chime_create,
    .discard = chime_discard,
    .view_bytes = sizeof(struct chime_view),
    .attach = chime_attach,
    .detach = chime_detach,
    .refresh = chime_refresh,
    .get = chime_get,
    .change = chime_change,
    .iterate = chime_iterate,
    .scan = chime_scan,
    .mark = chime_mark,
    .info = chime_info,
    .check = chime_check,
};
