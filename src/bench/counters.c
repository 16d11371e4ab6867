#include "bench/counters.h"

#include "base/err.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

const struct counters_event counters_events[COUNTERS_KINDS] = {
    [COUNTERS_CYCLES] = {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    [COUNTERS_INSTRUCTIONS] = {PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    [COUNTERS_CACHE_MISSES] = {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
};

static int open_event(const struct counters_event *event, bool user_only)
{
    struct perf_event_attr attr = {
        .type = event->type,
        .size = sizeof attr,
        .config = event->config,
        .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
        .disabled = 1,
        .exclude_kernel = user_only,
        .exclude_hv = 1,
    };
    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static uint64_t switches_so_far(void)
{
    struct rusage usage;
    int rc = getrusage(RUSAGE_THREAD, &usage);
    ASSERT(rc == 0);
    return (uint64_t)usage.ru_nvcsw + (uint64_t)usage.ru_nivcsw;
}

void counters_open(struct counters *c, const struct counters_event events[COUNTERS_KINDS])
{
    *c = (struct counters){.sum.on = true};
    for (unsigned k = 0; k < COUNTERS_KINDS; k++) {
        c->fd[k] = open_event(&events[k], c->sum.user_only);
        if (c->fd[k] < 0 && (errno == EACCES || errno == EPERM) && !c->sum.user_only) {
            c->fd[k] = open_event(&events[k], true);
            c->sum.user_only = c->fd[k] >= 0;
        }
        if (c->fd[k] < 0)
            c->sum.error = errno;
        c->sum.known[k] = c->fd[k] >= 0;
    }
}

static void control(struct counters *c, unsigned long request)
{
    for (unsigned k = 0; k < COUNTERS_KINDS; k++) {
        if (c->fd[k] < 0)
            continue;
        int rc = ioctl(c->fd[k], request, 0);
        ASSERT(rc == 0);
    }
}

void counters_resume(struct counters *c)
{
    if (!c->sum.on)
        return;
    c->switches = switches_so_far();
    control(c, PERF_EVENT_IOC_ENABLE);
}

void counters_pause(struct counters *c)
{
    if (!c->sum.on)
        return;
    control(c, PERF_EVENT_IOC_DISABLE);
    c->sum.switches += switches_so_far() - c->switches;
}

void counters_reset(struct counters *c)
{
    if (!c->sum.on)
        return;
    control(c, PERF_EVENT_IOC_RESET);
    c->sum.switches = 0;
}

/* Counters may have to share the processor's; then the kernel says for which part of the time each
 * was counted. False if it never was. */
static bool read_count(int fd, uint64_t *count)
{
    struct {
        uint64_t value, enabled, running;
    } got;
    ssize_t n = read(fd, &got, sizeof got);
    if (n != (ssize_t)sizeof got || (got.running == 0 && got.enabled > 0))
        return false;
    *count = got.value;
    if (got.running < got.enabled)
        *count = (uint64_t)((double)got.value * (double)got.enabled / (double)got.running);
    return true;
}

void counters_close(struct counters *c)
{
    if (!c->sum.on)
        return;
    for (unsigned k = 0; k < COUNTERS_KINDS; k++) {
        if (c->fd[k] < 0)
            continue;
        c->sum.known[k] = read_count(c->fd[k], &c->sum.count[k]);
        if (!c->sum.known[k])
            c->sum.error = EBUSY;
        close(c->fd[k]);
        c->fd[k] = -1;
    }
}

void counters_add(struct counters_sum *sum, const struct counters_sum *more)
{
    if (!sum->on) {
        *sum = *more;
        return;
    }
    if (!more->on)
        return;
    sum->user_only |= more->user_only;
    sum->error = sum->error ? sum->error : more->error;
    sum->switches += more->switches;
    for (unsigned k = 0; k < COUNTERS_KINDS; k++) {
        sum->known[k] &= more->known[k];
        sum->count[k] += more->count[k];
    }
}

const char *counters_hint(int error, int paranoid)
{
    switch (error) {
    case EACCES:
    case EPERM:
        return paranoid > 2 ? "set kernel.perf_event_paranoid to 2 or less, as root: sysctl -w "
                              "kernel.perf_event_paranoid=2"
                            : "a filter of system calls may refuse it, as in a container: allow "
                              "perf_event_open, or add the capability CAP_PERFMON";
    case ENOENT:
    case ENODEV:
    case EOPNOTSUPP:
        return "the processor, or the virtual machine, does not have them: run on the machine "
               "itself, or have the hypervisor pass its counters on";
    case ENOSYS:
        return "the kernel has no perf events (CONFIG_PERF_EVENTS), or a filter of system calls "
               "refuses them";
    case EMFILE:
        return "too many files are open: raise the limit (ulimit -n), or use fewer threads";
    case EBUSY:
        return "something else uses the processor's counters: end other profilers, and the "
               "kernel's NMI watchdog (sysctl -w kernel.nmi_watchdog=0)";
    default:
        return "see perf_event_open(2)";
    }
}

int counters_paranoid(void)
{
    int paranoid = -1;
    FILE *f = fopen("/proc/sys/kernel/perf_event_paranoid", "re");
    if (f && fscanf(f, "%d", &paranoid) != 1)
        paranoid = -1;
    if (f)
        fclose(f);
    return paranoid;
}
