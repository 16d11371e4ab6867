/*
 * For the tests of shm: - names and files that are gone when the program is, however it ends, and
 * processes that end with it.
 */
#ifndef TESTS_FABRIC_SHM_SCRATCH_H
#define TESTS_FABRIC_SHM_SCRATCH_H

#include "fabric/rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCRATCH_CHILDREN 64
#define SCRATCH_SHM      "/dev/shm" /* where Linux keeps POSIX names */

static struct {
    char dir[64];    /* of the files                       */
    char prefix[64]; /* of the names' files                */
    int pid;         /* makes the names this program's own */
    unsigned count;  /* of names and files handed out      */
    pid_t child[SCRATCH_CHILDREN];
} scratch;

static inline void scratch_unlink_in(const char *dir, const char *prefix)
{
    char path[PATH_MAX];
    struct dirent *entry;
    DIR *d = opendir(dir);

    while (d && (entry = readdir(d))) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && entry->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
            unlink(path);
        }
    }
    if (d)
        closedir(d);
}

static inline void scratch_clean(void)
{
    scratch_unlink_in(SCRATCH_SHM, scratch.prefix);
    scratch_unlink_in(scratch.dir, "");
    rmdir(scratch.dir);
}

/* A process of its own that cleans up once all others have ended, killed or not: the pipe's other
 * end closes with the last of them. It is nobody's child, so that nobody waits for it. */
static inline void scratch_janitor(void)
{
    int ends[2];
    char byte;
    pid_t pid;

    ASSERT(pipe(ends) == 0);
    pid = fork();
    ASSERT(pid >= 0);
    if (pid > 0) {
        close(ends[0]);
        ASSERT(waitpid(pid, NULL, 0) == pid);
        return;
    }
    if (fork() != 0)
        _exit(0);
    setsid();
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    close(ends[1]);
    while (read(ends[0], &byte, 1) < 0 && errno == EINTR) {
    }
    scratch_clean();
    _exit(0);
}

/* First of all in main(). */
static inline void scratch_start(void)
{
    const char *tmp = getenv("TMPDIR");

    scratch.pid = (int)getpid();
    snprintf(scratch.prefix, sizeof scratch.prefix, "farside-test-%d-", scratch.pid);
    snprintf(scratch.dir, sizeof scratch.dir, "%.30s/farside-test-XXXXXX", tmp ? tmp : "/tmp");
    ASSERT(mkdtemp(scratch.dir));
    scratch_janitor();
}

/* What follows "shm:" in a URI that nothing has been made under yet. */
static inline const char *scratch_name(bool by_path)
{
    static char name[8][128];
    char *to = name[scratch.count++ % 8];

    if (by_path)
        snprintf(to, sizeof name[0], "%s/pool%u", scratch.dir, scratch.count);
    else
        snprintf(to, sizeof name[0], "test-%d-%u", scratch.pid, scratch.count);
    return to;
}

/* Where the file behind a name is. */
static inline const char *scratch_path(const char *name)
{
    static char path[256];

    snprintf(path, sizeof path, "%s%s", name[0] == '/' ? "" : SCRATCH_SHM "/farside-", name);
    return path;
}

static inline bool scratch_there(const char *name)
{
    return access(scratch_path(name), F_OK) == 0;
}

static inline const char *scratch_uri(const char *name, const char *options)
{
    static char uri[8][256];
    static unsigned next;
    char *to = uri[next++ % 8];

    snprintf(to, sizeof uri[0], "shm:%s%s", name, options);
    return to;
}

/* ---- processes ------------------------------------------------------------------------------- */

/* Runs fn in a process of its own, which must return from it to have succeeded. There, failures
 * are reported by ASSERT(): cmocka's asserts belong to the parent. */
static inline pid_t child_start(void (*fn)(void *arg), void *arg)
{
    unsigned place = 0;
    pid_t parent = getpid(), pid;

    while (place < SCRATCH_CHILDREN && scratch.child[place])
        place++;
    ASSERT(place < SCRATCH_CHILDREN);
    fflush(NULL);
    pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        fn(arg);
        _exit(0);
    }
    scratch.child[place] = pid;
    return pid;
}

/* Waits for the child and returns how it ended, as waitpid() says it. */
static inline int child_end(pid_t pid)
{
    int status = -1;

    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    for (unsigned i = 0; i < SCRATCH_CHILDREN; i++) {
        if (scratch.child[i] == pid)
            scratch.child[i] = 0;
    }
    return status;
}

/* Has it ended? It is still to be waited for. */
static inline bool child_gone(pid_t pid)
{
    siginfo_t info = {.si_pid = 0};

    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

static inline bool child_killed(int status)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

/* As a teardown: no child outlives the test that started it, whatever became of the test. */
static inline int scratch_teardown(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SCRATCH_CHILDREN; i++) {
        if (scratch.child[i]) {
            kill(scratch.child[i], SIGKILL);
            child_end(scratch.child[i]);
        }
    }
    scratch_unlink_in(SCRATCH_SHM, scratch.prefix);
    scratch_unlink_in(scratch.dir, "");
    return 0;
}

#define SCRATCH_CASE(f) cmocka_unit_test_teardown(f, scratch_teardown)

/* Runs the tests and leaves nothing behind. */
#define scratch_run(tests)                                                                         \
    (scratch_start(), scratch_finish(cmocka_run_group_tests(tests, NULL, NULL)))
/* The same on every index: see indexes.h. */
#define scratch_run_indexes(tests) (scratch_start(), scratch_finish(INDEXES_RUN(tests)))

static inline int scratch_finish(int failures)
{
    scratch_clean();
    return failures;
}

/* Memory that children share with their parent, besides any pool. */
static inline void *scratch_shared(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ASSERT(at != MAP_FAILED);
    return at;
}

#endif
