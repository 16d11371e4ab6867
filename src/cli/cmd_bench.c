#include "base/status.h"
#include "base/text.h"
#include "bench/bench.h"
#include "bench/keys.h"
#include "bench/mix.h"
#include "bench/pace.h"
#include "bench/report.h"
#include "bench/summary.h"
#include "cli/bench_compare.h"
#include "cli/cli.h"
#include "cli/pages.h"
#include "cli/progress.h"
#include "compare/compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_WORKLOADS  "load,a,b,c,d,f"
#define THREADS_LISTED_MAX 16u
#define THREADS_TEXT_BYTES 128

/* Says, for --help, how a mix is written. */
static void print_mixes(void)
{
    const char *operation = NULL;
    fputs("A mix is written with its percentages, which sum to 100: insert=30+get=70. Its\n"
          "operations:",
          stdout);
    for (unsigned i = 0; (operation = mix_operation_at(i)) != NULL; i++)
        printf(" %s", operation);
    fputs(" (rmw is a get followed by an update)\n", stdout);
}

static void usage(void)
{
    const struct workload *w = NULL;
    const char *index = NULL;

    fputs("usage: farside bench [OPTION...]\n"
          "\n"
          "Runs workloads on a new table and shows what they cost: round trips first, then verbs,\n"
          "bytes and time.\n"
          "\n"
          "  --pool URI         the pool in which the table is made (FARSIDE_POOL, else\n"
          "                     mem:)\n"
          "  --index LIST|all   the indexes that keep the table, one after the other (all):",
          stdout);
    for (unsigned i = 0; (index = far_index_name(i)) != NULL; i++)
        printf(" %s", index);
    fputs("\n"
          "  --tuning TEXT      parameters of the table, which its index must know (see below)\n"
          "  --workload LIST    the workloads and mixes to run, in this order on one table\n"
          "                     (" DEFAULT_WORKLOADS "); if load is not the first, the keys are\n"
          "                     loaded before without being measured\n"
          "  --keys N           keys to load (200k)\n"
          "  --ops N            operations of each workload (200k)\n"
          "  --warmup N         operations before these, which are not measured (0); load and\n"
          "                     iterate have none\n"
          "  --repeat N         run each workload this often, and show the median and the spread\n"
          "                     (1); if one adds or deletes keys, each time on a new table\n"
          "  --processes N      processes that share the table, each with its threads (1); more\n"
          "                     than one needs another pool than mem:\n"
          "  --threads N,...    threads, each with a session of its own (1); with several\n"
          "                     numbers, everything runs with each of them\n"
          "  --depth N          operations that each thread keeps in flight (1)\n"
          "  --rate N           operations per second, of all threads together: each is due at a\n"
          "                     fixed time, and its latency counts from then (as fast as\n"
          "                     possible); load and iterate have no rate\n"
          "  --key-size BYTES   bytes of a key, at least 8 (16); MIN-MAX varies them from key\n"
          "                     to key\n"
          "  --value-size BYTES bytes of a value (32); MIN-MAX, with MIN at least 16, varies\n"
          "                     them from write to write\n"
          "  --dist NAME        how popular keys are: zipfian, uniform or latest (zipfian, but\n"
          "                     latest in workload d)\n"
          "  --theta T          skew of zipfian and latest, greater than 0 (0.99)\n"
          "  --seed N           seed of all random choices: the same seed gives the same\n"
          "                     operations (1)\n"
          "  --deaths N         clients that die in a second of virtual time (0); a new client\n"
          "                     takes the place of each; only with model:\n"
          "  --raw              also measure the same verbs without an index\n"
          "  --counters         also show the cycles, instructions, cache misses and context\n"
          "                     switches of an operation, as far as the kernel counts them\n"
          "  --timeline         also show the operations per second in each 100 ms (model: 10 ms)\n"
          "  --keep             leave the tables in the pool, named bench-INDEX; otherwise they\n"
          "                     are dropped at the end\n"
          "  --compare LIST     compare one index (race) with other stores, where they are\n"
          "                     installed: lmdb, cuckoo, redis, memcached, or all; the pools are\n"
          "                     its own, and the workloads " COMPARE_WORKLOADS " by default; see\n"
          "                     farside-bench(1)\n"
          "  --rounds N         rounds of --compare, in which all stores take turns (5)\n"
          "  --json FILE|-      also write the results as JSON; with -, print only that\n"
          "  --report FILE      also write a page with charts, for a browser: one HTML file that\n"
          "                     needs nothing else\n"
          "  --csv FILE|-       also write the results for spreadsheets: a row for each run and\n"
          "                     kind of operation\n"
          "  -h, --help         show this help\n"
          "\n"
          "The pool model:?nic=cx6&machines=N&threads=N&depth=N is a modelled network in virtual\n"
          "time: its URI has the clients, instead of --processes, --threads and --depth; see\n"
          "farside-bench(1).\n"
          "\n"
          "Counts take k, m and g (powers of 1000), sizes take k and m (powers of 1024). The\n"
          "workloads:\n",
          stdout);
    for (unsigned i = 0; (w = workload_at(i)) != NULL; i++)
        printf("  %-8s%s\n", w->name, w->summary);
    print_mixes();
    cli_print_tuning();
}

