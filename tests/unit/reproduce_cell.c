/* One cell: its pool, its configuration, and what becomes of it. */
#include "reproduce/cell.h"
#include "reproduce/testbed.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static struct plan plan_of_test;

static struct plan_cell *new_cell(const char *index)
{
    plan_of_test = (struct plan){.quick = true};
    struct plan_cell *cell = plan_add(&plan_of_test, index, "test");
    cell->keys = cell->ops = 500;
    return cell;
}

/* A table of 64 rows that does not grow, for more keys than there are places. */
static struct plan_cell *new_full_cell(void)
{
    struct plan_cell *cell = new_cell("rcuckoo");
    plan_tune(cell, "grows=0&rows=64");
    cell->keys = 600;
    return cell;
}

static void a_cell_is_measured(void **state)
{
    (void)state;
    struct plan_cell *cell = new_cell("race");
    struct cell_outcome outcome;
    cell->workloads = "load,get";
    assert_int_equal(cell_measure(cell, &(struct cell_setting){.testbed = NULL}, &outcome), FAR_OK);
    assert_string_equal(outcome.failure, "");
    assert_int_equal(json_array_size(outcome.runs), 2 * CELL_SEEDS);
    for (unsigned i = 0; i < 2 * CELL_SEEDS; i++) {
        const json_t *run = json_array_get(outcome.runs, i);
        assert_string_equal(json_string_value(json_object_get(run, "workload")),
                            i % 2 == 0 ? "load" : "get");
        assert_int_equal(json_integer_value(json_object_get(run, "seed")), 1 + i / 2);
        assert_int_equal(json_integer_value(json_object_get(run, "ops")), 500);
    }
    json_decref(outcome.runs);
}

static void windows_of_time_are_kept_on_demand(void **state)
{
    (void)state;
    struct plan_cell *cell = new_cell("race");
    cell->workloads = "insert";
    cell->network = testbed_race(2);
    json_t *plain = cell_configuration(cell, NULL);
    cell->window_us = 100;
    json_t *windows = cell_configuration(cell, NULL);
    assert_false(json_equal(plain, windows));
    json_decref(plain);
    json_decref(windows);

    struct cell_outcome outcome;
    assert_int_equal(cell_measure(cell, &(struct cell_setting){.testbed = NULL}, &outcome), FAR_OK);
    const json_t *run = json_array_get(outcome.runs, 0);
    /* 250 inserts of each client take milliseconds, all of them whole windows but the last. */
    assert_true(json_array_size(json_object_get(run, "timeline")) > 10);
    assert_true(json_real_value(json_object_get(run, "window_ms")) == 0.1);
    json_decref(outcome.runs);
}

static void a_full_table_is_a_failure_of_the_cell(void **state)
{
    (void)state;
    struct cell_outcome outcome;
    assert_int_equal(
        cell_measure(new_full_cell(), &(struct cell_setting){.testbed = NULL}, &outcome), FAR_OK);
    assert_null(outcome.runs);
    assert_non_null(strstr(outcome.failure, "workload load: 1 operations failed"));
}

/* Also if the keys are loaded without being measured. */
static void a_full_table_is_a_failure_before_the_first_workload(void **state)
{
    (void)state;
    struct cell_outcome outcome;
    struct plan_cell *cell = new_full_cell();
    cell->workloads = "get";
    assert_int_equal(cell_measure(cell, &(struct cell_setting){.testbed = NULL}, &outcome), FAR_OK);
    assert_null(outcome.runs);
    assert_non_null(strstr(outcome.failure, "loading the keys"));
}

static void a_table_that_is_to_be_full_is_measured(void **state)
{
    (void)state;
    struct cell_outcome outcome;
    struct plan_cell *cell = new_full_cell();
    cell->until_full = true;
    assert_int_equal(cell_measure(cell, &(struct cell_setting){.testbed = NULL}, &outcome), FAR_OK);
    assert_int_equal(json_array_size(outcome.runs), CELL_SEEDS);
    json_decref(outcome.runs);
}

