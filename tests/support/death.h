/* Tests of what must end the process: the body runs in a child, and what it wrote is read. */
#ifndef TESTS_DEATH_H
#define TESTS_DEATH_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs body(arg) in a child. Returns its wait status and fills words with what it wrote to stderr,
 * cut to fit; -1 if there was no child. A body that returns ends its child with success. */
static inline int run_in_child(void (*body)(void *arg), void *arg, char *words, size_t cap)
{
    int ends[2];
    if (pipe(ends) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        signal(SIGSEGV, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        body(arg);
        _exit(0);
    }
    close(ends[1]);
    size_t len = 0;
    char chunk[512];
    for (ssize_t n; child > 0 && (n = read(ends[0], chunk, sizeof chunk)) > 0;) {
        size_t take = (size_t)n < cap - 1 - len ? (size_t)n : cap - 1 - len;
        memcpy(words + len, chunk, take);
        len += take;
    }
    words[len] = '\0';
    close(ends[0]);
    int status = -1;
    if (child > 0)
        waitpid(child, &status, 0);
    return status;
}

/* Does body(arg) end in a failed ASSERT of that text? */
static inline bool fails_assert(void (*body)(void *arg), void *arg, const char *text)
{
    char words[1024];
    int status = run_in_child(body, arg, words, sizeof words);
    return status != -1 && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT &&
           strstr(words, "broken invariant: ") != NULL && strstr(words, text) != NULL;
}

#endif
