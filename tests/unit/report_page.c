/* Pages and tables for spreadsheets: what they escape, and what they do with results that are not
 * complete. */
#include "report/chart.h"
#include "report/csv.h"
#include "report/html.h"
#include "report/lookup.h"
#include "report/page.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is written between these two calls. */
static char *paper;
static size_t paper_bytes;

static FILE *paper_open(void)
{
    FILE *out = open_memstream(&paper, &paper_bytes);
    assert_non_null(out);
    return out;
}

static void paper_expect(FILE *out, const char *text)
{
    assert_int_equal(fclose(out), 0);
    assert_string_equal(paper, text);
    free(paper);
}

static void text_is_escaped(void **state)
{
    (void)state;
    FILE *out = paper_open();
    html_text(out, "<b> & \"x\" 'y' \x01\x7f µ\n");
    paper_expect(out, "&lt;b&gt; &amp; &quot;x&quot; &#39;y&#39; \\x01\\x7f µ\n");
}

static void fields_are_quoted_if_they_must_be(void **state)
{
    (void)state;
    FILE *out = paper_open();
    csv_field(out, "plain text");
    csv_field(out, "a,b");
    csv_field(out, "say \"x\"");
    csv_field(out, "two\nlines");
    csv_field(out, "");
    paper_expect(out, "plain text\"a,b\"\"say \"\"x\"\"\"\"two\nlines\"");
}

static void paths_lead_to_values(void **state)
{
    (void)state;
    json_t *root = json_pack("[{s:[{s:i}], s:s}]", "runs", "ops", 7, "pool", "mem:");
    assert_float_equal(lookup_number(root, "0/runs/0/ops"), 7, 0);
    assert_string_equal(lookup_text(root, "0/pool"), "mem:");
    assert_true(isnan(lookup_number(root, "0/runs/1/ops")));
    assert_true(isnan(lookup_number(root, "none/runs")));
    assert_true(isnan(lookup_number(root, "0/pool")));
    assert_string_equal(lookup_text(root, "0/runs"), "");
    json_decref(root);
}

/* A run with one kind of operation. */
static json_t *new_run(const char *index, const char *workload, int threads, double rate)
{
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:b, s:{s:{s:i, s:f, s:f, s:f, "
                     "s:f, s:f, s:f, s:f}}}",
                     "index", index, "workload", workload, "processes", 1, "threads", threads,
                     "depth", 1, "keys", 100, "ops", 90, "ops_planned", 100, "ops_per_s", rate,
                     "interrupted", 0, "per_op", "get", "count", 90, "rtts", 2.0, "verbs", 3.0,
                     "bytes_read", 300.0, "bytes_written", 0.0, "p50_us", 0.5, "p99_us", 1.5,
                     "p999_us", 15.0);
}

static json_t *new_results(json_t *runs)
{
    return json_pack("[{s:s, s:s, s:i, s:i, s:i, s:i, s:f, s:i, s:o}]", "farside", "1.0", "pool",
                     "mem:", "key_size", 8, "key_size_max", 8, "value_size", 16, "value_size_max",
                     32, "theta", 0.99, "seed", 1, "runs", runs);
}

/* The page of the results, which are freed. To be freed. */
static char *page_of(json_t *results)
{
    FILE *out = paper_open();
    assert_true(page_write(out, results));
    assert_int_equal(fclose(out), 0);
    json_decref(results);
    assert_non_null(strstr(paper, "</html>"));
    assert_null(strstr(paper, "nan"));
    assert_null(strstr(paper, "inf\""));
    return paper;
}

static unsigned count_of(const char *text, const char *what)
{
    unsigned count = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what))
        count++;
    return count;
}

static void names_cannot_break_a_page(void **state)
{
    (void)state;
    char *page = page_of(new_results(json_pack(
        "[o, o]", new_run("<script>", "\"><svg onload=x>", 1, 10), new_run("race", "c", 1, 5))));
    assert_int_equal(count_of(page, "<script>"), 1); /* our own */
    assert_null(strstr(page, "<svg onload"));
    assert_non_null(strstr(page, "&quot;&gt;&lt;svg onload=x&gt;"));
    free(page);
}

