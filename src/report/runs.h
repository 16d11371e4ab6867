/* The runs of a benchmark, as its JSON has them, in the order of charts: by workload, then by index. */
#ifndef REPORT_RUNS_H
#define REPORT_RUNS_H

#include "report/lookup.h"

#include <stdbool.h>

#define RUNS_LABEL_BYTES 80
#define RUNS_OPS_MAX     16u

struct runs_run {
    char path[LOOKUP_PATH_BYTES / 2]; /* of the run: "runs/3" */
    const json_t *json;
    const char *index;
    unsigned label;   /* its workload, as a place in runs->label */
    unsigned clients; /* threads of all processes */
    unsigned repeat;  /* from 1 */
};

/* A workload of the list. One that is listed twice has two labels: "a", "a (no. 2)". Repeats of a
 * workload (--repeat) have the same one. */
struct runs_label {
    char text[RUNS_LABEL_BYTES];
    char mix[RUNS_LABEL_BYTES]; /* its operations: "50 % get, 50 % update" */
};

/* The strings and objects belong to the JSON. */
struct runs {
    const json_t *root;
    unsigned count;
    struct runs_run *run;
    unsigned labels;
    struct runs_label *label;
    unsigned indexes;
    const char **index;
    unsigned clients_count;
    unsigned *clients; /* rising */
    bool repeated;     /* some workload was run again */
};

/* Takes the runs of the array at `path`. False when out of memory; then there is nothing to free. */
bool runs_init(struct runs *r, const json_t *root, const char *path);
void runs_free(struct runs *r);

/* One of the repeats of a run, by operations per second, or NULL. Of an even number, the median is the
 * slower one of the two in the middle. */
enum runs_which { RUNS_SLOWEST, RUNS_MEDIAN, RUNS_FASTEST };
const struct runs_run *runs_pick(const struct runs *r, unsigned label, const char *index,
                                 unsigned clients, enum runs_which which);
/* The median. */
const struct runs_run *runs_find(const struct runs *r, unsigned label, const char *index,
                                 unsigned clients);

/* The kinds of operations that the workload has, whichever index ran it. Returns how many. */
unsigned runs_ops(const struct runs *r, unsigned label, const char *op[RUNS_OPS_MAX]);

#endif
