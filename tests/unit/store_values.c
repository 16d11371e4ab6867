/* Keys and values of all lengths and contents come back as they were put. */
#include "support/indexes.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static uint8_t noise[FAR_VALUE_MAX + FAR_KEY_MAX];
static uint8_t got[FAR_VALUE_MAX + 64];

static void make_noise(void)
{
    struct rng rng;

    rng_seed(&rng, 11);
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)rng_next(&rng);
}

/* The key is there with exactly that value, and nothing is written past it. */
static void key_holds(struct store_rig *r, const void *key, size_t klen, const void *value,
                      size_t vlen)
{
    size_t len = SIZE_MAX;

    memset(got + vlen, 0xa5, 64);
    assert_int_equal(far_get(r->session, r->table, key, klen, got, vlen + 64, &len), FAR_OK);
    assert_int_equal(len, vlen);
    assert_memory_equal(got, value, vlen);
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(got[vlen + i], 0xa5);
}

static void round_trip(struct store_rig *r, size_t klen, size_t vlen)
{
    const uint8_t *key = noise, *value = noise + klen, *other = value + (vlen < sizeof noise / 2);

    assert_int_equal(far_insert(r->session, r->table, key, klen, value, vlen), FAR_OK);
    key_holds(r, key, klen, value, vlen);
    if (vlen < sizeof noise / 2) {
        assert_int_equal(far_update(r->session, r->table, key, klen, other, vlen), FAR_OK);
        key_holds(r, key, klen, other, vlen);
    }
    assert_int_equal(far_delete(r->session, r->table, key, klen), FAR_OK);
    assert_int_equal(far_exists(r->session, r->table, key, klen), FAR_NOT_FOUND);
}

static void keys_of_every_length_are_found(void **state)
{
    struct store_rig r;

    (void)state;
    store_rig_open(&r, "mem:?size=64m&nodes=2", NULL, NULL, NULL);
    for (size_t klen = 1; klen <= FAR_KEY_MAX; klen += klen < 300 || klen > 4080 ? 1 : 37)
        round_trip(&r, klen, klen % 100);
    store_rig_close(&r);
}

/* All keys at once in one table, each a prefix of the next: none is taken for another. */
static void keys_that_are_prefixes_of_each_other_differ(void **state)
{
    struct far_table_options tiny = {.tuning = indexes_smallest()};
    struct store_rig r;

    (void)state;
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, &tiny);
    for (size_t klen = 1; klen <= FAR_KEY_MAX; klen += klen < 600 ? 1 : 97)
        assert_int_equal(far_insert(r.session, r.table, noise, klen, &klen, sizeof klen), FAR_OK);
    for (size_t klen = 1; klen <= FAR_KEY_MAX; klen += klen < 600 ? 1 : 97)
        key_holds(&r, noise, klen, &klen, sizeof klen);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    for (size_t klen = 1; klen <= FAR_KEY_MAX; klen += klen < 600 ? 1 : 97)
        assert_int_equal(far_delete(r.session, r.table, noise, klen), FAR_OK);
    store_rig_close(&r);
}

static void keys_of_zeros_differ_by_length(void **state)
{
    static const uint8_t zeros[FAR_KEY_MAX];
    struct far_table_options tiny = {.tuning = indexes_smallest()};
    struct store_rig r;

    (void)state;
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, &tiny);
    for (size_t klen = 1; klen <= FAR_KEY_MAX; klen += klen < 100 ? 1 : 111)
        assert_int_equal(far_insert(r.session, r.table, zeros, klen, zeros, klen % 7), FAR_OK);
    for (size_t klen = 1; klen <= FAR_KEY_MAX; klen += klen < 100 ? 1 : 111)
        key_holds(&r, zeros, klen, zeros, klen % 7);
    assert_int_equal(far_exists(r.session, r.table, zeros, 101), FAR_NOT_FOUND);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

