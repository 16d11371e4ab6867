/* The whole benchmark on mem:, and its JSON. */
#include "bench/json.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALL "load,a,b,c,d,f,get,miss,put,update,insert,delete"

struct collected {
    const struct bench_config *config;
    json_t *runs;
    struct summary_list summaries;
    unsigned begun, done;
    atomic_bool *stop; /* set it after the first run */
};

static void on_begin(void *arg, const char *index)
{
    (void)index;
    ((struct collected *)arg)->begun++;
}

static void on_run(void *arg, const struct bench_run *run)
{
    struct collected *c = arg;
    assert_int_equal(json_array_append_new(c->runs, bench_json_run(c->config, run)), 0);
    assert_int_equal(summary_add(&c->summaries, c->config->threads, run), FAR_OK);
    if (c->stop != NULL)
        atomic_store(c->stop, true);
}

static void on_done(void *arg, const char *index)
{
    (void)index;
    ((struct collected *)arg)->done++;
}

/* The suite's JSON, read back from its text. */
static json_t *run_suite(const struct bench_config *config, atomic_bool *stop)
{
    struct collected c = {.config = config, .runs = json_array(), .stop = stop};
    struct bench_observer observer = {
        .arg = &c, .index_begin = on_begin, .run = on_run, .index_done = on_done};
    assert_int_equal(bench_suite(config, &observer), FAR_OK);
    assert_true(c.begun > 0);
    assert_int_equal(c.begun, c.done);

    json_t *drops = json_array();
    json_t *all = bench_json(config, c.runs, &c.summaries, drops, stop != NULL);
    assert_non_null(all);
    char *text = json_dumps(all, JSON_INDENT(1));
    assert_non_null(text);
    json_decref(all);
    json_decref(c.runs);
    json_decref(drops);
    summary_list_free(&c.summaries);
    json_error_t error;
    all = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    assert_non_null(all);
    free(text);
    return all;
}

static struct bench_config small(const char *workloads)
{
    struct bench_config config = bench_defaults;
    config.pool = "mem:?size=256m";
    config.index = "race";
    config.keys = 3000;
    config.ops = 2000;
    assert_int_equal(workload_parse(workloads, &config.workloads), FAR_OK);
    return config;
}

static json_t *find_run(json_t *all, const char *workload)
{
    size_t i;
    json_t *run;
    json_array_foreach(json_object_get(all, "runs"), i, run)
    {
        if (strcmp(json_string_value(json_object_get(run, "workload")), workload) == 0)
            return run;
    }
    fail_msg("no run of %s", workload);
    return NULL;
}

static json_int_t count_of(json_t *run, const char *kind, const char *what)
{
    json_t *op = json_object_get(json_object_get(run, "per_op"), kind);
    return json_integer_value(json_object_get(op, what));
}

/* Every run did the operations of its workload, and none of them failed. */
static void assert_all_done(json_t *all, json_int_t keys, json_int_t ops)
{
    size_t i;
    json_t *run, *op;
    const char *kind;
    json_array_foreach(json_object_get(all, "runs"), i, run)
    {
        const char *name = json_string_value(json_object_get(run, "workload"));
        bool load = strcmp(name, "load") == 0, miss = strcmp(name, "miss") == 0;
        assert_int_equal(json_integer_value(json_object_get(run, "ops")), load ? keys : ops);
        assert_true(json_is_false(json_object_get(run, "interrupted")));
        assert_true(json_is_null(json_object_get(run, "first_error")));
        json_object_foreach(json_object_get(run, "per_op"), kind, op)
        {
            json_int_t count = json_integer_value(json_object_get(op, "count"));
            assert_int_equal(json_integer_value(json_object_get(op, "errors")), 0);
            assert_int_equal(json_integer_value(json_object_get(op, "not_found")),
                             miss ? count : 0);
            assert_true(json_real_value(json_object_get(op, "rtts")) >= 1);
            json_int_t p99 = json_integer_value(json_object_get(op, "rtts_p99"));
            assert_in_range(p99, 1, json_integer_value(json_object_get(op, "rtts_p999")));
            assert_true(json_real_value(json_object_get(op, "p99_us")) >=
                        json_real_value(json_object_get(op, "p50_us")));
        }
    }
    assert_int_equal(count_of(find_run(all, "load"), "put", "count"), keys);
    assert_int_equal(count_of(find_run(all, "a"), "update", "count"), ops / 2);
    assert_int_equal(count_of(find_run(all, "d"), "insert", "count"), ops / 20);
    assert_int_equal(count_of(find_run(all, "f"), "get", "count"), ops);
    assert_int_equal(count_of(find_run(all, "f"), "update", "count"), ops / 2);
    json_t *space = json_object_get(find_run(all, "delete"), "space");
    assert_int_equal(json_integer_value(json_object_get(space, "keys")), keys + ops / 20);
}

