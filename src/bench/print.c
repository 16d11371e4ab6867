/* The results of a benchmark for people: a table. */
#include "bench/figures.h"
#include "bench/print.h"
#include "out/text.h"

#include "base/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const bench_kind_names[FAR_OP_KINDS] = {
    [0] = "none",
    [FAR_OP_GET] = "get",
    [FAR_OP_EXISTS] = "exists",
    [FAR_OP_PUT] = "put",
    [FAR_OP_INSERT] = "insert",
    [FAR_OP_UPDATE] = "update",
    [FAR_OP_DELETE] = "delete",
    [FAR_OP_MODIFY] = "modify",
    [FAR_OP_ITERATE] = "iterate",
    [FAR_OP_SCAN] = "scan",
};

#define RANGE_MAX        (2 * TEXT_MAX + 8)
#define WORKLOAD_COLUMNS 8

#define OPS_COLUMNS 10

static const struct column columns[PRINT_COLUMNS] = {
    {"index", -7},
    {"workload", -WORKLOAD_COLUMNS},
    {"ops/s", OPS_COLUMNS},
    {"op", -7},
    {"rtts", 6},
    {"verbs", 6},
    {"read", 8},
    {"written", 7},
    {"p50", 7},
    {"p99", 7},
    {"count", 10},
};
static const struct column ops_of_raw = {"ops/s of raw", OPS_COLUMNS + 7};

static const char *in_flight(const struct bench_config *c)
{
    return c->batch ? "at a time" : "in flight";
}

void bench_print_begin(struct bench_print *r, FILE *out, const struct bench_config *c,
                       const char *threads)
{
    char keys[TEXT_MAX], ops[TEXT_MAX], dist[TEXT_MAX] = "uniform", processes[64] = "";
    char key[TEXT_MAX], value[TEXT_MAX], rate[TEXT_MAX], warmup[TEXT_MAX], machines[32] = "";
    *r = (struct bench_print){.out = out, .config = c, .several = strchr(threads, ',') != NULL};
    memcpy(r->column, columns, sizeof columns);
    if (c->raw)
        r->column[2] = ops_of_raw;
    r->columns = (struct columns){.out = out, .column = r->column};

    if (c->dist != BENCH_DIST_UNIFORM)
        snprintf(dist, sizeof dist, "%s (theta %g)", bench_dist_name(c->dist), c->theta);
    if (c->processes > 1)
        snprintf(processes, sizeof processes, "%u processes, each of ", c->processes);
    if (c->machines > 1)
        snprintf(machines, sizeof machines, "%u machines, each with ", c->machines);
    text_say(out, "", "Farside %s on %s", far_version(), c->pool);
    text_say(out, "",
             "index %s: %s keys of %s bytes, values of %s bytes, %s operations per workload",
             c->indexes ? c->indexes
             : c->index ? c->index
                        : "all",
             text_grouped(c->keys, keys), text_range(c->sizes.key.min, c->sizes.key.max, key),
             text_range(c->sizes.value.min, c->sizes.value.max, value), text_grouped(c->ops, ops));
    text_say(out, "", "%s%s%s thread%s with %u operation%s %s, keys drawn %s, seed %" PRIu64,
             machines, processes, threads, strcmp(threads, "1") == 0 ? "" : "s", c->depth,
             text_plural(c->depth), in_flight(c), dist, c->seed);
    if (c->expected_keys > 0)
        text_say(out, "", "room for %s key%s from the beginning",
                 text_grouped(c->expected_keys, keys), text_plural(c->expected_keys));
    if (c->warmup > 0)
        text_say(out, "", "%s operation%s before each workload, to warm up",
                 text_grouped(c->warmup, warmup), text_plural(c->warmup));
    if (c->rate > 0)
        text_say(out, "", "at a fixed rate of %s operation%s per second%s",
                 text_grouped(c->rate, rate), text_plural(c->rate),
                 bench_worker_total(c) > 1 || r->several ? ", of all threads together" : "");
    if (c->repeat > 1)
        text_say(
            out, "",
            "each workload runs %u times: ops/s is the median, the other columns are of all runs "
            "together",
            c->repeat);
    fprintf(out,
            "\n"
            "  rtts, verbs, read, written: round trips to far memory, verbs and bytes per "
            "operation, on average\n"
            "  p50, p99: microseconds within which half and 99 %% of the operations were done\n");
    if (c->rate > 0)
        fprintf(out, "            counted from the time at which an operation was due\n");
    if (c->tuning)
        text_say(out, "  ", "tuning: %s", c->tuning);
    if (c->raw)
        fprintf(out, "  of raw: ops/s as a share of what the same verbs reach without an index\n");
    fputs("\n", out);
    columns_heads(&r->columns, PRINT_COLUMNS);
}

