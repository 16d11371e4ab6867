/* A session takes one call at a time: another call on it, by a callback or another thread, is
 * refused. */
#include "support/death.h"
#include "support/store_rig.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static const char *const uris[] = {"mem:?size=16m", "mem:?size=16m&defer=1"};

static void rig(struct store_rig *r, unsigned i)
{
    store_rig_open(r, uris[i], NULL, NULL, NULL);
    assert_int_equal(far_put(r->session, r->table, "k", 1, "v", 1), FAR_OK);
}

static void refused(int rc)
{
    assert_int_equal(rc, FAR_INVALID);
    assert_non_null(strstr(far_error_detail(), "the session is in use"));
}

/* Every function that takes a session, and could do harm. */
static void try_all(struct store_rig *r)
{
    struct far_op op = {.kind = FAR_OP_EXISTS, .table = r->table, .key = "k", .key_len = 1};
    struct far_result result;
    struct far_pool_info info;
    struct far_pool_usage usage;
    far_table *table = NULL;
    size_t len = 0;
    uint64_t cursor = 0;
    char buf[64];
    int fd = -1;
    refused(far_get(r->session, r->table, "k", 1, buf, sizeof buf, NULL));
    refused(far_put(r->session, r->table, "k", 1, "w", 1));
    refused(far_iterate(r->session, r->table, &cursor, 0, buf, sizeof buf, &len));
    refused(far_execute(r->session, &op, &result));
    refused(far_submit(r->session, &op));
    refused(far_submit_many(r->session, &op, 1, NULL));
    refused(far_reap(r->session, &result, 1, 0));
    refused(far_cancel(r->session, 1, NULL));
    refused(far_session_fd(r->session, &fd));
    refused(far_table_open(r->session, "t", NULL, &table));
    refused(far_table_create(r->session, "u", "race", NULL, &table));
    refused(far_table_drop(r->session, r->table));
    refused(far_pool_info(r->session, &info));
    refused(far_pool_usage(r->session, &usage));
}

static enum far_decision call_back(void *arg, const void *old, size_t old_len, const void **value,
                                   size_t *value_len)
{
    (void)old, (void)old_len;
    try_all(arg);
    *value = "new";
    *value_len = 3;
    return FAR_STORE;
}

static void expect_new(struct store_rig *r)
{
    char buf[8];
    size_t len = 0;
    assert_int_equal(far_get(r->session, r->table, "k", 1, buf, sizeof buf, &len), FAR_OK);
    assert_int_equal(len, 3);
    assert_memory_equal(buf, "new", 3);
}

static void a_callback_cannot_use_its_session(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct store_rig r;
        rig(&r, i);
        assert_int_equal(far_modify(r.session, r.table, "k", 1, call_back, &r), FAR_OK);
        expect_new(&r);
        store_rig_close(&r);
    }
}

static void a_callback_of_the_ring_cannot_use_its_session(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct store_rig r;
        struct far_result result;
        rig(&r, i);
        struct far_op op = {.kind = FAR_OP_MODIFY,
                            .table = r.table,
                            .key = "k",
                            .key_len = 1,
                            .modify = call_back,
                            .modify_arg = &r};
        assert_int_equal(far_submit(r.session, &op), FAR_OK);
        assert_int_equal(far_reap(r.session, &result, 1, 1), 1);
        assert_int_equal(result.status, FAR_OK);
        expect_new(&r);
        store_rig_close(&r);
    }
}

static bool progress(void *arg, const char *what, uint64_t done, uint64_t total)
{
    (void)what, (void)done, (void)total;
    try_all(arg);
    return true;
}

static void a_progress_callback_cannot_use_its_session(void **state)
{
    struct store_rig r;
    struct far_pool_usage usage;
    (void)state;
    rig(&r, 0);
    far_session_watch(r.session, progress, &r);
    assert_int_equal(far_pool_usage(r.session, &usage), FAR_OK);
    store_rig_close(&r);
}

static int each(void *arg, const char *name, const char *index)
{
    struct store_rig *r = arg;
    far_table *table = NULL;
    return far_table_open(r->session, name, index, &table);
}

static void a_list_of_tables_can_be_used_meanwhile(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, 0);
    assert_int_equal(far_table_list(r.session, each, &r), FAR_OK);
    store_rig_close(&r);
}

static void *other_thread(void *arg)
{
    try_all(arg);
    return NULL;
}

static enum far_decision start_thread(void *arg, const void *old, size_t old_len,
                                      const void **value, size_t *value_len)
{
    pthread_t thread;
    (void)old, (void)old_len, (void)value, (void)value_len;
    ASSERT(pthread_create(&thread, NULL, other_thread, arg) == 0);
    pthread_join(thread, NULL);
    return FAR_KEEP;
}

static void another_thread_cannot_use_the_session_during_a_call(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, 0);
    assert_int_equal(far_modify(r.session, r.table, "k", 1, start_thread, &r), FAR_OK);
    assert_int_equal(far_exists(r.session, r.table, "k", 1), FAR_OK);
    store_rig_close(&r);
}

static void a_session_cannot_be_used_after_its_pool_was_closed(void **state)
{
    far_pool *pool = NULL;
    far_session *s[2] = {NULL};
    far_table *table = NULL;
    struct far_pool_info info;
    (void)state;
    assert_int_equal(far_pool_open("mem:?size=16m", &pool), FAR_OK);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(far_session_open(pool, NULL, &s[i]), FAR_OK);
    assert_int_equal(far_table_create(s[0], "t", "race", NULL, &table), FAR_OK);
    assert_int_equal(far_put(s[1], table, "k", 1, "v", 1), FAR_OK);
    far_pool_close(pool);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(far_exists(s[i], table, "k", 1), FAR_INVALID);
        assert_string_equal(far_error_detail(), "the session's pool was closed");
        assert_int_equal(far_pool_info(s[i], &info), FAR_INVALID);
    }
    far_session_close(s[0]);
    assert_int_equal(far_exists(s[1], table, "k", 1), FAR_INVALID);
    far_session_close(s[1]);
}

static enum far_decision close_session(void *arg, const void *old, size_t old_len,
                                       const void **value, size_t *value_len)
{
    (void)old, (void)old_len, (void)value, (void)value_len;
    far_session_close(arg);
    return FAR_KEEP;
}

static void close_in_a_callback(void *arg)
{
    struct store_rig r;
    (void)arg;
    rig(&r, 0);
    (void)far_modify(r.session, r.table, "k", 1, close_session, r.session);
}

static void closing_a_session_in_its_callback_ends_with_a_message(void **state)
{
    char words[1024];
    (void)state;
    int status = run_in_child(close_in_a_callback, NULL, words, sizeof words);
    assert_true(status != -1 && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(words, "far_session_close() was called during a call on the session"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_callback_cannot_use_its_session),
        cmocka_unit_test(a_callback_of_the_ring_cannot_use_its_session),
        cmocka_unit_test(a_progress_callback_cannot_use_its_session),
        cmocka_unit_test(a_list_of_tables_can_be_used_meanwhile),
        cmocka_unit_test(another_thread_cannot_use_the_session_during_a_call),
        cmocka_unit_test(a_session_cannot_be_used_after_its_pool_was_closed),
        cmocka_unit_test(closing_a_session_in_its_callback_ends_with_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
