#include "compare/server.h"
#include "base/clock.h"
#include "base/err.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define RETRY_NS 5000000u

int server_find(const char *name, const char *package, char path[PATH_MAX])
{
    const char *at = getenv("PATH");
    for (at = at ? at : ""; *at; at += strspn(at, ":")) {
        int len = (int)strcspn(at, ":");
        int bytes = snprintf(path, PATH_MAX, "%.*s/%s", len, at, name);
        if (*at == '/' && bytes < PATH_MAX && access(path, X_OK) == 0)
            return FAR_OK;
        at += len;
    }
    return err_fail(FAR_NO_FABRIC, "there is no program %s in PATH: install the package %s", name,
                    package);
}

/* ---- processes ------------------------------------------------------------------------------- */

/* In the new process. */
static _Noreturn void become(const char *const *argv, int log, int ready, pid_t parent)
{
    char folder[] = "/tmp/farside-server-XXXXXX";
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    setpgid(0, 0);
    if (mkdtemp(folder)) {
        int moved = chdir(folder);
        (void)rmdir(folder);
        if (moved != 0)
            _exit(126);
    }
    int null = open("/dev/null", O_RDONLY);
    if (dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
        _exit(126);
    if (ready == SERVER_READY_FD)
        (void)fcntl(ready, F_SETFD, 0);
    else if (ready >= 0 && dup2(ready, SERVER_READY_FD) < 0)
        _exit(126);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    dprintf(2, "cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

int server_spawn(const char *const *argv, int *ready, struct server *server)
{
    int pipes[2] = {-1, -1};
    struct server s = {.log = memfd_create("farside-server-log", MFD_CLOEXEC)};
    if (s.log < 0 || (ready && pipe2(pipes, O_CLOEXEC) != 0)) {
        int rc = err_fail(FAR_SYSTEM, "cannot start %s: %s", argv[0], strerror(errno));
        if (s.log >= 0)
            close(s.log);
        return rc;
    }
    fflush(NULL);
    pid_t parent = getpid();
    s.pid = fork();
    if (s.pid == 0)
        become(argv, s.log, pipes[1], parent);
    int rc =
        s.pid > 0 ? FAR_OK : err_fail(FAR_SYSTEM, "cannot start %s: %s", argv[0], strerror(errno));
    if (ready)
        close(pipes[1]);
    if (ready && rc != FAR_OK)
        close(pipes[0]);
    if (rc != FAR_OK)
        close(s.log);
    else
        *server = s;
    if (ready && rc == FAR_OK)
        *ready = pipes[0];
    return rc;
}

void server_end(struct server *server)
{
    if (server->pid <= 0)
        return;
    kill(server->pid, SIGKILL);
    while (waitpid(server->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    close(server->log);
    server->pid = 0;
}

/* The last line that the server has printed. */
static const char *last_line(const struct server *server, char text[1024])
{
    off_t end = lseek(server->log, 0, SEEK_END);
    off_t from = end > 1023 ? end - 1023 : 0;
    ssize_t n = pread(server->log, text, 1023, from);
    text[n > 0 ? n : 0] = '\0';
    size_t len = strlen(text);
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r'))
        text[--len] = '\0';
    const char *line = strrchr(text, '\n');
    return line ? line + 1 : text;
}

int server_failed(const char *name, struct server *server)
{
    char text[1024];
    const char *line = last_line(server, text);
    int rc = err_fail(FAR_SYSTEM, "%s did not start%s%.180s", name,
                      *line ? ": " : ", and printed nothing", line);
    server_end(server);
    return rc;
}

/* ---- ports ----------------------------------------------------------------------------------- */

static struct sockaddr_in loopback(unsigned port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
}

int server_free_port(unsigned *port)
{
    struct sockaddr_in at = loopback(0);
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 &&
                getsockname(fd, (struct sockaddr *)&at, &len) == 0;
    int rc =
        good ? FAR_OK : err_fail(FAR_SYSTEM, "no port of 127.0.0.1 is free: %s", strerror(errno));
    *port = ntohs(at.sin_port);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* One attempt. False: nobody listens yet, or the reply does not end. */
static bool ask_once(unsigned port, const char *request, const char *end,
                     char reply[SERVER_REPLY_MAX])
{
    struct sockaddr_in to = loopback(port);
    struct timeval patience = {.tv_sec = 2};
    size_t len = 0;
    ssize_t n = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    reply[0] = '\0';
    if (fd < 0)
        return false;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
        n = send(fd, request, strlen(request), MSG_NOSIGNAL);
    while (n > 0 && !strstr(reply, end) && len < SERVER_REPLY_MAX - 1) {
        n = recv(fd, reply + len, SERVER_REPLY_MAX - 1 - len, 0);
        len += n > 0 ? (size_t)n : 0;
        reply[len] = '\0';
    }
    close(fd);
    return strstr(reply, end) != NULL;
}

static bool has_ended(const struct server *server)
{
    siginfo_t info = {.si_pid = 0};
    (void)waitid(P_PID, (id_t)server->pid, &info, WEXITED | WNOWAIT | WNOHANG);
    return info.si_pid != 0;
}

int server_ask(const struct server *server, const char *request, const char *end,
               char reply[SERVER_REPLY_MAX])
{
    uint64_t until = clock_ns() + SERVER_READY_MS * 1000000ull;
    while (!ask_once(server->port, request, end, reply)) {
        if (has_ended(server))
            return err_fail(FAR_SYSTEM, "the server at port %u has ended", server->port);
        if (clock_ns() > until)
            return err_fail(FAR_SYSTEM, "the server at port %u does not answer", server->port);
        clock_sleep(RETRY_NS);
    }
    return FAR_OK;
}

void server_field(const char *reply, const char *name, char text[SERVER_FIELD_MAX])
{
    const char *at = strstr(reply, name);
    text[0] = '\0';
    if (!at)
        return;
    at += strlen(name);
    snprintf(text, SERVER_FIELD_MAX, "%.*s", (int)strcspn(at, "\r\n"), at);
}
