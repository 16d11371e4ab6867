/* Every error of farside.h that can be provoked on one machine, each by its own cause, with the
 * outputs left alone. */
#include "support/puppet.h"
#include "support/store_rig.h"

#include <stdio.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static void rig(struct store_rig *r)
{
    store_rig_open(r, "mem:?size=32m", NULL, NULL, NULL);
}

/* ---- operations ------------------------------------------------------------------------------ */

static void keys_have_1_to_4096_bytes(void **state)
{
    static uint8_t key[FAR_KEY_MAX + 1];
    struct store_rig r;
    char buf[8];
    size_t len = 77;

    (void)state;
    rig(&r);
    static const size_t bad[] = {0, FAR_KEY_MAX + 1, SIZE_MAX};
    for (unsigned i = 0; i < 3; i++) {
        size_t n = bad[i];
        assert_int_equal(far_get(r.session, r.table, key, n, buf, 8, &len), FAR_KEY_SIZE);
        assert_int_equal(far_exists(r.session, r.table, key, n), FAR_KEY_SIZE);
        assert_int_equal(far_put(r.session, r.table, key, n, "v", 1), FAR_KEY_SIZE);
        assert_int_equal(far_insert(r.session, r.table, key, n, "v", 1), FAR_KEY_SIZE);
        assert_int_equal(far_update(r.session, r.table, key, n, "v", 1), FAR_KEY_SIZE);
        assert_int_equal(far_delete(r.session, r.table, key, n), FAR_KEY_SIZE);
    }
    assert_int_equal(len, 77);
    static const size_t good[] = {1, FAR_KEY_MAX};
    for (unsigned i = 0; i < 2; i++) {
        size_t n = good[i];
        assert_int_equal(far_insert(r.session, r.table, key, n, "v", 1), FAR_OK);
        assert_int_equal(far_update(r.session, r.table, key, n, "w", 1), FAR_OK);
        assert_int_equal(far_put(r.session, r.table, key, n, "x", 1), FAR_OK);
        assert_int_equal(far_exists(r.session, r.table, key, n), FAR_OK);
        assert_int_equal(far_get(r.session, r.table, key, n, buf, 8, &len), FAR_OK);
        assert_int_equal(len, 1);
        assert_int_equal(far_delete(r.session, r.table, key, n), FAR_OK);
    }
    store_rig_close(&r);
}

static void values_have_up_to_4_mebibytes(void **state)
{
    static uint8_t value[FAR_VALUE_MAX + 1];
    struct store_rig r;
    size_t len = 0;

    (void)state;
    rig(&r);
    static const size_t bad[] = {FAR_VALUE_MAX + 1, SIZE_MAX};
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(far_put(r.session, r.table, "k", 1, value, bad[i]), FAR_VALUE_SIZE);
        assert_int_equal(far_insert(r.session, r.table, "k", 1, value, bad[i]), FAR_VALUE_SIZE);
        assert_int_equal(far_update(r.session, r.table, "k", 1, value, bad[i]), FAR_VALUE_SIZE);
    }
    assert_int_equal(far_exists(r.session, r.table, "k", 1), FAR_NOT_FOUND);
    assert_int_equal(far_put(r.session, r.table, "k", 1, value, FAR_VALUE_MAX), FAR_OK);
    assert_int_equal(far_get(r.session, r.table, "k", 1, value, FAR_VALUE_MAX, &len), FAR_OK);
    assert_int_equal(len, FAR_VALUE_MAX);
    assert_int_equal(far_put(r.session, r.table, "k", 1, NULL, 0), FAR_OK);
    assert_int_equal(far_get(r.session, r.table, "k", 1, NULL, 0, &len), FAR_OK);
    assert_int_equal(len, 0);
    store_rig_close(&r);
}

