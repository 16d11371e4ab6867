#include "reproduce/results.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const json_t *runs_of(const struct results *r, const char *format, va_list args)
{
    char name[PLAN_NAME_BYTES];
    vsnprintf(name, sizeof name, format, args);
    const struct plan_cell *cell = plan_find(r->plan, name);
    return cell ? r->runs[cell - r->plan->cell] : NULL;
}

static const json_t *run_of(const json_t *runs, const char *workload)
{
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        const char *name = json_string_value(json_object_get(run, "workload"));
        if (name && strcmp(name, workload) == 0)
            return run;
    }
    return NULL;
}

static double number(const json_t *object, const char *member)
{
    const json_t *value = json_object_get(object, member);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

bool results_stalled(const struct plan_cell *cell, const json_t *run)
{
    const char *op;
    json_t *cost;
    double needed = 0; /* seconds */
    json_object_foreach(json_object_get(run, "per_op"), op, cost) needed +=
        number(cost, "count") * number(cost, "p99_us") / 1e6;
    double lanes = (double)plan_clients(&cell->network) * cell->network.depth;
    return needed > 0 && number(run, "seconds") * lanes > RESULTS_STALL * needed;
}

/* Operations per second of a run of the cell whose runs these are. */
static double rate_of(const struct results *r, const json_t *runs, const json_t *run)
{
    for (unsigned i = 0; i < r->plan->count; i++)
        if (runs && r->runs[i] == runs && results_stalled(&r->plan->cell[i], run))
            return NAN;
    return number(run, "ops_per_s");
}

double results_rate(const struct results *r, const char *workload, const char *cell, ...)
{
    va_list args;
    va_start(args, cell);
    const json_t *runs = runs_of(r, cell, args);
    va_end(args);
    return rate_of(r, runs, run_of(runs, workload));
}

double results_rate_at(const struct results *r, unsigned place, const char *cell, ...)
{
    va_list args;
    va_start(args, cell);
    const json_t *runs = runs_of(r, cell, args);
    va_end(args);
    return rate_of(r, runs, json_array_get(runs, place));
}

unsigned results_timeline(const struct results *r, const char *workload, double *rates,
                          unsigned room, const char *cell, ...)
{
    va_list args;
    va_start(args, cell);
    const json_t *run = run_of(runs_of(r, cell, args), workload);
    va_end(args);
    const json_t *line = json_object_get(run, "timeline");
    unsigned count = (unsigned)json_array_size(line);
    if (count > room)
        count = room;
    for (unsigned i = 0; i < count; i++)
        rates[i] = number(json_array_get(line, i), "ops_per_s");
    return count;
}

double results_op(const struct results *r, const char *workload, const char *op, const char *member,
                  const char *cell, ...)
{
    va_list args;
    va_start(args, cell);
    const json_t *run = run_of(runs_of(r, cell, args), workload);
    va_end(args);
    return number(json_object_get(json_object_get(run, "per_op"), op), member);
}

double results_space(const struct results *r, const char *workload, const char *member,
                     const char *cell, ...)
{
    va_list args;
    va_start(args, cell);
    const json_t *run = run_of(runs_of(r, cell, args), workload);
    va_end(args);
    return number(json_object_get(run, "space"), member);
}

void results_free(struct results *r)
{
    for (unsigned i = 0; i < PLAN_CELLS_MAX; i++)
        json_decref(r->runs[i]);
    *r = (struct results){.plan = r->plan};
}
