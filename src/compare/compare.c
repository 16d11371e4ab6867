#include "compare/compare.h"
#include "base/err.h"
#include "bench/json.h"
#include "bench/runner.h"
#include "compare/driver.h"
#include "fabric/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A rival, and the stores that it is. */
static const struct rival {
    const char *name;
    enum store_group group;
    const struct rival_ops *ops; /* NULL: it is in a module */
    const char *module, *needs;
    const char *variant[RIVAL_VARIANTS_MAX];
} rivals[] = {
    {"lmdb", STORE_EMBEDDED, NULL, "rival-lmdb", "liblmdb-dev", {"lmdb", "lmdb-batch"}},
    {"cuckoo",
     STORE_EMBEDDED,
     NULL,
     "rival-cuckoo",
     "libcuckoo-dev and g++",
     {"cuckoo", "cuckoo-string"}},
    {"redis", STORE_NETWORKED, &store_redis, NULL, NULL, {"redis"}},
    {"memcached", STORE_NETWORKED, &store_memcached, NULL, NULL, {"memcached"}},
};
#define RIVALS (sizeof rivals / sizeof *rivals)

static const struct rival_ops *const own_ops[STORE_GROUPS] = {&store_farside_mem,
                                                              &store_farside_ucx};

static bool stopped(const struct compare *c)
{
    const atomic_bool *stop = c->config.bench->stop;
    return stop && atomic_load(stop);
}

/* ---- the configuration ----------------------------------------------------------------------- */

/* Sets a bit for each rival of the list. */
static int read_list(const char *list, unsigned *wanted)
{
    *wanted = strcmp(list, "all") == 0 ? (1u << RIVALS) - 1 : 0;
    for (const char *at = *wanted ? NULL : list; at;
         at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t len = strcspn(at, ","), i = 0;
        while (i < RIVALS && (strlen(rivals[i].name) != len || strncmp(rivals[i].name, at, len)))
            i++;
        if (i == RIVALS)
            return err_fail(
                FAR_INVALID,
                "cannot compare with '%.*s' (available: lmdb, cuckoo, redis, memcached; or all)",
                (int)(len < 32 ? len : 32), at);
        *wanted |= 1u << i;
    }
    return FAR_OK;
}

/* Can the workload be compared: is every operation a get or a put? */
static bool can_compare(const struct workload *w)
{
    return w->percent[WORKLOAD_ADD] + w->percent[WORKLOAD_GET] + w->percent[WORKLOAD_MISS] +
               w->percent[WORKLOAD_PUT] + w->percent[WORKLOAD_UPDATE] ==
           100;
}

/* What every benchmark needs: sizes, the index and its tuning, the workloads. */
static int check_bench(const struct bench_config *b)
{
    struct bench_config filled = *b;
    filled.pool = "mem:";
    filled.keys = b->keys > 0 ? b->keys : COMPARE_KEYS;
    filled.ops = b->ops > 0 ? b->ops : COMPARE_KEYS;
    return bench_check(&filled);
}

static int check_config(const struct compare_config *c)
{
    const struct bench_config *b = c->bench;
    if (c->rounds == 0 || c->rounds > COMPARE_ROUNDS_MAX)
        return err_fail(FAR_INVALID, "--rounds must be 1 to %u", COMPARE_ROUNDS_MAX);
    for (unsigned i = 0; i < b->workloads.count; i++)
        if (!can_compare(&b->workloads.item[i]))
            return err_fail(FAR_INVALID,
                            "workload '%s' cannot be compared: only gets, puts, updates, misses "
                            "and load can, such as in " COMPARE_WORKLOADS,
                            b->workloads.item[i].name);
    return check_bench(b);
}

