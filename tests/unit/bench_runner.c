/* One workload on one table: wrong answers are noticed, and the recorder misses no verb. */
#include "bench/keys.h"
#include "bench/replay.h"
#include "bench/runner.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>

static struct bench_config small_config(void)
{
    struct bench_config config = bench_defaults;
    config.keys = 3000;
    config.ops = 2000;
    return config;
}

struct bench_table {
    far_pool *pool;
    far_session *session;
    far_table *table;
};

static struct bench_table table_open_on(const char *uri)
{
    struct bench_table t;
    assert_int_equal(far_pool_open(uri, &t.pool), FAR_OK);
    assert_int_equal(far_session_open(t.pool, NULL, &t.session), FAR_OK);
    assert_int_equal(far_table_create(t.session, "t", "race", NULL, &t.table), FAR_OK);
    return t;
}

static struct bench_table table_open(void)
{
    return table_open_on("mem:?size=64m");
}

static void table_close(struct bench_table *t)
{
    far_session_close(t->session);
    far_pool_close(t->pool);
}

static struct bench_run *measure(const struct bench_config *config, const struct bench_table *t,
                                 const char *workload, struct workload_span keys,
                                 struct replay_recorder *recorder)
{
    struct bench_observer observer = {.arg = NULL};
    struct bench_target target = {
        .pool = t->pool, .table = t->table, .depth = 1, .recorder = recorder};
    struct workload_plan_options options = {.keys = keys,
                                            .load = config->keys,
                                            .ops = config->ops,
                                            .threads = 1,
                                            .seed = 1,
                                            .dist = BENCH_DIST_UNIFORM,
                                            .theta = 0.5};
    struct workload_plan plan;
    struct bench_run *run = calloc(1, sizeof *run);
    assert_non_null(run);
    assert_int_equal(workload_plan_init(&plan, workload_find(workload), &options, NULL), FAR_OK);
    assert_int_equal(bench_measure(config, &target, &plan, &observer, run), FAR_OK);
    workload_plan_free(&plan);
    return run;
}

static void a_wrong_value_is_noticed(void **state)
{
    (void)state;
    struct bench_config config = small_config();
    struct bench_table t = table_open();
    config.keys = 10;
    free(measure(&config, &t, "load", (struct workload_span){0, 0}, NULL));

    /* Key 3 gets the value of key 4, key 5 one that is too short. */
    unsigned char key[16], value[32];
    bench_value_init(value, sizeof value);
    bench_value_write(4, 0, value, sizeof value);
    bench_key_write(3, key, sizeof key);
    assert_int_equal(far_put(t.session, t.table, key, sizeof key, value, sizeof value), FAR_OK);
    bench_value_write(5, 0, value, sizeof value);
    bench_key_write(5, key, sizeof key);
    assert_int_equal(far_put(t.session, t.table, key, sizeof key, value, 31), FAR_OK);

    struct bench_run *run = measure(&config, &t, "get", (struct workload_span){0, 10}, NULL);
    assert_in_range(run->op[FAR_OP_GET].wrong, 200, 600); /* a fifth of 2000 */
    assert_int_equal(bench_op_errors(&run->op[FAR_OP_GET]), run->op[FAR_OP_GET].wrong);
    free(run);
    table_close(&t);
}

static void an_insert_that_finds_its_key_is_an_error(void **state)
{
    (void)state;
    struct bench_config config = small_config();
    struct bench_table t = table_open();
    config.keys = 10;
    config.ops = 5;
    free(measure(&config, &t, "load", (struct workload_span){0, 0}, NULL));
    struct bench_run *run = measure(&config, &t, "insert", (struct workload_span){0, 8}, NULL);
    assert_int_equal(bench_op_errors(&run->op[FAR_OP_INSERT]), 2);
    assert_int_equal(run->first_error, FAR_EXISTS);
    free(run);
    table_close(&t);
}

/* However long a window is, the windows together have all operations and all their round trips. */
static void windows_have_all_that_was_done(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {1, 1000, 50000, 1ull << 60};
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct bench_config config = small_config();
        struct bench_table t = table_open();
        uint64_t ops = 0, rtts = 0;
        config.window_ns = lengths[i];
        config.keys = 10000; /* more than there are windows */
        struct bench_run *run = measure(&config, &t, "load", (struct workload_span){0, 0}, NULL);
        for (unsigned n = 0; n <= run->windows; n++) {
            ops += run->window[n].ops;
            rtts += run->window[n].rtts;
        }
        assert_true(run->windows < BENCH_WINDOWS_MAX);
        assert_int_equal(ops, config.keys);
        assert_int_equal(rtts, run->op[FAR_OP_PUT].stats.rtts);
        if (lengths[i] == 1)
            assert_int_equal(run->windows, BENCH_WINDOWS_MAX - 1);
        if (lengths[i] == 1ull << 60)
            assert_int_equal(run->windows, 0);
        free(run);
        table_close(&t);
    }
}

