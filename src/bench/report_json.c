/* The results of a benchmark for programs: JSON. */
#include "bench/report_internal.h"

#include "base/text.h"
#include "bench/machine.h"

#include <stdlib.h>
#include <string.h>

/* Returns the object, or NULL if one of its members could not be set. */
static json_t *whole(json_t *object, int bad)
{
    if (bad == 0)
        return object;
    json_decref(object);
    return NULL;
}

static int set_count(json_t *object, const char *name, uint64_t count)
{
    return json_object_set_new(object, name, json_integer((json_int_t)count));
}

static int set_real(json_t *object, const char *name, double value)
{
    return json_object_set_new(object, name, json_real(value));
}

/* Bytes that are not UTF-8 become "\xHH"; only the URI of a pool can have some. */
static int set_text(json_t *object, const char *name, const char *text)
{
    char *copy = text ? malloc(4 * strlen(text) + 1) : NULL;
    if (text && !copy)
        return -1;
    if (text)
        text_utf8(text, copy);
    int rc = json_object_set_new(object, name, text ? json_string(copy) : json_null());
    free(copy);
    return rc;
}

static int set_bool(json_t *object, const char *name, bool value)
{
    return json_object_set_new(object, name, json_boolean(value));
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
            all, json_pack("[f, f]", parts[i], report_quantile_us(op, parts[i])));
    return whole(all, bad);
}

static json_t *json_op(const struct bench_op *op)
{
    const struct far_op_stats *s = &op->stats;
    json_t *o = json_object();
    int bad = 0;
    bad |= set_count(o, "count", s->count);
    bad |= set_real(o, "rtts", report_per(s->rtts, s->count));
    bad |= set_count(o, "rtts_p99", quantile_rtts(s, 0.99));
    bad |= set_count(o, "rtts_p999", quantile_rtts(s, 0.999));
    bad |= set_real(o, "verbs", report_per(s->verbs, s->count));
    bad |= set_real(o, "bytes_read", report_per(s->bytes_read, s->count));
    bad |= set_real(o, "bytes_written", report_per(s->bytes_written, s->count));
    bad |= set_real(o, "p50_us", report_quantile_us(op, 0.5));
    bad |= set_real(o, "p99_us", report_quantile_us(op, 0.99));
    bad |= set_real(o, "p999_us", report_quantile_us(op, 0.999));
    bad |= json_object_set_new(o, "latency_us", json_latency(op));
    if (s->entries > 0) {
        bad |= set_count(o, "entries", s->entries);
        bad |= set_real(o, "rtts_per_entry", report_per(s->rtts, s->entries));
        bad |= set_real(o, "verbs_per_entry", report_per(s->verbs, s->entries));
        bad |= set_real(o, "bytes_read_per_entry", report_per(s->bytes_read, s->entries));
    }
    bad |= set_count(o, "not_found", s->not_found);
    bad |= set_count(o, "errors", bench_op_errors(op));
    return whole(o, bad);
}

static json_t *json_per_op(const struct bench_run *run)
{
    json_t *o = json_object();
    int bad = 0;
    for (unsigned k = 0; k < FAR_OP_KINDS; k++)
        if (run->op[k].stats.count > 0)
            bad |= json_object_set_new(o, report_kind_names[k], json_op(&run->op[k]));
    return whole(o, bad);
}

static json_t *json_space(const struct far_table_info *s)
{
    json_t *o = json_object();
    int bad = 0;
    bad |= set_count(o, "keys", s->keys);
    bad |= set_count(o, "slots", s->slots);
    bad |= set_count(o, "index_bytes", s->index_bytes);
    bad |= set_count(o, "block_bytes", s->block_bytes);
    bad |= set_count(o, "client_cache_bytes", s->client_cache_bytes);
    bad |= set_real(o, "load_factor", s->load_factor);
    bad |= set_count(o, "splits", s->splits);
    bad |= set_real(o, "split_load_max", s->split_load_max);
    bad |= set_real(o, "split_load_mean", s->split_load_mean);
    if (s->fptable_plain_bytes != 0) {
        bad |= set_count(o, "fptable_bytes", s->fptable_bytes);
        bad |= set_count(o, "fptable_plain_bytes", s->fptable_plain_bytes);
    }
    return whole(o, bad);
}

