/* Repeated runs: their median and spread, and what they did together. */
#include "bench/summary.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>

/* A run of 100 gets, each of which took `ns`. */
static struct bench_run *new_run(unsigned place, double ops_per_s, uint64_t ns)
{
    struct bench_run *run = calloc(1, sizeof *run);
    assert_non_null(run);
    run->index = "race";
    run->workload = "get";
    run->place = place;
    run->ops = run->ops_planned = 100;
    run->ops_per_s = ops_per_s;
    run->op[FAR_OP_GET].stats = (struct far_op_stats){.count = 100, .rtts = 200};
    for (unsigned i = 0; i < 100; i++)
        hist_record(&run->op[FAR_OP_GET].latency, ns);
    return run;
}

static void add(struct summary_list *list, unsigned place, double ops_per_s, uint64_t ns)
{
    struct bench_run *run = new_run(place, ops_per_s, ns);
    assert_int_equal(summary_add(list, 1, run), FAR_OK);
    free(run);
}

static void assert_spread(const struct summary *s, unsigned figure, double least, double median,
                          double most)
{
    struct summary_spread spread = summary_spread(s, figure);
    assert_true(spread.least == least);
    assert_true(spread.median == median);
    assert_true(spread.most == most);
}

static void the_median_is_the_one_in_the_middle(void **state)
{
    (void)state;
    struct summary_list list = {.count = 0};
    add(&list, 0, 30, 120);
    assert_spread(list.item[0], SUMMARY_OPS_PER_S, 30, 30, 30);
    add(&list, 0, 10, 110);
    assert_spread(list.item[0], SUMMARY_OPS_PER_S, 10, 20, 30);
    add(&list, 0, 90, 100);
    assert_spread(list.item[0], SUMMARY_OPS_PER_S, 10, 30, 90);
    assert_spread(list.item[0], SUMMARY_P50 + FAR_OP_GET, 100, 110, 120);
    assert_spread(list.item[0], SUMMARY_P999 + FAR_OP_GET, 100, 110, 120);
    assert_spread(list.item[0], SUMMARY_P99 + FAR_OP_PUT, 0, 0, 0);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.item[0]->runs, 3);
    summary_list_free(&list);
}

static void runs_are_summed_up(void **state)
{
    (void)state;
    struct summary_list list = {.count = 0};
    add(&list, 0, 30, 120);
    add(&list, 0, 10, 110);
    add(&list, 0, 90, 100);
    const struct bench_run *sums = list.item[0]->sums;
    assert_int_equal(sums->ops, 300);
    assert_int_equal(sums->op[FAR_OP_GET].stats.rtts, 600);
    assert_true(sums->ops_per_s == 30);
    const struct hist *h = &sums->op[FAR_OP_GET].latency;
    assert_int_equal(h->count, 300);
    assert_int_equal(hist_quantile(h, 0.33), 100);
    assert_int_equal(hist_quantile(h, 0.66), 110);
    assert_int_equal(hist_quantile(h, 0.67), 120);
    summary_list_free(&list);
}

static void workloads_threads_and_indexes_are_apart(void **state)
{
    (void)state;
    struct summary_list list = {.count = 0};
    struct bench_run *run = new_run(0, 10, 100);
    assert_int_equal(summary_add(&list, 1, run), FAR_OK);
    assert_int_equal(summary_add(&list, 2, run), FAR_OK);
    run->place = 1;
    assert_int_equal(summary_add(&list, 1, run), FAR_OK);
    run->index = "shard";
    assert_int_equal(summary_add(&list, 1, run), FAR_OK);
    assert_int_equal(list.count, 4);
    /* What was summed up before is not added to. */
    summary_forget_sums(list.item[3]);
    assert_int_equal(summary_add(&list, 1, run), FAR_OK);
    assert_int_equal(list.count, 5);
    for (unsigned i = 0; i < list.count; i++)
        assert_int_equal(list.item[i]->runs, 1);
    assert_string_equal(list.item[2]->index, "race");
    assert_string_equal(list.item[3]->index, "shard");
    free(run);
    summary_list_free(&list);
}

static void a_run_that_was_cut_short_is_no_sample(void **state)
{
    (void)state;
    struct summary_list list = {.count = 0};
    struct bench_run *run = new_run(0, 1000, 100);
    run->interrupted = true;
    assert_int_equal(summary_add(&list, 1, run), FAR_OK);
    assert_int_equal(list.item[0]->runs, 0);
    assert_spread(list.item[0], SUMMARY_OPS_PER_S, 0, 0, 0);
    assert_true(list.item[0]->sums->ops_per_s == 1000);
    add(&list, 0, 10, 100);
    run->interrupted = false;
    run->halted_by = run->first_error = FAR_POOL_FULL;
    assert_int_equal(summary_add(&list, 1, run), FAR_OK);
    assert_spread(list.item[0], SUMMARY_OPS_PER_S, 10, 10, 10);
    assert_true(list.item[0]->sums->interrupted);
    assert_int_equal(list.item[0]->sums->halted_by, FAR_POOL_FULL);
    assert_int_equal(list.item[0]->sums->first_error, FAR_POOL_FULL);
    assert_int_equal(list.item[0]->sums->ops, 300);
    free(run);
    summary_list_free(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_median_is_the_one_in_the_middle),
        cmocka_unit_test(runs_are_summed_up),
        cmocka_unit_test(workloads_threads_and_indexes_are_apart),
        cmocka_unit_test(a_run_that_was_cut_short_is_no_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
