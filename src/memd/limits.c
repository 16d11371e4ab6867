/* What this machine has: memory, file descriptors, addresses. It is checked before a node starts,
 * so that each lack has a message of its own. */
#include "memd/memd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define PATH_LINE   4096
#define CGROUP_ROOT "/sys/fs/cgroup"

/* ---- memory ---------------------------------------------------------------------------------- */

/* Reads a file that holds one number. UINT64_MAX: there is no such file, or it says "max". */
static uint64_t read_number(const char *path)
{
    FILE *f = fopen(path, "re");
    unsigned long long value;
    bool read = f && fscanf(f, "%llu", &value) == 1;

    if (f)
        fclose(f);
    return read ? value : UINT64_MAX;
}

/* The lowest memory limit of this process's control group and those above it. */
static uint64_t group_limit(void)
{
    char line[PATH_LINE], path[PATH_LINE + 64];
    uint64_t least = UINT64_MAX;
    FILE *f = fopen("/proc/self/cgroup", "re");
    bool found = false;

    while (f && !found && fgets(line, sizeof line, f))
        found = strncmp(line, "0::/", 4) == 0;
    if (f)
        fclose(f);
    if (!found)
        return least;
    char *group = line + 3;
    group[strcspn(group, "\n")] = '\0';
    for (char *end = group + strlen(group);; end = strrchr(group, '/')) {
        *end = '\0'; /* each turn removes the last name */
        snprintf(path, sizeof path, CGROUP_ROOT "%s/memory.max", group);
        uint64_t limit = read_number(path);
        least = limit < least ? limit : least;
        if (group[0] == '\0')
            return least;
    }
}

int memd_check_memory(uint64_t bytes)
{
    struct sysinfo info;
    uint64_t has = UINT64_MAX, group = group_limit();

    if (sysinfo(&info) == 0)
        has = ((uint64_t)info.totalram + info.totalswap) * info.mem_unit;
    if (bytes > has)
        return err_fail(FAR_NO_MEMORY, "%llu bytes are more than this machine has (%llu)",
                        (unsigned long long)bytes, (unsigned long long)has);
    if (bytes > group)
        return err_fail(FAR_NO_MEMORY, "%llu bytes are more than this control group may use (%llu)",
                        (unsigned long long)bytes, (unsigned long long)group);
    return FAR_OK;
}

/* ---- file descriptors ------------------------------------------------------------------------ */

void memd_raise_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* if it fails, there are fewer connections */
}

/* ---- addresses ------------------------------------------------------------------------------- */

static const char *why_not(int error)
{
    switch (error) {
    case EADDRINUSE:
        return "the port is in use";
    case EADDRNOTAVAIL:
        return "this machine does not have that address";
    case EACCES:
        return "no permission to listen at this port";
    default:
        return strerror(error);
    }
}

int memd_check_address(const char *text, const struct sockaddr *at, socklen_t at_bytes)
{
    const int on = 1;
    int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), error = 0;

    if (fd < 0)
        return err_fail(FAR_SYSTEM, "cannot listen at %s: %s", text, strerror(errno));
    /* As the listener does: remains of old connections do not matter. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, at, at_bytes) != 0 || listen(fd, 1) != 0)
        error = errno;
    close(fd);
    return error == 0 ? FAR_OK
                      : err_fail(FAR_SYSTEM, "cannot listen at %s: %s", text, why_not(error));
}