static void all_workloads_are_right_with_one_thread_at_depth_1(void **state)
{
    (void)state;
    struct bench_config config = small(ALL);
    json_t *all = run_suite(&config, NULL);
    assert_int_equal(json_array_size(json_object_get(all, "runs")), 12);
    assert_all_done(all, 3000, 2000);
    json_decref(all);
}

static void all_workloads_are_right_with_threads_and_a_full_ring(void **state)
{
    (void)state;
    struct bench_config config = small(ALL);
    config.threads = 3;
    config.depth = 8;
    json_t *all = run_suite(&config, NULL);
    assert_all_done(all, 3000, 2000);
    json_decref(all);

    config.pool = "mem:?size=256m&defer=1"; /* operations now wait in the ring */
    all = run_suite(&config, NULL);
    assert_all_done(all, 3000, 2000);
    json_decref(all);
}

/* Operations to warm up change the table, but are in no figure. */
static void operations_to_warm_up_are_not_measured(void **state)
{
    (void)state;
    struct bench_config config = small("load,insert,a,delete,iterate");
    config.threads = 3;
    config.warmup = 700;
    for (config.depth = 1; config.depth <= 8; config.depth += 7) {
        json_t *all = run_suite(&config, NULL);
        json_t *insert = find_run(all, "insert"), *a = find_run(all, "a");
        json_t *iterate = find_run(all, "iterate");
        assert_int_equal(json_integer_value(json_object_get(find_run(all, "load"), "warmup")), 0);
        assert_int_equal(json_integer_value(json_object_get(iterate, "warmup")), 0);
        assert_int_equal(json_integer_value(json_object_get(insert, "warmup")), 700);
        assert_int_equal(json_integer_value(json_object_get(insert, "ops")), 2000);
        assert_int_equal(json_integer_value(json_object_get(insert, "ops_planned")), 2000);
        assert_true(json_is_false(json_object_get(insert, "interrupted")));
        assert_int_equal(count_of(insert, "insert", "count"), 2000);
        assert_int_equal(count_of(insert, "insert", "errors"), 0);
        assert_int_equal(count_of(a, "get", "count") + count_of(a, "update", "count"), 2000);
        json_t *space = json_object_get(insert, "space");
        assert_int_equal(json_integer_value(json_object_get(space, "keys")), 3000 + 2700);
        space = json_object_get(find_run(all, "delete"), "space");
        assert_int_equal(json_integer_value(json_object_get(space, "keys")), 3000);
        json_decref(all);
    }
}

/* What sessions count is of all of them together, and of this run. */
static void restructuring_is_summed_over_sessions(void **state)
{
    (void)state;
    struct bench_config config = small("load,insert");
    config.index = "sephash";
    config.tuning = "slots=16&ratio=2";
    config.threads = 3;
    json_t *all = run_suite(&config, NULL);
    json_t *space = json_object_get(find_run(all, "insert"), "space");
    json_int_t splits = json_integer_value(json_object_get(space, "splits")),
               merges = json_integer_value(json_object_get(space, "merges"));
    assert_true(merges > 0 && merges < splits);
    assert_true(splits > 10);
    assert_true(json_real_value(json_object_get(space, "split_us")) > 0);
    json_decref(all);
}

