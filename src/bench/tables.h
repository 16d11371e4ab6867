/*
 * The tables that a benchmark makes, and how it gets rid of them.
 *
 * In a pool that outlasts the benchmark, a table is named
 *
 *     farside-bench-MACHINE-PID-START-INDEX
 *
 * by the machine, the process and the time when the process began. The prefix is reserved: see
 * farside-bench(1). The benchmark drops its tables at the end. If it was killed, a later one on the
 * same machine finds that there is no such process any more, and drops them. Tables of a process
 * that runs, and tables of other machines, are left alone.
 */
#ifndef BENCH_TABLES_H
#define BENCH_TABLES_H

#include "bench/bench.h"

#define TABLES_PREFIX "farside-bench-"

/* Does the pool outlast the benchmark? */
bool tables_last(const struct bench_config *config);

/* Does the benchmark drop its tables? Not if they are to be kept, or the pool ends with it. */
bool tables_dropped(const struct bench_config *config);

/* The name of this process's table for the index. */
void tables_name(const struct bench_config *config, const char *index, const char *suffix,
                 char name[FAR_NAME_MAX + 1]);

/* Drops the table, and reports it to the observer. */
void tables_drop(far_session *session, const char *name, bool left_over,
                 const struct bench_observer *observer);

/* Drops the tables of dead benchmarks, and reports those of other machines. */
int tables_drop_left(far_session *session, const struct bench_observer *observer);

#endif