static void numbers_stand_beside_their_path(void **state)
{
    (void)state;
    char *page = page_of(new_results(json_pack("[o]", new_run("race", "c", 1, 1234567.5))));
    assert_non_null(strstr(
        page, "<td data-json=\"0/runs/0/ops_per_s\" data-value=\"1234567.5\">1,234,568</td>"));
    assert_non_null(strstr(page, "data-json=\"0/runs/0/per_op/get/p99_us\""));
    free(page);
}

/* Lines over clients need at least two numbers of them. */
static void clients_have_a_chart_if_they_vary(void **state)
{
    (void)state;
    char *page = page_of(new_results(json_pack("[o]", new_run("race", "c", 1, 10))));
    assert_null(strstr(page, "Throughput over clients"));
    free(page);
    page = page_of(
        new_results(json_pack("[o, o]", new_run("race", "c", 1, 10), new_run("race", "c", 8, 70))));
    assert_non_null(strstr(page, "Throughput over clients"));
    assert_non_null(strstr(page, "RACE, 8.00 clients: 70.0 operations per second"));
    free(page);
}

static void a_workload_that_is_listed_twice_has_two_charts(void **state)
{
    (void)state;
    char *page = page_of(
        new_results(json_pack("[o, o]", new_run("race", "c", 1, 10), new_run("race", "c", 1, 20))));
    assert_non_null(strstr(page, "c (no. 2)"));
    free(page);
}

static void results_without_runs_have_a_page(void **state)
{
    (void)state;
    char *page = page_of(new_results(json_array()));
    assert_non_null(strstr(page, "Nothing was measured."));
    free(page);
}

static void runs_that_did_not_end_are_named(void **state)
{
    (void)state;
    json_t *run = new_run("race", "c", 1, 10);
    json_object_set_new(run, "stopped_by", json_string("FAR_POOL_FULL"));
    char *page = page_of(new_results(json_pack("[o]", run)));
    assert_non_null(
        strstr(page, "RACE, c, 1 client: stopped after 90 of 100 operations by FAR_POOL_FULL"));
    free(page);
}

static void failed_operations_are_counted(void **state)
{
    (void)state;
    json_t *run = new_run("race", "c", 1, 10);
    json_object_set_new(run, "first_error", json_string("FAR_CONTENTION"));
    json_object_set_new(json_object_get(json_object_get(run, "per_op"), "get"), "errors",
                        json_integer(3));
    char *page = page_of(new_results(json_pack("[o]", run)));
    assert_non_null(strstr(page, "3 of 90 operations failed, the first with FAR_CONTENTION"));
    free(page);
}

static void bars_that_are_no_numbers_keep_their_name(void **state)
{
    (void)state;
    struct chart_bar bars[] = {{.name = "one", .style = "race", .value = NAN},
                               {.name = "two", .style = "race", .value = 3, .label = "3"}};
    FILE *out = paper_open();
    chart_bars(out, "bars", 2, bars, 3);
    assert_int_equal(fclose(out), 0);
    assert_non_null(strstr(paper, ">one</text>"));
    assert_int_equal(count_of(paper, "class=\"value\""), 1);
    assert_null(strstr(paper, "nan"));
    free(paper);
}

static void spreadsheets_have_a_row_for_each_operation(void **state)
{
    (void)state;
    json_t *run = new_run("race", "insert=30+get=70", 2, 10);
    json_object_set_new(json_object_get(run, "per_op"), "put", json_pack("{s:i}", "count", 3));
    json_t *results = new_results(json_pack("[o]", run));
    FILE *out = paper_open();
    csv_write(out, results);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(strncmp(paper, "pool,index,", 11), 0);
    assert_int_equal(count_of(paper, "\r\n"), 3);
    assert_int_equal(count_of(paper, "mem:,race,,insert=30+get=70,"), 2);
    assert_int_equal(count_of(paper, ",get,90,2,,,3,300,0,0.5,1.5,15,"), 1);
    assert_int_equal(count_of(paper, ",put,3,,"), 1);
    free(paper);
    json_decref(results);
}

