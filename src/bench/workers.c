/*
 * All workers, of one process or of several, come to the same meeting. Each says four times that it
 * has arrived: when it is ready, when it is warm, when it has run, and (one for each process of a
 * team) when all is closed. The leader waits for all of them, then lets them go on. The meeting
 * consists of semaphores and atomics, so a process that is killed leaves nothing locked.
 */
#include "bench/workers.h"
#include "base/err.h"
#include "model/model.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS 100000000
#define HEAD    4096u /* bytes before the memory of the work, for the meeting */

struct workers_meeting {
    sem_t arrived;
    sem_t begin; /* one for each process */
    sem_t warm, run, close;
    atomic_bool stop, end;
    _Atomic int status; /* of the first that failed */
    char detail[256];
};
_Static_assert(sizeof(struct workers_meeting) <= HEAD, "the meeting precedes the work's memory");

struct workers_team {
    unsigned count; /* processes that were started */
    unsigned threads;
    const atomic_bool *stop;
    struct workers_meeting *meeting;
    size_t bytes;
    bool broken;
    pid_t pid[];
};

/* ---- the meeting ----------------------------------------------------------------------------- */

static void meeting_init(struct workers_meeting *m, bool shared)
{
    sem_t *const all[] = {&m->arrived, &m->begin, &m->warm, &m->run, &m->close};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        sem_init(all[i], shared, 0);
}

static void post(sem_t *sem, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        sem_post(sem);
}

static void await(sem_t *sem)
{
    while (sem_wait(sem) != 0)
        ASSERT(errno == EINTR);
}

static void note(struct workers_meeting *m, int status)
{
    int none = FAR_OK;
    if (status != FAR_OK && atomic_compare_exchange_strong(&m->status, &none, status))
        snprintf(m->detail, sizeof m->detail, "%s", far_error_detail());
}

/* Arrives for `count` workers, and waits until they may go on. */
static void arrive(struct workers_meeting *m, unsigned count, int status, sem_t *next)
{
    note(m, status);
    post(&m->arrived, count);
    for (unsigned i = 0; next && i < count; i++)
        await(next);
}

/* Takes the part of workers that could not be started. */
static void stand_in(struct workers_meeting *m, unsigned count, int status)
{
    arrive(m, count, status, &m->warm);
    arrive(m, count, FAR_OK, &m->run);
    arrive(m, count, FAR_OK, &m->close);
}

/* Has a process died? Its status is left for workers_team_end() to collect. */
static int find_dead(struct workers_team *t)
{
    for (unsigned i = 0; i < t->count && !t->broken; i++) {
        siginfo_t info = {.si_pid = 0};
        (void)waitid(P_PID, (id_t)t->pid[i], &info, WEXITED | WNOWAIT | WNOHANG);
        t->broken = info.si_pid != 0;
        if (t->broken && info.si_code == CLD_EXITED)
            return err_fail(FAR_SYSTEM, "process %d of the benchmark exited with status %d",
                            (int)t->pid[i], info.si_status);
        if (t->broken)
            return err_fail(FAR_SYSTEM, "process %d of the benchmark was killed: %s",
                            (int)t->pid[i], strsignal(info.si_status));
    }
    return FAR_OK;
}

/* Waits until `count` have arrived. Without a team, workers are threads of this process. */
static int gather(struct workers_meeting *m, unsigned count, struct workers_team *t,
                  void (*tick)(void *arg), void *arg)
{
    int rc = FAR_OK;
    while (count > 0 && rc == FAR_OK) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += TICK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (sem_clockwait(&m->arrived, CLOCK_MONOTONIC, &until) == 0)
            count--;
        else if (t)
            rc = find_dead(t);
        if (t && t->stop && atomic_load(t->stop))
            atomic_store(&m->stop, true);
        if (tick)
            tick(arg);
    }
    return rc;
}

static int result(const struct workers_meeting *m)
{
    return m->status != FAR_OK ? err_fail(m->status, "%s", m->detail) : FAR_OK;
}

/* Leads `count` workers through being ready, being warm and having run. */
static int lead(struct workers_meeting *m, unsigned count, struct workers_team *t,
                void (*tick)(void *arg), int (*meet)(void *arg, int status), void *arg)
{
    sem_t *const next[] = {&m->warm, &m->run, &m->close};
    int rc = FAR_OK;
    for (unsigned i = 0; i < sizeof next / sizeof *next && rc == FAR_OK; i++) {
        rc = gather(m, count, t, tick, arg);
        if (rc == FAR_OK && meet) {
            (void)result(m); /* so that the others get its detail */
            note(m, meet(arg, m->status));
        }
        if (rc == FAR_OK)
            post(next[i], count);
    }
    return rc;
}

/* ---- threads --------------------------------------------------------------------------------- */

struct thread {
    const struct workers_job *job;
    struct workers_meeting *meeting;
    void *worker;
    pthread_t id;
};

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    arrive(t->meeting, 1, t->job->open(t->worker), &t->meeting->warm);
    if (t->meeting->status == FAR_OK && t->job->warm)
        t->job->warm(t->worker);
    arrive(t->meeting, 1, FAR_OK, &t->meeting->run);
    if (t->meeting->status == FAR_OK)
        t->job->run(t->worker);
    arrive(t->meeting, 1, FAR_OK, &t->meeting->close);
    t->job->close(t->worker);
    return NULL;
}

