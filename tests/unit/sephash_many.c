/* SepHash with many clients, on a modelled network in virtual time: what their changes cost. */
#include "bench/bench.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>

static double rtts[FAR_OP_KINDS];

static void on_progress(void *arg, const char *index, const char *what, uint64_t done,
                        uint64_t total)
{
    (void)arg;
    (void)index;
    (void)what;
    (void)done;
    (void)total;
}

static void on_index(void *arg, const char *index)
{
    (void)arg;
    (void)index;
}

static void on_run(void *arg, const struct bench_run *run)
{
    (void)arg;
    for (unsigned kind = 0; kind < FAR_OP_KINDS; kind++) {
        const struct far_op_stats *s = &run->op[kind].stats;
        assert_int_equal(bench_op_errors(&run->op[kind]), 0);
        if (s->count > s->joined)
            rtts[kind] = (double)s->rtts / (double)(s->count - s->joined);
    }
}

/* 256 operations in flight meet the four segments of an empty table, and then its popular keys. If
 * segments were split only when they are full, and changes took no turns, they would take many
 * times as many. */
static void changes_of_many_clients_take_few_round_trips(void **state)
{
    (void)state;
    struct bench_observer observer = {
        .progress = on_progress, .index_begin = on_index, .run = on_run, .index_done = on_index};
    struct bench_config config = bench_defaults;
    config.pool = "model:?size=64m&nic=cx6&machines=4&threads=8&depth=8";
    config.index = "sephash";
    config.keys = 10000;
    config.ops = 10000;
    assert_int_equal(workload_parse("load,update", &config.workloads), FAR_OK);
    assert_int_equal(bench_take_shape(&config), FAR_OK);
    assert_int_equal(bench_suite(&config, &observer), FAR_OK);
    printf("    put %.2f, update %.2f round trips\n", rtts[FAR_OP_PUT], rtts[FAR_OP_UPDATE]);
    assert_true(rtts[FAR_OP_PUT] < 6.5);
    assert_true(rtts[FAR_OP_UPDATE] < 7.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_of_many_clients_take_few_round_trips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