static json_t *json_timeline(const struct bench_config *c, const struct bench_run *run)
{
    double seconds = report_window_ms(c) / 1e3;
    json_t *all = json_array();
    int bad = 0;
    for (unsigned n = 0; n < run->windows; n++) {
        const struct bench_window *w = &run->window[n];
        json_t *o = json_object();
        bad |= set_real(o, "seconds", (n + 1) * seconds);
        bad |= set_real(o, "ops_per_s", (double)w->ops / seconds);
        bad |= set_real(o, "rtts", report_per(w->rtts, w->ops));
        bad |= json_array_append_new(all, o);
    }
    return whole(all, bad);
}

static const char *const counter_names[COUNTERS_KINDS] = {
    [COUNTERS_CYCLES] = "cycles",
    [COUNTERS_INSTRUCTIONS] = "instructions",
    [COUNTERS_CACHE_MISSES] = "cache_misses",
};

/* Per operation. */
static json_t *json_counters(const struct bench_run *run)
{
    const struct counters_sum *c = &run->counters;
    json_t *o = json_object();
    int bad = 0;
    for (unsigned k = 0; k < COUNTERS_KINDS; k++)
        bad |= json_object_set_new(o, counter_names[k],
                                   c->known[k] ? json_real(report_per(c->count[k], run->ops))
                                               : json_null());
    bad |= set_real(o, "context_switches", report_per(c->switches, run->ops));
    bad |= set_bool(o, "user_only", c->user_only);
    bad |= set_text(o, "error", c->error ? strerror(c->error) : NULL);
    return whole(o, bad);
}

static json_t *json_pace(const struct bench_pace *p)
{
    json_t *o = json_object();
    int bad = 0;
    bad |= set_count(o, "rate", p->rate);
    bad |= set_real(o, "late_max_us", (double)p->late_max / 1e3);
    bad |= set_real(o, "late_last_us", (double)p->late_last / 1e3);
    bad |= set_bool(o, "fell_behind", p->fell_behind);
    return whole(o, bad);
}

json_t *report_json_run(const struct bench_config *c, const struct bench_run *run)
{
    bool raw = run->raw_ops_per_s > 0;
    json_t *o = json_object();
    int bad = 0;
    bad |= set_text(o, "index", run->index);
    bad |= set_text(o, "tuning", run->space.tuning);
    bad |= set_text(o, "workload", run->workload);
    bad |= set_count(o, "repeat", run->repeat + 1);
    bad |= set_count(o, "keys", c->keys);
    bad |= set_count(o, "warmup", run->warmup);
    bad |= set_count(o, "ops", run->ops);
    bad |= set_count(o, "processes", c->processes);
    bad |= set_count(o, "threads", c->threads);
    bad |= set_count(o, "depth", c->depth);
    bad |= set_text(o, "dist", run->draws_keys ? bench_dist_name(run->dist) : NULL);
    bad |= set_real(o, "seconds", run->seconds);
    bad |= set_real(o, "ops_per_s", run->ops_per_s);
    bad |= json_object_set_new(o, "pace", run->pace.rate > 0 ? json_pace(&run->pace) : json_null());
    bad |= json_object_set_new(o, "counters", run->counters.on ? json_counters(run) : json_null());
    bad |= set_real(o, "window_ms", report_window_ms(c));
    bad |= set_real(o, "slowest_window", run->slowest_ops);
    bad |= set_real(o, "slowest_window_per_rtt", run->slowest_ops_per_rtt);
    bad |= json_object_set_new(o, "timeline", c->timeline ? json_timeline(c, run) : json_null());
    bad |= json_object_set_new(o, "per_op", json_per_op(run));
    bad |=
        json_object_set_new(o, "space", run->space_known ? json_space(&run->space) : json_null());
    bad |=
        json_object_set_new(o, "raw_ops_per_s", raw ? json_real(run->raw_ops_per_s) : json_null());
    bad |= json_object_set_new(o, "efficiency",
                               raw ? json_real(run->ops_per_s / run->raw_ops_per_s) : json_null());
    bad |= set_count(o, "deaths", run->deaths);
    bad |= set_text(o, "first_error",
                    run->first_error != FAR_OK ? far_errname(run->first_error) : NULL);
    bad |= set_bool(o, "interrupted", run->interrupted);
    bad |= set_count(o, "ops_planned", run->ops_planned);
    bad |= set_text(o, "stopped_by", run->halted_by != FAR_OK ? far_errname(run->halted_by) : NULL);
    bad |= set_text(o, "stopped_detail", run->halted_by != FAR_OK ? run->detail : NULL);
    return whole(o, bad);
}