static void a_buffer_that_is_too_small_is_unchanged(void **state)
{
    struct store_rig r;
    char buf[16];
    size_t len = 0;

    (void)state;
    rig(&r);
    assert_int_equal(far_put(r.session, r.table, "key", 3, "0123456789", 10), FAR_OK);
    memset(buf, '#', sizeof buf);
    for (size_t cap = 0; cap < 10; cap++) {
        len = 0;
        assert_int_equal(far_get(r.session, r.table, "key", 3, cap ? buf : NULL, cap, &len),
                         FAR_TOO_SMALL);
        assert_int_equal(len, 10);
        assert_int_equal(far_get(r.session, r.table, "key", 3, buf, cap, NULL), FAR_TOO_SMALL);
        for (unsigned i = 0; i < sizeof buf; i++)
            assert_int_equal(buf[i], '#');
    }
    assert_int_equal(far_get(r.session, r.table, "key", 3, buf, 10, &len), FAR_OK);
    assert_memory_equal(buf, "0123456789######", 16); /* not a byte past the value */
    store_rig_close(&r);
}

static void insert_update_and_delete_depend_on_the_key(void **state)
{
    struct store_rig r;
    char buf[4] = "###";
    size_t len = 77;

    (void)state;
    rig(&r);
    assert_int_equal(far_get(r.session, r.table, "k", 1, buf, 4, &len), FAR_NOT_FOUND);
    assert_int_equal(len, 77);
    assert_string_equal(buf, "###");
    assert_int_equal(far_exists(r.session, r.table, "k", 1), FAR_NOT_FOUND);
    assert_int_equal(far_update(r.session, r.table, "k", 1, "v", 1), FAR_NOT_FOUND);
    assert_int_equal(far_exists(r.session, r.table, "k", 1), FAR_NOT_FOUND);
    assert_int_equal(far_delete(r.session, r.table, "k", 1), FAR_NOT_FOUND);
    assert_int_equal(far_insert(r.session, r.table, "k", 1, "v", 1), FAR_OK);
    assert_int_equal(far_insert(r.session, r.table, "k", 1, "w", 1), FAR_EXISTS);
    assert_int_equal(far_get(r.session, r.table, "k", 1, buf, 4, &len), FAR_OK);
    assert_int_equal(buf[0], 'v');
    assert_int_equal(far_delete(r.session, r.table, "k", 1), FAR_OK);
    assert_int_equal(far_delete(r.session, r.table, "k", 1), FAR_NOT_FOUND);
    store_rig_close(&r);
}

static void a_table_of_another_pool_is_refused(void **state)
{
    struct store_rig mine, other;
    struct far_table_info info;

    (void)state;
    rig(&mine);
    rig(&other);
    far_session *s = mine.session;
    far_table *t = other.table;
    struct far_op op = {.kind = FAR_OP_EXISTS, .table = t, .key = "k", .key_len = 1};
    assert_int_equal(far_get(s, t, "k", 1, NULL, 0, NULL), FAR_INVALID);
    assert_int_equal(far_exists(s, t, "k", 1), FAR_INVALID);
    assert_int_equal(far_put(s, t, "k", 1, "v", 1), FAR_INVALID);
    assert_int_equal(far_submit(s, &op), FAR_INVALID);
    assert_int_equal(far_table_info(s, t, &info), FAR_INVALID);
    assert_int_equal(far_table_check(s, t, NULL, NULL), FAR_INVALID);
    assert_int_equal(far_put(s, mine.table, "k", 1, "v", 1), FAR_OK);
    assert_int_equal(far_exists(other.session, t, "k", 1), FAR_NOT_FOUND);
    store_rig_close(&other);
    store_rig_close(&mine);
}

static void a_get_without_a_buffer_is_refused(void **state)
{
    struct store_rig r;
    size_t len = 77;

    (void)state;
    rig(&r);
    assert_int_equal(far_put(r.session, r.table, "k", 1, "value", 5), FAR_OK);
    assert_int_equal(far_get(r.session, r.table, "k", 1, NULL, 5, &len), FAR_INVALID);
    assert_int_equal(len, 77);
    assert_int_equal(far_get(r.session, r.table, "k", 1, NULL, 0, &len), FAR_TOO_SMALL);
    assert_int_equal(len, 5);
    store_rig_close(&r);
}

/* ---- pools ----------------------------------------------------------------------------------- */

