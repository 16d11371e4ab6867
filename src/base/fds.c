#include "base/fds.h"

#include "base/err.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#define PROBE_MAX 4096u

int fds_check(unsigned count)
{
    int fd[PROBE_MAX];
    unsigned had = 0;
    struct rlimit limit = {0};

    if (count > PROBE_MAX)
        count = PROBE_MAX;
    while (had < count && (fd[had] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        had++;
    for (unsigned i = 0; i < had; i++)
        close(fd[i]);
    if (had == count)
        return FAR_OK;
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    return err_fail(FAR_SYSTEM,
                    "too few file descriptors: %u are needed, %u are left of %llu (ulimit -n)",
                    count, had, (unsigned long long)limit.rlim_cur);
}
