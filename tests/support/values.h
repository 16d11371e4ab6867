/* A round trip of the largest values through a pool that others can open, too. */
#ifndef TESTS_VALUES_H
#define TESTS_VALUES_H

#include <farside.h>

#include <stdlib.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static inline void values_fill(uint8_t *bytes, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 255 * 13 + seed);
}

/* Puts, updates, reads and deletes values of the greatest length, with keys of the least and of the
 * greatest; submits some at once. */
static inline void values_round_trip(const char *uri)
{
    far_pool *pool = NULL;
    far_session *s = NULL;
    far_table *t = NULL;
    uint8_t *value = malloc(2 * FAR_VALUE_MAX), *got = value + FAR_VALUE_MAX;
    static uint8_t key[FAR_KEY_MAX];
    static const size_t klens[] = {1, FAR_KEY_MAX};

    assert_non_null(value);
    assert_int_equal(far_pool_open(uri, &pool), FAR_OK);
    assert_int_equal(far_session_open(pool, NULL, &s), FAR_OK);
    assert_int_equal(far_table_create(s, "t", "race", NULL, &t), FAR_OK);
    for (unsigned turn = 0; turn < 4; turn++) {
        size_t klen = klens[turn % 2], len = 0;
        values_fill(key, klen, turn);
        for (unsigned i = 0; i < 2; i++) {
            values_fill(value, FAR_VALUE_MAX, turn + 17 * i);
            int rc = i == 0 ? far_insert(s, t, key, klen, value, FAR_VALUE_MAX)
                            : far_update(s, t, key, klen, value, FAR_VALUE_MAX);
            assert_int_equal(rc, FAR_OK);
            memset(got, 0, FAR_VALUE_MAX);
            assert_int_equal(far_get(s, t, key, klen, got, FAR_VALUE_MAX, &len), FAR_OK);
            assert_int_equal(len, FAR_VALUE_MAX);
            assert_true(memcmp(got, value, FAR_VALUE_MAX) == 0);
        }
        assert_int_equal(far_get(s, t, key, klen, got, FAR_VALUE_MAX - 1, &len), FAR_TOO_SMALL);
        assert_int_equal(len, FAR_VALUE_MAX);
        assert_int_equal(far_delete(s, t, key, klen), FAR_OK);
        assert_int_equal(far_exists(s, t, key, klen), FAR_NOT_FOUND);
    }
    /* Through the ring, all at once. */
    struct far_result result[4];
    struct far_op op = {.kind = FAR_OP_PUT, .table = t, .value = value, .value_len = FAR_VALUE_MAX};
    for (unsigned i = 0; i < 4; i++) {
        op.key = &key[i];
        op.key_len = 1 + i;
        op.user_data = i;
        assert_int_equal(far_submit(s, &op), FAR_OK);
    }
    for (unsigned reaped = 0; reaped < 4;) {
        unsigned n = far_reap(s, result, 4, 1);
        for (unsigned i = 0; i < n; i++)
            assert_int_equal(result[i].status, FAR_OK);
        reaped += n;
    }
    for (unsigned i = 0; i < 4; i++) {
        size_t len = 0;
        assert_int_equal(far_get(s, t, &key[i], 1 + i, got, FAR_VALUE_MAX, &len), FAR_OK);
        assert_true(len == FAR_VALUE_MAX && memcmp(got, value, FAR_VALUE_MAX) == 0);
    }
    far_session_close(s);
    far_pool_close(pool);
    free(value);
}

#endif
