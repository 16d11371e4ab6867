/* Making a table, and the index's table of functions. */
#include "index/shard/shard.h"

/* A new table starts with room for the keys expected at this load. */
#define START_LOAD_PERCENT 75
#define START_BITS_MAX     39u /* more than any pool has room for */

static int shard_create(struct op *op, const struct index_options *options, uint64_t hash_seed,
                        gaddr *out)
{
    const uint64_t *tuning = options->tuning;
    struct shard_root root = {.lanes = op->pool->nodes,
                              .level1 = (uint32_t)tuning[SHARD_TUNING_SLOTS],
                              .load = (uint32_t)tuning[SHARD_TUNING_LOAD],
                              .alpha = (uint32_t)tuning[SHARD_TUNING_ALPHA],
                              .sync = (uint32_t)tuning[SHARD_TUNING_SYNC],
                              .combining = (uint32_t)tuning[SHARD_TUNING_COMBINING],
                              .hot = tuning[SHARD_TUNING_HOT]};
    (void)hash_seed;
    root.level2 = root.level1 > 8 ? root.level1 / 8 : 1;
    unsigned words = root.level1 + root.level2;
    uint64_t keys = (uint64_t)(words + 1) * START_LOAD_PERCENT / 100 * root.lanes;
    unsigned asked = index_bits_for(tuning[SHARD_TUNING_BUCKETS]);
    unsigned expected = index_bits_for(options->expected_keys / (keys ? keys : 1) + 1);
    expected = expected < START_BITS_MAX ? expected : START_BITS_MAX;
    root.start_bits = expected > asked ? expected : asked;
    struct shard_view view = {.start_bits = root.start_bits,
                              .lanes = root.lanes,
                              .level1 = root.level1,
                              .level2 = root.level2,
                              .words = words};
    struct shard_segment segment;
    gaddr at = 0;
    int rc = expected > asked
                 ? pool_check_room(op, (words + 1) * 8ull * root.lanes << root.start_bits)
                 : FAR_OK;
    if (rc == FAR_OK)
        rc = pool_alloc(op, 0, size_class_for(sizeof root), &at);
    if (rc != FAR_OK)
        return rc;
    rc = shard_make_segment(op, &view, 0, &segment);
    if (rc != FAR_OK) {
        pool_free_unpublished(op->client, at, size_class_for(sizeof root));
        return rc;
    }
    root.segment[0] = (struct shard_segment_refs){segment.units.ref, segment.tops.ref};
    root.checksum = shard_root_sum(&root);
    rc = index_write_root(op, at, &root, sizeof root);
    if (rc != FAR_OK) {
        pool_array_drop(op, &segment.units, rc);
        pool_array_drop(op, &segment.tops, rc);
        if (op_all_known(rc))
            pool_free_unpublished(op->client, at, size_class_for(sizeof root));
        else
            pool_abandon(op->client, size_class_for(sizeof root));
    }
    pool_array_close(&segment.units);
    pool_array_close(&segment.tops);
    if (rc == FAR_OK)
        *out = at;
    return rc;
}

static int shard_discard(struct op *op, gaddr at)
{
    struct shard_root root;
    int rc = index_held(op, index_read_root(op, at, &root, sizeof root));
    if (rc != FAR_OK)
        return rc;
    uint64_t ref[2] = {root.segment[0].units, root.segment[0].tops};
    for (unsigned i = 0; i < 2 && rc == FAR_OK; i++) {
        struct pool_array array;
        rc = pool_array_open(op, ref[i], &array);
        if (rc != FAR_OK)
            break;
        rc = index_held(op, rc);
        if (rc == FAR_OK)
            pool_array_drop(op, &array, FAR_OK);
        pool_array_close(&array);
    }
    if (rc == FAR_OK)
        pool_free_unpublished(op->client, at, size_class_for(sizeof root));
    return rc;
}

static int refresh(struct op *op, struct index_view *base)
{
    return shard_refresh(op, shard_view(base));
}

static const struct tuning_param shard_tuning[] = {
    [SHARD_TUNING_BUCKETS] = {"buckets", "buckets of the first segment, on each node", 1, 1u << 30,
                              16},
    [SHARD_TUNING_SLOTS] = {"slots", "entries of a bucket of level 1; level 2 has an eighth",
                            SHARD_LEVEL1_MIN, SHARD_LEVEL1, SHARD_LEVEL1},
    [SHARD_TUNING_LOAD] = {"load", "percent of the places in use at which the table is resized", 1,
                           100, 80},
    [SHARD_TUNING_ALPHA] = {"alpha",
                            "in 1/10000: the part of the inserts left before a resize after which "
                            "sessions report",
                            1, 100000, 1000},
    [SHARD_TUNING_SYNC] = {"sync", "changes after which they report; 0 leaves it to alpha", 0,
                           1u << 30, 0},
    [SHARD_TUNING_COMBINING] = {"combining", "1: a bucket is moved in two round trips; 0: in four",
                                0, 1, 1},
    [SHARD_TUNING_HOT] =
        {"hot", "KiB for where hot keys are, which take one or two round trips less; 0: none", 0,
         SHARD_HOT_MAX, SHARD_HOT},
    {NULL, NULL, 0, 0, 0},
};

static const char *const varied[] = {"buckets=1&slots=4&load=60&combining=0&hot=1",
                                     "buckets=2&slots=4&load=30&sync=1&hot=0",
                                     "buckets=1&slots=8&load=90&alpha=100000&hot=1", NULL};

const struct index_ops shard_index = {
    .name = "shard",
    .tuning = shard_tuning,
    .smallest = "buckets=1&slots=4&load=60&hot=1",
    .varied = varied,
    .create = shard_create,
    .discard = shard_discard,
    .view_bytes = sizeof(struct shard_view),
    .attach = shard_attach,
    .detach = shard_detach,
    .refresh = refresh,
    .get = shard_get,
    .ahead = shard_ahead,
    .change = shard_change,
    .iterate = shard_iterate,
    .mark = shard_mark,
    .info = shard_info,
    .check = shard_check,
};