/* ---- options --------------------------------------------------------------------------------- */

static bool take_workloads(const char *command, const char *text, void *arg)
{
    if (workload_parse(text, arg) == FAR_OK)
        return true;
    cli_misused(command, "%s", far_error_detail());
    return false;
}

/* --threads N,N,...: the benchmark runs with each of the numbers. */
struct thread_list {
    unsigned number[THREADS_LISTED_MAX], count;
};

static bool take_threads(const char *command, const char *text, void *arg)
{
    struct thread_list list = {.count = 0};
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char one[16] = "";
        uint64_t number = 0;
        size_t len = strcspn(at, ",");
        if (len < sizeof one)
            memcpy(one, at, len);
        if (!text_number(one, 1, BENCH_THREADS_MAX, &number) || list.count == THREADS_LISTED_MAX) {
            cli_misused(command,
                        "invalid --threads '%s': expected a number from 1 to %u, or up to %u such "
                        "numbers with commas between them",
                        text, BENCH_THREADS_MAX, THREADS_LISTED_MAX);
            return false;
        }
        list.number[list.count++] = (unsigned)number;
    }
    *(struct thread_list *)arg = list;
    return true;
}

/* The list as text: "1, 2, 4". */
static const char *threads_text(const struct thread_list *list, char text[THREADS_TEXT_BYTES])
{
    size_t len = 0;
    for (unsigned i = 0; i < list->count; i++)
        len += (size_t)snprintf(text + len, THREADS_TEXT_BYTES - len, "%s%u", i > 0 ? ", " : "",
                                list->number[i]);
    return text;
}

/* --key-size and --value-size: BYTES, or MIN-MAX. */
struct size_option {
    const char *name;
    unsigned min, max;
    struct bench_range *range;
};

static bool take_sizes(const char *command, const char *text, void *arg)
{
    const struct size_option *o = arg;
    char first[TEXT_SIZE_BYTES] = "", least[TEXT_SIZE_BYTES], most[TEXT_SIZE_BYTES];
    size_t len = strcspn(text, "-");
    uint64_t min = 0, max = 0;
    if (len < sizeof first)
        memcpy(first, text, len);
    bool good = text_size(first, &min) && text_size(text[len] ? text + len + 1 : first, &max) &&
                min >= o->min && min <= max && max <= o->max;
    if (good)
        *o->range = (struct bench_range){(unsigned)min, (unsigned)max};
    else
        cli_misused(command,
                    "invalid --%s '%s': expected a size from %s to %s bytes, or a range of sizes "
                    "such as 16-64 (k and m stand for powers of 1024)",
                    o->name, text, text_of_size(o->min, least), text_of_size(o->max, most));
    return good;
}

static bool take_dist(const char *command, const char *text, void *arg)
{
    struct bench_config *c = arg;
    c->dist_given = bench_dist_parse(text, &c->dist);
    if (!c->dist_given)
        cli_misused(command, "invalid --dist '%s': expected zipfian, uniform or latest", text);
    return c->dist_given;
}

static bool take_theta(const char *command, const char *text, void *arg)
{
    char *end;
    double theta = strtod(text, &end);
    bool good = end != text && *end == '\0' && theta > 0 && isfinite(theta);
    if (good)
        *(double *)arg = theta;
    else
        cli_misused(command, "invalid --theta '%s': expected a number greater than 0", text);
    return good;
}

static bool take_seed(const char *command, const char *text, void *arg)
{
    bool good = text_number(text, 0, INT64_MAX, arg);
    if (!good)
        cli_misused(command, "invalid --seed '%s': expected a whole number", text);
    return good;
}

