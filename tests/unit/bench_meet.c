/* Machines that measure together, as threads and processes with a pool in shared memory. */
#include "base/clock.h"
#include "base/err.h"
#include "bench/bench.h"
#include "bench/meet.h"
#include "bench/pack.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MACHINES 3

static char pool_path[64], pool[80];

static struct meet_options options_of(unsigned rank, unsigned machines)
{
    return (struct meet_options){.pool = pool,
                                 .name = "test",
                                 .rank = rank,
                                 .machines = machines,
                                 .options = "--keys 1000\n--ops 10",
                                 .patience_ms = 2000};
}

/* ---- machines -------------------------------------------------------------------------------- */

struct machine {
    struct meet_options options;
    void (*work)(struct machine *m);
    struct meet *meet;
    int status, opened;
    char detail[ERR_DETAIL_BYTES], shared[16];
    atomic_bool stop;
    struct bench_run *run;
    unsigned runs;
    pthread_t thread;
};

static void note(struct machine *m, int status)
{
    m->status = status;
    snprintf(m->detail, sizeof m->detail, "%s", status == FAR_OK ? "" : far_error_detail());
}

static void *machine_main(void *arg)
{
    struct machine *m = arg;
    m->opened = meet_open(&m->options, &m->meet);
    note(m, m->opened);
    if (m->opened == FAR_OK && m->work)
        m->work(m);
    if (m->opened == FAR_OK)
        meet_close(m->meet, m->status);
    return NULL;
}

static void start_machine(struct machine *m)
{
    assert_int_equal(pthread_create(&m->thread, NULL, machine_main, m), 0);
}

