/* Processes that work together: all or none of them run, and their end is noticed. */
#include "base/err.h"
#include "bench/company.h"
#include "bench/crew.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#undef fail

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 3u
#define THREADS   2u

struct shared {
    unsigned fails_early, fails_to_open, dies, dies_running; /* which process; PROCESSES: none */
    bool waits_for_stop;
    _Atomic unsigned opened, running, ran, closed;
};

struct member {
    struct shared *shared;
    const struct seat *seat;
};

static int member_open(void *arg)
{
    struct member *m = arg;
    atomic_fetch_add(&m->shared->opened, 1);
    return m->seat->number == m->shared->fails_to_open ? err_fail(FAR_TABLE_FULL, "no room in here")
                                                       : FAR_OK;
}

static void member_run(void *arg)
{
    struct member *m = arg;
    /* All have opened before the first runs. */
    if (atomic_load(&m->shared->opened) != PROCESSES * THREADS)
        _exit(9);
    atomic_fetch_add(&m->shared->running, 1);
    if (m->seat->number == m->shared->dies_running)
        raise(SIGKILL);
    while (m->shared->waits_for_stop && !atomic_load(m->seat->stop))
        usleep(1000);
    atomic_fetch_add(&m->shared->ran, 1);
}

static void member_close(void *arg)
{
    struct member *m = arg;
    atomic_fetch_add(&m->shared->closed, 1);
}

static int work(void *arg, struct seat *seat)
{
    struct shared *shared = seat->memory;
    struct member member = {shared, seat};
    void *members[THREADS] = {&member, &member};
    struct crew_job job = {.open = member_open,
                           .run = member_run,
                           .close = member_close,
                           .meet = company_meet,
                           .meeting = seat};
    (void)arg;
    if (seat->number == shared->fails_early)
        return err_fail(FAR_NO_TABLE, "nothing here");
    if (seat->number == shared->dies)
        _exit(3);
    return crew_run(&job, members, THREADS);
}

static const struct shared nothing_special = {.fails_early = PROCESSES,
                                              .fails_to_open = PROCESSES,
                                              .dies = PROCESSES,
                                              .dies_running = PROCESSES};

static struct company *start(const atomic_bool *stop, struct shared **shared)
{
    struct company *company = NULL;
    assert_int_equal(company_start(PROCESSES, sizeof **shared, stop, work, NULL, &company), FAR_OK);
    *shared = company_memory(company);
    **shared = nothing_special;
    return company;
}

static void nobody_is_left(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void all_run_each_time(void **state)
{
    (void)state;
    struct shared *shared;
    struct company *company = start(NULL, &shared);
    for (unsigned i = 0; i < 5; i++) {
        *shared = nothing_special;
        assert_int_equal(company_run(company, NULL, NULL), FAR_OK);
        assert_int_equal(shared->ran, PROCESSES * THREADS);
        assert_int_equal(shared->closed, PROCESSES * THREADS);
    }
    company_end(company);
    nobody_is_left();
}

static void if_one_fails_nobody_runs(void **state)
{
    (void)state;
    struct shared *shared;
    struct company *company = start(NULL, &shared);
    shared->fails_early = 1;
    assert_int_equal(company_run(company, NULL, NULL), FAR_NO_TABLE);
    assert_string_equal(far_error_detail(), "nothing here");
    assert_int_equal(shared->ran, 0);

    *shared = nothing_special;
    shared->fails_to_open = 2;
    assert_int_equal(company_run(company, NULL, NULL), FAR_TABLE_FULL);
    assert_string_equal(far_error_detail(), "no room in here");
    assert_int_equal(shared->ran, 0);
    assert_int_equal(shared->closed, PROCESSES * THREADS);

    *shared = nothing_special;
    assert_int_equal(company_run(company, NULL, NULL), FAR_OK); /* no harm done */
    company_end(company);
    nobody_is_left();
}

static void a_death_is_told(void **state)
{
    (void)state;
    struct shared *shared;
    struct company *company = start(NULL, &shared);
    shared->dies = 1;
    assert_int_equal(company_run(company, NULL, NULL), FAR_SYSTEM);
    assert_non_null(strstr(far_error_detail(), "of the benchmark ended, with 3"));
    assert_int_equal(company_run(company, NULL, NULL), FAR_SYSTEM);
    company_end(company);
    nobody_is_left();

    company = start(NULL, &shared);
    shared->dies_running = 0;
    shared->waits_for_stop = true; /* the others would for ever */
    assert_int_equal(company_run(company, NULL, NULL), FAR_SYSTEM);
    assert_non_null(strstr(far_error_detail(), "of the benchmark was killed: Killed"));
    company_end(company);
    nobody_is_left();
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

static void a_stop_is_passed_on(void **state)
{
    (void)state;
    struct ticks ticks = {.stop = false};
    struct company *company = start(&ticks.stop, &ticks.shared);
    ticks.shared->waits_for_stop = true;
    assert_int_equal(company_run(company, stop_when_all_run, &ticks), FAR_OK);
    assert_int_equal(ticks.shared->ran, PROCESSES * THREADS);
    company_end(company);
    nobody_is_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_run_each_time),
        cmocka_unit_test(if_one_fails_nobody_runs),
        cmocka_unit_test(a_death_is_told),
        cmocka_unit_test(a_stop_is_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