static void set_up(struct compare *c, enum store_group group)
{
    const struct bench_config *b = c->config.bench;
    uint64_t count = COMPARE_KEYS;
    uint64_t networked = (uint64_t)COMPARE_KEYS_PER_DEPTH * b->depth * b->threads;
    if (group == STORE_NETWORKED && networked < count)
        count = networked;
    c->ops[group] = b->ops > 0 ? b->ops : count;
    c->setup[group] = (struct rival_setup){
        .key_min = b->sizes.key.min,
        .key_max = b->sizes.key.max,
        .value_min = b->sizes.value.min,
        .value_max = b->sizes.value.max,
        .keys = b->keys > 0 ? b->keys : count,
        .threads = b->threads,
        .depth = b->depth,
        .seed = b->seed,
        .index = b->index,
        .tuning = b->tuning,
        .program = c->config.program,
        .fail = err_fail,
    };
}

/* ---- finding stores -------------------------------------------------------------------------- */

/* Makes the store once, to see that it works. */
static int try_store(struct compare *c, struct compare_store *s)
{
    void *store = NULL;
    int rc = s->ops->open(&c->setup[s->group], &store);
    if (rc != FAR_OK)
        return rc;
    s->ops->describe(store, s->text);
    s->ops->close(store);
    return FAR_OK;
}

/* Adds a store, or the reason why it is left out: `found` says why there are no `ops`. An error if
 * the store must not be left out. */
static int add_store(struct compare *c, const char *name, enum store_group group,
                     const struct rival_ops *ops, int found)
{
    ASSERT(c->stores < COMPARE_STORES_MAX);
    struct compare_store *s = &c->store[c->stores];
    s->name = name;
    s->group = group;
    s->ops = ops;
    int rc = ops ? try_store(c, s) : found;
    bool may_lack =
        rc == FAR_UNSUPPORTED || (rc == FAR_NO_FABRIC && strcmp(c->config.list, "all") == 0);
    if (rc != FAR_OK && !may_lack)
        return rc;
    if (rc != FAR_OK) {
        s->ops = NULL;
        snprintf(s->text, sizeof s->text, "%s", far_error_detail());
    }
    c->stores++;
    return FAR_OK;
}

static int add_rival(struct compare *c, const struct rival *r)
{
    const struct rival_module *module = NULL;
    const void *entry = NULL;
    int rc = FAR_OK, found = r->ops ? FAR_OK : module_open(r->module, r->needs, &entry);
    module = entry;
    for (unsigned v = 0; v < RIVAL_VARIANTS_MAX && r->variant[v] && rc == FAR_OK; v++) {
        const struct rival_ops *ops = r->ops ? r->ops : module ? module->variant[v] : NULL;
        if (!stopped(c))
            rc = add_store(c, r->variant[v], r->group, ops, found);
    }
    return rc;
}

static int add_group(struct compare *c, enum store_group group, unsigned wanted)
{
    for (unsigned i = 0; i < RIVALS; i++)
        wanted &= rivals[i].group == group ? ~0u : ~(1u << i);
    if (wanted == 0)
        return FAR_OK;
    set_up(c, group);
    c->runs[group] = json_array();
    int rc = add_store(c, "farside", group, own_ops[group], FAR_OK);
    for (unsigned i = 0; i < RIVALS && rc == FAR_OK; i++)
        if (wanted >> i & 1)
            rc = add_rival(c, &rivals[i]);
    return rc;
}

const struct compare_store *compare_own(const struct compare *c, enum store_group group)
{
    for (unsigned i = 0; i < c->stores; i++)
        if (c->store[i].group == group && c->store[i].ops == own_ops[group])
            return &c->store[i];
    return NULL;
}

/* Leaves out what has no one to be compared with. */
static void leave_out_lonely(struct compare *c)
{
    for (unsigned group = 0; group < STORE_GROUPS; group++) {
        unsigned others = 0;
        for (unsigned i = 0; i < c->stores; i++)
            others +=
                c->store[i].group == group && c->store[i].ops && c->store[i].ops != own_ops[group];
        bool lonely = others == 0 || !compare_own(c, group);
        for (unsigned i = 0; i < c->stores && lonely; i++) {
            struct compare_store *s = &c->store[i];
            if (s->group == group && s->ops) {
                s->ops = NULL;
                snprintf(s->text, sizeof s->text, "there is nothing to compare it with");
            }
        }
    }
}

