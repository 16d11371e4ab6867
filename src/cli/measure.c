#include "cli/measure.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool measure_take_workloads(const char *command, const char *text, void *arg)
{
    if (workload_parse(text, arg) == FAR_OK)
        return true;
    cli_misused(command, "%s", far_error_detail());
    return false;
}

/* BYTES, or MIN-MAX. */
static bool take_sizes(const char *command, const char *name, const char *text, unsigned low,
                       unsigned high, struct bench_range *range)
{
    char first[TEXT_SIZE_BYTES] = "", least[TEXT_SIZE_BYTES], most[TEXT_SIZE_BYTES];
    size_t len = strcspn(text, "-");
    uint64_t min = 0, max = 0;
    if (len < sizeof first)
        memcpy(first, text, len);
    bool good = text_size(first, &min) && text_size(text[len] ? text + len + 1 : first, &max) &&
                min >= low && min <= max && max <= high;
    if (good)
        *range = (struct bench_range){(unsigned)min, (unsigned)max};
    else
        cli_misused(command,
                    "invalid --%s '%s': expected a size from %s to %s bytes, or a range of sizes "
                    "such as 16-64 (k and m stand for powers of 1024)",
                    name, text, text_of_size(low, least), text_of_size(high, most));
    return good;
}

bool measure_take_key_size(const char *command, const char *text, void *arg)
{
    return take_sizes(command, "key-size", text, BENCH_KEY_MIN, FAR_KEY_MAX, arg);
}

bool measure_take_value_size(const char *command, const char *text, void *arg)
{
    return take_sizes(command, "value-size", text, 0, FAR_VALUE_MAX, arg);
}

bool measure_take_dist(const char *command, const char *text, void *arg)
{
    struct bench_config *c = arg;
    c->dist_given = bench_dist_parse(text, &c->dist);
    if (!c->dist_given)
        cli_misused(command, "invalid --dist '%s': expected zipfian, uniform or latest", text);
    return c->dist_given;
}

bool measure_take_theta(const char *command, const char *text, void *arg)
{
    char *end;
    double theta = strtod(text, &end);
    bool good = end != text && *end == '\0' && theta > 0 && isfinite(theta);
    if (good)
        *(double *)arg = theta;
    else
        cli_misused(command, "invalid --theta '%s': expected a number greater than 0", text);
    return good;
}

bool measure_take_seed(const char *command, const char *text, void *arg)
{
    bool good = text_number(text, 0, INT64_MAX, arg);
    if (!good)
        cli_misused(command, "invalid --seed '%s': expected a whole number", text);
    return good;
}