void bench_print_threads(struct bench_print *r, const struct bench_config *c)
{
    r->config = c;
    if (!r->several)
        return;
    fprintf(r->out, "%swith %u thread%s:\n", *r->index ? "\n" : "", c->threads,
            text_plural(c->threads));
    r->index[0] = '\0';
}

/* Index, workload and throughput: only in the first row of a run. A workload whose name is longer
 * than its column has a line of its own before that. */
static void print_run_columns(struct bench_print *r, const struct bench_run *run, bool first)
{
    struct columns *c = &r->columns;
    char ops[TEXT_MAX] = "", raw[TEXT_MAX] = "", text[2 * TEXT_MAX];
    bool named = first && strlen(run->workload) <= WORKLOAD_COLUMNS;
    if (first && strlen(text_grouped((uint64_t)(run->ops_per_s + 0.5), ops)) > OPS_COLUMNS)
        text_fit(run->ops_per_s, OPS_COLUMNS, 0, ops);
    if (first && run->raw_ops_per_s > 0)
        strcat(text_fit(100 * run->ops_per_s / run->raw_ops_per_s, 4, 0, raw), " %");
    snprintf(text, sizeof text, "%*s%7s", OPS_COLUMNS, ops, raw);
    if (first && !named)
        fprintf(r->out, "%-7s %.*s\n", run->index, TEXT_COLUMNS - 8, run->workload);
    columns_text(c, named ? run->index : "");
    columns_text(c, named ? run->workload : "");
    columns_text(c, r->config->raw ? text : ops);
}

static void print_op_columns(struct bench_print *r, const char *name, const struct bench_op *op)
{
    const struct far_op_stats *s = &op->stats;
    struct columns *c = &r->columns;
    columns_text(c, name);
    columns_number(c, bench_per(s->rtts, s->count - s->joined), 2);
    columns_number(c, bench_per(s->verbs, s->count - s->joined), 2);
    columns_number(c, bench_per(s->bytes_read, s->count - s->joined), 1);
    columns_number(c, bench_per(s->bytes_written, s->count - s->joined), 1);
    columns_number(c, bench_quantile_us(op, 0.5), 2);
    columns_number(c, bench_quantile_us(op, 0.99), 2);
    columns_number(c, (double)s->count, 0);
    columns_end(c);
}

/* Changes that others have made needless. */
static void print_joined(struct bench_print *r, const char *name, const struct far_op_stats *s)
{
    if (s->joined > 0)
        text_say(r->out, "  ",
                 "%s: %.1f %% were done with another one of their process, and took "
                 "no round trip; the figures above are those of the others",
                 name, 100 * bench_per(s->joined, s->count));
}

/* The cost of an entry, for operations that return many. */
static void print_entries(struct bench_print *r, const char *name, const struct far_op_stats *s)
{
    char entries[TEXT_MAX], calls[TEXT_MAX];
    if (s->entries == 0)
        return;
    text_say(r->out, "  ",
             "%s: %s entr%s in %s call%s; per entry %.4f round trips, %.2f verbs, %.1f bytes", name,
             text_grouped(s->entries, entries), s->entries == 1 ? "y" : "ies",
             text_grouped(s->count, calls), text_plural(s->count), bench_per(s->rtts, s->entries),
             bench_per(s->verbs, s->entries), bench_per(s->bytes_read, s->entries));
}

