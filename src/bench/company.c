#include "bench/company.h"
#include "base/err.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MS  100
#define HEAD     4096u /* before the memory that the work has, for the flag that stops it */
#define MEETINGS 3u

/* What is said at a meeting, and answered. The leader also sends one to begin with. */
struct word {
    int status;
    char detail[256];
};

struct company {
    unsigned count; /* processes that were started */
    const atomic_bool *stop;
    char *shared;
    size_t freelist_bytes;
    bool broken;
    struct process {
        pid_t pid;
        int line;
        bool arrived;
    } process[];
};

static atomic_bool *stop_of(const struct company *c)
{
    return (atomic_bool *)(void *)c->shared;
}

void *company_memory(const struct company *c)
{
    return c->shared + HEAD;
}

/* ---- a process of the company ---------------------------------------------------------------- */

static void say(int line, int status)
{
    struct word word = {.status = status};
    if (status != FAR_OK)
        snprintf(word.detail, sizeof word.detail, "%s", far_error_detail());
    (void)send(line, &word, sizeof word, MSG_NOSIGNAL); /* who is gone is noticed by hearing */
}

static bool hear(int line, struct word *word)
{
    ssize_t got;
    do {
        got = recv(line, word, sizeof *word, 0);
    } while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof *word;
}

int company_meet(void *arg, int status)
{
    struct seat *seat = arg;
    struct word answer;

    seat->meetings++;
    say(seat->line, status);
    if (!hear(seat->line, &answer))
        _exit(1);
    return answer.status != FAR_OK ? err_fail(answer.status, "%s", answer.detail) : FAR_OK;
}

static _Noreturn void serve(struct seat *seat, int (*work)(void *arg, struct seat *seat), void *arg)
{
    struct word begin;
    while (hear(seat->line, &begin)) {
        seat->meetings = 0;
        int status = work(arg, seat);
        while (seat->meetings < MEETINGS)
            (void)company_meet(seat, status);
    }
    _exit(0);
}

/* Lets go of what it has of the leader, and dies with it. */
static void settle(const struct company *c, pid_t leader)
{
    for (unsigned i = 0; i < c->count; i++)
        close(c->process[i].line);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != leader)
        _exit(1);
}

/* ---- the leader ------------------------------------------------------------------------------ */

static int start_one(struct company *c, int (*work)(void *arg, struct seat *seat), void *arg)
{
    int line[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line) != 0)
        return err_fail(FAR_SYSTEM, "a line to a process: %s", strerror(errno));
    pid_t leader = getpid(), pid = fork();
    if (pid == 0) {
        struct seat seat = {
            .number = c->count, .memory = company_memory(c), .stop = stop_of(c), .line = line[1]};
        close(line[0]);
        settle(c, leader);
        serve(&seat, work, arg);
    }
    close(line[1]);
    if (pid < 0) {
        close(line[0]);
        return err_fail(FAR_SYSTEM, "cannot start process %u: %s", c->count, strerror(errno));
    }
    c->process[c->count++] = (struct process){.pid = pid, .line = line[0]};
    return FAR_OK;
}

int company_start(unsigned processes, size_t bytes, const atomic_bool *stop,
                  int (*work)(void *arg, struct seat *seat), void *arg, struct company **company)
{
    struct company *c = calloc(1, sizeof *c + processes * sizeof *c->process);
    if (c == NULL)
        return err_fail(FAR_NO_MEMORY, "%u processes", processes);
    c->stop = stop;
    c->freelist_bytes = HEAD + bytes;
    c->shared = mmap(NULL, c->freelist_bytes, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (c->shared == MAP_FAILED) {
        free(c);
        return err_fail(FAR_NO_MEMORY, "%zu bytes that processes share", bytes);
    }
    fflush(NULL); /* or they would write it again */
    int status = FAR_OK;
    for (unsigned i = 0; i < processes && status == FAR_OK; i++)
        status = start_one(c, work, arg);
    if (status != FAR_OK) {
        company_end(c);
        return status;
    }
    *company = c;
    return FAR_OK;
}

void company_end(struct company *c)
{
    if (c == NULL)
        return;
    for (unsigned i = 0; i < c->count; i++) {
        if (c->broken) /* others may wait in the middle of something for those that died */
            kill(c->process[i].pid, SIGKILL);
        close(c->process[i].line);
    }
    for (unsigned i = 0; i < c->count; i++)
        while (waitpid(c->process[i].pid, NULL, 0) < 0 && errno == EINTR) {
        }
    munmap(c->shared, c->freelist_bytes);
    free(c);
}

/* Its line has ended: how did it end? It stays to be waited for, by company_end(). */
static int lost(struct company *c, const struct process *p)
{
    siginfo_t info = {.si_pid = 0};
    c->broken = true;
    (void)waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOWAIT);
    if (info.si_code == CLD_EXITED)
        return err_fail(FAR_SYSTEM, "process %d of the benchmark ended, with %d", (int)p->pid,
                        info.si_status);
    return err_fail(FAR_SYSTEM, "process %d of the benchmark was killed: %s", (int)p->pid,
                    strsignal(info.si_status));
}

/* Takes what is there to be heard. */
static int listen_to(struct company *c, struct pollfd *lines, unsigned *waiting, struct word *first)
{
    for (unsigned i = 0; i < c->count; i++) {
        struct process *p = &c->process[i];
        struct word word;
        if (lines[i].revents == 0 || p->arrived)
            continue;
        if (!hear(p->line, &word))
            return lost(c, p);
        p->arrived = true;
        lines[i].fd = -1;
        --*waiting;
        if (word.status != FAR_OK && first->status == FAR_OK)
            *first = word;
    }
    return FAR_OK;
}

/* Waits until all are there, and keeps what the first that failed said. */
static int gather(struct company *c, struct pollfd *lines, struct word *first,
                  void (*tick)(void *arg), void *arg)
{
    unsigned waiting = c->count;
    int status = FAR_OK;
    for (unsigned i = 0; i < c->count; i++) {
        lines[i] = (struct pollfd){.fd = c->process[i].line, .events = POLLIN};
        c->process[i].arrived = false;
    }
    while (waiting > 0 && status == FAR_OK) {
        int ready = poll(lines, c->count, TICK_MS);
        if (c->stop != NULL && atomic_load(c->stop))
            atomic_store(stop_of(c), true);
        if (ready > 0)
            status = listen_to(c, lines, &waiting, first);
        if (tick != NULL)
            tick(arg);
    }
    return status;
}

static void tell(const struct company *c, const struct word *word)
{
    for (unsigned i = 0; i < c->count; i++)
        (void)send(c->process[i].line, word, sizeof *word, MSG_NOSIGNAL);
}

int company_run(struct company *c, void (*tick)(void *arg), void *arg)
{
    struct word first = {.status = FAR_OK};
    struct pollfd *lines = calloc(c->count, sizeof *lines);
    int status = FAR_OK;

    if (lines == NULL)
        return err_fail(FAR_NO_MEMORY, "%u processes", c->count);
    if (c->broken)
        status = err_fail(FAR_SYSTEM, "a process of the benchmark has died");
    else
        tell(c, &first);
    for (unsigned i = 0; i < MEETINGS && status == FAR_OK; i++) {
        status = gather(c, lines, &first, tick, arg);
        if (status == FAR_OK)
            tell(c, &first);
    }
    free(lines);
    if (status == FAR_OK && first.status != FAR_OK)
        status = err_fail(first.status, "%s", first.detail);
    return status;
}
