/* A pool that is full. Time is the test's own: how long a session waits for memory does not depend
 * on the machine. */
#ifndef TESTS_FULL_POOL_H
#define TESTS_FULL_POOL_H

#include "support/indexes.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS_MAX 100000u
#define OTHERS   1000000u /* from here on: keys of the second filling */
#define STAY     2000000u /* keys with small values, which stay */
#define STAYING  1000u    /* with the smallest parts, they make hundreds of them */

static char value[70000];

/* Puts keys from `first` on, until one is refused. Returns how many were not. */
static inline uint32_t fill(far_session *s, far_table *t, uint32_t first, uint32_t most, size_t len)
{
    for (uint32_t i = 0; i < most; i++) {
        uint32_t key = first + i;
        int rc = far_put(s, t, &key, sizeof key, value, len);
        if (rc != FAR_OK) {
            assert_int_equal(rc, FAR_POOL_FULL);
            return i;
        }
    }
    return most;
}

/* A table with many parts, in a pool that is then full. Returns the number of large values. */
static inline uint32_t open_full(struct store_rig *r, const char *uri, size_t len)
{
    struct far_table_options options = {.tuning = indexes_smallest()};
    store_rig_open_driven(r, uri, NULL, NULL, &options);
    assert_int_equal(fill(r->session, r->table, STAY, STAYING, 32), STAYING);
    uint32_t count = fill(r->session, r->table, 0, KEYS_MAX, len);
    assert_true(count > 10 && count < KEYS_MAX);
    return count;
}

static inline void close_whole(struct store_rig *r)
{
    struct far_pool_check check;
    assert_int_equal(far_table_check(r->session, r->table, NULL, NULL), FAR_OK);
    assert_int_equal(far_pool_check(r->session, false, NULL, NULL, &check), FAR_OK);
    assert_true(check.leaked_bytes == 0);
    store_rig_close(r);
}

#endif