/* ---- results --------------------------------------------------------------------------------- */

struct output {
    const struct bench_config *config;
    const struct thread_list *threads;
    const struct cli_indexes *indexes;
    struct report report;
    bool table;     /* print the table */
    bool begun;     /* its head is printed */
    bool with;      /* the number of threads is printed */
    bool measuring; /* an index */
    bool timeline;  /* the JSON has the windows of a run, for --report */
    json_t *runs, *drops;
    struct summary_list summaries;
    struct progress progress;
    bool lost;   /* a memory node */
    bool errors; /* an operation failed, or a table stays in the pool */
};

static void on_progress(void *arg, const char *index, const char *what, uint64_t done,
                        uint64_t total)
{
    struct output *o = arg;
    char text[64];
    snprintf(text, sizeof text, "%s %s", index, what);
    progress_show(&o->progress, text, done, total);
}

/* Prints the head of the table only now, because a pool that cannot be opened needs none. */
static void on_index_begin(void *arg, const char *index)
{
    struct output *o = arg;
    (void)index;
    char text[THREADS_TEXT_BYTES];
    if (o->table && !o->begun)
        report_begin(&o->report, stdout, o->config, threads_text(o->threads, text));
    if (o->table && !o->with)
        report_threads(&o->report, o->config);
    o->begun = o->with = o->measuring = true;
}

static void on_run(void *arg, const struct bench_run *run)
{
    struct output *o = arg;
    progress_clear(&o->progress);
    if (o->table && o->config->repeat == 1)
        report_run(&o->report, run);
    if (summary_add(&o->summaries, o->config->threads, run) != FAR_OK) {
        cli_failed("bench", FAR_NO_MEMORY, "cannot sum up the runs");
        o->errors = true;
    }
    struct bench_config config = *o->config;
    config.timeline |= o->timeline;
    json_array_append_new(o->runs, report_json_run(&config, run));
    for (unsigned k = 0; k < FAR_OP_KINDS; k++)
        o->errors |= bench_op_errors(&run->op[k]) > 0;
    o->errors |= run->halted_by != FAR_OK;
    o->lost |= status_means(run->halted_by, STATUS_FABRIC);
}

/* Prints the workloads that ran several times. */
static void print_summaries(struct output *o)
{
    for (unsigned i = 0; i < o->summaries.count; i++) {
        struct summary *s = o->summaries.item[i];
        if (s->sums && o->table && o->config->repeat > 1)
            report_summary(&o->report, s);
        summary_forget_sums(s);
    }
}

static void on_index_done(void *arg, const char *index)
{
    struct output *o = arg;
    progress_clear(&o->progress);
    o->measuring = false;
    print_summaries(o);
    if (o->table)
        report_index(&o->report, index);
}

/* Says that a table stays in the pool, why, and how to get rid of it. */
static void print_left(const struct output *o, const struct bench_drop *drop)
{
    if (drop->foreign)
        fprintf(stderr,
                "farside bench: note: table '%s' is of a benchmark on another machine, or from "
                "before this one was restarted\n",
                drop->table);
    else
        cli_failed("bench", drop->status, "cannot drop the table '%s'", drop->table);
    fprintf(stderr, "farside bench: %s, remove it with: farside table drop --pool '%s' %s\n",
            drop->foreign ? "unless that benchmark runs"
                          : "the next benchmark on this machine tries again; or",
            o->config->pool, drop->table);
}

static void on_dropped(void *arg, const struct bench_drop *drop)
{
    struct output *o = arg;
    bool left = drop->foreign || (drop->left_over && drop->status != FAR_OK);
    progress_clear(&o->progress);
    if (left && o->begun) /* said before the results, which must not scroll away */
        return;
    json_array_append_new(o->drops, report_json_drop(drop));
    o->errors |= drop->status != FAR_OK;
    if (drop->foreign || drop->status != FAR_OK)
        print_left(o, drop);
    else if (drop->left_over)
        fprintf(stderr,
                "farside bench: note: dropped table '%s', which a benchmark that was killed had "
                "left: %" PRIu64 " bytes are free again\n",
                drop->table, drop->bytes);
    else if (o->table && o->begun && !o->measuring)
        report_dropped(&o->report, drop);
}

/* Nobody can read the results any more: the disk is full, for one. */
static bool on_enough(void *arg)
{
    const struct output *o = arg;
    return o->table && !cli_output_good();
}