static void a_table_with_room_is_not_split(void **state)
{
    (void)state;
    struct bench_config config = small("load,insert");
    for (unsigned roomy = 0; roomy <= 1; roomy++) {
        config.index = "race";
        config.tuning = "groups=4";
        config.expected_keys = roomy * 20000;
        json_t *all = run_suite(&config, NULL);
        json_t *space = json_object_get(find_run(all, "insert"), "space");
        assert_int_equal(json_integer_value(json_object_get(space, "splits")) == 0, roomy);
        assert_int_equal(json_integer_value(json_object_get(all, "expected_keys")), roomy * 20000);
        json_decref(all);
    }
}

/* A pure delete ends with the last key: then the measured operations come first. */
static void deletes_warm_up_with_keys_that_are_left_over(void **state)
{
    (void)state;
    struct bench_config config = small("load,delete");
    config.warmup = 5000;
    json_t *all = run_suite(&config, NULL);
    assert_int_equal(json_integer_value(json_object_get(find_run(all, "delete"), "warmup")), 1000);
    assert_int_equal(count_of(find_run(all, "delete"), "delete", "count"), 2000);
    json_decref(all);
    config.ops = 4000; /* more than there are keys */
    all = run_suite(&config, NULL);
    assert_int_equal(json_integer_value(json_object_get(find_run(all, "delete"), "warmup")), 0);
    assert_int_equal(count_of(find_run(all, "delete"), "delete", "count"), 3000);
    json_decref(all);
}

/* All operations are done, and right, however late they are. */
static void all_workloads_are_right_at_a_fixed_rate(void **state)
{
    (void)state;
    struct bench_config config = small(ALL);
    config.threads = 3;
    config.rate = 100000000;
    config.pool = "mem:?size=256m&defer=1";
    for (config.depth = 1; config.depth <= 8; config.depth += 7) {
        json_t *all = run_suite(&config, NULL);
        assert_all_done(all, 3000, 2000);
        json_decref(all);
    }
}

/* Every repeat begins with the same keys and does the same, so it costs the same. */
static void repeats_are_comparable(void **state)
{
    (void)state;
    static const char *const lists[] = {"load,insert,delete,d,get", "a,get,modify,iterate"};
    for (unsigned l = 0; l < 2; l++) {
        struct bench_config config = small(lists[l]);
        config.pool = "mem:?size=256m&lease=3600000"; /* no heartbeats */
        config.repeat = 3;
        config.warmup = 100;
        unsigned count = config.workloads.count;
        json_t *all = run_suite(&config, NULL), *runs = json_object_get(all, "runs");
        assert_int_equal(json_array_size(runs), 3 * count);
        for (unsigned i = 0; i < 3 * count; i++) {
            json_t *run = json_array_get(runs, i), *first = json_array_get(runs, i % count);
            json_t *space = json_object_get(run, "space"),
                   *before = json_object_get(first, "space");
            assert_string_equal(json_string_value(json_object_get(run, "workload")),
                                config.workloads.item[i % count].name);
            assert_int_equal(json_integer_value(json_object_get(run, "repeat")), i / count + 1);
            assert_true(json_is_null(json_object_get(run, "first_error")));
            assert_true(
                json_equal(json_object_get(space, "keys"), json_object_get(before, "keys")));
            assert_int_equal(count_of(run, "get", "count"), count_of(first, "get", "count"));
        }
        json_t *summary = json_object_get(all, "summary");
        assert_int_equal(json_array_size(summary), count);
        for (unsigned i = 0; i < count; i++) {
            json_t *one = json_array_get(summary, i), *speed = json_object_get(one, "ops_per_s");
            assert_int_equal(json_integer_value(json_object_get(one, "runs")), 3);
            assert_true(json_real_value(json_object_get(speed, "least")) <=
                        json_real_value(json_object_get(speed, "median")));
            assert_true(json_real_value(json_object_get(speed, "median")) <=
                        json_real_value(json_object_get(speed, "most")));
        }
        json_decref(all);
    }
}

