/* Figures of several workers or runs, added up. */
#include "bench/bench.h"

#include <string.h>

uint64_t bench_op_errors(const struct bench_op *op)
{
    /* Inserts are of new keys, so "exists" is an error. */
    return op->stats.errors + op->stats.exists + op->wrong;
}

void bench_stats_add(struct far_op_stats *sum, const struct far_op_stats *before,
                     const struct far_op_stats *after)
{
    sum->count += after->count - before->count;
    sum->not_found += after->not_found - before->not_found;
    sum->exists += after->exists - before->exists;
    sum->errors += after->errors - before->errors;
    sum->rtts += after->rtts - before->rtts;
    sum->verbs += after->verbs - before->verbs;
    sum->bytes_read += after->bytes_read - before->bytes_read;
    sum->bytes_written += after->bytes_written - before->bytes_written;
    sum->entries += after->entries - before->entries;
    sum->joined += after->joined - before->joined;
    for (unsigned i = 0; i < FAR_RTTS_TOLD; i++)
        sum->took[i] += after->took[i] - before->took[i];
}

void bench_add_splits(struct far_table_info *space, const struct far_table_info *more)
{
    uint64_t splits = space->splits + more->splits;
    space->split_ns += more->split_ns;
    for (unsigned i = 0; i < FAR_TABLE_FIGURES_MAX && more->session[i].name; i++) {
        space->session[i].name = more->session[i].name;
        space->session[i].value += more->session[i].value;
    }
    if (splits == 0)
        return;
    space->split_load_mean = (space->split_load_mean * (double)space->splits +
                              more->split_load_mean * (double)more->splits) /
                             (double)splits;
    if (more->split_load_max > space->split_load_max)
        space->split_load_max = more->split_load_max;
    space->splits = splits;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void add_pace(struct bench_pace *sum, const struct bench_pace *p)
{
    sum->rate = larger(sum->rate, p->rate);
    sum->late_max = larger(sum->late_max, p->late_max);
    sum->late_last = larger(sum->late_last, p->late_last);
    sum->fell_behind |= p->fell_behind;
}

static void add_end(struct bench_run *sum, const struct bench_run *run)
{
    if (sum->first_error == FAR_OK)
        sum->first_error = run->first_error;
    sum->interrupted |= run->interrupted;
    if (run->halted_by == FAR_OK)
        return;
    sum->halted_by = run->halted_by;
    memcpy(sum->detail, run->detail, sizeof sum->detail);
}

void bench_run_add(struct bench_run *sum, const struct bench_run *run)
{
    sum->ops += run->ops;
    sum->warmup += run->warmup;
    sum->deaths += run->deaths;
    for (unsigned k = 0; k < FAR_OP_KINDS; k++) {
        bench_stats_add(&sum->op[k].stats, &(struct far_op_stats){0}, &run->op[k].stats);
        sum->op[k].wrong += run->op[k].wrong;
        hist_merge(&sum->op[k].latency, &run->op[k].latency);
    }
    counters_add(&sum->counters, &run->counters);
    add_pace(&sum->pace, &run->pace);
    add_end(sum, run);
}

void bench_run_merge(struct bench_run *sum, const struct bench_run *run)
{
    bench_run_add(sum, run);
    bench_add_splits(&sum->space, &run->space);
    for (unsigned n = 0; n < BENCH_WINDOWS_MAX; n++) {
        sum->window[n].ops += run->window[n].ops;
        sum->window[n].rtts += run->window[n].rtts;
    }
    if (run->windows > sum->windows)
        sum->windows = run->windows;
    if (run->windows_filled < sum->windows_filled)
        sum->windows_filled = run->windows_filled;
    if (run->seconds > sum->seconds)
        sum->seconds = run->seconds;
    sum->ops_per_s = sum->seconds > 0 ? (double)sum->ops / sum->seconds : 0;
}
