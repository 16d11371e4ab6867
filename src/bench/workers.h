/*
 * Workers: threads that get ready, start together and stop together. They belong to this process,
 * or to a team of processes.
 *
 * The processes of a team are forked before anything else is done, because what keeps a pool open
 * (connections, threads, UCX) does not survive a fork. Then they wait for work. What they have to
 * do, and what came of it, is in memory that all of them map at the same address. Pointers into it
 * are valid in all of them, and so are pointers to what existed before the fork.
 *
 * The process that started the team leads it and has no workers itself. The others die with the
 * leader. They ignore the signals that end a measurement: the leader passes the stop on.
 */
#ifndef BENCH_WORKERS_H
#define BENCH_WORKERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct fab;
struct workers_team;

struct workers_job {
    /* Gets a worker ready. If this fails for one of them, none runs. */
    int (*open)(void *worker);
    /* Called before run, and returns before any of them runs; may be NULL. */
    void (*warm)(void *worker);
    void (*run)(void *worker);
    /* Called with `arg` before modelled workers run; may be NULL. */
    void (*begin)(void *arg);
    /* The same when all have run. */
    void (*end)(void *arg);
    /* Called when all have run, with nothing else going on; also if open failed. */
    void (*close)(void *worker);
    /* Called by the waiting thread at least ten times a second; may be NULL. */
    void (*tick)(void *arg);
    /* Called by that thread when all workers are ready, are warm and have run, before they go on.
     * Meets other machines there; `status` is that of the first worker that has failed. Unless it
     * returns FAR_OK, the workers do not run. NULL: there are none, as in a team or a model. */
    int (*meet)(void *arg, int status);
    void *arg;
    void *first; /* of an array of workers */
    size_t size; /* of one */
    unsigned count;
};

/* What one process of a team knows of the team. */
struct workers_process {
    unsigned number; /* from 0 */
    void *memory;    /* shared */
    atomic_bool *stop;
    struct workers_meeting *meeting;
    unsigned threads;
    bool met; /* the work at hand came as far as workers_run() */
};

/*
 * Runs the job with one thread for each worker. In a process of a team, `process` is what it was
 * given, the job has as many workers as the process has threads, and they start and stop with
 * those of the other processes. Otherwise it is NULL.
 *
 * Returns the status of the first worker that failed to open, FAR_SYSTEM if a thread could not be
 * started, FAR_NO_MEMORY, or FAR_OK.
 */
int workers_run(const struct workers_job *job, struct workers_process *process);

/* The same, with a client of a modelled pool for each worker, in virtual time. */
int workers_run_modelled(const struct workers_job *job, struct fab *model);

/*
 * Starts `processes` processes for `threads` workers each. Every process calls work(arg, process)
 * once for each workers_team_run(). The work ends in workers_run(), or fails before that and
 * returns its status.
 *
 * bytes   of shared memory, zeroed; the system provides a page when it is first touched
 * stop    of the leader: passed on while work is under way; may be NULL
 *
 * FAR_NO_MEMORY, FAR_SYSTEM
 */
int workers_team_start(unsigned processes, unsigned threads, size_t bytes, const atomic_bool *stop,
                       int (*work)(void *arg, struct workers_process *process), void *arg,
                       struct workers_team **team);
/* Ends the processes. */
void workers_team_end(struct workers_team *team);

void *workers_team_memory(const struct workers_team *team);

/*
 * Has the team do the work that the shared memory describes. `tick` is as in a job.
 *
 * FAR_SYSTEM  a process has died; all further calls fail with this too
 * or what the work of a process failed with.
 */
int workers_team_run(struct workers_team *team, void (*tick)(void *arg), void *arg);

#endif
