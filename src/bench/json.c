/* The results of a benchmark for programs: JSON. */
#include "bench/figures.h"
#include "bench/json.h"
#include "bench/meet.h"

#include "bench/machine.h"
#include "out/json.h"

#include <string.h>

/* Returns what was filled, or NULL if something could not be added. */
static json_t *whole(json_t *array, int bad)
{
    if (bad == 0)
        return array;
    json_decref(array);
    return NULL;
}

/* Round trips within which this part of the operations was done. */
static uint64_t quantile_rtts(const struct far_op_stats *s, double part)
{
    uint64_t within = s->took[0];
    unsigned i = 0;
    while (i + 1 < FAR_RTTS_TOLD && (double)within < part * (double)s->count)
        within += s->took[++i];
    return i;
}

/* Pairs of a part of the operations and the microseconds within which it was done. */
static json_t *json_latency(const struct bench_op *op)
{
    static const double parts[] = {0,   0.01, 0.05, 0.1,  0.2,  0.3,   0.4,   0.5,    0.6, 0.7,
                                   0.8, 0.9,  0.95, 0.98, 0.99, 0.995, 0.999, 0.9999, 1};
    json_t *all = json_array();
    int bad = 0;
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
        bad |= json_array_append_new(
            all, json_pack("[f, f]", parts[i], bench_quantile_us(op, parts[i])));
    return whole(all, bad);
}

static json_t *json_op(const struct bench_op *op)
{
    const struct far_op_stats *s = &op->stats;
    bool many = s->entries > 0;
    return OUT_OBJECT(
        {"count", out_count(s->count)},
        {"rtts", json_real(bench_per(s->rtts, s->count - s->joined))},
        {"rtts_p99", out_count(quantile_rtts(s, 0.99))},
        {"rtts_p999", out_count(quantile_rtts(s, 0.999))},
        {"verbs", json_real(bench_per(s->verbs, s->count - s->joined))},
        {"bytes_read", json_real(bench_per(s->bytes_read, s->count - s->joined))},
        {"bytes_written", json_real(bench_per(s->bytes_written, s->count - s->joined))},
        {"p50_us", json_real(bench_quantile_us(op, 0.5))},
        {"p99_us", json_real(bench_quantile_us(op, 0.99))},
        {"p999_us", json_real(bench_quantile_us(op, 0.999))}, {"latency_us", json_latency(op)},
        {s->joined > 0 ? "joined" : NULL, out_count(s->joined)},
        {many ? "entries" : NULL, out_count(s->entries)},
        {many ? "rtts_per_entry" : NULL, json_real(bench_per(s->rtts, s->entries))},
        {many ? "verbs_per_entry" : NULL, json_real(bench_per(s->verbs, s->entries))},
        {many ? "bytes_read_per_entry" : NULL, json_real(bench_per(s->bytes_read, s->entries))},
        {"not_found", out_count(s->not_found)}, {"errors", out_count(bench_op_errors(op))});
}

static json_t *json_per_op(const struct bench_run *run)
{
    json_t *o = json_object();
    int bad = 0;
    for (unsigned k = 0; k < FAR_OP_KINDS; k++)
        if (run->op[k].stats.count > 0)
            bad |= json_object_set_new(o, bench_kind_names[k], json_op(&run->op[k]));
    return whole(o, bad);
}

static int add_figures(json_t *o, const struct far_table_figure *figure)
{
    int bad = 0;
    for (unsigned i = 0; i < FAR_TABLE_FIGURES_MAX && figure[i].name; i++)
        bad |= json_object_set_new(o, figure[i].name, out_count(figure[i].value));
    return bad;
}

static json_t *json_space(const struct far_table_info *s)
{
    json_t *o = OUT_OBJECT(
        {"keys", out_count(s->keys)}, {"slots", out_count(s->slots)},
        {"index_bytes", out_count(s->index_bytes)}, {"block_bytes", out_count(s->block_bytes)},
        {"client_cache_bytes", out_count(s->client_cache_bytes)},
        {"load_factor", json_real(s->load_factor)}, {"splits", out_count(s->splits)},
        {"split_load_max", json_real(s->split_load_max)},
        {"split_load_mean", json_real(s->split_load_mean)},
        {"split_us", json_real((double)s->split_ns / 1e3)});
    return whole(o, add_figures(o, s->figure) | add_figures(o, s->session));
}

