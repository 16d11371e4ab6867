/* Medians, ratios within rounds, and a table that fits its columns. */
#include "out/text.h"
#include "compare/compare.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static struct bench_config bench;

/* A comparison with one rival, of which `rounds` rounds were measured. */
static struct compare *new_compare(unsigned rounds, const char *workloads)
{
    struct compare *c = calloc(1, sizeof *c);
    assert_non_null(c);
    bench = bench_defaults;
    bench.index = "race";
    assert_int_equal(workload_parse(workloads, &bench.workloads), FAR_OK);
    c->config = (struct compare_config){.bench = &bench, .list = "all", .rounds = rounds};
    c->stores = 3;
    c->rounds = rounds;
    c->store[0] = (struct compare_store){.name = "farside", .ops = &store_farside_mem};
    c->store[1] = (struct compare_store){.name = "redis", .ops = &store_redis};
    c->store[2] = (struct compare_store){.name = "memcached", .text = "not here"};
    return c;
}

static void set_rounds(struct compare *c, unsigned store, const double *ops, unsigned count)
{
    memcpy(c->store[store].ops_per_s[0], ops, count * sizeof *ops);
}

static void assert_spread(struct summary_spread s, double median, double least, double most)
{
    assert_true(s.median == median);
    assert_true(s.least == least);
    assert_true(s.most == most);
}

/* The medians are of the same size here, but in each round one is twice as fast as the other. */
static void ratios_are_taken_within_a_round(void **state)
{
    struct compare *c = new_compare(3, "c");
    (void)state;
    set_rounds(c, 0, (const double[]){400, 100, 200}, 3);
    set_rounds(c, 1, (const double[]){200, 50, 400}, 3);
    assert_spread(compare_ops(c, &c->store[0], 0), 200, 100, 400);
    assert_spread(compare_ops(c, &c->store[1], 0), 200, 50, 400);
    assert_spread(compare_ratio(c, &c->store[1], 0), 2, 0.5, 2);
    compare_close(c);
}

static void an_even_number_of_rounds_has_a_median(void **state)
{
    struct compare *c = new_compare(4, "c");
    (void)state;
    set_rounds(c, 0, (const double[]){4, 1, 3, 2}, 4);
    assert_spread(compare_ops(c, &c->store[0], 0), 2.5, 1, 4);
    compare_close(c);
}

static char *printed(const struct compare *c)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    assert_non_null(out);
    table_setup(c, out);
    table_results(c, out);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void every_line_fits(void **state)
{
    struct compare *c = new_compare(1, "get=1+put=1+update=1+miss=97");
    (void)state;
    bench.sizes = (struct bench_sizes){{8, 4096}, {16, 4194304}};
    bench.seed = INT64_MAX;
    bench.theta = 0.123456;
    memset(c->store[0].text, 'w', sizeof c->store[0].text - 1);
    set_rounds(c, 0, (const double[]){1e9}, 1);
    set_rounds(c, 1, (const double[]){1e3}, 1);
    char *text = printed(c);
    for (const char *at = text; *at;) {
        size_t len = strcspn(at, "\n");
        if (len > TEXT_COLUMNS)
            fail_msg("%zu columns: %.*s", len, (int)len, at);
        at += len + (at[len] == '\n');
    }
    assert_non_null(strstr(text, "left out: memcached: not here"));
    assert_non_null(strstr(text, "1,000,000,000"));
    assert_non_null(strstr(text, "1000000.00"));
    free(text);
    compare_close(c);
}

static json_t *at(json_t *array, unsigned i, const char *member)
{
    json_t *value = json_object_get(json_array_get(array, i), member);
    assert_non_null(value);
    return value;
}

/* A report draws each group as it draws a benchmark. */
static void json_has_a_benchmark_for_each_group(void **state)
{
    struct compare *c = new_compare(2, "c");
    (void)state;
    set_rounds(c, 0, (const double[]){4, 2}, 2);
    set_rounds(c, 1, (const double[]){2, 2}, 2);
    c->runs[STORE_EMBEDDED] = json_pack("[{s:s}]", "index", "farside");
    json_t *all = table_json(c, true);
    assert_non_null(all);
    assert_true(json_is_true(json_object_get(all, "interrupted")));
    assert_int_equal(json_array_size(json_object_get(all, "left_out")), 1);
    json_t *groups = json_object_get(all, "groups");
    assert_int_equal(json_array_size(groups), 1);
    assert_string_equal(json_string_value(at(groups, 0, "pool")), "embedded stores");
    assert_int_equal(json_array_size(at(groups, 0, "runs")), 1);
    assert_int_equal(json_array_size(at(groups, 0, "stores")), 2);
    json_t *summary = at(groups, 0, "summary");
    assert_int_equal(json_array_size(summary), 2);
    assert_string_equal(json_string_value(at(summary, 1, "index")), "redis");
    json_t *ratio = at(summary, 1, "farside_ratio");
    assert_true(json_real_value(json_object_get(ratio, "median")) == 1.5);
    assert_true(json_is_null(at(summary, 0, "farside_ratio")));
    json_decref(all);
    compare_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ratios_are_taken_within_a_round),
        cmocka_unit_test(an_even_number_of_rounds_has_a_median),
        cmocka_unit_test(every_line_fits),
        cmocka_unit_test(json_has_a_benchmark_for_each_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
