/* far_error_detail() is about the last call that returned a status, and about nothing else. */
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#undef fail /* cmocka's */

/* Leaves a detail behind that none of the calls under test may show. */
static void fail_before(struct store_rig *r)
{
    far_table *table = NULL;
    assert_int_equal(far_table_open(r->session, "nobody", NULL, &table), FAR_NO_TABLE);
    assert_string_equal(far_error_detail(), "there is no table 'nobody'");
}

static void an_answer_has_no_detail(void **state)
{
    struct store_rig r;
    char buf[8];
    size_t len;

    (void)state;
    store_rig_open(&r, "mem:?size=16m", NULL, NULL, NULL);
    far_session *s = r.session;
    far_table *t = r.table;
    struct far_table_info info;
#define ANSWERS(status, call)                                                                      \
    do {                                                                                           \
        fail_before(&r);                                                                           \
        assert_int_equal(call, status);                                                            \
        assert_string_equal(far_error_detail(), "");                                               \
    } while (0)
    ANSWERS(FAR_NOT_FOUND, far_get(s, t, "k", 1, buf, 8, &len));
    ANSWERS(FAR_NOT_FOUND, far_exists(s, t, "k", 1));
    ANSWERS(FAR_NOT_FOUND, far_update(s, t, "k", 1, "v", 1));
    ANSWERS(FAR_NOT_FOUND, far_delete(s, t, "k", 1));
    ANSWERS(FAR_OK, far_put(s, t, "k", 1, "0123456789", 10));
    ANSWERS(FAR_TOO_SMALL, far_get(s, t, "k", 1, buf, 8, &len));
    ANSWERS(FAR_EXISTS, far_insert(s, t, "k", 1, "v", 1));
    ANSWERS(FAR_OK, far_table_check(s, t, NULL, NULL));
    ANSWERS(FAR_OK, far_table_info(s, t, &info));
    ANSWERS(FAR_OK, far_table_open(s, "t", NULL, &t));
#undef ANSWERS
    store_rig_close(&r);
}

static void an_older_detail_is_not_shown(void **state)
{
    struct store_rig r;
    far_session *other = NULL;
    struct far_session_options deep = {.depth = FAR_DEPTH_MAX + 1}, flat = {.depth = 1};
    struct far_op op = {.kind = FAR_OP_EXISTS, .key = "k", .key_len = 1};

    (void)state;
    store_rig_open(&r, "mem:?size=16m", NULL, &flat, NULL);
    op.table = r.table;
    assert_int_equal(far_session_open(r.pool, &deep, &other), FAR_INVALID);
    assert_string_equal(far_error_detail(), "depth is 1025, but may be at most 1024");
    assert_int_equal(far_submit(r.session, &op), FAR_OK);
    assert_string_equal(far_error_detail(), "");
    err_fail(FAR_RING_FULL, "an older one");
    assert_int_equal(far_submit(r.session, &op), FAR_RING_FULL);
    assert_string_equal(far_error_detail(), "");
    store_rig_close(&r);
}

/* What went wrong within a call and was got over is not what the call is about. */
static void a_status_shows_only_its_own_detail(void **state)
{
    static const int named[] = {FAR_UNREACHABLE, FAR_TIMEOUT, FAR_UNKNOWN, FAR_REFUSED,
                                FAR_NODE_LOST};

    (void)state;
    err_begin();
    err_fail(FAR_TIMEOUT, "node 3");
    assert_int_equal(err_end(FAR_POOL_FULL), FAR_POOL_FULL);
    assert_string_equal(far_error_detail(), "");
    err_begin();
    err_fail(FAR_POOL_FULL, "node 3");
    assert_int_equal(err_end(FAR_UNKNOWN), FAR_UNKNOWN);
    assert_string_equal(far_error_detail(), "");
    for (unsigned i = 0; i < 25; i++) { /* whichever it becomes, the node is the same */
        err_begin();
        err_fail(named[i / 5], "node %u", i);
        err_end(named[i % 5]);
        assert_non_null(strstr(far_error_detail(), "node"));
        err_begin();
        err_end(named[i % 5]);
        assert_string_equal(far_error_detail(), "");
    }
}

/* Of a ring, each result has its own; far_reap() shows that of the last result that has one. */
static void each_result_of_a_ring_has_its_own_detail(void **state)
{
    static const char *const uris[] = {"mem:?size=16m", "mem:?size=16m&defer=1"};
    static char long_key[FAR_KEY_MAX + 1];

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct store_rig r;
        struct far_result result;
        store_rig_open(&r, uris[i], NULL, NULL, NULL);
        struct far_op op = {.kind = FAR_OP_EXISTS, .table = r.table, .key = "k", .key_len = 1};
        fail_before(&r);
        assert_int_equal(far_submit(r.session, &op), FAR_OK);
        assert_string_equal(far_error_detail(), "");
        op.key = long_key;
        op.key_len = sizeof long_key;
        assert_int_equal(far_submit(r.session, &op), FAR_OK);
        assert_string_equal(far_error_detail(), "");
        fail_before(&r);
        for (unsigned n = 0; n < 2; n++) {
            assert_int_equal(far_reap(r.session, &result, 1, 1), 1);
            assert_string_equal(far_error_detail(), result.status == FAR_NOT_FOUND
                                                        ? ""
                                                        : "a key has 1 to 4096 bytes, not 4097");
        }
        assert_int_equal(far_reap(r.session, &result, 1, 0), 0);
        assert_string_equal(far_error_detail(), "");
        store_rig_close(&r);
    }
}

static void closing_does_not_change_the_detail(void **state)
{
    struct store_rig r;

    (void)state;
    store_rig_open(&r, "mem:?size=16m", NULL, NULL, NULL);
    fail_before(&r);
    store_rig_close(&r);
    assert_string_equal(far_error_detail(), "there is no table 'nobody'");
    far_session_close(NULL);
    far_pool_close(NULL);
    assert_string_equal(far_error_detail(), "there is no table 'nobody'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_has_no_detail),
        cmocka_unit_test(an_older_detail_is_not_shown),
        cmocka_unit_test(a_status_shows_only_its_own_detail),
        cmocka_unit_test(each_result_of_a_ring_has_its_own_detail),
        cmocka_unit_test(closing_does_not_change_the_detail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