/* Runs them all to their end. */
static void run_machines(struct machine *m, unsigned count, void (*work)(struct machine *m))
{
    for (unsigned i = 0; i < count; i++) {
        if (!m[i].options.pool)
            m[i].options = options_of(i, count);
        m[i].work = work;
        start_machine(&m[i]);
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(m[i].thread, NULL);
}

static unsigned tables(void)
{
    far_pool *p = NULL;
    far_session *session = NULL;
    assert_int_equal(far_pool_open(pool, &p), FAR_OK);
    assert_int_equal(far_session_open(p, NULL, &session), FAR_OK);
    far_table *table = NULL;
    int rc = far_table_open(session, "farside-bench-meet-test", NULL, &table);
    far_session_close(session);
    far_pool_close(p);
    return rc == FAR_OK;
}

static bool waits_for(bool (*come)(void *arg), void *arg)
{
    for (unsigned i = 0; i < 600 && !come(arg); i++)
        clock_sleep(100000000);
    return come(arg);
}

static int make_pool(void **state)
{
    (void)state;
    snprintf(pool_path, sizeof pool_path, "/tmp/farside-meet-%ld", (long)getpid());
    snprintf(pool, sizeof pool, "shm:%s?size=64m", pool_path);
    unlink(pool_path);
    return 0;
}

static int remove_pool(void **state)
{
    (void)state;
    return unlink(pool_path);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void share_often(struct machine *m)
{
    for (unsigned i = 0; i < 20 && m->status == FAR_OK; i++) {
        if (meet_rank(m->meet) == 0)
            snprintf(m->shared, sizeof m->shared, "step %u", i);
        note(m, meet_share(m->meet, FAR_OK, m->shared, sizeof m->shared));
    }
}

static void all_get_what_machine_0_shares(void **state)
{
    (void)state;
    struct machine m[MACHINES] = {{.status = FAR_OK}};
    run_machines(m, MACHINES, share_often);
    for (unsigned i = 0; i < MACHINES; i++) {
        assert_int_equal(m[i].status, FAR_OK);
        assert_string_equal(m[i].shared, "step 19");
    }
    assert_int_equal(tables(), 0);
}

static void fail_one(struct machine *m)
{
    int own = FAR_OK;
    note(m, meet_agree(m->meet, FAR_OK));
    if (meet_rank(m->meet) > 0)
        own = err_fail(meet_rank(m->meet) == 1 ? FAR_TABLE_FULL : FAR_POOL_FULL, "no room");
    note(m, meet_agree(m->meet, own));
}

static void all_get_the_first_error(void **state)
{
    (void)state;
    struct machine m[MACHINES] = {{.status = FAR_OK}};
    run_machines(m, MACHINES, fail_one);
    for (unsigned i = 0; i < MACHINES; i++) {
        assert_int_equal(m[i].status, FAR_TABLE_FULL);
        assert_non_null(strstr(m[i].detail, "no room"));
        assert_true(i == 1 || strncmp(m[i].detail, "machine 1 (", 11) == 0);
    }
}

/* One leaves with an error of its own; the others are waiting at the next step. */
static void leave_early(struct machine *m)
{
    note(m, meet_agree(m->meet, FAR_OK));
    if (meet_rank(m->meet) == 2)
        note(m, err_fail(FAR_NO_MEMORY, "not for me"));
    else
        note(m, meet_agree(m->meet, FAR_OK));
}

static void a_machine_that_leaves_ends_the_others(void **state)
{
    (void)state;
    struct machine m[MACHINES] = {{.status = FAR_OK}};
    run_machines(m, MACHINES, leave_early);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(m[i].status, FAR_NO_MEMORY);
        assert_int_equal(strncmp(m[i].detail, "machine 2 (", 11), 0);
        assert_non_null(strstr(m[i].detail, "not for me"));
    }
}

static bool is_stopped(void *arg)
{
    return atomic_load(meet_stop(arg));
}

static void stop_one(struct machine *m)
{
    note(m, meet_agree(m->meet, FAR_OK));
    if (meet_rank(m->meet) == 1)
        atomic_store(&m->stop, true);
    if (!waits_for(is_stopped, m->meet))
        note(m, err_fail(FAR_TIMEOUT, "is not stopped"));
    note(m, meet_agree(m->meet, m->status));
}

static void a_signal_of_one_stops_all(void **state)
{
    (void)state;
    struct machine m[MACHINES] = {{.status = FAR_OK}};
    for (unsigned i = 0; i < MACHINES; i++) {
        m[i].options = options_of(i, MACHINES);
        m[i].options.stop = &m[i].stop;
    }
    run_machines(m, MACHINES, stop_one);
    for (unsigned i = 0; i < MACHINES; i++)
        assert_int_equal(m[i].status, FAR_OK);
}

struct counts {
    struct workload_added *added;
    unsigned all;
};

static bool all_added(void *arg)
{
    const struct counts *c = arg;
    for (unsigned i = 0; i < c->all; i++)
        if (atomic_load(&c->added[i].count) != 100 + i)
            return false;
    return true;
}

/* Two workers on each, whose keys become known to the others. */
static void add_keys(struct machine *m)
{
    struct workload_added added[2 * MACHINES] = {{0}};
    struct counts counts = {added, 2 * MACHINES};
    unsigned first = 2 * meet_rank(m->meet);
    meet_watch_added(m->meet, added, counts.all, first, 2);
    note(m, meet_agree(m->meet, FAR_OK));
    atomic_store(&added[first].count, 100 + first);
    atomic_store(&added[first + 1].count, 101 + first);
    if (!waits_for(all_added, &counts))
        note(m, err_fail(FAR_TIMEOUT, "does not know the keys of others"));
    note(m, meet_agree(m->meet, m->status));
    meet_watch_added(m->meet, NULL, 0, 0, 0);
}

static void keys_that_others_added_become_known(void **state)
{
    (void)state;
    struct machine m[MACHINES] = {{.status = FAR_OK}};
    run_machines(m, MACHINES, add_keys);
    for (unsigned i = 0; i < MACHINES; i++)
        assert_int_equal(m[i].status, FAR_OK);
}

/* ---- joining --------------------------------------------------------------------------------- */

/* Machine 1 has other options. Machine 2 comes when machine 1 has gone, and reads why all the same:
 * machine 0 waits for it. */
static void other_options_are_refused(void **state)
{
    (void)state;
    struct machine m[MACHINES] = {{.status = FAR_OK}};
    for (unsigned i = 0; i < MACHINES; i++)
        m[i].options = options_of(i, MACHINES);
    m[0].options.patience_ms = 60000;
    m[1].options.options = "--keys 1000\n--ops 20";
    start_machine(&m[0]);
    start_machine(&m[1]);
    pthread_join(m[1].thread, NULL);
    clock_sleep(500000000); /* by then, machine 0 has most likely left the meeting */
    start_machine(&m[2]);
    pthread_join(m[2].thread, NULL);
    pthread_join(m[0].thread, NULL);
    for (unsigned i = 0; i < MACHINES; i++) {
        assert_int_equal(m[i].opened, FAR_INVALID);
        assert_non_null(
            strstr(m[i].detail, "it was started with --ops 20, machine 0 with --ops 10"));
        assert_true(i == 1 || strncmp(m[i].detail, "machine 1 (", 11) == 0);
    }
    assert_int_equal(tables(), 0);
}

static void another_number_of_machines_is_refused(void **state)
{
    (void)state;
    struct machine m[2] = {{.status = FAR_OK}};
    m[0].options = options_of(0, 2);
    m[1].options = options_of(1, 3);
    run_machines(m, 2, NULL);
    assert_int_equal(m[0].opened, FAR_INVALID);
    assert_int_equal(m[1].opened, FAR_INVALID);
    assert_non_null(strstr(m[1].detail, "started for 3 machines, machine 0 for 2"));
}

/* Of two with the same rank one joins. The other's message names the first. */
static void expect_one_refused(const unsigned *rank, unsigned machines)
{
    struct machine m[4] = {{.status = FAR_OK}};
    unsigned refused = 0;
    for (unsigned i = 0; i <= machines; i++)
        m[i].options = options_of(rank[i], machines);
    run_machines(m, machines + 1, NULL);
    for (unsigned i = 0; i <= machines; i++)
        if (m[i].opened != FAR_OK) {
            assert_int_equal(m[i].opened, FAR_EXISTS);
            refused++;
        }
    assert_int_equal(refused, 1);
}

static void of_two_with_one_rank_one_is_refused(void **state)
{
    (void)state;
    expect_one_refused((const unsigned[]){0, 1, 2, 1}, 3);
    expect_one_refused((const unsigned[]){0, 0, 1}, 2);
}

static void wrong_ranks_and_names_are_refused(void **state)
{
    (void)state;
    struct meet *meet = NULL;
    struct meet_options o = options_of(3, 3);
    assert_int_equal(meet_open(&o, &meet), FAR_INVALID);
    assert_non_null(strstr(far_error_detail(), "the ranks are from 0 to 2"));
    o = options_of(0, MEET_MACHINES_MAX + 1);
    assert_int_equal(meet_open(&o, &meet), FAR_INVALID);
    o = options_of(0, 1);
    o.name = "a name that is much longer than forty bytes";
    assert_int_equal(meet_open(&o, &meet), FAR_INVALID);
    assert_null(meet);
}

static void machines_that_do_not_come_are_named(void **state)
{
    (void)state;
    struct meet *meet = NULL;
    struct meet_options o = options_of(0, 4);
    o.patience_ms = 20;
    assert_int_equal(meet_open(&o, &meet), FAR_SYSTEM);
    assert_non_null(strstr(far_error_detail(), "machines 1, 2, 3 have not come"));
    o = options_of(1, 4);
    o.patience_ms = 20;
    assert_int_equal(meet_open(&o, &meet), FAR_SYSTEM);
    assert_non_null(strstr(far_error_detail(), "machine 0 has not come"));
    assert_int_equal(tables(), 0);
}

/* ---- machines that die ----------------------------------------------------------------------- */

/* A process that is machine `rank`, and is killed when all have met. */
static pid_t start_victim(unsigned rank, unsigned machines)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct meet *meet = NULL;
        struct meet_options o = options_of(rank, machines);
        if (meet_open(&o, &meet) == FAR_OK)
            raise(SIGKILL);
        _exit(1);
    }
    assert_true(pid > 0);
    return pid;
}

