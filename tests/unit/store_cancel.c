/* The backlog of a ring, and cancelling what waits there: on a fabric that never waits and on one
 * that always does. */
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define DEPTH   4u
#define BACKLOG 7u
#define ALL     (DEPTH + BACKLOG)

static const char *const uris[] = {"mem:?size=64m", "mem:?size=64m&defer=1"};
#define URIS (sizeof uris / sizeof *uris)

static uint64_t number[64];

static void rig(struct store_rig *r, unsigned uri, unsigned backlog)
{
    struct far_session_options options = {.depth = DEPTH, .seed = 5, .backlog = backlog};

    for (unsigned i = 0; i < sizeof number / sizeof *number; i++)
        number[i] = i;
    store_rig_open(r, uris[uri], NULL, &options, NULL);
}

/* Puts key i, with itself as value, under a name. */
static int submit_as(struct store_rig *r, unsigned i, uint64_t name)
{
    struct far_op op = {.kind = FAR_OP_PUT,
                        .table = r->table,
                        .key = &number[i],
                        .key_len = 8,
                        .value = &number[i],
                        .value_len = 8,
                        .user_data = name};

    return far_submit(r->session, &op);
}

static void fill(struct store_rig *r, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(submit_as(r, i, i), FAR_OK);
}

static bool there(struct store_rig *r, unsigned i)
{
    int rc = far_exists(r->session, r->table, &number[i], 8);

    assert_true(rc == FAR_OK || rc == FAR_NOT_FOUND);
    return rc == FAR_OK;
}

static unsigned cancel(struct store_rig *r, uint64_t name)
{
    unsigned count = 77;

    assert_int_equal(far_cancel(r->session, name, &count), FAR_OK);
    return count;
}

static void what_finds_no_place_waits_in_order(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        struct far_result results[ALL];
        struct store_rig r;
        unsigned n = 0;

        rig(&r, u, BACKLOG);
        fill(&r, ALL);
        assert_int_equal(submit_as(&r, ALL, ALL), FAR_RING_FULL);
        for (unsigned i = DEPTH; i < ALL; i++)
            assert_false(there(&r, i)); /* not started */
        /* One place becomes free, and the first that waits gets it. */
        assert_int_equal(far_reap(r.session, results, 1, 1), 1);
        assert_int_equal(r.session->waiting_count, BACKLOG - 1);
        assert_true(r.session->waiting[r.session->waiting_first].user_data == DEPTH + 1);
        assert_int_equal(submit_as(&r, ALL, ALL), FAR_OK);
        assert_int_equal(submit_as(&r, ALL + 1, ALL + 1), FAR_RING_FULL);
        for (n = 0; n < ALL; n++) {
            assert_int_equal(far_reap(r.session, results, 1, 1), 1);
            assert_int_equal(results[0].status, FAR_OK);
        }
        assert_int_equal(far_reap(r.session, results, 1, 1), 0);
        for (unsigned i = 0; i <= ALL; i++)
            assert_true(there(&r, i));
        store_rig_close(&r);
    }
}

/* One call can return more than are in flight at once: what waits starts meanwhile. */
static void one_reap_collects_the_backlog_too(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        for (unsigned within = 0; within < 2; within++) {
            struct far_result results[2 * ALL];
            bool seen[ALL] = {false};
            struct store_rig r;

            rig(&r, u, BACKLOG);
            fill(&r, ALL);
            unsigned n =
                within ? far_reap_within(r.session, results, 2 * ALL, 2 * ALL, 3600000000000ull)
                       : far_reap(r.session, results, 2 * ALL, 2 * ALL);
            assert_int_equal(n, ALL);
            for (unsigned i = 0; i < n; i++) {
                assert_int_equal(results[i].status, FAR_OK);
                assert_false(seen[results[i].user_data]);
                seen[results[i].user_data] = true;
            }
            store_rig_close(&r);
        }
    }
}

