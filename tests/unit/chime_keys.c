/* Keys of CHIME that begin with the same 8 bytes: nodes have only those of a separator in their
 * image. */
#include "index/chime/chime.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS 64u

static size_t name_key(char key[16], unsigned n)
{
    return (size_t)snprintf(key, 16, "together%03u", n);
}

/* A session that has read no node, and one that remembers them all. */
static void each_is_found_in_the_leaf_of_its_last_bytes(void **state)
{
    struct far_table_options options = {.tuning = "span=8&neighbourhood=8&cache=16&hot=0"};
    struct store_rig r;
    far_table *t = NULL;
    char key[16];

    (void)state;
    store_rig_open(&r, "mem:?size=4m", NULL, NULL, NULL);
    assert_int_equal(far_table_create(r.session, "c", "chime", &options, &t), FAR_OK);
    for (unsigned n = 0; n < KEYS; n++)
        assert_int_equal(far_insert(r.session, t, key, name_key(key, n), &n, sizeof n), FAR_OK);
    assert_true(chime_view(store_known(r.session, t)->view)->base.grown > 1);
    far_session *other = store_rig_join(&r);
    for (unsigned n = 0; n < 2 * KEYS; n++) {
        unsigned value = KEYS;
        far_session *s = n < KEYS ? other : r.session;
        assert_int_equal(far_get(s, t, key, name_key(key, n % KEYS), &value, sizeof value, NULL),
                         FAR_OK);
        assert_int_equal(value, n % KEYS);
    }
    assert_int_equal(far_table_check(r.session, t, NULL, NULL), FAR_OK);
    far_session_close(other);
    store_rig_close(&r);
}

#define COMMON 1000u
/* A key of COMMON equal bytes and a number; or only `len` bytes of such a key. */
static size_t long_key(char key[COMMON + 8], unsigned n, size_t len)
{
    memset(key, 'x', COMMON);
    snprintf(key + COMMON, 8, "%05u", n);
    return len != 0 ? len : COMMON + 5;
}

static uint64_t cached_bytes(struct store_rig *r, far_table *t)
{
    struct far_table_info info;
    assert_int_equal(far_table_info(r->session, t, &info), FAR_OK);
    return info.client_cache_bytes;
}

/* The beginning that the separators of a node have in common is cached once. */
static void a_common_beginning_takes_little_of_the_cache(void **state)
{
    enum { SOME = 2000 };
    struct store_rig r;
    far_table *t = NULL;
    char key[COMMON + 8];
    (void)state;
    store_rig_open(&r, "mem:?size=16m", NULL, NULL, NULL);
    struct far_table_options options = {.tuning = "hot=0", .hash_seed = 5};
    assert_int_equal(far_table_create(r.session, "c", "chime", &options, &t), FAR_OK);
    for (unsigned n = 0; n < SOME; n++) {
        size_t len = long_key(key, n * 7919 % 10007, 0);
        assert_int_equal(far_insert(r.session, t, key, len, &n, sizeof n), FAR_OK);
    }
    assert_true(cached_bytes(&r, t) <= 4 * SOME);
    store_rig_close(&r);
}

/* Keys that end within the common beginning of a node, that leave it, and that have all of it are
 * led to their leaves, also by nodes above the lowest ones. */
static void keys_are_led_by_all_bytes_of_separators(void **state)
{
    enum { SOME = 300 };
    static char key[COMMON + 8], got[COMMON + 8], buf[FAR_KEY_MAX];
    static const char last[] = {'x' - 1, 'x', 'x' + 1};
    struct store_rig r;
    far_table *t = NULL;
    (void)state;
    store_rig_open(&r, "mem:?size=16m", NULL, NULL, NULL);
    struct far_table_options options = {.tuning = "span=8&neighbourhood=8&cache=64&hot=0"};
    assert_int_equal(far_table_create(r.session, "c", "chime", &options, &t), FAR_OK);
    far_session *other = store_rig_join(&r);
    unsigned keys = 0;
    for (unsigned round = 0; round < 3; round++) { /* insert, look, scan */
        far_session *s = round == 0 ? r.session : other;
        for (unsigned n = 0; n < SOME; n++)
            for (unsigned i = 0; i < (n % 10 == 0 ? 4u : 1u); i++) {
                size_t len = long_key(key, n, i == 0 ? 0 : 1 + n * 3);
                if (i > 0)
                    key[len - 1] = last[i - 1];
                struct far_range range = {.from = key, .from_len = len, .limit = 1};
                bool more = false;
                size_t size = 0, pos = 0;
                struct far_entry e;
                keys += round == 0;
                if (round == 0) {
                    assert_int_equal(far_insert(s, t, key, len, &len, sizeof len), FAR_OK);
                } else if (round == 1) {
                    assert_int_equal(far_get(s, t, key, len, got, sizeof got, &size), FAR_OK);
                    assert_memory_equal(got, &len, sizeof len);
                } else {
                    assert_int_equal(far_scan(s, t, &range, buf, sizeof buf, &size, &more), FAR_OK);
                    assert_true(far_entry_next(buf, size, &pos, &e));
                    assert_int_equal(e.key_len, len);
                    assert_memory_equal(e.key, key, len);
                }
            }
    }
    struct far_table_info info;
    assert_int_equal(far_table_info(r.session, t, &info), FAR_OK);
    assert_int_equal(info.keys, keys);
    assert_int_equal(far_table_check(r.session, t, NULL, NULL), FAR_OK);
    far_session_close(other);
    store_rig_close(&r);
}

/* Keys that differ only in how many zeros they end with count as having the same first 8 bytes. So
 * a node has separators of 8 bytes beside long ones of fewer, which are higher. */
static void keys_that_end_with_zeros_are_in_order(void **state)
{
    enum { SOME = 4999, ZEROS = 12 };
    struct far_table_options options = {.tuning = "span=8&neighbourhood=8&cache=16&hot=0"};
    struct store_rig r;
    far_table *t = NULL;
    (void)state;
    store_rig_open(&r, "mem:?size=16m", NULL, NULL, NULL);
    assert_int_equal(far_table_create(r.session, "c", "chime", &options, &t), FAR_OK);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < SOME; i++) {
            unsigned n = i * 7919 % SOME, len = 2 + n % ZEROS;
            char key[2 + ZEROS] = {(char)('A' + n / ZEROS / 16), (char)('A' + n / ZEROS % 16)};
            if (round == 0)
                assert_int_equal(far_insert(r.session, t, key, len, &n, sizeof n), FAR_OK);
            else
                assert_int_equal(far_exists(r.session, t, key, len), FAR_OK);
        }
        assert_int_equal(far_table_check(r.session, t, NULL, NULL), FAR_OK);
    }
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_found_in_the_leaf_of_its_last_bytes),
        cmocka_unit_test(a_common_beginning_takes_little_of_the_cache),
        cmocka_unit_test(keys_are_led_by_all_bytes_of_separators),
        cmocka_unit_test(keys_that_end_with_zeros_are_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
