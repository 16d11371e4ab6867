/* Claims: verdicts by our numbers, and what all experiments must have. */
#include "out/text.h"
#include "reproduce/cell.h"
#include "reproduce/reproduce.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void a_positive_margin_holds(void **state)
{
    (void)state;
    struct claim_finding f;
    claim_decide(&f, 0.1, "%d", 1);
    assert_int_equal(f.verdict, CLAIM_HOLDS);
    assert_string_equal(f.why, "1");
    claim_decide(&f, -0.1, "%d", 2);
    assert_int_equal(f.verdict, CLAIM_FAILS);
    claim_decide(&f, 0, "%d", 3);
    assert_int_equal(f.verdict, CLAIM_OTHER_SIZE);
}

static void a_tie_is_no_difference(void **state)
{
    (void)state;
    assert_true(claim_more(1.2, 1, 0) > 0);
    assert_true(claim_more(1.05, 1, 0) < 0);
    assert_true(claim_more(1, 2, 0) < 0);
    assert_true(isnan(claim_more(NAN, 1, 0)));
    assert_true(claim_more(1.6, 1, 1.6) > 0);
    assert_true(claim_more(1.9, 1, 1.6) > 0);
    assert_true(claim_more(4, 1, 1.6) == 0);
    assert_true(claim_more(1.15, 1, 1.6) == 0);
    assert_true(claim_more(1.05, 1, 1.6) < 0);
    assert_true(claim_more(1.05, 1, 1.2) < 0);  /* near, but a tie */
    assert_true(claim_more(1.02, 1, 1.08) > 0); /* the paper has a tie, too */
}

static void nothing_is_told_without_a_number(void **state)
{
    (void)state;
    struct claim_finding f;
    claim_decide(&f, NAN, "%f", NAN);
    assert_int_equal(f.verdict, CLAIM_OPEN);
    assert_null(strstr(f.why, "nan"));
    claim_open(&f, "there is no switch");
    assert_int_equal(f.verdict, CLAIM_OPEN);
    assert_string_equal(f.why, "there is no switch");
}

static void the_least_margin_counts(void **state)
{
    (void)state;
    assert_true(CLAIM_ALL(3.0, 1.0, 2.0) == 1.0);
    assert_true(isnan(CLAIM_ALL(3.0, NAN, -2.0)));
    assert_true(isnan(CLAIM_ALL(NAN, 1.0)));
}

static void rising_numbers_may_fall_by_the_slack(void **state)
{
    (void)state;
    const double up[] = {1, 2, 3}, dip[] = {1, 2, 1.95}, gap[] = {1, NAN, 3};
    assert_true(claim_rising(3, up, 0) > 0);
    assert_true(claim_rising(3, dip, 0) < 0);
    assert_true(claim_rising(3, dip, 0.05) > 0);
    assert_true(isnan(claim_rising(3, gap, 0)));
}

/* ---- an experiment with numbers that a test has made up -------------------------------------- */

/* Sets the round trips of every operation of one index. */
static void set_rtts(struct reproduction *r, const char *index, double get, double insert,
                     double update)
{
    const struct plan_cell *cell = plan_find(&r->plan, index);
    assert_non_null(cell);
    json_t *runs = json_pack(
        "[{s:s, s:{s:{s:f}}}, {s:s, s:{s:{s:f}}}, {s:s, s:{s:{s:f}}}, {s:s, s:{s:{s:f}}}]",
        "workload", "get", "per_op", "get", "rtts", get, "workload", "insert", "per_op", "insert",
        "rtts", insert, "workload", "update", "per_op", "update", "rtts", update, "workload",
        "delete", "per_op", "delete", "rtts", update);
    assert_non_null(runs);
    r->results.runs[cell - r->plan.cell] = runs;
}