static void what_waits_can_be_cancelled(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        struct far_result results[ALL];
        struct store_rig r;
        struct far_stats stats;
        unsigned stopped = 0;

        rig(&r, u, BACKLOG);
        fill(&r, ALL);
        assert_int_equal(cancel(&r, DEPTH), 1);     /* the first that waits, */
        assert_int_equal(cancel(&r, DEPTH + 3), 1); /* one in the middle,    */
        assert_int_equal(cancel(&r, ALL - 1), 1);   /* the last              */
        /* Their results take room in the backlog until they are reaped. */
        assert_int_equal(submit_as(&r, ALL, ALL), FAR_RING_FULL);
        assert_int_equal(far_reap(r.session, results, ALL, ALL), ALL);
        for (unsigned i = 0; i < ALL; i++) {
            uint64_t name = results[i].user_data;
            bool was = name == DEPTH || name == DEPTH + 3 || name == ALL - 1;
            assert_int_equal(results[i].status, was ? FAR_STOPPED : FAR_OK);
            assert_true(there(&r, (unsigned)name) == !was);
            stopped += was;
        }
        assert_int_equal(stopped, 3);
        far_stats(r.session, r.table, &stats); /* what was not run is not counted */
        assert_true(stats.op[FAR_OP_PUT].count == ALL - 3);
        assert_int_equal(submit_as(&r, ALL, ALL), FAR_OK);
        assert_int_equal(far_reap(r.session, results, ALL, ALL), 1);
        store_rig_close(&r);
    }
}

/* The ring of the backlog is entered at each of its places. */
static void those_that_stay_keep_their_order(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        struct far_result results[ALL];
        struct store_rig r;
        unsigned next = DEPTH;

        rig(&r, u, BACKLOG);
        fill(&r, DEPTH);
        for (unsigned round = 0; round < 3 * BACKLOG; round++) {
            for (unsigned i = 0; i < BACKLOG; i++, next++)
                assert_int_equal(submit_as(&r, i, i % 2 ? 1000 + next : 7), FAR_OK);
            assert_int_equal(cancel(&r, 7), (BACKLOG + 1) / 2);
            assert_int_equal(r.session->waiting_count, BACKLOG / 2);
            for (unsigned i = 0; i < BACKLOG / 2; i++) {
                unsigned at = (r.session->waiting_first + i) % BACKLOG;
                assert_true(r.session->waiting[at].user_data == 1000 + next - BACKLOG + 2 * i + 1);
            }
            /* The backlog is empty then, and begins three places of seven further on. */
            unsigned left = BACKLOG;
            while (left > 0) {
                unsigned n = far_reap(r.session, results, left, left);
                assert_true(n > 0);
                left -= n;
            }
        }
        store_rig_close(&r);
    }
}

static void what_has_started_goes_on(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        struct far_result results[ALL];
        struct store_rig r;
        unsigned count = 77;

        rig(&r, u, BACKLOG);
        assert_int_equal(far_cancel(r.session, 0, &count), FAR_INVALID); /* before the first */
        fill(&r, DEPTH + 1);
        for (unsigned i = 0; i < DEPTH; i++) {
            assert_int_equal(far_cancel(r.session, i, &count), FAR_STARTED);
            assert_string_equal(far_error_detail(), "");
        }
        assert_int_equal(far_cancel(r.session, 4711, &count), FAR_INVALID);
        assert_string_equal(far_error_detail(), "no operation with user_data 4711 is to be reaped");
        assert_int_equal(count, 77);
        assert_int_equal(far_cancel(r.session, DEPTH, NULL), FAR_OK);
        assert_int_equal(far_cancel(r.session, DEPTH, NULL), FAR_STARTED); /* once is enough */
        assert_int_equal(far_reap(r.session, results, ALL, ALL), DEPTH + 1);
        for (unsigned i = 0; i < DEPTH; i++)
            assert_true(there(&r, i));
        assert_int_equal(far_cancel(r.session, 0, &count), FAR_INVALID); /* reaped */
        store_rig_close(&r);
    }
}

