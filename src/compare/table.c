#include "compare/compare.h"
#include "bench/json.h"
#include "out/json.h"
#include "out/text.h"

#include <inttypes.h>
#include <string.h>

static const char *const group_names[STORE_GROUPS] = {"embedded", "networked"};

/* ---- for people ------------------------------------------------------------------------------ */

static void print_group(const struct compare *c, enum store_group group, FILE *out)
{
    const struct bench_config *b = c->config.bench;
    char keys[TEXT_MAX], ops[TEXT_MAX], head[TEXT_MAX];
    if (!compare_own(c, group))
        return;
    text_say(
        out, "",
        "%s: %s keys, %s operations of each workload, %u thread%s, each with up to %u in flight",
        group_names[group], text_grouped(c->setup[group].keys, keys),
        text_grouped(c->ops[group], ops), b->threads, text_plural(b->threads), b->depth);
    for (unsigned i = 0; i < c->stores; i++) {
        const struct compare_store *s = &c->store[i];
        snprintf(head, sizeof head, "  %s: ", s->name);
        if (s->group == group && s->ops)
            text_wrap(out, head, s->text);
    }
}

void table_setup(const struct compare *c, FILE *out)
{
    const struct bench_config *b = c->config.bench;
    char key[TEXT_MAX], value[TEXT_MAX], head[TEXT_MAX], dist[TEXT_MAX] = "uniform";
    if (b->dist != BENCH_DIST_UNIFORM)
        snprintf(dist, sizeof dist, "%s (theta %g)", bench_dist_name(b->dist), b->theta);
    text_say(out, "",
             "Farside %s compared: keys of %s bytes, values of %s bytes, drawn %s, seed %" PRIu64
             ", %u round%s",
             far_version(), text_range(b->sizes.key.min, b->sizes.key.max, key),
             text_range(b->sizes.value.min, b->sizes.value.max, value), dist, b->seed,
             c->config.rounds, text_plural(c->config.rounds));
    text_say(
        out, "",
        "All stores get the same operations; every write is a put. None keeps data across a crash. "
        "In "
        "each round, every store is made, loaded and measured by itself, one after the other; each "
        "round begins with another one. Keys and values are prepared, and answers checked, outside "
        "of the measured time.");
    if (b->warmup > 0)
        text_say(out, "", "%" PRIu64 " operation%s before each workload but load, to warm up",
                 b->warmup, text_plural(b->warmup));
    for (unsigned group = 0; group < STORE_GROUPS; group++)
        print_group(c, group, out);
    for (unsigned i = 0; i < c->stores; i++) {
        snprintf(head, sizeof head, "left out: %s: ", c->store[i].name);
        if (!c->store[i].ops)
            text_wrap(out, head, c->store[i].text);
    }
}

#define WORKLOAD_COLUMNS 8
static const struct column columns[] = {
    {"workload", -WORKLOAD_COLUMNS},
    {"store", -13},
    {"ops/s", 13},
    {"slowest", 13},
    {"fastest", 13},
    {"Farside/it", 11},
    {"least", 8},
    {"most", 8},
};

static void put_ops(struct columns *row, double ops)
{
    char text[TEXT_MAX];
    columns_text(row, text_grouped((uint64_t)(0.5 + ops), text));
}

static void print_row(const struct compare *c, const struct compare_store *s, unsigned workload,
                      bool first, struct columns *row)
{
    const char *name = first ? c->config.bench->workloads.item[workload].name : "";
    struct summary_spread ops = compare_ops(c, s, workload);
    if (strlen(name) > WORKLOAD_COLUMNS) {
        fprintf(row->out, "%.*s\n", TEXT_COLUMNS, name);
        name = "";
    }
    columns_text(row, name);
    columns_text(row, s->name);
    put_ops(row, ops.median);
    put_ops(row, ops.least);
    put_ops(row, ops.most);
    if (s != compare_own(c, s->group)) {
        struct summary_spread ratio = compare_ratio(c, s, workload);
        columns_number(row, ratio.median, 2);
        columns_number(row, ratio.least, 2);
        columns_number(row, ratio.most, 2);
    }
    columns_end(row);
}

