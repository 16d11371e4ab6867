/* Workloads: bad lists are refused, and the threads together draw exactly what the plan says. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "bench/workload.h"

#include <string.h>

#define KEYS 1000u

/* ---- lists ----------------------------------------------------------------------------------- */

static void lists_are_read_in_order(void **state)
{
    (void)state;
    struct workload_list list;
    assert_int_equal(workload_parse("load,a,miss,a", &list), FAR_OK);
    assert_int_equal(list.count, 4);
    assert_string_equal(list.item[0].name, "load");
    assert_string_equal(list.item[2].name, "miss");
    assert_string_equal(list.item[3].name, "a");
    assert_memory_equal(list.item[3].percent, workload_find("a")->percent, WORKLOAD_TASK_KINDS);
}

static void refuse(const char *text, const char *why)
{
    struct workload_list list = {.count = 77};
    assert_int_equal(workload_parse(text, &list), FAR_INVALID);
    assert_non_null(strstr(far_error_detail(), why));
    assert_int_equal(list.count, 77);
}

static void bad_lists_are_refused_with_the_reason(void **state)
{
    (void)state;
    refuse(
        "load,x",
        "unknown workload 'x' (available: load, a, b, c, d, e, f, get, miss, put, update, "
        "insert, add, delete, modify, iterate, scan, zippydb, and mixes such as insert=30+get=70)");
    refuse("", "unknown workload ''");
    refuse("a,", "unknown workload ''");
    refuse("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
           "unknown");
    refuse("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
           "aaaaaaaaa",
           "is longer than 95 characters");
    refuse("a,load", "must come first");
    refuse("a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a",
           "too many workloads");
}

static void mixes_stand_between_other_workloads(void **state)
{
    (void)state;
    struct workload_list list;
    assert_int_equal(workload_parse("load,insert=30+get=70,c,scan=100", &list), FAR_OK);
    assert_int_equal(list.count, 4);
    assert_string_equal(list.item[1].name, "insert=30+get=70");
    assert_int_equal(list.item[1].percent[WORKLOAD_INSERT], 30);
    assert_int_equal(list.item[1].percent[WORKLOAD_GET], 70);
    assert_true(workload_adds(&list.item[1]) && workload_draws(&list.item[1]));
    assert_false(workload_scans(&list.item[1]));
    assert_true(workload_scans(&list.item[3]));
}

static void bad_mixes_are_refused_with_the_reason(void **state)
{
    (void)state;
    refuse("load,get=70+insert=20",
           "mix 'get=70+insert=20': the percentages sum to 90, not to 100");
    refuse("get=100+insert=100", "sum to 200");
    refuse("grow=50+get=50",
           "mix 'grow=50+get=50': unknown operation 'grow' (available: get, miss, "
           "put, update, insert, delete, modify, rmw, scan)");
    refuse("load=100", "unknown operation 'load'");
    refuse("iterate=100", "unknown operation 'iterate'");
    refuse("get=0+put=100", "the percentage of get must be a whole number from 1 to 100, not '0'");
    refuse("get=12.5+put=87.5", "not '12.5'");
    refuse("get=+put=100", "not ''");
    refuse("get=50+put", "'put' has no percentage; expected OPERATION=PERCENT");
    refuse("get=50+get=50", "has two percentages of get");
    refuse("get=100+", "'' has no percentage");
    refuse("=100", "unknown operation ''");
}

