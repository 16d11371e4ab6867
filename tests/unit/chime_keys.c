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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_found_in_the_leaf_of_its_last_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