static json_t *json_spread(const struct summary *s, unsigned figure, double unit)
{
    struct summary_spread spread = summary_spread(s, figure);
    json_t *o = json_object();
    int bad = 0;
    bad |= set_real(o, "median", spread.median / unit);
    bad |= set_real(o, "least", spread.least / unit);
    bad |= set_real(o, "most", spread.most / unit);
    return whole(o, bad);
}

static json_t *json_latencies(const struct summary *s, unsigned kind)
{
    json_t *o = json_object();
    int bad = 0;
    bad |= json_object_set_new(o, "p50_us", json_spread(s, SUMMARY_P50 + kind, 1e3));
    bad |= json_object_set_new(o, "p99_us", json_spread(s, SUMMARY_P99 + kind, 1e3));
    bad |= json_object_set_new(o, "p999_us", json_spread(s, SUMMARY_P999 + kind, 1e3));
    return whole(o, bad);
}

static json_t *json_summary(const struct summary *s)
{
    json_t *o = json_object(), *per_op = json_object();
    int bad = 0;
    bad |= set_text(o, "index", s->index);
    bad |= set_text(o, "workload", s->workload);
    bad |= set_count(o, "threads", s->threads);
    bad |= set_count(o, "runs", s->runs);
    bad |= json_object_set_new(o, "ops_per_s", json_spread(s, SUMMARY_OPS_PER_S, 1));
    for (unsigned k = 0; k < FAR_OP_KINDS; k++)
        if (s->count[k] > 0)
            bad |= json_object_set_new(per_op, report_kind_names[k], json_latencies(s, k));
    bad |= json_object_set_new(o, "per_op", per_op);
    return whole(o, bad);
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

json_t *report_json_drop(const struct bench_drop *drop)
{
    bool dropped = drop->status == FAR_OK && !drop->foreign;
    json_t *o = json_object();
    int bad = 0;
    bad |= set_text(o, "table", drop->table);
    bad |= set_bool(o, "dropped", dropped);
    bad |= set_bool(o, "left_over", drop->left_over || drop->foreign);
    bad |= json_object_set_new(
        o, "bytes", drop->bytes > 0 ? json_integer((json_int_t)drop->bytes) : json_null());
    bad |= set_text(o, "error", drop->status != FAR_OK ? far_errname(drop->status) : NULL);
    return whole(o, bad);
}

json_t *report_json(const struct bench_config *c, json_t *runs,
                    const struct summary_list *summaries, json_t *drops, bool interrupted)
{
    char time[MACHINE_TIME_BYTES];
    json_t *o = json_object();
    int bad = 0;
    bad |= set_text(o, "farside", far_version());
    bad |= set_text(o, "time", machine_time(time));
    bad |= json_object_set_new(o, "machine", machine_json());
    bad |= set_text(o, "pool", c->pool);
    bad |= set_count(o, "key_size", c->sizes.key.min);
    bad |= set_count(o, "key_size_max", c->sizes.key.max);
    bad |= set_count(o, "value_size", c->sizes.value.min);
    bad |= set_count(o, "value_size_max", c->sizes.value.max);
    bad |= set_real(o, "theta", c->theta);
    bad |= set_count(o, "seed", c->seed);
    bad |= set_bool(o, "interrupted", interrupted);
    bad |= json_object_set(o, "runs", runs);
    bad |= json_object_set_new(o, "summary", json_summaries(summaries));
    bad |= json_object_set(o, "tables", drops);
    return whole(o, bad);
}