static void expect_killed(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void agree_twice(struct machine *m)
{
    for (unsigned i = 0; i < 2 && m->status == FAR_OK; i++)
        note(m, meet_agree(m->meet, FAR_OK));
}

static void a_machine_that_dies_is_named(void **state)
{
    (void)state;
    struct machine m[2] = {{.status = FAR_OK}};
    pid_t victim = start_victim(1, 3);
    m[0].options = options_of(0, 3);
    m[1].options = options_of(2, 3);
    run_machines(m, 2, agree_twice);
    expect_killed(victim);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(m[i].opened, FAR_OK);
        assert_int_equal(m[i].status, FAR_SYSTEM);
        assert_int_equal(strncmp(m[i].detail, "machine 1 (", 11), 0);
    }
    assert_non_null(strstr(m[0].detail, "has not answered for 2 s"));
    assert_int_equal(tables(), 0);
}

static void a_table_of_a_run_that_was_killed_confuses_nobody(void **state)
{
    (void)state;
    struct machine m[MACHINES] = {{.status = FAR_OK}};
    expect_killed(start_victim(0, 1));
    assert_int_equal(tables(), 1);
    run_machines(m, MACHINES, share_often);
    for (unsigned i = 0; i < MACHINES; i++)
        assert_int_equal(m[i].status, FAR_OK);
    assert_int_equal(tables(), 0);
}