/* In virtual time, runs on new tables do not differ at all. */
static void repeats_in_virtual_time_are_the_same(void **state)
{
    (void)state;
    struct bench_config config = small("load,a,insert");
    config.pool = "model:?size=64m&threads=2&depth=2";
    config.repeat = 2;
    assert_int_equal(bench_take_shape(&config), FAR_OK);
    json_t *all = run_suite(&config, NULL), *runs = json_object_get(all, "runs");
    for (unsigned i = 0; i < 3; i++) {
        json_t *one = json_array_get(runs, i), *other = json_array_get(runs, i + 3);
        assert_int_equal(json_object_del(one, "repeat"), 0);
        assert_int_equal(json_object_del(other, "repeat"), 0);
        assert_true(json_equal(one, other));
    }
    json_decref(all);
}

/* Every operation of a mix finds its key, however many threads insert and delete meanwhile. */
static void a_mix_finds_its_keys_while_others_are_deleted(void **state)
{
    (void)state;
    static const char mix[] = "insert=10+delete=20+update=20+modify=10+rmw=10+miss=5+get=25";
    struct bench_config config = small(mix);
    config.threads = 3;
    for (config.depth = 1; config.depth <= 8; config.depth += 7) {
        json_t *all = run_suite(&config, NULL);
        json_t *run = find_run(all, mix), *per_op = json_object_get(run, "per_op"), *op;
        const char *kind;
        json_object_foreach(per_op, kind, op)
        {
            uint64_t missed = strcmp(kind, "get") == 0 ? 100 : 0; /* 5 % of 2000 */
            assert_int_equal(json_integer_value(json_object_get(op, "errors")), 0);
            assert_int_equal(json_integer_value(json_object_get(op, "not_found")), missed);
        }
        assert_int_equal(json_object_size(per_op), 5);
        json_t *space = json_object_get(run, "space");
        assert_int_equal(json_integer_value(json_object_get(space, "keys")), 3000 + 200 - 400);
        json_decref(all);
    }
}

/* All indexes return keys and values of the right sizes, which differ. */
static void sizes_that_vary_are_right_on_every_index(void **state)
{
    (void)state;
    struct bench_config config = small(ALL ",modify,iterate");
    config.index = NULL;
    config.keys = 1000;
    config.ops = 500;
    config.sizes = (struct bench_sizes){.key = {8, 40}, .value = {16, 300}};
    for (config.depth = 1; config.depth <= 8; config.depth += 7) {
        json_t *all = run_suite(&config, NULL), *run, *op;
        const char *kind;
        size_t i;
        assert_int_equal(json_integer_value(json_object_get(all, "key_size")), 8);
        assert_int_equal(json_integer_value(json_object_get(all, "value_size_max")), 300);
        json_array_foreach(json_object_get(all, "runs"), i, run)
            json_object_foreach(json_object_get(run, "per_op"), kind, op)
                assert_int_equal(json_integer_value(json_object_get(op, "errors")), 0);
        json_decref(all);
    }
}

static void the_json_has_all_members(void **state)
{
    (void)state;
    static const char *const run_members[] = {"index",
                                              "workload",
                                              "keys",
                                              "ops",
                                              "threads",
                                              "depth",
                                              "dist",
                                              "seconds",
                                              "ops_per_s",
                                              "per_op",
                                              "space",
                                              "raw_ops_per_s",
                                              "efficiency",
                                              "first_error",
                                              "interrupted",
                                              "tuning",
                                              "window_ms",
                                              "slowest_window",
                                              "slowest_window_per_rtt",
                                              "timeline"};
    static const char *const op_members[] = {
        "count",  "rtts",   "rtts_p99", "rtts_p999", "verbs",  "bytes_read", "bytes_written",
        "p50_us", "p99_us", "p999_us",  "not_found", "errors", "latency_us"};
    static const char *const space_members[] = {
        "keys",        "slots",  "index_bytes",    "block_bytes",     "client_cache_bytes",
        "load_factor", "splits", "split_load_max", "split_load_mean", "split_us"};
    struct bench_config config = small("load");
    json_t *all = run_suite(&config, NULL);
    assert_string_equal(json_string_value(json_object_get(all, "farside")), far_version());

    json_t *run = find_run(all, "load");
    json_t *op = json_object_get(json_object_get(run, "per_op"), "put");
    json_t *space = json_object_get(run, "space");
    for (unsigned i = 0; i < sizeof run_members / sizeof *run_members; i++)
        assert_non_null(json_object_get(run, run_members[i]));
    for (unsigned i = 0; i < sizeof op_members / sizeof *op_members; i++)
        assert_non_null(json_object_get(op, op_members[i]));
    for (unsigned i = 0; i < sizeof space_members / sizeof *space_members; i++)
        assert_non_null(json_object_get(space, space_members[i]));
    assert_int_equal(json_object_size(json_object_get(run, "per_op")), 1);
    assert_true(json_is_null(json_object_get(run, "efficiency")));
    assert_int_equal(json_integer_value(json_object_get(space, "keys")), 3000);
    assert_true(json_real_value(json_object_get(op, "bytes_written")) >= 64);
    assert_true(
        json_integer_value(json_object_get(json_object_get(all, "machine"), "processors")) >= 1);
    assert_int_equal(strlen(json_string_value(json_object_get(all, "time"))),
                     strlen("2026-01-31T12:00:00Z"));
    json_decref(all);
}

