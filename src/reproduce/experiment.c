#include "reproduce/experiment.h"

#include "base/err.h"

#include <string.h>

static const struct experiment *const experiments[] = {
    &experiment_rtts,         &experiment_space,       &experiment_load_factor, &experiment_ycsb,
    &experiment_insert,       &experiment_mixes,       &experiment_fill,        &experiment_resize,
    &experiment_skew,         &experiment_value_size,  &experiment_coroutines,  &experiment_alpha,
    &experiment_locks,        &experiment_failures,    &experiment_factors,     &experiment_anatomy,
    &experiment_load_latency, &experiment_restructure, &experiment_leaves,      &experiment_zippydb,
    &experiment_nic,
};
#define EXPERIMENTS (sizeof experiments / sizeof *experiments)
_Static_assert(EXPERIMENTS <= EXPERIMENTS_MAX, "a list can have all experiments");

const struct experiment *experiment_at(unsigned i)
{
    return i < EXPERIMENTS ? experiments[i] : NULL;
}

const char *experiment_names(char names[EXPERIMENT_NAMES_BYTES])
{
    size_t len = 0;
    for (unsigned i = 0; i < EXPERIMENTS; i++)
        len += (size_t)snprintf(names + len, EXPERIMENT_NAMES_BYTES - len, "%s%s",
                                i > 0 ? ", " : "", experiments[i]->name);
    ASSERT(len < EXPERIMENT_NAMES_BYTES);
    return names;
}

static const struct experiment *find(const char *name, size_t len)
{
    for (unsigned i = 0; i < EXPERIMENTS; i++)
        if (strlen(experiments[i]->name) == len && memcmp(experiments[i]->name, name, len) == 0)
            return experiments[i];
    return NULL;
}

static bool listed(const struct experiment_list *list, const struct experiment *e)
{
    for (unsigned i = 0; i < list->count; i++)
        if (list->item[i] == e)
            return true;
    return false;
}

int experiment_parse(const char *text, struct experiment_list *list)
{
    char names[EXPERIMENT_NAMES_BYTES];
    struct experiment_list parsed = {.count = 0};
    bool all = strcmp(text, "all") == 0;
    for (unsigned i = 0; all && i < EXPERIMENTS; i++)
        parsed.item[parsed.count++] = experiments[i];
    for (const char *at = text; at && !all; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t len = strcspn(at, ",");
        const struct experiment *e = find(at, len);
        if (!e)
            return err_fail(FAR_INVALID, "unknown experiment '%.*s' (available: %s, all)",
                            len < 64 ? (int)len : 64, at, experiment_names(names));
        if (listed(&parsed, e))
            return err_fail(FAR_INVALID, "experiment '%s' is listed twice", e->name);
        parsed.item[parsed.count++] = e;
    }
    *list = parsed;
    return FAR_OK;
}
