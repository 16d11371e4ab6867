/* The table for people: no line is too long, whatever the numbers are, and it says what to know
 * about them. */
#include "bench/pace.h"
#include "bench/json.h"
#include "bench/print.h"
#include "out/text.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What is printed between these two calls. */
struct paper {
    FILE *out;
    char *text;
    size_t len;
};

static void paper_open(struct paper *p)
{
    p->out = open_memstream(&p->text, &p->len);
    assert_non_null(p->out);
}

/* Every line fits. */
static void paper_close(struct paper *p)
{
    assert_int_equal(fclose(p->out), 0);
    for (const char *at = p->text; *at;) {
        size_t len = strcspn(at, "\n");
        if (len > TEXT_COLUMNS)
            fail_msg("%zu columns: %.*s", len, (int)len, at);
        at += len + (at[len] == '\n');
    }
}

static struct bench_run *new_run(const char *index, const char *workload, double ops_per_s)
{
    struct bench_run *run = calloc(1, sizeof *run);
    assert_non_null(run);
    run->index = index;
    run->workload = workload;
    run->ops = run->ops_planned = 1000;
    run->ops_per_s = ops_per_s;
    for (unsigned k = 0; k < FAR_OP_KINDS; k++)
        hist_clear(&run->op[k].latency);
    run->op[FAR_OP_GET].stats.count = 1000;
    return run;
}

/* Everything is as large as it can be, and everything has gone wrong. */
static struct bench_run *new_worst_run(void)
{
    struct bench_run *run = new_run("rcuckoo", "iterate", 123456789012.0);
    run->raw_ops_per_s = 1;
    run->ops = 999999999;
    run->ops_planned = BENCH_COUNT_MAX;
    for (unsigned k = 0; k < FAR_OP_KINDS; k++) {
        struct bench_op *op = &run->op[k];
        op->stats = (struct far_op_stats){.count = 12345678901ull,
                                          .not_found = 12345678901ull,
                                          .errors = 12345678901ull,
                                          .rtts = UINT64_MAX,
                                          .verbs = UINT64_MAX,
                                          .bytes_read = UINT64_MAX,
                                          .bytes_written = UINT64_MAX,
                                          .entries = 123456789012345ull};
        op->wrong = UINT64_MAX / 2;
        hist_record(&op->latency, UINT64_MAX / 2);
    }
    run->windows = BENCH_WINDOWS_MAX - 1;
    for (unsigned i = 0; i < BENCH_WINDOWS_MAX; i++)
        run->window[i] = (struct bench_window){.ops = UINT64_MAX / 1000, .rtts = UINT64_MAX};
    run->slowest_ops = run->slowest_ops_per_rtt = 123456789.0;
    run->pace = (struct bench_pace){
        .rate = UINT64_MAX, .late_max = UINT64_MAX, .late_last = UINT64_MAX, .fell_behind = true};
    run->counters = (struct counters_sum){.on = true,
                                          .known = {true, true, false},
                                          .user_only = true,
                                          .error = EOPNOTSUPP,
                                          .count = {UINT64_MAX, UINT64_MAX},
                                          .switches = UINT64_MAX};
    run->first_error = run->halted_by = FAR_UNKNOWN;
    memset(run->detail, 'n', sizeof run->detail - 1);
    run->interrupted = true;
    run->space_known = true;
    run->space = (struct far_table_info){.keys = BENCH_COUNT_MAX,
                                         .index_bytes = UINT64_MAX,
                                         .block_bytes = UINT64_MAX,
                                         .client_cache_bytes = UINT64_MAX,
                                         .load_factor = 123456.0,
                                         .splits = UINT64_MAX,
                                         .split_load_max = 123456.0,
                                         .split_load_mean = 123456.0};
    return run;
}