/* How well the run kept to its rate. */
static void print_pace(struct bench_print *r, const struct bench_run *run)
{
    const struct bench_pace *p = &run->pace;
    char asked[TEXT_MAX], reached[TEXT_MAX];
    if (p->rate == 0)
        return;
    text_grouped(p->rate, asked);
    text_grouped((uint64_t)(run->ops_per_s + 0.5), reached);
    text_say(r->out, "  ",
             "rate: %s of %s ops/s; operations began up to %.1f us after they were due", reached,
             asked, (double)p->late_max / 1e3);
    if (p->fell_behind)
        text_say(
            r->out, "  ",
            "it fell behind: the last operation began %.3f ms after it was due, so the latencies "
            "depend on --ops; use a lower --rate, or more --threads or --depth",
            (double)p->late_last / 1e6);
}

/* What an operation cost the processor. If something is not known, why not, once. */
static void print_counters(struct bench_print *r, const struct bench_run *run)
{
    static const char *const names[COUNTERS_KINDS] = {"cycles", "instructions", "cache misses"};
    const struct counters_sum *c = &run->counters;
    char text[256] = "", missing[64] = "";
    if (!c->on)
        return;
    for (unsigned k = 0; k < COUNTERS_KINDS; k++) {
        size_t used = strlen(text), lost = strlen(missing);
        if (c->known[k])
            snprintf(text + used, sizeof text - used, "%.*f %s, ",
                     k == COUNTERS_CACHE_MISSES ? 2 : 0, bench_per(c->count[k], run->ops),
                     names[k]);
        else
            snprintf(missing + lost, sizeof missing - lost, "%s%s", lost ? ", " : "", names[k]);
    }
    text_say(r->out, "  ", "per operation: %s%.2g context switches%s", text,
             bench_per(c->switches, run->ops),
             c->user_only ? "; without what the kernel does" : "");
    if (!*missing || r->refusal_told)
        return;
    r->refusal_told = true;
    text_say(r->out, "  ", "not counted: %s (%s); hint: %s", missing, strerror(c->error),
             counters_hint(c->error, counters_paranoid()));
}

/* The part of a modelled network that was busy for most of the time. */
static void print_load(struct bench_print *r, const struct model_load *load)
{
    static const char *const names[MODEL_PARTS] = {
        [MODEL_NODE_VERBS] = "the memory node's NIC, with verbs",
        [MODEL_NODE_RECEIVES] = "the memory node's NIC, with bytes that it receives",
        [MODEL_NODE_SENDS] = "the memory node's NIC, with bytes that it sends",
        [MODEL_NODE_PCIE] = "the memory node's PCIe",
        [MODEL_NODE_WORD] = "one word, with atomics",
        [MODEL_CLIENT_VERBS] = "the clients' NIC, with verbs",
        [MODEL_CLIENT_SENDS] = "the clients' NIC, with bytes that it sends",
        [MODEL_CLIENT_RECEIVES] = "the clients' NIC, with bytes that it receives",
        [MODEL_CLIENT_THREADS] = "the clients' threads",
    };
    enum model_part most = model_load_busiest(load);
    if (load->time > 0)
        text_say(r->out, "  ", "busiest: %s, for %.0f %% of the time", names[most],
                 100 * bench_per(load->busy[most], load->time));
}