/* Operations per second of the run, after checking that it was long enough, and warm. */
static double rate_of_long_run(const json_t *run, const char *workload)
{
    assert_string_equal(json_string_value(json_object_get(run, "workload")), workload);
    assert_true(json_number_value(json_object_get(run, "seconds")) >= CELL_LEAST_MS / 1e3);
    assert_true(json_number_value(json_object_get(run, "seconds")) < 2 * CELL_LEAST_MS / 1e3);
    assert_true(json_integer_value(json_object_get(run, "warmup")) > 0);
    return json_number_value(json_object_get(run, "ops_per_s"));
}

/* With uniform keys, the more updates there are, the fewer operations: otherwise runs are too short
 * or begin cold. */
static void updates_cost_throughput(void **state)
{
    (void)state;
    for (unsigned n = 0; plan_index(n); n++) {
        struct plan_cell *cell = new_cell(plan_index(n));
        struct cell_outcome outcome;
        cell->workloads = "a,b,c";
        cell->keys = 20000;
        cell->uniform = true;
        cell->network = testbed_sephash(16);
        assert_int_equal(cell_measure(cell, &(struct cell_setting){.testbed = NULL}, &outcome),
                         FAR_OK);
        for (unsigned seed = 0; seed < CELL_SEEDS; seed++) {
            double a = rate_of_long_run(json_array_get(outcome.runs, 3 * seed), "a"),
                   b = rate_of_long_run(json_array_get(outcome.runs, 3 * seed + 1), "b"),
                   c = rate_of_long_run(json_array_get(outcome.runs, 3 * seed + 2), "c");
            assert_true(a <= b);
            assert_true(b <= c);
        }
        json_decref(outcome.runs);
    }
}

static void a_stopped_cell_has_no_result(void **state)
{
    (void)state;
    atomic_bool stop = true;
    struct cell_outcome outcome;
    assert_int_equal(
        cell_measure(new_cell("race"), &(struct cell_setting){.stop = &stop}, &outcome),
        FAR_STOPPED);
    assert_null(outcome.runs);
}

static void a_testbed_that_does_not_exist_is_an_error(void **state)
{
    (void)state;
    struct cell_outcome outcome;
    struct plan_cell *cell = new_cell("race");
    cell->network = testbed_race(1);
    assert_int_equal(cell_measure(cell, &(struct cell_setting){.testbed = "nonsense:"}, &outcome),
                     FAR_NO_FABRIC);
    assert_null(outcome.runs);
}

static void the_model_gets_its_clients_by_its_uri(void **state)
{
    (void)state;
    char uri[CELL_URI_BYTES];
    struct bench_config config;
    struct plan_cell *cell = new_cell("race");
    assert_string_equal(cell_uri(cell, NULL, uri), "mem:?defer=1");
    assert_string_equal(cell_uri(cell, "shm:bed", uri), "mem:?defer=1");
    cell->network = testbed_shard(36);
    cell->network.depth = 4;
    assert_string_equal(cell_uri(cell, NULL, uri),
                        "model:?nic=cx5&machines=3&threads=36&depth=4&nodes=3&size=4g");
    assert_int_equal(cell_config(cell, 0, 0, NULL, uri, &config), FAR_OK);
    assert_int_equal(config.threads, 108);
    assert_int_equal(config.depth, 4);
    assert_int_equal(cell_config(cell, 0, 0, "shm:bed", uri, &config), FAR_OK);
    assert_string_equal(config.pool, "shm:bed");
    assert_int_equal(config.threads, 108);
    assert_int_equal(config.depth, 4);
}

static void testbeds_have_the_papers_machines(void **state)
{
    (void)state;
    assert_int_equal(testbed_race(32).machines, 1);
    assert_int_equal(testbed_race(128).machines, 4);
    assert_int_equal(testbed_sephash(1).machines, 1);
    assert_int_equal(testbed_sephash(128).machines, 8);
    assert_int_equal(testbed_rcuckoo(320).machines, 8);
    assert_int_equal(testbed_rcuckoo(320).threads, 40);
    assert_int_equal(testbed_chime(640).machines, 10);
    assert_int_equal(testbed_chime(640).threads, 64);
    assert_string_equal(testbed_chime(640).nic, "cx6");
}