static void no_line_is_longer_than_100_columns(void **state)
{
    (void)state;
    static char uri[600], tuning[256];
    memset(uri, 'u', sizeof uri - 1);
    memset(tuning, 't', sizeof tuning - 1);
    struct bench_config config = bench_defaults;
    config.pool = uri;
    config.tuning = tuning;
    config.index = "rcuckoo";
    config.keys = config.ops = config.warmup = BENCH_COUNT_MAX;
    config.rate = PACE_RATE_MAX;
    config.repeat = BENCH_REPEAT_MAX;
    config.processes = config.threads = BENCH_THREADS_MAX;
    config.depth = FAR_DEPTH_MAX;
    config.sizes.key = (struct bench_range){FAR_KEY_MAX - 1, FAR_KEY_MAX};
    config.sizes.value = (struct bench_range){FAR_VALUE_MAX - 1, FAR_VALUE_MAX};
    config.theta = 0.1234567;
    config.seed = INT64_MAX;
    config.timeline = true;
    static char mix[WORKLOAD_NAME_BYTES];
    memset(mix, 'm', sizeof mix - 1);
    for (unsigned i = 0; i < 4; i++) {
        struct paper p;
        struct bench_print r;
        struct bench_run *run = new_worst_run();
        struct bench_drop drop = {.table = "t", .bytes = UINT64_MAX};
        config.raw = i % 2 > 0;
        run->workload = i < 2 ? run->workload : mix;
        paper_open(&p);
        bench_print_begin(&r, p.out, &config,
                          "1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008");
        bench_print_threads(&r, &config);
        bench_print_run(&r, run);
        struct summary_list list = {.count = 0};
        run->interrupted = false; /* else it would not count */
        run->halted_by = FAR_OK;
        assert_int_equal(summary_add(&list, BENCH_THREADS_MAX, run), FAR_OK);
        run->ops_per_s = 0.001;
        assert_int_equal(summary_add(&list, BENCH_THREADS_MAX, run), FAR_OK);
        bench_print_summary(&r, list.item[0]);
        summary_list_free(&list);
        bench_print_index(&r, "rcuckoo");
        bench_print_dropped(&r, &drop);
        bench_print_end(&r);
        paper_close(&p);
        assert_non_null(strstr(p.text, "stopped after 999,999,999 of 1,000,000,000 operations"));
        free(p.text);
        free(run);
    }
}

/* Figures that the kernel gives are shown each time; the reason why it does not, once. */
static void counters_are_shown_or_the_reason_is(void **state)
{
    (void)state;
    struct paper p;
    struct bench_print r;
    struct bench_config config = bench_defaults;
    struct bench_run *run = new_run("race", "c", 1000);
    run->ops = 1000;
    run->counters = (struct counters_sum){
        .on = true, .known = {true, true, true}, .count = {1234000, 2345000, 1500}, .switches = 3};
    paper_open(&p);
    bench_print_begin(&r, p.out, &config, "1");
    bench_print_run(&r, run);
    run->counters.known[COUNTERS_CYCLES] = run->counters.known[COUNTERS_CACHE_MISSES] = false;
    run->counters.user_only = true;
    run->counters.error = ENOENT;
    bench_print_run(&r, run);
    bench_print_run(&r, run);
    bench_print_end(&r);
    paper_close(&p);
    assert_non_null(strstr(p.text, "  per operation: 1234 cycles, 2345 instructions, 1.50 cache "
                                   "misses, 0.003 context switches\n"));
    assert_non_null(strstr(p.text, "  per operation: 2345 instructions, 0.003 context switches; "
                                   "without what the kernel does\n"));
    const char *why = strstr(p.text, "  not counted: cycles, cache misses (No such file");
    assert_non_null(why);
    assert_null(strstr(why + 10, "not counted"));
    free(p.text);
    free(run);
}

/* The row has the median; the lines below it have the spread. */
static void repeated_runs_have_one_row_and_a_spread(void **state)
{
    (void)state;
    static const double speed[] = {900, 1000, 1500};
    struct paper p;
    struct bench_print r;
    struct bench_config config = bench_defaults;
    struct summary_list list = {.count = 0};
    config.repeat = 3;
    for (unsigned i = 0; i < 3; i++) {
        struct bench_run *run = new_run("race", "c", speed[i]);
        hist_clear(&run->op[FAR_OP_GET].latency);
        hist_record(&run->op[FAR_OP_GET].latency, 1000 * (i + 1));
        assert_int_equal(summary_add(&list, 1, run), FAR_OK);
        free(run);
    }
    paper_open(&p);
    bench_print_begin(&r, p.out, &config, "1");
    bench_print_summary(&r, list.item[0]);
    bench_print_end(&r);
    paper_close(&p);
    assert_non_null(strstr(p.text, "race    c             1,000 get "));
    assert_non_null(
        strstr(p.text, "  3 runs: 900 to 1,500 ops/s, -10.0 % to +50.0 % of the median\n"));
    assert_non_null(strstr(p.text, "    get: p50 1.00 to 3.00 us, p99 1.00 to 3.00 us\n"));
    summary_list_free(&list);
    free(p.text);
}

static void a_long_name_of_a_workload_has_its_own_line(void **state)
{
    (void)state;
    struct paper p;
    struct bench_print r;
    struct bench_config config = bench_defaults;
    struct bench_run *run = new_run("race", "insert=30+get=70", 1000);
    paper_open(&p);
    bench_print_begin(&r, p.out, &config, "1");
    bench_print_run(&r, run);
    paper_close(&p);
    assert_non_null(strstr(p.text, "\nrace    insert=30+get=70\n                      1,000 get "));
    free(p.text);
    free(run);
}

