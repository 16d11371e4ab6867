/* What the checks of the doctor share. */
#include "cli/doctor.h"
#include "cli/cli.h"
#include "out/json.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const level_names[DOCTOR_LEVELS] = {"ok", "warning", "problem"};

void doctor_say(struct doctor *d, enum doctor_level level, const char *check, const char *advice,
                const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    d->count[level]++;
    if (d->checks) {
        json_t *one = json_pack("{s:s, s:s, s:o, s:s?}", "check", check, "level",
                                level_names[level], "text", out_text(text), "advice", advice);
        json_array_append_new(d->checks, one);
        return;
    }
    printf("%-8s %s: %s\n", level_names[level], check, text);
    if (advice)
        printf("%-8s   %s\n", "", advice);
    fflush(stdout); /* the next check may take long */
}

enum doctor_level doctor_needed_by(const struct doctor *d, const char *scheme)
{
    return strcmp(d->scheme, scheme) == 0 ? DOCTOR_PROBLEM : DOCTOR_WARNING;
}

const char *doctor_path(const struct doctor *d, char path[DOCTOR_PATH], const char *format, ...)
{
    va_list args;
    int len = snprintf(path, DOCTOR_PATH, "%s", d->root);
    if (len < 0 || len >= DOCTOR_PATH)
        return path;
    va_start(args, format);
    vsnprintf(path + len, (size_t)(DOCTOR_PATH - len), format, args);
    va_end(args);
    return path;
}

bool doctor_read(const char *path, char line[DOCTOR_LINE])
{
    FILE *f = fopen(path, "re");
    bool good = f && fgets(line, DOCTOR_LINE, f);
    if (f)
        fclose(f);
    line[good ? strcspn(line, "\n") : 0] = '\0';
    return good;
}

static bool take_limit(const char *text, uint64_t *value)
{
    *value = UINT64_MAX;
    return strcmp(text, "unlimited") == 0 || sscanf(text, "%" SCNu64, value) == 1;
}

bool doctor_limit(const struct doctor *d, const char *name, uint64_t *soft, uint64_t *hard)
{
    char path[DOCTOR_PATH], line[DOCTOR_LINE], first[32] = "", second[32] = "";
    FILE *f = fopen(doctor_path(d, path, "/proc/self/limits"), "re");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f))
        found = strncmp(line, name, strlen(name)) == 0 &&
                sscanf(line + strlen(name), "%31s %31s", first, second) == 2;
    if (f)
        fclose(f);
    return found && take_limit(first, soft) && take_limit(second, hard);
}

const char *doctor_bytes(uint64_t bytes, char text[DOCTOR_BYTES])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double scaled = (double)bytes;
    unsigned unit = 0;
    for (; scaled >= 1024; unit++)
        scaled /= 1024;
    snprintf(text, DOCTOR_BYTES, "%.*f %s", unit > 0, scaled, units[unit]);
    return text;
}
