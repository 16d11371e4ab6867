/* Workloads whose operations return many entries, or modify a value. */
#include "bench/json.h"
#include "bench/print.h"
#include "support/ordered_index.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>

#define RUNS_MAX 8

struct collected {
    const struct bench_config *config;
    struct bench_run *run; /* RUNS_MAX of them */
    unsigned runs;
    json_t *json;
    char *text;
    size_t text_bytes;
};

static void on_index(void *arg, const char *index)
{
    (void)arg;
    (void)index;
}

static void on_run(void *arg, const struct bench_run *run)
{
    struct collected *c = arg;
    struct bench_print print;
    assert_true(c->runs < RUNS_MAX);
    c->run[c->runs++] = *run;
    json_array_append_new(c->json, bench_json_run(c->config, run));
    free(c->text);
    FILE *out = open_memstream(&c->text, &c->text_bytes);
    assert_non_null(out);
    bench_print_begin(&print, out, c->config, "1");
    bench_print_run(&print, run);
    fclose(out);
}

static struct bench_config config_of(const char *index, const char *workloads)
{
    struct bench_config config = bench_defaults;
    config.pool = "mem:?size=256m";
    config.index = index;
    config.keys = 300;
    config.ops = 200;
    assert_int_equal(workload_parse(workloads, &config.workloads), FAR_OK);
    return config;
}

static void run(const struct bench_config *config, struct collected *c)
{
    struct bench_observer observer = {
        .arg = c, .index_begin = on_index, .run = on_run, .index_done = on_index};
    *c = (struct collected){.config = config, .json = json_array()};
    c->run = calloc(RUNS_MAX, sizeof *c->run);
    assert_non_null(c->run);
    assert_int_equal(bench_suite(config, &observer), FAR_OK);
    assert_int_equal(c->runs, config->workloads.count);
}

static void done(struct collected *c)
{
    json_decref(c->json);
    free(c->run);
    free(c->text);
}

static void assert_right(const struct bench_run *r)
{
    for (unsigned k = 0; k < FAR_OP_KINDS; k++)
        assert_true(bench_op_errors(&r->op[k]) == 0 && r->op[k].stats.not_found == 0);
    assert_int_equal(r->first_error, FAR_OK);
    assert_false(r->interrupted);
    assert_int_equal(r->ops, r->ops_planned);
}

static void scans_are_measured_on_ordered_tables(void **state)
{
    (void)state;
    for (unsigned n = 0; n < 3; n++) {
        struct bench_config config = config_of(ORDERED_NAME, "load,e,scan,iterate,modify");
        struct collected c;
        config.threads = n == 1 ? 2 : 1;
        config.depth = n == 2 ? 4 : 1;
        config.pool = n == 2 ? "mem:?size=256m&defer=1" : config.pool;
        run(&config, &c);
        for (unsigned i = 0; i < c.runs; i++)
            assert_right(&c.run[i]);
        const struct bench_op *e = c.run[1].op, *scan = c.run[2].op;
        assert_true(e[FAR_OP_SCAN].stats.count == 190 && e[FAR_OP_INSERT].stats.count == 10);
        assert_true(e[FAR_OP_SCAN].stats.entries > 190);
        assert_true(scan[FAR_OP_SCAN].stats.count == 200 && c.run[2].ops == 200);
        const struct far_op_stats *walk = &c.run[3].op[FAR_OP_ITERATE].stats;
        assert_int_equal(walk->entries, 310 * config.threads);
        assert_int_equal(c.run[3].ops, walk->entries);
        assert_int_equal(c.run[4].op[FAR_OP_MODIFY].stats.count, 200);
        assert_int_equal(c.run[4].space.keys, 310);

        json_t *op = json_object_get(json_object_get(json_array_get(c.json, 2), "per_op"), "scan");
        assert_int_equal(json_integer_value(json_object_get(op, "entries")),
                         scan[FAR_OP_SCAN].stats.entries);
        assert_true(json_real_value(json_object_get(op, "rtts_per_entry")) > 0);
        assert_true(json_real_value(json_object_get(op, "bytes_read_per_entry")) > 0);
        done(&c);
    }
}