static json_t *json_timeline(const struct bench_config *c, const struct bench_run *run)
{
    double seconds = bench_window_ms(c) / 1e3;
    json_t *all = json_array();
    int bad = 0;
    for (unsigned n = 0; n < run->windows; n++) {
        const struct bench_window *w = &run->window[n];
        bad |= json_array_append_new(all,
                                     OUT_OBJECT({"seconds", json_real((n + 1) * seconds)},
                                                {"ops_per_s", json_real((double)w->ops / seconds)},
                                                {"rtts", json_real(bench_per(w->rtts, w->ops))}));
    }
    return whole(all, bad);
}

/* Per operation. */
static json_t *json_counter(const struct bench_run *run, enum counters_kind kind)
{
    const struct counters_sum *c = &run->counters;
    return c->known[kind] ? json_real(bench_per(c->count[kind], run->ops)) : json_null();
}

static json_t *json_counters(const struct bench_run *run)
{
    const struct counters_sum *c = &run->counters;
    return OUT_OBJECT({"cycles", json_counter(run, COUNTERS_CYCLES)},
                      {"instructions", json_counter(run, COUNTERS_INSTRUCTIONS)},
                      {"cache_misses", json_counter(run, COUNTERS_CACHE_MISSES)},
                      {"context_switches", json_real(bench_per(c->switches, run->ops))},
                      {"user_only", json_boolean(c->user_only)},
                      {"error", out_text(c->error ? strerror(c->error) : NULL)});
}

static json_t *json_pace(const struct bench_pace *p)
{
    return OUT_OBJECT({"rate", out_count(p->rate)},
                      {"late_max_us", json_real((double)p->late_max / 1e3)},
                      {"late_last_us", json_real((double)p->late_last / 1e3)},
                      {"fell_behind", json_boolean(p->fell_behind)});
}

/* The parts of a modelled network, and the share of the time for which each was busy. */
static json_t *json_load(const struct model_load *load)
{
    json_t *o = json_object();
    int bad = 0;
    for (unsigned p = 0; p < MODEL_PARTS; p++)
        bad |= json_object_set_new(o, model_part_names[p],
                                   json_real(bench_per(load->busy[p], load->time)));
    return whole(o, bad);
}

json_t *bench_json_run(const struct bench_config *c, const struct bench_run *run)
{
    bool raw = run->raw_ops_per_s > 0, halted = run->halted_by != FAR_OK;
    return OUT_OBJECT(
        {"index", out_text(run->index)}, {"tuning", out_text(run->space.tuning)},
        {"workload", out_text(run->workload)}, {"repeat", out_count(run->repeat + 1)},
        {"keys", out_count(c->keys)}, {"warmup", out_count(run->warmup)},
        {"ops", out_count(run->ops)}, {"machines", out_count(c->machines)},
        {"processes", out_count(c->processes)}, {"threads", out_count(c->threads)},
        {"depth", out_count(c->depth)}, {"batch", json_boolean(c->batch)},
        {"dist", out_text(run->draws_keys ? bench_dist_name(run->dist) : NULL)},
        {"seconds", json_real(run->seconds)}, {"ops_per_s", json_real(run->ops_per_s)},
        {"pace", run->pace.rate > 0 ? json_pace(&run->pace) : json_null()},
        {"counters", run->counters.on ? json_counters(run) : json_null()},
        {"load", run->load.time > 0 ? json_load(&run->load) : json_null()},
        {"window_ms", json_real(bench_window_ms(c))},
        {"slowest_window", json_real(run->slowest_ops)},
        {"slowest_window_per_rtt", json_real(run->slowest_ops_per_rtt)},
        {"timeline", c->timeline ? json_timeline(c, run) : json_null()},
        {"per_op", json_per_op(run)},
        {"space", run->space_known ? json_space(&run->space) : json_null()},
        {"raw_ops_per_s", raw ? json_real(run->raw_ops_per_s) : json_null()},
        {"efficiency", raw ? json_real(run->ops_per_s / run->raw_ops_per_s) : json_null()},
        {"deaths", out_count(run->deaths)},
        {"first_error",
         out_text(run->first_error != FAR_OK ? far_errname(run->first_error) : NULL)},
        {"interrupted", json_boolean(run->interrupted)},
        {"ops_planned", out_count(run->ops_planned)},
        {"stopped_by", out_text(halted ? far_errname(run->halted_by) : NULL)},
        {"stopped_detail", out_text(halted ? run->detail : NULL)});
}

