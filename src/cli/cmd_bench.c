#include "base/status.h"
#include "base/text.h"
#include "bench/bench.h"
#include "bench/keys.h"
#include "bench/mix.h"
#include "bench/pace.h"
#include "bench/json.h"
#include "bench/print.h"
#include "bench/summary.h"
#include "cli/machines.h"
#include "cli/measure.h"
#include "cli/pages.h"
#include "cli/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_WORKLOADS  "load,a,b,c,d,f"
#define THREADS_LISTED_MAX 16u
#define THREADS_TEXT_BYTES 128

/* For --help. */
static void print_lists(void)
{
    const struct workload *w = NULL;
    const char *operation = NULL;
    fputs("\nThe workloads:\n", stdout);
    for (unsigned i = 0; (w = workload_at(i)) != NULL; i++)
        printf("  %-8s%s\n", w->name, w->summary);
    fputs("A mix is written with its percentages, which sum to 100: insert=30+get=70. Its\n"
          "operations:",
          stdout);
    for (unsigned i = 0; (operation = mix_operation_at(i)) != NULL; i++)
        printf(" %s", operation);
    fputs(" (rmw is a get followed by an update)\n", stdout);
    cli_print_indexes();
    cli_print_tuning();
}

/* ---- options --------------------------------------------------------------------------------- */

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