/* Entries that a scan returns are checked; wrong ones count as errors. */
static void wrong_entries_are_errors(void **state)
{
    static const enum ordered_fault faults[] = {ORDERED_TWICE, ORDERED_BACKWARD, ORDERED_BLIND};
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct bench_config config = config_of(ORDERED_NAME, "scan");
        struct collected c;
        ordered_fault = faults[i];
        run(&config, &c);
        ordered_fault = ORDERED_SOUND;
        assert_true(c.run[0].op[FAR_OP_SCAN].wrong > 0);
        assert_true(bench_op_errors(&c.run[0].op[FAR_OP_SCAN]) > 0);
        assert_non_null(strstr(c.text, "scans returned wrong entries"));
        done(&c);
    }
}

static void refused(const char *index, const char *workloads, const char *says)
{
    struct bench_config config = config_of(index, workloads);
    assert_int_equal(bench_check(&config), FAR_INVALID);
    assert_string_equal(far_error_detail(), says);
}

static void scans_are_refused_on_hash_tables(void **state)
{
    (void)state;
    refused("race", "load,e",
            "workload 'e' scans ranges of keys, but index race keeps no order (ordered indexes in "
            "this build: chime)");
    refused(NULL, "a,scan",
            "workload 'scan' scans ranges of keys, but index race keeps no order (ordered indexes "
            "in this build: chime)");
    struct bench_config config = config_of(ORDERED_NAME, "load,e");
    assert_int_equal(bench_check(&config), FAR_OK);
}

static double per_op(uint64_t sum, const struct far_op_stats *s)
{
    return (double)sum / (double)s->count;
}

static void same(double a, double b)
{
    assert_true(a <= 1.02 * b && b <= 1.02 * a);
}

static void modifying_costs_what_updating_costs(void **state)
{
    struct collected c;
    (void)state;
    struct bench_config config = config_of("race", "update,modify");
    config.keys = config.ops = 20000;
    config.tuning = "hot=0"; /* or else the first run learns where keys are */
    run(&config, &c);
    assert_right(&c.run[1]);
    const struct far_op_stats *u = &c.run[0].op[FAR_OP_UPDATE].stats;
    const struct far_op_stats *m = &c.run[1].op[FAR_OP_MODIFY].stats;
    assert_true(m->count == config.ops && u->count == config.ops);
    same(per_op(m->rtts, m), per_op(u->rtts, u));
    same(per_op(m->verbs, m), per_op(u->verbs, u));
    same(per_op(m->bytes_read, m), per_op(u->bytes_read, u));
    same(per_op(m->bytes_written, m), per_op(u->bytes_written, u));
    done(&c);
}

static void iterating_takes_few_round_trips_for_an_entry(void **state)
{
    struct collected c;
    (void)state;
    struct bench_config config = config_of("race", "iterate");
    config.keys = 20000;
    config.threads = 2;
    config.raw = true;
    run(&config, &c);
    assert_right(&c.run[0]);
    const struct far_op_stats *s = &c.run[0].op[FAR_OP_ITERATE].stats;
    assert_int_equal(s->entries, 2 * config.keys);
    assert_int_equal(c.run[0].ops, s->entries);
    assert_true(20 * s->rtts <= s->entries);
    assert_true(c.run[0].raw_ops_per_s > 0);
    assert_non_null(strstr(c.text, "iterate: 40,000 entries in "));
    done(&c);
}

/* Entries of different sizes are checked, too, and their order. */
static void scans_return_keys_and_values_of_all_sizes(void **state)
{
    (void)state;
    struct bench_config config = config_of(ORDERED_NAME, "e,scan,modify,iterate,scan");
    struct collected c;
    config.sizes = (struct bench_sizes){.key = {8, 64}, .value = {16, 500}};
    run(&config, &c);
    for (unsigned i = 0; i < c.runs; i++)
        assert_right(&c.run[i]);
    assert_true(c.run[4].op[FAR_OP_SCAN].stats.entries > 200);
    done(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scans_are_measured_on_ordered_tables),
        cmocka_unit_test(wrong_entries_are_errors),
        cmocka_unit_test(scans_are_refused_on_hash_tables),
        cmocka_unit_test(modifying_costs_what_updating_costs),
        cmocka_unit_test(iterating_takes_few_round_trips_for_an_entry),
        cmocka_unit_test(scans_return_keys_and_values_of_all_sizes),
    };
    ordered_index_add();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