/* Both members of the pairs rise. The same percentiles are also members of their own. */
static void the_latencies_are_a_distribution(void **state)
{
    (void)state;
    struct bench_config config = small("load");
    json_t *all = run_suite(&config, NULL);
    json_t *op = json_object_get(json_object_get(find_run(all, "load"), "per_op"), "put");
    json_t *pairs = json_object_get(op, "latency_us");
    double part = -1, us = 0;
    for (size_t i = 0; i < json_array_size(pairs); i++) {
        const json_t *pair = json_array_get(pairs, i);
        double next = json_real_value(json_array_get(pair, 0));
        assert_true(next > part);
        assert_true(json_real_value(json_array_get(pair, 1)) >= us);
        part = next;
        us = json_real_value(json_array_get(pair, 1));
        if (part == 0.99)
            assert_true(us == json_real_value(json_object_get(op, "p99_us")));
    }
    assert_true(part == 1);
    json_decref(all);
}

static void the_same_seed_costs_the_same(void **state)
{
    (void)state;
    static const char *const members[] = {"count", "rtts", "verbs", "bytes_read", "bytes_written"};
    struct bench_config config = small("load,a,d,f,insert");
    config.seed = 77;
    config.pool = "mem:?size=256m&lease=3600000"; /* heartbeats cost round trips */
    json_t *first = run_suite(&config, NULL), *again = run_suite(&config, NULL);
    size_t i;
    json_t *run, *op;
    const char *kind;
    json_array_foreach(json_object_get(first, "runs"), i, run)
    {
        json_t *other = json_array_get(json_object_get(again, "runs"), i);
        json_object_foreach(json_object_get(run, "per_op"), kind, op)
        {
            json_t *same = json_object_get(json_object_get(other, "per_op"), kind);
            for (unsigned m = 0; m < sizeof members / sizeof *members; m++)
                assert_true(
                    json_equal(json_object_get(op, members[m]), json_object_get(same, members[m])));
        }
    }
    json_decref(first);
    json_decref(again);
}

static void a_list_without_load_finds_its_keys(void **state)
{
    (void)state;
    struct bench_config config = small("get");
    json_t *all = run_suite(&config, NULL);
    assert_int_equal(json_array_size(json_object_get(all, "runs")), 1);
    assert_int_equal(count_of(find_run(all, "get"), "get", "not_found"), 0);
    json_decref(all);
}

static void raw_measures_an_efficiency(void **state)
{
    (void)state;
    struct bench_config config = small("load,a,delete");
    config.raw = true;
    config.threads = 2;
    for (config.depth = 1; config.depth <= 4; config.depth += 3) {
        json_t *all = run_suite(&config, NULL), *run;
        size_t i;
        json_array_foreach(json_object_get(all, "runs"), i, run)
        {
            assert_true(json_real_value(json_object_get(run, "raw_ops_per_s")) > 0);
            assert_true(json_real_value(json_object_get(run, "efficiency")) > 0);
        }
        json_decref(all);
    }
}