static void print_timeline(struct bench_print *r, const struct bench_run *run)
{
    double seconds = bench_window_ms(r->config) / 1e3;
    char speed[TEXT_MAX], rtts[TEXT_MAX];
    text_say(r->out, "  ", "time line of %s%s, in windows of %g ms%s",
             r->config->repeat > 1 ? "the first run of " : "", run->workload,
             bench_window_ms(r->config), run->windows > 0 ? ":" : ": it took less than one");
    for (unsigned n = 0; n < run->windows; n++) {
        const struct bench_window *w = &run->window[n];
        fprintf(r->out, "  %10.2f s %15s ops/s %8s rtts\n", (n + 1) * seconds,
                text_grouped((uint64_t)((double)w->ops / seconds + 0.5), speed),
                text_fit(bench_per(w->rtts, w->ops), 8, 2, rtts));
    }
    if (run->windows + 1 == BENCH_WINDOWS_MAX)
        text_say(r->out, "  ", "the time line ends here, after %u windows", run->windows);
}

static void print_deaths(struct bench_print *r, const struct bench_run *run)
{
    char deaths[TEXT_MAX];
    if (r->config->deaths > 0)
        text_say(r->out, "  ", "%s client%s died; a new client took the place of each",
                 text_grouped(run->deaths, deaths), text_plural(run->deaths));
}

/* Operations that did not find their key, failed, or returned something wrong. */
static void print_failed(struct bench_print *r, const struct bench_run *run)
{
    static const char *const what[FAR_OP_KINDS] = {
        [FAR_OP_GET] = "gets returned the value of another key",
        [FAR_OP_MODIFY] = "modifications found the value of another key, or none",
        [FAR_OP_ITERATE] = "calls of an iteration returned wrong entries",
        [FAR_OP_SCAN] = "scans returned wrong entries",
    };
    char some[TEXT_MAX], all[TEXT_MAX];
    for (unsigned k = 0; k < FAR_OP_KINDS; k++) {
        const struct bench_op *op = &run->op[k];
        uint64_t errors = bench_op_errors(op);
        text_grouped(op->stats.count, all);
        if (op->stats.not_found > 0)
            text_say(r->out, "  ", "%s: %s of %s did not find their key", bench_kind_names[k],
                     text_grouped(op->stats.not_found, some), all);
        if (errors > 0)
            text_say(r->out, "  ", "%s: %s of %s failed", bench_kind_names[k],
                     text_grouped(errors, some), all);
        if (op->wrong > 0 && what[k])
            text_say(r->out, "  ", "%s %s", text_grouped(op->wrong, some), what[k]);
    }
    if (run->first_error != FAR_OK && run->halted_by == FAR_OK)
        text_say(r->out, "  ", "the first error was %s: %s", far_errname(run->first_error),
                 far_strerror(run->first_error));
}

const char *bench_hint(int status)
{
    switch (status) {
    case FAR_POOL_FULL:
        return "make the pool larger (size=), or use fewer --keys or a smaller --value-size";
    case FAR_TABLE_FULL:
        return "use fewer --keys, or another --tuning of the index";
    case FAR_NO_CLIENT_SLOT:
        return "make room for more clients (clients=); those that died keep their places for some "
               "leases";
    case FAR_NODE_LOST:
        return "the pool is lost: create it again";
    default:
        return status_means(status, STATUS_FABRIC)
                   ? "see whether the memory nodes run and can be reached: farside doctor URI"
                   : NULL;
    }
}

/* Says why a run did not come to its end. */
static void print_end(struct bench_print *r, const struct bench_run *run)
{
    char done[TEXT_MAX], planned[TEXT_MAX];
    text_grouped(run->ops, done);
    text_grouped(run->ops_planned, planned);
    if (run->interrupted)
        text_say(r->out, "  ", "interrupted: %s stopped after %s of %s operations", run->workload,
                 done, planned);
    if (run->halted_by == FAR_OK)
        return;
    text_say(r->out, "  ", "%s stopped after %s of %s operations: %s%s%s%s", run->workload, done,
             planned, far_strerror(run->halted_by), *run->detail ? " (" : "", run->detail,
             *run->detail ? ")" : "");
    if (bench_hint(run->halted_by))
        text_say(r->out, "  ", "hint: %s", bench_hint(run->halted_by));
}