/* A result is only used again if nothing on which it depends has changed. */
static void the_configuration_has_everything(void **state)
{
    (void)state;
    struct plan_cell *cell = new_cell("race"), other[11];
    unsigned count = sizeof other / sizeof *other;
    for (unsigned i = 0; i < count; i++)
        other[i] = *cell;
    other[0].index = "shard";
    plan_tune(&other[1], "groups=2");
    other[2].workloads = "load,get";
    other[3].keys++;
    other[4].ops++;
    other[5].key_size++;
    other[6].value_size++;
    other[7].uniform = true;
    other[8].theta = 0.5;
    other[9].network.depth = 2;
    other[10].network = testbed_race(1);
    json_t *configuration = cell_configuration(cell, NULL);
    assert_non_null(configuration);
    for (unsigned i = 0; i < count; i++) {
        json_t *changed = cell_configuration(&other[i], NULL);
        assert_non_null(changed);
        assert_false(json_equal(configuration, changed));
        json_decref(changed);
    }
    json_decref(configuration);
}

static struct plan_cell *new_verbs_cell(void)
{
    plan_of_test = (struct plan){.quick = true};
    struct plan_cell *cell = plan_add_verbs(&plan_of_test, "read", "test");
    cell->network.nic = "cx6";
    cell->verbs.rounds = 3;
    cell->verbs.outstanding = (struct plan_axis){2, {1, 4}};
    return cell;
}

static void verbs_have_a_run_for_each_number_outstanding(void **state)
{
    (void)state;
    struct cell_outcome outcome;
    assert_int_equal(
        cell_measure(new_verbs_cell(), &(struct cell_setting){.testbed = "nonsense:"}, &outcome),
        FAR_OK);
    assert_int_equal(json_array_size(outcome.runs), 2);
    double rate[2];
    for (unsigned i = 0; i < 2; i++) {
        const json_t *run = json_array_get(outcome.runs, i);
        assert_string_equal(json_string_value(json_object_get(run, "workload")), "read");
        assert_int_equal(json_integer_value(json_object_get(run, "outstanding")), i ? 4 : 1);
        rate[i] = json_number_value(json_object_get(run, "ops_per_s"));
    }
    assert_true(0 < rate[0] && rate[0] < rate[1]);
    json_decref(outcome.runs);
}

static void verbs_can_be_stopped(void **state)
{
    (void)state;
    atomic_bool stop = true;
    struct cell_outcome outcome;
    assert_int_equal(
        cell_measure(new_verbs_cell(), &(struct cell_setting){.stop = &stop}, &outcome),
        FAR_STOPPED);
    assert_null(outcome.runs);
}

static void the_configuration_of_verbs_has_everything(void **state)
{
    (void)state;
    struct plan_cell *cell = new_verbs_cell(), other[9];
    unsigned count = sizeof other / sizeof *other;
    for (unsigned i = 0; i < count; i++)
        other[i] = *cell;
    other[0].verbs.kind = "write";
    other[1].verbs.bytes++;
    other[2].verbs.rounds++;
    other[3].verbs.outstanding.count--;
    other[4].network.threads++;
    other[5].network.untuned = true;
    other[6].network.gbits = 100;
    other[7].network.locks_in_nic = true;
    other[8].verbs.one_place = true;
    json_t *configuration = cell_configuration(cell, NULL);
    assert_non_null(configuration);
    for (unsigned i = 0; i < count; i++) {
        json_t *changed = cell_configuration(&other[i], NULL);
        assert_non_null(changed);
        assert_false(json_equal(configuration, changed));
        json_decref(changed);
    }
    json_decref(configuration);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cell_is_measured),
        cmocka_unit_test(windows_of_time_are_kept_on_demand),
        cmocka_unit_test(a_full_table_is_a_failure_of_the_cell),
        cmocka_unit_test(a_full_table_is_a_failure_before_the_first_workload),
        cmocka_unit_test(a_table_that_is_to_be_full_is_measured),
        cmocka_unit_test(updates_cost_throughput),
        cmocka_unit_test(a_stopped_cell_has_no_result),
        cmocka_unit_test(a_testbed_that_does_not_exist_is_an_error),
        cmocka_unit_test(the_model_gets_its_clients_by_its_uri),
        cmocka_unit_test(testbeds_have_the_papers_machines),
        cmocka_unit_test(the_configuration_has_everything),
        cmocka_unit_test(verbs_have_a_run_for_each_number_outstanding),
        cmocka_unit_test(verbs_can_be_stopped),
        cmocka_unit_test(the_configuration_of_verbs_has_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
