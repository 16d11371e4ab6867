/* Making a table, and the index's table of functions. */
#include "index/sephash/sephash.h"

#include <string.h>

/* A new table starts with room for the keys expected at this load, and with a few segments on every
 * node. */
#define START_LOAD_PERCENT 75
#define START_PER_NODE     4
#define START_BITS_MAX     16u
#define DEPTH_HEADROOM     2 /* bits beyond what the pool's memory can fill evenly */

/* A MainSegment has at most this many entries: they are counted in 16 bits. */
#define ROOM_MAX 65535u

static unsigned smaller(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static unsigned larger(unsigned a, unsigned b)
{
    return a > b ? a : b;
}

/* A table that is being made: what has been taken so far. */
struct maker {
    struct op *op;
    struct sephash_shape shape;
    struct sephash_root root;
    uint64_t hash_seed;
    gaddr at;
    gaddr directory;
    uint64_t *anchor; /* of the first segments, in BUF_BULK */
    uint64_t *cur;    /* their CurSegments, and then the directory, behind that */
};

/* An empty segment, on the nodes in turns. */
static int write_segment(struct maker *k, uint64_t suffix)
{
    struct op *op = k->op;
    struct sephash_head head = {.id = index_anchor_id(k->hash_seed, k->root.start, suffix)};
    uint32_t start[SEPHASH_FPS + 1] = {0};
    uint16_t table[SEPHASH_FPS];
    unsigned err = 0, node = (unsigned)(suffix % op->pool->nodes);
    head.points = (uint16_t)sephash_table_make(k->shape.plain, start, table, &err);
    head.err = (uint16_t)err;
    char *image = op_buffer(op, BUF_INDEX, size_class_bytes(sephash_cur_class(&k->shape)) + 64);
    if (!image)
        return FAR_NO_MEMORY;
    int rc = pool_alloc(op, node, SEPHASH_SMALL_CLASS, &k->anchor[suffix]);
    if (rc == FAR_OK)
        rc = pool_alloc(op, node, sephash_cur_class(&k->shape), &k->cur[suffix]);
    if (rc != FAR_OK)
        return rc;
    struct sephash_anchor *anchor = (struct sephash_anchor *)image;
    *anchor = (struct sephash_anchor){.state = sephash_live(k->cur[suffix], 0), .id = head.id};
    batch_write(&op->batch, MARK_EARLY, k->anchor[suffix], 0, anchor, sizeof *anchor);
    uint32_t bytes = sephash_cur_image(&k->shape, &head, table, image + 64);
    batch_write(&op->batch, MARK_EARLY, k->cur[suffix], 0, image + 64, bytes);
    return batch_flush(&op->batch);
}

/* The first segments, the array of their anchors, and the directory. */
static int write_segments(struct maker *k)
{
    struct op *op = k->op;
    uint64_t count = 1ull << k->root.start;
    int rc = pool_alloc(op, 0, index_directory_class(k->root.start), &k->root.first);
    if (rc == FAR_OK)
        rc = pool_alloc(op, 0, index_directory_class(k->root.start), &k->directory);
    for (uint64_t i = 0; i < count && rc == FAR_OK; i++)
        rc = write_segment(k, i);
    if (rc != FAR_OK)
        return rc;
    return index_parts_write_first(op, k->root.start, k->anchor, k->root.first, k->directory,
                                   k->cur + count, &k->root.directory);
}

/* What the first merge needs, if the pool is full by then (SEPHASH-H8). */
static int take_reserve(struct maker *k)
{
    static const unsigned place[] = {0, SEPHASH_PAGES};
    const unsigned size_class[] = {sephash_page_class(&k->shape), sephash_cur_class(&k->shape)};
    int rc = FAR_OK;
    for (unsigned i = 0; i < 2 && rc == FAR_OK; i++) {
        gaddr at = 0;
        rc = pool_alloc(k->op, 0, size_class[i], &at);
        if (rc == FAR_OK)
            k->root.reserve[place[i]] = sephash_spare(at, size_class[i]);
    }
    return rc;
}

static void free_object(struct op *op, gaddr at, unsigned size_class)
{
    if (at != 0)
        pool_free_unpublished(op->client, at, size_class);
}

static void free_reserve(struct op *op, const struct sephash_root *root)
{
    for (unsigned i = 0; i < SEPHASH_RESERVE; i++)
        free_object(op, pointer_gaddr(root->reserve[i]), pointer_class(root->reserve[i]));
}

/* It was not finished: gives back what was taken. */
static void give_back(struct maker *k)
{
    unsigned array = index_directory_class(k->root.start);
    for (uint64_t i = 0; i < 1ull << k->root.start; i++) {
        free_object(k->op, k->anchor[i], SEPHASH_SMALL_CLASS);
        free_object(k->op, k->cur[i], sephash_cur_class(&k->shape));
    }
    free_reserve(k->op, &k->root);
    free_object(k->op, k->root.first, array);
    free_object(k->op, k->directory, array);
    free_object(k->op, k->at, size_class_for(sizeof k->root));
}

/* Sets the sizes and depths. FAR_INVALID: they do not go together. */
static int choose_shape(struct maker *k, const struct index_options *options)
{
    const uint64_t *tuning = options->tuning;
    const struct pool *pool = k->op->pool;
    struct sephash_shape *s = &k->shape;
    uint64_t pool_bytes = 0;
    sephash_shape_set(s, tuning[SEPHASH_TUNING_SLOTS], tuning[SEPHASH_TUNING_RATIO],
                      tuning[SEPHASH_TUNING_FILTER], tuning[SEPHASH_TUNING_POINTS],
                      tuning[SEPHASH_TUNING_LANE]);
    if (sephash_room(s) > ROOM_MAX)
        return err_fail(FAR_INVALID, "index sephash: slots * ratio must not be more than %u",
                        ROOM_MAX / SEPHASH_PAGES * 16);
    for (unsigned i = 0; i < pool->nodes; i++)
        pool_bytes += pool_head(pool, i)->size;
    uint64_t least = size_class_bytes(sephash_cur_class(s)) + 4ull * s->limit;
    k->root.depth_max =
        smaller(index_bits_for(pool_bytes / least) + DEPTH_HEADROOM, SEPHASH_DEPTH_MAX);
    unsigned for_keys =
        index_bits_for(options->expected_keys / (s->limit * START_LOAD_PERCENT / 100 + 1) + 1);
    unsigned for_nodes = pool->nodes > 1 ? index_bits_for(pool->nodes * START_PER_NODE) : 0;
    unsigned start = larger(larger(for_keys, for_nodes), (unsigned)tuning[SEPHASH_TUNING_DEPTH]);
    k->root.start = smaller(smaller(start, k->root.depth_max), START_BITS_MAX);
    return for_keys > for_nodes ? pool_check_room(k->op, least << k->root.start) : FAR_OK;
}

static int sephash_create(struct op *op, const struct index_options *options, uint64_t hash_seed,
                          gaddr *out)
{
    struct maker k = {.op = op, .hash_seed = hash_seed};
    uint64_t before = pool_taken_bytes(op->client);
    const uint64_t *tuning = options->tuning;
    int rc = choose_shape(&k, options);
    if (rc != FAR_OK)
        return rc;
    k.anchor = op_buffer(op, BUF_BULK, 24ull << k.root.start);
    if (!k.anchor)
        return FAR_NO_MEMORY;
    k.cur = k.anchor + (1ull << k.root.start);
    memset(k.anchor, 0, 24ull << k.root.start);
    rc = pool_alloc(op, 0, size_class_for(sizeof k.root), &k.at);
    if (rc == FAR_OK)
        rc = write_segments(&k);
    if (rc == FAR_OK)
        rc = take_reserve(&k);
    k.root.slots = (uint32_t)tuning[SEPHASH_TUNING_SLOTS];
    k.root.ratio = (uint32_t)tuning[SEPHASH_TUNING_RATIO];
    k.root.filter = (uint32_t)tuning[SEPHASH_TUNING_FILTER];
    k.root.points = (uint32_t)tuning[SEPHASH_TUNING_POINTS];
    k.root.depth = (uint32_t)tuning[SEPHASH_TUNING_DEPTH];
    k.root.lane = (uint32_t)tuning[SEPHASH_TUNING_LANE];
    k.root.hot = tuning[SEPHASH_TUNING_HOT];
    k.root.checksum = sephash_root_sum(&k.root);
    if (rc == FAR_OK) {
        struct sephash_root *image = op_buffer(op, BUF_INDEX, sizeof *image);
        *image = k.root;
        batch_write(&op->batch, MARK_EARLY, k.at, 0, image, sizeof *image);
        rc = batch_flush(&op->batch);
    }
    if (rc == FAR_OK)
        *out = k.at;
    else if (op_all_known(rc))
        give_back(&k);
    else
        pool_abandon_since(op->client, before);
    return rc;
}

/* Nothing points to the table, and nobody has used it: its segments are empty. */
static int sephash_discard(struct op *op, gaddr at)
{
    struct sephash_root root;
    struct sephash_shape shape = {0};
    int rc = index_held(op, index_read_root(op, at, &root, sizeof root));
    if (rc != FAR_OK)
        return rc;
    sephash_shape_set(&shape, root.slots, root.ratio, root.filter, root.points, root.lane);
    uint64_t count = 1ull << root.start;
    uint64_t *first = op_buffer(op, BUF_BULK, 8 * count);
    if (!first)
        return FAR_NO_MEMORY;
    batch_read(&op->batch, root.first, 0, first, (uint32_t)(8 * count));
    rc = index_held(op, batch_flush(&op->batch));
    for (uint64_t i = 0; i < count && rc == FAR_OK; i++) {
        unsigned n = op_read(op, first[i], 0);
        rc = index_held(op, batch_flush(&op->batch));
        if (rc != FAR_OK)
            break;
        pool_free_unpublished(op->client, sephash_target(op_result(op, n)),
                              sephash_cur_class(&shape));
        pool_free_unpublished(op->client, first[i], SEPHASH_SMALL_CLASS);
    }
    if (rc != FAR_OK)
        return rc;
    free_reserve(op, &root);
    pool_free_unpublished(op->client, root.first, index_directory_class(root.start));
    pool_free_unpublished(op->client, index_deep_at(root.directory),
                          index_directory_class(root.start));
    pool_free_unpublished(op->client, at, size_class_for(sizeof root));
    return FAR_OK;
}

static const struct tuning_param sephash_tuning[] = {
    [SEPHASH_TUNING_SLOTS] = {"slots", "entries of a CurSegment", SEPHASH_SLOTS_MIN,
                              SEPHASH_SLOTS_MAX, 256},
    [SEPHASH_TUNING_RATIO] = {"ratio", "how many times as large a MainSegment may become", 1, 1024,
                              32},
    [SEPHASH_TUNING_FILTER] = {"filter", "1: CurSegments have filters; 0: lookups read their lanes",
                               0, 1, 0},
    [SEPHASH_TUNING_POINTS] =
        {"points",
         "1: FPTables with record points; 0: with a number for each fp; 2: not "
         "used",
         0, SEPHASH_POINTS_UNUSED, 1},
    [SEPHASH_TUNING_DEPTH] = {"depth", "bits of the hash that the first segments have", 0,
                              START_BITS_MAX, 2},
    [SEPHASH_TUNING_LANE] = {"lane", "slots of a lane of a CurSegment", SEPHASH_LANE_MIN,
                             SEPHASH_SLOTS_MAX, 14},
    [SEPHASH_TUNING_HOT] = {"hot",
                            "KiB for where hot keys are, which take a round trip less; 0: none", 0,
                            4 << 20, 4096},
    {NULL, NULL, 0, 0, 0},
};

static const char *const varied[] = {"slots=4&ratio=1&depth=0&filter=1",
                                     "slots=8&ratio=2&depth=1&points=0&hot=0",
                                     "slots=40&ratio=1&depth=0&lane=8&hot=1", NULL};

const struct index_ops sephash_index = {
    .name = "sephash",
    .tuning = sephash_tuning,
    .smallest = "slots=4&ratio=1&depth=0&hot=1",
    .varied = varied,
    .create = sephash_create,
    .discard = sephash_discard,
    .view_bytes = sizeof(struct sephash_view),
    .attach = sephash_attach,
    .detach = sephash_detach,
    .refresh = sephash_refresh,
    .get = sephash_get,
    .change = sephash_change,
    .iterate = sephash_iterate,
    .mark = sephash_mark,
    .info = sephash_info,
    .check = sephash_check,
};
