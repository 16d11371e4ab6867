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

double results_rate(const struct results *r, const char *workload, const char *cell, ...)
{
    va_list args;
    va_start(args, cell);
    double value = number(run_of(runs_of(r, cell, args), workload), "ops_per_s");
    va_end(args);
    return value;
}

double results_rate_at(const struct results *r, unsigned place, const char *cell, ...)
{
    va_list args;
    va_start(args, cell);
    double value = number(json_array_get(runs_of(r, cell, args), place), "ops_per_s");
    va_end(args);
    return value;
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
