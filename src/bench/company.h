/*
 * A company: processes that work together as the threads of a crew do.
 *
 * They are forked before anything else is done, since what keeps a pool open (connections, threads,
 * UCX) does not survive a fork, and wait for work. What they are to do, and what came of it, is in
 * memory that all of them share at the same address; pointers into it, and to what was there before
 * the fork, mean the same to all.
 *
 * The process that started the company only leads it. Each piece of work has three meetings: all
 * are ready, all have run, all have closed. The others die with the leader, and ignore the signals
 * that end a measurement: the leader tells them.
 */
#ifndef BENCH_COMPANY_H
#define BENCH_COMPANY_H

#include <stdatomic.h>
#include <stddef.h>

struct company;

/* What a process of the company knows of it. */
struct seat {
    unsigned number; /* from 0 */
    void *memory;    /* shared */
    atomic_bool *stop;
    int line;          /* to the leader                      */
    unsigned meetings; /* of the work under way, so far      */
};

/*
 * Starts so many processes. Each calls work(arg, seat) once for every company_run(); a work that
 * goes through crew_run() gives it company_meet() and the seat, and one that fails before that
 * just returns its status.
 *
 * bytes   of shared memory, zeroed; taken from the system when touched
 * stop    of the leader: is passed on while work is under way; may be NULL
 *
 * FAR_NO_MEMORY, FAR_SYSTEM
 */
int company_start(unsigned processes, size_t bytes, const atomic_bool *stop,
                  int (*work)(void *arg, struct seat *seat), void *arg, struct company **company);
/* Ends the processes. */
void company_end(struct company *company);

void *company_memory(const struct company *company);

/*
 * Has the work done that the shared memory describes. tick is called at least ten times a second
 * meanwhile, and may be NULL.
 *
 * FAR_SYSTEM  a process has died, which is the end of the company: further runs fail alike
 * or what the work of one failed with.
 */
int company_run(struct company *company, void (*tick)(void *arg), void *arg);

/* For crew_job.meet; the meeting is a seat. */
int company_meet(void *seat, int status);

#endif