/* Runs the suite with each number of threads. */
static int run_suites(struct bench_config *c, struct output *o)
{
    struct bench_observer observer = {
        .arg = o,
        .progress = on_progress,
        .index_begin = on_index_begin,
        .run = on_run,
        .index_done = on_index_done,
        .dropped = on_dropped,
        .enough = on_enough,
    };
    int rc = FAR_OK;
    for (unsigned i = 0; i < o->threads->count; i++) {
        c->threads = o->threads->number[i];
        o->with = false;
        unsigned n = 0;
        do { /* once for all indexes */
            if (atomic_load(c->stop) || on_enough(o) || rc != FAR_OK || o->lost)
                break;
            c->index = o->indexes->count > 0 ? o->indexes->name[n] : NULL;
            rc = bench_suite(c, &observer);
        } while (++n < o->indexes->count);
    }
    if (o->table && o->begun)
        report_end(&o->report);
    return rc;
}

/* Files to write besides the table; NULL: not wanted. */
struct files {
    const char *json, *report, *csv;
};

/* Writes --report and --csv, if something was measured. */
static int write_pages(struct pages *pages, const struct bench_config *c, const struct output *o,
                       bool stopped)
{
    json_t *all = json_array();
    if (json_array_size(o->runs) > 0 &&
        json_array_append_new(all, report_json(c, o->runs, &o->summaries, o->drops, stopped)) !=
            0) {
        json_decref(all);
        all = NULL;
    }
    return pages_close(pages, all);
}

static int run(struct bench_config *c, const struct thread_list *threads,
               const struct cli_indexes *indexes, const struct files *files)
{
    FILE *file = NULL;
    struct pages pages;
    if (!pages_one_dash("bench", files->json, files->report, files->csv))
        return CLI_MISUSED;
    if (!pages_open(&pages, "bench", files->report, files->csv))
        return CLI_FAILED;
    if (!cli_json_open("bench", files->json, &file)) {
        pages_close(&pages, json_array());
        return CLI_FAILED;
    }
    struct output o = {.config = c,
                       .threads = threads,
                       .indexes = indexes,
                       .table = file != stdout && !pages_to_stdout(&pages),
                       .timeline = files->report != NULL,
                       .runs = json_array(),
                       .drops = json_array()};
    progress_init(&o.progress);
    int rc = run_suites(c, &o);
    bool stopped = atomic_load(c->stop);
    int code = o.errors || stopped ? CLI_FAILED : CLI_OK;
    if (rc != FAR_OK)
        code = cli_failed("bench", rc, "the benchmark failed");
    if (rc != FAR_OK && report_hint(rc))
        fprintf(stderr, "farside bench: hint: %s\n", report_hint(rc));
    if (file &&
        cli_json_close("bench", files->json, file,
                       report_json(c, o.runs, &o.summaries, o.drops, stopped)) != CLI_OK &&
        code == CLI_OK)
        code = CLI_FAILED;
    if (write_pages(&pages, c, &o, stopped) != CLI_OK && code == CLI_OK)
        code = CLI_FAILED;
    if (stopped)
        fprintf(stderr, "farside bench: interrupted: the results are incomplete\n");
    json_decref(o.runs);
    json_decref(o.drops);
    summary_list_free(&o.summaries);
    return code;
}

/* --compare: with another default of some options. */
static int compare(struct bench_config *c, const struct thread_list *threads, const char *list,
                   unsigned rounds, const struct cli_indexes *indexes, const struct files *files)
{
    const char *pool = getenv("FARSIDE_POOL");
    if (strcmp(c->pool, bench_defaults.pool) != 0 && (!pool || strcmp(c->pool, pool) != 0))
        return cli_misused("bench", "--compare makes pools of its own, without --pool");
    if (threads->count > 1)
        return cli_misused("bench", "--compare takes one number of --threads");
    if (files->report || files->csv)
        return cli_misused("bench", "--compare has a table and --json, but no --report and --csv");
    c->threads = threads->number[0];
    if (indexes->text && indexes->count != 1)
        return cli_misused("bench", "--compare measures one index");
    c->index = indexes->count > 0 ? indexes->name[0] : CLI_DEFAULT_INDEX;
    if (c->workloads.count == 0)
        workload_parse(COMPARE_WORKLOADS, &c->workloads);
    c->stop = cli_stop_on_signals();
    return bench_compare(c, list, rounds, files->json);
}

