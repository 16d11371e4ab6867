/* The driver of workers that measure a table of Farside, with a session each. */
#ifndef BENCH_SESSION_H
#define BENCH_SESSION_H

#include "bench/worker.h"

extern const struct worker_driver session_driver;

#endif