static int check_found(const struct compare *c)
{
    char why[ERR_DETAIL_BYTES] = "";
    for (unsigned i = 0; i < c->stores; i++) {
        if (c->store[i].ops)
            return FAR_OK;
        if (!*why && strcmp(c->store[i].name, "farside") != 0)
            snprintf(why, sizeof why, "%s: %.200s", c->store[i].name, c->store[i].text);
    }
    return err_fail(FAR_NO_FABRIC, "nothing to compare with: %s", why);
}

int compare_open(const struct compare_config *config, struct compare **compare)
{
    unsigned wanted = 0;
    int rc = read_list(config->list, &wanted);
    if (rc == FAR_OK)
        rc = check_config(config);
    if (rc != FAR_OK)
        return rc;
    struct compare *c = calloc(1, sizeof *c);
    if (!c)
        return err_fail(FAR_NO_MEMORY, "no memory for the results");
    c->config = *config;
    c->run = malloc(sizeof *c->run);
    if (!c->run)
        rc = err_fail(FAR_NO_MEMORY, "no memory for the results");
    for (unsigned group = 0; group < STORE_GROUPS && rc == FAR_OK; group++)
        rc = add_group(c, group, wanted);
    if (rc == FAR_OK)
        leave_out_lonely(c);
    if (rc == FAR_OK && !stopped(c))
        rc = check_found(c);
    if (rc == FAR_OK)
        *compare = c;
    else
        compare_close(c);
    return rc;
}

