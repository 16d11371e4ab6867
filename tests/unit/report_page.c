/* Pages and tables for spreadsheets: what they have, and what they escape. e2e/report_browser looks
 * at what a page draws. */
#include "out/csv.h"
#include "report/page.h"
#include "report/spreadsheet.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

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

static void fields_are_quoted_if_they_must_be(void **state)
{
    (void)state;
    FILE *out = paper_open();
    struct csv c = {.out = out};
    csv_text(&c, "plain text");
    csv_text(&c, "a,b");
    csv_text(&c, "say \"x\"");
    csv_text(&c, "two\nlines");
    csv_text(&c, "");
    csv_value(&c, NULL);
    csv_end(&c);
    csv_text(&c, "next");
    paper_expect(out, "plain text,\"a,b\",\"say \"\"x\"\"\",\"two\nlines\",,\r\nnext");
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

static unsigned count_of(const char *text, const char *what)
{
    unsigned count = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what))
        count++;
    return count;
}

/* The JSON in the page of the results. To be freed. */
static char *json_of_page(const json_t *results)
{
    static const char before[] = "<script type=\"application/json\" id=\"results\">";
    FILE *out = paper_open();
    assert_true(page_write(out, results));
    assert_int_equal(fclose(out), 0);
    assert_int_equal(strncmp(paper, "<!DOCTYPE html>\n", 16), 0);
    assert_string_equal(paper + paper_bytes - 8, "</html>\n");
    char *begin = strstr(paper, before);
    assert_non_null(begin);
    begin += strlen(before);
    char *json = strndup(begin, (size_t)(strstr(begin, "</script>") - begin));
    assert_non_null(json);
    free(paper);
    return json;
}

static void a_page_has_its_results_as_json(void **state)
{
    (void)state;
    json_t *results = new_results(
        json_pack("[o, o]", new_run("race", "c", 1, 1234567.5), new_run("chime", "c", 2, 0.1)));
    char *json = json_of_page(results);
    json_t *found = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
    assert_true(json_equal(found, results));
    json_decref(found);
    json_decref(results);
    free(json);
}

/* Neither can a name end the element that has the results, nor begin a comment in it, nor have a
 * character that ends a line of a script. */
static void names_cannot_break_a_page(void **state)
{
    (void)state;
    json_t *results =
        new_results(json_pack("[o, o]", new_run("</script><b>", "<!--<script>", 1, 10),
                              new_run("\xe2\x80\xa8", "\\\"\n", 1, 5)));
    char *json = json_of_page(results);
    assert_null(strchr(json, '<'));
    for (const char *at = json; *at; at++)
        assert_in_range(*at, 0x20, 0x7e);
    json_t *found = json_loads(json, 0, NULL);
    assert_true(json_equal(found, results));
    json_decref(found);
    json_decref(results);
    free(json);
}

static void spreadsheets_have_a_row_for_each_operation(void **state)
{
    (void)state;
    json_t *run = new_run("race", "insert=30+get=70", 2, 10);
    json_object_set_new(json_object_get(run, "per_op"), "put", json_pack("{s:i}", "count", 3));
    json_t *results = new_results(json_pack("[o]", run));
    FILE *out = paper_open();
    spreadsheet_write(out, results);
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
    spreadsheet_write(out, results);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(strncmp(paper, "experiment,cell,pool,index,", 27), 0);
    assert_int_equal(count_of(paper, "\r\nskew,race-50,,race,"), 1);
    free(paper);
    json_decref(results);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_has_its_results_as_json),
        cmocka_unit_test(names_cannot_break_a_page),
        cmocka_unit_test(fields_are_quoted_if_they_must_be),
        cmocka_unit_test(spreadsheets_have_a_row_for_each_operation),
        cmocka_unit_test(spreadsheets_name_experiment_and_cell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
