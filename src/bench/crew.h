/*
 * A crew: threads that get ready one by one, start together, and are only let go when the last of
 * them is done.
 */
#ifndef BENCH_CREW_H
#define BENCH_CREW_H

struct crew_job {
    /* Gets ready. If it fails for one, nobody runs. */
    int (*open)(void *member);
    void (*run)(void *member);
    /* After all have run, with nothing else going on. Called also if open failed. */
    void (*close)(void *member);
    /* Called by the waiting thread about ten times a second; may be NULL. */
    void (*tick)(void *arg);
    void *arg;
    /* For a crew that is part of a company: called when all members are ready, with the status of
     * that, and when all are done; returns when those of the other processes are as far. What it
     * returns the first time decides whether they run. May be NULL. */
    int (*meet)(void *meeting, int status);
    void *meeting;
};

/* Runs the job with one thread for each member. The status of the first that failed to open;
 * FAR_SYSTEM if a thread could not be made; what the first meeting came to; FAR_OK otherwise. */
int crew_run(const struct crew_job *job, void *const *members, unsigned count);

#endif
