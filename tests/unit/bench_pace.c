/* A fixed rate: when operations are due, and what a stall does to latencies. All times are
 * virtual. */
#include "bench/pace.h"
#include "bench/runner.h"
#include "model/model.h"
#include "store/store.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>

static void workers_take_turns(void **state)
{
    (void)state;
    struct pace p[3];
    for (unsigned i = 0; i < 3; i++)
        pace_begin(&p[i], 1000000, 3, i, 500);
    for (unsigned n = 0; n < 30; n++) { /* one operation each microsecond */
        struct pace *next = &p[n % 3];
        assert_int_equal(pace_due(next), 500 + 1000 * n);
        assert_int_equal(pace_take(next, 500 + 1000 * n), 500 + 1000 * n);
    }
    assert_int_equal(p[0].late_max, 0);
}

/* A rate that does not divide a second adds no error from operation to operation. */
static void the_schedule_does_not_drift(void **state)
{
    (void)state;
    struct pace p;
    pace_begin(&p, 3, 1, 0, 0);
    p.next = 3000000000u;
    assert_int_equal(pace_due(&p), 1000000000ull * 1000000000);
    p.next++;
    assert_int_equal(pace_due(&p), 1000000000ull * 1000000000 + 333333333);
}

static void lateness_is_that_of_the_begin(void **state)
{
    (void)state;
    struct pace p;
    pace_begin(&p, 1000, 1, 0, 0); /* each millisecond */
    assert_int_equal(pace_take(&p, 0), 0);
    assert_int_equal(pace_take(&p, 5000000), 1000000);
    assert_int_equal(pace_take(&p, 5000000), 2000000);
    assert_int_equal(p.late, 3000000);
    assert_int_equal(p.late_max, 4000000);
}

/* ---- a stall --------------------------------------------------------------------------------- */

#define KEYS     2000
#define OPS      10000u
#define INTERVAL 10000u   /* ns between two operations of a client */
#define STALL    5000000u /* ns */

/* A modelled pool whose fabric stalls once: when the first client posts or polls after `at`. */
struct stalling {
    struct fab *fab;
    far_pool *pool;
    far_table *table;
    unsigned clients, depth;
    const struct fab_ops *real;
    struct fab_ops ops;
    uint64_t at; /* 0: never, or not any more */
};
static struct stalling stalling;

static void stall_once(void)
{
    if (stalling.at == 0 || model_now(stalling.fab) < stalling.at)
        return;
    stalling.at = 0;
    model_wait(stalling.fab, STALL);
}

/* Without a ring, operations run on the fiber of the client, which can wait here. */
static int stalling_post(struct fab_ep *ep, struct fab_req *req)
{
    if (stalling.depth == 1)
        stall_once();
    return stalling.real->post(ep, req);
}

static void stalling_poll(struct fab_ep *ep, bool wait)
{
    if (stalling.depth > 1)
        stall_once();
    stalling.real->poll(ep, wait);
}

static struct bench_run *measure(struct bench_config *config, const char *workload, bool modelled)
{
    struct bench_observer observer = {.arg = NULL};
    struct bench_target target = {.pool = stalling.pool,
                                  .table = stalling.table,
                                  .depth = modelled ? stalling.depth : 1,
                                  .model = modelled ? stalling.fab : NULL};
    struct workload_plan_options options = {.keys = {0, modelled ? KEYS : 0},
                                            .load = KEYS,
                                            .ops = config->ops,
                                            .rate = config->rate,
                                            .threads = modelled ? stalling.clients : 1,
                                            .seed = 1,
                                            .dist = BENCH_DIST_UNIFORM,
                                            .theta = 0.5};
    struct workload_plan plan;
    struct bench_run *run = calloc(1, sizeof *run);
    assert_non_null(run);
    assert_int_equal(workload_plan_init(&plan, workload_find(workload), &options, NULL), FAR_OK);
    assert_int_equal(bench_measure(config, &target, &plan, &observer, run), FAR_OK);
    workload_plan_free(&plan);
    assert_int_equal(run->first_error, FAR_OK);
    return run;
}

/* Gets in a new pool, one of each client every `interval`, with a stall in the middle or without
 * one. */
static struct bench_run *gets_every(unsigned interval, const char *uri, unsigned clients,
                                    unsigned depth, bool stall)
{
    struct bench_config config = bench_defaults;
    struct far_table_options table = {.tuning = "hot=0"}; /* all gets take the same time */
    far_session *session = NULL;
    stalling = (struct stalling){.clients = clients, .depth = depth};
    assert_int_equal(model_open(uri, &stalling.fab), FAR_OK);
    stalling.real = stalling.fab->ops;
    stalling.ops = *stalling.real;
    stalling.ops.post = stalling_post;
    stalling.ops.poll = stalling_poll;
    stalling.fab->ops = &stalling.ops;
    assert_int_equal(store_open(stalling.fab, NULL, &stalling.pool), FAR_OK);
    stalling.pool->owns_fab = true;
    assert_int_equal(far_session_open(stalling.pool, NULL, &session), FAR_OK);
    assert_int_equal(far_table_create(session, "t", "race", &table, &stalling.table), FAR_OK);
    far_session_close(session);

    config.ops = OPS;
    config.keys = KEYS;
    free(measure(&config, "load", false));
    config.rate = clients * (1000000000u / interval);
    stalling.at = stall ? OPS / clients * interval / 2 : 0;
    struct bench_run *run = measure(&config, "get", true);
    assert_int_equal(stalling.at, 0);
    assert_int_equal(run->ops, OPS);
    far_pool_close(stalling.pool);
    return run;
}