static void a_stop_ends_the_suite_after_the_run(void **state)
{
    (void)state;
    atomic_bool stop = false;
    struct bench_config config = small("load,a,b");
    config.stop = &stop;
    json_t *all = run_suite(&config, &stop);
    assert_int_equal(json_array_size(json_object_get(all, "runs")), 1);
    assert_true(json_is_true(json_object_get(all, "interrupted")));
    json_decref(all);
}

static void configurations_that_cannot_run_are_refused(void **state)
{
    (void)state;
    struct bench_observer observer = {.arg = NULL};
    struct bench_config config = small("load");
    config.theta = 0;
    assert_int_equal(bench_suite(&config, &observer), FAR_INVALID);
    config.theta = INFINITY;
    assert_int_equal(bench_suite(&config, &observer), FAR_INVALID);
    config = small("load");
    config.sizes.key.min = 7;
    assert_int_equal(bench_suite(&config, &observer), FAR_INVALID);
    config = small("load");
    config.sizes.key = (struct bench_range){20, 19};
    assert_int_equal(bench_suite(&config, &observer), FAR_INVALID);
    config = small("load");
    config.sizes.value = (struct bench_range){15, 16};
    assert_int_equal(bench_suite(&config, &observer), FAR_INVALID);
    assert_non_null(strstr(far_error_detail(), "at least 16 bytes"));
    config = small("load");
    config.sizes.value.max = FAR_VALUE_MAX + 1;
    assert_int_equal(bench_suite(&config, &observer), FAR_INVALID);
    config = small("load");
    config.tuning = "groups=1";
    assert_int_equal(bench_suite(&config, &observer), FAR_INVALID);
    config.index = NULL; /* all */
    assert_int_equal(bench_suite(&config, &observer), FAR_INVALID);
    config = small("load");
    config.threads = 0;
    assert_int_equal(bench_suite(&config, &observer), FAR_INVALID);
    config = small("load");
    config.pool = "tape:";
    assert_int_equal(bench_suite(&config, &observer), FAR_NO_FABRIC);
    config = small("load");
    config.index = "none";
    assert_int_equal(bench_suite(&config, &observer), FAR_NO_INDEX);
}

static void more_threads_than_client_slots_fail_cleanly(void **state)
{
    (void)state;
    struct collected c = {.runs = json_array()};
    struct bench_observer observer = {
        .arg = &c, .index_begin = on_begin, .run = on_run, .index_done = on_done};
    struct bench_config config = small("load");
    config.pool = "mem:?size=64m&clients=4";
    config.threads = 8;
    c.config = &config;
    assert_int_equal(bench_suite(&config, &observer), FAR_NO_CLIENT_SLOT);
    assert_int_equal(json_array_size(c.runs), 0);
    json_decref(c.runs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_workloads_are_right_with_one_thread_at_depth_1),
        cmocka_unit_test(all_workloads_are_right_with_threads_and_a_full_ring),
        cmocka_unit_test(operations_to_warm_up_are_not_measured),
        cmocka_unit_test(restructuring_is_summed_over_sessions),
        cmocka_unit_test(a_table_with_room_is_not_split),
        cmocka_unit_test(deletes_warm_up_with_keys_that_are_left_over),
        cmocka_unit_test(all_workloads_are_right_at_a_fixed_rate),
        cmocka_unit_test(repeats_are_comparable),
        cmocka_unit_test(repeats_in_virtual_time_are_the_same),
        cmocka_unit_test(a_mix_finds_its_keys_while_others_are_deleted),
        cmocka_unit_test(sizes_that_vary_are_right_on_every_index),
        cmocka_unit_test(the_json_has_all_members),
        cmocka_unit_test(the_latencies_are_a_distribution),
        cmocka_unit_test(the_same_seed_costs_the_same),
        cmocka_unit_test(a_list_without_load_finds_its_keys),
        cmocka_unit_test(raw_measures_an_efficiency),
        cmocka_unit_test(a_stop_ends_the_suite_after_the_run),
        cmocka_unit_test(configurations_that_cannot_run_are_refused),
        cmocka_unit_test(more_threads_than_client_slots_fail_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
