#include "bench/machine.h"

#include "base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 256

/* The processor's name, if the kernel knows one; on ARM it does not. */
static bool processor_name(char name[LINE_BYTES])
{
    char line[LINE_BYTES];
    bool found = false;
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && !found && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, "model name", strlen("model name")) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(name, LINE_BYTES, "%s", colon + 1 + strspn(colon + 1, " "));
        found = true;
    }
    if (file)
        fclose(file);
    return found;
}

json_t *machine_json(void)
{
    struct utsname system;
    char name[LINE_BYTES], processor[4 * LINE_BYTES], release[2 * sizeof system.release];
    uname(&system);
    if (!processor_name(name))
        snprintf(name, sizeof name, "%s", system.machine);
    text_utf8(name, processor);
    snprintf(release, sizeof release, "%s %s", system.sysname, system.release);
    json_int_t memory = (json_int_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    return json_pack("{s:s, s:s, s:I, s:I, s:s}", "processor", processor, "architecture",
                     system.machine, "processors", (json_int_t)sysconf(_SC_NPROCESSORS_ONLN),
                     "memory_bytes", memory, "system", release);
}

const char *machine_time(char text[MACHINE_TIME_BYTES])
{
    time_t now = time(NULL);
    struct tm utc;
    strftime(text, MACHINE_TIME_BYTES, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    return text;
}
