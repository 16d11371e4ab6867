/* Making a table, and a session's view of it. */
#include "trie/trie.h"
#include "index/refresh.h"

static const struct tuning_param trie_tuning[] = {
    [TRIE_TUNING_LINES] = {"lines", "cache lines of a node", 1, 8, 2},
    [TRIE_TUNING_HOT] = {"hot", "KiB for where hot keys are; 0: none", 0, 1024, 64},
    {NULL, NULL, 0, 0, 0},
};

static int create(struct op *op, const struct index_options *options, uint64_t hash_seed,
                  gaddr *out)
{
    struct trie_root root = {.lines = options->tuning[TRIE_TUNING_LINES],
                             .hot = options->tuning[TRIE_TUNING_HOT]};
    uint32_t bytes = (uint32_t)root.lines * 64;
    gaddr at = 0;
    uint64_t before = pool_taken_bytes(op->client);
    uint64_t *image = op_buffer(op, BUF_INDEX, bytes);
    if (!image)
        return FAR_NO_MEMORY;
    int rc = pool_alloc(op, 0, size_class_for(sizeof root), &at);
    if (rc != FAR_OK)
        return rc;
    rc = pool_alloc(op, 0, size_class_for(bytes), &root.first);
    if (rc != FAR_OK) {
        pool_free_unpublished(op->client, at, size_class_for(sizeof root));
        return rc;
    }
    memset(image, 0, bytes);
    image[0] = trie_first_id(hash_seed);
    root.checksum = trie_root_sum(&root);
    batch_write(&op->batch, MARK_EARLY, root.first, 0, image, bytes);
    rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        rc = index_write_root(op, at, &root, sizeof root);
    if (rc == FAR_OK)
        *out = at;
    else
        pool_abandon_since(op->client, before);
    return rc;
}

/* Nothing points to the table yet, so it is as create() has left it. */
static int discard(struct op *op, gaddr at)
{
    struct trie_root root;
    int rc = index_held(op, index_read_root(op, at, &root, sizeof root));
    if (rc != FAR_OK)
        return rc;
    pool_free_unpublished(op->client, root.first, size_class_for(root.lines * 64));
    pool_free_unpublished(op->client, at, size_class_for(sizeof root));
    return FAR_OK;
}

static void detach(struct index_view *base)
{
    index_owns_close(&trie_view(base)->owns);
}

/* What a session knows of nodes becomes wrong only if the table is damaged and repaired: then the
 * version has changed. Hints are guesses, and stay. */
static int refresh(struct op *op, struct index_view *base)
{
    int rc = index_refresh_root(op, base, sizeof(struct trie_root));
    if (rc == FAR_OK)
        memset(trie_view(base)->known, 0, sizeof trie_view(base)->known);
    return rc;
}

static void set_geometry(struct trie_view *view)
{
    view->bytes = (unsigned)view->root.lines * 64;
    view->size_class = size_class_for(view->bytes);
    view->words = view->bytes / 8 - 1;
    view->bits = index_bits_for(view->words);
    view->levels = TRIE_POSITION_BITS / view->bits;
}

static int attach(struct op *op, struct index_view *base)
{
    struct trie_view *view = trie_view(base);
    uint64_t version = 0;
    int rc = index_read_confirmed(op, base, &view->root, sizeof view->root, &version);
    if (rc == FAR_OK && view->root.checksum != trie_root_sum(&view->root))
        rc = index_damaged(base->table, "the root");
    if (rc == FAR_OK) {
        set_geometry(view);
        view->hints = index_hints_open(op, base->table, view->root.hot * 1024);
        if (!(op->pool->fab->caps & FAB_CAP_IMMEDIATE)) /* else a look is no round trip */
            index_owns_open(&view->owns, TRIE_SLOT, view->root.hot * 1024);
        rc = refresh(op, base);
    }
    return rc;
}

const struct index_ops trie_index = {
    .name = "trie",
    .tuning = trie_tuning,
    .smallest = "lines=1&hot=1",
    .create = create,
    .discard = discard,
    .view_bytes = sizeof(struct trie_view),
    .attach = attach,
    .detach = detach,
    .refresh = refresh,
    .get = trie_get,
    .change = trie_change,
    .iterate = trie_iterate,
    .mark = trie_mark,
    .info = trie_info,
    .check = trie_check,
};
