/* Filling a pool or a table. */
#ifndef TESTS_FILL_H
#define TESTS_FILL_H

#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS_MAX 400000u

static inline void key_holds(struct store_rig *r, uint32_t key, uint32_t value)
{
    uint32_t got = 0;
    size_t len = 0;

    assert_int_equal(far_get(r->session, r->table, &key, sizeof key, &got, sizeof got, &len),
                     FAR_OK);
    assert_int_equal(len, sizeof got);
    assert_int_equal(got, value);
}

/* Inserts keys 0, 1, ... with themselves as values until that fails. */
static inline uint32_t fill(struct store_rig *r, int expected)
{
    for (uint32_t i = 0; i < KEYS_MAX; i++) {
        int rc = far_insert(r->session, r->table, &i, sizeof i, &i, sizeof i);
        if (rc != FAR_OK) {
            assert_int_equal(rc, expected);
            return i;
        }
    }
    fail_msg("%u keys did not fill it", KEYS_MAX);
    return 0;
}

#endif