static void a_list_that_runs_out_of_keys_is_refused(void **state)
{
    (void)state;
    struct workload_list list;
    assert_int_equal(workload_parse("load,delete,a", &list), FAR_OK);
    assert_int_equal(workload_check(&list, 100, 99), FAR_OK);
    assert_int_equal(workload_check(&list, 100, 100), FAR_INVALID);
    assert_non_null(strstr(far_error_detail(), "'a'"));
    assert_int_equal(workload_parse("delete,miss,insert,a", &list), FAR_OK);
    assert_int_equal(workload_check(&list, 100, 1000), FAR_OK);
    assert_int_equal(workload_parse("delete=50+get=50", &list), FAR_OK);
    assert_int_equal(workload_check(&list, 100, 198), FAR_OK);
    assert_int_equal(workload_check(&list, 100, 200), FAR_INVALID);
    assert_non_null(
        strstr(far_error_detail(), "deletes 100 keys and needs 101, but there are 100"));
    assert_int_equal(workload_parse("delete=50+insert=50", &list), FAR_OK);
    assert_int_equal(workload_check(&list, 100, 200), FAR_OK);
    assert_int_equal(workload_check(&list, 100, 202), FAR_INVALID);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static struct workload_plan plan_of(const char *name, struct workload_span keys, uint64_t ops,
                                    unsigned threads, enum bench_dist_kind dist)
{
    struct workload_plan plan;
    struct workload_plan_options options = {
        .keys = keys,
        .load = KEYS,
        .ops = ops,
        .threads = threads,
        .seed = 5,
        .dist = dist,
        .theta = 0.99,
    };
    static struct workload_list list; /* the plan points to its workload */
    assert_int_equal(workload_parse(name, &list), FAR_OK);
    assert_int_equal(workload_plan_init(&plan, &list.item[0], &options, NULL), FAR_OK);
    return plan;
}

/* Draws all tasks of the plan, thread by thread, and counts them by key and kind. */
struct tally {
    uint64_t total, kinds[FAR_OP_KINDS], then_update;
    unsigned touched[4 * KEYS];
};

static void draw_all(const struct workload_plan *plan, struct tally *t)
{
    memset(t, 0, sizeof *t);
    for (unsigned thread = 0; thread < plan->threads; thread++) {
        struct workload_source source;
        struct workload_task task[7];
        unsigned n;
        workload_source_init(&source, plan, thread);
        while ((n = workload_source_draw(&source, task, 7)) > 0) {
            for (unsigned i = 0; i < n; i++) {
                uint64_t number = workload_task_number(plan, &task[i]);
                if (number < sizeof t->touched / sizeof *t->touched)
                    t->touched[number]++;
                t->kinds[task[i].kind]++;
                t->then_update += task[i].then_update;
                t->total++;
            }
        }
    }
}

static void assert_touched_once(const struct tally *t, uint64_t from, uint64_t to)
{
    for (uint64_t i = 0; i < sizeof t->touched / sizeof *t->touched; i++)
        assert_int_equal(t->touched[i], i >= from && i < to);
}

static void load_puts_every_key_once(void **state)
{
    (void)state;
    struct tally t;
    for (unsigned threads = 1; threads <= 7; threads += 3) {
        struct workload_plan plan =
            plan_of("load", (struct workload_span){0, 0}, 5, threads, BENCH_DIST_ZIPFIAN);
        draw_all(&plan, &t);
        assert_int_equal(t.kinds[FAR_OP_PUT], KEYS);
        assert_int_equal(t.total, KEYS);
        assert_touched_once(&t, 0, KEYS);
        assert_int_equal(workload_plan_leaves(&plan).next, KEYS);
        workload_plan_free(&plan);
    }
}

static void insert_and_delete_use_each_key_once(void **state)
{
    (void)state;
    struct tally t;
    struct workload_plan plan =
        plan_of("insert", (struct workload_span){100, 1000}, 501, 4, BENCH_DIST_ZIPFIAN);
    draw_all(&plan, &t);
    assert_int_equal(t.kinds[FAR_OP_INSERT], 501);
    assert_touched_once(&t, 1000, 1501);
    assert_int_equal(workload_plan_leaves(&plan).next, 1501);
    workload_plan_free(&plan);

    plan = plan_of("delete", (struct workload_span){100, 1000}, 501, 4, BENCH_DIST_ZIPFIAN);
    draw_all(&plan, &t);
    assert_int_equal(t.kinds[FAR_OP_DELETE], 501);
    assert_touched_once(&t, 100, 601);
    assert_int_equal(workload_plan_leaves(&plan).first, 601);
    workload_plan_free(&plan);

    /* No more keys are deleted than exist. */
    plan = plan_of("delete", (struct workload_span){100, 1000}, 5000, 4, BENCH_DIST_ZIPFIAN);
    assert_int_equal(plan.ops, 900);
    assert_int_equal(workload_plan_leaves(&plan).first, 1000);
    workload_plan_free(&plan);
}

static void proportions_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t get, update, insert, then_update;
    } want[] = {
        {"a", 5000, 5000, 0, 0},    {"b", 9500, 500, 0, 0},   {"c", 10000, 0, 0, 0},
        {"d", 9500, 0, 500, 0},     {"f", 10000, 0, 0, 5000}, {"get", 10000, 0, 0, 0},
        {"update", 0, 10000, 0, 0},
    };
    struct tally t;
    for (unsigned i = 0; i < sizeof want / sizeof *want; i++) {
        for (unsigned threads = 1; threads <= 3; threads++) {
            struct workload_plan plan = plan_of(want[i].name, (struct workload_span){10, KEYS},
                                                10000, threads, BENCH_DIST_ZIPFIAN);
            draw_all(&plan, &t);
            assert_int_equal(t.kinds[FAR_OP_GET], want[i].get);
            assert_int_equal(t.kinds[FAR_OP_UPDATE], want[i].update);
            assert_int_equal(t.kinds[FAR_OP_INSERT], want[i].insert);
            assert_int_equal(t.then_update, want[i].then_update);
            assert_int_equal(workload_plan_leaves(&plan).next, KEYS + want[i].insert);
            for (unsigned key = 0; key < 10; key++)
                assert_int_equal(t.touched[key], 0);
            workload_plan_free(&plan);
        }
    }
}