static bool refuse_compare(const char *command, const char *text, void *arg)
{
    (void)arg;
    cli_misused(command, "--compare is a command of its own: farside compare %s", text);
    return false;
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

/* ---- results --------------------------------------------------------------------------------- */

struct output {
    const struct bench_config *config;
    const struct thread_list *threads;
    const struct cli_indexes *indexes;
    struct bench_print print;
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
        bench_print_begin(&o->print, stdout, o->config, threads_text(o->threads, text));
    if (o->table && !o->with)
        bench_print_threads(&o->print, o->config);
    o->begun = o->with = o->measuring = true;
}

static void on_run(void *arg, const struct bench_run *run)
{
    struct output *o = arg;
    progress_clear(&o->progress);
    if (o->table && o->config->repeat == 1)
        bench_print_run(&o->print, run);
    if (summary_add(&o->summaries, o->config->threads, run) != FAR_OK) {
        cli_failed("bench", FAR_NO_MEMORY, "cannot sum up the runs");
        o->errors = true;
    }
    struct bench_config config = *o->config;
    config.timeline |= o->timeline;
    json_array_append_new(o->runs, bench_json_run(&config, run));
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
            bench_print_summary(&o->print, s);
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
        bench_print_index(&o->print, index);
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
    json_array_append_new(o->drops, bench_json_drop(drop));
    o->errors |= drop->status != FAR_OK;
    if (drop->foreign || drop->status != FAR_OK)
        print_left(o, drop);
    else if (drop->left_over)
        fprintf(stderr,
                "farside bench: note: dropped table '%s', which a benchmark that was killed had "
                "left: %" PRIu64 " bytes are free again\n",
                drop->table, drop->bytes);
    else if (o->table && o->begun && !o->measuring)
        bench_print_dropped(&o->print, drop);
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
        bench_print_end(&o->print);
    return rc;
}

static int run(struct bench_config *c, const struct thread_list *threads,
               const struct cli_indexes *indexes, const struct pages_names *files)
{
    static const struct pages_names none;
    struct pages pages;
    bool leads = c->rank == 0; /* of several machines, one shows the results */
    int code = pages_open(&pages, "bench", leads ? files : &none);
    if (code != CLI_OK) {
        meet_close(c->meet, err_fail(FAR_SYSTEM, "it cannot write the results"));
        return code;
    }
    struct output o = {.config = c,
                       .threads = threads,
                       .indexes = indexes,
                       .table = leads && !pages_to_stdout(&pages),
                       .timeline = files->report != NULL,
                       .runs = json_array(),
                       .drops = json_array()};
    progress_init(&o.progress);
    int rc = run_suites(c, &o);
    bool stopped = atomic_load(c->stop), measured = json_array_size(o.runs) > 0;
    code = o.errors || stopped ? CLI_FAILED : CLI_OK;
    if (rc != FAR_OK)
        code = cli_failed("bench", rc, "the benchmark failed");
    if (rc != FAR_OK && bench_hint(rc))
        fprintf(stderr, "farside bench: hint: %s\n", bench_hint(rc));
    int written =
        pages_close(&pages, bench_json(c, o.runs, &o.summaries, o.drops, stopped), measured);
    meet_close(c->meet, rc);
    if (stopped && rc == FAR_OK)
        fprintf(stderr, "farside bench: interrupted: the results are incomplete\n");
    json_decref(o.runs);
    json_decref(o.drops);
    summary_list_free(&o.summaries);
    return code == CLI_OK ? written : code;
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

/* All on which the operations depend, as options: the same on all machines. The pool's URI may
 * differ, for one in its device. */
static void write_options(const struct bench_config *c, const struct thread_list *threads,
                          const struct cli_indexes *indexes, char text[MEET_OPTIONS_MAX])
{
    char list[THREADS_TEXT_BYTES];
    const struct bench_sizes *z = &c->sizes;
    size_t len = (size_t)snprintf(
        text, MEET_OPTIONS_MAX,
        "version %s (%zu)\n--keys %" PRIu64 "\n--ops %" PRIu64 "\n--repeat %u\n--threads %s\n"
        "--depth %u\n--batch %d\n--rate %" PRIu64 "\n--warmup %" PRIu64 "\n--key-size %u-%u\n"
        "--value-size %u-%u\n--dist %s%s\n--theta %g\n--seed %" PRIu64 "\n--counters %d\n"
        "--expected-keys %" PRIu64 "\n--keep %d\n--index %s\n--tuning %s\n--workload ",
        far_version(), sizeof(struct bench_run), c->keys, c->ops, c->repeat,
        threads_text(threads, list), c->depth, c->batch, c->rate, c->warmup, z->key.min, z->key.max,
        z->value.min, z->value.max, bench_dist_name(c->dist), c->dist_given ? "" : " (default)",
        c->theta, c->seed, c->counters, c->expected_keys, c->keep,
        indexes->text ? indexes->text : "all", c->tuning ? c->tuning : "");
    for (unsigned i = 0; i < c->workloads.count && len < MEET_OPTIONS_MAX; i++)
        len += (size_t)snprintf(text + len, MEET_OPTIONS_MAX - len, "%s%s", i > 0 ? "," : "",
                                c->workloads.item[i].name);
}

int cmd_bench(int argc, char **argv)
{
    struct bench_config c = bench_defaults;
    struct machines machines = MACHINES_DEFAULT;
    struct thread_list threads = {.number = {1}, .count = 1};
    struct pages_names files = {.json = NULL};
    struct cli_indexes indexes = {.count = 0};
    const struct cli_option options[] = {
        {"pool", "URI", "the pool in which the table is made (FARSIDE_POOL, else mem:)",
         .text = &c.pool, .pool = true},
        {"index", "LIST|all", "the indexes that keep the table, one after the other (all)",
         .take = cli_take_indexes, .arg = &indexes},
        {"workload", "LIST",
         "the workloads and mixes to run, in this order on one table (" DEFAULT_WORKLOADS
         "); if load is not the first, the keys are loaded before without being measured",
         .take = measure_take_workloads, .arg = &c.workloads},
        {"keys", "N", "keys to load (200k)", .large = &c.keys, .min = 1, .max = BENCH_COUNT_MAX},
        {"expected-keys", "N", "make the table with room for this many keys; 0: start small (0)",
         .large = &c.expected_keys, .max = BENCH_COUNT_MAX},
        {"ops", "N", "operations of each workload (200k)", .large = &c.ops, .min = 1,
         .max = BENCH_COUNT_MAX},
        {"repeat", "N",
         "run each workload this often, and show the median and the spread (1); if one adds or "
         "deletes keys, each time on a new table",
         .number = &c.repeat, .min = 1, .max = BENCH_REPEAT_MAX},
        {"processes", "N",
         "processes that share the table, each with its threads (1); more than one needs another "
         "pool than mem:",
         .number = &c.processes, .min = 1, .max = BENCH_THREADS_MAX},
        {"threads", "N,...",
         "threads, each with a session of its own (1); with several numbers, everything runs with "
         "each of them",
         .take = take_threads, .arg = &threads},
        {"depth", "N", "operations that each thread keeps in flight (1)", .number = &c.depth,
         .min = 1, .max = FAR_DEPTH_MAX},
        {"batch", NULL,
         "each thread executes the operations of --depth in order, with far_execute_many(), "
         "instead of keeping them in flight",
         .flag = &c.batch},
        MACHINES_OPTIONS(&machines),
        {"rate", "N",
         "operations per second, of all threads together: each is due at a fixed time, and its "
         "latency counts from then (as fast as possible); load and iterate have no rate",
         .large = &c.rate, .min = 1, .max = PACE_RATE_MAX},
        MEASURE_OPTIONS(&c),
        {"deaths", "N",
         "clients that die in a second of virtual time (0); a new client takes the place of each; "
         "only with model:",
         .number = &c.deaths, .max = 1000000},
        {"raw", NULL, "also measure the same verbs without an index", .flag = &c.raw},
        {"counters", NULL,
         "also show the cycles, instructions, cache misses and context switches of an operation, "
         "as far as the kernel counts them",
         .flag = &c.counters},
        {"timeline", NULL, "also show the operations per second in each 100 ms (model: 10 ms)",
         .flag = &c.timeline},
        {"keep", NULL,
         "leave the tables in the pool, named bench-INDEX; otherwise they are dropped at the end",
         .flag = &c.keep},
        PAGES_OPTIONS(&files),
        {.name = "compare", .take = refuse_compare},
        {.name = NULL},
    };
    const struct cli_syntax syntax = {
        .command = "bench",
        .usage = "[OPTION...]",
        .about = "Runs workloads on a new table and shows what they cost: round trips first, then "
                 "verbs, bytes and time.",
        .notes = "Counts take k, m and g (powers of 1000), sizes take k and m (powers of 1024). "
                 "The pool model:?nic=cx6&machines=N&threads=N&depth=N is a modelled network in "
                 "virtual time: its URI has the clients, instead of --processes, --threads and "
                 "--depth; see farside-bench(1).",
        .lists = print_lists,
        .options = options,
    };
    int code = CLI_OK;
    c.keys = c.ops = 0;
    if (!cli_read(&syntax, argc, argv, &code))
        return code;
    take_defaults(&c);
    c.indexes = indexes.text;
    code = machines_find("bench", &machines);
    if (code != CLI_OK)
        return code;
    c.machines = machines.count;
    c.rank = machines.rank;
    if (threads.count > 1 && c.processes > 1)
        return cli_misused("bench", "--threads takes one number if there are several processes");
    for (unsigned i = 0; i < threads.count; i++) {
        c.threads = threads.number[i];
        if (bench_take_shape(&c) != FAR_OK || !check_indexes(&c, &indexes))
            return cli_misused("bench", "%s", far_error_detail());
        threads.number[i] = c.threads;
    }
    c.stop = cli_stop_on_signals();
    char text[MEET_OPTIONS_MAX];
    write_options(&c, &threads, &indexes, text);
    code = machines_meet("bench", &machines, c.pool, text, c.stop, &c.meet);
    if (code != CLI_OK)
        return code;
    if (c.meet)
        c.stop = meet_stop(c.meet);
    return run(&c, &threads, &indexes, &files);
}
