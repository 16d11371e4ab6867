/* What a child of fork() may do with the handles of its parent: nothing but close them. */
#ifndef TESTS_FORKED_H
#define TESTS_FORKED_H

#include "store/store.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static inline int forked_each(void *arg, const char *name, const char *index)
{
    (void)arg;
    (void)name;
    (void)index;
    return 0;
}

#define FORKED_REFUSES(call)                                                                       \
    do {                                                                                           \
        ASSERT((call) == FAR_INVALID);                                                             \
        ASSERT(strstr(far_error_detail(), "before fork()"));                                       \
    } while (0)

/* Calls every function of the library. */
static inline void forked_use(far_pool *pool, far_session *s, far_table *t)
{
    char buf[8];
    far_session *session = NULL;
    far_table *table = NULL;
    struct far_result result;
    struct far_pool_info info;
    struct far_pool_usage usage;
    struct far_pool_check check;
    struct far_node_info node;
    struct far_table_info table_info;
    struct far_op op = {.kind = FAR_OP_EXISTS, .table = t, .key = "k", .key_len = 1};
    int fd = -1;

    FORKED_REFUSES(far_session_open(pool, NULL, &session));
    FORKED_REFUSES(far_get(s, t, "k", 1, buf, 8, NULL));
    FORKED_REFUSES(far_exists(s, t, "k", 1));
    FORKED_REFUSES(far_put(s, t, "k", 1, "child", 5));
    FORKED_REFUSES(far_insert(s, t, "k", 1, "child", 5));
    FORKED_REFUSES(far_update(s, t, "k", 1, "child", 5));
    FORKED_REFUSES(far_delete(s, t, "k", 1));
    FORKED_REFUSES(far_submit(s, &op));
    FORKED_REFUSES(far_cancel(s, 1, NULL));
    FORKED_REFUSES(far_session_fd(s, &fd));
    ASSERT(far_reap(s, &result, 1, 1) == FAR_INVALID);
    FORKED_REFUSES(far_table_create(s, "u", "race", NULL, &table));
    FORKED_REFUSES(far_table_open(s, "t", NULL, &table));
    FORKED_REFUSES(far_table_list(s, forked_each, NULL));
    FORKED_REFUSES(far_table_info(s, t, &table_info));
    FORKED_REFUSES(far_table_check(s, t, NULL, NULL));
    FORKED_REFUSES(far_pool_info(s, &info));
    FORKED_REFUSES(far_pool_usage(s, &usage));
    FORKED_REFUSES(far_pool_check(s, true, NULL, NULL, &check));
    FORKED_REFUSES(far_node_info(s, 0, &node));
    ASSERT(!session && !table && fd == -1);
}

static inline bool forked_thread_sleeps(const char *thread)
{
    char path[300], line[300] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/stat", thread);
    FILE *f = fopen(path, "re");
    const char *name_end = f && fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
    if (f)
        fclose(f);
    return !name_end || name_end[2] == 'S'; /* or it has ended */
}

/* A child inherits the locks of the address sanitizer's allocator as they are. So if another thread
 * were in it, the child would wait for ever. Gives up if a thread works all the time. */
static inline void forked_await_sleep(void)
{
    bool asleep = false;
    for (unsigned i = 0; i < 50 && !asleep; i++) {
        DIR *threads = opendir("/proc/self/task");
        ASSERT(threads);
        asleep = true;
        for (struct dirent *t = readdir(threads); t; t = readdir(threads))
            asleep = asleep && (t->d_name[0] == '.' || atoi(t->d_name) == getpid() ||
                                forked_thread_sleeps(t->d_name));
        closedir(threads);
        if (!asleep)
            usleep(1000);
    }
}

/* Runs `child` in a child, and expects that it returns. */
static inline void forked(void (*child)(void *arg), void *arg)
{
    int status = 0;
    fflush(NULL);
    forked_await_sleep();
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        child(arg);
        _exit(0);
    }
    ASSERT(waitpid(pid, &status, 0) == pid);
    ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#endif
