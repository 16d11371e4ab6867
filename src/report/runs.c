#include "report/runs.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned clients_of(const json_t *run)
{
    double clients = lookup_number(run, "processes") * lookup_number(run, "threads");
    return clients >= 1 && clients <= UINT_MAX ? (unsigned)clients : 1;
}

/* Results that are older have no such number. */
static unsigned repeat_of(const json_t *run)
{
    double repeat = lookup_number(run, "repeat");
    return repeat >= 1 && repeat <= UINT_MAX ? (unsigned)repeat : 1;
}

/* How many runs of the same repeat before this one have the same workload, index and clients. */
static unsigned earlier(const struct runs *r, const char *workload, const struct runs_run *run)
{
    unsigned count = 0;
    for (unsigned i = 0; i < r->count; i++)
        count += strcmp(lookup_text(r->run[i].json, "workload"), workload) == 0 &&
                 strcmp(r->run[i].index, run->index) == 0 && r->run[i].clients == run->clients &&
                 r->run[i].repeat == run->repeat;
    return count;
}

/* "50 % get, 50 % update" */
static void describe_mix(const json_t *run, char mix[RUNS_LABEL_BYTES])
{
    const char *op;
    json_t *cost;
    double all = 0;
    size_t len = 0;
    json_t *ops = json_object_get(run, "per_op");
    json_object_foreach(ops, op, cost) all += lookup_number(cost, "count");
    mix[0] = '\0';
    json_object_foreach(ops, op, cost)
    {
        double part = 100 * lookup_number(cost, "count") / all;
        if (len < RUNS_LABEL_BYTES)
            len += (size_t)snprintf(mix + len, RUNS_LABEL_BYTES - len, "%s%.0f %% %s",
                                    len > 0 ? ", " : "", part, op);
    }
}

/* The place of the label of this text, which is added if it is new. */
static unsigned label_for(struct runs *r, const char *text, const json_t *run)
{
    for (unsigned i = 0; i < r->labels; i++)
        if (strcmp(r->label[i].text, text) == 0)
            return i;
    struct runs_label *label = &r->label[r->labels];
    snprintf(label->text, sizeof label->text, "%s", text);
    describe_mix(run, label->mix);
    return r->labels++;
}

static void note_index(struct runs *r, const char *index)
{
    for (unsigned i = 0; i < r->indexes; i++)
        if (strcmp(r->index[i], index) == 0)
            return;
    r->index[r->indexes++] = index;
}

static int compare(const void *a, const void *b)
{
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return (x > y) - (x < y);
}

static void note_clients(struct runs *r, unsigned clients)
{
    for (unsigned i = 0; i < r->clients_count; i++)
        if (r->clients[i] == clients)
            return;
    r->clients[r->clients_count++] = clients;
    qsort(r->clients, r->clients_count, sizeof *r->clients, compare);
}

static void add(struct runs *r, const char *path, unsigned number, const json_t *json)
{
    char text[RUNS_LABEL_BYTES];
    const char *workload = lookup_text(json, "workload");
    struct runs_run run = {.json = json,
                           .index = lookup_text(json, "index"),
                           .clients = clients_of(json),
                           .repeat = repeat_of(json)};
    unsigned again = earlier(r, workload, &run);
    snprintf(run.path, sizeof run.path, "%s/%u", path, number);
    if (again == 0)
        snprintf(text, sizeof text, "%s", workload);
    else
        snprintf(text, sizeof text, "%.60s (no. %u)", workload, again + 1);
    run.label = label_for(r, text, json);
    note_index(r, run.index);
    note_clients(r, run.clients);
    r->repeated |= run.repeat > 1;
    r->run[r->count++] = run;
}

bool runs_init(struct runs *r, const json_t *root, const char *path)
{
    const json_t *array = lookup(root, path);
    size_t count = json_array_size(array), room = count > 0 ? count : 1;
    *r = (struct runs){
        .root = root,
        .run = calloc(room, sizeof *r->run),
        .label = calloc(room, sizeof *r->label),
        .index = calloc(room, sizeof *r->index),
        .clients = calloc(room, sizeof *r->clients),
    };
    if (!r->run || !r->label || !r->index || !r->clients) {
        runs_free(r);
        return false;
    }
    for (size_t i = 0; i < count; i++)
        add(r, path, (unsigned)i, json_array_get(array, i));
    return true;
}

void runs_free(struct runs *r)
{
    free(r->run);
    free(r->label);
    free(r->index);
    free(r->clients);
    *r = (struct runs){.root = NULL};
}

static bool is_of(const struct runs_run *run, unsigned label, const char *index, unsigned clients)
{
    return run->label == label && run->clients == clients && strcmp(run->index, index) == 0;
}

/* Is `a` slower than `b`, or the earlier one of two that are as fast? */
static bool comes_before(const struct runs_run *a, const struct runs_run *b)
{
    double x = lookup_number(a->json, "ops_per_s"), y = lookup_number(b->json, "ops_per_s");
    return x < y || (x == y && a < b);
}

const struct runs_run *runs_pick(const struct runs *r, unsigned label, const char *index,
                                 unsigned clients, enum runs_which which)
{
    unsigned count = 0;
    for (unsigned i = 0; i < r->count; i++)
        count += is_of(&r->run[i], label, index, clients);
    unsigned place = which == RUNS_SLOWEST   ? 0
                     : which == RUNS_FASTEST ? count - 1
                                             : (count - 1) / 2;
    for (unsigned i = 0; i < r->count; i++) {
        const struct runs_run *run = &r->run[i];
        unsigned before = 0;
        if (!is_of(run, label, index, clients))
            continue;
        for (unsigned k = 0; k < r->count; k++)
            before += is_of(&r->run[k], label, index, clients) && comes_before(&r->run[k], run);
        if (before == place)
            return run;
    }
    return NULL;
}

const struct runs_run *runs_find(const struct runs *r, unsigned label, const char *index,
                                 unsigned clients)
{
    return runs_pick(r, label, index, clients, RUNS_MEDIAN);
}

unsigned runs_ops(const struct runs *r, unsigned label, const char *op[RUNS_OPS_MAX])
{
    unsigned count = 0;
    for (unsigned i = 0; i < r->count; i++) {
        const char *name;
        json_t *cost;
        if (r->run[i].label != label)
            continue;
        json_object_foreach(json_object_get(r->run[i].json, "per_op"), name, cost)
        {
            unsigned k = 0;
            while (k < count && strcmp(op[k], name) != 0)
                k++;
            if (k == count && count < RUNS_OPS_MAX)
                op[count++] = name;
        }
    }
    return count;
}