/* ---- benchmarks ------------------------------------------------------------------------------ */

#define RUNS_MAX 16

static void on_index(void *arg, const char *index)
{
    (void)arg;
    (void)index;
}

static void on_run(void *arg, const struct bench_run *run)
{
    struct machine *m = arg;
    if (m->runs < RUNS_MAX)
        m->run[m->runs++] = *run;
}

static void measure(struct machine *m)
{
    struct bench_config c = bench_defaults;
    struct bench_observer observer = {
        .arg = m, .index_begin = on_index, .run = on_run, .index_done = on_index};
    c.pool = pool;
    c.index = "sephash";
    c.keys = 3001;
    c.ops = 2003;
    c.depth = 2;
    c.machines = meet_machines(m->meet);
    c.rank = meet_rank(m->meet);
    c.meet = m->meet;
    c.clients = 4; /* two machines have one, the first has two */
    c.warmup = 50;
    c.counters = true;
    c.stop = meet_stop(m->meet);
    note(m, workload_parse("load,a,d,insert,c,delete,iterate", &c.workloads));
    if (m->status == FAR_OK)
        note(m, bench_suite(&c, &observer));
}

static void assert_done(const struct bench_run *r, uint64_t ops)
{
    uint64_t latencies = 0, in_windows = 0;
    assert_int_equal(r->ops, ops);
    assert_int_equal(r->first_error, FAR_OK);
    assert_int_equal(r->halted_by, FAR_OK);
    assert_false(r->interrupted);
    assert_true(r->seconds > 0 && r->ops_per_s > 0 && r->space_known && r->counters.on);
    for (unsigned k = 0; k < FAR_OP_KINDS; k++) {
        assert_int_equal(bench_op_errors(&r->op[k]), 0);
        assert_int_equal(r->op[k].stats.not_found, 0);
        latencies += r->op[k].latency.count;
    }
    for (unsigned n = 0; n <= r->windows; n++)
        in_windows += r->window[n].ops;
    assert_int_equal(in_windows, ops);
    assert_true(latencies == ops || r->op[FAR_OP_ITERATE].stats.count > 0);
}

static void the_result_is_that_of_all_machines(void **state)
{
    (void)state;
    struct machine m[MACHINES] = {{.status = FAR_OK}};
    static const uint64_t ops[] = {3001, 2003, 2003, 2003, 2003, 2003};
    for (unsigned i = 0; i < MACHINES; i++) {
        m[i].run = calloc(RUNS_MAX, sizeof *m[i].run);
        assert_non_null(m[i].run);
    }
    run_machines(m, MACHINES, measure);
    for (unsigned i = 0; i < MACHINES; i++) {
        assert_string_equal(m[i].detail, "");
        assert_int_equal(m[i].status, FAR_OK);
        assert_int_equal(m[i].runs, 7);
        for (unsigned k = 0; k < 6; k++)
            assert_done(&m[i].run[k], ops[k]);
        assert_true((m[i].run[1].space.figure[0].name != NULL) == (i == 0));
        assert_int_equal(m[i].run[3].space.splits, m[0].run[3].space.splits);
        assert_memory_equal(m[i].run[1].op, m[0].run[1].op, sizeof m[0].run[1].op);
        assert_true(m[i].run[1].seconds == m[0].run[1].seconds);
    }
    /* Each of the four iterates over all that is there: 2053 deletes, about 103 and 2053
     * inserts. */
    assert_int_equal(m[0].run[6].op[FAR_OP_ITERATE].stats.entries % 4, 0);
    for (unsigned i = 0; i < MACHINES; i++)
        free(m[i].run);
}