static void uris_that_are_not_understood_are_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "mem",
        ":",
        "mem:nowhere",
        "mem:?size=",
        "mem:?size=big",
        "mem:?size=-1",
        "mem:?size=4gg",
        "mem:?size=1k",
        "mem:?nodes=0",
        "mem:?nodes=65",
        "mem:?nodes=two",
        "mem:?clients=0",
        "mem:?clients=65537",
        "mem:?colour=red",
        "mem:?size",
        "mem:?size=2m&size=3m",
    };
    far_pool *pool = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int rc = far_pool_open(bad[i], &pool);
        if (rc != FAR_BAD_URI)
            fail_msg("'%s': %s", bad[i], far_errname(rc));
        assert_string_not_equal(far_error_detail(), "");
        assert_null(pool);
    }
    assert_int_equal(far_pool_open("nfs:host", &pool), FAR_NO_FABRIC);
    assert_non_null(strstr(far_error_detail(), "nfs"));
    assert_int_equal(far_pool_open("memory:", &pool), FAR_NO_FABRIC);
    assert_int_equal(far_pool_open("mem:?size=1m&clients=60000", &pool), FAR_POOL_FULL);
    assert_null(pool);
}

/* Writes a superblock word of a closed pool, with the checksum made right or not. */
static void patch_head(struct fab *fab, unsigned node, const struct node_head *head)
{
    struct fab_ep *ep = NULL;
    struct batch b;
    struct cost cost = {0};

    assert_int_equal(fab->ops->ep_open(fab, &ep), FAR_OK);
    struct node_head *image = ep->ops->buf_alloc(ep, sizeof *image);
    assert_non_null(image);
    *image = *head;
    batch_init(&b, ep, &cost);
    batch_write(&b, MARK_EARLY, gaddr_make(node, 0), 0, image, sizeof *image);
    assert_int_equal(batch_flush(&b), FAR_OK);
    ep->ops->buf_free(ep, image, sizeof *image);
    ep->ops->ep_close(ep);
}

static void seal_head(struct node_head *head)
{
    head->checksum = hash_sum(head, offsetof(struct node_head, checksum), POOL_MAGIC);
}

static int reopen(struct fab *fab)
{
    far_pool *pool = NULL;
    int rc = store_open(fab, NULL, &pool);

    assert_true((rc == FAR_OK) == (pool != NULL));
    far_pool_close(pool);
    return rc;
}

static void superblocks_of_another_kind_are_refused(void **state)
{
    struct fab *fab = NULL;
    struct pool pool;

    (void)state;
    assert_int_equal(fab_open("mem:?size=4m&nodes=2", &fab), FAR_OK);
    assert_int_equal(pool_open(fab, NULL, &pool), FAR_OK);
    assert_false(fab->fresh);
    assert_int_equal(reopen(fab), FAR_OK);
    for (unsigned node = 0; node < 2; node++) {
        const struct node_head good = pool.head[node];
        struct node_head bad = good;
        bad.layout_version++;
        patch_head(fab, node, &bad); /* of a version whose checksum we cannot know */
        assert_int_equal(reopen(fab), FAR_LAYOUT);
        seal_head(&bad);
        patch_head(fab, node, &bad);
        assert_int_equal(reopen(fab), FAR_LAYOUT);

        bad = good;
        bad.magic = 0;
        patch_head(fab, node, &bad);
        assert_int_equal(reopen(fab), FAR_NOT_A_POOL);
        memset(&bad, 'x', sizeof bad); /* overwritten by something else */
        patch_head(fab, node, &bad);
        assert_int_equal(reopen(fab), FAR_NOT_A_POOL);
        memset(&bad, 0, sizeof bad);
        patch_head(fab, node, &bad);
        assert_int_equal(reopen(fab), FAR_NOT_A_POOL);

        bad = good;
        bad.chunks ^= 1; /* damaged */
        patch_head(fab, node, &bad);
        assert_int_equal(reopen(fab), FAR_CORRUPT);
        seal_head(&bad); /* and not even a good checksum makes it believable */
        patch_head(fab, node, &bad);
        assert_int_equal(reopen(fab), FAR_CORRUPT);
        bad = good;
        bad.size = UINT64_MAX;
        seal_head(&bad);
        patch_head(fab, node, &bad);
        assert_int_equal(reopen(fab), FAR_CORRUPT);

        bad = good;
        bad.node ^= 1; /* nodes of a pool that were swapped */
        seal_head(&bad);
        patch_head(fab, node, &bad);
        assert_int_equal(reopen(fab), FAR_NOT_A_POOL);
        bad = good;
        bad.nodes = 3; /* or one that is missing */
        seal_head(&bad);
        patch_head(fab, node, &bad);
        assert_int_equal(reopen(fab), FAR_NOT_A_POOL);
        patch_head(fab, node, &good);
    }
    struct node_head other = pool.head[1];
    other.pool_id++; /* a node of another pool */
    seal_head(&other);
    patch_head(fab, 1, &other);
    assert_int_equal(reopen(fab), FAR_NOT_A_POOL);
    patch_head(fab, 1, &pool.head[1]);
    assert_int_equal(reopen(fab), FAR_OK);
    fab_close(fab);
}

