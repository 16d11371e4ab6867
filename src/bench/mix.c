#include "bench/mix.h"
#include "base/err.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

#define OPERATIONS_BYTES 96 /* of the list of all operations */

static const struct operation {
    const char *name;
    enum workload_task_kind kind;
} operations[] = {
    {"get", WORKLOAD_GET},       {"miss", WORKLOAD_MISS},     {"put", WORKLOAD_PUT},
    {"update", WORKLOAD_UPDATE}, {"insert", WORKLOAD_INSERT}, {"delete", WORKLOAD_DELETE},
    {"modify", WORKLOAD_MODIFY}, {"rmw", WORKLOAD_RMW},       {"scan", WORKLOAD_SCAN},
};
#define OPERATIONS (sizeof operations / sizeof *operations)

const char *mix_operation_at(unsigned i)
{
    return i < OPERATIONS ? operations[i].name : NULL;
}

static const struct operation *find_operation(const char *name)
{
    for (unsigned i = 0; i < OPERATIONS; i++)
        if (strcmp(operations[i].name, name) == 0)
            return &operations[i];
    return NULL;
}

static int unknown_operation(const char *mix, const char *name)
{
    char known[OPERATIONS_BYTES] = "";
    size_t len = 0;
    for (unsigned i = 0; i < OPERATIONS && len < sizeof known; i++)
        len += (size_t)snprintf(known + len, sizeof known - len, "%s%s", i > 0 ? ", " : "",
                                operations[i].name);
    return err_fail(FAR_INVALID, "mix '%s': unknown operation '%.32s' (available: %s)", mix, name,
                    known);
}

/* Reads one part, "get=70", and adds it to the workload. */
static int parse_part(const char *mix, char *part, struct workload *w)
{
    char *percent = strchr(part, '=');
    uint64_t number = 0;
    if (!percent)
        return err_fail(FAR_INVALID, "mix '%s': '%s' has no percentage; expected OPERATION=PERCENT",
                        mix, part);
    *percent++ = '\0';
    const struct operation *o = find_operation(part);
    if (!o)
        return unknown_operation(mix, part);
    if (!text_number(percent, 1, 100, &number))
        return err_fail(FAR_INVALID,
                        "mix '%s': the percentage of %s must be a whole number from 1 to 100, not "
                        "'%s'",
                        mix, part, percent);
    if (w->percent[o->kind] > 0)
        return err_fail(FAR_INVALID, "mix '%s' has two percentages of %s", mix, part);
    w->percent[o->kind] = (uint8_t)number;
    return FAR_OK;
}

int mix_parse(const char *text, struct workload *w)
{
    struct workload mix = {.summary = NULL};
    char parts[WORKLOAD_NAME_BYTES];
    unsigned sum = 0;

    ASSERT(strlen(text) < sizeof mix.name);
    memcpy(mix.name, text, strlen(text) + 1);
    memcpy(parts, text, strlen(text) + 1);
    for (char *part = parts, *next = NULL; part; part = next) {
        next = strchr(part, '+');
        if (next)
            *next++ = '\0';
        int rc = parse_part(text, part, &mix);
        if (rc != FAR_OK)
            return rc;
    }
    for (unsigned k = 0; k < WORKLOAD_TASK_KINDS; k++)
        sum += mix.percent[k];
    if (sum != 100)
        return err_fail(FAR_INVALID, "mix '%s': the percentages sum to %u, not to 100", text, sum);
    *w = mix;
    return FAR_OK;
}