int workers_run(const struct workers_job *job, struct workers_process *process)
{
    struct workers_meeting own = {.status = FAR_OK}, *m = process ? process->meeting : &own;
    struct thread *threads = calloc(job->count, sizeof *threads);
    if (!threads)
        return err_fail(FAR_NO_MEMORY, "no memory for %u threads", job->count);
    if (!process)
        meeting_init(&own, false);

    unsigned started = 0;
    int error = 0;
    while (started < job->count && error == 0) {
        struct thread *t = &threads[started];
        *t = (struct thread){
            .job = job, .meeting = m, .worker = (char *)job->first + started * job->size};
        error = pthread_create(&t->id, NULL, thread_main, t);
        started += error == 0;
    }
    int rc = error == 0
                 ? FAR_OK
                 : err_fail(FAR_SYSTEM, "cannot start thread %u: %s", started, strerror(error));
    if (process) {
        ASSERT(job->count == process->threads && !process->met);
        process->met = true;
        stand_in(m, job->count - started, rc);
    } else {
        note(m, rc);
        rc = lead(m, started, NULL, job->tick, job->meet, job->arg);
        ASSERT(rc == FAR_OK); /* only processes can fail to arrive */
    }
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i].id, NULL);
    free(threads);
    return result(m);
}

/* ---- clients of a model ---------------------------------------------------------------------- */

struct modelled {
    const struct workers_job *job;
    void *worker;
    int status;
};

static void modelled_open(void *arg)
{
    struct modelled *m = arg;
    m->status = m->job->open(m->worker);
}

int workers_run_modelled(const struct workers_job *job, struct fab *model)
{
    struct modelled *all = calloc(job->count, sizeof *all);
    if (!all)
        return err_fail(FAR_NO_MEMORY, "no memory for %u clients", job->count);
    for (unsigned i = 0; i < job->count; i++)
        all[i] = (struct modelled){.job = job, .worker = (char *)job->first + i * job->size};
    int rc = model_run(model, modelled_open, all, sizeof *all, job->tick, job->arg);
    int started = rc;
    for (unsigned i = 0; i < job->count && rc == FAR_OK; i++)
        rc = all[i].status;
    struct err_detail kept;
    err_keep(&kept);
    if (rc == FAR_OK && job->warm)
        rc = model_run(model, job->warm, job->first, job->size, job->tick, job->arg);
    if (rc == FAR_OK && job->begin)
        job->begin(job->arg);
    if (rc == FAR_OK)
        rc = model_run(model, job->run, job->first, job->size, job->tick, job->arg);
    if (rc == FAR_OK && job->end)
        job->end(job->arg);
    if (started == FAR_OK) {
        int closed = model_run(model, job->close, job->first, job->size, job->tick, job->arg);
        ASSERT(closed == FAR_OK); /* the clients have their stacks */
    }
    if (rc != FAR_OK)
        err_restore(&kept);
    free(all);
    return rc;
}

/* ---- processes ------------------------------------------------------------------------------- */

void *workers_team_memory(const struct workers_team *t)
{
    return (char *)t->meeting + HEAD;
}

static _Noreturn void process_main(struct workers_process *p, pid_t leader,
                                   int (*work)(void *arg, struct workers_process *p), void *arg)
{
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != leader)
        _exit(1);
    for (await(&p->meeting->begin); !p->meeting->end; await(&p->meeting->begin)) {
        p->met = false;
        int rc = work(arg, p);
        if (!p->met)
            stand_in(p->meeting, p->threads, rc);
        arrive(p->meeting, 1, rc, NULL);
    }
    _exit(0);
}

int workers_team_start(unsigned processes, unsigned threads, size_t bytes, const atomic_bool *stop,
                       int (*work)(void *arg, struct workers_process *process), void *arg,
                       struct workers_team **team)
{
    ASSERT(processes > 0 && threads > 0);
    struct workers_team *t = calloc(1, sizeof *t + processes * sizeof *t->pid);
    if (!t)
        return err_fail(FAR_NO_MEMORY, "no memory for %u processes", processes);
    *t = (struct workers_team){.threads = threads, .stop = stop, .bytes = HEAD + bytes};
    t->meeting = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (t->meeting == MAP_FAILED) {
        free(t);
        return err_fail(FAR_NO_MEMORY, "no memory for %zu bytes that processes share", bytes);
    }
    meeting_init(t->meeting, true);
    fflush(NULL); /* or each process would write what is buffered again */
    for (; t->count < processes; t->count++) {
        pid_t leader = getpid(), pid = fork();
        if (pid == 0) {
            struct workers_process p = {.number = t->count,
                                        .memory = workers_team_memory(t),
                                        .stop = &t->meeting->stop,
                                        .meeting = t->meeting,
                                        .threads = threads};
            process_main(&p, leader, work, arg);
        }
        if (pid < 0) {
            int rc = err_fail(FAR_SYSTEM, "cannot start process %u: %s", t->count, strerror(errno));
            workers_team_end(t);
            return rc;
        }
        t->pid[t->count] = pid;
    }
    *team = t;
    return FAR_OK;
}

void workers_team_end(struct workers_team *t)
{
    if (!t)
        return;
    atomic_store(&t->meeting->end, true);
    post(&t->meeting->begin, t->count);
    for (unsigned i = 0; i < t->count; i++) {
        if (t->broken) /* the others may wait for the one that died */
            kill(t->pid[i], SIGKILL);
        while (waitpid(t->pid[i], NULL, 0) < 0 && errno == EINTR) {
        }
    }
    munmap(t->meeting, t->bytes);
    free(t);
}

int workers_team_run(struct workers_team *t, void (*tick)(void *arg), void *arg)
{
    struct workers_meeting *m = t->meeting;
    if (t->broken)
        return err_fail(FAR_SYSTEM, "a process of the benchmark has died");
    m->status = FAR_OK;
    post(&m->begin, t->count);
    int rc = lead(m, t->count * t->threads, t, tick, NULL, arg);
    if (rc == FAR_OK)
        rc = gather(m, t->count, t, tick, arg);
    return rc == FAR_OK ? result(m) : rc;
}