static void keys_may_have_a_nul_anywhere(void **state)
{
    struct store_rig r;

    (void)state;
    store_rig_open(&r, "mem:?size=16m", NULL, NULL, NULL);
    for (unsigned i = 0; i < 256; i++) { /* every pattern of NULs and others in eight bytes */
        uint8_t key[8];
        for (unsigned bit = 0; bit < 8; bit++)
            key[bit] = i >> bit & 1 ? 'x' : 0;
        assert_int_equal(far_insert(r.session, r.table, key, 8, &i, sizeof i), FAR_OK);
    }
    for (unsigned i = 0; i < 256; i++) {
        uint8_t key[8];
        for (unsigned bit = 0; bit < 8; bit++)
            key[bit] = i >> bit & 1 ? 'x' : 0;
        key_holds(&r, key, 8, &i, sizeof i);
    }
    store_rig_close(&r);
}

static void every_key_of_one_and_two_bytes_is_found(void **state)
{
    struct store_rig r;

    (void)state;
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, NULL);
    for (uint32_t i = 0; i < 256; i++)
        assert_int_equal(far_insert(r.session, r.table, &i, 1, &i, 4), FAR_OK);
    for (uint32_t i = 0; i < 65536; i++)
        assert_int_equal(far_insert(r.session, r.table, &i, 2, &i, 3), FAR_OK);
    for (uint32_t i = 0; i < 256; i++)
        key_holds(&r, &i, 1, &i, 4);
    for (uint32_t i = 0; i < 65536; i++)
        key_holds(&r, &i, 2, &i, 3);
    store_rig_close(&r);
}

/* A byte less, exactly, and a byte more than fits each class, up to the largest value. */
static void values_around_every_size_class_come_back(void **state)
{
    struct store_rig r;
    const size_t klen = 16;

    (void)state;
    store_rig_open(&r, "mem:?size=256m&nodes=2", NULL, NULL, NULL);
    for (unsigned i = 0; i < CLASS_COUNT; i++) {
        for (int around = -1; around <= 1; around++) {
            size_t bytes = size_class_bytes(i) + (size_t)around;
            if (bytes - block_bytes(klen, 0) <= FAR_VALUE_MAX)
                round_trip(&r, klen, bytes - block_bytes(klen, 0));
        }
    }
    for (size_t vlen = 0; vlen < 200; vlen++)
        round_trip(&r, klen, vlen);
    round_trip(&r, klen, FAR_VALUE_MAX - 1);
    round_trip(&r, klen, FAR_VALUE_MAX);
    round_trip(&r, FAR_KEY_MAX, FAR_VALUE_MAX);
    round_trip(&r, FAR_KEY_MAX, 0);
    store_rig_close(&r);
}

/* A key's value may go from any size to any other. */
static void a_value_changes_its_size(void **state)
{
    static const size_t sizes[] = {0, 1, 48, 49, 1000, FAR_VALUE_MAX, 5, 70000, 0, 16000, 17000, 3};
    struct store_rig r;

    (void)state;
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, NULL);
    for (unsigned turn = 0; turn < 3; turn++) {
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            assert_int_equal(far_put(r.session, r.table, "key", 3, noise + i, sizes[i]), FAR_OK);
            key_holds(&r, "key", 3, noise + i, sizes[i]);
        }
    }
    struct far_table_info info;
    assert_int_equal(far_table_info(r.session, r.table, &info), FAR_OK);
    assert_int_equal(info.keys, 1);
    store_rig_close(&r);
}

/* Keys with the same hash that every index has room for. */
#define SAME_HASH 16

/* Big values of keys that all have the same fingerprint: every get reads past the others. */
static void big_values_behind_one_fingerprint_are_distinguished(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;

    (void)state;
    knobs.hash_mask = 0;
    store_rig_open(&r, "mem:?size=64m", &knobs, NULL, NULL);
    for (uint32_t i = 0; i < SAME_HASH; i++) {
        size_t vlen = i % 3 ? 300000 + i : i;
        assert_int_equal(far_put(r.session, r.table, &i, sizeof i, noise + i, vlen), FAR_OK);
    }
    for (uint32_t i = 0; i < SAME_HASH; i++)
        key_holds(&r, &i, sizeof i, noise + i, i % 3 ? 300000 + i : i);
    uint32_t absent = 100;
    assert_int_equal(far_exists(r.session, r.table, &absent, sizeof absent), FAR_NOT_FOUND);
    store_rig_close(&r);
}

