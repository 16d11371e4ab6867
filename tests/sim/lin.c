/* The linearizability checker: histories whose verdict is known, histories that are linearizable by
 * construction and then broken, and thousands of tiny ones compared with a brute-force checker. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/rng.h"
#include "sim/brute.h"
#include "check/lin.h"

#include <string.h>

#define BUDGET 1000000u

static struct lin_checker *checker;
static struct lin_history history;

static int set_up(void **state)
{
    (void)state;
    checker = lin_checker_new();
    return checker && lin_history_init(&history, 4096) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    lin_checker_free(checker);
    lin_history_free(&history);
    return 0;
}

/* Adds one operation with the given call and return. */
static void add(unsigned kind, uint32_t value, uint32_t result, uint64_t call, uint64_t ret)
{
    history.op[history.count++] = (struct lin_op){
        .call = call,
        .ret = ret,
        .client = (uint32_t)history.count,
        .value = value,
        .result = result,
        .kind = (uint8_t)kind,
        .outcome = ret == LIN_NEVER ? LIN_UNKNOWN : LIN_DONE,
    };
}

static enum lin_verdict judge(void)
{
    struct lin_result report;
    return lin_check(checker, &history, BUDGET, &report);
}

static void empty_history_is_linearizable(void **state)
{
    (void)state;
    lin_history_clear(&history);
    assert_int_equal(judge(), LIN_LINEARIZABLE);
}

static void sequential_results_are_exact(void **state)
{
    (void)state;
    static const struct {
        unsigned kind;
        uint32_t value, result;
        enum lin_verdict verdict;
    } first[] = {
        {LIN_GET, 0, LIN_ABSENT, LIN_LINEARIZABLE}, {LIN_GET, 0, 7, LIN_NOT_LINEARIZABLE},
        {LIN_INSERT, 7, 1, LIN_LINEARIZABLE},       {LIN_INSERT, 7, 0, LIN_NOT_LINEARIZABLE},
        {LIN_UPDATE, 7, 0, LIN_LINEARIZABLE},       {LIN_UPDATE, 7, 1, LIN_NOT_LINEARIZABLE},
        {LIN_DELETE, 0, 0, LIN_LINEARIZABLE},       {LIN_DELETE, 0, 1, LIN_NOT_LINEARIZABLE},
    };
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        lin_history_clear(&history);
        add(first[i].kind, first[i].value, first[i].result, 1, 2);
        assert_int_equal(judge(), first[i].verdict);
    }
    static const struct {
        unsigned kind;
        uint32_t value, result, left;
        enum lin_verdict verdict;
    } second[] = {
        /* after a put of 5; `left` is what a get then finds */
        {LIN_INSERT, 7, 0, 5, LIN_LINEARIZABLE},     {LIN_INSERT, 7, 1, 7, LIN_NOT_LINEARIZABLE},
        {LIN_INSERT, 7, 0, 7, LIN_NOT_LINEARIZABLE}, {LIN_UPDATE, 7, 1, 7, LIN_LINEARIZABLE},
        {LIN_UPDATE, 7, 0, 5, LIN_NOT_LINEARIZABLE}, {LIN_UPDATE, 7, 1, 5, LIN_NOT_LINEARIZABLE},
        {LIN_DELETE, 0, 1, 0, LIN_LINEARIZABLE},     {LIN_DELETE, 0, 0, 5, LIN_NOT_LINEARIZABLE},
        {LIN_DELETE, 0, 1, 5, LIN_NOT_LINEARIZABLE}, {LIN_PUT, 7, 1, 7, LIN_LINEARIZABLE},
        {LIN_PUT, 7, 1, 5, LIN_NOT_LINEARIZABLE},
    };
    for (size_t i = 0; i < sizeof second / sizeof *second; i++) {
        lin_history_clear(&history);
        add(LIN_PUT, 5, 1, 1, 2);
        add(second[i].kind, second[i].value, second[i].result, 3, 4);
        add(LIN_GET, 0, second[i].left, 5, 6);
        assert_int_equal(judge(), second[i].verdict);
    }
}

/* Herlihy and Wing's register: a read that overlaps a write may see either side, but two reads
 * in a row may not see the new value and then the old one. */