static void a_truncated_pool_is_not_opened(void **state)
{
    struct fab *fab = NULL;
    struct pool pool;

    (void)state;
    assert_int_equal(fab_open("mem:?size=4m&nodes=2", &fab), FAR_OK);
    assert_int_equal(pool_open(fab, NULL, &pool), FAR_OK);
    for (unsigned node = 0; node < 2; node++) {
        static const uint64_t cut[] = {0, 8, 56, 64, 4096, 1u << 20, (4u << 20) - 64};
        uint64_t whole = fab->size[node];
        for (unsigned i = 0; i < sizeof cut / sizeof *cut; i++) {
            fab->size[node] = cut[i];
            assert_true(reopen(fab) != FAR_OK);
        }
        fab->size[node] = whole;
    }
    assert_int_equal(reopen(fab), FAR_OK);
    fab_close(fab);
}

/* ---- sessions -------------------------------------------------------------------------------- */

static void sessions_have_limits(void **state)
{
    far_pool *pool = NULL;
    far_session *s[3] = {NULL}, *more = NULL;
    struct far_session_options deep = {.depth = FAR_DEPTH_MAX + 1};

    (void)state;
    assert_int_equal(far_pool_open("mem:?size=2m&clients=3", &pool), FAR_OK);
    assert_int_equal(far_session_open(pool, &deep, &more), FAR_INVALID);
    deep.depth = UINT32_MAX;
    assert_int_equal(far_session_open(pool, &deep, &more), FAR_INVALID);
    deep.depth = FAR_DEPTH_MAX;
    assert_int_equal(far_session_open(pool, &deep, &s[0]), FAR_OK);
    for (unsigned i = 1; i < 3; i++)
        assert_int_equal(far_session_open(pool, NULL, &s[i]), FAR_OK);
    assert_int_equal(far_session_open(pool, NULL, &more), FAR_NO_CLIENT_SLOT);
    assert_null(more);
    far_session_close(s[1]);
    assert_int_equal(far_session_open(pool, NULL, &s[1]), FAR_OK);
    for (unsigned i = 0; i < 3; i++)
        far_session_close(s[i]);
    far_pool_close(pool);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void bad_table_names_and_options_are_refused(void **state)
{
    struct store_rig r;
    char longest[FAR_NAME_MAX + 2];
    far_table *table = NULL;

    (void)state;
    rig(&r);
    memset(longest, 'n', sizeof longest);
    longest[FAR_NAME_MAX + 1] = '\0';
    const char *const bad[] = {"", longest, "tab\there", "line\n", "\x7f", "\x01"};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(far_table_create(r.session, bad[i], "race", NULL, &table), FAR_INVALID);
        assert_int_equal(far_table_open(r.session, bad[i], NULL, &table), FAR_INVALID);
    }
    longest[FAR_NAME_MAX] = '\0';
    assert_int_equal(far_table_create(r.session, longest, "race", NULL, &table), FAR_OK);
    assert_string_equal(far_table_name(table), longest);
    assert_string_equal(far_table_index(table), "race");
    assert_int_equal(far_table_create(r.session, "\xc3\xa4 b", "race", NULL, &table), FAR_OK);

    table = NULL;
    assert_int_equal(far_table_create(r.session, "u", "btree", NULL, &table), FAR_NO_INDEX);
    assert_int_equal(far_table_create(r.session, "u", "", NULL, &table), FAR_NO_INDEX);
    assert_int_equal(far_table_open(r.session, "u", NULL, &table), FAR_NO_TABLE);
    assert_non_null(strstr(far_error_detail(), "'u'"));
    assert_null(table);
    store_rig_close(&r);
}