/* Sets what was not given. */
static void take_defaults(struct bench_config *c)
{
    if (c->keys == 0)
        c->keys = bench_defaults.keys;
    if (c->ops == 0)
        c->ops = bench_defaults.ops;
    if (c->workloads.count == 0)
        workload_parse(DEFAULT_WORKLOADS, &c->workloads);
}

/* Can the benchmark run with each of them? If not, the detail says why. */
static bool check_indexes(struct bench_config *c, const struct cli_indexes *indexes)
{
    unsigned n = 0;
    bool good = true;
    do {
        c->index = indexes->count > 0 ? indexes->name[n] : NULL;
        good = bench_check(c) == FAR_OK;
    } while (good && ++n < indexes->count);
    return good;
}

int cmd_bench(int argc, char **argv)
{
    struct bench_config c = bench_defaults;
    struct thread_list threads = {.number = {1}, .count = 1};
    struct files files = {.json = NULL};
    struct cli_indexes indexes = {.count = 0};
    const char *list = NULL;
    unsigned rounds = 0;
    struct size_option key_size = {"key-size", BENCH_KEY_MIN, FAR_KEY_MAX, &c.sizes.key};
    struct size_option value_size = {"value-size", 0, FAR_VALUE_MAX, &c.sizes.value};
    const struct cli_option options[] = {
        CLI_POOL(&c.pool),
        {.name = "index", .take = cli_take_indexes, .arg = &indexes},
        {.name = "tuning", .text = &c.tuning},
        {.name = "workload", .take = take_workloads, .arg = &c.workloads},
        {.name = "keys", .large = &c.keys, .min = 1, .max = BENCH_COUNT_MAX},
        {.name = "ops", .large = &c.ops, .min = 1, .max = BENCH_COUNT_MAX},
        {.name = "warmup", .large = &c.warmup, .max = BENCH_COUNT_MAX},
        {.name = "repeat", .number = &c.repeat, .min = 1, .max = BENCH_REPEAT_MAX},
        {.name = "processes", .number = &c.processes, .min = 1, .max = BENCH_THREADS_MAX},
        {.name = "threads", .take = take_threads, .arg = &threads},
        {.name = "depth", .number = &c.depth, .min = 1, .max = FAR_DEPTH_MAX},
        {.name = "rate", .large = &c.rate, .min = 1, .max = PACE_RATE_MAX},
        {.name = "key-size", .take = take_sizes, .arg = &key_size},
        {.name = "value-size", .take = take_sizes, .arg = &value_size},
        {.name = "dist", .take = take_dist, .arg = &c},
        {.name = "theta", .take = take_theta, .arg = &c.theta},
        {.name = "seed", .take = take_seed, .arg = &c.seed},
        {.name = "deaths", .number = &c.deaths, .max = 1000000},
        {.name = "raw", .flag = &c.raw},
        {.name = "counters", .flag = &c.counters},
        {.name = "timeline", .flag = &c.timeline},
        {.name = "keep", .flag = &c.keep},
        {.name = "compare", .text = &list},
        {.name = "rounds", .number = &rounds, .min = 1, .max = COMPARE_ROUNDS_MAX},
        {.name = "json", .text = &files.json},
        {.name = "report", .text = &files.report},
        {.name = "csv", .text = &files.csv},
        {.name = NULL},
    };
    const struct cli_syntax syntax = {.command = "bench", .usage = usage, .options = options};
    int code = CLI_OK;
    c.keys = c.ops = 0;
    if (!cli_read(&syntax, argc, argv, &code))
        return code;
    if (list)
        return compare(&c, &threads, list, rounds > 0 ? rounds : COMPARE_ROUNDS_DEFAULT, &indexes,
                       &files);
    if (rounds > 0)
        return cli_misused("bench", "--rounds is for --compare");
    take_defaults(&c);
    c.indexes = indexes.text;
    if (threads.count > 1 && c.processes > 1)
        return cli_misused("bench", "--threads takes one number if there are several processes");
    for (unsigned i = 0; i < threads.count; i++) {
        c.threads = threads.number[i];
        if (bench_take_shape(&c) != FAR_OK || !check_indexes(&c, &indexes))
            return cli_misused("bench", "%s", far_error_detail());
        threads.number[i] = c.threads;
    }
    c.stop = cli_stop_on_signals();
    return run(&c, &threads, &indexes, &files);
}