/* Remembers the run, to compare it with those of other numbers of threads. */
static void remember(struct bench_print *r, const struct bench_run *run)
{
    struct print_seen *grown = realloc(r->seen, (r->seen_count + 1) * sizeof *grown);
    if (!grown)
        return; /* then there are fewer hints */
    r->seen = grown;
    struct print_seen *seen = &r->seen[r->seen_count++];
    *seen = (struct print_seen){.workload = run->workload,
                                .place = r->place,
                                .threads = r->config->threads,
                                .ops_per_s = run->ops_per_s};
    snprintf(seen->index, sizeof seen->index, "%s", run->index);
}

void bench_print_run(struct bench_print *r, const struct bench_run *run)
{
    bool first = true;
    if (*r->index && strcmp(r->index, run->index) != 0)
        fputs("\n", r->out);
    snprintf(r->index, sizeof r->index, "%s", run->index); /* it is gone with its table */
    for (unsigned k = 0; k < FAR_OP_KINDS; k++) {
        if (run->op[k].stats.count == 0)
            continue;
        print_run_columns(r, run, first);
        print_op_columns(r, bench_kind_names[k], &run->op[k]);
        first = false;
    }
    for (unsigned k = 0; k < FAR_OP_KINDS; k++) {
        print_joined(r, bench_kind_names[k], &run->op[k].stats);
        print_entries(r, bench_kind_names[k], &run->op[k].stats);
    }
    print_pace(r, run);
    print_counters(r, run);
    print_load(r, &run->load);
    if (run->slowest_ops > 0)
        text_say(
            r->out, "  ",
            "the slowest %g ms: %.2f of the median by operations, %.2f by operations per round "
            "trip",
            bench_window_ms(r->config), run->slowest_ops, run->slowest_ops_per_rtt);
    if (r->config->timeline)
        print_timeline(r, run);
    print_deaths(r, run);
    print_failed(r, run);
    print_end(r, run);
    if (r->several && !run->interrupted && run->halted_by == FAR_OK)
        remember(r, run);
    struct far_table_info space = run->space;
    bench_add_splits(&space, &r->space);
    if (run->space_known)
        r->space = space;
    r->runs += run->space_known;
    r->place++;
    fflush(r->out);
}

/* "1.20 to 2.31 us" of a latency. */
static const char *latency_range(const struct summary *s, unsigned figure, char text[RANGE_MAX])
{
    struct summary_spread spread = summary_spread(s, figure);
    char least[TEXT_MAX], most[TEXT_MAX];
    snprintf(text, RANGE_MAX, "%s to %s", text_fit(spread.least / 1e3, 7, 2, least),
             text_fit(spread.most / 1e3, 7, 2, most));
    return text;
}

void bench_print_summary(struct bench_print *r, const struct summary *s)
{
    struct summary_spread speed = summary_spread(s, SUMMARY_OPS_PER_S);
    char least[TEXT_MAX], most[TEXT_MAX], p50[RANGE_MAX], p99[RANGE_MAX];
    bench_print_run(r, s->sums);
    if (s->runs == 0)
        return;
    text_say(r->out, "  ", "%u run%s: %s to %s ops/s, %+.1f %% to %+.1f %% of the median", s->runs,
             text_plural(s->runs), text_grouped((uint64_t)(speed.least + 0.5), least),
             text_grouped((uint64_t)(speed.most + 0.5), most),
             100 * (speed.least / speed.median - 1), 100 * (speed.most / speed.median - 1));
    for (unsigned k = 0; k < FAR_OP_KINDS; k++)
        if (s->count[k] > 0)
            text_say(r->out, "    ", "%s: p50 %s us, p99 %s us", bench_kind_names[k],
                     latency_range(s, SUMMARY_P50 + k, p50),
                     latency_range(s, SUMMARY_P99 + k, p99));
    fflush(r->out);
}