/* ---- packing --------------------------------------------------------------------------------- */

static void what_is_packed_arrives(void **state)
{
    (void)state;
    uint64_t in[512] = {0}, out[512];
    unsigned char packed[PACK_BYTES_MAX(sizeof in)];
    assert_int_equal(pack(in, sizeof in, packed), 0);
    assert_int_equal(unpack(packed, 0, out, sizeof out), FAR_OK);
    assert_memory_equal(in, out, sizeof in);
    in[0] = 1;
    in[3] = UINT64_MAX;
    in[400] = 127;
    in[511] = 128;
    size_t len = pack(in, sizeof in, packed);
    assert_int_equal(len, 2 + 11 + 3 + 3);
    memset(out, 0xff, sizeof out);
    assert_int_equal(unpack(packed, len, out, sizeof out), FAR_OK);
    assert_memory_equal(in, out, sizeof in);
    memset(in, 0xff, sizeof in);
    assert_int_equal(pack(in, sizeof in, packed), sizeof packed);
    assert_int_equal(unpack(packed, sizeof packed, out, sizeof out), FAR_OK);
    assert_memory_equal(in, out, sizeof in);
}

static void damaged_results_are_refused(void **state)
{
    (void)state;
    uint64_t in[4] = {1, 2, 3, UINT64_MAX}, out[4];
    unsigned char packed[PACK_BYTES_MAX(sizeof in)];
    size_t len = pack(in, sizeof in, packed);
    assert_int_equal(unpack(packed, len - 1, out, sizeof out), FAR_CORRUPT);
    assert_int_equal(unpack(packed, 1, out, sizeof out), FAR_CORRUPT);
    assert_int_equal(unpack(packed, len, out, sizeof out - 8), FAR_CORRUPT);
    memset(packed, 0x80, sizeof packed);
    assert_int_equal(unpack(packed, sizeof packed, out, sizeof out), FAR_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_packed_arrives),
        cmocka_unit_test(damaged_results_are_refused),
        cmocka_unit_test_setup_teardown(all_get_what_machine_0_shares, make_pool, remove_pool),
        cmocka_unit_test_setup_teardown(all_get_the_first_error, make_pool, remove_pool),
        cmocka_unit_test_setup_teardown(a_machine_that_leaves_ends_the_others, make_pool,
                                        remove_pool),
        cmocka_unit_test_setup_teardown(a_signal_of_one_stops_all, make_pool, remove_pool),
        cmocka_unit_test_setup_teardown(keys_that_others_added_become_known, make_pool,
                                        remove_pool),
        cmocka_unit_test_setup_teardown(other_options_are_refused, make_pool, remove_pool),
        cmocka_unit_test_setup_teardown(another_number_of_machines_is_refused, make_pool,
                                        remove_pool),
        cmocka_unit_test_setup_teardown(of_two_with_one_rank_one_is_refused, make_pool,
                                        remove_pool),
        cmocka_unit_test_setup_teardown(wrong_ranks_and_names_are_refused, make_pool, NULL),
        cmocka_unit_test_setup_teardown(machines_that_do_not_come_are_named, make_pool,
                                        remove_pool),
        cmocka_unit_test_setup_teardown(a_machine_that_dies_is_named, make_pool, remove_pool),
        cmocka_unit_test_setup_teardown(a_table_of_a_run_that_was_killed_confuses_nobody, make_pool,
                                        remove_pool),
        cmocka_unit_test_setup_teardown(the_result_is_that_of_all_machines, make_pool, remove_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
