/* A full pool that is emptied takes as much again. Time is the test's own: how long a session waits for
 * memory does not depend on the machine. */
#include "support/indexes.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS_MAX 100000u

static char value[70000];

/* Puts keys from `first` on, until one is refused. Returns how many were not. */
static uint32_t fill(far_session *s, far_table *t, uint32_t first, uint32_t most, size_t len)
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

static void close_whole(struct store_rig *r)
{
    struct far_pool_check check;
    assert_int_equal(far_table_check(r->session, r->table, NULL, NULL), FAR_OK);
    assert_int_equal(far_pool_check(r->session, false, NULL, NULL, &check), FAR_OK);
    assert_true(check.leaked_bytes == 0);
    store_rig_close(r);
}

/* What a dropped table had is of other sizes than what is put then. */
static void what_a_dropped_table_had_is_usable_at_once(void **state)
{
    static const size_t lengths[][2] = {{32, 32}, {32, 10000}, {10000, 1000}};
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct store_rig r;
        far_table *dropped = NULL;
        size_t before = lengths[i][0], after = lengths[i][1];
        store_rig_open_driven(&r, "mem:?size=4m", NULL, NULL, NULL);
        assert_int_equal(far_table_create(r.session, "u", index_tested, NULL, &dropped), FAR_OK);
        uint32_t count = fill(r.session, dropped, 0, KEYS_MAX, before);
        assert_true(count < KEYS_MAX);
        assert_int_equal(far_table_drop(r.session, dropped), FAR_OK);
        uint32_t most =
            (uint32_t)(3000000 / size_class_bytes(size_class_for(block_bytes(4, after))));
        most = most < 1000 ? most : 1000;
        assert_int_equal(fill(r.session, r.table, 0, most, after), most);
        close_whole(&r);
    }
}

int main(int argc, char **argv)
{
    indexes_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_dropped_table_had_is_usable_at_once),
    };
    return INDEXES_RUN(tests);
}
