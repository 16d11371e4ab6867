/* Workers, threads or processes: all or none of them run, and the death of a process is noticed. */
#include "base/err.h"
#include "bench/workers.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#undef fail

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 3u
#define THREADS   2u

struct shared {
    unsigned fails_early, fails_to_open, dies, dies_running; /* which process; PROCESSES: none */
    bool waits_for_stop;
    _Atomic unsigned opened, warm, running, ran, closed;
};

struct member {
    struct shared *shared;
    const struct workers_process *process; /* NULL: threads of this one */
};

static int member_open(void *arg)
{
    struct member *m = arg;
    atomic_fetch_add(&m->shared->opened, 1);
    bool fails = m->process && m->process->number == m->shared->fails_to_open;
    return fails ? err_fail(FAR_TABLE_FULL, "no room in here") : FAR_OK;
}

static void member_warm(void *arg)
{
    struct member *m = arg;
    /* All have opened before the first goes on. */
    if (atomic_load(&m->shared->opened) != PROCESSES * THREADS)
        _exit(9);
    atomic_fetch_add(&m->shared->warm, 1);
}

static void member_run(void *arg)
{
    struct member *m = arg;
    /* All are warm before the first runs. */
    if (atomic_load(&m->shared->warm) != PROCESSES * THREADS)
        _exit(9);
    atomic_fetch_add(&m->shared->running, 1);
    if (m->process && m->process->number == m->shared->dies_running)
        raise(SIGKILL);
    while (m->shared->waits_for_stop && !atomic_load(m->process->stop))
        usleep(1000);
    atomic_fetch_add(&m->shared->ran, 1);
}

static void member_close(void *arg)
{
    struct member *m = arg;
    atomic_fetch_add(&m->shared->closed, 1);
}

static struct workers_job job_of(struct member *members, unsigned count)
{
    return (struct workers_job){.open = member_open,
                                .warm = member_warm,
                                .run = member_run,
                                .close = member_close,
                                .first = members,
                                .size = sizeof *members,
                                .count = count};
}

static int work(void *arg, struct workers_process *process)
{
    struct shared *shared = process->memory;
    struct member members[THREADS] = {{shared, process}, {shared, process}};
    struct workers_job job = job_of(members, THREADS);
    (void)arg;
    if (process->number == shared->fails_early)
        return err_fail(FAR_NO_TABLE, "nothing here");
    if (process->number == shared->dies)
        _exit(3);
    return workers_run(&job, process);
}

static const struct shared nothing_special = {.fails_early = PROCESSES,
                                              .fails_to_open = PROCESSES,
                                              .dies = PROCESSES,
                                              .dies_running = PROCESSES};

static struct workers_team *start(const atomic_bool *stop, struct shared **shared)
{
    struct workers_team *team = NULL;
    assert_int_equal(
        workers_team_start(PROCESSES, THREADS, sizeof **shared, stop, work, NULL, &team), FAR_OK);
    *shared = workers_team_memory(team);
    **shared = nothing_special;
    return team;
}

static void assert_no_process_is_left(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void all_processes_run_each_time(void **state)
{
    (void)state;
    struct shared *shared;
    struct workers_team *team = start(NULL, &shared);
    for (unsigned i = 0; i < 5; i++) {
        *shared = nothing_special;
        assert_int_equal(workers_team_run(team, NULL, NULL), FAR_OK);
        assert_int_equal(shared->ran, PROCESSES * THREADS);
        assert_int_equal(shared->closed, PROCESSES * THREADS);
    }
    workers_team_end(team);
    assert_no_process_is_left();
}

static void if_one_process_fails_none_runs(void **state)
{
    (void)state;
    struct shared *shared;
    struct workers_team *team = start(NULL, &shared);
    shared->fails_early = 1;
    assert_int_equal(workers_team_run(team, NULL, NULL), FAR_NO_TABLE);
    assert_string_equal(far_error_detail(), "nothing here");
    assert_int_equal(shared->ran, 0);

    *shared = nothing_special;
    shared->fails_to_open = 2;
    assert_int_equal(workers_team_run(team, NULL, NULL), FAR_TABLE_FULL);
    assert_string_equal(far_error_detail(), "no room in here");
    assert_int_equal(shared->ran, 0);
    assert_int_equal(shared->closed, PROCESSES * THREADS);

    *shared = nothing_special;
    assert_int_equal(workers_team_run(team, NULL, NULL), FAR_OK); /* the team still works */
    workers_team_end(team);
    assert_no_process_is_left();
}

static void the_death_of_a_process_is_reported(void **state)
{
    (void)state;
    struct shared *shared;
    struct workers_team *team = start(NULL, &shared);
    shared->dies = 1;
    assert_int_equal(workers_team_run(team, NULL, NULL), FAR_SYSTEM);
    assert_non_null(strstr(far_error_detail(), "of the benchmark exited with status 3"));
    assert_int_equal(workers_team_run(team, NULL, NULL), FAR_SYSTEM);
    workers_team_end(team);
    assert_no_process_is_left();

    team = start(NULL, &shared);
    shared->dies_running = 0;
    shared->waits_for_stop = true; /* the others would run for ever */
    assert_int_equal(workers_team_run(team, NULL, NULL), FAR_SYSTEM);
    assert_non_null(strstr(far_error_detail(), "of the benchmark was killed: Killed"));
    workers_team_end(team);
    assert_no_process_is_left();
}

struct ticks {
    struct shared *shared;
    atomic_bool stop;
};

static void stop_when_all_run(void *arg)
{
    struct ticks *t = arg;
    if (atomic_load(&t->shared->running) == PROCESSES * THREADS)
        atomic_store(&t->stop, true);
}

static void a_stop_is_passed_on_to_the_processes(void **state)
{
    (void)state;
    struct ticks ticks = {.stop = false};
    struct workers_team *team = start(&ticks.stop, &ticks.shared);
    ticks.shared->waits_for_stop = true;
    assert_int_equal(workers_team_run(team, stop_when_all_run, &ticks), FAR_OK);
    assert_int_equal(ticks.shared->ran, PROCESSES * THREADS);
    workers_team_end(team);
    assert_no_process_is_left();
}

static void threads_of_one_process_run_all_or_none(void **state)
{
    (void)state;
    struct shared shared = nothing_special;
    struct member members[PROCESSES * THREADS];
    for (unsigned i = 0; i < PROCESSES * THREADS; i++)
        members[i] = (struct member){.shared = &shared};
    struct workers_job job = job_of(members, PROCESSES * THREADS);
    assert_int_equal(workers_run(&job, NULL), FAR_OK);
    assert_int_equal(shared.ran, PROCESSES * THREADS);
    assert_int_equal(shared.closed, PROCESSES * THREADS);

    struct workers_process third = {.number = 2}; /* makes one of the threads fail */
    shared = nothing_special;
    shared.fails_to_open = 2;
    members[1].process = &third;
    assert_int_equal(workers_run(&job, NULL), FAR_TABLE_FULL);
    assert_string_equal(far_error_detail(), "no room in here");
    assert_int_equal(shared.ran, 0);
    assert_int_equal(shared.closed, PROCESSES * THREADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_of_one_process_run_all_or_none),
        cmocka_unit_test(all_processes_run_each_time),
        cmocka_unit_test(if_one_process_fails_none_runs),
        cmocka_unit_test(the_death_of_a_process_is_reported),
        cmocka_unit_test(a_stop_is_passed_on_to_the_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
