/*
 * Comparing Farside with what a user might take instead on one machine.
 *
 *   rival      what a store is, and what a module of one exports
 *   stores     Farside, Redis and memcached as stores; modules/ has LMDB and libcuckoo
 *   server     server programs that the benchmark starts
 *   protocol   the protocols of Redis and memcached
 *   pipeline   a connection with several requests in flight
 *   driver     how the benchmark's workers reach a store
 *   compare    rounds of all workloads on all stores
 *   table      the results: text for people, JSON for programs
 *
 * In each round every store is made, loaded, measured and closed, one after the other, so nothing
 * else of the benchmark runs meanwhile. Each round begins with another store. So what slows down
 * the machine for a while hits all stores alike, and the ratio to Farside is taken within a round.
 */
#ifndef COMPARE_COMPARE_H
#define COMPARE_COMPARE_H

#include "bench/bench.h"
#include "bench/summary.h"
#include "compare/rival.h"
#include "compare/stores.h"

#include <jansson.h>
#include <stdio.h>

#define COMPARE_STORES_MAX     8
#define COMPARE_ROUNDS_MAX     100u
#define COMPARE_ROUNDS_DEFAULT 5u
#define COMPARE_WORKLOADS      "load,c,put,a"
#define COMPARE_KEYS           200000u /* by default, and as many operations */
#define COMPARE_KEYS_PER_DEPTH 5000u   /* over the network: at most this, times depth and threads */

struct compare_config {
    const struct bench_config *bench; /* of keys and ops, 0 stands for the default of a group */
    const char *list;                 /* names of rivals, or "all" */
    const char *program;              /* path of `farside` */
    unsigned rounds;
    void *arg; /* of progress */
    /* `done` of `total` workloads are measured, and this one begins; may be NULL. */
    void (*progress)(void *arg, const char *store, const char *workload, uint64_t done,
                     uint64_t total);
};

struct compare_store {
    const char *name;
    enum store_group group;
    const struct rival_ops *ops; /* NULL: it is left out */
    char text[RIVAL_TEXT_BYTES]; /* how it is set up, or why it is left out */
    double ops_per_s[WORKLOAD_LIST_MAX][COMPARE_ROUNDS_MAX];
};

struct compare {
    struct compare_config config;
    struct rival_setup setup[STORE_GROUPS];
    uint64_t ops[STORE_GROUPS];
    /* In each group, Farside comes first. */
    struct compare_store store[COMPARE_STORES_MAX];
    unsigned stores;
    unsigned rounds;       /* that are complete */
    struct bench_run *run; /* the last; too large for the stack */
    /* All runs as JSON, as those of a benchmark; a store takes the place of an index, and a round
     * that of a repeat. */
    json_t *runs[STORE_GROUPS];
};

/*
 * Finds the rivals, makes each store once to see that it works, and fills in how it is set up.
 *
 * FAR_INVALID    the configuration; the detail says what is wrong
 * FAR_NO_FABRIC  a rival that the list names is not installed, or none of all is
 * FAR_NO_MEMORY, FAR_SYSTEM
 */
int compare_open(const struct compare_config *config, struct compare **compare);
void compare_close(struct compare *compare);

/* Measures the rounds; fewer if bench->stop is set. */
int compare_run(struct compare *compare);

/* Of the operations per second, and of Farside's as a multiple of the store's, in all rounds. There
 * is at least one. */
struct summary_spread compare_ops(const struct compare *c, const struct compare_store *store,
                                  unsigned workload);
struct summary_spread compare_ratio(const struct compare *c, const struct compare_store *store,
                                    unsigned workload);

/* Is there a run? */
bool compare_measured(const struct compare *c);

/* Farside's store in the group, or NULL. */
const struct compare_store *compare_own(const struct compare *c, enum store_group group);

/* ---- table.c --------------------------------------------------------------------------------- */

/* Prints how the stores are set up, and which ones are left out. */
void table_setup(const struct compare *c, FILE *out);
/* Prints the complete rounds. There must be one at least. No line has more than 100
 * columns. */
void table_results(const struct compare *c, FILE *out);

/* A new reference; NULL when out of memory. docs/man/farside-compare.1 describes the members. */
json_t *table_json(const struct compare *c, bool interrupted);

#endif
