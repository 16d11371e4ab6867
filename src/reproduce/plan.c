#include "reproduce/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define KEYS       1000000u
#define QUICK_KEYS 100000u

/* Each client's cache is empty at the beginning of a workload, so it needs some to fill it. */
#define OPS_OF_CLIENT       5000u
#define QUICK_OPS_OF_CLIENT 500u

/* The model is deterministic, and each client's first rounds are like its last ones. */
#define VERB_ROUNDS 40u

static const struct {
    const char *name, *title;
} indexes[] = {
    {"race", "RACE"},       {"sephash", "SepHash"}, {"shard", "SHARD"},
    {"rcuckoo", "RCuckoo"}, {"chime", "CHIME"},
};
#define INDEXES (sizeof indexes / sizeof *indexes)

const char *plan_index(unsigned i)
{
    return i < INDEXES ? indexes[i].name : NULL;
}

const char *plan_title(const char *index)
{
    for (unsigned i = 0; i < INDEXES; i++)
        if (strcmp(indexes[i].name, index) == 0)
            return indexes[i].title;
    return index;
}

uint64_t plan_keys(const struct plan *p)
{
    return p->quick ? QUICK_KEYS : KEYS;
}

static struct plan_cell *add(struct plan *p, const char *index, const char *name, va_list args)
{
    ASSERT(p->count < PLAN_CELLS_MAX);
    struct plan_cell *cell = &p->cell[p->count];
    *cell = (struct plan_cell){
        .index = index,
        .workloads = "load",
        .keys = plan_keys(p),
        .ops = plan_keys(p),
        .key_size = bench_defaults.sizes.key.max,
        .value_size = bench_defaults.sizes.value.max,
        .theta = bench_defaults.theta,
        .network = {.machines = 1, .threads = 1, .depth = 1, .nodes = 1},
    };
    int len = vsnprintf(cell->name, sizeof cell->name, name, args);
    ASSERT(len > 0 && len < PLAN_NAME_BYTES && !plan_find(p, cell->name));
    p->count++;
    return cell;
}

struct plan_cell *plan_add(struct plan *p, const char *index, const char *name, ...)
{
    va_list args;
    va_start(args, name);
    struct plan_cell *cell = add(p, index, name, args);
    va_end(args);
    if (strcmp(index, "chime") != 0) /* the other papers have no hints */
        plan_tune(cell, "hot=0");
    return cell;
}

struct plan_cell *plan_add_verbs(struct plan *p, const char *kind, const char *name, ...)
{
    va_list args;
    va_start(args, name);
    struct plan_cell *cell = add(p, NULL, name, args);
    va_end(args);
    cell->verbs = (struct plan_verbs){.kind = kind, .bytes = 8, .rounds = VERB_ROUNDS};
    cell->network.model_only = true;
    return cell;
}

void plan_tune(struct plan_cell *cell, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(cell->tuning, sizeof cell->tuning, format, args);
    va_end(args);
    ASSERT(len < PLAN_TUNING_BYTES);
}

void plan_busy(const struct plan *p, struct plan_cell *cell)
{
    uint64_t ops =
        (uint64_t)plan_clients(&cell->network) * (p->quick ? QUICK_OPS_OF_CLIENT : OPS_OF_CLIENT);
    cell->ops = ops > cell->keys ? ops : cell->keys;
}

const struct plan_cell *plan_find(const struct plan *p, const char *name)
{
    for (unsigned i = 0; i < p->count; i++)
        if (strcmp(p->cell[i].name, name) == 0)
            return &p->cell[i];
    return NULL;
}
