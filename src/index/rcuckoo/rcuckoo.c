/* Making a table, and the index's table of functions. */
#include "index/rcuckoo/rcuckoo.h"

/* A new table starts with room for the keys expected at this load, and with a subtable on every
 * node. */
#define START_LOAD_PERCENT 85
#define START_BITS_MAX     16u
#define DEPTH_HEADROOM     2 /* bits beyond what the pool's memory can fill evenly */
#define DEPTH_MAX          26u

/* A table that is being made: what has been taken so far. */
struct maker {
    struct op *op;
    struct rcuckoo_shape shape;
    struct rcuckoo_root root;
    uint64_t seed;
    gaddr at, directory;
    uint64_t *anchor; /* of the first subtables, in BUF_BULK */
    uint64_t *rows;   /* their rows, and then the directory, behind that */
};

/* An empty subtable. */
static int write_subtable(struct maker *k, unsigned node, uint64_t suffix)
{
    struct op *op = k->op;
    const struct rcuckoo_shape *s = &k->shape;
    uint64_t id = index_anchor_id(k->seed, k->root.start, suffix);
    uint32_t bytes = rcuckoo_anchor_bytes(s);
    char *image = op_buffer(op, BUF_INDEX, bytes + rcuckoo_rows_bytes(s));
    if (!image)
        return FAR_NO_MEMORY;
    int rc = pool_alloc_on(op, node, rcuckoo_anchor_class(s), &k->anchor[suffix]);
    if (rc == FAR_OK)
        rc = pool_alloc_on(op, node, rcuckoo_rows_class(s), &k->rows[suffix]);
    if (rc != FAR_OK)
        return rc;
    memset(image, 0, bytes);
    rcuckoo_anchor_init((struct rcuckoo_anchor *)image, id, s, k->rows[suffix], 0);
    for (unsigned i = 0; i < s->rows; i++)
        rcuckoo_row_init(s, id, i, (uint64_t *)(image + bytes) + (size_t)i * s->row);
    batch_write(&op->batch, MARK_EARLY, k->anchor[suffix], 0, image, bytes);
    batch_write(&op->batch, MARK_EARLY, k->rows[suffix], 0, image + bytes, rcuckoo_rows_bytes(s));
    return batch_flush(&op->batch);
}

static void free_object(struct op *op, gaddr *at, unsigned size_class)
{
    if (*at != 0)
        pool_free_unpublished(op->client, *at, size_class);
    *at = 0;
}

static void free_subtable(struct maker *k, uint64_t suffix)
{
    free_object(k->op, &k->anchor[suffix], rcuckoo_anchor_class(&k->shape));
    free_object(k->op, &k->rows[suffix], rcuckoo_rows_class(&k->shape));
}

/* On the nodes in turns, or where there is room. */
static int make_subtable(struct maker *k, uint64_t suffix)
{
    unsigned nodes = k->op->pool->nodes;
    int rc = FAR_POOL_FULL;
    for (unsigned i = 0; i < nodes && rc == FAR_POOL_FULL; i++) {
        rc = write_subtable(k, (unsigned)((suffix + i) % nodes), suffix);
        if (rc == FAR_POOL_FULL)
            free_subtable(k, suffix);
    }
    return rc;
}

/* The first subtables, the array of their anchors, and the directory. */
static int make_subtables(struct maker *k)
{
    struct op *op = k->op;
    uint64_t count = 1ull << k->root.start;
    int rc = pool_alloc(op, 0, index_directory_class(k->root.start), &k->root.first);
    if (rc == FAR_OK)
        rc = pool_alloc(op, 0, index_directory_class(k->root.start), &k->directory);
    for (uint64_t i = 0; i < count && rc == FAR_OK; i++)
        rc = make_subtable(k, i);
    if (rc != FAR_OK)
        return rc;
    return index_parts_write_first(op, k->root.start, k->anchor, k->root.first, k->directory,
                                   k->rows + count, &k->root.directory);
}

