/*
 * Experiments: each repeats some figures and tables of the papers.
 *
 * An experiment plans its cells, which are measured and kept one by one, then shows them beside the
 * paper's numbers and judges the paper's claims by them.
 */
#ifndef REPRODUCE_EXPERIMENT_H
#define REPRODUCE_EXPERIMENT_H

#include "reproduce/claim.h"
#include "reproduce/sheet.h"

struct experiment {
    const char *name, *summary;
    const char *sources;        /* the figures and tables */
    const char *setup;          /* what we run */
    const char *const *differs; /* from what the papers ran; NULL ends it */
    void (*plan)(struct plan *p);
    void (*show)(const struct results *r, struct sheet_sink *out);
    const struct claim *claims;
};

/* All experiments; NULL after the last. */
const struct experiment *experiment_at(unsigned i);

/* Their names, as messages have them: "rtts, space". */
#define EXPERIMENT_NAMES_BYTES 512
const char *experiment_names(char names[EXPERIMENT_NAMES_BYTES]);

#define EXPERIMENTS_MAX 32u
struct experiment_list {
    unsigned count;
    const struct experiment *item[EXPERIMENTS_MAX];
};

/* Parses "rtts,space" or "all". FAR_INVALID; the detail says what is wrong. */
int experiment_parse(const char *text, struct experiment_list *list);

/* ---- the experiments, each in a file of its name --------------------------------------------- */

extern const struct experiment experiment_rtts;
extern const struct experiment experiment_space;
extern const struct experiment experiment_load_factor;
extern const struct experiment experiment_ycsb;
extern const struct experiment experiment_insert;
extern const struct experiment experiment_mixes;
extern const struct experiment experiment_fill;
extern const struct experiment experiment_resize;
extern const struct experiment experiment_skew;
extern const struct experiment experiment_value_size;
extern const struct experiment experiment_coroutines;
extern const struct experiment experiment_alpha;
extern const struct experiment experiment_locks;
extern const struct experiment experiment_failures;
extern const struct experiment experiment_factors;
extern const struct experiment experiment_anatomy;
extern const struct experiment experiment_load_latency;
extern const struct experiment experiment_restructure;
extern const struct experiment experiment_leaves;
extern const struct experiment experiment_zippydb;
extern const struct experiment experiment_nic;

#endif
