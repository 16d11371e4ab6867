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
};

/* Runs the job with one thread for each member. The status of the first that failed to open;
 * FAR_SYSTEM if a thread could not be made; FAR_OK otherwise. */
int crew_run(const struct crew_job *job, void *const *members, unsigned count);

#endif
