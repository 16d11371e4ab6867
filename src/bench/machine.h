/* On what a benchmark ran. */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include <jansson.h>

/* The machine of this process: processor, number of processors, bytes of memory, system. A new
 * reference; NULL when out of memory. docs/man/farside-bench.1 describes the members. */
json_t *machine_json(void);

/* The time now, in UTC: "2026-01-31T12:00:00Z". */
#define MACHINE_TIME_BYTES 32
const char *machine_time(char text[MACHINE_TIME_BYTES]);

#endif