static void the_recorder_sees_what_is_counted(void **state)
{
    (void)state;
    struct bench_config config = small_config();
    struct bench_table t = table_open();
    struct replay_recorder r;
    assert_int_equal(replay_recorder_init(&r, config.keys), FAR_OK);
    struct bench_run *run = measure(&config, &t, "load", (struct workload_span){0, 0}, &r);
    const struct far_op_stats *s = &run->op[FAR_OP_PUT].stats;
    uint64_t read = 0, written = 0;
    for (size_t i = 0; i < r.verbs; i++) {
        read += r.verb[i].kind != FAB_WRITE ? r.verb[i].len : 0;
        written += r.verb[i].kind != FAB_READ ? r.verb[i].len : 0;
    }
    assert_int_equal(r.status, FAR_OK);
    assert_int_equal(r.ops, config.keys);
    assert_int_equal(r.op[r.ops], r.batches);
    assert_int_equal(r.batch[r.batches], r.verbs);
    assert_int_equal(r.verbs, s->verbs);
    assert_int_equal(read, s->bytes_read);
    assert_int_equal(written, s->bytes_written);

    /* It can be replayed, also on a fabric where operations wait. */
    double ops_per_s = 0;
    struct bench_table other = table_open_on("mem:?size=64m&defer=1");
    struct replay_load load = {.session = other.session,
                               .ops = 1000,
                               .processes = 1,
                               .threads = 1,
                               .depth = 3,
                               .footprint = 1 << 20,
                               .seed = 1};
    assert_int_equal(replay_run(&load, &r, &ops_per_s), FAR_OK);
    assert_true(ops_per_s > 0);
    free(run);
    replay_recorder_free(&r);
    table_close(&other);
    table_close(&t);
}

static void an_empty_sample_cannot_be_replayed(void **state)
{
    (void)state;
    struct replay_recorder r;
    struct bench_table t = table_open();
    struct replay_load load = {
        .session = t.session, .ops = 10, .processes = 1, .threads = 1, .depth = 1};
    double ops_per_s = -1;
    assert_int_equal(replay_recorder_init(&r, 10), FAR_OK);
    assert_int_equal(replay_run(&load, &r, &ops_per_s), FAR_INVALID);
    assert_true(ops_per_s == -1);
    replay_recorder_next(&r); /* one operation without verbs */
    assert_int_equal(replay_run(&load, &r, &ops_per_s), FAR_OK);
    replay_recorder_free(&r);
    table_close(&t);
}

/* The replay works on memory of its own, and frees it at the end. */
static void a_replay_leaves_tables_and_memory_as_they_were(void **state)
{
    (void)state;
    struct bench_config config = small_config();
    struct bench_table t = table_open();
    struct replay_recorder r;
    assert_int_equal(replay_recorder_init(&r, config.keys), FAR_OK);
    free(measure(&config, &t, "load", (struct workload_span){0, 0}, &r));

    struct replay_load load = {.session = t.session,
                               .ops = 20000,
                               .processes = 1,
                               .threads = 2,
                               .depth = 3,
                               .footprint = 5 << 20,
                               .seed = 1};
    double ops_per_s = 0;
    for (unsigned i = 0; i < 30; i++) /* 64 MiB suffice only because it is freed */
        assert_int_equal(replay_run(&load, &r, &ops_per_s), FAR_OK);
    assert_int_equal(far_table_check(t.session, t.table, NULL, NULL), FAR_OK);
    struct bench_run *run =
        measure(&config, &t, "get", (struct workload_span){0, config.keys}, NULL);
    assert_int_equal(bench_op_errors(&run->op[FAR_OP_GET]), 0);
    assert_int_equal(run->op[FAR_OP_GET].stats.not_found, 0);

    load.footprint = 1 << 30;
    ops_per_s = -1;
    assert_int_equal(replay_run(&load, &r, &ops_per_s), FAR_POOL_FULL);
    assert_true(ops_per_s == -1);
    free(run);
    replay_recorder_free(&r);
    table_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_value_is_noticed),
        cmocka_unit_test(an_insert_that_finds_its_key_is_an_error),
        cmocka_unit_test(windows_have_all_that_was_done),
        cmocka_unit_test(the_recorder_sees_what_is_counted),
        cmocka_unit_test(a_replay_leaves_tables_and_memory_as_they_were),
        cmocka_unit_test(an_empty_sample_cannot_be_replayed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