/* Of a mix of everything: each kind has its share to within one task, deletes and inserts use each
 * of their keys once, and no other task meets a key that is deleted. */
static void a_mix_has_the_share_of_every_kind(void **state)
{
    (void)state;
    static const struct workload_span keys = {10, KEYS};
    static const unsigned ops[] = {1, 7, 99, 1000, 1003};
    struct tally t;
    for (unsigned i = 0; i < sizeof ops / sizeof *ops; i++) {
        for (unsigned threads = 1; threads <= 7; threads++) {
            struct workload_plan plan =
                plan_of("insert=13+delete=17+update=10+modify=10+miss=9+scan=11+get=30", keys,
                        ops[i], threads, BENCH_DIST_UNIFORM);
            uint64_t inserts = plan.count[WORKLOAD_INSERT], deletes = plan.count[WORKLOAD_DELETE];
            draw_all(&plan, &t);
            assert_int_equal(t.total, ops[i]);
            for (unsigned k = 0; k < WORKLOAD_TASK_KINDS; k++)
                assert_true(plan.count[k] * 100 < ops[i] * plan.workload->percent[k] + 100 &&
                            plan.count[k] * 100 + 100 > ops[i] * plan.workload->percent[k]);
            assert_int_equal(t.kinds[FAR_OP_INSERT], inserts);
            assert_int_equal(t.kinds[FAR_OP_DELETE], deletes);
            assert_int_equal(t.kinds[FAR_OP_GET],
                             plan.count[WORKLOAD_GET] + plan.count[WORKLOAD_MISS]);
            for (uint64_t key = 10; key < 10 + deletes; key++)
                assert_int_equal(t.touched[key], 1);
            for (uint64_t key = KEYS; key < 2 * KEYS; key++)
                assert_int_equal(t.touched[key], key < KEYS + inserts);
            assert_int_equal(workload_plan_leaves(&plan).first, 10 + deletes);
            assert_int_equal(workload_plan_leaves(&plan).next, KEYS + inserts);
            workload_plan_free(&plan);
        }
    }
}

/* However many kinds there are, no thread has two tasks more than another. */
static void the_tasks_of_a_mix_are_spread_evenly(void **state)
{
    (void)state;
    struct workload_plan plan =
        plan_of("insert=13+delete=17+update=10+modify=10+miss=9+scan=11+get=30",
                (struct workload_span){0, KEYS}, 1003, 7, BENCH_DIST_UNIFORM);
    for (unsigned thread = 0; thread < 7; thread++) {
        struct workload_source source;
        workload_source_init(&source, &plan, thread);
        assert_in_range(source.left, 143, 144);
    }
    workload_plan_free(&plan);
}