static void spreadsheets_name_experiment_and_cell(void **state)
{
    (void)state;
    json_t *results = json_pack("[{s:[{s:s, s:[{s:s, s:[o]}]}]}]", "experiments", "name", "skew",
                                "cells", "name", "race-50", "runs", new_run("race", "a", 1, 5));
    FILE *out = paper_open();
    csv_write(out, results);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(strncmp(paper, "experiment,cell,pool,index,", 27), 0);
    assert_int_equal(count_of(paper, "\r\nskew,race-50,,race,"), 1);
    free(paper);
    json_decref(results);
}

/* An experiment with one table. */
static json_t *new_experiment(const char *lines, json_t *rows)
{
    return json_pack("[{s:s, s:[{s:s, s:s, s:s, s:[{s:s, s:s, s:s, s:s, s:s}], s:[{s:s, s:i, s:s?, "
                     "s:o}]}]}]",
                     "farside", "1.0", "experiments", "name", "skew", "summary", "x", "after", "y",
                     "claims", "name", "C1", "source", "5.4", "claim", "it rises", "verdict",
                     "does not hold", "found", "it falls", "tables", "title", "Rates:", "left", 1,
                     "lines", lines, "rows", rows);
}

static void tables_with_an_axis_have_lines(void **state)
{
    (void)state;
    char *page = page_of(new_experiment(
        "rows", json_pack("[[s, s, s, s], [s, f, f, f], [s, f, n, f]]", "theta:", "0.50", "0.99",
                          "paper", "RACE", 1.5, 2.5, 7.0, "CHIME", 1.0, 3.0)));
    assert_int_equal(count_of(page, "class=\"line\""), 2);
    assert_non_null(strstr(page, "RACE, 0.990: 2.50"));
    assert_null(strstr(page, "RACE, 0.990: 7.00")); /* the head "paper" is no place on the axis */
    assert_non_null(strstr(page, "data-json=\"0/experiments/0/tables/0/rows/1/2\""));
    assert_non_null(strstr(page, "class=\"verdict bad\">does not hold"));
    free(page);
}

static void other_tables_have_bars_for_each_column(void **state)
{
    (void)state;
    char *page = page_of(new_experiment(
        NULL, json_pack("[[s, s, s, s], [s, f, f, s], [s, f, n, s]]", "index", "rtts", "verbs",
                        "paper", "RACE", 1.5, 2.5, "> 2", "CHIME", 1.0, "-")));
    assert_int_equal(count_of(page, "<svg"), 1); /* a column with one number needs none */
    assert_non_null(strstr(page, "CHIME: 1.00"));
    assert_non_null(strstr(page, "<td>&gt; 2</td>"));
    free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_escaped),
        cmocka_unit_test(fields_are_quoted_if_they_must_be),
        cmocka_unit_test(paths_lead_to_values),
        cmocka_unit_test(names_cannot_break_a_page),
        cmocka_unit_test(numbers_stand_beside_their_path),
        cmocka_unit_test(clients_have_a_chart_if_they_vary),
        cmocka_unit_test(a_workload_that_is_listed_twice_has_two_charts),
        cmocka_unit_test(results_without_runs_have_a_page),
        cmocka_unit_test(runs_that_did_not_end_are_named),
        cmocka_unit_test(failed_operations_are_counted),
        cmocka_unit_test(bars_that_are_no_numbers_keep_their_name),
        cmocka_unit_test(spreadsheets_have_a_row_for_each_operation),
        cmocka_unit_test(spreadsheets_name_experiment_and_cell),
        cmocka_unit_test(tables_with_an_axis_have_lines),
        cmocka_unit_test(other_tables_have_bars_for_each_column),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