static void overlapping_reads_do_not_go_back(void **state)
{
    (void)state;
    for (int order = 0; order < 4; order++) {
        lin_history_clear(&history);
        add(LIN_PUT, 1, 1, 1, 2);
        add(LIN_PUT, 2, 1, 3, 20);
        add(LIN_GET, 0, order & 1 ? 2 : 1, 4, 5);
        add(LIN_GET, 0, order & 2 ? 2 : 1, 6, 7);
        assert_int_equal(judge(), order == 1 ? LIN_NOT_LINEARIZABLE : LIN_LINEARIZABLE);
    }
}

static void stale_read_after_return_is_caught(void **state)
{
    (void)state;
    lin_history_clear(&history);
    add(LIN_PUT, 1, 1, 1, 2);
    add(LIN_PUT, 2, 1, 3, 4);
    add(LIN_GET, 0, 1, 5, 6);
    struct lin_result report;
    assert_int_equal(lin_check(checker, &history, BUDGET, &report), LIN_NOT_LINEARIZABLE);
    assert_int_equal(report.stuck, 2);
    assert_int_equal(report.placed, 2);
    assert_int_equal(report.order[0], 0);
    assert_int_equal(report.order[1], 1);
}

static void two_inserts_do_not_both_succeed(void **state)
{
    (void)state;
    lin_history_clear(&history);
    add(LIN_INSERT, 1, 1, 1, 10);
    add(LIN_INSERT, 2, 1, 2, 11);
    assert_int_equal(judge(), LIN_NOT_LINEARIZABLE);
    add(LIN_DELETE, 0, 1, 3, 12); /* unless something removed the key in between */
    assert_int_equal(judge(), LIN_LINEARIZABLE);
}

static void deleted_value_does_not_come_back(void **state)
{
    (void)state;
    lin_history_clear(&history);
    add(LIN_PUT, 1, 1, 1, 2);
    add(LIN_PUT, 2, 1, 3, 4);
    add(LIN_DELETE, 0, 1, 5, 6);
    add(LIN_GET, 0, 1, 7, 8);
    assert_int_equal(judge(), LIN_NOT_LINEARIZABLE);
}

static void unknown_outcome_may_happen_once_late_or_never(void **state)
{
    (void)state;
    lin_history_clear(&history);
    add(LIN_PUT, 1, 1, 1, 2);
    add(LIN_PUT, 2, 0, 3, LIN_NEVER);
    add(LIN_GET, 0, 1, 4, 5);
    assert_int_equal(judge(), LIN_LINEARIZABLE); /* never so far */
    add(LIN_GET, 0, 2, 6, 7);
    assert_int_equal(judge(), LIN_LINEARIZABLE); /* late */
    add(LIN_PUT, 3, 1, 8, 9);
    add(LIN_GET, 0, 3, 10, 11);
    assert_int_equal(judge(), LIN_LINEARIZABLE);
    add(LIN_GET, 0, 2, 12, 13);
    assert_int_equal(judge(), LIN_NOT_LINEARIZABLE); /* not twice */
}

static void unknown_outcome_does_not_happen_before_its_call(void **state)
{
    (void)state;
    lin_history_clear(&history);
    add(LIN_GET, 0, 2, 1, 2);
    add(LIN_PUT, 2, 0, 3, LIN_NEVER);
    assert_int_equal(judge(), LIN_NOT_LINEARIZABLE);
}

static void failed_operations_have_no_effect(void **state)
{
    (void)state;
    lin_history_clear(&history);
    size_t put = lin_call(&history, 0, LIN_PUT, 0, 9);
    lin_return(&history, put, LIN_FAILED, 0);
    size_t get = lin_call(&history, 0, LIN_GET, 0, 0);
    lin_return(&history, get, LIN_DONE, 9);
    assert_int_equal(judge(), LIN_NOT_LINEARIZABLE);
    history.op[get].result = LIN_ABSENT;
    assert_int_equal(judge(), LIN_LINEARIZABLE);
}

static void keys_are_judged_apart(void **state)
{
    (void)state;
    lin_history_clear(&history);
    for (unsigned key = 0; key < 3; key++) {
        size_t at = lin_call(&history, 0, LIN_PUT, key, 10 + key);
        lin_return(&history, at, LIN_DONE, 1);
    }
    for (unsigned key = 0; key < 3; key++) {
        size_t at = lin_call(&history, 0, LIN_GET, key, 0);
        lin_return(&history, at, LIN_DONE, key == 1 ? 10 : 10 + key);
    }
    struct lin_result report;
    assert_int_equal(lin_check(checker, &history, BUDGET, &report), LIN_NOT_LINEARIZABLE);
    assert_int_equal(report.key, 1);
    assert_int_equal(report.stuck, 4);
}

