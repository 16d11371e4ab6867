/* Stores are measured by the benchmark's own workers, and what they answer is checked. */
#include "bench/runner.h"
#include "compare/driver.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#define KEYS    3000u /* more than are prepared at a time */
#define THREADS 2u

enum lie { NO_LIE, LOSES_KEYS, MIXES_VALUES, FINDS_ALL, FAILS };

/* A store that keeps nothing: a get has the value that its key must have, or a lie. */
static struct oracle {
    enum lie lie;
    _Atomic unsigned clients, ops;
    atomic_bool stop;
} oracle;

static struct bench_config config;
static struct bench_run run;

static int client_open(void *store, void **client)
{
    struct oracle *o = store;
    o->clients++;
    *client = o;
    return FAR_OK;
}

static void client_close(void *client)
{
    ((struct oracle *)client)->clients--;
}

/* The number that a key was made of. */
static uint64_t number_of(const struct rival_op *op)
{
    unsigned char key[BENCH_KEY_MIN];
    for (uint64_t n = 0; n < KEYS; n++) {
        bench_key_write(n, key, sizeof key);
        if (memcmp(key, op->key, sizeof key) == 0)
            return n;
    }
    return UINT64_MAX;
}

static void answer(const struct oracle *o, struct rival_op *op)
{
    uint64_t number = number_of(op);
    op->found = (number < KEYS && o->lie != LOSES_KEYS) || o->lie == FINDS_ALL;
    op->got_len = config.sizes.value.max;
    bench_value_init(op->buf, op->got_len);
    bench_value_write(number + (o->lie == MIXES_VALUES), 0, op->buf, op->got_len);
}

static int run_ops(void *client, struct rival_op *ops, unsigned count)
{
    struct oracle *o = client;
    if (o->lie == FAILS)
        return err_fail(FAR_SYSTEM, "the store is tired");
    for (unsigned i = 0; i < count; i++)
        if (!ops[i].put)
            answer(o, &ops[i]);
    o->ops += count;
    return FAR_OK;
}

static const struct rival_ops rival = {
    .client_open = client_open, .client_close = client_close, .run = run_ops};

/* Runs a workload on keys that exist. */
static void measure(enum lie lie, const char *workload, uint64_t warm)
{
    struct workload_plan plan;
    struct workload_plan_options options = {.keys = {0, KEYS},
                                            .ops = KEYS,
                                            .warm = warm,
                                            .threads = THREADS,
                                            .seed = 1,
                                            .dist = BENCH_DIST_UNIFORM};
    struct driver_store store = {&rival, &oracle};
    struct bench_target target = {
        .depth = 4, .driver = &driver_of_rivals, .store = &store, .name = "oracle"};
    config = bench_defaults;
    config.stop = &oracle.stop;
    oracle.lie = lie;
    oracle.ops = 0;
    assert_int_equal(workload_plan_init(&plan, workload_find(workload), &options, NULL), FAR_OK);
    assert_int_equal(
        bench_measure(&config, &target, &plan, &(struct bench_observer){.progress = NULL}, &run),
        FAR_OK);
    assert_int_equal(oracle.clients, 0);
    workload_plan_free(&plan);
}

static void all_operations_are_measured_but_the_warm_up(void **state)
{
    (void)state;
    measure(NO_LIE, "a", 1000);
    assert_int_equal(run.halted_by, FAR_OK);
    assert_int_equal(run.ops, KEYS);
    assert_int_equal(run.warmup, 1000);
    assert_int_equal(oracle.ops, KEYS + 1000);
    assert_string_equal(run.index, "oracle");
    assert_string_equal(run.workload, "a");
    assert_true(run.seconds > 0 && run.ops_per_s > 0);
    measure(NO_LIE, "miss", 0);
    assert_int_equal(run.halted_by, FAR_OK);
}

static void expect_halt(int status, const char *detail)
{
    assert_int_equal(run.halted_by, status);
    assert_string_equal(run.detail, detail);
}

static void a_wrong_answer_ends_the_run(void **state)
{
    (void)state;
    measure(LOSES_KEYS, "c", 0);
    expect_halt(FAR_CORRUPT, "oracle did not find a key that exists");
    measure(MIXES_VALUES, "c", 0);
    expect_halt(FAR_CORRUPT, "oracle returned a wrong value");
    measure(FINDS_ALL, "miss", 0);
    expect_halt(FAR_CORRUPT, "oracle returned a wrong value");
    measure(MIXES_VALUES, "c", 1000); /* also before it is measured */
    expect_halt(FAR_CORRUPT, "oracle returned a wrong value");
    assert_int_equal(run.ops, 0);
}

static void a_store_that_fails_ends_the_run(void **state)
{
    (void)state;
    measure(FAILS, "put", 0);
    expect_halt(FAR_SYSTEM, "the store is tired");
}

static void a_signal_ends_the_run(void **state)
{
    (void)state;
    oracle.stop = true;
    measure(NO_LIE, "c", 0);
    oracle.stop = false;
    assert_true(run.interrupted);
    assert_int_equal(oracle.ops, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_operations_are_measured_but_the_warm_up),
        cmocka_unit_test(a_wrong_answer_ends_the_run),
        cmocka_unit_test(a_store_that_fails_ends_the_run),
        cmocka_unit_test(a_signal_ends_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