void bench_print_index(struct bench_print *r, const char *index)
{
    const struct far_table_info *s = &r->space;
    char number[TEXT_MAX], cache[TEXT_MAX], head[16], per_key[96] = "", splits[96] = "no splits";

    r->place = 0;
    if (r->runs == 0)
        return;
    if (s->keys > 0)
        snprintf(per_key, sizeof per_key, "; per key %.1f bytes of index and %.1f of blocks",
                 bench_per(s->index_bytes, s->keys), bench_per(s->block_bytes, s->keys));
    if (s->splits > 0)
        snprintf(splits, sizeof splits, "%s split%s at load factor %.3f (highest %.3f)",
                 text_grouped(s->splits, number), text_plural(s->splits), s->split_load_mean,
                 s->split_load_max);
    snprintf(head, sizeof head, "%-7s ", index);
    text_say(r->out, head, "space: %s key%s at load factor %.3f%s", text_grouped(s->keys, number),
             text_plural(s->keys), s->load_factor, per_key);
    snprintf(head, sizeof head, "%-7s ", "");
    text_say(r->out, head, "index %s bytes, client cache %s bytes; %s",
             text_grouped(s->index_bytes, number), text_grouped(s->client_cache_bytes, cache),
             splits);
    r->space = (struct far_table_info){.keys = 0};
    r->runs = 0;
    fflush(r->out);
}

void bench_print_dropped(struct bench_print *r, const struct bench_drop *drop)
{
    char bytes[TEXT_MAX];
    fprintf(r->out, "%-7s dropped a table", "");
    if (drop->bytes > 0)
        fprintf(r->out, ": %s bytes are free again", text_grouped(drop->bytes, bytes));
    fputs("\n", r->out);
    fflush(r->out);
}

/* The same workload of the same index with one thread. */
static const struct print_seen *alone(const struct bench_print *r, const struct print_seen *run)
{
    for (unsigned i = 0; i < r->seen_count; i++) {
        const struct print_seen *other = &r->seen[i];
        if (other->threads == 1 && other->place == run->place &&
            strcmp(other->index, run->index) == 0)
            return other;
    }
    return NULL;
}

/* Says if runs with this many threads were slower than with one. */
static bool compare_threads(struct bench_print *r, unsigned threads)
{
    const struct print_seen *worst = NULL;
    unsigned compared = 0, slower = 0;
    double least = 1;
    for (unsigned i = 0; i < r->seen_count; i++) {
        const struct print_seen *run = &r->seen[i], *one = alone(r, run);
        if (run->threads != threads || !one || one->ops_per_s <= 0)
            continue;
        double ratio = run->ops_per_s / one->ops_per_s;
        compared++;
        slower += ratio < 1;
        if (ratio < least) {
            least = ratio;
            worst = run;
        }
    }
    if (worst)
        text_say(
            r->out, "  ",
            "hint: with %u threads, %u of %u runs were slower than with 1 thread (%s %s: %.2f of "
            "the operations per second)",
            threads, slower, compared, worst->index, worst->workload, least);
    return worst != NULL;
}

void bench_print_end(struct bench_print *r)
{
    bool slower = false;
    fputs("\n", r->out);
    if (r->config->depth > 1)
        text_say(r->out, "  ",
                 "p50, p99: with %u operations %s, these times include the time that an operation "
                 "waits for others of its own session",
                 r->config->depth, in_flight(r->config));
    for (unsigned i = 0; i < r->seen_count; i++) /* once for each number of threads */
        if (r->seen[i].threads > 1 && (i == 0 || r->seen[i].threads != r->seen[i - 1].threads))
            slower |= compare_threads(r, r->seen[i].threads);
    if (slower)
        text_say(
            r->out, "  ",
            "This machine has %ld processors. Threads need one each, and so do memory nodes that "
            "run here.",
            sysconf(_SC_NPROCESSORS_ONLN));
    free(r->seen);
    r->seen = NULL;
    r->seen_count = 0;
    fflush(r->out);
}