/* The order of the keys in the table. */
static const uint32_t scanned[] = {3, 1, 2, 0};

static const char *scan(uint64_t call, uint64_t ret, size_t first, size_t keys, size_t limit,
                        bool more, const struct lin_pair *pairs, size_t count)
{
    struct lin_scan s = {.client = 1,
                         .call = call,
                         .ret = ret,
                         .key = scanned + first,
                         .keys = keys,
                         .limit = limit,
                         .more = more};
    return lin_scan(&history, &s, pairs, count);
}

static void scans_in_a_wrong_order_or_range_are_refused(void **state)
{
    (void)state;
    const struct lin_pair both[] = {{1, 11}, {2, 12}}, turned[] = {{2, 12}, {1, 11}};
    const struct lin_pair twice[] = {{1, 11}, {1, 11}}, again[] = {{1, 11}, {2, 12}, {1, 11}};
    const struct lin_pair empty[] = {{1, LIN_ABSENT}};
    lin_history_clear(&history);
    assert_string_equal(scan(1, 2, 0, 4, 0, false, turned, 2), "a scan returned keys out of order");
    assert_string_equal(scan(1, 2, 0, 4, 0, false, again, 3), "a scan returned keys out of order");
    assert_string_equal(scan(1, 2, 0, 4, 0, false, twice, 2), "a scan returned a key twice");
    assert_string_equal(scan(1, 2, 2, 2, 0, false, both, 2),
                        "a scan returned a key out of its range");
    assert_string_equal(scan(1, 2, 0, 2, 0, true, both, 2),
                        "a scan returned a key out of its range");
    assert_string_equal(scan(1, 2, 0, 4, 1, false, both, 2),
                        "a scan returned more entries than its limit");
    assert_string_equal(scan(1, 2, 0, 4, 0, false, empty, 1),
                        "a scan returned a key without a value");
    assert_string_equal(scan(1, 2, 0, 4, 0, true, NULL, 0),
                        "a scan returned nothing, but says that there is more");
    assert_int_equal(history.count, 0);
    assert_null(scan(1, 2, 0, 4, 2, false, both, 2));
    assert_int_equal(history.count, 4);
    assert_null(scan(1, 2, 0, 4, 2, true, both, 2)); /* 0 is past the last */
    assert_int_equal(history.count, 4 + 3);
    assert_null(scan(1, 2, 0, 0, 0, false, NULL, 0)); /* an empty range */
    assert_int_equal(history.count, 4 + 3);
}

static void scans_are_judged_by_key_and_interval(void **state)
{
    (void)state;
    const struct lin_pair both[] = {{1, 11}, {2, 12}};
    for (unsigned missing = 0; missing < 2; missing++) {
        for (unsigned more = 0; more < 2; more++) {
            lin_history_clear(&history);
            for (unsigned key = 1; key <= 2; key++)
                lin_return(&history, lin_call(&history, 0, LIN_PUT, key, 10 + key), LIN_DONE, 1);
            assert_null(scan(10, 20, 0, 4, 0, more, both, 2 - missing));
            /* A key that was there all along may be missing only past the scan's end. */
            assert_int_equal(judge(), missing && !more ? LIN_NOT_LINEARIZABLE : LIN_LINEARIZABLE);
        }
    }
    /* One before its last key may not, */
    const struct lin_pair later = {2, 12};
    lin_history_clear(&history);
    for (unsigned key = 1; key <= 2; key++)
        lin_return(&history, lin_call(&history, 0, LIN_PUT, key, 10 + key), LIN_DONE, 1);
    assert_null(scan(10, 20, 0, 4, 1, true, &later, 1));
    assert_int_equal(judge(), LIN_NOT_LINEARIZABLE);
    /* unless it came or went while the scan was under way. No instant has to suit all keys. */
    for (unsigned during = 0; during < 2; during++) {
        const struct lin_pair old[] = {{1, 11}, {2, 22}};
        lin_history_clear(&history);
        for (unsigned key = 1; key <= 2; key++)
            lin_return(&history, lin_call(&history, 0, LIN_PUT, key, 10 + key), LIN_DONE, 1);
        uint64_t call = ++history.stamp, after = 0;
        lin_return(&history, lin_call(&history, 0, LIN_PUT, 1, 21), LIN_DONE, 1);
        after = ++history.stamp;
        lin_return(&history, lin_call(&history, 0, LIN_PUT, 2, 22), LIN_DONE, 1);
        /* the first key's old value, with the second one's new one, which came later */
        assert_null(scan(during ? call : after, ++history.stamp, 0, 4, 0, false, old, 2));
        assert_int_equal(judge(), during ? LIN_LINEARIZABLE : LIN_NOT_LINEARIZABLE);
    }
}