/* Some of that name have started, others wait. */
static void a_name_may_be_used_more_than_once(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        struct far_result results[ALL];
        struct store_rig r;
        unsigned stopped = 0;

        rig(&r, u, BACKLOG);
        for (unsigned i = 0; i < ALL; i++)
            assert_int_equal(submit_as(&r, i, 1), FAR_OK);
        assert_int_equal(cancel(&r, 1), BACKLOG);
        assert_int_equal(far_reap(r.session, results, ALL, ALL), ALL);
        for (unsigned i = 0; i < ALL; i++)
            stopped += results[i].status == FAR_STOPPED;
        assert_int_equal(stopped, BACKLOG);
        for (unsigned i = 0; i < ALL; i++)
            assert_true(there(&r, i) == (i < DEPTH));
        store_rig_close(&r);
    }
}

static void closing_finishes_what_waits(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        struct store_rig r;
        far_session *other = NULL;

        rig(&r, u, BACKLOG);
        assert_int_equal(far_session_open(r.pool, NULL, &other), FAR_OK);
        fill(&r, ALL);
        assert_int_equal(cancel(&r, ALL - 1), 1);
        far_session_close(r.session);
        r.session = other;
        for (unsigned i = 0; i < ALL; i++)
            assert_true(there(&r, i) == (i != ALL - 1));
        store_rig_close(&r);
    }
}

/* The detail is that of the last result that has one, also if operations were started since. */
static void details_survive_what_starts_later(void **state)
{
    (void)state;
    for (unsigned u = 0; u < URIS; u++) {
        struct far_result results[ALL];
        struct store_rig r;
        struct far_op wrong = {.kind = FAR_OP_PUT, .key = "k", .key_len = 0};

        rig(&r, u, BACKLOG);
        wrong.table = r.table;
        assert_int_equal(far_submit(r.session, &wrong), FAR_OK);
        for (unsigned i = 1; i < ALL; i++)
            assert_int_equal(submit_as(&r, i, i), FAR_OK);
        assert_int_equal(far_reap(r.session, results, ALL, ALL), ALL);
        assert_string_equal(far_error_detail(), "a key has 1 to 4096 bytes, not 0");
        assert_int_equal(far_reap(r.session, results, ALL, ALL), 0);
        assert_string_equal(far_error_detail(), "");
        store_rig_close(&r);
    }
}

static void a_backlog_has_limits(void **state)
{
    struct far_session_options options = {.backlog = FAR_BACKLOG_MAX + 1};
    far_session *session = NULL;
    struct store_rig r;

    (void)state;
    rig(&r, 0, 0); /* none */
    fill(&r, DEPTH);
    assert_int_equal(submit_as(&r, DEPTH, DEPTH), FAR_RING_FULL);
    assert_int_equal(far_cancel(r.session, 1, NULL), FAR_STARTED);
    assert_int_equal(far_session_open(r.pool, &options, &session), FAR_INVALID);
    assert_string_equal(far_error_detail(), "backlog is 65537, but may be at most 65536");
    assert_null(session);
    options.backlog = FAR_BACKLOG_MAX;
    assert_int_equal(far_session_open(r.pool, &options, &session), FAR_OK);
    far_session_close(session);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_finds_no_place_waits_in_order),
        cmocka_unit_test(one_reap_collects_the_backlog_too),
        cmocka_unit_test(what_waits_can_be_cancelled),
        cmocka_unit_test(those_that_stay_keep_their_order),
        cmocka_unit_test(what_has_started_goes_on),
        cmocka_unit_test(a_name_may_be_used_more_than_once),
        cmocka_unit_test(closing_finishes_what_waits),
        cmocka_unit_test(details_survive_what_starts_later),
        cmocka_unit_test(a_backlog_has_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