static void zippydb_gets_and_puts_keys_that_exist(void **state)
{
    (void)state;
    struct tally t;
    struct workload_plan plan =
        plan_of("zippydb", (struct workload_span){0, KEYS}, 10000, 3, BENCH_DIST_ZIPFIAN);
    draw_all(&plan, &t);
    assert_int_equal(t.kinds[FAR_OP_GET], 8600);
    assert_int_equal(t.kinds[FAR_OP_PUT], 1400);
    assert_int_equal(workload_plan_leaves(&plan).next, KEYS);
    workload_plan_free(&plan);
}

static void the_popular_key_is_the_same_for_all_threads(void **state)
{
    (void)state;
    struct tally t;
    struct workload_plan plan =
        plan_of("c", (struct workload_span){0, KEYS}, 10000, 4, BENCH_DIST_ZIPFIAN);
    draw_all(&plan, &t);
    unsigned most = 0;
    for (unsigned i = 0; i < KEYS; i++)
        most = t.touched[i] > most ? t.touched[i] : most;
    assert_true(most > 1000); /* by the formula, 13 % of the draws */
    workload_plan_free(&plan);
}

static void misses_draw_no_existing_key(void **state)
{
    (void)state;
    struct tally t;
    struct workload_plan plan =
        plan_of("miss", (struct workload_span){0, KEYS}, 1000, 2, BENCH_DIST_ZIPFIAN);
    draw_all(&plan, &t);
    assert_int_equal(t.kinds[FAR_OP_GET], 1000);
    assert_touched_once(&t, 0, 0);
    workload_plan_free(&plan);
}

static void the_seed_decides_which_tasks_are_drawn(void **state)
{
    (void)state;
    struct workload_plan plan =
        plan_of("a", (struct workload_span){0, KEYS}, 100, 2, BENCH_DIST_ZIPFIAN);
    struct workload_task first[50], again[50], other[50];
    struct workload_source source;
    workload_source_init(&source, &plan, 0);
    assert_int_equal(workload_source_draw(&source, first, 50), 50);
    workload_source_init(&source, &plan, 0);
    assert_int_equal(workload_source_draw(&source, again, 50), 50);
    workload_source_init(&source, &plan, 1);
    assert_int_equal(workload_source_draw(&source, other, 50), 50);
    bool differ = false;
    for (unsigned i = 0; i < 50; i++) {
        assert_true(first[i].number == again[i].number && first[i].kind == again[i].kind);
        differ = differ || first[i].number != other[i].number;
    }
    assert_true(differ);
    workload_plan_free(&plan);
}

/* A scan has 1 to 100 entries, each length equally likely; e adds keys as d does. */
static void scans_have_all_lengths_equally_often(void **state)
{
    unsigned lengths[WORKLOAD_SCAN_MAX + 1] = {0}, scans = 0;
    struct workload_source source;
    struct workload_task task;
    struct tally t;

    (void)state;
    struct workload_plan plan =
        plan_of("e", (struct workload_span){0, KEYS}, 20000, 2, BENCH_DIST_UNIFORM);
    draw_all(&plan, &t);
    assert_int_equal(t.kinds[FAR_OP_SCAN], 19000);
    assert_int_equal(t.kinds[FAR_OP_INSERT], 1000);
    assert_int_equal(workload_plan_leaves(&plan).next, KEYS + 1000);
    assert_true(workload_draws(plan.workload) && workload_scans(plan.workload));
    for (workload_source_init(&source, &plan, 1); workload_source_draw(&source, &task, 1) == 1;) {
        if (task.kind != FAR_OP_SCAN)
            continue;
        assert_true(task.limit >= 1 && task.limit <= WORKLOAD_SCAN_MAX);
        lengths[task.limit]++;
        scans++;
    }
    assert_int_equal(scans, 9500);
    for (unsigned i = 1; i <= WORKLOAD_SCAN_MAX; i++)
        assert_true(lengths[i] > 30 && lengths[i] < 200); /* 95 each on average */
    workload_plan_free(&plan);
    plan = plan_of("scan", (struct workload_span){0, KEYS}, 500, 2, BENCH_DIST_UNIFORM);
    draw_all(&plan, &t);
    assert_int_equal(t.kinds[FAR_OP_SCAN], 500);
    workload_plan_free(&plan);
}