static void a_search_past_its_budget_is_undecided(void **state)
{
    (void)state;
    /* Many overlapping puts, and then a read of what none of them wrote: the search has to try
     * every order. */
    lin_history_clear(&history);
    for (uint32_t i = 0; i < 24; i++)
        add(LIN_PUT, i + 1, 1, i + 1, 100 + i);
    add(LIN_GET, 0, 99, 200, 201);
    struct lin_result report;
    assert_int_equal(lin_check(checker, &history, 1000, &report), LIN_UNDECIDED);
    assert_true(report.placed > 0);
    assert_int_equal(report.steps, 1000);
    /* A wrong key decides nevertheless, and is the one reported. */
    size_t put = lin_call(&history, 0, LIN_PUT, 5, 1), get = 0;
    lin_return(&history, put, LIN_DONE, 1);
    get = lin_call(&history, 0, LIN_GET, 5, 0);
    lin_return(&history, get, LIN_DONE, 2);
    assert_int_equal(lin_check(checker, &history, 1000, &report), LIN_NOT_LINEARIZABLE);
    assert_int_equal(report.key, 5);
    assert_int_equal(report.stuck, get);
    assert_int_equal(report.order[0], put);
}

/* ---- random histories ------------------------------------------------------------------------ */

/* The result that an operation gets from a sequential table. */
static void answer(struct lin_op *op, uint32_t *state)
{
    bool present = *state != LIN_ABSENT;
    op->outcome = LIN_DONE;
    bool tells = op->kind == LIN_GET || op->kind == LIN_MODIFY;
    op->result = tells                    ? *state
                 : op->kind == LIN_PUT    ? 1
                 : op->kind == LIN_INSERT ? !present
                                          : present;
    lin_apply(op, *state, state);
}

/* Operations take effect at instants 1000, 2000, ... Each is called before its own instant and
 * returns after it, so it overlaps neighbours up to `overlap` instants away. Some outcomes are made
 * unknown, whether or not the operations happened. */
static void make_linearizable(struct rng *r, unsigned ops, unsigned overlap, unsigned unknown)
{
    lin_history_clear(&history);
    uint32_t state = LIN_ABSENT;
    for (unsigned i = 0; i < ops; i++) {
        uint64_t instant = 1000 * (uint64_t)(i + overlap + 1);
        uint64_t spread = 1000 * (uint64_t)overlap + 499;
        add((unsigned)rng_below(r, LIN_KINDS), i + 1, 0, instant - 1 - rng_below(r, spread),
            instant + 1 + rng_below(r, spread));
        struct lin_op *op = &history.op[history.count - 1];
        bool happens = rng_below(r, 100) >= unknown / 2;
        if (happens)
            answer(op, &state);
        if (!happens || rng_below(r, 100) < unknown / 2) {
            op->outcome = LIN_UNKNOWN;
            op->ret = LIN_NEVER;
        }
    }
}

static void histories_made_linearizable_pass(void **state)
{
    (void)state;
    struct rng r;
    rng_seed(&r, 1);
    for (unsigned round = 0; round < 2000; round++) {
        unsigned ops = 1 + (unsigned)rng_below(&r, 120);
        make_linearizable(&r, ops, (unsigned)rng_below(&r, 6), round % 4 == 0 ? 20 : 0);
        assert_int_equal(judge(), LIN_LINEARIZABLE);
    }
}

/* A get returns a value that was overwritten before the get's call, and no unknown operation can
 * restore it. */