static void a_time_line_has_a_line_for_each_window(void **state)
{
    (void)state;
    struct paper p;
    struct bench_print r;
    struct bench_config config = bench_defaults;
    struct bench_run *run = new_run("race", "load", 1000);
    config.timeline = true;
    config.window_ns = 10000000;
    run->windows = 2;
    run->window[0] = (struct bench_window){.ops = 12345, .rtts = 24690};
    run->window[1] = (struct bench_window){.ops = 0, .rtts = 7};
    run->window[2] = (struct bench_window){.ops = 99, .rtts = 99}; /* not complete */
    paper_open(&p);
    bench_print_begin(&r, p.out, &config, "1");
    bench_print_run(&r, run);
    run->windows = 0;
    bench_print_run(&r, run);
    run->windows = BENCH_WINDOWS_MAX - 1;
    bench_print_run(&r, run);
    paper_close(&p);
    assert_non_null(strstr(p.text, "  time line of load, in windows of 10 ms:\n"
                                   "        0.01 s       1,234,500 ops/s     2.00 rtts\n"
                                   "        0.02 s               0 ops/s     0.00 rtts\n"
                                   "race "));
    assert_non_null(strstr(p.text, "in windows of 10 ms: it took less than one\n"));
    assert_non_null(strstr(p.text, "the time line ends here, after 5999 windows\n"));
    free(p.text);

    run->windows = 2;
    json_t *json = bench_json_run(&config, run), *line = json_object_get(json, "timeline");
    assert_int_equal(json_array_size(line), 2);
    json_t *first = json_array_get(line, 0);
    assert_true(json_real_value(json_object_get(first, "ops_per_s")) == 1234500);
    assert_true(json_real_value(json_object_get(first, "seconds")) == 0.01);
    assert_true(json_real_value(json_object_get(first, "rtts")) == 2);
    assert_true(json_real_value(json_object_get(json, "window_ms")) == 10);
    json_decref(json);
    free(run);
}

/* What is printed for runs of c with these numbers of threads and speeds. */
static char *text_of(unsigned depth, const char *threads, const unsigned *count,
                     const double *speed, unsigned runs)
{
    struct paper p;
    struct bench_print r;
    struct bench_config config = bench_defaults;
    config.depth = depth;
    paper_open(&p);
    bench_print_begin(&r, p.out, &config, threads);
    for (unsigned i = 0; i < runs; i++) {
        struct bench_run *race = new_run("race", "c", speed[i]);
        struct bench_run *shard = new_run("shard", "c", 1000.0 * count[i]);
        config.threads = count[i];
        bench_print_threads(&r, &config);
        bench_print_run(&r, race);
        bench_print_index(&r, "race");
        bench_print_run(&r, shard);
        bench_print_index(&r, "shard");
        free(race);
        free(shard);
    }
    bench_print_end(&r);
    paper_close(&p);
    return p.text;
}

static void threads_that_are_slower_than_one_are_pointed_out(void **state)
{
    (void)state;
    char *text = text_of(1, "1, 2, 4", (unsigned[]){1, 2, 4}, (double[]){1000, 1500, 700}, 3);
    assert_non_null(strstr(text, "with 4 threads:"));
    assert_non_null(
        strstr(text, "hint: with 4 threads, 1 of 2 runs were slower than with 1 thread"));
    assert_non_null(strstr(text, "(race c: 0.70"));
    assert_null(strstr(text, "hint: with 2 threads"));
    assert_non_null(strstr(text, "processors"));
    free(text);

    text = text_of(1, "1, 2", (unsigned[]){1, 2}, (double[]){1000, 1500}, 2);
    assert_null(strstr(text, "hint"));
    free(text);
    /* There is nothing to compare with. */
    text = text_of(1, "2, 4", (unsigned[]){2, 4}, (double[]){1000, 700}, 2);
    assert_null(strstr(text, "hint"));
    free(text);
    text = text_of(1, "4", (unsigned[]){4}, (double[]){700}, 1);
    assert_null(strstr(text, "hint"));
    assert_null(strstr(text, "with 4 threads:"));
    free(text);
}

static void latency_at_depth_is_explained(void **state)
{
    (void)state;
    char *text = text_of(1, "1", (unsigned[]){1}, (double[]){1000}, 1);
    assert_null(strstr(text, "waits for"));
    free(text);
    text = text_of(8, "1", (unsigned[]){1}, (double[]){1000}, 1);
    assert_non_null(strstr(text, "with 8 operations in flight, these times include"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_line_is_longer_than_100_columns),
        cmocka_unit_test(counters_are_shown_or_the_reason_is),
        cmocka_unit_test(repeated_runs_have_one_row_and_a_spread),
        cmocka_unit_test(a_long_name_of_a_workload_has_its_own_line),
        cmocka_unit_test(a_time_line_has_a_line_for_each_window),
        cmocka_unit_test(threads_that_are_slower_than_one_are_pointed_out),
        cmocka_unit_test(latency_at_depth_is_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