void compare_close(struct compare *c)
{
    for (unsigned group = 0; group < STORE_GROUPS; group++)
        json_decref(c->runs[group]);
    free(c->run);
    free(c);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* A store in a round. */
struct turn {
    struct compare *c;
    struct compare_store *s;
    void *store;
    unsigned round;
    struct bench_dist *dist;
    struct workload_span keys;
};

/* Keeps the last run, which was the workload at this place of the list. */
static int keep_run(const struct turn *t, unsigned place)
{
    struct compare *c = t->c;
    struct bench_config config = *c->config.bench;
    config.keys = c->setup[t->s->group].keys;
    c->run->place = place;
    c->run->repeat = t->round;
    t->s->ops_per_s[place][t->round] = c->run->ops_per_s;
    if (json_array_append_new(c->runs[t->s->group], bench_json_run(&config, c->run)) != 0)
        return err_fail(FAR_NO_MEMORY, "no memory for the results");
    return FAR_OK;
}

/* Runs one workload. `place` is its number in the list; beyond that, it is not measured. */
static int run_workload(struct turn *t, const struct workload *w, unsigned place)
{
    const struct bench_config *b = t->c->config.bench;
    const struct rival_setup *setup = &t->c->setup[t->s->group];
    struct workload_plan_options options = {
        .keys = t->keys,
        .load = setup->keys,
        .ops = t->c->ops[t->s->group],
        .warm = b->warmup,
        .threads = setup->threads,
        .seed = bench_mix(b->seed ^ bench_mix(place + 1)),
        .dist = b->dist,
        .theta = b->theta,
    };
    struct workload_plan plan;
    int rc = workload_plan_init(&plan, w, &options, t->dist);
    if (rc != FAR_OK)
        return rc;
    struct bench_run *run = t->c->run;
    struct driver_store store = {t->s->ops, t->store};
    struct bench_target target = {
        .depth = setup->depth, .driver = &driver_of_rivals, .store = &store, .name = t->s->name};
    rc = bench_measure(b, &target, &plan, &(struct bench_observer){.progress = NULL}, run);
    t->keys = workload_plan_leaves(&plan);
    workload_plan_free(&plan);
    if (rc == FAR_OK && run->halted_by != FAR_OK)
        rc = err_fail(run->halted_by, "%s", run->detail);
    if (rc == FAR_OK && place < WORKLOAD_LIST_MAX && !stopped(t->c))
        rc = keep_run(t, place);
    return rc;
}

static void show_progress(const struct turn *t, unsigned place)
{
    const struct compare *c = t->c;
    unsigned measured = 0, before = 0;
    if (!c->config.progress)
        return;
    for (unsigned i = 0; i < c->stores; i++) {
        measured += c->store[i].ops != NULL;
        before += c->store[i].ops && c->store[i].ops_per_s[0][t->round] > 0;
    }
    unsigned workloads = c->config.bench->workloads.count;
    c->config.progress(c->config.arg, t->s->name, c->config.bench->workloads.item[place].name,
                       (uint64_t)(t->round * measured + before) * workloads,
                       (uint64_t)c->config.rounds * measured * workloads);
}

static int run_list(struct turn *t)
{
    const struct workload_list *list = &t->c->config.bench->workloads;
    int rc = FAR_OK;
    if (!workload_is_load(&list->item[0]))
        rc = run_workload(t, workload_find("load"), WORKLOAD_LIST_MAX);
    for (unsigned i = 0; i < list->count && rc == FAR_OK && !stopped(t->c); i++) {
        show_progress(t, i);
        rc = run_workload(t, &list->item[i], i);
    }
    return rc;
}

static int run_store(struct compare *c, struct compare_store *s, unsigned round,
                     struct bench_dist *dist)
{
    struct turn t = {.c = c, .s = s, .round = round, .dist = dist};
    int rc = s->ops->open(&c->setup[s->group], &t.store);
    if (rc != FAR_OK)
        return rc;
    rc = run_list(&t);
    s->ops->close(t.store);
    return rc;
}

/* Each round begins with another store of each group. */
static int run_round(struct compare *c, unsigned round, struct bench_dist dist[STORE_GROUPS])
{
    int rc = FAR_OK;
    for (unsigned group = 0; group < STORE_GROUPS; group++) {
        struct compare_store *in[COMPARE_STORES_MAX];
        unsigned count = 0;
        for (unsigned i = 0; i < c->stores; i++)
            if (c->store[i].group == group && c->store[i].ops)
                in[count++] = &c->store[i];
        for (unsigned i = 0; i < count && rc == FAR_OK && !stopped(c); i++)
            rc = run_store(c, in[(i + round) % count], round, &dist[group]);
    }
    return rc;
}

int compare_run(struct compare *c)
{
    struct bench_dist dist[STORE_GROUPS] = {{.n = 0}};
    int rc = FAR_OK;
    for (unsigned round = 0; round < c->config.rounds && rc == FAR_OK && !stopped(c); round++) {
        rc = run_round(c, round, dist);
        c->rounds += rc == FAR_OK && !stopped(c);
    }
    return rc == FAR_OK || stopped(c) ? FAR_OK : rc;
}

bool compare_measured(const struct compare *c)
{
    size_t runs = 0;
    for (unsigned group = 0; group < STORE_GROUPS; group++)
        runs += json_array_size(c->runs[group]);
    return runs > 0;
}

/* ---- results --------------------------------------------------------------------------------- */

struct summary_spread compare_ops(const struct compare *c, const struct compare_store *s,
                                  unsigned workload)
{
    double number[COMPARE_ROUNDS_MAX];
    memcpy(number, s->ops_per_s[workload], c->rounds * sizeof *number);
    return summary_spread_of(number, c->rounds);
}

struct summary_spread compare_ratio(const struct compare *c, const struct compare_store *s,
                                    unsigned workload)
{
    const struct compare_store *own = compare_own(c, s->group);
    double number[COMPARE_ROUNDS_MAX];
    for (unsigned i = 0; i < c->rounds; i++)
        number[i] = own->ops_per_s[workload][i] / s->ops_per_s[workload][i];
    return summary_spread_of(number, c->rounds);
}