json_t *bench_json_spread(struct summary_spread s, double unit)
{
    return OUT_OBJECT({"median", json_real(s.median / unit)}, {"least", json_real(s.least / unit)},
                      {"most", json_real(s.most / unit)});
}

static json_t *json_spread(const struct summary *s, unsigned figure, double unit)
{
    return bench_json_spread(summary_spread(s, figure), unit);
}

static json_t *json_latencies(const struct summary *s, unsigned kind)
{
    return OUT_OBJECT({"p50_us", json_spread(s, SUMMARY_P50 + kind, 1e3)},
                      {"p99_us", json_spread(s, SUMMARY_P99 + kind, 1e3)},
                      {"p999_us", json_spread(s, SUMMARY_P999 + kind, 1e3)});
}

static json_t *json_summary(const struct summary *s)
{
    json_t *per_op = json_object();
    int bad = 0;
    for (unsigned k = 0; k < FAR_OP_KINDS; k++)
        if (s->count[k] > 0)
            bad |= json_object_set_new(per_op, bench_kind_names[k], json_latencies(s, k));
    return OUT_OBJECT({"index", out_text(s->index)}, {"workload", out_text(s->workload)},
                      {"threads", out_count(s->threads)}, {"runs", out_count(s->runs)},
                      {"ops_per_s", json_spread(s, SUMMARY_OPS_PER_S, 1)},
                      {"per_op", whole(per_op, bad)});
}

/* Of all workloads that have a run which came to its end. */
static json_t *json_summaries(const struct summary_list *list)
{
    json_t *all = json_array();
    int bad = 0;
    for (unsigned i = 0; i < list->count; i++)
        if (list->item[i]->runs > 0)
            bad |= json_array_append_new(all, json_summary(list->item[i]));
    return whole(all, bad);
}

json_t *bench_json_drop(const struct bench_drop *drop)
{
    return OUT_OBJECT(
        {"table", out_text(drop->table)},
        {"dropped", json_boolean(drop->status == FAR_OK && !drop->foreign)},
        {"left_over", json_boolean(drop->left_over || drop->foreign)},
        {"bytes", drop->bytes > 0 ? out_count(drop->bytes) : json_null()},
        {"error", out_text(drop->status != FAR_OK ? far_errname(drop->status) : NULL)});
}

/* The hosts of machines that measured together, by rank. */
static json_t *json_hosts(const struct bench_config *c)
{
    json_t *hosts = json_array();
    int bad = 0;
    for (unsigned i = 0; c->meet && i < c->machines; i++)
        bad |= json_array_append_new(hosts, out_text(meet_host(c->meet, i)));
    return whole(hosts, bad);
}

json_t *bench_json(const struct bench_config *c, json_t *runs, const struct summary_list *summaries,
                   json_t *drops, bool interrupted)
{
    char time[MACHINE_TIME_BYTES];
    return OUT_OBJECT({"farside", out_text(far_version())}, {"time", out_text(machine_time(time))},
                      {"machine", machine_json()}, {"hosts", c->meet ? json_hosts(c) : json_null()},
                      {"pool", out_text(c->pool)}, {"key_size", out_count(c->sizes.key.min)},
                      {"key_size_max", out_count(c->sizes.key.max)},
                      {"value_size", out_count(c->sizes.value.min)},
                      {"value_size_max", out_count(c->sizes.value.max)},
                      {"theta", json_real(c->theta)}, {"seed", out_count(c->seed)},
                      {"expected_keys", out_count(c->expected_keys)},
                      {"interrupted", json_boolean(interrupted)}, {"runs", json_incref(runs)},
                      {"summary", json_summaries(summaries)}, {"tables", json_incref(drops)});
}
