#include "bench/summary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- samples --------------------------------------------------------------------------------- */

static int add_sample(struct summary *s, const struct bench_run *run)
{
    for (unsigned f = 0; f < SUMMARY_FIGURES; f++) {
        double *grown = realloc(s->sample[f], (s->runs + 1) * sizeof *grown);
        if (!grown)
            return err_fail(FAR_NO_MEMORY, "no memory for the samples of %u runs", s->runs + 1);
        s->sample[f] = grown;
    }
    s->sample[SUMMARY_OPS_PER_S][s->runs] = run->ops_per_s;
    s->sample[SUMMARY_RAW_OPS_PER_S][s->runs] = run->raw_ops_per_s;
    for (unsigned k = 0; k < FAR_OP_KINDS; k++) {
        const struct hist *h = &run->op[k].latency;
        s->sample[SUMMARY_P50 + k][s->runs] = (double)hist_quantile(h, 0.5);
        s->sample[SUMMARY_P99 + k][s->runs] = (double)hist_quantile(h, 0.99);
        s->sample[SUMMARY_P999 + k][s->runs] = (double)hist_quantile(h, 0.999);
    }
    s->runs++;
    return FAR_OK;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void summary_sort(double *number, unsigned count)
{
    qsort(number, count, sizeof *number, compare);
}

struct summary_spread summary_spread_of(double *number, unsigned n)
{
    if (n == 0)
        return (struct summary_spread){0, 0, 0};
    summary_sort(number, n);
    return (struct summary_spread){.least = number[0],
                                   .median = (number[(n - 1) / 2] + number[n / 2]) / 2,
                                   .most = number[n - 1]};
}

struct summary_spread summary_spread(const struct summary *s, unsigned figure)
{
    return summary_spread_of(s->sample[figure], s->runs); /* their order does not matter */
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* The smaller of two numbers that are 0 if unknown. */
static double worse(double a, double b)
{
    return a == 0 || (b > 0 && b < a) ? b : a;
}

static void add_load(struct model_load *sum, const struct model_load *load)
{
    sum->time += load->time;
    for (unsigned p = 0; p < MODEL_PARTS; p++)
        sum->busy[p] += load->busy[p];
}

static void add_sums(struct bench_run *sum, const struct bench_run *run)
{
    sum->ops_planned += run->ops_planned;
    sum->seconds += run->seconds;
    bench_run_add(sum, run);
    if (run->space_known)
        sum->space = run->space;
    sum->space_known |= run->space_known;
    sum->slowest_ops = worse(sum->slowest_ops, run->slowest_ops);
    sum->slowest_ops_per_rtt = worse(sum->slowest_ops_per_rtt, run->slowest_ops_per_rtt);
    add_load(&sum->load, &run->load);
}

/* ---- the list -------------------------------------------------------------------------------- */

/* The runs that this one belongs to, if there are some already. */
static struct summary *find(const struct summary_list *list, unsigned threads,
                            const struct bench_run *run)
{
    for (unsigned i = 0; i < list->count; i++) {
        struct summary *s = list->item[i];
        if (s->sums && s->threads == threads && s->place == run->place &&
            strcmp(s->index, run->index) == 0)
            return s;
    }
    return NULL;
}

/* Begins with the first run. */
static struct summary *begin(struct summary_list *list, unsigned threads,
                             const struct bench_run *run)
{
    struct summary **grown = realloc(list->item, (list->count + 1) * sizeof(struct summary *));
    if (!grown)
        return NULL;
    list->item = grown;
    struct summary *s = calloc(1, sizeof *s);
    struct bench_run *sums = calloc(1, sizeof *sums);
    if (!s || !sums) {
        free(s);
        free(sums);
        return NULL;
    }
    s->workload = run->workload;
    s->place = run->place;
    s->threads = threads;
    s->sums = sums;
    *sums = *run;
    snprintf(s->index, sizeof s->index, "%s", run->index); /* the run's is gone with its table */
    sums->index = s->index;
    list->item[list->count++] = s;
    return s;
}

int summary_add(struct summary_list *list, unsigned threads, const struct bench_run *run)
{
    struct summary *s = find(list, threads, run);
    if (s)
        add_sums(s->sums, run);
    else
        s = begin(list, threads, run);
    if (!s)
        return err_fail(FAR_NO_MEMORY, "no memory to sum up runs");
    for (unsigned k = 0; k < FAR_OP_KINDS; k++)
        s->count[k] += run->op[k].stats.count;
    int rc = FAR_OK;
    if (!run->interrupted && run->halted_by == FAR_OK)
        rc = add_sample(s, run);
    if (rc == FAR_OK && s->runs > 0) {
        s->sums->ops_per_s = summary_spread(s, SUMMARY_OPS_PER_S).median;
        s->sums->raw_ops_per_s = summary_spread(s, SUMMARY_RAW_OPS_PER_S).median;
    }
    return rc;
}

void summary_forget_sums(struct summary *s)
{
    free(s->sums);
    s->sums = NULL;
}

void summary_list_free(struct summary_list *list)
{
    for (unsigned i = 0; i < list->count; i++) {
        for (unsigned f = 0; f < SUMMARY_FIGURES; f++)
            free(list->item[i]->sample[f]);
        summary_forget_sums(list->item[i]);
        free(list->item[i]);
    }
    free(list->item);
    *list = (struct summary_list){.count = 0};
}