static void a_second_create_and_another_index_are_refused(void **state)
{
    struct store_rig r;
    far_table *table = NULL;
    struct table_desc foreign = {.name = "foreign", .index = "btree", .root = 1};

    (void)state;
    rig(&r);
    assert_int_equal(far_table_create(r.session, "t", "race", NULL, &table), FAR_TABLE_EXISTS);
    assert_int_equal(far_table_open(r.session, "t", "btree", &table), FAR_WRONG_INDEX);
    assert_non_null(strstr(far_error_detail(), "race"));
    assert_int_equal(catalog_add(&r.session->op, &foreign), FAR_OK);
    assert_int_equal(far_table_open(r.session, "foreign", "race", &table), FAR_WRONG_INDEX);
    assert_non_null(strstr(far_error_detail(), "btree"));
    assert_int_equal(far_table_open(r.session, "foreign", "btree", &table), FAR_NO_INDEX);
    assert_int_equal(far_table_open(r.session, "foreign", NULL, &table), FAR_NO_INDEX);
    assert_int_equal(far_table_create(r.session, "foreign", "race", NULL, &table),
                     FAR_TABLE_EXISTS);
    assert_null(table);
    assert_int_equal(far_table_open(r.session, "t", "race", &table), FAR_OK);
    assert_ptr_equal(table, r.table); /* one handle a table */
    table = NULL;
    assert_int_equal(far_table_open(r.session, "t", NULL, &table), FAR_OK);
    assert_ptr_equal(table, r.table);
    store_rig_close(&r);
}

/* RACE counts on no order of its own: where it needs one it sets a fence, and the batch keeps it.
 */