/* It was not finished: gives back what was taken. */
static void give_back(struct maker *k)
{
    unsigned array = index_directory_class(k->root.start);
    for (uint64_t i = 0; i < 1ull << k->root.start; i++)
        free_subtable(k, i);
    free_object(k->op, &k->root.first, array);
    free_object(k->op, &k->directory, array);
    free_object(k->op, &k->at, size_class_for(sizeof k->root));
}

/* Sets the sizes. FAR_INVALID: they do not go together. */
static int choose_shape(struct maker *k, const struct index_options *options)
{
    const struct pool *pool = k->op->pool;
    struct rcuckoo_shape *s = &k->shape;
    uint64_t pool_bytes = 0;
    if (!rcuckoo_shape_set(s, options->tuning))
        return err_fail(FAR_INVALID,
                        "index rcuckoo: an entry of key=%u and value=%u bytes is too large", s->key,
                        s->value);
    if (s->rows < 2)
        return err_fail(FAR_INVALID, "index rcuckoo: rows must be 0, or 2 and more");
    rcuckoo_moduli(s, options->tuning[RCUCKOO_TUNING_F]);
    for (unsigned i = 0; i < pool->nodes; i++)
        pool_bytes += pool_head(pool, i)->size;
    uint64_t least = size_class_bytes(rcuckoo_rows_class(s)) +
                     (uint64_t)size_class_bytes(rcuckoo_anchor_class(s));
    unsigned most = index_bits_for(pool_bytes / least) + DEPTH_HEADROOM;
    uint64_t keys = (uint64_t)s->rows * RCUCKOO_SLOTS * START_LOAD_PERCENT / 100 + 1;
    unsigned for_keys = index_bits_for((options->expected_keys + keys - 1) / keys);
    unsigned for_nodes = index_bits_for(pool->nodes);
    unsigned start = for_keys > for_nodes ? for_keys : for_nodes;
    k->root.depth_max = most < DEPTH_MAX ? most : DEPTH_MAX;
    k->root.start = start < k->root.depth_max ? start : k->root.depth_max;
    k->root.start = k->root.start < START_BITS_MAX ? k->root.start : START_BITS_MAX;
    return for_keys > for_nodes ? pool_check_room(k->op, least << k->root.start) : FAR_OK;
}

static int rcuckoo_create(struct op *op, const struct index_options *options, uint64_t hash_seed,
                          gaddr *out)
{
    struct maker k = {.op = op, .seed = hash_seed};
    uint64_t before = pool_taken_bytes(op->client);
    int rc = choose_shape(&k, options);
    if (rc != FAR_OK)
        return rc;
    k.anchor = op_buffer(op, BUF_BULK, 24ull << k.root.start);
    if (!k.anchor)
        return FAR_NO_MEMORY;
    k.rows = k.anchor + (1ull << k.root.start);
    memset(k.anchor, 0, 24ull << k.root.start);
    rc = pool_alloc(op, 0, size_class_for(sizeof k.root), &k.at);
    if (rc == FAR_OK)
        rc = make_subtables(&k);
    for (unsigned i = 0; i < RCUCKOO_TUNING_HOT; i++)
        k.root.tuning[i] = (uint32_t)options->tuning[i];
    k.root.hot = options->tuning[RCUCKOO_TUNING_HOT];
    k.root.tuning[RCUCKOO_TUNING_LOCK_ROWS] = k.shape.lock_rows;
    memcpy(k.root.modulus, k.shape.modulus, sizeof k.root.modulus);
    k.root.checksum = rcuckoo_root_sum(&k.root);
    if (rc == FAR_OK)
        rc = index_write_root(op, k.at, &k.root, sizeof k.root);
    if (rc == FAR_OK)
        *out = k.at;
    else if (op_all_known(rc))
        give_back(&k);
    else
        pool_abandon_since(op->client, before);
    return rc;
}

