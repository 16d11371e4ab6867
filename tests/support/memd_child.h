/* Memory nodes for a test: `farside memd` as child processes, on ports of the loopback interface
 * that are free. */
#ifndef TESTS_FABRIC_MEMD_CHILD_H
#define TESTS_FABRIC_MEMD_CHILD_H

#include "base/err.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMD_NODES_MAX 8

/* With this few file descriptors, all endpoints of ucx: share one hub. */
#define FEW_DESCRIPTORS 40

/* How many this process may have. Nodes raise theirs again. */
static inline void memd_descriptors(rlim_t count)
{
    struct rlimit limit;

    ASSERT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = count;
    ASSERT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

struct memd_child {
    pid_t pid;
    char address[256]; /* host:port */
};

/* Starts a node with these arguments after --listen. False if it ends before it is ready. */
static inline bool memd_try_start(struct memd_child *child, const char *listen,
                                  const char *const *more)
{
    const char *argv[32] = {FARSIDE_PROGRAM, "memd", "--ready-fd", "3", "--listen"};
    char line[256];
    unsigned n = 5;
    int fds[2];
    FILE *ready;

    argv[n++] = listen;
    for (; *more; more++)
        argv[n++] = *more;
    ASSERT(pipe(fds) == 0);
    child->pid = fork();
    ASSERT(child->pid >= 0);
    if (child->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* if the test dies, so does its node */
        if (dup2(open("/dev/null", O_WRONLY), 1) < 0 || (fds[1] != 3 && dup2(fds[1], 3) < 0))
            _exit(126);
        /* Nodes end by the dozen, and a sanitizer's look for leaks takes seconds. */
        setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
        execv(FARSIDE_PROGRAM, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(fds[1]);
    ready = fdopen(fds[0], "r");
    ASSERT(ready);
    bool started = fgets(line, sizeof line, ready) != NULL;
    fclose(ready);
    if (!started) {
        ASSERT(waitpid(child->pid, NULL, 0) == child->pid);
        return false;
    }
    line[strcspn(line, "\n")] = '\0';
    snprintf(child->address, sizeof child->address, "%s", line + strlen("ucx://"));
    return true;
}

/* The same; aborts if it cannot. A node that comes back may find its port in use for a while: ports
 * that others let the system choose are of the same range. */
static inline void memd_start_at(struct memd_child *child, const char *listen,
                                 const char *const *more)
{
    unsigned tries = 100;
    while (!memd_try_start(child, listen, more)) {
        ASSERT(--tries > 0);
        usleep(100000);
    }
}

/* The same at a port of the loopback interface; 0 takes any. */
static inline void memd_start(struct memd_child *child, unsigned port, const char *const *more)
{
    char listen[64];

    snprintf(listen, sizeof listen, "ucx://127.0.0.1:%u", port);
    memd_start_at(child, listen, more);
}

/* Ends it and returns its wait status. */
static inline int memd_end(struct memd_child *child, int how)
{
    int status = 0;

    ASSERT(kill(child->pid, how) == 0);
    ASSERT(waitpid(child->pid, &status, 0) == child->pid);
    child->pid = 0;
    return status;
}

/* Stops it where it is, until SIGCONT. */
static inline void memd_hang(const struct memd_child *child)
{
    int status = 0;

    ASSERT(kill(child->pid, SIGSTOP) == 0);
    ASSERT(waitpid(child->pid, &status, WUNTRACED) == child->pid && WIFSTOPPED(status));
}

/* The memory that it has had at most. */
static inline unsigned long memd_kib(const struct memd_child *child)
{
    char path[64], line[256];
    unsigned long kib = 0;

    snprintf(path, sizeof path, "/proc/%d/status", (int)child->pid);
    FILE *f = fopen(path, "r");
    ASSERT(f);
    while (fgets(line, sizeof line, f) && sscanf(line, "VmHWM: %lu", &kib) != 1)
        ;
    fclose(f);
    ASSERT(kib > 0);
    return kib;
}

static inline unsigned memd_port(const struct memd_child *child)
{
    return (unsigned)atoi(strrchr(child->address, ':') + 1);
}

/* ucx://a,b,c and the options. */
static inline const char *memd_uri(const struct memd_child *children, unsigned count,
                                   const char *options)
{
    static char uri[1024];
    int used = snprintf(uri, sizeof uri, "ucx://");

    for (unsigned i = 0; i < count; i++)
        used += snprintf(uri + used, sizeof uri - (size_t)used, "%s%s", i ? "," : "",
                         children[i].address);
    snprintf(uri + used, sizeof uri - (size_t)used, "%s", options);
    return uri;
}

#endif