/* ---- what a get writes ----------------------------------------------------------------------- */

/* A session whose lease lapses behind one of its posts, when the key may be deleted by another. */
static struct {
    struct store_rig *rig;
    struct fab_ep *ep;
    unsigned at, posts; /* which one, and how many there were */
    bool deletes;
    int (*post)(struct fab_ep *ep, struct fab_req *req);
} lapse;

static int post_and_lapse(struct fab_ep *ep, struct fab_req *req)
{
    int rc = lapse.post(ep, req);
    if (ep == lapse.ep && ++lapse.posts == lapse.at) {
        store_rig_pass(lapse.rig, 1500 * 1000000ull);
        if (lapse.deletes)
            ASSERT(far_delete(lapse.rig->session, lapse.rig->table, "key", 3) == FAR_OK);
    }
    return rc;
}

/* Returns what a get gives whose lease lapses behind its `at`th post; its key may lie in buf. */
static int get_and_lapse(unsigned at, bool deletes, const char *key, char *buf, size_t cap)
{
    struct far_table_options table = {.tuning = "hot=0"}; /* the block has a batch of its own */
    struct store_rig r;
    far_session *slow = NULL;
    size_t len = 0;

    store_rig_open_driven(&r, "mem:?size=4m&lease=1000", NULL, NULL, &table);
    assert_int_equal(far_put(r.session, r.table, "key", 3, "value", 5), FAR_OK);
    assert_int_equal(far_session_open(r.pool, NULL, &slow), FAR_OK);
    assert_int_equal(far_exists(slow, r.table, "key", 3), FAR_OK);
    lapse = (typeof(lapse)){
        .rig = &r, .ep = slow->client.ep, .at = at, .deletes = deletes, .post = r.clock->ops.post};
    r.clock->ops.post = post_and_lapse;
    int rc = far_get(slow, r.table, key, 3, buf, cap, &len);
    lapse.ep = NULL;
    far_session_close(slow);
    store_rig_close(&r);
    return rc;
}

static void a_key_may_lie_where_its_value_goes(void **state)
{
    (void)state;
    lapse.posts = 1;
    for (unsigned at = 1; at <= lapse.posts + 1; at++) {
        char buf[8] = "key";
        assert_int_equal(get_and_lapse(at, false, buf, buf, sizeof buf), FAR_OK);
        assert_memory_equal(buf, "value", 5);
    }
    assert_true(lapse.at > 2);
}

static void a_get_that_fails_writes_nothing(void **state)
{
    (void)state;
    for (unsigned at = 1; at <= 2; at++) { /* the buckets, and the block */
        char buf[8] = "as it is";
        assert_int_equal(get_and_lapse(at, true, "key", buf, sizeof buf), FAR_NOT_FOUND);
        assert_memory_equal(buf, "as it is", 8);
    }
}

int main(int argc, char **argv)
{
    indexes_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_every_length_are_found),
        cmocka_unit_test(keys_that_are_prefixes_of_each_other_differ),
        cmocka_unit_test(keys_of_zeros_differ_by_length),
        cmocka_unit_test(keys_may_have_a_nul_anywhere),
        cmocka_unit_test(every_key_of_one_and_two_bytes_is_found),
        cmocka_unit_test(values_around_every_size_class_come_back),
        cmocka_unit_test(a_value_changes_its_size),
        cmocka_unit_test(big_values_behind_one_fingerprint_are_distinguished),
    };
    /* These count the batches of a get. */
    const struct CMUnitTest of_race[] = {
        cmocka_unit_test(a_key_may_lie_where_its_value_goes),
        cmocka_unit_test(a_get_that_fails_writes_nothing),
    };
    make_noise();
    int failed = INDEXES_RUN(tests);
    return failed + cmocka_run_group_tests(of_race, NULL, NULL);
}