/* Nothing points to the table, and nobody has used it. */
static int rcuckoo_discard(struct op *op, gaddr at)
{
    struct maker k = {.op = op, .at = at};
    uint64_t tuning[RCUCKOO_TUNINGS];
    int rc = index_held(op, index_read_root(op, at, &k.root, sizeof k.root));
    if (rc != FAR_OK)
        return rc;
    for (unsigned i = 0; i < RCUCKOO_TUNING_HOT; i++)
        tuning[i] = k.root.tuning[i];
    (void)rcuckoo_shape_set(&k.shape, tuning);
    uint64_t count = 1ull << k.root.start;
    k.anchor = op_buffer(op, BUF_BULK, 16 * count);
    if (!k.anchor)
        return FAR_NO_MEMORY;
    k.rows = k.anchor + count;
    batch_read(&op->batch, k.root.first, 0, k.anchor, (uint32_t)(8 * count));
    rc = index_held(op, batch_flush(&op->batch));
    for (uint64_t i = 0; i < count && rc == FAR_OK; i++) {
        unsigned n = op_read(op, k.anchor[i], offsetof(struct rcuckoo_anchor, rows));
        rc = index_held(op, batch_flush(&op->batch));
        k.rows[i] = pointer_gaddr(op_result(op, n));
    }
    if (rc != FAR_OK)
        return rc;
    k.directory = index_deep_at(k.root.directory);
    give_back(&k);
    return FAR_OK;
}

static const struct tuning_param rcuckoo_tuning[] = {
    [RCUCKOO_TUNING_ROWS] = {"rows", "rows of a subtable; 0: as many as fit into 128 KiB", 0,
                             RCUCKOO_ROWS_MAX, 0},
    [RCUCKOO_TUNING_KEY] = {"key", "bytes of a key that are kept inline", 1, 256, 8},
    [RCUCKOO_TUNING_VALUE] = {"value", "bytes of a value that are kept inline", 0, 256, 8},
    [RCUCKOO_TUNING_F] = {"f", "in 1/100: how far apart the two rows of a key are", 110, 500, 230},
    [RCUCKOO_TUNING_LOCK_ROWS] = {"lock_rows",
                                  "rows of a lock; 0: 4, or 16 if the table does not grow", 0, 1024,
                                  0},
    [RCUCKOO_TUNING_LOCKS] = {"locks", "locks that share a word", 1, 64, 64},
    [RCUCKOO_TUNING_WORDS] = {"words", "lock words of a subtable, at most", 1, RCUCKOO_WORDS_MAX,
                              RCUCKOO_WORDS_MAX},
    [RCUCKOO_TUNING_GROWS] = {"grows", "1: subtables are split; 0: the table gets full", 0, 1, 1},
    [RCUCKOO_TUNING_HOT] =
        {"hot", "KiB for where hot keys with blocks are, which take a round trip less; 0: none", 0,
         RCUCKOO_HOT_MAX, RCUCKOO_HOT_DEFAULT},
    {NULL, NULL, 0, 0, 0},
};

static const char *const varied[] = {"rows=4&value=0&lock_rows=1&locks=1",
                                     "rows=8&key=16&value=40&lock_rows=2&locks=2&words=1&hot=0",
                                     "rows=4&key=1&value=0&lock_rows=4&locks=1&f=500&hot=1", NULL};

const struct index_ops rcuckoo_index = {
    .name = "rcuckoo",
    .tuning = rcuckoo_tuning,
    .smallest = "rows=4&value=24&lock_rows=1&locks=2&hot=1",
    .varied = varied,
    .create = rcuckoo_create,
    .discard = rcuckoo_discard,
    .view_bytes = sizeof(struct rcuckoo_view),
    .attach = rcuckoo_attach,
    .detach = rcuckoo_detach,
    .refresh = rcuckoo_refresh,
    .get = rcuckoo_get,
    .ahead = rcuckoo_ahead,
    .change = rcuckoo_change,
    .iterate = rcuckoo_iterate,
    .mark = rcuckoo_mark,
    .recover = rcuckoo_recover,
    .info = rcuckoo_info,
    .check = rcuckoo_check,
};
