#include "reproduce/results.h"

#include "bench/summary.h"
#include "reproduce/cell.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The run of a workload with a seed, from 1 on. */
static const json_t *run_of(const json_t *runs, const char *workload, unsigned seed)
{
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        const char *name = json_string_value(json_object_get(run, "workload"));
        if (name && strcmp(name, workload) == 0 && --seed == 0)
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

/* IEEE 754 arithmetic keeps the payload of a NAN, so a rate that is missing because the run stood
 * still differs from one that was not measured. */
#define STOOD_STILL "0x57111"

/* The bits of a number, without its sign. */
static uint64_t unsigned_bits(double number)
{
    uint64_t bits = 0;
    memcpy(&bits, &number, sizeof bits);
    return bits << 1;
}

bool results_stood_still(double number)
{
    return unsigned_bits(number) == unsigned_bits(nan(STOOD_STILL));
}

/* The runs of a cell's workload. */
struct runs {
    const struct plan_cell *cell;
    const json_t *all;
    const char *workload;
    unsigned seed; /* as in struct results */
};

static struct runs runs_of(const struct results *r, const char *workload, const char *format,
                           va_list args)
{
    char name[PLAN_NAME_BYTES];
    vsnprintf(name, sizeof name, format, args);
    const struct plan_cell *cell = plan_find(r->plan, name);
    return (struct runs){cell, cell ? r->runs[cell - r->plan->cell] : NULL, workload, r->seed};
}

/* A number of one run. */
typedef double number_fn(const struct runs *of, const json_t *run, const char *op,
                         const char *member);

/* The number of the seed, or the median of all seeds: NAN if one of them has none. */
static double pick(const struct runs *of, number_fn *get, const char *op, const char *member)
{
    double numbers[CELL_SEEDS];
    unsigned count = 0;
    if (of->seed > 0)
        return get(of, run_of(of->all, of->workload, of->seed), op, member);
    for (unsigned seed = 1; seed <= CELL_SEEDS; seed++) {
        const json_t *run = run_of(of->all, of->workload, seed);
        if (run)
            numbers[count++] = get(of, run, op, member);
        if (run && isnan(numbers[count - 1]))
            return numbers[count - 1];
    }
    if (count == 0)
        return NAN;
    summary_sort(numbers, count);
    return numbers[count / 2];
}

static double rate_of(const struct runs *of, const json_t *run, const char *op, const char *member)
{
    (void)op;
    (void)member;
    return run && results_stalled(of->cell, run) ? nan(STOOD_STILL) : number(run, "ops_per_s");
}

static double cost_of(const struct runs *of, const json_t *run, const char *op, const char *member)
{
    (void)of;
    return number(json_object_get(json_object_get(run, "per_op"), op), member);
}

static double space_of(const struct runs *of, const json_t *run, const char *op, const char *member)
{
    (void)of;
    (void)op;
    return number(json_object_get(run, "space"), member);
}

double results_rate(const struct results *r, const char *workload, const char *cell, ...)
{
    va_list args;
    va_start(args, cell);
    struct runs of = runs_of(r, workload, cell, args);
    va_end(args);
    return pick(&of, rate_of, NULL, NULL);
}

double results_rate_at(const struct results *r, unsigned place, const char *cell, ...)
{
    va_list args;
    va_start(args, cell);
    struct runs of = runs_of(r, NULL, cell, args);
    va_end(args);
    return number(json_array_get(of.all, place), "ops_per_s");
}

unsigned results_timeline(const struct results *r, const char *workload, double *rates,
                          unsigned room, const char *cell, ...)
{
    va_list args;
    va_start(args, cell);
    struct runs of = runs_of(r, workload, cell, args);
    va_end(args);
    const json_t *line =
        json_object_get(run_of(of.all, workload, of.seed > 0 ? of.seed : 1), "timeline");
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
    struct runs of = runs_of(r, workload, cell, args);
    va_end(args);
    return pick(&of, cost_of, op, member);
}

double results_space(const struct results *r, const char *workload, const char *member,
                     const char *cell, ...)
{
    va_list args;
    va_start(args, cell);
    struct runs of = runs_of(r, workload, cell, args);
    va_end(args);
    return pick(&of, space_of, NULL, member);
}

void results_free(struct results *r)
{
    for (unsigned i = 0; i < PLAN_CELLS_MAX; i++)
        json_decref(r->runs[i]);
    *r = (struct results){.plan = r->plan};
}
