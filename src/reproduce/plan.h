/*
 * What an experiment measures: cells, each of them one configuration of the benchmark on one table,
 * or verbs without a table.
 */
#ifndef REPRODUCE_PLAN_H
#define REPRODUCE_PLAN_H

#include "bench/bench.h"

#define PLAN_CELLS_MAX    192u
#define PLAN_NAME_BYTES   48
#define PLAN_TUNING_BYTES 96

/* The clients and the network between them and the memory nodes. */
struct plan_network {
    const char *nic; /* of the model: "cx5" or "cx6". NULL: mem:, with one client */
    unsigned machines, threads, depth; /* threads of a machine, operations in flight of a thread */
    unsigned nodes;
    unsigned deaths;   /* of clients in a second, on the model only */
    unsigned lease_ms; /* 0: the default */
    unsigned gbits;    /* of the model: the network's rate, if it is not that of the card */
    bool untuned;      /* of the model: the driver's default doorbells, and no limit of verbs */
    bool locks_in_nic; /* of the model: words of locks are in the card's own memory */
    bool model_only; /* the cell is about the model, so it runs there also if there is a testbed */
};

/* What a figure varies. */
#define PLAN_AXIS_MAX 8u
struct plan_axis {
    unsigned count;
    unsigned value[PLAN_AXIS_MAX];
};

/* Verbs without an index, on the model: see bench/bare.h. */
struct plan_verbs {
    const char *kind; /* "read", "write" or "cas"; NULL: the cell measures an index */
    unsigned bytes, rounds;
    bool one_place;               /* all at the same word */
    struct plan_axis outstanding; /* verbs of each client: a run for each number */
};

struct plan_cell {
    char name[PLAN_NAME_BYTES];     /* unique in its experiment; also the name of its result file */
    const char *index;              /* NULL: verbs without an index */
    char tuning[PLAN_TUNING_BYTES]; /* "": the defaults */
    const char *workloads;          /* for workload_parse(); each runs on tables of its own */
    uint64_t keys;
    uint64_t ops;           /* on a network, runs also last for CELL_LEAST_MS at least */
    uint64_t expected_keys; /* the room that the table begins with; 0: it starts small */
    unsigned key_size, value_size;
    bool uniform;       /* all workloads draw keys uniformly; else as farside bench does */
    double theta;       /* of zipfian */
    unsigned window_us; /* > 0: keep the throughput of windows of this length, in virtual time */
    /* The run is as long as `ops` says, because the table gets full then: FAR_TABLE_FULL is an
     * expected end. */
    bool until_full;
    struct plan_network network;
    struct plan_verbs verbs;
};

struct plan {
    bool quick;
    unsigned count;
    struct plan_cell cell[PLAN_CELLS_MAX];
};

/* Adds a cell for the index, with the defaults of farside bench. It is changed by the caller. */
struct plan_cell *plan_add(struct plan *p, const char *index, const char *name, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds a cell for verbs of 8 bytes on the model. */
struct plan_cell *plan_add_verbs(struct plan *p, const char *kind, const char *name, ...)
    __attribute__((format(printf, 3, 4)));

/* The keys of most cells: a million, or a tenth of that with --quick. */
uint64_t plan_keys(const struct plan *p);

void plan_tune(struct plan_cell *cell, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* All clients. */
static inline unsigned plan_clients(const struct plan_network *n)
{
    return n->machines * n->threads;
}

/* Enough operations that every client has many. To be called when the network is set. */
void plan_busy(const struct plan *p, struct plan_cell *cell);

/* The cell of that name, or NULL. */
const struct plan_cell *plan_find(const struct plan *p, const char *name);

/* The indexes in the order of the tables: NULL after the last. */
const char *plan_index(unsigned i);
/* An index as its paper writes it: "SepHash". */
const char *plan_title(const char *index);

#endif