/* Each thread has one task, the whole table; the entries count as operations. */
static void an_iteration_is_one_task_of_each_thread(void **state)
{
    struct tally t;

    (void)state;
    struct workload_plan plan =
        plan_of("iterate", (struct workload_span){100, 1000}, 7, 3, BENCH_DIST_ZIPFIAN);
    draw_all(&plan, &t);
    assert_true(t.total == 3 && t.kinds[FAR_OP_ITERATE] == 3);
    assert_int_equal(plan.ops, 3 * 900);
    assert_int_equal(workload_plan_leaves(&plan).first, 100);
    assert_int_equal(workload_plan_leaves(&plan).next, 1000);
    assert_false(workload_draws(plan.workload));
    workload_plan_free(&plan);
    plan = plan_of("modify", (struct workload_span){100, 1000}, 50, 3, BENCH_DIST_ZIPFIAN);
    draw_all(&plan, &t);
    assert_int_equal(t.kinds[FAR_OP_MODIFY], 50);
    workload_plan_free(&plan);
}

/* However far each thread is, going back from the latest key meets only keys that exist. */
static void latest_draws_only_keys_that_exist(void **state)
{
    (void)state;
    const struct workload_span keys = {200, KEYS};
    struct workload_plan plan = plan_of("d", keys, 1000, 3, BENCH_DIST_LATEST);
    static const unsigned added[][3] = {{0, 0, 0}, {5, 0, 2}, {1, 1, 1}, {9, 30, 0}};
    for (unsigned c = 0; c < sizeof added / sizeof *added; c++) {
        bool newest_seen = false;
        for (unsigned t = 0; t < 3; t++)
            atomic_store(&plan.added[t].count, added[c][t]);
        for (uint64_t back = 0; back < KEYS - 200; back++) {
            struct workload_task task = {.kind = FAR_OP_GET, .number = back, .latest = true};
            uint64_t number = workload_task_number(&plan, &task);
            assert_true(number >= keys.first);
            if (number >= keys.next) {
                uint64_t thread = (number - keys.next) % 3, turn = (number - keys.next) / 3;
                assert_true(turn < added[c][thread]);
                newest_seen = true;
            }
        }
        assert_true(newest_seen == (added[c][0] + added[c][1] + added[c][2] > 0));
    }
    workload_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read_in_order),
        cmocka_unit_test(bad_lists_are_refused_with_the_reason),
        cmocka_unit_test(mixes_stand_between_other_workloads),
        cmocka_unit_test(bad_mixes_are_refused_with_the_reason),
        cmocka_unit_test(a_list_that_runs_out_of_keys_is_refused),
        cmocka_unit_test(load_puts_every_key_once),
        cmocka_unit_test(insert_and_delete_use_each_key_once),
        cmocka_unit_test(proportions_are_exact),
        cmocka_unit_test(a_mix_has_the_share_of_every_kind),
        cmocka_unit_test(the_tasks_of_a_mix_are_spread_evenly),
        cmocka_unit_test(zippydb_gets_and_puts_keys_that_exist),
        cmocka_unit_test(the_popular_key_is_the_same_for_all_threads),
        cmocka_unit_test(misses_draw_no_existing_key),
        cmocka_unit_test(the_seed_decides_which_tasks_are_drawn),
        cmocka_unit_test(latest_draws_only_keys_that_exist),
        cmocka_unit_test(scans_have_all_lengths_equally_often),
        cmocka_unit_test(an_iteration_is_one_task_of_each_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