void table_results(const struct compare *c, FILE *out)
{
    fprintf(
        out,
        "\n"
        "  ops/s: the median of %u round%s, and the slowest and the fastest round\n"
        "  Farside/it: Farside's ops/s as a multiple of the store's in the same round, likewise;\n"
        "  above 1, Farside is faster\n",
        c->rounds, text_plural(c->rounds));
    for (unsigned group = 0; group < STORE_GROUPS; group++) {
        if (!compare_own(c, group))
            continue;
        struct columns row = {.out = out, .column = columns};
        fprintf(out, "\n%s\n", group_names[group]);
        columns_heads(&row, sizeof columns / sizeof *columns);
        for (unsigned w = 0; w < c->config.bench->workloads.count; w++) {
            bool first = true;
            for (unsigned i = 0; i < c->stores; i++) {
                if (c->store[i].group != group || !c->store[i].ops)
                    continue;
                print_row(c, &c->store[i], w, first, &row);
                first = false;
            }
        }
    }
}

/* ---- for programs ---------------------------------------------------------------------------- */

/* The complete rounds of one store. */
static void add_summary(const struct compare *c, const struct compare_store *s, json_t *all)
{
    const struct bench_config *b = c->config.bench;
    bool own = s == compare_own(c, s->group);
    for (unsigned w = 0; w < b->workloads.count && c->rounds > 0; w++)
        json_array_append_new(
            all,
            OUT_OBJECT(
                {"index", out_text(s->name)}, {"workload", out_text(b->workloads.item[w].name)},
                {"threads", out_count(b->threads)}, {"runs", out_count(c->rounds)},
                {"ops_per_s", bench_json_spread(compare_ops(c, s, w), 1)},
                {"farside_ratio", own ? json_null() : bench_json_spread(compare_ratio(c, s, w), 1)},
                {"per_op", json_object()}));
}

/* As what a benchmark writes, so that a page can draw it. */
static json_t *json_group(const struct compare *c, enum store_group group, bool interrupted)
{
    struct bench_config config = *c->config.bench;
    json_t *stores = json_array(), *summary = json_array(), *tables = json_array();
    char pool[TEXT_MAX];
    snprintf(pool, sizeof pool, "%s stores", group_names[group]);
    config.pool = pool;
    for (unsigned i = 0; i < c->stores; i++) {
        const struct compare_store *s = &c->store[i];
        if (s->group != group || !s->ops)
            continue;
        json_array_append_new(
            stores, OUT_OBJECT({"store", out_text(s->name)}, {"setup", out_text(s->text)}));
        add_summary(c, s, summary);
    }
    json_t *o = bench_json(&config, c->runs[group], &(struct summary_list){.count = 0}, tables,
                           interrupted);
    json_decref(tables);
    json_object_set_new(o, "stores", stores);
    json_object_set_new(o, "summary", summary);
    return o;
}

json_t *table_json(const struct compare *c, bool interrupted)
{
    json_t *groups = json_array(), *left_out = json_array();
    for (unsigned group = 0; group < STORE_GROUPS; group++)
        if (json_array_size(c->runs[group]) > 0)
            json_array_append_new(groups, json_group(c, group, interrupted));
    for (unsigned i = 0; i < c->stores; i++)
        if (!c->store[i].ops)
            json_array_append_new(left_out, OUT_OBJECT({"store", out_text(c->store[i].name)},
                                                       {"reason", out_text(c->store[i].text)}));
    return OUT_OBJECT({"farside", out_text(far_version())},
                      {"index", out_text(c->config.bench->index)}, {"rounds", out_count(c->rounds)},
                      {"interrupted", json_boolean(interrupted)}, {"groups", groups},
                      {"left_out", left_out});
}