static void broken_histories_are_caught(void **state)
{
    (void)state;
    struct rng r;
    rng_seed(&r, 2);
    unsigned broken = 0;
    for (unsigned round = 0; round < 10000; round++) {
        make_linearizable(&r, 60, (unsigned)rng_below(&r, 4), 0);
        size_t get = rng_below(&r, history.count), old = rng_below(&r, history.count);
        struct lin_op *g = &history.op[get], *p = &history.op[old];
        if (g->kind != LIN_GET || p->kind != LIN_PUT)
            continue;
        bool overwritten = false;
        for (size_t i = 0; i < history.count; i++) {
            const struct lin_op *o = &history.op[i];
            overwritten |= o->kind == LIN_PUT && o->call > p->ret && o->ret < g->call;
        }
        if (!overwritten)
            continue;
        g->result = p->value;
        assert_int_equal(judge(), LIN_NOT_LINEARIZABLE);
        broken++;
    }
    assert_true(broken > 50);
}

/* A random small history. With few values and stamps, about half of them are linearizable. */
static void make_any(struct rng *r, unsigned ops)
{
    lin_history_clear(&history);
    for (unsigned i = 0; i < ops; i++) {
        uint64_t call = 1 + rng_below(r, 12);
        bool unknown = rng_below(r, 6) == 0;
        add((unsigned)rng_below(r, LIN_KINDS), 1 + (uint32_t)rng_below(r, 3), 0, call,
            unknown ? LIN_NEVER : call + 1 + rng_below(r, 6));
        struct lin_op *op = &history.op[i];
        bool tells = op->kind == LIN_GET || op->kind == LIN_MODIFY;
        op->result = op->kind == LIN_PUT ? 1 : (uint32_t)rng_below(r, tells ? 4 : 2);
        if (rng_below(r, 20) == 0)
            op->outcome = LIN_FAILED;
    }
}

static void agrees_with_brute_force(void **state)
{
    (void)state;
    struct rng r;
    rng_seed(&r, 3);
    unsigned yes = 0, no = 0;
    for (unsigned round = 0; round < 40000; round++) {
        if (round % 2) {
            make_any(&r, 1 + (unsigned)rng_below(&r, 6));
        } else {
            /* nearly right: one result of a linearizable history changed */
            make_linearizable(&r, 6, 2, 20);
            struct lin_op *op = &history.op[rng_below(&r, history.count)];
            op->result = op->kind == LIN_GET ? (uint32_t)rng_below(&r, 7) : !op->result;
        }
        bool expected = brute_linearizable(&history);
        assert_int_equal(judge(), expected ? LIN_LINEARIZABLE : LIN_NOT_LINEARIZABLE);
        *(expected ? &yes : &no) += 1;
    }
    assert_true(yes > 5000 && no > 5000);
}

static void operations_are_described_in_words(void **state)
{
    (void)state;
    char text[64];
    lin_history_clear(&history);
    add(LIN_INSERT, 4, 0, 1, 2);
    lin_describe(&history.op[0], text, sizeof text);
    assert_string_equal(text, "insert k0 = v4 -> exists");
    add(LIN_GET, 0, LIN_ABSENT, 1, 2);
    lin_describe(&history.op[1], text, sizeof text);
    assert_string_equal(text, "get k0 -> absent");
    add(LIN_DELETE, 0, 0, 1, LIN_NEVER);
    lin_describe(&history.op[2], text, sizeof text);
    assert_string_equal(text, "delete k0 -> ?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_history_is_linearizable),
        cmocka_unit_test(sequential_results_are_exact),
        cmocka_unit_test(overlapping_reads_do_not_go_back),
        cmocka_unit_test(stale_read_after_return_is_caught),
        cmocka_unit_test(two_inserts_do_not_both_succeed),
        cmocka_unit_test(deleted_value_does_not_come_back),
        cmocka_unit_test(unknown_outcome_may_happen_once_late_or_never),
        cmocka_unit_test(unknown_outcome_does_not_happen_before_its_call),
        cmocka_unit_test(failed_operations_have_no_effect),
        cmocka_unit_test(keys_are_judged_apart),
        cmocka_unit_test(scans_in_a_wrong_order_or_range_are_refused),
        cmocka_unit_test(scans_are_judged_by_key_and_interval),
        cmocka_unit_test(a_search_past_its_budget_is_undecided),
        cmocka_unit_test(histories_made_linearizable_pass),
        cmocka_unit_test(broken_histories_are_caught),
        cmocka_unit_test(agrees_with_brute_force),
        cmocka_unit_test(operations_are_described_in_words),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
