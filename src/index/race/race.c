/* Making a table, and the index's table of functions. */
#include "index/race/race.h"

#include <string.h>

/* A new table starts with room for the keys expected at this load, and with a few subtables on
 * every node. */
#define START_LOAD_PERCENT 75
#define START_PER_NODE     4
#define DIRECTORY_HEADROOM 1 /* bits beyond what the pool's memory can fill evenly */

static unsigned smaller(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static int write_subtable(struct op *op, uint32_t tag, unsigned groups, unsigned depth,
                          uint64_t suffix, uint64_t *entry)
{
    ASSERT(suffix >> depth == 0);
    uint32_t bytes = race_subtable_bytes(groups);
    gaddr at = 0;
    int rc = pool_alloc(op, (unsigned)(suffix % op->pool->nodes), race_subtable_class(groups), &at);
    if (rc != FAR_OK)
        return rc;
    uint64_t *image = op_buffer(op, BUF_BULK, bytes);
    if (!image) {
        pool_free_unpublished(op->client, at, race_subtable_class(groups));
        return FAR_NO_MEMORY;
    }
    race_subtable_clear(image, bytes / 8, race_header(tag, depth, suffix));
    batch_write(&op->batch, MARK_EARLY, at, 0, image, bytes);
    *entry = race_entry(at, depth);
    return batch_flush(&op->batch);
}

static int write_directory(struct op *op, uint32_t tag, const struct race_root *root)
{
    uint64_t entries = 1ull << root->depth, used = 8ull << root->dir_bits;
    char *zero = op_buffer(op, BUF_BLOCK_IN, 64 * 1024);
    if (!zero)
        return FAR_NO_MEMORY;
    memset(zero, 0, 64 * 1024);
    for (uint64_t at = 0; at < used; at += 64 * 1024) {
        batch_write(&op->batch, MARK_EARLY, root->directory, at, zero,
                    (uint32_t)(used - at < 64 * 1024 ? used - at : 64 * 1024));
        int rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            return rc;
    }
    for (uint64_t i = 0; i < entries; i++) {
        int rc = write_subtable(op, tag, root->groups, (unsigned)root->depth, i, &op->word[0]);
        if (rc != FAR_OK)
            return rc;
        batch_write(&op->batch, MARK_EARLY, root->directory, i * 8, &op->word[0], 8);
        rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            return rc;
    }
    return FAR_OK;
}

/* ---- tables that nothing points to ----------------------------------------------------------- */

#define DISCARD_ENTRIES 4096u /* of a directory that are read at once */

/* Gives back the memory of a table, or of the part that was built: directory entries that are 0
 * were not filled. */
static int give_back(struct op *op, gaddr at, const struct race_root *root)
{
    uint64_t entries = root->directory ? 1ull << root->depth : 0;
    unsigned subtable = race_subtable_class(root->groups);

    for (uint64_t i = 0; i < entries; i += DISCARD_ENTRIES) {
        uint64_t count = entries - i < DISCARD_ENTRIES ? entries - i : DISCARD_ENTRIES;
        uint64_t *image = op_buffer(op, BUF_BULK, DISCARD_ENTRIES * 8);
        if (!image)
            return FAR_NO_MEMORY;
        batch_read(&op->batch, root->directory, i * 8, image, (uint32_t)count * 8);
        int rc = index_held(op, batch_flush(&op->batch));
        if (rc != FAR_OK)
            return rc;
        for (uint64_t n = 0; n < count; n++)
            if (image[n] != 0)
                pool_free_unpublished(op->client, race_entry_subtable(image[n]), subtable);
    }
    if (root->directory)
        pool_free_unpublished(op->client, root->directory, size_class_for(8ull << root->dir_bits));
    pool_free_unpublished(op->client, at, size_class_for(sizeof *root));
    return FAR_OK;
}

static int race_discard(struct op *op, gaddr at)
{
    struct race_root root;
    int rc = index_held(op, index_read_root(op, at, &root, sizeof root));
    return rc == FAR_OK ? give_back(op, at, &root) : rc;
}

static int race_create(struct op *op, const struct index_options *options, uint64_t hash_seed,
                       gaddr *out)
{
    unsigned groups = (unsigned)options->tuning[RACE_TUNING_GROUPS];
    uint64_t pool_bytes = 0, slots = (uint64_t)groups * RACE_GROUP_SLOTS;
    for (unsigned i = 0; i < op->pool->nodes; i++)
        pool_bytes += pool_head(op->pool, i)->size;

    struct race_root root = {.groups = groups,
                             .depth_asked = options->tuning[RACE_TUNING_DEPTH],
                             .hot = options->tuning[RACE_TUNING_HOT]};
    root.dir_bits =
        smaller(index_bits_for(pool_bytes / race_subtable_bytes(groups)) + DIRECTORY_HEADROOM,
                RACE_DIR_BITS_MAX);
    if (root.depth_asked > 0)
        root.dir_bits = (uint32_t)root.depth_asked;
    unsigned for_keys =
        index_bits_for(options->expected_keys / (slots * START_LOAD_PERCENT / 100) + 1);
    unsigned for_nodes = op->pool->nodes > 1 ? index_bits_for(op->pool->nodes * START_PER_NODE) : 0;
    root.depth = smaller(for_keys > for_nodes ? for_keys : for_nodes, root.dir_bits);

    uint32_t subtable = size_class_bytes(race_subtable_class(groups));
    gaddr at = 0;
    uint64_t before = pool_taken_bytes(op->client);
    int rc = for_keys > for_nodes ? pool_check_room(op, (uint64_t)subtable << root.depth) : FAR_OK;
    if (rc == FAR_OK)
        rc = pool_alloc(op, 0, size_class_for(sizeof root), &at);
    if (rc != FAR_OK)
        return rc;
    rc = pool_alloc(op, 0, size_class_for(8ull << root.dir_bits), &root.directory);
    if (rc == FAR_OK)
        rc = write_directory(op, race_tag(hash_seed), &root);
    if (rc != FAR_OK) {
        /* Without local memory, the directory may not even be empty yet: that is not settled. */
        if (!status_means(rc, STATUS_SETTLED) || give_back(op, at, &root) != FAR_OK)
            pool_abandon_since(op->client, before);
        return rc;
    }
    root.checksum = race_root_sum(&root);
    rc = index_write_root(op, at, &root, sizeof root);
    if (rc == FAR_OK)
        *out = at;
    else
        pool_abandon_since(op->client, before);
    return rc;
}

static int refresh(struct op *op, struct index_view *base)
{
    return race_refresh(op, race_view(base));
}

static const struct tuning_param race_tuning[] = {
    [RACE_TUNING_GROUPS] = {"groups", "bucket groups of a subtable", RACE_GROUPS_MIN,
                            RACE_GROUPS_MAX, RACE_GROUPS_DEFAULT},
    [RACE_TUNING_DEPTH] = {"depth",
                           "most bits of the directory; 0 lets the size of the pool decide", 0,
                           RACE_DIR_BITS_MAX, 0},
    [RACE_TUNING_HOT] =
        {"hot", "KiB for where hot keys are, which take one or two round trips less; 0: none", 0,
         RACE_HOT_MAX, RACE_HOT_DEFAULT},
    {NULL, NULL, 0, 0, 0},
};

static const char *const varied[] = {"groups=2&hot=0", "groups=3&hot=1", NULL};

const struct index_ops race_index = {
    .name = "race",
    .tuning = race_tuning,
    .smallest = "groups=2&hot=1",
    .varied = varied,
    .create = race_create,
    .discard = race_discard,
    .view_bytes = sizeof(struct race_view),
    .attach = race_attach,
    .detach = race_detach,
    .refresh = refresh,
    .get = race_get,
    .ahead = race_ahead,
    .change = race_change,
    .iterate = race_iterate,
    .mark = race_mark,
    .recover = race_recover,
    .info = race_info,
    .check = race_check,
};