static enum claim_verdict verdict(const struct reproduction *r, const char *name)
{
    for (const struct claim *c = r->experiment->claims; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return claim_judge(c, &r->results).verdict;
    fail_msg("there is no claim %s", name);
    return CLAIM_OPEN;
}

/* With the paper's own numbers, the paper's claims hold. */
static void the_papers_numbers_satisfy_the_paper(void **state)
{
    (void)state;
    struct reproduction *r = reproduce_new(&experiment_rtts, true);
    assert_non_null(r);
    assert_int_equal(verdict(r, "SHARD-CLAIM-1"), CLAIM_OPEN);
    set_rtts(r, "race", 2.03, 12.79, 3.03);
    set_rtts(r, "sephash", 2.20, 11.56, 3.20);
    assert_int_equal(verdict(r, "SHARD-CLAIM-1"), CLAIM_OPEN);
    set_rtts(r, "shard", 1.00, 2.59, 2.00);
    for (const char *const *name =
             (const char *const[]){"SHARD-CLAIM-1", "SHARD-CLAIM-2", "SHARD-CLAIM-3",
                                   "SHARD-CLAIM-4", "SHARD-CLAIM-5", NULL};
         *name; name++)
        assert_int_equal(verdict(r, *name), CLAIM_HOLDS);
    assert_int_equal(verdict(r, "RACE-CLAIM-1"), CLAIM_FAILS); /* 12.79 is not 3 */
    assert_int_equal(verdict(r, "CHIME-CLAIM-1"), CLAIM_OPEN);
    reproduce_free(r);
}

static void a_number_is_found_by_cell_and_workload(void **state)
{
    (void)state;
    struct reproduction *r = reproduce_new(&experiment_rtts, false);
    assert_non_null(r);
    set_rtts(r, "shard", 1.5, 2.5, 3.5);
    assert_true(results_op(&r->results, "get", "get", "rtts", "%s", "shard") == 1.5);
    assert_true(results_op(&r->results, "update", "update", "rtts", "sh%s", "ard") == 3.5);
    assert_true(isnan(results_op(&r->results, "get", "get", "verbs", "shard")));
    assert_true(isnan(results_op(&r->results, "miss", "get", "rtts", "shard")));
    assert_true(isnan(results_op(&r->results, "get", "get", "rtts", "nobody")));
    assert_true(isnan(results_op(&r->results, "get", "get", "rtts", "race")));
    assert_true(isnan(results_rate(&r->results, "get", "shard")));
    assert_true(isnan(results_rate_at(&r->results, 9, "shard")));
    double rates[1];
    assert_int_equal(results_timeline(&r->results, "get", rates, 1, "shard"), 0);
    assert_true(isnan(results_space(&r->results, "get", "keys", "shard")));
    reproduce_free(r);
}

/* A run of one client: 1000 operations, of which 99 % took 10 us. */
static json_t *new_run(double seconds)
{
    json_t *run =
        json_pack("{s:s, s:f, s:f, s:{s:{s:i, s:f}}}", "workload", "get", "seconds", seconds,
                  "ops_per_s", 1000 / seconds, "per_op", "get", "count", 1000, "p99_us", 10.0);
    assert_non_null(run);
    return run;
}

static void a_run_that_stood_still_has_no_throughput(void **state)
{
    (void)state;
    struct reproduction *r = reproduce_new(&experiment_rtts, true);
    assert_non_null(r);
    const struct plan_cell *cell = plan_find(&r->plan, "race");
    r->results.runs[cell - r->plan.cell] = json_pack("[o, o]", new_run(0.01), new_run(7.5));
    assert_true(isnan(results_rate(&r->results, "get", "race"))); /* nor has the median of all */
    r->results.seed = 1;
    assert_true(results_rate(&r->results, "get", "race") > 0);
    r->results.seed = 2;
    assert_true(isnan(results_rate(&r->results, "get", "race")));
    reproduce_free(r);
}

/* Numbers are the median of all seeds, or those of one. */
static void a_number_is_a_median(void **state)
{
    (void)state;
    struct reproduction *r = reproduce_new(&experiment_rtts, true);
    assert_non_null(r);
    const struct plan_cell *cell = plan_find(&r->plan, "race");
    r->results.runs[cell - r->plan.cell] =
        json_pack("[o, o, o]", new_run(0.02), new_run(0.01), new_run(0.04));
    assert_true(results_rate(&r->results, "get", "race") == 50000);
    r->results.seed = 2;
    assert_true(results_rate(&r->results, "get", "race") == 100000);
    reproduce_free(r);
}

static void fast_enough(const struct results *r, struct claim_finding *f)
{
    double rate = results_rate(r, "get", "race");
    claim_decide(f, rate - 60000, "%.0f", rate);
}

static void seeds_that_disagree_tell_nothing(void **state)
{
    (void)state;
    const struct claim claim = {"TEST-1", "nowhere", "60000 or more", fast_enough, NULL};
    struct reproduction *r = reproduce_new(&experiment_rtts, true);
    assert_non_null(r);
    json_t **runs = &r->results.runs[plan_find(&r->plan, "race") - r->plan.cell];
    *runs = json_pack("[o, o, o]", new_run(0.01), new_run(0.011), new_run(0.012));
    assert_int_equal(claim_judge(&claim, &r->results).verdict, CLAIM_HOLDS);
    json_decref(*runs);
    *runs = json_pack("[o, o, o]", new_run(0.01), new_run(0.011), new_run(0.02));
    assert_int_equal(claim_judge(&claim, &r->results).verdict, CLAIM_OPEN);
    reproduce_free(r);
}

/* A reason without a run that would refute it is only there for claims that are not run. */
static void every_reason_is_tested(void **state)
{
    (void)state;
    const struct experiment *e = NULL;
    for (unsigned i = 0; (e = experiment_at(i)) != NULL; i++)
        for (const struct claim *c = e->claims; c->name; c++)
            if (c->reason)
                assert_true(!c->decide == !c->reason->tested);
}

/* ---- what programs get ----------------------------------------------------------------------- */

static json_t *json_of(const struct reproduction *r)
{
    const struct reproduce_options options = {.dir = "."};
    json_t *json = reproduce_json(r, &options);
    assert_non_null(json);
    return json;
}

/* Is there a number of the paper for that field? */
static bool in_paper(const json_t *table, int row, int column, double number)
{
    const json_t *papers = json_object_get(table, "paper");
    for (size_t i = 0; i < json_array_size(papers); i++) {
        const json_t *p = json_array_get(papers, i);
        if (json_integer_value(json_object_get(p, "row")) == row &&
            json_integer_value(json_object_get(p, "column")) == column &&
            json_real_value(json_object_get(p, "number")) == number)
            return true;
    }
    return false;
}

static void the_papers_numbers_are_beside_ours(void **state)
{
    (void)state;
    struct reproduction *r = reproduce_new(&experiment_rtts, true);
    assert_non_null(r);
    json_t *json = json_of(r);
    const json_t *table = json_array_get(json_object_get(json, "tables"), 0);
    assert_true(in_paper(table, 1, 2, 2.03)); /* RACE's get, by SHARD Table 3 */
    assert_true(in_paper(table, 1, 2, 2));    /* and by its own paper */
    assert_true(in_paper(table, 6, 2, 12.79));
    assert_true(in_paper(table, 4, 2, 1)); /* RCuckoo's own */
    for (int number = 0; number < 20; number++) {
        assert_false(in_paper(table, 5, 2, number)); /* "1 or 2" is no number */
        assert_false(in_paper(table, 9, 2, number)); /* nor is "2 in the median" */
    }
    json_decref(json);
    reproduce_free(r);
}

/* Is the field the number, or a text that says it? */
static bool says(const json_t *field, double number)
{
    char *end = NULL;
    const char *text = json_string_value(field);
    if (json_is_number(field))
        return json_number_value(field) == number;
    return text && strtod(text, &end) == number && !*end;
}

static void check_papers(const json_t *table)
{
    const json_t *rows = json_object_get(table, "rows"), *papers = json_object_get(table, "paper");
    for (size_t i = 0; i < json_array_size(papers); i++) {
        const json_t *p = json_array_get(papers, i), *at = json_object_get(p, "at");
        size_t row = (size_t)json_integer_value(json_object_get(p, "row"));
        const json_t *fields = json_array_get(rows, row);
        json_int_t column = json_integer_value(json_object_get(p, "column"));
        assert_true(row > 0);
        assert_in_range(column, json_integer_value(json_object_get(table, "left")),
                        json_array_size(fields) - 1);
        assert_true(json_is_null(json_array_get(fields, (size_t)column))); /* none was measured */
        assert_true(strlen(json_string_value(json_object_get(p, "source"))) > 0);
        assert_true(json_is_null(at) || says(json_array_get(fields, (size_t)json_integer_value(at)),
                                             json_real_value(json_object_get(p, "number"))));
    }
}

/* Each number of a paper belongs to a number of ours, and is what its field says. */
static void all_numbers_of_papers_have_a_place(void **state)
{
    (void)state;
    const struct experiment *e = NULL;
    size_t count = 0;
    for (unsigned i = 0; (e = experiment_at(i)) != NULL; i++) {
        struct reproduction *r = reproduce_new(e, false);
        assert_non_null(r);
        json_t *json = json_of(r), *tables = json_object_get(json, "tables");
        for (size_t t = 0; t < json_array_size(tables); t++) {
            const json_t *table = json_array_get(tables, t);
            count += json_array_size(json_object_get(table, "paper"));
            check_papers(table);
            assert_int_equal(json_array_size(json_object_get(table, "stood_still")), 0);
        }
        assert_int_equal(json_array_size(json_object_get(json, "stalls")), 0);
        json_decref(json);
        reproduce_free(r);
    }
    assert_true(count > 100);
}

/* A rate that is missing because clients stood still is not one that was not measured. */
static void tables_say_where_clients_stood_still(void **state)
{
    (void)state;
    struct reproduction *r = reproduce_new(&experiment_rtts, true);
    assert_non_null(r);
    r->results.runs[plan_find(&r->plan, "race") - r->plan.cell] = json_pack("[o]", new_run(7.5));
    double stood = results_rate(&r->results, "get", "race"),
           missing = results_rate(&r->results, "get", "shard");
    assert_true(isnan(stood) && results_stood_still(stood) && results_stood_still(stood / 1e6));
    assert_true(results_stood_still(3 / stood) && results_stood_still(-100 * stood));
    assert_false(results_stood_still(missing) || results_stood_still(NAN));
    assert_false(results_stood_still(0) || results_stood_still(1));

    struct sheet s;
    struct sheet_sink out = {.json = json_array()};
    sheet_init(&s);
    s.across = s.scaling = true;
    sheet_texts(&s, "YCSB", "16 clients", "128 clients");
    sheet_row(&s, "RACE");
    sheet_number(&s, missing / 1e6, 2);
    sheet_number(&s, stood / 1e6, 2);
    sheet_print(&s, &out, "Rates:");
    json_t *expected =
        json_pack("[{s:s, s:i, s:s, s:b, s:[[s, s, s], [s, n, n]], s:[[n, n, n], [n, "
                  "n, n]], s:[], s:[[i, i]]}]",
                  "title", "Rates:", "left", 1, "lines", "rows", "scaling", 1, "rows", "YCSB",
                  "16 clients", "128 clients", "RACE", "spread", "paper", "stood_still", 1, 2);
    assert_non_null(expected);
    assert_true(json_equal(out.json, expected));
    json_decref(out.json);
    json_decref(expected);
    reproduce_free(r);
}

/* What a row leaves out is an empty text, whatever a table before had there. */
static void fields_that_are_left_out_have_no_number(void **state)
{
    (void)state;
    struct sheet s;
    struct sheet_sink out = {.json = json_array()};
    memset(&s, 0x3f, sizeof s);
    sheet_init(&s);
    for (unsigned filled = 0; filled < 2; filled++) {
        sheet_texts(&s, "index", "rate", "share");
        sheet_row(&s, "RACE");
        sheet_number(&s, 1, 2);
        if (filled == 0)
            sheet_number(&s, 2, 2);
        sheet_print(&s, &out, "Rates:");
    }
    const json_t *rows = json_object_get(json_array_get(out.json, 1), "rows"),
                 *field = json_array_get(json_array_get(rows, 1), 2);
    assert_true(json_is_string(field));
    assert_string_equal(json_string_value(field), "");
    json_decref(out.json);
}

static void programs_get_the_runs_that_stood_still(void **state)
{
    (void)state;
    struct reproduction *r = reproduce_new(&experiment_rtts, true);
    assert_non_null(r);
    r->results.runs[plan_find(&r->plan, "race") - r->plan.cell] =
        json_pack("[o, o]", new_run(0.01), new_run(7.5));
    json_t *json = json_of(r), *stalls = json_object_get(json, "stalls");
    assert_int_equal(json_array_size(stalls), 1);
    const json_t *stall = json_array_get(stalls, 0);
    assert_string_equal(json_string_value(json_object_get(stall, "cell")), "race");
    assert_string_equal(json_string_value(json_object_get(stall, "workload")), "get");
    assert_true(json_real_value(json_object_get(stall, "seconds")) == 7.5);
    json_decref(json);
    reproduce_free(r);
}

/* ---- all experiments ------------------------------------------------------------------------- */

/* The benchmark accepts every cell, as far as that can be told without the pool. */
static void check_cells(const struct plan *plan)
{
    char uri[CELL_URI_BYTES];
    struct bench_config config;
    assert_true(plan->count > 0);
    for (unsigned i = 0; i < plan->count; i++) {
        const struct plan_cell *cell = &plan->cell[i];
        assert_null(strpbrk(cell->name, "/ ."));
        for (unsigned k = 0; k < cell_workloads(cell); k++) {
            assert_int_equal(cell_config(cell, k, 0, "mem:", uri, &config), FAR_OK);
            if (bench_check(&config) != FAR_OK)
                fail_msg("%s: %s", cell->name, far_error_detail());
        }
    }
}

static void every_cell_is_accepted(void **state)
{
    (void)state;
    const struct experiment *e = NULL;
    for (unsigned i = 0; (e = experiment_at(i)) != NULL; i++) {
        for (int quick = 0; quick <= 1; quick++) {
            struct reproduction *r = reproduce_new(e, quick);
            assert_non_null(r);
            check_cells(&r->plan);
            reproduce_free(r);
        }
    }
}

/* Without any result, tables are empty but fit, and no claim is decided. */
static void nothing_measured_is_printed_as_such(void **state)
{
    (void)state;
    const struct experiment *e = NULL;
    for (unsigned i = 0; (e = experiment_at(i)) != NULL; i++) {
        struct reproduction *r = reproduce_new(e, false);
        assert_non_null(r);
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);
        assert_non_null(out);
        reproduce_print(r, out);
        assert_int_equal(fclose(out), 0);
        for (const char *at = text; *at; at += strcspn(at, "\n") + 1)
            assert_true(strcspn(at, "\n") <= TEXT_COLUMNS);
        assert_null(strstr(text, "holds: "));
        assert_null(strstr(text, "hold: "));
        assert_null(strstr(text, "nan"));
        assert_non_null(strstr(text, "cannot be told"));
        free(text);
        reproduce_free(r);
    }
}