static void race_works_on_a_fabric_that_orders_nothing(void **state)
{
    struct store_rig r;
    far_table *table = NULL;
    struct far_table_options tiny = {.tuning = "groups=2"};

    (void)state;
    rig(&r);
    r.fab->order = 0;
    assert_int_equal(far_table_create(r.session, "u", "race", &tiny, &table), FAR_OK);
    for (uint32_t i = 0; i < 500; i++)
        assert_int_equal(far_insert(r.session, table, &i, sizeof i, &i, sizeof i), FAR_OK);
    for (uint32_t i = 0; i < 500; i++)
        assert_int_equal(far_exists(r.session, table, &i, sizeof i), FAR_OK);
    assert_int_equal(far_table_check(r.session, table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

static void a_full_catalog_refuses_another_table(void **state)
{
    struct store_rig r;
    far_table *table = NULL;

    (void)state;
    rig(&r);
    assert_int_equal(r.pool->pool.places, 4096);
    for (unsigned i = 1; i < r.pool->pool.places; i++) {
        struct table_desc desc = {.root = 1, .index = "race"}; /* no real ones: they take memory */
        snprintf(desc.name, sizeof desc.name, "t%u", i);
        assert_int_equal(catalog_add(&r.session->op, &desc), FAR_OK);
    }
    assert_int_equal(far_table_create(r.session, "more", "race", NULL, &table), FAR_CATALOG_FULL);
    assert_null(table);
    assert_int_equal(far_put(r.session, r.table, "k", 1, "v", 1), FAR_OK);
    store_rig_close(&r);
}

struct listed {
    unsigned count, stop_at;
    bool in_order;
};

static int note_table(void *arg, const char *name, const char *index)
{
    struct listed *l = arg;
    char want[16];

    snprintf(want, sizeof want, "t%u", l->count);
    l->in_order =
        l->in_order && strcmp(index, "race") == 0 && strcmp(name, l->count == 0 ? "t" : want) == 0;
    return ++l->count == l->stop_at ? 4711 : 0;
}

static void tables_are_listed_until_the_callback_has_enough(void **state)
{
    struct store_rig r;
    far_table *table = NULL;
    struct listed all = {.in_order = true}, some = {.in_order = true, .stop_at = 2};

    (void)state;
    rig(&r);
    assert_int_equal(far_table_create(r.session, "t1", "race", NULL, &table), FAR_OK);
    assert_int_equal(far_table_create(r.session, "t2", "race", NULL, &table), FAR_OK);
    assert_int_equal(far_table_list(r.session, note_table, &all), FAR_OK);
    assert_int_equal(all.count, 3);
    assert_true(all.in_order);
    assert_int_equal(far_table_list(r.session, note_table, &some), 4711);
    assert_int_equal(some.count, 2);
    assert_string_equal(far_index_name(0), "race");
    assert_null(far_index_name(1000));
    store_rig_close(&r);
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* Damage to a key's block, the table's root or its descriptor is reported. */
static void damage_is_corrupt_and_not_a_miss(void **state)
{
    struct store_rig r;
    far_session *second = NULL;
    far_table *table = NULL;
    char buf[16];
    size_t len = 77;

    (void)state;
    rig(&r);
    assert_int_equal(far_put(r.session, r.table, "key", 3, "value", 5), FAR_OK);
    gaddr root = r.table->index.desc.root;
    uint64_t word = store_rig_get(&r, root, 64); /* its groups and directory bits */
    assert_int_equal(far_session_open(r.pool, NULL, &second), FAR_OK);
    store_rig_set(&r, root, 64, word ^ 1);
    assert_int_equal(far_get(second, r.table, "key", 3, buf, 16, &len), FAR_CORRUPT);
    assert_int_equal(far_put(second, r.table, "key", 3, "v", 1), FAR_CORRUPT);
    assert_int_equal(far_table_check(second, r.table, NULL, NULL), FAR_CORRUPT);
    store_rig_set(&r, root, 64, word);
    assert_int_equal(far_get(second, r.table, "key", 3, buf, 16, &len), FAR_OK);
    assert_int_equal(len, 5);

    /* The key's block is the last that this session allocated of its class. */
    unsigned size_class = size_class_for(block_bytes(3, 5));
    gaddr block = puppet_last_new(&r.session->client, 0, size_class);
    word = store_rig_get(&r, block, 16);
    store_rig_set(&r, block, 16, word ^ 1ull << 40);
    len = 77;
    assert_int_equal(far_get(r.session, r.table, "key", 3, buf, 16, &len), FAR_CORRUPT);
    assert_int_equal(len, 77);
    assert_int_equal(far_exists(r.session, r.table, "key", 3), FAR_CORRUPT);
    assert_int_equal(far_update(r.session, r.table, "key", 3, "v", 1), FAR_CORRUPT);
    assert_int_equal(far_put(r.session, r.table, "key", 3, "v", 1), FAR_CORRUPT);
    assert_int_equal(far_delete(r.session, r.table, "key", 3), FAR_CORRUPT);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_CORRUPT);
    store_rig_set(&r, block, 16, word);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);

    store_rig_set(&r, gaddr_make(0, 0), r.pool->pool.catalog_off, 1ull << 60 | 2);
    assert_int_equal(far_table_open(second, "t", NULL, &table), FAR_CORRUPT);
    assert_int_equal(far_table_list(second, note_table, NULL), FAR_CORRUPT);
    assert_int_equal(far_table_create(second, "u", "race", NULL, &table), FAR_CORRUPT);
    assert_null(table);
    far_session_close(second);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_have_1_to_4096_bytes),
        cmocka_unit_test(values_have_up_to_4_mebibytes),
        cmocka_unit_test(a_buffer_that_is_too_small_is_unchanged),
        cmocka_unit_test(insert_update_and_delete_depend_on_the_key),
        cmocka_unit_test(a_table_of_another_pool_is_refused),
        cmocka_unit_test(a_get_without_a_buffer_is_refused),
        cmocka_unit_test(uris_that_are_not_understood_are_refused),
        cmocka_unit_test(superblocks_of_another_kind_are_refused),
        cmocka_unit_test(a_truncated_pool_is_not_opened),
        cmocka_unit_test(sessions_have_limits),
        cmocka_unit_test(bad_table_names_and_options_are_refused),
        cmocka_unit_test(a_second_create_and_another_index_are_refused),
        cmocka_unit_test(race_works_on_a_fabric_that_orders_nothing),
        cmocka_unit_test(a_full_catalog_refuses_another_table),
        cmocka_unit_test(tables_are_listed_until_the_callback_has_enough),
        cmocka_unit_test(damage_is_corrupt_and_not_a_miss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
