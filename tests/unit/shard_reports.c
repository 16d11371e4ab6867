/* How often sessions of SHARD report how many keys they have added. */
#include "index/shard/shard.h"
#include "support/hook.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define SESSIONS 6u

static uint64_t left_part(const struct shard_view *view)
{
    uint64_t places = (view->words + 1) * shard_buckets(view, view->version);
    double left = (double)(int64_t)((double)places * 80 / 100) - (double)view->count;
    return (uint64_t)(left * 1000 / 10000);
}

static int insert_into(far_session *s, far_table *table, uint32_t key)
{
    return far_insert(s, table, &key, sizeof key, &key, sizeof key);
}

/* Inserts until the session has reported. Returns how many keys. */
static uint32_t insert_and_report(far_session *s, far_table *table, uint32_t from)
{
    uint32_t key = from;
    do
        assert_int_equal(insert_into(s, table, key++), FAR_OK);
    while (shard_view(store_known(s, table)->view)->since != 0);
    return key - from;
}

static void a_session_reports_more_often_if_others_insert(void **state)
{
    struct far_table_options options = {.tuning = "buckets=512&slots=8"};
    struct store_rig r;
    far_session *s[SESSIONS];
    far_table *table = NULL;
    uint32_t key = 0;

    (void)state;
    store_rig_open(&r, "mem:?size=64m&clients=16", NULL, NULL, NULL);
    assert_int_equal(far_table_create(r.session, "reports", "shard", &options, &table), FAR_OK);
    s[0] = r.session;
    for (unsigned i = 1; i < SESSIONS; i++) {
        struct far_session_options session = {.seed = 1 + i};
        assert_int_equal(far_session_open(r.pool, &session, &s[i]), FAR_OK);
    }
    for (unsigned i = 0; i < 2; i++) {
        key += insert_and_report(s[0], table, key);
        const struct shard_view *alone = shard_view(store_known(s[0], table)->view);
        assert_int_equal(alone->sync_after, left_part(alone)); /* the paper's alpha */
    }
    for (unsigned round = 0; round < 2; round++)
        for (unsigned i = 0; i < SESSIONS; i++)
            for (unsigned n = 0; n < 150; n++)
                assert_int_equal(insert_into(s[i], table, key++), FAR_OK);
    key += insert_and_report(s[0], table, key);
    const struct shard_view *view = shard_view(store_known(s[0], table)->view);
    assert_int_equal(view->version, 0);
    assert_true(view->active > SESSIONS / 2.0);
    assert_true(view->sync_after < left_part(view) / (SESSIONS / 2));
    for (unsigned i = 1; i < SESSIONS; i++)
        far_session_close(s[i]);
    store_rig_close(&r);
}

static unsigned reports;
static int count_reports(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count; i++)
        reports += req->verbs[i].kind == FAB_FAA;
    return hook.real->post(ep, req);
}

/* The table is near its next resize, so each insert is reported. */
static void updates_report_nothing(void **state)
{
    enum { UPDATES = 200 };
    struct far_table_options options = {.tuning = "buckets=64&slots=8"};
    struct store_rig r;
    far_table *table = NULL;
    uint32_t key = 0;

    (void)state;
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, NULL);
    assert_int_equal(far_table_create(r.session, "reports", "shard", &options, &table), FAR_OK);
    for (; key == 0 || shard_view(store_known(r.session, table)->view)->sync_after != 1; key++)
        assert_int_equal(insert_into(r.session, table, key), FAR_OK);
    hook_on(r.session->client.ep);
    hook.ops.post = count_reports;
    reports = 0;
    for (uint32_t i = 0; i < UPDATES; i++) {
        uint32_t k = i % key;
        int rc = i % 2 ? far_update(r.session, table, &k, sizeof k, &i, sizeof i)
                       : far_put(r.session, table, &k, sizeof k, &i, sizeof i);
        assert_int_equal(rc, FAR_OK);
    }
    unsigned of_updates = reports;
    assert_int_equal(insert_into(r.session, table, key), FAR_OK);
    hook_off();
    assert_int_equal(of_updates, 0);
    assert_int_equal(reports, 1);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_reports_more_often_if_others_insert),
        cmocka_unit_test(updates_report_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