static struct bench_run *gets(const char *uri, unsigned clients, unsigned depth, bool stall)
{
    return gets_every(INTERVAL, uri, clients, depth, stall);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* What a client does that takes `service` for each operation and stalls in the middle. */
static void expected_latencies(uint64_t service, unsigned count, uint64_t latency[])
{
    uint64_t free_at = 0;
    for (unsigned n = 0; n < count; n++) {
        uint64_t due = (uint64_t)n * INTERVAL;
        free_at = (free_at > due ? free_at : due) + service + (n == count / 2 ? STALL : 0);
        latency[n] = free_at - due;
    }
}

static void assert_quantiles(const struct hist *h, uint64_t latency[], unsigned count)
{
    static const double q[] = {0.1, 0.5, 0.93, 0.95, 0.99, 0.999, 1};
    qsort(latency, count, sizeof *latency, compare);
    for (unsigned i = 0; i < sizeof q / sizeof *q; i++) {
        uint64_t want = latency[(unsigned)(q[i] * count + 0.5) - 1];
        assert_in_range(hist_quantile(h, q[i]), want * 97 / 100, want * 103 / 100);
    }
}

static void a_stall_shows_in_the_operations_behind_it(void **state)
{
    (void)state;
    static uint64_t latency[OPS];
    struct bench_run *calm = gets("model:?size=64m", 1, 1, false);
    uint64_t service = hist_quantile(&calm->op[FAR_OP_GET].latency, 0.5);
    assert_in_range(service, INTERVAL / 4, INTERVAL - INTERVAL / 4);
    assert_in_range(hist_quantile(&calm->op[FAR_OP_GET].latency, 1), service, 2 * service);
    assert_false(calm->pace.fell_behind);

    struct bench_run *run = gets("model:?size=64m", 1, 1, true);
    expected_latencies(service, OPS, latency);
    assert_quantiles(&run->op[FAR_OP_GET].latency, latency, OPS);
    assert_in_range(run->pace.late_max, STALL - INTERVAL, STALL);
    assert_false(run->pace.fell_behind); /* it caught up */
    /* One operation in 10,000 stalled, and yet the 99th percentile is nearly as long as the
     * stall. */
    assert_true(hist_quantile(&run->op[FAR_OP_GET].latency, 0.99) > STALL * 3 / 4);
    free(run);
    free(calm);
}

/* Of two clients, one stalls: the percentiles are those of all operations, not an average of the
 * clients' percentiles. */
static void latencies_of_all_clients_are_merged(void **state)
{
    (void)state;
    static uint64_t latency[OPS];
    struct bench_run *calm = gets("model:?size=64m&threads=2", 2, 1, false);
    uint64_t service = hist_quantile(&calm->op[FAR_OP_GET].latency, 0.5);
    struct bench_run *run = gets("model:?size=64m&threads=2", 2, 1, true);
    expected_latencies(service, OPS / 2, latency);
    for (unsigned n = OPS / 2; n < OPS; n++)
        latency[n] = service;
    assert_int_equal(run->op[FAR_OP_GET].latency.count, OPS);
    assert_quantiles(&run->op[FAR_OP_GET].latency, latency, OPS);
    free(run);
    free(calm);
}

/* With several operations in flight, a client that stalls begins those that are due as soon as
 * there is room for them. */
static void a_stall_shows_with_operations_in_flight(void **state)
{
    (void)state;
    struct bench_run *run = gets("model:?size=64m&depth=64", 1, 64, true);
    const struct hist *h = &run->op[FAR_OP_GET].latency;
    /* 500 operations, which are 5 %, were due in the stall. */
    assert_true(hist_quantile(h, 0.94) < INTERVAL);
    assert_in_range(hist_quantile(h, 0.975), STALL * 4 / 10, STALL * 6 / 10);
    assert_in_range(hist_quantile(h, 1), STALL * 98 / 100, STALL * 102 / 100);
    assert_in_range(run->pace.late_max, STALL * 98 / 100, STALL * 102 / 100);
    assert_false(run->pace.fell_behind);
    free(run);
}

/* A rate that is too high: the queue grows until the run ends. */
static void a_rate_that_is_too_high_is_noticed(void **state)
{
    (void)state;
    struct bench_run *run = gets_every(1000, "model:?size=64m", 1, 1, false);
    assert_true(run->pace.fell_behind);
    assert_true(run->ops_per_s < 1e9 / 1000 / 2);
    assert_int_equal(run->pace.late_last, run->pace.late_max);
    assert_true((double)run->pace.late_last / 1e9 > run->seconds / 2);
    free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_take_turns),
        cmocka_unit_test(the_schedule_does_not_drift),
        cmocka_unit_test(lateness_is_that_of_the_begin),
        cmocka_unit_test(a_stall_shows_in_the_operations_behind_it),
        cmocka_unit_test(latencies_of_all_clients_are_merged),
        cmocka_unit_test(a_stall_shows_with_operations_in_flight),
        cmocka_unit_test(a_rate_that_is_too_high_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
