/* A child of fork() on a pool that is reached over the network: it closes its copies, and the
 * connections, which are the parent's, go on. */
#include "support/memd_child.h"
#include "support/forked.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

struct handles {
    far_pool *pool;
    far_session *session;
    far_table *table;
};

static void use_and_close(void *arg)
{
    struct handles *h = arg;
    forked_use(h->pool, h->session, h->table);
    far_session_close(h->session);
    far_pool_close(h->pool);
}

static void a_child_leaves_its_parents_connections_alone(void **state)
{
    static const char *const more[] = {"--size", "16m", NULL};
    struct memd_child node;
    struct handles h;

    (void)state;
    memd_start(&node, 0, more);
    assert_int_equal(far_pool_open(memd_uri(&node, 1, ""), &h.pool), FAR_OK);
    assert_int_equal(far_session_open(h.pool, NULL, &h.session), FAR_OK);
    assert_int_equal(far_table_create(h.session, "t", "race", NULL, &h.table), FAR_OK);
    for (uint64_t i = 0; i < 3; i++) {
        uint64_t got = 0;
        struct far_op op = {.kind = FAR_OP_PUT,
                            .table = h.table,
                            .key = "ring",
                            .key_len = 4,
                            .value = &i,
                            .value_len = 8};
        struct far_result result;
        assert_int_equal(far_put(h.session, h.table, "k", 1, &i, 8), FAR_OK);
        assert_int_equal(far_submit(h.session, &op), FAR_OK);
        forked(use_and_close, &h);
        assert_int_equal(far_get(h.session, h.table, "k", 1, &got, 8, NULL), FAR_OK);
        assert_true(got == i);
        assert_int_equal(far_reap(h.session, &result, 1, 1), 1);
        assert_int_equal(result.status, FAR_OK);
    }
    far_session_close(h.session);
    far_pool_close(h.pool);
    memd_end(&node, SIGTERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_leaves_its_parents_connections_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
