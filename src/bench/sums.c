/* Figures of several workers or runs, added up. */
#include "bench/bench.h"

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
    if (splits == 0)
        return;
    space->split_load_mean = (space->split_load_mean * (double)space->splits +
                              more->split_load_mean * (double)more->splits) /
                             (double)splits;
    if (more->split_load_max > space->split_load_max)
        space->split_load_max = more->split_load_max;
    space->splits = splits;
}
