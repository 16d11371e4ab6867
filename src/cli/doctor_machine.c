/* Checks of the machine: processors, clock, pages, limits, shared memory. */
#include "cli/doctor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define DESCRIPTORS_ENOUGH 1024u
#define SHM_ENOUGH         (256ull << 20)

/* How many there are in a list such as "0-3,8". */
static unsigned count_list(const char *text)
{
    unsigned count = 0;
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        unsigned first = 0, last = 0;
        int found = sscanf(at, "%u-%u", &first, &last);
        if (found == 1)
            count++;
        else if (found == 2 && last >= first)
            count += last - first + 1;
    }
    return count;
}

static void check_processors(struct doctor *d)
{
    char path[DOCTOR_PATH], line[DOCTOR_LINE];
    if (!doctor_read(doctor_path(d, path, "/sys/devices/system/cpu/online"), line))
        return;
    unsigned count = count_list(line);
    if (count > 1)
        doctor_say(d, DOCTOR_OK, "processors", NULL, "%u", count);
    else
        doctor_say(d, DOCTOR_WARNING, "processors",
                   "run memory nodes on another machine, or give this one more processors",
                   "only %u; a thread that polls and a memory node need one each", count);
    if (doctor_read(doctor_path(d, path, "/sys/devices/system/node/online"), line) &&
        count_list(line) > 1)
        doctor_say(d, DOCTOR_OK, "NUMA", NULL,
                   "%u nodes; keep threads and their network card on one node (numactl)",
                   count_list(line));
    if (!doctor_read(doctor_path(d, path, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
                     line))
        return; /* a virtual machine, for one */
    if (strcmp(line, "powersave") == 0)
        doctor_say(d, DOCTOR_WARNING, "frequency",
                   "for measurements: cpupower frequency-set -g performance",
                   "the governor is powersave, so times vary");
    else
        doctor_say(d, DOCTOR_OK, "frequency", NULL, "the governor is %s", line);
}

static void check_clock(struct doctor *d)
{
    static const char *const slow[] = {"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"};
    char path[DOCTOR_PATH], line[DOCTOR_LINE];
    bool bad = false;
    if (!doctor_read(
            doctor_path(d, path,
                        "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            line))
        return;
    for (unsigned i = 0; i < sizeof slow / sizeof *slow; i++)
        bad |= strcmp(line, slow[i]) == 0;
    if (bad)
        doctor_say(d, DOCTOR_WARNING, "clock",
                   "see why the kernel does not use a faster one: dmesg | grep -i clocksource",
                   "the clock source %s is slow or coarse; every operation reads the clock", line);
    else
        doctor_say(d, DOCTOR_OK, "clock", NULL, "the clock source is %s", line);
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* The word in brackets of "always [madvise] never". */
static bool chosen(const char *path, char word[DOCTOR_LINE])
{
    char line[DOCTOR_LINE];
    if (!doctor_read(path, line))
        return false;
    const char *at = strchr(line, '[');
    return at && sscanf(at, "[%[^]]", word) == 1;
}

/* Since Linux 6.1, the process that creates a pool can ask for huge pages by itself. */
static bool can_collapse(const struct doctor *d)
{
    char path[DOCTOR_PATH], line[DOCTOR_LINE];
    unsigned major = 0, minor = 0;
    doctor_read(doctor_path(d, path, "/proc/sys/kernel/osrelease"), line);
    return sscanf(line, "%u.%u", &major, &minor) == 2 && (major > 6 || (major == 6 && minor >= 1));
}

static void check_huge_pages(struct doctor *d)
{
    char path[DOCTOR_PATH], word[DOCTOR_LINE];
    if (chosen(doctor_path(d, path, "/sys/kernel/mm/transparent_hugepage/enabled"), word)) {
        bool never = strcmp(word, "never") == 0;
        doctor_say(d, never ? DOCTOR_WARNING : DOCTOR_OK, "huge pages",
                   never ? "echo always > /sys/kernel/mm/transparent_hugepage/enabled" : NULL,
                   "%s for memory of processes", word);
    }
    if (chosen(doctor_path(d, path, "/sys/kernel/mm/transparent_hugepage/shmem_enabled"), word)) {
        bool bad = strcmp(word, "deny") == 0 || (strcmp(word, "never") == 0 && !can_collapse(d));
        doctor_say(d, bad ? DOCTOR_WARNING : DOCTOR_OK, "huge pages of shared memory",
                   bad ? "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled" : NULL,
                   "%s%s", word, bad ? ", so pools on shm: are slower" : "");
    }
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void check_descriptors(struct doctor *d)
{
    uint64_t soft = 0, hard = 0;
    if (!doctor_limit(d, "Max open files", &soft, &hard))
        return;
    if (soft < DESCRIPTORS_ENOUGH)
        doctor_say(d, DOCTOR_WARNING, "file descriptors",
                   hard > soft ? "raise the limit: ulimit -n 4096"
                               : "raise the limit: nofile in /etc/security/limits.conf, or "
                                 "LimitNOFILE= of the service",
                   "at most %" PRIu64 "; a session of ucx: takes about 8 and 3 for each node",
                   soft);
    else
        doctor_say(d, DOCTOR_OK, "file descriptors", NULL, "at most %" PRIu64, soft);
}

/* The size of the file system by the options of its mount. UINT64_MAX: they do not say. */
static uint64_t mounted_size(const struct doctor *d, bool *mounted)
{
    char path[DOCTOR_PATH], line[DOCTOR_LINE], at[DOCTOR_LINE], options[DOCTOR_LINE];
    uint64_t size = UINT64_MAX, kib = 0;
    FILE *f = fopen(doctor_path(d, path, "/proc/self/mounts"), "re");
    *mounted = false;
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%*s %511s %*s %511s", at, options) != 2 || strcmp(at, "/dev/shm") != 0)
            continue;
        const char *given = strstr(options, "size=");
        *mounted = true;
        if (given && sscanf(given, "size=%" SCNu64 "k", &kib) == 1)
            size = kib << 10;
    }
    if (f)
        fclose(f);
    return size;
}

static void check_shm(struct doctor *d)
{
    char path[DOCTOR_PATH], size_text[DOCTOR_BYTES];
    struct statvfs fs;
    bool mounted = false;
    uint64_t size = mounted_size(d, &mounted);
    if (!mounted || statvfs(doctor_path(d, path, "/dev/shm"), &fs) != 0) {
        doctor_say(d, doctor_needed_by(d, "shm"), "/dev/shm",
                   "mount -t tmpfs tmpfs /dev/shm; or use a file: shm:/PATH",
                   "is not mounted, so there are no pools shm:NAME");
        return;
    }
    uint64_t left = (uint64_t)fs.f_bavail * fs.f_frsize;
    left = left < size ? left : size;
    doctor_bytes(left, size_text);
    if (left < SHM_ENOUGH)
        doctor_say(d, DOCTOR_WARNING, "/dev/shm",
                   "make it larger: mount -o remount,size=4g /dev/shm (docker: --shm-size=4g), "
                   "or use a file: shm:/PATH",
                   "only %s are left for pools shm:NAME", size_text);
    else
        doctor_say(d, DOCTOR_OK, "/dev/shm", NULL, "%s are left", size_text);
}

void doctor_machine(struct doctor *d)
{
    check_processors(d);
    check_clock(d);
    check_huge_pages(d);
    check_descriptors(d);
    check_shm(d);
}