static void no_claim_is_made_twice(void **state)
{
    (void)state;
    const struct experiment *e = NULL;
    const char *seen[512];
    unsigned count = 0;
    for (unsigned i = 0; (e = experiment_at(i)) != NULL; i++)
        for (const struct claim *c = e->claims; c->name; c++) {
            for (unsigned k = 0; k < count; k++)
                assert_string_not_equal(seen[k], c->name);
            seen[count++] = c->name;
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_positive_margin_holds),
        cmocka_unit_test(a_tie_is_no_difference),
        cmocka_unit_test(seeds_that_disagree_tell_nothing),
        cmocka_unit_test(nothing_is_told_without_a_number),
        cmocka_unit_test(the_least_margin_counts),
        cmocka_unit_test(rising_numbers_may_fall_by_the_slack),
        cmocka_unit_test(the_papers_numbers_satisfy_the_paper),
        cmocka_unit_test(a_number_is_found_by_cell_and_workload),
        cmocka_unit_test(a_run_that_stood_still_has_no_throughput),
        cmocka_unit_test(a_number_is_a_median),
        cmocka_unit_test(every_cell_is_accepted),
        cmocka_unit_test(nothing_measured_is_printed_as_such),
        cmocka_unit_test(no_claim_is_made_twice),
        cmocka_unit_test(every_reason_is_tested),
        cmocka_unit_test(the_papers_numbers_are_beside_ours),
        cmocka_unit_test(all_numbers_of_papers_have_a_place),
        cmocka_unit_test(tables_say_where_clients_stood_still),
        cmocka_unit_test(fields_that_are_left_out_have_no_number),
        cmocka_unit_test(programs_get_the_runs_that_stood_still),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
